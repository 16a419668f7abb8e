"""Power by simulation: whole studies of synthetic data through the procedures' own code.

The procedure computes features, release, null distribution and decision as in the services. Only the noise
is NumPy's by default, of the same law, and protects nobody: ``real_noise`` draws OpenDP's. Of tests on counts
statistics alone are simulated, and several studies share a null distribution (docs/mathematics/planning.md).
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import betaincinv, ndtri, stdtrit

from tacit.errors import InputError, StudyRefusedError
from tacit.in_process.runner import budget_of, run, seed_text
from tacit.planning.questions import Question, population_of
from tacit_protocol.messages.study import LEVEL_MIN, UNITS_MAX, Study
from tacit_protocol.privacy.k_norm_mechanism import ProductBody, simulated_k_norm
from tacit_protocol.privacy.noise import NoiseSource, OpenDPNoise
from tacit_protocol.procedures.base import Progress
from tacit_protocol.procedures.populations import NULL_DRAWS_MAX, null_draws

Interval = tuple[float, float]

ERROR = 0.05
"""Error probability of every interval that a plan states."""


def exact_interval(found: int, runs: int) -> Interval:
    """Return Clopper and Pearson's interval of confidence .95 for a probability, from ``found`` of ``runs``.

    It covers with that probability at least, whatever the truth; and where all or none were found it has a
    width (Biometrika 26, 1934). Wilson's interval is narrower, but covers so often on average alone: near
    powers of 0 and 1 it may cover less than .84 (Agresti and Coull, American Statistician 52, 1998).

    >>> low, high = exact_interval(18, 18)
    >>> round(low, 3), high
    (0.815, 1.0)
    """
    low = float(betaincinv(found, runs - found + 1, ERROR / 2)) if found else 0.0
    high = float(betaincinv(found + 1, runs - found, 1 - ERROR / 2)) if found < runs else 1.0
    return low, high


def percent(share: float) -> str:
    """Write a share as a percentage of two digits."""
    return f"{float(f'{100 * share:.2g}'):g} %"


def number(value: float) -> str:
    """Write a number as people do: 2 000 000 and not 2e+06."""
    return f"{value:,.0f}".replace(",", " ") if value >= 10_000 else f"{value:.6g}"


def interval_words(interval: Interval, scale: float = 1.0) -> str:
    """Write an interval's ends to two digits of its width, rounded away from each other."""
    low, high = (scale * end for end in interval)
    digits = max(0, 1 - math.floor(math.log10(high - low))) if high > low else 3
    unit = 10**digits
    ends = math.floor(low * unit) / unit, math.ceil(high * unit) / unit
    return f"{ends[0]:g} to {ends[1]:g}"


def units_words(n: tuple[int, ...]) -> str:
    """Say how many units the owners have."""
    if len(n) == 1:
        return f"{number(n[0])} units"
    if len(set(n)) == 1:
        return f"{number(n[0])} units each"
    return f"{', '.join(number(units) for units in n[:-1])} and {number(n[-1])} units"


def setting_words(plan: "PlanOutcome") -> str:
    """Say what a study has: the beginning of a sentence."""
    return f"With {units_words(plan.n)} and epsilon {plan.epsilon:g}"


def outcome_words(found: int, runs: int) -> str:
    """Say in how many simulated studies an effect was found, and how sure that is."""
    between = interval_words(exact_interval(found, runs))
    return f"in {found} of {runs} simulated studies (95 % interval {between})"


def error_words(procedure: str, error: float, runs: int, interval: Interval | None) -> str:
    """Say how far a release was off in so many simulated studies, and how sure that is."""
    said = population_of(procedure).off.format(percent(error))
    if interval is None:
        studies = "study, which leaves" if runs == 1 else "studies, which leave"
        return f"{said} in {runs} simulated {studies} no interval"
    between = interval_words(interval, 100)
    return f"{said} on average over {runs} simulated studies (95 % interval {between} %)"


Integers = npt.NDArray[np.int64]


