"""Time and memory of the identity tests, every method beside Priv'IT's Algorithm 1.

    python -m benchmarks.identity_speed            # writes docs/benchmarks/identity-speed.md
    python -m benchmarks.identity_speed --cells 100 --page /tmp/glance.md

Processor time of one process, so that other work on the machine matters little. A study is played through
the procedure itself, owner's part and tester's part; a simulated one is what planning and the benchmark of
sample sizes run a thousand times.
"""

import argparse
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.resumable import table
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

PAGE = Path("docs/benchmarks/identity-speed.md")

HEAD = f"""# Speed and memory of the identity tests

    python -m benchmarks.identity_speed

Processor seconds of one process, and beside them the ratio to `privit` (Algorithm 1). Uniform distribution of
k cells, {UNITS_EACH} units a cell, ε = {EPSILON:g}, level 1/3, distance {DISTANCE:g} for the Priv'IT methods;
{DRAWS} simulations of a null distribution.

"""

MANY = f"""## {SIMULATED} simulated studies

What P3 timed: {SIMULATED} studies under the known distribution, {SIMULATED} under another (Paninski's), with
the null distribution that they share, as planning and the benchmark of sample sizes do. Simulated noise.

"""

STUDY = """## One study

Owner's part and tester's part, through the procedure; the owner's noise is from OpenDP. A study alone has to
simulate its own null distribution, which Algorithm 1 has not: that is the ratio here. `peak` is the most
memory that was held at once (traced in a run of its own). A k × k covariance, as in the published code of
zCDP-GOF, would take 3.2 GB at k = 20 000.

"""


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


def seconds(action: Callable[[], None]) -> float:
    """Return the processor time of a call."""
    begun = time.process_time()
    action()
    return time.process_time() - begun


def peak_mib(action: Callable[[], None]) -> float:
    """Return the most memory that a call held at once, in MiB."""
    tracemalloc.start()
    action()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / 2**20


def main() -> None:
    """Time everything and write the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cells", type=int, nargs="+", default=CELLS)
    parser.add_argument("--page", type=Path, default=PAGE)
    arguments = parser.parse_args()
    studies: dict[str, dict[str, str]] = {}
    many: dict[str, dict[str, str]] = {}
    with threadpool_limits(limits=1, user_api="blas"):
        play(*one_study(10, METHODS["mcgof"]))  # modules are read in
        for cells in arguments.cells:
            base: dict[str, float] = {}
            for name, chosen in METHODS.items():
                asked, counted = one_study(cells, chosen)
                took = seconds(lambda: play(asked, counted))  # noqa: B023 (called at once)
                peak = peak_mib(lambda: play(asked, counted))  # noqa: B023
                took_many = None if "χ²" in name else seconds(lambda: simulate(cells, chosen))  # noqa: B023
                base.setdefault("one", took)
                base.setdefault("many", took_many or 0.0)
                studies.setdefault(f"{cells:,}", {})[name] = (
                    f"{took:.3g} s ({took / base['one']:.2g}), peak {peak:.3g} MiB"
                )
                if took_many is not None:
                    many.setdefault(f"{cells:,}", {})[name] = (
                        f"{took_many:.3g} s ({took_many / base['many']:.2g})"
                    )
                print(cells, name, studies[f"{cells:,}"][name], took_many, flush=True)
    arguments.page.write_text(HEAD + MANY + table(many, "k") + "\n" + STUDY + table(studies, "k"))


if __name__ == "__main__":
    main()
