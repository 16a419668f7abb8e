"""Power, or error, over a range of budgets or of numbers of units: a curve by simulation, made monotone."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from html import escape
from typing import Literal

import numpy as np

from tacit.errors import InputError
from tacit.planning.questions import Question
from tacit.planning.simulation import (
    Floats,
    Interval,
    Setting,
    SimulatedAnswers,
    error_words,
    number,
    or_nothing,
    outcome_words,
    percent,
    sizes_of,
    units_words,
)
from tacit_protocol.procedures.base import Progress
from tacit_protocol.procedures.populations import Measure
from tacit_protocol.terminal import printable

WIDTH, HEIGHT = 560, 340
LEFT, RIGHT, TOP, BOTTOM = 62, 20, 46, 52

TICKS_MAX = 8
"""Most labels along the bottom; of more points some are left out."""

Scale = Callable[[float], float]


def curve_svg(curve: "PowerCurve", target: float | None = None) -> str:
    """Return a curve as SVG, with a text for screen readers; whiskers are intervals of confidence .95."""
    heights = [p.value if p.interval is None else p.interval[1] for p in curve.points]
    high = 1.0 if curve.measure == "power" else 1.1 * max(*heights, target or 0.0, 1e-9)
    logs = [math.log(point.at) for point in curve.points]
    low_x, span = logs[0], (logs[-1] - logs[0]) or 1.0

    def across(at: float) -> float:
        return LEFT + (math.log(at) - low_x) / span * (WIDTH - LEFT - RIGHT)

    def down(value: float) -> float:
        return TOP + (1 - min(high, max(0.0, value)) / high) * (HEIGHT - TOP - BOTTOM)

    title, said = heading(curve), curve.words(target)
    fixed = f"epsilon {curve.epsilon:g}" if curve.n is None else units_words(curve.n)
    under = (
        f"{fixed}, delta {curve.delta:g}, level {curve.alpha:g}; {curve.runs} simulated studies a point, "
        "whiskers: 95 % intervals"
    )
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" '
            f'viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{_text(f"{title}. {said}")}" '
            'font-family="sans-serif" font-size="12" fill="#222">',
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
            f'<text x="{LEFT}" y="18" font-size="13">{_text(title)}</text>',
            f'<text x="{LEFT}" y="35" font-size="11" fill="#555">{_text(under)}</text>',
            *_rows(high, down),
            *_columns(curve, across),
            *_target(target, high, down),
            *_marks(curve, across, down),
            "</svg>",
        ]
    )


def heading(curve: "PowerCurve") -> str:
    """Say in a line what the picture shows."""
    return f"{curve.measure.capitalize()} of {curve.procedure} for {curve.effect}"


def _rows(high: float, down: Scale) -> list[str]:
    parts = []
    for step in range(6):
        value = high * step / 5
        y = f"{down(value):.1f}"
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}" stroke="#ddd"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{down(value) + 4:.1f}" text-anchor="end">{value:.2g}</text>')
    return parts


def _columns(curve: "PowerCurve", across: Scale) -> list[str]:
    every = -(-len(curve.points) // TICKS_MAX)
    parts = [
        f'<text x="{across(point.at):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">'
        f"{number(point.at)}</text>"
        for point in curve.points[::every]
    ]
    name = "epsilon" if curve.over == "epsilon" else "units of each owner"
    middle = (LEFT + WIDTH - RIGHT) / 2
    return [*parts, f'<text x="{middle}" y="{HEIGHT - 12}" text-anchor="middle">{name}</text>']


def _target(target: float | None, high: float, down: Scale) -> list[str]:
    if target is None or not 0 <= target <= high:
        return []
    y = f"{down(target):.1f}"
    return [
        f'<line class="target" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}" stroke="#a33" '
        'stroke-dasharray="5 4"/>'
    ]


def _marks(curve: "PowerCurve", across: Scale, down: Scale) -> list[str]:
    line = " ".join(f"{across(p.at):.1f},{down(p.fitted):.1f}" for p in curve.points)
    parts = [f'<polyline class="fit" points="{line}" fill="none" stroke="#4878a8" stroke-width="2"/>']
    for point in curve.points:
        x, (low, high) = f"{across(point.at):.1f}", point.interval or (point.value, point.value)
        parts.append(
            f'<line class="interval" x1="{x}" x2="{x}" y1="{down(low):.1f}" y2="{down(high):.1f}" '
            'stroke="#222"/>'
        )
        parts.append(
            f'<circle class="point" cx="{x}" cy="{down(point.value):.1f}" r="3.5" fill="#4878a8">'
            f"<title>{number(point.at)}: {point.value:.3g}</title></circle>"
        )
    return parts


def _text(text: str) -> str:
    return escape(printable(text), quote=True)


Over = Literal["epsilon", "n"]

EPSILONS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
UNITS = (200, 500, 1000, 2000, 5000, 10_000, 20_000)
UNITS_AT_ONCE = (100, 200, 500, 1000, 2000)
"""Where curves are drawn by default; less far where the time grows with the square of the units."""

REACH: Mapping[Over, tuple[float, float]] = {"epsilon": (0.01, 20.0), "n": (20, 50_000)}
"""How far a curve goes of itself to find where a target is reached."""

REACH_AT_ONCE = 5000
"""The most units there, where the time grows with their square."""

STRIDE, CLOSE = 2.5, 1.5
"""Ratio of one more place to the last one; and that of two neighbours between which a target lies close."""

MORE_MAX = 4
"""Most places that a curve gets beyond the usual ones."""

POINTS_MAX = 50


@dataclass(frozen=True)
class CurvePoint:
    """One point of a curve.

    Attributes:
        at: epsilon, or the number of units of each owner.
        value: the simulated power, or error.
        interval: of confidence .95 for it; None of an error that was the same in all simulated studies.
        fitted: the monotone curve there.
        refused: whether the procedure takes no such study, so that there is no power, and nothing was run.
    """

    at: float
    value: float
    interval: Interval | None
    fitted: float
    refused: bool = False


@dataclass(frozen=True)
class Crossing:
    """Where a curve reaches a target.

    Attributes:
        at: the place, or the least that was simulated.
        above: the place before, where the target is not reached yet; None where there is none: the target may
            be reached below ``at`` too.
        until: the place after, where it is reached.
    """

    at: float
    above: float | None
    until: float


@dataclass(frozen=True)
class PowerCurve:
    """How power, or the error of a release, changes with the budget or with the number of units.

    Attributes:
        over: "epsilon" or "n".
        measure: "power" or "error".
        points: the points simulated, in order.
        runs: simulated studies of each point.
        n: units of each owner, where the curve is over epsilon; else None.
        epsilon: what every owner would spend, where the curve is over n; else None.
        delta: what every owner would spend.
        alpha: level of the test.
        procedure: its name.
        effect: what a study should find, in words.
    """

    over: Over
    measure: Measure
    points: tuple[CurvePoint, ...]
    runs: int
    n: tuple[int, ...] | None
    epsilon: float | None
    delta: float
    alpha: float
    procedure: str
    effect: str

    def svg(self, target: float | None = None) -> str:
        """Draw the curve, and a line at the target, as SVG with a text for screen readers."""
        return curve_svg(self, target)

    def words(self, target: float | None = None) -> str:
        """Say in plain words what the curve shows, and where it reaches a target."""
        if target is None:
            return curve_words(self)
        places, fitted = [p.at for p in self.points], [p.fitted for p in self.points]
        reached = crossing(places, fitted, target, self.measure)
        return f"{curve_words(self)} {target_words(self, target, reached)}"


@dataclass
class CurveSimulation:
    """A curve while it is simulated; ``done`` has what the studies of each place answered so far."""

    question: Question
    over: Over
    setting: Setting
    done: dict[float, SimulatedAnswers] = field(default_factory=dict)

    def extend(
        self, places: Sequence[float], seeds: Sequence[int | None], *, runs: int, progress: Progress
    ) -> None:
        """Simulate ``runs`` more studies by each seed at each place; an error on the way adds nothing.

        Raises:
            InputError: the inputs do not fit together.
        """

        def simulated(place: float, seed: int | None) -> SimulatedAnswers:
            there = at(self.question, self.setting, self.over, place)
            return or_nothing(self.question, there, runs=runs, seed=seed, progress=progress)

        more = {
            place: reduce(SimulatedAnswers.with_more, [simulated(place, seed) for seed in seeds])
            for place in places
        }
        for place, new in more.items():
            self.done[place] = self.done[place].with_more(new) if place in self.done else new

    def curve(self) -> PowerCurve:
        """Return the curve of what was simulated, which is as much at each place."""
        places = sorted(self.done)
        answers = [self.done[place] for place in places]
        question, setting = self.question, answers[0].setting
        fitted = monotone(
            [one.mean for one in answers], [1.0] * len(answers), falling=question.measures_error
        )
        return PowerCurve(
            over=self.over,
            measure=question.measure,
            points=tuple(
                CurvePoint(place, one.mean, one.interval, float(fit), bool(one.refused))
                for place, one, fit in zip(places, answers, fitted, strict=True)
            ),
            runs=len(answers[0].values),
            n=None if self.over == "n" else setting.n,
            epsilon=None if self.over == "epsilon" else setting.epsilon,
            delta=setting.delta,
            alpha=setting.alpha,
            procedure=question.study.procedure,
            effect=question.effect_words(),
        )


def simulate_curve(
    question: Question,
    over: Over,
    setting: Setting,
    *,
    values: Sequence[float] | None,
    runs: int,
    seed: int | None,
    target: float | None = None,
    progress: Progress | None = None,
) -> PowerCurve:
    """Simulate a curve; what the setting says of ``over`` is not used.

    Where no values are given, the usual places are simulated; with a target some more, to where it is
    reached, and between neighbours that are far apart there.

    Raises:
        InputError: the inputs do not fit together.
    """
    places, found = places_of(question, over, values), CurveSimulation(question, over, setting)
    more_max = MORE_MAX if values is None and target is not None else 0
    count = len(places) + more_max

    def simulated(place: float) -> None:
        def report(part: float, step: str) -> None:
            if progress is not None:
                progress((len(found.done) + part) / count, f"{over} = {place:g}: {step}")

        found.extend([place], [seed], runs=runs, progress=report)

    for place in places:
        simulated(place)
    reach = reach_of(question, over)
    for _ in range(more_max):
        more = next_place(found.done, target or 0.0, reach)
        if more is None:
            break
        simulated(more)
    return found.curve()


def reach_of(question: Question, over: Over) -> tuple[float, float]:
    """Return the least and the largest place to which a curve goes of itself."""
    least, most = REACH[over]
    return least, min(most, REACH_AT_ONCE) if over == "n" and question.procedure.pairwise else most


def next_place(
    done: Mapping[float, SimulatedAnswers], target: float, reach: tuple[float, float]
) -> float | None:
    """Return where one more simulation says most about where a target is reached; None where it is known.

    That is beyond the end of the grid behind which the target lies, or else between the two places around it,
    if they are far apart.
    """
    places = sorted(done)
    measure = done[places[0]].question.measure
    means = [done[place].mean for place in places]
    fitted = monotone(means, [1.0] * len(means), falling=measure == "error")
    found = crossing(places, [float(value) for value in fitted], target, measure)
    if found is None:
        place = min(STRIDE * places[-1], reach[1])
    elif found.above is None:
        place = max(places[0] / STRIDE, reach[0])
    elif found.until > CLOSE * found.above:
        place = math.sqrt(found.until * found.above)
    else:
        return None
    rounded = float(f"{place:.2g}")
    return rounded if reach[0] <= rounded <= reach[1] and rounded not in done else None


def places_of(question: Question, over: Over, values: Sequence[float] | None) -> list[float]:
    """Return where a curve is simulated, in order.

    Raises:
        InputError: the values are none, too many, or not of the kind that ``over`` says.
    """
    if over not in ("epsilon", "n"):
        raise InputError('over must be "epsilon" or "n"')
    if values is None:
        units = UNITS_AT_ONCE if question.procedure.pairwise else UNITS
        return list(EPSILONS if over == "epsilon" else units)
    places = sorted(set(values))
    if not 1 <= len(places) <= POINTS_MAX or not all(0 < value < np.inf for value in places):
        raise InputError(f"give 1 to {POINTS_MAX} values, all of them positive")
    if over == "n" and any(value != int(value) for value in places):
        raise InputError("numbers of units are whole")
    return places


def at(question: Question, setting: Setting, over: Over, place: float) -> Setting:
    """Return the setting with this epsilon, or with so many units of every owner."""
    if over == "epsilon":
        return replace(setting, epsilon=place)
    return replace(setting, n=sizes_of(int(place), question))


def monotone(values: Sequence[float], weights: Sequence[float], *, falling: bool = False) -> Floats:
    """Return the weighted least-squares fit that never falls (or never rises), (n,): pool adjacent violators.

    The values are in the order in which the fit is to be monotone.
    """
    sign = -1.0 if falling else 1.0
    blocks: list[list[float]] = []
    for value, weight in zip(values, weights, strict=True):
        blocks.append([sign * value, weight, 1])
        while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
            mean, mass, count = blocks.pop()
            before, earlier, number = blocks[-1]
            total = earlier + mass
            blocks[-1] = [(before * earlier + mean * mass) / total, total, number + count]
    return sign * np.repeat([block[0] for block in blocks], [int(block[2]) for block in blocks])


def crossing(
    places: Sequence[float], fitted: Sequence[float], target: float, measure: Measure
) -> Crossing | None:
    """Return where a monotone curve reaches a target, between points on a logarithmic scale, or None.

    Nothing is extrapolated: at the first point the target may have been reached before.
    """
    sign = -1.0 if measure == "error" else 1.0
    reached = [sign * value >= sign * target for value in fitted]
    if True not in reached:
        return None
    index = reached.index(True)
    if index == 0:
        return Crossing(places[0], None, places[0])
    low, high = fitted[index - 1], fitted[index]
    part = (target - low) / (high - low)
    between = float(np.exp(np.log(places[index - 1]) * (1 - part) + np.log(places[index]) * part))
    return Crossing(between, places[index - 1], places[index])


def curve_words(curve: PowerCurve) -> str:
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


def _often(curve: PowerCurve, point: CurvePoint) -> str:
    if point.refused:
        return "never, because such a study is refused,"
    return outcome_words(round(point.value * curve.runs), curve.runs)


def target_words(curve: PowerCurve, target: float, reached: Crossing | None) -> str:
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
