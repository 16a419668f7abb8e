"""What released counts show of values that no level stands for: a warning in the verdict that they make.

Codes that a study does not list, and missing values, are in cells of their own or in none. Either way the
noisy counts say how many they are. Nothing but the release is read.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tacit_protocol.domain import CategoricalColumn
from tacit_protocol.features.cell_counts import CellGrid
from tacit_protocol.numerics.noisy_tables import CellNoise, NoisyTable, half_width

SHARE_MIN = 0.02
"""Share of an owner's units up to which a verdict says nothing: so few values that are mistyped, or were not
asked, are in most data, and change a share by no more than that."""

LEVELS_TOLD = 6
"""Most listed levels that a warning names."""

NO_PART = "and took no part"
IN_NO_EFFECT = "which are categories of their own in the test, and in no effect"
IN_CELLS = "and are counted in cells of their own"


@dataclass(frozen=True)
class LeftOut:
    """A noisy count of an owner's units that hold no listed value of a column.

    ``what`` says of units what they have, as in "have no value of age", and ``then`` what became of them.
    ``noises`` add up.
    """

    owner: str
    what: str
    then: str
    count: float
    units: int
    noises: tuple[CellNoise, ...]

    def interval(self, outside: float) -> tuple[float, float, float]:
        """Return the share of the units and the ends that noise exceeds with probability ``outside``."""
        half = half_width(self.noises, 1, outside)
        ends = ((self.count + shift) / max(1, self.units) for shift in (0.0, -half, half))
        share, lower, upper = (min(1.0, max(0.0, end)) for end in ends)
        return share, lower, upper


def left_out_of(
    grid: CellGrid, tables: Mapping[str, NoisyTable], no_part: Collection[str], then: str
) -> Iterator[LeftOut]:
    """Yield every table's counts of unlisted and of missing values, column by column.

    Where they count with the last level, or are another owner's answers, nothing shows them. Of the columns
    ``no_part`` only listed levels take part; of others ``then`` says what becomes of the rest.
    """
    for place, axis in enumerate(grid.axes):
        column = axis.column
        if not isinstance(column, CategoricalColumn) or axis.size == axis.listed:
            continue
        others = tuple(at for at in range(len(grid.axes)) if at != place)
        words = (unlisted_words(column), f"have no value of {column.name}")
        for owner, table in tables.items():
            along = table.counts.reshape(grid.shape).sum(axis=others)
            for what, count in zip(words, along[axis.listed :], strict=True):
                became = NO_PART if column.name in no_part else then
                noises = tuple(noise.of_sums(grid.size // axis.size) for noise in table.noises)
                yield LeftOut(owner, what, became, float(count), table.units, noises)


def unlisted_words(column: CategoricalColumn, or_missing: str = "") -> str:
    """Say of units that they hold what a column does not list, or nothing where ``or_missing`` says so."""
    named = ", ".join(column.levels[:LEVELS_TOLD]) + (", ..." if len(column.levels) > LEVELS_TOLD else "")
    return f"have a value of {column.name} that is none of the listed levels {named}{or_missing}"


def left_out_warnings(found: Sequence[LeftOut], level: float) -> tuple[str, ...]:
    """Say which shares are above :data:`SHARE_MIN` for sure, the largest first.

    All intervals together hold with probability 1 - ``level`` at least. Owners with the same fault are one
    warning.
    """
    by_fault: dict[tuple[str, str], list[tuple[float, str]]] = {}
    for own in found:
        share, lower, upper = own.interval(level / len(found))
        if lower > SHARE_MIN:
            told = f"{100 * share:.3g} % ({100 * lower:.3g} to {100 * upper:.3g} %)"
            by_fault.setdefault((own.what, own.then), []).append(
                (share, f"{told} of the units of {own.owner}")
            )
    ordered = sorted(by_fault.items(), key=lambda item: -max(item[1])[0])
    warnings = []
    for (what, then), owners in ordered:
        more = len(owners) - 1
        others = f", and some at {more} other owner{'' if more == 1 else 's'}," if more else ""
        warnings.append(f"{max(owners)[1]}{others} {what}, {then}")
    return tuple(warnings)