class SimulatedNoise:
    """A noise source whose noise has the law of OpenDP's, from a seeded generator.

    Laplace noise is the discrete law itself, a difference of two geometric draws. Gaussian noise is rounded
    to the grid, where production draws the discrete law; releases refuse standard deviations of so few grid
    steps that the difference would count (docs/mathematics/planning.md).
    """

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng

    def gaussian(self, values: Integers, scale: float) -> Integers:
        """Add Gaussian noise of standard deviation ``scale`` (in integer steps) to each value."""
        return values + np.rint(self._rng.normal(0.0, scale, values.shape)).astype(np.int64)

    def laplace(self, values: Integers, scale: float) -> Integers:
        """Add discrete Laplace noise of that scale (in integer steps) to each value."""
        stop = -math.expm1(-1.0 / scale)
        return values + self._rng.geometric(stop, values.shape) - self._rng.geometric(stop, values.shape)

    def k_norm(self, values: Integers, scale: float, body: ProductBody) -> Integers:
        """Add noise whose probability falls with a body's norm, rounded to the grid."""
        return simulated_k_norm(values, scale, body, self._rng)

    def choose(self, scores: Integers, scale: float) -> int:
        """Return i with probability proportional to exp(scores[i] / scale)."""
        return int(np.argmax(scores / scale + self._rng.gumbel(size=scores.shape)))

    def uniform(self, count: int) -> npt.NDArray[np.uint64]:
        """Return ``count`` integers, uniform in 0..2**64 - 1."""
        return self._rng.integers(0, 2**64, count, dtype=np.uint64)


RUNS = 100
"""Simulated studies by default: an interval of .1 to either side at most."""

NULL_PART, STUDIES_MAX = 0.2, 50
"""Of the variance of a share of rejections, what null distributions add that its studies have in common; and
most studies that have one in common: a study draws it from its own noisy table."""

NULLS_SEARCHED = 2
"""Null distributions of each setting that a search tries: they add as much as studies' own variance."""

ROWS_MAX = 5_000_000
"""Most units of an owner whose rows are drawn: more would not fit a common machine's memory."""

RUNS_MAX = 100_000
"""Most simulated studies: more would take days and say nothing more."""

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Setting:
    """What a study of a question has: each owner's units, its budget and its level."""

    n: tuple[int, ...]
    epsilon: float
    delta: float
    alpha: float

    def study(self, question: Question, seed: str) -> Study:
        """Return the question's study with this budget, level and seed, as it is run with these units.

        Raises:
            InputError: there is no such study; the message says what to change.
        """
        if not LEVEL_MIN <= self.alpha < 0.5:
            raise InputError(f"alpha must lie in (0, 0.5), and be {LEVEL_MIN:g} at least")
        budget = budget_of(self.epsilon, self.delta)
        found = question.study.model_copy(update={"budget": budget, "level": self.alpha, "seed": seed})
        return question.of_units(found, self.n)


@dataclass(frozen=True)
class PlanOutcome:
    """What every plan of one setting states.

    Attributes:
        runs: number of simulated studies.
        interval: of confidence .95 for the estimate, as far as so many simulated studies tell: of power that
            of Clopper and Pearson, which covers it with that probability at least; of an error Student's, or
            None where all studies had the same.
        n: privacy units of each owner.
        epsilon: what every owner would spend.
        delta: what every owner would spend.
        alpha: level of the test.
        procedure: its name.
        effect: what a study should find, in words.
        parameters: the procedure's.
        warnings: what the procedure says of a study of this size; first, where a public sample is skewed or
            its bounds are much wider than it, which other procedure to plan.
    """

    runs: int
    interval: Interval | None
    n: tuple[int, ...]
    epsilon: float
    delta: float
    alpha: float
    procedure: str
    effect: str
    parameters: Mapping[str, Any]
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class PowerPlan(PlanOutcome):
    """Estimated power: the share of simulated studies that found the effect.

    Attributes:
        power: share of rejections, in [0, 1]; of screening the share that found the dependent column.
        found: how many of the simulated studies that are.
    """

    power: float
    found: int

    def words(self) -> str:
        """Say the plan in one plain sentence."""
        return f"{setting_words(self)} the test finds {self.effect} {outcome_words(self.found, self.runs)}."


