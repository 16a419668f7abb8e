"""`tacit plan identity`: how many units a test against a known distribution needs. Spends nothing."""
# ruff: noqa: PLC0415 (imports wait until a command runs, so that --help is quick)

from typing import Annotated, Literal

import typer

from tacit.command.output import Json


def identity(
    *,
    epsilon: Annotated[float, typer.Option(help="What the owner spends.")],
    cells: Annotated[int | None, typer.Option(help="Number of equally likely cells.", min=2)] = None,
    probability: Annotated[
        list[float] | None,
        typer.Option(help="Of each cell, in the place of --cells; give it for every cell."),
    ] = None,
    distance: Annotated[float, typer.Option(help="Total variation distance to be seen.")] = 0.1,
    delta: Annotated[float, typer.Option(help="What the owner spends; zcdp-gof needs it.")] = 0.0,
    alpha: Annotated[float, typer.Option(help="Level of the test: its first error.")] = 0.05,
    miss: Annotated[float, typer.Option(help="Second error: how often the distance may be missed.")] = 0.2,
    method: Annotated[
        Literal["privit", "privit-laplace", "mcgof", "zcdp-gof", "repetition"],
        typer.Option(help="Of the procedure identity."),
    ] = "mcgof",
    rho: Annotated[float | None, typer.Option(help="zCDP of zcdp-gof.")] = None,
    runs: Annotated[int, typer.Option(help="Simulated studies of each size that is tried.", min=1)] = 400,
    seed: Annotated[int | None, typer.Option(help="Seed of the simulations.")] = None,
    as_json: Json = False,
) -> None:
    """Find how many units an identity test needs, by simulation."""
    from dataclasses import asdict

    from tacit.command.output import lines, print_json, progress
    from tacit.errors import InputError
    from tacit.planning_identity import plan_identity

    if (cells is None) == (not probability):
        raise InputError("give either --cells or every cell's --probability")
    with progress("simulating studies", quiet=as_json) as report:
        plan = plan_identity(
            cells if cells is not None else list(probability or []),
            epsilon=epsilon,
            distance=distance,
            delta=delta,
            alpha=alpha,
            miss=miss,
            method=method,
            rho=rho,
            runs=runs,
            seed=seed,
            progress=report,
        )
    if as_json:
        print_json(asdict(plan))
        return
    lines(
        f"{plan.units} units (power {plan.power:.2f}, standard error {plan.standard_error:.2f}, "
        f"{plan.runs} simulated studies)",
        f"  {plan.method}, {plan.cells} cells, distance {plan.distance:g}; epsilon {plan.epsilon:g}, "
        f"delta {plan.delta:g}, level {plan.alpha:g}",
    )
