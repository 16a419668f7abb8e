"""New studies on the tester's pages: a form from a question in words to the bytes that its analyst signs.

The form is its own memory: every step carries what was said before, nothing of it is stored, and nobody is
asked anything. The tester makes the bytes and says in words what they ask. It has no analyst's key: the bytes
are signed in the analyst's browser or by `tacit study create`, and arrive as any other study does
(docs/decisions/0025-studies-are-signed-in-the-browser.md).
"""

import base64
import json
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

from fastapi import Depends, Query, Request
from pydantic import BaseModel, TypeAdapter, ValidationError
from sqlalchemy.engine import Connection, Engine
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from tacit_protocol.decimals import read_number, read_whole
from tacit_protocol.domain import CategoricalColumn, Column, bounds_words
from tacit_protocol.messages.catalogue import ANY, CatalogueMessage, PublishedDataSet, common_column
from tacit_protocol.messages.faults import faults_of, written
from tacit_protocol.messages.study import DATA_USES, RESPOND_AFTER_S, Digest, Party, Study
from tacit_protocol.preparation import PreparedStudy, prepared, stewards_words
from tacit_protocol.procedures.base import Procedure, RequiredParameter, StudyError
from tacit_protocol.procedures.discovery import PROCEDURES, answered_questions, proposed_question
from tacit_protocol.public_knowledge import known_of
from tacit_protocol.signing import STUDY_TYPE
from tacit_protocol.study_form import HOURS_MAX, DraftOwner, StudyForm, parse_bounds, parse_column
from tacit_services.shared.database import read_from
from tacit_services.shared.http_server import when_gone
from tacit_services.shared.pages.formatting import epsilon as epsilon_words
from tacit_services.shared.pages.formatting import label, short
from tacit_services.shared.pages.site import SignedIn, Site
from tacit_services.shared.problem_responses import RegisteredProblemError
from tacit_services.tester.parties import ROSTER, entries, entries_of
from tacit_services.tester.web.routes import Tester

PARTIES_MAX = 1000
"""Parties that are read for one page; whoever asks others writes a draft for the command."""

OWNERS_MAX, COLUMNS_MAX = 100, 200
"""Rows of the form: of owners with their data sets, and of columns."""

BLANK_OWNERS, BLANK_COLUMNS = 2, 3
"""Empty rows, to be written in."""

TEXT_LENGTH_MAX = 4000
"""Characters of one field; levels that are longer in one line stay as they are published."""

FIELD_LENGTH_MAX = 2**17
"""Characters of one field at all: a column of a thousand levels, as its owner publishes it."""

PURPOSE = {
    "purpose": "What the answer is for",
    "contact": "Who answers for the study",
    "approval_number": "An ethics or access committee's number for it",
    "data_use": "The kind of use",
}
"""Fields of a study that say what it is for; owners' policies may require them."""

PLAIN = {
    "title": "",
    "procedure": "",
    "curator": "",
    **dict.fromkeys(PURPOSE, ""),
    "epsilon": "",
    "delta": "",
    "level": "0.05",
    "open_for_hours": "168",
    "unit_column": "",
    "unit_rows": "",
    "alignment": "",
    "planned": "",
    "effect": "",
}
"""Fields that stand once, and what they say at first. ``planned`` holds the columns of a plan."""

OWNER_ROW = ("ask", "owner", "data_set", "units", "key")
COLUMN_ROW = ("use", "column", "bounds", "exact", "of")
"""Fields of a row, each with its number: ``exact`` is the column as it was published or asked before, ``of``
the owner that alone holds it."""

CHOSEN = "yes"
"""The value of a ticked box."""

Rows = list[dict[str, str]]

COLUMN: TypeAdapter[Column] = TypeAdapter(Column)


class FormError(ValueError):
    """What was written makes no study; ``faults`` says what to change, a sentence each."""

    def __init__(self, *faults: str) -> None:
        super().__init__(*faults)
        self.faults = faults


