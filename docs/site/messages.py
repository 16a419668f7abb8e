"""Write what others need to speak as Tacit does: messages.schema.json, test-vectors.json, *.openapi.json.

``python docs/site/messages.py`` writes them to docs/reference; a test compares. The vectors' keys are public
on purpose.
"""

import base64
import hashlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from pydantic import BaseModel

from tacit_protocol.messages.catalogue import CatalogueMessage
from tacit_protocol.messages.encoding import digest, encode
from tacit_protocol.messages.study import (
    AcceptanceMessage,
    CancellationMessage,
    DeclineMessage,
    MaskKeyMessage,
    Receipt,
    ReleaseMessage,
    SealedRelease,
    Study,
    Transcript,
    VerdictMessage,
)
from tacit_protocol.procedures.discovery import PROCEDURES
from tacit_protocol.signing import (
    ACCEPTANCE_TYPE,
    CANCELLATION_TYPE,
    CATALOGUE_TYPE,
    DECLINE_TYPE,
    MASK_KEY_TYPE,
    RECEIPT_TYPE,
    RELEASE_TYPE,
    SEALED_RELEASE_TYPE,
    STUDY_TYPE,
    VERDICT_TYPE,
    Envelope,
    PrivateKey,
    payload_of,
    sign_envelope,
)
from tacit_protocol.strict import StrictModel

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support")]

from service_apps import SERVICES, document_of  # noqa: E402
from tools.conformance import spoiled  # noqa: E402

SCHEMA = ROOT / "docs" / "reference" / "messages.schema.json"
VECTORS = ROOT / "docs" / "reference" / "test-vectors.json"
OPENAPI = {name: ROOT / "docs" / "reference" / f"{name}.openapi.json" for name in SERVICES}
PLAYED = ROOT / "tests" / "compatibility" / "fixtures" / "noisy_counts-laplace.json"

MESSAGES: dict[str, type[StrictModel]] = {
    STUDY_TYPE: Study,
    RELEASE_TYPE: ReleaseMessage,
    DECLINE_TYPE: DeclineMessage,
    ACCEPTANCE_TYPE: AcceptanceMessage,
    MASK_KEY_TYPE: MaskKeyMessage,
    CANCELLATION_TYPE: CancellationMessage,
    VERDICT_TYPE: VerdictMessage,
    SEALED_RELEASE_TYPE: SealedRelease,
    RECEIPT_TYPE: Receipt,
    CATALOGUE_TYPE: CatalogueMessage,
}
"""The message that each payload type holds."""


def definitions(name: str, model: type[BaseModel], prefix: str = "") -> dict[str, Any]:
    """Return a model's schema by its name, with those inside."""
    own = model.model_json_schema(ref_template=f"#/$defs/{prefix}{{model}}")
    made = {f"{prefix}{inner}": schema for inner, schema in own.pop("$defs", {}).items()}
    made[name] = own
    return made


