"""What services answer: described in their OpenAPI documents, checked by clients, which trust no answer."""

from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from tacit_protocol.privacy.guarantee import EPSILON_UNITS


class ServiceAnswer(BaseModel):
    """The base of every answer."""

    # A newer service may say more than this client knows; what it knows is checked.
    model_config = ConfigDict(strict=True, extra="ignore", frozen=True, hide_input_in_errors=True)


class ServiceIdentity(ServiceAnswer):
    """Who a service says it is."""

    name: str
    key: str = Field(pattern=r"^[0-9a-f]{64}$")
    audience: str
    software: str


class EnrolledParty(ServiceAnswer):
    """A party that the tester knows."""

    name: str
    key: str = Field(pattern=r"^[0-9a-f]{64}$")
    role: str
    revoked_at: int | None = None
    """When its key was revoked (Unix seconds); None while it holds."""


class Invitation(ServiceAnswer):
    """A one-time invitation, to be handed to one party by a channel that both trust."""

    invitation: str
    expires_at: int


class InvitationRecord(ServiceAnswer):
    """An invitation as its service remembers it, without what would let anyone use it."""

    name: str
    role: str
    state: str
    """``open``, ``used``, ``revoked`` or ``expired``."""
    expires_at: int
    used_by: str | None = None
    """The public key that was enrolled with it."""
    revoked_at: int | None = None


class RevokedInvitations(ServiceAnswer):
    """How many invitations of a name could still be used, and can no more."""

    name: str
    revoked: int


class User(ServiceAnswer):
    """One of a party's people. Times are Unix seconds."""

    name: str
    role: str
    email: str | None = None
    added_at: int
    removed_at: int | None = None


class Change(ServiceAnswer):
    """What one of a party's people changed, as the service recorded it."""

    at: int
    person: str
    action: str
    detail: dict[str, Any]


class ChangeRecord(ServiceAnswer):
    """All that a party's people changed, oldest first; ``fault`` says what is wrong with the chain."""

    entries: tuple[Change, ...] = Field(strict=False)
    fault: str | None = None
    next: int | None = None
    """Where the rest begins."""


class EnrolledOwner(ServiceAnswer):
    """An owner that a curator knows."""

    name: str
    key: str = Field(pattern=r"^[0-9a-f]{64}$")
    revoked_at: int | None = None
    """When its key was revoked (Unix seconds); None while it holds."""


class BudgetBalance(ServiceAnswer):
    """What an account may spend, has spent and has left, share by share; amounts in micro and pico units.

    The Gaussian share is an epsilon at ``gaussian_delta_pico``; what is left of it is the largest epsilon of
    one study, and small studies take less than their epsilons suggest. None where no finite epsilon describes
    it. ``left_percent`` is what is left of the cap: each share counts by its part of the cap's epsilon, and
    within it what adds up there, so that what studies take adds up to 100. What is reserved is not left.
    """

    left_percent: float
    epsilon_cap_micro: int
    delta_cap_pico: int
    pure_share_micro: int
    pure_spent_micro: int
    pure_left_micro: int
    gaussian_delta_pico: int
    gaussian_share_micro: int | None
    gaussian_spent_micro: int | None
    gaussian_left_micro: int
    approximate_share_pico: int
    approximate_spent_pico: int
    approximate_left_pico: int
    promised_micro: int | None

    @property
    def left_words(self) -> str:
        """What is left of the cap, as text."""
        return f"{self.left_percent:g} % of epsilon {self.epsilon_cap_micro / EPSILON_UNITS:.6g}"

    @property
    def exhausted(self) -> bool:
        """Whether nothing is left of any share."""
        return self.pure_left_micro == 0 == self.gaussian_left_micro


class Lock(ServiceAnswer):
    """Why a data set answers no study until a person unlocks it: one failed after rows were read.

    ``fault`` is an exception's class or constant words, ``place`` a line of code, ``at`` when it was. A
    curator tells its owners ``study`` alone, as others' rows may have had a part in it.
    """

    study: str
    at: int | None = None
    fault: str | None = None
    place: str | None = None


class HeldDataSet(BudgetBalance):
    """A data set that a curator holds, and what is left of its budget. ``rows`` only its owner learns."""

    owner: str
    name: str
    account: str
    columns: tuple[dict[str, Any], ...]
    unit_column: str | None
    policy: dict[str, Any]
    ready: bool
    units: int | None = None
    rows: int | None = None
    uploaded_at: int | None = None
    locked: Lock | None = None


class OwnerState(ServiceAnswer):
    """What an owner has done about a study."""

    name: str
    sent: bool
    declined: bool
    rule: str | None = None
    """The public rule that this owner's number of units breaks, where its decline names one: a key of
    :data:`tacit_protocol.messages.study.PUBLIC_RULES`."""


class SharedRelease(ServiceAnswer):
    """A release that two studies share: its owner's name, and the digest of the other study."""

    owner: str
    study: str


class StudyProgress(ServiceAnswer):
    """How far the verdict's computation is: ``fraction`` in [0, 1] and what is being done."""

    fraction: float = 0.0
    step: str | None = ""


class StudySummary(ServiceAnswer):
    """A study as the tester lists it. ``state`` is collecting, computing, or how it ended."""

    digest: str
    title: str
    procedure: str
    state: str
    created_at: int
    deadline: int
    owners: tuple[OwnerState, ...]
    progress: StudyProgress | None = None
    warnings: tuple[str, ...] = ()
    reuses: tuple[SharedRelease, ...] = ()
    """Releases of earlier studies that this one reads again. The tester says so of a single study alone."""
    reused_by: tuple[SharedRelease, ...] = ()
    """Later studies that read a release of this one again, the newest hundred."""

    @property
    def running(self) -> bool:
        """Whether the study still collects releases or computes."""
        return self.state in {"collecting", "computing"}


