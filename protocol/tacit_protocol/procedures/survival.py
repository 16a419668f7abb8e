"""Time to event: survival curves, and whether groups differ in them, from noisy counts.

Every owner releases noisy counts of its units by interval of time, event or censored, group and any further
columns, or an earlier release of such counts is read again, for nothing. From them follow curves with
intervals and bands, medians and restricted means; and, where there are groups, a log-rank test stratified by
owner and by the further columns, and hazard ratios. Derivations: docs/mathematics/survival.md.

X (S, G, m, 2) are an owner's noisy counts: strata, groups, intervals, events and censored units. Y_i, the
units at risk, are the events and censored units of interval i and of all later ones; Y'_i = Y_i - (1 - f)
(censored in i), but in the last: the exposed, where a part f of the censored are followed to the interval's
end. Curves are S(t_i) = prod (1 - d_l/Y'_l) with f = 1/2, Kaplan and Meier's in actuarial form, made to fall
by isotonic regression, with intervals normal in arcsin sqrt S. The log-rank test, T_g = sum_i (d_gi - d_i
Y'_gi/Y'_i), is stratified, its covariance counts the noise, its null is a parametric bootstrap of one hazard
for all groups. The hazard ratio is that of events per person-time at a constant hazard, in products of cells
of *different* groups, so that noise cancels on average (:mod:`tacit_protocol.numerics.inference`). When
within an interval units left is not in the counts: the test takes the f in [0, 1] that is best for one
hazard, and intervals of ratios hold those of f = 0, 1/2 and 1.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import BaseModel, Field
from scipy.optimize import isotonic_regression
from scipy.special import ndtri

from tacit_protocol.domain import CategoricalColumn, ColumnName, NumericColumn
from tacit_protocol.messages.study import Study
from tacit_protocol.numerics.inference import LEAST, Estimated, FixedScore
from tacit_protocol.numerics.noisy_tables import (
    NoisyTable,
    PlacedCells,
    SimulatedTest,
    onto_simplex,
    plausible,
    simulated_null,
)
from tacit_protocol.privacy.randomised_response import unmixing
from tacit_protocol.procedures.base import (
    CELL_WORK,
    Fields,
    Progress,
    QuestionTemplate,
    Releases,
    StudyError,
    parse_parameters,
    public_seed,
    require_work,
    step,
)
from tacit_protocol.procedures.counts.base import (
    CountProcedure,
    CountsShift,
    CountTestParameters,
    CountTestPlan,
    TablesVerdict,
)
from tacit_protocol.procedures.counts.release import CountsByAnswer, OwnCounts, grid_of, require_own_releases
from tacit_protocol.procedures.masking import MaskedParameters
from tacit_protocol.procedures.populations import (
    HAZARD_RATIO_MEDIUM,
    EffectError,
    Floats,
    Held,
    Measure,
    SimulationModel,
    require_hazard_ratio,
)
from tacit_protocol.strict import StrictModel
from tacit_protocol.verdicts.base import (
    EFFECTS,
    EFFECTS_BY_OWNER,
    PVALUE,
    BaseVerdict,
    Effect,
    Interval,
    ShownTable,
    effects_of,
    effects_table,
    forest,
    number,
    parts_frame,
)
from tacit_protocol.verdicts.presentation import (
    CHI_SQUARED,
    Citation,
    CurvesPanel,
    DrawnCurve,
    Meaning,
    RowsPanel,
    Shown,
    names_of,
)

Report = Callable[[float], None]

VANISHED = 1e-3
"""A share that is taken for nobody left, where a logarithm is."""

DRAWS = 999
"""Simulated curves behind intervals and bands."""

FOLLOWED = 0.5
"""Part of an interval's censored units that are followed to its end, as if they left evenly within it."""

FOLLOWED_TRIED = np.linspace(0.0, 1.0, 65)
"""Parts that the test tries, of which it takes the best: from none to all of the censored."""


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


