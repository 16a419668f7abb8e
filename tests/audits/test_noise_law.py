"""The noise has the law that it states: drawn alone, and in what a procedure hands out."""

from typing import get_args

import numpy as np
import numpy.typing as npt
import pytest
from audited_procedures import CASES
from long_runs import LONG
from mechanism_cases import MECHANISMS, NO_SAMPLER, TooNarrow
from release_audit import Floats, Recorder, ReleaseCase, release, summarise

from tacit.testing.noise_law import DRAWS_MIN, LEVEL, variance, wrong_in, wrong_in_counts
from tacit_protocol.privacy import noise as source
from tacit_protocol.privacy.guarantee import MechanismEvent
from tacit_protocol.privacy.noise import NoiseSource, OpenDPNoise
from tacit_protocol.procedures.base import planned
from tacit_protocol.procedures.discovery import procedure_named

pytestmark = pytest.mark.timeout(1800)

SCALE = 2.0**20
FAR = 2**60
"""A value near the end of the room, where noise that saturated would lose its law."""

NUMBERS_MIN = 1 if LONG else 60
"""Fewest numbers of a release that is looked at: of small ones it takes thousands, left to ``make audit``."""


def _shows_noise(case: ReleaseCase) -> bool:
    """Decisions and choices do not; other files audit theirs. Nor do counts between cuts drawn anew.

    K-norm noise, whose coordinates have each another law, is enumerated in test_k_norm_mechanism.py.
    """
    exact = release(case.study, case.neighbours(0)[0])
    told = any(vector.noise in DRAWS_MIN for vector in exact.vectors.values())
    return told and not exact.cuts


LARGE = [
    name
    for name, case in CASES.items()
    if procedure_named(case.study.procedure).release_size(case.study) >= NUMBERS_MIN and _shows_noise(case)
]


DISCRETE_DRAWS = {"gaussian": 45_000, "laplace": 100_000}
"""With which a discrete law 5 % off is missed with a chance below 1e-12, by the noncentral chi-square."""


class OneDrawForAll:
    """The planted mistake: one draw of the noise serves every coordinate."""

    def gaussian(self, values: npt.NDArray[np.int64], scale: float) -> npt.NDArray[np.int64]:
        return values + (OpenDPNoise().gaussian(values[:1], scale) - values[0])

    laplace = gaussian


def drawn(noise: NoiseSource, mechanism: str, draws: int, scale: float, value: int = 0) -> Floats:
    start = np.full(draws, value, dtype=np.int64)
    moved: npt.NDArray[np.int64] = getattr(noise, mechanism)(start, scale) - start
    return moved / scale


def methods(source: type) -> set[str]:
    return {name for name in vars(source) if not name.startswith("_")}


def test_every_mechanism_is_audited() -> None:
    events = {get_args(event.model_fields["mechanism"].annotation)[0] for event in event_types()}
    assert methods(NoiseSource) == set(MECHANISMS)
    assert events == set(MECHANISMS) | set(NO_SAMPLER)
    assert all(case.mechanism == name for name, cases in MECHANISMS.items() for case in cases.values())


def event_types() -> tuple[type, ...]:
    union, _ = get_args(MechanismEvent)
    return get_args(union)


@pytest.mark.sweep(2)
@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("value", [0, -FAR])
def test_noise_has_its_law_wherever_it_is_added(mechanism: str, value: int) -> None:
    assert wrong_in(mechanism, drawn(OpenDPNoise(), mechanism, DRAWS_MIN[mechanism], SCALE, value)) == []


@pytest.mark.sweep(2)
@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("factor", [0.95, 1.05])
def test_noise_five_percent_off_is_caught(mechanism: str, factor: float) -> None:
    noise = TooNarrow(OpenDPNoise(), factor)
    assert "variance" in wrong_in(mechanism, drawn(noise, mechanism, DRAWS_MIN[mechanism], SCALE))


@pytest.mark.parametrize(("right", "other"), [("gaussian", "laplace"), ("laplace", "gaussian")])
def test_noise_of_another_shape_and_the_right_variance_is_caught(right: str, other: str) -> None:
    spread = 2**0.5 if other == "gaussian" else 0.5**0.5
    noise = drawn(OpenDPNoise(), other, DRAWS_MIN[right], SCALE) * spread
    found = wrong_in(right, noise)
    if (
        other == "laplace"
    ):  # its variance scatters more than that of Gaussian noise, and is called wrong at times
        found = [name for name in found if name != "variance"]
    assert found == ["cells"]


