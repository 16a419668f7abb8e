"""Randomised response: its exact law, its epsilon, and that wrong constants are caught."""

import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest

from tacit_protocol.privacy import randomised_response as mechanism
from tacit_protocol.privacy.guarantee import RandomisedAnswers
from tacit_protocol.privacy.noise import OpenDPNoise
from tacit_protocol.privacy.randomised_response import NO_CELL, mixing, randomise, retention, unmixing

EPSILONS = (1, 1000, 100_000, 850_000, 1_000_000, 4_000_000, 36_000_000, 100_000_000)


def odds(kept: float, codes: int) -> Fraction:
    """The largest ratio of an answer's probabilities in two cells, exactly."""
    share = Fraction(kept)
    return 1 + codes * share / (1 - share)


def exponential_below(epsilon_micro: int, terms: int) -> Fraction:
    """A lower bound of e^epsilon, by another way than the mechanism's: a power of a short series."""
    part = Fraction(epsilon_micro, 10**6 * 1024)
    return sum((part**k / math.factorial(k) for k in range(terms)), Fraction(0)) ** 1024


def exceeds(codes: int, kept: float, epsilon_micro: int) -> bool:
    return odds(kept, codes) > exponential_below(epsilon_micro, 12)


@pytest.mark.parametrize("codes", [2, 3, 4, 7, 64])
@pytest.mark.parametrize("epsilon_micro", EPSILONS[1:-1])
def test_no_odds_change_by_more_than_the_exponential_and_nearly_all_of_it_is_used(
    codes: int, epsilon_micro: int
) -> None:
    kept = retention(epsilon_micro, codes)
    assert not exceeds(codes, kept, epsilon_micro)
    if epsilon_micro < 30_000_000:
        assert float(odds(kept, codes)) == pytest.approx(math.exp(epsilon_micro / 1e6), rel=1e-6)


@pytest.mark.parametrize("codes", [2, 3, 64])
def test_retention_lies_within_its_bounds_at_either_end(codes: int) -> None:
    assert 0 < retention(1, codes) < 2e-6
    assert 1 - 1e-14 < retention(100_000_000, codes) < 1


def test_a_retention_for_one_cell_fewer_would_be_seen() -> None:
    """k in the place of k - 1 and the like: (e^epsilon - 1)/(e^epsilon + k - 2)."""
    for codes in (2, 3, 7):
        assert exceeds(codes, retention(1_000_000, codes - 1), 1_000_000)
        nearest = math.nextafter(retention(1_000_000, codes) + 2.0**-50, 1)
        assert exceeds(codes, nearest, 1_000_000)


class Enumerated:
    """Hands out, of the operating system's integers, what a test has written down."""

    def __init__(self, *parts: list[int]) -> None:
        self._parts = [np.array(part, dtype=np.uint64) for part in parts]

    def uniform(self, count: int) -> np.typing.NDArray[np.uint64]:
        drawn = self._parts.pop(0)
        assert len(drawn) == count
        return drawn


