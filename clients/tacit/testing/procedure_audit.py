"""The audit of a procedure whose owners each send one release of sums: sensitivity, noise and level."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.stats import binom

from tacit.errors import InputError
from tacit.in_process.runner import CountedTable, declaring, local_study, seed_text
from tacit.in_process.samples import ArrayTable, Sample, domain_of
from tacit.testing.neighbour_search import Effort, EncodedRows, Objective, Space, largest_change
from tacit.testing.noise_law import DRAWS_MIN, wrong_in
from tacit_protocol.domain import Domain, EncodedChunk
from tacit_protocol.messages.study import Release, Study
from tacit_protocol.privacy.gaussian_mechanism import SCALE_TOLERANCE
from tacit_protocol.privacy.guarantee import GaussianEvent, LaplaceEvent
from tacit_protocol.privacy.noise import NoiseSource, OpenDPNoise
from tacit_protocol.procedures.base import Procedure, check_release, check_study, planned
from tacit_protocol.procedures.plan import Plan
from tacit_protocol.procedures.populations import SoughtEffect

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

FALSE_ALARM = 1e-6
"""Probability with which a procedure that keeps its level is said not to."""

SEARCHED = Effort(candidates=150, climbs=6, sweeps=3)
"""How hard neighbours are searched for: some seconds for ten columns."""

BASE = 7
"""Units beside the one that is replaced: few, so that rounding to the finest grid is searched too."""

MOVEMENT: Mapping[str, Objective] = {"gaussian": "movement", "laplace": "absolute movement"}
"""In which norm noise of a kind hides a movement."""


@dataclass(frozen=True)
class Audit:
    """What an audit found.

    Attributes:
        moved: by kind of noise, the largest movement found of a release whose unit is replaced, as a part of
            what its noise is made for; above 1 the promise is broken, far below 1 power is given away.
        rejected: by kind of noise, the share of studies without effect that were significant at ``level``.
        level: the level of those studies.
        problems: what is wrong, in sentences; empty where nothing was found.
    """

    moved: Mapping[str, float]
    rejected: Mapping[str, float]
    level: float
    problems: tuple[str, ...]


@dataclass(frozen=True)
class _EncodedTable:
    """Encoded rows as a table: every row is a unit."""

    domain: Domain
    rows: EncodedRows

    @property
    def units(self) -> int:
        return len(self.rows)

    def chunks(self) -> Any:
        yield EncodedChunk(self.rows.numeric, self.rows.categorical, None, len(self.rows))


class _Exact:
    """Adds no noise: what is left of a release is what the noise has to hide."""

    def gaussian(self, values: Integers, scale: float) -> Integers:  # noqa: ARG002
        return values.copy()

    def laplace(self, values: Integers, scale: float) -> Integers:  # noqa: ARG002
        return values.copy()

    def k_norm(self, *_: Any) -> Integers:
        raise InputError("an audit is of Gaussian and of Laplace noise; this is k-norm noise")


def audit(
    procedure: Procedure,
    columns: Any,
    *,
    parameters: Mapping[str, Any] | None = None,
    epsilon: float = 1.0,
    units: int = 200,
    runs: int = 1000,
    level: float = 0.05,
    seed: int = 0,
) -> Audit:
    """Attack a procedure whose owners each send one release of noisy sums.

    With Gaussian noise (delta 1e-5) and with Laplace noise (delta 0), whichever of them ``families`` names.

    Args:
        procedure: the procedure.
        columns: its columns: by name (lower, upper), or a list of levels, as for every local function.
        parameters: its parameters; those left out have their defaults.
        epsilon: what every owner of a simulated study spends.
        units: units of each of the two owners of a simulated study.
        runs: simulated studies without effect; 1000 tell a level of .05 from one of .075.
        level: their level.
        seed: fixes the search and the simulated rows; noise is real and has none.

    Returns:
        What was found; ``problems`` is empty where nothing is wrong.

    Raises:
        InputError: the procedure is not one whose owners each send one release of sums.
        StudyError: it does not take such a study.
    """
    domain = domain_of(columns, list(columns))
    deltas = {"gaussian": 1e-5, "pure": 0.0}
    moved: dict[str, float] = {}
    rejected: dict[str, float] = {}
    problems: list[str] = []
    for family in sorted(procedure.families & set(deltas)):
        study = local_study(
            procedure.name,
            domain,
            ["one", "two"],
            parameters or {},
            epsilon=epsilon,
            delta=deltas[family],
            alpha=level,
            seed=seed_text(seed),
        )
        study = procedure.with_defaults(declaring(study, [units, units]))
        check_study(procedure, study)
        plan = planned(procedure, study)
        if plan.relay is not None or plan.masking is not None or plan.candidates or procedure.decides:
            raise InputError("an audit is of procedures whose owners each send one release of noisy sums")
        rng = np.random.default_rng(seed)
        name = _kind(plan)
        moved[name] = _moved(plan, domain, seed)
        if moved[name] > 1:
            problems.append(
                f"{name} noise: replacing one unit moves a release by {moved[name]:.4g} times what its noise "
                "is made for; state a larger sensitivity, or contribute less"
            )
        problems += [f"{name} noise has not the law that releases state: {what}" for what in _laws(plan, rng)]
        rejected[name], found = _level(procedure, study, units, runs, rng)
        if found:
            problems.append(
                f"{name} noise: {rejected[name]:.3g} of {runs} studies without effect were significant at "
                f"level {level:g}"
            )
    if not moved:
        raise InputError("the procedure names neither Gaussian noise nor pure epsilon among its families")
    return Audit(moved, rejected, level, tuple(problems))


def _kind(plan: Plan) -> str:
    """Return the kind of noise of a release. Raises InputError where an audit knows nothing of it."""
    first = plan.guarantee.events[0]
    if isinstance(first, GaussianEvent):
        return "gaussian"
    if isinstance(first, LaplaceEvent):
        return "laplace"
    raise InputError("an audit is of Gaussian and of Laplace noise, and this procedure has another")


def _categories(domain: Domain) -> tuple[int, ...]:
    """Return how many codes each categorical column has: its levels, other values and missing ones."""
    return tuple(len(column.levels) + 2 for column in domain.categorical)


def _moved(plan: Plan, domain: Domain, seed: int) -> float:
    """Return the largest movement found, in parts of what the guarantee's noise is made for."""
    space = Space(len(domain.numeric), _categories(domain))
    base = space.random(np.random.default_rng(seed), BASE)
    exact: Any = _Exact()

    def released(rows: EncodedRows) -> Floats:
        """Return what the base with each of the rows releases, in stated scales, (rows, numbers)."""
        return np.stack(
            [scaled(_table(domain, base, rows.take(slice(at, at + 1)))) for at in range(len(rows))]
        )

    def scaled(table: _EncodedTable) -> Floats:
        release = plan.privatise(plan.summarise(table), exact)
        return np.concatenate(
            [
                np.ldexp(np.array(v.values, dtype=np.float64), v.exponent) / v.scale
                for v in release.vectors.values()
            ]
        )

    kind, events = _kind(plan), plan.guarantee.events
    if kind == "gaussian":
        allowed = math.sqrt(sum(e.noise_multiplier**-2 for e in events if isinstance(e, GaussianEvent)))
    else:
        allowed = sum(1 / e.noise_multiplier for e in events if isinstance(e, LaplaceEvent))
    found = largest_change(released, space, MOVEMENT[kind], seed=seed, effort=SEARCHED)
    return found.value / allowed


