"""What a verdict means, in plain sentences: what every procedure says its own with.

A rejection says what was shown. That nothing was shown is no proof of the contrary, and every such sentence
says so; a release of numbers tests nothing, and its sentence says that.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tacit_protocol.messages.study import Study
from tacit_protocol.numerics.inference import PVALUE_MIN

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


def pvalue_words(pvalue: float) -> str:
    """Write a p-value as a paper does: with three digits, and bounded where it is too small to write."""
    return "p < 1e-300" if pvalue <= max(PVALUE_MIN, 1e-300) else f"p = {pvalue:.3g}"


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


def either(study: Study, verdict: Mapping[str, Any], shown: str, not_shown: str) -> Meaning:
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


def plain_meaning(study: Study, verdict: Mapping[str, Any]) -> Meaning:
    """Say what a verdict means in the plainest words."""
    if not isinstance(verdict.get("reject"), bool):
        return Meaning("Numbers were released.", "They test nothing by themselves.", tests=False)
    return either(study, verdict, "The null hypothesis is rejected", "The null hypothesis is not rejected")


@dataclass(frozen=True)
class Work:
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


KERNEL = Work(
    "raj2019dpkernel",
    "inproceedings",
    ("Anant Raj", "Ho Chung Leon Law", "Dino Sejdinovic", "Mijung Park"),
    "A Differentially Private Kernel Two-Sample Test",
    "ECML PKDD, arXiv:1808.00380",
    2019,
)
PERMUTATION = Work(
    "kim2023dppermutation",
    "misc",
    ("Ilmun Kim", "Antonin Schrab"),
    "Differentially Private Permutation Tests: Applications to Kernel Methods",
    "arXiv:2310.19043",
    2023,
)
JOINT = Work(
    "liu2025dpjoint",
    "misc",
    ("Xingwei Liu", "Yuexin Chen", "Wangli Xu"),
    "Differentially Private Joint Independence Test",
    "arXiv:2503.18721",
    2025,
)
DATABASE = Work(
    "balog2018dpdatabase",
    "inproceedings",
    ("Matej Balog", "Ilya Tolstikhin", "Bernhard Schölkopf"),
    "Differentially Private Database Release via Kernel Mean Embeddings",
    "ICML, arXiv:1710.01641",
    2018,
)
PRIVIT = Work(
    "cai2017privit",
    "inproceedings",
    ("Bryan Cai", "Constantinos Daskalakis", "Gautam Kamath"),
    "Priv'IT: Private and Sample Efficient Identity Testing",
    "ICML, PMLR 70",
    2017,
)
CHI_SQUARED = Work(
    "gaboardi2016dpchi",
    "inproceedings",
    ("Marco Gaboardi", "Hyun Lim", "Ryan Rogers", "Salil Vadhan"),
    "Differentially Private Chi-Squared Hypothesis Testing: Goodness of Fit and Independence Testing",
    "ICML, PMLR 48",
    2016,
)
NEW_CLASS = Work(
    "kifer2017chisquare",
    "inproceedings",
    ("Daniel Kifer", "Ryan Rogers"),
    "A New Class of Private Chi-Square Hypothesis Tests",
    "AISTATS, PMLR 54",
    2017,
)
TWO_PARTIES = Work(
    "vepakomma2021nonlinear",
    "misc",
    ("Praneeth Vepakomma", "Subha Nawer Pushpita", "Ramesh Raskar"),
    "Private Measurement of Nonlinear Correlations between Data Hosted across Multiple Parties",
    "arXiv:2110.09670",
    2021,
)
DISTANCE = Work(
    "szekely2007distance",
    "article",
    ("Gábor J. Székely", "Maria L. Rizzo", "Nail K. Bakirov"),
    "Measuring and Testing Dependence by Correlation of Distances",
    "Annals of Statistics 35(6)",
    2007,
)
FALSE_DISCOVERIES = Work(
    "benjamini2001control",
    "article",
    ("Yoav Benjamini", "Daniel Yekutieli"),
    "The Control of the False Discovery Rate in Multiple Testing under Dependency",
    "Annals of Statistics 29(4)",
    2001,
)


def software_work(software: str) -> Work:
    """Return what to cite for the software, given its name and version."""
    name, _, version = software.partition(" ")
    developers = f"The {name.capitalize()} developers"
    return Work("tacit", "misc", (developers,), name.capitalize(), f"version {version}", 2026)
