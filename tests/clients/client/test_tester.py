"""What a client does with an honest tester, and that a lying one is found out."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from curator_answers import AsyncMemory

from tacit import AsyncClient, Client
from tacit.client.http import HttpRequest, HttpResponse
from tacit.errors import (
    HopelessStudyError,
    InputError,
    ResponseError,
    StudyRefusedError,
    VerificationFailedError,
)
from tacit.studies.draft import draft_of
from tacit_protocol.messages.encoding import encode
from tacit_protocol.messages.study import Party, Study
from tacit_protocol.signing import STUDY_TYPE, VERDICT_TYPE, PrivateKey, open_envelope, sign_envelope

Draft = dict[str, Any]


def test_a_study_is_stored_under_the_digest_of_its_signed_bytes(
    client: Client, memory_tester: Any, draft: Draft, analyst_key: PrivateKey
) -> None:
    digest = client.create_study(draft)
    payload = open_envelope(memory_tester.envelopes[digest], STUDY_TYPE, analyst_key.public_hex)
    study = Study.model_validate_json(payload)
    assert study == client.study_content(digest)
    assert study.owners[0].key == memory_tester.parties["north"][0]
    assert (study.created_at, study.deadline) == (1_000_000, 1_000_000 + 168 * 3600)
    assert (study.budget.epsilon_micro, study.budget.delta_pico) == (1_000_000, 10_000_000)


def test_a_study_that_somebody_else_wrote_is_signed_as_it_is_or_refused(
    client: Client, memory_tester: Any, draft: Draft, analyst_key: PrivateKey
) -> None:
    prepared = client.prepare_study(draft)
    digest = client.create_study(prepared.payload)
    assert digest == prepared.digest
    assert (
        open_envelope(memory_tester.envelopes[digest], STUDY_TYPE, analyst_key.public_hex) == prepared.payload
    )
    study, other = prepared.study, PrivateKey.generate().public_hex
    forgeries: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
        "analyst": ({"analyst": Party(name="ann", key=other)}, VerificationFailedError, "not yours"),
        "tester": ({"tester": Party(name="tester", key=other)}, VerificationFailedError, "not yours"),
        "owner": (
            {"owners": (study.owners[0].model_copy(update={"key": other}), *study.owners[1:])},
            VerificationFailedError,
            "another key for north",
        ),
        "curator": (
            {"curator": Party(name="eve", key=other)},
            VerificationFailedError,
            "another key for eve",
        ),
        "spelling": ({"title": "e\u0301"}, StudyRefusedError, "not in the one form"),
    }
    memory_tester.envelopes.clear()
    for changes, error, words in forgeries.values():
        with pytest.raises(error, match=words):
            client.create_study(encode(study.model_copy(update=changes)))
    with pytest.raises(InputError, match="this is no study"):
        client.create_study(b'{"title": "x"}')
    assert memory_tester.envelopes == {}


def test_the_draft_of_a_study_makes_the_study_again(client: Client, draft: Draft) -> None:
    prepared = client.prepare_study(draft | {"purpose": "p", "level": 0.01, "open_for_hours": 3})
    again = client.prepare_study(draft_of(prepared.study).model_copy(update={"seed": prepared.study.seed}))
    assert again.payload == prepared.payload


def test_a_hopeless_study_is_not_sent_unless_forced(client: Client, memory_tester: Any, draft: Draft) -> None:
    draft["owners"][0]["units"] = 3
    with pytest.raises(HopelessStudyError, match="too few units") as caught:
        client.create_study(draft)
    assert caught.value.warnings == ("Hopeless: there are too few units",)
    assert memory_tester.envelopes == {}
    assert client.create_study(draft, force=True) in memory_tester.envelopes


def test_a_refused_study_says_what_to_change(client: Client, draft: Draft) -> None:
    with pytest.raises(StudyRefusedError, match="no such parameter"):
        client.create_study(draft | {"parameters": {"x": 1}})
    with pytest.raises(InputError, match="no procedure 'nothing'"):
        client.create_study(draft | {"procedure": "nothing"})


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"name": "east"}, "no owner named east"),
        ({"key": PrivateKey.generate().public_hex}, "another key for north"),
    ],
)
def test_an_owner_that_the_tester_does_not_know_so_is_found_out(
    client: Client, draft: Draft, changed: Draft, message: str
) -> None:
    draft["owners"][0] |= changed
    with pytest.raises(InputError, match=message):
        client.create_study(draft)


def test_a_tester_with_another_key_than_the_pinned_one_is_found_out(
    client: Client, memory_tester: Any, draft: Draft
) -> None:
    memory_tester.key = PrivateKey.generate()
    with pytest.raises(VerificationFailedError, match="another key"):
        client.create_study(draft)


def test_a_list_that_never_ends_is_not_followed_for_ever(client: Client, memory_tester: Any) -> None:
    def endless(request: HttpRequest, answer: HttpResponse) -> HttpResponse:
        return HttpResponse(200, {}, b'{"items":[],"next":"1"}')

    memory_tester.lie = endless
    with pytest.raises(ResponseError, match="does not end"):
        client.parties()


def test_waiting_tells_progress_and_returns_the_verdict(
    client: Client, memory_tester: Any, draft: Draft
) -> None:
    digest = client.create_study(draft)
    memory_tester.end(digest)
    memory_tester.polls_before_verdict = 2
    seen: list[str] = []
    verdict = client.wait_for_verdict(digest, 60, on_progress=lambda summary: seen.append(summary.state))
    assert len(seen) == 2
    assert verdict.outcome == "completed"
    statistic, pvalue = verdict.result
    assert (statistic, pvalue, verdict.result.reject) == (12.5, 0.001, True)
    assert (verdict.result.alpha, verdict.result.epsilon) == (0.05, 1.0)
    assert (verdict.result.estimate, verdict.result.interval) == (0.02, (0.01, 0.03))
    assert verdict.result.pairs[0].names == ("north", "south")
    assert verdict.result.columns[0].names == ("age",)


def signed_by_another(tester: Any, digest: str) -> None:
    tester.key = PrivateKey.generate()
    tester.end(digest)


def of_another_study(tester: Any, digest: str) -> None:
    other = "0" * 64
    tester.end(other)
    tester.verdicts[digest] = tester.verdicts[other]


def with_a_changed_byte(tester: Any, digest: str) -> None:
    tester.end(digest)
    tester.verdicts[digest] = tester.verdicts[digest].replace(b'"payload":"e', b'"payload":"f', 1)


def that_its_procedure_does_not_report(tester: Any, digest: str) -> None:
    tester.end(digest, result={"pvalue": 0.5})


def of_another_type(tester: Any, digest: str) -> None:
    tester.end(digest)
    payload = open_envelope(tester.verdicts[digest], VERDICT_TYPE, tester.key.public_hex)
    tester.verdicts[digest] = sign_envelope(payload, STUDY_TYPE, tester.key)


@pytest.mark.parametrize(
    "forge",
    [
        signed_by_another,
        of_another_study,
        with_a_changed_byte,
        of_another_type,
        that_its_procedure_does_not_report,
    ],
)
def test_a_forged_verdict_is_found_out(
    client: Client, memory_tester: Any, draft: Draft, forge: Callable[[Any, str], None]
) -> None:
    digest = client.create_study(draft)
    forge(memory_tester, digest)
    with pytest.raises(VerificationFailedError):
        client.wait_for_verdict(digest)


def test_another_study_or_one_of_another_analyst_is_found_out(
    client: Client, memory_tester: Any, draft: Draft, analyst_key: PrivateKey
) -> None:
    first, second = client.create_study(draft), client.create_study(draft | {"title": "Another"})
    payload = open_envelope(memory_tester.envelopes[first], STUDY_TYPE, analyst_key.public_hex)
    for forged in (
        memory_tester.envelopes[second],
        sign_envelope(payload, STUDY_TYPE, PrivateKey.generate()),
    ):
        memory_tester.envelopes[first] = forged
        with pytest.raises(VerificationFailedError, match="another study"):
            client.study_content(first)


def test_without_a_key_only_public_questions_are_asked(memory_tester: Any, draft: Draft) -> None:
    with Client("https://tester.example", transport=memory_tester) as client:
        assert client.identity().name == "tester"
        with pytest.raises(InputError, match="needs a key"):
            client.create_study(draft)


def test_the_asynchronous_client_does_the_same(
    memory_tester: Any, analyst_key: PrivateKey, draft: Draft
) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    async def ask() -> Any:
        async with AsyncClient(
            "https://tester.example", analyst_key, transport=AsyncMemory(memory_tester), sleep=sleep
        ) as client:
            digest = await client.create_study(draft)
            memory_tester.end(digest)
            memory_tester.polls_before_verdict = 1
            return await client.wait_for_verdict(digest)

    verdict = asyncio.run(ask())
    assert tuple(verdict.result) == (12.5, 0.001)
    assert slept == [pytest.approx(0.2)]
