"""An agent's process needs no library of the command, of notebooks or of other sources."""

import subprocess
import sys

import pytest

HIDDEN = {
    *("typer", "rich", "pygments", "narwhals", "markdown_it", "shellingham"),
    *("pandas", "polars", "matplotlib", "sklearn", "distributed", "dask"),
    *("duckdb", "pymysql", "openpyxl", "pyreadstat", "pyodbc", "oracledb", "lxml"),
}

PROGRAM = """
import sys

class Absent:
    def find_spec(self, name, *_):
        if name.partition(".")[0] in HIDDEN:
            raise ModuleNotFoundError(name)

HIDDEN = set(sys.argv.pop(1).split(","))
sys.meta_path.insert(0, Absent())
from tacit_services.agent import __main__
import tacit_services.agent.service, tacit_services.agent.study.releases
from tacit_protocol.procedures.discovery import PROCEDURES
print(len(PROCEDURES), sorted(HIDDEN & {name.partition(".")[0] for name in sys.modules}))
"""


@pytest.mark.long
def test_an_agent_starts_where_these_are_not_installed() -> None:
    command = [sys.executable, "-c", PROGRAM, ",".join(sorted(HIDDEN))]
    child = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert child.returncode == 0, child.stderr
    assert int(child.stdout.split()[0]) > 10
    assert child.stdout.split(maxsplit=1)[1].strip() == "[]"
