"""Five agents and a tester as processes, and a proxy that shows owners what a hostile tester would."""

import csv
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import jwt
import pytest
from recording_proxy import Recorded, Recording, behind_a_proxy
from world import key_message

from tacit.database.files import load_database
from tacit.setup.configuration import DataSetSetup, PolicySetup
from tacit.setup.federation import LocalFederation, OwnerSetup
from tacit.setup.keys import load_key
from tacit_protocol.messages.encoding import encode
from tacit_protocol.messages.study import MaskKeyMessage
from tacit_protocol.signing import MASK_KEY_TYPE, draw_mask_secret, mask_public_hex, sign_envelope

pytestmark = pytest.mark.long

OWNERS = ("east", "north", "south", "west", "york")
YES = {name: 100 + 50 * place for place, name in enumerate(OWNERS)}
UNITS = 400

Tacit = Callable[..., Any]
Keys = Mapping[str, str]
"""What the tester hands out: envelopes by owner."""


class World:
    """The federation, what went over the wire, and what each owner is shown of the keys."""

    def __init__(self, federation: LocalFederation, wire: Recording, tacit_json: Tacit) -> None:
        self.federation, self.wire, self.tacit_json = federation, wire, tacit_json
        self.names = {load_key(site.folder / "agent.pem").public_hex: site.name for site in federation.agents}
        self.shown: Callable[[str, str, Keys], Any] = lambda _study, _name, keys: keys
        wire.change = self._change

    def _change(self, exchange: Recorded) -> bytes:
        if not exchange.path.endswith("/mask-keys") or exchange.status != 200:
            return exchange.answer
        token = exchange.request_headers["authorization"].removeprefix("Bearer ")
        asking = self.names[jwt.decode(token, options={"verify_signature": False})["iss"]]
        study = exchange.path.split("/")[3]
        return json.dumps(self.shown(study, asking, json.loads(exchange.answer))).encode()

    def key(self, name: str) -> Any:
        site = next(site for site in self.federation.agents if site.name == name)
        return load_key(site.folder / "agent.pem")

    def ask(
        self,
        file: Path,
        title: str,
        asked: str = 'procedure = "noisy_counts"\nepsilon = 0.5',
        parameters: str = 'noise = "gaussian"\ncolluders = 1',
        columns: str = "",
    ) -> str:
        party = ("--party", str(self.federation.analyst.configuration))
        owners = "".join(f'[[owners]]\nname = "{name}"\ndata_set = "people"\n' for name in OWNERS)
        file.write_text(
            f'title = "{title}"\n{asked}\ndelta = 1e-6\n[parameters]\naggregation = "masked"\n{parameters}\n'
            f'{columns}[[columns]]\nkind = "categorical"\nname = "answer"\nlevels = ["no", "yes"]\n{owners}'
        )
        return str(self.tacit_json("study", "create", str(file), *party)["digest"])

    def ended(self, study: str) -> Any:
        party = ("--party", str(self.federation.analyst.configuration))
        return self.tacit_json("study", "watch", study, *party)

    def fetched(self, study: str, name: str) -> int:
        """Return how often an owner was answered with keys."""
        return sum(
            one.path == f"/v1/studies/{study}/mask-keys"
            and one.status == 200
            and self.names.get(
                jwt.decode(
                    one.request_headers["authorization"].removeprefix("Bearer "),
                    options={"verify_signature": False},
                )["iss"]
            )
            == name
            for one in self.wire.seen()
        )

    def released(self, study: str) -> dict[str, int]:
        """Return the status that each owner's release was answered with."""
        path = f"/v1/studies/{study}/releases/"
        puts = [one for one in self.wire.seen() if one.method == "PUT" and one.path.startswith(path)]
        return {one.path.removeprefix(path): one.status for one in puts}


def person(name: str, row: int) -> tuple[str, int]:
    """Return a row: who answered yes is twenty years older, and owners lie apart."""
    yes = row < YES[name]
    return "yes" if yes else "no", 10 + 10 * OWNERS.index(name) + row % 9 + 20 * yes


@pytest.fixture
def world(tmp_path: Path, tacit_json: Tacit) -> Iterator[World]:
    owners = []
    for name in OWNERS:
        with (tmp_path / f"{name}.csv").open("w", newline="") as opened:
            rows = csv.writer(opened)
            rows.writerow(["answer", "age"])
            rows.writerows([person(name, row) for row in range(UNITS)])
        policy = PolicySetup("automatic", 2.0, 1e-5, procedures=("*",), columns=("answer", "age"))
        source = DataSetSetup("people", str(tmp_path / f"{name}.csv"), 20.0, 1e-4)
        owners.append(OwnerSetup(name, source, policy))
    with ExitStack() as stack:
        federation = LocalFederation(tmp_path / "federation", owners)
        wire = behind_a_proxy(stack, federation.tester.configuration)
        stack.enter_context(federation)
        federation.wait_until_ready()
        federation.enrol_all()
        yield World(federation, wire, tacit_json)


