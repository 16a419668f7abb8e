"""The samplers' law and limits, the price of discrete noise against exact enumeration, and private coins."""

import itertools
import math

import mpmath
import numpy as np
import numpy.typing as npt
import pytest

from tacit_protocol.privacy import laplace_mechanism, noise
from tacit_protocol.privacy.accounting import gaussian_delta
from tacit_protocol.privacy.gaussian_mechanism import SensitivityError, SumPart
from tacit_protocol.privacy.guarantee import EPSILON_MAX, Budget, Guarantee, LaplaceEvent
from tacit_protocol.privacy.k_norm_mechanism import ProductBody
from tacit_protocol.privacy.laplace_mechanism import LaplaceStatistic, StatisticError
from tacit_protocol.privacy.noise import (
    COIN_BITS,
    DISCRETISATION_SHARE,
    LAPLACE_STEPS_MIN,
    SCALE_MAX,
    SPARE_DRAWS,
    NoiseError,
    NoiseSource,
    OpenDPNoise,
    coin_steps,
    discretisation_delta,
    laplace_excess,
    laplace_multiplier,
    private_coin,
)
from tacit_protocol.procedures.counts import release as count_release

Floats = npt.NDArray[np.float64]


CUBE = ProductBody((1, 1))


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
def test_noise_is_fresh_and_leaves_its_input_alone(draw: str) -> None:
    values = np.zeros(8, dtype=np.int64)
    first = getattr(OpenDPNoise(), draw)(values, 2.0**40)
    second = getattr(OpenDPNoise(), draw)(values, 2.0**40)
    assert first.dtype == np.int64
    assert first.shape == (8,)
    assert not np.any(first == second)
    assert not np.any(values)


ENDS = (0, 2**61, -(2**61), 2**62 - 64, 2**63 - 1, -(2**63))


@pytest.mark.parametrize("draw", ["gaussian", "laplace", "k_norm"])
@pytest.mark.parametrize("scale", [2.0**12, SCALE_MAX / 4])
@pytest.mark.parametrize("value", ENDS)
def test_whatever_the_values_noise_is_drawn_and_added_modulo_two_to_the_64(
    draw: str, scale: float, value: int
) -> None:
    values = np.array([value, value], dtype=np.int64)
    more = (CUBE,) if draw == "k_norm" else ()
    noisy = getattr(OpenDPNoise(), draw)(values, scale, *more)
    assert noisy.dtype == np.int64
    drawn = (noisy.view(np.uint64) - values.view(np.uint64)).view(np.int64)
    assert np.all(np.abs(drawn) < 256 * scale)  # but with probability e**-60


@pytest.mark.parametrize("value", ENDS)
def test_whatever_the_scores_one_is_chosen(value: int) -> None:
    scores = np.array([value, 0], dtype=np.int64)
    chosen = OpenDPNoise().choose(scores, 1.0)
    assert chosen in ((0, 1) if value == 0 else (0 if value > 0 else 1,))  # but with probability e**-2**61


@pytest.mark.parametrize("draw", ["gaussian", "laplace", "choose", "k_norm"])
@pytest.mark.parametrize("value", ENDS)
def test_what_is_refused_follows_from_the_scale_alone(draw: str, value: int) -> None:
    more = (CUBE,) if draw == "k_norm" else ()
    for scale in (SCALE_MAX * 1.001, 2.0**57, 1e300):
        with pytest.raises(NoiseError, match="62 bits") as failure:
            getattr(OpenDPNoise(), draw)(np.array([0, value], dtype=np.int64), scale, *more)
        assert value == 0 or str(abs(value)) not in str(failure.value)


@pytest.mark.parametrize("scale", [0.0, -1.0, math.nan, math.inf, 2.0**57])
def test_scales_without_a_guarantee_are_refused(scale: float) -> None:
    for draw in (OpenDPNoise().gaussian, OpenDPNoise().laplace):
        with pytest.raises(NoiseError):
            draw(np.array([1], dtype=np.int64), scale)


def test_only_vectors_of_64_bit_integers_are_served() -> None:
    for values in (np.zeros((2, 2), np.int64), np.zeros(0, np.int64), np.zeros(2, np.int32), np.zeros(2)):
        with pytest.raises(NoiseError, match="64-bit"):
            OpenDPNoise().gaussian(values, 1.0)  # type: ignore[arg-type]


@pytest.mark.sweep(8)
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


