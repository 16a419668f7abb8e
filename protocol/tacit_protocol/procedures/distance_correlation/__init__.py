"""Distance correlation between two owners who hold different columns of the same units.

P4 is Vepakomma, Pushpita and Raskar, *Private measurement of nonlinear correlations between data hosted
across multiple parties*. ``two-round`` and ``one-round`` set one owner's randomised answers beside the
other's cells, or answers. ``sketch`` sums Brownian features over public buckets of units; ``pnc`` and
``pnc-disjoint`` are P4's projections of every unit, calibrated to protect a whole unit, with noise at both
owners. The tester estimates the distance covariance and tests independence at exactly the level; in peer
mode one owner does, from the other's noisy projections and its own raw ones, for itself.
Derivations: docs/mathematics/distance-correlation.md.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, get_args

from pydantic import BaseModel

from tacit_protocol.domain import Table
from tacit_protocol.features.aligned_sums import PROJECTIONS, ProjectedUnits
from tacit_protocol.features.sketches import SketchSums
from tacit_protocol.messages.study import Release, Study
from tacit_protocol.privacy.accounting import Family
from tacit_protocol.privacy.gaussian_mechanism import release_sums
from tacit_protocol.privacy.guarantee import Guarantee
from tacit_protocol.privacy.noise import NoiseSource
from tacit_protocol.procedures.base import (
    HOPELESS,
    PRODUCTS,
    Fields,
    Procedure,
    Progress,
    QuestionTemplate,
    Releases,
    StudyError,
    common_fields,
    decided,
    parse_parameters,
    require_work,
    row_warnings,
    step,
)
from tacit_protocol.procedures.distance_correlation.peer import (
    OwnCovariance,
    PeerResult,
    check_published,
    covariance_moved,
    found_by_receiver,
    peer_sides,
    peer_verdict,
    publish,
)
from tacit_protocol.procedures.distance_correlation.release import (
    ANSWERS,
    DistanceCorrelationParameters,
    DistanceCorrelationPlan,
    Method,
    answers_plan,
    blocks_of,
    both_releases,
    check_either_side,
    check_side,
    plan_of,
    release_size,
)
from tacit_protocol.procedures.distance_correlation.statistic import (
    COVARIANCE_SQR_MAX,
    Found,
    correlation_words,
    projected,
    sketched,
)
from tacit_protocol.procedures.plan import Combined, Relay
from tacit_protocol.procedures.populations import Dependence, SimulationModel
from tacit_protocol.procedures.randomised_answers.answers import (
    AnswersPlan,
    OwnUnits,
    answers_words,
    own_units,
    relay_of_answers,
    suits_answers,
)
from tacit_protocol.procedures.randomised_answers.sides import (
    DESIGN_STREAM,
    public_generator,
    require_same_units,
    side_of,
)
from tacit_protocol.procedures.randomised_answers.verdict import (
    AnsweredCorrelationResult,
    answered_null,
    answered_panels,
    answered_verdict,
    answers_warnings,
)
from tacit_protocol.procedures.relay import MATCHED_BY_ORDER
from tacit_protocol.verdicts.base import (
    COVARIANCE_ESTIMATE,
    BaseVerdict,
    Interval,
    PvalueVerdict,
    ShownTable,
    estimate_shown,
    interval_of,
    stated,
    unbiased_shown,
)
from tacit_protocol.verdicts.presentation import (
    DISTANCE,
    TWO_PARTIES,
    WORK_MAX,
    Citation,
    HeatPanel,
    Meaning,
    Null,
    RowsPanel,
    Shown,
    decision_sentence,
    from_draws,
    names_of,
)


class DistanceCorrelationResult(PvalueVerdict):
    """Whether the owners' columns depend on each other, and how strongly.

    Distances are over a public diameter. Intervals cover, with probability 1 - alpha in large samples, the
    values of the frequencies kept and the directions drawn: neither what ``truncation`` bounds nor another
    draw. For ``pnc`` estimates are of the noisy projections, and have no interval.

    Attributes:
        statistic: the test statistic, from private releases alone.
        pvalue: probability under independence of a statistic at least as large; exact.
        distance_covariance_sqr: squared distance covariance, cut to [0, 1/4].
        distance_covariance_sqr_unbiased: the same before it is cut: what to average over studies. It is
            unbiased for the sketch, up to ``truncation``, and may be negative.
        covariance_interval: contains the one, and covers what both estimate; None for pnc.
        distance_correlation: its root over both distance deviations, in [0, 1]; None where a column hardly
            varies.
        interval: covers the distance correlation, or None.
        truncation: the most that ``distance_covariance_sqr``, and its interval, leave out; or None.
        attenuation: what part of a squared correlation the noise has left, for pnc alone.
        aligned: whether either owner checked, before it spent anything, that both hold the same units.
    """

    listed: ClassVar[tuple[str, ...]] = (
        "statistic",
        "pvalue",
        "distance_covariance_sqr",
        "distance_covariance_sqr_unbiased",
        "covariance_interval",
        "distance_correlation",
        "interval",
        "truncation",
        "attenuation",
        "aligned",
    )

    distance_covariance_sqr: Annotated[float, COVARIANCE_ESTIMATE]
    distance_covariance_sqr_unbiased: Annotated[float, unbiased_shown("squared distance covariance")]
    covariance_lower: float | None
    covariance_upper: float | None
    distance_correlation: Annotated[float | None, estimate_shown("distance correlation")]
    lower: float | None
    upper: float | None
    truncation: float | None
    attenuation: float | None
    buckets: int | None
    aligned: Annotated[bool, Shown("records aligned")]

    @property
    def covariance_interval(self) -> Interval | None:
        """That of both squared distance covariances; None for pnc."""
        return interval_of(self.covariance_lower, self.covariance_upper)

    @property
    def interval(self) -> Interval | None:
        """That of the distance correlation, or None."""
        return interval_of(self.lower, self.upper)

    def __str__(self) -> str:
        decision = self._decided("dependent" if self.reject else "no dependence shown")
        return self._told(f"{decision}, squared distance covariance {self.distance_covariance_sqr:.4g}")

    def summary(self) -> Sequence[str | ShownTable]:
        """Return what the command shows first."""
        finding = "the columns depend on each other" if self.reject else "no dependence of the columns shown"
        covariance = f"  squared distance covariance {self.distance_covariance_sqr:.4g}"
        correlation = correlation_words(self.distance_correlation, self.interval)
        return self._finding(finding), f"  {self.method}", covariance, *correlation


@dataclass(frozen=True)
class OwnNumbers:
    """One owner's exact numbers and its place in the study. They never leave the owner."""

    side: int
    sums: SketchSums | ProjectedUnits


