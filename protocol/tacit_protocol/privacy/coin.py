"""Private coins: one bit of a given probability, exactly, from the one noise source.

Discrete Laplace noise is symmetric, so that the sign of a draw that is not zero is a fair coin. Fifty-three
of them make a uniform number on the grid of 2**-53, and comparing it with a probability on that grid gives a
coin of just that probability: no floating point enters after the probability is rounded to the grid.
"""

import math

import numpy as np

from tacit_protocol.privacy.noise import NoiseSource

COIN_BITS = 53
"""Grid of the probabilities: all of a float64 in [1/2, 1] is on it."""

COIN_SCALE = 2.0**40
"""Scale of the noise whose signs are drawn: a draw is zero with probability 2**-41."""

SPARE_DRAWS = 11
"""More draws than bits: that more than these are zero has probability below 2**-450. Bits that are missing
all the same (a source that adds nothing) count as 0: the function always ends."""


def coin_steps(probability: float) -> int:
    """Return a probability in steps of 2**-53, rounded. Raises ValueError where it is outside [0, 1]."""
    if not 0 <= probability <= 1:
        raise ValueError("a probability lies between 0 and 1")
    return round(math.ldexp(probability, COIN_BITS))


def private_coin(probability: float, noise: NoiseSource) -> bool:
    """Return True with the probability given, rounded to 2**-53, from private randomness.

    Raises ValueError where the probability is outside [0, 1]; quotes no value.
    """
    threshold = coin_steps(probability)
    drawn = noise.laplace(np.zeros(COIN_BITS + SPARE_DRAWS, dtype=np.int64), COIN_SCALE)
    signs = (drawn[drawn != 0] > 0)[:COIN_BITS]
    uniform = sum(1 << int(place) for place in np.flatnonzero(signs))
    return uniform < threshold
