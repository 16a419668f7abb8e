"""The same client without blocking: every method of :class:`~tacit.curator_client.CuratorClient`, awaited."""

import asyncio
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tacit import curator_operations
from tacit.answers import (
    EnrolledOwner,
    HeldDataSet,
    Identity,
    Invitation,
    InvitationRecord,
    RevokedInvitations,
)
from tacit.client import token_source
from tacit.curator_client import as_description, session_of
from tacit.data_set import DataSetDescription, OnBytes, upload_of
from tacit.driving import AsyncDriver
from tacit.transport import AsyncHttpTransport, AsyncTransport
from tacit_protocol.signing.keys import PrivateKey


class AsyncCuratorClient(AsyncDriver):
    """A curator, as seen by one owner, or by its operator. Use it as an asynchronous context manager.

    The arguments and the exceptions are those of :class:`~tacit.curator_client.CuratorClient`.
    """

    def __init__(
        self,
        url: str,
        key: PrivateKey | Path | str,
        *,
        owner: str | None = None,
        audience: str | None = None,
        curator_key: str | None = None,
        tls: ssl.SSLContext | None = None,
        insecure_plain_http: bool = False,
        transport: AsyncTransport | None = None,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._session = session_of(key, owner, curator_key)
        tokens = token_source(self._session.key, audience or url.rstrip("/"), clock)
        chosen = transport or AsyncHttpTransport(
            url, tokens, tls=tls, insecure_plain_http=insecure_plain_http, sleep=sleep
        )
        super().__init__(chosen, sleep)

    async def identity(self) -> Identity:
        """Ask the curator who it is."""
        return await self._run(curator_operations.identity())

    async def invite(self, name: str) -> Invitation:
        """Make a one-time invitation for an owner; only the curator's own key may."""
        return await self._run(curator_operations.invite(name))

    async def invitations(self) -> list[InvitationRecord]:
        """List all invitations ever made, and what became of each; only the curator's own key may."""
        return await self._run(curator_operations.invitations())

    async def revoke_invitations(self, name: str) -> RevokedInvitations:
        """Revoke the invitations of a name that could still be used; only the curator's own key may."""
        return await self._run(curator_operations.revoke_invitations(name))

    async def revoke(self, name: str) -> EnrolledOwner:
        """Revoke an owner's key for good; only the curator's own key may.

        Its requests are refused from then on, and no study is answered from its data sets.
        """
        return await self._run(curator_operations.revoke(name))

    async def enrol(self, invitation: str) -> EnrolledOwner:
        """Enrol this client's key under its owner's name, with an invitation."""
        return await self._run(curator_operations.enrol(self._session, invitation))

    async def owners(self) -> list[EnrolledOwner]:
        """List the enrolled owners; only the curator's own key may."""
        return await self._run(curator_operations.owners())

    async def register(self, data_set: DataSetDescription | Mapping[str, Any]) -> HeldDataSet:
        """Register a data set, or change its caps and its policy.

        Raises:
            InputError: the description is not one.
        """
        return await self._run(curator_operations.register(self._session, as_description(data_set)))

    async def upload(self, name: str, file: Path | str, on_bytes: OnBytes | None = None) -> HeldDataSet:
        """Send a data set's rows, a .csv or .parquet file; they replace those that were there.

        The file is read while it is sent, in constant memory; ``on_bytes`` is told how many bytes were.

        Raises:
            InputError: the file cannot be read, or is of another kind.
        """
        rows = upload_of(Path(file), on_bytes)
        return await self._run(curator_operations.upload(self._session, name, rows))

    async def data_sets(self) -> list[HeldDataSet]:
        """List the data sets: an owner its own, the operator all."""
        return await self._run(curator_operations.data_sets())

    async def data_set(self, name: str) -> HeldDataSet:
        """Read one of the owner's data sets."""
        return await self._run(curator_operations.data_set(self._session, name))

    async def delete(self, name: str) -> None:
        """Delete a data set's rows for good. Its account and what was spent stay.

        An owner gives the data set's name, the operator the account, ``owner/data-set``.
        """
        await self._run(curator_operations.delete(self._session, name))

    async def studies(self, state: str | None = None) -> list[dict[str, Any]]:
        """List what is asked of this owner; for the operator, everything."""
        return await self._run(curator_operations.studies(state))

    async def study(self, digest: str) -> dict[str, Any]:
        """Read one study: in plain words, what it costs, what remains, who has approved."""
        return await self._run(curator_operations.study(digest))

    async def approve(self, digest: str) -> dict[str, Any]:
        """Approve a study for this owner's data sets; it runs once every owner has."""
        return await self._run(curator_operations.approve(digest))

    async def decline(self, digest: str, reason: str | None = None) -> dict[str, Any]:
        """Decline a study. ``reason`` is a note for the curator's records and is never sent to the tester."""
        return await self._run(curator_operations.decline(digest, reason))

    async def ledger(self, data_set: str | None = None) -> list[dict[str, Any]]:
        """List the ledger's entries: of this owner's accounts, or all for the operator."""
        return await self._run(curator_operations.ledger(data_set))

    async def verify_ledger(self, kept_hashes: Sequence[str] = ()) -> dict[str, Any]:
        """Have the curator check its ledger: ``ok``, ``accounts`` with their head hashes, and ``faults``.

        ``kept_hashes`` are head hashes that were kept in another place; each must still be an entry's.
        """
        return await self._run(curator_operations.verify_ledger(kept_hashes))
