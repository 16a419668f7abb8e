"""The page that tells each row's life tells of every table."""

import re
from pathlib import Path

from tacit_services.tester.tables import METADATA

PAGE = Path(__file__).resolve().parents[3] / "docs" / "how-a-study-runs.md"


def test_every_table_has_its_line() -> None:
    lines = set(re.findall(r"^\| `([a-z_]+)` \|", PAGE.read_text("utf-8"), re.MULTILINE))
    assert lines - {"alembic_tester"} == set(METADATA.tables)
