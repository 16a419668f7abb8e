"""Residuals of an additive-noise model along a causal graph, fitted and read on different units of a block.

Every child is a function of its parents plus noise that is independent of them; where the graph is right,
the roots and all noises are jointly independent (Peters, Mooij, Janzing and Schölkopf 2014). The function is
fitted by ridge regression on powers of numeric parents, their products by two, and indicators of categories.
"""

import graphlib
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from tacit_protocol.features.unit_gram import UnitRows

Floats = npt.NDArray[np.float64]

Graph = Mapping[str, Sequence[str]]
"""Parents of every child; columns that are no child are roots."""

FITTED_PART = 0.75
"""Part of a block's units that functions are fitted on; the others' residuals are tested."""

DEGREE = 3

RIDGE = 1e-3
"""Of the squared coefficients of standardised terms, for each fitted unit."""


EXTRAPOLATION = 4.0
"""Terms beyond so many standard deviations of the fitted units' count as that."""


class GraphError(ValueError):
    """The graph cannot be checked; the message says which rule it breaks."""


def require_graph(graph: Graph, numeric: Sequence[str], categorical: Sequence[str]) -> None:
    """Raise GraphError unless the graph's columns are known, its children numeric, and it has no circle."""
    columns = {*numeric, *categorical}
    if not set(graph) <= set(numeric):
        raise GraphError("parameter graph: children must be numeric columns of the study")
    if not graph or any(not parents or len(set(parents)) != len(parents) for parents in graph.values()):
        raise GraphError("parameter graph: give each child one parent or more, each once; leave roots out")
    if not all(set(parents) <= columns for parents in graph.values()):
        raise GraphError("parameter graph: parents must be columns of the study")
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError:
        raise GraphError("parameter graph: it has a circle") from None


def residual_rows(
    rows: UnitRows, graph: Graph, numeric: Sequence[str], categorical: Sequence[str]
) -> UnitRows:
    """Return the last units of a block, every child's values replaced by its residuals.

    The functions are fitted on the first ``FITTED_PART``. Units have one row each, in random order.
    """
    fitted = int(FITTED_PART * rows.units)
    kept = rows.numeric[fitted:].copy()
    for child, parents in graph.items():
        design = _design(
            rows,
            [numeric.index(name) for name in parents if name in numeric],
            [categorical.index(name) for name in parents if name in categorical],
        )
        place = numeric.index(child)
        kept[:, place] -= _predicted(design, rows.numeric[:fitted, place])[fitted:]
    return UnitRows(kept, rows.categorical[fitted:], np.arange(len(kept) + 1))


def _design(rows: UnitRows, numeric: list[int], categorical: list[int]) -> Floats:
    """Return the terms of a regression, (rows, terms)."""
    values = rows.numeric[:, numeric]
    terms = [values**power for power in range(1, DEGREE + 1)]
    for first in range(len(numeric)):
        terms.append(values[:, first : first + 1] * values[:, first + 1 :])
    for place in categorical:
        codes = rows.categorical[:, place]
        terms.append((codes[:, None] == np.unique(codes)[None, :]).astype(np.float64))
    return np.concatenate(terms, axis=1)


def _predicted(design: Floats, response: Floats) -> Floats:
    """Fit the first rows, as many as there are responses, and return the prediction of all, (rows,)."""
    fitted = design[: len(response)]
    center, spread = fitted.mean(axis=0), fitted.std(axis=0)
    terms = np.clip((design - center) / np.where(spread > 0, spread, 1.0), -EXTRAPOLATION, EXTRAPOLATION)
    known = terms[: len(response)]
    penalty = RIDGE * len(response) * np.eye(terms.shape[1])
    slopes = np.linalg.solve(known.T @ known + penalty, known.T @ (response - response.mean()))
    return np.asarray(response.mean() + terms @ slopes)
