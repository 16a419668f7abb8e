"""What benchmarks share: options, Monte-Carlo cells that survive an interruption, tables, pages, pictures.

A cell is one way of drawing data; a run of it draws once and answers several questions (methods, epsilons,
levels), each by yes or no, or by a number that is added up. Every batch of runs is appended to a file as it
ends. Run number r of a cell always has the same seed, so that a continued table is the table that one go
would have made, but for noise that cannot be seeded.

A page in docs/benchmarks is written by hand but for what stands between ``<!-- name -->`` and
``<!-- end -->``: a benchmark computes these parts by name, and :func:`write_page` puts them in.
"""

import argparse
import json
import math
import multiprocessing
import os
import re
import time
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt
from scipy.special import bdtrc
from threadpoolctl import threadpool_limits

PAGES = Path(__file__).resolve().parents[1] / "docs" / "benchmarks"

FOLDER = PAGES.parents[2] / "shared" / "data"
"""Public data sets: beside the project's folder, not part of it."""

ROUNDS = 20
"""Rounds in which all cells advance together, so that a table that was cut short is even."""

NOT_RUN = "Not run yet."

Floats = npt.NDArray[np.float64]

Answers = Mapping[str, float]
"""Yes or no, or a number, to every question."""

Parts = Mapping[str, str]
"""The computed parts of a page, by name."""

RowT = TypeVar("RowT")
ColumnT = TypeVar("ColumnT")


@dataclass(frozen=True)
class Cell:
    """``run(number)`` draws data once and returns the answer to each of its questions."""

    name: str
    runs: int
    run: Callable[[int], Answers]


def cells_of(
    form: str, runs: int, run: Callable[..., Answers], *axes: Iterable[Any], seeded: bool = False
) -> list[Cell]:
    """Return a cell for every combination of the axes' values, which the name's form and the run take.

    A ``seeded`` run takes the cell's name before them, from which it makes its seeds.
    """
    made = []
    for values in product(*axes):
        name = form.format(*values)
        made.append(Cell(name, runs, partial(run, *([name] if seeded else []), *values)))
    return made


def cells_for(
    form: str, runs: int, run: Callable[..., Answers], settings: Iterable[Sequence[Any]]
) -> list[Cell]:
    """Return a cell for every setting, whose values the name's form and the run take."""
    return [one for setting in settings for one in cells_of(form, runs, run, *([v] for v in setting))]


def seeds(name: str, run: int) -> tuple[np.random.Generator, np.random.SeedSequence]:
    """Return the seeds of a run: of its data and noise, and of its null distribution."""
    data, null = np.random.SeedSequence([zlib.crc32(name.encode()), run]).spawn(2)
    return np.random.default_rng(data), null


