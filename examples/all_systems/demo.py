"""Owners, questions and answers of every system: on real data, by real services."""

import csv
import json
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from tacit.client.data_set import DataSetDescription
from tacit.client.http import parse_item
from tacit.client.tester import Client
from tacit.demo.hospitals import ATTRIBUTION_FILE, COLUMNS, DATA_SET, HOSPITALS, Narrator, copy_demo_file
from tacit.errors import ServiceError, VerdictTimeoutError
from tacit.results import (
    AssociationResult,
    DatabaseResult,
    DistanceCorrelationResult,
    GroupComparisonResult,
    Result,
    StratifiedTableResult,
    StudyVerdict,
    SurvivalResult,
)
from tacit.setup.configuration import DataSetSetup, PolicySetup
from tacit.setup.federation import CURATOR, CuratedOwnerSetup, LocalCurator, LocalFederation, OwnerSetup
from tacit.setup.keys import create_unit_key
from tacit.setup.processes import run_align
from tacit.studies.draft import StudyDraft
from tacit_protocol.messages.answers import BudgetBalance
from tacit_protocol.preparation import PreparedStudy

DELTA = 1e-5
HOSPITAL_EPSILON = 6.0
"""What each hospital lets be spent on its patients at its own agent, in all."""

CURATED_EPSILON = 1.0
"""What each hospital lets be spent on the copy that the curator holds. A patient's loss is both together."""

REGISTER_EPSILON = 4.0

DIGIT_COLUMN = "pressure_digit"
"""The last digit of the blood pressure that Cleveland wrote down."""

DIGIT_HOSPITAL = "cleveland"
DIGITS = tuple(str(digit) for digit in range(10))

HEART_CLINIC, HEART_PATIENTS = "faisalabad", 299
WEAK_HEART_MAX = 30
"""Of the blood that leaves the heart at each beat, the per cent up to which a heart counts as weak."""

PEOPLE = 32_561
PERSON = "person"
PEOPLE_SET = "people"
SCHOOL_REGISTER, TAX_OFFICE = "school-register", "tax-office"
REGISTERS = {
    SCHOOL_REGISTER: ("age", "sex", "education_num", "hours_per_week"),
    TAX_OFFICE: ("income",),
}
"""Which columns of the census records each register holds, of the same people."""

ORDER_SEED = 1994
"""Of the order in which the tax office keeps people: another than the school register's."""


@dataclass(frozen=True)
class DemoOwners:
    """Owners with agents, and owners whose data a curator holds."""

    with_agents: list[OwnerSetup]
    curated: list[CuratedOwnerSetup]


def all_owners(folder: Path) -> DemoOwners:
    """Write every owner's rows below ``folder`` and describe the owners."""
    folder.mkdir(parents=True, exist_ok=True)
    copy_demo_file(ATTRIBUTION_FILE, folder / ATTRIBUTION_FILE)
    hospitals = [_hospital(name, folder / name) for name in HOSPITALS]
    curated = [_curated(name, folder / name) for name in HOSPITALS]
    return DemoOwners([*hospitals, _heart_clinic(folder / HEART_CLINIC), *_registers(folder)], curated)


def align_registers(federation: LocalFederation) -> str:
    """Let both registers compare their people, past the tester; returns the digest that studies name.

    Raises:
        ServiceError: they do not hold the same people, or could not compare.
    """
    place, other = (federation.folder / name for name in REGISTERS)
    create_unit_key(place / "shared.key")
    # In life somebody takes the key there by hand.
    shutil.copy(place / "shared.key", other / "shared.key")
    # Each step runs at both at once: nearly all of its time is that of a process that starts.
    with ThreadPoolExecutor(2) as both:
        steps = (both.submit(_align, at, "make", "--out", at / "units.json") for at in (place, other))
        for step in list(steps):
            step.result()
        pairs = ((place, other), (other, place))
        compared = [both.submit(_align, a, "compare", "--with", b / "units.json") for a, b in pairs]
        return str({step.result()["digest"] for step in compared}.pop())


def published_people() -> list[list[Any]]:
    """Return rows of the census' published half, as public points of a database: one value per column."""
    text = (resources.files("tacit.demo.data") / "census-published.csv").read_text("utf-8")
    header, *rows = csv.reader(text.splitlines())
    texts = {header.index("sex")}
    return [[value if i in texts else float(value) for i, value in enumerate(row)] for row in rows]


