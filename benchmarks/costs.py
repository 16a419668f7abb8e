"""What every procedure costs its owners and the tester: CPU seconds, memory and bytes sent.

    python -m benchmarks.costs                      # some minutes; writes docs/benchmarks/costs.md
    python -m benchmarks.costs --cells identity     # only cells whose names hold this text

Owner and tester run the services' own code, each in a process of its own (benchmarks/cost_cell.py). CPU
seconds are user and system time of all threads, and mean the same on a machine that is busy; wall time does
not, and is not shown. Peak memory is what a process held beyond what it had when the study began.
"""

import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from benchmarks.cost_cell import REPEATS, Fresh
from benchmarks.cost_studies import QUESTIONS, Point, Question, name_of
from benchmarks.resumable import Answers, Cell, Counts, main, table

NOISE_NUMBERS = 10_000
NOISE_SCALES = (2.0**4, 2.0**17, 2.0**30, 2.0**45)

COLUMNS: Mapping[str, str] = {
    "owner CPU, s": "owner, CPU s",
    "owner noise, s": "noise, CPU s",
    "owner peak, MiB": "owner, MiB",
    "numbers": "numbers",
    "release, bytes": "bytes sent",
    "tester CPU, s": "tester, CPU s",
    "tester peak, MiB": "tester, MiB",
    "verdict, bytes": "verdict, bytes",
}
"""What a table shows, and its heading."""

WORDS: Mapping[str, str] = {"rows": "n", "columns": "columns", "owners": "owners", "epsilon": "ε"}

FITTED = ("owner CPU, s", "owner peak, MiB", "release, bytes", "tester CPU, s")

Found = Callable[[str, Point, str], float | None]
"""The mean of a measure of a question's point."""


def cells(fresh: Fresh) -> list[Cell]:
    """Return every point of every question once, and the samplers."""
    made: dict[str, Cell] = {}
    for question in QUESTIONS.values():
        for _, point in question.points():
            name = name_of(question.name, point)
            made[name] = Cell(name, 1, _measured(fresh, question.name, point))
    for kind in ("gaussian", "laplace"):
        for scale in NOISE_SCALES:
            made[_noise_name(kind, scale)] = Cell(_noise_name(kind, scale), 1, _drawn(fresh, kind, scale))
    return list(made.values())


def _measured(fresh: Fresh, question: str, point: Point) -> Callable[[int], Answers]:
    return lambda _: fresh.measure(question, point)


def _drawn(fresh: Fresh, kind: str, scale: float) -> Callable[[int], Answers]:
    return lambda _: fresh.noise(kind, scale, NOISE_NUMBERS)


def _noise_name(kind: str, scale: float) -> str:
    return f"noise | {kind} | 2^{math.log2(scale):.0f}"


def slope(sizes: Sequence[float], values: Sequence[float]) -> float:
    """Return the exponent b of the power law ``values`` = a ``sizes`` ** b, by least squares of logarithms.

    Raises ValueError for fewer than two sizes, or anything that is not positive.
    """
    if len(sizes) < 2 or min(*sizes, *values) <= 0:
        raise ValueError("an exponent needs two or more positive sizes and values")
    x, y = [math.log(size) for size in sizes], [math.log(value) for value in values]
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    return sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True)) / sum(
        (a - mean_x) ** 2 for a in x
    )


def text(counts: Counts) -> str:
    """Write the page from what was measured."""

    def found(question: str, point: Point, measure: str) -> float | None:
        return counts.rate(name_of(question, point), measure)

    parts = [_HEAD.format(machine=machine()), _noise_table(counts), _exponents(found), _epsilons(found)]
    parts += ["## Every study\n\n" + _EVERY]
    parts += [_question_table(question, found) for question in QUESTIONS.values()]
    return "\n".join(part for part in parts if part)


def machine() -> str:
    """Say which processor this is, and how many of them."""
    info = Path("/proc/cpuinfo")
    names = [line for line in info.read_text().splitlines() if line.startswith("model name")]
    name = names[0].partition(":")[2].strip() if names else "unknown processor"
    return f"{os.cpu_count()} × {name}"


def _noise_table(counts: Counts) -> str:
    rows: dict[str, dict[str, str]] = {}
    for kind in ("gaussian", "laplace"):
        for scale in NOISE_SCALES:
            cpu_s = counts.rate(_noise_name(kind, scale), "CPU of 1000 numbers, s")
            if cpu_s is not None:
                rows.setdefault(kind, {})[f"scale 2^{math.log2(scale):.0f}"] = f"{1000 * cpu_s:.1f} ms"
    return _NOISE + table(rows, "CPU of 1000 numbers") if rows else ""


def _exponents(found: Found) -> str:
    rows: dict[str, dict[str, str]] = {}
    for question in QUESTIONS.values():
        for varied in question.varied:
            if varied == "epsilon":
                continue
            series = [(getattr(point, varied), point) for what, point in question.points() if what == varied]
            row = {}
            for measure in FITTED:
                if varied == "owners" and measure.startswith("owner"):
                    continue
                pairs = [(size, found(question.name, point, measure)) for size, point in series]
                row[COLUMNS[measure]] = _fit([(size, value) for size, value in pairs if value is not None])
            rows[f"{question.name}, {_word(question, varied)}"] = row
    return _EXPONENTS + table(rows, "procedure, what grows")


