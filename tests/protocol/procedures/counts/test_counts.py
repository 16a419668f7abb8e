"""Noisy counts and tests on them: releases read again, verdicts, level, residuals, Cramér's V."""

import re
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from made_studies import made_study, release_of, releases_of
from scipy.special import bdtrc
from scipy.stats import chi2_contingency
from two_sample_cases import MemoryTable

from tacit.planning.simulation import SimulatedNoise
from tacit_protocol.domain import CategoricalColumn, Column, Domain, NumericColumn, encode
from tacit_protocol.features.cell_counts import CellCounts, compared_places
from tacit_protocol.messages.study import Release, Study
from tacit_protocol.numerics.noisy_tables import CellNoise, NoisyTable
from tacit_protocol.privacy.noise import OpenDPNoise
from tacit_protocol.procedures.base import ReleaseError, StudyError, check_release, reread
from tacit_protocol.procedures.discovery import procedure_named
from tacit_protocol.procedures.homogeneity import Weights, between_owners, differences, homogeneity_test
from tacit_protocol.procedures.independence_table import cramers_v, from_independence, independence_test

SEX = CategoricalColumn(name="sex", levels=("f", "m"))
RACE = CategoricalColumn(name="race", levels=("a", "b", "c"))
AGE = NumericColumn(name="age", lower=0.0, upper=100.0)

Columns = dict[str, npt.NDArray[Any]]


def table_of(domain: Domain, columns: Columns) -> MemoryTable:
    chunk = encode(domain, columns)
    return MemoryTable(domain, chunk.numeric, chunk.categorical)


def study(
    procedure: str,
    columns: tuple[Column, ...] = (SEX, RACE),
    owners: int = 1,
    delta: float = 0.0,
    **changes: Any,
) -> Study:
    return made_study(procedure, Domain(columns=columns), owners=owners, delta=delta, **changes)


def rows(asked: Study, units: int, seed: int, *, dependent: float = 0.0) -> MemoryTable:
    """Random rows; with ``dependent`` the race follows the sex in that part of the units."""
    rng = np.random.default_rng(seed)
    sex = rng.integers(0, 2, units)
    race = np.where(rng.random(units) < dependent, sex, rng.choice(3, units, p=[0.5, 0.3, 0.2]))
    values: Columns = {
        "sex": np.array(SEX.levels, dtype=object)[sex],
        "race": np.array(RACE.levels, dtype=object)[race],
        "age": rng.uniform(0, 100, units),
    }
    return table_of(asked.domain, {c.name: values[c.name] for c in asked.domain.columns})


def play(asked: Study, tables: list[MemoryTable]) -> tuple[Any, dict[str, Release]]:
    procedure = procedure_named(asked.procedure)
    procedure.check(asked)
    releases = releases_of(procedure, asked, tables, OpenDPNoise())
    return procedure.assemble(asked, releases), releases


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_noisy_counts_lie_within_their_intervals(noise: str) -> None:
    asked = study("noisy_counts", epsilon=2.0, delta=1e-5, parameters={"noise": noise}, level=1e-9)
    table = rows(asked, 3000, 1)
    verdict, _ = play(asked, [table])
    counts = np.array(verdict.counts["owner-0"]).reshape(verdict.shape)
    found = np.zeros((4, 5))
    np.add.at(found, tuple(next(table.chunks()).categorical.T), 1)
    # All cells together miss with probability at most the level, 1e-9.
    assert np.abs(counts - found).max() < verdict.half_width_all + 1e-3
    assert verdict.columns == ("sex", "race")
    assert verdict.half_width < verdict.half_width_all
    assert not verdict.reject


def test_homogeneity_finds_a_difference_and_names_owner_and_cell() -> None:
    asked = study("homogeneity", (RACE,), owners=3, parameters={"replicates": 999})
    tables = [rows(asked, 3000, seed) for seed in (1, 2, 3)]
    tables[2].categorical[:900] = RACE.levels.index("c")
    verdict, _ = play(asked, tables)
    assert verdict.reject
    assert verdict.pvalue == 1 / 1000
    differing = {(pair.first, pair.second) for pair in verdict.pairs if pair.reject}
    assert differing >= {("owner-0", "owner-2"), ("owner-1", "owner-2")}
    striking = {cell.labels["race"] for cell in verdict.cells if cell.reject}
    assert "c" in striking


def test_independence_table_finds_dependence_and_measures_it() -> None:
    asked = study("independence_table", epsilon=2.0, parameters={"replicates": 999})
    verdict, _ = play(asked, [rows(asked, 5000, 1, dependent=0.5)])
    assert verdict.reject
    assert verdict.lower <= verdict.cramers_v <= verdict.upper
    exact = _exact_v(rows(asked, 5000, 1, dependent=0.5))
    # Coverage .95; noise of this seed's data moves V by .02 at most but for probability 1e-9.
    assert abs(verdict.cramers_v - exact) < 0.1


