"""The plans of an association: separate sums in either noise, of signs alone, or masked covariances."""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field
from scipy.special import ndtri

from tacit_protocol.domain import CategoricalColumn, NumericColumn, Table
from tacit_protocol.features.column_histograms import HISTOGRAMS, ColumnHistograms, HistogramSums
from tacit_protocol.messages.study import Owner, Release, Study
from tacit_protocol.numerics.inference import Effects, Estimated, holm, laplace_widening
from tacit_protocol.privacy.exact_sums import FEATURE_ERROR_STEPS, grid_bits, rounding_sensitivity
from tacit_protocol.privacy.gaussian_mechanism import LayoutError, SumPart, gaussian_guarantee, mu_of
from tacit_protocol.privacy.guarantee import COORDINATES_MAX, Guarantee, NoisyVector
from tacit_protocol.privacy.laplace_mechanism import (
    check_laplace_sums,
    choice_guarantee,
    of_event,
    release_laplace_sums,
    require_laplace,
    shared_laplace_guarantee,
    sums_scale,
)
from tacit_protocol.privacy.noise import NoiseSource
from tacit_protocol.procedures.association.release import (
    ADAPTED,
    HISTOGRAM_WEIGHT,
    PAIR_WEIGHTS,
    PUBLIC,
    RR,
    RankScores,
    RankTransform,
    RankWeights,
    ScorePairs,
    Scores,
    absolute_movement,
    dimension,
    squared_movement,
    squared_movement_of_signs,
)
from tacit_protocol.procedures.association.statistic import (
    DRAW_WORK,
    LAPLACE_PARTS,
    OwnerSums,
    Tested,
    block,
    correlation,
    crowded,
    deviation,
    estimated,
    independent,
    independent_masked,
    masked_correlation,
    masked_visible,
    null_draws,
    rank_block,
)
from tacit_protocol.procedures.association.verdict import (
    PEARSON,
    RANKS,
    AssociatedPair,
    AssociationResult,
    differences_sentence,
    direction,
)
from tacit_protocol.procedures.base import (
    HOPELESS,
    Fields,
    Progress,
    ReleaseError,
    Releases,
    StudyError,
    common_fields,
    decided,
    parse_parameters,
    public_seed,
    require_work,
    reuse_warnings,
    step,
)
from tacit_protocol.procedures.masking import MaskedParameters, SharedNoise
from tacit_protocol.procedures.plan import Plan
from tacit_protocol.procedures.within_owners.covariances import ReadPairs
from tacit_protocol.procedures.within_owners.plan import ADVICE, MaskedCovariances, SeparateSums
from tacit_protocol.procedures.within_owners.verdict import (
    BY_OWNER_MAX,
    STATED_MAX,
    WIDE,
    bounds_warning,
    smallest,
    told_spread,
    visible,
)
from tacit_protocol.verdicts.base import Effect, effects_of, forest
from tacit_protocol.verdicts.presentation import Meaning, RowsPanel, decision_sentence, joined

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

SCORES = "scores"
"""Name of the scores' vector in a release."""

BINS, BINS_OF_FEW = 64, 32
"""Equal intervals of a numeric column's histogram, at owners of many units and of few: values within one are
ties. Many tell values apart within bounds that are too wide; few carry less noise."""

UNITS_A_BIN = 0.5
"""Fewest units of an average interval, in standard deviations of its noise, from which there are ``BINS``."""

COLUMNS_MAX = 20
LEVELS_MAX = 16

HISTOGRAM_PART = 0.25
"""Part of epsilon that pays for histograms in Laplace noise."""

ADAPTIVE_FROM = 200.0
"""Units times epsilon, for each column, from which there are histograms in pure epsilon: from noisier ones no
grades could be read that find as much as the middle of the bounds does."""

NULL_STREAM = 1
"""Spawn key under the study's seed of the null of pairs in Laplace noise."""

TEST_OF_RANKS = "spearman"

CROWDED = 0.5
"""Share of an owner's units in one cell of a number's bounds from which ranks are said to be mostly ties."""

SMALL = 0.3
"""A correlation that must be seen; of no association as large nothing more is said."""

NO_INTERVAL = "how far a correlation may be off cannot be said: that needs more than covariances"
"""What a masked sum does not tell of its correlations."""

