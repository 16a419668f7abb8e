"""Uploads, by attack: late, repeated, swapped, forged, misplaced, malformed, concurrent."""

import asyncio
from typing import Any

import pytest
import sqlalchemy as sa
from study_parties import MeanProcedure
from tester_federation import Federation, problem

from tacit_protocol.signing.envelope import DECLINE_TYPE, RELEASE_TYPE, open_envelope, seal
from tacit_protocol.signing.keys import PrivateKey
from tacit_services.shared.database import run_transaction

CANARY = "canary-7391"

sqlite_alone = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
"""For what is refused before any database is asked."""


def _count(federation: Federation, table: str) -> int:
    query = sa.text(f"SELECT count(*) FROM {table}")  # noqa: S608 (the test's own names)
    return int(run_transaction(federation.engine, lambda c: c.execute(query).scalar_one(), read_only=True))


def test_the_same_bytes_again_get_the_stored_answer(federation: Federation) -> None:
    study = federation.create()
    assert [federation.release(study, "north").status_code for _ in range(3)] == [201, 200, 200]
    assert _count(federation, "releases") == 1


def test_other_bytes_never_replace_a_release(federation: Federation) -> None:
    study = federation.create()
    federation.release(study, "north", value=1)
    response = federation.release(study, "north", value=2)
    assert (response.status_code, problem(response)) == (409, "conflicting-upload")
    federation.release(study, "south", value=1)
    federation.release(study, "west", value=1)
    federation.work()
    result = federation.verdict(study).result
    assert result is not None
    assert result["mean"] == pytest.approx(0.1)


def test_a_late_release_is_refused_and_a_late_repeat_is_answered(federation: Federation) -> None:
    study = federation.create()
    federation.release(study, "north")
    federation.now += 3600
    late = federation.release(study, "south")
    assert (late.status_code, problem(late)) == (409, "study-expired")
    federation.work()
    assert problem(federation.release(study, "south")) == "study-expired"
    assert federation.release(study, "north").status_code == 200
    assert problem(federation.release(study, "north", value=99)) == "conflicting-upload"


def test_another_signer_is_refused(federation: Federation) -> None:
    study = federation.create()
    south_signed = federation.parties.release(study, "south", party="north")
    response = federation.release(study, "north", envelope=south_signed)
    assert (response.status_code, problem(response)) == (400, "invalid-signature")


def test_an_owner_answers_for_itself_alone(federation: Federation) -> None:
    study = federation.create()
    owners = federation.parties.owners
    envelope = federation.parties.release(study, "north")
    path = f"/v1/studies/{study}/releases/north"
    assert problem(federation.put(path, owners["south"], envelope)) == "forbidden"
    assert problem(federation.put(path, federation.parties.analyst, envelope)) == "forbidden"


def test_an_enrolled_owner_outside_the_roster_is_refused(federation: Federation) -> None:
    east = PrivateKey.generate()
    federation.enrol("east", "owner", east)
    study = federation.create()
    federation.parties.owners["east"] = east
    assert problem(federation.release(study, "east")) == "forbidden"


def test_the_key_of_the_studys_own_roster_decides(federation: Federation) -> None:
    """An owner enrolled in another study under the same name has no say in this one."""
    study = federation.create()
    mallory = PrivateKey.generate()
    federation.enrol("mallory", "owner", mallory)
    genuine = federation.parties.owners["north"]
    federation.parties.owners["north"] = mallory
    envelope = federation.parties.release(study, "north")
    federation.parties.owners["north"] = genuine
    assert problem(federation.release(study, "north", envelope=envelope)) == "invalid-signature"
    assert problem(federation.put(f"/v1/studies/{study}/releases/north", mallory, envelope)) == "forbidden"


def test_a_release_for_another_study_or_party_is_refused(federation: Federation) -> None:
    study, other = federation.create(), federation.create(title="other")
    swaps: list[dict[str, Any]] = [{"study": other}, {"party": "south"}]
    for changes in swaps:
        envelope = federation.parties.release(study, "north", **changes)
        assert problem(federation.release(study, "north", envelope=envelope)) == "digest-mismatch"


