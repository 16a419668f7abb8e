"""The command: exit codes, errors for programs, files that keep secrets, no surprise before sending."""

import json
import stat
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from tacit import Client
from tacit.command import connect
from tacit.command.app import command_tree
from tacit.errors import ConfigurationError, InputError
from tacit.setup.configuration import read_party, read_toml, toml_text
from tacit.setup.keys import load_key
from tacit.studies.draft import parse_columns, parse_owner, parse_parameter
from tacit_protocol.domain import CategoricalColumn, NumericColumn
from tacit_protocol.signing import PrivateKey, certify

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def at_tester(client: Client, memory_tester: Any) -> Any:
    """The tester in memory, to which `--party` leads."""
    return memory_tester


@pytest.fixture
def draft_file(tmp_path: Path, draft: dict[str, Any]) -> Path:
    file = tmp_path / "study.toml"
    file.write_text(toml_text(draft))
    return file


STATISTICS = {"numpy", "scipy", "pyarrow", "opendp", "fastapi", "pandas", "tacit_protocol.procedures.base"}
"""What takes seconds to import, and what a command that asks a service for a list has no use for."""

BROUGHT_ALONG = {"tenacity", "tornado", "click", "pygments", "rich.progress", "rich.syntax"}
"""What libraries import for uses that a command which asks a service never makes of them."""

ASK = """
from contextlib import suppress
from tacit.command import main
sys.argv = ['tacit', 'study', 'list', '--json']
with suppress(SystemExit):
    main()
assert 'tacit.client.tester' in sys.modules
"""

CLIENTS = {"httpx", "pydantic", "cryptography", "tacit_protocol.messages.study"}

OTHER_NOUNS = {f"tacit.command.{noun}" for noun in ("agent", "curator", "demo", "party", "plan", "release")}
"""Modules of commands that were not named."""


@pytest.mark.parametrize(
    ("statement", "heavy"),
    [
        ("from tacit.command.app import run; run(['--help'])", STATISTICS | CLIENTS),
        ("from tacit.command.app import run; run(['study', 'list'])", STATISTICS | OTHER_NOUNS),
        (
            "import tacit.command.app, tacit.client.tester, tacit.client.curator",
            STATISTICS | {"tenacity", "tornado"},
        ),
        (ASK, STATISTICS | BROUGHT_ALONG | OTHER_NOUNS),
    ],
)
def test_commands_that_compute_nothing_import_no_statistics(
    statement: str, heavy: set[str], tmp_path: Path
) -> None:
    script = f"import sys\n{statement}\nsys.exit(' '.join({heavy!r} & set(sys.modules)) or 0)"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_missing_file_exits_with_1_and_says_what_to_do(tacit: Run, tmp_path: Path) -> None:
    none = str(tmp_path / "none.toml")
    code, out, err = tacit("study", "list", "--party", none, "--json")
    assert (code, out) == (1, "")
    told = json.loads(err)
    assert (told["error"], "make one with init" in told["message"]) == ("ConfigurationError", True)
    for verb in ("serve", "work"):
        assert tacit("tester", verb, "--config", none)[0] == 1


@pytest.mark.parametrize("noun", ["tester", "party", "owner", "agent", "curator"])
def test_init_writes_secrets_that_only_their_owner_reads_and_never_overwrites(
    tacit: Run, tmp_path: Path, noun: str
) -> None:
    folder, other = tmp_path / noun, "curator" if noun == "owner" else "tester"
    asked = {"--name": "x", f"--{other}-url": "https://x.example/", f"--{other}-key": "ab" * 32}
    flags = {} if noun == "tester" else AGENT if noun == "agent" else asked
    init = (noun, "init", "--folder", str(folder), *(part for pair in flags.items() for part in pair))
    code, out, err = tacit(*init, "--json")
    assert code == 0, err
    secrets = {file: file.read_bytes() for file in (*folder.glob("*.pem"), *folder.glob("*.key"))}
    assert {file.name for file in secrets} == {f"{noun}.pem"} | (
        {"storage.key"} if noun == "curator" else set()
    )
    assert {stat.S_IMODE(file.stat().st_mode) for file in secrets} == {0o600}
    assert json.loads(out)["key"] == PrivateKey.from_pem(secrets[folder / f"{noun}.pem"]).public_hex
    code, _, err = tacit(*init)
    assert (code, "never overwritten" in err) == (1, True)
    assert {file: file.read_bytes() for file in secrets} == secrets


