"""What the audits need of a release: the case, its exact numbers, and independent runs of it.

A case is a study and tables of neighbours. Its runs are made from the procedure's own numbers: whatever the
procedure hands to the noise source (sums and scale) is handed to OpenDP as often as asked, side by side in
one vector. OpenDP draws every coordinate by itself, so that one vector of ``runs`` copies is ``runs``
independent releases, at a twentieth of the time.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from lower_bound import Scored
from scipy.special import log_softmax

from tacit_protocol.domain import Domain, EncodedChunk, Table
from tacit_protocol.messages.study import Release, Study
from tacit_protocol.privacy.guarantee import (
    ApproximateEvent,
    GaussianEvent,
    LaplaceEvent,
    RandomisedAnswers,
)
from tacit_protocol.privacy.k_norm_mechanism import ProductBody
from tacit_protocol.privacy.noise import Body, NoiseSource
from tacit_protocol.privacy.permutation_test import decision_xi
from tacit_protocol.privacy.randomised_response import retention
from tacit_protocol.procedures.base import Procedure, planned
from tacit_protocol.procedures.discovery import procedure_named
from tacit_protocol.procedures.randomised_answers.answered_column import BesideAnswers
from tacit_protocol.procedures.relay import combined, relay_of

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


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


Neighbours = tuple[FixedTable, FixedTable]


@dataclass(frozen=True)
class ReleaseCase:
    """A study whose release is audited.

    ``neighbours`` finds tables that differ in one unit and lie as far apart as a search can bring them;
    its argument, 0 to ``tables`` - 1, chooses the other units. The search must come as near to what the noise
    is made for as ``reached`` says, or it is a weak search. ``black_box`` releases have so few numbers that
    they are run some hundred thousand times. Of an ``adaptive`` release later numbers depend on the noise of
    earlier ones: both neighbours are looked at after the same earlier outcome.
    """

    study: Study
    neighbours: Callable[[int], Neighbours]
    tables: int = 12
    reached: float = 0.3
    black_box: bool = False
    adaptive: bool = False


@dataclass(frozen=True)
class Call:
    """One call of the noise source by a procedure."""

    mechanism: Literal["gaussian", "laplace", "choice", "k-norm"]
    values: Integers
    scale: float
    body: Body | None = None
    """Whose norm the noise follows, of K-norm noise."""


@dataclass
class Recorder:
    """Adds nothing and keeps what it was asked: what is left of a release is what the noise has to hide."""

    calls: list[Call] = field(default_factory=list)

    def gaussian(self, values: Integers, scale: float) -> Integers:
        self.calls.append(Call("gaussian", values.copy(), scale))
        return values.copy()

    def laplace(self, values: Integers, scale: float) -> Integers:
        self.calls.append(Call("laplace", values.copy(), scale))
        return values.copy()

    def k_norm(self, values: Integers, scale: float, body: Body) -> Integers:
        self.calls.append(Call("k-norm", values.copy(), scale, body))
        return values.copy()

    def choose(self, scores: Integers, scale: float) -> int:
        self.calls.append(Call("choice", scores.copy(), scale))
        return int(np.argmax(scores))


class Answering(Recorder):
    """Makes answers that are the same each time: to whoever receives them they are public."""

    def uniform(self, count: int) -> npt.NDArray[np.uint64]:
        return np.random.default_rng(0).integers(0, 2**64, count, dtype=np.uint64)


class Replaying(Recorder):
    """Answers as another release's source did, whatever it is asked: what follows depends on the same."""

    def __init__(self, outcomes: list[Call]) -> None:
        super().__init__()
        self._outcomes = outcomes

    def _replayed(self, call: Call) -> Integers:
        self.calls.append(call)
        return self._outcomes[len(self.calls) - 1].values.copy()

    def gaussian(self, values: Integers, scale: float) -> Integers:
        return self._replayed(Call("gaussian", values.copy(), scale))

    def laplace(self, values: Integers, scale: float) -> Integers:
        return self._replayed(Call("laplace", values.copy(), scale))

    def choose(self, scores: Integers, scale: float) -> int:
        return int(np.argmax(self._replayed(Call("choice", scores.copy(), scale))))


