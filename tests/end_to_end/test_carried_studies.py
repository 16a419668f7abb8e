"""Studies carried as files to agents that reach no tester: policy, approval and ledger are as ever."""

import base64
import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from certificates import add, wait_until_ready
from forked_python import forked_python

from tacit.client.tester import Client
from tacit.errors import InputError, ProblemError
from tacit.setup.configuration import (
    DataSetSetup,
    PolicySetup,
    TesterAddress,
    init_agent,
    init_party,
    init_tester,
    toml_text,
)
from tacit.setup.keys import load_key
from tacit.setup.processes import ServiceProcess, free_ports, service_command, service_environment, stop_all
from tacit_protocol.signing import STUDY_TYPE, PrivateKey, payload_of, sign_envelope

pytestmark = pytest.mark.long

UNITS = 300
ADAPTERS = Path(__file__).resolve().parents[2] / "examples"
LOGGED = ("study_taken_in", "ledger_verified", "waiting-for-approval")
"""Words of an agent's log, which may depend on its data: no platform may be handed them."""

Say = Callable[..., tuple[int, Any]]


@dataclass
class World:
    """A tester that runs, and two owners' agents that do not, and could not reach it."""

    folder: Path
    files: dict[str, Path]
    service: ServiceProcess

    def answer(self, name: str, study: Path, output: Path, timeout_s: float = 200.0) -> tuple[int, str]:
        """Run the agent's command in a process of its own; returns its exit status and what it printed."""
        told = ["--study", str(study), "--output", str(output), "--timeout-s", str(timeout_s), "--json"]
        command = [*service_command("agent", "answer", self.files[name]), *told]
        done = forked_python().run(command[1:], environment=service_environment())
        return done.returncode, done.stdout or done.stderr

    def spent(self, name: str) -> list[str]:
        """Return the studies that the owner's ledger has debited."""
        with sqlite3.connect(self.folder / name / "agent.sqlite3") as database:
            return [
                row[0] for row in database.execute("SELECT study FROM ledger_entries WHERE study IS NOT NULL")
            ]


@pytest.fixture
def world(tmp_path: Path, say: Say) -> Iterator[World]:
    port, nobody = free_ports(2)
    tester = init_tester(tmp_path / "tester", "tester", "127.0.0.1", port)
    url = f"http://127.0.0.1:{port}"
    address = TesterAddress(url, load_key(tmp_path / "tester" / "tester.pem").public_hex)
    files = {"tester": tester}
    for name, approval in (("north", "automatic"), ("south", "by-hand")):
        rows = "".join(f"{'f' if number % 3 else 'm'}\n" for number in range(UNITS))
        (tmp_path / f"{name}.csv").write_text(f"sex\n{rows}")
        source = DataSetSetup("people", str(tmp_path / f"{name}.csv"), 2.0, 1e-5)
        policy = PolicySetup(approval=approval, procedures=("homogeneity",), columns=("sex",))
        own = free_ports(1)[0]
        files[name] = init_agent(tmp_path / name, name, address, source, policy, host="127.0.0.1", port=own)
    for name in ("ann", "bob"):
        files[name] = init_party(tmp_path / name, name, address)
    service = ServiceProcess.start(
        "tester", service_command("tester", "serve", tester), tmp_path / "tester.log"
    )
    try:
        wait_until_ready(url, [service])
        roles = {"north": "owner", "south": "owner", "ann": "analyst", "bob": "analyst"}
        for name, role in roles.items():
            _, made = say("party", "invite", "--role", role, "--name", name, "--config", str(tester))
            command = ["party", "enrol", "--party"] if role == "analyst" else ["agent", "enrol", "--config"]
            assert say(*command, str(files[name]), "--invitation", made["invitation"])[0] == 0
        for name in ("north", "south"):  # from here on they reach nobody
            add(files[name], tester_url=f"http://127.0.0.1:{nobody}", tester_audience=url)
        yield World(tmp_path, files, service)
    finally:
        stop_all([service])


