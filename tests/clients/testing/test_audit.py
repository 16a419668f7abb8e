"""The audit of a procedure: nothing is said against right ones, and planted mistakes are found."""

import math
from typing import Any

import numpy as np
import pytest
from long_runs import choose

from tacit.errors import InputError
from tacit.testing import audit
from tacit_protocol.messages.study import Study
from tacit_protocol.privacy.noise import OpenDPNoise
from tacit_protocol.procedures.base import StudyError
from tacit_protocol.procedures.homogeneity import Homogeneity
from tacit_protocol.procedures.joint_independence import JointIndependence
from tacit_protocol.procedures.kernel_two_sample import KernelTwoSample
from tacit_protocol.procedures.sum_test import Floats, NoisySums, SumTest

COLUMNS = {"before": (60, 220), "after": (60, 220)}
RUNS = choose(100, 1000)


class PairedMean(SumTest):
    """A unit contributes its difference d, scaled to [-1, 1], and d².

    Replacing a unit moves (d, d²) by |d - e| sqrt(1 + (d + e)²) <= 2 in L2, at d = -e = 1, and by
    |d - e| (1 + |d + e|) <= 9/4 in L1, at d = 1 and e = -1/2.
    """

    name = "paired_mean"
    title = "By how much is after larger than before?"
    released = "the sum of its units' differences and that of their squares"
    dimension, l2, l1 = 2, 2.0, 2.25

    def check_columns(self, study: Study) -> None:
        if len(study.domain.numeric) != 2:
            raise StudyError("two numeric columns: before, then after")

    def contribution(self, study: Study, rows: Any) -> Floats:
        difference = rows.numeric[:, 1] - rows.numeric[:, 0]
        return np.column_stack([difference, difference**2])

    def estimate(self, study: Study, sums: NoisySums) -> tuple[float, float]:
        mean, squares = sums.total / sums.units
        spread = max(squares - mean**2, 0.0) + 2 * math.sqrt(sums.noise[1]) / sums.units
        return mean, math.sqrt(sums.units * spread + sums.noise[0]) / sums.units

    def sentences(self, study: Study, verdict: Any) -> tuple[str, str]:
        return f"after is {verdict['estimate']:.3g} above before", "no difference was shown"


@pytest.mark.long
def test_nothing_is_said_against_a_right_one_and_the_search_reaches_its_sensitivity() -> None:
    """A level that is kept is called broken with probability 1e-6, and right noise with 1e-8."""
    found = audit(PairedMean(), COLUMNS, runs=RUNS)
    assert found.problems == ()
    assert set(found.moved) == {"gaussian", "laplace"}
    assert all(0.99 < moved <= 1 for moved in found.moved.values())


class Understated(PairedMean):
    l2, l1 = 1.98, 2.2


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Laws of noise are another test's."""
    monkeypatch.setattr("tacit.testing.procedure_audit._laws", lambda *_: [])


@pytest.mark.usefixtures("quick")
def test_a_sensitivity_one_percent_too_small_is_found_in_either_norm() -> None:
    found = audit(Understated(), COLUMNS, runs=1)
    assert [words.split(":")[0] for words in found.problems] == ["gaussian noise", "laplace noise"]
    assert all(1 < moved < 1.05 for moved in found.moved.values())


class Narrow(PairedMean):
    """The estimate's standard deviation leaves the noise out."""

    def estimate(self, study: Study, sums: NoisySums) -> tuple[float, float]:
        mean, squares = sums.total / sums.units
        return mean, math.sqrt(max(squares - mean**2, 1e-6) / sums.units)


@pytest.mark.usefixtures("quick")
def test_a_level_that_forgets_the_noise_is_found() -> None:
    found = audit(Narrow(), COLUMNS, epsilon=0.2, runs=100)
    assert all(share > 0.3 for share in found.rejected.values())
    assert all("without effect were significant" in words for words in found.problems)
    assert len(found.problems) == 2


class Halved(OpenDPNoise):
    """Draws noise half as wide as releases state."""

    def gaussian(self, values: Any, scale: float) -> Any:
        return super().gaussian(values, scale / 2)

    def laplace(self, values: Any, scale: float) -> Any:
        return super().laplace(values, scale / 2)


@pytest.mark.long
def test_noise_that_is_narrower_than_releases_state_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tacit.testing.procedure_audit.OpenDPNoise", Halved)
    found = audit(PairedMean(), COLUMNS, runs=1)
    assert {"gaussian noise has not the law that releases state: variance"} < set(found.problems)
    assert {"laplace noise has not the law that releases state: variance"} < set(found.problems)


@pytest.mark.usefixtures("quick")
def test_a_built_in_procedure_is_attacked_in_the_same_way() -> None:
    found = audit(Homogeneity(), {"sex": ["f", "m"], "smokes": ["no", "yes"]}, runs=20)
    assert found.problems == ()
    assert found.moved == {"laplace": pytest.approx(1, abs=1e-6)}


def test_noise_that_an_audit_does_not_know_is_refused() -> None:
    with pytest.raises(InputError, match="another"):
        audit(KernelTwoSample(), {"x": (0, 1), "y": (0, 1)}, runs=1)


def test_what_is_not_sums_of_each_owner_is_refused() -> None:
    with pytest.raises((InputError, StudyError)):
        audit(JointIndependence(), {"x": (0, 1), "y": (0, 1)})


@pytest.mark.usefixtures("quick")
def test_a_contribution_out_of_range_or_not_a_number_is_cut_and_breaks_nothing() -> None:
    class Wild(PairedMean):
        def contribution(self, study: Study, rows: Any) -> Floats:
            found = super().contribution(study, rows) * 1e9
            found[0] = np.nan
            return found

    found = audit(Wild(), COLUMNS, runs=1)
    assert all("larger sensitivity" in words for words in found.problems)
