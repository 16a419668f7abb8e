"""The tutorials, run line by line as a reader would, on free ports.

Services are processes of their own. Other commands run in this one, which saves a second for each of them.
"""

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from forked_python import forked_python

from tacit.command.app import run
from tacit.setup.processes import free_ports

ROOT = Path(__file__).resolve().parents[2]
TUTORIALS = ROOT / "docs" / "tutorials"
PORTS = ("8400", "8711", "8712", "8720", "3128")
COMMAND = (sys.executable, "-c", "from tacit.command import main; main()")

INBOXES = {"agent": ["agent", "studies", "--all"], "owner": ["owner", "studies"]}
"""How a service is asked which studies have come to it."""

PEOPLE = "age,smoker\n" + "".join(f"{18 + i % 73},{'yes' if i % 73 < 30 else 'no'}\n" for i in range(2000))
"""A file of one's own. Its dHSIC is a hundred scales of the noise, which hides it less than once in 10^9."""

Eventually = Callable[[Callable[[], Any]], Any]


class Reader:
    """Does what the page says, and keeps what commands printed for the words in capitals."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str], eventually: Eventually) -> None:
        self.folder, self.capsys, self.eventually = folder, capsys, eventually
        self.words = dict(zip(PORTS, map(str, free_ports(len(PORTS))), strict=True))
        self.programs: dict[str, Callable[[str], str]] = {}
        """What runs blocks of further languages, and returns what they printed."""
        self.services: list[Any] = []
        self.ran: list[list[str]] = []
        self.printed = ""

    def read(self, text: str) -> None:
        for language, block in re.findall(r"^```([a-z0-9 ]+)\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
            self.do(language, block)

    def fill_in(self, text: str) -> str:
        for word, value in self.words.items():
            text = re.sub(rf"\b{word}\b", value, text)
        return text

    def do(self, language: str, block: str) -> None:
        text = self.fill_in(block)
        if language == "toml":
            named = re.match(r"# (\S+\.toml)\n", text)
            (self.folder / (named[1] if named else "study.toml")).write_text(text)
        elif language in self.programs:
            self.printed += (said := self.programs[language](text))
            if digest := re.search(r"^Digest: ([0-9a-f]{64})\b", said, re.MULTILINE):
                self.words["DIGEST"] = digest[1]
        elif language in {"python", "python client"}:
            script = [sys.executable, "-c", text]
            done = subprocess.run(script, cwd=self.folder, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
        elif language == "console":
            for line in block.splitlines():
                self.command(shlex.split(self.fill_in(line.removeprefix("$ tacit "))))
        elif language == "sh":
            self.start(shlex.split(text.removesuffix(" &\n")), self.words["3128"])

    def command(self, arguments: list[str]) -> None:
        self.ran.append(arguments)
        if arguments[1:2] == ["serve"]:
            self.serve(arguments)
            return
        asked = arguments[0] in INBOXES and arguments[1] in {"studies", "show", "approve", "decline"}
        if asked and "DIGEST" in self.words:
            self.wait_for_study(arguments)
        if arguments[:2] == ["agent", "answer"]:  # it becomes the agent's program
            subprocess.run([*COMMAND, *arguments], cwd=self.folder, check=True, capture_output=True)
            return
        code, out, err = self.run(arguments)
        assert code == 0, f"tacit {shlex.join(arguments)}\n{out}{err}"
        self.printed += out
        self.remember(arguments, out)

    def run(self, arguments: list[str]) -> tuple[int, str, str]:
        self.capsys.readouterr()
        code = run(arguments)
        return code, *self.capsys.readouterr()

    def serve(self, arguments: list[str]) -> None:
        port = re.search(r"^port = (\d+)", (self.folder / arguments[-1]).read_text(), re.MULTILINE)
        with (self.folder / "services.log").open("ab") as log:
            command = [*COMMAND[1:], *arguments]
            service = forked_python().start(command, stdout=log, stderr=log, folder=self.folder)
        self.await_service(service, port.group(1))

    def start(self, command: list[str], port: str) -> None:
        """Start what is no service of ours."""
        program = [sys.executable if command[0] == "python" else command[0], *command[1:]]
        quiet = subprocess.DEVNULL
        self.await_service(subprocess.Popen(program, cwd=self.folder, stdout=quiet, stderr=quiet), port)

    def await_service(self, service: Any, port: str) -> None:
        """Wait until it listens."""
        self.services.append(service)
        self.eventually(lambda: listens(int(port)))

    def wait_for_study(self, arguments: list[str]) -> None:
        inbox = [*INBOXES[arguments[0]], "--json", *arguments[-2:]]
        self.eventually(lambda: self.words["DIGEST"] in self.run(inbox)[1])

    def remember(self, arguments: list[str], printed: str) -> None:
        keys = {"tester init": "TESTER_KEY", "curator init": "CURATOR_KEY"}
        if "".join(arguments[1:2]).endswith("init"):
            name = arguments[arguments.index("--name") + 1].upper() if "--name" in arguments else ""
            word = keys.get(" ".join(arguments[:2]), f"KEY_{name}")
            self.words[word] = re.findall(r"\b[0-9a-f]{64}\b", printed)[0]
        if arguments[1:2] == ["invite"]:
            name = arguments[arguments.index("--name") + 1].upper()
            self.words[f"INVITATION_{name}"] = printed.splitlines()[1].strip()
        if arguments[:2] == ["study", "create"] and "--dry-run" not in arguments:
            self.words["DIGEST"] = re.findall(r"^Created ([0-9a-f]{64})$", printed, re.MULTILINE)[0]
        if arguments[:3] == ["data", "align", "compare"]:
            self.words["ALIGNMENT"] = re.findall(r"\b[0-9a-f]{64}\b", printed)[-1]
        if arguments[:2] == ["ledger", "verify"]:
            self.words["HEAD"] = re.findall(r"\b[0-9a-f]{64}\b", printed)[0]

    def did(self, *words: str) -> bool:
        return any(arguments[: len(words)] == list(words) for arguments in self.ran)

    def stop(self) -> None:
        for service in self.services:
            service.send_signal(signal.SIGTERM)
        for service in self.services:
            service.wait(300)


def listens(port: int) -> bool:
    with socket.socket() as caller:
        return caller.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def reader(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    eventually: Eventually,
) -> Iterator[Reader]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    reader = Reader(tmp_path, capsys, eventually)
    yield reader
    reader.stop()


def text_of(page: str) -> str:
    return (TUTORIALS / page).read_text("utf-8")


@pytest.mark.long
@pytest.mark.slow
def test_the_first_study_needs_nothing_but_its_page_and_a_file(reader: Reader) -> None:
    own_text, title, someone_elses = text_of("first-study.md").partition("## No tester yet?")
    assert title
    (reader.folder / "people.csv").write_text(PEOPLE)
    reader.read(someone_elses)
    reader.read(own_text)
    assert "Verdict: the columns are not jointly independent" in reader.printed
    assert "Verified: " in reader.printed
    assert len(reader.services) == 2


@pytest.mark.long
@pytest.mark.slow
def test_the_stewards_tutorial_works_line_by_line(reader: Reader) -> None:
    reader.read(text_of("steward.md"))
    assert len(reader.services) == 2
    for verb in ("approve", "decline", "studies"):
        assert reader.did("agent", verb)
    inbox = ["agent", "studies", "--all", "--json", "--config", "north/agent.toml"]

    def states() -> list[str]:
        return sorted(re.findall(r'"state": "([a-z-]+)"', reader.run(inbox)[1]))

    # The tester may have its release, and its verdict, before the agent has noted that it was sent.
    reader.eventually(lambda: states() == ["declined", "refused", "sent"])
    code, status, _ = reader.run(["agent", "status", "--json", "--config", "north/agent.toml"])
    assert code == 0
    assert '"pure_spent_micro": 500000' in status


@pytest.mark.long
@pytest.mark.parametrize(
    ("page", "services"), [("analyst.md", 3), ("curator.md", 2), ("hospital-and-registry.md", 3)]
)
def test_the_tutorial_works_line_by_line(reader: Reader, page: str, services: int) -> None:
    reader.read(text_of(page))
    assert reader.did("verify")
    assert len(reader.services) == services


@pytest.mark.long
def test_the_engineers_afternoon_works_as_far_as_this_machine_allows(
    reader: Reader, mariadb_url: str, rscript: Callable[..., str]
) -> None:
    """A proxy, an authority, MariaDB and R; without vantage6 all but its block, and then it says so."""
    engine = sa.create_engine(mariadb_url.replace("mariadb:", "mariadb+pymysql:"))

    def sql(text: str) -> str:
        with engine.connect() as connection:
            for statement in ("DROP DATABASE IF EXISTS hospital", *filter(str.strip, text.split(";"))):
                connection.exec_driver_sql(statement.replace("%", "%%"))
        return ""

    vantage6 = os.environ.get("TACIT_VANTAGE6_PYTHON")

    def task(text: str) -> str:
        if vantage6 is None:
            return "vantage6 is not here"
        program = str(Path(sys.executable).with_name("tacit"))
        environment = os.environ | {"TACIT_COMMAND": program}
        run = [vantage6, "-c", text]
        subprocess.run(run, cwd=reader.folder, check=True, env=environment, capture_output=True)
        carried.append((reader.folder / "south.dsse").read_bytes())
        return ""

    carried: list[bytes] = []
    reader.programs = {
        "sql": sql,
        "python vantage6": task,
        "r": lambda text: rscript(text, cwd=reader.folder),
    }
    reader.words |= {"CHECKOUT": str(ROOT), "SOCKET": mariadb_url.partition("unix_socket=")[2]}
    reader.read(text_of("engineer.md"))
    assert len(reader.services) == 3
    assert "Verified: " in reader.printed
    assert "tester proxy" in reader.printed  # the doctor's hop
    assert carried in ([], [(reader.folder / "south.dsse").read_bytes()])
    if vantage6 is None:
        pytest.skip("all of the page ran but vantage6's block: TACIT_VANTAGE6_PYTHON names no Python")


def test_every_tutorial_is_run() -> None:
    names = {path.name for path in TUTORIALS.glob("*.md")}
    pages = {
        "first-study.md",
        "steward.md",
        "analyst.md",
        "curator.md",
        "hospital-and-registry.md",
        "engineer.md",
    }
    assert names == pages
