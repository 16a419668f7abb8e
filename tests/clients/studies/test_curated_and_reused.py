"""Studies at a curator, and studies that read releases again, as an analyst drafts and shows them."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tacit import Client
from tacit.client.http import HttpRequest, HttpResponse
from tacit.command import connect
from tacit.errors import InputError, ProblemError, StudyRefusedError
from tacit.setup.configuration import toml_text
from tacit_protocol.messages.release import Release
from tacit_protocol.messages.study import Owner, Study
from tacit_protocol.procedures.discovery import PROCEDURES
from tacit_protocol.signing.keys import PrivateKey

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
    for rule, words in (("unequal-sizes", "pairs the units of two samples"), ("of-tomorrow", "of-tomorrow")):
        memory_tester.senders = [{"name": "registry", "sent": False, "declined": True, "rule": rule}]
        out = tacit("study", "show", digest[:8])[1]
        assert f"The curator's release: declined: {words if rule == words else 'the study ' + words}" in out


Draft = dict[str, Any]
Tacit = Callable[..., tuple[int, str, str]]


@pytest.fixture
def rereading(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the quick procedure read releases again."""

    class Rereading(type(PROCEDURES["quick"])):  # type: ignore[misc]
        def reread(self, study: Study, owner: Owner, source: Study, release: Release) -> Release:
            return release

    monkeypatch.setitem(PROCEDURES, "quick", Rereading())


def later(draft: Draft, **reuses: str) -> Draft:
    owners = [
        owner | ({"reuses": reuses[owner["name"]]} if owner["name"] in reuses else {})
        for owner in draft["owners"]
    ]
    return draft | {"title": "And now?", "owners": owners}


def test_a_study_that_reuses_takes_the_earlier_studys_seed(
    client: Client, draft: Draft, rereading: None
) -> None:
    first = client.create_study(draft)
    seed = client.study_content(first).seed
    prepared = client.prepare_study(later(draft, north=first))
    assert prepared.study.seed == seed
    assert [sender.name for sender in prepared.study.senders] == ["south"]
    assert [owner.reuses for owner in prepared.study.owners] == [first, None]
    assert client.prepare_study(draft).study.seed != seed


def test_a_seed_that_the_draft_states_is_used(client: Client, draft: Draft, rereading: None) -> None:
    first = client.create_study(draft)
    assert client.prepare_study(later(draft, north=first) | {"seed": "a" * 32}).study.seed == "a" * 32
    assert client.prepare_study(draft | {"seed": "b" * 32}).study.seed == "b" * 32


def test_an_earlier_study_that_is_not_there_is_told_before_anything_is_sent(
    client: Client, draft: Draft, memory_tester: Any, rereading: None
) -> None:
    with pytest.raises(ProblemError, match="no such study"):
        client.create_study(later(draft, north="0" * 64))
    assert memory_tester.envelopes == {}


def test_a_procedure_that_reads_no_release_again_says_so(client: Client, draft: Draft) -> None:
    first = client.create_study(draft)
    with pytest.raises(StudyRefusedError, match="leave reuses out"):
        client.prepare_study(later(draft, north=first))


def test_a_curated_study_cannot_reuse(client: Client, draft: Draft, memory_tester: Any) -> None:
    first = client.create_study(draft)
    memory_tester.parties["holder"] = (PrivateKey.generate().public_hex, "curator")
    with pytest.raises(StudyRefusedError, match="curator"):
        client.prepare_study(later(draft, north=first) | {"curator": "holder"})


def test_the_command_shows_who_spends_and_who_does_not(
    client: Client, draft: Draft, tacit: Tacit, tmp_path: Path, rereading: None
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
    client: Client, draft: Draft, tacit: Tacit, memory_tester: Any, rereading: None
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


def test_a_study_shows_who_read_its_releases_again(
    client: Client, draft: Draft, tacit: Tacit, memory_tester: Any
) -> None:
    first = client.create_study(draft)

    def tell(request: HttpRequest, answer: HttpResponse) -> HttpResponse:
        if request.path != f"/v1/studies/{first}":
            return answer
        fields = json.loads(answer.body) | {"reused_by": [{"owner": "north", "study": "d" * 64}]}
        return HttpResponse(answer.status, answer.headers, json.dumps(fields).encode())

    memory_tester.lie = tell
    assert "north's release, by study dddddddddddd" in tacit("study", "show", first)[1]


class MemoryAgent:
    """Stands in for the client of an agent."""

    def __init__(self, answer: list[str] | None) -> None:
        self.answer = answer

    def studies(self) -> list[dict[str, Any]]:
        return [{"digest": "e" * 64}]

    def reused_by(self, digest: str) -> list[str] | None:
        assert digest == "e" * 64
        return self.answer


@pytest.mark.parametrize(
    ("answer", "words"),
    [(["d" * 64], "by study dddd"), ([], "0 studies"), (None, "could not be asked")],
)
def test_an_owner_sees_who_reads_its_release_again(
    tacit: Tacit, monkeypatch: pytest.MonkeyPatch, answer: list[str] | None, words: str
) -> None:
    @contextmanager
    def handed_out(_: Path) -> Iterator[MemoryAgent]:
        yield MemoryAgent(answer)

    monkeypatch.setattr(connect, "agent_client", handed_out)
    code, out, err = tacit("agent", "reuses", "eeee")
    assert code == 0, err
    assert words in out
    assert json.loads(tacit("agent", "reuses", "eeee", "--json")[1])["reused_by"] == answer
