"""What a verdict means, in plain sentences: one for each procedure and way it can end.

A rejection says what was shown. That nothing was shown is no proof of the contrary, and every such sentence
says so; a release of numbers tests nothing, and its sentence says that.
"""

from collections.abc import Callable, Mapping
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


def meaning_of(study: Study, verdict: Mapping[str, Any]) -> Meaning:
    """Say what a completed study's verdict means; ``verdict`` is its procedure's, as plain values."""
    if "receiver" in verdict:
        return Meaning(
            f"The result stays with {verdict['receiver']}; nothing was tested in public.",
            "What the receiver found is private for the sender's data alone.",
            tests=False,
        )
    return MEANINGS.get(study.procedure, _any)(study, verdict)


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


def _either(study: Study, verdict: Mapping[str, Any], shown: str, not_shown: str) -> Meaning:
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


def _two_sample(study: Study, verdict: Mapping[str, Any]) -> Meaning:
    names = names_of(study)
    return _either(
        study,
        verdict,
        f"The owners' records differ: {names} are not one population; chance and privacy noise do not "
        "explain what was seen",
        f"No difference between the owners' records was shown: {names} may be one population",
    )


def _joint_independence(study: Study, verdict: Mapping[str, Any]) -> Meaning:
    variables = [" with ".join(group) for group in verdict.get("variables") or ()]
    of = f" {joined(variables, 6)}" if variables else " the columns"
    return _either(
        study,
        verdict,
        f"The columns depend on each other:{of} are not jointly independent",
        f"No dependence of the columns was shown:{of} may be independent",
    )


def _distance(study: Study, verdict: Mapping[str, Any]) -> Meaning:
    names = names_of(study)
    between = f"columns at {names}" if len(study.owners) > 1 else f"columns of {names}"
    return _either(
        study,
        verdict,
        f"The {between} depend on each other, linearly or not",
        f"No dependence between the {between} was shown: they may be independent",
    )


def _curated_distance(study: Study, verdict: Mapping[str, Any]) -> Meaning:
    first, second = (" with ".join(group) for group in verdict.get("variables") or (("x",), ("y",)))
    return _either(
        study,
        verdict,
        f"{first} and {second} depend on each other, linearly or not",
        f"No dependence between {first} and {second} was shown: they may be independent",
    )


def _screening(study: Study, verdict: Mapping[str, Any]) -> Meaning:
    pairs = verdict["pairs"]
    found = [pair["column"] for pair in pairs if pair["reject"]]
    of = f"{len(pairs)} pair{'' if len(pairs) == 1 else 's'} of a column and an outcome"
    if not found:
        sentence = f"No dependence was found among {of} (false discovery rate {study.level:g})."
        return Meaning(sentence, NO_PROOF)
    named = joined(list(dict.fromkeys(found)), 6)
    assumed = ", if the tests are independent or agree" if study.parameters.get("control") == "bh" else ""
    return Meaning(
        f"The outcome depends on {named}: {len(found)} of {of} were found (false discovery rate "
        f"{study.level:g}).",
        f"Of the pairs found, the expected share of false ones is at most {study.level:g}{assumed}; of "
        "the others nothing was shown, which is no proof of their independence.",
    )


def _homogeneity(study: Study, verdict: Mapping[str, Any]) -> Meaning:
    names = names_of(study)
    return _either(
        study,
        verdict,
        f"The owners' categories are distributed differently: {names} do not share one distribution",
        f"No difference in the owners' categories was shown: {names} may share one distribution",
    )


def _independence(study: Study, verdict: Mapping[str, Any]) -> Meaning:
    columns = joined(list(verdict.get("columns") or [c.name for c in study.domain.columns]), 6)
    return _either(
        study,
        verdict,
        f"The categories {columns} depend on each other, among the units of all owners",
        f"No dependence of the categories {columns} was shown: they may be independent",
    )


def _identity(study: Study, verdict: Mapping[str, Any]) -> Meaning:
    names = names_of(study)
    return _either(
        study,
        verdict,
        f"The categories of {names} do not follow the stated distribution",
        f"No departure from the stated distribution was shown: the categories of {names} may follow it",
    )


def _noisy_counts(study: Study, verdict: Mapping[str, Any]) -> Meaning:
    return Meaning(
        f"Noisy tables of {names_of(study)} were released.",
        f"They test nothing by themselves. The noise of one count is within {verdict['half_width']:.4g} with "
        f"probability {1 - study.level:g}.",
        tests=False,
    )


def _database(study: Study, verdict: Mapping[str, Any]) -> Meaning:  # noqa: ARG001
    senders = [study.curator.name] if study.curator is not None else [owner.name for owner in study.owners]
    databases = "A private database" if len(senders) == 1 else "Private databases"
    return Meaning(
        f"{databases} of {joined(senders, OWNERS_NAMED_MAX)} {'was' if len(senders) == 1 else 'were'} "
        "released.",
        "A database tests nothing by itself; questions asked of it cost no privacy, and its answers have "
        "errors that it states.",
        tests=False,
    )


def _any(study: Study, verdict: Mapping[str, Any]) -> Meaning:
    if not isinstance(verdict.get("reject"), bool):
        return Meaning("Numbers were released.", "They test nothing by themselves.", tests=False)
    return _either(study, verdict, "The null hypothesis is rejected", "The null hypothesis is not rejected")


MEANINGS: dict[str, Callable[[Study, Mapping[str, Any]], Meaning]] = {
    "kernel_two_sample": _two_sample,
    "curated_two_sample": _two_sample,
    "joint_independence": _joint_independence,
    "distance_correlation": _distance,
    "curated_distance_correlation": _curated_distance,
    "screening": _screening,
    "noisy_counts": _noisy_counts,
    "homogeneity": _homogeneity,
    "independence_table": _independence,
    "identity": _identity,
    "embedding_release": _database,
}
"""By procedure; a procedure that is new here gets the plainest words."""
