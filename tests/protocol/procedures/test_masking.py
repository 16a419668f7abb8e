"""Masks by their definition, guarantees by the noise, and how near a sum of discrete Gaussians is to one."""

import base64
import hashlib
import math
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from made_studies import NoNoise, made_study, rows_table
from world import MASKED, exact_total, key_message, masked_study

import tacit.local
from tacit.errors import StudyRefusedError
from tacit.in_process.runner import CountedTable, run
from tacit.in_process.samples import ArrayTable, Sample
from tacit_protocol.domain import CategoricalColumn, Domain, NumericColumn
from tacit_protocol.messages.encoding import MessageError, decode, encode, encode_json
from tacit_protocol.messages.study import Release, Study
from tacit_protocol.privacy.gaussian_mechanism import mu_of
from tacit_protocol.privacy.guarantee import Budget, MaskedVector
from tacit_protocol.privacy.noise import OpenDPNoise
from tacit_protocol.procedures.aggregation import Vote, VotesLaw
from tacit_protocol.procedures.base import (
    PublicRuleError,
    canonical,
    claim_of,
    masking_of,
    planned,
    require_units,
)
from tacit_protocol.procedures.discovery import PROCEDURES
from tacit_protocol.procedures.embedding_release import EmbeddingRelease, features_of
from tacit_protocol.procedures.masking import (
    as_layout,
    masked,
    masks_of,
    read_roster,
    roster_of,
    total_of,
    units_max,
)
from tacit_protocol.procedures.noisy_counts import NoisyCounts
from tacit_protocol.signing import SignatureError, mask_public_hex, pair_stream
from tacit_protocol.strict import ReleaseError

STUDY = "5" * 64


def secret_of(name: str) -> bytes:
    return hashlib.sha256(name.encode()).digest()


KEYS = {name: mask_public_hex(secret_of(name)) for name in MASKED}
ROSTER = roster_of(
    STUDY, KEYS, {name: hashlib.sha256(key.encode()).hexdigest() for name, key in KEYS.items()}
)


def test_masks_are_what_the_page_says() -> None:
    found = masks_of(ROSTER, "north", secret_of("north"), "counts", 3)
    total = 0
    for other in MASKED:
        if other == "north":
            continue
        own = X25519PrivateKey.from_private_bytes(secret_of("north"))
        shared = own.exchange(X25519PublicKey.from_public_bytes(bytes.fromhex(KEYS[other])))
        info = (
            f'{{"format":"tacit/mask/1","pair":["{min(other, "north")}","{max(other, "north")}"],'
            f'"roster":"{ROSTER.digest}","study":"{STUDY}","vector":"counts"}}'
        )
        key = HKDF(algorithm=SHA256(), length=32, salt=None, info=info.encode()).derive(shared)
        stream = Cipher(ChaCha20(key, bytes(16)), mode=None).encryptor().update(bytes(24))
        words = [int.from_bytes(stream[start : start + 8], "little") for start in (0, 8, 16)]
        sign = 1 if other > "north" else -1
        total = [(a + sign * b) % 2**64 for a, b in zip(total or [0] * 3, words, strict=True)]
    assert found.tolist() == total


@pytest.mark.parametrize("changed", ["study", "roster", "vector"])
def test_another_study_roster_or_vector_has_other_masks(changed: str) -> None:
    roster, vector = ROSTER, "counts"
    if changed == "study":
        roster = type(ROSTER)("6" * 64, KEYS, ROSTER.digest)
    if changed == "roster":
        roster = type(ROSTER)(STUDY, KEYS, "7" * 64)
    if changed == "vector":
        vector = "means"
    one = masks_of(ROSTER, "north", secret_of("north"), "counts", 4)
    other = masks_of(roster, "north", secret_of("north"), vector, 4)
    assert not np.any(one == other)


