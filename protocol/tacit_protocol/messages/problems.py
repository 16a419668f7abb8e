"""The registry of problem types: every way that a Tacit service says no (RFC 9457).

A problem says what kind of fault it is and where, never which value was submitted.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

MEDIA_TYPE = "application/problem+json"
URN_PREFIX = "urn:tacit:problem:"


@dataclass(frozen=True)
class ProblemType:
    """One kind of problem: its name, HTTP status, and what the caller should do next."""

    slug: str
    title: str
    status: int
    advice: str

    @property
    def urn(self) -> str:
        """The problem's ``type``."""
        return URN_PREFIX + self.slug


_ALL = (
    ProblemType(
        "malformed-message",
        "The message is malformed",
        400,
        "Correct the field named in path; numbers must be finite and keys distinct.",
    ),
    ProblemType(
        "message-too-large", "The message is too large", 413, "Send at most one mebibyte (1048576 bytes)."
    ),
    ProblemType(
        "request-timeout",
        "The request took too long to arrive",
        408,
        "Send it again over a faster or steadier connection.",
    ),
    ProblemType(
        "unsupported-media-type",
        "The media type or content encoding is not supported",
        415,
        "Send a media type that this address takes (application/json, unless it says otherwise), without a "
        "Content-Encoding.",
    ),
    ProblemType(
        "unauthenticated",
        "The request carries no valid token",
        401,
        "Send a fresh token signed with your key for this service's audience; check this machine's clock.",
    ),
    ProblemType(
        "forbidden", "This party may not do that", 403, "Use the key of the party whose right it is."
    ),
    ProblemType(
        "unknown-party",
        "The party is not known here",
        403,
        "Enrol with an invitation first. If you have, the key file is another than the one enrolled.",
    ),
    ProblemType(
        "key-revoked",
        "This party's key was revoked",
        403,
        "Nothing that this key signs is taken any more. Enrol another key, under another name.",
    ),
    ProblemType(
        "sign-in-needed",
        "This browser is not signed in",
        401,
        "Ask for a one-time link with the login command and open it in this browser.",
    ),
    ProblemType(
        "sign-in-invalid",
        "The sign-in link is not valid",
        403,
        "Links work once, for five minutes. Ask for a new one with the login command.",
    ),
    ProblemType(
        "openid-refused",
        "The provider's answer does not let you in",
        403,
        "Begin again on the sign-in page, in one browser, and finish within ten minutes.",
    ),
    ProblemType(
        "openid-unknown-person",
        "Nobody here is known by that identity",
        403,
        "Ask whoever holds the key to add you with the address that your provider has verified (users add).",
    ),
    ProblemType(
        "openid-unavailable",
        "The provider of identities does not answer as it should",
        503,
        "Try again shortly, or sign in with a link; the operator finds what is wrong in the log.",
    ),
    ProblemType(
        "form-refused",
        "The form did not come from this service's own page",
        403,
        "Nothing was changed. Open the page again in the browser that is signed in, and repeat it there.",
    ),
    ProblemType(
        "role-needed",
        "Your role does not allow this",
        403,
        "Ask a person whose role allows it, or whoever holds the key to change yours (users add).",
    ),
    ProblemType(
        "policy-changed",
        "The policy was changed meanwhile",
        409,
        "Nothing was changed. Open the policy again, and make your change to the one of now.",
    ),
    ProblemType(
        "unknown-user",
        "There is no such person here",
        404,
        "List the people with the users command; add the person there first.",
    ),
    ProblemType(
        "user-exists",
        "The name or the address is another person's",
        409,
        "Choose another: names of people who were removed stay theirs, and nobody is called key-holder.",
    ),
    ProblemType("unknown-study", "There is no such study", 404, "Check the study's digest."),
    ProblemType(
        "study-archived",
        "The study has been archived",
        410,
        "It has ended and is kept elsewhere. Ask the tester's operator for its transcript and verify that.",
    ),
    ProblemType(
        "study-refused",
        "The study cannot be run as written",
        422,
        "Change the study as the detail says and create it again.",
    ),
    ProblemType(
        "reuse-refused",
        "An owner's earlier release cannot be read again",
        422,
        "Nothing was stored. Change what the detail names, or ask that owner for a new release.",
    ),
    ProblemType(
        "unknown-data-set",
        "There is no such data set",
        404,
        "Register the data set first, or check its owner and name.",
    ),
    ProblemType(
        "data-set-fixed",
        "The data set cannot be changed in this way",
        409,
        "Nothing was changed. The detail says what is fixed, and what can be done instead.",
    ),
    ProblemType(
        "upload-refused",
        "The rows cannot be taken",
        422,
        "Nothing was stored; what was held before still is. Correct the file as the detail says.",
    ),
    ProblemType(
        "upload-too-large",
        "The rows are too many to be taken",
        413,
        "Nothing was stored. Leave out columns, or ask the curator's operator for a larger limit.",
    ),
    ProblemType("study-expired", "The study's deadline has passed", 409, "Ask the analyst for a new study."),
    ProblemType(
        "study-closed", "The study takes nothing more", 409, "Read its verdict; nothing else can be sent."
    ),
    ProblemType(
        "conflicting-upload",
        "Something else is already stored there",
        409,
        "What was stored first stays. Send the same bytes as before, or nothing.",
    ),
    ProblemType(
        "invalid-signature",
        "The signature does not hold",
        400,
        "Sign the exact bytes with the key that the study's roster names for this party.",
    ),
    ProblemType(
        "digest-mismatch",
        "The message does not belong to this address",
        400,
        "Send it to the address of the study and the party that the message names.",
    ),
    ProblemType(
        "release-refused",
        "The release does not fit its study",
        422,
        "Compute the release with the procedure and the parameters of the study.",
    ),
    ProblemType(
        "invitation-invalid",
        "The invitation is not valid",
        403,
        "Invitations work once, for one name and role, until they expire. Ask the tester for a new one.",
    ),
    ProblemType(
        "party-exists",
        "A party of that name or key is enrolled already",
        409,
        "Choose another name, or use the key that is enrolled.",
    ),
    ProblemType(
        "unknown-host",
        "The service is not known by the name in this address",
        421,
        "Open the address that its operator gave you; the operator can allow this name (allowed_hosts).",
    ),
    ProblemType("not-ready", "The service is not ready", 503, "Try again shortly."),
    ProblemType(
        "at-capacity",
        "The service has as many connections as it may",
        503,
        "Nothing was done. Send the same request again after Retry-After.",
    ),
    ProblemType("rate-limited", "Too many requests", 429, "Wait as long as Retry-After says."),
    ProblemType(
        "database-unavailable",
        "The service cannot reach its database",
        503,
        "Nothing was stored. Send the same request again after Retry-After.",
    ),
    ProblemType(
        "storage-full",
        "The service has no room left",
        507,
        "Nothing was stored. Ask the operator to make room, then send the same request again.",
    ),
    ProblemType(
        "internal-error",
        "The service met a fault of its own",
        500,
        "Send the same request again; if it fails again, give the operator the request's id.",
    ),
    ProblemType("not-found", "There is nothing at this address", 404, "Check the address."),
    ProblemType("method-not-allowed", "This address does not take that method", 405, "See Allow."),
    ProblemType(
        "verdict-pending",
        "There is no verdict yet",
        404,
        "Ask again after Retry-After, or wait with wait_s.",
    ),
    ProblemType(
        "release-pending",
        "The other owner's release has not arrived yet",
        404,
        "Ask again after Retry-After.",
    ),
    ProblemType(
        "verdict-failed",
        "The verdict could not be computed",
        409,
        "It will not be tried again. Read detail; where attempts failed, the tester's log has the reason.",
    ),
    ProblemType(
        "budget-exceeded",
        "The data set's budget does not allow this",
        409,
        "Nothing was spent. Ask for less, or ask the owner to raise the account's cap.",
    ),
    ProblemType(
        "policy-refused",
        "The owner's policy does not allow this",
        403,
        "Nothing was spent. Change the study, or ask the owner to change the policy.",
    ),
    ProblemType(
        "data-unreadable",
        "The owner's data cannot be read as the study needs",
        422,
        "Nothing was spent. Run the agent's check on the data set.",
    ),
    ProblemType(
        "not-aligned",
        "The owners' records are not aligned",
        409,
        "Nothing was spent. Align the data set with the other owner again; name that digest in a new study.",
    ),
    ProblemType(
        "too-soon",
        "The release may not be looked at yet",
        409,
        "Look at it, and send or decline it, from the moment on that its page names.",
    ),
    ProblemType(
        "already-decided",
        "This study has been decided on already",
        409,
        "A decision stands; what was sent cannot be taken back.",
    ),
    ProblemType(
        "approved-before",
        "You have approved this study already",
        409,
        "The policy asks for a second person: nothing is spent until somebody else approves as well.",
    ),
)

PROBLEMS: Mapping[str, ProblemType] = MappingProxyType({problem.slug: problem for problem in _ALL})
"""Every problem type, by slug."""


def problem_document(
    slug: str,
    instance: str | None = None,
    detail_path: str | None = None,
    retry_after_s: int | None = None,
    detail: str | None = None,
) -> dict[str, Any]:
    """Build the ``application/problem+json`` document of a registered problem.

    Args:
        slug: a key of :data:`PROBLEMS`; another raises KeyError.
        instance: the request's id.
        detail_path: JSON path of the fault, made of declared names.
        retry_after_s: seconds until it is worth trying again.
        detail: constant text that says more; never anything submitted.
    """
    problem = PROBLEMS[slug]
    document: dict[str, Any] = {
        "type": problem.urn,
        "title": problem.title,
        "status": problem.status,
        "advice": problem.advice,
    }
    members = {"detail": detail, "instance": instance, "path": detail_path, "retry_after_s": retry_after_s}
    return document | {name: value for name, value in members.items() if value is not None}
