"""Whatever passes the checks that come before the debit ends in a verdict.

Random studies of every procedure: parameters from the procedure's own schema, few units, rare and constant
columns, one to three owners. Up to ``summarise`` a StudyError is the right answer and costs nothing; after it
the budget is spent, so nothing may be raised any more.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from made_studies import made_study
from two_sample_cases import MemoryTable, domain_of

from tacit.in_process.runner import in_masks, in_two_rounds
from tacit_protocol.domain import Domain, PooledTable, Table
from tacit_protocol.messages.study import Study
from tacit_protocol.privacy.noise import OpenDPNoise
from tacit_protocol.procedures.aggregated_test import WANTED
from tacit_protocol.procedures.aggregated_test.statistic import TESTS
from tacit_protocol.procedures.base import (
    PublicRuleError,
    StudyError,
    check_release,
    check_study,
    masking_of,
    require_units,
)
from tacit_protocol.procedures.discovery import PROCEDURES
from tacit_protocol.procedures.distance_correlation.release import ProjectionPlan
from tacit_protocol.procedures.relay import conclude, relay_of

ENDED = 30
"""Studies of a procedure that are to end in a verdict."""

STUDIES_MAX = 2000
"""Random studies that may be drawn until then: most are refused, which costs nothing."""

BY_BLOCKS = {"aggregated_test"}

TWO_SIDED = {"distance_correlation", "screening"}
SAME_UNITS = TWO_SIDED | {"mutual_independence"}


def random_study(name: str, rng: np.random.Generator) -> Study:
    """Draw a study; parameters that a schema gives no simple values for are left out."""
    numeric, categorical = int(rng.integers(0, 3)), tuple(rng.integers(4, 7, int(rng.integers(0, 3))))
    domain = domain_of(max(numeric, 2 - len(categorical)), [int(size) for size in categorical])
    test = str(rng.choice(list(TESTS))) if name == "aggregated_test" else ""
    if test:
        wanted = WANTED.get(TESTS[test].takes, (2, 1))
        domain = domain_of(wanted[0], [int(size) for size in rng.integers(4, 7, wanted[1])])
    names = [column.name for column in domain.columns]
    apart = name == "mutual_independence"
    if apart:
        domain = domain_of(numeric, [int(size) for size in rng.integers(4, 7, 3 - numeric)])
        names = [column.name for column in domain.columns]
    owners = 2 if name in TWO_SIDED else 3 if apart else int(rng.integers(1, 4))
    cut = int(rng.integers(1, len(names)))
    held = [tuple(names[:cut]), tuple(names[cut:])] if name in TWO_SIDED else [None] * owners
    held = [(column,) for column in names] if apart else held
    schema = PROCEDURES[name].Parameters.model_json_schema()
    parties = [f"o{place}" for place in range(owners)]
    share = float(rng.choice([0.0, 0.1, 0.3]))
    parameters = {
        field: drawn
        for field, shape in schema.get("properties", {}).items()
        if rng.random() < share and (drawn := random_value(field, shape, parties, rng)) is not None
    }
    if test:
        parameters = {"test": test, "blocks": int(rng.integers(1, 4))}
    if domain.numeric and "enum" not in schema["properties"].get("cuts", {"enum": []}):
        parameters["cuts"] = {column.name: [0.5] for column in domain.numeric}
    if "probabilities" in schema["properties"]:
        listed = [2] * len(domain.numeric) + [len(column.levels) for column in domain.categorical]
        cells = int(np.prod(listed))
        heavy = float(rng.choice([1 / cells, 0.97]))
        parameters["probabilities"] = [heavy] + [(1 - heavy) / (cells - 1)] * (cells - 1)
    if {"cuts", "replicates"} <= set(schema["properties"]):
        parameters["replicates"] = schema["properties"]["replicates"]["minimum"]
    return made_study(
        name,
        domain,
        parameters,
        owners=parties,
        held=held,
        curated=rng.random() < curated_share(name),
        epsilon=float(rng.choice([0.05, 1.0, 20.0])),
        delta=float(rng.choice([0.0, 1e-5, 1e-5])),
        level=float(rng.choice([0.2, 0.05, 0.01])),
        seed=int(rng.integers(2**62)),
    )


def curated_share(name: str) -> float:
    """Most procedures run either with a curator or without; identity runs both ways."""
    if name.startswith("curated") or name == "joint_independence":
        return 0.9
    return 0.3 if name in {"identity", "embedding_release"} else 0.05


def random_value(field: str, shape: Mapping[str, Any], parties: list[str], rng: np.random.Generator) -> Any:
    """Draw a value that a JSON schema allows, small where it is a number; None where it is not simple."""
    shape = next((part for part in shape.get("anyOf", [shape]) if part.get("type") != "null"), shape)
    if "enum" in shape:
        return str(rng.choice(shape["enum"]))
    kind = shape.get("type")
    if kind == "boolean":
        return bool(rng.random() < 0.5)
    if kind == "integer":
        low = int(shape.get("minimum", 1))
        return low + int(rng.integers(0, min(10, int(shape.get("maximum", 10**6)) - low + 1)))
    if kind == "number":
        low = float(shape.get("minimum", shape.get("exclusiveMinimum", 0.0)))
        high = float(shape.get("maximum", shape.get("exclusiveMaximum", low + 2)))
        return low + (min(high, low + 2) - low) * float(rng.uniform(0.05, 0.95))
    if field in {"receiver", "outcome"}:
        return str(rng.choice(parties))
    return None


def random_tables(study: Study, rng: np.random.Generator) -> dict[str, Table]:
    """Draw few units: uniform, constant or rare values, one or several rows each."""
    units = int(rng.choice([1, 2, 3, 4, 5, 7, 12, 40, *([60, 130] if study.procedure in BY_BLOCKS else [])]))
    tables: dict[str, Table] = {}
    for owner in study.owners:
        if study.procedure not in SAME_UNITS and rng.random() < 0.5:
            units = int(rng.choice([1, 2, 3, 6, 20]))
        domain = study.domain_of(owner)
        rows = units * int(rng.choice([1, 1, 3])) if study.procedure not in SAME_UNITS else units
        tables[owner.name] = random_table(domain, units, rows, rng)
    return tables


def random_table(domain: Domain, units: int, rows: int, rng: np.random.Generator) -> MemoryTable:
    rare = rng.random() < 0.5
    numeric = rng.random((rows, len(domain.numeric)))
    numeric = np.where(numeric > 0.95, 1.0, 0.0) if rare else numeric
    sizes = [column.categories for column in domain.categorical]
    codes = [np.zeros(rows) if rare else rng.integers(0, size, rows) for size in sizes]
    categorical = np.array(codes, dtype=np.int32).reshape(len(sizes), rows).T
    return MemoryTable(domain, numeric, categorical, None if rows == units else np.arange(rows) % units)


def ends(study: Study, tables: Mapping[str, Table]) -> bool:
    """Play a study; False where it was refused before anything was spent."""
    procedure = PROCEDURES[study.procedure]
    held = tables if study.curator is None else {study.curator.name: PooledTable(study.domain, tables)}
    try:
        check_study(procedure, study)
        procedure.cost(study)
        procedure.warnings(study, {name: table.units for name, table in tables.items()})
        for sender, table in held.items():
            counted = table.units_by_owner if isinstance(table, PooledTable) else {sender: table.units}
            require_units(procedure, study, counted)
    except StudyError:
        return False
    try:
        summaries = {sender: procedure.summarise(study, table) for sender, table in held.items()}
    except PublicRuleError:
        pytest.fail("a public rule is broken that check_units does not know: the analyst would not be told")
    except StudyError:
        return False
    if len({table.units for table in tables.values()}) > 1 and study.procedure in SAME_UNITS:
        return False  # no owner can know the other's number of units
    relay = relay_of(procedure, study)
    releases = {}
    if relay is not None and not relay.sealed:
        releases = in_two_rounds(procedure, relay, study, held, OpenDPNoise())
    else:
        for sender, summary in summaries.items():
            releases[sender] = procedure.privatise(study, summary, OpenDPNoise())
            check_release(procedure, study, releases[sender])
        if masking_of(procedure, study) is not None:
            releases = in_masks(procedure, study, releases)
    units = {sender: release.units for sender, release in releases.items()}
    conclude(procedure, study, releases, units)
    return True


@pytest.mark.sweep(3)
@pytest.mark.parametrize("name", sorted(PROCEDURES))
@pytest.mark.filterwarnings("error")
def test_what_passes_the_checks_ends_in_a_verdict(name: str) -> None:
    rng = np.random.default_rng(list(name.encode()))
    ended = 0
    for _ in range(STUDIES_MAX):
        study = random_study(name, rng)
        ended += ends(study, random_tables(study, rng))
        if ended == ENDED:
            return
    pytest.fail(f"only {ended} of {STUDIES_MAX} random studies ended in a verdict: the test says nothing")


def test_the_search_finds_a_check_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: projections are laid out whatever the number of units, as they once were."""
    monkeypatch.setattr(
        ProjectionPlan, "layout", lambda plan, side, units: plan.projections[side].parts(units)
    )
    parameters = {"method": "pnc"}
    study = made_study("distance_correlation", domain_of(2), parameters, owners=2, held=[["n0"], ["n1"]])
    rng = np.random.default_rng(1)
    tables = {owner.name: random_table(study.domain_of(owner), 3, 3, rng) for owner in study.owners}
    with pytest.raises(ValueError, match="too few units"):
        ends(study, tables)
