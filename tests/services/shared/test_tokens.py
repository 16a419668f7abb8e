"""Every address of every service asks for a token, made for that service, of somebody it knows."""

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import served
from fastapi import FastAPI
from served import problem
from service_apps import SERVICES

from tacit_protocol.signing import PrivateKey, issue_token

URL = "http://localhost"
PUBLIC = {("GET", "/v1/identity"), ("GET", "/v1/problems")}
ENROLS = ("POST", "/v1/enrolments")
"""Where a key comes that nobody knows yet."""


def addresses(app: FastAPI) -> Iterator[tuple[str, str]]:
    for path, operations in app.openapi()["paths"].items():
        yield from ((method.upper(), path) for method in operations if path.startswith("/v1/"))


@pytest.mark.parametrize("name", SERVICES)
def test_every_address_asks_for_a_token_of_somebody_it_knows(name: str, tmp_path: Path) -> None:
    app = SERVICES[name](tmp_path)

    def ask(method: str, path: str, token: str | None = None) -> Any:
        headers = {"content-type": "application/json"}
        headers |= {} if token is None else {"authorization": f"Bearer {token}"}
        filled = re.sub(r"{(digest|study)}", "a" * 64, path)
        filled = re.sub(r"{\w+}", "north", filled)
        return served.call(app, URL, method, filled, raises=False, headers=headers, content=b"{}")

    found = set(addresses(app))
    assert len(found) > 15
    own = ask("GET", "/v1/identity").json()["audience"] if PUBLIC & found else "agent:north"
    now, stranger = int(time.time()), PrivateKey.generate()
    for method, path in sorted(found - PUBLIC):
        assert problem(ask(method, path)) == "unauthenticated", path
        elsewhere = issue_token(stranger, "https://other.example", now)
        assert problem(ask(method, path, elsewhere)) == "unauthenticated", path
        if (method, path) != ENROLS:
            told = problem(ask(method, path, issue_token(stranger, own, now)))
            assert told in {"unknown-party", "forbidden"}, path
    for method, path in PUBLIC & found:
        assert ask(method, path).status_code == 200
