"""Owners whose noisy counts are masked: the study, their agents, and a tester that may be hostile."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import sqlalchemy as sa
from fault_world import CAP, URL, agent_of, enrol, key_of, sealed, study_of
from simulation import Simulation

from tacit_protocol.domain import CategoricalColumn, Domain
from tacit_protocol.messages.encoding import decode, encode
from tacit_protocol.messages.study import MaskKeyMessage, Owner, ReleaseMessage, Study
from tacit_protocol.privacy.guarantee import Budget
from tacit_protocol.privacy.noise import OpenDPNoise
from tacit_protocol.procedures.noisy_counts import NoisyCounts
from tacit_protocol.signing import MASK_KEY_TYPE, RELEASE_TYPE, issue_token, open_envelope, sign_envelope
from tacit_services.agent.agent import Agent
from tacit_services.agent.schema import STUDIES
from tacit_services.agent.study.delivery import Delivery
from tacit_services.agent.study.releases import Dependencies
from tacit_services.ledger.accounts import debits_of

MASKED = ("east", "north", "south", "west", "york")
"""Five owners: enough for two who collude and three who do not."""

LEVELS = ("no", "yes")
COUNTED = {name: (40 + 10 * place, 20) for place, name in enumerate(MASKED)}
"""How many of each owner's units have either level."""


def masked_study(
    owners: tuple[str, ...] = MASKED, colluders: int = 0, parameters: Any = None, **changes: Any
) -> Study:
    """Return a study of the owners' masked counts."""
    fields: dict[str, Any] = {
        "title": "How many answered yes?",
        "procedure": NoisyCounts.name,
        "parameters": {"noise": "gaussian", "aggregation": "masked", "colluders": colluders}
        | (parameters or {}),
        "domain": Domain(columns=(CategoricalColumn(name="answer", levels=LEVELS),)),
        "budget": Budget.of("0.5", "1e-6"),
        "owners": tuple(
            Owner(name=name, key=key_of(name).public_hex, data_set="patients") for name in owners
        ),
    }
    return study_of(["unused"]).model_copy(update={**fields, **changes})


def make_masked_agent(
    folder: Path, name: str, *, epsilon_per_study_max: float = 2.0, by_hand: bool = False, **uses: Any
) -> Agent:
    """Put an agent together, with noise of the operating system unless another is given."""
    source = folder / f"{name}.csv"
    if not source.exists():
        rows = [level for level, count in zip(LEVELS, COUNTED[name], strict=True) for _ in range(count)]
        source.write_text("\n".join(["answer", *rows]) + "\n")
    own = Dependencies(uses["engine"], uses["client"], uses.get("noise") or OpenDPNoise(), uses["clock"])
    return agent_of(
        name, source, own, NoisyCounts(), "patients", "answer", CAP, epsilon_per_study_max, by_hand
    )


class NoNoise:
    """Adds nothing, so that a sum is known to the last bit."""

    def gaussian(self, values: Any, scale: float) -> Any:
        return values.copy()

    laplace = gaussian


class MaskedWorld(Simulation):
    """A tester and the owners in memory. ``shown`` changes the keys that an owner is shown."""

    parties = MASKED

    def __init__(
        self, folder: Path, templates: Path, *, by_hand: str = "", noise: Any = None, cap: float = 2.0
    ) -> None:
        self.shown: Callable[[str, dict[str, str]], dict[str, str]] = lambda _, keys: keys
        self.by_hand, self.noise, self.cap = by_hand, noise, cap
        super().__init__(folder, templates)

    @staticmethod
    def fill_tester(connection: sa.Connection) -> None:
        enrol(connection, MASKED)

    def make_agent(self, owner: str, **uses: Any) -> Agent:
        own = uses | {"noise": self.noise, "by_hand": owner == self.by_hand}
        agent = make_masked_agent(self.folder, owner, epsilon_per_study_max=self.cap, **own)
        fetch = agent.client.mask_keys

        def hostile(study: str) -> bytes | None:
            found = fetch(study)
            return found if found is None else json.dumps(self.shown(owner, json.loads(found))).encode()

        agent.client.mask_keys = hostile  # type: ignore[method-assign]
        return agent

    def call(self, method: str, path: str, party: str, content: bytes | None = None) -> httpx.Response:
        token = issue_token(key_of(party), URL, int(self.now))
        headers = {"content-type": "application/json", "authorization": f"Bearer {token}"}
        response = self.network.deliver(httpx.Request(method, URL + path, headers=headers, content=content))
        response.read()
        return response

    def ask(self, study: Study | None = None) -> str:
        name, envelope = sealed(study or masked_study())
        response = self.call("PUT", f"/v1/studies/{name}", "ada", envelope)
        assert response.status_code == 201, response.text
        return name

    def show_keys(self, *names: str) -> None:
        """Let owners take studies in, and show their keys."""
        for name in names or self.parties:
            self.act(name, "poll")
            Delivery(self.agents[name]).deliver()

    def answer(self, *names: str) -> None:
        """Let owners fetch the keys, and release."""
        for name in names or self.parties:
            self.act(name, "poll")
            self.act(name, "work")

    def finish(self) -> None:
        self.show_keys()
        self.answer()
        self.work_at_tester()

    def rows(self, name: str, table: sa.Table) -> list[Any]:
        return self.read(name, lambda c: list(c.execute(table.select())))

    def state(self, study: str, name: str = "north") -> Any:
        return {row.digest: row for row in self.rows(name, STUDIES)}[study]

    def spent(self, name: str = "north") -> list[int]:
        return [entry.epsilon_micro for entry in self.read(name, lambda c: debits_of(c, "patients"))]

    def transcript(self, study: str) -> bytes:
        return self.call("GET", f"/v1/studies/{study}/transcript", "ada").content


def key_message(study: str, name: str, key: str, signer: str = "") -> bytes:
    """Return an owner's signed key for a study's masks."""
    message = MaskKeyMessage(study=study, party=name, key=key)
    return sign_envelope(encode(message), MASK_KEY_TYPE, key_of(signer or name))


def key_shown(envelope: bytes | str, name: str) -> MaskKeyMessage:
    """Return what an owner signed in the first round."""
    text = envelope.encode() if isinstance(envelope, str) else envelope
    return decode(MaskKeyMessage, open_envelope(text, MASK_KEY_TYPE, key_of(name).public_hex))


def release_in(envelope: bytes | str, name: str) -> ReleaseMessage:
    """Return what an owner signed in the second round."""
    text = envelope.encode() if isinstance(envelope, str) else envelope
    return decode(ReleaseMessage, open_envelope(text, RELEASE_TYPE, key_of(name).public_hex))


def exact_total(owners: tuple[str, ...] = MASKED) -> Any:
    """Return the exact counts of the owners together."""
    return np.sum([COUNTED[name] for name in owners], axis=0)
