"""The JSON Schema of drafts, for editors: made from the models that read them, so that both say the same."""

import json
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema

from tacit.studies.draft import StudyDraft

DIALECT = GenerateJsonSchema.schema_dialect

_NAME = "The column's name, the same at every owner."

_INNER_WORDS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "NumericColumn": (
        "A column of numbers.",
        {
            "kind": "Numbers, with public bounds.",
            "name": _NAME,
            "lower": "The smallest value that can be, from public knowledge and never from the data.",
            "upper": "The largest value that can be, from public knowledge and never from the data.",
            "missing": "What stands for a missing value; by default the middle of the bounds.",
        },
    ),
    "CategoricalColumn": (
        "A column of categories.",
        {
            "kind": "Categories, with public levels.",
            "name": _NAME,
            "levels": "The values that can be, from public knowledge; any other counts as 'other'.",
        },
    ),
    "DraftOwner": ("A data owner, and the data set of it that is asked.", {}),
    "SealingCertificate": (
        "What `tacit agent certificate` prints.",
        {"key": "The owner's key for sealed releases.", "signature": "Its signature."},
    ),
}


def draft_schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of a draft, with every registered procedure's parameters."""
    from tacit_protocol.procedures.discovery import PROCEDURES  # noqa: PLC0415 (statistics load when needed)

    schema = StudyDraft.model_json_schema()
    definitions: dict[str, Any] = schema["$defs"]
    for name, (words, fields) in _INNER_WORDS.items():
        _describe(definitions[name], words, fields)
    for column in ("NumericColumn", "CategoricalColumn"):
        definitions[column]["required"].insert(0, "kind")
    for name, procedure in PROCEDURES.items():
        definitions |= _parameters(name, procedure.Parameters)
    properties = schema["properties"]
    properties["procedure"] |= {"enum": list(PROCEDURES)}
    _describe(schema, "What `tacit study create` reads, in TOML: docs/how-to/create-a-study.md.", {})
    default = properties["procedure"]["default"]
    schema["allOf"] = [
        _applies(name, procedure.Parameters, default) for name, procedure in PROCEDURES.items()
    ]
    return {"$schema": DIALECT, **schema, "title": "A draft of a Tacit study"}


def schema_text() -> str:
    """Return the schema as the text of its file."""
    return json.dumps(draft_schema(), indent=2, ensure_ascii=False) + "\n"


def _parameters(name: str, model: type[BaseModel]) -> dict[str, Any]:
    """Return the definitions of one procedure's parameters; those inside are named after it."""
    schema = model.model_json_schema(ref_template=f"#/$defs/{name}.{{model}}")
    inner = schema.pop("$defs", {})
    schema["title"] = f"Parameters of {name}"
    _describe(schema, f"Parameters of {name}: docs/procedures/{name}.md.", {})
    return {f"{name}.{each}": content for each, content in inner.items()} | {name: schema}


def _describe(schema: dict[str, Any], words: str, fields: Mapping[str, str]) -> None:
    """Say what a table and its keys mean, in the place of what is written of the code."""
    schema["description"] = words
    for name, content in schema["properties"].items():
        content.pop("title", None)
        if name in fields:
            content["description"] = fields[name]


def _applies(name: str, parameters: type[BaseModel], default: str) -> dict[str, Any]:
    """Say which parameters a draft of one procedure takes, and that it has those that need a value."""
    named: dict[str, Any] = {"properties": {"procedure": {"const": name}}}
    if name != default:
        named["required"] = ["procedure"]
    then: dict[str, Any] = {"properties": {"parameters": {"$ref": f"#/$defs/{name}"}}}
    if any(field.is_required() for field in parameters.model_fields.values()):
        then["required"] = ["parameters"]
    return {"if": named, "then": then}