@dataclass(frozen=True)
class AvailableDataSets:
    """Who may be asked: keys of owners and curators by name, and what owners publish."""

    owners: Mapping[str, str]
    curators: Mapping[str, str]
    catalogue: Mapping[str, CatalogueMessage]

    @classmethod
    def at(cls, engine: Engine, rows: Rows | None = None) -> "AvailableDataSets":
        """Read it from the tester's database: of these rows' owners, or of as many as a form has rows for."""

        def read(connection: Connection) -> dict[str, dict[str, str]]:
            found: dict[str, dict[str, str]] = {"owner": {}, "curator": {}, "analyst": {}}
            for party in ROSTER.page(connection, None, PARTIES_MAX)["items"]:
                if party["revoked_at"] is None:
                    found[party["role"]][party["name"]] = party["key"]
            return found

        parties = read_from(engine, read)
        if rows is not None:
            published = list(entries_of(engine, {row["owner"] for row in rows}))
        else:
            published, after = [], None
            while sum(len(entry.data_sets) for entry in published) < OWNERS_MAX:
                shown, after = entries(engine, after)
                published += shown
                if after is None:
                    break
        catalogue = {entry.owner: entry for entry in published}
        return cls(parties["owner"], parties["curator"], catalogue)

    def data_set(self, row: Mapping[str, str]) -> PublishedDataSet | None:
        """Return what is published of the data set that a row names."""
        entry = self.catalogue.get(row["owner"])
        return None if entry is None else entry.data_set(row["data_set"])

    def of(self, rows: Rows) -> list[CatalogueMessage]:
        """Return what the rows' owners publish of their policies."""
        return [self.catalogue[row["owner"]] for row in rows if row["owner"] in self.catalogue]


def rows_of(fields: Mapping[str, str], parts: Sequence[str], most: int) -> Rows:
    """Return the rows of a form that say something, in their order."""
    rows = ({part: fields.get(f"{part}-{index}", "").strip() for part in parts} for index in range(most))
    return [row for row in rows if any(row.values())]


def asked_rows(fields: Mapping[str, str]) -> Rows:
    """Return the rows of the owners that are ticked."""
    return [row for row in rows_of(fields, OWNER_ROW, OWNERS_MAX) if row["ask"]]


def as_fields(rows: Rows) -> dict[str, str]:
    """Write rows as fields of a form, numbered anew."""
    return {f"{part}-{index}": text for index, row in enumerate(rows) for part, text in row.items()}


def allowed_fields() -> tuple[str, ...]:
    """Return every field that the form may have."""
    parameters = {name for procedure in PROCEDURES.values() for name in procedure.Parameters.model_fields}
    rows = ((OWNER_ROW, OWNERS_MAX), (COLUMN_ROW, COLUMNS_MAX))
    numbered = (f"{part}-{index}" for parts, most in rows for part in parts for index in range(most))
    return ("step", *PLAIN, *numbered, *sorted(f"parameter-{name}" for name in parameters))


def procedure_of(fields: Mapping[str, str]) -> Procedure:
    """Return the procedure that was chosen, or the one that the question's words point to.

    Raises:
        FormError: none was chosen, and the words point to none.
    """
    if fields["procedure"] in PROCEDURES:
        return PROCEDURES[fields["procedure"]]
    proposed = proposed_question(fields["title"])
    if proposed is None:
        raise FormError("your words do not say what kind of question it is: choose one below")
    return proposed.by("curator" if fields["curator"] else "agents")


def choices() -> list[tuple[str, str]]:
    """Return every procedure's name with its question, those that answer a question in plain words first."""
    asked = [
        (name, f"{one.question.words} ({name})")
        for one in answered_questions()
        for name in dict.fromkeys((one.agents, one.curator))
        if name
    ]
    known = dict(asked)
    return [*known.items(), *((n, f"{p.title} ({n})") for n, p in PROCEDURES.items() if n not in known)]


def is_apart(procedure: Procedure) -> bool:
    """Whether each owner holds columns of its own."""
    return procedure.question is not None and procedure.question.apart


# The rows that are offered.


def owner_rows(fields: Mapping[str, str], offered: AvailableDataSets) -> Rows:
    """Return the rows of owners and data sets: those published, those written before, and empty ones."""
    before = rows_of(fields, OWNER_ROW, OWNERS_MAX)
    rows: Rows = []
    for name in offered.owners:
        entry = offered.catalogue.get(name)
        for published in entry.data_sets if entry is not None else ():
            units = "" if published.units is None else str(published.units)
            rows.append(_owner_row(name, published.name, units))
        if entry is None:
            rows.append(_owner_row(name, "", ""))
    for row in before:
        same = (
            one for one in rows if one["owner"] == row["owner"] and one["data_set"] in ("", row["data_set"])
        )
        if (known := next(same, None)) is not None:
            known |= {part: text for part, text in row.items() if text or part == "ask"}
        else:
            rows.append(row)
    if offered.curators:
        rows += [_owner_row("", "", "") for _ in range(BLANK_OWNERS)]
    return rows[:OWNERS_MAX]


