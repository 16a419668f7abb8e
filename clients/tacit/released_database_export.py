"""Released databases as tables and files, and back."""

import csv
import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import parquet

from tacit.errors import InputError
from tacit.released_database_features import features_fields, read_features
from tacit.released_database_histograms import NoisyHistograms
from tacit.released_database_points import Columns, WeightedDatabase
from tacit.whole_files import written_whole
from tacit_protocol.domain.columns import Domain
from tacit_protocol.features.kernels import ProductKernel

if TYPE_CHECKING:
    import pandas
    import polars

    from tacit.released_database import ReleasedDatabase

METADATA_KEY = b"tacit.released_database"
FORMAT = 1


def weight_name(domain: Domain) -> str:
    """Return the name of the weights' column: ``weight``, or ``tacit_weight`` where a column is so called."""
    names = {column.name for column in domain.columns}
    return "weight" if "weight" not in names else "tacit_weight"


def arrow_table(database: WeightedDatabase) -> pa.Table:
    """Return the points as an Arrow table, with a last column of weights."""
    arrays = {
        column.name: pa.array(
            list(database.points[column.name]), pa.float64() if column.kind == "numeric" else pa.string()
        )
        for column in database.domain.columns
    }
    return pa.table(arrays | {weight_name(database.domain): pa.array(database.weights, pa.float64())})


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


def pandas_frame(database: WeightedDatabase) -> "pandas.DataFrame":
    """Return the points as a pandas frame. Raises InputError without pandas."""
    try:
        import pandas  # noqa: PLC0415 (an optional dependency)
    except ImportError as error:
        raise InputError("to_pandas() needs pandas: pip install pandas; or use to_arrow()") from error
    frame: pandas.DataFrame = arrow_table(database).to_pandas()
    return frame


def polars_frame(database: WeightedDatabase) -> "polars.DataFrame":
    """Return the points as a Polars frame. Raises InputError without Polars."""
    try:
        import polars  # noqa: PLC0415 (an optional dependency)
    except ImportError as error:
        raise InputError("to_polars() needs Polars: pip install polars; or use to_arrow()") from error
    frame = polars.from_arrow(arrow_table(database))
    if not isinstance(frame, polars.DataFrame):
        raise TypeError("a table of columns became something else than a frame")
    return frame


def write_parquet(database: WeightedDatabase, path: Path) -> None:
    """Write points and weights, and in the file's metadata what a released database is loaded from again."""
    table, metadata = arrow_table(database), database.metadata()
    if metadata is not None:
        table = table.replace_schema_metadata({METADATA_KEY: json.dumps(metadata).encode("utf-8")})
    write_table(table, path)


def write_table(table: pa.Table, path: Path) -> None:
    """Write a table as Parquet, or as CSV where the name ends so. Raises InputError where it cannot be."""
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


def write_csv(database: WeightedDatabase, path: Path) -> None:
    """Write points and weights as text; missing categories are empty cells. Numbers keep all their digits."""
    write_table(arrow_table(database), path.with_suffix(".csv") if path.suffix == "" else path)


def metadata_of(database: "ReleasedDatabase") -> dict[str, Any]:
    """Return what a file needs beside the points so that the database can be loaded again."""
    return {
        "format": FORMAT,
        "domain": database.domain.model_dump(mode="json"),
        "kernel": {
            "shape": database.kernel.shape,
            "bandwidth": database.kernel.bandwidth,
            "similarity": database.kernel.similarity,
        },
        "embedding": database.embedding.tolist(),
        "features": features_fields(database),
        "histograms": _histogram_fields(database),
        "chosen_weights": None if database.chosen_weights is None else database.chosen_weights.tolist(),
        **{name: getattr(database, name) for name in PLAIN_FIELDS},
        "warnings": list(database.warnings),
    }


def _histogram_fields(database: "ReleasedDatabase") -> dict[str, Any] | None:
    found = database.histograms
    if found is None:
        return None
    return {
        "bins": found.bins,
        "shares": found.by_column(database.domain),
        "noise": found.noise,
        "whole": list(found.whole),
    }


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


def read_parquet(path: Path) -> "ReleasedDatabase":
    """Load a released database. Raises InputError where the file holds none."""
    from tacit.released_database import ReleasedDatabase  # noqa: PLC0415 (it builds on this module)

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
        chosen, histograms = fields["chosen_weights"], fields.get("histograms")
        database = ReleasedDatabase(
            domain=domain,
            points=points,
            kernel=kernel,
            released_features=features,
            histograms=None if histograms is None else NoisyHistograms.of(domain, **histograms),
            chosen_weights=None if chosen is None else np.array(chosen, dtype=np.float64),
            embedding=embedding,
            warnings=tuple(fields["warnings"]),
            **{name: fields[name] for name in PLAIN_FIELDS},
        )
        _ = database.locations  # every category is one of the domain
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path} holds a database that was damaged") from error
    return database


def _points(table: pa.Table, name: str, kind: str) -> npt.NDArray[Any]:
    values = table.column(name).to_pylist()
    points = np.array(values, dtype=np.float64 if kind == "numeric" else object)
    if kind == "numeric" and not np.all(np.isfinite(points)):
        raise ValueError("a point is not finite")
    return points
