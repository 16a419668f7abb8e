"""Which features a two-sample study uses: its public parameters, and the maps that they stand for.

Every procedure that compares means of features takes the same choices, here in one place.
"""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from tacit_protocol.domain import Domain
from tacit_protocol.features.additive import AdditiveChoice, AdditiveFeatures, default_choice
from tacit_protocol.features.base import FeatureMap
from tacit_protocol.features.kernels import ProductKernel
from tacit_protocol.features.mean_embedding import (
    BANDWIDTH_POINTS,
    FREQUENCY_MAX,
    RawMeanEmbedding,
    SmoothCharacteristic,
    WhitenedMeanEmbedding,
    draw_frequencies,
    draw_locations,
    encode_locations,
    median_distance,
)
from tacit_protocol.strict import StrictModel

PAIR_SHARE = 0.3
"""Squared weight of the pairwise block in the default features, and its part of the level."""

FEATURES_DEFAULT = 40
"""Number of locations of the ME features, and coordinates of the SCF ones, where the study names none."""

FEATURES_MAX = 200
"""Most ME or SCF coordinates: a second moment then has 20 100 entries."""

Frequency = Annotated[float, Field(ge=-FREQUENCY_MAX, le=FREQUENCY_MAX)]
LocationRow = Annotated[tuple[float | str | None, ...], Field(min_length=1, max_length=1000)]
FrequencyRow = Annotated[tuple[Frequency, ...], Field(min_length=1, max_length=1000)]


