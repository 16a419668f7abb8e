"""Does an additive-noise model along a causal graph fit a block? Its residuals, beside those of the model.

Every child is a function of its parents plus noise that is independent of them; where the graph is right,
the roots and all noises are jointly independent (Peters, Mooij, Janzing and Schölkopf 2014). The function is
fitted by ridge regression on powers of numeric parents, their products by two, and indicators of categories.

Residuals of fitted functions depend on each other a little even then. So the statistic of the block is
compared not with those of permuted residuals, but with those of data that the fitted model makes of permuted
residuals, to which functions are fitted anew.
"""

import graphlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tacit_protocol.features.unit_gram import UnitRows

Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int32]

Graph = Mapping[str, Sequence[str]]
"""Parents of every child; columns that are no child are roots."""

DEGREE = 3
"""Highest power of a parent."""

RIDGE = 1e-9
"""Of squared coefficients of standardised terms, for each unit: enough to solve, too little to bias."""

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


@dataclass(frozen=True)
class AdditiveNoise:
    """A graph over the columns of units of one row each: children's places in causal order, with parents'."""

    children: tuple[tuple[int, tuple[int, ...], tuple[int, ...]], ...]
    """Place of a numeric child, and of its numeric and its categorical parents."""

    categories: tuple[int, ...]
    """How many codes each categorical column has."""

    @classmethod
    def of(
        cls, graph: Graph, numeric: Sequence[str], categorical: Sequence[str], categories: Sequence[int]
    ) -> "AdditiveNoise":
        """Read a graph that :func:`require_graph` has passed."""
        order = [name for name in graphlib.TopologicalSorter(graph).static_order() if name in graph]
        return cls(
            tuple(
                (
                    numeric.index(child),
                    tuple(numeric.index(name) for name in graph[child] if name in numeric),
                    tuple(categorical.index(name) for name in graph[child] if name in categorical),
                )
                for child in order
            ),
            tuple(categories),
        )

    def residuals(self, rows: UnitRows) -> UnitRows:
        """Return the units, every child's values replaced by its residuals."""
        return self._fitted(rows)[0]

    def replicates(self, rows: UnitRows, count: int, rng: np.random.Generator) -> list[UnitRows]:
        """Return residuals of data that the fitted model makes of permuted noises, functions fitted anew."""
        noises, functions = self._fitted(rows)
        made = []
        for _ in range(count):
            numeric = rng.permuted(noises.numeric, axis=0)
            categorical = rng.permuted(noises.categorical, axis=0)
            for (child, parents, classes), function in zip(self.children, functions, strict=True):
                numeric[:, child] += function(self._terms(numeric, categorical, parents, classes))
            made.append(self.residuals(UnitRows(numeric, categorical, rows.starts)))
        return made

    def _fitted(self, rows: UnitRows) -> tuple[UnitRows, list[Callable[[Floats], Floats]]]:
        noises, functions = rows.numeric.copy(), []
        for child, parents, classes in self.children:
            known = self._terms(rows.numeric, rows.categorical, parents, classes)
            function = fit(known, rows.numeric[:, child])
            noises[:, child] -= function(known)
            functions.append(function)
        return UnitRows(noises, rows.categorical, rows.starts), functions

    def _terms(
        self, numeric: Floats, categorical: Codes, parents: tuple[int, ...], classes: tuple[int, ...]
    ) -> Floats:
        counts = [self.categories[place] for place in classes]
        return terms(numeric[:, parents], categorical[:, classes], counts)


def terms(numeric: Floats, categorical: Codes, categories: Sequence[int]) -> Floats:
    """Return the terms of a regression, (rows, terms): as many whatever the rows."""
    found = [numeric**power for power in range(1, DEGREE + 1)]
    found += [numeric[:, first : first + 1] * numeric[:, first + 1 :] for first in range(numeric.shape[1])]
    for codes, count in zip(categorical.T, categories, strict=True):
        found.append((codes[:, None] == np.arange(count)).astype(np.float64))
    return np.concatenate(found, axis=1)


def fit(known: Floats, response: Floats) -> Callable[[Floats], Floats]:
    """Return the fitted function of terms, (rows, terms) to (rows,)."""
    center, spread, mean = known.mean(axis=0), known.std(axis=0), float(response.mean())

    def standardised(values: Floats) -> Floats:
        scaled = (values - center) / np.where(spread > 0, spread, 1.0)
        return np.asarray(np.clip(scaled, -EXTRAPOLATION, EXTRAPOLATION))

    scaled_terms = standardised(known)
    penalty = RIDGE * len(response) * np.eye(scaled_terms.shape[1])
    slopes = np.linalg.solve(scaled_terms.T @ scaled_terms + penalty, scaled_terms.T @ (response - mean))
    return lambda values: mean + standardised(values) @ slopes
