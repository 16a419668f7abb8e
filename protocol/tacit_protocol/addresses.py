"""Whether others can read what is sent to an address: the one rule for clients, agents, curators and testers.

What is sent is private on the way if it is encrypted (https), or if it never leaves the machine (http to a
loopback address). A name is never looked up to find out: whoever answers for names could then decide that
rows travel in the clear. So, of names, only the literal ``localhost`` counts, which belongs to the machine
(RFC 6761, section 6.3), and of addresses only those that are written in full.
"""

from ipaddress import IPv6Address, ip_address

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
