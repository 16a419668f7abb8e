"""Public methods say what they do; one that overrides says it only where its base class does not."""

import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable, Iterator
from types import ModuleType

import tacit
import tacit.local
import tacit_protocol
import tacit_services

PLANTED = '''
class Base:
    def kept(self):
        """Keep."""

class Made(Base):
    def kept(self):
        return 1

    def bare(self):
        return 2
'''


def undocumented(modules: Iterator[ModuleType]) -> list[str]:
    """Name public methods and properties without a docstring of their own or of a base class."""
    return [
        f"{cls.__module__}.{cls.__qualname__}.{name}"
        for module in modules
        for cls in vars(module).values()
        if inspect.isclass(cls) and cls.__module__ == module.__name__ and not cls.__name__.startswith("_")
        for name, member in vars(cls).items()
        if not name.startswith("_")
        if isinstance(member, property | classmethod | staticmethod)
        or (inspect.isfunction(member) and member.__qualname__ == f"{cls.__qualname__}.{name}")
        if not any(inspect.getdoc(vars(base)[name]) for base in cls.__mro__ if name in vars(base))
    ]


def product_modules() -> Iterator[ModuleType]:
    for package in (tacit_protocol, tacit_services, tacit):
        for found in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
            if not found.name.endswith("__main__"):
                yield importlib.import_module(found.name)


def test_every_public_method_has_a_docstring_or_inherits_one() -> None:
    assert undocumented(product_modules()) == []


def test_a_method_without_one_is_found() -> None:
    module = ModuleType("planted")
    exec(PLANTED, module.__dict__)  # noqa: S102
    assert undocumented(iter([module])) == ["planted.Made.bare"]


# What arguments of the SDK's functions mean.


def unexplained(function: Callable[..., object], shared: str) -> list[str]:
    """Name arguments that neither a function's own text nor the one that functions share explains."""
    own = re.findall(r"^ {4}(\w+): ", inspect.getdoc(function) or "", re.MULTILINE)
    known = {*own, *re.findall(r"``(\w+)``", "".join(re.findall(r"^- (``.*?): ", shared, re.MULTILINE)))}
    return [name for name in inspect.signature(function).parameters if name not in known]


def test_every_argument_of_the_sdk_is_explained() -> None:
    functions = {name: getattr(tacit.local, name) for name in tacit.local.__all__}
    shared = tacit.local.__doc__ or ""
    found = {name: unexplained(one, shared) for name, one in functions.items() if inspect.isfunction(one)}
    assert len(found) > 15
    assert {name: lacking for name, lacking in found.items() if lacking} == {}


def test_an_argument_without_its_meaning_is_found() -> None:
    def planted(own: int, shared: int, bare: int) -> None:
        """Do.

        Args:
            own: here.
        """

    assert unexplained(planted, "- ``shared``, ``other``: there.\n\nAnd ``bare`` words.") == ["bare"]
