"""`tacit curator`, its operator's commands; `tacit owner`, those of owners who hand it data and decide."""

# ruff: noqa: PLC0415 (imports wait until a command runs, so that --help is quick)

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.command import connect
from tacit.command.connect import connecting
from tacit.command.output import (
    CURATOR_FILE,
    ONE_BIT,
    OWNER_FILE,
    CuratorFile,
    Json,
    OwnerFile,
    Yes,
    agreed,
    answer,
    delta_text,
    epsilon_text,
    keys,
    lines,
    print_json,
    same,
    table,
    time_text,
    upload_progress,
)
from tacit.errors import InputError

if TYPE_CHECKING:
    from tacit.client.curator import CuratorClient
    from tacit_protocol.messages.answers import HeldDataSet

DataSet = Annotated[str, typer.Option(help="The data set's name.")]

owner_app = typer.Typer(
    name="owner",
    help="For an owner without an agent: hand data to a curator, and decide.",
    no_args_is_help=True,
)


@owner_app.command("init")
def owner_init(
    *,
    name: Annotated[str, typer.Option(help="The owner's name.")],
    curator_url: Annotated[str, typer.Option(help="The curator's URL.")],
    curator_key: Annotated[str, typer.Option(help="The curator's public key, learned from its operator.")],
    folder: Annotated[Path, typer.Option(help="Where to write owner.toml and the key.")] = Path("owner"),
    as_json: Json = False,
) -> None:
    """Write a new owner's key and owner.toml, for an owner that hands its data to a curator."""
    from tacit.setup.configuration import CuratorAddress, init_owner
    from tacit.setup.keys import load_key

    file = init_owner(folder, name, CuratorAddress(curator_url.rstrip("/"), curator_key))
    key = load_key(folder / "owner.pem").public_hex
    answer(
        as_json,
        {"owner": str(file), "name": name, "key": key},
        f"Wrote {file} and its key. Your public key: {key}",
        "Next: ask the curator's operator for an invitation, then",
        f"  tacit owner enrol --owner {file} --invitation ...",
    )


@owner_app.command("enrol")
@connecting
def owner_enrol(
    invitation: Annotated[str, typer.Option(help="The one-time invitation from the operator.")],
    owner: OwnerFile = OWNER_FILE,
    as_json: Json = False,
) -> None:
    """Enrol as an owner at the curator that owner.toml names."""
    with connect.owner_client(owner) as client:
        enrolled = client.enrol(invitation)
    answer(as_json, enrolled.model_dump(), f"{enrolled.name} is enrolled at the curator.")


@owner_app.command("register")
@connecting
def register(
    file: Annotated[Path, typer.Option(help="The data set's description, in TOML.")],
    owner: OwnerFile = OWNER_FILE,
    as_json: Json = False,
) -> None:
    """Register a data set, or change its caps and its policy. No row is sent."""
    from tacit.client.data_set import DataSetDescription

    description = DataSetDescription.from_toml(file)
    with connect.owner_client(owner) as client:
        held = client.register(description)
    if as_json:
        print_json(held.model_dump())
        return
    spend = f"epsilon {epsilon_text(held.epsilon_cap_micro)}, delta {delta_text(held.delta_cap_pico)}"
    lines(
        f"Registered {held.account}: {len(held.columns)} columns; studies may spend {spend} in all.",
        *(
            ()
            if held.ready
            else (f"Next: tacit owner upload FILE --data-set {held.name}{same('owner', owner, OWNER_FILE)}",)
        ),
    )


@owner_app.command("upload")
@connecting
def upload(
    file: Annotated[Path, typer.Argument(help="The rows: a .csv or .parquet file.")],
    data_set: DataSet,
    owner: OwnerFile = OWNER_FILE,
    as_json: Json = False,
) -> None:
    """Send a data set's rows; they replace those that were there. Read while sent, in constant memory."""
    from tacit.client.data_set import upload_of

    size_bytes = upload_of(file).size_bytes
    with (
        connect.owner_client(owner) as client,
        upload_progress(file.name, size_bytes, quiet=as_json) as report,
    ):
        held = client.upload(data_set, file, report)
    if as_json:
        print_json(held.model_dump())
        return
    counts = "" if held.rows is None else f": {held.rows} rows, {held.units} units"
    lines(f"{held.account} holds {file.name} now{counts}.")


Digest = connect.Digest


@owner_app.command("approve")
@connecting
def approve(digest: Digest, yes: Yes = False, owner: OwnerFile = OWNER_FILE, as_json: Json = False) -> None:
    """Approve a study for your data sets. It runs, and spends, once every owner has approved."""
    with connect.owner_client(owner) as client:
        whole = connect.whole_digest(digest, client)
        asked = client.study(whole)
        if not as_json:
            print_study(asked)
        agreed(f"Approve, for epsilon {epsilon_text(asked['epsilon_micro'] or 0)}?", yes, as_json)
        decided = client.approve(whole)
    answer(as_json, decided, f"Approved {whole[:12]}.")


