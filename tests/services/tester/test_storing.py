"""Answers that are stored in one group: each is decided on as if it had come alone, in the group's order."""

from typing import Any

import pytest
import sqlalchemy as sa
from planted import with_mistake
from sqlalchemy.engine import Connection
from tester_federation import Federation, problem

from tacit_services.shared.database import run_transaction
from tacit_services.shared.problem_responses import ProblemError
from tacit_services.tester import answers as answers_module
from tacit_services.tester import answers as storing_module
from tacit_services.tester.answers import Answer, Taken
from tacit_services.tester.study_completion import Signer
from tacit_services.tester.tables import DECLINES, JOBS, RELEASES

pytestmark = pytest.mark.both_databases


def release(study: str, owner: str, envelope: bytes = b"a") -> Answer:
    return Answer(
        RELEASES, {"study": study, "owner": owner, "envelope": envelope, "digest": "0" * 64, "units": 1}
    )


def decline(study: str, owner: str, envelope: bytes = b"d") -> Answer:
    return Answer(DECLINES, {"study": study, "owner": owner, "envelope": envelope})


def store(federation: Federation, answers: list[Answer], module: Any = storing_module) -> list[Taken | str]:
    """Store a group; returns what became of each, a refusal as its slug."""
    signer = Signer(federation.parties.tester, "test")

    def work(connection: Connection) -> list[Any]:
        found: list[Any] = module.store_answers(connection, answers, signer, int(federation.now))
        return found

    outcomes = run_transaction(federation.engine, work)
    return [o.problem.slug if isinstance(o, ProblemError) else Taken[o.name] for o in outcomes]


def count(federation: Federation, table: sa.Table) -> int:
    query = sa.select(sa.func.count()).select_from(table)
    return run_transaction(federation.engine, lambda c: c.execute(query).scalar_one(), read_only=True)


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
        Taken.NOW,
        Taken.BEFORE,
        "conflicting-upload",
        "already-decided",
        Taken.NOW,
        "already-decided",
        Taken.BEFORE,
    ]
    assert (count(federation, RELEASES), count(federation, DECLINES)) == (1, 1)


def test_the_last_answers_of_a_group_end_their_studies(federation: Federation) -> None:
    studies = [federation.create(title=f"study {number}") for number in range(3)]
    group = [release(study, owner) for owner in ("north", "south") for study in studies]
    signed = federation.parties.decline(studies[1], "west")
    group += [release(studies[0], "west"), decline(studies[1], "west", signed)]
    outcomes = store(federation, group)
    ended = [answer.study in studies[:2] for answer in group]
    assert outcomes == [Taken.LAST if is_ended else Taken.NOW for is_ended in ended]
    assert [federation.state(study) for study in studies] == ["computing", "incomplete", "collecting"]
    assert count(federation, JOBS) == 1


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


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_group_whose_answers_do_not_see_one_another_would_be_caught(federation: Federation) -> None:
    mistaken = with_mistake(
        storing_module, 'stored[kind, *answer.place] = answer.row["envelope"]\n', "pass\n"
    )
    study = federation.create()
    with pytest.raises(sa.exc.IntegrityError):
        store(federation, [release(study, "north"), release(study, "north", b"b")], mistaken)