def smallest_gaussian(coordinates: int) -> float:
    """The standard deviation, in grid steps, below which the noise source refuses."""
    low, high = 1.0, 2.0**16
    while high - low > 1e-6 * high:
        middle = (low + high) / 2
        price = discretisation_delta(coordinates, middle, EPSILON_MAX)
        low, high = (low, middle) if price <= DISCRETISATION_SHARE else (middle, high)
    return high


@pytest.mark.parametrize("coordinates", [1, 40, 36_000])
def test_gaussian_noise_that_no_delta_could_pay_for_is_refused(coordinates: int) -> None:
    values, scale = np.zeros(coordinates, dtype=np.int64), smallest_gaussian(coordinates)
    assert OpenDPNoise().gaussian(values, scale).shape == values.shape
    with pytest.raises(NoiseError, match="finer grid"):
        OpenDPNoise().gaussian(values, scale * (1 - 1e-5))


def test_the_smallest_gaussian_noise_keeps_its_claim_and_without_the_bound_there_is_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scale = smallest_gaussian(1)
    law = discrete_gaussian(scale)
    for steps, epsilon in itertools.product((1, 17, round(scale / 4), round(scale)), (0.0, 0.3, 1.0, 4.0)):
        continuous = gaussian_delta(epsilon, steps / scale)
        delta = hockey_stick(law, shift(law, steps), epsilon)
        assert delta <= continuous + DISCRETISATION_SHARE * (1 - continuous) + 1e-14
    coarse = 0.25
    with pytest.raises(NoiseError):
        OpenDPNoise().gaussian(np.zeros(1, dtype=np.int64), coarse)
    monkeypatch.setattr(noise, "DISCRETISATION_SHARE", 1.0)
    OpenDPNoise().gaussian(np.zeros(1, dtype=np.int64), coarse)
    law = discrete_gaussian(coarse)
    excess = hockey_stick(law, shift(law, 1), 6.0) - gaussian_delta(6.0, 1 / coarse)
    assert excess > 100 * DISCRETISATION_SHARE, "the planted removal of the bound must be seen"


def discrete_laplace_delta(scale: float, steps: int, epsilon: mpmath.mpf) -> mpmath.mpf:
    """The exact delta of discrete Laplace noise on integers ``steps`` apart, for |epsilon| <= steps/scale."""
    q = mpmath.exp(-1 / mpmath.mpf(scale))

    def below(k: int) -> mpmath.mpf:
        return 1 - q**k / (1 + q) if k > 0 else q ** (1 - k) / (1 + q)

    # Losses (steps - 2 j)/scale above epsilon are those of the integers j below:
    count = int(mpmath.ceil((steps - scale * epsilon) / 2))
    return below(count) - mpmath.exp(epsilon) * below(count - steps)


def laplace_curve(claimed: mpmath.mpf, epsilon: mpmath.mpf) -> mpmath.mpf:
    """The exact delta of continuous Laplace noise that is ``claimed``-private."""
    return max(mpmath.mpf(0), 1 - mpmath.exp((epsilon - claimed) / 2))


def discrete_laplace(scale: float) -> Floats:
    reach = math.ceil(45 * scale)
    weights = np.exp(-np.abs(np.arange(-reach, reach + 1)) / scale)
    return np.asarray(weights / math.fsum(weights))


@pytest.mark.parametrize(("scale", "steps"), [(0.7, 1), (1.0, 4), (3.3, 5), (20.0, 31), (64.0, 64)])
def test_the_closed_form_of_the_laplace_loss_is_that_of_enumeration(scale: float, steps: int) -> None:
    law = discrete_laplace(scale)
    for epsilon in np.linspace(-steps / scale, steps / scale, 23):
        found = float(discrete_laplace_delta(scale, steps, mpmath.mpf(float(epsilon))))
        assert found == pytest.approx(hockey_stick(law, shift(law, steps), float(epsilon)), abs=1e-13)


