"""What an agent's memory grows by, measured in a process of its own, which prints it as JSON.

``hostile_child.py attacks FOLDER URL [PLANTED]`` attacks an agent: the growth of the peak of resident memory
in bytes, and each attack's outcome. Planted mistakes: with ``gullible`` the client reads whole bodies before
it looks at their size, with ``uncounted`` messages are validated before anybody counts what they hold.

``hostile_child.py read FILE numeric|categorical [written-out]`` reads a data set as an agent does: the
outcome, the rows read, and the growth. ``written-out`` plants a mistake: dictionaries are decoded into a text
per row.

``hostile_child.py mutated FOLDER SUFFIX SEED COUNT`` reads so many files of a statistics package, each
changed somewhere, as an agent does: how often each outcome came, and the growth.

``hostile_child.py sql URL QUERY READ_BYTES`` reads a PostgreSQL query in one way after the other: for each
the rows read, and the growth since the start. The last way plants a mistake: the driver fetches the whole
result before the first row is handed out.
"""

import contextlib
import gzip
import json
import random
import struct
import sys
import time
from collections.abc import Callable, Iterator
from functools import cache, partial
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import sqlalchemy as sa
from agent_fakes import AttackedAgent, World
from served import listening

from tacit_protocol.arrow_columns import numbers
from tacit_protocol.domain import CategoricalColumn, Column, DataError, Domain, NumericColumn
from tacit_protocol.messages import encoding
from tacit_protocol.messages.encoding import digest, encode, encode_json
from tacit_protocol.procedures.discovery import PROCEDURES
from tacit_protocol.signing import STUDY_TYPE, sign_envelope
from tacit_services.agent.data import reader, sql_source, table
from tacit_services.agent.data.opening import open_source
from tacit_services.agent.data.source import Columns
from tacit_services.agent.study import tester_client
from tacit_services.agent.study.intake import IntakeRefusedError
from tacit_services.agent.study.tester_client import TesterClient, TesterError

X = Domain(columns=(NumericColumn(name="x", lower=0.0, upper=10.0),))


def absurd_studies(world: World) -> dict[str, bytes]:
    """Return payloads whose claims would be ruinous if anything were computed from them unasked."""
    plain = json.loads(encode(world.study(procedure="kernel_two_sample", domain=X)))

    def payload(**changes: Any) -> bytes:
        return encode_json(plain | changes)

    def column(i: int, levels: int) -> dict[str, Any]:
        return {"kind": "categorical", "name": f"c{i}", "levels": [f"{j:x}" for j in range(levels)]}

    numeric = [
        {"kind": "numeric", "name": f"c{i}", "lower": 0.0, "upper": 1.0, "missing": None} for i in range(999)
    ]
    owners = [plain["owners"][0]] + [
        {"name": f"o{i}", "key": f"{i + 16:064x}", "data_set": "patients", "units": 2**40} for i in range(999)
    ]
    figures, texts = b"1.5," * 48_000 + b"1", b'"ab",' * 48_000 + b'"ab"'
    return {
        "nothing but numbers": b'{"parameters":{"a":[' + figures + b"]}}",
        "owners that are texts": payload(owners=[]).replace(b'"owners":[]', b'"owners":[' + texts + b"]"),
        "a title that is numbers": encode_json(plain | {"title": [0]}).replace(
            b"[0]", b"[" + figures + b"]", 1
        ),
        "an owner that is numbers": payload(owners=[{"a": [0]}]).replace(b"[0]", b"[" + figures + b"]", 1),
        "2000 strange fields": payload(**{f"x{i}": i for i in range(2000)}),
        "10^9 features": payload(parameters={"features": "me", "n_features": 10**9}),
        "10^9 replicates": payload(parameters={"replicates": 10**9}),
        "10^9 cycles": payload(parameters={"features": "scf", "cycles": [64.0] * 10**5}),
        "10^4 locations": payload(parameters={"features": "me", "locations": [[0.0]] * 10**5}),
        "999 columns": payload(domain={"columns": numeric}),
        "999 columns me": payload(
            domain={"columns": numeric}, parameters={"features": "me", "n_features": 200}
        ),
        "100 000 levels": payload(domain={"columns": [column(i, 1000) for i in range(100)]}),
        "999 columns of 100 levels": payload(domain={"columns": [column(i, 100) for i in range(999)]}),
        "10^5 columns": payload(domain={"columns": [column(i, 1) for i in range(9_000)]}),
        "2^40 units": payload(owners=owners[:2]),
        "1000 owners": payload(owners=owners),
        "wide bounds": payload(
            domain={"columns": [{**numeric[0], "name": "x", "lower": -8e307, "upper": 8e307}]}
        ),
    }


