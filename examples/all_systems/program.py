"""The command that runs every system and asks each a question."""

import typer

from examples.all_systems.demo import ask_all, running_federation_of_all
from examples.all_systems.view import show_all
from tacit.command.demo import Folder, KeepRunning, demo_folder, wait_until_interrupted
from tacit.command.demo_view import ScreenNarrator, sign_in_links, tell_where
from tacit.command.output import Json
from tacit.errors import ServiceError

STEPS = 7

app = typer.Typer(name="python -m examples.all_systems")


@app.command()
def demo(*, folder: Folder = None, keep_running: KeepRunning = False, as_json: Json = False) -> None:
    """Run five hospitals, two registers, a curator and a tester here, and ask a question of every system."""
    narrator = ScreenNarrator(STEPS, quiet=as_json)
    with demo_folder(folder) as (place, done):
        with running_federation_of_all(place, narrator) as (federation, alignment):
            found = ask_all(federation, alignment, narrator)
            done()
            links = sign_in_links(federation) if keep_running else {}
            show_all(found, links, as_json)
            if keep_running:
                if not as_json:
                    tell_where(federation, links, found.answers[0].study.digest)
                wait_until_interrupted(federation)
        without = [answer.question.system for answer in found.answers if answer.verdict.result is None]
        if without:
            raise ServiceError(f"no verdict on {', '.join(without)}; the logs in {place} say why")
