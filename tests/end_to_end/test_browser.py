"""The pages in a real Chromium: sign in by a link, approve, decline, and read the verdict off its chart."""

import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from agent_fakes import AttackedAgent
from browser import Visitor, hostile_site, visitor
from scipy.stats import chi2
from served import serving

from tacit.client.sign_in import Door, agent_door, make_sign_in_link, party_door
from tacit.command.app import run
from tacit.setup.configuration import DataSetSetup, PolicySetup
from tacit.setup.federation import LocalFederation, OwnerSetup
from tacit.studies.draft import StudyDraft
from tacit_services.agent.web.routes import Runtime, create_agent_app

Eventually = Callable[[Callable[[], Any]], Any]

UNITS = 1500
PATIENCE_S = 300.0
TITLE = "Are the patients of north and south alike?"


@pytest.fixture
def steward(browser: Any) -> Iterator[Visitor]:
    with visitor(browser) as window:
        yield window


@pytest.fixture
def analyst(browser: Any) -> Iterator[Visitor]:
    with visitor(browser) as window:
        yield window


@pytest.fixture(scope="module")
def federation(
    browser: Any, patients: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LocalFederation]:
    """Two hospitals whose stewards decide by hand; the browser comes first, as without one all is skipped."""
    folder, owners = tmp_path_factory.mktemp("browser"), []
    for name, source in patients(folder, {"north": 50.0, "south": 56.0}, UNITS, seed=5):
        policy = PolicySetup(approval="by-hand", columns=("age", "sex"))
        owners.append(OwnerSetup(name, DataSetSetup("patients", source, 3.0, 1e-4), policy))
    with LocalFederation(folder / "federation", owners) as started:
        started.wait_until_ready()
        started.enrol_all()
        yield started


def ask(federation: LocalFederation, eventually: Eventually) -> str:
    """Create a study, and wait until both agents have it."""
    draft = StudyDraft.from_dict(
        {
            "title": TITLE,
            "columns": [
                {"kind": "numeric", "name": "age", "lower": 0, "upper": 120},
                {"kind": "categorical", "name": "sex", "levels": ["F", "M"]},
            ],
            "owners": [{"name": name, "data_set": "patients", "units": UNITS} for name in ("north", "south")],
            "epsilon": 1.0,
            "delta": 1e-5,
        }
    )
    with federation.analyst_client() as client:
        digest = client.create_study(draft)
    for owner in ("north", "south"):
        with federation.agent_client(owner) as agent:
            eventually(lambda agent=agent: any(study["digest"] == digest for study in agent.studies()))
    return digest


def door_of(federation: LocalFederation, owner: str) -> Door:
    return agent_door(federation.folder / owner / "agent.toml")


def numbers(text: str) -> np.ndarray:
    return np.array([[float(part) for part in point.split(",")] for point in text.split()])


def values_at(chart: Any, kind: str) -> Callable[[Any], Any]:
    """Read a chart's axis back from its ticks; returns what maps a coordinate to a value."""
    ticks = chart.locator(f".{kind}-tick").evaluate_all(
        "all => all.map(t => [t.dataset.at, t.dataset.value])"
    )
    at, value = np.array(ticks, dtype=float).T
    slope, start = np.polyfit(at, value, 1)
    return lambda where: start + slope * where


