"""Drafts: a study as an analyst writes it, before the parties' keys, the times and the seed are filled in.

Their JSON Schema is made from the models that read them, so that both say the same. A fault is told with its
line, what is allowed there, and the nearest spelling.
"""

import json
import secrets
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.json_schema import GenerateJsonSchema

from tacit.errors import InputError, StudyRefusedError
from tacit.setup.configuration import toml_text
from tacit_protocol.decimals import read_whole
from tacit_protocol.domain import Column, Encoder
from tacit_protocol.messages.faults import DraftFault, Place, choices_words, faults_of, nearest, written
from tacit_protocol.messages.study import Party, Study
from tacit_protocol.preparation import PreparedStudy, prepared
from tacit_protocol.strict import StudyError
from tacit_protocol.study_form import HOURS_MAX, DraftOwner, StudyForm, parse_column


class TomlLines:
    """The lines of a TOML text that tomllib can read.

    Keys in inline tables and in arrays have the line at which their whole value begins.
    """

    def __init__(self, text: str) -> None:
        self._lines: dict[Place, int] = {}
        table: Place = ()
        tables: dict[Place, int] = {}
        for number, statement, value in _statements(text):
            keys = _keys(value)
            if not statement.startswith("["):
                self._note((*table, *keys), number)
                continue
            table = ()
            for key in keys[:-1]:
                table = (*table, key)
                if table in tables:
                    table = (*table, tables[table])
            table = (*table, keys[-1])
            if statement.startswith("[["):
                tables[table] = tables.get(table, -1) + 1
                table = (*table, tables[table])
            self._note(table, number)

    def line_of(self, place: Sequence[str | int]) -> int | None:
        """Return the line of a place, from 1, or of the nearest one around it; None where there is none."""
        for length in range(len(place), 0, -1):
            if (found := self._lines.get(tuple(place[:length]))) is not None:
                return found
        return None

    def _note(self, place: Place, number: int) -> None:
        for length in range(1, len(place) + 1):
            self._lines.setdefault(place[:length], number)


def _keys(value: Any) -> Place:
    """Return the keys of a statement that was read alone."""
    keys: Place = ()
    while isinstance(value, dict) and value:
        key, value = next(iter(value.items()))
        keys = (*keys, key)
    return keys


def _statements(text: str) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """Yield each statement's first line, its text and its value: the fewest lines that are TOML alone."""
    begun, pending = 1, ""
    for number, line in enumerate(text.split("\n"), start=1):
        begun, pending = (begun, f"{pending}\n{line}") if pending else (number, line.lstrip())
        try:
            value = tomllib.loads(pending)
        except tomllib.TOMLDecodeError:
            continue
        if value:
            yield begun, pending, value
        pending = ""


FAULTS_SHOWN_MAX = 10
"""Faults that are told at once: after more, a draft is another kind of file."""


def procedure_faults(named: str, parameters: Mapping[str, Any]) -> list[DraftFault]:
    """Find an unknown procedure, or parameters that it does not take."""
    from tacit_protocol.procedures.discovery import PROCEDURES  # noqa: PLC0415 (statistics load when needed)

    procedure = PROCEDURES.get(named)
    if procedure is None:
        return [
            DraftFault(("procedure",), f"there is no procedure {named!r}{choices_words(named, PROCEDURES)}")
        ]
    try:
        procedure.Parameters.model_validate_json(json.dumps(parameters, default=str))
    except ValidationError as error:
        return faults_of(procedure.Parameters, error, ("parameters",))
    return []


def faults_text(faults: Sequence[DraftFault], source: str, lines: TomlLines | None = None) -> str:
    """Write faults for a person: one in a sentence, several one to a line."""
    words = [_told(fault, lines) for fault in faults[:FAULTS_SHOWN_MAX]]
    if len(faults) == 1:
        return f"{source}{', ' if words[0].startswith('line ') else ': '}{words[0]}"
    return "\n  ".join([f"{source} has {len(faults)} faults:", *words])


def _told(fault: DraftFault, lines: TomlLines | None) -> str:
    line = None if lines is None else lines.line_of(fault.place)
    where = written(fault.place)
    return f"{'' if line is None else f'line {line}, '}{where}: {fault.words}"


@dataclass(frozen=True)
class EnrolledKeys:
    """The public keys that the tester gives for the parties enrolled with it, by name."""

    owners: Mapping[str, str]
    curators: Mapping[str, str]


