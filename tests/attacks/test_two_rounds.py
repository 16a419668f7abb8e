"""A tester and owners who attack the release in the open that one owner's second round begins with."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from fault_world import NOW, key_of, sealed
from peer_world import RECEIVER, SENDER
from relay_simulation import RelaySimulation, problem
from two_round_world import (
    PROCEDURE,
    SEVERAL,
    THIRD,
    answers_study,
    make_answers_agent,
    make_screening_agent,
    make_several_agent,
    make_two_round_agent,
    screening_study,
    several_study,
    two_round_study,
)

from tacit_protocol.domain import Domain, NumericColumn
from tacit_protocol.messages.encoding import decode, digest, encode, encode_json
from tacit_protocol.messages.study import (
    AcceptanceMessage,
    DeclineMessage,
    NoisyVector,
    Release,
    ReleaseMessage,
    Study,
    Transcript,
)
from tacit_protocol.privacy.guarantee import Budget, RandomisedAnswers
from tacit_protocol.procedures import discovery
from tacit_protocol.signing import ACCEPTANCE_TYPE, DECLINE_TYPE, RELEASE_TYPE, open_envelope, sign_envelope
from tacit_protocol.verification import VerificationError, verify_transcript
from tacit_services.agent.agent import AlreadyDecidedError, decide
from tacit_services.agent.schema import OUTBOX, RECEIVED, SIGN_IN, STUDIES
from tacit_services.agent.study import releases as releases_module
from tacit_services.agent.study.fetching import Fetcher
from tacit_services.agent.study.loops import work
from tacit_services.agent.study.studies import expire, study_row
from tacit_services.agent.study.tester_client import TesterRefusedError, TesterUnavailableError
from tacit_services.agent.web import views
from tacit_services.ledger.accounts import debits_of, set_caps
from tacit_services.ledger.entries import ACCOUNTS, ENTRIES, RESERVATIONS
from tacit_services.shared.database import run_transaction
from tacit_services.shared.failpoints import AgentRelayStep, AgentStep
from tacit_services.shared.problem_responses import RegisteredProblemError
from tacit_services.tester import reuse
from tacit_services.tester import studies as tester_studies
from tacit_services.tester.tables import ACCEPTANCES


class World(RelaySimulation):
    make = staticmethod(make_two_round_agent)
    new_study = staticmethod(two_round_study)

    def reserved(self, name: str) -> list[str]:
        """Return the studies that an owner has reserved something for."""
        return [row.study for row in self.rows(name, RESERVATIONS)]

    def outbox(self, name: str) -> list[tuple[str, str]]:
        """Return what an owner sends: kind and outcome."""
        return [(row.kind, row.outcome) for row in self.rows(name, OUTBOX)]

    def send_alone(self) -> None:
        """Let the sender do what it can while the receiver does nothing."""
        Fetcher(self.agents[SENDER]).poll(0)
        with suppress(TesterRefusedError):
            work(self.agents[SENDER])

    def spent(self, name: str) -> list[int]:
        """Return what an owner was debited, each time, in micro-epsilon."""
        return [entry.epsilon_micro for entry in self.read(name, lambda c: debits_of(c, "people"))]

    def message(self, name: str = SENDER) -> ReleaseMessage:
        """Return what an owner stored last to be sent."""
        envelope = bytes(self.rows(name, OUTBOX)[-1].envelope)
        return decode(ReleaseMessage, open_envelope(envelope, RELEASE_TYPE, key_of(name).public_hex))

    def put(self, study: str, envelope: bytes, name: str = SENDER) -> Any:
        return self.call("PUT", f"/v1/studies/{study}/releases/{name}", name, envelope)

    def transcript(self, study: str) -> bytes:
        return self.call("GET", f"/v1/studies/{study}/transcript", "ada").content


class AnswersWorld(World):
    make = staticmethod(make_answers_agent)
    new_study = staticmethod(answers_study)


class ScreeningWorld(World):
    make = staticmethod(make_screening_agent)
    new_study = staticmethod(screening_study)


class SeveralWorld(World):
    """Several senders, all of whom the receiver waits for."""

    make = staticmethod(make_several_agent)
    new_study = staticmethod(several_study)
    parties = tuple(SEVERAL)

    def send(self) -> None:
        self.accept()
        for name in (SENDER, THIRD):
            self.send_by(name)

    def send_by(self, name: str) -> None:
        Fetcher(self.agents[name]).poll(0)
        with suppress(TesterRefusedError):
            work(self.agents[name])


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[World]:
    """A fake procedure's world, or the one that a test is parametrised over."""
    monkeypatch.setitem(discovery.PROCEDURES, PROCEDURE.name, PROCEDURE)
    world = getattr(request, "param", World)(tmp_path)
    yield world
    world.close()


