"""Discovery of procedures and of the questions they answer: built-in ones, and those of other distributions.

A procedure is a class with a ``name`` that derives from :class:`~tacit_protocol.procedures.base.Procedure`;
its module is imported when it is first asked for. Another distribution names its own as entry points of the
group :data:`GROUP`; its code runs with all rights of the process that it is installed for
(docs/how-to/add-a-procedure.md). One that cannot be loaded, or takes the name of another, is left out, and
``PROCEDURES.left_out`` says why: it keeps no service from starting.
"""

import re
from collections.abc import Container, Iterable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Self

from tacit_protocol.messages.study import Study
from tacit_protocol.procedures.base import Holder, Procedure, QuestionTemplate, StudyError

GROUP = "tacit.procedures"
"""The group of entry points that distributions name their procedures in."""

NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")

BUILT_IN = (
    "aggregated_test:AggregatedTest",
    "association:Association",
    "curated_distance_correlation:CuratedDistanceCorrelation",
    "curated_two_sample:CuratedTwoSample",
    "distance_correlation:DistanceCorrelation",
    "embedding_release:EmbeddingRelease",
    "group_comparison:GroupComparison",
    "homogeneity:Homogeneity",
    "identity:IdentityTest",
    "independence_table:IndependenceTable",
    "joint_independence:JointIndependence",
    "kernel_two_sample:KernelTwoSample",
    "mutual_independence:MutualIndependence",
    "noisy_counts:NoisyCounts",
    "screening:Screening",
    "stratified_table:StratifiedTable",
    "survival:Survival",
)
"""``module:Class`` of every procedure of this distribution, in the order of names.

In this package a procedure's module has its name."""


class ProcedureRegistry(MutableMapping[str, Procedure]):
    """Procedures by name, built-in ones first, each loaded when it is first asked for.

    Other distributions' are loaded together: their names stand in their classes.
    """

    def __init__(self, built_in: Iterable[str]) -> None:
        self._held: dict[str, Procedure | str] = {place.partition(":")[0]: place for place in built_in}

    @cached_property
    def left_out(self) -> Mapping[str, str]:
        """Why entry points are left out, by distribution and entry."""
        found, left_out = discover(entry_points(group=GROUP), frozenset(self._held))
        for name, procedure in found.items():
            self._held.setdefault(name, procedure)
        return left_out

    def _known(self) -> dict[str, Procedure | str]:
        """Return what is held, other distributions' among it."""
        _ = self.left_out
        return self._held

    def loaded(self) -> Self:
        """Load every procedure, and return this: a service runs the code that it was started with."""
        for name in self:
            _ = self[name]
        return self

    def __getitem__(self, name: str) -> Procedure:
        held = self._held[name] if name in self._held else self._known()[name]
        if isinstance(held, str):
            module, _, kind = held.partition(":")
            procedure: Procedure = getattr(import_module(f"{__package__}.{module}"), kind)()
            self._held[name] = held = procedure
        return held

    def __setitem__(self, name: str, procedure: Procedure) -> None:
        self._held[name] = procedure

    def __delitem__(self, name: str) -> None:
        del self._held[name]

    def __contains__(self, name: object) -> bool:
        return name in self._held or name in self._known()

    def __iter__(self) -> Iterator[str]:
        return iter(tuple(self._known()))

    def __len__(self) -> int:
        return len(self._known())


def discover(
    points: Iterable[EntryPoint], known: Container[str]
) -> tuple[dict[str, Procedure], dict[str, str]]:
    """Return the procedures of entry points by name; and why others, by distribution, are left out.

    Args:
        points: the entry points; those whose distribution is not known are left out.
        known: the names that are taken.
    """
    found: dict[str, list[Procedure]] = {}
    left_out: dict[str, str] = {}
    for point in sorted(points, key=lambda point: (point.name, point.value)):
        where = f"{point.dist.name if point.dist else 'unknown'}: {point.name}"
        try:
            procedure = _loaded(point)
        except Exception as error:
            left_out[where] = f"{type(error).__name__}: {error}"[:200]
            continue
        if procedure.name in known:
            left_out[where] = f"there is a built-in procedure {procedure.name}"
        else:
            found.setdefault(procedure.name, []).append(procedure)
    for name, claims in found.items():
        if len(claims) > 1:
            sources = " and ".join(str(claim.origin) for claim in claims)
            left_out[f"{sources}: {name}"] = "several distributions bring a procedure of this name"
    return {name: claims[0] for name, claims in found.items() if len(claims) == 1}, left_out


def _loaded(point: EntryPoint) -> Procedure:
    """Return an entry point's procedure, with its origin; raises whatever its module raises, or TypeError."""
    loaded = point.load()
    if not isinstance(loaded, type) or Procedure not in loaded.__mro__:
        raise TypeError("the entry point is no class that derives from tacit_protocol's Procedure")
    if getattr(loaded, "plan", None) is Procedure.plan:
        raise TypeError("the procedure has no method plan, which says what a study's mechanism is")
    procedure: Procedure = loaded()
    if not isinstance(procedure.name, str) or NAME.fullmatch(procedure.name) is None:
        raise TypeError("the procedure's name is not made of small letters, digits and underscores")
    if point.dist is None:
        raise TypeError("the entry point belongs to no distribution")
    procedure.origin = f"{point.dist.name} {point.dist.version}"
    return procedure


PROCEDURES = ProcedureRegistry(BUILT_IN)


def method_of(study: Study) -> object:
    """Return the method that a study asks for: its parameter, or the default that its bytes leave out."""
    procedure = PROCEDURES.get(study.procedure)
    field = None if procedure is None else procedure.Parameters.model_fields.get("method")
    return study.parameters.get("method", None if field is None else field.default)


def procedure_named(name: str) -> Procedure:
    """Return the procedure of that name. Raises StudyError where there is no such procedure."""
    try:
        return PROCEDURES[name]
    except KeyError:
        raise StudyError("unknown procedure; known: " + ", ".join(sorted(PROCEDURES))) from None


@dataclass(frozen=True)
class AnsweredQuestion:
    """A question, and the names of what answers it.

    Attributes:
        question: the question.
        agents: what answers it where every owner has an agent; "" where nothing does.
        curator: what answers it where a curator holds the data; "" where nothing does.
    """

    question: QuestionTemplate
    agents: str
    curator: str

    def by(self, holder: Holder) -> Procedure:
        """Return what answers it there, or else what answers it at all."""
        here, there = (self.agents, self.curator) if holder == "agents" else (self.curator, self.agents)
        return PROCEDURES[here or there]


def answered_questions() -> list[AnsweredQuestion]:
    """Return every question that a procedure answers, the special ones first."""
    found: dict[QuestionTemplate, dict[Holder, str]] = {}
    for name, procedure in PROCEDURES.items():
        if procedure.question is not None:
            found.setdefault(procedure.question, {}).update(dict.fromkeys(procedure.held_by, name))
    return [
        AnsweredQuestion(question, by.get("agents", ""), by.get("curator", ""))
        for question, by in sorted(found.items(), key=lambda item: item[0].rank)
    ]


def proposed_question(words: str) -> AnsweredQuestion | None:
    """Return the question that somebody's words point to; None where they point nowhere."""
    signs = ((one, one.question.signs) for one in answered_questions())
    return next((one for one, sign in signs if sign and re.search(sign, words.lower())), None)
