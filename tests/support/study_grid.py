"""A grid of studies: what each costs, what its release is laid out as, and how much noise it has.

    PYTHONPATH=tests/support .venv/bin/python -m study_grid    # writes tests/compatibility/study_grid.json

Stored transcripts hold what is done with releases. The grid holds what is promised, and drawn for them: a
changed sensitivity, share of the budget, default or refusal shows here; one that is meant is written anew.

Its studies are all stored ones, with other budgets and numbers of units too, and those of every procedure in
several worlds of owners and columns: with its defaults, and with each value of a parameter that is chosen
from a list beside them. Of the latter those are left out that are refused in the words of the former. Only
the parts of those who release are played, with a source that adds nothing and notes what it is asked.
"""

import json
import sys
import typing
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import wraps
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pytest
from compatibility_cases import (
    APART,
    APART_THREE,
    BOUNDS,
    CASES,
    COUNTED,
    NUMBERS,
    ONE,
    THREE,
    Case,
    rows_of,
)
from pydantic.fields import FieldInfo

from tacit.errors import StudyRefusedError
from tacit.in_process.runner import declaring, held_by_senders, local_study
from tacit.in_process.samples import ArrayTable, Sample, domain_of
from tacit_protocol.domain import Domain
from tacit_protocol.messages.study import Release, Study
from tacit_protocol.privacy import gaussian_mechanism, k_norm_mechanism, laplace_mechanism, permutation_test
from tacit_protocol.privacy.gaussian_mechanism import SumPart
from tacit_protocol.privacy.guarantee import Guarantee
from tacit_protocol.privacy.laplace_mechanism import ExponentialChoice, LaplaceStatistic, l1_sensitivity
from tacit_protocol.privacy.noise import Body
from tacit_protocol.procedures.base import Procedure, StudyError, check_study, require_units
from tacit_protocol.procedures.discovery import PROCEDURES
from tacit_protocol.procedures.relay import combined, cost_for, relay_of

GRID = Path(__file__).resolve().parents[1] / "compatibility" / "study_grid.json"

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class World:
    """Owners, the columns that they hold, and what a procedure with such parameters is told of them."""

    columns: tuple[str, ...]
    owners: Mapping[str, tuple[str, ...]]
    parameters: Mapping[str, Any] = field(default_factory=dict)
    curated: bool = False

    @property
    def domain(self) -> Domain:
        """All columns, with their public bounds."""
        return domain_of({name: BOUNDS[name] for name in self.columns}, list(self.columns))


TWO: Mapping[str, tuple[str, ...]] = {"north": (), "south": ()}

FEW = {"permutations": 99, "n_points": 30}
GROUPS = FEW | {"groups": [["age", "score"], ["ward"]]}

WORLDS: dict[str, World] = {
    "one number, two owners": World(("age",), TWO),
    "two numbers, one owner": World(NUMBERS, ONE, FEW),
    "two numbers and a category, one owner": World(("age", "score", "ward"), ONE, FEW),
    "two numbers and a category, two owners": World(("age", "score", "ward"), TWO, FEW),
    "two numbers and a category, three owners": World(("age", "score", "ward"), THREE, FEW),
    "a number and two groups, three owners": World(("age", "sex"), THREE),
    "a number in cells and categories, two owners": World(
        ("age", "ward", "sex"), TWO, {"cuts": {"age": [30.0, 60.0]}, "group": "sex", "event": "sex"}
    ),
    "categories, two owners": World(COUNTED, TWO),
    "one category, one owner": World(("ward",), ONE, {"unlisted": "last"}),
    "one category, three owners": World(("ward",), THREE),
    "numbers apart": World(("age", "score", "outcome"), APART),
    "categories apart": World(COUNTED, {"north": ("ward",), "south": ("sex",)}),
    "columns of three owners apart": World(("age", "score", "ward"), APART_THREE),
    "two numbers and a category, curated": World(("age", "score", "ward"), TWO, GROUPS, curated=True),
    "two numbers of one owner, curated": World(NUMBERS, ONE, FEW, curated=True),
}

BESIDE: Mapping[Any, Mapping[str, Any]] = {
    "masked": {"colluders": 0},
    "peer": {"receiver": "south", "publish": True},
}
"""What a value from a list cannot do without."""


