"""The agent's tables, beside those of the ledger.

The life of a row of ``agent_studies``::

    waiting-for-approval -> approved -> released -> sent
             |                 |  |        |  `----> expired (the tester took nothing before the deadline)
             |                 |  `-> held-+         (where the policy asks that the release be looked at)
             |                 |       +---> declined, expired; the budget is spent
             |                 +-> refused (policy, budget, or the data set as a whole)
             |                 +-> closed (failed after rows were read; the budget is spent, nothing is sent)
             +-----------------+-> declined (by the steward)
             `-----------------`-> expired
    refused (at intake)

A study that was released, refused or declined has exactly one row in ``agent_outbox``: the bytes that are
sent, the same ones however often. The row is written in the transaction that decides, and never changed but
for its bookkeeping. A release that is held is in ``agent_held`` until then: spent, signed, and not sent.
Before that, a study that was approved as the second round of two has one with this owner's acceptance, which
the answer takes the place of.

A row of ``agent_alignments`` says that a data set was found to hold the same units as another owner's. It is
written by ``tacit data align compare``, read for every study that names its digest, deleted by ``forget``.
``unit_key`` is the secret that the two owners share.
"""

from enum import StrEnum

import sqlalchemy as sa

from tacit_services.ledger.entries import DIGEST_LENGTH, METADATA, NAME_LENGTH
from tacit_services.shared.pages.sessions import SignInTables

REASON_LENGTH = 500
"""Longest note on why a study ended; ours are shorter, a steward's is cut."""


class State(StrEnum):
    """What became of a study here."""

    WAITING = "waiting-for-approval"
    APPROVED = "approved"
    HELD = "held"
    RELEASED = "released"
    SENT = "sent"
    DECLINED = "declined"
    REFUSED = "refused"
    EXPIRED = "expired"
    CLOSED = "closed"


