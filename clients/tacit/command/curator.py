"""`tacit curator`: set up and run a curator; its owners' commands are in curator_owner."""
# ruff: noqa: PLC0415 (imports wait until a command runs, so that --help is quick)

from pathlib import Path
from typing import Annotated

import typer

from tacit.command.connect import connecting
from tacit.command.curator_decisions import add_decision_commands
from tacit.command.curator_owner import add_data_commands
from tacit.command.output import CURATOR_FILE, CuratorFile, Json

app = typer.Typer(
    name="curator",
    help="Run a curator, or hand data to one and decide on studies.",
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
    from tacit.command.output import lines, print_json
    from tacit.configuration import TesterAddress
    from tacit.curator_configuration import init_curator
    from tacit.keys import load_key

    tester = TesterAddress(tester_url.rstrip("/"), tester_key)
    file = init_curator(folder, name, tester, host=host, port=port, url=url)
    key = load_key(folder / "curator.pem").public_hex
    if as_json:
        print_json({"config": str(file), "name": name, "key": key, "url": url or f"http://{host}:{port}"})
        return
    lines(
        f"Wrote {file}, the curator's key and {folder / 'storage.key'}, which encrypts the owners' rows.",
        "Keep a copy of the storage key in another place: without it the rows are lost.",
        f"Public key, for owners and analysts to pin: {key}",
        "Next: ask the tester's operator for an invitation, then",
        f"  tacit curator join --config {file} --invitation ...",
        f"  tacit curator serve --config {file}",
    )


@app.command("serve")
def serve(config: CuratorFile = CURATOR_FILE) -> None:
    """Run a curator. It stops at Ctrl-C or SIGTERM."""
    from tacit.command.services import become

    become("curator", config)


@app.command("join")
@connecting
def join(
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
    from tacit.command.connect import operator_client
    from tacit.command.output import lines, print_json, time_text

    with operator_client(config) as client:
        invitation = client.invite(name)
    if as_json:
        print_json(invitation.model_dump())
        return
    lines(
        f"Invitation for owner {name}, good once, until {time_text(invitation.expires_at)}:",
        f"  {invitation.invitation}",
        "Hand it over by a channel that you both trust.",
    )


@app.command("invitations")
@connecting
def invitations(config: CuratorFile = CURATOR_FILE, as_json: Json = False) -> None:
    """List all invitations ever made, and what became of each."""
    from tacit.command.connect import operator_client
    from tacit.command.party import print_invitations

    with operator_client(config) as client:
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
    from tacit.command.connect import operator_client
    from tacit.command.output import lines, print_json, time_text
    from tacit.command.party import print_revoked_invitations

    with operator_client(config) as client:
        if invitation:
            print_revoked_invitations(client.revoke_invitations(name), as_json)
            return
        owner = client.revoke(name)
    if as_json:
        print_json(owner.model_dump())
        return
    lines(
        f"Revoked at {time_text(owner.revoked_at)}: {owner.name}, key",
        f"  {owner.key}",
        "No study is answered from its data sets any more. Its rows and its ledger stay.",
    )


@app.command("owners")
@connecting
def owners(config: CuratorFile = CURATOR_FILE, as_json: Json = False) -> None:
    """List the owners and their keys, which a study's draft names."""
    from tacit.command.connect import operator_client
    from tacit.command.output import keys, print_json

    with operator_client(config) as client:
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

    from tacit.command.connect import operator_client
    from tacit.command.curator_view import data_set_fields, print_data_sets
    from tacit.command.output import lines, print_json

    with operator_client(config) as client:
        identity, owners, data_sets = client.identity(), client.owners(), client.data_sets()
        counts = Counter(str(study.get("state")) for study in client.studies())
    if as_json:
        print_json(
            {
                "curator": identity.model_dump(),
                "owners": [owner.model_dump() for owner in owners],
                "data_sets": [data_set_fields(data_set) for data_set in data_sets],
                "studies": dict(counts),
            }
        )
        return
    lines(f"{identity.name} ({identity.software}), {len(owners)} owners")
    print_data_sets(data_sets)
    lines("Studies: " + (", ".join(f"{count} {state}" for state, count in counts.items()) or "none"))


@app.command("login")
@connecting
def login(
    owner: Annotated[Path | None, typer.Option(help="Your owner.toml, where you are an owner.")] = None,
    config: CuratorFile = CURATOR_FILE,
    as_json: Json = False,
) -> None:
    """Print a link that signs a browser in to the curator's pages, as its operator or an owner: once."""
    from tacit.command.login import print_link
    from tacit.sign_in import curator_door, curator_owner_door

    if owner is None:
        print_link(curator_door, config, as_json)
    else:
        print_link(curator_owner_door, owner, as_json)


add_data_commands(app)
add_decision_commands(app)
