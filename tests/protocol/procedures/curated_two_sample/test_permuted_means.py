"""Distances of permuted means: against their definition, whatever the chunks; how far one unit moves them."""

import numpy as np
import pytest
from two_sample_cases import MemoryTable, domain_of

from tacit_protocol.domain import PooledTable
from tacit_protocol.features.kernels import ProductKernel
from tacit_protocol.features.moments import ColumnWise, UnitCountError
from tacit_protocol.procedures.curated_two_sample import permuted_means
from tacit_protocol.procedures.curated_two_sample.permuted_means import (
    PermutationSizeError,
    PermutedFeatures,
    PermutedKernel,
    draw_choices,
)

DOMAIN = domain_of(2, (3,))
FEATURES = PermutedFeatures(ColumnWise(2, (3,), (0.8125, 1.625), (1.0, 1.0)))
KERNEL = PermutedKernel(ProductKernel("gaussian", 0.3, 0.2), (2, 1))
SEED = np.random.SeedSequence(7)


def sample(rows: int, seed: int, owner: str = "x", **parts: object) -> PooledTable:
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 3, (rows, 1)).astype(np.int32)
    return PooledTable(DOMAIN, {owner: MemoryTable(DOMAIN, rng.random((rows, 2)), codes, **parts)})  # type: ignore[arg-type]


def rows_of(samples: tuple[PooledTable, PooledTable]) -> np.ndarray:
    return np.concatenate([FEATURES.features(chunk) for s in samples for chunk in s.chunks()])


def chosen_of(choices: np.ndarray, units: int) -> np.ndarray:
    return np.unpackbits(choices, axis=1)[:, :units].astype(bool)


def test_the_first_choice_is_the_sample_and_the_others_are_random_and_as_large() -> None:
    choices = chosen_of(draw_choices((30, 70), 2000, SEED), 100)
    assert np.array_equal(choices[0], np.arange(100) < 30)
    assert np.all(choices.sum(axis=1) == 30)
    # Each unit is chosen 600 times of 2000, give or take 20.5: six deviations fail with probability 1e-7.
    assert np.all(np.abs(choices[1:].sum(axis=0) - 600) < 6 * 20.5)
    assert len(np.unique(choices, axis=0)) == 2001


def test_distances_of_features_are_those_of_the_definition() -> None:
    samples = sample(30, 1), sample(70, 2, "y")
    choices = draw_choices((30, 70), 40, SEED)
    rows = rows_of(samples)
    expected = [
        np.linalg.norm(rows[chosen].mean(axis=0) - rows[~chosen].mean(axis=0))
        for chosen in chosen_of(choices, 100)
    ]
    assert FEATURES.distances(samples, choices) == pytest.approx(np.array(expected), abs=1e-5)


@pytest.mark.parametrize("sizes", [(30, 70), (700, 600)])
def test_distances_of_the_kernel_are_those_of_the_definition(sizes: tuple[int, int]) -> None:
    """Above and below the size of a block."""
    samples = sample(sizes[0], 1), sample(sizes[1], 2, "y")
    choices = draw_choices(sizes, 12, SEED)
    chunks = [chunk for s in samples for chunk in s.chunks()]
    gram = np.block([[KERNEL.kernel.gram(a, b) for b in chunks] for a in chunks])
    for chosen, found in zip(chosen_of(choices, sum(sizes)), KERNEL.distances(samples, choices), strict=True):
        weights = np.where(chosen, 1 / sizes[0], -1 / sizes[1])
        assert found == pytest.approx(np.sqrt(weights @ gram @ weights), rel=1e-6)


def test_the_error_of_the_kernels_distances_is_within_what_the_sensitivity_sets_aside() -> None:
    """Equal rows have distance 0: what is computed is error alone."""
    rows = np.full((1500, 2), 0.3)
    table = PooledTable(DOMAIN, {"x": MemoryTable(DOMAIN, rows, np.zeros((1500, 1), dtype=np.int32))})
    units = (1500, 1500)
    found = KERNEL.distances((table, table), draw_choices(units, 30, SEED))
    allowed = KERNEL.sensitivity(units) - KERNEL.kernel.distance_max(2, 1) / 1500
    assert found.max() <= allowed / 2
    assert allowed < 0.01 * KERNEL.sensitivity(units)


def test_more_than_fits_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(permuted_means, "CHOICE_BYTES_MAX", 1000)
    with pytest.raises(PermutationSizeError, match="fewer"):
        draw_choices((50, 50), 99, SEED)
    monkeypatch.setattr(permuted_means, "KERNEL_UNITS_MAX", 9)
    with pytest.raises(PermutationSizeError, match="full kernel"):
        KERNEL.distances((sample(5, 1), sample(5, 2)), draw_choices((5, 5), 9, SEED))


@pytest.mark.parametrize("statistic", [FEATURES, KERNEL])
def test_data_that_change_while_they_are_read_are_noticed(
    statistic: PermutedFeatures | PermutedKernel,
) -> None:
    changed = sample(5, 1, declared=6)
    with pytest.raises(UnitCountError):
        statistic.distances((changed, sample(5, 2)), draw_choices((6, 5), 9, SEED))
