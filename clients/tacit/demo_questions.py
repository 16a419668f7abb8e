"""The seven studies of `tacit demo --all`: for each of the five systems one at least, on real data.

Budgets are such that what there is to see is nearly always seen; what is not there is seen as seldom as the
level says. Nothing decides beforehand what a run will say.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tacit.demo import COLUMNS, DATA_SET, HOSPITALS
from tacit.demo_owners import (
    DELTA,
    DIGIT_COLUMN,
    DIGIT_HOSPITAL,
    DIGITS,
    PEOPLE,
    PEOPLE_SET,
    PERSON,
    REGISTERS,
    SCHOOL_REGISTER,
    TAX_OFFICE,
    published_people,
)
from tacit.local_curator import CURATOR, LocalCurator
from tacit.results import DatabaseResult, DistanceCorrelationResult, Result

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


@dataclass(frozen=True)
class Question:
    """A study of the demo: its name, what it asks, its draft, and its result in plain words."""

    name: str
    system: str
    asks: str
    draft: Mapping[str, Any]
    words: Callable[[Result], str]


def all_questions(curator: LocalCurator, alignment: str) -> tuple[Question, ...]:
    """Write down every question; ``alignment`` is the digest that the registers found."""
    return (
        _hospitals_alike(),
        _hospitals_alike_at_the_curator(curator),
        _independent_columns(),
        _even_digits(),
        _share_of_women(),
        _income_and_education(alignment),
        _working_hours(),
    )


def _hospitals_alike() -> Question:
    return Question(
        "hospitals",
        "two-sample test, nobody trusted",
        "Do the patients of the four hospitals come from one population?",
        _draft("kernel_two_sample", COLUMNS, _hospitals(*HOSPITALS), 1.0, DELTA),
        _decided("no: they differ", "no difference shown"),
    )


def _hospitals_alike_at_the_curator(curator: LocalCurator) -> Question:
    samples = [["cleveland", "budapest"], ["zurich-basel", "long-beach"]]
    draft = _draft("curated_two_sample", COLUMNS, curator.draft_owners(list(HOSPITALS)), 0.3, 0.0)
    parameters = {"release": "permutation", "samples": samples}
    return Question(
        "hospitals-curated",
        "two-sample test, a curator trusted",
        "Are Cleveland's and Budapest's patients like those of Zurich, Basel and Long Beach?",
        draft | {"curator": CURATOR, "parameters": parameters},
        _decided("no: they differ", "no difference shown"),
    )


def _independent_columns() -> Question:
    columns = _columns(COLUMNS, ("sex", "cp", "num"))
    return Question(
        "independence",
        "joint independence",
        "At Cleveland, are sex, chest pain and disease independent of each other?",
        _draft("joint_independence", columns, _hospitals(DIGIT_HOSPITAL), 1.0, 0.0),
        _decided("no: they depend on each other", "no dependence shown"),
    )


def _even_digits() -> Question:
    column = {"kind": "categorical", "name": DIGIT_COLUMN, "levels": list(DIGITS)}
    draft = _draft("identity", [column], _hospitals(DIGIT_HOSPITAL), 0.25, 0.0)
    even = [1 / len(DIGITS)] * len(DIGITS)
    return Question(
        "digits",
        "identity test",
        "Is every last digit as frequent as the others in Cleveland's blood pressures?",
        draft | {"parameters": {"method": "privit-laplace", "probabilities": even}},
        _decided("no: digits are preferred", "no preference shown"),
    )


def _share_of_women() -> Question:
    columns = _columns(COLUMNS, ("sex",))
    return Question(
        "women",
        "homogeneity of categories",
        "Do Cleveland and Budapest see the same share of women?",
        _draft("homogeneity", columns, _hospitals("cleveland", "budapest"), 0.5, 0.0),
        _decided("no: the shares differ", "no difference shown"),
    )


def _income_and_education(alignment: str) -> Question:
    asked = {SCHOOL_REGISTER: "education_num", TAX_OFFICE: "income"}
    owners = [owner | {"columns": [asked[owner["name"]]]} for owner in _registers(*REGISTERS)]
    columns = [REGISTER_COLUMNS[name] for name in asked.values()]
    draft = _draft("distance_correlation", columns, owners, 2.0, DELTA)
    return Question(
        "income",
        "distance correlation of two owners",
        "Does income (the tax office knows it) depend on schooling (a register does)?",
        draft | {"unit_column": PERSON, "alignment": alignment},
        _correlated,
    )


def _working_hours() -> Question:
    columns = [REGISTER_COLUMNS[name] for name in REGISTERS[SCHOOL_REGISTER]]
    draft = _draft("embedding_release", columns, _registers(SCHOOL_REGISTER), 0.5, DELTA)
    return Question(
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


def _registers(*names: str) -> list[dict[str, Any]]:
    return [{"name": name, "data_set": PEOPLE_SET, "units": PEOPLE} for name in names]


def _columns(columns: Sequence[dict[str, Any]], names: Sequence[str]) -> list[dict[str, Any]]:
    return [column for column in columns if column["name"] in names]


def _decided(rejected: str, not_rejected: str) -> Callable[[Result], str]:
    return lambda result: rejected if result.reject else not_rejected


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
