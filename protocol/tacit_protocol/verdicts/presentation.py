"""How verdicts are presented: plain sentences, and what is drawn, as numbers.

A rejection says what was shown. That nothing was shown is no proof of the contrary, and every such sentence
says so; a release of numbers tests nothing, and its sentence says that. Panels are rows with intervals, bars,
curves and null distributions.
"""

import math
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field
from inspect import get_annotations
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel
from scipy.special import chdtr, chdtri, gammaln, xlogy

from tacit_protocol.messages.study import Study
from tacit_protocol.numerics.inference import PVALUE_MIN
from tacit_protocol.numerics.quadratic_forms import QuadraticLaw

OWNERS_NAMED_MAX = 5

NO_PROOF = "That is no proof of it: an effect too small for this study to see would have looked the same."
"""What follows every sentence that nothing was shown."""


LEVEL_DOUBTS = ("level is not kept", "level may be broken")
"""What warnings of verdicts say where a test's level does not hold."""


@dataclass(frozen=True)
class Meaning:
    """A verdict in words.

    ``sentence`` is what it means; ``care`` how far that goes; ``tests`` whether anything was tested.
    """

    sentence: str
    care: str
    tests: bool = True


SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")

PLAIN_MIN = 1e-4
"""Smaller p-values are written with a power of ten."""


def power_of_ten(exponent: int) -> str:
    """Write a power of ten: 10⁻⁷."""
    return f"10{str(exponent).translate(SUPERSCRIPTS)}"


def pvalue_number(pvalue: float) -> str:
    """Write a p-value as a paper does: with three digits, and bounded where it is too small to write.

    >>> pvalue_number(0.0312), pvalue_number(4.99999e-72), pvalue_number(0.0)
    ('0.0312', '5 × 10⁻⁷²', 'below 10⁻³⁰⁰')
    """
    if pvalue <= max(PVALUE_MIN, 1e-300):
        return f"below {power_of_ten(-300)}"
    if pvalue >= PLAIN_MIN:
        return f"{pvalue:.3g}"
    digits, _, exponent = f"{pvalue:.2e}".partition("e")
    return f"{float(digits):g} × {power_of_ten(int(exponent))}"


def pvalue_words(pvalue: float) -> str:
    """Write what a p-value is: "p = 0.03", "p < 10⁻³⁰⁰"."""
    found = pvalue_number(pvalue)
    return f"p < {found.removeprefix('below ')}" if found.startswith("below ") else f"p = {found}"


Part = Literal["effects", "test", "rest"]
"""Where people read a field: by how much, how sure, or what it cost and rests on."""


@dataclass(frozen=True)
class Shown:
    """How people see a verdict's field. It stands in the field's ``Annotated``; the model has their order.

    ``label`` is in people's words, empty where another field or the study says it; ``words`` writes it.
    ``ends`` are the fields of its interval; where there are fields of its name with ``_lower`` and
    ``_upper``, these are, without a word. ``first`` is read before all others of its part.
    """

    label: str = field(repr=False)  # documentation takes its words for names
    part: Part = "rest"
    ends: tuple[str, str] | None = None
    words: Callable[[Any], str] | None = None
    first: bool = False


@dataclass(frozen=True)
class ShownField:
    """One field of a verdict, or of one of its records, as people see it."""

    name: str
    label: str
    part: Part
    value: Any
    interval: tuple[Any, Any] | None
    words: Callable[[Any], str] | None


def shown_fields(found: BaseModel) -> list[ShownField]:
    """Return a model's fields that have a value and a label, in its order, unknown ones by name.

    What a class states itself comes before what it inherits. Both ends of an interval are part of what it is
    of.
    """
    fields = type(found).model_fields
    ordered = dict.fromkeys(
        name for kind in type(found).__mro__ for name in get_annotations(kind) if name in fields
    )
    stated = {
        name: next((each for each in info.metadata if isinstance(each, Shown)), None)
        for name, info in fields.items()
    }
    ends = {name: _ends_of(name, shown, fields) for name, shown in stated.items()}
    taken = {end for pair in ends.values() if pair is not None for end in pair}
    listed = []
    named = [*(each for each in ordered if each not in taken), *sorted(found.model_extra or {})]
    for name in sorted(named, key=lambda each: not (shown := stated.get(each)) or not shown.first):
        shown = stated.get(name) or Shown(name.replace("_", " "))
        value, pair = getattr(found, name), ends.get(name)
        if value is None or value in ((), [], {}) or not shown.label:
            continue
        both = None if pair is None else (getattr(found, pair[0]), getattr(found, pair[1]))
        interval = None if both is None or None in both else both
        listed.append(ShownField(name, shown.label, shown.part, value, interval, shown.words))
    return listed


