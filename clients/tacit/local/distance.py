"""Distance correlation and screening in one process: of two owners, at a trusted party, between peers.

Two owners hold different columns of the same units. Where each side has ids of its own, units are put in
order as agents do it: by the keyed hash of an id, in the form in which two systems compare it. The key is
drawn afresh and forgotten.
"""

import secrets
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal, cast, overload

import narwhals.stable.v1 as nw
import numpy as np
import numpy.typing as npt

from tacit.errors import InputError, StudyRefusedError
from tacit.in_process.runner import Aligned, Terms, local_study, run, run_tables, study_of, terms
from tacit.in_process.samples import (
    FLOAT_EXACT_MAX,
    ArrayTable,
    Missing,
    Sample,
    by_argument_names,
    drawing,
    is_missing,
    read_columns,
    read_variables,
    tables_apart,
)
from tacit.local.randomised import RandomisedColumn
from tacit.peer_outcome import PeerOutcome
from tacit.results import result_from
from tacit_protocol.domain import Domain, Table
from tacit_protocol.messages.alignment import KEY_BYTES, AlignmentError, UnitHashes, UnitKey, canonical_id
from tacit_protocol.messages.study import Release, Study, UnitRows
from tacit_protocol.privacy.noise import NoiseSource, OpenDPNoise
from tacit_protocol.procedures.base import Procedure, Progress, StudyError, check_release, parse_parameters
from tacit_protocol.procedures.discovery import procedure_named
from tacit_protocol.procedures.distance_correlation.release import DistanceCorrelationParameters, answers_plan
from tacit_protocol.procedures.relay import check_own_release, combined, conclude, relay_of
from tacit_protocol.signing import PrivateKey, certify

if TYPE_CHECKING:
    from tacit.correlations import AnsweredScreeningResult, ScreeningResult
    from tacit.results import (
        AnsweredCorrelationResult,
        CellsTableResult,
        CuratedDistanceCorrelationResult,
        DistanceCorrelationResult,
        JointIndependenceResult,
    )

Ids = npt.ArrayLike
Units = Ids | tuple[Ids, Ids]
"""(n,), the unit of each row of both owners; or, of each owner, (rows,), the ids of the units of its rows."""

NAMES = ("x", "y")
"""What callers know the two owners' columns by."""

UNIT_COLUMN = "unit"
"""Name of the column of ids, with as many underscores as it takes to be no other column's."""

NO_ID = "every row needs an id"
WRONG_KIND = "ids are text, whole numbers or dates"


def read_two_owners(
    x: Any, y: Any, bounds: Any, missing: Missing, units: Units | None, *, unit_rows: UnitRows = "average"
) -> tuple[list[ArrayTable], Aligned | None]:
    """Read both owners' tables, and how their units were aligned, if at all.

    With ``unit_rows`` "one" both sides draw the same row of each unit where they hold the same rows.

    Raises:
        InputError: they cannot be used, or the ids of the two sides are not of the same units.
    """
    pair, draw = _pair(units), drawing(unit_rows, units)
    read = read_variables((x, y), bounds, None, missing, arguments=NAMES, same_rows=pair is None)
    if pair is None:
        shared = cast("Ids | None", units)
        return tables_apart(read, (shared, shared), (draw, deepcopy(draw))), None
    key = UnitKey(secrets.token_bytes(KEY_BYTES))
    first, second = (
        _hashes(key, ids, len(read.sample.columns[group[0]]), name)
        for ids, group, name in zip(pair, read.groups, NAMES, strict=True)
    )
    column = UNIT_COLUMN
    while column in read.sample.columns:
        column += "_"
    aligned = Aligned(column, _digest(key, first, second))
    return tables_apart(read, (first, second), (draw, draw)), aligned


def one_for_both(units: Units | None) -> Ids | None:
    """Return the units of rows that are the same for both sides.

    Raises:
        InputError: each side has ids of its own.
    """
    if _pair(units) is not None:
        raise InputError("one party holds both sides' columns in the same rows: pass one array of units")
    return cast("Ids | None", units)


def _pair(units: Units | None) -> tuple[Any, Any] | None:
    """Return both sides' ids where each has its own; an array of units has scalars in their place."""
    if isinstance(units, tuple | list) and len(units) == 2 and not all(np.isscalar(part) for part in units):
        return units[0], units[1]
    return None


