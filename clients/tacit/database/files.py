"""Released databases out of files: a transcript, which is verified, or Parquet."""

from pathlib import Path

from tacit.atomic_write import reason_of
from tacit.client.transcripts import verify_transcript_of
from tacit.database.released import ReleasedDatabase, databases_of, only_database
from tacit.errors import InputError
from tacit_protocol.messages.study import TRANSCRIPT_BYTES_MAX
from tacit_protocol.procedures.base import Progress
from tacit_protocol.procedures.embedding_release.verdict import EmbeddingReleaseVerdict

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
    if verified.result is None:
        raise InputError("the study ended without a result: there is no database in it")
    if not isinstance(verified.result, EmbeddingReleaseVerdict):
        raise InputError(f"this is a study of {verified.study.procedure}, which releases no database")
    return only_database(databases_of(verified.study, verified.result), owner)
