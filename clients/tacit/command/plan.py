"""`tacit plan`: how much budget and how many rows a question needs. Public inputs only; spends nothing."""

# ruff: noqa: PLC0415 (imports wait until a command runs, so that --help is quick)

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from tacit.atomic_write import require_writable
from tacit.command import connect
from tacit.command.output import Json, answer, lines, print_json, progress, table, write_file
from tacit.errors import InputError
from tacit_protocol.decimals import read_number

if TYPE_CHECKING:
    from tacit.database.released import ReleasedDatabase
    from tacit.planning.questions import Question
    from tacit.planning.simulation import Interval, Plan, Setting
    from tacit_protocol.domain import Domain


UNITS, EPSILON, DELTA, ALPHA = 1000, 1.0, 1e-5, 0.05
"""What a curve or a search takes where it is not what is varied; power and choices must be told."""


@dataclass(frozen=True)
class Planning:
    """What the flags ask: a question, and the setting that they state."""

    question: "Question"
    setting: "Setting"
    runs: int
    seed: int | None


def flags(
    source: Annotated[
        str,
        typer.Argument(
            metavar="PROCEDURE|DRAFT.toml",
            help="A procedure, or a study's draft.",
            autocompletion=connect.procedures,
        ),
    ],
    *,
    n: Annotated[
        list[int] | None, typer.Option("--n", help="Units of each owner; once, or once for each owner.")
    ] = None,
    epsilon: Annotated[float | None, typer.Option(help="What every owner spends.")] = None,
    delta: Annotated[float | None, typer.Option(help="What every owner spends; 1e-5 by default.")] = None,
    alpha: Annotated[float | None, typer.Option("--level", help="Level of the test; .05 by default.")] = None,
    column: Annotated[
        list[str] | None, typer.Option(help="name:lower:upper or name=level,level; public bounds.")
    ] = None,
    cells: Annotated[
        list[int] | None, typer.Option(help="Of counts: number of cells; of a table, give it for each axis.")
    ] = None,
    probability: Annotated[
        list[float] | None, typer.Option(help="Of identity: each cell's known probability, in turn.")
    ] = None,
    row: Annotated[
        list[str] | None, typer.Option(help="Of counts: true probabilities, .4,.1; a table row by row.")
    ] = None,
    effect: Annotated[
        float | None,
        typer.Option(
            help="Standard deviations, a correlation, a distance, a risk difference or a hazard ratio; "
            "medium by default."
        ),
    ] = None,
    shift: Annotated[
        list[str] | None,
        typer.Option(help="column=amount added in the last sample, or in all groups but the first."),
    ] = None,
    scale: Annotated[
        list[str] | None, typer.Option(help="column=factor of the last sample's spread.")
    ] = None,
    quadratic: Annotated[bool, typer.Option("--quadratic", help="A dependence without correlation.")] = False,
    public: Annotated[
        Path | None,
        typer.Option(help="A PUBLIC sample (.csv or .parquet), which gets no protection. Never study data."),
    ] = None,
    group: Annotated[
        list[str] | None, typer.Option(help="column,column of one side of a dependence; give it for each.")
    ] = None,
    parameter: Annotated[list[str] | None, typer.Option(help="name=value, for the procedure.")] = None,
    curator: Annotated[bool, typer.Option("--curator", help="A curator holds both samples.")] = False,
    runs: Annotated[int, typer.Option(help="Simulated studies of each setting.", min=1)] = 100,
    seed: Annotated[int | None, typer.Option(help="Seed of the simulations.", min=0)] = None,
) -> Planning:
    """Read the flags."""
    # Loads NumPy and the statistics, which --help does without.
    from tacit.command.inputs import amounts, read_public
    from tacit.in_process.samples import read_samples
    from tacit.planning.questions import question_of_draft, units_of_draft
    from tacit.planning.simulation import Setting, sizes_of
    from tacit.studies.draft import StudyDraft
    from tacit_protocol.procedures.populations import SoughtEffect

    found = SoughtEffect(
        effect,
        amounts(shift) if shift else None,
        amounts(scale) if scale else None,
        "quadratic" if quadratic else "linear",
        _read_table(row),
    )
    if source.endswith(".toml"):
        about = (column, cells, probability, group, parameter)
        if any(about) or curator:
            raise InputError("a draft says its own columns and parameters: leave those flags out")
        draft = StudyDraft.from_toml(Path(source))
        names = [c.name for c in draft.columns]
        sample = None if public is None else read_samples([read_public(public, names)], names)[0]
        question = question_of_draft(draft, found, sample)
        units = n or units_of_draft(draft)
        chosen = (
            draft.epsilon if epsilon is None else epsilon,
            draft.delta if delta is None else delta,
            draft.level if alpha is None else alpha,
        )
    else:
        chosen = (
            EPSILON if epsilon is None else epsilon,
            DELTA if delta is None else delta,
            ALPHA if alpha is None else alpha,
        )
        units = n or [UNITS]
        asked = _read_question(source, column, cells, found, curator)
        parameters = _read_parameters(parameter, probability, group)
        question = _question_of(asked | {"parameters": parameters}, public, units, chosen)
    sizes = sizes_of(units[0] if len(units) == 1 else units, question)
    return Planning(question, Setting(sizes, *chosen), runs, seed)


