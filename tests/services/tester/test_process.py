"""The tester as a process says on one line why it does not start; how it stops is in tests/faults."""

import subprocess
import sys
from pathlib import Path

import pytest

CONFIG = """
name = "tester"
url = "http://127.0.0.1:1"
port = 1
key_file = "tester.pem"
"""


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("prot = 1", "tester: setting prot"),
        ('database_url = "postgresql://127.0.0.1:1/none"', "tester: the database is unavailable\n"),
    ],
)
def test_what_keeps_a_tester_from_starting_is_said_on_one_line(
    tmp_path: Path, written: str, said: str
) -> None:
    config = tmp_path / "tester.toml"
    config.write_text(CONFIG + written)
    command = [sys.executable, "-m", "tacit_services.tester", "serve", "--config", str(config)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith(said)
    assert len(done.stderr.splitlines()) == 1
