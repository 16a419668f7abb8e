"""`tacit agent`: set up and run an owner's agent, and decide what it may take part in."""
# ruff: noqa: PLC0415 (imports wait until a command runs, so that --help is quick)

from pathlib import Path
from typing import Annotated, Any

import typer

from tacit.command.connect import connecting
from tacit.command.output import AGENT_FILE, AgentFile, Json

app = typer.Typer(name="agent", help="Set up and run an owner's agent; decide.", no_args_is_help=True)

WAITING = "waiting-for-approval"

Digest = Annotated[str, typer.Argument(help="The study's digest, or its beginning.")]


@app.command("init")
def init(
    *,
    name: Annotated[str, typer.Option(help="The owner's name.")],
    tester_url: Annotated[str, typer.Option(help="The tester's URL.")],
    tester_key: Annotated[str, typer.Option(help="The tester's public key, learned from its operator.")],
    data_set: Annotated[str, typer.Option(help="The data set's name.")],
    source: Annotated[
        str, typer.Option(help="A .csv or .parquet file, a folder of .parquet files, or a database URL.")
    ],
    epsilon: Annotated[float, typer.Option(help="Most epsilon ever spent on the data set.")],
    delta: Annotated[float, typer.Option(help="Most delta ever spent on the data set.")],
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
    folder: Annotated[Path, typer.Option(help="Where to write the files.")] = Path("agent"),
    host: Annotated[str, typer.Option(help="Address of the local page.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port of the local page.", min=1, max=65535)] = 8710,
    as_json: Json = False,
) -> None:
    """Write a new agent's key, agent.toml and policy.toml."""
    from tacit.command.output import lines, print_json
    from tacit.errors import InputError
    from tacit.setup.configuration import DataSetSetup, PolicySetup, TesterAddress, init_agent
    from tacit.setup.keys import load_key

    if approval not in {"by-hand", "automatic"}:
        raise InputError("--approval must be by-hand or automatic")
    path = source if "://" in source else str(Path(source).resolve())
    policy = PolicySetup(
        approval=approval,
        epsilon_per_study_max=epsilon_per_study,
        delta_per_study_max=delta_per_study,
        units_min=units_min,
        columns=column or [],
        **({"procedures": procedure} if procedure else {}),
    )
    file = init_agent(
        folder,
        name,
        TesterAddress(tester_url.rstrip("/"), tester_key),
        DataSetSetup(data_set, path, epsilon, delta, unit_column, query, pure_share),
        policy,
        host=host,
        port=port,
    )
    key = load_key(folder / "agent.pem").public_hex
    if as_json:
        print_json({"config": str(file), "name": name, "key": key})
        return
    lines(
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
    from tacit.command.connect import become

    become("agent", config)


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
def login(config: AgentFile = AGENT_FILE, as_json: Json = False) -> None:
    """Print a link that signs a browser in to the agent's pages: once, within five minutes."""
    from tacit.client.sign_in import agent_door
    from tacit.command.connect import print_link

    print_link(agent_door, config, as_json)


@app.command("status")
def status(config: AgentFile = AGENT_FILE, as_json: Json = False) -> None:
    """Show the data sets, what is left of their budgets, and the studies by state."""
    from tacit.client.answers import Standing, parse_item
    from tacit.command.connect import agent_client
    from tacit.command.output import epsilon_text, lines, print_json, table

    with agent_client(config) as client:
        found = client.status()
    if as_json:
        print_json(found)
        return
    lines(f"{found['party']['name']}, tester {found['tester']['url']}")
    table(
        ("Data set", "Units", "Epsilon cap", "Epsilon spent", "Epsilon left"),
        [
            (
                data_set["name"],
                data_set["units"] or "not read yet",
                epsilon_text(data_set["epsilon_cap_micro"]),
                standing.spent_words,
                standing.left_words,
            )
            for data_set in found["data_sets"]
            for standing in [parse_item(Standing, data_set)]
        ],
    )
    counts = ", ".join(f"{count} {state}" for state, count in found["studies"].items() if count)
    lines(f"Studies: {counts or 'none'}")


@app.command("inbox")
def inbox(
    state: Annotated[str | None, typer.Option(help="Only studies in this state.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Also studies that are decided.")] = False,
    config: AgentFile = AGENT_FILE,
    as_json: Json = False,
) -> None:
    """List what is asked of this owner, and waits for a decision."""
    from tacit.command.connect import agent_client
    from tacit.command.output import epsilon_text, print_json, table, time_text

    with agent_client(config) as client:
        studies = client.studies(state or (None if every else WAITING))
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
                study["numbers_released"] or "",
                time_text(study["deadline"]),
            )
            for study in studies
        ],
    )


