"""What `tacit release` reads: a transcript, a Parquet file, or a study at the tester. Imports wait."""
# ruff: noqa: PLC0415

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit.errors import InputError
from tacit.whole_files import reason_of

if TYPE_CHECKING:
    from tacit.released_database import ReleasedDatabase


STARTS = 3
"""Starts of points that are moved."""


def read_release(
    source: str,
    owner: str | None,
    party: Path,
    *,
    weights: str = "simplex",
    move: bool | None = False,
    quiet: bool = False,
) -> "ReleasedDatabase":
    """Return the database in a file, or of the study whose digest starts so, with weights of that kind.

    ``move`` says whether points are moved to match the release; None, where they do not otherwise and nothing
    that was released chose them.

    Raises:
        InputError: there is no such file or study, or no database of that owner in it.
    """
    from tacit.command.output import progress
    from tacit.released_database_reading import load_database

    with progress("recomputing the release", quiet=quiet) as report:
        if not _looks_like_digest(source) or Path(source).exists():
            database = load_database(source, owner=owner, progress=report)
        else:
            database = _of_study(source, owner, party, report)
    if move or (move is None and database.points_are_blind and database.limits != database.warnings):
        with progress("moving the points", quiet=quiet) as report:
            database = database.reduced(
                len(database), starts=STARTS, seed=0, progress=lambda part: report(part, "")
            )
    if weights == "simplex":
        return database
    return database.with_weights(weights)  # type: ignore[arg-type]


def _of_study(beginning: str, owner: str | None, party: Path, report: Any) -> "ReleasedDatabase":
    from tacit.command.connect import DIGEST_LENGTH, party_client, whole_digest
    from tacit.released_database_reading import database_of_transcript

    with party_client(party) as client:
        known = [] if len(beginning) == DIGEST_LENGTH else [study.digest for study in client.studies()]
        digest = whole_digest(beginning, known)
        data = client.transcript(digest)
    return database_of_transcript(data, digest=digest, owner=owner, progress=report)


def _looks_like_digest(text: str) -> bool:
    return 4 <= len(text) <= 64 and all(character in "0123456789abcdef" for character in text)


def read_other(source: str, owner: str | None, party: Path, database: "ReleasedDatabase") -> Any:
    """Return another release, or a table of one's own (.csv or .parquet) with the database's columns."""
    path = Path(source)
    if path.suffix.lower() == ".csv":
        from tacit.command.plan_inputs import read_public

        return read_public(path, [column.name for column in database.domain.columns])
    if path.suffix.lower() == ".parquet" and not _holds_release(path):
        from tacit.command.plan_inputs import read_public

        return read_public(path, [column.name for column in database.domain.columns])
    return read_release(source, owner, party, quiet=True)


def _holds_release(path: Path) -> bool:
    import pyarrow as pa
    from pyarrow import parquet

    from tacit.released_database_export import METADATA_KEY

    try:
        with path.open("rb") as file:
            return METADATA_KEY in (parquet.read_schema(file).metadata or {})
    except pa.ArrowException as error:
        raise InputError(f"{path} is not Parquet") from error
    except OSError as error:
        raise InputError(f"cannot read {path}: {reason_of(error)}") from error
