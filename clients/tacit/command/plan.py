"""`tacit plan`: how much budget and how many rows a question needs. Public inputs only; spends nothing."""
# ruff: noqa: PLC0415 (imports wait until a command runs, so that --help is quick)

from pathlib import Path
from typing import Annotated

import typer

from tacit.command.output import Json
from tacit.command.plan_counts import homogeneity, independence
from tacit.command.plan_identity import identity
from tacit.command.plan_locations import locations

app = typer.Typer(name="plan", help="Plan a study on public inputs.", no_args_is_help=True)


@app.callback()
def plan() -> None:
    """Plan a study on public inputs: nothing is spent and nothing is sent."""


app.command("locations")(locations)
app.command("identity")(identity)
app.command("homogeneity")(homogeneity)
app.command("independence")(independence)


@app.command("two-sample")
def two_sample(
    *,
    n: Annotated[
        list[int], typer.Option("--n", help="Units of each owner; give it several times for several.")
    ],
    column: Annotated[list[str], typer.Option(help="name:lower:upper or name=level,level.")],
    epsilon: Annotated[float, typer.Option(help="What every owner spends.")],
    delta: Annotated[float, typer.Option(help="What every owner spends.")] = 1e-5,
    alpha: Annotated[float, typer.Option(help="Level of the test.")] = 0.05,
    shift: Annotated[list[str] | None, typer.Option(help="column=amount added in the last sample.")] = None,
    scale: Annotated[
        list[str] | None, typer.Option(help="column=factor of the last sample's spread.")
    ] = None,
    public: Annotated[Path | None, typer.Option(help="A public sample (.csv or .parquet).")] = None,
    runs: Annotated[int, typer.Option(help="Simulated studies.", min=1)] = 100,
    parameter: Annotated[list[str] | None, typer.Option(help="name=value, for the procedure.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the simulated samples.")] = None,
    curator: Annotated[bool, typer.Option("--curator", help="A curator holds both samples.")] = False,
    as_json: Json = False,
) -> None:
    """Estimate the power of a two-sample test: how often it would find a given effect."""
    from dataclasses import asdict

    from tacit.bounds import domain_of
    from tacit.command.draft_flags import parse_column, parse_parameter
    from tacit.command.output import lines, print_json, progress
    from tacit.command.plan_inputs import amounts, read_public
    from tacit.planning import plan_power

    described = [parse_column(text) for text in column]
    bounds = {c["name"]: c.get("levels") or (c["lower"], c["upper"]) for c in described}
    domain = domain_of(bounds, list(bounds))
    sample = None if public is None else read_public(public, list(bounds))
    with progress("simulating studies", quiet=as_json) as report:
        plan = plan_power(
            n if len(n) > 1 else n[0],
            epsilon=epsilon,
            delta=delta,
            alpha=alpha,
            bounds=domain,
            public=sample,
            shift=amounts(shift or []),
            scale=amounts(scale or []),
            runs=runs,
            seed=seed,
            progress=report,
            setting="curator" if curator else "owners",
            **dict(parse_parameter(text) for text in parameter or []),
        )
    if as_json:
        print_json(asdict(plan))
        return
    lines(
        f"Power {plan.power:.2f} (standard error {plan.standard_error:.2f}, {plan.runs} simulated studies)",
        f"  n = {', '.join(str(units) for units in plan.n)}; epsilon {plan.epsilon:g}, "
        f"delta {plan.delta:g}, level {plan.alpha:g}",
    )
    for warning in plan.warnings:
        lines(f"Warning: {warning}")
