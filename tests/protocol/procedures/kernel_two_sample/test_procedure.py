"""The kernel two-sample procedure in one process: refusals, releases, verdicts, names, warnings."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from two_sample_cases import (
    MemoryTable,
    NoNoise,
    SeededNoise,
    domain_of,
    numbers,
    releases_of,
    study_of,
    verdict_of,
)

from tacit_protocol.domain.columns import CategoricalColumn, Domain
from tacit_protocol.messages.release import Release
from tacit_protocol.privacy.guarantee import GaussianEvent
from tacit_protocol.procedures.base import StudyError
from tacit_protocol.procedures.kernel_two_sample import (
    HOPELESS,
    KernelTwoSample,
    TwoSampleResult,
)
from tacit_protocol.procedures.means.max_form import PAIRS_NAMED_MAX

PROCEDURE = KernelTwoSample()
NUMERIC, MIXED = domain_of(2), domain_of(2, (4, 3))

CHOICES: list[dict[str, Any]] = [
    {},
    {"features": "columns"},
    {"features": "columns", "cycles": [1, 2]},
    {"features": "me", "n_features": 6},
    {"features": "me", "n_features": 6, "kernel": "laplacian", "bandwidth": 0.3},
    {"features": "me", "locations": [[0.1, 0.2], [0.5, 0.9]], "mean_share": 0.5},
    {"features": "me", "n_features": 1},
    {"features": "scf", "n_features": 6},
    {"features": "me", "n_features": 4, "statistic": "noise-aware", "replicates": 99},
    {"features": "me", "n_features": 4, "null": "noise-aware", "replicates": 99},
    {"features": "me", "n_features": 4, "null": "weighted"},
    {"features": "scf", "n_features": 4, "null": "asymptotic", "regularisation": 0.01},
    {"features": "me", "n_features": 4, "calibration": "paper"},
    {"features": "scf", "n_features": 4, "calibration": "paper", "statistic": "mmd"},
]


def uniform(domain: Domain, rows: int, seed: int) -> MemoryTable:
    rng = np.random.default_rng(seed)
    codes = [rng.integers(0, column.categories - 2, rows) for column in domain.categorical]
    categorical = np.stack(codes, axis=1).astype(np.int32) if codes else np.zeros((rows, 0), np.int32)
    return MemoryTable(domain, rng.random((rows, len(domain.numeric))), categorical)


@pytest.mark.parametrize(
    ("domain", "parameters", "reason"),
    [
        (NUMERIC, {"calibration": "paper"}, "needs features"),
        (NUMERIC, {"features": "columns", "calibration": "paper"}, "needs features"),
        (NUMERIC, {"statistic": "mmd"}, "max form alone"),
        (NUMERIC, {"null": "weighted"}, "max form alone"),
        (NUMERIC, {"features": "me", "statistic": "max"}, "max form needs"),
        (NUMERIC, {"features": "me", "statistic": "mmd", "null": "weighted"}, "two owners and statistic"),
        (NUMERIC, {"features": "me", "statistic": "mmd", "null": "noise-aware"}, "exact null"),
        (MIXED, {"features": "scf"}, "numeric columns alone"),
        (NUMERIC, {"features": "me", "locations": [[0.1]]}, "one value per column"),
        (NUMERIC, {"features": "me", "locations": [[0.1, "x"]]}, "must be a number"),
        (NUMERIC, {"n_features": 5}, "n_features has no effect"),
        (NUMERIC, {"bandwidth": 0.5}, "bandwidth has no effect"),
        (NUMERIC, {"features": "scf", "kernel": "laplacian"}, "kernel has no effect"),
        (NUMERIC, {"features": "scf", "locations": [[0.1, 0.2]]}, "locations has no effect"),
        (NUMERIC, {"features": "me", "cycles": [1.0]}, "cycles has no effect"),
        (NUMERIC, {"features": "columns", "pair_share": 0.5}, "pair_share has no effect"),
        (NUMERIC, {"features": "me", "replicates": 500}, "replicates has no effect"),
        (NUMERIC, {"features": "me", "regularisation": 0.1}, "regularisation has no effect"),
        (NUMERIC, {"features": "me", "calibration": "paper", "mean_share": 0.5}, "mean_share has no effect"),
    ],
)  # fmt: skip
def test_studies_that_cannot_be_run_as_written_are_refused(
    domain: Domain, parameters: dict[str, Any], reason: str
) -> None:
    study = study_of(domain, parameters)
    for ask in (PROCEDURE.check, PROCEDURE.cost, PROCEDURE.numbers_released):
        with pytest.raises(StudyError, match=reason):
            ask(study)


def test_nulls_of_the_published_test_are_for_two_owners() -> None:
    with pytest.raises(StudyError, match="two owners"):
        PROCEDURE.check(study_of(NUMERIC, {"features": "me", "null": "weighted"}, owners=3))
    PROCEDURE.check(study_of(NUMERIC, {"features": "me", "calibration": "paper"}, owners=3))


def test_too_many_numbers_are_refused() -> None:
    levels = tuple(f"l{i}" for i in range(1000))
    wide = Domain(columns=tuple(CategoricalColumn(name=f"c{i}", levels=levels) for i in range(50)))
    with pytest.raises(StudyError, match="too many numbers"):
        PROCEDURE.check(study_of(wide, {}))


def test_an_epsilon_too_large_for_the_grid_is_refused_before_anything_is_released() -> None:
    """Many owners' units make the grid of second moments coarse; noise this small would show its steps."""
    study = study_of(NUMERIC, {"features": "me", "n_features": 40}, epsilon=100.0)
    table = MemoryTable(NUMERIC, np.zeros((1, 2)), np.zeros((1, 0), np.int32), None, (), 1)
    summary = PROCEDURE.summarise(study, table)
    coarse = type(summary)(2**40, 8, summary.total, 1.0, summary.second, 1.0)
    with pytest.raises(StudyError, match="smaller epsilon"):
        PROCEDURE.privatise(study, coarse, NoNoise())