class StudyDraft(StudyForm):
    """A study as its analyst states it: from a TOML file, the command's flags, or plain values."""

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Self:
        """Build a draft from plain values, as TOML or JSON give them.

        Raises:
            InputError: something is missing, unknown or wrong, in the draft or in its procedure's parameters;
                the message names all of it, with what is allowed and the nearest spelling.
        """
        return cls._read(fields, "the draft", None)

    @classmethod
    def from_toml(cls, path: Path) -> Self:
        """Read a draft from a TOML file.

        Raises:
            InputError: the file is missing, is not TOML, or describes no study; the message names lines.
        """
        try:
            text = path.read_text("utf-8")
            fields = tomllib.loads(text)
        except OSError as error:
            raise InputError(f"cannot read {path}: {error.strerror}") from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise InputError(f"{path} is not TOML: {error}") from error
        return cls._read(fields, str(path), TomlLines(text))

    @classmethod
    def _read(cls, fields: Mapping[str, Any], source: str, lines: TomlLines | None) -> Self:
        try:
            draft = cls.model_validate_json(json.dumps(_with_outputs(fields), default=str))
        except ValidationError as error:
            raise InputError(faults_text(faults_of(cls, error), source, lines)) from error
        if faults := procedure_faults(draft.procedure, draft.parameters):
            raise InputError(faults_text(faults, source, lines))
        return draft

    def study(self, enrolled: EnrolledKeys, tester: Party, analyst: Party, now: int) -> Study:
        """Fill in the enrolled parties' keys, times and a fresh seed.

        Raises:
            InputError: a party's key is not known, or its pinned key differs from the enrolled one.
            StudyRefusedError: the parts do not make a study.
        """
        try:
            keys = {owner.name: self._key_of(owner, enrolled) for owner in self.owners}
            curator, seed = self._curator(enrolled), secrets.token_hex(16)
            return self.study_between(keys, curator, tester, analyst, now=now, seed=seed)
        except ValidationError as error:
            reason = error.errors(include_url=False)[0]["msg"].removeprefix("Value error, ")
            raise StudyRefusedError(f"this is no study: {reason}") from error

    def _key_of(self, owner: DraftOwner, enrolled: EnrolledKeys) -> str:
        # What counts in a curated study is the key that the owner has at its curator, of which the tester
        # knows nothing: a pinned one goes before the tester's.
        if self.curator is not None and owner.key is not None:
            return owner.key
        return _key(owner.name, owner.key, enrolled.owners, "owner")

    def _curator(self, enrolled: EnrolledKeys) -> Party | None:
        if self.curator is None:
            if self.curator_key is not None:
                raise InputError("the draft has a curator_key and no curator: name the curator")
            return None
        key = _key(self.curator, self.curator_key, enrolled.curators, "curator")
        return Party(name=self.curator, key=key)


_ENCODERS: TypeAdapter[tuple[Encoder, ...]] = TypeAdapter(tuple[Encoder, ...])