def exposed(counts: Floats, followed: float = FOLLOWED) -> Floats:
    """Return Y', (..., m), of counts (..., m, 2), where that part of the censored is followed to the end."""
    found = at_risk(counts)
    found[..., :-1] -= (1 - followed) * counts[..., :-1, 1]
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


def log_rank(counts: Floats, variances: Floats, followed: float = FOLLOWED) -> Floats:
    """Return the statistics, (...), of noisy counts (..., S, G, m, 2), noise ``variances`` (S,) on a cell.

    ``followed`` is the part of an interval's censored units that are exposed to its end.
    """
    groups, m = counts.shape[-3:-1]
    risk = exposed(counts, followed)  # (..., S, G, m)
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
    own = rate[..., None, None] * weighted
    passed = np.cumsum(own, axis=-3)
    own[..., -1, :, :] = 0.0  # whoever is left at the end is followed to it
    on_events, on_censored = weighted - passed, (1 - followed) * own - passed
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
    counts = np.concatenate([own.counts for own in owners])
    statistic = min(float(log_rank(counts, variances, followed)) for followed in FOLLOWED_TRIED)

    def draw(rng: np.random.Generator, count: int) -> Iterator[tuple[Floats, Floats]]:
        for place in range(3):
            drawn = [own.draw(own.null[place], rng, count) for own in owners]
            found = log_rank(np.concatenate(drawn, axis=1), variances)
            yield found, found

    numbers = sum(len(own.table.counts) for own in owners)
    return SimulatedTest.of(
        statistic, simulated_null(draw, 3, replicates, seed, numbers=numbers, progress=progress)
    )


def hazard_ratio(
    counts: Floats, variances: Floats, pair: tuple[int, int], level: float, *, kept: float | None = None
) -> Estimated:
    """Estimate the hazard ratio of one group to another, common to strata (S, G, m, 2), with an interval.

    The interval holds those of every moment within their intervals at which censored units may have left.
    ``kept`` is the retention of answers where groups are another owner's.
    """
    found = [
        _hazard_ratio(counts, variances, pair, level, kept=kept, followed=followed)
        for followed in (0.0, FOLLOWED, 1.0)
    ]
    lower, upper = [one.lower for one in found], [one.upper for one in found]
    return Estimated(
        found[1].value,
        None if None in lower else min(end for end in lower if end is not None),
        None if None in upper else max(end for end in upper if end is not None),
    )


def _hazard_ratio(
    counts: Floats,
    variances: Floats,
    pair: tuple[int, int],
    level: float,
    *,
    kept: float | None,
    followed: float,
) -> Estimated:
    groups, m = counts.shape[1:3]
    own = counts[:, list(pair)] if kept is None else counts
    strata, flat = len(own), own.reshape(len(own), -1)
    sizes = np.maximum(flat.sum(axis=-1), LEAST)
    smooth = onto_simplex(flat / sizes[:, None]) * sizes[:, None]
    expected = smooth.reshape(own.shape)
    later = 2 * np.arange(m, 0, -1) * variances[:, None]  # Var Y_i of one group, (S, m)
    weight = sizes[:, None] / np.maximum(at_risk(expected).sum(axis=1), np.sqrt(own.shape[1] * later) + LEAST)
    inverse = None if kept is None else unmixing(groups, kept)[list(pair)]
    if inverse is not None:
        expected = np.maximum(np.einsum("ga,samd->sgmd", inverse, expected), 0.0)
    first, last = person_time(
        exposed(expected, followed), expected[..., 0], np.sqrt(later)[:, None] + LEAST
    )  # (S, 2, m)
    held = (first + last)[..., None, None] * np.triu(np.ones((m, m)), 1)[..., None]
    held = np.broadcast_to(held, (strata, 2, m, m, 2)).copy()  # cell (l, kind) in the exposure of interval i
    diagonal = np.arange(m)
    held[..., diagonal, diagonal, 0] = first
    held[..., diagonal, diagonal, 1] = followed * (first + last)
    held[..., -1, -1, 1] = (first + last)[..., -1]
    top, bottom = np.zeros((2, strata, 2, m, 2, 2, m, 2))
    top[:, 0, :, 0, 1] = weight[..., None, None] * held[:, 1]
    bottom[:, 1, :, 0, 0] = weight[..., None, None] * held[:, 0]
    forms = [form.reshape(strata, 4 * m, 4 * m) for form in (top, bottom)]
    forms = [form + np.swapaxes(form, -1, -2) for form in forms]
    if inverse is not None:
        unmixed = np.kron(inverse, np.eye(2 * m))
        forms = [unmixed.T @ form @ unmixed for form in forms]
    score = FixedScore(
        forms[0], forms[1], lambda counts, _: np.broadcast_to(smooth, counts.shape), ratio=True
    )
    return score.estimate(flat, np.repeat(variances[:, None], flat.shape[1], axis=1), level)


