"""`examples.all_systems --keep-running`: every system, its pages, its ledgers, and a clean end. One run."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import httpx
import psutil
import pytest
from examples.all_systems.demo import AllAnswers, DemoAnswer, DemoQuestion, published_people
from examples.all_systems.view import show_all

from tacit.client.agent import AgentClient
from tacit.client.curator import CuratorClient
from tacit.client.transcripts import verify_transcript_of
from tacit.results import DatabaseResult, DistanceCorrelationResult, StudyVerdict, study_verdict
from tacit.studies.draft import prepare

pytestmark = pytest.mark.long

ROOT = Path(__file__).resolve().parents[2]

SYSTEMS = {
    "hospitals": "kernel_two_sample",
    "hospitals-curated": "curated_two_sample",
    "independence": "joint_independence",
    "digits": "identity",
    "women": "homogeneity",
    "sex": "stratified_table",
    "men-and-women": "group_comparison",
    "age": "association",
    "survival": "survival",
    "income": "distance_correlation",
    "database": "embedding_release",
}
REGISTERS = ("school-register", "tax-office")
HOSPITALS = ("cleveland", "budapest", "zurich-basel", "long-beach")
# The last lines that a demo prints, and it is still running.
LAST_LINE = re.compile(r"^ *\S*tacit ledger show --config .*tax-office")


@dataclass
class RunningDemo:
    """The demo's folder, and what it has printed."""

    folder: Path
    printed: str

    def link(self, who: str) -> str:
        (found,) = re.findall(rf"^ *{who}: (http\S+)$", self.printed, re.MULTILINE)
        return str(found)