def create(world: World, say: Say, procedure: str = "homogeneity") -> tuple[str, Path]:
    """Create a study and fetch it as a file; returns its digest and the file."""
    draft, study = world.folder / "study.toml", world.folder / "study.dsse"
    owners = [{"name": name, "data_set": "people", "units": UNITS} for name in ("north", "south")]
    columns = [{"kind": "categorical", "name": "sex", "levels": ["f", "m"]}]
    fields = {"title": "x", "procedure": procedure, "epsilon": 1.0, "delta": 0.0, "respond_after_s": 3}
    draft.write_text(toml_text(fields | {"columns": columns, "owners": owners}))
    code, made = say("study", "create", str(draft), "--party", str(world.files["ann"]))
    assert code == 0, made
    code, _ = say(
        "study", "envelope", made["digest"], "--output", str(study), "--party", str(world.files["ann"])
    )
    assert code == 0
    return made["digest"], study


def approve(world: World, say: Say, digest: str) -> None:
    """Let the south's steward approve, at an agent that serves for that moment."""
    log = world.folder / "south.log"
    serving = ServiceProcess.start("south", service_command("agent", "serve", world.files["south"]), log)
    try:
        for _ in range(600):
            code, _ = say("agent", "approve", digest, "--yes", "--config", str(world.files["south"]))
            if code == 0:
                return
            serving.check_running()
        raise AssertionError("the agent never answered")
    finally:
        stop_all([serving])


def test_a_study_is_carried_answered_delivered_and_verified(world: World, say: Say) -> None:
    digest, study = create(world, say)
    answers = {name: world.folder / f"{name}.dsse" for name in ("north", "south")}
    code, told = world.answer("north", study, answers["north"])
    assert code == 0, told
    # A steward decides as ever: until then there is no answer, and nothing is spent.
    code, told = world.answer("south", study, answers["south"], timeout_s=3.0)
    assert (code, json.loads(told)["state"]) == (3, "waiting-for-approval")
    assert not answers["south"].exists()
    assert world.spent("south") == []
    approve(world, say, digest)
    code, told = world.answer("south", study, answers["south"])
    assert code == 0, told
    for name, file in answers.items():
        assert world.spent(name) == [digest]
        code, told = say("study", "deliver", str(file), "--party", str(world.files["ann"]))
        assert code == 0, told
    code, verdict = say("study", "watch", digest, "--timeout-s", "200", "--party", str(world.files["ann"]))
    assert code == 0, verdict
    transcript = world.folder / "transcript.json"
    told_to = ["--output", str(transcript), "--party", str(world.files["ann"])]
    assert say("study", "transcript", digest, *told_to)[0] == 0
    key = load_key(world.folder / "tester" / "tester.pem").public_hex
    assert say("verify", str(transcript), "--tester-key", key)[0] == 0


def test_asked_again_or_by_several_at_once_it_is_one_answer_and_one_debit(world: World, say: Say) -> None:
    digest, study = create(world, say)
    outputs = [world.folder / f"answer-{number}" for number in range(4)]
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(lambda output: world.answer("north", study, output), outputs[:3]))
    assert [code for code, _ in found] == [0, 0, 0], found
    assert world.answer("north", study, outputs[3])[0] == 0
    assert len({output.read_bytes() for output in outputs}) == 1
    assert world.spent("north") == [digest]


