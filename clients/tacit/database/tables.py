"""Points and weights as tables, files and pictures, and back; databases build on it."""

import csv
import io
import json
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import parquet

from tacit.atomic_write import written_whole
from tacit.database.columns import Columns, Floats, locations_of
from tacit.database.weights import NoisyHistograms
from tacit.errors import InputError
from tacit_protocol.domain import Column, Domain, NumericColumn
from tacit_protocol.features.kernels import FeatureMap, ProductKernel, RandomFourier
from tacit_protocol.features.mean_embedding import UNLISTED, WhitenedMeanEmbedding
from tacit_protocol.verdicts.presentation import Bar, BarsPanel

if TYPE_CHECKING:
    import polars

METADATA_KEY = b"tacit.database.released"
FORMAT = 1


def points_table(domain: Domain, points: Columns, weights: Floats) -> pa.Table:
    """Return points as an Arrow table, with a last column of weights, (J,).

    It is called ``weight``, or ``tacit_weight`` where another column is so called.
    """
    taken = any(column.name == "weight" for column in domain.columns)
    name = "tacit_weight" if taken else "weight"
    return rows_table(domain, points).append_column(name, pa.array(weights, pa.float64()))


def rows_table(domain: Domain, rows: Columns) -> pa.Table:
    """Return unweighted rows, such as a sample, as an Arrow table."""
    return pa.table(
        {
            column.name: pa.array(
                list(rows[column.name]), pa.float64() if column.kind == "numeric" else pa.string()
            )
            for column in domain.columns
        }
    )


def polars_frame(table: pa.Table) -> "polars.DataFrame":
    """Return a table as a Polars frame. Raises InputError without Polars."""
    try:
        import polars  # noqa: PLC0415 (an optional dependency)
    except ImportError as error:
        raise InputError("to_polars() needs Polars: pip install polars; or use to_arrow()") from error
    frame = polars.from_arrow(table)
    if not isinstance(frame, polars.DataFrame):
        raise TypeError("a table of columns became something else than a frame")
    return frame


def write_parquet(table: pa.Table, metadata: dict[str, Any] | None, path: Path) -> None:
    """Write a table, and in the file's metadata what a released database is loaded from again."""
    if metadata is not None:
        table = table.replace_schema_metadata({METADATA_KEY: json.dumps(metadata).encode("utf-8")})
    write_table(table, path)


def write_table(table: pa.Table, path: Path) -> None:
    """Write a table as Parquet, or as CSV where the name ends so. Raises InputError where it cannot be.

    In CSV missing categories are empty cells, and numbers keep all their digits.
    """
    with written_whole(path) as file:
        if path.suffix.lower() != ".csv":
            parquet.write_table(table, file)
            return
        text = io.TextIOWrapper(file, encoding="utf-8", newline="")
        writer = csv.writer(text)
        writer.writerow(table.column_names)
        columns = [column.to_pylist() for column in table.columns]
        writer.writerows(zip(*columns, strict=True))
        text.flush()
        text.detach()


PLAIN_FIELDS = (
    "noise",
    "noise_error",
    "units",
    "epsilon",
    "delta",
    "method",
    "weighting",
    "l1_max",
    "noise_law",
)


def read_parquet(path: Path) -> dict[str, Any]:
    """Return the fields of a released database. Raises InputError where the file holds none."""
    try:
        table = parquet.read_table(path)
    except (OSError, pa.ArrowInvalid) as error:
        raise InputError(f"cannot read {path} as Parquet") from error
    stored = (table.schema.metadata or {}).get(METADATA_KEY)
    if stored is None:
        raise InputError(
            f"{path} holds no released database: write it with to_parquet, or use the transcript"
        )
    try:
        fields = json.loads(stored)
        if fields["format"] != FORMAT:
            raise InputError(f"{path} was written by another version: load the transcript instead")
        domain = Domain.model_validate_json(json.dumps(fields["domain"]))
        points = {column.name: _points(table, column.name, column.kind) for column in domain.columns}
        embedding = np.array(fields["embedding"], dtype=np.float64)
        kernel = ProductKernel(**fields["kernel"])
        features = read_features(domain, kernel, fields["features"])
        dimension = table.num_rows if features is None else features.dimension
        if embedding.shape != (dimension,) or not np.all(np.isfinite(embedding)):
            raise ValueError("the embedding has not one number for each feature")
        chosen, histograms = fields["chosen_weights"], fields["histograms"]
        locations_of(domain, points)  # every category is one of the domain
        return {
            "domain": domain,
            "points": points,
            "kernel": kernel,
            "released_features": features,
            "histograms": None if histograms is None else NoisyHistograms.of(domain, **histograms),
            "chosen_weights": None if chosen is None else np.array(chosen, dtype=np.float64),
            "embedding": embedding,
            "warnings": tuple(fields["warnings"]),
            "ridge": fields["ridge"],
            **{name: fields[name] for name in PLAIN_FIELDS},
        }
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path} holds a database that was damaged") from error


