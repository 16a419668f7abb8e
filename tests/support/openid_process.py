"""A provider of identities as a process: oidc-provider-mock, which here also holds its clients to PKCE.

``python openid_process.py PORT CLAIMS``: CLAIMS is a JSON list of users, each an object with ``sub``.
"""

import base64
import hashlib
import io
import json
import sys
from socketserver import ThreadingMixIn
from typing import Any
from urllib.parse import parse_qs, urlsplit
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import oidc_provider_mock

Wsgi = Any


class RequirePkce:
    """Refuses a code without the verifier that its request announced, as RFC 7636 says."""

    def __init__(self, app: Wsgi) -> None:
        self._app, self._challenges = app, dict[str, str]()

    def __call__(self, environ: dict[str, Any], start: Any) -> Any:
        path, query = environ["PATH_INFO"], parse_qs(environ.get("QUERY_STRING", ""))
        if path.endswith("/token") and not self._verifies(environ):
            start("400 Bad Request", [("content-type", "application/json")])
            return [b'{"error": "invalid_grant"}']

        def remember(status: str, headers: list[tuple[str, str]], *more: Any) -> Any:
            for name, value in headers:
                if name.lower() == "location" and query.get("code_challenge_method") == ["S256"]:
                    for code in parse_qs(urlsplit(value).query).get("code", ()):
                        self._challenges[code] = query["code_challenge"][0]
            return start(status, headers, *more)

        return self._app(environ, remember)

    def _verifies(self, environ: dict[str, Any]) -> bool:
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        environ["wsgi.input"] = io.BytesIO(body)
        form = parse_qs(body.decode())
        verifier = form.get("code_verifier", [""])[0]
        challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
        return self._challenges.pop(form.get("code", [""])[0], None) == challenge


class Threaded(ThreadingMixIn, WSGIServer):
    """Lets a browser hold several connections."""

    daemon_threads = True


class Quiet(WSGIRequestHandler):
    """Writes no log."""

    def log_message(self, *_: Any) -> None:
        return


if __name__ == "__main__":
    users = []
    for claims in json.loads(sys.argv[2]):
        subject = claims.pop("sub")
        users.append(oidc_provider_mock.User(sub=subject, claims=claims))
    app = oidc_provider_mock.app(require_nonce=True, user_claims=users)
    make_server("127.0.0.1", int(sys.argv[1]), RequirePkce(app), Threaded, Quiet).serve_forever()
