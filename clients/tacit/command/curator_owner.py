"""`tacit curator`, for owners: hand data to a curator, and take it back."""
# ruff: noqa: PLC0415 (imports wait until a command runs, so that --help is quick)

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tacit.command.connect import connecting
from tacit.command.output import OWNER_FILE, Json, OwnerFile

if TYPE_CHECKING:
    from tacit.curator_client import CuratorClient

DataSet = Annotated[str, typer.Option(help="The data set's name.")]
AsOperator = Annotated[
    Path | None, typer.Option("--config", help="The curator's curator.toml, where its operator asks.")
]


def add_data_commands(app: typer.Typer) -> None:
    """Add these commands to `tacit curator`."""
    app.command("owner-init")(owner_init)
    for verb, command in (
        ("enrol", enrol),
        ("register", register),
        ("upload", upload),
        ("data-sets", data_sets),
        ("delete", delete),
    ):
        app.command(verb)(connecting(command))


def owner_init(
    *,
    name: Annotated[str, typer.Option(help="The owner's name.")],
    curator_url: Annotated[str, typer.Option(help="The curator's URL.")],
    curator_key: Annotated[str, typer.Option(help="The curator's public key, learned from its operator.")],
    folder: Annotated[Path, typer.Option(help="Where to write owner.toml and the key.")] = Path("owner"),
    as_json: Json = False,
) -> None:
    """Write a new owner's key and owner.toml, for an owner that hands its data to a curator."""
    from tacit.command.output import lines, print_json
    from tacit.curator_configuration import CuratorAddress, init_owner
    from tacit.keys import load_key

    file = init_owner(folder, name, CuratorAddress(curator_url.rstrip("/"), curator_key))
    key = load_key(folder / "owner.pem").public_hex
    if as_json:
        print_json({"owner": str(file), "name": name, "key": key})
        return
    lines(
        f"Wrote {file} and its key. Your public key: {key}",
        "Next: ask the curator's operator for an invitation, then",
        f"  tacit curator enrol --owner {file} --invitation ...",
    )


def enrol(
    invitation: Annotated[str, typer.Option(help="The invitation from the curator's operator.")],
    owner: OwnerFile = OWNER_FILE,
    as_json: Json = False,
) -> None:
    """Enrol as an owner at the curator that owner.toml names."""
    from tacit.command.connect import owner_client
    from tacit.command.output import lines, print_json

    with owner_client(owner) as client:
        enrolled = client.enrol(invitation)
    if as_json:
        print_json(enrolled.model_dump())
        return
    lines(f"{enrolled.name} is enrolled at the curator.")


def register(
    file: Annotated[Path, typer.Option(help="The data set's description, in TOML.")],
    owner: OwnerFile = OWNER_FILE,
    as_json: Json = False,
) -> None:
    """Register a data set, or change its caps and its policy. No row is sent."""
    from tacit.command.connect import owner_client
    from tacit.command.curator_view import data_set_fields
    from tacit.command.output import delta_text, epsilon_text, lines, print_json
    from tacit.data_set import DataSetDescription

    description = DataSetDescription.from_toml(file)
    with owner_client(owner) as client:
        held = client.register(description)
    if as_json:
        print_json(data_set_fields(held))
        return
    spend = f"epsilon {epsilon_text(held.epsilon_cap_micro)}, delta {delta_text(held.delta_cap_pico)}"
    lines(
        f"Registered {held.account}: {len(held.columns)} columns; studies may spend {spend} in all.",
        *(() if held.ready else (f"Next: tacit curator upload FILE --data-set {held.name}",)),
    )


def upload(
    file: Annotated[Path, typer.Argument(help="The rows: a .csv or .parquet file.")],
    data_set: DataSet,
    owner: OwnerFile = OWNER_FILE,
    as_json: Json = False,
) -> None:
    """Send a data set's rows; they replace those that were there. Read while sent, in constant memory."""
    from tacit.command.connect import owner_client
    from tacit.command.curator_view import data_set_fields
    from tacit.command.output import lines, print_json, upload_progress
    from tacit.data_set import upload_of

    size_bytes = upload_of(file).size_bytes
    with owner_client(owner) as client, upload_progress(file.name, size_bytes, quiet=as_json) as report:
        held = client.upload(data_set, file, report)
    if as_json:
        print_json(data_set_fields(held))
        return
    counts = "" if held.rows is None else f": {held.rows} rows, {held.units} units"
    lines(f"{held.account} holds {file.name} now{counts}.")


def data_sets(owner: OwnerFile = OWNER_FILE, config: AsOperator = None, as_json: Json = False) -> None:
    """List your data sets at the curator, and what is left of their budgets."""
    from tacit.command.curator_view import data_set_fields, print_data_sets
    from tacit.command.output import print_json

    with client_of(owner, config) as client:
        held = client.data_sets()
    if as_json:
        print_json([data_set_fields(data_set) for data_set in held])
        return
    print_data_sets(held)


def delete(
    data_set: DataSet,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    owner: OwnerFile = OWNER_FILE,
    config: AsOperator = None,
    as_json: Json = False,
) -> None:
    """Delete a data set's rows at the curator for good. What was spent on it stays in the ledger."""
    from tacit.command.output import lines, print_json
    from tacit.errors import InputError
    from tacit_protocol.terminal import printable

    asked = f"Delete the rows of {printable(data_set)} at the curator?"
    if not yes and (as_json or not typer.confirm(asked)):
        raise InputError("nothing was deleted: say --yes")
    with client_of(owner, config) as client:
        client.delete(data_set)
    if as_json:
        print_json({"data_set": data_set, "deleted": True})
        return
    lines(f"The curator has deleted the rows of {data_set}.")


def client_of(owner: Path, config: Path | None) -> "CuratorClient":
    """Return the operator's client where a curator.toml is named, otherwise the owner's."""
    from tacit.command.connect import operator_client, owner_client

    return owner_client(owner) if config is None else operator_client(config)
