"""Uploads, by attack: late, swapped, forged, misplaced, malformed, concurrent; and stored in one group."""

import asyncio
from typing import Any

import pytest
import sqlalchemy as sa
from planted import with_mistake
from served import problem
from sqlalchemy.engine import Connection
from study_parties import MeanProcedure
from tester_federation import Federation

from tacit_protocol.signing import DECLINE_TYPE, RELEASE_TYPE, PrivateKey, open_envelope, sign_envelope
from tacit_services.shared.database import run_transaction
from tacit_services.shared.problem_responses import RegisteredProblemError
from tacit_services.tester import answers as answers_module
from tacit_services.tester import answers as storing_module
from tacit_services.tester.answers import OwnerAnswer, UploadOutcome
from tacit_services.tester.tables import DECLINES, JOBS, RELEASES
from tacit_services.tester.verdicts import Signer

CANARY = "canary-7391"

sqlite_alone = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
"""For what is refused before any database is asked."""


def _count(federation: Federation, table: str) -> int:
    query = sa.text(f"SELECT count(*) FROM {table}")  # noqa: S608 (the test's own names)
    return int(run_transaction(federation.engine, lambda c: c.execute(query).scalar_one(), read_only=True))


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


def test_a_release_that_does_not_fit_is_refused(federation: Federation) -> None:
    study = federation.create()
    payload = _release_payload(federation, study).replace(b'"mean"', b'"mode"')
    bad = sign_envelope(payload, RELEASE_TYPE, federation.parties.owners["north"])
    response = federation.release(study, "north", envelope=bad)
    assert (response.status_code, problem(response)) == (422, "release-refused")
    assert federation.release(study, "north").status_code == 201, "a refusal leaves the place free"


def _release_payload(federation: Federation, study: str) -> bytes:
    owner = federation.parties.owners["north"]
    return open_envelope(federation.parties.release(study, "north"), RELEASE_TYPE, owner.public_hex)


@pytest.mark.sweep(4)
@sqlite_alone
@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"units":10', b'"units":NaN'),
        (b'"units":10', b'"units":10,"units":11'),
        (b'"units":10', b'"units":"canary-7391"'),
        (b'"units":10', b'"units":10,"canary-7391":1'),
        (b'"scale":1.0', b'"scale":-Infinity'),
        (b'"values":[7]', b'"values":[' + b"[" * 5000),
        (b'"exponent":0', b'"exponent":4000'),
    ],
)
def test_a_signed_but_malformed_payload_is_refused(federation: Federation, old: bytes, new: bytes) -> None:
    study = federation.create()
    payload = _release_payload(federation, study)
    assert old in payload
    envelope = sign_envelope(payload.replace(old, new), RELEASE_TYPE, federation.parties.owners["north"])
    response = federation.release(study, "north", envelope=envelope)
    assert (response.status_code, problem(response)) == (400, "malformed-message")
    assert CANARY not in response.text
    assert _count(federation, "releases") == 0


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
    response = federation.put(
        f"/v1/studies/{study}/declines/north", key, sign_envelope(payload, DECLINE_TYPE, key)
    )
    assert problem(response) == "malformed-message"
    assert CANARY not in response.text


def release(study: str, owner: str, envelope: bytes = b"a") -> OwnerAnswer:
    return OwnerAnswer(
        RELEASES, {"study": study, "owner": owner, "envelope": envelope, "digest": "0" * 64, "units": 1}
    )


def decline(study: str, owner: str, envelope: bytes = b"d") -> OwnerAnswer:
    return OwnerAnswer(DECLINES, {"study": study, "owner": owner, "envelope": envelope})


def store(
    federation: Federation, answers: list[OwnerAnswer], module: Any = storing_module
) -> list[UploadOutcome | str]:
    """Store a group; returns what became of each, a refusal as its slug."""
    signer = Signer(federation.parties.tester, "test")

    def work(connection: Connection) -> list[Any]:
        found: list[Any] = module.store_answers(connection, answers, signer, int(federation.now))
        return found

    outcomes = run_transaction(federation.engine, work)
    return [
        o.problem.slug if isinstance(o, RegisteredProblemError) else UploadOutcome[o.name] for o in outcomes
    ]


def count(federation: Federation, table: sa.Table) -> int:
    query = sa.select(sa.func.count()).select_from(table)
    return run_transaction(federation.engine, lambda c: c.execute(query).scalar_one(), read_only=True)


@pytest.mark.both_databases
def test_each_answer_of_a_group_sees_those_before_it(federation: Federation) -> None:
    study, other = federation.create(), federation.create(title="other")
    group = [
        release(study, "north"),
        release(study, "north"),
        release(study, "north", b"b"),
        decline(study, "north"),
        decline(other, "north"),
        release(other, "north"),
        decline(other, "north"),
    ]
    assert store(federation, group) == [
        UploadOutcome.NOW,
        UploadOutcome.BEFORE,
        "conflicting-upload",
        "already-decided",
        UploadOutcome.NOW,
        "already-decided",
        UploadOutcome.BEFORE,
    ]
    assert (count(federation, RELEASES), count(federation, DECLINES)) == (1, 1)


@pytest.mark.both_databases
def test_the_last_answers_of_a_group_end_their_studies(federation: Federation) -> None:
    studies = [federation.create(title=f"study {number}") for number in range(3)]
    group = [release(study, owner) for owner in ("north", "south") for study in studies]
    signed = federation.parties.decline(studies[1], "west")
    group += [release(studies[0], "west"), decline(studies[1], "west", signed)]
    outcomes = store(federation, group)
    ended = [answer.study in studies[:2] for answer in group]
    assert outcomes == [UploadOutcome.LAST if is_ended else UploadOutcome.NOW for is_ended in ended]
    assert [federation.state(study) for study in studies] == ["computing", "incomplete", "collecting"]
    assert count(federation, JOBS) == 1


@pytest.mark.both_databases
def test_a_repeat_is_answered_whatever_the_checks_say_today(
    federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = federation.create()
    assert federation.release(study, "north").status_code == 201

    def refuse(*_: object) -> None:
        raise answers_module.ReleaseError("refused")

    monkeypatch.setattr(answers_module, "check_answer", refuse)
    assert federation.release(study, "north").status_code == 200
    assert problem(federation.release(study, "north", value=9)) == "conflicting-upload"
    assert problem(federation.release(study, "south")) == "release-refused"
    federation.now += 3600
    assert problem(federation.release(study, "south")) == "study-expired"


@pytest.mark.both_databases
@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_group_whose_answers_do_not_see_one_another_would_be_caught(federation: Federation) -> None:
    mistaken = with_mistake(
        storing_module, 'stored[kind, *answer.place] = answer.row["envelope"]\n', "pass\n"
    )
    study = federation.create()
    with pytest.raises(sa.exc.IntegrityError):
        store(federation, [release(study, "north"), release(study, "north", b"b")], mistaken)
