"""How studies, their costs and their verdicts are shown."""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from pydantic import ValidationError

from tacit.command.output import delta_text, epsilon_text, keys, lines, table, time_text
from tacit.errors import InputError
from tacit.results import Result, StudyVerdict, decides_only, study_verdict
from tacit_protocol.domain import Column, NumericColumn
from tacit_protocol.messages.answers import StudySummary
from tacit_protocol.messages.catalogue import CatalogueMessage
from tacit_protocol.messages.study import PUBLIC_RULES, PublicRule, Study
from tacit_protocol.preparation import PreparedStudy
from tacit_protocol.privacy.accounting import families_of
from tacit_protocol.terminal import printable
from tacit_protocol.verdicts.presentation import gaps_words

if TYPE_CHECKING:
    from tacit_protocol.verification import VerifiedTranscript

PARAMETER_LENGTH_MAX = 200
"""Characters of one parameter that are shown: a list of locations may have thousands."""


def prepared_fields(prepared: PreparedStudy) -> dict[str, Any]:
    """Return what a study would cost, as plain values."""
    return {
        "digest": prepared.digest,
        "cost": prepared.guarantee.model_dump(mode="json"),
        "release_size": prepared.release_size,
        "decision_only": decides_only(prepared.study),
        "warnings": list(prepared.warnings),
        "units_declared": prepared.units_declared,
        "asked": [sender.name for sender in prepared.study.senders],
        "reuses": _reuses(prepared.study),
    }


def print_prepared(prepared: PreparedStudy) -> None:
    """Print what a study would cost and release."""
    # Statistics load when needed.
    from tacit_protocol.procedures.discovery import procedure_named  # noqa: PLC0415

    study, budget = prepared.study, prepared.guarantee.budget
    spent = f"epsilon {epsilon_text(budget.epsilon_micro)}, delta {delta_text(budget.delta_pico)}"
    lines(
        f"{study.title}",
        *purpose_lines(study),
        f"  {_who_spends(study, spent)}{_who_sends(prepared)}",
        f"  {_who_pays(prepared)}",
        *_reused_lines(study),
        f"  {len(study.owners)} owners, {len(study.domain.columns)} columns, level {study.level:g}, "
        f"open until {time_text(study.deadline)}",
        *(f"  {line}" for line in procedure_named(study.procedure).describe_request(study)),
    )
    for warning in prepared.warnings:
        lines(f"Warning: {warning}")
    if not prepared.units_declared:
        lines("Note: declare every owner's units, and whether the study is hopeless is looked at as well.")


def purpose_lines(study: Study) -> list[str]:
    """Return what a study says of its purpose, a line each, safe to print."""
    return [f"  {label.lower()}: {printable(words)}" for label, words in study.stated_purpose]


def _who_pays(prepared: PreparedStudy) -> str:
    """Say which share of an account pays: what must be left there for the study to be answered."""
    families = families_of(prepared.guarantee.events)
    if families == {"gaussian"}:
        return "each account pays from its Gaussian share"
    if "gaussian" in families:
        return "each account pays from both its Gaussian and its pure share"
    return "each account pays from its pure share, or, once that is spent, from its Gaussian share"


def print_study(summary: StudySummary, study: Study) -> None:
    """Print a study's state and content."""
    lines(
        f"{printable(study.title)}",
        f"  study {summary.digest}",
        f"  {summary.state}; {progress_text(summary)}",
        *purpose_lines(study),
        f"  procedure {study.procedure}, level {study.level:g}",
        *(f"    {name} = {_short(value)}" for name, value in study.parameters.items()),
        f"  {_who_spends(study, f'epsilon {study.budget.epsilon:g}, delta {study.budget.delta:g}')}",
        *_reused_lines(study),
        f"  created {time_text(study.created_at)}, open until {time_text(study.deadline)}",
    )
    if study.curator is not None:
        lines(f"  the curator {study.curator.name} holds the data and answers for the owners")
    if study.unit_column is not None:
        counts = "" if study.averages_rows else "; of several rows, one counts"
        lines(f"  privacy unit: {printable(study.unit_column)}{counts}")
    if study.alignment is not None:
        lines(f"  aligned by {study.alignment}")
    table(("Column", "Kind", "Public bounds or levels"), [_column_row(c) for c in study.domain.columns])
    lines(*(printable(encoder.words()) for encoder in study.encoders))
    _print_parties(summary, study)
    for later in summary.reused_by:
        lines(f"Read again, at no cost: {printable(later.owner)}'s release, by study {later.study[:12]}")
    for warning in summary.warnings:
        lines(f"Warning: {printable(warning)}")


