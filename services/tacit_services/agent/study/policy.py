"""The owner's policy: which studies may be answered, and whether a steward has to say yes.

Everything that is not allowed is refused: a data set or a column that the policy does not name is out of
reach.
"""

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol, Self

from pydantic import Field, ValidationError, model_validator

from tacit_protocol.domain import Column, Domain, Sha256, VectorColumn, lies_within
from tacit_protocol.messages.catalogue import ANY
from tacit_protocol.messages.faults import faults_of, nearest, written
from tacit_protocol.messages.study import (
    RESPOND_AFTER_S,
    DataSetName,
    DataUse,
    NamedKey,
    Owner,
    PublicKeyHex,
    PurposeField,
    RespondAfter,
    Study,
)
from tacit_protocol.privacy.accounting import FAMILIES, Family
from tacit_protocol.privacy.guarantee import EPSILON_MAX, Budget
from tacit_protocol.procedures.base import Procedure
from tacit_protocol.procedures.discovery import method_of
from tacit_protocol.strict import StrictModel
from tacit_services.shared.settings import SettingsError, parse_toml, read_toml

APPROVALS_MAX = 2

UNITS_MIN = 20
"""Smallest number of privacy units unless the policy says otherwise: with fewer, noise leaves nothing."""


class PolicyRefusedError(Exception):
    """The policy does not allow the study. The text is for the owner; it quotes nothing that was sent."""


class DeclaredDataSet(Protocol):
    """What a policy looks at of a data set: its name, its privacy unit and its declared domain."""

    @property
    def name(self) -> str:
        """Its name, as studies and policies give it."""

    @property
    def unit_column(self) -> str | None:
        """The column whose value names the privacy unit; None where every row is one."""

    @property
    def columns(self) -> tuple[Column, ...]:
        """Columns whose bounds or levels a study must stay within."""

    @property
    def vectors(self) -> tuple[VectorColumn, ...]:
        """Columns of vectors, of whose length and within whose norm a study must stay."""


class Rules(StrictModel):
    """What an owner's policy says of every data set."""

    approval: Literal["automatic", "by-hand"] = "by-hand"
    approvals: Annotated[int, Field(ge=1, le=APPROVALS_MAX)] = 1
    """How many people have to approve a study that waits; the second must be another than the first."""
    approve_hopeless: bool = False
    """Whether automatic approval also spends on a study whose procedure calls it hopeless."""
    epsilon_per_study_max: Annotated[float, Field(gt=0, le=EPSILON_MAX)]
    delta_per_study_max: Annotated[float, Field(ge=0, lt=1)]
    units_min: Annotated[int, Field(ge=1)] = UNITS_MIN
    respond_after_s_min: RespondAfter = RESPOND_AFTER_S
    procedures: tuple[str, ...] = (ANY,)
    analysts: tuple[PublicKeyHex | Literal["*"] | NamedKey, ...]
    required_fields: tuple[PurposeField, ...] = ()
    """What a study must say of its purpose."""
    data_uses: tuple[DataUse, ...] | None = None
    """Codes of the Data Use Ontology of which a study must state one; None asks for none."""

    @model_validator(mode="after")
    def _somebody_approves(self) -> Self:
        if self.approvals > 1 and self.approval == "automatic":
            raise ValueError('approvals = 2 needs approval = "by-hand": nobody is asked otherwise')
        return self

    def columns_of(self, data_set: str) -> tuple[str, ...] | None:
        """Return the columns of a data set that may be used; None where the policy does not name it."""
        raise NotImplementedError

    def runs(self, encoder: str) -> bool:  # noqa: ARG002 (an agent's policy says more)
        """Whether a public file of that SHA-256 may be run on the data; never at a curator."""
        return False

    @property
    def holds_releases(self) -> bool:
        """Whether a steward looks at each release before it is sent; never at a curator."""
        return False

    def families(self, procedures: Mapping[str, Procedure]) -> frozenset[Family]:
        """Return the kinds of mechanism events that allowed studies may cost; all where none is known.

        Where no study may spend delta, all that can run is pure.
        """
        found = frozenset(
            family
            for name, one in procedures.items()
            for method, families in ((None, one.divided_for or one.families), *one.methods.items())
            if self.allows(name, one.origin, method)
            for family in families
        )
        if self.maximum.delta_pico == 0:
            return frozenset(("pure",))
        return found or FAMILIES

    def unknown_procedures(self, procedures: Collection[str]) -> list[str]:
        """Say of each procedure that is listed and not there, which one was meant."""
        named = {name.partition(":")[0] for name in self.procedures} - {ANY, *procedures}
        said = []
        for name in sorted(named):
            near = nearest(name, list(procedures))
            meant = f": did you mean {near}?" if near else ""
            said.append(f"the policy lists {name}, which is no procedure here{meant}")
        return said

    @property
    def maximum(self) -> Budget:
        """The most that one study may spend."""
        return Budget.of(self.epsilon_per_study_max, self.delta_per_study_max)

    def require_analyst(self, key: str) -> None:
        """Raise PolicyRefusedError where studies by this key are not answered."""
        if ANY not in self.analysts and not self._entries_of(key):
            raise PolicyRefusedError("the policy does not list this analyst's key")

    def require_analysts_name(self, key: str, name: str) -> None:
        """Raise PolicyRefusedError where the policy knows this key's analyst by another name."""
        names = {entry.rpartition(":")[0] for entry in self._entries_of(key) if ":" in entry}
        if names and name not in names:
            raise PolicyRefusedError("the study gives its analyst another name than the policy does")

    def _entries_of(self, key: str) -> list[str]:
        return [entry for entry in self.analysts if entry.rpartition(":")[2] == key]

    def require_budget(self, budget: Budget) -> None:
        """Raise PolicyRefusedError where a study would spend more than one study may."""
        if budget.epsilon_micro > self.maximum.epsilon_micro:
            raise PolicyRefusedError("the study spends more epsilon than the policy allows one study")
        if budget.delta_pico > self.maximum.delta_pico:
            raise PolicyRefusedError("the study spends more delta than the policy allows one study")

    def require_units(self, units: int) -> None:
        """Raise PolicyRefusedError where the data set has too few privacy units."""
        if units < self.units_min:
            raise PolicyRefusedError("the data set has fewer units than the policy asks for")

    def allows(self, procedure: str, origin: str | None, method: object = None) -> bool:
        """Whether a procedure may run: by its name, or by "*", which stands for built-in ones alone.

        One of its methods may by both names, as in ``distance_correlation:sketch``.
        """
        named = {procedure, f"{procedure}:{method}"} & set(self.procedures)
        return bool(named) or (ANY in self.procedures and origin is None)

    def require_study(self, study: Study, owner: Owner, data_set: DeclaredDataSet) -> None:
        """Raise PolicyRefusedError where procedure, purpose, columns, bounds or unit are not allowed."""
        if not self.allows(study.procedure, study.procedure_origin, method_of(study)):
            raise PolicyRefusedError("the policy does not list this procedure, or not with this method")
        if study.respond_after_s < self.respond_after_s_min:
            raise PolicyRefusedError("the study asks for answers sooner than the policy sends them")
        if any(getattr(study, name) is None for name in self.required_fields):
            raise PolicyRefusedError("the study does not say of its purpose what the policy requires")
        if self.data_uses is not None and study.data_use not in self.data_uses:
            raise PolicyRefusedError("the study's data use is not one that the policy lists")
        allowed = self.columns_of(data_set.name)
        if allowed is None:
            raise PolicyRefusedError("the policy does not name this data set")
        domain = study.domain_of(owner)
        if ANY not in allowed and not study.columns_read(owner) <= set(allowed):
            raise PolicyRefusedError("the study uses columns that the policy does not list")
        if study.unit_column != data_set.unit_column:
            raise PolicyRefusedError("the study's privacy unit is not the one configured for the data set")
        _require_declared_domain(domain, data_set)
        declared = {column.name: column for column in data_set.vectors}
        for encoder in study.encoders_of(owner):
            if not all(self.runs(digest) for digest, _ in encoder.files):
                raise PolicyRefusedError("the study names an encoder that the policy does not list")
            for column in encoder.inputs:
                if isinstance(column, VectorColumn) and not within(column, declared.get(column.name)):
                    raise PolicyRefusedError("a vector's length or norm is not within what is declared")


