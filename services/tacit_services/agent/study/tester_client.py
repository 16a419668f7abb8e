"""The agent's side of the tester's HTTP interface, and the only module here that knows the HTTP library.

The tester is not trusted: answers are read as a stream up to a cap, encoded bodies and redirects are
refused, and nothing in them is logged. Nothing goes where others could read it on the way. Every exchange has
a deadline however its bytes arrive: the library's timeouts are each for one read or write, and an answer that
drips, or interim answers (1xx) without end, would hold an exchange for hours.
"""

import ssl
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Annotated, Any, Self
from urllib.request import getproxies_environment, proxy_bypass_environment  # type: ignore[attr-defined]

import httpcore
import httpx
import tenacity
from pydantic import ConfigDict, Field

from tacit_protocol.addresses import DIRECT, PLAIN_HTTP, Proxy, Route, RouteError, is_private_channel
from tacit_protocol.messages.encoding import MESSAGE_BYTES_MAX, MessageError, decode, digest
from tacit_protocol.messages.problems import PROBLEMS, URN_PREFIX
from tacit_protocol.messages.study import OWNERS_MAX, Digest, PartyName, UnixTime, read_study
from tacit_protocol.signing import (
    STUDY_TYPE,
    EnvelopeError,
    PrivateKey,
    issue_token,
    open_envelope,
    peek_key_id,
)
from tacit_protocol.strict import StrictModel
from tacit_services.shared.clock import Clock
from tacit_services.shared.settings import SettingsError

WRITE_BYTES_MAX = 2**14
"""Bytes handed to the network at once, so that a slow reader is noticed between two pieces."""

KEEP_ALIVE_S = 5.0
"""How long an idle connection is kept for the next exchange."""

_deadline_s: ContextVar[float | None] = ContextVar("deadline_s", default=None)


@contextmanager
def exchange_deadline(timeout_s: float) -> Iterator[None]:
    """Let every wait for the network below end within ``timeout_s`` seconds from now, together."""
    token = _deadline_s.set(time.monotonic() + timeout_s)
    try:
        yield
    finally:
        _deadline_s.reset(token)


def require_private(url: httpx.URL | str, insecure_plain_http: bool) -> None:
    """Return if a URL is a service's and nobody else can read what is sent there.

    Raises:
        ValueError: it is not; or it names a user, whose password would take the place of the token.
    """
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL:
        raise ValueError("it is no URL, such as https://tester.example") from None
    host = parsed.raw_host.decode("ascii")
    if parsed.scheme not in {"http", "https"} or not host or parsed.userinfo:
        raise ValueError("it is no URL of a service, such as https://tester.example")
    if not insecure_plain_http and not is_private_channel(parsed.scheme, host):
        raise ValueError(PLAIN_HTTP)


