"""People with roles at every service: who may what, two approvals, the record, and attempts to rise."""

from collections.abc import Callable, Iterator
from html import unescape
from pathlib import Path
from typing import Any

import httpx
import pytest
import sqlalchemy as sa
from agent_fakes import NOW, AttackedAgent
from curated_world import NOW as CURATOR_NOW
from curated_world import OPERATOR, curator_federation, key_of, registration
from curated_world import URL as CURATOR_URL
from people_windows import add, press, wait_for, window_of
from study_parties import MeanProcedure, Parties
from tester_federation import URL as TESTER_URL
from tester_federation import Federation
from window import Window

from tacit_protocol.messages.encoding import decode
from tacit_protocol.messages.study import DeclineMessage, ReleaseMessage
from tacit_protocol.signing import DECLINE_TYPE, RELEASE_TYPE, issue_token, open_envelope
from tacit_services.agent.schema import SIGN_IN
from tacit_services.agent.study.studies import approvers_of
from tacit_services.ledger.verification import export, inspect
from tacit_services.shared.database import create_engine, read_from, run_transaction
from tacit_services.shared.failpoints import ApprovalStep, HeldStep
from tacit_services.shared.people import KEY_HOLDER, ROLES, recorded
from tacit_services.shared.settings import SettingsError

TWO = 'approval = "by-hand"\napprovals = 2'
WAITING = "waiting-for-approval"


Make = Callable[..., tuple[AttackedAgent, Window, str]]
Attacked = Callable[..., AttackedAgent]


@pytest.fixture
def make(attacked: Attacked) -> Make:
    """Make an agent with one study that waits, and a window."""

    def build(policy: str = TWO) -> tuple[AttackedAgent, Window, str]:
        agent = attacked(policy=policy)
        digest = agent.world.ask(agent.tester, agent.world.study())
        agent.turn()
        return agent, window_of(agent), digest

    return build


def test_without_people_the_key_holder_signs_in_and_approves_as_ever(make: Make) -> None:
    agent, window, digest = make('approval = "by-hand"')
    assert press(window.sign_in(), digest) == 303
    agent.turn()
    (debit,) = agent.debits()
    assert debit["approved_by"] == [KEY_HOLDER]
    assert KEY_HOLDER in window.get("/ledger").text


def test_what_a_policy_approves_by_itself_says_so_in_the_ledger(tmp_path: Path) -> None:
    agent = AttackedAgent(tmp_path)
    agent.world.ask(agent.tester, agent.world.study())
    agent.turn()
    (debit,) = agent.debits()
    assert debit["approved_by"] == []
    assert "the policy" in window_of(agent).sign_in().get("/ledger").text


def test_two_people_approve_before_anything_is_spent(make: Make) -> None:
    agent, window, digest = make()
    add(window, ("ann", "steward"), ("bob", "officer"))
    ann, bob = window_of(agent).sign_in("ann"), window_of(agent).sign_in("bob")
    assert "Approve as the first of two" in ann.get(f"/studies/{digest}").text
    assert press(ann, digest) == 303
    agent.turn()
    assert (agent.row(digest).state.value, agent.debits(), agent.tester.received) == (WAITING, [], [])
    assert "another person has to as well" in ann.get(f"/studies/{digest}").text
    assert press(ann, digest) == 409
    page = bob.get(f"/studies/{digest}").text
    assert "Approved by <bdi>ann</bdi>" in page
    assert "Approve and spend" in page
    assert agent.debits() == []
    assert press(bob, digest) == 303
    agent.turn()
    (debit,) = agent.debits()
    assert debit["approved_by"] == ["ann", "bob"]
    assert press(bob, digest) == 409
    shown = window.ask("GET", f"/v1/studies/{digest}").json()
    assert [said["person"] for said in shown["decisions"]] == ["ann", "bob"]


