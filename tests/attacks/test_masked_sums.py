"""A tester and owners who attack masked sums: what they read, what they can break, and what is refused."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_studies import NoNoise
from simulation import MaskedWorld
from window import Window
from world import MASKED, exact_total, key_message, key_of, key_shown, masked_study, release_in, sealed

from tacit.command.study_view import held_words
from tacit_protocol.messages.encoding import decode, encode
from tacit_protocol.messages.study import DeclineMessage, Release, ReleaseMessage, Study, Transcript
from tacit_protocol.privacy.guarantee import MaskedVector
from tacit_protocol.privacy.noise import OpenDPNoise
from tacit_protocol.procedures.masking import as_layout, masked, masks_of, read_roster
from tacit_protocol.procedures.noisy_counts import NoisyCounts
from tacit_protocol.signing import (
    DECLINE_TYPE,
    RELEASE_TYPE,
    draw_mask_secret,
    issue_token,
    mask_public_hex,
    sign_envelope,
)
from tacit_protocol.verification import VerificationError, verify_transcript
from tacit_services.agent.schema import MASK_SECRETS, OUTBOX, RECEIVED, SIGN_IN
from tacit_services.agent.study.delivery import Delivery
from tacit_services.agent.study.fetching import Fetcher
from tacit_services.agent.study.studies import study_of_row
from tacit_services.agent.web import views
from tacit_services.agent.web.routes import Runtime, create_agent_app
from tacit_services.ledger.entries import RESERVATIONS
from tacit_services.tester.tables import MASK_KEYS, RELEASES

OWN_MICRO = 1_187_274
"""What a share of the noise costs towards all four others, where the study claims half an epsilon."""


@pytest.fixture(scope="module")
def templates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("templates")
    MaskedWorld.make_templates(folder)
    return folder


MakeWorld = Callable[..., MaskedWorld]


@pytest.fixture
def make_world(tmp_path: Path, templates: Path) -> Iterator[MakeWorld]:
    made: list[MaskedWorld] = []

    def make(**options: Any) -> MaskedWorld:
        made.append(MaskedWorld(tmp_path, templates, **options))
        return made[-1]

    yield make
    for world in made:
        world.close()


@pytest.fixture
def world(make_world: MakeWorld) -> MaskedWorld:
    return make_world()


def problem(response: Any) -> str:
    return str(response.json()["type"]).rpartition(":")[2]


def releases_at(world: MaskedWorld) -> dict[str, Release]:
    """Return the releases that the tester holds, by owner."""
    rows = world.rows("tester", RELEASES)
    return {row.owner: release_in(bytes(row.envelope), row.owner).release for row in rows}


def words(releases: dict[str, Release]) -> Any:
    """Return the sum of masked counts, (cells,) modulo 2^64."""
    return sum(release.masked["counts"].steps() for release in releases.values())


def in_units(steps: Any) -> Any:
    return np.ldexp(np.asarray(steps, dtype=np.uint64).view(np.int64).astype(float), -20)[:2]


def test_the_tester_reads_the_sum_to_the_last_bit_and_everyone_verifies_it(make_world: MakeWorld) -> None:
    world = make_world(noise=NoNoise())
    study = world.ask()
    world.finish()
    assert np.array_equal(in_units(words(releases_at(world))), exact_total())
    found = verify_transcript(world.transcript(study), key_of("tester").public_hex)
    assert found.result.counts == {"all owners together": (*exact_total(), 0, 0)}
    assert found.result.units == {release.party: release.release.units for release in signed(world).values()}
    assert {name: world.spent(name) for name in MASKED} == {name: [OWN_MICRO] for name in MASKED}
    for name in MASKED:
        assert world.rows(name, MASK_SECRETS) == world.rows(name, RESERVATIONS) == []


def signed(world: MaskedWorld) -> dict[str, Any]:
    return {row.owner: release_in(bytes(row.envelope), row.owner) for row in world.rows("tester", RELEASES)}


@pytest.mark.parametrize("ends", ["released", "declined"])
def test_no_file_of_a_database_holds_a_secret_of_masks_once_its_study_is_over(
    make_world: MakeWorld, ends: str
) -> None:
    """Nor where another process reads the database when the secret is deleted: it is tried again."""
    world = make_world()
    study = world.ask()
    world.show_keys()
    secrets = {name: bytes(world.rows(name, MASK_SECRETS)[0].secret) for name in MASKED}
    assert all(secrets[name] in stored(world, name) for name in MASKED)
    with closing(sqlite3.connect(str(world.engines["east"].url.database))) as reading:
        reading.execute("BEGIN")
        assert reading.execute("SELECT count(*) FROM agent_mask_secrets").fetchone() == (1,)
        if ends == "declined":
            for name in MASKED:
                world.agents[name].decline(study, None)
        world.answer()
        assert secrets["east"] in stored(world, "east")
    world.agents["east"].overwrite()
    assert [name for name in MASKED if secrets[name] in stored(world, name)] == []
    assert all(world.rows(name, MASK_SECRETS) == [] for name in MASKED)


def stored(world: MaskedWorld, name: str) -> bytes:
    """Return the bytes of every file of an owner's database."""
    file = Path(str(world.engines[name].url.database))
    return b"".join(each.read_bytes() for each in file.parent.glob(f"{file.name}*"))


