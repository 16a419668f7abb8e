"""The audited studies of counts: ``noisy_counts``, the tests on them, and ``identity``.

The replaced unit goes from one cell to another, the worst that it can do: 2 in L1, sqrt 2 in L2. Units of
several rows spread over cells as well. Decisions of ``identity`` (privit, repetition) are audited exactly, by
their output probabilities: test_identity_decisions.py.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from audited_studies import TWO_OWNERS, domain, neighbours, no_codes, rows_at, space_of, study
from release_audit import Neighbours, ReleaseCase

from tacit.testing.neighbour_search import EncodedRows as Rows
from tacit_protocol.domain import CategoricalColumn, Column, NumericColumn
from tacit_protocol.messages.study import Study

ONE = CategoricalColumn(name="c", levels=("a",))
TWO = CategoricalColumn(name="d", levels=("a", "b", "c"))
TWO_OTHERS = CategoricalColumn(name="e", levels=("a", "b"))
NUMBER = NumericColumn(name="x", lower=0.0, upper=1.0)
CUT: dict[str, Any] = {"cuts": {"x": [0.5]}}
GAUSSIAN = {"noise": "gaussian"}


def counted_neighbours(asked: Study, rows: int, index: int) -> Neighbours:
    """All rows from one cell to another (0), or a unit spread over cells."""
    space, rng = space_of(asked.domain), np.random.default_rng(index)
    others = space.random(rng, 49)
    one, other = (rows_at(asked.domain, value, rows) for value in (0, 1))
    if index:
        one, other = (space.random(rng, rows) for _ in range(2))
    return neighbours(asked.domain, others, one, other)


def counts(
    procedure: str,
    columns: tuple[Column, ...],
    parameters: Mapping[str, Any],
    epsilon: float = 1.0,
    *,
    rows: int = 1,
    **parts: Any,
) -> ReleaseCase:
    delta = 1e-5 if parameters.get("noise") == "gaussian" else 0.0
    asked = study(procedure, columns, parameters, epsilon, delta, owners=TWO_OWNERS)
    # Index 0 reaches the sensitivity itself, but for the slack of the calibration.
    return ReleaseCase(asked, partial(counted_neighbours, asked, rows), tables=20, reached=0.999, **parts)


def beside(procedure: str, parameters: Mapping[str, Any], epsilon: float, **parts: Any) -> ReleaseCase:
    """The audited owner holds a time, its end and a stratum; another the groups, whose answers are fixed."""
    columns = (TWO, *((NUMBER,) if "cuts" in parameters else ()), TWO_OTHERS, ONE)
    names = tuple(column.name for column in columns[1:])
    asked = study(procedure, columns, parameters, epsilon, 0.0, owners={"groups": ("d",), "others": names})

    def tables(index: int) -> Neighbours:
        own, rng = asked.domain_of(asked.owners[1]), np.random.default_rng(index)
        one, other = (rows_at(own, value, 1) for value in (0, 1))
        return neighbours(own, space_of(own).random(rng, 49), one, other)

    return ReleaseCase(asked, tables, tables=6, reached=0.999, **parts)


NOISY_COUNTS = {
    "Laplace": counts("noisy_counts", (ONE, TWO), {}),
    "Gaussian": counts("noisy_counts", (ONE, TWO), GAUSSIAN),
    "rho": counts("noisy_counts", (ONE, TWO), GAUSSIAN | {"rho": 0.02}),
    "cuts": counts("noisy_counts", (ONE, NUMBER), CUT),
    "Laplace, units of 7 rows": counts("noisy_counts", (ONE, TWO), {}, rows=7),
    "Gaussian, units of 3 rows": counts("noisy_counts", (ONE, TWO), GAUSSIAN, rows=3),
    "Laplace, epsilon 2": counts("noisy_counts", (ONE,), {}, 2.0, black_box=True),
    "Gaussian, epsilon 4": counts("noisy_counts", (ONE,), GAUSSIAN, 4.0, black_box=True),
}

HOMOGENEITY = {
    "Gaussian": counts("homogeneity", (TWO,), GAUSSIAN),
    "Laplace, epsilon 2": counts("homogeneity", (ONE,), {}, 2.0, black_box=True),
}

INDEPENDENCE_TABLE = {
    "Gaussian, units of 3 rows": counts("independence_table", (ONE, TWO), GAUSSIAN, rows=3),
    "Laplace, epsilon 2": counts("independence_table", (ONE, TWO), {}, 2.0, black_box=True),
    "beside answers": beside("independence_table", {}, 1.0),
}

STRATIFIED_TABLE = {
    "Gaussian, with a stratum": counts("stratified_table", (TWO, TWO_OTHERS, ONE), GAUSSIAN),
    "Laplace": counts("stratified_table", (TWO, TWO_OTHERS), {}, rows=3),
    "Laplace, folded": counts(
        "stratified_table", (TWO, TWO_OTHERS), {"unlisted": "last"}, 2.0, black_box=True
    ),
    "beside answers, with a stratum": beside("stratified_table", {"group": "d"}, 1.0),
}

SURVIVAL = {
    "Laplace, groups": counts("survival", (NUMBER, TWO_OTHERS, TWO), CUT | {"group": "d"}),
    "Gaussian, units of 3 rows": counts("survival", (NUMBER, TWO_OTHERS), CUT | GAUSSIAN, rows=3),
    "Laplace, one curve": counts("survival", (NUMBER, TWO_OTHERS), CUT, 2.0, black_box=True),
    "beside answers": beside("survival", CUT | {"group": "d", "event": "e"}, 1.0),
}


# identity.

THREE_LEVELS = domain(0, "abc")


def cells(*numbers: int) -> Rows:
    """So many rows in each cell."""
    codes = np.repeat(np.arange(len(numbers), dtype=np.int32), numbers)
    return Rows(no_codes(len(codes)).astype(np.float64), codes[:, None])


def identity_neighbours(units: int, rows: int, index: int) -> Neighbours:
    """Tables of ``units`` units whose rarest cell holds ever more of them, one of which goes elsewhere.

    It goes where too few are, with all of its rows.
    """
    rare, few = round(units * (0.05 + 0.02 * index)), round(units * 0.08)
    others = cells(units - 1 - rare - few, few, rare)
    return neighbours(THREE_LEVELS, others, cells(0, 0, rows), cells(0, rows))


def identity(
    parameters: Mapping[str, Any], delta: float = 0.0, *, units: int = 200, rows: int = 1, **parts: Any
) -> ReleaseCase:
    given = {"probabilities": [0.7, 0.25, 0.05]} | dict(parameters)
    asked = study("identity", THREE_LEVELS, given, 1.0, delta)
    return ReleaseCase(asked, partial(identity_neighbours, units, rows), tables=12, **parts)


PRIVIT: dict[str, Any] = {"method": "privit-laplace"}

IDENTITY = {
    "mcgof": identity({"method": "mcgof"}, units=12, black_box=True),
    "mcgof, units of 4 rows": identity({"method": "mcgof"}, rows=4, reached=0.9),
    "mcgof, Gaussian": identity({"method": "mcgof", "noise": "gaussian"}, 1e-6, reached=0.9),
    "zcdp-gof": identity({"method": "zcdp-gof"}, 1e-6, reached=0.9),
    "zcdp-gof, rho": identity({"method": "zcdp-gof", "rho": 0.005}, 1e-6, reached=0.9),
    "privit-laplace, tight": identity(PRIVIT, reached=0.3),
    "privit-laplace, published weights": identity(PRIVIT | {"weights": "published"}, reached=0.3),
    "privit-laplace, filter": identity(PRIVIT | {"clipping": "filter"}, reached=0.5),
}
