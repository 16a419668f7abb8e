"""Tests and scores of tables in strata, added up over strata and owners."""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property

import numpy as np

from tacit_protocol.numerics.inference import LEAST, Score, products
from tacit_protocol.numerics.noisy_tables import (
    PlacedCells,
    SimulatedTest,
    in_blocks,
    onto_simplex,
    plausible,
    simulated_null,
)
from tacit_protocol.procedures.populations import Floats

Report = Callable[[float], None]


class Strata(PlacedCells):
    """An owner's noisy table, and where in it the strata's listed cells are, (S, R, C)."""

    @cached_property
    def null(self) -> tuple[Floats, Floats, Floats]:
        """Probabilities (k,) of tables that are independent within strata: at hand, sparser, more even."""
        counts, variance = self.counts, self.table.noise_variance
        rest = np.setdiff1d(np.arange(len(self.table.counts)), self.cells)
        sizes = counts.sum(axis=(1, 2))
        shares = onto_simplex(np.append(sizes, self.table.counts[rest]) / self.table.units)
        found = np.zeros((3, len(self.table.counts)))
        found[:, rest] = shares[len(sizes) :]
        for cells, own, size, share in zip(self.cells, counts, sizes, shares, strict=False):
            units = max(LEAST, float(size))
            margins = []
            for axis in (1, 0):
                margin = onto_simplex(own.sum(axis=axis) / units)
                noise = own.shape[axis] * variance / units**2
                margins.append(plausible(margin, noise, units))
            for place, (rows, columns) in enumerate(zip(*margins, strict=True)):
                found[place, cells] = share * np.outer(rows, columns)
        return tuple(one / one.sum() for one in found)


def contrasts(size: int) -> Floats:
    """Return orthonormal contrasts of so many levels, (size - 1, size)."""
    found = np.zeros((size - 1, size))
    for place in range(1, size):
        found[place - 1, :place], found[place - 1, place] = 1.0, -place
        found[place - 1] /= math.sqrt(place * (place + 1))
    return found


def statistics(counts: Floats, variances: Floats) -> Floats:
    """Return the statistics (...) of noisy counts (..., S, R, C), with noise ``variances`` (S,) on a cell."""
    rows, columns = contrasts(counts.shape[-2]), contrasts(counts.shape[-1])
    sizes = np.maximum(counts.sum(axis=(-2, -1)), LEAST)
    x, y = counts.sum(axis=-1), counts.sum(axis=-2)
    away = counts - x[..., :, None] * y[..., None, :] / sizes[..., None, None]
    away = rows @ away @ columns.T
    sampled, noisy = [], []
    for margin, contrast in ((x, rows), (y, columns)):
        share = onto_simplex(margin / sizes[..., None])
        mean = share @ contrast.T
        squared = mean[..., :, None] * mean[..., None, :]
        sampled.append((contrast * share[..., None, :]) @ contrast.T - squared)
        noisy.append(np.eye(len(contrast)) + contrast.shape[1] * squared)
    traces = [np.prod([np.trace(m, axis1=-2, axis2=-1) for m in pair], axis=0) for pair in (sampled, noisy)]
    sampling, noise = sizes * traces[0], variances * traces[1]
    weights = sampling / np.maximum(sampling + noise, 1e-300)
    total = np.einsum("...s,...sij->...ij", weights, away)
    width = total.shape[-2] * total.shape[-1]
    covariance = np.einsum("...s,...sij,...skl->...ikjl", weights**2 * sizes, *sampled)
    covariance = covariance + np.einsum("...s,...sij,...skl->...ikjl", weights**2 * variances, *noisy)
    covariance = covariance.reshape(*covariance.shape[:-4], width, width)
    # Without noise a level that nobody has leaves the matrix singular: its contrast says nothing then.
    ridge = 1e-9 * (np.trace(covariance, axis1=-2, axis2=-1)[..., None, None] + 1e-300) * np.eye(width)
    flat = total.reshape(*total.shape[:-2], width, 1)
    return np.asarray((np.swapaxes(flat, -1, -2) @ np.linalg.solve(covariance + ridge, flat))[..., 0, 0])


def stratified_test(
    owners: Sequence[Strata], replicates: int, seed: np.random.SeedSequence, progress: Report | None = None
) -> SimulatedTest:
    """Test whether rows and columns are independent within every stratum of every owner.

    The p-value is the largest, over plausible margins, of (1 + simulated statistics at least as large) /
    (replicates + 1).
    """
    variances = np.concatenate([own.variances for own in owners])
    statistic = float(statistics(np.concatenate([own.counts for own in owners]), variances))

    def draw(rng: np.random.Generator, count: int) -> Iterator[tuple[Floats, Floats]]:
        noises = [own.table.draw_noise(rng, count) for own in owners]
        for place in range(3):
            drawn = [
                (rng.multinomial(own.table.units, own.null[place], size=count) + noise)[:, own.cells]
                for own, noise in zip(owners, noises, strict=True)
            ]
            found = statistics(np.concatenate(drawn, axis=1), variances)
            yield found, found

    numbers = sum(len(own.table.counts) for own in owners)
    return SimulatedTest.of(
        statistic, simulated_null(draw, 3, replicates, seed, numbers=numbers, progress=progress)
    )


