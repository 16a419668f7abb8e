"""Output of `tacit demo`: its steps, verdicts, pages and transcripts, and what was spent."""

import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tacit.client.sign_in import Door, agent_door, curator_owner_door, make_sign_in_link, party_door
from tacit.command.output import console, epsilon_text, foreign, lines, print_json, table
from tacit.command.study_view import print_prepared, print_verdict, verdict_fields
from tacit.demo.all_systems import AllAnswers, DemoAccount, DemoAnswer
from tacit.demo.hospitals import ATTRIBUTION, DemoOutcome
from tacit.setup.federation import LocalFederation
from tacit_protocol.preparation import PreparedStudy

ONE_STUDY_STEPS = 7


class ScreenNarrator:
    """Prints the demo's steps, of which there are ``steps``; prints nothing where ``quiet``."""

    def __init__(self, steps: int, quiet: bool) -> None:
        self._console = console()
        self._steps = steps
        self._quiet = quiet
        self._count = 0

    def step(self, text: str) -> None:
        """Begin the next step."""
        self._count += 1
        self._print(f"{self._count}/{self._steps} {text}", style="bold")

    def progress(self, text: str) -> None:
        """Say how far the step is."""
        self._print(f"      {text}")

    def prepared(self, study: PreparedStudy) -> None:
        """Show what the study will cost, before it is sent."""
        if not self._quiet:
            print_prepared(study)

    def _print(self, text: str, style: str | None = None) -> None:
        if not self._quiet:
            self._console.print(foreign(text), style=style, soft_wrap=True)
            sys.stdout.flush()


def show_outcome(outcome: DemoOutcome, folder: Path, as_json: bool) -> None:
    """Print the hospitals' verdict, what they have left, and where the transcript is."""
    if as_json:
        fields = verdict_fields(outcome.verdict) | {
            "verified": outcome.verified.study_digest == outcome.digest,
            "folder": str(folder),
            "transcript": str(outcome.transcript),
            "left_percent": {one.name: one.standing.left_percent for one in outcome.remaining},
        }
        print_json(fields)
        return
    lines("")
    print_verdict(outcome.verdict)
    table(("Hospital", "Left"), [(one.name, one.standing.left_words) for one in outcome.remaining])
    lines(
        ATTRIBUTION,
        f"Transcript verified: recomputed here, study {outcome.digest[:12]} ends the same.",
        f"The federation's files are in {from_here(folder)}",
        f"Check the transcript again with: {program()} verify {from_here(outcome.transcript)}",
    )


def program() -> str:
    """Return what starts this command in the reader's shell: its name, or else its path."""
    if shutil.which("tacit") is not None:
        return "tacit"
    beside = Path(sys.executable).parent / "tacit"
    return str(from_here(beside)) if beside.is_file() else "tacit"


