"""A private database, its points stated or drawn from histograms: noise, checks, means read again."""

from typing import Any

import made_studies
import numpy as np
import pytest
from made_studies import Drawing
from two_sample_cases import MemoryTable, NoNoise, SeededNoise, domain_of, releases_of, study_of

from tacit_protocol.domain import Domain, PooledTable
from tacit_protocol.features.moments import MEAN
from tacit_protocol.messages.study import Party, Release, Study
from tacit_protocol.privacy.noise import OpenDPNoise
from tacit_protocol.procedures.base import (
    ReleaseError,
    StudyError,
    check_release,
    check_study,
    planned,
    reread,
)
from tacit_protocol.procedures.embedding_release import EmbeddingRelease, features_of
from tacit_protocol.procedures.embedding_release.release import HISTOGRAMS

PROCEDURE = EmbeddingRelease()
MIXED = domain_of(2, (4,))


def asked(domain: Domain = MIXED, owners: int = 1, reuses: str | None = None, **parameters: Any) -> Study:
    study = study_of(domain, parameters, owners=owners).model_copy(update={"procedure": PROCEDURE.name})
    named = tuple(owner.model_copy(update={"reuses": reuses}) for owner in study.owners)
    return study.model_copy(update={"owners": named})


def table(rows: int = 500, seed: int = 3) -> MemoryTable:
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 2, (rows, 1)).astype(np.int32)
    return MemoryTable(MIXED, rng.random((rows, 2)), codes)


FOURIER: dict[str, Any] = {"method": "random-features", "n_frequencies": 30}
CHOSEN: dict[str, Any] = {"method": "exponential", "candidate_rows": 2, "n_points": 6}


FEW: dict[str, Any] = {"n_points": 20, "n_bins": 5}
"""Points that are drawn from histograms."""


def release_of(study: Study, noise: Any, data: Any = None) -> Release:
    return made_studies.release_of(PROCEDURE, study, data or table(), noise)


ME: dict[str, Any] = {"features": "me", "n_features": 12, "bandwidth": 0.4}
SAME: dict[str, Any] = {"n_points": 12, "placement": "middle", "bandwidth": 0.4}


def test_the_mean_of_a_two_sample_release_is_a_database() -> None:
    """One primitive: the points are the test's locations, and the noise is the mean's own."""
    source = study_of(MIXED, ME, owners=2)
    made = releases_of(source, [table(), table()], SeededNoise(7))["o0"]
    study = asked(reuses="a" * 64, **SAME)
    found = reread(PROCEDURE, study, study.owners[0], source, made)
    verdict = PROCEDURE.assemble(study, {"o0": found})
    assert np.array(verdict.embedding["o0"]) == pytest.approx(made.vectors["mean"].mean(500))
    assert verdict.noise["o0"] == made.vectors["mean"].scale / 500
    assert any("read again" in warning for warning in verdict.warnings)
    with pytest.raises(ReleaseError):  # what an owner sends has the study's own noise
        check_release(PROCEDURE, study, found)


@pytest.mark.parametrize(
    ("theirs", "ours", "words"),
    [
        ({}, SAME, "features me"),
        (ME, SAME | {"placement": "uniform"}, "other points"),
        (ME, SAME | {"n_points": 13}, "other points"),
        (ME, SAME | {"bandwidth": 0.5}, "another bandwidth"),
        (ME | {"category_similarity": 0.1}, SAME, "another category_similarity"),
    ],
)
def test_the_mean_of_other_features_is_no_such_database(
    theirs: dict[str, Any], ours: dict[str, Any], words: str
) -> None:
    source = study_of(MIXED, theirs, owners=2)
    made = releases_of(source, [table(), table()], SeededNoise(7))["o0"]
    study = asked(reuses="a" * 64, **ours)
    with pytest.raises(StudyError, match=words):
        reread(PROCEDURE, study, study.owners[0], source, made)


def test_the_likeliest_candidate_is_the_nearest_to_the_data() -> None:
    study = asked(**CHOSEN)
    verdict = PROCEDURE.assemble(study, {"o0": release_of(study, Drawing())})
    plan = PROCEDURE.plan(study)
    (chunk,) = table().chunks()
    mean, points = features_of(study)(chunk).mean(axis=0), plan.at
    apart = np.linalg.norm(plan.choices.weights @ points - mean, axis=1)
    assert verdict.chosen == {"o0": int(np.argmin(apart))}
    assert np.array(verdict.weights["o0"]) @ points == pytest.approx(np.array(verdict.embedding["o0"]))


