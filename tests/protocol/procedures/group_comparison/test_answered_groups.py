"""A group that one owner knows, an outcome that another knows: level, power, intervals, what is refused."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from local_noise import seeded_noise
from made_studies import made_study
from two_sample_cases import MemoryTable

import tacit.local
from tacit.errors import InputError, StudyRefusedError
from tacit.in_process.runner import in_two_rounds
from tacit.results import Result
from tacit_protocol.domain import CategoricalColumn, Domain, NumericColumn
from tacit_protocol.messages.study import Study
from tacit_protocol.numerics.inference import estimated
from tacit_protocol.privacy.guarantee import ApproximateEvent, LaplaceEvent
from tacit_protocol.privacy.noise import OpenDPNoise
from tacit_protocol.privacy.randomised_response import retention
from tacit_protocol.procedures.base import StudyError, check_study, reread
from tacit_protocol.procedures.discovery import procedure_named
from tacit_protocol.procedures.group_comparison.statistic import (
    AnsweredBlock,
    answered_mean_difference,
    answered_risk_effects,
    compare_answered,
)
from tacit_protocol.procedures.relay import combined, conclude, relay_of

PROCEDURE: Any = procedure_named("group_comparison")
ARM = CategoricalColumn(name="arm", levels=("usual", "new"))
AGE = NumericColumn(name="age", lower=0.0, upper=100.0)
SICK = CategoricalColumn(name="sick", levels=("no", "yes"))
DOMAIN = Domain(columns=(ARM, AGE, SICK))


def block(
    rng: np.random.Generator,
    group: np.ndarray,
    values: np.ndarray,
    epsilon: float,
    *,
    numeric: bool = True,
    groups: int = 2,
    noise: float = 1.0,
) -> AnsweredBlock:
    """Randomised answers and noisy sums; ``noise`` times the real noise is what the test knows of."""
    kept = retention(round(epsilon * 1e6), groups)
    answers = np.where(rng.random(len(group)) < kept, group, rng.integers(0, groups, len(group)))
    features = [values, 2 * values**2 - 1] if numeric else [1 - values, values]
    sums = np.stack([np.bincount(answers, own, groups) for own in features], axis=1)
    scales = np.array([2.0, 8.0] if numeric else [2.0, 2.0]) / epsilon
    sums += scales * rng.laplace(0, 1, sums.shape)
    sizes = np.bincount(answers, minlength=groups)
    return AnsweredBlock(sizes, sums, noise * scales, kept, numeric)


def numbers(rng: np.random.Generator, n: int, share: float, effect: float) -> tuple[np.ndarray, np.ndarray]:
    """Groups, and normal values of standard deviation 1/4 whose mean is larger in the second group."""
    group = (rng.random(n) < share).astype(int)
    return group, np.clip((rng.standard_normal(n) + effect * group) / 4, -1, 1)


@pytest.mark.long
@pytest.mark.sweep(1)
@pytest.mark.parametrize(("n", "epsilon"), [(2000, 1.0), (100, 0.3)])
def test_the_level_is_kept(n: int, epsilon: float) -> None:
    """600 studies at level .05, also where noise is all there is: above 51 has probability below 1e-4."""
    rng, rejected = np.random.default_rng(1), 0
    for run in range(600):
        found = compare_answered(block(rng, *numbers(rng, n, 0.3, 0.0), epsilon), np.random.SeedSequence(run))
        rejected += found.pvalue <= 0.05
    assert rejected <= 51


def test_three_tenths_of_a_standard_deviation_are_found_and_covered() -> None:
    """300 studies of 3000 units at epsilon 1: power .95, found in fewer than 255 with probability 1e-9."""
    rng, found, covered = np.random.default_rng(2), 0, 0
    for run in range(300):
        own = block(rng, *numbers(rng, 3000, 0.5, 0.3), 1.0)
        found += compare_answered(own, np.random.SeedSequence(run)).pvalue <= 0.05
        stated = estimated(answered_mean_difference(own, 1, 0), 0.05, "mean difference", 8.0)
        covered += stated.lower <= 0.3 <= stated.upper
    assert found >= 270
    assert covered >= 269  # fewer have probability below 1e-4 at 95 %


def test_intervals_of_risks_and_odds_cover_in_the_rarest_of_three_groups() -> None:
    """400 studies: under 361 covered has probability below 1e-4 at 95 %."""
    rng, risks, odds = np.random.default_rng(3), 0, 0
    for _ in range(400):
        group = rng.choice(3, 4000, p=[0.6, 0.3, 0.1])
        sick = (rng.random(4000) < np.array([0.1, 0.2, 0.4])[group]).astype(float)
        own = block(rng, group, sick, 1.5, numeric=False, groups=3)
        one, two = answered_risk_effects(own, 2, 0, 1)
        risk = estimated(one, 0.05, "risk difference")
        ratio = estimated(two, 0.05, "odds ratio")
        risks += risk.lower is None or risk.lower <= 0.3 <= (risk.upper or 0.0)
        odds += ratio.lower is None or ratio.lower <= 6.0 <= (ratio.upper or 1e9)
    assert min(risks, odds) >= 361


def test_an_interval_that_forgets_the_noise_or_the_answers_does_not_cover() -> None:
    """Planted: noise counted at a tenth; and effects of answers taken for effects of groups."""
    rng, quiet, raw = np.random.default_rng(4), 0, 0
    for _ in range(200):
        group, values = numbers(rng, 1000, 0.5, 0.0)
        own = block(rng, group, values, 0.1, noise=0.1)
        found = answered_mean_difference(own, 1, 0).common(0.05)
        quiet += found is None or found[1] <= 0 <= found[2]
        answered = block(rng, *numbers(rng, 3000, 0.5, 1.0), 1.0)
        exact = AnsweredBlock(answered.sizes, answered.sums, answered.scales, 1.0, numeric=True)
        stated = estimated(answered_mean_difference(exact, 1, 0), 0.05, "mean difference", 8.0)
        raw += stated.lower <= 1.0 <= stated.upper
    assert quiet < 160
    assert raw < 20


def test_a_difference_of_spreads_is_found() -> None:
    rng = np.random.default_rng(5)
    group = rng.integers(0, 2, 5000)
    values = np.clip(rng.standard_normal(5000) * np.where(group == 1, 0.15, 0.4), -1, 1)
    assert compare_answered(block(rng, group, values, 2.0), np.random.SeedSequence(1)).pvalue < 0.01


def test_answers_of_one_kind_alone_say_nothing() -> None:
    sums = np.array([[3.0, 1.0], [0.0, 0.0]])
    own = AnsweredBlock(np.array([30, 0]), sums, np.array([2.0, 8.0]), 0.9, numeric=True)
    assert compare_answered(own, np.random.SeedSequence(1)).pvalue == 1.0
    assert answered_mean_difference(own, 1, 0).common(0.05) is None


# The procedure.


def asked(**changes: Any) -> Study:
    fields: dict[str, Any] = {"owners": ["clinic", "registry"], "held": [["arm"], ["age", "sick"]]}
    fields |= {"epsilon": 2.0, "delta": 0.0, "units": 4000}
    domain = changes.pop("domain", DOMAIN)
    return made_study("group_comparison", domain, changes.pop("parameters", None), **fields | changes)


def tables(n: int = 4000) -> dict[str, MemoryTable]:
    """In the clinic the arm; in the registry a mean larger by 10, a share larger by .3, in the new arm."""
    rng, none = np.random.default_rng(7), np.zeros((n, 0))
    arm = rng.integers(0, 2, n)
    age = np.clip(0.4 + 0.1 * arm + 0.1 * rng.standard_normal(n), 0, 1)
    sick = (rng.random(n) < 0.2 + 0.3 * arm).astype(np.int32)
    return {
        "clinic": MemoryTable(Domain(columns=(ARM,)), none, arm.astype(np.int32)[:, None]),
        "registry": MemoryTable(Domain(columns=(AGE, SICK)), age[:, None], sick[:, None]),
    }


def played(study: Study, held: dict[str, MemoryTable] | None = None) -> tuple[dict[str, Any], Any]:
    relay = relay_of(PROCEDURE, study)
    assert relay is not None
    releases = in_two_rounds(PROCEDURE, relay, study, held or tables(), OpenDPNoise())
    units = {name: release.units for name, release in releases.items()}
    return releases, conclude(PROCEDURE, study, releases, units)


def test_a_study_of_two_rounds_finds_and_estimates_effects_of_groups() -> None:
    study = asked()
    check_study(PROCEDURE, study)
    releases, verdict = played(study)
    assert type(verdict) is PROCEDURE.verdict_type(study)
    assert verdict.reject
    effects = {(effect.column, effect.kind): effect for effect in verdict.effects}
    mean, risk = effects["age", "mean difference"], effects["sick", "risk difference"]
    assert mean.groups == ("new", "usual")
    assert abs(mean.estimate - 10) < 3  # the interval's half width is 1: six standard errors
    assert abs(risk.estimate - 0.3) < 0.15
    assert verdict.effects_by_owner == ()
    assert verdict.retention == retention(2_000_000, 2)
    assert any("matched by their order" in words for words in verdict.warnings)
    assert isinstance(releases["clinic"].guarantee.events[0], ApproximateEvent)
    assert isinstance(releases["registry"].guarantee.events[0], LaplaceEvent)
    assert "randomised" in PROCEDURE.what_is_released(study)
    assert "within owners" not in PROCEDURE.meaning(study, verdict.model_dump()).sentence


def test_the_receiver_may_come_first_and_the_group_be_named() -> None:
    swapped = asked(owners=["registry", "clinic"], held=[["age", "sick"], ["arm"]])
    relay = relay_of(PROCEDURE, swapped)
    assert (relay.sender.name, relay.receiver.name) == ("clinic", "registry")
    both = asked(held=[["arm"], ["sick"]], domain=Domain(columns=(ARM, SICK)), parameters={"group": "sick"})
    relay = relay_of(PROCEDURE, both)
    assert relay.sender.name == "registry"


def test_the_answers_are_read_again_by_a_study_of_other_outcomes() -> None:
    earlier = asked()
    releases, _ = played(earlier)
    study = asked(domain=Domain(columns=(ARM, SICK)), held=[["arm"], ["sick"]], epsilon=0.5)
    again = study.owners[0].model_copy(update={"reuses": "0" * 64})
    study = study.model_copy(update={"owners": (again, study.owners[1])})
    read = reread(PROCEDURE, study, again, earlier, releases["clinic"], lender=PROCEDURE)
    assert read.answers == releases["clinic"].answers
    held = tables()["registry"]
    own = MemoryTable(Domain(columns=(SICK,)), held.numeric[:, :0], held.categorical)
    summary = combined(PROCEDURE, study, {"sender": read}, own).summary
    answer = PROCEDURE.privatise(study, summary, OpenDPNoise())
    verdict = conclude(PROCEDURE, study, {"clinic": read, "registry": answer}, {})
    assert isinstance(verdict.retention, float)
    assert verdict.retention == retention(2_000_000, 2)
    with pytest.raises(StudyError, match="no answers of this column"):
        reread(PROCEDURE, study, again, earlier, releases["registry"], lender=PROCEDURE)


def test_owners_who_count_other_units_are_refused_before_anything_is_spent() -> None:
    study = asked()
    sent = PROCEDURE.privatise(study, PROCEDURE.summarise(study, tables()["clinic"]), OpenDPNoise())
    with pytest.raises(StudyError, match="not aligned"):
        combined(PROCEDURE, study, {"sender": sent}, tables(3999)["registry"])
    with pytest.raises(StudyError, match="beside the answers of clinic"):
        PROCEDURE.summarise(study, tables()["registry"])


def test_a_study_that_can_see_nothing_is_called_hopeless() -> None:
    assert PROCEDURE.warnings(asked(epsilon=0.1), {"clinic": 300, "registry": 300})[0].startswith("Hopeless")


# In one process.


def rows(n: int = 3000) -> tuple[Any, Any]:
    rng = np.random.default_rng(8)
    arm = rng.choice(["usual", "new"], n)
    age = 50 + 12 * (arm == "new") + 10 * rng.standard_normal(n)
    return arm, pa.table({"age": age})


def test_tacit_local_takes_a_randomised_column_for_the_group() -> None:
    arm, outcomes = rows()
    column = tacit.local.randomise_column(arm, epsilon=2, bounds=["usual", "new"])
    result: Result = tacit.local.group_comparison(
        outcomes, group=column, epsilon=2, bounds={"age": (0, 100)}, seed=1
    )
    statistic, pvalue = result
    assert pvalue < 0.01
    assert statistic > 0
    (effect,) = result.effects
    assert abs(effect.estimate - 12) < 5
    assert "new" in str(result)
    assert list(result.to_pandas()["kind"]) == ["mean difference"]


WIDE_LAWS: dict[str, Any] = {
    "spread of 5 in 0 to 2000": (lambda z: 50 + 5 * z, (0, 2000)),
    "log-normal in 0 to 500": (np.exp, (0, 500)),
    "bounds of four standard deviations": (lambda z: 60 + 10 * z, (20, 100)),
}


@pytest.mark.parametrize("law", WIDE_LAWS)
def test_bounds_that_noise_makes_useless_are_warned_of_beside_answers(law: str) -> None:
    """600 units: of 8 studies at least five, as of groups that the owner knows; where bounds fit, none."""
    rng, (made, bounds), warned = np.random.default_rng(35), WIDE_LAWS[law], 0
    for run in range(8):
        with seeded_noise(run):
            column = tacit.local.randomise_column(rng.choice(["a", "b"], 600), epsilon=1, bounds=["a", "b"])
            outcomes = pa.table({"age": made(rng.standard_normal(600))})
            result = tacit.local.group_comparison(outcomes, group=column, epsilon=1, bounds={"age": bounds})
        first = result.warnings[0]
        warned += f"age ({bounds[0]} to {bounds[1]})" in first and first.endswith("narrower public bounds")
    assert warned == 0 if law.startswith("bounds") else warned >= 5


def test_the_deviation_beside_answers_is_that_of_all_units() -> None:
    """Noise on the sum of squares is .1 % of it: told. With a thousand times the noise it is hidden."""
    rng = np.random.default_rng(36)
    group, values = numbers(rng, 20_000, 0.5, 0.0)
    spread, told = block(rng, group, values, 4.0).deviation()
    assert told
    assert spread == pytest.approx(0.25, rel=0.05)
    spread, told = block(rng, group, values, 4.0, noise=1000.0).deviation()
    assert not told
    assert spread > 0.25


def test_tacit_local_takes_a_randomised_number_by_its_cells() -> None:
    rng = np.random.default_rng(9)
    age = rng.random(3000) * 100
    sick = np.where(rng.random(3000) < age / 100, "yes", "no")
    column = tacit.local.randomise_column(age, epsilon=3, bounds=(0, 100), categories=2)
    result = tacit.local.group_comparison(
        pa.table({"sick": sick}), group=column, epsilon=3, bounds={"sick": ["no", "yes"]}, seed=1
    )
    assert result.reject
    assert result.effects[0].groups == (column.labels[1], column.labels[0])


def test_what_does_not_go_with_a_randomised_group_is_refused() -> None:
    arm, outcomes = rows(100)
    column = tacit.local.randomise_column(arm, epsilon=1, bounds=["usual", "new"])
    asked: dict[str, Any] = {"group": column, "epsilon": 1, "bounds": {"age": (0, 100)}}
    with pytest.raises(InputError, match="one sample"):
        tacit.local.group_comparison(outcomes, outcomes, **asked)
    with pytest.raises(InputError, match="100 rows and the sample 99"):
        tacit.local.group_comparison(outcomes.slice(1), **asked)
    twice = outcomes.append_column(column.column.name, pa.array(arm))
    with pytest.raises(InputError, match="rename it"):
        tacit.local.group_comparison(
            twice, **asked | {"bounds": {"age": (0, 100), column.column.name: ["usual", "new"]}}
        )
    nine = tacit.local.randomise_column(
        np.repeat(list("abcdefghi"), 12)[:100], epsilon=1, bounds=list("abcdefghi")
    )
    with pytest.raises(StudyRefusedError, match="two to 8 levels"):
        tacit.local.group_comparison(outcomes, **asked | {"group": nine})
