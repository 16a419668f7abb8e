"""What attacks cost an agent, measured in a process of its own: ``hostile_child.py FOLDER URL [PLANTED]``.

Prints a JSON object: the growth of the peak of resident memory in bytes, and each attack's outcome.
Planted mistakes: with ``gullible`` the client reads whole bodies before it looks at their size, with
``uncounted`` messages are validated before anybody counts what they hold.
"""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
from agent_fakes import World
from attacked_agent import AttackedAgent
from hostile_tester import ATTACKS

from tacit_protocol.domain.columns import Domain, NumericColumn
from tacit_protocol.messages import encoding
from tacit_protocol.messages.encoding import encode, encode_json
from tacit_protocol.procedures.discovery import PROCEDURES
from tacit_protocol.signing.envelope import STUDY_TYPE, digest, seal
from tacit_services.agent import tester_client
from tacit_services.agent.intake import StudyRefusedError
from tacit_services.agent.tester_client import TesterClient, TesterError

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
    numbers, texts = b"1.5," * 48_000 + b"1", b'"ab",' * 48_000 + b'"ab"'
    return {
        "nothing but numbers": b'{"parameters":{"a":[' + numbers + b"]}}",
        "owners that are texts": payload(owners=[]).replace(b'"owners":[]', b'"owners":[' + texts + b"]"),
        "a title that is numbers": encode_json(plain | {"title": [0]}).replace(
            b"[0]", b"[" + numbers + b"]", 1
        ),
        "an owner that is numbers": payload(owners=[{"a": [0]}]).replace(b"[0]", b"[" + numbers + b"]", 1),
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
    except (TesterError, StudyRefusedError, ValueError) as error:
        outcome = f"{type(error).__name__}: {error}"
    return {"outcome": outcome, "seconds": time.process_time() - started_s, "peak_bytes": peak_bytes()}


def poll_hostile(attacked: AttackedAgent, url: str) -> None:
    with TesterClient(url, url, attacked.world.agent, attacked.clock, lambda _: None) as client:
        client.inbox(0)


def consider(attacked: AttackedAgent, name: str, envelope: bytes) -> None:
    """Do all that an agent does with a study before it opens data, as if its policy allowed every column."""
    intake = attacked.agent.intake
    intake.price(intake.authenticate(name, envelope))


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


def main(folder: Path, url: str, planted: str) -> None:
    attacked = AttackedAgent(folder, procedures=PROCEDURES)
    attacked.world.ask(attacked.tester, attacked.world.study(procedure="kernel_two_sample", domain=X))
    attacked.turn()  # an honest study first: what an agent needs anyway is in memory
    assert len(attacked.debits()) == 1
    studies = {
        name: (digest(payload), seal(payload, STUDY_TYPE, attacked.world.analyst))
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
    report = {"growth_bytes": peak_bytes() - before, "outcomes": outcomes}
    sys.stdout.write("\n" + json.dumps(report) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3] if len(sys.argv) > 3 else "")
