"""Masked sums: how many units they need beside separate releases and a curator, and what they cost.

    python -m benchmarks.masked_sums      # everything; continues where it stopped
    python -m benchmarks.masked_sums --runs 0.1 --cells "k = 5" --folder /tmp/glance

Power: two columns of two levels that depend on each other, tested by ``independence_table`` on noisy counts
of all owners together. Every run is the owners' real release, Gaussian noise of OpenDP at (epsilon, delta)
towards whoever reads, masks where there are any, and the procedure's own test of the sum. The curator counts
all owners' units and draws one noise. Groups: a number of two groups at owners who differ in its mean and in
the groups' shares, by ``group_comparison``; the curator adds up covariances within owners. Embeddings: how
far the mean of all owners' units that is read is from their own. Level: ``association`` of two columns that
go together at no owner, where owners differ in both, with simulated noise of the same law. Cost: one run is
all owners' releases and the tester's sum, in this process.
"""

import math
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq
from scipy.special import ndtri

from benchmarks.harness import (
    Answers,
    Benchmark,
    Cell,
    Counts,
    cells_for,
    grid,
    level_statement,
    main,
    question,
    seeds,
    table,
    with_square,
)
from tacit.in_process.runner import CountedTable, in_masks, local_study
from tacit.in_process.runner import run as run_here
from tacit.in_process.samples import ArrayTable, Sample
from tacit.planning.simulation import SimulatedNoise
from tacit_protocol.domain import CategoricalColumn, Domain, NumericColumn
from tacit_protocol.features.cell_counts import COUNT_BITS
from tacit_protocol.features.moments import MEAN
from tacit_protocol.messages.encoding import encode
from tacit_protocol.messages.study import Release, ReleaseMessage, Study
from tacit_protocol.numerics.noisy_tables import add_tables
from tacit_protocol.privacy.gaussian_mechanism import release_sums
from tacit_protocol.privacy.noise import OpenDPNoise
from tacit_protocol.procedures.association import Association
from tacit_protocol.procedures.base import masking_of
from tacit_protocol.procedures.counts.release import COUNTS, noisy_counts
from tacit_protocol.procedures.embedding_release import EmbeddingRelease
from tacit_protocol.procedures.group_comparison import GroupComparison
from tacit_protocol.procedures.group_comparison.plan import MaskedGroups, separate_plan
from tacit_protocol.procedures.group_comparison.statistic import compare_masked
from tacit_protocol.procedures.independence_table import IndependenceTable
from tacit_protocol.procedures.masking import masked, roster_of, total_of
from tacit_protocol.signing import RELEASE_TYPE, PrivateKey, draw_mask_secret, mask_public_hex, sign_envelope

EPSILON, DELTA, LEVEL = 0.1, 1e-5, 0.05
PHI = 0.15
"""Correlation of the two columns, whose levels are equally frequent."""

OWNERS = (2, 3, 5, 10)
POINTS = (0.75, 0.9, 1.1, 1.3)
"""Numbers of units that are tried, in parts of the one that is derived for power .8."""

RUNS, REPLICATES = 200, 999
POWER = 0.8
PROCEDURE = IndependenceTable()
DOMAIN = Domain(columns=tuple(CategoricalColumn(name=name, levels=("a", "b")) for name in "xy"))

COST_OWNERS, NUMBERS, PARTS, COST_RUNS = 10, 33_334, 3, 3
"""A release holds at most 36 000 numbers: 10^5 are those of three studies."""


