"""Machines that could round a feature otherwise are told apart, by what they are and by what they compute."""

import subprocess
import sys

import numpy as np
import pytest

from tacit_services.shared import compute as module
from tacit_services.shared.compute import arithmetic, probe


def test_two_processes_of_one_machine_compute_alike() -> None:
    command = "from tacit_services.shared.compute import probe; print(probe())"
    done = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == probe() == arithmetic()["rounding probe"]


@pytest.mark.parametrize("name", ["cos", "sin", "exp", "log1p"])
def test_one_last_bit_in_one_number_is_noticed(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    genuine, before = getattr(np, name), probe()

    def off(values: np.typing.NDArray[np.float64]) -> np.typing.NDArray[np.float64]:
        found = genuine(values)
        found[17] = np.nextafter(found[17], np.inf)
        return np.asarray(found)

    monkeypatch.setattr(module.np, name, off)
    assert probe() != before
