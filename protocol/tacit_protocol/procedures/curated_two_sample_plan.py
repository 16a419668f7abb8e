"""What a study of ``curated_two_sample`` fixes before any data: samples, form, release, guarantee."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, cast

import numpy as np
import numpy.typing as npt
from pydantic import Field

from tacit_protocol.domain.table import PooledTable
from tacit_protocol.features.curated_release import CuratedSums
from tacit_protocol.features.sums import FeatureSums
from tacit_protocol.messages.study import PartyName, Study
from tacit_protocol.privacy.events import GaussianEvent
from tacit_protocol.privacy.gaussian_sums import (
    SensitivityError,
    SumPart,
    gaussian_guarantee,
    halved_guarantee,
    noise_scales,
)
from tacit_protocol.privacy.guarantee import Guarantee
from tacit_protocol.privacy.permutation_test import decision_guarantee, decision_xi, rank_max
from tacit_protocol.privacy.vector import COORDINATES_MAX
from tacit_protocol.procedures.base import ReleaseError, StudyError, parse_parameters
from tacit_protocol.statistics.curated_choice import (
    ChoiceError,
    CuratedChoice,
    Form,
    Permuted,
    Vectors,
    form_of,
    permuted_of,
    vectors_of,
)
from tacit_protocol.statistics.curated_power import decision_hopes, vectors_hope
from tacit_protocol.statistics.private_statistic import ExactStatistic

LOCATIONS_STREAM, NULL_STREAM = 1, 2
"""Spawn keys under the study's seed: one for public choices, one for simulated null distributions."""

SampleOwners = Annotated[tuple[PartyName, ...], Field(min_length=1)]


class CuratedTwoSampleParameters(CuratedChoice):
    """What a study of this procedure may choose; every choice is public."""

    samples: Annotated[tuple[SampleOwners, ...], Field(min_length=2, max_length=2)] | None = Field(
        None,
        description="The two lists of owners' names that are compared; by default two owners, one in each.",
    )


Exact = CuratedSums | FeatureSums | ExactStatistic | npt.NDArray[np.float64]
"""The exact numbers of a release, by its form: of a permutation test its statistics."""


@dataclass(frozen=True)
class Plan:
    """What a study fixes before any data."""

    parameters: CuratedTwoSampleParameters
    samples: tuple[tuple[str, ...], tuple[str, ...]]
    form: Form
    release: Vectors | Permuted
    guarantee: Guarantee

    def units(self, by_owner: Mapping[str, int]) -> tuple[int, int]:
        """Return the samples' numbers of units."""
        first, second = (sum(by_owner[name] for name in names) for names in self.samples)
        return first, second

    def tables(self, table: PooledTable) -> tuple[PooledTable, PooledTable]:
        """Return the two samples."""
        first, second = (
            PooledTable(table.domain, {name: table.parts[name] for name in names}) for names in self.samples
        )
        return first, second

    def layout(self, units: tuple[int, int], exact: Exact | None = None) -> tuple[SumPart, ...]:
        """Lay the release out; without ``exact`` the values are zeros. Raises ReleaseError."""
        if isinstance(self.release, Permuted):
            raise TypeError("a decision has no layout")
        try:
            # summarise and privatise read one study, so that the exact numbers are of the release's type.
            return self.release.parts(units, cast(Any, exact))
        except ValueError as error:
            raise ReleaseError(str(error)) from None

    @property
    def caveats(self) -> tuple[str, ...]:
        """What limits a verdict of this form, in words."""
        if self.form == "ridge":
            return ("one noisy statistic is a weak release by nature: mean-covariance sees much more",)
        if self.form != "paired":
            return ()
        return (
            "this null distribution treats the noisy covariance as exact: "
            "its level is not kept under privacy",
        )

    def hopes(self, study: Study, units: tuple[int, int]) -> bool:
        """Say whether a great difference could be seen at these numbers of units."""
        if isinstance(self.release, Permuted):
            return decision_hopes(self.release, units, decision_xi(study.budget), study.level)
        try:
            scales = noise_scales(self.layout(units), self.guarantee)
        except ReleaseError:
            # Samples of two sizes, planned to be paired: the curator refuses them, whatever could be seen.
            return True
        return vectors_hope(self.release, units, next(iter(scales.values())), study.level)


def plan_of(study: Study) -> Plan:
    """Read a study; raises StudyError where it cannot be run as written."""
    parameters = parse_parameters(CuratedTwoSampleParameters, study)
    samples = _samples(study, parameters)
    seed = np.random.SeedSequence(int(study.seed, 16), spawn_key=(LOCATIONS_STREAM,))
    rng = np.random.default_rng(seed)
    try:
        form = form_of(parameters)
        if form == "permutation":
            if rank_max(study.level, parameters.permutations + 1) < 1:
                raise StudyError("the level is below 1 / (permutations + 1): ask for more permutations")
            permuted = permuted_of(study.domain, parameters, rng)
            return Plan(parameters, samples, form, permuted, decision_guarantee(study.budget))
        guarantee = (halved_guarantee if form == "paired" else gaussian_guarantee)(study.budget)
        release = vectors_of(study.domain, parameters, form, _mu(guarantee), rng)
    except (ChoiceError, SensitivityError) as error:
        raise StudyError(str(error)) from None
    if release.numbers > COORDINATES_MAX:
        raise StudyError("the study asks for too many numbers; use fewer columns, levels or features")
    return Plan(parameters, samples, form, release, guarantee)


def _samples(study: Study, parameters: CuratedTwoSampleParameters) -> tuple[tuple[str, ...], tuple[str, ...]]:
    names = [owner.name for owner in study.owners]
    if parameters.samples is None:
        if len(names) != 2:
            raise StudyError("with more or fewer than two owners, share them out: samples = [[...], [...]]")
        return (names[0],), (names[1],)
    first, second = parameters.samples
    if sorted((*first, *second)) != sorted(names):
        raise StudyError("parameter samples: every owner of the study must be in exactly one sample")
    return first, second


def _mu(guarantee: Guarantee) -> float:
    event = guarantee.events[0]
    if not isinstance(event, GaussianEvent):
        raise TypeError("the guarantee is not that of a Gaussian release")
    return 1 / event.noise_multiplier
