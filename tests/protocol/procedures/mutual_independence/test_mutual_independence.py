"""Mutual independence of several owners' columns: how units are dealt, level, and what is found."""

import math
from typing import Any

import numpy as np
import pytest
from made_studies import made_study, rows_table
from two_sample_cases import domain_of

import tacit.local
from tacit.errors import InputError, StudyRefusedError
from tacit.planning.simulation import SimulatedNoise
from tacit_protocol.messages.encoding import digest, encode_json
from tacit_protocol.messages.study import Release, Study
from tacit_protocol.numerics import randomised_tables
from tacit_protocol.numerics.randomised_tables import combined_basis, contrasts
from tacit_protocol.privacy.noise import OpenDPNoise
from tacit_protocol.privacy.randomised_response import retention
from tacit_protocol.procedures import mutual_independence
from tacit_protocol.procedures.base import ReleaseError, planned
from tacit_protocol.procedures.disclosure import StudyTerms
from tacit_protocol.procedures.mutual_independence import (
    MutualIndependence,
    MutualIndependenceResult,
)
from tacit_protocol.procedures.relay import check_own_release, combined, relay_of, statement_of

PROCEDURE = MutualIndependence()
UNITS, EPSILON, SEED = 60, 1.0, 5

Floats = np.typing.NDArray[np.float64]


def study_of(parameters: dict[str, Any] | None = None, owners: int = 3, **given: Any) -> Study:
    """Owners a, b, c, ... hold a number each."""
    domain = domain_of(owners)
    held = [(column.name,) for column in domain.columns]
    given = {"owners": tuple("abcdefg"[:owners]), "held": held, "epsilon": EPSILON, "delta": 0.0} | given
    return made_study(PROCEDURE.name, domain, parameters or {}, **given)


TWO = {"categories": 2, "permutations": 199}


def table_of(study: Study, side: int, values: Floats) -> Any:
    return rows_table(study.domain_of(study.owners[side]), values[:, None])


def releases_of(study: Study, columns: list[Floats], noise: Any) -> dict[str, Release]:
    """Every owner's release: in two rounds whoever counts does so last, beside all others'."""
    relay = relay_of(PROCEDURE, study)
    found: dict[str, Release] = {}
    for side, owner in enumerate(study.owners):
        if relay is None or relay.is_sender(owner.name):
            summary = PROCEDURE.summarise(study, table_of(study, side, columns[side]))
            found[owner.name] = PROCEDURE.privatise(study, summary, noise)
            check_own_release(PROCEDURE, study, owner.name, found[owner.name])
    if relay is not None:
        side = [owner.name for owner in study.owners].index(relay.receiver.name)
        summary = combined(PROCEDURE, study, found, table_of(study, side, columns[side])).summary
        found[relay.receiver.name] = PROCEDURE.privatise(study, summary, noise)
        check_own_release(PROCEDURE, study, relay.receiver.name, found[relay.receiver.name])
    return found


def verdict_of(study: Study, columns: list[Floats], noise: Any) -> MutualIndependenceResult:
    releases = releases_of(study, columns, noise)
    if relay_of(PROCEDURE, study) is None:
        return PROCEDURE.assemble(study, releases)
    return planned(PROCEDURE, study).conclude(releases, {})


HALVED = {"permutations": 199}


def test_halves_are_dealt_where_epsilon_is_small_and_units_are_enough() -> None:
    def cells(units: int, epsilon: float, **chosen: Any) -> list[int]:
        study = study_of(HALVED | chosen, epsilon=epsilon)
        return [part.cells[0].cells for part in PROCEDURE.plan(study).parts(units)]

    assert [cells(units, 1.0) for units in (1000, 1900, 2000)] == [[2], [2], [3, 2]]
    assert [cells(units, 2.0) for units in (400, 700)] == [[2], [3, 2]]
    assert cells(400, 4.0) == [3]
    assert [cells(30_000, 1.0, method="one-round"), cells(10**5, 1.0, method="one-round")] == [[2], [3, 2]]
    assert cells(3000, 1.0, categories=3) == [3]
    assert cells(5000, 1.0, cuts="even") == [3, 2]