@pytest.mark.slow
def test_every_system_answers_and_can_be_looked_at(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One test, since its run takes half a minute of two processors."""
    folder = tmp_path / "federation"
    command = [sys.executable, "-m", "examples.all_systems"]
    with subprocess.Popen(
        [*command, "--keep-running", "--folder", str(folder)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        # A table that is wide enough keeps every verdict on one line.
        env=os.environ | {"COLUMNS": "250"},
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        try:
            printed = read_until_running(process.stdout)
            assert "Still running" in printed
            demo = RunningDemo(folder, printed)
            require_every_page(demo)  # first of all: the links work for five minutes
            verdicts = verified_verdicts(folder)
            require_every_verdict(demo, verdicts)
            require_aligned_registers(verdicts)
            require_paid(folder, verdicts)
        finally:
            process.send_signal(signal.SIGINT)
            process.stdout.read()
        assert process.wait(300) == 130
    left = [p for p in psutil.process_iter(["cmdline"]) if str(folder) in " ".join(p.info["cmdline"] or ())]
    assert left == []
    assert len(list((folder / "transcripts").iterdir())) == len(SYSTEMS)
    require_same_json(folder, verdicts, capsys)


def read_until_running(output: IO[str]) -> str:
    printed = []
    for line in output:
        printed.append(line)
        if LAST_LINE.match(line):
            break
    return "".join(printed)


def verified_verdicts(folder: Path) -> dict[str, StudyVerdict]:
    """What the transcripts say, each of them verified again, by the study's name."""
    found = {}
    for file in sorted((folder / "transcripts").iterdir()):
        verified = verify_transcript_of(file.read_bytes(), None, None)
        found[file.stem] = study_verdict(verified.study, verified.verdict, verified.releases)
    return found


def require_every_verdict(demo: RunningDemo, verdicts: dict[str, StudyVerdict]) -> None:
    """The table says what the transcripts say. What that is depends on noise, and is not asserted."""
    assert {name: verdict.study.procedure for name, verdict in verdicts.items()} == SYSTEMS
    for name, verdict in verdicts.items():
        (row,) = re.findall(rf"^ +\d+ +{re.escape(verdict.study.title)} (.*)$", demo.printed, re.MULTILINE)
        assert re.search(rf" {verdict.study.budget.epsilon:g} +\d+ s *$", row)
        assert re.search(rf"^ +{verdict.study.procedure} *$", demo.printed, re.MULTILINE)
        if name != "database":
            assert ("shown" in row) is not verdict.result.reject
        pvalue = getattr(verdict.result, "pvalue", None)
        assert pvalue is None or f" {pvalue:.2g} " in row


def require_aligned_registers(verdicts: dict[str, StudyVerdict]) -> None:
    correlated, described = verdicts["income"].result, verdicts["database"].result
    assert isinstance(correlated, DistanceCorrelationResult)
    assert correlated.aligned
    assert correlated.n == dict.fromkeys(REGISTERS, 32_561)
    assert isinstance(described, DatabaseResult)
    database = described.database()
    assert len(database) == len(published_people()) == 200
    # The records' own mean is 40.437; the noise's standard error is 0.03, and what the points miss 0.5.
    assert float(database.mean("hours_per_week")) == pytest.approx(40.437, abs=2)


def require_every_page(demo: RunningDemo) -> None:
    with signed_in(demo.link("the analyst, at the tester")) as browser:
        pages = re.findall(r"^ +\d+ +(http\S+/studies/[0-9a-f]{64})$", demo.printed, re.MULTILINE)
        assert len(pages) == len(SYSTEMS)
        for page in pages:
            answer = browser.get(page)
            assert answer.status_code == 200, page
            assert "completed" in answer.text
            report = browser.get(f"{page}/report")
            assert report.status_code == 200, page
            assert "Methods" in report.text
    for who in [
        *(f"{name}, at its agent" for name in (*HOSPITALS, "faisalabad", *REGISTERS)),
        "budapest, at the curator",
    ]:
        with signed_in(demo.link(who)) as browser:
            assert browser.get("/").status_code == 200


@contextmanager
def signed_in(link: str) -> Iterator[httpx.Client]:
    """A browser that has opened the link and pressed the button."""
    url = httpx.URL(link)
    origin = f"{url.scheme}://{url.host}:{url.port}"
    form = {"origin": origin, "content-type": "application/x-www-form-urlencoded"}
    with httpx.Client(base_url=origin, timeout=120, trust_env=False) as browser:
        answer = browser.post(link, headers=form)
        assert answer.status_code == 303, answer.text
        yield browser


def require_paid(folder: Path, verdicts: dict[str, StudyVerdict]) -> None:
    """Every account paid for its own studies, and for no other."""
    paid = {
        "cleveland": {"hospitals", "independence", "digits", "women", "sex", "men-and-women", "age"},
        "budapest": {"hospitals", "women", "sex", "men-and-women", "age"},
        "long-beach": {"hospitals", "sex", "men-and-women", "age"},
        "faisalabad": {"survival"},
        "school-register": {"income", "database"},
        "tax-office": {"income"},
    }
    for owner, studies in paid.items():
        with AgentClient.from_configuration(folder / owner / "agent.toml") as agent:
            debits = {e["study"]: e["epsilon_micro"] for e in agent.ledger() if e["study"]}
        expected = {verdicts[s].digest: verdicts[s].study.budget.epsilon_micro for s in studies}
        assert debits == expected
    for owner in HOSPITALS:
        with CuratorClient.of_owner(folder / owner / "owner.toml") as curator:
            assert {e["study"] for e in curator.ledger() if e["study"]} == {
                verdicts["hospitals-curated"].digest
            }


def require_same_json(
    folder: Path, verdicts: dict[str, StudyVerdict], capsys: pytest.CaptureFixture[str]
) -> None:
    answers = [
        DemoAnswer(
            DemoQuestion(
                name, "a system", verdict.study.title, {}, lambda result: f"reject: {result.reject}"
            ),
            prepare(verdict.study),
            verdict,
            1.25,
            "http://localhost/x",
            folder / "transcripts" / f"{name}.json",
        )
        for name, verdict in verdicts.items()
    ]
    show_all(AllAnswers(tuple(answers), (), folder, "0" * 64), {"ann": "http://localhost/y"}, True)
    said: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert said["sign_in_links"] == {"ann": "http://localhost/y"}
    for study in said["studies"]:
        verdict = verdicts[study["name"]]
        assert (study["procedure"], study["digest"]) == (verdict.study.procedure, verdict.digest)
        assert study["verdict"] == f"reject: {verdict.result.reject}"
        assert study["pvalue"] == getattr(verdict.result, "pvalue", None)
        assert (study["seconds"], study["verified"]) == (1.2, True)
        assert Path(study["transcript"]).is_file()
