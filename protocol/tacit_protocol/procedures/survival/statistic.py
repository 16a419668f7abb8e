"""Time to event from noisy counts by group, interval of time, and event or censored.

X (S, G, m, 2) are an owner's noisy counts: strata, groups, intervals, events and censored units. Y_i, the
units at risk, are the events and censored units of interval i and of all later ones; Y'_i = Y_i - (censored
in i)/2, but in the last. Curves are S(t_i) = prod (1 - d_l/Y'_l), Kaplan and Meier's in actuarial form, made
to fall by isotonic regression, with intervals normal in arcsin sqrt S. The log-rank test, T_g = sum_i (d_gi -
d_i Y_gi/Y_i), is stratified, its covariance counts the noise, its null is a parametric bootstrap of one
hazard for all groups. The hazard ratio is the ratio of events per unit exposed, in products of cells of
*different* groups, so that noise cancels on average (:mod:`tacit_protocol.numerics.inference`).
docs/mathematics/survival.md.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
from scipy.optimize import isotonic_regression
from scipy.special import ndtri

from tacit_protocol.numerics.inference import LEAST, Estimated, Score
from tacit_protocol.numerics.noisy_tables import (
    PlacedCells,
    SimulatedTest,
    onto_simplex,
    plausible,
    simulated_null,
)

Floats = npt.NDArray[np.float64]
Report = Callable[[float], None]

VANISHED = 1e-3
"""A share that is taken for nobody left, where a logarithm is."""

DRAWS = 999
"""Simulated curves behind intervals and bands."""


class Times(PlacedCells):
    """An owner's noisy table, and where in it strata, groups, intervals and events are, (S, G, m, 2)."""

    @cached_property
    def projected(self) -> Floats:
        """Probabilities (k,) nearest to the noisy shares."""
        return onto_simplex(self.table.counts / self.table.units)

    @cached_property
    def null(self) -> tuple[Floats, Floats, Floats]:
        """Probabilities (k,) with one hazard for all groups of a stratum: at hand, and two plausible ones."""
        shares, variance = self.projected, self.table.noise_variance / self.table.units**2
        found = np.stack([shares] * 3)
        for cells in self.cells:
            own = shares[cells]  # (G, m, 2)
            size = float(own.sum())
            if size <= 0:
                continue
            pooled = own.sum(axis=0) / size
            noise = len(own) * variance / size**2
            for place, law in enumerate(
                plausible(pooled.ravel(), noise, max(LEAST, size * self.table.units))
            ):
                hazard = hazards(law.reshape(pooled.shape))
                found[place, cells] = np.stack([with_hazard(group, hazard) for group in own])
        return tuple(one / one.sum() for one in found)


def at_risk(counts: Floats) -> Floats:
    """Return Y, (..., m), of counts (..., m, 2)."""
    both = counts.sum(axis=-1)
    return np.asarray(np.cumsum(both[..., ::-1], axis=-1)[..., ::-1])


def exposed(counts: Floats) -> Floats:
    """Return Y', (..., m), of counts (..., m, 2)."""
    found = at_risk(counts)
    found[..., :-1] -= counts[..., :-1, 1] / 2
    return found


def hazards(counts: Floats) -> Floats:
    """Return the share of the exposed that has the event in each interval, (..., m), of (..., m, 2)."""
    risk = exposed(counts)
    return np.clip(np.divide(counts[..., 0], risk, out=np.zeros_like(risk), where=risk > 0), 0.0, 1.0)


def with_hazard(group: Floats, hazard: Floats) -> Floats:
    """Return a group's cells (m, 2) with that hazard of events, and its own size and censoring.

    Censored units leave in the middle of an interval, so that half of them may have an event in it.
    """
    left, found, risk = float(group.sum()), np.zeros_like(group), at_risk(group)
    for place, rate in enumerate(hazard):
        share = group[place, 1] / risk[place] if risk[place] > 0 else 0.0
        last = place == len(group) - 1
        censored = 0.0 if last else left * min(1.0, share)
        events = min(rate * (left - censored / 2), left - censored)
        found[place] = events, left - events if last else censored
        left = max(0.0, left - float(found[place].sum()))
    return np.maximum(found, 0.0)


