"""What a whole release moves by when one unit is replaced, against the noise that it really carries.

Gaussian noise of standard deviation s_i on the integer i is mu-Gaussian differentially private exactly if
sum_i ((a_i - b_i) / s_i)^2 <= mu^2 for the exact sums a, b of any neighbours; Laplace noise of scale s_i is
epsilon-differentially private exactly if sum_i |a_i - b_i| / s_i <= epsilon. Both sides are read off what the
procedure hands out, so features, averages, grids, shares and the scaling of off-diagonal entries are inside.
"""

import numpy as np
import pytest
from audited_procedures import AUDITED, CASES, FIRST, missing
from kernel_two_sample_cases import ALL, STUDIES, many_row_units, one_row_units, others_of, worst_units
from release_audit import ReleaseCase, largest_move, moved_in_noise, promised, release

from tacit_protocol.features.additive import ColumnWise
from tacit_protocol.features.moments import MomentShares
from tacit_protocol.procedures.discovery import PROCEDURES
from tacit_protocol.procedures.kernel_two_sample import release as kernel_two_sample_plan

KERNEL = AUDITED["kernel_two_sample"]


def test_every_procedure_is_audited() -> None:
    assert missing(set(PROCEDURES), AUDITED) == set()
    assert set(AUDITED) <= set(PROCEDURES)


def test_a_procedure_without_audit_cases_is_noticed() -> None:
    without_runs = {"new": {"one": ReleaseCase(STUDIES["SCF"], KERNEL["SCF"].neighbours)}}
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


@pytest.mark.sweep(1)
@pytest.mark.parametrize("name", ["default, mixed", "ME, mixed", "ME, narrow", "SCF"])
def test_no_unit_of_several_rows_does_either(name: str) -> None:
    """The replaced unit owns four rows in one table and three, one of them apart, in the other."""
    asked = STUDIES[name]
    unit, other = worst_units(name, 4)
    for seed in range(4):
        others = others_of(asked, seed, 600)
        one = release(asked, many_row_units(asked.domain, others, unit))
        two = release(asked, many_row_units(asked.domain, others, other.take(slice(0, 3))))
        assert moved_in_noise(one, two).gaussian <= promised(one).gaussian


@pytest.mark.sweep(2)
@pytest.mark.parametrize("name", STUDIES)
def test_repeating_the_rows_of_a_unit_moves_nothing(name: str) -> None:
    """Its average is the same, and no other unit's contribution may change, though the chunk's shape does."""
    asked = STUDIES[name]
    unit, _ = worst_units(name, 1)
    repeated = unit.take(np.zeros(5, dtype=np.int64))
    others = others_of(asked, 0, 700)
    one = release(asked, many_row_units(asked.domain, others, unit))
    two = release(asked, many_row_units(asked.domain, others, repeated))
    assert moved_in_noise(one, two).gaussian == 0


def test_a_diameter_a_tenth_too_small_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    stated = vars(ColumnWise)["diameter"].fget
    monkeypatch.setattr(ColumnWise, "diameter", property(lambda self: 0.9 * stated(self)))
    moved, allowed = largest_move(KERNEL["columns, mixed"])
    assert moved.gaussian > 1.05 * allowed.gaussian


def test_noise_on_second_moments_that_forgets_the_mean_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each part calibrated to the whole mu, as if the other were not released."""
    asked = ALL["ME, narrow"]
    monkeypatch.setattr(kernel_two_sample_plan, "MomentShares", lambda *_: MomentShares(1.0, 1.0))
    unit, other = worst_units("ME, narrow", 1)
    others = others_of(asked, 0, 10)
    one = release(asked, one_row_units(asked.domain, others, unit))
    two = release(asked, one_row_units(asked.domain, others, other))
    assert moved_in_noise(one, two).gaussian > 1.2 * promised(one).gaussian
