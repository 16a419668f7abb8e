"""Who computes: a tester that serves may leave verdicts to others, and a worker serves nothing."""

import asyncio
import threading
from typing import Any

import numpy as np
import pytest
from fastapi import FastAPI
from study_parties import MeanProcedure
from tester_federation import URL, Federation

from tacit.in_process.samples import ArrayTable, Sample
from tacit_protocol.messages.encoding import encode
from tacit_protocol.messages.study import ReleaseMessage
from tacit_protocol.privacy.guarantee import Budget, Guarantee
from tacit_protocol.privacy.noise import OpenDPNoise
from tacit_protocol.procedures.discovery import procedure_named
from tacit_protocol.procedures.kernel_two_sample import release as kernel_release
from tacit_protocol.signing import RELEASE_TYPE, sign_envelope
from tacit_services.tester.__main__ import create_tester
from tacit_services.tester.settings import TesterSettings

ONE_DATABASE = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)


def threads_while_serving(app: FastAPI) -> set[str]:
    """Return the names of the threads that it starts: an earlier test's may still be ending."""
    before = set(threading.enumerate())

    async def run() -> set[str]:
        async with app.router.lifespan_context(app):
            return {thread.name for thread in set(threading.enumerate()) - before}

    return asyncio.run(run())


@ONE_DATABASE
def test_a_tester_that_only_serves_computes_nothing(
    federation: Federation, mean_procedure: MeanProcedure
) -> None:
    study = federation.create()
    federation.release_all(study)
    settings = TesterSettings(name="tester", url=URL, key_file=federation._key_file, serve_only=True)
    app = create_tester(settings, federation.engine, lambda: federation.now)
    assert "worker" not in threads_while_serving(app)
    assert federation.state(study) == "computing"
    assert "worker" in threads_while_serving(federation.start_tester())


@ONE_DATABASE
def test_a_tester_works_a_plan_out_once_from_the_study_to_the_verdict(
    federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    calibrated, calibrate = [], kernel_release.gaussian_guarantee

    def counted(budget: Budget) -> Guarantee:
        calibrated.append(budget)
        return calibrate(budget)

    asked: dict[str, Any] = {"procedure": "kernel_two_sample", "respond_after_s": 0}
    parties, procedure = federation.parties, procedure_named("kernel_two_sample")
    study = parties.study(**asked)
    rows = ArrayTable.of(Sample({"age": np.linspace(1, 119, 40)}), study.domain, None)
    release = procedure.privatise(study, procedure.summarise(study, rows), OpenDPNoise())
    monkeypatch.setattr(kernel_release, "gaussian_guarantee", counted)
    name = federation.create(**asked)
    federation.get(f"/v1/studies/{name}")
    for owner, key in parties.owners.items():
        message = ReleaseMessage(study=name, party=owner, release=release)
        envelope = sign_envelope(encode(message), RELEASE_TYPE, key)
        assert federation.release(name, owner, envelope=envelope).status_code == 201
    federation.work()
    assert federation.verdict(name).outcome == "completed"
    assert len(calibrated) == 1


def test_a_link_of_one_tester_signs_in_at_another_once_and_the_session_holds_at_both(
    federation: Federation,
) -> None:
    one, other = federation.app, federation.start_tester()
    analyst = federation.parties.analyst
    made = asyncio.run(federation.send("POST", "/v1/sign-in-links", analyst, one, json={}))
    form = {"content-type": "application/x-www-form-urlencoded", "origin": URL}
    used = [
        asyncio.run(federation.send("POST", made.json()["path"], None, app, headers=form))
        for app in (other, one)
    ]
    assert [response.status_code for response in used] == [303, 403]
    cookie = used[0].headers["set-cookie"].partition(";")[0]
    for app in (one, other):
        page = asyncio.run(federation.send("GET", "/", None, app, headers={"cookie": cookie}))
        assert page.status_code == 200
        assert "Sign out" in page.text
