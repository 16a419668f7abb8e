"""Signing in by OpenID Connect: the code flow with PKCE, at the one provider that the settings name.

What the flow has to remember between two requests is in one secret of the browser's, a cookie of ten minutes:
state, nonce and code verifier are derived from it, so that nothing is stored, and an answer counts in the
browser alone that asked. Of what the provider signs, issuer, audience, times and nonce are looked at, its key
by the provider's own list, and signatures by asymmetric algorithms alone. Nothing of an answer is shown.

Sources: OpenID Connect Core 1.0, sections 3.1 and 3.1.3.7; RFC 7636 (PKCE); RFC 9207 (``iss``); RFC 9700.
"""

import asyncio
import base64
import hashlib
import hmac
import json
import secrets
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn
from urllib.parse import quote, urlencode, urlsplit

import httpx
import jwt
import structlog
from starlette.concurrency import run_in_threadpool

from tacit_services.shared.clock import Clock
from tacit_services.shared.people import People, Person
from tacit_services.shared.problem_responses import RegisteredProblemError
from tacit_services.shared.settings import OpenIdSettings, SettingsError, is_private, read_secret

log = structlog.get_logger()

ALGORITHMS = ("RS256", "PS256", "ES256", "ES384", "EdDSA")
"""Signatures that are taken: none that whoever knows the client's secret could make."""

FLOW_LIFE_S = 600
"""How long a browser may stay at the provider: time to find a second factor."""

LEEWAY_S = 30
"""How far the clocks of provider and service may be apart."""

TIMEOUT_S = 10.0
"""How long one question to the provider may take in all, however slowly the answer comes."""

FAILED_S = 15
"""How long a provider that did not answer as it should is not asked again."""

EXCHANGES_MAX = 8
"""Questions to the provider at once; further callers are refused."""

KNOWN_S = 3600.0
"""How long what a provider says of itself, its keys among it, is not asked for again."""

ANSWER_BYTES_MAX = 2**18
SUBJECT_LENGTH_MAX = 255
PARAMETER_LENGTH_MAX = 2000
"""Longest code or state that is looked at."""


@dataclass(frozen=True)
class Provider:
    """What a provider says of itself, as far as it was looked at."""

    authorization_endpoint: str
    token_endpoint: str
    keys: jwt.PyJWKSet
    posts_secret: bool
    read_at: float


@dataclass(frozen=True)
class Flow:
    """What a browser's secret stands for."""

    secret: str

    @classmethod
    def begin(cls) -> "Flow":
        """Return a new one."""
        return cls(secrets.token_urlsafe(32))

    def derived(self, use: str) -> str:
        """Return the state, the nonce or the code verifier: 43 characters, of 256 bits each."""
        return _text(hmac.new(self.secret.encode(), use.encode(), hashlib.sha256).digest())

    @property
    def challenge(self) -> str:
        """The code verifier's SHA-256."""
        return _text(hashlib.sha256(self.derived("verifier").encode()).digest())


