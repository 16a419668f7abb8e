"""`tacit curator`: files that keep secrets, what an owner is shown before it decides, and no accident."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from curator_answers import REPORT
from curator_answers import MemoryCurator as Curator

from tacit import CuratorClient
from tacit.command import connect
from tacit_protocol.signing import PrivateKey

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def curator(monkeypatch: pytest.MonkeyPatch) -> Curator:
    """Make `--owner` and `--config` lead to a curator in memory."""
    there, key = Curator(), PrivateKey.generate()

    def client(owner: str | None) -> Callable[[Path], Any]:
        @contextmanager
        def connected(_: Path) -> Iterator[CuratorClient]:
            yield CuratorClient("https://c.example", key, owner=owner, transport=there)

        return connected

    monkeypatch.setenv("COLUMNS", "200")  # so that no cell of a table is folded
    monkeypatch.setattr(connect, "owner_client", client("north"))
    monkeypatch.setattr(connect, "operator_client", client(None))
    return there


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("curator invite --name north", "secret"),
        ("curator owners", "00" * 32),
        ("curator status", "1 waiting-for-approval"),
        ("owner enrol --invitation x", "north is enrolled"),
        ("owner data-sets", "north/patients"),
        ("curator data-sets --config curator.toml", "north/patients"),
        ("owner studies", "south"),
        ("owner show abab", "alike"),
        ("owner approve abab --yes", "Approved abab"),
        ("owner decline abab --reason no", "Declined abababababab: north/patients takes 13.4 %"),
        ("owner ledger --data-set patients", "north/patients"),
        ("owner verify-ledger", "The ledger is whole"),
        ("owner delete --data-set patients --yes", "deleted the rows"),
        ("curator delete --data-set north/patients --yes --config c.toml", "deleted the rows"),
    ],
)
def test_every_verb_speaks_to_people_and_to_programs(
    tacit: Run, curator: Curator, arguments: str, words: str
) -> None:
    code, out, err = tacit(*arguments.split())
    assert code == 0, err
    assert words in out
    assert "\x1b[2J" not in out
    code, out, _ = tacit(*arguments.split(), "--json")
    assert code == 0
    json.loads(out)


def test_before_it_approves_an_owner_sees_what_is_asked_and_what_remains(
    tacit: Run, curator: Curator
) -> None:
    out = tacit("owner", "approve", "abab", "--yes")[1]
    assert "They ask whether patients are alike." in out
    assert "Warning: few units" in out
    assert "north/patients: 66.6 % of epsilon 3 left" in out
    assert "this study takes 13.4 % of the cap, of which 66.6 % is left" in out
    assert "south: approved by its policy" in out


def test_registering_and_uploading(tacit: Run, curator: Curator, tmp_path: Path) -> None:
    description, rows = tmp_path / "data-set.toml", tmp_path / "rows.csv"
    description.write_text(
        'name = "patients"\nepsilon = 3\ndelta = 3e-5\n'
        '[policy]\nepsilon_per_study_max = 1\ndelta_per_study_max = 1e-5\nanalysts = ["*"]\n'
        '[[columns]]\nkind = "numeric"\nname = "age"\nlower = 0\nupper = 120\n'
    )
    rows.write_text("age\n60\n61\n62\n")
    code, out, err = tacit("owner", "register", "--file", str(description))
    assert code == 0, err
    assert "Registered north/patients: 2 columns; studies may spend epsilon 3, delta 3e-05 in all." in out
    code, out, err = tacit("owner", "upload", str(rows), "--data-set", "patients")
    assert code == 0, err
    assert "north/patients holds rows.csv now: 3 rows, 2 units." in out
    assert tacit("owner", "upload", str(tmp_path / "none.csv"), "--data-set", "patients")[0] == 2


def test_nothing_is_deleted_unless_said_so(
    tacit: Run, curator: Curator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("typer.confirm", lambda _: False)
    assert tacit("owner", "delete", "--data-set", "patients")[0] == 2
    assert tacit("owner", "delete", "--data-set", "patients", "--json")[0] == 2
    assert curator.asked == []


def test_a_damaged_ledger_exits_with_1(tacit: Run, curator: Curator) -> None:
    curator.answers["GET /v1/ledger/verification"] = REPORT | {"ok": False, "faults": ["entry 1 was changed"]}
    code, out, _ = tacit("owner", "verify-ledger")
    assert code == 1
    assert "Damaged: entry 1 was changed" in out
    assert tacit("owner", "verify-ledger", "--kept", "none")[0] == 2