Tampering = Callable[[Release], dict[str, Any]]


def event_with(multiplier: float) -> Tampering:
    def tamper(release: Release) -> dict[str, Any]:
        event = GaussianEvent(noise_multiplier=release.guarantee.events[0].noise_multiplier * multiplier)  # type: ignore[union-attr]
        events = (event, *release.guarantee.events[1:])
        return {"guarantee": release.guarantee.model_copy(update={"events": events})}

    return tamper


def test_the_last_bit_of_another_processor_is_no_tampering() -> None:
    study = study_of(NUMERIC, {"features": "me", "n_features": 4})
    release = releases_of(study, [uniform(NUMERIC, 300, 1)] * 2, SeededNoise(1))["o0"]
    rounded = release.model_copy(update=event_with(1 + 1e-12)(release))
    assert rounded != release
    PROCEDURE.check_release(study, rounded)


def named(verdict: TwoSampleResult) -> set[tuple[str, ...]]:
    return {group.columns for group in verdict.columns if group.reject}


def test_the_column_that_differs_is_named() -> None:
    """At n = 20000 and epsilon 2 the effect is many noises wide; a false name has probability .01 at most."""
    domain = domain_of(4, (5,))
    tables = [uniform(domain, 20_000, 1), uniform(domain, 20_000, 2)]
    tables[1].numeric[:, 2] = tables[1].numeric[:, 2] ** 2
    verdict = verdict_of(study_of(domain, {}, epsilon=2.0, level=1e-4), tables, SeededNoise(5))
    assert verdict.reject
    assert ("n2",) in named(verdict)
    assert all("n2" in columns for columns in named(verdict))
    assert [c.columns for c in verdict.columns if c.kind == "column"] == [
        ("n0",),
        ("n1",),
        ("n2",),
        ("n3",),
        ("c0",),
    ]


@pytest.mark.parametrize("kind", ["numeric", "mixed", "categorical"])
def test_the_pair_of_columns_that_differs_is_named_where_no_column_does(kind: str) -> None:
    """A pure interaction: every column has the same distribution at both owners."""
    domain, rows = domain_of(3, (4, 4)), 40_000
    tables = [uniform(domain, rows, 1), uniform(domain, rows, 2)]
    numeric, codes = tables[1].numeric, tables[1].categorical
    if kind == "numeric":
        numeric[:, 1] = numeric[:, 0]
        expected = ("n0", "n1")
    elif kind == "mixed":
        codes[:, 0] = np.where(numeric[:, 2] < 0.5, 0, 1)
        expected = ("n2", "c0")
    else:
        codes[:, 1] = codes[:, 0]
        expected = ("c0", "c1")
    verdict = verdict_of(study_of(domain, {}, epsilon=4.0, level=1e-4), tables, SeededNoise(6))
    assert named(verdict) == {expected}


