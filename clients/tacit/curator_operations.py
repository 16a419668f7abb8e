"""What an owner, or the operator, does with a curator, as operations (:mod:`tacit.asking`)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from tacit.answers import (
    EnrolledOwner,
    HeldDataSet,
    Identity,
    Invitation,
    InvitationRecord,
    RevokedInvitations,
    parse,
    parse_item,
)
from tacit.asking import Operation, ask, ask_object, pages
from tacit.data_set import DataSetDescription
from tacit.errors import InputError, ResponseError, VerificationFailedError
from tacit.http import HttpRequest, Upload, segment
from tacit_protocol.messages.encoding import encode_json
from tacit_protocol.signing.keys import PrivateKey

UPLOAD_TIMEOUT_S = 600.0
"""How long a curator may be silent about an upload: it checks and encrypts all rows before it answers."""


@dataclass(frozen=True)
class CuratorSession:
    """Who asks: an owner by its name, or the operator (None); and the curator's key where it is pinned."""

    key: PrivateKey
    owner: str | None
    curator_key: str | None

    def owner_name(self) -> str:
        """Return the owner's name, or say that only an owner does this."""
        if self.owner is None:
            raise InputError("only an owner does this: pass owner=, the name that it enrolled under")
        return self.owner


def identity() -> Operation[Identity]:
    """Ask the curator who it is."""
    return parse(Identity, (yield from ask(HttpRequest("GET", "/v1/identity", signed=False))))


def invite(name: str) -> Operation[Invitation]:
    """Make an invitation; only the curator's own key may."""
    body = encode_json({"name": name})
    return parse(Invitation, (yield from ask(HttpRequest("POST", "/v1/invitations", body=body))))


def invitations() -> Operation[list[InvitationRecord]]:
    """List all invitations ever made; only the curator's own key may."""
    return (yield from pages("/v1/invitations", {}, partial(parse_item, InvitationRecord)))


def revoke_invitations(name: str) -> Operation[RevokedInvitations]:
    """Revoke the invitations of a name that could still be used; only the curator's own key may."""
    answer = yield from ask(HttpRequest("DELETE", "/v1/invitations/" + segment(name)))
    return parse(RevokedInvitations, answer)


def revoke(name: str) -> Operation[EnrolledOwner]:
    """Revoke an owner's key for good; only the curator's own key may."""
    answer = yield from ask(HttpRequest("PUT", f"/v1/owners/{segment(name)}/revocation"))
    return parse(EnrolledOwner, answer)


def enrol(session: CuratorSession, invitation: str) -> Operation[EnrolledOwner]:
    """Enrol the session's key under its owner's name, with an invitation."""
    yield from _check_curator(session)
    fields = {"invitation": invitation, "name": session.owner_name(), "key": session.key.public_hex}
    answer = yield from ask(HttpRequest("POST", "/v1/enrolments", body=encode_json(fields)))
    return parse(EnrolledOwner, answer)


def owners() -> Operation[list[EnrolledOwner]]:
    """List the enrolled owners; only the curator's own key may."""
    return (yield from pages("/v1/owners", {}, partial(parse_item, EnrolledOwner)))


def register(session: CuratorSession, data_set: DataSetDescription) -> Operation[HeldDataSet]:
    """Register a data set, or change what may change of it."""
    path = _data_set_path(session, data_set.name)
    return parse(HeldDataSet, (yield from ask(HttpRequest("PUT", path, body=data_set.registration()))))


def upload(session: CuratorSession, name: str, rows: Upload) -> Operation[HeldDataSet]:
    """Send a data set's rows, which replace those that were there."""
    yield from _check_curator(session)
    path = _data_set_path(session, name) + "/rows"
    request = HttpRequest("PUT", path, body=rows, timeout_s=UPLOAD_TIMEOUT_S)
    return parse(HeldDataSet, (yield from ask(request)))


def data_sets() -> Operation[list[HeldDataSet]]:
    """List the data sets: an owner its own, the operator all."""
    return (yield from pages("/v1/data-sets", {}, partial(parse_item, HeldDataSet)))


def data_set(session: CuratorSession, name: str) -> Operation[HeldDataSet]:
    """Read one data set."""
    return parse(HeldDataSet, (yield from ask(HttpRequest("GET", _data_set_path(session, name)))))


def delete(session: CuratorSession, name: str) -> Operation[None]:
    """Delete a data set's rows, and the key that opens them. Its account stays.

    The operator names the account, ``owner/data-set``.
    """
    owner, slash, own_name = name.partition("/")
    if session.owner is None and slash:
        session, name = replace(session, owner=owner), own_name
    yield from ask(HttpRequest("DELETE", _data_set_path(session, name)))


def studies(state: str | None) -> Operation[list[dict[str, Any]]]:
    """List what is asked of the owner; of the operator, everything."""
    return (yield from pages("/v1/studies", {"state": state} if state else {}, _fields))


def study(digest: str) -> Operation[dict[str, Any]]:
    """Read one study: what it asks, in plain words, what it costs, what remains, who has approved."""
    return (yield from ask_object(HttpRequest("GET", _study_path(digest))))


def approve(digest: str) -> Operation[dict[str, Any]]:
    """Approve a study for the owner's own data sets."""
    return (yield from ask_object(HttpRequest("POST", _study_path(digest) + "/approval", body=b"{}")))


def decline(digest: str, reason: str | None) -> Operation[dict[str, Any]]:
    """Decline a study, which then ends without a verdict."""
    body = encode_json({} if reason is None else {"reason": reason})
    return (yield from ask_object(HttpRequest("POST", _study_path(digest) + "/decline", body=body)))


def ledger(name: str | None) -> Operation[list[dict[str, Any]]]:
    """List the ledger's entries: an owner its own, the operator all; ``name`` is a data set or an account."""
    answer = yield from ask_object(HttpRequest("GET", "/v1/ledger", {"data_set": name} if name else {}))
    entries = answer.get("entries", answer.get("items"))
    if not isinstance(entries, list):
        raise ResponseError("the curator's answer is no ledger")
    return [_fields(entry) for entry in entries]


def verify_ledger(kept_hashes: Sequence[str]) -> Operation[dict[str, Any]]:
    """Have the curator check its ledger: an owner's accounts, or all for the operator."""
    query = {"kept": ",".join(kept_hashes)} if kept_hashes else {}
    return (yield from ask_object(HttpRequest("GET", "/v1/ledger/verification", query)))


def _check_curator(session: CuratorSession) -> Operation[None]:
    """Find out before anything is handed over that another service answers than the one that was pinned."""
    if session.curator_key is not None and (yield from identity()).key != session.curator_key:
        raise VerificationFailedError("the curator has another key than the one that you pinned: ask it")


def _fields(item: Any) -> dict[str, Any]:
    if not isinstance(item, dict):
        raise ResponseError("an item of the curator's answer is not an object")
    return item


def _data_set_path(session: CuratorSession, name: str) -> str:
    return f"/v1/data-sets/{segment(session.owner_name())}/{segment(name)}"


def _study_path(digest: str) -> str:
    return "/v1/studies/" + segment(digest)