def test_the_key_is_one_person_whether_by_command_or_by_page(make: Make) -> None:
    agent, window, digest = make()
    assert window.ask("POST", f"/v1/studies/{digest}/approval", {}).json()["state"] == WAITING
    assert window.ask("POST", f"/v1/studies/{digest}/approval", {}).status_code == 409
    assert press(window.sign_in(), digest) == 409
    assert agent.debits() == []


def test_an_approval_ends_with_its_person_or_with_the_role(make: Make) -> None:
    agent, window, digest = make()
    add(window, ("ann", "steward"), ("bob", "steward"), ("cid", "steward"), ("dan", "steward"))
    for name in ("ann", "bob"):
        if name == "bob":
            assert window.ask("DELETE", "/v1/users/ann").status_code == 200
        assert press(window_of(agent).sign_in(name), digest) == 303
    assert agent.row(digest).state.value == WAITING
    assert window.ask("PUT", "/v1/users/bob", {"role": "viewer"}).status_code == 200
    assert press(window_of(agent).sign_in("cid"), digest) == 303
    assert agent.row(digest).state.value == WAITING
    # A name is never another's, so that nobody comes back as somebody who has approved.
    assert window.ask("PUT", "/v1/users/ann", {"role": "steward"}).status_code == 409
    assert press(window_of(agent).sign_in("dan"), digest) == 303
    agent.turn()
    assert agent.debits()[0]["approved_by"] == ["cid", "dan"]


def test_a_study_expires_between_two_approvals_and_a_decline_ends_it(make: Make) -> None:
    agent, window, digest = make()
    add(window, ("ann", "steward"), ("bob", "steward"))
    soon = agent.world.ask(agent.tester, agent.world.study(deadline=20_000, title="Soon?"))
    agent.turn()
    ann, bob = window_of(agent).sign_in("ann"), window_of(agent).sign_in("bob")
    assert (press(ann, soon), press(ann, digest)) == (303, 303)
    agent.clock.now = 20_001
    assert press(bob, soon) == 409
    assert agent.row(soon).state.value == "expired"
    assert press(bob, digest, "decline") == 303
    assert (agent.row(digest).state.value, agent.row(digest).reason) == ("declined", "declined by bob")
    agent.turn()
    assert agent.debits() == []
    (sent,) = (body for study, _, body in agent.tester.received if study == digest)
    assert b"ann" not in sent
    assert b"bob" not in sent


def test_a_policy_that_asks_for_one_again_lets_the_first_approve(make: Make) -> None:
    agent, window, digest = make()
    ann = window.sign_in()
    assert press(ann, digest) == 303
    agent.agent.policy = agent.agent.policy.model_copy(update={"approvals": 1})
    assert press(ann, digest) == 303
    assert agent.row(digest).state.value == "approved"


def test_two_approvals_need_a_policy_that_asks(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="by-hand"):
        AttackedAgent(tmp_path, policy='approval = "automatic"\napprovals = 2')


ESCALATIONS: tuple[tuple[str, str, Any], ...] = (
    ("PUT", "/v1/users/vic", {"role": "admin"}),
    ("PUT", "/v1/users/eve", {"role": "admin"}),
    ("DELETE", "/v1/users/ann", None),
    ("GET", "/v1/users", None),
    ("GET", "/v1/record", None),
    ("POST", "/v1/sign-in-links", {"user": "ann"}),
    ("POST", "/v1/sign-in-links", {}),
)


