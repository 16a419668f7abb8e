"""All that is read of a transcript: verdict, SDK fields, command, report, picture, what stewards read."""

import contextlib
import dataclasses
import io
import json
import re
from collections.abc import Mapping
from enum import Enum
from typing import Any

import numpy as np
from pydantic import BaseModel

from tacit.command.study_view import print_result, result_fields
from tacit.results import result_of
from tacit_protocol.procedures.disclosure import Asked
from tacit_protocol.procedures.discovery import procedure_named
from tacit_protocol.reporting.report import Reported, meaning_of, report_html
from tacit_protocol.verification import VerifiedTranscript, verify_transcript

HIDDEN = {"source", "verdict"}
"""Fields of a result that are parts of the transcript, kept beside."""

DIGITS = 9
"""Significant digits that are compared: libraries of linear algebra differ in the last ones."""


def stated(transcript: bytes, names: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Verify a transcript, and return all that is said of it, as plain values.

    ``names`` are the fields of results that are read, by name, and those of what they hold below them: by
    default all that there are.
    """
    verified = verify_transcript(transcript)
    if verified.result is None:
        return dict(plain({"ended": verified.verdict, "asked": asked(verified)}))
    study, verdict = verified.study, verified.result.model_dump(mode="json")
    result = result_of(study, verdict, digest=verified.study_digest, releases=verified.releases)
    meaning = meaning_of(study, verdict)
    shown = {
        "verdict": verdict,
        "fields": read(result, names),
        "command": {"fields": result_fields(result), "text": printed(result)},
        "report": words(
            report_html(Reported(study, verdict, verified.releases, verified.study_digest), "tacit")
        ),
        "meaning": [meaning.sentence, meaning.care],
        "asked": asked(verified),
        "picture": [picture_of(panel) for panel in result.panels()],
    }
    return dict(plain(shown))


def read(value: Any, like: Any) -> Any:
    """Return a value's attributes of the names that ``like`` has, and so on below them."""
    if isinstance(value, tuple):
        parts = like if isinstance(like, list) else [None] * len(value)
        return [read(item, part) for item, part in zip(value, parts, strict=True)]
    if dataclasses.is_dataclass(value) or isinstance(value, BaseModel):
        names = like if isinstance(like, Mapping) else public_names(value)
        return {name: read(getattr(value, name), names[name]) for name in names}
    return value


def public_names(value: Any) -> dict[str, None]:
    """Return the names of a value's fields and properties."""
    if not isinstance(value, BaseModel):
        return dict.fromkeys(f.name for f in dataclasses.fields(value) if f.compare)
    found = {n for n in dir(type(value)) if isinstance(getattr(type(value), n), property)}
    own = {n for n in found | set(type(value).model_fields) if not n.startswith(("_", "model_"))}
    return dict.fromkeys(sorted(own - HIDDEN))


def printed(result: Any) -> list[str]:
    """Return what the command prints of a result."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        print_result(result)
    return [line.rstrip() for line in out.getvalue().splitlines()]


def asked(verified: VerifiedTranscript) -> dict[str, str]:
    """Return what each steward reads before deciding."""
    study = verified.study
    procedure = procedure_named(study.procedure)
    cost = procedure.cost(study)
    found = {}
    for party in study.senders:
        owner = None if study.curator is not None else study.owner_named(party.name)
        words_of = Asked.of(procedure, study, cost, party.name)
        found[party.name] = words_of.plain_words(study, owner, "rows")
    return found


def words(html: str) -> list[str]:
    """Return the texts of a page in their order, without its style sheet."""
    body = re.sub(r"<style.*?</style>", "", html, flags=re.DOTALL)
    texts = (text.strip() for text in re.split(r"<[^>]*>", body))
    return [text for text in texts if text]


def picture_of(panel: Any) -> dict[str, Any]:
    """Return the numbers that a chart is drawn from; of a null distribution, only what is marked on it."""
    fields = {f.name: getattr(panel, f.name) for f in dataclasses.fields(panel) if f.name != "null"}
    return {"kind": type(panel).__name__, **fields}


def plain(value: Any) -> Any:
    """Return a value as JSON has it, numbers to DIGITS digits."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value) if f.name not in HIDDEN
        }
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in (sorted(value) if isinstance(value, set | frozenset) else value)]
    if isinstance(value, Enum):
        return plain(value.value)
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if hasattr(value, "model_dump"):
        return plain(value.model_dump(mode="json"))
    return json.loads(json.dumps(value, default=str))
