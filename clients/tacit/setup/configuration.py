"""Configuration files of the parties: written by `init`, read by the command."""

import math
import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import tomlkit

from tacit.errors import ConfigurationError, InputError
from tacit.setup.keys import KEY_MODE, create_key, create_storage_key, load_key
from tacit_protocol.addresses import DIRECT, Route, RouteError
from tacit_protocol.signing import PrivateKey

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
_KEY = re.compile(r"[0-9a-f]{64}")
_URL = re.compile(r"https?://[^\s/?#]+[^\s?#]*")


def require_name(name: str, what: str = "a name") -> None:
    """Raise InputError where this is no name of a party or a data set."""
    if not _NAME.fullmatch(name):
        raise InputError(
            f"{what} has small letters, digits, '.', '_' and '-', and begins with a letter or digit"
        )


def require_address(url: str, key: str, whose: str) -> None:
    """Raise InputError where a tester's or a curator's URL or public key cannot be one."""
    from tacit.client.transport import require_private  # noqa: PLC0415 (the HTTP library loads when needed)

    if not _URL.fullmatch(url):
        raise InputError(f"the {whose}'s URL must look like https://{whose}.example")
    require_private(url, insecure_plain_http=False)
    if not _KEY.fullmatch(key):
        raise InputError(
            f"the {whose}'s key is 64 hexadecimal digits in small letters: its operator's init printed it"
        )


def require_caps(epsilon: float, delta: float, what: str) -> None:
    """Raise InputError where these are no epsilon and delta."""
    if not 0 < epsilon < math.inf:
        raise InputError(f"epsilon {what} must be a number above 0, such as 3")
    if not 0 <= delta < 1:
        raise InputError(f"delta {what} must be at least 0 and below 1, such as 3e-5")


TESTER_PORT = 8400
"""Default port of a tester."""

AGENT_PORT = 8710
"""Default port of an agent's local page and interface."""


@dataclass(frozen=True)
class TesterAddress:
    """Where a tester is, and the key it is known by."""

    url: str
    key: str
    audience: str | None = None


@dataclass(frozen=True)
class PartyConfiguration:
    """A party's own key and its tester: what a client needs."""

    name: str
    key_file: Path
    tester: TesterAddress
    route: Route = DIRECT
    insecure_plain_http: bool = False


@dataclass(frozen=True)
class DataSetSetup:
    """A data set of an agent. ``epsilon`` and ``delta`` cap all that is ever spent on it.

    ``pure_share`` is the part of epsilon for Laplace and other pure noise; None: what may run decides.
    """

    name: str
    source: str
    epsilon: float
    delta: float
    unit_column: str | None = None
    query: str | None = None
    pure_share: float | None = None
    image_folder: str | None = None
    """Where images lie whose paths are in a column."""


@dataclass(frozen=True)
class PolicySetup:
    """An owner's policy: what its agent may take part in."""

    approval: str = "by-hand"
    epsilon_per_study_max: float = 1.0
    delta_per_study_max: float = 1e-5
    units_min: int = 100
    procedures: Sequence[str] = ("kernel_two_sample",)
    analysts: Sequence[str] = ("*",)
    columns: Sequence[str] = ()
    """Columns of the data set that studies may use; none unless listed, ``*`` for every one."""
    catalogue: bool = False
    """Whether the data set and these rules are published at the tester."""
    encoders: Sequence[str] = ()
    """Public files that studies may have run, by SHA-256; they lie in the agent's folder ``encoders``."""
    approve_hopeless: bool = False
    """Whether automatic approval also spends on a study whose procedure calls it hopeless."""


def init_tester(folder: Path, name: str, host: str, port: int, url: str | None = None) -> Path:
    """Write a tester's key and tester.toml; returns the latter's path."""
    require_name(name)
    make_folder(folder)
    create_key(folder / "tester.pem")
    return write_toml(
        folder / "tester.toml",
        {
            "name": name,
            "url": (url or f"http://{host}:{port}").rstrip("/"),
            "host": host,
            "port": port,
            "key_file": "tester.pem",
            "database_url": "sqlite:///tester.sqlite3",
        },
    )


def init_agent(
    folder: Path,
    name: str,
    tester: TesterAddress,
    data_set: DataSetSetup | None,
    policy: PolicySetup,
    *,
    host: str,
    port: int,
    data_folders: Sequence[str] = (),
) -> Path:
    """Write an agent's key, agent.toml and policy.toml; returns agent.toml's path.

    Without a data set, those in ``data_folders`` are added on the agent's page.
    """
    require_name(name)
    require_address(tester.url, tester.key, "tester")
    if data_set is not None:
        require_name(data_set.name, "a data set's name")
        require_caps(data_set.epsilon, data_set.delta, "of the data set")
        if data_set.pure_share is not None and not 0 <= data_set.pure_share <= 1:
            raise InputError("the pure share is a part of epsilon: a number from 0 to 1, such as 0.5")
    require_caps(policy.epsilon_per_study_max, policy.delta_per_study_max, "per study")
    make_folder(folder)
    create_key(folder / "agent.pem")
    described = [] if data_set is None else [asdict(data_set)]
    allowed = {} if data_set is None else {data_set.name: {"columns": list(policy.columns)}}
    write_toml(
        folder / "policy.toml",
        {
            "approval": policy.approval,
            "approve_hopeless": policy.approve_hopeless or None,
            "epsilon_per_study_max": policy.epsilon_per_study_max,
            "delta_per_study_max": policy.delta_per_study_max,
            "units_min": policy.units_min,
            "procedures": list(policy.procedures),
            "analysts": list(policy.analysts),
            "catalogue": policy.catalogue,
            "encoders": list(policy.encoders) or None,
            "data_sets": allowed,
        },
    )
    return write_toml(
        folder / "agent.toml",
        {
            "name": name,
            "key_file": "agent.pem",
            "database_url": "sqlite:///agent.sqlite3",
            "tester_url": tester.url,
            "tester_key": tester.key,
            "tester_audience": tester.audience or tester.url,
            "host": host,
            "port": port,
            "policy_file": "policy.toml",
            "data_folders": list(data_folders) or None,
            "data_sets": described,
        },
    )