@app.command("reuses")
def reuses(digest: Digest, config: AgentFile = AGENT_FILE, as_json: Json = False) -> None:
    """Ask the tester which later studies read this owner's release again. They cost nothing."""
    from tacit.command.connect import agent_client, whole_digest
    from tacit.command.output import lines, print_json

    with agent_client(config) as client:
        whole = whole_digest(digest, [study["digest"] for study in client.studies()])
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
    from tacit.command.output import lines, print_json
    from tacit.setup.configuration import read_toml, text_field
    from tacit.setup.keys import load_key
    from tacit_protocol.signing.sealing import certify

    found = certify(load_key(config.parent / text_field(read_toml(config), "key_file", config)))
    if as_json:
        print_json(found.model_dump(mode="json"))
        return
    lines(
        "Give this to the analyst, for this owner's part of the draft:",
        f'  sealing = {{ key = "{found.key}", signature = "{found.signature}" }}',
    )


@app.command("result")
def result(digest: Digest, config: AgentFile = AGENT_FILE, as_json: Json = False) -> None:
    """Show what this agent found with another owner's release. It is not private for this owner's data."""
    from tacit.client.agent import finding_result
    from tacit.command.connect import agent_client, whole_digest
    from tacit.command.output import lines, print_json
    from tacit.command.result_view import print_result

    with agent_client(config) as client:
        found = client.finding(whole_digest(digest, [study["digest"] for study in client.studies()]))
    if as_json:
        print_json(found["finding"])
        return
    print_result(finding_result(found))
    lines(
        "Keep this here: it is private for the other owner's data, and exact in this owner's. "
        "What the receiver spent is in its ledger.",
    )


@app.command("approve")
def approve(digest: Digest, config: AgentFile = AGENT_FILE, as_json: Json = False) -> None:
    """Approve a study: its budget is spent and the release is sent."""
    from tacit.command.connect import agent_client, whole_digest
    from tacit.command.output import lines, print_json

    with agent_client(config) as client:
        whole = whole_digest(digest, [study["digest"] for study in client.studies()])
        asked = client.study(whole)
        if not as_json and asked["state"] == WAITING:
            lines(*_in_words(asked))
        answer = client.approve(whole)
    if as_json:
        print_json(answer)
        return
    lines(f"Approved {whole[:12]}.")


@app.command("decline")
def decline(
    digest: Digest,
    reason: Annotated[str | None, typer.Option(help="A note for your own records; never sent.")] = None,
    config: AgentFile = AGENT_FILE,
    as_json: Json = False,
) -> None:
    """Decline a study: the tester learns that you declined, and nothing else."""
    from tacit.command.connect import agent_client, whole_digest
    from tacit.command.output import lines, print_json

    with agent_client(config) as client:
        whole = whole_digest(digest, [study["digest"] for study in client.studies()])
        answer = client.decline(whole, reason)
    if as_json:
        print_json(answer)
        return
    lines(f"Declined {whole[:12]}. Nothing was spent.")


def _in_words(study: dict[str, Any]) -> list[str]:
    words = study.get("plain_words") or ""
    listed = [words] if isinstance(words, str) else [str(line) for line in words]
    return [*listed, *(f"Warning: {warning}" for warning in study.get("warnings") or ())]
