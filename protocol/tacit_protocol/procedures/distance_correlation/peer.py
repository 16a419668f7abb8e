"""Distance correlation in peer mode: one owner's noisy projections against the other's raw ones.

What the receiver finds is private for the sender alone and stays with the receiver. P4's advice to publish it
once the receiver's own distance variance is private is wrong: the covariance itself depends on the receiver's
raw rows. What may be published is the covariance with noise for the receiver's units, which move it by no
more than the sender's projections, held fixed, say. Its integers are exact, and nothing rounds but the
sensitivity, upward; O(n^2) time and O(n) memory. Derivations: docs/mathematics/distance-correlation.md.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import Annotated, ClassVar

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from tacit_protocol.domain import Table
from tacit_protocol.features.aligned_sums import PROJECTIONS, ProjectedUnits
from tacit_protocol.messages.study import Release, Study
from tacit_protocol.numerics.distance_covariance import UNITS_MIN, projection_constant
from tacit_protocol.privacy.exact_sums import GRID_BITS_MAX, rounding_sensitivity
from tacit_protocol.privacy.gaussian_mechanism import (
    SensitivityError,
    SumPart,
    check_layout,
    release_sums,
    require_drawable,
)
from tacit_protocol.privacy.noise import SCALE_MAX, NoiseSource
from tacit_protocol.procedures.base import (
    Fields,
    Progress,
    ReleaseError,
    Releases,
    StudyError,
    common_fields,
    row_warnings,
    step,
)
from tacit_protocol.procedures.distance_correlation.release import ProjectionPlan
from tacit_protocol.procedures.distance_covariance.statistic import NoisyProjections
from tacit_protocol.procedures.distance_covariance.sums import OwnSide
from tacit_protocol.procedures.plan import Combined, Relay
from tacit_protocol.verdicts.base import COVARIANCE_ESTIMATE, BaseVerdict, Interval, ShownTable, interval_of
from tacit_protocol.verdicts.presentation import Meaning, Shown

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

SPAN_BITS = 16
"""Distances of the fixed side have so many bits: with 2**21 steps of the other side and 2**25 units, a sum
over one unit's pairs stays below 2**62."""

CHUNK = 2**20
"""Pairs looked at together: 8 MB."""

ROUNDING = 2.0**-40
"""Relative slack for sums of at most 2**25 floats, each within a few 2**-53 of its exact value."""


def coarse(values: Integers) -> tuple[Integers, int]:
    """Shift values so that they span at most 2**SPAN_BITS steps; returns them, from 0 on, and the shift."""
    offsets = values - values.min()
    shift = max(0, int(offsets.max()).bit_length() - SPAN_BITS)
    half = (1 << shift) >> 1
    return (offsets + half) >> shift, shift


