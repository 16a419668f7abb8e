"""What two-sample tests conclude, and how it is said: verdicts, their sentences and pictures."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar

from tacit_protocol.messages.study import Study
from tacit_protocol.procedures.base import (
    Fields,
    QuestionTemplate,
)
from tacit_protocol.procedures.means.private_means import (
    ComparedFeatures,
    TestedHypothesis,
)
from tacit_protocol.procedures.two_sample.statistic import (
    LocationComparison,
)
from tacit_protocol.verdicts.base import (
    CLIPPED,
    EFFECTS,
    SUMMARIES,
    TOLD,
    Effect,
    Interval,
    JointEffect,
    PvalueVerdict,
    ShownTable,
    Summary,
    compared_shown,
    effects_table,
    estimate_shown,
    forest,
    interval_of,
    summaries_table,
    told_between,
    unbiased_shown,
)
from tacit_protocol.verdicts.presentation import (
    Meaning,
    RowsPanel,
    Shown,
    decision_sentence,
    names_of,
)

NAMED_MAX = 5
"""Most columns, and most pairs of columns, that a result's heading names."""


class PairComparison(TestedHypothesis):
    """Two owners: p-value adjusted for all pairs, and the squared MMD with its interval."""

    first: str
    second: str
    squared_mmd: Annotated[float | None, estimate_shown("squared MMD")]
    squared_mmd_unbiased: Annotated[float | None, unbiased_shown("squared MMD")]
    lower: float | None
    upper: float | None

    @property
    def names(self) -> tuple[str, ...]:
        """The two owners."""
        return self.first, self.second

    @property
    def estimate(self) -> float | None:
        """Their squared MMD, where features tell one."""
        return self.squared_mmd

    @property
    def interval(self) -> Interval | None:
        """That of their squared MMD."""
        return interval_of(self.lower, self.upper)

    @property
    def estimate_unbiased(self) -> float | None:
        """Their squared MMD before it is cut at 0."""
        return self.squared_mmd_unbiased


