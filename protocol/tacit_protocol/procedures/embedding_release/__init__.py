"""A private database: one release of an owner's units, for anyone to keep and compute from.

P2 is Balog, Tolstikhin and Schölkopf, *Differentially private database release via kernel mean embeddings*
(2018). ``subspace`` (its Algorithm 1) releases the noisy mean embedding on public points, which one unit
replaced moves by sqrt 2 / n at most; by default they are drawn from the sender's own noisy histograms.
``random-features`` (Algorithm 2) releases the noisy mean of random Fourier features; ``exponential`` draws
one of a finite public list of databases. Points and weights that match noisy means are left to the reader:
solving for them magnifies last bits of linear algebra beyond what a verifier may allow. Derivations:
docs/mathematics/database-release.md.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from pydantic import BaseModel

from tacit_protocol.domain import NumericColumn
from tacit_protocol.messages.study import Study
from tacit_protocol.privacy.accounting import Family
from tacit_protocol.privacy.guarantee import COORDINATES_MAX
from tacit_protocol.procedures.base import (
    Holder,
    Procedure,
    QuestionTemplate,
    StudyError,
    require_noise,
    require_shared_columns,
)
from tacit_protocol.procedures.embedding_release.plan import CELLS_MAX, EmbeddingReleaseParameters
from tacit_protocol.procedures.embedding_release.release import DatabasePlan, database_plan, features_of
from tacit_protocol.procedures.embedding_release.verdict import EmbeddingReleaseVerdict
from tacit_protocol.procedures.masking import is_masked
from tacit_protocol.procedures.populations import Columns, Held, SimulationModel, UntestedRows
from tacit_protocol.verdicts.base import BaseVerdict
from tacit_protocol.verdicts.presentation import DATABASE, Citation

__all__ = ["CELLS_MAX", "EmbeddingRelease", "EmbeddingReleaseVerdict", "features_of"]


class DatabaseRecords(UntestedRows):
    """Rows of which databases are released."""

    off: ClassVar[str] = "a column's mean or shares are off by {} of the range, one with another"

    def answer(self, result: Any, held: Sequence[Held]) -> float:
        """Return how far a database's columns are off, one with another; the databases' mean.

        Of a numeric column the error of its mean, as a part of its range; of a categorical one the total
        variation distance of its levels' shares.
        """
        rows = [part for part in held if isinstance(part, Mapping)]
        if self.study.curator is not None or is_masked(self.study):
            rows = [{name: np.concatenate([part[name] for part in rows]) for name in rows[0]}]
        errors = [
            self._errors(database, part)
            for database, part in zip(result.databases.values(), rows, strict=True)
        ]
        return float(np.mean(errors))

    def _errors(self, database: Any, rows: Columns) -> list[float]:
        errors = []
        for column in self.study.domain.columns:
            points, values = database.points[column.name], rows[column.name]
            if isinstance(column, NumericColumn):
                clipped = np.nan_to_num(np.clip(values, column.lower, column.upper))
                off = float(database.weights @ np.asarray(points, dtype=np.float64)) - float(clipped.mean())
                errors.append(abs(off) / (column.upper - column.lower))
                continue
            off = sum(
                abs(float(database.weights @ (points == level)) - float(np.mean(values == level)))
                for level in column.levels
            )
            errors.append(off / 2)
        return errors


class EmbeddingRelease(Procedure):
    """See the module. Registered as ``embedding_release``."""

    name: ClassVar[str] = "embedding_release"
    title: ClassVar[str] = "What do the records look like?"
    families: ClassVar[frozenset[Family]] = frozenset(("gaussian", "pure"))
    Parameters: ClassVar[type[BaseModel]] = EmbeddingReleaseParameters
    Verdict: ClassVar[type[BaseVerdict]] = EmbeddingReleaseVerdict
    released: ClassVar[str] = "the kernel mean embedding of its units at public points"
    cited: ClassVar[tuple[Citation, ...]] = (DATABASE,)
    question: ClassVar[QuestionTemplate | None] = QuestionTemplate(
        "Publish a private database that anybody may query for ever?",
        r"publish|synthetic|database|release|share (a|the) (data|copy)",
        "one or more",
        rank=3,
    )
    held_by: ClassVar[frozenset[Holder]] = frozenset({"agents", "curator"})
    population: ClassVar[type[SimulationModel] | None] = DatabaseRecords
    choices: ClassVar[tuple[Mapping[str, Any], ...]] = (
        {},
        *({"n_points": count, "bandwidth": width} for count in (30, 100, 300) for width in (0.1, 0.3, 1.0)),
    )

    def plan(self, study: Study) -> DatabasePlan:
        """Return the plan of a study: a noisy mean, a drawn candidate, or histograms and then a mean."""
        require_shared_columns(study)
        plan = database_plan(study)
        numbers = sum(len(part.sums) for part in plan.parts(1))
        if numbers * (1 if study.curator is not None else len(study.owners)) > COORDINATES_MAX:
            raise StudyError("all owners' databases together have too many numbers; use fewer points or bins")
        require_noise(lambda: plan.require_drawable(1))
        return plan