def _expected(kind: str) -> Callable[[Floats, Floats], Floats]:
    def cells(counts: Floats, theta: Floats) -> Floats:
        """Return the cells (..., S, 4) that noisy margins and an effect theta (..., 1) make expected.

        Each margin is half a unit at least, so that an empty one leaves some doubt.
        """
        sizes = np.maximum(counts.sum(axis=-1), 2 * LEAST)
        half = 0.5 / sizes
        group = np.clip((counts[..., 0] + counts[..., 1]) / sizes, half, 1 - half)
        event = np.clip((counts[..., 0] + counts[..., 2]) / sizes, half, 1 - half)
        if kind == "odds ratio":
            linear = 1 - group - event + theta * (group + event)
            root = np.sqrt(np.maximum(linear**2 - 4 * theta * (theta - 1) * group * event, 0.0))
            both = 2 * theta * group * event / np.maximum(linear + root, 1e-300)
        elif kind == "risk ratio":
            both = group * theta * event / (1 - group + theta * group)
        else:
            both = group * (event + (1 - group) * theta)
        both = np.clip(both, np.maximum(0.0, group + event - 1), np.minimum(group, event))
        shares = np.stack([both, group - both, event - both, 1 - group - event + both], axis=-1)
        return np.asarray(np.maximum(shares, 0.0) * sizes[..., None])

    return cells


_CROSS, _OTHER = products(4, (0, 3, 1.0)), products(4, (1, 2, 1.0))


_BOTH_EVENTS = products(4, (0, 2, 1.0))


SCORES: dict[str, Score] = {
    "risk difference": Score(
        _CROSS - _OTHER,
        products(4, (0, 2, 1.0), (0, 3, 1.0), (1, 2, 1.0), (1, 3, 1.0)),
        _expected("risk difference"),
        ratio=False,
    ),
    "risk ratio": Score(_CROSS + _BOTH_EVENTS, _OTHER + _BOTH_EVENTS, _expected("risk ratio"), ratio=True),
    "odds ratio": Score(_CROSS, _OTHER, _expected("odds ratio"), ratio=True),
}
"""Effects of tables of two groups and an event, (S, 4): the first group's events and others, the second's."""


def heterogeneity(owners: Sequence[Strata], replicates: int, seed: np.random.SeedSequence) -> float | None:
    """Return the p-value of one odds ratio in all strata of 2 x 2 tables; None where it cannot be tested.

    sum U_s^2/Var U_s at the common odds ratio, against the same of tables drawn with it and with noise.
    """
    variances = np.concatenate([own.variances for own in owners])
    counts = np.concatenate([own.counts for own in owners])
    score = SCORES["odds ratio"]
    if counts.shape[1:] != (2, 2) or len(counts) < 2:
        return None

    def spread(drawn: Floats) -> tuple[Floats, Floats]:
        tables, noise = fourfold(drawn, variances, (1, 0), 1)
        common = score.pooled(tables, noise)
        usable = np.isfinite(common) & (common > 0)
        at = np.where(usable, common, 1.0)[..., None]
        each, variance = score.at(tables, noise, at)
        return np.where(usable, (each**2 / variance).sum(axis=-1), np.inf), common

    statistic, common = (float(value) for value in spread(counts))
    if not np.isfinite(statistic):
        return None
    tables, _ = fourfold(counts, variances, (1, 0), 1)
    expected = score.expected(tables, np.array([common]))  # (S, 4): second group's events and others first
    cells = expected.reshape(-1, 2, 2)[:, ::-1, ::-1]
    probabilities, start = [], 0
    for own in owners:
        part = own.null[0].copy()
        block = cells[start : start + len(own.cells)]
        share = part[own.cells].sum(axis=(1, 2), keepdims=True)
        part[own.cells] = share * block / np.maximum(block.sum(axis=(1, 2), keepdims=True), 1e-300)
        probabilities.append(part / part.sum())
        start += len(own.cells)
    above = 0
    for rng, count in in_blocks(seed, replicates, 8 * sum(len(own.table.counts) for own in owners)):
        drawn = [own.draw(part, rng, count) for own, part in zip(owners, probabilities, strict=True)]
        above += int(np.count_nonzero(spread(np.concatenate(drawn, axis=1))[0] >= statistic))
    return (1 + above) / (replicates + 1)


CONTRASTS_MAX = 100
"""Most contrasts, (groups - 1)(levels - 1): a matrix of that size is inverted for every simulated table."""


def fourfold(counts: Floats, variances: Floats, pair: Sequence[int], event: int) -> tuple[Floats, Floats]:
    """Return tables (..., S, 4) of two groups (rows) and one level (column), and noise variances (S, 4).

    Args:
        counts: (..., S, R, C), noisy.
        variances: (S,), of the noise on each cell.
        pair: the two rows, or more, whose events and others then follow each other likewise.
        event: the column.
    """
    rows = counts[..., list(pair), :]
    events = rows[..., event]
    found = np.stack([events, rows.sum(axis=-1) - events], axis=-1)
    summed = np.tile([1.0, counts.shape[-1] - 1.0], len(pair))
    return found.reshape(*found.shape[:-2], 2 * len(pair)), variances[:, None] * summed