def release(asked: Study, table: FixedTable, noise: NoiseSource | None = None) -> Release:
    """One owner's release, exact unless noise is handed in."""
    procedure = procedure_named(asked.procedure)
    return procedure.privatise(asked, summarise(asked, table), noise or Recorder())


def recorded(asked: Study, table: FixedTable) -> list[Call]:
    """What the procedure hands to its noise source."""
    recorder = Recorder()
    release(asked, table, recorder)
    return recorder.calls


def recorded_pair(case: ReleaseCase, index: int) -> tuple[list[Call], list[Call]]:
    """What is handed to the noise source on either of two neighbours."""
    one, two = case.neighbours(index)
    first = recorded(case.study, one)
    if not case.adaptive:
        return first, recorded(case.study, two)
    second = Replaying(first)
    release(case.study, two, second)
    return first, second.calls


@dataclass(frozen=True)
class Moved:
    """How far apart two exact releases lie: in standard deviations (L2), and in Laplace scales (L1)."""

    gaussian: float
    laplace: float


def moved_in_noise(one: Release, other: Release) -> Moved:
    """Distance of two exact releases, measured in the noise on each coordinate."""
    assert one.units == other.units
    assert one.guarantee == other.guarantee
    squared = absolute = 0.0
    for name, vector in one.vectors.items():
        twin = other.vectors[name]
        assert (vector.exponent, vector.scale, vector.noise) == (twin.exponent, twin.scale, twin.noise)
        steps = np.array(vector.values, dtype=object) - np.array(twin.values, dtype=object)
        parts = np.ldexp(steps.astype(np.float64), vector.exponent) / vector.scale
        if vector.noise == "gaussian":
            squared += float(np.sum(parts**2))
        else:
            absolute += float(np.sum(np.abs(parts)))
    return Moved(math.sqrt(squared), absolute)


def moved_in_calls(one: list[Call], other: list[Call]) -> Moved:
    """The same distance of what two releases hand to their noise sources; of a choice its loss at most."""
    squared = absolute = 0.0
    for call, twin in zip(one, other, strict=True):
        assert (call.mechanism, call.scale, len(call.values)) == (
            twin.mechanism,
            twin.scale,
            len(twin.values),
        )
        parts = (call.values - twin.values) / call.scale
        if call.mechanism == "gaussian":
            squared += float(np.sum(parts**2))
        elif call.mechanism == "choice":
            absolute += float(np.max(np.abs(choice_ratios(call, twin))))
        elif call.body is not None:
            assert call.body == twin.body
            moved = (call.values - twin.values).tolist()
            absolute += ProductBody(tuple(call.body.sizes)).norm(moved) / call.scale
        else:
            absolute += float(np.sum(np.abs(parts)))
    return Moved(math.sqrt(squared), absolute)


def promised(one: Release) -> Moved:
    """What the release's mechanism events allow: mu of all Gaussian events, epsilon of all Laplace ones.

    Of a decision, the pure epsilon that it stands for.
    """
    if one.decision is not None and not one.vectors:
        return Moved(0.0, decision_xi(one.guarantee.budget))
    events = one.guarantee.events
    if one.choice is not None:
        return Moved(0.0, sum(e.epsilon for e in events if isinstance(e, ApproximateEvent)))
    gaussian = sum(e.noise_multiplier**-2 for e in events if isinstance(e, GaussianEvent))
    if one.decision is not None:
        # Numbers and a decision, each with its own part of epsilon; the decision is pure.
        return Moved(math.sqrt(gaussian), sum(e.epsilon for e in events if isinstance(e, ApproximateEvent)))
    laplace = sum(1 / e.noise_multiplier for e in events if isinstance(e, LaplaceEvent))
    laplace += sum(e.epsilon for e in events if isinstance(e, ApproximateEvent))
    return Moved(math.sqrt(gaussian), laplace)


def largest_move(case: ReleaseCase) -> tuple[Moved, Moved]:
    """The largest distance found between neighbours' exact releases, and what is promised."""
    gaussian = laplace = 0.0
    allowed = Moved(0.0, 0.0)
    for index in range(case.tables):
        one = release(case.study, case.neighbours(index)[0])
        moved = moved_between(case, index)
        if one.decision is not None:
            moved = Moved(moved.gaussian, moved_in_decision(case, index).laplace)
        if one.choice is not None:
            moved = Moved(0.0, float(np.max(np.abs(choice_ratios(*choice_calls(case, index))))))
        gaussian, laplace = max(gaussian, moved.gaussian), max(laplace, moved.laplace)
        allowed = promised(one)
    return Moved(gaussian, laplace), allowed


