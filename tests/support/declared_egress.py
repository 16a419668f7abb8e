"""Messages that an agent, a curator or a tester sends: to whom, and what each of their fields tells.

Signed messages say so themselves, field by field (``Egress`` in tacit_protocol.strict). What travels around
them, requests, answers, headers and tokens, is declared here, route by route. ``docs/security/egress.md`` is
written from both, and the tests hold every route, and every message of a running federation, against them.
"""

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from pydantic import BaseModel

from tacit_protocol.messages.alignment import AlignmentMessage
from tacit_protocol.messages.catalogue import CatalogueMessage
from tacit_protocol.messages.study import (
    AcceptanceMessage,
    CancellationMessage,
    DeclineMessage,
    MaskKeyMessage,
    Receipt,
    ReleaseMessage,
    SealedPackage,
    SealedRelease,
    Study,
    Transcript,
    VerdictMessage,
)
from tacit_protocol.procedures.base import BaseVerdict, Plan, Procedure
from tacit_protocol.signing import (
    ACCEPTANCE_TYPE,
    ALIGNMENT_TYPE,
    CANCELLATION_TYPE,
    CATALOGUE_TYPE,
    DECLINE_TYPE,
    MASK_KEY_TYPE,
    RECEIPT_TYPE,
    RELEASE_TYPE,
    SEALED_RELEASE_TYPE,
    STUDY_TYPE,
    VERDICT_TYPE,
    Envelope,
)
from tacit_protocol.strict import Egress, egress_of

Fields = Mapping[str, Egress]
"""Of a JSON document: what each path tells (egress_of has the paths' form)."""

Service = Literal["tester", "curator", "agent"]

PAYLOADS: Mapping[str, type[BaseModel]] = {
    STUDY_TYPE: Study,
    RELEASE_TYPE: ReleaseMessage,
    SEALED_RELEASE_TYPE: SealedRelease,
    RECEIPT_TYPE: Receipt,
    ACCEPTANCE_TYPE: AcceptanceMessage,
    MASK_KEY_TYPE: MaskKeyMessage,
    DECLINE_TYPE: DeclineMessage,
    CANCELLATION_TYPE: CancellationMessage,
    VERDICT_TYPE: VerdictMessage,
    ALIGNMENT_TYPE: AlignmentMessage,
    CATALOGUE_TYPE: CatalogueMessage,
}
"""What an envelope may hold, by its payload type."""

SENDERS: Mapping[str, str] = {
    STUDY_TYPE: "the analyst, to the tester; the tester, to owners and readers",
    RELEASE_TYPE: "an agent or a curator, to the tester; the tester, in the transcript",
    SEALED_RELEASE_TYPE: "an agent, to the tester; the tester, to the receiver and in the transcript",
    RECEIPT_TYPE: "the agent that received a sealed release, to the tester",
    ACCEPTANCE_TYPE: "the agent of a second round, to the tester; the tester, to the agent of the first",
    MASK_KEY_TYPE: "an agent, to the tester; the tester, to the study's other owners and in the transcript",
    DECLINE_TYPE: "an agent or a curator, to the tester",
    CANCELLATION_TYPE: "the analyst, to the tester",
    VERDICT_TYPE: "the tester, to every enrolled party",
    ALIGNMENT_TYPE: "an owner, by a file, to one other owner; no service carries it",
    CATALOGUE_TYPE: "an agent whose policy publishes it, to the tester; the tester, to every enrolled party",
}


def _public(names: str, made: str, why: str) -> dict[str, Egress]:
    return dict.fromkeys(names.split(), Egress("public", made, why))


def _own(names: str, made: str, why: str) -> dict[str, Egress]:
    return dict.fromkeys(names.split(), Egress("owner's own", made, why))


@dataclass(frozen=True)
class Exchange:
    """A route's bodies: what may be asked, by whom, and what is answered."""

    reader: str
    answer: Fields = field(default_factory=dict)
    """Of a JSON answer; empty where the answer is an envelope, a page or text."""
    request: Fields = field(default_factory=dict)
    note: str = ""
    """What an answer that is no JSON document holds."""