@dataclass(frozen=True)
class Terms:
    """What a study of the grid spends, its owners' units, and whether it declares them."""

    epsilon: float
    delta: float
    units: int
    declared: bool

    def __str__(self) -> str:
        return f"{self.epsilon:g} {self.delta:g} {self.units}{' declared' if self.declared else ''}"


PURE, APPROXIMATE = (0.5, 0.0), (1.0, 1e-6)
ALL_TERMS = [
    Terms(*budget, units, declared)
    for budget in (PURE, APPROXIMATE)
    for units in (50, 1000)
    for declared in (False, True)
]
FEW_TERMS = [Terms(*APPROXIMATE, 1000, declared=False), Terms(*PURE, 50, declared=True)]


def required(procedure: Procedure, world: World) -> list[dict[str, Any]]:
    """Return what a study in this world says at least: each value of a parameter without a default."""
    fields = procedure.Parameters.model_fields
    found = [{name: value for name, value in world.parameters.items() if takes(fields.get(name), value)}]
    needed = {one.name: one for one in procedure.needs(world.domain.columns)}
    for name, own in fields.items():
        if own.is_required():
            values = listed(own.annotation) or [needed[name].read(needed[name].default)]
            found = [chosen | {name: value} for value in values for chosen in found]
    return found


def takes(own: FieldInfo | None, value: Any) -> bool:
    """Say whether there is such a parameter, and it takes the value where it is chosen from a list."""
    return own is not None and (not listed(own.annotation) or value in listed(own.annotation))


def listed(annotation: Any) -> list[Any]:
    """Return the values of a parameter that is chosen from a list, or says yes or no; of others none."""
    if annotation is bool:
        return [False, True]
    if typing.get_origin(annotation) is Literal:
        return list(typing.get_args(annotation))
    return [value for part in typing.get_args(annotation) for value in listed(part)]


def variants(procedure: Procedure, world: World) -> Iterator[dict[str, Any]]:
    """Yield parameters: those required, and beside the first of them each listed value that is no default."""
    first, *others = required(procedure, world)
    yield first
    yield from others
    for name, own in procedure.Parameters.model_fields.items():
        for value in [] if own.is_required() else listed(own.annotation):
            if value != own.default:
                yield first | {name: value} | BESIDE.get(value, {})


@dataclass(frozen=True)
class Point:
    """A study of the grid, and where it stands there."""

    row: str
    place: str
    case: Case
    declared: bool
    plain: str
    """Where the study with the defaults stands in the row."""
    stored: bool
    """Whether it is a stored study's."""


def points() -> Iterator[Point]:
    """Yield every study of the grid."""
    for name, case in CASES.items():
        own = Terms(case.epsilon, case.delta, case.units, declared=False)
        for terms in (own, *FEW_TERMS):
            yield point(f"{case.procedure}, stored", name.removeprefix(f"{case.procedure}-"), case, terms)
    for name, procedure in PROCEDURES.items():
        for where, world in WORLDS.items():
            if ("curator" if world.curated else "agents") not in procedure.held_by:
                continue
            plain = ""
            for place, chosen in enumerate(variants(procedure, world)):
                case = Case(name, chosen, world.owners, world.columns, world.curated)
                told = {key: value for key, value in chosen.items() if world.parameters.get(key) != value}
                words = ", ".join(f"{key}={value}" for key, value in told.items())
                plain = words if place == 0 else plain
                for terms in FEW_TERMS if place else ALL_TERMS:
                    yield point(f"{name}, {where}", words, case, terms, plain)


def point(row: str, words: str, case: Case, terms: Terms, plain: str | None = None) -> Point:
    """Return the point of a case under other terms."""
    asked = replace(case, epsilon=terms.epsilon, delta=terms.delta, units=terms.units)
    beside = words if plain is None else plain
    return Point(row, f"{words}; {terms}", asked, terms.declared, f"{beside}; {terms}", plain is None)


# What is noted of a study.


@dataclass
class Noting:
    """Adds nothing, and notes how much noise it is asked for, of how many numbers, and for what."""

    asked: list[list[Any]]

    def gaussian(self, values: Integers, scale: float) -> Integers:
        self.asked.append(["gaussian", len(values), scale])
        return values.copy()

    def laplace(self, values: Integers, scale: float) -> Integers:
        self.asked.append(["laplace", len(values), scale])
        return values.copy()

    def k_norm(self, values: Integers, scale: float, body: Body) -> Integers:
        self.asked.append(["k-norm", list(body.sizes), scale])
        return values.copy()

    def choose(self, scores: Integers, scale: float) -> int:
        self.asked.append(["choice", len(scores), scale])
        return int(np.argmax(scores))

    def uniform(self, count: int) -> npt.NDArray[np.uint64]:
        return np.random.default_rng(0).integers(0, 2**64, count, dtype=np.uint64)


