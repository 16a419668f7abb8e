"""A vantage6 algorithm that brings one study to an owner's agent, and takes its answer back.

It carries bytes and nothing else: policy, approval, ledger and noise are the agent's, which runs as a program
of its own (``tacit agent answer``). The node's operator says which agent, by TACIT_AGENT_CONFIG.

A node sends what its algorithms print to the server, and an agent's log says why it refused a study: that
may depend on its data. So nothing of it is printed: TACIT_AGENT_LOG names a file for it, or it goes nowhere.
"""

import base64
import os
import subprocess
import tempfile
from pathlib import Path

NOT_YET = 3
"""Exit status of an agent that has not answered in time."""

MARGIN_S = 300.0
"""How much longer than it was told an agent may take to start and end."""


def answer(study: str, timeout_s: float = 600.0) -> dict[str, str | None]:
    """Return an owner's answer to a signed study.

    Args:
        study: what ``tacit study envelope`` wrote, in base64.
        timeout_s: how long to wait for a steward and the computation, in seconds.

    Returns:
        ``state``, "answered", "not-yet" or "failed", and ``answer``, the signed answer in base64 or None. Why
        an agent fails is in its own log alone.
    """
    with tempfile.TemporaryDirectory() as folder:
        asked, answered = Path(folder, "study.dsse"), Path(folder, "answer.dsse")
        asked.write_bytes(base64.b64decode(study, validate=True))
        command = [os.environ.get("TACIT_COMMAND", "tacit"), "agent", "answer", str(asked)]
        command += ["--output", str(answered), "--timeout-s", str(float(timeout_s))]
        command += ["--config", os.environ["TACIT_AGENT_CONFIG"]]
        with Path(os.environ.get("TACIT_AGENT_LOG", os.devnull)).open("ab") as log:
            done = subprocess.run(  # noqa: S603 (a fixed program)
                command, check=False, stdout=log, stderr=log, timeout=float(timeout_s) + MARGIN_S
            )
        if done.returncode == 0:
            return {"state": "answered", "answer": base64.b64encode(answered.read_bytes()).decode()}
        return {"state": "not-yet" if done.returncode == NOT_YET else "failed", "answer": None}