ENVELOPE: Fields = dict(egress_of(Envelope))
PACKAGE: Fields = dict(egress_of(SealedPackage))
TRANSCRIPT: Fields = dict(egress_of(Transcript))
MASK_KEYS: Fields = {
    "*": Egress(
        "post-processed",
        "tacit_services.tester.answers:mask_keys_for",
        "the envelopes as they came, whose payloads have rows of their own",
    )
}

PROBLEM: Fields = _public(
    "type title status advice detail instance path retry_after_s",
    "tacit_protocol.messages.problems:problem_document",
    "constant texts of one registry, a random request id, declared names",
)

ISSUED = "tacit_protocol.signing:issue_token"

REQUEST_HEADERS: Fields = _public(
    "host user-agent accept accept-encoding connection content-type content-length",
    "tacit_services.agent.study.tester_client:TesterClient",
    "fixed by the client library; and the size of the message, a sealed one padded",
) | _public("authorization", ISSUED, "the token below")

ANSWER_HEADERS: Fields = (
    _public(
        "date server connection content-type content-length transfer-encoding cache-control retry-after "
        "www-authenticate location allow etag vary expires pragma",
        "tacit_services.shared.http_app:create_app",
        "fixed by the route, the status and the body's size",
    )
    | _public(
        "set-cookie content-security-policy referrer-policy x-frame-options "
        "cross-origin-opener-policy cross-origin-resource-policy permissions-policy content-disposition",
        "tacit_services.shared.pages.site:Site",
        "of pages alone: the reader's own session, and what a browser may do",
    )
    | _public(
        "x-content-type-options strict-transport-security",
        "tacit_services.shared.http_app:Observation",
        "fixed, and the second where the settings say that browsers come by TLS",
    )
    | _public("x-request-id", "tacit_services.shared.http_app:Observation", "random")
)

_SUMMARY = "tacit_services.tester.studies:Studies"
_PROGRESS = _public(
    "digest title procedure state created_at deadline owners[].name owners[].sent owners[].declined "
    "owners[].rule progress.fraction progress.step",
    _SUMMARY,
    "the study, and who has answered; times follow a schedule (respond_after_s)",
)
_PARTY = "name key role"
_INVITED = _public(
    "invitation expires_at", "tacit_services.shared.roster:Roster", "random, for the one who is invited"
)
_ROSTER = "tacit_services.shared.roster:Roster"
_ROSTER_WHY = "names and keys that parties enrolled with"
_INVITATIONS = _public(
    "items[].name items[].role items[].expires_at items[].state items[].used_by items[].revoked_at next",
    _ROSTER,
    "what became of each invitation; the invitations themselves are not kept",
)
_STORED = _public("study", "tacit_services.tester.web.routes:Tester.stored", "the digest that was asked for")
_LINK = Exchange(
    "the caller, for its own browser",
    _public("path expires_at", "tacit_services.shared.pages.sessions:Sessions.make_link", "a random link"),
    _own("user", "tacit_services.shared.people:People", "which of the caller's people it is for"),
)
_PEOPLE = "tacit_services.shared.people:People"
_PEOPLE_WHY = "the caller's own people, to the caller alone"
_HEALTH: dict[str, Exchange] = {
    "GET /healthz": Exchange(
        "anyone", _public("status", "tacit_services.shared.http_app:create_app", "constant")
    ),
    "GET /readyz": Exchange(
        "anyone", _public("status", "tacit_services.shared.http_app:create_app", "constant")
    ),
    "GET /metrics": Exchange(
        "who may reach the port",
        note="Prometheus text: requests by method, route and status, their seconds, studies by state, polls "
        "that wait (tacit_services.shared.http_app:Metrics). At an agent or curator, numbers of studies as "
        "others are shown them, and durations of its own routes: keep the port within the institution",
    ),
    "GET /v1/openapi.json": Exchange(
        "anyone", note="the interface's own description: a constant of the code"
    ),
    "POST /v1/sign-in-links": _LINK,
    "GET /v1/users": Exchange("the caller", _own("items[].** next", _PEOPLE, _PEOPLE_WHY)),
    "PUT /v1/users/{name}": Exchange(
        "the caller",
        _own("name role email", _PEOPLE, _PEOPLE_WHY),
        _own("role email", _PEOPLE, _PEOPLE_WHY),
    ),
    "DELETE /v1/users/{name}": Exchange("the caller", _own("name", _PEOPLE, _PEOPLE_WHY)),
    "GET /v1/record": Exchange("the caller", _own("entries[].** fault next", _PEOPLE, _PEOPLE_WHY)),
    "GET /sign-in": Exchange("anyone", note="a page with one button"),
    "POST /sign-in": Exchange("who has the link", note="a redirection and the session's cookie"),
    "GET /sign-in/openid": Exchange("anyone", note="a redirection to the provider, and a random cookie"),
    "GET /sign-in/openid/answer": Exchange(
        "who comes back from the provider", note="a page that says who is signed in, and the session's cookie"
    ),
    "GET /people": Exchange(
        "who is signed in", note="people of the reader's own party, and who changed them"
    ),
    "POST /people": Exchange("an admin", note="the page again"),
    "POST /people/removal": Exchange("an admin", note="the page again"),
    "POST /sign-out": Exchange("who is signed in", note="a page that says so"),
    "GET /static/{version}/{name}": Exchange("anyone", note="style and script: constants of the code"),
}

