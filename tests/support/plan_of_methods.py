"""Small procedures of tests, written as methods that take the study: their plan hands each of them on."""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tacit_protocol.domain import Table
from tacit_protocol.messages.study import Owner, Release, Study
from tacit_protocol.privacy.noise import NoiseSource
from tacit_protocol.procedures.base import Procedure, check_release
from tacit_protocol.procedures.plan import Combined, Fields, Panel, Plan, Progress, Releases
from tacit_protocol.verdicts.base import BaseVerdict
from tacit_protocol.verdicts.presentation import Citation, Meaning, Null


class ProcedureOfMethods(Procedure):
    """A procedure of a test, whose plan asks its methods."""

    def plan(self, study: Study) -> Plan:
        return PlanOfMethods(self, study)

    def check(self, study: Study) -> None:
        """Raise StudyError where the study does not suit it."""


class PlanOfMethods(Plan):
    """The plan of a procedure whose methods take the study."""

    def __init__(self, procedure: Any, study: Study) -> None:
        self.study, self.procedure = study, procedure

    def _own(self, name: str) -> bool:
        """Whether the procedure has a method of its own of that name."""
        found = getattr(type(self.procedure), name, None)
        return found is not None and found is not getattr(Procedure, name, None)

    guarantee = property(lambda self: self.procedure.cost(self.study))
    release_size = property(lambda self: self.procedure.release_size(self.study))
    relay = property(lambda self: self.procedure.relay(self.study) if self._own("relay") else None)
    rereads = property(lambda self: self._own("reread"))

    @property
    def verdict_type(self) -> type[BaseVerdict] | None:
        return self.procedure.verdict_type(self.study) if self._own("verdict_type") else None

    def check_units(self, units: Mapping[str, int]) -> None:
        if self._own("check_units"):
            self.procedure.check_units(self.study, units)

    def warnings(self, units: Mapping[str, int]) -> tuple[str, ...]:
        return tuple(self.procedure.warnings(self.study, units))

    def summarise(self, table: Table, order: np.random.Generator | None = None) -> Any:
        if "order" in inspect.signature(self.procedure.summarise).parameters and order is not None:
            return self.procedure.summarise(self.study, table, order=order)
        return self.procedure.summarise(self.study, table)

    def adapt(self, summary: Any, noise: NoiseSource) -> Any:
        if self._own("adapt"):
            return self.procedure.adapt(self.study, summary, noise)
        return summary

    def privatise(self, summary: Any, noise: NoiseSource) -> Release:
        found: Release = self.procedure.privatise(self.study, summary, noise)
        return found

    def check_release(self, release: Release) -> None:
        self.procedure.check_release(self.study, release)

    def check_received(self, name: str, release: Release) -> None:
        if self._own("check_received_of"):
            self.procedure.check_received_of(self.study, name, release)
        else:
            self.procedure.check_received(self.study, release)

    def combine(self, received: Releases, table: Table) -> Combined:
        found: Combined
        if self._own("combine_all"):
            found = self.procedure.combine_all(self.study, received, table)
        else:
            (release,) = received.values()
            found = self.procedure.combine(self.study, release, table)
        return found

    def reread(self, owner: Owner, source: Study, release: Release) -> Release:
        found: Release = self.procedure.reread(self.study, owner, source, release)
        return found

    def check_reread(self, release: Release) -> None:
        if self._own("check_reread"):
            self.procedure.check_reread(self.study, release)
        else:
            check_release(self.procedure, self.study, release)

    def check_borrower(self, study: Study) -> None:
        self.procedure.check_borrower(study, self.study)

    def conclude(
        self, releases: Releases, units: Mapping[str, int], progress: Progress | None = None
    ) -> BaseVerdict:
        found: BaseVerdict
        if self.relay is None:
            found = self.procedure.assemble(self.study, releases, progress)
        else:
            found = self.procedure.conclude(self.study, units, releases, progress)
        return found

    def describe_request(self) -> tuple[str, ...]:
        return tuple(self.procedure.describe_request(self.study)) if self._own("describe_request") else ()

    def record_of(self, name: str) -> str:
        return str(self.procedure.record_of(self.study, name)) if self._own("record_of") else ""

    @property
    def released(self) -> str | None:
        return str(self.procedure.what_is_released(self.study)) if self._own("what_is_released") else None

    @property
    def cited(self) -> tuple[Citation, ...] | None:
        return tuple(self.procedure.works(self.study)) if self._own("works") else None

    def meaning(self, verdict: Fields) -> Meaning:
        own = self._own("meaning")
        return self.procedure.meaning(self.study, verdict) if own else super().meaning(verdict)

    def null(self, verdict: Fields, releases: Releases) -> Null | None:
        return self.procedure.null(self.study, verdict, releases) if self._own("null") else None

    def panels(self, verdict: Fields, releases: Releases) -> Sequence[Panel]:
        return tuple(self.procedure.panels(self.study, verdict, releases)) if self._own("panels") else ()
