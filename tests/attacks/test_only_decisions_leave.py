"""Where a procedure releases a decision, nothing else that was derived leaves the function that decides.

A study runs through a real curator and a real tester. The statistics that the decision rests on are replaced
with canaries, and everything that both services wrote, sent and logged is searched for those statistics,
exact and noisy, for the p-value, and for the statistics that the procedure computed itself.
"""

import base64
import io
import json
import logging
import math
import re
import sqlite3
import struct
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import structlog
from curated_world import (
    CURATOR,
    OPERATOR,
    CuratorFederation,
    curated_study_of,
    curator_federation,
    registration,
)
from made_studies import SeededNoise

from tacit_protocol.domain import Domain, NumericColumn
from tacit_protocol.messages.study import Release
from tacit_protocol.privacy.guarantee import NoisyVector
from tacit_protocol.procedures.base import Procedure
from tacit_protocol.procedures.curated_two_sample import plan as curated_two_sample
from tacit_protocol.procedures.discovery import procedure_named
from tacit_protocol.procedures.joint_independence import plan as joint_independence
from tacit_protocol.verification import verify_transcript
from tacit_services.agent.schema import State
from tacit_services.agent.study.studies import study_row
from tacit_services.shared.database import run_transaction
from tacit_services.shared.logging import configure_logging

PERMUTATIONS = 998
"""999 statistics: no rank below that makes a p-value with fewer than a dozen digits."""

OBSERVED = 73_519_204.681
PERMUTED = 61_728_394.5 + 12_345.678 * np.arange(PERMUTATIONS)
"""Each of these begins with eight digits that nothing else holds; 43 of the permuted ones are larger."""

DIGITS = 8
"""Significant digits by which a number is looked for: it may have been rounded on its way."""

RANDOM_NAME = re.compile(r"(?<![0-9a-f])(?=[0-9]*[a-f])[0-9a-f]{16,}(?![0-9a-f])")
"""The ids of requests, files and keys, in which one run in a thousand found eight of the digits by chance."""

COLUMNS = (
    {"kind": "numeric", "name": "x", "lower": 0.0, "upper": 10.0},
    {"kind": "numeric", "name": "y", "lower": 0.0, "upper": 10.0},
)


class RecordingNoise(SeededNoise):
    """Remembers what came out."""

    def __init__(self) -> None:
        super().__init__(5)
        self.out: list[int] = []

    def laplace(self, values: npt.NDArray[np.int64], scale: float) -> npt.NDArray[np.int64]:
        noisy = super().laplace(values, scale)
        self.out.extend(int(value) for value in noisy)
        return noisy


@dataclass
class Seen:
    """The numbers that may not leave, and everything that was written or said, by place."""

    secrets: dict[str, float | int] = field(default_factory=dict)
    places: dict[str, bytes] = field(default_factory=dict)
    decision: bool | None = None

    def leaks(self) -> set[str]:
        """Return the kinds of numbers that were found, with the place."""
        found = set()
        for place, content in self.places.items():
            text = RANDOM_NAME.sub("", "\n".join(unpacked(content)))
            for name, value in self.secrets.items():
                kind = name.partition(" ")[0]
                if any(spelling in text for spelling in spellings(value)) or any(
                    bits in content for bits in bit_patterns(value)
                ):
                    found.add(f"{kind} in {place}")
        return found


def spellings(value: float | int) -> set[str]:
    """Return how a number may be written out, to eight significant digits."""
    scientific = f"{abs(value):.16e}"
    digits = scientific[0] + scientific[2 : DIGITS + 1]
    written = {f"{scientific[0]}.{digits[1:]}"}  # 7.3519204e+07
    if isinstance(value, int):
        return written | {str(abs(value))[:12]}
    whole = str(int(abs(value)))
    if len(whole) >= DIGITS:
        return written | {whole[:DIGITS]}
    return written | {repr(abs(value))[: DIGITS + 2]}


def bit_patterns(value: float | int) -> set[bytes]:
    """Return the bytes of a number as a database may keep it."""
    kind = "q" if isinstance(value, int) else "d"
    return {struct.pack(order + kind, value) for order in "<>"}


def unpacked(content: bytes) -> Iterator[str]:
    """Yield the content as text, and what the envelopes in it hold."""
    text = content.decode("utf-8", "replace")
    yield text
    for piece in text.replace("\\", "").split('"payload":"')[1:]:
        encoded = piece.partition('"')[0]
        try:
            yield base64.b64decode(encoded, validate=True).decode("utf-8", "replace")
        except ValueError:
            continue


