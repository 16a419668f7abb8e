"""Noisy counts: every owner releases one private table, from which anything may then be computed for nothing.

One table answers many questions: tests of homogeneity and of independence, and of identity with a known
distribution, read it again without spending. Laplace noise of scale 2/epsilon on each cell (pure epsilon),
or Gaussian noise, also by rho (zCDP); all for the replacement of one privacy unit.
Derivations: docs/mathematics/categorical.md.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel

from tacit_protocol.features.cell_counts import CellGrid
from tacit_protocol.messages.study import Study
from tacit_protocol.numerics.noisy_tables import CellNoise, add_tables, half_width
from tacit_protocol.privacy.guarantee import COORDINATES_MAX
from tacit_protocol.procedures.base import (
    Fields,
    Progress,
    QuestionTemplate,
    Releases,
    StudyError,
    common_fields,
    parse_parameters,
    reuse_warnings,
)
from tacit_protocol.procedures.counts.base import (
    CountProcedure,
    CountsShift,
    NoisyTables,
    TablesVerdict,
    units_of,
    written_counts,
)
from tacit_protocol.procedures.counts.release import (
    CountParameters,
    OwnCounts,
    TablesPlan,
    require_own_releases,
)
from tacit_protocol.procedures.counts.unlisted import IN_CELLS, left_out_of, left_out_warnings
from tacit_protocol.procedures.masking import TOGETHER, MaskedParameters
from tacit_protocol.procedures.populations import Floats, Held, Measure, SimulationModel
from tacit_protocol.verdicts.base import BaseVerdict, ShownTable
from tacit_protocol.verdicts.presentation import (
    BARS_MAX,
    CHI_SQUARED,
    BarsPanel,
    Citation,
    Meaning,
    Shown,
    bar,
    largest,
    names_of,
)

BESIDE_MAX = 3
"""Most owners of whom each is drawn; of more, all together come first."""

PANELS_MAX = 8
"""Most panels of one verdict; the last one's note says how many there are."""

ROWS_SHOWN = 60
"""Most cells of a table that the command prints."""


class NoisyCountsResult(TablesVerdict):
    """Every owner's noisy table, cells in row-major order of ``shape``; it tests nothing.

    Attributes:
        tables: every owner's noisy counts.
        noise: "laplace" or "gaussian", of the owner with the largest ``half_width_all``.
        scale: Laplace scale, or standard deviation, of its noise on each cell.
        half_width: the noise of one cell is within it with probability 1 - alpha, at every owner.
        half_width_all: that of all cells of an owner is, together, with probability 1 - alpha.
    """

    listed: ClassVar[tuple[str, ...]] = ("noise", "scale", "half_width", "half_width_all")

    reject: Annotated[Literal[False], Shown("")]
    counts: Annotated[dict[str, tuple[float, ...]], Shown("")]
    noise: Annotated[str, Shown("law of the noise")]
    scale: Annotated[float, Shown("scale of the noise")]
    half_width: Annotated[float, Shown("noise of one count within")]
    half_width_all: Annotated[float, Shown("noise of all counts within")]

    @property
    def tables(self) -> NoisyTables:
        """Every owner's noisy counts."""
        tables = super().tables
        if tables is None:
            raise TypeError("noisy counts have tables")
        return tables

    @property
    def table(self) -> npt.NDArray[np.float64]:
        """The noisy counts of all owners together, one axis a column."""
        return self.tables.table

    def to_pandas(self) -> Any:
        """Return a pandas frame: one row a cell, one column for each owner."""
        return self.tables.to_pandas()

    def __str__(self) -> str:
        return (
            f"{self.method}: each within {self.half_width:.4g} at confidence {1 - self.alpha:g}, all within "
            f"{self.half_width_all:.4g}; epsilon {self.epsilon:g}, delta {self.delta:g}"
        )

    def fields(self) -> dict[str, Any]:
        """Return what the command lists beside the common fields."""
        return super().fields() | {"tables": self.tables.fields()}

    def summary(self) -> Sequence[str | ShownTable]:
        """Return what the command shows first: the tables."""
        tables = self.tables
        cells = tables.to_rows()
        rows = tuple(
            (", ".join(labels), *(f"{count:.1f}" for count in counts))
            for labels, counts in cells[:ROWS_SHOWN]
        )
        more = len(cells) - ROWS_SHOWN
        return (
            f"Noisy counts: {self.method}",
            f"  one count is within {self.half_width:.4g} of the noisy one, and all are within "
            f"{self.half_width_all:.4g}, at confidence {1 - self.alpha:g}",
            ShownTable((", ".join(tables.columns), *tables.counts), rows),
            *((f"  and {more} more cells: --json shows all",) if more > 0 else ()),
        )


