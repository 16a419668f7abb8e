"""`tacit study`: ask a question, follow it, and check the answer."""
# ruff: noqa: PLC0415 (imports wait until a command runs, so that --help is quick)

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tacit.command.connect import connecting
from tacit.command.output import PARTY_FILE, Json, PartyFile
from tacit.command.study_create import create

if TYPE_CHECKING:
    from tacit.client import Client
    from tacit.results import StudyVerdict

app = typer.Typer(name="study", help="Create, follow and verify studies.", no_args_is_help=True)

Digest = Annotated[str, typer.Argument(help="The study's digest, or its beginning.")]
Cancellation = Annotated[
    Path | None,
    typer.Option(help="The analyst's signed cancellation, where an earlier version left it out."),
]


app.command("create")(connecting(create))


@app.command("schema")
def schema(as_json: Json = False) -> None:  # noqa: ARG001 (JSON already)
    """Print the JSON Schema of drafts, for editors that check TOML."""
    from tacit.draft_schema import schema_text

    print(schema_text(), end="")


@app.command("list")
@connecting
def list_studies(
    state: Annotated[str | None, typer.Option(help="Only studies in this state.")] = None,
    party: PartyFile = PARTY_FILE,
    as_json: Json = False,
) -> None:
    """List the tester's studies."""
    from tacit.command.connect import party_client
    from tacit.command.output import print_json, table, time_text

    with party_client(party) as client:
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


@app.command("show")
@connecting
def show(digest: Digest, party: PartyFile = PARTY_FILE, as_json: Json = False) -> None:
    """Show a study: its state, its content, and its verdict once there is one."""
    from tacit.command.connect import party_client
    from tacit.command.output import print_json
    from tacit.command.study_view import print_study, print_verdict, verdict_fields

    with party_client(party) as client:
        whole = _whole(client, digest)
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
    from tacit.command.connect import party_client
    from tacit.command.output import print_json
    from tacit.command.study_view import print_verdict, verdict_fields

    with party_client(party) as client:
        whole = _whole(client, digest)
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
    cancellation: Cancellation = None,
    as_json: Json = False,
) -> None:
    """Recompute everything in a transcript, the verdict included. Needs no network and no key."""
    from tacit.command.output import print_json, progress
    from tacit.command.study_view import print_verified, verified_fields
    from tacit.verify import verify_transcript_of

    data = _read(file)
    withdrawn = None if cancellation is None else _read(cancellation).decode("utf-8", "replace").strip()
    with progress("recomputing the verdict", quiet=as_json) as report:
        verified = verify_transcript_of(data, None, tester_key, report, withdrawn)
    if as_json:
        print_json(verified_fields(verified))
        return
    print_verified(verified, tester_key)


@app.command("cancel")
@connecting
def cancel(digest: Digest, party: PartyFile = PARTY_FILE, as_json: Json = False) -> None:
    """Withdraw a study of yours. What owners have spent stays spent."""
    from tacit.command.connect import party_client
    from tacit.command.output import lines, print_json

    with party_client(party) as client:
        whole = _whole(client, digest)
        client.cancel(whole)
    if as_json:
        print_json({"digest": whole, "cancelled": True})
        return
    lines(f"Cancelled {whole[:12]}.")


@app.command("transcript")
@connecting
def transcript(
    digest: Digest,
    output: Annotated[Path, typer.Option(help="The file to write.")] = Path("transcript.json"),
    party: PartyFile = PARTY_FILE,
    as_json: Json = False,
) -> None:
    """Fetch a study's transcript, to keep and to verify."""
    from tacit.command.connect import party_client
    from tacit.command.output import lines, print_json, write_file

    with party_client(party) as client:
        whole = _whole(client, digest)
        data = client.transcript(whole)
    write_file(output, data)
    if as_json:
        print_json({"digest": whole, "output": str(output), "size_bytes": len(data)})
        return
    lines(f"Wrote {output} ({len(data)} bytes). Check it with: tacit verify {output}")


def _whole(client: "Client", beginning: str) -> str:
    from tacit.command.connect import DIGEST_LENGTH, whole_digest

    known = [] if len(beginning) == DIGEST_LENGTH else [study.digest for study in client.studies()]
    return whole_digest(beginning, known)


def _follow(client: "Client", digest: str, timeout_s: float, quiet: bool) -> "StudyVerdict":
    if quiet:
        return client.wait_for_verdict(digest, timeout_s)
    from tacit.command.output import console, foreign
    from tacit.command.study_view import progress_text

    with console().status("waiting for the tester") as status:
        return client.wait_for_verdict(
            digest, timeout_s, on_progress=lambda summary: status.update(foreign(progress_text(summary)))
        )


def _read(file: Path) -> bytes:
    from tacit.errors import InputError
    from tacit_protocol.messages.transcript import TRANSCRIPT_BYTES_MAX

    try:
        with file.open("rb") as opened:
            return opened.read(TRANSCRIPT_BYTES_MAX + 1)
    except OSError as error:
        raise InputError(f"cannot read {file}: {error.strerror}") from error