@contextmanager
def logs() -> Iterator[io.StringIO]:
    """Everything that the services log, at the most talkative level."""
    root, output = logging.getLogger(), io.StringIO()
    before = root.handlers[:], root.level
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stderr", output)
        configure_logging("DEBUG")
        try:
            yield output
        finally:
            logging.captureWarnings(False)
            root.handlers[:], root.level = before
            structlog.reset_defaults()


Case = tuple[Any, dict[str, Any]]

CASES: dict[str, Case] = {
    "joint_independence": (joint_independence, {"method": "permutation", "permutations": PERMUTATIONS}),
    "curated_two_sample": (
        curated_two_sample,
        {
            "release": "permutation",
            "permutations": PERMUTATIONS,
            "samples": [["east"], ["west"]],
            "features": "kernel",
        },
    ),
}


def rows(seed: int) -> bytes:
    """Return forty rows whose columns depend on each other, and which differ between owners."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(0, 9, size=40)
    pairs = zip(x, x / 2 + rng.uniform(0, 1, size=40) + seed, strict=True)
    return b"x,y\n" + b"".join(f"{a:.3f},{min(b, 10):.3f}\n".encode() for a, b in pairs)


def play(folder: Path, case: str, plant: Callable[[Any], None] | None = None) -> Seen:
    """Run a study of the case; returns what was seen."""
    module, parameters = CASES[case]
    seen, noise = Seen(), RecordingNoise()
    genuine = module.permutation_decision

    def decide_on_canaries(statistics: npt.NDArray[np.float64], *arguments: Any, **options: Any) -> bool:
        for index, value in enumerate(statistics):
            if value != 0 and math.isfinite(value):
                seen.secrets[f"computed {index}"] = float(value)
        canaries = np.concatenate([[OBSERVED], PERMUTED])
        assert canaries.shape == statistics.shape
        return bool(genuine(canaries, *arguments, **options))

    procedure = type(procedure_named(case))()
    procedures: dict[str, Procedure] = {case: procedure}
    with pytest.MonkeyPatch.context() as patch, logs() as logged:
        patch.setattr(module, "permutation_decision", decide_on_canaries)
        if plant is not None:
            plant(procedure)
        with curator_federation(folder, procedures, noise) as federation:
            study = run_study(federation, case, parameters, seen)
            look(federation, study, seen)
        seen.places["the logs"] = logged.getvalue().encode()
    for database in ("tester", "curator"):
        path = folder / f"{database}.sqlite3"
        seen.places[f"the file of the {database}"] = path.read_bytes()
        with sqlite3.connect(path) as connection:
            seen.places[f"the tables of the {database}"] = "\n".join(dump(connection)).encode()
        connection.close()
    remember(seen, noise)
    return seen


def run_study(federation: CuratorFederation, case: str, parameters: dict[str, Any], seen: Seen) -> str:
    for seed, owner in enumerate(("east", "west")):
        federation.add_owner(owner, "automatic", registration("automatic", COLUMNS), rows(seed))
    columns = tuple(NumericColumn(name=name, lower=0.0, upper=10.0) for name in ("x", "y"))
    study = federation.put_study(
        curated_study_of(
            ("east", "west"), procedure=case, parameters=parameters, domain=Domain(columns=columns)
        )
    )
    federation.turn()
    row = run_transaction(federation.curator.engine, lambda c: study_row(c, study), read_only=True)
    if row.state is not State.SENT:
        return study
    transcript = federation.end(study)
    seen.places["the transcript"] = transcript
    seen.decision = verify_transcript(transcript).releases[CURATOR].decision
    return study


def look(federation: CuratorFederation, study: str, seen: Seen) -> None:
    """Read everything that the two interfaces show."""
    for party in ("east", OPERATOR):
        for path in ("/v1/studies", f"/v1/studies/{study}", "/v1/ledger", "/v1/data-sets", "/metrics"):
            seen.places[f"the curator's {path[:12]} to {party}"] = federation.call("GET", path, party).content
    for path in ("", "/verdict", "/transcript", "/envelope"):
        answer = federation.call_tester("GET", f"/v1/studies/{study}{path}", "ada")
        seen.places[f"the tester's study{path}"] = answer.content
    for path in ("/v1/studies", "/metrics"):
        seen.places[f"the tester's {path}"] = federation.call_tester("GET", path, "ada").content


def dump(connection: sqlite3.Connection) -> Iterator[str]:
    """Yield every value of every table; bytes as the text that they hold."""
    for (table,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
        for row in connection.execute(f'SELECT * FROM "{table}"'):  # noqa: S608 (our own tables)
            yield json.dumps(
                [value.decode("utf-8", "replace") if isinstance(value, bytes) else value for value in row]
            )


def remember(seen: Seen, noise: RecordingNoise) -> None:
    """Add to the secrets what the decision was made of."""
    assert len(noise.out) == PERMUTATIONS + 1
    seen.secrets["exact observed"] = OBSERVED
    seen.secrets |= {f"exact {index}": float(value) for index, value in enumerate(PERMUTED)}
    seen.secrets |= {f"noisy {index}": value for index, value in enumerate(noise.out)}
    seen.secrets["p-value"] = p_value(noise)


def p_value(noise: RecordingNoise) -> float:
    return (1 + sum(value >= noise.out[0] for value in noise.out[1:])) / (PERMUTATIONS + 1)


@pytest.mark.sweep(1)
@pytest.mark.parametrize("case", CASES)
def test_only_the_decision_leaves(tmp_path: Path, case: str) -> None:
    seen = play(tmp_path, case)
    assert seen.decision is not None
    assert any(name.startswith("computed") for name in seen.secrets)
    assert all(seen.places.values())
    assert seen.leaks() == set()


Plant = Callable[[Any], None]


def after_release(change: Callable[[Release, Any], Release]) -> Plant:
    """Have a procedure's release changed, or something done with what its noise was."""

    def plant(procedure: Any) -> None:
        planned = procedure.plan

        def plan(study: Any) -> Any:
            found = planned(study)
            genuine = found.privatise
            found.privatise = lambda summary, noise: change(genuine(summary, noise), noise)
            return found

        procedure.plan = plan

    return plant


