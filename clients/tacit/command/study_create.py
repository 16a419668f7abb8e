"""`tacit study create`: from a draft, from flags, or by asking; what it costs and could find comes first."""
# ruff: noqa: PLC0415 (imports wait until a command runs, so that --help is quick)

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.command.output import PARTY_FILE, Json, PartyFile

if TYPE_CHECKING:
    from tacit.client import Client
    from tacit.draft import PreparedStudy, StudyDraft
    from tacit.outlook import Outlook


def create(
    source: Annotated[
        str | None,
        typer.Argument(help="A draft in TOML; or a procedure, such as screening, with flags. Else it asks."),
    ] = None,
    *,
    title: Annotated[str | None, typer.Option(help="The question, in a line.")] = None,
    column: Annotated[list[str] | None, typer.Option(help="name:lower:upper or name=level,level.")] = None,
    owner: Annotated[
        list[str] | None, typer.Option(help="owner/data-set[:units][@key][=column,column].")
    ] = None,
    reuse: Annotated[
        list[str] | None, typer.Option(help="owner=digest: read its release for that study again.")
    ] = None,
    curator: Annotated[str | None, typer.Option(help="Who holds the owners' data, if somebody does.")] = None,
    epsilon: Annotated[float | None, typer.Option(help="What every owner spends.")] = None,
    delta: Annotated[float | None, typer.Option(help="What every owner spends.")] = None,
    level: Annotated[float | None, typer.Option(help="Level of the test; 0.05 by default.")] = None,
    unit_column: Annotated[str | None, typer.Option(help="Column that names the privacy unit.")] = None,
    unit_rows: Annotated[
        str | None,
        typer.Option(help="What counts of a unit's rows: average (default) or one, by lot."),
    ] = None,
    alignment: Annotated[
        str | None, typer.Option(help="Digest that two owners found by `tacit data align`.")
    ] = None,
    procedure: Annotated[str | None, typer.Option(help="kernel_two_sample by default.")] = None,
    parameter: Annotated[list[str] | None, typer.Option(help="name=value, for the procedure.")] = None,
    open_for_hours: Annotated[float | None, typer.Option(help="Time for owners; 168 by default.")] = None,
    effect: Annotated[
        float | None, typer.Option(help="What it should find, for the power; a medium effect by default.")
    ] = None,
    save: Annotated[Path | None, typer.Option(help="Also write the draft to this new TOML file.")] = None,
    force: Annotated[bool, typer.Option(help="Send it even if it looks hopeless.")] = False,
    dry_run: Annotated[bool, typer.Option(help="Show what it costs and could find; send nothing.")] = False,
    party: PartyFile = PARTY_FILE,
    as_json: Json = False,
) -> None:
    """Create a study. What it costs, what leaves and what it could find is shown before anything is sent."""
    from tacit.command import connect
    from tacit.command.draft_flags import draft_from, procedure_or_file, title_of
    from tacit.command.output import lines_to_errors
    from tacit.draft_saving import draft_text
    from tacit.errors import InputError, TacitError

    named, file = procedure_or_file(source)
    if named is not None:
        if procedure not in {None, named}:
            raise InputError("the procedure is named twice: leave --procedure out")
        procedure, title = named, title or title_of(named)
    flags = {
        "title": title,
        "curator": curator,
        "epsilon": epsilon,
        "delta": delta,
        "level": level,
        "unit_column": unit_column,
        "unit_rows": unit_rows,
        "alignment": alignment,
        "procedure": procedure,
        "open_for_hours": open_for_hours,
    }
    asks = source is None and not any([*flags.values(), column, owner, reuse, parameter])
    if asks:
        _require_terminal(as_json)
        draft = None
    else:
        draft = draft_from(file, flags, column or [], owner or [], parameter or [], reuses=reuse or [])
    with connect.party_client(party) as client:
        if draft is None:
            draft = _ask(client)
        if save is not None:
            _save(draft, save)
        try:
            _create(client, draft, effect, force=force, dry_run=dry_run, as_json=as_json, confirm=asks)
        except TacitError:
            if asks and save is None:
                lines_to_errors("Your answers, as a draft to be mended:", *draft_text(draft).splitlines())
            raise