def person_time(start: Floats, events: Floats, least: Floats) -> tuple[Floats, Floats]:
    """Return the slopes of the person-time in an interval by who is exposed at its start and at its end.

    At a constant hazard ``start`` falls to ``start - events`` exponentially, and the person-time is their
    logarithmic mean: the slopes times both add up to it. ``least`` is what noise leaves of either.
    """
    end = np.maximum(start - events, least)
    x = np.log(np.maximum(start, end) / end)
    small = np.maximum(x, 1e-3)
    return (
        np.where(x < small, 0.5 - x / 6, 1 / small + np.expm1(-small) / small**2),
        np.where(x < small, 0.5 + x / 6, np.expm1(small) / small**2 - 1 / small),
    )


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
    owners: Sequence[Times],
    edges: Floats,
    level: float,
    seed: np.random.SeedSequence,
    *,
    kept: float | None = None,
) -> list[CurveEstimate]:
    """Estimate every group's curve, of all strata together; ``edges`` (m + 1,) are the intervals' ends.

    ``kept`` is the retention of answers where groups are another owner's: curves are of the groups.
    """
    added = sum(own.counts.sum(axis=0) for own in owners)
    rng = np.random.default_rng(seed)
    drawn = sum(own.draw(own.projected, rng, DRAWS).sum(axis=1) for own in owners)
    like = sum(own.projected[own.cells].sum(axis=0) * own.table.units for own in owners)
    if kept is not None:
        inverse = unmixing(len(added), kept)
        added, drawn, like = (
            np.einsum("ga,...amd->...gmd", inverse, counts) for counts in (added, drawn, like)
        )
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


TEST_STREAM, CURVES_STREAM = 1, 2
"""Spawn keys under the study's seed."""

GROUPS_MAX, INTERVALS_MAX = 8, 100

MANTEL = Citation(
    "mantel1966evaluation",
    "article",
    ("Nathan Mantel",),
    "Evaluation of Survival Data and Two New Rank Order Statistics Arising in Its Consideration",
    "Cancer Chemotherapy Reports 50(3)",
    1966,
)
KAPLAN = Citation(
    "kaplan1958nonparametric",
    "article",
    ("Edward L. Kaplan", "Paul Meier"),
    "Nonparametric Estimation from Incomplete Observations",
    "Journal of the American Statistical Association 53(282)",
    1958,
)


class SurvivalParameters(CountTestParameters, MaskedParameters):
    """What is followed in time; further columns of the study stratify within owners."""

    time: ColumnName | None = Field(
        None, description="The column of times, numeric and with cuts; by default the first such one."
    )
    event: ColumnName | None = Field(
        None,
        description=(
            "The column that says how a time ended, of two levels; by default the first categorical one that "
            "is not the group."
        ),
    )
    event_level: str | None = Field(
        None, description="Its level that means the event, not censored; by default the last."
    )
    group: ColumnName | None = Field(
        None, description="The column of the groups that are compared; without it, one curve of all units."
    )


