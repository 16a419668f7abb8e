"""Studies that were once declined or not by what an owner's rows hold, and searches like them.

Each read a count exactly in a few studies that cost nothing: noise so wide that it had no room beside a
larger count, and room for it beside a smaller one.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from long_runs import choose
from made_studies import MemoryTable, made_study

from tacit.in_process.runner import in_masks
from tacit_protocol.domain import Domain, NumericColumn
from tacit_protocol.messages.study import Study
from tacit_protocol.privacy.noise import NoiseError, OpenDPNoise
from tacit_protocol.procedures.base import StudyError, canonical, check_study, masking_of, require_units
from tacit_protocol.procedures.counts.release import RHO_MAX, RHO_MIN
from tacit_protocol.procedures.discovery import procedure_named

X = Domain(columns=(NumericColumn(name="x", lower=0.0, upper=10.0),))
UNITS = 40
CUTS = {"cuts": {"x": [5.0]}, "unlisted": "last"}


def table(above: int) -> MemoryTable:
    """Rows of which so many are above the cut."""
    numeric = np.where(np.arange(UNITS) < above, 0.9, 0.1)[:, None]
    return MemoryTable(X, numeric, np.zeros((UNITS, 0), dtype=np.int32))


def masked(rho: float | None) -> dict[str, Any]:
    more = {} if rho is None else {"rho": rho}
    return CUTS | {"noise": "gaussian", "aggregation": "masked", "colluders": 1} | more


@pytest.mark.parametrize("epsilon", ["0.000001", "1", "100"])
@pytest.mark.parametrize(
    ("procedure", "owners", "parameters", "told"),
    [
        ("noisy_counts", 1, CUTS | {"noise": "gaussian", "rho": 2.1e-22}, "parameter rho"),
        ("noisy_counts", 3, masked(2.1e-22), "parameter rho"),
        ("homogeneity", 2, CUTS | {"noise": "gaussian", "rho": 1e-300}, "parameter rho"),
        ("kernel_two_sample", 2, {"features": "me", "mean_share": 1e-12}, "parameter mean_share"),
        ("kernel_two_sample", 2, {"pair_share": 1e-12}, "parameter pair_share"),
    ],
)
def test_the_breaks_are_refused_before_there_are_rows(
    procedure: str, owners: int, parameters: Mapping[str, Any], told: str, epsilon: str
) -> None:
    study = made_study(procedure, X, parameters, owners=owners, epsilon=float(epsilon))
    with pytest.raises(StudyError, match=told):
        check_study(procedure_named(procedure), study)


def test_noise_of_a_tiny_budget_that_has_no_room_is_refused_before_there_are_rows() -> None:
    two = Domain(columns=(*X.columns, NumericColumn(name="y", lower=0.0, upper=1.0)))
    for share in (0.92587, 0.92588, 0.5):
        asked = {"pair_share": share}
        study = made_study("kernel_two_sample", two, asked, owners=2, epsilon=1e-6, delta=1e-12)
        with pytest.raises(StudyError, match="no room"):
            check_study(procedure_named("kernel_two_sample"), study)


def searched(count: int) -> Iterator[Study]:
    """Yield studies near every end of what their checks take, as somebody would who bisects."""
    rng = np.random.default_rng(38)
    for _ in range(count):
        rho = float(np.exp(rng.uniform(math.log(RHO_MIN / 10), math.log(RHO_MAX * 10))))
        epsilon = float(np.exp(rng.uniform(math.log(1e-6), math.log(100))))
        delta = float(rng.choice([1e-12, 1e-9, 1e-5]))
        small = 10 ** rng.uniform(-12, 0)
        share = float(rng.choice([rng.uniform(0, 1), small, 1 - small]))
        kinds: list[tuple[str, int, dict[str, Any]]] = [
            ("noisy_counts", 1, CUTS | {"noise": "gaussian", "rho": rho}),
            ("noisy_counts", 1, CUTS | {"noise": "gaussian"}),
            ("noisy_counts", 1, dict(CUTS)),
            ("noisy_counts", 2, masked(rho)),
            ("noisy_counts", 2, masked(None)),
            ("kernel_two_sample", 2, {"features": "me", "n_features": 2, "mean_share": share}),
            ("kernel_two_sample", 2, {"noise": "k-norm"}),
        ]
        procedure, owners, parameters = kinds[int(rng.integers(len(kinds)))]
        yield made_study(procedure, X, parameters, owners=owners, epsilon=max(1e-6, epsilon), delta=delta)


def answered(study: Study, above: int, noise: OpenDPNoise) -> bool:
    """Whether the first owner answers a study, its rows being such; the others hold the same."""
    procedure = procedure_named(study.procedure)
    try:
        found = {
            owner.name: procedure.privatise(study, procedure.summarise(study, table(above)), noise)
            for owner in study.owners
        }
        if masking_of(procedure, study) is not None:
            in_masks(procedure, study, found)
    except Exception:
        return False
    return True


def told(count: int, noise: OpenDPNoise) -> tuple[int, int]:
    """Return how many studies are taken, and for how many of them rows decide whether they are answered."""
    taken = apart = 0
    for study in searched(count):
        procedure = procedure_named(study.procedure)
        try:
            check_study(procedure, canonical(procedure, study))
            require_units(procedure, study, dict.fromkeys((o.name for o in study.owners), UNITS))
        except StudyError:
            continue
        taken += 1
        apart += len({answered(study, above, noise) for above in (0, 19, 20, UNITS)}) > 1
        assert isinstance(noise, GuardedNoise) or answered(study, 20, noise)
    return taken, apart


def test_many_studies_tell_nothing_by_being_answered_or_not() -> None:
    studies = choose(150, 10_000)
    taken, apart = told(studies, OpenDPNoise())
    assert apart == 0
    assert taken > studies / 4


class GuardedNoise(OpenDPNoise):
    """The planted mistake: noise is refused where a value and 64 scales of it would pass some bound."""

    def gaussian(self, values: npt.NDArray[np.int64], scale: float) -> npt.NDArray[np.int64]:
        if int(np.abs(values).max()) + 64 * scale >= 50 * 2**20:
            raise NoiseError("the values and their noise need more bits than there are")
        return super().gaussian(values, scale)


def test_the_search_finds_a_guard_that_looks_at_values() -> None:
    assert told(400, GuardedNoise())[1] > 0
