"""Points that are drawn from the sender's own noisy histograms: what depends on what, and what is refused."""

from typing import Any

import numpy as np
import pytest
from two_sample_cases import MemoryTable, NoNoise, SeededNoise, domain_of, study_of

from tacit_protocol.domain.columns import Domain
from tacit_protocol.features.column_histograms import ColumnHistograms
from tacit_protocol.features.moments import MEAN
from tacit_protocol.messages.release import Release
from tacit_protocol.messages.study import Study
from tacit_protocol.privacy.accounting import fits
from tacit_protocol.privacy.guarantee import Budget, GaussianEvent, LaplaceEvent
from tacit_protocol.privacy.noise import OpenDPNoise
from tacit_protocol.procedures.base import StudyError, check_release, reread
from tacit_protocol.procedures.embedding_release import EmbeddingRelease, features_of, plan_of
from tacit_protocol.procedures.embedding_release.release import HISTOGRAMS
from tacit_protocol.procedures.kernel_two_sample import KernelTwoSample

PROCEDURE = EmbeddingRelease()
MIXED = domain_of(2, (4,))
FEW: dict[str, Any] = {"n_points": 20, "n_bins": 5}
CELLS = 2 * (5 + 3) + 4


def asked(domain: Domain = MIXED, owners: int = 1, reuses: str | None = None, **parameters: Any) -> Study:
    study = study_of(domain, parameters, owners=owners).model_copy(update={"procedure": PROCEDURE.name})
    named = tuple(owner.model_copy(update={"reuses": reuses}) for owner in study.owners)
    return study.model_copy(update={"owners": named})


def table(rows: int = 500, seed: int = 3) -> MemoryTable:
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 2, (rows, 1)).astype(np.int32)
    return MemoryTable(MIXED, rng.random((rows, 2)), codes)


def release_of(study: Study, noise: Any, data: Any = None) -> Release:
    return PROCEDURE.privatise(study, PROCEDURE.summarise(study, data or table()), noise)


def without_delta(study: Study) -> Study:
    return study.model_copy(update={"budget": Budget.of(1.0, 0.0)})


class Showing(NoNoise):
    """Shows the same histograms whatever the data, and the mean without noise."""

    def __init__(self, shown: tuple[int, ...]) -> None:
        self._shown = list(shown)

    def gaussian(self, values: Any, scale: float) -> Any:
        if self._shown:
            shown, self._shown = np.array(self._shown), []
            return shown
        return values.copy()


def test_without_noise_the_release_is_the_histograms_and_the_mean_on_points_drawn_from_them() -> None:
    study = asked(**FEW)
    PROCEDURE.check(study)
    release = release_of(study, NoNoise())
    check_release(PROCEDURE, study, release)
    verdict = PROCEDURE.assemble(study, {"o0": release})
    assert PROCEDURE.numbers_released(study) == CELLS + 20
    (chunk,) = table().chunks()
    shares = ColumnHistograms(MIXED, 5).indicators(chunk).mean(axis=0)
    assert verdict.histograms is not None
    assert verdict.drawn_points is not None
    found = np.concatenate([verdict.histograms["o0"][column.name] for column in MIXED.columns])
    assert found == pytest.approx(shares, abs=1e-6)
    features = features_of(study, release)
    assert np.array(verdict.embedding["o0"]) == pytest.approx(features(chunk).mean(axis=0), abs=1e-6)
    assert (len(verdict.drawn_points["o0"]), verdict.points, verdict.bins) == (20, (), 5)
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
    summary = PROCEDURE.adapt(study, PROCEDURE.summarise(study, table()), OpenDPNoise())
    one, again = (PROCEDURE.privatise(study, summary, OpenDPNoise()) for _ in range(2))
    assert one.vectors[HISTOGRAMS] == again.vectors[HISTOGRAMS]
    assert one.vectors[MEAN] != again.vectors[MEAN]
    check_release(PROCEDURE, study, one)
    assert "noisy" not in repr(summary), "nothing of it gets into a log"


def test_histograms_and_mean_share_mu_squared() -> None:
    """sqrt(2 d)/n for the first, at most sqrt 2/n for the second; the ledger's events cost the budget."""
    study = asked(**FEW, histogram_share=0.4)
    cost = PROCEDURE.cost(study)
    multiplier = next(e for e in cost.events if isinstance(e, GaussianEvent)).noise_multiplier
    assert fits(cost.events, study.budget)
    release = release_of(study, SeededNoise(1))
    scales = {name: vector.scale for name, vector in release.vectors.items()}
    assert scales[HISTOGRAMS] == pytest.approx(np.sqrt(6 / 0.4) * multiplier, rel=1e-6)
    assert scales[HISTOGRAMS] >= np.sqrt(6 / 0.4) * multiplier
    assert scales[MEAN] == pytest.approx(np.sqrt(2 / 0.6) * multiplier, rel=1e-3)
    assert release.guarantee == cost


