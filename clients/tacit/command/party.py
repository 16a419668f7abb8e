"""`tacit party` and `tacit tester`: who takes part, and running a tester."""

# ruff: noqa: PLC0415 (imports wait until a command runs, so that --help is quick)

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from tacit.command import connect
from tacit.command.connect import connecting
from tacit.command.output import (
    PARTY_FILE,
    TESTER_FILE,
    Json,
    PartyFile,
    TesterFile,
    answer,
    keys,
    print_json,
    table,
    time_text,
)
from tacit.errors import ConfigurationError, InputError

if TYPE_CHECKING:
    from tacit_protocol.messages.answers import InvitationRecord, RevokedInvitations

app = typer.Typer(name="party", help="Invite, enrol, list and revoke the parties.", no_args_is_help=True)

Role = Literal["owner", "analyst", "curator"]


@app.command("init")
def init(
    name: Annotated[str, typer.Option(help="Your name as an analyst.")],
    tester_url: Annotated[str, typer.Option(help="The tester's URL.")],
    tester_key: Annotated[str, typer.Option(help="The tester's public key, learned from its operator.")],
    folder: Annotated[Path, typer.Option(help="Where to write party.toml and the key.")] = Path("party"),
    as_json: Json = False,
) -> None:
    """Write a new analyst's key and party.toml."""
    from tacit.setup.configuration import TesterAddress, init_party
    from tacit.setup.keys import load_key

    file = init_party(folder, name, TesterAddress(tester_url.rstrip("/"), tester_key))
    key = load_key(folder / "party.pem").public_hex
    answer(
        as_json,
        {"party": str(file), "name": name, "key": key},
        f"Wrote {file} and its key. Your public key: {key}",
        "Next: ask the tester's operator for an invitation, then",
        f"  tacit party enrol --party {file} --invitation ...",
    )


@app.command("invite")
@connecting
def invite(
    role: Annotated[str, typer.Option(help="owner, analyst or curator.")],
    name: Annotated[str, typer.Option(help="The party's name.")],
    config: TesterFile = TESTER_FILE,
    as_json: Json = False,
) -> None:
    """Make a one-time invitation, on the tester's machine."""
    from tacit.setup.configuration import require_name

    require_name(name, "--name")
    with connect.tester_client(config) as client:
        invitation = client.invite(checked_role(role), name)
    answer(
        as_json,
        invitation.model_dump(),
        f"Invitation for {role} {name}, good once, until {time_text(invitation.expires_at)}:",
        f"  {invitation.invitation}",
        "Hand it over by a channel that you both trust.",
        *(["An analyst may enrol in a browser: the tester's address, /key behind it."] * (role == "analyst")),
    )


@app.command("invitations")
@connecting
def invitations(config: TesterFile = TESTER_FILE, as_json: Json = False) -> None:
    """List all invitations ever made, and what became of each."""
    with connect.tester_client(config) as client:
        print_invitations(client.invitations(), as_json)


@app.command("revoke")
@connecting
def revoke(
    name: Annotated[str, typer.Option(help="The party's name.")],
    invitation: Annotated[
        bool, typer.Option("--invitation", help="Its invitations that nobody used yet, and no key.")
    ] = False,
    config: TesterFile = TESTER_FILE,
    as_json: Json = False,
) -> None:
    """Revoke a party's key for good, or its unused invitations, on the tester's machine."""
    with connect.tester_client(config) as client:
        if invitation:
            print_revoked_invitations(client.revoke_invitations(name), as_json)
            return
        party = client.revoke(name)
    answer(
        as_json,
        party.model_dump(),
        f"Revoked at {time_text(party.revoked_at)}: {party.name} ({party.role}), key",
        f"  {party.key}",
        "Its studies that collected have ended, and so have those that waited for its release.",
        "Owners that list the key in their policy must take it out themselves.",
    )


def print_invitations(records: "list[InvitationRecord]", as_json: bool) -> None:
    """Print invitations as a service remembers them."""
    if as_json:
        print_json([record.model_dump() for record in records])
        return
    rows = [
        (record.name, record.role, record.state, time_text(record.revoked_at or record.expires_at))
        for record in sorted(records, key=lambda record: (record.name, record.expires_at))
    ]
    table(("Name", "Role", "State", "Until, or revoked at"), rows)


def print_revoked_invitations(found: "RevokedInvitations", as_json: bool) -> None:
    """Print how many invitations were revoked."""
    answer(as_json, found.model_dump(), f"Revoked {found.revoked} unused invitation(s) for {found.name}.")


@app.command("enrol")
@connecting
def enrol(
    invitation: Annotated[str, typer.Option(help="The invitation from the tester's operator.")],
    party: PartyFile = PARTY_FILE,
    as_json: Json = False,
) -> None:
    """Enrol as an analyst."""
    enrol_as("analyst", party, invitation, as_json)


