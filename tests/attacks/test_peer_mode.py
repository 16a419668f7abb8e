"""A tester, an analyst and owners who attack the release that one owner seals to another."""

import base64
import io
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from served import problem
from simulation import RelaySimulation as World
from world import NOW, PEER, RECEIVER, SENDER, key_of, peer_study, sealed

from tacit_protocol.messages.encoding import MESSAGE_BYTES_MAX, decode, digest, encode
from tacit_protocol.messages.study import (
    CIPHERTEXT_BYTES_MAX,
    HEADER_BYTES,
    NUMBER_BYTES,
    SEAL_BYTES,
    Receipt,
    Release,
    ReleaseMessage,
    SealedPackage,
    SealedRelease,
    SealingCertificate,
    Study,
    ciphertext_digest,
    padded,
)
from tacit_protocol.privacy.guarantee import COORDINATES_MAX, Budget, NoisyVector
from tacit_protocol.procedures.distance_correlation.peer import PeerPlan
from tacit_protocol.signing import (
    RECEIPT_TYPE,
    RELEASE_TYPE,
    SEALED_RELEASE_TYPE,
    SealContext,
    certified_bytes,
    certify,
    open_envelope,
    open_sealed,
    seal_to,
    sign_envelope,
)
from tacit_services.agent.schema import OUTBOX, RECEIVED, SIGN_IN, STUDIES
from tacit_services.agent.settings import DataSetSettings
from tacit_services.agent.study import releases as sealed_module
from tacit_services.agent.study.delivery import Delivery
from tacit_services.agent.study.fetching import Fetcher
from tacit_services.agent.study.intake import IntakeRefusedError
from tacit_services.agent.study.loops import work
from tacit_services.agent.study.studies import study_row
from tacit_services.agent.web import views
from tacit_services.shared.database import run_transaction
from tacit_services.tester.tables import SEALED


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.close()


def opened(study: str, package: bytes) -> ReleaseMessage:
    """Open a package with the receiver's key."""
    ciphertext = decode(SealedPackage, package).sealed
    message = open_sealed(key_of(RECEIVER), SealContext(study, SENDER, RECEIVER), ciphertext)
    return decode(ReleaseMessage, message)


def canaries(message: ReleaseMessage) -> list[bytes]:
    """Return runs of three noisy numbers, as JSON has them, and in base64 at every offset."""
    values = message.release.vectors["projections"].values
    found = []
    for place in (0, 20, 40):
        run = b",".join(str(value).encode() for value in values[place : place + 3])
        found += [run, *(base64.b64encode(run[cut:])[:-4] for cut in range(3))]
    return found


def leaks(world: World, secrets: list[bytes], log: str) -> set[str]:
    """Return where a secret stands: files, databases, bodies, log."""
    places = {path.name: path.read_bytes() for path in world.folder.iterdir() if path.suffix != ".csv"}
    places |= {"bodies": b"\n".join(world.bodies), "log": log.encode()}
    return {name for name, content in places.items() if any(secret in content for secret in secrets)}


@pytest.mark.parametrize("publish", [False, True])
def test_nobody_but_the_receiver_ever_holds_the_numbers_and_it_in_memory_alone(
    world: World, publish: bool
) -> None:
    """Not the tester's database, log and traffic, not the transcript, and no file of the receiver's."""
    log = io.StringIO()
    with redirect_stdout(log):
        study = world.ask(peer_study(publish))
        world.finish()
    assert world.state(study) == "sent"
    transcript = world.call("GET", f"/v1/studies/{study}/transcript", "ada").content
    package = world.package()
    world.bodies.append(transcript)
    assert leaks(world, canaries(opened(study, package)), log.getvalue()) == set()
    ciphertext = decode(SealedPackage, package).ciphertext.encode()
    assert ciphertext[:100] not in transcript
    assert world.rows("tester", SEALED) == []


def test_a_release_that_is_not_sealed_would_be_caught(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealed_module, "seal_to", lambda *given: given[3] + bytes(SEAL_BYTES))
    study = world.ask()
    world.send()
    plain = decode(SealedPackage, world.package()).sealed[:-SEAL_BYTES]
    assert {"bodies", "tester.sqlite3-wal"} <= leaks(world, canaries(decode(ReleaseMessage, plain)), "")
    assert world.call("GET", f"/v1/studies/{study}/sealed/{SENDER}", RECEIVER).status_code == 200