def _ends_of(name: str, shown: Shown | None, fields: Container[str]) -> tuple[str, str] | None:
    if shown is not None and shown.ends is not None:
        return shown.ends
    own = (f"{name}_lower", f"{name}_upper")
    return own if own[0] in fields and own[1] in fields else None


def names_of(study: Study) -> str:
    """Name the owners, the first of many."""
    return joined([owner.name for owner in study.owners], OWNERS_NAMED_MAX)


def joined(names: list[str], most: int) -> str:
    """Join names: "a", "a and b", "a, b and c", "a, b and 7 more"."""
    shown = names if len(names) <= most else [*names[: most - 1], f"{len(names) - most + 1} more"]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def _evidence(study: Study, verdict: Mapping[str, Any]) -> str:
    pvalue = verdict.get("pvalue")
    if pvalue is None:
        return f" (a private decision at level {study.level:g})"
    return f" ({pvalue_words(float(pvalue))}, level {study.level:g})"


def decision_sentence(study: Study, verdict: Mapping[str, Any], shown: str, not_shown: str) -> Meaning:
    """Say what was shown, or that it was not, with the p-value and how far that goes."""
    evidence = _evidence(study, verdict)
    decided = "" if verdict.get("pvalue") is not None else " Only the decision was released, with its noise."
    if verdict["reject"]:
        return Meaning(f"{shown}{evidence}.", _level(study, verdict) + decided)
    return Meaning(f"{not_shown}{evidence}.", NO_PROOF + decided)


def _level(study: Study, verdict: Mapping[str, Any]) -> str:
    """Say how often a rejection is a mistake, or that this is not known."""
    if any(doubt in str(warning) for warning in verdict.get("warnings") or () for doubt in LEVEL_DOUBTS):
        return "How often such a test says so by mistake is not known here: see the warnings."
    level = f"{study.level:g}"
    return f"A test at level {level} is made to say so by mistake with probability {level} at most."


GAPS_NAMED_MAX = 3


def gaps_words(study: Study) -> str:
    """Say as what number a missing value of each numeric column counted; empty without such columns."""
    columns = study.domain.numeric
    if not columns:
        return ""
    if len(columns) > GAPS_NAMED_MAX:
        return "A missing number counted as the value that the study states, or as the middle of its bounds."
    values = joined([f"{column.name} as {column.missing_value:g}" for column in columns], GAPS_NAMED_MAX)
    return f"A missing {values.replace(' as ', ' counted as ', 1)}."


def plain_meaning(study: Study, verdict: Mapping[str, Any]) -> Meaning:
    """Say what a verdict means in the plainest words."""
    if not isinstance(verdict.get("reject"), bool):
        return Meaning("Numbers were released.", "They test nothing by themselves.", tests=False)
    return decision_sentence(
        study, verdict, "The null hypothesis is rejected", "The null hypothesis is not rejected"
    )


@dataclass(frozen=True)
class Citation:
    """A published work: ``kind`` of BibTeX entry, and its fields as they are printed."""

    key: str
    kind: str
    authors: tuple[str, ...]
    title: str
    where: str
    year: int

    @property
    def plain(self) -> str:
        """The work in a line."""
        names = self.authors if len(self.authors) == 1 else (*self.authors[:-1], f"and {self.authors[-1]}")
        separator = ", " if len(self.authors) > 2 else " "
        return f"{separator.join(names)} ({self.year}). {self.title}. {self.where}."

    @property
    def bibtex(self) -> str:
        """The work as a BibTeX entry."""
        field = {"inproceedings": "booktitle", "article": "journal"}.get(self.kind, "howpublished")
        return (
            f"@{self.kind}{{{self.key},\n  author = {{{' and '.join(self.authors)}}},\n"
            f"  title = {{{{{self.title}}}}},\n  {field} = {{{self.where}}},\n  year = {{{self.year}}}\n}}"
        )


