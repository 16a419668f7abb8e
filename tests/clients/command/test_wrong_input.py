"""What `tacit plan`, `release`, `ledger` and `data` say to input that cannot be used: one error, no trace."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from played_releases import patients, played
from pyarrow import parquet
from signed_study import signed_transcript

from tacit.atomic_write import written_whole
from tacit.command.app import run
from tacit.errors import InputError
from tacit.results import DatabaseResult
from tacit_services.agent.check import check, text_of_report
from tacit_services.shared.http_server import require_port
from tacit_services.shared.settings import SettingsError

Run = Callable[..., tuple[int, str, str]]

POWER = ("plan", "power", "kernel_two_sample", "--n", "300", "--column", "age:0:120", "--runs", "2")
LOCATIONS = (
    *("plan", "locations", "--n", "300", "--epsilon", "1", "--column", "age:0:120"),
    *("--public", "public.csv", "--n-features", "2", "--seed", "1"),
)
CURVE = ("plan", "curve", "noisy_counts", "--cells", "3", "--n", "300", "--runs", "2", "--value", "1")
IDENTITY = ("plan", "power", "identity", "--cells", "5", "--n", "100", "--epsilon", "1", "--runs", "2")
CHOICE = ("plan", "choice", "kernel_two_sample", "--column", "age:0:120", "--n", "300", "--runs", "2")
EXPECT = ("release", "expect", "database.parquet", "--column", "age")
COMPARE = ("release", "compare", "database.parquet")
SAMPLE = ("release", "sample", "database.parquet", "--rows", "5", "--output")
DEEP = "[" * 100_000


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of files that can be used, and of files that cannot."""
    folder = tmp_path_factory.mktemp("files")
    result = played("embedding_release", {"north": patients(400)}, n_points=10)
    assert isinstance(result, DatabaseResult)
    result.database().to_parquet(folder / "database.parquet")
    whole = signed_transcript(result)
    message = json.loads(whole)
    rng = np.random.default_rng(1)
    damaged = parquet.read_table(folder / "database.parquet")
    stored = {key: value[:90] for key, value in damaged.schema.metadata.items()}
    parquet.write_table(damaged.replace_schema_metadata(stored), folder / "damaged.parquet")
    contents: dict[str, bytes] = {
        "transcript.json": whole,
        "forged.json": json.dumps({**message, "verdict": message["study"]}).encode(),
        "binary.parquet": b"PAR1" + rng.bytes(2000) + b"PAR1",
        "empty.parquet": b"",
        "public.csv": b"age,ward\n" + b"".join(b"%d,a\n" % age for age in range(20, 80)),
        "twice.csv": b"age,age,ward\n1,2,a\n",
        "ragged.csv": b"age,ward\n1,a,3\n",
        "latin.csv": "age,ward\n1,é\n".encode("latin-1"),
        "infinite.csv": b"age,ward\n1e999,a\n5,b\n",
        "other.csv": b"x,y\n1,2\n",
    }
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    (folder / "folder.csv").mkdir()
    (folder / "loop").symlink_to(folder / "loop")
    return folder


def contents(folder: Path) -> dict[str, int]:
    return {str(p): p.lstat().st_mtime_ns for p in folder.rglob("*")}


