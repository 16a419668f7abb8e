"""What a verdict means, a methods text for a paper, and what to cite: each in its procedure's words."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from tacit_protocol.messages.study import Study
from tacit_protocol.privacy.events import ApproximateEvent, GaussianEvent, LaplaceEvent
from tacit_protocol.procedures.base import Fields, Procedure, StudyError
from tacit_protocol.procedures.registry import PROCEDURES, procedure_named
from tacit_protocol.verdicts.null import Null
from tacit_protocol.verdicts.words import Meaning, joined, plain_meaning, pvalue_words
from tacit_protocol.verdicts.works import Work, software_work

NAMED_MAX = 6


def meaning_of(study: Study, verdict: Fields) -> Meaning:
    """Say what a completed study's verdict means; of an unknown procedure, in the plainest words."""
    known = PROCEDURES.get(study.procedure)
    return plain_meaning(study, verdict) if known is None else known.meaning(study, verdict)


def works_of(study: Study, software: str) -> tuple[Work, ...]:
    """Return what to cite: the works that a study's method comes from, and the software with its version."""
    known = PROCEDURES.get(study.procedure)
    return (*(() if known is None else known.works(study)), software_work(software))


def methods_text(study: Study, verdict: Mapping[str, Any], software: str, null: Null | None) -> str:
    """Return the methods text: mechanism, sensitivity, guarantee, null distribution, level, software."""
    return " ".join(
        part
        for part in (
            _who(study, verdict),
            _mechanism(study),
            _guarantee(study),
            _reuse(study),
            _decision(study, verdict, null),
            f"All was computed with {software}.",
        )
        if part
    )


def _who(study: Study, verdict: Mapping[str, Any]) -> str:
    units = verdict.get("units") or {}
    counted = [f"{o.name} (n = {units[o.name]:,})" if o.name in units else o.name for o in study.owners]
    owners = joined(counted, NAMED_MAX)
    known = PROCEDURES.get(study.procedure)
    what = Procedure.released if known is None else known.released
    bounds = "Columns were brought to public bounds first, fixed without the data."
    if study.curator is not None:
        return f"A trusted curator held the data of {owners} and released {what}, with noise. {bounds}"
    who = "The data owner" if len(study.owners) == 1 else "Each data owner"
    return f"{who}, {owners}, computed next to its data, and released with noise, {what}. {bounds}"


def _mechanism(study: Study) -> str:
    try:
        events = procedure_named(study.procedure).cost(study).events
    except StudyError:
        return ""
    parts = []
    for event, times in Counter(events).items():
        often = "" if times == 1 else f", {times} times"
        match event:
            case GaussianEvent():
                parts.append(
                    f"discrete Gaussian noise with standard deviation {event.noise_multiplier:.4g} times the "
                    f"L2 sensitivity of all numbers together{often}"
                )
            case LaplaceEvent():
                parts.append(
                    f"discrete Laplace noise with scale {event.noise_multiplier:.4g} times the L1 "
                    f"sensitivity{often}"
                )
            case ApproximateEvent() if event.epsilon == 0:
                parts.append(f"a part of δ, {event.delta:.3g}, for the noise being discrete{often}")
            case ApproximateEvent():
                delta = "" if event.delta == 0 else f", {event.delta:.3g}"
                parts.append(f"a randomised choice that is ({event.epsilon:g}{delta})-private{often}")
    return f"The mechanism is {' and '.join(parts)}."


def _guarantee(study: Study) -> str:
    budget = study.budget
    unit = "one row" if study.unit_column is None else f"all rows of one value of {study.unit_column}"
    kind = f"ε = {budget.epsilon:g}" + (f", δ = {budget.delta:g}" if budget.delta else ", δ = 0 (pure)")
    return (
        f"Each owner's release satisfies differential privacy with {kind}; data sets are neighbours where "
        f"one privacy unit, {unit}, is replaced by any other, and the number of units is public."
        + (" Of each unit one row, drawn by lot, was used." if study.unit_rows == "one" else "")
    )


def _reuse(study: Study) -> str:
    if not study.reusing:
        return ""
    names = joined([owner.name for owner in study.reusing], NAMED_MAX)
    return f"Of {names} an earlier release was read again, at no further cost."


def _decision(study: Study, verdict: Mapping[str, Any], null: Null | None) -> str:
    method = f"Method: {verdict.get('method', study.procedure)}."
    if verdict.get("pvalue") is None:
        return method
    law = "" if null is None else f" The null distribution is {null.words}."
    statistic = f"statistic {float(verdict['statistic']):.4g}, {pvalue_words(float(verdict['pvalue']))}"
    return f"{method}{law} Result: {statistic}, level {study.level:g}."