@pytest.mark.sweep(3)
@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("factor", [0.95, 1.0, 1.05])
def test_noise_is_the_discrete_law_not_the_rounded_one(
    mechanism: str, factor: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At two steps the two differ: every integer from -4 to 4 has the discrete law's probability.

    The source draws nothing so narrow for a release; here its limits are lifted to see the sampler's law.
    """
    monkeypatch.setattr(source, "DISCRETISATION_SHARE", 1.0)
    monkeypatch.setattr(source, "LAPLACE_STEPS_MIN", 0)
    scale, runs = 2.0, DISCRETE_DRAWS[mechanism]
    steps = np.arange(-200, 201)
    exponents = steps**2 / (2 * scale**2) if mechanism == "gaussian" else abs(steps) / scale
    weights = np.exp(-exponents)
    noise = (drawn(OpenDPNoise(), mechanism, runs, scale * factor) * scale * factor).round().astype(int)
    counts = np.array([np.sum(noise == step) for step in range(-4, 5)])
    expected = (weights / weights.sum())[196:205]
    assert wrong_in_counts(expected, np.append(counts, runs - counts.sum())) == (factor != 1.0)


def noise_of(case: ReleaseCase, noise: NoiseSource) -> dict[tuple[str, str], Floats]:
    """The noise on repeated releases, in stated scales, by mechanism and vector; enough for ``wrong_in``.

    Where exact numbers depend on noise that is drawn first, they are those of each release's own draw.
    """
    procedure, table = procedure_named(case.study.procedure), case.neighbours(0)[0]
    exact = release(case.study, table)
    summary = summarise(case.study, table)
    numbers: dict[str, int] = {}
    for vector in exact.vectors.values():
        if vector.noise in DRAWS_MIN:
            numbers[vector.noise] = numbers.get(vector.noise, 0) + len(vector.values)
    releases = max(DRAWS_MIN[mechanism] // count + 1 for mechanism, count in numbers.items())
    found: dict[tuple[str, str], list[Floats]] = {}
    for _ in range(releases):
        adapted = planned(procedure, case.study).adapt(summary, noise)
        own = procedure.privatise(case.study, adapted, Recorder()).vectors if adapted is not summary else {}
        for name, vector in procedure.privatise(case.study, adapted, noise).vectors.items():
            if vector.noise not in DRAWS_MIN:
                continue
            before = own.get(name, exact.vectors[name])
            if before.values == vector.values:  # drawn first, and held by the summary
                before = exact.vectors[name]
            steps = np.array(vector.values, dtype=np.int64) - np.array(before.values)
            part = np.ldexp(steps.astype(np.float64), vector.exponent) / vector.scale
            found.setdefault((vector.noise, name), []).append(part)
    return {key: np.concatenate(parts) for key, parts in found.items()}


def wrong_in_release(case: ReleaseCase, noise: NoiseSource) -> list[str]:
    """What is wrong with the noise of a whole release, and in which of its vectors."""
    drawn_noise = noise_of(case, noise)
    wrong = [
        f"{name}: variance" for (kind, name), part in drawn_noise.items() if variance(kind, part) < LEVEL
    ]
    for mechanism in {kind for kind, _ in drawn_noise}:
        together = np.concatenate([part for (kind, _), part in drawn_noise.items() if kind == mechanism])
        wrong += wrong_in(mechanism, together)
    return wrong


@pytest.mark.sweep(3)
@pytest.mark.parametrize("name", LARGE)
def test_a_release_carries_the_noise_that_it_states(name: str) -> None:
    assert wrong_in_release(CASES[name], OpenDPNoise()) == []


@pytest.mark.sweep(1)
@pytest.mark.parametrize("noise", [TooNarrow(OpenDPNoise(), 0.95), TooNarrow(OpenDPNoise(), 1.05)])
def test_a_release_with_noise_five_percent_off_is_caught(noise: NoiseSource) -> None:
    assert "variance" in wrong_in_release(CASES["kernel_two_sample: ME, wide"], noise)


def test_a_release_that_draws_once_for_all_its_numbers_is_caught() -> None:
    assert "correlation" in wrong_in_release(CASES["kernel_two_sample: ME, wide"], OneDrawForAll())
