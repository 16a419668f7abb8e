"""Masked sums: releases of several owners of which only the total can be read.

Every owner adds discrete Gaussian noise of variance sigma^2/(k - c) to its exact integers, k owners of whom c
may collude, and of every pair of owners one adds and the other subtracts a mask, uniform modulo 2^64, that
they alone can make. All masks cancel in the sum, and nothing but the sum can be read. The keys that masks
come from are for one study: its first round. An owner masks by the digest of all keys that it was shown, and
signs it with its release: of owners who were shown different ones no masks cancel, and every reader of the
transcript sees it. What is claimed towards whom, and the proofs: docs/mathematics/masked-sums.md.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from tacit_protocol.messages.encoding import decode, digest, encode_json
from tacit_protocol.messages.study import MaskKeyMessage, Release, Study
from tacit_protocol.privacy.accounting import compose_epsilon_micro
from tacit_protocol.privacy.guarantee import (
    EPSILON_MAX,
    EPSILON_UNITS,
    Budget,
    GaussianEvent,
    Guarantee,
    MaskedVector,
    NoisyVector,
)
from tacit_protocol.signing import MASK_KEY_TYPE, mask_public_hex, open_envelope, pair_stream
from tacit_protocol.strict import ReleaseError, StrictModel, StudyError

Words = npt.NDArray[np.uint64]

Aggregation = Literal["separate", "masked"]

TOGETHER = "all owners together"
"""Whose numbers are that were added up before anybody read them."""

MASKED_BITS = 20
"""Numbers that are masked lie on one public grid, of 2^-20, whoever sends them."""

MASKED_OWNERS_MAX = 100
"""Most owners of a study with masks: each makes a mask with every other, and all must answer."""

SUM_MAX = 2**62
"""What all owners' sums together stay below, so that the total can be told from its wrapping around 2^64."""

ROUNDING = 1e-12
"""Relative part by which the noise of one owner is rounded up, and the noise of several down."""


class MaskedParameters(StrictModel):
    """How owners' releases are read: each by itself, or their sum alone."""

    aggregation: Aggregation = Field(
        "separate",
        description=(
            "Whether every owner's numbers are released, or masked, so that only the sum of all can be read: "
            "owners share one Gaussian noise, and no finding is of one owner."
        ),
    )
    colluders: Annotated[int, Field(ge=0, lt=MASKED_OWNERS_MAX)] | None = Field(
        None,
        description=(
            "Where masked: how many owners may collude with the tester, and epsilon and delta hold all the "
            "same. Each account pays for what holds whoever colludes."
        ),
    )


@dataclass(frozen=True)
class Masking:
    """Who masks in a study: ``names`` of all owners, sorted, of whom ``colluders`` may collude."""

    names: tuple[str, ...]
    colluders: int

    @property
    def honest(self) -> int:
        """The fewest owners whose noise nobody knows, by the study's word."""
        return len(self.names) - self.colluders

    def own_guarantee(self, claim: Guarantee) -> Guarantee:
        """Return the guarantee of one owner's share of the noise, which holds whoever colludes.

        ``claim`` is that towards the tester with the study's number of colluding owners: a Gaussian event,
        and what is set aside for discrete noise.

        Raises:
            StudyError: it is no Gaussian guarantee, or the one owner's is beyond any budget.
        """
        # Rounded up, as the noise is drawn by it: what several owners draw together is what was claimed.
        return self._scaled(claim, math.sqrt(1 / self.honest) * (1 + ROUNDING))

    def towards(self, claim: Guarantee, colluding: int) -> Guarantee:
        """Return the guarantee towards the tester together with so many owners, 0 to k - 1.

        The noise that they do not know has a variance of (k - colluding)/(k - c) of that of the claim.
        """
        if colluding == self.colluders:
            return claim
        if colluding == len(self.names) - 1:
            return self.own_guarantee(claim)
        unknown = len(self.names) - colluding
        return self._scaled(claim, math.sqrt(unknown / self.honest) * (1 - ROUNDING))

    def _scaled(self, claim: Guarantee, factor: float) -> Guarantee:
        event, *others = claim.events
        if not isinstance(event, GaussianEvent):
            raise StudyError('masked sums need Gaussian noise: give noise "gaussian" and a delta above 0')
        events = (GaussianEvent(noise_multiplier=event.noise_multiplier * factor), *others)
        delta_pico = claim.budget.delta_pico
        epsilon_micro = compose_epsilon_micro(events, delta_pico)
        if epsilon_micro > EPSILON_MAX * EPSILON_UNITS:
            raise StudyError(
                "one owner's share of the noise would protect its people from nobody who colludes with all "
                "others: give a smaller epsilon, or more colluders"
            )
        return Guarantee(
            budget=Budget(epsilon_micro=max(1, epsilon_micro), delta_pico=delta_pico), events=events
        )


