"""Any procedure in one process, by its name or as it is being written."""

import re
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import tacit.local
from tacit.errors import InputError, StudyRefusedError

PAGE = Path(__file__).resolve().parents[3] / "docs" / "how-to" / "add-a-procedure.md"
RNG = np.random.default_rng(3)
NORTH, SOUTH = (pd.DataFrame({"a": RNG.random(400), "b": RNG.random(400)}) for _ in range(2))
SPENT: dict[str, Any] = {"epsilon": 2, "delta": 1e-5, "seed": 1}
BOUNDS = {"a": (0, 1), "b": (0, 1)}


@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("kernel_two_sample", {"replicates": 1999}),
        ("association", {}),
        ("aggregated_test", {"test": "pearson"}),
    ],
)
def test_it_asks_the_study_that_the_named_function_asks(name: str, asked: dict[str, Any]) -> None:
    found = tacit.local.run(name, NORTH, SOUTH, bounds=BOUNDS, **SPENT, **asked)
    named = getattr(tacit.local, name)(NORTH, SOUTH, bounds=BOUNDS, **SPENT, **asked)
    assert found.source.study == named.source.study
    assert type(found) is type(named)


def test_columns_apart_are_each_an_owner_s_own() -> None:
    x, y = NORTH["a"], NORTH[["b"]]
    found = tacit.local.run("distance_correlation", x, y, bounds=(0, 1), names=["one", "other"], **SPENT)
    assert [owner.columns for owner in found.source.study.owners] == [("a",), ("b",)]
    three = tacit.local.run("mutual_independence", x, y, 1 - x.rename("c"), bounds=(0, 1), epsilon=3, seed=1)
    assert three.reject
    with pytest.raises(InputError, match="leave columns out"):
        tacit.local.run("distance_correlation", x, y, bounds=(0, 1), columns=["a"], **SPENT)


def test_a_curator_holds_all_where_no_other_may_answer_or_where_it_is_asked_for() -> None:
    found = tacit.local.run("curated_two_sample", NORTH, SOUTH, bounds=BOUNDS, **SPENT)
    assert found.source.study.curator is not None
    groups = {"groups": [["a"], ["b"]]}
    alone = tacit.local.run("joint_independence", NORTH, bounds=BOUNDS, **SPENT, **groups)
    pooled = tacit.local.run(
        "joint_independence", NORTH, SOUTH, bounds=BOUNDS, setting="curator", **SPENT, **groups
    )
    assert (alone.source.study.curator, set(pooled.units)) == (None, {"sample-1", "sample-2"})


def test_of_a_unit_s_rows_one_counts_where_that_is_asked_for() -> None:
    units = [np.repeat(np.arange(200), 2)] * 2
    asked = {"test": "pearson", "units": units, "bounds": BOUNDS, **SPENT}
    with pytest.raises(StudyRefusedError, match='ask for unit_rows "one"'):
        tacit.local.run("aggregated_test", NORTH, SOUTH, **asked)
    found = tacit.local.run("aggregated_test", NORTH, SOUTH, unit_rows="one", **asked)
    assert found.units == {"sample-1": 200, "sample-2": 200}


def test_a_procedure_that_is_being_written_runs_before_it_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.M | re.S)
    text = next(block for block in blocks if block.startswith("# sign_test.py"))
    (tmp_path / "sign_test.py").write_text(text, "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    before = pd.DataFrame({"before": RNG.normal(140, 15, 400)})
    rows = before.assign(after=before["before"] - 6 + RNG.normal(0, 10, 400))
    bounds = {"before": (60, 220), "after": (60, 220)}
    found: Any = tacit.local.run(import_module("sign_test").SignTest(), rows, rows, bounds=bounds, **SPENT)
    assert found.reject
    assert found.upper < 0.5


def test_what_cannot_be_run_is_said() -> None:
    with pytest.raises(InputError, match="unknown procedure; known: aggregated_test, "):
        tacit.local.run("nothing", NORTH, bounds=BOUNDS, **SPENT)
    with pytest.raises(InputError, match="pass one sample for each owner"):
        tacit.local.run("association", bounds=BOUNDS, **SPENT)
    with pytest.raises(InputError, match='setting must be "owners" or "curator"'):
        tacit.local.run("association", NORTH, bounds=BOUNDS, setting="peer", **SPENT)  # type: ignore[arg-type]
    with pytest.raises(StudyRefusedError, match="unknown parameter"):
        tacit.local.run("association", NORTH, bounds=BOUNDS, nothing=1, **SPENT)
