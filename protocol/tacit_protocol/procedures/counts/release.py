"""What leaves an owner in a study on noisy counts: its cells, its mechanism, and what it reads again.

Laplace or Gaussian noise is on every cell. Replacing one unit moves counts, whole steps of 2**-bits, by at
most 2 in L1 and sqrt 2 in L2, exactly (features/cell_counts.py). Laplace noise of scale 2/epsilon on each
cell is epsilon-differentially private; Gaussian noise of standard deviation sqrt 2/mu is mu-Gaussian private,
and rho-zCDP with rho = mu^2/2, a variance of 1/rho on each cell (Canonne, Kamath and Steinke 2020, theorem
4). For composition the Laplace scale is a little larger (noise.py), and Gaussian noise has the reserve of
gaussian_mechanism.py.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import Annotated, ClassVar, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field, ValidationError

from tacit_protocol.domain import ColumnName, EncodedChunk, Table
from tacit_protocol.features.cell_counts import COUNT_BITS, CellCounts, CellGrid, sum_cells
from tacit_protocol.features.private_cells import SingleRows
from tacit_protocol.messages.study import Owner, Release, Study
from tacit_protocol.numerics.noisy_tables import (
    CellNoise,
    NoisyTable,
    sum_cells_of,
)
from tacit_protocol.privacy.accounting import fits
from tacit_protocol.privacy.gaussian_mechanism import (
    SensitivityError,
    SumPart,
    check_layout,
    gaussian_guarantee,
    release_sums,
    require_drawable,
)
from tacit_protocol.privacy.guarantee import (
    ApproximateEvent,
    Budget,
    GaussianEvent,
    Guarantee,
    LaplaceEvent,
    NoisyVector,
)
from tacit_protocol.privacy.laplace_mechanism import (
    check_laplace_sums,
    release_laplace_sums,
    require_laplace,
)
from tacit_protocol.privacy.noise import (
    DISCRETISATION_SHARE,
    NoiseSource,
    laplace_multiplier,
    laplace_scale,
)
from tacit_protocol.procedures.base import (
    HOPELESS,
    ReleaseError,
    StudyError,
    parse_parameters,
    require_shared_columns,
)
from tacit_protocol.procedures.masking import (
    TOGETHER,
    MaskedParameters,
    SharedNoise,
    masking_in,
    shared_noise_in,
    total_of,
)
from tacit_protocol.procedures.plan import Fields, Plan, Releases
from tacit_protocol.procedures.populations import Floats
from tacit_protocol.procedures.randomised_answers.answered_column import AnsweredColumnPlan, beside
from tacit_protocol.strict import StrictModel

Integers = npt.NDArray[np.int64]

COUNTS = "counts"
"""Name of the vector in a release."""

L1_SENSITIVITY = 2.0
L2_SENSITIVITY = math.nextafter(math.sqrt(2.0), 2.0)


def laplace_count_guarantee(budget: Budget) -> Guarantee:
    """Return the pure guarantee of Laplace counts that use the whole epsilon; delta may be 0."""
    event = LaplaceEvent(noise_multiplier=laplace_multiplier(budget.epsilon))
    return Guarantee(budget=budget, events=(event,))


def gaussian_count_guarantee(budget: Budget, rho: float | None) -> Guarantee:
    """Return the guarantee of Gaussian counts that use the whole budget, or rho-zCDP within the budget.

    Raises SensitivityError where delta is 0, or rho costs more than the budget.
    """
    if rho is None:
        return gaussian_guarantee(budget)
    if budget.delta_pico == 0:
        raise SensitivityError("Gaussian noise needs a delta above 0; give the study one, such as 1e-5")
    reserve = budget.delta * DISCRETISATION_SHARE
    gaussian = GaussianEvent(noise_multiplier=1 / math.sqrt(2 * rho))
    events = (gaussian, ApproximateEvent(epsilon=0.0, delta=reserve))
    if not fits(events, budget):
        raise SensitivityError("rho costs more than the study's budget: lower it, or raise epsilon or delta")
    return Guarantee(budget=budget, events=events)


def count_noise(guarantee: Guarantee) -> tuple[str, float]:
    """Return the kind of noise, "laplace" or "gaussian", and its scale on each cell, in units.

    The scale is that of the Laplace distribution, or a standard deviation.
    """
    event = guarantee.events[0]
    if isinstance(event, LaplaceEvent):
        return "laplace", laplace_scale(L1_SENSITIVITY, event.noise_multiplier)
    if isinstance(event, GaussianEvent):
        return "gaussian", _part(0, np.zeros(1, dtype=np.int64)).scale(1 / event.noise_multiplier)
    raise SensitivityError("the guarantee is not that of noisy counts")


def laplace_counts(
    steps: npt.NDArray[np.int64], bits: int, guarantee: Guarantee, noise: NoiseSource
) -> NoisyVector:
    """Add discrete Laplace noise to counts, (k,) in steps of 2**-bits: pure epsilon.

    Raises SensitivityError where it cannot be drawn (:func:`require_drawable_counts`).
    """
    return release_laplace_sums(_part(bits, steps), guarantee, noise)


def noisy_counts(
    steps: npt.NDArray[np.int64], bits: int, guarantee: Guarantee, noise: NoiseSource
) -> NoisyVector:
    """Add the noise that the guarantee states, discrete Laplace or Gaussian, to counts in steps of 2**-bits.

    Raises SensitivityError where it cannot be drawn (:func:`require_drawable_counts`).
    """
    if isinstance(guarantee.events[0], LaplaceEvent):
        return laplace_counts(steps, bits, guarantee, noise)
    return release_sums((_part(bits, steps),), guarantee, noise)[COUNTS]


def require_drawable_counts(cells: int, bits: int, guarantee: Guarantee, owners: int = 1) -> None:
    """Raise SensitivityError where the noise of so many counts has no room, or is too few grid steps wide.

    Of ``owners`` who mask, the noises together need the room. It looks at no count.
    """
    part = _part(bits, np.zeros(cells, dtype=np.int64))
    if isinstance(guarantee.events[0], LaplaceEvent):
        require_laplace(part, guarantee)
    else:
        require_drawable((part,), guarantee, owners)


def check_counts(vector: NoisyVector, stated: Guarantee, cells: int, bits: int, fixed: Guarantee) -> None:
    """Raise LayoutError where a vector or its guarantee is not the one that a study fixes."""
    part = _part(bits, np.zeros(cells, dtype=np.int64))
    if isinstance(fixed.events[0], GaussianEvent):
        check_layout({COUNTS: vector}, stated, (part,), fixed)
    else:
        check_laplace_sums(vector, stated, part, fixed)


def _part(bits: int, steps: npt.NDArray[np.int64]) -> SumPart:
    return SumPart(COUNTS, steps, -bits, L2_SENSITIVITY, 1.0, l1=L1_SENSITIVITY)


SUMS = "sums_of_"
"""Name of a vector of sums of cells of a finer table, with how many cells each sum has: no owner sends it."""

FINER = (
    "an owner's earlier release must count the same columns, with the same cells, and other and missing "
    "values alike (parameter unlisted)"
)


class CellParameters(StrictModel):
    """What is counted.

    Cells of their own for other and missing values are two for each column; without them there are fewer
    cells, and less noise in all, where the levels are complete.
    """

    unlisted: Literal["cells", "last"] = Field(
        "cells",
        description="Whether other and missing values have cells of their own, or count with the last level.",
    )
    cuts: dict[ColumnName, Annotated[tuple[float, ...], Field(min_length=1, max_length=1000)]] = Field(
        default_factory=dict,
        description=(
            "Inner edges of each numeric column, by its name, increasing and strictly within its bounds."
        ),
    )


RHO_MIN, RHO_MAX = 1e-12, 5000.0
"""Of rho: at the least, noise has a standard deviation of a million units on each cell, which drowns any
table and has room all the same; the most is the largest epsilon's, 100, as pure privacy is zCDP."""