several = pytest.mark.parametrize("world", [SeveralWorld], indirect=True)
answering = pytest.mark.parametrize("world", [AnswersWorld, ScreeningWorld], indirect=True)


def signed(message: ReleaseMessage, name: str = SENDER, **changes: Any) -> bytes:
    return sign_envelope(encode(message.model_copy(update=changes)), RELEASE_TYPE, key_of(name))


@pytest.mark.parametrize(
    ("world", "spent"),
    [(World, [1, 2]), (AnswersWorld, [2, 2]), (ScreeningWorld, [2, 2]), (SeveralWorld, [2, 2, 2])],
    indirect=["world"],
)
def test_both_rounds_are_released_verified_and_paid_for_by_each_owner(world: World, spent: list[int]) -> None:
    """Of several senders the receiver answers to all at once."""
    study = world.ask()
    world.finish()
    senders = [name for name in world.parties if name != RECEIVER]
    assert [world.spent(name) for name in (*senders, RECEIVER)] == [[epsilon * 10**6] for epsilon in spent]
    found = verify_transcript(world.transcript(study), key_of("tester").public_hex)
    assert (found.verdict.outcome, set(found.releases)) == ("completed", set(world.parties))
    sent = {name: found.release_digests[name] for name in senders}
    received = digest(encode_json(sent)) if len(sent) > 1 else sent[SENDER]
    assert world.message(RECEIVER).received == received
    assert [world.message(name).received for name in senders] == [None] * len(senders)
    if len(senders) == 1:  # of several, some units place cuts and do not answer
        assert all(len(own.values()) == 60 for own in found.releases[SENDER].answers.values())


def test_each_owner_looks_at_its_own_release_of_two_rounds(world: World) -> None:
    for agent in world.agents.values():
        agent.use_policy(agent.policy.model_copy(update={"look_before_sending": True}))
    study = world.ask()
    world.finish()
    held = [world.read(name, partial(study_row, digest=study)) for name in (SENDER, RECEIVER)]
    assert [row.state.value for row in held if row] == ["held", "approved"]
    assert (world.spent(SENDER), world.spent(RECEIVER)) == ([1_000_000], [])
    for name, spent in ((SENDER, []), (RECEIVER, [2_000_000])):
        assert world.spent(RECEIVER) == spent
        world.agents[name].send(study)
        world.finish()
    found = verify_transcript(world.transcript(study), key_of("tester").public_hex)
    assert set(found.releases) == {SENDER, RECEIVER}
    assert world.reserved(RECEIVER) == []


def forged_by(name: str) -> Callable[[World, ReleaseMessage], bytes]:
    return lambda _, message: sign_envelope(encode(message), RELEASE_TYPE, key_of(name))


def of_another_study(_: World, message: ReleaseMessage) -> bytes:
    return signed(message, study="0" * 64)


def of_another_party(_: World, message: ReleaseMessage) -> bytes:
    return signed(message, party="west")


def the_receivers_own(_: World, message: ReleaseMessage) -> bytes:
    return signed(message, RECEIVER, party=RECEIVER)


@pytest.mark.parametrize(
    "forge", [forged_by("tester"), forged_by("ada"), of_another_study, of_another_party, the_receivers_own]
)
def test_a_forged_first_round_is_not_taken_and_costs_nothing(
    world: World, forge: Callable[[World, ReleaseMessage], bytes]
) -> None:
    study = world.ask()
    world.send()
    forged = forge(world, world.message())
    world.change = lambda _: forged
    world.receive()
    assert (world.state(study), world.rows(RECEIVER, RECEIVED), world.spent(RECEIVER)) == ("approved", [], [])
    world.change = lambda content: content
    world.receive()
    assert (world.state(study), world.spent(RECEIVER)) == ("sent", [2_000_000])


def test_another_studys_first_round_is_not_taken(world: World) -> None:
    world.ask(two_round_study(title="the first"))
    world.send()
    first = world.package()
    study = world.ask(two_round_study(title="the second"))
    assert problem(world.put(study, first)) == "digest-mismatch"
    world.receive()
    world.send()
    world.change = lambda _: first
    world.receive()
    assert study not in {row.study for row in world.rows(RECEIVER, RECEIVED)}
    assert (world.state(study), world.spent(RECEIVER)) == ("approved", [2_000_000])


