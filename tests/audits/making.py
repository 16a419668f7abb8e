"""The fuzz of making: whatever a table holds, a study that its check takes has a release.

Cases are drawn by number from studies of every procedure, form and kind of noise: their budgets and
parameters go to their ends, and their tables are random, or degenerate in every column.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt
from compatibility_cases import FIXTURES
from made_studies import MemoryTable
from operations import operations

from tacit.in_process.runner import in_masks
from tacit_protocol.domain import Domain, PooledTable, Table
from tacit_protocol.messages.encoding import decode, encode
from tacit_protocol.messages.study import Release, Study
from tacit_protocol.privacy.guarantee import Budget
from tacit_protocol.privacy.noise import Body, NoiseSource
from tacit_protocol.procedures.base import (
    Procedure,
    StudyError,
    canonical,
    check_study,
    masking_of,
    planned,
    require_units,
)
from tacit_protocol.procedures.discovery import PROCEDURES, procedure_named
from tacit_protocol.procedures.relay import check_own_release, combined, cost_for, relay_of
from tacit_protocol.verification import verify_transcript

Integers = npt.NDArray[np.int64]

EPSILONS = ("0.000001", "0.000002", "0.00001", "0.001", "0.1", "1", "10", "100")
DELTAS = ("0", "0.000000000001", "0.000000001", "0.00001", "0.01", "0.999999999999")
LEVELS = (0.05, 0.01, 0.3)
UNITS = (1, 2, 3, 4, 5, 7, 10, 19, 20, 40, 60, 61, 100, 200)
"""Numbers of units, down to one."""

WORK_MAX = 500
"""Largest whole number that a parameter is set to: few simulations say here as much as many."""

FREE = 10.0**300
"""What a number without a bound is set to, or its inverse: there should be none that noise follows from."""


@dataclass(frozen=True)
class MadeCase:
    """A study with the number of units and the tables of each sender, as one number draws them."""

    form: str
    study: Study
    units: int
    tables: Mapping[str, Table]

    def __str__(self) -> str:
        budget = self.study.budget
        return (
            f"{self.form}: {self.units} units, epsilon {budget.epsilon:g}, delta {budget.delta:g}, level "
            f"{self.study.level:g}, {dict(self.study.parameters)}"
        )


@cache
def forms() -> tuple[str, ...]:
    """Every form of the compatibility fixtures that ended in releases, none of them read again."""
    names = sorted(path.stem for path in FIXTURES.glob("*.json"))
    return tuple(name for name in names if (study := asked(name)) is not None and not study.reusing)


@cache
def asked(form: str) -> Study | None:
    """Return a form's study, without what it says of numbers of units; None where it was declined."""
    transcript = json.dumps(json.loads((FIXTURES / f"{form}.json").read_text())["transcript"])
    verified = verify_transcript(transcript.encode())
    if verified.result is None:
        return None
    study = verified.study
    owners = tuple(owner.model_copy(update={"units": None}) for owner in study.owners)
    return study.model_copy(update={"owners": owners})


def case_of(number: int) -> MadeCase:
    """Draw the case of that number: forms in turn, so that every one has as many."""
    rng = np.random.default_rng([38, number])
    form = forms()[number % len(forms())]
    study = asked(form)
    assert study is not None
    procedure = procedure_named(study.procedure)
    changed: dict[str, Any] = {}
    if rng.random() < 0.75:
        kept = study.budget.delta_pico if rng.random() < 0.5 else None
        delta = rng.choice(DELTAS) if kept is None else kept / 10**12
        changed["budget"] = Budget.of(str(rng.choice(EPSILONS)), delta)
    if rng.random() < 0.2:
        changed["level"] = float(rng.choice(LEVELS))
    changed["parameters"] = dict(study.parameters) | _extremes(procedure, study, rng)
    units = int(rng.choice(UNITS))
    return MadeCase(form, study.model_copy(update=changed), units, tables_of(study, units, rng))


def _extremes(procedure: Procedure, study: Study, rng: np.random.Generator) -> dict[str, Any]:
    fields = dict(procedure.Parameters.model_json_schema()["properties"])
    names = [name for name in fields if _ends(fields[name])]
    found = {}
    for name in rng.choice(names, min(len(names), int(rng.integers(0, 3))), replace=False):
        ends = _ends(fields[name])
        found[str(name)] = ends[int(rng.integers(len(ends)))]
    return found