def _owner_row(owner: str, data_set: str, units: str) -> dict[str, str]:
    return {"ask": "", "owner": owner, "data_set": data_set, "units": units, "key": ""}


@dataclass(frozen=True)
class ColumnGroup:
    """Rows of columns: of one owner, or, where it is "", of all; ``words`` says of each who publishes it."""

    owner: str
    rows: list[dict[str, Any]]


def column_groups(
    fields: Mapping[str, str], procedure: Procedure, offered: AvailableDataSets
) -> list[ColumnGroup]:
    """Return the columns that may be chosen: those published, those written before, and empty rows."""
    asked = asked_rows(fields)
    before = rows_of(fields, COLUMN_ROW, COLUMNS_MAX)
    groups = [(row["owner"], [row]) for row in asked] if is_apart(procedure) else [("", asked)]
    planned = [] if before else _planned(fields["planned"])
    taken: set[str] = set()
    found, number = [], 0
    offers = [_offered_columns(owner, of, offered, procedure, planned) for owner, of in groups]
    known = [row["column"] for rows in offers for row in rows]
    for (owner, _), offer in zip(groups, offers, strict=True):
        # Which of several owners holds a column of the study is the analyst's to say.
        rows: list[dict[str, Any]] = [
            row if known.count(row["column"]) == 1 else row | {"use": ""} for row in offer
        ]
        if before:
            rows = _as_written(owner, [row | {"use": ""} for row in rows], before, taken)
        taken |= {row["column"] for row in rows if row["use"]} if is_apart(procedure) else set()
        rows += [_column_row("", "", "", owner) | {"words": ""} for _ in range(BLANK_COLUMNS)]
        rows = rows[: max(0, COLUMNS_MAX - number)]
        found.append(ColumnGroup(owner, [row | {"number": number + at} for at, row in enumerate(rows)]))
        number += len(rows)
    return found


def _as_written(
    owner: str, rows: list[dict[str, Any]], before: Rows, taken: set[str]
) -> list[dict[str, Any]]:
    """Return an owner's rows as they were ticked and written before; ``taken`` are other owners' columns."""
    names = {row["column"]: row for row in rows}
    for row in before:
        if row["of"] not in ("", owner) or row["column"] in taken or not row["column"]:
            continue
        if (known := names.get(row["column"])) is not None:
            known |= {"use": row["use"], "bounds": row["bounds"]}
        elif row["of"] == owner:
            rows.append(row | {"words": ""})
    return rows


def _column_row(column: str, bounds: str, exact: str, owner: str) -> dict[str, str]:
    return {"use": "", "column": column, "bounds": bounds, "exact": exact, "of": owner}


def _offered_columns(
    owner: str, asked: Rows, offered: AvailableDataSets, procedure: Procedure, planned: Sequence[Column]
) -> Rows:
    """Return rows of what the asked owners publish; what all of them hold is ticked, or what was planned.

    What no owner declares is left blank: a name does not tell how its values are coded.
    """
    published = [(row["owner"], found) for row in asked if (found := offered.data_set(row)) is not None]
    held: dict[str, dict[str, Column | None]] = {}
    for holder, data_set in published:
        for column in data_set.columns:
            held.setdefault(column.name, {})[holder] = column
        for name in data_set.other_columns:
            if name != ANY:
                held.setdefault(name, {})[holder] = None
    of_categories = procedure.question is not None and procedure.question.categories
    of_plan = {column.name: column for column in planned}
    rows: Rows = []
    for name, holders in held.items():
        declared = [column for column in holders.values() if column is not None]
        common, known = common_column(declared), known_of(name)
        if declared and common is None:
            continue
        proposed = common or of_plan.get(name)
        bounds, exact = "" if proposed is None else _short_bounds(proposed), ""
        if common is not None:
            exact = common.model_dump_json()
        by_all = len(holders) == len(published)
        suits = isinstance(proposed, CategoricalColumn) or not of_categories
        ticked = name in of_plan if planned else by_all and suits and proposed is not None
        words = [] if by_all else [f"published by {', '.join(sorted(holders))} alone"]
        if common is None:
            words.append("bounds of your own" + ("" if known is None else f"; commonly {known.quantity}"))
        row = _column_row(name, bounds, exact, owner)
        rows.append(row | {"use": CHOSEN if ticked else "", "words": "; ".join(words)})
    unpublished = (column for name, column in of_plan.items() if name not in held)
    return rows + [
        _column_row(column.name, _short_bounds(column), "", owner) | {"use": CHOSEN, "words": "planned"}
        for column in unpublished
    ]