def of_shares(asked: Study, units: int, sex: float, race: tuple[float, float]) -> MemoryTable:
    """Rows of which that share are men, and those shares of women and of men are of race a, else b."""
    men = round(units * sex)
    first = [
        np.arange(size) < round(size * share) for size, share in zip((units - men, men), race, strict=True)
    ]
    columns = {
        "sex": np.repeat(["f", "m"], (units - men, men)),
        "race": np.where(np.concatenate(first), "a", "b"),
    }
    return table_of(asked.domain, {name: values.astype(object) for name, values in columns.items()})


@pytest.mark.parametrize(
    ("owners", "said", "within"),
    [
        # Owners differ in both columns; within each they are independent.
        (((0.2, (0.2, 0.2)), (0.8, (0.8, 0.8))), "no dependence within owners was shown", False),
        # Within owners men are less often a, in the sum more often: Simpson's paradox.
        (((0.1, (0.3, 0.1)), (0.9, (0.95, 0.8))), "another direction", True),
        # Within owners men are more often a; owners' shares hide it in the sum.
        (((0.2, (0.6, 0.84)), (0.8, (0.2, 0.44))), "which adding tables up hides", True),
        # The same within owners and in their sum: nothing misleads.
        (((0.5, (0.3, 0.6)), (0.5, (0.3, 0.6))), "", True),
    ],
)
def test_a_table_of_several_owners_says_where_adding_up_misleads(
    owners: tuple[tuple[float, tuple[float, float]], ...], said: str, within: bool
) -> None:
    """p-values are .001 where something is there, at 8 standard errors and more, and else near 1.

    Rows are what their shares say. The noise on a cell has a deviation of .07, a hundredth of what sampling
    would add: that it moves a statistic by two standard errors has probability 1e-40.
    """
    parameters = {"replicates": 999}
    two = (SEX, CategoricalColumn(name="race", levels=("a", "b")))
    asked = study("independence_table", two, owners=2, epsilon=40.0, parameters=parameters)
    verdict, _ = play(asked, [of_shares(asked, 3000, *own) for own in owners])
    (pair,) = verdict.within_owners
    assert pair.reject == within
    warned = [warning for warning in verdict.warnings if "stratified_table" in warning]
    assert [said in warning for warning in warned] == ([True] if said else [])
    sentence = procedure_named("independence_table").meaning(asked, verdict.model_dump(mode="json")).sentence
    assert ("Within owners they depend" if within else "Within owners no dependence was shown") in sentence


def test_pairs_are_tested_within_owners_where_there_are_several() -> None:
    procedure = procedure_named("independence_table")
    several = study("independence_table", owners=2, parameters={"replicates": 999})
    verdict, _ = play(several, [rows(several, 900, seed) for seed in (1, 2)])
    assert len(verdict.within_owners) == len(verdict.pairs)
    told = procedure.warnings(several, {"owner-0": 900, "owner-1": 900})
    assert any("stratified_table asks within owners" in warning for warning in told)
    assert procedure.warnings(study("independence_table"), {"owner-0": 900}) == ()


def test_differences_of_shares_are_those_of_the_rows_within_their_intervals() -> None:
    """Three owners, 3000 units; noise of deviation 1.4 a cell. All intervals together miss with 1e-9."""
    asked = study("homogeneity", (RACE,), owners=3, epsilon=2.0, level=1e-9)
    rng, tables, shares = np.random.default_rng(3), [], {}
    for place, p in enumerate(([0.5, 0.3, 0.2], [0.4, 0.4, 0.2], [0.5, 0.3, 0.2])):
        codes = rng.choice(3, 3000, p=p)
        tables.append(table_of(asked.domain, {"race": np.array(RACE.levels, dtype=object)[codes]}))
        shares[f"owner-{place}"] = np.bincount(codes, minlength=3) / 3000
    verdict, _ = play(asked, tables)
    assert len(verdict.effects) == 9
    for effect in verdict.effects:
        first, second = effect.groups
        exact = (shares[first] - shares[second])[RACE.levels.index(effect.level)]
        # Of these rows: noise alone, six of its deviations.
        assert abs(effect.estimate - exact) < 6 * np.sqrt(2) * 1.42 / 3000 * 1.5
        assert effect.simultaneous_lower <= effect.lower <= effect.estimate <= effect.upper
        assert effect.upper <= effect.simultaneous_upper
    assert {effect.level for effect in verdict.effects[:3]} <= {"a", "b"}
    assert "homogeneity" in asked.procedure
    sentence = procedure_named("homogeneity").meaning(asked, verdict.model_dump(mode="json")).sentence
    assert "race: share of" in sentence or "shares of" in sentence


