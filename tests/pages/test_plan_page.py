"""The tester's page of plans: who gets in, what is computed where, and what is bounded, killed or refused."""

import asyncio
import re
import sys
import time
from collections.abc import Callable, Iterator
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from served import problem
from study_parties import Parties
from tester_federation import URL, Federation
from window import Window

from tacit.errors import InputError
from tacit.planning import bounded
from tacit.studies.draft import EnrolledKeys, StudyDraft, prepare
from tacit_protocol.messages.answers import PlanAnswer
from tacit_protocol.messages.study import Party
from tacit_protocol.signing import issue_token
from tacit_services.shared.http_server import Stopping
from tacit_services.shared.problem_responses import RegisteredProblemError
from tacit_services.tester.web import routes as planner
from tacit_services.tester.web.routes import FAILED, PLAN_COMMAND, TOO_SLOW, Planner

LEVELS = ",".join(str(level) for level in range(30))

COUNTS = {"procedure": "noisy_counts", "cells": "2", "n": "1000", "over": "epsilon", "delta": "0"}


def python(code: str) -> tuple[str, ...]:
    return (sys.executable, "-c", code)


REFUSES = "import json; print(json.dumps({'refused': 'n: <b>write</b> a number'}))"


@pytest.fixture
def command() -> tuple[str, ...]:
    return python(REFUSES)


@pytest.fixture
def window(
    tmp_path: Path, parties: Parties, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Window]:
    monkeypatch.setattr(planner, "PLAN_COMMAND", command)
    monkeypatch.setattr(planner, "PLAN_LIMIT_S", 600.0)  # a loaded machine starts a process ten times slower
    federation = Federation(tmp_path, f"sqlite:///{tmp_path / 'tester.sqlite3'}", parties)
    federation.enrol_everyone()
    key = parties.analyst
    yield Window(federation.app, URL, lambda: issue_token(key, URL, int(federation.now)))
    federation.engine.dispose()


def main_of(text: str) -> str:
    return unescape(text.split("<main")[1])


@pytest.mark.parametrize("command", [planner.PLAN_COMMAND])
def test_a_real_plan_is_drawn_with_its_numbers(window: Window) -> None:
    window.sign_in()
    response = window.post("/plan", COUNTS | {"form_token": window.token()})
    page = main_of(response.text)
    assert response.status_code == 200, page
    drawn = [float(value) for value in re.findall('class="dot".*?data-value="(.*?)"', page)]
    listed = [float(value) for value in re.findall('<td class="amount"[^>]*>([^ ]*?)</td>', page)]
    assert listed == pytest.approx(drawn, rel=1e-2)
    assert "Standard error" not in page
    assert len(re.findall(r'<td class="amount"[^>]*>[\d.e-]+ to [\d.e-]+</td>', page)) == len(drawn)
    # The larger of two errors of Laplace noise of scale 2/epsilon is 3/epsilon on average.
    assert drawn == pytest.approx([3 / epsilon / 1000 for epsilon in bounded.EPSILONS], rel=0.4)
    assert "tacit plan curve noisy_counts --over epsilon --cells 2" in page
    assert 'value="1000"' in page


def test_what_cannot_be_planned_is_said_and_the_form_keeps_what_was_written(window: Window) -> None:
    window.sign_in()
    written = COUNTS | {"n": '"><script>alert(1)</script>', "form_token": window.token()}
    response = window.post("/plan", written)
    assert response.status_code == 422
    assert "n: <b>write</b> a number" in main_of(response.text)
    assert "<b>" not in response.text
    assert "<script>alert" not in response.text
    assert 'value="&#34;&gt;&lt;script&gt;alert(1)&lt;/script&gt;"' in response.text
    long = window.post("/plan", COUNTS | {"columns": "x" * 3000, "form_token": window.token()})
    assert (long.status_code, "2000 characters at most" in long.text) == (422, True)


SLEEPS = python("import time; time.sleep(600)")


def test_a_plan_that_takes_too_long_is_killed() -> None:
    begun = time.monotonic()
    bounded_by = Planner(Stopping(), SLEEPS, limit_s=0.3)
    assert asyncio.run(bounded_by.plan("ann", {})) == {"refused": TOO_SLOW}
    assert time.monotonic() - begun < 300


