"""Columns as people type them: with their names in a flag or a line, and without in a form."""

import pytest

from tacit_protocol.domain import CategoricalColumn, NumericColumn, bounds_words
from tacit_protocol.study_form import parse_bounds, parse_column

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