def test_an_agents_files_say_what_was_asked_for(tacit: Run, tmp_path: Path) -> None:
    folder, key = tmp_path / "north", "ab" * 32
    code, _, err = tacit(
        *("agent", "init", "--folder", str(folder), "--name", "north", "--tester-key", key),
        *("--tester-url", "https://tester.example/", "--data-set", "patients", "--source", "a.csv"),
        *("--epsilon", "3", "--delta", "3e-5", "--column", "age", "--unit-column", "id"),
    )
    assert code == 0, err
    agent, policy = read_toml(folder / "agent.toml"), read_toml(folder / "policy.toml")
    assert agent["data_sets"] == [
        {
            "name": "patients",
            "source": str(Path("a.csv").resolve()),
            "unit_column": "id",
            "epsilon": 3.0,
            "delta": 3e-5,
        }
    ]
    assert policy["approval"] == "by-hand"
    assert policy["data_sets"] == {"patients": {"columns": ["age"]}}
    party = read_party(folder / "agent.toml")
    assert (party.name, party.tester.url, party.tester.key) == ("north", "https://tester.example", key)
    certificate = tacit("agent", "certificate", "--config", str(folder / "agent.toml"), "--json")[1]
    assert json.loads(certificate) == certify(load_key(folder / "agent.pem")).model_dump()


def test_creating_shows_the_cost_and_then_sends(tacit: Run, at_tester: Any, draft_file: Path) -> None:
    code, out, _ = tacit("study", "create", str(draft_file))
    assert code == 0
    assert "every owner spends epsilon 1, delta 1e-05, and sends 7 noisy numbers" in out
    (digest,) = at_tester.envelopes
    assert digest in out


def test_a_study_can_be_written_in_flags(tacit: Run, client: Client) -> None:
    code, out, err = tacit(
        *("study", "create", "--title", "Alike?", "--procedure", "quick", "--epsilon", "1", "--delta", "0"),
        *("--column", "age:0:120", "--column", "sex=F,M", "--json"),
        *("--owner", "north/patients:100", "--owner", "south/patients"),
        *("--level", "0.01", "--unit-column", "id", "--open-for-hours", "24"),
    )
    assert code == 0, err
    assert json.loads(out)["units_declared"] is False
    study = client.study_content(json.loads(out)["digest"])
    assert (study.level, study.unit_column, study.deadline - study.created_at) == (0.01, "id", 86_400)


SCREENING = (
    *("study", "create", "screening", "--epsilon", "4", "--delta", "1e-5"),
    *("--column", "age:0:120", "--column", "dose:0:1", "--column", "sex=F,M", "--column", "score:0:10"),
    *("--owner", "north/patients:30000=age,dose,sex", "--owner", "south/patients:30000=score"),
)


def test_a_screening_is_asked_for_by_name(tacit: Run, at_tester: Any) -> None:
    code, out, err = tacit(*SCREENING, "--dry-run")
    assert code == 0, err
    assert "Which of one owner's columns depend on another's outcome?" in out
    assert "3 columns of north against score of south; false discovery rate at most 0.05" in out
    assert "Nothing was sent" in out
    assert at_tester.envelopes == {}
    assert tacit(*SCREENING, "--title", "Score?")[0] == 0
    assert len(at_tester.envelopes) == 1
    few = tacit(*(word.replace(":30000", ":100").replace("4", "0.1") for word in SCREENING))
    assert few[0] == 1
    assert "Hopeless" in few[1], few
    assert "named twice" in tacit(*SCREENING, "--procedure", "quick")[2]