@owner_app.command("decline")
@connecting
def decline(
    digest: Digest,
    reason: Annotated[str | None, typer.Option(help="A note for the curator's records; never sent.")] = None,
    owner: OwnerFile = OWNER_FILE,
    as_json: Json = False,
) -> None:
    """Decline a study, which then ends without a verdict: the tester learns nothing else."""
    with connect.owner_client(owner) as client:
        whole = connect.whole_digest(digest, client)
        decided = client.decline(whole, reason)
        accounts = [] if as_json else client.study(whole)["accounts"]
    paid = [f"{one['account']} {one.get('payment') or 'spent nothing'}" for one in accounts]
    answer(as_json, decided, f"Declined {whole[:12]}: {'; '.join(paid)}.")


def add_unlock(app: typer.Typer, file: Any, default: Path, asking: str) -> None:
    """Add the command that unlocks a data set; as for :func:`add_shared`."""

    @app.command("unlock")
    @connecting
    def unlock(
        data_set: DataSet,
        yes: Yes = False,
        of: file = default,
        as_json: Json = False,
    ) -> None:
        """Let a data set answer studies again that a failure has locked."""
        agreed(f"Unlock {data_set}? {ONE_BIT}", yes, as_json)
        with getattr(connect, asking)(of) as client:
            client.unlock(data_set)
        answer(as_json, {"data_set": data_set, "unlocked": True}, f"{data_set} answers studies again.")


def add_shared(app: typer.Typer, file: Any, default: Path, asking: str, whose: str) -> None:
    """Add the commands that the operator and an owner have alike.

    Args:
        app: whose commands.
        file: the option that names the file which says who asks.
        default: which file it is unless told.
        asking: the function of tacit.command.connect that returns the curator's client for it.
        whose: whose data sets, in words.
    """

    def connected(of: Path) -> "CuratorClient":
        found: CuratorClient = getattr(connect, asking)(of)
        return found

    @app.command(
        "data-sets", help=f"List {whose} data sets at the curator, and what is left of their budgets."
    )
    @connecting
    def data_sets(of: file = default, as_json: Json = False) -> None:
        with connected(of) as client:
            held = client.data_sets()
        if as_json:
            print_json([data_set.model_dump() for data_set in held])
            return
        print_data_sets(held)

    @app.command("delete")
    @connecting
    def delete(
        data_set: DataSet,
        yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
        of: file = default,
        as_json: Json = False,
    ) -> None:
        """Delete a data set's rows at the curator for good. What was spent on it stays in the ledger."""
        from tacit_protocol.terminal import printable

        asked = f"Delete the rows of {printable(data_set)} at the curator?"
        if not yes and (as_json or not typer.confirm(asked)):
            raise InputError("nothing was deleted: say --yes")
        with connected(of) as client:
            client.delete(data_set)
        deleted = f"The curator has deleted the rows of {data_set}."
        answer(as_json, {"data_set": data_set, "deleted": True}, deleted)

    @app.command("studies", help=f"List what is asked of {whose} data sets at the curator.")
    @connecting
    def studies(
        state: Annotated[str | None, typer.Option(help="Only studies in this state.")] = None,
        of: file = default,
        as_json: Json = False,
    ) -> None:
        with connected(of) as client:
            listed = client.studies(state)
        if as_json:
            print_json(listed)
            return
        print_studies(listed)

    @app.command("show")
    @connecting
    def show(digest: Digest, of: file = default, as_json: Json = False) -> None:
        """Show a study: what it asks, in plain words, what it costs, and who has approved."""
        with connected(of) as client:
            found = client.study(connect.whole_digest(digest, client))
        if as_json:
            print_json(found)
            return
        print_study(found)

    @app.command(
        "ledger", help=f"Show what was spent of {whose} accounts at the curator, when, on which study."
    )
    @connecting
    def ledger(
        data_set: Annotated[str | None, typer.Option(help="Only this data set.")] = None,
        of: file = default,
        as_json: Json = False,
    ) -> None:
        from tacit.command.agent import print_entries

        with connected(of) as client:
            entries = client.ledger(data_set)
        if as_json:
            print_json(entries)
            return
        print_entries(entries)

    @app.command(
        "verify-ledger", help=f"Have the curator check {whose} ledger. Exit code 1 where it is damaged."
    )
    @connecting
    def verify_ledger(
        kept: Annotated[
            list[str] | None,
            typer.Option(help="A head hash that was kept elsewhere: it must still be there."),
        ] = None,
        of: file = default,
        as_json: Json = False,
    ) -> None:
        from tacit.command.agent import checked_hashes, print_verification

        hashes = checked_hashes(kept or [])
        with connected(of) as client:
            report = client.verify_ledger(hashes)
        if as_json:
            print_json(report)
        else:
            print_verification(report)
        if not report["ok"]:
            raise typer.Exit(1)