Rho = Annotated[float, Field(ge=RHO_MIN, le=RHO_MAX)]


class CountParameters(CellParameters):
    """How an owner counts; every choice is public."""

    noise: Literal["gaussian", "laplace"] = Field(
        "laplace", description="Laplace noise costs epsilon alone; gaussian needs a delta."
    )
    rho: Rho | None = Field(
        None,
        description=(
            "zCDP of Gaussian noise (variance 1/rho on each cell); by default all that the budget allows."
        ),
    )


class TablesPlan(Plan):
    """Noisy tables of public cells, whoever counted them.

    Attributes:
        grid: the cells.
        noise: the noise on every cell of a table that can be read: an owner's, or of masked ones their sum's.
    """

    grid: CellGrid
    noise: CellNoise
    rereads: ClassVar[bool] = True
    masked_numbers: ClassVar[str] = "tables"

    def __init__(self, study: Study, parameters: CellParameters) -> None:
        self.study, self.grid = study, grid_of(study, parameters)

    def require_group(self, name: str | None) -> None:
        """Raise StudyError where it is not the group's owner who would release answers."""

    def counting(self, units: Mapping[str, int]) -> dict[str, int]:
        """Return the units of every table that can be read, by who counted."""
        raise NotImplementedError

    def tables(self, releases: Releases) -> dict[str, NoisyTable]:
        """Return the tables that can be read, by who counted: every owner's, or of masked ones their sum's.

        Raises ReleaseError where releases do not fit the study, or each other.
        """
        raise NotImplementedError

    def kept(self, releases: Releases) -> float | None:  # noqa: ARG002
        """Return the retention of the answers by which units were counted; None where no answers were read.

        Raises ReleaseError where releases do not fit the study, or each other.
        """
        return None

    def table(self, counts: Floats, units: int, noise: CellNoise | None = None) -> NoisyTable:
        """Return a table with its noise, by default the study's own."""
        compared = None if self.grid.compared_shape == self.grid.shape else self.grid.compared
        return NoisyTable(counts, units, (noise or self.noise,), compared)

    def read(self, release: Release) -> NoisyTable:
        """Return the noisy table of a release, or of one read again.

        Raises ReleaseError where it is not one vector of this study's cells.
        """
        summed, vector = _only_vector(release)
        if len(vector.values) != self.grid.size:
            raise ReleaseError(f"vector {COUNTS} has not the shape that the study fixes")
        if vector.noise == "k-norm":
            raise ReleaseError(f"vector {COUNTS} has noise of another kind than counts have")
        return self.table(vector.mean(1), release.units, CellNoise(vector.noise, vector.scale, summed))

    def known_tables(self, verdict: Fields, releases: Releases) -> list[NoisyTable] | None:
        """Return the tables that can be read: from the releases, or else from the verdict if it shows them.

        None where neither has them, or where it is not known what noise an earlier release has.
        """
        if releases:
            return list(self.tables(releases).values())
        counts = verdict.get("counts")
        if counts is None or self.study.reusing:
            return None
        return [
            self.table(np.array(counts[name], dtype=np.float64), units)
            for name, units in self.counting(verdict["units"]).items()
        ]

    def simulated(
        self,
        laws: Sequence[Floats],  # noqa: ARG002
        units: Sequence[int],  # noqa: ARG002
    ) -> Callable[[np.random.Generator, int], list[NoisyTable]] | None:
        """Return what draws the owners' tables of so many studies, counts (n, k).

        None where they mask, or count by another's answers.
        """
        return None

    def drowned(self, units: Mapping[str, int]) -> tuple[str, ...]:
        """Say which owners' tables will be mostly noise at these numbers of units."""
        if self.masking is not None:
            if len(units) < len(self.masking.names):
                return ()
            units = self.counting(units)
        advice = "ask for more units, a larger epsilon, or fewer cells"
        deviation = self.noise.variance**0.5
        drowned = [name for name, count in units.items() if deviation * self.grid.size > count]
        if drowned and len(drowned) == len(units):
            where = "in the sum of all owners" if self.masking is not None else "at every owner"
            return (f"{HOPELESS}noise exceeds the count of an average cell {where}; {advice}",)
        if drowned:
            return (f"noise exceeds the count of an average cell at {', '.join(drowned)}; {advice}",)
        return ()

    def warnings(self, units: Mapping[str, int]) -> tuple[str, ...]:
        """Say, before anything is spent, where noise drowns the tables."""
        return self.drowned(units)

    def hidden(self) -> tuple[str, ...]:
        """Say in a verdict what masks hide of the tables, or answers."""
        return () if self.shared is None else self.shared.caveats(self.masked_numbers)


