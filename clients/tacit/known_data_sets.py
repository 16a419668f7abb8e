"""What a tester knows of owners and their data sets: who is enrolled, and what earlier studies said."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tacit.errors import TacitError
from tacit_protocol.domain.columns import Column
from tacit_protocol.messages.study import Study

if TYPE_CHECKING:
    from tacit.client import Client

STUDIES_READ_MAX = 10
"""How many earlier studies are read: the newest say what is known."""


@dataclass
class KnownDataSet:
    """What earlier studies said of one data set: all of it is public."""

    units: int | None = None
    unit_column: str | None = None
    columns: dict[str, Column] = field(default_factory=dict)


@dataclass(frozen=True)
class Known:
    """Who is enrolled at a tester, and their data sets by owner and name."""

    owners: tuple[str, ...]
    curators: tuple[str, ...] = ()
    data_sets: Mapping[str, Mapping[str, KnownDataSet]] = field(default_factory=dict)

    def of(self, owner: str, data_set: str) -> KnownDataSet:
        """Return what is known of a data set; of an unknown one nothing is."""
        return self.data_sets.get(owner, {}).get(data_set) or KnownDataSet()


def known_at(client: "Client") -> Known:
    """Ask the tester for its parties, and for the newest studies."""
    parties = client.parties()
    found: dict[str, dict[str, KnownDataSet]] = {}
    for summary in sorted(client.studies(), key=lambda study: study.created_at)[-STUDIES_READ_MAX:]:
        try:
            learn(found, client.study_content(summary.digest))
        except TacitError:
            continue  # a study that cannot be read tells nothing
    return Known(
        tuple(party.name for party in parties if party.role == "owner"),
        tuple(party.name for party in parties if party.role == "curator"),
        found,
    )


def learn(found: dict[str, dict[str, KnownDataSet]], study: Study) -> None:
    """Add what a study says of its owners' data sets; the newest comes last."""
    for owner in study.owners:
        data_set = found.setdefault(owner.name, {}).setdefault(owner.data_set, KnownDataSet())
        data_set.units = owner.units or data_set.units
        data_set.unit_column = study.unit_column
        for column in study.domain_of(owner).columns:
            data_set.columns[column.name] = column