def test_only_the_receiver_is_handed_the_sealed_release(world: World) -> None:
    study = world.ask()
    path = f"/v1/studies/{study}/sealed/{SENDER}"
    assert problem(world.call("GET", path, RECEIVER)) == "release-pending"
    world.send()
    for stranger in ("ada", SENDER, "west", "tester"):
        assert problem(world.call("GET", path, stranger)) == "forbidden"
    assert world.call("GET", path, None).status_code == 401
    assert problem(world.call("GET", f"/v1/studies/{study}/sealed/{RECEIVER}", RECEIVER)) == "forbidden"
    assert world.call("GET", path, RECEIVER).content == world.package()


def test_a_ciphertext_says_nothing_by_its_size(world: World) -> None:
    sizes = set()
    for title in ("one", "two", "three"):
        world.ask(peer_study(title=title))
        world.send()
        sizes.add(len(decode(SealedPackage, world.package()).sealed))
    assert sizes == {HEADER_BYTES + 60 * NUMBER_BYTES + SEAL_BYTES}


def signed_by_the_analyst() -> SealingCertificate:
    public = certify(key_of("ada")).key
    signature = key_of("ada").sign(certified_bytes(key_of(RECEIVER).public_hex, public))
    return SealingCertificate(key=public, signature=signature.hex())


def substituted(certificate: SealingCertificate | None) -> Study:
    study = peer_study()
    owners = tuple(
        owner.model_copy(update={"sealing": certificate}) if owner.name == RECEIVER else owner
        for owner in study.owners
    )
    return study.model_copy(update={"owners": owners})


