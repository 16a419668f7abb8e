"""What others wrote cannot steer a terminal, whichever command prints it: the tree of commands is walked.

The services here are as hostile as any can be: every text that they answer is hostile, and reaches the
command through the real clients. Results are real ones, of studies whose titles, columns and levels are
hostile.
"""

import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import typer
from command_lines import LINES, MARK
from curator_answers import HELD
from forked_python import commands_forked
from signed_study import signed_transcript

from tacit import local
from tacit.client.http import HttpRequest, HttpResponse
from tacit.client.transport import HttpTransport
from tacit.command import _report_fault
from tacit.command import app as app_module
from tacit.command.connect import become
from tacit.setup import doctor, processes
from tacit.setup.configuration import toml_value
from tacit.setup.keys import load_key
from tacit_protocol.messages.catalogue import CatalogueMessage, PublishedDataSet
from tacit_protocol.messages.encoding import digest, encode
from tacit_protocol.messages.problems import problem_document
from tacit_protocol.messages.study import DeclineMessage, Party, Study, VerdictMessage
from tacit_protocol.signing import (
    CATALOGUE_TYPE,
    DECLINE_TYPE,
    STUDY_TYPE,
    VERDICT_TYPE,
    PrivateKey,
    sign_envelope,
)
from tacit_protocol.terminal import printable

Run = Callable[..., tuple[int, str, str]]

NAME = f"[/bold][red]:smile:{MARK}\x1b]0;owned\x07\x1b[2J\x9b31m\u202e\u2066\u200b\r\n\x08\x7f"
"""Markup that closes what is not open, an emoji's code, escapes in 7 and 8 bits, directions, line ends."""

LONG = NAME + "\x00" + "\U0001f600" + "x" * 3000
"""With NUL, a wide character, and without end: what a message may not hold and an answer may."""

WORST = LONG.replace("xxx", "\udc9bx", 1)
"""With half a character, which clients refuse wherever they write an answer down again."""

COMMAND = typer.main.get_command(app_module.command_tree())


