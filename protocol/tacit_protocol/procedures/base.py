"""What a procedure is: the only place where messages, privacy and statistics meet."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Protocol

from pydantic import BaseModel

from tacit_protocol.domain.table import Table
from tacit_protocol.messages.release import Release
from tacit_protocol.messages.study import Study
from tacit_protocol.privacy.guarantee import Guarantee
from tacit_protocol.privacy.noise import NoiseSource

Progress = Callable[[float, str], None]
"""Called with the part done in [0, 1] and what is being done."""


class StudyError(ValueError):
    """The study cannot be run as written. The message says what to change and quotes no data."""


class ReleaseError(ValueError):
    """A release does not fit its study. The message says which rule it breaks and quotes no value."""


class Procedure(Protocol):
    """A named method: what an owner computes, what it costs, what the tester computes."""

    name: ClassVar[str]
    title: ClassVar[str]
    Parameters: ClassVar[type[BaseModel]]
    Verdict: ClassVar[type[BaseModel]]

    def check(self, study: Study) -> None:
        """Raise StudyError where the study's parameters, domain or owners do not suit the procedure."""

    def cost(self, study: Study) -> Guarantee:
        """What one owner spends, from the study alone, before any data is touched."""

    def numbers_released(self, study: Study) -> int:
        """How many noisy numbers one owner sends."""

    def warnings(self, study: Study, units: Mapping[str, int]) -> tuple[str, ...]:
        """Say, before anything is spent, what makes the test hopeless at these numbers of units."""

    def summarise(self, study: Study, table: Table) -> Any:
        """Exact numbers with their sensitivities. They never leave the owner."""

    def privatise(self, study: Study, summary: Any, noise: NoiseSource) -> Release:
        """Add noise to the summary as ``cost`` states."""

    def check_release(self, study: Study, release: Release) -> None:
        """Raise ReleaseError where the release has not the shape and the noise that the study fixes."""

    def assemble(
        self, study: Study, releases: Mapping[str, Release], progress: Progress | None = None
    ) -> BaseModel:
        """Compute the verdict from the releases by owner: post-processing alone, the same for everyone."""
