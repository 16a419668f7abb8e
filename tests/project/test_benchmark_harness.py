"""Benchmarks that were interrupted go on where they stopped, and count nothing twice."""

import math
from pathlib import Path

import pytest
from benchmarks.harness import Cell, Counts, advance, fill, level_statement, table


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


def answered(number: int) -> dict[str, bool]:
    """The answer of a run that another process can be asked for."""
    return {"even": number % 2 == 0}


def test_runs_that_processes_share_are_counted_once(tmp_path: Path) -> None:
    counts = Counts(tmp_path / "counts.jsonl")
    advance([Cell("parity", 10, answered)], counts, lambda: None, workers=2)
    assert (counts.runs["parity"], counts.rate("parity", "even")) == (10, 0.5)
    assert counts.rate("parity", "odd") is None
    expected = 1 - sum(math.comb(10, k) for k in range(5)) / 2**10
    assert counts.tail("parity", "even", 0.5) == pytest.approx(expected)


def test_a_page_keeps_what_is_written_by_hand_and_takes_what_is_computed() -> None:
    page = "By <!-- runs -->1<!-- end --> runs.\n\n<!-- table -->\n\nold\n\n<!-- end -->\nEnd.\n"
    parts = {"runs": "2", "table": "| new |\n"}
    filled = fill(page, parts)
    assert filled == (
        "By <!-- runs -->2<!-- end --> runs.\n\n<!-- table -->\n\n| new |\n\n<!-- end -->\nEnd.\n"
    )
    assert fill(filled, parts) == filled
    with pytest.raises(ValueError, match="parts"):
        fill(page, {"runs": "2"})


def test_tables_hold_every_row_and_column() -> None:
    text = table({"a": {"x": "1"}, "b": {"y": "2"}}, "row")
    assert text == "| row | x | y |\n|---|---|---|\n| a | 1 |  |\n| b |  | 2 |\n"


def test_the_page_states_the_rate_furthest_above_its_level(tmp_path: Path) -> None:
    answers = [{"good | 1 | 0.05": run % 20 == 0, "bad | 1 | 0.05": run % 5 == 0} for run in range(100)]
    counts = Counts(tmp_path / "levels.jsonl")
    counts.add("level here", 0, answers)
    statement = level_statement(counts)
    assert "2 rates" in statement
    assert "level here, bad, ε = 1, level 0.05" in statement
    expected = sum(math.comb(100, k) * 0.05**k * 0.95 ** (100 - k) for k in range(20, 101))
    assert f"probability {expected:.2g};" in statement
    assert f": {2 * expected:.2g}." in statement
    assert level_statement(counts, "power") == ""
