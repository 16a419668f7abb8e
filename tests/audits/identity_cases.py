"""The studies of ``identity`` whose noisy numbers are audited, and their worst neighbours.

The replaced unit moves from one cell to another, where the counts are such that it moves the release most.
Decisions (privit, repetition) are audited exactly, by their output probabilities: test_identity_decisions.py.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from kernel_two_sample_cases import many_row_units, one_row_units
from neighbour_search import Rows
from release_audit import FixedTable, Neighbours, ReleaseCase

from tacit_protocol.domain.columns import CategoricalColumn, Domain
from tacit_protocol.messages.study import Owner, Party, Study
from tacit_protocol.privacy.guarantee import Budget

LEVELS = 3
DOMAIN = Domain(columns=(CategoricalColumn(name="c", levels=tuple("abc")),))
PROBABILITIES = (0.7, 0.25, 0.05)


def study(parameters: Mapping[str, Any], epsilon: float, delta: float = 0.0, level: float = 0.05) -> Study:
    keys = [f"{i:064x}" for i in range(3)]
    return Study(
        title="audit",
        procedure="identity",
        parameters={"probabilities": list(PROBABILITIES)} | dict(parameters),
        domain=DOMAIN,
        owners=(Owner(name="owner", key=keys[0], data_set="data"),),
        tester=Party(name="tester", key=keys[1]),
        analyst=Party(name="analyst", key=keys[2]),
        budget=Budget.of(epsilon, delta),
        level=level,
        created_at=0,
        deadline=1,
        seed="00" * 16,
    )


def rows(*counts: int) -> Rows:
    codes = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
    return Rows(np.zeros((len(codes), 0)), codes[:, None])


def neighbours(units: int, index: int, owned: int = 1) -> Neighbours:
    """Tables of ``units`` units whose rarest cell holds ever more of them, one of which goes elsewhere.

    It goes where too few are, of ``owned`` rows each.
    """
    rare, few = round(units * (0.05 + 0.02 * index)), round(units * 0.08)
    build = one_row_units if owned == 1 else many_row_units

    def table(*cells: int) -> FixedTable:
        return build(DOMAIN, rows(units - 1 - rare - few, few, rare), rows(*cells))

    return table(0, 0, owned), table(0, owned)


def case(asked: Study, units: int = 200, **parts: Any) -> ReleaseCase:
    owned = parts.pop("rows", 1)
    return ReleaseCase(asked, lambda index: neighbours(units, index, owned), tables=12, **parts)


CASES = {
    "mcgof": case(study({"method": "mcgof"}, 1.0), units=12, black_box=True),
    "mcgof, units of 4 rows": case(study({"method": "mcgof"}, 1.0), rows=4, reached=0.9),
    "mcgof, Gaussian": case(study({"method": "mcgof", "noise": "gaussian"}, 1.0, 1e-6), reached=0.9),
    "zcdp-gof": case(study({"method": "zcdp-gof"}, 1.0, 1e-6), reached=0.9),
    "zcdp-gof, rho": case(study({"method": "zcdp-gof", "rho": 0.005}, 1.0, 1e-6), reached=0.9),
    "privit-laplace, tight": case(study({"method": "privit-laplace"}, 1.0), reached=0.3),
    "privit-laplace, published weights": case(
        study({"method": "privit-laplace", "weights": "published"}, 1.0), reached=0.3
    ),
    "privit-laplace, filter": case(
        study({"method": "privit-laplace", "clipping": "filter"}, 1.0), reached=0.5
    ),
}
