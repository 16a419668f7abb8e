"""A certificate for this machine, signed by itself, and how a caller begins to use it."""

import datetime
import importlib.util
import ipaddress
import ssl
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tacit.client.http import HttpRequest
from tacit.client.transport import HttpTransport, way
from tacit.errors import TransportError
from tacit.setup.configuration import toml_text
from tacit.setup.processes import ServiceProcess
from tacit_protocol.addresses import DIRECT, Route

ROOT = Path(__file__).resolve().parents[2]


def write_certificate(folder: Path) -> Path:
    """Write ``certificate.pem``, and ``certificate.key`` beside it; returns the first."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.datetime.now(datetime.UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")])
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .sign(key, hashes.SHA256())
    )
    file = folder / "certificate.pem"
    file.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    file.with_suffix(".key").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return file


def client_hello() -> bytes:
    """Return the first message of a TLS handshake."""
    written = ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        ssl.create_default_context().wrap_bio(
            ssl.MemoryBIO(), written, server_hostname="127.0.0.1"
        ).do_handshake()
    return written.read()


def deployed() -> Any:
    """Return the module that makes the compose file's certificates."""
    path = ROOT / "deploy" / "certificates.py"
    spec = importlib.util.spec_from_file_location("certificates", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def add(file: Path, **fields: str) -> Path:
    """Add settings at the top of a configuration, in place of those of the same names."""
    kept = [line for line in file.read_text().splitlines() if line.split(" = ")[0] not in fields]
    file.write_text(toml_text(fields) + "\n".join(kept) + "\n")
    return file


READY_S = 300.0
"""How long a service may take to answer."""


def wait_until_ready(url: str, services: Sequence[ServiceProcess], route: Route = DIRECT) -> None:
    """Wait until a service says that it is ready, while all of these run."""
    ends_at = time.monotonic() + READY_S
    with HttpTransport(url, **way(route, url), sleep=lambda _: None) as sender:
        while True:
            for service in services:
                service.check_running()
            try:
                if sender.send(HttpRequest("GET", "/readyz", signed=False)).status == 200:
                    return
            except TransportError:
                assert time.monotonic() < ends_at
            time.sleep(0.1)
