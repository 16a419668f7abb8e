"""requirements/ pins the whole environment, exactly, by name and by the hashes of its files."""

import re
import subprocess
import sys
import tomllib
import zipfile
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
    "dev.txt": [*project_requirements("dask", "dev"), *build_requirements()],
}


def test_there_is_a_file_for_each_set() -> None:
    assert {path.name for path in FILES.iterdir()} == set(SETS)


@pytest.mark.parametrize("name", sorted(SETS))
def test_everything_a_set_needs_is_pinned_at_the_installed_version(name: str) -> None:
    assert unpinned(SETS[name], versions(whole(name), here())) == set()


def test_the_check_sees_a_missing_and_a_stale_pin_of_an_indirect_requirement() -> None:
    pins = versions(whole("dev.txt"), here())
    pins["starlette"] = "0.0.1"
    del pins["idna"]
    assert unpinned(SETS["dev.txt"], pins) == {"starlette", "idna"}


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


@pytest.mark.parametrize(
    "line",
    [
        "numpy>=2 \\\n    --hash=sha256:" + "0" * 64,
        "numpy==2.*",
        "numpy==2.0",
        "numpy==2.0 \\\n    --hash=md5:" + "0" * 32,
        "numpy==2.0 \\\n    --hash=sha256:" + "0" * 64 + " \\",
        "numpy @ file:///numpy.whl",
        "https://example.org/numpy-2.0.whl",
        "--index" + "-url https://example.org",
        "-e .",
    ],
)
def test_the_reader_refuses_anything_but_exact_pins_with_hashes(line: str) -> None:
    with pytest.raises(ValueError, match=r"not an exact pin|not a hash|no hash"):
        pins_of(line)


def test_no_file_names_a_registry_and_the_project_is_not_pinned() -> None:
    for path in FILES.iterdir():
        assert "://" not in path.read_text()
    assert "tacit" not in {pin.name for pin in whole("dev.txt")}


def make_wheel(folder: Path, content: str) -> Path:
    """Write a wheel of one module."""
    path, info = folder / "pinned_thing-1.0-py3-none-any.whl", "pinned_thing-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr("pinned_thing.py", content)
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: pinned-thing\nVersion: 1.0\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(
            f"{info}/RECORD", f"pinned_thing.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n"
        )
    return path


@pytest.mark.long
def test_pip_refuses_a_file_that_has_another_hash_than_the_pin_of_the_form_used_here(tmp_path: Path) -> None:
    made = subprocess.run(
        [sys.executable, "-m", "pip", "hash", str(make_wheel(tmp_path, "honest = True\n"))],
        capture_output=True,
        text=True,
        check=True,
    )
    pinned = tmp_path / "pinned.txt"
    pinned.write_text(f"pinned-thing==1.0 \\\n    {made.stdout.split()[-1]}\n")
    assert len(pins_of(pinned.read_text())[1]) == 1
    top = tmp_path / "top.txt"
    top.write_text("-r pinned.txt\n")

    def install(target: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--require-hashes"]
        places = ["--find" + "-links", str(tmp_path), "--target", str(tmp_path / target), "-r", str(top)]
        return subprocess.run([*command, *places], capture_output=True, text=True, check=False)

    taken = install("first")
    assert taken.returncode == 0, taken.stderr
    make_wheel(tmp_path, "honest = False\n")
    refused = install("second")
    assert refused.returncode != 0
    assert "DO NOT MATCH" in refused.stderr
    assert not (tmp_path / "second" / "pinned_thing.py").exists()
