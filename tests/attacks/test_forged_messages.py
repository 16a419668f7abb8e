"""Forged messages and alignments: refused by whoever gets them, before anything is parsed or touched."""

import base64
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from agent_fakes import IDS, UNIT_COLUMN, AttackedAgent, MakeAgent, Peer, World, aligned_study
from planted import with_mistake
from served import problem
from tester_federation import Federation

from tacit_protocol import signing as envelope_module
from tacit_protocol.domain import CategoricalColumn, Domain, Encoder, NumericColumn, VectorColumn
from tacit_protocol.messages.alignment import NO_PROOF, AlignmentMessage, UnitKey
from tacit_protocol.messages.encoding import digest, encode, encode_json
from tacit_protocol.messages.study import Owner, Party, Study, VerdictMessage
from tacit_protocol.procedures import relay as relay_module
from tacit_protocol.procedures.discovery import PROCEDURES
from tacit_protocol.signing import (
    ALIGNMENT_TYPE,
    CANCELLATION_TYPE,
    DECLINE_TYPE,
    ENVELOPE_BYTES_MAX,
    RELEASE_TYPE,
    STUDY_TYPE,
    VERDICT_TYPE,
    EnvelopeError,
    PrivateKey,
    open_envelope,
    sign_envelope,
)
from tacit_services.agent import alignment
from tacit_services.agent.alignment import AlignmentRefusedError, alignments
from tacit_services.agent.schema import State
from tacit_services.agent.study import fetching
from tacit_services.agent.study import intake as intake_module
from tacit_services.agent.study.fetching import Fetcher
from tacit_services.agent.study.intake import Intake, IntakeRefusedError
from tacit_services.shared.database import run_transaction
from tacit_services.tester import answers as answers_module
from tacit_services.tester import studies as studies_module
from tacit_services.tester.answers import AnswerIntake
from tacit_services.tester.studies import Studies, TesterIdentity
from tacit_services.tester.verdicts import Signer

CONSTANT_TEXTS = {
    "this is not an envelope",
    "the envelope is not in its one spelling",
    "the envelope holds another type of message",
    "the envelope names another key",
    "the signature does not hold",
}
"""Everything that a receiver says of a forged envelope."""

PARSERS = [
    (intake_module, "read_study"),
    (fetching, "decode"),
    (answers_module, "decode"),
    (relay_module, "decode"),
    (studies_module, "decode"),
    (studies_module, "read_study"),
]
"""What parses payloads, by the name that each receiver calls it."""

NO_SIGNER = Signer(PrivateKey.generate(), "tacit")

UNKNOWN_ANALYST = "the policy does not list this analyst's key"


