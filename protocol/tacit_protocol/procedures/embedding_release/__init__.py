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
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
from pydantic import BaseModel

from tacit_protocol.domain import NumericColumn, PooledTable, Table
from tacit_protocol.features.moments import MEAN, FeatureSums
from tacit_protocol.messages.study import Owner, Release, Study
from tacit_protocol.privacy.accounting import Family
from tacit_protocol.privacy.guarantee import COORDINATES_MAX, Guarantee
from tacit_protocol.privacy.noise import NoiseError, NoiseSource
from tacit_protocol.procedures.base import (
    HOPELESS,
    Fields,
    Holder,
    Procedure,
    Progress,
    QuestionTemplate,
    Releases,
    StudyError,
    SumsOfOwners,
    common_fields,
    parse_parameters,
    require_noise,
    require_shared_columns,
    reuse_warnings,
)
from tacit_protocol.procedures.embedding_release.plan import (
    CELLS_MAX,
    EmbeddingReleaseParameters,
    as_database,
    plan_of,
    require_same_database,
    require_same_mean,
    require_shared_ridge,
)
from tacit_protocol.procedures.embedding_release.release import (
    HISTOGRAMS,
    DrawnCandidate,
    HistogramsThenMean,
    HistogramSums,
    NoisyMean,
    features_of,
    histograms_then_mean,
    mechanism_of,
)
from tacit_protocol.procedures.embedding_release.verdict import (
    EmbeddingReleaseVerdict,
    database_panels,
    databases_of,
)
from tacit_protocol.procedures.masking import TOGETHER, SharedNoise, is_masked, total_of
from tacit_protocol.procedures.populations import Columns, Held, SimulationModel, UntestedRows
from tacit_protocol.verdicts.base import BaseVerdict
from tacit_protocol.verdicts.presentation import (
    DATABASE,
    OWNERS_NAMED_MAX,
    BarsPanel,
    Citation,
    Meaning,
    joined,
)

__all__ = ["CELLS_MAX", "EmbeddingRelease", "EmbeddingReleaseVerdict", "features_of", "plan_of"]


@dataclass(frozen=True)
class DatabaseSummary:
    """Exact sums, with the public counts of a curator's owners. They never leave their holder."""

    units_by_owner: Mapping[str, int]
    sums: FeatureSums | HistogramSums = field(repr=False)


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


