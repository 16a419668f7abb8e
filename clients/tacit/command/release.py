"""`tacit release`: what anyone may do with a private database, for ever, at no cost."""
# ruff: noqa: PLC0415 (imports wait until a command runs, so that --help is quick)

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from tacit.atomic_write import require_writable
from tacit.command.connect import connecting
from tacit.command.output import PARTY_FILE, Json, PartyFile, answer, lines, print_json, table, write_file
from tacit.errors import InputError

if TYPE_CHECKING:
    from tacit.database.points import Estimate
    from tacit.database.released import ReleasedDatabase

app = typer.Typer(name="release", help="Use private databases that were released.", no_args_is_help=True)

Source = Annotated[
    str, typer.Argument(help="A transcript, a Parquet file of `release export`, or a study's digest.")
]
Owner = Annotated[str | None, typer.Option(help="Whose database, where the study has several.")]
Weights = Annotated[
    Literal["simplex", "regularised", "raw", "shrunk"],
    typer.Option(help="How points are weighted; see the guide."),
]

Move = Annotated[
    bool,
    typer.Option("--move/--keep", help="Move points to match the release; by default they stay."),
]

ROWS_SHOWN = 12
"""Columns whose estimates `release show` lists."""


@app.command("show")
@connecting
def show(
    source: Source,
    *,
    owner: Owner = None,
    weights: Weights = "simplex",
    move: Move = False,
    picture: Annotated[Path | None, typer.Option(help="Write a picture of every column (.svg).")] = None,
    party: PartyFile = PARTY_FILE,
    as_json: Json = False,
) -> None:
    """Show a database: what it is of, what it cost, and each column's estimates with their errors."""
    from tacit.command.inputs import read_release

    if picture is not None:
        if picture.suffix.lower() != ".svg":
            raise InputError("--picture: the picture is SVG; name a file that ends in .svg")
        require_writable(picture)
    database = read_release(source, owner, party, weights=weights, move=move, quiet=as_json)
    if picture is not None:
        write_file(picture, database.summary_svg().encode("utf-8"))
    rows = _summaries(database)
    if as_json:
        print_json(_described(database) | {"columns": [_fields(e) | {"of": what} for what, e in rows]})
        return
    lines(
        f"{len(database)} public points stand for {database.units} units",
        f"  {database.method}; epsilon {database.epsilon:g}, delta {database.delta:g}",
        f"  noise {database.noise_error:.3g}; the points are another {database.points_error:.3g} from the "
        "release (a unit's own features have length 1)",
    )
    table(("", "Estimate", "Noise", "Points"), [(what, *_cells(e)) for what, e in rows[:ROWS_SHOWN]])
    if len(rows) > ROWS_SHOWN:
        lines(f"{len(rows) - ROWS_SHOWN} more with --json.")
    for warning in database.limits:
        lines(f"Note: {warning}")
    if picture is not None:
        lines(f"Wrote {picture}.")


@app.command("expect")
@connecting
def expect(
    source: Source,
    *,
    column: Annotated[str, typer.Option(help="Its mean, or what the other options say of it.")],
    between: Annotated[
        tuple[float, float] | None, typer.Option(help="Probability of an interval: two numbers.")
    ] = None,
    level: Annotated[str | None, typer.Option(help="Share of a level of a categorical column.")] = None,
    missing: Annotated[bool, typer.Option("--missing", help="Share of missing values.")] = False,
    correlation: Annotated[str | None, typer.Option(help="Correlation with this other column.")] = None,
    owner: Owner = None,
    weights: Weights = "simplex",
    move: Move = False,
    party: PartyFile = PARTY_FILE,
    as_json: Json = False,
) -> None:
    """Ask a database a question: a mean, a probability, a share or a correlation, with its errors."""
    from tacit.command.inputs import read_release

    asked = (between is not None) + (level is not None) + missing + (correlation is not None)
    if asked > 1:
        raise InputError("ask one question at a time: --between, --level, --missing or --correlation")
    database = read_release(source, owner, party, weights=weights, move=move, quiet=as_json)
    if between is not None:
        found = database.probability_between(column, *between)
        what = f"probability of {between[0]:g} <= {column} <= {between[1]:g}"
    elif level is not None or missing:
        found = database.probability_level(column, None if missing else level)
        what = f"share of {column} {'missing' if missing else level}"
    elif correlation is not None:
        found = database.correlation(column, correlation)
        what = f"correlation of {column} and {correlation}"
    else:
        found, what = database.mean(column), f"mean of {column}"
    if as_json:
        print_json({"of": what} | _fields(found) | {"warnings": list(database.limits)})
        return
    value, noise, points = _cells(found)
    exactly = "exactly" if found.exact else "estimated"
    lines(
        f"{what}: {value}",
        f"  standard error {found.error:.2g}: noise {noise} ({exactly}), points {points} (estimated)",
        f"  as a sample of a larger population, {found.sampling:.2g} besides",
    )
    for warning in database.limits:
        lines(f"Note: {warning}")
    if found.clamped:
        lines("  the weights led out of the possible values; the nearest is shown")


