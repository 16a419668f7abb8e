"""Corrections for asking several questions: which of them are answered when all are looked at together.

Holm (1979) and Bonferroni keep the probability of any false rejection at the level, whatever the dependence;
Benjamini and Yekutieli (2001) keep the expected share of false ones among the rejected, whatever the
dependence; Benjamini and Hochberg (1995) do so for independent or positively dependent p-values alone.
Studies of the same people, and above all those that share releases, are dependent.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
from scipy.stats import false_discovery_control

from tacit.errors import InputError, pandas_module
from tacit_protocol.numerics.inference import holm
from tacit_protocol.terminal import printable
from tacit_protocol.verdicts.base import BaseVerdict

if TYPE_CHECKING:
    import pandas as pd

Method = Literal["holm", "bonferroni", "benjamini-hochberg", "benjamini-yekutieli"]
Floats = npt.NDArray[np.float64]

CONTROLS: Mapping[str, str] = {
    "holm": "the probability of any false rejection, whatever the dependence",
    "bonferroni": "the probability of any false rejection, whatever the dependence",
    "benjamini-hochberg": "the expected share of false rejections, if tests are independent or agree",
    "benjamini-yekutieli": "the expected share of false rejections, whatever the dependence",
}
"""What each method keeps at the level."""

TESTS_NOTHING = "tests nothing, so that there is no p-value to adjust: leave it out"


@dataclass(frozen=True)
class AdjustedTest:
    """One question among several.

    Attributes:
        name: which.
        pvalue: its own p-value; of a private decision its level if it was rejected, and 1 otherwise.
        adjusted: the smallest level of the whole set at which it is rejected, in [0, 1].
        reject: whether ``adjusted`` is at most the level.
        decision: whether only a decision was released, so that ``pvalue`` is what it is worth.
    """

    name: str
    pvalue: float
    adjusted: float
    reject: bool
    decision: bool


@dataclass(frozen=True)
class Adjustment:
    """Several questions, adjusted together. Iterating yields them in the order in which they were given.

    Attributes:
        tests: every question.
        method: which correction.
        level: of the whole set, in (0, 1).
        controls: what is kept at the level, in words.
        warnings: what limits the correction, in words.
    """

    tests: tuple[AdjustedTest, ...]
    method: str
    level: float
    controls: str
    warnings: tuple[str, ...]

    @property
    def rejected(self) -> tuple[AdjustedTest, ...]:
        """The questions whose null hypothesis is rejected."""
        return tuple(test for test in self.tests if test.reject)

    def __iter__(self) -> Iterator[AdjustedTest]:
        return iter(self.tests)

    def __len__(self) -> int:
        return len(self.tests)

    def __str__(self) -> str:
        names = ", ".join(test.name for test in self.rejected) or "none"
        found = f"{len(self.rejected)} of {len(self.tests)} rejected at level {self.level:g}"
        return f"{found} ({self.method}): {names}"

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values, ready for JSON."""
        return {
            "method": self.method,
            "level": self.level,
            "controls": self.controls,
            "tests": [asdict(test) for test in self.tests],
            "warnings": list(self.warnings),
        }

    def to_pandas(self) -> "pd.DataFrame":
        """Return the questions as a data frame, one row each. Raises InputError without pandas."""
        found: pd.DataFrame = pandas_module().DataFrame([asdict(test) for test in self.tests])
        return found


def adjust(
    results: Iterable[Any] | Mapping[str, Any], method: Method | str = "holm", *, level: float = 0.05
) -> Adjustment:
    """Adjust the p-values of several results for having asked all of them.

    Give every question that was asked, not only those that were answered. A screening counts as all of its
    pairs. A private decision made at level alpha counts as a p-value of alpha where it rejects and 1 where
    it does not: under its null hypothesis that is at most u with probability u at most, for every u, which
    is all that a p-value must be. It can be rejected only if alpha is small enough for the set, such as
    ``level`` over the number of questions.

    Args:
        results: results, named by the keys of a mapping, or else by their studies' titles; anything with a
            ``pvalue`` is taken too, such as SciPy's.
        method: "holm", "bonferroni", "benjamini-hochberg" or "benjamini-yekutieli".
        level: of the whole set, in (0, 1).

    Raises:
        InputError: a result tests nothing (a database, noisy counts, a result that stays with its receiver),
            a study is given twice, there are none, or the method or the level is not one of the above.

    >>> from types import SimpleNamespace
    >>> tests = {"a": SimpleNamespace(pvalue=0.01), "b": SimpleNamespace(pvalue=0.04)}
    >>> [test.adjusted for test in adjust(tests)]
    [0.02, 0.04]
    """
    if method not in CONTROLS:
        raise InputError(f"method must be one of {', '.join(CONTROLS)}")
    if isinstance(level, bool) or not isinstance(level, int | float) or not 0 < level < 1:
        raise InputError("level must lie between 0 and 1")
    named = _named(results)
    _require_distinct(named)
    entries = [entry for name, result in named for entry in _entries(name, result)]
    if not entries:
        raise InputError("there is nothing to adjust: give one result or more")
    adjusted = _adjusted(np.array([pvalue for _, pvalue, _ in entries]), method)
    tests = tuple(
        AdjustedTest(name, pvalue, float(value), bool(value <= level), decision)
        for (name, pvalue, decision), value in zip(entries, adjusted, strict=True)
    )
    warnings = _dependence([result for _, result in named], method) + _coarse(tests, level)
    return Adjustment(tests, method, float(level), CONTROLS[method], warnings)


