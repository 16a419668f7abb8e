"""The samplers' law and limits, and the price of discrete noise against exact enumeration."""

import itertools
import math

import mpmath
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit_protocol.privacy.calibration import gaussian_delta
from tacit_protocol.privacy.noise import (
    GAUSSIAN_STEPS_MIN,
    VALUE_MAX,
    NoiseError,
    NoiseSource,
    OpenDPNoise,
    discretisation_delta,
)

Floats = npt.NDArray[np.float64]


def discrete_gaussian(scale: float) -> Floats:
    """Probabilities of -13 scales .. 13 scales."""
    reach = math.ceil(13 * scale)
    weights = np.exp(-(np.arange(-reach, reach + 1) ** 2) / (2 * scale**2))
    return np.asarray(weights / math.fsum(weights))


def hockey_stick(law: Floats, shifted: Floats, epsilon: float) -> float:
    """The exact delta between two laws on the same finite set."""
    return math.fsum(np.maximum(law - math.exp(epsilon) * shifted, 0.0).ravel())


def shift(law: Floats, steps: int, axis: int = 0) -> Floats:
    """Move a law by some steps; what leaves the grid (below e**-70) is dropped, which only raises delta."""
    moved = np.roll(law, steps, axis=axis)
    index = [slice(None)] * law.ndim
    index[axis] = slice(0, steps)
    moved[tuple(index)] = 0.0
    return moved


@pytest.mark.parametrize("draw", ["gaussian", "laplace"])
def test_noise_has_the_spread_it_states(draw: str) -> None:
    """Sum of 20000 squares within 12 standard errors: false alarm far below 1e-6 for either law."""
    scale, count = 1000.0, 20_000
    source: NoiseSource = OpenDPNoise()
    centre = np.full(count, 123_456, dtype=np.int64)
    noise = (getattr(source, draw)(centre, scale) - centre).astype(np.float64) / scale
    second, fourth = (1.0, 3.0) if draw == "gaussian" else (2.0, 24.0)
    error = math.sqrt((fourth - second**2) / count)
    assert abs(np.mean(noise**2) - second) < 12 * error
    assert abs(np.mean(noise)) < 6 * math.sqrt(second / count)
    assert not abs(1.2**2 * np.mean(noise**2) - second) < 12 * error, "a scale 20 % off must be seen"


@pytest.mark.parametrize("draw", ["gaussian", "laplace"])
def test_noise_is_fresh_and_leaves_its_input_alone(draw: str) -> None:
    values = np.zeros(8, dtype=np.int64)
    first = getattr(OpenDPNoise(), draw)(values, 2.0**40)
    second = getattr(OpenDPNoise(), draw)(values, 2.0**40)
    assert first.dtype == np.int64
    assert first.shape == (8,)
    assert not np.any(first == second)
    assert not np.any(values)


@pytest.mark.parametrize("draw", ["gaussian", "laplace"])
@pytest.mark.parametrize("value", [VALUE_MAX - 64, -VALUE_MAX + 64, 2**63 - 1, -(2**63)])
def test_values_that_could_saturate_are_refused(draw: str, value: int) -> None:
    with pytest.raises(NoiseError, match="62 bits") as failure:
        getattr(OpenDPNoise(), draw)(np.array([0, value], dtype=np.int64), 1.0)
    assert str(abs(value)) not in str(failure.value)


def test_a_value_just_inside_the_room_is_served() -> None:
    value = VALUE_MAX - 65
    noisy = OpenDPNoise().gaussian(np.array([value], dtype=np.int64), 1.0)
    assert abs(int(noisy[0]) - value) <= 64


@pytest.mark.parametrize("scale", [0.0, -1.0, math.nan, math.inf, 2.0**57])
def test_scales_without_a_guarantee_are_refused(scale: float) -> None:
    for draw in (OpenDPNoise().gaussian, OpenDPNoise().laplace):
        with pytest.raises(NoiseError):
            draw(np.array([1], dtype=np.int64), scale)


