"""Random histories of a simulation: what those of agents and those of a curator have in common."""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from long_runs import LONG
from simulation import Fault, Simulation

FAULTS = st.lists(st.sampled_from(["ok", "ok", "request lost", "answer lost", "twice", "late"]), max_size=6)


class Histories(RuleBasedStateMachine):
    """The operations and faults of a history; the invariants are the simulation's."""

    kind: type[Simulation]
    templates: Path
    folders: Path
    simulation: Any

    def start(self, seed: int) -> None:
        """Make the simulation; the first operation of every history."""
        self.folder = Path(tempfile.mkdtemp(dir=self.folders))
        self.simulation = self.kind(self.folder, self.templates, seed)

    def with_faults(self, faults: list[Fault], work: Callable[..., object], *given: Any) -> None:
        """Do something while these faults befall its messages."""
        self.simulation.network.faults.extend(faults)
        work(*given)
        self.simulation.network.faults.clear()

    def study(self, index: int) -> str:
        names = sorted(self.simulation.studies)
        return names[index % len(names)]

    @rule(index=st.integers(0, 5), approve=st.booleans())
    def decide(self, index: int, approve: bool) -> None:
        self.simulation.decide(self.study(index), approve)

    @rule()
    def work_at_tester(self) -> None:
        self.simulation.work_at_tester()

    @rule(index=st.integers(0, 20))
    @precondition(lambda self: self.simulation.network.late)
    def deliver_late(self, index: int) -> None:
        self.simulation.deliver_late(index)

    @rule(pass_s=st.integers(1, 3600))
    def time_passes(self, pass_s: int) -> None:
        self.simulation.now += pass_s

    @rule()
    def restart_tester(self) -> None:
        self.simulation.restart_tester()

    @invariant()
    def holds(self) -> None:
        if hasattr(self, "simulation"):
            self.simulation.check()

    def teardown(self) -> None:
        if not hasattr(self, "simulation"):
            return
        try:
            self.simulation.heal()
        finally:
            self.simulation.close()
            shutil.rmtree(self.folder)


@contextmanager
def databases_of(machine: type[Histories], tmp_path: Path) -> Iterator[None]:
    """Databases for a machine's histories, in memory where the system has a file system there."""
    memory = Path("/dev/shm")  # noqa: S108 (a folder of its own below)
    with (
        tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else tmp_path) as folder,
        pytest.MonkeyPatch.context() as patch,
    ):
        machine.kind.make_templates(Path(folder))
        for name in ("templates", "folders"):
            patch.setattr(machine, name, Path(folder), raising=False)
        yield


def run_histories(machine: type[Histories], histories: int, steps_max: int, **options: Any) -> None:
    """Run so many histories of at most so many operations."""
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        machine,
        settings=settings(
            max_examples=histories,
            stateful_step_count=steps_max,
            deadline=None,
            derandomize=not LONG,
            database=None,
            print_blob=True,
            suppress_health_check=list(HealthCheck),
            **options,
        ),
    )
