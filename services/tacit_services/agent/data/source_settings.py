"""The settings that say where a data set's rows are, in agents and in curators. docs/data-sources.md."""

from itertools import pairwise
from pathlib import Path
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, StrictInt, model_validator

from tacit_protocol.domain.columns import ColumnName
from tacit_services.agent.data.open_source import is_database, open_source
from tacit_services.agent.data.source import Source
from tacit_services.agent.data.sql_source import Ranges

BOUNDS_MAX = 1000
"""Most places at which a query is cut: there are never so many workers."""


class SourceSettings(BaseModel):
    """Where rows are, and where a query may be cut so that several workers read it."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    source: str
    query: str | None = None
    partition_column: ColumnName | None = None
    """A column of numbers of the query, by whose values it is cut."""

    partition_bounds: Annotated[tuple[StrictInt, ...], Field(max_length=BOUNDS_MAX)] = ()
    """Where it is cut. Public: chosen, never looked up in the data."""

    quoted_line_breaks: bool = False
    """Whether values of a CSV file may hold line breaks, between quotes. Otherwise a line is a row."""

    folder: Path = Path()
    """What a relative source is relative to: the folder of the configuration file."""

    @model_validator(mode="after")
    def _ranges_are_complete(self) -> Self:
        if (self.partition_column is None) == bool(self.partition_bounds):
            raise ValueError("partition_column and partition_bounds need each other")
        if self.partition_bounds and not is_database(self.source):
            raise ValueError("partition_column is of database sources: Parquet is cut by its row groups")
        if self.quoted_line_breaks and not self.source.endswith((".csv", ".csv.gz")):
            raise ValueError("quoted_line_breaks is of CSV files")
        if any(first >= second for first, second in pairwise(self.partition_bounds)):
            raise ValueError("partition_bounds must increase")
        return self

    def open(self) -> Source:
        """Return the data source; nothing is read yet.

        Raises:
            DataError: the settings name no known kind of source.
        """
        ranges = None
        if self.partition_column is not None:
            ranges = Ranges(self.partition_column, self.partition_bounds)
        return open_source(
            self.source, self.query, self.folder, ranges, quoted_line_breaks=self.quoted_line_breaks
        )
