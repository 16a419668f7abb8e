"""The image: linted, built in stages from pinned parts, and run by a user without rights."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILE = ROOT / "deploy" / "images" / "Dockerfile"


def instructions(text: str) -> list[tuple[str, str]]:
    """Split a Dockerfile into (instruction, rest), continuation lines joined and comments dropped."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    split = (line.split(maxsplit=1) for line in joined.splitlines() if line.strip())
    return [(word.upper(), rest) for word, rest in split]


def stages(text: str) -> dict[str, list[tuple[str, str]]]:
    """Group the instructions by stage; the first of each is its FROM."""
    found: dict[str, list[tuple[str, str]]] = {}
    current: list[tuple[str, str]] = []
    for word, rest in instructions(text):
        if word == "FROM":
            current = found.setdefault(rest.split(" AS ")[1], [])
        current.append((word, rest))
    return found


def lint(text: str) -> subprocess.CompletedProcess[str]:
    """Run hadolint on a Dockerfile's text; it has a binary for Linux on x86-64 alone."""
    hadolint = shutil.which("hadolint", path=os.pathsep.join([str(Path(sys.executable).parent), os.defpath]))
    if hadolint is None:
        pytest.skip("hadolint has no binary for this platform")
    return subprocess.run([hadolint, "-"], input=text, capture_output=True, text=True, check=False)


def test_hadolint_finds_nothing() -> None:
    result = lint(DOCKERFILE.read_text())
    assert result.returncode == 0, result.stdout


def test_every_base_is_one_pinned_python_or_an_earlier_stage() -> None:
    parts = stages(DOCKERFILE.read_text())
    bases = {block[0][1].split(" AS ")[0] for block in parts.values()} - set(parts)
    assert len(bases) == 1
    assert re.fullmatch(r"python:3\.\d+\.\d+-slim-[a-z]+", bases.pop())


def test_every_install_has_hashes_or_fetches_nothing() -> None:
    installs = [
        command
        for word, rest in instructions(DOCKERFILE.read_text())
        if word == "RUN"
        for command in rest.split("&&")
        if "pip install" in command
    ]
    assert installs
    named = [
        re.search(r" --require-hashes -r \S*requirements/(\w+)\.txt *$", command) for command in installs
    ]
    assert [match and match[1] for match in named] == ["build", "dask", None]
    assert " --no-index --no-deps " in installs[2]


@pytest.mark.sweep(1)
@pytest.mark.parametrize("target", ["tester", "agent", "curator"])
def test_a_target_runs_its_own_module_without_root_and_says_when_it_is_ready(target: str) -> None:
    parts = stages(DOCKERFILE.read_text())
    block = dict(parts["base"]) | dict(parts[target])
    user, _, group = block["USER"].partition(":")
    assert int(user) > 0
    assert int(group) > 0
    assert f'"tacit_services.{target}", "serve"' in block["CMD"]
    assert "/readyz" in block["HEALTHCHECK"]
    assert not any(word == "USER" for word, _ in parts[target])


def test_compose_builds_these_targets_and_runs_the_same_commands_as_the_same_user() -> None:
    parts = stages(DOCKERFILE.read_text())
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    built = {name: service for name, service in services.items() if "build" in service}
    worker = built.pop("tester-worker")
    assert len(built) == 5
    # It runs the tester's image with another command, and listens nowhere.
    assert worker["build"] == built["tester"]["build"]
    assert worker["user"] == built["tester"]["user"]
    assert worker["command"] == ["python", "-m", "tacit_services.tester", "work"]
    assert "ports" not in worker
    for name, service in built.items():
        target = service["build"]["target"]
        assert ROOT / service["build"]["dockerfile"] == DOCKERFILE
        assert service["user"] == dict(parts["base"])["USER"]
        assert yaml.safe_load(dict(parts[target])["CMD"]) == service["command"]
        check = "".join(service["healthcheck"]["test"][-1].split())
        if name.startswith("agent-"):
            assert check in "".join(dict(parts[target])["HEALTHCHECK"].split())
        else:  # the file has them serve TLS, and the image does not know by which certificates
            assert "HTTPSConnection('127.0.0.1'" in check
            assert "cafile='/run/secrets/services_ca'" in check
            assert "c.request('GET','/readyz');exit(c.getresponse().status!=200)" in check