WRONG: list[tuple[tuple[str, ...], str]] = [
    ((*POWER, "--epsilon", "nan"), "write a number"),
    ((*POWER, "--epsilon", "1_0"), "write a number"),
    ((*POWER, "--epsilon", "\uff11"), "number"),
    ((*POWER, "--n", "3_00"), "write a number"),
    ((*POWER, "--shift", "age=1_0"), "write a number"),
    ((*POWER, "--runs", "1_0"), "write a number"),
    ((*POWER, "--epsilon", "1e300"), "epsilon must lie between"),
    ((*POWER, "--shift", "age=nan"), "write a number"),
    ((*POWER, "--shift", "age=1", "--shift", "age=2"), "an amount already"),
    ((*POWER, "--column", "age:0:10"), "names age twice"),
    ((*POWER, "--n", "9" * 23), "at most"),
    ((*POWER, "--parameter", f"locations={DEEP}"), "lists within lists"),
    ((*POWER, "--public", "ragged.csv"), "ragged.csv is not CSV"),
    ((*POWER, "--public", "twice.csv"), "more than one column age"),
    ((*POWER, "--public", "other.csv"), "other.csv has no column age"),
    ((*POWER, "--public", "infinite.csv"), "an infinite number"),
    ((*LOCATIONS, "--owner", "north"), "leave it out"),
    ((*CURVE, "--picture", "none/p.svg"), "make it first"),
    ((*CURVE, "--picture", "p.png"), "ends in .svg"),
    ((*IDENTITY, "--level=nan"), "write a number"),
    (("plan", "power", "kernel_two_sampel", "--n", "300"), "did you mean kernel_two_sample?"),
    (("study", "create", "surviva"), "no procedure and no file surviva; did you mean survival?"),
    ((*CHOICE, "--candidate", DEEP), "write JSON"),
    (("plan", "power", "nope", "--n", "300"), "procedure must be one of aggregated_test, association"),
    (("release", "show", "loop"), "cannot read loop"),
    (("release", "show", "x" * 5000), "File name too long"),
    (("release", "show", "forged.json"), "does not hold"),
    (("release", "show", "binary.parquet"), "as Parquet"),
    (("release", "show", "damaged.parquet"), "damaged"),
    (("release", "show", "database.parquet", "--owner", "north"), "leave it out"),
    (("release", "show", "database.parquet", "--picture", "p.png"), "ends in .svg"),
    (("release", "show", "transcript.json", "--owner", "south"), "no database of 'south'"),
    ((*EXPECT, "--between", "nan", "3"), "write a number"),
    ((*EXPECT, "--correlation", "nope"), "no column 'nope'"),
    ((*COMPARE, "empty.parquet"), "is not Parquet"),
    ((*COMPARE, "latin.csv"), "not UTF-8"),
    ((*SAMPLE, "none/o.csv"), "make it first"),
    ((*SAMPLE, "folder.csv"), "it is a folder"),
    ((*SAMPLE, "o.txt"), "must end in .csv or .parquet"),
    (("ledger", "show", "--config", "none.toml"), "name another file"),
    (("ledger", "export", "--output", "none/l.csv", "--config", "none.toml"), "make it first"),
    (("ledger", "verify", "--kept", "x", "--config", "none.toml"), "64 hexadecimal digits"),
    (("data", "describe", ""), "name a file"),
    (("data", "describe", "twice.csv"), "more than one column"),
    (("data", "describe", "postgresql://u:secret@127.0.0.1:x/y", "--table", "t"), "check the URL"),
    (("data", "align", "key", "--out", "public.csv"), "never overwritten"),
]


@pytest.mark.sweep(40)
@pytest.mark.parametrize(
    ("arguments", "words"), WRONG, ids=lambda value: " ".join(value)[-60:] if isinstance(value, tuple) else ""
)
def test_wrong_input_is_one_error_that_says_what_is_wrong(
    files: Path, tacit: Run, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], words: str
) -> None:
    monkeypatch.chdir(files)
    before = contents(files)
    code, out, err = tacit(*arguments, "--json")
    assert (code in {1, 2}, out) == (True, "")
    told = json.loads(err)
    assert words in told["message"]
    assert "secret" not in err
    assert contents(files) == before  # nothing was written, and nothing replaced
    as_words = tacit(*arguments)
    assert as_words[:2] == (code, "")
    assert "Traceback" not in as_words[2]


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    path = tmp_path / "kept.csv"
    path.write_text("what was there")
    return path


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError(28, "full"), MemoryError])
def test_a_file_that_was_not_finished_leaves_what_was_there(kept: Path, error: type[BaseException]) -> None:
    def write() -> None:
        with written_whole(kept) as file:
            file.write(b"half")
            file.flush()
            assert len(list(kept.parent.iterdir())) == 2
            raise error

    with pytest.raises(InputError if isinstance(error, OSError) else error) as raised:
        write()
    if isinstance(error, OSError):
        assert "the disk is full" in str(raised.value)
    assert kept.read_text() == "what was there"
    assert list(kept.parent.iterdir()) == [kept]


def test_a_finished_file_keeps_its_mode_and_its_link(kept: Path) -> None:
    kept.chmod(0o640)
    link = kept.with_name("link.csv")
    link.symlink_to(kept)
    with written_whole(link) as file:
        file.write(b"new")
    assert (link.is_symlink(), kept.read_text(), kept.stat().st_mode & 0o777) == (True, "new", 0o640)


def test_a_file_that_may_not_be_written_is_not_replaced(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != kept)  # root may write everywhere
    with pytest.raises(InputError, match="you may not write there"), written_whole(kept):
        raise AssertionError("it was opened")


START = """
import builtins, os, signal
from tacit.command import main
imported = builtins.__import__
def interrupted(name, *others, **more):
    if name == {name!r}:
        builtins.__import__ = imported
        os.kill(os.getpid(), signal.SIGINT)
    return imported(name, *others, **more)
builtins.__import__ = interrupted
main()
"""


