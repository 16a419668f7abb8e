"""Canaries planted in data, keys, tokens and invitations, across a run of real processes."""

import base64
import sqlite3
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import psycopg
import pytest
from forked_python import services_forked

from tacit.setup.configuration import DataSetSetup, PolicySetup
from tacit.setup.federation import LocalFederation, OwnerSetup
from tacit.setup.keys import load_key
from tacit.studies.draft import StudyDraft
from tacit_protocol.signing import issue_token

WORD, NUMBER = "Zq7canaryward", "73.4192837"
"""What rows hold: no noisy figure equals the number but by a chance of 1e-9."""


@dataclass
class Run:
    """A federation that answered one study and closed another, and all that it wrote and said."""

    engine: str = "sqlite"
    """What holds the tester's tables."""
    secrets: dict[str, bytes] = field(default_factory=dict)
    places: dict[str, bytes] = field(default_factory=dict)

    def leaks(self) -> set[str]:
        """Return each secret that stands somewhere, with the place."""
        return {
            f"{secret} in {place}"
            for secret, value in self.secrets.items()
            for place, content in self.places.items()
            if value in content
        }


FAILING = "SELECT CASE WHEN id LIKE '%canary%' THEN json_extract('{}', id) ELSE x END AS x, id FROM patients"
"""A query whose error text quotes the row that it fails at."""


def write_data(folder: Path) -> None:
    """Give every owner its rows; west's are in a database, and its query fails at those with the canaries."""
    rows = [(str(40 + i % 30), f"p{i}") for i in range(200)] + [(NUMBER, WORD)] * 3
    for name in ("north", "south", "west"):
        (folder / name).mkdir(parents=True)
        lines = "".join(f"{x},{unit}\n" for x, unit in rows)
        (folder / name / "patients.csv").write_text("x,id\n" + lines)
    with sqlite3.connect(folder / "west" / "patients.db") as connection:
        connection.execute("CREATE TABLE patients (x REAL, id TEXT)")
        connection.executemany("INSERT INTO patients VALUES (?, ?)", rows)
        with pytest.raises(sqlite3.OperationalError, match=WORD):
            connection.execute(FAILING).fetchall()
    connection.close()


def owner(name: str) -> OwnerSetup:
    policy = PolicySetup(
        approval="automatic",
        approve_hopeless=True,
        epsilon_per_study_max=1.0,
        delta_per_study_max=1e-5,
        units_min=20,
        columns=["x"],
    )
    source, query = ("sqlite:///patients.db", FAILING) if name == "west" else ("patients.csv", None)
    data_set = DataSetSetup("patients", source, 4.0, 1e-5, unit_column="id", query=query)
    return OwnerSetup(name, data_set, policy)


def draft(*owners: str) -> StudyDraft:
    return StudyDraft.from_dict(
        {
            "title": "Is x alike?",
            "columns": [{"kind": "numeric", "name": "x", "lower": 0.0, "upper": 100.0}],
            "owners": [{"name": name, "data_set": "patients"} for name in owners],
            "unit_column": "id",
            "epsilon": 1.0,
            "delta": 1e-5,
            "open_for_hours": 1.0,
        }
    )


def wait_until_closed(federation: LocalFederation, study: str) -> None:
    """Wait until west has failed at its rows: then nothing but the deadline would end the study."""
    (west,) = (site for site in federation.agents if site.name == "west")
    key, until = load_key(west.folder / "agent.pem"), time.monotonic() + 300

    def state() -> str | None:
        headers = {"authorization": f"Bearer {issue_token(key, 'agent:west', int(time.time()))}"}
        answer = httpx.get(f"{west.url}/v1/studies/{study}", headers=headers, trust_env=False, timeout=300)
        return answer.json().get("state")

    while state() != "closed":
        assert time.monotonic() < until, "west did not close the study"
        time.sleep(0.1)  # between two looks, not for luck


def play(federation: LocalFederation, run: Run) -> None:
    """Answer one study, close another, and make the errors that an attacker would."""
    federation.wait_until_ready()
    federation.enrol_all()
    with federation.tester_client() as tester:
        run.secrets["an invitation"] = tester.invite("owner", "later").invitation.encode()
    with federation.analyst_client() as client:
        first = client.create_study(draft("north", "south"), force=True)
        # West's rows cannot be read: it closes the study, and is away for all that others see.
        second = client.create_study(draft("north", "west"), force=True)
        assert client.wait_for_verdict(first, timeout_s=300).outcome == "completed"
        wait_until_closed(federation, second)
        client.cancel(second)
        assert client.wait_for_verdict(second, timeout_s=300).outcome == "cancelled"
        run.places["the transcript"] = client.transcript(first)
    for site in (federation.tester, *federation.agents):
        key = load_key(site.folder / ("tester.pem" if site is federation.tester else "agent.pem"))
        token = issue_token(key, WORD, 1)
        run.secrets[f"a token of {site.name}"] = token.encode()
        for path in (
            f"/v1/studies/{WORD}",
            f"/v1/studies?state={WORD}",
            "/v1/studies",
            "/metrics",
            "/v1/status",
        ):
            headers = {"authorization": f"Bearer {token}"}
            answer = httpx.get(site.url + path, headers=headers, trust_env=False, timeout=300)
            run.places[f"{site.name}{path[:12]}"] = answer.content + str(answer.headers).encode()