def test_a_tester_with_all_but_two_owners_reads_nothing_but_the_twos_sum(make_world: MakeWorld) -> None:
    """All masks that the colluders know are taken away: what is left of either is uniform, of both exact."""
    world = make_world(noise=NoNoise())
    study = world.ask()
    world.show_keys()
    secrets = {name: bytes(world.rows(name, MASK_SECRETS)[0].secret) for name in MASKED}
    world.answer()
    held = releases_at(world)
    rows = world.rows("tester", MASK_KEYS)
    roster = read_roster(masked_study(), study, {row.owner: bytes(row.envelope) for row in rows})
    honest, colluding = MASKED[:2], MASKED[2:]
    known = {
        name: sum(masks_between(roster, name, other, secrets[other]) for other in colluding)
        for name in honest
    }
    left = {name: held[name].masked["counts"].steps() - known[name] for name in honest}
    assert np.array_equal(in_units(sum(left.values())), exact_total(honest))
    for name in honest:
        # Within 2^40 of the truth by chance: probability 2^-23 a cell.
        away = np.abs(in_units(left[name]) - exact_total((name,)))
        assert (away > 2**20).all()


def masks_between(roster: Any, name: str, other: str, secret: bytes) -> Any:
    """Return what ``name`` adds for ``other``, computed by ``other``, who knows its own secret."""
    two = type(roster)(roster.study, {n: roster.keys[n] for n in (name, other)}, roster.digest)
    return -masks_of(two, other, secret, "counts", 4)


def test_equivocation_by_a_tester_with_an_owner_breaks_the_sum_and_shows(make_world: MakeWorld) -> None:
    """York signs two keys, and the tester shows one to some owners and the other to the rest."""
    world = make_world(noise=NoNoise())
    study = world.ask()
    world.show_keys()
    other = key_message(study, "york", mask_public_hex(draw_mask_secret())).decode()
    world.shown = lambda name, keys: keys | ({"york": other} if name in {"east", "north"} else {})
    world.answer()
    assert {row.owner for row in world.rows("tester", RELEASES)} == {"south", "west", "york"}, "refused"
    stored = {name: world.rows(name, OUTBOX)[-1] for name in MASKED}
    assert {name: row.outcome for name, row in stored.items() if name in {"east", "north"}} == {
        "east": "release-refused",
        "north": "release-refused",
    }
    everything = {name: release_in(bytes(row.envelope), name).release for name, row in stored.items()}
    assert (np.abs(in_units(words(everything)) - exact_total()) > 2**20).all()
    for some in ({"east", "north"}, {"south", "west", "york"}, {"south", "west"}):
        part = {name: everything[name] for name in some}
        assert (np.abs(in_units(words(part)) - exact_total(tuple(some))) > 2**20).all()
    world.now += 40 * 24 * 3600
    world.work_at_tester()
    transcript = decode(Transcript, world.transcript(study))
    forged = transcript.releases | {name: bytes(stored[name].envelope).decode() for name in MASKED}
    with pytest.raises(VerificationError, match="masked with other keys"):
        verify_transcript(encode(transcript.model_copy(update={"releases": forged})))


