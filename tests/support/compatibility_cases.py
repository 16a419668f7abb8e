"""Studies of every procedure, form and kind of noise, played once by the code of their day and kept.

    PYTHONPATH=tests/support .venv/bin/python -m compatibility_cases    # plays what has no fixture yet

A fixture is never made anew: its noise was drawn from the operating system, and what later code makes of its
releases is what is tested. Delete one only where a verdict is meant to change, and say so in the changelog.
Those named ``federation-`` are transcripts of real federations: owners aligned, peer mode with and without
a published covariance, a release read again, a study that was declined.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from compatibility_stated import stated
from signed_study import signed_transcript

from tacit.in_process.runner import local_study, run
from tacit.in_process.samples import ArrayTable, Sample, domain_of
from tacit_protocol.domain.columns import Domain
from tacit_protocol.privacy.noise import OpenDPNoise
from tacit_protocol.procedures.discovery import procedure_named

FIXTURES = Path(__file__).resolve().parents[1] / "compatibility" / "fixtures"
LETTERS = ("a", "b", "c")


@dataclass(frozen=True)
class Case:
    """A study of made-up rows: ``owners`` holds each owner's columns, all of them where it is empty."""

    procedure: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    owners: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: {"north": (), "south": ()})
    columns: tuple[str, ...] = ("age", "score", "ward")
    curated: bool = False
    epsilon: float = 4.0
    delta: float = 1e-5
    units: int = 600
    level: float = 0.05


BOUNDS: Mapping[str, Any] = {
    "age": (0, 100),
    "score": (-5, 5),
    "outcome": (-5, 5),
    "ward": list(LETTERS),
    "sex": ["f", "m"],
}
NUMBERS = ("age", "score")
ONE = {"north": ()}
THREE = {"north": (), "south": (), "west": ()}
APART = {"north": ("age", "score"), "south": ("outcome",)}
REPLICATES = {"replicates": 999}
PERMUTATIONS = {"permutations": 199}
COUNTED = ("ward", "sex")
EQUAL = {"probabilities": [1 / 3, 1 / 3, 1 / 3], "unlisted": "last"}
LOCATIONS = [[20.0, -1.0], [50.0, 0.0], [80.0, 1.0]]
POINTS = [[age, ward] for age in (20.0, 50.0, 80.0) for ward in LETTERS]
CANDIDATES = [[[20.0, "a"], [40.0, "b"]], [[50.0, "a"], [60.0, "b"]], [[80.0, "c"], [90.0, "c"]]]