def _align(place: Path, step: str, option: str, file: Path) -> dict[str, Any]:
    """Run a step of `tacit data align` for the register in ``place``."""
    of = ("--data-set", PEOPLE_SET, "--key", str(place / "shared.key"))
    done = run_align(place / "agent.toml", [step, *of, option, str(file), "--json"])
    if not done.passed:
        raise ServiceError(f"{place.name} could not align its people: {done.output}")
    found: dict[str, Any] = json.loads(done.output)
    return found


def _hospital(name: str, place: Path) -> OwnerSetup:
    columns = [column["name"] for column in COLUMNS]
    place.mkdir(parents=True)
    copy_demo_file(f"{name}.csv", place / f"{DATA_SET}.csv")
    if name == DIGIT_HOSPITAL:
        columns.append(DIGIT_COLUMN)
        _add_digits(place / f"{DATA_SET}.csv")
    policy = PolicySetup(
        approval="automatic",
        epsilon_per_study_max=1.0,
        delta_per_study_max=DELTA,
        units_min=100,
        procedures=(
            "kernel_two_sample",
            "joint_independence",
            "identity",
            "homogeneity",
            "stratified_table",
            "group_comparison",
            "association",
        ),
        columns=columns,
        catalogue=True,
    )
    return OwnerSetup(name, DataSetSetup(DATA_SET, f"{DATA_SET}.csv", HOSPITAL_EPSILON, DELTA), policy)


def _heart_clinic(place: Path) -> OwnerSetup:
    place.mkdir(parents=True)
    text = (resources.files("tacit.demo.data") / "heart-failure.csv").read_text("utf-8")
    with (place / f"{DATA_SET}.csv").open("w", newline="", encoding="utf-8") as opened:
        rows = csv.writer(opened)
        rows.writerow([column["name"] for column in HEART_COLUMNS])
        for patient in csv.DictReader(text.splitlines()):
            weak = float(patient["ejection_fraction"]) <= WEAK_HEART_MAX
            rows.writerow([patient["time"], patient["died"], "weak" if weak else "better"])
    policy = PolicySetup(
        approval="automatic",
        epsilon_per_study_max=1.0,
        delta_per_study_max=0.0,
        procedures=("survival",),
        columns=[column["name"] for column in HEART_COLUMNS],
    )
    return OwnerSetup(HEART_CLINIC, DataSetSetup(DATA_SET, f"{DATA_SET}.csv", HOSPITAL_EPSILON, 0.0), policy)


def _curated(name: str, place: Path) -> CuratedOwnerSetup:
    rows = place / "for-the-curator.csv"
    copy_demo_file(f"{name}.csv", rows)
    described = {
        "name": DATA_SET,
        "columns": COLUMNS,
        "epsilon": CURATED_EPSILON,
        "delta": DELTA,
        "policy": {
            "approval": "automatic",
            "epsilon_per_study_max": CURATED_EPSILON,
            "delta_per_study_max": DELTA,
            "analysts": ["*"],
            "procedures": ["curated_two_sample"],
        },
    }
    return CuratedOwnerSetup(name, DataSetDescription.from_dict(described), rows)


def _add_digits(file: Path) -> None:
    """Add the last digits of the blood pressures, which are kept beside the other columns, to every row."""
    pressures = resources.files("tacit.demo.data") / f"{DIGIT_HOSPITAL}-pressure.csv"
    digits = [DIGIT_COLUMN, *(line[-1] for line in pressures.read_text("utf-8").splitlines()[1:])]
    rows = file.read_text("utf-8").splitlines()
    joined = (f"{row},{digit}" for row, digit in zip(rows, digits, strict=True))
    file.write_text("\n".join(joined) + "\n", "utf-8")


