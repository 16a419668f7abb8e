"""Archiving: nothing is deleted before its file is durable and verifies; a check names what was changed."""

import asyncio
import hashlib
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from ended_studies import cancelled, completed, incomplete
from forked_python import forked_python
from served import problem
from study_parties import MeanProcedure
from tester_federation import URL, Federation

from tacit_protocol.messages.encoding import decode, encode, encode_json
from tacit_protocol.messages.study import Transcript
from tacit_protocol.procedures import discovery
from tacit_protocol.verification import verify_transcript
from tacit_services.shared.database import run_transaction
from tacit_services.shared.failpoints import VARIABLE, ArchiveStep, TesterStep
from tacit_services.shared.settings import SettingsError
from tacit_services.tester import __main__ as tester_main
from tacit_services.tester import studies as tester_studies
from tacit_services.tester.archive import archiving as retention_module
from tacit_services.tester.archive.archiving import DAY_S, ENDED, Archived, Archiver, Keeper, Retention
from tacit_services.tester.archive.folder import (
    INDEX,
    LEFT_OVER,
    UNFINISHED,
    UNLISTED,
    ArchivedStudy,
    ArchiveError,
    file_digest,
    open_archive,
    open_folder,
)
from tacit_services.tester.settings import TesterSettings
from tacit_services.tester.studies import NOT_KEPT
from tacit_services.tester.tables import ARCHIVED, METADATA, STUDIES

ARCHIVE_PROCESS = Path(__file__).parents[2] / "support" / "tester_process.py"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "archive"


def run(federation: Federation, folder: Path, *, delete: bool = True, **chosen: Any) -> Archived:
    """Archive everything that has ended."""
    federation.now += 1
    before = dict.fromkeys(ENDED, int(federation.now))
    with open_folder(folder) as opened:
        archiver = Archiver(federation.engine, opened, lambda: federation.now, delete=delete)
        return archiver.run(before, **chosen)


def rows_of(federation: Federation, study: str) -> dict[str, int]:
    """How many rows of each table are about a study."""

    def count(connection: sa.Connection) -> dict[str, int]:
        tables = [table for table in METADATA.sorted_tables if "study" in table.c]
        found = {
            table.name: connection.execute(
                sa.select(sa.func.count()).select_from(table).where(table.c.study == study)
            ).scalar_one()
            for table in tables
        }
        mine = sa.select(sa.func.count()).select_from(STUDIES).where(STUDIES.c.digest == study)
        return found | {"studies": connection.execute(mine).scalar_one()}

    found = run_transaction(federation.engine, count, read_only=True)
    return {name: number for name, number in found.items() if number}


def entries(folder: Path) -> dict[str, ArchivedStudy]:
    lines = (folder / INDEX).read_bytes().splitlines()
    found = [decode(ArchivedStudy, line) for line in lines]
    assert len({entry.study for entry in found}) == len(found), "a study is listed once"
    return {entry.study: entry for entry in found}


def test_an_ended_study_becomes_a_file_that_verifies_and_a_tombstone(
    federation: Federation, folder: Path
) -> None:
    ended = [completed(federation), incomplete(federation), cancelled(federation)]
    transcripts = {study: federation.get(f"/v1/studies/{study}/transcript").content for study in ended}
    collecting, computing = federation.create(title="3"), federation.create(title="4")
    federation.release_all(computing)
    before = {study: rows_of(federation, study) for study in (collecting, computing)}
    done = run(federation, folder)
    assert sorted(done.deleted) == sorted(done.written) == sorted(ended)
    assert not done.held
    assert not done.refused
    listed = entries(folder)
    assert set(listed) == set(ended)
    for study, state in zip(ended, ENDED, strict=True):
        content = (folder / listed[study].file).read_bytes()
        assert content == transcripts[study]
        assert file_digest(content) == listed[study].file_digest
        found = verify_transcript(content, federation.parties.tester.public_hex)
        assert (found.study_digest, found.verdict.outcome, listed[study].state) == (study, state, state)
        assert rows_of(federation, study) == {"archived": 1}
    assert before == {study: rows_of(federation, study) for study in (collecting, computing)}
    assert {item["digest"] for item in federation.get("/v1/studies").json()["items"]} == {
        collecting,
        computing,
    }
    tombstone = run_transaction(
        federation.engine,
        lambda c: c.execute(sa.select(ARCHIVED).where(ARCHIVED.c.study == ended[0])).one(),
        read_only=True,
    )
    assert tombstone.file_digest == listed[ended[0]].file_digest
    assert (tombstone.state, tombstone.archived_at) == ("completed", federation.now)
    assert run(federation, folder) == Archived(), "a second time there is nothing to do"