def test_a_substituted_certificate_is_refused_before_data_are_touched(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    touched: list[str] = []
    monkeypatch.setattr(DataSetSettings, "open", lambda self: touched.append(self.name))
    of_a_key_exchanged = certify(key_of(RECEIVER)).model_copy(update={"key": certify(key_of("ada")).key})
    for certificate in (certify(key_of("tester")), signed_by_the_analyst(), of_a_key_exchanged, None):
        name, envelope = sealed(substituted(certificate))
        assert problem(world.call("PUT", f"/v1/studies/{name}", "ada", envelope)) == "study-refused"
        for agent in world.agents.values():
            with pytest.raises(IntakeRefusedError, match="certifi"):
                agent.intake.accept(name, agent.intake.authenticate(name, envelope), NOW)
    assert touched == []


def test_a_receiver_refuses_a_key_that_is_not_its_own_even_if_it_is_certified(world: World) -> None:
    public = certify(key_of("ada")).key
    signature = key_of(RECEIVER).sign(certified_bytes(key_of(RECEIVER).public_hex, public))
    name, envelope = sealed(substituted(SealingCertificate(key=public, signature=signature.hex())))
    receiver = world.agents[RECEIVER]
    with pytest.raises(IntakeRefusedError, match="another key"):
        receiver.intake.accept(name, receiver.intake.authenticate(name, envelope), NOW)


def flip(content: bytes, place: int) -> bytes:
    changed = bytearray(content)
    changed[place] ^= 1
    return bytes(changed)


@pytest.mark.long
def test_what_the_tester_changes_is_not_taken_and_asked_for_again(world: World) -> None:
    study = world.ask()
    world.send()
    package = world.package()
    for place in range(0, len(package), max(1, len(package) // 200)):
        world.change = lambda content, place=place: flip(content, place)  # type: ignore[misc]
        world.receive()
        assert world.rows(RECEIVER, RECEIVED) == []
        assert world.state(study) == "approved"
    world.change = lambda _: b"x" * (MESSAGE_BYTES_MAX + 1)
    with pytest.raises(Exception, match="more than a message"):
        Fetcher(world.agents[RECEIVER]).collect()
    world.change = lambda content: content
    world.receive()
    assert world.state(study) == "sent"


def test_another_studys_package_is_not_taken(world: World) -> None:
    world.ask(peer_study(title="the first"))
    world.send()
    first = world.package()
    study = world.ask(peer_study(title="the second"))
    answer = world.call("PUT", f"/v1/studies/{study}/releases/{SENDER}", SENDER, first)
    assert problem(answer) == "digest-mismatch"
    world.send()
    world.change = lambda _: first
    world.receive()
    assert world.state(study) == "approved"


def statement(study: str, ciphertext: bytes, /, party: str = SENDER, **changes: Any) -> bytes:
    """Return a package with a statement that the party signs itself."""
    message = SealedRelease(
        study=study,
        party=party,
        receiver=RECEIVER,
        units=60,
        ciphertext_digest=ciphertext_digest(ciphertext),
        ciphertext_bytes=len(ciphertext),
    )
    envelope = sign_envelope(encode(message.model_copy(update=changes)), SEALED_RELEASE_TYPE, key_of(party))
    return encode(SealedPackage.of(envelope, ciphertext))


def sealed_to_the_receiver(study: str, message: bytes) -> bytes:
    context = SealContext(study, SENDER, RECEIVER)
    return seal_to(certify(key_of(RECEIVER)), key_of(RECEIVER).public_hex, context, message)


def test_another_owners_ciphertext_is_not_taken(world: World) -> None:
    study = world.ask()
    world.send()
    message = padded(opened(study, world.package()))
    forged = statement(study, sealed_to_the_receiver(study, message), party="west")
    answer = world.call("PUT", f"/v1/studies/{study}/releases/{SENDER}", "west", forged)
    assert problem(answer) == "forbidden"
    world.change = lambda _: forged
    world.receive()
    assert world.state(study) == "approved"
    assert world.rows(RECEIVER, RECEIVED) == []


def changed(release: Release, **changes: Any) -> Release:
    vector = NoisyVector(**{**release.vectors["projections"].model_dump(), **changes})
    return release.model_copy(update={"vectors": {"projections": vector}})


def with_other_noise(release: Release) -> Release:
    return changed(release, scale=release.vectors["projections"].scale / 2)


def with_another_shape(release: Release) -> Release:
    return changed(release, values=(*release.vectors["projections"].values, 1))


@pytest.mark.parametrize("change", [None, with_other_noise, with_another_shape])
def test_a_sealed_release_that_does_not_fit_ends_the_study(
    world: World, change: Callable[[Release], Release] | None
) -> None:
    """Nobody but the receiver can check it, and does; without a change it is a replay of the sender's own,
    which opens as part of its own study alone."""
    first = world.ask(peer_study(title="the first"))
    world.send()
    ciphertext = decode(SealedPackage, world.package()).sealed
    release = opened(first, world.package()).release
    study = world.ask(peer_study(title="the second"))
    if change is not None:
        message = ReleaseMessage(study=study, party=SENDER, release=change(release))
        ciphertext = sealed_to_the_receiver(study, padded(message))
    path = f"/v1/studies/{study}/releases/{SENDER}"
    assert world.call("PUT", path, SENDER, statement(study, ciphertext)).status_code == 201
    world.receive()
    assert world.state(study) == "refused"


def test_what_is_too_large_or_not_what_it_says_is_refused_by_the_tester(world: World) -> None:
    study = world.ask()
    path = f"/v1/studies/{study}/releases/{SENDER}"

    def refusal(content: bytes) -> str:
        return problem(world.call("PUT", path, SENDER, content))

    assert refusal(b"{" + b" " * MESSAGE_BYTES_MAX + b"}") == "message-too-large"
    package = statement(study, bytes(CIPHERTEXT_BYTES_MAX))
    longer = decode(SealedPackage, package).ciphertext + "AAAA"
    bomb = package.replace(decode(SealedPackage, package).ciphertext.encode(), longer.encode())
    assert refusal(bomb) == "malformed-message"
    assert refusal(statement(study, bytes(100), ciphertext_bytes=101)) == "release-refused"
    assert refusal(statement(study, bytes(100), ciphertext_digest="0" * 64)) == "release-refused"
    assert refusal(statement(study, bytes(100), receiver="west")) == "release-refused"
    assert refusal(statement(study, bytes(100), study="0" * 64)) == "digest-mismatch"
    assert world.rows("tester", SEALED) == []
    # The largest that is allowed fits, and is taken: nobody but the receiver can know that it is no release.
    assert world.call("PUT", path, SENDER, package).status_code == 201
    world.receive()
    assert world.state(study) == "refused"


def test_the_largest_release_fits_one_request() -> None:
    vector = NoisyVector(
        values=(-(2**63),) * COORDINATES_MAX, exponent=-20, noise="gaussian", scale=123.45678901234567
    )
    guarantee = PEER.procedure.cost(peer_study())
    release = Release(units=COORDINATES_MAX, guarantee=guarantee, vectors={"projections": vector})
    message = ReleaseMessage(study="0" * 64, party="a" * 63, release=release)
    package = statement("0" * 64, padded(message) + bytes(SEAL_BYTES))
    assert len(package) <= MESSAGE_BYTES_MAX


def receipt(study: str, received: str, party: str = RECEIVER) -> bytes:
    message = Receipt(study=study, party=party, units=60, received=received)
    return sign_envelope(encode(message), RECEIPT_TYPE, key_of(party))


def test_receipts_are_for_what_was_sent_and_by_the_receiver(world: World) -> None:
    study = world.ask()
    path = f"/v1/studies/{study}/releases/"
    assert (
        problem(world.call("PUT", path + RECEIVER, RECEIVER, receipt(study, "0" * 64))) == "release-refused"
    )
    world.send()
    assert (
        problem(world.call("PUT", path + RECEIVER, RECEIVER, receipt(study, "0" * 64))) == "release-refused"
    )
    sent = decode(SealedPackage, world.package()).statement.encode()
    genuine = digest(open_envelope(sent, SEALED_RELEASE_TYPE, key_of(SENDER).public_hex))
    by_sender = receipt(study, genuine, SENDER)
    assert problem(world.call("PUT", path + RECEIVER, RECEIVER, by_sender)) == "invalid-signature"
    assert problem(world.call("PUT", path + SENDER, SENDER, by_sender)) == "malformed-message"
    assert world.call("PUT", path + RECEIVER, RECEIVER, receipt(study, genuine)).status_code == 201


def test_an_owner_cannot_answer_with_a_release_in_the_open(world: World) -> None:
    """Neither owner's noisy numbers may reach the tester, whoever asks for them."""
    study = world.ask()
    world.send()
    message = opened(study, world.package())
    for name in (SENDER, RECEIVER):
        plain = sign_envelope(encode(message.model_copy(update={"party": name})), RELEASE_TYPE, key_of(name))
        answer = world.call("PUT", f"/v1/studies/{study}/releases/{name}", name, plain)
        assert problem(answer) in {"malformed-message", "invalid-signature"}
    published = world.ask(peer_study(publish=True, title="published"))
    world.send()
    own = ReleaseMessage(study=published, party=RECEIVER, release=message.release)
    plain = sign_envelope(encode(own), RELEASE_TYPE, key_of(RECEIVER))
    answer = world.call("PUT", f"/v1/studies/{published}/releases/{RECEIVER}", RECEIVER, plain)
    assert problem(answer) == "release-refused"


def test_a_sender_that_declines_ends_the_study_for_the_receiver(world: World) -> None:
    study = world.ask()
    sender = world.agents[SENDER]
    Fetcher(sender).poll(0)
    sender.decline(study, None)
    Delivery(sender).deliver()
    world.receive()
    assert world.state(study) == "refused"
    answer = world.call("GET", f"/v1/studies/{study}", "ada").json()
    assert answer["state"] == "incomplete"


@pytest.mark.sweep(1)
@pytest.mark.parametrize("computing_s", [0.0, 2.0])
@pytest.mark.parametrize("publish", [False, True])
def test_when_the_receiver_answers_says_nothing_of_its_data(
    world: World, monkeypatch: pytest.MonkeyPatch, publish: bool, computing_s: float
) -> None:
    """Its schedule begins when the package has come, long after it decided, and not when it has computed."""
    combine = PeerPlan.combine

    def slowly(*given: Any) -> Any:
        world.now += computing_s
        return combine(*given)

    world.ask(peer_study(publish, respond_after_s=5))
    Fetcher(world.agents[RECEIVER]).poll(0)
    work(world.agents[RECEIVER])
    world.send()
    world.now += 100  # the sender's own schedule, and more
    work(world.agents[SENDER])
    monkeypatch.setattr(PeerPlan, "combine", slowly)
    world.receive()
    assert [row.send_at for row in world.rows(RECEIVER, OUTBOX)] == [NOW + 105]
    assert world.rows(RECEIVER, OUTBOX)[0].closed_at is None


def test_a_receiver_that_spends_nothing_is_not_held_to_its_budget(world: World) -> None:
    """The policy's most epsilon is for what is spent; the sender's agent refuses the same study."""
    study = world.ask(peer_study(budget=Budget.of("10", "1e-5")))
    for name, agent in world.agents.items():
        Fetcher(agent).poll(0)
        states = {row.digest: row.state for row in world.rows(name, STUDIES)}
        assert states[study] == ("refused" if name == SENDER else "approved")
    receiver = world.agents[RECEIVER]
    row = run_transaction(receiver.engine, lambda c: study_row(c, study), read_only=True)
    assert row is not None
    shown = views.detail(receiver, row, SIGN_IN.people)
    assert (shown["epsilon_micro"], shown["release_size"]) == (0, 0)
