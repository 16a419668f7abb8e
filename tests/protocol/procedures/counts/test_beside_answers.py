"""Tables of one owner's answers and another's cells: independence, strata, survival; what is refused."""

import functools
from typing import Any

import numpy as np
import pandas as pd
import pytest
from made_studies import made_study
from two_sample_cases import MemoryTable

import tacit.local
from tacit.errors import InputError
from tacit.in_process.runner import in_two_rounds
from tacit_protocol.domain import CategoricalColumn, Domain, NumericColumn
from tacit_protocol.messages.study import Study
from tacit_protocol.numerics.noisy_tables import CellNoise, NoisyTable
from tacit_protocol.numerics.randomised_tables import AnsweredTable, table_estimates
from tacit_protocol.privacy.noise import OpenDPNoise
from tacit_protocol.privacy.randomised_response import mixing, retention
from tacit_protocol.procedures.base import check_study
from tacit_protocol.procedures.counts.stratified import SCORES, fourfold
from tacit_protocol.procedures.discovery import procedure_named
from tacit_protocol.procedures.relay import conclude, relay_of
from tacit_protocol.procedures.stratified_table import by_answer
from tacit_protocol.procedures.survival import Times, curve, curves, hazard_ratio, restricted_mean

ARM = CategoricalColumn(name="arm", levels=("usual", "new"))
SICK = CategoricalColumn(name="sick", levels=("no", "yes"))
WARD = CategoricalColumn(name="ward", levels=("a", "b", "c"))
MONTHS = NumericColumn(name="months", lower=0.0, upper=12.0)
DOMAINS = {
    "independence_table": (ARM, SICK, WARD),
    "stratified_table": (ARM, SICK, WARD),
    "survival": (ARM, MONTHS, SICK),
}
PARAMETERS: dict[str, dict[str, Any]] = {
    "independence_table": {"replicates": 999, "unlisted": "last"},
    "stratified_table": {"replicates": 999, "group": "arm", "outcome": "sick"},
    "survival": {"replicates": 999, "cuts": {"months": [3.0, 6.0, 9.0]}, "group": "arm", "event": "sick"},
}
PROCEDURES = tuple(DOMAINS)


# Effects: what the answers' randomness does to them is taken out, and counted.


def answered(rng: np.random.Generator, cells: np.ndarray, n: int, epsilon: float) -> tuple[np.ndarray, float]:
    """Noisy counts (k, m) of answers and cells of n units with those probabilities (k, m) of groups'."""
    groups = len(cells)
    kept = retention(round(epsilon * 1e6), groups)
    law = mixing(groups, kept) @ cells
    counts = rng.multinomial(n, law.ravel()).reshape(cells.shape)
    return counts + rng.laplace(0, 2 / epsilon, cells.shape), kept


@pytest.mark.sweep(1)
@pytest.mark.parametrize("kind", SCORES)
@pytest.mark.parametrize("epsilon", [1.0, 3.0])
def test_intervals_of_effects_cover_in_the_smallest_of_three_groups(kind: str, epsilon: float) -> None:
    """300 studies: under 267 covered has probability below 1e-4 at 95 %."""
    rng, covered = np.random.default_rng(1), 0
    risks, sizes = np.array([0.2, 0.3, 0.4]), np.array([0.5, 0.3, 0.2])
    cells = np.stack([sizes * (1 - risks), sizes * risks], axis=1)
    truth = {"risk difference": 0.2, "risk ratio": 2.0, "odds ratio": 0.4 / 0.6 / 0.25}[kind]
    for _ in range(300):
        counts, kept = answered(rng, cells, 4000, epsilon)
        tables, noise = fourfold(counts[None], np.array([8 / epsilon**2]), range(3), 1)
        found = by_answer(kind, 3, kept, (2, 0)).estimate(tables, noise, 0.05)
        covered += (found.lower is None or found.lower <= truth) and (
            found.upper is None or found.upper >= truth
        )
    assert covered >= 267


def test_effects_of_answers_are_not_taken_for_effects_of_groups() -> None:
    """Planted: who reads the answers as if they were the groups covers nothing."""
    rng, raw = np.random.default_rng(2), 0
    for _ in range(100):
        counts, _ = answered(rng, np.array([[0.35, 0.15], [0.15, 0.35]]), 4000, 1.0)
        found = SCORES["risk difference"].estimate(*fourfold(counts[None], np.array([8.0]), (1, 0), 1), 0.05)
        raw += found.lower is not None and found.upper is not None and found.lower <= 0.4 <= found.upper
    assert raw < 5