class DistanceCorrelation(Procedure):
    """See the module. Registered as ``distance_correlation``."""

    name: ClassVar[str] = "distance_correlation"
    title: ClassVar[str] = "Do one owner's columns depend on another's?"
    plans_two_rounds: ClassVar[bool] = True
    families: ClassVar[frozenset[Family]] = frozenset(("gaussian", "pure"))
    methods: ClassVar[Mapping[str, frozenset[Family]]] = {
        method: frozenset(("pure" if method in ANSWERS else "gaussian",)) for method in get_args(Method)
    }
    Parameters: ClassVar[type[BaseModel]] = DistanceCorrelationParameters
    Verdict: ClassVar[type[BaseVerdict]] = DistanceCorrelationResult
    released: ClassVar[str] = "bounded features of its columns, in sums over public buckets or projected"
    RelayedVerdict: ClassVar[type[BaseVerdict]] = PeerResult
    cited: ClassVar[tuple[Citation, ...]] = (TWO_PARTIES, DISTANCE)
    question: ClassVar[QuestionTemplate | None] = QuestionTemplate(
        "Do the columns of one owner depend on those that another owner holds of the same people?",
        r"(other|another|their|two) .*(depend|relate|correlat|associat)|same people",
        "two",
        rank=5,
        apart=True,
        pure=True,
        relates=True,
    )
    population: ClassVar[type[SimulationModel] | None] = Dependence
    choices: ClassVar[tuple[Mapping[str, Any], ...]] = (
        {},
        *({"method": "two-round", "categories": count} for count in (2, 3, 4)),
        {"method": "one-round", "categories": 2},
        *({"method": "sketch", "n_features": count} for count in (1, 2, 3, 5, 8)),
    )

    def defaults(self, study: Study, units: Mapping[str, int] | None = None) -> Mapping[str, Any]:  # noqa: ARG002
        """Ask for answers in two rounds where public numbers alone say that they suit; else as ever.

        A sketch's own parameters, peer mode or an earlier release ask for another method.
        """
        stated = study.parameters
        other = {"n_features", "n_projections", "publish"} & set(stated)
        other |= {"mode"} if stated.get("mode", "tester") != "tester" else set()
        apart = len(study.owners) == 2 and all(owner.columns for owner in study.owners)
        if other or not apart or study.curator is not None or study.reusing:
            return {}
        first, second = (study.domain_of(owner) for owner in study.owners)
        method = stated.get("method") or (
            "two-round" if suits_answers((first, second), study.budget) else None
        )
        if method not in ANSWERS:
            return {}
        return {"method": method}

    def check(self, study: Study) -> None:
        """Raise StudyError where the study cannot be run as written."""
        answers = _answers(study)
        require_same_units(study, answers or plan_of(study))
        if answers is not None:
            require_work(answers.work, answers.simulations)
        else:
            plan = plan_of(study)
            require_work(PRODUCTS * plan.products(study), plan.parameters.permutations)

    def check_units(self, study: Study, units: Mapping[str, int]) -> None:
        """Raise PublicRuleError where an owner's release of so many units cannot be laid out."""
        plan = _answers(study) or plan_of(study)
        for side, owner in enumerate(study.owners):
            if owner.name in units:
                plan.layout(side, units[owner.name])

    def cost(self, study: Study) -> Guarantee:
        """Return what each owner spends: the whole budget in one joint Gaussian release, or epsilon alone."""
        answers = _answers(study)
        return answers.guarantee_of(answers.first) if answers is not None else plan_of(study).guarantee

    def release_size(self, study: Study) -> int:
        """Return how many noisy numbers one owner sends, at most: it depends on the number of units."""
        if (answers := _answers(study)) is not None:
            return answers.numbers_sent(answers.first)
        return release_size(study, plan_of(study))

    def warnings(self, study: Study, units: Mapping[str, int]) -> tuple[str, ...]:
        """Say what the study could not see, at these numbers of units or with so few permutations."""
        if (answers := _answers(study)) is not None:
            return answers_warnings(answers, units)
        plan = plan_of(study)
        found = row_warnings(study)
        if 1 / (plan.parameters.permutations + 1) > study.level:
            found = (*found, _too_few_permutations(study.level))
        if not units:
            return found
        if plan.projections:
            return (*found, "pnc adds noise to every unit, and sees less than the sketch")
        return found + _sketch_warnings(plan, min(units.values()))

    def record_of(self, study: Study, name: str) -> str:
        """Say what an owner's answers are, where both owners give them in one round."""
        answers = _answers(study)
        if answers is None or not answers.one_round:
            return ""
        return answers_words(answers, [owner.name for owner in study.owners].index(name))

    def what_is_released(self, study: Study) -> str:
        """Name the answers and the table, or the sums."""
        if (answers := _answers(study)) is None:
            return self.released
        if answers.one_round:
            return "one randomised answer of each unit, to which cell of a column it is in"
        sender, receiver = (study.owners[place].name for place in (answers.first, 1 - answers.first))
        return (
            f"at {sender} one randomised answer of each unit, to which cell of a column it is in, and at "
            f"{receiver} noisy counts of its own cells beside these answers"
        )

    def summarise(self, study: Study, table: Table) -> OwnNumbers | OwnUnits:
        """Sum, project or read one owner's units, exactly; the table's columns tell which owner it is.

        Units have the places that the table gives them, the same at both owners.
        """
        if (answers := _answers(study)) is not None:
            return own_units(answers, table)
        plan, side = plan_of(study), side_of(study, table.domain)
        plan.layout(side, table.units)
        if plan.sketches:
            design = plan.design(table.units)
            codes = design.assign(public_generator(study, DESIGN_STREAM))
            return OwnNumbers(side, plan.sketches[side].sum(table, design, codes))
        return OwnNumbers(side, plan.projections[side].project(table, blocks_of(plan, study, table.units)))

    def privatise(
        self, study: Study, summary: OwnNumbers | OwnUnits | OwnCovariance, noise: NoiseSource
    ) -> Release:
        """Add the noise that ``cost`` states, jointly, to the sums; or draw answers."""
        if isinstance(summary, OwnUnits):
            return answers_plan(study, _parameters(study)).release(summary, noise)
        plan = plan_of(study)
        if isinstance(summary, OwnCovariance):
            return publish(plan, summary, noise)
        sums = summary.sums
        if isinstance(sums, SketchSums):
            parts = plan.sketches[summary.side].parts(sums.design, sums)
        else:
            parts = plan.projections[summary.side].parts(sums.units, sums)
        vectors = release_sums(parts, plan.guarantee, noise)
        return Release(units=sums.units, guarantee=plan.guarantee, vectors=vectors)

    def check_release(self, study: Study, release: Release) -> None:
        """Raise ReleaseError where the release has not the shape and the noise of either owner's.

        In peer mode this is the receiver's: one covariance; what is sealed is not the tester's to check. In
        two rounds it is the receiver's too: the table.
        """
        if (answers := _answers(study)) is not None:
            answers.check_answer(release)
            return
        plan = plan_of(study)
        if plan.parameters.mode == "peer":
            check_published(plan, release)
            return
        check_either_side(plan, release)

    def meaning(self, study: Study, verdict: Fields) -> Meaning:
        """Say what a verdict means, in sentences."""
        if "receiver" in verdict:
            return Meaning(
                f"The result stays with {verdict['receiver']}; nothing was tested in public.",
                "What the receiver found is private for the sender's data alone.",
                tests=False,
            )
        names = names_of(study)
        between = f"columns at {names}" if len(study.owners) > 1 else f"columns of {names}"
        return decision_sentence(
            study,
            verdict,
            f"The {between} depend on each other, linearly or not",
            f"No dependence between the {between} was shown: they may be independent",
        )

    def null(self, study: Study, verdict: Fields, releases: Releases) -> Null | None:
        """Work out the null distribution again; simulations are the verdict's, or the first of them."""
        if (answers := _answers(study)) is not None:
            return answered_null(answers, verdict, releases)
        if any(owner.name not in releases for owner in study.owners):
            return None
        plan, own = plan_of(study), [releases[owner.name] for owner in study.owners]
        numbers = sum(len(vector.values) for release in own for vector in release.vectors.values())
        count = plan.parameters.permutations
        if PROJECTIONS in own[0].vectors and numbers * count > WORK_MAX:
            return None
        found = (sketched if plan.sketches else projected)(plan, study, own, step(None, "permuting"))
        return from_draws(f"the statistic at {count} random permutations", found.test.permuted, study.level)

    def panels(
        self,
        study: Study,  # noqa: ARG002
        verdict: Fields,
        releases: Releases,  # noqa: ARG002
    ) -> Sequence[RowsPanel | HeatPanel]:
        """Return the debiased table of answers, and its measures."""
        return answered_panels(verdict) if "shares" in verdict else ()

    def assemble(
        self, study: Study, releases: Mapping[str, Release], progress: Progress | None = None
    ) -> DistanceCorrelationResult | AnsweredCorrelationResult:
        """Compute the verdict: post-processing alone, the same for everyone."""
        if (answers := _answers(study)) is not None:
            return self._answered(answers, releases, progress)
        plan = plan_of(study)
        own = both_releases(plan, study, releases)
        report = step(progress, "permuting")
        found = sketched(plan, study, own, report) if plan.sketches else projected(plan, study, own, report)
        units = {owner.name: release.units for owner, release in zip(study.owners, own, strict=True)}
        return self._verdict(study, found, units)

    def relay(self, study: Study) -> Relay | None:
        """Return who sends to whom in peer mode, and in two rounds."""
        if (answers := _answers(study)) is not None:
            return relay_of_answers(answers)
        plan = plan_of(study)
        if plan.parameters.mode != "peer":
            return None
        receiver = study.owner_named(str(plan.parameters.receiver))
        sender = next(owner for owner in study.owners if owner.name != receiver.name)
        return Relay(sender, receiver, plan.parameters.publish)

    def verdict_type(self, study: Study) -> type[BaseVerdict]:
        """Return what a study's verdict is: in peer mode, what everybody learns."""
        parameters = _parameters(study)
        if parameters.method in ANSWERS:
            return AnsweredCorrelationResult
        return self.RelayedVerdict if parameters.mode == "peer" else self.Verdict

    def check_received(self, study: Study, release: Release) -> None:
        """Raise ReleaseError where a sender's release has not the shape and the noise of the study's."""
        if (answers := _answers(study)) is not None:
            answers.check_release(answers.first, release)
            return
        plan = plan_of(study)
        check_side(plan, peer_sides(plan, study)[0], release)

    def combine(self, study: Study, received: Release, table: Table) -> Combined:
        """Set the sender's answers, or its noisy projections, against the receiver's raw rows."""
        if (answers := _answers(study)) is not None:
            return Combined(summary=own_units(answers, table, received))
        plan, own = plan_of(study), self.summarise(study, table)
        if not isinstance(own, OwnNumbers) or not isinstance(own.sums, ProjectedUnits):
            raise TypeError("peer mode is for projections")
        found = found_by_receiver(plan, study, received, own.sums, step(None, "permuting"))
        finding = self._verdict(study, found, {owner.name: table.units for owner in study.owners})
        published = plan.parameters.publish
        return Combined(finding, covariance_moved(plan, study, received, own.sums) if published else None)

    def conclude(
        self,
        study: Study,
        units: Mapping[str, int],
        releases: Mapping[str, Release],
        progress: Progress | None = None,
    ) -> PeerResult | AnsweredCorrelationResult:
        """Conclude from two rounds; in peer mode, state where the result stays, and what was published."""
        if (answers := _answers(study)) is not None:
            return self._answered(answers, releases, progress)
        return peer_verdict(plan_of(study), study, units, releases)

    def _answered(
        self, plan: AnswersPlan, releases: Mapping[str, Release], progress: Progress | None
    ) -> AnsweredCorrelationResult:
        study = plan.study
        units = {owner.name: releases[owner.name].units for owner in study.owners}
        warned = self.warnings(study, units) + ((MATCHED_BY_ORDER,) if study.alignment is None else ())
        return answered_verdict(plan, releases, warned, progress)

    def _verdict(self, study: Study, found: Found, units: dict[str, int]) -> DistanceCorrelationResult:
        # Noisy projections have no bounds, and so no largest covariance.
        largest = math.inf if found.covariance_interval[0] is None else COVARIANCE_SQR_MAX
        return DistanceCorrelationResult(
            method=found.method if study.alignment is None else f"{found.method}, aligned units",
            **decided(study, found.test.statistic, found.test.pvalue),
            **common_fields(study, units),
            distance_covariance_sqr=stated(found.covariance_sqr, (0.0, math.inf), largest).value,
            distance_covariance_sqr_unbiased=found.covariance_sqr,
            covariance_lower=found.covariance_interval[0],
            covariance_upper=found.covariance_interval[1],
            distance_correlation=None if found.correlation_sqr is None else _root(found.correlation_sqr),
            lower=None if found.correlation_interval is None else _root(found.correlation_interval[0]),
            upper=None if found.correlation_interval is None else _root(found.correlation_interval[1]),
            truncation=found.truncation,
            attenuation=found.attenuation,
            buckets=found.buckets,
            aligned=study.alignment is not None,
            warnings=self.warnings(study, units)
            + found.caveats
            + ((MATCHED_BY_ORDER,) if study.alignment is None else ()),
        )


