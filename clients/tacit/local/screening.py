"""Feature screening in one process, between two owners who hold different columns of the same rows."""

from typing import Any, Literal

from tacit.in_process.runner import local_study, run, seed_text
from tacit.local.inputs import Missing, by_argument_names
from tacit.local.two_owners import Units, read_two_owners
from tacit.results import ScreeningResult
from tacit_protocol.messages.study import UnitRows
from tacit_protocol.privacy.noise import OpenDPNoise
from tacit_protocol.procedures.base import Progress
from tacit_protocol.procedures.discovery import procedure_named

OWNERS = ("columns-owner", "outcome-owner")
"""Names of the two owners."""


def screening(
    x: Any,
    y: Any,
    *,
    epsilon: float,
    delta: float,
    control: Literal["by", "bh"] = "by",
    matrix: bool = False,
    n_features: int | None = None,
    n_permutations: int | None = None,
    bounds: Any = None,
    alpha: float = 0.05,
    units: Units | None = None,
    unit_rows: UnitRows = "average",
    missing: Missing = "refuse",
    seed: int | None = None,
    progress: Progress | None = None,
) -> ScreeningResult:
    """Find which of one owner's columns depend on another owner's outcome, privately.

    Args:
        x: one owner's columns: an array (n,) or (n, D), or a column or a table of pandas, Polars or Arrow.
        y: the outcome, or several, of the other owner, over the same rows in the same order, unless ``units``
            holds ids.
        epsilon: budget that every owner spends, greater than 0.
        delta: budget that every owner spends, in (0, 1).
        control: "by", Benjamini and Yekutieli, valid under any dependence; or "bh", Benjamini and Hochberg,
            which finds more and needs p-values that are independent or positively dependent.
        matrix: also estimate the distance correlations of all columns with each other.
        n_features: frequencies of a numeric column; chosen by default.
        n_permutations: random permutations of the tests; by default enough for the number of pairs.
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
        seed: fixes buckets and permutations. Never the noise: two calls differ.
        progress: called with the part done, in [0, 1], and the step.

    Returns:
        A frozen result with the ranked pairs.

    Raises:
        InputError: the columns, the bounds or the ids cannot be used; the message says what to change.
        StudyRefusedError: the procedure does not take these parameters, or so few or so many rows.

    Example:
        >>> import numpy as np, tacit.local
        >>> x = np.random.default_rng(1).random((20_000, 5))
        >>> result = tacit.local.screening(x, x[:, 2], epsilon=4, delta=1e-5, bounds=(0, 1), seed=1)
        >>> [pair.column for pair in result.found]
        ['x.3']
    """
    held = read_two_owners(x, y, bounds, missing, units, unit_rows=unit_rows)
    procedure = procedure_named("screening")
    study = local_study(
        procedure.name,
        held.variables.domain,
        OWNERS,
        {
            "outcome": OWNERS[1],
            "control": control,
            "matrix": matrix,
            "n_features": n_features,
            "permutations": n_permutations,
        },
        epsilon=epsilon,
        delta=delta,
        alpha=alpha,
        seed=seed_text(seed),
        columns=held.variables.groups,
        aligned=held.aligned,
        unit_rows=unit_rows,
    )
    with by_argument_names():
        result = run(procedure, study, held.tables(study), OpenDPNoise(), progress)
    if not isinstance(result, ScreeningResult):
        raise TypeError("screening has a result of another type")
    return result