@pytest.fixture
def payloads_are_not_parsed(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Call it, and from then on a receiver that parses a payload fails the test."""

    def parsed(*_: Any, **__: Any) -> Any:
        raise AssertionError("a payload was parsed before its signature was checked")

    def forbid() -> None:
        for module, parser in PARSERS:
            monkeypatch.setattr(module, parser, parsed)

    return forbid


def flips(envelope: bytes) -> Iterator[bytes]:
    """Flip one bit at every byte position."""
    for position in range(len(envelope)):
        flipped = bytearray(envelope)
        flipped[position] ^= 1 << (position % 8)
        yield bytes(flipped)


def at_the_agent(intake: Intake, study_digest: str, envelope: bytes) -> str:
    """Return why the agent refuses an envelope."""
    with pytest.raises(IntakeRefusedError) as refused:
        intake.authenticate(study_digest, envelope)
    return refused.value.reason


def forged(world: Any, study: Study) -> dict[str, bytes]:
    """Return a study's envelope as forgers would send it."""
    payload, mallory = encode(study), PrivateKey.generate()
    honest, named = world.sealed(study)[0], study.analyst.key
    return {
        "another key under the analyst's name": sign_envelope(payload, STUDY_TYPE, mallory).replace(
            mallory.public_hex.encode(), named.encode()
        ),
        "another payload under the analyst's signature": _with(
            honest, payload=payload.replace(b"How", b"Why")
        ),
        "another type": sign_envelope(payload, RELEASE_TYPE, world.analyst),
        "a decline relabelled": sign_envelope(payload, DECLINE_TYPE, world.analyst).replace(
            b"decline", b"study"
        ),
        "no signature": json.dumps(json.loads(honest) | {"signatures": []}).encode(),
        "two signatures": json.dumps(
            json.loads(honest) | {"signatures": json.loads(honest)["signatures"] * 2}
        ).encode(),
        "a signature of zeros": _with(honest, sig=bytes(64)),
        "nothing": b"",
    }


def _with(envelope: bytes, payload: bytes | None = None, sig: bytes | None = None) -> bytes:
    parsed = json.loads(envelope)
    if payload is not None:
        parsed["payload"] = base64.b64encode(payload).decode()
    if sig is not None:
        parsed["signatures"][0]["sig"] = base64.b64encode(sig).decode()
    return encode_json(parsed)


# Studies, at the agent.


def test_forged_studies_are_refused_by_the_agent_before_they_are_parsed(
    make_agent: MakeAgent, payloads_are_not_parsed: Callable[[], None]
) -> None:
    attacked = make_agent()
    study = attacked.world.study()
    named = attacked.world.sealed(study)[1]
    payloads_are_not_parsed()
    for envelope in (*forged(attacked.world, study).values(), *flips(attacked.world.sealed(study)[0])):
        assert at_the_agent(attacked.agent.intake, named, envelope) in CONSTANT_TEXTS
    replayed = at_the_agent(attacked.agent.intake, "0" * 64, attacked.world.sealed(study)[0])
    assert replayed == "the study's bytes are not those that its digest names"
    assert attacked.opened == []


def test_an_agent_that_skipped_the_signature_would_be_caught(make_agent: MakeAgent) -> None:
    attacked = make_agent()
    study = attacked.world.study()
    envelope, named = attacked.world.sealed(study)
    mistaken = with_mistake(
        intake_module,
        "payload = open_envelope(envelope, STUDY_TYPE, key)",
        "payload = __import__('base64').b64decode(__import__('json').loads(envelope)['payload'])",
    )
    intake = mistaken.Intake(
        attacked.agent.settings,
        attacked.agent.key.public_hex,
        attacked.agent.intake._policy,
        {},
        lambda *_: None,
    )
    wrong = _with(envelope, sig=bytes(64))
    assert intake.authenticate(named, wrong) == study  # let through: at_the_agent would fail
    assert at_the_agent(attacked.agent.intake, named, wrong) == "the signature does not hold"


@pytest.mark.parametrize(
    ("changes", "slug"),
    [
        ({"tester": Party(name="tester", key="7" * 64)}, "forbidden"),
        ({"deadline": 9_999}, "study-expired"),
        ({"procedure": "another"}, "study-refused"),
        ({"owners": (Owner(name="south", key="5" * 64, data_set="patients"),)}, "forbidden"),
    ],
    ids=["another tester's", "expired", "another procedure", "another owner's"],
)
def test_a_true_study_that_is_not_for_here_and_now_is_declined_without_touching_data(
    make_agent: MakeAgent, changes: dict[str, Any], slug: str
) -> None:
    attacked = make_agent()
    asked = attacked.world.ask(attacked.tester, attacked.world.study(**changes))
    attacked.turn()
    assert (attacked.row(asked).state, attacked.row(asked).problem) == (State.REFUSED, slug)
    assert (attacked.opened, attacked.debits()) == ([], [])


def test_a_tester_rolled_back_to_before_the_release_gets_the_same_bytes_and_no_second_debit(
    make_agent: MakeAgent,
) -> None:
    attacked = make_agent()
    asked = attacked.world.ask(attacked.tester, attacked.world.study())
    for _ in range(3):
        attacked.turn()
        attacked.tester.releases.clear()
    assert len({body for _, _, body in attacked.tester.received}) == 1
    assert len(attacked.tester.received) == 3
    assert len(attacked.debits()) == 1
    assert attacked.opened == ["patients"]
    assert attacked.row(asked).state is State.SENT


# A study tampered in any field.

DOMAIN = Domain(
    columns=(
        NumericColumn(name="x", lower=0.0, upper=10.0, missing=1.0),
        CategoricalColumn(name="absent", levels=("a", "b")),
    )
)


def tampered(value: Any, path: str = "$") -> Iterator[tuple[str, Any]]:
    """Yield a JSON value changed at every place in turn, with the place."""
    if isinstance(value, dict):
        yield f"{path} gains a key", value | {"added": 1}
        for key, inner in value.items():
            yield f"{path}.{key} is gone", {k: v for k, v in value.items() if k != key}
            for place, changed in tampered(inner, f"{path}.{key}"):
                yield place, value | {key: changed}
    elif isinstance(value, list):
        yield f"{path} loses an item", value[:-1]
        yield f"{path} repeats an item", value + value[-1:]
        yield f"{path} is reversed", value[::-1]
        for index, inner in enumerate(value):
            for place, changed in tampered(inner, f"{path}[{index}]"):
                yield place, [*value[:index], changed, *value[index + 1 :]]
    elif isinstance(value, str):
        yield path, value[:-1] + ("0" if value[-1:] != "0" else "1")
    elif value is None:
        yield path, 1
    else:
        yield path, value + 1


def tampered_studies(study: Study) -> list[tuple[str, bytes]]:
    """Return every tampered encoding of a study that differs from it."""
    original = encode(study)
    changed = [(place, encode_json(value)) for place, value in tampered(json.loads(original))]
    return [(place, payload) for place, payload in changed if payload != original]


def refusals_of_tampering(attacked: AttackedAgent, study: Study) -> dict[str, str]:
    """Put every tampered study to the agent under its true name and under its own; return the reasons."""
    envelope, named = attacked.world.sealed(study)
    reasons = {}
    for place, payload in tampered_studies(study):
        forgery = _with(envelope, payload=payload)
        for name in (named, digest(payload)):
            reasons[f"{place} as {name[:4]}"] = at_the_agent(attacked.agent.intake, name, forgery)
        own = sign_envelope(payload, STUDY_TYPE, attacked.world.tester)
        reasons[f"{place} by the tester"] = at_the_agent(attacked.agent.intake, digest(payload), own)
    return reasons


def test_a_study_tampered_in_any_field_is_refused_before_it_is_parsed_and_before_data_are_touched(
    make_agent: MakeAgent, payloads_are_not_parsed: Callable[[], None]
) -> None:
    attacked = make_agent()
    study = attacked.world.study(
        domain=DOMAIN,
        parameters={"a": [1, {"b": 0.5}]},
        unit_column="who",
        unit_rows="one",
        encoders=(Encoder(inputs=(VectorColumn(name="v", length=1, norm=20.0),), outputs=("x",)),),
        procedure_origin="sign-test 1.0.2",
        purpose="Dose finding",
        contact="Ada",
        approval_number="EC 12/3",
        data_use="DUO:0000042",
    )
    places = {place.partition(" ")[0] for place, _ in tampered_studies(study)}
    for field in Study.model_fields:
        assert any(place.startswith(f"$.{field}") for place in places), f"{field} was not tampered with"
    attacked = make_agent(world=attacked.world, policy=f'analysts = ["{attacked.world.analyst.public_hex}"]')
    payloads_are_not_parsed()
    reasons = refusals_of_tampering(attacked, study)
    assert len(reasons) > 200
    assert set(reasons.values()) == {"the signature does not hold", UNKNOWN_ANALYST}
    assert attacked.opened == []


def test_a_tampered_study_offered_by_the_tester_is_declined_and_nothing_is_read(
    make_agent: MakeAgent,
) -> None:
    attacked = make_agent()
    study = attacked.world.study(domain=DOMAIN)
    envelope, _ = attacked.world.sealed(study)
    payloads = [payload for place, payload in tampered_studies(study) if "." in place][::10]
    for payload in payloads:
        attacked.tester.add(_with(envelope, payload=payload), digest(payload), study.deadline)
    attacked.turn()
    assert attacked.opened == []
    assert attacked.debits() == []
    assert len(attacked.tester.declines) == len(payloads)


# Releases and other answers, at the tester.


def studies_of(federation: Federation) -> Studies:
    return Studies(federation.engine, TesterIdentity("tester", federation.parties.tester.public_hex))


def answers_of(federation: Federation, study: str) -> AnswerIntake:
    """Return what takes answers at a tester that has read the study."""
    studies = studies_of(federation)
    studies.parsed(study)
    return AnswerIntake(federation.engine, studies, NO_SIGNER, lambda: federation.now)


NORTH: Callable[[Any], PrivateKey] = lambda p: p.owners["north"]  # noqa: E731
Answer = tuple[str, str, Callable[[Any, str], bytes], Callable[[Any], PrivateKey]]
ANSWERS: dict[str, Answer] = {
    "take_release": ("releases/north", RELEASE_TYPE, lambda p, study: p.release(study, "north"), NORTH),
    "take_decline": ("declines/north", DECLINE_TYPE, lambda p, study: p.decline(study, "north"), NORTH),
    "take_cancellation": (
        "cancellation",
        CANCELLATION_TYPE,
        lambda p, study: p.cancellation(study),
        lambda p: p.analyst,
    ),
}
"""How each answer is taken: the path, the type, the envelope, and whose key it must bear."""

TAKES = pytest.mark.parametrize("take", ANSWERS)


def refused_by_the_tester(
    federation: Federation, answers: AnswerIntake, study: str, envelope: bytes, take: str = "take_release"
) -> str:
    """Return why the tester's own code refuses an answer."""
    key = ANSWERS[take][3](federation.parties).public_hex
    named = (study,) if take == "take_cancellation" else (study, "north")
    with pytest.raises(EnvelopeError) as refused:
        getattr(answers, take)(*named, envelope, key)
    return str(refused.value)


@pytest.mark.sweep(1)
@TAKES
def test_forged_answers_are_refused_by_the_tester_before_they_are_parsed(
    federation: Federation, payloads_are_not_parsed: Callable[[], None], take: str
) -> None:
    """Flipped at every byte, by another key, of another type, and what is honest elsewhere."""
    path, kind, _, key = ANSWERS[take]
    study = federation.create()
    federation.get(f"/v1/studies/{study}")  # the study itself is parsed, once
    answers = answers_of(federation, study)
    honest = {name: make(federation.parties, study) for name, (_, _, make, _) in ANSWERS.items()}
    payload = base64.b64decode(json.loads(honest[take])["payload"])
    flipped = list(flips(honest[take]))
    payloads_are_not_parsed()
    for forgery in (
        *flipped,
        sign_envelope(payload, kind, PrivateKey.generate()),
        sign_envelope(payload, STUDY_TYPE, key(federation.parties)),
        _with(honest[take], sig=bytes(64)),
        *(envelope for name, envelope in honest.items() if name != take),
    ):
        assert refused_by_the_tester(federation, answers, study, forgery, take) in CONSTANT_TEXTS
    for forgery in flipped[::100]:
        response = federation.put(f"/v1/studies/{study}/{path}", key(federation.parties), forgery)
        assert (response.status_code, problem(response)) == (400, "invalid-signature")
        assert response.json()["detail"] in CONSTANT_TEXTS
    assert federation.state(study) == "collecting"


def test_flipped_studies_are_refused_by_the_tester_before_they_are_parsed(
    federation: Federation, payloads_are_not_parsed: Callable[[], None]
) -> None:
    study, envelope = federation.parties.sealed_study()
    studies = studies_of(federation)
    payloads_are_not_parsed()
    analyst = federation.parties.analyst.public_hex
    for flipped in flips(envelope):
        with pytest.raises(EnvelopeError) as refused:
            studies.create(study, flipped, analyst, int(federation.now))
        assert str(refused.value) in CONSTANT_TEXTS


def test_another_study_under_a_digest_and_one_by_another_key_are_refused_by_the_tester(
    federation: Federation,
) -> None:
    study, envelope = federation.parties.sealed_study()
    payload = base64.b64decode(json.loads(envelope)["payload"])
    parties, stored = federation.parties, f"/v1/studies/{study}"
    changed = sign_envelope(payload.replace(b'"level":0.05', b'"level":0.04'), STUDY_TYPE, parties.analyst)
    assert problem(federation.put(stored, parties.analyst, changed)) == "digest-mismatch"
    for key in (PrivateKey.generate(), parties.owners["north"]):
        for signed in (sign_envelope(payload, STUDY_TYPE, key), envelope):
            assert federation.put(stored, key, signed).status_code == 403
        foreign = sign_envelope(payload, STUDY_TYPE, key)
        assert federation.put(stored, parties.analyst, foreign).status_code == 400
    assert federation.get(stored).status_code == 404


@TAKES
def test_a_tester_that_parsed_before_it_checked_would_be_caught(
    federation: Federation,
    payloads_are_not_parsed: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
    take: str,
) -> None:
    """And one whose reader of envelopes ignored the signature."""
    study = federation.create()
    answers = answers_of(federation, study)
    flipped = _with(ANSWERS[take][2](federation.parties, study), sig=bytes(64))
    genuine = answers_module.open_envelope
    assert refused_by_the_tester(federation, answers, study, flipped, take) == "the signature does not hold"
    mistaken = with_mistake(
        envelope_module, "verify_signature(public_hex, signature, _encoding(payload, payload_type))", "pass"
    )

    def parsed_first(envelope: bytes, *rest: str) -> bytes:
        answers_module.decode(Study, envelope)
        return genuine(envelope, *rest)

    for planted, error, words in (
        (mistaken.open_envelope, pytest.fail.Exception, "DID NOT RAISE"),
        (parsed_first, AssertionError, "before its signature"),
    ):
        if planted is parsed_first:
            payloads_are_not_parsed()
        for module in (answers_module, relay_module):
            monkeypatch.setattr(module, "open_envelope", planted)
        with pytest.raises(error, match=words):
            refused_by_the_tester(federation, answers, study, flipped, take)


DIGEST, SIGNATURE = "digest-mismatch", "invalid-signature"
REPLAYS: dict[tuple[str, str], tuple[Callable[[Any, str, str], bytes], str]] = {
    ("releases/north", "a release of another study"): (lambda p, old, _: p.release(old, "north"), DIGEST),
    ("releases/north", "a release of another owner"): (lambda p, _, new: p.release(new, "south"), SIGNATURE),
    ("releases/north", "a release naming another owner"): (
        lambda p, _, new: p.release(new, "north", party="south"),
        DIGEST,
    ),
    ("releases/north", "a decline"): (lambda p, _, new: p.decline(new, "north"), SIGNATURE),
    ("releases/north", "a cancellation"): (lambda p, _, new: p.cancellation(new), SIGNATURE),
    ("releases/north", "a study"): (lambda p, *_: p.sealed_study()[1], SIGNATURE),
    ("declines/north", "a decline of another study"): (lambda p, old, _: p.decline(old, "north"), DIGEST),
    ("declines/north", "a decline of another owner"): (lambda p, _, new: p.decline(new, "south"), SIGNATURE),
    ("declines/north", "a release"): (lambda p, _, new: p.release(new, "north"), SIGNATURE),
    ("cancellation", "a cancellation of another study"): (lambda p, old, _: p.cancellation(old), DIGEST),
    ("cancellation", "a decline"): (lambda p, _, new: p.decline(new, "north"), SIGNATURE),
}


def test_replayed_answers_are_refused_by_the_tester(federation: Federation) -> None:
    old, new = federation.create(), federation.create(title="Again?")
    for (path, sent), (make, slug) in REPLAYS.items():
        key = federation.parties.analyst if path == "cancellation" else federation.parties.owners["north"]
        response = federation.put(f"/v1/studies/{new}/{path}", key, make(federation.parties, old, new))
        assert problem(response) == slug, sent
    assert federation.state(new) == "collecting"
    assert not federation.get(f"/v1/studies/{new}").json()["owners"][0]["sent"]


def test_a_study_is_cancelled_by_its_analyst_alone(federation: Federation) -> None:
    study = federation.create()
    envelope = federation.parties.cancellation(study)
    for key in (*federation.parties.owners.values(), PrivateKey.generate()):
        refused = federation.put(f"/v1/studies/{study}/cancellation", key, envelope)
        assert problem(refused) in {"forbidden", "unknown-party"}
    assert federation.state(study) == "collecting"


def test_a_release_for_another_tester_is_unknown_here(federation: Federation) -> None:
    elsewhere, envelope = federation.parties.sealed_study(tester=Party(name="tester", key="7" * 64))
    refused = federation.put(f"/v1/studies/{elsewhere}", federation.parties.analyst, envelope)
    assert problem(refused) == "study-refused"
    assert problem(federation.release(elsewhere, "north")) == "unknown-study"


def test_late_answers_and_those_of_strangers_are_refused(federation: Federation) -> None:
    study = federation.create()
    path, envelope = f"/v1/studies/{study}/releases/north", federation.parties.release(study, "north")
    assert problem(federation.put(path, PrivateKey.generate(), envelope)) == "unknown-party"
    assert problem(federation.put(path, federation.parties.owners["south"], envelope)) == "forbidden"
    # The study's analyst may carry an answer; not a changed one, nor one for another owner.
    analyst, elsewhere = federation.parties.analyst, f"/v1/studies/{study}/releases/south"
    changed = envelope[:-9] + (b"B" if envelope[-9:-8] == b"A" else b"A") + envelope[-8:]
    assert problem(federation.put(path, analyst, changed)) != "forbidden"
    assert problem(federation.put(elsewhere, analyst, envelope)) in {"invalid-signature", "digest-mismatch"}
    federation.now += 3601
    assert problem(federation.release(study, "north")) == "study-expired"


def test_a_second_release_never_takes_the_place_of_the_first(federation: Federation) -> None:
    study = federation.create()
    assert federation.release(study, "north", value=7).status_code == 201
    for value in (6, 8):
        assert problem(federation.release(study, "north", value=value)) == "conflicting-upload"
    assert federation.release(study, "north", value=7).status_code == 200


# Verdicts, at the agent.


def test_forged_verdicts_are_refused_by_the_agent_before_they_are_parsed(
    make_agent: MakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    attacked = make_agent()
    asked = attacked.world.ask(attacked.tester, attacked.world.study())
    attacked.turn()
    message = VerdictMessage(study=asked, outcome="cancelled", releases={}, software="tacit")
    honest = sign_envelope(encode(message), VERDICT_TYPE, attacked.world.tester)
    other = message.model_copy(update={"study": "0" * 64})

    def offer(envelope: bytes) -> bool:
        attacked.tester.verdicts[asked] = envelope
        Fetcher(attacked.agent).fetch_verdicts()
        return attacked.row(asked).verdict is not None

    with monkeypatch.context() as patched:
        patched.setattr(fetching, "decode", lambda *_: pytest.fail("parsed before the signature was checked"))
        for envelope in (
            *flips(honest),
            sign_envelope(encode(message), VERDICT_TYPE, attacked.world.analyst),
            sign_envelope(encode(message), STUDY_TYPE, attacked.world.tester),
        ):
            assert not offer(envelope)
    assert not offer(sign_envelope(encode(other), VERDICT_TYPE, attacked.world.tester))
    assert offer(honest)


def test_a_verdict_is_never_rolled_back(make_agent: MakeAgent) -> None:
    attacked = make_agent()
    asked = attacked.world.ask(attacked.tester, attacked.world.study())
    attacked.turn()
    first = VerdictMessage(study=asked, outcome="cancelled", releases={}, software="tacit 2")
    for message in (first, first.model_copy(update={"software": "tacit 1"})):
        attacked.tester.verdicts[asked] = sign_envelope(encode(message), VERDICT_TYPE, attacked.world.tester)
        Fetcher(attacked.agent).fetch_verdicts()
    kept = attacked.row(asked).verdict
    assert kept == sign_envelope(encode(first), VERDICT_TYPE, attacked.world.tester)
    assert open_envelope(kept, VERDICT_TYPE, attacked.world.tester.public_hex) == encode(first)


MALLORY = PrivateKey.generate()


class Victim:
    """An owner who is handed files, and the peer who should have made them."""

    def __init__(self, folder: Path) -> None:
        self.attacked = AttackedAgent(folder, World(folder), PROCEDURES, data_set=UNIT_COLUMN)
        self.config, self.peer = folder / "agent.toml", Peer(folder)

    def recorded(self) -> int:
        return len(run_transaction(self.attacked.agent.engine, alignments, read_only=True))

    def refuses(self, envelope: bytes) -> str:
        """What the owner is told; nothing of the file is in it."""
        with pytest.raises(AlignmentRefusedError) as refused:
            self.peer.compared(self.config, envelope)
        assert self.recorded() == 0
        return str(refused.value)


@pytest.fixture
def victim(tmp_path: Path) -> Victim:
    return Victim(tmp_path)


def without_the_key(message: AlignmentMessage, **changes: Any) -> AlignmentMessage:
    """A message as somebody makes it who has seen another one, and has not the shared key."""
    changed = message.model_copy(update={**changes, "proof": NO_PROOF})
    return changed.model_copy(update={"proof": UnitKey(bytes(32)).proof(encode(changed))})


def mallorys(peer: Peer) -> Party:
    return Party(name=peer.name, key=MALLORY.public_hex)


FORGERIES: dict[str, Callable[[Peer], bytes]] = {
    "signed by another": lambda peer: peer.sealed(key=MALLORY),
    "re-signed in the peer's name": lambda peer: peer.sealed(
        peer.message().model_copy(update={"owner": mallorys(peer)}), MALLORY
    ),
    "re-signed, with a proof by another key": lambda peer: peer.sealed(
        without_the_key(peer.message(), owner=mallorys(peer)), MALLORY
    ),
    "for another data set": lambda peer: peer.sealed(without_the_key(peer.message(), data_set="others")),
    "of fewer units": lambda peer: peer.sealed(without_the_key(peer.message(), units=59)),
    "by another shared key": lambda peer: Peer(peer.folder, key=peer.key, shared=UnitKey(bytes(32))).sealed(),
    "of another column": lambda peer: peer.sealed(peer.message(unit_column="person")),
    "another type of message": lambda peer: sign_envelope(encode(peer.message()), STUDY_TYPE, peer.key),
    "no message": lambda peer: sign_envelope(b"{}", ALIGNMENT_TYPE, peer.key),
    "not JSON": lambda _: b"\x00" * 1000,
    "empty": lambda _: b"",
    "huge": lambda _: b" " * (ENVELOPE_BYTES_MAX + 1),
    "the owner's name with a key of its own": lambda peer: Peer(peer.folder, name="north").sealed(),
}


def test_a_forged_file_is_refused(victim: Victim) -> None:
    for name, forge in FORGERIES.items():
        told = victim.refuses(forge(victim.peer))
        secrets = (*IDS, "others", "person", victim.peer.shared.secret.hex())
        assert not any(text in told for text in secrets), name
    own = Peer(victim.peer.folder, key=victim.attacked.world.agent)
    assert "your own" in victim.refuses(own.sealed())


def test_every_flipped_bit_and_every_cut_is_refused(victim: Victim, monkeypatch: pytest.MonkeyPatch) -> None:
    """A flip in every 29th byte and a cut at every 97th: the file has some 1300. The data are read once."""
    genuine = victim.peer.sealed()
    own = alignment._own_side(victim.config, "patients", None, victim.peer.key_file)
    monkeypatch.setattr(alignment, "_own_side", lambda *_: own)
    for place in range(0, len(genuine), 29):
        flipped = bytearray(genuine)
        flipped[place] ^= 1 << (place % 8)
        victim.refuses(bytes(flipped))
    for length in range(1, len(genuine), 97):
        victim.refuses(genuine[:length])
    assert victim.peer.compared(victim.config, genuine)["ok"]
    assert victim.recorded() == 1


@pytest.mark.parametrize("part", ["signature", "proof"])
def test_a_check_left_out_would_be_caught(victim: Victim, monkeypatch: pytest.MonkeyPatch, part: str) -> None:
    """Without the proof, whoever saw a file could sign its content; without the signature, change it."""
    if part == "proof":
        monkeypatch.setattr(UnitKey, "proves", lambda *_: True)
        forged = FORGERIES["re-signed, with a proof by another key"](victim.peer)
    else:
        monkeypatch.setattr(
            alignment,
            "open_envelope",
            lambda envelope, *_: base64.b64decode(json.loads(envelope)["payload"]),
        )
        fields = json.loads(victim.peer.sealed())
        fields["signatures"][0]["sig"] = base64.b64encode(bytes(64)).decode()
        forged = json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()
    assert victim.peer.compared(victim.config, forged)["ok"]


@pytest.mark.parametrize("whose", ["another data set's", "a pretender's"])
def test_a_genuine_file_serves_no_study_but_of_its_own_data_set_and_signer(
    victim: Victim, whose: str
) -> None:
    """Whoever both owners gave the key to can pass for the peer here, but not in the peer's studies."""
    peer = victim.peer
    pretender = Peer(peer.folder, key=MALLORY).sealed()
    other = peer.sealed(peer.message(data_set="others")) if whose == "another data set's" else pretender
    assert peer.compared(victim.config, other)["ok"]
    attacked = victim.attacked
    digest = attacked.world.ask(attacked.tester, aligned_study(attacked.world, peer))
    attacked.turn()
    assert (attacked.row(digest).problem, attacked.debits()) == ("not-aligned", [])