def test_intervals_of_differences_hold_the_truth_and_count_the_noise() -> None:
    """600 studies at .95: fewer than 540 held has probability 1e-7; without the noise counted 300 hold."""
    held, naive, all_held, runs = 0, 0, 0, 600
    noise, laws = CellNoise("laplace", 8.0), (np.array([0.7, 0.25, 0.05]), np.array([0.6, 0.3, 0.1]))
    for run in range(runs):
        rng = np.random.default_rng([4, run])
        tables = [NoisyTable(rng.multinomial(400, p) + noise.draw(rng, (3,)), 400, (noise,)) for p in laws]
        args = (np.arange(3), 0.05, 499, np.random.SeedSequence(run))
        found, alone, together = differences(tables, *args)
        off = np.abs(found[0] - (laws[0] - laws[1]))
        held += bool(off[0] <= alone[0, 0])
        all_held += bool(np.all(off <= together[0]))
        silent = [NoisyTable(table.counts, 400, (CellNoise("laplace", 1e-6),)) for table in tables]
        naive += bool(off[0] <= differences(silent, *args)[1][0, 0])
    assert held >= 540
    assert all_held >= 540
    assert naive < 540


def test_so_many_shares_are_not_compared() -> None:
    many = CategoricalColumn(name="x", levels=tuple(f"l{i}" for i in range(500)))
    asked = study("homogeneity", (many,), owners=3, parameters={"replicates": 999})
    rng = np.random.default_rng(6)
    values = [np.array(many.levels, dtype=object)[rng.integers(0, 500, 2000)] for _ in range(3)]
    verdict, _ = play(asked, [table_of(asked.domain, {"x": own}) for own in values])
    assert verdict.effects == ()
    assert any("differences of shares are not estimated" in warning for warning in verdict.warnings)


def _exact_v(table: MemoryTable) -> float:
    found = np.zeros((2, 3))
    np.add.at(found, tuple(next(table.chunks()).categorical.T), 1)
    share = found / found.sum()
    fitted = np.outer(share.sum(1), share.sum(0))
    return float(np.sqrt(np.sum((share - fitted) ** 2 / fitted)))


def reusing(asked: Study, *places: int) -> Study:
    """The study with the owners at these places reusing an earlier release."""
    owners = list(asked.owners)
    for place in places:
        owners[place] = owners[place].model_copy(update={"reuses": "ab" * 32})
    return Study.model_validate(asked.model_dump() | {"owners": tuple(o.model_dump() for o in owners)})


@pytest.mark.parametrize("procedure", ["homogeneity", "independence_table", "noisy_counts"])
def test_a_finer_table_is_read_again_and_its_noise_is_counted(procedure: str) -> None:
    source = study("noisy_counts", (RACE, AGE, SEX), owners=2, parameters={"cuts": {"age": [30.0, 60.0]}})
    tables = [rows(source, 2000, seed) for seed in (1, 2)]
    _, releases = play(source, tables)
    asked = reusing(study(procedure, (SEX, RACE), owners=2), 0, 1)
    again = {
        owner.name: reread(procedure_named(procedure), asked, owner, source, releases[owner.name])
        for owner in asked.owners
    }
    vector = again["owner-0"].vectors["sums_of_3"]
    finer = releases["owner-0"].vectors["counts"]
    assert len(vector.values) == 20
    assert sum(vector.values) == sum(finer.values)
    # Cell (sex f, race b) is the sum over age: places race 1, age 0..2, sex 0 of shape (5, 3, 4).
    assert vector.values[1] == sum(finer.values[(1 * 3 + age) * 4] for age in range(3))
    verdict: Any = procedure_named(procedure).assemble(asked, again)
    assert verdict.units == {"owner-0": 2000, "owner-1": 2000}
    if procedure == "noisy_counts":
        alone, _ = play(study(procedure), [rows(study(procedure), 2000, 1)])
        assert verdict.half_width > 1.3 * alone.half_width


