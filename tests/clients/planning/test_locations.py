"""Optimised test locations from Python and from the command line: public rows in, parameters out."""

import json
import math
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from tacit.command.app import command_tree
from tacit.errors import InputError
from tacit.in_process.runner import local_study
from tacit.in_process.samples import ArrayTable, domain_of, read_samples
from tacit.local import kernel_two_sample, optimise_locations
from tacit.planning.locations import _planned_test
from tacit_protocol.domain import PooledTable, Table
from tacit_protocol.features.kernels import ProductKernel
from tacit_protocol.privacy.noise import OpenDPNoise
from tacit_protocol.procedures.discovery import procedure_named
from tacit_protocol.procedures.two_sample.release import KernelTwoSampleParameters

PLAN: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-5, "n": 400, "seed": 1, "starts": 2}
BOUNDS = {"age": (0, 120), "sex": ["F", "M"]}


def people(seed: int, n: int = 400, age: float = 50.0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return pd.DataFrame({"age": rng.normal(age, 10, n), "sex": rng.choice(["F", "M"], n)})


def test_parameters_serve_the_test_as_they_are() -> None:
    found = optimise_locations(people(1), people(2, age=58), bounds=BOUNDS, n_features=2, **PLAN)
    KernelTwoSampleParameters.model_validate(json.loads(json.dumps(found.parameters)), strict=False)
    assert found.n_features == 2
    assert found.n == (400, 400)
    assert found.criterion > found.unoptimised
    for age, sex in found.parameters["locations"]:
        assert 0 <= age <= 120
        assert sex in {"F", "M"}
    # A difference at which the predicted power is 1; the chance of missing it is below 1e-6.
    assert found.power > 0.99
    x, y = people(3, 2000), people(4, 2000, age=62)
    result = kernel_two_sample(x, y, epsilon=1, delta=1e-5, bounds=BOUNDS, **found.parameters)
    assert result.reject
    named = {tuple(location.values) for location in result.locations}
    assert named == {("age", "sex")}


@pytest.mark.parametrize("n", [(400, 400), (300, 900)])
@pytest.mark.parametrize("setting", ["owners", "curator"])
def test_the_planned_noise_is_that_of_the_procedure(setting: Any, n: tuple[int, int]) -> None:
    parameters = {"features": "me", "n_features": 3, "bandwidth": 0.3}
    domain = domain_of({"age": (0, 120)}, ["age"])
    name = "curated_two_sample" if setting == "curator" else "kernel_two_sample"
    study = local_study(
        name,
        domain,
        ["x", "y"],
        parameters,
        epsilon=1.0,
        delta=1e-5,
        alpha=0.05,
        seed="0" * 32,
        curated=setting == "curator",
    )
    samples = [read_samples([people(i, size)[["age"]]], None)[0] for i, size in enumerate(n)]
    tables = [ArrayTable.of(sample, domain) for sample in samples]
    procedure = procedure_named(name)
    held: dict[str, Table] = {"local.curator": PooledTable(domain, dict(zip("xy", tables, strict=True)))}
    if setting == "owners":
        held = dict(zip("xy", tables, strict=True))
    releases = [
        procedure.privatise(study, procedure.summarise(study, table), OpenDPNoise())
        for table in held.values()
    ]
    planned = _planned_test(1.0, 1e-5, n, "mmd", setting)
    diameter, moment_diameter = ProductKernel("gaussian", 0.3).distance_max(1, 0), math.sqrt(2.0)
    means = [r.vectors["mean" if setting == "owners" else "mean_difference"].scale for r in releases]
    moments = [r.vectors["second_moment_diagonal"].scale / sum(n) for r in releases]
    if setting == "owners":
        means = [scale / size for scale, size in zip(means, n, strict=True)]
    assert planned.mean_noise * diameter == pytest.approx(math.hypot(*means), rel=1e-3)
    assert planned.moment_noise * moment_diameter == pytest.approx(math.hypot(*moments), rel=2e-3)


def test_the_command_takes_public_files_and_prints_parameters_for_a_draft(tmp_path: Path) -> None:
    people(1).to_csv(tmp_path / "public.csv", index=False)
    people(2, age=60).to_csv(tmp_path / "second.csv", index=False)
    files = ["--public", f"{tmp_path}/public.csv", "--second", f"{tmp_path}/second.csv"]
    columns = ["--column", "age:0:120", "--column", "sex=F,M"]
    command = ["plan", "locations", *files, *columns, "--n", "400", "--epsilon", "1", "--seed", "1"]
    command += ["--n-features", "2", "--statistic", "noise-aware"]
    result = CliRunner().invoke(command_tree(), command)
    assert result.exit_code == 0, result.output
    parameters = tomllib.loads(result.stdout[result.stdout.index("[parameters]") :])["parameters"]
    KernelTwoSampleParameters.model_validate(parameters, strict=False)
    assert len(parameters["locations"]) == 2
    assert (
        json.loads(CliRunner().invoke(command_tree(), [*command, "--json"]).stdout)["parameters"]
        == parameters
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"effect": None}, "say what is expected"),
        ({"public_y": np.zeros((9, 1))}, "not both"),
        ({"setting": "nobody"}, "setting must be"),
        ({"training_share": 1.0}, "training_share"),
        ({"delta": 0.0}, "delta"),
        ({"effect": 0.0}, "look the same"),
        ({"public_x": np.zeros((2, 1))}, "four rows"),
    ],
)
def test_what_cannot_be_used_is_told(change: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"public_x": np.linspace(0, 1, 9)[:, None], "effect": 0.2, "bounds": (0, 2)}
    with pytest.raises(InputError, match=message):
        optimise_locations(**PLAN | given | change)