MISLED = "and where owners differ that may make or hide what the sum shows"
"""What a sum of owners' numbers may hide, where they are not of what goes on within owners."""


@dataclass(frozen=True)
class SharedNoise:
    """One noise that owners who mask share: what the study claims of it, and what is each owner's own."""

    masking: Masking
    claim: Guarantee
    own: Guarantee
    """What each owner's share of the noise guarantees whoever colludes, and each account pays."""

    def asked(self, what: str, separate: str = "") -> str:
        """Say to whoever plans what is gained and what is hidden; ``what`` is masked: "tables".

        ``separate`` says how much noise separate ones have, where that is not the number of owners times.
        """
        owners, some = len(self.masking.names), self.masking.colluders
        variance = f"{owners / self.masking.honest:.3g}".removesuffix(".0")
        return (
            f"reads the sum of {owners} owners' masked {what} and no owner's own: {variance} times the "
            f"variance of a trusted curator's noise, where separate {what} have "
            f"{separate or f'{owners} times'}; epsilon {self.claim.budget.epsilon:.4g} holds towards the "
            f"tester with up to {some} of the owners, "
            f"each account pays epsilon {self.own.budget.epsilon:.4g}, which holds whoever colludes; "
            "whether owners differ is hidden"
        )

    def caveats(self, what: str, misled: str = MISLED) -> tuple[str, ...]:
        """Say in a verdict what its masks hide, and towards whom it protects how well."""
        owners, some = len(self.masking.names), self.masking.colluders
        return (
            f"the {owners} owners' {what} were masked and only their sum was read: nothing is known of any "
            f"one owner, {misled}",
            f"epsilon {self.claim.budget.epsilon:g} holds towards the tester with up to {some} of the "
            f"owners; what each spent, epsilon {self.own.budget.epsilon:.4g}, holds whoever colludes, and "
            "of a person whom several owners count the sum of it",
        )


def is_masked(study: Study) -> bool:
    """Whether a study says that its owners mask; whether it can be run so, its plan says."""
    return bool(study.parameters.get("aggregation") == "masked")


def shared_noise_in(
    study: Study, parameters: MaskedParameters, noise: str, claim: Callable[[], Guarantee]
) -> SharedNoise | None:
    """Return the noise that guarantees ``claim`` as owners share it; None where each is read by itself.

    ``noise`` is the kind that the study asks for.

    Raises:
        StudyError: the study asks for masks that cannot be made, or for no Gaussian noise.
    """
    masking = masking_in(study, parameters)
    if masking is None:
        return None
    if noise != "gaussian":
        raise StudyError(
            'shares of noise add up where it is Gaussian: with aggregation masked give noise "gaussian" and '
            "a delta above 0"
        )
    claimed = claim()
    return SharedNoise(masking, claimed, masking.own_guarantee(claimed))