class CountedUnits(CountsShift):
    """Counts that are released, and of which nothing is tested."""

    measure: ClassVar[Measure] = "error"
    medium: ClassVar[float] = 0.0
    taken: ClassVar[frozenset[str]] = frozenset()
    off: ClassVar[str] = "the worst cell of a table is off by {} of its units"

    def words(self) -> str:
        return "nothing: numbers are released"

    def answer(self, result: Any, held: Sequence[Held]) -> float:
        """Return how far the worst cell of a table is off, as a share of its units; the owners' mean."""
        tables = result.tables.counts
        if len(tables) < len(held):  # masked ones are read together
            held = [np.sum([np.asarray(own) for own in held], axis=0)]
        errors = [
            np.abs(np.ravel(noisy) - counts).max() / counts.sum()
            for noisy, counts in zip(tables.values(), map(np.asarray, held), strict=True)
        ]
        return float(np.mean(errors))


class NoisyCountsParameters(CountParameters, MaskedParameters):
    """How owners count, and whether their tables are read or their sum alone."""


@dataclass(frozen=True)
class _Drawn:
    """A noisy table (k,) and whose it is. ``noises`` are on each cell, or None where they are not known."""

    name: str
    counts: Floats
    noises: tuple[CellNoise, ...] | None
    bound: float
    """The interval's half width that the verdict states, of one count."""

    level: float

    def half(self, cells: int) -> float | None:
        """Return the half width of the interval of a sum of so many counts; None where it is not known."""
        if self.noises is None:
            return self.bound if cells == 1 else None
        return half_width(self.noises, cells, self.level)


def _tables(plan: TablesPlan, verdict: Fields, releases: Releases) -> list[_Drawn]:
    known, level = plan.known_tables(verdict, releases), plan.study.level
    bound, found = float(verdict["half_width"]), []
    for place, name in enumerate(plan.counting(verdict["units"])):
        counts = np.array(verdict["counts"][name], dtype=np.float64)
        noises = None if known is None else known[place].noises
        found.append(_Drawn(name, counts, noises, bound, level))
    if known is None or len(found) == 1:
        return found
    noises = add_tables(known).noises
    together = _Drawn(TOGETHER, sum((t.counts for t in found[1:]), found[0].counts), noises, bound, level)
    return [*found, together] if len(found) <= BESIDE_MAX else [together, *found]


def _of_table(table: _Drawn, grid: CellGrid, bound_of_all: float) -> list[BarsPanel]:
    if len(table.counts) != grid.size:
        raise ValueError("the verdict has not one count for each cell")
    labels = [", ".join(grid.label(cell)) for cell in range(grid.size)]
    if grid.size <= BARS_MAX:
        return [_panel(f"Noisy counts of {table.name}", labels, table.counts, table, 1)]
    found = []
    if len(grid.shape) > 1:
        shaped = table.counts.reshape(grid.shape)
        for place, name in enumerate(grid.names):
            others = tuple(axis for axis in range(len(grid.shape)) if axis != place)
            added, cells = shaped.sum(axis=others), grid.size // grid.shape[place]
            if table.half(cells) is not None:
                title = f"{name}: noisy counts of {table.name}"
                found.append(_panel(title, list(grid.labels[place]), added, table, cells))
    title = f"The {BARS_MAX} largest of {grid.size} cells: {table.name}"
    panel = _panel(title, labels, table.counts, table, 1)
    note = f"{panel.note} These were picked for their size, which noise tends to raise"
    note += "." if table.name == TOGETHER else f": all counts together are within {bound_of_all:.4g}."
    return [*found, replace(panel, note=note)]


