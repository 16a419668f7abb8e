"""Plans in plain words."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tacit.planning.curve import PowerCurve
    from tacit.planning.simulation import Planned


ERRORS = {
    "noisy_counts": "the worst cell of a table is off by {} of its units",
    "embedding_release": "a column's mean or shares are off by {} of the range, one with another",
}
"""What the error of a release is, by procedure."""


def percent(share: float) -> str:
    """Write a share as a percentage of two digits."""
    return f"{float(f'{100 * share:.2g}'):g} %"


def number(value: float) -> str:
    """Write a number as people do: 2 000 000 and not 2e+06."""
    return f"{value:,.0f}".replace(",", " ") if value >= 10_000 else f"{value:.6g}"


def units_words(n: tuple[int, ...]) -> str:
    """Say how many units the owners have."""
    if len(n) == 1:
        return f"{number(n[0])} units"
    if len(set(n)) == 1:
        return f"{number(n[0])} units each"
    return f"{', '.join(number(units) for units in n[:-1])} and {number(n[-1])} units"


def setting_words(plan: "Planned") -> str:
    """Say what a study has: the beginning of a sentence."""
    return f"With {units_words(plan.n)} and epsilon {plan.epsilon:g}"


def outcome_words(effect: str, share: float, low: float, high: float) -> str:
    """Say how often an effect is found, of 100 studies, and how sure that is."""
    between = f"between {100 * low:.0f} and {100 * high:.0f}, as far as this simulation tells"
    return f"{effect} in {100 * share:.0f} of 100 studies ({between})"


def curve_words(curve: "PowerCurve") -> str:
    """Say a curve's two ends in a sentence."""
    first, last = curve.points[0], curve.points[-1]
    if curve.over == "epsilon":
        fixed, places = units_words(curve.n or ()), [f"at epsilon {point.at:g}" for point in (first, last)]
    else:
        fixed = f"epsilon {curve.epsilon:g}"
        places = [f"with {number(point.at)} units of each owner" for point in (first, last)]
    if curve.measure == "error":
        off = ERRORS[curve.procedure].format(f"{percent(first.value)}")
        return f"With {fixed} {off} {places[0]}, and by {percent(last.value)} {places[1]}."
    often = [f"in {100 * point.value:.0f} of 100 studies" for point in (first, last)]
    return f"With {fixed} the test finds {curve.effect} {often[0]} {places[0]}, and {often[1]} {places[1]}."


def target_words(curve: "PowerCurve", target: float, reached: float | None) -> str:
    """Say where a curve reaches a target."""
    aim = f"{100 * target:.3g} of 100" if curve.measure == "power" else f"An error of {percent(target)}"
    if reached is None:
        return f"{aim} is not reached here."
    where = f"epsilon {reached:.2g}" if curve.over == "epsilon" else f"{number(round(reached))} units"
    return f"{aim} is reached at about {where}."
