"""Links and pipes where data should lie: nothing behind a link is read, and nothing is waited for."""

import hashlib
import json
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import openpyxl
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pyreadstat
import pytest
from agent_fakes import FAKES, AttackedAgent, World
from forked_python import forked_python

from tacit_protocol.domain import DataError
from tacit_protocol.signing import RELEASE_TYPE
from tacit_services.agent.data.csv_source import CsvSource
from tacit_services.agent.data.encoders import EncoderFolders
from tacit_services.agent.data.opening import open_source
from tacit_services.agent.data.parquet_source import ParquetFolder, partition_files
from tacit_services.agent.data.source import Columns, Source
from tacit_services.agent.service import answer_carried
from tacit_services.agent.settings import AgentSettings
from tacit_services.agent.web.editing import files_below
from tacit_services.shared.settings import SettingsError

X = Columns(numbers=("x",))
OURS, THEIRS = 1.0, 77.0
"""What the data set's own rows hold, and what those hold that it must not read."""


def in_sheet(path: Path, values: list[float]) -> None:
    book = openpyxl.Workbook()
    for row in (["x"], *([value] for value in values)):
        book.active.append(row)
    book.save(path)


def in_sqlite(path: Path, values: list[float]) -> None:
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE t (x REAL)")
        database.executemany("INSERT INTO t VALUES (?)", [(value,) for value in values])
        database.commit()


def in_duckdb(path: Path, values: list[float]) -> None:
    with duckdb.connect(str(path)) as database:
        database.execute("CREATE TABLE t AS SELECT unnest(?::DOUBLE[]) AS x", [values])


def frame(values: list[float]) -> pd.DataFrame:
    return pd.DataFrame({"x": values})


WRITERS: dict[str, Callable[[Path, list[float]], Any]] = {
    "a.csv": lambda p, v: frame(v).to_csv(p, index=False),
    "a.csv.gz": lambda p, v: frame(v).to_csv(p, index=False),
    "a.parquet": lambda p, v: pq.write_table(pa.table({"x": v}), p),
    "a.xlsx": in_sheet,
    "a.sav": lambda p, v: pyreadstat.write_sav(frame(v), str(p)),
    "a.dta": lambda p, v: pyreadstat.write_dta(frame(v), str(p)),
    "a.xpt": lambda p, v: pyreadstat.write_xport(frame(v), str(p), file_format_version=8),
    "a.sqlite3": in_sqlite,
    "a.duckdb": in_duckdb,
}


def source_of(path: Path) -> Source:
    if path.suffix in (".sqlite3", ".duckdb"):
        kind = path.suffix.strip(".3")
        return open_source(f"{kind}:///{path}", "SELECT x FROM t", path.parent)
    return open_source(path.name, None, path.parent)


def values_of(source: Source) -> list[float]:
    return [
        float(value)
        for batch in source.batches(X, 100)
        for value in batch.column("x").cast("float64").to_pylist()
    ]


def within(seconds: float, ask: Callable[[], object]) -> str:
    """Return how asking is refused, in a thread that a pipe could hold for ever."""
    found: list[str] = []

    def work() -> None:
        try:
            ask()
            found.append("read")
        except DataError as error:
            found.append(str(error))

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(seconds)
    assert found, "still waiting"
    return found[0]


@pytest.mark.parametrize("name", WRITERS)
def test_no_link_to_a_file_and_no_folder_that_is_one_leads_to_rows(tmp_path: Path, name: str) -> None:
    here, away = tmp_path / "here", tmp_path / "away"
    here.mkdir()
    away.mkdir()
    WRITERS[name](here / name, [OURS] * 3)
    WRITERS[name](away / name, [THEIRS] * 3)
    assert values_of(source_of(here / name)) == [OURS] * 3
    (here / "door").symlink_to(away)
    (here / "link").mkdir()
    (here / "link" / name).symlink_to(away / name)
    for path in (here / "door" / name, here / "link" / name):
        source = source_of(path)
        for ask in (source.column_names, lambda: values_of(source)):  # noqa: B023 (asked at once)
            with pytest.raises(DataError, match="links are not followed"):
                ask()


@pytest.mark.parametrize("name", WRITERS)
def test_nobody_waits_for_a_pipe(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / name)
    source = source_of(tmp_path / name)
    for ask in (source.column_names, source.fingerprint, lambda: values_of(source)):
        words = within(60, ask)
        assert "pipe" in words or (words == "read" and ask == source.fingerprint)


def test_a_folder_behind_a_link_is_not_listed(tmp_path: Path) -> None:
    (tmp_path / "away").mkdir()
    pq.write_table(pa.table({"x": [THEIRS]}), tmp_path / "away" / "a.parquet")
    (tmp_path / "data").symlink_to(tmp_path / "away")
    with pytest.raises(DataError, match="links are not followed"):
        ParquetFolder(tmp_path / "data").rows()


