"""Request tokens: forged, borrowed, stale and foreign ones are refused."""

import base64
import json
import time
from typing import Any

import jwt
import pytest

from tacit_protocol.signing import LEEWAY_S, LIFE_S, PrivateKey, TokenError, issue_token, verify_token

KEY = PrivateKey.generate()
AUDIENCE = "https://tester.example"
NOW = int(time.time())


def refused(token: str, audience: str = AUDIENCE, now: int = NOW) -> None:
    with pytest.raises(TokenError):
        verify_token(token, audience, now)


def claims(**changes: Any) -> dict[str, Any]:
    plain = {"iss": KEY.public_hex, "aud": AUDIENCE, "iat": NOW, "exp": NOW + LIFE_S, "jti": "1"}
    return {name: value for name, value in (plain | changes).items() if value is not None}


def signed(**changes: Any) -> str:
    return jwt.encode(claims(**changes), KEY.ed25519, algorithm="EdDSA")


def _segment(value: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def test_a_token_names_its_signer() -> None:
    assert verify_token(issue_token(KEY, AUDIENCE, NOW), AUDIENCE, NOW) == KEY.public_hex
    assert verify_token(signed(), AUDIENCE, NOW) == KEY.public_hex


def test_clocks_may_differ_by_the_leeway_and_no_more() -> None:
    token = issue_token(KEY, AUDIENCE, NOW)
    verify_token(token, AUDIENCE, NOW + LIFE_S + LEEWAY_S)
    verify_token(token, AUDIENCE, NOW - LEEWAY_S)
    refused(token, now=NOW + LIFE_S + LEEWAY_S + 1)
    refused(token, now=NOW - LEEWAY_S - 1)


def test_another_audience_is_refused() -> None:
    refused(issue_token(KEY, "https://other.example", NOW))
    refused(signed(aud=["https://other.example"]))


def test_a_forged_issuer_is_refused() -> None:
    mallory = PrivateKey.generate()
    refused(jwt.encode(claims(), mallory.ed25519, algorithm="EdDSA"))
    refused(signed(iss=mallory.public_hex))


def test_other_algorithms_are_refused() -> None:
    """None at all, and HS256 keyed with the public key."""
    refused(f"{_segment({'alg': 'none', 'typ': 'JWT'})}.{_segment(claims())}.")
    refused(jwt.encode(claims(), bytes.fromhex(KEY.public_hex), algorithm="HS256"))
    refused(jwt.encode(claims(), KEY.public_hex, algorithm="HS256"))


def test_missing_and_odd_claims_are_refused() -> None:
    for name in ("iss", "aud", "iat", "exp", "jti"):
        refused(signed(**{name: None}))
    for expires in (NOW + LIFE_S + 1, NOW, float(NOW + 10)):
        refused(signed(exp=expires))
    refused(signed(iat=True))
    for issuer in ("f" * 63, "zz" * 32):
        refused(signed(iss=issuer))


@pytest.mark.parametrize("token", ["", ".", "..", "a.b.c", "x" * 5000, "é.é.é", "e30.e30.e30", "W10.W10.W10"])
def test_what_is_no_token_is_refused(token: str) -> None:
    refused(token)


def test_a_bit_flipped_in_any_character_is_refused() -> None:
    token = issue_token(KEY, AUDIENCE, NOW)
    for index in range(len(token)):
        changed = chr(ord(token[index]) ^ 2)
        if index == len(token) - 1:
            continue  # the last character's low bits carry no data in base64url
        refused(token[:index] + changed + token[index + 1 :])