def test_a_first_round_that_is_withheld_ends_at_the_deadline_and_costs_the_receiver_nothing(
    world: World,
) -> None:
    study = world.ask()
    world.send()
    world.receive = lambda: None  # type: ignore[method-assign]
    receiver = world.agents[RECEIVER]
    Fetcher(receiver).poll(0)
    world.change = lambda _: b"{}"
    Fetcher(receiver).collect()
    world.now = two_round_study().deadline + 1
    receiver.run_approved()
    row = {row.digest: row for row in world.rows(RECEIVER, STUDIES)}[study]
    assert (row.state, row.reason) == ("expired", "the deadline passed; nothing was spent")
    assert (world.spent(SENDER), world.spent(RECEIVER)) == ([1_000_000], [])
    world.work_at_tester()
    found = verify_transcript(world.transcript(study), key_of("tester").public_hex)
    assert (found.verdict.outcome, found.verdict.missing) == ("incomplete", (RECEIVER,))


def test_a_receiver_cannot_answer_before_the_first_round_nor_to_another(world: World) -> None:
    world.ask(two_round_study(title="the first"))
    world.finish()
    table, answers = world.message(RECEIVER), world.message(SENDER)
    study = world.ask(two_round_study(title="the second"))
    own = digest(encode(answers))
    assert problem(world.put(study, signed(answers, study=study, received=own))) == "release-refused"
    for received in (own, "0" * 64, None):
        early = world.put(study, signed(table, RECEIVER, study=study, received=received), RECEIVER)
        assert problem(early) == "release-refused"
    world.send()
    for received in (own, "0" * 64, None):
        other = world.put(study, signed(table, RECEIVER, study=study, received=received), RECEIVER)
        assert problem(other) == "release-refused"
    world.receive()
    assert world.state(study) == "sent"


def less_noise(release: Release) -> Release:
    vector = release.vectors["answers"]
    less = vector.model_copy(update={"scale": vector.scale / 2})
    return release.model_copy(update={"vectors": {"answers": less}})


def one_answer_more(release: Release) -> Release:
    vector = release.vectors["answers"]
    more = NoisyVector(**{**vector.model_dump(), "values": (*vector.values, 1)})
    return release.model_copy(update={"vectors": {"answers": more}})


def another_number_of_units(release: Release) -> Release:
    return one_answer_more(release).model_copy(update={"units": release.units + 1})


def another_number(release: Release) -> Release:
    vector = release.vectors["answers"]
    changed = vector.model_copy(update={"values": (vector.values[0] + 1, *vector.values[1:])})
    return release.model_copy(update={"vectors": {"answers": changed}})


def with_answers(release: Release, **changes: Any) -> Release:
    ((name, own),) = release.answers.items()
    parts = {"values": own.values(), "codes": own.codes, "retention": own.retention} | changes
    answers = RandomisedAnswers.of(parts["values"], parts["codes"], parts["retention"])
    return release.model_copy(update={"answers": {name: answers}})


def more_retained(release: Release) -> Release:
    """The same answers, said to be kept more often than the study fixes: they would be debiased by less."""
    return with_answers(release, retention=0.9)


def other_cells(release: Release) -> Release:
    return with_answers(release, codes=3)


def an_answer_too_few(release: Release) -> Release:
    (own,) = release.answers.values()
    return with_answers(release, values=own.values()[1:])


def other_answers(release: Release) -> Release:
    (own,) = release.answers.values()
    return with_answers(release, values=1 - own.values())


@pytest.mark.parametrize(
    ("world", "change"),
    [
        *((World, change) for change in (less_noise, one_answer_more, another_number_of_units)),
        *(
            (kind, change)
            for kind in (AnswersWorld, ScreeningWorld)
            for change in (more_retained, other_cells, an_answer_too_few)
        ),
    ],
    indirect=["world"],
)
def test_a_first_round_that_does_not_fit_ends_the_study_before_anything_is_spent(
    world: World, change: Callable[[Release], Release]
) -> None:
    """The tester refuses what it can see; a tester that takes it, with the sender, does not get an answer."""
    study = world.ask()
    world.send()
    wrong = signed(world.message(), release=change(world.message().release))
    assert problem(world.put(study, wrong)) in {"release-refused", "conflicting-upload"}
    world.change = lambda _: wrong
    world.receive()
    assert (world.state(study), world.spent(RECEIVER), world.reserved(RECEIVER)) == ("refused", [], [])