@pytest.fixture
def interruptible() -> Iterator[None]:
    """A process that was started in the background ignores interrupts, and hands that on."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("name", ["tacit.command.app", "typer", "tacit.planning.curve"])
def test_an_interrupt_ends_the_command_without_a_trace(name: str) -> None:
    arguments = [sys.executable, "-c", START.format(name=name), *POWER]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False, timeout=300)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_while_code_given_as_text_runs_ends_a_module_without_a_signal(tmp_path: Path) -> None:
    """A dataclass is made by such code; `python -m` would end with -2."""
    (tmp_path / "program.py").write_text(
        "from tacit.command import main\ndef load():\n    exec('raise KeyboardInterrupt')\nmain(load)\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "program"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


@pytest.mark.parametrize("arguments", [("version", "--json"), ("version",), ("plan", "power", "--help")])
def test_output_that_cannot_be_written_is_told(arguments: tuple[str, ...]) -> None:
    command = [sys.executable, "-c", "from tacit.command import main; main()", *arguments]
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, check=False, timeout=300
        )
    assert done.returncode == 1
    told = json.loads(done.stderr)["message"] if "--json" in arguments else done.stderr.strip()
    assert told == "cannot write standard output: No space left on device"


# Typical mistakes, and what docs/mistakes.md says that each is told.

MISTAKES = Path(__file__).resolve().parents[3] / "docs" / "mistakes.md"
ROWS = "patient_id,age,sex\n" + "".join(f"p{i},{20 + i % 60},{'FM'[i % 2]}\n" for i in range(120))
DRAFT = """title = "Same?"
procedure = "kernel_two_sample"
epsilon = 1.0
delta = 1e-5
columns = [{ kind = "numeric", name = "age", lower = 0, upper = 120 }]
owners = [{ name = "north", data_set = "patients" }, { name = "south", data_set = "patients" }]
"""

Change = tuple[str, str]

IN_DRAFT: dict[str, Change] = {
    "a procedure mistyped in a draft": ("kernel_two_sample", "kernel_two_sampel"),
    "bounds the wrong way round": ("lower = 0, upper = 120", "lower = 120, upper = 0"),
    "NaN for a bound": ("lower = 0", "lower = nan"),
    "a level of 5, meant as percent": ("epsilon", "level = 5\nepsilon"),
    "another word for a column's kind": ('"numeric"', '"number"'),
    "a quotation mark that does not close": ('"Same?"', '"Same?'),
}
IN_AGENT: dict[str, Change] = {
    "the data set's file is not there": ("north.csv", "none.csv"),
    "values separated by semicolons": ("north.csv", "semicolons.csv"),
    "a file without a line of names": ("north.csv", "bare.csv"),
    "a file that is no Parquet": ("north.csv", "not.parquet"),
    "two data sets of one name": ("[[data_sets]]", "[[data_sets]]\n{AGAIN}\n[[data_sets]]"),
    "a quotation mark missing in agent.toml": ('name = "north"', 'name = "north'),
    "a column of units that is not there": ("[[data_sets]]", '[[data_sets]]\nunit_column = "patientid"'),
    "a setting misspelt": ("policy_file", "polciy_file"),
    "a negative budget": ("epsilon = 3.0", "epsilon = -3.0"),
    "delta in percent": ("delta = 1e-05", "delta = 3"),
    "a bound left blank": (
        "[[data_sets]]",
        '[[data_sets]]\ncolumns = [{ kind = "numeric", name = "age", lower = "", upper = 120 }]',
    ),
    "the key file is another file": ("agent.pem", "north.csv"),
    "a blank behind the commas of the header": ("north.csv", "blank.csv"),
    "a file in UTF-16": ("north.csv", "utf-16.csv"),
    "a header in Latin-1": ("north.csv", "latin-1.csv"),
    "line ends of an old Macintosh": ("north.csv", "returns.csv"),
    "decimal commas": ('north.csv"', 'decimal.csv"\n{DECLARED}'),
    "a comma more at each line's end": ('north.csv"', 'trailing.csv"\n{DECLARED}'),
    "levels in other capitals": ('north.csv"', 'north.csv"\n{CODED}'),
}
DECLARED = 'columns = [{ kind = "numeric", name = "age", lower = 0, upper = 120 }]'
CODED = 'columns = [{ kind = "categorical", name = "sex", levels = ["f", "m"] }]'
IN_POLICY: dict[str, Change] = {
    "a procedure mistyped in the policy": ("kernel_two_sample", "kernel_two_sampel"),
    "a word for the approval that there is not": ("by-hand", "manual"),
    "a policy for another data set": ("data_sets.patients", "data_sets.patient"),
    "a policy of a column that is not there": ('"age"', '"agee"'),
}
BY_COMMAND: dict[str, tuple[str, ...]] = {
    "a procedure mistyped in a command": ("plan", "power", "kernel_two_sampel", "--n", "300"),
    "a party's name with capitals and spaces": ("party", "invite", "--role", "analyst", "--name", "Ann B"),
    "a key that is there already": ("agent", "init"),
}
TAKEN = "a port that is taken"
EVERY = [*IN_DRAFT, *IN_AGENT, *IN_POLICY, *BY_COMMAND, TAKEN]


@pytest.fixture(scope="module")
def agents_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An agent's files as init writes them, and data files that cannot be used."""
    folder = tmp_path_factory.mktemp("mistakes")
    source = folder / "north.csv"
    source.write_text(ROWS)
    assert run([*init_of(folder, source)]) == 0
    (folder / "north" / "north.csv").write_text(ROWS)
    for name, text in (
        ("semicolons.csv", ROWS.replace(",", ";")),
        ("bare.csv", ROWS.partition("\n")[2]),
        ("not.parquet", ROWS),
        ("blank.csv", ROWS.replace(",", ", ")),
        ("decimal.csv", re.sub(r",(\d+),", r',"\1,5",', ROWS)),
        ("trailing.csv", ROWS.replace("\n", ",\n").replace(",\n", "\n", 1)),
    ):
        (folder / "north" / name).write_text(text)
    (folder / "north" / "utf-16.csv").write_bytes(ROWS.encode("utf-16"))
    (folder / "north" / "latin-1.csv").write_bytes(ROWS.replace("sex", "geschlecht,größe").encode("latin-1"))
    (folder / "north" / "returns.csv").write_bytes(ROWS.replace("\n", "\r").encode())
    return folder / "north"


