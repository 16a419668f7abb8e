"""Studies at a tester that have come to one of their ends."""

from typing import Any

import httpx
from tester_federation import Federation


def completed(federation: Federation, values: dict[str, int] | None = None, **changes: Any) -> str:
    """Run a study to its verdict; returns its digest, as the others do."""
    study = federation.create(**changes)
    if values is None:
        federation.release_all(study)
    for owner, value in (values or {}).items():
        assert federation.release(study, owner, value=value).status_code == 201
    while federation.work():
        pass
    assert federation.state(study) == "completed"
    return study


def incomplete(federation: Federation, released: str = "south", **changes: Any) -> str:
    """One owner releases, the others decline."""
    study = federation.create(**{"title": "Incomplete?", **changes})
    assert federation.release(study, released).status_code == 201
    for owner in federation.parties.owners:
        if owner != released:
            assert federation.decline(study, owner).status_code == 201
    assert federation.state(study) == "incomplete"
    return study


def cancel(federation: Federation, study: str) -> httpx.Response:
    """Let its analyst cancel a study."""
    envelope = federation.parties.cancellation(study)
    return federation.put(f"/v1/studies/{study}/cancellation", federation.parties.analyst, envelope)


def cancelled(federation: Federation, **changes: Any) -> str:
    """Create a study that its analyst cancels."""
    study = federation.create(**{"title": "Cancelled?", **changes})
    assert cancel(federation, study).status_code == 201
    return study
