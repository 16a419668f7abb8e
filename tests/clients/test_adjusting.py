"""Several questions adjusted together: against known values, by simulation, and what cannot take part."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from signed_study import signed_transcript

import tacit
from tacit import local
from tacit.command.app import run
from tacit.errors import InputError
from tacit.in_process.runner import local_study, seed_text
from tacit.results import Result, result_of
from tacit.studies.multiple_testing import CONTROLS
from tacit_protocol.domain.columns import Domain, NumericColumn

# Worked by hand from the definitions: m p; max_j (m - j + 1) p_(j); min_j m p_(j) / j.
PVALUES = (0.001, 0.008, 0.039, 0.041, 0.042, 0.06, 0.074, 0.205)
ADJUSTED = {
    "bonferroni": (0.008, 0.064, 0.312, 0.328, 0.336, 0.48, 0.592, 1.0),
    "holm": (0.008, 0.056, 0.234, 0.234, 0.234, 0.234, 0.234, 0.234),
    "benjamini-hochberg": (0.008, 0.032, 0.0672, 0.0672, 0.0672, 0.08, 0.08457143, 0.205),
}
HARMONIC = sum(1 / k for k in range(1, 9))
COMMON: dict[str, Any] = {"method": "m", "units": {"north": 9, "south": 9}, "warnings": []}


def question(pvalue: float) -> Any:
    return SimpleNamespace(pvalue=pvalue)


def made(procedure: str, verdict: dict[str, Any], alpha: float = 0.05, digest: str | None = None) -> Result:
    domain = Domain(columns=(NumericColumn(name="age", lower=0, upper=120),))
    choices: dict[str, Any] = {"epsilon": 2.0, "delta": 0.0, "alpha": alpha, "seed": seed_text(1)}
    study = local_study(procedure, domain, ["north", "south"], {}, **choices)
    return result_of(study, COMMON | verdict, digest=digest)


def decision(reject: bool, alpha: float = 0.05) -> Result:
    return made("joint_independence", {"reject": reject}, alpha)


def with_p(pvalue: float, digest: str | None = None) -> Result:
    return made(
        "kernel_two_sample", {"reject": pvalue <= 0.05, "statistic": 1.0, "pvalue": pvalue}, digest=digest
    )


@pytest.mark.parametrize("method", ADJUSTED)
def test_adjusted_values_are_those_of_the_definitions(method: str) -> None:
    found = tacit.adjust([question(p) for p in PVALUES], method)
    assert [each.adjusted for each in found] == pytest.approx(ADJUSTED[method], rel=1e-6)
    assert [each.reject for each in found] == [value <= 0.05 for value in ADJUSTED[method]]


def test_benjamini_yekutieli_is_hochberg_times_the_harmonic_number() -> None:
    found = tacit.adjust([question(p) for p in PVALUES], "benjamini-yekutieli")
    expected = [min(1.0, value * HARMONIC) for value in ADJUSTED["benjamini-hochberg"]]
    assert [each.adjusted for each in found] == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("method", ["holm", "bonferroni"])
def test_the_level_holds_with_private_decisions_among_the_tests(method: str) -> None:
    """All nulls true: of 4000 sets 5 % may reject anything; 4 standard deviations more is 6.4 %."""
    rng, wrong = np.random.default_rng(11), 0
    for _ in range(4000):
        decisions = [decision_made(bool(rng.random() <= 0.0125)) for _ in range(2)]
        wrong += bool(
            tacit.adjust([*decisions, question(rng.random()), question(rng.random())], method).rejected
        )
    assert wrong <= 256


def decision_made(reject: bool) -> Any:
    return KEPT[reject]


KEPT = {reject: decision(reject, 0.0125) for reject in (True, False)}


def test_a_decision_counts_as_its_level_and_says_where_that_is_too_coarse() -> None:
    found = tacit.adjust(
        {"coarse": decision(True), "kept": decision(False), "p": with_p(0.001)}, "bonferroni"
    )
    assert [(each.pvalue, each.decision) for each in found] == [(0.05, True), (1.0, True), (0.001, False)]
    assert [each.reject for each in found] == [False, False, True]
    (warning,) = found.warnings
    assert "decision of coarse" in warning
    assert "level 0.0167 or less" in warning
    fine = tacit.adjust({"fine": decision(True, 0.01), "p": with_p(0.2), "q": with_p(0.3)}, "bonferroni")
    assert fine.rejected[0].name == "fine"
    assert fine.warnings == ()


def test_a_screening_counts_as_all_of_its_pairs() -> None:
    rng = np.random.default_rng(2)
    x = rng.random((3000, 3))
    found = local.screening(x, np.clip(1 - x[:, 1], 0, 1), epsilon=8, delta=1e-5, bounds=(0, 1))
    adjusted = tacit.adjust({"score": found, "other": with_p(0.5)})
    assert len(adjusted) == 4
    assert {each.name for each in adjusted} == {"score: x.1 – y", "score: x.2 – y", "score: x.3 – y", "other"}


def test_only_hochberg_warns_of_studies_on_the_same_data() -> None:
    pair = [with_p(0.01), with_p(0.02)]
    for method in CONTROLS:
        warned = any("dependent" in warning for warning in tacit.adjust(pair, method).warnings)
        assert warned == (method == "benjamini-hochberg")
    assert tacit.adjust([question(0.01), question(0.02)], "benjamini-hochberg").warnings == ()


@pytest.mark.parametrize(
    ("results", "choice", "words"),
    [
        ([], {}, "nothing to adjust"),
        ([made("something_new", {"reject": False})], {}, "tests nothing"),
        ([SimpleNamespace(pvalue=float("nan"))], {}, "no number between"),
        ([SimpleNamespace(pvalue=1.2)], {}, "no number between"),
        ([SimpleNamespace(pvalue="x")], {}, "no number between"),
        ([with_p(0.1, "a" * 64), with_p(0.1, "a" * 64)], {}, "one study"),
        ([question(0.1)], {"method": "fisher"}, "method must be"),
        ([question(0.1)], {"level": 0}, "between 0 and 1"),
        ([question(0.1)], {"level": True}, "between 0 and 1"),
        ("abc", {}, "several results"),
        (question(0.1), {}, "several results"),
    ],
)
def test_what_cannot_be_adjusted_says_why(results: Any, choice: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        tacit.adjust(results, **choice)


def test_transcripts_are_verified_and_adjusted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(5)
    for name, p in (("alike", 0.5), ("apart", 0.8)):
        samples = [rng.choice(["a", "b"], (900, 1), p=[q, 1 - q]) for q in (0.5, p)]
        bounds = {"ward": ["a", "b"]}
        result = local.homogeneity(*samples, epsilon=3.0, bounds=bounds, columns=["ward"])
        (tmp_path / name).write_bytes(signed_transcript(result, title=name))
    files = [str(tmp_path / "alike"), str(tmp_path / "apart")]
    assert run(["study", "adjust", *files, "--method", "benjamini-yekutieli", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [each["name"] for each in told["tests"]] == ["alike", "apart"]
    assert told["tests"][1]["reject"]
    assert run(["study", "adjust", *files]) == 0
    shown = capsys.readouterr().out
    assert "apart" in shown
    assert "probability of any false rejection" in shown
    assert run(["study", "adjust", files[0], files[0]]) == 2
    assert run(["study", "adjust", *files, "--method", "none"]) == 2
    assert run(["study", "adjust", str(tmp_path / "absent")]) == 2
