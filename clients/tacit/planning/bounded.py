"""One small plan in a process of its own: `python -m tacit.planning.bounded`, JSON in and JSON out.

The tester starts it, for its pages and its API. It draws synthetic rows alone, opens no file and no
connection, takes few units, columns and points, and stops by itself: first at a soft limit, with what it has
simulated by then, then at the limits that it sets the operating system to keep.
"""

import json
import os
import resource
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from tacit.errors import InputError, StudyRefusedError
from tacit.in_process.samples import domain_of
from tacit.planning.curve import CurveSimulation, Over, PowerCurve, next_place, places_of, reach_of
from tacit.planning.questions import PlanRequest, Question, population_of, question_of_draft, units_of_draft
from tacit.planning.search import TARGET
from tacit.planning.simulation import Setting, sizes_of
from tacit.studies.draft import draft_of, parse_columns
from tacit_protocol.decimals import read_number, read_whole
from tacit_protocol.messages.study import Study, read_study
from tacit_protocol.procedures.counts.base import CountsShift
from tacit_protocol.procedures.discovery import PROCEDURES
from tacit_protocol.procedures.populations import SoughtEffect

INPUT_BYTES_MAX = 2**20
"""A study has as many bytes as one request's body at most; a form's fields are counted by the page."""

COLUMNS_MAX, CELLS_MAX, UNITS_MAX, SLOW_UNITS_MAX, RUNS = 8, 400, 20_000, 2000, 100
"""What a plan at a tester may ask for; the command on one's own machine has no such limits."""

LABELS = {"n": "units of each owner", "alpha": "level", "effect": "what to find"}
"""What fields are called on the page, where that is another name."""

FLAGS = {"alpha": "level"}
"""What options of the command are called, where fields have another name."""

SOFT_S, SOFT_CPU_S = 30.0, 12.0
"""After so long, or so much processor time, no more studies are simulated."""

CPU_S, MEMORY_BYTES, NICENESS = 40, 2**31, 5
"""What the operating system allows the process."""

ADAPTED_FROM, ADAPTED = 4, 3
"""The round after which places are added where the target is reached, and in how many rounds: one in each."""

ROUND_RUNS = 2
"""Studies of every point in one round; time is looked at after each study."""

EPSILONS, UNITS = (0.2, 0.5, 1.0, 2.0, 5.0), (200, 500, 1000, 2000, 5000, 10_000)


FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)
"""Budgets that a study is planned at, as parts of its own."""


class OutOfTimeError(Exception):
    """The soft limit has passed."""


def time_is_up() -> Callable[[], bool]:
    """Start the soft limits; returns what says whether one of them has passed."""
    wall, cpu = time.monotonic() + SOFT_S, time.process_time() + SOFT_CPU_S
    return lambda: time.monotonic() > wall or time.process_time() > cpu


def plan(fields: Mapping[str, str], is_late: Callable[[], bool]) -> dict[str, Any]:
    """Return a curve, as plain values, with its words and the command that says the same.

    Args:
        fields: of the page's form, all of them text: see :func:`_read`.
        is_late: says that no more studies are to be simulated; asked after each.

    Raises:
        InputError: a field cannot be used; the message says which and what to change.
        StudyRefusedError: the procedure does not take what they say.
    """
    if "study" in fields:
        return plan_of_study(read_study(fields["study"].encode()), fields.get("effect", ""), is_late)
    asked, setting, over, target = _read(fields)
    question = asked.question(setting.n[0], setting.epsilon, setting.delta, setting.alpha)
    setting = replace(setting, n=sizes_of(setting.n[0], question))
    if isinstance(question.population, CountsShift) and question.population.grid.size > CELLS_MAX:
        raise InputError(f"cells: at most {CELLS_MAX} here, of all columns together")
    slow = question.procedure.pairwise
    values = EPSILONS if over == "epsilon" else tuple(n for n in UNITS if not slow or n <= SLOW_UNITS_MAX)
    found = _simulated(question, setting, over, values, aim=_aim(target, question.measure), is_late=is_late)
    return _answer(found, target) | {"command": _command(fields)}


def plan_of_study(study: Study, effect: str, is_late: Callable[[], bool]) -> dict[str, Any]:
    """Return the curve over epsilon of a study that is written whole, as :func:`plan` does.

    Owners who have more units than a plan at a tester may draw are drawn with as many as it may.

    Args:
        study: the study; every owner's number of units must be declared.
        effect: what to find, as a number; the medium effect where it is empty.
        is_late: as of :func:`plan`.

    Raises:
        InputError: a number of units is missing, or the study cannot be planned.
    """
    draft = draft_of(study)
    size = _number({"effect": effect}, "effect", 0.0) if effect.strip() else None
    population_of(draft.procedure)
    question = question_of_draft(draft, SoughtEffect(size=size))
    most = most_units(question.procedure.pairwise)
    declared = units_of_draft(draft)
    sizes = sizes_of([min(units, most) for units in declared], question)
    setting = Setting(sizes, draft.epsilon, draft.delta, draft.level)
    values = tuple(round(draft.epsilon * factor, 6) for factor in FACTORS)
    found = _simulated(
        question, setting, "epsilon", values, aim=_aim(None, question.measure), is_late=is_late
    )
    return _answer(found, None) | {"fewer": most if max(declared) > most else None}


