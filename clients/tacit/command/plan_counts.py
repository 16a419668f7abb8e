"""`tacit plan homogeneity` and `tacit plan independence`: units that tests on noisy counts need."""
# ruff: noqa: PLC0415 (imports wait until a command runs, so that --help is quick)

from typing import Annotated

import typer

from tacit.command.output import Json
from tacit.command.size_view import show_plans

Epsilon = Annotated[float, typer.Option(help="What every owner spends.")]
Delta = Annotated[float, typer.Option(help="What every owner spends; Gaussian noise needs it.")]
Rho = Annotated[float | None, typer.Option(help="zCDP of Gaussian noise.")]
Gaussian = Annotated[bool, typer.Option("--gaussian", help="Gaussian noise in the place of Laplace.")]
Alpha = Annotated[float, typer.Option(help="Level of the test: its first error.")]
Miss = Annotated[float, typer.Option(help="Second error: how often the difference may be missed.")]
Runs = Annotated[int, typer.Option(help="Simulated studies of each size that is tried.", min=1)]
Seed = Annotated[int | None, typer.Option(help="Seed of the simulations.")]


def homogeneity(
    *,
    epsilon: Epsilon,
    cells: Annotated[int | None, typer.Option(help="Number of equally likely cells.", min=2)] = None,
    probability: Annotated[
        list[float] | None,
        typer.Option(help="Of each cell, in the place of --cells; give it for every cell."),
    ] = None,
    distance: Annotated[float, typer.Option(help="Total variation distance between the two owners.")] = 0.1,
    delta: Delta = 0.0,
    rho: Rho = None,
    gaussian: Gaussian = False,
    alpha: Alpha = 0.05,
    miss: Miss = 0.2,
    runs: Runs = 400,
    seed: Seed = None,
    as_json: Json = False,
) -> None:
    """Find how many units each of two owners needs for homogeneity, by simulation."""
    from tacit.command.output import progress
    from tacit.errors import InputError
    from tacit.planning.counts import plan_homogeneity

    if (cells is None) == (not probability):
        raise InputError("give either --cells or every cell's --probability")
    with progress("simulating studies", quiet=as_json) as report:
        plan = plan_homogeneity(
            cells if cells is not None else list(probability or []),
            epsilon=epsilon,
            distance=distance,
            delta=delta,
            rho=rho,
            gaussian=gaussian,
            alpha=alpha,
            miss=miss,
            runs=runs,
            seed=seed,
            progress=report,
        )
    show_plans([plan], as_json)


def independence(
    *,
    epsilon: Epsilon,
    row: Annotated[list[str], typer.Option(help="Probabilities of a row, such as .4,.1; once for each row.")],
    delta: Delta = 0.0,
    rho: Rho = None,
    gaussian: Gaussian = False,
    alpha: Alpha = 0.05,
    miss: Miss = 0.2,
    runs: Runs = 400,
    seed: Seed = None,
    as_json: Json = False,
) -> None:
    """Find how many units independence_table needs to find a given dependence, by simulation."""
    from tacit.command.output import progress
    from tacit.errors import InputError
    from tacit.planning.counts import plan_independence

    try:
        rows = [[float(value) for value in text.split(",")] for text in row]
    except ValueError:
        raise InputError("a row is numbers with commas between them") from None
    if len({len(values) for values in rows}) != 1:
        raise InputError("rows must be of one length")
    with progress("simulating studies", quiet=as_json) as report:
        plan = plan_independence(
            rows,
            epsilon=epsilon,
            delta=delta,
            rho=rho,
            gaussian=gaussian,
            alpha=alpha,
            miss=miss,
            runs=runs,
            seed=seed,
            progress=report,
        )
    show_plans([plan], as_json)