def test_what_policy_refuses_is_declined_and_what_is_no_study_is_nothing(world: World, say: Say) -> None:
    _, study = create(world, say, "noisy_counts")
    declined = world.folder / "declined"
    code, told = world.answer("north", study, declined)
    assert (code, json.loads(told)["state"]) == (0, "refused")
    assert world.spent("north") == []
    assert say("study", "deliver", str(declined), "--party", str(world.files["ann"]))[0] == 0
    forged = world.folder / "forged"
    changed = json.loads(study.read_bytes())
    changed["payload"] = changed["payload"][:-8] + "AAAAAAA="
    resigned = sign_envelope(payload_of(study.read_bytes()), STUDY_TYPE, PrivateKey.generate())
    for content in (
        resigned,
        b"",
        b"{}",
        b"\0" * 100,
        study.read_bytes()[:-20],
        json.dumps(changed).encode(),
    ):
        forged.write_bytes(content)
        code, told = world.answer("north", forged, world.folder / "none")
        assert (code, "no signed study" in told) == (1, True), told
    assert world.answer("north", world.folder / "nowhere", world.folder / "none")[0] == 1
    assert not (world.folder / "none").exists()


def test_nobody_delivers_for_another_analyst_and_nothing_that_no_owner_signed(world: World, say: Say) -> None:
    _, study = create(world, say)
    answer = world.folder / "answer"
    assert world.answer("north", study, answer)[0] == 0
    url = f"http://127.0.0.1:{free_port(world)}"
    with Client(url, world.folder / "bob" / "party.pem") as bob:
        with pytest.raises(ProblemError, match="answers for itself"):
            bob.deliver(answer.read_bytes())
        with pytest.raises(InputError, match="no owner's answer"):
            bob.deliver(study.read_bytes())
    with Client(url, world.folder / "ann" / "party.pem") as ann:
        changed = json.loads(answer.read_bytes())
        changed["signatures"][0]["sig"] = "A" * len(changed["signatures"][0]["sig"])
        with pytest.raises(InputError, match="no owner's answer"):
            ann.deliver(json.dumps(changed).encode())
        ann.deliver(answer.read_bytes())
        ann.deliver(answer.read_bytes())  # the same bytes again are the same answer


def free_port(world: World) -> int:
    """Return the port that the tester listens on."""
    line = next(line for line in world.files["tester"].read_text().splitlines() if line.startswith("port"))
    return int(line.split("=")[1])


BY_VANTAGE6 = """
import json, os, sys
from vantage6.algorithm.tools.mock_client import MockAlgorithmClient
client = MockAlgorithmClient(datasets=[[], []], module="tacit_answer")
given = {"study": sys.stdin.read(), "timeout_s": float(os.environ["WAIT_S"])}
task = client.task.create(input_={"method": "answer", "kwargs": given}, organizations=[0])
print(json.dumps(client.wait_for_results(task["id"])[0]))
"""


@pytest.mark.parametrize("by", ["itself", "vantage6"])
def test_a_task_of_another_platform_carries_a_study(world: World, say: Say, by: str) -> None:
    """vantage6 pins other versions than Tacit: TACIT_VANTAGE6_PYTHON names a Python that has its tools."""
    python = sys.executable if by == "itself" else os.environ.get("TACIT_VANTAGE6_PYTHON")
    if python is None:
        pytest.skip("TACIT_VANTAGE6_PYTHON names no Python with vantage6-algorithm-tools")
    alone = "import json, os, sys, tacit_answer\nprint(json.dumps("
    alone += 'tacit_answer.answer(sys.stdin.read(), float(os.environ["WAIT_S"]))))'
    digest, study = create(world, say)

    def task(name: str, wait_s: str) -> dict[str, str | None]:
        environment = service_environment() | {
            "PYTHONPATH": str(ADAPTERS / "vantage6"),
            "TACIT_COMMAND": str(Path(sys.executable).with_name("tacit")),
            "TACIT_AGENT_CONFIG": str(world.files[name]),
            "WAIT_S": wait_s,
        }
        done = subprocess.run(
            [python, "-c", alone if by == "itself" else BY_VANTAGE6],
            input=base64.b64encode(study.read_bytes()).decode(),
            capture_output=True,
            text=True,
            check=True,
            env=environment,
        )
        # A node sends on what is printed: nothing of an agent's log may be in it.
        assert not any(word in done.stdout + done.stderr for word in LOGGED)
        return dict(json.loads(done.stdout.splitlines()[-1]))

    assert task("south", "3") == {"state": "not-yet", "answer": None}
    answered = task("north", "200")
    assert answered["state"] == "answered"
    assert world.spent("north") == [digest]
    file = world.folder / "answer"
    file.write_bytes(base64.b64decode(answered["answer"] or ""))
    assert say("study", "deliver", str(file), "--party", str(world.files["ann"]))[0] == 0


