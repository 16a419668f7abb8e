"""What verdicts on questions within owners say: parts, effects, and what could not be seen."""

import math
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

from scipy.special import ndtri

from tacit_protocol.domain import NumericColumn
from tacit_protocol.numerics.inference import RARE_UNITS
from tacit_protocol.strict import StrictModel
from tacit_protocol.verdicts.base import (
    EFFECTS,
    EFFECTS_BY_OWNER,
    HETEROGENEITY,
    PVALUE,
    REJECTED,
    Effect,
    PvalueVerdict,
    ShownTable,
    effects_table,
    parts_frame,
)
from tacit_protocol.verdicts.presentation import Citation

STATED_MAX = 60
"""Most comparisons, or pairs of columns, whose effects a verdict states; those with the smallest p-values."""

BY_OWNER_MAX = 240
"""Most of them times owners: of many owners fewer are stated owner by owner."""

TOLD = 4
"""Most effects that a sentence tells."""

WIDE = 16.0
"""Bounds are much wider than values of which they are more standard deviations wide than this: twice as wide
as four to either side of the mean, within which procedures are measured."""

WITHIN_ALONE = "nor whether an effect is the same at all; what owners differ in neither makes nor hides one"
"""What masks hide of what is computed within owners, and what they do not."""

POWER = 0.8
"""With which probability an effect is found that is said to be large enough to be seen."""


def visible(half: float, level: float) -> float:
    """Return the effect that is found with probability POWER where intervals reach so far to either side."""
    z = -float(ndtri(level / 2))
    return half * (z + float(ndtri(POWER))) / z


HIDDEN = 2.0
"""Up to how many standard deviations of its noise a sum of squares may be none."""


def told_spread(squares: float, noise: float, units: float) -> tuple[float, bool]:
    """Return the standard deviation of so many units' values in [-1, 1]; or, and False, the most it may be.

    ``squares`` is the noisy sum of squares about their mean, or means, ``noise`` its noise's standard
    deviation, which hides the former where it is large.
    """
    told = squares > HIDDEN * noise
    most = squares if told else max(squares, 0.0) + HIDDEN * noise
    return min(1.0, math.sqrt(most / max(units, RARE_UNITS))), told


def bounds_warning(
    column: NumericColumn, spread: tuple[float, bool], unseen: str, test: str | None, *, large: bool = True
) -> str | None:
    """Say what could not be seen within a column's bounds, and what to do; None where nothing is amiss.

    ``spread`` is that of ``told_spread``. ``large`` says that what is unseen is no less than that. ``test``
    is that of blocks to ask for instead; None where none can be.
    """
    most, told = spread
    if told and not large:
        return None
    bounds = f"{column.name} ({column.lower:g} to {column.upper:g})"
    size = (
        f"standard deviation {'about' if told else 'at most'} {most * (column.upper - column.lower) / 2:.2g}"
    )
    if most * WIDE < 2:
        found = f"the bounds of {bounds} are much wider than its values are spread ({size})"
    elif told:
        found = f"noise is larger than what values of {bounds} differ by ({size})"
    else:
        found = f"noise hides how far values are spread within the bounds of {bounds}"
    advice = f"{found}: {unseen} could not be seen; ask again, at new cost, with narrower public bounds"
    if test is None:
        return advice
    return f'{advice}, or with ranks in blocks, which need no narrow ones (aggregated_test, test "{test}")'


FIELLER = Citation(
    "fieller1954",
    "article",
    ("E. C. Fieller",),
    "Some Problems in Interval Estimation",
    "Journal of the Royal Statistical Society B 16(2)",
    1954,
)
COCHRAN = Citation(
    "cochran1954combination",
    "article",
    ("William G. Cochran",),
    "The Combination of Estimates from Different Experiments",
    "Biometrics 10(1)",
    1954,
)


class TestedPart(StrictModel):
    """What was found of one column, or pair of columns, within owners.

    Attributes:
        statistic: of the part of it that is surest.
        pvalue: adjusted for its parts and for all columns or pairs (Holm).
        reject: whether the null hypothesis is rejected at the study's level.
        heterogeneity_pvalue: that owners have its effects in common, the smallest one, adjusted for how many
            there are; None of one owner, or where the noisy numbers cannot tell.
    """

    statistic: float
    pvalue: Annotated[float, PVALUE]
    reject: Annotated[bool, REJECTED]
    heterogeneity_pvalue: Annotated[float | None, HETEROGENEITY]

    @property
    def named(self) -> str:
        """What it is of."""
        raise NotImplementedError


class WithinOwnersVerdict(PvalueVerdict):
    """A test within owners, with effects. Unpacks into ``statistic, pvalue``.

    Attributes:
        effects: what owners have in common.
        effects_by_owner: every owner's own.
        heterogeneity_pvalue: that owners have all effects in common: the smallest of the parts', adjusted for
            their number; None of one owner.
    """

    listed: ClassVar[tuple[str, ...]] = ("statistic", "pvalue", "heterogeneity_pvalue")
    parted: ClassVar[str]
    """The field that holds the parts."""
    found: ClassVar[tuple[str, str]]
    """What the command says where it was shown, and where it was not."""
    found_of_part: ClassVar[tuple[str, str]]
    """The same of one part."""
    in_common: ClassVar[str]
    """What owners may have in common."""

    effects: Annotated[tuple[Effect, ...], EFFECTS]
    effects_by_owner: Annotated[tuple[Effect, ...], EFFECTS_BY_OWNER]
    heterogeneity_pvalue: Annotated[float | None, HETEROGENEITY]

    def differences(self) -> list[str]:
        """Say in words what was found, and how large it is."""
        raise NotImplementedError

    def __str__(self) -> str:
        decision = self.found[0].lower() if self.reject else self.found_of_part[1]
        return self._told("; ".join([self._decided(decision), *self.differences()]))

    @property
    def tested(self) -> Sequence[TestedPart]:
        """The parts."""
        return tuple(getattr(self, self.parted))

    def to_pandas(self) -> Any:
        """Return the effects as a pandas frame: one row each, those of all owners first."""
        return parts_frame((*self.effects, *self.effects_by_owner), self.source.drawn_by.frame)

    def hypotheses(self) -> dict[str, float]:
        """Return every part's p-value."""
        return {part.named: part.pvalue for part in self.tested}

    def fields(self) -> dict[str, Any]:
        """Return what the command lists beside the common fields."""
        return super().fields() | {
            name: [part.model_dump() for part in getattr(self, name)]
            for name in (self.parted, "effects", "effects_by_owner")
        }

    def summary(self) -> Sequence[str | ShownTable]:
        """Return what the command shows first."""
        common = self.heterogeneity_pvalue
        rows = tuple(
            (own.named, f"{own.pvalue:.3g}", self.found_of_part[0 if own.reject else 1])
            for own in self.tested
        )
        return (
            self._finding(self.found[0 if self.reject else 1]),
            f"  statistic {self.statistic:.5g}; {self.method}",
            ShownTable((self.parted.removesuffix("s").capitalize(), "p (Holm)", ""), rows),
            effects_table(self.effects),
            *(() if common is None else (f"  the same {self.in_common} everywhere: p = {common:.3g}",)),
        )

    def details(self) -> Sequence[str | ShownTable]:
        return (effects_table(self.effects_by_owner),) if len(self.units) > 1 else ()


def smallest(pvalues: Sequence[float | None]) -> float | None:
    """Return the smallest of p-values, adjusted for their number; None where there are none."""
    known = [pvalue for pvalue in pvalues if pvalue is not None]
    return min(1.0, min(known) * len(known)) if known else None
