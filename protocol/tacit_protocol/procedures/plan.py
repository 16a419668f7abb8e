"""The plan of a study: one mechanism, and all that depends on it.

``Procedure.plan`` chooses the plan of a study, and nothing asks again which it is. A plan rests on the study
alone: owners, tester and every verifier each work it out for themselves.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, ClassVar, Literal

import numpy as np

from tacit_protocol.domain import Table
from tacit_protocol.messages.study import Owner, PublicRule, Release, Study
from tacit_protocol.privacy.gaussian_mechanism import (
    LayoutError,
    SumPart,
    check_layout,
    release_sums,
    require_drawable,
)
from tacit_protocol.privacy.guarantee import GaussianEvent, Guarantee, NoisyVector
from tacit_protocol.privacy.laplace_mechanism import (
    check_laplace_sums,
    of_event,
    release_laplace_sums,
    require_laplace,
)
from tacit_protocol.privacy.noise import NoiseSource
from tacit_protocol.procedures.masking import MASKED_BITS, Masking, SharedNoise, units_max
from tacit_protocol.strict import ReleaseError, StudyError
from tacit_protocol.verdicts.base import BaseVerdict
from tacit_protocol.verdicts.presentation import (
    BarsPanel,
    Citation,
    CurvesPanel,
    HeatPanel,
    Meaning,
    Null,
    RowsPanel,
    plain_meaning,
)

Progress = Callable[[float, str], None]
"""Called with the part done in [0, 1] and what is being done."""

Fields = Mapping[str, Any]
"""A verdict as plain values: that of this version, or of another, which may lack some."""

Releases = Mapping[str, Release]
"""Releases by owner as a study reads them; empty where they are not at hand."""

Panel = RowsPanel | BarsPanel | CurvesPanel | HeatPanel

AnswerKind = Literal["release", "sealed release", "receipt"]


class PublicRuleError(StudyError):
    """The study cannot be run with so many units, whatever they hold: ``rule`` says why, and may be told.

    Raised from the study and numbers of units alone.
    """

    def __init__(self, rule: PublicRule, message: str) -> None:
        super().__init__(message)
        self.rule: PublicRule = rule


def require_noise(require: Callable[[], object]) -> None:
    """Raise PublicRuleError where ``require`` says that a study's noise cannot be drawn with so many units.

    It looks at shapes, grids and scales, which follow from the study and from numbers of units: whether a
    release can be made is known before a row is read.
    """
    try:
        require()
    except PublicRuleError:
        raise
    except ValueError as error:
        raise PublicRuleError("no-plan", str(error)) from None


@dataclass(frozen=True)
class Combined:
    """What a receiver makes of another's release and its own rows. It never leaves the receiver.

    ``finding`` is the result, as plain numbers for the receiver alone, None where it keeps nothing;
    ``summary`` is what the plan privatises where the receiver publishes, exact numbers with their
    sensitivity.
    """

    finding: BaseVerdict | None = None
    summary: Any = None


@dataclass(frozen=True)
class Relay:
    """Who sends to whom in a study, and whether the receiver releases something in its turn.

    Attributes:
        publishes: whether the receiver's answer is a release; otherwise it is a receipt.
        sealed: whether the sender's release is for the receiver alone. In the open it stands in the
            transcript, and the receiver's release names it.
        numbers: how many noisy numbers a receiver releases that publishes.
        sends: what the sender releases, in words for stewards; "" where it is noisy numbers.
        costs: what each owner spends, by name, where the rounds cost differently; otherwise the plan's
            guarantee.
        more: further owners who send in round one, beside ``sender``; they send in the open.
    """

    sender: Owner
    receiver: Owner
    publishes: bool
    sealed: bool = True
    numbers: int = 1
    sends: str = ""
    costs: Mapping[str, Guarantee] = field(default_factory=dict)
    more: tuple[Owner, ...] = ()

    @property
    def senders(self) -> tuple[Owner, ...]:
        """All who send in round one: one, or several, all in the open."""
        return self.sender, *self.more

    def is_sender(self, name: str) -> bool:
        """Whether the owner of that name sends in round one."""
        return name in {owner.name for owner in self.senders}

    def kind_of(self, name: str) -> AnswerKind:
        """Return what the owner of that name answers with."""
        if self.is_sender(name):
            return "sealed release" if self.sealed else "release"
        return "release" if self.publishes else "receipt"

    @property
    def accepted_first(self) -> bool:
        """Whether the sender spends once the receiver has accepted, who then has its own cost reserved.

        Not where the receiver spends nothing, nor where the sender has released before.
        """
        return self.publishes and self.sender.reuses is None

    def spends(self, name: str) -> bool:
        """Whether the owner of that name spends the study's budget: whoever releases something."""
        return self.kind_of(name) != "receipt"


