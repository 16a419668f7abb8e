"""Typed results: no figure where a decision alone is private, estimates in their intervals, adjusted sets."""

import json
import sys
from base64 import urlsafe_b64decode
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from local_noise import seeded_noise
from pydantic import ValidationError
from signed_study import signed_transcript

import tacit
from tacit import local
from tacit.command.app import run
from tacit.errors import InputError, VerificationFailedError
from tacit.in_process.runner import local_study, seed_text
from tacit.local import (
    association,
    distance_correlation,
    group_comparison,
    homogeneity,
    independence_table,
    kernel_two_sample,
    mutual_independence,
    screening,
    stratified_table,
    survival,
)
from tacit.results import DecisionResult, Result, result_of
from tacit_protocol.domain import Domain, NumericColumn
from tacit_protocol.messages.encoding import decode
from tacit_protocol.messages.study import Study
from tacit_protocol.procedures.discovery import PROCEDURES
from tacit_protocol.verdicts.base import BaseVerdict, PvalueVerdict, ShownTable

DECISION: dict[str, Any] = {
    "method": "a method",
    "reject": True,
    "level": 0.01,
    "units": {"north": 700, "south": 500},
    "epsilon": 2.0,
    "delta": 0.0,
    "warnings": ["few units"],
}
AGE, WEIGHT = (NumericColumn(name=name, lower=0, upper=120) for name in ("age", "weight"))
PERSONS = Domain(columns=(AGE, WEIGHT))

DECIDES = {"curated_two_sample": {"release": "permutation"}, "joint_independence": {"method": "permutation"}}
"""Parameters of studies that release a decision alone, by procedure."""


def result(procedure: str, verdict: dict[str, Any]) -> Result:
    """Read a verdict; a curator's without a statistic is one of a study that releases a decision."""
    parameters = {} if "statistic" in verdict else DECIDES.get(procedure, {})
    choices = {"epsilon": 2.0, "delta": 0.0, "alpha": 0.01, "seed": seed_text(1)}
    study = local_study(procedure, PERSONS, ["north", "south"], parameters, curated=True, **choices)
    return result_of(study, verdict)


@pytest.mark.parametrize("procedure", ["joint_independence", "curated_two_sample"])
def test_a_decision_has_nothing_finer_and_cannot_be_unpacked(procedure: str) -> None:
    found = result(procedure, DECISION)
    assert isinstance(found, DecisionResult)
    assert (found.reject, found.alpha, found.n) == (True, 0.01, {"north": 700, "south": 500})
    assert (found.epsilon, found.delta, found.warnings) == (2.0, 0.0, ("few units",))
    assert not hasattr(found, "statistic")
    assert not hasattr(found, "pvalue")
    with pytest.raises(TypeError):
        _, _ = found  # type: ignore[misc]
    with pytest.raises(ValidationError, match="frozen"):
        found.reject = False  # type: ignore[misc]


@pytest.mark.parametrize(
    ("procedure", "verdict"),
    [
        ("joint_independence", DECISION | {"pvalue": 0.03}),
        ("joint_independence", DECISION | {"units": None}),
        ("kernel_two_sample", DECISION),
        ("something_new", {"reject": True}),
    ],
)
def test_a_verdict_that_its_procedure_does_not_report_is_refused(
    procedure: str, verdict: dict[str, Any]
) -> None:
    with pytest.raises(VerificationFailedError, match="not what the study's procedure reports"):
        result(procedure, verdict)


INTERVALS = {
    ("lower", "upper"): ("squared_mmd", "cramers_v", "distance_correlation", "estimate"),
    ("median_lower", "median_upper"): ("median",),
    ("restricted_mean_lower", "restricted_mean_upper"): ("restricted_mean",),
    ("held_lower", "held_upper"): ("distance_correlation",),
    ("covariance_lower", "covariance_upper"): ("distance_covariance_sqr",),
    ("cramers_v_lower", "cramers_v_upper"): ("cramers_v",),
    ("correlation_lower", "correlation_upper"): ("correlation",),
}
"""The fields of every interval in a verdict, and the estimates that it may be of."""

