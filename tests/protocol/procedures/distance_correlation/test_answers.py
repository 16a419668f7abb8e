"""Studies by randomised answers: what they ask for, their exact privacy at either owner, and what is refused.

The adversary knows everybody but one person. Given the cuts, all other units' answers have one law on both
neighbours, so that the odds of a whole release are those of its cuts times those of one answer; the odds of a
table are those of its cuts times what the noise has to hide. Both are worked out exactly, from what the
procedure hands to its noise source, for every list of cuts and every answer.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from made_studies import made_study, rows_table
from scipy.special import log_softmax
from two_sample_cases import domain_of

from tacit_protocol.features import private_cells
from tacit_protocol.features.private_cells import ColumnCells, cut_losses
from tacit_protocol.messages.study import Release, Study
from tacit_protocol.privacy import randomised_response
from tacit_protocol.privacy.accounting import charge
from tacit_protocol.privacy.guarantee import ApproximateEvent, RandomisedAnswers
from tacit_protocol.privacy.noise import OpenDPNoise
from tacit_protocol.privacy.randomised_response import NO_CELL, mixing, retention
from tacit_protocol.procedures.base import StudyError, canonical
from tacit_protocol.procedures.disclosure import StudyTerms
from tacit_protocol.procedures.discovery import procedure_named
from tacit_protocol.procedures.distance_correlation import DistanceCorrelation
from tacit_protocol.procedures.randomised_answers import answers
from tacit_protocol.procedures.randomised_answers.verdict import answered_panels
from tacit_protocol.procedures.relay import combined, relay_of
from tacit_protocol.reporting.svg import panel_svg
from tacit_protocol.verdicts.presentation import HeatPanel, RowsPanel

PROCEDURE = DistanceCorrelation()
UNITS = 40
EPSILON = 1.0
SEED = 5

Integers = np.typing.NDArray[np.int64]
Floats = np.typing.NDArray[np.float64]


def study_of(
    parameters: Mapping[str, Any] | None = None,
    x: int = 1,
    y: int = 1,
    *,
    groups: tuple[int, ...] = (),
    epsilon: float = EPSILON,
    delta: float = 0.0,
) -> Study:
    """The first owner holds x numbers, the second y numbers, or columns of so many ``groups``."""
    domain = domain_of(x + y, groups)
    names = [column.name for column in domain.columns]
    held = (names[:x], names[x:])
    return made_study(
        PROCEDURE.name,
        domain,
        dict(parameters or {}),
        owners=("a", "b"),
        held=held,
        epsilon=epsilon,
        delta=delta,
    )


# What studies ask for that say nothing.


@pytest.mark.parametrize(
    ("study", "method"),
    [
        (study_of(), "two-round"),
        (study_of(delta=1e-5), "two-round"),
        (study_of(x=4, y=4, delta=1e-5), "two-round"),
        (study_of(x=5, y=4, delta=1e-5), "sketch"),
        (study_of(x=5, y=4), "two-round"),
        (study_of(x=9, y=8), "sketch"),
        (study_of({"method": "one-round"}), "one-round"),
        (study_of({"method": "sketch"}, delta=1e-5), "sketch"),
        (study_of({"n_features": 3}, delta=1e-5), "sketch"),
        (study_of({"n_projections": 8}, x=3, y=3, delta=1e-5), "sketch"),
        (study_of({"mode": "tester"}), "two-round"),
        (study_of({"categories": 2}), "two-round"),
    ],
)
def test_the_method_is_chosen_by_public_numbers(study: Study, method: str) -> None:
    stated = canonical(PROCEDURE, PROCEDURE.with_defaults(study)).parameters
    assert (stated["method"], stated["cuts"]) == (method, "fitted")


def test_a_study_that_reads_a_release_again_or_stays_with_one_owner_is_no_study_of_answers() -> None:
    study = study_of(delta=1e-5)
    first, second = study.owners
    reusing = study.model_copy(update={"owners": (first.model_copy(update={"reuses": "0" * 64}), second)})
    assert PROCEDURE.with_defaults(reusing).parameters == {}
    peer = study_of({"method": "pnc", "mode": "peer", "receiver": "b"}, delta=1e-5)
    assert PROCEDURE.with_defaults(peer).parameters == peer.parameters


# Exact odds.


@dataclass
class Recorder:
    """Adds nothing; draws the list of cuts that it is told to; keeps what it was asked."""

    cuts: int
    scores: list[Floats] = field(default_factory=list)
    laplaces: list[tuple[Integers, float]] = field(default_factory=list)

    def choose(self, scores: Integers, scale: float) -> int:
        self.scores.append(scores / scale)
        return self.cuts

    def laplace(self, values: Integers, scale: float) -> Integers:
        self.laplaces.append((values.copy(), scale))
        return values

    def gaussian(self, values: Integers, scale: float) -> Integers:
        raise AssertionError("answers need no Gaussian noise")

    def uniform(self, count: int) -> np.typing.NDArray[np.uint64]:
        return np.zeros(count, dtype=np.uint64)  # every unit keeps its own cell


Rows = Floats
Made = Callable[[Study, Rows, Recorder], Release]


def sent(study: Study, rows: Rows, source: Any) -> Release:
    """The first round's release of one column."""
    table = rows_table(study.domain_of(study.owners[0]), rows[:, None])
    return PROCEDURE.privatise(study, PROCEDURE.summarise(study, table), source)


