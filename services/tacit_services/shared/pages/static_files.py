"""Stylesheet and scripts: read once from the package, served under names that change with their bytes."""

import hashlib
from importlib.resources import files

from starlette.responses import Response

from tacit_services.shared.problem_responses import ProblemError

MEDIA_TYPES = {
    "pages.css": "text/css; charset=utf-8",
    "pages.js": "text/javascript; charset=utf-8",
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
            raise ProblemError("not-found")
        return Response(self._bytes[name], headers={"Cache-Control": KEPT}, media_type=MEDIA_TYPES[name])
