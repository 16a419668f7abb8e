"""`tacit plan identity`: how many units a test against a known distribution needs. Spends nothing."""
# ruff: noqa: PLC0415 (imports wait until a command runs, so that --help is quick)

from typing import Annotated, Literal

import typer

from tacit.command.output import Json
from tacit.command.size_view import show_plans


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
        Literal["best", "privit", "privit-laplace", "mcgof", "zcdp-gof", "repetition"],
        typer.Option(help="Of the procedure identity; best compares those that need the fewest units."),
    ] = "best",
    rho: Annotated[float | None, typer.Option(help="zCDP of zcdp-gof.")] = None,
    runs: Annotated[int, typer.Option(help="Simulated studies of each size that is tried.", min=1)] = 400,
    seed: Annotated[int | None, typer.Option(help="Seed of the simulations.")] = None,
    as_json: Json = False,
) -> None:
    """Find how many units an identity test needs, by simulation."""
    from tacit.command.output import progress
    from tacit.errors import InputError
    from tacit.planning.identity import compare_identity_methods, plan_identity

    if (cells is None) == (not probability):
        raise InputError("give either --cells or every cell's --probability")
    if method == "best" and rho is not None:
        raise InputError("--rho is of zcdp-gof alone: say --method zcdp-gof, or give --delta")
    asked = cells if cells is not None else list(probability or [])
    with progress("simulating studies", quiet=as_json) as report:
        if method == "best":
            plans = compare_identity_methods(
                asked,
                epsilon=epsilon,
                distance=distance,
                delta=delta,
                alpha=alpha,
                miss=miss,
                runs=runs,
                seed=seed,
                progress=report,
            )
        else:
            plan = plan_identity(
                asked,
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
            plans = [plan]
    show_plans(plans, as_json)
