"""Studies of every procedure, form and kind of noise, played once by the code of their day and kept.

    PYTHONPATH=tests/support .venv/bin/python -m compatibility_cases    # plays what has no fixture yet

A fixture is not made anew without a reason: its noise was drawn from the operating system, and what later
code makes of its releases is what is tested. Delete one only where a study or a verdict is meant to change,
and say so in the changelog.
Those named ``federation-`` are transcripts of real federations: owners aligned, peer mode with and without
a published covariance, a release read again, a study that was declined.
"""

import contextlib
import dataclasses
import io
import json
import math
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel
from signed_study import signed_transcript

from tacit.command.study_view import print_result, result_fields
from tacit.in_process.runner import declaring, local_study, run
from tacit.in_process.samples import ArrayTable, Sample, domain_of
from tacit.results import result_of
from tacit_protocol.domain import Domain
from tacit_protocol.privacy.noise import OpenDPNoise
from tacit_protocol.procedures.disclosure import StudyTerms
from tacit_protocol.procedures.discovery import procedure_named
from tacit_protocol.reporting.report import Reported, meaning_of, report_html
from tacit_protocol.verification import VerifiedTranscript, verify_transcript

FIXTURES = Path(__file__).resolve().parents[1] / "compatibility" / "fixtures"
LETTERS = ("a", "b", "c")


@dataclass(frozen=True)
class Case:
    """A study of made-up rows: ``owners`` holds each owner's columns, all of them where it is empty.

    ``declared`` says whether owners declare their units.
    """

    procedure: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    owners: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: {"north": (), "south": ()})
    columns: tuple[str, ...] = ("age", "score", "ward")
    curated: bool = False
    epsilon: float = 4.0
    delta: float = 1e-5
    units: int = 600
    level: float = 0.05
    declared: bool = False


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
APART_THREE = {"north": ("age",), "south": ("score",), "west": ("ward",)}
REPLICATES = {"replicates": 999}
PERMUTATIONS = {"permutations": 199}
PERMUTED = {"method": "permutation"} | PERMUTATIONS
COUNTED = ("ward", "sex")
MASKED = {"noise": "gaussian", "aggregation": "masked", "colluders": 1}
EQUAL = {"probabilities": [1 / 3, 1 / 3, 1 / 3], "unlisted": "last"}
LOCATIONS = [[20.0, -1.0], [50.0, 0.0], [80.0, 1.0]]
POINTS = [[age, ward] for age in (20.0, 50.0, 80.0) for ward in LETTERS]
CANDIDATES = [[[20.0, "a"], [40.0, "b"]], [[50.0, "a"], [60.0, "b"]], [[80.0, "c"], [90.0, "c"]]]