@pytest.fixture
def listed(tmp_path: Path) -> tuple[Path, Path]:
    """A folder of Parquet files, and one of the same names, sizes and moments outside."""
    for name, value in (("data", OURS), ("away", THEIRS)):
        (tmp_path / name / "k=1").mkdir(parents=True)
        for file in ("a.parquet", "b.parquet"):
            path = tmp_path / name / "k=1" / file
            pq.write_table(pa.table({"x": [value] * 50}), path)
            os.utime(path, ns=(10**18, 10**18))
    ours, theirs = (os.stat(tmp_path / name / "k=1" / "b.parquet") for name in ("data", "away"))
    assert (ours.st_size, ours.st_mtime_ns) == (theirs.st_size, theirs.st_mtime_ns)
    return tmp_path / "data", tmp_path / "away"


@pytest.mark.parametrize("what", ["the file", "its folder"])
def test_a_link_that_comes_between_listing_and_reading_is_refused(
    listed: tuple[Path, Path], what: str
) -> None:
    data, away = listed
    batches = ParquetFolder(data).batches(X, 10)
    assert next(batches).column("x").to_pylist() == [OURS] * 10
    place = data / "k=1" / "b.parquet" if what == "the file" else data / "k=1"
    place.rename(place.with_name("_aside"))
    place.symlink_to(away / place.relative_to(data))
    seen: list[float] = []

    def read_on() -> None:
        for batch in batches:
            seen.extend(batch.column("x").to_pylist())

    with pytest.raises(DataError, match="links are not followed"):
        read_on()
    assert THEIRS not in seen


def test_no_race_of_links_brings_other_rows_in(listed: tuple[Path, Path]) -> None:
    """A file becomes a link and a file again, thousands of times, while it is listed and read."""
    data, away = listed
    place, aside, link = data / "k=1" / "b.parquet", data / "_aside", data / "_link"
    link.symlink_to(away / "k=1" / "b.parquet")
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            os.rename(place, aside)
            os.rename(link, place)
            os.rename(place, link)
            os.rename(aside, place)

    swapping = threading.Thread(target=swap)
    swapping.start()
    seen, refused = set[float](), 0
    try:
        until = time.monotonic() + 5
        while time.monotonic() < until:
            try:
                seen |= set(values_of(ParquetFolder(data)))
            except DataError:
                refused += 1
    finally:
        stop.set()
        swapping.join()
    assert seen <= {OURS}
    assert refused, "it never met a swap"


def test_a_file_put_back_after_it_was_read_otherwise_is_noticed(tmp_path: Path) -> None:
    """Renaming one file away and back changes neither size nor modification time nor inode."""
    path, other = tmp_path / "a.csv", tmp_path / "other.csv"
    for file, value in ((path, OURS), (other, THEIRS)):
        frame([value] * 3).to_csv(file, index=False)
    source = source_of(path)
    before = source.fingerprint()
    path.rename(tmp_path / "aside.csv")
    other.rename(path)
    path.rename(other)
    (tmp_path / "aside.csv").rename(path)
    assert source.fingerprint() != before
    # So does a file that is written over and given its old moment back.
    before, status = source.fingerprint(), path.stat()
    path.write_bytes(path.read_bytes().replace(b"1.0", b"7.7"))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert source.fingerprint() != before


def test_public_files_and_images_are_no_links_and_no_pipes(tmp_path: Path) -> None:
    content = b"a model"
    digest = hashlib.sha256(content).hexdigest()
    files, images, away = (tmp_path / name for name in ("files", "images", "away"))
    for folder in (files, images, away):
        folder.mkdir()
    (away / "model").write_bytes(content)
    (files / digest).symlink_to(away / "model")
    os.mkfifo(files / ("0" * 64))
    folders = EncoderFolders(files, images)
    for name in (digest, "0" * 64):
        assert "not in encoders_folder" in within(60, lambda: folders.content(name))  # noqa: B023
    (away / "a.png").write_bytes(content)
    (images / "door").symlink_to(away)
    (images / "inside").symlink_to(images)
    assert folders.image("door/a.png") is None
    (images / "a.png").write_bytes(content)
    assert folders.image("a.png") == content
    assert folders.image("inside/a.png") is None, "what is inside holds no link, wherever it leads"


# What the operator's own file may say.


def test_a_link_that_agent_toml_names_is_resolved_once(tmp_path: Path) -> None:
    path = World(tmp_path).write("http://tester", data_set='image_folder = "shown"')
    (tmp_path / "kept").mkdir()
    (tmp_path / "patients.csv").rename(tmp_path / "kept" / "first.csv")
    (tmp_path / "kept" / "second.csv").write_text(f"x,y,id\n{THEIRS},1,p1\n")
    (tmp_path / "patients.csv").symlink_to(tmp_path / "kept" / "first.csv")
    (tmp_path / "shown").symlink_to(tmp_path / "kept")
    (data_set,) = AgentSettings.load(path).data_sets
    assert data_set.images == tmp_path / "kept"
    before = values_of(data_set.open())
    (tmp_path / "patients.csv").unlink()
    (tmp_path / "patients.csv").symlink_to(tmp_path / "kept" / "second.csv")
    assert values_of(data_set.open()) == before
    assert THEIRS not in before
    assert values_of(AgentSettings.load(path).data_sets[0].open()) == [THEIRS], "a start looks again"