def test_a_curator_releases_one_database_of_all_its_owners_units() -> None:
    curator = Party(name="curator", key="c" * 64)
    study = asked(owners=2, n_points=9, placement="uniform").model_copy(update={"curator": curator})
    check_study(PROCEDURE, study)
    pool = PooledTable(MIXED, {"o0": table(300), "o1": table(200)})
    release = release_of(study, NoNoise(), pool)
    assert release.units_by_owner == {"o0": 300, "o1": 200}
    verdict = PROCEDURE.assemble(study, {"curator": release})
    stacked = np.concatenate([features_of(study)(next(t.chunks())) for t in pool.parts.values()])
    assert np.array(verdict.embedding["curator"]) == pytest.approx(stacked.mean(axis=0), abs=1e-6)


@pytest.mark.parametrize(
    ("parameters", "other", "words"),
    [
        (FEW, {"n_bins": 6}, "another n_bins"),
        (FEW, {"n_bins": None, "placement": "uniform"}, "state points"),
        (FOURIER, {"noise": "laplace"}, "another noise"),
        (CHOSEN, {"candidate_rows": 3}, "another candidate_rows"),
    ],
)
def test_a_database_is_read_again_as_it_is(
    parameters: dict[str, Any], other: dict[str, Any], words: str
) -> None:
    source = asked(**parameters)
    made = release_of(source, Drawing())
    study = asked(reuses="a" * 64, **parameters)
    found = reread(PROCEDURE, study, study.owners[0], source, made)
    assert (found.vectors, found.choice) == (made.vectors, made.choice)
    changed = {name: value for name, value in (parameters | other).items() if value is not None}
    for later, reason in (
        (study.model_copy(update={"seed": "9" * 32}), "seed"),
        (asked(reuses="a" * 64, **changed), words),
    ):
        with pytest.raises(StudyError, match=reason):
            reread(PROCEDURE, later, later.owners[0], source, made)


class Showing(NoNoise):
    """Shows the same histograms whatever the data, and the mean without noise."""

    def __init__(self, shown: tuple[int, ...]) -> None:
        self._shown = list(shown)

    def gaussian(self, values: Any, scale: float) -> Any:
        if self._shown:
            shown, self._shown = np.array(self._shown), []
            return shown
        return values.copy()


def test_without_noise_the_release_is_the_mean_on_points_drawn_from_the_histograms() -> None:
    study = asked(**FEW)
    release = release_of(study, NoNoise())
    verdict = PROCEDURE.assemble(study, {"o0": release})
    (chunk,) = table().chunks()
    exact = features_of(study, release)(chunk).mean(axis=0)
    assert np.array(verdict.embedding["o0"]) == pytest.approx(exact, abs=1e-6)
    assert {row[2] for row in verdict.drawn_points["o0"]} == {"l0", "l1"}, "no other category was seen"


def test_points_depend_on_the_data_through_the_noisy_histograms_alone() -> None:
    """Same noisy histograms, other data: the same points; other noise on the same data: others."""
    study = asked(**FEW)
    shown = release_of(study, SeededNoise(1)).vectors[HISTOGRAMS].values
    one, other = (release_of(study, Showing(shown), table(seed=seed)) for seed in (3, 4))
    first, second = (PROCEDURE.assemble(study, {"o0": release}) for release in (one, other))
    assert first.drawn_points == second.drawn_points
    assert first.embedding != second.embedding
    again = PROCEDURE.assemble(study, {"o0": release_of(study, SeededNoise(2))})
    assert first.drawn_points != again.drawn_points


def test_histograms_noise_is_drawn_once_where_data_are_read_before_the_budget_is_spent() -> None:
    """The agent's way: adapt outside of the ledger's transaction, which may have to be tried again."""
    study = asked(**FEW)
    summary = planned(PROCEDURE, study).adapt(PROCEDURE.summarise(study, table()), OpenDPNoise())
    one, again = (PROCEDURE.privatise(study, summary, OpenDPNoise()) for _ in range(2))
    assert one.vectors[HISTOGRAMS] == again.vectors[HISTOGRAMS]
    assert one.vectors[MEAN] != again.vectors[MEAN]
    check_release(PROCEDURE, study, one)
    assert "noisy" not in repr(summary), "nothing of it gets into a log"