def test_a_viewer_reads_and_does_nothing_else(make: Make) -> None:
    agent, window, digest = make('approval = "by-hand"')
    add(window, ("vic", "viewer"), ("ann", "steward"))
    vic, ann = window_of(agent).sign_in("vic"), window_of(agent).sign_in("ann")
    for path in ("/", "/ledger", "/data-sets", "/policy", f"/studies/{digest}"):
        assert vic.get(path).status_code == 200
    assert "<button>Approve" not in vic.get(f"/studies/{digest}").text
    assert "Check the data" not in vic.get(f"/studies/{digest}").text
    assert press(ann, digest, "data-check") == 200
    # By the interface with the cookie alone.
    decisions = [("POST", f"/v1/studies/{digest}/{what}", {}) for what in ("approval", "decline")]
    for method, path, body in (*decisions, *ESCALATIONS):
        sent = {} if body is None else {"json": body}
        assert vic.send(method, path, **sent).status_code == 401
    assert agent.row(digest).state.value == WAITING
    assert {user["name"]: user["role"] for user in window.ask("GET", "/v1/users").json()["items"]} == {
        "ann": "steward",
        "vic": "viewer",
    }


def test_a_removed_persons_session_and_links_end_at_once(make: Make) -> None:
    agent, window, digest = make('approval = "by-hand"')
    add(window, ("ann", "steward"), ("bob", "steward"))
    ann, link, bob = window_of(agent).sign_in("ann"), window.link("ann"), window_of(agent).sign_in("bob")
    token = ann.token()
    assert window.ask("DELETE", "/v1/users/ann").status_code == 200
    assert ann.get("/").status_code == 401
    assert ann.post(f"/studies/{digest}/approval", {"form_token": token}).status_code == 401
    assert window.post(link).status_code == 403
    assert window.ask("POST", "/v1/sign-in-links", {"user": "ann"}).status_code == 404
    assert window.ask("DELETE", "/v1/users/ann").status_code == 404
    assert bob.get("/").status_code == 200
    # A row that was left behind, as by a transaction of before, lets nobody in either.
    run_transaction(
        agent.agent.engine,
        lambda c: c.execute(SIGN_IN.sessions.update().values(person="ann")),
    )
    assert bob.get("/").status_code == 401


HOSTILE = ("<script>alert(1)</script>", "Ann", "", "../x", "a" * 64, "ann%00", "key-holder", "a b", "é")


def test_names_and_addresses_that_could_harm_are_refused(make: Make) -> None:
    _, window, _ = make('approval = "by-hand"')
    for name in HOSTILE:
        assert window.ask("PUT", f"/v1/users/{name}", {"role": "viewer"}).status_code in {400, 404, 405, 409}
    for email in ("<script>@x", "ann", "a b@c", '"><img src=x>@y', "@", "ann@" + "x" * 300, "a\n@b"):
        body = {"role": "viewer", "email": email}
        assert window.ask("PUT", "/v1/users/ann", body).status_code == 400
    for body in ({"role": "root"}, {}, {"role": "viewer", "subject": "x"}, {"role": ["admin"]}):
        assert window.ask("PUT", "/v1/users/ann", body).status_code == 400
    assert window.ask("GET", "/v1/users").json()["items"] == []
    good = {"role": "viewer", "email": "Ann@Example.org"}
    assert window.ask("PUT", "/v1/users/ann", good).status_code == 201
    assert window.ask("PUT", "/v1/users/bob", good).status_code == 409
    assert window.ask("GET", "/v1/users").json()["items"][0]["email"] == "ann@example.org"


def test_the_record_says_who_changed_whom_and_shows_tampering(make: Make) -> None:
    agent, window, _ = make('approval = "by-hand"')
    add(window, ("ann", "steward"))
    window.ask("PUT", "/v1/users/ann", {"role": "officer"})
    window.ask("PUT", "/v1/users/ann", {"role": "officer"})
    window.ask("DELETE", "/v1/users/ann")
    shown = window.ask("GET", "/v1/record").json()
    assert [entry["action"] for entry in shown["entries"]] == ["user added", "user changed", "user removed"]
    assert {entry["person"] for entry in shown["entries"]} == {KEY_HOLDER}
    assert shown["fault"] is None
    table = SIGN_IN.people.record
    key = agent.world.agent.public_hex

    def fault_of(change: sa.Update | sa.Delete) -> str | None:
        class UndoError(Exception):
            pass

        found: list[str | None] = []

        def look(connection: sa.Connection) -> None:
            connection.execute(change)
            found.append(recorded(connection, SIGN_IN.people, key)[1])
            raise UndoError

        with pytest.raises(UndoError):
            run_transaction(agent.agent.engine, look)
        return found[0]

    for values in ({"person": "eve"}, {"detail": "{}"}, {"at": 1}, {"entry_hash": "0" * 64}):
        assert fault_of(table.update().where(table.c.sequence == 2).values(**values)) is not None
    assert fault_of(table.delete().where(table.c.sequence == 2)) is not None
    assert fault_of(table.update().values(at=table.c.at)) is None


