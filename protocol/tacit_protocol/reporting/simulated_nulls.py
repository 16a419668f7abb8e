"""Null distributions that are simulated or permuted: of noisy tables, and of two owners' columns."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit_protocol.features.row_projections import PROJECTIONS
from tacit_protocol.messages.release import Release
from tacit_protocol.messages.study import Study
from tacit_protocol.procedures.count_plan import CountPlan
from tacit_protocol.procedures.count_tables import CountTest, simulation_seed
from tacit_protocol.procedures.distance_correlation_findings import projected, sketched
from tacit_protocol.procedures.distance_correlation_plan import plan_of as distance_plan_of
from tacit_protocol.procedures.homogeneity import TEST_STREAM
from tacit_protocol.procedures.identity import STATISTIC
from tacit_protocol.procedures.identity_plan import COUNTED, IdentityPlan
from tacit_protocol.procedures.identity_plan import plan_of as identity_plan_of
from tacit_protocol.reporting.null import Null, chi_square, from_draws
from tacit_protocol.statistics.contingency import independence_test
from tacit_protocol.statistics.homogeneity import homogeneity_test
from tacit_protocol.statistics.noisy_tables import NoisyTable, add_tables

Releases = Mapping[str, Release]
Verdict = Mapping[str, Any]

DRAWN_MAX = 1999
"""Most simulated statistics that a chart shows."""

DRAWN_MIN = 199
"""Fewest simulated statistics that are worth drawing."""

WORK_MAX = 2 * 10**7
"""Most simulated numbers of one chart: about a second of one processor."""


def counts_null(study: Study, verdict: Verdict, releases: Releases) -> Null | None:
    """Return the simulated null of homogeneity."""
    tables = tables_of(study, verdict, releases)
    if tables is None:
        return None
    replicates = _replicates(study, sum(len(table.counts) for table in tables))
    if replicates is None:
        return None
    test = homogeneity_test(tables, replicates, simulation_seed(study, TEST_STREAM))
    return from_draws(_words(replicates, "tables of one distribution"), test.simulated, study.level)


def independence_null(study: Study, verdict: Verdict, releases: Releases) -> Null | None:
    """Return the simulated null of independence in a table."""
    tables = tables_of(study, verdict, releases)
    if tables is None:
        return None
    table = add_tables(tables)
    replicates = _replicates(study, len(table.counts))
    if replicates is None:
        return None
    shape = CountTest().plan(study).grid.shape
    test = independence_test(table, shape, replicates, simulation_seed(study, TEST_STREAM))
    return from_draws(_words(replicates, "tables of independent columns"), test.simulated, study.level)


def tables_of(study: Study, verdict: Verdict, releases: Releases) -> list[NoisyTable] | None:
    """Return the owners' noisy tables: from the releases, or else from the verdict if it shows them.

    None where neither has them, or where it is not known what noise an earlier release has.
    """
    plan = CountTest().plan(study)
    if releases:
        return [plan.read_owner(owner, releases) for owner in study.owners]
    counts = verdict.get("counts")
    if counts is None or study.reusing:
        return None
    return [_table(plan, counts[owner.name], verdict["units"][owner.name]) for owner in study.owners]


def _table(plan: CountPlan, counts: Sequence[float], units: int) -> NoisyTable:
    return NoisyTable(np.array(counts, dtype=np.float64), units, (plan.noise,))


def identity_null(study: Study, verdict: Verdict, releases: Releases) -> Null | None:
    """Return the null of a test against a known distribution: simulated, or chi-squared."""
    sender = study.owners[0].name
    if sender not in releases:
        return None
    plan, release, statistic = identity_plan_of(study), releases[sender], float(verdict["statistic"])
    drawn = _draws(plan, release)
    if isinstance(drawn, int):
        return chi_square(drawn, statistic, study.level)
    return (
        None if drawn is None else from_draws(_words(len(drawn), "data that follow it"), drawn, study.level)
    )


def _draws(plan: IdentityPlan, release: Release) -> npt.NDArray[np.float64] | int | None:
    """Return simulated statistics, or the degrees of freedom where the null is chi-squared."""
    replicates = _affordable(plan.parameters.replicates, plan.grid.size)
    seeds = plan.seed().spawn(replicates or 0)
    if plan.method not in COUNTED:
        clipped, scale = plan.clipped(release.units), release.vectors[STATISTIC].scale
        draws = [clipped.simulate(np.random.default_rng(seed), scale, 1)[0] for seed in seeds]
        return np.array(draws) if draws else None
    fit = plan.fitted(release.units, plan.counted.read(release).noises[0])
    exact = plan.null == "auto" and fit.weights == "noise-aware" and fit.chi_square_holds
    if plan.null == "chi-square" or exact:
        return len(plan.probabilities) - 1
    if not seeds:
        return None
    return np.array([float(fit.statistic(fit.simulate(np.random.default_rng(seed)))) for seed in seeds])


def permuted_null(study: Study, verdict: Verdict, releases: Releases) -> Null | None:  # noqa: ARG001
    """Return the permuted statistics of a distance correlation, which are standardised all together."""
    if any(owner.name not in releases for owner in study.owners):
        return None
    plan, own = distance_plan_of(study), [releases[owner.name] for owner in study.owners]
    numbers = sum(len(vector.values) for release in own for vector in release.vectors.values())
    count = plan.parameters.permutations
    if PROJECTIONS in own[0].vectors and numbers * count > WORK_MAX:
        return None
    found = (sketched if plan.sketches else projected)(plan, study, own, partial(_silent))
    return from_draws(f"the statistic at {count} random permutations", found.test.permuted, study.level)


def _replicates(study: Study, numbers: int) -> int | None:
    return _affordable(CountTest().parameters(study).replicates, numbers)


def _affordable(replicates: int, numbers: int) -> int | None:
    count = min(replicates, DRAWN_MAX, WORK_MAX // numbers)
    return count if count >= min(DRAWN_MIN, replicates) else None


def _words(count: int, of: str) -> str:
    return f"{count} simulations of {of}, with the noise"


def _silent(part: float) -> None:
    """Report progress to nobody."""