def asked_words(asked: Mapping[str, Any]) -> list[str]:
    """Return what a steward reads of a study before deciding: what leaves, its purpose, warnings.

    ``asked`` is a study as an agent or a curator shows it.
    """
    words = asked.get("plain_words") or ()
    listed = [words] if isinstance(words, str) else [str(line) for line in words]
    said = [f"{label}: {text}" for label, text in asked.get("stated_purpose") or ()]
    return [*listed, *said, *(f"Warning: {warning}" for warning in asked.get("warnings") or ())]


HELD_NUMBERS_MAX = 20
"""Numbers of one vector of a held release that are shown; --json has all."""


def held_words(asked: Mapping[str, Any]) -> list[str]:
    """Return what a release that is held would tell, in lines, or from when on it may be looked at."""
    held = asked.get("held") or {}
    release = held.get("release")
    if release is None:
        return [f"Its release may be looked at from {time_text(held['shown_from'])} on."] if held else []
    said = [f"Its release, private as it stands, of {release['units']} units:"]
    for name, vector in release.get("vectors", {}).items():
        sums = [found * 2.0 ** vector["exponent"] for found in vector["values"][:HELD_NUMBERS_MAX]]
        more = len(vector["values"]) - len(sums)
        rest = f" and {more} more" if more else ""
        said.append(
            f"  {printable(name)}: {', '.join(f'{found:.6g}' for found in sums)}{rest}; "
            f"{vector['noise']} noise of scale {vector['scale']:.4g}"
        )
    said += [
        f"  {printable(name)}: {vector['size']} numbers under masks that cancel in the sum of all owners; "
        "nothing can be read from them before every owner has sent"
        for name, vector in release.get("masked", {}).items()
    ]
    said += [f"  {printable(name)}: a randomised answer of each unit" for name in release.get("answers", {})]
    said += [f"  {name}: {release[name]}" for name in ("decision", "choice", "cuts") if name in release]
    return [*said, "What is spent stays spent, sent or declined."]


def print_asked(asked: Mapping[str, Any]) -> None:
    """Print all that an owner's agent knows of a study, as its page shows it."""
    shown = "(cannot be read)" if asked["study"] is None else asked["title"]
    reason = f": {asked['reason']}" if asked.get("reason") else ""
    said = [f"  {one['decision']} by {one['person']}" for one in asked.get("decisions") or ()]
    lines(f"{shown}", f"  study {asked['digest']}", f"  {asked['state']}{reason}", *said)
    if asked["state"] == "waiting-for-approval" and (asked.get("approvals_needed") or 1) > 1:
        lines("  Two people have to approve; nothing is spent before the second has.")
    lines(*held_words(asked))
    lines(*asked_words(asked))
    if asked["study"] is None:
        return
    try:
        study = Study.model_validate_json(json.dumps(asked["study"]))
    except ValidationError:
        raise InputError("the agent shows a study that this version cannot read: see --json") from None
    lines(
        f"Procedure {study.procedure}, of data set {asked['data_set'] or '(none)'}",
        *(f"  {name} = {_short(value)}" for name, value in study.parameters.items()),
        f"Cost: epsilon {epsilon_text(asked['epsilon_micro'] or 0)}, "
        f"delta {delta_text(asked['delta_pico'] or 0)}",
        f"Privacy unit: {'a row' if study.unit_column is None else f'all rows of one {study.unit_column}'}"
        + (
            "" if study.averages_rows or study.unit_column is None else ", of which one, drawn by lot, counts"
        ),
        f"Level {study.level:g}, open until {time_text(study.deadline)}; the answer leaves "
        f"{study.respond_after_s} s after the decision",
    )
    table(("Column", "Kind", "Public bounds or levels"), [_column_row(c) for c in study.domain.columns])
    parties = [("analyst", study.analyst), ("tester", study.tester)]
    parties += [(f"owner of {owner.data_set}", owner) for owner in study.owners]
    if study.curator is not None:
        parties.append(("curator", study.curator))
    keys((f"{party.name}, {role}", party.key) for role, party in parties)
    lines("Compare the keys by another way before you trust a name.")


