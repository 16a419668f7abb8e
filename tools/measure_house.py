"""Measure how much there is to read, and how it hangs together.

    python tools/measure_house.py

Counts are of Python files of the three products (protocol, services, clients), but of tests and docs.
"""

import ast
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from importlib import import_module
from itertools import combinations
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parent.parent
PRODUCTS = {"tacit_protocol": "protocol", "tacit_services": "services", "tacit": "clients"}
PROCEDURES = "tacit_protocol.procedures"
SMALL = 12
"""Most lines of a small function, its signature and docstring among them."""

FIRST_CALL = """
import sys, json
import tacit.local
import numpy as np
rng = np.random.default_rng(1)
import pandas as pd
x, y = (pd.DataFrame({"age": rng.normal(50, 9, 200)}) for _ in range(2))
tacit.local.kernel_two_sample(x, y, epsilon=1, delta=1e-5, bounds={"age": (0, 120)})
files = [getattr(m, "__file__", None) for m in list(sys.modules.values())]
print(json.dumps([f for f in files if f and f.endswith(".py")]))
"""


def sources(folder: str) -> Iterator[Path]:
    """Yield the Python files of a folder."""
    yield from sorted((ROOT / folder).rglob("*.py"))


def lines(files: Iterator[Path] | list[Path]) -> int:
    """Count lines."""
    return sum(len(file.read_text("utf-8").splitlines()) for file in files)


def first_call() -> tuple[int, int]:
    """Return how many modules of the products, and lines, a first call in one process loads."""
    found = subprocess.run(
        [sys.executable, "-c", FIRST_CALL], capture_output=True, text=True, check=True, cwd=ROOT
    )
    own = [Path(file) for file in json.loads(found.stdout.splitlines()[-1])]
    kept = [file for file in own if any((ROOT / folder) in file.parents for folder in PRODUCTS.values())]
    return len(kept), lines(kept)


def files_passed() -> dict[str, int]:
    """Return how many files a row passes at an agent, and a release at a tester (``trace_services.py``)."""
    command = [sys.executable, str(Path(__file__).parent / "trace_services.py")]
    found = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    return dict(json.loads(found.stdout))


