"""Studies with a curator, as an analyst drafts, shows and verifies them."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tacit import Client
from tacit.command import connect
from tacit.command.app import run
from tacit.errors import InputError, StudyRefusedError
from tacit.setup.configuration import toml_text
from tacit_protocol.signing.keys import PrivateKey

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def curator_key(memory_tester: Any) -> str:
    key = PrivateKey.generate().public_hex
    memory_tester.parties["registry"] = (key, "curator")
    return key


@pytest.fixture
def curated(draft: dict[str, Any], curator_key: str) -> dict[str, Any]:
    return draft | {"curator": "registry"}


@pytest.fixture
def client(memory_tester: Any, analyst_key: PrivateKey) -> Client:
    return Client("https://tester.example", analyst_key, transport=memory_tester, sleep=lambda _: None)


@pytest.fixture
def tacit(client: Client, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    @contextmanager
    def connected(_: Path) -> Iterator[Client]:
        yield client

    monkeypatch.setattr(connect, "party_client", connected)

    def run_it(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = run(arguments)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run_it


def test_the_curators_key_comes_from_the_tester_and_it_alone_sends(
    client: Client, curated: dict[str, Any], curator_key: str
) -> None:
    study = client.prepare_study(curated).study
    assert study.curator is not None
    assert (study.curator.name, study.curator.key) == ("registry", curator_key)
    assert study.senders == (study.curator,)


def test_a_pinned_curator_with_another_key_is_found_out(client: Client, curated: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="another key for registry"):
        client.prepare_study(curated | {"curator_key": PrivateKey.generate().public_hex})


def test_an_owner_is_no_curator(client: Client, curated: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="no curator named west"):
        client.prepare_study(curated | {"curator": "west"})


def test_owners_of_a_curated_study_need_no_enrolment_at_the_tester(
    client: Client, curated: dict[str, Any], memory_tester: Any
) -> None:
    del memory_tester.parties["north"]
    with pytest.raises(InputError, match="give the owner's key in the draft"):
        client.prepare_study(curated)
    key = PrivateKey.generate().public_hex
    curated["owners"][0]["key"] = key
    assert client.prepare_study(curated).study.owners[0].key == key


def test_a_curator_that_is_an_owner_too_makes_no_study(
    client: Client, curated: dict[str, Any], curator_key: str
) -> None:
    curated["owners"][0]["key"] = curator_key
    with pytest.raises(StudyRefusedError, match="distinct"):
        client.prepare_study(curated)


def test_the_cost_names_who_sends(tacit: Run, curated: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "study.toml"
    file.write_text(toml_text(curated))
    code, out, err = tacit("study", "create", str(file))
    assert code == 0, err
    assert "every owner spends epsilon 1, delta 1e-05" in out
    assert "the curator registry sends 7 noisy numbers, for all of them" in out


def test_the_cost_of_a_decision_names_no_number(tacit: Run, curated: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "study.toml"
    file.write_text(toml_text(curated | {"procedure": "joint_independence", "delta": 0.0}))
    code, out, err = tacit("study", "create", str(file), "--dry-run")
    assert code == 0, err
    assert "the curator registry sends one private decision, and no number, for all of them" in out
    fields = json.loads(tacit("study", "create", str(file), "--dry-run", "--json")[1])
    assert fields["decision_only"]


def test_a_curated_study_can_be_written_in_flags(tacit: Run, memory_tester: Any, curator_key: str) -> None:
    key = PrivateKey.generate().public_hex
    code, out, err = tacit(
        *("study", "create", "--title", "Alike?", "--procedure", "quick", "--epsilon", "1", "--delta", "0"),
        *("--column", "age:0:120", "--curator", "registry", "--json"),
        *("--owner", f"clinic/patients:100@{key}", "--owner", "south/patients"),
    )
    assert code == 0, err
    assert json.loads(out)["created"]


def test_a_curated_study_is_shown_with_its_curator(
    tacit: Run, client: Client, curated: dict[str, Any], memory_tester: Any
) -> None:
    digest = client.create_study(curated)
    memory_tester.senders = [{"name": "registry", "sent": True, "declined": False}]
    out = tacit("study", "show", digest[:8])[1]
    assert "the curator registry holds the data and answers for the owners" in out
    assert "The curator's release: sent" in out
    assert "1 of 1" in tacit("study", "list")[1]
    shown = json.loads(tacit("study", "show", digest, "--json")[1])
    assert shown["study"]["curator"]["name"] == "registry"
