"""What to expect of a study before it is sent: what its stewards will read, and what it could find.

Power is simulated on made-up data (:mod:`tacit.planning`), in a process of its own that is ended when its
time is up: a plan may take minutes where units are many, and a command may not.
"""

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from scipy.special import betaincinv

from tacit.setup.processes import service_environment
from tacit.studies.draft import StudyDraft
from tacit_protocol.preparation import PreparedStudy, stewards_words

SECONDS = 6.0
"""How long a plan may take, with all that would help a hopeless study."""

START_SECONDS = 30.0
"""How long the planning process may take to load, which counts for itself: a busy machine takes long."""

BATCHES = (5, 5, *[10] * 9)
"""Simulated studies at a time: 100 where there is time for all."""

HELP_RUNS = 20
"""Simulated studies of each larger budget, and of each larger number of units, that is tried."""

POWER_HOPELESS = 0.2
"""A study that finds what it looks for less often than this is not sent unless it is forced."""

CONFIDENCE = 1 - 0.05 / len(BATCHES)
"""How sure a plan must be that power is so low: it is asked after every batch, and may err once in twenty."""

POWER_WANTED = 0.8
"""Power that is worth asking for."""

ERROR_HOPELESS, ERROR_WANTED = 0.5, 0.1
"""Where a release tests nothing: error at which it says nothing, and one that is worth asking for."""


@dataclass(frozen=True)
class Preflight:
    """What to expect of a study.

    Attributes:
        stewards: by the name of whoever answers, what its steward will read.
        power: share of simulated studies that found the effect, in [0, 1]; None where there is none.
        found: how many simulated studies those are.
        runs: of how many.
        effect: what was looked for, in words.
        error: of a release that tests nothing, its planned error.
        words: the plan in a sentence.
        unplanned: why there is no plan, or "".
        hopeless: why the study should not be sent, with what would help; empty where it may.
    """

    stewards: Mapping[str, str]
    power: float | None = None
    found: int = 0
    runs: int = 0
    effect: str = ""
    error: float | None = None
    words: str = ""
    unplanned: str = ""
    hopeless: tuple[str, ...] = ()


@dataclass
class PlanningReport:
    """What the planning process said, in the order in which it did."""

    power: float | None = None
    found: int = 0
    runs: int = 0
    often: str = ""
    effect: str = ""
    error: float | None = None
    words: str = ""
    unplanned: str = ""
    hopeless: bool = False
    helps: list[dict[str, Any]] = field(default_factory=list)

    def take(self, item: Mapping[str, Any]) -> None:
        """Take what was learned since."""
        for name, value in item.items():
            if name == "help":
                self.helps.append(dict(value))
            elif hasattr(self, name):
                setattr(self, name, value)


Planner = Callable[[StudyDraft, float | None, float], PlanningReport]


def preflight(
    draft: StudyDraft,
    prepared: PreparedStudy,
    *,
    effect: float | None = None,
    planner: Planner | None = None,
) -> Preflight:
    """Look ahead: nothing is sent, and no data is read.

    Args:
        draft: the draft of the study.
        prepared: the study made of it.
        effect: what it should find, as in :func:`tacit.planning.power_of_draft`; a medium effect by default.
        planner: plans in the place of :func:`plan_in_process`.
    """
    if not prepared.units_declared:
        planned = PlanningReport(unplanned="declare every owner's units, and power is estimated as well")
    else:
        planned = (planner or plan_in_process)(draft, effect, SECONDS)
    hopeless = tuple(prepared.hopeless)
    if planned.hopeless:
        found = f"it found {planned.effect} {planned.often} alone, on made-up data."
        said = planned.words if planned.error is not None else found
        hopeless += (f"Hopeless: {said} {_help_words(planned)}",)
    elif hopeless and planned.helps:
        hopeless += (_help_words(planned),)
    words = planned.words
    if not words and planned.power is not None:
        words = f"It found {planned.effect} {planned.often}, on made-up data."
    return Preflight(
        stewards=stewards_words(prepared),
        power=planned.power,
        found=planned.found,
        runs=planned.runs,
        effect=planned.effect,
        error=planned.error,
        words=words,
        unplanned=planned.unplanned,
        hopeless=hopeless,
    )


def plan_in_process(draft: StudyDraft, effect: float | None, seconds: float) -> PlanningReport:
    """Plan a draft in a process of its own, which is ended after so many seconds."""
    command = [sys.executable, "-m", "tacit.studies.preflight_process"]
    process = subprocess.Popen(  # noqa: S603 (our own module, by an argument list)
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=service_environment(),
        text=True,
    )
    planned, ended = PlanningReport(), False
    timer = _timer(START_SECONDS, process)
    try:
        assert process.stdin is not None and process.stdout is not None  # noqa: S101, PT018 (pipes, as asked)
        with process.stdin as questions:
            json.dump(
                {"draft": draft.model_dump(mode="json", exclude_none=True), "effect": effect}, questions
            )
        for index, line in enumerate(process.stdout):
            if index == 0:
                timer.cancel()
                timer = _timer(seconds, process)
            planned.take(json.loads(line))
        ended = process.wait() == 0
    except (OSError, ValueError):
        ended = False
    finally:
        timer.cancel()
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
    if not ended and planned.power is None and planned.error is None and not planned.unplanned:
        planned.unplanned = (
            f"power could not be simulated within {seconds:g} s; `tacit plan` takes the time that it needs"
        )
    return planned


def _timer(seconds: float, process: "subprocess.Popen[str]") -> threading.Timer:
    timer = threading.Timer(seconds, process.kill)
    timer.daemon = True
    timer.start()
    return timer


def is_hopeless(found: float, runs: int) -> bool:
    """Whether so few of the simulated studies found the effect that power is surely too low."""
    if found >= runs:
        return False
    return bool(betaincinv(found + 1, runs - found, CONFIDENCE) < POWER_HOPELESS)


def _help_words(planned: PlanningReport) -> str:
    choices = [_help_in_words(found) for found in planned.helps]
    if choices:
        better = "It found it" if planned.error is None else "It would be off by less"
        return f"{better} {', or '.join(choices)}."
    return "Ask for more units or a larger epsilon, or look at fewer columns; `tacit plan` says how much."


def _help_in_words(found: Mapping[str, Any]) -> str:
    if found["what"] == "epsilon":
        with_what = f"with epsilon {found['value']:g}"
    else:
        counts = sorted(set(found["value"]))
        listed = ", ".join(str(count) for count in found["value"])
        with_what = f"with {counts[0]} units each" if len(counts) == 1 else f"with {listed} units"
    how = found["often"] if "often" in found else f"(about {found['error']:.0%})"
    return f"{with_what} {how}"