def from_here(path: Path) -> Path:
    """Return the path as seen from the working folder, where it lies below."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


def tell_where(federation: LocalFederation, links: Mapping[str, str], digest: str) -> None:
    """Say how to look at the running federation: its pages, by their links, and commands."""
    tacit, analyst = program(), from_here(federation.analyst.configuration)
    lines("", "Still running; Ctrl-C stops it. Its pages, each by a link that works once, for five minutes:")
    for who, url in links.items():
        lines(f"  {who}: {url}")
    lines(
        "Another link, and the same from the command line, in another terminal:",
        f"  {tacit} party login --party {analyst}",
        f"  {tacit} study list --party {analyst}",
        f"  {tacit} study show {digest[:12]} --party {analyst}",
    )
    for site in federation.agents:
        lines(f"  {tacit} ledger show --config {from_here(site.configuration)}")
    sys.stdout.flush()


def sign_in_links(federation: LocalFederation) -> dict[str, str]:
    """Make a one-time link for the analyst at the tester, every steward, and every owner at the curator."""
    doors: list[tuple[str, Callable[[Path], Door], Path]] = [
        ("the analyst, at the tester", party_door, federation.analyst.configuration)
    ]
    doors += [(f"{site.name}, at its agent", agent_door, site.configuration) for site in federation.agents]
    if federation.curator is not None:
        files = federation.curator.owner_files
        doors += [(f"{name}, at the curator", curator_owner_door, file) for name, file in files.items()]
    return {who: make_sign_in_link(door(file)).url for who, door, file in doors}


ALL_STEPS = 7

CENSUS_ATTRIBUTION = (
    "Data: UCI Adult, CC BY 4.0, from the US census of 1994; B. Becker and R. Kohavi 1996. One table "
    "there: that two registers share it is made up"
)

HEART_FAILURE_ATTRIBUTION = (
    "Data: UCI Heart Failure Clinical Records, CC BY 4.0; D. Chicco and G. Jurman 2020; T. Ahmad et al. 2017"
)


def show_all(found: AllAnswers, links: Mapping[str, str], as_json: bool) -> None:
    """Print every verdict, where its page and transcript are, and every account.

    ``links`` sign in to the pages, by who; there are none where the services stop at once.
    """
    if as_json:
        print_json(_fields(found) | {"sign_in_links": dict(links)})
        return
    lines("")
    _print_verdicts(found.answers)
    lines(
        'Every test is at level 0.05, and "none shown" is not "there is none": noise may hide it.',
        "Without a p-value, one private decision has left and nothing finer; a database tests nothing.",
    )
    while_up = "" if links else " (while the demo runs: --keep-running)"
    lines("", f"Each verdict's page at the tester{while_up}, and its transcript, which was verified here:")
    for number, answer in enumerate(found.answers, 1):
        lines(f"  {number}  {answer.page}", f"     {program()} verify {from_here(answer.transcript)}")
    _print_accounts(found.accounts)
    lines(ATTRIBUTION, HEART_FAILURE_ATTRIBUTION, CENSUS_ATTRIBUTION)
    lines(f"The federation's files are in {from_here(found.folder)}")
    if not links:
        lines(f"The services stop now. To look at the pages: {program()} demo --all --keep-running")


def _print_verdicts(answers: Sequence[DemoAnswer]) -> None:
    """Print the table; the procedure stands below its question, so that eighty columns hold it."""
    from rich.box import SIMPLE_HEAD  # noqa: PLC0415 (slow to import)
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    grid = Table(box=SIMPLE_HEAD)
    for heading in ("", "Question, procedure", "Verdict", "p", "Epsilon", "Time"):
        grid.add_column(heading, no_wrap=heading not in {"Question, procedure", "Verdict"})
    for number, answer in enumerate(answers, 1):
        study = answer.study.study
        pvalue = "" if answer.pvalue is None else f"{answer.pvalue:.2g}"
        grid.add_row(
            str(number),
            Text.assemble(foreign(study.title), "\n", (study.procedure, "italic")),
            foreign(answer.words),
            pvalue,
            epsilon_text(study.budget.epsilon_micro),
            f"{answer.seconds:.0f} s",
        )
    console().print(grid)


def _print_warnings(answers: Sequence[DemoAnswer]) -> None:
    for number, answer in enumerate(answers, 1):
        for warning in () if answer.verdict.result is None else answer.verdict.result.warnings:
            lines(f"Warning of {number}: {warning}")


def _print_accounts(accounts: Sequence[DemoAccount]) -> None:
    rows = [(one.owner, one.place, one.standing.left_words) for one in accounts]
    table(("Owner", "Account kept by", "Left"), rows)
    lines(
        "Gaussian studies add up by their noise: together they take less than the sum of their epsilons. For",
        "a patient of whom agent and curator both hold a row, both accounts count together.",
    )


def _fields(found: AllAnswers) -> dict[str, Any]:
    return {
        "folder": str(found.folder),
        "tester_key": found.tester_key,
        "studies": [_answer_fields(answer) for answer in found.answers],
        "accounts": [
            {"owner": one.owner, "kept_by": one.place, **one.standing.model_dump()} for one in found.accounts
        ],
    }


def _answer_fields(answer: DemoAnswer) -> dict[str, Any]:
    study, result = answer.study.study, answer.verdict.result
    return {
        "name": answer.question.name,
        "system": answer.question.system,
        "question": study.title,
        "procedure": study.procedure,
        "outcome": answer.verdict.outcome,
        "verdict": answer.words,
        "reject": None if result is None else result.reject,
        "pvalue": answer.pvalue,
        "epsilon": study.budget.epsilon,
        "delta": study.budget.delta,
        "seconds": round(answer.seconds, 1),
        "digest": answer.study.digest,
        "page": answer.page,
        "transcript": str(answer.transcript),
        # A transcript that does not verify has ended the demo with an error.
        "verified": True,
        "warnings": [] if result is None else list(result.warnings),
    }
