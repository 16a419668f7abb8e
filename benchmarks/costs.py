"""What every procedure costs its owners and the tester: CPU seconds, memory and bytes sent.

    python -m benchmarks.costs                      # some minutes; writes docs/benchmarks/costs.md
    python -m benchmarks.costs --cells identity     # only cells whose names hold this text

Owner and tester run the services' own code, each in a process of its own (benchmarks/cost_study.py). CPU
seconds are user and system time of all threads, and mean the same on a machine that is busy; wall time does
not, and is not shown. Peak memory is what a process held beyond what it had when the study began.
"""

import functools
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from itertools import product

from benchmarks.cost_study import QUESTIONS, Fresh, Point, Question, name_of, noise_in_process
from benchmarks.harness import Answers, Benchmark, Cell, Counts, grid, machine, main, named, table

KINDS = ("gaussian", "laplace")
NOISE_NUMBERS = 10_000
NOISE_SCALES = (2.0**17, 2.0**30, 2.0**45)

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


def cells() -> list[Cell]:
    """Return every point of every question once, and the samplers."""
    fresh, made = Fresh(), dict[str, Cell]()
    for question in QUESTIONS.values():
        for _, point in question.points():
            name = name_of(question.name, point)
            made[name] = Cell(name, 1, functools.partial(_measured, fresh, question.name, point))
    for kind, scale in product(KINDS, NOISE_SCALES):
        name = _noise_name(kind, scale)
        made[name] = Cell(name, 1, functools.partial(_drawn, fresh, kind, scale))
    return list(made.values())


def _measured(fresh: Fresh, question: str, point: Point, _: int) -> Answers:
    return fresh.measure(question, point)


def _drawn(fresh: Fresh, kind: str, scale: float, _: int) -> Answers:
    return fresh.call(noise_in_process, kind, scale, NOISE_NUMBERS)


def _noise_name(kind: str, scale: float) -> str:
    return f"noise | {kind} | 2^{math.log2(scale):.0f}"


def slope(sizes: Sequence[float], values: Sequence[float]) -> float:
    """Return the exponent b of the power law ``values`` = a ``sizes`` ** b, by least squares of logarithms.

    Raises ValueError for fewer than two sizes, or anything that is not positive.
    """
    if len(sizes) < 2 or min(*sizes, *values) <= 0:
        raise ValueError("an exponent needs two or more positive sizes and values")
    logarithms = ([math.log(one) for one in each] for each in (sizes, values))
    return statistics.linear_regression(*logarithms).slope


def parts(counts: Counts) -> dict[str, str]:
    """Write the tables of the page from what was measured."""

    def found(question: str, point: Point, measure: str) -> float | None:
        return counts.rate(name_of(question, point), measure)

    def drawn(kind: str, scale: float) -> str:
        cpu_s = counts.rate(_noise_name(kind, scale), "CPU of 1000 numbers, s")
        return "" if cpu_s is None else f"{1000 * cpu_s:.1f} ms"

    scales = [(f"scale 2^{math.log2(scale):.0f}", scale) for scale in NOISE_SCALES]
    return {
        "machine": machine(),
        "noise": grid("CPU of 1000 numbers", named("{}", KINDS), scales, drawn),
        "exponents": _exponents(found),
        "epsilon": _epsilons(found),
        "studies": "\n".join(_question_table(question, found) for question in QUESTIONS.values()),
    }


def _exponents(found: Found) -> str:
    rows: dict[str, dict[str, str]] = {}
    for question in QUESTIONS.values():
        for varied in (varied for varied in question.varied if varied != "epsilon"):
            series = [(getattr(point, varied), point) for what, point in question.points() if what == varied]
            row = rows.setdefault(f"{question.name}, {_word(question, varied)}", {})
            for measure in FITTED:
                if varied == "owners" and measure.startswith("owner"):
                    continue
                pairs = [(size, found(question.name, point, measure)) for size, point in series]
                row[COLUMNS[measure]] = _fit([(size, value) for size, value in pairs if value is not None])
    return table(rows, "procedure, what grows")


def _fit(pairs: Sequence[tuple[float, float]]) -> str:
    """Write an exponent: over all sizes, and between the two largest."""
    if len(pairs) < 2 or min(value for _, value in pairs) <= 0:
        return ""
    whole = slope(*zip(*pairs, strict=True))
    return f"{whole:.2f} ({slope(*zip(*sorted(pairs)[-2:], strict=True)):.2f})"


def _epsilons(found: Found) -> str:
    rows: dict[str, dict[str, str]] = {}
    for question in QUESTIONS.values():
        for point in (point for what, point in question.points() if what == "epsilon"):
            measures = ("numbers", "digits", "release, bytes", "owner CPU, s")
            own = [found(question.name, point, measure) for measure in measures]
            base = [found(question.name, question.base, measure) for measure in measures[2:]]
            known = [value for value in (*own, *base) if value is not None]
            if len(known) < 6:
                continue
            numbers, digits, sent, cpu_s, base_sent, base_cpu_s = known
            rows.setdefault(question.name, {})[f"ε = {point.epsilon:g}"] = (
                f"{numbers:.0f} × {digits:.2f} digits, bytes {sent / base_sent:.3f}, "
                f"CPU {cpu_s / base_cpu_s:.2f}"
            )
    return table(rows, "procedure")


def _question_table(question: Question, found: Found) -> str:
    lines: dict[Point, str] = {}
    for varied, point in question.points():
        lines.setdefault(point, "base" if point == question.base else _word(question, varied))
    size = [question.size] if question.size else []
    heads = ["varied", "n", "columns", *size, "owners", "ε", *COLUMNS.values()]
    body = [heads, ["---"] * len(heads)]
    for point, word in lines.items():
        if found(question.name, point, "owner CPU, s") is not None:
            sizes = [f"{point.size:,}"] if question.size else []
            sizes = [f"{point.rows:,}", str(point.columns), *sizes, str(point.owners), f"{point.epsilon:g}"]
            body.append([word, *sizes, *(number(found(question.name, point, m)) for m in COLUMNS)])
    return f"### {question.name}\n\n" + "".join(f"| {' | '.join(row)} |\n" for row in body)


def _word(question: Question, varied: str) -> str:
    return question.size if varied == "size" else WORDS[varied]


def number(value: float | None, form: str = ".2g") -> str:
    """Write a number; large ones whole."""
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:{form}}"


BENCHMARKS = (Benchmark("costs", cells, parts),)

if __name__ == "__main__":
    main(__doc__, *BENCHMARKS)