class EmbeddingRelease(SumsOfOwners, Procedure):
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

    def check(self, study: Study) -> None:
        """Raise StudyError where the study cannot be run as written."""
        require_shared_columns(study)
        found = _mechanism(study)
        numbers = (
            found.numbers if isinstance(found, HistogramsThenMean) else plan_of(study).features.dimension
        )
        databases = 1 if study.curator is not None else len(study.owners)
        if numbers * databases > COORDINATES_MAX:
            raise StudyError("all owners' databases together have too many numbers; use fewer points or bins")
        require_noise(lambda: found.require_drawable(1))

    def cost(self, study: Study) -> Guarantee:
        """Return what each owner spends: the study's whole budget, in one release."""
        return _mechanism(study).guarantee

    def shared_noise(self, study: Study) -> SharedNoise | None:
        """Return the noise that owners who mask share; None where every database is read by itself."""
        found = _mechanism(study)
        return found.plan.shared if isinstance(found, NoisyMean) else None

    def describe_request(self, study: Study) -> tuple[str, ...]:
        """Say of masked sums what is gained and hidden, and what it costs."""
        return self.asked_of_masks(study)

    def check_units(self, study: Study, units: Mapping[str, int]) -> None:
        """Raise PublicRuleError where sums of so many units, or their noise, have no room."""
        self.require_room(study, units)
        counts = list(units.values())
        if study.curator is not None:
            counts = [sum(counts)] if all(owner.name in units for owner in study.owners) else []
        for count in counts:
            require_noise(partial(_mechanism(study).require_drawable, count))

    def release_size(self, study: Study) -> int:
        """Return how many noisy numbers one sender sends: one a coordinate; a choice counts as one."""
        return _mechanism(study).numbers

    def candidates(self, study: Study) -> int:
        """Return how many candidates the exponential mechanism draws from; 0 with the other methods."""
        found = _mechanism(study)
        return len(found.candidates) if isinstance(found, DrawnCandidate) else 0

    def warnings(self, study: Study, units: Mapping[str, int]) -> tuple[str, ...]:
        """Say where the noise is as large as the whole of what is released.

        ``units`` counts those of owners, or of senders.
        """
        if study.curator is not None:
            if study.curator.name not in units and any(owner.name not in units for owner in study.owners):
                return ()
            units = {study.curator.name: units.get(study.curator.name) or sum(units.values())}
        mechanism = _mechanism(study)
        if is_masked(study):
            if any(owner.name not in units for owner in study.owners):
                return ()
            units = {TOGETHER: sum(units.values())}
        drowned = [name for name, count in units.items() if _error(mechanism, count, study.level) >= 1]
        if not drowned:
            return ()
        hopeless = not isinstance(mechanism, DrawnCandidate) and all(
            mechanism.deviation(count) >= 1 for count in units.values()
        )
        return (
            f"{HOPELESS if hopeless else ''}the noise exceeds all that is released of {', '.join(drowned)}: "
            "use fewer points, a larger epsilon or more units",
        )

    def summarise(self, study: Study, table: Table) -> DatabaseSummary:
        """Sum the units' features, exactly; or first their histograms, on which the features' points depend.

        The sums never leave the owner or the curator.
        """
        by_owner = table.units_by_owner if isinstance(table, PooledTable) else {}
        return DatabaseSummary(by_owner, _mechanism(study).sum(table))

    def adapt(self, study: Study, summary: DatabaseSummary, noise: NoiseSource) -> DatabaseSummary:
        """Draw the histograms' noise, and sum the features on the points that follow from it."""
        found = _mechanism(study)
        if not isinstance(found, HistogramsThenMean) or not isinstance(summary.sums, HistogramSums):
            return summary
        try:
            return replace(summary, sums=found.adapt(summary.sums, noise))
        except NoiseError as error:
            raise StudyError(str(error)) from None

    def privatise(self, study: Study, summary: DatabaseSummary, noise: NoiseSource) -> Release:
        """Add the noise that ``cost`` states to the sums, or draw a candidate."""
        found = _mechanism(study)
        try:
            if isinstance(found, HistogramsThenMean):
                release = found.release(_histogram_sums(summary.sums), noise)
            else:
                release = found.release(_feature_sums(summary.sums), noise)
        except NoiseError as error:
            raise StudyError(str(error)) from None
        return release.model_copy(update={"units_by_owner": dict(summary.units_by_owner)})

    def check_release(self, study: Study, release: Release) -> None:
        """Raise ReleaseError where the release has not the shape and the noise that the study fixes."""
        _mechanism(study).check(release)

    def reread(self, study: Study, owner: Owner, source: Study, release: Release) -> Release:  # noqa: ARG002
        """Return an earlier database, or a two-sample release's mean, where it is what the study asks for.

        Of a two-sample release the second moment is left out; the mean keeps its own noise.

        Raises:
            StudyError: it was made with other features; says which to make the same.
        """
        ours = parse_parameters(EmbeddingReleaseParameters, study)
        if source.procedure == "kernel_two_sample":
            theirs = as_database(source)
        elif source.procedure == self.name:
            theirs = parse_parameters(EmbeddingReleaseParameters, source)
        else:
            raise StudyError("a database is read from releases of kernel_two_sample and embedding_release")
        require_same_mean(study, ours, source, theirs)
        if source.procedure != self.name:
            require_shared_ridge(ours)
        kept = {name: release.vectors[name] for name in (HISTOGRAMS, MEAN) if name in release.vectors}
        return Release(units=release.units, guarantee=release.guarantee, vectors=kept, choice=release.choice)

    borrowers: ClassVar[frozenset[str]] = frozenset({"kernel_two_sample"})

    def check_borrower(self, study: Study, source: Study) -> None:
        """Raise StudyError unless a two-sample study can use a database release for ``source`` as a mean."""
        require_same_database(study, source)

    def check_reread(self, study: Study, release: Release) -> None:
        """Raise ReleaseError where a release that is read again is not a database of this study."""
        _mechanism(study).check_reread(release)

    def meaning(self, study: Study, verdict: Fields) -> Meaning:  # noqa: ARG002
        """Say what a verdict means, in sentences."""
        senders = (
            [study.curator.name] if study.curator is not None else [owner.name for owner in study.owners]
        )
        one = len(senders) == 1 or is_masked(study)
        databases = "A private database" if one else "Private databases"
        together = " together" if is_masked(study) else ""
        return Meaning(
            f"{databases} of {joined(senders, OWNERS_NAMED_MAX)}{together} {'was' if one else 'were'} "
            "released.",
            "A database tests nothing by itself; questions asked of it cost no privacy, and its answers have "
            "errors that it states.",
            tests=False,
        )

    def panels(
        self,
        study: Study,
        verdict: Fields,
        releases: Releases,  # noqa: ARG002 (a verdict has all that is drawn)
    ) -> list[BarsPanel]:
        """Return every column of every database as bars."""
        return database_panels(study, verdict)

    def assemble(
        self, study: Study, releases: Mapping[str, Release], progress: Progress | None = None
    ) -> EmbeddingReleaseVerdict:
        """Lay points and databases out: post-processing alone, the same for everyone."""
        if progress is not None:
            progress(0.5, "reading the releases")
        names = [study.curator.name] if study.curator is not None else [owner.name for owner in study.owners]
        made = {name: releases[name] for name in names}
        units = {name: release.units for name, release in made.items()}
        shared = self.shared_noise(study)
        caveats = () if shared is None else shared.caveats(self.masked_numbers)
        if shared is not None:
            made = {TOGETHER: total_of(shared.masking, made)}
        return EmbeddingReleaseVerdict(
            reject=False,
            **common_fields(study, units, None if shared is None else shared.own),
            columns=tuple(column.name for column in study.domain.columns),
            warnings=self.warnings(study, units) + caveats + reuse_warnings(study),
            **databases_of(study, _mechanism(study), made),
        )


Mechanism = NoisyMean | DrawnCandidate | HistogramsThenMean


def _mechanism(study: Study) -> Mechanism:
    """Return how a study's release is made; raises StudyError where it cannot be run as written."""
    return histograms_then_mean(study) or mechanism_of(plan_of(study))


def _histogram_sums(sums: FeatureSums | HistogramSums) -> HistogramSums:
    if not isinstance(sums, HistogramSums):
        raise TypeError("the summary is that of another study")
    return sums


def _feature_sums(sums: FeatureSums | HistogramSums) -> FeatureSums:
    if isinstance(sums, HistogramSums):
        raise TypeError("the summary is that of another study")
    return sums


def _error(mechanism: Mechanism, units: int, level: float) -> float:
    """How large the noise is beside a mean of norm 1: its norm, or what a choice may lose by it."""
    if isinstance(mechanism, DrawnCandidate):
        return mechanism.excess(units, level)
    return mechanism.noise_error(units)