@pytest.mark.parametrize(
    ("world", "twice", "change"),
    [
        (World, SENDER, another_number),
        *((kind, SENDER, other_answers) for kind in (AnswersWorld, ScreeningWorld, SeveralWorld)),
        (SeveralWorld, THIRD, other_answers),
    ],
    indirect=["world"],
)
def test_verifiers_catch_a_tester_that_shows_them_another_first_round(
    world: World, twice: str, change: Callable[[Release], Release]
) -> None:
    """The sender signs two; the receiver answers to one of them, and says to which."""
    study = world.ask()
    world.finish()
    transcript = decode(Transcript, world.transcript(study), size_bytes_max=2**24)
    message = world.message(twice)
    other = signed(message, twice, release=change(message.release))
    swapped = transcript.model_copy(update={"releases": {**transcript.releases, twice: other.decode()}})
    with pytest.raises(VerificationError, match="answers to another release") as caught:
        verify_transcript(encode(swapped), key_of("tester").public_hex)
    assert (caught.value.step, caught.value.party) == ("release", RECEIVER)
    if twice == THIRD:
        return
    gone = transcript.model_copy(update={"releases": {RECEIVER: transcript.releases[RECEIVER]}})
    with pytest.raises(VerificationError, match="before anything was sent"):
        verify_transcript(encode(gone), key_of("tester").public_hex)


def test_a_first_round_that_could_not_be_answered_any_more_is_not_released(world: World) -> None:
    deadline = NOW + 2 * 3600
    study = world.ask(two_round_study(respond_after_s=3600, deadline=deadline))
    world.send()
    row = {row.digest: row for row in world.rows(SENDER, STUDIES)}[study]
    assert (row.state, row.problem, world.spent(SENDER)) == ("refused", "study-expired", [])


def test_stewards_read_both_rounds_their_costs_and_who_sees_what(world: World) -> None:
    study = world.ask()
    words = {}
    for name, agent in world.agents.items():
        Fetcher(agent).poll(0)
        row = world.read(name, lambda c: study_row(c, study))
        assert row is not None
        words[name] = str(views.detail(agent, row, SIGN_IN.people)["plain_words"])
    for told in words.values():
        assert "round one spends epsilon 1 and delta 0 of north's people" in told
        assert "round two spends epsilon 2 and delta 0 of south's people" in told
        assert "a noisy answer about each person" in told
        assert "everyone who reads the study's transcript see it" in told
    assert "each answer is random, and is still about a person" in words[SENDER]
    assert "What would leave, in the second round: 4 numbers" in words[RECEIVER]


def test_a_column_released_before_is_read_again_and_costs_its_owner_nothing(world: World) -> None:
    earlier = world.ask(two_round_study(title="Earlier"))
    world.finish()
    first = world.package()
    study = world.ask(two_round_study(reuses=earlier))
    world.receive()
    world.work_at_tester()
    assert (world.spent(SENDER), world.spent(RECEIVER)) == ([1_000_000], [2_000_000] * 2)
    found = verify_transcript(world.transcript(study), key_of("tester").public_hex)
    payload = open_envelope(first, RELEASE_TYPE, key_of(SENDER).public_hex)
    assert found.verdict.outcome == "completed"
    assert world.message(RECEIVER).received == found.release_digests[SENDER] == digest(payload)


def dear_study(**changes: Any) -> Study:
    """Return a study that costs the receiver twelve of its twenty; two of them are too much."""
    return two_round_study(budget=Budget.of("12", "0"), **changes)


def test_nothing_is_spent_before_the_receiver_has_accepted(world: World) -> None:
    study = world.ask()
    world.send_alone()
    assert (world.spent(SENDER), world.outbox(SENDER), world.reserved(SENDER)) == ([], [], [study])
    world.accept()
    assert (world.outbox(RECEIVER), world.reserved(RECEIVER)) == ([("accept", "delivered")], [study])
    world.finish()
    assert (world.reserved(SENDER), world.reserved(RECEIVER)) == ([], [])
    assert (world.spent(SENDER), world.spent(RECEIVER)) == ([1_000_000], [2_000_000])
    assert world.outbox(RECEIVER) == [("release", "delivered")]


