"""What a whole release moves by when one unit is replaced, against the noise that it really carries.

The mechanism is Gaussian: noise of standard deviation s_i on the integer i. It is mu-Gaussian differentially
private exactly if sum_i ((a_i - b_i) / s_i)^2 <= mu^2 for the exact sums a, b of any neighbours. Both sides
are read off what the procedure hands out, so features, averages, grids, shares and the scaling of
off-diagonal entries are all inside.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from neighbour_search import Effort, Rows, Space, largest_change

from tacit_protocol.domain.columns import CategoricalColumn, Domain, NumericColumn
from tacit_protocol.domain.table import EncodedChunk
from tacit_protocol.features.base import FeatureMap
from tacit_protocol.features.column_wise import ColumnWise
from tacit_protocol.features.moment_release import MomentShares
from tacit_protocol.messages.release import Release
from tacit_protocol.messages.study import Owner, Party, Study
from tacit_protocol.privacy.events import GaussianEvent
from tacit_protocol.privacy.guarantee import Budget
from tacit_protocol.procedures import kernel_two_sample
from tacit_protocol.procedures.kernel_two_sample import KernelTwoSample

NUMBERS = Domain(columns=tuple(NumericColumn(name=f"x{i}", lower=0.0, upper=1.0) for i in range(2)))
MIXED = Domain(columns=(*NUMBERS.columns, CategoricalColumn(name="c", levels=("a", "b"))))
ADVERSARIAL_TABLES = 12
"""Tables of other units that each worst pair is put in: the rounding differs between them."""


class NoNoise:
    """Adds nothing: what is left of a release is what the noise has to hide."""

    def gaussian(self, values: npt.NDArray[np.int64], scale: float) -> npt.NDArray[np.int64]:
        return np.asarray(values, dtype=np.int64)

    def laplace(self, values: npt.NDArray[np.int64], scale: float) -> npt.NDArray[np.int64]:
        raise AssertionError("this procedure has Gaussian noise alone")


@dataclass(frozen=True)
class FixedTable:
    """Chunks as given. ``units`` counts them all."""

    domain: Domain
    parts: tuple[EncodedChunk, ...]

    @property
    def units(self) -> int:
        return sum(part.units for part in self.parts)

    def chunks(self) -> Iterator[EncodedChunk]:
        yield from self.parts


def study(domain: Domain, parameters: Mapping[str, Any], epsilon: float) -> Study:
    key = [f"{i:064x}" for i in range(4)]
    owners = tuple(Owner(name=f"owner-{i}", key=key[i], data_set="data") for i in range(2))
    return Study(
        title="audit",
        procedure="kernel_two_sample",
        parameters=dict(parameters),
        domain=domain,
        owners=owners,
        tester=Party(name="tester", key=key[2]),
        analyst=Party(name="analyst", key=key[3]),
        budget=Budget(epsilon_micro=round(epsilon * 1e6), delta_pico=10_000_000),
        level=0.05,
        created_at=0,
        deadline=1,
        seed="00" * 16,
    )


STUDIES = {
    "default, 2 numbers": study(NUMBERS, {}, 1.0),
    "default, mixed": study(MIXED, {}, 1.0),
    "columns, mixed": study(MIXED, {"features": "columns", "cycles": (1.0, 2.0)}, 0.3),
    "ME, narrow": study(NUMBERS, {"features": "me", "n_features": 6, "bandwidth": 0.02}, 1.0),
    "ME, wide": study(NUMBERS, {"features": "me", "n_features": 20, "bandwidth": 2.0}, 1.0),
    "ME, mixed": study(MIXED, {"features": "me", "n_features": 15, "kernel": "laplacian"}, 0.5),
    "ME, one location": study(NUMBERS, {"features": "me", "n_features": 1}, 1.0),
    "SCF": study(NUMBERS, {"features": "scf", "n_features": 10}, 1.0),
    "P0's ME": study(NUMBERS, {"features": "me", "n_features": 4, "calibration": "paper"}, 1.0),
    "P0's SCF": study(NUMBERS, {"features": "scf", "n_features": 4, "calibration": "paper"}, 1.0),
}


def features_of(asked: Study) -> FeatureMap:
    return kernel_two_sample._plan(asked).release.features


@cache
def worst_units(name: str, rows_per_unit: int) -> tuple[Rows, Rows]:
    """The two units that the study's features tell apart most."""
    asked = STUDIES[name]
    space = Space(len(asked.domain.numeric), tuple(c.categories for c in asked.domain.categorical))
    features = features_of(asked)
    locations = getattr(features, "_locations", None)
    anchors = None if locations is None else Rows(locations.numeric, locations.categorical)
    found = largest_change(
        features, space, seed=3, rows_per_unit=rows_per_unit, anchors=anchors, effort=Effort(200, 4, 2)
    )
    return found.unit, found.other


def release(asked: Study, table: FixedTable) -> Release:
    procedure = KernelTwoSample()
    return procedure.privatise(asked, procedure.summarise(asked, table), NoNoise())


