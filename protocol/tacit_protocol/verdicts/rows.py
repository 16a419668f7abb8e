"""Rows of a panel: effects with intervals, or residuals of cells."""

from dataclasses import dataclass

ROW_HEIGHT = 18
LABELS_WIDTH = 170
"""Where the axis of a panel of rows begins: labels are left of it."""


@dataclass(frozen=True)
class Row:
    """One line of a panel: a label, a value, an interval where there is one, and whether it stands out."""

    label: str
    value: float
    lower: float | None
    upper: float | None
    stands_out: bool


@dataclass(frozen=True)
class RowsPanel:
    """Effects with intervals, or cells with residuals, around 0. ``unit`` says what the axis is."""

    title: str
    unit: str
    rows: tuple[Row, ...]
    guides: tuple[float, ...] = ()
    """Values at which a line is drawn, besides 0."""