_CARRIER = "the sender, or the analyst who carries"
_EVERYONE = "every enrolled party"

_CATALOGUE = "tacit_services.tester.parties:entries"

TESTER: Mapping[str, Exchange] = _HEALTH | {
    "GET /v1/identity": Exchange(
        "anyone",
        _public("name key audience software", "tacit_services.tester.web.routes:Tester", "who it is"),
    ),
    "POST /v1/invitations": Exchange(
        "the tester's operator", _INVITED, _public("role name", _ROSTER, _ROSTER_WHY)
    ),
    "GET /v1/invitations": Exchange("the tester's operator", _INVITATIONS),
    "DELETE /v1/invitations/{name}": Exchange(
        "the tester's operator", _public("name revoked", _ROSTER, "how many could still be used")
    ),
    "PUT /v1/parties/{name}/revocation": Exchange(
        "the tester's operator", _public(f"{_PARTY} revoked_at", _ROSTER, _ROSTER_WHY)
    ),
    "POST /v1/enrolments": Exchange(
        "who was invited",
        _public(_PARTY, _ROSTER, _ROSTER_WHY),
        _public(f"invitation {_PARTY}", _ROSTER, _ROSTER_WHY),
    ),
    "GET /v1/parties": Exchange(
        _EVERYONE,
        _public("items[].name items[].key items[].role items[].revoked_at next", _ROSTER, _ROSTER_WHY),
    ),
    "PUT /v1/studies/{digest}": Exchange("the analyst", _STORED, ENVELOPE),
    "GET /v1/studies": Exchange(
        _EVERYONE,
        {f"items[].{path}": found for path, found in _PROGRESS.items()}
        | _public("next", _SUMMARY, "a cursor"),
    ),
    "GET /v1/studies/{digest}": Exchange(
        _EVERYONE,
        dict(_PROGRESS)
        | _public(
            "reuses[].owner reuses[].study reused_by[].owner reused_by[].study",
            "tacit_services.tester.studies:reuse_fields",
            "which studies read which releases again, as the studies state",
        )
        | _public(
            "warnings[]",
            "tacit_protocol.procedures.base:Procedure.warnings",
            "from the study and the numbers of units, which are public",
        ),
    ),
    "GET /v1/studies/{digest}/envelope": Exchange(_EVERYONE, ENVELOPE),
    "GET /v1/inbox": Exchange(
        "the owner or curator that asks",
        _public(
            "items[].digest items[].deadline", "tacit_services.tester.inboxes:Inboxes", "studies that name it"
        ),
    ),
    "PUT /v1/studies/{digest}/releases/{owner}": Exchange(_CARRIER, _STORED, {**ENVELOPE, **PACKAGE}),
    "GET /v1/studies/{digest}/sealed/{owner}": Exchange(
        "the receiver that the study names alone", {**ENVELOPE, **PACKAGE}
    ),
    "PUT /v1/studies/{digest}/declines/{owner}": Exchange(_CARRIER, _STORED, ENVELOPE),
    "PUT /v1/studies/{digest}/acceptances/{owner}": Exchange("the receiver", _STORED, ENVELOPE),
    "GET /v1/studies/{digest}/acceptances/{owner}": Exchange(
        "the sender that the study names alone", ENVELOPE
    ),
    "PUT /v1/studies/{digest}/mask-keys/{owner}": Exchange("that owner", _STORED, ENVELOPE),
    "GET /v1/studies/{digest}/mask-keys": Exchange("the study's owners alone", MASK_KEYS),
    "PUT /v1/studies/{digest}/cancellation": Exchange("the analyst", _STORED, ENVELOPE),
    "GET /v1/studies/{digest}/verdict": Exchange(_EVERYONE, ENVELOPE),
    "GET /v1/studies/{digest}/transcript": Exchange(_EVERYONE, TRANSCRIPT),
    "PUT /v1/catalogue/{owner}": Exchange(
        "that owner", _public("owner", _CATALOGUE, "the path's, repeated"), ENVELOPE
    ),
    "GET /v1/catalogue": Exchange(
        _EVERYONE, _public("items[].owner items[].version next", _CATALOGUE, "who publishes, and since when")
    ),
    "GET /v1/catalogue/{owner}": Exchange(_EVERYONE, ENVELOPE),
    "POST /v1/plans": Exchange(
        "the analyst",
        _public(
            "plan.** refused", "tacit_services.tester.web.routes:Planner", "simulated: no data is in reach"
        ),
        dict(egress_of(Study)),
    ),
    "GET /data-sets": Exchange(_EVERYONE, note="a page of what owners publish"),
    "GET /": Exchange(_EVERYONE, note="a page of what `GET /v1/studies` answers"),
    "GET /studies/{digest}": Exchange(
        _EVERYONE,
        note="a page of the study, of who answered and of the verdict, with its figures: post-processed",
    ),
    "GET /studies/{digest}/events": Exchange(_EVERYONE, note="the same study's progress, as it changes"),
    "GET /studies/{digest}/transcript": Exchange(_EVERYONE, TRANSCRIPT, note="as a download"),
    "GET /studies/{digest}/report": Exchange(_EVERYONE, note="the verdict as one page: post-processed"),
    "GET /key": Exchange(
        "anyone, without a token",
        note="a page that makes a key in the browser: the audience, and nobody's name",
    ),
    "GET /new": Exchange(
        _EVERYONE, note="a form: who may be asked, what owners publish, or an earlier study"
    ),
    "POST /new": Exchange(
        _EVERYONE, note="the form's next step; to an analyst a study's bytes, which nothing stores"
    ),
    "GET /plan": Exchange(_EVERYONE, note="a form"),
    "POST /plan": Exchange(_EVERYONE, note="a plan, simulated from what the form says: no data is in reach"),
}
"""At the tester. Whatever it answers it has from studies and releases: it holds nothing else."""