def test_without_delta_epsilon_is_shared() -> None:
    study = without_delta(asked(**FEW))
    first, second = PROCEDURE.cost(study).events
    assert isinstance(first, LaplaceEvent)
    assert isinstance(second, LaplaceEvent)
    assert 1 / first.noise_multiplier == pytest.approx(0.25)
    assert 1 / second.noise_multiplier == pytest.approx(0.75)
    assert fits(PROCEDURE.cost(study).events, study.budget)
    release = release_of(study, OpenDPNoise())
    check_release(PROCEDURE, study, release)
    assert release.vectors[HISTOGRAMS].scale == pytest.approx(2 * 3 / 0.25)
    assert release.vectors[MEAN].scale == pytest.approx(np.sqrt(20) * np.sqrt(2) / 0.75, rel=1e-3)
    verdict = PROCEDURE.assemble(study, {"o0": release})
    assert verdict.noise_law == "laplace"
    assert verdict.histogram_noise is not None
    assert verdict.histogram_noise["o0"] == pytest.approx(np.sqrt(2) * 24 / 500)


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"placement": "uniform", "n_bins": 5}, "n_bins has no effect"),
        ({"points": [[0.1, 0.2, "l0"]], "histogram_share": 0.5}, "histogram_share has no effect"),
        ({"points": [[0.1, 0.2, "l0"]], "placement": "histograms"}, "neither counted nor placed"),
        ({"method": "random-features", "placement": "histograms"}, "method subspace alone"),
        ({"method": "exponential", "candidate_rows": 2, "placement": "histograms"}, "method subspace alone"),
        ({"histogram_share": 1.0}, "histogram_share"),
        ({"n_bins": 0}, "n_bins"),
    ],
)
def test_studies_that_cannot_be_run_are_refused(parameters: dict[str, Any], words: str) -> None:
    with pytest.raises(StudyError, match=words):
        PROCEDURE.check(asked(**parameters))


def test_a_verdict_has_room_for_every_owners_points() -> None:
    counts = [
        PROCEDURE.numbers_released(asked(domain_of(columns), owners, n_bins=1)) - columns * 4
        for columns, owners in ((1, 1), (3, 1), (10, 1), (100, 1), (100, 2), (1000, 1))
    ]
    assert counts == [100, 300, 500, 200, 100, 20]
    with pytest.raises(StudyError, match="more than 20000 values"):
        PROCEDURE.check(asked(domain_of(100), n_points=201))
    with pytest.raises(StudyError, match="fewer points or bins"):
        PROCEDURE.check(asked(domain_of(40), n_bins=1000))
    with pytest.raises(StudyError, match="drawn from each sender's release"):
        features_of(asked())
    with pytest.raises(StudyError, match="drawn from its own histograms"):
        plan_of(asked())


def test_a_study_with_the_same_seed_reads_it_again_as_it_is() -> None:
    source = asked(**FEW)
    made = release_of(source, SeededNoise(1))
    study = asked(reuses="a" * 64, **FEW)
    assert reread(PROCEDURE, study, study.owners[0], source, made).vectors == made.vectors
    for other, words in (
        (study.model_copy(update={"seed": "9" * 32}), "another seed"),
        (asked(reuses="a" * 64, **FEW | {"n_bins": 6}), "another n_bins"),
        (asked(reuses="a" * 64, n_points=20, placement="uniform"), "state points"),
    ):
        with pytest.raises(StudyError, match=words):
            reread(PROCEDURE, other, other.owners[0], source, made)


def test_it_enters_no_two_sample_study_and_the_refusal_says_what_to_do() -> None:
    source = asked(n_points=12, bandwidth=0.4)
    made = release_of(source, SeededNoise(1))
    two = study_of(MIXED, {"features": "me", "n_features": 12, "bandwidth": 0.4}, owners=2)
    owners = (two.owners[0].model_copy(update={"reuses": "a" * 64}), two.owners[1])
    two = two.model_copy(update={"owners": owners})
    with pytest.raises(StudyError, match="state points"):
        reread(KernelTwoSample(), two, two.owners[0], source, made, lender=PROCEDURE)
