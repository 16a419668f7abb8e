"""Clients of a curator, blocking and awaited: hand data over, decide on studies, see what was spent."""

import asyncio
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Self

from tacit.client.data_set import DataSetDescription, OnBytes, upload_of
from tacit.client.http import HttpRequest, parse, parse_item, segment
from tacit.client.operation import AsyncDriver, Driver, Operation, ask, ask_object, call, object_of, pages
from tacit.client.tester import ServiceCalls, resolve_key, study_path, token_source
from tacit.client.transport import AsyncHttpTransport, AsyncTransport, HttpTransport, Transport, way
from tacit.errors import InputError, ResponseError, VerificationFailedError
from tacit.setup.configuration import read_own_service, read_owner
from tacit_protocol.addresses import Proxy
from tacit_protocol.messages.answers import EnrolledOwner, HeldDataSet, Invitation
from tacit_protocol.messages.encoding import encode_json
from tacit_protocol.signing import PrivateKey

UPLOAD_TIMEOUT_S = 600.0
"""How long a curator may be silent about an upload: it checks and encrypts all rows before it answers."""


class CuratorCalls(ServiceCalls):
    """What an owner, or the operator, does with a curator: shared by both clients."""

    _key: PrivateKey
    _owner: str | None
    """The owner's name; None for the operator."""
    _curator_key: str | None
    """The curator's key where it is pinned."""

    @call
    def invite(self, name: str) -> Operation[Invitation]:
        """Make a one-time invitation for an owner; only the curator's own key may."""
        body = encode_json({"name": name})
        return parse(Invitation, (yield from ask(HttpRequest("POST", "/v1/invitations", body=body))))

    @call
    def revoke(self, name: str) -> Operation[EnrolledOwner]:
        """Revoke an owner's key for good; only the curator's own key may.

        Its requests are refused from then on, and no study is answered from its data sets.
        """
        answer = yield from ask(HttpRequest("PUT", f"/v1/owners/{segment(name)}/revocation"))
        return parse(EnrolledOwner, answer)

    @call
    def enrol(self, invitation: str) -> Operation[EnrolledOwner]:
        """Enrol this client's key under its owner's name, with an invitation."""
        yield from self._check_curator()
        fields = {"invitation": invitation, "name": self._owner_name(), "key": self._key.public_hex}
        answer = yield from ask(HttpRequest("POST", "/v1/enrolments", body=encode_json(fields)))
        return parse(EnrolledOwner, answer)

    @call
    def owners(self) -> Operation[list[EnrolledOwner]]:
        """List the enrolled owners; only the curator's own key may."""
        return (yield from pages("/v1/owners", {}, partial(parse_item, EnrolledOwner)))

    @call
    def register(self, data_set: DataSetDescription | Mapping[str, Any]) -> Operation[HeldDataSet]:
        """Register a data set, or change its caps and its policy.

        Raises:
            InputError: the description is not one.
        """
        if not isinstance(data_set, DataSetDescription):
            data_set = DataSetDescription.from_dict(data_set)
        path = _data_set_path(self._owner_name(), data_set.name)
        return parse(HeldDataSet, (yield from ask(HttpRequest("PUT", path, body=data_set.registration()))))

    @call
    def upload(self, name: str, file: Path | str, on_bytes: OnBytes | None = None) -> Operation[HeldDataSet]:
        """Send a data set's rows, a .csv or .parquet file; they replace those that were there.

        The file is read while it is sent, in constant memory; ``on_bytes`` is told how many bytes were.

        Raises:
            InputError: the file cannot be read, or is of another kind.
        """
        rows = upload_of(Path(file), on_bytes)
        yield from self._check_curator()
        path = _data_set_path(self._owner_name(), name) + "/rows"
        request = HttpRequest("PUT", path, body=rows, timeout_s=UPLOAD_TIMEOUT_S)
        return parse(HeldDataSet, (yield from ask(request)))

    @call
    def data_sets(self) -> Operation[list[HeldDataSet]]:
        """List the data sets: an owner its own, the operator all."""
        return (yield from pages("/v1/data-sets", {}, partial(parse_item, HeldDataSet)))

    @call
    def data_set(self, name: str) -> Operation[HeldDataSet]:
        """Read one of the owner's data sets."""
        path = _data_set_path(self._owner_name(), name)
        return parse(HeldDataSet, (yield from ask(HttpRequest("GET", path))))

    @call
    def delete(self, name: str) -> Operation[None]:
        """Delete a data set's rows, and the key that opens them, for good.

        Its account and what was spent stay. An owner gives the data set's name, the operator the account,
        ``owner/data-set``.
        """
        yield from ask(HttpRequest("DELETE", self._path_of(name)))

    @call
    def unlock(self, name: str) -> Operation[None]:
        """Let a data set answer studies again that a failure has locked; named as for :meth:`delete`."""
        yield from ask(HttpRequest("POST", self._path_of(name) + "/unlocking", body=b"{}"))

    def _path_of(self, name: str) -> str:
        owner, slash, own_name = name.partition("/")
        operates = self._owner is None and slash
        return _data_set_path(owner, own_name) if operates else _data_set_path(self._owner_name(), name)

    @call
    def studies(self, state: str | None = None) -> Operation[list[dict[str, Any]]]:
        """List what is asked of this owner; for the operator, everything."""
        return (yield from pages("/v1/studies", {"state": state} if state else {}, object_of))

    @call
    def study(self, digest: str) -> Operation[dict[str, Any]]:
        """Read one study: in plain words, what it costs, what remains, who has approved."""
        return (yield from ask_object(HttpRequest("GET", study_path(digest))))

    @call
    def approve(self, digest: str) -> Operation[dict[str, Any]]:
        """Approve a study for this owner's data sets; it runs once every owner has."""
        return (yield from ask_object(HttpRequest("POST", study_path(digest) + "/approval", body=b"{}")))

    @call
    def decline(self, digest: str, reason: str | None = None) -> Operation[dict[str, Any]]:
        """Decline a study, which then ends without a verdict.

        ``reason`` is a note for the curator's records and is never sent to the tester.
        """
        body = encode_json({} if reason is None else {"reason": reason})
        return (yield from ask_object(HttpRequest("POST", study_path(digest) + "/decline", body=body)))

    @call
    def ledger(self, data_set: str | None = None) -> Operation[list[dict[str, Any]]]:
        """List the ledger's entries: of this owner's accounts, or all for the operator.

        ``data_set`` names one data set, or one account.
        """
        query = {"data_set": data_set} if data_set else {}
        answer = yield from ask_object(HttpRequest("GET", "/v1/ledger", query))
        entries = answer.get("entries", answer.get("items"))
        if not isinstance(entries, list):
            raise ResponseError("the curator's answer is no ledger")
        return [object_of(entry) for entry in entries]

    @call
    def verify_ledger(self, kept_hashes: Sequence[str] = ()) -> Operation[dict[str, Any]]:
        """Have the curator check its ledger: ``ok``, ``accounts`` with their head hashes, and ``faults``.

        ``kept_hashes`` are head hashes that were kept in another place; each must still be an entry's.
        """
        query = {"kept": ",".join(kept_hashes)} if kept_hashes else {}
        return (yield from ask_object(HttpRequest("GET", "/v1/ledger/verification", query)))

    def _owner_name(self) -> str:
        if self._owner is None:
            raise InputError("only an owner does this: pass owner=, the name that it enrolled under")
        return self._owner

    def _check_curator(self) -> Operation[None]:
        """Find out before anything is handed over that another service answers than the pinned one."""
        if self._curator_key is None:
            return
        if (yield from ServiceCalls.identity.operation(self)).key != self._curator_key:
            raise VerificationFailedError("the curator has another key than the one that you pinned: ask it")


