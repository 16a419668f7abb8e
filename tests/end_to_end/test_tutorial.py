"""The tutorials, run line by line as a reader would, on free ports."""

import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tacit.processes import free_ports

DOCS = Path(__file__).resolve().parents[2] / "docs"
PORTS = ("8400", "8711", "8712", "8720")
COMMAND = (sys.executable, "-c", "from tacit.command import main; main()")

Process = Callable[..., "subprocess.CompletedProcess[str]"]
Eventually = Callable[[Callable[[], Any]], Any]


class Reader:
    """Does what the page says, and keeps what commands printed for the words in capitals."""

    def __init__(self, folder: Path, tacit_process: Process, eventually: Eventually) -> None:
        self.folder, self.tacit, self.eventually = folder, tacit_process, eventually
        self.words = dict(zip(PORTS, map(str, free_ports(len(PORTS))), strict=True))
        self.services: list[subprocess.Popen[bytes]] = []
        self.verified = False

    def fill_in(self, text: str) -> str:
        for word, value in self.words.items():
            text = re.sub(rf"\b{word}\b", value, text)
        return text

    def do(self, language: str, block: str) -> None:
        text = self.fill_in(block)
        if language == "toml":
            named = re.match(r"# (\S+\.toml)\n", text)
            (self.folder / (named[1] if named else "study.toml")).write_text(text)
        elif language.startswith("python"):
            script = [sys.executable, "-c", text]
            done = subprocess.run(script, cwd=self.folder, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
        else:
            for line in block.splitlines():
                self.command(shlex.split(self.fill_in(line.removeprefix("$ tacit "))))

    def command(self, arguments: list[str]) -> None:
        if arguments[1:2] == ["serve"]:
            self.serve(arguments)
            return
        if arguments[:2] in (["agent", "approve"], ["curator", "approve"]):
            self.wait_for_study(arguments)
        done = self.tacit(*arguments, cwd=self.folder)
        assert done.returncode == 0, f"tacit {shlex.join(arguments)}\n{done.stdout}{done.stderr}"
        self.remember(arguments, done.stdout)

    def serve(self, arguments: list[str]) -> None:
        self.services.append(
            subprocess.Popen(
                [*COMMAND, *arguments], cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
        )
        port = re.search(r"^port = (\d+)", (self.folder / arguments[-1]).read_text(), re.MULTILINE)
        assert port is not None
        self.eventually(lambda: answers(f"http://127.0.0.1:{port.group(1)}/healthz"))

    def wait_for_study(self, arguments: list[str]) -> None:
        verb = ["agent", "inbox"] if arguments[0] == "agent" else ["curator", "studies"]
        inbox = [*verb, "--json", *arguments[-2:]]
        self.eventually(lambda: self.words["DIGEST"] in self.tacit(*inbox, cwd=self.folder).stdout)

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
        self.verified |= arguments[0] == "verify"

    def stop(self) -> None:
        for service in self.services:
            service.send_signal(signal.SIGTERM)
        for service in self.services:
            service.wait(120)


def answers(url: str) -> bool:
    try:
        return httpx.get(url, trust_env=False).status_code == 200
    except httpx.TransportError:
        return False


@pytest.fixture
def reader(tmp_path: Path, tacit_process: Process, eventually: Eventually) -> Iterator[Reader]:
    reader = Reader(tmp_path, tacit_process, eventually)
    yield reader
    reader.stop()


@pytest.mark.parametrize(("page", "services"), [("tutorial.md", 3), ("tutorial-curator.md", 2)])
def test_the_tutorial_works_line_by_line(reader: Reader, page: str, services: int) -> None:
    text = (DOCS / page).read_text("utf-8")
    blocks = re.findall(r"^```([a-z ]+)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert {language for language, _ in blocks} == {"console", "python", "python client", "toml"}
    for language, block in blocks:
        reader.do(language, block)
    assert reader.verified
    assert len(reader.services) == services
