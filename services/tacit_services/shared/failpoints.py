"""Named points at which a test may kill the process, as a power cut would.

Nothing happens unless ``TACIT_FAILPOINT`` names a point: ``name`` kills at the first passage, ``name@k`` at
the k-th.
"""

import os
import signal
from collections import Counter

VARIABLE = "TACIT_FAILPOINT"

_passages: Counter[str] = Counter()


def failpoint(name: str) -> None:
    """Kill this process with SIGKILL if the environment asks for it here."""
    wanted = os.environ.get(VARIABLE)
    if not wanted:
        return
    point, _, passage = wanted.partition("@")
    if point != name:
        return
    _passages[name] += 1
    if _passages[name] == int(passage or 1):
        os.kill(os.getpid(), signal.SIGKILL)
