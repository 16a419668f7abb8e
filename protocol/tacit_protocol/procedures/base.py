"""What a procedure is: the only place where messages, privacy and statistics meet."""

import json
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Protocol, TypeVar

from pydantic import BaseModel, ValidationError

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
        """Return what one owner spends, from the study alone, before any data is touched."""

    def numbers_released(self, study: Study) -> int:
        """Return how many noisy numbers one sender sends; a decision counts as one."""

    def warnings(self, study: Study, units: Mapping[str, int]) -> tuple[str, ...]:
        """Say, before anything is spent, what makes the test hopeless at these numbers of units."""

    def summarise(self, study: Study, table: Table) -> Any:
        """Compute exact numbers with their sensitivities. They never leave the owner.

        At a curator ``table`` is a :class:`~tacit_protocol.domain.table.PooledTable` of the owners' tables.
        """

    def privatise(self, study: Study, summary: Any, noise: NoiseSource) -> Release:
        """Add noise to the summary as ``cost`` states."""

    def check_release(self, study: Study, release: Release) -> None:
        """Raise ReleaseError where the release has not the shape and the noise that the study fixes."""

    def assemble(
        self, study: Study, releases: Mapping[str, Release], progress: Progress | None = None
    ) -> BaseModel:
        """Compute the verdict from the releases by sender: post-processing alone, the same for everyone."""


def check_release(procedure: Procedure, study: Study, release: Release) -> None:
    """Check a release of a study as its sender, the tester and every verifier do.

    Raises:
        ReleaseError: it does not count the units of exactly the owners whose part its sender plays, or breaks
            a rule of the procedure.
    """
    played = set() if study.curator is None else {owner.name for owner in study.owners}
    if set(release.units_by_owner) != played:
        raise ReleaseError("a curator's release counts each owner's units, and no other release does")
    procedure.check_release(study, release)


ParametersT = TypeVar("ParametersT", bound=BaseModel)


def parse_parameters(model: type[ParametersT], study: Study) -> ParametersT:
    """Read a study's parameters with the procedure's own strict model.

    Raises:
        StudyError: a parameter is unknown, of the wrong type or out of range; says which, and the rule.
    """
    try:
        return model.model_validate_json(json.dumps(study.parameters, allow_nan=False))
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False, include_context=False)[0]
        if first["type"] == "extra_forbidden":
            raise StudyError(f"unknown parameter; known: {', '.join(sorted(model.model_fields))}") from None
        place = ".".join(str(part) for part in first["loc"])
        raise StudyError(f"parameter {place}: {first['msg']}") from None
    except (TypeError, ValueError):
        raise StudyError("parameters must be finite JSON values") from None