class Counts:
    """How often each question of each cell was answered by yes, or its numbers' sum; in how many runs."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.runs: dict[str, int] = defaultdict(int)
        self.hits: dict[tuple[str, str], float] = defaultdict(float)
        self.answered: dict[tuple[str, str], int] = defaultdict(int)
        if path.exists():
            for line in path.read_text().splitlines():
                self._take(json.loads(line))

    def add(self, cell: str, first: int, answers: Sequence[Answers]) -> None:
        """Take the answers of runs ``first``, ``first`` + 1, ..., and append them to the file."""
        hits: dict[str, list[float]] = {}
        for run in answers:
            for question, yes in run.items():
                count = hits.setdefault(question, [0, 0])
                count[0] += yes
                count[1] += 1
        batch = {"cell": cell, "first": first, "runs": len(answers), "hits": hits}
        with self._path.open("a") as file:
            file.write(json.dumps(batch) + "\n")
        self._take(batch)

    def _take(self, batch: dict[str, Any]) -> None:
        cell = batch["cell"]
        if batch["first"] != self.runs[cell]:
            raise ValueError(f"{self._path} lacks runs of {cell}, or has some twice: delete it")
        self.runs[cell] += batch["runs"]
        for question, (yes, runs) in batch["hits"].items():
            self.hits[cell, question] += yes
            self.answered[cell, question] += runs

    def compact(self) -> None:
        """Write one line for each cell in the place of all."""
        lines = []
        for cell, runs in ((cell, runs) for cell, runs in self.runs.items() if runs):
            asked = [question for name, question in self.answered if name == cell]
            hits = {q: [self.hits[cell, q], self.answered[cell, q]] for q in asked}
            lines.append(json.dumps({"cell": cell, "first": 0, "runs": runs, "hits": hits}) + "\n")
        whole = self._path.with_suffix(".tmp")
        whole.write_text("".join(lines))
        whole.replace(self._path)

    def rate(self, cell: str, question: str) -> float | None:
        """Return the part of yes or the mean of the numbers, or None where it was never asked."""
        runs = self.answered.get((cell, question), 0)
        return self.hits[cell, question] / runs if runs else None

    def shown(self, cell: str, question: str, form: str = ".3f") -> str:
        """Return the rate as text; nothing where it was never asked."""
        rate = self.rate(cell, question)
        return "" if rate is None else f"{rate:{form}}"

    def spread(self, cell: str, question: str) -> tuple[float, float] | None:
        """Return the mean and the standard deviation of numbers that were answered ``with_square``."""
        mean, square = self.rate(cell, question), self.rate(cell, f"{question} squared")
        if mean is None or square is None:
            return None
        return mean, math.sqrt(max(0.0, square - mean**2))

    def runs_of(self, kind: str, end: str = "") -> str:
        """Say how many runs the cells of a kind had, as a number or a range."""
        runs = [count for cell, count in self.runs.items() if cell.startswith(kind) and cell.endswith(end)]
        return extent(runs)

    def tail(self, cell: str, question: str, level: float) -> float:
        """Return how likely at least as many yeses are where their probability is ``level``."""
        hits = self.hits[cell, question]
        return float(bdtrc(hits - 1, self.answered[cell, question], level)) if hits else 1.0


def extent(runs: Iterable[int]) -> str:
    """Write numbers of runs as one number or a range."""
    ordered = sorted(runs)
    return " to ".join(str(end) for end in dict.fromkeys(ordered[:1] + ordered[-1:])) or "no"


def with_square(question: str, value: float) -> dict[str, float]:
    """Return a number and its square, whose means give its standard deviation."""
    return {question: float(value), f"{question} squared": float(value) ** 2}


def covered(interval: tuple[float, float], value: float, estimate: float) -> dict[str, float]:
    """Say whether an interval holds a value, how wide it is, and what was estimated."""
    low, high = interval
    return {"held": low - 1e-9 <= value <= high + 1e-9, "width": high - low, "estimate": estimate}


def question(method: str, epsilon: float | str, level: float) -> str:
    """Name what one run of one method answers, as ``level_statement`` reads it."""
    return f"{method} | {epsilon if isinstance(epsilon, str) else format(epsilon, 'g')} | {level:g}"


def level_statement(counts: Counts, kind: str = "level", method: str = "") -> str:
    """Say how the rates of that kind of cell compare with their levels, which end the questions' names.

    ``method`` is how the questions begin that count.
    """
    tails = []
    for cell, asked in counts.answered:
        if cell.startswith(kind) and asked.startswith(method):
            name, epsilon, level = asked.split(" | ")
            named = f"{cell}, {name}, ε = {epsilon}, level {level}"
            tails.append((counts.tail(cell, asked, float(level)), named))
    if not tails:
        return ""
    smallest, named = min(tails)
    number, low = len(tails), sum(tail < 0.01 for tail, _ in tails)
    return (
        f"**Level.** {number} rates under the null hypothesis. Were each level met exactly, the rate\n"
        f"furthest above its own ({named}) would be as large\n"
        f"with probability {smallest:.2g}; times {number}, for the choice of the furthest: "
        f"{min(1.0, number * smallest):.2g}.\n"
        f"One-sided tails below .01: {low}, where chance alone would give {number / 100:.1f} at most.\n\n"
    )


def checks_and_powers(
    counts: Counts,
    check: Callable[[str, str], Mapping[str, str]],
    power: Callable[[str], Mapping[str, str]],
    covering: Iterable[str],
    level: float,
) -> dict[str, str]:
    """Return the parts of a page whose cells check tests' levels and intervals' coverage, or show powers.

    Args:
        counts: what the cells have answered, those named ``check ...`` and ``power ...``.
        check: a row of the table of checks, of a cell's name and its design: what follows the owners' number.
        power: a row of the table of powers, of a cell's name.
        covering: the questions whether an interval of .95 holds the truth.
        level: of the tests, which ends their questions.
    """
    cells = [(cell, *cell.partition(" ")[::2]) for cell in counts.runs]
    checks = {name: check(cell, name.partition(", ")[2]) for cell, kind, name in cells if kind == "check"}
    powers = {name: power(cell) for cell, kind, name in cells if kind == "power"}
    asked = [(cell, q) for cell, q in counts.answered if q.endswith(f"| {level:g}")]
    tail, cell, question = min(((counts.tail(*one, level), *one) for one in asked), default=(1.0, "", ""))
    highest: dict[str, float] = {}
    for one in asked:
        test = one[1].partition(" | ")[0]
        highest[test] = max(highest.get(test, 0.0), counts.rate(*one) or 0.0)
    wanted = set(covering)
    rates = [(counts.rate(c, q) or 0.0, q, c) for c, q in counts.answered if q in wanted]
    lowest = min(rates, default=(0.0, "", ""))
    return {
        "runs": counts.runs_of("check"),
        "power runs": counts.runs_of("power"),
        "statement": (
            f"Of {len(asked)} rates at level {level:g} the highest are "
            f"{', '.join(f'{rate:.3f} ({test})' for test, rate in highest.items())}; the one furthest above\n"
            f"it ({question.partition(' | ')[0]}, {cell.removeprefix('check ')}) would be as large with "
            f"probability {tail:.2g} were the level exact;\n"
            f"times {len(asked)}: {min(1.0, tail * len(asked)):.2g}. Of {len(rates)} coverages of .95 the "
            f"lowest is {lowest[0]:.3f}\n({lowest[1]}, {lowest[2].removeprefix('check ')}).\n"
        ),
        "checks": table(checks, "design") if checks else "",
        "powers": table(powers, "design") if powers else "",
    }


def advance(cells: Sequence[Cell], counts: Counts, after_round: Callable[[], None], workers: int = 1) -> None:
    """Run what is missing, round by round, in so many processes, and say what it took."""
    started, spent = time.monotonic(), defaultdict[str, float](float)
    pool = multiprocessing.get_context("fork").Pool(workers) if workers > 1 else None
    with pool or nullcontext():
        for number in range(1, ROUNDS + 1):
            ran = False
            for cell in cells:
                first, goal = counts.runs.get(cell.name, 0), math.ceil(cell.runs * number / ROUNDS)
                if first < goal:
                    begun, runs = time.monotonic(), range(first, goal)
                    counts.add(cell.name, first, list((pool.map if pool else map)(cell.run, runs)))
                    spent[cell.name] += time.monotonic() - begun
                    ran = True
            if ran:
                print(f"round {number} of {ROUNDS}, {time.monotonic() - started:.0f} s", flush=True)
                after_round()
    for name, seconds in sorted(spent.items(), key=lambda one: -one[1]):
        print(f"{seconds:8.1f} s  {name}")


@dataclass(frozen=True)
class Benchmark:
    """A page of docs/benchmarks: its cells, its parts from their counts, and its pictures."""

    page: str
    cells: Callable[[], list[Cell]]
    parts: Callable[[Counts], Parts]
    draw: Callable[[Counts, Path], None] | None = None

    def write(self, counts: Counts, folder: Path) -> None:
        """Write the page and its pictures into a folder."""
        write_page(self.page, self.parts(counts), folder)
        if self.draw is not None:
            self.draw(counts, folder)


def main(doc: str | None, *benchmarks: Benchmark) -> None:
    """Read the options, run the cells of every page or of one, and write it after every round."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--page", choices=[each.page for each in benchmarks], help="this page alone")
    parser.add_argument("--runs", type=float, default=1.0, help="part of every cell's runs, such as 0.02")
    parser.add_argument("--cells", default="", help="only cells whose names hold this text")
    parser.add_argument("--workers", type=int, default=1, help="processes that share the runs")
    parser.add_argument("--folder", type=Path, default=PAGES)
    parser.add_argument("--list", action="store_true", help="list the cells and run none")
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    for one in (each for each in benchmarks if asked.page in (None, each.page)):
        chosen = [
            replace(c, runs=math.ceil(c.runs * asked.runs)) for c in one.cells() if asked.cells in c.name
        ]
        if asked.list:
            print("\n".join(f"{cell.runs:6d} runs  {cell.name}" for cell in chosen))
            continue
        counts = Counts(asked.folder / f"{one.page}.jsonl")
        write = partial(one.write, counts, asked.folder)
        with threadpool_limits(limits=1, user_api="blas"):
            advance(chosen, counts, write, asked.workers)
            counts.compact()
            write()