def _ends(field: Mapping[str, Any]) -> list[Any]:
    """Return the values at the ends of a parameter's range; none where it is no single number or word."""
    found: list[Any] = []
    for part in field.get("anyOf", [field]):
        kind = part.get("type")
        if "enum" in part:
            found += part["enum"]
        elif kind == "boolean":
            found += [False, True]
        elif kind == "integer":
            low, high = part.get("minimum", 1), part.get("maximum", WORK_MAX)
            found += [int(low), int(low) + 1, int(min(high, WORK_MAX))]
        elif kind == "number":
            below, above = part.get("exclusiveMinimum"), part.get("exclusiveMaximum")
            low = part.get("minimum", 1 / FREE if below is None else float(np.nextafter(below, np.inf)))
            high = part.get("maximum", FREE if above is None else float(np.nextafter(above, -np.inf)))
            found += [float(low), float(high), float(np.sqrt(low * high)) if low > 0 else high / 2]
    return found


NUMBERS = ("0", "1", "middle", "ends", "one apart", "close", "tiny", "uniform")
CATEGORIES = ("first", "last", "other", "missing", "one apart", "listed", "all")


def tables_of(
    study: Study, units: int, rng: np.random.Generator, kind: str | None = None
) -> dict[str, Table]:
    """Draw each owner's table; ``kind`` is "uniform" or "degenerate", or by default any column as may be."""
    alike = rng.random() < 0.3
    shared = int(rng.integers(2**31))
    found = {}
    for owner in study.owners:
        own = np.random.default_rng(shared) if alike else rng
        found[owner.name] = table_of(study.domain_of(owner), units, own, kind)
    return found


def table_of(domain: Domain, units: int, rng: np.random.Generator, kind: str | None = None) -> MemoryTable:
    """Draw a table of units of one row."""
    degenerate = {"uniform": False, "degenerate": True, None: None}[kind]
    one = rng.random() < 0.5 if degenerate is None else degenerate
    numbers = str(rng.choice(NUMBERS[:3] if degenerate else NUMBERS))
    categories = str(rng.choice(CATEGORIES[:4] if degenerate else CATEGORIES))
    numeric = np.empty((units, len(domain.numeric)))
    categorical = np.empty((units, len(domain.categorical)), dtype=np.int32)
    for place in range(numeric.shape[1]):
        drawn = numbers if one else str(rng.choice(NUMBERS))
        numeric[:, place] = _numbers("uniform" if degenerate is False else drawn, units, rng)
    for place, column in enumerate(domain.categorical):
        drawn = categories if one else str(rng.choice(CATEGORIES))
        drawn = "all" if degenerate is False else drawn
        categorical[:, place] = _codes(drawn, len(column.levels), units, rng)
    return MemoryTable(domain, numeric, categorical)


