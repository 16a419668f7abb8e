"""Speed of the permuted joint independence statistics, beside plain NumPy and hyppo, in one run.

    python -m benchmarks.joint_independence_speed --large
    python -m benchmarks.joint_independence_speed --units 300 --folder /tmp/glance

Times are of one process on the machine at hand; the ratios are what counts. Every peer is timed on a few
replicates and scaled up, which is stated. hyppo is optional: where it is not installed, its cells are empty.
"""

import importlib.util
import os
import resource
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from benchmarks.harness import options, table, write_page
from benchmarks.problems import no_codes
from tacit_protocol.features.kernels import ProductKernel
from tacit_protocol.features.unit_gram import UnitGram, UnitRows
from tacit_protocol.procedures.joint_independence.statistic import permuted_statistics
from tacit_protocol.workers import ThreadWorkers

Floats = npt.NDArray[np.float64]

BANDWIDTH = 0.12
PEER_REPLICATES = 15
"""Replicates that a peer is timed on; it takes the same for each."""

HYPPO_REPLICATES = 20


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


def timed(action: Callable[..., object], *arguments: object) -> float:
    """Seconds that an action takes."""
    started = time.perf_counter()
    action(*arguments)
    return time.perf_counter() - started


def data(case: Case) -> Floats:
    """Independent columns, (units, variables)."""
    rng = np.random.default_rng(0)
    return np.asarray(np.clip(0.5 + 0.15 * rng.standard_normal((case.units, case.variables)), 0, 1))


def grams_of(case: Case, values: Floats) -> list[UnitGram]:
    """Kernel matrices of the columns."""
    rows = UnitRows(values, no_codes(len(values)), np.arange(len(values) + 1))
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
    return timed(plain, matrices, PEER_REPLICATES) * (case.permutations + 1) / PEER_REPLICATES


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
    return timed(run, HYPPO_REPLICATES) * (case.permutations + 1) / HYPPO_REPLICATES


def row(case: Case) -> dict[str, str]:
    """Time one case."""
    values = data(case)
    one, two = (timed(ours, case, values, workers) for workers in (1, 2))
    plain = plain_s(case, values) if case.peers else None
    hyppo = hyppo_s(case, values) if case.peers else None
    seconds = {"1 worker, s": one, "2 workers, s": two, "plain, s": plain, "hyppo, s": hyppo}
    ratios = {"plain / ours": plain, "hyppo / ours": hyppo}
    return {name: "" if value is None else f"{value:.1f}" for name, value in seconds.items()} | {
        name: "" if value is None else f"{value / min(one, two):.0f}" for name, value in ratios.items()
    }


def main() -> None:
    """Time the cases, and write the page."""
    chosen = options(__doc__, units=0, large=False)
    cases = (*CASES, *(LARGE if chosen.large else ()))
    rows: dict[str, dict[str, str]] = {}
    for case in cases:
        asked = replace(case, units=chosen.units or case.units)
        name = f"{asked.shape} | {asked.units} | {asked.variables} | {asked.permutations}"
        rows[name] = row(asked)
        print(name, rows[name], flush=True)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    parts = {"table": table(rows, "kernel | n | d | B"), "peak": f"{memory:.1f}"}
    parts["load"] = f"{os.getloadavg()[2]:.0f} on {os.cpu_count()}"
    write_page("joint-independence-speed", parts, chosen.folder)


if __name__ == "__main__":
    main()