def _registers(folder: Path) -> list[OwnerSetup]:
    with resources.as_file(resources.files("tacit.demo.data") / "census.parquet") as path:
        people = parquet.read_table(path)
    people = people.append_column(PERSON, pa.array(range(1, PEOPLE + 1), pa.int32()))
    owners = []
    for name, columns in REGISTERS.items():
        table = people.select([PERSON, *columns])
        if name == TAX_OFFICE:
            table = table.take(np.random.default_rng(ORDER_SEED).permutation(PEOPLE))
        (folder / name).mkdir(parents=True)
        parquet.write_table(table, folder / name / f"{PEOPLE_SET}.parquet")
        policy = PolicySetup(
            approval="automatic",
            epsilon_per_study_max=2.0,
            delta_per_study_max=DELTA,
            procedures=("distance_correlation", "embedding_release"),
            columns=columns,
            catalogue=True,
        )
        # Both studies of the registers have Gaussian noise.
        source = DataSetSetup(
            PEOPLE_SET, f"{PEOPLE_SET}.parquet", REGISTER_EPSILON, DELTA, PERSON, pure_share=0.0
        )
        owners.append(OwnerSetup(name, source, policy))
    return owners


OPEN_FOR_HOURS = 1.0

REGISTER_COLUMNS: Mapping[str, dict[str, Any]] = {
    "age": {"kind": "numeric", "name": "age", "lower": 16.0, "upper": 90.0},
    "sex": {"kind": "categorical", "name": "sex", "levels": ["Female", "Male"]},
    # Years of schooling as the census codes them: 1, before first grade, to 16, a doctorate.
    "education_num": {"kind": "numeric", "name": "education_num", "lower": 1.0, "upper": 16.0},
    "hours_per_week": {"kind": "numeric", "name": "hours_per_week", "lower": 0.0, "upper": 99.0},
    "income": {"kind": "categorical", "name": "income", "levels": ["<=50K", ">50K"]},
}
"""Bounds are what is known of any such records, not of these: ages as far as the census codes them, two
digits of hours, sixteen grades of schooling."""


HEART_COLUMNS: list[dict[str, Any]] = [
    {"kind": "numeric", "name": "time", "lower": 0.0, "upper": 240.0},
    {"kind": "categorical", "name": "died", "levels": ["0", "1"]},
    {"kind": "categorical", "name": "heart", "levels": ["better", "weak"]},
]


@dataclass(frozen=True)
class DemoQuestion:
    """A study of the demo: its name, what it asks, its draft, and its result in plain words."""

    name: str
    system: str
    asks: str
    draft: Mapping[str, Any]
    words: Callable[[Result], str]


def all_questions(curator: LocalCurator, alignment: str) -> tuple[DemoQuestion, ...]:
    """Write down every question; ``alignment`` is the digest that the registers found."""
    return (
        _hospitals_alike(),
        _hospitals_alike_at_the_curator(curator),
        _independent_columns(),
        _even_digits(),
        _share_of_women(),
        _men_and_women_within_hospitals(),
        _men_and_women_in_numbers(),
        _age_and_disease(),
        _time_to_death(),
        _income_and_education(alignment),
        _working_hours(),
    )


def _hospitals_alike() -> DemoQuestion:
    return DemoQuestion(
        "hospitals",
        "two-sample test, nobody trusted",
        "Do the patients of the four hospitals come from one population?",
        _draft("kernel_two_sample", COLUMNS, _hospitals(*HOSPITALS), 1.0, DELTA),
        _decided("no: they differ", "no difference shown"),
    )


def _hospitals_alike_at_the_curator(curator: LocalCurator) -> DemoQuestion:
    samples = [["cleveland", "budapest"], ["zurich-basel", "long-beach"]]
    draft = _draft("curated_two_sample", COLUMNS, curator.draft_owners(list(HOSPITALS)), 0.3, 0.0)
    parameters = {"release": "permutation", "samples": samples}
    return DemoQuestion(
        "hospitals-curated",
        "two-sample test, a curator trusted",
        "Are Cleveland's and Budapest's patients like those of Zurich, Basel and Long Beach?",
        draft | {"curator": CURATOR, "parameters": parameters},
        _decided("no: they differ", "no difference shown"),
    )


def _independent_columns() -> DemoQuestion:
    columns = _columns(COLUMNS, ("sex", "cp", "num"))
    return DemoQuestion(
        "independence",
        "joint independence",
        "At Cleveland, are sex, chest pain and disease independent of each other?",
        _draft("joint_independence", columns, _hospitals(DIGIT_HOSPITAL), 1.0, 0.0)
        | {"parameters": {"method": "permutation"}},
        _decided("no: they depend on each other", "no dependence shown"),
    )


