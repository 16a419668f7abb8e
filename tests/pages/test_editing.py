"""Policy and data sets on the agent's page: who may change them, what is checked, previewed, recorded."""

import os
import re
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
import sqlalchemy as sa
from agent_fakes import AttackedAgent
from browser import DESKTOP, running_browser, serving, visitor
from people_windows import add, wait_for, window_of
from pyarrow import parquet
from window import Window

from tacit.client.sign_in import Door
from tacit_protocol.domain import Domain, NumericColumn
from tacit_protocol.messages.study import Owner
from tacit_protocol.signing import CATALOGUE_TYPE, issue_token, open_envelope
from tacit_services.agent.data.sql_source import SqlSource, require_one_query
from tacit_services.agent.schema import SIGN_IN
from tacit_services.agent.settings import AgentSettings
from tacit_services.agent.study.policy import Policy
from tacit_services.agent.web.editing import (
    ADDED,
    CHANGED,
    FOUND,
    FOUND_DATA_SETS,
    DataSetEditor,
    PolicyEditor,
)
from tacit_services.agent.web.routes import Runtime, create_agent_app
from tacit_services.shared.database import create_engine, read_from
from tacit_services.shared.failpoints import PolicyStep
from tacit_services.shared.people import BY_FILE, KEY_HOLDER, recorded
from tacit_services.shared.settings import SettingsError

WRITTEN = "# why: the committee's vote of May <b>&</b> more\n"
CANARY = "Xc4nary7"


@dataclass
class Edited:
    """An agent whose policy has a comment, with a study that waits, and an officer's window."""

    agent: AttackedAgent
    officer: Window
    study: str

    @property
    def file(self) -> Path:
        return self.agent.agent.settings.policy_file

    @property
    def text(self) -> str:
        return self.file.read_text()

    def seen(self) -> str:
        page = self.officer.get("/policy/edit").text
        return page.split('name="seen" value="')[1][:64]

    def send(self, text: str, path: str = "/policy", seen: str | None = None) -> httpx.Response:
        form = {"form_token": self.officer.token(), "text": text, "seen": seen or self.seen()}
        return self.officer.post(path, {**form, "text": text.replace("\n", "\r\n")})

    def changes(self) -> list[dict[str, Any]]:
        return [
            entry
            for entry in self.officer.ask("GET", "/v1/record").json()["entries"]
            if entry["action"] in {CHANGED, FOUND}
        ]


@pytest.fixture
def edited(attacked: Callable[..., AttackedAgent]) -> Edited:
    agent = attacked(policy=f'{WRITTEN}approval = "by-hand"')
    PolicyEditor(agent.agent).note_file()
    study = agent.world.ask(agent.tester, agent.world.study(title="<script>alert(1)</script>?"))
    agent.turn()
    window = window_of(agent)
    add(window, ("oli", "officer"), ("ste", "steward"))
    return Edited(agent, window_of(agent).sign_in("oli"), study)


def test_an_officer_changes_the_policy_without_a_restart(edited: Edited) -> None:
    text = edited.text.replace("epsilon_per_study_max = 1.0", "epsilon_per_study_max = 0.25")
    preview = edited.send(text, "/policy/preview").text
    assert "would be refused</strong>, the study spends more epsilon than the policy allows" in preview
    assert "-epsilon_per_study_max = 1.0" in preview
    assert "&lt;script&gt;alert(1)&lt;/script&gt;?" in preview
    assert "<script>alert" not in preview
    assert edited.agent.agent.policy.epsilon_per_study_max == 1.0
    assert edited.send(text).status_code == 303
    assert edited.text == text
    assert WRITTEN in edited.text
    assert edited.agent.agent.policy == Policy.load(edited.file)
    page = edited.officer.get("/policy").text
    assert "by <bdi>oli</bdi>" in page
    assert "<dd>0.25</dd>" in page
    assert "&lt;b&gt;&amp;&lt;/b&gt; more" in page
    # What waits is held to it at once: approved, it is refused.
    ste = window_of(edited.agent).sign_in("ste")
    assert ste.post(f"/studies/{edited.study}/approval", {"form_token": ste.token()}).status_code == 303
    edited.agent.turn()
    assert edited.agent.row(edited.study).state.value == "refused"
    # And back: what comes in is allowed again.
    assert edited.send(text.replace("0.25", "1.0")).status_code == 303
    again = edited.agent.world.ask(edited.agent.tester, edited.agent.world.study(title="Again?"))
    edited.agent.turn()
    assert edited.agent.row(again).state.value == "waiting-for-approval"
    assert [(entry["person"], entry["action"]) for entry in edited.changes()] == [
        (BY_FILE, FOUND),
        ("oli", CHANGED),
        ("oli", CHANGED),
    ]
    assert "+epsilon_per_study_max = 0.25" in edited.changes()[1]["detail"]["diff"]


