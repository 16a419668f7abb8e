"""Sample sizes of the identity tests: P3's three experiments, by P3's rule, every method on one grid.

    python -m benchmarks.identity                # everything; continues where it stopped
    python -m benchmarks.identity --runs 100 --cells uniform --folder /tmp/glance

The size of a method is the smallest n of a grid with steps of 5 % at which both errors were at most 1/3 over
1000 simulated studies each. Counts and noise are simulated; statistics are the services' own functions.
"""

import math
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from benchmarks.harness import Counts, grid, named, options, picture, write_page
from tacit_protocol.numerics.noisy_tables import paninski
from tacit_protocol.privacy.accounting import gaussian_mu
from tacit_protocol.procedures.identity.privit import PrivitRefusedError, RepetitionRefusedError
from tacit_protocol.procedures.identity.simulate import PlannedIdentity, first_guess

Floats = npt.NDArray[np.float64]

EXPERIMENTS = {
    "uniform": "Uniform distribution",
    "2-histogram": "2-histogram",
    "guarantees": "zCDP against approximate and pure differential privacy",
}

ALPHA = EPSILON = 0.1
ERROR = 1 / 3
LEVEL = 0.3
"""Level of the tests: at 1/3 itself half of all would miss the rule by chance; here one in twenty."""

RUNS, DRAWS = 1000, 999
DELTA = 1e-6
GRID = 0.05
"""Logarithm of the grid's steps; P3's code took 0.1."""

NEW_S = 3.0
"""The page is written after points that took so long: pictures take a second."""

UNIFORM = (10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_600)
HISTOGRAM = (400, 800, 1600, 3200, 6800)
LARGE = 20_000
GUARANTEES = (10, 100, 1000, 10_600)

LARGE_PART, SMALL_MASS = 1 / 200, 1 / 3
"""Of the 2-histogram, as in P3's published code: the part of the cells that is heavy, and the probability of
all others together, in units of alpha."""


@dataclass(frozen=True)
class Question:
    """One method at one number of cells of one experiment."""

    experiment: str
    label: str
    cells: int
    make: Callable[[int], PlannedIdentity]
    other: Floats

    @property
    def name(self) -> str:
        """Name of the curve's point."""
        return f"{self.experiment} | {self.label} | {self.cells}"

    def size(self, step: int) -> int:
        """Return the n of a place on the grid."""
        return math.ceil(math.exp(GRID * step))

    def enough(self, counts: Counts, step: int, runs: int) -> bool:
        """Return whether n is enough: simulates what is missing.

        Where the second error is small enough and the first, which the level fixes, is not, others decide.
        """
        for attempt in range(2):
            errors = self._errors(counts, step, runs, attempt)
            if errors is None or errors[1] > ERROR:
                return False
            if errors[0] <= ERROR:
                return True
        return False

    def _errors(self, counts: Counts, step: int, runs: int, attempt: int) -> tuple[float, float] | None:
        """Return both errors; None where the method refuses n."""
        name = f"{self.name} | {self.size(step)}" + (" | again" if attempt else "")
        if counts.runs[name] < runs:
            if counts.runs[name]:
                raise ValueError(f"{name} was simulated with fewer runs: delete the file")
            entropy = [zlib.crc32(self.name.encode()), step, *([attempt] if attempt else [])]
            try:
                found = self.make(self.size(step)).rates(
                    self.other, runs, DRAWS, np.random.SeedSequence(entropy)
                )
            except (PrivitRefusedError, RepetitionRefusedError):
                return None
            errors = {"I": round(found.false * runs), "II": runs - round(found.true * runs)}
            answers = [{kind: i < number for kind, number in errors.items()} for i in range(runs)]
            counts.add(name, 0, answers)
        return counts.rate(name, "I") or 0.0, counts.rate(name, "II") or 0.0

    def search(self, counts: Counts, runs: int, start: int) -> int:
        """Return the smallest place on the grid whose n is enough: gallops, then halves."""
        low, high, stride = None, None, 2
        step = start
        while low is None or high is None:
            if self.enough(counts, step, runs):
                high = step
                step -= stride
            else:
                low = step
                step += stride
            stride *= 2
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self.enough(counts, middle, runs) else (middle, high)
        return high


