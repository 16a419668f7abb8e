"""Configuration files around a curator: its own curator.toml, and an owner's owner.toml."""

from dataclasses import dataclass
from pathlib import Path

from tacit.configuration import (
    TesterAddress,
    beside,
    local_address,
    make_folder,
    read_toml,
    text_field,
    write_toml,
)
from tacit.keys import create_key, create_storage_key, load_key
from tacit.setup_checks import require_address, require_name
from tacit_protocol.signing.keys import PrivateKey

CURATOR_PORT = 8720
"""Default port of a curator."""


@dataclass(frozen=True)
class CuratorAddress:
    """Where a curator is, and the key it is known by."""

    url: str
    key: str
    audience: str | None = None


@dataclass(frozen=True)
class OwnerConfiguration:
    """An owner's own key and its curator."""

    name: str
    key_file: Path
    curator: CuratorAddress
    ca_file: Path | None = None
    insecure_plain_http: bool = False


@dataclass(frozen=True)
class OwnCurator:
    """The curator as its operator reaches it, with the curator's own key."""

    name: str
    url: str
    audience: str
    key: PrivateKey
    ca_file: Path | None = None
    insecure_plain_http: bool = False


def init_curator(
    folder: Path, name: str, tester: TesterAddress, *, host: str, port: int, url: str | None = None
) -> Path:
    """Write a curator's key, its storage key and curator.toml; returns the latter's path."""
    require_name(name)
    require_address(tester.url, tester.key, "tester")
    make_folder(folder)
    create_key(folder / "curator.pem")
    create_storage_key(folder / "storage.key")
    return write_toml(
        folder / "curator.toml",
        {
            "name": name,
            "url": (url or f"http://{host}:{port}").rstrip("/"),
            "host": host,
            "port": port,
            "key_file": "curator.pem",
            "database_url": "sqlite:///curator.sqlite3",
            "storage_folder": "rows",
            "storage_keys_file": "storage.key",
            "tester_url": tester.url,
            "tester_key": tester.key,
            "tester_audience": tester.audience or tester.url,
        },
    )


def init_owner(folder: Path, name: str, curator: CuratorAddress) -> Path:
    """Write an owner's key and owner.toml; returns the latter's path."""
    require_name(name)
    require_address(curator.url, curator.key, "curator")
    make_folder(folder)
    create_key(folder / "owner.pem")
    return write_toml(
        folder / "owner.toml",
        {
            "name": name,
            "key_file": "owner.pem",
            "curator_url": curator.url,
            "curator_key": curator.key,
            "curator_audience": curator.audience or curator.url,
        },
    )


def read_owner(path: Path) -> OwnerConfiguration:
    """Read who an owner is, and its curator.

    Raises:
        ConfigurationError: the file is missing, is not TOML, or lacks a field.
    """
    fields = read_toml(path)
    return OwnerConfiguration(
        name=text_field(fields, "name", path),
        key_file=path.parent / text_field(fields, "key_file", path),
        curator=CuratorAddress(
            url=text_field(fields, "curator_url", path),
            key=text_field(fields, "curator_key", path),
            audience=fields.get("curator_audience"),
        ),
        ca_file=beside(path, fields.get("curator_ca_file")),
        insecure_plain_http=fields.get("insecure_plain_http") is True,
    )


def read_own_curator(path: Path) -> OwnCurator:
    """Read a curator's own file, for its operator.

    Raises:
        ConfigurationError: the file or the key is missing or cannot be read.
    """
    fields = read_toml(path)
    address = local_address(fields, path, CURATOR_PORT)
    key = load_key(path.parent / text_field(fields, "key_file", path))
    return OwnCurator(
        text_field(fields, "name", path),
        address.url,
        address.audience,
        key,
        ca_file=beside(path, fields.get("curator_ca_file")),
        insecure_plain_http=fields.get("insecure_plain_http") is True,
    )
