"""`tacit data align` as an owner types it: keys, files, exit codes, and what is printed."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from agent_fakes import IDS, UNIT_COLUMN, Peer, World
from forked_python import commands_forked

from tacit.command.app import run
from tacit.setup import processes

OWN = ("--data-set", "patients")
Command = Callable[..., tuple[int, str]]


@pytest.fixture
def owner(tmp_path: Path) -> Peer:
    """The other owner of an agent whose configuration is in the folder."""
    World(tmp_path).write("http://tester", data_set=UNIT_COLUMN)
    return Peer(tmp_path)


@pytest.fixture
def align(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Command]:
    """Run a step; returns its exit code and what it printed. The end-to-end test has whole processes."""

    def step(*arguments: str) -> tuple[int, str]:
        code = run(["data", "align", *arguments, "--config", str(tmp_path / "agent.toml")])
        said = capsys.readouterr()
        return code, said.out + said.err

    with commands_forked(processes):
        yield step


def test_a_key_is_fresh_secret_and_never_overwritten(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keys = [tmp_path / name for name in ("one.key", "two.key")]
    for key in keys:
        assert run(["data", "align", "key", "--out", str(key)]) == 0
        assert key.stat().st_mode & 0o777 == 0o600
        assert len(bytes.fromhex(key.read_text().strip())) == 32
    assert keys[0].read_text() != keys[1].read_text()
    before = keys[0].read_text()
    assert run(["data", "align", "key", "--out", str(keys[0])]) != 0
    assert keys[0].read_text() == before
    assert before.strip() not in capsys.readouterr().out


@pytest.mark.long
def test_an_owner_makes_compares_lists_and_forgets(owner: Peer, align: Command) -> None:
    key, out = str(owner.key_file), owner.folder / "ours.json"
    code, said = align("make", *OWN, "--key", key, "--out", str(out))
    assert (code, "60 units" in said) == (0, True)
    theirs = owner.folder / "theirs.json"
    theirs.write_bytes(owner.sealed())
    code, said = align("compare", *OWN, "--key", key, "--with", str(theirs))
    digest = owner.message().digest
    other = owner.folder / "other.json"
    other.write_bytes(owner.sealed(owner.message([*IDS[:-1], "p99"])))
    for flags, named in (((), False), (("--list",), True)):
        different = align("compare", *OWN, "--key", key, "--with", str(other), *flags)
        assert (different[0], "p59" in different[1], "p99" in different[1]) == (1, named, False)
    assert code == 0
    assert f'alignment = "{digest}"' in said
    assert owner.key.public_hex in said
    assert not any(f"{name}\n" in said for name in IDS)
    code, said = align("list", "--json")
    (listed,) = json.loads(said)["alignments"]
    assert (code, listed["digest"], listed["peer_name"]) == (0, digest, "south")
    assert owner.shared.secret.hex() not in said
    assert align("forget", digest)[0] == 0
    assert "no alignments" in align("list")[1]
