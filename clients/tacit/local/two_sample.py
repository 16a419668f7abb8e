"""The two-sample test in one process: between owners who trust no one, or at their curator."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np
import numpy.typing as npt

from tacit.errors import InputError
from tacit.in_process.runner import Setting, owner_names, run_tables, terms, two_sample_procedure
from tacit.in_process.samples import ArrayTable, Missing, Sample, read_samples, read_tables
from tacit_protocol.domain import Domain
from tacit_protocol.features.mean_embedding import median_distance

if TYPE_CHECKING:
    from tacit.results import CellsTableResult, DecisionResult, JointIndependenceResult, TwoSampleResult

LOCATIONS_DEFAULT = 40
"""Locations taken from a public sample unless told otherwise."""

BANDWIDTH_ROWS_MAX = 1000
"""Public rows from which a bandwidth is found: its median needs no more, and all pairs are compared."""


def public_parameters(
    sample: Sample, domain: Domain, features: str, n_features: int | None, rng: np.random.Generator
) -> Mapping[str, Any]:
    """Choose ME locations, or the SCF bandwidth, from a public sample with the study's columns.

    Raises:
        InputError: the features do not use a public sample.
    """
    if features == "scf":
        return {"bandwidth": _bandwidth(sample, domain, rng)}
    if features != "me":
        raise InputError('a public sample serves features="me" and features="scf"; the others need none')
    count = min(n_features or LOCATIONS_DEFAULT, sample.rows)
    rows = rng.choice(sample.rows, count, replace=False)
    return {"locations": sample.points(domain, rows)}


def _bandwidth(sample: Sample, domain: Domain, rng: np.random.Generator) -> float:
    rows = rng.permutation(sample.rows)[:BANDWIDTH_ROWS_MAX]
    points = np.concatenate([chunk.numeric for chunk in ArrayTable.of(sample.rows_at(rows), domain).chunks()])
    return median_distance(points)


Features = Literal["auto", "columns", "me", "scf", "kernel"]
Calibration = Literal["tight", "paper"]
Null = Literal["auto", "noise-aware", "weighted", "asymptotic"]
Statistic = Literal["auto", "noise-aware", "mmd", "max"]
Noise = Literal["auto", "gaussian", "k-norm"]
Release = Literal["mean-covariance", "statistic", "permutation", "aggregate", "table", "auto"]


@overload
def kernel_two_sample(
    *samples: Any, epsilon: float, delta: float, setting: Literal["curator"], **arguments: Any
) -> "TwoSampleResult | DecisionResult | JointIndependenceResult | CellsTableResult": ...


@overload
def kernel_two_sample(
    *samples: Any,
    epsilon: float,
    delta: float,
    bounds: Any = None,
    columns: Sequence[str] | None = None,
    n_features: int | None = None,
    features: Features = "auto",
    calibration: Calibration = "tight",
    null: Null = "auto",
    statistic: Statistic = "auto",
    noise: Noise = "auto",
    alpha: float = 0.05,
    public: Any = None,
    units: str | Sequence[npt.ArrayLike] | None = None,
    missing: Missing = "refuse",
    seed: int | None = None,
    names: Sequence[str] | None = None,
    setting: Literal["owners"] = "owners",
    **parameters: Any,
) -> "TwoSampleResult": ...


def kernel_two_sample(
    *samples: Any,
    epsilon: float,
    delta: float,
    bounds: Any = None,
    columns: Sequence[str] | None = None,
    n_features: int | None = None,
    features: Features = "auto",
    calibration: Calibration = "tight",
    null: Null = "auto",
    statistic: Statistic = "auto",
    noise: Noise = "auto",
    alpha: float = 0.05,
    public: Any = None,
    units: str | Sequence[npt.ArrayLike] | None = None,
    missing: Missing = "refuse",
    seed: int | None = None,
    names: Sequence[str] | None = None,
    setting: Setting = "owners",
    release: Release | None = None,
    n_permutations: int | None = None,
    **parameters: Any,
) -> "TwoSampleResult | DecisionResult | JointIndependenceResult | CellsTableResult":
    """Test privately whether two or more samples come from one population (Raj et al., corrected).

    Args:
        n_features: number of features J; chosen by the procedure by default.
        features: feature map; "auto" serves most questions. "kernel", the whole kernel and no features, is
            there for ``release="permutation"`` alone.
        calibration: "tight", or "paper" for the published method to the letter.
        null: null distribution; "asymptotic" is a baseline that is not calibrated.
        statistic: form of the statistic.
        noise: of owners who trust no one: "gaussian" on many features, which needs a delta; "k-norm", pure
            epsilon, on few of each column; or "auto", which chooses by the numbers of units and columns,
            epsilon and delta, where features are left at "auto".
        public: a public sample with the same columns, from which the "me" features take their locations and
            the "scf" features their bandwidth.
        setting: "owners": each adds its own noise, and nobody is trusted; "curator": one trusted party holds
            all samples, two of them, and adds noise once, for more power.
        release: what the curator releases: "auto" (the default) is "permutation", whose decision alone is
            private, or by public numbers "aggregate" or "table", with a p-value; "mean-covariance" also says
            by how much columns differ, and is taken where a parameter of it is named; or "statistic".
        n_permutations: of ``release="permutation"``.
        parameters: such as ``bandwidth`` or ``replicates``; at a curator also ``samples``, which pools more
            than two owners' samples into two.

    Other arguments: :mod:`tacit.local`.

    Returns:
        A test; with ``release="permutation"`` a decision, which has neither statistic nor p-value; with
        "aggregate" or "table" a test in pure epsilon.

    Example:
        >>> import numpy as np, tacit.local
        >>> rng = np.random.default_rng(1)
        >>> x, y = rng.normal(0, 1, (20000, 2)), rng.normal(1, 1, (20000, 2))
        >>> result = tacit.local.kernel_two_sample(x, y, epsilon=1, delta=1e-5, bounds=(-5, 5), seed=1)
        >>> result.reject
        True
    """
    at = terms(epsilon, delta, alpha, seed)
    if len(samples) < 2:
        raise InputError("pass at least two samples")
    procedure = two_sample_procedure(setting)
    if release is not None and setting != "curator":
        raise InputError('release= is a choice of the curator: pass setting="curator" with it')
    owners = owner_names(names, len(samples))
    tables = read_tables(samples, columns, units=units, bounds=bounds, missing=missing, names=owners)
    chosen: dict[str, Any] = {
        # What is left at its default is left to the procedure, which need not have such a choice.
        "features": None if features == "auto" else features,
        "statistic": None if statistic == "auto" else statistic,
        "null": None if null == "auto" else null,
        "calibration": None if calibration == "tight" else calibration,
        "noise": None if noise == "auto" else noise,
        "n_features": n_features,
        "release": release,
        "permutations": n_permutations,
    }
    if public is not None:
        domain = tables[0].domain
        sample = read_samples([public], [column.name for column in domain.columns])[0]
        chosen |= public_parameters(sample, domain, features, n_features, np.random.default_rng(seed))
    found: TwoSampleResult | DecisionResult | JointIndependenceResult | CellsTableResult = run_tables(
        procedure, tables, owners, chosen | parameters, at=at, curated=setting == "curator"
    )
    return found
