"""Verifying transcripts: everything recomputed on this machine, trusting no one."""

from tacit.errors import VerificationFailedError
from tacit_protocol.procedures.base import Progress
from tacit_protocol.verification import VerificationError, VerifiedTranscript, verify_transcript


def verify_transcript_of(
    data: bytes,
    digest: str | None,
    tester_key: str | None,
    progress: Progress | None = None,
    cancellation: str | None = None,
) -> VerifiedTranscript:
    """Verify a transcript, and that it is the one asked for.

    Args:
        data: the transcript, exact bytes.
        digest: the study's digest, or None where any study will do.
        tester_key: the tester's public key, where it is known from elsewhere.
        progress: called with the part done and the step while the verdict is recomputed.
        cancellation: the analyst's signed cancellation, where an earlier version left it out.

    Raises:
        VerificationFailedError: a step failed; the message says which.
    """
    try:
        verified = verify_transcript(data, tester_key, progress, cancellation)
    except VerificationError as error:
        raise VerificationFailedError(f"this transcript does not hold: {error}") from error
    if digest is not None and verified.study_digest != digest:
        raise VerificationFailedError("this is the transcript of another study")
    return verified