def test_what_cells_add_with_themselves_is_taken_off() -> None:
    """40 000 small tables: the score's mean is 0 within 5 standard errors, and without that it is far off."""
    rng, draws, n, epsilon = np.random.default_rng(5), 40_000, 100, 0.5
    cells, kept = np.array([[0.15, 0.35], [0.35, 0.15]]), retention(500_000, 2)  # events, others
    score, truth = by_answer("risk difference", 2, kept, (1, 0)), np.array([0.4])
    counts = rng.multinomial(n, (mixing(2, kept) @ cells).ravel(), draws).reshape(draws, 1, 4)
    counts = counts + rng.laplace(0, 2 / epsilon, counts.shape)
    variances = np.full((1, 4), 8 / epsilon**2)
    weights = 1 / (np.maximum(counts.sum(axis=-1), 1.0) + variances.sum())
    found = (score.at(counts, variances, truth)[0] / weights)[:, 0]
    form = score.top - truth[0] * score.bottom
    plain = (np.einsum("nsi,ij,nsj->ns", counts, form, counts) / 2)[:, 0]
    assert abs(found.mean()) < 5 * found.std() / np.sqrt(draws)
    assert abs(plain.mean()) > 20 * plain.std() / np.sqrt(draws)


def times(ratio: float, share: float) -> np.ndarray:
    """Probabilities (2, 4, 2) of four intervals: hazard .2, and its ratio in the second group."""
    laws = []
    for hazard in (0.2, 1 - 0.8**ratio):
        left, law = 1.0, []
        for place in range(4):
            event = left * hazard
            censored = (left - event) * (1.0 if place == 3 else 0.1)
            law.append((event, censored))
            left -= event + censored
        laws.append(law)
    return np.array(laws) * np.array([1 - share, share])[:, None, None]


@pytest.mark.long
def test_hazard_ratios_and_curves_of_groups_are_covered() -> None:
    """200 studies: under 174 covered has probability below 1e-4 at 95 %."""
    rng, edges = np.random.default_rng(3), np.arange(5.0)
    cells = times(1.5, 0.4)
    truth = curve(cells[1] * 1e6)
    ratios = means = 0
    for run in range(200):
        counts, kept = answered(rng, cells.reshape(2, 8), 5000, 1.0)
        table = NoisyTable(counts.ravel(), 5000, (CellNoise("laplace", 2.0),))
        own = Times(table, np.arange(16).reshape(1, 2, 4, 2))
        found = hazard_ratio(own.counts, own.variances, (1, 0), 0.05, kept=kept)
        ratios += (found.lower is None or found.lower <= 1.5) and (found.upper is None or found.upper >= 1.5)
        own_curve = curves([own], edges, 0.05, np.random.SeedSequence(run), kept=kept)[1]
        _, low, high = own_curve.restricted_mean
        means += low <= float(restricted_mean(truth, edges)) <= high
    assert min(ratios, means) >= 174


def test_cramers_v_of_groups_is_covered() -> None:
    """200 studies: under 174 covered has probability below 1e-4 at 95 %."""
    rng, covered = np.random.default_rng(4), 0
    cells = np.array([[0.24, 0.1, 0.06], [0.1, 0.2, 0.1], [0.03, 0.07, 0.1]])
    fitted = np.outer(cells.sum(axis=1), cells.sum(axis=0))
    truth = np.sqrt(np.sum((cells - fitted) ** 2 / fitted) / 2)
    for _ in range(200):
        kept = retention(1_000_000, 3)
        exact = rng.multinomial(3000, (mixing(3, kept) @ cells).ravel()).reshape(3, 3)
        noisy = exact + rng.laplace(0, 2.0, (3, 3))
        table = AnsweredTable(noisy, exact.sum(axis=1), (kept, 1.0), (False, False), 2.0)
        found = table_estimates(table, 0.95).cramers_v
        covered += found is None or found.lower <= truth <= found.upper
    assert covered >= 174


# The procedures.


def asked(name: str, **changes: Any) -> Study:
    columns = DOMAINS[name]
    fields: dict[str, Any] = {
        "owners": ["clinic", "registry"],
        "held": [["arm"], [column.name for column in columns[1:]]],
        "epsilon": 3.0,
        "delta": 0.0,
        "units": 6000,
    } | changes
    return made_study(name, Domain(columns=columns), PARAMETERS[name] | fields.pop("more", {}), **fields)


def tables(name: str, n: int = 6000) -> dict[str, MemoryTable]:
    """In the new arm twice as many are sick, and the sooner; wards are of no matter."""
    rng = np.random.default_rng(7)
    arm = rng.integers(0, 2, n).astype(np.int32)
    sick = (rng.random(n) < np.where(arm == 1, 0.6, 0.3)).astype(np.int32)
    months = np.clip(rng.exponential(np.where(arm == 1, 0.4, 0.8)), 0, 1)
    ward = rng.integers(0, 3, n).astype(np.int32)
    held = {"sick": sick, "ward": ward}
    own = Domain(columns=DOMAINS[name][1:])
    codes = np.stack([held[column.name] for column in own.categorical], axis=1)
    numeric = months[:, None] if own.numeric else np.zeros((n, 0))
    return {
        "clinic": MemoryTable(Domain(columns=(ARM,)), np.zeros((n, 0)), arm[:, None]),
        "registry": MemoryTable(own, numeric, codes),
    }