class DataSetRules(StrictModel):
    """What may be used of one data set."""

    columns: tuple[str, ...]


class Policy(Rules):
    """The policy file."""

    data_sets: dict[DataSetName, DataSetRules] = Field(default_factory=dict)
    look_before_sending: bool = False
    """Whether a release, once made and paid for, waits until a steward has looked at it."""
    encoders: tuple[Sha256, ...] = ()
    """Public files, models and projections, that studies may have run on columns that may be used."""
    catalogue: bool = False
    """Whether the tester may show everybody there what the data sets are and what this policy allows."""

    @classmethod
    def load(cls, path: Path) -> "Policy":
        """Read a policy file; raises SettingsError where it is missing or not valid."""
        values = read_toml(path)
        try:
            return cls._of(values)
        except SettingsError as error:
            raise SettingsError(f"policy {path}: {error}") from None

    @classmethod
    def parse(cls, text: str) -> "Policy":
        """Read the text of a policy file; raises SettingsError, which says where it is not valid."""
        try:
            values = parse_toml(text)
        except SettingsError as error:
            raise SettingsError(f"it {error}") from None
        return cls._of(values)

    @classmethod
    def _of(cls, values: dict[str, Any]) -> "Policy":
        try:
            # JSON knows lists where strict models want tuples.
            return cls.model_validate_json(json.dumps(values, default=str))
        except ValidationError as error:
            fault = faults_of(cls, error)[0]
            where = f"{written(fault.place)}: " if fault.place else ""
            raise SettingsError(f"{where}{fault.words}") from None
        except (RecursionError, ValueError):
            raise SettingsError(
                "a whole number has thousands of digits, or lists or tables are too deep within each other"
            ) from None

    @property
    def holds_releases(self) -> bool:
        """What the file says."""
        return self.look_before_sending

    def runs(self, encoder: str) -> bool:
        """Look in the file's list."""
        return encoder in self.encoders

    def columns_of(self, data_set: str) -> tuple[str, ...] | None:
        """Return the columns of a data set that may be used; None where the file does not name it."""
        allowed = self.data_sets.get(data_set)
        return None if allowed is None else allowed.columns


def within(asked: VectorColumn, declared: VectorColumn | None) -> bool:
    """Say whether a column of vectors is as it was declared, with that norm or less; of None anything is."""
    return declared is None or (asked.length == declared.length and asked.norm <= declared.norm)


def _require_declared_domain(domain: Domain, data_set: DeclaredDataSet) -> None:
    declared = {column.name: column for column in data_set.columns}
    for column in domain.columns:
        if column.name in declared and not lies_within(column, declared[column.name]):
            raise PolicyRefusedError("a column's bounds or levels are outside its declared domain")
