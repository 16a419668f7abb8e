"""`tacit agent`, `tacit ledger`, `tacit data`: an owner's agent, its decisions, ledger and data."""

# ruff: noqa: PLC0415 (imports wait until a command runs, so that --help is quick)

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from tacit.atomic_write import require_writable
from tacit.command import connect
from tacit.command.connect import connecting
from tacit.command.output import (
    AGENT_FILE,
    ONE_BIT,
    AgentFile,
    Json,
    Yes,
    agreed,
    answer,
    delta_text,
    epsilon_text,
    lines,
    lines_to_errors,
    print_json,
    table,
    time_text,
    write_file,
)
from tacit.errors import InputError

app = typer.Typer(name="agent", help="Set up and run an owner's agent; decide.", no_args_is_help=True)

WAITING, HELD = "waiting-for-approval", "held"

Digest = connect.Digest


@app.command("init")
def init(
    *,
    name: Annotated[str, typer.Option(help="The owner's name.")],
    tester_url: Annotated[str, typer.Option(help="The tester's URL.")],
    tester_key: Annotated[str, typer.Option(help="The tester's public key, learned from its operator.")],
    data_set: Annotated[str | None, typer.Option(help="The data set's name.")] = None,
    source: Annotated[
        str | None,
        typer.Option(help="A .csv or .parquet file, a folder of .parquet files, or a database URL."),
    ] = None,
    epsilon: Annotated[float | None, typer.Option(help="Most epsilon ever spent on the data set.")] = None,
    delta: Annotated[float | None, typer.Option(help="Most delta ever spent on the data set.")] = None,
    data_folder: Annotated[
        list[Path] | None, typer.Option(help="A folder of which data sets may be added on the page.")
    ] = None,
    pure_share: Annotated[
        float | None,
        typer.Option(help="Part of epsilon for Laplace and other pure noise; else what may run decides."),
    ] = None,
    query: Annotated[str | None, typer.Option(help="The query, where the source is a database.")] = None,
    unit_column: Annotated[str | None, typer.Option(help="Column that names the privacy unit.")] = None,
    approval: Annotated[str, typer.Option(help="by-hand or automatic.")] = "by-hand",
    epsilon_per_study: Annotated[float, typer.Option(help="Most epsilon of one study.")] = 1.0,
    delta_per_study: Annotated[float, typer.Option(help="Most delta of one study.")] = 1e-5,
    units_min: Annotated[int, typer.Option(help="Fewest privacy units that a study may use.")] = 100,
    column: Annotated[
        list[str] | None, typer.Option(help="A column that studies may use; none unless named.")
    ] = None,
    procedure: Annotated[
        list[str] | None,
        typer.Option(help="A procedure that studies may use; kernel_two_sample unless named."),
    ] = None,
    catalogue: Annotated[
        bool, typer.Option("--catalogue", help="Publish the data set and these rules at the tester.")
    ] = False,
    folder: Annotated[Path, typer.Option(help="Where to write the files.")] = Path("agent"),
    host: Annotated[str, typer.Option(help="Address of the local page.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port of the local page.", min=1, max=65535)] = 8710,
    as_json: Json = False,
) -> None:
    """Write a new agent's key, agent.toml and policy.toml."""
    from tacit.setup.configuration import DataSetSetup, PolicySetup, TesterAddress, init_agent
    from tacit.setup.keys import load_key

    if approval not in {"by-hand", "automatic"}:
        raise InputError("--approval must be by-hand or automatic")
    described = None
    if data_set is not None and source is not None and epsilon is not None and delta is not None:
        path = source if "://" in source else str(Path(source).resolve())
        described = DataSetSetup(data_set, path, epsilon, delta, unit_column, query, pure_share)
    elif not data_folder or (data_set, source, epsilon, delta) != (None, None, None, None):
        raise InputError(
            "give --data-set, --source, --epsilon and --delta, or --data-folder alone: its files can then be "
            "added as data sets on the page"
        )
    policy = PolicySetup(
        approval=approval,
        epsilon_per_study_max=epsilon_per_study,
        delta_per_study_max=delta_per_study,
        units_min=units_min,
        columns=column or [],
        catalogue=catalogue,
        procedures=procedure or PolicySetup.procedures,
    )
    file = init_agent(
        folder,
        name,
        TesterAddress(tester_url.rstrip("/"), tester_key),
        described,
        policy,
        host=host,
        port=port,
        data_folders=[str(one.resolve()) for one in data_folder or ()],
    )
    key = load_key(folder / "agent.pem").public_hex
    answer(
        as_json,
        {"config": str(file), "name": name, "key": key},
        f"Wrote {file}, policy.toml and the key. Public key: {key}",
        f"Read {folder / 'policy.toml'}: it decides what may leave, and which columns may be used.",
        "Next:",
        f"  tacit doctor --config {file}",
        f"  tacit agent enrol --config {file} --invitation ...",
        f"  tacit agent serve --config {file}",
    )