def test_a_receiver_without_enough_left_declines_before_the_sender_spends(world: World) -> None:
    first = world.ask(dear_study(title="The first"))
    world.accept()
    second = world.ask(dear_study(title="The second"))
    world.finish()
    states = {row.digest: (row.state, row.problem) for row in world.rows(RECEIVER, STUDIES)}
    assert states == {first: ("sent", None), second: ("refused", "budget-exceeded")}
    assert (world.spent(SENDER), world.spent(RECEIVER)) == ([6_000_000], [12_000_000])
    senders = {row.digest: (row.state, row.problem) for row in world.rows(SENDER, STUDIES)}
    assert senders == {first: ("sent", None), second: ("refused", "study-closed")}
    assert world.call("GET", f"/v1/studies/{second}/verdict", "ada").json() is not None


@pytest.mark.parametrize("end", ["expiry", "cancellation", "decline", "the other's decline"])
def test_what_was_reserved_is_given_back_when_a_study_ends(world: World, end: str) -> None:
    """And the next study, which found no room before, finds it."""
    study = world.ask(dear_study(title="The first"))
    world.accept()
    Fetcher(world.agents[SENDER]).poll(0)
    assert world.reserved(SENDER) == world.reserved(RECEIVER) == [study]
    if end == "expiry":
        world.now = dear_study().deadline + 1
    elif end == "cancellation":
        world.cancel(study)
    else:
        world.agents[RECEIVER if end == "decline" else SENDER].decline(study, None)
    for name in (RECEIVER, SENDER, RECEIVER):
        with suppress(TesterRefusedError):
            work(world.agents[name])
    assert (world.reserved(SENDER), world.reserved(RECEIVER)) == ([], [])
    assert (world.spent(SENDER), world.spent(RECEIVER)) == ([], [])
    world.ask(dear_study(title="The second", deadline=int(world.now) + 10**6))
    world.finish()
    assert world.spent(RECEIVER) == [12_000_000]


@pytest.mark.parametrize("end", ["expiry", "decline"])
@pytest.mark.parametrize(
    ("owner", "step"), [(SENDER, AgentStep.DATA_SUMMARISED), (RECEIVER, AgentRelayStep.COMBINED)]
)
def test_nobody_ends_a_study_for_nothing_once_its_rows_are_read_also_where_a_clock_goes_back(
    world: World, monkeypatch: pytest.MonkeyPatch, owner: str, step: AgentStep, end: str
) -> None:
    """Another process of the owner tries, whose clock is ahead; its own goes back afterwards."""
    study, tried = world.ask(), []

    def end_now(now: object) -> None:
        if now is not step:
            return
        tried.append(end)
        if end == "decline":
            with pytest.raises(AlreadyDecidedError):
                world.agents[owner].decline(study, None)
        else:
            late = two_round_study().deadline + 1
            assert run_transaction(world.engines[owner], lambda c: expire(c, late)) == 0
        assert world.reserved(owner) == [study]

    monkeypatch.setattr(releases_module, "reached", end_now)
    for turned_back_s in (0, 10**6):
        world.now -= turned_back_s
        with suppress(TesterRefusedError, TesterUnavailableError):
            world.finish()
        assert tried == [end]
        cost = {SENDER: 1_000_000, RECEIVER: 2_000_000}[owner]
        assert (world.spent(owner), world.reserved(owner)) == ([cost], [])
        assert [kind for kind, _ in world.outbox(owner)] == ["release"]


def accepted_by(name: str, **changes: str) -> Callable[[str], bytes]:
    def forge(study: str) -> bytes:
        message = AcceptanceMessage(study=study, party=RECEIVER).model_copy(update=changes)
        return sign_envelope(encode(message), ACCEPTANCE_TYPE, key_of(name))

    return forge


