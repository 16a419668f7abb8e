"""A private database of a sample: the owner's part and the release, in one process."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy.typing as npt

from tacit.database.released import ReleasedDatabase, databases_of
from tacit.database.weights import Weighting
from tacit.errors import InputError, StudyRefusedError
from tacit.in_process.runner import local_study, seed_text
from tacit.in_process.samples import ArrayTable, Sample, domain_of
from tacit.local.inputs import read_with_units
from tacit_protocol.domain import Domain
from tacit_protocol.features.column_histograms import is_of_whole_numbers
from tacit_protocol.privacy.noise import OpenDPNoise
from tacit_protocol.procedures.base import StudyError, check_release
from tacit_protocol.procedures.discovery import with_new_defaults
from tacit_protocol.procedures.embedding_release import EmbeddingRelease

OWNER = "sample"


def release_database(
    x: Any,
    *,
    epsilon: float,
    delta: float,
    method: Literal["subspace", "random-features", "exponential"] = "subspace",
    n_points: int | None = None,
    bounds: Any = None,
    public: Sequence[Sequence[float | str | None]] | None = None,
    columns: Sequence[str] | None = None,
    units: str | npt.ArrayLike | None = None,
    bandwidth: float | None = None,
    whole_numbers: Sequence[str] | None = None,
    move_points: bool = False,
    weights: Weighting = "simplex",
    l1_max: float = 1.0,
    seed: int | None = None,
    **parameters: Any,
) -> ReleasedDatabase:
    """Release a sample once as a weighted synthetic database, which anyone may then use for ever.

    Args:
        x: a NumPy array (n, D) or a pandas, Polars or Arrow table. Missing values are allowed.
        epsilon: budget to spend, greater than 0.
        delta: budget to spend, in [0, 1); 0 means pure epsilon, by Laplace noise or an exact choice.
        method: "subspace": the noisy mean embedding on public points (P2, Algorithm 1, with sharper noise);
            "random-features": that of random frequencies, to which points are fitted (Algorithm 2);
            "exponential": one of the candidate databases of ``candidate_rows`` rows of few points, drawn.
        n_points: number of points. With method "subspace" they are drawn from noisy histograms of the
            columns, for which a part of the budget is spent (``placement="uniform"`` draws them over the
            domain instead): 500 by default, less where columns are many. Candidates are of 10 points by
            default. Random features have ``n_frequencies`` instead.
        bounds: what is publicly known of the columns: by name a (lower, upper) pair or a list of levels; or
            an array (D, 2); or one pair for every column. Never taken from the data.
        public: public points in place of drawn ones: rows with one value per column, in their own units.
        columns: names of an array's columns, or which columns of a table to use.
        units: the column that names a row's privacy unit, or an array (n,); by default every row is a unit.
        bandwidth: kernel bandwidth in units of the scaled columns; the median distance of the points by
            default.
        whole_numbers: columns that are publicly known to hold whole numbers, with bounds that are whole:
            histograms then have a bin for each number, and points stand on them, so that probabilities of
            "at most 10" are right. By default the columns whose type is an integer one. Only where points
            are drawn from histograms.
        move_points: move the points to match the release
            (:meth:`tacit.database.released.ReleasedDatabase.reduced`). By default they stay where they are,
            public ones above all, and :attr:`tacit.database.released.ReleasedDatabase.limits` says if they
            do not match it.
        weights: "simplex", "regularised" (with ``l1_max``), "raw" or "shrunk"; see
            :class:`tacit.database.released.ReleasedDatabase`, whose ``with_weights`` changes it later.
        l1_max: bound on the L1 norm of regularised weights.
        seed: fixes the points. Never the noise: two calls differ.
        parameters: further parameters of the procedure, such as ``kernel`` or ``category_similarity``.

    Returns:
        A frozen database with ``expectation``, ``probability``, ``mmd``, ``two_sample_test``, ``sample``,
        ``transform`` and ``to_parquet``, ``to_csv``, ``to_pandas``.

    Raises:
        InputError: the sample or the bounds cannot be used; the message says what to change.
        StudyRefusedError: the procedure does not take these parameters.

    Example:
        >>> import numpy as np, tacit.local
        >>> x = np.random.default_rng(1).normal(3, 1, (20000, 1))
        >>> found = tacit.local.release_database(x, epsilon=1, delta=1e-6, bounds=(-5, 5), seed=1)
        >>> abs(found.expectation(lambda c: c["x1"]) - 3) < 0.2
        True
    """
    given = None if units is None or isinstance(units, str) else [units]
    (sample,), (unit,) = read_with_units([x], columns, units if isinstance(units, str) else given)
    domain = domain_of(bounds, list(sample.columns))
    chosen: dict[str, Any] = {
        "method": method,
        "n_points": n_points,
        "bandwidth": bandwidth,
        "points": None if public is None else [list(row) for row in public],
        "whole_numbers": list(whole_numbers or ()) or None,
    }
    from_histograms = method == "subspace" and public is None
    if whole_numbers is None and from_histograms and parameters.get("placement") in {None, "histograms"}:
        chosen["whole_numbers"] = _whole_columns(sample, domain) or None
    procedure = EmbeddingRelease()
    study = local_study(
        procedure.name,
        domain,
        [OWNER],
        chosen | parameters,
        epsilon=epsilon,
        delta=delta,
        alpha=0.05,
        seed=seed_text(seed),
    )
    try:
        study = with_new_defaults(study)
        procedure.check(study)
        table = ArrayTable.of(sample, domain, unit)
        if table.units < 1:
            raise InputError("the sample has no rows")
        release = procedure.privatise(study, procedure.summarise(study, table), OpenDPNoise())
        check_release(procedure, study, release)
        verdict = procedure.assemble(study, {OWNER: release})
    except StudyError as error:
        raise StudyRefusedError(str(error)) from error
    database = databases_of(study, verdict)[OWNER]
    if move_points:
        database = database.reduced(len(database), starts=1, seed=seed)
    return database if weights == "simplex" else database.with_weights(weights, l1_max=l1_max)


def _whole_columns(sample: Sample, domain: Domain) -> list[str]:
    """Name the columns whose type says that they hold whole numbers, where their bounds are whole too.

    A column's type is public, as its name is: no value is looked at.
    """
    return [
        column.name
        for column in domain.numeric
        if sample.columns[column.name].dtype.kind in "iu" and is_of_whole_numbers(column)
    ]