class CuratorClient(CuratorCalls, Driver):
    """A curator, as seen by one owner, or by its operator. Use it as a context manager.

    Args:
        url: the curator's base URL.
        key: the owner's key, or the path of its key file; the operator's is the curator's own.
        owner: the name that the owner enrolled (or enrols) under; None for the operator.
        audience: what the curator calls itself in tokens; by default its URL.
        curator_key: the curator's public key (64 hexadecimal digits), learned by a channel that you trust. It
            is compared before anything is handed over; TLS is what keeps others from listening.
        tls: a TLS context, for a private certificate authority or mutual TLS.
        proxy: a proxy that opens tunnels, such as ``http://proxy.example:3128``; ``environment`` for what
            HTTPS_PROXY and NO_PROXY say; a :class:`~tacit_protocol.addresses.Proxy` has credentials too.
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
        proxy: Proxy | str | None = None,
        insecure_plain_http: bool = False,
        transport: Transport | None = None,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._key, self._owner, self._curator_key = _own_key(key), owner, curator_key
        tokens = token_source(self._key, audience or url.rstrip("/"), clock)
        chosen = transport or HttpTransport(
            url, tokens, tls=tls, proxy=proxy, insecure_plain_http=insecure_plain_http, sleep=sleep
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
            **way(owner.route.trusting(ca_file), curator.url),
            insecure_plain_http=owner.insecure_plain_http,
        )

    @classmethod
    def of_operator(cls, path: Path, ca_file: Path | None = None) -> Self:
        """Build the operator's client from the curator's own curator.toml; ``ca_file`` as in `of_owner`.

        Raises:
            ConfigurationError: the file or the key cannot be read.
        """
        own = read_own_service(path, "curator")
        return cls(
            own.url,
            own.key,
            audience=own.audience,
            curator_key=own.key.public_hex,
            **way(own.route.trusting(ca_file), own.url),
            insecure_plain_http=own.insecure_plain_http,
        )


class AsyncCuratorClient(CuratorCalls, AsyncDriver):
    """A curator, as seen by one owner, or by its operator, without blocking.

    Use it as an asynchronous context manager. Arguments, methods and exceptions are those of
    :class:`CuratorClient`; methods are to be awaited.
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
        proxy: Proxy | str | None = None,
        insecure_plain_http: bool = False,
        transport: AsyncTransport | None = None,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._key, self._owner, self._curator_key = _own_key(key), owner, curator_key
        tokens = token_source(self._key, audience or url.rstrip("/"), clock)
        chosen = transport or AsyncHttpTransport(
            url, tokens, tls=tls, proxy=proxy, insecure_plain_http=insecure_plain_http, sleep=sleep
        )
        super().__init__(chosen, sleep)


def _own_key(key: PrivateKey | Path | str) -> PrivateKey:
    own_key = resolve_key(key)
    if own_key is None:
        raise InputError("a curator answers no one without a key: pass key=")
    return own_key


def _data_set_path(owner: str, name: str) -> str:
    return f"/v1/data-sets/{segment(owner)}/{segment(name)}"