def test_a_message_of_another_type_is_refused(federation: Federation) -> None:
    study = federation.create()
    decline = federation.parties.decline(study, "north")
    assert problem(federation.release(study, "north", envelope=decline)) == "invalid-signature"
    release = federation.parties.release(study, "north")
    path = f"/v1/studies/{study}/declines/north"
    assert problem(federation.put(path, federation.parties.owners["north"], release)) == "invalid-signature"


def test_a_release_that_does_not_fit_is_refused(federation: Federation) -> None:
    study = federation.create()
    payload = _release_payload(federation, study).replace(b'"mean"', b'"mode"')
    bad = seal(payload, RELEASE_TYPE, federation.parties.owners["north"])
    response = federation.release(study, "north", envelope=bad)
    assert (response.status_code, problem(response)) == (422, "release-refused")
    assert federation.release(study, "north").status_code == 201, "a refusal leaves the place free"


def _release_payload(federation: Federation, study: str) -> bytes:
    owner = federation.parties.owners["north"]
    return open_envelope(federation.parties.release(study, "north"), RELEASE_TYPE, owner.public_hex)


def test_a_release_for_an_unknown_study_is_refused(federation: Federation) -> None:
    assert problem(federation.release("0" * 64, "north")) == "unknown-study"


@pytest.mark.sweep(4)
@sqlite_alone
@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"units":10', b'"units":NaN'),
        (b'"units":10', b'"units":1e400'),
        (b'"units":10', b'"units":10,"units":11'),
        (b'"units":10', b'"units":"canary-7391"'),
        (b'"units":10', b'"units":10,"canary-7391":1'),
        (b'"units":10', b'"units":0'),
        (b'"scale":1.0', b'"scale":-Infinity'),
        (b'"scale":1.0', b'"scale":-1.0'),
        (b'"values":[7]', b'"values":[' + b"[" * 5000),
        (b'"values":[7]', b'"values":[99999999999999999999]'),
        (b'"values":[7]', b'"values":[]'),
        (b'"exponent":0', b'"exponent":4000'),
    ],
)
def test_a_signed_but_malformed_payload_is_refused(federation: Federation, old: bytes, new: bytes) -> None:
    study = federation.create()
    payload = _release_payload(federation, study)
    assert old in payload
    envelope = seal(payload.replace(old, new), RELEASE_TYPE, federation.parties.owners["north"])
    response = federation.release(study, "north", envelope=envelope)
    assert (response.status_code, problem(response)) == (400, "malformed-message")
    assert CANARY not in response.text
    assert _count(federation, "releases") == 0


@pytest.mark.sweep(3)
@sqlite_alone
@pytest.mark.parametrize(
    ("content", "headers", "status"),
    [
        (b'{"payload":NaN}', {}, 400),
        (b"", {}, 400),
        (CANARY.encode(), {}, 400),
        (b'{"payload":"canary-7391","payload":"x"}', {}, 400),
        (b"[" * 500_000, {}, 400),
        (b"x" * 10_000_000, {}, 413),
        (b"\x1f\x8b\x08" + CANARY.encode(), {"content-encoding": "gzip"}, 415),
        (b"{}", {"content-type": "text/plain"}, 415),
        (b"\xff\xfe\x00", {}, 400),
    ],
)
def test_malformed_bodies_never_break_the_tester(
    federation: Federation, content: bytes, headers: dict[str, str], status: int
) -> None:
    study = federation.create()
    parties = federation.parties
    for method, path, key in (
        ("PUT", f"/v1/studies/{study}/releases/north", parties.owners["north"]),
        ("PUT", f"/v1/studies/{study}/declines/north", parties.owners["north"]),
        ("PUT", f"/v1/studies/{study}/cancellation", parties.analyst),
        ("PUT", f"/v1/studies/{study}", parties.analyst),
        ("POST", "/v1/invitations", parties.tester),
        ("POST", "/v1/enrolments", parties.tester),
    ):
        response = federation.call(method, path, key, content=content, headers=headers)
        assert response.status_code == status, (path, response.text)
        assert response.headers["content-type"] == "application/problem+json"
        assert CANARY not in response.text


