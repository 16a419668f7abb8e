"""The procedure of the how-to, installed from its page: nothing else is touched, and everything takes it."""

import base64
import csv
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import numpy as np
import pytest

from tacit.setup.configuration import DataSetSetup, PolicySetup
from tacit.setup.federation import LocalFederation, OwnerSetup
from tacit_protocol.procedures.base import StudyError, require_origin
from tacit_protocol.procedures.discovery import PROCEDURES
from tacit_services.agent.study.policy import Policy

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "add-a-procedure.md"
FILES = ("pyproject.toml", "sign_test.py", "test_sign_test.py", "study.toml")
UNITS = 400


@pytest.fixture(scope="module", autouse=True)
def _services_forked() -> None:
    """Services start as they do for users: what is installed is found as a process starts."""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the page's files, whose first lines name them."""
    folder = tmp_path_factory.mktemp("page") / "sign-test"
    folder.mkdir()
    for block in re.findall(r"^```(?:toml|python)\n(.*?)^```", PAGE.read_text("utf-8"), re.M | re.S):
        name = block.partition("\n")[0].removeprefix("# ")
        if name in FILES:
            (folder / name).write_text(block, "utf-8")
    assert sorted(path.name for path in folder.iterdir()) == sorted(FILES)
    return folder


@pytest.fixture(scope="module")
def installed(page: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the distribution into a folder of its own; returns the folder."""
    site = tmp_path_factory.mktemp("site")
    pip = (sys.executable, "-m", "pip", "install", "--no-index", "--no-deps", "--no-build-isolation")
    subprocess.run([*pip, "--target", str(site), str(page)], check=True, capture_output=True, text=True)
    return site


@pytest.fixture
def plugged(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes that start from here on find the distribution."""
    path = os.environ.get("PYTHONPATH", "")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(installed), *([path] if path else [])]))


