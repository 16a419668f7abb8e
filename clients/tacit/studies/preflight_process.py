"""``python -m tacit.studies.preflight_process``: plan a draft; its parent ends this process in time.

Reads one JSON object, ``{"draft", "effect"}``, and writes a line of JSON for all that was learned since the
last one, so that nothing is lost where the end comes early.
"""

import json
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from tacit.errors import TacitError
from tacit.planning import ErrorPlan, Plan, PowerPlan, power_of_draft
from tacit.planning.simulation import outcome_words
from tacit.studies.draft import StudyDraft
from tacit.studies.preflight import (
    BATCHES,
    ERROR_HOPELESS,
    ERROR_WANTED,
    HELP_RUNS,
    POWER_WANTED,
    is_hopeless,
)

FACTORS = (2, 4, 8, 16)
"""By how much more budget, and how many more units, a hopeless study is tried again."""


def plan(fields: Mapping[str, Any], effect: float | None) -> Iterator[dict[str, Any]]:
    """Plan a draft in batches; each item is what is known by then."""
    draft = StudyDraft.from_dict(fields)
    found, runs = 0, 0
    for seed, batch in enumerate(BATCHES):
        planned = power_of_draft(draft, effect=effect, runs=batch, seed=seed)
        if isinstance(planned, ErrorPlan):
            hopeless = planned.error >= ERROR_HOPELESS
            yield {"words": planned.words(), "error": planned.error, "hopeless": hopeless}
            if hopeless:
                yield from _what_would_help(draft, effect)
            return
        found, runs = found + planned.found, runs + planned.runs
        yield {
            "power": found / runs,
            "found": found,
            "runs": runs,
            "often": outcome_words(found, runs),
            "effect": planned.effect,
            "hopeless": (hopeless := is_hopeless(found, runs)),
        }
        if hopeless:
            break
    if is_hopeless(found, runs):
        yield from _what_would_help(draft, effect)


def _what_would_help(draft: StudyDraft, effect: float | None) -> Iterator[dict[str, Any]]:
    """Try more budget, and more units, until each is enough."""
    units = [owner.units or 0 for owner in draft.owners]
    waiting = {"epsilon", "units"}
    for factor in FACTORS:
        for what in sorted(waiting):
            changed, more = draft, units
            if what == "epsilon":
                changed = draft.model_copy(update={"epsilon": draft.epsilon * factor})
            else:
                more = [count * factor for count in units]
            try:
                planned = power_of_draft(changed, n_per_owner=more, effect=effect, runs=HELP_RUNS)
                if not _wanted(planned):
                    continue
                # What it was chosen by is flattered by the choice: others say how often it finds the effect.
                planned = power_of_draft(changed, n_per_owner=more, effect=effect, runs=HELP_RUNS, seed=1)
            except TacitError:
                waiting = waiting - {what}
                continue
            waiting = waiting - {what}
            outcome: dict[str, Any] = {"what": what, "value": changed.epsilon if what == "epsilon" else more}
            if isinstance(planned, PowerPlan):
                outcome |= {"often": outcome_words(planned.found, planned.runs)}
            else:
                outcome |= {"error": planned.error}
            yield {"help": outcome}


def _wanted(planned: Plan) -> bool:
    """Whether a plan is worth asking for."""
    if isinstance(planned, PowerPlan):
        return planned.power >= POWER_WANTED
    return planned.error <= ERROR_WANTED


def main() -> None:
    """Answer one question on standard input."""
    asked = json.load(sys.stdin)
    print(json.dumps({}), flush=True)  # noqa: T201 (all is loaded: the parent's clock starts)
    try:
        for item in plan(asked["draft"], asked["effect"]):
            print(json.dumps(item), flush=True)  # noqa: T201 (this is the answer)
    except TacitError as error:
        print(json.dumps({"unplanned": str(error)}), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
