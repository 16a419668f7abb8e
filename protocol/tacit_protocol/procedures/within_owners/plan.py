"""What plans of questions within owners share: sums that each owner releases, or masked covariances."""

from collections.abc import Mapping
from functools import partial
from math import sqrt
from typing import Any, ClassVar

import numpy as np
from scipy.special import ndtri

from tacit_protocol.domain import Table
from tacit_protocol.messages.study import Owner, Release, Study
from tacit_protocol.privacy.accounting import Family
from tacit_protocol.privacy.gaussian_mechanism import SumPart, noise_scales
from tacit_protocol.privacy.guarantee import NoisyVector
from tacit_protocol.procedures.base import Procedure, require_noise, require_shared_columns
from tacit_protocol.procedures.masking import (
    MaskedParameters,
    SharedNoise,
    is_masked,
    shared_noise_in,
    total_of,
)
from tacit_protocol.procedures.plan import Plan, SumPlan
from tacit_protocol.procedures.within_owners.covariances import (
    COVARIANCES,
    ONE_ROW,
    PAIR_SHARES,
    SPREADS,
    VARIANCES,
    PairSums,
    ReadPairs,
    WithinPairs,
)
from tacit_protocol.procedures.within_owners.verdict import WITHIN_ALONE
from tacit_protocol.strict import ReleaseError, StudyError

ADVICE = "ask for more units, a larger epsilon, or fewer columns"


class SeparateSums(SumPlan):
    """Sums of which every owner's are read by themselves, also those of an earlier study of the same kind."""

    rereads: ClassVar[bool] = True
    kind: ClassVar[str] = "gaussian"
    """The kind of noise."""

    parameters: MaskedParameters

    def masked(self, shared: SharedNoise) -> "MaskedCovariances":
        """Return the plan of the same question with masks; raises StudyError where there is none."""
        raise NotImplementedError

    def gives_way(self, pure: Any, units: int) -> bool:
        """Whether the plan ``pure``, in Laplace noise, suits so many units an owner better."""
        raise NotImplementedError

    def check_work(self) -> None:
        """Raise StudyError where a verdict would take too long."""

    def reread(self, owner: Owner, source: Study, release: Release) -> Release:  # noqa: ARG002
        """Return a release as it is, where it was made for the same columns and budget."""
        name = self.study.procedure
        if source.procedure != name:
            raise StudyError(f"{name} reads releases of {name}, no others")
        if source.domain != self.study.domain:
            raise StudyError("the reused release was made for other columns, bounds or levels")
        if source.budget != self.study.budget:
            raise StudyError(
                "the reused release was made with another budget; use the same epsilon and delta"
            )
        return release

    def reason(self) -> str:
        """Say why noise is Laplace's."""
        return "there is no delta" if self.study.budget.delta_pico == 0 else "few numbers carry less noise so"


class MaskedCovariances(SumPlan):
    """Pairs of which every owner takes covariances within itself, and masks them: the sum of all is read."""

    masked_numbers: ClassVar[str] = "covariances within owners"

    shared: SharedNoise
    pairs: WithinPairs

    def __init__(self, study: Study, shared: SharedNoise, pairs: WithinPairs) -> None:
        self.study, self.shared, self.pairs, self.guarantee = study, shared, pairs, shared.own

    def parts(self, units: int, sums: PairSums | None = None) -> tuple[SumPart, ...]:  # noqa: ARG002
        """Lay a release out: covariances, variances, spreads."""
        return self.pairs.parts(sums)

    def summarise(self, table: Table, order: np.random.Generator | None = None) -> PairSums:  # noqa: ARG002
        """Sum products of the units' numbers, exactly."""
        return self.pairs.sum(table)

    def check_release(self, release: Release) -> None:
        """Raise ReleaseError where an owner's release has not the shape and the noise of the study's."""
        if release.decision is not None or release.choice is not None:
            raise ReleaseError("the release has not the vectors that the study asks for")
        super().check_release(release)

    @property
    def noises(self) -> tuple[float, float, float]:
        """The standard deviations of the noise on the sums: covariances, variances, spreads."""
        drawn = sqrt(len(self.shared.masking.names))
        scales = noise_scales(self.pairs.parts(), self.guarantee)
        return drawn * scales[COVARIANCES], drawn * scales[VARIANCES], drawn * scales[SPREADS]

    def read(self, releases: Mapping[str, Release]) -> ReadPairs:
        """Return all owners' sums. Raises ReleaseError where a release is missing, or has another layout."""
        return self.read_total(total_of(self.shared.masking, releases).vectors)

    def read_total(self, vectors: Mapping[str, NoisyVector]) -> ReadPairs:
        """Return all owners' sums, of vectors that have them and the noise of all."""
        covariances, variances, spreads = (vectors[name].mean(1) for name in PAIR_SHARES)
        pairs = self.pairs
        return ReadPairs(
            pairs.weights, covariances, variances, spreads, *self.noises, spread_of=pairs.spread_of
        )

    def is_hidden(self, most: float, units: Mapping[str, int]) -> bool:
        """Whether noise hides a covariance of ``most`` times what one unit can add to it, of all owners."""
        if len(units) < len(self.study.owners):
            return False
        least = float((self.noises[0] / self.pairs.weights / self.pairs.y_ranges).min())
        return most < -float(ndtri(self.study.level / 2)) * least

    @property
    def caveats(self) -> tuple[str, ...]:
        """What a verdict says of what masks hide."""
        return self.shared.caveats(self.masked_numbers, WITHIN_ALONE)


class WithinOwners(Procedure):
    """A question about units within owners, of sums that owners release, or of covariances that they mask."""

    families: ClassVar[frozenset[Family]] = frozenset(("gaussian", "pure"))
    divided_for: ClassVar[frozenset[Family] | None] = frozenset(("gaussian",))
    choices: ClassVar[tuple[Mapping[str, Any], ...]] = ({}, {"noise": "laplace"})

    @staticmethod
    def separate(study: Study) -> SeparateSums:
        """Return the plan of sums that are read by themselves.

        Raises:
            StudyError: parameters, columns or budget do not suit it.
        """
        raise NotImplementedError

    def defaults(self, study: Study, units: Mapping[str, int] | None = None) -> Mapping[str, Any]:
        """Return the noise that suits numbers of units; without them, Laplace's where there is no delta.

        From public numbers alone: units, budget, columns and their kinds.
        """
        if "noise" in study.parameters or is_masked(study):
            return {}
        laplace = {"noise": "laplace"}
        if study.budget.delta_pico == 0:
            return laplace
        if units is None:
            return {}
        gaussian, pure = (
            self.separate(study.model_copy(update={"parameters": {**study.parameters, "noise": noise}}))
            for noise in ("gaussian", "laplace")
        )
        return laplace if gaussian.gives_way(pure, min(units.values())) else {}

    def plan(self, study: Study) -> Plan:
        """Return the plan in the study's noise, or with masks."""
        require_shared_columns(study)
        if study.curator is not None:
            raise StudyError("owners send their own releases here; leave the curator out")
        separate = self.separate(study)
        shared = shared_noise_in(study, separate.parameters, separate.kind, lambda: separate.guarantee)
        if shared is None:
            separate.check_work()
            require_noise(partial(separate.require_drawable, 1))
            return separate
        if study.averages_rows:
            raise StudyError(ONE_ROW)
        masked = separate.masked(shared)
        masked.require_drawable(1)
        return masked
