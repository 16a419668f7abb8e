"""Settings: which source wins, what relative paths are relative to, and what is refused."""

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
