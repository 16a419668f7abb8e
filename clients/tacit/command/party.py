"""`tacit party`: who takes part."""
# ruff: noqa: PLC0415 (imports wait until a command runs, so that --help is quick)

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from tacit.command.connect import connecting
from tacit.command.output import PARTY_FILE, TESTER_FILE, Json, PartyFile, TesterFile

if TYPE_CHECKING:
    from tacit.client.answers import InvitationRecord, RevokedInvitations

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
    from tacit.command.output import lines, print_json
    from tacit.setup.configuration import TesterAddress, init_party
    from tacit.setup.keys import load_key

    file = init_party(folder, name, TesterAddress(tester_url.rstrip("/"), tester_key))
    key = load_key(folder / "party.pem").public_hex
    if as_json:
        print_json({"party": str(file), "name": name, "key": key})
        return
    lines(
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
    from tacit.command.connect import tester_client
    from tacit.command.output import lines, print_json, time_text

    with tester_client(config) as client:
        invitation = client.invite(checked_role(role), name)
    if as_json:
        print_json(invitation.model_dump())
        return
    lines(
        f"Invitation for {role} {name}, good once, until {time_text(invitation.expires_at)}:",
        f"  {invitation.invitation}",
        "Hand it over by a channel that you both trust.",
    )


@app.command("invitations")
@connecting
def invitations(config: TesterFile = TESTER_FILE, as_json: Json = False) -> None:
    """List all invitations ever made, and what became of each."""
    from tacit.command.connect import tester_client

    with tester_client(config) as client:
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
    from tacit.command.connect import tester_client
    from tacit.command.output import lines, print_json, time_text

    with tester_client(config) as client:
        if invitation:
            print_revoked_invitations(client.revoke_invitations(name), as_json)
            return
        party = client.revoke(name)
    if as_json:
        print_json(party.model_dump())
        return
    lines(
        f"Revoked at {time_text(party.revoked_at)}: {party.name} ({party.role}), key",
        f"  {party.key}",
        "Its studies that collected have ended, and so have those that waited for its release.",
        "Owners that list the key in their policy must take it out themselves.",
    )


def print_invitations(records: "list[InvitationRecord]", as_json: bool) -> None:
    """Print invitations as a service remembers them."""
    from tacit.command.output import print_json, table, time_text

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
    from tacit.command.output import lines, print_json

    if as_json:
        print_json(found.model_dump())
        return
    lines(f"Revoked {found.revoked} unused invitation(s) for {found.name}.")


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
    from tacit.command.connect import party_client
    from tacit.command.output import keys, print_json

    with party_client(party) as client:
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
    from tacit.command.connect import party_client
    from tacit.command.output import lines, print_json
    from tacit.setup.configuration import read_party

    name = read_party(party_file).name
    with party_client(party_file) as client:
        enrolled = client.enrol(invitation, name, checked_role(role))
    if as_json:
        print_json(enrolled.model_dump())
        return
    lines(f"{enrolled.name} is enrolled as {enrolled.role}.")


@app.command("login")
@connecting
def login(party: PartyFile = PARTY_FILE, as_json: Json = False) -> None:
    """Print a link that signs a browser in to the tester's pages, as this party: once."""
    from tacit.client.sign_in import party_door
    from tacit.command.connect import print_link

    print_link(party_door, party, as_json)


def checked_role(role: str) -> Role:
    """Return the role; raises InputError where there is none of that name."""
    from tacit.errors import InputError

    known: dict[str, Role] = {"owner": "owner", "analyst": "analyst", "curator": "curator"}
    if role not in known:
        raise InputError(f"--role must be one of {', '.join(known)}")
    return known[role]