class DeadlineTransport(httpx.HTTPTransport):
    """The library's own transport, on connections that keep the deadline, to private addresses alone.

    Waits end with the library's timeouts. Resolving a host's name is the resolver's, and not counted; each of
    the addresses that it gives may take what is left.
    """

    def __init__(
        self, context: ssl.SSLContext, insecure_plain_http: bool = False, proxy: Proxy | None = None
    ):
        super().__init__(verify=context, trust_env=False)
        self._insecure_plain_http = insecure_plain_http
        self._pool = httpcore.ConnectionPool(
            ssl_context=context,
            keepalive_expiry=KEEP_ALIVE_S,
            network_backend=_Backend(),
            proxy=None if proxy is None else _tunnel(proxy, context),
        )

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send, once the address has been looked at; raises ValueError as :func:`require_private` does."""
        require_private(request.url, self._insecure_plain_http)
        return super().handle_request(request)


def _tunnel(proxy: Proxy, context: ssl.SSLContext) -> httpcore.Proxy:
    user = proxy.credentials
    auth = None if user is None else (user[0].encode(), user[1].encode())
    return httpcore.Proxy(proxy.url, auth, ssl_context=context if proxy.url.startswith("https:") else None)


class _Backend(httpcore.NetworkBackend):
    def __init__(self) -> None:
        self._network = httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        cut = _cut(timeout, httpcore.ConnectTimeout)
        return _Stream(self._network.connect_tcp(host, port, cut, local_address, socket_options))


class _Stream(httpcore.NetworkStream):
    def __init__(self, stream: httpcore.NetworkStream):
        self._stream = stream

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, _cut(timeout, httpcore.ReadTimeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        for start in range(0, len(buffer), WRITE_BYTES_MAX):
            piece = buffer[start : start + WRITE_BYTES_MAX]
            self._stream.write(piece, _cut(timeout, httpcore.WriteTimeout))

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        cut = _cut(timeout, httpcore.ConnectTimeout)
        return _Stream(self._stream.start_tls(ssl_context, server_hostname, cut))

    def get_extra_info(self, info: str) -> object:
        return self._stream.get_extra_info(info)


def _cut(timeout_s: float | None, expired: Callable[[str], Exception]) -> float | None:
    """Return the shorter of a wait and what is left of the deadline; raises ``expired`` if nothing is."""
    deadline_s = _deadline_s.get()
    if deadline_s is None:
        return timeout_s
    left_s = deadline_s - time.monotonic()
    if left_s <= 0:
        raise expired("the exchange took too long")
    return left_s if timeout_s is None else min(timeout_s, left_s)


TIMEOUT_S = 30.0
"""How long a whole exchange with the tester may take, beyond what a long poll waits."""

ATTEMPTS_MAX = 4
"""Tries of one request before the loop that asked for it waits for its own, longer pause."""

PAUSE_MAX_S = 8.0
"""Longest pause between those tries; a random part of it, so that a thousand agents do not come at once."""

INBOX_MAX = 1000
"""Most studies of one inbox answer that are looked at; the others come with a later one."""

RETRIED_STATUSES = frozenset({401, 404, 408, 425, 429})
"""Besides 5xx: a clock that is being set, an enrolment or a restart under way, and requests to come later."""

CONTENT_TYPE = "application/json"


class TesterError(Exception):
    """The tester did not do what was asked. The text is constant."""


class TesterUnavailableError(TesterError):
    """The tester cannot be reached, or says to try again."""


class TesterRefusedError(TesterError):
    """The tester refuses for good; ``slug`` names the registered problem."""

    def __init__(self, slug: str):
        super().__init__("the tester refused the request")
        self.slug = slug


class InboxItem(StrictModel):
    """A study that waits for this owner."""

    digest: Digest
    deadline: UnixTime


class _Inbox(StrictModel):
    items: Annotated[tuple[InboxItem, ...], Field(max_length=INBOX_MAX)]


class _Problem(StrictModel):
    model_config = ConfigDict(extra="ignore")

    type: str


class _OwnerProgress(StrictModel):
    model_config = ConfigDict(extra="ignore")

    name: PartyName
    sent: bool


class _Reuse(StrictModel):
    model_config = ConfigDict(extra="ignore")

    owner: PartyName
    study: Digest


class _Summary(StrictModel):
    model_config = ConfigDict(extra="ignore")

    owners: Annotated[tuple[_OwnerProgress, ...], Field(max_length=OWNERS_MAX)]
    reused_by: Annotated[tuple[_Reuse, ...], Field(max_length=OWNERS_MAX)] = ()


class TesterClient:
    """Asks the tester, signing a fresh token for each request.

    Args:
        url: the tester's base URL.
        audience: whom the tokens are for.
        key: the owner's key.
        clock: Unix time in seconds.
        sleep: waits that many seconds between two tries; may return early when the service stops.
        transport: what carries requests; the network unless a test hands in its own.
        route: whose certificates the tester's must chain to, what is shown to it, through which proxy.
        insecure_plain_http: let everything travel in the clear, in tests without real data.
        timeout_s: how long one exchange may take, beyond what a long poll waits.

    Raises:
        SettingsError: others could read what is sent to the URL, or the route cannot be taken.
    """

    def __init__(
        self,
        url: str,
        audience: str,
        key: PrivateKey,
        clock: Clock,
        sleep: Callable[[float], Any],
        *,
        transport: httpx.BaseTransport | None = None,
        route: Route = DIRECT,
        insecure_plain_http: bool = False,
        timeout_s: float = TIMEOUT_S,
    ):
        self._audience, self._key, self._clock, self._sleep = audience, key, clock, sleep
        self._timeout_s = timeout_s
        if transport is None:
            try:
                require_private(url, insecure_plain_http)
            except ValueError as error:
                raise SettingsError(f"tester_url: {error}") from None
            transport = _transport(url, route, insecure_plain_http)
        self._http = httpx.Client(
            base_url=url.rstrip("/"),
            trust_env=False,
            timeout=timeout_s,
            transport=transport,
            headers={"Accept-Encoding": "identity"},
        )

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def inbox(self, wait_s: float) -> tuple[InboxItem, ...]:
        """Return the studies that wait for this owner; the tester holds the answer up to ``wait_s``."""
        answer = self._send("GET", "/v1/inbox", params={"wait_s": f"{wait_s:g}"}, wait_s=wait_s)
        try:
            return decode(_Inbox, answer).items
        except MessageError:
            raise TesterUnavailableError("the tester's inbox cannot be read") from None

    def study_envelope(self, digest: str) -> bytes:
        """Return a study's signed envelope, unchecked."""
        return self._send("GET", f"/v1/studies/{digest}/envelope")

    def holds_release(self, digest: str, party: str) -> bool:
        """Return whether the tester says that it already has this owner's release."""
        return any(owner.name == party and owner.sent for owner in self._summary(digest).owners)

    def reused_by(self, digest: str, party: str) -> tuple[str, ...]:
        """Return the later studies that, as the tester says, read this owner's release for one again."""
        return tuple(reuse.study for reuse in self._summary(digest).reused_by if reuse.owner == party)

    def _summary(self, digest: str) -> _Summary:
        try:
            return decode(_Summary, self._send("GET", f"/v1/studies/{digest}"))
        except MessageError:
            raise TesterUnavailableError("the tester's summary of a study cannot be read") from None

    def put_release(self, digest: str, party: str, envelope: bytes) -> None:
        """Upload a release; returns once the tester holds exactly these bytes."""
        self._send("PUT", f"/v1/studies/{digest}/releases/{party}", content=envelope)

    def sealed_release(self, digest: str, sender: str) -> bytes | None:
        """Return what another owner sealed to this one, unchecked, or None while it has not come."""
        with suppress(_PendingError):
            return self._attempt("GET", f"/v1/studies/{digest}/sealed/{sender}", {}, None, self._timeout_s)
        return None

    def put_acceptance(self, digest: str, party: str, envelope: bytes) -> None:
        """Upload the acceptance of a second round; returns once the tester holds exactly these bytes."""
        self._send("PUT", f"/v1/studies/{digest}/acceptances/{party}", content=envelope)

    def acceptance(self, digest: str, owner: str) -> bytes | None:
        """Return the acceptance of a study by its receiver, unchecked, or None while it has not come."""
        with suppress(_PendingError):
            return self._attempt(
                "GET", f"/v1/studies/{digest}/acceptances/{owner}", {}, None, self._timeout_s
            )
        return None

    def put_mask_key(self, digest: str, party: str, envelope: bytes) -> None:
        """Upload the key of a study's masks; returns once the tester holds exactly these bytes."""
        self._send("PUT", f"/v1/studies/{digest}/mask-keys/{party}", content=envelope)

    def mask_keys(self, digest: str) -> bytes | None:
        """Return what all owners signed for a study's masks, unchecked, or None while one is missing."""
        with suppress(_PendingError):
            return self._attempt("GET", f"/v1/studies/{digest}/mask-keys", {}, None, self._timeout_s)
        return None

    def put_decline(self, digest: str, party: str, envelope: bytes) -> None:
        """Upload a decline; returns once the tester holds exactly these bytes."""
        self._send("PUT", f"/v1/studies/{digest}/declines/{party}", content=envelope)

    def put_catalogue(self, party: str, envelope: bytes) -> None:
        """Publish what this owner says of its data sets, once: raises where it was not taken."""
        self._attempt("PUT", f"/v1/catalogue/{party}", {}, envelope, self._timeout_s)

    def verdict_envelope(self, digest: str) -> bytes | None:
        """Return a study's signed verdict, unchecked, or None while there is none."""
        with suppress(_PendingError):
            return self._attempt("GET", f"/v1/studies/{digest}/verdict", {}, None, self._timeout_s)
        return None

    def _send(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        content: bytes | None = None,
        wait_s: float = 0.0,
    ) -> bytes:
        retrying = tenacity.Retrying(
            stop=tenacity.stop_after_attempt(ATTEMPTS_MAX),
            wait=tenacity.wait_random_exponential(multiplier=0.25, max=PAUSE_MAX_S),
            retry=tenacity.retry_if_exception_type(TesterUnavailableError),
            sleep=self._sleep,
            reraise=True,
        )
        return retrying(self._attempt, method, path, params or {}, content, self._timeout_s + wait_s)

    def _attempt(
        self, method: str, path: str, params: Mapping[str, str], content: bytes | None, timeout_s: float
    ) -> bytes:
        token = issue_token(self._key, self._audience, int(self._clock()))
        headers = {"Authorization": f"Bearer {token}"}
        if content is not None:
            headers["Content-Type"] = CONTENT_TYPE
        try:
            with (
                exchange_deadline(timeout_s),
                self._http.stream(
                    method, path, params=params, content=content, headers=headers, timeout=timeout_s
                ) as response,
            ):
                body = _read_capped(response)
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError):
            raise TesterUnavailableError("the tester cannot be reached") from None
        if response.status_code in {200, 201}:
            return body
        raise _refusal(response.status_code, body)


