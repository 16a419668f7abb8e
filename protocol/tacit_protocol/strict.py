"""The base of every message: strict, frozen models, and JSON that has only one reading."""

from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler
from pydantic_core import CoreSchema

_SEQUENCES = ("list", "tuple", "set", "frozenset")


def _fail_fast(schema: Any) -> None:
    if isinstance(schema, dict):
        if schema.get("type") in _SEQUENCES:
            schema["fail_fast"] = True
        for part in schema.values():
            _fail_fast(part)
    elif isinstance(schema, list | tuple):
        for part in schema:
            _fail_fast(part)


class StrictModel(BaseModel):
    """A frozen model that takes no extra field, no coerced type, no NaN and no infinity.

    Validation errors never carry the rejected value (``hide_input_in_errors``): a value may be private.
    The ValueErrors that a model's own validators raise are sent to other parties, so their text is constant.
    """

    added_fields: ClassVar[frozenset[str]] = frozenset()
    """Fields that a format has got since it was first used. :func:`~tacit_protocol.messages.encoding.encode`
    leaves them out where they hold their default: a message that has no use for them keeps the bytes that it
    always had, and is read by earlier versions."""

    model_config = ConfigDict(
        strict=True, extra="forbid", frozen=True, allow_inf_nan=False, hide_input_in_errors=True
    )

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Let every sequence end at its first wrong item: pydantic would keep a kilobyte for each of them."""
        schema = handler(source)
        _fail_fast(schema)
        return schema
