"""The one module that knows the HTTP library: bounded requests, retried where that is harmless.

Answers are untrusted: they are streamed, capped, never decompressed and never followed elsewhere. Neither
proxies nor credentials are taken from the environment. Nothing is sent where others could read it on the way:
plain http goes to this machine's loopback addresses alone, unless the caller says ``insecure_plain_http``.
"""

import asyncio
import logging
import secrets
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self, TypedDict
from urllib.request import getproxies_environment, proxy_bypass_environment  # type: ignore[attr-defined]

import httpx

from tacit.client.http import HttpRequest, HttpResponse, Upload
from tacit.errors import ConfigurationError, InputError, ResponseError, TransportError
from tacit_protocol.addresses import (
    PLAIN_HTTP,
    Proxy,
    Route,
    RouteError,
    is_loopback,
    is_private_channel,
)

ATTEMPTS_MAX = 4
"""How often a repeatable request is sent before giving up."""

PAUSE_MAX_S = 10.0
"""Longest pause between two attempts, whatever the service asks for."""

CONNECT_TIMEOUT_S = 5.0
"""How long a connection may take to open."""

RETRIED_STATUSES = frozenset({429, 502, 503, 504})
"""Answers that mean "not now"."""

PAUSE_S, JITTER_MS = 0.2, 200
"""The first pause, doubled with every attempt, and the most that chance adds: clients that lost the same
service do not come back all at once."""

logging.getLogger("httpx").setLevel(logging.WARNING)  # its INFO log holds whole URLs, queries too

TokenSource = Callable[[], str]
"""Issues a fresh bearer token: one lives a minute only, so every attempt carries its own."""


class Transport(Protocol):
    """Sends one request and reads the whole answer."""

    def send(self, request: HttpRequest) -> HttpResponse:
        """Send, retrying where that is harmless; raises TransportError or ResponseError."""

    def close(self) -> None:
        """Close the connections."""


class AsyncTransport(Protocol):
    """Sends one request and reads the whole answer, without blocking."""

    async def send(self, request: HttpRequest) -> HttpResponse:
        """Send, retrying where that is harmless; raises TransportError or ResponseError."""

    async def close(self) -> None:
        """Close the connections."""


