"""Who is who at a tester: keys that nobody owns, and keys of two owners."""

import base64
import json
from collections.abc import Mapping
from typing import Any

import httpx
import pytest
from tester_federation import URL, Federation, problem

from tacit_protocol.messages.encoding import digest, encode
from tacit_protocol.signing import STUDY_TYPE, SignatureError, issue_token, sign_envelope, verify_signature

MODULUS = 2**255 - 19
ORDER_EIGHT = "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05"


def spelled(y: int, sign: int = 0) -> str:
    """Return the hexadecimal digits of a point's second coordinate, reduced or not, and its sign."""
    return (y | sign << 255).to_bytes(32, "little").hex()


SMALL = {
    "order 1": spelled(1),
    "order 1, other sign": spelled(1, 1),
    "order 1, spelled twice": spelled(MODULUS + 1),
    "order 2": spelled(MODULUS - 1),
    "order 4": spelled(0),
    "order 4, other sign": spelled(0, 1),
    "order 4, spelled twice": spelled(MODULUS),
    "order 8": ORDER_EIGHT,
}
FORGED = bytes.fromhex(spelled(1)) + bytes(32)
"""R is the neutral point and S is 0: a signature by no key, which holds for one message in eight or more."""


@pytest.mark.parametrize("key", SMALL.values(), ids=SMALL)
def test_no_signature_holds_for_a_key_of_small_order(key: str) -> None:
    for number in range(64):  # of order 8 one in eight would hold
        with pytest.raises(SignatureError):
            verify_signature(key, FORGED, number.to_bytes(4, "big"))


def forged_token(key: str, now: float) -> str:
    """Return a token that names a key and was signed by nobody."""
    claims = {"iss": key, "aud": URL, "iat": int(now), "exp": int(now) + 60, "jti": "0" * 32}

    def part(value: bytes) -> str:
        return base64.urlsafe_b64encode(value).rstrip(b"=").decode()

    header: Mapping[str, str] = {"alg": "EdDSA", "typ": "JWT"}
    return ".".join([*(part(json.dumps(own).encode()) for own in (header, claims)), part(FORGED)])


def enrol(federation: Federation, key: str, token: str) -> httpx.Response:
    """Use an invitation of an owner *east* for a key, with a token."""
    asked: dict[str, Any] = {"role": "owner", "name": "east"}
    invited = federation.call("POST", "/v1/invitations", federation.parties.tester, json=asked).json()
    body = asked | {"invitation": invited["invitation"], "key": key}
    headers = {"authorization": f"Bearer {token}"}
    return federation.call("POST", "/v1/enrolments", None, json=body, headers=headers)


def test_a_key_that_everybody_signs_for_is_not_enrolled(federation: Federation) -> None:
    for key in SMALL.values():
        for _ in range(16):
            federation.now += 1  # another token, which one in eight would hold for
            refused = enrol(federation, key, forged_token(key, federation.now))
            assert problem(refused) == "unauthenticated"


def test_one_key_is_one_party(federation: Federation) -> None:
    key = federation.parties.owners["north"]
    refused = enrol(federation, key.public_hex, issue_token(key, URL, int(federation.now)))
    assert problem(refused) == "party-exists"


def test_a_roster_that_gives_two_owners_one_key_is_refused(federation: Federation) -> None:
    parties = federation.parties
    shared = parties.owners["north"].public_hex
    owners = (parties.owner("north"), parties.owner("south", key=shared))
    # Written by hand: the model itself refuses it.
    payload = encode(parties.study().model_copy(update={"owners": owners}))
    envelope = sign_envelope(payload, STUDY_TYPE, parties.analyst)
    refused = federation.put(f"/v1/studies/{digest(payload)}", parties.analyst, envelope)
    assert (problem(refused), "distinct" in refused.json()["detail"]) == ("malformed-message", True)