@pytest.mark.parametrize(
    "forge",
    [
        accepted_by("tester"),
        accepted_by(SENDER),
        accepted_by("ada"),
        accepted_by(RECEIVER, study="0" * 64),
        accepted_by(RECEIVER, party=SENDER),
        lambda study: sign_envelope(
            encode(DeclineMessage(study=study, party=RECEIVER)), DECLINE_TYPE, key_of(RECEIVER)
        ),
        lambda _: b"{}",
    ],
)
def test_a_forged_acceptance_is_not_taken_and_nothing_is_spent(
    world: World, forge: Callable[[str], bytes]
) -> None:
    """By the tester, who makes the sender wait for ever at worst; nor does an honest tester store one."""
    study = world.ask()
    forged = forge(study)
    answer = world.call("PUT", f"/v1/studies/{study}/acceptances/{RECEIVER}", RECEIVER, forged)
    assert answer.status_code >= 400
    assert world.rows("tester", ACCEPTANCES) == []
    client = world.agents[SENDER].client
    genuine = client.acceptance
    client.acceptance = lambda *_: forged  # type: ignore[method-assign]
    world.send_alone()
    assert (world.spent(SENDER), world.rows(SENDER, RECEIVED)) == ([], [])
    client.acceptance = genuine  # type: ignore[method-assign]
    world.finish()
    assert world.spent(SENDER) == [1_000_000]


def test_an_acceptance_of_another_study_is_not_taken(world: World) -> None:
    first = world.ask(two_round_study(title="The first"))
    world.accept()
    replayed = bytes(world.rows("tester", ACCEPTANCES)[0].envelope)
    study = world.ask(two_round_study(title="The second"))
    answer = world.call("PUT", f"/v1/studies/{study}/acceptances/{RECEIVER}", RECEIVER, replayed)
    assert problem(answer) == "release-refused"
    world.agents[SENDER].client.acceptance = lambda *_: replayed  # type: ignore[method-assign]
    world.send_alone()
    assert [row.study for row in world.rows(SENDER, RECEIVED)] == [first]
    assert len(world.spent(SENDER)) == 1


def test_an_acceptance_is_its_receivers_to_give_and_its_senders_to_read(world: World) -> None:
    study = world.ask()
    path = f"/v1/studies/{study}/acceptances/{RECEIVER}"
    assert problem(world.call("GET", path, SENDER)) == "release-pending"
    world.accept()
    own = bytes(world.rows(RECEIVER, OUTBOX)[0].envelope)
    assert world.call("PUT", path, RECEIVER, own).status_code == 200  # the same bytes again
    assert world.call("GET", path, SENDER).content == own
    for caller in (RECEIVER, "west"):
        assert problem(world.call("GET", path, caller)) == "forbidden"
    assert problem(world.call("PUT", path, "west", own)) == "forbidden"


def test_a_steward_is_told_that_too_little_is_left_and_the_study_waits_on(
    tmp_path: Path, world: World
) -> None:
    world.make = partial(make_two_round_agent, by_hand=True)  # type: ignore[assignment]
    for name in world.parties:
        world.restart_agent(name)
    first, second = (world.ask(dear_study(title=title)) for title in ("The first", "The second"))
    receiver = world.agents[RECEIVER]
    Fetcher(receiver).poll(0)
    assert (world.reserved(RECEIVER), world.outbox(RECEIVER)) == ([], [])
    decide(receiver, first, partial(receiver.approve, first))
    with pytest.raises(RegisteredProblemError) as refused:
        decide(receiver, second, partial(receiver.approve, second))
    assert refused.value.problem.slug == "budget-exceeded"
    states = {row.digest: row.state for row in world.rows(RECEIVER, STUDIES)}
    assert states == {first: "approved", second: "waiting-for-approval"}
    assert world.reserved(RECEIVER) == [first]
    receiver.decline(first, None)
    decide(receiver, second, partial(receiver.approve, second))
    assert world.reserved(RECEIVER) == [second]


@pytest.mark.parametrize("what", ["release", "study"])
def test_an_earlier_column_that_the_tester_exchanges_is_not_taken(world: World, what: str) -> None:
    earlier = world.ask(two_round_study(title="Earlier"))
    world.finish()
    other, envelope = sealed(two_round_study(title="Other"))
    study = world.ask(two_round_study(reuses=earlier))
    receiver = world.agents[RECEIVER]
    if what == "release":
        forged = signed(world.message(), study=other)
        world.change = lambda _: forged
    else:
        genuine = receiver.client.study_envelope
        receiver.client.study_envelope = lambda name: envelope if name == earlier else genuine(name)  # type: ignore[method-assign]
    world.receive()
    assert (world.state(study), world.spent(RECEIVER)) == ("approved", [2_000_000])


