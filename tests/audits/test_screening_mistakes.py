"""The audit of releases would catch the mistakes that a joint sketch of many columns invites."""

from dataclasses import replace
from typing import Any

import pytest
from release_audit import largest_move
from screening_cases import CASES

from tacit_protocol.features import sketches
from tacit_protocol.features.brownian import BrownianFeatures
from tacit_protocol.privacy.gaussian_mechanism import SumPart


def is_caught(name: str) -> bool:
    moved, allowed = largest_move(CASES[name])
    return moved.gaussian > allowed.gaussian * (1 + 1e-9)


def test_without_a_mistake_nothing_is_caught() -> None:
    assert not is_caught("3 columns")


def test_noise_for_one_column_alone_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A person has all of the columns."""
    monkeypatch.setattr(sketches, "_root_of_squares", max)
    assert is_caught("3 columns")


def test_a_diameter_a_tenth_too_small_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BrownianFeatures, "diameter", property(lambda self: 0.9))
    assert is_caught("3 columns")


def test_a_mean_that_costs_nothing_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mean calibrated to the whole budget, as if the sketch were not released."""
    right = sketches.SumPart

    def planted(name: str, *fields: Any) -> SumPart:
        part = right(name, *fields)
        return replace(part, share=1.0) if name == "mean" else part

    monkeypatch.setattr(sketches, "SumPart", planted)
    assert is_caught("3 columns")
