"""Verdict jobs: leases, failures, and what a killed tester leaves behind."""

from typing import Any

import pytest
from study_parties import MeanProcedure
from tester_federation import Federation, problem

from tacit_services.tester.jobs import ATTEMPTS_MAX, LEASE_S, RETRY_PAUSE_S

pytestmark = pytest.mark.both_databases


class KilledError(BaseException):
    """Stands for SIGKILL: no handler of the worker runs."""


def _kill() -> None:
    raise KilledError


def test_a_killed_testers_job_is_taken_again_after_its_lease(
    federation: Federation, mean_procedure: MeanProcedure
) -> None:
    study = federation.create()
    federation.release_all(study)
    other = federation.start_tester().state.worker
    mean_procedure.during_assembly = _kill
    with pytest.raises(KilledError):
        federation.work()
    mean_procedure.during_assembly = lambda: None
    federation.now += LEASE_S - 1
    assert not other.run_once()
    federation.now += 1
    assert other.run_once()
    assert federation.state(study) == "completed"
    assert mean_procedure.assembled == 2


def test_a_worker_that_lost_its_lease_stores_nothing(
    federation: Federation, mean_procedure: MeanProcedure
) -> None:
    study = federation.create()
    federation.release_all(study)
    other = federation.start_tester().state.worker

    def slow() -> None:
        mean_procedure.during_assembly = lambda: None
        federation.now += LEASE_S
        assert other.run_once()

    mean_procedure.during_assembly = slow
    assert federation.work()
    assert federation.state(study) == "completed"
    assert federation.verdict(study).outcome == "completed"


def test_a_procedure_that_fails_is_tried_again_and_then_given_up(
    federation: Federation, mean_procedure: MeanProcedure, capsys: pytest.CaptureFixture[str]
) -> None:
    study = federation.create()
    federation.release_all(study)

    def fails() -> None:
        raise ValueError("canary-7391")

    mean_procedure.during_assembly = fails
    for attempt in range(1, ATTEMPTS_MAX + 1):
        assert federation.state(study) == "computing"
        assert federation.work()
        assert not federation.work()
        federation.now += RETRY_PAUSE_S * attempt
    assert federation.state(study) == "failed"
    assert not federation.work()
    response = federation.get(f"/v1/studies/{study}/verdict")
    assert problem(response) == "verdict-failed"
    assert "canary" not in response.text + "".join(capsys.readouterr())


def test_a_verdict_that_is_not_finite_is_not_published(
    federation: Federation, mean_procedure: MeanProcedure, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = federation.create()
    federation.release_all(study)
    genuine = mean_procedure.assemble

    def infinite(*arguments: Any) -> Any:
        return genuine(*arguments).model_copy(update={"mean": float("nan")})

    monkeypatch.setattr(mean_procedure, "assemble", infinite)
    assert federation.work()
    assert federation.state(study) == "computing"