@pytest.mark.parametrize("since", ["cancelled", "its data erased", "its cap lowered to nothing"])
def test_a_release_that_is_read_again_costs_its_owner_nothing_whatever_has_come_since(
    world: World, since: str
) -> None:
    earlier = world.ask()
    world.finish()
    if since == "cancelled":
        world.cancel(earlier)
    elif since == "its data erased":
        (world.folder / f"{SENDER}.csv").unlink()
    else:
        run_transaction(world.engines[SENDER], lambda c: set_caps(c, "people", 1, 0, at=NOW))
    before = world.rows(SENDER, ENTRIES), world.rows(SENDER, ACCOUNTS)
    for title in ("Again?", "And again?"):
        study = world.ask(two_round_study(reuses=earlier, title=title))
        world.finish()
        verify_transcript(world.transcript(study), key_of("tester").public_hex)
        assert world.reserved(SENDER) == world.reserved(RECEIVER) == []
    assert (world.rows(SENDER, ENTRIES), world.rows(SENDER, ACCOUNTS)) == before
    assert (world.spent(SENDER), world.spent(RECEIVER)) == ([1_000_000], [2_000_000] * 3)


def claim(**changes: Any) -> Callable[[str], Study]:
    """Return a study that reads a release again as one of another key or data set."""

    def claimed(earlier: str) -> Study:
        sender, receiver = two_round_study(reuses=earlier).owners
        return two_round_study(owners=(sender.model_copy(update=changes), receiver), title="Claimed")

    return claimed


def claimed_of_another_column(earlier: str) -> Study:
    sender, receiver = two_round_study(reuses=earlier).owners
    columns = tuple(NumericColumn(name=name, lower=0.0, upper=1.0) for name in ("weight", "response"))
    owners = (sender.model_copy(update={"columns": ("weight",)}), receiver)
    return two_round_study(owners=owners, domain=Domain(columns=columns), title="Claimed")


def claimed_for_the_other(earlier: str) -> Study:
    sender, receiver = two_round_study().owners
    own = sender.model_copy(update={"name": "west", "key": key_of("west").public_hex, "reuses": earlier})
    return two_round_study(owners=(own, receiver), title="Claimed")


CLAIMS = {
    "another data set": claim(data_set="staff"),
    "another key": claim(key=key_of("west").public_hex),
    "another column": claimed_of_another_column,
    "another owner": claimed_for_the_other,
    "another privacy unit": lambda earlier: two_round_study(reuses=earlier, unit_column="patient"),
    "another alignment": lambda earlier: two_round_study(
        reuses=earlier, unit_column="patient", alignment="a" * 64
    ),
}


HELD_BESIDES = {"another key": 403, "another owner": 500}
"""What stops a tester that does not look: the roster, and a foreign key of its database."""


@pytest.mark.sweep(2)
@pytest.mark.parametrize("is_looked_at", [True, False], ids=["a tester that looks", "one that does not"])
@pytest.mark.parametrize("what", CLAIMS)
def test_a_release_that_is_claimed_for_something_else_is_not_read_and_nobody_spends(
    world: World, monkeypatch: pytest.MonkeyPatch, what: str, is_looked_at: bool
) -> None:
    """A tester that does not look hands it out; the receiver looks for itself."""
    earlier = world.ask()
    world.finish()
    name, envelope = sealed(CLAIMS[what](earlier))
    if not is_looked_at:
        monkeypatch.setattr(tester_studies, "require_reusable", lambda *_: None)
        monkeypatch.setattr(reuse, "_require_made", lambda *_: None)
    answer = world.call("PUT", f"/v1/studies/{name}", "ada", envelope)
    assert answer.status_code == (422 if is_looked_at else HELD_BESIDES.get(what, 201)), answer.text
    with suppress(TesterRefusedError):
        world.receive()
    with suppress(TesterRefusedError):
        world.send_alone()
    assert (world.spent(SENDER), world.spent(RECEIVER)) == ([1_000_000], [2_000_000])


def test_a_chain_of_reuse_is_refused_and_the_first_study_serves_as_often_as_is_asked(world: World) -> None:
    first = world.ask()
    world.finish()
    second = world.ask(two_round_study(reuses=first, title="Second"))
    world.finish()
    for earlier in (second, "f" * 64):
        name, envelope = sealed(two_round_study(reuses=earlier, title="Third"))
        assert problem(world.call("PUT", f"/v1/studies/{name}", "ada", envelope)) == "reuse-refused"
    world.ask(two_round_study(reuses=first, title="Third"))
    world.finish()
    assert (world.spent(SENDER), world.spent(RECEIVER)) == ([1_000_000], [2_000_000] * 3)


