"""The two-sample procedure at a curator in one process: refusals, releases, verdicts, level, power, order."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from made_studies import release_of, uniform
from two_sample_cases import MemoryTable, SeededNoise, domain_of, numbers
from two_sample_cases import study_of as owners_study

from tacit_protocol.domain import Domain, PooledTable
from tacit_protocol.messages.study import Party, Study
from tacit_protocol.procedures.base import StudyError
from tacit_protocol.procedures.curated_two_sample import CuratedTwoSample
from tacit_protocol.procedures.curated_two_sample.parameters import parameters_of
from tacit_protocol.procedures.curated_two_sample.verdict import (
    CuratedTwoSampleBlocks,
    CuratedTwoSampleDecision,
    CuratedTwoSampleTable,
)
from tacit_protocol.procedures.kernel_two_sample import KernelTwoSample

PROCEDURE = CuratedTwoSample()
NUMERIC, MIXED = domain_of(2), domain_of(2, (4, 3))


def study_of(domain: Domain, parameters: Mapping[str, Any], **given: Any) -> Study:
    """A study of owners o0, o1, ... and their curator."""
    study = owners_study(domain, {"release": "mean-covariance"} | dict(parameters), **given)
    return study.model_copy(
        update={"procedure": "curated_two_sample", "curator": Party(name="curator", key="c" * 64)}
    )


def pool(domain: Domain, *tables: MemoryTable) -> PooledTable:
    return PooledTable(domain, {f"o{i}": table for i, table in enumerate(tables)})


def test_who_says_nothing_gets_what_sees_most_and_who_names_a_parameter_of_means_gets_them() -> None:
    def taken(**parameters: Any) -> str:
        silent = study_of(NUMERIC, {"release": "auto"} | parameters)
        given = {name: value for name, value in silent.parameters.items() if name != "release"}
        return parameters_of(silent.model_copy(update={"parameters": given})).release

    assert taken() == "permutation"
    assert taken(features="me") == taken(calibration="paper") == taken(pair_share=0.2) == "mean-covariance"
    assert taken(blocks=5) == taken(categories=3) == "auto"


@pytest.mark.parametrize(
    ("domain", "parameters", "reason"),
    [
        (NUMERIC, {"samples": [["o0"], ["o0"]]}, "exactly one sample"),
        (NUMERIC, {"samples": [["o0"], ["o1", "o2"]]}, "exactly one sample"),
        (NUMERIC, {"samples": [["o0", "o1"], []]}, "samples"),
        (NUMERIC, {"samples": [["o0"]]}, "samples"),
        (NUMERIC, {"calibration": "paper"}, "needs features"),
        (NUMERIC, {"release": "statistic", "calibration": "paper"}, "errata"),
        (NUMERIC, {"features": "kernel"}, "release 'permutation'"),
        (NUMERIC, {"release": "statistic", "features": "kernel"}, "release 'permutation'"),
        (NUMERIC, {"statistic": "mmd"}, "max form alone"),
        (NUMERIC, {"features": "me", "statistic": "max"}, "max form needs"),
        (MIXED, {"features": "scf"}, "numeric columns alone"),
        (NUMERIC, {"n_features": 5}, "n_features has no effect"),
        (NUMERIC, {"permutations": 500}, "permutations has no effect"),
        (NUMERIC, {"release": "permutation", "mean_share": 0.5}, "mean_share has no effect"),
        (NUMERIC, {"release": "permutation", "statistic": "max"}, "statistic has no effect"),
        (NUMERIC, {"release": "permutation", "calibration": "paper"}, "calibration has no effect"),
        (NUMERIC, {"features": "me", "calibration": "paper", "statistic": "mmd"}, "statistic has no effect"),
        (NUMERIC, {"features": "me", "replicates": 500}, "replicates has no effect"),
        (NUMERIC, {"features": "me", "regularisation": 0.1}, "regularisation has no effect"),
        (NUMERIC, {"release": "permutation", "features": "kernel", "n_features": 5}, "n_features has no"),
        (NUMERIC, {"release": "table", "features": "me"}, "has no features"),
        (NUMERIC, {"release": "aggregate", "pair_share": 0.4}, "pair_share has no effect"),
        (NUMERIC, {"release": "aggregate", "categories": 3}, "categories has no effect"),
        (NUMERIC, {"blocks": 3}, "blocks has no effect"),
    ],
)  # fmt: skip
def test_studies_that_cannot_be_run_as_written_are_refused(
    domain: Domain, parameters: dict[str, Any], reason: str
) -> None:
    study = study_of(domain, parameters)
    for ask in (PROCEDURE.check, PROCEDURE.cost, PROCEDURE.release_size):
        with pytest.raises(StudyError, match=reason):
            ask(study)


def test_a_study_without_a_curator_is_refused_and_so_is_one_with_at_the_other_procedure() -> None:
    with pytest.raises(StudyError, match="needs a curator"):
        PROCEDURE.check(owners_study(NUMERIC, {}))
    with pytest.raises(StudyError, match="curated_two_sample"):
        KernelTwoSample().check(study_of(NUMERIC, {}))


def test_the_statistic_is_never_a_planned_choice_and_is_told_of_before_it_is_run() -> None:
    assert all(choice.get("release") != "statistic" for choice in PROCEDURE.choices)
    units = {"o0": 5000, "o1": 5000}
    (said,) = PROCEDURE.warnings(study_of(NUMERIC, {"release": "statistic"}), units)
    assert "kept for history" in said
    assert PROCEDURE.warnings(study_of(NUMERIC, {}), units) == ()


def test_a_level_that_no_permutation_reaches_is_refused() -> None:
    with pytest.raises(StudyError, match="more permutations"):
        PROCEDURE.check(study_of(NUMERIC, {"release": "permutation", "permutations": 99}, level=0.001))


def test_permutations_and_pairs_are_drawn_afresh_and_not_from_the_study() -> None:
    table = pool(NUMERIC, uniform(NUMERIC, 50, 1), uniform(NUMERIC, 50, 2))
    study = study_of(NUMERIC, {"release": "permutation", "permutations": 99}, level=0.05)
    one, two = (PROCEDURE.summarise(study, table).exact for _ in range(2))
    assert one[0] == two[0]  # type: ignore[index]
    assert not np.array_equal(one, two)  # type: ignore[arg-type]
    paired = study_of(NUMERIC, {"features": "me", "n_features": 3, "calibration": "paper"})
    sums: list[Any] = [PROCEDURE.summarise(paired, table).exact for _ in range(2)]
    assert np.array_equal(sums[0].total, sums[1].total)
    assert not np.array_equal(sums[0].second, sums[1].second)


def test_a_table_that_is_not_the_owners_is_refused() -> None:
    study, table = study_of(NUMERIC, {}), uniform(NUMERIC, 20, 1)
    with pytest.raises(StudyError, match="all owners"):
        PROCEDURE.summarise(study, table)
    with pytest.raises(StudyError, match="all owners"):
        PROCEDURE.summarise(study, pool(NUMERIC, table))
    with pytest.raises(StudyError, match="all owners"):
        PROCEDURE.summarise(study, pool(NUMERIC, table, table, table))


def test_samples_of_two_sizes_are_not_paired() -> None:
    study = study_of(NUMERIC, {"features": "me", "n_features": 3, "calibration": "paper"})
    with pytest.raises(StudyError, match="as many"):
        PROCEDURE.summarise(study, pool(NUMERIC, uniform(NUMERIC, 20, 1), uniform(NUMERIC, 21, 1)))


class ChoosingNoise(SeededNoise):
    """Seeded noise that draws from lists too."""

    def choose(self, scores: np.ndarray, scale: float) -> int:
        rng = np.random.default_rng(int(scores.sum()) % 2**32)
        return int(np.argmax(scores / scale + rng.gumbel(size=len(scores))))


def seen(
    parameters: dict[str, Any], draw: Callable[[np.random.Generator], Sequence[np.ndarray]], runs: int
) -> int:
    """How often samples of one or two numeric columns are told apart."""
    rejected = 0
    for run in range(runs):
        rng = np.random.default_rng([run, 77])
        tables = [numbers(NUMERIC, rows) for rows in draw(rng)]
        study = study_of(NUMERIC, parameters, level=0.05, seed=run + 1)
        table, order = pool(NUMERIC, *tables), np.random.default_rng(run)
        release = release_of(PROCEDURE, study, table, ChoosingNoise(run), order=order)
        rejected += PROCEDURE.assemble(study, {"curator": release}).reject
    return rejected


@pytest.mark.sweep(1)
@pytest.mark.parametrize("heavy", [False, True])
@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"features": "me", "n_features": 5},
        {"features": "me", "n_features": 5, "statistic": "noise-aware", "replicates": 99},
        {"release": "statistic", "features": "columns"},
        {"release": "permutation", "permutations": 99},
        {"release": "aggregate"},
        {"release": "table", "permutations": 99},
    ],
)  # fmt: skip
def test_the_level_is_kept(parameters: dict[str, Any], heavy: bool) -> None:
    """150 runs at level .05: 24 or more have probability 2e-6 in each cell of a test that is just at it."""

    def draw(rng: np.random.Generator) -> list[np.ndarray]:
        shape = [(60, 2), (150, 2)]
        if heavy:
            # Ties, and rare values.
            return [np.minimum(rng.poisson(0.3, s), 4) / 4 for s in shape]
        return [0.5 + 0.1 * rng.standard_normal(s) for s in shape]

    assert seen(parameters, draw, 150) <= 23


def test_a_table_says_of_every_column_how_it_depends_on_the_sample() -> None:
    """In pure epsilon; the second sample's first column is larger, by a standard deviation."""
    rng = np.random.default_rng(0)
    values = [0.4 + 0.1 * rng.standard_normal((600, 2)), 0.4 + 0.1 * rng.standard_normal((900, 2))]
    values[1][:, 0] += 0.1
    study = study_of(NUMERIC, {"release": "table", "permutations": 199}, delta=0.0)
    PROCEDURE.check(study)
    table = pool(NUMERIC, *(numbers(NUMERIC, rows) for rows in values))
    release = release_of(PROCEDURE, study, table, ChoosingNoise(3), order=rng)
    verdict = PROCEDURE.assemble(study, {"curator": release})
    assert isinstance(verdict, CuratedTwoSampleTable)
    assert verdict.reject
    found = {pair.second: pair for pair in verdict.pairs}
    assert set(found) == {"n0", "n1"}
    first, second = found["n0"].correlation_interval, found["n1"].correlation_interval
    assert first[0] > 0.2
    assert second[0] < 0.1
    assert PROCEDURE.panels(study, verdict.model_dump(mode="json"), {})