def test_an_archived_study_is_gone_at_every_address_and_cannot_come_again(
    federation: Federation, folder: Path
) -> None:
    parties = federation.parties
    study, envelope = parties.sealed_study()
    path = f"/v1/studies/{study}"
    assert federation.put(path, parties.analyst, envelope).status_code == 201
    federation.release_all(study)
    assert federation.work()
    release = parties.release(study, "north")
    run(federation, folder)
    fresh = federation.start_tester()  # which remembers no study from before
    for app in (federation.app, fresh):

        def call(method: str, path: str, key: Any, app: Any = app, **options: Any) -> Any:
            return asyncio.run(federation.send(method, path, key, app, **options))

        answers = [
            *(
                call("GET", path + rest, parties.analyst)
                for rest in ("", "/envelope", "/verdict", "/transcript")
            ),
            call("PUT", path, parties.analyst, content=envelope),
            call("PUT", path + "/releases/north", parties.owners["north"], content=release),
            call(
                "PUT", path + "/declines/west", parties.owners["west"], content=parties.decline(study, "west")
            ),
            call("PUT", path + "/cancellation", parties.analyst, content=parties.cancellation(study)),
        ]
        for answer in answers:
            assert (answer.status_code, problem(answer)) == (410, "study-archived"), answer.request.url
    assert rows_of(federation, study) == {"archived": 1}
    assert problem(federation.get(f"/v1/studies/{'0' * 64}")) == "unknown-study"


def test_pages_of_an_archived_study_say_so(federation: Federation, folder: Path) -> None:
    study = completed(federation)
    link = federation.call("POST", "/v1/sign-in-links", federation.parties.tester, json={}).json()["path"]
    run(federation, folder)
    signed_in = federation.call("POST", link, None, headers={"origin": URL, "content-type": FORM})
    cookie = {"cookie": signed_in.headers["set-cookie"].partition(";")[0]}
    for page in (f"/studies/{study}", f"/studies/{study}/transcript", f"/studies/{study}/report"):
        answer = federation.call("GET", page, None, headers=cookie)
        assert answer.status_code == 410
        assert "The study has been archived" in answer.text


FORM = "application/x-www-form-urlencoded"


def test_a_source_stays_until_the_study_that_reads_it_is_archived(
    federation: Federation, folder: Path
) -> None:
    owner = federation.parties.owner
    first = completed(federation)
    second = federation.create(
        title="Again?", owners=(owner("north", reuses=first), owner("south", reuses=None))
    )
    done = run(federation, folder)
    assert (done.written, done.deleted, done.held) == ([first], [], [first])
    assert run(federation, folder, studies_max=5) == Archived(), "in small batches it is passed over"
    assert federation.release(second, "south").status_code == 201
    assert federation.work()
    assert federation.verdict(second).outcome == "completed"
    done = run(federation, folder, studies_max=5)
    assert done.deleted == [second, first], "the reader first, so that one run takes both"
    content = (folder / f"{second}.json").read_bytes()
    assert set(decode(Transcript, content).sources) == {first}
    verify_transcript(content, federation.parties.tester.public_hex)
    study, envelope = federation.parties.sealed_study(title="3", owners=(owner("north", reuses=first),))
    answer = federation.put(f"/v1/studies/{study}", federation.parties.analyst, envelope)
    assert (problem(answer), answer.json()["detail"]) == ("reuse-refused", NOT_KEPT)