add_shared(owner_app, OwnerFile, OWNER_FILE, "owner_client", "your")
add_unlock(owner_app, OwnerFile, OWNER_FILE, "owner_client")


@owner_app.command("login")
@connecting
def owner_login(owner: OwnerFile = OWNER_FILE, user: connect.ForUser = None, as_json: Json = False) -> None:
    """Print a link that signs a browser in to your pages at the curator: once, within five minutes."""
    from tacit.client.sign_in import curator_owner_door

    connect.print_link(curator_owner_door, owner, user, as_json)


owner_app.add_typer(connect.users_app("curator_owner_door", OwnerFile, OWNER_FILE))

app = typer.Typer(
    name="curator",
    help="Run a curator, and see to it. Its owners have `tacit owner`.",
    no_args_is_help=True,
)


@app.command("init")
def init(
    *,
    name: Annotated[str, typer.Option(help="The curator's name.")],
    tester_url: Annotated[str, typer.Option(help="The tester's URL.")],
    tester_key: Annotated[str, typer.Option(help="The tester's public key, learned from its operator.")],
    folder: Annotated[Path, typer.Option(help="Where to write the files.")] = Path("curator"),
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on.", min=1, max=65535)] = 8720,
    url: Annotated[str | None, typer.Option(help="Public URL; by default made of host and port.")] = None,
    as_json: Json = False,
) -> None:
    """Write a new curator's key, its storage key and curator.toml."""
    from tacit.setup.configuration import TesterAddress, init_curator
    from tacit.setup.keys import load_key

    tester = TesterAddress(tester_url.rstrip("/"), tester_key)
    file = init_curator(folder, name, tester, host=host, port=port, url=url)
    key = load_key(folder / "curator.pem").public_hex
    answer(
        as_json,
        {"config": str(file), "name": name, "key": key, "url": url or f"http://{host}:{port}"},
        f"Wrote {file}, the curator's key and {folder / 'storage.key'}, which encrypts the owners' rows.",
        "Keep a copy of the storage key in another place: without it the rows are lost.",
        f"Public key, for owners and analysts to pin: {key}",
        "Next: ask the tester's operator for an invitation, then",
        f"  tacit curator enrol --config {file} --invitation ...",
        f"  tacit curator serve --config {file}",
    )


@app.command("serve")
def serve(config: CuratorFile = CURATOR_FILE) -> None:
    """Run a curator. It stops at Ctrl-C or SIGTERM."""
    connect.become("curator", config)


@app.command("enrol")
@connecting
def enrol(
    invitation: Annotated[str, typer.Option(help="The invitation from the tester's operator.")],
    config: CuratorFile = CURATOR_FILE,
    as_json: Json = False,
) -> None:
    """Enrol the curator at the tester that curator.toml names."""
    from tacit.command.party import enrol_as

    enrol_as("curator", config, invitation, as_json)


@app.command("invite")
@connecting
def invite(
    name: Annotated[str, typer.Option(help="The owner's name.")],
    config: CuratorFile = CURATOR_FILE,
    as_json: Json = False,
) -> None:
    """Make a one-time invitation for an owner, on the curator's machine."""
    from tacit.setup.configuration import require_name

    require_name(name, "--name")
    with connect.operator_client(config) as client:
        invitation = client.invite(name)
    answer(
        as_json,
        invitation.model_dump(),
        f"Invitation for owner {name}, good once, until {time_text(invitation.expires_at)}:",
        f"  {invitation.invitation}",
        "Hand it over by a channel that you both trust.",
    )


@app.command("invitations")
@connecting
def invitations(config: CuratorFile = CURATOR_FILE, as_json: Json = False) -> None:
    """List all invitations ever made, and what became of each."""
    from tacit.command.party import print_invitations

    with connect.operator_client(config) as client:
        print_invitations(client.invitations(), as_json)