def _even_digits() -> DemoQuestion:
    column = {"kind": "categorical", "name": DIGIT_COLUMN, "levels": list(DIGITS)}
    draft = _draft("identity", [column], _hospitals(DIGIT_HOSPITAL), 0.25, 0.0)
    even = [1 / len(DIGITS)] * len(DIGITS)
    return DemoQuestion(
        "digits",
        "identity test",
        "Is every last digit as frequent as the others in Cleveland's blood pressures?",
        draft | {"parameters": {"method": "privit-laplace", "probabilities": even}},
        _decided("no: digits are preferred", "no preference shown"),
    )


def _share_of_women() -> DemoQuestion:
    columns = _columns(COLUMNS, ("sex",))
    return DemoQuestion(
        "women",
        "homogeneity of categories",
        "Do Cleveland and Budapest see the same share of women?",
        _draft("homogeneity", columns, _hospitals("cleveland", "budapest"), 0.5, 0.0),
        _decided("no: the shares differ", "no difference shown"),
    )


def _men_and_women_within_hospitals() -> DemoQuestion:
    # Degrees of the disease beyond 1 count with it: Budapest records no degree.
    disease = {"kind": "categorical", "name": "num", "levels": ["0", "1"]}
    columns = [*_columns(COLUMNS, ("sex",)), disease]
    return DemoQuestion(
        "sex",
        "stratified table, nobody trusted",
        "Within the hospitals, are men more often ill than women?",
        _draft("stratified_table", columns, _hospitals(*HOSPITALS), 1.0, 0.0)
        | {"parameters": {"group": "sex", "outcome": "num", "unlisted": "last"}},
        _by_how_much("odds ratio"),
    )


def _men_and_women_in_numbers() -> DemoQuestion:
    columns = _columns(COLUMNS, ("age", "sex", "num"))
    return DemoQuestion(
        "men-and-women",
        "group comparison, nobody trusted",
        "Within the hospitals, do men and women differ in age and disease?",
        _draft("group_comparison", columns, _hospitals(*HOSPITALS), 1.0, DELTA)
        | {"parameters": {"group": "sex"}},
        _by_how_much("mean difference"),
    )


def _age_and_disease() -> DemoQuestion:
    columns = _columns(COLUMNS, ("age", "num"))
    return DemoQuestion(
        "age",
        "association, nobody trusted",
        "Within the hospitals, are older patients more often ill?",
        _draft("association", columns, _hospitals(*HOSPITALS), 1.0, DELTA),
        _by_how_much("rank correlation"),
    )


def _time_to_death() -> DemoQuestion:
    owner = {"name": HEART_CLINIC, "data_set": DATA_SET, "units": HEART_PATIENTS}
    parameters = {"group": "heart", "time": "time", "event": "died"}
    cuts = {"time": [30.0, 60.0, 90.0, 120.0, 180.0]}
    return DemoQuestion(
        "survival",
        "survival",
        "Do patients whose heart pumps weakly die earlier?",
        _draft("survival", HEART_COLUMNS, [owner], 1.0, 0.0) | {"parameters": parameters | {"cuts": cuts}},
        _by_how_much("hazard ratio"),
    )


def _income_and_education(alignment: str) -> DemoQuestion:
    asked = {SCHOOL_REGISTER: "education_num", TAX_OFFICE: "income"}
    owners = [owner | {"columns": [asked[owner["name"]]]} for owner in _registers_questions(*REGISTERS)]
    columns = [REGISTER_COLUMNS[name] for name in asked.values()]
    draft = _draft("distance_correlation", columns, owners, 2.0, DELTA)
    return DemoQuestion(
        "income",
        "distance correlation of two owners",
        "Does income (the tax office knows it) depend on schooling (a register does)?",
        # The sketch of the paper's kind, in Gaussian noise like the registers' other study.
        draft | {"unit_column": PERSON, "alignment": alignment, "parameters": {"method": "sketch"}},
        _correlated,
    )


def _working_hours() -> DemoQuestion:
    columns = [REGISTER_COLUMNS[name] for name in REGISTERS[SCHOOL_REGISTER]]
    draft = _draft("embedding_release", columns, _registers_questions(SCHOOL_REGISTER), 0.5, DELTA)
    return DemoQuestion(
        "database",
        "database release",
        "A database of the register's people: how long do they work?",
        draft | {"unit_column": PERSON, "parameters": {"points": published_people()}},
        _answered,
    )


