"""The covariance that a receiver publishes in peer mode: attacked by neighbours that aim at its sensitivity.

The sender's noisy projections are fixed; one unit of the receiver is replaced. For a receiver of one column
the worst neighbours are known: the unit goes from one end to the other, and every other unit stands at the
end that its entry in the U-centred distances of the projections points to.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from made_studies import SeededNoise
from world import peer_owner, peer_study

from tacit.in_process.samples import ArrayTable, Sample
from tacit_protocol.domain import Domain, NumericColumn, Table
from tacit_protocol.messages.study import Release, Study
from tacit_protocol.privacy.guarantee import Budget
from tacit_protocol.procedures.distance_correlation import DistanceCorrelation, peer
from tacit_protocol.procedures.distance_correlation.peer import OwnCovariance
from tacit_protocol.procedures.relay import combined

Floats = npt.NDArray[np.float64]

PROCEDURE = DistanceCorrelation()
UNITS = 40


def study_of(x: int, y: int, method: str = "pnc", epsilon: float = 20.0, **parameters: Any) -> Study:
    held = {"north": tuple(f"x{i}" for i in range(x)), "south": tuple(f"y{i}" for i in range(y))}
    columns = [NumericColumn(name=name, lower=0.0, upper=1.0) for own in held.values() for name in own]
    fixed = {"mode": "peer", "receiver": "south", "permutations": 99}
    return peer_study(
        publish=True,
        parameters={"method": method, "publish": True} | fixed | parameters,
        domain=Domain(columns=tuple(columns)),
        owners=tuple(peer_owner(name, own) for name, own in held.items()),
        budget=Budget.of(epsilon, 1e-5),
        seed="5a" * 16,
    )


def table(study: Study, side: int, values: Floats) -> Table:
    domain = study.domain_of(study.owners[side])
    columns = {column.name: own for column, own in zip(domain.columns, values.T, strict=True)}
    return ArrayTable.of(Sample(columns), domain, None)


def received(study: Study, seed: int) -> Release:
    rows = np.random.default_rng(seed).random((UNITS, len(study.owners[0].columns or ())))
    return PROCEDURE.privatise(study, PROCEDURE.summarise(study, table(study, 0, rows)), SeededNoise(seed))


def covariance(study: Study, sent: Release, values: Floats) -> OwnCovariance:
    summary = combined(PROCEDURE, study, {"sender": sent}, table(study, 1, values)).summary
    assert isinstance(summary, OwnCovariance)
    return summary


def centred(column: Floats) -> Floats:
    """U-centred distances, entry by entry as defined."""
    n = len(column)
    distances = np.abs(column[:, None] - column)
    rows = distances.sum(axis=1) / (n - 2)
    found = distances - rows[:, None] - rows + distances.sum() / ((n - 1) * (n - 2))
    np.fill_diagonal(found, 0.0)
    return np.asarray(found)


def aimed(study: Study, sent: Release) -> Iterator[tuple[Floats, Floats]]:
    """Yield the worst neighbours of a receiver of one column, for every unit."""
    values = np.array(sent.vectors["projections"].values, dtype=np.float64).reshape(UNITS, -1)
    plan = PROCEDURE.plan(study)
    blocks = plan.blocks(UNITS) if plan.disjoint else np.zeros(UNITS, dtype=np.int64)
    pull = np.zeros((UNITS, UNITS))
    for column in values.T:
        for block in np.unique(blocks):
            own = np.flatnonzero(blocks == block)
            pull[np.ix_(own, own)] += centred(column[own])
    for unit in range(UNITS):
        ends = (pull[unit] > 0).astype(np.float64)[:, None]
        low, high = ends.copy(), ends.copy()
        low[unit], high[unit] = 0.0, 1.0
        yield low, high


def random_corners(study: Study) -> Iterator[tuple[Floats, Floats]]:
    rng = np.random.default_rng(4)
    width = len(study.owners[1].columns or ())
    for _ in range(40):
        low = rng.integers(0, 2, (UNITS, width)).astype(np.float64)
        high = low.copy()
        unit = rng.integers(UNITS)
        high[unit] = 1 - low[unit]
        yield low, high


def reached(study: Study, neighbours: Iterator[tuple[Floats, Floats]], sent: Release) -> float:
    """Return the largest move as a part of the sensitivity, which the receiver's rows do not change."""
    parts, stated = [], set()
    for low, high in neighbours:
        one, other = (covariance(study, sent, values) for values in (low, high))
        stated |= {one.sensitivity, other.sensitivity}
        parts.append(abs(float(one.value - other.value)) / one.sensitivity)
    assert len(stated) == 1
    return max(parts)