def gaussian_parts(parts: tuple[SumPart, ...], *_: Any) -> list[Any]:
    """Return the layout of a joint Gaussian release."""
    return [
        [part.name, len(part.sums), -part.exponent, {"l2": part.sensitivity, "share": part.share}]
        for part in parts
    ]


def laplace_part(part: SumPart, *_: Any) -> list[Any]:
    """Return the layout of sums with Laplace noise."""
    return [[part.name, len(part.sums), -part.exponent, {"l1": l1_sensitivity(part)}]]


def k_norm_part(part: SumPart, body: k_norm_mechanism.ProductBody, *_: Any) -> list[Any]:
    """Return the layout of sums with K-norm noise; D is in grid steps."""
    return [[part.name, len(part.sums), -part.exponent, {"D": body.sensitivity(-part.exponent)}]]


def statistic(own: LaplaceStatistic, *_: Any) -> list[Any]:
    """Return the layout of one statistic."""
    return [["statistic", 1, own.bits, {"l1": own.sensitivity, "largest": own.largest}]]


def choice(own: ExponentialChoice, losses: npt.NDArray[np.float64]) -> list[Any]:
    """Return what a choice is made of."""
    return [["choice", len(losses), {"loss": own.sensitivity, "largest": own.largest}]]


def comparison(
    statistics: npt.NDArray[np.float64],
    sensitivity: float,
    *_: Any,
    permuted_sensitivity: float | None = None,
) -> list[Any]:
    """Return what a decision by permutations is made of."""
    return [["comparison", len(statistics), {"observed": sensitivity, "permuted": permuted_sensitivity}]]


MECHANISMS: tuple[tuple[Any, str, Callable[..., list[Any]]], ...] = (
    (gaussian_mechanism, "release_sums", gaussian_parts),
    (laplace_mechanism, "release_laplace_sums", laplace_part),
    (k_norm_mechanism, "release_k_norm", k_norm_part),
    (permutation_test, "prepare_comparison", comparison),
    (LaplaceStatistic, "release", statistic),
    (ExponentialChoice, "scores", choice),
)
"""What adds noise to exact numbers, and what is noted of its arguments."""


@contextmanager
def layouts_noted() -> Iterator[list[Any]]:
    """Note in a list what every mechanism is handed, wherever it was imported to."""
    noted: list[Any] = []

    def watched(mechanism: Callable[..., Any], layout: Callable[..., list[Any]]) -> Callable[..., Any]:
        @wraps(mechanism)
        def noting(*given: Any, **options: Any) -> Any:
            noted.extend(layout(*given, **options))
            return mechanism(*given, **options)

        return noting

    modules = [module for name, module in sys.modules.items() if name.startswith("tacit_protocol.")]
    with pytest.MonkeyPatch.context() as patch:
        for owner, name, layout in MECHANISMS:
            mechanism = getattr(owner, name)
            noting = watched(mechanism, layout)
            for place in (owner, *modules):
                if vars(place).get(name) is mechanism:
                    patch.setattr(place, name, noting)
        yield noted


def study_of(case: Case) -> Study:
    """Return a case's study, without what follows from it."""
    return local_study(
        case.procedure,
        domain_of({name: BOUNDS[name] for name in case.columns}, list(case.columns)),
        list(case.owners),
        case.parameters,
        epsilon=case.epsilon,
        delta=case.delta,
        alpha=case.level,
        seed="0" * 32,
        curated=case.curated,
        columns=[held or None for held in case.owners.values()],
    )


def noted(asked: Point, noting: list[Any]) -> dict[str, Any]:
    """Return what the grid holds of a study; ``noting`` is where layouts are noted."""
    case, procedure, found = asked.case, PROCEDURES[asked.case.procedure], dict[str, Any]()
    study = study_of(case)
    units = dict.fromkeys(case.owners, case.units)
    if asked.declared:
        study = declaring(study, list(units.values()))
    try:
        found["defaults"] = dict(procedure.defaults(study, units if asked.declared else None))
        study = procedure.with_defaults(study, units if asked.declared else None)
        check_study(procedure, study)
        spent = {party.name: cost_for(procedure, study, party.name) for party in study.senders}
        found["cost"] = together({name: cost_of(guarantee) for name, guarantee in spent.items()})
        found["numbers"] = procedure.release_size(study)
        require_units(procedure, study, units)
        found["sent"] = together(sent(case, procedure, study, noting))
    except (StudyError, StudyRefusedError) as refusal:
        found["refused"] = str(refusal)
    return dict(json.loads(json.dumps(found, default=str)))


