"""requirements/ pins the whole environment, exactly, by name and by the hashes of its files."""

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
FILES = ROOT / "requirements"
PIN = re.compile(r"(?P<name>[A-Za-z0-9._-]+)==(?P<version>[A-Za-z0-9.!+]+)(?: ; (?P<marker>[^\\]+?))? \\")
HASH = re.compile(r"    --hash=sha256:[0-9a-f]{64}(?P<more> \\)?")

PYTHONS = ("3.11.0", "3.11.9", "3.12.0", "3.13.0", "3.14.0")
PLATFORMS = (
    ("linux", "Linux", "posix", "x86_64"),
    ("linux", "Linux", "posix", "aarch64"),
    ("darwin", "Darwin", "posix", "arm64"),
    ("win32", "Windows", "nt", "AMD64"),
)


@dataclass(frozen=True)
class Pin:
    """One distribution at one version, with the hashes of its files."""

    name: str
    version: str
    marker: str
    hashes: tuple[str, ...]

    def holds(self, environment: Mapping[str, str]) -> bool:
        text = f"{self.name} ; {self.marker}" if self.marker else self.name
        marker = Requirement(text).marker
        return marker is None or marker.evaluate(dict(environment))


def pins_of(text: str) -> tuple[list[str], list[Pin]]:
    """Read the files that a file stands on, and its pins; anything else in it is an error."""
    below: list[str] = []
    pins: list[Pin] = []
    lines = iter(text.splitlines())
    for line in lines:
        if line.startswith("#"):
            continue
        if match := re.fullmatch(r"-r (\w+\.txt)", line):
            below.append(match[1])
            continue
        found = PIN.fullmatch(line)
        if found is None:
            raise ValueError(f"not an exact pin with hashes: {line}")
        hashes: list[str] = []
        for kept in lines:
            hashed = HASH.fullmatch(kept)
            if hashed is None:
                raise ValueError(f"not a hash: {kept}")
            hashes.append(kept.split()[0])
            if not hashed["more"]:
                break
        else:
            raise ValueError(f"no hash: {line}")
        pins.append(
            Pin(canonicalize_name(found["name"]), found["version"], found["marker"] or "", tuple(hashes))
        )
    return below, pins


def whole(name: str) -> list[Pin]:
    """Return the pins of a file and of those that it stands on."""
    below, pins = pins_of((FILES / name).read_text())
    return [*pins, *(pin for other in below for pin in whole(other))]


def environment_of(python: str, platform: tuple[str, str, str, str]) -> dict[str, str]:
    return {
        "implementation_name": "cpython",
        "implementation_version": python,
        "platform_python_implementation": "CPython",
        "python_full_version": python,
        "python_version": ".".join(python.split(".")[:2]),
        "sys_platform": platform[0],
        "platform_system": platform[1],
        "os_name": platform[2],
        "platform_machine": platform[3],
        "extra": "",
    }


def here() -> dict[str, str]:
    from packaging.markers import default_environment  # noqa: PLC0415

    return {name: str(value) for name, value in default_environment().items()} | {"extra": ""}


def versions(pins: Iterable[Pin], environment: Mapping[str, str]) -> dict[str, str]:
    """Return what these pins install somewhere; raises ValueError where they contradict each other."""
    found: dict[str, str] = {}
    for pin in pins:
        if pin.holds(environment) and found.setdefault(pin.name, pin.version) != pin.version:
            raise ValueError(f"pinned at two versions: {pin.name}")
    return found


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


def project_requirements(*extras: str) -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    optional = project.get("optional-dependencies", {})
    return [*project["dependencies"], *(text for extra in extras for text in optional[extra])]


def build_requirements() -> list[str]:
    wanted: list[str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    return [*wanted, "editables"]


SETS = {
    "build.txt": build_requirements(),
    "runtime.txt": project_requirements(),
    "dask.txt": project_requirements("dask"),
    "sources.txt": project_requirements("duckdb", "files", "mssql", "mysql", "oracle"),
    "dev.txt": [*project_requirements("dask", "dev"), *build_requirements()],
}


def test_there_is_a_file_for_each_set() -> None:
    assert {path.name for path in FILES.iterdir()} == set(SETS)


@pytest.mark.parametrize("name", sorted(SETS))
def test_everything_a_set_needs_is_pinned_at_the_installed_version(name: str) -> None:
    assert unpinned(SETS[name], versions(whole(name), here())) == set()


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("platform", PLATFORMS, ids=lambda platform: f"{platform[0]}-{platform[3]}")
def test_on_every_python_and_platform_each_name_has_one_version_that_satisfies_the_ranges(
    python: str, platform: tuple[str, str, str, str]
) -> None:
    environment = environment_of(python, platform)
    for name, wanted in SETS.items():
        pins = versions(whole(name), environment)
        for text in wanted:
            requirement = Requirement(text)
            if requirement.marker is None or requirement.marker.evaluate(environment):
                version = pins[canonicalize_name(requirement.name)]
                assert requirement.specifier.contains(version, prereleases=True), (name, text)


def test_a_fresh_environment_runs_what_runtime_alone_pins() -> None:
    """Nothing that only the development set has is imported by what parties run."""
    runtime, dev = versions(whole("runtime.txt"), here()), versions(whole("dev.txt"), here())
    assert runtime.items() <= dev.items()
    assert {"pandas", "pytest", "distributed", "hatchling"}.isdisjoint(runtime)