def print_catalogue(entry: CatalogueMessage) -> None:
    """Print what an owner publishes of its data sets."""
    for data_set in entry.data_sets:
        size = "" if data_set.units is None else f", about {data_set.units} privacy units"
        unit = "a row" if data_set.unit_column is None else f"all rows of one {data_set.unit_column}"
        lines(f"{entry.owner}/{data_set.name}{size}; a privacy unit is {unit}")
        lines(*([f"  {data_set.about}"] if data_set.about else []))
        table(
            ("Column", "Kind", "Public bounds or levels", "In"),
            [(*_column_row(column), data_set.measures.get(column.name, "")) for column in data_set.columns],
        )
        for vector in data_set.vectors:
            lines(f"  vectors {vector.name}: {vector.length} numbers, norm {vector.norm:g} at most")
        if data_set.other_columns:
            lines(f"  with bounds of the study's own: {', '.join(data_set.other_columns)}")
    lines(*(f"{entry.owner} runs the encoder {digest}" for digest in entry.encoders))
    budget = entry.per_study_max
    most = (
        "" if budget is None else f", epsilon {budget.epsilon:g} and delta {budget.delta:g} at most a study"
    )
    lines(f"{entry.owner} runs {', '.join(entry.procedures)}{most}; approval is {entry.approval}")
    if entry.required_fields:
        lines(f"  a study must state {', '.join(entry.required_fields)}")
    if entry.data_uses is not None:
        lines(f"  data_use must be {' or '.join(entry.data_uses)}")


def progress_text(summary: StudySummary) -> str:
    """Say in a line how far a study is."""
    if summary.state == "computing" and summary.progress is not None:
        return f"computing: {summary.progress.fraction:.0%} {printable(summary.progress.step or '')}"
    if not summary.owners:
        return "asks nobody: every release is read again"
    sent = sum(owner.sent for owner in summary.owners)
    waiting = [owner.name for owner in summary.owners if not owner.sent and not owner.declined]
    words = f"{sent} of {len(summary.owners)} releases are in"
    words += f"; waiting for {printable(', '.join(waiting))}" if waiting and summary.running else ""
    for owner in summary.owners:
        if owner.rule is not None:
            words += f"; {printable(owner.name)} declined, as {rule_words(owner.rule)}"
    return words


def rule_words(rule: str) -> str:
    """Say a decline's public rule in words; one that this version does not know by its name."""
    return PUBLIC_RULES.get(cast(PublicRule, rule), printable(rule))


def verdict_fields(verdict: StudyVerdict) -> dict[str, Any]:
    """Return a verdict as plain values."""
    return {
        "digest": verdict.digest,
        "outcome": verdict.outcome,
        "missing": list(verdict.missing),
        "result": None if verdict.result is None else result_fields(verdict.result),
    }


def print_verdict(verdict: StudyVerdict) -> None:
    """Print how a study ended."""
    if verdict.result is not None:
        print_result(verdict.result)
        return
    lines(f"The study ended {verdict.outcome}, without a verdict.")
    if verdict.missing:
        lines(f"No release came from: {', '.join(verdict.missing)}")


def verified_fields(verified: "VerifiedTranscript") -> dict[str, Any]:
    """Return a verified transcript as plain values."""
    return {
        "verified": True,
        "tester_key": verified.study.tester.key,
        "analyst_key": verified.study.analyst.key,
        "owners": {owner.name: owner.key for owner in verified.study.owners},
        "senders": {sender.name: sender.key for sender in verified.study.senders},
        "reuses": _reuses(verified.study),
        "analyst": verified.study.analyst.name,
        "declined": list(verified.declined),
        "rules": dict(verified.rules),
        "notes": list(verified.notes),
        **verdict_fields(study_verdict(verified.study, verified.verdict, verified.releases)),
    }


def print_verified(verified: "VerifiedTranscript", tester_key: str | None) -> None:
    """Print what was verified, and whose keys it rests on."""
    study, verdict = verified.study, verified.verdict
    role = "owner" if study.curator is None else "curator"
    sent = f"{len(verdict.releases)} owners"
    if study.curator is not None:
        sent = f"the curator {printable(study.curator.name)}"
    lines(
        f"Verified: {printable(study.title)}",
        f"  study {verified.study_digest}, {verdict.outcome}",
        f"  the signatures of the analyst, {sent} and the tester hold",
        *_reused_lines(study),
        *(
            ()
            if verdict.result is None
            else ("  the verdict was recomputed from the releases and is the same",)
        ),
    )
    keys(
        [
            (f"{study.tester.name} (tester)", study.tester.key),
            (f"{study.analyst.name} (analyst)", study.analyst.key),
            *((f"{sender.name} ({role})", sender.key) for sender in (*study.senders, *study.reusing)),
        ]
    )
    print_verdict(study_verdict(study, verdict))
    if verdict.outcome == "cancelled":
        lines("The analyst withdrew it: its signed cancellation holds.")
    if verified.declined:
        lines(f"Declined, by their own signatures: {', '.join(verified.declined)}")
    lines(*(f"  {printable(name)}: {PUBLIC_RULES[rule]}" for name, rule in verified.rules.items()))
    lines(*(f"Note: {note}" for note in verified.notes))
    if tester_key is None:
        lines("Check that these are the keys you know; --tester-key checks the tester's.")


