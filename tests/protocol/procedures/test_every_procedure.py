"""What holds for every procedure and form alike: one table of studies, run over all of them.

The studies are those of the compatibility fixtures, each with releases that real noise went into. What
belongs to one procedure alone (its refusals, level, power and estimates) has a file of its own.
"""

import json
import math
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from types import CodeType, FrameType
from typing import Any

import numpy as np
import pytest
from compatibility_cases import BOUNDS, CASES, FIXTURES, Case, rows_of, stated
from made_studies import Drawing

from tacit.in_process.samples import ArrayTable, Sample, domain_of
from tacit_protocol.domain import Domain, PooledTable, Table
from tacit_protocol.messages.encoding import MessageError, decode, encode
from tacit_protocol.messages.study import NoisyVector, Owner, Release, Study, read_study
from tacit_protocol.privacy.accounting import fits
from tacit_protocol.privacy.guarantee import Budget, LaplaceEvent, RandomisedAnswers
from tacit_protocol.privacy.noise import OpenDPNoise
from tacit_protocol.procedures import base
from tacit_protocol.procedures.aggregation import REJECTIONS, Vote
from tacit_protocol.procedures.base import (
    ReleaseError,
    StudyError,
    canonical,
    check_study,
    claim_of,
    masking_of,
    spent_budget,
)
from tacit_protocol.procedures.discovery import PROCEDURES, procedure_named
from tacit_protocol.procedures.masking import total_of
from tacit_protocol.procedures.relay import (
    check_own_release,
    combined,
    conclude,
    numbers_released_by,
    relay_of,
)
from tacit_protocol.strict import HOPELESS
from tacit_protocol.verification import verify_transcript

FORMS = sorted(CASES)
FIRST = sorted({case.procedure: name for name, case in reversed(CASES.items())}.values())
"""One form of each procedure."""

of_every_form = pytest.mark.parametrize(
    "form", [pytest.param(form, marks=() if form in FIRST else pytest.mark.long) for form in FORMS]
)


SKETCHED = {"distance_correlation", "screening"}
"""Procedures whose releases grow with the units, up to what they say."""


@cache
def played(form: str) -> tuple[Study, dict[str, Release]]:
    """Return a form's study and its releases."""
    verified = verify_transcript(json.dumps(fixture(form)["transcript"]).encode())
    return verified.study, dict(verified.releases)


def fixture(form: str) -> Any:
    return json.loads((FIXTURES / f"{form}.json").read_text())


def held(case: Case, study: Study, again: int = 1, shift: int = 0) -> dict[str, Table]:
    """Return what each sender summarises, every row ``again`` times, or another sender's."""
    tables = {}
    for place, owner in enumerate(study.owners):
        names = list(owner.columns or case.columns)
        rows = {name: np.repeat(rows_of(case, place + shift)[name], again) for name in names}
        domain = domain_of({name: BOUNDS[name] for name in names}, names)
        unit = np.repeat(np.arange(case.units), again) if again > 1 else None
        tables[owner.name] = ArrayTable.of(Sample(rows), domain, unit)
    if study.curator is None:
        return dict(tables)
    return {study.curator.name: PooledTable(study.domain, tables)}


class Replaying(Drawing):
    """Answers the first draw of numbers with what was released: what follows depends on it."""

    def __init__(self, first: Sequence[int]) -> None:
        self._first = [np.array(first)]

    def gaussian(self, values: Any, scale: float) -> Any:
        return self._first.pop() if self._first else values

    laplace = gaussian


def scores_of(form: str, sender: str, shift: int) -> NoisyVector:
    """Return the exact sums of scores that are made of a released noisy histogram."""
    study, releases = played(form)
    table = held(CASES[form], study, shift=shift)[sender]
    noise = Replaying(releases[sender].vectors["histograms"].values)
    summary = summary_of(form, sender, table)
    return procedure_named(study.procedure).privatise(study, summary, noise).vectors["scores"]