def _adjusted(pvalues: Floats, method: str) -> Floats:
    match method:
        case "holm":
            return holm(pvalues)
        case "bonferroni":
            return np.minimum(1.0, len(pvalues) * pvalues)
        case "benjamini-hochberg":
            return np.asarray(false_discovery_control(pvalues, method="bh"))
        case _:
            return np.asarray(false_discovery_control(pvalues, method="by"))


def _named(results: Iterable[Any] | Mapping[str, Any]) -> list[tuple[str, Any]]:
    if isinstance(results, Mapping):
        return [(str(name), result) for name, result in results.items()]
    if isinstance(results, str) or not isinstance(results, Iterable):
        raise InputError("give several results: a list, or a dictionary by name")
    given = list(results)
    titles = [_title(result) for result in given]
    return [
        (title if title and titles.count(title) == 1 else f"{number}: {title or 'question'}", result)
        for number, (title, result) in enumerate(zip(titles, given, strict=True), 1)
    ]


def _title(result: Any) -> str:
    source = getattr(result, "source", None)
    return "" if source is None else printable(str(source.study.title))


def _entries(name: str, result: Any) -> list[tuple[str, float, bool]]:
    """Return what a result counts as: name, p-value and whether it is a decision's, for each hypothesis."""
    if isinstance(result, BaseVerdict):
        hypotheses, decision = result.hypotheses(), result.private_decision
    else:
        pvalue = getattr(result, "pvalue", None)
        hypotheses, decision = {} if pvalue is None else {"": pvalue}, False
    if not hypotheses:
        raise InputError(f"{name} {TESTS_NOTHING}")
    return [
        (f"{name}: {which}" if which else name, _pvalue(name, pvalue), decision)
        for which, pvalue in hypotheses.items()
    ]


def _pvalue(name: str, value: Any) -> float:
    try:
        pvalue = float(value)
    except (TypeError, ValueError):
        pvalue = math.nan
    if not 0 <= pvalue <= 1:
        raise InputError(f"the p-value of {name} is no number between 0 and 1")
    return pvalue


def _require_distinct(named: Sequence[tuple[str, Any]]) -> None:
    seen: dict[str, str] = {}
    for name, result in named:
        digest = getattr(getattr(result, "source", None), "digest", None)
        if digest is None:
            continue
        if digest in seen:
            raise InputError(f"{name} and {seen[digest]} are one study: give each study once")
        seen[digest] = name


def _dependence(results: Sequence[Any], method: str) -> tuple[str, ...]:
    """Warn where the method asks for more than studies of the same data can promise."""
    if method != "benjamini-hochberg":
        return ()
    held: list[tuple[str, str]] = []
    for result in results:
        source = getattr(result, "source", None)
        if source is not None:
            held += {(owner.key, owner.data_set) for owner in source.study.owners}
    if len(set(held)) == len(held):
        return ()
    return (
        "some of these studies use the same data sets, or the same releases, and are dependent: "
        "benjamini-hochberg may not keep the level; benjamini-yekutieli does",
    )


def _coarse(tests: Sequence[AdjustedTest], level: float) -> tuple[str, ...]:
    lost = [test.name for test in tests if test.decision and test.pvalue < 1 and not test.reject]
    if not lost:
        return ()
    return (
        f"the private decision of {', '.join(lost)} was made at too large a level to count among "
        f"{len(tests)} questions; such a study should be created with level {level / len(tests):.3g} or less",
    )
