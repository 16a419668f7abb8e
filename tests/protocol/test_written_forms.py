"""Numbers and names that people write: one reading of each, whatever Unicode and Python would allow."""

import math
import sys
import unicodedata

import pytest

from tacit_protocol.decimals import read_number, read_whole
from tacit_protocol.names import folded

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
