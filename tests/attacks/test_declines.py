"""What a decline and the time of an answer tell: nothing."""

import io
import json
import random
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import odd_rows
import pytest
import served
from agent_fakes import NOW, FakeSum, FakeTester, MakeAgent, World
from forked_python import forked_python
from hypothesis import given
from hypothesis import strategies as st
from odd_rows import CATEGORY, MISSING, NUMBER, OTHER, F, M

from tacit_protocol.domain import DataError, Domain, Table
from tacit_protocol.messages.encoding import decode
from tacit_protocol.messages.study import RESPOND_AFTER_S, RESPOND_AFTER_S_MAX, DeclineMessage, Study
from tacit_protocol.procedures.base import PublicRuleError, canonical
from tacit_protocol.procedures.discovery import PROCEDURES
from tacit_protocol.signing import payload_of
from tacit_services.agent.data import csv_source
from tacit_services.agent.data.csv_source import CsvSource, RecordShape, records_of
from tacit_services.agent.data.opening import open_source
from tacit_services.agent.data.table import SourceTable
from tacit_services.agent.schema import State
from tacit_services.agent.study.delivery import Delivery
from tacit_services.agent.study.fetching import Fetcher
from tacit_services.agent.study.intake import IntakeRefusedError, Job
from tacit_services.agent.study.loops import Loops, work
from tacit_services.agent.study.releases import DOUBLINGS, MARGIN_S, send_time
from tacit_services.agent.web.routes import Runtime, create_agent_app
from tacit_services.ledger.verification import export
from tacit_services.shared.database import read_from


@pytest.fixture(scope="module")
def readings(tmp_path_factory: pytest.TempPathFactory, postgres_server: str) -> dict[str, dict[str, Any]]:
    """How every odd row reads, with pandas and without."""
    folder = tmp_path_factory.mktemp("odd")
    found = {}
    command = [odd_rows.__file__, str(folder), postgres_server]
    for way in ("with", "without"):
        if way == "with":
            child = forked_python().run(command, timeout_s=900)
        else:  # one that never had pandas
            fresh = [sys.executable, *command, "without-pandas"]
            child = subprocess.run(fresh, capture_output=True, text=True, timeout=900, check=False)
        assert child.returncode == 0, child.stderr
        found[way] = json.loads(child.stdout)
    return found


CASES = [
    *(f"csv: {name}" for name in odd_rows.CSV),
    *(f"parquet: {name}" for name in (*odd_rows.PARQUET, *odd_rows.BYTES)),
    *(f"sqlite: {name}" for name in odd_rows.SQLITE),
    *(f"postgresql: {name}" for name in odd_rows.POSTGRES),
]


@pytest.mark.parametrize("way", ["with", "without"])
@pytest.mark.parametrize("case", CASES)
def test_an_odd_row_is_a_row_and_changes_no_other(
    readings: dict[str, dict[str, Any]], case: str, way: str
) -> None:
    found = readings[way][case]
    assert isinstance(found, list), found
    (rows, units), first, odd, last = found
    assert (rows, units) == (3, 3)
    assert first[0] == last[0] == 0.5
    assert 0 <= odd[0] <= 1
    assert 0 <= odd[1] < CATEGORY.categories
    if case.startswith(("csv", "sqlite")):
        assert (first[1], last[1]) == (F, M)


def test_without_pandas_everything_reads_as_with_it(readings: dict[str, dict[str, Any]]) -> None:
    assert readings["with"] == readings["without"]


UNREADABLE = ["a value too many", "a value too few", "nothing", "a quote that opens and never closes"]


@pytest.mark.parametrize("name", UNREADABLE)
def test_a_record_that_cannot_be_read_is_one_whose_values_are_missing(tmp_path: Path, name: str) -> None:
    _, first, odd, last = odd_rows.reading(odd_rows.in_csv(tmp_path, odd_rows.CSV[name]))
    assert (first, odd, last) == ([0.5, F], [0.2, MISSING], [0.5, M])


def test_its_unit_is_read_where_it_stands(tmp_path: Path) -> None:
    """A value too many behind the id: the unit has the rows that it had."""
    (tmp_path / "t.csv").write_text("u,x,c\n1,5,f\n1,7,m,x\n2,5,m\n")
    table = SourceTable(CsvSource(tmp_path / "t.csv"), Domain(columns=(NUMBER, CATEGORY)), "u")
    assert (table.rows, table.units) == (3, 2)