class SurvivalCurve(StrictModel):
    """The share of a group's units without the event, at the end of every interval of time.

    Attributes:
        group: the group, or "all".
        times: ends of the intervals, (m,).
        survival: estimated shares, (m,), which never rise.
        lower: lower ends of the intervals, of confidence 1 - alpha each, (m,).
        upper: upper ends.
        band_lower: lower ends of the band that holds all of the curve at confidence 1 - alpha, (m,).
        band_upper: its upper ends.
        median: when the curve falls to one half; None where it does not.
        median_lower: lower end of its interval, or None.
        median_upper: upper end, None where half may never have had the event.
        restricted_mean: mean time without the event, up to the end of the last interval.
        restricted_mean_lower: lower end of its interval.
        restricted_mean_upper: upper end.
    """

    group: str
    times: tuple[float, ...]
    survival: tuple[float, ...]
    lower: tuple[float, ...]
    upper: tuple[float, ...]
    band_lower: tuple[float, ...]
    band_upper: tuple[float, ...]
    median: float | None
    median_lower: float | None
    median_upper: float | None
    restricted_mean: float
    restricted_mean_lower: float
    restricted_mean_upper: float


class SurvivalResult(TablesVerdict):
    """Curves of time to event and, where groups are compared, a stratified log-rank test.

    With groups it unpacks into ``statistic, pvalue``. Curves are of all owners' units together; the test and
    the hazard ratios are within owners, and within the further columns. Groups are compared with the first
    one listed.

    Attributes:
        curves: one for each group.
        statistic: the log-rank statistic, or None without groups.
        pvalue: its simulated p-value, or None without groups.
        effects: hazard ratios, and differences of restricted means, each with its interval.
        effects_by_owner: the hazard ratios of every owner's own units.
        tables: every owner's noisy counts, or None where they are too large to be shown.
    """

    listed: ClassVar[tuple[str, ...]] = ("statistic", "pvalue")

    statistic: Annotated[float | None, Shown("statistic", "test")]
    pvalue: Annotated[float | None, PVALUE]
    curves: Annotated[tuple[SurvivalCurve, ...], Shown("curves in numbers", "effects")]
    effects: Annotated[tuple[Effect, ...], EFFECTS]
    effects_by_owner: Annotated[tuple[Effect, ...], EFFECTS_BY_OWNER]

    def __iter__(self) -> Iterator[float]:  # type: ignore[override]
        if self.statistic is None or self.pvalue is None:
            raise TypeError("one curve tests nothing: there is no p-value to unpack")
        yield self.statistic
        yield self.pvalue

    @property
    def hazard_ratio(self) -> float | None:
        """Of the second group to the first; None without groups, or where the counts cannot tell it."""
        return self.effects[0].estimate if self.effects else None

    @property
    def interval(self) -> Interval | None:
        """Of the hazard ratio; None where it has not two ends."""
        return self.effects[0].interval if self.effects else None

    def to_pandas(self) -> Any:
        """Return the curves as a pandas frame: one row for each group and time."""
        of_times = ("times", "survival", "lower", "upper", "band_lower", "band_upper")
        columns: dict[str, list[Any]] = {"group": [c.group for c in self.curves for _ in c.times]}
        for name in of_times:
            columns[name] = [value for curve in self.curves for value in getattr(curve, name)]
        return self.source.drawn_by.frame(columns)

    def effects_to_pandas(self) -> Any:
        """Return the effects as a pandas frame: one row each, those of all owners first."""
        return parts_frame((*self.effects, *self.effects_by_owner), self.source.drawn_by.frame)

    def hypotheses(self) -> Mapping[str, float]:
        """Return the p-value, where groups are compared."""
        return {} if self.pvalue is None else {"": self.pvalue}

    def __str__(self) -> str:
        if self.pvalue is None:
            return self._told(f"median {number(self.curves[0].median, 'not reached')}")
        decision = "the groups' times differ" if self.reject else "no difference shown"
        return self._told(
            f"{decision}: p = {self.pvalue:.3g} at level {self.alpha:g}; {self.effects[0].words}"
        )

    def fields(self) -> dict[str, Any]:
        """Return what the command lists beside the common fields."""
        return super().fields() | {
            "curves": [curve.model_dump() for curve in self.curves],
            "effects": [effect.model_dump() for effect in self.effects],
            "effects_by_owner": [effect.model_dump() for effect in self.effects_by_owner],
        }

    def summary(self) -> Sequence[str | ShownTable]:
        """Return what the command shows first."""
        rows = tuple(
            (
                curve.group,
                f"{number(curve.median, 'not reached')} "
                f"({number(curve.median_lower, 'no end')} to {number(curve.median_upper, 'no end')})",
                f"{curve.restricted_mean:.4g} "
                f"({curve.restricted_mean_lower:.4g} to {curve.restricted_mean_upper:.4g})",
                f"{curve.survival[-1]:.3f} ({curve.lower[-1]:.3f} to {curve.upper[-1]:.3f})",
            )
            for curve in self.curves
        )
        end = f"without the event at {self.curves[0].times[-1]:g}"
        shown = ShownTable(("Group", "Median", "Restricted mean", end), rows)
        if self.pvalue is None:
            return (f"Survival: {self.method}", shown)
        decision = "the groups' times to the event DIFFER" if self.reject else "no difference shown"
        return (
            f"Verdict: {decision} (p = {self.pvalue:.3g}, level {self.alpha:g})",
            f"  statistic {self.statistic:.5g}; {self.method}",
            shown,
            effects_table(self.effects),
        )

    def details(self) -> Sequence[str | ShownTable]:
        return (effects_table(self.effects_by_owner),) if len(self.units) > 1 and self.effects else ()


