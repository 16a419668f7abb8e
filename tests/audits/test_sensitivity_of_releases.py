"""What a whole release moves by when one unit is replaced, against the noise that it really carries.

Gaussian noise of standard deviation s_i on the integer i is mu-Gaussian differentially private exactly if
sum_i ((a_i - b_i) / s_i)^2 <= mu^2 for the exact sums a, b of any neighbours; Laplace noise of scale s_i is
epsilon-differentially private exactly if sum_i |a_i - b_i| / s_i <= epsilon. Both sides are read off what the
procedure hands out, so features, averages, grids, shares and the scaling of off-diagonal entries are inside.
"""

import numpy as np
import pytest
from audited_procedures import AUDITED, CASES, FIRST, missing
from audited_studies import neighbours, random_rows, worst_units
from mean_cases import KERNEL_STUDIES
from release_audit import ReleaseCase, largest_move, moved_in_noise, promised, release

from tacit.testing.neighbour_search import EncodedRows as Rows
from tacit_protocol.procedures.discovery import PROCEDURES

KERNEL = AUDITED["kernel_two_sample"]


def test_every_procedure_is_audited() -> None:
    assert missing(set(PROCEDURES), AUDITED) == set()
    assert set(AUDITED) <= set(PROCEDURES)


def test_a_procedure_without_audit_cases_is_noticed() -> None:
    without_runs = {"new": {"one": ReleaseCase(KERNEL_STUDIES["SCF"], KERNEL["SCF"].neighbours)}}
    assert missing({*PROCEDURES, "new"}, AUDITED) == {"new"}
    assert missing({"new"}, without_runs) == {"new"}
    assert missing({"new"}, {"new": KERNEL}) == {"new"}, "the study is another procedure's"


@pytest.mark.parametrize(
    "name", [name if name in FIRST else pytest.param(name, marks=pytest.mark.long) for name in CASES]
)
def test_no_neighbour_moves_a_release_by_more_than_its_noise_is_made_for(name: str) -> None:
    case = CASES[name]
    moved, allowed = largest_move(case)
    assert moved.gaussian <= allowed.gaussian
    assert moved.laplace <= allowed.laplace
    part = moved.gaussian / allowed.gaussian if allowed.gaussian else moved.laplace / allowed.laplace
    assert part > case.reached, "the search is too weak to say anything"


def moved_by(name: str, seed: int, unit: Rows, other: Rows, count: int) -> tuple[float, float]:
    """How far one unit's place taken by another moves a release, and what is promised."""
    asked = KERNEL_STUDIES[name]
    tables = neighbours(asked.domain, random_rows(asked.domain, seed, count), unit, other)
    one, two = (release(asked, table) for table in tables)
    return moved_in_noise(one, two).gaussian, promised(one).gaussian


@pytest.mark.sweep(1)
@pytest.mark.parametrize("name", ["default, mixed", "ME, mixed", "ME, narrow", "SCF"])
def test_no_unit_of_several_rows_does_either(name: str) -> None:
    """The replaced unit owns four rows in one table and three, one of them apart, in the other."""
    unit, other = worst_units(KERNEL_STUDIES[name], 4)
    for seed in range(4):
        moved, allowed = moved_by(name, seed, unit, other.take(slice(0, 3)), 600)
        assert moved <= allowed


@pytest.mark.sweep(2)
@pytest.mark.parametrize("name", KERNEL_STUDIES)
def test_repeating_the_rows_of_a_unit_moves_nothing(name: str) -> None:
    """Its average is the same, and no other unit's contribution may change, though the chunk's shape does."""
    unit, _ = worst_units(KERNEL_STUDIES[name])
    assert moved_by(name, 0, unit, unit.take(np.zeros(5, dtype=np.int64)), 700)[0] == 0
