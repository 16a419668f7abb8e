"""What a paper that uses a procedure cites, as BibTeX and as plain text."""

from dataclasses import dataclass


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