class Plan:
    """One study's mechanism: what an owner computes and releases, what it costs, what a tester concludes.

    A subclass is one mechanism. It is made by ``Procedure.plan``, which raises StudyError where the study
    cannot be run as written.

    Attributes:
        study: the study.
        guarantee: what one owner spends; of those who mask, one owner's own, which holds whoever colludes.
        release_size: how many noisy numbers one sender sends; a decision counts as one.
        shared: the noise that owners who mask share; None where every owner's release is read by itself.
        relay: who sends to whom in two rounds; None where every owner releases to the tester.
        candidates: how many candidates a release chooses from; 0 where it chooses none.
        rereads: whether it can read a release that was made for an earlier study.
        masked_numbers: what is masked, in the plural: "tables".
        lends_to: the procedures whose studies may read its releases as they are.
    """

    study: Study
    guarantee: Guarantee
    release_size: int
    shared: SharedNoise | None = None
    relay: Relay | None = None
    candidates: int = 0
    rereads: ClassVar[bool] = False
    masked_numbers: ClassVar[str] = "sums"
    lends_to: ClassVar[frozenset[str]] = frozenset()

    @property
    def masking(self) -> Masking | None:
        """Who masks; None where every owner's release is read by itself."""
        return None if self.shared is None else self.shared.masking

    @property
    def verdict_type(self) -> type[BaseVerdict] | None:
        """The type of the study's verdict where it is not the procedure's own."""
        return None

    # At an owner.

    def check_units(self, units: Mapping[str, int]) -> None:
        """Raise PublicRuleError where the study cannot be run with these numbers of units, by owner.

        It is handed no data: what it raises is told to everyone. Owners may be missing from ``units``.
        """
        masking = self.masking
        most = None if masking is None else units_max(len(masking.names), MASKED_BITS)
        if most is not None and max(units.values(), default=0) > most:
            raise PublicRuleError("too-many-units", "so many units do not add up below 2^64 steps")

    def warnings(self, units: Mapping[str, int]) -> tuple[str, ...]:  # noqa: ARG002
        """Say, before anything is spent, what makes the test hopeless at these numbers of units."""
        return ()

    def summarise(self, table: Table, order: np.random.Generator | None = None) -> Any:
        """Compute exact numbers with their sensitivities. They never leave the owner.

        At a curator ``table`` is a :class:`~tacit_protocol.domain.PooledTable` of the owners' tables.
        ``order`` fixes what is else drawn in secret, the order of units: for simulated data alone.
        """
        raise NotImplementedError

    def adapt(self, summary: Any, noise: NoiseSource) -> Any:  # noqa: ARG002
        """Draw the noise that comes first, and compute what depends on it; returns the whole summary.

        It may read the table again, so that it is called where data are read; ``privatise`` does it itself
        where it was not called. Nothing of it may leave before the budget is spent.
        """
        return summary

    def privatise(self, summary: Any, noise: NoiseSource) -> Release:
        """Add noise to the summary as ``guarantee`` states."""
        raise NotImplementedError

    def check_release(self, release: Release) -> None:
        """Raise ReleaseError where the release has not the shape and the noise that the study fixes.

        In two rounds it is the receiver's.
        """
        raise NotImplementedError

    # Two rounds.

    def check_received(self, name: str, release: Release) -> None:
        """Raise ReleaseError where what the sender of that name released is not what the study fixes."""
        raise NotImplementedError

    def combine(self, received: Releases, table: Table) -> Combined:
        """Combine the senders' releases with the receiver's own rows, exactly."""
        raise NotImplementedError

    # Releases of earlier studies: post-processing, which costs its owner nothing and is the same for all.

    def reread(self, owner: Owner, source: Study, release: Release) -> Release:
        """Return an owner's release for ``source`` as the study expects it.

        What is returned is checked with ``check_reread``. ``source`` may be of another procedure; only its
        parties, privacy unit and alignment were looked at.

        Raises:
            StudyError: this release does not answer the study; says what to change.
        """
        raise NotImplementedError

    def check_reread(self, release: Release) -> None:
        """Raise ReleaseError where what was made of an earlier release cannot be read for the study."""
        self.check_release(release)

    def check_borrower(self, study: Study) -> None:
        """Raise StudyError unless a study of ``lends_to`` can read this study's releases."""

    # At a tester, and at everyone who verifies.

    def conclude(
        self, releases: Releases, units: Mapping[str, int], progress: Progress | None = None
    ) -> BaseVerdict:
        """Compute the verdict from releases and units by sender: post-processing, the same for everyone.

        Sealed releases and receipts are not among ``releases``; their senders' units are among ``units``.
        """
        raise NotImplementedError

    # In words.

    def describe_request(self) -> tuple[str, ...]:
        """Say in lines what the study asks, where its columns and owners do not."""
        return () if self.shared is None else (self.shared.asked(self.masked_numbers),)

    def record_of(self, name: str) -> str:  # noqa: ARG002
        """Say what the owner of that name would release, where it is something about each person; else "".

        Stewards read it. Of two rounds, the relay says it.
        """
        return ""

    @property
    def released(self) -> str | None:
        """What a sender computes and releases, in the words of a paper's methods; None: the procedure's."""
        return None

    @property
    def cited(self) -> tuple[Citation, ...] | None:
        """The works that the study's method comes from; None: the procedure's."""
        return None

    def meaning(self, verdict: Fields) -> Meaning:
        """Say what a verdict means, in sentences."""
        return plain_meaning(self.study, verdict)

    def null(self, verdict: Fields, releases: Releases) -> Null | None:  # noqa: ARG002
        """Work out the null distribution of the verdict's statistic again; None where none is drawn."""
        return None

    def panels(self, verdict: Fields, releases: Releases) -> Sequence[Panel]:  # noqa: ARG002
        """Return what is drawn besides the null distribution, the p-value and estimates with intervals."""
        return ()


