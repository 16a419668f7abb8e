"""Studies played in this process: every owner's part, then the tester's, through the procedure itself."""

import hashlib
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from tacit.errors import InputError, StudyRefusedError
from tacit.results import TwoSampleResult, two_sample_result
from tacit_protocol.domain.columns import Domain
from tacit_protocol.domain.table import Table
from tacit_protocol.messages.study import Owner, Party, Study
from tacit_protocol.privacy.guarantee import Budget
from tacit_protocol.privacy.noise import NoiseSource
from tacit_protocol.procedures.base import Procedure, StudyError


def run(procedure: Procedure, study: Study, tables: Sequence[Table], noise: NoiseSource) -> TwoSampleResult:
    """Play every owner's part, then the tester's.

    Raises:
        StudyRefusedError: the procedure does not take the study.
    """
    try:
        procedure.check(study)
        releases = {
            owner.name: procedure.privatise(study, procedure.summarise(study, table), noise)
            for owner, table in zip(study.owners, tables, strict=True)
        }
        for release in releases.values():
            procedure.check_release(study, release)
        verdict = procedure.assemble(study, releases)
    except StudyError as error:
        raise StudyRefusedError(str(error)) from error
    return two_sample_result(study, verdict.model_dump(mode="json"))


def local_study(
    domain: Domain,
    names: Sequence[str],
    parameters: Mapping[str, Any],
    *,
    epsilon: float,
    delta: float,
    alpha: float,
    seed: str,
) -> Study:
    """Build a study for this process alone: its parties' keys sign nothing."""
    try:
        return Study(
            title="local",
            procedure="kernel_two_sample",
            parameters={key: value for key, value in parameters.items() if value is not None},
            domain=domain,
            owners=tuple(Owner(name=name, key=_no_key(name), data_set="local") for name in names),
            tester=Party(name="local.tester", key=_no_key("local.tester")),
            analyst=Party(name="local.analyst", key=_no_key("local.analyst")),
            budget=Budget.of(epsilon, delta),
            level=alpha,
            created_at=0,
            deadline=1,
            seed=seed,
        )
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = {"level": "alpha", "epsilon_micro": "epsilon", "delta_pico": "delta"}.get(
            str(first["loc"][-1]) if first["loc"] else "", ".".join(str(part) for part in first["loc"])
        )
        raise InputError(f"{place or 'the study'}: {first['msg'].removeprefix('Value error, ')}") from error
    except (ValueError, ArithmeticError) as error:
        raise InputError(f"epsilon and delta: {error}") from error


def seed_text(seed: int | None) -> str:
    """Return the study's public seed: fresh, or derived from a number."""
    if seed is None:
        return secrets.token_hex(16)
    return hashlib.sha256(f"tacit.local {seed}".encode()).hexdigest()[:32]


def _no_key(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()