def init_of(folder: Path, source: Path) -> tuple[str, ...]:
    tester = ("--tester-url", "http://127.0.0.1:9", "--tester-key", "ab" * 32)
    data = ("--data-set", "patients", "--source", str(source), "--epsilon", "3", "--delta", "1e-5")
    return (
        "agent",
        "init",
        "--folder",
        str(folder / "north"),
        "--name",
        "north",
        *tester,
        *data,
        "--column",
        "age",
    )


def changed(text: str, change: Change) -> str:
    before, after = change
    assert before in text
    again = text.partition("[[data_sets]]")[2]
    return text.replace(
        before, after.replace("{AGAIN}", again).replace("{DECLARED}", DECLARED).replace("{CODED}", CODED), 1
    )


def told(mistake: str, agent: Path, tmp_path: Path, tacit: Run) -> str:
    """Make a mistake; returns all that is said of it."""
    if mistake == TAKEN:
        with socket.socket() as other:
            other.bind(("127.0.0.1", 0))
            other.listen()
            with pytest.raises(SettingsError) as raised:
                require_port("127.0.0.1", other.getsockname()[1])
        return str(raised.value)
    if mistake in IN_DRAFT:
        (tmp_path / "draft.toml").write_text(changed(DRAFT, IN_DRAFT[mistake]))
        _, out, err = tacit("study", "create", "draft.toml", "--dry-run")
        return out + err
    if mistake in BY_COMMAND:
        given = BY_COMMAND[mistake]
        _, out, err = tacit(*(init_of(agent.parent, agent / "north.csv") if given[-1] == "init" else given))
        return out + err
    shutil.copytree(agent, tmp_path / "north")
    config, policy = tmp_path / "north" / "agent.toml", tmp_path / "north" / "policy.toml"
    text = config.read_text().replace(str(agent.parent / "north.csv"), "north.csv")
    config.write_text(changed(text, IN_AGENT[mistake]) if mistake in IN_AGENT else text)
    if mistake in IN_POLICY:
        policy.write_text(changed(policy.read_text(), IN_POLICY[mistake]))
    report = check(config)
    assert not report["ok"]
    return text_of_report(report)


@pytest.mark.parametrize("mistake", EVERY)
def test_a_typical_mistake_is_told_as_the_page_says(
    agents_folder: Path, tacit: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mistake: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "400")
    said = " ".join(told(mistake, agents_folder, tmp_path, tacit).split())
    row = next(line for line in MISTAKES.read_text().splitlines() if line.startswith(f"| {mistake} |"))
    wanted = row.split("|")[3].strip().strip("`").replace("\\|", "|")
    for part in wanted.split("…"):
        assert part.strip() in said, said
    assert "Traceback" not in said
