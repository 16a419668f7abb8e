"""The outcome of a database release: one database for each sender, and nothing tested."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tacit.released_database import ReleasedDatabase, databases_of, only_database
from tacit.results.common import common_fields
from tacit_protocol.messages.study import Study


@dataclass(frozen=True)
class DatabaseResult:
    """Private databases, to be used for ever at no further cost.

    Attributes:
        databases: by sender: an owner, or the curator of all of them.
        reject: always false; a database tests nothing.
        alpha: the study's level.
        method: what was computed, in words.
        n: privacy units of each sender, by name.
        epsilon: what every owner spent.
        delta: what every owner spent.
        warnings: what limits the databases, in words.
        verdict: everything that the procedure reports.
    """

    databases: Mapping[str, ReleasedDatabase]
    reject: bool
    alpha: float
    method: str
    n: Mapping[str, int]
    epsilon: float
    delta: float
    warnings: tuple[str, ...]
    verdict: Mapping[str, Any]

    def database(self, owner: str | None = None) -> ReleasedDatabase:
        """Return the owner's database, or the only one.

        Raises:
            InputError: there are several and none is named, or there is none of that owner.
        """
        return only_database(self.databases, owner)

    def __str__(self) -> str:
        return (
            f"{len(self.databases)} databases: {', '.join(self.databases)}; epsilon {self.epsilon:g}, "
            f"delta {self.delta:g} ({self.method})"
        )


def database_result(study: Study, verdict: Mapping[str, Any]) -> DatabaseResult:
    """Build the typed result from a study and its verdict, as plain values.

    Raises KeyError, TypeError, ValueError or AttributeError where the verdict is no database release's.
    """
    return DatabaseResult(databases=databases_of(study, verdict), **common_fields(study, verdict))