def test_what_is_no_utf8_stays_as_different_as_it_was(tmp_path: Path) -> None:
    """Units named in another encoding are not taken for one."""
    (tmp_path / "t.csv").write_bytes("u,x,c\nMöller,5,f\nMüller,6,m\n".encode("latin-1"))
    assert SourceTable(CsvSource(tmp_path / "t.csv"), Domain(columns=(NUMBER,)), "u").units == 2


PIECES = [b'"', b",", b"\r", b"a", b"\xff", b"\0", b"1", b'""', b"NA", b"", b" "]


def read_all(content: bytes) -> list[list[bytes | None]]:
    shape, rows = RecordShape(("u", "x", "c")), []
    for records in records_of(io.BytesIO(content).read, quoted_line_breaks=False):
        parsed = shape.parsed(shape.readable(records, "u")[0], shape.header)
        rows += [
            list(row) for row in zip(*(column.view("binary").to_pylist() for column in parsed), strict=True)
        ]
    return rows


@pytest.mark.sweep(1)
@pytest.mark.parametrize("block_bytes", [1, 3, 2**21])
def test_whatever_bytes_a_line_holds_it_is_one_row_that_reads_as_it_would_alone(
    monkeypatch: pytest.MonkeyPatch, block_bytes: int
) -> None:
    monkeypatch.setattr(csv_source, "BLOCK_BYTES", block_bytes)
    draw = random.Random(5)  # noqa: S311 (cases, not secrets)
    for _ in range(300):
        lines = [
            b"".join(draw.choices(PIECES, k=draw.randrange(9))) + b"\n" for _ in range(draw.randrange(1, 7))
        ]
        assert read_all(b"".join(lines)) == [read_all(line)[0] for line in lines]


def test_a_parser_that_trusts_the_lines_would_be_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RecordShape, "readable", lambda _, records, __: (records, 0))
    with pytest.raises((AssertionError, DataError, csv_source.pa.ArrowException)):
        test_whatever_bytes_a_line_holds_it_is_one_row_that_reads_as_it_would_alone(monkeypatch, 2**21)


def test_missing_values_that_made_a_file_floating_change_nothing(tmp_path: Path) -> None:
    """Of a folder's files, one has a missing value, and its writer made the column floating."""
    for name, values in (("a", [1, 2]), ("b", [2.0, None])):
        (tmp_path / "t").mkdir(exist_ok=True)
        table = odd_rows.pa.table({"u": values, "x": [5.0, 6.0]})
        odd_rows.pq.write_table(table, tmp_path / "t" / f"{name}.parquet")
    table = SourceTable(open_source("t/", None, tmp_path), Domain(columns=(NUMBER,)), "u")
    assert (table.rows, table.units) == (4, 3), "1, 2 and the missing one"


def test_a_folder_named_in_no_utf8_is_a_value_like_any_other(tmp_path: Path) -> None:
    for value in ("f", "%FF"):
        folder = tmp_path / "t" / f"c={value}"
        folder.mkdir(parents=True)
        odd_rows.pq.write_table(odd_rows.pa.table({"x": [5.0]}), folder / "a.parquet")
    (codes,) = [
        sorted(code for chunk in table.chunks() for code in chunk.categorical[:, 0].tolist())
        for table in [SourceTable(open_source("t/", None, tmp_path), Domain(columns=(CATEGORY,)))]
    ]
    assert codes == [F, OTHER]


@pytest.mark.sweep(1)
@pytest.mark.parametrize("odd", [b"7,7,7,7\n", b'"7\n', b"\xff,\n", b"\n"])
def test_an_agent_answers_alike_whatever_a_row_holds(make_agent: MakeAgent, odd: bytes) -> None:
    """A release in the place of a release, at the same turn of the agent's work."""

    def seen(row: bytes) -> list[Any]:
        attacked = make_agent()
        path = next(attacked.world.folder.glob("*.csv"))
        content = path.read_bytes()
        path.write_bytes(content[: content.index(b"\n") + 1] + row + content[content.index(b"\n") + 1 :])
        asked = attacked.world.ask(attacked.tester, attacked.world.study())
        turns = []
        for _ in range(5):
            attacked.turn()
            attacked.clock.now += 1
            turns.append([kind for _, kind, _ in attacked.tester.received])
        assert attacked.row(asked).state is State.SENT
        return turns

    assert seen(odd) == seen(b"7,7,p7\n")


