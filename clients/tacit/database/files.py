"""Released databases as tables, files and pictures, and back."""

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

from tacit.atomic_write import reason_of, written_whole
from tacit.client.transcripts import verify_transcript_of
from tacit.database.points import Columns, WeightedDatabase, locations_of
from tacit.database.released import ReleasedDatabase, only_database
from tacit.database.weights import NoisyHistograms
from tacit.errors import InputError, pandas_module
from tacit.results import DatabaseResult, study_verdict
from tacit_protocol.domain import Column, Domain, NumericColumn
from tacit_protocol.features.kernels import FeatureMap, ProductKernel, RandomFourier
from tacit_protocol.features.mean_embedding import UNLISTED, Ridge, WhitenedMeanEmbedding, decode_locations
from tacit_protocol.messages.study import TRANSCRIPT_BYTES_MAX
from tacit_protocol.procedures.base import Progress
from tacit_protocol.verdicts.presentation import Bar, BarsPanel

if TYPE_CHECKING:
    import pandas
    import polars


def features_fields(database: "ReleasedDatabase") -> dict[str, Any] | None:
    """Return the map whose mean was released as plain values; None where it is the points' own."""
    features = database.released_features
    if features is None:
        return None
    if isinstance(features, RandomFourier):
        signs = [table.tolist() for table in features.signs]
        return {"frequencies": features.frequencies.tolist(), "signs": signs}
    if isinstance(features, WhitenedMeanEmbedding):
        rows = decode_locations(database.domain, features.locations)
        return {
            "locations": [list(row.values()) for row in rows],
            **_ridge_fields(features.ridge),
        }
    raise TypeError("a database has random features or those of points")


def _ridge_fields(ridge: Ridge) -> dict[str, str]:
    """Return a ridge as earlier versions read it: they know the coarse one alone, and no field of it."""
    return {} if ridge == "coarse" else {"ridge": ridge}


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
        return WhitenedMeanEmbedding(kernel, locations_of(domain, columns), fields.get("ridge", "coarse"))
    frequencies = np.array(fields["frequencies"], dtype=np.float64).reshape(-1, len(domain.numeric))
    signs = tuple(np.array(table, dtype=np.float64) for table in fields["signs"])
    if len(signs) != len(domain.categorical) or not np.all(np.isfinite(frequencies)):
        raise ValueError("the frequencies do not fit the columns")
    return RandomFourier(frequencies, signs)


METADATA_KEY = b"tacit.database.released"
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
    pandas_module()
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
        **_ridge_fields(database.ridge),
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
    from tacit.database.released import ReleasedDatabase  # noqa: PLC0415 (it builds on this module)

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
            ridge=fields.get("ridge", "coarse"),
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


PANELS_MAX = 60
"""Most columns that are drawn."""

LEVELS_MAX = 12
"""Most levels of one column that are drawn; the smallest are drawn together."""

BINS_MIN, BINS_MAX, POINTS_PER_BIN = 4, 20, 5

WHISKERS = "share ± standard error"


def panels(database: WeightedDatabase) -> list[BarsPanel]:
    """Return every column's distribution, ``PANELS_MAX`` at most, with one standard error to either side."""
    columns = database.domain.columns
    some = f"; {PANELS_MAX} of {len(columns)} columns" if len(columns) > PANELS_MAX else ""
    return [_panel(database, column, WHISKERS + some) for column in columns[:PANELS_MAX]]


def _panel(database: WeightedDatabase, column: Column, axis: str) -> BarsPanel:
    values, edges = database.points[column.name], tuple[float, ...]()
    if isinstance(column, NumericColumn):
        count = int(np.clip(len(database) // POINTS_PER_BIN, BINS_MIN, BINS_MAX))
        edges = tuple(np.linspace(column.lower, column.upper, count + 1).tolist())
        numbers = np.asarray(values, dtype=np.float64)
        members = np.eye(count)[np.clip(np.searchsorted(edges, numbers, side="right") - 1, 0, count - 1)]
        labels = [f"{low:g} to {high:g}" for low, high in pairwise(edges)]
    else:
        names: list[str | None] = [*column.levels, UNLISTED, None]
        every = np.array([[value == name for name in names] for value in values], dtype=np.float64)
        kept = np.argsort(-np.abs(database.weights @ every), kind="stable")[:LEVELS_MAX]
        rest = np.delete(every, kept, axis=1).sum(axis=1)
        members = np.column_stack([every[:, kept], rest]) if rest.any() else every[:, kept]
        labels = [*("missing" if names[i] is None else str(names[i]) for i in kept), "the rest"]
    known = database.uncertainty
    parts = [known.noise] if known.projection is None else [known.noise, known.projection]
    shares, errors = database.weights @ members, np.linalg.norm(members.T @ np.hstack(parts), axis=1)
    # Whiskers end at twice the highest bar, which would not be seen otherwise.
    reach = 2 * (float(np.abs(shares).max()) or 1.0)
    bars = [
        Bar(label, float(share), max(float(share - error), -reach), min(float(share + error), reach))
        for label, share, error in zip(labels, shares, errors, strict=False)
    ]
    return BarsPanel(column.name, axis, tuple(bars), edges=edges)


PARQUET_MAGIC = b"PAR1"


def load_database(
    path: str | Path,
    *,
    owner: str | None = None,
    tester_key: str | None = None,
    progress: Progress | None = None,
) -> ReleasedDatabase:
    """Load a released database from a transcript, which is verified first, or from a Parquet file.

    Args:
        path: a transcript of an ``embedding_release`` study, or what ``to_parquet`` wrote.
        owner: whose database, where the study has several.
        tester_key: the tester's public key, where it is known from elsewhere.
        progress: called with the part done and the step while a transcript is recomputed.

    Raises:
        InputError: the file cannot be read, or holds no released database of that owner.
        VerificationFailedError: the transcript does not hold.
    """
    file = Path(path)
    try:
        with file.open("rb") as opened:
            beginning = opened.read(len(PARQUET_MAGIC))
            if beginning == PARQUET_MAGIC:
                if owner is not None:
                    raise InputError(
                        "a Parquet file holds one database, without its owner's name: leave it out"
                    )
                return ReleasedDatabase.load(file)
            data = beginning + opened.read(TRANSCRIPT_BYTES_MAX + 1)
    except OSError as error:
        raise InputError(f"cannot read {file}: {reason_of(error)}") from error
    return database_of_transcript(data, owner=owner, tester_key=tester_key, progress=progress)


def database_of_transcript(
    data: bytes,
    *,
    digest: str | None = None,
    owner: str | None = None,
    tester_key: str | None = None,
    progress: Progress | None = None,
) -> ReleasedDatabase:
    """Verify a transcript and return a database in it; see :func:`load_database`.

    ``digest`` is the study's, where it is known.
    """
    verified = verify_transcript_of(data, digest, tester_key, progress)
    result = study_verdict(verified.study, verified.verdict).result
    if result is None:
        raise InputError("the study ended without a result: there is no database in it")
    if not isinstance(result, DatabaseResult):
        raise InputError(f"this is a study of {verified.study.procedure}, which releases no database")
    return only_database(result.databases, owner)
