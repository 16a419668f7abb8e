"""Owners, registration, deletion: who may, what may change, and what the ledger keeps."""

import sqlite3
from pathlib import Path

import pytest
from curator_world import COLUMNS, POLICY, REGISTRATION, ROWS, STORAGE_KEY, CuratorWorld, problem

from tacit_protocol.privacy.guarantee import Budget, Guarantee, LaplaceEvent
from tacit_protocol.signing import PrivateKey
from tacit_services.agent.data.source import Columns, DataError
from tacit_services.curator.curator import DECISIONS
from tacit_services.curator.data_sets import ConfiguredDataSet
from tacit_services.curator.tables import DATA_SETS, INVITATIONS, METADATA
from tacit_services.ledger.accounts import account_of, debit, debits_of
from tacit_services.ledger.verification import export, verify
from tacit_services.shared.database import run_transaction
from tacit_services.shared.settings import SettingsError

PAGE = Path(__file__).resolve().parents[3] / "docs" / "curator-storage.md"

COST = Guarantee(budget=Budget.of(0.5, 0), events=(LaplaceEvent(noise_multiplier=2.0),))


def spend(world: CuratorWorld, account: str = "north/patients") -> None:
    run_transaction(world.engine, lambda c: debit(c, account, "d" * 64, COST, at=1))


# Owners.


def test_an_owner_enrols_once_with_its_own_key(curator: CuratorWorld) -> None:
    key, other = PrivateKey.generate(), PrivateKey.generate()
    invited = curator.call("POST", "/v1/invitations", curator.operator, json={"name": "west"}).json()
    body = {"invitation": invited["invitation"], "name": "west", "key": key.public_hex}
    assert problem(curator.call("POST", "/v1/enrolments", other, json=body)) == "forbidden"
    answer = curator.call("POST", "/v1/enrolments", key, json=body)
    assert (answer.status_code, answer.json()) == (201, {"name": "west", "key": key.public_hex})
    assert curator.call("POST", "/v1/enrolments", key, json=body).status_code == 200
    stolen = body | {"key": other.public_hex}
    assert problem(curator.call("POST", "/v1/enrolments", other, json=stolen)) == "invitation-invalid"
    assert problem(curator.call("POST", "/v1/invitations", key, json={"name": "x"})) == "forbidden"
    listed = curator.call("GET", "/v1/owners", curator.operator).json()
    assert [item["name"] for item in listed["items"]] == ["north", "south", "west"]
    assert problem(curator.call("GET", "/v1/owners", key)) == "forbidden"
    rows = run_transaction(curator.engine, lambda c: c.execute(INVITATIONS.select()).all(), read_only=True)
    assert invited["invitation"] not in str(rows)