class SurvivalLayout:
    """Where groups, intervals, events and strata are among the cells of an owner's table.

    Attributes:
        cells: (S, G, m, 2) places in the table: strata, listed groups, intervals, events then censored.
        groups: the groups' names.
        edges: (m + 1,) ends of the intervals.
    """

    def __init__(self, study: Study) -> None:
        parameters = parse_parameters(SurvivalParameters, study)
        grid = grid_of(study, parameters)
        columns = {column.name: column for column in study.domain.columns}
        names = list(columns)
        time = parameters.time or next((c.name for c in study.domain.numeric), "")
        event = parameters.event or next(
            (c.name for c in study.domain.categorical if c.name != parameters.group), ""
        )
        followed, ended = columns.get(time), columns.get(event)
        if not isinstance(followed, NumericColumn):
            raise StudyError("parameter time must name a numeric column of the study, with cuts")
        if not isinstance(ended, CategoricalColumn) or len(ended.levels) != 2 or event == parameters.group:
            raise StudyError("parameter event must name a column of two levels that is not the group")
        level = ended.levels[-1] if parameters.event_level is None else parameters.event_level
        if level not in ended.levels:
            raise StudyError("parameter event_level must be a level of the event's column")
        axes = [names.index(time), names.index(event)]
        self.groups: tuple[str, ...] = ("all",)
        if parameters.group is not None:
            group = columns.get(parameters.group)
            if not isinstance(group, CategoricalColumn) or len(group.levels) < 2:
                raise StudyError("parameter group must name a categorical column of two levels or more")
            axes, self.groups = [names.index(group.name), *axes], group.levels
        self.time, self.event, self.group = time, event, parameters.group
        self.edges: Floats = np.array([followed.lower, *parameters.cuts.get(time, ()), followed.upper])
        places = np.moveaxis(np.arange(grid.size).reshape(grid.shape), axes, range(-len(axes), 0))
        if parameters.group is None:
            places = places[..., None, :, :]
        at = ended.levels.index(level)
        listed = places[..., : len(self.groups), :, [at, 1 - at]]
        self.cells = listed.reshape(-1, *listed.shape[-3:])

    def of(self, table: NoisyTable) -> Times:
        """Return an owner's counts by time."""
        return Times(table, self.cells)