_OWN_PAGES = "its own pages: what the routes above answer"

AGENT: Mapping[str, Exchange] = _HEALTH | {
    f"{method} {path}": Exchange(
        "the owner's own key alone",
        _own(
            "**",
            "tacit_services.agent.web.views:detail",
            "stays with the owner, who can read the data anyway",
        ),
        _own("**", "tacit_services.agent.web.routes:Decline", "a note for the owner's own record"),
        note,
    )
    for method, path, note in (
        ("GET", "/v1/status", "caps, budgets spent and left, numbers of studies"),
        ("GET", "/v1/studies", "what is asked, what would leave, and why it was refused"),
        ("GET", "/v1/studies/{digest}", "the same of one study"),
        ("GET", "/v1/studies/{digest}/reuses", "later studies that read its release again"),
        (
            "GET",
            "/v1/studies/{digest}/finding",
            "what was found with another owner's release, **exact in this owner's data**",
        ),
        ("GET", "/v1/ledger", "every debit"),
        ("GET", "/v1/ledger/verification", "whether the ledger is whole, and its head hashes"),
        ("POST", "/v1/studies/{digest}/approval", "the study as it stands then"),
        ("POST", "/v1/studies/{digest}/sending", "the same"),
        ("POST", "/v1/data-sets/{data_set}/unlocking", "as `GET /v1/status`"),
        ("POST", "/v1/studies/{digest}/decline", "the same"),
        ("GET", "/", _OWN_PAGES),
        ("GET", "/studies/{digest}", _OWN_PAGES),
        ("GET", "/ledger", _OWN_PAGES),
        ("GET", "/data-sets", _OWN_PAGES),
        ("GET", "/policy", _OWN_PAGES),
        ("GET", "/policy/edit", "the policy's file"),
        ("POST", "/policy/preview", "what a changed policy would do to the studies that wait"),
        ("POST", "/policy", "the page again"),
        (
            "GET",
            "/data-sets/new",
            "names of files in the folders, and of connections, that agent.toml allows",
        ),
        ("POST", "/data-sets/columns", "names and types of a source's columns"),
        ("POST", "/data-sets/preview", "the lines that would be added"),
        ("POST", "/data-sets", "the page again"),
        ("POST", "/studies/{digest}/sending", "the page again"),
        ("POST", "/data-sets/{data_set}/unlocking", "the page again"),
        ("POST", "/studies/{digest}/approval", "the page again"),
        ("POST", "/studies/{digest}/decline", "the page again"),
        (
            "POST",
            "/studies/{digest}/data-check",
            "exact shares of the rows, once: to a steward, an officer or an admin",
        ),
    )
}
"""At an agent, which listens on its own machine unless told otherwise."""

