"""Transcripts of studies that were played in one process: signed afterwards, with real keys."""

import json
from typing import Any

from tacit.results import Result
from tacit_protocol.messages.encoding import digest, encode
from tacit_protocol.messages.study import (
    MaskKeyMessage,
    Party,
    ReleaseMessage,
    Study,
    Transcript,
    VerdictMessage,
)
from tacit_protocol.procedures.base import canonical, masking_of
from tacit_protocol.procedures.discovery import procedure_named
from tacit_protocol.procedures.masking import roster_digest
from tacit_protocol.procedures.relay import relay_of, statement_of
from tacit_protocol.signing import (
    MASK_KEY_TYPE,
    RELEASE_TYPE,
    STUDY_TYPE,
    VERDICT_TYPE,
    PrivateKey,
    draw_mask_secret,
    mask_public_hex,
    sign_envelope,
)


def signed_transcript(result: Result, **changes: Any) -> bytes:
    """Return the transcript of a local result between real parties; ``changes`` are the study's."""
    tester, analyst = PrivateKey.generate(), PrivateKey.generate()
    parties = [*result.source.study.owners, *result.source.study.senders]
    keys = {party.name: PrivateKey.generate() for party in parties}
    study = _between(result.source.study, keys, tester, analyst, changes)
    payload = encode(study)
    messages: dict[str, bytes] = {}
    relay = relay_of(procedure_named(study.procedure), study)
    last = None if relay is None or relay.sealed else relay.receiver.name
    masks: dict[str, bytes] = {}
    if masking_of(procedure_named(study.procedure), study) is not None:
        drawn = {owner.name: mask_public_hex(draw_mask_secret()) for owner in study.owners}
        masks = {n: encode(MaskKeyMessage(study=digest(payload), party=n, key=k)) for n, k in drawn.items()}
    roster = roster_digest(digest(payload), {name: digest(shown) for name, shown in masks.items()})
    for name, release in sorted(result.source.releases.items(), key=lambda each: each[0] == last):
        sent = {own: digest(message) for own, message in messages.items()}
        received = statement_of(relay, sent) if relay is not None and name == last else None
        if masks:
            received = roster
        message = ReleaseMessage(study=digest(payload), party=name, release=release, received=received)
        messages[name] = encode(message)
    verdict = VerdictMessage(
        study=digest(payload),
        outcome="completed",
        releases={name: digest(message) for name, message in messages.items()},
        result=json.loads(json.dumps(dict(result.verdict))),
        software="tacit test",
    )
    return encode(
        Transcript(
            study=sign_envelope(payload, STUDY_TYPE, analyst).decode(),
            releases={
                name: sign_envelope(m, RELEASE_TYPE, keys[name]).decode() for name, m in messages.items()
            },
            mask_keys={
                name: sign_envelope(m, MASK_KEY_TYPE, keys[name]).decode() for name, m in masks.items()
            },
            verdict=sign_envelope(encode(verdict), VERDICT_TYPE, tester).decode(),
        )
    )


def _between(
    study: Study,
    keys: dict[str, PrivateKey],
    tester: PrivateKey,
    analyst: PrivateKey,
    changes: dict[str, Any],
) -> Study:
    owners = tuple(owner.model_copy(update={"key": keys[owner.name].public_hex}) for owner in study.owners)
    parties: dict[str, Party] = {
        "tester": Party(name="tester", key=tester.public_hex),
        "analyst": Party(name="ann", key=analyst.public_hex),
    }
    if study.curator is not None:
        parties["curator"] = Party(name=study.curator.name, key=keys[study.curator.name].public_hex)
    named = study.model_copy(update={"owners": owners, **parties, **changes})
    return canonical(procedure_named(study.procedure), named)
