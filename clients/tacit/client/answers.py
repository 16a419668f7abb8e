"""What a tester or a curator answers: checked, since answers are trusted with nothing."""

from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tacit.client.http import HttpResponse, json_object
from tacit.errors import ResponseError
from tacit_protocol.messages.encoding import MessageError, encode_json
from tacit_protocol.privacy.guarantee import EPSILON_UNITS


class ServiceAnswer(BaseModel):
    """The base of every answer."""

    # A newer service may say more than this client knows; what it knows is checked.
    model_config = ConfigDict(strict=True, extra="ignore", frozen=True, hide_input_in_errors=True)


class Identity(ServiceAnswer):
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


class Standing(ServiceAnswer):
    """What an account may spend, has spent and has left, share by share; amounts in micro and pico units.

    The Gaussian share is an epsilon at ``gaussian_delta_pico``; what is left of it is the largest epsilon of
    one study, and small studies take less than their epsilons suggest. None where no finite epsilon describes
    it.
    """

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
        """What is left of each share that there is, as text."""
        found = []
        if self.pure_share_micro:
            found.append(f"{_epsilon(self.pure_left_micro)} of {_epsilon(self.pure_share_micro)} pure")
        if self.gaussian_share_micro:
            left, share = _epsilon(self.gaussian_left_micro), _epsilon(self.gaussian_share_micro)
            found.append(f"{left} of {share} Gaussian")
        return ", ".join(found) or "nothing"

    @property
    def spent_words(self) -> str:
        """What was spent of each share, as text."""
        found = [f"{_epsilon(self.pure_spent_micro)} pure"] if self.pure_spent_micro else []
        if self.gaussian_spent_micro != 0:
            found.append(f"{_epsilon(self.gaussian_spent_micro)} Gaussian")
        return ", ".join(found) or "0"

    @property
    def exhausted(self) -> bool:
        """Whether nothing is left of any share."""
        return self.pure_left_micro == 0 == self.gaussian_left_micro


def _epsilon(micro: int | None) -> str:
    return "more than any epsilon" if micro is None else f"{micro / EPSILON_UNITS:.6g}"


class HeldDataSet(Standing):
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


Answer = TypeVar("Answer", bound=ServiceAnswer)


def parse(model: type[Answer], answer: HttpResponse) -> Answer:
    """Read an answer; raises ResponseError where it is not what the model says."""
    return parse_item(model, json_object(answer))


def parse_item(model: type[Answer], item: Any) -> Answer:
    """Read one item of a list; raises ResponseError where it is not what the model says."""
    try:
        return model.model_validate_json(encode_json(item))
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in fault["loc"])
        raise ResponseError(f"the service's answer has no valid {place or 'content'}") from error
    except MessageError as error:
        raise ResponseError(
            "the service's answer holds a number that is not finite, or half a character"
        ) from error
