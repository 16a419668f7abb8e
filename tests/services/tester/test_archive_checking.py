"""A check of a whole archive names every file that was changed, removed or added, and nothing else."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from ended_studies import cancelled, completed, incomplete
from tester_federation import Federation

from tacit_protocol.messages.encoding import decode, encode, encode_json
from tacit_services.tester import __main__ as tester_main
from tacit_services.tester.archive import (
    INDEX,
    LEFT_OVER,
    UNFINISHED,
    UNLISTED,
    ArchiveError,
    Entry,
    open_archive,
    open_folder,
)
from tacit_services.tester.archiving import ENDED, Archiver

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

    def rewrite(self, study: str, change: Callable[[Entry], Entry]) -> None:
        """Change a study's line, and leave the others."""
        entries = [decode(Entry, line) for line in self.index.read_bytes().splitlines()]
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
    last = decode(Entry, whole.splitlines()[-1])
    for kept in (1, 40, len(encode(last))):
        cut = whole[: len(whole) - len(encode(last)) - 1 + kept]
        archive.index.write_bytes(cut)
        assert archive.faults() == {INDEX: UNFINISHED, last.file: UNLISTED}
        assert archive.index.read_bytes() == cut, "a check repairs nothing"
    archive.index.write_bytes(whole[: len(whole) - len(encode(last)) - 1])
    assert archive.faults() == {last.file: UNLISTED}
    archive.index.write_bytes(whole.replace(b'"study":"', b'"study":"x', 1))
    first = decode(Entry, whole.splitlines()[0])
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
        ({"declines": {"stranger": "{}"}}, "the decline of stranger in the index is not signed"),
        ({"declines": {"north": "{}"}}, "the decline of north in the index is not signed"),
        ({"cancellation": "{}"}, "the index lacks a cancellation, or has one"),
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
    """From the index; a file without it has another digest, and does not verify where that is changed too."""

    def strip(entry: Entry) -> Entry:
        declines = {name: entry.declines[name] for name in kept}
        return entry.model_copy(update={"declines": declines})

    archive.rewrite(archive.incomplete, strip)
    fault = {f"{archive.incomplete}.json": "the index has other declines than the verdict lists"}
    assert archive.faults() == fault
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