def test_flags_are_read_strictly() -> None:
    assert parse_columns(["a:b:0:1", "sex=F,M"]) == {
        "a:b": NumericColumn(name="a:b", lower=0.0, upper=1.0),
        "sex": CategoricalColumn(name="sex", levels=("F", "M")),
    }
    assert parse_owner("north/patients:30") == {"name": "north", "data_set": "patients", "units": 30}
    assert parse_owner("north/patients@ab=age,sex")["columns"] == ["age", "sex"]
    assert parse_parameter("features=me") == ("features", "me")
    assert parse_parameter("n_features=5") == ("n_features", 5)
    for wrong in ("age", "age:0", "age:a:b", "=F", "sex=F", "age:1:0"):
        with pytest.raises(InputError, match="--column"):
            parse_columns([wrong])
    for wrong in ("north", "north/patients:many", "north/patients="):
        with pytest.raises(InputError, match="--owner"):
            parse_owner(wrong)


def test_watching_a_completed_study_exits_with_0(tacit: Run, at_tester: Any, draft_file: Path) -> None:
    tacit("study", "create", str(draft_file))
    (digest,) = at_tester.envelopes
    at_tester.end(digest)
    code, out, _ = tacit("study", "watch", digest[:8])
    assert code == 0
    assert "DIFFERENT populations" in out
    assert "north and south" in out
    shown = json.loads(tacit("study", "watch", digest, "--json")[1])
    assert shown["result"]["pvalue"] == 0.001
    assert json.loads(tacit("study", "show", digest[:8], "--json")[1])["verdict"] == shown


def test_a_verdict_cannot_write_on_the_terminal(tacit: Run, at_tester: Any, draft_file: Path) -> None:
    tacit("study", "create", str(draft_file))
    (digest,) = at_tester.envelopes
    evil = "\x1b[2J\u202e[red]x[/red]"
    at_tester.end(digest, result=at_tester.result | {"method": evil, "warnings": [evil]})
    out = tacit("study", "watch", digest)[1]
    assert "[red]x[/red]" in out
    assert not {"\x1b", "\u202e"} & set(out)


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff", b'{"format":"tacit/transcript/1"}'])
def test_what_is_no_transcript_is_not_verified(tacit: Run, tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "transcript.json"
    file.write_bytes(content)
    assert tacit("verify", str(file))[0] == 1
    assert tacit("study", "verify", str(file), "--json")[0] == 1


@pytest.mark.parametrize("beginning", ["abc", "abcd"])
def test_a_digest_that_is_not_clear_is_refused(tacit: Run, at_tester: Any, beginning: str) -> None:
    assert tacit("study", "cancel", beginning)[0] == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("study", "list", "--nonsense"), "No such option: --nonsense"),
        (("study", "lst"), "No such command 'lst'"),
        (("agent", "init", "--port", "many"), "--port"),
        (("verify",), "Missing argument"),
    ],
)
def test_wrong_use_is_json_where_json_is_asked_for(
    tacit: Run, arguments: tuple[str, ...], words: str
) -> None:
    code, out, err = tacit(*arguments, "--json")
    assert (code, out) == (2, "")
    told = json.loads(err)
    assert told["error"] == "UsageError"
    assert words in told["message"]
    assert "--help" in told["message"]
    # People get the same in words.
    code, _, err = tacit(*arguments)
    assert code == 2
    assert not err.startswith("{")


AGENT = {
    "--name": "north", "--tester-url": "https://t.example", "--tester-key": "ab" * 32,
    "--data-set": "patients", "--source": "a.csv", "--epsilon": "3", "--delta": "1e-5",
}  # fmt: skip