def test_a_key_of_another_owner_or_of_low_order_makes_no_mask() -> None:
    with pytest.raises(ReleaseError, match="another key"):
        masks_of(ROSTER, "north", secret_of("south"), "counts", 1)
    for low in (
        "0" * 64,
        "01" + "0" * 62,
        "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
    ):
        with pytest.raises(SignatureError):
            pair_stream(secret_of("north"), low, b"", 8)


def test_a_roster_needs_one_signed_key_of_each_owner() -> None:
    study = masked_study()
    shown = {name: key_message(STUDY, name, KEYS[name]) for name in MASKED}
    assert read_roster(study, STUDY, shown).keys == KEYS
    for wrong in (
        {name: shown[name] for name in MASKED[1:]},
        shown | {"west": key_message(STUDY, "west", KEYS["east"])},
        shown | {"west": key_message(STUDY, "west", KEYS["west"], signer="east")},
        shown | {"west": shown["east"]},
        shown | {"west": key_message("0" * 64, "west", KEYS["west"])},
    ):
        with pytest.raises(ValueError, match=r"key|signature"):
            read_roster(study, STUDY, wrong)


def releases_of(study: Study, noise: Any) -> dict[str, Release]:
    counts = exact_total(("east",))
    table = CountedTable(study.domain, np.array(counts), np.arange(2))
    made = NoisyCounts().privatise(study, NoisyCounts().summarise(study, table), noise)
    return {owner.name: masked(made, ROSTER, owner.name, secret_of(owner.name)) for owner in study.owners}


def test_the_sum_of_all_is_exact_and_has_the_noise_of_all() -> None:
    study = masked_study()
    masking, releases = masking_of(NoisyCounts(), study), releases_of(study, NoNoise())
    assert masking is not None
    total = total_of(masking, releases)
    assert total.vectors["counts"].mean(1)[:2].tolist() == (5 * exact_total(("east",))).tolist()
    own = releases["east"].masked["counts"].scale
    assert total.vectors["counts"].scale == pytest.approx(own * math.sqrt(5), rel=1e-12)
    claimed = mu_of(claim_of(NoisyCounts(), study))
    assert total.vectors["counts"].scale == pytest.approx(math.sqrt(2) / claimed, rel=1e-9)
    for name in MASKED:
        with pytest.raises(ReleaseError, match="every owner"):
            total_of(masking, {n: r for n, r in releases.items() if n != name})
    with pytest.raises(ReleaseError, match="not masked"):
        as_layout(as_layout(releases["east"]))


def test_the_variance_of_each_owners_noise_is_that_of_its_share() -> None:
    study = masked_study(colluders=2)
    claim, own = claim_of(NoisyCounts(), study), NoisyCounts().cost(study)
    assert mu_of(own) == pytest.approx(mu_of(claim) * math.sqrt(3), rel=1e-9)
    assert mu_of(own) <= mu_of(claim) * math.sqrt(3), "rounded up, for those who draw together"


def test_more_units_than_add_up_below_the_modulus_are_refused_by_a_public_rule() -> None:
    study, most = masked_study(), units_max(5, 20)
    require_units(NoisyCounts(), study, {"east": most})
    assert 5 * most << 20 <= 2**62
    with pytest.raises(PublicRuleError) as refused:
        require_units(NoisyCounts(), study, {"east": most + 1})
    assert refused.value.rule == "too-many-units"


def test_whoever_asks_and_plans_is_told_what_is_read_and_what_it_costs() -> None:
    (told,) = NoisyCounts().describe_request(masked_study())
    assert "no owner's own" in told
    assert "epsilon 1.187" in told
    plan = tacit.local.plan_error(
        [200, 300, 500],
        procedure="noisy_counts",
        cells=3,
        epsilon=0.5,
        noise="gaussian",
        aggregation="masked",
        colluders=0,
        runs=3,
        seed=1,
    )
    assert 0 < plan.error < 0.2


POOLED: dict[str, Any] = {"placement": "uniform", "n_points": 8}
FREQUENCIES: dict[str, Any] = {"method": "random-features", "n_frequencies": 4}