def tacit(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = (sys.executable, "-c", "from tacit.command import main; main()", *arguments)
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def told(*arguments: str) -> Any:
    done = tacit(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def write_pressures(file: Path, fall: float, rng: np.random.Generator) -> None:
    with file.open("w", newline="") as opened:
        writer = csv.writer(opened)
        writer.writerow(["before", "after"])
        for before in rng.normal(140, 15, UNITS):
            writer.writerow([round(before), round(before - fall + rng.normal(0, 10))])


Start = Callable[[Sequence[OwnerSetup]], LocalFederation]


def owners(tmp_path: Path, procedures: tuple[str, ...]) -> list[OwnerSetup]:
    rng, found = np.random.default_rng(5), []
    for name in ("north", "south"):
        source = tmp_path / f"{name}.csv"
        write_pressures(source, 6.0, rng)
        policy = PolicySetup(approval="automatic", columns=("before", "after"), procedures=procedures)
        found.append(OwnerSetup(name, DataSetSetup("patients", str(source), 2.0, 1e-4), policy))
    return found


@pytest.mark.long
@pytest.mark.usefixtures("plugged")
def test_the_pages_own_test_passes(page: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(page), str(page)],
        cwd=page,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.long
@pytest.mark.usefixtures("plugged")
def test_an_installed_procedure_is_planned_asked_verified_reported_and_shown(
    page: Path, tmp_path: Path, start_federation: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    federation = start_federation(owners(tmp_path, ("sign_test",)))
    party = ("--party", str(federation.analyst.configuration))
    plan = next(line for line in PAGE.read_text("utf-8").splitlines() if line.startswith("$ tacit plan"))
    planned = told(*shlex.split(plan)[2:], "--runs", "20", "--seed", "1")
    assert planned["power"] > 0.5
    assert "after larger by" in planned["words"]

    digest = told("study", "create", str(page / "study.toml"), *party)["digest"]
    watched = told("study", "watch", digest, *party)
    assert watched["outcome"] == "completed"
    result = watched["result"]
    # Falls of 6 with noise of 10: after is larger in 27 % of the units; 800 of them, noise about 5.
    assert result["reject"] is True
    assert 0.2 < result["estimate"] < 0.35
    assert "sign_test" in tacit("study", "show", digest, *party).stdout
    assert "estimate from noisy sums" in tacit("study", "show", digest, *party).stdout

    transcript = tmp_path / "transcript.json"
    told("study", "transcript", digest, "--output", str(transcript), *party)
    assert told("verify", str(transcript), "--tester-key", federation.tester_key)["verified"]
    told("study", "report", digest, "--output", str(tmp_path / "report.html"), *party)
    report = (tmp_path / "report.html").read_text("utf-8")
    for words in (
        "after is more often smaller than before",
        "The statistical sign test",
        "estimate less 0.5",
    ):
        assert words in report

    link = told("tester", "login", "--config", str(federation.tester.configuration))["url"]
    origin = link.partition("/sign-in")[0]
    signed_in = httpx.post(
        link, content=b"", headers={"origin": origin, "content-type": "application/x-www-form-urlencoded"}
    )
    assert signed_in.status_code == 303
    cookie = signed_in.headers["set-cookie"].partition(";")[0]
    shown = httpx.get(f"{origin}/studies/{digest}", headers={"cookie": cookie}).text
    assert "after is more often smaller than before" in shown
    envelope = json.loads(json.loads(transcript.read_text("utf-8"))["study"])
    assert json.loads(base64.b64decode(envelope["payload"]))["procedure_origin"] == "sign-test 1.0.2"
    with federation.agent_client("north") as agent:
        asked = agent.study(digest)
    assert "sign-test 1.0.2 brings it" in str(asked)

    monkeypatch.setenv("PYTHONPATH", os.environ["PYTHONPATH"].partition(os.pathsep)[2])
    without = tacit("verify", str(transcript), "--tester-key", federation.tester_key)
    assert without.returncode == 1
    assert "unknown procedure" in without.stderr


BROKEN = {
    "from a module that fails": ("broken:Any", "RuntimeError: not today"),
    "that is no procedure": ("json:loads", "derives from"),
    "under a built-in name": ("taken:Taken", "there is a built-in procedure identity"),
    "without a usable name": ("unnamed:Unnamed", "small letters"),
    "without a plan": ("planless:Planless", "no method plan"),
}
MODULES = {
    "broken.py": "raise RuntimeError('not today')",
    "taken.py": "from tacit_protocol.procedures.identity import IdentityTest as I\nclass Taken(I): pass\n",
    "planless.py": (
        "from tacit_protocol.procedures.base import Procedure\nclass Planless(Procedure): name = 'planless'\n"
    ),
    "unnamed.py": "import taken\n\nclass Unnamed(taken.Taken): name = 'Über'\n",
}


@pytest.mark.long
def test_what_cannot_be_used_is_left_out_with_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in MODULES.items():
        (tmp_path / name).write_text(text, "utf-8")
    for number, (value, _) in enumerate(BROKEN.values()):
        folder = tmp_path / f"case{number}-1.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: case{number}\nVersion: 1.0\n")
        (folder / "entry_points.txt").write_text(f"[tacit.procedures]\nentry = {value}\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    code = (
        "import json; from tacit_protocol.procedures.discovery import PROCEDURES;"
        "print(json.dumps([PROCEDURES.left_out,"
        " {n: [p.origin, type(p).__module__] for n, p in PROCEDURES.items()}]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    left_out, found = json.loads(done.stdout)
    for number, (_, reason) in enumerate(BROKEN.values()):
        assert reason in left_out[f"case{number}: entry"]
    assert {origin for origin, _ in found.values()} == {None}
    assert found["identity"][1] == "tacit_protocol.procedures.identity"
    config = tmp_path / "party.toml"
    config.write_text('name = "ann"\n', "utf-8")
    assert "not today" in tacit("doctor", "--config", str(config)).stdout


RUN = """
import pandas as pd, tacit.local
rows = pd.DataFrame({"before": range(100, 200), "after": range(95, 195)})
bounds = {"before": (60, 220), "after": (60, 220)}
found = tacit.local.run("sign_test", rows, rows, epsilon=4, delta=1e-5, bounds=bounds)
print(found.reject, found.source.study.procedure_origin, "estimate less 0.5" in found.report_html())
"""


@pytest.mark.usefixtures("plugged")
def test_an_installed_procedure_runs_in_one_process() -> None:
    done = subprocess.run([sys.executable, "-c", RUN], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True sign-test 1.0.2 True"


def test_another_version_is_refused_by_everyone_who_checks() -> None:
    procedure: Any = SimpleNamespace(name="sign_test", origin="sign-test 1.0.3")
    with pytest.raises(StudyError, match=r"as sign-test 1\.0\.2 brings it, and here sign-test 1\.0\.3 does"):
        require_origin(procedure, SimpleNamespace(procedure_origin="sign-test 1.0.2"))
    with pytest.raises(StudyError, match="as Tacit itself brings it"):
        require_origin(procedure, SimpleNamespace(procedure_origin=None))
    require_origin(procedure, SimpleNamespace(procedure_origin="sign-test 1.0.3"))


def test_everything_in_a_policy_is_what_is_built_in() -> None:
    rules: dict[str, Any] = {"epsilon_per_study_max": 1.0, "delta_per_study_max": 0.0, "analysts": ("*",)}
    everything, named = Policy(**rules), Policy(**rules, procedures=("*", "sign_test"))
    families = frozenset({"gaussian"})
    brought = {
        "sign_test": SimpleNamespace(
            origin="sign-test 1.0.2", families=families, methods={}, divided_for=None
        )
    }
    assert everything.allows("identity", None)
    assert not everything.allows("sign_test", "sign-test 1.0.2")
    assert named.allows("sign_test", "sign-test 1.0.2")
    assert everything.families(brought) == frozenset({"pure"})


def test_a_policy_that_names_a_method_allows_it_alone_and_gives_its_noise_the_whole_account() -> None:
    rules: dict[str, Any] = {"epsilon_per_study_max": 1.0, "delta_per_study_max": 1e-6, "analysts": ("*",)}
    whole = Policy(**rules, procedures=("distance_correlation",))
    sketch = Policy(**rules, procedures=("distance_correlation:sketch", "kernel_two_sample"))
    answers = Policy(**rules, procedures=("distance_correlation:two-round", "distance_correlation:one-round"))
    for method in ("two-round", "one-round", "sketch", "pnc"):
        assert whole.allows("distance_correlation", None, method)
        assert sketch.allows("distance_correlation", None, method) == (method == "sketch")
        assert answers.allows("distance_correlation", None, method) == method.endswith("round")
    assert not answers.allows("distance_correlation", None)
    assert not answers.allows("distance_correlation", "elsewhere 1.0", None)
    assert whole.families(PROCEDURES) == {"pure", "gaussian"}
    assert sketch.families(PROCEDURES) == {"gaussian"}
    assert answers.families(PROCEDURES) == {"pure"}
