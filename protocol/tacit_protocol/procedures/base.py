"""What a procedure is: the only place where messages, privacy and statistics meet."""

import json
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Literal, Protocol, TypeVar

import numpy as np
from pydantic import BaseModel, ValidationError

from tacit_protocol.domain import Column, Table
from tacit_protocol.messages.encoding import digest, encode
from tacit_protocol.messages.study import Owner, Release, Study, numbers_max
from tacit_protocol.privacy.accounting import Family
from tacit_protocol.privacy.guarantee import COORDINATES_MAX, DELTA_UNITS, Budget, Guarantee
from tacit_protocol.privacy.noise import NoiseSource
from tacit_protocol.procedures.masking import Masking
from tacit_protocol.procedures.plan import (
    Fields,
    Panel,
    Plan,
    Progress,
    PublicRuleError,
    Releases,
    require_noise,
)
from tacit_protocol.procedures.populations import SimulationModel
from tacit_protocol.strict import HOPELESS, ReleaseError, StudyError
from tacit_protocol.verdicts.base import BaseVerdict
from tacit_protocol.verdicts.presentation import (
    Citation,
    Meaning,
    Null,
)

__all__ = [
    "HOPELESS",
    "Fields",
    "Plan",
    "Progress",
    "PublicRuleError",
    "ReleaseError",
    "Releases",
    "StudyError",
    "require_noise",
]
"""What this module has from others; the rest of its names are its own."""

NO_REUSE = "this procedure reads no release of an earlier study; leave reuses out"

NOT_CANONICAL = (
    "the study's bytes are not its canonical ones: every field and parameter spelled out, keys sorted, no "
    "spaces, numbers in their shortest form, the title in Unicode's form NFC; a client of this version "
    "writes them so"
)

OwnersAsked = Literal["one", "two", "one or more", "two or more", "three or more"]

Holder = Literal["agents", "curator"]
"""Who answers a study: an agent for every owner, or a curator who holds the data of all."""


@dataclass(frozen=True)
class QuestionTemplate:
    """A question as people put it, which one procedure answers, or one for agents and one for a curator.

    Attributes:
        words: the question.
        signs: a regular expression of words that such questions use, in small letters; "" where none is sure.
        owners: how many owners are asked.
        rank: questions of a lower rank are looked for first in somebody's words: the more special ones.
        apart: whether each owner holds columns of its own; of three or more, one column.
        outcome: whether the second of them holds one, the outcome, and the parameter ``outcome`` names it.
        categories: whether every column must be categorical.
        pure: whether no delta is proposed, because none is needed.
        relates: whether it asks if columns depend on each other, for which one row a unit is proposed.
    """

    words: str
    signs: str
    owners: OwnersAsked
    rank: int = 0
    apart: bool = False
    outcome: bool = False
    categories: bool = False
    pure: bool = False
    relates: bool = False


@dataclass(frozen=True)
class RequiredParameter:
    """A parameter that has no default, and how a person is asked for it.

    Attributes:
        name: the parameter.
        words: what it says, such as "which distribution is known".
        question: what is asked.
        read: reads an answer; raises ValueError, with words for the person, where it cannot be used.
        default: the answer that is proposed.
    """

    name: str
    words: str
    question: str
    read: Callable[[str], Any]
    default: str


