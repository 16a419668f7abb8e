"""The studies of ``screening`` whose releases are audited, and their worst neighbours.

The replaced unit changes in all of its columns at once, from one end of each to the other.
"""

from typing import Any

from distance_correlation_cases import case
from distance_correlation_cases import study as two_owners

from tacit_protocol.messages.study import Study


def study(
    numeric: int, parameters: dict[str, Any], epsilon: float = 1.0, *, categories: bool = False
) -> Study:
    """The audited owner holds the x columns (and a group); the other owner holds one column, y."""
    asked = two_owners(numeric, parameters, epsilon, categories=categories)
    return asked.model_copy(update={"procedure": "screening"})


CASES = {
    "1 column": case(study(1, {}), reached=0.95),
    "3 columns": case(study(3, {}), reached=0.95),
    "20 columns": case(study(20, {}), reached=0.95),
    "70 columns, few frequencies": case(study(70, {}), reached=0.9),
    "3 columns, 20 frequencies": case(study(3, {"n_features": 20}), reached=0.98),
    "3 columns, units of 4 rows": case(study(3, {}), rows=(4, 4), reached=0.95),
    "3 columns, aligned, a unit of 1 row or of 5": case(
        study(3, {}), rows=(1, 5), aligned=True, reached=0.95
    ),
    "groups": case(study(0, {}, categories=True), reached=0.97),
    "mixed": case(study(2, {}, categories=True), reached=0.95),
    "2 columns, 1 frequency": case(study(2, {"n_features": 1}, 4.0), units=32, reached=0.8, black_box=True),
}
