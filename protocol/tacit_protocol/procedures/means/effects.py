"""Effects between samples in columns' own units, from the same private means that the max form tests.

Of a number scaled to t in [-1, 1] the means of P1 and P2 are m and p: the mean is m, and the variance V =
(1 + 2 p)/3 - m^2 + s^2, s^2 that of the noise on m. With noise covariances N between samples (of owners who
add their own, a diagonal),

    Cov m = N + V/n,    Cov V = N (4/9 + 4 m m') + 2 N^2 + (E(t - m)^4 - V^2)/n,

where the fourth moment is that of a combination of the released coordinates, fitted to (t - m)^4 where the
column's mean and variance say that its values lie; of few waves, which cannot be fitted so well, that of the
density which agrees best with all released means of the column, and else with where its values may lie. A
difference of means has a normal interval; a ratio of standard deviations is a root of V_x - theta V_y, by
Fieller (1954); a difference of them adds up the two deviations' own intervals (Zou and Donner, 2008). The
share of a category is the mean of its indicator, with the variance q(1 - q)/n and the noise's.
docs/mathematics/kernel-two-sample.md.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial

import numpy as np
from scipy.special import ndtri

from tacit_protocol.domain import CategoricalColumn, Column, Domain, NumericColumn
from tacit_protocol.features.cell_means import CellFeatures, middles
from tacit_protocol.features.moments import AdditiveFeatures
from tacit_protocol.numerics.inference import (
    RARE_UNITS,
    Effects,
    Estimated,
    estimated,
    root_intervals,
    spread_difference,
)
from tacit_protocol.privacy.k_norm_mechanism import KNormLaw
from tacit_protocol.procedures.means.private_means import FloatMatrix, FloatVector, GroupResult, PrivateMeans
from tacit_protocol.verdicts.base import JointEffect, Summary

COMPARISONS_MAX = 120
"""Most comparisons of two owners, in a column or a level of it, whose effects a verdict states; of the
columns with the smallest p-values."""

SUMMARIES_MAX = 240
"""Most columns or levels times owners whose own numbers a verdict states."""

OWNERS_COMPARED_MAX = 32
"""Above this many owners (496 pairs) the pairs are not compared: the verdict speaks of all together."""

KINDS = 3
"""Effects of each comparison."""

PLACES = 201
"""Values of t at which moments are fitted, and a column's density is estimated."""

FEW_WAVES = 2
"""Up to so many frequencies (of more than three columns), a fit of fourth moments is off by up to a third."""

TRUST = 1e-3
"""Weight of the guess at a column's density: enough that one density is the best."""

GRID = 1e-4
"""Of a column's means, what values between the places may change."""

CERTAIN = 1e-3
"""How far a density may add up to another number than 1 while it is looked for."""

SQUARES_MIN = 2 / 9
"""Least value of P1^2 + P2^2, at t = 1/3."""

ELSEWHERE = 0.02
"""Weight of all values of t alike, beside those that a column's mean and variance suggest."""


@lru_cache(16)
def design(cycles: tuple[float, ...]) -> tuple[FloatVector, FloatMatrix]:
    """Return values of t, and there 1, P1, P2 and the waves of ``cycles``, (PLACES, 3 + 2 cycles)."""
    t = np.linspace(-1.0, 1.0, PLACES)
    turns = np.pi * (t[:, None] + 1) * np.asarray(cycles)
    waves = np.stack([np.cos(turns), np.sin(turns)], axis=-1).reshape(PLACES, -1)
    return t, np.column_stack([np.ones(PLACES), t, 1.5 * t**2 - 0.5, waves])


@lru_cache(16)
def cells_design(cells: int) -> tuple[FloatVector, FloatMatrix]:
    """Return values of t, and there 1, P1, P2 and the cells' indicators, (PLACES, 3 + cells)."""
    t = np.linspace(-1.0, 1.0, PLACES)
    held = np.minimum(((t + 1) / 2 * cells).astype(np.int64), cells - 1)
    return t, np.column_stack([np.ones(PLACES), t, 1.5 * t**2 - 0.5, np.eye(cells)[held]])


def fit(columns: FloatMatrix, target: FloatVector, density: FloatVector, noise: float) -> FloatVector:
    """Return the combination of ``columns`` (PLACES, J), a constant first, that stands for ``target``.

    Its expected squared error is the least: of the fit, over ``density``, and of noise with the standard
    deviation ``noise`` on the mean of each column but the constant.
    """
    weighted = columns * (density / density.sum())[:, None]
    penalty = np.full(columns.shape[1], noise**2 + 1e-12)
    penalty[0] = 1e-12
    return np.asarray(np.linalg.solve(weighted.T @ columns + np.diag(penalty), weighted.T @ target))