def fail(_: Release, __: Any) -> Release:
    raise ValueError(f"could not release {OBSERVED!r}")


def log_a_statistic(release: Release, _: Any) -> Release:
    structlog.get_logger().info("deciding", statistic=OBSERVED)
    return release


def log_the_p_value(release: Release, noise: Any) -> Release:
    """Rounded."""
    structlog.get_logger().info("decided", pvalue=round(p_value(noise), 12))
    return release


def release_a_noisy_statistic(release: Release, noise: Any) -> Release:
    vector = NoisyVector(values=(noise.out[0],), exponent=-30, noise="laplace", scale=1.0)
    return release.model_copy(update={"vectors": {"statistic": vector}})


def unchecked(procedure: Any) -> None:
    """Plant: a release that holds a noisy statistic beside the decision, and nobody who checks it."""
    after_release(release_a_noisy_statistic)(procedure)
    planned = procedure.plan

    def plan(study: Any) -> Any:
        found = planned(study)
        found.check_release = lambda _: None
        return found

    procedure.plan = plan


def test_an_error_that_quotes_a_statistic_declines_without_it(tmp_path: Path) -> None:
    seen = play(tmp_path, "joint_independence", after_release(fail))
    assert seen.decision is None
    assert seen.leaks() == set()


@pytest.mark.long
@pytest.mark.sweep(1)
@pytest.mark.parametrize(
    ("plant", "leaks"),
    [
        (after_release(log_a_statistic), {"exact in the logs"}),
        (after_release(log_the_p_value), {"p-value in the logs"}),
        (
            unchecked,
            {
                "noisy in the transcript",
                "noisy in the tester's study/transcript",
                "noisy in the tables of the tester",
                "noisy in the tables of the curator",
            },
        ),
    ],
)
def test_a_planted_mistake_is_caught(tmp_path: Path, plant: Plant, leaks: set[str]) -> None:
    assert leaks <= play(tmp_path, "joint_independence", plant).leaks()


def test_the_search_knows_every_spelling() -> None:
    value, noisy = OBSERVED, 78_941_004_681_234_567
    payload = base64.b64encode(b'{"a":73519204.681}').decode()
    written = [
        b"73519204.681",
        b"7.3519204681e+07",
        json.dumps({"payload": payload}, separators=(",", ":")).encode(),
        struct.pack(">d", value),
        b"78941004681234567",
        struct.pack("<q", noisy),
    ]
    for content in written:
        assert Seen({"secret": value, "noisy": noisy}, {"here": content}).leaks(), content
    assert not Seen({"secret": value}, {"here": b"73519203.9"}).leaks()
