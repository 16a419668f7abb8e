"""Screening by randomised answers: every unit answers for one outcome, and is counted beside all columns.

``two-round``: the owner of the outcomes deals the units out to them in public, and releases one randomised
answer of each unit at the whole of epsilon; the other owner counts every unit, beside its answer, in one
table for each of its columns, and releases all tables together. With the answers fixed, a replaced unit of p
columns moves by one cell in each of p tables: by 2p in L1, and by the root of 2p in L2. ``one-round``: both
owners release randomised answers, for the pair of columns that a unit is dealt to.
Derivations: docs/mathematics/screening.md.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.special import ndtri

from tacit_protocol.messages.study import Release, Study
from tacit_protocol.numerics.noisy_tables import SimulatedTest
from tacit_protocol.numerics.randomised_tables import (
    AnsweredTable,
    StatedEstimate,
    independence_test,
    table_estimates,
)
from tacit_protocol.privacy.accounting import gaussian_mu
from tacit_protocol.privacy.guarantee import COORDINATES_MAX, Budget
from tacit_protocol.procedures.base import HOPELESS, Progress, StudyError, common_fields, public_seed, step
from tacit_protocol.procedures.randomised_answers.answers import (
    PAIRS_MAX,
    AnswerParameters,
    AnswersPlan,
    PairTable,
    require_small,
)
from tacit_protocol.procedures.randomised_answers.sides import NULL_STREAM
from tacit_protocol.procedures.randomised_answers.verdict import SIGNAL_HOPELESS
from tacit_protocol.procedures.screening.verdict import (
    AnsweredColumn,
    AnsweredScreeningVerdict,
    Control,
    false_discovery_values,
)

LOOK, LOOK_LEVEL = 999, 0.05
"""Simulations of a first look at every pair, and the p-value up to which a pair gets all of them."""


def screening_answers(study: Study, parameters: AnswerParameters, outcome: int) -> AnswersPlan:
    """Return what a study by randomised answers fixes; raises StudyError where it cannot be run as written.

    ``outcome`` is the place of the owner with the outcomes, who answers first.
    """
    if study.reusing:
        raise StudyError("answers are made for their own study here; leave reuses out")
    two_rounds = parameters.method == "two-round"
    domains = study.domain_of(study.owners[0]), study.domain_of(study.owners[1])
    plan = AnswersPlan(
        study,
        parameters,
        domains,
        outcome if two_rounds else 0,
        LOOK,
        all_counted=two_rounds,
        noise=least_noise(study.budget, len(domains[1 - outcome].columns)) if two_rounds else "laplace",
    )
    if not two_rounds and len(plan.pairs) > PAIRS_MAX:
        raise StudyError(f"one-round is for at most {PAIRS_MAX} pairs of columns: leave some out")
    require_small(plan)
    if two_rounds and plan.numbers(1 - outcome, 2**30) > COORDINATES_MAX:
        raise StudyError(
            f"an owner would send over {COORDINATES_MAX} numbers; use fewer columns or categories"
        )
    return plan


def least_noise(budget: Budget, columns: int) -> Literal["laplace", "gaussian"]:
    """Return the noise with the smaller variance on tables of so many columns: Laplace, or Gaussian.

    >>> least_noise(Budget.of(1, 1e-5), 3), least_noise(Budget.of(1, 1e-5), 20)
    ('laplace', 'gaussian')
    """
    if budget.delta_pico == 0:
        return "laplace"
    gaussian = 2 * columns / gaussian_mu(budget.epsilon, budget.delta) ** 2
    return "gaussian" if gaussian < 2 * (2 * columns / budget.epsilon) ** 2 else "laplace"


@dataclass(frozen=True)
class AnsweredScreening:
    """What a study by randomised answers fixes.

    ``outcome`` is the place of the owner with the outcomes, ``smallest`` the p-value that a single discovery
    must not exceed.
    """

    answers: AnswersPlan
    outcome: int
    control: Control
    smallest: float

    @property
    def permutations(self) -> int:
        """Number of simulations."""
        return self.answers.simulations

    def warnings(self, units: Mapping[str, int]) -> tuple[str, ...]:
        """Say what could not be found at these numbers of units."""
        # With the square of its quantile for noncentrality a normal passes it in every second study.
        needed = max(SIGNAL_HOPELESS, float(ndtri(self.smallest / 2)) ** 2)
        if not units or self.answers.signal(min(units.values())) >= needed:
            return ()
        return (
            f"{HOPELESS}even a column equal to the outcome would hardly be found; ask for more units "
            "or fewer columns",
        )


def pair_test(
    table: AnsweredTable, count: int, study: Study, place: int, report: Callable[[float], None]
) -> SimulatedTest:
    """Test one pair with so many simulations, or with fewer where a first look says enough.

    The p-value is the first look's where that passes LOOK_LEVEL, and else that of further simulations.
    Up to LOOK_LEVEL it is at most u only if the latter is, beyond only if the former is: its level is theirs.
    """
    first = independence_test(table, min(count, LOOK), public_seed(study, NULL_STREAM, place, 0), report)
    if count <= LOOK or first.pvalue > LOOK_LEVEL:
        return first
    return independence_test(table, count, public_seed(study, NULL_STREAM, place, 1), report)


def answered_verdict(
    asked: AnsweredScreening,
    releases: Mapping[str, Release],
    warnings: tuple[str, ...],
    progress: Progress | None,
) -> AnsweredScreeningVerdict:
    """Compute the verdict: post-processing alone, the same for everyone."""
    plan, study = asked.answers, asked.answers.study
    tables = plan.tables(releases)
    tests = [
        pair_test(
            pair.table,
            plan.simulations,
            study,
            place,
            step(progress, "simulating", place / len(tables), (place + 1) / len(tables)),
        )
        for place, pair in enumerate(tables)
    ]
    qvalues = false_discovery_values(np.array([test.pvalue for test in tests]), asked.control)
    pairs = [
        _pair(pair, asked.outcome, study.level, test, float(qvalue))
        for pair, test, qvalue in zip(tables, tests, qvalues, strict=True)
    ]
    ranked = sorted(pairs, key=lambda pair: (pair.pvalue, -(pair.cramers_v or 0.0)))
    caveats = ["estimates and intervals are of the cells: dependence within a cell is in none of them"]
    if any(pair.distance_correlation is None for pair in pairs):
        caveats.append("no correlation is stated where a column's cells are lost in the noise, or all in one")
    return AnsweredScreeningVerdict(
        method=_method(asked),
        reject=any(pair.reject for pair in pairs),
        **common_fields(study, {name: release.units for name, release in releases.items()}),
        pairs=tuple(ranked),
        aligned=study.alignment is not None,
        warnings=(*warnings, *caveats),
    )


def _pair(pair: PairTable, outcome: int, level: float, test: SimulatedTest, qvalue: float) -> AnsweredColumn:
    found = table_estimates(pair.table, 1 - level)
    rank = found.correlation
    distance, strength = _ends(found.distance_correlation), _ends(found.cramers_v)
    ranked = _ends(rank)
    return AnsweredColumn(
        outcome=pair.columns[outcome],
        column=pair.columns[1 - outcome],
        distance_correlation=distance[0],
        lower=distance[1],
        upper=distance[2],
        cramers_v=strength[0],
        cramers_v_lower=strength[1],
        cramers_v_upper=strength[2],
        correlation=ranked[0],
        correlation_lower=ranked[1],
        correlation_upper=ranked[2],
        sign=0 if rank is None else 1 if rank.value >= 0 else -1,
        cells=(len(pair.labels[outcome]), len(pair.labels[1 - outcome])),
        statistic=test.statistic,
        pvalue=test.pvalue,
        qvalue=qvalue,
        reject=qvalue <= level,
    )


def _ends(found: StatedEstimate | None) -> tuple[float | None, float | None, float | None]:
    return (None, None, None) if found is None else (found.value, found.lower, found.upper)


def _method(asked: AnsweredScreening) -> str:
    plan = asked.answers
    name = {"by": "Benjamini and Yekutieli", "bh": "Benjamini and Hochberg"}[asked.control]
    if plan.one_round:
        what = "one round: randomised answers of both owners"
    else:
        law = {"laplace": "Laplace", "gaussian": "Gaussian"}[plan.noise]
        sender = plan.study.owners[asked.outcome].name
        what = f"two rounds: randomised answers of {sender}, and counts beside them with {law} noise"
    pairs = f"{len(plan.pairs)} pair{'' if len(plan.pairs) == 1 else 's'} of columns"
    return f"{what}, {pairs}, {plan.simulations} simulations, false discovery rate by {name}"