@app.command("revoke")
@connecting
def revoke(
    name: Annotated[str, typer.Option(help="The owner's name.")],
    invitation: Annotated[
        bool, typer.Option("--invitation", help="Its invitations that nobody used yet, and no key.")
    ] = False,
    config: CuratorFile = CURATOR_FILE,
    as_json: Json = False,
) -> None:
    """Revoke an owner's key for good, or its unused invitations, on the curator's machine."""
    from tacit.command.party import print_revoked_invitations

    with connect.operator_client(config) as client:
        if invitation:
            print_revoked_invitations(client.revoke_invitations(name), as_json)
            return
        owner = client.revoke(name)
    answer(
        as_json,
        owner.model_dump(),
        f"Revoked at {time_text(owner.revoked_at)}: {owner.name}, key",
        f"  {owner.key}",
        "No study is answered from its data sets any more. Its rows and its ledger stay.",
    )


@app.command("owners")
@connecting
def owners(config: CuratorFile = CURATOR_FILE, as_json: Json = False) -> None:
    """List the owners and their keys, which a study's draft names."""
    with connect.operator_client(config) as client:
        listed = client.owners()
    if as_json:
        print_json([owner.model_dump() for owner in listed])
        return
    keys((f"{owner.name}{'' if owner.revoked_at is None else ' (revoked)'}", owner.key) for owner in listed)


@app.command("status")
@connecting
def status(config: CuratorFile = CURATOR_FILE, as_json: Json = False) -> None:
    """Show the curator's owners, data sets and studies."""
    from collections import Counter

    with connect.operator_client(config) as client:
        identity, owners, data_sets = client.identity(), client.owners(), client.data_sets()
        counts = Counter(str(study.get("state")) for study in client.studies())
    if as_json:
        print_json(
            {
                "curator": identity.model_dump(),
                "owners": [owner.model_dump() for owner in owners],
                "data_sets": [data_set.model_dump() for data_set in data_sets],
                "studies": dict(counts),
            }
        )
        return
    lines(f"{identity.name} ({identity.software}), {len(owners)} owners")
    print_data_sets(data_sets)
    lines("Studies: " + (", ".join(f"{count} {state}" for state, count in counts.items()) or "none"))


@app.command("login")
@connecting
def login(user: connect.ForUser = None, config: CuratorFile = CURATOR_FILE, as_json: Json = False) -> None:
    """Print a link that signs a browser in to the curator's pages, as its operator: once."""
    from tacit.client.sign_in import curator_door

    connect.print_link(curator_door, config, user, as_json)


app.add_typer(connect.users_app("curator_any_door", CuratorFile, CURATOR_FILE))
add_shared(app, CuratorFile, CURATOR_FILE, "operator_client", "all owners'")
add_unlock(app, CuratorFile, CURATOR_FILE, "operator_client")


def print_data_sets(data_sets: "Iterable[HeldDataSet]") -> None:
    """Print data sets, what is left of their budgets, and which are locked."""
    listed = list(data_sets)
    table(
        ("Data set", "Rows", "Units", "Left", "Approval"),
        [
            (
                data_set.account,
                "are there" if data_set.ready else "not uploaded",
                data_set.units or "",
                data_set.left_words,
                data_set.policy.get("approval", ""),
            )
            for data_set in listed
        ],
    )
    for data_set in listed:
        if (lock := data_set.locked) is not None:
            where = "" if lock.at is None else f", {time_text(lock.at)}, {lock.fault} in {lock.place}"
            lines(f"{data_set.account} is locked: study {lock.study[:12]} failed after rows were read{where}")


def print_studies(studies: Iterable[Mapping[str, Any]]) -> None:
    """Print a line for each study, with who has approved."""
    table(
        ("Study", "Title", "State", "Approved by", "Waiting for", "Epsilon", "Deadline"),
        [
            (
                study["digest"][:12],
                study["title"] or "(cannot be read)",
                study["state"],
                _owners_who(study, "approved"),
                _owners_who(study, "waiting"),
                "" if study["epsilon_micro"] is None else epsilon_text(study["epsilon_micro"]),
                time_text(study["deadline"]),
            )
            for study in studies
        ],
    )


def print_study(study: Mapping[str, Any]) -> None:
    """Print one study: what it asks in plain words, what remains, and who has said what."""
    from tacit.client.http import parse_item
    from tacit.command.study_view import asked_words
    from tacit_protocol.messages.answers import BudgetBalance

    lines(*asked_words(study))
    for account in study.get("accounts") or ():
        standing = parse_item(BudgetBalance, account)
        payment = f"; this study {account['payment']}" if account.get("payment") else ""
        lines(f"{account['account']}: {standing.left_words} left{payment}")
    for owner in study.get("owners") or ():
        by = " by its policy" if owner.get("decided_by") == "policy" else ""
        lines(f"{owner['owner']}: {owner['decision']}{by}")
    lines(f"State: {study['state']}")


def _owners_who(study: Mapping[str, Any], decision: str) -> str:
    return ", ".join(owner["owner"] for owner in study["owners"] if owner["decision"] == decision)