def ways(owners: int) -> list[tuple[str, float]]:
    """Return how owners release, and the variance of the sum's noise in parts of the curator's."""
    found = [("separate", float(owners))]
    for colluders in sorted({0, (owners - 1) // 2, owners - 1}):
        found.append((f"c = {colluders}", owners / (owners - colluders)))
    return found


def study_of(owners: int, way: str) -> Study:
    """Return the study; a curator is one owner of all units."""
    parameters = {"noise": "gaussian", "unlisted": "last", "replicates": REPLICATES}
    if way.startswith("c = "):
        parameters |= {"aggregation": "masked", "colluders": int(way[4:])}
    names = ["curator"] if way == "curator" else [f"owner-{place}" for place in range(owners)]
    return local_study(
        PROCEDURE.name,
        DOMAIN,
        names,
        parameters,
        epsilon=EPSILON,
        delta=DELTA,
        alpha=LEVEL,
        seed="0" * 32,
    )


def derived(variance: float) -> float:
    """Return the number of units of all owners for power .8, by a normal law of one contrast.

    The contrast of the four cells has mean n phi, variance n of sampling and four noises.
    """
    (owner,) = study_of(1, "curator").owners
    noise = PROCEDURE.plan(study_of(1, "curator")).noise.variance * 4 * variance
    reach = -ndtri(LEVEL / 2) + ndtri(POWER)
    assert owner.name == "curator"
    return float(brentq(lambda n: n * PHI - reach * math.sqrt(n + noise), 10, 10**7))


def power_run(owners: int, way: str, variance: float, point: float, run: int) -> Answers:
    """Release and test once."""
    study = study_of(owners, way)
    rng, seed = seeds(f"{owners} {way} {point}", run)
    study = study.model_copy(update={"seed": f"{int(seed.generate_state(1)[0]):032x}"})
    units = round(point * derived(variance) / len(study.owners))
    law = np.array([1 + PHI, 1 - PHI, 1 - PHI, 1 + PHI]) / 4
    plan, noise, releases = PROCEDURE.plan(study), OpenDPNoise(), {}
    for owner in study.owners:
        held = CountedTable(DOMAIN, rng.multinomial(units, law).astype(np.int64), np.arange(4))
        releases[owner.name] = plan.privatise(plan.summarise(held), noise)
    if plan.masking is not None:
        releases = in_masks(PROCEDURE, study, releases)
    sums = add_tables(list(plan.tables(study, releases).values()))
    return {"reject": PROCEDURE.test(study, [sums], REPLICATES).pvalue <= LEVEL}


def cost_run(way: str, _: int) -> Answers:
    """Time all owners' releases of 10^5 numbers, and the sum: seconds of processor. One owner draws noise."""
    study = study_of(COST_OWNERS, "separate" if way == "separate" else "c = 0")
    guarantee = PROCEDURE.cost(study)
    steps = np.full(NUMBERS, 100 << COUNT_BITS, dtype=np.int64)
    key, found = PrivateKey.generate(), dict.fromkeys(("noise", "masks", "signing", "sum"), 0.0)
    names, bytes_sent = [owner.name for owner in study.owners], 0
    for part in range(PARTS):
        secrets_of = {name: draw_mask_secret() for name in names}
        keys = {name: mask_public_hex(secret) for name, secret in secrets_of.items()}
        roster, releases = roster_of(f"{part:064x}", keys, keys), {}
        for name in names:
            begun = time.process_time()
            source = OpenDPNoise() if name == names[0] else _Nothing()
            vector = noisy_counts(steps, COUNT_BITS, guarantee, source)
            release = Release(units=100, guarantee=guarantee, vectors={COUNTS: vector})
            drawn = time.process_time()
            if way == "masked":
                release = masked(release, roster, name, secrets_of[name])
            hidden = time.process_time()
            received = roster.digest if way == "masked" else None
            message = ReleaseMessage(study=roster.study, party=name, release=release, received=received)
            bytes_sent += len(sign_envelope(encode(message), RELEASE_TYPE, key))
            found["signing"] += time.process_time() - hidden
            found["noise"] += (drawn - begun) * (name == names[0])
            found["masks"] += hidden - drawn
            releases[name] = release
        begun = time.process_time()
        if way == "masked":
            masking = masking_of(PROCEDURE, study)
            assert masking is not None
            total_of(masking, releases)
        else:
            _added(releases)
        found["sum"] += time.process_time() - begun
    return {f"{what} s": seconds for what, seconds in found.items()} | {"megabytes": bytes_sent / 1e6}


class _Nothing:
    """No noise, of owners of whom none is timed."""

    def gaussian(self, values: npt.NDArray[np.int64], scale: float) -> npt.NDArray[np.int64]:  # noqa: ARG002
        """Add nothing."""
        return values + 1000

    laplace = gaussian


def _added(releases: Mapping[str, Release]) -> npt.NDArray[np.float64]:
    return np.asarray(np.sum([release.vectors[COUNTS].mean(1) for release in releases.values()], axis=0))


GROUPS, EMBEDDING, ASSOCIATION = GroupComparison(), EmbeddingRelease(), Association()
NUMBER = NumericColumn(name="y", lower=-4.0, upper=4.0)
GROUP_DOMAIN = Domain(columns=(CategoricalColumn(name="g", levels=("a", "b")), NUMBER))
GROUP_EPSILON, EFFECT = 0.5, 0.3
"""The difference is in standard deviations within a group, of which the bounds are eight apart."""

GROUP_POINTS = (0.85, 1.05, 1.3, 1.6)
GROUP_RUNS, EMBEDDING_RUNS, EMBEDDING_UNITS, EMBEDDING_POINTS = 200, 160, 6000, 20


def asked_of(
    procedure: str, owners: int, way: str, epsilon: float, domain: Domain = GROUP_DOMAIN, **parameters: Any
) -> Study:
    """Return a study of so many owners; a curator's has the claim of owners who all share the noise."""
    if way != "separate":
        colluders = 0 if way == "curator" else int(way[4:])
        parameters |= {"aggregation": "masked", "colluders": colluders}
    names = [f"owner-{place}" for place in range(owners)]
    at: dict[str, Any] = {"epsilon": epsilon, "delta": DELTA, "alpha": LEVEL, "seed": "0" * 32}
    return local_study(procedure, domain, names, parameters, **at)


def group_study(owners: int, way: str) -> Study:
    """Return the study of groups."""
    return asked_of(GROUPS.name, owners, way, GROUP_EPSILON, group="g")


def derived_groups(owners: int, way: str, variance: float) -> float:
    """Return the units of all owners for power .8 by a normal law of the covariance with T1.

    A group is half of an owner's units, and its noisy sums count by halves where they are separate.
    """
    study = group_study(owners, way)
    if way == "separate":
        scale = separate_plan(study).noise(1000)
        noise = owners * scale**2 / 2
    else:
        plan = GROUPS.plan(group_study(owners, "curator"))
        assert isinstance(plan, MaskedGroups)
        noise = plan.noises[0] ** 2 * variance
    reach = -ndtri(0.7 * LEVEL / 2) + ndtri(POWER)
    return float(brentq(lambda n: n * EFFECT / 16 - reach * math.sqrt(n / 64 + noise), 10, 10**7))


def group_rows(rng: np.random.Generator, place: int, owners: int, units: int) -> ArrayTable:
    """Return one owner's rows: its share of the groups and the middle of its values are its own."""
    off = place / max(1, owners - 1) - 0.5
    group = rng.random(units) < 0.5 + 0.2 * off
    values = rng.standard_normal(units) + off + EFFECT * group
    return ArrayTable.of(Sample({"g": np.where(group, "b", "a"), "y": values}), GROUP_DOMAIN, None)


def group_run(owners: int, way: str, variance: float, point: float, run: int) -> Answers:
    """Release and test once."""
    study, (rng, _) = group_study(owners, way), seeds(f"groups {owners} {way} {point}", run)
    units = round(point * derived_groups(owners, way, variance) / owners)
    tables = {o.name: group_rows(rng, p, owners, units) for p, o in enumerate(study.owners)}
    plan = GROUPS.plan(study)
    if not isinstance(plan, MaskedGroups):
        return {"reject": run_here(GROUPS, study, list(tables.values()), OpenDPNoise()).reject}
    sums = [plan.pairs.parts(plan.pairs.sum(table)) for table in tables.values()]
    if way == "curator":
        added = [replace(own[0], sums=sum(part.sums for part in own)) for own in zip(*sums, strict=True)]
        vectors = release_sums(tuple(added), plan.shared.claim, OpenDPNoise())
        found = plan.read_total(vectors)
    else:
        own = {name: GROUPS.privatise(study, plan.pairs.sum(t), OpenDPNoise()) for name, t in tables.items()}
        found = plan.read(in_masks(GROUPS, study, own))
    return {"reject": compare_masked(found, range(4), numeric=True).pvalue <= LEVEL}


def embedding_run(owners: int, way: str, run: int) -> Answers:
    """Release once, and measure how far the mean that is read is from that of all units."""
    parameters = {"placement": "uniform", "n_points": EMBEDDING_POINTS}
    curated, rng = way == "curator", seeds(f"embedding {owners} {way}", run)[0]
    kind = "separate" if curated else way
    study = asked_of(EMBEDDING.name, 1 if curated else owners, kind, 1.0, **parameters)
    each, noise, exact, releases = EMBEDDING_UNITS // len(study.owners), OpenDPNoise(), 0.0, {}
    for place, owner in enumerate(study.owners):
        held = EMBEDDING.summarise(study, group_rows(rng, place, len(study.owners), each))
        exact = exact + held.sums.total * 2.0**-held.sums.bits
        releases[owner.name] = EMBEDDING.privatise(study, held, noise)
    shared = EMBEDDING.shared_noise(study)
    if shared is not None:
        releases = {"": total_of(shared.masking, in_masks(EMBEDDING, study, releases))}
    read = sum(release.vectors[MEAN].mean(1) for release in releases.values())
    return with_square("error", float(np.linalg.norm(read - exact)) / (each * len(study.owners)))


LEVEL_LAWS = (
    "normal and normal",
    "skewed and skewed",
    "one value and one value",
    "skewed and normal",
    "number and category",
    "categories of .05",
)
LEVEL_SETTINGS = tuple(
    (law, epsilon, owners, colluders, units)
    for law in LEVEL_LAWS
    for epsilon in (0.5, 2.0, 10.0)
    for owners, colluders in ((2, 0), (5, 2))
    for units in (60, 600)
)
LEVEL_CELL, LEVEL_RUNS, LEVELS = "level {}, ε={:g}, k={}, c={}, n={}", 300, (0.05, 0.01)


def level_column(kind: str, off: float, units: int, rng: np.random.Generator) -> npt.NDArray[Any]:
    """Draw one column of an owner who is ``off`` from the others: numbers within 4 of 0, or levels."""
    if kind in ("category", "categories of .05"):
        share = 0.05 if kind == "categories of .05" else 0.3
        return np.where(rng.random(units) < share * (1 + off), "b", "a")
    drawn = rng.standard_normal(units)
    if kind == "skewed":
        drawn = np.exp(drawn) - 1
    if kind == "one value":
        drawn = np.where(rng.random(units) < 0.97, 0.0, 3 * drawn)
    return np.clip(drawn + off, -4, 4)


def level_run(law: str, epsilon: float, owners: int, colluders: int, units: int, run: int) -> Answers:
    """Ask masked owners of two columns that go together within none of them."""
    rng, _ = seeds(LEVEL_CELL.format(law, epsilon, owners, colluders, units), run)
    kinds = law.split(" and ") if " and " in law else [law, law]
    columns = tuple(
        CategoricalColumn(name=name, levels=("a", "b"))
        if kind.startswith("categor")
        else NumericColumn(name=name, lower=-4.0, upper=4.0)
        for name, kind in zip("xy", kinds, strict=True)
    )
    domain = Domain(columns=columns)
    study = asked_of(ASSOCIATION.name, owners, f"c = {colluders}", epsilon, domain)
    tables = []
    for place in range(owners):
        off = place / (owners - 1) - 0.5
        held = {name: level_column(kind, off, units, rng) for name, kind in zip("xy", kinds, strict=True)}
        tables.append(ArrayTable.of(Sample(held), domain, None))
    pvalue = run_here(ASSOCIATION, study, tables, SimulatedNoise(rng)).pvalue
    return {question("association", epsilon, level): pvalue <= level for level in LEVELS}


def levels_table(counts: Counts) -> str:
    """Write how often masked associations are found where there is none."""
    rows = {}
    for setting in LEVEL_SETTINGS:
        cell = LEVEL_CELL.format(*setting)
        law, epsilon, *rest = setting
        row = rows.setdefault(f"{law}, {epsilon:g}", {})
        for level in LEVELS:
            shown = counts.shown(cell, question("association", epsilon, level))
            row["{} owners, c = {}, {} units: {:g}".format(*rest, level)] = shown
    return table(rows, "columns, ε")


def settings() -> list[tuple[int, str, float]]:
    """Return owners, way and variance; the curator first."""
    return [(1, "curator", 1.0), *((k, way, variance) for k in OWNERS for way, variance in ways(k))]


def cells() -> list[Cell]:
    """Return every cell."""
    asked = [((k,), (way,), (variance,), POINTS) for k, way, variance in settings()]
    found = [
        one
        for k, way, variance, points in asked
        for one in cells_for(
            "power, k = {}, {}, variance {:.3g}, {} of n",
            RUNS,
            power_run,
            [(k[0], way[0], variance[0], point) for point in points],
        )
    ]
    for k, way, variance in settings():
        asked_points = [
            (max(k, 5) if way == "curator" else k, way, variance, point) for point in GROUP_POINTS
        ]
        found += cells_for(
            "groups, k = {}, {}, variance {:.3g}, {} of n", GROUP_RUNS, group_run, asked_points
        )
        found += cells_for("embedding, k = {}, {}", EMBEDDING_RUNS, embedding_run, [(k, way)])
    found += cells_for(LEVEL_CELL, LEVEL_RUNS, level_run, LEVEL_SETTINGS)
    return found + cells_for("cost {}", COST_RUNS, cost_run, [("separate",), ("masked",)])


def needed(counts: Counts, kind: str, owners: int, way: str, variance: float) -> tuple[float, float] | None:
    """Return the units for power .8 and their standard error, by a probit line of power on log n."""
    found = []
    derived_units = derived(variance) if kind == "power" else derived_groups(owners, way, variance)
    for point in POINTS if kind == "power" else GROUP_POINTS:
        cell = f"{kind}, k = {owners}, {way}, variance {variance:.3g}, {point} of n"
        rate, runs = counts.rate(cell, "reject"), counts.runs[cell]
        if rate is not None and 0 < rate < 1:
            slope = math.exp(-(float(ndtri(rate)) ** 2) / 2) / math.sqrt(2 * math.pi)
            spread = math.sqrt(rate * (1 - rate) / runs) / slope
            found.append((math.log(point * derived_units), float(ndtri(rate)), spread))
    if len(found) < 3:
        return None
    logs, probits, spreads = (np.array(part) for part in zip(*found, strict=True))
    (slope, level), covariance = np.polyfit(logs - logs.mean(), probits, 1, w=1 / spreads, cov="unscaled")
    at = (float(ndtri(POWER)) - level) / slope
    error = math.sqrt(covariance[1, 1] + at**2 * covariance[0, 0]) / slope
    units = math.exp(logs.mean() + at)
    return units, units * error


def units_table(counts: Counts, kind: str) -> str:
    """Write the units for power .8 of every way, beside those of a curator."""
    strata = 1 if kind == "power" else 5
    curator = needed(counts, kind, strata, "curator", 1.0)
    rows: dict[str, dict[str, str]] = {}
    for owners, way, variance in settings():
        strata = owners if kind == "power" or way != "curator" else 5
        own = needed(counts, kind, strata, way, variance)
        if own is None or curator is None:
            continue
        if kind == "power":
            expected = derived(variance) / derived(1.0)
        else:
            expected = derived_groups(strata, way, variance) / derived_groups(5, "curator", 1.0)
        ratio = own[0] / curator[0]
        error = ratio * math.hypot(own[1] / own[0], curator[1] / curator[0])
        words = way if way in ("curator", "separate") else f"masked, {way}"
        rows[words if owners == 1 else f"{owners} owners, {words}"] = {
            "variance of the noise": f"{variance:.2f}",
            "n for power .8": f"{own[0]:.0f} ± {own[1]:.0f}",
            "of the curator's": "1" if owners == 1 else f"{ratio:.2f} ± {error:.2f}",
            "derived": f"{expected:.2f}",
        }
    return table(rows, "release")


def errors_table(counts: Counts) -> str:
    """Write how far embeddings are off, beside a curator's."""
    rows: dict[str, dict[str, str]] = {}
    curator = _mean_error(counts, 1, "curator")
    for owners, way, variance in settings():
        own = _mean_error(counts, owners, way)
        if own is None or curator is None:
            continue
        ratio = own[0] / curator[0]
        error = ratio * math.hypot(own[1] / own[0], curator[1] / curator[0])
        words = way if way in ("curator", "separate") else f"masked, {way}"
        rows[words if owners == 1 else f"{owners} owners, {words}"] = {
            "distance": f"{own[0]:.4f} ± {own[1]:.4f}",
            "of the curator's": "1" if owners == 1 else f"{ratio:.2f} ± {error:.2f}",
            "derived": f"{math.sqrt(variance):.2f}",
        }
    return table(rows, "release")


def _mean_error(counts: Counts, owners: int, way: str) -> tuple[float, float] | None:
    cell = f"embedding, k = {owners}, {way}"
    found = counts.spread(cell, "error")
    return None if found is None else (found[0], found[1] / math.sqrt(counts.runs[cell]))


def parts(counts: Counts) -> dict[str, str]:
    """Write the tables of the page."""
    asked = ("noise s", "masks s", "signing s", "sum s", "megabytes")
    cost = grid(
        "",
        [(way, f"cost {way}") for way in ("separate", "masked")],
        [
            ("one owner's noise, s" if what == "noise s" else what.replace(" s", ", s"), what)
            for what in asked
        ],
        lambda cell, what: counts.shown(cell, what, ".3g"),
    )
    return {
        "power": units_table(counts, "power"),
        "runs": counts.runs_of("power"),
        "groups": units_table(counts, "groups"),
        "group runs": counts.runs_of("groups"),
        "embeddings": errors_table(counts),
        "embedding runs": counts.runs_of("embedding"),
        "level": level_statement(counts) + levels_table(counts),
        "level runs": counts.runs_of("level"),
        "cost": cost,
        "cost runs": counts.runs_of("cost"),
    }


BENCHMARKS = (Benchmark("masked-sums", cells, parts),)

if __name__ == "__main__":
    main(__doc__, *BENCHMARKS)
