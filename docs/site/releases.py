"""Write docs/security/releases: a page a procedure of what it releases, from runs of the procedure itself.

``python docs/site/releases.py`` writes them; a test compares. Every study of the audits
(tests/audits/audited_procedures.py) is priced, summarised and privatised by its procedure, with a noise source that
adds nothing. What the procedure hands to the mechanisms on the way, sensitivities, scales and grids, is noted
there, and no figure is entered here.
"""

# ruff: noqa: E501 (sentences of a page, written as they will stand there)

import inspect
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "audits"), str(ROOT / "tests" / "support")]

from audited_procedures import AUDITED  # noqa: E402
from release_audit import ReleaseCase, release  # noqa: E402

from tacit_protocol.messages.study import Release, Study  # noqa: E402
from tacit_protocol.privacy import laplace_mechanism, permutation_test  # noqa: E402
from tacit_protocol.privacy.gaussian_mechanism import SumPart  # noqa: E402
from tacit_protocol.privacy.guarantee import ApproximateEvent, GaussianEvent, MechanismEvent  # noqa: E402
from tacit_protocol.procedures.base import candidates_of  # noqa: E402
from tacit_protocol.procedures.counts import release as count_release  # noqa: E402
from tacit_protocol.procedures.discovery import PROCEDURES  # noqa: E402

FOLDER = ROOT / "docs" / "security" / "releases"

WRITTEN = "<!-- Written by `python docs/site/releases.py` from runs of the code: change the code, and write it again. -->"

AUDIT = "../../../tests/audits/test_sensitivity_of_releases.py"

INDEX = f"""# What each procedure releases

{WRITTEN}

A page a procedure: for each way its release is made, the vectors, how far one unit can move them exactly (rounding
included), the noise, and the events that the ledger is charged with. The studies are those of the
[audits](../audits.md), so that each line's sensitivity is one that [`test_sensitivity_of_releases.py`]({AUDIT})
searches for neighbours that reach it, and never finds passed. [Everything that leaves](../egress.md) lists
the other fields of a release.

Not in these tables, for they leave nothing but a coin or go to one owner: the decisions of `identity` by Priv'IT and by repetition, whose
exact probabilities [`test_identity_decisions.py`](../../../tests/audits/test_identity_decisions.py) compares, and the covariance that the receiver of a sealed
release publishes, in [`test_peer_covariance.py`](../../../tests/audits/test_peer_covariance.py).

| procedure | asks | ways of releasing that are audited |
|---|---|---|
"""


@dataclass
class Handed:
    """What a procedure handed to the mechanisms while it made one release."""

    parts: dict[str, SumPart] = field(default_factory=dict)
    laplace: list[tuple[float, float]] = field(default_factory=list)
    """Sensitivities, in whatever unit they were given, with the scale that was made of them."""
    compared: list[tuple[int, float, float]] = field(default_factory=list)
    """Of a decision: how many statistics, and the sensitivities of the observed and of a permuted one."""


@contextmanager
def watched() -> Iterator[Handed]:
    """Note what the mechanisms are handed."""
    handed = Handed()
    scale, laplace, prepare = (
        SumPart.scale,
        laplace_mechanism.scale_of_event,
        permutation_test.prepare_comparison,
    )

    def scale_of(part: SumPart, mu: float) -> float:
        handed.parts[part.name] = part
        return scale(part, mu)

    def laplace_of(sensitivity: float, multiplier: float) -> float:
        found = laplace(sensitivity, multiplier)
        handed.laplace.append((sensitivity, found))
        return found

    def prepared(
        statistics: Any, sensitivity: float, *rest: Any, permuted_sensitivity: float | None = None
    ) -> Any:
        other = sensitivity if permuted_sensitivity is None else permuted_sensitivity
        handed.compared.append((len(statistics), sensitivity, other))
        return prepare(statistics, sensitivity, *rest, permuted_sensitivity=permuted_sensitivity)

    with (
        patch.object(SumPart, "scale", scale_of),
        patch.object(laplace_mechanism, "scale_of_event", laplace_of),
        patch.object(count_release, "laplace_scale", laplace_of),
        patch.object(laplace_mechanism, "laplace_scale", laplace_of),
        patch.object(permutation_test, "prepare_comparison", prepared),
    ):
        yield handed


def number(value: float) -> str:
    """Return a figure of a page."""
    return f"{value:.5g}"


def event_text(event: MechanismEvent) -> str:
    """Return an event as the ledger records it."""
    if isinstance(event, ApproximateEvent):
        return f"({number(event.epsilon)}, {number(event.delta)})"
    kind = "Gaussian, σ/Δ" if isinstance(event, GaussianEvent) else "Laplace, b/Δ"
    return f"{kind} = {number(event.noise_multiplier)}"