class FeatureParameters(StrictModel):
    """What a study may choose of mean embeddings (me), smooth characteristics (scf) and columns.

    Studies that do not state ``window`` or ``effects``, as those from before there were any, have none.
    """

    added_fields: ClassVar[frozenset[str]] = frozenset({"window", "effects"})

    kernel: Literal["gaussian", "laplacian"] = Field(
        "gaussian", description="The kernel's shape, of me; laplacian sees finer structure."
    )
    n_features: Annotated[int, Field(ge=1, le=FEATURES_MAX)] | None = Field(
        None, description="Number of features of me and scf."
    )
    bandwidth: Annotated[float, Field(gt=1e-3, le=1e3)] | None = Field(
        None,
        description=(
            "Of me and scf, in units of the scaled columns; by default the locations' median distance."
        ),
    )
    category_similarity: Annotated[float, Field(ge=0, lt=1)] = Field(
        0.5, description="Kernel value of two rows that differ in one category."
    )
    locations: Annotated[tuple[LocationRow, ...], Field(min_length=1, max_length=FEATURES_MAX)] | None = (
        Field(
            None,
            description="Public rows, one value per column in its own units, in place of drawn ones (me).",
        )
    )
    frequencies: (
        Annotated[tuple[FrequencyRow, ...], Field(min_length=1, max_length=FEATURES_MAX // 2)] | None
    ) = Field(None, description="Public frequencies, one value per column, in place of drawn ones (scf).")
    window: Annotated[float, Field(ge=1e-2, le=1e3)] | None = Field(
        None,
        description=(
            "Standard deviation of the Gaussian window around the middle of the scaled columns; none by "
            "default (scf)."
        ),
    )
    cycles: (
        Annotated[tuple[Annotated[float, Field(gt=0, le=64)], ...], Field(min_length=1, max_length=16)] | None
    ) = Field(None, description="Frequencies in turns over a column's bounds (auto and columns).")
    pair_share: Annotated[float, Field(ge=0, lt=1)] = Field(
        PAIR_SHARE, description="Part of the level and of the weight that goes to pairs of columns (auto)."
    )
    effects: Literal["none", "shares", "units"] = Field(
        "none",
        description=(
            "Effects that the verdict states (auto and columns): none; of categories' shares; or units, also "
            "of numeric columns, whose features then hold their means and squares. New studies state it."
        ),
    )


def effects_by_default(domain: Domain, features: str, cycles: object) -> Mapping[str, str]:
    """Return the effects that a new study states: all that its features can tell."""
    if features not in ("auto", "columns"):
        return {}
    if domain.numeric and cycles is None:
        return {"effects": "units"}
    return {"effects": "shares"} if domain.categorical else {}


def acting_parameters(features: str, parameters: FeatureParameters) -> dict[str, bool]:
    """Say of every parameter of the features whether it acts on features of that name."""
    kernel = features in ("me", "scf")
    return {
        "cycles": features in ("auto", "columns") and parameters.effects != "units",
        "effects": features in ("auto", "columns"),
        "pair_share": features == "auto",
        "kernel": features == "me",
        "category_similarity": features == "me",
        "locations": features == "me",
        "frequencies": features == "scf",
        "window": features == "scf",
        "n_features": kernel and parameters.frequencies is None,
        "bandwidth": kernel and parameters.frequencies is None,
    }


def idle_parameter(parameters: StrictModel, acting: dict[str, bool]) -> str | None:
    """Return the first parameter that is set although it does not act: whoever sets it expects it to."""
    fields = type(parameters).model_fields
    return next(
        (
            name
            for name, acts in acting.items()
            if not acts and getattr(parameters, name) != fields[name].default
        ),
        None,
    )


def additive_features(domain: Domain, parameters: FeatureParameters, *, pairs: bool) -> AdditiveFeatures:
    """Build the column-wise features and, where ``pairs``, the pairwise ones."""
    numeric = len(domain.numeric)
    categories = tuple(column.categories for column in domain.categorical)
    choice = default_choice(
        numeric,
        categories,
        parameters.pair_share if pairs else 0.0,
        moments=numeric > 0 and parameters.effects == "units",
    )
    if parameters.cycles is not None:
        weights = (1.0,) * len(parameters.cycles)
        choice = AdditiveChoice(parameters.cycles, weights, parameters.cycles[:1], choice.pair_share)
    return AdditiveFeatures(numeric, categories, choice)


def kernel_features(
    domain: Domain,
    parameters: FeatureParameters,
    name: Literal["me", "scf"],
    rng: np.random.Generator,
    *,
    raw: bool,
) -> FeatureMap:
    """Build ME or SCF features; ``rng`` draws locations or frequencies that the parameters do not give.

    ``raw`` leaves out whitening and scaling, as P0 does. Raises ValueError where the parameters do not fit
    the domain.
    """
    build = mean_embedding if name == "me" else smooth_characteristic
    return build(domain, parameters, rng, raw=raw)


def mean_embedding(
    domain: Domain, parameters: FeatureParameters, rng: np.random.Generator, *, raw: bool
) -> FeatureMap:
    """Build ME features. Raises ValueError where the locations do not fit the domain."""
    if parameters.locations is None:
        locations = draw_locations(domain, parameters.n_features or FEATURES_DEFAULT, rng)
    else:
        locations = encode_locations(domain, parameters.locations)
    bandwidth = parameters.bandwidth or median_distance(locations.numeric)
    kernel = ProductKernel(parameters.kernel, bandwidth, parameters.category_similarity)
    return RawMeanEmbedding(kernel, locations) if raw else WhitenedMeanEmbedding(kernel, locations)


def smooth_characteristic(
    domain: Domain, parameters: FeatureParameters, rng: np.random.Generator, *, raw: bool
) -> FeatureMap:
    """Build SCF features, their coordinates in pairs.

    Raises ValueError for categorical columns, and where a frequency has not one value per column.
    """
    if domain.categorical:
        raise ValueError("smooth characteristic features take numeric columns alone")
    if parameters.frequencies is not None:
        if any(len(row) != len(domain.numeric) for row in parameters.frequencies):
            raise ValueError("every frequency needs one value per column")
        turns = np.array(parameters.frequencies, dtype=np.float64)
        return SmoothCharacteristic(2 * np.pi * turns, parameters.window, raw=raw)
    points = draw_locations(domain, BANDWIDTH_POINTS, rng).numeric
    bandwidth = parameters.bandwidth or median_distance(points)
    pairs = max(1, (parameters.n_features or FEATURES_DEFAULT) // 2)
    frequencies = draw_frequencies(len(domain.numeric), pairs, bandwidth, rng)
    return SmoothCharacteristic(frequencies, parameters.window, raw=raw)