def swapped_for_the_testers(study: str, keys: dict[str, str]) -> dict[str, str]:
    own = mask_public_hex(draw_mask_secret())
    return keys | {"west": key_message(study, "west", own, signer="tester").decode()}


def signed_by_another_owner(study: str, keys: dict[str, str]) -> dict[str, str]:
    own = mask_public_hex(draw_mask_secret())
    return keys | {"west": key_message(study, "west", own, signer="york").decode()}


def of_another_study(_: str, keys: dict[str, str]) -> dict[str, str]:
    own = mask_public_hex(draw_mask_secret())
    return keys | {"west": key_message("0" * 64, "west", own).decode()}


def without_one(_: str, keys: dict[str, str]) -> dict[str, str]:
    return {name: key for name, key in keys.items() if name != "west"}


def with_a_stranger(study: str, keys: dict[str, str]) -> dict[str, str]:
    return keys | {"ada": key_message(study, "ada", mask_public_hex(draw_mask_secret())).decode()}


def twice_the_same(study: str, keys: dict[str, str]) -> dict[str, str]:
    copied = key_shown(keys["east"], "east").key
    return keys | {"west": key_message(study, "west", copied).decode()}


def of_low_order(study: str, keys: dict[str, str]) -> dict[str, str]:
    return keys | {"west": key_message(study, "west", "0" * 64).decode()}


def another_of_its_own(study: str, keys: dict[str, str]) -> dict[str, str]:
    own = mask_public_hex(draw_mask_secret())
    return keys | {"north": key_message(study, "north", own).decode()}


def no_object(_: str, keys: dict[str, str]) -> Any:
    return list(keys)


ATTACKS_ON_KEYS = (
    swapped_for_the_testers,
    signed_by_another_owner,
    of_another_study,
    without_one,
    with_a_stranger,
    twice_the_same,
    of_low_order,
    another_of_its_own,
    no_object,
)


@pytest.mark.parametrize(
    "attack",
    [ATTACKS_ON_KEYS[0], *(pytest.param(attack, marks=pytest.mark.long) for attack in ATTACKS_ON_KEYS[1:])],
)
def test_keys_that_are_not_the_owners_are_not_taken_and_cost_nothing(
    world: MaskedWorld, attack: Callable[[str, Any], Any]
) -> None:
    study = world.ask()
    world.show_keys()
    world.shown = lambda name, keys: attack(study, keys) if name == "north" else keys
    world.answer("north")
    assert (world.state(study).state, world.rows("north", RECEIVED), world.spent()) == ("approved", [], [])
    world.shown = lambda _, keys: keys
    world.answer("north")
    assert (world.state(study).state, world.spent()) == ("sent", [OWN_MICRO])


@pytest.mark.long
def test_keys_that_change_after_an_owner_kept_them_are_not_heard(world: MaskedWorld) -> None:
    study = world.ask()
    world.show_keys()
    Fetcher(world.agents["north"]).collect()
    world.shown = lambda _, keys: of_another_study(study, keys)
    world.restart_agent("north")
    world.answer("north")
    world.shown = lambda _, keys: keys
    world.answer()
    world.work_at_tester()
    assert verify_transcript(world.transcript(study)).verdict.outcome == "completed"


@pytest.mark.long
def test_a_replayed_key_of_an_earlier_study_is_refused_by_tester_and_owners(world: MaskedWorld) -> None:
    first = world.ask()
    world.finish()
    second = world.ask(masked_study(title="again", budget=masked_study().budget))
    old = next(bytes(row.envelope) for row in world.rows("tester", MASK_KEYS) if row.owner == "west")
    assert key_shown(old, "west").study == first
    answer = world.call("PUT", f"/v1/studies/{second}/mask-keys/west", "west", old)
    assert problem(answer) == "digest-mismatch"