class Procedure(Protocol):
    """A named method: what an owner computes, what it costs, what the tester computes, how it is told."""

    name: ClassVar[str]
    title: ClassVar[str]
    families: ClassVar[frozenset[Family]]
    """The kinds of mechanism events that a study of it may cost: which shares of an account it may need."""

    methods: ClassVar[Mapping[str, frozenset[Family]]] = {}
    """The same of each value of its parameter ``method``, where they differ: a policy may name a method."""
    divided_for: ClassVar[frozenset[Family] | None] = None
    """Those of them that accounts are divided for where an owner states no division: None, all. A procedure
    whose studies may ask for noise of another kind leaves it out here, so that nobody's share is halved."""

    Parameters: ClassVar[type[BaseModel]]
    Verdict: ClassVar[type[BaseVerdict]]
    RelayedVerdict: ClassVar[type[BaseVerdict] | None] = None
    """Of studies in which one owner's release goes to another, where it is another than ``Verdict``."""

    decides: ClassVar[bool] = False
    """Whether some of its releases are or hold a private decision; no other procedure's may."""

    origin: str | None = None
    """The distribution and version that it came from, ``sign-test 1.0.2``, set where it is discovered; None
    of a built-in one, whose version is that of the software which verdicts name."""

    released: ClassVar[str] = "the numbers that its procedure asks for"
    """What a sender computes and releases, in the words of a paper's methods."""

    cited: ClassVar[tuple[Citation, ...]] = ()
    """The works that its method comes from, whatever a study's parameters."""

    def plan(self, study: Study) -> Plan:
        """Return the plan of a study: the only place where a procedure asks which mechanism it is.

        Raises:
            StudyError: the study's parameters, domain or owners do not suit the procedure.
        """
        raise NotImplementedError

    # What a study's plan says, by its study.

    def check(self, study: Study) -> None:
        """Raise StudyError where the study's parameters, domain or owners do not suit the procedure."""
        planned(self, study)

    def cost(self, study: Study) -> Guarantee:
        """Return what one owner spends, from the study alone, before any data is touched."""
        return planned(self, study).guarantee

    def release_size(self, study: Study) -> int:
        """Return how many noisy numbers one sender sends; a decision counts as one."""
        return planned(self, study).release_size

    def warnings(self, study: Study, units: Mapping[str, int]) -> tuple[str, ...]:
        """Say, before anything is spent, what makes the test hopeless at these numbers of units."""
        return planned(self, study).warnings(units)

    def summarise(self, study: Study, table: Table) -> Any:
        """Compute exact numbers with their sensitivities. They never leave the owner."""
        return planned(self, study).summarise(table)

    def privatise(self, study: Study, summary: Any, noise: NoiseSource) -> Release:
        """Add noise to the summary as ``cost`` states."""
        return planned(self, study).privatise(summary, noise)

    def check_release(self, study: Study, release: Release) -> None:
        """Raise ReleaseError where the release has not the shape and the noise that the study fixes."""
        planned(self, study).check_release(release)

    def assemble(self, study: Study, releases: Releases, progress: Progress | None = None) -> BaseVerdict:
        """Compute the verdict from the releases by sender: post-processing alone, the same for everyone."""
        units = {name: release.units for name, release in releases.items()}
        return planned(self, study).conclude(releases, units, progress)

    def verdict_type(self, study: Study) -> type[BaseVerdict]:
        """Return the type of a study's verdict; raises StudyError where it cannot be run as written."""
        return planned(self, study).verdict_type or self.Verdict

    def describe_request(self, study: Study) -> tuple[str, ...]:
        """Say in lines what a study asks, where its columns and owners do not."""
        return planned(self, study).describe_request()

    def meaning(self, study: Study, verdict: Fields) -> Meaning:
        """Say what a verdict means, in sentences."""
        return planned(self, study).meaning(verdict)

    def what_is_released(self, study: Study) -> str:
        """Say what a study's sender computes and releases, in the words of a paper's methods."""
        return planned(self, study).released or self.released

    def works(self, study: Study) -> tuple[Citation, ...]:
        """Return the works that the study's method comes from."""
        cited = planned(self, study).cited
        return self.cited if cited is None else cited

    def null(self, study: Study, verdict: Fields, releases: Releases) -> Null | None:
        """Work out the null distribution of the verdict's statistic again; None where none is drawn."""
        return planned(self, study).null(verdict, releases)

    def panels(self, study: Study, verdict: Fields, releases: Releases) -> Sequence[Panel]:
        """Return what is drawn besides the null distribution, the p-value and estimates with intervals."""
        return planned(self, study).panels(verdict, releases)

    # What a study is asked with, and planned with, before there is one.

    question: ClassVar[QuestionTemplate | None] = None
    """What it answers, in plain words; None where nobody is to be asked whether they mean it."""

    held_by: ClassVar[frozenset[Holder]] = frozenset({"agents"})
    """Who may answer its studies."""

    population: ClassVar[type[SimulationModel] | None] = None
    """What simulated studies of it draw from; None where it cannot be planned."""

    choices: ClassVar[tuple[Mapping[str, Any], ...]] = ({},)
    """Parameters that a plan compares where none are given; {} leaves all to the procedure."""

    def test_of_ranks(self, study: Study) -> str | None:  # noqa: ARG002
        """Name the test of ``aggregated_test`` that asks the same of ranks; None where there is none."""
        return None

    def defaults(
        self,
        study: Study,  # noqa: ARG002
        units: Mapping[str, int] | None = None,  # noqa: ARG002
    ) -> Mapping[str, Any]:
        """Return the parameters that a study which says nothing of them is given, beyond declared defaults.

        They follow from the study alone, or, with ``units``, by owner, also from these numbers. Those may ask
        for another kind of noise than accounts are divided for, so that they are handed in where there is no
        ledger, and by whoever planned a study. Raises StudyError where the study cannot be run as written.
        """
        return {}

    def with_defaults(self, study: Study, units: Mapping[str, int] | None = None) -> Study:
        """Return a study that is not signed yet with ``defaults`` where it says nothing."""
        try:
            chosen = self.defaults(study, units)
        except StudyError:  # whoever checks it is told why it cannot be run
            return study
        return study.model_copy(update={"parameters": {**chosen, **study.parameters}})

    plans_two_rounds: ClassVar[bool] = False
    """Whether studies of it that have two rounds in the open can be planned."""

    pairwise: ClassVar[bool] = False
    """Whether its time grows with the square of the number of units."""

    def needs(self, columns: Sequence[Column]) -> tuple[RequiredParameter, ...]:  # noqa: ARG002
        """Return the parameters that a study of these columns cannot do without."""
        return ()