def _digest(key: UnitKey, first: UnitHashes, second: UnitHashes) -> str:
    """Return the digest of the units that both sides hold; raises InputError where they differ."""
    own, other = np.unique(first), np.unique(second)
    lacking = len(np.setdiff1d(own, other)), len(np.setdiff1d(other, own))
    if any(lacking):
        raise InputError(
            f"x and y are not of the same units: {lacking[0]} of x's {len(own)} ids are not among y's, and "
            f"{lacking[1]} of y's {len(other)} not among x's; restrict both to the units that both have"
        )
    return key.digest(own)


def _hashes(key: UnitKey, ids: Any, rows: int, name: str) -> UnitHashes:
    values = _listed(ids, name)
    if len(values) != rows:
        raise InputError(f"units of {name}: {len(values)} ids for {rows} rows; pass one for each row")
    try:
        return key.hashes(_canonical(value) for value in values)
    except AlignmentError as error:
        raise InputError(f"units of {name}: {error}") from None


def _listed(ids: Any, name: str) -> Sequence[Any]:
    if isinstance(ids, list | tuple):
        return ids
    if isinstance(ids, np.ndarray):
        if ids.ndim != 1 or ids.dtype.kind not in "iufUO":
            raise InputError(f"units of {name}: pass a flat array; {WRONG_KIND}")
        return list(ids.tolist())
    try:
        return list(nw.from_native(ids, series_only=True).to_list())
    except TypeError:
        raise InputError(f"units of {name}: pass an array or a column of ids") from None


def _canonical(value: Any) -> str:
    """Return an id as two systems compare it: ``7``, ``7.0`` and ``"7"`` are one, ``"07"`` is another."""
    if is_missing(value):
        raise AlignmentError(NO_ID)
    if isinstance(value, str):
        form = canonical_id(value)
        if form is None:
            raise AlignmentError(NO_ID)
        return form
    if isinstance(value, date):
        return value.isoformat()
    if _whole(value):
        return str(int(value))
    raise AlignmentError(WRONG_KIND)


def _whole(value: Any) -> bool:
    """Say whether a value is a whole number, and as floating one still no other's neighbour."""
    if isinstance(value, bool | np.bool_):
        return False
    if isinstance(value, int | np.integer):
        return True
    if isinstance(value, Decimal):
        return value.is_finite() and value == value.to_integral_value()
    if not isinstance(value, float | np.floating):
        return False
    return abs(float(value)) <= FLOAT_EXACT_MAX and float(value).is_integer()


OWNER = "owner"
"""Name of the one owner."""


def with_receiver(study: Study, name: str) -> Study:
    """Return a local study whose owner of that name has a key of its own, that others may seal to."""
    key = PrivateKey.generate()
    owners = tuple(
        owner.model_copy(update={"key": key.public_hex, "sealing": certify(key)})
        if owner.name == name
        else owner
        for owner in study.owners
    )
    return study.model_copy(update={"owners": owners})


def run_peer(
    procedure: Procedure,
    study: Study,
    tables: Sequence[Table],
    noise: NoiseSource,
    progress: Progress | None = None,
) -> PeerOutcome:
    """Play both owners' parts (a table for each, in the study's order), then the tester's.

    Raises:
        StudyRefusedError: the procedure does not take the study.
    """
    held = {owner.name: table for owner, table in zip(study.owners, tables, strict=True)}
    try:
        procedure.check(study)
        relay = relay_of(procedure, study)
        if relay is None:
            raise StudyError("this study has no receiver")
        sent = procedure.privatise(study, procedure.summarise(study, held[relay.sender.name]), noise)
        check_own_release(procedure, study, relay.sender.name, sent)
        found_there = combined(procedure, study, {relay.sender.name: sent}, held[relay.receiver.name])
        releases: dict[str, Release] = {}
        if relay.publishes:
            published = procedure.privatise(study, found_there.summary, noise)
            check_release(procedure, study, published)
            releases[relay.receiver.name] = published
        units = dict.fromkeys(held, sent.units)
        verdict = conclude(procedure, study, releases, units, progress)
    except StudyError as error:
        raise StudyRefusedError(str(error)) from error
    if found_there.finding is None:
        raise TypeError("the procedure keeps no finding")
    finding: Any = result_from(found_there.finding, study)
    stated: Any = result_from(verdict, study)
    return PeerOutcome(finding, stated)


