"""Encoding maps every row by itself into public ranges."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tacit_protocol.domain import (
    CategoricalColumn,
    DictionaryValues,
    NumericColumn,
    encode_categorical,
    encode_numeric,
)

any_float = st.floats(allow_nan=True, allow_infinity=True)
finite = st.floats(allow_nan=False, allow_infinity=False, min_value=-1e300, max_value=1e300)
SEX = CategoricalColumn(name="sex", levels=("f", "m"))


@given(st.lists(any_float, min_size=1), finite, finite)
def test_numbers_always_land_in_the_unit_interval(values: list[float], one: float, other: float) -> None:
    if one == other:
        return
    column = NumericColumn(name="x", lower=min(one, other), upper=max(one, other))
    encoded = encode_numeric(column, values)
    assert ((encoded >= 0) & (encoded <= 1)).all()


@given(st.lists(any_float, min_size=1))
def test_a_row_is_encoded_alike_whatever_stands_beside_it(values: list[float]) -> None:
    column = NumericColumn(name="x", lower=-2.5, upper=7.0)
    together = encode_numeric(column, values)
    assert together.tolist() == [encode_numeric(column, [value])[0] for value in values]


def test_bounds_clip_and_missing_values_become_the_declared_one() -> None:
    column = NumericColumn(name="x", lower=0.0, upper=10.0, missing=2.0)
    values = [-5.0, 0.0, 5.0, 10.0, 99.0, float("nan"), float("inf"), float("-inf")]
    assert encode_numeric(column, values).tolist() == [0.0, 0.0, 0.5, 1.0, 1.0, 0.2, 0.2, 0.2]
    middle = NumericColumn(name="x", lower=0.0, upper=10.0)
    assert encode_numeric(middle, [float("nan")])[0] == 0.5


def test_levels_others_and_missing_values_have_codes() -> None:
    values = np.array(["m", "f", "x", None, float("nan"), "m"], dtype=object)
    assert encode_categorical(SEX, values).tolist() == [1, 0, 2, 3, 3, 1]


def test_dictionary_values_encode_as_the_same_values_spelled_out() -> None:
    held = DictionaryValues(["x", None, "f", "m"], np.array([3, 2, -1, 1, 0], dtype=np.int32))
    spelled = np.array(["m", "f", None, None, "x"], dtype=object)
    assert encode_categorical(SEX, held).tolist() == encode_categorical(SEX, spelled).tolist()