CASES: dict[str, Case] = {
    "kernel_two_sample-auto": Case("kernel_two_sample"),
    "kernel_two_sample-three-owners": Case("kernel_two_sample", {}, THREE),
    "kernel_two_sample-columns": Case("kernel_two_sample", {"features": "columns"}),
    "kernel_two_sample-me": Case("kernel_two_sample", {"features": "me", "n_features": 5}),
    "kernel_two_sample-me-mmd": Case(
        "kernel_two_sample", {"features": "me", "n_features": 5, "statistic": "mmd"}
    ),
    "kernel_two_sample-me-noise-aware": Case(
        "kernel_two_sample", {"features": "me", "n_features": 5, "statistic": "noise-aware"} | REPLICATES
    ),
    "kernel_two_sample-me-locations": Case(
        "kernel_two_sample",
        {"features": "me", "locations": LOCATIONS, "kernel": "laplacian", "bandwidth": 0.4},
        columns=NUMBERS,
    ),
    "kernel_two_sample-scf": Case("kernel_two_sample", {"features": "scf", "n_features": 4}, columns=NUMBERS),
    "kernel_two_sample-paper-weighted": Case(
        "kernel_two_sample",
        {"features": "me", "n_features": 5, "calibration": "paper", "null": "weighted"},
        columns=NUMBERS,
    ),
    "kernel_two_sample-paper-asymptotic": Case(
        "kernel_two_sample",
        {"features": "scf", "n_features": 5, "calibration": "paper", "null": "asymptotic"},
        columns=NUMBERS,
    ),
    "curated_two_sample-mean-covariance": Case("curated_two_sample", curated=True),
    "curated_two_sample-me-mmd": Case(
        "curated_two_sample",
        {"features": "me", "n_features": 5, "statistic": "mmd"},
        curated=True,
    ),
    "curated_two_sample-me-noise-aware": Case(
        "curated_two_sample",
        {"features": "me", "n_features": 5, "statistic": "noise-aware"} | REPLICATES,
        curated=True,
    ),
    "curated_two_sample-three-owners": Case(
        "curated_two_sample", {"samples": [["north", "west"], ["south"]]}, THREE, curated=True
    ),
    "curated_two_sample-statistic": Case(
        "curated_two_sample", {"release": "statistic", "features": "me", "n_features": 5}, curated=True
    ),
    "curated_two_sample-permutation": Case(
        "curated_two_sample",
        {"release": "permutation", "features": "kernel"} | PERMUTATIONS,
        curated=True,
        delta=0.0,
    ),
    "joint_independence-gaussian": Case("joint_independence", PERMUTATIONS, ONE, delta=0.0),
    "joint_independence-delta": Case("joint_independence", PERMUTATIONS, ONE),
    "joint_independence-laplacian": Case(
        "joint_independence", {"kernel": "laplacian", "bandwidth": [0.3, 0.6]} | PERMUTATIONS, ONE, NUMBERS
    ),
    "joint_independence-distance": Case(
        "joint_independence",
        {"kernel": "distance", "groups": [["age", "score"], ["ward"]]} | PERMUTATIONS,
        ONE,
    ),
    "joint_independence-curated": Case("joint_independence", PERMUTATIONS, curated=True, delta=0.0),
    "distance_correlation-sketch": Case(
        "distance_correlation", PERMUTATIONS, APART, ("age", "score", "outcome"), epsilon=10.0, units=2000
    ),
    "distance_correlation-pnc": Case(
        "distance_correlation",
        {"method": "pnc"} | PERMUTATIONS,
        APART,
        ("age", "score", "outcome"),
        epsilon=10.0,
    ),
    "distance_correlation-pnc-disjoint": Case(
        "distance_correlation",
        {"method": "pnc-disjoint", "n_projections": 8} | PERMUTATIONS,
        APART,
        ("age", "score", "outcome"),
        epsilon=10.0,
    ),
    "curated_distance_correlation-test": Case(
        "curated_distance_correlation", PERMUTATIONS, ONE, NUMBERS, epsilon=10.0
    ),
    "curated_distance_correlation-no-test": Case(
        "curated_distance_correlation", {"test": False, "groups": [["age", "score"], ["ward"]]}, curated=True
    ),
    "screening-by": Case(
        "screening", {"outcome": "south"}, APART, ("age", "score", "outcome"), epsilon=10.0, units=2000
    ),
    "screening-bh-matrix": Case(
        "screening",
        {"outcome": "south", "control": "bh", "matrix": True},
        APART,
        ("age", "score", "outcome"),
        epsilon=10.0,
        units=2000,
    ),
    "noisy_counts-laplace": Case("noisy_counts", {}, columns=COUNTED, delta=0.0),
    "noisy_counts-gaussian-cuts": Case(
        "noisy_counts", {"noise": "gaussian", "cuts": {"age": [30.0, 60.0]}}, columns=("age", "sex")
    ),
    "noisy_counts-rho": Case(
        "noisy_counts", {"noise": "gaussian", "rho": 0.05, "unlisted": "last"}, columns=COUNTED
    ),
    "homogeneity-laplace": Case("homogeneity", REPLICATES, THREE, ("ward",), delta=0.0),
    "homogeneity-gaussian": Case("homogeneity", {"noise": "gaussian"} | REPLICATES, columns=("ward",)),
    "independence_table-laplace": Case("independence_table", REPLICATES, columns=COUNTED, delta=0.0),
    "independence_table-gaussian-three-columns": Case(
        "independence_table",
        {"noise": "gaussian", "cuts": {"age": [50.0]}} | REPLICATES,
        columns=("age", "ward", "sex"),
        epsilon=8.0,
    ),
    "stratified_table-laplace": Case(
        "stratified_table", {"group": "sex", "outcome": "ward"} | REPLICATES, THREE, COUNTED, delta=0.0
    ),
    "stratified_table-gaussian-strata": Case(
        "stratified_table",
        {"noise": "gaussian", "cuts": {"age": [50.0]}, "group": "ward", "outcome": "sex"} | REPLICATES,
        columns=("age", "ward", "sex"),
        epsilon=8.0,
    ),
    "group_comparison-numbers": Case(
        "group_comparison", {"group": "sex"}, columns=("age", "score", "ward", "sex")
    ),
    "group_comparison-three-groups": Case("group_comparison", {}, ONE, ("age", "ward")),
    "group_comparison-categories": Case("group_comparison", {"group": "sex"}, THREE, COUNTED),
    "survival-groups": Case(
        "survival",
        {"cuts": {"age": [30.0, 50.0, 70.0]}, "event": "sex", "group": "ward"} | REPLICATES,
        columns=("age", "ward", "sex"),
        delta=0.0,
        epsilon=8.0,
    ),
    "survival-one-curve": Case(
        "survival", {"noise": "gaussian", "cuts": {"age": [40.0, 60.0]}} | REPLICATES, ONE, ("age", "sex")
    ),
    "identity-mcgof": Case("identity", EQUAL | REPLICATES, ONE, ("ward",), delta=0.0),
    "identity-mcgof-gaussian": Case("identity", EQUAL | {"noise": "gaussian"} | REPLICATES, ONE, ("ward",)),
    "identity-zcdp-gof": Case("identity", EQUAL | {"method": "zcdp-gof"}, ONE, ("ward",)),
    "identity-privit-laplace": Case(
        "identity", EQUAL | {"method": "privit-laplace"} | REPLICATES, ONE, ("ward",), delta=0.0
    ),
    "identity-privit": Case(
        "identity",
        EQUAL | {"method": "privit", "distance": 0.3},
        ONE,
        ("ward",),
        delta=0.0,
        units=3000,
        level=1 / 3,
    ),
    "identity-repetition": Case(
        "identity", EQUAL | {"method": "repetition", "distance": 0.3}, ONE, ("ward",), delta=0.0, units=3000
    ),
    "embedding_release-histograms": Case("embedding_release", {"n_points": 60}, ONE, ("age", "ward")),
    "embedding_release-laplace": Case(
        "embedding_release", {"n_points": 40, "noise": "laplace"}, ONE, ("age", "ward"), delta=0.0
    ),
    "embedding_release-uniform": Case(
        "embedding_release", {"n_points": 40, "placement": "uniform"}, ONE, ("age", "ward")
    ),
    "embedding_release-points": Case("embedding_release", {"points": POINTS}, ONE, ("age", "ward")),
    "embedding_release-random-features": Case(
        "embedding_release", {"method": "random-features", "n_frequencies": 40}, ONE, NUMBERS
    ),
    "embedding_release-exponential": Case(
        "embedding_release",
        {"method": "exponential", "candidates": CANDIDATES},
        ONE,
        ("age", "ward"),
        delta=0.0,
    ),
    "embedding_release-two-owners": Case("embedding_release", {"n_points": 30}, columns=("age", "ward")),
}


