"""`tacit study report` and `tacit study adjust`: a verdict for a paper, and several of them together."""
# ruff: noqa: PLC0415 (imports wait until a command runs, so that --help is quick)

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tacit.command.output import PARTY_FILE, Json, PartyFile

if TYPE_CHECKING:
    from tacit.results import Result
    from tacit_protocol.procedures.base import Progress

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
    from tacit.command.output import lines, print_json, progress

    with progress("recomputing the verdict", quiet=as_json) as told:
        result = _result(study, tester_key, party, told)
    written = result.report(output, question=question)
    if as_json:
        print_json({"digest": result.source.digest, "output": str(written)})
        return
    lines(f"Wrote {written}: open it in a browser, and print it from there.")


def adjust(
    transcripts: Annotated[list[Path], typer.Argument(help="Transcripts of every question that was asked.")],
    *,
    method: Annotated[str, typer.Option(help=f"{METHODS}.")] = "holm",
    level: Annotated[float, typer.Option(help="Level of all of them together.")] = 0.05,
    tester_key: Annotated[str | None, typer.Option(help="The tester's public key, if you know it.")] = None,
    as_json: Json = False,
) -> None:
    """Adjust the p-values of several studies for having asked all of them. Every transcript is verified."""
    from tacit.adjusting import adjust as adjusted
    from tacit.command.output import lines, print_json, progress, table
    from tacit.saved_results import load_result

    with progress("recomputing the verdicts", quiet=as_json) as told:
        results = [load_result(file, tester_key=tester_key, progress=told) for file in transcripts]
    found = adjusted(results, method, level=level)
    if as_json:
        print_json(found.to_dict())
        return
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
    lines(*(f"Note: {warning}" for warning in found.warnings))


def _result(study: str, tester_key: str | None, party: Path, told: "Progress") -> "Result":
    from tacit.saved_results import load_result, result_in

    if Path(study).is_file() or not set(study) <= HEX_DIGITS:
        return load_result(study, tester_key=tester_key, progress=told)
    from tacit.command.connect import DIGEST_LENGTH, party_client, whole_digest

    with party_client(party) as client:
        known = [] if len(study) == DIGEST_LENGTH else [found.digest for found in client.studies()]
        digest = whole_digest(study, known)
        data = client.transcript(digest)
    return result_in(data, digest=digest, tester_key=tester_key, progress=told)