KERNEL = Citation(
    "raj2019dpkernel",
    "inproceedings",
    ("Anant Raj", "Ho Chung Leon Law", "Dino Sejdinovic", "Mijung Park"),
    "A Differentially Private Kernel Two-Sample Test",
    "ECML PKDD, arXiv:1808.00380",
    2019,
)
PERMUTATION = Citation(
    "kim2023dppermutation",
    "misc",
    ("Ilmun Kim", "Antonin Schrab"),
    "Differentially Private Permutation Tests: Applications to Kernel Methods",
    "arXiv:2310.19043",
    2023,
)
JOINT = Citation(
    "liu2025dpjoint",
    "misc",
    ("Xingwei Liu", "Yuexin Chen", "Wangli Xu"),
    "Differentially Private Joint Independence Test",
    "arXiv:2503.18721",
    2025,
)
DATABASE = Citation(
    "balog2018dpdatabase",
    "inproceedings",
    ("Matej Balog", "Ilya Tolstikhin", "Bernhard Schölkopf"),
    "Differentially Private Database Release via Kernel Mean Embeddings",
    "ICML, arXiv:1710.01641",
    2018,
)
PRIVIT = Citation(
    "cai2017privit",
    "inproceedings",
    ("Bryan Cai", "Constantinos Daskalakis", "Gautam Kamath"),
    "Priv'IT: Private and Sample Efficient Identity Testing",
    "ICML, PMLR 70",
    2017,
)
CHI_SQUARED = Citation(
    "gaboardi2016dpchi",
    "inproceedings",
    ("Marco Gaboardi", "Hyun Lim", "Ryan Rogers", "Salil Vadhan"),
    "Differentially Private Chi-Squared Hypothesis Testing: Goodness of Fit and Independence Testing",
    "ICML, PMLR 48",
    2016,
)
NEW_CLASS = Citation(
    "kifer2017chisquare",
    "inproceedings",
    ("Daniel Kifer", "Ryan Rogers"),
    "A New Class of Private Chi-Square Hypothesis Tests",
    "AISTATS, PMLR 54",
    2017,
)
TWO_PARTIES = Citation(
    "vepakomma2021nonlinear",
    "misc",
    ("Praneeth Vepakomma", "Subha Nawer Pushpita", "Ramesh Raskar"),
    "Private Measurement of Nonlinear Correlations between Data Hosted across Multiple Parties",
    "arXiv:2110.09670",
    2021,
)
DISTANCE = Citation(
    "szekely2007distance",
    "article",
    ("Gábor J. Székely", "Maria L. Rizzo", "Nail K. Bakirov"),
    "Measuring and Testing Dependence by Correlation of Distances",
    "Annals of Statistics 35(6)",
    2007,
)
FALSE_DISCOVERIES = Citation(
    "benjamini2001control",
    "article",
    ("Yoav Benjamini", "Daniel Yekutieli"),
    "The Control of the False Discovery Rate in Multiple Testing under Dependency",
    "Annals of Statistics 29(4)",
    2001,
)


def software_work(software: str) -> Citation:
    """Return what to cite for the software, given its name and version."""
    name, _, version = software.partition(" ")
    developers = f"The {name.capitalize()} developers"
    return Citation("tacit", "misc", (developers,), name.capitalize(), f"version {version}", 2026)


ROW_HEIGHT = 18
LABELS_WIDTH = 170
"""Where the axis of a panel of rows begins: labels are left of it."""


@dataclass(frozen=True)
class Row:
    """One line of a panel: a label, a value, an interval where there is one, and whether it stands out."""

    label: str
    value: float
    lower: float | None
    upper: float | None
    stands_out: bool


