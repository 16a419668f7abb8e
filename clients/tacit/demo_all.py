"""`tacit demo --all`: each of the five systems answers a real question, on real data, by real services."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tacit.answers import Standing, parse_item
from tacit.client import Client
from tacit.demo import Narrator
from tacit.demo_owners import align_registers, all_owners
from tacit.demo_questions import Question, all_questions
from tacit.draft import PreparedStudy, StudyDraft
from tacit.errors import ServiceError, VerdictTimeoutError
from tacit.federation import LocalFederation
from tacit.results import StudyVerdict

VERDICTS_TIMEOUT_S = 300.0
"""How long all verdicts may take on a slow machine."""

POLL_S = 0.3
"""Pause between two looks at which studies have ended."""


@dataclass(frozen=True)
class Answer:
    """A question with its verdict, which was verified from the transcript, and its time in seconds."""

    question: Question
    study: PreparedStudy
    verdict: StudyVerdict
    seconds: float
    page: str
    transcript: Path

    @property
    def words(self) -> str:
        """The verdict in plain words."""
        if self.verdict.result is None:
            return f"without a verdict: {self.verdict.outcome}"
        return self.question.words(self.verdict.result)

    @property
    def pvalue(self) -> float | None:
        """The p-value, where the procedure has one."""
        found = getattr(self.verdict.result, "pvalue", None)
        return None if found is None else float(found)


@dataclass(frozen=True)
class Account:
    """What is spent of a data set's budget, and what is left. ``place`` is who keeps the account."""

    owner: str
    place: str
    standing: Standing


@dataclass(frozen=True)
class AllAnswers:
    """What the demo of everything found. ``folder`` holds the federation's files."""

    answers: tuple[Answer, ...]
    accounts: tuple[Account, ...]
    folder: Path
    tester_key: str


@contextmanager
def running_federation_of_all(folder: Path, narrator: Narrator) -> Iterator[tuple[LocalFederation, str]]:
    """Set everything up in ``folder``, run it, and stop it at the end.

    Yields the federation and the digest by which its two registers are aligned.
    """
    narrator.step("Setting up four hospitals, two registers, a curator, a tester and an analyst")
    owners = all_owners(folder)
    with LocalFederation(folder, owners.with_agents, owners.curated) as federation:
        narrator.step(f"Starting {len(owners.with_agents) + 2} services, each a process of its own")
        federation.wait_until_ready(on_ready=lambda name: narrator.progress(f"{name} is up"))
        narrator.step("Enrolling everyone's key; the hospitals hand a copy of their rows to the curator")
        federation.enrol_all()
        narrator.step("The two registers make sure, past the tester, that they know the same people")
        yield federation, align_registers(federation)


def ask_all(federation: LocalFederation, alignment: str, narrator: Narrator) -> AllAnswers:
    """Ask every question, wait for the verdicts, verify their transcripts and read the accounts.

    Raises:
        ServiceError: the federation has no curator, or a service has ended.
        VerdictTimeoutError: a verdict was not there in time.
        VerificationFailedError: a transcript does not hold.
    """
    if federation.curator is None:
        raise ServiceError("the demo of everything needs a curator")
    questions = all_questions(federation.curator, alignment)
    (federation.folder / "transcripts").mkdir()
    with federation.analyst_client() as client:
        asking = _Asking(client, federation, narrator)
        narrator.step(f"Asking {len(questions)} questions at once")
        asked = {one.study.digest: one for one in map(asking.ask, questions)}
        narrator.step("Owners check their policies, pay from their ledgers, add noise and send")
        ended = asking.wait({digest: one.question for digest, one in asked.items()})
        narrator.step("Verifying every transcript: every signature, every figure")
        answers = tuple(asking.answer(one, ended[digest]) for digest, one in asked.items())
    return AllAnswers(answers, tuple(_accounts(federation)), federation.folder, federation.tester_key)


@dataclass(frozen=True)
class _Asked:
    """A question whose study the tester has, and when it was handed in."""

    question: Question
    study: PreparedStudy
    at: float


@dataclass(frozen=True)
class _Asking:
    """The analyst at work."""

    client: Client
    federation: LocalFederation
    narrator: Narrator

    def ask(self, question: Question) -> _Asked:
        prepared = self.client.prepare_study(
            StudyDraft.from_dict({"title": question.asks} | dict(question.draft))
        )
        self.narrator.progress(question.asks)
        # The demo shows what limits a study beside its verdict, and goes on.
        self.client.create_study(prepared, force=True)
        return _Asked(question, prepared, time.monotonic())

    def wait(self, questions: Mapping[str, Question]) -> dict[str, float]:
        """Wait until every study, given by digest, has ended; returns when each was seen to have."""
        ends_at = time.monotonic() + VERDICTS_TIMEOUT_S
        ended: dict[str, float] = {}
        while len(ended) < len(questions):
            if time.monotonic() > ends_at:
                waiting = ", ".join(q.system for digest, q in questions.items() if digest not in ended)
                raise VerdictTimeoutError(f"no verdict after {VERDICTS_TIMEOUT_S:g} s of: {waiting}")
            self.federation.check_running()
            for summary in self.client.studies():
                if summary.digest in questions and summary.digest not in ended and not summary.running:
                    ended[summary.digest] = time.monotonic()
                    self.narrator.progress(f"{questions[summary.digest].system}: the verdict is there")
            time.sleep(POLL_S)
        return ended

    def answer(self, asked: _Asked, ended_at: float) -> Answer:
        from tacit.verify import verify_transcript_of  # noqa: PLC0415 (not before the services have started)

        question, study = asked.question, asked.study
        verdict = self.client.wait_for_verdict(study.digest)
        file = self.federation.folder / "transcripts" / f"{question.name}.json"
        file.write_bytes(self.client.transcript(study.digest))
        verify_transcript_of(file.read_bytes(), study.digest, self.federation.tester_key)
        self.narrator.progress(f"{question.system}: verified")
        page = f"{self.federation.tester.url}/studies/{study.digest}"
        return Answer(question, study, verdict, ended_at - asked.at, page, file)


def _accounts(federation: LocalFederation) -> Iterator[Account]:
    """Read what is spent and left everywhere."""
    for site in federation.agents:
        with federation.agent_client(site.name) as agent:
            for data_set in agent.status()["data_sets"]:
                yield Account(site.name, "its agent", parse_item(Standing, data_set))
    if federation.curator is not None:
        with federation.curator.operator_client() as operator:
            for held in operator.data_sets():
                yield Account(held.owner, "the curator", held)