def test_half_widths_cover_every_owner_where_noises_differ() -> None:
    """A reused Laplace release has the smaller variance here, and the wider tail over many cells."""
    many = CategoricalColumn(name="race", levels=tuple(f"level {i}" for i in range(300)))
    source = study("noisy_counts", (many,), epsilon=2.0, owners=2)
    gaussian = {"noise": "gaussian", "rho": 0.4}
    later = study("noisy_counts", (many,), owners=2, epsilon=6.0, delta=1e-5, parameters=gaussian)
    asked = reusing(later, 0)
    values = {"race": np.full(500, "level 0", dtype=object)}
    tables = [table_of(source.domain, values)] * 2
    procedure, (_, releases) = procedure_named("noisy_counts"), play(source, tables)
    releases = {
        "owner-0": reread(procedure, asked, asked.owners[0], source, releases["owner-0"]),
        "owner-1": release_of(procedure, asked, tables[1], OpenDPNoise()),
    }
    verdict: Any = procedure.assemble(asked, releases)
    laplace, normal = CellNoise("laplace", 1.0), CellNoise("gaussian", (1 / 0.4) ** 0.5)
    assert laplace.variance < normal.variance
    size = len(verdict.counts["owner-0"])
    for stated, outside in ((verdict.half_width, 0.05), (verdict.half_width_all, 0.05 / size)):
        widths = [noise.half_width(outside) for noise in (laplace, normal)]
        assert stated == pytest.approx(max(widths), rel=1e-6)
    assert verdict.noise == "laplace"


def test_one_owner_may_reuse_while_another_answers() -> None:
    source = study("noisy_counts", epsilon=3.0, owners=2)
    _, releases = play(source, [rows(source, 2000, seed) for seed in (1, 2)])
    asked = reusing(study("homogeneity", owners=2, parameters={"replicates": 999}), 0)
    procedure = procedure_named("homogeneity")
    again = reread(procedure, asked, asked.owners[0], source, releases["owner-0"])
    fresh = release_of(procedure, asked, rows(asked, 2000, 7), OpenDPNoise())
    verdict: Any = procedure.assemble(asked, {"owner-0": again, "owner-1": fresh})
    assert verdict.units["owner-0"] == 2000
    # An owner that answers for itself must have exactly the study's noise: the tester refuses its upload.
    with pytest.raises(ReleaseError):
        check_release(procedure, asked, again)
    with pytest.raises(ReleaseError):
        procedure.assemble(asked, {"owner-0": again, "owner-1": again})


def test_a_release_without_whole_counts_is_not_read_again() -> None:
    plain = study("homogeneity", owners=2)
    made = play(plain, [rows(plain, 500, seed) for seed in (1, 2)])[1]["owner-0"]
    asked, counts = reusing(plain, 0, 1), made.vectors["counts"]
    short = counts.model_copy(update={"values": counts.values[1:]})
    for vectors in ({"mean": counts}, {"counts": short}):
        with pytest.raises(StudyError, match="did not release noisy counts"):
            reread(
                procedure_named("homogeneity"),
                asked,
                asked.owners[0],
                plain,
                made.model_copy(update={"vectors": vectors}),
            )


@pytest.mark.parametrize("value", [2**62, -(2**62), 0])
@pytest.mark.parametrize("procedure", ["homogeneity", "independence_table", "noisy_counts"])
def test_an_owner_that_lies_about_its_counts_gets_a_verdict_of_finite_numbers(
    procedure: str, value: int
) -> None:
    asked = study(procedure, owners=2)
    _, releases = play(asked, [rows(asked, 300, seed) for seed in (1, 2)])
    vector = releases["owner-0"].vectors["counts"]
    lying = vector.model_copy(update={"values": (value, *vector.values[1:-1], -value)})
    releases["owner-0"] = releases["owner-0"].model_copy(update={"vectors": {"counts": lying}})
    verdict: Any = procedure_named(procedure).assemble(asked, releases)
    type(verdict).model_validate_json(verdict.model_dump_json())
    if procedure != "noisy_counts":
        assert 0 < verdict.pvalue <= 1


def test_the_longest_verdict_fits_an_envelope() -> None:
    levels = tuple(f"{i:0128d}" for i in range(998))
    columns = tuple(
        CategoricalColumn(name=name, levels=levels[:size]) for name, size in (("x", 998), ("y", 34))
    )
    asked = study("noisy_counts", columns)
    procedure = procedure_named("noisy_counts")
    procedure.check(asked)
    empty = procedure.privatise(
        asked, CellCounts(2**40, np.full(36_000, -(2**60), dtype=np.int64)), OpenDPNoise()
    )
    text = procedure.assemble(asked, {"owner-0": empty}).model_dump_json()
    # An envelope is base64 of at most a mebibyte, with a few hundred bytes around it.
    assert len(text) * 4 / 3 < 2**20 - 2**14


NOISE = (CellNoise("laplace", 4.0),)
RUNS = 3000


def noisy(rng: np.random.Generator, units: int, p: npt.NDArray[np.float64]) -> NoisyTable:
    table = NoisyTable(rng.multinomial(units, p).astype(np.float64), units, NOISE)
    return NoisyTable(table.counts + table.draw_noise(rng, 1)[0], units, NOISE)


