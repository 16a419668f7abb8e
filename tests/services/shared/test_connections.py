"""Places: who keeps a connection and who gives way, counted before TLS."""

import asyncio
import json
from typing import Any

import pytest

from tacit_services.shared import http_server
from tacit_services.shared.http_server import KEPT_PER_CALLER, REFUSED_MAX, Place, Places, Standing


class Wire(asyncio.Transport):
    """A connection that notes whether it was aborted."""

    def __init__(self) -> None:
        super().__init__()
        self.aborted = False

    def abort(self) -> None:
        self.aborted = True


def take(places: Places) -> tuple[Place, Wire]:
    wire = Wire()
    place = places.take(wire)
    assert place is not None
    return place, wire


def test_a_newcomer_gets_the_place_of_whoever_has_been_idle_for_longest() -> None:
    places = Places(3)
    held = [take(places) for _ in range(3)]
    held[0][0].use()
    newcomer, wire = take(places)
    assert [found.aborted for _, found in held] == [False, True, False]
    assert (newcomer.standing, wire.aborted, places.taken) == (Standing.ASKING, False, 3)
    held[1][0].leave()  # its connection is lost only now: the place is not freed twice
    assert places.taken == 3


def test_a_known_caller_never_gives_way() -> None:
    places = Places(2)
    known, wire = take(places)
    known.recognise("agent")
    for _ in range(10):
        take(places)
    assert not wire.aborted
    assert (places.taken, places.strangers) == (2, 1)


def test_where_everyone_is_known_newcomers_are_told_and_then_closed_unheard() -> None:
    places = Places(2)
    for key in ("one", "two"):
        take(places)[0].recognise(key)
    told = [take(places) for _ in range(REFUSED_MAX)]
    assert {place.standing for place, _ in told} == {Standing.SURPLUS}
    unheard = Wire()
    assert places.take(unheard) is None
    assert unheard.aborted
    told[0][0].leave()
    assert take(places)[0].standing is Standing.SURPLUS


def test_one_caller_cannot_keep_every_place_for_itself() -> None:
    places = Places(2 * KEPT_PER_CALLER)
    for _ in range(2 * KEPT_PER_CALLER):
        take(places)[0].recognise("greedy")
    assert places.strangers == KEPT_PER_CALLER
    other, _ = take(places)
    other.recognise("modest")
    assert places.strangers == KEPT_PER_CALLER - 1


def test_what_callers_cause_is_logged_once_in_a_while_with_its_number(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines: list[dict[str, Any]] = []
    monkeypatch.setattr(
        http_server.log, "warning", lambda event, **said: lines.append({"event": event, **said})
    )
    now_s = 1000.0
    monkeypatch.setattr(http_server.time, "monotonic", lambda: now_s)
    places = Places(1)
    for _ in range(5000):
        take(places)
    now_s += http_server.LOG_PERIOD_S
    take(places)
    assert [line["times"] for line in lines] == [1, 4999], json.dumps(lines)