def _draft(
    procedure: str, columns: Sequence[Any], owners: Sequence[Any], epsilon: float, delta: float
) -> dict[str, Any]:
    return {
        "procedure": procedure,
        "columns": list(columns),
        "owners": list(owners),
        "epsilon": epsilon,
        "delta": delta,
        "open_for_hours": OPEN_FOR_HOURS,
    }


def _hospitals(*names: str) -> list[dict[str, Any]]:
    return [{"name": name, "data_set": DATA_SET, "units": HOSPITALS[name]} for name in names]


def _registers_questions(*names: str) -> list[dict[str, Any]]:
    return [{"name": name, "data_set": PEOPLE_SET, "units": PEOPLE} for name in names]


def _columns(columns: Sequence[dict[str, Any]], names: Sequence[str]) -> list[dict[str, Any]]:
    return [column for column in columns if column["name"] in names]


def _decided(rejected: str, not_rejected: str) -> Callable[[Result], str]:
    return lambda result: rejected if result.reject else not_rejected


def _by_how_much(kind: str) -> Callable[[Result], str]:
    """Tell the surest effect of a kind, where a difference or an association was shown at all."""

    def words(result: Result) -> str:
        if not isinstance(
            result, (AssociationResult, GroupComparisonResult, StratifiedTableResult, SurvivalResult)
        ):
            raise TypeError("this result has no effects within owners")
        if not result.reject:
            return "not shown"
        surest = next(effect for effect in result.effects if effect.kind == kind)
        return f"yes: {surest.named}: {surest.words}"

    return words


def _correlated(result: Result) -> str:
    if not isinstance(result, DistanceCorrelationResult):
        raise TypeError("this is no distance correlation")
    finding = "yes" if result.reject else "no dependence shown"
    if result.distance_correlation is None or result.interval is None:
        return finding
    low, high = result.interval
    return f"{finding}: distance correlation {result.distance_correlation:.2f}, {low:.2f} to {high:.2f}"


def _answered(result: Result) -> str:
    if not isinstance(result, DatabaseResult):
        raise TypeError("this is no database")
    hours = result.database().mean("hours_per_week")
    return f"{hours:.1f} hours a week on average, standard error {hours.error:.1f}"


VERDICTS_TIMEOUT_S = 300.0
"""How long all verdicts may take on a slow machine."""

POLL_S = 0.3
"""Pause between two looks at which studies have ended."""


@dataclass(frozen=True)
class DemoAnswer:
    """A question with its verdict, which was verified from the transcript, and its time in seconds."""

    question: DemoQuestion
    study: PreparedStudy
    verdict: StudyVerdict
    seconds: float
    page: str
    transcript: Path

    @property
    def words(self) -> str:
        """The verdict in plain words."""
        if self.verdict.result is None:
            return f"without a verdict: {self.verdict.outcome}"
        return self.question.words(self.verdict.result)

    @property
    def pvalue(self) -> float | None:
        """The p-value, where the procedure has one."""
        found = getattr(self.verdict.result, "pvalue", None)
        return None if found is None else float(found)


@dataclass(frozen=True)
class DemoAccount:
    """What is spent of a data set's budget, and what is left. ``place`` is who keeps the account."""

    owner: str
    place: str
    standing: BudgetBalance


@dataclass(frozen=True)
class AllAnswers:
    """What the demo of everything found. ``folder`` holds the federation's files."""

    answers: tuple[DemoAnswer, ...]
    accounts: tuple[DemoAccount, ...]
    folder: Path
    tester_key: str


@contextmanager
def running_federation_of_all(folder: Path, narrator: Narrator) -> Iterator[tuple[LocalFederation, str]]:
    """Set everything up in ``folder``, run it, and stop it at the end.

    Yields the federation and the digest by which its two registers are aligned.
    """
    narrator.step("Setting up five hospitals, two registers, a curator, a tester and an analyst")
    owners = all_owners(folder)
    with LocalFederation(folder, owners.with_agents, owners.curated) as federation:
        narrator.step(f"Starting {len(owners.with_agents) + 2} services, each a process of its own")
        federation.wait_until_ready(on_ready=lambda name: narrator.progress(f"{name} is up"))
        narrator.step("Enrolling everyone's key; four hospitals hand a copy of their rows to the curator")
        federation.enrol_all()
        narrator.step("The two registers make sure, past the tester, that they know the same people")
        yield federation, align_registers(federation)