@pytest.mark.long
def test_a_second_key_and_a_second_answer_are_refused(world: MaskedWorld) -> None:
    study = world.ask()
    world.show_keys()
    own = key_message(study, "west", mask_public_hex(draw_mask_secret()))
    assert problem(world.call("PUT", f"/v1/studies/{study}/mask-keys/west", "west", own)) == (
        "conflicting-upload"
    )
    world.answer("west")
    message = signed(world)["west"]
    changed = message.release.model_copy(update={"units": message.release.units + 1})
    again = sign_envelope(
        encode(message.model_copy(update={"release": changed})), RELEASE_TYPE, key_of("west")
    )
    path = f"/v1/studies/{study}/releases/west"
    assert problem(world.call("PUT", path, "west", again)) == "conflicting-upload"
    stored = bytes(world.rows("west", OUTBOX)[-1].envelope)
    assert world.call("PUT", path, "west", stored).status_code == 200


@pytest.mark.long
def test_an_owner_whose_database_was_put_back_shows_no_second_key_and_ends_the_study(
    world: MaskedWorld,
) -> None:
    """The copy is from before the approval: the owner draws again, and the tester holds the first key."""
    copy = (world.folder / "west.sqlite3").read_bytes()
    study = world.ask()
    world.show_keys()
    world.engines["west"].dispose()
    for end in ("-wal", "-shm"):
        (world.folder / f"west.sqlite3{end}").unlink(missing_ok=True)
    (world.folder / "west.sqlite3").write_bytes(copy)
    world.restart_agent("west")
    world.show_keys("west")
    row = world.state(study, "west")
    assert (row.state, row.problem) == ("refused", "conflicting-upload")
    world.agents["west"].overwrite()
    assert world.spent("west") == [] == world.rows("west", MASK_SECRETS)
    Delivery(world.agents["west"]).deliver()
    world.answer()
    assert verify_transcript(world.transcript(study)).verdict.outcome == "incomplete"
    assert world.spent() == []


@pytest.mark.long
def test_who_looks_at_a_masked_release_that_is_held_is_told_that_it_says_nothing(
    world: MaskedWorld,
) -> None:
    study = world.ask()
    agent = world.agents["west"]
    agent.use_policy(agent.policy.model_copy(update={"look_before_sending": True}))
    world.show_keys()
    world.answer("west")
    world.now += 3600
    row = world.state(study, "west")
    assert row.state == "held"
    view = agent.held_view(study_of_row(row))
    assert view is not None
    assert "nothing can be read from them before every owner has sent" in " ".join(held_words({"held": view}))
    app = create_agent_app(agent, Runtime("0", lambda: True, lambda: None))
    token = lambda: issue_token(key_of("west"), "agent:west", int(world.now))  # noqa: E731
    page = Window(app, "http://localhost", token).sign_in().get(f"/studies/{study}").text
    assert "Nothing can be read from them" in page
    assert "counts</bdi>: 4 numbers" in page


@pytest.mark.long
def test_a_masked_release_is_not_read_again(world: MaskedWorld) -> None:
    study = world.ask()
    world.finish()
    owners = tuple(owner.model_copy(update={"reuses": study}) for owner in masked_study().owners)
    again = masked_study().model_copy(update={"owners": owners})
    for parameters in ({}, {"noise": "gaussian"}, dict(again.parameters)):
        name, envelope = sealed(again.model_copy(update={"parameters": parameters}))
        answer = world.call("PUT", f"/v1/studies/{name}", "ada", envelope)
        assert problem(answer) in {"study-refused", "reuse-refused"}


@pytest.mark.long
def test_a_key_is_shown_to_the_studys_owners_alone(world: MaskedWorld) -> None:
    study = world.ask(masked_study(MASKED[:4]))
    path = f"/v1/studies/{study}/mask-keys"
    assert problem(world.call("GET", path, "york")) == "forbidden"
    assert problem(world.call("GET", path, "east")) == "release-pending"
    own = key_message(study, "york", mask_public_hex(draw_mask_secret()))
    assert problem(world.call("PUT", f"{path}/york", "york", own)) == "forbidden"
    assert problem(world.call("PUT", f"{path}/east", "york", own)) == "forbidden"


def masked_with(release: Release, study: Study, received: str | None) -> bytes:
    """Return west's envelope of a release that stands where a masked one must."""
    message = ReleaseMessage(study=sealed(study)[0], party="west", release=release, received=received)
    return sign_envelope(encode(message), RELEASE_TYPE, key_of("west"))


def both(release: Release) -> Release:
    return release.model_copy(update={"vectors": as_layout(release).vectors})