@app.command("serve")
def serve(config: AgentFile = AGENT_FILE) -> None:
    """Run an agent. It stops at Ctrl-C or SIGTERM."""
    connect.become("agent", config)


@app.command("enrol")
@connecting
def enrol(
    invitation: Annotated[str, typer.Option(help="The invitation from the tester's operator.")],
    config: AgentFile = AGENT_FILE,
    as_json: Json = False,
) -> None:
    """Enrol as an owner at the tester that agent.toml names."""
    from tacit.command.party import enrol_as

    enrol_as("owner", config, invitation, as_json)


@app.command("login")
def login(user: connect.ForUser = None, config: AgentFile = AGENT_FILE, as_json: Json = False) -> None:
    """Print a link that signs a browser in to the agent's pages: once, within five minutes."""
    from tacit.client.sign_in import agent_door

    connect.print_link(agent_door, config, user, as_json)


app.add_typer(connect.users_app("agent_door", AgentFile, AGENT_FILE))


@app.command("status")
def status(config: AgentFile = AGENT_FILE, as_json: Json = False) -> None:
    """Show the data sets, what is left of their budgets, and the studies by state."""
    from tacit.client.http import parse_item
    from tacit_protocol.messages.answers import BudgetBalance

    with connect.agent_client(config) as client:
        found = client.status()
    if as_json:
        print_json(found)
        return
    lines(f"{found['party']['name']}, tester {found['tester']['url']}")
    table(
        ("Data set", "Units", "Left"),
        [
            (
                data_set["name"],
                data_set["units"] or "not read yet",
                parse_item(BudgetBalance, data_set).left_words,
            )
            for data_set in found["data_sets"]
        ],
    )
    for data_set in found["data_sets"]:
        if (lock := data_set.get("locked")) is not None:
            lines(
                f"{data_set['name']} is locked: study {lock['study'][:12]} failed after rows were read, "
                f"{time_text(lock['at'])}, {lock['fault']} in {lock['place'] or 'no line of code'}. "
                f"It answers nothing until `tacit agent unlock {data_set['name']}`."
            )
    counts = ", ".join(f"{count} {state}" for state, count in found["studies"].items() if count)
    lines(f"Studies: {counts or 'none'}")


@app.command("studies")
def studies(
    state: Annotated[str | None, typer.Option(help="Only studies in this state.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Also studies that are decided.")] = False,
    config: AgentFile = AGENT_FILE,
    as_json: Json = False,
) -> None:
    """List what is asked of this owner, and waits for a decision, or for a look at its release."""
    states = [state] if state else [None] if every else [WAITING, HELD]
    with connect.agent_client(config) as client:
        studies = [study for one in states for study in client.studies(one)]
    if as_json:
        print_json(studies)
        return
    table(
        ("Study", "Title", "State", "Data set", "Epsilon", "Numbers", "Deadline"),
        [
            (
                study["digest"][:12],
                study["title"] or "(cannot be read)",
                study["state"],
                study["data_set"] or "",
                "" if study["epsilon_micro"] is None else epsilon_text(study["epsilon_micro"]),
                study["release_size"] or "",
                time_text(study["deadline"]),
            )
            for study in studies
        ],
    )