def test_five_agents_mask_and_a_hostile_tester_gets_nothing_for_its_lies(
    world: World, tmp_path: Path, eventually: Callable[[Callable[[], Any]], Any], tacit_json: Tacit
) -> None:
    """Noise of one count has a standard deviation of 17: the sum is off by 150 with probability 1e-17."""
    first = world.ask(tmp_path / "first.toml", "How many answered yes?")
    told = world.ended(first)
    (counts,) = told["result"]["tables"]["counts"].values()
    assert told["outcome"] == "completed"
    assert abs(counts[1] - sum(YES.values())) < 150
    old = dict(
        json.loads(
            next(
                one.answer
                for one in world.wire.seen()
                if one.path.endswith(f"{first}/mask-keys") and one.status == 200
            )
        )
    )

    # The tester swaps a key, replays an earlier one, or drops one: nothing is taken or spent.
    lies: dict[str, Callable[[str, Keys], Any]] = {
        "swaps": lambda study, keys: (
            keys
            | {
                "west": key_message(
                    study, "west", mask_public_hex(draw_mask_secret()), signer="tester"
                ).decode()
            }
        ),
        "replays": lambda _, keys: keys | {"west": old["west"]},
        "drops": lambda _, keys: {name: key for name, key in keys.items() if name != "west"},
    }
    for name, lie in lies.items():
        world.shown = lambda study, asking, keys, lie=lie: lie(study, keys) if asking == "north" else keys
        study = world.ask(tmp_path / f"{name}.toml", f"The tester {name} a key")
        eventually(lambda study=study: world.fetched(study, "north") >= 2)
        eventually(lambda study=study: len(world.released(study)) == 4)
        assert "north" not in world.released(study)
        world.shown = lambda _study, _name, keys: keys
        assert world.ended(study)["outcome"] == "completed"

    # York signs two keys, and the tester shows them to different owners: their releases name different ones.
    second: dict[str, str] = {}

    def equivocate(study: str, asking: str, keys: Keys) -> Any:
        if study not in second:
            shown = MaskKeyMessage(study=study, party="york", key=mask_public_hex(draw_mask_secret()))
            second[study] = sign_envelope(encode(shown), MASK_KEY_TYPE, world.key("york")).decode()
        return keys | ({"york": second[study]} if asking in {"east", "north"} else {})

    world.shown = equivocate
    study = world.ask(tmp_path / "equivocates.toml", "The tester shows two rosters")
    eventually(lambda: len(world.released(study)) == 5)
    assert world.released(study) == {name: 422 if name in {"east", "north"} else 201 for name in OWNERS}


AGE = '[[columns]]\nkind = "numeric"\nname = "age"\nlower = 0.0\nupper = 100.0\n'


def test_five_agents_compare_groups_vote_and_release_one_database_under_masks(
    world: World, tmp_path: Path, tacit_json: Tacit
) -> None:
    """The noise of the difference has a standard deviation of 2 years: off by 12 with probability 1e-9.
    Nearly all of 200 blocks vote up, and their noise has one of 13: missed with probability 1e-12."""
    groups = 'procedure = "group_comparison"\nepsilon = 1.0'
    study = world.ask(tmp_path / "groups.toml", "Are they older?", groups, "colluders = 3", AGE)
    told = world.ended(study)
    assert told["outcome"] == "completed"
    (effect,) = told["result"]["effects"]
    assert told["result"]["reject"]
    assert abs(effect["estimate"] - 20) < 12
    assert told["result"]["effects_by_owner"] == []
    votes = 'procedure = "aggregated_test"\nepsilon = 1.0'
    test = 'test = "mann_whitney"\ncolluders = 3'
    study = world.ask(tmp_path / "votes.toml", "Do blocks say that they are older?", votes, test, AGE)
    told = world.ended(study)
    assert told["outcome"] == "completed"
    assert (told["result"]["direction"], told["result"]["votes_by_owner"]) == ("up", {})
    assert set(world.released(study).values()) == {201}
    database = 'procedure = "embedding_release"\nepsilon = 1.0'
    study = world.ask(
        tmp_path / "database.toml", "What do they look like?", database, "colluders = 3\nn_points = 20", AGE
    )
    told = world.ended(study)
    assert told["outcome"] == "completed"
    assert set(world.released(study)) == set(OWNERS)
    party = ("--party", str(world.federation.analyst.configuration))
    transcript = tmp_path / "transcript.json"
    tacit_json("study", "transcript", study, "--output", str(transcript), *party)
    kept = json.loads(transcript.read_text())
    assert len(kept["mask_keys"]) == len(OWNERS)
    database_of_all = load_database(transcript)
    assert database_of_all.units == UNITS * len(OWNERS)
