"""Certificates of a Dask cluster, by an authority of its own, whose key is then thrown away."""

import datetime
from collections.abc import Iterator

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

ROLES = ("scheduler", "worker", "client")
YEARS = 2

Key = ec.EllipticCurvePrivateKey


def dask_secrets() -> Iterator[tuple[str, bytes]]:
    """Yield names and contents of the secrets that docker-compose.yml names, PEM.

    The authority's key is in none of them: whoever held it could make a client, and so read the rows.
    """
    authority = ec.generate_private_key(ec.SECP256R1())
    yield "dask_ca", _pem(_certificate("Dask authority", authority, authority, is_authority=True))
    for role in ROLES:
        key = ec.generate_private_key(ec.SECP256R1())
        yield f"dask_{role}_certificate", _pem(_certificate(f"Dask {role}", key, authority))
        yield (
            f"dask_{role}_key",
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            ),
        )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _certificate(name: str, key: Key, authority: Key, *, is_authority: bool = False) -> x509.Certificate:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(_name(name))
        .issuer_name(_name("Dask authority"))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now)
        .not_valid_after(now + datetime.timedelta(days=365 * YEARS))
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        .sign(authority, hashes.SHA256())
    )