def circles(graph: grimp.ImportGraph) -> list[set[str]]:
    """Return the strongly connected parts of several modules (Tarjan's algorithm, without recursion)."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    held: list[str] = []
    on: set[str] = set()
    found: list[set[str]] = []
    for root in sorted(graph.modules):
        if root in order:
            continue
        work = [(root, iter(sorted(graph.find_modules_directly_imported_by(root))))]
        order[root] = low[root] = len(order)
        held.append(root)
        on.add(root)
        while work:
            module, rest = work[-1]
            for other in rest:
                if other not in order:
                    order[other] = low[other] = len(order)
                    held.append(other)
                    on.add(other)
                    work.append((other, iter(sorted(graph.find_modules_directly_imported_by(other)))))
                    break
                if other in on:
                    low[module] = min(low[module], order[other])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[module])
                if low[module] == order[module]:
                    part = set[str]()
                    while module not in part:
                        part.add(held.pop())
                    on -= part
                    if len(part) > 1:
                        found.append(part)
    return found


def procedure_rooms(graph: grimp.ImportGraph) -> set[str]:
    """Return the modules and packages of ``procedures`` that define a procedure."""
    rooms = set()
    for module in sorted(graph.modules):
        if not module.startswith(PROCEDURES + "."):
            continue
        file = ROOT / "protocol" / Path(*module.split("."))
        source = file / "__init__.py" if file.is_dir() else file.with_suffix(".py")
        tree = ast.parse(source.read_text("utf-8"))
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and any(
                isinstance(part, ast.AnnAssign)
                and isinstance(part.target, ast.Name)
                and part.target.id == "name"
                and isinstance(part.value, ast.Constant)
                and isinstance(part.value.value, str)
                for part in node.body
            ):
                rooms.add(".".join(module.split(".")[:3]))
    return rooms


def imports_between(graph: grimp.ImportGraph, rooms: set[str]) -> int:
    """Count pairs of rooms of procedures of which one imports the other."""

    def within(room: str) -> set[str]:
        return {module for module in graph.modules if module == room or module.startswith(room + ".")}

    count = 0
    for one, other in combinations(sorted(rooms), 2):
        a, b = within(one), within(other)
        count += any(graph.find_modules_directly_imported_by(module) & b for module in a) or any(
            graph.find_modules_directly_imported_by(module) & a for module in b
        )
    return count


def small_functions_with_one_use(trees: list[ast.Module]) -> int:
    """Count functions of SMALL lines or fewer whose name stands in exactly one other place."""
    named: Counter[str] = Counter()
    defined: Counter[str] = Counter()
    small = []
    for tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, ast.Name):
                named[node.id] += 1
            elif isinstance(node, ast.Attribute):
                named[node.attr] += 1
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                defined[node.name] += 1
                if (node.end_lineno or node.lineno) - node.lineno + 1 <= SMALL and not node.decorator_list:
                    small.append(node.name)
    return sum(named[name] == 1 and defined[name] == 1 for name in small)


def overruled_defaults() -> list[str]:
    """Name the parameters whose declared default no study of the grid gets, of those it says nothing of."""
    sys.path.insert(0, str(ROOT / "tests" / "support"))
    read_grid = import_module("study_grid").read_grid
    from tacit_protocol.procedures.discovery import PROCEDURES  # noqa: PLC0415

    chosen: dict[str, list[dict[str, object]]] = {}
    for row, studies in read_grid().items():
        found = [dict(study.get("defaults", {})) for study in studies.values()]
        chosen.setdefault(row.partition(",")[0], []).extend(found)
    return [
        f"{name}.{field}"
        for name, procedure in PROCEDURES.items()
        for field, own in procedure.Parameters.model_fields.items()
        if not own.is_required() and all(said.get(field, own.default) != own.default for said in chosen[name])
    ]


def lines_of_a_new_test() -> int:
    """Count the lines of the module that the how-to page of procedures builds."""
    page = (ROOT / "docs" / "how-to" / "add-a-procedure.md").read_text("utf-8")
    return len(page.partition("```python\n")[2].partition("\n```")[0].splitlines())


def class_names(trees: list[ast.Module]) -> Counter[str]:
    """Count how many classes, at the top of a module, have a name."""
    return Counter(node.name for tree in trees for node in tree.body if isinstance(node, ast.ClassDef))


def main() -> None:
    """Print the figures."""
    sys.path[:0] = [str(ROOT / folder) for folder in PRODUCTS.values()]
    files = [file for folder in PRODUCTS.values() for file in sources(folder)]
    trees = [ast.parse(file.read_text("utf-8")) for file in files]
    graph = grimp.build_graph(*PRODUCTS, cache_dir=None)
    rooms = procedure_rooms(graph)
    modules, loaded = first_call()
    passed = files_passed()
    shared = sorted(name for name, count in class_names(trees).items() if count > 1)
    figures = {
        "product lines": lines(files),
        "modules loaded by a first call": modules,
        "lines loaded by a first call": loaded,
        "files that a CSV row passes until its release is signed": passed["row"],
        "files that a release passes until the verdict is stored": passed["release"],
        "circles of imports": len(circles(graph)),
        f"pairs of {len(rooms)} rooms of procedures that import one another": imports_between(graph, rooms),
        f"functions of {SMALL} lines or fewer with one use": small_functions_with_one_use(trees),
        "class names with two meanings or more": len(shared),
        "parameters whose declared default no study gets": len(overruled_defaults()),
        "lines of a new test": lines_of_a_new_test(),
        "test lines": lines(list(sources("tests"))),
        "words of docs": sum(
            len([word for word in file.read_text("utf-8").split() if any(map(str.isalpha, word))])
            for file in sorted((ROOT / "docs").rglob("*.md"))
        ),
    }
    for name, value in figures.items():
        print(f"{value:>8}  {name}")


if __name__ == "__main__":
    main()