SPEND: dict[str, Any] = {"epsilon": 0.5, "delta": 1e-5}


def noise(seed: int, n: int = 150) -> Any:
    """Two independent columns in [0, 1], (2, n)."""
    return np.random.default_rng(seed).random((2, n))


def two_samples(seed: int, alpha: float, samples: int = 2, **chosen: Any) -> Any:
    groups = [noise(seed + 100 * place).T for place in range(samples)]
    return kernel_two_sample(*groups, bounds=(0, 1), alpha=alpha, seed=seed, **SPEND, **chosen)


def correlation(seed: int, alpha: float, **chosen: Any) -> Any:
    x, y = noise(seed, 2000)
    asked: dict[str, Any] = {"bounds": [(0, 1), (0, 1)], "n_permutations": 99, **SPEND}
    if "mode" not in chosen:
        asked["method"] = "sketch"
    return distance_correlation(x, y, alpha=alpha, seed=seed, **asked | chosen)


def screened(seed: int, alpha: float) -> Any:
    x, y = noise(seed, 2000)
    more = np.stack([x, noise(seed + 9, 2000)[0]], axis=1)
    asked: dict[str, Any] = {"bounds": [(0, 1)] * 3, "n_permutations": 199, **SPEND}
    return screening(more, y, alpha=max(alpha, 0.05), seed=seed, **asked)


def three_owners(seed: int, alpha: float) -> Any:
    columns = np.random.default_rng(seed).random((3, 2000))
    return mutual_independence(*columns, epsilon=4, bounds=(0, 1), n_permutations=99, alpha=alpha, seed=seed)


def table(seed: int, alpha: float) -> Any:
    x, y = (noise(seed) * 3).astype(int).astype(str)
    levels = ["0", "1", "2"]
    return independence_table(x, y, bounds=[levels, levels], epsilon=0.5, alpha=alpha, seed=seed)


def shares(seed: int, alpha: float) -> Any:
    owners = [np.random.default_rng([seed, place]).integers(0, 80, 4) for place in range(3)]
    return homogeneity(*owners, epsilon=0.5, alpha=alpha, seed=seed)


def strata(seed: int, alpha: float) -> Any:
    owners = [np.random.default_rng([seed, place]).integers(0, 80, (2, 2)) for place in range(3)]
    return stratified_table(*owners, epsilon=0.5, alpha=alpha, seed=seed)


def groups(seed: int, alpha: float) -> Any:
    rng = np.random.default_rng(seed)
    pd = pytest.importorskip("pandas")
    owners = [
        pd.DataFrame({"age": rng.random(150), "arm": rng.choice(["a", "b", "c"], 150)}) for _ in range(2)
    ]
    bounds = {"age": (0, 1), "arm": ["a", "b", "c"]}
    return group_comparison(*owners, group="arm", bounds=bounds, alpha=alpha, seed=seed, **SPEND)


def times(seed: int, alpha: float) -> Any:
    rng = np.random.default_rng(seed)
    pd = pytest.importorskip("pandas")
    columns = {
        "t": rng.random(150),
        "died": rng.choice(["no", "yes"], 150),
        "arm": rng.choice(["a", "b"], 150),
    }
    levels = {"died": ["no", "yes"], "arm": ["a", "b"]}
    asked: dict[str, Any] = {"time": "t", "event": "died", "group": "arm", "bounds": levels, "epsilon": 0.5}
    return survival(pd.DataFrame(columns), intervals=[0, 0.25, 0.5, 1], alpha=alpha, seed=seed, **asked)