@dataclass(frozen=True)
class RowsPanel:
    """Effects with intervals, or cells with residuals, around 0. ``unit`` says what the axis is."""

    title: str
    unit: str
    rows: tuple[Row, ...]
    guides: tuple[float, ...] = ()
    """Values at which a line is drawn, besides 0."""


@dataclass(frozen=True)
class HeatPanel:
    """A table as coloured cells, of which those above 0 have one colour and those below another.

    ``rows`` and ``columns`` are its labels, and of what; ``values`` (rows, columns) colour a cell, and
    ``shown`` stand in it. ``unit`` says what both are.
    """

    title: str
    unit: str
    of: tuple[str, str]
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    values: tuple[tuple[float, ...], ...]
    shown: tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class RatiosPanel(RowsPanel):
    """Natural logarithms of ratios with intervals, around 0; the axis and all words say the ratios."""


Floats = npt.NDArray[np.float64]

BARS_MAX = 20
"""Most bars beside each other with labels of their own: of more the largest are drawn."""

COLUMN_BINS_MAX = 40
"""Most bars of a numeric column: more bins are added up to fewer."""


@dataclass(frozen=True)
class Bar:
    """One bar: what it is of, its height, and the interval of the noise where that is known."""

    label: str
    value: float
    lower: float | None = None
    upper: float | None = None


@dataclass(frozen=True)
class BarsPanel:
    """Bars from 0. ``unit`` says what their length is, ``note`` how they are read.

    ``edges`` are a numeric column's: the first bars are then the intervals between them, and the others
    stand for values where rows gather.
    """

    title: str
    unit: str
    bars: tuple[Bar, ...]
    note: str = ""
    edges: tuple[float, ...] = ()


@dataclass(frozen=True)
class DrawnCurve:
    """A line with its intervals: (m,) places and values each."""

    label: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    lower: tuple[float, ...]
    upper: tuple[float, ...]


@dataclass(frozen=True)
class CurvesPanel:
    """Curves of shares, between 0 and 1, over the same axis; ``unit`` says what that is."""

    title: str
    unit: str
    curves: tuple[DrawnCurve, ...]


def largest(values: Floats) -> list[int]:
    """Return which of (k,) values are drawn: all in their order, or the largest of too many, by size."""
    if len(values) <= BARS_MAX:
        return list(range(len(values)))
    return [int(place) for place in np.argsort(-values, kind="stable")[:BARS_MAX]]


def bar(label: str, value: float, half: float | None) -> Bar:
    """Return a bar with the interval around it, where there is one."""
    return Bar(label, value) if half is None else Bar(label, value, value - half, value + half)


POINTS = 200
"""Points of a drawn curve."""

TAIL_MIN = 1e-3
"""A curve is drawn at least as far as its upper quantile of this probability."""

BINS_MIN, BINS_MAX = 12, 40
"""Bars of simulated statistics."""


DRAWN_MAX = 1999
"""Most simulated statistics that a chart shows."""

DRAWN_MIN = 199
"""Fewest simulated statistics that are worth drawing."""

WORK_MAX = 2 * 10**7
"""Most simulated numbers of one chart: about a second of one processor."""

WEIGHTED = "a weighted sum of chi-squared values, which counts sampling and privacy noise"
SIMULATED = "simulated statistics, which count sampling and privacy noise"


@dataclass(frozen=True)
class Critical:
    """A value above which a statistic is rejected; ``of`` says which statistics, where there are several."""

    value: float
    of: str = ""


@dataclass(frozen=True)
class Null:
    """The law of a statistic under the null hypothesis.

    ``t`` and ``density`` (m,) are the points of its curve, in order; ``words`` say what it is. ``criticals``
    is empty where nothing can be rejected at the level, or where that does not depend on the statistic alone.
    """

    words: str
    t: Floats
    density: Floats
    criticals: tuple[Critical, ...]


