"""What a verdict means, in plain sentences: what every procedure says its own with.

A rejection says what was shown. That nothing was shown is no proof of the contrary, and every such sentence
says so; a release of numbers tests nothing, and its sentence says that.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tacit_protocol.messages.study import Study
from tacit_protocol.statistics.multiplicity import PVALUE_MIN

OWNERS_NAMED_MAX = 5

NO_PROOF = "That is no proof of it: an effect too small for this study to see would have looked the same."
"""What follows every sentence that nothing was shown."""


LEVEL_DOUBTS = ("level is not kept", "level may be broken")
"""What warnings of verdicts say where a test's level does not hold."""


@dataclass(frozen=True)
class Meaning:
    """A verdict in words.

    ``sentence`` is what it means; ``care`` how far that goes; ``tests`` whether anything was tested.
    """

    sentence: str
    care: str
    tests: bool = True


def pvalue_words(pvalue: float) -> str:
    """Write a p-value as a paper does: with three digits, and bounded where it is too small to write."""
    return "p < 1e-300" if pvalue <= max(PVALUE_MIN, 1e-300) else f"p = {pvalue:.3g}"


def names_of(study: Study) -> str:
    """Name the owners, the first of many."""
    return joined([owner.name for owner in study.owners], OWNERS_NAMED_MAX)


def joined(names: list[str], most: int) -> str:
    """Join names: "a", "a and b", "a, b and c", "a, b and 7 more"."""
    shown = names if len(names) <= most else [*names[: most - 1], f"{len(names) - most + 1} more"]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def _evidence(study: Study, verdict: Mapping[str, Any]) -> str:
    pvalue = verdict.get("pvalue")
    if pvalue is None:
        return f" (a private decision at level {study.level:g})"
    return f" ({pvalue_words(float(pvalue))}, level {study.level:g})"


def either(study: Study, verdict: Mapping[str, Any], shown: str, not_shown: str) -> Meaning:
    """Say what was shown, or that it was not, with the p-value and how far that goes."""
    evidence = _evidence(study, verdict)
    decided = "" if verdict.get("pvalue") is not None else " Only the decision was released, with its noise."
    if verdict["reject"]:
        return Meaning(f"{shown}{evidence}.", _level(study, verdict) + decided)
    return Meaning(f"{not_shown}{evidence}.", NO_PROOF + decided)


def _level(study: Study, verdict: Mapping[str, Any]) -> str:
    """Say how often a rejection is a mistake, or that this is not known."""
    if any(doubt in str(warning) for warning in verdict.get("warnings") or () for doubt in LEVEL_DOUBTS):
        return "How often such a test says so by mistake is not known here: see the warnings."
    level = f"{study.level:g}"
    return f"A test at level {level} is made to say so by mistake with probability {level} at most."


def plain_meaning(study: Study, verdict: Mapping[str, Any]) -> Meaning:
    """Say what a verdict means in the plainest words."""
    if not isinstance(verdict.get("reject"), bool):
        return Meaning("Numbers were released.", "They test nothing by themselves.", tests=False)
    return either(study, verdict, "The null hypothesis is rejected", "The null hypothesis is not rejected")
