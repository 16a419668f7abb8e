"""Power on real data at one epsilon: owners who trust no one beside a curator, and joint independence.

    python -m benchmarks.hospitals --runs 200

The hospitals of the demo are pooled two by two, in the three ways that there are; the rows of the RAND Health
Insurance Experiment are those of the end-to-end tests. The data are fixed: what varies is the noise, drawn by
OpenDP as in the services, and the permutations, drawn anew every twentieth run.
"""

import csv
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import PAGES, grid, named, options, write_page
from tacit.demo.hospitals import COLUMNS, HOSPITALS
from tacit.in_process.runner import held_by_senders, local_study, seed_text
from tacit.in_process.samples import ArrayTable, Sample
from tacit_protocol.domain.columns import Domain
from tacit_protocol.privacy.noise import OpenDPNoise
from tacit_protocol.procedures.discovery import procedure_named

RAND = PAGES.parents[1] / "tests" / "end_to_end" / "data" / "randhie.csv"

LEVEL, DELTA = 0.05, 1e-5
EPSILONS = (0.1, 0.2, 0.3, 0.5, 1.0)
INDEPENDENCE_EPSILONS = (0.25, 0.5, 1.0, 2.0, 4.0)
RUNS_A_SUMMARY = 20

POOLINGS = (
    (("cleveland", "budapest"), ("zurich-basel", "long-beach")),
    (("cleveland", "zurich-basel"), ("budapest", "long-beach")),
    (("cleveland", "long-beach"), ("budapest", "zurich-basel")),
)
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "no one trusted": ("kernel_two_sample", {}),
    "curator, mean-covariance": ("curated_two_sample", {}),
    "curator, statistic": ("curated_two_sample", {"release": "statistic"}),
    "curator, permutation": ("curated_two_sample", {"release": "permutation"}),
}
BOUNDS: dict[str, tuple[float, float]] = {"mdvis": (0, 20), "lncoins": (0, 5), "disea": (0, 60)}
VARIABLES = (("mdvis", "disea"), ("mdvis", "lncoins"), ("mdvis", "lncoins", "disea"))

Tables = Mapping[str, ArrayTable]


def read(path: Path) -> dict[str, np.ndarray]:
    """Return a CSV file's columns as text; missing cells are None."""
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    missing = ("", "NA")
    return {
        name: np.array([None if row[name] in missing else row[name] for row in rows], dtype=object)
        for name in rows[0]
    }


def power(
    procedure_name: str,
    domain: Domain,
    tables: Tables,
    epsilon: float,
    delta: float,
    parameters: dict[str, Any],
    runs: int,
) -> float:
    """Return the share of ``runs`` releases whose verdict rejects."""
    procedure, noise = procedure_named(procedure_name), OpenDPNoise()
    curated, rejections = procedure_name == "curated_two_sample", 0
    for run in range(runs):
        if run % RUNS_A_SUMMARY == 0:
            study = local_study(
                procedure_name,
                domain,
                list(tables),
                parameters,
                epsilon=epsilon,
                delta=delta,
                alpha=LEVEL,
                seed=seed_text(run),
                curated=curated,
            )
            held = held_by_senders(study, list(tables.values()))
            summaries = {sender: procedure.summarise(study, table) for sender, table in held.items()}
        releases = {s: procedure.privatise(study, summary, noise) for s, summary in summaries.items()}
        rejections += procedure.assemble(study, releases).model_dump()["reject"]
    return rejections / max(1, runs)


def hospitals(runs: int) -> str:
    """Return the table of the hospitals."""
    domain = Domain.model_validate({"columns": tuple(COLUMNS)}, strict=False)
    data = {}
    for name in HOSPITALS:
        with resources.as_file(resources.files("tacit.demo.data") / f"{name}.csv") as path:
            data[name] = read(path)
    rows = []
    for pooling in POOLINGS:
        tables = {
            f"sample-{index}": ArrayTable.of(joined([data[name] for name in names]), domain)
            for index, names in enumerate(pooling, start=1)
        }
        where = " against ".join(" and ".join(names) for names in pooling)
        rows += [(f"{where} | {label}", (tables, *method)) for label, method in METHODS.items()]

    def shown(row: tuple[Tables, str, dict[str, Any]], epsilon: float) -> str:
        tables, procedure, parameters = row
        return f"{power(procedure, domain, tables, epsilon, DELTA, parameters, runs):.2f}"

    return grid("pooled | release", rows, named("ε = {:g}", EPSILONS), shown)


def independence(runs: int) -> str:
    """Return the table of joint independence."""
    data = read(RAND)

    def shown(names: tuple[str, ...], epsilon: float) -> str:
        columns = [
            {"kind": "numeric", "name": n, "lower": BOUNDS[n][0], "upper": BOUNDS[n][1]} for n in names
        ]
        domain = Domain.model_validate({"columns": tuple(columns)}, strict=False)
        tables = {"owner": ArrayTable.of(Sample({name: data[name] for name in names}), domain)}
        return f"{power('joint_independence', domain, tables, epsilon, 0.0, {}, runs):.2f}"

    rows = [(", ".join(names), names) for names in VARIABLES]
    return grid("variables", rows, named("ε = {:g}", INDEPENDENCE_EPSILONS), shown)


def joined(parts: Sequence[dict[str, np.ndarray]]) -> Sample:
    """Return one sample of several hospitals' rows."""
    return Sample({name: np.concatenate([part[name] for part in parts]) for name in parts[0]})


def main() -> None:
    """Write the page."""
    chosen = options(__doc__, runs=200)
    parts = {"runs": str(chosen.runs), "error": f"{0.5 / max(1, chosen.runs) ** 0.5:.2f}"}
    parts |= {"hospitals": hospitals(chosen.runs), "independence": independence(chosen.runs)}
    write_page("hospitals", parts, chosen.folder)


if __name__ == "__main__":
    main()