def outcome_of(attempt: Callable[[], Any]) -> dict[str, Any]:
    started_s = time.process_time()
    try:
        attempt()
        outcome = "taken"
    except (TesterError, IntakeRefusedError, ValueError) as error:
        outcome = f"{type(error).__name__}: {error}"
    return {"outcome": outcome, "seconds": time.process_time() - started_s, "peak_bytes": peak_bytes()}


def poll_hostile(attacked: AttackedAgent, url: str) -> None:
    with TesterClient(url, url, attacked.world.agent, attacked.clock, lambda _: None) as client:
        client.inbox(0)


def consider(attacked: AttackedAgent, name: str, envelope: bytes) -> None:
    """Do all that an agent does with a study before it opens data, as if its policy allowed every column."""
    intake = attacked.agent.intake
    study = intake.authenticate(name, envelope)
    intake.price(study, study.owners[0].name)


def gullible(response: httpx.Response) -> bytes:
    """Plant: the body is read, and unfolded, before its size is looked at; the endless one up to 64 MiB."""
    body = bytearray()
    for piece in response.iter_bytes():
        body += piece
        if len(body) > 2**26:
            break
    return bytes(body)


def peak_bytes() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("the kernel does not tell the peak of memory")


def attack(folder: Path, url: str, planted: str = "") -> dict[str, Any]:
    attacked = AttackedAgent(folder, procedures=PROCEDURES)
    attacked.world.ask(attacked.tester, attacked.world.study(procedure="kernel_two_sample", domain=X))
    attacked.turn()  # an honest study first: what an agent needs anyway is in memory
    assert len(attacked.debits()) == 1
    studies = {
        name: (digest(payload), sign_envelope(payload, STUDY_TYPE, attacked.world.analyst))
        for name, payload in absurd_studies(attacked.world).items()
    }
    if planted == "gullible":
        tester_client._read_capped = gullible
    elif planted == "uncounted":
        encoding.VALUES_MAX = encoding.KEYS_MAX = encoding.OBJECT_KEYS_MAX = encoding.CONTAINERS_MAX = 10**9
        encoding._require_keys = lambda *_: None
    before, outcomes = peak_bytes(), {}
    for name in ATTACKS:
        outcomes[name] = outcome_of(lambda name=name: poll_hostile(attacked, f"{url}/{name}"))
    for name, study in studies.items():
        outcomes[name] = outcome_of(lambda study=study: consider(attacked, *study))
    return {"growth_bytes": peak_bytes() - before, "outcomes": outcomes}


def read(path: Path, kind: str, planted: str = "") -> dict[str, Any]:
    asked: Column = NumericColumn(name="x", lower=0.0, upper=1.0)
    if kind == "categorical":
        asked = CategoricalColumn(name="x", levels=("a",))
    if planted:
        vars(reader)["numbers"] = written_out
    before, rows = peak_bytes(), 0
    try:
        source = table.SourceTable(open_source(path.name, None, path.parent), Domain(columns=(asked,)))
        outcome, rows = "read", sum(chunk.rows for chunk in source.chunks())
    except DataError as error:
        outcome = str(error)
    return {"outcome": outcome, "rows": rows, "growth_bytes": peak_bytes() - before}


def mutated(folder: Path, suffix: str, seed: str, count: str) -> dict[str, Any]:
    path, chance = folder / f"mutated{suffix}", random.Random(int(seed))  # noqa: S311 (mutations)
    whole = b"" if suffix == ".sas7bdat" else statistics_bytes(path)
    outcomes: dict[str, int] = {}
    domain = Domain(columns=(NumericColumn(name="x", lower=0.0, upper=1.0), LETTERS))
    before = peak_bytes()
    for number in range(int(count)):
        path.write_bytes(sas_bytes(chance) if suffix == ".sas7bdat" else changed(whole, chance))
        (folder / "number").write_text(str(number))  # of the file that ended the process
        try:
            read_whole = table.SourceTable(open_source(path.name, None, folder), domain)
            rows = sum(chunk.rows for chunk in read_whole.chunks())
            outcome = "read" if rows <= 40 else "rows that are not there"
        except DataError as error:
            outcome = str(error)
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
    return {"outcomes": outcomes, "growth_bytes": peak_bytes() - before}