@functools.cache
def played(name: str) -> tuple[Study, dict[str, Any], Any]:
    procedure, study = procedure_named(name), asked(name)
    check_study(procedure, study)
    relay = relay_of(procedure, study)
    assert (relay.sender.name, relay.receiver.name) == ("clinic", "registry")
    releases = in_two_rounds(procedure, relay, study, tables(name), OpenDPNoise())
    return study, releases, conclude(procedure, study, releases, {})


@pytest.mark.parametrize("name", PROCEDURES)
def test_a_study_of_two_rounds_finds_what_goes_with_the_group(name: str) -> None:
    study, releases, verdict = played(name)
    procedure: Any = procedure_named(name)
    assert type(verdict) is procedure.verdict_type(study)
    assert verdict.reject
    assert verdict.units == {"clinic": 6000, "registry": 6000}
    assert any("randomised answer of clinic" in words for words in verdict.warnings)
    assert any("matched by their order" in words for words in verdict.warnings)
    assert list(verdict.counts) == ["registry"]
    assert procedure.null(study, verdict.model_dump(), releases) is not None
    assert procedure.null(study, verdict.model_dump(), {}) is not None
    procedure.panels(study, verdict.model_dump(mode="json"), releases)


def test_effects_are_those_of_the_groups() -> None:
    """Estimates are far within six standard errors of what was drawn."""
    effects = {effect.kind: effect for effect in played("stratified_table")[2].effects}
    assert abs(effects["risk difference"].estimate - 0.3) < 0.15
    assert effects["odds ratio"].groups == ("new", "usual")
    assert played("stratified_table")[2].effects_by_owner == ()
    assert played("stratified_table")[2].heterogeneity_pvalue is None
    pairs = {pair.names: pair for pair in played("independence_table")[2].pairs}
    assert pairs["arm", "sick"].lower < 0.3 < pairs["arm", "sick"].upper + 0.05
    assert pairs["arm", "sick"].cramers_v > pairs["arm", "ward"].cramers_v
    usual, new = played("survival")[2].curves
    assert (usual.group, new.group) == ("usual", "new")
    assert new.restricted_mean < usual.restricted_mean
    assert played("survival")[2].effects[0].estimate > 1.3


# In one process.


def rows(n: int = 4000) -> tuple[Any, pd.DataFrame]:
    rng = np.random.default_rng(8)
    arm = rng.choice(["usual", "new"], n)
    sick = np.where(rng.random(n) < np.where(arm == "new", 0.7, 0.3), "yes", "no")
    months = np.clip(rng.exponential(np.where(arm == "new", 4.0, 9.0)), 0, 12)
    released = tacit.local.randomise_column(pd.Series(arm, name="arm"), epsilon=3, bounds=["usual", "new"])
    return released, pd.DataFrame({"sick": sick, "months": months})


def test_tacit_local_takes_a_randomised_column_for_tables_strata_and_curves() -> None:
    released, frame = rows()
    levels = {"sick": ["no", "yes"]}
    table = tacit.local.independence_table(
        released, frame["sick"], bounds=["no", "yes"], epsilon=3, unlisted="last", seed=1
    )
    assert table.reject
    assert table.interval[0] < 0.4 < table.interval[1] + 0.06
    strata = tacit.local.stratified_table(frame[["sick"]], group=released, bounds=levels, epsilon=3, seed=1)
    assert strata.reject
    assert strata.effects[0].groups == ("new", "usual")
    followed = tacit.local.survival(
        frame,
        time="months",
        event="sick",
        intervals=[0, 3, 6, 12],
        bounds=levels,
        group=released,
        epsilon=3,
        seed=1,
    )
    assert followed.reject
    assert [own.group for own in followed.curves] == ["usual", "new"]


def test_what_does_not_go_with_a_randomised_column_is_refused() -> None:
    released, frame = rows(100)
    levels: dict[str, Any] = {"sick": ["no", "yes"]}
    with pytest.raises(InputError, match="leave delta, units and names out"):
        tacit.local.stratified_table(frame[["sick"]], group=released, bounds=levels, epsilon=1, delta=1e-5)
    with pytest.raises(InputError, match="one sample"):
        tacit.local.stratified_table(
            frame[["sick"]], frame[["sick"]], group=released, bounds=levels, epsilon=1
        )
    with pytest.raises(InputError, match="one column"):
        tacit.local.independence_table(released, epsilon=1)
