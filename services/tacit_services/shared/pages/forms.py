"""Reading a page's form: sent by this service's own page, by the browser that is signed in, and small."""

import hmac
from collections.abc import Collection, Mapping
from urllib.parse import parse_qsl, urlsplit

from starlette.requests import Request

from tacit_services.shared.pages.sessions import Session
from tacit_services.shared.problem_responses import ProblemError

TOKEN_FIELD = "form_token"  # noqa: S105 (a field's name)
FORM_TYPE = "application/x-www-form-urlencoded"


def require_same_origin(request: Request, public_url: str | None) -> None:
    """Raise ``form-refused`` unless the browser says that one of this service's pages sent the request.

    A proxy may have changed Host, so the service's public address counts as well.
    """
    origins = request.headers.getlist("origin")
    hosts = {request.headers.get("host", "")}
    if public_url is not None:
        hosts.add(urlsplit(public_url).netloc)
    if len(origins) != 1 or not origins[0].startswith(("http://", "https://")):
        raise ProblemError("form-refused")
    if origins[0].partition("://")[2] not in hosts:
        raise ProblemError("form-refused")


async def read_form(request: Request, allowed: Collection[str], session: Session | None) -> Mapping[str, str]:
    """Return a form's fields; with a session, the form must carry its token.

    Raises:
        ProblemError: ``unsupported-media-type``, ``malformed-message`` (another field, one twice, or what is
            no UTF-8) or ``form-refused``.
    """
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != FORM_TYPE:
        raise ProblemError("unsupported-media-type")
    try:
        pairs = parse_qsl(
            (await request.body()).decode("ascii"),
            keep_blank_values=True,
            strict_parsing=False,
            errors="strict",
            max_num_fields=len(allowed) + 1,
        )
    except ValueError:
        raise ProblemError("malformed-message") from None
    fields = dict(pairs)
    token = fields.pop(TOKEN_FIELD, "")
    if session is not None and not hmac.compare_digest(token.encode(), session.form_token.encode()):
        raise ProblemError("form-refused")
    if not set(fields) <= set(allowed) or len(pairs) != len({name for name, _ in pairs}):
        raise ProblemError("malformed-message")
    if any("\0" in text for text in fields.values()):
        raise ProblemError("malformed-message")
    return fields
