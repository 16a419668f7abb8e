"""Public column bounds and levels: functions of the study alone, never of data."""

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from tacit_protocol.strict import Egress, StrictModel

LEVELS_MAX = 1000
"""Most levels of one categorical column: each is a coordinate of every owner's release."""

COLUMNS_MAX = 1000
"""Most columns of one study: bounds what a study can make an agent compute."""

STATED = Egress(
    "public", "tacit_protocol.domain.columns:Domain", "the analyst states it, never taken from data"
)

ColumnName = Annotated[str, Field(min_length=1, max_length=128)]
Level = Annotated[str, Field(min_length=1, max_length=128)]


class NumericColumn(StrictModel):
    """A numeric column with public bounds.

    Values are clipped to [``lower``, ``upper``], then scaled to [0, 1]. A missing value (null, NaN or an
    infinity) becomes ``missing``, by default the middle of the bounds.
    """

    egress: ClassVar = STATED

    kind: Literal["numeric"] = "numeric"
    name: ColumnName
    lower: float
    upper: float
    missing: float | None = None

    @model_validator(mode="after")
    def _bounds_are_ordered(self) -> Self:
        if not self.lower < self.upper:
            raise ValueError("lower must be less than upper")
        if self.upper - self.lower == float("inf"):
            raise ValueError("upper - lower must be finite")
        if self.missing is not None and not self.lower <= self.missing <= self.upper:
            raise ValueError("missing must lie within the bounds")
        return self


class CategoricalColumn(StrictModel):
    """A categorical column with a public list of levels.

    It has ``len(levels) + 2`` categories: the levels, one for every value that is not listed, and one for
    missing values.
    """

    egress: ClassVar = STATED

    kind: Literal["categorical"] = "categorical"
    name: ColumnName
    levels: Annotated[tuple[Level, ...], Field(min_length=1, max_length=LEVELS_MAX)]

    @model_validator(mode="after")
    def _levels_are_distinct(self) -> Self:
        if len(set(self.levels)) != len(self.levels):
            raise ValueError("levels must be distinct")
        return self

    @property
    def categories(self) -> int:
        """Number of categories: the levels, "other" and "missing"."""
        return len(self.levels) + 2


Column = Annotated[NumericColumn | CategoricalColumn, Field(discriminator="kind")]


class Domain(StrictModel):
    """The columns a study uses, in order, with their public bounds and levels."""

    columns: Annotated[tuple[Column, ...], Field(min_length=1, max_length=COLUMNS_MAX)]

    @model_validator(mode="after")
    def _names_are_distinct(self) -> Self:
        names = [column.name for column in self.columns]
        if len(set(names)) != len(names):
            raise ValueError("column names must be distinct")
        return self

    @property
    def numeric(self) -> tuple[NumericColumn, ...]:
        """The numeric columns, in the study's order."""
        return tuple(c for c in self.columns if isinstance(c, NumericColumn))

    @property
    def categorical(self) -> tuple[CategoricalColumn, ...]:
        """The categorical columns, in the study's order."""
        return tuple(c for c in self.columns if isinstance(c, CategoricalColumn))
