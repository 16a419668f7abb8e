"""Plain http is private on the way to this machine's loopback interface alone, however that is spelled."""

import pytest

from tacit_protocol.addresses import is_loopback, is_private_channel

LOOPBACK = [
    "localhost", "LocalHost", "127.0.0.1", "127.255.3.4",
    "::1", "0:0:0:0:0:0:0:1", "::ffff:127.0.0.1", "::ffff:7f00:1",
]  # fmt: skip
BEYOND = [
    "", "tester.example", "192.168.1.5", "10.0.0.1", "169.254.1.1",
    "0.0.0.0", "::", "::ffff:0.0.0.0", "::ffff:10.0.0.1", "fe80::1",  # noqa: S104 (compared, not bound)
    # What some resolvers take for this machine, and others do not.
    "127.1", "127.0.1", "0x7f.0.0.1", "0x7f000001", "2130706433", "017700000001", "127.0.0.01",
    "localhost.", "127.0.0.1.", "localhost.localdomain", "a.localhost", "ip6-localhost",
    # Names that begin or end like this machine's.
    "localhost.evil.example", "127.0.0.1.evil.example", "evil-localhost", "127.0.0.1%2eevil.example",
    "127.0.0.1 ", "127.0.0.1\n", "127.0.0.1\0", "１２７.0.0.1", "127。0。0。1",
    # Loopback inside of something else.
    "::127.0.0.1", "64:ff9b::127.0.0.1", "2002:7f00:1::", "::1%eth0", "[::1]",
]  # fmt: skip


@pytest.mark.parametrize("host", LOOPBACK)
def test_this_machine_may_be_called_in_the_clear(host: str) -> None:
    assert is_loopback(host)
    assert is_private_channel("http", host)


@pytest.mark.parametrize("host", BEYOND)
def test_nothing_else_may(host: str) -> None:
    assert not is_loopback(host)
    assert not is_private_channel("http", host)
    assert is_private_channel("https", host)


@pytest.mark.parametrize("scheme", ["", "HTTP", "ws", "ftp", "file", "http+unix"])
def test_no_other_scheme_is_private_even_on_this_machine(scheme: str) -> None:
    assert not is_private_channel(scheme, "127.0.0.1")