def test_halves_are_released_each_by_its_name_and_nothing_else_is_taken() -> None:
    study, rng = study_of(HALVED), np.random.default_rng(SEED)
    releases = releases_of(study, list(rng.random((3, 3000))), SimulatedNoise(rng))
    assert set(releases["a"].answers) == set(releases["a"].cuts) == {"n0", "n0, halves"}
    assert {name: own.codes for name, own in releases["a"].answers.items()} == {"n0": 3, "n0, halves": 2}
    assert set(releases["c"].vectors) == {"counts", "counts, halves"}
    assert len(releases["c"].vectors["counts"].mean(1)) == 27
    verdict = planned(PROCEDURE, study).conclude(releases, {})
    assert "3 by 3 by 3 and 2 by 2 by 2 cells" in verdict.method
    for name, field_name in (("a", "answers"), ("a", "cuts"), ("c", "vectors"), ("c", "cuts")):
        held = getattr(releases[name], field_name)
        key = next(iter(held))
        for wrong in ({key: held[key]}, {f"{key}, halves": held[key], key: held[f"{key}, halves"]}):
            forged = releases[name].model_copy(update={field_name: wrong})
            with pytest.raises(ReleaseError):
                planned(PROCEDURE, study).check_received(name, forged)
    numbers = PROCEDURE.release_size(study_of(HALVED, units=(3000,) * 3))
    assert numbers == sum(own.units for own in releases["a"].answers.values()) + 3


@pytest.mark.parametrize("law", ["signs", "a curve"])
def test_with_halves_signs_that_matter_together_are_seen_and_curves_too(law: str) -> None:
    """12 studies of each; three cells alone find signs in 5 of 12, and two cells alone curves in 4."""
    found = 0
    for run in range(12):
        rng = np.random.default_rng([SEED, 8, run])
        columns = list(rng.random((3, 3000)))
        if law == "signs":
            halves = rng.integers(0, 2, (2, 3000))
            product = (halves.sum(axis=0) + (rng.random(3000) < 0.1)) % 2
            columns = list((np.vstack([halves, product]) + rng.random((3, 3000))) / 2)
        else:
            columns[2] = np.clip((2 * columns[0] - 1) ** 2 + 0.1 * rng.standard_normal(3000), 0, 1)
        verdict = verdict_of(study_of(HALVED), columns, SimulatedNoise(rng))
        found += verdict.reject
    assert found >= 11


def test_who_does_not_answer_is_public_and_stewards_are_told() -> None:
    study = study_of(TWO, owners=3, epsilon=2.0)
    rng = np.random.default_rng(SEED)
    releases = releases_of(study, [rng.random(300) for _ in study.owners], OpenDPNoise())
    units = 300 - mutual_independence.dealt_units(300, 2.0, 1)
    assert releases["a"].units == 300
    assert releases["a"].answers["n0"].units == units
    assert releases["a"].answers["n0"].retention == retention(2_000_000, 2)
    asked = StudyTerms.of(PROCEDURE, study, PROCEDURE.cost(study), "a")
    assert "unit that does not place the cuts instead" in asked.what_leaves
    whole = study_of(TWO | {"cuts": "even"}, epsilon=2.0)
    sent = releases_of(whole, [rng.random(300) for _ in study.owners], OpenDPNoise())
    assert sent["a"].answers["n0"].units == 300
    with pytest.raises(ReleaseError):
        check_own_release(PROCEDURE, whole, "a", releases["a"])


