"""Noise and features that suit a study of the kernel two-sample test, from public numbers alone."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from tacit_protocol.features.cell_means import CELLS_DEFAULT, FINE_CELLS
from tacit_protocol.messages.study import Study
from tacit_protocol.privacy.guarantee import COORDINATES_MAX
from tacit_protocol.procedures.base import units_declared
from tacit_protocol.procedures.kernel_two_sample.plan import ColumnMeans, two_sample_plan
from tacit_protocol.procedures.two_sample.release import FINE_PART, OF_THE_TEST

SAMPLING = 0.25
"""Standard deviation of a typical column's coordinate, as a part of its span, before division by sqrt n."""

GAUSSIAN_FROM = (0.5, 1.4)
"""Gaussian noise is taken from where it is so many times sampling's standard deviation: in studies of one
column, which gain finer features, and of several, which gain pairs of columns that few features lack."""

FINER_FROM = 0.33
"""K-norm noise buys more cells as long as it stays below this part of sampling's standard deviation."""

FEW_TO = 1.4
"""Few features are taken up to so many times the noise of many: there are fewer to correct for, and steeper
ones. In simulations of a shift in one column of 20 they see more, of 30, at 1.5 times the noise, as much."""


RESOLUTIONS = (4, 5, 8, 12, 16, 24, 32, 48, 64)
"""Numbers of cells of a numeric column that are chosen from."""

PAIR_RESOLUTIONS = (4, 5, 8, 12, 16)
"""The same where pairs of columns are compared: their tables have the square of as many."""

PAIR_NUMBERS_MAX = 1000
"""Most cells of all pairs together with which a default compares them."""

PAIRS_TO = 1.4
"""Pairs of columns are compared where noise is at most so many times sampling's: as Gaussian noise is taken,
for the same gain."""


FINE_UNITS = 100
"""Fine cells are bought where units times their epsilon, for each numeric column, are so many: fewer units
cannot be told from their noise."""

FINE_TO = 0.5
"""And where the other noise stays below this part of sampling's all the same."""


def defaults_of(study: Study, units: Mapping[str, int] | None = None) -> Mapping[str, Any]:
    """Return the noise and features that suit numbers of units, where the study leaves both.

    Without ``units`` it is K-norm noise where there is no delta, of the units if all owners declare them.
    """
    given, declared = study.parameters, units_declared(study)
    known = min(declared.values()) if len(declared) == len(study.owners) else None
    if units is not None and leaves_noise(study):
        fitting = fitting_noise(study, min(units.values()))
        if fitting:
            return fitting
    if given.get("noise") == "k-norm":
        return cells_by_default(study, known)
    if study.budget.delta_pico == 0 and leaves_noise(study):
        if known is not None:
            return fitting_noise(study, known)
        return {"noise": "k-norm", **cells_by_default(study, None)}
    return {}


def cells_by_default(study: Study, units: int | None) -> dict[str, str | int]:
    """Return the cells that suit K-norm noise, with so many units if known, as parameters.

    The most cells whose noise is at most FINER_FROM of sampling's; pairs of two columns, and of more where
    noise with them is at most PAIRS_TO of sampling's; fine cells where FINE_UNITS and FINE_TO say so.
    """
    sampling = np.inf if units is None else SAMPLING / np.sqrt(units)
    numeric, levels = len(study.domain.numeric), [len(c.levels) for c in study.domain.categorical]
    columns = numeric + len(levels)

    def noise(features: str, resolution: int, *, fine: bool = False) -> float:
        asked = {"noise": "k-norm", "features": features, "resolution": resolution, "fine_cells": fine}
        return _relative_noise(study.model_copy(update={"parameters": asked}), units or 1)

    def numbers(resolution: int) -> int:
        sizes = [resolution] * numeric + [count + 1 for count in levels]
        return (sum(sizes) ** 2 - sum(size**2 for size in sizes)) // 2

    least = PAIR_RESOLUTIONS[0]
    pairs = columns > 1 and numbers(least) <= PAIR_NUMBERS_MAX
    if pairs and (columns > PAIRED or units is not None):
        pairs = units is not None and noise("auto", least) <= PAIRS_TO * sampling
    features, choices = ("auto", PAIR_RESOLUTIONS) if pairs else ("columns", RESOLUTIONS)
    chosen = choices[0] if pairs or units is not None else CELLS_DEFAULT
    if not numeric:
        return {"features": features}
    fine = (
        units is not None
        and units * study.budget.epsilon / FINE_PART >= FINE_UNITS * numeric
        and FINE_CELLS * numeric <= COORDINATES_MAX // 2
        and bool(noise(features, choices[0], fine=True) <= FINE_TO * sampling)
    )
    for resolution in choices[1:] if units is not None else ():
        if pairs and numbers(resolution) > PAIR_NUMBERS_MAX:
            break
        if noise(features, resolution, fine=fine) <= FINER_FROM * sampling:
            chosen = resolution
    stated: dict[str, str | int] = {"features": features, "resolution": chosen}
    return stated | {"fine_cells": True} if fine else stated


PAIRED = 2
"""Columns whose pair is compared where numbers of units are not known: it costs their own test little."""


def leaves_noise(study: Study) -> bool:
    """Say whether a study leaves it open what is released: noise and features."""
    return not set(study.parameters) - OF_THE_TEST


def fitting_noise(study: Study, units: int) -> dict[str, str | int]:
    """Return the noise, and its resolution, that suit a study of so many units an owner, as parameters.

    From public numbers alone: units, budget, columns and their kinds. Nothing where it is Gaussian noise with
    the many features of auto. The noise that counts is that on a coordinate, as a part of its span.
    """
    sampling = SAMPLING / np.sqrt(units)
    numeric = len(study.domain.numeric)
    levels = tuple(len(column.levels) for column in study.domain.categorical)
    gaussian = np.inf
    if study.budget.delta_pico:
        gaussian = _relative_noise(study.model_copy(update={"parameters": {}}), units)
        if gaussian <= GAUSSIAN_FROM[numeric + len(levels) > 1] * sampling:
            return {}
    chosen: dict[str, str | int] = {"noise": "k-norm", **cells_by_default(study, units)}
    few = _relative_noise(study.model_copy(update={"parameters": chosen}), units)
    return chosen if few < FEW_TO * gaussian else {}


def _relative_noise(study: Study, units: int) -> float:
    """Return the noise on the columns' foremost coordinates, as a part of their spans: the largest."""
    plan = two_sample_plan(study)
    if not isinstance(plan, ColumnMeans):
        raise TypeError("only features of columns have coordinates with spans")
    span = {"P1": 2.0, "category": 1.0}
    spans = [span[c.part] * c.scale for c in plan.features.column_wise.coordinates if c.part in span]
    return plan.mean_noise(units) / min(spans)
