"""A first call loads what it needs, and lazily loaded names are all there."""

import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import tacit
import tacit.local
import tacit.results
from tacit_protocol.procedures.discovery import PROCEDURES

MODULES_MAX, LINES_MAX = 70, 25_000

FIRST_CALL = """
import json, sys
import numpy as np
import tacit
x, y = np.random.default_rng(1).normal(50, 9, (2, 200))
tacit.local.kernel_two_sample(x, y, epsilon=1, delta=1e-5, bounds=(0, 120))
names = [name for name in sys.modules if name.partition(".")[0] in ("tacit", "tacit_protocol")]
print(json.dumps([[name, sys.modules[name].__file__] for name in names]))
"""


def test_a_first_call_loads_no_other_procedure_and_little_else() -> None:
    done = subprocess.run([sys.executable, "-c", FIRST_CALL], capture_output=True, text=True, check=True)
    loaded = dict(json.loads(done.stdout))
    others = {type(one).__module__ for name, one in PROCEDURES.items() if name != "kernel_two_sample"}
    assert not others & set(loaded)
    assert not {"tacit.planning", "tacit.database.released", "tacit.studies.draft"} & set(loaded)
    assert len(loaded) <= MODULES_MAX
    assert sum(len(Path(file).read_text("utf-8").splitlines()) for file in loaded.values()) <= LINES_MAX


@pytest.mark.parametrize("module", [tacit, tacit.local, tacit.results], ids=lambda one: one.__name__)
def test_every_public_name_is_there_and_listed(module: ModuleType) -> None:
    for name in module.__all__:
        assert getattr(module, name) is getattr(module, name)
    assert {*module.__all__} <= {*dir(module)}
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        module.nothing  # noqa: B018