_STUDY_HERE = (
    "digest title procedure state data_set epsilon_micro delta_pico release_size what_leaves deadline "
    "received_at changed_at analyst.name analyst.key"
)
_HERE = "tacit_services.curator.routes:summary"
_HERE_WHY = "the study, its cost and its state, from the moment of its answer on: to its owners and operator"
_DECISION = "owners[].owner owners[].account owners[].decision owners[].decided_by owners[].decided_at"


def _study_here(place: str) -> dict[str, Egress]:
    shared = _public(_STUDY_HERE, _HERE, _HERE_WHY) | _public(
        _DECISION, _HERE, "who has agreed: to the owners of the same study, and the operator"
    )
    why = "to the operator, and to an owner where it is the only one or declined itself: null to others"
    shared |= _own("problem reason", _HERE, why)
    return {f"{place}{path}": found for path, found in shared.items()}


def _data_set(place: str) -> dict[str, Egress]:
    why = "to the data set's owner, and the operator"
    shown = _own(
        "owner name account columns.** unit_column left_percent epsilon_cap_micro delta_cap_pico "
        "pure_share_micro pure_spent_micro pure_left_micro gaussian_delta_pico gaussian_share_micro "
        "gaussian_spent_micro gaussian_left_micro approximate_share_pico approximate_spent_pico "
        "approximate_left_pico promised_micro policy.** ready uploaded_at units locked locked.**",
        "tacit_services.curator.data_sets:view",
        why,
    ) | _own("rows", "tacit_services.curator.data_sets:view", "to the data set's owner alone")
    return {f"{place}{path}": found for path, found in shown.items()}


