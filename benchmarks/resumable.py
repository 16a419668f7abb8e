"""Monte-Carlo counts that survive an interruption: every batch of runs is appended to a file as it ends.

A cell is one way of drawing data; a run of it draws once and answers several questions (methods, epsilons,
levels), each by yes or no, or by a number that is added up. Run number r of a cell always has the same seed,
so that a continued table is the table that one go would have made, but for noise that cannot be seeded.
"""

import argparse
import json
import math
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from scipy.special import bdtrc
from threadpoolctl import threadpool_limits

ROUNDS = 20
"""Rounds in which all cells advance together, so that a table that was cut short is even."""

Answers = Mapping[str, float]
"""Yes or no, or a number, to every question."""


@dataclass(frozen=True)
class Cell:
    """``run(number)`` draws data once and returns the answer to each of its questions."""

    name: str
    runs: int
    run: Callable[[int], Answers]


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

    def _take(self, batch: dict) -> None:  # type: ignore[type-arg]
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
        for cell, runs in self.runs.items():
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

    def runs_of(self, kind: str) -> str:
        """Say how many runs the cells of a kind had, as a number or a range."""
        runs = sorted(count for cell, count in self.runs.items() if cell.startswith(kind))
        if not runs:
            return "no"
        return f"{runs[0]}" if runs[0] == runs[-1] else f"{runs[0]} to {runs[-1]}"

    def tail(self, cell: str, question: str, level: float) -> float:
        """Return how likely at least as many yeses are where their probability is ``level``."""
        hits = self.hits[cell, question]
        return float(bdtrc(hits - 1, self.answered[cell, question], level)) if hits else 1.0


def level_statement(counts: Counts, kind: str = "level") -> str:
    """Say how the rates of that kind of cell compare with their levels, which end the questions' names."""
    tails = []
    for cell, asked in counts.answered:
        if cell.startswith(kind):
            method, epsilon, level = asked.split(" | ")
            named = f"{cell}, {method}, ε = {epsilon}, level {level}"
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


def advance(cells: Sequence[Cell], counts: Counts, after_round: Callable[[], None]) -> None:
    """Run what is missing, round by round, and say what it took."""
    started, spent = time.monotonic(), defaultdict(float)
    for number in range(1, ROUNDS + 1):
        ran = False
        for cell in cells:
            first, goal = counts.runs[cell.name], math.ceil(cell.runs * number / ROUNDS)
            if first < goal:
                begun = time.process_time()
                counts.add(cell.name, first, [cell.run(run) for run in range(first, goal)])
                spent[cell.name] += time.process_time() - begun
                ran = True
        if ran:
            print(f"round {number} of {ROUNDS}, {time.monotonic() - started:.0f} s", flush=True)
            after_round()
    for name, seconds in sorted(spent.items(), key=lambda one: -one[1]):
        print(f"{seconds:8.1f} s of processor time  {name}")


def main(
    doc: str | None,
    name: str,
    cells: Sequence[Cell],
    text: Callable[[Counts], str],
    draw: Callable[[Counts, Path], None] | None = None,
) -> None:
    """Read the flags, run the cells, and write the page after every round; ``draw`` its pictures beside."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=float, default=1.0, help="part of every cell's runs, such as 0.02")
    parser.add_argument("--cells", default="", help="only cells whose names hold this text")
    parser.add_argument("--part", default="1/1", help="every n-th cell: 1/2 and 2/2 run side by side")
    parser.add_argument("--folder", type=Path, default=Path("docs/benchmarks"))
    parser.add_argument("--list", action="store_true", help="list the cells and run none")
    arguments = parser.parse_args()
    part, parts = (int(number) for number in arguments.part.split("/"))
    chosen = [cell for cell in cells if arguments.cells in cell.name][part - 1 :: parts]
    chosen = [Cell(cell.name, math.ceil(cell.runs * arguments.runs), cell.run) for cell in chosen]
    if arguments.list:
        for cell in chosen:
            print(f"{cell.runs:6d} runs  {cell.name}")
        return
    arguments.folder.mkdir(parents=True, exist_ok=True)
    suffix = "" if parts == 1 else f"-{part}"
    counts = Counts(arguments.folder / f"{name}{suffix}.jsonl")

    def write() -> None:
        counts = merged(arguments.folder, name)
        (arguments.folder / f"{name}.md").write_text(text(counts))
        if draw is not None:
            draw(counts, arguments.folder)

    with threadpool_limits(limits=1, user_api="blas"):
        advance(chosen, counts, write)
        counts.compact()
        write()


def merged(folder: Path, name: str) -> Counts:
    """Read the counts of all parts."""
    paths = sorted(folder.glob(f"{name}*.jsonl"))
    total = Counts(paths[0])
    for path in paths[1:]:
        other = Counts(path)
        for cell, runs in other.runs.items():
            total.runs[cell] += runs
        for key, runs in other.answered.items():
            total.answered[key] += runs
            total.hits[key] += other.hits[key]
    return total


def table(rows: Mapping[str, Mapping[str, str]], corner: str) -> str:
    """Write a Markdown table: rows by name, each a cell by column; columns in their first order."""
    columns = list(dict.fromkeys(column for row in rows.values() for column in row))
    lines = [f"| {corner} | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
    lines += [
        f"| {name} | " + " | ".join(row.get(column, "") for column in columns) + " |"
        for name, row in rows.items()
    ]
    return "\n".join(lines) + "\n"