def require_own_releases(study: Study) -> None:
    """Raise StudyError unless every owner counts all columns and sends its own table."""
    require_shared_columns(study)
    if study.curator is not None:
        raise StudyError("owners send their own releases here; leave the curator out")


class CountPlan(TablesPlan):
    """Every owner counts its own units; each table is read by itself, or, masked, their sum."""

    def spend(self, guarantee: Guarantee, shared: SharedNoise | None) -> None:
        """Settle the noise: ``guarantee`` unless owners mask, who each draw their part of what is shared.

        Raises SensitivityError where it cannot be drawn, whatever the counts.
        """
        self.shared, self.guarantee = shared, guarantee if shared is None else shared.own
        self.release_size = self.grid.size
        owners = 1 if shared is None else len(shared.masking.names)
        require_drawable_counts(self.grid.size, COUNT_BITS, self.guarantee, owners)
        kind, scale = count_noise(self.guarantee)
        self.noise = CellNoise("laplace" if kind == "laplace" else "gaussian", scale, owners)

    def counting(self, units: Mapping[str, int]) -> dict[str, int]:
        """Return the owners' units, or of those that mask the sum."""
        if self.masking is not None:
            return {TOGETHER: sum(units.values())}
        return {owner.name: units[owner.name] for owner in self.study.owners}

    def tables(self, releases: Releases) -> dict[str, NoisyTable]:
        """Return every owner's table, or of masked ones their sum's."""
        if self.masking is not None:
            return {TOGETHER: self.read(total_of(self.masking, releases))}
        found = {}
        for owner in self.study.owners:
            if owner.reuses is None:
                self.check_release(releases[owner.name])
            found[owner.name] = self.read(releases[owner.name])
        return found

    def summarise(self, table: Table, order: np.random.Generator | None = None) -> CellCounts:  # noqa: ARG002
        return sum_cells(table, self.grid)

    def privatise(self, summary: CellCounts, noise: NoiseSource) -> Release:
        vector = noisy_counts(summary.steps, COUNT_BITS, self.guarantee, noise)
        return Release(units=summary.units, guarantee=self.guarantee, vectors={COUNTS: vector})

    def check_release(self, release: Release) -> None:
        """Raise ReleaseError where an owner's own release is not as the study fixes."""
        _, vector = _only_vector(release, fresh=True)
        try:
            check_counts(vector, release.guarantee, self.grid.size, COUNT_BITS, self.guarantee)
        except ValueError as error:
            raise ReleaseError(str(error)) from None

    def check_reread(self, release: Release) -> None:
        """Raise ReleaseError where an earlier release has not this study's cells."""
        self.read(release)

    def reread(self, owner: Owner, source: Study, release: Release) -> Release:  # noqa: ARG002
        """Return an owner's release for an earlier study, of noisy counts, as this study expects it.

        Cells of a finer table are added up; the vector's name then tells how many noises each sum has.
        """
        counts = release.vectors.get(COUNTS)
        if counts is None:
            raise StudyError("the earlier study did not release noisy counts")
        theirs = grid_of(source, counted_part(source))
        if len(counts.values) != theirs.size:
            raise StudyError("the earlier study did not release noisy counts of its columns' cells")
        index = self.grid.within(theirs)
        if index is None:
            raise StudyError(FINER)
        summed = theirs.size // self.grid.size
        name = COUNTS if summed == 1 else f"{SUMS}{summed}"
        coarser = _add_cells(counts, index, self.grid.size)
        return Release(units=release.units, guarantee=release.guarantee, vectors={name: coarser})

    def simulated(
        self, laws: Sequence[Floats], units: Sequence[int]
    ) -> Callable[[np.random.Generator, int], list[NoisyTable]] | None:
        """Return what draws every owner's table; None where they mask."""
        if self.masking is not None:
            return None
        tables = [self.table(np.zeros(self.grid.size), count) for count in units]
        return lambda rng, size: [
            replace(own, counts=rng.multinomial(own.units, law, size=size) + own.draw_noise(rng, size))
            for own, law in zip(tables, laws, strict=True)
        ]