def _panel(title: str, labels: list[str], values: Floats, table: _Drawn, cells: int) -> BarsPanel:
    half, percent = table.half(cells), f"{100 * (1 - table.level):g} %"
    shown = largest(values)
    some = "" if len(shown) == len(values) or cells == 1 else f", the {len(shown)} largest of {len(values)}"
    return BarsPanel(
        title + some,
        f"units, with {percent} noise intervals",
        tuple(bar(labels[i], float(values[i]), half) for i in shown),
        f"The count in the data is within its interval with probability {1 - table.level:g} at least."
        + (f" Each bar adds up {cells} noisy counts." if cells > 1 else ""),
    )


class NoisyCountsPlan(OwnCounts):
    """The owners' tables, or their sum, as they are."""

    def __init__(self, study: Study, parameters: NoisyCountsParameters) -> None:
        super().__init__(study, parameters)
        if self.grid.size * len(study.owners) > COORDINATES_MAX:
            raise StudyError(f"all owners' tables have more than {COORDINATES_MAX} cells; use fewer")

    def meaning(self, verdict: Fields) -> Meaning:
        released = "Noisy tables" if self.shared is None else "Masked tables, of which the sum is read,"
        return Meaning(
            f"{released} of {names_of(self.study)} were released.",
            "They test nothing by themselves. The noise of one count is within "
            f"{verdict['half_width']:.4g} with probability {1 - self.study.level:g}.",
            tests=False,
        )

    def panels(self, verdict: Fields, releases: Releases) -> list[BarsPanel]:
        """Return the bars of all owners' tables, ``PANELS_MAX`` at most."""
        found: list[BarsPanel] = []
        for table in _tables(self, verdict, releases):
            found += _of_table(table, self.grid, float(verdict["half_width_all"]))
        if len(found) > PANELS_MAX:
            last, more = found[PANELS_MAX - 1], len(found) - PANELS_MAX
            note = f"{last.note} And {more} more charts like these: the transcript has every count."
            found[PANELS_MAX - 1] = replace(last, note=note)
        return found[:PANELS_MAX]

    def conclude(
        self,
        releases: Releases,
        units: Mapping[str, int],  # noqa: ARG002 (releases state them)
        progress: Progress | None = None,
    ) -> NoisyCountsResult:
        if progress is not None:
            progress(0.5, "reading tables")
        study, size = self.study, self.grid.size
        tables, counted = self.tables(releases), units_of(study, releases)
        noises = [table.noises[0] for table in tables.values()]
        # Reused releases may have noise of another law: the widest tail need not have the largest variance.
        widest = max(noises, key=lambda noise: noise.half_width(study.level / size))
        return NoisyCountsResult(
            method=f"noisy counts of {size} cells, {self.noise.kind} noise",
            reject=False,
            **common_fields(study, counted, self.guarantee),
            columns=self.grid.names,
            shape=self.grid.shape,
            counts={name: written_counts(table) for name, table in tables.items()},
            noise=widest.kind,
            scale=widest.scale * math.sqrt(1 if self.shared is None else widest.summed),
            half_width=max(noise.half_width(study.level) for noise in noises),
            half_width_all=widest.half_width(study.level / size),
            warnings=(
                *left_out_warnings(list(left_out_of(self.grid, tables, (), IN_CELLS)), study.level),
                *self.drowned(counted),
                *self.hidden(),
                *reuse_warnings(study),
            ),
        )


class NoisyCounts(CountProcedure):
    """See the module. Registered as ``noisy_counts``."""

    name: ClassVar[str] = "noisy_counts"
    title: ClassVar[str] = "How many units are in each cell?"
    Parameters: ClassVar[type[BaseModel]] = NoisyCountsParameters
    Verdict: ClassVar[type[BaseVerdict]] = NoisyCountsResult
    cited: ClassVar[tuple[Citation, ...]] = (CHI_SQUARED,)
    question: ClassVar[QuestionTemplate | None] = QuestionTemplate(
        "How many are there in each category?",
        r"how many|count|number of|frequenc|cross.?tab",
        "one or more",
        rank=4,
        categories=True,
        pure=True,
    )
    population: ClassVar[type[SimulationModel] | None] = CountedUnits

    def plan(self, study: Study) -> NoisyCountsPlan:
        require_own_releases(study)
        return NoisyCountsPlan(study, parse_parameters(NoisyCountsParameters, study))
