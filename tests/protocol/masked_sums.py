"""What is read of owners who mask sums within them: exact numbers of tables, with normal noise or none."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tacit_protocol.domain import Table
from tacit_protocol.procedures.within_owners.covariances import ReadPairs


def sums_read(plan: Any, tables: Sequence[Table], rng: np.random.Generator | None) -> ReadPairs:
    """Return what a plan reads of the masked sum of all tables; without a generator, without noise."""
    parts = [plan.pairs.parts(plan.pairs.sum(own)) for own in tables]
    found = []
    for place, noise in enumerate(plan.noises):
        exact = np.sum([own[place].sums for own in parts], axis=0) * 2.0**-20
        found.append(exact if rng is None else exact + noise * rng.standard_normal(len(exact)))
    return ReadPairs(plan.pairs.weights, *found, *plan.noises, spread_of=plan.pairs.spread_of)