def ask_all(federation: LocalFederation, alignment: str, narrator: Narrator) -> AllAnswers:
    """Ask every question, wait for the verdicts, verify their transcripts and read the accounts.

    Raises:
        ServiceError: the federation has no curator, or a service has ended.
        VerdictTimeoutError: a verdict was not there in time.
        VerificationFailedError: a transcript does not hold.
    """
    if federation.curator is None:
        raise ServiceError("the demo of everything needs a curator")
    questions = all_questions(federation.curator, alignment)
    (federation.folder / "transcripts").mkdir()
    with federation.analyst_client() as client:
        asking = _Asking(client, federation, narrator)
        narrator.step(f"Asking {len(questions)} questions at once")
        asked = {one.study.digest: one for one in map(asking.ask, questions)}
        narrator.step("Owners check their policies, pay from their ledgers, add noise and send")
        ended = asking.wait({digest: one.question for digest, one in asked.items()})
        narrator.step("Verifying every transcript: every signature, every figure")
        answers = tuple(asking.answer(one, ended[digest]) for digest, one in asked.items())
    return AllAnswers(answers, tuple(_accounts(federation)), federation.folder, federation.tester_key)


@dataclass(frozen=True)
class _HandedIn:
    """A question whose study the tester has, and when it was handed in."""

    question: DemoQuestion
    study: PreparedStudy
    at: float


@dataclass(frozen=True)
class _Asking:
    """The analyst at work."""

    client: Client
    federation: LocalFederation
    narrator: Narrator

    def ask(self, question: DemoQuestion) -> _HandedIn:
        prepared = self.client.prepare_study(
            StudyDraft.from_dict({"title": question.asks} | dict(question.draft))
        )
        self.narrator.progress(question.asks)
        # The demo shows what limits a study beside its verdict, and goes on.
        self.client.create_study(prepared, force=True)
        return _HandedIn(question, prepared, time.monotonic())

    def wait(self, questions: Mapping[str, DemoQuestion]) -> dict[str, float]:
        """Wait until every study, given by digest, has ended; returns when each was seen to have."""
        ends_at = time.monotonic() + VERDICTS_TIMEOUT_S
        ended: dict[str, float] = {}
        while len(ended) < len(questions):
            if time.monotonic() > ends_at:
                waiting = ", ".join(q.system for digest, q in questions.items() if digest not in ended)
                raise VerdictTimeoutError(f"no verdict after {VERDICTS_TIMEOUT_S:g} s of: {waiting}")
            self.federation.check_running()
            for summary in self.client.studies():
                if summary.digest in questions and summary.digest not in ended and not summary.running:
                    ended[summary.digest] = time.monotonic()
                    self.narrator.progress(f"{questions[summary.digest].system}: the verdict is there")
            time.sleep(POLL_S)
        return ended

    def answer(self, asked: _HandedIn, ended_at: float) -> DemoAnswer:
        from tacit.client.transcripts import verify_transcript_of  # noqa: PLC0415 (not before the services have started)

        question, study = asked.question, asked.study
        verdict = self.client.wait_for_verdict(study.digest)
        file = self.federation.folder / "transcripts" / f"{question.name}.json"
        file.write_bytes(self.client.transcript(study.digest))
        verify_transcript_of(file.read_bytes(), study.digest, self.federation.tester_key)
        self.narrator.progress(f"{question.system}: verified")
        page = f"{self.federation.tester.url}/studies/{study.digest}"
        return DemoAnswer(question, study, verdict, ended_at - asked.at, page, file)


def _accounts(federation: LocalFederation) -> Iterator[DemoAccount]:
    """Read what is spent and left everywhere."""
    for site in federation.agents:
        with federation.agent_client(site.name) as agent:
            for data_set in agent.status()["data_sets"]:
                yield DemoAccount(site.name, "its agent", parse_item(BudgetBalance, data_set))
    if federation.curator is not None:
        with federation.curator.operator_client() as operator:
            for held in operator.data_sets():
                yield DemoAccount(held.owner, "the curator", held)