def exact(form: str, again: int = 1, shift: int = 0) -> dict[str, Release]:
    """Return a form's releases without noise."""
    study, _ = played(form)
    procedure = procedure_named(study.procedure)
    tables = held(CASES[form], study, again, shift)
    return {
        name: procedure.privatise(study, summary_of(form, name, table), Drawing())
        for name, table in tables.items()
        if not answers_in_public(form, name)
    }


def summary_of(form: str, name: str, table: Table) -> Any:
    """Return a sender's exact numbers; of two rounds the second's, beside what was played in the first."""
    study, releases = played(form)
    procedure = procedure_named(study.procedure)
    relay = relay_of(procedure, study)
    if relay is None or relay.is_sender(name):
        return procedure.summarise(study, table)
    return combined(procedure, study, {own.name: releases[own.name] for own in relay.senders}, table).summary


def answers_in_public(form: str, name: str) -> bool:
    """Whether a sender's release holds randomised answers, whose law has tests of its own."""
    return bool(played(form)[1][name].answers)


@of_every_form
def test_a_study_costs_its_budget_and_sends_as_many_numbers_as_it_says(form: str) -> None:
    study, releases = played(form)
    procedure = procedure_named(study.procedure)
    check_study(procedure, study)
    cost = procedure.cost(study)
    assert cost.budget == spent_budget(procedure, study)
    assert fits(cost.events, cost.budget)
    assert claim_of(procedure, study).budget == study.budget
    for name, release in releases.items():
        check_own_release(procedure, study, name, release)
        sent = sum(len(vector.values) for vector in release.vectors.values())
        sent += sum(vector.size for vector in release.masked.values())
        sent += (release.decision is not None) + (release.choice is not None)
        sent += sum(len(cuts) for cuts in release.cuts.values())
        sent += sum(own.units for own in release.answers.values())
        most = numbers_released_by(procedure, study, name)
        fewer = study.procedure in SKETCHED or release.answers or form == "association-laplace-few-units"
        assert sent <= most if fewer else sent == most
        assert set(release.units_by_owner) == (
            set() if study.curator is None else {o.name for o in study.owners}
        )


def summed(releases: Mapping[str, Release]) -> Release:
    """Return a release whose vectors are the sums of all."""
    first = next(iter(releases.values()))
    vectors = {
        name: vector.model_copy(
            update={"values": np.sum([own.vectors[name].values for own in releases.values()], axis=0)}
        )
        for name, vector in first.vectors.items()
    }
    return first.model_copy(update={"vectors": vectors})


def misfits(form: str, shift: int = 0) -> set[str]:
    """Return the vectors of a form's releases that are not what its rows give, and noise of their scale.

    The mean on points that were drawn from noisy histograms is on other points without the noise, and cells
    between private cuts are others; which blocks reject depends on the units' secret order. Of masked ones
    the sum is looked at.
    """
    found, (study, releases) = set(), played(form)
    rows = exact(form, shift=shift)
    masking = masking_of(procedure_named(study.procedure), study)
    if masking is not None:
        releases = {"": total_of(masking, releases)}
        rows = {"": summed(rows)}
    for sender, release in releases.items():
        if masking is None and answers_in_public(form, sender):
            continue
        for name, vector in release.vectors.items():
            drawn = name == "mean" and "histograms" in release.vectors
            if drawn or release.cuts or name in {REJECTIONS.vector, Vote().vector}:
                continue
            ideal = rows[sender].vectors[name]
            if name == "scores" and "histograms" in release.vectors:
                ideal = scores_of(form, sender, shift)
            away = np.subtract(vector.values, ideal.values) * 2.0**vector.exponent
            if vector.noise == "k-norm":
                # Its radius, common to all, has a gamma law with one degree more than there are coordinates.
                standard = away / vector.scale / (len(away) + 1)
                if np.abs(standard).max() > 4 or np.sqrt(np.mean(standard**2)) < 0.1:
                    found.add(name)
                continue
            laplace = vector.noise == "laplace"
            standard = away / vector.scale / (np.sqrt(2) if laplace else 1)
            spread = abs(np.mean(standard**2) - 1)
            if np.abs(standard).max() > (9 if laplace else 6) or spread > 6 * np.sqrt(5 / len(away)):
                found.add(name)
    return found


