"""Data sets at a curator: registered, held encrypted, and as settings say."""

import sqlite3
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from curator_world import COLUMNS, POLICY, REGISTRATION, ROWS, STORAGE_KEY, CuratorWorld
from served import problem

from tacit_protocol.domain import DataError
from tacit_protocol.privacy.guarantee import Budget, Guarantee, LaplaceEvent
from tacit_protocol.signing import PrivateKey
from tacit_services.agent.data.source import Columns
from tacit_services.curator.__main__ import CuratorSettings
from tacit_services.curator.curator import DECISIONS
from tacit_services.curator.data_sets import DATA_SETS, INVITATIONS, METADATA, ConfiguredDataSet
from tacit_services.curator.parquet_upload import BLOCK_BYTES, TAG_BYTES, Spool
from tacit_services.curator.store import RowStore, StorageKeyError, StorageKeys, StoredRows
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


def test_the_identity_is_public(lone_curator: CuratorWorld) -> None:
    identity = lone_curator.call("GET", "/v1/identity", None).json()
    assert identity["key"] == lone_curator.operator.public_hex
    assert set(identity) == {"name", "key", "audience", "software"}


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


OLD, NEW = "0a" * 32, "0b" * 32
CANARY = b"Xc4nary7"
TABLE = pa.table(
    {
        "x": np.random.default_rng(0).normal(size=5000),
        "c": pa.array([CANARY.decode() if i % 3 else "b" for i in range(5000)]).dictionary_encode(),
    }
)


def make_store(folder: Path, keys: str = OLD) -> RowStore:
    folder.mkdir(exist_ok=True)
    return RowStore(folder, StorageKeys.parse(keys))


def put(store: RowStore, account: str = "north/patients", table: pa.Table = TABLE) -> StoredRows:
    writer = store.writer(account, table.schema)
    for batch in table.to_batches(max_chunksize=700):
        writer.write(batch)
    writer.finish()
    return writer.stored


def read(store: RowStore, stored: StoredRows) -> pa.Table:
    batches = store.source(stored).batches(Columns(("x",), ("c",)), 1000)
    return pa.Table.from_batches(list(batches))


def path_of(folder: Path, stored: StoredRows) -> Path:
    return folder / f"{stored.file}.rows"


def test_nothing_readable_is_on_the_disk(tmp_path: Path) -> None:
    stored = put(make_store(tmp_path))
    data = path_of(tmp_path, stored).read_bytes()
    assert CANARY not in data
    assert b"north" not in data
    pq.write_table(TABLE, tmp_path / "plain.parquet")
    assert CANARY in (tmp_path / "plain.parquet").read_bytes(), "the search must be able to find it"
    assert path_of(tmp_path, stored).stat().st_mode & 0o077 == 0


def flip(position: Callable[[int], int]) -> Callable[[bytes], bytes]:
    def change(data: bytes) -> bytes:
        changed = bytearray(data)
        changed[position(len(data))] ^= 1
        return bytes(changed)

    return change


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "cut short": lambda data: data[:-1000],
    "a piece taken out": lambda data: data[:1000] + data[1100:],
    "bytes added": lambda data: data + b"PARE",
    "emptied": lambda _: b"",
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_changed_file_is_refused(tmp_path: Path, name: str) -> None:
    store = make_store(tmp_path)
    stored = put(store)
    path = path_of(tmp_path, stored)
    path.write_bytes(DAMAGE[name](path.read_bytes()))
    with pytest.raises(DataError) as refused:
        read(store, stored)
    assert CANARY.decode() not in str(refused.value)
    assert str(tmp_path) not in str(refused.value)