def test_a_second_round_is_of_its_own_study_and_is_not_read_again(world: World) -> None:
    earlier = world.ask(two_round_study(title="Earlier"))
    world.finish()
    study = two_round_study()
    sender, receiver = study.owners
    owners = (sender, receiver.model_copy(update={"reuses": earlier}))
    name, envelope = sealed(study.model_copy(update={"owners": owners}))
    answer = world.call("PUT", f"/v1/studies/{name}", "ada", envelope)
    assert problem(answer) == "reuse-refused"
    assert "may be read again, and no other" in answer.json()["detail"]


def test_a_restarted_owner_sends_the_bytes_that_it_stored_and_no_other_answers(world: World) -> None:
    study = world.ask()
    world.accept()
    Fetcher(world.agents[SENDER]).poll(0)
    Fetcher(world.agents[SENDER]).collect()
    world.agents[SENDER].run_approved()
    stored = world.package()
    world.restart_agent(SENDER)
    world.send()
    world.finish()
    sent = world.network.bodies[f"/v1/studies/{study}/releases/{SENDER}", "PUT"]
    assert sent == {stored}
    assert world.spent(SENDER) == [1_000_000]


# Randomised answers of the real procedures.


@answering
def test_stewards_of_answers_read_that_they_are_about_people(world: World) -> None:
    study = world.ask()
    for name, agent in world.agents.items():
        Fetcher(agent).poll(0)
        row = world.read(name, lambda c: study_row(c, study))
        assert row is not None
        told = str(views.detail(agent, row, SIGN_IN.people)["plain_words"])
        assert "a record of a person" in " ".join(told.split()), name
        assert "more than a factor of 7.39" in " ".join(told.split()), name


# Several senders.


@several
def test_while_one_sender_is_missing_the_receiver_spends_nothing(world: SeveralWorld) -> None:
    study = world.ask()
    world.accept()
    world.send_by(SENDER)
    world.receive()
    assert (world.state(study), world.spent(RECEIVER), world.rows(RECEIVER, RECEIVED)) == (
        "approved",
        [],
        [],
    )
    world.send_by(THIRD)
    world.receive()
    assert world.spent(RECEIVER) == [2_000_000]


@several
def test_no_sender_spends_before_the_receiver_has_accepted(world: SeveralWorld) -> None:
    world.ask()
    for name in (SENDER, THIRD):
        world.send_by(name)
    assert [world.spent(name) for name in SEVERAL] == [[]] * 3


@several
def test_one_senders_release_in_the_place_of_anothers_is_not_taken(world: SeveralWorld) -> None:
    study = world.ask()
    world.send()
    for name in (SENDER, THIRD):
        package = bytes(world.rows(name, OUTBOX)[-1].envelope)
        world.change = lambda _, package=package: package  # type: ignore[misc]
        world.receive()
        assert (world.state(study), world.spent(RECEIVER)) == ("approved", [])
    world.change = lambda content: content
    world.receive()
    assert world.spent(RECEIVER) == [2_000_000]


@several
def test_a_sender_who_answers_for_another_column_is_refused(world: SeveralWorld) -> None:
    study = world.ask()
    world.accept()
    world.send_by(SENDER)
    theirs = world.message(SENDER)
    wrong = signed(theirs, THIRD, party=THIRD)
    assert problem(world.put(study, wrong, THIRD)) == "release-refused"


@several
def test_a_restarted_receiver_counts_beside_what_it_kept(world: SeveralWorld) -> None:
    study = world.ask()
    world.send()
    Fetcher(world.agents[RECEIVER]).poll(0)
    Fetcher(world.agents[RECEIVER]).collect()
    (kept,) = world.rows(RECEIVER, RECEIVED)
    world.restart_agent(RECEIVER)
    world.change = lambda _: b"{}"
    world.receive()
    (still,) = world.rows(RECEIVER, RECEIVED)
    assert bytes(still.package) == bytes(kept.package)
    assert (world.state(study), world.spent(RECEIVER)) == ("sent", [2_000_000])


@several
def test_strangers_are_handed_neither_releases_nor_the_acceptance(world: SeveralWorld) -> None:
    study = world.ask()
    world.send()
    for owner in (SENDER, THIRD):
        for caller in (SENDER, THIRD, "ada"):
            answer = world.call("GET", f"/v1/studies/{study}/sealed/{owner}", caller)
            assert problem(answer) == "forbidden"
