"""`tacit plan power`, `curve`, `smallest` and `choice`: any procedure, by whole simulated studies."""
# ruff: noqa: PLC0415 (imports wait until a command runs, so that --help is quick)

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from tacit.command.output import Json
from tacit.command.plan_question import Planning

if TYPE_CHECKING:
    from tacit.planning.simulation import Plan
    from tacit.planning.words import Interval

Over = Annotated[Literal["epsilon", "n"], typer.Option(help="What is varied.")]
Target = Annotated[
    float | None, typer.Option(help="Power to be reached, .8 by default; or an error not to be exceeded.")
]


def power(planning: Planning, *, as_json: Json = False) -> None:
    """Estimate how often a study would find an effect; of a release, how exact it is."""
    from dataclasses import asdict

    from tacit.command.output import lines, print_json, progress
    from tacit.planning.simulation import simulate

    with progress("simulating studies", quiet=as_json) as report:
        plan = simulate(
            planning.question,
            planning.setting,
            runs=planning.runs,
            seed=planning.seed,
            progress=report,
        ).plan()
    if as_json:
        print_json(asdict(plan) | {"words": plan.words()})
        return
    lines(plan.words(), *_details(plan))


def curve(
    planning: Planning,
    *,
    over: Over = "epsilon",
    value: Annotated[list[float] | None, typer.Option(help="Where; give it for each point.")] = None,
    target: Target = None,
    picture: Annotated[Path | None, typer.Option(help="Also draw the curve: an .svg file.")] = None,
    as_json: Json = False,
) -> None:
    """Simulate how power (or the error of a release) grows with epsilon or with the number of units."""
    from dataclasses import asdict

    from tacit.command.output import lines, print_json, progress, table, write_file
    from tacit.errors import InputError
    from tacit.planning import curve as curves
    from tacit.planning.smallest import TARGET, require_target
    from tacit.whole_files import require_writable

    if picture is not None:
        if picture.suffix.lower() != ".svg":
            raise InputError("--picture: the picture is SVG; name a file that ends in .svg")
        require_writable(picture)
    if target is not None:
        require_target(target, planning.question.measure)
    with progress("simulating studies", quiet=as_json) as report:
        found = curves.curve(
            planning.question,
            over,
            planning.setting,
            values=value,
            runs=planning.runs,
            seed=planning.seed,
            progress=report,
        )
    aim = TARGET if target is None and found.measure == "power" else target
    if picture is not None:
        write_file(picture, found.svg(aim).encode())
    if as_json:
        print_json(asdict(found) | {"words": found.words(aim)})
        return
    rows = [
        (
            f"{point.at:g}",
            f"{point.value:.3g}",
            "refused" if point.refused else _between(point.interval),
            f"{point.fitted:.3g}",
        )
        for point in found.points
    ]
    table([over, found.measure, "95 % interval", "monotone"], rows)
    lines(found.words(aim), f"  {found.procedure}: {found.effect}; {found.runs} simulated studies a point")


def smallest(planning: Planning, *, over: Over = "n", target: Target = None, as_json: Json = False) -> None:
    """Find the smallest epsilon, or the fewest units of each owner, that reach a target."""
    from dataclasses import asdict

    from tacit.command.output import lines, print_json, progress
    from tacit.errors import InputError
    from tacit.planning import smallest as search

    if target is None and planning.question.measures_error:
        raise InputError("say which error is small enough: --target .01")
    with progress("simulating studies", quiet=as_json) as report:
        found = search.smallest(
            planning.question,
            over,
            planning.setting,
            target=search.TARGET if target is None else target,
            runs=planning.runs,
            seed=planning.seed,
            progress=report,
        )
    if as_json:
        print_json(asdict(found) | {"words": found.words()})
        return
    lines(found.words(), *_details(found.plan))


def choice(
    planning: Planning,
    *,
    candidate: Annotated[
        list[str] | None, typer.Option(help='Parameters to try, as JSON: {"bandwidth": 0.3}.')
    ] = None,
    as_json: Json = False,
) -> None:
    """Find the number of features, the bandwidth or the method that is best for an effect."""
    from dataclasses import asdict

    from tacit.command.output import lines, print_json, progress, table
    from tacit.planning.choices import choose, parameters_words

    with progress("simulating studies", quiet=as_json) as report:
        found = choose(
            planning.question,
            planning.setting,
            candidates=None if candidate is None else _candidates(candidate),
            runs=planning.runs,
            seed=planning.seed,
            progress=report,
        )
    if as_json:
        print_json(asdict(found) | {"words": found.words()})
        return
    rows = [
        (
            parameters_words(tried.parameters),
            "" if tried.value is None else f"{tried.value:.3g}",
            "refused" if tried.value is None else _between(tried.interval),
        )
        for tried in found.tried
    ]
    table(["parameters", planning.question.measure, "95 % interval"], rows)
    lines(found.words(), *_details(found.plan))


def _between(interval: "Interval | None") -> str:
    from tacit.planning.words import interval_words

    return "" if interval is None else interval_words(interval)


def _details(plan: "Plan") -> Sequence[str]:
    said = [f"  {plan.procedure}: delta {plan.delta:g}, level {plan.alpha:g}; {plan.runs} simulated studies"]
    return [*said, *(f"Warning: {warning}" for warning in plan.warnings)]


def _candidates(texts: Sequence[str]) -> list[dict[str, Any]]:
    import json

    from tacit.errors import InputError

    try:
        read = [json.loads(text) for text in texts]
    except (ValueError, RecursionError):
        raise InputError('--candidate: write JSON, such as {"features": "me", "n_features": 20}') from None
    if not all(isinstance(parameters, dict) for parameters in read):
        raise InputError('--candidate: write a JSON object, such as {"features": "me", "n_features": 20}')
    return read