class HttpTransport:
    """A Transport on httpx.

    ``token`` issues bearer tokens; ``tls`` replaces the usual certificate authorities, and ``proxy`` opens
    tunnels on the way (:func:`way`); ``insecure_plain_http`` lets requests travel in the clear; ``inner``
    replaces the network and ``sleep`` the pauses, in tests.

    Raises:
        InputError: the URL is none, names a user, or would send in the clear.
    """

    def __init__(
        self,
        base_url: str,
        token: TokenSource | None = None,
        *,
        tls: ssl.SSLContext | None = None,
        proxy: Proxy | str | None = None,
        insecure_plain_http: bool = False,
        inner: httpx.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._token = token
        self._http = httpx.Client(
            base_url=require_private(base_url, insecure_plain_http),
            transport=inner or _Network(tls, insecure_plain_http, _tunnel(base_url, tls, proxy)),
            trust_env=False,
            headers={"accept-encoding": "identity"},
        )
        self._proxied = proxy is not None
        self._sleep = sleep

    def send(self, request: HttpRequest) -> HttpResponse:
        """Send, retrying where that is harmless; raises TransportError or ResponseError."""
        attempt = 0
        while True:
            attempt += 1
            try:
                answer = self._send_once(request)
            except TransportError as error:
                pause_s = _pause_s(request, attempt, error)
                if pause_s is None:
                    raise
            else:
                pause_s = _pause_s(request, attempt, answer)
                if pause_s is None:
                    return answer
            self._sleep(pause_s)

    def _send_once(self, request: HttpRequest) -> HttpResponse:
        body = request.body
        content = body.open() if isinstance(body, Upload) else body
        outgoing = _outgoing(self._http, request, self._token, content)
        try:
            answer = self._http.send(outgoing, stream=True)
            try:
                received = _Capped(answer, request.size_bytes_max)
                for part in answer.iter_bytes():
                    received.add(part)
            finally:
                answer.close()
        except (httpx.TransportError, httpx.InvalidURL) as error:
            raise _lost(self._http.base_url, error, self._proxied) from error
        return received.response()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class AsyncHttpTransport:
    """An AsyncTransport on httpx; the arguments are those of :class:`HttpTransport`."""

    def __init__(
        self,
        base_url: str,
        token: TokenSource | None = None,
        *,
        tls: ssl.SSLContext | None = None,
        proxy: Proxy | str | None = None,
        insecure_plain_http: bool = False,
        inner: httpx.AsyncBaseTransport | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._token = token
        self._http = httpx.AsyncClient(
            base_url=require_private(base_url, insecure_plain_http),
            transport=inner or _AsyncNetwork(tls, insecure_plain_http, _tunnel(base_url, tls, proxy)),
            trust_env=False,
            headers={"accept-encoding": "identity"},
        )
        self._proxied = proxy is not None
        self._sleep = sleep

    async def send(self, request: HttpRequest) -> HttpResponse:
        """Send, retrying where that is harmless; raises TransportError or ResponseError."""
        attempt = 0
        while True:
            attempt += 1
            try:
                answer = await self._send_once(request)
            except TransportError as error:
                pause_s = _pause_s(request, attempt, error)
                if pause_s is None:
                    raise
            else:
                pause_s = _pause_s(request, attempt, answer)
                if pause_s is None:
                    return answer
            await self._sleep(pause_s)

    async def _send_once(self, request: HttpRequest) -> HttpResponse:
        body = request.body
        content = _without_blocking(body.open()) if isinstance(body, Upload) else body
        outgoing = _outgoing(self._http, request, self._token, content)
        try:
            answer = await self._http.send(outgoing, stream=True)
            try:
                received = _Capped(answer, request.size_bytes_max)
                async for part in answer.aiter_bytes():
                    received.add(part)
            finally:
                await answer.aclose()
        except (httpx.TransportError, httpx.InvalidURL) as error:
            raise _lost(self._http.base_url, error, self._proxied) from error
        return received.response()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()


def require_private(url: httpx.URL | str, insecure_plain_http: bool) -> httpx.URL:
    """Return a service's URL, parsed as it will be connected to.

    Raises:
        InputError: it is no URL, names a user, or others could read what is sent there.
    """
    try:
        parsed = httpx.URL(url)
    except (httpx.InvalidURL, TypeError, UnicodeError) as error:
        raise InputError("this is no URL of a service: write it like https://tester.example") from error
    host = parsed.raw_host.decode("ascii")
    if parsed.scheme not in {"http", "https"} or not host or parsed.userinfo:
        raise InputError("this is no URL of a service: write it like https://tester.example, without a user")
    if not insecure_plain_http and not is_private_channel(parsed.scheme, host):
        raise InputError(f"{place_of(parsed)}: {PLAIN_HTTP}")
    return parsed


class Way(TypedDict):
    """What a client is told of the way to a service."""

    tls: ssl.SSLContext | None
    proxy: Proxy | None


def way(route: Route, url: str) -> Way:
    """Return a route's TLS context, None for the usual authorities, and its proxy to a URL.

    Raises:
        ConfigurationError: a file cannot be read, or the proxy is none.
    """
    target = httpx.URL(url)
    try:
        proxy = route.proxy_to(target.scheme, target.host, _environment, _text)
    except RouteError as error:
        raise ConfigurationError(str(error)) from error
    return Way(tls=_tls(route), proxy=proxy)


def _tls(route: Route) -> ssl.SSLContext | None:
    if route.ca_file is None and route.certificate_file is None:
        return None
    try:
        if route.ca_file is None:
            context = httpx.create_ssl_context(trust_env=False)
        else:
            context = ssl.create_default_context(cafile=route.ca_file)
    except OSError as error:  # ssl.SSLError is one
        raise ConfigurationError(
            f"cannot read certificates from {route.ca_file}: it must hold the authority's certificate, in PEM"
        ) from error
    if route.certificate_file is not None:
        try:
            context.load_cert_chain(route.certificate_file, route.certificate_key_file)
        except OSError as error:
            raise ConfigurationError(route.no_certificate) from error
    return context


def _text(file: str) -> str:
    return Path(file).read_text("utf-8")


def _environment(scheme: str, host: str) -> str | None:
    proxies = getproxies_environment()
    if proxy_bypass_environment(host, proxies):
        return None
    return proxies.get(scheme) or proxies.get("all")


def _tunnel(base_url: str, tls: ssl.SSLContext | None, proxy: Proxy | str | None) -> httpx.Proxy | None:
    """Return the proxy as the library takes it; plain http to this machine itself takes none."""
    if proxy is None:
        return None
    if isinstance(proxy, str):
        proxy = way(Route(proxy=proxy), base_url)["proxy"]
    target = httpx.URL(base_url)
    if proxy is None or (target.scheme == "http" and is_loopback(target.host)):
        return None
    context = tls if proxy.url.startswith("https:") else None
    return httpx.Proxy(proxy.url, ssl_context=context, auth=proxy.credentials)


class _Network(httpx.HTTPTransport):
    """The network, which looks at the address of every request once more, wherever it came from."""

    def __init__(
        self, tls: ssl.SSLContext | None, insecure_plain_http: bool, proxy: httpx.Proxy | None
    ) -> None:
        super().__init__(verify=tls or True, trust_env=False, proxy=proxy)
        self._insecure_plain_http = insecure_plain_http

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        require_private(request.url, self._insecure_plain_http)
        return super().handle_request(request)


class _AsyncNetwork(httpx.AsyncHTTPTransport):
    """The same without blocking."""

    def __init__(
        self, tls: ssl.SSLContext | None, insecure_plain_http: bool, proxy: httpx.Proxy | None
    ) -> None:
        super().__init__(verify=tls or True, trust_env=False, proxy=proxy)
        self._insecure_plain_http = insecure_plain_http

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        require_private(request.url, self._insecure_plain_http)
        return await super().handle_async_request(request)


class _Capped:
    """Collects an answer's body, and refuses one that is encoded (so nothing unfolds) or too long."""

    def __init__(self, answer: httpx.Response, size_bytes_max: int) -> None:
        if answer.headers.get("content-encoding", "identity").lower() != "identity":
            raise ResponseError("the service's answer is compressed, which the protocol does not allow")
        self._answer, self._parts, self._room = answer, list[bytes](), size_bytes_max

    def add(self, part: bytes) -> None:
        self._room -= len(part)
        if self._room < 0:
            raise ResponseError("the service's answer is longer than the protocol allows")
        self._parts.append(part)

    def response(self) -> HttpResponse:
        headers = {name.lower(): value for name, value in self._answer.headers.items()}
        return HttpResponse(self._answer.status_code, headers, b"".join(self._parts))


def _outgoing(
    client: httpx.Client | httpx.AsyncClient,
    request: HttpRequest,
    token: TokenSource | None,
    content: bytes | Iterator[bytes] | AsyncIterator[bytes] | None,
) -> httpx.Request:
    headers = {}
    if isinstance(request.body, Upload):
        # With its length stated, a file that is too large is refused before it is sent.
        headers = {"content-type": request.body.content_type, "content-length": str(request.body.size_bytes)}
    elif request.body is not None:
        headers = {"content-type": "application/json"}
    if request.signed and token is not None:
        headers["authorization"] = "Bearer " + token()
    timeout = httpx.Timeout(request.timeout_s, connect=CONNECT_TIMEOUT_S)
    return client.build_request(
        request.method,
        request.path,
        params=dict(request.query) or None,
        content=content,
        headers=headers,
        timeout=timeout,
    )


async def _without_blocking(parts: Iterator[bytes]) -> AsyncIterator[bytes]:
    """Read a file's parts in a thread, one after the other."""
    while (part := await asyncio.to_thread(next, parts, None)) is not None:
        yield part


def place_of(url: httpx.URL) -> str:
    """Write where a URL leads, without user, path and query."""
    host = f"[{url.host}]" if ":" in url.host else url.host
    return f"{url.scheme}://{host}" + (f":{url.port}" if url.port else "")


def _lost(base_url: httpx.URL, error: Exception, proxied: bool) -> TransportError:
    place, words = place_of(base_url), str(error)
    if "CERTIFICATE_VERIFY_FAILED" in words:
        return TransportError(
            f"the certificate of {place} is not trusted here: check the address; if an authority of your own "
            "made it, name that authority's certificate (--ca-file, TACIT_CA_FILE, tester_ca_file or "
            "curator_ca_file)",
            hop="certificate",
        )
    if "CERTIFICATE_REQUIRED" in words or "HANDSHAKE_FAILURE" in words:
        return TransportError(
            f"{place} asks for a certificate of yours, or takes another: name one that its operator accepts "
            "(tester_certificate_file and tester_certificate_key_file, or curator_...)",
            hop="certificate",
        )
    if isinstance(error, httpx.ProxyError):
        status = words[:3]
        told = {
            "407": "the proxy asks for a user and a password, or takes others: name a file of one line, "
            "user:password, as tester_proxy_credentials_file (or curator_...)",
            "403": f"the proxy does not let requests through to {place}: ask whoever runs it to allow that",
        }.get(status, f"the proxy could not open a way to {place}: ask whoever runs it")
        return TransportError(f"{told} (it answered {status})" if status.isdigit() else told, hop="proxy")
    if proxied and isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
        return TransportError(
            f"the proxy on the way to {place} cannot be reached ({type(error).__name__}): check its address "
            "(tester_proxy or curator_proxy), and that it runs",
            hop="proxy",
        )
    if base_url.scheme == "https" and isinstance(error, httpx.RemoteProtocolError | httpx.ReadError):
        # Whoever is refused for want of a certificate is often cut off without a word.
        return TransportError(
            f"{place} broke off without an answer ({type(error).__name__}): check that the service runs and, "
            "if it asks for certificates, that yours is named (tester_certificate_file, or curator_...)"
        )
    told = (
        f"{place} did not answer in time: what was asked may still take effect. Look before you ask again "
        "(tacit study show, tacit agent studies, tacit ledger show)"
        if isinstance(error, httpx.ReadTimeout)
        else f"no answer from {place} ({type(error).__name__}): check the address, and that the service runs"
    )
    return TransportError(told)


def _pause_s(request: HttpRequest, attempt: int, outcome: HttpResponse | TransportError) -> float | None:
    """Return how long to wait before the next attempt; None where this outcome stands."""
    if not request.repeatable or attempt >= ATTEMPTS_MAX:
        return None
    if isinstance(outcome, HttpResponse):
        if outcome.status not in RETRIED_STATUSES:
            return None
        if outcome.retry_after_s is not None:
            return min(outcome.retry_after_s, PAUSE_MAX_S)
    elif outcome.hop == "certificate":  # no waiting makes it a trusted one
        return None
    return min(PAUSE_S * 2.0 ** (attempt - 1) + secrets.randbelow(JITTER_MS + 1) / 1000, PAUSE_MAX_S)