def collect(federation: LocalFederation, run: Run) -> None:
    """Gather logs and databases, and the secrets of key files, once the processes have ended."""
    for pem in federation.folder.rglob("*.pem"):
        lines = pem.read_bytes().splitlines()
        run.secrets[f"the key {pem.name} of {pem.parent.name}"] = lines[1]
        run.secrets[f"the raw key {pem.name} of {pem.parent.name}"] = base64.b64decode(lines[1])[-32:]
    for log in federation.folder.rglob("*.log"):
        assert log.stat().st_size > 0
        run.places[f"the log of {log.parent.name}"] = log.read_bytes()
    for database in federation.folder.rglob("*.sqlite3"):
        name = database.parent.name
        run.places[f"the database file of {name}"] = database.read_bytes()
        with sqlite3.connect(database) as connection:
            run.places[f"the dump of {name}"] = "\n".join(connection.iterdump()).encode()
        connection.close()


@contextmanager
def empty_database(server: str) -> Iterator[str]:
    """The URL of a database at a PostgreSQL server, dropped afterwards."""
    name = f"secrets_{uuid.uuid4().hex}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    yield server.replace("/postgres?", f"/{name}?")
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


def use_database(federation: LocalFederation, url: str) -> None:
    """Let the tester keep its tables at a URL."""
    written = federation.tester.configuration.read_text()
    changed = written.replace('"sqlite:///tester.sqlite3"', f'"{url}"')
    assert changed != written
    federation.tester.configuration.write_text(changed)


def collect_tables(url: str, run: Run) -> None:
    """Gather the rows of every table, once as they are and once as PostgreSQL writes them out."""
    with psycopg.connect(url) as connection:
        tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
        for (table,) in tables:
            rows = connection.execute(f"SELECT * FROM {table}".encode()).fetchall()  # noqa: S608 (our own)
            raw = [
                value if isinstance(value, bytes) else str(value).encode() for row in rows for value in row
            ]
            with connection.cursor().copy(f"COPY {table} TO STDOUT".encode()) as copy:
                written = b"".join(bytes(piece) for piece in copy)
            run.places[f"the table {table} of tester"] = b"\n".join([*raw, written])


@pytest.fixture(scope="module", params=["sqlite", pytest.param("postgresql", marks=pytest.mark.long)])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """One run, with everything that it left; the tester's tables are in either engine."""
    folder, run = tmp_path_factory.mktemp("secrets") / "federation", Run(engine=request.param)
    run.secrets |= {"a word of a row": WORD.encode(), "a number of a row": NUMBER.encode()}
    write_data(folder)
    federation = LocalFederation(folder, [owner(name) for name in ("north", "south", "west")])
    if request.param == "sqlite":
        with services_forked(), federation:
            play(federation, run)
    else:
        with empty_database(request.getfixturevalue("postgres_server")) as url:
            use_database(federation, url)
            with services_forked(), federation:
                play(federation, run)
            collect_tables(url, run)
    collect(federation, run)
    return run


def test_no_secret_stands_in_logs_errors_metrics_databases_or_the_transcript(run: Run) -> None:
    assert len(run.secrets) >= 2 + 1 + 4 + 2 * 5
    assert {place for place in run.places if place.startswith("the log")} == {
        f"the log of {name}" for name in ("tester", "north", "south", "west")
    }
    if run.engine == "sqlite":
        assert b"sqlite" in run.places["the database file of tester"][:20].lower()
        assert b"INSERT INTO" in run.places["the dump of tester"]
    else:
        assert b"north" in run.places["the table parties of tester"]
        assert b"application/vnd.tacit" in run.places["the table releases of tester"]
        assert "the database file of tester" not in run.places
    assert b"it failed after rows were read" in run.places["the dump of west"]
    assert run.leaks() == set()


def test_a_leak_anywhere_would_be_caught(run: Run) -> None:
    for secret, value in run.secrets.items():
        for place in run.places:
            planted = Run(run.engine, {secret: value}, {place: run.places[place] + value})
            assert planted.leaks() == {f"{secret} in {place}"}
