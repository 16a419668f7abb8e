"""`tacit plan locations`: where a private two-sample test should look. Public inputs only; spends nothing."""
# ruff: noqa: PLC0415 (imports wait until a command runs, so that --help is quick)

import json
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from tacit.command.output import Json


def locations(
    *,
    public: Annotated[Path, typer.Option(help="A public sample (.csv or .parquet), like the first owner's.")],
    second: Annotated[
        Path | None, typer.Option(help="A public sample like the second owner's, in place of --shift.")
    ] = None,
    n: Annotated[list[int], typer.Option("--n", help="Units of each owner; once, or twice.")],
    column: Annotated[list[str], typer.Option(help="name:lower:upper or name=level,level.")],
    epsilon: Annotated[float, typer.Option(help="What every owner spends.")],
    delta: Annotated[float, typer.Option(help="What every owner spends.")] = 1e-5,
    alpha: Annotated[float, typer.Option(help="Level of the test.")] = 0.05,
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
    seed: Annotated[int | None, typer.Option(help="Seed of the starts.")] = None,
    as_json: Json = False,
) -> None:
    """Optimise test locations on public rows; prints the parameters of a study."""
    from tacit.bounds import domain_of
    from tacit.command.draft_flags import parse_column
    from tacit.command.output import lines, print_json, progress
    from tacit.command.plan_inputs import amounts, read_public
    from tacit.locations import optimise_locations

    described = [parse_column(text) for text in column]
    bounds = {c["name"]: c.get("levels") or (c["lower"], c["upper"]) for c in described}
    with progress("optimising", quiet=as_json) as report:
        found = optimise_locations(
            read_public(public, list(bounds)),
            None if second is None else read_public(second, list(bounds)),
            effect=amounts(shift) if shift else None,
            scale=amounts(scale) if scale else 1.0,
            epsilon=epsilon,
            delta=delta,
            n=n if len(n) > 1 else n[0],
            bounds=domain_of(bounds, list(bounds)),
            features=features,
            n_features=n_features,
            statistic=statistic,
            setting="curator" if curator else "owners",
            alpha=alpha,
            seed=seed,
            progress=report,
        )
    if as_json:
        print_json(
            {
                "parameters": found.parameters,
                "power": found.power,
                "criterion": found.criterion,
                "unoptimised": found.unoptimised,
                "n_features": found.n_features,
            }
        )
        return
    lines(
        f"Predicted power {found.power:.2f} at level {alpha:g}, with {found.n_features} features "
        f"(criterion {found.criterion:.3g}; {found.unoptimised:.3g} before)",
        "",
        "[parameters]",
        *(f"{name} = {_toml(value)}" for name, value in found.parameters.items()),
    )


def _toml(value: Any) -> str:
    from tacit.errors import InputError

    if isinstance(value, list) and any(None in row for row in value):
        raise InputError("a location has a missing category, which TOML cannot write: use --json")
    # JSON's numbers, text and lists are TOML's.
    return json.dumps(value)