def embedding_study(parameters: Any, colluders: int = 1) -> Study:
    """Return a study of three owners' masked mean embedding of a number and a category."""
    age, sick = NumericColumn(name="age", lower=0, upper=100), CategoricalColumn(name="s", levels=("n", "y"))
    return masked_study(
        MASKED[:3],
        colluders,
        {"noise": None, "kernel": "gaussian"} | parameters,
        procedure="embedding_release",
        domain=Domain(columns=(age, sick)),
        budget=Budget.of("2", "1e-5"),
    )


def people(rows: int, rng: np.random.Generator) -> ArrayTable:
    sample = Sample({"age": rng.normal(50, 20, rows), "s": rng.choice(["n", "y"], rows)})
    return ArrayTable.of(sample, embedding_study(POOLED).domain, None)


@pytest.mark.parametrize("parameters", [POOLED, FREQUENCIES])
def test_a_masked_embedding_is_that_of_all_units_with_the_noise_of_all(parameters: Any) -> None:
    study, rng = embedding_study(parameters), np.random.default_rng(1)
    tables = [people(rows, rng) for rows in (200, 50, 120)]
    exact = run(PROCEDURES["embedding_release"], study, tables, NoNoise())
    (found,) = exact.embedding.values()
    features = features_of(study)
    mean = np.concatenate([features(next(iter(table.chunks()))) for table in tables]).mean(axis=0)
    assert np.abs(np.array(found) - mean).max() < 1e-6
    assert exact.units == dict(zip(MASKED, (200, 50, 120), strict=False))
    assert list(exact.embedding) == ["all owners together"]
    claimed = mu_of(claim_of(EmbeddingRelease(), study))
    noise = features.diameter / claimed * math.sqrt(3 / 2) / 370
    assert exact.noise["all owners together"] == pytest.approx(noise, rel=1e-4)
    result = run(PROCEDURES["embedding_release"], study, tables, OpenDPNoise())
    assert any("only their sum" in warning for warning in result.warnings)
    assert 0 < result.epsilon - 2 < 1, "each spends what holds whoever colludes"
    (database,) = result.databases.values()
    assert database.units == 370


@pytest.mark.long
def test_a_masked_embedding_is_planned_with_the_noise_of_its_sum() -> None:
    found = {}
    for colluders in (0, 2):
        found[colluders] = tacit.local.plan_error(
            [300, 300, 300],
            procedure="embedding_release",
            columns=["age", "s"],
            bounds={"age": (0, 100), "s": ["n", "y"]},
            epsilon=1,
            delta=1e-5,
            placement="uniform",
            n_points=20,
            aggregation="masked",
            colluders=colluders,
            runs=20,
            seed=1,
        ).error
    assert found[0] < found[2]


def identity_study(parameters: Any = None, colluders: int = 1) -> Study:
    """Return a study of whether three owners' units together follow a known distribution."""
    asked = {"noise": None, "method": "zcdp-gof", "probabilities": [0.7, 0.3]} | (parameters or {})
    return masked_study(MASKED[:3], colluders, asked, procedure="identity")


def test_a_known_distribution_is_compared_with_the_masked_counts_of_all() -> None:
    study, procedure = identity_study(), PROCEDURES["identity"]
    tables = [
        CountedTable(study.domain, np.array(counts), np.arange(2))
        for counts in ([900, 100], [500, 500], [700, 300])
    ]
    exact = run(procedure, study, tables, NoNoise())
    assert exact.pvalue > 0.99, "together they are as stated, though no two owners are alike"
    assert not run(procedure, study, tables, OpenDPNoise()).source.releases[MASKED[0]].vectors
    other = run(procedure, study, [tables[0], tables[0], tables[2]], OpenDPNoise())
    assert other.reject, "400 more than expected, 13 times what noise and chance have: missed once in 1e20"
    assert any("only their sum" in warning for warning in other.warnings)
    claim, own = claim_of(procedure, study), procedure.cost(study)
    assert mu_of(own) == pytest.approx(mu_of(claim) * math.sqrt(2), rel=1e-9)
    assert other.epsilon == own.budget.epsilon > study.budget.epsilon
    assert other.rho == pytest.approx(mu_of(own) ** 2 / 2, rel=1e-9), "what each spent"
    assert procedure.panels(study, other.model_dump(), other.source.releases)
    asked: dict[str, Any] = {
        "cells": 4,
        "probabilities": [0.25] * 4,
        "unlisted": "last",
        "method": "zcdp-gof",
    }
    plan = tacit.local.plan_power(
        [1000] * 3,
        procedure="identity",
        epsilon=1,
        **asked,
        aggregation="masked",
        colluders=0,
        runs=3,
        seed=1,
    )
    assert (plan.n, plan.power) == ((1000,) * 3, 1.0), "every owner's units depart as far"


