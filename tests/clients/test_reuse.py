"""An analyst who names an earlier release: the draft, the seed that goes with it, what is shown."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tacit import Client
from tacit.client.http import HttpRequest, HttpResponse
from tacit.command import connect
from tacit.errors import ProblemError, StudyRefusedError
from tacit.setup.configuration import toml_text
from tacit_protocol.messages.release import Release
from tacit_protocol.messages.study import Owner, Study
from tacit_protocol.procedures.discovery import PROCEDURES
from tacit_protocol.signing.keys import PrivateKey

Draft = dict[str, Any]
Tacit = Callable[..., tuple[int, str, str]]


@pytest.fixture
def rereading(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the quick procedure read releases again."""

    class Rereading(type(PROCEDURES["quick"])):  # type: ignore[misc]
        def reread(self, study: Study, owner: Owner, source: Study, release: Release) -> Release:
            return release

    monkeypatch.setitem(PROCEDURES, "quick", Rereading())


@pytest.fixture
def client(memory_tester: Any, analyst_key: PrivateKey, monkeypatch: pytest.MonkeyPatch) -> Client:
    made = Client(
        "https://tester.example",
        analyst_key,
        tester_key=memory_tester.key.public_hex,
        transport=memory_tester,
        sleep=lambda _: None,
    )

    @contextmanager
    def handed_out(_: Path) -> Iterator[Client]:
        yield made

    monkeypatch.setattr(connect, "party_client", handed_out)
    return made


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