class RuledSum(FakeSum):
    """Needs more units than it says at first, and may be told by its data to fail, with a rule in words."""

    def __init__(self, units_min: int, fails: Exception | None = None) -> None:
        self.units_min, self.fails = units_min, fails

    def check_units(self, study: Study, units: Mapping[str, int]) -> None:
        if any(count < self.units_min for count in units.values()):
            raise PublicRuleError("too-few-units", "too few of them")

    def summarise(self, study: Study, table: Table) -> tuple[int, int]:
        if self.fails is not None:
            raise self.fails
        return super().summarise(study, table)


def answer_of(
    make_agent: MakeAgent, world: World, procedure: FakeSum, rows: str | None = None
) -> tuple[bytes, ...]:
    """Return the exact bytes in which a study is declined; none where it fails after rows were read."""
    attacked = make_agent(world=world, procedures={FakeSum.name: procedure})
    if rows is not None:
        (attacked.world.folder / "patients.csv").write_text(rows)
    asked = attacked.world.ask(attacked.tester, attacked.world.study())
    attacked.turn()
    bodies = tuple(body for _, kind, body in attacked.tester.received if kind == "declines")
    assert len(bodies) == len(attacked.tester.received)
    assert attacked.row(asked).state is (State.REFUSED if bodies else State.CLOSED)
    assert len(attacked.debits()) == (0 if bodies else 1)
    return bodies


def rule_in(decline: bytes) -> str | None:
    return decode(DeclineMessage, payload_of(decline)).rule


OTHER_ROWS = {
    "constant": "x,y,id\n" + "7,7,p7\n" * 60,
    "unreadable": "x,y,id\n" + '"7\n' * 60,
    "no numbers": "x,y,id\n" + "NaN,,\n" * 60,
    "odd bytes": "x,y,id\n" + "\x01,\x02,\x03\n" * 60,
}


@pytest.mark.parametrize("units_min", [61, 0])
def test_data_sets_of_one_size_are_declined_in_the_same_bytes(
    make_agent: MakeAgent, tmp_path: Path, units_min: int
) -> None:
    """Whether a public rule decides, or the rows: what leaves says nothing of them."""
    world = World(tmp_path)
    fails = PublicRuleError("too-many-units", "60 units hold a 7")
    one = answer_of(make_agent, world, RuledSum(units_min, fails))
    assert [rule_in(decline) for decline in one] == (["too-few-units"] if units_min else [])
    for name, rows in OTHER_ROWS.items():
        other = answer_of(make_agent, world, RuledSum(units_min, ValueError("no 7")), rows)
        assert one == other, name


