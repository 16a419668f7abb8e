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
from tacit.in_process.runner import (
    OWNER,
    Aligned,
    Terms,
    local_study,
    run,
    run_peer,
    run_tables,
    study_of,
    terms,
)
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
)
from tacit.local.randomised import RandomisedColumn
from tacit.peer_outcome import PeerOutcome
from tacit.results import result_from
from tacit_protocol.domain import Domain
from tacit_protocol.messages.alignment import KEY_BYTES, AlignmentError, UnitHashes, UnitKey, canonical_id
from tacit_protocol.messages.study import UnitRows
from tacit_protocol.privacy.noise import OpenDPNoise
from tacit_protocol.procedures.base import Progress, StudyError, parse_parameters
from tacit_protocol.procedures.discovery import procedure_named
from tacit_protocol.procedures.distance_correlation.release import DistanceCorrelationParameters, answers_plan

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
        return read.apart((shared, shared), (draw, deepcopy(draw))), None
    key = UnitKey(secrets.token_bytes(KEY_BYTES))
    first, second = (
        _hashes(key, ids, len(read.sample.columns[group[0]]), name)
        for ids, group, name in zip(pair, read.groups, NAMES, strict=True)
    )
    column = UNIT_COLUMN
    while column in read.sample.columns:
        column += "_"
    aligned = Aligned(column, _digest(key, first, second))
    return read.apart((first, second), (draw, draw)), aligned


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


@by_argument_names()
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
        delta: above 0 for "sketch", "pnc" and mode="curator".
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
        categories: of "two-round", "one-round" and "table".
        n_projections: directions for an owner of several numeric columns; chosen by default.
        n_features: frequencies for each direction, with "sketch"; chosen by default.
        bounds: as of variables. Columns of arrays are named x and y, or x.1, x.2, ...
        units: as of variables; or a pair of arrays with the ids of the units of ``x``'s rows and of ``y``'s,
            which are then matched by id and need be neither in one order nor as many; both sides must hold
            the same units, and each draws its own rows.
        parameters: such as ``test`` with mode="curator", and ``publish`` with mode="peer": whether the
            receiver releases a private covariance.

    Other arguments: :mod:`tacit.local`.

    Returns:
        A test; with mode="curator" and permutations a result that cannot be unpacked, since its decision has
        no p-value; with mode="peer" what the receiver finds and what everybody learns.

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
    asked: dict[str, Any] = {
        "method": None if method == "auto" else method,
        "categories": categories,
        "permutations": n_permutations,
    }
    if mode == "curator":
        if method not in ("auto", *CURATED_METHODS) or {n_projections, n_features} != {None}:
            raise InputError(
                'mode="curator" has the methods "permutation", "aggregate" and "table", and neither '
                "n_projections nor n_features: leave them out"
            )
        if _pair(units) is not None:
            raise InputError("one party holds both sides' columns in the same rows: pass one array of units")
        read = read_variables((x, y), bounds, None, missing, arguments=NAMES)
        return run_tables(
            "curated_distance_correlation",
            [read.together(cast("Ids | None", units), unit_rows)],
            [OWNER],
            {"groups": [list(group) for group in read.groups]} | asked | parameters,
            at=at,
            progress=progress,
        )
    if mode == "peer":
        parameters = {"receiver": CORRELATION_OWNERS[1]} | parameters
        asked["method"] = asked["method"] or "pnc"
    tables, aligned = read_two_owners(x, y, bounds, missing, units, unit_rows=unit_rows)
    procedure = procedure_named("distance_correlation")
    study = study_of(
        procedure,
        tables,
        CORRELATION_OWNERS,
        asked | {"mode": mode, "n_projections": n_projections, "n_features": n_features} | parameters,
        at=at,
        aligned=aligned,
        unit_rows=unit_rows,
    )
    play = run_peer if mode == "peer" else run
    return play(procedure, study, tables, OpenDPNoise(), progress)


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


@by_argument_names()
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
        x: one owner's columns, as of :func:`distance_correlation`.
        y: the outcome, or several, of the other owner, over the same rows in the same order, unless ``units``
            holds ids.
        delta: above 0 with ``matrix``. It pays for Gaussian noise of the counts, where that is less: where
            ``x`` has many columns.
        method: "two-round": the owner of ``y`` releases a randomised answer of every row, and that of ``x``
            counts its columns' cells beside them, with noise. "one-round": both release randomised answers,
            of the pair of columns that a row is dealt to.
        control: "by", Benjamini and Yekutieli, valid under any dependence; or "bh", Benjamini and Hochberg,
            which finds more and needs p-values that are independent or positively dependent.
        matrix: estimate the distance correlations of all columns with each other: both owners then release
            sketches, sums of features over public buckets, which find far fewer columns than answers.
        n_permutations: by default enough for the number of pairs.
        bounds: as of variables. Columns of arrays are named x.1, x.2, ... and y.
        alpha: level of the false discovery rate.
        units: as of :func:`distance_correlation`.
        seed: fixes how rows are dealt out too.

    Other arguments: :mod:`tacit.local`.

    Returns:
        A result with the ranked pairs.

    Example:
        >>> import numpy as np, tacit.local
        >>> x = np.random.default_rng(1).random((20_000, 5))
        >>> result = tacit.local.screening(x, x[:, 2], epsilon=1, bounds=(0, 1), alpha=0.01, seed=1)
        >>> result.found[0].column
        'x.3'
    """
    at = terms(epsilon, delta, alpha, seed)
    tables, aligned = read_two_owners(x, y, bounds, missing, units, unit_rows=unit_rows)
    found: AnsweredScreeningResult | ScreeningResult = run_tables(
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
