"""Results in the manner of scipy.stats: frozen, and the same from every surface.

Whether a result comes from :mod:`tacit.local`, from a tester or from a transcript, it is the procedure's
verdict, bound to its study. A two-sample result unpacks into ``statistic, pvalue``; a decision cannot be
unpacked, since nothing finer than it is private.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tacit.atomic_write import written_whole
from tacit.database.result import DatabaseResult
from tacit.errors import InputError, VerificationFailedError, pandas_module
from tacit.plotting import figure_of
from tacit_protocol.messages.study import Release, Study, VerdictMessage
from tacit_protocol.procedures.aggregated_test import AggregatedTestResult
from tacit_protocol.procedures.association import AssociationResult
from tacit_protocol.procedures.base import spent_budget
from tacit_protocol.procedures.counts.base import NoisyTables
from tacit_protocol.procedures.counts.homogeneity import HomogeneityResult
from tacit_protocol.procedures.counts.independence_table import IndependenceTableResult
from tacit_protocol.procedures.counts.noisy_counts import NoisyCountsResult
from tacit_protocol.procedures.curated_distance_correlation.verdict import CuratedDistanceCorrelationResult
from tacit_protocol.procedures.discovery import PROCEDURES
from tacit_protocol.procedures.distance_correlation.peer import PeerResult
from tacit_protocol.procedures.distance_correlation.verdict import DistanceCorrelationResult
from tacit_protocol.procedures.group_comparison import GroupComparisonResult
from tacit_protocol.procedures.identity import IdentityResult
from tacit_protocol.procedures.joint_independence import JointIndependenceResult
from tacit_protocol.procedures.means.max_form import TestedHypothesis
from tacit_protocol.procedures.mutual_independence import MutualIndependenceResult
from tacit_protocol.procedures.quantile_tables.verdict import CellsTableResult
from tacit_protocol.procedures.randomised_answers.verdict import AnsweredCorrelationResult
from tacit_protocol.procedures.screening.verdict import (
    AnsweredColumn,
    AnsweredScreeningVerdict,
    ScreenedColumn,
    ScreeningVerdict,
)
from tacit_protocol.procedures.stratified_table import StratifiedTableResult
from tacit_protocol.procedures.survival import SurvivalCurve, SurvivalResult
from tacit_protocol.procedures.two_sample.statistic import LocationComparison
from tacit_protocol.procedures.two_sample.verdict import TwoSampleResult
from tacit_protocol.reporting.charts import Panel, panels_of
from tacit_protocol.reporting.report import Reported, report_html
from tacit_protocol.reporting.svg import stacked_svg
from tacit_protocol.terminal import printable
from tacit_protocol.verdicts.base import BaseVerdict, DecisionResult, ProcedureResult, VerdictSource

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


__all__ = [
    "AggregatedTestResult",
    "AnsweredColumn",
    "AnsweredCorrelationResult",
    "AnsweredScreeningResult",
    "AssociationResult",
    "CellsTableResult",
    "CuratedDistanceCorrelationResult",
    "DatabaseResult",
    "DecisionResult",
    "DistanceCorrelationResult",
    "GroupComparisonResult",
    "HomogeneityResult",
    "IdentityResult",
    "IndependenceTableResult",
    "JointIndependenceResult",
    "LocationComparison",
    "MutualIndependenceResult",
    "NoisyCountsResult",
    "NoisyTables",
    "PeerOutcome",
    "PeerResult",
    "ProcedureResult",
    "Result",
    "ScreenedColumn",
    "ScreeningResult",
    "StratifiedTableResult",
    "StudyVerdict",
    "SurvivalCurve",
    "SurvivalResult",
    "TestedHypothesis",
    "TwoSampleResult",
    "VerdictSource",
    "decides_only",
    "result_from",
    "result_of",
    "study_verdict",
]


NOTHING_TO_DRAW = "there is nothing to draw of this result: it is a decision, or stays with its receiver"


class Rendering:
    """The SDK's :class:`~tacit_protocol.verdicts.base.Renderer`: pandas and matplotlib where installed."""

    def panels(self, verdict: BaseVerdict) -> tuple[Panel, ...]:
        """Return what can be drawn, as numbers."""
        return panels_of(verdict.source.study, verdict.verdict, verdict.source.releases)

    def to_svg(self, verdict: BaseVerdict) -> str:
        """Draw a verdict as SVG text; raises InputError where there is nothing to draw."""
        svg = stacked_svg(verdict.panels())
        if not svg:
            raise InputError(NOTHING_TO_DRAW)
        return svg

    def plot(self, verdict: BaseVerdict) -> "Figure":
        """Draw a verdict with matplotlib; raises InputError, or PlottingError where it is not installed."""
        panels = verdict.panels()
        if not panels:
            raise InputError(NOTHING_TO_DRAW)
        return figure_of(panels, verdict.heading)

    def report_html(self, verdict: BaseVerdict, question: str | None) -> str:
        """Return a verdict's report as HTML text."""
        source = verdict.source
        reported = Reported(source.study, verdict.verdict, source.releases, source.digest)
        picture = verdict.picture()
        return report_html(reported, "tacit " + version("tacit"), question=question, picture=picture)

    def report(self, verdict: BaseVerdict, path: str | Path, question: str | None) -> Path:
        """Write a verdict's report; raises InputError where the file cannot be written."""
        target = Path(path)
        with written_whole(target) as file:
            file.write(self.report_html(verdict, question).encode())
        return target

    def notebook_html(self, verdict: BaseVerdict) -> str:
        """Show a notebook the result in a line, warnings before it, and its picture."""
        lines = [*str(verdict).splitlines(), verdict.heading]
        line = "".join(f"<p>{escape(printable(words))}</p>" for words in lines if words)
        try:
            return line + verdict.to_svg()
        except InputError:
            return line

    def frame(
        self, columns: Mapping[str, Any], levels: Mapping[str, Sequence[str]] | None = None
    ) -> "pd.DataFrame":
        """Return a pandas frame of these columns; its rows are the combinations of ``levels``, if any."""
        pandas, index = pandas_module(), None
        if levels is not None:
            index = pandas.MultiIndex.from_product(list(levels.values()), names=list(levels))
        found: pd.DataFrame = pandas.DataFrame(dict(columns), index=index)
        return found