class SumPlan(Plan):
    """A plan whose releases are noisy sums: how they are laid out says all but what is done with them.

    The noise is Gaussian, of all parts jointly, or Laplace, one event of the guarantee for each part.
    """

    def parts(self, units: int, sums: Any = None) -> tuple[SumPart, ...]:
        """Lay out a release of so many units, of zeros without ``sums``: shapes and noise do not change.

        Raises ValueError where sums of so many units have no room.
        """
        raise NotImplementedError

    @cached_property
    def release_size(self) -> int:  # type: ignore[override]
        """How many noisy numbers one sender sends: one a coordinate."""
        return sum(len(part.sums) for part in self.parts(1))

    @property
    def gaussian(self) -> bool:
        """Whether the noise is Gaussian."""
        return isinstance(self.guarantee.events[0], GaussianEvent)

    def require_drawable(self, units: int) -> None:
        """Raise ValueError where the noise of so many units cannot be drawn."""
        parts = self.parts(units)
        if self.gaussian:
            require_drawable(parts, self.guarantee, 1 if self.masking is None else len(self.masking.names))
            return
        for place, part in enumerate(parts):
            require_laplace(part, of_event(self.guarantee, place))

    def check_units(self, units: Mapping[str, int]) -> None:
        """Raise PublicRuleError where sums of so many units, or their noise, have no room."""
        super().check_units(units)
        for count in units.values():
            require_noise(partial(self.require_drawable, count))

    def noisy(self, parts: Sequence[SumPart], noise: NoiseSource, first: int = 0) -> dict[str, NoisyVector]:
        """Return parts with their noise; ``first`` is the place of the first of them in the release."""
        if self.gaussian:
            return release_sums(tuple(parts), self.guarantee, noise)
        return {
            part.name: release_laplace_sums(part, of_event(self.guarantee, place), noise)
            for place, part in enumerate(parts, first)
        }

    def privatise(self, summary: Any, noise: NoiseSource) -> Release:
        """Add noise to a summary of ``units`` that the parts are laid out of."""
        vectors = self.noisy(self.parts(summary.units, summary), noise)
        return Release(units=summary.units, guarantee=self.guarantee, vectors=vectors)

    def check_release(self, release: Release) -> None:
        """Raise ReleaseError where the vectors are not the parts with the noise that the guarantee states."""
        try:
            parts = self.parts(release.units)
        except ValueError as error:
            raise ReleaseError(str(error)) from None
        if self.gaussian:
            check_layout(release.vectors, release.guarantee, parts, self.guarantee)
            return
        if set(release.vectors) != {part.name for part in parts}:
            raise LayoutError("the release has not the vectors that the study asks for")
        if release.guarantee != self.guarantee:
            raise LayoutError("the release states another guarantee than the study")
        for place, part in enumerate(parts):
            paid = of_event(self.guarantee, place)
            check_laplace_sums(release.vectors[part.name], paid, part, paid)