class _PendingError(TesterUnavailableError):
    """What was asked for is not there yet."""


NO_STUDY = "this is no signed study: bring what `tacit study envelope` wrote"
OTHER_STUDY = "the tester is not asked while a study is answered that was brought"


class CarriedStudy(TesterClient):
    """A tester's place for one study that someone brings as bytes, and whose answer someone takes away.

    Nobody is asked anything: whether the tester already holds an answer of this owner is not known.
    """

    def __init__(self, envelope: bytes):
        try:
            key = peek_key_id(envelope)
            payload = open_envelope(envelope, STUDY_TYPE, key)
            study = read_study(payload)
        except (EnvelopeError, MessageError):
            raise SettingsError(NO_STUDY) from None
        if study.analyst.key != key:  # or whoever brings it could have another's study declined
            raise SettingsError(NO_STUDY)
        self.item = InboxItem(digest=digest(payload), deadline=study.deadline)
        self.study, self.answer = study, b""
        self._envelope = envelope

    def close(self) -> None:
        """Nothing is open."""

    def inbox(self, wait_s: float) -> tuple[InboxItem, ...]:  # noqa: ARG002
        """Return the study."""
        return (self.item,)

    def study_envelope(self, digest: str) -> bytes:  # noqa: ARG002
        """Return the study's signed envelope, unchecked."""
        return self._envelope

    def holds_release(self, digest: str, party: str) -> bool:  # noqa: ARG002
        """Return False for the study; of others the tester itself must be asked."""
        if digest != self.item.digest:
            raise TesterUnavailableError(OTHER_STUDY)
        return False

    def _send(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,  # noqa: ARG002
        content: bytes | None = None,
        wait_s: float = 0.0,  # noqa: ARG002
    ) -> bytes:
        """Keep the answer to this study; any other study's waits for the tester."""
        if method != "PUT" or content is None or path.split("/")[3] != self.item.digest:
            raise TesterUnavailableError(OTHER_STUDY)
        self.answer = content
        return b""

    def _attempt(self, *_: object) -> bytes:
        """Reach nobody."""
        raise TesterUnavailableError(OTHER_STUDY)


