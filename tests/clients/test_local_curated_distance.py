"""Distance correlation of columns that one party holds, and the joint test with distances, in one process."""

import numpy as np
import pytest

import tacit.local
from tacit.command.result_view import print_result, result_fields
from tacit.errors import InputError, StudyRefusedError
from tacit.local import CuratedDistanceCorrelationResult
from tacit.results import DecisionResult

N = 3000
RNG = np.random.default_rng(1)
X = RNG.random(N)
Y = (2 * X - 1) ** 2
TRUTH = 0.4887
"""Of a uniform column and its square about the middle; the units' own is within .02 of it."""


def correlated(**options: object) -> CuratedDistanceCorrelationResult:
    return tacit.local.distance_correlation(
        X, Y, epsilon=4.0, delta=1e-5, bounds=(0, 1), mode="curator", seed=1, **options
    )


def test_the_estimate_is_near_the_truth_and_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """The noise's standard deviation on the correlation is below .01: .1 is ten of them."""
    result = correlated()
    assert result.reject
    assert result.distance_correlation == pytest.approx(TRUTH, abs=0.1)
    assert result.interval is not None
    assert result.held_interval is not None
    assert result.interval[0] < result.held_interval[0] < result.held_interval[1] < result.interval[1]
    assert dict(result.n) == {"owner": N}
    assert "dependent at level 0.05" in str(result)
    fields = result_fields(result)
    assert fields["distance_correlation"] == result.distance_correlation
    assert fields["held_interval"] == result.held_interval
    print_result(result)
    shown = capsys.readouterr().out
    assert "depend on each other" in shown
    assert "the decision has no p-value" in shown


@pytest.mark.parametrize("option", [{"method": "pnc"}, {"n_projections": 4}, {"n_features": 4}])
def test_what_the_curator_does_not_take_is_refused(option: dict[str, object]) -> None:
    with pytest.raises(InputError, match="leave out"):
        correlated(**option)


def test_parameters_of_the_curator_are_refused_without_one() -> None:
    with pytest.raises(StudyRefusedError, match="unknown parameter"):
        tacit.local.distance_correlation(X, Y, epsilon=1.0, delta=1e-5, bounds=(0, 1), test=False)


def test_joint_independence_with_distances() -> None:
    """The statistic lies 40 scales of noise above every permuted one."""
    result = tacit.local.joint_independence(
        X[:1000], Y[:1000], epsilon=5.0, bounds=(0, 1), kernel="distance", n_permutations=99, seed=1
    )
    assert isinstance(result, DecisionResult)
    assert result.reject
    assert "distance kernel" in result.method
    for wrong in ({"bandwidth": 0.1}, {"category_similarity": 0.5}):
        with pytest.raises(StudyRefusedError, match="neither bandwidth"):
            tacit.local.joint_independence(X, Y, epsilon=5.0, bounds=(0, 1), kernel="distance", **wrong)