def test_in_one_round_cells_are_three_only_where_they_find_more() -> None:
    def cells(method: str, units: int, epsilon: float, **chosen: Any) -> int:
        study = study_of({"method": method} | chosen, epsilon=epsilon)
        return PROCEDURE.plan(study).parts(units)[0].cells[0].cells

    assert [cells("one-round", 3000, epsilon) for epsilon in (1.0, 2.0, 4.0)] == [2, 2, 3]
    assert cells("one-round", 10**6, 1.0) == 3
    assert [cells("two-round", units, 1.0) for units in (1000, 3000)] == [2, 3]


# Who sends, and what is refused.


def test_all_but_the_last_send_and_each_is_told_what_leaves() -> None:
    study = study_of(TWO, owners=4)
    relay = relay_of(PROCEDURE, study)
    assert relay is not None
    assert [owner.name for owner in relay.senders] == ["a", "b", "c"]
    assert (relay.receiver.name, relay.sealed, relay.accepted_first) == ("d", False, True)
    for owner in study.owners:
        asked = StudyTerms.of(PROCEDURE, study, PROCEDURE.cost(study), owner.name)
        words = asked.plain_words(study, owner, "people")
        assert words.count("round one spends") == 3
        assert ("What would leave, in the first of two rounds" in words) == (owner.name != "d")
        assert ("one randomised answer" in asked.what_leaves) == (owner.name != "d")
    other = relay_of(PROCEDURE, study_of(TWO | {"receiver": "a"}))
    assert other is not None
    assert ([owner.name for owner in other.senders], other.receiver.name) == (["b", "c"], "a")
    assert relay_of(PROCEDURE, study_of({"method": "one-round"})) is None


def test_what_the_receiver_answers_to_is_the_digest_of_everything_that_was_sent() -> None:
    relay = relay_of(PROCEDURE, study_of(TWO))
    assert relay is not None
    assert statement_of(relay, {"a": "0" * 64}) is None
    whole = {"a": "0" * 64, "b": "1" * 64}
    assert statement_of(relay, whole | {"c": "2" * 64}) == digest(encode_json(whole))
    assert statement_of(relay, {"a": "1" * 64, "b": "0" * 64}) != statement_of(relay, whole)


# What is found.


def test_products_of_contrasts_are_orthonormal_and_span_what_the_combinations_have() -> None:
    rng = np.random.default_rng(SEED)
    shares = rng.random(12) + 0.2
    shares /= shares.sum()
    basis, weights = combined_basis(shares, ((3, True), (2, True), (2, False)))
    own = contrasts(shares, basis)
    np.testing.assert_allclose(own.T * shares @ own, np.eye(11), atol=1e-12)
    np.testing.assert_allclose(own.T @ shares, 0, atol=1e-12)
    assert weights.tolist()[:3] == [1.0] * 3
    assert weights.tolist() == sorted(weights, reverse=True)
    assert weights[-1] == randomised_tables.SMOOTHNESS**3


@pytest.mark.parametrize("method", ["two-round", "one-round"])
def test_dependence_of_three_of_which_no_two_depend_is_seen(method: str) -> None:
    """A parity: of 4000 units at epsilon 3 it is dozens of standard deviations away, and no pair is."""
    rng = np.random.default_rng(SEED)
    first, second = rng.integers(0, 2, (2, 4000)).astype(float)
    columns = [first, second, (first + second) % 2]
    study = study_of(TWO | {"method": method}, epsilon=3.0)
    verdict = verdict_of(study, columns, SimulatedNoise(rng))
    assert verdict.reject
    assert verdict.steps[-1].pvalue == pytest.approx(1 / 200)
    assert verdict.pvalue == pytest.approx(1 / 200)
    assert not any(pair.pvalue <= 0.001 for pair in verdict.pairs)
    assert "not independent" in PROCEDURE.meaning(study, verdict.model_dump()).sentence


