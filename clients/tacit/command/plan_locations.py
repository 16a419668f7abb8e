"""`tacit plan locations`: where a private two-sample test should look. Public inputs only; spends nothing."""
# ruff: noqa: PLC0415 (imports wait until a command runs, so that --help is quick)

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from tacit.command.output import Json

if TYPE_CHECKING:
    from tacit.released_database import ReleasedDatabase
    from tacit_protocol.domain.columns import Domain

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
    seed: Annotated[int | None, typer.Option(help="Seed of the starts.", min=0)] = None,
    as_json: Json = False,
) -> None:
    """Optimise test locations on public rows, or on a release; prints the parameters of a study."""
    from tacit.command.output import lines, print_json, progress
    from tacit.command.plan_inputs import amounts
    from tacit.locations import optimise_locations

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
        *_toml(found.parameters).splitlines(),
    )


def _rows(
    files: tuple[Path | None, Path | None],
    releases: tuple[str | None, str | None],
    column: list[str] | None,
    owner: str | None,
) -> tuple[Any, Any, "Domain"]:
    """Return the rows like the first and the second owner's, and their domain."""
    from tacit.bounds import domain_of
    from tacit.command.plan_inputs import bounds_of
    from tacit.errors import InputError
    from tacit.released_database_export import rows_table
    from tacit.released_database_reading import load_database

    if (files[0] is None) == (releases[0] is None) or (files[1] and releases[1]):
        raise InputError(
            "give --public or --release for the first owner, and at most one of --second, --second-release"
        )
    if owner is not None and not any(releases):
        raise InputError("--owner says whose database of a release: leave it out")
    databases = [None if source is None else load_database(source, owner=owner) for source in releases]
    bounds: Any = bounds_of(column or [])
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
        from tacit.command.plan_inputs import read_public

        return None if file is None else read_public(file, list(bounds))

    return rows(files[0], databases[0]), rows(files[1], databases[1]), domain


def _toml(parameters: Mapping[str, Any]) -> str:
    """Write a procedure's parameters as a draft has them."""
    from tomlkit.exceptions import ConvertError

    from tacit.configuration import toml_text
    from tacit.errors import InputError

    try:
        return toml_text({"parameters": parameters}).rstrip()
    except ConvertError as error:
        raise InputError("a location has a missing category, which TOML cannot write: use --json") from error
