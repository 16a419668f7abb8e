"""What an owner publishes of its data sets: columns, types, public bounds, and what its policy allows.

The owner signs it with its own key, for one tester, which keeps the newest. It is made from the owner's
settings and policy, and from no row: whoever reads it learns what the owner's people wrote there.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Annotated, ClassVar, Literal

from pydantic import Field, ValidationError

from tacit_protocol.domain import (
    COLUMNS_MAX,
    CategoricalColumn,
    Column,
    ColumnName,
    NumericColumn,
    Sha256,
    VectorColumn,
    lies_within,
)
from tacit_protocol.messages.study import (
    UNITS_MAX,
    DataSetName,
    DataUse,
    Owner,
    PartyName,
    PublicKeyHex,
    PurposeField,
    RespondAfter,
    SealingCertificate,
    Study,
    UnixTime,
)
from tacit_protocol.names import folded
from tacit_protocol.privacy.guarantee import Budget
from tacit_protocol.strict import Egress, StrictModel

ANY = "*"
"""Stands for every procedure of Tacit itself, or every column."""

DATA_SETS_MAX = 100
"""Most data sets in one owner's catalogue."""

STATED = Egress(
    "public",
    "tacit_services.agent.agent:Agent",
    "the owner's settings and policy, if it chose to publish them",
)


class PublishedDataSet(StrictModel):
    """One data set, as its owner describes it."""

    egress: ClassVar = STATED

    name: DataSetName
    about: Annotated[str, Field(max_length=1000)] | None = None
    """What it is, in the owner's words."""
    units: Annotated[int, Field(ge=1, le=UNITS_MAX)] | None = None
    """How many privacy units it holds, roughly: the owner's own figure, never counted for this."""
    unit_column: ColumnName | None = None
    """The column whose value names the privacy unit, which studies must state; None where a row is one."""
    columns: Annotated[tuple[Column, ...], Field(max_length=COLUMNS_MAX)] = ()
    """Columns that studies may use, with the bounds or levels that a study must stay within."""
    other_columns: Annotated[tuple[ColumnName, ...], Field(max_length=COLUMNS_MAX)] = ()
    """Columns that studies may use with bounds or levels of their own; ``*`` stands for any."""
    measures: dict[ColumnName, Annotated[str, Field(min_length=1, max_length=50)]] = Field(
        default_factory=dict
    )
    """Units of measurement by column: years, mmol/l."""
    vectors: Annotated[tuple[VectorColumn, ...], Field(max_length=COLUMNS_MAX)] = ()
    """Columns of vectors that encoders may read, with their length and the largest norm of a study."""


class CatalogueMessage(StrictModel):
    """The payload that an owner signs; without data sets it withdraws what was published before."""

    egress: ClassVar = STATED

    format: Literal["tacit/catalogue/1"] = "tacit/catalogue/1"
    owner: PartyName
    tester: PublicKeyHex
    """The tester that it is for."""
    version: UnixTime
    """When it was made: a later one replaces it."""
    data_sets: Annotated[tuple[PublishedDataSet, ...], Field(max_length=DATA_SETS_MAX)] = ()
    procedures: Annotated[tuple[str, ...], Field(max_length=1000)] = ()
    """Procedures that the policy runs; ``*`` stands for Tacit's own."""
    per_study_max: Budget | None = None
    """The most that one study may spend."""
    respond_after_s_min: RespondAfter = 0
    approval: Literal["automatic", "by-hand"] | None = None
    required_fields: tuple[PurposeField, ...] = ()
    data_uses: tuple[DataUse, ...] | None = None
    sealing: SealingCertificate | None = None
    """The key that another owner's release may be sealed to."""
    encoders: Annotated[tuple[Sha256, ...], Field(max_length=1000)] = ()
    """Public files of encoders, by their SHA-256, that the policy runs."""

    def data_set(self, name: str) -> PublishedDataSet | None:
        """Return the data set of that name, or None."""
        return next((data_set for data_set in self.data_sets if data_set.name == name), None)

    def refusals(self, study: Study, owner: Owner) -> tuple[str, ...]:
        """Say why this owner's policy, as published, would refuse a study; empty where nothing is known.

        Each text says what to change. An agent asks its policy of today, which alone decides.
        """
        if not self.data_sets:
            return ()
        data_set = self.data_set(owner.data_set)
        found = [*self._of_the_study(study)]
        if data_set is None:
            names = ", ".join(one.name for one in self.data_sets)
            found.append(f"{self.owner} publishes no data set {owner.data_set}: it has {names}")
        else:
            found.extend(_of_the_data_set(self.owner, study, owner, data_set))
        for encoder in study.encoders_of(owner):
            found += [
                f"{self.owner} does not run the encoder {digest}: it runs {len(self.encoders)} others"
                for digest, _ in encoder.files
                if digest not in self.encoders
            ]
        return tuple(found)

    def _of_the_study(self, study: Study) -> list[str]:
        found = []
        built_in = ANY in self.procedures and study.procedure_origin is None
        if study.procedure not in self.procedures and not built_in:
            found.append(f"{self.owner} does not run {study.procedure}: it runs {', '.join(self.procedures)}")
        if (most := self.per_study_max) is not None:
            if study.budget.epsilon_micro > most.epsilon_micro:
                found.append(f"{self.owner} lets one study spend epsilon {most.epsilon:g} at most")
            if study.budget.delta_pico > most.delta_pico:
                found.append(f"{self.owner} lets one study spend delta {most.delta:g} at most")
        if study.respond_after_s < self.respond_after_s_min:
            found.append(
                f"{self.owner} answers after {self.respond_after_s_min} s at the soonest: respond_after_s"
            )
        if missing := [name for name in self.required_fields if getattr(study, name) is None]:
            found.append(f"{self.owner} requires that a study states {', '.join(missing)}")
        if self.data_uses is not None and study.data_use not in self.data_uses:
            found.append(f"{self.owner} takes studies whose data_use is {' or '.join(self.data_uses)}")
        return found