def init_party(folder: Path, name: str, tester: TesterAddress) -> Path:
    """Write an analyst's key and party.toml; returns the latter's path."""
    require_name(name)
    require_address(tester.url, tester.key, "tester")
    make_folder(folder)
    create_key(folder / "party.pem")
    return write_toml(
        folder / "party.toml",
        {
            "name": name,
            "key_file": "party.pem",
            "tester_url": tester.url,
            "tester_key": tester.key,
            "tester_audience": tester.audience or tester.url,
        },
    )


def read_party(path: Path) -> PartyConfiguration:
    """Read who a party is: from party.toml, or from an agent's agent.toml.

    Raises:
        ConfigurationError: the file is missing, is not TOML, or lacks a field.
    """
    fields = read_toml(path)
    return PartyConfiguration(
        name=text_field(fields, "name", path),
        key_file=path.parent / text_field(fields, "key_file", path),
        tester=TesterAddress(
            url=text_field(fields, "tester_url", path),
            key=text_field(fields, "tester_key", path),
            audience=fields.get("tester_audience"),
        ),
        route=route_of(fields, "tester", path),
        insecure_plain_http=fields.get("insecure_plain_http") is True,
    )


def route_of(fields: Mapping[str, Any], peer: str, path: Path) -> Route:
    """Return how a configuration file says that a service is reached; what it names lies relative to itself.

    Raises:
        ConfigurationError: one part needs another.
    """
    try:
        return Route.of(fields, peer, lambda file: path.parent / file)
    except RouteError as error:
        raise ConfigurationError(f"{path}: {error}") from error


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file; raises ConfigurationError where that cannot be done."""
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ConfigurationError(
            f"cannot read {path} ({error.strerror}): name another file, or make one with init"
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path} is not TOML: {error}") from error


def text_field(fields: Mapping[str, Any], name: str, path: Path) -> str:
    """Return a text field; raises ConfigurationError where it is missing or is something else."""
    value = fields.get(name)
    if not isinstance(value, str) or not value:
        raise ConfigurationError(f"{path} must say {name} (text)")
    return value


def own_url(fields: Mapping[str, Any], port: int) -> str:
    """Return where a service without TLS listens, as seen from its own machine; ``port`` is the default."""
    host = str(fields.get("host", "127.0.0.1"))
    local = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)  # noqa: S104 (compared)
    return f"http://{local}:{fields.get('port', port)}"


def toml_text(fields: Mapping[str, Any]) -> str:
    """Write plain values as TOML, in which nothing steers a terminal; fields that are None are left out."""
    return _printable(tomlkit.dumps(_without_none(fields)))


def toml_value(value: object) -> str:
    """Write one text, number, truth value or list as TOML writes it, so that it steers no terminal."""
    return _printable(tomlkit.item(value).as_string())


def _without_none(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _without_none(inner) for name, inner in value.items() if inner is not None}
    return [_without_none(item) for item in value] if isinstance(value, list | tuple) else value


def _printable(text: str) -> str:
    """Escape what tomlkit leaves as it is in a string or a key, such as marks that turn the text round."""
    return "".join(c if c.isprintable() or c == "\n" else f"\\U{ord(c):08x}" for c in text)


def make_folder(folder: Path) -> None:
    """Make a party's folder; raises ConfigurationError where that cannot be done."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigurationError(f"cannot make the folder {folder}: {error.strerror}") from error


def write_toml(path: Path, fields: Mapping[str, Any]) -> Path:
    """Write a new file of plain values, for its owner's eyes alone, and return its path.

    Raises:
        ConfigurationError: the file exists already, or cannot be written.
    """
    try:
        with open(path, "x", encoding="utf-8", opener=_private) as file:
            file.write(toml_text(fields))
    except FileExistsError as error:
        raise ConfigurationError(f"{path} exists already; choose another folder") from error
    except OSError as error:
        raise ConfigurationError(f"cannot write {path}: {error.strerror}") from error
    return path


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, KEY_MODE)


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
    route: Route = DIRECT
    insecure_plain_http: bool = False


@dataclass(frozen=True)
class OwnService:
    """A tester or a curator as its operator reaches it, with the service's own key.

    ``url`` is where its own machine reaches it, ``shown`` its public URL; ``audience`` is that of tokens.
    """

    url: str
    shown: str
    audience: str
    key: PrivateKey
    route: Route
    insecure_plain_http: bool


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
        route=route_of(fields, "curator", path),
        insecure_plain_http=fields.get("insecure_plain_http") is True,
    )


def read_own_service(path: Path, kind: Literal["tester", "curator"]) -> OwnService:
    """Read a tester's or a curator's own file, for its operator.

    Raises:
        ConfigurationError: the file or the key is missing or cannot be read.
    """
    fields = read_toml(path)
    shown = text_field(fields, "url", path)
    # A certificate names the public address, so a service that serves TLS itself is asked there.
    serves_tls = "tls_certificate_file" in fields
    return OwnService(
        shown if serves_tls else own_url(fields, TESTER_PORT if kind == "tester" else CURATOR_PORT),
        shown,
        str(fields.get("audience") or shown),
        load_key(path.parent / text_field(fields, "key_file", path)),
        route_of(fields, kind, path),
        fields.get("insecure_plain_http") is True,
    )