def options(doc: str | None, **defaults: Any) -> argparse.Namespace:
    """Read the options of a benchmark without cells: numbers, texts, lists (tuples) and flags (False)."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in ({"folder": PAGES} | defaults).items():
        flag = f"--{name.replace('_', '-')}"
        if isinstance(default, bool):
            parser.add_argument(flag, action="store_true")
        elif isinstance(default, tuple):
            parser.add_argument(flag, type=type(default[0]), nargs="+", default=default)
        else:
            parser.add_argument(flag, type=type(default), default=default)
    return parser.parse_args()


PART = re.compile(r"<!-- (?P<name>[^>]+?) -->(?P<old>.*?)<!-- end -->", re.DOTALL)


def fill(page: str, parts: Parts) -> str:
    """Put the parts into a page, in lines of their own where the old ones were.

    Raises ValueError where the page has no place for a part, or one that nothing was computed for.
    """
    places = [match["name"] for match in PART.finditer(page)]
    if set(places) != set(parts):
        raise ValueError(f"the page's parts are {places}, those computed {list(parts)}")

    def new(match: re.Match[str]) -> str:
        text = parts[match["name"]].strip()
        text = f"\n\n{text or NOT_RUN}\n\n" if match["old"].startswith("\n") else text
        return f"<!-- {match['name']} -->{text}<!-- end -->"

    return PART.sub(new, page)


def write_page(name: str, parts: Parts, folder: Path = PAGES) -> None:
    """Write a page of the documentation with these parts into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.md").write_text(fill((PAGES / f"{name}.md").read_text(), parts))