@pytest.mark.parametrize(
    ("flag", "value", "words"),
    [
        ("--tester-url", "tester.example", "https://tester.example"),
        ("--tester-key", "x", "64 hexadecimal digits"),
        ("--epsilon", "nan", "a number, such as 0.5"),
        ("--delta", "1", "delta of the data set"),
        ("--epsilon-per-study", "-1", "epsilon per study"),
        ("--approval", "maybe", "by-hand or automatic"),
    ],
)
def test_init_writes_nothing_that_no_service_could_use(
    tacit: Run, tmp_path: Path, flag: str, value: str, words: str
) -> None:
    folder = tmp_path / "north"
    flags = [part for pair in (AGENT | {flag: value}).items() for part in pair]
    code, _, err = tacit("agent", "init", "--folder", str(folder), *flags)
    assert code == 2
    assert words in " ".join(err.split())
    assert not folder.exists()


def test_what_runs_in_the_place_of_the_command_gets_its_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    became: list[list[str]] = []
    monkeypatch.setattr(connect.os, "execv", lambda _, command: became.append(command[1:]))
    config = tmp_path / "tester.toml"
    config.touch()
    archive = ["archive", "--config", str(config)]
    options = ["--before", "2026-01-31", "--to", "archive", "--state", "cancelled", "--delete"]
    verify = ["verify-archive", "--archive", "archive", "--tester-key", "ab" * 32, "--tester-key", "cd" * 32]
    for command in ([*archive, *options], verify):
        assert CliRunner().invoke(command_tree(), ["tester", *command]).exception is None
    assert became == [["-m", "tacit_services.tester", *command] for command in ([*archive, *options], verify)]
    for named in ([], ["--before", "2026-01-31", "--older-than", "3"]):
        wrong = CliRunner().invoke(command_tree(), ["tester", *archive, "--to", "archive", *named]).exception
        assert isinstance(wrong, ConfigurationError)
    assert len(became) == 2


def test_every_init_checks_the_key_that_it_pins(tacit: Run, tmp_path: Path) -> None:
    for noun, verb, other in (
        ("party", "init", "tester"),
        ("curator", "init", "tester"),
        ("owner", "init", "curator"),
    ):
        address = (f"--{other}-url", "https://x.example", f"--{other}-key", "AB" * 32)
        code, _, err = tacit(noun, verb, "--folder", str(tmp_path / verb), "--name", "x", *address)
        assert code == 2
        assert f"the {other}'s key" in err
        assert not (tmp_path / verb).exists()


def test_the_version_is_an_option_too(tacit: Run) -> None:
    from tacit import __version__  # noqa: PLC0415

    for given in (("--version",), ("-V",), ("version",)):
        assert tacit(*given) == (0, f"tacit {__version__}\n", "")


def completed(words: str, **environment: str) -> list[str]:
    """What bash is offered at the end of these words, by the command as a process of its own."""
    place = str(len(words.split(" ")) - 1)
    told = {"_TACIT_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": place}
    done = subprocess.run(
        [sys.executable, "-c", "import sys; sys.argv = ['tacit']; from tacit.command import main; main()"],
        env={"PATH": "/usr/bin:/bin", **told, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.split()


@pytest.mark.long
def test_shells_complete_procedures_and_data_sets_and_nothing_where_nobody_answers(tmp_path: Path) -> None:
    assert completed("tacit plan power kernel") == ["kernel_two_sample"]
    assert {"survival", "screening", "stratified_table"} <= set(completed("tacit study create s"))
    file = tmp_path / "agent.toml"
    file.write_text('[[data_sets]]\nname = "heart"\n[[data_sets]]\nname = "hips"\n')
    assert completed(f"tacit ledger show --config {file} --data-set he") == ["heart"]
    for words in ("tacit agent show ab", "tacit study show ab", "tacit study create --owner no"):
        assert completed(words, TACIT_PARTY=str(tmp_path / "none.toml")) == []


def test_digests_of_studies_are_completed_from_the_tester(
    client: Client, draft: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = client.create_study(draft)
    context: Any = SimpleNamespace(params={}, command_path="tacit study show")
    monkeypatch.setattr(connect, "_client_of", lambda _: nullcontext(client))
    assert connect.digests(context, digest[:5]) == [(digest, draft["title"])]
    assert connect.digests(context, "zz") == []