def moved(study: Study, sent: Release, pair: tuple[Floats, Floats]) -> float:
    one, other = (covariance(study, sent, values).value for values in pair)
    return abs(float(one - other))


ONE_COLUMN = {
    "pnc, one column": study_of(1, 1),
    "pnc, little noise": study_of(1, 1, epsilon=100.0),
    "pnc, much noise": study_of(1, 1, epsilon=0.1),
    "pnc-disjoint, three columns at the sender": study_of(3, 1, "pnc-disjoint", n_projections=5),
}


@pytest.mark.sweep(1)
@pytest.mark.parametrize("name", ONE_COLUMN)
def test_the_worst_neighbours_reach_the_sensitivity_and_no_more(name: str) -> None:
    study = ONE_COLUMN[name]
    sent = received(study, 1)
    assert 0.999 < reached(study, aimed(study, sent), sent) <= 1


@pytest.mark.sweep(1)
@pytest.mark.parametrize(
    "study",
    [
        study_of(3, 1, n_projections=5),
        study_of(1, 3, n_projections=4),
        study_of(3, 3, n_projections=6),
        study_of(2, 3, "pnc-disjoint", n_projections=4),
    ],
)
def test_several_columns_stay_within_it(study: Study) -> None:
    sent = received(study, 2)
    neighbours = random_corners(study) if len(study.owners[1].columns or ()) > 1 else aimed(study, sent)
    assert 0.02 < reached(study, neighbours, sent) <= 1


@pytest.mark.parametrize("mistake", [0.99, 0.5])
def test_a_sensitivity_that_is_too_small_is_caught(monkeypatch: pytest.MonkeyPatch, mistake: float) -> None:
    genuine = peer.influences
    monkeypatch.setattr(peer, "influences", lambda fixed: genuine(fixed) * mistake)
    study = ONE_COLUMN["pnc, one column"]
    sent = received(study, 1)
    assert reached(study, aimed(study, sent), sent) > 1


def test_the_noise_is_what_the_budget_buys() -> None:
    study = ONE_COLUMN["pnc, one column"]
    own = covariance(study, received(study, 1), np.linspace(0, 1, UNITS)[:, None])
    release = PROCEDURE.privatise(study, own, SeededNoise(9))
    assert release.vectors["covariance"].scale == pytest.approx(
        own.sensitivity / PROCEDURE.plan(study).mu, rel=1e-6
    )
    assert release.guarantee == PROCEDURE.cost(study)


def test_publishing_after_privatising_the_own_variance_alone_is_not_private() -> None:
    """P4's advice: Omega(Y, Y) private, then publish. Omega(X, Y) still moves with one person of Y.

    The sender's release is the same bytes in both worlds, and the receiver's variance is released with noise:
    yet the covariance beside it tells which world it is, without error.
    """
    study = ONE_COLUMN["pnc, one column"]
    sent = received(study, 1)
    low, high = max(aimed(study, sent), key=lambda pair: moved(study, sent, pair))
    assert int((low != high).sum()) == 1
    findings = [
        combined(PROCEDURE, study, {"sender": sent}, table(study, 1, values)).finding
        for values in (low, high)
    ]
    one, other = (finding.model_dump()["distance_covariance_sqr"] for finding in findings)
    # A deterministic function of raw rows: two neighbours, two values, so no epsilon at all.
    assert abs(one - other) > 1e-3
    assert combined(PROCEDURE, study, {"sender": sent}, table(study, 1, low)).finding == findings[0]