def _question_of(
    asked: Mapping[str, Any], public: Path | None, units: list[int], chosen: tuple[float, float, float]
) -> "Question":
    from tacit.command.inputs import read_public
    from tacit.planning.questions import PlanRequest

    if public is not None:
        if asked["bounds"] is None:
            raise InputError("say the columns of the public sample, and their bounds: --column")
        asked = {**asked, "public": read_public(public, asked["columns"])}
    return PlanRequest(**asked).question(units[0] if len(units) == 1 else units, *chosen)


def _read_question(
    source: str, column: list[str] | None, cells: list[int] | None, effect: Any, curator: bool
) -> dict[str, Any]:
    from tacit.in_process.samples import domain_of
    from tacit.studies.draft import parse_columns

    bounds = parse_columns(column or [])
    return {
        "procedure": source,
        "bounds": domain_of(bounds, list(bounds)) if bounds else None,
        "columns": list(bounds) or None,
        "cells": cells[0] if cells and len(cells) == 1 else cells,
        "effect": effect,
        "setting": "curator" if curator else "owners",
    }


def _read_parameters(
    parameter: list[str] | None, probability: list[float] | None, group: list[str] | None
) -> dict[str, Any]:
    from tacit.studies.draft import parse_parameter

    found = dict(parse_parameter(text) for text in parameter or [])
    if probability:
        found["probabilities"] = probability
    if group:
        found["groups"] = [text.split(",") for text in group]
    return found


def _read_table(rows: list[str] | None) -> list[list[float]] | list[float] | None:
    if not rows:
        return None
    try:
        read = [[read_number(value) for value in text.split(",")] for text in rows]
    except ValueError:
        raise InputError("--row: write numbers with commas between them, such as .4,.1") from None
    if len({len(values) for values in read}) != 1:
        raise InputError("--row: rows must be of one length")
    return read if len(read) > 1 else read[0]