CURATOR: Mapping[str, Exchange] = _HEALTH | {
    "GET /v1/identity": Exchange(
        "anyone",
        _public("name key audience software", "tacit_services.curator.routes:CuratorIdentity", "who it is"),
    ),
    "POST /v1/invitations": Exchange(
        "the curator's operator", _INVITED, _public("name", _ROSTER, _ROSTER_WHY)
    ),
    "GET /v1/invitations": Exchange("the operator", _INVITATIONS),
    "DELETE /v1/invitations/{name}": Exchange(
        "the operator", _public("name revoked", _ROSTER, "how many could still be used")
    ),
    "PUT /v1/owners/{name}/revocation": Exchange(
        "the operator", _public("name key revoked_at", _ROSTER, _ROSTER_WHY)
    ),
    "POST /v1/enrolments": Exchange(
        "who was invited",
        _public("name key", _ROSTER, _ROSTER_WHY),
        _public("invitation name key", _ROSTER, _ROSTER_WHY),
    ),
    "GET /v1/owners": Exchange(
        "the operator", _public("items[].name items[].key items[].revoked_at next", _ROSTER, _ROSTER_WHY)
    ),
    "GET /v1/data-sets": Exchange(
        "an owner its own, the operator all",
        _data_set("items[].") | _public("next", "tacit_services.curator.data_sets:view", "always null"),
    ),
    "GET /v1/data-sets/{owner}/{name}": Exchange("its owner and the operator", _data_set("")),
    "PUT /v1/data-sets/{owner}/{name}": Exchange(
        "its owner",
        _data_set(""),
        _own(
            "columns.** unit_column epsilon delta policy.**",
            "tacit_services.curator.data_sets:Registration",
            "what the owner states",
        ),
    ),
    "PUT /v1/data-sets/{owner}/{name}/rows": Exchange(
        "its owner",
        _data_set(""),
        note="**the request holds the owner's raw rows**: they go to the curator that the owner chose to "
        "trust, and no further. An unreadable upload is refused to that owner: the rule, and no value",
    ),
    "DELETE /v1/data-sets/{owner}/{name}": Exchange("its owner and the operator", note="no body"),
    "POST /v1/data-sets/{owner}/{name}/unlocking": Exchange("its owner and the operator", note="no body"),
    "GET /v1/studies": Exchange(
        "an owner those that ask for its data, the operator all",
        _study_here("items[].") | _public("next", _HERE, "a cursor"),
    ),
    "GET /v1/studies/{digest}": Exchange(
        "an owner whose data it asks for, and the operator",
        _study_here("")
        | _public(
            "plain_words stated_purpose[][] warnings[] study.** verdict.**",
            "tacit_services.curator.routes:detail",
            "the study, in words too, and the verdict",
        )
        | _own(
            "accounts[].account accounts.**",
            "tacit_services.curator.routes:detail",
            "the caller's own account; all of the study's to the operator",
        )
        | _own(
            "approvals_needed decisions[].person decisions[].decision decisions[].decided_at",
            "tacit_services.agent.web.views:detail",
            "what the caller's own people said, and how many of them must; nothing to the operator",
        ),
    ),
    "POST /v1/studies/{digest}/approval": Exchange("an owner, for its own data", _study_here("")),
    "POST /v1/studies/{digest}/decline": Exchange(
        "an owner, for its own data",
        _study_here(""),
        _own("reason", "tacit_services.agent.web.routes:Decline", "a note for the owner's own record"),
    ),
    "GET /v1/ledger": Exchange(
        "an owner its own accounts, the operator all",
        _own(
            "entries.** next", "tacit_services.curator.routes:ledger", "debits of the caller's own accounts"
        ),
    ),
    "GET /v1/ledger/verification": Exchange(
        "an owner its own accounts, the operator all",
        _own("**", "tacit_services.curator.routes:ledger_verification", "of the caller's own accounts"),
    ),
    "GET /": Exchange("as `GET /v1/studies`", note=_OWN_PAGES),
    "GET /studies/{digest}": Exchange("as `GET /v1/studies/{digest}`", note=_OWN_PAGES),
    "GET /data-sets": Exchange("as `GET /v1/data-sets`", note=_OWN_PAGES),
    "GET /ledger": Exchange("as `GET /v1/ledger`", note=_OWN_PAGES),
    "POST /studies/{digest}/approval": Exchange("an owner", note="the page again"),
    "POST /data-sets/{owner}/{name}/unlocking": Exchange("its owner and the operator", note="the page again"),
    "POST /studies/{digest}/decline": Exchange("an owner", note="the page again"),
}
"""At a curator. No other owner, no analyst and no tester is answered anything of an owner's data set."""