class TwoSampleResult(PvalueVerdict):
    """Outcome of a kernel two-sample (or k-sample) test. Unpacks into ``statistic, pvalue``.

    Attributes:
        statistic: the test statistic, from private releases alone.
        pvalue: probability under the null hypothesis (one population) of a statistic at least as large.
        estimate: ``squared_mmd``, the squared maximum mean discrepancy of the features' kernel, averaged over
            pairs of owners and cut at 0; or None.
        estimate_unbiased: the same before it is cut at 0: what to average over studies.
        interval: contains ``estimate``, and covers what it estimates with probability 1 - alpha at least, in
            large samples; or None.
        pairs: which owners differ (Holm).
        columns: which columns, and which pairs of columns, differ (Holm), where the features tell.
        locations: the test locations where owners differ most (Holm), with mean embeddings.
        effects: between every two owners, in columns' own units: of a numeric column the mean difference and
            the difference and ratio of standard deviations, of a level of a categorical one the risk
            difference, the risk ratio and the odds ratio; of at most 120 comparisons, of the columns with
            the smallest p-values. Numbers outside a column's bounds count as the bound. An estimate and an
            interval are None where the noisy numbers allow any value.
        summaries: the owners' own means and standard deviations, and shares of levels.
    """

    squared_mmd: Annotated[float | None, estimate_shown("squared MMD")] = None
    squared_mmd_unbiased: Annotated[float | None, unbiased_shown("squared MMD")] = None
    lower: float | None = None
    upper: float | None = None
    pairs: Annotated[tuple[PairComparison, ...], compared_shown("pairs of owners")] = ()
    columns: Annotated[tuple[ComparedFeatures, ...], compared_shown("columns")] = ()
    locations: Annotated[tuple[LocationComparison, ...], Shown("where the owners differ", "test")] = ()
    effects: Annotated[tuple[JointEffect, ...], EFFECTS] = ()
    summaries: Annotated[tuple[Summary, ...], SUMMARIES] = ()

    listed: ClassVar[tuple[str, ...]] = ("statistic", "pvalue", "estimate", "estimate_unbiased", "interval")
    tabulated: ClassVar[tuple[str, ...]] = ("effects", "columns", "pairs")

    @property
    def estimate(self) -> float | None:
        """Squared maximum mean discrepancy, averaged over pairs of owners."""
        return self.squared_mmd

    @property
    def estimate_unbiased(self) -> float | None:
        """The same before it is cut at 0."""
        return self.squared_mmd_unbiased

    @property
    def interval(self) -> Interval | None:
        """That of ``estimate``."""
        return interval_of(self.lower, self.upper)

    @property
    def heading(self) -> str:
        """Which columns differ, the surest first, then which pairs differ jointly, and what may explain it.

        Empty where features do not tell.
        """
        if not self.columns:
            return ""
        differ = sorted((c for c in self.columns if c.reject), key=lambda c: c.pvalue)
        columns = _listed([c.names[0] for c in differ if len(c.names) == 1])
        pairs = _listed([" and ".join(c.names) + _alone(c, differ) for c in differ if len(c.names) > 1])
        joint = f"; joint distributions that differ: {pairs}" if pairs else ""
        return f"columns that differ: {columns or 'none'}{joint}"

    def __str__(self) -> str:
        decision = "differ" if self.reject else "no difference shown"
        decided = f"{decision}: statistic {self.statistic:.4g}, p = {self.pvalue:.3g} at level {self.alpha:g}"
        told = told_between(_telling(self.effects, self.columns, self.pairs))
        return self._told("; ".join([decided, *told]))

    def fields(self) -> dict[str, Any]:
        """Return what the command lists beside the common fields."""
        compared = ("names", "pvalue", "reject")
        located = ("names", "values", "difference", "standard_error", "pvalue", "reject")
        return super().fields() | {
            "pairs": [{name: getattr(pair, name) for name in compared} for pair in self.pairs],
            "columns": [{name: getattr(column, name) for name in compared} for column in self.columns],
            "locations": [{name: getattr(place, name) for name in located} for place in self.locations],
            **{
                name: [part.model_dump() for part in getattr(self, name)]
                for name in ("effects", "summaries")
                if getattr(self, name)
            },
        }

    def summary(self) -> Sequence[str | ShownTable]:
        """Return what the command shows first."""
        decision = "DIFFERENT populations" if self.reject else "no difference shown"
        return self._finding(decision), f"  statistic {self.statistic:.5g}; {self.method}"

    def details(self) -> Sequence[str | ShownTable]:
        """Return what the command shows after the cost: by how much, and who and what differs."""
        found: list[str | ShownTable] = []
        if self.estimate is not None:
            interval = self.interval
            between = "" if interval is None else f", interval {interval[0]:.4g} to {interval[1]:.4g}"
            found.append(f"  squared MMD {self.estimate:.4g}{between}")
        # Of the pairs of columns only those that differ: there may be thousands.
        columns = [c for c in self.columns if len(c.names) == 1 or c.reject]
        both: tuple[tuple[str, Sequence[TestedHypothesis]], ...] = (
            ("Owners", self.pairs),
            ("Columns", columns),
        )
        found += [
            ShownTable(
                (title, "p (Holm)", ""),
                tuple(
                    (
                        " and ".join(c.names),
                        f"{c.pvalue:.3g}",
                        _difference_words(c, columns),
                    )
                    for c in compared
                ),
            )
            for title, compared in both
            if compared
        ]
        if self.effects:
            found += [effects_table(self.effects), f"  {CLIPPED}"]
        if self.summaries:
            found.append(summaries_table(self.summaries))
        found += [f"  {location}" for location in self.locations if location.reject]
        if len(columns) < len(self.columns):
            found.append("No other pair of columns shows another joint distribution.")
        return found


def _difference_words(compared: TestedHypothesis, columns: Sequence[ComparedFeatures]) -> str:
    if not compared.reject:
        return "no difference shown"
    if isinstance(compared, ComparedFeatures) and compared.kind == "pair":
        return f"joint distribution differs{_alone(compared, columns)}"
    return "differ"