GAUSSIAN_FROM, LAPLACE_TO, PUBLIC_TO = 0.5, 1.0, 0.7
"""Gaussian noise is taken up to so many times sampling's standard deviation, on a sum of r r', and from where
Laplace noise is so many times it, or less by public grades: its release tells of numbers' own correlation and
of spreads too."""

HIDES_ALL = f"{HOPELESS}noise would hide even a rank correlation of 1; {ADVICE}"


class AssociationParameters(MaskedParameters):
    """What leaves with which noise; every pair of the study's columns is looked at."""

    noise: Literal["gaussian", "laplace"] = Field(
        "gaussian",
        description=(
            "gaussian, of ten sums a pair and more, needs a delta; laplace, of sums of ranks alone, costs "
            "epsilon alone, and states rank correlations."
        ),
    )


class AssociationPlan(Plan):
    """What is asked of every pair of a study's columns, and told, whatever leaves."""

    @property
    def pairs_of_columns(self) -> list[tuple[int, int]]:
        """The places of both columns of every pair."""
        return list(itertools.combinations(range(len(self.study.domain.columns)), 2))

    def bins(self, units: Mapping[str, int]) -> int:  # noqa: ARG002
        """Return into how many cells ranks cut numbers' bounds, the fewest of any owner; 0 where none are."""
        return 0

    def describe_request(self) -> tuple[str, ...]:
        names = joined([column.name for column in self.study.domain.columns], 6)
        return f"asks how {names} go together, within owners", *super().describe_request()

    def meaning(self, verdict: Fields) -> Meaning:
        """Say which columns go together, and how strongly."""
        pairs = [AssociatedPair.model_validate(own, strict=False) for own in verdict.get("pairs", ())]
        found = joined([own.named for own in pairs if own.reject] or ["some columns"], 6)
        said = decision_sentence(
            self.study,
            verdict,
            f"Columns go together within owners: {found}",
            "No dependence of columns within owners was shown: they may be independent",
        )
        words = "; ".join(differences_sentence(effects_of(verdict.get("effects", ())), pairs))
        if not words:
            return said
        bins = self.bins(verdict.get("units", {}))
        ties = f" Ranks take values within 1/{bins} of a number's bounds as ties." if bins else ""
        return Meaning(f"{said.sentence} Of {words}.{ties}", said.care)

    def panels(self, verdict: Fields, releases: Releases) -> list[RowsPanel]:  # noqa: ARG002
        """Return forest plots: the owners' correlations, and those that they have in common."""
        return forest(effects_of([*verdict["effects_by_owner"], *verdict["effects"]]), self.study.level)

    def tested(
        self,
        tests: Sequence[Tested],
        adjusted: Floats,
        correlations: Sequence[float],
        same: Sequence[float | None],
    ) -> tuple[AssociatedPair, ...]:
        """Return every pair as a verdict states it.

        ``correlations`` give the directions of pairs, 0 where none is told from 0; ``same`` are the p-values
        that owners have them in common.
        """
        columns = self.study.domain.columns
        return tuple(
            AssociatedPair(
                first=columns[a].name,
                second=columns[b].name,
                direction=direction((columns[a], columns[b]), correlation),
                statistic=test.statistic,
                pvalue=float(pvalue),
                reject=bool(pvalue <= self.study.level),
                heterogeneity_pvalue=common,
            )
            for (a, b), test, pvalue, correlation, common in zip(
                self.pairs_of_columns, tests, adjusted, correlations, same, strict=True
            )
        )

    def alone(self, pvalues: Floats) -> Iterator[tuple[int, NumericColumn, Sequence[int]]]:
        """Yield every number that goes together with nothing, its place and those of its pairs.

        Of what was found nothing is said to have been unseen.
        """
        for at, column in enumerate(self.study.domain.columns):
            own = [place for place, pair in enumerate(self.pairs_of_columns) if at in pair]
            if isinstance(column, NumericColumn) and all(pvalues[place] > self.study.level for place in own):
                yield at, column, own