ROUTES: Mapping[Service, Mapping[str, Exchange]] = {"tester": TESTER, "curator": CURATOR, "agent": AGENT}

REQUESTS: Mapping[str, str] = {
    "GET /v1/inbox": "`wait_s`: from its configuration",
    "GET /v1/studies/{digest}/envelope": "nothing",
    "GET /v1/studies/{digest}": "nothing",
    "PUT /v1/studies/{digest}/releases/{owner}": "an envelope: release, or receipt; or a sealed package",
    "PUT /v1/studies/{digest}/declines/{owner}": "an envelope: decline",
    "PUT /v1/catalogue/{owner}": "an envelope: catalogue, empty unless the policy publishes one",
    "PUT /v1/studies/{digest}/acceptances/{owner}": "an envelope: acceptance",
    "GET /v1/studies/{digest}/acceptances/{owner}": "nothing",
    "PUT /v1/studies/{digest}/mask-keys/{owner}": "an envelope: mask key",
    "GET /v1/studies/{digest}/mask-keys": "nothing",
    "GET /v1/studies/{digest}/sealed/{owner}": "nothing",
    "GET /v1/studies/{digest}/verdict": "nothing",
}
"""All that an agent or a curator asks a tester, and what it sends with it, beside headers and token."""


def verdicts_of(procedure: Procedure) -> list[type[BaseVerdict]]:
    """Return what a procedure's verdicts may be: ``Verdict``, what its modules name, and its plans'."""
    home = type(procedure).__module__
    modules = [module for name, module in sys.modules.items() if f"{name}.".startswith(f"{home}.")]
    named = [one for module in modules for one in vars(module).values() if isinstance(one, type)]
    planned = [one.__dict__.get("verdict_type") for one in named if issubclass(one, Plan)]
    named += [one for one in planned if isinstance(one, type)]
    found = [one for one in named if issubclass(one, BaseVerdict)]
    bases = {base for one in found for base in one.__mro__[1:]}
    return list(dict.fromkeys([procedure.Verdict, *(one for one in found if one not in bases)]))


Step = str
"""One step of a path: a member's name, or ``[]`` for any item of a list."""


def steps_of(path: str) -> tuple[Step, ...]:
    """Return a declared path's steps, as :func:`paths_in` gives those of a document."""
    return tuple(step for part in path.split(".") for step in part.replace("[]", ".[]").split(".") if step)


def paths_in(document: object, place: tuple[Step, ...] = ()) -> Iterator[tuple[Step, ...]]:
    """Yield the path of every value in a JSON document; those of empty lists and objects too."""
    if isinstance(document, dict) and document:
        for name, value in document.items():
            yield from paths_in(value, (*place, name))
    elif isinstance(document, list) and document:
        for value in document:
            yield from paths_in(value, (*place, "[]"))
    else:
        yield place


def declared(path: tuple[Step, ...], fields: Fields) -> bool:
    """Say whether one of the declared paths is this one, or holds it where the value is null or empty."""
    return any(_fits(path, steps_of(stated)) for stated in fields)


def _fits(path: tuple[Step, ...], stated: tuple[Step, ...]) -> bool:
    for place, step in enumerate(stated):
        if step == "**":
            return True
        if place == len(path):
            return True  # null, or an empty list or object, in the place of what would be deeper
        if step not in ("*", path[place]):
            return False
    return len(path) == len(stated)
