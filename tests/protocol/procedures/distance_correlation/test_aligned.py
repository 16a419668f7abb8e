"""Studies of aligned units: rows in any order, several rows a unit, a verdict that says what was checked."""

from typing import Any

import numpy as np
import pytest
from made_studies import PlacedTable, made_study
from two_sample_cases import NoNoise, domain_of

from tacit_protocol.messages.study import Owner, Party, Study
from tacit_protocol.privacy.noise import NoiseSource
from tacit_protocol.procedures.base import StudyError
from tacit_protocol.procedures.distance_correlation import DistanceCorrelation, DistanceCorrelationResult

Floats = np.typing.NDArray[np.float64]
Integers = np.typing.NDArray[np.int64]

PROCEDURE = DistanceCorrelation()
UNITS = 2000


def study_of(method: str = "sketch", **changes: Any) -> Study:
    domain = domain_of(2)
    given: dict[str, Any] = {"owners": ("a", "b"), "held": (["n0"], ["n1"]), "epsilon": 4.0}
    given |= {"unit_column": "person", "alignment": "d" * 64}
    return made_study(PROCEDURE.name, domain, {"method": method}, **given | changes)


def verdict_of(
    study: Study, sides: list[tuple[Floats, Integers]], seeds: tuple[int, int], noise: NoiseSource
) -> DistanceCorrelationResult:
    releases = {}
    for owner, (values, unit), seed in zip(study.owners, sides, seeds, strict=True):
        order = np.random.default_rng(seed).permutation(UNITS)
        places, cuts = np.arange(UNITS), (UNITS // 3, 2 * UNITS // 3)
        table = PlacedTable(study.domain_of(owner), values[:, None], unit, places, order, cuts)
        releases[owner.name] = PROCEDURE.privatise(study, PROCEDURE.summarise(study, table), noise)
    return PROCEDURE.assemble(study, releases)


def sides() -> list[tuple[Floats, Integers]]:
    """y follows x; the second owner has one to three rows of every unit, about its value."""
    rng = np.random.default_rng(1)
    x = rng.random(UNITS)
    unit = np.repeat(np.arange(UNITS), 1 + np.arange(UNITS) % 3)
    y = np.clip(x[unit] + 0.1 * rng.standard_normal(len(unit)), 0, 1)
    return [(x, np.arange(UNITS)), (y, unit)]


def test_the_order_of_rows_changes_no_verdict() -> None:
    study = study_of()
    found = {
        verdict_of(study, sides(), seeds, NoNoise()).model_dump_json() for seeds in ((1, 2), (3, 3), (2, 1))
    }
    assert len(found) == 1


def test_a_unit_column_needs_an_alignment_and_an_alignment_a_unit_column() -> None:
    PROCEDURE.check(study_of())
    with pytest.raises(StudyError, match="alignment"):
        PROCEDURE.check(study_of(alignment=None))
    with pytest.raises(ValueError, match="needs the unit column"):
        study_of(unit_column=None)


def test_an_alignment_is_between_two_owners_of_different_columns() -> None:
    good = study_of()
    third = Owner(name="c", key=f"{99:064x}", data_set="data", columns=("n0",))
    everything = tuple(owner.model_copy(update={"columns": None}) for owner in good.owners)
    changed: list[dict[str, Any]] = [
        {"owners": (*good.owners, third)},
        {"owners": good.owners[:1]},
        {"owners": everything},
        {"curator": Party(name="c", key=f"{99:064x}")},
    ]
    for changes in changed:
        with pytest.raises(ValueError, match="between two owners"):
            study_of(**changes)
    for digest in ("d" * 63, "D" * 64, ""):
        with pytest.raises(ValueError, match="alignment"):
            study_of(alignment=digest)