def test_a_link_to_another_kind_of_file_is_refused_at_the_start(tmp_path: Path) -> None:
    path = World(tmp_path).write("http://tester")
    (tmp_path / "patients.csv").rename(tmp_path / "patients.parquet")
    (tmp_path / "patients.csv").symlink_to("patients.parquet")
    with pytest.raises(SettingsError, match="whose name ends in another way"):
        AgentSettings.load(path)


def test_a_link_that_comes_in_the_place_of_an_added_file_is_not_followed_after_a_restart(
    tmp_path: Path,
) -> None:
    path = World(tmp_path).write("http://tester", agent='data_folders = ["extracts"]')
    (tmp_path / "extracts").mkdir()
    (tmp_path / "outside.csv").write_text(f"x\n{THEIRS}\n")
    added = tmp_path / "extracts" / "a.csv"
    (tmp_path / "data-sets.toml").write_text(
        f'[[data_sets]]\nname = "added"\nsource = "{added}"\nepsilon = 1.0\ndelta = 0.0\n'
    )
    added.symlink_to(tmp_path / "outside.csv")
    data_set = AgentSettings.load(path).data_set("added")
    assert data_set is not None
    with pytest.raises(DataError, match="links are not followed"):
        values_of(data_set.open())


def test_pipes_and_links_are_not_offered_on_the_page(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x\n1\n")
    (tmp_path / "b.csv").symlink_to(tmp_path / "a.csv")
    os.mkfifo(tmp_path / "c.csv")
    assert files_below(tmp_path) == [str(tmp_path / "a.csv")]


@pytest.mark.parametrize("where", ["patients.csv", "shared.key"])
def test_a_command_ends_in_words_where_a_pipe_lies(tmp_path: Path, where: str) -> None:
    path = World(tmp_path).write("http://tester", data_set='unit_column = "id"')
    (tmp_path / where).unlink(missing_ok=True)
    os.mkfifo(tmp_path / where)
    command = ["-m", "tacit_services.agent"]
    if where == "patients.csv":
        command += ["check", "--config", str(path), "--json"]
    else:
        command += ["align", "make", "--config", str(path), "--data-set", "patients", "--json"]
        command += ["--key", str(tmp_path / where), "--out", str(tmp_path / "ours.json")]
    done = forked_python().run(command, timeout_s=120)
    assert done.returncode == 1
    told = json.loads(done.stdout)["error"] if done.stdout else done.stderr
    assert "pipe" in told or "no file" in told


def test_an_owner_with_a_pipe_for_data_declines_and_goes_on(tmp_path: Path) -> None:
    agent = AttackedAgent(tmp_path)
    (tmp_path / "patients.csv").unlink()
    os.mkfifo(tmp_path / "patients.csv")
    digest = agent.world.ask(agent.tester, agent.world.study())
    turning = threading.Thread(target=agent.turn, daemon=True)
    turning.start()
    turning.join(60)
    assert not turning.is_alive()
    assert agent.row(digest).problem == "data-unreadable"
    assert agent.debits() == []
    agent.agent.engine.dispose()


def test_an_answer_is_never_of_rows_that_were_put_there_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is another one whenever it is opened, and the first again when it is looked at."""
    world = World(tmp_path)
    config = world.write("http://tester")
    envelope, _ = world.sealed(world.study())
    (tmp_path / "study.dsse").write_bytes(envelope)
    path, other, aside = (tmp_path / name for name in ("patients.csv", "other.csv", "aside.csv"))
    other.write_text("x,y,id\n" + "".join(f"9,{i},p{i}\n" for i in range(60)))
    genuine, swaps = CsvSource._open, []

    @contextmanager
    def swapped(self: CsvSource) -> Iterator[Any]:
        path.rename(aside)
        other.rename(path)
        with genuine(self) as stream:
            path.rename(other)
            aside.rename(path)
            swaps.append(1)
            yield stream

    monkeypatch.setattr(CsvSource, "_open", swapped)
    output = tmp_path / "answer.dsse"
    report = answer_carried(config, FAKES, tmp_path / "study.dsse", output, 5.0)
    assert swaps
    assert report["state"] not in ("released", "held", "sent")
    assert not output.exists() or RELEASE_TYPE.encode() not in output.read_bytes()
    # The same file, left alone, is answered.
    monkeypatch.setattr(CsvSource, "_open", genuine)
    again, _ = world.sealed(world.study(title="Left alone?"))
    (tmp_path / "again.dsse").write_bytes(again)
    report = answer_carried(config, FAKES, tmp_path / "again.dsse", output, 60.0)
    assert report["ok"]
    assert json.loads(output.read_bytes())["payloadType"] == RELEASE_TYPE


def test_states_of_listed_files_say_what_was_there(listed: tuple[Path, Path]) -> None:
    data, _ = listed
    found = partition_files(data)
    assert [file.state.size_bytes for file in found] == [
        os.stat(data / "k=1" / name).st_size for name in ("a.parquet", "b.parquet")
    ]
    assert np.ptp([file.state.modified_ns for file in found]) == 0