def masking_in(study: Study, parameters: MaskedParameters) -> Masking | None:
    """Return who masks in a study that says how releases are aggregated, and how many owners may collude.

    Raises:
        StudyError: the study asks for masks that cannot be made.
    """
    colluders = parameters.colluders
    if parameters.aggregation == "separate":
        if colluders is not None:
            raise StudyError('parameter colluders is for aggregation "masked"; leave it out')
        return None
    owners = len(study.owners)
    if study.curator is not None or study.reusing or study.columns_apart:
        raise StudyError("owners mask releases of their own, of the same columns: no curator, no reuse")
    if not 2 <= owners <= MASKED_OWNERS_MAX:
        raise StudyError(f"masks are between 2 to {MASKED_OWNERS_MAX} owners")
    if colluders is None:
        raise StudyError(
            "aggregation masked needs colluders: how many owners may collude with the tester, 0 to "
            f"{owners - 1}"
        )
    if colluders >= owners:
        raise StudyError("at least one owner does not collude: colluders is less than the number of owners")
    return Masking(tuple(sorted(owner.name for owner in study.owners)), colluders)


@dataclass(frozen=True)
class MaskingRoster:
    """The keys of a study's first round by owner, and the digest that binds them to it and to each other."""

    study: str
    keys: Mapping[str, str]
    digest: str


def read_mask_key(study: str, name: str, key: str, envelope: bytes) -> tuple[str, str]:
    """Return an owner's key for a study's masks, and the digest of what it signed.

    ``study`` is the study's digest, ``key`` the owner's identity.

    Raises:
        EnvelopeError: it is of another kind, or the signature does not hold.
        MessageError: the payload is malformed.
        ReleaseError: it was made for another study or owner.
    """
    payload = open_envelope(envelope, MASK_KEY_TYPE, key)
    message = decode(MaskKeyMessage, payload)
    if (message.study, message.party) != (study, name):
        raise ReleaseError("the key was made for another study or owner")
    return message.key, digest(payload)


def read_roster(study: Study, study_digest: str, envelopes: Mapping[str, bytes]) -> MaskingRoster:
    """Read the keys that all of a study's owners signed, envelopes by owner.

    Raises as :func:`read_mask_key`, and ReleaseError where there is not one key for each owner, or two owners
    show the same.
    """
    if set(envelopes) != {owner.name for owner in study.owners}:
        raise ReleaseError("there is not one key for each of the study's owners")
    read = {o.name: read_mask_key(study_digest, o.name, o.key, envelopes[o.name]) for o in study.owners}
    if len({key for key, _ in read.values()}) != len(read):
        raise ReleaseError("two owners show the same key")
    return roster_of(
        study_digest, {n: key for n, (key, _) in read.items()}, {n: d for n, (_, d) in read.items()}
    )


def roster_of(study: str, keys: Mapping[str, str], digests: Mapping[str, str]) -> MaskingRoster:
    """Return the roster of keys by owner, whose signed messages have these digests."""
    return MaskingRoster(study, keys, roster_digest(study, digests))


def roster_digest(study: str, digests: Mapping[str, str]) -> str:
    """Return the digest of all keys of a study, by the digests of what each owner signed."""
    return digest(encode_json({"format": "tacit/mask-roster/1", "keys": dict(digests), "study": study}))


def masks_of(roster: MaskingRoster, name: str, secret: bytes, vector: str, size: int) -> Words:
    """Return the sum of an owner's masks on one vector, (size,), modulo 2^64.

    Of two owners the one whose name comes first adds what they share, the other subtracts it.

    Raises:
        ReleaseError: the roster has another key of this owner's.
        SignatureError: nothing can be shared with another's key.
    """
    if roster.keys[name] != mask_public_hex(secret):
        raise ReleaseError("the roster shows another key of this owner's than it drew")
    found: Words = np.zeros(size, dtype=np.uint64)
    for other, key in roster.keys.items():
        if other == name:
            continue
        pair = sorted((name, other))
        info = {"format": "tacit/mask/1", "pair": pair, "roster": roster.digest, "study": roster.study}
        stream = pair_stream(secret, key, encode_json(info | {"vector": vector}), 8 * size)
        shared = np.frombuffer(stream, dtype="<u8")
        found = found + shared if name == pair[0] else found - shared
    return found