def test_a_source_that_is_archived_while_a_study_is_checked_refuses_it(
    federation: Federation, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = completed(federation)
    owner = federation.parties.owner("north", reuses=first)
    study, envelope = federation.parties.sealed_study(title="Again?", owners=(owner,))

    def archive_now(step: TesterStep) -> None:
        if step is TesterStep.STUDY_CHECKED:
            assert run(federation, folder).deleted == [first]

    monkeypatch.setattr(tester_studies, "reached", archive_now)
    answer = federation.put(f"/v1/studies/{study}", federation.parties.analyst, envelope)
    assert (problem(answer), answer.json()["detail"]) == ("reuse-refused", NOT_KEPT)


def killed_at(step: ArchiveStep, federation: Federation, database_url: str, folder: Path) -> None:
    """Archive in a process that is killed at a step."""
    command = [str(ARCHIVE_PROCESS), "archive", database_url, str(folder), str(federation.now)]
    done = forked_python().run(command, environment=os.environ | {VARIABLE: step.value})
    assert done.returncode == -signal.SIGKILL, done.stderr


@pytest.mark.long
def test_a_kill_between_any_two_steps_loses_nothing_and_the_next_run_goes_on(
    federation: Federation, database_url: str, folder: Path
) -> None:
    studies = [completed(federation, title=f"{number}") for number in range(3)]
    transcripts = {study: federation.get(f"/v1/studies/{study}/transcript").content for study in studies}
    federation.engine.dispose()
    gone: set[str] = set()
    for step in ArchiveStep:
        killed_at(step, federation, database_url, folder)
        for study in studies:
            rows = rows_of(federation, study)
            assert rows == {"archived": 1} or (rows["studies"] == 1 and "archived" not in rows), step
            if "archived" in rows:
                gone.add(study)
                assert (folder / f"{study}.json").read_bytes() == transcripts[study], step
        assert len(gone) == (step is ArchiveStep.DELETED), "one is deleted once it is the last step's turn"
        federation.engine.dispose()
    assert sorted(run(federation, folder).deleted) == sorted(set(studies) - gone)
    listed = entries(folder)
    assert set(listed) == set(studies)
    for study in studies:
        content = (folder / listed[study].file).read_bytes()
        assert content == transcripts[study]
        assert file_digest(content) == listed[study].file_digest
    assert not list(folder.glob("*.part"))


def other_verdict(content: bytes) -> bytes:
    """A transcript that would verify as far as its form goes, with a byte of a signature changed."""
    document = json.loads(content)
    verdict = json.loads(document["verdict"])
    signature = verdict["signatures"][0]["sig"]
    verdict["signatures"][0]["sig"] = ("A" if signature[0] != "A" else "B") + signature[1:]
    return encode_json(document | {"verdict": encode_json(verdict).decode()})


@pytest.mark.parametrize("planted", ["forged", "cut", "empty"])
def test_a_file_that_is_not_the_study_is_refused_and_nothing_is_deleted(
    federation: Federation, folder: Path, planted: str
) -> None:
    study = completed(federation)
    run(federation, folder, delete=False)
    path = folder / f"{study}.json"
    content = path.read_bytes()
    path.write_bytes({"forged": other_verdict(content), "cut": content[:-1], "empty": b""}[planted])
    with pytest.raises(
        ArchiveError, match="is not the transcript that this tester holds; nothing was deleted"
    ):
        run(federation, folder)
    assert federation.state(study) == "completed"
    path.write_bytes(content)
    assert run(federation, folder).deleted == [study]


def test_a_damaged_index_is_refused_and_an_unfinished_line_is_written_anew(
    federation: Federation, folder: Path
) -> None:
    study = completed(federation)
    run(federation, folder, delete=False)
    index, line = folder / INDEX, (folder / INDEX).read_bytes()
    index.write_bytes(line[: len(line) // 2])
    assert run(federation, folder, delete=False).written == [study]
    assert index.read_bytes() == line
    for damaged, reason in (
        (line.replace(b'"study":"', b'"study":"x'), "line 1: no entry"),
        (b"{}\n" + line, "line 1: no entry"),
        (line.replace(entries(folder)[study].file_digest.encode(), b"0" * 64), "lists another file"),
    ):
        index.write_bytes(damaged)
        with pytest.raises(ArchiveError, match=reason):
            run(federation, folder)
        assert federation.state(study) == "completed"


def test_what_does_not_verify_stays_and_others_are_archived(
    federation: Federation, folder: Path, mean_procedure: MeanProcedure, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, bad = incomplete(federation), completed(federation)
    monkeypatch.setattr(mean_procedure, "assemble", lambda *_: 1 / 0)
    done = run(federation, folder)
    assert done.deleted == [good]
    assert list(done.refused) == [bad]
    assert federation.state(bad) == "completed"
    monkeypatch.setitem(discovery.PROCEDURES, "mean", MeanProcedure())
    assert run(federation, folder).deleted == [bad]


@pytest.fixture
def keeper(federation: Federation, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Keeper:
    monkeypatch.setattr(retention_module, "BATCH", 2)
    monkeypatch.setattr(retention_module, "PERIOD_S", 0.0)
    monkeypatch.setattr(retention_module, "TROUBLE_S", 0.0)
    return Keeper(federation.engine, Retention(folder, {"completed": 30}), lambda: federation.now)


def test_the_worker_archives_what_was_kept_long_enough_in_small_batches(
    federation: Federation, folder: Path, keeper: Keeper
) -> None:
    old = [completed(federation, title=f"{number}") for number in range(3)]
    other = incomplete(federation)
    federation.now += 30 * DAY_S
    assert not keeper.take_turn(), "thirty days, and not a second less"
    federation.now += 1
    young = completed(federation, title="young", deadline=int(federation.now) + 60)
    assert keeper.take_turn()
    assert set(entries(folder)) == set(old[1:]), "two at a time, the newest first"
    assert keeper.take_turn()
    assert set(entries(folder)) == set(old)
    assert not keeper.take_turn()
    assert federation.state(other) == "incomplete", "for ever, as nothing else was asked"
    assert federation.state(young) == "completed"


def test_an_archive_that_cannot_be_written_deletes_nothing_and_stops_nobody(
    federation: Federation, folder: Path, keeper: Keeper
) -> None:
    study = completed(federation)
    federation.now += 31 * DAY_S
    folder.write_text("in the way")
    assert not keeper.take_turn()
    assert federation.state(study) == "completed"
    folder.unlink()
    assert keeper.take_turn()


def test_retention_needs_a_folder(federation: Federation, tmp_path: Path) -> None:
    values: dict[str, Any] = {"name": "tester", "url": "https://a", "key_file": tmp_path / "tester.pem"}
    assert Retention.of(TesterSettings(**values)) is None
    with pytest.raises(SettingsError, match="archive_folder"):
        Retention.of(TesterSettings(**values, retention_completed_days=1))
    found = Retention.of(TesterSettings(**values, retention_cancelled_days=9, archive_folder=tmp_path))
    assert found == Retention(tmp_path, {"cancelled": 9})


def test_the_command_archives_by_age_or_date(
    federation: Federation,
    database_url: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tester_main, "configure_logging", lambda _: None)
    study, other = completed(federation), cancelled(federation)
    config, folder = tmp_path / "tester.toml", tmp_path / "archive"
    config.write_text(
        f'name = "tester"\nurl = "{URL}"\nkey_file = "tester.pem"\ndatabase_url = "{database_url}"\n'
        'log_level = "ERROR"\n'
    )

    def command(*options: str) -> int:
        capsys.readouterr()
        return tester_main.main(["archive", "--config", str(config), "--to", str(folder), *options])

    # The studies ended on 15 January 2027.
    assert command("--before", "2027-01-15", "--delete") == 0
    assert capsys.readouterr().out == "archived: 0 studies\ndeleted: 0 studies\n"
    assert command("--before", "2027-01-16", "--state", "completed", "--delete") == 0
    assert capsys.readouterr().out == "archived: 1 studies\ndeleted: 1 studies\n"
    assert set(entries(folder)) == {study}
    (folder / f"{other}.json").write_text("planted")
    assert command("--before", "2030-01-01", "--delete") == 2
    assert "is not the transcript" in capsys.readouterr().err
    for wrong in (
        [],
        ["--before", "1.1.2027"],
        ["--older-than", "-1"],
        ["--before", "2027-01-01", "--older-than", "1"],
    ):
        with pytest.raises(SystemExit):
            command(*wrong)


Faults = dict[str, str]


class Archive:
    """An archive of a completed, an incomplete and a cancelled study."""

    def __init__(self, federation: Federation, folder: Path) -> None:
        self.folder, self.index = folder, folder / INDEX
        self.completed = completed(federation, title="Completed?")
        self.incomplete, self.cancelled = incomplete(federation), cancelled(federation)
        federation.now += 1
        with open_folder(folder) as opened:
            archiver = Archiver(federation.engine, opened, lambda: federation.now, delete=True)
            done = archiver.run(dict.fromkeys(ENDED, int(federation.now)))
        assert len(done.deleted) == 3

    def file(self, study: str) -> Path:
        return self.folder / f"{study}.json"

    def faults(self, *tester_keys: str) -> Faults:
        with open_archive(self.folder, tester_keys) as check:
            found = list(check.faults())
        assert len(dict(found)) == len(found), "each file is named once"
        return dict(found)

    def rewrite(self, study: str, change: Callable[[ArchivedStudy], ArchivedStudy]) -> None:
        """Change a study's line, and leave the others."""
        entries = [decode(ArchivedStudy, line) for line in self.index.read_bytes().splitlines()]
        lines = [encode(change(entry) if entry.study == study else entry) for entry in entries]
        self.index.write_bytes(b"".join(line + b"\n" for line in lines))


@pytest.fixture
def archive(federation: Federation, tmp_path: Path) -> Archive:
    return Archive(federation, tmp_path / "archive")


def snapshot(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_an_archive_as_it_was_written_has_no_fault_and_is_not_touched(
    federation: Federation, archive: Archive
) -> None:
    before = snapshot(archive.folder)
    own = federation.parties.tester.public_hex
    with open_archive(archive.folder, [own]) as check:
        assert list(check.faults()) == []
    assert check.studies == 3
    assert check.index_digest == hashlib.sha256(archive.index.read_bytes()).hexdigest()
    assert archive.faults() == {}
    assert archive.faults("cd" * 32, own) == {}, "an earlier key of the tester's, and its own"
    assert snapshot(archive.folder) == before


def test_a_flipped_byte_anywhere_in_a_file_is_found(archive: Archive) -> None:
    path = archive.file(archive.completed)
    content = path.read_bytes()
    for place in range(0, len(content), max(1, len(content) // 50)):
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        (fault,) = archive.faults().items()
        assert fault == (path.name, "its digest is not the one that the index lists: it was changed")


def test_missing_cut_and_extra_files_are_named(archive: Archive) -> None:
    archive.file(archive.completed).unlink()
    cut = archive.file(archive.incomplete)
    cut.write_bytes(cut.read_bytes()[:-1])
    stranger, part = f"{'ab' * 32}.json", f"{archive.completed}.json.part"
    (archive.folder / stranger).write_bytes(archive.file(archive.cancelled).read_bytes())
    (archive.folder / part).touch()
    (archive.folder / "notes").mkdir()
    faults = archive.faults()
    size = cut.stat().st_size
    assert faults.pop(cut.name) == f"it has {size} bytes where the index lists {size + 1}: it was changed"
    assert faults == {
        f"{archive.completed}.json": "it is missing",
        stranger: UNLISTED,
        part: LEFT_OVER,
        "notes": UNLISTED,
    }


def test_a_torn_index_is_found_and_the_next_run_may_write_it_anew(archive: Archive) -> None:
    whole = archive.index.read_bytes()
    last = decode(ArchivedStudy, whole.splitlines()[-1])
    for kept in (1, 40, len(encode(last))):
        cut = whole[: len(whole) - len(encode(last)) - 1 + kept]
        archive.index.write_bytes(cut)
        assert archive.faults() == {INDEX: UNFINISHED, last.file: UNLISTED}
        assert archive.index.read_bytes() == cut, "a check repairs nothing"
    archive.index.write_bytes(whole[: len(whole) - len(encode(last)) - 1])
    assert archive.faults() == {last.file: UNLISTED}
    archive.index.write_bytes(whole.replace(b'"study":"', b'"study":"x', 1))
    first = decode(ArchivedStudy, whole.splitlines()[0])
    assert archive.faults() == {INDEX: "line 1: no entry of an archive", first.file: UNLISTED}
    archive.index.write_bytes(whole + whole.splitlines(keepends=True)[0])
    assert archive.faults() == {INDEX: f"line 4: study {first.study} is listed a second time"}


@pytest.mark.sweep(2)
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"title": "Another?"}, "the index tells another title than it does"),
        ({"state": "completed", "deadline": 7}, "the index tells another state, deadline than it does"),
        ({"file": f"{'ab' * 32}.json"}, f"the index lists it as {'ab' * 32}.json"),
    ],
)
def test_a_line_that_says_something_else_than_its_file_is_found(
    archive: Archive, changes: dict[str, object], words: str
) -> None:
    archive.rewrite(archive.incomplete, lambda entry: entry.model_copy(update=changes))
    (fault,) = archive.faults().items()
    assert fault[0] == f"{archive.incomplete}.json"
    assert fault[1].startswith(words)


@pytest.mark.parametrize("kept", [(), ("north",), ("west",)])
def test_a_removed_decline_is_found(archive: Archive, kept: tuple[str, ...]) -> None:
    """A file without it has another digest, and does not verify where that is changed in the index too."""
    path = archive.file(archive.incomplete)
    stripped = json.loads(path.read_bytes())
    stripped["declines"] = {name: stripped["declines"][name] for name in kept}
    forged = encode_json(stripped)
    path.write_bytes(forged)
    told = {"file_digest": hashlib.sha256(forged).hexdigest(), "size_bytes": len(forged)}
    archive.rewrite(archive.incomplete, lambda entry: entry.model_copy(update=told))
    (reason,) = archive.faults().values()
    assert reason.startswith("it does not verify: decline")


def test_what_is_no_archive_or_is_being_written_is_refused(archive: Archive, tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match="has no index"), open_archive(tmp_path):
        pass
    with (
        open_folder(archive.folder),
        pytest.raises(ArchiveError, match="another process"),
        open_archive(archive.folder),
    ):
        pass


def test_the_command_says_what_is_wrong_by_its_exit_code(
    archive: Archive, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    command = ["verify-archive", "--archive", str(archive.folder)]
    assert tester_main.main(command) == 0
    digest = hashlib.sha256(archive.index.read_bytes()).hexdigest()
    said = capsys.readouterr().out
    assert said == f"studies: 3\nindex: SHA-256 {digest}\nthe index and every file hold\n"
    archive.file(archive.cancelled).unlink()
    assert tester_main.main(command) == 1
    said = capsys.readouterr().out
    assert said.startswith(f"{archive.cancelled}.json: it is missing\n")
    assert said.endswith("faults: 1\n")
    assert tester_main.main(["verify-archive", "--archive", str(tmp_path / "none")]) == 2
    assert "is no archive" in capsys.readouterr().err
