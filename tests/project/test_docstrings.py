"""Public methods say what they do; one that overrides says it only where its base class does not."""

import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from types import ModuleType

import tacit
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