CorrelationMethod = Literal[
    "auto",
    "two-round",
    "one-round",
    "sketch",
    "pnc",
    "pnc-disjoint",
    "permutation",
    "aggregate",
    "table",
]

CURATED_METHODS = ("permutation", "aggregate", "table")
"""Methods where one party holds both sides' columns."""

CORRELATION_OWNERS = ("x-owner", "y-owner")
"""Names of the two owners."""


@overload
def distance_correlation(
    x: Any, y: Any, *, epsilon: float, delta: float = 0.0, mode: Literal["curator"], **options: Any
) -> "CuratedDistanceCorrelationResult | JointIndependenceResult | CellsTableResult": ...


@overload
def distance_correlation(
    x: Any, y: Any, *, epsilon: float, delta: float = 0.0, mode: Literal["peer"], **options: Any
) -> PeerOutcome: ...


@overload
def distance_correlation(
    x: Any, y: Any, *, epsilon: float, delta: float = 0.0, mode: Literal["tester"] = "tester", **options: Any
) -> "AnsweredCorrelationResult | DistanceCorrelationResult": ...


def distance_correlation(
    x: Any,
    y: Any,
    *,
    epsilon: float,
    delta: float = 0.0,
    method: CorrelationMethod = "auto",
    mode: Literal["tester", "peer", "curator"] = "tester",
    categories: int | None = None,
    n_projections: int | None = None,
    n_features: int | None = None,
    n_permutations: int | None = None,
    bounds: Any = None,
    alpha: float = 0.05,
    units: Units | None = None,
    unit_rows: UnitRows = "average",
    missing: Missing = "refuse",
    seed: int | None = None,
    progress: Progress | None = None,
    **parameters: Any,
) -> Any:
    """Estimate the distance correlation of two owners' columns privately, and test independence.

    Args:
        x: one owner's columns: an array (n,) or (n, D), or a column or a table of pandas, Polars or Arrow;
            or what :func:`randomise_column` released, which costs its owner nothing more.
        y: the other owner's, over the same rows in the same order, unless ``units`` holds ids.
        epsilon: budget that every owner spends, greater than 0.
        delta: budget that every owner spends, in [0, 1); above 0 for "sketch", "pnc" and mode="curator".
        method: "two-round": the owner of ``x`` (or of the columns of fewer categories) releases a randomised
            answer of every row, and the other counts its own cells beside them, with noise. "one-round": both
            release randomised answers. "sketch": sums of features over public buckets. "pnc" or
            "pnc-disjoint": P4's projections of every row. "auto" (the default) takes the first, or the sketch
            for many pairs of columns, by public numbers alone.
        mode: "tester": both owners add noise, and the tester computes. "curator": one trusted party holds
            both sides' columns, and adds far less noise, once; its methods are "permutation" (the default:
            estimates and a decision), "aggregate" (blocks that reject) and "table" (cells between private
            quantiles), the last two with a p-value, and pure. "peer", with pnc: the owner of ``x`` adds
            noise, and that of ``y`` sets it against its exact columns, for itself.
        categories: cells of a numeric column, 2 to 4, of "two-round", "one-round" and "table".
        n_projections: directions for an owner of several numeric columns; chosen by default.
        n_features: frequencies for each direction, with "sketch"; chosen by default.
        n_permutations: random permutations of the test; chosen by default.
        bounds: what is publicly known: a list with both owners' bounds, a (lower, upper) pair or a list of
            levels each; or by column name; or one pair for every column. Never taken from the data. Columns
            of arrays are named x and y, or x.1, x.2, ...
        alpha: level of the test, in (0, 0.5).
        units: (n,), each row's privacy unit; by default every row is a unit. Or a pair of arrays with the ids
            of the units of ``x``'s rows and of ``y``'s, which are then matched by id and need be neither in
            one order nor as many; both sides must hold the same units.
        unit_rows: "average", or "one": of a unit's rows one counts, drawn by lot and in secret. Take "one"
            where numbers of rows differ: averages of independent columns depend on each other through them.
            A side with ids of its own draws its own rows.
        missing: "refuse" raises where a value is missing; "encode" does what studies do.
        seed: fixes buckets, directions and permutations. Never the noise: two calls differ.
        progress: called with the part done, in [0, 1], and the step.
        parameters: further parameters of the procedure, such as ``test`` with mode="curator", and
            ``publish`` with mode="peer": whether the receiver releases a private covariance.

    Returns:
        A frozen result that unpacks into ``statistic, pvalue``; with mode="curator" and permutations one that
        cannot be unpacked, since its decision has no p-value; with mode="peer" what the receiver finds and
        what everybody learns.

    Raises:
        InputError: the columns, the bounds or the ids cannot be used, or mode="curator" is given what it does
            not take; the message says what to change.
        StudyRefusedError: the procedure does not take these parameters, or so few or so many rows.

    Example:
        >>> import numpy as np, tacit.local
        >>> x = np.random.default_rng(1).random(2000)
        >>> result = tacit.local.distance_correlation(x, x, epsilon=1, bounds=(0, 1), seed=1)
        >>> result.reject
        True
    """
    at = terms(epsilon, delta, alpha, seed)
    if mode not in {"tester", "peer", "curator"}:
        raise InputError('mode must be "tester", "peer" or "curator"')
    if isinstance(x, RandomisedColumn):
        if mode != "tester" or method not in ("auto", "two-round") or units is not None:
            raise InputError("x was randomised, a row a unit: leave mode, method and units out")
        return _beside_answers(
            x,
            read_columns(y, "y", bounds, missing),
            {"categories": categories, "permutations": n_permutations} | parameters,
            terms(epsilon, 0.0, alpha, seed),
            progress,
        )
    if mode == "curator":
        if method not in ("auto", *CURATED_METHODS) or {n_projections, n_features} != {None}:
            raise InputError(
                'mode="curator" has the methods "permutation", "aggregate" and "table", and neither '
                "n_projections nor n_features: leave them out"
            )
        shared = one_for_both(units)
        read = read_variables((x, y), bounds, None, missing, arguments=NAMES)
        table = ArrayTable.of(read.sample, read.domain, shared, drawing(unit_rows, shared))
        asked: dict[str, Any] = {
            "groups": [list(group) for group in read.groups],
            "permutations": n_permutations,
            "categories": categories,
            "method": None if method == "auto" else method,
        }
        with by_argument_names():
            return run_tables(
                "curated_distance_correlation",
                [table],
                [OWNER],
                asked | parameters,
                at=at,
                progress=progress,
            )
    tables, aligned = read_two_owners(x, y, bounds, missing, units, unit_rows=unit_rows)
    if mode == "peer":
        parameters = {"receiver": CORRELATION_OWNERS[1]} | parameters
        method = "pnc" if method == "auto" else method
    procedure = procedure_named("distance_correlation")
    asked = {
        "method": None if method == "auto" else method,
        "mode": mode,
        "categories": categories,
        "n_projections": n_projections,
        "n_features": n_features,
        "permutations": n_permutations,
    }
    study = study_of(
        procedure,
        tables,
        CORRELATION_OWNERS,
        asked | parameters,
        at=at,
        aligned=aligned,
        unit_rows=unit_rows,
    )
    with by_argument_names():
        if mode == "peer":
            study = with_receiver(study, str(parameters["receiver"]))
            return run_peer(procedure, study, tables, OpenDPNoise(), progress)
        return run(procedure, study, tables, OpenDPNoise(), progress)


