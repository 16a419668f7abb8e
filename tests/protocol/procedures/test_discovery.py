"""Procedures are loaded when they are asked for, and every built-in one is listed."""

import inspect
import json
import subprocess
import sys
from importlib import import_module
from pkgutil import walk_packages

import pytest

from tacit_protocol import procedures
from tacit_protocol.procedures.base import Procedure, StudyError
from tacit_protocol.procedures.discovery import BUILT_IN, PROCEDURES, ProcedureRegistry, procedure_named


def test_every_procedure_of_the_package_is_listed_under_its_name() -> None:
    found = {}
    for module in walk_packages(procedures.__path__, f"{procedures.__name__}."):
        for kind in vars(import_module(module.name)).values():
            if inspect.isclass(kind) and Procedure in kind.__mro__ and "name" in vars(kind):
                module_name = kind.__module__.removeprefix(f"{procedures.__name__}.")
                found[kind.name] = f"{module_name}:{kind.__name__}"
    assert tuple(found[name] for name in sorted(found)) == BUILT_IN
    assert {name: one.name for name, one in PROCEDURES.items()} == {name: name for name in PROCEDURES}


def test_names_load_no_procedure_and_one_loads_no_other() -> None:
    code = """
import json, sys
from tacit_protocol.procedures.discovery import PROCEDURES
def loaded():
    return sorted(name for name in PROCEDURES if any(m.endswith("." + name) for m in sys.modules))
names, at_first = list(PROCEDURES), loaded()
assert "survival" in PROCEDURES and "nothing" not in PROCEDURES
one, then = PROCEDURES["survival"].name, loaded()
print(json.dumps([names, at_first, one, then]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    names, at_first, one, then = json.loads(done.stdout)
    assert (at_first, one, then) == ([], "survival", ["survival"])
    assert names == list(PROCEDURES)


def test_a_procedure_is_loaded_once_and_can_be_replaced() -> None:
    registry = ProcedureRegistry(BUILT_IN)
    assert registry["identity"] is registry["identity"]
    other = registry["noisy_counts"]
    registry["identity"] = other
    assert (registry["identity"], len(registry)) == (other, len(PROCEDURES))
    del registry["identity"]
    assert "identity" not in registry
    assert "identity" not in list(registry.loaded())
    with pytest.raises(StudyError, match="unknown procedure; known: aggregated_test, "):
        procedure_named("nothing")