@app.command("sample")
@connecting
def sample(
    source: Source,
    *,
    rows: Annotated[int, typer.Option(help="Number of rows.", min=1)],
    output: Annotated[Path, typer.Option(help="The file to write: .csv or .parquet.")],
    move: Move = False,
    owner: Owner = None,
    party: PartyFile = PARTY_FILE,
    as_json: Json = False,
) -> None:
    """Write unweighted synthetic rows, by herding: the same at every call."""
    from tacit.command.inputs import read_release
    from tacit.database.tables import rows_table, write_table

    _require_table_at(output)
    database = read_release(source, owner, party, move=move, quiet=as_json)
    write_table(rows_table(database.domain, database.sample(rows)), output)
    answer(as_json, {"output": str(output), "rows": rows}, f"Wrote {rows} rows to {output}.")


@app.command("export")
@connecting
def export(
    source: Source,
    *,
    output: Annotated[Path, typer.Option(help="The file to write: .csv or .parquet.")],
    weights: Weights = "simplex",
    move: Move = False,
    owner: Owner = None,
    party: PartyFile = PARTY_FILE,
    as_json: Json = False,
) -> None:
    """Write the points with their weights; a Parquet file can be used in place of the transcript."""
    from tacit.command.inputs import read_release

    _require_table_at(output)
    database = read_release(source, owner, party, weights=weights, move=move, quiet=as_json)
    if output.suffix.lower() == ".csv":
        database.to_csv(output)
    else:
        database.to_parquet(output)
    answer(
        as_json,
        {"output": str(output), "points": len(database)},
        f"Wrote {len(database)} weighted points to {output}.",
    )


@app.command("compare")
@connecting
def compare(
    source: Source,
    other: Annotated[str, typer.Argument(help="Another release, or a table of your own (.csv, .parquet).")],
    *,
    alpha: Annotated[float, typer.Option("--level", help="Level of the test.")] = 0.05,
    null: Annotated[
        Literal["bound", "normal", "points"],
        typer.Option(help="Proved for every population, or for many units; or approximate."),
    ] = "bound",
    owner: Owner = None,
    other_owner: Annotated[str | None, typer.Option(help="Whose database in the other release.")] = None,
    party: PartyFile = PARTY_FILE,
    as_json: Json = False,
) -> None:
    """Test whether two releases, or a release and a table of your own, are of one population.

    Against a table of your own the outcome depends on it without any noise: keep it to yourself.
    """
    from tacit.command.inputs import read_other, read_release

    database = read_release(source, owner, party, quiet=as_json)
    theirs = read_other(other, other_owner, party, database)
    found = database.two_sample_test(theirs, alpha, null=null)
    distance = database.mmd(theirs)
    if as_json:
        print_json(
            {
                "reject": found.reject,
                "statistic": found.statistic,
                "pvalue": found.pvalue,
                "alpha": alpha,
                "method": found.method,
                "n": list(found.n),
                "estimate": found.estimate,
                "estimate_unbiased": found.estimate_unbiased,
                "interval": list(found.interval),
                "mmd_of_points": distance,
            }
        )
        return
    decision = "DIFFERENT populations" if found.reject else "no difference shown"
    lines(
        f"{decision} (p = {found.pvalue:.3g}, level {alpha:g})",
        f"  {found.method}",
        f"  squared MMD {found.estimate:.4g}, interval {found.interval[0]:.4g} to {found.interval[1]:.4g}; "
        f"weighted points are {distance:.3g} apart",
    )


def _require_table_at(output: Path) -> None:

    if output.suffix.lower() not in {".csv", ".parquet"}:
        raise InputError(f"{output}: the name must end in .csv or .parquet")
    require_writable(output)


def _described(database: "ReleasedDatabase") -> dict[str, Any]:
    return {
        "points": len(database),
        "units": database.units,
        "method": database.method,
        "epsilon": database.epsilon,
        "delta": database.delta,
        "weights": database.weighting,
        "noise_error": database.noise_error,
        "points_error": database.points_error,
        "warnings": list(database.limits),
    }


def _summaries(database: "ReleasedDatabase") -> list[tuple[str, "Estimate"]]:
    """Return each numeric column's mean, and the share of each level that has any weight."""
    from tacit_protocol.domain import NumericColumn

    found: list[tuple[str, Estimate]] = []
    for column in database.domain.columns:
        if isinstance(column, NumericColumn):
            found.append((f"mean of {column.name}", database.mean(column.name)))
            continue
        present = {value for value in database.points[column.name].tolist() if value is not None}
        shares = [
            (f"{column.name} {level}", database.probability_level(column.name, level)) for level in present
        ]
        found += sorted(shares, key=lambda pair: -float(pair[1]))
    return found


def _cells(estimate: "Estimate") -> tuple[str, str, str]:
    points = "unknown" if estimate.projection is None else f"{estimate.projection:.2g}"
    return f"{float(estimate):.5g}", f"{estimate.noise:.2g}", points


def _fields(estimate: "Estimate") -> dict[str, Any]:
    return {
        "estimate": float(estimate),
        "error": estimate.error,
        "noise": estimate.noise,
        "noise_is_exact": estimate.exact,
        "points": estimate.projection,
        "sampling": estimate.sampling,
        "clamped": estimate.clamped,
    }