def commands(command: Any = COMMAND, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Every command of the tree, by its words."""
    if hasattr(command, "commands"):
        for name, child in command.commands.items():
            yield from commands(child, (*path, name))
    else:
        yield " ".join(path), command


LEAVES = dict(commands())


def steering(text: str) -> set[str]:
    """The characters of an output that a terminal would not simply show; line ends are our own."""
    return {c for c in text.replace("\n", "") if not c.isprintable()}


@pytest.fixture(autouse=True)
def _forked() -> Iterator[None]:
    """The agent's own commands, which data check and doctor run, begin with their imports done."""
    with commands_forked(doctor), commands_forked(processes):
        yield


def require_harmless(out: str, err: str) -> None:
    for stream in (out, err):
        assert steering(stream) == set(), stream
        assert "\U0001f604" not in stream, "an emoji's code was drawn"
        assert "Traceback" not in stream, stream
        assert all(len(line) <= 4500 for line in stream.splitlines())


# What anyone may type, or a script may pass on.


@pytest.mark.sweep(16)
@pytest.mark.parametrize("words", sorted(LEAVES))
def test_no_command_echoes_what_it_is_given_as_it_is(
    words: str, tacit: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every command, new ones too: options that it has to have, one it does not have, wrong ones."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "execv", lambda *_: sys.exit(0))  # in the place of this process
    hostile = NAME.replace("\r\n", "") + "\udc9b"
    wrong = [["--" + hostile]]
    needed: list[str] = []
    for parameter in LEAVES[words].params:
        is_argument = parameter.param_type_name == "argument"
        if parameter.required:
            needed += [hostile] if is_argument else [parameter.opts[-1], hostile]
        elif is_argument:
            wrong.append([hostile])
    if needed:
        wrong.append(needed)
    if words not in {"demo", "study schema", "version", "data check", "doctor"}:
        wrong += [
            [*needed, "--config", hostile],
            [*needed, "--party", hostile],
            [*needed, "--owner", hostile],
        ]
    monkeypatch.setattr("sys.stdin", io.StringIO(""))  # nobody answers questions
    for arguments in wrong:
        for as_json in ([], ["--json"]):
            code, out, err = tacit(*words.split(), *arguments, *as_json)
            require_harmless(out, err)
            assert code in {0, 1, 2, 130}, (arguments, err)  # 130: a question that nobody answered


# What services answer.


STANDING = {name: value for name, value in HELD.items() if name.endswith(("_micro", "_pico", "_percent"))}
"""What an account says of its shares."""


class HostileService:
    """Answers every request of every client; whatever may be text is hostile."""

    def __init__(self, folder: Path) -> None:
        self.tester, self.analyst = (
            load_key(folder / "tester/tester.pem"),
            load_key(folder / "party/party.pem"),
        )
        result = _counted()
        study = result.source.study
        owners = tuple(owner.model_copy(update={"key": f"{i:064x}"}) for i, owner in enumerate(study.owners))
        self.study = Study.model_validate_json(
            study.model_copy(
                update={
                    "title": NAME.strip() + "?",
                    "owners": owners,
                    "tester": Party(name="tester", key=self.tester.public_hex),
                    "analyst": Party(name="ann", key=self.analyst.public_hex),
                    "unit_column": WORST_COLUMN,
                    "created_at": 1,
                    "deadline": 2**33,
                }
            ).model_dump_json()
        )
        payload = encode(self.study)
        self.digest = digest(payload)
        self.envelope = sign_envelope(payload, STUDY_TYPE, self.analyst)
        verdict = VerdictMessage(
            study=self.digest,
            outcome="incomplete",
            releases={},
            missing=("n", "s"),
            software=printable(NAME)[:60],
        )
        self.verdict = sign_envelope(encode(verdict), VERDICT_TYPE, self.tester)
        self.transcript = _transcript()
        self.owner = PrivateKey.generate()
        published = PublishedDataSet(
            name="p", about=NAME, other_columns=(NAME[:100],), measures={NAME[:100]: NAME[:50]}
        )
        catalogue = CatalogueMessage(
            owner="n",
            tester=self.tester.public_hex,
            version=1,
            data_sets=(published,),
            procedures=(NAME[:60],),
        )
        self.catalogue = sign_envelope(encode(catalogue), CATALOGUE_TYPE, self.owner)
        self.refuses = False
        self.text = LONG
        self.asked: list[str] = []

    def send(self, request: HttpRequest) -> HttpResponse:
        self.asked.append(f"{request.method} {request.path}")
        if self.refuses:
            content = problem_document("forbidden", detail=self.text) | {
                "title": self.text,
                "advice": self.text,
            }
            return _json(403, content)
        last = request.path.rsplit("/", 1)[-1]
        exact = {"envelope": self.envelope, "verdict": self.verdict, "transcript": self.transcript}
        if last in exact:
            return HttpResponse(200, {}, exact[last])
        if "/catalogue/" in request.path:
            return HttpResponse(200, {}, self.catalogue)
        return _json(200, self._answer(request, last))

    def _answer(self, request: HttpRequest, last: str) -> dict[str, Any]:
        item = self._item()
        match request.method, last:
            case "GET", "owners" | "invitations" | "data-sets" | "studies" | "ledger":
                return {"items": [item], "next": None}
            case "GET", "users":
                return {"items": [item | {"email": self.text, "added_at": 7, "removed_at": 7}], "next": None}
            case "GET", "record":
                changed = {"at": 7, "person": self.text, "action": self.text, "detail": {"name": self.text}}
                return {"entries": [changed], "fault": self.text}
            case "GET", "catalogue":
                return {
                    "items": [{"owner": "n", "version": 1}, {"owner": self.text, "version": 1}],
                    "next": None,
                }
            case "GET", "parties":
                known = {"ann": (self.analyst.public_hex, "analyst"), "n": (self.owner.public_hex, "owner")}
                known["s"] = ("2" * 64, "owner")
                named = [{"name": n, "key": k, "role": r} for n, (k, r) in known.items()]
                return {"items": [item, *named], "next": None}
            case "GET", "verification":
                account = {"head_hash": "cd" * 32, "data_set": self.text, "entries": 1, "standing": STANDING}
                return {"ok": False, "accounts": [account], "faults": [self.text]}
            case "GET", "status":
                return item | {"studies": {self.text: 3}, "party": {"name": self.text, "key": "00" * 32}}
        return item

    def _item(self) -> dict[str, Any]:
        """Every field that any answer may have."""
        texts = (
            "name role state audience software title procedure data_set account owner unit_column invitation "
            "reason problem plain_words url path used_by"
        )
        return {
            **dict.fromkeys(texts.split(), self.text),
            "key": self.tester.public_hex,
            "digest": self.digest,
            "study": self.digest,
            "state": "waiting-for-approval" if "agent" in str(self.asked) else self.text,
            "owners": [
                dict.fromkeys(("name", "owner", "decision", "decided_by", "account"), self.text)
                | {"sent": False, "declined": False, "decided_at": 1}
            ],
            "accounts": [{"account": self.text} | STANDING],
            "data_sets": [{"name": self.text, "units": 3} | STANDING],
            "columns": [{"kind": "numeric", "name": self.text, "lower": 0, "upper": 1}],
            "policy": {"approval": self.text},
            "progress": {"fraction": 0.5, "step": self.text},
            "warnings": [self.text],
            "reuses": [{"owner": self.text, "study": self.digest}],
            "reused_by": [{"owner": self.text, "study": self.digest}],
            **dict.fromkeys(
                (
                    *("epsilon_micro", "delta_pico", "epsilon_cap_micro", "delta_cap_pico", "deadline", "at"),
                    *("release_size", "sequence", "rows"),
                    *STANDING,
                    *("units", "created_at", "expires_at", "revoked", "revoked_at"),
                ),
                7,
            ),
            "finding": {},
            "found_at": 7,
            "tester": {"url": self.text, "key": self.tester.public_hex},
            "last_poll_at": 7,
            "ready": True,
            "uploaded_at": None,
        }


RELEASED = "released.parquet"

WORST_COLUMN = (NAME.strip() + "unit")[:128]


def _json(status: int, fields: dict[str, Any]) -> HttpResponse:
    media = "application/problem+json" if status >= 400 else "application/json"
    return HttpResponse(status, {"content-type": media}, json.dumps(fields).encode())


@cache
def _counted() -> Any:
    """A real result of two owners, whose column and one of whose levels are hostile."""
    frames = [_table(seed) for seed in (1, 2)]
    bounds = {NAME: ["a", NAME]}
    return local.noisy_counts(*frames, epsilon=5.0, bounds=bounds, columns=[NAME], names=("n", "s"))


@cache
def _transcript() -> bytes:
    return signed_transcript(_counted(), title=NAME.strip() + "?")


def _table(seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return pd.DataFrame({NAME: rng.choice(["a", NAME], 60), "age": rng.random(60)})


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with everyone's files, which the commands themselves wrote, named as badly as files can be."""
    folder = tmp_path_factory.mktemp("home")
    key, source = "ab" * 32, folder / "rows.csv"
    source.write_text(f'"{NAME.replace(chr(13) + chr(10), "")}",age\na,1\n', encoding="utf-8")
    at = ["--tester-url", "http://127.0.0.1:9", "--tester-key", key]
    agent = ["agent", "init", "--folder", str(folder / "agent"), "--name", "north", "--data-set", "patients"]
    owner = ["owner", "init", "--folder", str(folder / "owner"), "--name", "north"]
    for arguments in (
        ["tester", "init", "--folder", str(folder / "tester")],
        ["party", "init", "--folder", str(folder / "party"), "--name", "ann", *at],
        [*agent, *at, "--source", str(source), "--epsilon", "3", "--delta", "1e-5"],
        ["curator", "init", "--folder", str(folder / "curator"), "--name", "registry", *at],
        [*owner, "--curator-url", "http://127.0.0.1:9", "--curator-key", key],
    ):
        assert app_module.run(arguments) == 0
    own = load_key(folder / "tester/tester.pem").public_hex
    for file in folder.rglob("*.toml"):
        file.write_text(file.read_text().replace(key, own))
    return folder


@pytest.fixture
def service(home: Path, monkeypatch: pytest.MonkeyPatch) -> HostileService:
    there = HostileService(home)
    monkeypatch.setattr(HttpTransport, "send", there.send)
    monkeypatch.chdir(home)
    return there


OWN = {
    # One's own files, keys and questions, and constants.
    *("tester init", "agent init", "curator init", "owner init", "party init", "agent certificate"),
    *(f"plan {verb}" for verb in ("power", "curve", "smallest", "choice", "locations")),
    *("demo", "study schema", "version"),
    # Become a service, which writes JSON lines; or run in the place of the command.
    *(
        "tester serve",
        "agent serve",
        "agent answer",
        "curator serve",
        "tester work",
        "tester archive",
        "tester verify-archive",
    ),
    *(f"data align {verb}" for verb in ("key", "make", "compare", "list", "forget")),
    # Names a data set as one typed it.
    *("agent unlock", "owner unlock", "curator unlock"),
}
"""Commands that print nothing of others'."""


def test_every_command_is_run_with_hostile_names_or_says_why_not() -> None:
    assert set(LINES) | OWN == set(LEAVES)
    assert not set(LINES) & OWN


@pytest.fixture
def files(home: Path, service: HostileService) -> None:
    """Documents of real results, in the folder where the commands run."""
    (home / "transcript.json").write_bytes(service.transcript)
    declined = encode(DeclineMessage(study=service.digest, party="north"))
    (home / "answer.dsse").write_bytes(sign_envelope(declined, DECLINE_TYPE, PrivateKey.generate()))
    if not (home / RELEASED).exists():
        bounds = {"age": (0, 1), NAME: ["a", NAME]}
        frame = pd.concat([_table(1)] * 20)
        local.release_database(frame, epsilon=5.0, delta=1e-5, bounds=bounds, n_points=10, seed=3).to_parquet(
            home / RELEASED
        )
    name = toml_value(NAME)
    title = toml_value(NAME.strip())
    (home / "draft.toml").write_text(
        f'title = {title}\nprocedure = "noisy_counts"\nepsilon = 1.0\ndelta = 0.0\n'
        f'columns = [{{kind = "categorical", name = {name}, levels = ["a", {name}]}}]\n'
        'owners = [{name = "n", data_set = "p"}, {name = "s", data_set = "p"}]\n'
    )
    (home / "data-set.toml").write_text(
        'name = "patients"\nepsilon = 3\ndelta = 3e-5\n[policy]\nepsilon_per_study_max = 1\n'
        'delta_per_study_max = 1e-5\nanalysts = ["*"]\n'
        f'[[columns]]\nkind = "numeric"\nname = {name}\nlower = 0\nupper = 120\n'
    )


SAYS_NOTHING_FOREIGN = {
    *(
        "study watch",
        "study cancel",
        "study envelope",
        "study deliver",
        "study transcript",
        "study create",
        "study report",
        "study adjust",
    ),
    *(
        "party revoke --invitation",
        "curator delete",
        "owner delete",
        "owner approve",
        "owner decline",
        "agent decline",
    ),
    *(
        f"{noun} users {verb}"
        for noun in ("party", "tester", "curator", "agent", "owner")
        for verb in ("add", "remove")
    ),
    *("agent approve", "agent send", "agent reuses", "agent result", "ledger export", "data check"),
    *("release expect", "release compare"),
    *("release sample", "release export", "doctor", "party invite", "curator invite", "owner register"),
    *("tester login", "agent login", "curator login", "party login", "owner login", "owner upload"),
    *("curator data-sets", "owner data-sets"),
}
"""Commands whose answer may be a digest, a figure or a refusal alone."""


PROCESSES = {"data check", "doctor"}
"""Commands that start processes, and are run once."""


@pytest.mark.sweep(12)
@pytest.mark.usefixtures("files")
@pytest.mark.parametrize("words", sorted(LINES))
def test_what_others_wrote_cannot_steer_the_terminal(
    words: str, tacit: Run, service: HostileService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    arguments = [service.digest if part == "DIGEST" else part for part in LINES[words]]
    code, out, err = tacit(*words.split(), *arguments)
    require_harmless(out, err)
    assert code in {0, 1, 2}, err
    if words not in SAYS_NOTHING_FOREIGN:
        assert MARK in out + err, "the hostile name is shown, as text"
    if words in PROCESSES:
        return
    _, out, err = tacit(*words.split(), *arguments, "--json")
    require_harmless(out, err)
    for stream in (out, err):
        if stream.strip():
            assert stream.isascii(), "JSON's own escapes"
            json.loads(stream)
    for service.text, service.refuses in ((WORST, False), (LONG, True)):
        require_harmless(*tacit(*words.split(), *arguments)[1:])


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize("words", ["study list", "study show", "verify", "curator studies"])
def test_nor_on_a_terminal_where_colours_are_drawn(
    words: str, tacit: Run, service: HostileService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where rich writes sequences of its own, there are no others."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    arguments = [service.digest if part == "DIGEST" else part for part in LINES[words]]
    _, out, err = tacit(*words.split(), *arguments)
    # Colours, and what redraws a line of progress.
    plain = re.sub(r"\x1b\[[0-9;?]*[mhlKA]|\r", "", out + err)
    assert steering(plain) == set()


# What runs in the place of the command, as a process of its own.


@pytest.mark.long
def test_an_archive_with_hostile_file_names_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names are bytes: escapes, and what is no UTF-8."""
    folder = tmp_path / "archive"
    folder.mkdir()
    (folder / "index.jsonl").touch()
    for name in (
        b"[red]:smile:\x1b]0;owned\x07.json",
        b"\xff\xfe\x9b2J.json",
        "a\u202eb\nfaults: 0".encode(),
    ):
        Path(os.fsdecode(bytes(folder) + b"/" + name)).touch()
    commands: list[Sequence[str]] = []
    monkeypatch.setattr(os, "execv", lambda _, command: commands.append(command))
    become("tester", None, "verify-archive", ["--archive", str(folder)])
    done = subprocess.run(commands[0], capture_output=True, check=False, timeout=120)
    out = done.stdout.decode("utf-8")
    require_harmless(out, done.stderr.decode("utf-8"))
    assert done.returncode == 1
    assert out.count("the index does not list it") == 3
    assert [line for line in out.splitlines() if line.startswith("faults")] == ["faults: 3"]


def test_logs_escape_whatever_is_logged() -> None:
    program = (
        "import structlog; from tacit_services.shared.logging import configure_logging; configure_logging();"
        f"structlog.get_logger().info({NAME!r}, path={(NAME + chr(0xDC9B))!r})"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=True, timeout=120, text=True
    )
    (line,) = done.stderr.splitlines()
    assert line.isascii()
    assert steering(line) == set()
    assert json.loads(line)["event"] == NAME


def test_a_fault_of_our_own_prints_a_harmless_trace(capsys: pytest.CaptureFixture[str]) -> None:
    try:
        raise ValueError(WORST)
    except ValueError as error:
        _report_fault(type(error), error, error.__traceback__)
    out, err = capsys.readouterr()
    assert steering(out + err) == set()
    assert MARK in err