def likely_density(
    columns: FloatMatrix, raw: FloatVector, guess: FloatVector, noise: float | FloatVector
) -> FloatVector:
    """Return the density at the places of ``columns`` (PLACES, J), a constant first, that ``raw`` suggests.

    It minimises, over densities p, the squared distance of the means of ``columns`` from ``raw`` (J - 1,) in
    deviations of their ``noise``, one or each its own, and of GRID, and TRUST times the chi-square distance
    of p from ``guess``.
    """
    from scipy.optimize import nnls  # noqa: PLC0415 (slow to import)

    # p = guess * ratio: what is solved for has one scale everywhere.
    guess = guess / guess.sum()
    deviations = np.hypot(np.broadcast_to(noise, raw.shape), GRID)
    told = (columns[:, 1:] * guess[:, None]).T / deviations[:, None]
    rows = np.vstack([told, guess / CERTAIN, np.diag(np.sqrt(TRUST * guess))])
    wanted = np.concatenate([raw / deviations, [1 / CERTAIN], np.sqrt(TRUST * guess)])
    found = nnls(rows, wanted)[0] * guess
    return np.asarray(found / found.sum())


@lru_cache(16)
def _squares(cycles: tuple[float, ...]) -> FloatVector:
    """Return the combination that stands for P1^2 + P2^2 = (9 t^4 - 2 t^2 + 1)/4."""
    t, columns = design(cycles)
    return fit(columns, (9 * t**4 - 2 * t**2 + 1) / 4, np.ones(PLACES), 0.0)


def squared_lengths(features: AdditiveFeatures, means: FloatMatrix) -> FloatVector:
    """Estimate the mean squared norm of one unit's features, for every sample of means (k, J).

    It is 1 but where there are P1 and P2, whose squares' mean is known from the other coordinates.
    """
    found = np.ones(len(means))
    if not features.choice.moments:
        return found
    share, coefficients = 1 - features.choice.pair_share, _squares(features.choice.cycles)
    scales = np.array([c.scale for c in features.column_wise.coordinates]) * np.sqrt(share)
    for start, stop in features.column_groups[: features.numeric]:
        raw = means[:, start:stop] / scales[start:stop]
        squares = coefficients[0] + raw @ coefficients[1:]
        found += scales[start] ** 2 * (np.clip(squares, SQUARES_MIN, 2.0) - 1)
    return found


@dataclass(frozen=True)
class Samples:
    """Samples by name: noisy means of additive features (k, J), units (k,), and their noise's covariance.

    ``noise`` (k, k) is that of one coordinate of the means, alike of all. ``law`` is that of K-norm noise,
    whose tails are heavier than normal ones; ``widened`` is by what intervals count its variance.
    """

    names: tuple[str, ...]
    means: FloatMatrix
    units: FloatVector
    noise: FloatMatrix
    law: KNormLaw | None = None
    widened: float = 1.0

    @classmethod
    def of_owners(cls, names: Sequence[str], means: PrivateMeans, law: KNormLaw | None = None) -> "Samples":
        """Take the means of owners, who add independent noise."""
        return cls(tuple(names), means.means, means.units, np.diag(means.noise**2), law)

    def at(self, level: float) -> "Samples":
        """Return the samples for normal intervals of that level."""
        return self if self.law is None else replace(self, widened=self.law.widening(level))


