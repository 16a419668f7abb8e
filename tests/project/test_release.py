"""`make release`: the wheel holds what git holds, the bill of materials the pins, the provenance digests."""

import base64
import hashlib
import json
import os
import re
import subprocess
import zipfile
from pathlib import Path

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from tacit_protocol.signing import PrivateKey

pytestmark = pytest.mark.long

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {"protocol": "tacit_protocol", "services": "tacit_services", "clients": "tacit"}
STATEMENT = "application/vnd.in-toto+json"


@pytest.fixture(scope="module")
def key() -> PrivateKey:
    return PrivateKey.generate()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, key: PrivateKey) -> Path:
    folder = tmp_path_factory.mktemp("release")
    (folder / "key.pem").write_bytes(key.to_pem())
    environment = os.environ | {"RELEASE_KEY_FILE": str(folder / "key.pem")}
    command = [str(ROOT / ".ci" / "release"), str(folder / "dist")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=900)
    assert done.returncode == 0, done.stderr
    assert f"Signed by {key.public_hex}" in done.stdout
    return folder / "dist"


def pinned(*names: str) -> dict[tuple[str, str], set[str]]:
    """The pins of these files with their hashes."""
    found: dict[tuple[str, str], set[str]] = {}
    for name in names:
        text = (ROOT / "requirements" / f"{name}.txt").read_text()
        for block in re.split(r"\n(?=[a-z])", text):
            if match := re.match(r"([a-z0-9-]+)==(\S+)", block):
                found[match[1], match[2]] = set(re.findall(r"sha256:([0-9a-f]{64})", block))
    return found


def test_the_wheel_holds_every_file_of_the_packages_and_no_other(made: Path) -> None:
    (wheel,) = made.glob("*.whl")
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    expected = {
        path.partition("/")[2]
        for path in listed.stdout.splitlines()
        if path.split("/")[1:2] == [PACKAGES.get(path.partition("/")[0])]
    }
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
        metadata = archive.read("tacit-0.1.0.dist-info/METADATA").decode()
    assert held == expected
    assert len(held) > 300
    for extra in ("duckdb", "files", "mysql", "mssql", "oracle", "dask"):
        assert f"Provides-Extra: {extra}" in metadata


@pytest.mark.parametrize(
    ("name", "files"),
    [("runtime", ["runtime"]), ("dask", ["runtime", "dask"]), ("sources", ["runtime", "sources"])],
)
def test_a_bill_of_materials_lists_every_pin_with_the_hashes_of_its_files(
    made: Path, name: str, files: list[str]
) -> None:
    bill = json.loads((made / f"tacit-{name}.cdx.json").read_text())
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    assert bill["metadata"]["component"]["name"] == "tacit"
    listed = {
        (component["name"], component["version"]): set(
            re.findall(r"\b[0-9a-f]{64}\b", json.dumps(component["externalReferences"]))
        )
        for component in bill["components"]
    }
    assert listed == pinned(*files)


def test_the_provenance_names_what_was_made_and_from_what_and_is_signed(made: Path, key: PrivateKey) -> None:
    content = (made / "provenance.json").read_bytes()
    statement = json.loads(content)
    digests = {subject["name"]: subject["digest"]["sha256"] for subject in statement["subject"]}
    assert set(digests) == {path.name for path in made.iterdir()} - {"provenance.json", "provenance.dsse"}
    for name, digest in digests.items():
        assert hashlib.sha256((made / name).read_bytes()).hexdigest() == digest
    source, *pins = statement["predicate"]["buildDefinition"]["resolvedDependencies"]
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert source["digest"]["gitCommit"] == commit.stdout.strip()
    assert {pin["name"] for pin in pins} == {path.name for path in (ROOT / "requirements").iterdir()}
    envelope = json.loads((made / "provenance.dsse").read_bytes())
    assert base64.b64decode(envelope["payload"]) == content
    signed = b"DSSEv1 %d %s %d %s" % (len(STATEMENT), STATEMENT.encode(), len(content), content)
    signature = base64.b64decode(envelope["signatures"][0]["sig"])
    public = Ed25519PublicKey.from_public_bytes(bytes.fromhex(key.public_hex))
    public.verify(signature, signed)
    with pytest.raises(InvalidSignature):
        public.verify(signature, signed.replace(b"sha256", b"sha512", 1))


def test_the_same_commit_gives_the_same_wheel(made: Path, tmp_path: Path) -> None:
    commit_s = subprocess.run(
        ["git", "log", "-1", "--format=%ct"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()
    command = [ROOT / ".venv/bin/python", "-m", "pip", "wheel", "--quiet", "--no-index", "--no-deps"]
    command += ["--no-build-isolation", "--wheel-dir", tmp_path, ROOT]
    subprocess.run(command, env=os.environ | {"SOURCE_DATE_EPOCH": commit_s}, check=True, timeout=900)
    (first,), (second,) = made.glob("*.whl"), tmp_path.glob("*.whl")
    assert first.read_bytes() == second.read_bytes()