BY_FLARE = """
import os, sys
from nvflare.job_config.api import FedJob
from nvflare.private.fed.app.simulator.simulator_runner import SimulatorRunner
from tacit_flare import TASK, AnswerStudy, CarryStudy

if __name__ == "__main__":
    study, answers, jobs, workspace = sys.argv[1:]
    job = FedJob(name="study", min_clients=2)
    job.to_server(CarryStudy(study, answers, 300))
    job.to_clients(AnswerStudy(float(os.environ["WAIT_S"])), tasks=[TASK])
    job.export_job(jobs)
    run = SimulatorRunner(os.path.join(jobs, "study"), workspace, clients="north,south", threads=2)
    sys.exit(run.run())
"""

TASKS_OF_FLARE = """
import sys
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal
from tacit_flare import ANSWER, STATE, STUDY, TASK, AnswerStudy
for name, told in ((TASK, {STUDY: "no base64!"}), (TASK, {STUDY: 7}), ("train", {})):
    print(AnswerStudy(1).execute(name, Shareable(told), FLContext(), Signal()).get_return_code())
reply = AnswerStudy(3).execute(TASK, Shareable({STUDY: sys.stdin.read()}), FLContext(), Signal())
print(reply.get_return_code(), reply[STATE], reply[ANSWER])
"""


def test_a_job_of_nvidia_flare_carries_a_study_to_two_sites(world: World, say: Say) -> None:
    """FLARE pins other versions than Tacit: TACIT_FLARE_PYTHON names a Python that has it."""
    python = os.environ.get("TACIT_FLARE_PYTHON")
    if python is None:
        pytest.skip("TACIT_FLARE_PYTHON names no Python with nvflare")
    digest, study = create(world, say)
    # An operator sets its own site's environment. The simulator has one for all, and a folder for each site.
    command = world.folder / "tacit-of-this-site"
    tacit = Path(sys.executable).with_name("tacit")
    command.write_text(f'#!/bin/sh\ncd "{world.folder}/$(basename "$PWD")" && exec "{tacit}" "$@"\n')
    command.chmod(0o700)
    environment = service_environment() | {
        "PYTHONPATH": f"{ADAPTERS / 'flare'}:{ADAPTERS / 'vantage6'}",
        "TACIT_COMMAND": str(command),
        "TACIT_AGENT_CONFIG": "agent.toml",
    }
    script = world.folder / "job.py"
    script.write_text(BY_FLARE)

    def job(number: int) -> dict[str, bytes]:
        answers = world.folder / f"answers-{number}"
        answers.mkdir()
        folders = [answers, world.folder / f"jobs-{number}", world.folder / f"simulated-{number}"]
        done = subprocess.run(
            [python, str(script), str(study), *map(str, folders)],
            capture_output=True,
            text=True,
            check=False,
            env=environment | {"WAIT_S": "200"},
        )
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
        logs = [path.read_text("utf-8", "replace") for path in folders[2].rglob("*") if "log" in path.name]
        assert logs
        assert not any(word in text for text in (done.stdout, done.stderr, *logs) for word in LOGGED)
        return {file.stem: file.read_bytes() for file in answers.iterdir()}

    alone = subprocess.run(
        [python, "-c", TASKS_OF_FLARE],
        input=base64.b64encode(study.read_bytes()).decode(),
        capture_output=True,
        text=True,
        check=True,
        env=environment | {"TACIT_COMMAND": str(tacit), "TACIT_AGENT_CONFIG": str(world.files["south"])},
    )
    told = ["BAD_TASK_DATA", "BAD_TASK_DATA", "TASK_UNKNOWN", "OK", "not-yet", "None"]
    assert alone.stdout.split() == told  # the south's steward has not looked
    assert world.spent("south") == []
    approve(world, say, digest)
    first = job(1)
    assert set(first) == {"north", "south"}
    assert job(2) == first
    assert [world.spent(name) for name in ("north", "south")] == [[digest], [digest]]
    for name in first:
        file = str(world.folder / "answers-2" / f"{name}.dsse")
        assert say("study", "deliver", file, "--party", str(world.files["ann"]))[0] == 0
    watching = ["--timeout-s", "200", "--party", str(world.files["ann"])]
    assert say("study", "watch", digest, *watching)[0] == 0