@dataclass(frozen=True)
class Numbers:
    """A numeric column of k samples: raw means of P1, P2 and waves, (k, 2 + 2 cycles), with their noise.

    ``noise`` (k, k) is that of P1, and ``squares`` times it that of P2; ``widened`` is the samples'.
    """

    cycles: tuple[float, ...]
    raw: FloatMatrix
    units: FloatVector
    noise: FloatMatrix
    squares: float = 1.0
    widened: float = 1.0

    @cached_property
    def means(self) -> FloatVector:
        """The means of t, (k,)."""
        return np.clip(self.raw[:, 0], -1.0, 1.0)

    @cached_property
    def variances(self) -> FloatVector:
        """The variances of t, (k,), unbiased: they may be negative."""
        return np.asarray((1 + 2 * self.raw[:, 1]) / 3 - self.raw[:, 0] ** 2 + np.diag(self.noise))

    @cached_property
    def spreads(self) -> FloatVector:
        """The variances cut to what they can be."""
        return np.clip(self.variances, 0.0, 1 - self.means**2)

    @cached_property
    def mean_covariance(self) -> FloatMatrix:
        """The covariance of the means, (k, k)."""
        return self.widened * self.noise + np.diag((self.spreads + RARE_UNITS / self.units) / self.units)

    @cached_property
    def variance_covariance(self) -> FloatMatrix:
        """The covariance of the variances, (k, k)."""
        outer = np.outer(self.means, self.means)
        noise = self.noise * (4 / 9 * self.squares + 4 * outer) + 2 * self.noise**2
        return self.widened * noise + np.diag(
            (self._squares_spreads() + RARE_UNITS / self.units) / self.units
        )

    def _squares_spreads(self) -> FloatVector:
        """Estimate the variances of (t - m)^2, within what they can be."""
        found, t = [], design(self.cycles)[0]
        for raw, mean, spread, own in zip(
            self.raw, self.means, self.spreads, np.diag(self.noise), strict=True
        ):
            error = float(np.sqrt(own * (4 / 9 + 4 * mean**2)))
            wide = max(float(spread) + error, 1e-4)

            near = np.exp(-((t - mean) ** 2) / (2 * wide))
            guess = near / near.sum() + ELSEWHERE / PLACES
            moment = self._moment(raw, guess, (t - mean) ** 4, float(np.sqrt(own)))
            most = (1 + abs(mean)) ** 2 * spread
            found.append(min(max(moment, spread**2), most) - spread**2)
        return np.array(found)

    def _moment(self, raw: FloatVector, guess: FloatVector, target: FloatVector, noise: float) -> float:
        """Estimate the mean of ``target`` (PLACES,), where ``guess`` says that values lie."""
        columns = design(self.cycles)[1]
        if len(self.cycles) > FEW_WAVES:
            coefficients = fit(columns, target, guess, noise)
            return float(coefficients[0] + coefficients[1:] @ raw)
        return float(likely_density(columns, raw, guess, noise) @ target)

    def mean_difference(self, first: int, second: int) -> dict[str, Callable[[float], Estimated]]:
        """Return the difference of two samples' means, at a level; in half ranges of the column."""
        pair = [first, second]
        covariance = self.mean_covariance[np.ix_(pair, pair)]
        moved = float(covariance[0, 0] + covariance[1, 1] - 2 * covariance[0, 1])
        mean = Effects.single(float(self.raw[first, 0] - self.raw[second, 0]), 1.0, (moved, 0.0, 0.0))
        return {"mean difference": lambda level: estimated(mean, level, "mean difference", 2.0)}

    def between(self, first: int, second: int) -> dict[str, Callable[[float], Estimated]]:
        """Return the effects of two samples by kind, each at a level; in half ranges of the column."""
        pair = [first, second]
        one, other = self.variances[pair].tolist()
        errors = self.variance_covariance[np.ix_(pair, pair)]
        ratio = Effects.single(
            one, other, (float(errors[0, 0]), -2 * float(errors[0, 1]), float(errors[1, 1]))
        )

        def spread(level: float) -> Estimated:
            ends = spread_difference(self.variances[pair], errors, level)
            value, lower, upper = (min(1.0, max(-1.0, end)) for end in ends)
            return Estimated(value, None if lower <= -1 else lower, None if upper >= 1 else upper)

        return self.mean_difference(first, second) | {
            "standard deviation difference": spread,
            "standard deviation ratio": lambda level: estimated(ratio, level, "standard deviation ratio"),
        }


@dataclass(frozen=True)
class NumbersInCells(Numbers):
    """A numeric column of k samples: raw means of P1, P2 and the cells, (k, 2 + m).

    ``cell_noise`` is the noise's standard deviation on a cell's share, times that on P1.
    """

    cell_noise: float = 1.0

    def _moment(self, raw: FloatVector, guess: FloatVector, target: FloatVector, noise: float) -> float:
        cells = len(raw) - 2
        each = noise * np.array([1.0, math.sqrt(self.squares), *[self.cell_noise] * cells])
        return float(likely_density(cells_design(cells)[1], raw, guess, each) @ target)


class Means(Numbers):
    """A numeric column of k samples of which raw means of P1 and of cells are known, (k, 1 + m), no squares.

    The deviation of t is at most that of the cells' middles and half a cell.
    """

    @cached_property
    def spreads(self) -> FloatVector:
        """Upper bounds of the variances of t, (k,), but for noise on the cells."""
        shares = np.clip(self.raw[:, 1:], 0.0, None)
        shares = shares / np.maximum(shares.sum(axis=1, keepdims=True), 1e-9)
        centres = middles(shares.shape[1])
        between = shares @ centres**2 - (shares @ centres) ** 2
        most = (np.sqrt(np.maximum(between, 0.0)) + 1 / shares.shape[1]) ** 2
        return np.asarray(np.clip(most, 0.0, 1 - self.means**2))

    def between(self, first: int, second: int) -> dict[str, Callable[[float], Estimated]]:
        """Return the difference of two samples' means."""
        return self.mean_difference(first, second)