def test_a_rule_that_data_could_name_would_be_caught(
    make_agent: MakeAgent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: what summarise raises of a rule is told, as what check_units raises is."""
    spared = Job.require_units

    def planted(job: Job, table: Any) -> None:
        spared(job, table)
        try:
            job.procedure.summarise(job.study, table)
        except PublicRuleError as error:
            raise IntakeRefusedError("study-refused", str(error), error.rule) from None
        except ValueError:
            return

    monkeypatch.setattr(Job, "require_units", planted)
    with pytest.raises(AssertionError):
        test_data_sets_of_one_size_are_declined_in_the_same_bytes(make_agent, tmp_path, 0)


def test_a_real_study_of_too_few_units_is_declined_by_its_public_rule(
    make_agent: MakeAgent, tmp_path: Path
) -> None:
    world = World(tmp_path)
    attacked = make_agent(world=world, procedures=PROCEDURES)
    owner = world.study().owners[0]
    parameters = {"cuts": {"x": [5.0]}, "probabilities": [0.5, 0.5], "method": "repetition"}
    study = world.study(procedure="identity", parameters=parameters, owners=(owner,), level=0.01)
    study = canonical(PROCEDURES["identity"], study)
    asked = world.ask(attacked.tester, study)
    attacked.turn()
    ((_, kind, body),) = attacked.tester.received
    assert (kind, rule_in(body)) == ("declines", "too-few-units")
    assert "blocks" in str(attacked.row(asked).reason), "the owner is told in full"
    assert not attacked.debits()


def test_the_owner_is_told_of_rows_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text('u,x,c\n1,5,f\n2,7\n3,"a""b",m\n')
    assert CsvSource(tmp_path / "t.csv").row_faults().unreadable == 1


PATIENCE_S = 300.0

TICK_S = 0.5
"""How finely the observer's clock moves between two looks of the agent."""

SOON_S, SELDOM_S = 60.0, 100.0
"""Until when it moves so finely, and how far it moves after that: nothing may happen any more."""


class SlowSum(FakeSum):
    """Takes as long as a test says, by the test's clock, and may find the data unreadable."""

    def __init__(self) -> None:
        self.compute: Callable[[], None] = lambda: None

    def summarise(self, study: Study, table: Table) -> tuple[int, int]:
        self.compute()
        return super().summarise(study, table)


@dataclass
class Seen:
    """All that a tester sees of one agent: time, method, path (without digest) and size of each request."""

    tester: FakeTester
    clock: Callable[[], float] = lambda: 0.0
    requests: list[tuple[float, str, str, int]] = field(default_factory=list)

    def transport(self) -> httpx.MockTransport:
        def respond(request: httpx.Request) -> httpx.Response:
            parts = [part for part in request.url.path.split("/") if len(part) != 64]
            if parts[-1] != "inbox":
                seen = (self.clock() - NOW, request.method, "/".join(parts), len(request.content))
                self.requests.append(seen)
            status, content = self.tester.handle(request.method, str(request.url), request.content)
            return httpx.Response(status, stream=httpx.ByteStream(content))

        return httpx.MockTransport(respond)


Observe = Callable[..., list[tuple[float, str, str, int]]]


@pytest.fixture
def observe(make_agent: MakeAgent) -> Observe:
    """Run one study at an agent to its end and return what the tester saw."""

    def run(
        world: World,
        *,
        compute_s: float = 0.0,
        fails: bool = False,
        study: dict[str, Any] | None = None,
        **written: str,
    ) -> list[tuple[float, str, str, int]]:
        procedure = SlowSum()
        seen = Seen(FakeTester())
        written.setdefault("policy", "respond_after_s_min = 3")
        attacked = make_agent(
            world=world, procedures={SlowSum.name: procedure}, transport=seen.transport(), **written
        )
        attacked.tester = seen.tester
        seen.clock = attacked.clock

        def compute() -> None:
            attacked.clock.now += compute_s
            if fails:
                raise FloatingPointError("a row is odd")

        procedure.compute = compute
        attacked.world.ask(seen.tester, attacked.world.study(**{"respond_after_s": 3, **(study or {})}))
        Fetcher(attacked.agent).poll(0)
        answered = seen.tester.received
        while not answered and attacked.clock.now < NOW + 10_000:
            work(attacked.agent)
            attacked.clock.now += TICK_S if attacked.clock.now < NOW + SOON_S else SELDOM_S
        assert len(answered) == (not fails)
        return seen.requests

    return run


def times(requests: list[tuple[float, str, str, int]]) -> list[float]:
    return [at for at, *_ in requests]


def test_a_release_arrives_at_the_same_time_however_long_it_took_to_compute(
    observe: Observe, tmp_path: Any
) -> None:
    world = World(tmp_path)
    quick, slow = observe(world, compute_s=0.0), observe(world, compute_s=2.0)
    assert [request[:3] for request in quick] == [request[:3] for request in slow]
    assert times(quick) == [0.0, 0.0, 3.0]
    # What is late arrives at one of few moments.
    assert times(observe(world, compute_s=3.5))[-1] == times(observe(world, compute_s=5.5))[-1] == 6.0


def test_an_agent_that_sends_when_it_is_ready_would_be_caught(
    observe: Observe, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tacit_services.agent.study.releases.send_time", lambda *_: 0)
    world = World(tmp_path)
    quick, slow = observe(world, compute_s=0.0), observe(world, compute_s=2.0)
    assert times(quick)[-1] != times(slow)[-1]


FAILURES: dict[str, dict[str, Any]] = {
    "a column that is not there": {"study": {"unit_column": "absent"}},
    "too few units": {"policy": "respond_after_s_min = 3\nunits_min = 61"},
    "no budget": {"data_set": "epsilon = 0.1"},
    "a column not allowed": {"study": {"unit_column": "y"}},
    "an unlisted analyst": {"policy": f'respond_after_s_min = 3\nanalysts = ["{"a" * 64}"]'},
    "no such procedure": {"study": {"procedure": "another_sum"}},
}


def test_every_failure_looks_like_every_other(observe: Observe, tmp_path: Any) -> None:
    world = World(tmp_path)
    expected = observe(world, policy="respond_after_s_min = 3\nunits_min = 61")
    assert [(method, path) for _, method, path, _ in expected] == [
        ("GET", "/v1/studies/envelope"),
        ("GET", "/v1/studies"),
        ("PUT", "/v1/studies/declines/north"),
    ]
    assert times(expected) == [0.0, 0.0, 3.0]
    for failure, about in FAILURES.items():
        assert observe(world, **about) == expected, failure


@pytest.mark.parametrize("compute_s", [0.0, 2.5])
def test_what_fails_after_rows_were_read_is_told_by_nothing_but_silence(
    observe: Observe, tmp_path: Any, compute_s: float
) -> None:
    """What the tester is asked is what it is asked of a study that is released, but for the answer."""
    world = World(tmp_path)
    released = observe(world, compute_s=compute_s)
    assert observe(world, fails=True, compute_s=compute_s) == released[:-1]


def test_a_public_rule_is_told_at_the_moment_of_every_decline(
    observe: Observe, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its bytes are more: they follow from the study and the number of units, and so may be."""

    def refuse(self: SlowSum, study: Study, units: Mapping[str, int]) -> None:
        raise PublicRuleError("too-few-units", "too few of them")

    world = World(tmp_path)
    expected = observe(world, policy="respond_after_s_min = 3\nunits_min = 61")
    monkeypatch.setattr(SlowSum, "check_units", refuse, raising=False)
    assert [request[:3] for request in observe(world)] == [request[:3] for request in expected]


def test_releases_and_declines_leave_at_the_same_moment(observe: Observe, tmp_path: Any) -> None:
    world = World(tmp_path)
    refusing = "respond_after_s_min = 3\nepsilon_per_study_max = 0.01"
    assert times(observe(world)) == times(observe(world, policy=refusing))


def test_a_study_that_wants_its_answer_at_once_is_declined_on_the_same_schedule(
    make_agent: MakeAgent,
) -> None:
    attacked = make_agent(policy=f"respond_after_s_min = {RESPOND_AFTER_S}")
    asked = attacked.world.ask(attacked.tester, attacked.world.study(respond_after_s=0))
    attacked.turn()
    assert attacked.row(asked).problem == "policy-refused"
    assert attacked.opened == []


def test_a_release_that_no_moment_before_the_deadline_is_left_for_spends_nothing(
    make_agent: MakeAgent,
) -> None:
    attacked = make_agent()
    asked = attacked.world.ask(attacked.tester, attacked.world.study(respond_after_s=60, deadline=NOW + 30))
    attacked.turn()
    assert attacked.row(asked).problem == "study-expired"
    assert attacked.debits() == []


@pytest.mark.parametrize("ends", ["released", "unreadable"])
def test_metrics_and_ledger_tell_no_computing_time(make_agent: MakeAgent, ends: str) -> None:
    """Gauges, second by second, and the moment that the ledger gives its debit."""
    seen: list[list[str]] = []
    dated: list[Any] = []
    for computing_s in (1, 8):
        procedure, told = SlowSum(), list[str]()
        attacked = make_agent(
            procedures={SlowSum.name: procedure}, policy="respond_after_s_min = 0", data_set="epsilon = 1.0"
        )
        app = create_agent_app(attacked.agent, Runtime("1", lambda: True, lambda: None))

        def tick() -> None:
            Delivery(attacked.agent).deliver()  # noqa: B023 (called within the turn)
            page = served.call(app, "http://127.0.0.1", "GET", "/metrics").text  # noqa: B023
            states = [line for line in page.splitlines() if line.startswith("tacit_agent_studies{")]
            told.append(f"{attacked.clock.now}: {states}")  # noqa: B023
            attacked.clock.now += 1  # noqa: B023

        def compute() -> None:
            for _ in range(computing_s):  # noqa: B023
                tick()
            if ends == "unreadable":
                raise DataError("the rows cannot be read")

        procedure.compute = compute
        attacked.world.ask(attacked.tester, attacked.world.study(respond_after_s=10))
        Fetcher(attacked.agent).poll(0)
        while attacked.clock.now < NOW + 14:
            Fetcher(attacked.agent).confirm()
            attacked.agent.run_approved()
            tick()
        dated.append([entry["at"] for entry in read_from(attacked.agent.engine, export)])
        seen.append(told)
    assert min(map(len, seen)) >= 14  # rows that cannot be read are tried again
    assert 'approved"} 1' in seen[0][9]
    # Rows that cannot be read close the study, which looks as if its owner were away.
    assert f'approved"}} {int(ends == "unreadable")}' in seen[0][10]
    assert seen[0][:14] == seen[1][:14]
    if ends == "released":
        assert dated[0] == dated[1]


# The law of the schedule.

DECIDED_AT = 1_800_000_000


@given(st.integers(1, RESPOND_AFTER_S_MAX), st.floats(0, 1e7))
def test_moments_are_soon_enough_and_few(respond_after_s: int, took_s: float) -> None:
    sent_s = send_time(DECIDED_AT, respond_after_s, DECIDED_AT + took_s) - DECIDED_AT
    longest_s = respond_after_s << DOUBLINGS
    assert sent_s >= took_s + MARGIN_S - 1e-6
    assert sent_s <= max(respond_after_s, min(2 * (took_s + MARGIN_S), took_s + MARGIN_S + longest_s) + 1e-6)
    moments = {respond_after_s << i for i in range(DOUBLINGS + 1)}
    assert sent_s in moments or sent_s % longest_s == 0


@given(st.integers(1, 100), st.floats(0, 0.7), st.floats(0, 0.7))
def test_what_is_ready_in_time_is_sent_at_one_moment(
    respond_after_s: int, one_s: float, other_s: float
) -> None:
    first, second = (
        send_time(DECIDED_AT, respond_after_s, DECIDED_AT + took_s) for took_s in (one_s, other_s)
    )
    assert first == second == DECIDED_AT + respond_after_s


# A running agent: what the tester sees never waits for a computation.


@dataclass
class Running:
    """An agent whose loops run, and whose computation goes on when a test says so."""

    attacked: Any
    loops: Loops
    stop: threading.Event
    computing: threading.Event = field(default_factory=threading.Event)
    go_on: threading.Event = field(default_factory=threading.Event)

    def compute(self) -> None:
        self.computing.set()
        assert self.go_on.wait(PATIENCE_S)

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition, and fail after a generous while."""
        tries = int(PATIENCE_S / 0.02)
        assert any(condition() or self.stop.wait(0.02) for _ in range(tries)), "it did not happen in time"


@pytest.fixture
def running(make_agent: MakeAgent) -> Iterator[Running]:
    procedure, stop = SlowSum(), threading.Event()
    attacked = make_agent(procedures={SlowSum.name: procedure})
    found = Running(attacked, Loops(attacked.agent, stop, poll_wait_s=0), stop)
    procedure.compute = found.compute
    yield found
    found.go_on.set()
    found.loops.end()


def test_an_agent_asks_the_tester_the_same_while_it_computes_and_while_it_waits(running: Running) -> None:
    asked: list[str] = []
    attacked = running.attacked
    handle = attacked.tester.handle

    def noted(method: str, url: str, content: bytes = b"") -> tuple[int, bytes]:
        if not url.endswith("/catalogue/north"):  # which this tester never takes
            asked.append(f"{method} {httpx.URL(url).path}")
        return handle(method, url, content)

    attacked.tester.handle = noted
    study = attacked.world.ask(attacked.tester, attacked.world.study(respond_after_s=3600))
    polls: list[set[str]] = []
    running.loops.start()
    running.wait_for(lambda: asked.count(f"GET /v1/studies/{study}") > 0)
    for _ in ("computing", "computed"):
        asked.clear()
        running.wait_for(lambda: asked.count("GET /v1/inbox") > 2)
        polls.append(set(asked))
        running.go_on.set()
        running.wait_for(lambda: attacked.row(study).state is not State.APPROVED)
    assert polls == [{"GET /v1/inbox"}] * 2


def test_a_second_study_is_noticed_and_declined_while_the_first_is_computed(running: Running) -> None:
    attacked = running.attacked
    first = attacked.world.ask(attacked.tester, attacked.world.study())
    running.loops.start()
    assert running.computing.wait(PATIENCE_S)
    second = attacked.world.ask(attacked.tester, attacked.world.study(procedure="another_sum"))
    running.wait_for(lambda: second in attacked.tester.declines)
    assert first not in attacked.tester.releases
    running.go_on.set()
    running.wait_for(lambda: first in attacked.tester.releases)
    assert running.loops.alive()
