"""The pages of one service: its routes, its templates, who is signed in, and the headers of every answer."""

import hashlib
import hmac
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Annotated, Any, Literal
from urllib.parse import parse_qsl, urlsplit

from fastapi import APIRouter, Depends, FastAPI, Query
from fastapi.routing import APIRoute
from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from pydantic import TypeAdapter, ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from tacit_protocol.messages.answers import LinkAnswer
from tacit_protocol.messages.study import PartyName
from tacit_protocol.strict import StrictModel
from tacit_services.shared.database import DatabaseError
from tacit_services.shared.http_app import answer_schema, body_schema, json_body, json_response
from tacit_services.shared.http_server import recognise
from tacit_services.shared.pages.formatting import FILTERS
from tacit_services.shared.pages.openid import FLOW_LIFE_S, Flow, OpenId
from tacit_services.shared.pages.sessions import (
    SECRET_LENGTH_MAX,
    SESSION_LIFE_S,
    Session,
    Sessions,
    digest_of,
)
from tacit_services.shared.people import ADDED, KEY_HOLDER, ROLES, Person, Role, UserRequest
from tacit_services.shared.problem_responses import RegisteredProblemError, as_problem, problem_response

MEDIA_TYPES = {
    "pages.css": "text/css; charset=utf-8",
    "pages.js": "text/javascript; charset=utf-8",
    "keys.js": "text/javascript; charset=utf-8",
    "htmx.min.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}

KEPT = "public, max-age=31536000, immutable"
"""The address holds the bytes' digest, so a browser may keep them for ever."""


class StaticFiles:
    """The files of ``static/``, by name."""

    def __init__(self) -> None:
        folder = files("tacit_services.shared.pages") / "static"
        self._bytes = {name: (folder / name).read_bytes() for name in MEDIA_TYPES}
        self._versions = {
            name: hashlib.sha256(content).hexdigest()[:16] for name, content in self._bytes.items()
        }

    def path(self, name: str) -> str:
        """Return a file's path below the service's address."""
        return f"/static/{self._versions[name]}/{name}"

    def response(self, version: str, name: str) -> Response:
        """Answer with a file; raises ``not-found``."""
        if self._versions.get(name) != version:
            raise RegisteredProblemError("not-found")
        return Response(self._bytes[name], headers={"Cache-Control": KEPT}, media_type=MEDIA_TYPES[name])


TOKEN_FIELD = "form_token"  # noqa: S105 (a field's name)
FORM_TYPE = "application/x-www-form-urlencoded"


def cookie_of(request: Request, name: str) -> str | None:
    """Return a cookie; None where it is missing, or there twice.

    Another service of the same machine, or of a neighbouring name, can set a second one of the same name, and
    which of them is the service's own cannot be told.
    """
    pairs = [pair.partition("=") for kept in request.headers.getlist("cookie") for pair in kept.split(";")]
    found = [value.strip() for given, _, value in pairs if given.strip() == name]
    return found[0] if len(found) == 1 else None


async def read_form(request: Request, allowed: Collection[str], session: Session | None) -> Mapping[str, str]:
    """Return a form's fields; with a session, the form must carry its token.

    Raises:
        ProblemError: ``unsupported-media-type``, ``malformed-message`` (another field, one twice, or what is
            no UTF-8) or ``form-refused``.
    """
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != FORM_TYPE:
        raise RegisteredProblemError("unsupported-media-type")
    try:
        pairs = parse_qsl(
            (await request.body()).decode("ascii"),
            keep_blank_values=True,
            strict_parsing=False,
            errors="strict",
            max_num_fields=len(allowed) + 1,
        )
    except ValueError:
        raise RegisteredProblemError("malformed-message") from None
    fields = dict(pairs)
    token = fields.pop(TOKEN_FIELD, "")
    if session is not None and not hmac.compare_digest(token.encode(), session.form_token.encode()):
        raise RegisteredProblemError("form-refused")
    if not set(fields) <= set(allowed) or len(pairs) != len({name for name, _ in pairs}):
        raise RegisteredProblemError("malformed-message")
    if any("\0" in text for text in fields.values()):
        raise RegisteredProblemError("malformed-message")
    return fields


HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data:; connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
    # Not no-referrer: with it browsers send forms with "Origin: null". No other origin gets anything.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
"""What every answer of a page carries."""

KEPT_NOWHERE = "no-store"

FAULTS = 500
"""The least status of what is no fault of the asker's: who asks is not looked up then."""

NAMELESS = ("sign-in-needed", "sign-in-invalid", "unknown-host")
"""Problems of browsers whose cookie is not looked at."""

SHARED = "tacit_services.shared.pages"
"""The package of the templates that all services have."""

Link = Annotated[str, Query(max_length=200)]

PARTY_NAME: TypeAdapter[str] = TypeAdapter(PartyName)

CHANGES_SHOWN = 200
"""Changes of people that their page lists; the command lists all."""


def _fault_of(error: ValidationError) -> str:
    """Say what is wrong with what was said of a person; nothing of it is repeated."""
    place = error.errors(include_url=False, include_input=False)[0]["loc"]
    words = {"role": "choose a role", "email": "write an e-mail address, or leave it empty"}
    name = "a name has small letters, digits, '.', '_' and '-', at most 63"
    return words.get(str(place[0]), name) if place else name


class Empty(StrictModel):
    """A body that says nothing."""


class LinkRequest(StrictModel):
    """Whom a sign-in link is for: one of the caller's people; whoever holds the key unless one is named."""

    user: PartyName | None = None


@dataclass(frozen=True)
class MenuEntry:
    """A name in the menu, and the path that it leads to."""

    title: str
    path: str


@dataclass(frozen=True)
class Service:
    """Whose pages these are.

    ``package`` holds the templates; ``login`` is the command that prints a link; ``public_url`` is where
    browsers reach a service that is not for its own machine alone; ``by_tls`` says whether they come by
    https; ``openid`` the provider at which people sign in, if there is one.
    """

    kind: str
    name: str
    package: str
    login: str
    menu: tuple[MenuEntry, ...]
    by_tls: bool
    public_url: str | None = None
    openid: OpenId | None = None


@dataclass(frozen=True)
class SignedIn:
    """Who asks for a page: the session, what the service knows the key as, and the name that pages show."""

    session: Session
    who: Any = field(default=None)
    name: str = ""

    @property
    def person(self) -> Person:
        """Who uses the browser."""
        return self.session.person


def _guarded(response: Response) -> Response:
    """Put on a page's answer what every one carries."""
    for name, value in HEADERS.items():
        response.headers[name] = value
    response.headers.setdefault("Cache-Control", KEPT_NOWHERE)
    return response


class Site:
    """Serves the pages of one service.

    Args:
        service: whose pages.
        sessions: its links and sessions.
        identify: what the service knows a session's key as, for templates and routes; raises
            :class:`RegisteredProblemError` for a key that is not known any more.
        named: as whom pages say that the holder of a key is signed in.
    """

    def __init__(
        self,
        service: Service,
        sessions: Sessions,
        identify: Callable[[str], Any],
        named: Callable[[str], str],
    ) -> None:
        self.service, self.sessions, self._identify, self._named = service, sessions, identify, named
        self.root = urlsplit(service.public_url or "").path.rstrip("/")
        # A browser takes a cookie of this prefix by TLS alone, from this host itself and for all of it.
        self._cookie = f"{'__Host-' if service.by_tls else ''}tacit-{service.kind}-{service.name}"
        self._files = StaticFiles()
        self._templates = Environment(
            loader=ChoiceLoader([PackageLoader(name) for name in (service.package, SHARED)]),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters |= FILTERS
        self._templates.globals |= {
            "service": service,
            "root": self.root,
            "static": lambda name: self.root + self._files.path(name),
            "token_field": TOKEN_FIELD,
        }
        self.router = APIRouter(route_class=self._route_class(), include_in_schema=False)
        self._add_signing_in()
        self._add_people()
        self._add_static()

    # What routes use.

    async def signed_in(self, request: Request) -> SignedIn:
        """Return who asks (a dependency); raises ``sign-in-needed``."""
        session = await run_in_threadpool(self.sessions.find, cookie_of(request, self._cookie))
        if session is None:
            raise RegisteredProblemError("sign-in-needed")
        who = await run_in_threadpool(self._identify, session.key)
        name, person = await run_in_threadpool(self._named, session.key), session.person
        if person.name != KEY_HOLDER:
            name = f"{person.name}, {person.role}; {name}"
        signed_in = SignedIn(session, who, name)
        recognise(request.scope, session.key)
        return signed_in

    def form(
        self, *allowed: str, least: Role = "steward"
    ) -> Callable[[Request], Awaitable[Mapping[str, str]]]:
        """Make a dependency: the fields of a form that one of this browser's own pages sent.

        Raises ``role-needed`` where the person's role is below ``least``.
        """

        async def read(request: Request) -> Mapping[str, str]:
            self._require_same_origin(request)
            signed_in = await self.signed_in(request)
            signed_in.person.require(least)
            return await read_form(request, allowed, signed_in.session)

        return read

    def page(self, request: Request, template: str, signed_in: SignedIn | None, **shown: Any) -> Response:
        """Answer with a template."""
        return self._html(request, template, 200, {"signed_in": signed_in, **shown})

    def redirect(self, path: str) -> Response:
        """Answer a form: the browser gets the page at ``path``, below the service's address."""
        return RedirectResponse(self.root + path, 303)

    # The routes that every service has.

    def add_to(self, app: FastAPI, may_sign_in: Callable[..., Any]) -> None:
        """Add the pages to an app; ``may_sign_in`` is a dependency: the key that signed the request.

        Whatever else of the app fails where a browser asks, it gets a page, too.
        """
        app.include_router(self.router)
        app.state.error_page = self._error

        app.include_router(self.sessions.people.router(may_sign_in))

        @app.post(
            "/v1/sign-in-links",
            status_code=201,
            openapi_extra=body_schema(LinkRequest),
            **answer_schema(LinkAnswer),
        )
        def make_sign_in_link(
            key: Annotated[str, Depends(may_sign_in)],
            body: Annotated[LinkRequest, Depends(json_body(LinkRequest))],
        ) -> Response:
            """Make a link that signs one of the caller's people in: once, within five minutes."""
            secret, expires_at = self.sessions.make_link(key, body.user or KEY_HOLDER)
            return json_response({"path": f"/sign-in?link={secret}", "expires_at": expires_at}, 201)

    def _add_signing_in(self) -> None:
        @self.router.get("/sign-in")
        def show_sign_in(request: Request, link: Link = "") -> Response:  # noqa: ARG001 (the form posts to it)
            # Looking at a link does not use it up: some programs fetch links before people do.
            return self._html(request, "sign_in.html", 200, {"signed_in": None})

        @self.router.post("/sign-in")
        async def sign_in(request: Request, link: Link = "") -> Response:
            self._require_same_origin(request)
            await read_form(request, (), None)
            response, before = self.redirect("/"), cookie_of(request, self._cookie)
            self._admit(response, await run_in_threadpool(self.sessions.use_link, link))
            await run_in_threadpool(self.sessions.end, before)
            return response

        @self.router.post("/sign-out")
        async def sign_out(
            request: Request, _: Annotated[Mapping[str, str], Depends(self.form(least="viewer"))]
        ) -> Response:
            await run_in_threadpool(self.sessions.end, cookie_of(request, self._cookie))
            response = self._html(request, "signed_out.html", 200, {"signed_in": None})
            self._set_cookie(response, self._cookie, "", 0)
            return response

        self._add_openid()

    def _add_people(self) -> None:
        people = self.sessions.people
        Someone = Annotated[SignedIn, Depends(self.signed_in)]
        Said = Annotated[Mapping[str, str], Depends(self.form("name", "role", "email", least="admin"))]
        Name = Annotated[Mapping[str, str], Depends(self.form("name", least="admin"))]

        def show(request: Request, someone: SignedIn, said: Mapping[str, str], fault: str = "") -> Response:
            key = someone.session.key
            listed, changes = people.listed(key), people.changes(key, CHANGES_SHOWN)
            added = {
                entry["detail"]["name"]: entry["person"] for entry in changes if entry["action"] == ADDED
            }
            response = self.page(
                request,
                "people.html",
                someone,
                people=[one | {"added_by": added.get(one["name"])} for one in listed],
                changes=changes,
                roles=ROLES[:-1],
                said={name: said.get(name, "") for name in ("name", "role", "email")},
                fault=fault,
            )
            response.status_code = 422 if fault else 200
            return response

        @self.router.get("/people")
        def show_people(request: Request, someone: Someone) -> Response:
            return show(request, someone, {})

        @self.router.post("/people")
        def put_person(request: Request, someone: Someone, said: Said) -> Response:
            try:
                name = PARTY_NAME.validate_python(said.get("name", "").strip())
                asked = UserRequest.model_validate(
                    {"role": said.get("role"), "email": said.get("email", "").strip() or None}
                )
                people.put_below_admin(someone.person, name, asked)
            except ValidationError as error:
                return show(request, someone, said, _fault_of(error))
            except RegisteredProblemError as error:
                return show(request, someone, said, error.detail or error.problem.advice)
            return self.redirect("/people")

        @self.router.post("/people/removal")
        def remove_person(someone: Someone, said: Name) -> Response:
            people.remove_below_admin(someone.person, said.get("name", ""))
            return self.redirect("/people")

    def _require_same_origin(self, request: Request) -> None:
        """Raise ``form-refused`` unless the browser says that one of this service's pages sent the request.

        A proxy may have changed Host, so the service's public address counts as well; and it may take TLS
        off, so that the settings say by which scheme browsers come.
        """
        origins = request.headers.getlist("origin")
        hosts = {request.headers.get("host", "")}
        if self.service.public_url is not None:
            hosts.add(urlsplit(self.service.public_url).netloc)
        scheme = "https" if self.service.by_tls else "http"
        if len(origins) != 1 or origins[0] not in {f"{scheme}://{host}" for host in hosts}:
            raise RegisteredProblemError("form-refused")

    def _admit(self, response: Response, cookie: str) -> None:
        self._set_cookie(response, self._cookie, cookie, SESSION_LIFE_S)

    def _set_cookie(
        self,
        response: Response,
        name: str,
        value: str,
        life_s: int,
        same_site: Literal["strict", "lax"] = "strict",
    ) -> None:
        """Set a cookie, or delete it by a life of 0 seconds."""
        path = "/" if self.service.by_tls else self.root or "/"
        response.set_cookie(
            name,
            value,
            max_age=life_s,
            path=path,
            secure=self.service.by_tls,
            httponly=True,
            samesite=same_site,
        )

    def _add_openid(self) -> None:
        cookie = f"{self._cookie}-openid"

        def provider() -> OpenId:
            if self.service.openid is None:
                raise RegisteredProblemError("not-found")
            return self.service.openid

        @self.router.get("/sign-in/openid")
        async def go_to_provider(request: Request) -> Response:
            openid, flow = provider(), Flow.begin()
            response = RedirectResponse(await openid.address(flow), 303)
            # The session's cookie does not come along from another site: its digest does, so that it ends.
            before = cookie_of(request, self._cookie)
            kept = flow.secret + ("" if before is None else f".{digest_of(before)}")
            # Lax: the browser comes back from another site.
            self._set_cookie(response, cookie, kept, FLOW_LIFE_S, "lax")
            return response

        @self.router.get("/sign-in/openid/answer")
        async def come_back(request: Request) -> Response:
            openid, kept = provider(), cookie_of(request, cookie) or ""
            secret, _, before = kept.partition(".")
            if not secret or len(kept) > 2 * SECRET_LENGTH_MAX:
                raise RegisteredProblemError("openid-refused")
            person = await openid.person(Flow(secret), dict(request.query_params))
            response = self._html(request, "openid.html", 200, {"signed_in": None, "person": person})
            # The session's cookie goes along with what this site itself leads to, not with a redirection.
            response.headers["Refresh"] = f"0; url={self.root}/"
            self._admit(response, await run_in_threadpool(self.sessions.begin, person))
            await run_in_threadpool(self.sessions.end_by_digest, before)
            self._set_cookie(response, cookie, "", 0, "lax")
            return response

    def _add_static(self) -> None:
        @self.router.get("/static/{version}/{name}")
        async def static_file(version: str, name: str) -> Response:
            return self._files.response(version, name)

    def _html(
        self, request: Request, template: str, status: int, shown: Collection[Any] | Mapping[str, Any]
    ) -> Response:
        text = self._templates.get_template(template).render(path=request.url.path, **dict(shown))
        return HTMLResponse(text, status)

    async def _error(self, request: Request, error: RegisteredProblemError) -> Response:
        """Show a problem as a page, with the texts that the API would give, to whoever is signed in."""
        signed_in, status = None, error.problem.status
        if status < FAULTS and error.problem.slug not in NAMELESS:
            with suppress(RegisteredProblemError, DatabaseError):
                signed_in = await self.signed_in(request)
        shown = {
            "signed_in": signed_in,
            "problem": error.problem,
            "detail": error.detail,
            "place": error.path,
            "retry_after_s": error.retry_after_s,
            "posted": request.method == "POST",
            "request_id": request.scope.get("tacit_request_id") if status >= FAULTS else None,
        }
        response = self._html(request, "problem.html", status, shown)
        bare = problem_response(error, None)
        for name in ("retry-after", "connection", "allow"):
            if name in bare.headers:
                response.headers[name] = bare.headers[name]
        if error.problem.slug == "sign-in-needed" and "hx-request" in request.headers:
            response.headers["HX-Refresh"] = "true"  # what a script asked for in the background
        return _guarded(response)

    def _route_class(self) -> type[APIRoute]:
        site = self

        class PageRoute(APIRoute):
            def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
                inner = super().get_route_handler()

                async def handle(request: Request) -> Response:
                    try:
                        response = await inner(request)
                    except ClientDisconnect:
                        raise  # nobody is there to see a page
                    except Exception as error:
                        response = await site._error(request, as_problem(error))
                    return _guarded(response)

                return handle

        return PageRoute