def log_rank(counts: Floats, variances: Floats) -> Floats:
    """Return the statistics, (...), of noisy counts (..., S, G, m, 2), noise ``variances`` (S,) on a cell."""
    groups, m = counts.shape[-3:-1]
    risk = at_risk(counts)  # (..., S, G, m)
    all_risk = risk.sum(axis=-2)
    later = 2 * groups * np.arange(m, 0, -1) * variances[:, None]  # Var Y_i, (S, m)
    seen = np.maximum(all_risk, LEAST)
    trust = np.maximum(all_risk, 0.0) ** 2 / (np.maximum(all_risk, 0.0) ** 2 + later + LEAST)
    share = onto_simplex(np.moveaxis(risk / seen[..., None, :], -2, -1))  # (..., S, m, G)
    events = counts[..., 0]
    everyone = events.sum(axis=-2)  # (..., S, m)
    away = np.einsum("...sm,...sgm->...sg", trust, events) - np.einsum(
        "...sm,...smg->...sg", trust * everyone, share
    )
    rate = np.clip(everyone / seen, 0.0, 1.0)
    spread = np.eye(groups) - share[..., None, :]  # (..., S, m, h, g): 1{h = g} - p_g
    sampled = np.einsum(
        "...sm,...smg,...smhg->...sgh",
        trust**2 * np.maximum(everyone, 0.0),
        share,
        np.swapaxes(spread, -1, -2),
    )
    weighted = trust[..., None, None] * spread
    passed = np.cumsum(rate[..., None, None] * weighted, axis=-3)
    on_events, on_censored = weighted - passed, -passed
    noisy = sum(np.einsum("...smhg,...smhk->...sgk", part, part) for part in (on_events, on_censored))
    noisy = noisy * variances[:, None, None]
    traces = [np.trace(part, axis1=-2, axis2=-1) for part in (sampled, noisy)]
    weights = traces[0] / np.maximum(traces[0] + traces[1], 1e-300)
    total = np.einsum("...s,...sg->...g", weights, away)[..., 1:]
    covariance = np.einsum("...s,...sgh->...gh", weights**2, sampled + noisy)[..., 1:, 1:]
    ridge = 1e-9 * (np.trace(covariance, axis1=-2, axis2=-1)[..., None, None] + 1e-12) * np.eye(groups - 1)
    solved = np.linalg.solve(covariance + ridge, total[..., None])[..., 0]
    return np.asarray((total * solved).sum(axis=-1))


def log_rank_test(
    owners: Sequence[Times], replicates: int, seed: np.random.SeedSequence, progress: Report | None = None
) -> SimulatedTest:
    """Test whether groups have the same hazards within every stratum of every owner."""
    variances = np.concatenate([own.variances for own in owners])
    statistic = float(log_rank(np.concatenate([own.counts for own in owners]), variances))

    def draw(rng: np.random.Generator, count: int) -> Iterator[tuple[Floats, Floats]]:
        for place in range(3):
            drawn = [own.draw(own.null[place], rng, count) for own in owners]
            found = log_rank(np.concatenate(drawn, axis=1), variances)
            yield found, found

    numbers = sum(len(own.table.counts) for own in owners)
    return SimulatedTest.of(
        statistic, simulated_null(draw, 3, replicates, seed, numbers=numbers, progress=progress)
    )


def hazard_ratio(counts: Floats, variances: Floats, pair: tuple[int, int], level: float) -> Estimated:
    """Estimate the hazard ratio of one group to another, common to strata (S, G, m, 2), with an interval."""
    own = counts[:, list(pair)]
    strata, _, m, _ = own.shape
    flat = own.reshape(strata, 4 * m)
    sizes = np.maximum(flat.sum(axis=-1), LEAST)
    smooth = onto_simplex(flat / sizes[:, None]) * sizes[:, None]
    risk = at_risk(smooth.reshape(own.shape)).sum(axis=1)
    floor = np.sqrt(4 * np.arange(m, 0, -1) * variances[:, None]) + LEAST
    weight = sizes[:, None] / np.maximum(risk, floor)
    # What is exposed in interval i: all of later ones, half of its own; to the end, who is followed to it.
    top, bottom = np.zeros((2, strata, 2, m, 2, 2, m, 2))
    for kind in range(2):
        held = np.triu(np.ones((m, m)), 1) + np.eye(m) / 2
        held[-1, -1] = 0.5 if kind == 0 else 1.0
        top[:, 0, :, 0, 1, :, kind] = weight[:, :, None] * held
        bottom[:, 1, :, 0, 0, :, kind] = weight[:, :, None] * held
    forms = [form.reshape(strata, 4 * m, 4 * m) for form in (top, bottom)]
    forms = [form + np.swapaxes(form, -1, -2) for form in forms]
    score = Score(forms[0], forms[1], lambda counts, _: np.broadcast_to(smooth, counts.shape), ratio=True)
    return score.estimate(flat, np.repeat(variances[:, None], 4 * m, axis=1), level)


