"""Output of the demo of all systems: verdicts, pages and transcripts, and what was spent."""

from collections.abc import Mapping, Sequence
from typing import Any

from examples.all_systems.demo import AllAnswers, DemoAccount, DemoAnswer
from tacit.command.demo_view import from_here, program
from tacit.command.output import console, epsilon_text, foreign, lines, print_json, table
from tacit.demo.hospitals import ATTRIBUTION

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
        lines("The services stop now. To look at the pages, run it with --keep-running")


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