@app.command("show")
def show_study(digest: Digest, config: AgentFile = AGENT_FILE, as_json: Json = False) -> None:
    """Show all that is known of a study before it is decided on: what it is for, what leaves, cost, keys."""
    from tacit.command.study_view import print_asked

    with connect.agent_client(config) as client:
        asked = client.study(connect.whole_digest(digest, client))
    if as_json:
        print_json(asked)
        return
    print_asked(asked)


@app.command("reuses")
def reuses(digest: Digest, config: AgentFile = AGENT_FILE, as_json: Json = False) -> None:
    """Ask the tester which later studies read this owner's release again. They cost nothing."""
    with connect.agent_client(config) as client:
        whole = connect.whole_digest(digest, client)
        later = client.reused_by(whole)
    if as_json:
        print_json({"digest": whole, "reused_by": later})
        return
    if later is None:
        lines("The tester could not be asked.")
        return
    lines(*(f"Read again by study {study}" for study in later))
    lines(f"{len(later)} studies read the release for {whole[:12]} again, at no cost.")


@app.command("certificate")
def certificate(config: AgentFile = AGENT_FILE, as_json: Json = False) -> None:
    """Print the certificate that a study needs in which this owner receives another's release."""
    from tacit.setup.configuration import read_toml, text_field
    from tacit.setup.keys import load_key
    from tacit_protocol.signing import certify

    found = certify(load_key(config.parent / text_field(read_toml(config), "key_file", config)))
    answer(
        as_json,
        found.model_dump(mode="json"),
        "Give this to the analyst, for this owner's part of the draft:",
        f'  sealing = {{ key = "{found.key}", signature = "{found.signature}" }}',
    )


@app.command("result")
def result(digest: Digest, config: AgentFile = AGENT_FILE, as_json: Json = False) -> None:
    """Show what this agent found with another owner's release. It is not private for this owner's data."""
    from tacit.client.agent import finding_result
    from tacit.command.study_view import print_result

    with connect.agent_client(config) as client:
        found = client.finding(connect.whole_digest(digest, client))
    if as_json:
        print_json(found["finding"])
        return
    print_result(finding_result(found))
    lines(
        "Keep this here: it is private for the other owner's data, and exact in this owner's. "
        "What the receiver spent is in its ledger.",
    )


@app.command("approve")
def approve(digest: Digest, yes: Yes = False, config: AgentFile = AGENT_FILE, as_json: Json = False) -> None:
    """Approve a study: its budget is spent and the release is sent."""
    from tacit.command.study_view import asked_words

    with connect.agent_client(config) as client:
        whole = connect.whole_digest(digest, client)
        asked = client.study(whole)
        if asked["state"] == WAITING:
            if not as_json:
                lines(*asked_words(asked))
            agreed(f"Approve and spend epsilon {epsilon_text(asked['epsilon_micro'] or 0)}?", yes, as_json)
        decided = client.approve(whole)
    waits = decided["state"] == WAITING
    second = " The policy asks for a second person: nothing is spent until somebody else approves as well."
    answer(as_json, decided, f"Approved {whole[:12]}.{second if waits else ''}")


@app.command("send")
def send(digest: Digest, yes: Yes = False, config: AgentFile = AGENT_FILE, as_json: Json = False) -> None:
    """Send a release that waits to be looked at (`look_before_sending`); `decline` withholds it."""
    from tacit.command.study_view import held_words

    with connect.agent_client(config) as client:
        whole = connect.whole_digest(digest, client)
        asked = client.study(whole)
        if asked["state"] == HELD:
            if not as_json:
                lines(*held_words(asked))
            agreed("Send these numbers? They cannot be called back.", yes, as_json)
        decided = client.send(whole)
    answer(as_json, decided, f"The release for {whole[:12]} is sent.")


