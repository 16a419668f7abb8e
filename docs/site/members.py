"""What `tacit.local` has, as directives: functions in one place, what they plan with in another."""

import inspect
from collections.abc import Callable

import tacit.local
import tacit.results


def local_functions() -> str:
    """Return a directive for every function of ``tacit.local``."""
    return _directives("autofunction", inspect.isfunction)


def local_plans() -> str:
    """Return a directive for every class of ``tacit.local`` but results, which stand in their own section."""
    elsewhere = {*tacit.results.__all__, "ReleasedDatabase"}
    return _directives("autoclass", lambda value: inspect.isclass(value) and value.__name__ not in elsewhere)


def _directives(directive: str, wanted: Callable[[object], bool]) -> str:
    names = [name for name in tacit.local.__all__ if wanted(getattr(tacit.local, name))]
    return "\n".join(f".. {directive}:: tacit.local.{name}" for name in names)