Result = BaseVerdict
"""Whatever a study's result is: its procedure's verdict, bound to the study."""

RENDERING = Rendering()


def result_of(
    study: Study,
    verdict: Mapping[str, Any],
    *,
    digest: str | None = None,
    releases: Mapping[str, Release] | None = None,
    kind: type[BaseVerdict] | None = None,
) -> Result:
    """Build the result from a study and its procedure's verdict, as plain values.

    What was agreed on (level and budget) comes from the study, which the parties signed.

    Args:
        study: the study.
        verdict: what its procedure reports, as plain values.
        digest: the study's digest, where it is known.
        releases: by owner as the study reads them, where they are at hand: a result's picture then shows the
            null distribution.
        kind: the verdict's type, where it is not the study's: what a receiver finds in peer mode.

    Raises:
        VerificationFailedError: the verdict is not what the study's procedure reports.
    """
    procedure = PROCEDURES.get(study.procedure)
    try:
        spent = study.budget if procedure is None else spent_budget(procedure, study)
        agreed = {"level": study.level, "epsilon": spent.epsilon, "delta": spent.delta}
        if kind is None:
            kind = ProcedureResult if procedure is None else procedure.verdict_type(study)
        # Keys keep their order: a cell's labels stand in that of the columns.
        read = kind.model_validate_json(json.dumps({**verdict, **agreed}, allow_nan=False))
        return result_from(read, study, digest=digest, releases=releases)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise VerificationFailedError("the verdict is not what the study's procedure reports") from error


def result_from(
    verdict: BaseVerdict,
    study: Study,
    *,
    digest: str | None = None,
    releases: Mapping[str, Release] | None = None,
) -> Result:
    """Bind a verdict to what it was made from, and to what the SDK draws it with."""
    own = SDK_RESULTS.get(type(verdict))
    found = verdict if own is None else own.model_construct(verdict.model_fields_set, **vars(verdict))
    return found.bound(VerdictSource(study, digest, releases or {}, RENDERING))


def decides_only(study: Study) -> bool:
    """Whether the study's release is a decision, and no number leaves at all."""
    procedure = PROCEDURES.get(study.procedure)
    return procedure is not None and issubclass(procedure.verdict_type(study), DecisionResult)