class HazardRatio(CountsShift):
    """Counts of groups of which all but the first have so many times the first one's hazard."""

    medium: ClassVar[float] = HAZARD_RATIO_MEDIUM
    taken: ClassVar[frozenset[str]] = frozenset({"size"})
    off: ClassVar[str] = "the curve is off by {} where it is furthest off"

    @property
    def measures(self) -> Measure:
        """The error of a single curve, the power where groups are compared."""
        return "error" if self.layout.group is None else "power"

    @cached_property
    def layout(self) -> "SurvivalLayout":
        """Where the study's groups, intervals and events are."""
        try:
            return SurvivalLayout(self.study)
        except StudyError as error:
            raise EffectError(str(error)) from None

    def answer(self, result: Any, held: Sequence[Held]) -> float:
        """Return whether the groups were found to differ; of one curve, how far it is off at most."""
        if self.layout.group is not None:
            return float(result.reject)
        counts = np.sum([np.asarray(own)[self.layout.cells].sum(axis=(0, 1)) for own in held], axis=0)
        return float(np.abs(np.array(result.curves[0].survival) - curve(counts.astype(np.float64))).max())

    def check(self) -> None:
        """Raise EffectError where there is no such hazard ratio."""
        SimulationModel.check(self)
        require_hazard_ratio(self.size)
        self.cells  # noqa: B018 (raises where there are none)

    @cached_property
    def cells(self) -> tuple[Floats, Floats]:
        """The cells' probabilities with one hazard for all groups, and with the ratio, (k,) each."""
        layout = self.layout
        null, without, changed = self.null, self.null.copy(), self.null.copy()
        for cells in layout.cells:
            own = null[cells]
            if own.sum() > 0:
                hazard = hazards(own.sum(axis=0))
                other = 1 - (1 - hazard) ** self.size
                without[cells] = [with_hazard(group, hazard) for group in own]
                changed[cells] = [
                    with_hazard(group, other if place else hazard) for place, group in enumerate(own)
                ]
        return without, changed

    def draw(self, sizes: Sequence[int], rng: np.random.Generator) -> Sequence[np.ndarray[Any, Any]]:
        shares = self.cells[1] / self.cells[1].sum()
        return [rng.multinomial(size, shares).astype(np.int64) for size in sizes]

    def words(self) -> str:
        """Say how much earlier the event is."""
        if self.layout.group is None:
            return "nothing: a curve is released"
        return f"a hazard ratio of {self.size:.3g}"


