"""Test locations, or frequencies, that a private test would see most with; public inputs only, nothing spent.

The rows used here get no protection: pass a public sample, or a database that was released privately earlier.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from tacit.errors import InputError
from tacit.in_process.samples import ArrayTable, Sample, domain_of, read_samples
from tacit_protocol.domain import Domain
from tacit_protocol.features.mean_embedding import decode_locations
from tacit_protocol.features.optimised_locations import (
    CRITERIA,
    Form,
    FrequencyChoices,
    LocationChoices,
    NoDifferenceError,
    Optimum,
    PlannedTest,
    PublicPair,
    PublicRows,
    optimise,
    pool,
    split_rows,
)
from tacit_protocol.messages.study import LEVEL_MIN, UNITS_MAX
from tacit_protocol.privacy.gaussian_mechanism import SensitivityError, gaussian_guarantee
from tacit_protocol.privacy.guarantee import Budget, GaussianEvent
from tacit_protocol.procedures.curated_two_sample import plan
from tacit_protocol.procedures.curated_two_sample.release import MOMENT_CENTRE_SHARE, balance
from tacit_protocol.procedures.kernel_two_sample import release
from tacit_protocol.procedures.populations import Amounts as Effect
from tacit_protocol.procedures.populations import EffectError, with_effect

NUMBERS_TRIED: Mapping[str, tuple[int, ...]] = {"me": (1, 3, 10), "scf": (2, 6, 20)}
"""Numbers of features tried where none is given: noise grows with their number, as what they see does."""

STARTS: Mapping[str, int] = {"me": 8, "scf": 32}
"""Starts of the ascent; a frequency's gradient does not lead from one peak of the spectrum to another."""

CATEGORY_SIMILARITY = 0.5
"""The procedures' default."""

Features = Literal["me", "scf"]
Setting = Literal["owners", "curator"]
Rows = npt.NDArray[np.int64]


@dataclass(frozen=True)
class OptimisedLocations:
    """Locations and bandwidth, or frequencies, and what they promise.

    Attributes:
        parameters: a study's parameters: pass them as ``kernel_two_sample(..., **parameters)``, or under
            ``[parameters]`` of a draft. Locations are in the columns' own units, frequencies in turns over
            their bounds.
        power: predicted power of the planned test, on the rows held out; optimistic by what the test does
            not know of its own covariance.
        criterion: what was maximised, on the rows held out: the test's shift in standard deviations (form
            "mmd") or the noncentrality ("noise-aware").
        unoptimised: the same where the ascent began.
        n_features: number of features J.
        n: units of the planned test.
        epsilon: budget of the planned test.
        delta: budget of the planned test.
        alpha: level of the planned test.
        held_out_rows: row numbers of the first and the second sample that the ascent did not use.
    """

    parameters: Mapping[str, Any]
    power: float
    criterion: float
    unoptimised: float
    n_features: int
    n: tuple[int, int]
    epsilon: float
    delta: float
    alpha: float
    held_out_rows: tuple[Rows, Rows]