def with_less_noise(release: Release) -> Release:
    """A share of sigma^2/k where the study reckons with two who collude: sigma^2/(k - 2)."""
    own = release.masked["counts"]
    less = MaskedVector.of(own.steps(), own.exponent, own.scale * (3 / 5) ** 0.5)
    return release.model_copy(update={"masked": {"counts": less}})


def of_another_shape(release: Release) -> Release:
    own = release.masked["counts"]
    return release.model_copy(
        update={"masked": {"counts": MaskedVector.of(own.steps()[:3], own.exponent, own.scale)}}
    )


@pytest.mark.parametrize(
    "change",
    [
        with_less_noise,
        *(pytest.param(one, marks=pytest.mark.long) for one in (as_layout, both, of_another_shape)),
    ],
)
def test_a_release_that_is_not_masked_as_the_study_asks_is_refused(
    world: MaskedWorld, change: Callable[[Release], Release]
) -> None:
    study = masked_study(colluders=2)
    name = world.ask(study)
    world.show_keys()
    Fetcher(world.agents["west"]).collect()
    world.agents["west"].run_approved()
    message = release_in(bytes(world.rows("west", OUTBOX)[-1].envelope), "west")
    wrong = masked_with(change(message.release), study, str(message.received))
    assert problem(world.call("PUT", f"/v1/studies/{name}/releases/west", "west", wrong)) == "release-refused"


@pytest.mark.long
def test_a_release_before_the_keys_or_with_other_keys_is_refused(world: MaskedWorld) -> None:
    study = masked_study()
    name, procedure = world.ask(study), NoisyCounts()
    Fetcher(world.agents["west"]).poll(0)
    job = world.agents["west"].job_of(world.state(name, "west"))
    release = procedure.privatise(study, procedure.summarise(study, job.table()), OpenDPNoise())
    secret = draw_mask_secret()
    keys = {owner: mask_public_hex(secret if owner == "west" else draw_mask_secret()) for owner in MASKED}
    envelopes = {owner: key_message(name, owner, key) for owner, key in keys.items()}
    roster = read_roster(study, name, envelopes)
    early = masked_with(masked(release, roster, "west", secret), study, roster.digest)
    path = f"/v1/studies/{name}/releases/west"
    assert "before every owner" in world.call("PUT", path, "west", early).json()["detail"]
    world.show_keys()
    assert "other keys" in world.call("PUT", path, "west", early).json()["detail"]


@pytest.mark.long
def test_an_owner_who_declines_ends_the_study_and_nobody_else_spends(world: MaskedWorld) -> None:
    study = world.ask()
    world.show_keys(*MASKED[:4])
    decline = sign_envelope(encode(DeclineMessage(study=study, party="york")), DECLINE_TYPE, key_of("york"))
    assert world.call("PUT", f"/v1/studies/{study}/declines/york", "york", decline).status_code == 201
    world.answer(*MASKED[:4])
    verdict = verify_transcript(world.transcript(study)).verdict
    assert (verdict.outcome, set(verdict.missing)) == ("incomplete", set(MASKED))
    for name in MASKED[:4]:
        assert world.spent(name) == world.rows(name, RESERVATIONS) == world.rows(name, MASK_SECRETS) == []


@pytest.mark.long
def test_an_owner_who_falls_silent_after_the_keys_leaves_nothing_to_read(make_world: MakeWorld) -> None:
    world = make_world(noise=NoNoise())
    study = world.ask()
    world.show_keys()
    world.answer(*MASKED[:4])
    held = releases_at(world)
    assert (np.abs(in_units(words(held)) - exact_total(MASKED[:4])) > 2**20).all()
    world.now += 40 * 24 * 3600
    world.work_at_tester()
    found = verify_transcript(world.transcript(study))
    assert (found.verdict.outcome, found.verdict.missing, found.result) == ("incomplete", ("york",), None)
    assert world.spent("north") == [OWN_MICRO], "what was spent stays spent"
    world.answer("york")
    assert world.spent("york") == [] == world.rows("york", RESERVATIONS) == world.rows("york", MASK_SECRETS)


