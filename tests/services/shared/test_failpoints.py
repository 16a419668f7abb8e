"""A failpoint kills the process as a power cut would, exactly where it is asked to."""

import os
import signal
import subprocess
import sys

PROGRAM = """
from tacit_services.shared.failpoints import failpoint
for index in range(3):
    print(index, flush=True)
    failpoint("one.point")
    failpoint("other.point")
"""


def _run(value: str | None) -> tuple[int, str]:
    environment = {key: text for key, text in os.environ.items() if key != "TACIT_FAILPOINT"}
    if value is not None:
        environment["TACIT_FAILPOINT"] = value
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, env=environment, check=False
    )
    return done.returncode, done.stdout


def test_nothing_happens_unless_asked() -> None:
    assert _run(None) == (0, "0\n1\n2\n")
    assert _run("") == (0, "0\n1\n2\n")
    assert _run("another.point") == (0, "0\n1\n2\n")


def test_the_named_passage_kills() -> None:
    assert _run("one.point") == (-signal.SIGKILL, "0\n")
    assert _run("one.point@3") == (-signal.SIGKILL, "0\n1\n2\n")
    assert _run("one.point@4") == (0, "0\n1\n2\n")
