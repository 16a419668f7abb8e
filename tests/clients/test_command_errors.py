"""What programs and shells get from the command: wrong use as JSON, exit codes, and completion."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., tuple[int, str, str]]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("study", "list", "--nonsense"), "No such option: --nonsense"),
        (("study", "lst"), "No such command 'lst'"),
        (("agent", "init"), "Missing option '--name'"),
        (("agent", "init", "--port", "many"), "--port"),
        (("study", "show"), "Missing argument"),
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


@pytest.mark.parametrize("extra", [(), ("--json",)])
def test_exit_codes_do_not_depend_on_json(tacit: Run, tmp_path: Path, extra: tuple[str, ...]) -> None:
    assert tacit("version", *extra)[0] == 0
    assert tacit("doctor", "--config", str(tmp_path / "none.toml"), *extra)[0] == 1
    assert tacit("verify", str(tmp_path / "none.json"), *extra)[0] == 2


@pytest.mark.parametrize(
    ("shell", "variables"),
    [
        ("bash", {"COMP_WORDS": "tacit study cre", "COMP_CWORD": "2"}),
        ("zsh", {"_TYPER_COMPLETE_ARGS": "tacit study cre"}),
        ("fish", {"_TYPER_COMPLETE_ARGS": "tacit study cre", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}),
    ],
)
def test_what_a_shell_asks_is_completed(
    tacit: Run, monkeypatch: pytest.MonkeyPatch, shell: str, variables: dict[str, str]
) -> None:
    for name, value in {"_TACIT_COMPLETE": f"complete_{shell}", **variables}.items():
        monkeypatch.setenv(name, value)
    code, out, _ = tacit()
    assert code == 0
    assert "create" in out
    assert "transcript" not in out


AGENT = {
    "--name": "north", "--tester-url": "https://t.example", "--tester-key": "ab" * 32,
    "--data-set": "patients", "--source": "a.csv", "--epsilon": "3", "--delta": "1e-5",
}  # fmt: skip


@pytest.mark.parametrize(
    ("flag", "value", "words"),
    [
        ("--name", "North", "small letters"),
        ("--tester-url", "tester.example", "https://tester.example"),
        ("--tester-key", "x", "64 hexadecimal digits"),
        ("--data-set", "my data", "a data set's name"),
        ("--epsilon", "0", "epsilon of the data set"),
        ("--epsilon", "nan", "epsilon of the data set"),
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


def test_every_init_checks_the_key_that_it_pins(tacit: Run, tmp_path: Path) -> None:
    for noun, verb, other in (
        ("party", "init", "tester"),
        ("curator", "init", "tester"),
        ("curator", "owner-init", "curator"),
    ):
        address = (f"--{other}-url", "https://x.example", f"--{other}-key", "AB" * 32)
        code, _, err = tacit(noun, verb, "--folder", str(tmp_path / verb), "--name", "x", *address)
        assert code == 2
        assert f"the {other}'s key" in err
        assert not (tmp_path / verb).exists()
