"""The base of every message: strict, frozen models, what each field tells, and the two errors of a study."""

from collections.abc import Iterator
from dataclasses import dataclass
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler
from pydantic_core import CoreSchema

EgressKind = Literal["public", "noised", "post-processed", "sealed", "keyed", "owner's own"]
"""What a field tells about data: nothing; what a mechanism let out; what anyone can compute from that; what a
mechanism let out, readable by one receiver alone; an exact function of ids under a key that two owners share,
which is not differentially private; or what its own owner, and nobody else, is answered."""


@dataclass(frozen=True)
class Egress:
    """What an auditor has to know of a field: its kind, where it is made, and why it may leave.

    It stands in a field's ``Annotated``. ``made`` is ``module:name``, checked by the tests. A model may give
    one for all of its fields as the class variable ``egress``, where whoever makes it holds no data.
    """

    kind: EgressKind
    made: str
    why: str


class StudyError(ValueError):
    """The study cannot be run as written. The message says what to change and quotes no data."""


HOPELESS = "Hopeless: "
"""What a warning starts with where the study should not be run as planned."""


class ReleaseError(ValueError):
    """A release does not fit its study. The message says which rule it breaks and quotes no value."""


class UnclassifiedFieldError(TypeError):
    """A field leaves a service and nobody has said what it tells: annotate it with Egress."""


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

    model_config = ConfigDict(
        strict=True, extra="forbid", frozen=True, allow_inf_nan=False, hide_input_in_errors=True
    )

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Let every sequence end at its first wrong item: pydantic would keep a kilobyte for each of them."""
        schema = handler(source)
        _fail_fast(schema)
        return schema


def egress_of(
    model: type[BaseModel], place: str = "", default: Egress | None = None
) -> Iterator[tuple[str, Egress]]:
    """Yield the path and the Egress of every field of a message, nested ones too.

    A path has ``[]`` for the items of a list, ``*`` for the names of a mapping, and ``**`` for whatever a
    field that holds any JSON may have below it.

    Raises:
        UnclassifiedFieldError: neither the field nor its model says what it tells.
    """
    stated = vars(model).get("egress", default)
    for name, field in model.model_fields.items():
        found = next((item for item in field.metadata if isinstance(item, Egress)), stated)
        path = f"{place}.{name}" if place else name
        inner = list(_models_in(field.annotation, path))
        if found is None and not inner:
            raise UnclassifiedFieldError(f"{model.__name__}.{name}")
        if not inner and found is not None:
            yield _leaf(field.annotation, path), found
        for deeper, nested in inner:
            yield from egress_of(nested, deeper, found)


def _models_in(annotation: Any, path: str) -> Iterator[tuple[str, type[BaseModel]]]:
    """Yield the models inside a field's type, with the paths of their own fields."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated or origin in {Union, UnionType}:
        for argument in arguments if origin is not Annotated else arguments[:1]:
            yield from _models_in(argument, path)
    elif origin is dict:
        yield from _models_in(arguments[1], f"{path}.*")
    elif origin in {tuple, list}:
        yield from _models_in(arguments[0], f"{path}[]")
    elif isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield path, annotation


def _leaf(annotation: Any, path: str) -> str:
    """Return the path of a field that holds no model: what is below it is named by what it holds."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _leaf(arguments[0], path)
    if origin in {Union, UnionType}:
        return max((_leaf(argument, path) for argument in arguments), key=len)
    if origin is dict:
        return f"{path}.**" if arguments[1] is Any else _leaf(arguments[1], f"{path}.*")
    return f"{path}[]" if origin in {tuple, list} else path