def require_units(procedure: Procedure, study: Study, units: Mapping[str, int]) -> None:
    """Raise PublicRuleError where a study cannot be run with these numbers of units, by owner."""
    planned(procedure, study).check_units(units)


def units_declared(study: Study) -> dict[str, int]:
    """Return the numbers of units that a study states, by owner."""
    return {owner.name: owner.units for owner in study.owners if owner.units is not None}


DELTA_REFUSED_PICO = DELTA_UNITS // 100
"""From this delta on a study is refused: a mechanism may publish a person's row in one of a hundred tries and
keep its promise. Above one in an owner's number of units it may publish somebody's every time: a warning."""


def require_delta(budget: Budget) -> None:
    """Raise StudyError where a budget's delta promises nothing."""
    if budget.delta_pico >= DELTA_REFUSED_PICO:
        raise StudyError(
            f"delta is {budget.delta:g}, and must be below {DELTA_REFUSED_PICO / DELTA_UNITS:g}: it is the "
            "chance that the promise fails. Ask for at most one in the number of units, such as 1e-5"
        )


def delta_warnings(study: Study, units: Iterable[int]) -> tuple[str, ...]:
    """Warn where delta is above one in the number of units of an owner."""
    largest = max(units, default=0)
    if study.budget.delta_pico * largest <= DELTA_UNITS:
        return ()
    return (
        f"delta is {study.budget.delta:g}, above one in {largest} units: a mechanism may publish a whole row "
        "and keep such a promise; ask for less",
    )


def warnings_of(procedure: Procedure, study: Study, units: Mapping[str, int]) -> tuple[str, ...]:
    """Return all that limits a study at these numbers of units, by owner, before anything is spent."""
    return delta_warnings(study, units.values()) + procedure.warnings(study, units)


def check_study(procedure: Procedure, study: Study) -> None:
    """Check a study as its analyst, tester, owners and every verifier do.

    Raises:
        StudyError: the procedure does not take the study, or cannot read the releases that it reuses; or it
            is another one here than the study names.
    """
    require_origin(procedure, study)
    require_delta(study.budget)
    procedure.check(study)
    require_units(procedure, study, units_declared(study))
    if study.reusing and not planned(procedure, study).rereads:
        raise StudyError(NO_REUSE)
    # Budgets would be spent on releases that together fit no transcript. With less than some 250 owners no
    # release is too large, whatever the procedure.
    numbers = numbers_max(1 if study.curator is not None else len(study.owners))
    if numbers < COORDINATES_MAX and procedure.release_size(study) > numbers:
        raise StudyError(
            f"with so many owners, each may release {numbers} numbers, or nobody could verify the verdict: "
            "use fewer columns, levels or features, or fewer owners"
        )


