"""What charts are made of, as SVG text: axes, words and the element around them. All text is escaped."""

from collections.abc import Sequence
from html import escape

from tacit_protocol.reporting.axes import LEFT, RIGHT, WIDTH, Axis

LABEL_LENGTH_MAX = 25

INK, SOFT, ACCENT, BAD, WARN = "#1b1f24", "#57606a", "#0b57a4", "#b3261e", "#8a5a00"


def drawing(
    kind: str, height: float, label: str, parts: Sequence[str], data: str = "", *, title: str = ""
) -> str:
    """Return a chart's element: an image that ``label`` says in words, under a ``title`` where it has one."""
    named = f' aria-label="{text(label)}"' if not title else ""
    told = [f"<title>{text(title)}</title>", f"<desc>{text(label)}</desc>"] if title else []
    size = f'width="{WIDTH}" height="{height:g}" viewBox="0 0 {WIDTH} {height:g}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" class="chart {kind}" {size} '
            f'role="img"{named} {data} font-family="system-ui, sans-serif" '
            f'font-size="11" fill="{SOFT}">',
            *told,
            *parts,
            "</svg>",
        ]
    )


def bottom_axis(x: Axis, down: float) -> list[str]:
    """Draw an axis along the bottom, with its ticks; each says its value and its place."""
    found = [f'<path class="axis" d="M{x.start},{down}H{x.end}" fill="none" stroke="{SOFT}"/>']
    found += [
        f'<text class="x-tick" data-value="{tick.value}" data-at="{tick.at}" x="{tick.at}" y="{down + 16}" '
        f'text-anchor="middle">{tick.text}</text>'
        for tick in x.ticks()
    ]
    return found


def beside(kind: str, at: float, down: float, words: str, colour: str, *, part: float = 0.5) -> str:
    """Write to the right of a mark, or to its left where it stands beyond that part of the width."""
    right = at > part * WIDTH
    return written(kind, at - 5 if right else at + 5, down, words, colour, anchor="end" if right else "start")


def middle(down: float, words: str) -> str:
    """Write below the middle of the axes."""
    return written("unit", (LEFT + RIGHT) / 2, down, words)


def written(
    kind: str, at: float, down: float, words: str, colour: str = SOFT, *, anchor: str = "middle"
) -> str:
    """Write words at a place."""
    return (
        f'<text class="{kind}" x="{at:g}" y="{down:g}" text-anchor="{anchor}" fill="{colour}">'
        f"{text(words)}</text>"
    )


def number(value: float) -> str:
    """Write a number with four digits."""
    return f"{value:.4g}"


def short(label: str) -> str:
    """Cut a label to what fits beside a row."""
    return label if len(label) <= LABEL_LENGTH_MAX else label[: LABEL_LENGTH_MAX - 1] + "…"


def text(words: str, *, lines: bool = False) -> str:
    """Escape words, whoever wrote them; what cannot be printed, or would turn the text round, is replaced.

    ``lines`` keeps the ends of lines.
    """
    kept = "\n" if lines else ""
    shown = (c if c.isprintable() or c in kept else "\N{REPLACEMENT CHARACTER}" for c in words)
    return escape("".join(shown), quote=True)
