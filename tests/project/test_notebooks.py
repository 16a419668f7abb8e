"""The notebooks run in a fresh kernel without a network, and are committed with their outputs."""

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from traitlets.config import Config

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))

SIZE_MAX = 200_000
"""Bytes of a notebook with its pictures."""

CELL_TIMEOUT_S = START_TIMEOUT_S = 900
"""No cell takes more than some seconds on a machine that is not busy, and no kernel to start."""

# Run before a notebook's own cells: whoever asks for an address beyond this machine gets an error.
WITHOUT_NETWORK = """
import socket as _socket

def _here_alone(connect):
    def connected(self, address):
        far = self.family in (_socket.AF_INET, _socket.AF_INET6)
        if far and address[0] not in ("127.0.0.1", "::1", "localhost"):
            raise OSError(f"a notebook must not need a network: {address}")
        return connect(self, address)
    return connected

_socket.socket.connect = _here_alone(_socket.socket.connect)
_socket.socket.connect_ex = _here_alone(_socket.socket.connect_ex)
"""

LINK = re.compile(r"\[[^\]]*\]\(([^)\s#]+)[^)]*\)")


def read(path: Path) -> Any:
    return nbformat.read(path, as_version=4)


def execute(notebook: Any, folder: Path) -> None:
    """Run a notebook's cells in a kernel of this Python, in ``folder``; raises CellExecutionError.

    Ports are found free here and bound later by the kernel, when others may have them: sockets are files.
    """
    notebook.cells.insert(0, nbformat.v4.new_code_cell(WITHOUT_NETWORK))
    with tempfile.TemporaryDirectory(prefix="tacit-") as sockets:  # whose names may not be long
        manager = {"transport": "ipc", "connection_file": f"{sockets}/kernel.json"}
        client = NotebookClient(
            notebook,
            kernel_name="python3",
            timeout=CELL_TIMEOUT_S,
            startup_timeout=START_TIMEOUT_S,
            resources={"metadata": {"path": str(folder)}},
            config=Config({"KernelManager": manager}),
        )
        client.execute()


def outputs(notebook: Any) -> Iterator[Any]:
    for cell in notebook.cells:
        yield from cell.get("outputs", [])


@pytest.mark.long
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_in_a_fresh_kernel(path: Path, tmp_path: Path) -> None:
    execute(read(path), tmp_path)
    # What a notebook writes, it removes.
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_committed_with_small_outputs_and_a_picture(path: Path) -> None:
    notebook = read(path)
    nbformat.validate(notebook)
    assert path.stat().st_size < SIZE_MAX
    kinds = {kind for output in outputs(notebook) for kind in output.get("data", {})}
    assert kinds & {"image/svg+xml", "image/png", "text/html"}
    assert not [output for output in outputs(notebook) if output.output_type == "error"]
    assert not [output for output in outputs(notebook) if output.get("name") == "stderr"]
    # Nothing of the machine that ran it.
    assert not re.search(r"/(tmp|root|home|work|Users)/", path.read_text("utf-8"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebooks_links_lead_somewhere(path: Path) -> None:
    texts = [cell.source for cell in read(path).cells if cell.cell_type == "markdown"]
    links = [link for text in texts for link in LINK.findall(text) if "://" not in link]
    assert links
    assert [link for link in links if not (FOLDER / link).exists()] == []