def _beside_answers(
    x: RandomisedColumn,
    held: tuple[Sample, Domain],
    parameters: dict[str, Any],
    at: Terms,
    progress: Progress | None,
) -> Any:
    """Play the second round beside a column that was released before."""
    sample, domain = held
    if len(x) != sample.rows:
        raise InputError(f"y has {sample.rows} rows and x has {len(x)}: both must describe the same rows")
    groups = ((x.column.name,), tuple(sample.columns))
    if x.column.name in groups[1]:
        raise InputError(f"x and y both have a column named {x.column.name!r}: rename it in one of them")
    study = local_study(
        "distance_correlation",
        Domain(columns=(x.column, *domain.columns)),
        CORRELATION_OWNERS,
        {"method": "two-round", "receiver": CORRELATION_OWNERS[1]} | parameters,
        **at,
        columns=groups,
    )
    try:
        if len(domain.columns) != 1:
            raise StudyError("a randomised column is set beside one column at a time")
        plan = answers_plan(study, parse_parameters(DistanceCorrelationParameters, study))
        plan = replace(plan, given=x.release)
        own = plan.read(ArrayTable.of(sample, domain), {CORRELATION_OWNERS[0]: x.release})
        answered = plan.privatise(own, OpenDPNoise())
        releases = dict(zip(CORRELATION_OWNERS, (x.release, answered), strict=True))
        warned = plan.warnings({name: len(x) for name in CORRELATION_OWNERS})
        return result_from(plan.verdict(releases, warned, progress), study, releases=releases)
    except StudyError as error:
        raise StudyRefusedError(str(error)) from error


