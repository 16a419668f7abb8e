"""Association of columns within every owner, whom nobody needs to trust.

Every owner releases histograms of its columns, and sums of bounded scores of columns and of pairs of them.
The tester asks of every pair whether the columns go together *within* owners, so that what differs between
owners neither makes an association nor hides one; and how strongly, as Pearson's and as a rank correlation.
Or owners mask their covariances, and the sum of all is read.
Derivations: docs/mathematics/association.md.
"""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, ClassVar

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel
from scipy.special import ndtri

from tacit_protocol.domain import CategoricalColumn, Column, NumericColumn, Table
from tacit_protocol.messages.study import Owner, Release, Study
from tacit_protocol.numerics.inference import Effects, Estimated, holm, laplace_widening
from tacit_protocol.privacy.accounting import Family
from tacit_protocol.privacy.gaussian_mechanism import SensitivityError
from tacit_protocol.privacy.guarantee import Guarantee
from tacit_protocol.privacy.noise import NoiseSource
from tacit_protocol.procedures.association.release import (
    HISTOGRAMS,
    SCORES,
    AssociationParameters,
    AssociationPlan,
    MaskedScores,
    Sums,
    fitting_noise,
    masked_plan,
    plan_of,
)
from tacit_protocol.procedures.association.statistic import (
    DRAW_WORK,
    LAPLACE_PARTS,
    OwnerSums,
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
from tacit_protocol.procedures.base import (
    HOPELESS,
    Fields,
    Procedure,
    Progress,
    QuestionTemplate,
    ReleaseError,
    Releases,
    StudyError,
    SumsOfOwners,
    common_fields,
    decided,
    public_seed,
    require_noise,
    require_shared_columns,
    require_work,
    reuse_warnings,
    step,
)
from tacit_protocol.procedures.masking import SharedNoise, is_masked
from tacit_protocol.procedures.populations import Dependence, SimulationModel
from tacit_protocol.procedures.within_owners import (
    BY_OWNER_MAX,
    COCHRAN,
    FIELLER,
    STATED_MAX,
    TOLD,
    WIDE,
    WITHIN_ALONE,
    PairSums,
    ReadPairs,
    TestedPart,
    WithinOwnersVerdict,
    bounds_warning,
    smallest,
    told_spread,
    visible,
)
from tacit_protocol.verdicts.base import BaseVerdict, Effect, compared_shown, effects_of, forest, number
from tacit_protocol.verdicts.presentation import Citation, Meaning, RowsPanel, decision_sentence, joined

NULL_STREAM = 1
"""Spawn key under the study's seed of the null of pairs in Laplace noise."""

PEARSON, RANKS = "Pearson correlation", "rank correlation"

TEST_OF_RANKS = "spearman"

GAUSSIAN = Citation(
    "dong2022gaussian",
    "article",
    ("Jinshuo Dong", "Aaron Roth", "Weijie J. Su"),
    "Gaussian Differential Privacy",
    "Journal of the Royal Statistical Society B 84(1)",
    2022,
)
SPEARMAN = Citation(
    "spearman1904proof",
    "article",
    ("Charles Spearman",),
    "The Proof and Measurement of Association between Two Things",
    "American Journal of Psychology 15(1)",
    1904,
)


class AssociatedPair(TestedPart):
    """A pair of columns within owners.

    Attributes:
        first: one column's name.
        second: the other's.
        direction: in words, which level of a category goes with larger numbers, or with which level of the
            other; empty of two numbers, and where no correlation was told from 0.
    """

    first: str
    second: str
    direction: str

    @property
    def named(self) -> str:
        """Both names."""
        return f"{self.first} and {self.second}"


class AssociationResult(WithinOwnersVerdict):
    """Whether columns go together within owners, which, how strongly. Unpacks into ``statistic, pvalue``.

    Numbers outside a column's bounds count as the bound, levels as whole numbers in the order listed.
    Intervals are each of confidence 1 - alpha, and count sampling and noise; an estimate and its interval
    are None where the noisy numbers allow any value.

    Attributes:
        statistic: of the pair that goes together most surely.
        pvalue: the smallest of the pairs' p-values, adjusted for all of them (Holm).
        pairs: every pair's p-value.
        effects: Pearson's and the rank correlation within owners, of every pair; in pure epsilon the latter.
            Ranks are mid-ranks of values by public cells (``cells``): values of one cell are ties.
        effects_by_owner: the same of every owner.
        heterogeneity_pvalue: that owners have all these correlations in common: the smallest of the pairs',
            adjusted for their number; None of one owner.
    """

    parted: ClassVar[str] = "pairs"
    found: ClassVar[tuple[str, str]] = (
        "columns GO TOGETHER within owners",
        "no association within owners shown",
    )
    found_of_part: ClassVar[tuple[str, str]] = ("go together", "no association shown")
    in_common: ClassVar[str] = "correlations"

    pairs: Annotated[tuple[AssociatedPair, ...], compared_shown("pairs")]

    def __str__(self) -> str:
        decision = "columns go together within owners" if self.reject else "no association shown"
        return self._told(
            "; ".join([self._decided(decision), *differences_sentence(self.effects, self.pairs)])
        )


def differences_sentence(effects: Sequence[Effect], pairs: Sequence[AssociatedPair]) -> list[str]:
    """Say in words how columns go together: those that do, or all."""
    found = [pair for pair in pairs if pair.reject] or list(pairs)
    directions = {(pair.first, pair.second): pair.direction for pair in found}
    said = []
    for effect in effects:
        if effect.kind != RANKS or effect.groups not in directions:
            continue
        if effect.estimate is None or effect.interval is None:
            said.append(f"{effect.named}: how they go together cannot be said")
            continue
        lower, upper = effect.interval
        words = f"{effect.named}: {RANKS} {number(effect.estimate)} ({number(lower)} to {number(upper)})"
        direction = directions[effect.groups]
        said.append(f"{words}, {direction}" if direction else words)
    return said[:TOLD]


def direction(columns: tuple[Column, Column], correlation: float) -> str:
    """Say which level goes with larger numbers, or with which level of the other; nothing of two numbers."""
    first, second = columns
    if isinstance(second, NumericColumn):
        first, second = second, first
    if isinstance(second, NumericColumn) or not correlation:
        return ""
    whose = f"larger {first.name}" if isinstance(first, NumericColumn) else _at_level(first, -1)
    return f"{whose} more often with {_at_level(second, -1 if correlation > 0 else 0)}"


def _at_level(column: CategoricalColumn, place: int) -> str:
    level = column.levels[place]
    return f"{column.name} = {level}" if len(column.levels) == 2 else f"levels of {column.name} near {level}"


NO_INTERVAL = "how far a correlation may be off cannot be said: that needs more than covariances"
"""What a masked sum does not tell of its correlations."""


class Association(SumsOfOwners, Procedure):
    """See the module. Registered as ``association``."""

    name: ClassVar[str] = "association"
    title: ClassVar[str] = "Do columns go together, within every owner?"
    families: ClassVar[frozenset[Family]] = frozenset(("gaussian", "pure"))
    divided_for: ClassVar[frozenset[Family] | None] = frozenset(("gaussian",))
    Parameters: ClassVar[type[BaseModel]] = AssociationParameters
    Verdict: ClassVar[type[BaseVerdict]] = AssociationResult
    released: ClassVar[str] = (
        "histograms of its columns, and sums of bounded scores of columns and their pairs"
    )
    cited: ClassVar[tuple[Citation, ...]] = (SPEARMAN, COCHRAN, FIELLER, GAUSSIAN)
    question: ClassVar[QuestionTemplate | None] = QuestionTemplate(
        "How strongly are numbers correlated, within every owner?",
        r"within .*(correlat|associat)|(correlat|associat).*within|how strongly",
        "one or more",
        rank=5,
        relates=True,
    )
    population: ClassVar[type[SimulationModel] | None] = Dependence
    masked_numbers: ClassVar[str] = "covariances within owners"
    choices: ClassVar[tuple[Mapping[str, Any], ...]] = ({}, {"noise": "laplace"})

    def defaults(self, study: Study, units: Mapping[str, int] | None = None) -> Mapping[str, Any]:
        """Return the noise that suits numbers of units; without them, Laplace's where there is no delta."""
        if "noise" in study.parameters or is_masked(study):
            return {}
        if units is not None and (fitting := fitting_noise(study, min(units.values()))):
            return fitting
        return {} if study.budget.delta_pico else {"noise": "laplace"}

    def check(self, study: Study) -> None:
        """Raise StudyError where the study cannot be run as written."""
        require_shared_columns(study)
        if study.curator is not None:
            raise StudyError("owners send their own releases here; leave the curator out")
        plan, masked = plan_of(study), masked_plan(study)
        if plan.pure and masked is None:
            columns = len(study.domain.columns)
            pairs = columns * (columns - 1) // 2
            require_work(DRAW_WORK * len(LAPLACE_PARTS) * len(study.owners) * pairs, null_draws(pairs))
        if masked is None:
            require_noise(lambda: plan.require_drawable(1))
        else:
            masked.require_drawable()

    def shared_noise(self, study: Study) -> SharedNoise | None:
        """Return the noise of masked covariances; None where every owner's sums are read by themselves."""
        masked = masked_plan(study)
        return None if masked is None else masked.shared

    def check_units(self, study: Study, units: Mapping[str, int]) -> None:
        """Raise PublicRuleError where these numbers of units, by owner, do not suit the study."""
        self.require_room(study, units)
        if masked_plan(study) is None:
            for count in units.values():
                require_noise(partial(plan_of(study).require_drawable, count))

    def cost(self, study: Study) -> Guarantee:
        """Return what each owner spends: the whole budget, or epsilon alone, for both vectors."""
        shared = self.shared_noise(study)
        return plan_of(study).guarantee if shared is None else shared.own

    def release_size(self, study: Study) -> int:
        """Return how many noisy numbers one owner sends; of few units in pure epsilon there are fewer."""
        masked = masked_plan(study)
        return plan_of(study).numbers if masked is None else masked.pairs.numbers

    def test_of_ranks(self, study: Study) -> str | None:  # noqa: ARG002
        """Name Spearman's."""
        return TEST_OF_RANKS

    def warnings(self, study: Study, units: Mapping[str, int]) -> tuple[str, ...]:
        """Say where noise drowns the strongest rank correlation at these numbers of units."""
        if not units:
            return ()
        advice = "ask for more units, a larger epsilon, or fewer columns"
        hopeless = f"{HOPELESS}noise would hide even a rank correlation of 1; {advice}"
        if (masked := masked_plan(study)) is not None:
            # Two columns that are alike, half of whose values are at either bound, have one a unit.
            hidden = sum(units.values()) < -float(ndtri(study.level / 2)) * masked.least_noise()
            return (hopeless,) if hidden and len(units) == len(study.owners) else ()
        plan = plan_of(study)
        noise = {name: plan.rank_noise(count) for name, count in units.items()}
        found = []
        if not plan.signs and not all(plan.adaptive(count) for count in units.values()):
            found.append(
                "so few units for this epsilon that columns are looked at by the middle of their bounds, and "
                "no correlation is stated; where most values lie to one side of it little can be found"
            )
        # Grades that are equal have a covariance of one third, and signs of one.
        together, most = sum(own**2 for own in noise.values()) ** 0.5, 1 if plan.signs else 1 / 3
        if sum(units.values()) * most < -float(ndtri(study.level / 2)) * together:
            return (hopeless, *found)
        drowned = [name for name, count in units.items() if count * most < 2 * noise[name]]
        if drowned:
            found.append(f"noise hides even a rank correlation of 1 at {', '.join(drowned)}; {advice}")
        return tuple(found)

    def summarise(self, study: Study, table: Table) -> Sums | PairSums:
        """Count the units by cell, or sum products, exactly. None of it leaves the owner."""
        masked = masked_plan(study)
        return plan_of(study).sum(table) if masked is None else masked.pairs.sum(table)

    def adapt(self, study: Study, summary: Sums | PairSums, noise: NoiseSource) -> Sums | PairSums:
        """Draw the histograms' noise, and sum the scores by the grades that follow from it."""
        if isinstance(summary, PairSums):
            return summary
        try:
            return plan_of(study).adapt(summary, noise)
        except SensitivityError as error:
            raise StudyError(str(error)) from None

    def privatise(self, study: Study, summary: Sums | PairSums, noise: NoiseSource) -> Release:
        """Add the noise that ``cost`` states to histograms and scores, or to covariances."""
        masked = masked_plan(study)
        try:
            if isinstance(summary, PairSums) or masked is not None:
                if masked is None or not isinstance(summary, PairSums):
                    raise TypeError("the summary is that of another study")
                return masked.release(summary, noise)
            return plan_of(study).release(summary, noise)
        except SensitivityError as error:
            raise StudyError(str(error)) from None

    def check_release(self, study: Study, release: Release) -> None:
        """Raise ReleaseError where the release has not the shape and the noise that the study fixes."""
        if (masked := masked_plan(study)) is not None:
            masked.check(release)
            return
        try:
            plan_of(study).check(release)
        except ValueError as error:
            raise ReleaseError(str(error)) from None

    def reread(self, study: Study, owner: Owner, source: Study, release: Release) -> Release:  # noqa: ARG002
        """Return a release as it is, where it was made for the same columns and budget.

        Raises:
            StudyError: it was not; says which of them to make the same.
        """
        if source.procedure != self.name:
            raise StudyError(f"{self.name} reads releases of {self.name}, no others")
        if plan_of(source).pure != plan_of(study).pure:
            raise StudyError("the reused release was made with another noise; use the same")
        if source.domain != study.domain:
            raise StudyError("the reused release was made for other columns, bounds or levels")
        if source.budget != study.budget:
            raise StudyError(
                "the reused release was made with another budget; use the same epsilon and delta"
            )
        return release

    def describe_request(self, study: Study) -> tuple[str, ...]:
        """Say whose association is asked for."""
        names = joined([column.name for column in study.domain.columns], 6)
        asked = f"asks how {names} go together, within owners"
        if not plan_of(study).pure:
            return (asked, *self.asked_of_masks(study))
        why = "there is no delta" if study.budget.delta_pico == 0 else "few numbers carry less noise so"
        return asked, f"releases sums of ranks in Laplace noise of pure epsilon: {why}"

    def what_is_released(self, study: Study) -> str:
        """Say what an owner computes and releases, in the words of a paper's methods."""
        if is_masked(study):
            return (
                "its covariances of bounded scores of columns, with their variances where chance alone acts"
            )
        if plan_of(study).signs:
            return "of columns of two levels, -1 and 1, the sums, and those of their products"
        if not plan_of(study).pure:
            return self.released
        return "histograms of its columns where it has units enough, and sums of ranks and their products"

    def meaning(self, study: Study, verdict: Fields) -> Meaning:
        """Say what a verdict means, in sentences."""
        pairs = [AssociatedPair.model_validate(own, strict=False) for own in verdict.get("pairs", ())]
        found = joined([own.named for own in pairs if own.reject] or ["some columns"], 6)
        said = decision_sentence(
            study,
            verdict,
            f"Columns go together within owners: {found}",
            "No dependence of columns within owners was shown: they may be independent",
        )
        words = "; ".join(differences_sentence(effects_of(verdict.get("effects", ())), pairs))
        if not words:
            return said
        bins = 0 if is_masked(study) else _bins(plan_of(study), verdict.get("units", {}))
        ties = f" Ranks take values within 1/{bins} of a number's bounds as ties." if bins else ""
        return Meaning(f"{said.sentence} Of {words}.{ties}", said.care)

    def panels(self, study: Study, verdict: Fields, releases: Releases) -> list[RowsPanel]:  # noqa: ARG002
        """Return forest plots: the owners' correlations, and those that they have in common."""
        return forest(effects_of([*verdict["effects_by_owner"], *verdict["effects"]]), study.level)

    def assemble(
        self, study: Study, releases: Mapping[str, Release], progress: Progress | None = None
    ) -> AssociationResult:
        """Compute the verdict: post-processing alone, the same for everyone."""
        plan, names = plan_of(study), [owner.name for owner in study.owners]
        columns = [column.name for column in study.domain.columns]
        pairs = list(itertools.combinations(columns, 2))
        if masked_plan(study) is not None:
            return self._assemble_masked(study, releases, pairs)
        blocks = list(_blocks(plan, [releases[name] for name in names]))
        report, tests = step(progress, "testing pairs", 0.0, 0.8), []
        for place, pair in enumerate(blocks):
            report(place / len(blocks))
            tests.append(independent(pair, public_seed(study, NULL_STREAM, place), null_draws(len(pairs))))
        step(progress, "estimating correlations", 0.8)(0.0)
        pvalues = np.array([test.pvalue for test in tests])
        adjusted = holm(pvalues)
        order = [int(place) for place in np.argsort(pvalues, kind="stable")]
        if plan.pure:
            blocks = [[own.widened(laplace_widening(study.level)) for own in pair] for pair in blocks]
        own = {place: _correlations(blocks[place], pooled=False) for place in order}
        same = {
            place: smallest([effects.heterogeneity() for effects in own[place].values()]) for place in order
        }
        units = {name: releases[name].units for name in names}
        common = [_correlations(own, pooled=True) for own in blocks]
        drowned = _drowned(study, blocks, common, adjusted)
        return AssociationResult(
            method=_method(len(names), len(pairs), _bins(plan, units), pure=plan.pure),
            **decided(study, tests[order[0]].statistic, float(adjusted[order[0]])),
            **common_fields(study, units),
            warnings=(*drowned, *self.warnings(study, units), *reuse_warnings(study)),
            pairs=tuple(
                AssociatedPair(
                    first=first,
                    second=second,
                    direction=_direction(study, place, estimated(common[place][RANKS], study.level)),
                    statistic=test.statistic,
                    pvalue=float(pvalue),
                    reject=bool(pvalue <= study.level),
                    heterogeneity_pvalue=same[place],
                )
                for place, ((first, second), test, pvalue) in enumerate(
                    zip(pairs, tests, adjusted, strict=True)
                )
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

    def _assemble_masked(
        self, study: Study, releases: Mapping[str, Release], pairs: Sequence[tuple[str, str]]
    ) -> AssociationResult:
        """Compute the verdict from the sum of all owners' covariances."""
        masked = masked_plan(study)
        if masked is None:
            raise TypeError("nobody masks in this study")
        found, units = masked.read(releases), {o.name: releases[o.name].units for o in study.owners}
        tests = [independent_masked(found, places) for places in masked.pairs.of_pairs]
        adjusted = holm(np.array([test.pvalue for test in tests]))
        order = np.argsort([test.pvalue for test in tests], kind="stable")
        places = list(itertools.combinations(range(len(study.domain.columns)), 2))
        correlations = [
            masked_correlation(found, own[0], pair)
            for own, pair in zip(masked.pairs.of_pairs, places, strict=True)
        ]
        caveats = masked.shared.caveats(self.masked_numbers, WITHIN_ALONE)
        drowned = _drowned_masked(study, masked, found, sum(units.values()), adjusted)
        return AssociationResult(
            method=f"masked score tests of covariances within {len(units)} owners, noise counted, of "
            f"{len(pairs)} pair{'' if len(pairs) == 1 else 's'} of columns, Holm's correction",
            **decided(study, tests[order[0]].statistic, float(adjusted[order[0]])),
            **common_fields(study, units, masked.shared.own),
            warnings=(*drowned, *self.warnings(study, units), *caveats, NO_INTERVAL),
            pairs=tuple(
                AssociatedPair(
                    first=first,
                    second=second,
                    direction=direction(columns, correlation or 0.0) if pvalue <= study.level else "",
                    statistic=test.statistic,
                    pvalue=float(pvalue),
                    reject=bool(pvalue <= study.level),
                    heterogeneity_pvalue=None,
                )
                for (first, second), columns, test, pvalue, correlation in zip(
                    pairs,
                    itertools.combinations(study.domain.columns, 2),
                    tests,
                    adjusted,
                    correlations,
                    strict=True,
                )
            ),
            effects=tuple(
                Effect(
                    column=pairs[at][0],
                    kind=PEARSON,
                    groups=pairs[at],
                    estimate=correlations[at],
                    lower=None,
                    upper=None,
                    unit="",
                )
                for at in order[:STATED_MAX]
            ),
            effects_by_owner=(),
            heterogeneity_pvalue=None,
        )


def _blocks(plan: AssociationPlan, releases: Sequence[Release]) -> Iterator[list[OwnerSums]]:
    """Yield every pair's noisy numbers, owner by owner."""
    count = plan.columns
    width, read = 2 if plan.ranks_alone else 4, []
    for release in releases:
        sums = release.vectors[SCORES].mean(1)
        grades = plan.grades(release.vectors.get(HISTOGRAMS), release.units)
        own, products = sums[: width * count].reshape(count, -1), sums[width * count :]
        scale = release.vectors[SCORES].scale
        read.append((release, scale, grades, own, products.reshape(count * (count - 1) // 2, -1)))
    for place, (a, b) in enumerate(itertools.combinations(range(count), 2)):
        yield [
            block(release.units, columns[[a, b]], products[place], scale, (grades[a], grades[b]))
            if not plan.ranks_alone
            else rank_block(
                release.units, columns[[a, b]], products[place], scale, (grades[a], grades[b]), plan.pure
            )
            for release, scale, grades, columns, products in read
        ]


def _correlations(blocks: Sequence[OwnerSums], *, pooled: bool) -> dict[str, Effects]:
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


def _direction(study: Study, place: int, differences_sentence: Estimated) -> str:
    """Return the direction of a pair whose rank correlation is told from 0."""
    if (
        differences_sentence.value is None
        or differences_sentence.lower is None
        or differences_sentence.upper is None
        or differences_sentence.lower <= 0 <= differences_sentence.upper
    ):
        return ""
    columns = next(itertools.islice(itertools.combinations(study.domain.columns, 2), place, None))
    return direction(columns, differences_sentence.value)


CROWDED = 0.5
"""Share of an owner's units in one cell of a number's bounds from which ranks are said to be mostly ties."""

SMALL = 0.3
"""A correlation that must be seen; of no association as large nothing more is said."""


def _alone(
    study: Study, pvalues: npt.NDArray[np.float64]
) -> Iterator[tuple[int, NumericColumn, Sequence[int]]]:
    """Yield every number that goes together with nothing, its place and those of its pairs.

    Of what was found nothing is said to have been unseen.
    """
    pairs = list(itertools.combinations(range(len(study.domain.columns)), 2))
    for at, column in enumerate(study.domain.columns):
        own = [place for place, pair in enumerate(pairs) if at in pair]
        if isinstance(column, NumericColumn) and all(pvalues[place] > study.level for place in own):
            yield at, column, own


def _below(kind: str, size: float) -> str:
    return f"a {kind} {'of any size' if size >= 1 else f'below about {size:.2g}'}"


def _drowned_masked(
    study: Study, masked: MaskedScores, found: ReadPairs, units: int, pvalues: npt.NDArray[np.float64]
) -> Iterator[str]:
    """Say the same as ``_drowned`` of sums of covariances: of values, and of the middle of their bounds."""
    pairs = list(itertools.combinations(range(len(study.domain.columns)), 2))
    for at, column, own in _alone(study, pvalues):
        size = min(
            masked_visible(found, masked.pairs.of_pairs[place], units, study.level, pairs[place])
            for place in own
        )
        spread = told_spread(float(found.spreads[at]), found.spread_noise, units)
        warning = bounds_warning(column, spread, _below(PEARSON, size), TEST_OF_RANKS)
        if warning is not None and size >= SMALL and (spread[0] * WIDE < 2 or not spread[1]):
            yield warning


def _drowned(
    study: Study,
    blocks: Sequence[Sequence[OwnerSums]],
    common: Sequence[Mapping[str, Effects]],
    pvalues: npt.NDArray[np.float64],
) -> Iterator[str]:
    """Say of which numbers the release shows that bounds are too wide, or noise is too large."""
    pairs = list(itertools.combinations(range(len(study.domain.columns)), 2))
    for at, column, own in _alone(study, pvalues):
        read, side = blocks[own[0]], pairs[own[0]].index(at)
        if not all(len(block.grades[side].shares) for block in read):
            continue
        seen = {}
        for kind in common[own[0]]:
            found = [estimated(common[place][kind], study.level) for place in own]
            halves = [(e.upper - e.lower) / 2 for e in found if e.upper is not None and e.lower is not None]
            seen[kind] = visible(min(halves, default=math.inf), study.level)
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


def _bins(plan: AssociationPlan, units: Mapping[str, int]) -> int:
    """Return into how many cells ranks cut numbers' bounds, the fewest of any owner; 0 where none are cut."""
    numeric = plan.domain.numeric and units and all(plan.adaptive(count) for count in units.values())
    return min(plan.histograms(count).bins for count in units.values()) if numeric else 0


def _method(owners: int, pairs: int, bins: int, *, pure: bool) -> str:
    of, noise = ("grades", "Laplace noise simulated") if pure else ("values and grades", "noise counted")
    if bins:
        noise += f", ranks of values by cells of 1/{bins} of the bounds"
    return (
        f"score tests of covariances of {of} within {owners} owner{'' if owners == 1 else 's'}, "
        f"{noise}, of {pairs} pair{'' if pairs == 1 else 's'} of columns, Holm's correction"
    )