def test_every_byte_of_a_small_file_is_protected(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    stored = put(store, table=TABLE.slice(0, 20))
    path = path_of(tmp_path, stored)
    data = path.read_bytes()
    for position in range(len(data)):
        path.write_bytes(flip(lambda _, position=position: position)(data))  # type: ignore[misc]
        try:
            table = read(store, stored)
        except DataError:
            continue
        assert table.equals(read_unchanged(store, stored, path, data)), f"byte {position}"


def read_unchanged(store: RowStore, stored: StoredRows, path: Path, data: bytes) -> pa.Table:
    path.write_bytes(data)
    return read(store, stored)


def test_a_file_put_in_anothers_place_is_refused(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    ours, theirs, older = put(store), put(store, "south/patients"), put(store)
    for other in (theirs, older):
        path_of(tmp_path, ours).write_bytes(path_of(tmp_path, other).read_bytes())
        with pytest.raises(DataError):
            read(store, ours)
        with pytest.raises(DataError, match="data key was changed"):
            store.source(StoredRows(ours.account, ours.file, other.wrapped_key))
    # Even with key and name moved together, the account that they are for stays theirs.
    with pytest.raises(DataError, match="data key was changed"):
        store.source(StoredRows(ours.account, theirs.file, theirs.wrapped_key))


def test_a_plain_file_in_its_place_is_refused(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    stored = put(store)
    pq.write_table(TABLE, path_of(tmp_path, stored))
    with pytest.raises(DataError):
        read(store, stored)


def test_another_storage_key_says_so_and_a_list_of_keys_reads_all(tmp_path: Path) -> None:
    stored = put(make_store(tmp_path, OLD))
    with pytest.raises(DataError, match="another storage key"):
        make_store(tmp_path, NEW).source(stored)
    both = make_store(tmp_path, f"{NEW}\n{OLD}\n")
    assert read(both, stored).num_rows == 5000
    rewrapped = both.rewrapped(stored)
    assert rewrapped is not None
    fresh = StoredRows(stored.account, stored.file, rewrapped)
    assert both.rewrapped(fresh) is None
    assert read(make_store(tmp_path, NEW), fresh).num_rows == 5000


@pytest.mark.parametrize("text", ["", "0a", "0a" * 31, "zz" * 32, "0a" * 32 + " x"])
def test_malformed_storage_keys_are_refused_without_being_quoted(text: str) -> None:
    with pytest.raises(StorageKeyError) as refused:
        StorageKeys.parse(text)
    assert "zz" not in str(refused.value)


def test_data_keys_are_never_used_twice(tmp_path: Path) -> None:
    store, keys = make_store(tmp_path), StorageKeys.parse(OLD)
    seen = set()
    for _ in range(20):
        stored = put(store, table=TABLE.slice(0, 1))
        seen.add(
            keys.unwrap(stored.wrapped_key, f"tacit/curator/rows/1\0{stored.account}\0{stored.file}".encode())
        )
    assert len(seen) == 20


def test_one_process_has_the_folder(tmp_path: Path) -> None:
    first, second = make_store(tmp_path), make_store(tmp_path)
    first.acquire()
    with pytest.raises(SettingsError, match="another curator"):
        second.acquire()
    first.release()
    second.acquire()
    second.release()


def test_a_folder_belongs_to_one_database(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    store.bind("a" * 32)
    store.bind("a" * 32)
    stored = put(store)
    with pytest.raises(SettingsError, match="another database"):
        store.bind("b" * 32)
    (tmp_path / "id").unlink()
    with pytest.raises(SettingsError, match="does not say"):
        store.bind("a" * 32)
    assert path_of(tmp_path, stored).exists()


def test_the_sweep_keeps_what_is_named(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    kept, debris = put(store), put(store)
    (tmp_path / "spool-x").touch()
    assert store.sweep([kept.file]) == 2
    assert path_of(tmp_path, kept).exists()
    assert not path_of(tmp_path, debris).exists()


# The spool.


def test_a_spool_reads_back_from_anywhere(tmp_path: Path) -> None:
    data = np.random.default_rng(1).bytes(3 * BLOCK_BYTES + 17)
    with Spool(tmp_path) as spool:
        for start in range(0, len(data), 10_007):
            spool.append(data[start : start + 10_007])
        spool.seal()
        assert spool.size_bytes == len(data)
        for start, size in [
            (0, 10),
            (BLOCK_BYTES - 3, 6),
            (5, 2 * BLOCK_BYTES),
            (len(data) - 4, 100),
            (0, -1),
        ]:
            spool.seek(start)
            assert spool.read(size) == data[start : len(data) if size < 0 else start + size]
        assert spool.seek(-4, 2) == len(data) - 4
        assert spool.read(100) == data[-4:]


def test_a_spool_has_no_name_and_nothing_readable(tmp_path: Path) -> None:
    with Spool(tmp_path) as spool:
        spool.append(CANARY * 100_000)
        spool.seal()
        assert list(tmp_path.iterdir()) == []
        on_disk = Path(f"/proc/self/fd/{spool._file.fileno()}").read_bytes()
        assert len(on_disk) > len(CANARY) * 100_000
        assert CANARY not in on_disk


def test_a_spool_that_was_changed_on_disk_is_refused(tmp_path: Path) -> None:
    with Spool(tmp_path) as spool:
        spool.append(bytes(3 * BLOCK_BYTES))
        spool.seal()
        spool._file.seek(BLOCK_BYTES + TAG_BYTES + 5)
        spool._file.write(b"x")
        spool.seek(0)
        assert spool.read(BLOCK_BYTES) == bytes(BLOCK_BYTES)
        with pytest.raises(OSError, match="changed on disk"):
            spool.read(1)


WRITTEN = f"""
name = "clearinghouse"
url = "https://curator.example/"
key_file = "curator.pem"
storage_folder = "rows"
storage_keys_file = "storage.key"
tester_url = "https://tester.example/"
tester_key = "{"3" * 64}"
"""

DATA_SET = '[[data_sets]]\nowner = "north"\nname = "heart"\nsource = "heart.csv"\n'


def load(folder: Path, text: str) -> CuratorSettings:
    path = folder / "curator.toml"
    path.write_text(text)
    return CuratorSettings.load(path)


def test_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    settings = load(tmp_path, WRITTEN + DATA_SET)
    assert settings.key_file == tmp_path / "curator.pem"
    assert settings.storage_folder == tmp_path / "rows"
    assert settings.storage_keys_file == tmp_path / "storage.key"
    assert settings.database_url == f"sqlite:///{tmp_path / 'curator.sqlite3'}"
    (tmp_path / "heart.csv").write_text("x\n1\n")
    assert settings.data_sets[0].open().column_names() == ("x",)
    assert (settings.token_audience, settings.audience_of_tester) == (
        "https://curator.example",
        "https://tester.example",
    )
    named = load(tmp_path, WRITTEN + 'audience = "a"\ntester_audience = "b"\n')
    assert (named.token_audience, named.audience_of_tester) == ("a", "b")


@pytest.mark.parametrize(
    "added",
    [
        "unknown = 1",
        "uploads_max = 0",
        "poll_wait_s = 61",
        DATA_SET + DATA_SET,
        DATA_SET + "epsilon = 1.0",
        'tls_certificate_file = "chain.pem"',
    ],
)
def test_what_makes_no_sense_is_refused(tmp_path: Path, added: str) -> None:
    with pytest.raises(SettingsError):
        load(tmp_path, WRITTEN + added)
