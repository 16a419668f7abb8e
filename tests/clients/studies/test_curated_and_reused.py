"""Studies at a curator, and studies that read releases again, as an analyst drafts and shows them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tacit import Client
from tacit.errors import InputError
from tacit.setup.configuration import toml_text
from tacit_protocol.signing import PrivateKey

pytestmark = pytest.mark.usefixtures("client")

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def curator_key(memory_tester: Any) -> str:
    key = PrivateKey.generate().public_hex
    memory_tester.parties["registry"] = (key, "curator")
    return key


@pytest.fixture
def curated(draft: dict[str, Any], curator_key: str) -> dict[str, Any]:
    return draft | {"curator": "registry"}


def test_the_curators_key_comes_from_the_tester_and_it_alone_sends(
    client: Client, curated: dict[str, Any], curator_key: str
) -> None:
    study = client.prepare_study(curated).study
    assert (study.curator.name, study.curator.key) == ("registry", curator_key)
    assert study.senders == (study.curator,)


def test_a_pinned_curator_with_another_key_is_found_out(client: Client, curated: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="another key for registry"):
        client.prepare_study(curated | {"curator_key": PrivateKey.generate().public_hex})


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({}, "sends 7 noisy numbers, for all of them"),
        (
            {"procedure": "joint_independence", "delta": 0.0, "parameters": {"method": "permutation"}},
            "sends one private decision, and no number, for all of them",
        ),
    ],
)
def test_the_cost_names_who_sends_and_what(
    tacit: Run, curated: dict[str, Any], tmp_path: Path, changed: dict[str, Any], words: str
) -> None:
    file = tmp_path / "study.toml"
    file.write_text(toml_text(curated | changed))
    code, out, err = tacit("study", "create", str(file), "--dry-run")
    assert code == 0, err
    assert "every owner spends epsilon 1" in out
    assert f"the curator registry {words}" in out
    assert json.loads(tacit("study", "create", str(file), "--dry-run", "--json")[1])["decision_only"] == bool(
        changed
    )


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
    for rule, words in (("unequal-sizes", "pairs the units of two samples"), ("of-tomorrow", "of-tomorrow")):
        memory_tester.senders = [{"name": "registry", "sent": False, "declined": True, "rule": rule}]
        out = tacit("study", "show", digest[:8])[1]
        assert f"The curator's release: declined: {words if rule == words else 'the study ' + words}" in out


Draft = dict[str, Any]


def later(draft: Draft, **reuses: str) -> Draft:
    owners = [
        owner | ({"reuses": reuses[owner["name"]]} if owner["name"] in reuses else {})
        for owner in draft["owners"]
    ]
    return draft | {"title": "And now?", "owners": owners}


def test_a_study_that_reuses_takes_the_earlier_studys_seed(client: Client, draft: Draft) -> None:
    first = client.create_study(draft)
    seed = client.study_content(first).seed
    prepared = client.prepare_study(later(draft, north=first))
    assert prepared.study.seed == seed
    assert [sender.name for sender in prepared.study.senders] == ["south"]
    assert [owner.reuses for owner in prepared.study.owners] == [first, None]
    assert client.prepare_study(draft).study.seed != seed


def test_the_command_shows_who_spends_and_who_does_not(
    client: Client, draft: Draft, tacit: Run, tmp_path: Path
) -> None:
    first = client.create_study(draft)
    file = tmp_path / "later.toml"
    file.write_text(toml_text(later(draft, north=first)))
    code, out, err = tacit("study", "create", str(file))
    assert code == 0, err
    assert "each of south spends epsilon 1" in out
    assert f"north spends nothing: its release for study {first[:12]} is read again" in out
    (second,) = (study.digest for study in client.studies() if study.title == "And now?")
    shown = tacit("study", "show", second)[1]
    assert f"of study {first[:12]}" in shown
    assert "north spends nothing" in shown


def test_the_command_says_where_nobody_is_asked(
    client: Client, draft: Draft, tacit: Run, memory_tester: Any
) -> None:
    first = client.create_study(draft)
    flags = ("study", "create", "--title", "Again?", "--procedure", "quick", "--column", "age:0:120")
    owners = ("--owner", "north/patients:100", "--owner", "south/patients:100")
    amounts = ("--epsilon", "1", "--delta", "1e-5", "--dry-run")
    reuse = ("--reuse", f"north={first}", "--reuse", f"south={first}")
    code, out, err = tacit(*flags, *owners, *amounts, *reuse)
    assert code == 0, err
    assert "no owner is asked, and none spends anything" in out
    found = json.loads(tacit(*flags, *owners, *amounts, *reuse, "--json")[1])
    assert found["asked"] == []
    assert found["reuses"] == {"north": first, "south": first}
    assert tacit(*flags, *owners, *amounts, "--reuse", f"west={first}")[0] != 0
