"""The import contract of pyproject.toml holds, and catches a violation planted in a copy."""

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import grimp
import pytest

from tacit_protocol.procedures.discovery import PROCEDURES

ROOT = Path(__file__).resolve().parents[2]
SOURCE_ROOTS = ("protocol", "services", "clients")
PACKAGES = ("protocol/tacit_protocol", "services/tacit_services", "clients/tacit")

PROTOCOL = "protocol/tacit_protocol"
BETWEEN = "services and clients never import each other"

# (module that offends, or the folder of a new one, what it imports, the contract that must say so)
VIOLATIONS = [
    ("services/tacit_services", "tacit", BETWEEN),
    ("clients/tacit", "tacit_services", BETWEEN),
    (PROTOCOL, "tacit_services", "the protocol imports neither"),
    (f"{PROTOCOL}/features", "tacit", "the protocol imports neither"),
    (f"{PROTOCOL}/privacy", "sqlalchemy", "the protocol is pure"),
    (f"{PROTOCOL}/numerics", "random", "the protocol is pure"),
    (f"{PROTOCOL}/messages", "tacit_protocol.numerics", "messages and signing know no"),
    (f"{PROTOCOL}/signing.py", "tacit_protocol.features", "messages and signing know no"),
    (f"{PROTOCOL}/privacy", "tacit_protocol.procedures", "privacy knows no"),
    (f"{PROTOCOL}/numerics", "tacit_protocol.messages", "features and numerics"),
    (f"{PROTOCOL}/numerics", "tacit_protocol.procedures", "features and numerics"),
    (f"{PROTOCOL}/domain.py", "tacit_protocol.privacy", "the domain knows nothing"),
    (f"{PROTOCOL}/verdicts", "tacit_protocol.procedures", "what a verdict says"),
    (f"{PROTOCOL}/procedures", "tacit_protocol.reporting", "what a verdict says"),
    (f"{PROTOCOL}/procedures", "opendp", "privacy noise comes from one module"),
]


def lint_imports(root: Path) -> subprocess.CompletedProcess[str]:
    """Run import-linter on the tree at ``root``, whose packages come before any installed ones."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(str(root / part) for part in SOURCE_ROOTS)}
    command = [str(Path(sys.executable).parent / "lint-imports"), "--no-cache", "--no-logo"]
    command += ["--config", str(root / "pyproject.toml")]
    return subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def copied_tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("tree")
    for package in PACKAGES:
        shutil.copytree(ROOT / package, root / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", root)
    return root


def require_no_circle(graph: grimp.ImportGraph) -> None:
    TopologicalSorter(
        {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}
    ).prepare()


def test_no_module_imports_itself_round_a_circle() -> None:
    """Imports inside functions and those for types alone are looked at too."""
    graph = grimp.build_graph("tacit_protocol", "tacit_services", "tacit", cache_dir=None)
    require_no_circle(graph)
    graph.add_import(importer="tacit_services.agent.settings", imported="tacit_services.agent.notices")
    with pytest.raises(CycleError):
        require_no_circle(graph)


def imports_of_procedures(graph: grimp.ImportGraph) -> set[tuple[str, str]]:
    """Return imports, from elsewhere in ``procedures``, of modules of a procedure's own.

    Those are the module that defines it and, where that is a package, every module of the package.
    """
    home = "tacit_protocol.procedures"
    found = set()
    for owner in {type(one).__module__ for one in PROCEDURES.values() if one.origin is None}:
        own = {module for module in graph.modules if module == owner or module.startswith(f"{owner}.")}
        for imported in own:
            importers = graph.find_modules_that_directly_import(imported) - own
            found |= {(one, imported) for one in importers if one.startswith(f"{home}.")}
    return found


def test_no_procedure_imports_another() -> None:
    """What several share is a room beneath them, which knows none of them."""
    graph = grimp.build_graph("tacit_protocol", cache_dir=None)
    assert imports_of_procedures(graph) == set()
    home = "tacit_protocol.procedures"
    planted = {
        (f"{home}.two_sample.verdict", f"{home}.survival"),
        (f"{home}.curated_two_sample.plan", f"{home}.joint_independence.plan"),
    }
    for importer, imported in planted:
        graph.add_import(importer=importer, imported=imported)
    assert imports_of_procedures(graph) == planted


def test_the_source_keeps_the_import_contract() -> None:
    result = lint_imports(ROOT)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.sweep(2)
@pytest.mark.parametrize(("offender", "imported", "contract"), VIOLATIONS)
def test_the_contract_catches_a_planted_violation(
    copied_tree: Path, offender: str, imported: str, contract: str
) -> None:
    place = copied_tree / offender
    planted = place / "planted.py" if place.is_dir() else place
    before = None if place.is_dir() else planted.read_text()
    planted.write_text(f"{before or ''}\nimport {imported}\n")
    try:
        result = lint_imports(copied_tree)
    finally:
        planted.unlink() if before is None else planted.write_text(before)
    assert result.returncode == 1, result.stdout + result.stderr
    broken = [line for line in result.stdout.splitlines() if " BROKEN" in line]
    assert any(line.startswith(contract) for line in broken), result.stdout


def test_every_contract_has_a_planted_violation() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    for contract in settings["contracts"]:
        assert any(contract["name"].startswith(start) for _, _, start in VIOLATIONS), contract["name"]


def test_the_contract_covers_every_package_of_the_distribution() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert tuple(packages) == PACKAGES
    roots = project["tool"]["importlinter"]["root_packages"]
    assert sorted(roots) == sorted(Path(package).name for package in packages)


MESSAGE = "tacit.notices"
"""What webhooks are told that a message is; no module."""


def test_services_and_clients_name_each_other_only_as_the_programs_they_start() -> None:
    stated = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["tacit"]["programs"]
    found = {}
    for package, other in ((PACKAGES[1], r"tacit(\.\w+)+"), (PACKAGES[2], r"tacit_services[\w.]*")):
        for path in (ROOT / package).rglob("*.py"):
            tree = ast.parse(path.read_text("utf-8"))
            texts = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
            names = (n for n in ast.walk(tree) if isinstance(n, ast.Constant) and id(n) not in texts)
            for name in names:
                if re.fullmatch(other, str(name.value)) and name.value != MESSAGE:
                    found[str(path.relative_to(ROOT))] = name.value
    assert found == stated


def bound_twice(source: str) -> set[str]:
    """The names that a module binds at its top more than once, other than in branches and by overloads."""
    bound: list[str] = []
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign):
            bound += [target.id for target in node.targets if isinstance(target, ast.Name)]
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            bound.append(node.target.id)
        elif isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and "overload" not in {
            ast.unparse(decorator) for decorator in node.decorator_list
        }:
            bound.append(node.name)
    return {name for name in bound if bound.count(name) > 1}


def test_no_module_binds_a_name_twice() -> None:
    """Where modules are merged, the second of two constants of one name would be everybody's."""
    assert bound_twice("A = 1\ndef f(): ...\nA: int = 2\n") == {"A"}
    found = {
        f"{path.relative_to(ROOT)}: {name}"
        for package in (*PACKAGES, "benchmarks", "examples", "tools")
        for path in (ROOT / package).rglob("*.py")
        for name in bound_twice(path.read_text("utf-8"))
    }
    assert found == set()
