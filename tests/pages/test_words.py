"""Values on pages: short ones whole, long ones with a word of what is left out."""

import pytest

from tacit_services.shared.pages.formatting import BRIEF_LENGTH_MAX, PARTS_SHOWN, brief


@pytest.mark.parametrize(
    ("found", "shown"),
    [
        (None, "–"),
        (True, "yes"),
        (0.123456, "0.1235"),
        ("gaussian", "gaussian"),
        ([0.5, 0.25, 0.25], "0.5, 0.25, 0.25"),
        ([["sex"], ["cp", "num"]], "sex, (cp, num)"),
        ({"north": 0.5, "south": [1, 2]}, "north: 0.5, south: 1, 2"),
        ([], ""),
    ],
)
def test_what_is_short_is_whole(found: object, shown: str) -> None:
    assert brief(found) == shown


def test_a_long_list_says_how_many_there_are() -> None:
    points = [[float(age), "Male"] for age in range(200)]
    assert brief(points).startswith("(0, Male), (1, Male), ")
    assert brief(points).endswith(f"({PARTS_SHOWN - 1}, Male) … (200 in all)")
    assert brief({"north": [0.5] * 1000}).endswith(" … (1000 in all)")


def test_whatever_it_is_it_fits_and_says_that_it_was_cut() -> None:
    for found in ("x" * 10_000, ["x" * 1000] * 5, {str(i): 1 for i in range(1000)}):
        assert len(brief(found)) == BRIEF_LENGTH_MAX + 2
        assert brief(found).endswith(" …")
