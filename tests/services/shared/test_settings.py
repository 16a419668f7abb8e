"""Settings that are read or refused, and logs that carry no value."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic_settings import SettingsConfigDict

from tacit_protocol.signing import PrivateKey
from tacit_services.shared.settings import ServiceSettings, SettingsError, read_private_key


class Example(ServiceSettings):
    model_config = SettingsConfigDict(env_prefix="TACIT_EXAMPLE_")

    name: str
    port: int = 8000
    key_file: Path
    database_url: str = "sqlite:///example.sqlite3"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "example.toml"
    path.write_text('name = "from file"\nkey_file = "keys/own.pem"\ndatabase_url = "sqlite:///a.sqlite3"\n')
    return path


def test_a_secret_may_be_in_a_file(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (config.parent / "url").write_text("postgresql://user:password@host/name\n")
    monkeypatch.setenv("TACIT_EXAMPLE_DATABASE_URL_FILE", str(config.parent / "url"))
    assert Example.load(config).database_url == "postgresql://user:password@host/name"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("name = 3", "name"),
        ("", "name"),
        ('name = "a"\nkey_file = "k"\nprot = 1', "prot"),
        ('name = "a"\nkey_file = "k"\nport = "many"', "port"),
        ('name = "a"\nkey_file = "k"\ndatabase_url = "nonsense"', "database_url"),
        ("name = ", "TOML"),
    ],
)
def test_wrong_settings_are_named(tmp_path: Path, text: str, complaint: str) -> None:
    (tmp_path / "c.toml").write_text(text)
    with pytest.raises(SettingsError, match=complaint):
        Example.load(tmp_path / "c.toml")


def test_key_files(tmp_path: Path) -> None:
    key = PrivateKey.generate()
    (tmp_path / "good.pem").write_bytes(key.to_pem())
    (tmp_path / "bad.pem").write_bytes(b"nothing")
    assert read_private_key(tmp_path / "good.pem").public_hex == key.public_hex
    for name in ("bad.pem", "missing.pem"):
        with pytest.raises(SettingsError, match=name):
            read_private_key(tmp_path / name)


PROGRAM = """
import logging, warnings, structlog
from tacit_services.shared.logging import configure_logging, describe_exception
configure_logging()
log = structlog.get_logger()
def fails():
    raise ValueError("canary-7391")
log.info("started", port=8000)
try:
    fails()
except ValueError as error:
    log.error("failed", fault=describe_exception(error))
    log.exception("failed again")
    logging.getLogger("library").exception("library failed on %s", "canary-7391")
logging.getLogger("httpx").info("GET http://x/?token=canary-7391")
"""


def test_exceptions_are_logged_without_their_message() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert "canary" not in done.stdout + done.stderr
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert [line["event"] for line in lines] == [
        "started",
        "failed",
        "failed again",
        "library failed on %s",
    ]
    assert lines[0]["port"] == 8000
    for line in lines[1:]:
        assert line["fault"]["type"] == "builtins.ValueError"
        assert "fails" in line["fault"]["frames"][-1]