def _with_outputs(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a draft's fields with a column for each output of its encoders that has none."""
    if not fields.get("encoders"):
        return fields
    try:
        encoders = _ENCODERS.validate_json(json.dumps(fields["encoders"], default=str))
        columns = list(fields.get("columns") or ())
        named = {column.get("name") for column in columns}
    except (ValidationError, TypeError, AttributeError):
        return fields  # what is wrong is told with the rest
    made = [column for encoder in encoders for column in encoder.columns() if column.name not in named]
    return {**fields, "columns": [*columns, *(column.model_dump(exclude_none=True) for column in made)]}


def draft_of(study: Study) -> StudyDraft:
    """Return the draft of a study that somebody wrote already: to be planned, or to be asked again."""
    owners = tuple(DraftOwner(**dict(owner)) for owner in study.owners)
    named = {name: value for name, value in dict(study).items() if name in StudyDraft.model_fields}
    curator = study.curator
    return StudyDraft(
        **named
        | {
            "columns": study.domain.columns,
            "owners": owners,
            "curator": None if curator is None else curator.name,
            "curator_key": None if curator is None else curator.key,
            "epsilon": study.budget.epsilon,
            "delta": study.budget.delta,
            "open_for_hours": min(max((study.deadline - study.created_at) / 3600, 1e-3), HOURS_MAX),
        }
    )


def prepare(study: Study) -> PreparedStudy:
    """Check a study, write it in its canonical bytes and work out its cost, without sending anything.

    Raises:
        StudyRefusedError: the procedure does not take the study as written.
    """
    try:
        return prepared(study)
    except StudyError as error:
        raise StudyRefusedError(str(error)) from error


def _key(name: str, pinned: str | None, enrolled: Mapping[str, str], role: str) -> str:
    key = enrolled.get(name)
    if key is None:
        near = nearest(name, list(enrolled))
        raise InputError(
            f"no {role} named {name} is enrolled at the tester: see `tacit party list`"
            + ("; in a curated study give the owner's key in the draft" if role == "owner" else "")
            + (f"; did you mean {near}?" if near else "")
        )
    if pinned is not None and pinned != key:
        raise InputError(f"the tester gives another key for {name} than the draft: ask that {role}")
    return key


SCHEMA_LINE = (
    "#:schema study.schema.json\n# tacit study schema > study.schema.json lets editors check this file.\n\n"
)
"""First lines of a saved draft."""


def draft_text(draft: StudyDraft) -> str:
    """Write a draft as TOML, without what it does not say."""
    fields = draft.model_dump(mode="json", exclude_none=True, exclude_defaults=False)
    return SCHEMA_LINE + toml_text({name: value for name, value in fields.items() if value not in ({}, [])})


def save_draft(draft: StudyDraft, file: Path) -> None:
    """Write a draft to a new file.

    Raises:
        InputError: the file exists already, or cannot be written.
    """
    try:
        with file.open("x", encoding="utf-8") as opened:
            opened.write(draft_text(draft))
    except FileExistsError as error:
        raise InputError(f"{file} exists already: name another file") from error
    except OSError as error:
        raise InputError(f"cannot write {file}: {error.strerror}") from error


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
    "Encoder": (
        "How numeric columns are made of others of the same row, by public rules.",
        {
            "inputs": "The columns of the data set that are read: vectors, images by their paths, or texts.",
            "model": "A public ONNX model; by default the one input, a vector, is taken as it is.",
            "projection": "A public matrix that the vector is multiplied by; by default none.",
            "outputs": "Names of the numeric columns that come of it, in order.",
        },
    ),
    "VectorColumn": (
        "A column of vectors.",
        {
            "kind": "Lists of numbers, with a public norm.",
            "name": _NAME,
            "length": "How many numbers each holds.",
            "norm": "The largest Euclidean norm that can be, from public knowledge; others are scaled down.",
        },
    ),
    "ImageColumn": (
        "A column of paths to images, and how a model is given them.",
        {
            "kind": "Paths below the owner's folder of images.",
            "name": _NAME,
            "width": "To how many pixels it is resized.",
            "height": "To how many pixels it is resized.",
            "channels": "Which colours, in which order.",
            "layout": "Whether the model takes (channels, height, width) or (height, width, channels).",
            "mean": "Taken from each value of 0 to 1, one number or one for each channel.",
            "deviation": "What the rest is divided by, one number or one for each channel.",
        },
    ),
    "TextColumn": ("A column of texts.", {"kind": "Texts.", "name": _NAME}),
    "EncoderModel": (
        "A public ONNX model.",
        {
            "sha256": "SHA-256 of the file, by which owners' policies list it.",
            "licence": "Its licence, such as Apache-2.0.",
            "length": "How many numbers its first output holds.",
            "norm": "The norm that longer outputs are scaled down to.",
        },
    ),
    "Projection": (
        "A public matrix: drawn from a seed, or in a file.",
        {
            "seed": "32 hexadecimal digits, from which unit directions are drawn.",
            "sha256": "SHA-256 of a .npy file of the matrix, by which owners' policies list it.",
            "licence": "Its licence, where it is a file.",
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
    for column in ("NumericColumn", "CategoricalColumn", "VectorColumn", "ImageColumn", "TextColumn"):
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


def draft_from(
    file: Path | None,
    fields: Mapping[str, Any],
    columns: Sequence[str],
    owners: Sequence[str],
    parameters: Sequence[str],
    *,
    reuses: Sequence[str] = (),
    declared: Mapping[str, Column] | None = None,
) -> StudyDraft:
    """Build a draft from a file or from flags.

    Args:
        file: the draft in TOML, or None.
        fields: the draft's plain fields; those that are None are left out.
        columns: as :func:`parse_columns` reads them.
        owners: each as :func:`parse_owner` reads it.
        parameters: each as :func:`parse_parameter` reads it.
        reuses: ``owner=digest`` for each owner whose earlier release is read again.
        declared: what the owners publish, for columns that are given by their names alone.

    Raises:
        InputError: both or neither are given, or a flag cannot be read.
    """
    given = {name: value for name, value in fields.items() if value is not None}
    if file is not None:
        if given or columns or owners or parameters or reuses:
            raise InputError("give a TOML file or flags, not both")
        return StudyDraft.from_toml(file)
    if not columns or not owners:
        raise InputError("give a TOML file, or at least --title, --column, --owner, --epsilon and --delta")
    earlier = dict(parse_reuse(reuse) for reuse in reuses)
    named = [parse_owner(owner) for owner in owners]
    if unknown := sorted(set(earlier) - {owner["name"] for owner in named}):
        raise InputError(f"--reuse {unknown[0]}=...: name that owner with --owner too")
    return StudyDraft.from_dict(
        {
            **given,
            "columns": [
                column.model_dump(mode="json", exclude_none=True)
                for column in parse_columns(columns, declared).values()
            ],
            "owners": [
                owner | ({"reuses": earlier[owner["name"]]} if owner["name"] in earlier else {})
                for owner in named
            ],
            "parameters": dict(parse_parameter(parameter) for parameter in parameters),
        }
    )


def procedure_or_file(source: str | None) -> tuple[str | None, Path | None]:
    """Tell a procedure's name from the name of a TOML file: what `study create` is given first.

    A file that bears a procedure's name is written ``./screening``.

    Raises:
        InputError: it is neither; says what is like it.
    """
    from tacit_protocol.procedures.discovery import PROCEDURES  # noqa: PLC0415 (statistics load when needed)

    if source is None or source in PROCEDURES:
        return source, None
    if source.replace("-", "_").isidentifier() and not Path(source).exists():
        raise InputError(f"there is no procedure and no file {source}{choices_words(source, PROCEDURES)}")
    return None, Path(source)


def title_of(procedure: str) -> str:
    """Return the question that a procedure answers, for a study without a title."""
    from tacit_protocol.procedures.discovery import procedure_named  # noqa: PLC0415 (statistics load)

    return procedure_named(procedure).title


def is_name_alone(text: str) -> bool:
    """Say whether a column is given without bounds or levels."""
    return not {":", "="} & set(text)


def parse_columns(texts: Sequence[str], declared: Mapping[str, Column] | None = None) -> dict[str, Column]:
    """Read ``--column`` flags: each with its bounds or levels, or the name of a column that owners declare.

    Raises:
        InputError: one cannot be read, is not declared, or is given twice.
    """
    found: dict[str, Column] = {}
    for text in texts:
        column = _column(text, declared)
        if column.name in found:
            raise InputError(f"--column names {column.name} twice: name each column once")
        found[column.name] = column
    return found


def _column(text: str, declared: Mapping[str, Column] | None) -> Column:
    if declared is not None and is_name_alone(text):
        if text in declared:
            return declared[text]
        raise InputError(
            f"--column {text}: the study's owners publish no bounds or levels of it that they share: write "
            "name:lower:upper for numbers, or name=level,level for categories"
        )
    try:
        return parse_column(text)
    except ValueError as error:
        raise InputError(f"--column {text}: {error}") from None


def parse_owner(text: str) -> dict[str, Any]:
    """Read ``cleveland/patients``, optionally with the number of units expected, the owner's key and columns.

    All of it: ``cleveland/patients:303@KEY=age,sex``. Columns are those of an owner who does not hold all.
    """
    described, equals, columns = text.partition("=")
    place, at, key = described.partition("@")
    place, _, units = place.partition(":")
    name, slash, data_set = place.partition("/")
    try:
        count = read_whole(units) if units else None
    except ValueError as error:
        raise InputError(f"--owner {text}: units: {error}") from None
    if not slash or (at and not key) or (equals and not columns):
        raise InputError(
            f"--owner {text}: write owner/data-set, owner/data-set:units, either with @key, and "
            "=column,column where it does not hold all columns"
        )
    found: dict[str, Any] = {"name": name, "data_set": data_set}
    if columns:
        found["columns"] = columns.split(",")
    return found | ({} if count is None else {"units": count}) | ({"key": key} if key else {})


def parse_reuse(text: str) -> tuple[str, str]:
    """Read ``owner=digest``: whose release for which earlier study is read again."""
    name, equals, digest = text.partition("=")
    if not equals or not name or not digest:
        raise InputError(f"--reuse {text}: write owner=digest, the whole digest of the earlier study")
    return name, digest


def parse_parameter(text: str) -> tuple[str, Any]:
    """Read ``name=value``; the value is JSON, or text where it is not JSON."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise InputError(f"--parameter {text}: write name=value")
    try:
        return name, json.loads(value)
    except RecursionError:
        raise InputError(f"--parameter {name}: lists within lists without end; write its value") from None
    except ValueError:
        return name, value