def optimise_locations(
    public_x: Any,
    public_y: Any = None,
    *,
    epsilon: float,
    delta: float,
    n: int | Sequence[int],
    bounds: Any,
    effect: Effect | None = None,
    scale: Effect = 1.0,
    features: Features = "me",
    n_features: int | None = None,
    statistic: Form = "mmd",
    setting: Setting = "owners",
    alpha: float = 0.05,
    columns: Sequence[str] | None = None,
    weights: Sequence[npt.ArrayLike] | None = None,
    training_share: float = 0.5,
    starts: int | None = None,
    seed: int | None = None,
    progress: Callable[[float, str], None] | None = None,
) -> OptimisedLocations:
    """Find where to look: by gradient ascent on the power of the private test that is planned.

    The criterion is that of Jitkrittum et al. (2016) with the privacy noise in it, so that the optimum is
    the private test's. Never pass rows of the test: they would have no guarantee. Rows are split: the ascent
    uses a part, and the best of several starts is chosen on the rest, whose numbers are returned.

    Args:
        public_x: a public sample like the first owner's data, or points of a released database.
        public_y: the same for the second owner; without it ``effect`` or ``scale`` must say what is expected.
        epsilon: what every owner will spend.
        delta: what every owner will spend, greater than 0.
        n: units of each of the two owners; one number stands for both.
        bounds: as in :func:`tacit.local.kernel_two_sample`.
        effect: amount added to numeric columns in the second sample, in their own units; one number or by
            column.
        scale: factor of their spread; one number or by column.
        features: "me" (locations and bandwidth; categorical columns too) or "scf" (frequencies; numeric
            columns alone).
        n_features: number of features J, or None to choose among several by the predicted power.
        statistic: form of the planned test.
        setting: "owners" or "curator": whose noise.
        alpha: level of the planned test.
        columns: names of an array's columns, or which columns of a table to use.
        weights: of the rows of each sample, (rows,), of either sign; weighted rows are not split.
        training_share: part of the rows that the ascent uses, in (0, 1).
        starts: how often to start.
        seed: fixes starts and splits.
        progress: called with the part done, in [0, 1], and the step.

    Raises:
        InputError: the inputs do not fit together; the message says what to change.
    """
    if setting not in ("owners", "curator") or statistic not in CRITERIA:
        raise InputError('setting must be "owners" or "curator", and statistic "mmd" or "noise-aware"')
    if features not in NUMBERS_TRIED or not 0 < training_share < 1 or not LEVEL_MIN <= alpha < 0.5:
        raise InputError('features must be "me" or "scf", training_share in (0, 1) and alpha in (0, 0.5)')
    rng = np.random.default_rng(seed)
    samples, domain = _samples(public_x, public_y, columns=columns, bounds=bounds, effect=effect, scale=scale)
    if features == "scf" and domain.categorical:
        raise InputError("scf features take numeric columns alone: choose them, or use features='me'")
    public, held_out_rows = _public_pair(
        samples, domain, weights, share=training_share, paired=public_y is None, rng=rng
    )
    planned = _planned_test(epsilon, delta, _sizes(n), statistic, setting)
    numbers = NUMBERS_TRIED[features] if n_features is None else (n_features,)
    found: list[tuple[Optimum, dict[str, Any]]] = []
    for index, number in enumerate(numbers):
        choices = _choices(features, number, public, domain, rng)

        def report(part: float, index: int = index, number: int = number) -> None:
            if progress is not None:
                progress((index + part) / len(numbers), f"optimising {number} features")

        try:
            optimum = optimise(
                choices,
                public,
                planned,
                level=alpha,
                starts=starts or STARTS[features],
                rng=rng,
                progress=report,
            )
        except NoDifferenceError as error:
            raise InputError(f"{error}: pass samples that differ, or an effect") from error
        found.append((optimum, _parameters(choices, optimum, domain, statistic)))
    best, parameters = max(found, key=lambda one: one[0].power)
    return OptimisedLocations(
        parameters=parameters,
        power=best.power,
        criterion=best.held_out,
        unoptimised=best.unoptimised,
        n_features=len(parameters["locations"]) if features == "me" else 2 * len(parameters["frequencies"]),
        n=planned.units,
        epsilon=epsilon,
        delta=delta,
        alpha=alpha,
        held_out_rows=held_out_rows,
    )


def _sizes(n: int | Sequence[int]) -> tuple[int, int]:
    sizes = (n, n) if isinstance(n, int) else tuple(n)
    if len(sizes) != 2 or not 1 <= min(sizes) <= max(sizes) <= UNITS_MAX:
        raise InputError(f"n must be one positive number, or two, of {UNITS_MAX} at most")
    return sizes[0], sizes[1]


def _samples(
    public_x: Any,
    public_y: Any,
    *,
    columns: Sequence[str] | None,
    bounds: Any,
    effect: Effect | None,
    scale: Effect,
) -> tuple[tuple[Sample, Sample], Domain]:
    if public_y is not None and (effect is not None or scale != 1.0):
        raise InputError("pass a second public sample, or an effect or a scale on the first; not both")
    if public_y is None and effect is None and scale == 1.0:
        raise InputError("say what is expected: a second public sample, effect= or scale=")
    read = read_samples([public_x] if public_y is None else [public_x, public_y], columns)
    domain = domain_of(bounds, list(read[0].columns))
    if public_y is not None:
        return (read[0], read[1]), domain
    rows = read[0].within(domain)
    try:
        shifted = with_effect(rows, rows, domain, 0.0 if effect is None else effect, scale)
    except EffectError as error:
        raise InputError(str(error)) from None
    return (read[0], Sample(shifted)), domain