def _short_bounds(column: Column) -> str:
    words = bounds_words(column)
    return words if len(words) <= TEXT_LENGTH_MAX else ""


def _planned(text: str) -> list[Column]:
    """Read the columns of a plan, a line each: ``age:0:120``, ``sex=F,M``."""
    found = []
    for line in text.splitlines():
        try:
            found.append(parse_column(line.strip()))
        except ValueError:
            continue  # the plan said already what is wrong with it
    return found


# What is proposed where nothing was said.


def proposals(fields: Mapping[str, str], procedure: Procedure, offered: AvailableDataSets) -> dict[str, str]:
    """Return the fields with a budget, a privacy unit and a choice of rows where they say nothing."""
    asked = asked_rows(fields)
    question, caps = procedure.question, [e.per_study_max for e in offered.of(asked) if e.per_study_max]
    pure = question is not None and question.pure
    micro = min([10**6, *(cap.epsilon_micro for cap in caps)])
    pico = 0 if pure else min([10**7, *(cap.delta_pico for cap in caps)])
    units = {data_set.unit_column for row in asked if (data_set := offered.data_set(row)) is not None}
    proposed = {
        "epsilon": epsilon_words(micro),
        "delta": f"{pico / 1e12:g}",
        "unit_column": next(iter(units)) or "" if len(units) == 1 else "",
        "unit_rows": "one" if question is not None and question.relates else "average",
    }
    return dict(fields) | {name: text for name, text in proposed.items() if not fields[name]}


