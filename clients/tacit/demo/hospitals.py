"""The demo: four hospitals ask whether their patients come from one population, and share no row.

A whole federation runs on this machine as separate processes: four agents, each with its own key, policy and
ledger, and one tester. The data are real: see data/ATTRIBUTION.txt.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from tacit.client.http import parse_item
from tacit.client.tester import Client
from tacit.results import StudyVerdict
from tacit.setup.configuration import DataSetSetup, PolicySetup
from tacit.setup.federation import LocalFederation, OwnerSetup
from tacit.studies.draft import StudyDraft
from tacit_protocol.messages.answers import BudgetBalance, StudySummary
from tacit_protocol.preparation import PreparedStudy

if TYPE_CHECKING:
    from tacit_protocol.verification import VerifiedTranscript

HOSPITALS = {"cleveland": 303, "budapest": 294, "zurich-basel": 123, "long-beach": 200}
"""The hospitals and how many patients each has; numbers of patients are public."""

ATTRIBUTION = (
    "Data: UCI Heart Disease, CC BY 4.0; A. Janosi (Budapest), W. Steinbrunn (Zurich), M. Pfisterer (Basel), "
    "R. Detrano (Long Beach and Cleveland); Detrano et al. 1989"
)
"""The donors ask that the principal investigators be named."""

ATTRIBUTION_FILE = "ATTRIBUTION.txt"

DATA_SET = "patients"

CAP_FACTOR = 3
"""Each hospital's account allows three studies like this one, so that something is left to look at."""

COLUMNS: list[dict[str, Any]] = [
    {"kind": "numeric", "name": "age", "lower": 20.0, "upper": 90.0},
    {"kind": "categorical", "name": "sex", "levels": ["0", "1"]},
    {"kind": "categorical", "name": "cp", "levels": ["1", "2", "3", "4"]},
    {"kind": "categorical", "name": "restecg", "levels": ["0", "1", "2"]},
    # Budapest records only whether the disease is there (0 or 1), the others its degree (0 to 4): clipping
    # at 1 makes the four alike, and is public.
    {"kind": "numeric", "name": "num", "lower": 0.0, "upper": 1.0},
]

VERDICT_TIMEOUT_S = 300.0
"""How long the demo waits for its verdict on a slow machine."""


class Narrator(Protocol):
    """Tells what the demo does."""

    def step(self, text: str) -> None:
        """Begin the next step."""

    def progress(self, text: str) -> None:
        """Say how far the step is."""

    def prepared(self, study: PreparedStudy) -> None:
        """Show what the study will cost, before it is sent."""


@dataclass(frozen=True)
class Remaining:
    """What one hospital's account has left."""

    name: str
    standing: BudgetBalance


@dataclass(frozen=True)
class DemoOutcome:
    """What the demo found."""

    digest: str
    verdict: StudyVerdict
    remaining: tuple[Remaining, ...]
    transcript: Path
    verified: "VerifiedTranscript"


def owners(epsilon: float, delta: float, folder: Path) -> list[OwnerSetup]:
    """Describe the four hospitals, each with its data in its own folder."""
    policy = PolicySetup(
        approval="automatic",
        epsilon_per_study_max=epsilon,
        delta_per_study_max=delta,
        units_min=100,
        columns=[column["name"] for column in COLUMNS],
        catalogue=True,
        # That a study may find nothing is part of the picture.
        approve_hopeless=True,
    )
    folder.mkdir(parents=True, exist_ok=True)
    copy_demo_file(ATTRIBUTION_FILE, folder / ATTRIBUTION_FILE)
    described = []
    for name in HOSPITALS:
        (folder / name).mkdir(parents=True)
        copy_demo_file(f"{name}.csv", folder / name / f"{DATA_SET}.csv")
        # The account's delta is the study's: at a larger one the same release would count as less epsilon.
        data_set = DataSetSetup(DATA_SET, f"{DATA_SET}.csv", round(CAP_FACTOR * epsilon, 6), delta)
        described.append(OwnerSetup(name, data_set, policy))
    return described


def draft(epsilon: float, delta: float) -> StudyDraft:
    """Write down the demo's question."""
    return StudyDraft.from_dict(
        {
            "title": "Do the patients of these hospitals come from one population?",
            "columns": COLUMNS,
            "owners": [
                {"name": name, "data_set": DATA_SET, "units": units} for name, units in HOSPITALS.items()
            ],
            "epsilon": epsilon,
            "delta": delta,
            "open_for_hours": 1.0,
        }
    )


@contextmanager
def running_federation(
    folder: Path, epsilon: float, delta: float, narrator: Narrator
) -> Iterator[LocalFederation]:
    """Set the demo's federation up in ``folder``, run it, and stop it at the end."""
    narrator.step("Setting up four hospitals, a tester and an analyst")
    with LocalFederation(folder, owners(epsilon, delta, folder)) as federation:
        narrator.step("Starting five services, each a process of its own")
        federation.wait_until_ready(on_ready=lambda name: narrator.progress(f"{name} is up"))
        narrator.step("Enrolling everyone's key at the tester")
        federation.enrol_all()
        yield federation


def ask(
    federation: LocalFederation, folder: Path, epsilon: float, delta: float, narrator: Narrator
) -> DemoOutcome:
    """Ask the demo's question, wait for the verdict, read the ledgers and verify the transcript."""
    with federation.analyst_client() as client:
        narrator.step("Creating the study")
        prepared = client.prepare_study(draft(epsilon, delta))
        narrator.prepared(prepared)
        # The demo shows the warnings and goes on.
        digest = client.create_study(prepared, force=True)
        narrator.step("Each hospital checks its policy, pays from its ledger, adds noise and sends")
        verdict = _wait(client, digest, narrator)
        narrator.step("Reading what every hospital has left")
        remaining = tuple(_remaining(federation, name) for name in HOSPITALS)
        narrator.step("Verifying the transcript: every signature, every figure")
        transcript = folder / "transcript.json"
        transcript.write_bytes(client.transcript(digest))
    from tacit.client.transcripts import verify_transcript_of  # noqa: PLC0415 (not before the services have started)

    verified = verify_transcript_of(transcript.read_bytes(), digest, federation.tester_key)
    return DemoOutcome(digest, verdict, remaining, transcript, verified)


def copy_demo_file(name: str, target: Path) -> None:
    """Copy a file that comes with the demo."""
    with resources.as_file(resources.files("tacit.demo.data") / name) as path:
        shutil.copyfile(path, target)


def _wait(client: Client, digest: str, narrator: Narrator) -> StudyVerdict:
    seen: set[str] = set()

    def on_progress(summary: StudySummary) -> None:
        for owner in summary.owners:
            if owner.sent and owner.name not in seen:
                seen.add(owner.name)
                narrator.progress(f"{owner.name} has sent its release")

    verdict = client.wait_for_verdict(digest, VERDICT_TIMEOUT_S, on_progress)
    for name in verdict.message.releases:
        if name not in seen:
            narrator.progress(f"{name} has sent its release")
    return verdict


def _remaining(federation: LocalFederation, name: str) -> Remaining:
    with federation.agent_client(name) as agent:
        data_set = agent.status()["data_sets"][0]
    return Remaining(name, parse_item(BudgetBalance, data_set))
