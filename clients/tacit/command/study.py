"""`tacit study`: ask a question, follow it, check the answer, report it."""

# ruff: noqa: PLC0415 (imports wait until a command runs, so that --help is quick)

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.command import connect
from tacit.command.connect import connecting
from tacit.command.output import (
    PARTY_FILE,
    Json,
    PartyFile,
    answer,
    console,
    foreign,
    lines,
    lines_to_errors,
    print_json,
    progress,
    same,
    table,
    time_text,
    write_file,
)
from tacit.errors import HopelessStudyError, InputError, TacitError
from tacit_protocol.terminal import printable

if TYPE_CHECKING:
    from tacit.client.tester import Client
    from tacit.results import Result, StudyVerdict
    from tacit.studies.draft import StudyDraft
    from tacit.studies.preflight import Preflight
    from tacit_protocol.domain import Column
    from tacit_protocol.preparation import PreparedStudy
    from tacit_protocol.procedures.base import Progress


class Terminal:
    """Says and asks, a line at a time."""

    def say(self, *texts: str) -> None:
        """Print lines."""
        lines(*texts)

    def ask(self, question: str, default: str | None = None) -> str:
        """Return the answer, or the default where it is empty.

        Raises:
            InputError: the input ended.
        """
        offered = f" [{printable(default)}]" if default else ""
        try:
            answer = input(f"{printable(question)}{offered}: ").strip()
        except EOFError:
            raise InputError("the answers ended before the study was whole; nothing was sent") from None
        return answer or (default or "")

    def agreed(self, question: str) -> bool:
        """Ask for a yes; anything else is a no."""
        return self.ask(f"{question} (yes or no)", "no").lower() in {"y", "yes"}


