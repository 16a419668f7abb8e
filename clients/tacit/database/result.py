"""What a study of ``embedding_release`` results in: a private database of every sender."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Self

from pydantic import PrivateAttr

from tacit.database.released import ReleasedDatabase, databases_of, only_database
from tacit.errors import pandas_module
from tacit_protocol.procedures.embedding_release.verdict import EmbeddingReleaseVerdict
from tacit_protocol.reporting.svg import stacked_documents
from tacit_protocol.verdicts.base import VerdictSource

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


class DatabaseResult(EmbeddingReleaseVerdict):
    """Private databases, to be used for ever at no further cost.

    Attributes:
        databases: by sender: an owner, or the curator of all of them.
    """

    _databases: Mapping[str, ReleasedDatabase] = PrivateAttr(default_factory=dict)

    def bound(self, source: VerdictSource) -> Self:
        """Return the verdict with what it was made from, and its databases laid out."""
        found = super().bound(source)
        found._databases = databases_of(source.study, found)
        return found

    @property
    def databases(self) -> Mapping[str, ReleasedDatabase]:
        """By sender: an owner, or the curator of all of them."""
        return self._databases

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

    def to_pandas(self) -> "pd.DataFrame":
        """Return the points of every database with their weights, indexed by sender and point."""
        frames = {name: database.to_pandas() for name, database in self.databases.items()}
        found: pd.DataFrame = pandas_module().concat(frames, names=["sender", "point"])
        return found

    def picture(self) -> str:
        """Return the databases' picture, for the report."""
        return self.to_svg()

    def __str__(self) -> str:
        return (
            f"{len(self.databases)} databases: {', '.join(self.databases)}; epsilon {self.epsilon:g}, "
            f"delta {self.delta:g} ({self.method})"
        )