def _alone(pair: ComparedFeatures, columns: Sequence[ComparedFeatures]) -> str:
    """Name those of a pair's columns that differ by themselves, which may explain all of its difference."""
    names = {c.names[0] for c in columns if c.reject and c.kind == "column"}
    alone = [name for name in pair.names if name in names]
    return f" ({' and '.join(alone)} alone may explain it)" if alone else ""


def _listed(names: Sequence[str]) -> str:
    more = [f"{len(names) - NAMED_MAX} more"] if len(names) > NAMED_MAX else []
    return ", ".join([*names[:NAMED_MAX], *more])


def _telling(
    effects: Sequence[JointEffect], columns: Sequence[ComparedFeatures], pairs: Sequence[PairComparison]
) -> list[JointEffect]:
    """Return the effects of the columns and pairs of owners that differ; of all where none does."""
    named = {c.names[0] for c in columns if len(c.names) == 1 and c.reject}
    differ = {pair.names for pair in pairs if pair.reject}
    of_columns = [effect for effect in effects if effect.column in named] or list(effects)
    return [effect for effect in of_columns if effect.groups in differ] or of_columns


ONE_POPULATION = QuestionTemplate(
    "Are our patients (records) alike: do they come from one population?",
    r"alike|same|similar|differ|compar|population|shift|drift|match",
    "two or more",
    rank=10,
)


FEATURE_CHOICES: tuple[Mapping[str, Any], ...] = (
    {},
    {"noise": "k-norm"},
    {"noise": "k-norm", "features": "columns"},
    {"noise": "k-norm", "resolution": 16},
    {"features": "columns"},
    *(
        {"features": "me", "n_features": count, "bandwidth": width}
        for count in (5, 20, 60)
        for width in (0.1, 0.3, 1.0)
    ),
)
"""Features that a plan compares."""


def two_sample_meaning(study: Study, verdict: Fields) -> Meaning:
    """Say what a verdict on two samples means, in sentences."""
    names = names_of(study)
    said = decision_sentence(
        study,
        verdict,
        f"The owners' records differ: {names} are not one population; chance and privacy noise do not "
        "explain what was seen",
        f"No difference between the owners' records was shown: {names} may be one population",
    )
    effects = _stated(verdict)
    words, care = told_between(effects), f"{said.care} {CLIPPED}"
    if not words:
        return said
    if study.parameters.get("fine_cells") and verdict["reject"] and not any(map(_certain, effects)):
        care += f" {FINER}"
    return Meaning(" ".join([said.sentence, *(f"{line}." for line in words)]), care)


FINER = (
    "None of these differences is certain: columns may differ within small parts of their bounds, of which "
    "fine cells say that they differ and not how."
)
"""Said where a test with fine cells rejects and no interval leaves out what no difference would be."""


def _certain(effect: Effect) -> bool:
    """Whether an effect's interval leaves out no difference: 0, of a ratio 1."""
    none = float(effect.kind.endswith("ratio"))
    return (effect.lower is not None and effect.lower > none) or (
        effect.upper is not None and effect.upper < none
    )


def effect_panels(study: Study, verdict: Fields) -> list[RowsPanel]:
    """Return forest plots of the differences that a verdict's sentence tells, a panel a column and kind."""
    effects = [effect for effect in _stated(verdict) if effect.kind.endswith("difference")]
    shown = list(dict.fromkeys(effect.column for effect in effects))[:TOLD]

    def label(effect: Effect) -> str:
        against = f"{effect.groups[0]} less {effect.groups[1]}"
        return against if effect.level is None else f"{effect.level}: {against}"

    kept = [effect for effect in effects if effect.column in shown]
    return forest(kept, study.level, title=lambda effect: effect.column, label=label)


def _stated(verdict: Fields) -> list[JointEffect]:
    """Read the effects that tell most out of a verdict's plain values."""
    effects = [JointEffect.model_validate(effect, strict=False) for effect in verdict.get("effects") or ()]
    if not effects:
        return []
    columns = [ComparedFeatures.model_validate(own, strict=False) for own in verdict.get("columns") or ()]
    pairs = [PairComparison.model_validate(own, strict=False) for own in verdict.get("pairs") or ()]
    return _telling(effects, columns, pairs)
