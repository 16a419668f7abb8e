"""What a study leaves open is chosen by the study, and by public numbers of units, alone."""

from typing import Any

import pytest
from asked_studies import Fields, asked

from tacit_protocol.messages.study import Study
from tacit_protocol.procedures.base import canonical, check_study
from tacit_protocol.procedures.discovery import procedure_named
from tacit_protocol.procedures.independence.verdict import JointIndependenceDecision
from tacit_protocol.procedures.joint_independence import JointIndependenceResult
from tacit_protocol.procedures.quantile_tables.verdict import CellsTableResult

Row = tuple[Study, int | None, Any]

PURE = {"delta": 0.0}
GAUSSIAN, LAPLACE = {"noise": "gaussian"}, {"noise": "laplace"}
COLUMNS: dict[str, Any] = {"noise": "k-norm", "features": "columns"}
PAIRS = COLUMNS | {"features": "auto"}
FOUR = COLUMNS | {"resolution": 4, "fine_cells": False}


def associated(columns: int, units: int | None, expected: Fields, **given: Any) -> Row:
    return asked("association", {}, {"numeric": columns, **given}), units, expected


def compared(
    columns: int, units: int | None, expected: Fields, parameters: Fields | None = None, **given: Any
) -> Row:
    fields = {"numeric": columns, "owners": 2, **given}
    return asked("kernel_two_sample", parameters or {}, fields), units, expected


def grouped(units: int | None, expected: Fields, parameters: Fields | None = None, **given: Any) -> Row:
    fields = {"numeric": 1, "sizes": (4,), "owners": 2, **given}
    return asked("group_comparison", parameters or {}, fields), units, expected


def between(x: int, y: int, method: str, parameters: Fields | None = None, **given: Any) -> Row:
    names = [f"n{place}" for place in range(x + y)]
    held = {"numeric": x + y, "owners": ("a", "b"), "held": (names[:x], names[x:])}
    expected = {"method": method, "cuts": "fitted"}
    return asked("distance_correlation", parameters or {}, {**held, **PURE, **given}), None, expected


AUTO = {"method": "auto"}


def joint(verdict: type, parameters: Fields = AUTO, **given: Any) -> Row:
    return asked("joint_independence", parameters, {"numeric": 2, **PURE, **given}), None, verdict


VOTES, TABLE, DECISION = JointIndependenceResult, CellsTableResult, JointIndependenceDecision
KERNEL = {"method": "auto", "bandwidth": 0.2}

CHOICES: list[Row] = [
    associated(2, 1000, LAPLACE, **PURE),
    associated(2, 1000, LAPLACE),
    associated(8, 1000, GAUSSIAN),
    associated(2, 10**6, GAUSSIAN),
    associated(2, 10**6, LAPLACE, **PURE),
    associated(2, None, GAUSSIAN),
    associated(2, None, LAPLACE, **PURE),
    compared(1, 500, FOUR, epsilon=0.3),
    compared(1, 400, FOUR),
    compared(1, 1000, COLUMNS | {"resolution": 5, "fine_cells": True}),
    compared(2, 1000, PAIRS | {"resolution": 8, "fine_cells": True}, epsilon=5.0, **PURE),
    compared(1, 1000, FOUR, epsilon=0.3, **PURE),
    compared(2, 500, FOUR, epsilon=0.3),
    compared(2, 500, FOUR | {"features": "auto"}),
    compared(3, 700, FOUR, epsilon=0.3),
    compared(10, 700, FOUR),
    compared(1, 20_000, GAUSSIAN),
    compared(5, 2000, GAUSSIAN),
    compared(30, 700, FOUR, **PURE),
    compared(1, 10**7, COLUMNS | {"resolution": 64, "fine_cells": True}, **PURE),
    compared(1, None, GAUSSIAN, epsilon=0.3),
    compared(1, None, COLUMNS | {"resolution": 5}, epsilon=0.3, **PURE),
    compared(1, 500, GAUSSIAN | {"features": "me"}, {"features": "me"}, epsilon=0.3),
    compared(0, None, PAIRS, {"noise": "k-norm"}, sizes=(3, 4), **PURE),
    compared(1, None, PAIRS | {"resolution": 4}, {"noise": "k-norm"}, sizes=(4,), **PURE),
    compared(3, None, COLUMNS | {"resolution": 5}, {"noise": "k-norm"}, **PURE),
    compared(3, None, COLUMNS | {"resolution": 8}, {"noise": "k-norm", "resolution": 8}, **PURE),
    grouped(None, GAUSSIAN),
    grouped(300, LAPLACE),
    grouped(None, LAPLACE, **PURE),
    grouped(300, GAUSSIAN, GAUSSIAN),
    between(1, 1, "two-round"),
    between(1, 1, "two-round", delta=1e-5),
    between(4, 4, "two-round", delta=1e-5),
    between(5, 4, "sketch", delta=1e-5),
    between(5, 4, "two-round"),
    between(9, 8, "sketch"),
    between(1, 1, "one-round", {"method": "one-round"}),
    between(1, 1, "sketch", {"method": "sketch"}, delta=1e-5),
    between(1, 1, "sketch", {"n_features": 3}, delta=1e-5),
    between(3, 3, "sketch", {"n_projections": 8}, delta=1e-5),
    between(1, 1, "two-round", {"mode": "tester"}),
    between(1, 1, "two-round", {"categories": 2}),
    joint(VOTES, epsilon=0.3, units=300),  # a table of so few units is mostly noise
    joint(TABLE, epsilon=0.3, units=1000),
    joint(TABLE, units=300),
    joint(VOTES, epsilon=0.3, units=1000, numeric=5),
    joint(TABLE, units=300, owners=2),
    joint(TABLE),  # units that nobody declares are taken to be many
    joint(VOTES, units=1000, numeric=20),  # so many columns make no table
    joint(DECISION, epsilon=5.0, numeric=20),
    joint(TABLE, units=500, numeric=5),
    joint(VOTES, KERNEL, epsilon=0.1, numeric=3),
    joint(DECISION, KERNEL, epsilon=0.1),
    joint(VOTES, KERNEL, epsilon=5.0, owners=2),
    joint(DECISION, KERNEL, epsilon=5.0, numeric=3),
    joint(TABLE, {}, units=300),
    joint(TABLE, {}, units=300, owners=2),
    joint(VOTES, {}, epsilon=0.1, units=300),
    joint(VOTES, {"graph": {"n1": ["n0"]}}),
    joint(TABLE, {"categories": 2}, epsilon=0.1, units=300),
    joint(VOTES, {"aggregation": "masked", "colluders": 0}, delta=1e-5, owners=2),
]


@pytest.mark.parametrize(("study", "units", "expected"), CHOICES)
def test_what_is_left_open_is_chosen_by_public_numbers(
    study: Study, units: int | None, expected: Any
) -> None:
    procedure = procedure_named(study.procedure)
    counted = {} if units is None else {owner.name: units for owner in study.owners}
    chosen = procedure.with_defaults(study, counted) if counted else procedure.with_defaults(study)
    if isinstance(expected, type):
        check_study(procedure, chosen)
        assert procedure.verdict_type(chosen) is expected
        return
    stated = canonical(procedure, chosen).parameters
    assert {name: stated[name] for name in expected} == expected