def test_residuals_have_unit_variance_where_owners_are_alike_and_columns_independent() -> None:
    """3000 runs: a mean square's standard error is .026 to .045 with Laplace tails; .25 is far beyond."""
    rng, p = np.random.default_rng(4), np.outer([0.6, 0.4], [0.5, 0.3, 0.2]).ravel()
    owners = [between_owners([noisy(rng, n, p) for n in (400, 900, 1500)]) for _ in range(RUNS)]
    columns = [from_independence(noisy(rng, 2000, p), (2, 3)) for _ in range(RUNS)]
    for found in (np.stack(owners), np.stack(columns)):
        assert np.mean(found, axis=0) == pytest.approx(0.0, abs=0.12)
        assert np.mean(found**2, axis=0) == pytest.approx(1.0, abs=0.25)


# Verdicts warn where released counts show codes that no level stands for, or missing values.


EVENT = CategoricalColumn(name="event", levels=("0", "1"))
ARM = CategoricalColumn(name="arm", levels=("a", "b"))
TIME = NumericColumn(name="t", lower=0.0, upper=10.0)
CUTS = {"cuts": {"t": [2.0, 5.0]}}
UNITS = 5000

TOLD = re.compile(r"([\d.]+) % \(([\d.]+) to ([\d.]+) %\) of the units of owner-(\d)")


def verdict_of(asked: Any, codes: list[np.ndarray]) -> Any:
    """Return the verdict on owners whose events have these codes."""
    procedure, tables = procedure_named(asked.procedure), []
    for seed, own in enumerate(codes):
        rng = np.random.default_rng(seed)
        values = {
            "event": own,
            "arm": rng.choice(np.array(["a", "b"], dtype=object), len(own)),
            "t": rng.uniform(0, 10, len(own)),
        }
        chunk = encode(asked.domain, {c.name: values[c.name] for c in asked.domain.columns})
        tables.append(MemoryTable(asked.domain, chunk.numeric, chunk.categorical))
    procedure.check(asked)
    return procedure.assemble(
        asked, releases_of(procedure, asked, tables, SimulatedNoise(np.random.default_rng(1)))
    )


def codes(seed: int, *shares: tuple[str | None, float]) -> np.ndarray:
    found = np.array([code for code, _ in shares], dtype=object)
    return np.random.default_rng(seed).choice(found, UNITS, p=[share for _, share in shares])


