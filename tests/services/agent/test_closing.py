"""What fails after rows were read is paid for once, sends nothing, and locks the data set."""

import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from agent_fakes import FAKES, NOW, AttackedAgent, FakeSum, FakeTester, MakeAgent, World
from people_windows import add, agent_process, free_port, wait_for, window_of

from tacit_protocol.domain import DataError, Domain, NumericColumn, Table, WorkersUnavailableError
from tacit_protocol.messages.study import Study
from tacit_protocol.signing import issue_token
from tacit_services.agent.schema import SIGN_IN, State
from tacit_services.agent.study.fetching import Fetcher
from tacit_services.agent.study.intake import IntakeRefusedError
from tacit_services.agent.study.loops import work
from tacit_services.agent.study.participant import AlreadyDecidedError
from tacit_services.agent.study.readings import ATTEMPTS_MAX, AccountLock, lock_of
from tacit_services.agent.study.releases import Releaser
from tacit_services.shared.database import read_from
from tacit_services.shared.failpoints import AgentStep, ClosingStep
from tacit_services.shared.people import Person


def locked(agent: AttackedAgent, account: str = "patients") -> AccountLock | None:
    return read_from(agent.agent.engine, lock_of, account)


def unlock(agent: AttackedAgent) -> AccountLock | None:
    return agent.agent.unlock_account("patients", SIGN_IN.people, Person(agent.agent.key.public_hex))


Break = Callable[[pytest.MonkeyPatch, AttackedAgent], None]


def broken(method: str, error: BaseException) -> Break:
    def fail(*_: Any) -> Any:
        raise error

    return lambda patch, _: patch.setattr(FAKES["fake_sum"], method, fail, raising=False)


def late(patch: pytest.MonkeyPatch, agent: AttackedAgent) -> None:
    original = FAKES["fake_sum"].summarise

    def slow(study: Study, table: Table) -> Any:
        agent.clock.now = study.deadline + 1
        return original(study, table)

    patch.setattr(FAKES["fake_sum"], "summarise", slow, raising=False)


def another_cost(patch: pytest.MonkeyPatch, agent: AttackedAgent) -> None:
    original = FAKES["fake_sum"].privatise

    def privatise(study: Study, *given: Any) -> Any:
        release = original(study, *given)
        cost = FAKES["fake_sum"].cost(
            study.model_copy(update={"budget": agent.world.study(level=0.5).budget})
        )
        return release.model_copy(update={"guarantee": cost.model_copy(update={"events": ()})})

    patch.setattr(FAKES["fake_sum"], "privatise", privatise, raising=False)


FAILURES: dict[str, Break] = {
    "a bug in reading": broken("summarise", ZeroDivisionError()),
    "no memory": broken("summarise", MemoryError()),
    "a disk": broken("summarise", OSError(5, "private")),
    "a refusal of the procedure's own": broken("summarise", IntakeRefusedError("study-refused", "private")),
    "the noise": broken("privatise", ValueError("private")),
    "the release's own check": broken("check_release", ValueError("private")),
    "another cost": another_cost,
    "too late": late,
}