WORK_MAX = 5 * 10**10
"""Most work of one verdict, in simulated numbers of 20 ns: a quarter of an hour of one core."""

CELL_WORK = 8
"""What a cell of a simulated table takes, with its noise and its statistic, in simulated numbers."""

PRODUCTS = 1 / 40
"""What one product in a product of matrices takes, in simulated numbers."""


def require_work(numbers: float, replicates: int) -> None:
    """Raise StudyError where a verdict would simulate more than WORK_MAX numbers: so many in each replicate.

    What is counted comes from the study alone, so that it is refused before anybody has spent.
    """
    if numbers * replicates > WORK_MAX:
        raise StudyError(
            "the verdict would take too long; use fewer replicates, permutations, owners, columns, features "
            "or cells"
        )


def require_origin(procedure: Procedure, study: Study) -> None:
    """Raise StudyError unless the procedure is of the distribution and version that the study names.

    Another version might release or conclude something else under the same name.
    """
    if study.procedure_origin != procedure.origin:
        written = study.procedure_origin or "Tacit itself"
        raise StudyError(
            f"the study asks for {procedure.name} as {written} brings it, and here "
            f"{procedure.origin or 'Tacit itself'} does: all parties install the same version"
        )


def canonical(procedure: Procedure, study: Study) -> Study:
    """Return a study in the one form whose encoding is signed, so that no two digests say the same study.

    The procedure's parameters are all there, as its model reads them: defaults spelled out, ``1`` written
    ``1.0`` where a number may be a fraction. No zero is negative. The title, which only people read, is in
    Unicode's form NFC; names and levels are compared by their code points and stay as they are. The encoding
    (:func:`~tacit_protocol.messages.encoding.encode`) settles the rest: order of keys, spaces, escapes, the
    spelling of numbers, the study's own defaults.

    Raises:
        StudyError: a parameter is not one of the procedure's.
    """
    parameters = parse_parameters(procedure.Parameters, study).model_dump(mode="json")
    fields = study.model_dump(mode="python") | {
        "parameters": parameters,
        "title": unicodedata.normalize("NFC", study.title),
    }
    try:
        return Study.model_validate_json(json.dumps(_without_negative_zeros(fields), allow_nan=False))
    except ValueError:  # NFC makes a few texts longer
        raise StudyError("the title is too long in Unicode's form NFC") from None