def test_a_study_that_a_change_would_allow_is_said(edited: Edited) -> None:
    strict = edited.text.replace("epsilon_per_study_max = 1.0", "epsilon_per_study_max = 0.25")
    assert edited.send(strict).status_code == 303
    preview = edited.send(strict.replace("0.25", "1.0"), "/policy/preview").text
    assert "would be allowed</strong>, and is not now" in preview
    assert "Nothing: this is the policy as it is" in edited.send(strict, "/policy/preview").text


FAULTS: dict[str, str] = {
    "approval = ": "it is not TOML",
    f'approval = "{CANARY}"': "approval",
    "epsilon_per_study_max = -1": "epsilon_per_study_max",
    f"unknown_{CANARY} = 1": "",
    "": "",
    "approvals = 3": "approvals",
    "x" * 200_000: "characters at most",
    "[[[": "it is not TOML",
    "a = 1\na = 2": "it is not TOML",
    **dict.fromkeys(
        (
            "a = " + "[" * 3000,
            "a = " + "[\n" * 3000,
            "a = " + "{a=" * 3000,
            ".".join("a" * 40_000) + " = 1",
            ".".join(['"a"'] * 20_000) + " = 1",
            'x = """a"""" \n' + ".".join("a" * 40_000) + " = 1",
            f"[{'.'.join('a' * 40_000)}]",
            "units_min = " + "9" * 90_000,
            "units_min = 0x" + "f" * 90_000,
            '"""' + '\\"""' * 20_000,
            '"' * 90_000,
        ),
        "",
    ),
}
"""What is no policy, the last ones for their depth or their size, and a part of what is said of it."""


def test_a_policy_that_the_parser_does_not_take_changes_nothing(edited: Edited) -> None:
    before, policy = edited.text, edited.agent.agent.policy
    for text, words in FAULTS.items():
        for path in ("/policy", "/policy/preview"):
            answer = edited.send(text, path)
            assert answer.status_code == 422, text[:40]
            shown = unescape(answer.text.split('role="alert">')[1].split("</p>")[0])
            assert words in shown, text[:40]
            assert "Nothing was changed" in shown
            assert str(edited.file.parent) not in answer.text
        assert (edited.text, edited.agent.agent.policy) == (before, policy)
    assert len(edited.changes()) == 1
    assert [path.name for path in edited.file.parent.glob(".policy*")] == []


