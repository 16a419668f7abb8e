"""The outcome of a database release: one database for each sender, and nothing tested."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tacit.released_database import ReleasedDatabase, databases_of, only_database
from tacit.results.common import Source, StudyResult, common_fields
from tacit_protocol.reporting.svg import stacked_documents

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class DatabaseResult(StudyResult):
    """Private databases, to be used for ever at no further cost.

    Attributes:
        databases: by sender: an owner, or the curator of all of them.
    """

    databases: Mapping[str, ReleasedDatabase]

    def database(self, owner: str | None = None) -> ReleasedDatabase:
        """Return the owner's database, or the only one.

        Raises:
            InputError: there are several and none is named, or there is none of that owner.
        """
        return only_database(self.databases, owner)

    def to_svg(self) -> str:
        """Return every database's columns over its points, as SVG text."""
        pictures = [database.summary_svg() for database in self.databases.values()]
        return pictures[0] if len(pictures) == 1 else stacked_documents(pictures)

    def plot(self) -> "Figure":
        """Draw the columns of the only database with matplotlib.

        Raises:
            InputError: there are several: draw ``result.database(owner).plot()``.
            PlottingError: matplotlib is not installed.
        """
        return self.database().plot()

    def _picture(self) -> str | None:
        return self.to_svg()

    def __str__(self) -> str:
        return (
            f"{len(self.databases)} databases: {', '.join(self.databases)}; epsilon {self.epsilon:g}, "
            f"delta {self.delta:g} ({self.method})"
        )


def database_result(source: Source, verdict: Mapping[str, Any]) -> DatabaseResult:
    """Build the typed result from a study and its verdict, as plain values.

    Raises KeyError, TypeError, ValueError or AttributeError where the verdict is no database release's.
    """
    return DatabaseResult(databases=databases_of(source.study, verdict), **common_fields(source, verdict))
