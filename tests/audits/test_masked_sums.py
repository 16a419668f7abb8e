"""What the tester learns of masked sums with owners who collude, and that masks hide and cancel.

The attacker has every masked release, and the secrets, data and noise of the owners who collude: it takes
away what they know, and tells neighbours apart by what is left, the sum of the others. The randomness of the
tests on masks is fixed, so that they never alarm by chance.
"""

import hashlib
import itertools
import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from audited_procedures import AUDITED
from long_runs import LONG
from lower_bound import exceeds
from made_studies import NoNoise
from release_audit import largest_move
from scipy.stats import chi2
from world import MASKED, masked_study

from tacit_protocol.features.cell_counts import COUNT_BITS
from tacit_protocol.messages.encoding import digest, encode
from tacit_protocol.messages.study import Owner, Release, Study
from tacit_protocol.privacy.gaussian_mechanism import mu_of
from tacit_protocol.privacy.guarantee import COORDINATES_MAX, Budget, GaussianEvent, Guarantee
from tacit_protocol.privacy.noise import OpenDPNoise
from tacit_protocol.procedures.aggregation import Vote
from tacit_protocol.procedures.base import claim_of, masking_of
from tacit_protocol.procedures.counts.release import COUNTS, noisy_counts
from tacit_protocol.procedures.masking import Masking, MaskingRoster, masked, masks_of, roster_of, total_of
from tacit_protocol.procedures.noisy_counts import NoisyCounts
from tacit_protocol.signing import mask_public_hex

Floats = np.typing.NDArray[np.float64]

RUNS = 200_000 if LONG else 20_000
"""Runs per neighbour. Half a mechanism's noise is told apart by far fewer."""

VICTIM = MASKED[0]


def secret_of(name: str) -> bytes:
    """Return a secret of an owner's that is the same in every run."""
    return hashlib.sha256(f"mask {name}".encode()).digest()


def roster_for(study: Study) -> MaskingRoster:
    keys = {owner.name: mask_public_hex(secret_of(owner.name)) for owner in study.owners}
    return roster_of(digest(encode(study)), keys, keys)