def _without_negative_zeros(value: Any) -> Any:
    if isinstance(value, float):
        return value + 0.0
    if isinstance(value, dict):
        return {key: _without_negative_zeros(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_without_negative_zeros(part) for part in value]
    return value


def require_canonical(procedure: Procedure, study: Study, study_digest: str) -> None:
    """Check that a study's digest is that of its canonical bytes, before anything is spent on it.

    Raises:
        StudyError: it is another spelling of the same study.
    """
    if digest(encode(canonical(procedure, study))) != study_digest:
        raise StudyError(NOT_CANONICAL)


def reread(
    procedure: Procedure,
    study: Study,
    owner: Owner,
    source: Study,
    release: Release,
    *,
    lender: Procedure | None = None,
) -> Release:
    """Return the release that one of a study's owners made for an earlier study, as this study expects it.

    The caller has checked the signatures and digests of ``source`` and ``release``. ``lender`` is the
    procedure of ``source``: without it, releases are read by what the study's own procedure knows.

    Raises:
        StudyError: the release cannot be read again for this study; says what to change, quoting no data.
    """
    plan = planned(procedure, study)
    if not plan.rereads:
        raise StudyError(NO_REUSE)
    _check_same_parties(study, owner, source)
    lent = None if lender is None else planned(lender, source)
    if lent is not None and study.procedure in lent.lends_to:
        lent.check_borrower(study)
        found = release
    else:
        found = plan.reread(owner, source, release)
    try:
        if type(plan).check_reread is Plan.check_reread:
            check_release(procedure, study, found)
        else:
            _check_parts_played(study, found)
            plan.check_reread(found)
    except ReleaseError as error:
        raise StudyError(f"the reused release does not fit this study: {error}") from None
    return found


def _check_same_parties(study: Study, owner: Owner, source: Study) -> None:
    """Raise StudyError unless an earlier study had the same tester, owner, privacy unit and alignment."""
    if source.tester.key != study.tester.key:
        raise StudyError("the reused release was made for a study at another tester")
    if source.curator is not None:
        raise StudyError(
            "a curator answered for the owners of the earlier study: none has a release of its own"
        )
    maker = next((found for found in source.owners if found.name == owner.name), None)
    if maker is None or (maker.key, maker.data_set) != (owner.key, owner.data_set):
        raise StudyError("the earlier study has no owner of that name with the same key and data set")
    if maker.reuses is not None:
        raise StudyError("the earlier study reuses that owner's release itself; name the one it was made for")
    if source.unit_column != study.unit_column:
        raise StudyError("the earlier study protects another privacy unit; use the same unit column")
    if source.unit_rows != study.unit_rows:
        raise StudyError("the earlier study read units of several rows otherwise; use the same unit_rows")
    if source.encoders_of(maker) != study.encoders_of(owner):
        raise StudyError("the earlier study's columns were made by other encoders; name the same ones")
    if source.alignment != study.alignment:
        raise StudyError("the earlier study's units were aligned otherwise; name the same alignment")


def row_warnings(study: Study) -> tuple[str, ...]:
    """Say in a verdict on dependence what averages of rows do to its level."""
    if not study.averages_rows:
        return ()
    return (
        "a unit of several rows counts by their average: where numbers of rows differ, averages of "
        'independent columns depend on each other through them; unit_rows "one" draws one row a unit',
    )


def reuse_warnings(study: Study) -> tuple[str, ...]:
    """Say in a verdict what reading releases again does to its level."""
    if not study.reusing:
        return ()
    names = ", ".join(owner.name for owner in study.reusing)
    return (
        f"earlier releases are read again ({names}): the level holds where this question was not chosen by "
        "looking at them, and verdicts that share a release are not independent of one another",
    )


def check_release(procedure: Procedure, study: Study, release: Release) -> None:
    """Check a release of a study as its sender, the tester and every verifier do.

    Raises:
        ReleaseError: it does not count the units of exactly the owners whose part its sender plays, or breaks
            a rule of the procedure.
    """
    check_parts(procedure, study, release)
    procedure.check_release(study, release)


def check_parts(procedure: Procedure, study: Study, release: Release) -> None:
    """Check what no procedure's rule is about: whose units are counted, and whether it may choose or decide.

    Raises:
        ReleaseError: the study asks for nothing of the kind.
    """
    _check_parts_played(study, release)
    if release.choice is not None and release.choice >= candidates_of(procedure, study):
        raise ReleaseError("the release chooses a candidate that the study does not have")
    if release.decision is not None and not procedure.decides:
        raise ReleaseError("the release holds a decision, and the study asks for none")
    if release.masked:
        raise ReleaseError("the release is masked, and the study asks for none that is")


def candidates_of(procedure: Procedure, study: Study) -> int:
    """Return how many candidates a study's releases choose from; 0 where they choose none."""
    return planned(procedure, study).candidates


def masking_of(procedure: Procedure, study: Study) -> Masking | None:
    """Return who masks in a study; None where nobody does.

    Raises:
        StudyError: the study cannot be run as written.
    """
    return planned(procedure, study).masking


def claim_of(procedure: Procedure, study: Study) -> Guarantee:
    """Return what a study's budget states: where releases are masked the claim, otherwise the cost.

    Raises:
        StudyError: the study cannot be run as written.
    """
    plan = planned(procedure, study)
    return plan.guarantee if plan.shared is None else plan.shared.claim


def spent_budget(procedure: Procedure, study: Study) -> Budget:
    """Return what every owner spends where all spend alike: the study's budget, or more where they mask.

    Raises:
        StudyError: the study cannot be run as written.
    """
    plan = planned(procedure, study)
    return study.budget if plan.shared is None else plan.guarantee.budget


def _check_parts_played(study: Study, release: Release) -> None:
    played = set() if study.curator is None else {owner.name for owner in study.owners}
    if set(release.units_by_owner) != played:
        raise ReleaseError("a curator's release counts each owner's units, and no other release does")


def require_shared_columns(study: Study) -> None:
    """Raise StudyError where owners hold columns of their own: most procedures compare the same columns."""
    if study.columns_apart:
        raise StudyError("every owner holds all columns here; leave the owners' columns out")


def common_fields(study: Study, units: Mapping[str, int], spent: Guarantee | None = None) -> dict[str, Any]:
    """Return what every verdict on a study states alike: level, units by owner, and what each spent.

    The study's budget unless owners ``spent`` another, as those who mask do.
    """
    budget = study.budget if spent is None else spent.budget
    return {"level": study.level, "units": units, "epsilon": budget.epsilon, "delta": budget.delta}


def decided(study: Study, statistic: float, pvalue: float) -> dict[str, Any]:
    """Return a test's fields of a verdict: rejected is where the p-value does not pass the level."""
    return {"statistic": statistic, "pvalue": pvalue, "reject": pvalue <= study.level}


def public_seed(study: Study, *stream: int) -> np.random.SeedSequence:
    """Return a study's public randomness of one stream: for locations and simulations, never for noise."""
    return np.random.SeedSequence(int(study.seed, 16), spawn_key=stream)


def step(
    progress: Progress | None, words: str, start: float = 0.0, end: float = 1.0
) -> Callable[[float], None]:
    """Return what reports the part done of one step, which takes the progress from ``start`` to ``end``."""
    return lambda part: None if progress is None else progress(start + (end - start) * part, words)


PLANS_KEPT = 16
"""Plans that a process keeps: those of the studies that it looked at last."""


class _Asked:
    """A procedure and a study, which are equal to themselves alone, so that no content is compared."""

    def __init__(self, procedure: Procedure, study: Study) -> None:
        self.procedure = procedure
        self.study = study

    def __eq__(self, other: object) -> bool:
        same = isinstance(other, _Asked) and other.procedure is self.procedure
        return same and other.study is self.study  # type: ignore[attr-defined]

    def __hash__(self) -> int:
        return hash((id(self.procedure), id(self.study)))


@lru_cache(PLANS_KEPT)
def _planned(asked: _Asked) -> Plan:
    return asked.procedure.plan(asked.study)


def planned(procedure: Procedure, study: Study) -> Plan:
    """Return the plan of a study, worked out once and handed on to whoever asks about the same study again.

    Owners, tester and every verifier each work it out for themselves, from the bytes that were signed, as
    none of them takes another's word for it: once a party, since
    :func:`~tacit_protocol.messages.study.read_study` makes one object of the same bytes. A study that has no
    plan raises its error each time.

    Raises:
        StudyError: the study cannot be run as written.
    """
    return _planned(_Asked(procedure, study))


planned.forget = _planned.cache_clear  # type: ignore[attr-defined]
"""Drops what is kept, for tests that change the code."""


ParametersT = TypeVar("ParametersT", bound=BaseModel)


def parse_parameters(model: type[ParametersT], study: Study) -> ParametersT:
    """Read a study's parameters with the procedure's own strict model.

    Raises:
        StudyError: a parameter is unknown, of the wrong type or out of range; says which, and the rule.
    """
    try:
        return model.model_validate_json(json.dumps(study.parameters, allow_nan=False))
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False, include_context=False)[0]
        if first["type"] == "extra_forbidden":
            raise StudyError(f"unknown parameter; known: {', '.join(sorted(model.model_fields))}") from None
        place = ".".join(str(part) for part in first["loc"])
        raise StudyError(f"parameter {place}: {first['msg']}") from None
    except (TypeError, ValueError):
        raise StudyError("parameters must be finite JSON values") from None
