"""Values on pages: short ones whole, long ones with a word of what is left out."""

from tacit_services.shared.pages.formatting import BRIEF_LENGTH_MAX, PARTS_SHOWN, brief


def test_a_long_list_says_how_many_there_are() -> None:
    points = [[float(age), "Male"] for age in range(200)]
    assert brief(points).startswith("(0, Male), (1, Male), ")
    assert brief(points).endswith(f"({PARTS_SHOWN - 1}, Male) … (200 in all)")
    assert brief({"north": [0.5] * 1000}).endswith(" … (1000 in all)")


def test_whatever_it_is_it_fits_and_says_that_it_was_cut() -> None:
    for found in ("x" * 10_000, ["x" * 1000] * 5, {str(i): 1 for i in range(1000)}):
        assert len(brief(found)) == BRIEF_LENGTH_MAX + 2
        assert brief(found).endswith(" …")