class OwnCounts(CountPlan):
    """Counts whose noise the study's parameters state.

    Raises:
        StudyError: the columns have no such cells, or the budget does not suit the noise.
    """

    def __init__(self, study: Study, parameters: CountParameters) -> None:
        _require_noise_of_rho(parameters)
        shared, claim = None, partial(gaussian_count_guarantee, study.budget, parameters.rho)
        if isinstance(parameters, MaskedParameters):
            shared = shared_noise_in(study, parameters, parameters.noise, claim)
        super().__init__(study, parameters)
        if shared is not None:
            self.spend(shared.claim, shared)
        else:
            laplace = parameters.noise == "laplace"
            self.spend(laplace_count_guarantee(study.budget) if laplace else claim(), None)


class CountsByAnswer(TablesPlan, AnsweredColumnPlan):
    """One owner counts its units by the randomised answers of another, who holds one of the columns.

    Raises:
        StudyError: the study is not between two such owners, or asks for other noise.
    """

    def __init__(self, study: Study, parameters: CountParameters) -> None:
        if parameters.noise != "laplace":
            raise StudyError("beside another owner's answers noise is Laplace; leave noise and rho out")
        between = beside(study)
        super().__init__(study, parameters)
        folded = parameters.unlisted == "last"
        sums = CellsByAnswer(self.grid, CellGrid.of(between[-1], cuts=parameters.cuts, folded=folded))
        _require_noise_of_rho(parameters)
        if isinstance(parameters, MaskedParameters):
            masking_in(study, parameters)  # raises where masks are asked for
        AnsweredColumnPlan.__init__(self, study, between, sums)
        counted = self.costs[self.receiver.name]
        require_drawable_counts(self.grid.size, COUNT_BITS, counted)
        self.noise = CellNoise("laplace", count_noise(counted)[1])

    def require_group(self, name: str | None) -> None:
        """Raise StudyError where the group is not the sender's column."""
        if name != self.column.name:
            raise StudyError(
                f"{self.sender.name} would release answers of {self.column.name}, which is not the "
                "group: list the group's owner first, who holds no other column"
            )

    def counting(self, units: Mapping[str, int]) -> dict[str, int]:
        """Return the receiver's units."""
        return {self.receiver.name: units[self.receiver.name]}

    def tables(self, releases: Releases) -> dict[str, NoisyTable]:
        """Return the receiver's table."""
        answer = releases[self.receiver.name]
        self.check_release(answer)
        return {self.receiver.name: self.read(answer)}

    def kept(self, releases: Releases) -> float | None:
        """Return the retention of the sender's answers."""
        return self.known(releases).kept

    def drowned(self, units: Mapping[str, int]) -> tuple[str, ...]:
        """Say where answers hide every difference; else where noise drowns the counts."""
        return AnsweredColumnPlan.warnings(self, units) or super().drowned(units)

    def hidden(self) -> tuple[str, ...]:
        """Say that counts are by answer, and how rows were matched."""
        return (
            f"counts are by randomised answer of {self.sender.name}: effects, curves and strengths are "
            f"of {self.column.name} itself",
            *self.caveats,
        )