@dataclass(frozen=True)
class ErrorPlan(PlanOutcome):
    """Estimated error of a release that tests nothing.

    Attributes:
        error: noisy_counts: how far the worst cell of an owner's table is off, as a share of its units.
            embedding_release: how far columns are off, one with another: a numeric one's mean, as a part of
            its range; a categorical one's shares, in total variation. The simulated studies' mean, of the
            noise and the method and not of sampling.
    """

    error: float

    def words(self) -> str:
        """Say the plan in one plain sentence."""
        said = error_words(self.procedure, self.error, self.runs, self.interval)
        return f"{setting_words(self)} {said}."


Plan = PowerPlan | ErrorPlan


def mean_interval(values: Floats) -> Interval | None:
    """Return Student's interval of confidence .95 for a mean that is not negative; None where none varies."""
    runs = len(values)
    spread = float(values.std(ddof=1)) / math.sqrt(runs) if runs > 1 else 0.0
    if spread == 0:
        return None
    reach = float(stdtrit(runs - 1, 1 - ERROR / 2)) * spread
    return max(0.0, float(values.mean()) - reach), float(values.mean()) + reach


def sizes_of(n: int | Sequence[int], question: Question) -> tuple[int, ...]:
    """Return each owner's units; one number stands for all of them.

    Raises:
        InputError: they are not positive whole numbers, one for each owner.
    """
    owners = len(question.study.owners)
    sizes = (n,) * owners if isinstance(n, int) else tuple(n)
    whole = all(isinstance(size, int) and not isinstance(size, bool) and size >= 1 for size in sizes)
    if not whole or len(sizes) != owners:
        raise InputError(f"n must be one positive number, or one for each of the {owners} owners")
    most = UNITS_MAX if question.population.counted else ROWS_MAX
    if max(sizes) > most:
        raise InputError(f"n: a plan of this procedure draws {most} units of an owner at most")
    return sizes


@dataclass(frozen=True)
class SimulatedAnswers:
    """What each simulated study answered, (runs,); ``refused`` says why none could be run, or is empty."""

    question: Question
    setting: Setting
    values: Floats
    seed_of_warnings: str
    refused: str = ""
    independent: float = 1.0
    """Which part of them counts as independent: studies that share few null distributions share an error."""

    @property
    def mean(self) -> float:
        """The estimate: of power, or of error."""
        return float(self.values.mean())

    @property
    def found(self) -> int:
        """How many studies found the effect."""
        return round(float(self.values.sum()))

    @property
    def interval(self) -> Interval | None:
        """Interval of confidence .95 for the mean; a study that is refused has no power for sure."""
        if self.refused:
            return 0.0, 0.0
        if self.question.measures_error:
            return mean_interval(self.values)
        return exact_interval(self.found, len(self.values))

    def with_more(self, more: "SimulatedAnswers") -> "SimulatedAnswers":
        """Return these and the answers of other simulated studies of the same setting."""
        return replace(self, values=np.concatenate([self.values, more.values]))

    @cached_property
    def study(self) -> Study:
        """The study as it is run, but for its public seed."""
        return self.setting.study(self.question, self.seed_of_warnings)

    @cached_property
    def warnings(self) -> tuple[str, ...]:
        """What the procedure says of a study of this size, and of what else to plan."""
        units = dict(zip([owner.name for owner in self.study.owners], self.setting.n, strict=True))
        return (*self.question.by_ranks, *self.question.procedure.warnings(self.study, units))

    def plan(self) -> Plan:
        """Return the estimate as a plan."""
        setting, study = self.setting, self.study
        stated: dict[str, Any] = {
            "runs": len(self.values),
            "interval": self.interval,
            "n": setting.n,
            "epsilon": setting.epsilon,
            "delta": setting.delta,
            "alpha": setting.alpha,
            "procedure": study.procedure,
            "effect": self.question.effect_words(),
            "parameters": study.parameters,
            "warnings": self.warnings,
        }
        if self.question.measures_error:
            return ErrorPlan(error=self.mean, **stated)
        return PowerPlan(power=self.mean, found=self.found, **stated)


