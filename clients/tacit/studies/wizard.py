"""A draft by asking: every default is explained, and what cannot be read is asked again."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict, TypeAdapter

from tacit.errors import InputError, TacitError
from tacit.studies.draft import StudyDraft
from tacit_protocol.decimals import read_number, read_whole
from tacit_protocol.domain import Column, NumericColumn, bounds_words
from tacit_protocol.messages.catalogue import common_columns
from tacit_protocol.messages.study import UNITS_MAX, Study
from tacit_protocol.procedures.base import Procedure, QuestionTemplate
from tacit_protocol.procedures.discovery import AnsweredQuestion, answered_questions, proposed_question
from tacit_protocol.public_knowledge import known_of
from tacit_protocol.study_form import DraftOwner, parse_bounds

if TYPE_CHECKING:
    from tacit.client.tester import Client


STUDIES_READ_MAX = 10
"""How many earlier studies are read: the newest say what is known."""


@dataclass
class KnownDataSet:
    """What earlier studies said of one data set: all of it is public."""

    units: int | None = None
    unit_column: str | None = None
    columns: dict[str, Column] = field(default_factory=dict)


@dataclass(frozen=True)
class PublishedDataSets:
    """Who is enrolled at a tester, and their data sets by owner and name."""

    owners: tuple[str, ...]
    curators: tuple[str, ...] = ()
    data_sets: Mapping[str, Mapping[str, KnownDataSet]] = field(default_factory=dict)

    def of(self, owner: str, data_set: str) -> KnownDataSet:
        """Return what is known of a data set; of an unknown one nothing is."""
        return self.data_sets.get(owner, {}).get(data_set) or KnownDataSet()


def known_at(client: "Client") -> PublishedDataSets:
    """Ask the tester for its parties, the newest studies, and what owners publish, which counts for more."""
    parties = client.parties()
    found: dict[str, dict[str, KnownDataSet]] = {}
    for summary in sorted(client.studies(), key=lambda study: study.created_at)[-STUDIES_READ_MAX:]:
        try:
            learn(found, client.study_content(summary.digest))
        except TacitError:
            continue  # a study that cannot be read tells nothing
    for entry in client.catalogues():
        for published in entry.data_sets:
            data_set = found.setdefault(entry.owner, {}).setdefault(published.name, KnownDataSet())
            data_set.units = published.units or data_set.units
            data_set.unit_column = published.unit_column
            data_set.columns |= {column.name: column for column in published.columns}
    return PublishedDataSets(
        tuple(party.name for party in parties if party.role == "owner"),
        tuple(party.name for party in parties if party.role == "curator"),
        found,
    )


def learn(found: dict[str, dict[str, KnownDataSet]], study: Study) -> None:
    """Add what a study says of its owners' data sets; the newest comes last."""
    for owner in study.owners:
        data_set = found.setdefault(owner.name, {}).setdefault(owner.data_set, KnownDataSet())
        data_set.units = owner.units or data_set.units
        data_set.unit_column = study.unit_column
        for column in study.domain_of(owner).columns:
            data_set.columns[column.name] = column


OWNERS_MIN = {"one": 1, "two": 2, "one or more": 1, "two or more": 2, "three or more": 3}
OWNERS_MAX = {"one": 1, "two": 2}

Answer = TypeVar("Answer")


class Prompt(Protocol):
    """Interactive prompt of the wizard."""

    def say(self, *texts: str) -> None:
        """Say lines."""

    def ask(self, question: str, default: str | None = None) -> str:
        """Return the answer, or the default where it is empty."""


def draft_by_asking(talk: Prompt, known: PublishedDataSets) -> StudyDraft:
    """Ask for everything that a study is; nothing is sent.

    Raises:
        InputError: nobody is enrolled who could be asked, or the answers end.
    """
    if not known.owners and not known.curators:
        raise InputError("no owner is enrolled at the tester yet: see `tacit party list`")
    title = _until(
        talk,
        "What do you want to know? (one line)",
        _field(StudyDraft, "title", "the question, in at most 200 characters"),
    )
    answered = _question(talk, title, known)
    curator = _curator(talk, answered, known)
    procedure, kind = answered.by("curator" if curator else "agents"), answered.question
    owners = _owners(talk, kind, known, curator)
    columns = _columns(talk, kind, known, owners)
    fields: dict[str, Any] = {
        "title": title,
        "procedure": procedure.name,
        "parameters": _parameters(talk, procedure, columns),
        "columns": [column.model_dump(mode="json", exclude_none=True) for column in columns],
        "owners": owners,
        **({"curator": curator} if curator else {}),
        **_unit(talk, kind, known, owners),
        **_budget(talk, kind, procedure),
    }
    return StudyDraft.from_dict(fields)


def _until(talk: Prompt, question: str, read: Callable[[str], Answer], default: str | None = None) -> Answer:
    """Ask until the answer can be read; what is wrong is said."""
    while True:
        text = talk.ask(question, default)
        try:
            return read(text)
        except ValueError as error:  # an InputError, or what a procedure's own reader says
            talk.say(f"  {error}")


