"""`tacit data`: look at an agent's data, on the owner's machine alone."""
# ruff: noqa: PLC0415 (imports wait until a command runs, so that --help is quick)

import typer

from tacit.command import align
from tacit.command.output import AGENT_FILE, AgentFile, Json

app = typer.Typer(name="data", help="Check an agent's data, locally.", no_args_is_help=True)
app.add_typer(align.app)


@app.command("check")
def check(config: AgentFile = AGENT_FILE, as_json: Json = False) -> None:
    """Read configuration, policy and data as the agent would; nothing leaves this machine."""
    from tacit.command.output import lines, print_json
    from tacit.doctor import run_agent_check

    found = run_agent_check(config)
    if as_json:
        print_json(found.report)
    else:
        lines(found.text)
    if not found.passed:
        raise typer.Exit(1)