@dataclass(frozen=True)
class StudyVerdict:
    """How a study ended: ``outcome`` is completed, incomplete or cancelled.

    ``missing`` names the owners (or the curator) that sent nothing; ``result`` is there where the study was
    completed.
    """

    digest: str
    study: Study
    message: VerdictMessage
    result: Result | None

    @property
    def outcome(self) -> str:
        """How the study ended."""
        return self.message.outcome

    @property
    def missing(self) -> tuple[str, ...]:
        """The owners, or the curator, that sent nothing."""
        return self.message.missing


def study_verdict(
    study: Study, message: VerdictMessage, releases: Mapping[str, Release] | None = None
) -> StudyVerdict:
    """Build the typed outcome from a study and its verdict, whose signature the caller has checked.

    ``releases`` are by owner as the study reads them, where they are at hand.

    Raises:
        VerificationFailedError: the verdict is not what the study's procedure reports.
    """
    result = None
    if message.result is not None:
        result = result_of(study, message.result, digest=message.study, releases=releases)
    return StudyVerdict(message.study, study, message, result)


@dataclass(frozen=True)
class PeerOutcome:
    """Both results of a peer mode played in one process. Unpacks into the finding's ``statistic, pvalue``.

    Attributes:
        finding: what the receiver finds; private for the sender's data alone, and never published.
        stated: what everybody learns.
    """

    finding: DistanceCorrelationResult
    stated: PeerResult

    def __iter__(self) -> Iterator[float]:
        yield from self.finding

    def to_svg(self) -> str:
        """Return the finding's picture as SVG text; it is the receiver's alone."""
        return self.finding.to_svg()

    def plot(self) -> Any:
        """Draw the finding with matplotlib; raises PlottingError where it is not installed."""
        return self.finding.plot()

    def to_pandas(self) -> "pd.DataFrame":
        """Return the finding as a data frame of one row; it is the receiver's alone."""
        found: pd.DataFrame = self.finding.to_pandas()
        return found

    def _repr_html_(self) -> str:
        return self.finding._repr_html_()

    def __str__(self) -> str:
        return f"the receiver: {self.finding}; everybody: {self.stated}"


Floats = npt.NDArray[np.float64]

PROJECTIONS_MAX = 2000
"""Most alternating projections: they converge linearly, and a matrix of 128 columns takes some hundreds."""

CONVERGED = 1e-10
"""Change of the matrix, relative to its norm, at which projections stop."""

HALVINGS = 50
"""Halvings of [0, 1] that find a correlation: to 1e-15."""


@dataclass(frozen=True)
class CorrelationMatrix:
    """A correlation matrix, (p, p), with its columns' names: unit diagonal, positive semidefinite."""

    columns: tuple[str, ...]
    values: Floats

    def to_pandas(self) -> "pd.DataFrame":
        """Return it as a data frame. Raises InputError where pandas is not installed."""
        names = list(self.columns)
        found: pd.DataFrame = pandas_module().DataFrame(self.values, index=names, columns=names)
        return found


def nearest_correlation(matrix: Floats) -> Floats:
    """Return the correlation matrix nearest to a symmetric one, (p, p), in the Frobenius norm.

    Alternating projections with Dykstra's correction (Higham, IMA Journal of Numerical Analysis 22, 2002).

    >>> nearest_correlation(np.array([[1, 0.9, -0.9], [0.9, 1, 0.9], [-0.9, 0.9, 1]])).round(3)[0]
    array([ 1. ,  0.5, -0.5])
    """
    found, correction = np.array(matrix, dtype=np.float64), np.zeros(matrix.shape)
    for _ in range(PROJECTIONS_MAX):
        shifted = found - correction
        values, vectors = np.linalg.eigh(shifted)
        semidefinite = (vectors * np.maximum(values, 0.0)) @ vectors.T
        correction = semidefinite - shifted
        before, found = found, semidefinite.copy()
        np.fill_diagonal(found, 1.0)
        if np.linalg.norm(found - before) <= CONVERGED * np.linalg.norm(found):
            break
    # The last projection leaves eigenvalues a hair below 0: one more, scaled back to a unit diagonal.
    values, vectors = np.linalg.eigh(found)
    semidefinite = (vectors * np.maximum(values, 0.0)) @ vectors.T
    roots = np.sqrt(np.diagonal(semidefinite))
    scaled = semidefinite / np.outer(roots, roots)
    np.fill_diagonal(scaled, 1.0)
    return np.asarray((scaled + scaled.T) / 2)


