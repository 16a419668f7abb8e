"""The audit of releases would catch the mistakes that distance correlation in one place invites."""

import numpy as np
import pytest
from curated_distance_cases import CASES
from joint_independence_cases import CASES as JOINT
from release_audit import largest_move

from tacit_protocol.features.kernels import DistanceKernel
from tacit_protocol.privacy.gaussian_mechanism import SumPart
from tacit_protocol.procedures.curated_distance_correlation import release

Floats = np.typing.NDArray[np.float64]


def is_caught(name: str) -> bool:
    moved, allowed = largest_move(CASES[name])
    beyond = 1 + 1e-9
    return moved.gaussian > allowed.gaussian * beyond or moved.laplace > allowed.laplace * beyond


def test_without_a_mistake_nothing_is_caught() -> None:
    assert not any(is_caught(name) for name in ("2 numbers", "2 numbers, with the test", "2 categories"))


def test_sensitivities_two_percent_too_small_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    stated = release.deviation_sensitivity
    monkeypatch.setattr(release, "deviation_sensitivity", lambda units: 0.98 * stated(units))
    assert is_caught("2 numbers")


def test_sensitivities_of_the_squares_to_first_order_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """27/32 belongs to the squared variance; its root moves by 2."""
    monkeypatch.setattr(release, "deviation_sensitivity", lambda units: 27 / 32 / units)
    assert is_caught("2 numbers")


def test_each_root_calibrated_as_if_alone_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = release.release_parts

    def alone(*arguments: object) -> tuple[SumPart, ...]:
        return tuple(
            SumPart(part.name, part.sums, part.exponent, part.sensitivity, 1.0)
            for part in parts(*arguments)  # type: ignore[arg-type]
        )

    monkeypatch.setattr(release, "release_parts", alone)
    assert is_caught("2 numbers")


def test_the_decision_calibrated_to_the_data_as_they_are_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Permuted data move by 4/n, twice as much."""
    monkeypatch.setattr(
        release,
        "permuted_sensitivity",
        lambda units, _: release.deviation_sensitivity(units),
    )
    assert is_caught("2 numbers, with the test")


def test_an_origin_far_from_the_data_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """With o at 3/2 of everything k is up to 3, and three variables move by too much."""
    right = DistanceKernel._induced

    def farther(x: Floats, t: Floats) -> Floats:
        return right(x, t) + 2

    def moved_to_allowed() -> float:
        moved, allowed = largest_move(JOINT["3 variables, distances"])
        return moved.laplace / allowed.laplace

    assert moved_to_allowed() <= 1
    monkeypatch.setattr(DistanceKernel, "_induced", staticmethod(farther))
    assert moved_to_allowed() > 1
