"""Randomised columns in one process: of every row a private answer, which any later analysis may use."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
import numpy.typing as npt

from tacit.errors import InputError, StudyRefusedError, pandas_module
from tacit.in_process.runner import Terms, local_study
from tacit.in_process.samples import (
    ArrayTable,
    Missing,
    Sample,
    admitted,
    domain_of,
    read_columns,
    read_samples,
)
from tacit.results import result_from
from tacit_protocol.domain import CategoricalColumn, Domain, NumericColumn
from tacit_protocol.features.private_cells import QUANTILE_CELLS_MAX, ColumnCells, answered_categories
from tacit_protocol.messages.encoding import digest, encode
from tacit_protocol.messages.study import Release
from tacit_protocol.privacy.guarantee import CODES_MAX, EPSILON_UNITS, Budget
from tacit_protocol.privacy.laplace_mechanism import choice_guarantee
from tacit_protocol.privacy.noise import OpenDPNoise
from tacit_protocol.privacy.randomised_response import NO_CELL, randomise, retention
from tacit_protocol.procedures.base import check_release
from tacit_protocol.procedures.discovery import procedure_named
from tacit_protocol.procedures.randomised_answers.answers import CELLS_FIRST, CUTS_PART, SIGNAL_MIN
from tacit_protocol.procedures.relay import check_own_release, combined, conclude, relay_of
from tacit_protocol.strict import StudyError

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class RandomisedColumn:
    """A column of which everyone may know: one randomised answer of every row, epsilon-private.

    Nobody's odds of being in one cell or another change by more than a factor of e^epsilon, whoever holds it
    and whatever else is known. It is still a record of a person, and to be handled as one.

    Attributes:
        column: the column, with its public bounds or levels.
        labels: its cells.
        epsilon: what it cost.
        release: what was released.
    """

    column: NumericColumn | CategoricalColumn
    labels: tuple[str, ...]
    epsilon: float
    release: Release = field(repr=False)

    @property
    def answers(self) -> npt.NDArray[np.int64]:
        """Each row's answer, (n,): the place of a cell in ``labels``."""
        return self.release.answers[self.column.name].values()

    @property
    def cuts(self) -> tuple[float, ...] | None:
        """Where a numeric column's cells end, in its own units; None of a categorical one."""
        if isinstance(self.column, CategoricalColumn):
            return None
        own = self._cells
        steps = self.release.cuts.get(self.column.name, own.even_cuts())
        reach = self.column.upper - self.column.lower
        return tuple(self.column.lower + reach * step / own.grid for step in steps)

    @property
    def retention(self) -> float:
        """Probability that an answer is the row's own cell, and not drawn blindly from all of them."""
        return self.release.answers[self.column.name].retention

    @property
    def _cells(self) -> ColumnCells:
        return ColumnCells(self.column, 0, len(self.labels), self.column.name in self.release.cuts)

    def __len__(self) -> int:
        """Return the number of rows."""
        return self.release.units

    def to_pandas(self) -> "pd.Series[Any]":
        """Return the answers as a categorical series of pandas, by their labels."""
        pandas = pandas_module()
        ordered = isinstance(self.column, NumericColumn)
        answers = pandas.Categorical.from_codes(
            self.answers.tolist(), pandas.Index(self.labels), ordered=ordered
        )
        return cast("pd.Series[Any]", pandas.Series(answers, name=self.column.name))


def randomise_column(
    x: Any,
    *,
    epsilon: float,
    bounds: Any = None,
    categories: int | Literal["auto"] = "auto",
    cuts: Literal["private", "even"] = "private",
    missing: Missing = "refuse",
) -> RandomisedColumn:
    """Release a randomised answer of every row to which cell of a column it is in; pure epsilon.

    Args:
        x: one column: an array (n,), or a column of pandas, Polars or Arrow. A row is a unit.
        epsilon: what the release costs, greater than 0. Every later use of it costs nothing.
        categories: cells of a numeric column, 2 to 4 (to 16 with even cuts); "auto" takes 2 or 3, by epsilon
            and the number of rows.
        cuts: where a numeric column's cells end: "private", at quantiles that are bought with 15 % of
            epsilon, or "even", evenly within the bounds.
        missing: with "encode" the answer of a missing value is drawn blindly, as is that of a level which is
            not listed.

    Other arguments: :mod:`tacit.local`.

    Returns:
        The column, which :func:`distance_correlation` and :func:`independence_table` take in the place of an
        array, and :func:`group_comparison`, :func:`stratified_table` and :func:`survival` in the place of the
        group's name.

    Example:
        >>> import numpy as np, tacit.local
        >>> x = np.random.default_rng(1).random(3000)
        >>> column = tacit.local.randomise_column(x, epsilon=1, bounds=(0, 1), categories=2)
        >>> round(column.retention, 3), len(column.cuts)
        (0.401, 1)
    """
    sample, domain = read_columns(x, "x", bounds, missing)
    if len(domain.columns) != 1:
        raise InputError("x has several columns: randomise them one by one, each at a part of epsilon")
    if cuts not in ("private", "even"):
        raise InputError('cuts must be "private" or "even"')
    column, units = domain.columns[0], sample.rows
    try:
        budget = Budget.of(epsilon, 0)
    except (ArithmeticError, ValueError) as error:
        raise InputError(f"epsilon: {error}") from error
    chunk = list(ArrayTable.of(sample, domain).chunks())
    if isinstance(column, CategoricalColumn):
        own = ColumnCells(column, 0, answered_categories(column), bought=False)
        if own.cells > CODES_MAX:
            raise StudyRefusedError(f"a randomised column has at most {CODES_MAX} categories")
        codes = own.codes(np.zeros((units, 0)), np.concatenate([part.categorical for part in chunk]), ())
        return _released(own, codes, (), budget, 0)
    bought = cuts == "private"
    part = max(1, int(budget.epsilon_micro * CUTS_PART)) if bought else 0
    if categories == "auto":
        kept = retention(budget.epsilon_micro - part, CELLS_FIRST)
        categories = CELLS_FIRST if units * kept**2 >= SIGNAL_MIN else 2
    if not 2 <= categories <= (QUANTILE_CELLS_MAX if bought else 16):
        raise InputError("categories must be 2 to 4 with private cuts, and 2 to 16 with even ones")
    own = ColumnCells(column, 0, categories, bought)
    held = np.isfinite(sample.numeric(column.name))
    values = np.where(held, np.concatenate([each.numeric[:, 0] for each in chunk]), np.nan)
    noise = OpenDPNoise()
    try:
        drawn = own.draw_cuts(values, part / EPSILON_UNITS, noise) if bought else own.even_cuts()
    except StudyError as error:
        raise StudyRefusedError(str(error)) from error
    cells = own.codes(np.where(held, values, 0.0)[:, None], np.zeros((units, 0), np.int32), drawn)
    return _released(own, np.where(held, cells, NO_CELL), drawn, budget, part)


