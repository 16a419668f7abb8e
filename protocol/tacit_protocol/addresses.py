"""Whether others can read what is sent to an address: the one rule for clients, agents, curators and testers.

What is sent is private on the way if it is encrypted (https), or if it never leaves the machine (http to a
loopback address). A name is never looked up to find out: whoever answers for names could then decide that
rows travel in the clear. So, of names, only the literal ``localhost`` counts, which belongs to the machine
(RFC 6761, section 6.3), and of addresses only those that are written in full.

And how a service elsewhere is reached: whose certificates it is trusted by, which certificate is shown to it,
and through which proxy. Nothing of this comes from the environment unless a configuration asks for that.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from ipaddress import IPv6Address, ip_address
from typing import Self

PLAIN_HTTP = (
    "plain http:// to another machine is refused, because everyone on the way could read what is sent: use "
    "https://. Only a test without real data may set insecure_plain_http"
)
"""What a caller is told whose address is refused."""


def is_loopback(host: str) -> bool:
    """Whether a host is this machine's loopback interface, however a resolver is set up.

    ``host`` is as it would be connected to: a name or an address without brackets. True for ``localhost`` and
    for the addresses 127.0.0.0/8, ::1 and ::ffff:127.0.0.0/104 (the same, mapped into IPv6). False for
    all else that some systems take for it: 0.0.0.0 and ::, short or numeric spellings (127.1, 0x7f000001), a
    final dot, names below localhost, scoped addresses, and loopback addresses inside of transition prefixes.
    """
    if host.lower() == "localhost":
        return True
    if "%" in host:
        return False
    try:
        address = ip_address(host)
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (mapped or address).is_loopback


def is_private_channel(scheme: str, host: str) -> bool:
    """Whether nobody else can read what is sent to ``host`` by ``scheme``, both parts of one parsed URL."""
    return scheme == "https" or (scheme == "http" and is_loopback(host))


FROM_ENVIRONMENT = "environment"
"""The word for a proxy that HTTPS_PROXY, HTTP_PROXY and NO_PROXY name."""

PROXY_FORM = "it must be a URL such as http://proxy.hospital.example:3128, or environment"

_PROXY = re.compile(
    r"(https?)://(?:([^/@:]*)(?::([^/@]*))?@)?(\[[0-9a-fA-F:.]+\]|[^/:@?#\[\]\s]+)(?::(\d{1,5}))?/?"
)


class RouteError(ValueError):
    """A configuration names a proxy or certificates that cannot be used; says which, and what to do."""


@dataclass(frozen=True)
class Proxy:
    """A proxy that opens tunnels (HTTP CONNECT): what passes it is encrypted towards the service.

    ``credentials`` are a user and a password (Basic). A proxy of scheme http receives them in the clear.
    """

    url: str
    credentials: tuple[str, str] | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Route:
    """How a service is reached, as a configuration says it; every part but the peer may be left out.

    Attributes:
        peer: what the service is called in settings' names: ``tester`` or ``curator``.
        ca_file: certificates, PEM, that the service's (and an https proxy's) must chain to, in place of the
            public authorities'.
        certificate_file: the chain that is shown to the service (mutual TLS), PEM.
        certificate_key_file: its private key, PEM.
        proxy: a proxy's URL, or ``environment``.
        proxy_credentials_file: a file of one line, ``user:password``.
    """

    peer: str = "tester"
    ca_file: str | None = None
    certificate_file: str | None = None
    certificate_key_file: str | None = None
    proxy: str | None = None
    proxy_credentials_file: str | None = None

    @classmethod
    def of(cls, fields: Mapping[str, object], peer: str, placed: Callable[[str], object] = str) -> Self:
        """Return what a configuration file's fields say; ``placed`` says where a file that it names is.

        Raises:
            RouteError: one part needs another.
        """

        def file(what: str) -> str | None:
            told = fields.get(f"{peer}_{what}")
            return None if told is None else str(placed(str(told)))

        told = fields.get(f"{peer}_proxy")
        proxy, credentials = None if told is None else str(told), file("proxy_credentials_file")
        made = cls(
            peer, file("ca_file"), file("certificate_file"), file("certificate_key_file"), proxy, credentials
        )
        if (made.certificate_file is None) != (made.certificate_key_file is None):
            raise RouteError(f"{peer}_certificate_file and {peer}_certificate_key_file need each other")
        if proxy is None and credentials is not None:
            raise RouteError(f"{peer}_proxy_credentials_file needs {peer}_proxy")
        return made

    def trusting(self, ca_file: object) -> Self:
        """Return the same way with other authorities, where some are named."""
        return self if ca_file is None else replace(self, ca_file=str(ca_file))

    @property
    def no_authorities(self) -> str:
        """What is said where ``ca_file`` cannot be used."""
        return f"{self.peer}_ca_file: cannot read certificates, in PEM, from {self.ca_file}"

    @property
    def no_certificate(self) -> str:
        """What is said where ``certificate_file`` and its key cannot be used."""
        return (
            f"{self.peer}_certificate_file: the certificate {self.certificate_file} and its key "
            f"{self.certificate_key_file} cannot be used: both must be PEM, without a password"
        )

    def proxy_to(
        self,
        scheme: str,
        host: str,
        environment: Callable[[str, str], str | None],
        read: Callable[[str], str],
    ) -> Proxy | None:
        """Return the proxy on the way to a host; plain http to this machine itself takes none.

        Args:
            scheme: by which the host is spoken to.
            host: as it would be connected to.
            environment: returns the proxy's URL that the environment names for a scheme and a host, or None.
            read: returns a file's text; raises OSError or UnicodeDecodeError.

        Raises:
            RouteError: it is no proxy, or its credentials cannot be read. Quotes neither of them.
        """
        if self.proxy is None or (scheme == "http" and is_loopback(host)):
            return None
        asked = self.proxy == FROM_ENVIRONMENT
        name = f"{scheme.upper()}_PROXY of the environment" if asked else f"{self.peer}_proxy"
        told = environment(scheme, host) if asked else self.proxy
        if told is None:
            return None
        parts = _PROXY.fullmatch(told)
        if parts is None or int(parts[5] or 1) > 65535:
            raise RouteError(f"{name}: {PROXY_FORM}")
        if parts[2] is not None and not asked:
            raise RouteError(f"{name}: put user and password in a file, and name it {name}_credentials_file")
        credentials = None if parts[2] is None else (parts[2], parts[3] or "")
        if self.proxy_credentials_file is not None:
            credentials = self._credentials(read)
        port = parts[5] or ("443" if parts[1] == "https" else "80")
        return Proxy(f"{parts[1]}://{parts[4]}:{port}", credentials)

    def _credentials(self, read: Callable[[str], str]) -> tuple[str, str]:
        path = self.proxy_credentials_file or ""
        try:
            user, colon, password = read(path).strip("\r\n").partition(":")
        except (OSError, UnicodeDecodeError):
            raise RouteError(f"{self.peer}_proxy_credentials_file: cannot read {path}") from None
        if not user or not colon or not (user + password).isprintable():
            raise RouteError(f"{self.peer}_proxy_credentials_file: {path} must hold one line, user:password")
        return user, password


DIRECT = Route()
"""No proxy, the public authorities, and no certificate of one's own."""