def test_only_vectors_of_64_bit_integers_are_served() -> None:
    for values in (np.zeros((2, 2), np.int64), np.zeros(0, np.int64), np.zeros(2, np.int32), np.zeros(2)):
        with pytest.raises(NoiseError, match="64-bit"):
            OpenDPNoise().gaussian(values, 1.0)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("scale", "steps", "epsilon"),
    [*itertools.product((25.0, 40.5, 200.0), (1, 7, 60), (0.0, 0.1, 1.0, 4.0)), (3000.0, 900, 1.0)],
)
def test_one_coordinate_costs_no_more_than_stated(scale: float, steps: int, epsilon: float) -> None:
    law = discrete_gaussian(scale)
    delta = hockey_stick(law, shift(law, steps), epsilon)
    continuous, extra = gaussian_delta(epsilon, steps / scale), discretisation_delta(1, scale, epsilon)
    assert extra < 0.03
    assert delta <= continuous + extra * (1 - continuous) + 1e-14


@pytest.mark.parametrize(("steps", "epsilon"), [((20, 0), 0.5), ((11, 17), 0.5), ((30, 40), 2.0)])
def test_two_coordinates_cost_no_more_than_stated(steps: tuple[int, int], epsilon: float) -> None:
    scale = 30.0
    law = np.outer(discrete_gaussian(scale), discrete_gaussian(scale))
    delta = hockey_stick(law, shift(shift(law, steps[0], 0), steps[1], 1), epsilon)
    continuous, extra = (
        gaussian_delta(epsilon, math.hypot(*steps) / scale),
        discretisation_delta(2, scale, epsilon),
    )
    assert extra < 0.03
    assert delta <= continuous + extra * (1 - continuous) + 1e-13


def test_the_enumeration_sees_noise_that_is_one_percent_too_narrow() -> None:
    scale, steps, epsilon = 400.0, 200, 1.0
    planted = discrete_gaussian(scale * 0.99)
    delta = hockey_stick(planted, shift(planted, steps), epsilon)
    assert delta > gaussian_delta(epsilon, steps / scale) + discretisation_delta(1, scale, epsilon)


@pytest.mark.parametrize("scale", [2.0, 5.0, 31.5])
def test_the_likelihood_ratio_of_the_proof(scale: float) -> None:
    """|log(rounded / discrete) - (g^2 - 1) / (24 s^2)| <= theta + (1 + g^4) / (320 s^4), g = k / s."""
    with mpmath.workdps(40):
        s = mpmath.mpf(scale)
        total = mpmath.nsum(lambda k: mpmath.exp(-k * k / (2 * s * s)), [-mpmath.inf, mpmath.inf])
        theta = mpmath.mpf("2.1") * mpmath.exp(-2 * mpmath.pi**2 * s * s)
        for k in {0, 1, 2, round(scale), round(3 * scale), round(8 * scale)}:
            rounded = mpmath.quad(lambda x: mpmath.npdf(x, 0, s), [k - 0.5, k, k + 0.5])
            g = k / s
            ratio = mpmath.log(rounded * total * mpmath.exp(k * k / (2 * s * s)))
            remainder = abs(ratio - (g * g - 1) / (24 * s * s))
            assert remainder <= theta + (1 + g**4) / (320 * s**4)
            assert remainder > (1 + g**4) / (32000 * s**4), "a bound a hundred times tighter must fail"


@settings(max_examples=200, deadline=None)
@given(
    st.integers(1, 50_000),
    st.floats(min_value=1.0, max_value=60.0).map(lambda bits: 2.0**bits),
    st.floats(min_value=0.0, max_value=100.0),
)
def test_the_price_falls_with_the_scale_and_rises_with_the_coordinates(
    coordinates: int, scale: float, epsilon: float
) -> None:
    price = discretisation_delta(coordinates, scale, epsilon)
    assert 0 < discretisation_delta(coordinates, scale * 1.5, epsilon) <= price <= 1
    assert discretisation_delta(coordinates + 1, scale, epsilon) >= price


def test_the_price_at_the_smallest_scale_is_what_its_comment_says() -> None:
    assert discretisation_delta(500, GAUSSIAN_STEPS_MIN, 1.0) < 1e-8
    assert discretisation_delta(860, 2.0**22, 1.0) < 1e-11
    assert discretisation_delta(1, 1.0, 1.0) == 1.0


@pytest.mark.parametrize("arguments", [(0, 1e6, 1.0), (1, 0.0, 1.0), (1, math.nan, 1.0), (1, 1e6, -1.0)])
def test_the_price_refuses_nonsense(arguments: tuple[int, float, float]) -> None:
    with pytest.raises(ValueError, match="must be"):
        discretisation_delta(*arguments)