VOTING: dict[str, Any] = {
    "aggregated_test": {"test": "pearson"},
    "joint_independence": {"method": "aggregate"},
}
"""Procedures whose owners' blocks vote, with a direction and without."""


def voting_study(name: str, changes: Any = None, owners: int = 3, **fields: Any) -> Study:
    """Return a study of owners' masked sums of votes, of two numbers."""
    numbers = Domain(columns=tuple(NumericColumn(name=name, lower=0, upper=1) for name in "xy"))
    asked = VOTING[name] | {"aggregation": "masked", "colluders": 1} | (changes or {})
    asked = {key: value for key, value in asked.items() if value is not None}
    return made_study(name, numbers, asked, owners=MASKED[:owners], **fields)


def voted(study: Study, noise: Any) -> tuple[int, dict[str, Release]]:
    """Return the exact sum of all owners' votes, and their masked releases."""
    procedure, rng, total, releases = PROCEDURES[study.procedure], np.random.default_rng(2), 0, {}
    keys = {owner.name: KEYS[owner.name] for owner in study.owners}
    roster = roster_of(STUDY, keys, keys)
    for owner in study.owners:
        x = rng.random((80, 1))
        table = rows_table(study.domain, np.hstack([x, np.clip(x + 0.2 * rng.random((80, 1)), 0, 1)]))
        summary = procedure.summarise(study, table)
        total += summary.votes
        made = procedure.privatise(study, summary, noise)
        releases[owner.name] = masked(made, roster, owner.name, secret_of(owner.name))
        procedure.check_release(study, as_layout(releases[owner.name]))
    return total, releases


@pytest.mark.parametrize(("name", "bound"), [("aggregated_test", 2), ("joint_independence", 1)])
def test_masked_votes_add_up_exactly_with_the_noise_of_all(name: str, bound: int) -> None:
    study, procedure = voting_study(name), PROCEDURES[name]
    total, releases = voted(study, NoNoise())
    verdict = procedure.assemble(study, releases)
    assert verdict.statistic == total, "masks cancel to the last bit"
    assert verdict.reject
    claim, own = claim_of(procedure, study), procedure.cost(study)
    (vector,) = (next(iter(release.masked.values())) for release in list(releases.values())[:1])
    assert vector.scale == pytest.approx(bound / mu_of(own), rel=1e-9)
    masking = masking_of(procedure, study)
    assert masking is not None
    assert mu_of(own) == pytest.approx(mu_of(claim) * math.sqrt(2), rel=1e-9)
    assert mu_of(masking.towards(claim, 0)) == pytest.approx(mu_of(claim) * math.sqrt(2 / 3), rel=1e-9)
    assert (masking.towards(claim, 1), masking.towards(claim, 2)) == (claim, own)
    assert claim.budget == study.budget
    assert verdict.epsilon == own.budget.epsilon > study.budget.epsilon
    assert any("only their sum" in warning for warning in verdict.warnings)
    each = 0.6 if bound == 2 else 0.21
    assert verdict.deviation**2 == pytest.approx(verdict.blocks * each + 3 * vector.scale**2, rel=1e-9)
    assert procedure.null(study, verdict.model_dump(), releases) is not None
    told = procedure.panels(study, verdict.model_dump(), releases)
    assert [row.label for panel in told for row in panel.rows] == (["all"] if bound == 2 else [])
    assert "which is less, in pure epsilon" in procedure.describe_request(study)[-1]
    many = voting_study(name, {"colluders": 0}, owners=5, epsilon=0.1, delta=1e-4)
    assert "which is less" not in procedure.describe_request(many)[-1]
    thinner = next(iter(releases.values()))
    few = {key: v.model_copy(update={"scale": v.scale / 1.01}) for key, v in thinner.masked.items()}
    with pytest.raises(ReleaseError, match="noise"):
        procedure.check_release(study, as_layout(thinner.model_copy(update={"masked": few})))