def test_a_plan_ends_with_the_browser_that_waits_for_it() -> None:
    shared, told = Planner(Stopping(), SLEEPS), list[Callable[[], None] | None]()

    async def leave() -> dict[str, Any]:
        planning = asyncio.ensure_future(shared.plan("ann", {}, told.append))
        while not told:
            await asyncio.sleep(0)
        assert told[0] is not None
        told[0]()
        return await planning

    assert asyncio.run(leave()) == {"refused": TOO_SLOW}
    assert told[1:] == [None]


STUDY = StudyDraft.from_dict(
    {
        "title": "How many?",
        "procedure": "noisy_counts",
        "columns": [{"kind": "categorical", "name": "sex", "levels": ["F", "M"]}],
        "owners": [{"name": "north", "data_set": "patients", "units": 30_000}],
        "epsilon": 0.5,
        "delta": 0.0,
    }
)


def study_bytes(draft: StudyDraft) -> bytes:
    keys = EnrolledKeys({"north": "1" * 64}, {})
    return prepare(draft.study(keys, Party(name="t", key="2" * 64), Party(name="a", key="3" * 64), 0)).payload


def test_a_whole_study_is_planned_around_its_own_epsilon_with_its_own_units() -> None:
    def planned(draft: StudyDraft) -> dict[str, Any]:
        return bounded.plan({"study": study_bytes(draft).decode()}, lambda: False)

    found = planned(STUDY)
    assert [point["at"] for point in found["curve"]["points"]] == [0.125, 0.25, 0.5, 1.0, 2.0]
    assert (found["fewer"], found["curve"]["n"]) == (bounded.UNITS_MAX, (bounded.UNITS_MAX,))
    owners = (STUDY.owners[0].model_copy(update={"units": 700}),)
    fewer = planned(STUDY.model_copy(update={"owners": owners}))
    assert (fewer["fewer"], fewer["curve"]["n"]) == (None, (700,))
    # An error of counts grows as epsilon and units shrink.
    errors = [point["value"] for point in fewer["curve"]["points"]]
    assert errors == sorted(errors, reverse=True)
    assert errors[2] > found["curve"]["points"][2]["value"]
    owners = (STUDY.owners[0].model_copy(update={"units": None}),)
    with pytest.raises(InputError, match="does not say how many units north holds"):
        planned(STUDY.model_copy(update={"owners": owners}))


@pytest.fixture
def api(tmp_path: Path, parties: Parties, monkeypatch: pytest.MonkeyPatch) -> Iterator[Federation]:
    monkeypatch.setattr(planner, "PLAN_LIMIT_S", 600.0)
    federation = Federation(tmp_path, f"sqlite:///{tmp_path / 'tester.sqlite3'}", parties)
    federation.enrol_everyone()
    yield federation
    federation.engine.dispose()


def with_units(units: int | None) -> bytes:
    owners = (STUDY.owners[0].model_copy(update={"units": units}),)
    return study_bytes(STUDY.model_copy(update={"owners": owners}))


def test_an_analyst_asks_for_a_plan_of_a_study_by_the_api(api: Federation) -> None:
    ask, analyst, body = "/v1/plans", api.parties.analyst, with_units(700)
    found = api.call("POST", ask, analyst, content=body)
    assert found.status_code == 200, found.text
    answer = PlanAnswer.model_validate_json(found.content)
    assert answer.plan is not None
    assert (answer.refused, answer.plan.curve.n, answer.plan.fewer) == (None, (700,), None)
    assert [point.at for point in answer.plan.curve.points] == [0.125, 0.25, 0.5, 1.0, 2.0]
    assert problem(api.call("POST", ask, analyst, content=b"\xff")) == "malformed-message"
    assert problem(api.call("POST", ask, analyst, content=b" " * (2**20 + 1))) == "message-too-large"
    # A plan takes processor time: of those who are enrolled, analysts alone have it by the API.
    for key, slug in ((api.parties.owners["north"], "forbidden"), (None, "unauthenticated")):
        assert problem(api.call("POST", ask, key, content=body)) == slug
    for effect in ("nan", "x"):
        asked = f"{ask}?effect={effect}"
        assert problem(api.call("POST", asked, analyst, content=body)) == "malformed-message"