@of_every_form
def test_a_release_is_what_its_rows_give_and_noise_of_the_stated_scale(form: str) -> None:
    """Of the stored releases, whose noise is the same at every run: nothing here fails by chance."""
    assert misfits(form) == set()


def test_releases_of_other_rows_would_be_seen() -> None:
    """But not of dependence or blocks' votes, whose single numbers are small beside their noise."""
    seen = {CASES[form].procedure for form in FORMS if misfits(form, shift=1)}
    dependence = {"joint_independence", "curated_distance_correlation", "distance_correlation", "screening"}
    dependence |= {"mutual_independence"}
    assert seen >= set(PROCEDURES) - dependence - {"aggregated_test"}


def tampered(procedure: str, release: Release) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every change of a release that its tester must refuse."""
    guarantee, vectors = release.guarantee, release.vectors
    yield "budget", {"guarantee": guarantee.model_copy(update={"budget": Budget.of(0.9, "1e-5")})}
    yield "no events", {"guarantee": guarantee.model_copy(update={"events": ()})}
    more = (*guarantee.events, LaplaceEvent(noise_multiplier=1.0))
    yield "an event more", {"guarantee": guarantee.model_copy(update={"events": more})}
    for place, event in enumerate(guarantee.events):
        field = "noise_multiplier" if hasattr(event, "noise_multiplier") else "epsilon"
        changed = event.model_copy(update={field: getattr(event, field) * 0.999 + 1e-9})
        events = (*guarantee.events[:place], changed, *guarantee.events[place + 1 :])
        yield f"event {place}", {"guarantee": guarantee.model_copy(update={"events": events})}
    if len(guarantee.events) > 1 and len(set(guarantee.events)) > 1:
        yield "events swapped", {"guarantee": guarantee.model_copy(update={"events": guarantee.events[::-1]})}
    yield "decision", {"decision": True if release.decision is None else None}
    yield "choice", {"choice": 0 if release.choice is None else None}
    if release.choice is not None:
        yield "a choice beyond the candidates", {"choice": 10**6}
    if procedure in SKETCHED or release.answers:  # as many buckets, projections or answers as units
        yield "units", {"units": 10}
    yield "owners", {"units_by_owner": {} if release.units_by_owner else {"north": release.units}}
    if release.units_by_owner:
        yield "units of one owner", {"units_by_owner": dict.fromkeys(release.units_by_owner, 1)}
        yield "an owner missing", {"units_by_owner": dict(list(release.units_by_owner.items())[:1])}
    for name, vector in vectors.items():
        changes: dict[str, dict[str, Any]] = {
            "scale too small": {"scale": vector.scale * 0.999},
            "scale too large": {"scale": vector.scale * 1.001},
            "exponent": {"exponent": vector.exponent - 1},
            "a value missing": {"values": vector.values[1:]},
            "a value more": {"values": (*vector.values, 0)},
        } | {other: {"noise": other} for other in {"gaussian", "laplace", "k-norm"} - {vector.noise}}
        for change, update in changes.items():
            yield f"{name}: {change}", {"vectors": vectors | {name: vector.model_copy(update=update)}}
        yield f"{name} missing", {"vectors": {key: kept for key, kept in vectors.items() if key != name}}
        yield f"{name} twice", {"vectors": vectors | {"more": vector}}
        for other_name in (f"{name}x", "sums_of_2"):  # as counts that are read again are called
            renamed = {other_name if key == name else key: kept for key, kept in vectors.items()}
            yield f"{name} as {other_name}", {"vectors": renamed}
    if not vectors:
        vector = NoisyVector(values=(1,), exponent=0, noise="laplace", scale=1.0)
        yield "a vector", {"vectors": {"statistic": vector}}
    for name, own in release.answers.items():
        values, codes, kept = own.values(), own.codes, own.retention
        for change, made in (
            ("louder", RandomisedAnswers.of(values, codes, (1 + kept) / 2)),
            ("of other cells", RandomisedAnswers.of(values, codes + 1, kept)),
            ("one fewer", RandomisedAnswers.of(values[1:], codes, kept)),
        ):
            yield f"answers of {name}: {change}", {"answers": dict(release.answers) | {name: made}}
        yield f"answers of {name}x", {"answers": {f"{name}x": own}}
    for name, cuts in release.cuts.items():
        for wrong in ((128,), (0,), (9, 9), (*cuts, 127), cuts[1:]):
            yield f"cuts of {name}: {wrong}", {"cuts": dict(release.cuts) | {name: wrong}}
        yield "no cuts", {"cuts": {}}


@of_every_form
def test_a_tampered_release_is_refused(form: str) -> None:
    study, releases = played(form)
    procedure, taken = procedure_named(study.procedure), []
    asked = list(releases.items()) if relay_of(procedure, study) else list(releases.items())[:1]
    for sender, release in asked:
        for name, change in tampered(study.procedure, release):
            other = release.model_copy(update=change)
            assert other != release, name
            try:
                check_own_release(procedure, study, sender, decode(Release, encode(other)))
            except (ReleaseError, MessageError):
                continue
            taken.append(name)
    assert taken == []


@of_every_form
def test_a_release_of_another_form_or_budget_is_refused(form: str) -> None:
    study, releases = played(form)
    procedure, (sender, release) = procedure_named(study.procedure), next(iter(releases.items()))
    dearer = study.model_copy(update={"budget": Budget.of(study.budget.epsilon + 1, study.budget.delta)})
    others = [dearer, *(played(other)[0] for other in FORMS if CASES[other].procedure == study.procedure)]
    for other in others:
        if procedure.cost(other) != procedure.cost(study):
            with pytest.raises(ReleaseError):
                check_own_release(procedure, other, sender, release)
    if relay_of(procedure, study):  # nor does one round's release serve for the other's, or beside it
        for name, other_round in list(releases.items())[1:]:
            beside = other_round.model_copy(update={"answers": release.answers})
            for owner, wrong in ((sender, other_round), (name, release), (name, beside)):
                with pytest.raises(ReleaseError):
                    check_own_release(procedure, study, owner, wrong)


@pytest.mark.parametrize("form", [form for form in FORMS if all(CASES[form].owners.values())])
def test_releases_of_one_owner_for_another_or_of_other_units_are_not_put_together(form: str) -> None:
    study, releases = played(form)
    procedure, case = procedure_named(study.procedure), CASES[form]
    if relay_of(procedure, study):
        pytest.skip("its second round is made beside the first, which has the same units")
    first, second = list(releases)[:2]
    table = held(replace(case, units=case.units - 10), study)[second]
    fewer = procedure.privatise(study, procedure.summarise(study, table), OpenDPNoise())
    wrongs = [{second: fewer}]
    if form != "distance_correlation-pnc-disjoint":  # where either owner sends a number of each unit
        wrongs.append({first: releases[second], second: releases[first]})
    for wrong in wrongs:
        with pytest.raises(ReleaseError):
            procedure.assemble(study, releases | wrong)


@pytest.mark.sweep(12)
@of_every_form
def test_progress_rises_and_the_order_of_owners_changes_no_verdict(form: str) -> None:
    study, releases = played(form)
    seen: list[float] = []
    backwards = dict(reversed(releases.items()))
    procedure = procedure_named(study.procedure)
    verdict = procedure.assemble(study, backwards, lambda part, step: seen.append(part))
    assert verdict == procedure.assemble(study, releases)
    assert seen == sorted(seen)
    assert all(0 <= part <= 1 for part in seen)


@pytest.mark.sweep(20)
@of_every_form
def test_a_verdict_rejects_where_its_pvalue_is_at_most_the_level(form: str) -> None:
    study, releases = played(form)
    procedure = procedure_named(study.procedure)
    pvalue = getattr(procedure.assemble(study, releases), "pvalue", None)
    if pvalue is None or not 1e-6 < pvalue < 0.5:
        pytest.skip("its verdict has no p-value that is a level")

    def rejects(level: float) -> bool:
        verdict: Any = procedure.assemble(study.model_copy(update={"level": level}), releases)
        return bool(verdict.reject)

    assert rejects(pvalue * (1 + 1e-6))
    with suppress(StudyError):  # of a level that no simulated p-value reaches
        assert not rejects(pvalue * (1 - 1e-6))


@pytest.mark.parametrize("form", [form for form in FIRST if not form.startswith("aggregated_test")])
def test_units_of_several_rows_count_once(form: str) -> None:
    """Every row twice, as the rows of one unit, is the row itself; orders and blocks drawn afresh are not."""
    once, twice = exact(form), exact(form, again=2)
    for name, release in once.items():
        assert (twice[name].units, twice[name].units_by_owner) == (release.units, release.units_by_owner)
        for place, vector in release.vectors.items():
            found = np.array(twice[name].vectors[place].values, dtype=np.float64)
            assert found == pytest.approx(
                np.array(vector.values, dtype=np.float64), rel=1e-3, abs=2 * release.units
            )


@of_every_form
def test_a_summary_does_not_show_what_it_holds(form: str) -> None:
    """What a process may print or log of a summary is the same whatever rows it holds."""
    study, _ = played(form)
    for name, table in held(CASES[form], study).items():
        other = held(CASES[form], study, shift=1)[name]
        one, two = (re.sub(r" at 0x\w+", "", repr(summary_of(form, name, t))) for t in (table, other))
        assert one == two


@of_every_form
def test_few_units_are_warned_of_before_anything_is_spent_and_many_are_not(form: str) -> None:
    study, _ = played(form)
    procedure = procedure_named(study.procedure)
    units = {owner.name: 4 for owner in study.owners}
    poor = study.model_copy(update={"budget": Budget.of(0.05, study.budget.delta)})
    if study.procedure not in {"noisy_counts"}:
        assert any(w.startswith(HOPELESS) or "noise" in w for w in procedure.warnings(poor, units)), form
    warned = procedure.warnings(study, {})  # but of what adding owners' tables up may hide
    assert [words for words in warned if "stratified_table asks" not in words] == []


@of_every_form
def test_gaussian_noise_needs_a_delta(form: str) -> None:
    study, _ = played(form)
    procedure = procedure_named(study.procedure)
    pure = study.model_copy(update={"budget": Budget.of(study.budget.epsilon, 0)})
    gaussian = any(event.mechanism == "gaussian" for event in procedure.cost(study).events)
    separate = masking_of(procedure, study) is None
    laplace = form == "screening-two-round-gaussian" or (procedure.name == "embedding_release" and separate)
    if gaussian and not laplace:  # which is then added
        with pytest.raises(StudyError, match="delta above 0"):
            procedure.check(pure)
    else:
        procedure.check(pure)


@of_every_form
def test_wrong_parameters_are_refused_without_quoting_them(form: str) -> None:
    study, _ = played(form)
    procedure = procedure_named(study.procedure)
    wrong: list[dict[str, Any]] = [{"secret": 1}]
    for name in procedure.Parameters.model_fields:
        wrong += [{name: object()}, {name: math.nan}, {name: math.inf}, {name: ["secret"]}, {name: -(10**9)}]
    for parameters in wrong:
        changed = study.model_copy(update={"parameters": dict(study.parameters) | parameters})
        with pytest.raises(StudyError) as refused:
            procedure.check(canonical(procedure, changed))
        assert "secret" not in str(refused.value)


def test_every_procedure_is_in_the_table() -> None:
    assert {case.procedure for case in CASES.values()} == set(PROCEDURES)


def plan_functions() -> dict[CodeType, str]:
    """The functions of procedures that work out what a study fixes, by their code."""
    return {type(procedure).plan.__code__: name for name, procedure in PROCEDURES.items()}


@pytest.mark.parametrize("form", FIRST)
def test_a_plan_is_worked_out_once_whatever_is_said_of_a_study(form: str) -> None:
    # What an SDK does with a transcript: verification, result, printed fields, report and picture.
    transcript, plans, runs = (
        json.dumps(fixture(form)["transcript"]).encode(),
        plan_functions(),
        Counter[str](),
    )

    def count(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code in plans:
            runs[plans[frame.f_code]] += 1

    read_study.cache_clear()  # as in a process that has not seen the study
    before = sys.getprofile()
    sys.setprofile(count)
    try:
        stated(transcript, None)
    finally:
        sys.setprofile(before)
    assert runs
    assert set(runs.values()) == {1}, runs


def test_a_copy_of_a_study_has_a_plan_of_its_own() -> None:
    study, _ = played("kernel_two_sample-auto")
    procedure = procedure_named(study.procedure)
    cheaper = study.model_copy(update={"budget": Budget.of("0.1", "1e-6")})
    assert procedure.cost(study).budget == study.budget
    assert procedure.cost(cheaper).budget == cheaper.budget
    assert read_study(encode(study)) is read_study(encode(study))


# The work of a verdict.

BOUNDED_BY_CONSTANTS = {
    "group_comparison-beside-answers": "two owners, 20 columns and 9999 simulations at most",
    "curated_two_sample-mean-covariance": "effects of two samples, of so many simulations each",
}
"""Forms that simulate, and whose work is small whatever a study says."""


@of_every_form
def test_whatever_simulates_has_its_work_bounded_and_says_how_far_it_is(
    form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    study, releases = played(form)
    procedure = procedure_named(study.procedure)
    drawn, told = [], list[float]()
    genuine = np.random.default_rng

    def counted(*arguments: Any) -> np.random.Generator:
        drawn.append(arguments)
        return genuine(*arguments)

    units = {name: release.units for name, release in releases.items()}
    conclude(procedure, study, releases, units, lambda _, __: None)  # public draws are remembered
    with monkeypatch.context() as patched:
        patched.setattr(np.random, "default_rng", counted)
        conclude(procedure, study, releases, units, lambda fraction, _: told.append(fraction))
    assert told == sorted(told)
    if form in BOUNDED_BY_CONSTANTS:
        return
    assert not drawn or told, "what simulates says how far it is"
    if not drawn:
        return
    monkeypatch.setattr(base, "WORK_MAX", 0)
    base.planned.forget()
    with pytest.raises(StudyError, match="too long"):
        procedure.check(study)


def many(study: Study, owners: int) -> Study:
    """Return a study of so many owners, who all hold what the first does."""
    first = study.owners[0]
    return study.model_copy(
        update={
            "owners": tuple(
                Owner(name=f"owner-{place}", key=f"{place:064x}", data_set=first.data_set)
                for place in range(owners)
            )
        }
    )


@pytest.mark.parametrize(
    ("form", "owners", "parameters"),
    [
        ("group_comparison-soft-cells", 100_000, {}),
        ("homogeneity-laplace", 20_000, {"replicates": 100_000}),
        ("kernel_two_sample-me-noise-aware", 32, {"replicates": 100_000, "n_features": 60}),
        ("stratified_table-laplace", 20_000, {"replicates": 100_000}),
        ("survival-groups", 20_000, {"replicates": 100_000}),
    ],
)
def test_a_study_that_would_take_too_long_is_refused(
    form: str, owners: int, parameters: dict[str, Any]
) -> None:
    study, _ = played(form)
    procedure = procedure_named(study.procedure)
    procedure.check(study)
    asked = many(study, owners).model_copy(update={"parameters": {**study.parameters, **parameters}})
    with pytest.raises(StudyError, match="too long"):
        procedure.check(asked)


def test_twenty_columns_of_a_hundred_owners_are_associated_and_of_a_thousand_refused() -> None:
    study, _ = played("association-laplace")
    numeric = study.domain.numeric[0]
    columns = tuple(numeric.model_copy(update={"name": f"column-{place}"}) for place in range(20))
    asked = study.model_copy(update={"domain": Domain(columns=columns)})
    procedure = procedure_named(study.procedure)
    procedure.check(many(asked, 100))
    with pytest.raises(StudyError, match="too long"):
        procedure.check(many(asked, 1000))