def simulate(
    question: Question,
    setting: Setting,
    *,
    runs: int,
    seed: int | None,
    progress: Progress | None = None,
    real_noise: bool = False,
    rough: bool = False,
) -> SimulatedAnswers:
    """Simulate ``runs`` studies of a question.

    Args:
        question: the study and what it should find.
        setting: its units, budget and level.
        runs: simulated studies, at least 1.
        seed: fixes the samples and the public choices of every run, and the noise unless it is real.
        progress: called with the part done, in [0, 1], and the step.
        real_noise: draw OpenDP's noise, which no seed can fix.
        rough: simulate few null distributions, where studies share them.

    Raises:
        InputError: the inputs do not fit together.
        StudyRefusedError: the procedure does not take the study, or so few or so many units.
    """
    if not isinstance(runs, int) or not 1 <= runs <= RUNS_MAX:
        raise InputError(f"runs must be a whole number from 1 to {RUNS_MAX}")
    if not real_noise and (found := _at_once(question, setting, runs, seed, rough=rough)) is not None:
        if progress is not None:
            progress(1.0, f"simulated {runs} studies")
        return found
    values = []
    for number, (study, rng) in enumerate(_studies(question, setting, runs, seed), 1):
        held = question.draw(setting.n, rng)
        noise: NoiseSource = OpenDPNoise() if real_noise else SimulatedNoise(rng)
        (order,) = rng.spawn(1)
        result = run(question.procedure, study, question.tables(held), noise, order=order)
        values.append(question.answer(result, held))
        if progress is not None:
            progress(number / runs, f"simulated {number} of {runs} studies")
    return SimulatedAnswers(question, setting, np.array(values), seed_text(seed))


def _at_once(
    question: Question, setting: Setting, runs: int, seed: int | None, *, rough: bool
) -> SimulatedAnswers | None:
    """Simulate the statistics of all studies; None where studies have to be played one by one."""
    _require_seed(seed)
    study = setting.study(question, seed_text(seed))
    nulls = min(runs, NULLS_SEARCHED if rough else nulls_of(runs, setting.alpha))
    lots = [len(part) for part in np.array_split(np.arange(runs), nulls)]
    values = question.rejections(study, setting.n, lots, np.random.default_rng(seed))
    if values is None:
        return None
    return SimulatedAnswers(question, setting, values, seed_text(seed), independent=0.5 if rough else 1.0)


def nulls_of(runs: int, level: float) -> int:
    """Return how many null distributions so many studies need, so that these say what is theirs.

    An error e of a test's level moves its power by e phi(z)/phi(z_level): the most where the power is 1/2.
    """
    moved = math.exp(float(ndtri(level)) ** 2 / 2)
    of_null = moved**2 * level * (1 - level) / null_draws(level, NULL_DRAWS_MAX)
    return math.ceil(max(of_null * runs / (NULL_PART / 4), runs / STUDIES_MAX))


def _require_seed(seed: int | None) -> None:
    if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int) or seed < 0):
        raise InputError("seed must be a whole number, not negative")


def _studies(
    question: Question, setting: Setting, runs: int, seed: int | None
) -> Iterator[tuple[Study, np.random.Generator]]:
    """Yield the study of each run, whose public seed differs, and what draws its data.

    Runs of the same number have the same seeds whatever the setting, so that settings are compared on the
    same luck.
    """
    _require_seed(seed)
    for number, child in enumerate(np.random.SeedSequence(seed).spawn(runs)):
        text = seed_text(None if seed is None else seed * RUNS_MAX + number)
        yield setting.study(question, text), np.random.default_rng(child)


def fresh_seed() -> int:
    """Return a seed where the caller gave none, for simulations that belong together."""
    return int(np.random.SeedSequence().generate_state(1)[0])


def or_nothing(
    question: Question,
    setting: Setting,
    *,
    runs: int,
    seed: int | None,
    progress: Progress | None = None,
    rough: bool = False,
) -> SimulatedAnswers:
    """Simulate; a study that the procedure refuses at so few or so many units finds nothing.

    Raises:
        InputError: the inputs do not fit together, or a release, which has an error and no power, is refused.
    """
    try:
        return simulate(question, setting, runs=runs, seed=seed, progress=progress, rough=rough)
    except StudyRefusedError as error:
        if question.measures_error:
            raise InputError(str(error)) from error
        return SimulatedAnswers(question, setting, np.zeros(runs), seed_text(seed), refused=str(error))