def rows_of(case: Case, owner: int) -> dict[str, Any]:
    """Return an owner's made-up columns; owners of different columns hold the same people."""
    apart = any(case.owners.values())
    rng = np.random.default_rng([7, 0 if apart else owner])
    age = np.clip(rng.normal(50 + (0 if apart else 8 * owner), 15, case.units), 1, 99)
    columns = {
        "age": age,
        "score": np.clip((age - 50) / 20 + rng.normal(0, 1, case.units), -5, 5),
        "outcome": np.clip((age - 50) ** 2 / 300 + rng.normal(0, 0.5, case.units), -5, 5),
        "ward": rng.choice(LETTERS, case.units, p=[0.5, 0.3, 0.2]),
    }
    columns["sex"] = np.where(rng.random(case.units) < np.where(columns["ward"] == "a", 0.7, 0.4), "f", "m")
    columns["age"][: case.units // 20] = np.nan
    return columns


def play(case: Case) -> dict[str, Any]:
    """Play a study in this process, sign it between parties of their own, and return its fixture."""
    procedure = procedure_named(case.procedure)
    domain = domain_of({name: BOUNDS[name] for name in case.columns}, list(case.columns))
    study = local_study(
        case.procedure,
        domain,
        list(case.owners),
        case.parameters,
        epsilon=case.epsilon,
        delta=case.delta,
        alpha=case.level,
        seed="0" * 32,
        curated=case.curated,
        columns=[held or None for held in case.owners.values()],
    )
    tables = []
    for place, owner in enumerate(study.owners):
        held: Domain = study.domain_of(owner)
        rows = rows_of(case, place)
        tables.append(ArrayTable.of(Sample({c.name: rows[c.name] for c in held.columns}), held))
    return dict(json.loads(signed_transcript(run(procedure, study, tables, OpenDPNoise()))))


def make(names: Sequence[str]) -> None:
    """Write the fixtures that are not there."""
    for name in names:
        file = FIXTURES / f"{name}.json"
        if not file.exists():
            transcript = play(CASES[name])
            kept = {"transcript": transcript, "stated": stated(json.dumps(transcript).encode())}
            file.write_text(json.dumps(kept, indent=1, ensure_ascii=False, sort_keys=True) + "\n")


if __name__ == "__main__":
    FIXTURES.mkdir(exist_ok=True)
    make(sys.argv[1:] or list(CASES))
