"""The same client without blocking: every method of :class:`~tacit.client.Client`, to be awaited."""

import asyncio
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping
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
from tacit.client import VERDICT_TIMEOUT_S, as_draft, resolve_key, token_source
from tacit.draft import PreparedStudy, StudyDraft
from tacit.driving import AsyncDriver
from tacit.operations import OnProgress, Role, Session
from tacit.results import StudyVerdict
from tacit.transport import AsyncHttpTransport, AsyncTransport
from tacit_protocol.messages.study import Study
from tacit_protocol.signing.keys import PrivateKey

if TYPE_CHECKING:
    from tacit_protocol.verification import VerifiedTranscript


class AsyncClient(AsyncDriver):
    """A tester, as seen by one party. Use it as an asynchronous context manager.

    The arguments and the exceptions are those of :class:`~tacit.client.Client`.
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
        transport: AsyncTransport | None = None,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        own_key = resolve_key(key)
        tokens = token_source(own_key, audience or url.rstrip("/"), clock)
        self._session = Session(own_key, tester_key, clock, time.monotonic)
        chosen = transport or AsyncHttpTransport(
            url, tokens, tls=tls, insecure_plain_http=insecure_plain_http, sleep=sleep
        )
        super().__init__(chosen, sleep)

    async def identity(self) -> Identity:
        """Ask the tester who it is; needs no key."""
        return await self._run(operations.identity())

    async def parties(self) -> list[EnrolledParty]:
        """List the enrolled parties."""
        return await self._run(operations.parties())

    async def invite(self, role: Role, name: str) -> Invitation:
        """Make a one-time invitation; only the tester's own key may."""
        return await self._run(operations.invite(self._session, role, name))

    async def invitations(self) -> list[InvitationRecord]:
        """List all invitations ever made, and what became of each; only the tester's own key may."""
        return await self._run(operations.invitations())

    async def revoke_invitations(self, name: str) -> RevokedInvitations:
        """Revoke the invitations of a name that could still be used; only the tester's own key may."""
        return await self._run(operations.revoke_invitations(name))

    async def revoke(self, name: str) -> EnrolledParty:
        """Revoke a party's key for good; only the tester's own key may.

        Its requests are refused from then on, and every collecting study ends that it created or from which
        its release is missing. What it signed before holds, and verifies.
        """
        return await self._run(operations.revoke(name))

    async def enrol(self, invitation: str, name: str, role: Role) -> EnrolledParty:
        """Enrol this client's key under a name, with an invitation."""
        return await self._run(operations.enrol(self._session, invitation, name, role))

    async def prepare_study(self, draft: StudyDraft | Mapping[str, Any]) -> PreparedStudy:
        """Freeze a draft into a study and work out its cost; nothing is stored.

        Raises:
            InputError: an owner is not enrolled, or this client's key is no analyst's.
            StudyRefusedError: the procedure does not take the study as written.
        """
        return await self._run(operations.prepare_study(self._session, as_draft(draft)))

    async def create_study(
        self, study: StudyDraft | PreparedStudy | Mapping[str, Any], *, force: bool = False
    ) -> str:
        """Sign a study and hand it to the tester. Returns its digest, by which everyone knows it.

        Raises:
            HopelessStudyError: it could hardly find anything, and ``force`` is False.
            StudyRefusedError: the procedure does not take it as written.
        """
        drafted = study if isinstance(study, PreparedStudy) else as_draft(study)
        return await self._run(operations.create_study(self._session, drafted, force))

    async def studies(self, state: str | None = None) -> list[StudySummary]:
        """List the studies, all or those in one state."""
        return await self._run(operations.studies(state))

    async def study(self, digest: str) -> StudySummary:
        """Read one study's state."""
        return await self._run(operations.study_summary(digest))

    async def study_content(self, digest: str) -> Study:
        """Read the study itself, checked against its digest and its analyst's signature."""
        return await self._run(operations.study(self._session, digest))

    async def wait_for_verdict(
        self, digest: str, timeout_s: float = VERDICT_TIMEOUT_S, on_progress: OnProgress | None = None
    ) -> StudyVerdict:
        """Wait until the study ends; returns its verdict, checked against the tester's signature.

        Raises:
            VerdictTimeoutError: the study had not ended after ``timeout_s`` seconds.
            VerificationFailedError: the tester's answer is not signed as it must be.
        """
        return await self._run(operations.wait_for_verdict(self._session, digest, timeout_s, on_progress))

    async def transcript(self, digest: str) -> bytes:
        """Read a study's transcript: exact bytes, to be kept and verified."""
        return await self._run(operations.transcript(digest))

    async def verify(self, digest: str) -> "VerifiedTranscript":
        """Fetch a study's transcript and recompute everything in it, the verdict included.

        Raises:
            VerificationFailedError: a signature, a digest or a recomputed figure does not match.
        """
        from tacit.verify import verify_transcript_of  # noqa: PLC0415 (statistics load when needed)

        data = await self.transcript(digest)
        return await asyncio.to_thread(verify_transcript_of, data, digest, self._session.tester_key)

    async def cancel(self, digest: str) -> None:
        """Withdraw a study; only its analyst may. What owners have spent stays spent."""
        await self._run(operations.cancel(self._session, digest))
