"""`tacit demo`: a whole federation on this machine, on real data."""
# ruff: noqa: PLC0415 (imports wait until a command runs, so that --help is quick)

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tacit.command.output import Json

if TYPE_CHECKING:
    from tacit.setup.federation import LocalFederation

FOLDER = Path("demo-federation")
TERMINATED = 143
"""Exit code of a process ended by SIGTERM."""


Folder = Annotated[Path | None, typer.Option(help="Where to leave the federation's files; must be new.")]
KeepRunning = Annotated[bool, typer.Option(help="Leave it running until Ctrl-C.")]


def demo(
    *,
    folder: Folder = None,
    epsilon: Annotated[float, typer.Option(help="What every hospital spends.", min=1e-3, max=30)] = 1.0,
    delta: Annotated[float, typer.Option(help="What every hospital spends.", min=1e-9, max=0.01)] = 1e-5,
    keep_running: KeepRunning = False,
    as_json: Json = False,
) -> None:
    """Run four hospitals here, who ask without sharing a row whether their patients are alike."""
    from tacit.command.demo_view import (
        ONE_STUDY_STEPS,
        ScreenNarrator,
        show_outcome,
        sign_in_links,
        tell_where,
    )
    from tacit.demo.hospitals import ask, running_federation
    from tacit.errors import ServiceError

    narrator = ScreenNarrator(ONE_STUDY_STEPS, quiet=as_json)
    with demo_folder(folder) as (place, done):
        with running_federation(place, epsilon, delta, narrator) as federation:
            outcome = ask(federation, place, epsilon, delta, narrator)
            done()
            show_outcome(outcome, place, as_json)
            if keep_running:
                if not as_json:
                    tell_where(federation, sign_in_links(federation), outcome.digest)
                wait_until_interrupted(federation)
        if outcome.verdict.result is None:
            raise ServiceError(f"the demo has no verdict; the logs in {place} say why")


@contextmanager
def demo_folder(folder: Path | None) -> Iterator[tuple[Path, Callable[[], None]]]:
    """Yield a demo's new folder, and what to call once its files are whole: an earlier end removes them."""
    import signal

    # SIGTERM unwinds like Ctrl-C, so that no service is left behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(TERMINATED))
    with _kept_when_done(_new_folder(folder)) as made:
        yield made


def _new_folder(folder: Path | None) -> Path:
    from datetime import UTC, datetime

    from tacit.errors import InputError

    place = folder or FOLDER / datetime.now(UTC).strftime("%Y-%m-%d-%H%M%S-%f")
    if place.exists() and (not place.is_dir() or any(place.iterdir())):
        raise InputError(f"{place} exists already and is not empty: name another folder with --folder")
    return place.resolve()


@contextmanager
def _kept_when_done(place: Path) -> Iterator[tuple[Path, Callable[[], None]]]:
    """Give the folder, and what to call once its files are whole; an ending before that removes them."""
    from tacit.errors import ServiceError

    existing = next(parent for parent in (place, *place.parents) if parent.exists())
    finished: list[bool] = []
    try:
        yield place, lambda: finished.append(True)
    except ServiceError as error:
        raise error if finished else ServiceError(f"{error}\n{place} was removed again") from error
    finally:
        if not finished:
            _remove(place, existing)


def _remove(place: Path, existing: Path) -> None:
    """Remove what the demo has made: everything in ``place``, and folders up to ``existing``."""
    import shutil

    from tacit.setup.processes import interruptions_deferred

    with interruptions_deferred():
        if place == existing:
            for path in place.iterdir():
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            return
        shutil.rmtree(place, ignore_errors=True)
        for parent in place.parents:
            if parent == existing or any(parent.iterdir()):
                return
            parent.rmdir()


def wait_until_interrupted(federation: "LocalFederation") -> None:
    """Leave a federation running until Ctrl-C, or until one of its services ends."""
    import time

    while True:
        federation.check_running()
        time.sleep(1.0)