def moved_in_noise(one: Release, other: Release) -> float:
    """Distance of two exact releases, in standard deviations of the noise on each coordinate."""
    assert one.units == other.units
    assert one.guarantee == other.guarantee
    squared = 0.0
    for name, vector in one.vectors.items():
        twin = other.vectors[name]
        assert (vector.exponent, vector.scale, vector.noise) == (twin.exponent, twin.scale, "gaussian")
        steps = np.array(vector.values, dtype=object) - np.array(twin.values, dtype=object)
        squared += float(np.sum((np.ldexp(steps.astype(np.float64), vector.exponent) / vector.scale) ** 2))
    return math.sqrt(squared)


def promised_mu(one: Release) -> float:
    multipliers = [e.noise_multiplier for e in one.guarantee.events if isinstance(e, GaussianEvent)]
    return math.sqrt(sum(1 / m**2 for m in multipliers))


def one_row_units(domain: Domain, others: Rows, unit: Rows) -> FixedTable:
    numeric = np.concatenate([others.numeric, unit.numeric])
    categorical = np.concatenate([others.categorical, unit.categorical])
    return FixedTable(domain, (EncodedChunk(numeric, categorical, None, len(numeric)),))


def many_row_units(domain: Domain, others: Rows, unit: Rows) -> FixedTable:
    """Every other row is a unit of its own; the unit that is replaced owns all of ``unit``, first in line."""
    numeric = np.concatenate([unit.numeric, others.numeric])
    categorical = np.concatenate([unit.categorical, others.categorical])
    owners = np.concatenate([np.zeros(len(unit), np.int64), 1 + np.arange(len(others), dtype=np.int64)])
    return FixedTable(domain, (EncodedChunk(numeric, categorical, owners, 1 + len(others)),))


def others_of(asked: Study, seed: int, count: int) -> Rows:
    space = Space(len(asked.domain.numeric), tuple(c.categories for c in asked.domain.categorical))
    return space.random(np.random.default_rng(seed), count)


def largest_move(name: str) -> tuple[float, float]:
    """The largest distance found between neighbours' exact releases, and the mu that is promised."""
    asked = STUDIES[name]
    unit, other = worst_units(name, 1)
    moves, mu = [], 0.0
    for seed in range(ADVERSARIAL_TABLES):
        others = others_of(asked, seed, 1 + 7 * seed)
        one = release(asked, one_row_units(asked.domain, others, unit))
        two = release(asked, one_row_units(asked.domain, others, other))
        moves.append(moved_in_noise(one, two))
        mu = promised_mu(one)
    return max(moves), mu


@pytest.mark.parametrize("name", STUDIES)
def test_no_neighbour_moves_a_release_by_more_than_its_noise_is_made_for(name: str) -> None:
    moved, mu = largest_move(name)
    assert 0.3 * mu < moved <= mu


@pytest.mark.parametrize("name", ["default, mixed", "ME, mixed", "ME, narrow", "SCF"])
def test_no_unit_of_several_rows_does_either(name: str) -> None:
    """The replaced unit owns four rows in one table and three, one of them apart, in the other."""
    asked = STUDIES[name]
    unit, other = worst_units(name, 4)
    for seed in range(4):
        others = others_of(asked, seed, 600)
        one = release(asked, many_row_units(asked.domain, others, unit))
        two = release(asked, many_row_units(asked.domain, others, other.take(slice(0, 3))))
        assert moved_in_noise(one, two) <= promised_mu(one)


@pytest.mark.parametrize("name", STUDIES)
def test_repeating_the_rows_of_a_unit_moves_nothing(name: str) -> None:
    """Its average is the same, and no other unit's contribution may change, though the chunk's shape does."""
    asked = STUDIES[name]
    unit, _ = worst_units(name, 1)
    repeated = unit.take(np.zeros(5, dtype=np.int64))
    others = others_of(asked, 0, 700)
    one = release(asked, many_row_units(asked.domain, others, unit))
    two = release(asked, many_row_units(asked.domain, others, repeated))
    assert moved_in_noise(one, two) == 0


@pytest.mark.parametrize(("name", "part"), [("columns, mixed", 0.999), ("ME, narrow", 0.999), ("SCF", 0.8)])
def test_the_noise_is_no_larger_than_the_worst_neighbours_need(name: str, part: float) -> None:
    moved, mu = largest_move(name)
    assert moved > part * mu


def test_a_diameter_a_tenth_too_small_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    stated = vars(ColumnWise)["diameter"].fget
    monkeypatch.setattr(ColumnWise, "diameter", property(lambda self: 0.9 * stated(self)))
    moved, mu = largest_move("columns, mixed")
    assert moved > 1.05 * mu


def test_noise_on_second_moments_that_forgets_the_mean_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each part calibrated to the whole mu, as if the other were not released."""
    asked = STUDIES["ME, narrow"]
    monkeypatch.setattr(kernel_two_sample, "MomentShares", lambda *_: MomentShares(1.0, 1.0))
    unit, other = worst_units("ME, narrow", 1)
    others = others_of(asked, 0, 10)
    one = release(asked, one_row_units(asked.domain, others, unit))
    two = release(asked, one_row_units(asked.domain, others, other))
    assert moved_in_noise(one, two) > 1.2 * promised_mu(one)
