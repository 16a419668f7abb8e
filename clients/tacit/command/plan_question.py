"""The flags that say what a plan is about, which the commands of `tacit plan` share."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.errors import InputError

if TYPE_CHECKING:
    from tacit.planning.questions import Question
    from tacit.planning.simulation import Setting

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
        str, typer.Argument(metavar="PROCEDURE|DRAFT.toml", help="A procedure, or a study's draft.")
    ],
    *,
    n: Annotated[
        list[int] | None, typer.Option("--n", help="Units of each owner; once, or once for each owner.")
    ] = None,
    epsilon: Annotated[float | None, typer.Option(help="What every owner spends.")] = None,
    delta: Annotated[float | None, typer.Option(help="What every owner spends; 1e-5 by default.")] = None,
    alpha: Annotated[float | None, typer.Option(help="Level of the test; .05 by default.")] = None,
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
        typer.Option(help="Standard deviations, a correlation or a distance; medium by default."),
    ] = None,
    shift: Annotated[list[str] | None, typer.Option(help="column=amount added in the last sample.")] = None,
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
    from tacit.planning.questions import question_of_draft, units_of_draft  # noqa: PLC0415
    from tacit.planning.simulation import Setting, sizes_of  # noqa: PLC0415
    from tacit_protocol.procedures.populations import Effect  # noqa: PLC0415

    found = Effect(
        effect, _amounts(shift), _amounts(scale), "quadratic" if quadratic else "linear", _table(row)
    )
    if source.endswith(".toml"):
        about = (column, cells, probability, group, parameter)
        if any(about) or curator:
            raise InputError("a draft says its own columns and parameters: leave those flags out")
        draft = _read_draft(Path(source))
        names = [c.name for c in draft.columns]
        question = question_of_draft(draft, found, _public_sample(public, names))
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
        asked = _asked(source, column, cells, found, curator)
        parameters = _parameters(parameter, probability, group)
        question = _question(asked | {"parameters": parameters}, public, units, chosen)
    sizes = sizes_of(units[0] if len(units) == 1 else units, question)
    return Planning(question, Setting(sizes, *chosen), runs, seed)


def _question(
    asked: Mapping[str, Any], public: Path | None, units: list[int], chosen: tuple[float, float, float]
) -> "Question":
    from tacit.command.inputs import read_public  # noqa: PLC0415
    from tacit.planning.questions import Asked  # noqa: PLC0415

    if public is not None:
        if asked["bounds"] is None:
            raise InputError("say the columns of the public sample, and their bounds: --column")
        asked = {**asked, "public": read_public(public, asked["columns"])}
    return Asked(**asked).question(units[0] if len(units) == 1 else units, *chosen)


def _asked(
    source: str, column: list[str] | None, cells: list[int] | None, effect: Any, curator: bool
) -> dict[str, Any]:
    from tacit.command.inputs import bounds_of  # noqa: PLC0415
    from tacit.in_process.samples import domain_of  # noqa: PLC0415

    bounds = bounds_of(column or [])
    return {
        "procedure": source,
        "bounds": domain_of(bounds, list(bounds)) if bounds else None,
        "columns": list(bounds) or None,
        "cells": cells[0] if cells and len(cells) == 1 else cells,
        "effect": effect,
        "setting": "curator" if curator else "owners",
    }


def _parameters(
    parameter: list[str] | None, probability: list[float] | None, group: list[str] | None
) -> dict[str, Any]:
    from tacit.studies.draft_flags import parse_parameter  # noqa: PLC0415

    found = dict(parse_parameter(text) for text in parameter or [])
    if probability:
        found["probabilities"] = probability
    if group:
        found["groups"] = [text.split(",") for text in group]
    return found


def _read_draft(path: Path) -> Any:
    from tacit.studies.draft import StudyDraft  # noqa: PLC0415

    return StudyDraft.from_toml(path)


def _public_sample(path: Path | None, names: list[str]) -> Any:
    from tacit.command.inputs import read_public  # noqa: PLC0415
    from tacit.in_process.samples import read_samples  # noqa: PLC0415

    return None if path is None else read_samples([read_public(path, names)], names)[0]


def _amounts(texts: list[str] | None) -> dict[str, float] | None:
    from tacit.command.inputs import amounts  # noqa: PLC0415

    return amounts(texts) if texts else None


def _table(rows: list[str] | None) -> list[list[float]] | list[float] | None:
    if not rows:
        return None
    try:
        read = [[float(value) for value in text.split(",")] for text in rows]
    except ValueError:
        raise InputError("--row: write numbers with commas between them, such as .4,.1") from None
    if len({len(values) for values in read}) != 1:
        raise InputError("--row: rows must be of one length")
    return read if len(read) > 1 else read[0]


def with_flags(command: Callable[..., None], source: str | None = None) -> Callable[..., None]:
    """Return a command that takes the flags above and its own; it is handed what the first ask.

    Args:
        command: takes a :class:`Planning`, and its own flags by name.
        source: what the argument would say, where the command has none.
    """
    shared = dict(inspect.signature(flags).parameters)
    if source is not None:
        del shared["source"]
    own = list(inspect.signature(command).parameters.values())[1:]

    def run(**given: Any) -> None:
        about = {name: given.pop(name) for name in shared}
        about.setdefault("source", source)
        command(flags(**about), **given)

    keyword = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in (*shared.values(), *own)]
    run.__doc__ = command.__doc__
    run.__signature__ = inspect.Signature(keyword)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in keyword}
    return run