def _table(domain: Domain, base: EncodedRows, own: EncodedRows) -> _EncodedTable:
    numeric = np.concatenate([base.numeric, own.numeric])
    return _EncodedTable(domain, EncodedRows(numeric, np.concatenate([base.categorical, own.categorical])))


class _Recorded:
    """Draws noise, and keeps of every call its kind, its scale in steps, and what was drawn."""

    def __init__(self, noise: NoiseSource) -> None:
        self.noise = noise
        self.calls: list[tuple[str, float, Integers]] = []

    def gaussian(self, values: Integers, scale: float) -> Integers:
        self.calls.append(("gaussian", scale, drawn := self.noise.gaussian(values, scale)))
        return drawn

    def laplace(self, values: Integers, scale: float) -> Integers:
        self.calls.append(("laplace", scale, drawn := self.noise.laplace(values, scale)))
        return drawn


def _laws(plan: Plan, rng: np.random.Generator) -> list[str]:
    """Say in what the noise of a release differs from what the release states.

    What is released must be what the source drew, at the scale that is stated; and the source's draws at that
    scale must have their law.
    """
    domain = plan.study.domain
    rows = Space(len(domain.numeric), _categories(domain)).random(rng, BASE)
    recorded: Any = _Recorded(OpenDPNoise())
    vectors = list(plan.privatise(plan.summarise(_EncodedTable(domain, rows)), recorded).vectors.values())
    stated = [(v.noise, math.ldexp(v.scale, -v.exponent), list(v.values)) for v in vectors]
    if len(stated) != len(recorded.calls):
        return ["there are other draws than numbers"]
    wrong = []
    for (kind, scale, values), (drawn_kind, drawn_scale, drawn) in zip(stated, recorded.calls, strict=True):
        if kind != drawn_kind or abs(drawn_scale / scale - 1) > SCALE_TOLERANCE:
            wrong.append("another kind or scale is stated than was drawn")
        elif values != drawn.tolist():
            wrong.append("other numbers are released than were drawn")
        else:
            zeros = np.zeros(DRAWS_MIN[kind], dtype=np.int64)
            wrong += wrong_in(kind, getattr(recorded.noise, kind)(zeros, drawn_scale) / scale)
    return wrong


def _level(
    procedure: Procedure, study: Study, units: int, runs: int, rng: np.random.Generator
) -> tuple[float, bool]:
    """Return the share of studies without effect that were significant, and whether it is too large."""
    if procedure.population is None:
        return math.nan, False
    plan, noise = planned(procedure, study), OpenDPNoise()
    effect = SoughtEffect(size=0.0 if "size" in procedure.population.taken else None)
    model, significant = procedure.population(study, effect, None), 0
    for _ in range(runs):
        held: Any = model.draw([units, units], rng)
        releases = {
            owner.name: _released(procedure, study, plan, rows, noise)
            for owner, rows in zip(study.owners, held, strict=True)
        }
        verdict: Any = plan.conclude(releases, {name: own.units for name, own in releases.items()})
        significant += bool(verdict.reject)
    return significant / runs, bool(binom.sf(significant - 1, runs, study.level) < FALSE_ALARM)


def _released(procedure: Procedure, study: Study, plan: Plan, rows: Any, noise: NoiseSource) -> Release:
    table: Any = (
        CountedTable(study.domain, rows, np.arange(len(rows)))
        if isinstance(rows, np.ndarray)
        else ArrayTable.of(Sample(dict(rows)), study.domain)
    )
    release = plan.privatise(plan.summarise(table), noise)
    check_release(procedure, study, release)
    return release