def _public_pair(
    samples: tuple[Sample, Sample],
    domain: Domain,
    weights: Sequence[npt.ArrayLike] | None,
    *,
    share: float,
    paired: bool,
    rng: np.random.Generator,
) -> tuple[PublicPair, tuple[Rows, Rows]]:
    if weights is not None and (len(weights) != 2 or paired):
        raise InputError("weights must be two arrays, one for each of two samples")
    given = (None, None) if weights is None else weights
    try:
        x, y = (_encoded(one, domain, weight) for one, weight in zip(samples, given, strict=True))
    except (TypeError, ValueError) as error:
        raise InputError(str(error)) from error
    if not (x.sample and y.sample):
        every = np.arange(len(x)), np.arange(len(y))
        return PublicPair((x, y), (x, y)), (every[0][:0], every[1][:0])
    if min(len(x), len(y)) < 4:
        raise InputError("a public sample needs at least four rows")
    fit_x, held_x = split_rows(len(x), share, rng)
    fit_y, held_y = (fit_x, held_x) if paired else split_rows(len(y), share, rng)
    fit, held = (x.take(fit_x), y.take(fit_y)), (x.take(held_x), y.take(held_y))
    return PublicPair(fit, held, paired), (held_x, held_y)


def _encoded(sample: Sample, domain: Domain, weights: npt.ArrayLike | None) -> PublicRows:
    chunks = list(ArrayTable.of(sample, domain).chunks())
    numeric = np.ascontiguousarray(np.concatenate([chunk.numeric for chunk in chunks]))
    codes = np.concatenate([chunk.categorical for chunk in chunks])
    return PublicRows.of(numeric, codes, None if weights is None else np.asarray(weights, dtype=np.float64))


def _planned_test(
    epsilon: float, delta: float, sizes: tuple[int, int], form: Form, setting: Setting
) -> PlannedTest:
    try:
        guarantee = gaussian_guarantee(Budget.of(epsilon, delta))
    except (SensitivityError, ValueError, ArithmeticError) as error:
        raise InputError(f"epsilon and delta: {error}") from error
    multiplier = next(e.noise_multiplier for e in guarantee.events if isinstance(e, GaussianEvent))
    x, y = sizes
    share = plan.MEAN_SHARE if setting == "curator" else release.MEAN_SHARE
    mean, moment = multiplier / math.sqrt(share), multiplier / math.sqrt(1 - share)
    if setting == "curator":
        # One draw on the difference, and one on the second moment of both samples together.
        difference = balance(sizes, MOMENT_CENTRE_SHARE).difference
        return PlannedTest(form, sizes, mean * difference, moment / (x + y))
    # Weighted by units, the owners' second moments carry sqrt(2) / (n_x + n_y) of the noise.
    return PlannedTest(form, sizes, mean * math.hypot(1 / x, 1 / y), moment * math.sqrt(2) / (x + y))


def _choices(
    features: Features, number: int, public: PublicPair, domain: Domain, rng: np.random.Generator
) -> LocationChoices | FrequencyChoices:
    if number < 1:
        raise InputError("n_features must be at least 1")
    columns = len(domain.numeric)
    if features == "scf":
        return FrequencyChoices(columns, max(1, number // 2))
    pooled = pool(*public.fit)
    return LocationChoices(columns, pooled.categorical[pooled.draw(number, rng)], CATEGORY_SIMILARITY)


def _parameters(
    choices: LocationChoices | FrequencyChoices, optimum: Optimum, domain: Domain, statistic: Form
) -> dict[str, Any]:
    form = {} if statistic == "mmd" else {"statistic": statistic}
    if isinstance(choices, FrequencyChoices):
        return {"features": "scf", "frequencies": choices.split(optimum.choices).tolist(), **form}
    locations, bandwidth = choices.split(optimum.choices)
    rows = [list(row.values()) for row in decode_locations(domain, locations)]
    return {"features": "me", "locations": rows, "bandwidth": bandwidth, **form}
