"""Audit every mechanism and every small release with 200 000 runs per neighbour, and print the table.

``python tests/audits/audit_report.py`` prints what docs/security/audits.md shows. Names of mechanisms,
procedures and cases, ``gaussian identity "screening: sketch, 1 group"``, ask for their lines alone.
"""

import sys
from collections.abc import Iterator, Sequence

from audited_procedures import CASES
from lower_bound import Scored, audit, epsilon_of_mu
from mechanism_cases import CASES as MECHANISM_CASES
from release_audit import moved_between, promised, release, scored_runs

from tacit_protocol.privacy.noise import OpenDPNoise

RUNS = 200_000
"""Per neighbour; a quarter as many others choose the event."""

DECISIONS = 20_000
"""Runs of a decision or a choice, each of which draws noise for many statistics."""

HEADER = (
    "| audited | claimed ε, δ | ε proved | claimed μ | μ that the neighbours reach | μ proved | its ε at δ |"
)


def row(
    name: str, scored: Scored, claim: tuple[float, float, float], reached: float, runs: int = RUNS
) -> str:
    """Audit once; ``claim`` is epsilon, delta and mu (0 for none), ``reached`` the neighbours' own mu."""
    epsilon, delta, mu = claim
    found = audit(scored, delta, runs=runs, pilot=runs // 4)
    curve = ["", "", "", ""]
    if mu:
        curve = [f"{mu:.4f}", f"{reached:.4f}", f"{found.mu:.4f}", f"{epsilon_of_mu(found.mu, delta):.3f}"]
    return f"| {name} | {epsilon:g}, {delta:g} | {found.epsilon:.3f} | " + " | ".join(curve) + " |"


def rows(asked: Sequence[str]) -> Iterator[str]:
    """Yield the lines of what is asked for, or of everything."""
    noise = OpenDPNoise()
    for name, case in MECHANISM_CASES.items():
        if asked and name.partition(",")[0] not in asked:
            continue
        mu = case.mu or 0.0
        yield row(name, case.runs(noise), (case.epsilon, case.delta, mu), mu)
    for name, audited in CASES.items():
        if not audited.black_box or (asked and not {audited.study.procedure, name} & set(asked)):
            continue
        one = release(audited.study, audited.neighbours(0)[0])
        budget = audited.study.budget
        claim = budget.epsilon, budget.delta, promised(one).gaussian
        if not one.vectors:
            yield row(name, scored_runs(audited, noise), claim, 0.0, DECISIONS)
            continue
        reached = moved_between(audited, 0).gaussian
        yield row(name, scored_runs(audited, noise), claim, reached)


def main(asked: Sequence[str]) -> None:
    print(HEADER)  # noqa: T201
    print("|---|---|---|---|---|---|---|")  # noqa: T201
    for line in rows(asked):
        print(line, flush=True)  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1:])
