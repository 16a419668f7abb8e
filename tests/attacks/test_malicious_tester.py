"""A tester that lies, floods and digs: what it costs an agent, and what it gets."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from agent_fakes import AttackedAgent, MakeAgent, World
from hostile_child import ATTACKS, hostile_tester

from tacit_protocol.domain import Domain, NumericColumn
from tacit_protocol.messages.encoding import decode
from tacit_protocol.messages.study import ReleaseMessage, Study
from tacit_protocol.privacy.accounting import Amounts
from tacit_protocol.privacy.guarantee import Budget, NoisyVector
from tacit_protocol.procedures.discovery import PROCEDURES
from tacit_protocol.signing import RELEASE_TYPE, open_envelope
from tacit_services.agent.schema import State
from tacit_services.ledger import accounts

CHILD = Path(__file__).parents[1] / "support" / "hostile_child.py"

GROWTH_BYTES_MAX = 20 * 10**6
"""How much an agent's memory may grow under any attack."""

SECONDS_MAX = 60.0
"""Processor time that any one answer of the tester may cost; measured ones take two at most."""


def run_attacks(folder: Path, *planted: str) -> dict[str, Any]:
    """Let a hostile tester at an agent in a process of its own; return what it cost."""
    with hostile_tester() as url:
        child = subprocess.run(
            [sys.executable, str(CHILD), "attacks", str(folder), url, *planted],
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )
    assert child.returncode == 0, child.stderr
    report: dict[str, Any] = json.loads(child.stdout.splitlines()[-1])
    return report


def test_bombs_and_absurd_claims_cost_an_agent_little_memory_and_time(tmp_path: Path) -> None:
    report = run_attacks(tmp_path)
    outcomes = report["outcomes"]
    assert report["growth_bytes"] <= GROWTH_BYTES_MAX, outcomes
    assert max(found["seconds"] for found in outcomes.values()) < SECONDS_MAX
    for attack in ATTACKS:
        assert outcomes[attack]["outcome"].startswith("TesterUnavailableError: the tester"), attack
    for claim in ("10^9 features", "10^9 replicates", "10^9 cycles", "10^5 columns", "100 000 levels"):
        assert outcomes[claim]["outcome"].startswith("IntakeRefusedError"), claim


@pytest.mark.long
@pytest.mark.sweep(1)
@pytest.mark.parametrize("planted", ["gullible", "uncounted"])
def test_a_client_that_reads_first_and_looks_later_would_be_caught(tmp_path: Path, planted: str) -> None:
    assert run_attacks(tmp_path, planted)["growth_bytes"] > GROWTH_BYTES_MAX


# Changed studies.


def test_a_study_changed_after_it_was_answered_gets_nothing_new(make_agent: MakeAgent) -> None:
    attacked = make_agent()
    asked = attacked.world.ask(attacked.tester, attacked.world.study())
    attacked.turn()
    changed, _ = attacked.world.sealed(attacked.world.study(budget=Budget.of("1", "1e-6")))
    attacked.tester.studies[asked] = changed
    attacked.tester.releases.clear()
    attacked.turn()
    assert len({body for _, _, body in attacked.tester.received}) == 1
    assert len(attacked.debits()) == 1


def test_two_studies_under_one_digest_run_neither_but_the_one_that_it_names(make_agent: MakeAgent) -> None:
    attacked = make_agent()
    _, named = attacked.world.sealed(attacked.world.study())
    other, _ = attacked.world.sealed(attacked.world.study(title="Another question"))
    attacked.tester.add(other, named, 2**39)
    attacked.turn()
    assert attacked.row(named).problem == "digest-mismatch"
    assert (attacked.opened, attacked.debits()) == ([], [])


# Digging for one person.


def near_studies(world: World, count: int) -> list[Study]:
    """Return studies that ask nearly the same: other titles, seeds, bounds."""
    return [
        world.study(
            title=f"How high is x, {i}?",
            seed=f"{i:032x}",
            domain=Domain(columns=(NumericColumn(name="x", lower=0.0, upper=10.0 + i / 1000),)),
        )
        for i in range(count)
    ]


def ask_again_and_again(attacked: AttackedAgent, count: int) -> int:
    """Return how many of so many near-identical studies were answered with numbers."""
    asked = [attacked.world.ask(attacked.tester, study) for study in near_studies(attacked.world, count)]
    attacked.turn()
    states = [attacked.row(study).state for study in asked]
    assert set(states) <= {State.SENT, State.REFUSED}
    assert len(attacked.tester.received) == count
    return states.count(State.SENT)


def test_near_identical_studies_are_answered_until_the_budget_is_spent_and_no_longer(
    make_agent: MakeAgent,
) -> None:
    attacked = make_agent()
    answered = ask_again_and_again(attacked, 12)
    cap_micro = attacked.agent.settings.data_sets[0].caps.epsilon_micro
    assert 0 < answered < 12
    assert len(attacked.debits()) == answered
    assert cap_micro - 500_000 < attacked.spent() <= cap_micro
    assert {len(body) for body in attacked.tester.declines.values()} == {
        len(next(iter(attacked.tester.declines.values())))
    }


def test_an_account_that_forgets_what_was_spent_would_be_caught(
    make_agent: MakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accounts, "charge", lambda *_, **__: Amounts())
    attacked = make_agent()
    assert ask_again_and_again(attacked, 12) == 12


def kernel_agent(make_agent: MakeAgent, **written: str) -> AttackedAgent:
    return make_agent(procedures=PROCEDURES, **written)


def asked_about(attacked: AttackedAgent, lower: float, upper: float) -> str:
    domain = Domain(columns=(NumericColumn(name="x", lower=lower, upper=upper),))
    return attacked.world.ask(
        attacked.tester, attacked.world.study(procedure="kernel_two_sample", domain=domain)
    )


def vectors_sent(attacked: AttackedAgent, asked: str) -> dict[str, NoisyVector]:
    payload = open_envelope(attacked.tester.releases[asked], RELEASE_TYPE, attacked.world.agent.public_hex)
    return dict(decode(ReleaseMessage, payload).release.vectors)


def test_bounds_that_isolate_one_person_buy_no_less_noise(make_agent: MakeAgent) -> None:
    attacked = kernel_agent(make_agent)
    wide, narrow = asked_about(attacked, 0.0, 10.0), asked_about(attacked, 8.9999999, 9.0000001)
    attacked.turn()
    scales = [
        {name: (vector.scale, vector.exponent) for name, vector in vectors_sent(attacked, asked).items()}
        for asked in (wide, narrow)
    ]
    assert scales[0] == scales[1]
    first, second = attacked.debits()
    assert (first["epsilon_micro"], first["events"]) == (second["epsilon_micro"], second["events"])


@pytest.mark.parametrize("forgotten", [False, True])
def test_bounds_outside_the_declared_domain_are_declined_without_touching_data(
    make_agent: MakeAgent, monkeypatch: pytest.MonkeyPatch, forgotten: bool
) -> None:
    """And a policy that forgot the declared domain would be caught."""
    if forgotten:
        monkeypatch.setattr("tacit_services.agent.study.policy._require_declared_domain", lambda *_: None)
    declared = 'columns = [{kind = "numeric", name = "x", lower = 0.0, upper = 10.0}]'
    attacked = kernel_agent(make_agent, data_set=declared)
    asked = asked_about(attacked, -1.0, 10.0)
    attacked.turn()
    assert attacked.opened == (["patients"] if forgotten else [])
    assert (attacked.row(asked).problem == "policy-refused") != forgotten
