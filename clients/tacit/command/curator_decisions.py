"""`tacit curator`, for owners: what is asked of one's data, yes or no, and what was spent."""
# ruff: noqa: PLC0415 (imports wait until a command runs, so that --help is quick)

from typing import TYPE_CHECKING, Annotated

import typer

from tacit.command.connect import connecting
from tacit.command.curator_owner import AsOperator, client_of
from tacit.command.output import OWNER_FILE, Json, OwnerFile

if TYPE_CHECKING:
    from tacit.curator_client import CuratorClient

Digest = Annotated[str, typer.Argument(help="The study's digest, or its beginning.")]


def add_decision_commands(app: typer.Typer) -> None:
    """Add these commands to `tacit curator`."""
    for verb, command in (
        ("studies", studies),
        ("study", study),
        ("approve", approve),
        ("decline", decline),
        ("ledger", ledger),
        ("verify-ledger", verify_ledger),
    ):
        app.command(verb)(connecting(command))


def studies(
    state: Annotated[str | None, typer.Option(help="Only studies in this state.")] = None,
    owner: OwnerFile = OWNER_FILE,
    config: AsOperator = None,
    as_json: Json = False,
) -> None:
    """List what is asked of your data sets at the curator."""
    from tacit.command.curator_view import print_studies
    from tacit.command.output import print_json

    with client_of(owner, config) as client:
        listed = client.studies(state)
    if as_json:
        print_json(listed)
        return
    print_studies(listed)


def study(
    digest: Digest, owner: OwnerFile = OWNER_FILE, config: AsOperator = None, as_json: Json = False
) -> None:
    """Show a study: what it asks, in plain words, what it costs, and who has approved."""
    from tacit.command.curator_view import print_study
    from tacit.command.output import print_json

    with client_of(owner, config) as client:
        found = client.study(_whole(client, digest))
    if as_json:
        print_json(found)
        return
    print_study(found)


def approve(digest: Digest, owner: OwnerFile = OWNER_FILE, as_json: Json = False) -> None:
    """Approve a study for your data sets. It runs, and spends, once every owner has approved."""
    from tacit.command.connect import owner_client
    from tacit.command.curator_view import print_study
    from tacit.command.output import lines, print_json

    with owner_client(owner) as client:
        whole = _whole(client, digest)
        if not as_json:
            print_study(client.study(whole))
        answer = client.approve(whole)
    if as_json:
        print_json(answer)
        return
    lines(f"Approved {whole[:12]}.")


def decline(
    digest: Digest,
    reason: Annotated[str | None, typer.Option(help="A note for the curator's records; never sent.")] = None,
    owner: OwnerFile = OWNER_FILE,
    as_json: Json = False,
) -> None:
    """Decline a study, which then ends without a verdict: the tester learns nothing else."""
    from tacit.command.connect import owner_client
    from tacit.command.output import lines, print_json

    with owner_client(owner) as client:
        whole = _whole(client, digest)
        answer = client.decline(whole, reason)
    if as_json:
        print_json(answer)
        return
    lines(f"Declined {whole[:12]}. Nothing was spent.")


def ledger(
    data_set: Annotated[str | None, typer.Option(help="Only this data set.")] = None,
    owner: OwnerFile = OWNER_FILE,
    config: AsOperator = None,
    as_json: Json = False,
) -> None:
    """Show what was spent of your accounts at the curator, when, on which study."""
    from tacit.command.ledger import print_entries
    from tacit.command.output import print_json

    with client_of(owner, config) as client:
        entries = client.ledger(data_set)
    if as_json:
        print_json(entries)
        return
    print_entries(entries)


def verify_ledger(
    kept: Annotated[
        list[str] | None, typer.Option(help="A head hash that was kept elsewhere: it must still be there.")
    ] = None,
    owner: OwnerFile = OWNER_FILE,
    config: AsOperator = None,
    as_json: Json = False,
) -> None:
    """Have the curator check the ledger of your accounts. Exit code 1 where it is damaged."""
    from tacit.command.ledger import checked_hashes, print_verification
    from tacit.command.output import print_json

    hashes = checked_hashes(kept or [])
    with client_of(owner, config) as client:
        report = client.verify_ledger(hashes)
    if as_json:
        print_json(report)
    else:
        print_verification(report)
    if not report["ok"]:
        raise typer.Exit(1)


def _whole(client: "CuratorClient", beginning: str) -> str:
    from tacit.command.connect import DIGEST_LENGTH, whole_digest

    known = [] if len(beginning) == DIGEST_LENGTH else [str(study["digest"]) for study in client.studies()]
    return whole_digest(beginning, known)
