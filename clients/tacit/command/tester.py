"""`tacit tester`: set up and run a tester."""
# ruff: noqa: PLC0415 (imports wait until a command runs, so that --help is quick)

from pathlib import Path
from typing import Annotated

import typer

from tacit.command.connect import connecting
from tacit.command.output import TESTER_FILE, Json, TesterFile

app = typer.Typer(name="tester", help="Set up and run a tester.", no_args_is_help=True)


@app.command("init")
def init(
    *,
    folder: Annotated[Path, typer.Option(help="Where to write tester.toml and the key.")] = Path("tester"),
    name: Annotated[str, typer.Option(help="The tester's name.")] = "tester",
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on.", min=1, max=65535)] = 8400,
    url: Annotated[str | None, typer.Option(help="Public URL; by default made of host and port.")] = None,
    as_json: Json = False,
) -> None:
    """Write a new tester's key and tester.toml."""
    from tacit.command.output import lines, print_json
    from tacit.setup.configuration import init_tester
    from tacit.setup.keys import load_key

    file = init_tester(folder, name, host, port, url)
    key = load_key(folder / "tester.pem").public_hex
    if as_json:
        print_json({"config": str(file), "name": name, "key": key, "url": url or f"http://{host}:{port}"})
        return
    lines(
        f"Wrote {file} and its key.",
        f"Public key, for owners and analysts to pin: {key}",
        f"Next: tacit tester serve --config {file}",
    )


@app.command("serve")
def serve(config: TesterFile = TESTER_FILE) -> None:
    """Run a tester. It stops at Ctrl-C or SIGTERM."""
    from tacit.command.connect import become

    become("tester", config)


@app.command("work")
def work(config: TesterFile = TESTER_FILE) -> None:
    """Compute a tester's verdicts, beside the processes that serve. It stops at Ctrl-C or SIGTERM."""
    from tacit.command.connect import become

    become("tester", config, "work")


@app.command("archive")
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
    from tacit.command.connect import become
    from tacit.errors import ConfigurationError

    if (before is None) == (older_than is None):
        raise ConfigurationError("say which studies: give either --before or --older-than")
    age = ["--before", str(before)] if older_than is None else ["--older-than", f"{older_than:g}"]
    states = [word for name in state or () for word in ("--state", name)]
    become("tester", config, "archive", [*age, "--to", str(to), *states, *(["--delete"] if delete else [])])


@app.command("verify-archive")
def verify_archive(
    archive: Annotated[Path, typer.Option(help="The archive's folder.")],
    tester_key: Annotated[
        list[str] | None, typer.Option(help="The tester's public key; may be repeated, after a rotation.")
    ] = None,
) -> None:
    """Check a whole archive: its index, every file and every signature. Needs no tester."""
    from tacit.command.connect import become

    keys = [word for key in tester_key or () for word in ("--tester-key", key)]
    become("tester", None, "verify-archive", ["--archive", str(archive), *keys])


@app.command("login")
@connecting
def login(config: TesterFile = TESTER_FILE, as_json: Json = False) -> None:
    """Print a link that signs a browser in to the tester's pages, as its operator: once."""
    from tacit.client.sign_in import tester_door
    from tacit.command.connect import print_link

    print_link(tester_door, config, as_json)
