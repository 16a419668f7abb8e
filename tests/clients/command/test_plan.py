"""`tacit plan power`, `curve`, `smallest`, `choice`: flags, drafts, JSON, pictures, and what is refused."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from tacit.command.app import command_tree
from tacit.errors import InputError

AGE = ("--column", "age:0:120", "--runs", "6", "--seed", "1")

DRAFT = """
title = "Alike?"
procedure = "homogeneity"
epsilon = 1.0
delta = 0.0
level = 0.01
[[columns]]
kind = "categorical"
name = "sex"
levels = ["F", "M"]
[[owners]]
name = "north"
data_set = "patients"
units = 3000
[[owners]]
name = "south"
data_set = "patients"
units = 2000
"""


def planned(*arguments: str) -> str:
    result = CliRunner().invoke(command_tree(), ["plan", *arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


def test_a_draft_is_planned_with_its_own_columns_owners_and_budget(tmp_path: Path) -> None:
    file = tmp_path / "study.toml"
    file.write_text(DRAFT)
    plan = json.loads(planned("power", str(file), "--runs", "4", "--seed", "1", "--json"))
    assert (plan["n"], plan["alpha"], plan["epsilon"], plan["delta"]) == ([3000, 2000], 0.01, 1.0, 0.0)
    assert plan["power"] == 1.0
    assert plan["words"].startswith("With 3000 and 2000 units and epsilon 1 the test finds a difference of")
    with pytest.raises(InputError, match="leave those flags out"):
        planned("power", str(file), "--cells", "4")


def test_a_curve_is_drawn_and_its_numbers_are_in_the_picture(tmp_path: Path) -> None:
    picture = tmp_path / "power.svg"
    flags = ("--n", "1000", "--value", "0.3", "--value", "3", "--picture", str(picture), "--json")
    found = json.loads(planned("curve", "kernel_two_sample", *AGE, *flags))
    assert [point["at"] for point in found["points"]] == [0.3, 3.0]
    drawn = ElementTree.parse(picture).getroot()  # noqa: S314 (our own picture)
    titles = [element.text for element in drawn.iter("{http://www.w3.org/2000/svg}title")]
    assert titles == [f"{point['at']:.6g}: {point['value']:.3g}" for point in found["points"]]
    with pytest.raises(InputError, match=r"ends in \.svg"):
        planned("curve", "kernel_two_sample", *AGE, "--picture", str(tmp_path / "power.png"))


def test_the_smallest_and_the_best_are_said_in_words() -> None:
    flags = ("--cells", "4", "--epsilon", "2", "--runs", "20", "--seed", "1")
    assert "units for an error of 1 %." in planned("smallest", "noisy_counts", *flags, "--target", "0.01")
    chosen = planned("choice", "noisy_counts", *flags, "--n", "1000")
    assert "Best of 2 choices: noise = laplace." in chosen
    assert "noise = gaussian" in chosen
    with pytest.raises(InputError, match="--target"):
        planned("smallest", "noisy_counts", *flags)