BY_DATASHIELD = """
asked <- commandArgs(TRUE)
text <- tacit_text(readBin(asked[1], raw(), file.size(asked[1])))
# Both parsers of DataSHIELD servers (Opal's and Armadillo's grammar, and DSLite's) take such a text.
stopifnot(grepl("^[0-9A-Za-z_.+$;:,-]+$", text))
declared <- read.dcf(system.file("DATASHIELD", package = "tacit"))
stopifnot(identical(declared[1, "AggregateMethods"], c(AggregateMethods = "tacitAnswerDS")))
aggregate <- function(call) eval(parse(text = paste0("tacit::", deparse1(call))))
if (asked[3] == "DSLite") {
  library(DSLite)
  server <- newDSLiteServer(config = defaultDSConfiguration(include = "tacit"))
  stopifnot(server$strict())
  builder <- newDSLoginBuilder()
  builder$append(server = "site", url = "server", driver = "DSLiteDriver")
  sites <- datashield.login(builder$build())
  aggregate <- function(call) datashield.aggregate(sites, call)$site
  other <- tryCatch(datashield.aggregate(sites, quote(system("id"))), error = function(error) "refused")
  stopifnot(identical(other, "refused"))
}
for (wrong in list("not base64!", 7)) {
  refused <- tryCatch(aggregate(call("tacitAnswerDS", wrong)), error = function(error) "refused")
  stopifnot(identical(refused, "refused"))
}
found <- aggregate(call("tacitAnswerDS", text, as.numeric(asked[4])))
if (!is.null(found$answer)) writeBin(found$answer, asked[2])
cat("STATE", found$state)
"""


@pytest.mark.parametrize("by", ["R", "DSLite"])
def test_a_datashield_server_carries_a_study(
    world: World, say: Say, rscript: Callable[..., str], by: str
) -> None:
    """Without DataSHIELD's packages a plain R evaluates the call; TACIT_DATASHIELD_LIBRARY names those."""
    library = os.environ.get("TACIT_DATASHIELD_LIBRARY")
    if by == "DSLite" and library is None:
        pytest.skip("TACIT_DATASHIELD_LIBRARY names no R library with DSI and DSLite")
    digest, study = create(world, say)
    answer = world.folder / "answer"

    def task(name: str, wait_s: str, **changes: str) -> str:
        environment = {
            "TACIT_COMMAND": str(Path(sys.executable).with_name("tacit")),
            "TACIT_AGENT_CONFIG": str(world.files[name]),
            "R_LIBS_USER": library or "",
        }
        said = rscript(BY_DATASHIELD, str(study), str(answer), by, wait_s, **environment | changes)
        assert not any(word in said for word in LOGGED)
        return said.rsplit(maxsplit=1)[-1]

    assert task("south", "3") == "not-yet"
    assert task("north", "200", TACIT_AGENT_CONFIG=str(world.folder / "nowhere.toml")) == "failed"
    assert not answer.exists()
    assert task("north", "200", TACIT_AGENT_LOG=str(world.folder / "agent.log")) == "answered"
    assert "study_taken_in" in (world.folder / "agent.log").read_text()
    assert world.spent("north") == [digest]
    assert say("study", "deliver", str(answer), "--party", str(world.files["ann"]))[0] == 0