@dataclass(frozen=True)
class Shares:
    """One category of k samples: its noisy shares (k,), units (k,), and the noise's covariance (k, k)."""

    shares: FloatVector
    units: FloatVector
    noise: FloatMatrix
    widened: float = 1.0

    @cached_property
    def covariance(self) -> FloatMatrix:
        """The covariance of the shares, (k, k)."""
        likely = np.clip(self.shares, 0.0, 1.0)
        rare = RARE_UNITS / self.units
        return self.widened * self.noise + np.diag((likely * (1 - likely) + rare) / self.units)

    def between(self, first: int, second: int) -> dict[str, Callable[[float], Estimated]]:
        """Return the effects of two samples by kind, each at a level."""
        p, q = self.shares[[first, second]].tolist()
        covariance = self.covariance[np.ix_([first, second], [first, second])]
        v, w, c = float(covariance[0, 0]), float(covariance[1, 1]), float(covariance[0, 1])
        # U = p(1 - q) - theta q(1 - p) moves by (1 - q) + theta q with p, by -(p + theta(1 - p)) with q.
        likely = np.clip([p, q], 0.0, 1.0)
        a, b = likely.tolist()
        odds = (
            v * (1 - b) ** 2 + w * a**2 - 2 * c * (1 - b) * a + v * w,
            2 * v * (1 - b) * b + 2 * w * a * (1 - a) - 2 * c * ((1 - b) * (1 - a) + b * a) - 2 * v * w,
            v * b**2 + w * (1 - a) ** 2 - 2 * c * b * (1 - a) + v * w,
        )
        kinds = {
            "risk difference": Effects.single(p - q, 1.0, (v + w - 2 * c, 0.0, 0.0)),
            "risk ratio": Effects.single(p, q, (v, -2 * c, w)),
            "odds ratio": Effects.single(p * (1 - q) + c, q * (1 - p) + c, odds),
        }
        return {kind: partial(estimated, found, kind=kind) for kind, found in kinds.items()}


@dataclass(frozen=True)
class EffectPart:
    """A column, or a level of it, of all samples."""

    column: str
    level: str | None
    found: Numbers | Shares
    bounds: tuple[float, float]

    def scaled(self, told: Estimated, kind: str) -> Estimated:
        """Return an estimate in the column's own units: half a range is 1."""
        if not isinstance(self.found, Numbers) or not kind.endswith("difference"):
            return told
        half = (self.bounds[1] - self.bounds[0]) / 2
        ends = (None if end is None else half * end for end in (told.value, told.lower, told.upper))
        return Estimated(*ends)

    def unit(self, kind: str) -> str:
        """Say what an effect of that kind is counted in."""
        if kind.endswith("ratio"):
            return ""
        return f"units of {self.column}" if isinstance(self.found, Numbers) else "share of units"

    def effect(self, kind: str, groups: tuple[str, str], told: Estimated, joint: Estimated) -> JointEffect:
        """State an effect with its own interval, and with the one that holds together with all others."""
        told, joint = self.scaled(told, kind), self.scaled(joint, kind)
        return JointEffect(
            column=self.column,
            kind=kind,
            groups=groups,
            estimate=told.value,
            lower=told.lower,
            upper=told.upper,
            unit=self.unit(kind),
            level=self.level,
            simultaneous_lower=joint.lower,
            simultaneous_upper=joint.upper,
        )

    def summaries(self, names: Sequence[str], level: float) -> Iterator[Summary]:
        """Yield every sample's own numbers."""
        z, low = float(-ndtri(level / 2)), self.bounds[0]
        half = (self.bounds[1] - self.bounds[0]) / 2

        def told(owner: str, kind: str, ends: FloatVector, unit: str) -> Summary:
            value, lower, upper = (float(end) for end in ends)
            return Summary(
                owner=owner,
                column=self.column,
                kind=kind,
                estimate=value,
                lower=lower,
                upper=upper,
                unit=unit,
                level=self.level,
            )

        if isinstance(self.found, Shares):
            errors = np.sqrt(np.diag(self.found.covariance))
            for owner, share, error in zip(names, self.found.shares, errors, strict=True):
                ends = np.clip([share, share - z * error, share + z * error], 0.0, 1.0)
                yield told(owner, "share", ends, "share of units")
            return
        errors = np.sqrt(np.diag(self.found.mean_covariance))
        spreads: Sequence[tuple[float, float, float] | None] = [None] * len(names)
        if not isinstance(self.found, Means):
            own = np.diag(self.found.variance_covariance)
            spreads = root_intervals(self.found.variances, own, level)
        unit = f"units of {self.column}"
        for owner, mean, error, spread in zip(names, self.found.means, errors, spreads, strict=True):
            ends = np.clip([mean, mean - z * error, mean + z * error], -1.0, 1.0)
            yield told(owner, "mean", low + half * (1 + ends), unit)
            if spread is not None:
                yield told(owner, "standard deviation", half * np.array(spread), unit)