def exact_covariance(fixed: Integers, own: Integers) -> Fraction:
    """Return the unbiased squared distance covariance of two integer columns, (n,), n >= 4, exactly.

    Raises ValueError where the columns differ in length, are too short, or span too much for 64 bits.
    """
    n = len(fixed)
    if n != len(own) or n < UNITS_MIN:
        raise ValueError("the columns must have the same number of units, 4 or more")
    if n * int(np.ptp(fixed)) * int(np.ptp(own)) >= 2**62:
        raise ValueError("the columns span too much")
    products = crossed = 0
    totals = [0, 0]
    for start in range(0, n, max(1, CHUNK // n)):
        part = slice(start, start + max(1, CHUNK // n))
        a = np.abs(fixed[part, None] - fixed)
        b = np.abs(own[part, None] - own)
        rows, others = (sides.sum(axis=1).tolist() for sides in (a, b))
        products += sum(np.einsum("ij,ij->i", a, b).tolist())
        crossed += sum(x * y for x, y in zip(rows, others, strict=True))
        totals = [totals[0] + sum(rows), totals[1] + sum(others)]
    inner = Fraction(products) - Fraction(2 * crossed, n - 2)
    inner += Fraction(totals[0] * totals[1], (n - 1) * (n - 2))
    return inner / (n * (n - 3))


def influences(fixed: Integers) -> Floats:
    """Bound, for every unit, how far a unit's move by one step on the other side moves the covariance, (n,).

    2/(n (n - 3)) times the sum of the absolute values of the unit's row of U-centred distances, rounded
    upward.
    """
    n = len(fixed)
    if n < UNITS_MIN:
        raise ValueError("the column must have 4 units or more")
    column = fixed.astype(np.float64)
    size = max(1, CHUNK // n)
    starts = range(0, n, size)
    sums = np.concatenate([np.abs(column[s : s + size, None] - column).sum(axis=1) for s in starts])
    total = float(sums.sum()) / ((n - 1) * (n - 2))
    rows = np.empty(n)
    for start in starts:
        part = slice(start, start + size)
        centred = np.abs(column[part, None] - column)
        centred -= sums[part, None] / (n - 2)
        centred -= sums / (n - 2)
        centred += total
        own = np.arange(start, min(start + size, n))
        centred[own - start, own] = 0.0
        rows[part] = np.abs(centred).sum(axis=1)
    slack = n * ROUNDING * float(np.ptp(column))
    return (rows + slack) * (1 + ROUNDING) * 2 / (n * (n - 3))


COVARIANCE = "covariance"

COVARIANCE_BITS = 40
"""Finest grid of the published covariance: its noise, 2e-5 and more, has a deviation of millions of steps."""

REACH_SCALES = 16
"""Projections that were received count as no larger than 1 and so many deviations of their noise: one beyond
is drawn with probability below e**-128, and whoever made it up moves nothing but what is published."""

INFLUENCE_MAX = 14.0
"""Of n units whose fixed sides lie within 1, one moves the covariance by no more than this over n - 3: its
row of U-centred distances is made of four terms, of which one is at most 1 and three are at most 2."""

VALUE_BITS = 60
"""The covariance itself stays within 2**60 grid steps."""


class PeerResult(BaseVerdict):
    """What everybody learns of a study in peer mode. Nothing is tested: ``reject`` is False.

    Attributes:
        receiver: the owner with whom the result stays; its operator reads it with ``tacit agent result``.
        spent: epsilon that each owner spent, by name.
        distance_covariance_sqr: what the receiver published, with its noise, or None: that of the sender's
            noisy projections and the receiver's raw ones.
        interval: covers it without the receiver's noise with probability 1 - alpha, or None.
    """

    listed: ClassVar[tuple[str, ...]] = ("receiver", "spent", "distance_covariance_sqr", "interval")

    receiver: str
    spent: Annotated[dict[str, float], Shown("ε spent")]
    distance_covariance_sqr: Annotated[float | None, COVARIANCE_ESTIMATE]
    covariance_lower: float | None
    covariance_upper: float | None
    aligned: Annotated[bool, Shown("records aligned")]

    @property
    def interval(self) -> Interval | None:
        """Covers the published covariance without the receiver's noise, or None."""
        return interval_of(self.covariance_lower, self.covariance_upper)

    def __str__(self) -> str:
        published = ""
        if self.distance_covariance_sqr is not None:
            published = f", squared distance covariance {self.distance_covariance_sqr:.4g}"
        return f"{self.method}{published}, epsilon {self.epsilon:g}, delta {self.delta:g}"

    def shown(self) -> Sequence[str | ShownTable]:
        """Return all that the command shows: not every owner spends the same."""
        spent = ", ".join(f"{name} {epsilon:g}" for name, epsilon in self.spent.items())
        found = [f"Done: {self.method}", f"  epsilon spent: {spent}; delta {self.delta:g} where any"]
        if self.distance_covariance_sqr is not None and self.interval is not None:
            low, high = self.interval
            found.append(
                f"  squared distance covariance {self.distance_covariance_sqr:.4g}, its noise's interval "
                f"{low:.4g} to {high:.4g}"
            )
        return found


@dataclass(frozen=True)
class OwnCovariance:
    """The receiver's exact covariance, and how far one of its units moves it. Never leaves the receiver."""

    units: int
    value: Fraction = field(repr=False)
    sensitivity: float


@dataclass(frozen=True)
class _Direction:
    """One direction's covariance, and what a move by 1 of each unit of the receiver may change in it."""

    value: Fraction
    influence: npt.NDArray[np.float64]


def _column(fixed: Integers, own: Integers) -> _Direction:
    """Work in steps of the grid; projections are halved, so that a unit moves by 1 at most."""
    steps, shift = coarse(fixed)
    step = math.ldexp(1.0, shift - GRID_BITS_MAX - 1)
    value = exact_covariance(steps, own) * Fraction(step) / (1 << (GRID_BITS_MAX + 1))
    return _Direction(value, influences(steps) * step)


@dataclass(eq=False)
class PeerPlan(ProjectionPlan):
    """One owner's noisy projections, sealed to the other, which keeps what it finds or publishes a part."""

    verdict_type: ClassVar[type[BaseVerdict]] = PeerResult

    @property
    def receiver(self) -> int:
        """The place of the receiver among the study's owners."""
        return self.place(str(self.parameters.receiver))

    @cached_property
    def relay(self) -> Relay:  # type: ignore[override]
        """The sender's projections go to the receiver."""
        owners = self.study.owners
        return Relay(owners[1 - self.receiver], owners[self.receiver], self.parameters.publish)

    def combine(self, received: Releases, table: Table) -> Combined:
        """Set the sender's noisy projections against the receiver's raw ones.

        Raises:
            StudyError: the owners count different numbers of units.
        """
        (release,) = received.values()
        sums = self.summarise(table).sums
        if not isinstance(sums, ProjectedUnits):
            raise TypeError("peer mode is for projections")
        if release.units != sums.units:
            raise StudyError("the owners counted different numbers of units: their rows are not aligned")
        values = np.ldexp(sums.values.astype(np.float64), -GRID_BITS_MAX - 1).reshape(sums.units, -1)
        own = self.study.owners[self.receiver]
        raw = NoisyProjections(values, 0.0, len(self.study.domain_of(own).columns))
        # The sender's rows are permuted.
        found = self.find_between(raw, self.read(1 - self.receiver, release), step(None, "permuting"))
        finding = self.verdict(found, {owner.name: table.units for owner in self.study.owners})
        return Combined(finding, self.moved(release, sums) if self.parameters.publish else None)

    def moved(self, received: Release, own: ProjectedUnits) -> OwnCovariance:
        """Return the average covariance over directions, exactly, and its sensitivity in own units."""
        furthest = math.ceil(self._reach(own.units) * 2**GRID_BITS_MAX)
        values = np.array(received.vectors[PROJECTIONS].values, dtype=np.int64)
        fixed = np.clip(values, -furthest, furthest).reshape(own.units, -1)
        exact = own.values.reshape(own.units, -1)
        if self.disjoint:
            blocks = self.blocks(own.units)
            places = [np.flatnonzero(blocks == block) for block in range(self.directions)]
            columns = [_column(fixed[rows, 0], exact[rows, 0]) for rows in places]
            moved = max(float(found.influence.max()) for found in columns)
        else:
            sides = [np.broadcast_to(side, (own.units, self.directions)).T for side in (fixed, exact)]
            columns = [_column(p, y) for p, y in zip(*sides, strict=True)]
            moved = self._moved_together(np.array([found.influence for found in columns]).T)
        value = sum((found.value for found in columns), Fraction(0)) / len(columns)
        return OwnCovariance(own.units, value, moved / len(columns) * (1 + 2.0**-40))

    def _moved_together(self, influence: npt.NDArray[np.float64]) -> float:
        """Bound the sum over directions, (units, K) influences, of a move of one unit in all of them.

        Each projection moves by 1 at most, and all of them together by the norm of the receiver's directions.
        """
        features = self.projections[self.receiver].features
        each = influence.sum(axis=1)
        if features.dimension == 1:
            return float(each.max())
        length = features.norm + rounding_sensitivity(features.dimension, GRID_BITS_MAX) / 2
        together = np.sqrt((influence**2).sum(axis=1)) * length
        return float(np.minimum(each, together).max())

    def _reach(self, units: int) -> float:
        """Return how far from 0 a received projection counts, from public numbers alone."""
        scales = (release.parts(units)[0].scale(self.mu) for release in self.projections)
        return 1 + REACH_SCALES * max(scales)

    def covariance_bits(self, units: int) -> int:
        """Return b such that the published covariance of so many units lies on a grid of 2**-b.

        Public numbers alone choose it, so that covariance and noise have room whatever was received: the
        finest grid, unless the budget is tiny.
        """
        reach = self._reach(units)
        blocks = self.directions if self.disjoint else 1
        moved = INFLUENCE_MAX * 1.01 * reach / max(1, units // blocks - 3)
        room = (math.log2(SCALE_MAX) - 1) - math.log2(moved / self.mu)
        return min(
            COVARIANCE_BITS, math.floor(room), VALUE_BITS - math.ceil(math.log2(INFLUENCE_MAX * reach))
        )

    def _least_steps(self) -> float:
        """Return how many grid steps the noise has at least, for its discreteness to be paid for."""
        part, steps = SumPart(COVARIANCE, np.zeros(1, dtype=np.int64), 0, self.mu, 1.0), 1.0
        while True:
            try:
                require_drawable((replace(part, sensitivity=self.mu * steps),), self.guarantee)
            except SensitivityError:
                steps *= 2
            else:
                return steps

    def privatise(self, summary: OwnSide | OwnCovariance, noise: NoiseSource) -> Release:
        """Add noise to the sender's projections, or to the covariance that the receiver publishes.

        Where what was received leaves next to nothing to be moved, the noise is that of the fewest steps.
        """
        if isinstance(summary, OwnSide):
            return super().privatise(summary, noise)
        own, bits = summary, self.covariance_bits(summary.units)
        sums = np.array([round(own.value * Fraction(2) ** bits)], dtype=np.int64)
        least = self.mu * self._least_steps()
        sensitivity = max(own.sensitivity + 2.0**-bits, math.ldexp(least, -bits))
        part = SumPart(COVARIANCE, sums, -bits, sensitivity, 1.0)
        vectors = release_sums((part,), self.guarantee, noise)
        return Release(units=own.units, guarantee=self.guarantee, vectors=vectors)

    def check_release(self, release: Release) -> None:
        """Raise ReleaseError where a release is not one covariance at the study's guarantee.

        Its noise depends on the sealed projections, so that nobody but the receiver can check how large it
        is; it protects the receiver's units alone.
        """
        if set(release.vectors) != {COVARIANCE} or release.decision is not None:
            raise ReleaseError("in peer mode the receiver releases one covariance, and nothing else")
        vector = release.vectors[COVARIANCE]
        zeros, bits = np.zeros(1, dtype=np.int64), self.covariance_bits(release.units)
        part = SumPart(COVARIANCE, zeros, -bits, vector.scale * self.mu, 1.0)
        check_layout(release.vectors, release.guarantee, (part,), self.guarantee)

    def conclude(
        self,
        releases: Releases,
        units: Mapping[str, int],
        progress: Progress | None = None,  # noqa: ARG002
    ) -> PeerResult:
        """State where the result stays, and what of it was published."""
        study, owners = self.study, self.study.owners
        sender, receiver = owners[1 - self.receiver], owners[self.receiver]
        if units[sender.name] != units[receiver.name]:
            raise ReleaseError("the owners counted different numbers of units: their rows are not aligned")
        method = self.parameters.method
        stays = f"{method}, peer mode: the result stays with {receiver.name}"
        spent = {sender.name: study.budget.epsilon, receiver.name: 0.0}
        value = low = high = None
        warnings = [
            "nothing is tested here: the receiver alone has a test, which is private for the sender only",
            *row_warnings(study),
        ]
        if self.parameters.publish:
            release = releases[receiver.name]
            self.check_release(release)
            value, reach = _published(study, release)
            low, high = value - reach, value + reach
            spent[receiver.name] = study.budget.epsilon
            stays = f"{method}, peer mode: a private covariance, published by {receiver.name}"
            warnings.append(
                "the covariance is that of noisy projections, far smaller than the data's, and no p-value is "
                "known for it: its law under independence depends on what stays with the receiver"
            )
        return PeerResult(
            method=stays,
            receiver=receiver.name,
            reject=False,
            **common_fields(study, {owner.name: units[owner.name] for owner in study.owners}),
            spent=spent,
            distance_covariance_sqr=value,
            covariance_lower=low,
            covariance_upper=high,
            aligned=study.alignment is not None,
            warnings=tuple(warnings),
        )

    def meaning(self, verdict: Fields) -> Meaning:
        """Say where the result stays; of what the receiver finds, what a test means."""
        if "receiver" not in verdict:
            return super().meaning(verdict)
        return Meaning(
            f"The result stays with {verdict['receiver']}; nothing was tested in public.",
            "What the receiver found is private for the sender's data alone.",
            tests=False,
        )


def _published(study: Study, release: Release) -> tuple[float, float]:
    """Return the covariance of the vectors, and how far its noise reaches at the study's level."""
    constants = math.prod(projection_constant(len(study.domain_of(owner).columns)) for owner in study.owners)
    vector = release.vectors[COVARIANCE]
    reach = float(ndtri(1 - study.level / 2)) * vector.scale
    return constants * float(vector.mean(1)[0]), constants * reach
