"""People who are in several data sets have one budget; what can be seen to be the same rows is refused."""

import json
import os
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from agent_fakes import AttackedAgent, World
from forked_python import forked_python
from people_windows import add, window_of

from tacit_protocol.messages.study import Owner
from tacit_protocol.privacy.guarantee import Budget
from tacit_services.agent.agent import Agent
from tacit_services.agent.data.opening import SourceSettings, query_words
from tacit_services.agent.settings import AgentSettings
from tacit_services.agent.web import views
from tacit_services.agent.web.editing import ChosenRows, DataSetEditor, EditFaultError
from tacit_services.shared.people import Person
from tacit_services.shared.settings import SettingsError

CAPS = "epsilon = 2.0\ndelta = 1e-5\n"
SAME = "are of the same rows"


def data_set(name: str, place: str, more: str = "") -> str:
    return f'[[data_sets]]\nname = "{name}"\n{place}\n{CAPS}{more}\n'


def configured(folder: Path, *tables: str) -> Path:
    path = World(folder).write("http://tester")
    path.write_text(path.read_text().partition("[[data_sets]]")[0] + "".join(tables))
    return path


def in_folder(folder: Path) -> tuple[str, str]:
    (folder / "stays" / "k=1").mkdir(parents=True)
    pq.write_table(pa.table({"x": [1.0]}), folder / "stays" / "k=1" / "a.parquet")
    return 'source = "stays/"', 'source = "stays/k=1/a.parquet"'


def hard_linked_in_folder(folder: Path) -> tuple[str, str]:
    in_folder(folder)
    os.link(folder / "stays" / "k=1" / "a.parquet", folder / "b.parquet")
    return 'source = "stays"', 'source = "b.parquet"'


def below(folder: Path) -> tuple[str, str]:
    in_folder(folder)
    return 'source = "stays/"', 'source = "stays/k=1/"'


def hard_linked(folder: Path) -> tuple[str, str]:
    (folder / "a.csv").write_text("x\n1\n")
    os.link(folder / "a.csv", folder / "b.csv")
    return 'source = "a.csv"', 'source = "b.csv"'


def linked(folder: Path) -> tuple[str, str]:
    (folder / "a.csv").write_text("x\n1\n")
    (folder / "b.csv").symlink_to(folder / "a.csv")
    return 'source = "a.csv"', 'source = "b.csv"'


def query(text: str, url: str = "sqlite:///w.sqlite3") -> str:
    return f"source = {json.dumps(url)}\nquery = {json.dumps(text)}"