def create(
    source: Annotated[
        str | None,
        typer.Argument(
            help="A draft in TOML; a study in JSON, as the tester's page made it; or a procedure, such as "
            "screening, with flags. Else it asks.",
            autocompletion=connect.procedures,
        ),
    ] = None,
    *,
    title: Annotated[str | None, typer.Option(help="The question, in a line.")] = None,
    purpose: Annotated[str | None, typer.Option(help="What the answer is for; stewards read it.")] = None,
    contact: Annotated[str | None, typer.Option(help="Who answers for the study.")] = None,
    approval_number: Annotated[
        str | None, typer.Option(help="An ethics or access committee's number for it.")
    ] = None,
    data_use: Annotated[str | None, typer.Option(help="DUO code of the use, such as DUO:0000042.")] = None,
    column: Annotated[
        list[str] | None,
        typer.Option(help="name:lower:upper, name=level,level, or the name alone, as its owners publish it."),
    ] = None,
    owner: Annotated[
        list[str] | None,
        typer.Option(help="owner/data-set[:units][@key][=column,column].", autocompletion=connect.published),
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
    procedure: Annotated[
        str | None, typer.Option(help="kernel_two_sample by default.", autocompletion=connect.procedures)
    ] = None,
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
    from tacit.studies.draft import draft_from, draft_text, is_name_alone, procedure_or_file, title_of

    named, file = procedure_or_file(source)
    if named is not None:
        if procedure not in {None, named}:
            raise InputError("the procedure is named twice: leave --procedure out")
        procedure, title = named, title or title_of(named)
    flags: dict[str, Any] = {
        "title": title,
        "purpose": purpose,
        "contact": contact,
        "approval_number": approval_number,
        "data_use": data_use,
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
    draft: StudyDraft | None = None
    frozen = _frozen(file) if file is not None and file.suffix == ".json" else b""
    if asks:
        _require_terminal(as_json)
    elif frozen and any([*flags.values(), column, owner, reuse, parameter, save]):
        raise InputError("the page's study is signed as it is: leave all flags but --force out")
    given = column or [], owner or [], parameter or []
    by_name = any(is_name_alone(one) for one in column or [])
    if not (asks or frozen or by_name):
        draft = draft_from(file, flags, *given, reuses=reuse or [])
    with connect.party_client(party) as client:
        if asks:
            draft = _ask(client)
        elif by_name and not frozen:
            declared = _declared(client, owner or [])
            draft = draft_from(file, flags, *given, reuses=reuse or [], declared=declared)
        if save is not None and draft is not None:
            _save(draft, save, party)
        confirm = asks or (bool(frozen) and sys.stdin.isatty() and not as_json)
        try:
            asked = frozen if draft is None else draft
            created = _create(
                client, asked, effect, force=force, dry_run=dry_run, as_json=as_json, confirm=confirm
            )
        except TacitError:
            if asks and save is None and draft is not None:
                lines_to_errors("Your answers, as a draft to be mended:", *draft_text(draft).splitlines())
            raise
    if created is not None and not as_json:
        lines(f"Next: tacit study watch {created[:12]}{same('party', party, PARTY_FILE)}")


def _declared(client: "Client", owners: Sequence[str]) -> dict[str, "Column"]:
    """Return the columns that owners of a study publish, as all of them declare them."""
    from tacit.studies.draft import parse_owner
    from tacit_protocol.messages.catalogue import common_columns

    asked = {(owner["name"], owner["data_set"]) for owner in map(parse_owner, owners)}
    return common_columns(
        column
        for entry in client.catalogues()
        for data_set in entry.data_sets
        if (entry.owner, data_set.name) in asked
        for column in data_set.columns
    )


def _frozen(file: Path) -> bytes:
    """Read a study's exact bytes, as the tester's page made them."""
    try:
        if content := file.read_bytes():
            return content
    except OSError as error:
        raise InputError(f"cannot read {file}: {error.strerror}") from error
    raise InputError(f"{file} is empty: download the study again")


def _require_terminal(as_json: bool) -> None:
    """Raise InputError where nobody could be asked."""
    if as_json or not sys.stdin.isatty():
        raise InputError(
            "there is nobody to ask here, so say what the study is: give a draft (tacit study create "
            "study.toml; tacit study schema describes it), or the flags --title, --column, --owner, "
            "--epsilon and --delta"
        )


def _ask(client: "Client") -> "StudyDraft":
    from tacit.studies.wizard import draft_by_asking, known_at

    return draft_by_asking(Terminal(), known_at(client))


def _create(
    client: "Client",
    asked: "StudyDraft | bytes",
    effect: float | None,
    *,
    force: bool,
    dry_run: bool,
    as_json: bool,
    confirm: bool,
) -> str | None:
    """Show a study and send it; returns its digest, or None where nothing was sent."""
    from tacit.command.study_view import prepared_fields, print_prepared
    from tacit.studies.draft import draft_of

    prepared = client.prepare_study(asked)
    draft = draft_of(prepared.study) if isinstance(asked, bytes) else asked
    seen = _outlook(draft, prepared, effect, quiet=as_json)
    if not as_json:
        print_prepared(prepared)
        _print_outlook(seen)
    question = "It looks hopeless. Send it all the same?" if seen.hopeless else "Send it to the tester?"
    if not dry_run and (not confirm or Terminal().agreed(question)):
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
        lines(f"Created {prepared.digest}")
    return None if dry_run else prepared.digest


def _outlook(
    draft: "StudyDraft", prepared: "PreparedStudy", effect: float | None, quiet: bool
) -> "Preflight":
    from rich.console import Console

    from tacit.studies import preflight

    if quiet or not sys.stderr.isatty():
        return preflight.preflight(draft, prepared, effect=effect)
    with Console(stderr=True).status("estimating the power on made-up data"):
        return preflight.preflight(draft, prepared, effect=effect)


def _outlook_fields(seen: "Preflight") -> dict[str, Any]:
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


def _print_outlook(seen: "Preflight") -> None:

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


def _save(draft: "StudyDraft", file: Path, party: Path) -> None:
    from tacit.studies.draft import save_draft

    save_draft(draft, file)
    later = f"tacit study create {shlex.quote(str(file))}{same('party', party, PARTY_FILE)}"
    lines_to_errors(f"Wrote {file}; send it later with: {later}")


HEX_DIGITS = frozenset("0123456789abcdef")
"""What a digest is made of: anything else names a file."""

METHODS = "holm, bonferroni, benjamini-hochberg or benjamini-yekutieli"


def report(
    study: Annotated[str, typer.Argument(help="A transcript, or a study's digest or its beginning.")],
    *,
    output: Annotated[Path, typer.Option(help="The file to write.")] = Path("report.html"),
    question: Annotated[str | None, typer.Option(help="Heading; by default the study's title.")] = None,
    tester_key: Annotated[str | None, typer.Option(help="The tester's public key, if you know it.")] = None,
    party: PartyFile = PARTY_FILE,
    as_json: Json = False,
) -> None:
    """Write a one-page report of a completed study: HTML to print, with a methods text and citations.

    The transcript is verified first. A digest is fetched from the tester; a file needs no network.
    """
    with progress("recomputing the verdict", quiet=as_json) as told:
        result = _result(study, tester_key, party, told)
    written = result.report(output, question=question)
    answer(
        as_json,
        {"digest": result.source.digest, "output": str(written)},
        f"Wrote {written}: open it in a browser, and print it from there.",
    )


def adjust(
    transcripts: Annotated[list[Path], typer.Argument(help="Transcripts of every question that was asked.")],
    *,
    method: Annotated[str, typer.Option(help=f"{METHODS}.")] = "holm",
    level: Annotated[float, typer.Option(help="Level of all of them together.")] = 0.05,
    tester_key: Annotated[str | None, typer.Option(help="The tester's public key, if you know it.")] = None,
    as_json: Json = False,
) -> None:
    """Adjust the p-values of several studies for having asked all of them. Every transcript is verified."""
    from tacit.client.transcripts import load_result
    from tacit.studies.multiple_testing import adjust as adjusted

    with progress("recomputing the verdicts", quiet=as_json) as told:
        results = [load_result(file, tester_key=tester_key, progress=told) for file in transcripts]
    found = adjusted(results, method, level=level)
    if as_json:
        print_json(found.to_dict())
        return
    lines(*(f"Warning: {warning}" for warning in found.warnings))
    table(
        ("Adjusted", "p", "Null hypothesis", "Question"),
        [
            (
                f"{test.adjusted:.3g}",
                f"{test.pvalue:.3g}" + (" (decision)" if test.decision else ""),
                "rejected" if test.reject else "not rejected",
                test.name,
            )
            for test in found
        ],
    )
    lines(f"{found.method} keeps at level {found.level:g}: {found.controls}.")


def _result(study: str, tester_key: str | None, party: Path, told: "Progress") -> "Result":
    from tacit.client.transcripts import load_result, result_in

    if Path(study).is_file() or not set(study) <= HEX_DIGITS:
        return load_result(study, tester_key=tester_key, progress=told)

    with connect.party_client(party) as client:
        digest = connect.whole_digest(study, client)
        data = client.transcript(digest)
    return result_in(data, digest=digest, tester_key=tester_key, progress=told)


app = typer.Typer(name="study", help="Create, follow and verify studies.", no_args_is_help=True)

Digest = connect.Digest


app.command("create")(connecting(create))


@app.command("schema")
def schema(as_json: Json = False) -> None:  # noqa: ARG001 (JSON already)
    """Print the JSON Schema of drafts, for editors that check TOML."""
    from tacit.studies.draft import schema_text

    print(schema_text(), end="")


@app.command("list")
@connecting
def list_studies(
    state: Annotated[str | None, typer.Option(help="Only studies in this state.")] = None,
    party: PartyFile = PARTY_FILE,
    as_json: Json = False,
) -> None:
    """List the tester's studies."""
    with connect.party_client(party) as client:
        studies = client.studies(state)
    if as_json:
        print_json([study.model_dump() for study in studies])
        return
    table(
        ("Study", "Title", "State", "Sent", "Deadline"),
        [
            (
                study.digest[:12],
                study.title,
                study.state,
                f"{sum(owner.sent for owner in study.owners)} of {len(study.owners)}",
                time_text(study.deadline),
            )
            for study in studies
        ],
    )


@app.command("data-sets")
@connecting
def data_sets(
    owner: Annotated[str | None, typer.Argument(help="Only this owner's.")] = None,
    compare: Annotated[
        bool,
        typer.Option("--compare", help="Say where columns differ in name, type, unit, bounds or levels."),
    ] = False,
    column: Annotated[list[str] | None, typer.Option(help="Compare this column alone; repeatable.")] = None,
    party: PartyFile = PARTY_FILE,
    as_json: Json = False,
) -> None:
    """List what owners publish of their data sets: columns, public bounds, and what their policies allow.

    With --compare: exit code 1 where owners do not mean the same by a column.
    """
    from tacit.command.study_view import print_catalogue
    from tacit_protocol.messages.catalogue import differences

    with connect.party_client(party) as client:
        found = client.catalogues() if owner is None else [client.catalogue(owner)]
    entries = [entry for entry in found if entry is not None and entry.data_sets]
    if compare:
        differing = differences(entries, column or ())
        if as_json:
            print_json(list(differing))
        else:
            lines(*differing or ("Published columns agree in name, type, unit, bounds and levels.",))
        if differing:
            raise typer.Exit(1)
        return
    if as_json:
        print_json([entry.model_dump(mode="json") for entry in entries])
        return
    for entry in entries:
        print_catalogue(entry)
    if not entries:
        lines("Nothing is published: ask the owners.")


@app.command("show")
@connecting
def show(digest: Digest, party: PartyFile = PARTY_FILE, as_json: Json = False) -> None:
    """Show a study: its state, its content, and its verdict once there is one."""
    from tacit.command.study_view import print_study, print_verdict, verdict_fields

    with connect.party_client(party) as client:
        whole = connect.whole_digest(digest, client)
        summary, content = client.study(whole), client.study_content(whole)
        ended = summary.state in {"completed", "incomplete", "cancelled"}
        verdict = client.wait_for_verdict(whole, timeout_s=10.0) if ended else None
    if as_json:
        fields = {"summary": summary.model_dump(), "study": content.model_dump(mode="json")}
        print_json(fields | {"verdict": None if verdict is None else verdict_fields(verdict)})
        return
    print_study(summary, content)
    if verdict is not None:
        print_verdict(verdict)


@app.command("watch")
@connecting
def watch(
    digest: Digest,
    timeout_s: Annotated[float, typer.Option(help="Seconds to wait.", min=0)] = 3600.0,
    party: PartyFile = PARTY_FILE,
    as_json: Json = False,
) -> None:
    """Follow a study until it ends, and show its verdict. Exit code 0 where it was completed."""
    from tacit.command.study_view import print_verdict, verdict_fields

    with connect.party_client(party) as client:
        whole = connect.whole_digest(digest, client)
        verdict = _follow(client, whole, timeout_s, quiet=as_json)
    if as_json:
        print_json(verdict_fields(verdict))
    else:
        print_verdict(verdict)
    if verdict.outcome != "completed":
        raise typer.Exit(1)


@app.command("verify")
def verify(
    file: Annotated[Path, typer.Argument(help="A transcript.")],
    tester_key: Annotated[str | None, typer.Option(help="The tester's public key, if you know it.")] = None,
    as_json: Json = False,
) -> None:
    """Recompute everything in a transcript, the verdict included. Needs no network and no key."""
    from tacit.client.transcripts import verify_transcript_of
    from tacit.command.study_view import print_verified, verified_fields

    data = _read(file)
    with progress("recomputing the verdict", quiet=as_json) as report:
        verified = verify_transcript_of(data, None, tester_key, report)
    if as_json:
        print_json(verified_fields(verified))
        return
    print_verified(verified, tester_key)


@app.command("cancel")
@connecting
def cancel(digest: Digest, party: PartyFile = PARTY_FILE, as_json: Json = False) -> None:
    """Withdraw a study of yours. What owners have spent stays spent."""
    with connect.party_client(party) as client:
        whole = connect.whole_digest(digest, client)
        client.cancel(whole)
    answer(as_json, {"digest": whole, "cancelled": True}, f"Cancelled {whole[:12]}.")


@app.command("transcript")
@connecting
def transcript(
    digest: Digest,
    output: Annotated[Path, typer.Option(help="The file to write.")] = Path("transcript.json"),
    party: PartyFile = PARTY_FILE,
    as_json: Json = False,
) -> None:
    """Fetch a study's transcript, to keep and to verify."""
    with connect.party_client(party) as client:
        whole = connect.whole_digest(digest, client)
        data = client.transcript(whole)
    write_file(output, data)
    answer(
        as_json,
        {"digest": whole, "output": str(output), "size_bytes": len(data)},
        f"Wrote {output} ({len(data)} bytes). Check it with: tacit verify {output}",
    )


@app.command("envelope")
@connecting
def envelope(
    digest: Digest,
    output: Annotated[Path, typer.Option(help="The file to write.")] = Path("study.dsse"),
    party: PartyFile = PARTY_FILE,
    as_json: Json = False,
) -> None:
    """Fetch a study as it was signed, to be carried to an owner whose agent reaches no tester."""
    with connect.party_client(party) as client:
        whole = connect.whole_digest(digest, client)
        data = client.study_envelope(whole)
    write_file(output, data)
    answer(
        as_json,
        {"digest": whole, "output": str(output), "size_bytes": len(data)},
        f"Wrote {output}. Where the data are: tacit agent answer {output}",
    )


@app.command("deliver")
@connecting
def deliver(
    file: Annotated[Path, typer.Argument(help="What `tacit agent answer` wrote.")],
    party: PartyFile = PARTY_FILE,
    as_json: Json = False,
) -> None:
    """Take an owner's answer to the tester, for a study of yours. It is the owner's signature that counts."""
    with connect.party_client(party) as client:
        digest = client.deliver(_read(file))
    answer(as_json, {"digest": digest, "delivered": True}, f"Delivered an answer to {digest[:12]}.")


def _follow(client: "Client", digest: str, timeout_s: float, quiet: bool) -> "StudyVerdict":
    if quiet:
        return client.wait_for_verdict(digest, timeout_s)
    from tacit.command.study_view import progress_text

    with console().status("waiting for the tester") as status:
        return client.wait_for_verdict(
            digest, timeout_s, on_progress=lambda summary: status.update(foreign(progress_text(summary)))
        )


def _read(file: Path) -> bytes:
    from tacit_protocol.messages.study import TRANSCRIPT_BYTES_MAX

    try:
        with file.open("rb") as opened:
            return opened.read(TRANSCRIPT_BYTES_MAX + 1)
    except OSError as error:
        raise InputError(f"cannot read {file}: {error.strerror}") from error


app.command("report")(connecting(report))
app.command("adjust")(adjust)
