"""A release of one kernel two-sample study in another: when it is the very release that is asked for."""

from typing import Any

import numpy as np
import pytest
from two_sample_cases import MemoryTable, SeededNoise, domain_of, releases_of, study_of

from tacit_protocol.domain.columns import Domain
from tacit_protocol.messages.release import Release
from tacit_protocol.messages.study import Study
from tacit_protocol.privacy.guarantee import Budget
from tacit_protocol.procedures.base import StudyError, check_study, reread
from tacit_protocol.procedures.kernel_two_sample import KernelTwoSample
from tacit_protocol.procedures.kernel_two_sample.release import OF_THE_TEST, KernelTwoSampleParameters

PROCEDURE = KernelTwoSample()
NUMERIC = domain_of(2)
SOURCE = "c" * 64

CHOICES: list[dict[str, Any]] = [{}, {"features": "columns"}, {"features": "me"}, {"features": "scf"}]


def table(domain: Domain, rows: int, seed: int) -> MemoryTable:
    rng = np.random.default_rng(seed)
    return MemoryTable(
        domain, rng.random((rows, len(domain.numeric))), np.empty((rows, 0), dtype=np.int32), cuts=()
    )


def reusing(study: Study, *names: str) -> Study:
    """Return the study with those owners' releases taken from an earlier one."""
    owners = [
        owner.model_copy(update={"reuses": SOURCE}) if owner.name in names else owner
        for owner in study.owners
    ]
    return study.model_copy(update={"owners": tuple(owners)})


def read_again(study: Study, source: Study, release: Release) -> Release:
    return reread(PROCEDURE, study, study.owners[0], source, release)


@pytest.mark.parametrize("parameters", CHOICES)
def test_a_study_with_a_reused_release_has_the_verdict_of_one_that_was_sent_it(
    parameters: dict[str, Any],
) -> None:
    """Its null distribution asks only how a release is made, not for which study: nothing else changes."""
    tables = [table(NUMERIC, 400, seed) for seed in (1, 2, 3)]
    source = study_of(NUMERIC, parameters, owners=2)
    made = releases_of(source, tables[:2], SeededNoise(4))
    later = study_of(NUMERIC, parameters, owners=3)
    fresh = releases_of(later, tables, SeededNoise(5))
    asked = reusing(later, "o0")
    check_study(PROCEDURE, asked)
    assert [sender.name for sender in asked.senders] == ["o1", "o2"]
    together = fresh | {"o0": read_again(asked, source, made["o0"])}
    verdict = PROCEDURE.assemble(asked, together)
    plain = PROCEDURE.assemble(later, fresh | {"o0": made["o0"]})
    assert verdict.model_copy(update={"warnings": plain.warnings}) == plain
    assert [w for w in verdict.warnings if w not in plain.warnings] == [
        "earlier releases are read again (o0): the level holds where this question was not chosen by looking "
        "at them, and verdicts that share a release are not independent of one another"
    ]


OTHER: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any], str]] = {
    # what both have, what the earlier study has, how it differs besides, what is said
    "bounds": ({}, {}, {"domain": domain_of(3)}, "columns, bounds or levels"),
    "budget": ({}, {}, {"budget": Budget.of(2.0, 1e-5)}, "same epsilon and delta"),
    "delta": ({}, {}, {"budget": Budget.of(1.0, 1e-6)}, "same epsilon and delta"),
    "features": ({}, {"features": "columns"}, {}, "another features"),
    "pair_share": ({}, {"pair_share": 0.2}, {}, "another pair_share"),
    "cycles": ({}, {"cycles": [1, 2]}, {}, "another cycles"),
    "bandwidth": ({"features": "me"}, {"bandwidth": 0.3}, {}, "another bandwidth"),
    "mean_share": ({"features": "me"}, {"mean_share": 0.5}, {}, "another mean_share"),
    "drawn locations": ({"features": "me"}, {}, {"seed": "9" * 32}, "same seed"),
    "drawn frequencies": ({"features": "scf"}, {}, {"seed": "9" * 32}, "same seed"),
    "procedure": ({}, {}, {"procedure": "another"}, "of kernel_two_sample and embedding_release, no others"),
}


@pytest.mark.parametrize("name", OTHER)
def test_a_release_of_other_numbers_is_refused_and_says_which(name: str) -> None:
    both, earlier, changes, words = OTHER[name]
    later = reusing(study_of(NUMERIC, both), "o0")
    source = study_of(NUMERIC, both | earlier)
    release = releases_of(source, [table(NUMERIC, 100, 1), table(NUMERIC, 100, 2)], SeededNoise(1))["o0"]
    with pytest.raises(StudyError, match=words):
        read_again(later, source.model_copy(update=changes), release)


SAME: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "seed, where nothing is drawn": ({}, {}, {"seed": "9" * 32}),
    "seed, where locations are given": (
        {"features": "me", "locations": [[0.1, 0.2]]},
        {},
        {"seed": "9" * 32},
    ),
    "the test's form": ({"features": "me"}, {"statistic": "noise-aware"}, {}),
    "replicates": ({"features": "me", "statistic": "noise-aware"}, {"replicates": 99}, {}),
    "level, title and times": ({}, {}, {"level": 0.2, "title": "Else", "created_at": 5, "deadline": 9}),
}


@pytest.mark.parametrize("name", SAME)
def test_what_does_not_touch_a_release_may_differ(name: str) -> None:
    both, earlier, changes = SAME[name]
    later = reusing(study_of(NUMERIC, both), "o0")
    source = study_of(NUMERIC, both | earlier).model_copy(update=changes)
    release = releases_of(source, [table(NUMERIC, 100, 1), table(NUMERIC, 100, 2)], SeededNoise(1))["o0"]
    assert read_again(later, source, release) is release


def test_every_parameter_either_shapes_the_release_or_is_known_not_to() -> None:
    """A new parameter is compared unless somebody says here that no release depends on it."""
    assert set(KernelTwoSampleParameters.model_fields) > OF_THE_TEST


def test_a_release_that_breaks_its_rules_is_not_read_again() -> None:
    """Were the first study's checks to fail, the later one's hold."""
    later = reusing(study_of(NUMERIC, {}), "o0")
    source = study_of(NUMERIC, {})
    release = releases_of(source, [table(NUMERIC, 100, 1), table(NUMERIC, 100, 2)], SeededNoise(1))["o0"]
    broken = release.model_copy(update={"vectors": dict(list(release.vectors.items())[:1])})
    if len(release.vectors) > 1:
        with pytest.raises(StudyError, match="does not fit this study"):
            read_again(later, source, broken)
    name, vector = next(iter(release.vectors.items()))
    scaled = release.vectors | {name: vector.model_copy(update={"scale": vector.scale / 2})}
    with pytest.raises(StudyError, match="does not fit this study"):
        read_again(later, source, release.model_copy(update={"vectors": scaled}))
