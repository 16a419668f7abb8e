"""Amounts, times and names as the pages write them."""

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from markupsafe import Markup, escape

from tacit_protocol.privacy.guarantee import DELTA_UNITS, EPSILON_UNITS
from tacit_protocol.reporting.svg import Drawing, horizontal, path_of, vertical

SHORT_LENGTH = 12
"""Characters of a digest or a key that are enough to tell it from others on a page."""

PARTS_SHOWN = 8
"""Parts of a long list that are shown: public points and embeddings have hundreds."""

BRIEF_LENGTH_MAX = 300
"""Characters of a field or a parameter that are shown."""

TIME_END = 253_402_300_800
"""The year 10000, where calendars end: a study may state a deadline beyond it."""


def epsilon(micro: int) -> str:
    """Write micro-epsilons as an epsilon, exactly."""
    return f"{micro / EPSILON_UNITS:.6f}".rstrip("0").rstrip(".")


def delta(pico: int) -> str:
    """Write pico-deltas as a delta."""
    return f"{pico / DELTA_UNITS:.6g}"


def number(value: float) -> str:
    """Write a number with four digits."""
    return f"{value:.4g}"


def time(seconds: float | None) -> str:
    """Write Unix seconds as a time in UTC, or a dash."""
    if seconds is None:
        return "–"
    if seconds >= TIME_END:
        return "after the year 9999"
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")


def short(digest: str) -> str:
    """Write the beginning of a digest or a key."""
    return digest[:SHORT_LENGTH]


def label(name: str) -> str:
    """Write a field's name or a state as words."""
    return name.replace("_", " ").replace("-", " ")


def capitalised(words: str) -> str:
    """Write words with a capital at their beginning, and leave the others, and letters of formulas."""
    return (words[:1].upper() if words[:1].isascii() else words[:1]) + words[1:]


def value(found: Any) -> str:
    """Write any plain value of a verdict in a line."""
    match found:
        case None:
            return "–"
        case bool():
            return "yes" if found else "no"
        case float():
            return number(found)
        case dict():
            return ", ".join(f"{name}: {value(part)}" for name, part in found.items())
        case list() | tuple():
            return ", ".join(_part(part) for part in found)
        case _:
            return str(found)


def brief(found: Any) -> str:
    """Write any plain value of a verdict or a study in some lines, and say where there is more of it."""
    match found:
        case dict():
            text = ", ".join(f"{name}: {brief(part)}" for name, part in found.items())
        case list() | tuple() if len(found) > PARTS_SHOWN:
            text = f"{value(found[:PARTS_SHOWN])} … ({len(found)} in all)"
        case _:
            text = value(found)
    return text if len(text) <= BRIEF_LENGTH_MAX else text[:BRIEF_LENGTH_MAX] + " …"


def _part(part: Any) -> str:
    """Write a part of a list; a row of several values is held together."""
    several = isinstance(part, list | tuple) and len(part) > 1
    return f"({value(part)})" if several else value(part)


_HEAD = re.compile(r"<thead>.*?</thead>", re.DOTALL)
_CELL = re.compile(r"<t[hd]\b[^>]*>(.*?)</t[hd]>", re.DOTALL)
_ROW = re.compile(r"<tr\b.*?</tr>", re.DOTALL)
_OPENING = re.compile(r"<t[hd]\b[^>]*")


def carded(table: Markup) -> Markup:
    """Give every cell of a table its column's heading (``data-label``): on a phone a row is a card."""
    text = str(table)
    head = _HEAD.search(text)
    if head is None:
        return table
    headings = [Markup(cell).striptags() for cell in _CELL.findall(head[0])]  # noqa: S704 (read, not shown)

    def labelled(row: "re.Match[str]") -> str:
        names = iter(headings)
        return _OPENING.sub(lambda cell: _with_label(cell, names), row[0])

    return Markup(text[: head.end()] + _ROW.sub(labelled, text[head.end() :]))  # noqa: S704 (the template's own, with escaped labels)


def _with_label(cell: "re.Match[str]", headings: Iterator[str]) -> str:
    heading = next(headings, "")
    return f'{cell[0]} data-label="{escape(capitalised(heading))}"' if heading else cell[0]


FILTERS = {
    "carded": carded,
    "epsilon": epsilon,
    "delta": delta,
    "number": number,
    "time": time,
    "short": short,
    "label": label,
    "value": value,
    "brief": brief,
}
"""What templates may apply."""

SHARES = {"pure": "pure_pico", "gaussian": "gaussian_femto"}
"""The shares that are drawn, and the fields of an entry that hold their amounts."""


def burn_down(entries: Sequence[dict[str, Any]], now: int) -> dict[str, Any] | None:
    """Draw what was left of each share of an account over time, from its ledger entries (oldest first).

    In per cent of the share as it was then. Returns None where there is no entry, or no share to draw.
    """
    if not entries:
        return None
    start = entries[0]["at"]
    drawing = Drawing(horizontal(start, max(now, entries[-1]["at"], start + 60)), vertical(0, 100))
    lines = [_line(name, column, entries, drawing) for name, column in SHARES.items()]
    shown = [line for line in lines if line is not None]
    return {"drawing": drawing, "lines": shown, "start": start, "now": now} if shown else None


def _line(
    name: str, column: str, entries: Sequence[dict[str, Any]], drawing: Drawing
) -> dict[str, Any] | None:
    spent, share, points = 0, 0, []
    for entry in entries:
        if entry["kind"] == "cap":
            share = entry[column]
        else:
            spent += entry["taken"][column]
        left = 100 * max(0, share - spent) / share if share else 0.0
        points.append({**entry, "left": left, "x": drawing.x.at(entry["at"]), "y": drawing.y.at(left)})
    if not any(entry[column] for entry in entries if entry["kind"] == "cap"):
        return None
    steps: list[tuple[float, float]] = []
    for point in points:
        if steps:
            steps.append((point["x"], steps[-1][1]))
        steps.append((point["x"], point["y"]))
    steps.append((drawing.right, steps[-1][1]))
    return {"name": name, "points": points, "line": path_of(steps), "left": points[-1]["left"]}