def pairs_of_columns(seed: int, alpha: float) -> Any:
    pd = pytest.importorskip("pandas")
    owners = [pd.DataFrame(noise(seed + 50 * place).T, columns=["x", "y"]) for place in range(2)]
    bounds = {"x": (0, 1), "y": (0, 1)}
    return association(*owners, bounds=bounds, alpha=alpha, seed=seed, noise="gaussian", **SPEND)


CASES: dict[str, tuple[str, Callable[[int, float], Any]]] = {
    "three samples": ("kernel_two_sample", lambda s, a: two_samples(s, a, 3)),
    "mean embeddings": ("kernel_two_sample", lambda s, a: two_samples(s, a, features="me")),
    "two samples at a curator": (
        "curated_two_sample",
        lambda s, a: two_samples(s, a, setting="curator", release="mean-covariance"),
    ),
    "sketches": ("distance_correlation", correlation),
    "projections": ("distance_correlation", lambda s, a: correlation(s, a, method="pnc", n_projections=1)),
    "at a curator, little noise": (
        "curated_distance_correlation",
        lambda s, a: correlation(s, a, mode="curator", epsilon=20.0),
    ),
    "at a curator": ("curated_distance_correlation", lambda s, a: correlation(s, a, mode="curator")),
    "screening": ("screening", screened),
    "three owners": ("mutual_independence", three_owners),
    "table": ("independence_table", table),
    "shares": ("homogeneity", shares),
    "strata": ("stratified_table", strata),
    "groups": ("group_comparison", groups),
    "pairs of columns": ("association", pairs_of_columns),
    "times": ("survival", times),
}
"""Studies by name: their procedure, and what runs one by seed and level."""


def stated(verdict: Any) -> Iterator[tuple[str, float, float, float]]:
    """Yield every estimate with its interval, wherever in a verdict they are."""
    if isinstance(verdict, Mapping):
        for ends, names in INTERVALS.items():
            low, high = (verdict.get(end) for end in ends)
            # Where Cramer's V has ends of its own, lower and upper are not its.
            own = [name for name in names if ends[0] != "lower" or f"{name}_lower" not in verdict]
            found = [verdict[name] for name in own if verdict.get(name) is not None]
            if isinstance(low, float) and isinstance(high, float):  # curves have their own test
                assert len(found) == 1, "an interval without an estimate"
                yield names[0], low, found[0], high
    parts = verdict.values() if isinstance(verdict, Mapping) else verdict
    for part in parts if isinstance(verdict, Mapping | list | tuple) else ():
        yield from stated(part)


def test_every_procedure_with_an_interval_is_looked_at() -> None:
    verdicts = {name: p.Verdict for name, p in PROCEDURES.items() if name != "quick"}  # of these tests alone
    named = {name for name, verdict in verdicts.items() if "'upper'" in str(verdict.model_json_schema())}
    assert named == {procedure for procedure, _ in CASES.values()}


SIGNED = (
    "screening",
    "three owners",
    "shares",
    "strata",
    "groups",
    "pairs of columns",
    "times",
    "two samples",
    "three samples",
    "two samples at a curator",
)


@pytest.mark.parametrize("name", CASES)
def test_an_estimate_lies_in_its_interval(name: str) -> None:
    run, looked = CASES[name][1], 0
    for seed in range(6):
        with seeded_noise(seed):
            result = run(seed, (0.05, 0.4)[seed % 2])
        for what, low, value, high in stated(result.verdict):
            least = -1 if name in SIGNED else 0  # differences have a sign
            assert least <= low <= value <= high, (what, seed)
            looked += 1
    assert looked > 0 or name == "projections"