def uniform(cells: int) -> tuple[Floats, Floats]:
    """Return the uniform distribution and Paninski's alternative."""
    q = np.full(cells, 1 / cells)
    return q, paninski(q, ALPHA)


def histogram(cells: int) -> tuple[Floats, Floats]:
    """Return P3's 2-histogram, and its alternative on the heavy cells."""
    heavy = max(2, int(LARGE_PART * cells))
    small = ALPHA * SMALL_MASS
    q = np.concatenate([np.full(heavy, (1 - small) / heavy), np.full(cells - heavy, small / (cells - heavy))])
    moved = q.copy()
    pairs = heavy // 2
    moved[: 2 * pairs : 2] += ALPHA / (2 * pairs)
    moved[1 : 2 * pairs : 2] -= ALPHA / (2 * pairs)
    return q, moved


def methods(epsilon: float) -> dict[str, dict[str, object]]:
    """Return the methods of the first two experiments, by label."""
    return {
        "not private": {"method": "chi-square"},
        "privit-laplace, tight": {"method": "privit-laplace", "weights": "published"},
        "privit-laplace, tight, noise-aware weights": {"method": "privit-laplace"},
        "privit-laplace, filter (P3)": {"method": "privit-laplace", "clipping": "filter"},
        "mcgof, published weights": {"method": "mcgof", "weights": "published"},
        "mcgof, noise-aware weights": {"method": "mcgof"},
        f"zcdp-gof, rho = {epsilon**2 / 2:g}": {"method": "zcdp-gof", "rho": epsilon**2 / 2},
        "repetition": {"method": "repetition"},
        "privit (Algorithm 1)": {"method": "privit"},
    }


def guarantees() -> dict[str, dict[str, object]]:
    """Return what the third experiment compares: one test under several guarantees."""
    exact = gaussian_mu(EPSILON, DELTA) ** 2 / 2
    root = math.sqrt(math.log(1 / DELTA))
    textbook = (math.sqrt(math.log(1 / DELTA) + EPSILON) - root) ** 2
    return {
        "zcdp-gof, zCDP that pure 0.1 implies": {"method": "zcdp-gof", "rho": EPSILON**2 / 2},
        "zcdp-gof, (0.1, 1e-6) by the exact curve": {"method": "zcdp-gof", "rho": exact},
        "zcdp-gof, (0.1, 1e-6) by the zCDP bound": {"method": "zcdp-gof", "rho": textbook},
        "mcgof, pure 0.1": {"method": "mcgof"},
        "privit-laplace, pure 0.1": {"method": "privit-laplace"},
    }


def questions() -> list[Question]:
    """List all points, small ones first."""
    found = []
    for cells in UNIFORM:
        for label, chosen in methods(EPSILON).items():
            if not label.endswith("noise-aware weights"):  # cells are alike: all weights are
                found.append(_question("uniform", label, uniform(cells), chosen))
    found += [
        _question("2-histogram", label, histogram(cells), chosen)
        for cells in HISTOGRAM
        for label, chosen in methods(EPSILON).items()
    ]
    found += [
        _question("guarantees", label, uniform(cells), chosen)
        for cells in GUARANTEES
        for label, chosen in guarantees().items()
    ]
    chosen = {"method": "zcdp-gof", "rho": EPSILON**2 / 2}
    found.append(_question("uniform", f"zcdp-gof, rho = {EPSILON**2 / 2:g}", uniform(LARGE), chosen))
    order = list(EXPERIMENTS)
    return sorted(found, key=lambda one: (one.cells, order.index(one.experiment)))


def _question(
    experiment: str, label: str, pair: tuple[Floats, Floats], chosen: dict[str, object]
) -> Question:
    q, p = pair

    def make(units: int) -> PlannedIdentity:
        return PlannedIdentity(
            probabilities=q, units=units, epsilon=EPSILON, level=LEVEL, distance=ALPHA, **chosen
        )

    return Question(experiment, label, len(q), make, p)