LETTERS = CategoricalColumn(name="s", levels=("abc",))


def statistics_bytes(path: Path) -> bytes:
    """Return a small honest file of the kind that the path's name says."""
    import pandas as pd  # noqa: PLC0415 (for these files alone)
    import pyreadstat  # noqa: PLC0415

    texts = ["abc", "\xe9", "", "Xc4nary7"] * 5
    frame = pd.DataFrame({"x": [float(i) for i in range(20)], "s": texts, "d": range(20)})
    write = {
        ".sav": pyreadstat.write_sav,
        ".zsav": partial(pyreadstat.write_sav, compress=True),
        ".dta": pyreadstat.write_dta,
        ".xpt": partial(pyreadstat.write_xport, file_format_version=8),
    }[path.suffix]
    write(frame, str(path))
    return path.read_bytes()


NUMBERS = (b"\xff\xff\xff\x7f", b"\x7f\xff\xff\xff", b"\xff" * 4, bytes(4), b"\0\0\0\x10", b"\0\0\0\x80")


def changed(whole: bytes, chance: random.Random) -> bytes:
    """Return a file cut short, with bytes of its header changed, huge counts, or a part there twice."""
    found, way = bytearray(whole), chance.random()
    if way < 0.2:
        return bytes(found[: chance.randrange(len(found))])
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(chance.choice([64, 600, len(found)])) % (len(found) - 8)
        if way < 0.5:
            found[at] = chance.choice([0, 1, 127, 128, 255, chance.randrange(256)])
        elif way < 0.85:
            found[at : at + 4] = chance.choice(NUMBERS)
        else:
            found[at:at] = found[at : at + chance.randint(1, 200)]
    return bytes(found)


SAS_MAGIC = bytes.fromhex("000000000000000000000000c2ea8160b31411cfbd92080009c7318c181f1011")
SAS_PARTS = (0xF7F7F7F7, 0xF6F6F6F6, 0xFFFFFFFD, 0xFFFFFFFF, 0xFFFFFFFC, 0xFFFFFBFE, 0xFFFFFC00)


def sas_bytes(chance: random.Random) -> bytes:
    """Return a header of SAS and pages whose parts are named as SAS names them, and hold anything.

    Nothing free writes the format.
    """
    header = bytearray(1024)
    header[:32] = SAS_MAGIC
    header[32], header[35], header[37], header[39], header[70] = (
        0x22,
        0x22,
        1,
        0x31,
        chance.choice([0, 20, 62, 255]),
    )
    header[84:92], header[156:164] = b"SAS FILE", b"DATA    "
    pages = chance.choice([1, 2, 2**31 - 1, chance.randrange(2**32)])
    header[196:208] = struct.pack("<III", 1024, 4096, pages)
    header[216:224] = b"9.0401M6"
    content = bytes(header)
    for _ in range(2):
        page = bytearray(chance.randbytes(4096) if chance.random() < 0.5 else bytes(4096))
        parts = chance.randint(1, 9)
        page[16:24] = struct.pack("<HHHH", chance.choice([0, 0x100, 0x200, 0x400]), parts, parts, 0)
        for part in range(parts):
            start, size = 400 * part + 200, chance.choice([64, 400, 480, 2**31 - 1])
            place = chance.choice([start] * 9 + [chance.randrange(2**32)])
            page[24 + 12 * part : 36 + 12 * part] = struct.pack(
                "<IIBBH", place, size, chance.choice([0, 0, 4]), 0, 0
            )
            page[start : start + 4] = struct.pack("<I", chance.choice(SAS_PARTS))
        content += bytes(page)
    return content if chance.random() < 0.5 else changed(content, chance)


def written_out(name: str, column: pa.Array) -> object:
    return numbers(name, column.dictionary_decode() if pa.types.is_dictionary(column.type) else column)


