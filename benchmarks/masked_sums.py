"""Masked sums: how many units they need beside separate releases and a curator, and what they cost.

    python -m benchmarks.masked_sums      # everything; continues where it stopped
    python -m benchmarks.masked_sums --runs 0.1 --cells "k = 5" --folder /tmp/glance

Power: two columns of two levels that depend on each other, tested by ``independence_table`` on noisy counts
of all owners together. Every run is the owners' real release, Gaussian noise of OpenDP at (epsilon, delta)
towards whoever reads, masks where there are any, and the procedure's own test of the sum. The curator counts
all owners' units and draws one noise. Cost: one run is all owners' releases and the tester's sum, in this
process.
"""

import math
import time
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq
from scipy.special import ndtri

from benchmarks.harness import Answers, Benchmark, Cell, Counts, cells_for, grid, main, seeds, table
from tacit.in_process.runner import CountedTable, in_masks, local_study
from tacit_protocol.domain import CategoricalColumn, Domain
from tacit_protocol.features.cell_counts import COUNT_BITS
from tacit_protocol.messages.encoding import encode
from tacit_protocol.messages.study import Release, ReleaseMessage, Study
from tacit_protocol.numerics.noisy_tables import add_tables
from tacit_protocol.privacy.noise import OpenDPNoise
from tacit_protocol.procedures.counts.independence_table import IndependenceTable
from tacit_protocol.procedures.counts.release import COUNTS, noisy_counts
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
            masking = PROCEDURE.masking(study)
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
    return found + cells_for("cost {}", COST_RUNS, cost_run, [("separate",), ("masked",)])


def needed(counts: Counts, owners: int, way: str, variance: float) -> tuple[float, float] | None:
    """Return the units for power .8 and their standard error, by a probit line of power on log n."""
    found = []
    for point in POINTS:
        cell = f"power, k = {owners}, {way}, variance {variance:.3g}, {point} of n"
        rate, runs = counts.rate(cell, "reject"), counts.runs[cell]
        if rate is not None and 0 < rate < 1:
            slope = math.exp(-(float(ndtri(rate)) ** 2) / 2) / math.sqrt(2 * math.pi)
            spread = math.sqrt(rate * (1 - rate) / runs) / slope
            found.append((math.log(point * derived(variance)), float(ndtri(rate)), spread))
    if len(found) < 3:
        return None
    logs, probits, spreads = (np.array(part) for part in zip(*found, strict=True))
    (slope, level), covariance = np.polyfit(logs - logs.mean(), probits, 1, w=1 / spreads, cov="unscaled")
    at = (float(ndtri(POWER)) - level) / slope
    error = math.sqrt(covariance[1, 1] + at**2 * covariance[0, 0]) / slope
    units = math.exp(logs.mean() + at)
    return units, units * error


def parts(counts: Counts) -> dict[str, str]:
    """Write the tables of the page."""
    curator = needed(counts, 1, "curator", 1.0)
    rows: dict[str, dict[str, str]] = {}
    for owners, way, variance in settings():
        own = needed(counts, owners, way, variance)
        if own is None or curator is None:
            continue
        ratio = own[0] / curator[0]
        error = ratio * math.hypot(own[1] / own[0], curator[1] / curator[0])
        words = way if way in ("curator", "separate") else f"masked, {way}"
        rows[words if owners == 1 else f"{owners} owners, {words}"] = {
            "variance of the noise": f"{variance:.2f}",
            "n for power .8": f"{own[0]:.0f} ± {own[1]:.0f}",
            "of the curator's": "1" if owners == 1 else f"{ratio:.2f} ± {error:.2f}",
            "derived": f"{derived(variance) / derived(1.0):.2f}",
        }
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
        "power": table(rows, "release"),
        "runs": counts.runs_of("power"),
        "cost": cost,
        "cost runs": counts.runs_of("cost"),
    }


BENCHMARKS = (Benchmark("masked-sums", cells, parts),)

if __name__ == "__main__":
    main(__doc__, *BENCHMARKS)