def test_a_steward_approves_and_the_verdict_is_on_its_chart(
    federation: LocalFederation,
    steward: Visitor,
    analyst: Visitor,
    tacit_process: Callable[..., "subprocess.CompletedProcess[str]"],
    eventually: Eventually,
    tmp_path: Path,
) -> None:
    digest = ask(federation, eventually)
    analyst.sign_in(party_door(federation.analyst.configuration))
    analyst.page.get_by_role("link", name=TITLE).click()
    analyst.page.get_by_text("0 of 2 releases are in").wait_for()
    analyst.require_accessible()

    steward.sign_in(door_of(federation, "north"))
    steward.page.get_by_text(re.compile(r"Sends \d+ numbers.*; costs ε = 1; no row leaves")).wait_for()
    steward.require_accessible()
    steward.picture("agent-inbox")
    steward.page.get_by_role("link", name=TITLE).click()
    steward.page.get_by_role("button", name="Approve and spend ε = 1").wait_for()
    steward.require_accessible()
    steward.picture("agent-study")
    steward.page.get_by_role("button", name="Approve and spend ε = 1").click()
    steward.page.locator(".state", has_text=re.compile("approved|released|sent")).wait_for()
    # Nobody touches the analyst's page: what has come shows by itself.
    analyst.page.get_by_text("1 of 2 releases are in").wait_for()
    with federation.agent_client("south") as agent:
        agent.approve(digest)
    analyst.page.get_by_role("heading", name="Verdict", exact=True).wait_for()
    analyst.require_accessible()
    analyst.picture("tester-verdict")
    analyst.phone_picture("tester-verdict-phone")
    require_every_page_of_the_tester(analyst, digest)

    with federation.analyst_client() as client:
        verdict = client.wait_for_verdict(digest, timeout_s=PATIENCE_S).result.verdict
    require_chart_of(analyst.page, verdict)
    with analyst.page.expect_download() as download:
        analyst.page.get_by_role("link", name="Download the transcript").click()
    transcript = tmp_path / "transcript.json"
    download.value.save_as(transcript)
    snippet = analyst.page.locator("#verify").text_content().split()
    assert snippet[:2] == ["tacit", "verify"]
    assert tacit_process("verify", str(transcript), *snippet[3:]).returncode == 0

    require_report_of(analyst, verdict, tmp_path)
    mine = tmp_path / "mine.html"
    party = str(federation.analyst.configuration)
    assert run(["study", "report", digest[:12], "--output", str(mine), "--party", party]) == 0
    assert mine.read_text("utf-8") == (tmp_path / "report.html").read_text("utf-8")

    for name in ("Ledger", "Data sets", "Policy"):
        steward.page.get_by_role("link", name=name).click()
        steward.wait_for_heading(name, exact=True)
        steward.require_accessible()
        steward.picture("agent-" + name.lower().replace(" ", "-"))
    steward.page.get_by_role("link", name="Ledger").click()
    steward.wait_for_heading("Ledger", exact=True)
    require_burn_down_of(steward.page, federation)
    assert (steward.complaints, analyst.complaints) == ([], [])


def require_every_page_of_the_tester(analyst: Visitor, digest: str) -> None:
    """Lists, searches, catalogue, plan and errors: as a person meets them, on every screen."""
    study = analyst.page.url
    base = study.removesuffix(f"/studies/{digest}")
    analyst.page.goto(base)
    analyst.page.locator(".said", has_text="p = ").wait_for()
    analyst.require_accessible()
    analyst.picture("tester-studies")
    analyst.phone_picture("tester-studies-phone")
    analyst.page.get_by_label("Words of the title").fill("PATIENTS")
    analyst.page.get_by_label("State").select_option("completed")
    analyst.page.get_by_role("button", name="Show").click()
    analyst.page.get_by_role("link", name=TITLE).wait_for()
    analyst.page.get_by_label("Owner").fill("nobody")
    analyst.page.get_by_role("button", name="Show").click()
    analyst.page.get_by_text("No study is like that").wait_for()
    analyst.require_accessible()
    for path, words in (
        ("/none", "There is nothing at this address"),
        (f"/studies/{'0' * 64}", "There is no such study"),
        ("/?state=odd", "The message is malformed"),
        ("/v1/studies", "The request carries no valid token"),
    ):
        analyst.page.goto(base + path)
        analyst.wait_for_heading(words)
        analyst.require_accessible()
        assert analyst.page.get_by_role("link", name="Back to the first page").count() == 1
    for name in ("Data sets", "Plan"):
        analyst.page.get_by_role("link", name=name).click()
        analyst.page.wait_for_load_state()
        analyst.require_accessible()
    # The browser itself tells the console of every answer that is an error.
    analyst.complaints[:] = [said for said in analyst.complaints if "Failed to load resource" not in said]
    analyst.page.goto(study)
    analyst.page.get_by_role("heading", name="Verdict", exact=True).wait_for()


