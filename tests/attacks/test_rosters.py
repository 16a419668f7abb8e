"""Who is who at a tester that runs as a process of its own: keys that nobody owns, and keys of two owners."""

import base64
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import tester_process
from own_time import PATIENCE_S
from served import problem
from study_parties import MeanProcedure, Parties

from tacit.setup.processes import free_ports
from tacit_protocol.messages.encoding import digest, encode
from tacit_protocol.messages.study import Party
from tacit_protocol.signing import (
    STUDY_TYPE,
    PrivateKey,
    SignatureError,
    issue_token,
    sign_envelope,
    verify_signature,
)

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


@dataclass
class Live:
    """A tester's process and its parties."""

    url: str
    parties: Parties

    def send(
        self, method: str, path: str, key: PrivateKey | None, token: str = "", **sent: Any
    ) -> httpx.Response:
        token = token or ("" if key is None else issue_token(key, self.url, int(time.time())))
        headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
        return httpx.request(method, self.url + path, headers=headers, trust_env=False, timeout=300, **sent)

    def enrol(self, name: str, role: str, key: str, token: str) -> httpx.Response:
        asked = {"role": role, "name": name}
        invited = self.send("POST", "/v1/invitations", self.parties.tester, json=asked).json()["invitation"]
        return self.send(
            "POST", "/v1/enrolments", None, token, json=asked | {"invitation": invited, "key": key}
        )

    def create(self, **changes: Any) -> tuple[str, httpx.Response]:
        now = int(time.time())
        study = self.parties.study(created_at=now, deadline=now + 3600, **changes)
        payload = encode(study)
        envelope = sign_envelope(payload, STUDY_TYPE, self.parties.analyst)
        name = digest(payload)
        return name, self.send("PUT", f"/v1/studies/{name}", self.parties.analyst, content=envelope)


def forged_token(audience: str, key: str) -> str:
    """Return a token that names a key and was signed by nobody."""
    now = int(time.time())
    claims = {"iss": key, "aud": audience, "iat": now, "exp": now + 60, "jti": "0" * 32}

    def part(value: bytes) -> str:
        return base64.urlsafe_b64encode(value).rstrip(b"=").decode()

    header: Mapping[str, str] = {"alg": "EdDSA", "typ": "JWT"}
    return ".".join([*(part(json.dumps(own).encode()) for own in (header, claims)), part(FORGED)])


@contextmanager
def served_by_a_process(folder: Path, parties: Parties) -> Iterator[str]:
    url = f"http://127.0.0.1:{free_ports(1)[0]}"
    (folder / "tester.pem").write_bytes(parties.tester.to_pem())
    (folder / "tester.toml").write_text(
        f'name = "tester"\nurl = "{url}"\nport = {url.rpartition(":")[2]}\nkey_file = "tester.pem"\n'
        f'database_url = "sqlite:///{folder / "tester.sqlite3"}"\n'
    )
    command = [sys.executable, tester_process.__file__, str(folder / "tester.toml")]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        try:
            until = time.monotonic() + PATIENCE_S
            while not is_ready(url):
                assert process.poll() is None
                assert time.monotonic() < until, "the tester does not serve"
                time.sleep(0.05)  # between two looks, not for luck
            yield url
        finally:
            process.kill()


def is_ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/readyz", trust_env=False).status_code == 200
    except httpx.TransportError:
        return False


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    parties = Parties(int(time.time()))
    with served_by_a_process(tmp_path_factory.mktemp("tester"), parties) as url:
        found = Live(url, parties)
        for name, role, key in (
            ("analyst", "analyst", parties.analyst),
            *((name, "owner", key) for name, key in parties.owners.items()),
        ):
            token = issue_token(key, url, int(time.time()))
            assert found.enrol(name, role, key.public_hex, token).status_code == 201
        yield found


@pytest.mark.parametrize("key", SMALL.values(), ids=SMALL)
def test_a_key_that_everybody_signs_for_is_not_enrolled(live: Live, key: str) -> None:
    for _ in range(16):
        refused = live.enrol("east", "owner", key, forged_token(live.url, key))
        assert problem(refused) == "unauthenticated"


def test_one_key_is_one_party(live: Live) -> None:
    key = live.parties.owners["north"]
    token = issue_token(key, live.url, int(time.time()))
    assert problem(live.enrol("east", "owner", key.public_hex, token)) == "party-exists"


def test_a_roster_that_gives_two_owners_one_key_is_refused(live: Live, mean_procedure: MeanProcedure) -> None:
    shared = live.parties.owners["north"].public_hex
    owners = [live.parties.owner("north"), live.parties.owner("south", key=shared)]
    plain = live.parties.study(created_at=int(time.time()), deadline=int(time.time()) + 60)
    # Written by hand: the model itself refuses it.
    payload = encode(plain.model_copy(update={"owners": tuple(owners)}))
    envelope = sign_envelope(payload, STUDY_TYPE, live.parties.analyst)
    refused = live.send("PUT", f"/v1/studies/{digest(payload)}", live.parties.analyst, content=envelope)
    assert (problem(refused), "distinct" in refused.json()["detail"]) == ("malformed-message", True)


def test_answers_swapped_between_two_live_studies_are_refused_and_the_right_ones_taken(
    live: Live, mean_procedure: MeanProcedure
) -> None:
    tester = Party(name="tester", key=live.parties.tester.public_hex)
    (first, made), (second, again) = (live.create(title=title, tester=tester) for title in ("one", "two"))
    assert [made.status_code, again.status_code] == [201, 201], made.text
    north, south = (live.parties.owners[name] for name in ("north", "south"))

    def put(study: str, owner: str, key: PrivateKey, envelope: bytes) -> httpx.Response:
        return live.send("PUT", f"/v1/studies/{study}/releases/{owner}", key, content=envelope)

    swapped = live.parties.release(first, "north")
    assert problem(put(second, "north", north, swapped)) == "digest-mismatch"
    assert problem(put(first, "south", south, swapped)) == "invalid-signature"
    assert problem(put(first, "north", south, swapped)) == "forbidden"
    for study in (first, second):
        for owner, key in live.parties.owners.items():
            assert put(study, owner, key, live.parties.release(study, owner)).status_code == 201
    for study in (first, second):
        verdict = live.send("GET", f"/v1/studies/{study}/verdict?wait_s=30", live.parties.analyst)
        while verdict.status_code in {202, 404}:
            verdict = live.send("GET", f"/v1/studies/{study}/verdict?wait_s=30", live.parties.analyst)
        assert verdict.status_code == 200, verdict.text