def test_the_operator_revokes_keys_and_invitations(curator: CuratorWorld) -> None:
    world, key = curator, PrivateKey.generate()
    invited = world.call("POST", "/v1/invitations", world.operator, json={"name": "west"}).json()
    north = world.owners["north"]
    for method, path in (
        ("GET", "/v1/invitations"),
        ("DELETE", "/v1/invitations/west"),
        ("PUT", "/v1/owners/south/revocation"),
    ):
        assert problem(world.call(method, path, north)) == "forbidden"
    assert world.call("DELETE", "/v1/invitations/west", world.operator).json()["revoked"] == 1
    body = {"invitation": invited["invitation"], "name": "west", "key": key.public_hex}
    assert problem(world.call("POST", "/v1/enrolments", key, json=body)) == "invitation-invalid"
    states = [
        item["state"]
        for item in world.call("GET", "/v1/invitations", world.operator).json()["items"]
        if item["name"] == "west"
    ]
    assert states == ["revoked"]
    assert world.call("GET", "/v1/data-sets", north).status_code == 200
    answers = [world.call("PUT", "/v1/owners/north/revocation", world.operator) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [201, 200]
    assert problem(world.call("GET", "/v1/data-sets", north)) == "key-revoked"
    listed = world.call("GET", "/v1/owners", world.operator).json()["items"]
    assert {item["name"]: item["revoked_at"] for item in listed} == {"north": int(world.now), "south": None}
    assert problem(world.call("PUT", "/v1/owners/nobody/revocation", world.operator)) == "unknown-party"


def test_the_operators_key_and_name_enrol_nobody(lone_curator: CuratorWorld) -> None:
    world = lone_curator
    named = world.call("POST", "/v1/invitations", world.operator, json={"name": "curator"})
    assert problem(named) == "party-exists"
    invited = world.call("POST", "/v1/invitations", world.operator, json={"name": "west"}).json()
    body = {"invitation": invited["invitation"], "name": "west", "key": world.operator.public_hex}
    assert problem(world.call("POST", "/v1/enrolments", world.operator, json=body)) == "party-exists"


def test_the_identity_is_public_and_nothing_else_is(lone_curator: CuratorWorld) -> None:
    world, stranger = lone_curator, PrivateKey.generate()
    identity = world.call("GET", "/v1/identity", None).json()
    assert identity["key"] == world.operator.public_hex
    assert set(identity) == {"name", "key", "audience", "software"}
    for method, path in [
        ("GET", "/v1/data-sets"),
        ("GET", "/v1/data-sets/north/patients"),
        ("PUT", "/v1/data-sets/north/patients"),
        ("PUT", "/v1/data-sets/north/patients/rows"),
        ("DELETE", "/v1/data-sets/north/patients"),
        ("GET", "/v1/owners"),
        ("POST", "/v1/invitations"),
    ]:
        assert problem(world.call(method, path, None, content=b"{}")) == "unauthenticated", path
        assert problem(world.call(method, path, stranger, content=b"{}")) == "unknown-party", path


# Registration.


def test_registration_opens_the_account_in_the_same_transaction(curator: CuratorWorld) -> None:
    answer = curator.register()
    assert answer.status_code == 201
    shown = answer.json()
    assert (shown["account"], shown["ready"], shown["units"]) == ("north/patients", False, None)
    entries = run_transaction(curator.engine, export, read_only=True)
    assert [(entry["data_set"], entry["kind"]) for entry in entries] == [("north/patients", "cap")]
    held = curator.held()
    assert held.caps == Budget.of(3.0, 1e-5)
    assert held.policy.approval == "by-hand"
    assert held.policy.columns == ("age", "sex")
    with pytest.raises(DataError, match="no rows are held"):
        held.source()


def test_caps_and_policy_may_change_and_a_changed_cap_is_an_entry(curator: CuratorWorld) -> None:
    curator.register()
    spend(curator)
    assert curator.register(epsilon=5.0).status_code == 200
    policy = POLICY | {"approval": "automatic", "columns": ["age"]}
    answer = curator.register(epsilon=0.25, policy=policy)
    assert answer.status_code == 200
    assert (answer.json()["epsilon_cap_micro"], answer.json()["pure_left_micro"]) == (250_000, 0)
    assert curator.register(epsilon=0.25, policy=policy).status_code == 200
    entries = run_transaction(curator.engine, export, read_only=True)
    assert [entry["kind"] for entry in entries] == ["cap", "debit", "cap", "cap"]
    assert run_transaction(curator.engine, verify, read_only=True) == 4
    held = curator.held()
    assert (held.policy.approval, held.policy.columns) == ("automatic", ("age",))


OTHERS = [
    {"columns": [{**COLUMNS[0], "upper": 100.0}, COLUMNS[1]]},
    {"columns": [COLUMNS[0]]},
    {"unit_column": None},
    {"unit_column": "person"},
]


@pytest.mark.parametrize("change", OTHERS)
def test_columns_and_unit_are_fixed_once_anything_was_spent(
    lone_curator: CuratorWorld, change: dict[str, object]
) -> None:
    world = lone_curator
    world.register()
    assert world.register(**change).status_code == 200, "before anything was spent or held they are free"
    assert world.register().status_code == 200
    world.upload()
    assert problem(world.register(**change)) == "data-set-fixed"
    spend(world)
    path = "/v1/data-sets/north/patients"
    assert world.call("DELETE", path, world.owners["north"]).status_code == 204
    assert problem(world.register(**change)) == "data-set-fixed"
    assert world.show().status_code == 404
    assert world.register().status_code == 201
    assert run_transaction(world.engine, lambda c: len(debits_of(c, "north/patients")), read_only=True) == 1


BAD = {
    "the unit column is a column": {"unit_column": "age"},
    "two columns of a name": {"columns": [COLUMNS[0], COLUMNS[0]]},
    "no columns": {"columns": []},
    "a policy of other columns": {"policy": POLICY | {"columns": ["height"]}},
    "no policy": {"policy": None},
    "no epsilon": {"epsilon": 0.0},
    "an epsilon too small to hold": {"epsilon": 1e-9},
    "a delta of one": {"delta": 1.0},
    "a source": {"source": "sqlite:///curator.sqlite3"},
}


@pytest.mark.parametrize("name", BAD)
def test_registrations_that_make_no_sense_are_refused(lone_curator: CuratorWorld, name: str) -> None:
    assert problem(lone_curator.register(**BAD[name])) == "malformed-message"
    assert problem(lone_curator.show()) == "unknown-data-set"


def test_an_owner_registers_so_many_and_no_more(
    lone_curator: CuratorWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tacit_services.curator.data_sets.DATA_SETS_MAX", 2)
    assert lone_curator.register(name="a").status_code == 201
    assert lone_curator.register(name="b").status_code == 201
    assert problem(lone_curator.register(name="c")) == "data-set-fixed"
    assert lone_curator.register(name="b").status_code == 200
    assert lone_curator.register(owner="south", name="c").status_code == 201


# Who may.


def test_anothers_data_set_is_forbidden_whether_or_not_it_exists(curator: CuratorWorld) -> None:
    curator.register()
    curator.upload()
    south = curator.owners["south"]
    for method, suffix, options in [
        ("GET", "", {}),
        ("DELETE", "", {}),
        ("PUT", "", {"json": REGISTRATION}),
        ("PUT", "/rows", {"content": ROWS, "headers": {"content-type": "text/csv"}}),
    ]:
        answers = [
            curator.call(method, f"/v1/data-sets/{owner}/{name}{suffix}", south, **options)
            for owner, name in [("north", "patients"), ("north", "nothing"), ("nobody", "patients")]
        ]
        documents = [{**answer.json(), "instance": None} for answer in answers]
        assert documents[0] == documents[1] == documents[2]
        assert problem(answers[0]) == "forbidden"
    assert curator.held().rows == 4
    assert curator.call("GET", "/v1/data-sets", south).json()["items"] == []
    assert problem(curator.call("GET", "/v1/data-sets?owner=north", south)) == "forbidden"


def test_the_operator_sees_and_deletes_but_registers_and_uploads_for_nobody(curator: CuratorWorld) -> None:
    curator.register()
    path, operator = "/v1/data-sets/north/patients", curator.operator
    assert problem(curator.call("PUT", path, operator, json=REGISTRATION)) == "forbidden"
    upload = {"content": ROWS, "headers": {"content-type": "text/csv"}}
    assert problem(curator.call("PUT", f"{path}/rows", operator, **upload)) == "forbidden"
    curator.upload()
    shown = curator.call("GET", path, operator).json()
    assert shown["units"] == 3
    assert "rows" not in shown, "how many rows the units own is the owner's own affair"
    assert curator.show().json()["rows"] == 4
    (item,) = curator.call("GET", "/v1/data-sets", operator).json()["items"]
    assert "rows" not in item
    assert curator.call("DELETE", path, operator).status_code == 204
    assert problem(curator.call("GET", path, operator)) == "unknown-data-set"


# Deletion.


def test_deleting_leaves_the_account_and_nothing_of_the_rows(curator: CuratorWorld) -> None:
    curator.register()
    curator.upload()
    spend(curator)
    source = curator.held().source()
    path, north = "/v1/data-sets/north/patients", curator.owners["north"]
    assert curator.call("DELETE", path, north).status_code == 204
    assert problem(curator.call("DELETE", path, north)) == "unknown-data-set"
    assert curator.files() == set()
    row = run_transaction(curator.engine, lambda c: c.execute(DATA_SETS.select()).one(), read_only=True)
    assert (row.wrapped_key, row.file, row.rows, row.units) == (None, None, None, None)
    with pytest.raises(DataError):
        list(source.batches(Columns(("age",)), 10))
    account = run_transaction(curator.engine, lambda c: account_of(c, "north/patients"), read_only=True)
    assert account.version == 2
    assert problem(curator.upload()) == "unknown-data-set"
    assert curator.register().status_code == 201
    assert 499_000 < curator.show().json()["pure_spent_micro"] <= 500_000
    assert curator.show().json()["ready"] is False


def test_a_copy_of_the_file_is_unreadable_once_its_key_is_deleted(lone_curator: CuratorWorld) -> None:
    world = lone_curator
    world.register()
    world.upload()
    row = run_transaction(world.engine, lambda c: c.execute(DATA_SETS.select()).one(), read_only=True)
    wrapped_key = bytes(row.wrapped_key)
    database = Path(str(world.engine.url.database))
    texts = [path.read_bytes() for path in database.parent.glob(database.name + "*")]
    assert any(wrapped_key in text for text in texts), "the search must be able to find it"
    world.call("DELETE", "/v1/data-sets/north/patients", world.owners["north"])
    texts = [path.read_bytes() for path in database.parent.glob(database.name + "*")]
    assert not any(wrapped_key in text for text in texts)
    assert not any(wrapped_key[20:40] in text for text in texts)


# The operator's own databases.


def test_a_data_set_in_a_database_is_read_from_there_and_takes_no_upload(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "hospital.sqlite3") as connection:
        connection.execute("CREATE TABLE visits (patient TEXT, age REAL, sex TEXT)")
        connection.execute("INSERT INTO visits VALUES ('p1', 40, 'f'), ('p2', 50, 'm')")
    connection.close()
    configured = ConfiguredDataSet(
        owner="north",
        name="patients",
        source="sqlite:///hospital.sqlite3",
        query="SELECT * FROM visits",
        folder=tmp_path,
    )
    world = CuratorWorld(tmp_path, f"sqlite:///{tmp_path / 'c.sqlite3'}", configured=(configured,))
    world.register()
    held = world.held()
    assert (held.ready, held.rows) == (True, None)
    assert held.source().rows() == 2
    assert problem(world.upload()) == "data-set-fixed"
    assert world.register(owner="south").json()["ready"] is False
    world.close()


# Starting.


def test_a_missing_storage_key_stops_the_start_and_rotation_wraps_anew(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'c.sqlite3'}"
    world = CuratorWorld(tmp_path, url)
    owners = world.owners
    world.register()
    world.upload()
    world.close()
    new = "6b" * 32
    with pytest.raises(SettingsError, match="add that key"):
        CuratorWorld(tmp_path, url, keys=new, owners=owners)
    CuratorWorld(tmp_path, url, keys=f"{new} {STORAGE_KEY}", owners=owners).close()
    world = CuratorWorld(tmp_path, url, keys=new, owners=owners)
    assert len(list(world.held().source().batches(Columns(("age",)), 10))) == 1
    world.close()


def test_every_table_has_its_line() -> None:
    text = PAGE.read_text("utf-8")
    assert DECISIONS.name in METADATA.tables
    for table in METADATA.tables:
        assert f"| `{table}` |" in text
