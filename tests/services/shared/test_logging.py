"""Logs carry the kind and the place of what happened, never a value."""

import json
import subprocess
import sys

PROGRAM = """
import logging, warnings, structlog
from tacit_services.shared.logging import configure_logging, describe_exception
configure_logging()
log = structlog.get_logger()
def fails():
    raise ValueError("canary-7391")
log.info("started", port=8000)
try:
    fails()
except ValueError as error:
    log.error("failed", fault=describe_exception(error))
    log.exception("failed again")
    logging.getLogger("library").exception("library failed on %s", "canary-7391")
logging.getLogger("httpx").info("GET http://x/?token=canary-7391")
"""


def test_exceptions_are_logged_without_their_message() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert "canary" not in done.stdout + done.stderr
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert [line["event"] for line in lines] == [
        "started",
        "failed",
        "failed again",
        "library failed on %s",
    ]
    assert lines[0]["port"] == 8000
    for line in lines[1:]:
        assert line["fault"]["type"] == "builtins.ValueError"
        assert "fails" in line["fault"]["frames"][-1]
