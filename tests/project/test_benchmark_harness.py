"""Benchmarks that were interrupted go on where they stopped, count nothing twice, and miss nothing."""

from pathlib import Path

import pytest
from benchmarks.harness import Cell, Counts, advance


def counted(calls: list[int], runs: int, stop_after: int | None = None) -> Cell:
    """A cell whose run r answers yes to "even" where r is even; it is interrupted after so many runs."""

    def run(number: int) -> dict[str, bool]:
        if stop_after is not None and len(calls) >= stop_after:
            raise KeyboardInterrupt
        calls.append(number)
        return {"even": number % 2 == 0}

    return Cell("parity", runs, run)


def test_an_interrupted_table_is_continued(tmp_path: Path) -> None:
    path, calls = tmp_path / "counts.jsonl", list[int]()
    with pytest.raises(KeyboardInterrupt):
        advance([counted(calls, 100, stop_after=33)], Counts(path), lambda: None)
    kept = Counts(path).runs["parity"]
    assert 0 < kept <= 33
    again: list[int] = []
    advance([counted(again, 100)], Counts(path), lambda: None)
    assert again == list(range(kept, 100))
    whole = Counts(path)
    assert (whole.runs["parity"], whole.rate("parity", "even")) == (100, 0.5)
    # More runs are added; none is repeated.
    more: list[int] = []
    advance([counted(more, 120)], whole, lambda: None)
    assert more == list(range(100, 120))
    whole.compact()
    assert len(path.read_text().splitlines()) == 1
    assert Counts(path).answered == whole.answered


def test_a_file_that_lacks_runs_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "counts.jsonl"
    advance([counted([], 40)], Counts(path), lambda: None)
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:3] + lines[4:]))
    with pytest.raises(ValueError, match="lacks runs"):
        Counts(path)