def rows_of(name: str, case: ReleaseCase) -> Iterator[str]:
    """Yield a table's rows for one study: a row a vector, and one for a decision or a choice."""
    table = case.neighbours(0)[0]
    with watched() as handed:
        made = release(case.study, table)
    events = "; ".join(event_text(event) for event in made.guarantee.events)
    budget = f"{number(case.study.budget.epsilon)}, {number(case.study.budget.delta)}"
    lines = list(lines_of(case.study, made, handed))
    for place, (what, numbers, sensitivity, noise) in enumerate(lines):
        first = (f"{name} (n = {made.units})", budget) if place == 0 else ("", "")
        yield f"| {' | '.join((*first, what, numbers, sensitivity, noise, events if place == 0 else ''))} |"


def lines_of(study: Study, made: Release, handed: Handed) -> Iterator[tuple[str, str, str, str]]:
    """Yield, for each thing that leaves: what it is, how many numbers, its sensitivity and its noise."""
    for name, vector in made.vectors.items():
        scale = f"{vector.noise}, {number(vector.scale)} on a grid of 2^{vector.exponent}"
        yield f"`{name}`", str(len(vector.values)), sensitivity_of(name, made, handed), scale
    if made.decision is not None:
        if handed.compared:
            count, observed, permuted = handed.compared[-1]
            moved = f"{number(observed)} observed, {number(permuted)} each of {count - 1} permuted"
            yield "the decision", "1 bit", moved, "Laplace on every statistic, none of which leaves"
        else:
            yield "the decision", "1 bit", "as its page derives", "as its page derives"
    if made.choice is not None:
        sensitivity, scale_found = handed.laplace[-1]
        moved = f"{number(sensitivity)} steps of any candidate's loss"
        count_words = f"1 of {candidates_of(PROCEDURES[study.procedure], study)}"
        yield "the choice", count_words, moved, f"Gumbel, {number(scale_found)} steps"


def sensitivity_of(name: str, made: Release, handed: Handed) -> str:
    """Return how far one unit moves a vector, in its own units."""
    vector = made.vectors[name]
    if vector.noise == "gaussian":
        part = handed.parts[name]
        share = "" if part.share == 1 else f", {number(part.share)} of μ²"
        return f"{number(part.sensitivity)} in L2{share}"
    if vector.noise == "k-norm":  # the scale is what one unit moves in that norm, over its event's epsilon
        paid = next(event for event in made.guarantee.events if isinstance(event, ApproximateEvent))
        return f"{number(vector.scale * paid.epsilon)} in the features' own norm"
    # In the vector's units, or in steps of its grid: the scale tells which.
    for sensitivity, scale in handed.laplace:
        for steps in (1.0, 2.0**vector.exponent):
            if abs(scale * steps / vector.scale - 1) < 1e-9:
                return f"{number(sensitivity * steps)} in L1"
    raise LookupError(f"nothing was handed over for {name}")


def page_of(name: str) -> str:
    """Return a procedure's page."""
    procedure = PROCEDURES[name]
    file = Path(inspect.getfile(type(procedure))).resolve().relative_to(ROOT)
    file = file.parent if file.name == "__init__.py" else file
    text = (ROOT / "docs" / "procedures" / f"{name}.md").read_text("utf-8")
    proofs = dict.fromkeys(
        line for line in text.replace(")", "\n").split("(") if line.startswith("../mathematics/")
    )
    links = sorted({proof.split("\n")[0] for proof in proofs})
    lines = [
        f"# What `{name}` releases",
        "",
        WRITTEN,
        "",
        f"{procedure.title} [The procedure](../../procedures/{name}.md); [its code](../../../{file}), of whose plans `summarise`",
        "and `privatise` decide what leaves.",
        "",
        "**Proofs**: " + ", ".join(f"[{link.rpartition('/')[2]}](../{link})" for link in links) + ";",
        "[grids, noise and composition](../../mathematics/privacy.md).",
        f"**Test**: [`test_sensitivity_of_releases.py`]({AUDIT}) goes through these studies under these names.",
        "",
        "Sensitivities are of sums over units, in the vectors' own units, with the rounding to the grid. Scales are standard deviations of Gaussian,",
        "and scales of Laplace noise. The shares of μ² of one release's vectors add up to 1, and to more where no unit moves all of them; a symmetric matrix is one vector, whose diagonal and",
        "off-diagonal entries (these without their √2, so with less noise) share its sensitivity and its share.",
        "",
        "| study | ε, δ | leaves | numbers | one unit moves it by | noise | events |",
        "|---|---|---|---|---|---|---|",
    ]
    for case_name, case in AUDITED[name].items():
        lines += rows_of(case_name, case)
    return "\n".join(lines) + "\n"


def pages() -> dict[Path, str]:
    """Return every page's text by its path."""
    index = INDEX + "".join(
        f"| [`{name}`]({name}.md) | {procedure.title} | {', '.join(AUDITED[name])} |\n"
        for name, procedure in PROCEDURES.items()
    )
    return {FOLDER / "README.md": index} | {FOLDER / f"{name}.md": page_of(name) for name in PROCEDURES}


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for path, text in pages().items():
        path.write_text(text, "utf-8")