def _parameters(study: Study) -> DistanceCorrelationParameters:
    return parse_parameters(DistanceCorrelationParameters, study)


def _answers(study: Study) -> AnswersPlan | None:
    """Return what a study by randomised answers fixes; None of one by another method."""
    parameters = _parameters(study)
    return answers_plan(study, parameters) if parameters.method in ANSWERS else None


def _root(squared: float) -> float:
    return math.sqrt(min(1.0, max(0.0, squared)))


def _too_few_permutations(level: float) -> str:
    needed = math.ceil(1 / level) - 1
    return (
        "with so few permutations nothing can be rejected at this level; ask for at least "
        f"{needed} permutations, which cost no privacy"
    )


def _sketch_warnings(plan: DistanceCorrelationPlan, units: int) -> tuple[str, ...]:
    """Compare what noise alone does to the leading covariance with the most that it can be, 1/4."""
    try:
        design = plan.design(units)
    except StudyError as error:
        return (f"{HOPELESS}{error}",)
    noises = [
        sketch.parts(design)[0].scale(plan.mu) / math.sqrt(design.bucket_units) for sketch in plan.sketches
    ]
    spread = math.prod(math.sqrt(0.25 + noise**2) for noise in noises) / math.sqrt(design.buckets)
    if spread > 0.25 / 2:
        return (
            f"{HOPELESS}even equal columns would hardly be told from independent ones; ask for more units",
        )
    return ()
