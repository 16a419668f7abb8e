"""Studies by randomised answers: what they ask for, and what stewards and readers are shown."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from made_studies import Drawing, made_study, rows_table
from two_sample_cases import domain_of

from tacit_protocol.messages.study import Release, Study
from tacit_protocol.privacy.accounting import charge
from tacit_protocol.privacy.guarantee import ApproximateEvent
from tacit_protocol.privacy.noise import OpenDPNoise
from tacit_protocol.procedures.base import StudyError
from tacit_protocol.procedures.disclosure import StudyTerms
from tacit_protocol.procedures.discovery import procedure_named
from tacit_protocol.procedures.distance_correlation import DistanceCorrelation
from tacit_protocol.procedures.randomised_answers.verdict import answered_panels
from tacit_protocol.procedures.relay import combined, relay_of
from tacit_protocol.reporting.svg import panel_svg
from tacit_protocol.verdicts.presentation import HeatPanel, RowsPanel

PROCEDURE = DistanceCorrelation()
UNITS = 40
EPSILON = 1.0
SEED = 5

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


def test_a_study_that_reads_a_release_again_or_stays_with_one_owner_is_no_study_of_answers() -> None:
    study = study_of(delta=1e-5)
    first, second = study.owners
    reusing = study.model_copy(update={"owners": (first.model_copy(update={"reuses": "0" * 64}), second)})
    assert PROCEDURE.with_defaults(reusing).parameters == {}
    peer = study_of({"method": "pnc", "mode": "peer", "receiver": "b"}, delta=1e-5)
    assert PROCEDURE.with_defaults(peer).parameters == peer.parameters


Rows = Floats
Made = Callable[[Study, Rows, Any], Release]


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


TWO = {"method": "two-round", "categories": 2}


def test_a_unit_answers_for_one_column_and_is_counted_once() -> None:
    study = study_of({"method": "two-round"}, x=2, y=2, epsilon=4.0)
    rng = np.random.default_rng(SEED)
    first = rows_table(study.domain_of(study.owners[0]), rng.random((400, 2)))
    second = rows_table(study.domain_of(study.owners[1]), rng.random((400, 2)))
    release = PROCEDURE.privatise(study, PROCEDURE.summarise(study, first), OpenDPNoise())
    assert sum(own.units for own in release.answers.values()) == 400
    summary = combined(PROCEDURE, study, {"a": release}, second).summary
    (counts,) = PROCEDURE.privatise(study, summary, Drawing()).vectors.values()
    assert counts.mean(1).sum() == 400


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