class SurvivalPlan(CountTestPlan):
    """Curves, and groups compared within all strata, of the tables that can be read."""

    simulated_null: ClassVar[str] = "groups with one hazard"
    ratios: ClassVar[tuple[str, ...]] = ("hazard ratio",)

    def __init__(self, study: Study, parameters: SurvivalParameters) -> None:
        super().__init__(study, parameters)
        self.layout = SurvivalLayout(study)
        self.require_group(self.layout.group)
        strata, groups, m, _ = self.layout.cells.shape
        if groups > GROUPS_MAX or m > INTERVALS_MAX:
            raise StudyError(f"at most {GROUPS_MAX} groups and {INTERVALS_MAX} intervals of time")
        if m < 2:
            raise StudyError("time needs two intervals or more: parameter cuts")
        cells = len(study.owners) * (self.grid.size + strata * groups * groups * m)
        require_work(CELL_WORK * cells, parameters.replicates + DRAWS)

    @property
    def cited(self) -> tuple[Citation, ...]:
        """The works that the curves come from, and the test where there are groups."""
        return (KAPLAN, CHI_SQUARED) if self.layout.group is None else (KAPLAN, MANTEL, CHI_SQUARED)

    def listed_alone(self) -> tuple[str, ...]:
        """Name event and group: units with another value are at risk in no interval."""
        event, group = self.layout.event, self.layout.group
        return (event,) if group is None else (event, group)

    def describe_request(self) -> tuple[str, ...]:
        """Say what is followed, and who is compared."""
        layout = self.layout
        where = " within owners" if self.shared is None else ""
        compared = "" if layout.group is None else f", and compares {layout.group}{where}"
        return (f"follows {layout.time} until {layout.event}{compared}", *super().describe_request())

    def meaning(self, verdict: Fields) -> Meaning:
        if verdict.get("pvalue") is None:
            return Meaning(
                f"The time to the event of {names_of(self.study)}'s units is shown.",
                f"Intervals have confidence {1 - self.study.level:g}, and count the noise.",
                tests=False,
            )
        where = "within owners" if self.shared is None else "among the units of all owners"
        return self.decision(
            verdict,
            f"The groups' times to the event differ, {where}",
            f"No difference in the groups' times to the event was shown, {where}",
        )

    def test(
        self,
        tables: Sequence[NoisyTable],
        replicates: int,
        progress: Callable[[float], None] | None = None,
    ) -> SimulatedTest:
        """Test whether groups have the same hazards within all strata."""
        owners, seed = [self.layout.of(table) for table in tables], public_seed(self.study, TEST_STREAM)
        return log_rank_test(owners, replicates, seed, progress)

    def panels(self, verdict: Fields, releases: Releases) -> list[RowsPanel | CurvesPanel]:  # noqa: ARG002
        """Return the curves, and the hazard ratios of every owner and of all."""
        layout, level = self.layout, self.study.level
        drawn = tuple(
            DrawnCurve(
                curve["group"],
                (float(layout.edges[0]), *curve["times"]),
                (1.0, *curve["survival"]),
                (1.0, *curve["lower"]),
                (1.0, *curve["upper"]),
            )
            for curve in verdict["curves"]
        )
        title = f"Without the event, with {100 * (1 - level):g} % intervals"
        stated = effects_of([*verdict["effects_by_owner"], *verdict["effects"]])
        return [CurvesPanel(title, layout.time, drawn), *forest(stated, level)]

    def conclude(
        self,
        releases: Releases,
        units: Mapping[str, int],  # noqa: ARG002 (releases state them)
        progress: Progress | None = None,
    ) -> SurvivalResult:
        layout, level, kept = self.layout, self.study.level, self.kept(releases)
        tables = self.tables(releases)
        owners = {name: layout.of(table) for name, table in tables.items()}
        held, test = list(owners.values()), None
        if layout.group is not None:
            simulating = step(progress, "simulating the null", 0.0, 0.7)
            test = self.test(list(tables.values()), self.replicates, simulating)
        step(progress, "drawing curves")(0.7)
        found = curves(held, layout.edges, level, public_seed(self.study, CURVES_STREAM), kept=kept)
        strata, groups, m, _ = layout.cells.shape
        what = f"stratified log-rank test of {groups} groups and curves" if test else "curves"
        return SurvivalResult(
            method=f"{what} from noisy counts in {m} intervals of time and {len(held) * strata} strata, "
            f"{self.noise.kind} noise counted, {self.replicates} replicates",
            statistic=None if test is None else test.statistic,
            pvalue=None if test is None else test.pvalue,
            reject=test is not None and test.pvalue <= level,
            **self.shown(tables, releases),
            curves=tuple(_stated(layout, place, one) for place, one in enumerate(found)),
            effects=_effects(layout, held, found, level, kept),
            effects_by_owner=tuple(self.effects_by_owner(owners)),
        )

    def effects_by_owner(self, owners: Mapping[str, Times]) -> Iterator[Effect]:  # noqa: ARG002
        """Yield the hazard ratios of every owner; none where no table is an owner's alone."""
        return iter(())


class OwnSurvival(SurvivalPlan, OwnCounts):
    """Every owner counts its own times, events and groups."""

    def effects_by_owner(self, owners: Mapping[str, Times]) -> Iterator[Effect]:
        """Yield the hazard ratios of every owner; none where they mask."""
        if self.shared is None:
            for name, own in owners.items():
                yield from _hazard_ratios(self.layout, [own], self.study.level, name)