STUDIES = sa.Table(
    "agent_studies",
    METADATA,
    sa.Column("digest", sa.String(DIGEST_LENGTH), primary_key=True),
    sa.Column("state", sa.String(24), nullable=False, index=True),
    sa.Column("data_set", sa.String(NAME_LENGTH), nullable=True),
    sa.Column("envelope", sa.LargeBinary, nullable=True),
    sa.Column("deadline", sa.BigInteger, nullable=False),
    sa.Column("received_at", sa.BigInteger, nullable=False),
    sa.Column("changed_at", sa.BigInteger, nullable=False),
    sa.Column("approved_at", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("shown_from", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("problem", sa.String(32), nullable=True),
    sa.Column("reason", sa.String(REASON_LENGTH), nullable=True),
    sa.Column("verdict", sa.LargeBinary, nullable=True),
)
"""``changed_at`` is exact. What came of computing is told to nobody but the owner's own steward before
``shown_from``, the moment of its answer: until then the study is shown as approved, since ``approved_at``."""

COLUMN_NAME_LENGTH = 128
"""Longest column name, as in the protocol's ``ColumnName``."""

ALIGNMENTS = sa.Table(
    "agent_alignments",
    METADATA,
    sa.Column("data_set", sa.String(NAME_LENGTH), primary_key=True),
    sa.Column("unit_column", sa.String(COLUMN_NAME_LENGTH), primary_key=True),
    sa.Column("digest", sa.String(DIGEST_LENGTH), primary_key=True),
    sa.Column("peer_key", sa.String(DIGEST_LENGTH), primary_key=True),
    sa.Column("peer_name", sa.String(NAME_LENGTH), primary_key=True),
    sa.Column("peer_data_set", sa.String(NAME_LENGTH), primary_key=True),
    sa.Column("unit_key", sa.LargeBinary, nullable=False),
    sa.Column("aligned_at", sa.BigInteger, nullable=False),
)

OUTBOX = sa.Table(
    "agent_outbox",
    METADATA,
    sa.Column(
        "study",
        sa.String(DIGEST_LENGTH),
        sa.ForeignKey("agent_studies.digest", name="fk_agent_outbox_study"),
        primary_key=True,
    ),
    sa.Column("kind", sa.String(8), nullable=False),
    sa.Column("envelope", sa.LargeBinary, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("send_at", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("closed_at", sa.BigInteger, nullable=True),
    sa.Column("outcome", sa.String(32), nullable=True),
)

RECEIVED = sa.Table(
    "agent_received",
    METADATA,
    sa.Column("study", sa.String(DIGEST_LENGTH), sa.ForeignKey("agent_studies.digest"), primary_key=True),
    sa.Column("package", sa.LargeBinary, nullable=False),
    sa.Column("received_at", sa.BigInteger, nullable=False),
    sa.Column("source", sa.LargeBinary),
)
"""What another owner signed for a study, as it came. At a receiver the release: a sealed one is opened in
memory alone, and ``source`` is the envelope of the earlier study that it was made for, where it is read
again. At a sender the receiver's acceptance."""

MASK_SECRETS = sa.Table(
    "agent_mask_secrets",
    METADATA,
    sa.Column("study", sa.String(DIGEST_LENGTH), sa.ForeignKey("agent_studies.digest"), primary_key=True),
    sa.Column("secret", sa.LargeBinary, nullable=False),
    sa.Column("drawn_at", sa.BigInteger, nullable=False),
)
"""The secret that a study's masks are made with, from its approval until the transaction that stores the
masked release, or that ends the study, empties it: whoever reads this database later learns no mask. An empty
row stays until the database's log has forgotten the secret as well."""

FINDINGS = sa.Table(
    "agent_findings",
    METADATA,
    sa.Column("study", sa.String(DIGEST_LENGTH), sa.ForeignKey("agent_studies.digest"), primary_key=True),
    sa.Column("finding", sa.LargeBinary, nullable=False),
    sa.Column("found_at", sa.BigInteger, nullable=False),
)
"""What was found with it: exact in this owner's data, so that it never leaves."""

HELD = sa.Table(
    "agent_held",
    METADATA,
    sa.Column("study", sa.String(DIGEST_LENGTH), sa.ForeignKey("agent_studies.digest"), primary_key=True),
    sa.Column("envelope", sa.LargeBinary, nullable=False),
    sa.Column("release", sa.LargeBinary, nullable=False),
    sa.Column("shown_from", sa.BigInteger, nullable=False),
)
"""Releases that are paid for, and wait for a steward to look at them: what is to be sent, and what it says,
which is private, also where what is sent is sealed to another owner. ``shown_from`` is the moment, Unix time,
at which it would have been sent: whoever decided sooner could tell how long it took to compute."""

READINGS = sa.Table(
    "agent_readings",
    METADATA,
    sa.Column("account", sa.String(NAME_LENGTH), primary_key=True),
    sa.Column("study", sa.String(DIGEST_LENGTH), sa.ForeignKey("agent_studies.digest"), nullable=False),
    sa.Column("owner", sa.String(NAME_LENGTH), nullable=False),
    sa.Column("guarantee", sa.LargeBinary, nullable=True),
    sa.Column("attempts", sa.Integer, nullable=False),
    sa.Column("closed_at", sa.BigInteger, nullable=True),
    sa.Column("shown_from", sa.BigInteger, nullable=True),
    sa.Column("place", sa.String(200), nullable=True),
    sa.Column("fault", sa.String(200), nullable=True),
)
"""Accounts whose rows are being read, each with its study, which of its attempts this is, and what a failure
costs. Where ``closed_at`` is set, that study failed after rows were read and the account is locked: ``fault``
and ``place`` say what failed, and at a curator its owners are told from ``shown_from`` on (readings.py)."""

PERSONAL_DECISIONS = sa.Table(
    "agent_personal_decisions",
    METADATA,
    sa.Column("study", sa.String(DIGEST_LENGTH), sa.ForeignKey("agent_studies.digest"), primary_key=True),
    sa.Column("owner", sa.String(NAME_LENGTH), primary_key=True),
    sa.Column("person", sa.String(NAME_LENGTH), primary_key=True),
    sa.Column("decision", sa.String(16), nullable=False),
    sa.Column("decided_at", sa.BigInteger, nullable=False),
    sa.Column("key", sa.String(DIGEST_LENGTH), nullable=False),
    sa.Column("demotions", sa.BigInteger, nullable=False),
)
"""What each of an owner's people said to a study: ``approved``, of which the policy may ask for two before
the study runs, or ``declined``, which ends it. An approval by somebody of that ``key`` who was removed, or
lost the right to decide (who has more ``demotions`` by now), before the study ran is void for good, and its
row is deleted by the next approval."""

NOTICES = sa.Table(
    "agent_notices",
    METADATA,
    sa.Column("channel", sa.String(16), primary_key=True),
    sa.Column("kind", sa.String(8), primary_key=True),
    sa.Column("subject", sa.String(160), primary_key=True),
    sa.Column("sent_at", sa.BigInteger, nullable=True),
)
"""What was noticed for each channel of notices.py; ``sent_at`` is None until it was said."""

SIGN_IN = SignInTables.make(METADATA, "agent_")
"""Links and browsers of the owner's pages."""