def _released(
    own: ColumnCells, codes: npt.NDArray[np.int64], cuts: tuple[int, ...], budget: Budget, spent: int
) -> RandomisedColumn:
    name = own.column.name
    answers = randomise(codes, own.cells, budget.epsilon_micro - spent, OpenDPNoise())
    release = Release(
        units=len(codes),
        guarantee=choice_guarantee(budget),
        answers={name: answers},
        cuts={name: cuts} if own.bought else {},
    )
    return RandomisedColumn(own.column, own.labels(cuts), budget.epsilon, release)


BESIDE_OWNERS = ("answers-owner", "rows-owner")
"""Names of who released a randomised column, and of who holds rows of the same units."""


def one_sample(
    samples: Sequence[Any], bounds: Any, columns: Sequence[str] | None, missing: Missing
) -> tuple[Sample, Domain]:
    """Read the only sample that stands beside a randomised column."""
    if len(samples) != 1 or bounds is None:
        raise InputError("beside a randomised column, pass one sample, and the bounds of its columns")
    sample = read_samples(samples, columns)[0]
    domain = domain_of(bounds, list(sample.columns))
    return admitted([sample], domain, missing)[0], domain


def run_beside(
    procedure: str,
    released: RandomisedColumn,
    held: tuple[Sample, Domain],
    parameters: Mapping[str, Any],
    *,
    given: tuple[Any, Any],
    at: Terms,
) -> Any:
    """Play the second round of a study, beside a column that was released before; pure epsilon.

    ``given`` is units and names, which have no place in it, and neither has delta.

    Raises:
        InputError: the rows are not those of the column.
        StudyRefusedError: the procedure does not take the study.
    """
    if (at["delta"], *given) != (0.0, None, None):
        raise InputError(
            "a randomised column stands beside one sample, a row a unit: leave delta, units and names out"
        )
    (sample, domain), name = held, released.column.name
    if len(released) != sample.rows:
        raise InputError(
            f"the randomised column has {len(released)} rows and the sample {sample.rows}: both must "
            "describe the same rows, in the same order"
        )
    if name in sample.columns:
        raise InputError(
            f"the sample has a column {name!r} too, as was randomised: leave it out, or rename it"
        )
    column = CategoricalColumn(name=name, levels=released.labels)
    sent = Release(
        units=len(released), guarantee=released.release.guarantee, answers=dict(released.release.answers)
    )
    study = local_study(
        procedure,
        Domain(columns=(column, *domain.columns)),
        BESIDE_OWNERS,
        parameters,
        **at,
        columns=((name,), tuple(sample.columns)),
    )
    earlier = study.owners[0].model_copy(update={"reuses": digest(encode(sent))})
    study = study.model_copy(update={"owners": (earlier, study.owners[1])})
    own = procedure_named(procedure)
    try:
        own.check(study)
        relay = relay_of(own, study)
        if relay is None:
            raise StudyError(f"{procedure} takes no randomised column")
        check_own_release(own, study, relay.sender.name, sent)
        summary = combined(own, study, {relay.sender.name: sent}, ArrayTable.of(sample, domain)).summary
        answer = own.privatise(study, summary, OpenDPNoise())
        check_release(own, study, answer)
        releases = dict(zip(BESIDE_OWNERS, (sent, answer), strict=True))
        verdict = conclude(own, study, releases, dict.fromkeys(BESIDE_OWNERS, len(released)))
        return result_from(verdict, study, releases=releases)
    except StudyError as error:
        raise StudyRefusedError(str(error)) from error