@pytest.mark.parametrize("vote", [Vote(), Vote(0.3, True)])
def test_the_p_value_of_masked_votes_is_never_below_the_exact_one(vote: Vote) -> None:
    """Beside every sum of 7 votes and of three discrete Gaussians, on a grid coarse enough to be seen."""
    step, deviation = 2.0**-6, 0.8
    reach = np.arange(-1000, 1001)
    one = np.exp(-((reach * step / deviation) ** 2) / 2)
    one /= one.sum()
    noise = np.convolve(np.convolve(one, one), one)
    each = [0.3, 0.4, 0.3] if vote.directed else [0.7, 0.3]
    votes = np.ones(1)
    for _ in range(7):
        votes = np.convolve(votes, each)
    sums = np.arange(len(votes)) - (7 if vote.directed else 0)
    law = VotesLaw(7, 3, deviation, step, vote, "gaussian")

    def exact(value: float) -> float:
        reached = (np.arange(len(noise)) - 3000) * step
        return float(
            sum(weight * noise[reached >= value - own].sum() for own, weight in zip(sums, votes, strict=True))
        )

    for value in (-4.0, 0.0, 1.703125, 5.25, 9.0):
        assert exact(value) <= law.tail(value) <= exact(value - 4 * step) * (1 + 1e-6)
        assert law.tail(value + 4 * step) < exact(value), "a bound that is not near says nothing"
    critical = law.critical(0.05)
    tails = 2 * exact(critical) if vote.directed else exact(critical)
    assert 0.04 < tails <= 0.05, "the level is kept, and used"


@pytest.mark.parametrize("name", VOTING)
def test_who_votes_without_masks_says_so_and_nobodys_account_is_divided_for_masks(name: str) -> None:
    procedure = PROCEDURES[name]
    plain = voting_study(name, {"aggregation": None, "colluders": None}, delta=0.0)
    assert b'"aggregation":"separate"' in encode(canonical(procedure, plain))
    assert procedure.families >= {"gaussian"}
    assert "gaussian" not in (procedure.divided_for or ())


def test_in_one_process_masked_votes_are_told_together() -> None:
    import pyarrow as pa  # noqa: PLC0415

    rng = np.random.default_rng(1)
    tables = [pa.table({"x": x, "y": x + 0.1 * rng.random(200)}) for x in rng.random((3, 200))]
    asked: dict[str, Any] = {"test": "pearson", "bounds": {"x": (0, 1), "y": (0, 2)}, "epsilon": 4}
    asked |= {"aggregation": "masked", "colluders": 0}
    result = tacit.local.aggregated_test(*tables, **asked, delta=1e-5, seed=1)
    assert (result.votes_by_owner, result.direction) == ({}, "up")
    assert not any(release.vectors for release in result.source.releases.values())
    with pytest.raises(StudyRefusedError, match="delta above 0"):
        tacit.local.aggregated_test(*tables, **asked)


def test_masked_numbers_have_one_spelling() -> None:
    vector = MaskedVector.of(np.arange(2, dtype=np.uint64), -20, 1.0)
    assert decode(MaskedVector, encode(vector)).steps().tolist() == [0, 1]
    fields = vector.model_dump()
    for packed in (fields["packed"][:-1], fields["packed"] + "AAAA", fields["packed"].replace("=", "")):
        with pytest.raises(MessageError):
            decode(MaskedVector, encode_json(fields | {"packed": packed}))
    short = base64.b64encode(bytes(8)).decode()
    with pytest.raises(MessageError):
        decode(MaskedVector, encode_json(fields | {"packed": short}))


