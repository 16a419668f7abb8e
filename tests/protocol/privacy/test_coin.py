"""Coins: exact probabilities from the signs of noise."""

import math

import numpy as np
import pytest

from tacit_protocol.privacy.noise import COIN_BITS, SPARE_DRAWS, OpenDPNoise, coin_steps, private_coin


class Signs:
    """A source whose draws have the given signs, the lowest bit first, and zeros between them."""

    def __init__(self, value: int, zeros: int = 0) -> None:
        signs = [1 if value >> place & 1 else -1 for place in range(COIN_BITS)]
        self.draws = np.array([0] * zeros + signs + [-1] * (SPARE_DRAWS - zeros), dtype=np.int64)

    def laplace(self, values: np.ndarray, scale: float) -> np.ndarray:
        assert scale > 2**30
        return values + self.draws

    def gaussian(self, values: np.ndarray, scale: float) -> np.ndarray:
        raise AssertionError("a coin uses signs alone")


@pytest.mark.parametrize("probability", [0.0, 2.0**-53, 0.3, 0.5, 1 - 2.0**-53, 1.0])
@pytest.mark.parametrize("zeros", [0, 3, SPARE_DRAWS])
def test_a_coin_is_true_for_exactly_as_many_uniform_numbers_as_its_probability_says(
    probability: float, zeros: int
) -> None:
    steps = coin_steps(probability)
    for uniform in {0, steps - 1, steps, 2**COIN_BITS - 1}:
        if 0 <= uniform < 2**COIN_BITS:
            assert private_coin(probability, Signs(uniform, zeros)) == (uniform < steps)


def test_probabilities_are_rounded_to_the_grid() -> None:
    assert coin_steps(0.5) == 2**52
    assert coin_steps(1.0) == 2**53
    assert abs(coin_steps(1 / 3) / 2**53 - 1 / 3) <= 2**-54
    for wrong in (-0.1, 1.1, math.nan):
        with pytest.raises(ValueError, match="between 0 and 1"):
            coin_steps(wrong)


def test_real_coins_have_their_probability() -> None:
    """1000 coins: 6 standard errors, a false alarm of 2e-9 each."""
    noise = OpenDPNoise()
    for probability in (0.05, 0.5, 0.9):
        heads = sum(private_coin(probability, noise) for _ in range(1000)) / 1000
        assert abs(heads - probability) < 6 * math.sqrt(probability * (1 - probability) / 1000)


def test_a_source_that_adds_nothing_ends() -> None:
    class Nothing(Signs):
        def laplace(self, values: np.ndarray, scale: float) -> np.ndarray:
            return values

    assert private_coin(0.5, Nothing(0)) is True