def masked(release: Release, roster: MaskingRoster, name: str, secret: bytes) -> Release:
    """Return an owner's noisy release with its vectors masked. Raises as :func:`masks_of`."""
    vectors = {}
    for own, vector in release.vectors.items():
        steps = np.array(vector.values, dtype=np.int64).view(np.uint64)
        masks = masks_of(roster, name, secret, own, len(steps))
        vectors[own] = MaskedVector.of(steps + masks, vector.exponent, vector.scale)
    return Release(units=release.units, guarantee=release.guarantee, masked=vectors)


def as_layout(release: Release) -> Release:
    """Return a masked release as one of noisy vectors, to compare its shape and noise with the study's.

    Its numbers mean nothing. Raises ReleaseError where it is not masked, or holds anything else.
    """
    others = (release.vectors, release.answers, release.cuts)
    if not release.masked or any(others) or release.decision is not None or release.choice is not None:
        raise ReleaseError("the release is not masked as the study asks")
    vectors = {
        name: NoisyVector(
            values=tuple(vector.steps().view(np.int64).tolist()),
            exponent=vector.exponent,
            noise="gaussian",
            scale=vector.scale,
        )
        for name, vector in release.masked.items()
    }
    return release.model_copy(update={"vectors": vectors, "masked": {}})


def total_of(masking: Masking, releases: Mapping[str, Release]) -> Release:
    """Return the sum of all owners' masked releases, noise and all; the masks cancel to the last bit.

    Of all that is released it alone can be read. Its ``scale`` is that of all owners' noise together.

    Raises:
        ReleaseError: a release is missing, or releases have not the same vectors.
    """
    if set(releases) != set(masking.names):
        raise ReleaseError("the sum of masked releases needs every owner's")
    first = releases[masking.names[0]]
    vectors = {}
    for name, own in first.masked.items():
        parts = [releases[owner].masked.get(name) for owner in masking.names]
        if any(part is None or (part.size, part.exponent) != (own.size, own.exponent) for part in parts):
            raise ReleaseError("masked releases have not the same vectors")
        steps: Words = np.zeros(own.size, dtype=np.uint64)
        for part in parts:
            if part is not None:
                steps = steps + part.steps()
        vectors[name] = NoisyVector(
            values=tuple(steps.view(np.int64).tolist()),
            exponent=own.exponent,
            noise="gaussian",
            scale=own.scale * math.sqrt(len(parts)),
        )
    units = sum(release.units for release in releases.values())
    return Release(units=units, guarantee=first.guarantee, vectors=vectors)


def units_max(owners: int, bits: int) -> int:
    """Return how many units each owner may have so that counts on a grid of 2^-bits add up below 2^62."""
    return SUM_MAX // owners >> bits


def masks_words(masking: Masking, claim: Guarantee) -> str:
    """Say towards whom a study with masks protects an owner's people how well, in sentences for stewards."""
    owners, some = len(masking.names), masking.colluders
    towards = {0: "the tester and everyone who reads the verdict"}
    if 0 < some < owners - 1:
        reckoned = "1 other owner" if some == 1 else f"{some} other owners"
        towards[some] = f"the tester together with {reckoned}, as the study reckons"
    towards[owners - 1] = "the tester together with all other owners"
    told = ", ".join(
        f"towards {who} epsilon {masking.towards(claim, colluding).budget.epsilon:.4g}"
        for colluding, who in towards.items()
    )
    return (
        "Before every owner has shown a key for this study nothing is computed or spent. Then the sum of all "
        f"{owners} owners is all that can be read. It protects, at delta {claim.budget.delta:g}: {told}. The "
        "last holds whoever colludes, and is what the account pays. If an owner falls silent after others "
        "sent, there is no answer, nobody learns more than a finished study would have shown, and what was "
        "spent stays spent."
    )
