"""A browser's part without a browser: cookies, origin and form tokens, for tests of pages in memory."""

import re
from collections.abc import Callable
from typing import Any

import httpx
import served
from fastapi import FastAPI

FORM = "application/x-www-form-urlencoded"


class Window:
    """A window at a service of this process."""

    def __init__(self, app: FastAPI, url: str, token: Callable[[], str]) -> None:
        self.app, self.url, self._token = app, url, token
        self.cookies: dict[str, str] = {}

    def send(self, method: str, path: str, **sent: Any) -> httpx.Response:
        kept = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        sent["headers"] = ({"cookie": kept} if kept else {}) | dict(sent.get("headers") or {})

        response = served.call(self.app, self.url, method, path, **sent)
        if "set-cookie" in response.headers:
            self.cookies = dict(response.cookies)  # none where the cookie was deleted
        return response

    def get(self, path: str, **sent: Any) -> httpx.Response:
        return self.send("GET", path, **sent)

    def post(self, path: str, fields: dict[str, str] | None = None, **sent: Any) -> httpx.Response:
        headers = {"origin": self.url, "content-type": FORM} | sent.pop("headers", {})
        return self.send("POST", path, data=fields or {}, headers=headers, **sent)

    def ask(self, method: str, path: str, body: Any = None) -> httpx.Response:
        """Ask the interface with the party's own key."""
        headers = {"authorization": f"Bearer {self._token()}"}
        return self.send(method, path, headers=headers, **({} if body is None else {"json": body}))

    def link(self, user: str | None = None) -> str:
        """Ask for a link as the command does; returns its path."""
        answer = self.ask("POST", "/v1/sign-in-links", {} if user is None else {"user": user})
        assert answer.status_code == 201, answer.text
        return str(answer.json()["path"])

    def sign_in(self, user: str | None = None) -> "Window":
        response = self.post(self.link(user))
        assert (response.status_code, response.headers["location"]) == (303, "/")
        return self

    def token(self) -> str:
        """Read the form token off the first page."""
        found = re.search('name="form_token" value="([0-9a-f]{64})"', self.get("/").text)
        return found[1]