def test_a_long_record_is_shown_in_parts_and_ends(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    _, window, _ = make('approval = "by-hand"')
    for number in range(6):
        window.ask("PUT", "/v1/users/ann", {"role": ROLES[number % 2]})
    monkeypatch.setattr("tacit_services.shared.people.RECORD_BYTES", 150)
    shown, after = [], 0
    while after is not None:
        part = window.ask("GET", f"/v1/record?after={after}").json()
        shown += part["entries"]
        after = part["next"]
    assert [entry["sequence"] for entry in shown] == [1, 2, 3, 4, 5, 6]
    monkeypatch.setattr("tacit_services.shared.people.CHANGES_MAX", 6)
    assert window.ask("PUT", "/v1/users/bob", {"role": "viewer"}).status_code == 400
    assert window.ask("DELETE", "/v1/users/ann").status_code == 200


SCRIPT = "<script>alert(1)</script>"


def said(window: Window, name: str, role: str = "steward", email: str = "") -> dict[str, str]:
    return {"form_token": window.token(), "name": name, "role": role, "email": email}


def test_an_admin_adds_changes_and_removes_people_on_the_page(attacked: Attacked) -> None:
    agent = attacked()
    window = window_of(agent)
    add(window, ("adm", "admin"))
    adm = window_of(agent).sign_in("adm")
    assert adm.post("/people", said(adm, "bob", "viewer", "bob@north.example")).status_code == 303
    assert adm.post("/people", said(adm, "bob", "officer")).status_code == 303
    bob = window_of(agent).sign_in("bob")
    page = bob.get("/people").text
    assert "officer" in page
    assert "@north.example" not in page
    assert "An admin adds people" in page
    assert adm.get("/people").text.count("<bdi>adm</bdi>") >= 3
    removal = {"form_token": adm.token(), "name": "bob"}
    assert adm.post("/people/removal", removal).status_code == 303
    assert bob.get("/people").status_code == 401
    assert adm.post("/people/removal", removal).status_code == 404
    entries, fault = read_from(agent.agent.engine, recorded, SIGN_IN.people, agent.agent.key.public_hex)
    told = [(e["person"], e["action"], e["detail"]["name"]) for e in entries]
    assert fault is None
    assert told[1:] == [("adm", f"user {what}", "bob") for what in ("added", "changed", "removed")]
    for name, role, email, words in (
        (SCRIPT, "viewer", "", "a name has small letters"),
        ("x", SCRIPT, "", "choose a role"),
        ("x", "viewer", f"{SCRIPT}@x", "write an e-mail address"),
        ("bob", "viewer", "", "names of people who were removed stay theirs"),
        ("key-holder", "viewer", "", "whoever holds the key"),
    ):
        answer = adm.post("/people", said(adm, name, role, email))
        assert (answer.status_code, words in unescape(answer.text)) == (422, True), name
        assert SCRIPT not in answer.text


def test_no_admin_makes_itself_less_or_another_an_admin(attacked: Attacked) -> None:
    agent = attacked()
    window = window_of(agent)
    add(window, ("adm", "admin"), ("two", "admin"), ("oli", "officer"))
    adm = window_of(agent).sign_in("adm")
    before = window.ask("GET", "/v1/users").json()
    for name in ("new", "oli", "adm"):
        assert adm.post("/people", said(adm, name, "admin")).status_code == 422
    assert adm.post("/people", said(adm, "two", "viewer")).status_code == 422
    for name in ("two", "adm"):
        assert adm.post("/people/removal", {"form_token": adm.token(), "name": name}).status_code == 403
    assert window.ask("GET", "/v1/users").json() == before


def test_who_approved_cannot_be_changed_in_the_ledger(make: Make) -> None:
    agent, window, digest = make('approval = "by-hand"')
    assert press(window.sign_in(), digest) == 303
    agent.turn()
    engine = agent.agent.engine
    assert read_from(engine, inspect).faults == ()
    changed = "UPDATE ledger_entries SET approved_by = ? WHERE kind = 'debit'"
    for said in ('["eve"]', None, "[]", "no json", '["key-holder" ]'):
        with engine.begin() as connection:
            query = "SELECT approved_by FROM ledger_entries WHERE kind = 'debit'"
            before = connection.exec_driver_sql(query).scalar_one()
            connection.exec_driver_sql(changed, (said,))
        assert read_from(engine, inspect).faults != (), said
        with engine.begin() as connection:
            connection.exec_driver_sql(changed, (before,))
    assert read_from(engine, inspect).faults == ()


# A release that a steward looks at before it is sent.

LOOK = 'approval = "by-hand"\nlook_before_sending = true'


def numbers_of(agent: AttackedAgent, digest: str) -> tuple[int, ...]:
    """What the tester was sent."""
    payload = open_envelope(agent.tester.releases[digest], RELEASE_TYPE, agent.world.agent.public_hex)
    return decode(ReleaseMessage, payload).release.vectors["sum"].values


def made(agent: AttackedAgent, **changes: Any) -> str:
    """Ask a study, approve it and have its release made."""
    digest = agent.world.ask(agent.tester, agent.world.study(**changes))
    agent.turn()
    agent.agent.approve(digest)
    agent.turn()
    return digest


@pytest.mark.both_databases
def test_a_release_is_looked_at_and_then_sent_as_it_was(attacked: Attacked, database_url: str) -> None:
    agent = attacked(policy=LOOK, agent=f'database_url = "{database_url}"')
    window = window_of(agent)
    add(window, ("ann", "steward"), ("vic", "viewer"))
    digest = made(agent, title="<script>alert(1)</script>?")
    assert agent.row(digest).state.value == "held"
    assert (len(agent.debits()), agent.tester.received) == (1, [])
    assert [(row.digest, owner) for row, owner in agent.agent.waiting_for(None)] == [(digest, "north")]
    shown = window.ask("GET", f"/v1/studies/{digest}").json()["held"]["release"]["vectors"]["sum"]
    ann, vic = window_of(agent).sign_in("ann"), window_of(agent).sign_in("vic")
    page = ann.get(f"/studies/{digest}").text
    assert f"{shown['values'][0] * 2.0 ** shown['exponent']:.6g}" in page
    assert "<script>alert" not in page
    assert "What was spent stays spent" in page
    assert "Its release is made and paid for" in ann.get("/").text
    assert "Send the release" not in vic.get(f"/studies/{digest}").text
    agent.turn()
    assert (agent.row(digest).state.value, agent.tester.received) == ("held", [])
    # A policy that asks for no look any more sends nothing by itself.
    agent.agent.use_policy(agent.agent.policy.model_copy(update={"look_before_sending": False}))
    agent.turn()
    assert agent.row(digest).state.value == "held"
    assert press(ann, digest, "sending") == 303
    assert press(ann, digest, "sending") == 409
    agent.turn()
    assert agent.row(digest).state.value == "sent"
    assert numbers_of(agent, digest) == tuple(shown["values"])
    assert len(agent.debits()) == 1
    assert window.ask("GET", f"/v1/studies/{digest}").json()["held"] is None
    told = [(e["person"], e["action"]) for e in window.ask("GET", "/v1/record").json()["entries"]]
    assert ("ann", "release sent") in told


def test_to_withhold_a_release_looks_like_every_decline_and_gives_nothing_back(attacked: Attacked) -> None:
    agent = attacked(policy=LOOK)
    add(window_of(agent), ("ann", "steward"))
    held = made(agent, title="Held")
    never = agent.world.ask(agent.tester, agent.world.study(title="Never run"))
    agent.turn()
    spent = agent.spent()
    ann = window_of(agent).sign_in("ann")
    assert (press(ann, held, "decline"), press(ann, never, "decline")) == (303, 303)
    assert (press(ann, held, "decline"), press(ann, held, "sending")) == (409, 409)
    agent.turn()
    sent = {study: body for study, kind, body in agent.tester.received if kind == "declines"}
    assert set(sent) == {held, never}
    declines = [
        decode(DeclineMessage, open_envelope(sent[study], DECLINE_TYPE, agent.world.agent.public_hex))
        for study in (held, never)
    ]
    assert declines[0].model_copy(update={"study": never}) == declines[1]
    assert len(sent[held]) == len(sent[never])
    assert {kind for _, kind, _ in agent.tester.received} == {"declines"}
    assert agent.spent() == spent > 0
    row = agent.row(held)
    assert (row.state.value, row.reason) == ("declined", "declined by ann; the budget is spent")
    assert agent.agent.held_view(row) is None
    with agent.agent.engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM agent_held").scalar_one() == 0
    told = [(e["person"], e["action"]) for e in window_of(agent).ask("GET", "/v1/record").json()["entries"]]
    assert ("ann", "release withheld") in told


def test_when_a_release_is_looked_at_and_answered_follows_from_the_schedule(attacked: Attacked) -> None:
    agent = attacked(policy=f"{LOOK}\nrespond_after_s_min = 3")
    first = made(agent, respond_after_s=8)
    window = window_of(agent).sign_in()
    assert window.ask("GET", f"/v1/studies/{first}").json()["held"] == {
        "shown_from": NOW + 8,
        "release": None,
    }
    page = window.get(f"/studies/{first}").text
    assert "It may be looked at from" in page
    assert agent.agent.waiting_for(None) == []  # nobody is told before it may be looked at
    assert "Send the release" not in page
    assert (press(window, first, "sending"), press(window, first, "decline")) == (409, 409)  # too soon
    agent.clock.now = NOW + 8
    assert press(window, first, "sending") == 303
    agent.clock.now = NOW + 15
    agent.turn()
    assert agent.tester.received == []
    agent.clock.now = NOW + 16
    agent.turn()
    assert [kind for _, kind, _ in agent.tester.received] == ["releases"]
    # A decline leaves so long after the decision; one of a release, once that may be looked at.
    second = made(agent, respond_after_s=8, title="Second")
    third = agent.world.ask(agent.tester, agent.world.study(respond_after_s=8, title="Third"))
    agent.turn()
    assert (press(window, second, "decline"), press(window, third, "decline")) == (409, 303)
    agent.clock.now += 8
    agent.turn()
    assert press(window, second, "decline") == 303
    agent.clock.now += 7
    agent.turn()
    assert len(agent.tester.received) == 2
    agent.clock.now += 1
    agent.turn()
    assert {study for study, kind, _ in agent.tester.received if kind == "declines"} == {second, third}


def test_a_release_that_nobody_sent_expires_and_its_budget_is_spent(attacked: Attacked) -> None:
    agent = attacked(policy=LOOK)
    soon = made(agent, deadline=NOW + 100)
    agent.clock.now = NOW + 100
    window = window_of(agent).sign_in()
    assert press(window, soon, "sending") == 409
    agent.turn()
    row = agent.row(soon)
    assert (row.state.value, row.problem) == ("expired", "study-expired")
    assert "the budget is spent" in str(row.reason)
    assert (agent.spent() > 0, agent.tester.received) == (True, [])
    with agent.agent.engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM agent_held").scalar_one() == 0
    # Where the schedule leaves no moment for a look, nothing is spent.
    before = agent.spent()
    late = made(agent, deadline=NOW + 115, respond_after_s=8, title="Late")
    assert (agent.row(late).state.value, agent.spent()) == ("refused", before)


@pytest.mark.long
@pytest.mark.sweep(1)
@pytest.mark.both_databases
@pytest.mark.parametrize("point", [*HeldStep])
def test_an_agent_killed_around_a_held_release_loses_nothing(
    real_agent: Callable[..., Any], point: HeldStep, database_url: str
) -> None:
    automatic = 'approval = "automatic"\nlook_before_sending = true'
    agent = real_agent(policy=automatic, agent=f'database_url = "{database_url}"')
    tester, digest = agent.tester, agent.world.ask(agent.tester, agent.world.study())

    def is_held() -> bool:
        return bool(agent.ask("GET", f"/v1/studies/{digest}").json().get("state") == "held")

    what = "decline" if point is HeldStep.WITHHELD else "sending"
    with agent.running(point.value):
        if point is not HeldStep.HELD:
            wait_for(is_held)
            with pytest.raises(httpx.TransportError):
                agent.ask("POST", f"/v1/studies/{digest}/{what}", {})
    assert tester.received == []
    with agent.running():
        wait_for(is_held)
        assert agent.debits() == 1
        assert agent.ask("POST", f"/v1/studies/{digest}/{what}", {}).status_code == 200
        wait_for(lambda: digest in (tester.declines if what == "decline" else tester.releases))
        assert agent.ask("GET", "/v1/ledger/verification").json()["ok"]
    assert {kind for _, kind, _ in tester.received} == {f"{what}s" if what == "decline" else "releases"}


# At a tester and a curator each party has its own people.


@pytest.fixture
def federation(tmp_path: Path, parties: Parties, mean_procedure: MeanProcedure) -> Iterator[Federation]:
    found = Federation(tmp_path, f"sqlite:///{tmp_path / 'tester.sqlite3'}", parties)
    found.enrol_everyone()
    yield found
    found.engine.dispose()


def test_each_party_of_a_tester_has_its_own_people(federation: Federation, parties: Parties) -> None:
    def window(key: Any) -> Window:
        return Window(federation.app, TESTER_URL, lambda: issue_token(key, TESTER_URL, int(federation.now)))

    analyst, owner = window(parties.analyst), window(parties.owners["north"])
    add(analyst, ("ann", "viewer"))
    assert owner.ask("GET", "/v1/users").json()["items"] == []
    assert owner.ask("DELETE", "/v1/users/ann").status_code == 404
    assert owner.ask("POST", "/v1/sign-in-links", {"user": "ann"}).status_code == 404
    add(owner, ("ann", "admin"))
    signed_in = analyst.sign_in("ann")
    page = signed_in.get("/people").text
    assert ("viewer" in page, "admin</td>" in page) == (True, False)
    assert owner.sign_in("ann").get("/people").text.count("Add a person") == 1
    assert signed_in.get("/").status_code == 200
    assert signed_in.get("/plan").status_code == 200
    assert analyst.ask("DELETE", "/v1/users/ann").status_code == 200
    assert signed_in.get("/").status_code == 401


@pytest.mark.long
def test_two_people_of_an_owner_approve_at_a_curator(tmp_path: Path) -> None:
    with curator_federation(tmp_path) as curated:
        two = registration("by-hand")
        two["policy"]["approvals"] = 2
        curated.add_owner("north", "by-hand", two)
        curated.add_owner("south", "by-hand")

        def window(party: str) -> Window:
            token = lambda: issue_token(key_of(party), CURATOR_URL, CURATOR_NOW)  # noqa: E731
            return Window(curated.app, CURATOR_URL, token)

        study = curated.ask("north", "south")
        north, south = window("north"), window("south")
        add(north, ("ann", "steward"), ("vic", "viewer"))
        ann, vic = window("north").sign_in("ann"), window("north").sign_in("vic")
        assert press(vic, study) == 403
        assert press(ann, study) == 303
        assert press(ann, study) == 409

        def decisions() -> dict[str, str]:
            found = north.ask("GET", f"/v1/studies/{study}").json()["owners"]
            return {part["owner"]: part["decision"] for part in found}

        assert decisions() == {"north": "waiting", "south": "waiting"}
        assert press(south.sign_in(), study) == 303
        assert decisions() == {"north": "waiting", "south": "approved"}
        assert north.ask("GET", f"/v1/studies/{study}").json()["state"] == WAITING
        assert "<bdi>ann" not in south.get("/people").text
        form = {"form_token": south.token(), "name": "ann", "role": "steward", "email": ""}
        assert south.post("/people", form).status_code == 303
        assert south.post("/people/removal", {"form_token": south.token(), "name": "ann"}).status_code == 303
        assert "<bdi>ann" in ann.get("/people").text
        assert "<bdi>ann" not in south.get(f"/studies/{study}").text
        assert "<bdi>ann" not in window(OPERATOR).sign_in().get(f"/studies/{study}").text
        assert north.ask("POST", f"/v1/studies/{study}/approval", {}).status_code == 200
        assert north.ask("GET", f"/v1/studies/{study}").json()["state"] != WAITING
        found = read_from(curated.curator.engine, approvers_of, study, "north")
        assert found == ["ann", KEY_HOLDER]


# A real agent, killed between two approvals and within one.


@pytest.mark.long
@pytest.mark.sweep(1)
@pytest.mark.parametrize("point", [*ApprovalStep])
def test_an_agent_killed_at_an_approval_has_all_of_it_or_nothing(
    tmp_path: Path, real_agent: Callable[..., Any], point: ApprovalStep
) -> None:
    agent = real_agent(policy=TWO)
    digest = agent.world.ask(agent.tester, agent.world.study())

    def approve(user: str | None, *, dies: bool) -> None:
        """Sign in with a link and press the button, as a browser does."""
        with agent.browser(user) as browser:
            form = agent.hidden(browser.get(f"/studies/{digest}"), "form_token")
            try:
                status = browser.post(f"/studies/{digest}/approval", data=form).status_code
            except httpx.TransportError:
                assert dies
            else:
                assert (status, dies) == (303, False)

    # The first approval is the first passage of APPROVAL_STORED; only the last passes APPROVED_BY_ALL.
    with agent.running(point.value):
        wait_for(lambda: agent.ask("GET", f"/v1/studies/{digest}").status_code == 200)
        assert agent.ask("PUT", "/v1/users/ann", {"role": "steward"}).status_code == 201
        killed_first = point is ApprovalStep.APPROVAL_STORED
        approve(None, dies=killed_first)
        if not killed_first:
            approve("ann", dies=True)
    with agent.running():
        shown = agent.ask("GET", f"/v1/studies/{digest}").json()
        assert [said["person"] for said in shown["decisions"]] == [KEY_HOLDER]
        assert (shown["state"], agent.debits()) == (WAITING, 0)
        approve("ann", dies=False)
        wait_for(lambda: digest in agent.tester.releases)
    engine = create_engine(f"sqlite:///{tmp_path / 'agent.sqlite3'}")
    debits = [entry for entry in read_from(engine, export) if entry["kind"] == "debit"]
    # Of one second they are in the order of their names.
    assert [(entry["study"], sorted(entry["approved_by"])) for entry in debits] == [
        (digest, ["ann", KEY_HOLDER])
    ]
    engine.dispose()