def test_the_law_is_exact_by_enumeration(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retention 3/8: all eight places of the first three bits, with all residues of the second integer."""
    monkeypatch.setattr(mechanism, "retention", lambda *_: 0.375)
    codes, top = 3, [place << 61 for place in range(8)]
    for cell in range(codes):
        first = [value for value in top for _ in range(codes)]
        second = list(range(codes)) * len(top)
        units = len(first)
        given = randomise(np.full(units, cell), codes, 1, Enumerated(first, second)).values()
        shares = {answer: Fraction(count, units) for answer, count in Counter(given.tolist()).items()}
        kept = Fraction(3, 8)
        for answer in range(codes):
            assert shares[answer] == kept * (answer == cell) + (1 - kept) / codes


def test_the_comparison_is_right_to_the_last_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the 2^53 places exactly those below the retention's keep their cell."""
    monkeypatch.setattr(mechanism, "retention", lambda *_: 5 * 2.0**-53)
    edges = [4 << 11 | 0x7FF, 5 << 11]
    given = randomise(np.array([1, 1]), 2, 1, Enumerated(edges, [0, 0])).values()
    assert given.tolist() == [1, 0]


def test_incomplete_rounds_are_drawn_again() -> None:
    """2^64 is one more than a multiple of 3: the last integer would make one answer likelier."""
    last = 2**64 - 1
    assert last % 3 == 0
    drawn = mechanism.uniform_below(3, 3, Enumerated([last, last - 1, 7], [last], [2]))
    assert drawn.tolist() == [2, (last - 1) % 3, 1]


def test_answers_have_their_law() -> None:
    """Chi-squared of 10^6 draws a cell: beyond 60 on 3 degrees has probability below 1e-12 a cell."""
    codes, units = 4, 10**6
    expected = mixing(codes, retention(700_000, codes))
    for cell in range(codes):
        answers = randomise(np.full(units, cell), codes, 700_000, OpenDPNoise()).values()
        counts = np.bincount(answers, minlength=codes)
        wanted = units * expected[:, cell]
        assert np.sum((counts - wanted) ** 2 / wanted) < 60


@pytest.mark.long
def test_ten_million_answers_have_their_law_and_not_another() -> None:
    """Chi-squared beyond 65 on 3 degrees has probability 5e-14. A retention of a thousandth more is seen."""
    codes, units, epsilon_micro = 4, 10**7, 1_000_000
    kept, counts = retention(epsilon_micro, codes), np.zeros(codes)
    for _ in range(10):
        answers = randomise(np.full(units // 10, 2), codes, epsilon_micro, OpenDPNoise()).values()
        counts += np.bincount(answers, minlength=codes)

    def distance(assumed: float) -> float:
        wanted = units * mixing(codes, assumed)[:, 2]
        return float(np.sum((counts - wanted) ** 2 / wanted))

    assert distance(kept) < 65
    assert distance(kept + 4e-3) > 65  # about 25 standard deviations of the share that is kept


def test_a_unit_without_a_cell_answers_blindly() -> None:
    """Chi-squared of 10^5 draws; beyond 50 on 2 degrees has probability 1.4e-11."""
    answers = randomise(np.full(100_000, NO_CELL), 3, 5_000_000, OpenDPNoise()).values()
    counts = np.bincount(answers, minlength=3)
    assert np.sum((counts - 100_000 / 3) ** 2) / (100_000 / 3) < 50


def test_a_cell_that_there_is_not_is_refused() -> None:
    for cell in (-2, 3):
        with pytest.raises(ValueError, match="none of those"):
            randomise(np.array([cell]), 3, 1_000_000, OpenDPNoise())


@pytest.mark.parametrize("codes", [2, 3, 64])
def test_unmixing_is_the_inverse_of_mixing(codes: int) -> None:
    kept = retention(500_000, codes)
    assert np.allclose(unmixing(codes, kept) @ mixing(codes, kept), np.eye(codes), atol=1e-9)


@pytest.mark.parametrize(("codes", "units"), [(2, 1), (2, 8), (3, 5), (5, 7), (64, 33)])
def test_answers_are_packed_and_read_back(codes: int, units: int) -> None:
    answers = np.random.default_rng(1).integers(0, codes, units)
    packed = RandomisedAnswers.of(answers, codes, 0.5)
    assert packed.values().tolist() == answers.tolist()
    assert RandomisedAnswers.model_validate_json(packed.model_dump_json()) == packed


@pytest.mark.parametrize("packed", ["", "AA", "AAA=", "/w==", "AB==", "!!!!", "AAAA"])
def test_answers_that_are_packed_otherwise_are_refused(packed: str) -> None:
    """Three answers of two bits each: a byte whose last two bits are zero, in base64's one spelling."""
    with pytest.raises(ValueError, match="answers"):
        RandomisedAnswers(codes=3, units=3, retention=0.5, packed=packed)