def _numbers(kind: str, units: int, rng: np.random.Generator) -> npt.NDArray[np.float64]:
    if kind in ("0", "1", "middle"):
        return np.full(units, {"0": 0.0, "1": 1.0, "middle": 0.5}[kind])
    if kind == "ends":
        return rng.integers(0, 2, units).astype(np.float64)
    if kind == "one apart":
        return np.where(np.arange(units) == units // 2, 1.0, 0.0)
    if kind == "close":
        return 0.5 + rng.integers(0, 3, units) * 2.0**-53
    if kind == "tiny":
        return rng.integers(0, 3, units) * 5e-324
    return rng.random(units)


def _codes(kind: str, levels: int, units: int, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    constant = {"first": 0, "last": levels - 1, "other": levels, "missing": levels + 1}
    if kind in constant:
        return np.full(units, constant[kind])
    if kind == "one apart":
        return np.where(np.arange(units) == units // 2, levels - 1, 0)
    return rng.integers(0, levels if kind == "listed" else levels + 2, units)


def refusal(case: MadeCase) -> str | None:
    """Return why a case's study is refused, from public numbers alone; None where it is taken.

    Anything but a StudyError goes up: a check that fails otherwise says nothing clear.
    """
    procedure = procedure_named(case.study.procedure)
    try:
        require_taken(procedure, case.study, case.units)
    except StudyError as error:
        return str(error)
    return None


def require_taken(procedure: Procedure, study: Study, units: int) -> None:
    """Check a study as its parties do, and its numbers of units as an agent does before it sums."""
    check_study(procedure, canonical(procedure, study))
    require_units(procedure, study, dict.fromkeys((owner.name for owner in study.owners), units))
    for owner in study.owners:
        cost_for(procedure, study, owner.name)


def made(case: MadeCase, noise: NoiseSource) -> dict[str, Release]:
    """Make every release of a case, as its senders do, check it as they do, and read it again."""
    procedure, study = procedure_named(case.study.procedure), case.study
    relay = relay_of(procedure, study)
    held = dict(case.tables)
    if study.curator is not None:
        held = {study.curator.name: PooledTable(study.domain, held)}
    found: dict[str, Release] = {}
    senders = list(held) if relay is None else [owner.name for owner in relay.senders]
    for name in senders:
        plan = planned(procedure, study)
        summary = plan.adapt(plan.summarise(held[name]), noise)
        found[name] = procedure.privatise(study, summary, noise)
    if relay is not None:
        answer = combined(procedure, study, dict(found), held[relay.receiver.name])
        if relay.publishes:
            found[relay.receiver.name] = procedure.privatise(study, answer.summary, noise)
    if masking_of(procedure, study) is not None:
        found = in_masks(procedure, study, found)
    for name, release in found.items():
        check_own_release(procedure, study, name, decode(Release, encode(release)))
    return found


@dataclass(frozen=True)
class Tried:
    """What became of many cases: how many of each procedure were made or refused, and which failed."""

    made: Mapping[str, int]
    refused: Mapping[str, int]
    failed: Sequence[str]


def tried(numbers: Sequence[int], noise: NoiseSource) -> Tried:
    """Try the cases of these numbers."""
    count_made, refused, failed = (dict.fromkeys(PROCEDURES, 0), dict.fromkeys(PROCEDURES, 0), [])
    for number in numbers:
        case = case_of(number)
        try:
            if refusal(case) is not None:
                refused[case.study.procedure] += 1
                continue
            made(case, noise)
        except Exception as error:
            failed.append(f"case {number}, {case}: {type(error).__name__}: {error}")
            continue
        count_made[case.study.procedure] += 1
    return Tried(count_made, refused, failed)


class BlindNoise:
    """What a release would be made of if noise hid all of a table: nothing that follows it depends on rows.

    What does follow them is so what happened before.
    """

    def gaussian(self, values: Integers, scale: float) -> Integers:
        return np.random.default_rng(len(values)).integers(0, 2**20, len(values))

    laplace = gaussian

    def k_norm(self, values: Integers, scale: float, body: Body) -> Integers:
        return self.gaussian(values, scale)

    def choose(self, scores: Integers, scale: float) -> int:
        return 0

    def uniform(self, count: int) -> npt.NDArray[np.uint64]:
        return np.random.default_rng(count).integers(0, 2**64, count, dtype=np.uint64)


def calls(case: MadeCase, tables: Mapping[str, Table]) -> Counter[str]:
    """Count the functions that are called while a case's releases are made of some tables, by their names.

    Checks are left out. Orders that are drawn in secret are the same every time.
    """
    found: Counter[str] = Counter()
    for release in _steps(case, tables):
        for (name, what), count in operations(release).items():
            if what == "calls":
                found[name] += count
    return found


def _steps(case: MadeCase, tables: Mapping[str, Table]) -> Iterator[Callable[[], None]]:
    """Yield each sender's part: what it does with its rows, until its release is there."""
    procedure, study = procedure_named(case.study.procedure), case.study
    relay, noise = relay_of(procedure, study), BlindNoise()
    held = dict(tables)
    if study.curator is not None:
        held = {study.curator.name: PooledTable(study.domain, held)}
    plan = planned(procedure, study)

    def answer(name: str) -> None:
        summary = plan.adapt(plan.summarise(held[name], np.random.default_rng(1)), noise)
        procedure.privatise(study, summary, noise)

    if relay is None:
        for name in held:
            yield partial(answer, name)
        return
    # The second round is of the receiver's rows, beside the same releases whatever these are.
    sent = {}
    for owner in relay.senders:
        yield partial(answer, owner.name)
        sent[owner.name] = procedure.privatise(
            study, procedure.summarise(study, case.tables[owner.name]), noise
        )

    def receive() -> None:
        summary = combined(procedure, study, sent, held[relay.receiver.name]).summary
        if relay.publishes:
            procedure.privatise(study, summary, noise)

    yield receive