@dataclass
class Colluding:
    """Runs of the counts of five owners: the tester, with ``colluding`` of them, attacks the first one's.

    Each run is of two cells; one unit moves from the first to the second. Runs share a release, whose cells
    are independent of each other.
    """

    study: Study
    colluding: tuple[str, ...]
    noise: OpenDPNoise = field(default_factory=OpenDPNoise)

    def scores(self, other: bool, runs: int) -> Floats:
        found: list[Floats] = []
        while sum(map(len, found)) < runs:
            found.append(self._left(other, min(runs, COORDINATES_MAX // 2)))
        return np.concatenate(found)[:runs]

    def _left(self, other: bool, runs: int) -> Floats:
        """Return the second cell less the first, of the sum of those who do not collude, (runs,)."""
        roster, releases = roster_for(self.study), {}
        for owner in self.study.owners:
            cells = np.full((runs, 2), 20, dtype=np.int64)
            if other and owner.name == VICTIM:
                cells += np.array([-1, 1])
            releases[owner.name] = self._release(owner, cells, roster)
        vectors = {name: release.masked[COUNTS].steps() for name, release in releases.items()}
        honest = [name for name in vectors if name not in self.colluding]
        left = sum(vectors[name] for name in honest) - self._known(roster, honest, 2 * runs)
        units = np.ldexp(left.view(np.int64).astype(float), -COUNT_BITS).reshape(runs, 2)
        return np.asarray(units[:, 1] - units[:, 0])

    def _release(self, owner: Owner, cells: Any, roster: MaskingRoster) -> Release:
        guarantee = NoisyCounts().plan(self.study).guarantee
        steps = cells.ravel() << COUNT_BITS
        # What a colluding owner drew is known, and so taken away: nothing need be drawn.
        noise = NoNoise() if owner.name in self.colluding else self.noise
        vector = noisy_counts(steps, COUNT_BITS, guarantee, noise)
        release = Release(units=40, guarantee=guarantee, vectors={COUNTS: vector})
        return masked(release, roster, owner.name, secret_of(owner.name))

    def _known(self, roster: MaskingRoster, honest: list[str], size: int) -> Any:
        """Return the sum of the masks that honest owners share with those who collude."""
        total = np.zeros(size, dtype=np.uint64)
        for name, other in itertools.product(honest, self.colluding):
            two = MaskingRoster(roster.study, {n: roster.keys[n] for n in (name, other)}, roster.digest)
            total = total - masks_of(two, other, secret_of(other), COUNTS, size)
        return total


def attacked(colluders: int, colluding: int) -> tuple[Colluding, Guarantee]:
    """Return the attack by so many owners on a study that reckons with some, and what it claims."""
    study = masked_study(colluders=colluders, budget=Budget.of("3", "1e-5"))
    plan = NoisyCounts().plan(study)
    assert plan.masking is not None
    return Colluding(study, MASKED[-colluding:] if colluding else ()), plan.masking.towards(
        claim_of(NoisyCounts(), study), colluding
    )


def learns_more(attack: Colluding, claimed: Guarantee) -> bool:
    budget = claimed.budget
    return exceeds(
        attack,
        runs=RUNS,
        pilot=RUNS // 4,
        delta=budget.delta,
        epsilon=budget.epsilon,
        mu=mu_of(claimed),
    )


CASES = [(0, 0), (2, 2), (2, 0), (2, 4), (0, 4), (4, 4)]
"""What the study reckons with, and how many collude."""


@pytest.mark.long
@pytest.mark.parametrize(("colluders", "colluding"), CASES)
def test_the_tester_with_colluding_owners_learns_less_than_is_claimed(colluders: int, colluding: int) -> None:
    assert not learns_more(*attacked(colluders, colluding))


@pytest.mark.long
@pytest.mark.parametrize("colluding", [2, 4])
def test_a_planted_share_of_noise_that_is_too_small_is_caught(
    monkeypatch: pytest.MonkeyPatch, colluding: int
) -> None:
    """Each owner draws variance sigma^2/5, as if nobody colluded, where two may: it must be sigma^2/3."""

    def shared_by_all(masking: Masking, claim: Guarantee) -> Guarantee:
        event = claim.events[0]
        assert isinstance(event, GaussianEvent)
        multiplier = event.noise_multiplier / math.sqrt(len(masking.names))
        own = GaussianEvent(noise_multiplier=multiplier)
        return claim.model_copy(update={"events": (own, *claim.events[1:])})

    _, claimed = attacked(2, colluding)
    monkeypatch.setattr(Masking, "own_guarantee", shared_by_all)
    attack, _ = attacked(2, 2)
    assert learns_more(Colluding(attack.study, MASKED[-colluding:]), claimed)


@pytest.mark.long
def test_masked_votes_with_a_direction_whose_noise_is_made_for_one_side_are_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    case = AUDITED["aggregated_test"]["masked, with a direction"]
    monkeypatch.setattr(Vote, "sensitivity", property(lambda _vote: 1.0))
    moved, allowed = largest_move(case)
    assert moved.gaussian > 1.9 * allowed.gaussian


def test_the_account_pays_for_what_holds_whoever_colludes() -> None:
    """And what two accounts pay together covers a person whom both owners count."""
    for owners, colluders in [(2, 0), (2, 1), (5, 0), (5, 2), (5, 4)]:
        study = masked_study(MASKED[:owners], colluders=colluders)
        plan = NoisyCounts().plan(study)
        assert plan.masking is not None
        own, claim = NoisyCounts().cost(study), claim_of(NoisyCounts(), study)
        for colluding in range(owners):
            towards = plan.masking.towards(claim, colluding)
            assert own.budget.epsilon_micro >= towards.budget.epsilon_micro
            both = math.sqrt(2) * mu_of(own)
            if owners - colluding >= 2:  # in the data of two owners who do not collude
                assert both >= 2 * mu_of(towards) * (1 - 1e-9)
        assert plan.masking.towards(claim, colluders) == claim
        assert claim.budget == study.budget


BYTES_PVALUE = 1e-6
"""The test is the same in every run: it is far from this, or there is a reason."""


def byte_pvalue(words: Any) -> float:
    """Return the p-value of chi-squared tests that each of the eight bytes of words is uniform, the least."""
    held = np.frombuffer(words.astype("<u8").tobytes(), dtype=np.uint8).reshape(-1, 8)
    counts = [np.bincount(held[:, place], minlength=256) for place in range(8)]
    expected = len(held) / 256
    return min(float(chi2.sf(((count - expected) ** 2).sum() / expected, 255)) for count in counts)


def test_masked_vectors_are_uniform_given_everything_else_that_the_tester_has() -> None:
    """Of three owners, two vectors and all that follows from them and the sum: their sums and differences."""
    study = masked_study(MASKED[:3])
    roster, size = roster_for(study), COORDINATES_MAX
    steps = np.full(size, 7 << COUNT_BITS, dtype=np.int64).view(np.uint64)
    first, second, third = (
        steps + masks_of(roster, name, secret_of(name), COUNTS, size) for name in MASKED[:3]
    )
    told = [first, second, third, first - second, second - third, first + second, np.diff(first)]
    told += [first ^ second, np.roll(first, 1) - second, 3 * first + 5 * second]
    assert min(map(byte_pvalue, told)) > BYTES_PVALUE / len(told)
    correlations = np.corrcoef([part.astype(float) for part in (first, second, third)])
    assert np.abs(correlations[np.triu_indices(3, 1)]).max() < 6 / math.sqrt(size)
    plain = steps + masks_of(roster, MASKED[0], secret_of(MASKED[0]), COUNTS, size) % 2**60
    assert byte_pvalue(plain) < 1e-12, "masks of 60 bits would be seen"


@pytest.mark.long
def test_masks_cancel_to_the_last_bit_in_a_million_sums() -> None:
    study = masked_study()
    roster, rng = roster_for(study), np.random.default_rng(5)
    masking = masking_of(NoisyCounts(), study)
    assert masking is not None
    vectors = [f"part {place}" for place in range(-(-(10**6) // COORDINATES_MAX))]
    names = [owner.name for owner in study.owners]
    exact = {name: {one: rng.integers(-(2**58), 2**58, COORDINATES_MAX) for one in vectors} for name in names}
    guarantee, sums = NoisyCounts().cost(study), 0
    for one in vectors:
        releases = {}
        for name in names:
            vector = {"values": tuple(exact[name][one].tolist()), "exponent": -20, "noise": "gaussian"}
            own = Release.model_validate(
                {"units": 1, "guarantee": guarantee, "vectors": {one: vector | {"scale": 1.0}}}
            )
            releases[name] = masked(own, roster, name, secret_of(name))
        total = np.array(total_of(masking, releases).vectors[one].values)
        assert np.array_equal(total, sum(exact[name][one] for name in names))
        sums += len(total)
    assert sums >= 10**6