@pytest.mark.long
def test_what_the_api_cannot_plan_is_said_and_nothing_is_quoted(api: Federation) -> None:
    ask, analyst, body = "/v1/plans", api.parties.analyst, with_units(700)
    refused = api.call("POST", ask, analyst, content=with_units(None))
    assert "does not say how many units north holds" in refused.json()["refused"]
    for nonsense in (b"{}", b"[1e999]", b'{"canary-2b7": 1}', body.replace(b"noisy_counts", b"canary-2b7")):
        told = api.call("POST", ask, analyst, content=nonsense)
        assert problem(told) == "malformed-message"
        assert "canary-2b7" not in told.text


@pytest.mark.parametrize("whose", ["own", "two others'"])
def test_the_api_and_the_page_share_one_plan_a_person_and_two_in_all(api: Federation, whose: str) -> None:
    planning = api.app.state.planner._planning
    planning.update({api.parties.analyst.public_hex} if whose == "own" else {"a", "b"})
    refused = api.call("POST", "/v1/plans", api.parties.analyst, content=study_bytes(STUDY))
    assert (problem(refused), "retry-after" in refused.headers) == ("rate-limited", True)


def test_one_plan_a_person_two_in_all_and_the_loop_goes_on() -> None:
    shared = Planner(Stopping(), SLEEPS)

    async def crowd() -> None:
        first = [asyncio.ensure_future(shared.plan(person, {})) for person in ("ann", "bob")]
        await asyncio.sleep(0)
        for person in ("ann", "bob", "cleo"):
            with pytest.raises(RegisteredProblemError, match="rate-limited"):
                await shared.plan(person, {})
        for one in first:
            one.cancel()
        await asyncio.gather(*first, return_exceptions=True)
        third = asyncio.ensure_future(shared.plan("cleo", {}))
        await asyncio.sleep(0)
        with pytest.raises(RegisteredProblemError, match="rate-limited"):
            await shared.plan("cleo", {})
        third.cancel()
        await asyncio.gather(third, return_exceptions=True)

    asyncio.run(crowd())


@pytest.mark.sweep(1)
@pytest.mark.parametrize("code", ["raise SystemExit(1)", "print([])", "print('{}')", "import os; os.abort()"])
def test_a_plan_that_breaks_is_refused_and_tells_nothing(code: str) -> None:
    assert asyncio.run(Planner(Stopping(), python(code)).plan("ann", {})) == {"refused": FAILED}


def test_the_process_gets_none_of_the_services_surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TACIT_TESTER_KEY_FILE", "/secret")
    code = "import os, json; print(json.dumps({'refused': ' '.join(os.environ)}))"
    told = asyncio.run(Planner(Stopping(), python(code)).plan("ann", {}))["refused"]
    assert "TACIT" not in told
    assert PLAN_COMMAND[1] == "-I"


@pytest.mark.sweep(4)
@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"procedure": "magic"}, "choose a procedure"),
        ({"over": "time"}, "over epsilon or over n"),
        ({"n": "20001"}, "at most 20000"),
        ({"n": "nan"}, "units of each owner: write"),
        ({"procedure": "joint_independence", "n": "5000"}, "at most 2000"),
        ({"cells": "401"}, "at most 400"),
        ({"columns": "\n".join(f"c{i}:0:1" for i in range(9)), "cells": ""}, "at most 8"),
        ({"columns": f"a={LEVELS}\nb={LEVELS}", "cells": ""}, "of all columns together"),
    ],
)
def test_what_the_process_takes_is_bounded(fields: dict[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        bounded.plan(COUNTS | fields, lambda: False)


def test_a_plan_that_time_ended_says_how_many_studies_it_counted() -> None:
    """A few studies of as many were "100 of 100", with standard error 0, and reached at the grid's end."""
    asked = 0

    def late() -> bool:
        nonlocal asked
        asked += 1
        return asked > 150

    strong = {"procedure": "homogeneity", "cells": "2", "n": "20000", "effect": ".4", "delta": "0"}
    found = bounded.plan(strong, late)
    assert (found["curve"]["runs"], found["complete"]) == (36, False)
    assert "in 36 of 36 simulated studies (95 % interval 0.902 to 1)" in found["words"]
    assert "reached at epsilon 0.013 or below, the least that was simulated" in found["words"]
    assert "100" not in found["words"]
    assert found["curve"]["points"][0]["interval"] == pytest.approx((0.9026, 1.0), abs=1e-4)