def test_auto_is_a_decision_and_of_one_column_of_many_units_a_p_value() -> None:
    one = study_of(domain_of(1), {"release": "auto"}, delta=0.0)
    assert PROCEDURE.verdict_type(one) is CuratedTwoSampleTable
    for units, verdict in ((25_000, CuratedTwoSampleDecision), (25_001, CuratedTwoSampleTable)):
        owners = tuple(owner.model_copy(update={"units": units}) for owner in one.owners)
        assert PROCEDURE.verdict_type(one.model_copy(update={"owners": owners})) is verdict
    several = study_of(NUMERIC, {"release": "auto"}, delta=0.0)
    PROCEDURE.check(several)
    assert PROCEDURE.verdict_type(several) is CuratedTwoSampleDecision
    table = pool(NUMERIC, uniform(NUMERIC, 20, 1), uniform(NUMERIC, 21, 2))
    release = release_of(PROCEDURE, several, table, SeededNoise(1))
    assert isinstance(PROCEDURE.assemble(several, {"curator": release}), CuratedTwoSampleDecision)


def test_auto_takes_blocks_where_no_table_can_be() -> None:
    domain = domain_of(0, (100,))
    study = study_of(domain, {"release": "auto"}, epsilon=3.0, delta=0.0)
    assert PROCEDURE.verdict_type(study) is CuratedTwoSampleBlocks
    table = pool(domain, uniform(domain, 200, 1), uniform(domain, 210, 2))
    release = release_of(PROCEDURE, study, table, SeededNoise(1))
    PROCEDURE.check_release(study, release)
    assert isinstance(PROCEDURE.assemble(study, {"curator": release}), CuratedTwoSampleBlocks)