def sent(case: Case, procedure: Procedure, study: Study, noting: list[Any]) -> dict[str, Any]:
    """Play the part of everyone who releases something, and return what each one's release is made of."""
    tables = []
    for place, owner in enumerate(study.owners):
        rows, own = rows_of(case, place), study.domain_of(owner)
        tables.append(ArrayTable.of(Sample({c.name: rows[c.name] for c in own.columns}), own))
    held, relay = held_by_senders(study, tables), relay_of(procedure, study)
    releases, found = dict[str, Release](), dict[str, Any]()

    def release(name: str, summary: Any) -> None:
        del noting[:]
        asked: list[list[Any]] = []
        releases[name] = procedure.privatise(study, summary, Noting(asked))
        found[name] = made_of(releases[name], list(noting), asked)

    for name, table in held.items():
        if relay is None or relay.is_sender(name):
            release(name, procedure.summarise(study, table))
    if relay is not None and relay.publishes:
        own = relay.receiver.name
        release(own, combined(procedure, study, releases, held[own]).summary)
    return found


def made_of(release: Release, layout: list[Any], asked: list[list[Any]]) -> dict[str, Any]:
    """Return the shape of a release, the layout of its parts and the noise drawn for them; no value."""
    drawn = Counter(json.dumps(call) for call in asked)
    shape = {
        "vectors": {
            name: [vector.noise, len(vector.values), vector.exponent, vector.scale]
            for name, vector in release.vectors.items()
        },
        "answers": {name: [own.codes, own.retention, own.units] for name, own in release.answers.items()},
        "cuts": {name: len(places) for name, places in release.cuts.items()},
        "decides": release.decision is not None,
        "chooses": release.choice is not None,
        "cost": cost_of(release.guarantee),
        "layout": layout,
        "noise": [[count, *json.loads(call)] for call, count in drawn.items()],
    }
    return {name: part for name, part in shape.items() if part}


def cost_of(guarantee: Guarantee) -> list[Any]:
    """Return a guarantee's budget and its events."""
    budget = guarantee.budget
    events = [list(event.model_dump(mode="json").values()) for event in guarantee.events]
    return [budget.epsilon_micro, budget.delta_pico, *events]


def together(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return what holds of each sender, once where it is the same for all."""
    values = list(found.values())
    return {"all": values[0]} if all(value == values[0] for value in values) else dict(found)


# The file: every distinct part once, and of each study the numbers of its parts.


def grid(asked: Iterable[Point]) -> dict[str, dict[str, dict[str, Any]]]:
    """Return what is noted of every study asked for, by row and place."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    with warnings.catch_warnings(), layouts_noted() as noting:
        warnings.simplefilter("ignore")
        for one in asked:
            row, own = found.setdefault(one.row, {}), noted(one, noting)
            refused = own.get("refused")
            if refused is None or one.place == one.plain or refused != row[one.plain].get("refused"):
                row[one.place] = own
    return found


def read_grid() -> dict[str, dict[str, dict[str, Any]]]:
    """Return the grid as it is kept."""
    kept = json.loads(GRID.read_text())
    parts = kept["parts"]
    return {
        row: {place: {name: parts[at] for name, at in own.items()} for place, own in places.items()}
        for row, places in kept["studies"].items()
    }


def write_grid(found: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> None:
    """Keep a grid: a line for each part and each row."""
    parts: dict[str, int] = {}
    rows = []
    for row, places in found.items():
        own = {
            place: {
                name: parts.setdefault(json.dumps(part, separators=(",", ":")), len(parts))
                for name, part in study.items()
            }
            for place, study in places.items()
        }
        rows.append(f"{json.dumps(row)}:{json.dumps(own, separators=(',', ':'))}")
    listed_parts, listed_rows = ",\n".join(parts), ",\n".join(rows)
    GRID.write_text(f'{{"parts":[\n{listed_parts}\n],\n"studies":{{\n{listed_rows}\n}}}}\n')


if __name__ == "__main__":
    write_grid(grid(points()))