def from_density(
    words: str,
    density: Callable[[Floats], Floats],
    high: float,
    statistic: float,
    criticals: tuple[Critical, ...],
) -> Null:
    """Draw a density of values above 0 as far as ``high``, or the statistic or a critical value beyond it."""
    # Near 0 some densities have no bound: the curve begins a step away from it.
    bulk = np.linspace(high / POINTS, high, POINTS)
    end = 1.05 * max(high, statistic, *(critical.value for critical in criticals))
    t = np.concatenate([bulk, np.linspace(high, end, POINTS // 10)[1:]])
    return Null(words, t, density(t), criticals)


def chi_square(degrees: int, statistic: float, level: float) -> Null:
    """Return the chi-squared law with so many degrees of freedom."""
    words, high = f"chi-squared with {_degrees(degrees)}", chi_square_quantile(degrees, TAIL_MIN)
    critical = Critical(chi_square_quantile(degrees, level))
    return from_density(words, lambda t: _chi_square_density(degrees, t), high, statistic, (critical,))


def chi_square_quantile(degrees: int, tail: float) -> float:
    """Return the value that a chi-squared variable exceeds with probability ``tail``."""
    # scipy.stats says the same, and costs every command a second to import.
    return float(chdtri(degrees, tail))


def _chi_square_density(degrees: int, t: Floats) -> Floats:
    half = degrees / 2
    return np.asarray(np.exp(xlogy(half - 1, t) - t / 2 - gammaln(half) - half * math.log(2)))


def largest_of(count: int, degrees: int, statistic: float, criticals: tuple[Critical, ...]) -> Null:
    """Return the law of the largest of ``count`` independent chi-squares with ``degrees`` degrees each."""

    def density(t: Floats) -> Floats:
        return np.asarray(count * _chi_square_density(degrees, t) * chdtr(degrees, t) ** (count - 1))

    high = chi_square_quantile(degrees, -math.expm1(math.log1p(-TAIL_MIN) / count))
    words = f"the largest of {count} chi-squared values with {_degrees(degrees)} each"
    return from_density(words, density, high, statistic, criticals)


def quadratic(words: str, laws: tuple[QuadraticLaw, ...], statistic: float, level: float) -> Null:
    """Return the law of a quadratic form in normals; of several the one with the largest p-value."""
    law = max(laws, key=lambda each: each.pvalue(statistic)) if len(laws) > 1 else laws[0]
    high, critical = law.quantile(TAIL_MIN), max(each.quantile(level) for each in laws)
    start, end = min(law.quantile(1 - TAIL_MIN), 0.0), max(high, critical, statistic)
    bulk = np.linspace(start, max(high, critical), POINTS + 1)
    edges = np.concatenate([bulk, np.linspace(bulk[-1], end + 0.05 * (end - start), POINTS // 10)[1:]])
    # A density may rise without bound at 0: what is drawn are shares of narrow strips, which cannot.
    shares = -np.diff(law.tails(edges)) / np.diff(edges)
    return Null(words, (edges[1:] + edges[:-1]) / 2, np.maximum(shares, 0.0), (Critical(critical),))


def from_draws(words: str, draws: Floats, level: float) -> Null | None:
    """Return the law of simulated statistics, (draws,), as bars; None where no two of them differ.

    The p-value is (1 + draws at least as large) / (draws + 1): rejected is above the draw of the last rank
    that keeps that at the level.
    """
    rank = math.floor(level * (len(draws) + 1) + 1e-9) - 1
    ordered = np.sort(draws)[::-1]
    criticals = (Critical(float(ordered[rank])),) if rank >= 0 and np.isfinite(ordered[rank]) else ()
    kept = draws[np.isfinite(draws)]
    if len(kept) < 2 or np.ptp(kept) == 0:
        return None
    bins = int(np.clip(len(np.histogram_bin_edges(kept, "fd")) - 1, BINS_MIN, BINS_MAX))
    heights, edges = np.histogram(kept, bins=bins, density=True)
    t, density = np.repeat(edges, 2), np.concatenate([[0.0], np.repeat(heights, 2), [0.0]])
    return Null(words, t, density, criticals)


def _degrees(degrees: int) -> str:
    return f"{degrees} degree{'' if degrees == 1 else 's'} of freedom"


def affordable(replicates: int, numbers: int) -> int | None:
    """Return how many replicates, of ``numbers`` numbers each, a chart simulates; None for none."""
    count = min(replicates, DRAWN_MAX, WORK_MAX // numbers)
    return count if count >= min(DRAWN_MIN, replicates) else None
