"""Studies that another procedure's plan answers: of a question that is one of joint independence."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tacit_protocol.domain import Table
from tacit_protocol.messages.study import Release, Study
from tacit_protocol.privacy.noise import NoiseSource
from tacit_protocol.procedures.base import Procedure, planned
from tacit_protocol.procedures.plan import Fields, Panel, Plan, Progress, Releases
from tacit_protocol.verdicts.base import BaseVerdict
from tacit_protocol.verdicts.presentation import Null


class HandedOn(Plan):
    """A study that is answered as ``asked``, a study of ``procedure``, is; what it means is its own."""

    def __init__(self, study: Study, procedure: Procedure, asked: Study) -> None:
        procedure.check(asked)
        self.study, self.procedure, self.asked = study, procedure, asked
        self.answering = planned(procedure, asked)
        self.guarantee, self.release_size = self.answering.guarantee, self.answering.release_size

    @property
    def verdict_type(self) -> type[BaseVerdict] | None:
        """The type of the other study's verdict."""
        return self.procedure.verdict_type(self.asked)

    @property
    def released(self) -> str | None:
        """What the other study's sender releases."""
        return self.procedure.what_is_released(self.asked)

    def check_units(self, units: Mapping[str, int]) -> None:
        """Raise PublicRuleError where the other study cannot be run with these numbers of units."""
        self.answering.check_units(units)

    def warnings(self, units: Mapping[str, int]) -> tuple[str, ...]:
        """Warn as of the other study."""
        return self.answering.warnings(units)

    def summarise(self, table: Table, order: np.random.Generator | None = None) -> Any:
        """Compute what the other study asks for."""
        return self.answering.summarise(table, order)

    def privatise(self, summary: Any, noise: NoiseSource) -> Release:
        """Add the other study's noise."""
        return self.answering.privatise(summary, noise)

    def check_release(self, release: Release) -> None:
        """Raise ReleaseError where it is no release of the other study."""
        self.answering.check_release(release)

    def conclude(
        self, releases: Releases, units: Mapping[str, int], progress: Progress | None = None
    ) -> BaseVerdict:
        """Conclude as the other study does."""
        return self.answering.conclude(releases, units, progress)

    def null(self, verdict: Fields, releases: Releases) -> Null | None:
        """Return the other study's null distribution."""
        return self.answering.null(verdict, releases)

    def panels(self, verdict: Fields, releases: Releases) -> Sequence[Panel]:
        """Return what is drawn of the other study."""
        return self.answering.panels(verdict, releases)