def parts_of(domain: Domain, features: AdditiveFeatures, samples: Samples) -> dict[int, list[EffectPart]]:
    """Return the parts of every column that the features tell numbers of; of two levels the last alone."""
    share, found = 1 - features.choice.pair_share, dict[int, list[EffectPart]]()
    scales = np.array([c.scale for c in features.column_wise.coordinates]) * np.sqrt(share)
    columns: tuple[Column, ...] = (*domain.numeric, *domain.categorical)
    for place, (column, (start, stop)) in enumerate(zip(columns, features.column_groups, strict=True)):
        raw = samples.means[:, start:stop] / scales[start:stop]
        noise = samples.noise / scales[start] ** 2
        if isinstance(column, NumericColumn):
            if isinstance(features, CellFeatures):
                numbers = _in_cells(features, raw, samples, scales[start:stop])
            elif features.choice.moments:
                squares, cycles = (scales[start] / scales[start + 1]) ** 2, features.choice.cycles
                raw = raw[:, : 2 + 2 * len(cycles)]
                numbers = Numbers(cycles, raw, samples.units, noise, float(squares), samples.widened)
            else:
                continue
            found[place] = [EffectPart(column.name, None, numbers, (column.lower, column.upper))]
        elif isinstance(column, CategoricalColumn):
            first = int(len(column.levels) == 2)
            found[place] = [
                EffectPart(
                    column.name, name, Shares(raw[:, at], samples.units, noise, samples.widened), (0.0, 1.0)
                )
                for at, name in list(enumerate(column.levels))[first:]
            ]
    return found


def _in_cells(features: CellFeatures, raw: FloatMatrix, samples: Samples, scales: FloatVector) -> Numbers:
    """Return a column whose mean, perhaps square, and cells are known; contrasts of these are left out."""
    numbers, noise = 1 + features.cells.squares, samples.noise / scales[0] ** 2
    told = raw[:, : numbers + features.cells.cells]
    if numbers == 1:
        return Means((), told, samples.units, noise, widened=samples.widened)
    squares, cell = float((scales[0] / scales[1]) ** 2), float(scales[0] / scales[2])
    return NumbersInCells((), told, samples.units, noise, squares, samples.widened, cell)


def effects_by_column(
    domain: Domain,
    features: AdditiveFeatures,
    samples: Samples,
    level: float,
    groups: Sequence[GroupResult],
) -> tuple[tuple[JointEffect, ...], tuple[Summary, ...]]:
    """Return the effects between all pairs of samples, and the samples' own numbers.

    ``groups`` are the columns' p-values: the smallest come first. The simultaneous intervals share the level
    out over all effects, stated or not (Bonferroni).
    """
    names = samples.names
    tested = sorted((own for own in groups if own.family == "column"), key=lambda own: own.pvalue)

    def in_order(samples: Samples) -> list[EffectPart]:
        parts = parts_of(domain, features, samples)
        return [part for own in tested for part in parts.get(int(own.name), ())]

    ordered = in_order(samples.at(level))
    pairs = list(itertools.combinations(range(len(names)), 2)) if len(names) <= OWNERS_COMPARED_MAX else []
    joint = level / max(1, KINDS * len(ordered) * len(pairs))
    together = ordered if samples.law is None else in_order(samples.at(joint))
    compared = [(parts, pair) for parts in zip(ordered, together, strict=True) for pair in pairs]
    effects = tuple(
        part.effect(kind, (names[a], names[b]), at(level), wider.found.between(a, b)[kind](joint))
        for (part, wider), (a, b) in compared[:COMPARISONS_MAX]
        for kind, at in part.found.between(a, b).items()
    )
    told = ordered[: max(1, SUMMARIES_MAX // len(names))]
    return effects, tuple(summary for part in told for summary in part.summaries(names, level))