def test_in_one_process_only_the_sum_is_told() -> None:
    samples = [["a", "b", "a"] * 20, ["b"] * 30, ["a"] * 10]
    result = tacit.local.noisy_counts(
        *samples,
        epsilon=1,
        delta=1e-5,
        noise="gaussian",
        aggregation="masked",
        colluders=1,
        bounds=["a", "b"],
    )
    assert set(result.tables.counts) == {"all owners together"}
    assert list(result.units.values()) == [60, 30, 10]
    assert result.epsilon > 1, "what every owner spent holds whoever colludes"
    assert any("only their sum" in warning for warning in result.warnings)
    assert all(
        isinstance(release.masked, dict) and not release.vectors
        for release in result.source.releases.values()
    )
    with pytest.raises(StudyRefusedError, match="colluders"):
        tacit.local.noisy_counts(
            *samples, epsilon=1, delta=1e-5, noise="gaussian", aggregation="masked", bounds=["a", "b"]
        )


@pytest.mark.long
def test_survival_and_independence_read_the_sum_and_say_nothing_of_owners() -> None:
    import pandas as pd  # noqa: PLC0415

    rng = np.random.default_rng(3)
    samples = [
        pd.DataFrame(
            {
                "time": rng.exponential(3, 300).clip(0, 9.9),
                "event": rng.choice(["yes", "no"], 300),
                "arm": rng.choice(["a", "b"], 300),
            }
        )
        for _ in range(3)
    ]
    result = tacit.local.survival(
        *samples,
        time="time",
        event="event",
        intervals=[0, 2, 4, 10],
        group="arm",
        bounds={"event": ["no", "yes"], "arm": ["a", "b"]},
        epsilon=2,
        delta=1e-5,
        noise="gaussian",
        aggregation="masked",
        colluders=0,
        n_replicates=999,
    )
    assert result.effects_by_owner == ()
    study = masked_study(
        procedure="independence_table",
        parameters={"replicates": 999},
        domain=result.source.study.domain.model_copy(
            update={"columns": result.source.study.domain.categorical}
        ),
    )
    tables = [
        CountedTable(study.domain, rng.multinomial(400, [0.25] * 4).astype(np.int64), np.array([0, 1, 4, 5]))
        for _ in MASKED
    ]
    found = run(PROCEDURES["independence_table"], study, tables, OpenDPNoise())
    assert set(found.counts) == {"all owners together"}
    assert found.within_owners == ()
    assert not planned(PROCEDURES["independence_table"], study).within_owners


def test_a_sum_of_discrete_gaussians_is_within_its_bound_of_one_and_the_bound_is_near() -> None:
    """At parts of .8 to 1.2 steps, where the difference can be seen; a bound a tenth as large fails."""
    reach = np.arange(-60, 61)
    for deviation, parts in [(0.8, 2), (0.8, 5), (1.0, 3), (1.2, 2)]:
        one = np.exp(-(reach**2) / (2 * deviation**2))
        one /= one.sum()
        total = one
        for _ in range(parts - 1):
            total = np.convolve(total, one, mode="same")
        wide = np.exp(-(reach**2) / (2 * parts * deviation**2))
        wide /= wide.sum()
        near = np.abs(reach) < 6 * deviation * math.sqrt(parts)
        away = float(np.abs(np.log(total[near] / wide[near])).max())
        bound = 5 * (parts - 1) * math.exp(-(math.pi**2) * deviation**2)
        theirs = 10 * sum(math.exp(-2 * math.pi**2 * deviation**2 * j / (j + 1)) for j in range(1, parts))
        assert away <= bound <= theirs * parts
        if parts == 2:
            assert away > bound / 10
