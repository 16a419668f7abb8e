"""Names of a package that load, with the module that has them, when they are first used (PEP 562).

Where they come from stands once, in the imports under ``if TYPE_CHECKING`` that type checkers and editors
follow, and is read here from the package's source.
"""

import ast
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any


def lazy_names(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` of a package that is being imported."""
    loader: Any = vars(sys.modules[package])["__loader__"]
    module_of = {
        alias.name: statement.module
        for block in ast.parse(loader.get_source(package)).body
        if isinstance(block, ast.If) and isinstance(block.test, ast.Name) and block.test.id == "TYPE_CHECKING"
        for statement in block.body
        if isinstance(statement, ast.ImportFrom) and statement.module is not None
        for alias in statement.names
    }

    def find(name: str) -> Any:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found = getattr(import_module(module_of[name]), name)
        setattr(sys.modules[package], name, found)
        return found

    def listed() -> list[str]:
        return sorted({*vars(sys.modules[package]), *module_of})

    return find, listed
