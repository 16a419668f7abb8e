"""Key files: private keys on disk that only their owner may read."""

import os
import secrets
import stat
from pathlib import Path

from tacit.errors import ConfigurationError
from tacit_protocol.signing import PrivateKey, SignatureError

KEY_MODE = 0o600
"""A key file may be read and written by its owner alone."""

STORAGE_KEY_BYTES = 32
"""AES-256."""

UNIT_KEY_BYTES = 32
"""HMAC-SHA256's own size."""


def load_key(path: Path) -> PrivateKey:
    """Read a private key (PEM).

    Raises:
        ConfigurationError: the file is missing or unreadable, or holds no Ed25519 key.
    """
    try:
        return PrivateKey.from_pem(path.read_bytes())
    except OSError as error:
        reason = error.strerror or "unreadable"
        raise ConfigurationError(f"cannot read the key file {path} ({reason}): make one with init") from error
    except SignatureError as error:
        raise ConfigurationError(f"{path}: {error}") from error


def create_key(path: Path) -> PrivateKey:
    """Generate a key and write it to a new file of mode 0600.

    Raises:
        ConfigurationError: the file exists already (a key is never overwritten) or cannot be written.
    """
    key = PrivateKey.generate()
    _write_secret(path, key.to_pem())
    return key


def create_storage_key(path: Path) -> None:
    """Draw a key that encrypts data at rest, and write it to a new file of mode 0600: 64 hexadecimal digits.

    Raises:
        ConfigurationError: the file exists already (a key is never overwritten) or cannot be written.
    """
    _write_secret(path, secrets.token_hex(STORAGE_KEY_BYTES).encode() + b"\n")


def create_unit_key(path: Path) -> None:
    """Draw a key for two owners to align their units by; to a new file of mode 0600, in hexadecimal.

    Raises:
        ConfigurationError: the file exists already (a key is never overwritten) or cannot be written.
    """
    _write_secret(path, secrets.token_hex(UNIT_KEY_BYTES).encode() + b"\n")


def readable_by_others(path: Path) -> bool:
    """Whether the file's group or everyone may read it."""
    return bool(path.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH))


def _write_secret(path: Path, content: bytes) -> None:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, KEY_MODE)
    except FileExistsError as error:
        raise ConfigurationError(f"{path} exists already; a key is never overwritten") from error
    except OSError as error:
        raise ConfigurationError(f"cannot write the key file {path}: {error.strerror}") from error
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
