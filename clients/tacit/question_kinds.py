"""Questions as people put them, and the procedure that answers each."""

import re
from dataclasses import dataclass
from typing import Literal

Owners = Literal["one", "two", "one or more", "two or more"]


@dataclass(frozen=True)
class QuestionKind:
    """A question in plain words.

    Attributes:
        procedure: what answers it where every owner has an agent; "" where only a curator's answers it.
        curated: what answers it where a curator holds the data; "" where nothing does.
        words: the question.
        signs: a regular expression of words that such questions use.
        owners: how many owners have to be named.
        apart: whether each owner holds columns of its own.
        categories: whether every column must be categorical.
        pure: whether no delta is needed.
        relates: whether it asks if columns depend on each other, for which one row a unit is proposed.
    """

    procedure: str
    words: str
    signs: str
    owners: Owners
    curated: str = ""
    apart: bool = False
    categories: bool = False
    pure: bool = False
    relates: bool = False


KINDS: tuple[QuestionKind, ...] = (
    QuestionKind(
        "screening",
        "Which of one owner's columns relate to the outcome that another owner holds?",
        r"which .*(column|variable|feature|factor|gene|marker|relate|associat|predict|matter)|screen",
        "two",
        apart=True,
        relates=True,
    ),
    QuestionKind(
        "identity",
        "Do the categories of one owner follow a known distribution?",
        r"known|census|expected|published (distribution|shares)|follow|goodness|fair",
        "one",
        categories=True,
        pure=True,
    ),
    QuestionKind(
        "embedding_release",
        "Publish a private database that anybody may query for ever?",
        r"publish|synthetic|database|release|share (a|the) (data|copy)",
        "one or more",
        curated="embedding_release",
    ),
    QuestionKind(
        "noisy_counts",
        "How many are there in each category?",
        r"how many|count|number of|frequenc|cross.?tab",
        "one or more",
        categories=True,
        pure=True,
    ),
    QuestionKind(
        "distance_correlation",
        "Do the columns of one owner depend on those that another owner holds of the same people?",
        r"(other|another|their|two) .*(depend|relate|correlat|associat)|same people",
        "two",
        apart=True,
        relates=True,
    ),
    QuestionKind(
        "independence_table",
        "Are these categories independent of each other?",
        r"categor.*independen|contingenc|table|chi.?square",
        "one or more",
        categories=True,
        pure=True,
        relates=True,
    ),
    QuestionKind(
        "homogeneity",
        "Do the owners' categories have one distribution?",
        r"categor.*(same|alike|equal|homogen|distribution)|homogen|shares",
        "two or more",
        categories=True,
        pure=True,
    ),
    QuestionKind(
        "",
        "How strongly do columns in one place depend on each other?",
        r"how strong|strength",
        "one or more",
        curated="curated_distance_correlation",
        relates=True,
    ),
    QuestionKind(
        "joint_independence",
        "Do these columns depend on each other?",
        r"depend|relat|correlat|associat|link|connect|effect of|influence",
        "one",
        curated="joint_independence",
        relates=True,
    ),
    QuestionKind(
        "kernel_two_sample",
        "Are our patients (records) alike: do they come from one population?",
        r"alike|same|similar|differ|compar|population|shift|drift|match",
        "two or more",
        curated="curated_two_sample",
    ),
)
"""In the order in which a question's words are looked for: the special ones first."""


def proposed_kind(question: str) -> QuestionKind:
    """Return the kind that a question's words point to; comparing populations where they point nowhere."""
    words = question.lower()
    return next((kind for kind in KINDS if re.search(kind.signs, words)), KINDS[-1])