@pytest.mark.parametrize("owners", [3, 4])
@pytest.mark.parametrize("parameters", [{}, {"features": "me", "n_features": 10}])
def test_the_owner_that_differs_is_in_every_pair_that_is_named(
    owners: int, parameters: dict[str, Any]
) -> None:
    tables = [uniform(MIXED, 8000 + 500 * i, i) for i in range(owners)]
    tables[-1] = MemoryTable(MIXED, tables[-1].numeric ** 3, tables[-1].categorical)
    verdict = verdict_of(
        study_of(MIXED, parameters, owners=owners, epsilon=2.0, level=1e-4), tables, SeededNoise(7)
    )
    assert verdict.reject
    assert len(verdict.pairs) == owners * (owners - 1) // 2
    last = f"o{owners - 1}"
    for pair in verdict.pairs:
        assert pair.reject == (last in (pair.first, pair.second))
        assert (pair.lower > 0) == pair.reject
    assert verdict.lower is not None
    assert verdict.lower > 0


def test_the_same_data_are_not_told_apart() -> None:
    """Every choice that keeps its level, at level 1e-4: a false alarm over all has probability 1e-3, and the
    seeds are fixed."""
    tables = [uniform(NUMERIC, 5000, 1), uniform(NUMERIC, 2500, 2)]
    for parameters in CHOICES:
        study = study_of(NUMERIC, parameters, level=1e-4)
        verdict = verdict_of(study, tables, SeededNoise(8))
        if not any("not kept" in warning for warning in verdict.warnings):
            assert not verdict.reject


def test_units_that_own_many_rows_count_once() -> None:
    """Half of the rows belong to one unit: by rows the owners differ, by units they do not."""
    rng = np.random.default_rng(9)
    plain, rows = uniform(NUMERIC, 4000, 3), rng.random((4000, 2))
    loud = np.vstack([rows, np.full((4000, 2), 0.9)])
    none = np.zeros((8000, 0), np.int32)
    unit = np.concatenate([np.arange(4000), np.full(4000, 3999)])
    study = study_of(NUMERIC, {}, level=1e-4)
    by_unit = verdict_of(study, [plain, MemoryTable(NUMERIC, loud, none, unit)], SeededNoise(10))
    by_row = verdict_of(study, [plain, MemoryTable(NUMERIC, loud, none)], SeededNoise(10))
    assert by_unit.units["o1"] == 4000
    assert not by_unit.reject
    assert by_row.reject


def test_the_pairs_of_columns_named_are_bounded_and_those_that_differ_most() -> None:
    domain = domain_of(12)
    tables = [uniform(domain, 3000, 1), uniform(domain, 3000, 2)]
    verdict = verdict_of(study_of(domain, {}), tables, SeededNoise(1))
    pairs = [group for group in verdict.columns if group.kind == "pair"]
    assert len(pairs) == PAIRS_NAMED_MAX < 66
    assert [p.pvalue for p in pairs] == sorted(p.pvalue for p in pairs)


def test_an_owner_too_small_to_be_seen_is_named_in_a_warning() -> None:
    study = study_of(NUMERIC, {}, owners=3)
    (warning,) = PROCEDURE.warnings(study, {"o0": 100_000, "o1": 4, "o2": 90_000})
    assert "o1" in warning
    assert "o2" not in warning
    assert not warning.startswith(HOPELESS)


def test_a_hopeless_study_finds_nothing_and_one_without_warning_finds_the_difference_it_promises() -> None:
    """At the smallest n without a warning, half of an owner's units moved across a column are seen."""
    study = study_of(domain_of(1), {}, level=0.01)
    sizes = [n for n in range(5, 400, 5) if not PROCEDURE.warnings(study, {"o0": n, "o1": n})]
    seen = {}
    for n in (sizes[0], 8):
        halves = np.tile([[0.1], [0.715]], (n // 2 + 1, 1))[:n]  # half a period of the base frequency apart
        found = [
            verdict_of(
                study,
                [numbers(study.domain, np.full((n, 1), 0.1)), numbers(study.domain, halves)],
                SeededNoise(s),
            ).reject
            for s in range(60)
        ]
        seen[n] = np.mean(found)
    # the promise is .8; five standard errors of 60 runs are .26
    assert seen[sizes[0]] >= 0.5
    assert seen[8] <= 0.3
