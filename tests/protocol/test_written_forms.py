"""How numbers, names, columns and addresses are written, and read in one way."""

import math
import sys
import unicodedata

import pytest

from tacit_protocol.addresses import Proxy, Route, RouteError, is_loopback, is_private_channel
from tacit_protocol.decimals import read_number, read_whole
from tacit_protocol.domain import CategoricalColumn, NumericColumn, bounds_words
from tacit_protocol.names import folded
from tacit_protocol.study_form import parse_bounds, parse_column

NUMBERS = {"0.5": 0.5, "-3": -3.0, "+2": 2.0, ".5": 0.5, "5.": 5.0, "1e-5": 1e-5, "1E3": 1000.0, " 7\t": 7.0}

STRANGE = (
    "",
    " ",
    ".",
    "e5",
    "1_0",
    "1 0",
    "1,5",
    "0x10",
    "nan",
    "inf",
    "-Infinity",
    "1e999",
    "\uff11\uff12",
    "\u0661\u0662",
    "\u00b2",
    "\u00bd",
    "\u22121",
    "\u00a05",
    "5\u200b",
    "5\n",
    "9" * 5000,
    "0." + "3" * 5000,
    "1e" + "0" * 5000,
)


@pytest.mark.parametrize("text", NUMBERS)
def test_a_decimal_number_is_read(text: str) -> None:
    assert read_number(text) == NUMBERS[text]


@pytest.mark.parametrize("text", STRANGE, ids=lambda text: ascii(text[:12]))
def test_what_is_no_decimal_number_of_ascii_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="write a number"):
        read_number(text)
    with pytest.raises(ValueError, match="write a whole number"):
        read_whole(text)


def test_a_whole_number_has_no_fraction_and_eighteen_digits_at_most() -> None:
    assert read_whole("0010") == 10
    assert read_whole("9" * 18) == 10**18 - 1
    for text in ("1.0", "1e3", "9" * 19):
        with pytest.raises(ValueError, match="whole number"):
            read_whole(text)


def test_no_character_of_any_script_is_a_digit_but_ten() -> None:
    digits = [
        one for one in map(chr, range(sys.maxunicode + 1)) if unicodedata.numeric(one, None) is not None
    ]
    assert len(digits) > 1000
    taken = []
    for one in digits:
        try:
            taken.append(math.trunc(read_number(one)))
        except ValueError:
            continue
    assert taken == list(range(10))


def test_names_are_the_same_but_for_the_capitals_of_ascii() -> None:
    assert folded("Kim.O_1@X") == "kim.o_1@x"
    merged = [one for one in map(chr, range(128, sys.maxunicode + 1)) if folded(one) != one]
    assert merged == []
    # What Unicode's own functions would make one.
    for strange, plain in (
        ("\u212a", "k"),
        ("\u0130", "i"),
        ("\u017f", "s"),
        ("\uff2b", "k"),
        ("\u00df", "ss"),
    ):
        assert folded(strange) != plain


# Columns as people type them: with their names in a flag or a line, and without in a form.


AGE = NumericColumn(name="age", lower=0.0, upper=120.0)
SEX = CategoricalColumn(name="sex", levels=("F", "M"))


@pytest.mark.parametrize("text", ["age:0:120", "age:0.0:1.2e2"])
def test_numbers_are_read_with_their_bounds(text: str) -> None:
    assert parse_column(text) == AGE


@pytest.mark.parametrize("text", ["0:120", "0 to 120", " 0 : 120 "])
def test_bounds_are_read_as_they_are_written_in_a_form(text: str) -> None:
    assert parse_bounds("age", text) == AGE


@pytest.mark.parametrize("text", ["F,M", "F, M", " F ,M,"])
def test_levels_are_read_alike_with_and_without_the_name(text: str) -> None:
    assert parse_column(f"sex={text}") == parse_bounds("sex", text) == SEX


@pytest.mark.parametrize("column", [AGE, SEX, CategoricalColumn(name="a", levels=("0:1", "2"))])
def test_what_is_proposed_is_read_as_it_was(column: NumericColumn | CategoricalColumn) -> None:
    assert parse_bounds(column.name, bounds_words(column, form="typed")) == column


@pytest.mark.parametrize(
    "text", ["", "age", "age:0", "age:a:b", ":0:1", "age:0:inf", "=F,M", "sex=", "sex=F"]
)
def test_what_is_no_column_is_refused_with_what_to_write(text: str) -> None:
    with pytest.raises(ValueError, match=r"write|at least 1 character"):
        parse_column(text)


def test_the_reason_of_a_refused_column_is_said() -> None:
    for read in (lambda: parse_column("age:5:1"), lambda: parse_bounds("age", "5 to 1")):
        with pytest.raises(ValueError, match=r"^lower must be less than upper"):
            read()


# Which addresses are private on the way, however spelled; and what a proxy and its credentials are.


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
