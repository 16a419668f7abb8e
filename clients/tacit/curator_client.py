"""A client of a curator: hand data over, decide on studies, see what was spent."""

import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from tacit import curator_operations
from tacit.answers import (
    EnrolledOwner,
    HeldDataSet,
    Identity,
    Invitation,
    InvitationRecord,
    RevokedInvitations,
)
from tacit.client import resolve_key, token_source
from tacit.curator_configuration import read_own_curator, read_owner
from tacit.curator_operations import CuratorSession
from tacit.data_set import DataSetDescription, OnBytes, upload_of
from tacit.driving import Driver
from tacit.errors import InputError
from tacit.transport import HttpTransport, Transport, tls_of
from tacit_protocol.signing.keys import PrivateKey


class CuratorClient(Driver):
    """A curator, as seen by one owner, or by its operator. Use it as a context manager.

    Args:
        url: the curator's base URL.
        key: the owner's key, or the path of its key file; the operator's is the curator's own.
        owner: the name that the owner enrolled (or enrols) under; None for the operator.
        audience: what the curator calls itself in tokens; by default its URL.
        curator_key: the curator's public key (64 hexadecimal digits), learned by a channel that you trust. It
            is compared before anything is handed over; TLS is what keeps others from listening.
        tls: a TLS context, for a private certificate authority or mutual TLS.
        insecure_plain_http: let everything travel in the clear to a URL that is not this machine's own. For
            tests without real data alone: without it such a URL is an :class:`~tacit.errors.InputError`.
        transport: replaces the network, for tests.
        clock: Unix time in seconds.

    Every method raises :class:`~tacit.errors.TransportError` where no answer comes, and
    :class:`~tacit.errors.ProblemError` where the curator refuses.
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
        transport: Transport | None = None,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._session = session_of(key, owner, curator_key)
        tokens = token_source(self._session.key, audience or url.rstrip("/"), clock)
        chosen = transport or HttpTransport(
            url, tokens, tls=tls, insecure_plain_http=insecure_plain_http, sleep=sleep
        )
        super().__init__(chosen, sleep)

    @classmethod
    def of_owner(cls, path: Path, ca_file: Path | None = None) -> Self:
        """Build an owner's client from its owner.toml; ``ca_file`` comes before the one that it names.

        Raises:
            ConfigurationError: the file or the key cannot be read.
        """
        owner = read_owner(path)
        curator = owner.curator
        return cls(
            curator.url,
            owner.key_file,
            owner=owner.name,
            audience=curator.audience,
            curator_key=curator.key,
            tls=tls_of(ca_file or owner.ca_file),
            insecure_plain_http=owner.insecure_plain_http,
        )

    @classmethod
    def of_operator(cls, path: Path, ca_file: Path | None = None) -> Self:
        """Build the operator's client from the curator's own curator.toml; ``ca_file`` as in `of_owner`.

        Raises:
            ConfigurationError: the file or the key cannot be read.
        """
        own = read_own_curator(path)
        return cls(
            own.url,
            own.key,
            audience=own.audience,
            curator_key=own.key.public_hex,
            tls=tls_of(ca_file or own.ca_file),
            insecure_plain_http=own.insecure_plain_http,
        )

    def identity(self) -> Identity:
        """Ask the curator who it is."""
        return self._run(curator_operations.identity())

    def invite(self, name: str) -> Invitation:
        """Make a one-time invitation for an owner; only the curator's own key may."""
        return self._run(curator_operations.invite(name))

    def invitations(self) -> list[InvitationRecord]:
        """List all invitations ever made, and what became of each; only the curator's own key may."""
        return self._run(curator_operations.invitations())

    def revoke_invitations(self, name: str) -> RevokedInvitations:
        """Revoke the invitations of a name that could still be used; only the curator's own key may."""
        return self._run(curator_operations.revoke_invitations(name))

    def revoke(self, name: str) -> EnrolledOwner:
        """Revoke an owner's key for good; only the curator's own key may.

        Its requests are refused from then on, and no study is answered from its data sets.
        """
        return self._run(curator_operations.revoke(name))

    def enrol(self, invitation: str) -> EnrolledOwner:
        """Enrol this client's key under its owner's name, with an invitation."""
        return self._run(curator_operations.enrol(self._session, invitation))

    def owners(self) -> list[EnrolledOwner]:
        """List the enrolled owners; only the curator's own key may."""
        return self._run(curator_operations.owners())

    def register(self, data_set: DataSetDescription | Mapping[str, Any]) -> HeldDataSet:
        """Register a data set, or change its caps and its policy.

        Raises:
            InputError: the description is not one.
        """
        return self._run(curator_operations.register(self._session, as_description(data_set)))

    def upload(self, name: str, file: Path | str, on_bytes: OnBytes | None = None) -> HeldDataSet:
        """Send a data set's rows, a .csv or .parquet file; they replace those that were there.

        The file is read while it is sent, in constant memory; ``on_bytes`` is told how many bytes were.

        Raises:
            InputError: the file cannot be read, or is of another kind.
        """
        rows = upload_of(Path(file), on_bytes)
        return self._run(curator_operations.upload(self._session, name, rows))

    def data_sets(self) -> list[HeldDataSet]:
        """List the data sets: an owner its own, the operator all."""
        return self._run(curator_operations.data_sets())

    def data_set(self, name: str) -> HeldDataSet:
        """Read one of the owner's data sets."""
        return self._run(curator_operations.data_set(self._session, name))

    def delete(self, name: str) -> None:
        """Delete a data set's rows for good. Its account and what was spent stay.

        An owner gives the data set's name, the operator the account, ``owner/data-set``.
        """
        self._run(curator_operations.delete(self._session, name))

    def studies(self, state: str | None = None) -> list[dict[str, Any]]:
        """List what is asked of this owner; for the operator, everything."""
        return self._run(curator_operations.studies(state))

    def study(self, digest: str) -> dict[str, Any]:
        """Read one study: in plain words, what it costs, what remains, who has approved."""
        return self._run(curator_operations.study(digest))

    def approve(self, digest: str) -> dict[str, Any]:
        """Approve a study for this owner's data sets; it runs once every owner has."""
        return self._run(curator_operations.approve(digest))

    def decline(self, digest: str, reason: str | None = None) -> dict[str, Any]:
        """Decline a study. ``reason`` is a note for the curator's records and is never sent to the tester."""
        return self._run(curator_operations.decline(digest, reason))

    def ledger(self, data_set: str | None = None) -> list[dict[str, Any]]:
        """List the ledger's entries: of this owner's accounts, or all for the operator."""
        return self._run(curator_operations.ledger(data_set))

    def verify_ledger(self, kept_hashes: Sequence[str] = ()) -> dict[str, Any]:
        """Have the curator check its ledger: ``ok``, ``accounts`` with their head hashes, and ``faults``.

        ``kept_hashes`` are head hashes that were kept in another place; each must still be an entry's.
        """
        return self._run(curator_operations.verify_ledger(kept_hashes))


def session_of(key: PrivateKey | Path | str, owner: str | None, curator_key: str | None) -> CuratorSession:
    """Return who asks; the key is read from its file where a path was given."""
    own_key = resolve_key(key)
    if own_key is None:
        raise InputError("a curator answers no one without a key: pass key=")
    return CuratorSession(own_key, owner, curator_key)


def as_description(data_set: DataSetDescription | Mapping[str, Any]) -> DataSetDescription:
    """Return a description, built from plain values where those were given."""
    return data_set if isinstance(data_set, DataSetDescription) else DataSetDescription.from_dict(data_set)