def _fit(pairs: Sequence[tuple[float, float]]) -> str:
    """Write an exponent: over all sizes, and between the two largest."""
    if len(pairs) < 2 or min(value for _, value in pairs) <= 0:
        return ""
    whole = slope(*zip(*pairs, strict=True))
    last = slope(*zip(*sorted(pairs)[-2:], strict=True))
    return f"{whole:.2f} ({last:.2f})"


def _epsilons(found: Found) -> str:
    rows: dict[str, dict[str, str]] = {}
    for question in QUESTIONS.values():
        points = [point for what, point in question.points() if what == "epsilon"]
        for point in points:
            values = {
                measure: found(question.name, point, measure) for measure in ("digits", *FITTED, "numbers")
            }
            base = {
                measure: found(question.name, question.base, measure)
                for measure in ("release, bytes", *FITTED)
            }
            if None in values.values() or None in base.values():
                continue
            sent, cpu_s = values["release, bytes"] or 0.0, values["owner CPU, s"] or 0.0
            rows.setdefault(question.name, {})[f"ε = {point.epsilon:g}"] = (
                f"{values['numbers']:.0f} × {values['digits']:.2f} digits, "
                f"bytes {sent / (base['release, bytes'] or 1.0):.3f}, "
                f"CPU {cpu_s / (base['owner CPU, s'] or 1.0):.2f}"
            )
    return _EPSILONS + table(rows, "procedure")


def _question_table(question: Question, found: Found) -> str:
    lines: dict[Point, str] = {}
    for varied, point in question.points():
        if point not in lines:
            lines[point] = "base" if point == question.base else _word(question, varied)
    shown = [
        [lines[point], *_sizes(question, point), *(_number(found(question.name, point, m)) for m in COLUMNS)]
        for point in lines
        if found(question.name, point, "owner CPU, s") is not None
    ]
    if not shown:
        return ""
    heads = ["varied", "n", "columns", *([question.size] if question.size else []), "owners", "ε"]
    heads += list(COLUMNS.values())
    body = [heads, ["---"] * len(heads), *shown]
    return f"### {question.name}\n\n" + "".join(f"| {' | '.join(row)} |\n" for row in body)


def _sizes(question: Question, point: Point) -> list[str]:
    size = [f"{point.size:,}"] if question.size else []
    return [f"{point.rows:,}", str(point.columns), *size, str(point.owners), f"{point.epsilon:g}"]


def _word(question: Question, varied: str) -> str:
    return question.size if varied == "size" else WORDS[varied]


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:.2g}"


_HEAD = """# What a study costs

    python -m benchmarks.costs

CPU seconds (user and system, all threads), peak memory and bytes, of one sender and of the tester, for
every procedure, on {machine}. Each part runs in a process of its own through the services' code: a
sender opens a Parquet file and counts, checks the study, summarises, draws OpenDP's noise, checks and
signs; the tester opens and checks every release, concludes and writes the verdict. Memory is what a
process held at its peak beyond what it had when the study began; a service itself has some 150 MiB of
modules. Bytes are those of the signed envelope, which is the body of the one request that is sent.
Other work ran on the machine, which lengthens CPU seconds by a tenth or two, and milliseconds by more:
of {repeats} studies the one with the least counts (of a million rows or a thousand owners there is one).
Wall time is not shown.

How the parts add up where several workers share them is in [scaling](../mathematics/scaling.md); a
study of a thousand owners, run in one piece, in [a thousand owners](thousand-owners.md).
""".replace("{repeats}", str(REPEATS))

_NOISE = """## Noise

OpenDP's exact samplers alone. The scale, in grid steps, hardly matters; the number of numbers does.

"""

_EXPONENTS = """## How costs grow

The exponent b of cost = a · size^b, by least squares over all sizes measured, and in brackets between
the two largest: a fixed cost hides in the first. An exponent of memory is empty where a process needed
none that it had not had before. Costs of milliseconds, the tester's most of all, are as noisy as small.

Read together: sums over rows grow as n, in memory that stays flat beyond 10⁵ rows; what is sent does not
grow with n, but for the buckets of sketches; J features with their products are J² numbers; permutation
tests grow with n and B, `joint_independence` steeply with the number of variables; and the tester's work
grows as the number of owners.

"""

_EPSILONS = """## Epsilon

For most procedures ε sets how large noise is, and nothing else: as many numbers are computed, drawn and
sent, and sums have more digits than noise adds. The sketches of `distance_correlation` and `screening`
are the exception: with less noise they have more buckets, so that what is sent, and the noise drawn, grow
with ε. Numbers sent with their mean digits; bytes and the owner's CPU as a ratio to ε = 1.

"""

_EVERY = """`noise` is part of the owner's CPU. Studies of many owners have fewer rows each: what follows
from the number of owners are the tester's columns.
"""


if __name__ == "__main__":
    main(__doc__, "costs", cells(Fresh()), text)
