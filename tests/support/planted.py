"""Planted mistakes: a module compiled again with one piece of its text changed."""

import inspect
from types import ModuleType
from typing import Any


def with_mistake(module: ModuleType, right: str, wrong: str) -> Any:
    """Return a copy of ``module`` in which ``right``, which occurs once, reads ``wrong``."""
    source = inspect.getsource(module)
    assert source.count(right) == 1, "the text to change must occur once"
    copy = ModuleType(module.__name__)
    exec(compile(source.replace(right, wrong), f"{module.__name__}, with a mistake", "exec"), copy.__dict__)  # noqa: S102 (our own module)
    return copy
