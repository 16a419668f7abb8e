"""A steward holds the data against a study before deciding: what is said, and that it stays there."""

import json
import re
from pathlib import Path

import pytest
from agent_fakes import AttackedAgent
from window import Window

import tacit_services.agent
from tacit_protocol.domain import CategoricalColumn, Domain, NumericColumn
from tacit_protocol.messages.study import Study
from tacit_protocol.signing import issue_token
from tacit_services.agent.__main__ import main
from tacit_services.agent.study.policy import Policy
from tacit_services.agent.web.routes import Runtime, create_agent_app
from tacit_services.ledger.verification import export
from tacit_services.shared.database import read_from

ROWS = "x,smoker,id\n" + "".join(f"{'' if i % 2 else 25 + i},{'yno'[i % 2 :]},p{i}\n" for i in range(60))
"""Half of x is missing, nothing lies within 0 to 1, and nobody smokes Yes or No."""

SAID = (
    "100 % can be read as numbers; 0 % lies within 0 to 1; 50 % is missing, and would be read as 0.5",
    "0 % is listed, and no row has level Yes or No",
)


def asking(agent: AttackedAgent) -> Study:
    columns = (
        NumericColumn(name="x", lower=0.0, upper=1.0),
        CategoricalColumn(name="smoker", levels=("Yes", "No")),
    )
    return agent.world.study(domain=Domain(columns=columns))


def waiting(folder: Path) -> tuple[AttackedAgent, str]:
    agent = AttackedAgent(folder, policy='approval = "by-hand"')
    policy = folder / "policy.toml"
    policy.write_text(policy.read_text().replace('"absent"', '"smoker"'))
    agent.agent.use_policy(Policy.load(policy))
    (folder / "patients.csv").write_text(ROWS)
    digest = agent.world.ask(agent.tester, asking(agent))
    agent.turn()
    return agent, digest


def test_a_steward_sees_what_a_study_would_read_and_nothing_else_changes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    agent, digest = waiting(tmp_path)
    app = create_agent_app(agent.agent, Runtime("0", lambda: True, lambda: None))
    signed = lambda: issue_token(agent.world.agent, "agent:north", int(agent.clock()))  # noqa: E731
    window, path = Window(app, "http://localhost", signed).sign_in(), f"/studies/{digest}/data-check"
    token, before = window.token(), agent.row(digest)
    spent, sent = read_from(agent.agent.engine, export), list(agent.tester.received)
    assert not any(words in window.get(f"/studies/{digest}").text for words in SAID)
    capsys.readouterr()
    shown = window.post(path, {"form_token": token})
    assert shown.status_code == 200
    for words in SAID:
        assert words in shown.text
    assert "To decline because of what is here is your own act" in shown.text
    (tmp_path / "patients.csv").rename(tmp_path / "away.csv")
    assert "Nothing could be read: patients: the " in window.post(path, {"form_token": token}).text
    # It costs nothing, is sent and logged nowhere, and is not kept.
    assert agent.row(digest) == before
    assert read_from(agent.agent.engine, export) == spent
    assert agent.tester.received == sent
    logged = "".join(capsys.readouterr())
    assert "%" not in logged
    assert not any(words in window.get(f"/studies/{digest}").text for words in SAID)
    assert window.post(f"/studies/{digest}/decline", {"form_token": token}).status_code == 303
    assert window.post(path, {"form_token": token}).status_code == 409
    agent.agent.engine.dispose()


def test_the_command_says_the_same_of_a_file_and_of_a_digest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    agent, digest = waiting(tmp_path)
    envelope, _ = agent.world.sealed(asking(agent))
    (tmp_path / "study.dsse").write_bytes(envelope)
    config = str(tmp_path / "agent.toml")
    capsys.readouterr()
    for asked in (str(tmp_path / "study.dsse"), digest, digest[:8]):
        assert main(["check", "--config", config, "--study", asked]) == 1
        out = capsys.readouterr().out
        assert f"study: {digest}" in out
        for words in SAID:
            assert words in out
        assert "not ready: patients: FAILED x: " in out
    assert main(["check", "--config", config, "--study", digest, "--json"]) == 1
    (item,) = json.loads(capsys.readouterr().out)["data_sets"]
    assert [(found["name"], found["state"], found["missing"]) for found in item["findings"]] == [
        ("x", "failed", 30),
        ("smoker", "failed", 0),
    ]
    for none in ("0" * 64, "no-such-file", str(tmp_path / "patients.csv")):
        assert main(["check", "--config", config, "--study", none]) == 1
        assert "study" in capsys.readouterr().out
    agent.agent.engine.dispose()


def test_nothing_that_an_agent_decides_by_itself_reads_these_facts() -> None:
    folder = Path(tacit_services.agent.__file__).parent
    reading = {
        file.name
        for file in folder.rglob("*.py")
        if re.search(r"import .*\b(study_report|check_study)\b|column_facts import", file.read_text())
    }
    assert reading == {"check.py", "pages.py", "__main__.py"}