@pytest.mark.long
def test_the_policy_caps_what_holds_whoever_colludes(make_world: MakeWorld) -> None:
    """The study claims .5, and towards all others it is 1.19: more than a policy of 1 allows."""
    world = make_world(cap=1.0)
    study = world.ask()
    world.show_keys("north")
    row = world.state(study)
    assert (row.state, row.problem) == ("refused", "policy-refused")
    assert world.rows("north", MASK_SECRETS) == []


@pytest.mark.long
def test_a_steward_reads_towards_whom_the_sum_protects_and_no_key_is_drawn_before(
    make_world: MakeWorld,
) -> None:
    world = make_world(by_hand="north")
    study = world.ask(masked_study(colluders=2))
    world.show_keys()
    row = world.state(study)
    shown = views.detail(world.agents["north"], study_of_row(row), SIGN_IN.people, "north")
    assert (row.state, world.rows("north", MASK_SECRETS)) == ("waiting-for-approval", [])
    words = shown["plain_words"]
    for told in (
        "towards the tester and everyone who reads the verdict epsilon 0.38",
        "towards the tester together with 2 other owners, as the study reckons epsilon 0.5",
        "towards the tester together with all other owners epsilon 0.9014",
        "It spends epsilon 0.901408",
    ):
        assert told in words
    assert "masks" in shown["what_leaves"]
    assert shown["epsilon_micro"] == 901_408
    world.agents["north"].approve(study)
    assert len(world.rows("north", MASK_SECRETS)) == 1
    world.finish()
    assert verify_transcript(world.transcript(study)).verdict.outcome == "completed"
    second = world.ask(masked_study(title="declined"))
    world.show_keys()
    world.agents["north"].decline(second, None)
    assert world.rows("north", MASK_SECRETS) == world.rows("north", RESERVATIONS) == []


@pytest.mark.long
def test_owners_who_are_started_again_between_the_rounds_go_on(make_world: MakeWorld) -> None:
    world = make_world(noise=NoNoise())
    study = world.ask()
    world.show_keys()
    for name in MASKED:
        world.restart_agent(name)
    world.answer()
    world.restart_tester()
    world.work_at_tester()
    found = verify_transcript(world.transcript(study)).result
    assert found.counts == {"all owners together": (*exact_total(), 0, 0)}


@pytest.mark.long
def test_a_transcript_with_other_keys_than_the_releases_name_does_not_hold(world: MaskedWorld) -> None:
    study = world.ask()
    world.finish()
    transcript = decode(Transcript, world.transcript(study))
    forged = key_message(study, "west", mask_public_hex(draw_mask_secret())).decode()
    for keys in (
        {},
        {name: text for name, text in transcript.mask_keys.items() if name != "west"},
        transcript.mask_keys | {"west": forged},
        transcript.mask_keys | {"west": transcript.mask_keys["east"]},
        transcript.mask_keys | {"ada": forged},
    ):
        with pytest.raises(VerificationError):
            verify_transcript(encode(transcript.model_copy(update={"mask_keys": keys})))


@pytest.mark.long
def test_masks_and_keys_where_the_study_asks_for_none_are_refused(world: MaskedWorld) -> None:
    study = masked_study(parameters={"aggregation": "separate", "colluders": None})
    study = study.model_copy(update={"parameters": {"noise": "gaussian"}})
    name = world.ask(study)
    own = key_message(name, "west", mask_public_hex(draw_mask_secret()))
    answer = world.call("PUT", f"/v1/studies/{name}/mask-keys/west", "west", own)
    assert problem(answer) == "release-refused"
    assert problem(world.call("GET", f"/v1/studies/{name}/mask-keys", "west")) == "forbidden"
    Fetcher(world.agents["west"]).poll(0)
    Fetcher(world.agents["west"]).confirm()
    world.agents["west"].run_approved()
    message = release_in(bytes(world.rows("west", OUTBOX)[-1].envelope), "west")
    vector = message.release.vectors["counts"]
    steps = np.array(vector.values, dtype=np.int64).view(np.uint64)
    hidden = {"counts": MaskedVector.of(steps, vector.exponent, vector.scale)}
    for change in ({"masked": hidden}, {"masked": hidden, "vectors": {}}):
        wrong = masked_with(message.release.model_copy(update=change), study, None)
        answer = world.call("PUT", f"/v1/studies/{name}/releases/west", "west", wrong)
        assert problem(answer) == "release-refused"