# Worked by hand from the definitions: m p; max_j (m - j + 1) p_(j); min_j m p_(j) / j.
PVALUES = (0.001, 0.008, 0.039, 0.041, 0.042, 0.06, 0.074, 0.205)
ADJUSTED = {
    "bonferroni": (0.008, 0.064, 0.312, 0.328, 0.336, 0.48, 0.592, 1.0),
    "holm": (0.008, 0.056, 0.234, 0.234, 0.234, 0.234, 0.234, 0.234),
    "benjamini-hochberg": (0.008, 0.032, 0.0672, 0.0672, 0.0672, 0.08, 0.08457143, 0.205),
}
ADJUSTED["benjamini-yekutieli"] = tuple(
    min(1.0, value * sum(1 / k for k in range(1, 9))) for value in ADJUSTED["benjamini-hochberg"]
)
COMMON: dict[str, Any] = {"method": "m", "units": {"north": 9, "south": 9}, "warnings": []}


def question(pvalue: float) -> Any:
    return SimpleNamespace(pvalue=pvalue)


def made(
    procedure: str,
    verdict: dict[str, Any],
    alpha: float = 0.05,
    digest: str | None = None,
    *,
    curated: bool = False,
    **parameters: str,
) -> Result:
    choices: dict[str, Any] = {"epsilon": 2.0, "delta": 1e-5, "alpha": alpha, "seed": seed_text(1)}
    study = local_study(procedure, PERSONS, ["north", "south"], parameters, curated=curated, **choices)
    return result_of(study, COMMON | verdict, digest=digest)


def decision(reject: bool, alpha: float = 0.05) -> Result:
    return made(
        "joint_independence", {"reject": reject}, alpha, curated=True, **DECIDES["joint_independence"]
    )


def with_p(pvalue: float, digest: str | None = None) -> Result:
    return made(
        "kernel_two_sample", {"reject": pvalue <= 0.05, "statistic": 1.0, "pvalue": pvalue}, digest=digest
    )


@pytest.mark.parametrize("method", ADJUSTED)
def test_adjusted_values_are_those_of_the_definitions(method: str) -> None:
    found = tacit.adjust([question(p) for p in PVALUES], method)
    assert [each.adjusted for each in found] == pytest.approx(ADJUSTED[method], rel=1e-6)
    assert [each.reject for each in found] == [value <= 0.05 for value in ADJUSTED[method]]


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


