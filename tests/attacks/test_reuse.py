"""Studies that name earlier releases, at an owner's agent: whom they can make spend, and what is shown."""

import json
from typing import Any, ClassVar

import pytest
from agent_fakes import FAKES, FakeSum, MakeAgent

from tacit_protocol.messages.study import Owner, Release, Study
from tacit_services.agent.schema import SIGN_IN, State
from tacit_services.agent.study.fetching import Fetcher
from tacit_services.agent.study.tester_client import TesterUnavailableError
from tacit_services.agent.web import views


class RereadSum(FakeSum):
    """The fake sum, which reads any release again."""

    name: ClassVar[str] = FakeSum.name

    def reread(self, study: Study, owner: Owner, source: Study, release: Release) -> Release:
        return release


REREADING = {RereadSum.name: RereadSum()}
SOURCE = "a" * 64


def owners(study: Study, *reusing: str) -> tuple[Owner, ...]:
    return tuple(
        owner.model_copy(update={"reuses": SOURCE}) if owner.name in reusing else owner
        for owner in study.owners
    )


@pytest.mark.parametrize(
    ("procedures", "reusing", "slug"), [(REREADING, "north", "forbidden"), (FAKES, "south", "study-refused")]
)
def test_an_agent_asked_for_a_release_that_its_study_reuses_spends_nothing(
    make_agent: MakeAgent, procedures: Any, reusing: str, slug: str
) -> None:
    """A tester that puts such a study in the inbox would otherwise make the owner pay a second time.

    Nor where its procedure knows no reuse: the verdict could be recomputed by nobody.
    """
    attacked = make_agent(procedures=procedures)
    plain = attacked.world.study()
    asked = attacked.world.ask(attacked.tester, plain.model_copy(update={"owners": owners(plain, reusing)}))
    attacked.turn()
    assert (attacked.row(asked).state, attacked.row(asked).problem) == (State.REFUSED, slug)
    assert (attacked.opened, attacked.debits(), attacked.tester.releases) == ([], [], {})


def test_an_agent_beside_one_whose_release_is_reused_is_told_so_and_pays_once(make_agent: MakeAgent) -> None:
    attacked = make_agent(procedures=REREADING, policy='approval = "by-hand"')
    plain = attacked.world.study()
    asked = attacked.world.ask(attacked.tester, plain.model_copy(update={"owners": owners(plain, "south")}))
    attacked.turn()
    shown = views.detail(attacked.agent, attacked.row(asked), SIGN_IN.people)
    assert "Of south an earlier release is read again: nothing is asked of them" in shown["plain_words"]
    assert "spends epsilon 0.5" in shown["plain_words"]
    attacked.agent.approve(asked)
    attacked.turn()
    assert attacked.row(asked).state is State.SENT
    assert len(attacked.debits()) == 1


def test_the_ledger_is_untouched_when_the_tester_tells_who_reads_a_release_again(
    make_agent: MakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    attacked = make_agent(procedures=REREADING)
    asked = attacked.world.ask(attacked.tester, attacked.world.study())
    attacked.turn()
    before = attacked.debits()
    assert Fetcher(attacked.agent).reused_by(asked) == ()
    handle = attacked.tester.handle

    def tell(method: str, url: str, body: bytes) -> tuple[int, bytes]:
        status, content = handle(method, url, body)
        if not url.endswith(asked):
            return status, content
        told = [{"owner": "north", "study": "b" * 64}, {"owner": "south", "study": "c" * 64}]
        return status, json.dumps(json.loads(content) | {"reused_by": told}).encode()

    monkeypatch.setattr(attacked.tester, "handle", tell)
    assert Fetcher(attacked.agent).reused_by(asked) == ("b" * 64,)
    assert attacked.debits() == before


@pytest.mark.parametrize("lie", [{"owner": "north"}, {"owner": "north", "study": "short"}, "none"])
def test_a_tester_that_tells_nonsense_about_reuse_is_not_believed(
    make_agent: MakeAgent, monkeypatch: pytest.MonkeyPatch, lie: object
) -> None:
    attacked = make_agent(procedures=REREADING)
    asked = attacked.world.ask(attacked.tester, attacked.world.study())
    attacked.turn()
    summary = {"owners": [], "reused_by": [lie]}
    monkeypatch.setattr(attacked.tester, "handle", lambda *_: (200, json.dumps(summary).encode()))
    with pytest.raises(TesterUnavailableError):
        Fetcher(attacked.agent).reused_by(asked)