def table(rows: Mapping[str, Mapping[str, str]], corner: str) -> str:
    """Write a Markdown table: rows by name, each a cell by column; columns in their first order.

    A name of several cells has `` | `` between them, and so has the corner.
    """
    columns = list(dict.fromkeys(column for row in rows.values() for column in row))
    head = f"| {corner} | " + " | ".join(columns) + " |"
    lines = [head, "|---" * (head.count("|") - 1) + "|"]
    lines += [
        f"| {name} | " + " | ".join(row.get(column, "") for column in columns) + " |"
        for name, row in rows.items()
    ]
    return "\n".join(lines) + "\n"


def grid(
    corner: str,
    rows: Iterable[tuple[str, RowT]],
    columns: Iterable[tuple[str, ColumnT]],
    cell: Callable[[RowT, ColumnT], str],
) -> str:
    """Write a table of named rows and columns; rows and columns without any text are left out."""
    named = list(columns)
    found = {name: {head: cell(row, column) for head, column in named} for name, row in rows}
    used = [head for head, _ in named if any(row[head] for row in found.values())]
    shown = {name: {head: row[head] for head in used} for name, row in found.items() if any(row.values())}
    return table(shown, corner) if shown else f"{NOT_RUN}\n"


def named(form: str, values: Iterable[Any]) -> list[tuple[str, Any]]:
    """Name values by a format with one place, such as ``"ε={:g}"``."""
    return [(form.format(value), value) for value in values]


Line = tuple[Sequence[float], Sequence[float | None]]
"""x and y; None where there is none."""


def curves(
    path: Path,
    panels: Mapping[str, Mapping[str, Sequence[Line]]],
    xlabel: str,
    ylabel: str,
    rows: int = 1,
    yscale: Literal["log", "linear"] = "log",
) -> None:
    """Draw panels of named lines on logarithmic axes, as an SVG: the same numbers make the same bytes.

    A name has one colour in all panels; the first of its lines is solid, the others are dashed.
    """
    import matplotlib as mpl  # noqa: PLC0415 (the runs do not need it)

    mpl.use("svg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    # A fixed salt and no date; letters stay letters.
    mpl.rcParams.update({"svg.hashsalt": "tacit", "svg.fonttype": "none", "font.size": 8})
    across = -(-len(panels) // rows)
    size = (max(7.0, 2.8 * across), 1.2 + 3.2 * rows)
    figure, axes = plt.subplots(rows, across, layout="constrained", figsize=size, squeeze=False)
    names = list(dict.fromkeys(name for lines in panels.values() for name in lines))
    shown: dict[str, Any] = {}
    for panel, (title, lines) in zip(axes.flat, panels.items(), strict=False):
        for name, drawn in lines.items():
            for (x, y), style in zip(drawn, ("o-", "x--"), strict=False):
                values, colour = [math.nan if one is None else one for one in y], f"C{names.index(name)}"
                (line,) = panel.plot(x, values, style, color=colour, ms=4, mfc="none")
                shown.setdefault(name, line)
        panel.set(xscale="log", yscale=yscale, title=title, xlabel=xlabel)
    for panel in axes.flat[len(panels) :]:
        panel.set_visible(False)
    figure.supylabel(ylabel)
    figure.legend(shown.values(), shown.keys(), loc="outside lower center", ncols=3, frameon=False)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def peak_mb(process: int | str = "self") -> float:
    """Return the most resident memory of a process, in MiB; of a forked one, since it was forked.

    Not ``ru_maxrss``, which a child begins with its parent's.
    """
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("the system does not tell a process's peak memory")


def machine() -> str:
    """Say which processor this is, and how many of them."""
    info = Path("/proc/cpuinfo")
    names = [line for line in info.read_text().splitlines() if line.startswith("model name")]
    name = names[0].partition(":")[2].strip() if names else "unknown processor"
    return f"{os.cpu_count()} × {name}"