def _field(model: type[BaseModel], name: str, words: str) -> Callable[[str], Any]:
    """Return what reads a field as the draft's own model would; ``words`` says what to write."""
    adapter: TypeAdapter[Any] = TypeAdapter(
        model.model_fields[name].rebuild_annotation(), config=ConfigDict(allow_inf_nan=False)
    )

    def read(text: str) -> Any:
        try:
            if model.model_fields[name].annotation is float:
                read_number(text)
            return adapter.validate_strings(text)
        except ValueError:
            raise InputError(f"write {words}") from None

    return read


def _question(talk: Prompt, title: str, known: PublishedDataSets) -> AnsweredQuestion:
    """Propose what kind of question it is, where the words of the title say so."""
    asked = [one for one in answered_questions() if one.agents or known.curators]
    proposed = proposed_question(title)
    default = str(asked.index(proposed) + 1) if proposed in asked else None
    if default is None:
        talk.say("Your words do not say what kind of question it is.")
    talk.say("Which of these is it?")
    for number, one in enumerate(asked, start=1):
        talk.say(f"  {number:2}  {one.question.words}  ({one.by('agents').name})")
    return asked[_until(talk, "Number", _numbered(len(asked)), default)]


def _numbered(count: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if (found := read_whole(text)) not in range(1, count + 1):
            raise InputError(f"write a number from 1 to {count}")
        return found - 1

    return read


def _curator(talk: Prompt, answered: AnsweredQuestion, known: PublishedDataSets) -> str | None:
    """Ask who holds the data, where there is a choice."""
    if not answered.curator or not known.curators:
        return None
    if not answered.agents and len(known.curators) == 1:
        return known.curators[0]
    none = ["none"] if answered.agents else []
    talk.say(f"Curators that may hold the owners' data: {', '.join(known.curators)}.")

    def read(text: str) -> str | None:
        if text not in {*none, *known.curators}:
            raise InputError(f"write one of: {', '.join([*none, *known.curators])}")
        return None if text == "none" else text

    return _until(talk, "Which curator holds it?", read, "none" if none else known.curators[0])


def _owners(
    talk: Prompt, kind: QuestionTemplate, known: PublishedDataSets, curator: str | None
) -> list[dict[str, Any]]:
    """Ask for the owners, their data sets and numbers of units."""
    talk.say(f"Owners enrolled at the tester: {', '.join(known.owners) or 'none'}.")
    least, most = OWNERS_MIN[kind.owners], OWNERS_MAX.get(kind.owners)

    def read(text: str) -> list[str]:
        names = _list_of(text)
        if len(set(names)) != len(names):
            raise InputError("name every owner once")
        unknown = [name for name in names if name not in known.owners]
        if unknown and curator is None:
            raise InputError(
                f"no owner named {unknown[0]} is enrolled: write some of {', '.join(known.owners)}"
            )
        if len(names) < least or (most is not None and len(names) > most):
            raise InputError(f"this question is asked of {kind.owners} owner{'s' if least > 1 else ''}")
        return names

    offered = known.owners[: most or len(known.owners)] if len(known.owners) >= least else ()
    names = _until(talk, "Which owners are asked? (with commas)", read, ", ".join(offered))
    return [_owner(talk, known, name, curator) for name in names]


def _owner(talk: Prompt, known: PublishedDataSets, name: str, curator: str | None) -> dict[str, Any]:
    data_sets = list(known.data_sets.get(name, {}))
    if data_sets:
        talk.say(f"Earlier studies used of {name}: {', '.join(data_sets)}.")
    read = _field(
        DraftOwner, "data_set", "its name, such as patients: small letters, digits, '.', '_' and '-'"
    )
    data_set = _until(talk, f"Which data set of {name}?", read, data_sets[-1] if data_sets else None)
    units = known.of(name, data_set).units
    question = f"How many people (units) does {name} have, about? (publicly known; empty: unknown)"
    count = _until(talk, question, _units, None if units is None else str(units))
    owner: dict[str, Any] = {"name": name, "data_set": data_set}
    if count is not None:
        owner["units"] = count
    if curator is not None and name not in known.owners:
        owner["key"] = _until(
            talk, f"The key of {name} at {curator}", _field(DraftOwner, "key", "64 hexadecimal digits")
        )
    return owner


def _units(text: str) -> int | None:
    if not text:
        return None
    if (found := read_whole(text)) not in range(1, UNITS_MAX + 1):
        raise InputError("write a whole number, or nothing")
    return found


def _columns(
    talk: Prompt, kind: QuestionTemplate, known: PublishedDataSets, owners: list[dict[str, Any]]
) -> list[Column]:
    """Ask for columns with public bounds or levels; what owners publish and earlier studies propose them."""
    talk.say(
        "Columns have public bounds (age 0 to 120) or levels (F, M): what values can be, never what the data "
        "are. Looking at data for bounds leaks them.",
    )
    if not kind.apart:
        held = (known.of(owner["name"], owner["data_set"]).columns.values() for owner in owners)
        shared = common_columns(chain.from_iterable(held))
        return _some_columns(talk, "Which columns? (names, with commas)", shared, kind)
    columns: list[Column] = []
    for owner in owners:
        taken = {column.name for column in columns}
        described = known.of(owner["name"], owner["data_set"]).columns
        of_owner = {name: column for name, column in described.items() if name not in taken}
        found = _some_columns(
            talk, f"Which columns of {owner['name']}? (names, with commas)", of_owner, kind, taken
        )
        owner["columns"] = [column.name for column in found]
        columns += found
    return columns


def _some_columns(
    talk: Prompt,
    question: str,
    known: dict[str, Column],
    kind: QuestionTemplate,
    taken: Collection[str] = (),
) -> list[Column]:
    for column in known.values():
        talk.say(f"  {column.name}: {bounds_words(column)} (published, or in an earlier study)")

    def read(text: str) -> list[str]:
        names = _list_of(text)
        if not names or len(set(names)) != len(names):
            raise InputError("write the name of every column once, with commas between them")
        if twice := [name for name in names if name in taken]:
            raise InputError(f"{twice[0]} is another owner's: each holds columns of its own")
        return names

    names = _until(talk, question, read, ", ".join(known))
    return [_column(talk, name, known, kind) for name in names]


def _column(talk: Prompt, name: str, known: dict[str, Column], kind: QuestionTemplate) -> Column:
    common, proposed = known_of(name), known.get(name)
    if common is not None and name not in known:
        talk.say(f"  {name}: commonly {common.quantity}")
    form = "levels such as F, M" if kind.categories else "bounds such as 0:120, or levels such as F, M"

    def read(text: str) -> Column:
        column = parse_bounds(name, text)
        if kind.categories and isinstance(column, NumericColumn):
            raise InputError("this question is about categories: write levels, such as 0-39, 40-64, 65+")
        return column

    default = None if proposed is None else bounds_words(proposed, form="typed")
    return _until(talk, f"  {name}: {form}", read, default)


def _parameters(talk: Prompt, procedure: Procedure, columns: Sequence[Column]) -> dict[str, Any]:
    """Ask for what a procedure cannot do without."""
    return {
        needed.name: _until(talk, needed.question, needed.read, needed.default)
        for needed in procedure.needs(columns)
    }


def _unit(
    talk: Prompt, kind: QuestionTemplate, known: PublishedDataSets, owners: list[dict[str, Any]]
) -> dict[str, Any]:
    earlier = known.of(owners[0]["name"], owners[0]["data_set"]).unit_column
    question = "Column that says whose row it is, where people have several rows (empty: a row is a person)"
    if kind.apart:
        talk.say("All owners must hold the same people: `tacit data align` finds out, without the tester.")
        alignment = talk.ask("The digest that it printed (empty: the rows stand in the same order)")
        if alignment:
            column = _until(talk, "The id column", _field(StudyDraft, "unit_column", "its name"), earlier)
            return {"alignment": alignment, "unit_column": column} | _unit_rows(talk, kind)
        return {}
    column = talk.ask(question, earlier)
    return {"unit_column": column} | _unit_rows(talk, kind) if column else {}


def _unit_rows(talk: Prompt, kind: QuestionTemplate) -> dict[str, str]:
    """Ask which of several rows count; for dependence one, because averages depend through their numbers."""
    question = "Of several rows, does their average count, or one that is drawn by lot (average, one)"
    read = _field(StudyDraft, "unit_rows", "average or one")
    return {"unit_rows": _until(talk, question, read, "one" if kind.relates else "average")}


def _budget(talk: Prompt, kind: QuestionTemplate, procedure: Procedure) -> dict[str, Any]:
    """Ask for the budget, the level and the time, each with a default."""
    talk.say(
        "epsilon is what every owner spends of its privacy budget: 1 is usual, 0.1 is strict, 4 is much.",
        "delta is a small chance that the promise fails: at most one in ten times the number of people."
        + (" Counts need none." if kind.categories and kind.pure else ""),
    )
    asked = [
        ("epsilon", "epsilon", "a number above 0, such as 1", "1"),
        ("delta", "delta", "0, or a small number such as 1e-5", "0" if kind.pure else "1e-5"),
        ("level", "level", "a number between 0 and 0.5", "0.05"),
        ("open_for_hours", "Hours that owners may take to answer", "hours, at most 2160", "168"),
    ]
    if procedure.population is not None and procedure.population.measure == "error":
        asked = [question for question in asked if question[0] != "level"]
    else:
        talk.say(
            "level is how often the test may say yes where nothing is there: one time in twenty is usual."
        )
    return {
        name: _until(talk, question, _field(StudyDraft, name, words), default)
        for name, question, words, default in asked
    }


def _list_of(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]