def with_flags(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command that takes the flags above and its own; it is handed what the first ask.

    Args:
        command: takes a :class:`Planning`, and its own flags by name.
    """
    shared = inspect.signature(flags).parameters
    own = list(inspect.signature(command).parameters.values())[1:]

    def run(**given: Any) -> None:
        planning = flags(**{name: given.pop(name) for name in shared})
        command(planning, **given)

    keyword = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in (*shared.values(), *own)]
    run.__doc__ = command.__doc__
    run.__signature__ = inspect.Signature(keyword)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in keyword}
    return run


RELEASE_ROWS = 1000
"""Rows of a release, by herding, on which locations are optimised."""


def locations(
    *,
    public: Annotated[
        Path | None, typer.Option(help="A public sample (.csv or .parquet), like the first owner's.")
    ] = None,
    release: Annotated[
        str | None,
        typer.Option(help="A private database in place of --public: a transcript or Parquet file."),
    ] = None,
    second: Annotated[
        Path | None, typer.Option(help="A public sample like the second owner's, in place of --shift.")
    ] = None,
    second_release: Annotated[
        str | None, typer.Option(help="A private database in place of --second.")
    ] = None,
    owner: Annotated[str | None, typer.Option(help="Whose database, where a release has several.")] = None,
    n: Annotated[list[int], typer.Option("--n", help="Units of each owner; once, or twice.")],
    column: Annotated[
        list[str] | None,
        typer.Option(help="name:lower:upper or name=level,level; those of the release by default."),
    ] = None,
    epsilon: Annotated[float, typer.Option(help="What every owner spends.")],
    delta: Annotated[float, typer.Option(help="What every owner spends.")] = 1e-5,
    alpha: Annotated[float, typer.Option("--level", help="Level of the test.")] = 0.05,
    shift: Annotated[list[str] | None, typer.Option(help="column=amount added in the second sample.")] = None,
    scale: Annotated[
        list[str] | None, typer.Option(help="column=factor of the second sample's spread.")
    ] = None,
    features: Annotated[
        Literal["me", "scf"], typer.Option(help="me: locations and bandwidth. scf: frequencies.")
    ] = "me",
    n_features: Annotated[
        int | None, typer.Option(help="Number of features; chosen where it is left out.", min=1, max=200)
    ] = None,
    statistic: Annotated[
        Literal["mmd", "noise-aware"], typer.Option(help="Form of the planned test.")
    ] = "mmd",
    curator: Annotated[bool, typer.Option("--curator", help="Plan a curator's test.")] = False,
    seed: Annotated[int | None, typer.Option(help="Seed of the starts.", min=0)] = None,
    as_json: Json = False,
) -> None:
    """Optimise test locations on public rows, or on a release; prints the parameters of a study."""
    from tacit.command.inputs import amounts
    from tacit.planning.locations import optimise_locations

    first, other, domain = _rows((public, second), (release, second_release), column, owner)
    with progress("optimising", quiet=as_json) as report:
        found = optimise_locations(
            first,
            other,
            effect=amounts(shift) if shift else None,
            scale=amounts(scale) if scale else 1.0,
            epsilon=epsilon,
            delta=delta,
            n=n if len(n) > 1 else n[0],
            bounds=domain,
            features=features,
            n_features=n_features,
            statistic=statistic,
            setting="curator" if curator else "owners",
            alpha=alpha,
            seed=seed,
            progress=report,
        )
    answer(
        as_json,
        {
            "parameters": found.parameters,
            "power": found.power,
            "criterion": found.criterion,
            "unoptimised": found.unoptimised,
            "n_features": found.n_features,
        },
        f"Predicted power {found.power:.2f} at level {alpha:g}, with {found.n_features} features "
        f"(criterion {found.criterion:.3g}; {found.unoptimised:.3g} before)",
        "",
        *_toml(found.parameters).splitlines(),
    )


def _rows(
    files: tuple[Path | None, Path | None],
    releases: tuple[str | None, str | None],
    column: list[str] | None,
    owner: str | None,
) -> tuple[Any, Any, "Domain"]:
    """Return the rows like the first and the second owner's, and their domain."""
    from tacit.database.files import load_database
    from tacit.database.tables import rows_table
    from tacit.in_process.samples import domain_of
    from tacit.studies.draft import parse_columns

    if (files[0] is None) == (releases[0] is None) or (files[1] and releases[1]):
        raise InputError(
            "give --public or --release for the first owner, and at most one of --second, --second-release"
        )
    if owner is not None and not any(releases):
        raise InputError("--owner says whose database of a release: leave it out")
    databases = [None if source is None else load_database(source, owner=owner) for source in releases]
    bounds = parse_columns(column or [])
    if not bounds:
        known = next((database for database in databases if database is not None), None)
        if known is None:
            raise InputError("name the columns: --column name:lower:upper or name=level,level")
        bounds = {column.name: column for column in known.domain.columns}
    domain = domain_of(bounds, list(bounds))

    def rows(file: Path | None, database: "ReleasedDatabase | None") -> Any:
        if database is not None:
            held = [column.name for column in database.domain.columns]
            absent = [name for name in bounds if name not in held]
            if absent:
                raise InputError(f"the release has no column {', '.join(absent)}")
            return rows_table(database.domain, database.sample(RELEASE_ROWS)).select(list(bounds))
        from tacit.command.inputs import read_public

        return None if file is None else read_public(file, list(bounds))

    return rows(files[0], databases[0]), rows(files[1], databases[1]), domain


def _toml(parameters: Mapping[str, Any]) -> str:
    """Write a procedure's parameters as a draft has them."""
    from tomlkit.exceptions import ConvertError

    from tacit.setup.configuration import toml_text

    try:
        return toml_text({"parameters": parameters}).rstrip()
    except ConvertError as error:
        raise InputError("a location has a missing category, which TOML cannot write: use --json") from error


Over = Annotated[Literal["epsilon", "n"], typer.Option(help="What is varied.")]
Target = Annotated[
    float | None, typer.Option(help="Power to be reached, .8 by default; or an error not to be exceeded.")
]


def power(planning: Planning, *, as_json: Json = False) -> None:
    """Estimate how often a study would find an effect; of a release, how exact it is."""
    from tacit.planning.simulation import simulate

    with progress("simulating studies", quiet=as_json) as report:
        plan = simulate(
            planning.question,
            planning.setting,
            runs=planning.runs,
            seed=planning.seed,
            progress=report,
        ).plan()
    answer(as_json, asdict(plan) | {"words": plan.words()}, plan.words(), *_details(plan))


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
    from tacit.planning.curve import simulate_curve
    from tacit.planning.search import TARGET, require_target

    if picture is not None:
        if picture.suffix.lower() != ".svg":
            raise InputError("--picture: the picture is SVG; name a file that ends in .svg")
        require_writable(picture)
    if target is not None:
        require_target(target, planning.question.measure)
    aim = TARGET if target is None and planning.question.measure == "power" else target
    with progress("simulating studies", quiet=as_json) as report:
        found = simulate_curve(
            planning.question,
            over,
            planning.setting,
            values=value,
            runs=planning.runs,
            seed=planning.seed,
            target=aim,
            progress=report,
        )
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
    from tacit.planning import search

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
    answer(as_json, asdict(found) | {"words": found.words()}, found.words(), *_details(found.plan))


def choice(
    planning: Planning,
    *,
    candidate: Annotated[
        list[str] | None, typer.Option(help='Parameters to try, as JSON: {"bandwidth": 0.3}.')
    ] = None,
    as_json: Json = False,
) -> None:
    """Find the number of features, the bandwidth or the method that is best for an effect."""
    from tacit.planning.search import choose, parameters_words

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
    from tacit.planning.simulation import interval_words

    return "" if interval is None else interval_words(interval)


def _details(plan: "Plan") -> Sequence[str]:
    said = [f"  {plan.procedure}: delta {plan.delta:g}, level {plan.alpha:g}; {plan.runs} simulated studies"]
    return [*said, *(f"Warning: {warning}" for warning in plan.warnings)]


def _candidates(texts: Sequence[str]) -> list[dict[str, Any]]:
    import json

    try:
        read = [json.loads(text) for text in texts]
    except (ValueError, RecursionError):
        raise InputError('--candidate: write JSON, such as {"features": "me", "n_features": 20}') from None
    if not all(isinstance(parameters, dict) for parameters in read):
        raise InputError('--candidate: write a JSON object, such as {"features": "me", "n_features": 20}')
    return read


app = typer.Typer(name="plan", help="Plan a study on public inputs.", no_args_is_help=True)


@app.callback()
def plan() -> None:
    """Plan a study on public or synthetic rows: nothing is spent and nothing is sent.

    A sample given with --public gets no protection: never give rows of the study itself.
    """


app.command("power")(with_flags(power))
app.command("curve")(with_flags(curve))
app.command("smallest")(with_flags(smallest))
app.command("choice")(with_flags(choice))
app.command("locations")(locations)