@app.command("answer")
def answer_study(
    study: Annotated[Path, typer.Argument(help="A signed study, from `tacit study envelope`.")],
    output: Annotated[Path, typer.Option(help="Where the answer goes.")] = Path("answer.dsse"),
    timeout_s: Annotated[float, typer.Option(help="How long to wait for it, in seconds.")] = 600.0,
    config: AgentFile = AGENT_FILE,
    as_json: Json = False,
) -> None:
    """Answer one study that was brought as a file, by the same policy, ledger and approval.

    Exit status 3: a steward has not decided, or it takes longer.
    """
    told = ["--study", str(study), "--output", str(output), "--timeout-s", str(timeout_s)]
    connect.become("agent", config, "answer", [*told, *(["--json"] if as_json else [])])


@app.command("decline")
def decline(
    digest: Digest,
    reason: Annotated[str | None, typer.Option(help="A note for your own records; never sent.")] = None,
    config: AgentFile = AGENT_FILE,
    as_json: Json = False,
) -> None:
    """Decline a study: the tester learns that you declined, and nothing else."""
    with connect.agent_client(config) as client:
        whole = connect.whole_digest(digest, client)
        decided = client.decline(whole, reason)
        paid = None if as_json else client.study(whole).get("payment")
    answer(as_json, decided, f"Declined {whole[:12]}. It {paid or 'spent nothing'}.")


@app.command("unlock")
def unlock(
    data_set: Annotated[str, typer.Argument(help="The data set.", autocompletion=connect.data_sets_here)],
    yes: Yes = False,
    config: AgentFile = AGENT_FILE,
    as_json: Json = False,
) -> None:
    """Let a data set answer studies again that a failure has locked: `status` says what failed."""
    agreed(f"Unlock {data_set}? {ONE_BIT}", yes, as_json)
    with connect.agent_client(config) as client:
        found = client.unlock(data_set)
    answer(as_json, found, f"{data_set} answers studies again.")


ledger_app = typer.Typer(
    name="ledger", help="Show, verify and export an owner's ledger.", no_args_is_help=True
)

OneDataSet = Annotated[
    str | None, typer.Option(help="Only this data set.", autocompletion=connect.data_sets_here)
]
FIELDS = (
    "sequence",
    "at",
    "data_set",
    "kind",
    "study",
    "epsilon_micro",
    "delta_pico",
    "paid_by",
    "approved_by",
    "pure_pico",
    "gaussian_femto",
    "approximate_atto",
)


@ledger_app.command("show")
def show(data_set: OneDataSet = None, config: AgentFile = AGENT_FILE, as_json: Json = False) -> None:
    """Show what was spent, when, on which study, and what is left of each cap."""
    from tacit.client.http import parse_item
    from tacit_protocol.messages.answers import BudgetBalance

    with connect.agent_client(config) as client:
        entries = client.ledger(data_set)
        accounts = [] if as_json else client.status()["data_sets"]
    if as_json:
        print_json(entries)
        return
    print_entries(entries)
    for account in accounts:
        if data_set in {None, account["name"]}:
            lines(f"{account['name']}: {parse_item(BudgetBalance, account).left_words} left")


def print_entries(entries: Iterable[Mapping[str, Any]]) -> None:
    """Print a ledger's entries."""
    table(
        ("#", "At", "Data set", "What", "Epsilon", "Delta", "Paid by", "Approved by"),
        [
            (
                entry["sequence"],
                time_text(entry["at"]) if isinstance(entry["at"], int | float) else str(entry["at"]),
                entry["data_set"],
                "cap set" if entry["study"] is None else f"study {entry['study'][:12]}",
                epsilon_text(entry["epsilon_micro"]),
                delta_text(entry["delta_pico"]),
                _payer(entry),
                _approvers(entry),
            )
            for entry in entries
        ],
    )


