"""Data sets that owners hand to a curator: how one is described, and its file.

The TOML form of a description is in docs/reference/command.md.
"""

import json
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tacit.client.http import Upload
from tacit.errors import InputError
from tacit_protocol.domain import Column, ColumnName
from tacit_protocol.messages.encoding import encode_json, json_path
from tacit_protocol.messages.study import DataSetName, NamedKey, PublicKeyHex, RespondAfter

PART_BYTES = 1 << 20
"""Bytes of a file that are read at a time."""

CONTENT_TYPES = {".csv": "text/csv", ".parquet": "application/vnd.apache.parquet"}
"""Kinds of file that a curator takes, by ending."""

OnBytes = Callable[[int], None]
"""Called with the number of bytes sent so far; begins again at 0 where the upload is repeated."""


class _Described(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)


class DataSetPolicy(_Described):
    """What an owner lets a curator do with a data set. What is not said is left to the curator's defaults."""

    approval: Literal["automatic", "by-hand"] = "by-hand"
    approve_hopeless: bool | None = None
    epsilon_per_study_max: Annotated[float, Field(gt=0)]
    delta_per_study_max: Annotated[float, Field(ge=0, lt=1)]
    analysts: Annotated[tuple[PublicKeyHex | Literal["*"] | NamedKey, ...], Field(min_length=1)]
    procedures: tuple[str, ...] | None = None
    columns: tuple[str, ...] | None = None
    units_min: Annotated[int, Field(ge=1)] | None = None
    respond_after_s_min: RespondAfter | None = None


class DataSetDescription(_Described):
    """A data set as its owner describes it to a curator.

    ``epsilon`` and ``delta`` cap all that is ever spent on it; ``pure_share`` and ``approximate_share`` are
    the parts of them for pure noise, and for events with a delta of their own, where the owner states them.
    Bounds and levels of the columns are public.
    """

    name: DataSetName
    columns: Annotated[tuple[Column, ...], Field(min_length=1)]
    unit_column: ColumnName | None = None
    epsilon: Annotated[float, Field(gt=0)]
    delta: Annotated[float, Field(ge=0, lt=1)]
    pure_share: Annotated[float, Field(ge=0, le=1)] | None = None
    approximate_share: Annotated[float, Field(ge=0, le=1)] | None = None
    policy: DataSetPolicy

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Self:
        """Build a description from plain values, as TOML or JSON give them.

        Raises:
            InputError: a field is missing, unknown or wrong; the message names it.
        """
        try:
            return cls.model_validate_json(json.dumps(fields, default=str))
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            path = json_path(cls, first["loc"])
            raise InputError(
                f"the data set's {path}: {first['msg'].removeprefix('Value error, ')}"
            ) from error

    @classmethod
    def from_toml(cls, path: Path) -> Self:
        """Read a description from a TOML file.

        Raises:
            InputError: the file is missing, is not TOML, or does not describe a data set.
        """
        try:
            fields = tomllib.loads(path.read_text("utf-8"))
        except OSError as error:
            raise InputError(f"cannot read {path}: {error.strerror}") from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise InputError(f"{path} is not TOML: {error}") from error
        return cls.from_dict(fields)

    def registration(self) -> bytes:
        """Return what is sent to the curator; the name goes into the address."""
        return encode_json(self.model_dump(mode="json", exclude={"name"}, exclude_none=True))


def upload_of(path: Path, on_bytes: OnBytes | None = None) -> Upload:
    """Return a file as a body that is read while it is sent, in memory of :data:`PART_BYTES`.

    Args:
        path: a .csv or .parquet file.
        on_bytes: called with the bytes sent so far.

    Raises:
        InputError: the file is missing, empty or of another kind.
    """
    kind = CONTENT_TYPES.get(path.suffix.lower())
    if kind is None:
        raise InputError(f"{path} must end in {' or '.join(CONTENT_TYPES)}: a curator takes no other files")
    try:
        size = path.stat().st_size
        path.open("rb").close()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    if not size:
        raise InputError(f"{path} is empty")

    def parts() -> Iterator[bytes]:
        sent = 0
        with path.open("rb") as file:
            while part := file.read(min(PART_BYTES, size - sent)):
                sent += len(part)
                yield part
                if on_bytes is not None:
                    on_bytes(sent)

    return Upload(parts, size, kind)