def _points(table: pa.Table, name: str, kind: str) -> npt.NDArray[Any]:
    values = table.column(name).to_pylist()
    points = np.array(values, dtype=np.float64 if kind == "numeric" else object)
    if kind == "numeric" and not np.all(np.isfinite(points)):
        raise ValueError("a point is not finite")
    return points


PANELS_MAX = 60
"""Most columns that are drawn."""

LEVELS_MAX = 12
"""Most levels of one column that are drawn; the smallest are drawn together."""

BINS_MIN, BINS_MAX, POINTS_PER_BIN = 4, 20, 5

WHISKERS = "share ± standard error"


def panels(domain: Domain, points: Columns, weights: Floats, errors: Floats) -> list[BarsPanel]:
    """Return every column's distribution, ``PANELS_MAX`` at most, with one standard error to either side.

    ``weights`` (J,) are the points'; ``errors`` (J, parts) are a database's uncertainty of them.
    """
    columns = domain.columns
    some = f"; {PANELS_MAX} of {len(columns)} columns" if len(columns) > PANELS_MAX else ""
    return [
        _panel(points[column.name], weights, errors, column, WHISKERS + some)
        for column in columns[:PANELS_MAX]
    ]


def _panel(values: npt.NDArray[Any], weights: Floats, errors: Floats, column: Column, axis: str) -> BarsPanel:
    edges = tuple[float, ...]()
    if isinstance(column, NumericColumn):
        count = int(np.clip(len(values) // POINTS_PER_BIN, BINS_MIN, BINS_MAX))
        edges = tuple(np.linspace(column.lower, column.upper, count + 1).tolist())
        numbers = np.asarray(values, dtype=np.float64)
        members = np.eye(count)[np.clip(np.searchsorted(edges, numbers, side="right") - 1, 0, count - 1)]
        labels = [f"{low:g} to {high:g}" for low, high in pairwise(edges)]
    else:
        names: list[str | None] = [*column.levels, UNLISTED, None]
        every = np.array([[value == name for name in names] for value in values], dtype=np.float64)
        kept = np.argsort(-np.abs(weights @ every), kind="stable")[:LEVELS_MAX]
        rest = np.delete(every, kept, axis=1).sum(axis=1)
        members = np.column_stack([every[:, kept], rest]) if rest.any() else every[:, kept]
        labels = [*("missing" if names[i] is None else str(names[i]) for i in kept), "the rest"]
    shares, whiskers = weights @ members, np.linalg.norm(members.T @ errors, axis=1)
    # Whiskers end at twice the highest bar, which would not be seen otherwise.
    reach = 2 * (float(np.abs(shares).max()) or 1.0)
    bars = [
        Bar(label, float(share), max(float(share - error), -reach), min(float(share + error), reach))
        for label, share, error in zip(labels, shares, whiskers, strict=False)
    ]
    return BarsPanel(column.name, axis, tuple(bars), edges=edges)


def read_features(domain: Domain, kernel: ProductKernel, fields: dict[str, Any] | None) -> FeatureMap | None:
    """Return the map that :func:`features_fields` wrote. Raises KeyError, TypeError or ValueError."""
    if fields is None:
        return None
    if "locations" in fields:
        columns = {
            column.name: np.array(
                [row[place] for row in fields["locations"]],
                dtype=float if column.kind == "numeric" else object,
            )
            for place, column in enumerate(domain.columns)
        }
        return WhitenedMeanEmbedding(kernel, locations_of(domain, columns), fields["ridge"])
    frequencies = np.array(fields["frequencies"], dtype=np.float64).reshape(-1, len(domain.numeric))
    signs = tuple(np.array(table, dtype=np.float64) for table in fields["signs"])
    if len(signs) != len(domain.categorical) or not np.all(np.isfinite(frequencies)):
        raise ValueError("the frequencies do not fit the columns")
    return RandomFourier(frequencies, signs)