def schema_text() -> str:
    """Return one JSON Schema: the envelope, every message by its payload type, every procedure's parameters.

    Every field is spelled out; one without a default that is not required is an empty mapping.
    """
    made: dict[str, Any] = {}
    for name, model in (
        ("envelope", Envelope),
        ("Transcript", Transcript),
        *((m.__name__, m) for m in MESSAGES.values()),
    ):
        made |= definitions(name, model)
    parameters = {}
    built_in = {name: one for name, one in PROCEDURES.items() if one.origin is None}
    for name, procedure in sorted(built_in.items()):
        made |= definitions(f"parameters.{name}", procedure.Parameters, f"parameters.{name}.")
        parameters[name] = f"#/$defs/parameters.{name}"
    whole = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Messages between the parties of a study",
        "x-payload-types": {kind: f"#/$defs/{model.__name__}" for kind, model in MESSAGES.items()},
        "x-parameters": parameters,
        "$defs": made,
    }
    return json.dumps(whole, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def key_of(name: str) -> PrivateKey:
    """Return a vector's key: its seed is the SHA-256 of the name."""
    return PrivateKey(Ed25519PrivateKey.from_private_bytes(hashlib.sha256(name.encode()).digest()))


def played() -> dict[str, bytes]:
    """Return the payloads of a study that was once played, by kind; of several owners the first's."""
    found = json.loads(PLAYED.read_text("utf-8"))["transcript"]
    release = next(iter(found["releases"].values()))
    envelopes = {"study": found["study"], "release": release, "verdict": found["verdict"]}
    return {kind: payload_of(str(text).encode()) for kind, text in envelopes.items()}


def messages() -> Iterator[tuple[str, str, bytes]]:
    """Yield a payload type, who signs and the payload: one message of each kind, of one study."""
    texts = {kind: json.loads(payload) for kind, payload in played().items()}
    study = texts["study"]
    for party in ("tester", "analyst"):
        study[party]["key"] = key_of(study[party]["name"]).public_hex
    for owner in study["owners"]:
        owner["key"] = key_of(owner["name"]).public_hex
    payload = encode(Study.model_validate_json(json.dumps(study)))
    name, owner, tester = digest(payload), study["owners"][0]["name"], study["tester"]["name"]
    yield STUDY_TYPE, study["analyst"]["name"], payload
    for kind, signer in (("release", owner), ("verdict", tester)):
        model = {"release": ReleaseMessage, "verdict": VerdictMessage}[kind]
        own = texts[kind] | {"study": name}
        yield (
            {"release": RELEASE_TYPE, "verdict": VERDICT_TYPE}[kind],
            signer,
            encode(model.model_validate_json(json.dumps(own))),
        )
    yield DECLINE_TYPE, owner, encode(DeclineMessage(study=name, party=owner))
    yield ACCEPTANCE_TYPE, owner, encode(AcceptanceMessage(study=name, party=owner))
    # Not drawn, so that the vectors stay the same: a key that belongs to nobody.
    yield MASK_KEY_TYPE, owner, encode(MaskKeyMessage(study=name, party=owner, key=digest(b"a mask key")))
    yield CANCELLATION_TYPE, study["analyst"]["name"], encode(CancellationMessage(study=name))
    yield (
        CATALOGUE_TYPE,
        owner,
        encode(CatalogueMessage(owner=owner, tester=study["tester"]["key"], version=1, data_sets=())),
    )


def vectors_text() -> str:
    """Return the vectors: keys, messages with their exact bytes, and what is refused of the study."""
    made = list(messages())
    signers = sorted({signer for _, signer, _ in made} | {"a stranger"})
    taken = [
        {
            "payload_type": kind,
            "signer": signer,
            "payload": payload.decode(),
            "sha256": digest(payload),
            "envelope": sign_envelope(payload, kind, key_of(signer)).decode(),
        }
        for kind, signer, payload in made
    ]
    kind, signer, payload = made[0]
    wrong = [
        {
            "payload_type": kind,
            "signer": signer,
            "why": why,
            "refused_as": stage,
            "envelope_base64": base64.b64encode(envelope).decode(),
        }
        for why, stage, envelope in spoiled(
            kind, payload, key_of(signer), key_of("a stranger"), b'"level":0.05'
        )
    ]
    whole = {
        "keys": {
            name: {"seed": hashlib.sha256(name.encode()).hexdigest(), "public": key_of(name).public_hex}
            for name in signers
        },
        "taken": taken,
        "refused": wrong,
    }
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"


def openapi_text(service: str) -> str:
    """Return a service's OpenAPI document, as it serves it at /v1/openapi.json."""
    with TemporaryDirectory() as folder:
        return json.dumps(document_of(service, Path(folder) / service), indent=1, sort_keys=True) + "\n"


if __name__ == "__main__":
    for service, path in OPENAPI.items():
        path.write_text(openapi_text(service), "utf-8")
    SCHEMA.write_text(schema_text(), "utf-8")
    VECTORS.write_text(vectors_text(), "utf-8")
    sys.stdout.write(f"Wrote {SCHEMA.parent.relative_to(ROOT)}/*.json.\n")