Item = TypeVar("Item")


class ListPage(ServiceAnswer, Generic[Item]):
    """One page of a list; ``next`` is the ``cursor`` of the following one."""

    items: tuple[Item, ...]
    next: str | None = None


class Stored(ServiceAnswer):
    """What was uploaded is stored, now or before: the study's digest."""

    study: str


class Published(ServiceAnswer):
    """What an owner publishes is stored."""

    owner: str


class PublishedEntry(Published):
    """An owner that publishes its data sets, and since when (Unix seconds)."""

    version: int


class WaitingStudy(ServiceAnswer):
    """A study that waits for the caller's answer until its deadline (Unix seconds)."""

    digest: str
    deadline: int


class Inbox(ServiceAnswer):
    """The studies that wait for the caller."""

    items: tuple[WaitingStudy, ...]


class LinkAnswer(ServiceAnswer):
    """A one-time link to the pages, below the service's own address, until a time (Unix seconds)."""

    path: str
    expires_at: int


class NamedUser(ServiceAnswer):
    """A person that was added, changed or removed; role and address where they were said."""

    name: str
    role: str | None = None
    email: str | None = None


class Problem(ServiceAnswer):
    """A refusal (RFC 9457); docs/reference/problems.md has every type."""

    type: str = Field(pattern="^urn:tacit:problem:[a-z-]+$")
    title: str
    status: int = Field(ge=400, le=599)
    advice: str
    detail: str | None = None
    path: str | None = None
    retry_after_s: int | None = None
    instance: str | None = None


class AskedStudy(ServiceAnswer):
    """A study as an agent or a curator lists it; what cannot be known of one that cannot be read is None.

    ``owners`` says at a curator who has decided how.
    """

    digest: str
    title: str | None
    procedure: str | None
    state: str
    data_set: str | None
    epsilon_micro: int | None
    delta_pico: int | None
    release_size: int | None
    what_leaves: str | None
    deadline: int
    received_at: int
    changed_at: int
    analyst: dict[str, str] | None
    problem: str | None
    reason: str | None
    owners: tuple[dict[str, Any], ...] = ()


class AskedStudyInFull(AskedStudy):
    """Everything about one study, for whoever decides on it; ``accounts`` at a curator alone.

    ``held`` is a release that an agent holds until its owner has looked at it; ``payment`` says what the
    study would take of an agent's account, or has taken; at a curator each of ``accounts`` says so.
    """

    plain_words: str | None
    warnings: tuple[str, ...]
    stated_purpose: tuple[tuple[str, str], ...]
    study: dict[str, Any] | None
    verdict: dict[str, Any] | None
    approvals_needed: int | None
    decisions: tuple[dict[str, Any], ...]
    accounts: tuple[dict[str, Any], ...] = ()
    held: dict[str, Any] | None = None
    payment: str | None = None


class LaterStudies(ServiceAnswer):
    """Which later studies read a release again; None where the tester does not answer."""

    digest: str
    reused_by: tuple[str, ...] | None


class FoundHere(ServiceAnswer):
    """What was found with another owner's release, exact in this owner's data."""

    digest: str
    study: dict[str, Any] | None
    finding: dict[str, Any]
    found_at: int


class LedgerEntries(ServiceAnswer):
    """A ledger's entries, oldest first; ``next`` is always None."""

    entries: tuple[dict[str, Any], ...]
    next: None = None


class LedgerVerification(ServiceAnswer):
    """Whether a ledger is whole, each account's head hash, and what is wrong."""

    ok: bool
    accounts: tuple[dict[str, Any], ...]
    faults: tuple[str, ...]


class AgentDataSet(BudgetBalance):
    """A data set of an agent, what is left of its budget, and why it is locked, if it is.

    ``account`` is the ledger's account that pays, the same for all data sets of the same people.
    """

    name: str
    account: str
    units: int | None
    locked: Lock | None = None


class AgentStatus(ServiceAnswer):
    """Who an agent is, what its accounts hold, and how many studies are in each state."""

    party: dict[str, str]
    sealing: dict[str, str]
    tester: dict[str, str]
    last_poll_at: int | None
    data_sets: tuple[AgentDataSet, ...]
    studies: dict[str, int]


class PlanPoint(ServiceAnswer):
    """One point of a plan's curve: at an epsilon, the simulated power or error."""

    at: float
    value: float
    interval: tuple[float, float] | None
    """Of confidence .95; None of an error that was the same in all simulated studies."""
    refused: bool
    """Whether the procedure takes no such study, so that there is no power, and nothing was run."""


class PlanCurve(ServiceAnswer):
    """How a study's power, or the error of its release, changes with epsilon, by simulation."""

    measure: str
    """``power`` or ``error``."""
    points: tuple[PlanPoint, ...]
    runs: int
    n: tuple[int, ...] | None
    """Units of each owner, as they were simulated."""
    effect: str
    """What a study should find, in words."""


class StudyPlan(ServiceAnswer):
    """What a tester found out about a study, from synthetic rows alone."""

    curve: PlanCurve
    words: str
    target: float | None
    """The power that is aimed at; None of an error."""
    complete: bool
    """Whether as many studies were simulated as it would with more time."""
    fewer: int | None
    """The most units of an owner that are simulated here, where the study has more; else None."""


class PlanAnswer(ServiceAnswer):
    """A plan, or what to change so that there is one."""

    plan: StudyPlan | None
    refused: str | None