@pytest.mark.parametrize(
    ("results", "choice", "words"),
    [
        ([], {}, "nothing to adjust"),
        ([made("something_new", {"reject": False})], {}, "tests nothing"),
        ([SimpleNamespace(pvalue=float("nan"))], {}, "no number between"),
        ([with_p(0.1, "a" * 64), with_p(0.1, "a" * 64)], {}, "one study"),
        ([question(0.1)], {"method": "fisher"}, "method must be"),
        ([question(0.1)], {"level": 0}, "between 0 and 1"),
        ("abc", {}, "several results"),
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


FIXTURES = Path(__file__).parents[2] / "compatibility" / "fixtures"
"""A transcript of every procedure and kind of verdict."""


def unsigned(file: Path) -> Result | None:
    """Return the result that a stored transcript states; its signatures are checked elsewhere."""
    kept = json.loads(file.read_text())
    verdict = kept["stated"].get("verdict")
    if verdict is None:
        return None
    payload = json.loads(kept["transcript"]["study"])["payload"]
    study = decode(Study, urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    return result_of(study, verdict)


def test_every_kind_of_result_is_a_frame() -> None:
    kinds = set()
    for file in sorted(FIXTURES.glob("*.json")):
        found = unsigned(file)
        if found is None:
            continue
        frame, kind = found.to_pandas(), type(found)
        kinds.add(kind)
        assert len(frame) >= 1, file.stem
        # Of masked counts there is one column, of all owners.
        assert len(frame.columns) >= (1 if file.stem == "noisy_counts-masked" else 2), file.stem
        assert frame.columns.is_unique, file.stem
        assert "<" not in repr(frame.iloc[0].to_dict()), "values, not objects"
        if len(found.tabulated) == 0 and kind.to_pandas is BaseVerdict.to_pandas:
            assert frame["reject"].tolist() == [found.reject]
            assert frame["units"].tolist() == [sum(found.n.values())]
            if isinstance(found, PvalueVerdict):
                assert frame["pvalue"].tolist() == [found.pvalue]
    assert {procedure.Verdict for procedure in PROCEDURES.values()} - {BaseVerdict} <= {
        base for kind in kinds for base in kind.__mro__
    }


def test_without_pandas_frames_say_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    found = result("joint_independence", DECISION)
    frame = found.to_pandas()
    assert frame.loc[0, "finding"] == found.finding
    monkeypatch.setitem(sys.modules, "pandas", None)
    for shown in (found, tacit.adjust([found])):
        with pytest.raises(InputError, match="pip install pandas"):
            shown.to_pandas()


def test_a_pair_of_columns_is_said_to_differ_jointly_and_which_margin_may_explain_it() -> None:
    """One margin is 2 standard deviations off, two others are correlated: false alarms below 1e-5."""
    rng = np.random.default_rng(5)
    north = pd.DataFrame(rng.normal(0.5, 0.1, (4000, 3)), columns=["x1", "x2", "x3"])
    south = pd.DataFrame(rng.normal(0.5, 0.1, (4000, 3)), columns=["x1", "x2", "x3"])
    south["x3"] = 0.5 + 0.9 * (south["x2"] - 0.5) + 0.19**0.5 * (south["x3"] - 0.5)
    south["x1"] += 0.2
    found = kernel_two_sample(
        north, south, epsilon=8, delta=1e-5, bounds=(0, 1), alpha=1e-6, seed=1, features="auto"
    )
    columns, joint = found.heading.split("; joint distributions that differ: ")
    assert columns == "columns that differ: x1"
    assert set(joint.split(", ")) == {
        "x2 and x3",
        "x1 and x2 (x1 alone may explain it)",
        "x1 and x3 (x1 alone may explain it)",
    }
    (table,) = (
        part for part in found.details() if isinstance(part, ShownTable) and part.headings[0] == "Columns"
    )
    said = {row[0]: row[2] for row in table.rows}
    assert said["x1"] == "differ"
    assert said["x2"] == "no difference shown"
    assert said["x2 and x3"] == "joint distribution differs"
    assert said["x1 and x3"] == "joint distribution differs (x1 alone may explain it)"


def test_a_two_sample_result_names_the_columns_that_differ() -> None:
    """Ten standard deviations of shift against none: false alarms of the ones without are below 1e-6."""
    rng = np.random.default_rng(3)
    names = [f"c{index}" for index in range(9)]
    north = pd.DataFrame(rng.normal(0.5, 0.05, (4000, 9)), columns=names).assign(**{"<b>": 0.5})
    south = north[names] + ([0.3] * 7 + [0, 0])
    south = south.assign(**{"<b>": north["<b>"]})
    found = kernel_two_sample(
        north, south, epsilon=4, delta=1e-5, bounds=(0, 1), alpha=1e-6, seed=1, features="columns"
    )
    shown = found.heading
    assert shown.startswith("columns that differ: c")
    assert shown.endswith(", 2 more"), "five are named, of seven"
    assert not any(name in shown for name in ("c7", "c8", "<b>"))
    assert shown in repr(found)
    assert f"<p>{shown}</p>" in found._repr_html_()
    assert found.plot().get_suptitle().replace("\n", " ") == shown
    alike = kernel_two_sample(
        north, north, epsilon=4, delta=1e-5, bounds=(0, 1), alpha=1e-6, seed=1, features="columns"
    )
    assert alike.heading == "columns that differ: none"
    told = [column for column in found.columns if column.reject]
    hostile = found.model_copy(update={"columns": (told[0].model_copy(update={"columns": ("<b>",)}),)})
    assert "<p>columns that differ: &lt;b&gt;</p>" in hostile._repr_html_()
    none = found.model_copy(update={"columns": ()})
    assert none.heading == ""
    assert "heading" not in repr(none)
    assert none.plot().get_suptitle() == ""