CASES: dict[str, tuple[str, tuple[Column, ...], dict[str, Any], str]] = {
    "survival": ("survival", (TIME, EVENT, ARM), CUTS | {"group": "arm"}, "and took no part"),
    "stratified_table": ("stratified_table", (ARM, EVENT), {}, "and took no part"),
    "independence_table": ("independence_table", (ARM, EVENT), {}, "and in no effect"),
    "within owners": ("independence_table", (ARM, EVENT), {}, "and in no effect"),
    "homogeneity": ("homogeneity", (EVENT,), {}, "and in no effect"),
    "noisy_counts": ("noisy_counts", (EVENT,), {}, "in cells of their own"),
    "group of numbers": ("group_comparison", (TIME, EVENT), {"group": "event"}, "and took no part"),
    "pure": (
        "group_comparison",
        (TIME, EVENT),
        {"group": "event", "noise": "laplace"},
        "and took no part",
    ),
    "outcome": ("group_comparison", (TIME, ARM, EVENT), {"group": "arm"}, "and took no part"),
    "outcome alone": ("group_comparison", (ARM, EVENT), {"group": "arm"}, "and took no part"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_verdict_warns_first_of_codes_that_are_not_listed_and_says_their_share(case: str) -> None:
    """Intervals hold together with probability .999 at least: a false alarm in 1000 seeds for each case."""
    name, columns, parameters, then = CASES[case]
    delta = 1e-5 if name == "group_comparison" and "noise" not in parameters else 0.0
    asked = made_study(
        name, Domain(columns=columns), owners=2, delta=delta, level=0.001, parameters=parameters
    )
    wrong, right = codes(1, ("1", 0.7), ("2", 0.3)), codes(2, ("0", 0.6), ("1", 0.4))
    warned = verdict_of(asked, [right, wrong]).warnings
    found = TOLD.match(warned[0])
    assert found is not None, warned
    share, lower, upper, owner = (float(part) for part in found.groups())
    assert owner == 1
    assert lower <= 100 * float((wrong == "2").mean()) <= upper
    assert lower <= share <= upper < 45
    assert "none of the listed levels 0, 1" in warned[0]
    assert warned[0].endswith(then)
    # A few values that are mistyped are in most data.
    few = codes(3, ("0", 0.59), ("1", 0.4), ("9", 0.01))
    assert not any(TOLD.match(words) for words in verdict_of(asked, [right, few]).warnings)


def test_missing_values_are_told_apart_and_many_owners_are_one_warning() -> None:
    asked = made_study("homogeneity", Domain(columns=(EVENT,)), owners=3, level=0.001)
    gaps = [codes(seed, ("0", 0.5), ("1", 0.4), (None, 0.1)) for seed in (1, 2)]
    warned = verdict_of(asked, [*gaps, codes(3, ("0", 0.5), ("1", 0.5))]).warnings
    told = [words for words in warned if TOLD.match(words)]
    assert len(told) == 1
    assert "and some at 1 other owner, have no value of event" in told[0]


# Homogeneity and independence of noisy tables: level, residuals, margins, Cramér's V, planted mistakes.


Floats = npt.NDArray[np.float64]

UNIFORM = np.full(200, 1 / 200)
SKEWED = np.arange(1, 61) ** -1.5 / np.sum(np.arange(1, 61) ** -1.5)


def tables(
    shares: Floats, sizes: tuple[int, ...], noise: CellNoise, rng: np.random.Generator
) -> list[NoisyTable]:
    return [
        NoisyTable(rng.multinomial(units, shares) + noise.draw(rng, shares.shape), units, (noise,))
        for units in sizes
    ]


def test_without_noise_the_spread_is_pearsons_chi_square() -> None:
    counts = np.array([[30.0, 50.0, 20.0], [60.0, 90.0, 50.0], [20.0, 30.0, 50.0]])
    units = counts.sum(axis=1)
    weights = Weights.of(units, np.full(3, 1e-12), 3)
    shares = counts / units[:, None]
    pooled = weights.pooled(shares)
    # With k = 3 weights are 3 n_j: the spread over 3 p is Pearson's term of the cell.
    deviations = np.sum(weights.spread[:, None] * (shares - pooled) ** 2, axis=0) / (3 * pooled)
    assert float(deviations.sum()) == pytest.approx(chi2_contingency(counts).statistic, rel=1e-9)


def rejections(shares: Floats, sizes: tuple[int, ...], epsilon: float, runs: int) -> int:
    rejected = 0
    for run in range(runs):
        rng = np.random.default_rng([17, run])
        drawn = tables(shares, sizes, CellNoise("laplace", 2 / epsilon), rng)
        rejected += homogeneity_test(drawn, 99, np.random.SeedSequence([18, run])).pvalue <= 0.05
    return rejected


SETTINGS = [
    (UNIFORM, (100, 100), 20.0),
    (UNIFORM, (100, 100), 3.0),
    (SKEWED, (50, 1000), 1.0),
    (SKEWED, (200, 200, 200), 20.0),
    (np.array([0.97, 0.01, 0.01, 0.01]), (60, 60), 10.0),
]


@pytest.mark.sweep(2)
@pytest.mark.parametrize(("shares", "sizes", "epsilon"), SETTINGS)
def test_the_level_is_kept_in_sparse_and_skewed_tables(
    shares: Floats, sizes: tuple[int, ...], epsilon: float
) -> None:
    """At a level of exactly .05 so many rejections have probability below 1e-7, five times over."""
    found = rejections(shares, sizes, epsilon, 80)
    assert bdtrc(found - 1, 80, 0.05) > 1e-7


@pytest.mark.long
def test_the_level_is_kept_where_many_cells_hold_two_units() -> None:
    """At a level of exactly .05 so many rejections have probability below 1e-7.

    With the null at the pooled shares alone it is .066: cells that are empty by chance stay so in the null.
    """
    shares, runs, rejected = np.array([0.65, *[0.35 / 39] * 39]), 6000, 0
    for run in range(runs):
        drawn = tables(shares, (200, 200), CellNoise("laplace", 0.4), np.random.default_rng([21, run]))
        rejected += homogeneity_test(drawn, 39, np.random.SeedSequence([22, run])).pvalue <= 0.05
    assert bdtrc(rejected - 1, runs, 0.05) > 1e-7


def test_the_plain_statistic_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted mistake: the spread itself, nothing subtracted, and one null, at the pooled shares."""
    stated = Weights.cells

    def plain(self: Weights, shares: Floats) -> tuple[Floats, Floats]:
        ratio, _ = stated(self, shares)
        return ratio, ratio

    monkeypatch.setattr(Weights, "cells", plain)
    monkeypatch.setattr("tacit_protocol.procedures.homogeneity.plausible", lambda fitted, *_: (fitted,))
    found = rejections(UNIFORM, (100, 100), 20.0, 80)
    assert bdtrc(found - 1, 80, 0.05) < 1e-7


def test_a_null_without_noise_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted mistake: simulated tables that carry no noise."""
    monkeypatch.setattr(
        NoisyTable, "draw_noise", lambda self, _, replicates: np.zeros((replicates, len(self.counts)))
    )
    found = rejections(np.full(6, 1 / 6), (400, 400), 0.2, 80)
    assert bdtrc(found - 1, 80, 0.05) < 1e-7


ROWS = np.arange(1, 9) ** -1.5 / np.sum(np.arange(1, 9) ** -1.5)
COLUMNS = np.array([0.5, 0.3, 0.15, 0.05])


def draw(probabilities: Floats, units: int, noise: CellNoise, rng: np.random.Generator) -> NoisyTable:
    counts = rng.multinomial(units, probabilities) + noise.draw(rng, probabilities.shape)
    return NoisyTable(counts, units, (noise,))


def rejections_of_independence(
    probabilities: Floats, shape: tuple[int, ...], units: int, epsilon: float, runs: int
) -> int:
    rejected = 0
    for run in range(runs):
        table = draw(probabilities, units, CellNoise("laplace", 2 / epsilon), np.random.default_rng([7, run]))
        rejected += independence_test(table, shape, 99, np.random.SeedSequence([8, run])).pvalue <= 0.05
    return rejected


@pytest.mark.sweep(2)
@pytest.mark.parametrize(
    ("units", "epsilon"), [(60, 20.0), (60, 3.0), (500, 0.5), (500, 20.0), (20_000, 1.0)]
)
def test_the_level_is_kept_with_expected_counts_below_one(units: int, epsilon: float) -> None:
    """At a level of exactly .05 so many rejections have probability below 1e-7, five times over."""
    found = rejections_of_independence(np.outer(ROWS, COLUMNS).ravel(), (8, 4), units, epsilon, 80)
    assert bdtrc(found - 1, 80, 0.05) > 1e-7


@pytest.mark.long
@pytest.mark.parametrize(("units", "epsilon"), [(1000, 0.03), (200, 0.1)])
def test_the_level_is_kept_where_noise_hides_that_one_category_holds_all(units: int, epsilon: float) -> None:
    """At a level of exactly .01 so many rejections have probability below 1e-7, twice over.

    With the null at the fitted margins alone they are .06 and .04: margins drowned in noise look far more
    even than they are.
    """
    margin = np.eye(10)[0]
    shape, runs, rejected = (10, 10), 400, 0
    for run in range(runs):
        rng = np.random.default_rng([9, run])
        table = draw(np.outer(margin, margin).ravel(), units, CellNoise("laplace", 2 / epsilon), rng)
        rejected += independence_test(table, shape, 99, np.random.SeedSequence([10, run])).pvalue <= 0.01
    assert bdtrc(rejected - 1, runs, 0.01) > 1e-7 if rejected else True


def test_a_null_of_independence_without_noise_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        NoisyTable, "draw_noise", lambda self, _, replicates: np.zeros((replicates, len(self.counts)))
    )
    found = rejections_of_independence(np.outer(ROWS, COLUMNS).ravel(), (8, 4), 500, 0.5, 80)
    assert bdtrc(found - 1, 80, 0.05) < 1e-7


def dependent(strength: float) -> Floats:
    joint = (1 - strength) * np.outer(COLUMNS, COLUMNS) + strength * np.diag(COLUMNS)
    return np.asarray(joint.ravel())


@pytest.mark.sweep(1)
@pytest.mark.parametrize("strength", [0.0, 0.1, 0.5])
def test_intervals_of_cramers_v_hold_it(strength: float) -> None:
    """V of this table is the strength itself. At a coverage of .95 so many misses have probability 1e-7."""
    runs, missed = 25, 0
    for run in range(runs):
        table = draw(dependent(strength), 3000, CellNoise("laplace", 4.0), np.random.default_rng([2, run]))
        found = cramers_v(table, (4, 4), 0.05, np.random.SeedSequence([3, run]))
        assert 0 <= found.lower <= found.value <= found.upper <= 1
        missed += not found.lower <= strength <= found.upper
    assert bdtrc(missed - 1, runs, 0.05) > 1e-7 if missed else True


def test_cells_that_nobody_lists_do_not_blur_cramers_v() -> None:
    """Two by two levels at V = .5, and cells for unlisted and missing values with a twentieth of the units.

    At misses of .05 a run, 10 of 25 have probability 3e-7. When nearly empty cells counted, widths were up to
    .5, and the lower end was the estimate itself in two of three runs.
    """
    joint = np.zeros((4, 4))
    joint[:2, :2] = 0.95 * np.array([[0.375, 0.125], [0.125, 0.375]])
    joint[2, :2] = joint[:2, 3] = 0.0125
    missed, widths = 0, []
    for run in range(25):
        drawn = draw(joint.ravel(), 2000, CellNoise("laplace", 2.0), np.random.default_rng([7, run]))
        table = replace(drawn, compared=compared_places((4, 4), (2, 2)))
        found = cramers_v(table, (2, 2), 0.05, np.random.SeedSequence([8, run]))
        missed += not found.lower <= 0.5 <= found.upper
        widths.append(found.upper - found.lower)
        assert found.lower < found.value < found.upper
    assert missed < 10
    assert max(widths) < 0.15


def yes_or_no(phi: float, unlisted: float, together: bool) -> Floats:
    """Two columns of two levels, (16,), beside cells of unlisted and missing values with so many units."""
    joint = np.zeros((4, 4))
    joint[:2, :2] = (1 - unlisted) * (0.25 + phi / 4 * np.array([[1, -1], [-1, 1]]))
    if together:
        joint[3, 3] = unlisted
    else:
        joint[2, :2] = joint[:2, 3] = unlisted / 4
    return np.asarray(joint.ravel())


def rejections_given_the_listed(joint: Floats, epsilon: float, runs: int) -> int:
    rejected, cells = 0, compared_places((4, 4), (2, 2))
    for run in range(runs):
        rng = np.random.default_rng([31, run])
        drawn = replace(draw(joint, 1000, CellNoise("laplace", 2 / epsilon), rng), compared=cells)
        rejected += independence_test(drawn, (2, 2), 99, np.random.SeedSequence([32, run])).pvalue <= 0.05
    return rejected


def test_empty_cells_of_unlisted_values_cost_independence_no_power() -> None:
    """With a power of .8, as of two by two cells alone, so few of 60 have probability 1e-7.

    When the twelve other cells were in the statistic too, the power was .19.
    """
    assert rejections_given_the_listed(yes_or_no(0.1, 0.0, together=False), 1.0, 60) >= 30


@pytest.mark.sweep(2)
@pytest.mark.parametrize("unlisted", [0.1, 0.5, 0.9, 0.97])
@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("epsilon", [0.3, 3.0])
def test_the_level_of_independence_is_kept_whatever_share_is_not_listed(
    unlisted: float, together: bool, epsilon: float
) -> None:
    """At a level of exactly .05 so many rejections have probability below 1e-7, sixteen times over.

    Values that are missing together are no dependence of those listed.
    """
    found = rejections_given_the_listed(yes_or_no(0.0, unlisted, together), epsilon, 60)
    assert bdtrc(found - 1, 60, 0.05) > 1e-7 if found else True


def homogeneous_rejections(
    shares: tuple[float, float], unlisted: tuple[float, float], epsilon: float, runs: int
) -> int:
    rejected = 0
    for run in range(runs):
        rng, owners = np.random.default_rng([33, run]), []
        for share, other in zip(shares, unlisted, strict=True):
            law = np.array([(1 - other) * share, (1 - other) * (1 - share), other / 3, 2 * other / 3])
            drawn = draw(law, 1000, CellNoise("laplace", 2 / epsilon), rng)
            owners.append(replace(drawn, compared=np.arange(2)))
        rejected += homogeneity_test(owners, 99, np.random.SeedSequence([34, run])).pvalue <= 0.05
    return rejected


@pytest.mark.sweep(2)
@pytest.mark.parametrize("unlisted", [(0.0, 0.5), (0.1, 0.5), (0.9, 0.1), (0.9, 0.97)])
@pytest.mark.parametrize("epsilon", [0.3, 3.0])
def test_owners_who_differ_in_missing_values_alone_are_homogeneous(
    unlisted: tuple[float, float], epsilon: float
) -> None:
    """At a level of exactly .05 so many rejections have probability below 1e-7, eight times over."""
    found = homogeneous_rejections((0.8, 0.8), unlisted, epsilon, 60)
    assert bdtrc(found - 1, 60, 0.05) > 1e-7 if found else True


def test_a_difference_among_the_listed_is_found_beside_missing_values() -> None:
    """With a power of .95 so few of 40 have probability below 1e-9."""
    assert homogeneous_rejections((0.5, 0.6), (0.0, 0.2), 1.0, 40) >= 25


def test_shares_of_listed_cells_hold_their_differences_beside_missing_values() -> None:
    """At misses of .05 so many of 40 have probability below 1e-7; the share of all units differs by .29."""
    missed = 0
    for run in range(40):
        rng = np.random.default_rng([35, run])
        owners = [
            replace(draw(np.array(law), 2000, CellNoise("laplace", 2.0), rng), compared=np.arange(2))
            for law in ([0.6, 0.4, 0.0, 0.0], [0.25, 0.25, 0.0, 0.5])
        ]
        found, half, _ = differences(owners, np.arange(2), 0.05, 199, np.random.SeedSequence([36, run]))
        missed += not abs(found[0, 0] - 0.1) <= half[0, 0]
    assert bdtrc(missed - 1, 40, 0.05) > 1e-7 if missed else True