@pytest.mark.parametrize("failure", FAILURES)
def test_a_failure_after_rows_were_read_is_paid_for_and_locks_the_data_set(
    make: MakeAgent, failure: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    setup = make()
    asked = setup.world.ask(setup.tester, setup.world.study(deadline=NOW + 1000))
    Fetcher(setup.agent).poll(0)
    with monkeypatch.context() as patch:
        FAILURES[failure](patch, setup)
        for _ in range(3):
            work(setup.agent)
    row = setup.row(asked)
    assert (row.state, row.problem) == (State.CLOSED, "internal-error")
    assert "private" not in str(row.reason)
    assert [entry["study"] for entry in setup.debits()] == [asked]
    assert setup.spent() == 500_000
    assert setup.tester.received == []
    lock = locked(setup)
    assert lock is not None
    assert lock.study == asked
    assert "private" not in str(lock)
    assert lock.fault.place is None or lock.fault.place.startswith("tacit_")
    later = setup.world.ask(setup.tester, setup.world.study(title="Another", deadline=2**40))
    setup.turn()
    setup.turn()
    assert (setup.row(later).state, len(setup.debits()), setup.tester.received) == (State.APPROVED, 1, [])
    assert unlock(setup) == lock
    assert unlock(setup) is None
    setup.turn()
    assert (setup.row(later).state, len(setup.debits())) == (State.SENT, 2)
    assert setup.row(asked).state is State.CLOSED


TRIED: dict[str, Exception] = {
    "workers that are lost": WorkersUnavailableError("private"),
    "rows that cannot be read": DataError("private"),
}


@pytest.mark.parametrize("trouble", TRIED)
def test_trouble_with_reading_is_tried_again_a_few_times_and_holds_up_this_data_set_alone(
    make: MakeAgent, trouble: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    setup = make()
    asked = setup.world.ask(setup.tester, setup.world.study())
    Fetcher(setup.agent).poll(0)
    with monkeypatch.context() as patch:
        broken("summarise", TRIED[trouble])(patch, setup)
        for _ in range(ATTEMPTS_MAX - 1):
            work(setup.agent)
    other = setup.world.ask(setup.tester, setup.world.study(title="Another"))
    Fetcher(setup.agent).poll(0)
    assert (setup.row(asked).state, setup.debits(), setup.tester.received) == (State.APPROVED, [], [])
    with pytest.raises(AlreadyDecidedError):  # a decline that costs nothing would be of what was read
        setup.agent.decline(asked, None)
    with monkeypatch.context() as patch:
        broken("summarise", TRIED[trouble])(patch, setup)
        work(setup.agent)
        work(setup.agent)
    assert (setup.row(asked).state, setup.row(other).state) == (State.CLOSED, State.APPROVED)
    assert [entry["study"] for entry in setup.debits()] == [asked]
    assert setup.tester.received == []


def test_what_is_tried_again_in_time_is_answered_once(
    make: MakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    setup = make()
    asked = setup.world.ask(setup.tester, setup.world.study())
    Fetcher(setup.agent).poll(0)
    with monkeypatch.context() as patch:
        broken("summarise", WorkersUnavailableError("away"))(patch, setup)
        work(setup.agent)
    work(setup.agent)
    assert (setup.row(asked).state, len(setup.debits())) == (State.SENT, 1)
    assert locked(setup) is None


def test_a_reading_that_was_begun_does_not_expire_for_nothing(
    make: MakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed or without workers until its deadline: what it read may be why."""
    setup = make()
    asked = setup.world.ask(setup.tester, setup.world.study(deadline=NOW + 100))
    never = setup.world.ask(setup.tester, setup.world.study(title="Never begun", deadline=NOW + 100))
    Fetcher(setup.agent).poll(0)
    with monkeypatch.context() as patch:
        broken("summarise", WorkersUnavailableError("away"))(patch, setup)
        work(setup.agent)
    setup.clock.now = NOW + 101
    work(setup.agent)
    states = {setup.row(asked).state, setup.row(never).state}
    assert states == {State.CLOSED, State.EXPIRED}
    assert (len(setup.debits()), setup.tester.received) == (1, [])


def test_a_process_that_is_killed_again_and_again_is_closed(
    make: MakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill leaves nothing behind but the attempts that were counted before anything was opened."""

    class KilledError(BaseException):
        """In the place of a SIGKILL: nothing that is written can catch it."""

    setup = make()
    asked = setup.world.ask(setup.tester, setup.world.study())
    Fetcher(setup.agent).poll(0)
    broken("summarise", KilledError())(monkeypatch, setup)
    for _ in range(ATTEMPTS_MAX):
        with pytest.raises(KilledError):
            work(setup.agent)
        assert (setup.row(asked).state, setup.debits()) == (State.APPROVED, [])
    work(setup.agent)
    lock = locked(setup)
    assert setup.row(asked).state is State.CLOSED
    assert lock is not None
    assert "attempts" in lock.fault.kind
    assert (len(setup.debits()), setup.tester.received) == (1, [])


def test_what_can_be_seen_beforehand_is_declined_and_takes_no_attempt(make: MakeAgent) -> None:
    setup = make(data_set="epsilon = 0.7")
    column = NumericColumn(name="absent", lower=0.0, upper=10.0)
    absent = setup.world.ask(setup.tester, setup.world.study(domain=Domain(columns=(column,))))
    setup.turn()
    assert (setup.row(absent).state, setup.row(absent).problem) == (State.REFUSED, "data-unreadable")
    first = setup.world.ask(setup.tester, setup.world.study(title="First"))
    setup.turn()
    opened = len(setup.opened)
    second = setup.world.ask(setup.tester, setup.world.study(title="Second"))
    setup.turn()
    assert (setup.row(first).state, setup.row(second).problem) == (State.SENT, "budget-exceeded")
    assert len(setup.opened) == opened, "what is left is looked at before anything is opened"
    assert locked(setup) is None


def test_a_parquet_column_without_a_reading_is_declined_before_a_row_is_read(
    make: MakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    setup = make()
    path = setup.world.folder / "patients.parquet"
    pq.write_table(pa.table({"x": pa.array([1] * 60, pa.date32())}), path)
    data_set = setup.agent.settings.data_sets[0].model_copy(update={"source": str(path)})
    setup.agent.use_settings(setup.agent.settings.model_copy(update={"data_sets": (data_set,)}))
    monkeypatch.setattr(FakeSum, "summarise", lambda *_: pytest.fail("rows were read"))
    asked = setup.world.ask(setup.tester, setup.world.study())
    setup.turn()
    assert (setup.row(asked).state, setup.row(asked).problem) == (State.REFUSED, "data-unreadable")
    assert (setup.debits(), locked(setup)) == ([], None)


# The attack: whoever may ask as often as it likes learns one bit.


class ThresholdSum(FakeSum):
    """Planted: fails exactly where the first row's value lies above the study's level."""

    def summarise(self, study: Study, table: Table) -> tuple[int, int]:
        first = next(iter(table.chunks())).numeric[0, 0]
        if first > 2.5 * study.level:
            raise FloatingPointError(f"{first} is too much")
        return super().summarise(study, table)


def bisected(setup: AttackedAgent, studies: int) -> tuple[list[bool], list[float]]:
    """Bisect the first row by whether a study is answered; returns the answers, and the bounds reached."""
    bounds, answers = [0.0, 1.0], []
    for number in range(studies):
        level = sum(bounds) / 2
        asked = setup.world.ask(setup.tester, setup.world.study(title=f"Study {number}", level=level / 2.5))
        setup.turn()
        answers.append(asked in setup.tester.releases)
        bounds[1 if answers[-1] else 0] = level
    return answers, bounds


def test_bisecting_by_failures_gets_one_bit_and_pays_for_it(make: MakeAgent) -> None:
    setup = make(procedures={"fake_sum": ThresholdSum()}, data_set="epsilon = 20.0")
    path = setup.world.folder / "patients.csv"
    lines = path.read_text().split("\n")
    path.write_text("\n".join([lines[0], "6.3,0,p0", *lines[2:]]))
    answers, _ = bisected(setup, 30)
    assert answers == [False] * 30
    assert len(setup.debits()) == 1
    assert setup.tester.received == []
    # After a person's act the others are answered, until the next that fails, which is paid for too.
    unlock(setup)
    setup.turn()
    assert (len(setup.tester.releases), len(setup.debits())) == (29, 30)
    again = setup.world.ask(setup.tester, setup.world.study(title="Again", level=0.2))
    setup.turn()
    assert (setup.row(again).state, len(setup.debits())) == (State.CLOSED, 31)
    assert locked(setup) is not None
    assert setup.tester.declines == {}


def test_a_decline_for_every_failure_would_be_caught(
    make: MakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: the agent declines what fails, as it once did; the bisection finds the value."""

    def decline(self: Releaser, digest: str, *_: Any) -> bool:
        setup.agent._releaser._take_back(setup.agent.job_of(setup.row(digest)))
        return setup.agent.end(digest, State.REFUSED, "internal-error", "failed")

    monkeypatch.setattr(Releaser, "close", decline)
    setup = make(procedures={"fake_sum": ThresholdSum()}, data_set="epsilon = 20.0")
    path = setup.world.folder / "patients.csv"
    lines = path.read_text().split("\n")
    path.write_text("\n".join([lines[0], "6.3,0,p0", *lines[2:]]))
    _, (low, high) = bisected(setup, 12)
    assert low < 0.63 <= high
    assert high - low < 0.001


def test_the_tester_sees_a_failed_study_as_it_sees_an_owner_that_is_away(
    make: MakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    def seen(*, away: bool) -> tuple[Any, ...]:
        setup = make()
        asked = setup.world.ask(setup.tester, setup.world.study(deadline=NOW + 1000))
        with monkeypatch.context() as patch:
            broken("summarise", ZeroDivisionError())(patch, setup)
            if not away:
                for now in (NOW, NOW + 500, NOW + 1001):
                    setup.clock.now = now
                    setup.turn()
        tester: FakeTester = setup.tester
        summary = tester.handle("GET", f"/v1/studies/{asked}", b"")[1].replace(asked.encode(), b"")
        return tester.received, tester.releases, tester.declines, summary

    assert seen(away=False) == seen(away=True)


# On the page, in the interface, and when the process is killed.


def test_a_steward_unlocks_on_the_page_and_a_viewer_reads(
    make: MakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    setup = make()
    window = window_of(setup)
    add(window, ("ann", "steward"), ("vic", "viewer"))
    asked = setup.world.ask(setup.tester, setup.world.study())
    Fetcher(setup.agent).poll(0)
    with monkeypatch.context() as patch:
        broken("summarise", ZeroDivisionError("7.25"))(patch, setup)
        work(setup.agent)
    (shown,) = window.ask("GET", "/v1/status").json()["data_sets"]
    assert (shown["locked"]["study"], shown["locked"]["fault"]) == (asked, "ZeroDivisionError")
    assert "closed" not in window.get("/metrics").text.replace('"closed"} 0', "")
    ann, vic = window_of(setup).sign_in("ann"), window_of(setup).sign_in("vic")
    assert "locked" in ann.get("/").text
    page = ann.get("/data-sets").text
    assert ("ZeroDivisionError" in page, asked[:12] in page, "7.25" in page) == (True, True, False)
    assert ">Unlock<" in page
    assert ">Unlock<" not in vic.get("/data-sets").text
    path = "/data-sets/patients/unlocking"
    assert vic.post(path, {"form_token": vic.token()}).status_code == 403
    assert ann.post(path, {"form_token": ann.token()}, headers={"origin": "http://evil"}).status_code == 403
    assert locked(setup) is not None
    assert ann.post(path, {"form_token": ann.token()}).status_code == 303
    assert locked(setup) is None
    entries = window.ask("GET", "/v1/record").json()["entries"]
    (entry,) = [entry for entry in entries if entry["action"] == "data set unlocked"]
    assert (entry["person"], entry["detail"]) == ("ann", {"data_set": "patients", "study": asked})
    assert window.ask("POST", "/v1/data-sets/patients/unlocking", {}).json()["data_sets"][0]["locked"] is None
    assert window.ask("POST", "/v1/data-sets/nothing/unlocking", {}).status_code == 404


def test_a_held_release_is_not_decided_on_before_its_moment(make: MakeAgent) -> None:
    setup = make(policy="look_before_sending = true\nrespond_after_s_min = 60")
    window = window_of(setup)
    asked = setup.world.ask(setup.tester, setup.world.study(respond_after_s=60))
    setup.turn()
    setup.clock.now = NOW + 5
    signed_in = window.sign_in()
    for what in ("decline", "sending"):
        early = window.ask("POST", f"/v1/studies/{asked}/{what}", {})
        assert (early.status_code, early.json()["type"].rpartition(":")[2]) == (409, "too-soon")
        form = {"form_token": signed_in.token()}
        assert signed_in.post(f"/studies/{asked}/{what}", form).status_code == 409
    assert setup.row(asked).state is State.HELD
    setup.clock.now = NOW + 60
    assert window.ask("POST", f"/v1/studies/{asked}/decline", {}).status_code == 200
    setup.clock.now = NOW + 119
    setup.turn()
    assert setup.tester.received == []
    setup.clock.now = NOW + 120
    setup.turn()
    assert set(setup.tester.declines) == {asked}


CLOSING = [AgentStep.READING_BEGUN, *(step for step in ClosingStep if step is not ClosingStep.UNLOCKED)]


def serving(world: World, url: str, database_url: str) -> tuple[Path, Callable[..., httpx.Response]]:
    """Configure an agent for a process of its own; returns its file, and what asks it."""
    config = world.write(url, agent=f'database_url = "{database_url}"')
    config.write_text(config.read_text().replace("port = 0", f"port = {(port := free_port())}"))

    def ask(method: str, path: str, body: Any = None) -> httpx.Response:
        headers = {"authorization": f"Bearer {issue_token(world.agent, 'agent:north', int(time.time()))}"}
        return httpx.request(method, f"http://127.0.0.1:{port}{path}", json=body, headers=headers, timeout=60)

    return config, ask


@pytest.mark.long
@pytest.mark.both_databases
@pytest.mark.parametrize("point", CLOSING)
def test_an_agent_killed_while_it_closes_a_study_pays_once(
    tmp_path: Path, point: str, database_url: str
) -> None:
    tester, world = FakeTester(), World(tmp_path)
    with tester.serving() as url:
        config, ask = serving(world, url, database_url)
        asked = world.ask(tester, world.study())
        with agent_process(config, point, "fails") as first:
            assert first.wait(120) == -signal.SIGKILL
        with agent_process(config, "", "fails") as second:
            wait_for(lambda: ask("GET", f"/v1/studies/{asked}").json().get("state") == "closed")
            entries = ask("GET", "/v1/ledger").json()["entries"]
            assert len([entry for entry in entries if entry["kind"] == "debit"]) == 1
            assert ask("GET", "/v1/ledger/verification").json()["ok"]
            (shown,) = ask("GET", "/v1/status").json()["data_sets"]
            assert shown["locked"]["study"] == asked
            assert shown["pure_left_micro"] == 1_500_000, "nothing is reserved any more"
            second.send_signal(signal.SIGTERM)
            assert second.wait(60) == 0
        assert tester.received == []


@pytest.mark.long
@pytest.mark.both_databases
def test_an_agent_killed_while_it_unlocks_is_locked_until_it_is_asked_again(
    tmp_path: Path, database_url: str
) -> None:
    tester, world = FakeTester(), World(tmp_path)
    with tester.serving() as url:
        config, ask = serving(world, url, database_url)
        asked = world.ask(tester, world.study())
        with agent_process(config, "", "fails") as first:
            wait_for(lambda: ask("GET", f"/v1/studies/{asked}").json().get("state") == "closed")
            first.send_signal(signal.SIGTERM)
            assert first.wait(60) == 0
        with agent_process(config, ClosingStep.UNLOCKED) as third:
            wait_for(lambda: ask("GET", "/v1/status").status_code == 200)
            with pytest.raises(httpx.TransportError):
                ask("POST", "/v1/data-sets/patients/unlocking", {})
            assert third.wait(120) == -signal.SIGKILL
        later = world.ask(tester, world.study(title="Another"))
        with agent_process(config, "") as last:
            wait_for(lambda: ask("GET", f"/v1/studies/{later}").json().get("state") == "approved")
            assert ask("GET", "/v1/status").json()["data_sets"][0]["locked"] is not None
            assert ask("POST", "/v1/data-sets/patients/unlocking", {}).status_code == 200
            wait_for(lambda: later in tester.releases)
            last.send_signal(signal.SIGTERM)
            assert last.wait(60) == 0
        assert [(study, kind) for study, kind, _ in tester.received] == [(later, "releases")]


@pytest.mark.long
@pytest.mark.both_databases
def test_an_agent_that_its_rows_kill_closes_the_study(tmp_path: Path, database_url: str) -> None:
    tester, world = FakeTester(), World(tmp_path)
    with tester.serving() as url:
        config, ask = serving(world, url, database_url)
        asked = world.ask(tester, world.study())
        for _ in range(ATTEMPTS_MAX):
            with agent_process(config, "", "killed") as killed:
                assert killed.wait(120) == -signal.SIGKILL
        with agent_process(config, "", "killed") as last:
            wait_for(lambda: ask("GET", f"/v1/studies/{asked}").json().get("state") == "closed")
            entries = ask("GET", "/v1/ledger").json()["entries"]
            assert len([entry for entry in entries if entry["kind"] == "debit"]) == 1
            last.send_signal(signal.SIGTERM)
            assert last.wait(60) == 0
        assert tester.received == []