@app.command("list")
@connecting
def list_parties(party: PartyFile = PARTY_FILE, as_json: Json = False) -> None:
    """List the parties that the tester knows."""
    with connect.party_client(party) as client:
        parties = client.parties()
    if as_json:
        print_json([enrolled.model_dump() for enrolled in parties])
        return
    keys(
        (
            f"{enrolled.name} ({enrolled.role}{'' if enrolled.revoked_at is None else ', revoked'})",
            enrolled.key,
        )
        for enrolled in parties
    )


def enrol_as(role: str, party_file: Path, invitation: str, as_json: bool) -> None:
    """Enrol the party that a file describes."""
    from tacit.setup.configuration import read_party

    name = read_party(party_file).name
    with connect.party_client(party_file) as client:
        enrolled = client.enrol(invitation, name, checked_role(role))
    answer(as_json, enrolled.model_dump(), f"{enrolled.name} is enrolled as {enrolled.role}.")


@app.command("login")
@connecting
def login(user: connect.ForUser = None, party: PartyFile = PARTY_FILE, as_json: Json = False) -> None:
    """Print a link that signs a browser in to the tester's pages, as this party: once."""
    from tacit.client.sign_in import party_door

    connect.print_link(party_door, party, user, as_json)


app.add_typer(connect.users_app("party_door", PartyFile, PARTY_FILE))


def checked_role(role: str) -> Role:
    """Return the role; raises InputError where there is none of that name."""
    known: dict[str, Role] = {"owner": "owner", "analyst": "analyst", "curator": "curator"}
    if role not in known:
        raise InputError(f"--role must be one of {', '.join(known)}")
    return known[role]


tester_app = typer.Typer(name="tester", help="Set up and run a tester.", no_args_is_help=True)


@tester_app.command("init")
def make_tester(
    *,
    folder: Annotated[Path, typer.Option(help="Where to write tester.toml and the key.")] = Path("tester"),
    name: Annotated[str, typer.Option(help="The tester's name.")] = "tester",
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on.", min=1, max=65535)] = 8400,
    url: Annotated[str | None, typer.Option(help="Public URL; by default made of host and port.")] = None,
    as_json: Json = False,
) -> None:
    """Write a new tester's key and tester.toml."""
    from tacit.setup.configuration import init_tester
    from tacit.setup.keys import load_key

    file = init_tester(folder, name, host, port, url)
    key = load_key(folder / "tester.pem").public_hex
    answer(
        as_json,
        {"config": str(file), "name": name, "key": key, "url": url or f"http://{host}:{port}"},
        f"Wrote {file} and its key.",
        f"Public key, for owners and analysts to pin: {key}",
        f"Next: tacit tester serve --config {file}",
    )


@tester_app.command("serve")
def serve(config: TesterFile = TESTER_FILE) -> None:
    """Run a tester. It stops at Ctrl-C or SIGTERM."""
    connect.become("tester", config)


@tester_app.command("work")
def work(config: TesterFile = TESTER_FILE) -> None:
    """Compute a tester's verdicts, beside the processes that serve. It stops at Ctrl-C or SIGTERM."""
    connect.become("tester", config, "work")


@tester_app.command("archive")
def archive(
    *,
    to: Annotated[Path, typer.Option(help="The archive's folder.")],
    before: Annotated[
        str | None, typer.Option(help="Studies that ended before this day, as 2026-01-31.")
    ] = None,
    older_than: Annotated[float | None, typer.Option(help="Or: studies that ended so many days ago.")] = None,
    state: Annotated[
        list[str] | None, typer.Option(help="Only completed, incomplete or cancelled ones; may be repeated.")
    ] = None,
    delete: Annotated[
        bool, typer.Option("--delete", help="Delete from the database what is durable and verified.")
    ] = False,
    config: TesterFile = TESTER_FILE,
) -> None:
    """Write ended studies to a folder, as files that `tacit study verify` reads."""
    if (before is None) == (older_than is None):
        raise ConfigurationError("say which studies: give either --before or --older-than")
    age = ["--before", str(before)] if older_than is None else ["--older-than", f"{older_than:g}"]
    states = [word for name in state or () for word in ("--state", name)]
    connect.become(
        "tester", config, "archive", [*age, "--to", str(to), *states, *(["--delete"] if delete else [])]
    )


@tester_app.command("verify-archive")
def verify_archive(
    archive: Annotated[Path, typer.Option(help="The archive's folder.")],
    tester_key: Annotated[
        list[str] | None, typer.Option(help="The tester's public key; may be repeated, after a rotation.")
    ] = None,
) -> None:
    """Check a whole archive: its index, every file and every signature. Needs no tester."""
    keys = [word for key in tester_key or () for word in ("--tester-key", key)]
    connect.become("tester", None, "verify-archive", ["--archive", str(archive), *keys])


@tester_app.command("login")
@connecting
def sign_in_to_tester(
    user: connect.ForUser = None, config: TesterFile = TESTER_FILE, as_json: Json = False
) -> None:
    """Print a link that signs a browser in to the tester's pages, as its operator: once."""
    from tacit.client.sign_in import tester_door

    connect.print_link(tester_door, config, user, as_json)


tester_app.add_typer(connect.users_app("tester_door", TesterFile, TESTER_FILE))