def _require_noise_of_rho(parameters: CountParameters) -> None:
    if parameters.rho is not None and parameters.noise != "gaussian":
        raise StudyError("parameter rho has no effect with Laplace noise; leave it out")


def grid_of(study: Study, parameters: CellParameters) -> CellGrid:
    """Return the cells of a study. Raises StudyError where its columns have none such."""
    answered = beside(study)[2].name if study.columns_apart else None
    return CellGrid.of(
        study.domain, cuts=parameters.cuts, folded=parameters.unlisted == "last", answered=answered
    )


@dataclass(frozen=True)
class CellsByAnswer:
    """Counts of a receiver's own cells by the sender's answers, in the order of the study's cells."""

    grid: CellGrid
    own: CellGrid

    def part(self, units: int, answers: Integers | None = None, rows: SingleRows | None = None) -> SumPart:
        """Return the counts, with their L1 sensitivity; zeros where no rows are given."""
        index = np.zeros(units, dtype=np.int64)
        counts = np.zeros(self.grid.size, dtype=np.int64)
        if answers is not None and rows is not None:
            chunk, own = EncodedChunk(rows.numeric, rows.categorical, None, units), iter(self.own.axes)
            for axis in self.grid.axes:
                index = index * axis.size + (answers if axis.answered else next(own).codes(chunk))
            counts += np.bincount(index, minlength=self.grid.size)
        return SumPart(COUNTS, counts << COUNT_BITS, -COUNT_BITS, L2_SENSITIVITY, 1.0, l1=L1_SENSITIVITY)


