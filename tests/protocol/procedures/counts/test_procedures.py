"""Noisy counts and the two tests on them: studies, releases, reading again, verdicts."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from made_studies import made_study, release_of, releases_of
from two_sample_cases import MemoryTable

from tacit_protocol.domain import CategoricalColumn, Column, Domain, NumericColumn, encode
from tacit_protocol.features.cell_counts import CellCounts
from tacit_protocol.messages.study import Release, Study
from tacit_protocol.numerics.noisy_tables import CellNoise, NoisyTable
from tacit_protocol.privacy.noise import OpenDPNoise
from tacit_protocol.procedures.base import ReleaseError, StudyError, check_release, reread
from tacit_protocol.procedures.counts.homogeneity import between_owners, differences
from tacit_protocol.procedures.counts.independence_table import from_independence
from tacit_protocol.procedures.discovery import procedure_named

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


def test_a_coarser_or_other_table_is_not_read_again() -> None:
    procedure = procedure_named("homogeneity")
    for source in (
        study("noisy_counts", (SEX,), owners=2),
        study("noisy_counts", (CategoricalColumn(name="sex", levels=("f", "x")), RACE), owners=2),
    ):
        _, releases = play(source, [rows(source, 500, seed) for seed in (1, 2)])
        asked = reusing(study("homogeneity", owners=2), 0, 1)
        with pytest.raises(StudyError, match="same columns"):
            reread(procedure, asked, asked.owners[0], source, releases["owner-0"])
    made, plain = releases["owner-0"], study("homogeneity", owners=2)
    counts = made.vectors["counts"]
    short = counts.model_copy(update={"values": counts.values[1:]})
    for vectors in ({"mean": counts}, {"counts": short}):
        with pytest.raises(StudyError, match="did not release noisy counts"):
            reread(procedure, asked, asked.owners[0], plain, made.model_copy(update={"vectors": vectors}))


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