@dataclass(frozen=True)
class CurveEstimate:
    """S at the end of each interval (m,), with pointwise and simultaneous intervals, and what follows.

    ``median`` and ``restricted_mean`` are (value, lower, upper); an end or the value of the median is None
    where the curve, or its interval, does not reach one half.
    """

    survival: Floats
    lower: Floats
    upper: Floats
    band_lower: Floats
    band_upper: Floats
    median: tuple[float | None, float | None, float | None]
    restricted_mean: tuple[float, float, float]


def curve(counts: Floats) -> Floats:
    """Return S (..., m) of noisy counts (..., m, 2)."""
    risk = exposed(counts)
    hazard = np.divide(counts[..., 0], risk, out=np.zeros_like(risk), where=risk > LEAST / 2)
    found = np.cumprod(1 - np.clip(hazard, -1.0, 1.0), axis=-1)
    flat = found.reshape(-1, found.shape[-1])
    fallen = np.stack([isotonic_regression(one, increasing=False).x for one in flat])
    return np.clip(fallen, 0.0, 1.0).reshape(found.shape)


def curves(
    owners: Sequence[Times], edges: Floats, level: float, seed: np.random.SeedSequence
) -> list[CurveEstimate]:
    """Estimate every group's curve, of all strata together; ``edges`` (m + 1,) are the intervals' ends."""
    added = sum(own.counts.sum(axis=0) for own in owners)
    rng = np.random.default_rng(seed)
    drawn = sum(own.draw(own.projected, rng, DRAWS).sum(axis=1) for own in owners)
    like = sum(own.projected[own.cells].sum(axis=0) * own.table.units for own in owners)
    z, found = float(-ndtri(level / 2)), []
    for group in range(added.shape[0]):
        own, centre, simulated = curve(added[group]), curve(like[group]), curve(drawn[:, group])
        angle, angles = np.arcsin(np.sqrt(own)), np.arcsin(np.sqrt(simulated))
        away = angles - np.arcsin(np.sqrt(centre))
        spread = np.sqrt((away**2).mean(axis=0))
        scaled = np.abs(away) / np.maximum(spread, 1e-12)
        wide = max(z, float(np.quantile(scaled.max(axis=-1), 1 - level)))
        pointwise, band = (
            [np.sin(np.clip(angle + sign * factor * spread, 0, math.pi / 2)) ** 2 for sign in (-1, 1)]
            for factor in (z, wide)
        )
        means = restricted_mean(simulated, edges) - restricted_mean(centre, edges)
        mean, deviation = float(restricted_mean(own, edges)), float(np.sqrt((means**2).mean()))
        span = float(edges[-1] - edges[0])
        found.append(
            CurveEstimate(
                own,
                pointwise[0],
                pointwise[1],
                band[0],
                band[1],
                (median(own, edges), median(pointwise[0], edges), median(pointwise[1], edges)),
                (mean, max(0.0, mean - z * deviation), min(span, mean + z * deviation)),
            )
        )
    return found


def median(survival: Floats, edges: Floats) -> float | None:
    """Return when a curve (m,) falls to one half, at a constant hazard between the edges (m + 1,)."""
    values = np.append(1.0, survival)
    below = np.flatnonzero(values <= 0.5)
    if not len(below):
        return None
    place = int(below[0])
    high, low = values[place - 1], max(float(values[place]), VANISHED)
    part = math.log(high / 0.5) / math.log(high / low)
    return float(edges[place - 1] + part * (edges[place] - edges[place - 1]))


def restricted_mean(survival: Floats, edges: Floats) -> Floats:
    """Return the mean time without the event up to the last edge, (...), of curves (..., m).

    The hazard is constant between edges: the area is (S_0 - S_1)/log(S_0/S_1) times the width.
    """
    values = np.concatenate([np.ones((*survival.shape[:-1], 1)), survival], axis=-1)
    high, low = np.maximum(values[..., :-1], VANISHED), np.maximum(values[..., 1:], VANISHED)
    fall = np.log(high / low)
    area = np.where(fall > 1e-6, (high - low) / np.maximum(fall, 1e-6), (high + low) / 2)
    return np.asarray((area * np.diff(edges)).sum(axis=-1))