CASES: dict[str, Case] = {
    "kernel_two_sample-auto": Case("kernel_two_sample"),
    "kernel_two_sample-three-owners": Case("kernel_two_sample", {}, THREE),
    "kernel_two_sample-k-norm": Case("kernel_two_sample", {"noise": "k-norm"}, THREE, delta=0.0),
    "kernel_two_sample-k-norm-resolution": Case(
        "kernel_two_sample", {"noise": "k-norm", "features": "columns", "resolution": 8}, delta=0.0
    ),
    "kernel_two_sample-k-norm-fine-cells": Case(
        "kernel_two_sample",
        {"noise": "k-norm", "features": "columns", "fine_cells": True},
        columns=("age",),
        delta=0.0,
    ),
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
    "curated_two_sample-mean-covariance": Case(
        "curated_two_sample", {"release": "mean-covariance"}, curated=True
    ),
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
        "curated_two_sample",
        {"release": "mean-covariance", "samples": [["north", "west"], ["south"]]},
        THREE,
        curated=True,
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
    "curated_two_sample-aggregate": Case(
        "curated_two_sample",
        {"release": "aggregate", "samples": [["north", "west"], ["south"]]},
        THREE,
        curated=True,
        delta=0.0,
    ),
    "curated_two_sample-table": Case(
        "curated_two_sample",
        {"release": "table", "categories": 2} | PERMUTATIONS,
        curated=True,
        delta=0.0,
    ),
    "joint_independence-gaussian": Case("joint_independence", PERMUTED, ONE, delta=0.0),
    "joint_independence-delta": Case("joint_independence", PERMUTED, ONE),
    "joint_independence-laplacian": Case(
        "joint_independence", {"kernel": "laplacian", "bandwidth": [0.3, 0.6]} | PERMUTED, ONE, NUMBERS
    ),
    "joint_independence-distance": Case(
        "joint_independence",
        {"kernel": "distance", "groups": [["age", "score"], ["ward"]]} | PERMUTED,
        ONE,
    ),
    "joint_independence-curated": Case("joint_independence", PERMUTED, curated=True, delta=0.0),
    "joint_independence-table": Case(
        "joint_independence", {"method": "table", "categories": 3} | PERMUTATIONS, ONE, delta=0.0
    ),
    "joint_independence-table-owners": Case(
        "joint_independence",
        {"method": "table", "groups": [["age", "score"], ["ward"]]} | PERMUTATIONS,
        THREE,
        delta=0.0,
    ),
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
    "curated_distance_correlation-aggregate": Case(
        "curated_distance_correlation", {"method": "aggregate"}, ONE, NUMBERS, delta=0.0
    ),
    "curated_distance_correlation-table": Case(
        "curated_distance_correlation",
        {"method": "table", "categories": 3} | PERMUTATIONS,
        columns=NUMBERS,
        curated=True,
        delta=0.0,
    ),
    "distance_correlation-two-round": Case(
        "distance_correlation", {"method": "two-round"} | PERMUTATIONS, APART, ("age", "score", "outcome")
    ),
    "distance_correlation-two-round-categories": Case(
        "distance_correlation",
        {"method": "two-round", "receiver": "north", "cuts": "even", "categories": 5} | PERMUTATIONS,
        {"north": ("age",), "south": ("ward",)},
        ("age", "ward"),
        delta=0.0,
    ),
    "distance_correlation-one-round": Case(
        "distance_correlation",
        {"method": "one-round", "categories": 2} | PERMUTATIONS,
        {"north": ("age",), "south": ("outcome",)},
        ("age", "outcome"),
        delta=0.0,
    ),
    "curated_distance_correlation-test": Case(
        "curated_distance_correlation", PERMUTATIONS, ONE, NUMBERS, epsilon=10.0
    ),
    "curated_distance_correlation-no-test": Case(
        "curated_distance_correlation", {"test": False, "groups": [["age", "score"], ["ward"]]}, curated=True
    ),
    "screening-bh-matrix": Case(
        "screening",
        {"outcome": "south", "control": "bh", "matrix": True},
        APART,
        ("age", "score", "outcome"),
        epsilon=10.0,
        units=2000,
    ),
    "screening-two-round": Case(
        "screening",
        {"outcome": "south", "permutations": 999},
        APART,
        ("age", "score", "outcome"),
        delta=0.0,
    ),
    "screening-two-round-gaussian": Case(
        "screening",
        {"outcome": "south", "permutations": 1999},
        {"north": ("age", "score", "ward", "sex"), "south": ("outcome",)},
        ("age", "score", "ward", "sex", "outcome"),
        epsilon=1.0,
        units=2000,
    ),
    "screening-one-round": Case(
        "screening",
        {"method": "one-round", "outcome": "south", "control": "bh", "permutations": 999},
        APART,
        ("age", "score", "outcome"),
        epsilon=8.0,
        delta=0.0,
    ),
    "mutual_independence-two-round": Case(
        "mutual_independence",
        PERMUTATIONS,
        APART_THREE,
        ("age", "score", "ward"),
        delta=0.0,
        epsilon=4.0,
    ),
    "mutual_independence-one-round": Case(
        "mutual_independence",
        {"method": "one-round", "categories": 2, "cuts": "even"} | PERMUTATIONS,
        APART_THREE,
        ("age", "score", "ward"),
        delta=0.0,
        epsilon=4.0,
    ),
    "mutual_independence-halves": Case(
        "mutual_independence",
        PERMUTATIONS,
        APART_THREE,
        ("age", "score", "ward"),
        delta=0.0,
        epsilon=2.0,
        units=2000,
    ),
    "noisy_counts-laplace": Case("noisy_counts", {}, columns=COUNTED, delta=0.0),
    "noisy_counts-gaussian-cuts": Case(
        "noisy_counts", {"noise": "gaussian", "cuts": {"age": [30.0, 60.0]}}, columns=("age", "sex")
    ),
    "noisy_counts-masked": Case("noisy_counts", MASKED, THREE, COUNTED),
    "independence_table-masked": Case("independence_table", MASKED | REPLICATES, THREE, COUNTED),
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
    "aggregated_test-direction": Case(
        "aggregated_test",
        {"test": "mann_whitney"},
        columns=("age", "sex"),
        epsilon=0.3,
        delta=0.0,
    ),
    "aggregated_test-groups": Case(
        "aggregated_test",
        {"test": "kruskal_wallis", "block_level": 0.2},
        THREE,
        ("score", "ward"),
        epsilon=0.3,
        delta=0.0,
    ),
    "aggregated_test-given": Case(
        "aggregated_test",
        {"test": "conditional_independence", "regression": "linear", "blocks": 10},
        ONE,
        ("age", "score", "ward"),
        epsilon=0.3,
        delta=0.0,
    ),
    "aggregated_test-masked": Case(
        "aggregated_test",
        {"test": "mann_whitney", "aggregation": "masked", "colluders": 1},
        THREE,
        ("age", "sex"),
    ),
    "joint_independence-masked": Case(
        "joint_independence",
        {"method": "aggregate", "aggregation": "masked", "colluders": 0},
        THREE,
        NUMBERS,
    ),
    "joint_independence-aggregate": Case(
        "joint_independence", {"method": "aggregate"}, THREE, NUMBERS, epsilon=0.3, delta=0.0
    ),
    "independence_table-beside-answers": Case(
        "independence_table", REPLICATES, {"north": ("sex",), "south": ("ward",)}, ("sex", "ward"), delta=0.0
    ),
    "stratified_table-beside-answers": Case(
        "stratified_table",
        {"cuts": {"age": [50.0]}, "group": "sex", "outcome": "ward"} | REPLICATES,
        {"north": ("sex",), "south": ("age", "ward")},
        ("age", "sex", "ward"),
        delta=0.0,
        units=2000,
    ),
    "survival-beside-answers": Case(
        "survival",
        {"cuts": {"age": [30.0, 50.0, 70.0]}, "event": "sex", "group": "ward"} | REPLICATES,
        {"north": ("ward",), "south": ("age", "sex")},
        ("age", "ward", "sex"),
        delta=0.0,
        units=2000,
    ),
    "group_comparison-numbers": Case(
        "group_comparison", {"group": "sex"}, columns=("age", "score", "ward", "sex")
    ),
    "group_comparison-three-groups": Case("group_comparison", {}, ONE, ("age", "ward")),
    "group_comparison-soft-cells": Case(
        "group_comparison",
        {"group": "sex", "noise": "laplace"},
        columns=("age", "score", "ward", "sex"),
        delta=0.0,
    ),
    "group_comparison-four-cells": Case(
        "group_comparison",
        {"group": "sex", "noise": "laplace"},
        columns=("age", "score", "sex"),
        epsilon=0.5,
        delta=0.0,
        declared=True,
    ),
    "group_comparison-categories": Case("group_comparison", {"group": "sex"}, THREE, COUNTED),
    "group_comparison-masked": Case(
        "group_comparison", MASKED | {"group": "sex"}, THREE, ("age", "score", "ward", "sex")
    ),
    "group_comparison-beside-answers": Case(
        "group_comparison",
        {},
        {"north": ("sex",), "south": ("age", "score", "ward")},
        ("age", "score", "ward", "sex"),
        delta=0.0,
    ),
    "association-numbers-and-categories": Case("association", {}, THREE, ("age", "score", "ward", "sex")),
    "association-masked": Case("association", MASKED, THREE, ("age", "score", "sex")),
    "association-one-owner": Case("association", {}, ONE, NUMBERS),
    "association-laplace": Case(
        "association", {"noise": "laplace"}, THREE, ("age", "score", "sex"), delta=0.0, epsilon=8.0
    ),
    "association-laplace-few-units": Case(
        "association", {"noise": "laplace"}, ONE, NUMBERS, delta=0.0, epsilon=0.5
    ),
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
    "identity-masked": Case(
        "identity", EQUAL | {"method": "zcdp-gof", "aggregation": "masked", "colluders": 1}, THREE, ("ward",)
    ),
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
    "embedding_release-masked": Case(
        "embedding_release",
        {"n_points": 40, "placement": "uniform", "aggregation": "masked", "colluders": 1},
        THREE,
        ("age", "ward"),
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
    if case.declared:
        study = declaring(study, [case.units] * len(case.owners))
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


def restate(parts: Sequence[str]) -> None:
    """Write anew what is said of each kept transcript, of these parts alone: the words have changed."""
    for file in sorted(FIXTURES.glob("*.json")):
        kept = json.loads(file.read_text())
        found = stated(json.dumps(kept["transcript"]).encode(), kept["stated"].get("fields"))
        kept["stated"] |= {part: found[part] for part in parts if part in found}
        file.write_text(json.dumps(kept, indent=1, ensure_ascii=False, sort_keys=True) + "\n")


TOLERANCE = 2e-8
"""Relative, of numbers rounded to DIGITS digits: processors differ in the last one."""


def differences(found: Any, before: Any, place: str, tolerance: float = TOLERANCE) -> Iterator[str]:
    """Yield where two plain values differ; numbers, by more than ``tolerance``."""
    if isinstance(found, dict) and isinstance(before, dict) and found.keys() == before.keys():
        for key in found:
            yield from differences(found[key], before[key], f"{place}/{key}", tolerance)
    elif isinstance(found, list) and isinstance(before, list) and len(found) == len(before):
        for index, (one, other) in enumerate(zip(found, before, strict=True)):
            yield from differences(one, other, f"{place}/{index}", tolerance)
    elif isinstance(found, float) and isinstance(before, float):
        if not math.isclose(found, before, rel_tol=tolerance):
            yield f"{place}: {found} was {before}"
    elif found != before:
        yield f"{place}: {str(found)[:300]} was {str(before)[:300]}"


# What is read of a transcript: verdict, SDK fields, command, report, picture, what stewards read.

HIDDEN = {"source", "verdict"}
"""Fields of a result that are parts of the transcript, kept beside."""

DIGITS = 9
"""Significant digits that are compared: libraries of linear algebra differ in the last ones."""


def stated(transcript: bytes, names: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Verify a transcript, and return all that is said of it, as plain values.

    ``names`` are the fields of results that are read, by name, and those of what they hold below them: by
    default all that there are.
    """
    verified = verify_transcript(transcript)
    if verified.result is None:
        return dict(plain({"ended": verified.verdict, "asked": asked(verified)}))
    study, verdict = verified.study, verified.result.model_dump(mode="json")
    result = result_of(study, verdict, digest=verified.study_digest, releases=verified.releases)
    meaning = meaning_of(study, verdict)
    shown = {
        "verdict": verdict,
        "fields": read(result, names),
        "command": {"fields": result_fields(result), "text": printed(result)},
        "report": words(
            report_html(Reported(study, verdict, verified.releases, verified.study_digest), "tacit")
        ),
        "meaning": [meaning.sentence, meaning.care],
        "asked": asked(verified),
        "picture": [picture_of(panel) for panel in result.panels()],
    }
    return dict(plain(shown))


def read(value: Any, like: Any) -> Any:
    """Return a value's attributes of the names that ``like`` has, and so on below them."""
    if isinstance(value, tuple):
        parts = like if isinstance(like, list) else [None] * len(value)
        return [read(item, part) for item, part in zip(value, parts, strict=True)]
    if isinstance(value, Mapping) and isinstance(like, Mapping) and value.keys() == like.keys():
        return {name: read(item, like[name]) for name, item in value.items()}
    if dataclasses.is_dataclass(value) or isinstance(value, BaseModel):
        names = like if isinstance(like, Mapping) else public_names(value)
        return {name: read(getattr(value, name), names[name]) for name in names}
    return value


def public_names(value: Any) -> dict[str, None]:
    """Return the names of a value's fields and properties."""
    if not isinstance(value, BaseModel):
        return dict.fromkeys(f.name for f in dataclasses.fields(value) if f.compare)
    found = {n for n in dir(type(value)) if isinstance(getattr(type(value), n), property)}
    own = {n for n in found | set(type(value).model_fields) if not n.startswith(("_", "model_"))}
    return dict.fromkeys(sorted(own - HIDDEN))


def printed(result: Any) -> list[str]:
    """Return what the command prints of a result."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        print_result(result)
    return [line.rstrip() for line in out.getvalue().splitlines()]


def asked(verified: VerifiedTranscript) -> dict[str, str]:
    """Return what each steward reads before deciding."""
    study = verified.study
    procedure = procedure_named(study.procedure)
    cost = procedure.cost(study)
    found = {}
    for party in study.senders:
        owner = None if study.curator is not None else study.owner_named(party.name)
        words_of = StudyTerms.of(procedure, study, cost, party.name)
        found[party.name] = words_of.plain_words(study, owner, "rows")
    return found


def words(html: str) -> list[str]:
    """Return the texts of a page in their order, without its style sheet."""
    body = re.sub(r"<style.*?</style>", "", html, flags=re.DOTALL)
    texts = (text.strip() for text in re.split(r"<[^>]*>", body))
    return [text for text in texts if text]


def picture_of(panel: Any) -> dict[str, Any]:
    """Return the numbers that a chart is drawn from; of a null distribution, only what is marked on it."""
    fields = {f.name: getattr(panel, f.name) for f in dataclasses.fields(panel) if f.name != "null"}
    return {"kind": type(panel).__name__, **fields}


def plain(value: Any) -> Any:
    """Return a value as JSON has it, numbers to DIGITS digits."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value) if f.name not in HIDDEN
        }
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in (sorted(value) if isinstance(value, set | frozenset) else value)]
    if isinstance(value, Enum):
        return plain(value.value)
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if hasattr(value, "model_dump"):
        return plain(value.model_dump(mode="json"))
    return json.loads(json.dumps(value, default=str))


if __name__ == "__main__":
    FIXTURES.mkdir(exist_ok=True)
    make(sys.argv[1:] or list(CASES))