def test_of_two_who_change_at_once_one_is_told(edited: Edited) -> None:
    seen, text = edited.seen(), edited.text
    assert edited.send(text + "# one\n", seen=seen).status_code == 303
    assert edited.send(text + "# two\n", seen=seen).status_code == 409
    assert edited.text == text + "# one\n"
    edited.file.write_text(text + "# by hand\n")
    assert edited.send(text + "# three\n", seen=edited.changes()[-1]["entry_hash"]).status_code == 409
    assert edited.text == text + "# by hand\n"
    statuses: list[int] = []
    seen = edited.seen()

    def change(number: int) -> None:
        statuses.append(edited.send(f"{text}# thread {number}\n", seen=seen).status_code)

    threads = [threading.Thread(target=change, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(statuses) == [303, 409, 409, 409]


def test_one_person_cannot_lift_that_two_approve(edited: Edited) -> None:
    two = "approvals = 2\n" + edited.text
    assert edited.send(two).status_code == 303
    for one in (edited.text.replace("approvals = 2", "approvals = 1"), two.replace("approvals = 2\n", "")):
        answer = edited.send(one)
        assert answer.status_code == 422
        assert "one person cannot lift that here" in answer.text
    assert edited.agent.agent.policy.approvals == 2


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_file_is_said_to_be_by_permissions(edited: Edited) -> None:
    edited.file.parent.chmod(0o500)
    try:
        assert "it is read-only" in edited.officer.get("/policy/edit").text
    finally:
        edited.file.parent.chmod(0o700)


def test_a_read_only_file_is_said_to_be(edited: Edited, monkeypatch: pytest.MonkeyPatch) -> None:
    before, seen = edited.text, edited.seen()

    def refuse(*_: Any, **__: Any) -> Any:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("tacit_services.agent.web.editing.os.access", lambda *_: False)
    page = edited.officer.get("/policy/edit").text
    assert "it is read-only" in page
    assert ">Save</button>" not in page
    monkeypatch.setattr("tacit_services.agent.web.editing.tempfile.mkstemp", refuse)
    answer = edited.send(before + "# more\n", seen=seen)
    assert answer.status_code == 422
    assert "Read-only file system" in answer.text
    assert (edited.text, len(edited.changes())) == (before, 1)


def test_a_file_that_was_changed_by_hand_is_recorded_at_the_next_start(edited: Edited) -> None:
    editor = PolicyEditor(edited.agent.agent)
    editor.note_file()
    assert len(edited.changes()) == 1
    edited.file.write_text(edited.text + "# by hand\n")
    assert (
        "changed since the agent read it" not in edited.officer.get("/policy").text
    )  # a comment says nothing
    edited.file.write_text(edited.text.replace("= 1.0", "= 0.75"))
    assert "changed since the agent read it" in edited.officer.get("/policy").text
    editor.note_file()
    assert [entry["person"] for entry in edited.changes()] == [BY_FILE, BY_FILE]
    assert "+# by hand" in edited.changes()[1]["detail"]["diff"]
    assert window_of(edited.agent).ask("PUT", "/v1/users/file", {"role": "viewer"}).status_code == 409


def test_the_file_keeps_its_rights_and_a_link_stays_a_link(edited: Edited) -> None:
    real = edited.file.with_name("real.toml")
    edited.file.rename(real)
    edited.file.symlink_to(real.name)
    real.chmod(0o640)
    editor = PolicyEditor(edited.agent.agent)
    now = editor.read()
    editor.change(now.text + "# linked\n", now.digest, edited.agent.agent.key_holder)
    assert edited.file.is_symlink()
    assert (real.read_text(), real.stat().st_mode & 0o777) == (now.text + "# linked\n", 0o640)


def test_a_change_of_what_may_run_divides_the_accounts_or_is_refused(
    attacked: Callable[..., AttackedAgent],
) -> None:
    agent = attacked(policy='approval = "by-hand"', data_set="pure_share = 0.5\napproximate_share = 0.5")
    editor = PolicyEditor(agent.agent)
    now = editor.read()
    text = now.text.replace("delta_per_study_max = 1e-5", "delta_per_study_max = 0.0")
    editor.change(text, now.digest, agent.agent.key_holder)
    assert agent.agent.policy.maximum.delta_pico == 0


# Data sets that an admin adds.

ROWS = "patient_id,age,sex,<b>ward</b>\n" + "".join(
    f"p{i},{20 + i},{'FM'[i % 2]},w{CANARY}\n" for i in range(60)
)


@dataclass
class Adding(Edited):
    """An agent with a folder and a database of which data sets may be added, and an admin's window."""

    folder: Path

    def choose(self, **place: str) -> httpx.Response:
        return self.officer.post("/data-sets/columns", {"form_token": self.officer.token(), **place})

    def fields(self, page: httpx.Response, **said: str) -> dict[str, str]:
        """Return the form as the page proposes it, with what is said instead."""
        return fields_of(page.text) | said

    def add(self, fields: dict[str, str], path: str = "/data-sets") -> httpx.Response:
        return self.officer.post(path, {**fields, "form_token": self.officer.token()})

    def offered(self) -> list[str]:
        found = self.officer.get("/data-sets/new").text.partition('name="file"')[2].partition("</select>")[0]
        return [unescape(one) for one in re.findall('<option value="([^"]+)"', found)]

    @property
    def added(self) -> Path:
        return self.agent.agent.settings.policy_file.with_name("data-sets.toml")


def fields_of(page: str) -> dict[str, str]:
    """Return the fields of a page's form of columns, as a browser that changes nothing would send them."""
    form = page.partition('action="/data-sets/preview"')[2].partition("</form>")[0]
    found = {}
    for tag in re.findall("<input [^>]*>", form):
        named = {name: unescape(value) for name, value in re.findall('([a-z]+)="([^"]*)"', tag)}
        found[named["name"]] = named.get("value", "")
    for name, options in re.findall('<select id="[^"]*" name="([^"]*)">(.*?)</select>', form, re.DOTALL):
        chosen = re.search('<option value="([^"]*)" selected', options)
        found[name] = unescape(chosen[1]) if chosen else ""
    return found


@pytest.fixture
def adding(tmp_path: Path, attacked: Callable[..., AttackedAgent]) -> Adding:
    folder = tmp_path / "extracts"
    (folder / "years" / "year=2024").mkdir(parents=True)
    (folder / "Ward A.csv").write_text(ROWS)
    (folder / "notes.txt").write_text(CANARY)
    (folder / ".hidden.csv").write_text(ROWS)
    (tmp_path / "outside.csv").write_text(ROWS)
    (folder / "link.csv").symlink_to(tmp_path / "outside.csv")
    (folder / "linked").symlink_to(tmp_path)
    table = pa.table({"age": [1.0, 2.0], "alive": [True, False], "seen": pa.array([1, 2], pa.date32())})
    parquet.write_table(table, folder / "years" / "year=2024" / "a.parquet")
    with closing(sqlite3.connect(tmp_path / "warehouse.sqlite3")) as database:
        database.execute("CREATE TABLE stays (age REAL, bmi REAL)")
        database.execute("INSERT INTO stays VALUES (41.5, 22.5)")
        database.commit()
    more = 'data_folders = ["extracts"]\n[connections]\nwarehouse = "sqlite:///warehouse.sqlite3"'
    agent = attacked(policy='approval = "by-hand"', agent=more)
    window = window_of(agent)
    add(window, ("adm", "admin"), ("oli", "officer"))
    return Adding(agent, window_of(agent).sign_in("adm"), "", folder.resolve())


def test_an_admin_adds_a_file_and_studies_use_it_without_a_restart(adding: Adding) -> None:
    file = str(adding.folder / "Ward A.csv")
    assert adding.offered() == [file, f"{adding.folder / 'years'}/"]
    page = adding.choose(file=file)
    fields = adding.fields(page, epsilon="1.5", delta="1e-6", about="<img src=x onerror=alert(1)>")
    assert CANARY not in page.text
    assert "no value" in page.text
    assert "&lt;b&gt;ward&lt;/b&gt;" in page.text
    assert "<b>ward" not in page.text
    named = {fields[f"column-{i}"]: fields[f"kind-{i}"] for i in range(4)}
    assert named == {"patient_id": "", "age": "numeric", "sex": "categorical", "<b>ward</b>": ""}
    assert (fields["name"], fields["lower-1"], fields["upper-1"], fields["levels-2"]) == (
        "ward-a",
        "0",
        "120",
        "F, M",
    )
    preview = adding.add(fields, "/data-sets/preview")
    assert preview.status_code == 200
    assert "+name = &#34;ward-a&#34;" in preview.text
    assert not adding.added.exists()
    assert adding.add(fields).status_code == 303
    shown = adding.officer.get("/data-sets").text
    assert "ward-a" in shown
    assert "<img src=x" not in preview.text + shown
    assert "by <bdi>adm</bdi>" in shown
    assert "the policy does not name this data set" in shown
    # An officer lets studies use it, with the lines that the page proposes.
    proposed = unescape(adding.officer.get("/policy/edit?data_set=ward-a").text)
    assert '[data_sets."ward-a"]\ncolumns = ["age", "sex"]' in proposed
    text = adding.text + '\n[data_sets."ward-a"]\ncolumns = ["age", "sex"]\n'
    assert adding.send(text).status_code == 303
    world = adding.agent.world
    asked = world.study(
        domain=Domain(columns=(NumericColumn(name="age", lower=0.0, upper=100.0),)),
        owners=(
            Owner(name="north", key=world.agent.public_hex, data_set="ward-a"),
            Owner(name="south", key="5" * 64, data_set="patients"),
        ),
    )
    digest = world.ask(adding.agent.tester, asked)
    adding.agent.turn()
    adding.agent.agent.approve(digest)
    adding.agent.turn()
    assert [(entry["data_set"], entry["study"]) for entry in adding.agent.debits()] == [("ward-a", digest)]
    # And so after a restart.
    again = AgentSettings.load(adding.file.with_name("agent.toml"))
    assert again == adding.agent.agent.settings
    entries = adding.officer.ask("GET", "/v1/record").json()["entries"]
    assert [(e["person"], e["action"]) for e in entries if e["action"] == ADDED] == [("adm", ADDED)]


def test_an_admin_adds_a_query_of_a_connection_and_no_more_than_one_query(adding: Adding) -> None:
    page = adding.choose(connection="warehouse", query="SELECT age, bmi FROM stays")
    fields = adding.fields(page, name="stays", epsilon="1", delta="0")
    assert (fields["kind-1"], fields["lower-1"], fields["upper-1"]) == ("numeric", "10", "80")
    assert adding.add(fields).status_code == 303
    assert "sqlite://" not in adding.officer.get("/data-sets").text
    assert "sqlite://" not in adding.added.read_text()
    assert AgentSettings.load(adding.file.with_name("agent.toml")) == adding.agent.agent.settings
    assert "the data set stays is of the same rows" in adding.choose(
        connection="warehouse", query="SELECT  age, bmi\nFROM stays"
    ).text.replace("&#39;", "'")


def test_what_is_not_one_query_is_refused(adding: Adding) -> None:
    """Of each kind: attacks/test_hostile_queries.py has them all."""
    for query in (
        "SELECT 1; DROP TABLE stays",
        "DELETE FROM stays",
        "SELECT * FROM nothing",
        "</textarea><script>alert(1)</script>",
        "SELECT '</textarea><script>alert(1)</script>' FROM nothing",
        "",
        "SELECT " + "1," * 6000 + "1",
    ):
        answer = adding.choose(connection="warehouse", query=query)
        assert answer.status_code == 422, query[:40]
        assert "Nothing was changed" in answer.text
        assert "<script>alert" not in answer.text
        with closing(sqlite3.connect(adding.folder.parent / "warehouse.sqlite3")) as database:
            assert database.execute("SELECT count(*) FROM stays").fetchone() == (1,)


def test_no_path_is_free(adding: Adding) -> None:
    """A path that was not offered, by any spelling, is neither read nor written."""
    here, out = str(adding.folder), str(adding.folder.parent / "outside.csv")
    for file in (
        out,
        "/etc/passwd",
        f"{here}/../outside.csv",
        f"{here}/link.csv",
        f"{here}/linked/outside.csv",
        f"{here}/.hidden.csv",
        f"{here}/notes.txt",
        f"{here}/./Ward A.csv",
        "Ward A.csv",
        "sqlite:///warehouse.sqlite3",
        f"{here}/Ward A.csv\n",
        "<script>alert(1)</script>",
    ):
        for path in ("/data-sets/columns", "/data-sets/preview", "/data-sets"):
            answer = adding.add({"file": file}, path)
            assert answer.status_code == 422, file
            assert CANARY not in answer.text
            assert "<script>alert" not in answer.text
    for place in ({"connection": "no", "query": "SELECT 1"}, {"connection": "", "query": ""}, {}):
        assert adding.choose(**place).status_code == 422
    assert not adding.added.exists()


FAULTY: dict[str, tuple[dict[str, str], str]] = {
    "bounds the wrong way round": ({"lower-1": "9", "upper-1": "3"}, "age: lower must be less than upper"),
    "NaN": ({"lower-1": "nan"}, "age, lower: write a number"),
    "an infinity": ({"upper-1": "inf"}, "age, upper: write a number"),
    "no number": ({"upper-1": "1,5"}, "age, upper: write a number, such as 0.5, with a point"),
    "too wide": ({"lower-1": "-1e308", "upper-1": "1e308"}, "upper - lower must be finite"),
    "no level": ({"levels-2": " , "}, "sex: write its levels, each once"),
    "a level twice": ({"levels-2": "F, F"}, "sex: write its levels, each once"),
    "a name twice": ({"name": "patients"}, "there is a data set patients already"),
    "no name": ({"name": ""}, "name: String should match pattern"),
    "a hostile name": ({"name": "<script>alert(1)</script>"}, "name: String should match pattern"),
    "no epsilon": ({"epsilon": ""}, "epsilon: write a number"),
    "epsilon below": ({"epsilon": "-1"}, "epsilon: Input should be greater than 0"),
    "delta of one": ({"delta": "1"}, "delta: Input should be less than 1"),
    "no such unit column": ({"unit_column": "<i>no</i>"}, "the source has no such column"),
    "units in words": ({"units": "many"}, "units: write a whole number"),
    "another column": ({"column-1": "weight"}, "the columns have changed meanwhile"),
    "long words": ({"about": "x" * 1001}, "about: String should have at most 1000 characters"),
}


def test_a_mistake_in_the_form_is_said_and_changes_nothing(adding: Adding) -> None:
    plain = adding.fields(adding.choose(file=str(adding.folder / "Ward A.csv")), epsilon="1", delta="0")
    for case, (said, words) in FAULTY.items():
        fields = plain | {"about": "<img src=x onerror=alert(1)>", **said}
        for path in ("/data-sets", "/data-sets/preview"):
            answer = adding.add(fields, path)
            assert (answer.status_code, words in unescape(answer.text)) == (422, True), case
            assert "<script>alert" not in answer.text
            assert "<img src=x" not in answer.text
            # Nothing that was typed is lost.
            assert fields_of(answer.text)["epsilon"] == fields["epsilon"]
    assert not adding.added.exists()
    assert len(adding.agent.agent.settings.data_sets) == 1


def test_an_operator_who_allows_nothing_lets_nothing_be_added(edited: Edited) -> None:
    add(window_of(edited.agent), ("adm", "admin"))
    adm = window_of(edited.agent).sign_in("adm")
    assert "Add a data set" not in adm.get("/data-sets").text
    assert "The operator has not allowed it" in adm.get("/data-sets/new").text
    form = {"form_token": adm.token(), "file": str(edited.file.with_name("patients.csv"))}
    assert adm.post("/data-sets/columns", form).status_code == 422


def test_the_columns_of_parquet_have_types_and_of_a_header_without_names_nothing_is_told(
    adding: Adding,
) -> None:
    fields = adding.fields(adding.choose(file=f"{adding.folder / 'years'}/"))
    found = {fields[f"column-{i}"]: (fields[f"kind-{i}"], fields[f"levels-{i}"]) for i in range(4)}
    assert found["alive"] == ("categorical", "false, true")
    assert found["seen"][0] == found["year"][0].replace("numeric", "") == ""
    for name, text, words in (
        ("bare.csv", f"41,{CANARY}\n42,x\n", "numbers where names should be"),
        ("semicolons.csv", f"age;sex\n1;{CANARY}\n", "separated by semicolons"),
        ("twice.csv", "age,age\n", "more than one column"),
        ("empty.csv", "", "no header"),
        ("latin.csv", "\xe4ge,sex\n", ""),
    ):
        (adding.folder / name).write_bytes(text.encode("latin-1"))
        answer = adding.choose(file=str(adding.folder / name))
        assert (answer.status_code, words in answer.text, CANARY in answer.text) == (422, True, False), name


def test_an_added_file_that_was_edited_by_hand_is_recorded_and_checked_at_the_next_start(
    adding: Adding,
) -> None:
    fields = adding.fields(adding.choose(file=str(adding.folder / "Ward A.csv")), epsilon="1", delta="0")
    assert adding.add(fields).status_code == 303
    config = adding.file.with_name("agent.toml")
    adding.added.write_text(adding.added.read_text().replace("epsilon = 1.0", "epsilon = 0.5"))
    DataSetEditor(adding.agent.agent).note_file()
    entries = adding.officer.ask("GET", "/v1/record").json()["entries"]
    assert [e["person"] for e in entries if e["action"] == FOUND_DATA_SETS] == [BY_FILE]
    adding.added.write_text(adding.added.read_text().replace("epsilon = 0.5", "epsilon = -1"))
    with pytest.raises(SettingsError, match=r"data_sets\.1\.epsilon"):
        AgentSettings.load(config)
    adding.added.write_text('[[data_sets]]\nname = "x"\nconnection = "gone"\nquery = "SELECT 1"\n')
    with pytest.raises(SettingsError, match="no connection of that name"):
        AgentSettings.load(config)


@pytest.mark.both_databases
def test_a_query_of_postgresql_tells_its_types(postgres_url: str) -> None:
    engine = sa.create_engine(postgres_url.replace("postgresql://", "postgresql+psycopg://", 1))
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE visits (age integer, alive boolean, at date, sex text)")
    engine.dispose()
    query = "SELECT age, alive, at, sex, age::text AS word FROM visits"
    require_one_query(postgres_url, query)
    found = {column.name: column.type for column in SqlSource(postgres_url, query).schema()}
    assert found == {"age": "number", "alive": "yes or no", "at": "other", "sex": "text", "word": "text"}


# A real agent, killed within a change, whose catalogue follows.


@pytest.mark.long
@pytest.mark.sweep(1)
@pytest.mark.parametrize("point", [*PolicyStep])
def test_an_agent_killed_within_a_change_starts_with_one_policy_and_says_so(
    tmp_path: Path, real_agent: Callable[..., Any], point: PolicyStep
) -> None:
    agent, policy = real_agent(policy='approval = "by-hand"'), tmp_path / "policy.toml"
    before = policy.read_text()
    after = before.replace("epsilon_per_study_max = 1.0", "epsilon_per_study_max = 0.5")
    with agent.running(point.value), agent.browser() as browser:
        form = agent.hidden(browser.get("/policy/edit"), "form_token", "seen")
        with pytest.raises(httpx.TransportError):
            browser.post("/policy", data={**form, "text": after})
    assert policy.read_text() == (before if point is PolicyStep.RECORDED else after)
    with agent.running():
        record = agent.ask("GET", "/v1/record").json()
        assert record["fault"] is None
        assert all("text" not in entry["detail"] for entry in record["entries"])
    engine = create_engine(f"sqlite:///{tmp_path / 'agent.sqlite3'}")
    entries, _ = read_from(engine, recorded, SIGN_IN.people, agent.world.agent.public_hex)
    told = [(entry["person"], entry["detail"]["text"]) for entry in entries]
    put_back = [(BY_FILE, before)] if point is PolicyStep.RECORDED else []
    assert told == [(BY_FILE, before), (KEY_HOLDER, after), *put_back]
    engine.dispose()


@pytest.mark.long
@pytest.mark.sweep(1)
@pytest.mark.parametrize("point", [*PolicyStep])
def test_an_agent_killed_while_a_data_set_is_added_has_it_or_not_and_may_add_it_again(
    tmp_path: Path, real_agent: Callable[..., Any], point: PolicyStep
) -> None:
    agent = real_agent(policy='approval = "by-hand"', agent='data_folders = ["extracts"]')
    (tmp_path / "extracts").mkdir()
    (tmp_path / "extracts" / "ward.csv").write_text(ROWS)

    def add_it() -> int | None:
        with agent.browser() as browser:
            file = agent.hidden(browser.get("/data-sets/new"), "form_token")
            file["file"] = str((tmp_path / "extracts" / "ward.csv").resolve())
            fields = fields_of(browser.post("/data-sets/columns", data=file).text)
            try:
                said = {**fields, **file, "epsilon": "1", "delta": "0"}
                return browser.post("/data-sets", data=said).status_code
            except httpx.TransportError:
                return None

    with agent.running(point.value):
        assert add_it() is None
    assert (tmp_path / "data-sets.toml").exists() is (point is PolicyStep.WRITTEN)
    with agent.running():
        assert add_it() == (303 if point is PolicyStep.RECORDED else 422)
        held = [one["name"] for one in agent.ask("GET", "/v1/status").json()["data_sets"]]
        assert held == ["patients", "ward"]
        assert agent.ask("GET", "/v1/record").json()["fault"] is None
        assert agent.ask("GET", "/v1/ledger/verification").json()["ok"]


@pytest.mark.long
def test_a_change_is_published_without_a_restart(tmp_path: Path, real_agent: Callable[..., Any]) -> None:
    agent = real_agent(policy='approval = "by-hand"\ncatalogue = true')
    with agent.running():
        wait_for(lambda: len(agent.tester.catalogues) == 1)
        with agent.browser() as browser:
            form = agent.hidden(browser.get("/policy/edit"), "form_token", "seen")
            text = (tmp_path / "policy.toml").read_text().replace("max = 1.0", "max = 0.5")
            assert browser.post("/policy", data={**form, "text": text}).status_code == 303
        wait_for(lambda: len(agent.tester.catalogues) == 2)
        first, second = (
            open_envelope(envelope, CATALOGUE_TYPE, agent.world.agent.public_hex)
            for envelope in agent.tester.catalogues
        )
        assert b'"epsilon_micro":1000000' in first
        assert b'"epsilon_micro":500000' in second


# One steward's day in a real browser: a data set, the policy, two people, a look, the ledger.


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_data_set_is_added_allowed_asked_approved_by_two_looked_at_and_in_the_ledger(
    tmp_path: Path, attacked: Callable[..., AttackedAgent]
) -> None:
    folder = tmp_path / "extracts"
    folder.mkdir()
    (folder / "ward.csv").write_text(ROWS)
    agent = attacked(
        policy=f'{WRITTEN}approval = "by-hand"\napprovals = 2\nlook_before_sending = true',
        agent='data_folders = ["extracts"]',
    )
    agent.agent.clock = agent.clock = time.time  # type: ignore[assignment]
    agent.world.ask(agent.tester, agent.world.study(title="And <i>y</i>?"))
    agent.turn()
    app = create_agent_app(agent.agent, Runtime("0", lambda: True, lambda: None))
    window = Window(
        app, "http://localhost", lambda: issue_token(agent.world.agent, "agent:north", int(time.time()))
    )
    add(window, ("ann", "steward"), ("adm", "admin"), ("vic", "viewer"))
    with serving(app) as url, running_browser() as browser:
        door = Door(url, url, "agent:north", agent.world.agent)
        with visitor(browser) as adm, visitor(browser) as ann, visitor(browser) as vic:
            for person, name in ((adm, "adm"), (ann, "ann"), (vic, "vic")):
                person.sign_in(door, name)
            page = adm.page
            page.goto(f"{url}/data-sets")
            page.get_by_role("link", name="Add a data set").click()
            adm.wait_for_heading("A file on this machine")
            adm.require_accessible()
            page.get_by_label("In the folders that agent.toml allows").select_option(index=1)
            page.get_by_role("button", name="Next: its columns").click()
            adm.wait_for_heading("Columns and their public bounds")
            page.get_by_label("All ε that may ever be spent").fill("2")
            page.get_by_label("All δ that may ever be spent").fill("1e-5")
            page.get_by_role("button", name="Preview").click()
            adm.wait_for_heading("What would change")
            adm.require_accessible()
            adm.phone_picture("agent-data-set-phone")
            page.set_viewport_size({"width": DESKTOP["width"], "height": 1600})
            adm.picture("agent-data-set-columns")
            page.set_viewport_size(DESKTOP)
            page.get_by_role("button", name="Add the data set").click()
            adm.wait_for_heading("Added here")
            page.get_by_text("by adm").click()
            adm.require_accessible()
            page.get_by_role("link", name="Let studies use it").click()
            text = page.get_by_label("comments and all").input_value()
            assert WRITTEN in text
            assert text.startswith((tmp_path / "policy.toml").read_text())  # and what it proposes
            page.get_by_label("comments and all").fill(text.replace("max = 1.0", "max = 0.1"))
            page.get_by_role("button", name="Preview").click()
            page.get_by_text("would be refused").wait_for()
            adm.require_accessible()
            adm.picture("agent-policy-edit")
            page.get_by_label("comments and all").fill(text)
            page.get_by_role("button", name="Save").click()
            adm.wait_for_heading("Changes")
            assert agent.agent.policy.columns_of("ward") == ("age", "sex")

            world = agent.world
            asked = world.study(
                domain=Domain(columns=(NumericColumn(name="age", lower=0.0, upper=100.0),)),
                title="How old are they?",
                owners=(
                    Owner(name="north", key=world.agent.public_hex, data_set="ward"),
                    Owner(name="south", key="5" * 64, data_set="patients"),
                ),
            )
            digest = world.ask(agent.tester, asked)
            agent.turn()
            vic.page.goto(f"{url}/studies/{digest}")
            assert vic.page.get_by_role("button", name="Approve").count() == 0
            vic.require_accessible()
            for person, button in ((adm, "Approve as the first of two"), (ann, "Approve and spend")):
                person.page.goto(f"{url}/")
                person.page.get_by_role("link", name="How old are they?").click()
                if person is ann:
                    person.picture("agent-second-approval")
                person.page.get_by_role("button", name=button).click()
                person.page.get_by_text("Approved by " + ("adm" if person is adm else "ann")).wait_for()
            page.goto(f"{url}/people")
            page.get_by_label("Name: small letters").fill("cid")
            page.get_by_label("Role", exact=True).select_option("viewer")
            page.get_by_role("button", name="Add", exact=True).click()
            page.get_by_text("Change cid").click()
            page.get_by_label("Role of cid").select_option("steward")
            page.get_by_role("button", name="Save").click()
            page.get_by_text("user changed, cid as steward, by adm").wait_for()
            page.get_by_text("Change cid").click()
            adm.require_accessible()
            adm.phone_picture("agent-people-phone")
            adm.picture("agent-people")
            page.get_by_role("button", name="Remove cid").click()
            page.get_by_text("user removed, cid, by adm").wait_for()

            agent.turn()
            assert agent.row(digest).state.value == "held"
            ann.page.goto(f"{url}/")
            ann.page.get_by_text("Its release is made and paid for").wait_for()
            ann.require_accessible()
            ann.page.get_by_role("link", name="How old are they?").click()
            ann.wait_for_heading("The release, as it would leave")
            ann.require_accessible()
            ann.phone_picture("agent-held-phone")
            ann.page.set_viewport_size({"width": DESKTOP["width"], "height": 1150})
            ann.picture("agent-held")
            ann.page.set_viewport_size(DESKTOP)
            ann.page.get_by_role("button", name="Send the release").click()
            ann.page.get_by_text("released", exact=True).wait_for()
            agent.turn()
            assert digest in agent.tester.releases
            ann.page.goto(f"{url}/ledger")
            ann.page.get_by_role("cell", name="adm, ann").wait_for()
            ann.require_accessible()
            assert (adm.complaints, ann.complaints, vic.complaints) == ([], [], [])
            SIGN_IN.of_people(agent.agent.engine, time.time).remove(agent.agent.key_holder, "ann")
            ann.page.goto(f"{url}/")
            ann.wait_for_heading("This browser is not signed in")