@pytest.mark.parametrize("method", ["two-round", "one-round"])
def test_many_pairs_that_depend_a_little_are_seen_together(method: str) -> None:
    """Four columns, all correlated, in 12 studies: no single step is as sure as all of them."""
    found, surest = [], []
    for run in range(12):
        rng = np.random.default_rng([SEED, run])
        common = rng.standard_normal(2000)
        mixed = np.sqrt(0.3) * common + np.sqrt(0.7) * rng.standard_normal((4, 2000))
        columns = list(np.clip(0.5 + mixed / 8, 0, 1))
        verdict = verdict_of(study_of(TWO | {"method": method}, owners=4), columns, SimulatedNoise(rng))
        found.append(verdict.pvalue)
        surest.append(3 * min(each.pvalue for each in verdict.steps))
    assert np.median(found) < 0.5 * np.median(surest)
    assert np.mean(np.array(found) <= 0.05) >= 0.5


def test_the_pair_that_depends_is_named_wherever_it_stands() -> None:
    rng = np.random.default_rng(SEED)
    first, noise, other = rng.random((3, 4000))
    second = np.clip(0.8 * (1 - first) + 0.2 * noise, 0, 1)
    for columns, names in (([first, second, other], {"n0", "n1"}), ([other, first, second], {"n1", "n2"})):
        verdict = verdict_of(study_of({"permutations": 999}, epsilon=3.0), columns, SimulatedNoise(rng))
        best = verdict.pairs[0]
        assert {best.first, best.second} == names
        assert best.reject
        assert best.correlation_interval is not None
        assert best.correlation_interval[1] < -0.5


def test_the_level_is_kept_and_intervals_of_independent_pairs_cover() -> None:
    """300 studies of independent columns, skewed and tied ones, by both methods.

    At level .1 more than 56 rejections have probability below 1e-6, of a binomial of 300. Of 900 rank
    correlations, three a study, 95 % intervals that miss 0 number below 45 + 5 sqrt(3 * 43).
    """
    rejected, missed = 0, 0
    for run in range(300):
        rng = np.random.default_rng([SEED, run])
        x, y, z = rng.random((3, 300))
        columns = [x**4, np.where(y < 0.7, 0.0, y), z]
        study = study_of(
            TWO | {"permutations": 99, "method": "one-round" if run % 3 == 0 else "two-round"},
            level=0.1,
            seed=run,
            epsilon=2.0,
        )
        verdict = verdict_of(study, columns, SimulatedNoise(rng))
        rejected += verdict.reject
        missed += sum(
            pair.correlation_interval is not None
            and not pair.correlation_interval[0] <= 0 <= pair.correlation_interval[1]
            for pair in verdict.pairs
        )
    assert rejected <= 56
    assert missed <= 2 * (45 + 5 * math.sqrt(3 * 43))


def test_in_one_process_mistakes_are_told() -> None:
    x, y, z = np.random.default_rng(SEED).random((3, 500))
    with pytest.raises(InputError, match="one column of each owner"):
        tacit.local.mutual_independence(np.column_stack([x, y]), y, z, epsilon=1, bounds=(0, 1))
    with pytest.raises(StudyRefusedError, match="distance_correlation"):
        tacit.local.mutual_independence(x, y, epsilon=1, bounds=(0, 1))
    result = tacit.local.mutual_independence(x, y, x, epsilon=8, bounds=(0, 1), seed=1)
    statistic, pvalue = result
    assert (statistic, pvalue) == (result.statistic, result.pvalue)
    assert result.reject
    assert {result.pairs[0].first, result.pairs[0].second} == {"x1", "x3"}


def test_three_columns_that_depend_together_alone_are_seen() -> None:
    """Signs whose product is positive, no two of which depend: one product of four, of the least weight."""
    found = []
    for run in range(12):
        rng = np.random.default_rng([SEED, 7, run])
        halves = rng.integers(0, 2, (2, 1500))
        sides = np.vstack([halves, halves.sum(axis=0) % 2])
        columns = list((sides + rng.random((3, 1500))) / 2)
        found.append(verdict_of(study_of(TWO), columns, SimulatedNoise(rng)).pvalue)
    assert np.mean(np.array(found) <= 0.05) >= 0.5