def counted_part(study: Study) -> CellParameters:
    """Read of a study's parameters, whatever its procedure, those that say what is counted."""
    known = {name: study.parameters[name] for name in CellParameters.model_fields if name in study.parameters}
    return parse_parameters(CellParameters, study.model_copy(update={"parameters": known}))


def _add_cells(vector: NoisyVector, index: npt.NDArray[np.int64], cells: int) -> NoisyVector:
    """Add up the cells of a vector that ``index`` maps to the same cell: integers of any size, exactly."""
    sums = [0] * cells
    for cell, value in zip(index.tolist(), vector.values, strict=True):
        sums[cell] += value
    try:
        return NoisyVector(
            values=tuple(sums), exponent=vector.exponent, noise=vector.noise, scale=vector.scale
        )
    except ValidationError:
        raise StudyError("the earlier release's counts are too large to be added up") from None


def _only_vector(release: Release, *, fresh: bool = False) -> tuple[int, NoisyVector]:
    """Return how many noises each number of a release's only vector has, 1 where it is ``fresh``, and it."""
    if len(release.vectors) == 1 and release.decision is None:
        ((name, vector),) = release.vectors.items()
        summed = "1" if name == COUNTS else name.removeprefix(SUMS)
        digits = summed.isascii() and summed.isdigit() and len(summed) <= 5
        if name == COUNTS or (name.startswith(SUMS) and not fresh and digits and int(summed) > 0):
            return int(summed), vector
    raise ReleaseError("the release has not the vectors that the study asks for")


def product(margins: list[Floats]) -> Floats:
    """Return the tables of independent columns, (..., k)."""
    return reduce(_outer, margins)


def _outer(table: Floats, margin: Floats) -> Floats:
    cells = table[..., :, None] * margin[..., None, :]
    return np.asarray(cells.reshape(*cells.shape[:-2], -1))


def margin_table(
    table: NoisyTable, shape: tuple[int, ...], axes: tuple[int, ...]
) -> tuple[NoisyTable, tuple[int, ...]]:
    """Return the table of some of the columns, all of whose cells are compared, and its shape."""
    kept = tuple(shape[axis] for axis in axes)
    codes = np.indices(shape).reshape(len(shape), -1)[list(axes)]
    index = np.ravel_multi_index(tuple(codes), kept).astype(np.int64)
    return sum_cells_of(table, index, int(np.prod(kept))), kept