def answering(received: Release) -> Made:
    """The second round's, beside those answers, honest or not."""

    def counted(study: Study, rows: Rows, source: Any) -> Release:
        table = rows_table(study.domain_of(study.owners[1]), rows[:, None])
        summary = combined(PROCEDURE, study, {"a": received}, table).summary
        return PROCEDURE.privatise(study, summary, source)

    return counted


def cut_odds(one: Recorder, other: Recorder, cuts: int) -> float:
    """Return the log of a list of cuts' odds on two neighbours; none are drawn where none are recorded."""
    if not one.scores:
        return 0.0
    (first,), (second,) = one.scores, other.scores
    return abs(float(log_softmax(first)[cuts] - log_softmax(second)[cuts]))


def odds(study: Study, made: Made, rows: Rows, changed: Rows, cuts: int) -> float:
    """Return the largest log-odds of any release with that list of cuts, on these neighbours."""
    sources = Recorder(cuts), Recorder(cuts)
    releases = [made(study, own, source) for own, source in zip((rows, changed), sources, strict=True)]
    if releases[0].cuts != releases[1].cuts:
        return math.inf  # cuts that nothing has drawn tell the neighbours apart for certain
    found = cut_odds(*sources, cuts)
    for name, own in releases[0].answers.items():
        law = mixing(own.codes, own.retention)
        first, second = own.values(), releases[1].answers[name].values()
        assert int(np.sum(first != second)) <= 1
        for cell, twin in zip(first, second, strict=True):
            found += float(np.max(np.abs(np.log(law[:, cell] / law[:, twin]))))
    for (values, scale), (others, _) in zip(sources[0].laplaces, sources[1].laplaces, strict=True):
        found += float(np.sum(np.abs(values - others))) / scale
    return found


def neighbours() -> Iterator[tuple[Rows, Rows]]:
    """Rows of which the last is replaced: the others spread out, or stand at one or two places."""
    rng = np.random.default_rng(SEED)
    for others in (rng.random(UNITS - 1), np.full(UNITS - 1, 0.5), rng.integers(0, 2, UNITS - 1) * 0.99):
        for own, twin in ((0.0, 1.0), (0.5, 0.51), (0.25, 0.75)):
            yield np.append(others, own), np.append(others, twin)


def largest(study: Study, made: Made, lists: int = 127) -> float:
    return max(
        odds(study, made, rows, changed, cuts)
        for rows, changed in neighbours()
        for cuts in range(0, lists, 9)
    )


def received_of(study: Study, answer: str) -> Release:
    """Answers as the mechanism draws them, or all the same: a sender may send anything of that form."""
    release = sent(study, np.random.default_rng(SEED).random(UNITS), OpenDPNoise())
    if answer == "drawn":
        return release
    (name, own), *_ = release.answers.items()
    same = RandomisedAnswers.of(np.zeros(UNITS, dtype=np.int64), own.codes, own.retention)
    return release.model_copy(update={"answers": {name: same}})


TWO = {"method": "two-round", "categories": 2}


def test_the_senders_release_changes_nobodys_odds_by_more_than_its_epsilon() -> None:
    found = largest(study_of(TWO), sent)
    assert 0.97 * EPSILON < found <= EPSILON * (1 + 1e-9)


@pytest.mark.parametrize("answer", ["drawn", "all the same"])
def test_the_receivers_table_does_not_either_whatever_it_received(answer: str) -> None:
    study = study_of(TWO)
    found = largest(study, answering(received_of(study, answer)))
    assert 0.97 * EPSILON < found <= EPSILON * (1 + 1e-9)


def test_either_owners_answers_in_one_round_do_not() -> None:
    study = study_of({"method": "one-round", "categories": 2})
    assert 0.97 * EPSILON < largest(study, sent) <= EPSILON * (1 + 1e-9)


