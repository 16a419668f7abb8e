"""A client of a tester: create studies, wait for verdicts, verify transcripts."""

import ssl
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit import operations
from tacit.answers import (
    EnrolledParty,
    Identity,
    Invitation,
    InvitationRecord,
    RevokedInvitations,
    StudySummary,
)
from tacit.draft import PreparedStudy, StudyDraft
from tacit.driving import Driver
from tacit.keys import load_key
from tacit.operations import OnProgress, Role, Session
from tacit.results import StudyVerdict
from tacit.transport import HttpTransport, TokenSource, Transport
from tacit_protocol.messages.study import Study
from tacit_protocol.signing.keys import PrivateKey
from tacit_protocol.signing.tokens import issue_token

if TYPE_CHECKING:
    from tacit_protocol.verification import VerifiedTranscript

VERDICT_TIMEOUT_S = 600.0
"""How long to wait for a verdict unless told otherwise."""


class Client(Driver):
    """A tester, as seen by one party. Use it as a context manager.

    Args:
        url: the tester's base URL.
        key: the party's key, or the path of its key file; without one only ``identity`` is answered.
        audience: what the tester calls itself in tokens; by default its URL.
        tester_key: the tester's public key (64 hexadecimal digits), learned by a channel that you trust.
            Without it the tester's own word is believed.
        tls: a TLS context, for a private certificate authority or mutual TLS.
        insecure_plain_http: let everything travel in the clear to a URL that is not this machine's own. For
            tests without real data alone: without it such a URL is an :class:`~tacit.errors.InputError`.
        transport: replaces the network, for tests.
        clock: Unix time in seconds.

    Every method raises :class:`~tacit.errors.TransportError` where no answer comes, and
    :class:`~tacit.errors.ProblemError` where the tester refuses.
    """

    def __init__(
        self,
        url: str,
        key: PrivateKey | Path | str | None = None,
        *,
        audience: str | None = None,
        tester_key: str | None = None,
        tls: ssl.SSLContext | None = None,
        insecure_plain_http: bool = False,
        transport: Transport | None = None,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        own_key = resolve_key(key)
        tokens = token_source(own_key, audience or url.rstrip("/"), clock)
        self._session = Session(own_key, tester_key, clock, time.monotonic)
        chosen = transport or HttpTransport(
            url, tokens, tls=tls, insecure_plain_http=insecure_plain_http, sleep=sleep
        )
        super().__init__(chosen, sleep)

    def identity(self) -> Identity:
        """Ask the tester who it is; needs no key."""
        return self._run(operations.identity())

    def parties(self) -> list[EnrolledParty]:
        """List the enrolled parties."""
        return self._run(operations.parties())

    def invite(self, role: Role, name: str) -> Invitation:
        """Make a one-time invitation; only the tester's own key may."""
        return self._run(operations.invite(self._session, role, name))

    def invitations(self) -> list[InvitationRecord]:
        """List all invitations ever made, and what became of each; only the tester's own key may."""
        return self._run(operations.invitations())

    def revoke_invitations(self, name: str) -> RevokedInvitations:
        """Revoke the invitations of a name that could still be used; only the tester's own key may."""
        return self._run(operations.revoke_invitations(name))

    def revoke(self, name: str) -> EnrolledParty:
        """Revoke a party's key for good; only the tester's own key may.

        Its requests are refused from then on, and every collecting study ends that it created or from which
        its release is missing. What it signed before holds, and verifies.
        """
        return self._run(operations.revoke(name))

    def enrol(self, invitation: str, name: str, role: Role) -> EnrolledParty:
        """Enrol this client's key under a name, with an invitation."""
        return self._run(operations.enrol(self._session, invitation, name, role))

    def prepare_study(self, draft: StudyDraft | Mapping[str, Any]) -> PreparedStudy:
        """Freeze a draft into a study and work out its cost; nothing is stored.

        Raises:
            InputError: an owner is not enrolled, or this client's key is no analyst's.
            StudyRefusedError: the procedure does not take the study as written.
        """
        return self._run(operations.prepare_study(self._session, as_draft(draft)))

    def create_study(
        self, study: StudyDraft | PreparedStudy | Mapping[str, Any], *, force: bool = False
    ) -> str:
        """Sign a study and hand it to the tester. Returns its digest, by which everyone knows it.

        Raises:
            HopelessStudyError: it could hardly find anything, and ``force`` is False.
            StudyRefusedError: the procedure does not take it as written.
        """
        drafted = study if isinstance(study, PreparedStudy) else as_draft(study)
        return self._run(operations.create_study(self._session, drafted, force))

    def studies(self, state: str | None = None) -> list[StudySummary]:
        """List the studies, all or those in one state."""
        return self._run(operations.studies(state))

    def study(self, digest: str) -> StudySummary:
        """Read one study's state."""
        return self._run(operations.study_summary(digest))

    def study_content(self, digest: str) -> Study:
        """Read the study itself, checked against its digest and its analyst's signature."""
        return self._run(operations.study(self._session, digest))

    def wait_for_verdict(
        self, digest: str, timeout_s: float = VERDICT_TIMEOUT_S, on_progress: OnProgress | None = None
    ) -> StudyVerdict:
        """Wait until the study ends; returns its verdict, checked against the tester's signature.

        Raises:
            VerdictTimeoutError: the study had not ended after ``timeout_s`` seconds.
            VerificationFailedError: the tester's answer is not signed as it must be.
        """
        return self._run(operations.wait_for_verdict(self._session, digest, timeout_s, on_progress))

    def transcript(self, digest: str) -> bytes:
        """Read a study's transcript: exact bytes, to be kept and verified."""
        return self._run(operations.transcript(digest))

    def verify(self, digest: str) -> "VerifiedTranscript":
        """Fetch a study's transcript and recompute everything in it, the verdict included.

        Raises:
            VerificationFailedError: a signature, a digest or a recomputed figure does not match.
        """
        from tacit.verify import verify_transcript_of  # noqa: PLC0415 (statistics load when needed)

        return verify_transcript_of(self.transcript(digest), digest, self._session.tester_key)

    def cancel(self, digest: str) -> None:
        """Withdraw a study; only its analyst may. What owners have spent stays spent."""
        self._run(operations.cancel(self._session, digest))


def resolve_key(key: PrivateKey | Path | str | None) -> PrivateKey | None:
    """Return the key itself, read from its file where a path was given."""
    return load_key(Path(key)) if isinstance(key, Path | str) else key


def token_source(key: PrivateKey | None, audience: str, clock: Callable[[], float]) -> TokenSource | None:
    """Return a function that issues tokens for one audience, or None where there is no key."""
    if key is None:
        return None
    return lambda: issue_token(key, audience, int(clock()))


def as_draft(study: StudyDraft | Mapping[str, Any]) -> StudyDraft:
    """Return a draft, built from plain values where those were given."""
    return study if isinstance(study, StudyDraft) else StudyDraft.from_dict(study)