def read_query(url: str, query: str, read_bytes: str) -> dict[str, Any]:
    source = sql_source.SqlSource(url, query).reading_within(int(read_bytes))
    columns = Columns(numbers=("x", "y"), text=("s",))
    next(iter(source.batches(columns, 10)))  # loads the driver, and Arrow
    before, report = peak_bytes(), {}
    for way in ("copy", "all at once"):
        if way == "all at once":
            vars(sql_source)["read_by_copy"] = all_at_once
        rows = sum(batch.num_rows for batch in source.batches(columns, QUERY_ROWS))
        report[way] = {"rows": rows, "growth_bytes": peak_bytes() - before}
    return report


QUERY_ROWS = 65_536


def all_at_once(
    connection: sa.Connection, query: sa.Select[Any], columns: Columns, _rows: int, _bytes: int
) -> Iterator[Any]:
    yield sql_source.batch_of(columns, connection.execute(query).fetchall())


# A tester that attacks its agents, over a real socket: the first part of the path names the attack.


@cache
def bomb() -> bytes:
    """A quarter of a gigabyte of zeros, compressed twice."""
    return gzip.compress(gzip.compress(bytes(2**30 // 4), 1), 1)


PIECE = b" " * 2**16

Body = Iterator[bytes]


def _endless(first: bytes) -> Body:
    yield first
    while True:
        yield PIECE


ATTACKS: dict[str, Callable[[], tuple[dict[str, str], Body]]] = {
    "endless": lambda: ({}, _endless(b'{"items":[')),
    "endless-text": lambda: ({}, _endless(b'{"items":"')),
    "compressed": lambda: ({"content-encoding": "gzip"}, iter([gzip.compress(bomb())])),
    "compressed-twice": lambda: ({"content-encoding": "gzip, gzip"}, iter([bomb()])),
    "compressed-unlabelled": lambda: ({}, iter([bomb()])),
    "deep": lambda: ({}, iter([b"[" * (2**20 - 1)])),
    "deep-objects": lambda: ({}, iter([b'{"a":' * 100_000])),
    "wide": lambda: ({}, iter([b"[" + b"0," * (2**19 - 2) + b"0]"])),
    "long-number": lambda: ({}, iter([b"1" * (2**20 - 1)])),
    "many-keys": lambda: ({}, iter([_keys()])),
    "many-objects": lambda: ({}, iter([b"[" + b'{"a":{"b":0}},' * 70_000 + b"0]"])),
    "short-texts": lambda: ({}, iter([b'{"items":["a"' + b',"ab"' * 200_000 + b"]}"])),
    "wrong-items": lambda: ({}, iter([b'{"items":[0' + b",1.5" * 48_000 + b"]}"])),
    "odd-items": lambda: ({}, iter([b'{"items":[' + b'{"a":[],"b":{}},' * 4_000 + b"{}]}"])),
    "wide-characters": lambda: ({}, iter(['{"items":["\U0001f600'.encode() + b"a" * 1_048_500 + b'"]}'])),
    "quotes": lambda: ({}, iter([b'"\\' * (2**19 - 1)])),
    "too-many-items": lambda: ({}, iter([_items(7000)])),
    "long-headers": lambda: ({f"x-{i}": "y" * 60_000 for i in range(100)}, iter([b"{}"])),
    "wrong-length": lambda: ({"content-length": str(2**40)}, iter([b'{"items":[]}'])),
}


def _keys() -> bytes:
    return b"{" + b",".join(b'"%05x":0' % i for i in range(100_000)) + b"}"


def _items(count: int) -> bytes:
    return json.dumps({"items": [{"digest": f"{i:064x}", "deadline": 2**39} for i in range(count)]}).encode()


@contextlib.contextmanager
def hostile_tester() -> Iterator[str]:
    """Serve on a loopback port; yields the URL, to which the name of an attack is to be added."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            headers, body = ATTACKS[self.path.split("/")[1]]()
            self.send_response(200)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("connection", "close")
            with contextlib.suppress(OSError):  # the agent hangs up, as it should
                self.end_headers()
                for piece in body:
                    self.wfile.write(piece)
            self.close_connection = True

    with listening(Handler) as url:
        yield url


if __name__ == "__main__":
    _, what, first, *others = sys.argv
    ways: dict[str, Callable[..., dict[str, Any]]] = {
        "attacks": attack,
        "read": read,
        "mutated": mutated,
        "sql": read_query,
    }
    report = ways[what](first if what == "sql" else Path(first), *others)
    sys.stdout.write("\n" + json.dumps(report) + "\n")
