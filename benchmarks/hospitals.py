"""Power on real data, and levels of tests of dependence where units have several rows.

    python -m benchmarks.hospitals                        # both pages; continues where it stopped
    python -m benchmarks.hospitals --page unit-rows --runs 0.02 --folder /tmp/glance

The hospitals of the demo are pooled two by two, in the three ways that there are; the rows of the RAND Health
Insurance Experiment are those of the end-to-end tests. The data are fixed: what varies is the noise, drawn by
OpenDP as in the services, and the permutations, drawn anew every twentieth run.

Units of 1 or 20 rows are told by averages of their rows, or by one row drawn a unit. Columns are independent
of each other and of everything; each run goes through ``tacit.local`` at level .05.
"""

import csv
import functools
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

import tacit.local
from benchmarks.harness import PAGES, Answers, Benchmark, Cell, Counts, Floats, cells_of, grid, main, named
from tacit.demo.hospitals import COLUMNS, HOSPITALS
from tacit.in_process.runner import held_by_senders, local_study, terms
from tacit.in_process.samples import ArrayTable, Sample
from tacit_protocol.domain import Domain, NumericColumn
from tacit_protocol.messages.study import Study
from tacit_protocol.privacy.noise import OpenDPNoise
from tacit_protocol.procedures.discovery import procedure_named

RAND = PAGES.parents[1] / "tests" / "end_to_end" / "data" / "randhie.csv"

RUNS, LEVEL, DELTA = 200, 0.05, 1e-5
EPSILONS = (0.1, 0.2, 0.3, 0.5, 1.0)
INDEPENDENCE_EPSILONS = (0.25, 0.5, 1.0, 2.0, 4.0)
RUNS_A_SUMMARY = 20

POOLINGS = {
    " against ".join(" and ".join(names) for names in pooling): pooling
    for pooling in (
        (("cleveland", "budapest"), ("zurich-basel", "long-beach")),
        (("cleveland", "zurich-basel"), ("budapest", "long-beach")),
        (("cleveland", "long-beach"), ("budapest", "zurich-basel")),
    )
}
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "no one trusted": ("kernel_two_sample", {}),
    "curator, mean-covariance": ("curated_two_sample", {}),
    "curator, statistic": ("curated_two_sample", {"release": "statistic"}),
    "curator, permutation": ("curated_two_sample", {"release": "permutation"}),
}
BOUNDS: dict[str, tuple[float, float]] = {"mdvis": (0, 20), "lncoins": (0, 5), "disea": (0, 60)}
VARIABLES = ("mdvis, disea", "mdvis, lncoins", "mdvis, lncoins, disea")

Tables = dict[str, ArrayTable]


@functools.cache
def read(path: Path) -> dict[str, np.ndarray]:
    """Return a CSV file's columns as text; missing cells are None."""
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    missing = ("", "NA")
    return {
        name: np.array([None if row[name] in missing else row[name] for row in rows], dtype=object)
        for name in rows[0]
    }


@functools.cache
def pooled(pooling: str) -> tuple[Domain, Tables]:
    """Return both samples of a pooling of the hospitals."""
    domain, data = Domain.model_validate({"columns": tuple(COLUMNS)}, strict=False), {}
    for name in HOSPITALS:
        with resources.as_file(resources.files("tacit.demo.data") / f"{name}.csv") as path:
            data[name] = read(path)
    tables = {}
    for index, names in enumerate(POOLINGS[pooling], start=1):
        columns = {c: np.concatenate([data[name][c] for name in names]) for c in data[names[0]]}
        tables[f"sample-{index}"] = ArrayTable.of(Sample(columns), domain)
    return domain, tables


@functools.cache
def variables(names: str) -> tuple[Domain, Tables]:
    """Return columns of the RAND experiment at one owner."""
    bounds = {name: BOUNDS[name] for name in names.split(", ")}
    columns = [NumericColumn(name=name, lower=low, upper=high) for name, (low, high) in bounds.items()]
    domain = Domain(columns=tuple(columns))
    return domain, {"owner": ArrayTable.of(Sample({name: read(RAND)[name] for name in bounds}), domain)}


@functools.lru_cache(maxsize=1)
def summarised(rows: str, method: str, epsilon: float, seed: int) -> tuple[Study, dict[str, Any]]:
    """Return a study and its senders' exact summaries."""
    domain, tables = pooled(rows) if rows in POOLINGS else variables(rows)
    procedure, parameters = METHODS[method] if method else ("joint_independence", {"method": "permutation"})
    study = local_study(
        procedure,
        domain,
        list(tables),
        parameters,
        **terms(epsilon, DELTA if method else 0.0, LEVEL, seed),
        curated=procedure == "curated_two_sample",
    )
    held = held_by_senders(study, list(tables.values()))
    return study, {s: procedure_named(procedure).summarise(study, table) for s, table in held.items()}