def _simulated(
    question: Question,
    setting: Setting,
    over: Over,
    values: Sequence[float],
    *,
    aim: float | None,
    is_late: Callable[[], bool],
) -> PowerCurve:
    """Return the curve of as many studies as there is time for, to where it reaches ``aim``."""

    def watch(_: float, __: str) -> None:
        if is_late():
            raise OutOfTimeError

    found = CurveSimulation(question, over, setting)
    most = most_units(question.procedure.pairwise)
    least, farthest = reach_of(question, over)
    reach = (least, farthest if over == "epsilon" else float(most))
    try:
        for seed in range(RUNS // ROUND_RUNS):
            places = sorted(found.done) or places_of(question, over, values)
            found.extend(places, [seed], runs=ROUND_RUNS, progress=watch)
            further = None
            if aim is not None and ADAPTED_FROM <= seed < ADAPTED_FROM + ADAPTED:
                further = next_place(found.done, aim, reach)
            if further is not None:  # as often as all others, with their seeds
                found.extend([further], range(seed + 1), runs=ROUND_RUNS, progress=watch)
    except OutOfTimeError:
        if not found.done:
            raise InputError(
                "this takes too long here: ask for fewer units, or use tacit plan on your own machine"
            ) from None
    return found.curve()


def _aim(target: float | None, measure: str) -> float | None:
    return target if target is not None or measure == "error" else TARGET


def _answer(found: PowerCurve, target: float | None) -> dict[str, Any]:
    aim = _aim(target, found.measure)
    return {
        "curve": asdict(found),
        "words": found.words(aim),
        "target": aim,
        "complete": found.runs == RUNS,
    }


def most_units(slow: bool) -> int:
    """Return the most units that a plan here may have."""
    return SLOW_UNITS_MAX if slow else UNITS_MAX


def _read(fields: Mapping[str, str]) -> tuple[PlanRequest, Setting, Over, float | None]:
    procedure, over = fields.get("procedure", ""), fields.get("over", "epsilon")
    if procedure not in PROCEDURES or PROCEDURES[procedure].population is None:
        raise InputError("choose a procedure")
    if over not in ("epsilon", "n"):
        raise InputError("the curve is over epsilon or over n")
    units = _number(fields, "n", 1000, whole=True)
    most = most_units(PROCEDURES[procedure].pairwise)
    if units > most:
        raise InputError(f"units: at most {most} here; tacit plan on your own machine takes more")
    columns = parse_columns([text.strip() for text in fields.get("columns", "").splitlines() if text.strip()])
    if len(columns) > COLUMNS_MAX:
        raise InputError(f"columns: at most {COLUMNS_MAX} here")
    effect = fields.get("effect", "").strip()
    size = _number(fields, "effect", 0.0) if effect else None
    asked = PlanRequest(
        procedure=procedure,
        bounds=domain_of(columns, list(columns)) if columns else None,
        cells=None if columns else _cells(fields.get("cells", "")),
        effect=SoughtEffect(size=size, shape="quadratic" if fields.get("shape") == "quadratic" else "linear"),
    )
    setting = Setting(
        n=(int(units),),
        epsilon=_number(fields, "epsilon", 1.0),
        delta=_number(fields, "delta", 1e-5),
        alpha=_number(fields, "alpha", 0.05),
    )
    target = _number(fields, "target", 0.0) if fields.get("target", "").strip() else None
    return asked, setting, "n" if over == "n" else "epsilon", target


def _number(fields: Mapping[str, str], name: str, default: float, *, whole: bool = False) -> float:
    text = fields.get(name, "").strip()
    try:
        found = read_number(text) if text else default
    except ValueError as error:
        raise InputError(f"{LABELS.get(name, name)}: {error}") from None
    if (found < 0 and name != "effect") or (whole and found != int(found)):
        kind = "whole number" if whole else "number"
        raise InputError(f"{LABELS.get(name, name)}: write a {kind}, not negative")
    return found


def _cells(text: str) -> int | list[int] | None:
    if not text.strip():
        return None
    try:
        shape = [read_whole(part) for part in text.split(",")]
    except ValueError:
        raise InputError("cells: write a whole number, or 4,5 for a table") from None
    if any(size < 2 for size in shape) or int(np.prod(shape, dtype=float)) > CELLS_MAX:
        raise InputError(f"cells: two or more of each column, and at most {CELLS_MAX} here")
    return shape[0] if len(shape) == 1 else shape


def _command(fields: Mapping[str, str]) -> str:
    """Return the command that plans the same without this page's limits."""
    import shlex  # noqa: PLC0415 (nothing else here needs it)

    parts = ["tacit", "plan", "curve", fields["procedure"], "--over", fields.get("over") or "epsilon"]
    for text in fields.get("columns", "").splitlines():
        parts += ["--column", text.strip()] if text.strip() else []
    for part in fields.get("cells", "").split(",") if not fields.get("columns", "").strip() else []:
        parts += ["--cells", part.strip()] if part.strip() else []
    for name in ("n", "epsilon", "delta", "alpha", "effect", "target"):
        if fields.get(name, "").strip():
            parts += [f"--{FLAGS.get(name, name)}", fields[name].strip()]
    return shlex.join([*parts, *(["--quadratic"] if fields.get("shape") == "quadratic" else [])])


def keep_limits() -> None:
    """Set the operating system's limits for this process: time, memory, no files, and last in line."""
    os.nice(NICENESS)
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def main() -> int:
    """Read the fields, write the answer: {"plan": ...} or {"refused": "what to change"}."""
    keep_limits()
    sent = sys.stdin.buffer.read(INPUT_BYTES_MAX + 1)
    try:
        if len(sent) > INPUT_BYTES_MAX:
            raise InputError("the form is too long")
        answer: dict[str, Any] = {"plan": plan(json.loads(sent), time_is_up())}
    except (InputError, StudyRefusedError) as error:
        answer = {"refused": str(error)}
    except MemoryError:
        answer = {"refused": "this takes too much memory here: ask for fewer units or cells"}
    sys.stdout.write(json.dumps(answer, allow_nan=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())
