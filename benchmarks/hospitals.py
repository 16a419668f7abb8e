"""Power on real data at one epsilon: owners who trust no one beside a curator, and joint independence.

    python -m benchmarks.hospitals --runs 200

The hospitals of the demo are pooled two by two, in the three ways that there are; the rows of the RAND Health
Insurance Experiment are those of the end-to-end tests. The data are fixed: what varies is the noise, drawn by
OpenDP as in the services, and the permutations, drawn anew every twentieth run.
"""

import argparse
import csv
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from tacit.demo.hospitals import COLUMNS, HOSPITALS
from tacit.in_process.runner import held_by_senders, local_study, seed_text
from tacit.in_process.samples import ArrayTable, Sample
from tacit_protocol.domain.columns import Domain
from tacit_protocol.privacy.noise import OpenDPNoise
from tacit_protocol.procedures.discovery import procedure_named

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "benchmarks" / "hospitals.md"
RAND = ROOT / "tests" / "end_to_end" / "data" / "randhie.csv"

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

PAGE_TEXT = """# Power on real data, at one epsilon

What `python -m benchmarks.hospitals --runs {runs}` found: the share of {runs} releases that reject at
level {level}. The data are fixed, the noise is fresh in every run, and permutations in every twentieth. The
standard error is about {error} at most.

## The four hospitals, pooled two by two

Age, sex, chest pain, electrocardiogram and whether there is a disease, of the demo's 920 patients. Every
owner spends ε and δ = {delta}, once, in every row; everything else is at its default. The populations differ,
so that more is better.

{hospitals}

The curator's means carry the noise once and not twice. The one bit of the permutation test needs far less
budget than any figure. The private statistic is weak by nature
([why](../mathematics/trusted-curator.md)).

## The RAND Health Insurance Experiment

Every tenth of 20 190 person-years: visits to a doctor, ln(coinsurance + 1), and chronic diseases. Joint
independence, δ = 0, by the epsilon that every owner spends.

{independence}
"""

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


def power(procedure_name: str, domain: Domain, tables: Tables, choices: dict[str, Any], runs: int) -> float:
    """Return the share of ``runs`` releases whose verdict rejects."""
    procedure, noise = procedure_named(procedure_name), OpenDPNoise()
    curated, rejections = procedure_name == "curated_two_sample", 0
    for run in range(runs):
        if run % RUNS_A_SUMMARY == 0:
            study = local_study(
                procedure_name,
                domain,
                list(tables),
                choices["parameters"],
                epsilon=choices["epsilon"],
                delta=choices["delta"],
                alpha=LEVEL,
                seed=seed_text(run),
                curated=curated,
            )
            held = held_by_senders(study, list(tables.values()))
            summaries = {sender: procedure.summarise(study, table) for sender, table in held.items()}
        releases = {s: procedure.privatise(study, summary, noise) for s, summary in summaries.items()}
        rejections += procedure.assemble(study, releases).model_dump()["reject"]
    return rejections / runs


def hospitals(runs: int) -> list[str]:
    """Return the table of the hospitals, as lines of Markdown."""
    domain = Domain.model_validate({"columns": tuple(COLUMNS)}, strict=False)
    data = {}
    for name in HOSPITALS:
        with resources.as_file(resources.files("tacit.demo.data") / f"{name}.csv") as path:
            data[name] = read(path)
    lines = table_head(["pooled", "release"], EPSILONS)
    for pooling in POOLINGS:
        tables = {
            f"sample-{index}": ArrayTable.of(joined([data[name] for name in names]), domain)
            for index, names in enumerate(pooling, start=1)
        }
        where = " against ".join(" and ".join(names) for names in pooling)
        for label, (procedure, parameters) in METHODS.items():
            powers = [
                power(procedure, domain, tables, choice(epsilon, DELTA, parameters), runs)
                for epsilon in EPSILONS
            ]
            lines.append(row([where, label], powers))
            print(lines[-1], flush=True)
    return lines


def independence(runs: int) -> list[str]:
    """Return the table of joint independence, as lines of Markdown."""
    data = read(RAND)
    lines = table_head(["variables"], INDEPENDENCE_EPSILONS)
    for names in VARIABLES:
        columns = [
            {"kind": "numeric", "name": n, "lower": BOUNDS[n][0], "upper": BOUNDS[n][1]} for n in names
        ]
        domain = Domain.model_validate({"columns": tuple(columns)}, strict=False)
        tables = {"owner": ArrayTable.of(Sample({name: data[name] for name in names}), domain)}
        powers = [
            power("joint_independence", domain, tables, choice(epsilon, 0.0, {}), runs)
            for epsilon in INDEPENDENCE_EPSILONS
        ]
        lines.append(row([", ".join(names)], powers))
        print(lines[-1], flush=True)
    return lines


def joined(parts: Sequence[dict[str, np.ndarray]]) -> Sample:
    """Return one sample of several hospitals' rows."""
    return Sample({name: np.concatenate([part[name] for part in parts]) for name in parts[0]})


def choice(epsilon: float, delta: float, parameters: dict[str, Any]) -> dict[str, Any]:
    """Return what a study of a cell chooses."""
    return {"epsilon": epsilon, "delta": delta, "parameters": parameters}


def table_head(words: list[str], epsilons: Sequence[float]) -> list[str]:
    """Return the head of a table."""
    heads = [*words, *(f"ε = {epsilon:g}" for epsilon in epsilons)]
    return ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]


def row(words: list[str], powers: Sequence[float]) -> str:
    """Return a row of a table."""
    return "| " + " | ".join([*words, *(f"{one:.2f}" for one in powers)]) + " |"


def main() -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--out", type=Path, default=PAGE)
    arguments = parser.parse_args()
    text = PAGE_TEXT.format(
        runs=arguments.runs,
        level=f"{LEVEL:g}",
        delta=f"{DELTA:g}",
        error=f"{0.5 / arguments.runs**0.5:.2f}",
        hospitals="\n".join(hospitals(arguments.runs)),
        independence="\n".join(independence(arguments.runs)),
    )
    arguments.out.write_text(text)


if __name__ == "__main__":
    main()