def require_chart_of(page: Any, verdict: Any) -> None:
    chart = page.locator("svg.null")
    value = values_at(chart, "x")
    mark = float(chart.locator("line.mark").get_attribute("x1"))
    assert value(mark) == pytest.approx(verdict["statistic"], rel=1e-3)
    assert float(chart.get_attribute("data-statistic")) == verdict["statistic"]
    assert float(page.locator("svg.pvalue").get_attribute("data-pvalue")) == verdict["pvalue"]
    shown = page.locator('div:has(> h3:has-text("squared MMD")) svg.rows .row').last
    assert [float(shown.get_attribute(f"data-{part}")) for part in ("value", "lower", "upper")] == [
        verdict[part] for part in ("squared_mmd", "lower", "upper")
    ]
    # The curve is the law that the page names, computed here in another way: differences of its distribution.
    count = int(re.search(r"largest of (\d+) chi-squared", chart.get_attribute("aria-label"))[1])
    points = numbers(chart.locator("polyline.curve").get_attribute("points"))
    t, drawn = value(points[:, 0]), points[:, 1].max() - points[:, 1]
    step = 1e-4
    law = (chi2.cdf(t + step, 1) ** count - chi2.cdf(t - step, 1) ** count) / (2 * step)
    peak = int(law.argmax())
    assert drawn / drawn[peak] == pytest.approx(law / law[peak], abs=0.02)
    # Shaded is what lies beyond the statistic, and nothing before it.
    tail = numbers(chart.locator("polygon.tail").get_attribute("points"))
    assert tail[:, 0].min() == mark


def require_report_of(analyst: Visitor, verdict: Any, folder: Path) -> None:
    """The report says the same, is one page of A4, and breaks no rule of its own on any screen."""
    with analyst.page.expect_download() as download:
        analyst.page.get_by_role("link", name="Download the report").click()
    report = folder / "report.html"
    download.value.save_as(report)
    page = analyst.context.new_page()
    page.set_content(report.read_text("utf-8"))
    assert page.get_by_role("heading", name=TITLE).count() == 1
    assert float(page.locator("svg.null").get_attribute("data-statistic")) == verdict["statistic"]
    assert "differential privacy with ε = 1, δ = 1e-05" in page.locator("main").text_content()
    Visitor(analyst.context, page, analyst.complaints).require_accessible()
    pdf = page.pdf(prefer_css_page_size=True)
    assert len(re.findall(rb"/Type\s*/Page\b", pdf)) == 1
    page.close()


def require_burn_down_of(page: Any, federation: LocalFederation) -> None:
    chart = page.locator("svg.burn-down")
    value = values_at(chart, "y")
    dots = chart.locator("circle.dot").evaluate_all(
        "all => all.map(d => [d.getAttribute('cy'), d.dataset.left])"
    )
    with federation.agent_client("north") as agent:
        entries = agent.ledger("patients")
    share, *taken = (entry["gaussian_femto"] for entry in entries)
    left = [100 * (1 - sum(taken[:count]) / share) for count in range(len(entries))]
    assert [float(part) for _, part in dots] == pytest.approx(left)
    assert [value(float(y)) for y, _ in dots] == pytest.approx(left, abs=0.1)


@pytest.fixture
def attacked(tmp_path: Path) -> Iterator[tuple[AttackedAgent, Door, str]]:
    """An agent of this process, its clock in the test's hands, with one study that waits."""
    agent = AttackedAgent(tmp_path, policy='approval = "by-hand"')
    digest = agent.world.ask(agent.tester, agent.world.study())
    agent.turn()
    app = create_agent_app(agent.agent, Runtime("0", lambda: True, lambda: None))
    with serving(app) as url:
        yield agent, Door(url, url, "agent:north", agent.world.agent), digest
    agent.agent.engine.dispose()


def test_a_form_of_another_site_is_refused_even_with_a_stolen_token(
    attacked: tuple[AttackedAgent, Door, str], steward: Visitor
) -> None:
    agent, door, digest = attacked
    page, link = steward.page, make_sign_in_link(door, clock=agent.clock).url
    page.goto(door.shown)
    page.get_by_role("heading", name="This browser is not signed in").wait_for()
    steward.require_accessible()
    page.goto(link)
    steward.require_accessible()
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("link", name="How high is x?").click()
    (cookie,) = steward.context.cookies()
    assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
    stolen = page.locator("input[name=form_token]").first.get_attribute("value")
    for token in ("", stolen):
        attack = (
            f'<form method="post" action="{door.shown}/studies/{digest}/approval">'
            f'<input name="form_token" value="{token}"><button>Win a prize</button></form>'
        )
        with hostile_site(attack) as evil:
            page.goto(evil)
            with page.expect_request(lambda request: request.method == "POST") as sent:
                page.get_by_role("button", name="Win a prize").click()
            page.get_by_role("heading", name="The form did not come from").wait_for()
            # The same host is the same site: the cookie did come along, and did not help.
            assert "tacit-agent-north" in sent.value.all_headers().get("cookie", "")
        assert agent.row(digest).state.value == "waiting-for-approval"
    page.goto(f"{door.shown}/studies/{digest}")
    page.get_by_role("button", name=re.compile("Approve")).click()
    page.locator(".state.approved").wait_for()
