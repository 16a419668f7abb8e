"""Certificates of the compose file's services and of its Dask cluster, each set by an authority of its own.

The authorities' keys are thrown away: nobody can make another certificate that is trusted.
"""

import datetime
from collections.abc import Iterator, Sequence
from ipaddress import ip_address

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

ROLES = ("scheduler", "worker", "client")
SERVICES = ("tester", "curator")
LOCAL_NAMES = ("localhost", "127.0.0.1")
"""How this machine itself calls the services that listen on it."""

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
        yield f"dask_{role}_key", _key_pem(key)


def service_secrets(also: Sequence[str] = ()) -> Iterator[tuple[str, bytes]]:
    """Yield names and contents of what tester and curator serve TLS with, and of what callers trust, PEM.

    A certificate names its service, this machine, and the further names and addresses in ``also``.
    """
    authority = ec.generate_private_key(ec.SECP256R1())
    title = "Tacit federation authority"
    yield "services_ca", _pem(_certificate(title, authority, authority, title, is_authority=True))
    for service in SERVICES:
        key = ec.generate_private_key(ec.SECP256R1())
        names = (service, *LOCAL_NAMES, *also)
        yield f"{service}_tls_certificate", _pem(_certificate(service, key, authority, title, names))
        yield f"{service}_tls_key", _key_pem(key)


def _key_pem(key: Key) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _certificate(
    name: str,
    key: Key,
    authority: Key,
    issuer: str = "Dask authority",
    names: Sequence[str] = (),
    *,
    is_authority: bool = False,
) -> x509.Certificate:
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(_name(name))
        .issuer_name(_name(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now)
        .not_valid_after(now + datetime.timedelta(days=365 * YEARS))
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key()), critical=False
        )
    )
    if is_authority:
        usage = x509.KeyUsage(
            digital_signature=False,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            key_cert_sign=True,
            crl_sign=True,
            encipher_only=False,
            decipher_only=False,
        )
        builder = builder.add_extension(usage, critical=True)
    if names:
        alternatives = x509.SubjectAlternativeName([_alternative(each) for each in names])
        builder = builder.add_extension(alternatives, critical=False)
    return builder.sign(authority, hashes.SHA256())
