"""The kernel two-sample procedure in one process: refusals, releases, verdicts, names, warnings."""

import numpy as np
import pytest
from made_studies import uniform
from two_sample_cases import MemoryTable, NoNoise, SeededNoise, domain_of, study_of, verdict_of

from tacit_protocol.procedures.base import StudyError
from tacit_protocol.procedures.kernel_two_sample import KernelTwoSample
from tacit_protocol.procedures.two_sample.verdict import TwoSampleResult

PROCEDURE = KernelTwoSample()
NUMERIC = domain_of(2)


def test_an_epsilon_too_large_for_the_grid_is_refused_before_anything_is_released() -> None:
    """Many owners' units make the grid of second moments coarse; noise this small would show its steps."""
    study = study_of(NUMERIC, {"features": "me", "n_features": 40}, epsilon=100.0)
    table = MemoryTable(NUMERIC, np.zeros((1, 2)), np.zeros((1, 0), np.int32), None, (), 1)
    summary = PROCEDURE.summarise(study, table)
    coarse = type(summary)(2**40, 8, summary.total, 1.0, summary.second, 1.0)
    with pytest.raises(StudyError, match="smaller epsilon"):
        PROCEDURE.privatise(study, coarse, NoNoise())


def named(verdict: TwoSampleResult) -> set[tuple[str, ...]]:
    return {group.columns for group in verdict.columns if group.reject}


@pytest.mark.parametrize("kind", ["numeric", "mixed", "categorical"])
def test_the_pair_of_columns_that_differs_is_named_where_no_column_does(kind: str) -> None:
    """A pure interaction: every column has the same distribution at both owners."""
    domain, rows = domain_of(3, (4, 4)), 40_000
    tables = [uniform(domain, rows, 1), uniform(domain, rows, 2)]
    numeric, codes = tables[1].numeric, tables[1].categorical
    if kind == "numeric":
        numeric[:, 1] = numeric[:, 0]
        expected = ("n0", "n1")
    elif kind == "mixed":
        codes[:, 0] = np.where(numeric[:, 2] < 0.5, 0, 1)
        expected = ("n2", "c0")
    else:
        codes[:, 1] = codes[:, 0]
        expected = ("c0", "c1")
    verdict = verdict_of(study_of(domain, {}, epsilon=4.0, level=1e-4), tables, SeededNoise(6))
    assert named(verdict) == {expected}