def _require_terminal(as_json: bool) -> None:
    """Raise InputError where nobody could be asked."""
    from tacit.errors import InputError

    if as_json or not sys.stdin.isatty():
        raise InputError(
            "there is nobody to ask here, so say what the study is: give a draft (tacit study create "
            "study.toml; tacit study schema describes it), or the flags --title, --column, --owner, "
            "--epsilon and --delta"
        )


def _ask(client: "Client") -> "StudyDraft":
    from tacit.command.terminal import Terminal
    from tacit.draft_questions import draft_by_asking
    from tacit.known_data_sets import known_at

    return draft_by_asking(Terminal(), known_at(client))


def _create(
    client: "Client",
    draft: "StudyDraft",
    effect: float | None,
    *,
    force: bool,
    dry_run: bool,
    as_json: bool,
    confirm: bool,
) -> None:
    from tacit.command.output import lines, print_json
    from tacit.command.study_view import prepared_fields, print_prepared
    from tacit.errors import HopelessStudyError

    prepared = client.prepare_study(draft)
    seen = _outlook(draft, prepared, effect, quiet=as_json)
    if not as_json:
        print_prepared(prepared)
        _print_outlook(seen)
    if not dry_run and (not confirm or _confirmed(seen)):
        if seen.hopeless and not force and not confirm:
            raise HopelessStudyError(seen.hopeless)
        client.create_study(prepared, force=True)
    else:
        dry_run = True
    if as_json:
        print_json(prepared_fields(prepared) | _outlook_fields(seen) | {"created": not dry_run})
    elif dry_run:
        lines("Nothing was sent." if confirm else "Nothing was sent (--dry-run).")
    else:
        lines(f"Created {prepared.digest}", f"Next: tacit study watch {prepared.digest[:12]}")


def _outlook(draft: "StudyDraft", prepared: "PreparedStudy", effect: float | None, quiet: bool) -> "Outlook":
    from rich.console import Console

    from tacit import outlook

    if quiet or not sys.stderr.isatty():
        return outlook.outlook(draft, prepared, effect=effect)
    with Console(stderr=True).status("estimating the power on made-up data"):
        return outlook.outlook(draft, prepared, effect=effect)


def _outlook_fields(seen: "Outlook") -> dict[str, Any]:
    return {
        "plain_words": dict(seen.stewards),
        "plan": None
        if seen.power is None and seen.error is None
        else {
            "power": seen.power,
            "found": seen.found,
            "error": seen.error,
            "runs": seen.runs,
            "effect": seen.effect,
            "words": seen.words,
        },
        "unplanned": seen.unplanned or None,
        "hopeless": list(seen.hopeless),
    }


def _print_outlook(seen: "Outlook") -> None:
    from tacit.command.output import lines

    readers: dict[str, list[str]] = {}
    for name, words in seen.stewards.items():
        readers.setdefault(words, []).append(name)
    for words, names in readers.items():
        lines(f"What the steward of {', '.join(names)} will read:", f"  {words}")
    if seen.words:
        lines(f"Power: {seen.words}" if seen.power is not None else f"Error: {seen.words}")
    if seen.unplanned:
        lines(f"Power: {seen.unplanned}")
    for reason in seen.hopeless:
        lines(f"Warning: {reason}")


def _confirmed(seen: "Outlook") -> bool:
    from tacit.command.terminal import Terminal

    if seen.hopeless:
        return Terminal().agreed("It looks hopeless. Send it all the same?")
    return Terminal().agreed("Send it to the tester?")


def _save(draft: "StudyDraft", file: Path) -> None:
    from tacit.command.output import lines_to_errors
    from tacit.draft_saving import save_draft

    save_draft(draft, file)
    lines_to_errors(f"Wrote {file}; send it later with: tacit study create {file}")