class AnsweredSurvival(SurvivalPlan, CountsByAnswer):
    """Groups are another owner's, of which it released randomised answers."""


class Survival(CountProcedure):
    """See the module. Registered as ``survival``."""

    name: ClassVar[str] = "survival"
    title: ClassVar[str] = "How long until the event, and do groups differ in it?"
    Parameters: ClassVar[type[BaseModel]] = SurvivalParameters
    Verdict: ClassVar[type[BaseVerdict]] = SurvivalResult
    RelayedVerdict: ClassVar[type[BaseVerdict]] = SurvivalResult
    population: ClassVar[type[SimulationModel] | None] = HazardRatio
    question: ClassVar[QuestionTemplate | None] = QuestionTemplate(
        "How long until an event, and do groups differ in it?",
        r"surviv|time to|hazard|kaplan|log.?rank|until",
        "one or more",
        rank=2,
        pure=True,
    )

    def plan(self, study: Study) -> SurvivalPlan:
        parameters = parse_parameters(SurvivalParameters, study)
        if study.columns_apart:
            return AnsweredSurvival(study, parameters)
        require_own_releases(study)
        return OwnSurvival(study, parameters)


def _stated(layout: SurvivalLayout, place: int, found: CurveEstimate) -> SurvivalCurve:
    middle, low, high = found.median
    mean, mean_low, mean_high = found.restricted_mean
    listed = {
        name: tuple(round(float(value), 6) for value in getattr(found, name))
        for name in ("survival", "lower", "upper", "band_lower", "band_upper")
    }
    return SurvivalCurve(
        group=layout.groups[place],
        times=tuple(float(edge) for edge in layout.edges[1:]),
        **listed,
        median=middle,
        median_lower=low,
        median_upper=high,
        restricted_mean=mean,
        restricted_mean_lower=mean_low,
        restricted_mean_upper=mean_high,
    )


def _hazard_ratios(
    layout: SurvivalLayout,
    owners: Sequence[Times],
    level: float,
    owner: str | None = None,
    kept: float | None = None,
) -> list[Effect]:
    counts = np.concatenate([own.counts for own in owners])
    variances = np.concatenate([own.variances for own in owners])
    found = []
    for place in range(1, len(layout.groups)):
        ratio = hazard_ratio(counts, variances, (place, 0), level, kept=kept)
        ends = (ratio.value, ratio.lower, ratio.upper)
        found.append(_effect(layout, place, "hazard ratio", ends, owner))
    return found


def _effects(
    layout: SurvivalLayout,
    owners: Sequence[Times],
    found: Sequence[CurveEstimate],
    level: float,
    kept: float | None,
) -> tuple[Effect, ...]:
    """Return hazard ratios, and differences of restricted means of groups, whose units are different."""
    effects = _hazard_ratios(layout, owners, level, kept=kept)
    first = found[0].restricted_mean
    for place, other in enumerate(found[1:], 1):
        value = other.restricted_mean[0] - first[0]
        below, above = (
            float(np.hypot(mean[0] - mean[1], against[2] - against[0]))
            for mean, against in ((other.restricted_mean, first), (first, other.restricted_mean))
        )
        ends = (value, value - below, value + above)
        effects.append(_effect(layout, place, "restricted mean difference", ends))
    return tuple(effects)


def _effect(
    layout: SurvivalLayout,
    place: int,
    kind: str,
    ends: tuple[float | None, float | None, float | None],
    owner: str | None = None,
) -> Effect:
    return Effect(
        column=layout.time,
        kind=kind,
        groups=(layout.groups[place], layout.groups[0]),
        estimate=ends[0],
        lower=ends[1],
        upper=ends[2],
        unit=f"units of {layout.time}" if kind.endswith("difference") else "",
        owner=owner,
    )
