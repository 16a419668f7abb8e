"""The command: exit codes, errors for programs, files that keep secrets, no surprise before sending."""

import json
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tacit import Client
from tacit.client.http import HttpResponse
from tacit.command import connect
from tacit.errors import InputError
from tacit.setup.configuration import read_party, read_toml, toml_text
from tacit.studies.draft_flags import parse_column, parse_owner, parse_parameter
from tacit_protocol.signing.keys import PrivateKey

RESULT = {
    "statistic": 1.0,
    "pvalue": 0.5,
    "reject": False,
    "method": "a method",
    "units": {"north": 10},
    "warnings": [],
    "squared_mmd": None,
    "pairs": [],
    "columns": [],
}

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def at_tester(memory_tester: Any, analyst_key: PrivateKey, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Make `--party` lead to the tester in memory."""

    @contextmanager
    def client(_: Path) -> Iterator[Client]:
        yield Client(
            "https://tester.example",
            analyst_key,
            tester_key=memory_tester.key.public_hex,
            transport=memory_tester,
            sleep=lambda _: None,
        )

    monkeypatch.setattr(connect, "party_client", client)
    return memory_tester


@pytest.fixture
def draft_file(tmp_path: Path, draft: dict[str, Any]) -> Path:
    file = tmp_path / "study.toml"
    file.write_text(toml_text(draft))
    return file


def test_help_imports_nothing_heavy() -> None:
    script = (
        "import sys; from tacit.command.app import run; code = run(['--help']);"
        "heavy = {'numpy', 'scipy', 'httpx', 'pydantic', 'cryptography', 'tacit_protocol.messages.study'};"
        "sys.exit(code or sorted(heavy & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_wrong_use_exits_with_2(tacit: Run, tmp_path: Path) -> None:
    assert tacit("study", "nonsense")[0] == 2
    assert tacit("study", "create", "--party", str(tmp_path / "none"))[0] == 2
    code, _, err = tacit("study", "create", str(tmp_path / "none.toml"))
    assert code == 2
    assert "cannot read" in err


def test_a_missing_file_exits_with_1_and_says_what_to_do(tacit: Run, tmp_path: Path) -> None:
    code, out, err = tacit("study", "list", "--party", str(tmp_path / "party.toml"))
    assert (code, out) == (1, "")
    assert "make one with init" in err
    for verb in ("serve", "work"):
        assert tacit("tester", verb, "--config", str(tmp_path / "tester.toml"))[0] == 1


def test_an_error_is_json_where_json_is_asked_for(tacit: Run, tmp_path: Path) -> None:
    code, out, err = tacit("study", "list", "--party", str(tmp_path / "party.toml"), "--json")
    assert (code, out) == (1, "")
    assert json.loads(err)["error"] == "ConfigurationError"


def test_init_writes_keys_that_only_their_owner_reads_and_never_overwrites(
    tacit: Run, tmp_path: Path
) -> None:
    folder = tmp_path / "tester"
    code, out, _ = tacit("tester", "init", "--folder", str(folder), "--json")
    assert code == 0
    key_file = folder / "tester.pem"
    assert stat.S_IMODE(key_file.stat().st_mode) == 0o600
    assert json.loads(out)["key"] == PrivateKey.from_pem(key_file.read_bytes()).public_hex
    before = key_file.read_bytes()
    code, _, err = tacit("tester", "init", "--folder", str(folder))
    assert code == 1
    assert "never overwritten" in err
    assert key_file.read_bytes() == before


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


def test_creating_shows_the_cost_and_then_sends(tacit: Run, at_tester: Any, draft_file: Path) -> None:
    code, out, _ = tacit("study", "create", str(draft_file))
    assert code == 0
    assert "every owner spends epsilon 1, delta 1e-05, and sends 7 noisy numbers" in out
    (digest,) = at_tester.envelopes
    assert digest in out


def test_a_hopeless_study_shows_its_cost_and_is_not_sent(
    tacit: Run, at_tester: Any, draft: dict[str, Any], tmp_path: Path
) -> None:
    draft["owners"][0]["units"] = 2
    file = tmp_path / "hopeless.toml"
    file.write_text(toml_text(draft))
    code, out, err = tacit("study", "create", str(file))
    assert code == 1
    assert "Warning: Hopeless: there are too few units" in out
    assert "--force" in err
    assert at_tester.envelopes == {}
    assert tacit("study", "create", str(file), "--force")[0] == 0
    assert len(at_tester.envelopes) == 1


def test_a_study_can_be_written_in_flags(tacit: Run, at_tester: Any) -> None:
    code, out, err = tacit(
        *("study", "create", "--title", "Alike?", "--procedure", "quick", "--epsilon", "1", "--delta", "0"),
        *("--column", "age:0:120", "--column", "sex=F,M", "--json"),
        *("--owner", "north/patients:100", "--owner", "south/patients"),
    )
    assert code == 0, err
    assert json.loads(out)["units_declared"] is False


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
    few = tacit(*(word.replace(":30000", ":100") for word in SCREENING))
    assert few[0] == 1
    assert "Hopeless" in few[1]


def test_a_procedure_is_named_once(tacit: Run, at_tester: Any) -> None:
    code, _, err = tacit(*SCREENING, "--procedure", "quick")
    assert code == 2
    assert "named twice" in err


def test_flags_are_read_strictly() -> None:
    assert parse_column("a:b:0:1")["name"] == "a:b"
    assert parse_column("sex=F,M")["levels"] == ["F", "M"]
    assert parse_owner("north/patients:30") == {"name": "north", "data_set": "patients", "units": 30}
    assert parse_owner("north/patients@ab=age,sex")["columns"] == ["age", "sex"]
    assert parse_parameter("features=me") == ("features", "me")
    assert parse_parameter("n_features=5") == ("n_features", 5)
    for wrong in ("age", "age:0", "age:a:b", "=F"):
        with pytest.raises(InputError, match="--column"):
            parse_column(wrong)
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
    at_tester.end(digest, result=RESULT | {"method": evil, "warnings": [evil]})
    out = tacit("study", "watch", digest)[1]
    assert "[red]x[/red]" in out
    assert not {"\x1b", "\u202e"} & set(out)


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff", b'{"format":"tacit/transcript/1"}'])
def test_what_is_no_transcript_is_not_verified(tacit: Run, tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "transcript.json"
    file.write_bytes(content)
    assert tacit("verify", str(file))[0] == 1
    assert tacit("study", "verify", str(file), "--json")[0] == 1


def test_a_title_cannot_write_on_the_terminal(
    tacit: Run, at_tester: Any, draft: dict[str, Any], tmp_path: Path
) -> None:
    file = tmp_path / "evil.toml"
    file.write_text(toml_text(draft | {"title": "\x1b[2Jgone [red]x[/red]"}))
    tacit("study", "create", str(file))
    for verb in ("list", "show"):
        digest = next(iter(at_tester.envelopes))
        out = tacit("study", verb, *([digest] if verb == "show" else []))[1]
        assert "\x1b[2J" not in out
    assert "[red]x[/red]" in out


@pytest.mark.parametrize("beginning", ["abc", "abcd"])
def test_a_digest_that_is_not_clear_is_refused(tacit: Run, at_tester: Any, beginning: str) -> None:
    assert tacit("study", "cancel", beginning)[0] == 2


def test_a_file_that_cannot_be_written_is_told(
    tacit: Run, at_tester: Any, draft_file: Path, tmp_path: Path
) -> None:
    tacit("study", "create", str(draft_file))
    (digest,) = at_tester.envelopes
    at_tester.lie = lambda request, answer: HttpResponse(200, {}, b"{}")
    code, _, err = tacit("study", "transcript", digest, "--output", str(tmp_path / "no" / "folder.json"))
    assert code == 2
    assert "cannot write" in err
