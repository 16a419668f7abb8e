"""Sign what was played in one process, as the parties of a real study do."""

import json
from typing import Any

from tacit.results.common import StudyResult
from tacit_protocol.messages.encoding import encode
from tacit_protocol.messages.release import ReleaseMessage
from tacit_protocol.messages.study import Party
from tacit_protocol.messages.transcript import Transcript
from tacit_protocol.messages.verdict import VerdictMessage
from tacit_protocol.procedures.base import canonical
from tacit_protocol.procedures.registry import procedure_named
from tacit_protocol.signing.envelope import RELEASE_TYPE, STUDY_TYPE, VERDICT_TYPE, digest, seal
from tacit_protocol.signing.keys import PrivateKey


def signed(result: StudyResult) -> dict[str, Any]:
    """Return the transcript of a local result, in canonical form, between parties with fresh keys."""
    study = result.source.study
    tester, analyst = PrivateKey.generate(), PrivateKey.generate()
    keys = {party.name: PrivateKey.generate() for party in [*study.owners, *study.senders]}
    named = {
        "owners": tuple(o.model_copy(update={"key": keys[o.name].public_hex}) for o in study.owners),
        "tester": Party(name="tester", key=tester.public_hex),
        "analyst": Party(name="ann", key=analyst.public_hex),
    }
    if study.curator is not None:
        name = study.curator.name
        named["curator"] = Party(name=name, key=keys[name].public_hex)
    study = canonical(procedure_named(study.procedure), study.model_copy(update=named))
    payload = encode(study)
    messages = {
        name: encode(ReleaseMessage(study=digest(payload), party=name, release=release))
        for name, release in result.source.releases.items()
    }
    verdict = VerdictMessage(
        study=digest(payload),
        outcome="completed",
        releases={name: digest(message) for name, message in messages.items()},
        result=json.loads(json.dumps(dict(result.verdict))),
        software="tacit",
    )
    transcript = Transcript(
        study=seal(payload, STUDY_TYPE, analyst).decode(),
        releases={name: seal(m, RELEASE_TYPE, keys[name]).decode() for name, m in messages.items()},
        verdict=seal(encode(verdict), VERDICT_TYPE, tester).decode(),
    )
    return dict(json.loads(encode(transcript)))
