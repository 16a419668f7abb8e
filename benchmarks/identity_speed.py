"""Time and memory of the identity tests, every method beside Priv'IT's Algorithm 1.

    python -m benchmarks.identity_speed            # writes docs/benchmarks/identity-speed.md
    python -m benchmarks.identity_speed --cells 100 --folder /tmp/glance

Processor time of one process, so that other work on the machine matters little. A study is played through
the procedure itself, owner's part and tester's part; a simulated one is what planning and the benchmark of
sample sizes run a thousand times.
"""

import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.harness import options, table, write_page
from tacit.in_process.runner import local_study, seed_text
from tacit.in_process.samples import CountedTable
from tacit.local.identity import columns_of
from tacit_protocol.messages.study import Study
from tacit_protocol.numerics.noisy_tables import paninski
from tacit_protocol.privacy.noise import OpenDPNoise
from tacit_protocol.procedures.identity import Identity
from tacit_protocol.procedures.identity.simulate import PlannedIdentity

CELLS = (100, 1000, 10_600, 20_000)
EPSILON, DELTA, LEVEL, DISTANCE = 1.0, 1e-6, 1 / 3, 1.0
UNITS_EACH = 2000
"""Units of a cell on average: with the largest distance, Algorithm 1 is private at all of these k."""

SIMULATED, DRAWS = 1000, 999

METHODS = {
    "privit": {"method": "privit"},
    "mcgof": {"method": "mcgof"},
    "mcgof, published weights": {"method": "mcgof", "weights": "published"},
    "zcdp-gof, χ²": {"method": "zcdp-gof", "null": "chi-square"},
    "zcdp-gof, simulated": {"method": "zcdp-gof", "null": "monte-carlo"},
    "privit-laplace": {"method": "privit-laplace"},
}


def play(asked: Study, counted: CountedTable) -> None:
    """Play the owner's part and the tester's."""
    procedure = Identity()
    procedure.check(asked)
    release = procedure.privatise(asked, procedure.summarise(asked, counted), OpenDPNoise())
    procedure.check_release(asked, release)
    procedure.assemble(asked, {asked.owners[0].name: release})


def one_study(cells: int, chosen: dict[str, str]) -> tuple[Study, CountedTable]:
    """Return a study, and counts that follow its distribution."""
    domain, places, size = columns_of(cells)
    q = np.zeros(size)
    q[places] = 1 / cells
    counts = np.random.default_rng(cells).multinomial(UNITS_EACH * cells, np.full(cells, 1 / cells))
    parameters: dict[str, object] = {"probabilities": q.tolist()} | chosen
    if chosen["method"].startswith("privit"):
        parameters["distance"] = DISTANCE
    asked = local_study(
        Identity.name,
        domain,
        ["owner"],
        parameters,
        epsilon=EPSILON,
        delta=DELTA if chosen["method"] == "zcdp-gof" else 0.0,
        alpha=LEVEL,
        seed=seed_text(1),
    )
    return asked, CountedTable(domain, counts, places)


def simulate(cells: int, chosen: dict[str, str]) -> None:
    """Simulate studies as planning does."""
    q = np.full(cells, 1 / cells)
    plan = PlannedIdentity(
        chosen["method"],
        q,
        UNITS_EACH * cells,
        EPSILON,
        LEVEL,
        delta=DELTA,
        distance=DISTANCE,
        weights="published" if chosen.get("weights") == "published" else "noise-aware",
    )
    plan.rates(paninski(q, 0.1), SIMULATED, DRAWS, np.random.SeedSequence(cells))


def seconds(action: Callable[..., None], *arguments: Any) -> float:
    """Return the processor time of a call."""
    begun = time.process_time()
    action(*arguments)
    return time.process_time() - begun


def peak_mib(action: Callable[..., None], *arguments: Any) -> float:
    """Return the most memory that a call held at once, in MiB."""
    tracemalloc.start()
    action(*arguments)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / 2**20


def main() -> None:
    """Time everything and write the page."""
    chosen = options(__doc__, cells=CELLS)
    studies: dict[str, dict[str, str]] = {}
    many: dict[str, dict[str, str]] = {}
    with threadpool_limits(limits=1, user_api="blas"):
        play(*one_study(10, METHODS["mcgof"]))  # modules are read in
        for cells in chosen.cells:
            base: dict[str, float] = {}
            for name, method in METHODS.items():
                study = one_study(cells, method)
                took, peak = seconds(play, *study), peak_mib(play, *study)
                row = studies.setdefault(f"{cells:,}", {})
                row[name] = f"{took:.3g} s ({took / base.setdefault('one', took):.2g}), peak {peak:.3g} MiB"
                print(cells, name, row[name], flush=True)
                if "χ²" not in name:
                    took = seconds(simulate, cells, method)
                    row = many.setdefault(f"{cells:,}", {})
                    row[name] = f"{took:.3g} s ({took / base.setdefault('many', took):.2g})"
    write_page("identity-speed", {"many": table(many, "k"), "one": table(studies, "k")}, chosen.folder)


if __name__ == "__main__":
    main()