class SeparateAssociation(AssociationPlan, SeparateSums):
    """Histograms of all columns, then sums of scores by the grades that follow from the noisy ones."""

    deviations: ClassVar[float] = 1.0
    """The standard deviation of noise of scale 1."""
    ranks_alone: ClassVar[bool] = True
    """Whether sums of ranks leave alone, and none of numbers' own values."""
    signs: ClassVar[bool] = False
    """Whether all columns have two levels."""
    most: ClassVar[float] = 1 / 3
    """A unit's part of the covariance of two columns that are alike: of grades it is one third."""
    told: ClassVar[tuple[str, str]] = ("values and grades", "noise counted")
    """Of what covariances are, and what is made of the noise, as a verdict's method says it."""

    def __init__(self, study: Study, parameters: AssociationParameters, guarantee: Guarantee) -> None:
        self.study, self.parameters, self.guarantee = study, parameters, guarantee
        self.domain = study.domain
        self.columns = len(self.domain.columns)

    # What leaves.

    @property
    def cell_noise(self) -> float:
        """The noise's standard deviation on a histogram's count."""
        raise NotImplementedError

    @property
    def dimension(self) -> int:
        """How many scores there are, at most."""
        raise NotImplementedError

    @cached_property
    def release_size(self) -> int:  # type: ignore[override]
        """How many noisy numbers one owner sends, at most; of few units in pure epsilon there are fewer."""
        return ColumnHistograms(self.domain, BINS).size + self.dimension

    def rank_noise(self, units: int) -> float:
        """Return the noise's standard deviation on a sum of r r' of so many units."""
        raise NotImplementedError

    def adaptive(self, units: int) -> bool:  # noqa: ARG002
        """Say whether histograms leave, from which grades are read."""
        return True

    def histograms(self, units: int) -> ColumnHistograms:
        """Return the public cells of an owner of so many units."""
        many = units >= BINS * UNITS_A_BIN * self.cell_noise
        return ColumnHistograms(self.domain, BINS if many else BINS_OF_FEW)

    def grades(self, noisy: NoisyVector | None, units: int) -> tuple[RankTransform, ...]:
        """Return every column's grades from noisy histograms, or public ones: the same for everyone."""
        histograms = self.histograms(units)
        if noisy is None:
            return tuple(RankTransform.public(cells) for cells in histograms.columns)
        total, noise = units << -noisy.exponent, float(np.ldexp(noisy.scale, -noisy.exponent))
        return tuple(
            RankTransform.of(cells, own, total, noise * self.deviations)
            for cells, own in zip(histograms.columns, histograms.split(noisy.values), strict=True)
        )

    def scores(self, grades: Sequence[RankTransform], units: int) -> Scores | RankScores:
        """Return the scores of so many units by these grades."""
        raise NotImplementedError

    def exact(self, units: int, sums: HistogramSums | None, dimension: int) -> tuple[Integers, Integers]:
        """Return the numbers of histograms and of so many scores; zeros where they are not given."""
        steps = np.zeros(self.histograms(units).size, dtype=np.int64) if sums is None else sums.steps
        scores = None if sums is None else sums.then
        return steps, np.zeros(dimension, dtype=np.int64) if scores is None else scores.total

    def summarise(self, table: Table, order: np.random.Generator | None = None) -> HistogramSums:  # noqa: ARG002
        """Count the units by cell, exactly."""
        return HistogramSums.of(self.histograms(table.units), table)

    def adapt(self, summary: HistogramSums, noise: NoiseSource) -> HistogramSums:
        """Draw the histograms' noise, and sum the scores by the grades that follow from it."""
        units = summary.units
        noisy = self.noisy_part(0, summary, noise) if self.adaptive(units) else None
        return summary.followed(noisy, self.scores(self.grades(noisy, units), units))

    def privatise(self, summary: HistogramSums, noise: NoiseSource) -> Release:
        """Add noise to histograms, where any leave, and to scores."""
        if summary.then is None:
            summary = self.adapt(summary, noise)
        vectors = {} if summary.noisy is None else {HISTOGRAMS: summary.noisy}
        vectors[SCORES] = self.noisy_part(-1, summary, noise)
        return Release(units=summary.units, guarantee=self.guarantee, vectors=vectors)

    def noisy_part(self, place: int, sums: HistogramSums, noise: NoiseSource) -> NoisyVector:
        """Add the noise to one of the vectors. Raises SensitivityError where it cannot be drawn."""
        self.require_drawable(sums.units)
        part = self.parts(sums.units, sums)[place]
        return self.noisy((part,), noise)[part.name]

    def reread(self, owner: Owner, source: Study, release: Release) -> Release:
        """Return a release as it is, where it was made for the same columns and budget, with this noise."""
        if source.procedure == self.study.procedure:
            made = parse_parameters(AssociationParameters, source).noise
            if made != self.kind:
                raise StudyError("the reused release was made with another noise; use the same")
        return super().reread(owner, source, release)

    # What is said of it.

    def bins(self, units: Mapping[str, int]) -> int:
        """Return the fewest cells of any owner; 0 without numbers, or where grades are public."""
        numeric = self.domain.numeric and units and all(self.adaptive(count) for count in units.values())
        return min(self.histograms(count).bins for count in units.values()) if numeric else 0

    def warnings(self, units: Mapping[str, int]) -> tuple[str, ...]:
        """Say where noise drowns the strongest rank correlation at these numbers of units."""
        if not units:
            return ()
        noise = {name: self.rank_noise(count) for name, count in units.items()}
        few = self.few(units)
        together = sum(own**2 for own in noise.values()) ** 0.5
        if sum(units.values()) * self.most < -float(ndtri(self.study.level / 2)) * together:
            return (HIDES_ALL, *few)
        drowned = [name for name, count in units.items() if count * self.most < 2 * noise[name]]
        if not drowned:
            return few
        return *few, f"noise hides even a rank correlation of 1 at {', '.join(drowned)}; {ADVICE}"

    def masked(self, shared: SharedNoise) -> "MaskedAssociation":
        return MaskedAssociation(self, shared)

    def few(self, units: Mapping[str, int]) -> tuple[str, ...]:  # noqa: ARG002
        """Say where units are too few for histograms."""
        return ()

    # What a tester makes of it.

    def blocks(self, releases: Sequence[Release]) -> Iterator[list[OwnerSums]]:
        """Yield every pair's noisy numbers, owner by owner."""
        count, read = self.columns, []
        width = (2 if self.ranks_alone else 4) * count
        for release in releases:
            sums = release.vectors[SCORES].mean(1)
            grades = self.grades(release.vectors.get(HISTOGRAMS), release.units)
            own, products = sums[:width].reshape(count, -1), sums[width:]
            read.append((release, grades, own, products.reshape(len(self.pairs_of_columns), -1)))
        for place, (a, b) in enumerate(self.pairs_of_columns):
            yield [
                self.block(release, columns[[a, b]], products[place], (grades[a], grades[b]))
                for release, grades, columns, products in read
            ]

    def block(
        self, release: Release, columns: Floats, products: Floats, grades: tuple[RankTransform, RankTransform]
    ) -> OwnerSums:
        """Return a pair's weighted noisy sums in a release as sums of scores."""
        scale = release.vectors[SCORES].scale
        return rank_block(release.units, columns, products, scale, grades, self.kind == "laplace")

    def of_intervals(self, blocks: Sequence[OwnerSums]) -> Sequence[OwnerSums]:
        """Return a pair's blocks as intervals count their noise."""
        return blocks

    def conclude(
        self,
        releases: Releases,
        units: Mapping[str, int],  # noqa: ARG002 (releases state them)
        progress: Progress | None = None,
    ) -> AssociationResult:
        """Test every pair, and estimate its correlations."""
        study, names = self.study, [owner.name for owner in self.study.owners]
        columns = [column.name for column in self.domain.columns]
        pairs = list(itertools.combinations(columns, 2))
        blocks: list[Sequence[OwnerSums]] = list(self.blocks([releases[name] for name in names]))
        report, tests = step(progress, "testing pairs", 0.0, 0.8), []
        for place, pair in enumerate(blocks):
            report(place / len(blocks))
            tests.append(independent(pair, public_seed(study, NULL_STREAM, place), null_draws(len(pairs))))
        step(progress, "estimating correlations", 0.8)(0.0)
        pvalues = np.array([test.pvalue for test in tests])
        adjusted = holm(pvalues)
        order = [int(place) for place in np.argsort(pvalues, kind="stable")]
        blocks = [self.of_intervals(pair) for pair in blocks]
        own = {place: correlations(blocks[place], pooled=False) for place in order}
        same = {
            place: smallest([effects.heterogeneity() for effects in own[place].values()]) for place in order
        }
        counted = {name: releases[name].units for name in names}
        common = [correlations(pair, pooled=True) for pair in blocks]
        bins = self.bins(counted)
        cells = f", ranks of values by cells of 1/{bins} of the bounds" if bins else ""
        of, noise = self.told
        return AssociationResult(
            method=f"score tests of covariances of {of} within {len(names)} "
            f"owner{'' if len(names) == 1 else 's'}, {noise}{cells}, of {_of_pairs(len(pairs))}",
            **decided(study, tests[order[0]].statistic, float(adjusted[order[0]])),
            **common_fields(study, counted),
            warnings=(
                *self.drowned(blocks, common, adjusted),
                *self.warnings(counted),
                *reuse_warnings(study),
            ),
            pairs=self.tested(
                tests,
                adjusted,
                [_told(estimated(found[RANKS], study.level)) for found in common],
                [same[place] for place in range(len(pairs))],
            ),
            effects=tuple(
                _effect(pairs[place], kind, effects, study.level)
                for place in order[:STATED_MAX]
                for kind, effects in common[place].items()
            ),
            effects_by_owner=tuple(
                _effect(pairs[place], kind, effects.owner(at), study.level, name)
                for place in order[: min(STATED_MAX, BY_OWNER_MAX // len(names))]
                for kind, effects in own[place].items()
                for at, name in enumerate(names)
            ),
            heterogeneity_pvalue=smallest(list(same.values())),
        )

    def drowned(
        self,
        blocks: Sequence[Sequence[OwnerSums]],
        common: Sequence[Mapping[str, Effects]],
        pvalues: Floats,
    ) -> Iterator[str]:
        """Say of which numbers the release shows that bounds are too wide, or noise is too large."""
        for at, column, own in self.alone(pvalues):
            read, side = blocks[own[0]], self.pairs_of_columns[own[0]].index(at)
            if not all(len(block.grades[side].shares) for block in read):
                continue
            seen = {}
            for kind in common[own[0]]:
                found = [estimated(common[place][kind], self.study.level) for place in own]
                halves = [
                    (e.upper - e.lower) / 2 for e in found if e.upper is not None and e.lower is not None
                ]
                seen[kind] = visible(min(halves, default=math.inf), self.study.level)
            if max(seen.values()) < SMALL:
                continue
            spread, (share, low, high) = deviation(read, side), crowded(read, side)
            width = column.upper - column.lower
            wide = spread * WIDE < 2
            if wide or seen[RANKS] >= 1:
                unseen = " and ".join(_below(kind, size) for kind, size in seen.items())
                if (found_wide := bounds_warning(column, (spread, wide), unseen, TEST_OF_RANKS)) is not None:
                    yield found_wide
            if share > CROWDED:
                ends = [column.lower + end * width for end in (low, high)]
                yield (
                    f"{100 * share:.2g} % of the values of {column.name} lie between {ends[0]:.3g} and "
                    f"{ends[1]:.3g}, one cell of its bounds, and count as ties"
                )


class GaussianAssociation(SeparateAssociation):
    """Scores of values and of grades, in Gaussian noise: both vectors share mu."""

    ranks_alone: ClassVar[bool] = False

    @property
    def moved(self) -> tuple[float, float]:
        """The squared movement of weighted histograms, and of scores: their shares of mu^2."""
        return 2 * self.columns * HISTOGRAM_WEIGHT, squared_movement(self.columns)

    @property
    def cell_noise(self) -> float:
        return math.sqrt(sum(self.moved) / HISTOGRAM_WEIGHT) / mu_of(self.guarantee)

    @property
    def dimension(self) -> int:
        return dimension(self.columns)

    def rank_noise(self, units: int) -> float:  # noqa: ARG002
        """Return the noise's standard deviation on a sum of r r'."""
        return math.sqrt(sum(self.moved) / PAIR_WEIGHTS[RR]) / mu_of(self.guarantee)

    def scores(self, grades: Sequence[RankTransform], units: int) -> Scores | RankScores:  # noqa: ARG002
        return Scores(grades)

    def parts(self, units: int, sums: HistogramSums | None = None) -> tuple[SumPart, ...]:
        """Lay the release out: histograms, then scores; zeros where nothing is given."""
        bits, cells, (first, second) = grid_bits(units, products=False), self.histograms(units), self.moved
        steps, scores = self.exact(units, sums, self.dimension)
        return (
            SumPart(HISTOGRAMS, steps, -bits, cells.l2_sensitivity, first / (first + second)),
            SumPart(
                SCORES,
                scores,
                -bits,
                float(np.sqrt(second)) + rounding_sensitivity(self.dimension, bits),
                second / (first + second),
            ),
        )

    def block(
        self, release: Release, columns: Floats, products: Floats, grades: tuple[RankTransform, RankTransform]
    ) -> OwnerSums:
        """Return a pair's sums of values and grades."""
        return block(release.units, columns, products, release.vectors[SCORES].scale, grades)

    def gives_way(self, pure: SeparateAssociation, units: int) -> bool:
        """Whether Laplace noise is less, or little more, and this is not small beside sampling's."""
        gaussian, most = self.rank_noise(units), LAPLACE_TO if pure.adaptive(units) else PUBLIC_TO
        less = pure.rank_noise(units) < most * gaussian
        return less and gaussian > GAUSSIAN_FROM * math.sqrt(units) / 3


class LaplaceAssociation(SeparateAssociation):
    """Sums of ranks alone in Laplace noise, after histograms where units are enough: they share epsilon."""

    kind: ClassVar[str] = "laplace"
    deviations: ClassVar[float] = math.sqrt(2)
    told: ClassVar[tuple[str, str]] = ("grades", "Laplace noise simulated")

    @property
    def cell_noise(self) -> float:
        return math.sqrt(2) * 2 * self.columns / (HISTOGRAM_PART * self.guarantee.budget.epsilon)

    @property
    def dimension(self) -> int:
        return ADAPTED.dimension(self.columns)

    def rank_noise(self, units: int) -> float:
        """Return the noise's standard deviation on a sum of r r'."""
        return math.sqrt(2) * sums_scale(self.parts(units)[-1], self.events(units)[-1])

    def adaptive(self, units: int) -> bool:
        """Say whether units are enough for histograms."""
        return units * self.guarantee.budget.epsilon >= ADAPTIVE_FROM * self.columns

    def weights(self, units: int) -> RankWeights:
        """Return the weights of scores of ranks."""
        return ADAPTED if self.adaptive(units) else PUBLIC

    def events(self, units: int) -> tuple[Guarantee, ...]:
        """Return what each vector's noise is made for: its part of epsilon."""
        shares = (HISTOGRAM_PART, 1 - HISTOGRAM_PART) if self.adaptive(units) else (1.0,)
        whole = shared_laplace_guarantee(self.guarantee.budget, shares)
        return tuple(of_event(whole, place) for place in range(len(shares)))

    def scores(self, grades: Sequence[RankTransform], units: int) -> Scores | RankScores:
        return RankScores(grades, self.weights(units))

    def parts(self, units: int, sums: HistogramSums | None = None) -> tuple[SumPart, ...]:
        """Lay the release out: histograms, where any leave, then scores; zeros where nothing is given."""
        bits, weights = grid_bits(units, products=False), self.weights(units)
        count = weights.dimension(self.columns)
        steps, scores = self.exact(units, sums, count)
        # Each of two neighbours lies a row's and its unit's half step, and a float's error, off.
        rounding = 2 * (1 + FEATURE_ERROR_STEPS) * count * 2.0**-bits
        moved = math.nextafter(absolute_movement(self.columns, weights) + rounding, math.inf)
        own = SumPart(SCORES, scores, -bits, moved, 1.0, l1=moved)
        if not self.adaptive(units):
            return (own,)
        cells = self.histograms(units)
        return SumPart(HISTOGRAMS, steps, -bits, cells.l2_sensitivity, 1.0, l1=2.0 * self.columns), own

    def require_drawable(self, units: int) -> None:
        for part, own in zip(self.parts(units), self.events(units), strict=True):
            require_laplace(part, own)

    def noisy_part(self, place: int, sums: HistogramSums, noise: NoiseSource) -> NoisyVector:
        """Add the noise of a vector's own part of epsilon."""
        part = self.parts(sums.units, sums)[place]
        return release_laplace_sums(part, self.events(sums.units)[place], noise)

    def check_release(self, release: Release) -> None:
        """Raise ReleaseError where the vectors have not the shape and the noise that the study fixes."""
        try:
            parts = self.parts(release.units)
        except ValueError as error:
            raise ReleaseError(str(error)) from None
        if release.guarantee != self.guarantee or set(release.vectors) != {part.name for part in parts}:
            raise LayoutError("the release has not the vectors and the guarantee that the study asks for")
        for part, own in zip(parts, self.events(release.units), strict=True):
            check_laplace_sums(release.vectors[part.name], own, part, own)

    def check_work(self) -> None:
        """Raise StudyError where the null would take too long to simulate."""
        pairs = len(self.pairs_of_columns)
        require_work(DRAW_WORK * len(LAPLACE_PARTS) * len(self.study.owners) * pairs, null_draws(pairs))

    def describe_request(self) -> tuple[str, ...]:
        asked = super().describe_request()
        return *asked, f"releases sums of ranks in Laplace noise of pure epsilon: {self.reason()}"

    @property
    def released(self) -> str | None:
        """What an owner computes and releases."""
        return "histograms of its columns where it has units enough, and sums of ranks and their products"

    def few(self, units: Mapping[str, int]) -> tuple[str, ...]:
        """Say that of few units the middle of bounds is looked at."""
        if all(self.adaptive(count) for count in units.values()):
            return ()
        return (
            "so few units for this epsilon that columns are looked at by the middle of their bounds, and "
            "no correlation is stated; where most values lie to one side of it little can be found",
        )

    def of_intervals(self, blocks: Sequence[OwnerSums]) -> Sequence[OwnerSums]:
        """Return a pair's blocks with noise variances widened for Laplace's tails."""
        return [own.widened(laplace_widening(self.study.level)) for own in blocks]


class Signs(SeparateAssociation):
    """Columns of two levels alone: sums of signs and of their products are all there is, by public grades."""

    ranks_alone: ClassVar[bool] = True
    signs: ClassVar[bool] = True
    most: ClassVar[float] = 1.0

    @property
    def dimension(self) -> int:
        return PUBLIC.dimension(self.columns)

    @cached_property
    def release_size(self) -> int:  # type: ignore[override]
        """How many noisy numbers one owner sends."""
        return self.dimension

    def adaptive(self, units: int) -> bool:  # noqa: ARG002
        """Return False: grades are public."""
        return False

    @property
    def released(self) -> str | None:
        """What an owner computes and releases."""
        return "of columns of two levels, -1 and 1, the sums, and those of their products"

    def few(self, units: Mapping[str, int]) -> tuple[str, ...]:  # noqa: ARG002
        """Return nothing: signs need no histogram."""
        return ()


class GaussianSigns(Signs, GaussianAssociation):
    """Those in Gaussian noise."""

    block = SeparateAssociation.block

    def rank_noise(self, units: int) -> float:  # noqa: ARG002
        return math.sqrt(squared_movement_of_signs(self.columns)) / mu_of(self.guarantee)

    def scores(self, grades: Sequence[RankTransform], units: int) -> Scores | RankScores:  # noqa: ARG002
        return RankScores(grades, PUBLIC)

    def parts(self, units: int, sums: HistogramSums | None = None) -> tuple[SumPart, ...]:
        """Lay the release out: scores alone."""
        bits, count = grid_bits(units, products=False), self.dimension
        _, scores = self.exact(units, sums, count)
        moved = math.sqrt(squared_movement_of_signs(self.columns)) + rounding_sensitivity(count, bits)
        return (SumPart(SCORES, scores, -bits, moved, 1.0),)

    def gives_way(self, pure: SeparateAssociation, units: int) -> bool:
        """Whether Laplace noise, which is on the same sums, is smaller."""
        return pure.rank_noise(units) < self.rank_noise(units)


class LaplaceSigns(Signs, LaplaceAssociation):
    """Those in Laplace noise."""


class MaskedAssociation(MaskedCovariances, AssociationPlan):
    """Covariances of bounded scores within owners, of which the sum of all is read."""

    pairs: ScorePairs

    def __init__(self, separate: SeparateAssociation, shared: SharedNoise) -> None:
        super().__init__(separate.study, shared, ScorePairs(separate.domain))

    @property
    def released(self) -> str | None:
        """What an owner computes and releases."""
        return "its covariances of bounded scores of columns, with their variances where chance alone acts"

    def warnings(self, units: Mapping[str, int]) -> tuple[str, ...]:
        """Say where noise hides two columns that are alike, half of whose values are at either bound."""
        return (HIDES_ALL,) if self.is_hidden(sum(units.values()), units) else ()

    def conclude(
        self,
        releases: Releases,
        units: Mapping[str, int],  # noqa: ARG002 (releases state them)
        progress: Progress | None = None,  # noqa: ARG002
    ) -> AssociationResult:
        """Test every pair, and estimate its correlations."""
        study, columns = self.study, [column.name for column in self.study.domain.columns]
        found, counted = self.read(releases), {o.name: releases[o.name].units for o in study.owners}
        tests = [independent_masked(found, places) for places in self.pairs.of_pairs]
        adjusted = holm(np.array([test.pvalue for test in tests]))
        order = np.argsort([test.pvalue for test in tests], kind="stable")
        told = [
            masked_correlation(found, own[0], pair)
            for own, pair in zip(self.pairs.of_pairs, self.pairs_of_columns, strict=True)
        ]
        pairs = list(itertools.combinations(columns, 2))
        return AssociationResult(
            method=f"masked score tests of covariances within {len(counted)} owners, noise counted, of "
            f"{_of_pairs(len(pairs))}",
            **decided(study, tests[order[0]].statistic, float(adjusted[order[0]])),
            **common_fields(study, counted, self.guarantee),
            warnings=(
                *self.drowned(found, sum(counted.values()), adjusted),
                *self.warnings(counted),
                *self.caveats,
                NO_INTERVAL,
            ),
            pairs=self.tested(
                tests,
                adjusted,
                [
                    (own or 0.0) if pvalue <= study.level else 0.0
                    for own, pvalue in zip(told, adjusted, strict=True)
                ],
                [None] * len(pairs),
            ),
            effects=tuple(
                Effect(
                    column=pairs[at][0],
                    kind=PEARSON,
                    groups=pairs[at],
                    estimate=told[at],
                    lower=None,
                    upper=None,
                    unit="",
                )
                for at in order[:STATED_MAX]
            ),
            effects_by_owner=(),
            heterogeneity_pvalue=None,
        )

    def drowned(self, found: ReadPairs, units: int, pvalues: Floats) -> Iterator[str]:
        """Say of which numbers bounds are too wide, or noise is too large, for values and their middle."""
        for at, column, own in self.alone(pvalues):
            size = min(
                masked_visible(
                    found,
                    self.pairs.of_pairs[place],
                    units,
                    self.study.level,
                    self.pairs_of_columns[place],
                )
                for place in own
            )
            spread = told_spread(float(found.spreads[at]), found.spread_noise, units)
            warning = bounds_warning(column, spread, _below(PEARSON, size), TEST_OF_RANKS)
            if warning is not None and size >= SMALL and (spread[0] * WIDE < 2 or not spread[1]):
                yield warning


def correlations(blocks: Sequence[OwnerSums], *, pooled: bool) -> dict[str, Effects]:
    """Return both correlations of a pair; of ranks alone, and of two levels, where both are one, of ranks."""
    kinds = (RANKS,) if blocks[0].ranks_alone else (PEARSON, RANKS)
    return {kind: correlation(blocks, ranks=kind == RANKS, pooled=pooled) for kind in kinds}


def _effect(
    pair: tuple[str, str], kind: str, effects: Effects, level: float, owner: str | None = None
) -> Effect:
    """Return a correlation as a verdict states it."""
    found = estimated(effects, level)
    return Effect(
        column=pair[0],
        kind=kind,
        groups=pair,
        estimate=found.value,
        lower=found.lower,
        upper=found.upper,
        unit="",
        owner=owner,
    )


def _told(correlation: Estimated) -> float:
    """Return a correlation that is told from 0, or else 0."""
    value, lower, upper = correlation.value, correlation.lower, correlation.upper
    if value is None or lower is None or upper is None or lower <= 0 <= upper:
        return 0.0
    return value


def _below(kind: str, size: float) -> str:
    return f"a {kind} {'of any size' if size >= 1 else f'below about {size:.2g}'}"


def _of_pairs(pairs: int) -> str:
    return f"{pairs} pair{'' if pairs == 1 else 's'} of columns, Holm's correction"


def separate_plan(study: Study) -> SeparateAssociation:
    """Return the plan of releases that are read by themselves.

    Raises:
        StudyError: parameters, columns or budget do not suit it.
    """
    parameters, domain = parse_parameters(AssociationParameters, study), study.domain
    if not 2 <= len(domain.columns) <= COLUMNS_MAX:
        raise StudyError(f"an association is between two to {COLUMNS_MAX} columns")
    if any(not 2 <= len(column.levels) <= LEVELS_MAX for column in domain.categorical):
        raise StudyError(f"a categorical column needs two to {LEVELS_MAX} levels, in their order")
    signs = all(isinstance(own, CategoricalColumn) and len(own.levels) == 2 for own in domain.columns)
    found: SeparateAssociation
    if parameters.noise == "laplace":
        laplace = LaplaceSigns if signs else LaplaceAssociation
        found = laplace(study, parameters, choice_guarantee(study.budget))
    else:
        gaussian = GaussianSigns if signs else GaussianAssociation
        found = gaussian(study, parameters, gaussian_guarantee(study.budget))
    if found.release_size > COORDINATES_MAX:
        raise StudyError("the study asks for too many numbers; use fewer columns")
    return found
