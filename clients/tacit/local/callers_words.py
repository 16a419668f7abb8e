"""Refusals of a study in the words of the function that was called."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from tacit.errors import StudyRefusedError

ARGUMENTS: Mapping[str, str] = {"parameter permutations": "n_permutations"}
"""What arguments of this package's functions are called in a study, where that is another name."""


@contextmanager
def in_callers_words() -> Iterator[None]:
    """Say n_permutations where a refusal would say what a study's file calls it."""
    try:
        yield
    except StudyRefusedError as error:
        text = str(error)
        for theirs, ours in ARGUMENTS.items():
            text = text.replace(theirs, ours)
        raise StudyRefusedError(text) from error.__cause__