def moved_between(case: ReleaseCase, index: int) -> Moved:
    """Distance of what is released of two neighbours; of an adaptive release, after the same outcome."""
    calls = recorded_pair(case, index)
    if case.adaptive or any(call.body is not None for call in calls[0]):
        return moved_in_calls(*calls)
    one, two = (release(case.study, table) for table in case.neighbours(index))
    return moved_in_noise(one, two)


def moved_in_decision(case: ReleaseCase, index: int) -> Moved:
    """How far the threshold of a decision moves at most, in Laplace scales.

    The bit is a function of comparisons of noisy integers, the observed statistic's and the permuted ones'.
    With the other noises held fixed it is {noise on the observed one > threshold}, which replacing one unit
    moves by at most |change of the observed| + max |change of a permuted|. The audits hold the order of the
    units, and so every permutation, fixed on both sides.
    """
    (one,), (two,) = (
        [call for call in recorded(case.study, table) if call.mechanism == "laplace"]
        for table in case.neighbours(index)
    )
    assert (one.mechanism, one.scale) == (two.mechanism, two.scale) == ("laplace", one.scale)
    moves = np.abs(one.values - two.values)
    return Moved(0.0, float(moves[0] + moves[1:].max()) / one.scale)


def choice_calls(case: ReleaseCase, index: int) -> tuple[Call, Call]:
    """What is asked of the exponential mechanism on either of two neighbours."""
    (one,), (two,) = (recorded(case.study, table) for table in case.neighbours(index))
    assert (one.mechanism, one.scale) == (two.mechanism, two.scale) == ("choice", one.scale)
    return one, two


def choice_ratios(one: Call, two: Call) -> Floats:
    """Log of every candidate's probability on the second neighbour over that on the first, exactly."""
    first, second = (log_softmax(call.values / call.scale) for call in (one, two))
    return np.asarray(second - first)


class ChoiceRuns:
    """Independent choices on either of two neighbours, each told by its log-likelihood ratio."""

    def __init__(self, one: Call, two: Call, noise: Any) -> None:
        self._calls, self._noise, self._ratios = (one, two), noise, choice_ratios(one, two)

    def scores(self, other: bool, runs: int) -> Floats:
        call = self._calls[1 if other else 0]
        drawn = [self._noise.choose(call.values, call.scale) for _ in range(runs)]
        return np.asarray(self._ratios[drawn])


def scored_runs(case: ReleaseCase, noise: NoiseSource) -> Scored:
    """Independent runs of the case's release on its first pair of neighbours."""
    one, other = case.neighbours(0)
    if release(case.study, one).choice is not None:
        return ChoiceRuns(*choice_calls(case, 0), noise)
    if release(case.study, one).decision is not None:
        return DecisionRuns(case.study, (summarise(case.study, one), summarise(case.study, other)), noise)
    return Runs(*recorded_pair(case, 0), noise)


class Runs:
    """Independent runs of a release on either of two neighbours, each told by its log-likelihood ratio.

    Coordinates in which the neighbours agree carry noise alone, drawn apart from the rest, and are left out.
    """

    def __init__(self, calls: list[Call], others: list[Call], noise: NoiseSource) -> None:
        assert [(c.mechanism, c.scale, len(c.values)) for c in calls] == [
            (c.mechanism, c.scale, len(c.values)) for c in others
        ]
        self._pairs = list(zip(calls, others, strict=True))
        self._noise = noise

    def scores(self, other: bool, runs: int) -> Floats:
        """log p(release | other) - log p(release | one) of ``runs`` releases on one or the other, (runs,)."""
        total = np.zeros(runs)
        for one, two in self._pairs:
            if one.body is not None:
                total += self._norm_ratios(one, two, other, runs)
                continue
            differ = np.flatnonzero(one.values != two.values)
            for coordinate in differ:
                low, high = int(one.values[coordinate]), int(two.values[coordinate])
                start = np.full(runs, high if other else low, dtype=np.int64)
                assert one.mechanism in ("gaussian", "laplace")
                drawn = getattr(self._noise, one.mechanism)(start, one.scale)
                total += log_likelihood_ratio(one.mechanism, drawn, (low, high), one.scale)
        return total

    def _norm_ratios(self, one: Call, two: Call, other: bool, runs: int) -> Floats:
        """The same of K-norm noise, which is drawn for all coordinates together."""
        own: Any = self._noise
        drawn = (own.k_norm((two if other else one).values, one.scale, one.body) for _ in range(runs))
        body = ProductBody(tuple(one.body.sizes))
        ratios = (body.norm((z - one.values).tolist()) - body.norm((z - two.values).tolist()) for z in drawn)
        return np.fromiter(ratios, dtype=np.float64, count=runs) / one.scale