def parameter_inputs(
    fields: Mapping[str, str], procedure: Procedure, needed: Sequence[RequiredParameter]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return what asks for a procedure's parameters: those that a study cannot do without, and the others."""
    questions = {one.name: one for one in needed}
    schema = procedure.Parameters.model_json_schema().get("properties", {})
    first, more = list[dict[str, Any]](), list[dict[str, Any]]()
    for name, described in schema.items():
        question = questions.get(name)
        kinds = _kinds(described)
        options = next((kind["enum"] for kind in kinds if "enum" in kind), None)
        if any(kind.get("type") == "boolean" for kind in kinds):
            options = ["true", "false"]
        default, required = described.get("default"), procedure.Parameters.model_fields[name].is_required()
        hint = described.get("description", "")
        if default is not None and "default" not in hint:
            hint += f" By default {_text_of(default)}."
        said = fields.get(f"parameter-{name}", question.default if question is not None else "")
        shown = {
            "name": f"parameter-{name}",
            "label": question.question if question is not None else label(name).capitalize(),
            "hint": "" if question is not None else hint,
            "options": options,
            "value": said,
            "required": required,
        }
        (first if question is not None or required else more).append(shown)
    return first, more


def _kinds(described: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the schemas of which a value may be one, without null."""
    return [kind for kind in described.get("anyOf", [described]) if kind.get("type") != "null"]


def _text_of(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def parameters_of(
    fields: Mapping[str, str], procedure: Procedure, columns: Sequence[Column]
) -> dict[str, Any]:
    """Return the parameters that were written; raises FormError."""
    needed = {one.name: one for one in procedure.needs(columns)}
    schema = procedure.Parameters.model_json_schema().get("properties", {})
    found, faults = {}, []
    for name, described in schema.items():
        text = fields.get(f"parameter-{name}", "").strip()
        try:
            if text:
                found[name] = _read_parameter(text, _kinds(described), needed.get(name))
        except ValueError as error:
            faults.append(f"{label(name)}: {error}")
    if faults:
        raise FormError(*faults)
    try:
        procedure.Parameters.model_validate_json(json.dumps(found))
    except ValidationError as error:
        raise FormError(*_words(procedure.Parameters, error)) from None
    return found


def _read_parameter(text: str, kinds: Sequence[Mapping[str, Any]], needed: RequiredParameter | None) -> Any:
    """Read one parameter as its type says: text as it is, lists with commas too, all else as JSON."""
    types = {kind.get("type") for kind in kinds}
    if needed is not None and not text.startswith(("[", "{")):
        return needed.read(text)
    if types == {"string"}:
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        if "array" in types and text[0] not in "[{":
            return [_number_or_text(part.strip()) for part in text.split(",") if part.strip()]
        if "string" in types:
            return text
    raise ValueError('write a number, a list with commas, or JSON such as {"age": [40, 65]}')


def _number_or_text(text: str) -> Any:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return found if isinstance(found, int | float) and not isinstance(found, bool) else text


def _words(model: type[BaseModel], error: ValidationError) -> list[str]:
    faults = faults_of(model, error)
    return [f"{label(written(one.place))}: {one.words}" if one.place else one.words for one in faults]


# From what was written to a study.


def study_of(
    fields: Mapping[str, str], offered: AvailableDataSets, tester: Party, analyst: Party, now: int
) -> Study:
    """Return the study that a form says, with the enrolled parties' keys, its times and a fresh seed.

    Raises:
        FormError: it says none.
    """
    procedure = procedure_of(fields)
    asked = asked_rows(fields)
    columns, by_owner, faults = _columns(fields, procedure)
    curator = fields["curator"] or None
    if curator is not None and curator not in offered.curators:
        faults.append(f"no curator named {curator} is enrolled here")
    owners, more = _owners(asked, offered, by_owner, procedure, curated=curator is not None)
    faults += more
    numbers = {}
    for name, most in (("epsilon", 1e6), ("delta", 1.0), ("level", 0.5), ("open_for_hours", HOURS_MAX)):
        try:
            numbers[name] = _number(fields[name], most)
        except ValueError as error:
            faults.append(f"{label(name)}: {error}")
    try:
        parameters = parameters_of(fields, procedure, columns)
    except FormError as error:
        faults += error.faults
    if not asked:
        faults.append("choose whose data is asked")
    if not columns:
        faults.append("choose a column, with its public bounds or levels")
    if faults:
        raise FormError(*faults)
    unit_column = fields["unit_column"].strip() or None
    sooner = [entry.respond_after_s_min for entry in offered.of(asked)]
    stated = {
        "title": fields["title"].strip(),
        **{name: fields[name].strip() or None for name in PURPOSE},
        "procedure": procedure.name,
        "parameters": parameters,
        "columns": tuple(columns),
        "owners": tuple(owners),
        "curator": curator,
        "unit_column": unit_column,
        "unit_rows": "one" if unit_column is not None and fields["unit_rows"] == "one" else "average",
        "alignment": fields["alignment"].strip() or None,
        **numbers,
        "respond_after_s": max([RESPOND_AFTER_S, *sooner]),
    }
    try:
        form = StudyForm.model_validate(stated)
    except ValidationError as error:
        raise FormError(*_words(StudyForm, error)) from None
    keys = {owner.name: owner.key or offered.owners[owner.name] for owner in owners}
    holder = None if curator is None else Party(name=curator, key=offered.curators[curator])
    try:
        return form.study_between(keys, holder, tester, analyst, now=now, seed=secrets.token_hex(16))
    except ValidationError as error:
        raise FormError(*_words(Study, error)) from None
    except (ValueError, ArithmeticError) as error:
        raise FormError(f"epsilon and delta: {error}") from None


def _number(text: str, most: float) -> float:
    found = read_number(text)
    if not 0 <= found <= most:
        raise ValueError(f"write a number from 0 to {most:g}")
    return found


def _columns(
    fields: Mapping[str, str], procedure: Procedure
) -> tuple[list[Column], dict[str, list[str]], list[str]]:
    """Return the columns that were chosen, their names by owner, and what is wrong with others."""
    columns, by_owner, faults = list[Column](), dict[str, list[str]](), list[str]()
    for row in rows_of(fields, COLUMN_ROW, COLUMNS_MAX):
        if not row["use"] or not row["column"]:
            continue
        try:
            columns.append(_column(row))
            by_owner.setdefault(row["of"], []).append(row["column"])
        except ValueError as error:
            faults.append(f"column {row['column']}: {error}")
    names = [column.name for column in columns]
    for name in sorted({name for name in names if names.count(name) > 1}):
        hint = "each owner holds columns of its own" if is_apart(procedure) else "choose it once"
        faults.append(f"column {name} is chosen twice: {hint}")
    return columns, by_owner, faults


def _column(row: Mapping[str, str]) -> Column:
    """Return a row's column: as it was published, unless other bounds were written."""
    if row["exact"]:
        try:
            exact = COLUMN.validate_json(row["exact"])
        except ValidationError:
            raise ValueError("write its bounds, such as 0 to 120, or its levels, such as F, M") from None
        if exact.name == row["column"] and row["bounds"] in ("", bounds_words(exact)):
            return exact
    return parse_bounds(row["column"], row["bounds"])


def _owners(
    asked: Rows,
    offered: AvailableDataSets,
    by_owner: Mapping[str, list[str]],
    procedure: Procedure,
    *,
    curated: bool,
) -> tuple[list[DraftOwner], list[str]]:
    owners, faults = list[DraftOwner](), list[str]()
    for row in asked:
        name, units = row["owner"], row["units"]
        # What counts in a curated study is the key that the owner has at its curator.
        key = (row["key"] if curated else "") or None
        if key is None and name not in offered.owners:
            also = ": write the key that it has at the curator" if curated else ""
            faults.append(f"no owner named {name or '(no name)'} is enrolled here{also}")
            continue
        try:
            count = read_whole(units) if units else None
        except ValueError as error:
            faults.append(f"units of {name}: {error}, or nothing")
            continue
        apart, entry = is_apart(procedure), offered.catalogue.get(name)
        try:
            owner = DraftOwner(
                name=name,
                key=key,
                data_set=row["data_set"],
                units=count,
                columns=tuple(by_owner.get(name, ())) or None if apart else None,
                sealing=entry.sealing if apart and entry is not None else None,
            )
        except ValidationError as error:
            faults += [f"{name}: {words}" for words in _words(DraftOwner, error)]
            continue
        owners.append(owner)
    return owners, faults


def fields_of(study: Study) -> dict[str, str]:
    """Return the form that says what a study says: to be asked again, with what is to be changed."""
    owners = [
        _owner_row(owner.name, owner.data_set, "" if owner.units is None else str(owner.units))
        | {"ask": CHOSEN, "key": owner.key if study.curator is not None else ""}
        for owner in study.owners
    ]
    holders = {name: owner.name for owner in study.owners for name in owner.columns or ()}
    columns = [
        _column_row(c.name, _short_bounds(c), c.model_dump_json(), holders.get(c.name, "")) | {"use": CHOSEN}
        for c in study.domain.columns
    ]
    hours = (study.deadline - study.created_at) / 3600
    parameters = {
        f"parameter-{name}": _text_of(value) for name, value in study.parameters.items() if value is not None
    }
    return {
        **PLAIN,
        "title": study.title,
        "procedure": study.procedure,
        "curator": "" if study.curator is None else study.curator.name,
        **{name: getattr(study, name) or "" for name in PURPOSE},
        "epsilon": epsilon_words(study.budget.epsilon_micro),
        "delta": repr(study.budget.delta_pico / 1e12),
        "level": repr(study.level),
        "open_for_hours": f"{min(max(hours, 0.01), HOURS_MAX):g}",
        "unit_column": study.unit_column or "",
        "unit_rows": study.unit_rows,
        "alignment": study.alignment or "",
        **as_fields(owners[:OWNERS_MAX]),
        **as_fields(columns[:COLUMNS_MAX]),
        **parameters,
    }


def refusals(study: Study, offered: AvailableDataSets) -> list[str]:
    """Say for what the owners' policies, as they publish them, would refuse a study."""
    if study.curator is not None:
        return []
    known = ((offered.catalogue.get(owner.name), owner) for owner in study.owners)
    return [words for entry, owner in known if entry is not None for words in entry.refusals(study, owner)]


PLAN_FIELDS = {
    "procedure": "procedure",
    "columns": "planned",
    "epsilon": "epsilon",
    "delta": "delta",
    "alpha": "level",
    "effect": "effect",
}
"""Fields of a plan, and those of a new study that say the same."""


ROLE = "analyst"

Plans = Callable[
    [str, Mapping[str, str], Callable[[Callable[[], None] | None], None]], Awaitable[dict[str, Any]]
]
"""Plans for a person what some fields say, as long as the browser waits; returns what a page shows of it:
``refused``, ``plan`` and ``chart``."""

PLANNING = "A plan of yours is still under way, or others' are. Press Estimate in a moment."


@dataclass(frozen=True)
class NewStudies:
    """The steps of the form, as pages of a site."""

    site: Site
    tester: Tester
    plans: Plans

    def question(
        self, request: Request, reader: SignedIn, fields: Mapping[str, str], faults: Sequence[str] = ()
    ) -> Response:
        """Ask for the question and for whose data it is asked of."""
        offered = AvailableDataSets.at(self.tester.engine)
        rows = enumerate(owner_rows(fields, offered))
        shown = {"title", "procedure", "curator", *OWNER_ROW}
        return self.site.page(
            request,
            "new_study.html",
            reader,
            step="question",
            may_ask=reader.who == ROLE,
            fields=fields,
            faults=faults,
            choices=choices(),
            curators=sorted(offered.curators),
            owners=[row | {"number": at, "published": offered.data_set(row)} for at, row in rows],
            carried={n: text for n, text in fields.items() if n.partition("-")[0] not in shown},
        )

    def columns(
        self,
        request: Request,
        reader: SignedIn,
        fields: Mapping[str, str],
        *,
        faults: Sequence[str] = (),
        again: str | None = None,
    ) -> Response:
        """Ask for columns, the procedure's parameters, the budget and the purpose; each with a proposal.

        ``again`` is the digest of the earlier study that is asked again. Where it is not known what kind of
        question it is, that is asked for first.
        """
        try:
            procedure_of(fields)
        except FormError as error:
            response = self.question(request, reader, fields, [*faults, *error.faults])
            response.status_code = 422
            return response
        asked, procedure = asked_rows(fields), procedure_of(fields)
        offered = AvailableDataSets.at(self.tester.engine, asked)
        fields = proposals(fields, procedure, offered)
        groups = column_groups(fields, procedure, offered)
        ticked = [row for group in groups for row in group.rows if row["use"]]
        first, more = parameter_inputs(fields, procedure, procedure.needs(_readable(ticked)))
        published = offered.of(asked)
        return self.site.page(
            request,
            "new_study.html",
            reader,
            step="columns",
            may_ask=reader.who == ROLE,
            again=again,
            fields=fields | {"procedure": procedure.name},
            faults=faults,
            procedure=procedure,
            choices=choices(),
            owners=[row | {"number": at} for at, row in enumerate(asked)],
            groups=groups,
            first=first,
            more=more,
            purpose=PURPOSE,
            required={name: [e.owner for e in published if name in e.required_fields] for name in PURPOSE},
            data_uses=DATA_USES,
            published=[entry.model_dump(mode="json") for entry in published],
            apart=is_apart(procedure),
            carried={name: fields[name] for name in ("curator", "planned", "effect")},
        )

    async def review(self, request: Request, reader: SignedIn, fields: Mapping[str, str]) -> Response:
        """Show what a study would ask and cost, and its bytes; raises as :meth:`_prepared` does."""
        found, words, refused = await self._prepared(request, reader, fields)
        readers: dict[str, list[str]] = {}
        for name, text in words.items():
            readers.setdefault(text, []).append(name)
        return self.site.page(
            request,
            "review.html",
            reader,
            found=found,
            stated_purpose=found.study.stated_purpose,
            readers=readers,
            refusals=refused,
            payload=base64.b64encode(found.payload).decode("ascii"),
            payload_type=STUDY_TYPE,
            audience=self.tester.audience,
            file_name=f"study-{short(found.digest)}.json",
            carried={name: text for name, text in fields.items() if text and name != "effect"},
            effect=fields["effect"],
        )

    async def plan(self, request: Request, reader: SignedIn, fields: Mapping[str, str]) -> Response:
        """Show what a study would find; raises as :meth:`_prepared` does."""
        found, _, _ = await self._prepared(request, reader, fields)
        asked = {"study": found.payload.decode(), "effect": fields["effect"].strip()}
        try:
            shown = await self.plans(reader.session.key, asked, partial(when_gone, request.scope))
        except RegisteredProblemError:  # a script would show nothing of an answer that is an error
            shown = {"refused": PLANNING, "plan": None, "chart": None}
        return self.site.page(request, "study_plan.html", reader, **shown)

    async def _prepared(
        self, request: Request, reader: SignedIn, fields: Mapping[str, str]
    ) -> tuple[PreparedStudy, dict[str, str], list[str]]:
        """Return a study's bytes and cost, what stewards will read, and what policies would refuse it for.

        Raises:
            FormError: the form says no study, or the procedure does not take it.
            ProblemError: ``forbidden``: only an analyst asks; and those of :meth:`Checks.run`.
        """
        if reader.who != ROLE:
            raise RegisteredProblemError(
                "forbidden", detail="only a party that is enrolled as an analyst asks"
            )
        tester, key = self.tester, reader.session.key

        def prepare() -> tuple[PreparedStudy, dict[str, str], list[str]]:
            member = read_from(tester.engine, ROSTER.require_member, key)
            offered = AvailableDataSets.at(tester.engine, asked_rows(fields))
            own = Party(name=tester.identity.name, key=tester.identity.key)
            study = study_of(fields, offered, own, Party(name=member.name, key=key), tester.now())
            try:
                found = prepared(study)
                return found, stewards_words(found), refusals(found.study, offered)
            except StudyError as error:
                raise FormError(str(error)) from None

        size_bytes = sum(map(len, fields.values()))
        return await tester.checks.run(key, size_bytes, prepare, partial(when_gone, request.scope))


def add_new_studies(site: Site, tester: Tester, plans: Plans) -> None:
    """Add the pages to a site."""
    Reader = Annotated[SignedIn, Depends(site.signed_in)]
    steps, allowed = NewStudies(site, tester, plans), allowed_fields()

    @site.router.get("/key")
    def show_key(request: Request) -> Response:
        return site.page(request, "key.html", None, audience=tester.audience)

    @site.router.get("/new")
    def begin(
        request: Request, reader: Reader, source: Annotated[Digest | None, Query(alias="from")] = None
    ) -> Response:
        earlier = None if source is None else tester.studies.parsed(source)
        if earlier is not None and not earlier.encoders:  # of which the form knows nothing
            return steps.columns(request, reader, fields_of(earlier), again=source)
        said = request.query_params
        fields = PLAIN | {there: said[here] for here, there in PLAN_FIELDS.items() if here in said}
        _require_short(fields)
        return steps.question(request, reader, fields)

    @site.router.post("/new")
    async def go_on(
        request: Request, sent: Annotated[Mapping[str, str], Depends(site.form(*allowed))], reader: Reader
    ) -> Response:
        fields = PLAIN | dict(sent)
        step = fields.pop("step", "question")
        _require_short(fields)
        try:
            if step == "review":
                return await steps.review(request, reader, fields)
            if step == "plan":
                return await steps.plan(request, reader, fields)
            if step == "columns":
                _require_asked(fields)
                return await run_in_threadpool(steps.columns, request, reader, fields)
        except FormError as error:
            page = steps.question if step == "columns" else steps.columns
            response = await run_in_threadpool(page, request, reader, fields, faults=error.faults)
            response.status_code = 422
            return response
        return await run_in_threadpool(steps.question, request, reader, fields)


def _require_short(fields: Mapping[str, str]) -> None:
    """Raise ``malformed-message`` for a field that no page would send."""
    if max(map(len, fields.values())) > FIELD_LENGTH_MAX:
        raise RegisteredProblemError(
            "malformed-message", detail=f"a field has {FIELD_LENGTH_MAX} characters at most"
        )


def _require_asked(fields: Mapping[str, str]) -> None:
    """Raise FormError where nobody is asked, or nothing."""
    faults = []
    if not fields["title"].strip():
        faults.append("write what you want to know")
    if not asked_rows(fields):
        faults.append("choose whose data is asked")
    if faults:
        raise FormError(*faults)


def _readable(rows: Sequence[Mapping[str, str]]) -> list[Column]:
    found = []
    for row in rows:
        try:
            found.append(_column(row))
        except ValueError:
            continue  # it is said when the form is read
    return found
