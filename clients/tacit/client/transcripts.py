"""Transcripts: verified by recomputing everything on this machine, and the results in them."""

from pathlib import Path
from typing import TYPE_CHECKING

from tacit.errors import InputError, VerificationFailedError
from tacit_protocol.messages.study import TRANSCRIPT_BYTES_MAX
from tacit_protocol.procedures.base import Progress
from tacit_protocol.verification import VerificationError, VerifiedTranscript, verify_transcript

if TYPE_CHECKING:
    from tacit.results import Result


def verify_transcript_of(
    data: bytes, digest: str | None, tester_key: str | None, progress: Progress | None = None
) -> VerifiedTranscript:
    """Verify a transcript, and that it is the one asked for.

    Args:
        data: the transcript, exact bytes.
        digest: the study's digest, or None where any study will do.
        tester_key: the tester's public key, where it is known from elsewhere.
        progress: called with the part done and the step while the verdict is recomputed.

    Raises:
        VerificationFailedError: a step failed; the message says which.
    """
    try:
        verified = verify_transcript(data, tester_key, progress)
    except VerificationError as error:
        raise VerificationFailedError(f"this transcript does not hold: {error}") from error
    if digest is not None and verified.study_digest != digest:
        raise VerificationFailedError("this is the transcript of another study")
    return verified


def load_result(
    path: str | Path, *, tester_key: str | None = None, progress: Progress | None = None
) -> "Result":
    """Verify a transcript and return the result in it, with everything that its picture needs.

    Args:
        path: a transcript, as ``Client.transcript`` or ``tacit study transcript`` fetched it.
        tester_key: the tester's public key, where it is known from elsewhere.
        progress: called with the part done and the step while the verdict is recomputed.

    Raises:
        InputError: the file cannot be read, or the study ended without a result.
        VerificationFailedError: the transcript does not hold.
    """
    return result_in(read_transcript(Path(path)), tester_key=tester_key, progress=progress)


def result_in(
    data: bytes,
    *,
    digest: str | None = None,
    tester_key: str | None = None,
    progress: Progress | None = None,
) -> "Result":
    """Verify a transcript's bytes and return the result; see :func:`load_result`.

    ``digest`` is the study's, where it is known.
    """
    from tacit.results import study_verdict  # noqa: PLC0415 (results load slowly)

    verified = verify_transcript_of(data, digest, tester_key, progress)
    verdict = study_verdict(verified.study, verified.verdict, verified.releases)
    if verdict.result is None:
        raise InputError(f"the study ended {verdict.outcome}: there is no result in its transcript")
    return verdict.result


def read_transcript(file: Path) -> bytes:
    """Read a transcript's bytes, of a file that is too large one more than are taken.

    Raises:
        InputError: the file cannot be read.
    """
    try:
        with file.open("rb") as opened:
            return opened.read(TRANSCRIPT_BYTES_MAX + 1)
    except OSError as error:
        raise InputError(f"cannot read {file}: {error.strerror}") from error