def _text(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()


class OpenId:
    """Sign-in at one provider, for the people of one party.

    Args:
        settings: the provider's, with an issuer.
        url: where browsers reach the service's pages, where the settings do not say so.
        people: of whom somebody is found.
        key: the party's.
        clock: when tokens end.

    Raises:
        SettingsError: a file cannot be read, or the service's address is missing.
    """

    def __init__(
        self, settings: OpenIdSettings, url: str | None, people: People, key: str, clock: Clock
    ) -> None:
        address = settings.url or url
        if settings.issuer is None or settings.client_id is None:
            raise SettingsError("openid: issuer and client_id are missing")
        if address is None:
            raise SettingsError("openid: url is missing: where browsers reach the pages")
        self.issuer, self._client_id = settings.issuer, settings.client_id
        self._redirect_url = address.rstrip("/") + "/sign-in/openid/answer"
        secret = settings.client_secret_file
        self._secret = None if secret is None else read_secret(secret)
        try:
            context = ssl.create_default_context(cafile=settings.ca_file)
            # Nothing is kept open: connections belong to one event loop.
            limits = httpx.Limits(max_keepalive_connections=0)
            self._http = httpx.AsyncClient(
                verify=context, timeout=TIMEOUT_S, limits=limits, follow_redirects=False
            )
        except OSError:
            raise SettingsError("openid: ca_file cannot be read") from None
        self._people, self._key, self._clock = people, key, clock
        self._known: Provider | None = None
        self._failed_at: float | None = None
        self._is_read, self._asking = False, 0

    @property
    def host(self) -> str:
        """The provider's name, as people know it."""
        return urlsplit(self.issuer).netloc

    async def address(self, flow: Flow) -> str:
        """Return where the browser goes to sign in.

        Raises:
            ProblemError: ``openid-unavailable``.
        """
        asked = {
            "response_type": "code",
            "client_id": self._client_id,
            "redirect_uri": self._redirect_url,
            "scope": "openid email",
            "state": flow.derived("state"),
            "nonce": flow.derived("nonce"),
            "code_challenge": flow.challenge,
            "code_challenge_method": "S256",
        }
        endpoint = (await self._provider()).authorization_endpoint
        return f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(asked)}"

    async def person(self, flow: Flow, answer: Mapping[str, str]) -> Person:
        """Return who came back from the provider with an answer, by its parameters.

        Raises:
            ProblemError: ``openid-refused``, ``openid-unknown-person`` or ``openid-unavailable``.
        """
        state, code = answer.get("state", ""), answer.get("code", "")
        same = hmac.compare_digest(state.encode(), flow.derived("state").encode())
        if not same or answer.get("iss", self.issuer) != self.issuer:
            refuse("state")
        if "error" in answer or not 0 < len(code) <= PARAMETER_LENGTH_MAX:
            refuse("provider")
        claims = await self._claims(await self._tokens(code, flow), flow)
        verified = claims.get("email_verified") is True
        email = claims.get("email") if verified else None
        email = email if isinstance(email, str) else None
        found = await run_in_threadpool(self._people.identified, self._key, claims["sub"], email)
        if found is None:
            log.warning("openid_unknown_person", has_verified_email=email is not None)
            raise RegisteredProblemError("openid-unknown-person")
        log.info("openid_signed_in", person=found.name)
        return found

    async def _tokens(self, code: str, flow: Flow) -> str:
        provider = await self._provider()
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self._redirect_url,
            "code_verifier": flow.derived("verifier"),
        }
        headers = {}
        if self._secret is None or provider.posts_secret:
            form |= {"client_id": self._client_id}
            form |= {} if self._secret is None else {"client_secret": self._secret}
        else:
            named = f"{quote(self._client_id, safe='')}:{quote(self._secret, safe='')}"
            headers["authorization"] = f"Basic {base64.b64encode(named.encode()).decode()}"
        answer = await self._ask("POST", provider.token_endpoint, data=form, headers=headers)
        token = answer.get("id_token")
        if not isinstance(token, str):
            refuse("token")
        return token

    async def _claims(self, token: str, flow: Flow) -> dict[str, Any]:
        try:
            key = await self._key_of(token)
            # Times are looked at below, by the service's own clock.
            claims = jwt.decode(
                token,
                key,
                algorithms=list(ALGORITHMS),
                audience=self._client_id,
                issuer=self.issuer,
                options={
                    "require": ["iss", "sub", "aud", "exp", "iat"],
                    "verify_exp": False,
                    "verify_iat": False,
                    "verify_nbf": False,
                },
            )
        except (jwt.PyJWTError, ValueError, TypeError):
            refuse("signature")
        now, audience, subject = self._clock(), claims["aud"], claims["sub"]
        times = [claims["exp"], claims["iat"]]
        if any(isinstance(at, bool) or not isinstance(at, int | float) for at in times):
            refuse("times")
        if not claims["iat"] - LEEWAY_S <= now < claims["exp"] + LEEWAY_S:
            refuse("times")
        several = isinstance(audience, list) and len(audience) > 1
        if claims.get("azp", None if several else self._client_id) != self._client_id:
            refuse("audience")
        nonce = claims.get("nonce")
        if not isinstance(nonce, str) or not hmac.compare_digest(
            nonce.encode(), flow.derived("nonce").encode()
        ):
            refuse("nonce")
        if not isinstance(subject, str) or not 0 < len(subject) <= SUBJECT_LENGTH_MAX:
            refuse("subject")
        return dict(claims)

    async def _key_of(self, token: str) -> jwt.PyJWK:
        """Return the provider's key that a token names; its keys are read again where none is known."""
        name = jwt.get_unverified_header(token).get("kid")
        for newest in (False, True):
            provider = await self._provider(newest=newest)
            keys = [key for key in provider.keys.keys if name in {None, key.key_id}]
            if len(keys) == 1:
                return keys[0]
        refuse("key")

    async def _provider(self, *, newest: bool = False) -> Provider:
        """Return what the provider says of itself; one caller reads it, and others are refused meanwhile.

        Whoever is refused waits for nothing: callers without a name must not be able to occupy the service.
        """
        known, now = self._known, self._clock()
        is_old = known is None or not 0 <= now - known.read_at < KNOWN_S
        if known is not None and not is_old and not (newest and now > known.read_at):
            return known
        if self._is_read or (self._failed_at is not None and 0 <= now - self._failed_at < FAILED_S):
            raise RegisteredProblemError("openid-unavailable", retry_after_s=FAILED_S)
        self._is_read = True
        try:
            self._known = known = await self._read_provider(now)
            self._failed_at = None
        except RegisteredProblemError:
            self._failed_at = self._clock()
            raise
        finally:
            self._is_read = False
        return known

    async def _read_provider(self, now: float) -> Provider:
        said = await self._ask("GET", self.issuer.rstrip("/") + "/.well-known/openid-configuration")
        places = [said.get(name) for name in ("authorization_endpoint", "token_endpoint", "jwks_uri")]
        if said.get("issuer") != self.issuer or not all(is_private(place) for place in places):
            log.error("openid_provider_differs", issuer_matches=said.get("issuer") == self.issuer)
            raise RegisteredProblemError("openid-unavailable")
        authorization, token, keys = (str(place) for place in places)
        try:
            found = jwt.PyJWKSet.from_dict(await self._ask("GET", keys))
        except (jwt.PyJWTError, ValueError, TypeError, AttributeError):
            log.error("openid_keys_unreadable")
            raise RegisteredProblemError("openid-unavailable") from None
        methods = said.get("token_endpoint_auth_methods_supported", ["client_secret_basic"])
        return Provider(authorization, token, found, "client_secret_basic" not in methods, now)

    async def _ask(self, method: str, url: str, **sent: Any) -> dict[str, Any]:
        """Ask the provider; raises ``openid-refused`` where it refuses, else ``openid-unavailable``."""
        if self._asking >= EXCHANGES_MAX:
            raise RegisteredProblemError("openid-unavailable", retry_after_s=FAILED_S)
        self._asking += 1
        try:
            async with asyncio.timeout(TIMEOUT_S):
                found = await self._answer(method, url, **sent)
        except (httpx.HTTPError, httpx.InvalidURL, ValueError, RecursionError, TimeoutError) as error:
            log.warning("openid_unavailable", kind=type(error).__name__)
            raise RegisteredProblemError("openid-unavailable", retry_after_s=FAILED_S) from None
        finally:
            self._asking -= 1
        if not isinstance(found, dict):
            raise RegisteredProblemError("openid-unavailable", retry_after_s=FAILED_S)
        return found

    async def _answer(self, method: str, url: str, **sent: Any) -> Any:
        async with self._http.stream(method, url, **sent) as response:
            body = bytearray()
            async for piece in response.aiter_bytes():
                body += piece
                if len(body) > ANSWER_BYTES_MAX:
                    raise ValueError("too long")
        if method == "POST" and response.status_code in {400, 401, 403}:
            refuse("provider")
        if response.status_code != httpx.codes.OK:
            raise ValueError("no answer")
        return json.loads(bytes(body))


def openid_of(
    settings: OpenIdSettings, url: str | None, people: People, key: str, clock: Clock
) -> OpenId | None:
    """Return the sign-in that the settings name, or None; raises SettingsError as :class:`OpenId` does."""
    return None if settings.issuer is None else OpenId(settings, url, people, key, clock)


def refuse(what: str) -> NoReturn:
    """Refuse an answer; the log alone says what is wrong with it."""
    log.warning("openid_refused", about=what)
    raise RegisteredProblemError("openid-refused")