def power_run(rows: str, method: str, epsilon: float, number: int) -> Answers:
    """Release and test once."""
    study, summaries = summarised(rows, method, epsilon, number - number % RUNS_A_SUMMARY)
    procedure, noise = procedure_named(study.procedure), OpenDPNoise()
    releases = {sender: procedure.privatise(study, summary, noise) for sender, summary in summaries.items()}
    return {"rejects": bool(procedure.assemble(study, releases).model_dump()["reject"])}


POWER_CELL = "{} | {} | {:g}"


def power_cells() -> list[Cell]:
    """List the cells."""
    found = cells_of(POWER_CELL, RUNS, power_run, POOLINGS, METHODS, EPSILONS)
    return found + cells_of(POWER_CELL, RUNS, power_run, VARIABLES, [""], INDEPENDENCE_EPSILONS)


def power_parts(counts: Counts) -> dict[str, str]:
    """Write the tables of the page."""

    def shown(row: tuple[str, str], epsilon: float) -> str:
        return counts.shown(POWER_CELL.format(*row, epsilon), "rejects", ".2f")

    rows = [(f"{pooling} | {method}", (pooling, method)) for pooling in POOLINGS for method in METHODS]
    names = [(name, (name, "")) for name in VARIABLES]
    return {
        "runs": counts.runs_of(""),
        "error": f"{0.5 / max(1, *counts.runs.values()) ** 0.5:.2f}" if counts.runs else "",
        "hospitals": grid("pooled | release", rows, named("ε = {:g}", EPSILONS), shown),
        "independence": grid("variables", names, named("ε = {:g}", INDEPENDENCE_EPSILONS), shown),
    }


def unit_test(procedure: str, x: Floats, y: Floats, ids: Floats, rows: str, seed: int) -> bool:
    """Test two columns of many rows a unit; a curator with most of the budget for the decision."""
    chosen: dict[str, Any] = {"epsilon": 20, "bounds": (0, 1), "seed": seed, "unit_rows": rows, "units": ids}
    if procedure == "independence_table":
        words = [["no" if value == 0 else "yes" for value in column] for column in (x, y)]
        chosen |= {"bounds": [["no", "yes"]] * 2, "unlisted": "last", "n_replicates": 999}
        return tacit.local.independence_table(*words, **chosen).reject
    chosen |= {"n_permutations": 199}
    if procedure == "joint_independence":
        return tacit.local.joint_independence(x, y, method="permutation", **chosen).reject
    if procedure == "curated_distance_correlation":
        chosen |= {"mode": "curator", "test_share": 0.9}
    else:
        chosen |= {"units": (ids, ids), "method": "sketch"}
    return tacit.local.distance_correlation(x, y, delta=1e-5, **chosen).reject


UNIT_TESTS: dict[str, tuple[str, int]] = {
    "`curated_distance_correlation`, numbers, 100 units": ("curated_distance_correlation", 100),
    "`curated_distance_correlation`, 0 and 1, 100 units": ("curated_distance_correlation", 100),
    "`curated_distance_correlation`, numbers, 300 units": ("curated_distance_correlation", 300),
    "`joint_independence`, numbers, 300 units": ("joint_independence", 300),
    "`independence_table`, 0 and 1, 300 units": ("independence_table", 300),
    "`distance_correlation`, sketch, numbers, 2000 units": ("distance_correlation", 2000),
}


def unit_run(name: str, number: int) -> Answers:
    """Draw units of 1 or 20 rows, and test their averages, and one row of each."""
    procedure, units = UNIT_TESTS[name]
    answers = {}
    for rows in ("average", "one"):
        rng = np.random.default_rng([units, number])
        ids = np.repeat(np.arange(units), rng.choice([1, 20], units))
        marks = "0 and 1" in name
        x, y = (rng.integers(0, 2, len(ids)).astype(float) if marks else rng.random(len(ids)) for _ in "xy")
        answers[rows] = unit_test(procedure, x, y, ids, rows, number)
    return answers


def unit_parts(counts: Counts) -> dict[str, str]:
    """Write the table of the page."""
    columns = [("averages", "average"), ("one row", "one")]
    runs = max(counts.runs.values(), default=1)
    return {
        "runs": counts.runs_of(""),
        "error": f"{np.sqrt(LEVEL * (1 - LEVEL) / runs):.3f}",
        "rates": grid("test", named("{}", UNIT_TESTS), columns, counts.shown),
    }


BENCHMARKS = (
    Benchmark("hospitals", power_cells, power_parts),
    Benchmark("unit-rows", lambda: cells_of("{}", RUNS, unit_run, UNIT_TESTS), unit_parts),
)

if __name__ == "__main__":
    main(__doc__, *BENCHMARKS)