def _reuses(study: Study) -> dict[str, str]:
    """Return the earlier study whose release is read again, by owner."""
    return {owner.name: owner.reuses for owner in study.reusing if owner.reuses is not None}


def _who_spends(study: Study, spent: str) -> str:
    if not study.senders:
        return "no owner is asked, and none spends anything"
    if not study.reusing:
        return f"every owner spends {spent}"
    return f"each of {', '.join(sender.name for sender in study.senders)} spends {spent}"


def _who_sends(prepared: PreparedStudy) -> str:
    study, what = prepared.study, _what_leaves(prepared)
    if study.curator is not None:
        return f"; the curator {study.curator.name} sends {what}, for all of them"
    return f", and sends {what}" if study.senders else ""


def _reused_lines(study: Study) -> list[str]:
    return [
        f"  {name} spends nothing: its release for study {source[:12]} is read again"
        for name, source in _reuses(study).items()
    ]


def _what_leaves(prepared: PreparedStudy) -> str:
    if decides_only(prepared.study):
        return "one private decision, and no number"
    candidates = _candidates(prepared.study)
    if candidates:
        return f"the name of one of {candidates} public candidates"
    return f"{prepared.release_size} noisy numbers"


def _candidates(study: Study) -> int:
    # Statistics load when needed.
    from tacit_protocol.procedures.base import candidates_of  # noqa: PLC0415
    from tacit_protocol.procedures.discovery import procedure_named  # noqa: PLC0415

    return candidates_of(procedure_named(study.procedure), study)


def _print_parties(summary: StudySummary, study: Study) -> None:
    """Print the owners and, beside whoever answers, how far its answer is."""
    states = {sender.name: sender for sender in summary.owners}
    reuses = _reuses(study)

    def word(name: str) -> str:
        if name in reuses:
            return f"of study {reuses[name][:12]}"
        state = states.get(name)
        if state is None:
            return "unknown"
        if state.declined and state.rule is not None:
            return f"declined: {rule_words(state.rule)}"
        return "sent" if state.sent else "declined" if state.declined else "awaited"

    if study.curator is None:
        rows = [(owner.name, owner.data_set, owner.units or "", word(owner.name)) for owner in study.owners]
        table(("Owner", "Data set", "Units", "Release"), rows)
        return
    table(
        ("Owner", "Data set", "Units"),
        [(owner.name, owner.data_set, owner.units or "") for owner in study.owners],
    )
    lines(f"The curator's release: {word(study.curator.name)}")


def _short(value: Any) -> str:
    """Write a parameter; a long one (a list of test locations) is cut."""
    text = json.dumps(value)
    return text if len(text) <= PARAMETER_LENGTH_MAX else text[:PARAMETER_LENGTH_MAX] + " ..."


def _column_row(column: Column) -> tuple[str, str, str]:
    if isinstance(column, NumericColumn):
        return column.name, "numeric", f"{column.lower:g} to {column.upper:g}"
    return column.name, "categorical", ", ".join(column.levels)


def result_fields(result: Result) -> dict[str, Any]:
    """Return a result's fields as plain values; those that it does not have are left out."""
    return {
        "reject": result.reject,
        "alpha": result.alpha,
        "method": result.method,
        "n": dict(result.n),
        "epsilon": result.epsilon,
        "delta": result.delta,
        "warnings": list(result.warnings),
        **result.fields(),
    }


def print_result(result: Result) -> None:
    """Print a result for people: warnings before all else."""
    lines(*(f"Warning: {warning}" for warning in result.warnings))
    for shown in result.shown():
        if isinstance(shown, str):
            lines(shown)
        else:
            table(shown.headings, shown.rows)
    lines(*(words for words in (gaps_words(result.source.study),) if words))
