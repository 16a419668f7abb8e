"""constraints.txt pins the whole environment, exactly and by name alone."""

import re
import tomllib
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
PIN = re.compile(r"(?P<name>[A-Za-z0-9._-]+)==(?P<version>[A-Za-z0-9.!+]+)( ; (?P<marker>.+))?")


def pins_of(text: str) -> dict[str, str]:
    """Read ``name==version`` lines; anything else (a URL, a path, an option, a range) is an error."""
    pins: dict[str, str] = {}
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        match = PIN.fullmatch(line)
        if match is None:
            raise ValueError(f"not an exact pin: {line}")
        name = canonicalize_name(match["name"])
        if name in pins:
            raise ValueError(f"pinned twice: {name}")
        pins[name] = match["version"]
    return pins


def unpinned(requirements: Iterable[str], pins: Mapping[str, str]) -> set[str]:
    """Return what the requirements need here, directly or not, and is not pinned at its installed version."""
    missing: set[str] = set()
    seen: set[tuple[str, str]] = set()
    waiting = [(Requirement(text), "") for text in requirements]
    while waiting:
        requirement, extra = waiting.pop()
        if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
            continue
        name = canonicalize_name(requirement.name)
        if pins.get(name) != metadata.version(name):
            missing.add(name)
        for wanted in ("", *requirement.extras):
            if (name, wanted) not in seen:
                seen.add((name, wanted))
                waiting += [(Requirement(text), wanted) for text in metadata.requires(name) or ()]
    return missing


def project_requirements() -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    optional = project["project"].get("optional-dependencies", {})
    return [
        *project["build-system"]["requires"],
        *project["project"]["dependencies"],
        *(requirement for extra in optional.values() for requirement in extra),
    ]


def test_everything_the_project_needs_is_pinned_at_the_installed_version() -> None:
    assert unpinned(project_requirements(), pins_of((ROOT / "constraints.txt").read_text())) == set()


def test_the_check_sees_a_missing_and_a_stale_pin_of_an_indirect_requirement() -> None:
    pins = pins_of((ROOT / "constraints.txt").read_text())
    pins["starlette"] = "0.0.1"
    del pins["idna"]
    assert unpinned(project_requirements(), pins) == {"starlette", "idna"}


@pytest.mark.parametrize(
    "line",
    [
        "numpy>=2",
        "numpy==2.*",
        "numpy==2.0 --hash=sha256:00",
        "numpy @ file:///numpy.whl",
        "https://example.org/numpy-2.0.whl",
        "--index" + "-url https://example.org",
        "-e .",
        "numpy==2.0\nNumPy==2.1",
    ],
)
def test_the_reader_refuses_anything_but_one_exact_pin_by_name(line: str) -> None:
    with pytest.raises(ValueError, match=r"not an exact pin|pinned twice"):
        pins_of(line)


def test_the_pins_satisfy_the_ranges_of_pyproject() -> None:
    pins = pins_of((ROOT / "constraints.txt").read_text())
    for text in project_requirements():
        requirement = Requirement(text)
        version = pins[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(version, prereleases=True), text


def test_the_editable_project_is_not_pinned() -> None:
    assert "tacit" not in pins_of((ROOT / "constraints.txt").read_text())