def start_of(question: Question, sizes: dict[str, int]) -> int:
    """Return where a search starts: on the line through the last two sizes, or at a rough formula."""
    curve = [
        (math.log(int(name.split(" | ")[2])), math.log(size) / GRID)
        for name, size in sizes.items()
        if name.split(" | ")[:2] == [question.experiment, question.label]
    ]
    if len(curve) > 1:
        (before, first), (last, second) = curve[-2:]
        slope = (second - first) / (last - before)
        return round(second + slope * (math.log(question.cells) - last))
    plan = question.make(1)
    cells = question.cells if question.experiment != "2-histogram" else max(2, question.cells // 200)
    guess = first_guess(plan.method, cells, ALPHA / 2, EPSILON, plan.rho or 0.005)
    return max(20, round(math.log(max(guess, 10.0)) / GRID))


Curves = dict[str, dict[int, int]]


def _curves(sizes: dict[str, int], experiment: str) -> Curves:
    curves: Curves = {}
    for name, size in sizes.items():
        kind, label, cells = name.split(" | ")
        if kind == experiment:
            curves.setdefault(label, {})[int(cells)] = size
    return curves


def write(folder: Path, sizes: dict[str, int], runs: int) -> None:
    """Write the page and its pictures into a folder; ``sizes`` by "experiment | method | cells"."""
    parts = {"runs": str(runs), "statements": _statements(sizes)}
    for experiment, title in EXPERIMENTS.items():
        curves = _curves(sizes, experiment)
        cells = sorted({k for curve in curves.values() for k in curve})
        parts[experiment] = grid(
            "k",
            named("{:,}", cells),
            list(curves.items()),
            lambda k, curve: f"{curve[k]:,}" if k in curve else "",
        )
        if not curves:
            continue
        with picture(folder / f"identity-{experiment}.svg", figsize=(7.5, 4.5)) as (_, axes):
            for marker, (label, curve) in zip("ovs^Dx*P", curves.items(), strict=False):
                own = sorted(curve)
                axes.loglog(own, [curve[k] for k in own], marker=marker, markersize=4, label=label)
            axes.set(title=title, xlabel="cells k", ylabel="units n")
            axes.grid(visible=True, which="major", alpha=0.3)
            axes.legend(fontsize=8)
    write_page("identity", parts, folder)


def _statements(sizes: dict[str, int]) -> str:
    """Say how the curves lie to each other, from the figures."""
    lines = []
    for experiment in ("uniform", "2-histogram"):
        curves = _curves(sizes, experiment)
        aware = "privit-laplace, tight, noise-aware weights"
        tight = curves.get(aware, curves.get("privit-laplace, tight", {}))
        peers = {
            "its published form": "privit-laplace, filter (P3)",
            "MCGOF as published": "mcgof, published weights",
            "MCGOF with noise-aware weights": "mcgof, noise-aware weights",
        }
        for name, other in ((name, curves.get(label, {})) for name, label in peers.items()):
            both = sorted(set(tight) & set(other))
            if both:
                ratios = [other[k] / tight[k] for k in both]
                lines.append(
                    f"- {experiment}: `privit-laplace` as it is by default needs {min(ratios):.1f} to "
                    f"{max(ratios):.1f} times fewer units than {name}, k = {both[0]:,} to {both[-1]:,}.\n"
                )
        lines += [_slope(experiment, label, curve) for label, curve in curves.items() if len(curve) > 2]
    return "".join(lines)


def _slope(experiment: str, label: str, curve: dict[int, int]) -> str:
    first, last = min(curve), max(curve)
    slope = math.log(curve[last] / curve[first]) / math.log(last / first)
    return f"- {experiment}: {label} grows like k^{slope:.2f} from k = {first:,} to {last:,}.\n"


def main() -> None:
    """Read the options, find the sizes, and write the page after every point."""
    chosen = options(__doc__, runs=RUNS, cells="")
    chosen.folder.mkdir(parents=True, exist_ok=True)
    counts = Counts(chosen.folder / "identity.jsonl")
    sizes: dict[str, int] = {}
    with threadpool_limits(limits=1, user_api="blas"):
        for point in (point for point in questions() if chosen.cells in point.name):
            began = time.process_time()
            step = point.search(counts, chosen.runs, start_of(point, sizes))
            sizes[point.name] = point.size(step)
            took = time.process_time() - began
            print(f"{took:8.1f} s  {point.name}: {point.size(step)}", flush=True)
            if took > NEW_S:
                write(chosen.folder, sizes, chosen.runs)
    write(chosen.folder, sizes, chosen.runs)
    counts.compact()


if __name__ == "__main__":
    main()
