"""Speed of the permuted joint independence statistics, beside plain NumPy and hyppo, in one run.

python -m benchmarks.joint_independence_speed [--write] [--large]

Times are of one process on the machine at hand; the ratios are what counts. Every peer is timed on a few
replicates and scaled up, which is stated. hyppo is optional: where it is not installed, its rows say so.
``--write`` writes docs/benchmarks/joint-independence-speed.md.
"""

import argparse
import importlib.util
import os
import resource
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tacit_protocol.features.kernels import ProductKernel
from tacit_protocol.features.unit_gram import UnitGram, UnitRows
from tacit_protocol.procedures.joint_independence.statistic import permuted_statistics
from tacit_protocol.workers import ThreadWorkers

Floats = npt.NDArray[np.float64]

PAGE = Path(__file__).parents[1] / "docs" / "benchmarks" / "joint-independence-speed.md"

BANDWIDTH = 0.12
PEER_REPLICATES = 15
"""Replicates that a peer is timed on; it takes the same for each."""

HYPPO_REPLICATES = 20

HEADER = """# Speed of the joint independence test

    python -m benchmarks.joint_independence_speed --write --large

Permuted statistics of n units, d variables (normal, standard deviation .15 of the range; bandwidth .12), B
permutations, all in one run. *Plain NumPy* gathers every kernel matrix by `K[p][:, p]` and sums their
product, for {peer} replicates, scaled up to B. *hyppo* is `hyppo.independence.Hsic().test` with a permutation
test, one worker, for {hyppo} replicates, scaled up. Our times include kernels, factors and their check, and
all B replicates.

"""

LOAD = """
Load average at the end: {2:.0f} on {3} cores. Where it is above the number of cores, times are longer than
the machine's own, and ratios, whose parts are timed minutes apart, uncertain by a factor of two or so.
"""

COLUMNS = ("kernel", "n", "d", "B", "1 worker, s", "2 workers, s", "plain, s", "hyppo, s", "plain / ours",
           "hyppo / ours")  # fmt: skip


@dataclass(frozen=True)
class Case:
    """What is timed; ``peers`` whether the peers are."""

    shape: str
    units: int
    variables: int
    permutations: int
    peers: bool = True


CASES = (
    Case("gaussian", 2000, 2, 1000),
    Case("gaussian", 2000, 3, 1000),
    Case("laplacian", 2000, 2, 1000),
    Case("laplacian", 2000, 3, 1000),
)
LARGE = (Case("gaussian", 10_000, 2, 500, peers=False), Case("laplacian", 10_000, 2, 500, peers=False))


def timed(action: Callable[[], object]) -> float:
    """Seconds that an action takes."""
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def data(case: Case) -> Floats:
    """Independent columns, (units, variables)."""
    rng = np.random.default_rng(0)
    return np.asarray(np.clip(0.5 + 0.15 * rng.standard_normal((case.units, case.variables)), 0, 1))


def grams_of(case: Case, values: Floats) -> list[UnitGram]:
    """Kernel matrices of the columns."""
    rows = UnitRows(values, np.zeros((len(values), 0), np.int32), np.arange(len(values) + 1))
    kernel = ProductKernel("laplacian" if case.shape == "laplacian" else "gaussian", BANDWIDTH)
    return [UnitGram(kernel, rows.columns([j], [])) for j in range(case.variables)]


def ours(case: Case, values: Floats, workers: int) -> Floats:
    """All statistics."""
    seed = np.random.SeedSequence(1)
    return permuted_statistics(
        grams_of(case, values), case.permutations, seed, workers=ThreadWorkers(workers)
    )


def plain(matrices: Sequence[Floats], replicates: int) -> None:
    """Gather, multiply and sum whole matrices, as one writes it first."""
    rng = np.random.default_rng(1)
    units = len(matrices[0])
    for _ in range(replicates):
        orders = [rng.permutation(units) for _ in matrices[1:]]
        gathered = [matrices[0], *(m[p][:, p] for m, p in zip(matrices[1:], orders, strict=True))]
        product, crossed, means = np.ones((units, units)), np.ones(units), 1.0
        for matrix in gathered:
            product = product * matrix
            crossed = crossed * matrix.mean(axis=1)
            means *= float(matrix.mean())
        np.sqrt(max(0.0, float(product.mean() - 2 * crossed.mean() + means)))


def plain_s(case: Case, values: Floats) -> float:
    """Seconds of plain NumPy for all replicates."""
    matrices = [gram.rows(0, gram.size).copy() for gram in grams_of(case, values)]
    return timed(lambda: plain(matrices, PEER_REPLICATES)) * (case.permutations + 1) / PEER_REPLICATES


def hyppo_s(case: Case, values: Floats) -> float | None:
    """Seconds of hyppo for all replicates; None where it is not installed or does not take the case."""
    if case.variables != 2 or importlib.util.find_spec("hyppo") is None:
        return None
    hsic = importlib.import_module("hyppo.independence").Hsic
    kernel = {"gaussian": {"compute_kernel": "gaussian", "gamma": 1 / (2 * BANDWIDTH**2)}}.get(
        case.shape, {"compute_kernel": "laplacian", "gamma": 1 / BANDWIDTH}
    )

    def run(replicates: int) -> None:
        hsic(**kernel).test(values[:, :1], values[:, 1:], reps=replicates, workers=1, auto=False)

    run(1)  # compiles
    return timed(lambda: run(HYPPO_REPLICATES)) * (case.permutations + 1) / HYPPO_REPLICATES


def row(case: Case) -> str:
    """Time one case and write its line."""
    values = data(case)
    one = timed(lambda: ours(case, values, 1))
    two = timed(lambda: ours(case, values, 2))
    naive = plain_s(case, values) if case.peers else None
    hyppo = hyppo_s(case, values) if case.peers else None
    fastest = min(one, two)
    seconds = [f"{value:.1f}" if value is not None else "" for value in (one, two, naive, hyppo)]
    ratios = [f"{value / fastest:.0f}" if value is not None else "" for value in (naive, hyppo)]
    cells = [case.shape, f"{case.units}", f"{case.variables}", f"{case.permutations}", *seconds, *ratios]
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    """Print the table, and write the page if asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write the page of the documentation")
    parser.add_argument("--large", action="store_true", help="also 10 000 units")
    chosen = parser.parse_args()
    lines = ["| " + " | ".join(COLUMNS) + " |", "|" + "---|" * len(COLUMNS)]
    for case in (*CASES, *(LARGE if chosen.large else ())):
        lines.append(row(case))
        print(lines[-1], flush=True)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    ending = f"\nPeak memory of the whole run: {memory:.1f} GB.\n" + LOAD.format(
        *os.getloadavg(), os.cpu_count()
    )
    if importlib.util.find_spec("hyppo") is None:
        ending += "hyppo was not installed in this run.\n"
    print(ending)
    if chosen.write:
        head = HEADER.format(peer=PEER_REPLICATES, hyppo=HYPPO_REPLICATES)
        PAGE.write_text(head + "\n".join(lines) + "\n" + ending)


if __name__ == "__main__":
    main()