def log_likelihood_ratio(
    mechanism: Literal["gaussian", "laplace"], drawn: Integers, centres: tuple[int, int], scale: float
) -> Floats:
    """Log of the density around the second centre over that around the first, for noise of that scale."""
    from_first = (drawn - centres[0]) / scale
    from_second = (drawn - centres[1]) / scale
    if mechanism == "gaussian":
        return np.asarray((from_first**2 - from_second**2) / 2)
    return np.asarray(np.abs(from_first) - np.abs(from_second))


BULK = 200_000
"""Noises drawn at once: OpenDP draws each by itself, but a call takes as long as fifty draws."""


class BulkNoise:
    """Hands out noise drawn in bulk: as independent as if drawn when asked for, and faster."""

    def __init__(self, noise: NoiseSource) -> None:
        self._noise = noise
        self._drawn: Integers = np.empty(0, dtype=np.int64)
        self._scale = 0.0

    def laplace(self, values: Integers, scale: float) -> Integers:
        if scale != self._scale or len(self._drawn) < len(values):
            count = max(BULK, len(values))
            self._drawn = self._noise.laplace(np.zeros(count, dtype=np.int64), scale)
            self._scale = scale
        noise, self._drawn = self._drawn[: len(values)], self._drawn[len(values) :]
        return values + noise

    def gaussian(self, values: Integers, scale: float) -> Integers:
        raise AssertionError("decisions use Laplace noise alone")


class DecisionRuns:
    """Independent decisions on either of two neighbours; the score of a run is its bit."""

    def __init__(self, study: Study, summaries: tuple[Any, Any], noise: NoiseSource) -> None:
        self._study, self._summaries = study, summaries
        self._procedure: Procedure = procedure_named(study.procedure)
        self._noise = BulkNoise(noise)

    def scores(self, other: bool, runs: int) -> npt.NDArray[np.float64]:
        summary = self._summaries[1 if other else 0]
        privatise = self._procedure.privatise
        decisions = (privatise(self._study, summary, self._noise).decision for _ in range(runs))
        return np.fromiter((float(bool(decision)) for decision in decisions), dtype=np.float64, count=runs)


def summarise(study: Study, table: Table) -> Any:
    """Return a procedure's summary, with the units in the same order for every table of a size."""
    procedure: Any = procedure_named(study.procedure)
    plan = procedure.beside(study) if isinstance(procedure, BesideAnswers) else None
    if plan is not None and table.domain == plan.own:
        answers = np.arange(table.units) % plan.codes
        sent = RandomisedAnswers.of(answers, plan.codes, retention(study.budget.epsilon_micro, plan.codes))
        received = Release(
            units=table.units, guarantee=plan.costs[plan.sender.name], answers={plan.column.name: sent}
        )
        return combined(procedure, study, {"sender": received}, table).summary
    relay = relay_of(procedure, study)
    if plan is None and relay is not None and table.domain == study.domain_of(relay.receiver):
        received = {}
        for owner in relay.senders:
            domain = study.domain_of(owner)
            rows = np.random.default_rng(len(received)).random((table.units, len(domain.numeric)))
            levels = np.zeros((table.units, len(domain.categorical)), np.int32)
            held = FixedTable(domain, (EncodedChunk(rows, levels, None, table.units),))
            received[owner.name] = procedure.privatise(study, procedure.summarise(study, held), Answering())
        return combined(procedure, study, received, table).summary
    return planned(procedure, study).summarise(table, np.random.default_rng(0))