SCREENING_OWNERS = ("columns-owner", "outcome-owner")
"""Names of the two owners."""


def screening(
    x: Any,
    y: Any,
    *,
    epsilon: float,
    delta: float = 0.0,
    method: Literal["two-round", "one-round"] = "two-round",
    control: Literal["by", "bh"] = "by",
    matrix: bool = False,
    categories: int | None = None,
    n_permutations: int | None = None,
    bounds: Any = None,
    alpha: float = 0.05,
    units: Units | None = None,
    unit_rows: UnitRows = "average",
    missing: Missing = "refuse",
    seed: int | None = None,
    progress: Progress | None = None,
) -> "AnsweredScreeningResult | ScreeningResult":
    """Find which of one owner's columns depend on another owner's outcome, privately.

    Args:
        x: one owner's columns: an array (n,) or (n, D), or a column or a table of pandas, Polars or Arrow.
        y: the outcome, or several, of the other owner, over the same rows in the same order, unless ``units``
            holds ids.
        epsilon: budget that every owner spends, greater than 0.
        delta: budget that every owner spends, in [0, 1); above 0 with ``matrix``. It pays for Gaussian noise
            of the counts, where that is less: where ``x`` has many columns.
        method: "two-round": the owner of ``y`` releases a randomised answer of every row, and that of ``x``
            counts its columns' cells beside them, with noise. "one-round": both release randomised answers,
            of the pair of columns that a row is dealt to.
        control: "by", Benjamini and Yekutieli, valid under any dependence; or "bh", Benjamini and Hochberg,
            which finds more and needs p-values that are independent or positively dependent.
        matrix: estimate the distance correlations of all columns with each other: both owners then release
            sketches, sums of features over public buckets, which find far fewer columns than answers.
        categories: cells of a numeric column, 2 to 4, of answers; chosen by default.
        n_permutations: random permutations, or simulations, of the tests; by default enough for the number of
            pairs.
        bounds: what is publicly known: a list with both owners' bounds, a (lower, upper) pair or a list of
            levels each; or by column name; or one pair for every column. Never taken from the data. Columns
            of arrays are named x.1, x.2, ... and y.
        alpha: level of the false discovery rate, in (0, 0.5).
        units: (n,), each row's privacy unit; by default every row is a unit. Or a pair of arrays with the ids
            of the units of ``x``'s rows and of ``y``'s, which are then matched by id and need be neither in
            one order nor as many; both sides must hold the same units.
        unit_rows: "average", or "one": of a unit's rows one counts, drawn by lot and in secret. Take "one"
            where numbers of rows differ: averages of independent columns depend on each other through them.
            A side with ids of its own draws its own rows.
        missing: "refuse" raises where a value is missing; "encode" does what studies do.
        seed: fixes how rows are dealt out, buckets, permutations and simulations. Never the noise: two calls
            differ.
        progress: called with the part done, in [0, 1], and the step.

    Returns:
        A frozen result with the ranked pairs.

    Raises:
        InputError: the columns, the bounds or the ids cannot be used; the message says what to change.
        StudyRefusedError: the procedure does not take these parameters, or so few or so many rows.

    Example:
        >>> import numpy as np, tacit.local
        >>> x = np.random.default_rng(1).random((20_000, 5))
        >>> result = tacit.local.screening(x, x[:, 2], epsilon=1, bounds=(0, 1), alpha=0.01, seed=1)
        >>> result.found[0].column
        'x.3'
    """
    at = terms(epsilon, delta, alpha, seed)
    tables, aligned = read_two_owners(x, y, bounds, missing, units, unit_rows=unit_rows)
    found: AnsweredScreeningResult | ScreeningResult
    with by_argument_names():
        found = run_tables(
            "screening",
            tables,
            SCREENING_OWNERS,
            {
                "outcome": SCREENING_OWNERS[1],
                "method": method,
                "control": control,
                "matrix": matrix,
                "categories": categories,
                "permutations": n_permutations,
            },
            at=at,
            aligned=aligned,
            unit_rows=unit_rows,
            progress=progress,
        )
    return found