SAME_ROWS = {
    "a file of a folder": in_folder,
    "a folder in a folder": below,
    "a hard link to a file of a folder": hard_linked_in_folder,
    "a hard link": hard_linked,
    "a link": linked,
    "spelled otherwise": lambda p: ('source = "patients.csv"', f'source = "{p}/./patients.csv"'),
    "small and large letters": lambda _: (query("SELECT age FROM stays"), query("select Age\nfrom STAYS;")),
    "a comment": lambda _: (query("SELECT age FROM stays"), query("SELECT age/**/FROM stays -- all of them")),
    "another path of SQLite": lambda p: (query("SELECT 1"), query("SELECT 1", f"sqlite:///{p}/./w.sqlite3")),
    "another reader": lambda _: (
        query("SELECT 1", "postgresql://one:a@localhost/w"),
        query("SELECT 1", "postgresql+psycopg://two:b@127.0.0.1:5432/w"),
    ),
    "MariaDB as MySQL": lambda _: (
        query("SELECT 1", "mariadb://one@db/w"),
        query("SELECT 1", "mysql://two@db:3306/w"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("make", SAME_ROWS.values(), ids=SAME_ROWS)
def test_two_accounts_of_rows_that_can_be_seen_to_be_the_same_are_refused(tmp_path: Path, make) -> None:  # type: ignore[no-untyped-def]
    World(tmp_path).write("http://tester")
    one, other = make(tmp_path)
    for first, second in ((one, other), (other, one)):
        with pytest.raises(SettingsError, match=SAME) as refused:
            AgentSettings.load(configured(tmp_path, data_set("a", first), data_set("b", second)))
        assert 'people = "a"' in str(refused.value)
        people = 'people = "a"'
        settings = AgentSettings.load(
            configured(tmp_path, data_set("a", first), data_set("b", second, people))
        )
        assert [item.account for item in settings.data_sets] == ["a", "a"]


def test_other_rows_are_not_refused(tmp_path: Path) -> None:
    in_folder(tmp_path)
    (tmp_path / "stays2").mkdir()
    pq.write_table(pa.table({"x": [1.0]}), tmp_path / "stays2" / "a.parquet")
    url = "postgresql://one@db/"
    places = (
        *('source = "patients.csv"', 'source = "stays/"', 'source = "stays2"'),
        *('source = "book.xlsx"\nsheet = "one"', 'source = "book.xlsx"\nsheet = "two"'),
        *(query("SELECT 'a' AS x FROM t"), query("SELECT 'A' AS x FROM t"), query('SELECT "A" AS x FROM t')),
        *(query("SELECT 1", url + "w"), query("SELECT 1", url + "v"), query("SELECT 1", "mysql://one@db/w")),
    )
    tables = [data_set(f"d{number}", place) for number, place in enumerate(places)]
    assert len(AgentSettings.load(configured(tmp_path, *tables)).data_sets) == len(places)


def test_words_of_queries_keep_what_is_quoted() -> None:
    assert query_words("SELECT  'It''s /* no */ A--B', \"X\" FROM `T` -- end\n;;") == [
        *("select", "'It''s /* no */ A--B'", ",", '"X"', "from", "`T`"),
    ]


def test_what_no_text_tells_is_told_to_the_admin(tmp_path: Path) -> None:
    """Two queries with other words: only people know, and check, doctor and the log at the start say so."""
    database = tmp_path / "d.duckdb"
    with duckdb.connect(str(database)) as connection:
        connection.execute("CREATE TABLE stays AS SELECT range AS x FROM range(60)")
    url = "duckdb:///d.duckdb"
    first, second = "SELECT x FROM stays", "SELECT x FROM stays WHERE 1=1"
    own = [data_set("stays", query(first, url)), data_set("again", query(second, url))]
    path = configured(tmp_path, *own)
    command = ["-m", "tacit_services.agent", "check", "--config", str(path)]
    done = forked_python().run(command, timeout_s=300)
    assert "note: stays, again: queries of one database that spend from different accounts" in done.stdout
    assert AgentSettings.load(path).accounts_on_one_database()
    shared = configured(
        tmp_path,
        data_set("stays", query(first, url)),
        data_set("again", query(second, url), 'people = "stays"'),
    )
    assert AgentSettings.load(shared).accounts_on_one_database() == []


def test_data_sets_of_one_account_say_the_same_of_it(tmp_path: Path) -> None:
    (tmp_path / "other.csv").write_text("x\n1\n")
    path = configured(
        tmp_path,
        data_set("patients", 'source = "patients.csv"', 'people = "people"'),
        data_set("other", 'source = "other.csv"', 'people = "people"\npure_share = 0.5'),
    )
    with pytest.raises(SettingsError, match="spend from one account, people"):
        AgentSettings.load(path)


OTHER = '[[data_sets]]\nname = "visits"\nsource = "visits.csv"\nepsilon = 1.2\ndelta = 1e-5\npeople = "all"\n'


@pytest.fixture
def agent(tmp_path: Path):  # type: ignore[no-untyped-def]
    (tmp_path / "visits.csv").write_text("x\n" + "1\n" * 30)
    found = AttackedAgent(
        tmp_path,
        data_set=f'epsilon = 1.2\npeople = "all"\n{OTHER}',
        policy='[data_sets.visits]\ncolumns = ["x"]\n',
    )
    yield found
    found.agent.engine.dispose()


def asked(agent: AttackedAgent, of: str, title: str) -> str:
    owners = (
        Owner(name="north", key=agent.world.agent.public_hex, data_set=of),
        Owner(name="south", key="5" * 64, data_set="patients"),
    )
    study = agent.world.study(owners=owners, title=title, budget=Budget.of("0.5", "1e-6"))
    digest = agent.world.ask(agent.tester, study)
    agent.turn()
    return digest


def test_studies_of_all_data_sets_of_the_same_people_spend_from_one_account(agent: AttackedAgent) -> None:
    first = asked(agent, "patients", "One?")
    second = asked(agent, "visits", "Two?")
    third = asked(agent, "patients", "Three?")
    fourth = asked(agent, "visits", "Four?")
    assert [(entry["data_set"], entry["study"]) for entry in agent.debits()] == [
        ("all", first),
        ("all", second),
    ]
    assert [agent.row(digest).problem for digest in (third, fourth)] == ["budget-exceeded"] * 2
    assert [agent.row(digest).data_set for digest in (first, second)] == ["patients", "visits"]
    assert agent.agent.units == {"patients": 60, "visits": 30}
    shown = views.status(agent.agent)["data_sets"]
    assert [(item["name"], item["account"], item["units"]) for item in shown] == [
        ("patients", "all", 60),
        ("visits", "all", 30),
    ]
    assert {item["pure_spent_micro"] for item in shown} == {1_000_000}


def test_pages_and_the_interface_show_the_account_once(agent: AttackedAgent) -> None:
    digest = asked(agent, "visits", "One?")
    window = window_of(agent)
    add(window, ("ste", "steward"))
    window.sign_in("ste")
    page = window.get("/ledger").text
    assert page.count("<h2>all</h2>") == 1
    assert "patients, visits" in page
    assert page.count(digest[:12]) >= 1
    for name in ("visits", "patients", "all"):
        entries = window.ask("GET", f"/v1/ledger?data_set={name}").json()["entries"]
        assert [entry["study"] for entry in entries if entry["kind"] == "debit"] == [digest]
    assert "for all data sets of these people" in window.get("/data-sets").text


def test_an_admin_who_adds_a_data_set_is_told_and_may_name_the_account(tmp_path: Path) -> None:
    with duckdb.connect(str(tmp_path / "d.duckdb")) as connection:
        connection.execute("CREATE TABLE stays AS SELECT range AS x FROM range(60)")
    agent = AttackedAgent(tmp_path, agent='[connections]\nw = "duckdb:///d.duckdb"')
    add(window_of(agent), ("adm", "admin"))
    window = window_of(agent).sign_in("adm")
    editor = DataSetEditor(agent.agent)
    said = {"name": "stays", "epsilon": 1.0, "delta": 0.0}
    editor.add(ChosenRows(connection="w", query="SELECT x FROM stays"), said, admin())
    for text in ("select X from  stays;", "SELECT x FROM stays -- more"):
        with pytest.raises(EditFaultError, match=r"of the same rows|without a semicolon"):
            editor.columns(ChosenRows(connection="w", query=text))
    again = ChosenRows(connection="w", query="SELECT x FROM stays WHERE 1=1")
    form = {"connection": again.connection, "query": again.query, "form_token": window.token()}
    page = window.post("/data-sets/columns", form).text
    assert "stays: queries of the same database" in page
    assert "the people of the account stays" in page
    with pytest.raises(EditFaultError, match=r"write its epsilon, 1, and its delta, 0"):
        editor.add(again, {"name": "again", "people": "stays", "epsilon": 5.0, "delta": 0.0}, admin())
    editor.add(again, {"name": "again", "people": "stays", "epsilon": 1.0, "delta": 0.0}, admin())
    found: Agent = agent.agent
    assert [item.account for item in found.settings.data_sets] == ["patients", "stays", "stays"]
    assert AgentSettings.load(tmp_path / "agent.toml") == found.settings
    agent.agent.engine.dispose()


def admin() -> Person:
    return Person("9" * 64, "adm", "admin")


def test_paths_of_duckdb_and_sqlite_are_relative_to_the_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a connection as in a source, wherever the agent was started."""
    with duckdb.connect(str(tmp_path / "d.duckdb")) as connection:
        connection.execute("CREATE TABLE t AS SELECT range AS x FROM range(5)")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    path = configured(
        tmp_path,
        '[connections]\nw = "duckdb:///d.duckdb"\n',
        data_set("a", 'connection = "w"\nquery = "SELECT x FROM t"'),
        data_set("b", query("SELECT x AS y FROM t", "duckdb:///d.duckdb")),
    )
    settings = AgentSettings.load(path)
    assert settings.connections == {"w": f"duckdb:///{tmp_path / 'd.duckdb'}"}
    assert [item.open().rows() for item in settings.data_sets] == [5, 5]
    chosen = SourceSettings(source=settings.connections["w"], query="SELECT x FROM t")
    assert settings.data_sets[0].is_of_same_rows(chosen)
    assert list((tmp_path / "elsewhere").iterdir()) == [], "nothing is made where it was started"
