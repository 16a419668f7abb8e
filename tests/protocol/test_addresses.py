"""Which addresses are private on the way, however spelled; and what a proxy and its credentials are."""

import pytest

from tacit_protocol.addresses import Proxy, Route, RouteError, is_loopback, is_private_channel

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


PROXIES: tuple[tuple[str, tuple[str, tuple[str, str] | None] | None], ...] = (
    ("http://proxy.example:3128", ("http://proxy.example:3128", None)),
    ("https://proxy.example", ("https://proxy.example:443", None)),
    ("http://[::1]/", ("http://[::1]:80", None)),
    ("http://me:word@proxy.example", None),
    ("http://proxy.example:99999", None),
    ("http://proxy.example/path", None),
    ("http://proxy.example?x=1", None),
    ("socks5://proxy.example", None),
    ("proxy.example:3128", None),
    ("http://two words", None),
    ("", None),
)


@pytest.mark.parametrize(("told", "made"), PROXIES)
def test_a_proxy_is_a_url_without_a_user(told: str, made: tuple[str, tuple[str, str] | None] | None) -> None:
    route = Route.of({"tester_proxy": told}, "tester")
    if made is None:
        with pytest.raises(RouteError, match="tester_proxy") as caught:
            route.proxy_to("https", "tester.example", lambda *_: None, str)
        assert "word@" not in str(caught.value)
        return
    assert route.proxy_to("https", "tester.example", lambda *_: None, str) == Proxy(*made)
    assert route.proxy_to("http", "127.0.0.1", lambda *_: None, str) is None


@pytest.mark.parametrize(
    ("text", "credentials"),
    [
        ("me:word\n", ("me", "word")),
        ("me:wo:rd", ("me", "wo:rd")),
        ("me", None),
        (":word", None),
        ("", None),
        ("me:a\nb:c\n", None),
        ("me:\x1b[31m", None),
    ],
)
def test_credentials_are_one_printable_line(text: str, credentials: tuple[str, str] | None) -> None:
    fields = {"tester_proxy": "http://p:1", "tester_proxy_credentials_file": "file"}
    route = Route.of(fields, "tester")
    if credentials is None:
        with pytest.raises(RouteError, match="one line"):
            route.proxy_to("https", "tester.example", lambda *_: None, lambda _: text)
        return
    found = route.proxy_to("https", "tester.example", lambda *_: None, lambda _: text)
    assert found.credentials == credentials
    assert "word" not in repr(found)


def test_the_environment_may_name_a_user_and_may_name_nothing() -> None:
    route = Route.of({"curator_proxy": "environment"}, "curator")
    found = route.proxy_to("https", "c.example", lambda *_: "http://me:word@proxy:1", str)
    assert found == Proxy("http://proxy:1", ("me", "word"))
    assert route.proxy_to("https", "c.example", lambda *_: None, str) is None


@pytest.mark.parametrize("name", ["certificate_file", "certificate_key_file", "proxy_credentials_file"])
def test_parts_of_a_way_need_each_other(name: str) -> None:
    with pytest.raises(RouteError, match="need"):
        Route.of({f"tester_{name}": "file"}, "tester")
