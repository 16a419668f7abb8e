"""Plans in plain words: what was counted, of how many simulated studies, and the interval that they leave."""

import math
from typing import TYPE_CHECKING

from scipy.special import betaincinv

from tacit.planning.questions import population_of

if TYPE_CHECKING:
    from tacit.planning.curve import Crossing, CurvePoint, PowerCurve
    from tacit.planning.simulation import Planned

Interval = tuple[float, float]

ERROR = 0.05
"""Error probability of every interval that a plan states."""


def exact_interval(found: int, runs: int) -> Interval:
    """Return Clopper and Pearson's interval of confidence .95 for a probability, from ``found`` of ``runs``.

    It covers with that probability at least, whatever the truth; and where all or none were found it has a
    width (Biometrika 26, 1934).

    >>> low, high = exact_interval(18, 18)
    >>> round(low, 3), high
    (0.815, 1.0)
    """
    low = float(betaincinv(found, runs - found + 1, ERROR / 2)) if found else 0.0
    high = float(betaincinv(found + 1, runs - found, 1 - ERROR / 2)) if found < runs else 1.0
    return low, high


def percent(share: float) -> str:
    """Write a share as a percentage of two digits."""
    return f"{float(f'{100 * share:.2g}'):g} %"


def number(value: float) -> str:
    """Write a number as people do: 2 000 000 and not 2e+06."""
    return f"{value:,.0f}".replace(",", " ") if value >= 10_000 else f"{value:.6g}"


def interval_words(interval: Interval, scale: float = 1.0) -> str:
    """Write an interval's ends to two digits of its width, rounded away from each other."""
    low, high = (scale * end for end in interval)
    digits = max(0, 1 - math.floor(math.log10(high - low))) if high > low else 3
    unit = 10**digits
    ends = math.floor(low * unit) / unit, math.ceil(high * unit) / unit
    return f"{ends[0]:g} to {ends[1]:g}"


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


def outcome_words(found: int, runs: int) -> str:
    """Say in how many simulated studies an effect was found, and how sure that is."""
    between = interval_words(exact_interval(found, runs))
    return f"in {found} of {runs} simulated studies (95 % interval {between})"


def error_words(procedure: str, error: float, runs: int, interval: Interval | None) -> str:
    """Say how far a release was off in so many simulated studies, and how sure that is."""
    said = population_of(procedure).off.format(percent(error))
    if interval is None:
        studies = "study, which leaves" if runs == 1 else "studies, which leave"
        return f"{said} in {runs} simulated {studies} no interval"
    between = interval_words(interval, 100)
    return f"{said} on average over {runs} simulated studies (95 % interval {between} %)"


def curve_words(curve: "PowerCurve") -> str:
    """Say a curve's two ends in a sentence."""
    first, last = curve.points[0], curve.points[-1]
    if curve.over == "epsilon":
        fixed, places = units_words(curve.n or ()), [f"at epsilon {point.at:g}" for point in (first, last)]
    else:
        fixed = f"epsilon {curve.epsilon:g}"
        places = [f"with {number(point.at)} units of each owner" for point in (first, last)]
    if curve.measure == "error":
        off = [
            error_words(curve.procedure, point.value, curve.runs, point.interval) for point in (first, last)
        ]
        return f"With {fixed}, {places[0]}, {off[0]}; {places[1]}, {off[1]}."
    often = [_often(curve, point) for point in (first, last)]
    return f"With {fixed} the test finds {curve.effect} {often[0]} {places[0]}, and {often[1]} {places[1]}."


def _often(curve: "PowerCurve", point: "CurvePoint") -> str:
    if point.refused:
        return "never, because such a study is refused,"
    return outcome_words(round(point.value * curve.runs), curve.runs)


def target_words(curve: "PowerCurve", target: float, reached: "Crossing | None") -> str:
    """Say where a curve reaches a target; nothing is said of what was not simulated."""

    def place(at: float) -> str:
        return f"epsilon {at:.3g}" if curve.over == "epsilon" else f"{number(round(at))} units"

    aim = f"A power of {target:g}" if curve.measure == "power" else f"An error of {percent(target)}"
    if reached is None:
        return f"{aim} is not reached: {place(curve.points[-1].at)} is the most that was simulated."
    if reached.above is None:
        return f"{aim} is reached at {place(reached.at)} or below, the least that was simulated."
    between = f"between {place(reached.above)} and {place(reached.until)}"
    return f"{aim} is reached at about {place(reached.at)}, by the fitted curve {between}."