@pytest.mark.parametrize(("scale", "steps"), [(0.7, 1), (1.0, 2), (3.3, 5), (20.0, 31), (4096.0, 4096)])
def test_discrete_laplace_noise_is_dominated_from_the_proved_excess_on_and_not_before(
    scale: float, steps: int
) -> None:
    """Steps/scale + 2 log cosh(1/(2 scale)): met at the middle of every two losses, and nowhere passed."""
    with mpmath.workdps(60):
        b = mpmath.mpf(scale)
        excess = 2 * mpmath.log(mpmath.cosh(1 / (2 * b)))
        assert excess <= laplace_excess(scale)
        if scale >= 1:
            assert laplace_excess(scale) <= excess * (1 + 1 / (20 * scale**2))
        exact, short = steps / b + excess, steps / b + excess * mpmath.mpf("0.999")
        for j in {1, 2, steps // 2 + 1, steps}:
            middle = (steps - 2 * j + 1) / b
            met = discrete_laplace_delta(scale, steps, middle)
            assert abs(met - laplace_curve(exact, middle)) < mpmath.mpf(10) ** -50
            assert met > laplace_curve(short, middle)
            for away in np.linspace(-1, 1, 9):
                epsilon = middle + mpmath.mpf(float(away)) / b
                assert discrete_laplace_delta(scale, steps, epsilon) <= laplace_curve(exact, epsilon) + 1e-50


@pytest.mark.parametrize("scale", [1.0, 511.0, LAPLACE_STEPS_MIN * (1 - 1e-9)])
def test_laplace_noise_of_few_steps_is_refused_by_the_noise_source(scale: float) -> None:
    values = np.zeros(3, dtype=np.int64)
    with pytest.raises(NoiseError, match="finer grid"):
        OpenDPNoise().laplace(values, scale)
    assert OpenDPNoise().laplace(values, LAPLACE_STEPS_MIN).shape == (3,)
    assert laplace_excess(LAPLACE_STEPS_MIN) < 1.5e-8


class Drawn:
    """A noise source that adds nothing and keeps the scale that it was asked for."""

    def laplace(self, values: npt.NDArray[np.int64], scale: float) -> npt.NDArray[np.int64]:
        self.scale = scale
        return values

    def gaussian(self, values: npt.NDArray[np.int64], scale: float) -> npt.NDArray[np.int64]:
        raise AssertionError("Laplace noise alone")


def laplace_release(kind: str, bits: int, multiplier: float, source: NoiseSource) -> int:
    """Release on a grid of 2**-bits; returns the steps that one unit moves it by."""
    guarantee = Guarantee(budget=Budget.of(1, 0), events=(LaplaceEvent(noise_multiplier=multiplier),))
    values = np.zeros(1, dtype=np.int64)
    if kind == "counts":
        count_release.laplace_counts(values, bits, guarantee, source)
        return 2 << bits
    if kind == "sums":
        part = SumPart("mean", values, -bits, math.sqrt(2), 1.0, l1=2.0)
        laplace_mechanism.release_laplace_sums(part, guarantee, source)
        return 2 << bits
    # The grid of a statistic is as coarse as its largest value asks for.
    statistic = LaplaceStatistic(
        1.0, math.ldexp(1.0, laplace_mechanism.STEPS_MAX_BITS - 1 - bits), multiplier
    )
    statistic.release(0.0, source)
    assert statistic.bits == min(bits, laplace_mechanism.SENSITIVITY_BITS)
    return statistic.steps(statistic.bits)


def broken_claims(kind: str) -> list[tuple[int, float]]:
    """Grids and epsilons whose release loses more than its event's curve; what is refused loses nothing."""
    found = []
    for bits, epsilon in itertools.product(range(8, 21), (1e-6, 1e-3, 0.1, 1.0, 7.0, 100.0)):
        source, multiplier = Drawn(), laplace_multiplier(epsilon)
        try:
            steps = laplace_release(kind, bits, multiplier, source)
        except (SensitivityError, StatisticError):
            continue
        with mpmath.workdps(60):
            claimed = 1 / mpmath.mpf(multiplier)
            middles = [(steps - 2 * j + 1) / mpmath.mpf(source.scale) for j in (1, steps // 2, steps)]
            pairs = [
                (discrete_laplace_delta(source.scale, steps, at), laplace_curve(claimed, at))
                for at in middles
            ]
        if any(lost > curve for lost, curve in pairs):
            found.append((bits, epsilon))
    return found


@pytest.mark.parametrize("kind", ["counts", "sums", "statistic"])
def test_every_laplace_release_has_the_whole_curve_of_its_event_or_is_refused(kind: str) -> None:
    assert broken_claims(kind) == []


@pytest.mark.parametrize("kind", ["counts", "sums", "statistic"])
def test_releases_without_the_bound_on_the_grid_are_caught(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(laplace_mechanism, "laplace_grid_is_fine", lambda *_: True)
    assert (8, 100.0) in broken_claims(kind)


@pytest.mark.parametrize("kind", ["counts", "statistic"])
def test_noise_without_the_slack_is_caught(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noise, "LAPLACE_SLACK", -1e-12)
    assert (20, 1.0) in broken_claims(kind)


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


@pytest.mark.long
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
