"""How long computing takes is told to nobody but the owner's own steward before the moment of the answer."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
import sqlalchemy as sa
from curated_world import (
    OPERATOR,
    CuratedSum,
    CuratorFederation,
    curated_study_of,
    curator_federation,
    registration,
)
from world import NOW

from tacit_services.agent.schema import STUDIES
from tacit_services.agent.study.delivery import Delivery
from tacit_services.agent.study.fetching import Fetcher

RESPOND_AFTER_S = 10
END_S = 26
EAST, WEST = "east", "west"
READ = (
    "/v1/studies",
    "/v1/studies?state=approved",
    "/v1/studies?state=released",
    "/v1/studies/{study}",
    "/v1/ledger",
    "/v1/ledger/verification",
    "/v1/data-sets",
)
Act = Callable[[CuratorFederation, str], None]


def decline(world: CuratorFederation, study: str) -> None:
    response = world.call("POST", f"/v1/studies/{study}/decline", EAST, json={"reason": "no"})
    assert response.status_code == 200, response.text


def delete(world: CuratorFederation, study: str) -> None:
    assert world.call("DELETE", f"/v1/data-sets/{EAST}/patients", EAST).status_code == 204


def change_policy(world: CuratorFederation, study: str) -> None:
    register(world, registration("by-hand"))


def change_cap(world: CuratorFederation, study: str) -> None:
    register(world, registration("automatic") | {"epsilon": 1.5})


def register(world: CuratorFederation, changed: dict[str, Any]) -> None:
    assert world.call("PUT", f"/v1/data-sets/{EAST}/patients", EAST, json=changed).status_code == 200


class Watch:
    """What *east* and the operator see at every second, and what the tester is sent, as one list."""

    def __init__(self, world: CuratorFederation, acts: dict[int, Act]) -> None:
        self.seen: list[Any] = []
        self._world, self._acts, self._study = world, acts, ""
        genuine = world.network.carry

        def noted(request: httpx.Request) -> httpx.Response:
            self.seen.append((self._second, request.method, str(request.url), request.read()))
            return genuine(request)

        world.curator.client._http._transport = httpx.MockTransport(noted)

    @property
    def _second(self) -> int:
        return int(self._world.now) - NOW

    def follow(self, study: str) -> None:
        self._study = study
        while self._second < END_S:
            self._world.curator.run_approved()
            self.tick()

    def tick(self) -> None:
        """Let a second pass, in which all loops but the computing one take a turn."""
        world, curator = self._world, self._world.curator
        if self._second in self._acts:
            self._acts.pop(self._second)(world, self._study)
        curator.close_ended()
        Fetcher(curator).poll(0)
        Fetcher(curator).confirm()
        Delivery(curator).deliver()
        for party in (EAST, OPERATOR):
            for path in READ:
                response = world.call("GET", path.format(study=self._study), party)
                assert response.status_code == 200, response.text
                self.seen.append((self._second, party, path, response.text))
        metrics = world.call("GET", "/metrics", OPERATOR).text.splitlines()
        self.seen.append((self._second, [line for line in metrics if line.startswith("tacit_curator_stud")]))
        world.now += 1


def watched(folder: Path, computing_s: int, acts: dict[int, Act], patch: pytest.MonkeyPatch) -> list[Any]:
    folder.mkdir()
    with curator_federation(folder) as world, patch.context() as patched:
        for owner in (EAST, WEST):
            world.add_owner(owner, "automatic")
        watch = Watch(world, dict(acts))
        genuine = CuratedSum.summarise

        def slow(*arguments: Any) -> Any:
            summary = genuine(*arguments)
            for _ in range(computing_s):
                watch.tick()
            return summary

        patched.setattr(CuratedSum, "summarise", slow)
        fields = {"respond_after_s": RESPOND_AFTER_S, "deadline": NOW + 1000}
        study = world.put_study_unheard(curated_study_of((EAST, WEST), **fields))
        Fetcher(world.curator).poll(0)
        watch.follow(study)
        assert not any("tacit_curator_stud" not in str(line) for line in watch.seen[-1][1:])
        return watch.seen


ACTS: dict[str, dict[int, Act]] = {
    "nothing": {},
    "a decline": {4: decline},
    "a late decline": {9: decline},
    "rows deleted": {4: delete},
    "another policy": {4: change_policy},
    "another cap": {4: change_cap},
}


def differing(folder: Path, acts: dict[int, Act], patch: pytest.MonkeyPatch) -> list[Any]:
    """Return what is seen otherwise where pooled rows take 8 seconds instead of one."""
    short = watched(folder / "short", 1, acts, patch)
    long = watched(folder / "long", 8, acts, patch)
    return [(a, b) for a, b in zip(short, long, strict=True) if a != b]


@pytest.mark.sweep(2)
@pytest.mark.parametrize("acts", ACTS.values(), ids=ACTS.keys())
def test_what_an_owner_of_pooled_rows_sees_and_does_tells_no_computing_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, acts: dict[int, Act]
) -> None:
    """Of every second: studies, ledger, accounts, metrics, and every byte that the tester is sent."""
    assert not differing(tmp_path, acts, monkeypatch)[:1]


def test_a_curator_that_shows_what_is_recorded_would_be_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exact = "tacit_services.agent.study.participant.as_shown"
    monkeypatch.setattr(exact, lambda _: sa.select(STUDIES).subquery())
    found = {
        str(pair[0][2]).partition("?")[0] for pair in differing(tmp_path, {}, monkeypatch) if len(pair[0]) > 2
    }
    assert found == {"/v1/studies", "/v1/studies/{study}"}
