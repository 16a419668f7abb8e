"""Serves a curator's owners' interface: ``python curator_process.py FOLDER PORT [gullible]``.

The folder holds the database, the rows and a PEM file of the operator and of each enrolled owner, as
:func:`prepare` leaves them. ``gullible`` plants the mistake of holding a whole body in memory.
"""

import json
import sys
import time
from pathlib import Path

from curator_world import CuratorWorld

from tacit_protocol.signing.keys import PrivateKey
from tacit_services.curator import uploads
from tacit_services.shared.http_server import serve
from tacit_services.shared.logging import configure_logging


def database_url(folder: Path) -> str:
    return f"sqlite:///{folder / 'curator.sqlite3'}"


def prepare(folder: Path, rows: bytes | None = None) -> CuratorWorld:
    """Enrol the owners, register ``north``'s data set, with these rows if any, and close."""
    world = CuratorWorld(folder, database_url(folder))
    assert world.register().status_code == 201
    assert rows is None or world.upload(rows).status_code == 201
    for name, key in {"operator": world.operator, **world.owners}.items():
        (folder / f"{name}.pem").write_bytes(key.to_pem())
    world.close()
    return world


def load(folder: Path) -> CuratorWorld:
    keys = {path.stem: PrivateKey.from_pem(path.read_bytes()) for path in sorted(folder.glob("*.pem"))}
    operator = keys.pop("operator")
    return CuratorWorld(folder, database_url(folder), owners=keys, operator=operator)


class Hoarder(uploads.IncomingBody):
    """Plant: nothing is parsed before everything has arrived."""

    def read(self, size: int = -1) -> bytes:
        while not self._ended:
            self._pull()
        return super().read(size)


def main(folder: Path, port: int, planted: bool) -> None:
    configure_logging("INFO")
    world = load(folder)
    world.clock = time.time
    if planted:
        from tacit_services.curator import uploads  # noqa: PLC0415 (planted)

        uploads.IncomingBody = Hoarder  # type: ignore[misc]
    sys.stdout.write(json.dumps({"files": sorted(world.files())}) + "\n")
    sys.stdout.flush()
    serve(world.app, "127.0.0.1", port, world.stopping)
    world.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), len(sys.argv) > 3)
