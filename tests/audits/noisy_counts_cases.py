"""The studies on noisy counts whose releases are audited: ``noisy_counts`` and the tests on it.

The replaced unit goes from one cell to another, the worst that it can do: 2 in L1, sqrt 2 in L2. Units of
several rows spread over cells as well.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from kernel_two_sample_cases import many_row_units, one_row_units
from neighbour_search import Rows
from release_audit import Neighbours, ReleaseCase

from tacit_protocol.domain.columns import CategoricalColumn, Column, Domain, NumericColumn
from tacit_protocol.messages.study import Owner, Party, Study
from tacit_protocol.privacy.guarantee import Budget

UNITS = 50

ONE = CategoricalColumn(name="c", levels=("a",))
TWO = CategoricalColumn(name="d", levels=("a", "b", "c"))
TWO_OTHERS = CategoricalColumn(name="e", levels=("a", "b"))
NUMBER = NumericColumn(name="x", lower=0.0, upper=1.0)
CUT = {"cuts": {"x": [0.5]}}


def study(
    procedure: str, columns: tuple[Column, ...], parameters: Mapping[str, Any], epsilon: float = 1.0
) -> Study:
    key = [f"{i:064x}" for i in range(4)]
    return Study(
        title="audit",
        procedure=procedure,
        parameters=dict(parameters),
        domain=Domain(columns=columns),
        owners=tuple(Owner(name=f"owner-{i}", key=key[i], data_set="data") for i in range(2)),
        tester=Party(name="tester", key=key[2]),
        analyst=Party(name="analyst", key=key[3]),
        budget=Budget.of(epsilon, 1e-5 if parameters.get("noise") == "gaussian" else 0),
        level=0.05,
        created_at=0,
        deadline=1,
        seed="00" * 16,
    )


def worst_neighbours(asked: Study, rows: int, index: int) -> Neighbours:
    domain = asked.domain
    width, sizes = len(domain.numeric), [c.categories for c in domain.categorical]
    rng = np.random.default_rng(index)

    def random(count: int) -> Rows:
        codes = np.stack([rng.integers(0, size, count, dtype=np.int32) for size in sizes], axis=1)
        return Rows(rng.random((count, width)), codes)

    def at(value: int) -> Rows:
        codes = np.full((rows, len(sizes)), value, dtype=np.int32)
        return Rows(np.full((rows, width), float(value)), codes)

    others = random(UNITS - 1)
    # Index 0 is the extreme, all rows from one cell to another; the others spread a unit over cells.
    one, other = (at(0), at(1)) if index == 0 else (random(rows), random(rows))
    build = one_row_units if rows == 1 else many_row_units
    return build(domain, others, one), build(domain, others, other)


def case(asked: Study, *, rows: int = 1, **parts: Any) -> ReleaseCase:
    # Index 0 reaches the sensitivity itself, but for the slack of the calibration.
    return ReleaseCase(asked, partial(worst_neighbours, asked, rows), tables=20, reached=0.999, **parts)


GAUSSIAN = {"noise": "gaussian"}

CASES = {
    "Laplace": case(study("noisy_counts", (ONE, TWO), {})),
    "Gaussian": case(study("noisy_counts", (ONE, TWO), GAUSSIAN)),
    "rho": case(study("noisy_counts", (ONE, TWO), GAUSSIAN | {"rho": 0.02})),
    "cuts": case(study("noisy_counts", (ONE, NUMBER), CUT)),
    "Laplace, units of 7 rows": case(study("noisy_counts", (ONE, TWO), {}), rows=7),
    "Gaussian, units of 3 rows": case(study("noisy_counts", (ONE, TWO), GAUSSIAN), rows=3),
    "Laplace, epsilon 2": case(study("noisy_counts", (ONE,), {}, 2.0), black_box=True),
    "Gaussian, epsilon 4": case(study("noisy_counts", (ONE,), GAUSSIAN, 4.0), black_box=True),
}

HOMOGENEITY_CASES = {
    "Gaussian": case(study("homogeneity", (TWO,), GAUSSIAN)),
    "Laplace, epsilon 2": case(study("homogeneity", (ONE,), {}, 2.0), black_box=True),
}

INDEPENDENCE_CASES = {
    "Gaussian, units of 3 rows": case(study("independence_table", (ONE, TWO), GAUSSIAN), rows=3),
    "Laplace, epsilon 2": case(study("independence_table", (ONE, TWO), {}, 2.0), black_box=True),
}

SURVIVAL_CASES = {
    "Laplace, groups": case(study("survival", (NUMBER, TWO_OTHERS, TWO), CUT | {"group": "d"})),
    "Gaussian, units of 3 rows": case(study("survival", (NUMBER, TWO_OTHERS), CUT | GAUSSIAN), rows=3),
    "Laplace, one curve": case(study("survival", (NUMBER, TWO_OTHERS), CUT, 2.0), black_box=True),
}

STRATIFIED_CASES = {
    "Gaussian, with a stratum": case(study("stratified_table", (TWO, TWO_OTHERS, ONE), GAUSSIAN)),
    "Laplace": case(study("stratified_table", (TWO, TWO_OTHERS), {}), rows=3),
    "Laplace, folded": case(
        study("stratified_table", (TWO, TWO_OTHERS), {"unlisted": "last"}, 2.0), black_box=True
    ),
}