def _transport(url: str, route: Route, insecure_plain_http: bool) -> DeadlineTransport:
    target = httpx.URL(url)
    try:
        proxy = route.proxy_to(target.scheme, target.host, _environment, _text)
    except RouteError as error:
        raise SettingsError(str(error)) from None
    return DeadlineTransport(_tls(route), insecure_plain_http, proxy)


def _tls(route: Route) -> ssl.SSLContext:
    try:
        if route.ca_file is None:
            context = httpx.create_ssl_context(trust_env=False)
        else:
            context = ssl.create_default_context(cafile=route.ca_file)
    except OSError:  # ssl.SSLError is one
        raise SettingsError(route.no_authorities) from None
    if route.certificate_file is not None:
        try:
            context.load_cert_chain(route.certificate_file, route.certificate_key_file)
        except OSError:
            raise SettingsError(route.no_certificate) from None
    return context


def _text(file: str) -> str:
    return Path(file).read_text("utf-8")


def _environment(scheme: str, host: str) -> str | None:
    proxies = getproxies_environment()
    if proxy_bypass_environment(host, proxies):
        return None
    return proxies.get(scheme) or proxies.get("all")


def _read_capped(response: httpx.Response) -> bytes:
    if response.headers.get("content-encoding", "identity").strip().lower() not in {"", "identity"}:
        raise TesterUnavailableError("the tester sent an encoded body, which is refused")
    body = bytearray()
    for piece in response.iter_raw():
        body += piece
        if len(body) > MESSAGE_BYTES_MAX:
            raise TesterUnavailableError("the tester sent more than a message may have")
    return bytes(body)


def _refusal(status: int, body: bytes) -> TesterError:
    try:
        slug = decode(_Problem, body).type.removeprefix(URN_PREFIX)
    except MessageError:
        slug = ""
    if slug in {"verdict-pending", "release-pending"} or status == 202:
        return _PendingError("it is not there yet")
    if status >= 500 or status in RETRIED_STATUSES or slug not in PROBLEMS:
        return TesterUnavailableError("the tester says to try again")
    return TesterRefusedError(slug)
