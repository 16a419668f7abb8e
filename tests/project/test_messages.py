"""The published schema and vectors of messages: as this code writes, takes and refuses them."""

import base64
import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from tacit_protocol.messages.encoding import MessageError, decode, digest
from tacit_protocol.signing import EnvelopeError, SignatureError, open_envelope, sign_envelope

ROOT = Path(__file__).resolve().parents[2]


def script() -> Any:
    spec = importlib.util.spec_from_file_location(
        "published_messages", ROOT / "docs" / "site" / "messages.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PUBLISHED = script()
SCHEMA = json.loads(PUBLISHED.SCHEMA.read_text("utf-8"))
VECTORS = json.loads(PUBLISHED.VECTORS.read_text("utf-8"))


def test_schema_and_vectors_are_those_of_the_code() -> None:
    assert PUBLISHED.SCHEMA.read_text("utf-8") == PUBLISHED.schema_text(), "run: python docs/site/messages.py"
    assert PUBLISHED.VECTORS.read_text("utf-8") == PUBLISHED.vectors_text(), (
        "run: python docs/site/messages.py"
    )


@pytest.mark.parametrize("service", PUBLISHED.OPENAPI)
def test_the_openapi_document_of_a_service_is_the_published_one(service: str) -> None:
    written = PUBLISHED.OPENAPI[service].read_text("utf-8")
    assert written == PUBLISHED.openapi_text(service), "run: python docs/site/messages.py"
    document = json.loads(written)
    # Nothing is left to be guessed: every answer and body has a schema, every closed request its token.
    for path, operations in document["paths"].items():
        for operation in operations.values():
            bodies = [*operation["responses"].values(), operation.get("requestBody", {})]
            assert all(one["schema"] for body in bodies for one in body.get("content", {}).values()), path
            assert path == "/v1/identity" or operation["security"] == [{"party": []}], path


def against(name: str) -> Draft202012Validator:
    return Draft202012Validator({"$ref": f"#/$defs/{name}", "$defs": SCHEMA["$defs"]})


@pytest.mark.parametrize("taken", VECTORS["taken"], ids=lambda one: one["payload_type"].split(".")[2])
def test_a_vector_is_signed_read_and_described_as_it_is_published(taken: dict[str, str]) -> None:
    kind, signer, envelope = taken["payload_type"], taken["signer"], taken["envelope"].encode()
    public = VECTORS["keys"][signer]["public"]
    assert sign_envelope(taken["payload"].encode(), kind, PUBLISHED.key_of(signer)) == envelope
    payload = open_envelope(envelope, kind, public)
    assert digest(payload) == taken["sha256"]
    decode(PUBLISHED.MESSAGES[kind], payload)
    against("envelope").validate(json.loads(envelope))
    against(SCHEMA["x-payload-types"][kind].rsplit("/", 1)[1]).validate(json.loads(payload))


@pytest.mark.parametrize("wrong", VECTORS["refused"], ids=lambda one: one["why"])
def test_what_is_published_as_refused_is_refused_where_it_says(wrong: dict[str, str]) -> None:
    envelope, public = base64.b64decode(wrong["envelope_base64"]), VECTORS["keys"][wrong["signer"]]["public"]
    if wrong["refused_as"] == "envelope":
        with pytest.raises((EnvelopeError, SignatureError)):
            open_envelope(envelope, wrong["payload_type"], public)
        return
    payload = open_envelope(envelope, wrong["payload_type"], public)
    with pytest.raises(MessageError):
        decode(PUBLISHED.MESSAGES[wrong["payload_type"]], payload)