@ledger_app.command("export")
def export(
    output: Annotated[Path, typer.Option(help="A .csv or .json file to write.")],
    data_set: OneDataSet = None,
    config: AgentFile = AGENT_FILE,
    as_json: Json = False,
) -> None:
    """Write the ledger to a file: JSON with every mechanism event, or CSV with one line an entry."""
    import csv
    import io
    import json

    if output.suffix not in {".csv", ".json"}:
        raise InputError("--output must end in .csv or .json")
    require_writable(output)
    with connect.agent_client(config) as client:
        entries = client.ledger(data_set)
    text = io.StringIO()
    if output.suffix == ".json":
        json.dump(entries, text, indent=2)
    else:
        writer = csv.DictWriter(text, FIELDS, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(entry | {"approved_by": _approvers(entry)} for entry in entries)
    write_file(output, text.getvalue().encode())
    answer(
        as_json,
        {"output": str(output), "entries": len(entries)},
        f"Wrote {len(entries)} entries to {output}.",
    )


@ledger_app.command("verify")
def verify(
    kept: Annotated[
        list[str] | None, typer.Option(help="A head hash that was kept elsewhere: it must still be there.")
    ] = None,
    config: AgentFile = AGENT_FILE,
    as_json: Json = False,
) -> None:
    """Check that no entry was changed, removed, added or reordered. Exit code 1 where one was."""
    hashes = checked_hashes(kept or [])
    with connect.agent_client(config) as client:
        report = client.verify_ledger(hashes)
    if as_json:
        print_json(report)
    else:
        print_verification(report)
    if not report["ok"]:
        raise typer.Exit(1)


def checked_hashes(hashes: list[str]) -> list[str]:
    """Return the hashes; raises InputError where one is none."""
    if not all(re.fullmatch("[0-9a-f]{64}", one) for one in hashes):
        raise InputError("--kept must be 64 hexadecimal digits, as this command shows them")
    return hashes


def print_verification(report: Mapping[str, Any]) -> None:
    """Print what checking a ledger has found."""
    from tacit.client.http import parse_item
    from tacit_protocol.messages.answers import BudgetBalance

    table(
        ("Head hash", "Data set", "Entries", "Left"),
        [
            (
                account["head_hash"],
                account["data_set"],
                account["entries"],
                parse_item(BudgetBalance, account["standing"]).left_words,
            )
            for account in report["accounts"]
        ],
    )
    lines(*(f"Damaged: {fault}" for fault in report["faults"]))
    if report["ok"]:
        lines("The ledger is whole. Keep the head hashes in another place: --kept compares them later.")


def _payer(entry: Mapping[str, Any]) -> str:
    payer = entry.get("paid_by")
    return "" if payer is None else "both shares" if payer == "both" else f"{str(payer).capitalize()} share"


def _approvers(entry: Mapping[str, Any]) -> str:
    return ", ".join(str(name) for name in entry.get("approved_by") or ())


align_app = typer.Typer(
    name="align",
    help="Compare the units of a data set with another owner's, without the tester.",
    no_args_is_help=True,
)

DataSet = Annotated[
    str, typer.Option(help="A data set of agent.toml.", autocompletion=connect.data_sets_here)
]
UnitColumn = Annotated[
    str | None, typer.Option(help="The id that both owners share; the data set's unit_column.")
]
SharedKey = Annotated[Path, typer.Option(help="The key that both owners share, from `tacit data align key`.")]


@align_app.command("key")
def key(
    out: Annotated[Path, typer.Option(help="A new file, for you and the other owner alone.")],
    as_json: Json = False,
) -> None:
    """Draw a key for two owners. Take it to the other owner yourself: the tester must never see it."""
    from tacit.setup.keys import create_unit_key

    create_unit_key(out)
    if as_json:
        print_json({"key_file": str(out)})
    else:
        lines(f"{out}: for you and one other owner; never for the tester or an analyst")


@align_app.command("make")
def make(
    *,
    data_set: DataSet,
    key: SharedKey,
    out: Annotated[Path, typer.Option(help="The file to write, for the other owner.")],
    unit_column: UnitColumn = None,
    config: AgentFile = AGENT_FILE,
    as_json: Json = False,
) -> None:
    """Read the ids and write the file that the other owner compares with."""
    _align(config, ["make", *_named(data_set, key, unit_column), "--out", str(out)], as_json)


@align_app.command("compare")
def compare(
    *,
    data_set: DataSet,
    key: SharedKey,
    theirs: Annotated[Path, typer.Option("--with", help="The file that the other owner made.")],
    unit_column: UnitColumn = None,
    list_ids: Annotated[
        bool, typer.Option("--list", help="Name the ids that may differ, on this screen.")
    ] = False,
    config: AgentFile = AGENT_FILE,
    as_json: Json = False,
) -> None:
    """Compare with the other owner's file. Where the units are the same, the agent remembers it."""
    listed = ["--list"] if list_ids else []
    _align(config, ["compare", *_named(data_set, key, unit_column), "--with", str(theirs), *listed], as_json)


@align_app.command("list")
def list_alignments(config: AgentFile = AGENT_FILE, as_json: Json = False) -> None:
    """List what the agent has recorded: which data set is aligned with whose, by which digest."""
    _align(config, ["list"], as_json)


@align_app.command("forget")
def forget(
    *,
    digest: Annotated[str, typer.Argument(help="The alignment's digest, whole.")],
    config: AgentFile = AGENT_FILE,
    as_json: Json = False,
) -> None:
    """Forget an alignment and its key: the agent refuses studies that name it from then on."""
    _align(config, ["forget", "--digest", digest], as_json)


def _named(data_set: str, key: Path, unit_column: str | None) -> list[str]:
    of = ["--data-set", data_set, "--key", str(key)]
    return of if unit_column is None else [*of, "--unit-column", unit_column]


def _align(config: Path, arguments: Sequence[str], as_json: bool) -> None:
    from tacit.setup.processes import run_align

    done = run_align(config, [*arguments, *(["--json"] if as_json else [])])
    if as_json:
        print(done.output)
    else:
        lines(*done.output.splitlines())
    if not done.passed:
        raise typer.Exit(1)


data_app = typer.Typer(
    name="data", help="Describe, check and align an owner's data, locally.", no_args_is_help=True
)
data_app.add_typer(align_app)


@data_app.command("check")
def check(
    study: Annotated[
        str | None,
        typer.Option(
            help="Hold the data against a study: the signed file, or a study's digest.",
            autocompletion=connect.digests,
        ),
    ] = None,
    config: AgentFile = AGENT_FILE,
    as_json: Json = False,
) -> None:
    """Read configuration, policy and data as the agent would; nothing leaves this machine.

    Of every declared column it says which share can be read, lies within its bounds or is listed, and is
    missing: exact, and for the owner's eyes alone. Exit status 1 where studies would go wrong.
    """
    from tacit.setup.doctor import run_check

    found = run_check("agent", config, [] if study is None else ["--study", study])
    if as_json:
        print_json(found.report)
    elif "text" in found.report:
        lines(*str(found.report["text"]).splitlines())
    else:
        lines(found.text)
    if not found.passed:
        raise typer.Exit(1)


@data_app.command("describe")
def describe(
    source: Annotated[
        str,
        typer.Argument(help="A file that an agent reads, a folder of .parquet files, or a database URL."),
    ],
    table: Annotated[str | None, typer.Option(help="The table, of a database.")] = None,
    as_json: Json = False,
) -> None:
    """Propose bounds and levels by columns' names and types. No value is read: bounds from data leak it."""
    from tacit.setup.column_description import columns_of, described, snippet
    from tacit_protocol.public_knowledge import CAUTION

    found = columns_of(source, table)
    columns = described(found)
    read = "the names" if all(column.type == "unknown" for column in found) else "the names and types"
    text = snippet(columns, "the table" if "://" in source else source, read)
    blank = [column.name for column in columns if not column.complete]
    if as_json:
        print_json(
            {
                "read": read,
                "columns": [asdict(column) for column in columns],
                "fill_in": blank,
                "caution": CAUTION,
                "toml": text,
            }
        )
        return
    print(text, end="")
    lines_to_errors(f"WARNING: {CAUTION}")
    if blank:
        lines_to_errors(f"Fill in: {', '.join(blank)}. The agent refuses blanks.")