def normal_distance_correlation(correlation: npt.ArrayLike) -> Floats:
    """Return the distance correlation of two jointly normal variables with these correlations, in [-1, 1].

    Szekely, Rizzo and Bakirov, Annals of Statistics 35 (2007), theorem 7.

    >>> float(normal_distance_correlation(1.0)), round(float(normal_distance_correlation(0.5)), 4)
    (1.0, 0.4541)
    """
    r = np.abs(np.asarray(correlation, dtype=np.float64))
    squared = (r * np.arcsin(r) + np.sqrt(1 - r**2) - r * np.arcsin(r / 2) - np.sqrt(4 - r**2) + 1) / (
        1 + np.pi / 3 - np.sqrt(3)
    )
    # Near 0 the terms cancel to a few 1e-16 about 0.
    return np.asarray(np.sqrt(np.clip(squared, 0.0, 1.0)))


def normal_correlation(distance_correlation: npt.ArrayLike) -> Floats:
    """Return the correlations of jointly normal variables that have these signed distance correlations.

    The inverse of :func:`normal_distance_correlation`, with the sign given: valid where margins are normal,
    and not otherwise.
    """
    signed = np.asarray(distance_correlation, dtype=np.float64)
    target = np.abs(signed)
    low, high = np.zeros(signed.shape), np.ones(signed.shape)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        above = normal_distance_correlation(middle) >= target
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    return np.asarray(np.sign(signed) * high)


def symmetric(below: npt.ArrayLike, columns: int) -> Floats:
    """Put entries below the diagonal, row by row, into a symmetric matrix with unit diagonal."""
    matrix = np.eye(columns)
    rows, places = np.tril_indices(columns, -1)
    matrix[rows, places] = matrix[places, rows] = np.asarray(below, dtype=np.float64)
    return matrix


def filled(matrix: Floats, unknown: float | None) -> Floats:
    """Return the matrix with ``unknown`` where it is nan; raises InputError where there is nothing to put."""
    gaps = np.isnan(matrix)
    if not gaps.any():
        return matrix
    if unknown is None:
        raise InputError(
            "some columns' own variances are lost in the noise: pass unknown=0 to take them as uncorrelated, "
            "or leave those columns out of the study"
        )
    return np.where(gaps, unknown, matrix)


NO_MATRIX = "the study asked for no correlation matrix: set its parameter matrix = true"


class AnsweredScreeningResult(AnsweredScreeningVerdict):
    """Outcome of ``screening`` by randomised answers. Iterating yields the ranked pairs, the surest first.

    Attributes:
        ranking: every pair of an outcome and a column, the surest first.
        aligned: whether either owner checked, before it spent anything, that both hold the same units.
    """

    @property
    def matrix(self) -> None:
        """None: answers tell nothing of one owner's columns among each other."""

    def correlation_matrix(self, **_: Any) -> CorrelationMatrix:
        """Raise InputError: only a screening with matrix = true has such a matrix."""
        raise InputError(NO_MATRIX)


class ScreeningResult(ScreeningVerdict):
    """Outcome of ``screening`` by sketches. Iterating yields the ranked pairs, the surest first.

    Attributes:
        ranking: every pair of an outcome and a column, the surest first.
        aligned: whether either owner checked, before it spent anything, that both hold the same units.
    """

    def correlation_matrix(self, *, normal: bool = False, unknown: float | None = None) -> CorrelationMatrix:
        """Return the correlation matrix nearest to the signed distance correlations of all columns.

        Of both owners' columns, those of one owner among each other too; for columns without an order
        (groups) without sign. It is positive semidefinite with unit diagonal.

        Args:
            normal: first turn each distance correlation into the correlation of the bivariate normal that
                has it: what a Gaussian copula takes. Valid for columns with normal margins alone, whose
                bounds leave little of them out.
            unknown: what to put for columns whose own variance is lost in the noise.

        Raises:
            InputError: a correlation is unknown.
        """
        below = [float("nan") if value is None else value for value in self.matrix.correlations]
        signed = filled(symmetric(below, len(self.matrix.columns)), unknown)
        return CorrelationMatrix(
            self.matrix.columns, nearest_correlation(normal_correlation(signed) if normal else signed)
        )


SDK_RESULTS: Mapping[type[BaseVerdict], type[BaseVerdict]] = {
    model.__mro__[1]: model for model in (DatabaseResult, ScreeningResult, AnsweredScreeningResult)
}
"""What the SDK makes of verdicts that can do more with it than they state."""