def _of_the_data_set(name: str, study: Study, owner: Owner, data_set: PublishedDataSet) -> list[str]:
    declared = {column.name: column for column in data_set.columns}
    found = [
        f"{name}'s column {column.name} has other bounds or levels than the study asks for"
        for column in study.domain_of(owner).columns
        if column.name in declared and not lies_within(column, declared[column.name])
    ]
    vectors = {column.name: column for column in data_set.vectors}
    found += [
        f"{name}'s vectors {column.name} have length {known.length} and a norm of {known.norm:g} at most"
        for encoder in study.encoders_of(owner)
        for column in encoder.inputs
        if isinstance(column, VectorColumn)
        and (known := vectors.get(column.name)) is not None
        and (column.length != known.length or column.norm > known.norm)
    ]
    there = [*declared, *vectors, *data_set.other_columns]
    if ANY not in there:
        found += [
            f"{name} lets no study use a column {column} of {data_set.name}: it has {', '.join(there)}"
            for column in sorted(study.columns_read(owner) - set(there))
        ]
    if study.unit_column != data_set.unit_column:
        needed = "is a row" if data_set.unit_column is None else f"is named by {data_set.unit_column}"
        found.append(f"{name}'s privacy unit in {data_set.name} {needed}: unit_column")
    return found


_Stated = tuple[str, Column, str | None]
"""Who publishes a column, the column, and its unit of measurement."""


def differences(entries: Sequence[CatalogueMessage], columns: Collection[str] = ()) -> tuple[str, ...]:
    """Say where published data sets do not mean the same by a column: by name, type, unit, bounds or levels.

    ``columns`` are looked at, or all that two data sets publish with bounds or levels, by one name or by
    names that differ in the capitals A to Z alone. Empty where nothing differs: people still have to know
    that columns of one name, unit and levels hold the same thing.
    """
    named: dict[str, list[_Stated]] = defaultdict(list)
    units: dict[str, list[str]] = defaultdict(list)
    everyone: list[str] = []
    for entry in entries:
        for data_set in entry.data_sets:
            who = f"{entry.owner}/{data_set.name}"
            everyone.append(who)
            units["a row" if data_set.unit_column is None else "all rows of a person or thing"].append(who)
            for column in data_set.columns:
                named[folded(column.name)].append((who, column, data_set.measures.get(column.name)))
    found = []
    if len(units) > 1:
        words = "; ".join(f"{unit} at {', '.join(who)}" for unit, who in units.items())
        found.append(f"a privacy unit is {words}")
    wanted = [folded(name) for name in columns] or [name for name in named if len(named[name]) > 1]
    for name in wanted:
        stated = named[name]
        if columns and (without := [who for who in everyone if who not in {one[0] for one in stated}]):
            found.append(f"{name}: {', '.join(without)} publishes no bounds or levels of it")
        if stated:
            found += [f"{stated[0][1].name}: {words}" for words in _column_differences(stated)]
    return tuple(found)


def common_column(declared: Sequence[Column]) -> Column | None:
    """Return a column that lies within what every owner declares of it; None where there is none."""
    if not declared:
        return None
    found = declared[0]
    try:
        for other in declared[1:]:
            if isinstance(found, NumericColumn) and isinstance(other, NumericColumn):
                ends = {"lower": max(found.lower, other.lower), "upper": min(found.upper, other.upper)}
                found = NumericColumn.model_validate(dict(found) | ends)
            elif isinstance(found, CategoricalColumn) and isinstance(other, CategoricalColumn):
                levels = tuple(level for level in found.levels if level in other.levels)
                found = CategoricalColumn.model_validate(dict(found) | {"levels": levels})
            else:
                return None
    except ValidationError:
        return None
    return found


def common_columns(declared: Iterable[Column]) -> dict[str, Column]:
    """Return, by name, a column within what every owner declares of it, wherever there is one."""
    stated: dict[str, list[Column]] = {}
    for column in declared:
        stated.setdefault(column.name, []).append(column)
    found = {name: common_column(columns) for name, columns in stated.items()}
    return {name: column for name, column in found.items() if column is not None}


def _column_differences(stated: Sequence[_Stated]) -> Iterator[str]:
    first, column, unit = stated[0]
    for who, other, other_unit in stated[1:]:
        if other.name != column.name:
            yield f"{who} calls it {other.name}, {first} {column.name}"
        if isinstance(column, NumericColumn) and isinstance(other, NumericColumn):
            if (unit or "").split() != (other_unit or "").split():
                stated_units = other_unit or "no stated unit", unit or "no stated unit"
                yield f"in {stated_units[0]} at {who}, in {stated_units[1]} at {first}"
            if other.lower > column.upper or other.upper < column.lower:
                yield f"the bounds of {who} and {first} have no value in common"
        elif isinstance(column, CategoricalColumn) and isinstance(other, CategoricalColumn):
            lacking = [level for level in column.levels if level not in other.levels]
            more = [level for level in other.levels if level not in column.levels]
            if lacking or more:
                yield f"{who} has the levels {_list(more)} that {first} has not, {first} {_list(lacking)}"
        else:
            yield f"{other.kind} at {who}, {column.kind} at {first}"


def _list(levels: Sequence[str]) -> str:
    return ", ".join(levels) or "none"