def test_nor_do_releases_whose_cuts_take_a_part_that_fits_the_number_of_units(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The part is smaller the more units there are, as if these few were thousands."""
    assert [answers.fitted_part(units, 1.0) for units in (20, 1000, 10**6)] == [0.15, 0.1, 0.03]
    monkeypatch.setattr(answers, "CUTS_SPENT", 0.05 * UNITS * EPSILON)
    study = study_of(TWO)
    plan = PROCEDURE.plan(study)
    assert plan._cuts_micro(UNITS, bought=True) == int(0.05 * EPSILON * 1_000_000)
    assert 0.97 * EPSILON < largest(study, sent) <= EPSILON * (1 + 1e-9)
    assert 0.97 * EPSILON < largest(study, answering(received_of(study, "drawn"))) <= EPSILON * (1 + 1e-9)


@pytest.mark.long
@pytest.mark.parametrize("categories", [3, 4])
def test_nor_do_more_cells(categories: int) -> None:
    study = study_of(TWO | {"categories": categories})
    lists = math.comb(private_cells.GRIDS[categories] - 1, categories - 1)
    rng = np.random.default_rng(SEED)
    made = answering(received_of(study, "drawn"))
    for cuts in rng.integers(0, lists, 20):
        for rows, changed in neighbours():
            assert odds(study, sent, rows, changed, int(cuts)) <= EPSILON * (1 + 1e-9)
            assert odds(study, made, rows, changed, int(cuts)) <= EPSILON * (1 + 1e-9)


@pytest.mark.parametrize("method", ["two-round", "one-round"])
def test_even_cuts_leave_all_of_epsilon_to_the_answers(method: str) -> None:
    study = study_of({"method": method, "categories": 4, "cuts": "even"})
    found = max(odds(study, sent, rows, changed, 0) for rows, changed in neighbours())
    assert found == pytest.approx(EPSILON, rel=1e-9)
    assert found <= EPSILON * (1 + 1e-12)


def test_a_retention_for_one_cell_fewer_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: k - 1 in the place of k in (e^epsilon - 1)/(e^epsilon - 1 + k)."""
    genuine = randomised_response.retention
    monkeypatch.setattr(randomised_response, "retention", lambda epsilon, codes: genuine(epsilon, codes - 1))
    assert largest(study_of(TWO), sent) > 1.1 * EPSILON


def test_cuts_from_raw_data_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: the quantiles themselves."""

    def quantiles(cells: ColumnCells, values: Floats, epsilon: float, source: Any) -> tuple[int, ...]:
        lists = private_cells.cut_lists(cells.grid, cells.cells)
        return tuple(lists[np.argmin(cut_losses(values, cells.grid, cells.cells))].tolist())

    monkeypatch.setattr(ColumnCells, "draw_cuts", quantiles)
    study = study_of(TWO)
    rows = (np.arange(UNITS) + 0.5) / UNITS
    changed = np.append(0.99, rows[1:])
    assert odds(study, sent, rows, changed, 0) == math.inf


def test_cuts_that_are_not_paid_for_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: answers and table take the whole of epsilon, and the cuts their part besides."""
    monkeypatch.setattr(
        answers.PairedAnswers,
        "_rest_micro",
        lambda plan, units, *, bought: plan.study.budget.epsilon_micro,
    )
    study = study_of(TWO)
    assert largest(study, sent) > 1.1 * EPSILON
    assert largest(study, answering(received_of(study, "drawn"))) > 1.1 * EPSILON


def test_a_table_of_half_the_noise_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: a replaced unit moves one count, not two."""
    genuine = answers.laplace_multiplier
    monkeypatch.setattr(answers, "laplace_multiplier", lambda epsilon: genuine(epsilon) / 2)
    study = study_of(TWO)
    received = received_of(study, "drawn")
    assert largest(study, answering(received)) > 1.5 * EPSILON


# Blind answers, dealt columns.


def test_a_unit_without_a_category_answers_blindly_and_within_epsilon() -> None:
    kept = retention(1_000_000, 3)
    law = np.column_stack([mixing(3, kept), np.full(3, 1 / 3)])
    ratios = law[:, :, None] / law[:, None, :]
    assert math.log(ratios.max()) <= 1.0
    assert NO_CELL == -1


def test_a_unit_answers_for_one_column_and_is_counted_once() -> None:
    study = study_of({"method": "two-round"}, x=2, y=2, epsilon=4.0)
    rng = np.random.default_rng(SEED)
    first = rows_table(study.domain_of(study.owners[0]), rng.random((400, 2)))
    second = rows_table(study.domain_of(study.owners[1]), rng.random((400, 2)))
    release = PROCEDURE.privatise(study, PROCEDURE.summarise(study, first), OpenDPNoise())
    assert sum(own.units for own in release.answers.values()) == 400
    source = Recorder(0)
    PROCEDURE.privatise(study, combined(PROCEDURE, study, {"a": release}, second).summary, source)
    ((counts, _),) = source.laplaces
    assert counts.sum() == 400 << round(math.log2(counts[counts > 0].min() & -counts[counts > 0].min()))


# What is refused.


def pair(study: Study) -> tuple[Release, Release]:
    """Both owners' genuine releases."""
    rng = np.random.default_rng(SEED)
    first = sent(study, rng.random(UNITS), OpenDPNoise())
    return first, answering(first)(study, rng.random(UNITS), OpenDPNoise())


def test_a_study_of_answers_names_who_sends_and_costs_each_the_whole_of_epsilon_alone() -> None:
    study = study_of(TWO, delta=1e-5)
    relay = relay_of(procedure_named(study.procedure), study)
    assert (relay.sender.name, relay.receiver.name, relay.sealed, relay.accepted_first) == (
        "a",
        "b",
        False,
        True,
    )
    assert charge(PROCEDURE.cost(study).events) == charge([ApproximateEvent(epsilon=1.0)])
    assert relay_of(PROCEDURE, study_of(TWO | {"receiver": "a"})).sender.name == "b"  # type: ignore[union-attr]


def test_other_numbers_of_units_end_the_study_before_anything_is_spent() -> None:
    study = study_of(TWO)
    first, _ = pair(study)
    with pytest.raises(StudyError, match="different numbers of units"):
        answering(first)(study, np.full(UNITS + 1, 0.5), OpenDPNoise())


def test_a_verdict_is_the_same_for_everyone_and_sees_equal_columns() -> None:
    study = study_of({"method": "two-round", "permutations": 199}, epsilon=4.0)
    rows = np.random.default_rng(SEED).random(1000)
    first = sent(study, rows, OpenDPNoise())
    second = answering(first)(study, rows, OpenDPNoise())
    verdicts = [
        PROCEDURE.plan(study).conclude(
            {name: {"a": first, "b": second}[name] for name in order}, dict.fromkeys(order, 1000)
        )
        for order in (("a", "b"), ("b", "a"))
    ]
    assert verdicts[0] == verdicts[1]
    assert verdicts[0].reject


# What stewards and readers are shown.


@pytest.mark.parametrize("owner", ["a", "b"])
def test_either_owner_of_one_round_is_told_that_answers_are_about_people(owner: str) -> None:
    study = study_of({"method": "one-round"})
    asked = StudyTerms.of(PROCEDURE, study, PROCEDURE.cost(study), owner)
    words = asked.plain_words(study, study.owner_named(owner), "people")
    assert "one randomised answer" in asked.what_leaves
    assert "It is a record of a person" in words
    assert "more than a factor of 2.72" in words
    assert "each answer is random, and is still about a person" in words
    sketch = study_of({"method": "sketch"}, delta=1e-5)
    told = StudyTerms.of(PROCEDURE, sketch, PROCEDURE.cost(sketch), owner)
    assert "No row, no value and no exact figure leaves." in told.plain_words(sketch, None, "people")


def test_the_debiased_table_is_drawn_with_what_is_beyond_independence() -> None:
    verdict = {
        "shares": [[0.3, 0.1], [0.2, 0.4]],
        "labels": [["low", "high"], ["<b>", "a long label of many words"]],
        "columns": ["x", "y"],
        "correlation": 0.4,
        "correlation_lower": 0.1,
        "correlation_upper": 0.6,
    }
    heat, measure = answered_panels(verdict)
    assert isinstance(heat, HeatPanel)
    assert np.allclose(heat.values, [[0.1, -0.1], [-0.1, 0.1]])
    drawn = panel_svg(heat)
    assert drawn.count('class="cell"') == 4
    assert [f'data-value="{value!r}"' in drawn for row in heat.values for value in row] == [True] * 4
    assert "&lt;b&gt;" in drawn
    assert "<b>" not in drawn
    assert "30.0 %" in drawn
    assert "low · &lt;b&gt;: 30.0 %, beyond independence 0.1" in drawn
    assert isinstance(measure, RowsPanel)
    assert len(answered_panels(verdict | {"correlation": None})) == 1


def test_a_wide_table_is_coloured_without_words_in_its_cells() -> None:
    shares = [[1 / 60] * 20] * 3
    verdict = {"shares": shares, "labels": [list("abc"), [str(n) for n in range(20)]], "columns": ["x", "y"]}
    drawn = panel_svg(answered_panels(verdict)[0])
    assert drawn.count('class="cell"') == 60
    assert 'class="share"' not in drawn