@pytest.mark.sweep(3)
@sqlite_alone
@pytest.mark.parametrize(
    "path",
    [
        f"/v1/studies/{CANARY}",
        f"/v1/studies?cursor={CANARY}",
        f"/v1/studies?state={CANARY}",
        f"/v1/parties?cursor=!{CANARY}",
        f"/v1/inbox?wait_s={CANARY}",
        "/v1/inbox?wait_s=61",
        "/v1/inbox?wait_s=nan",
        "/v1/inbox?wait_s=inf",
        "/v1/inbox?wait_s=1e400",
        f"/v1/{CANARY}",
    ],
)
def test_malformed_addresses_echo_nothing(federation: Federation, path: str) -> None:
    response = federation.get(path, federation.parties.owners["north"])
    assert response.status_code == (404 if path == f"/v1/{CANARY}" else 400)
    assert CANARY not in response.text


def test_concurrent_identical_uploads_give_one_row(federation: Federation) -> None:
    study = federation.create()
    owner = federation.parties.owners["north"]
    envelope = federation.parties.release(study, "north")
    path = f"/v1/studies/{study}/releases/north"
    other = federation.start_tester()

    async def upload() -> list[int]:
        calls = (
            federation.send("PUT", path, owner, app, content=envelope) for app in (federation.app, other) * 6
        )
        return [response.status_code for response in await asyncio.gather(*calls)]

    assert sorted(asyncio.run(upload())) == [200] * 11 + [201]
    assert _count(federation, "releases") == 1


def test_concurrent_different_uploads_keep_one(federation: Federation) -> None:
    study = federation.create()
    owner = federation.parties.owners["north"]
    path = f"/v1/studies/{study}/releases/north"
    envelopes = [federation.parties.release(study, "north", value=value) for value in range(6)]

    async def upload() -> list[int]:
        calls = (federation.send("PUT", path, owner, content=envelope) for envelope in envelopes)
        return [response.status_code for response in await asyncio.gather(*calls)]

    assert sorted(asyncio.run(upload())) == [201] + [409] * 5


def test_the_last_answers_at_once_queue_one_verdict(
    federation: Federation, mean_procedure: MeanProcedure
) -> None:
    """Each of two transactions may see only its own release: then nobody would queue the verdict."""
    for _ in range(5):
        study = federation.create(title=f"study {mean_procedure.assembled}")
        parties = federation.parties
        uploads = [
            (f"/v1/studies/{study}/releases/{name}", key, parties.release(study, name))
            for name, key in parties.owners.items()
        ]

        async def upload(uploads: list[Any] = uploads) -> list[int]:
            calls = (federation.send("PUT", path, key, content=data) for path, key, data in uploads)
            return [response.status_code for response in await asyncio.gather(*calls)]

        assert asyncio.run(upload()) == [201, 201, 201]
        assert federation.work()
        assert federation.state(study) == "completed"
    assert mean_procedure.assembled == 5


def test_a_decline_and_a_release_at_once_leave_one_answer(federation: Federation) -> None:
    study = federation.create()
    parties = federation.parties
    key = parties.owners["north"]

    async def both() -> list[int]:
        release, decline = parties.release(study, "north"), parties.decline(study, "north")
        answers = await asyncio.gather(
            federation.send("PUT", f"/v1/studies/{study}/releases/north", key, content=release),
            federation.send("PUT", f"/v1/studies/{study}/declines/north", key, content=decline),
        )
        return sorted(answer.status_code for answer in answers)

    assert asyncio.run(both()) == [201, 409]
    assert _count(federation, "releases") + _count(federation, "declines") == 1


def test_a_declines_reason_cannot_be_chosen(federation: Federation) -> None:
    study = federation.create()
    key = federation.parties.owners["north"]
    payload = f'{{"format":"tacit/decline/1","party":"north","reason":"{CANARY}","study":"{study}"}}'.encode()
    response = federation.put(f"/v1/studies/{study}/declines/north", key, seal(payload, DECLINE_TYPE, key))
    assert problem(response) == "malformed-message"
    assert CANARY not in response.text
