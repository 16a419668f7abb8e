"""Notices to stewards, by e-mail or webhook: studies that wait or expire, low budgets, locked data sets.

A notice names the owner and what it is about, and has a link. That a study waits or expires follows from
what the tester sent and from the clock. That a budget runs low is read off the debits of those studies
alone whose release the tester already has (:func:`seen_left`): when a release was computed, or that it was,
is told by no notice before its moment. That a data set is locked is the one bit that a failure tells, and
the only thing of data that a notice says: at the moment at which the study's answer would have left, so
that it says no more. docs/how-to/get-notices.md.

What was said is kept in the database, so that a restart says nothing twice; what could not be sent is sent
later, unless it has become moot. Several notices of one channel go in one message, and no two messages of
it within ``QUIET_S``: a flood of studies is no flood of mails.
"""

import base64
import binascii
import hashlib
import hmac
import smtplib
import ssl
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from email.message import EmailMessage
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import sqlalchemy as sa
import structlog
import tenacity

from tacit_protocol.addresses import is_loopback
from tacit_protocol.messages.encoding import encode_json
from tacit_protocol.privacy.accounting import Amounts
from tacit_protocol.terminal import printable
from tacit_services.agent.schema import NOTICES, STUDIES, State
from tacit_services.agent.settings import NoticeKind, NoticeSettings
from tacit_services.agent.study.participant import Participant
from tacit_services.agent.study.readings import all_locks
from tacit_services.agent.study.tester_client import DeadlineTransport, exchange_deadline, require_private
from tacit_services.ledger.accounts import account_of
from tacit_services.ledger.entries import ACCOUNTS, ENTRIES
from tacit_services.shared.database import read_from, run_transaction
from tacit_services.shared.settings import SettingsError, read_secret

WORDS: dict[NoticeKind, str] = {
    "waits": "A study waits for a decision",
    "expires": "A study that waits for a decision is about to expire",
    "budget": "A data set's privacy budget runs low",
    "locked": "A data set is locked, as a study of it failed",
}

LISTED_MAX = 10
"""Notices that one message names; of more it says how many."""

TITLE_LENGTH_MAX = 200
"""Characters of a study's title in a notice: it is the analyst's own."""

QUIET_S = 600
"""Shortest time between two messages of one channel."""

RETRY_S = 300
"""When a channel that failed is tried again."""

TIMEOUT_S = 30.0
"""How long one step of an exchange with a mail server, or the whole of one with a webhook, may take."""

ATTEMPTS_MAX = 3
"""Tries before a channel waits for ``RETRY_S``."""

SECRET_BYTES_MIN = 16

log = structlog.get_logger()


@dataclass(frozen=True)
class Notice:
    """One thing to say: ``subject`` tells it from others, people read ``named``; ``path`` is of a page."""

    kind: NoticeKind
    subject: str
    owner: str
    named: str
    path: str


class UndeliveredError(Exception):
    """A channel took nothing; the text is constant."""


class MailChannel:
    """Writes to people through a mail server."""

    def __init__(self, settings: NoticeSettings, insecure: bool) -> None:
        host = settings.smtp_host or ""
        if settings.smtp_security == "none" and not insecure and not is_loopback(host):
            raise SettingsError("notices: smtp_security = none is for a mail server on this machine alone")
        self._settings, self._host, self._sender = settings, host, settings.mail_from or ""
        self._context = _context(settings)
        self._password = (
            None
            if settings.smtp_password_file is None
            else read_secret(settings.folder / settings.smtp_password_file)
        )

    def send(self, party: str, notices: Sequence[Notice], link: str) -> None:
        """Send one message; raises UndeliveredError."""
        message = EmailMessage()
        message["Subject"] = f"Tacit, {party}: {_headline(notices)}"
        message["From"], message["To"] = self._sender, ", ".join(self._settings.mail_to)
        message["Auto-Submitted"] = "auto-generated"
        message["Message-ID"] = f"<{_identity(notices)}@{self._sender.rpartition('@')[2]}>"
        message.set_content(_text(party, notices, link))
        try:
            with self._connected() as server:
                server.send_message(message)
        except (smtplib.SMTPException, OSError) as error:
            raise UndeliveredError(f"the mail server took nothing ({type(error).__name__})") from None

    def _connected(self) -> smtplib.SMTP:
        where, said = (self._host, self._settings.smtp_port), self._sender.rpartition("@")[2]
        if self._settings.smtp_security == "tls":
            server: smtplib.SMTP = smtplib.SMTP_SSL(
                *where, local_hostname=said, timeout=TIMEOUT_S, context=self._context
            )
        else:
            server = smtplib.SMTP(*where, local_hostname=said, timeout=TIMEOUT_S)
        try:
            if self._settings.smtp_security == "starttls":
                server.starttls(context=self._context)
            if self._settings.smtp_user is not None and self._password is not None:
                server.login(self._settings.smtp_user, self._password)
        except BaseException:
            server.close()
            raise
        return server


class WebhookChannel:
    """Posts signed JSON, as the Standard Webhooks specification has it (HMAC-SHA256)."""

    def __init__(self, settings: NoticeSettings, insecure: bool, clock: Callable[[], float]) -> None:
        self._url, self._clock = settings.webhook or "", clock
        try:
            require_private(self._url, insecure)
        except ValueError as error:
            raise SettingsError(f"notices: webhook: {error}") from None
        self._secret = _secret(read_secret(settings.folder / (settings.webhook_secret_file or Path())))
        transport = DeadlineTransport(_context(settings), insecure)
        self._http = httpx.Client(transport=transport, trust_env=False, timeout=TIMEOUT_S)

    def send(self, party: str, notices: Sequence[Notice], link: str) -> None:
        """Send one message; raises UndeliveredError."""
        said = [
            {"kind": each.kind, "owner": each.owner, "name": each.named, "link": link + each.path}
            for each in notices[:LISTED_MAX]
        ]
        body = encode_json({"type": "tacit/notices/1", "from": party, "notices": said, "count": len(notices)})
        identity, moment = f"msg_{_identity(notices)}", str(int(self._clock()))
        signed = hmac.digest(self._secret, b".".join((identity.encode(), moment.encode(), body)), "sha256")
        headers = {
            "Content-Type": "application/json",
            "webhook-id": identity,
            "webhook-timestamp": moment,
            "webhook-signature": f"v1,{base64.b64encode(signed).decode()}",
        }
        try:
            with (
                exchange_deadline(TIMEOUT_S),
                self._http.stream("POST", self._url, content=body, headers=headers) as response,
            ):
                taken = response.is_success  # what it answers is not read
        except (httpx.HTTPError, httpx.StreamError, ValueError) as error:
            raise UndeliveredError(f"the webhook took nothing ({type(error).__name__})") from None
        if not taken:
            raise UndeliveredError("the webhook took nothing")


def _context(settings: NoticeSettings) -> ssl.SSLContext:
    try:
        file = None if settings.ca_file is None else settings.folder / settings.ca_file
        return ssl.create_default_context(cafile=file)
    except OSError:
        raise SettingsError("notices: ca_file: cannot read certificates, in PEM") from None


def _secret(written: str) -> bytes:
    try:
        prefix = "whsec_"
        secret = (
            base64.b64decode(written.removeprefix(prefix), validate=True)
            if written.startswith(prefix)
            else written.encode()
        )
    except binascii.Error:
        raise SettingsError("notices: webhook_secret_file: what follows whsec_ is not base64") from None
    if len(secret) < SECRET_BYTES_MIN:
        raise SettingsError(f"notices: webhook_secret_file: {SECRET_BYTES_MIN} bytes or more are needed")
    return secret


def _identity(notices: Iterable[Notice]) -> str:
    """Return the same for the same notices, so that whoever gets a message twice can tell."""
    keys = sorted([each.kind, each.subject] for each in notices)
    return hashlib.sha256(encode_json(keys)).hexdigest()[:32]


def _headline(notices: Sequence[Notice]) -> str:
    first = WORDS[notices[0].kind]
    return first if len(notices) == 1 else f"{first}, and {len(notices) - 1} more"


def _text(party: str, notices: Sequence[Notice], link: str) -> str:
    lines = [f"Tacit at {party}:", ""]
    for each in notices[:LISTED_MAX]:
        lines += [f"{WORDS[each.kind]}: {each.named} ({each.owner})", f"    {link}{each.path}", ""]
    if len(notices) > LISTED_MAX:
        lines += [f"And {len(notices) - LISTED_MAX} more: {link}/", ""]
    return "\n".join(lines)


def seen_left(connection: sa.Connection, account: str) -> float:
    """Return what part of the scarcest share of an account is left, after what the tester has already seen.

    Debits count whose release the tester has taken, or that a steward has declined; those of a release that
    is computed and not yet sent do not, so that this changes at no moment that data could set.
    """
    found = account_of(connection, account)
    sent = sa.select(STUDIES.c.digest).where(STUDIES.c.state.in_([State.SENT.value, State.DECLINED.value]))
    columns = (ENTRIES.c.pure_pico, ENTRIES.c.gaussian_femto, ENTRIES.c.approximate_atto)
    debits = connection.execute(
        sa.select(*columns).where(
            ENTRIES.c.data_set == account, ENTRIES.c.kind == "debit", ENTRIES.c.study.in_(sent)
        )
    )
    spent = sum((Amounts(*(part or 0 for part in row)) for row in debits), Amounts())
    shares = zip(found.share.all, spent.all, strict=True)
    return min((max(0, share - own) / share for share, own in shares if share), default=1.0)


class Notifier:
    """Says what is to be said, through every channel that is set up.

    Args:
        participant: the agent or the curator.
        settings: the channels.
        link: where the service's pages are.
        insecure: whether notices may travel in the clear, in tests without real data.
        sleep: waits between two tries; may return early when the service stops.

    Raises:
        SettingsError: a secret or certificates cannot be read, or others could read what is sent.
    """

    def __init__(
        self,
        participant: Participant,
        settings: Sequence[NoticeSettings],
        link: str,
        *,
        insecure: bool,
        sleep: Callable[[float], Any],
    ) -> None:
        self._participant, self._link, self._sleep = participant, link.rstrip("/"), sleep
        self._channels = [(own, self._open(own, insecure)) for own in settings]
        self._not_before: dict[str, float] = {}

    def _open(self, own: NoticeSettings, insecure: bool) -> MailChannel | WebhookChannel:
        if own.mail_to:
            return MailChannel(own, insecure)
        return WebhookChannel(own, insecure, self._participant.clock)

    def look(self) -> None:
        """Notice what is new, and send what was not said, each channel by itself."""
        for own, channel in self._channels:
            now = self._participant.clock()
            if now < self._not_before.get(own.name, 0.0):
                continue
            due = {(each.kind, each.subject): each for each in self._due(own, int(now))}
            unsaid = run_transaction(
                self._participant.engine, partial(_record, channel=own.name, due=list(due))
            )
            if not unsaid:
                continue
            try:
                self._send(channel, [due[key] for key in unsaid], own)
            except UndeliveredError as error:
                self._not_before[own.name] = now + RETRY_S
                log.warning("notice_not_sent", channel=own.name, count=len(unsaid), reason=str(error))
                continue
            self._not_before[own.name] = now + QUIET_S
            run_transaction(
                self._participant.engine, partial(_said, channel=own.name, keys=unsaid, at=int(now))
            )
            log.info("notice_sent", channel=own.name, count=len(unsaid))

    def _send(
        self, channel: MailChannel | WebhookChannel, notices: Sequence[Notice], own: NoticeSettings
    ) -> None:
        retrying = tenacity.Retrying(
            stop=tenacity.stop_after_attempt(ATTEMPTS_MAX),
            wait=tenacity.wait_random_exponential(multiplier=0.25, max=8.0),
            retry=tenacity.retry_if_exception_type(UndeliveredError),
            sleep=self._sleep,
            reraise=True,
        )
        link = self._link if own.link is None else own.link.rstrip("/")
        retrying(channel.send, self._participant.name, notices, link)

    def _due(self, own: NoticeSettings, now: int) -> list[Notice]:
        """Return all that there is to say to a channel, said or not."""
        found: list[Notice] = []
        for row, owner in self._participant.waiting_for(own.owner):
            named = _title(self._participant, row.digest, row.envelope)
            path = f"/studies/{row.digest}"
            # A release that is held waits anew, though its study may have been told of before.
            subject = f"{row.digest}#held" if row.state is State.HELD else row.digest
            if "waits" in own.kinds:
                found.append(Notice("waits", subject, owner, named, path))
            if "expires" in own.kinds and row.deadline - now <= 3600 * own.expires_within_hours:
                found.append(Notice("expires", subject, owner, named, path))
        if "budget" in own.kinds:
            found += read_from(self._participant.engine, self._low, own)
        if "locked" in own.kinds:
            found += [
                Notice("locked", f"{lock.account}#{lock.at}", lock.owner, lock.account, "/data-sets")
                for lock in read_from(self._participant.engine, all_locks)
                if own.owner in (None, lock.owner) and lock.shown_from <= now
            ]
        return found

    def _low(self, connection: sa.Connection, own: NoticeSettings) -> list[Notice]:
        found = []
        for account in connection.execute(sa.select(ACCOUNTS.c.data_set)).scalars().all():
            owner = account.partition("/")[0] if "/" in account else self._participant.name
            if own.owner not in (None, owner) or seen_left(connection, account) > own.budget_left:
                continue
            standing = account_of(connection, account)
            # A cap that is changed makes it new: it may run low again.
            subject = f"{account}#{standing.version - standing.debits}"
            found.append(Notice("budget", subject, owner, account, "/ledger"))
        return found


def _title(participant: Participant, digest: str, envelope: bytes | None) -> str:
    title = None if envelope is None else participant.title_of(digest, envelope)
    return "a study that cannot be read" if title is None else f"“{printable(title)[:TITLE_LENGTH_MAX]}”"


Key = tuple[NoticeKind, str]


def _record(connection: sa.Connection, channel: str, due: Iterable[Key]) -> list[Key]:
    """Record what is due, forget what is not any more, and return what is to be said."""
    mine = sa.select(NOTICES.c.kind, NOTICES.c.subject, NOTICES.c.sent_at).where(NOTICES.c.channel == channel)
    known: dict[Key, int | None] = {(row.kind, row.subject): row.sent_at for row in connection.execute(mine)}
    wanted = list(due)
    for kind, subject in set(known) - set(wanted):
        connection.execute(NOTICES.delete().where(*_is(channel, kind, subject)))
    new = [key for key in wanted if key not in known]
    if new:
        rows = [{"channel": channel, "kind": kind, "subject": subject} for kind, subject in new]
        connection.execute(NOTICES.insert(), rows)
    return [key for key in wanted if known.get(key) is None]


def _said(connection: sa.Connection, channel: str, keys: Iterable[Key], at: int) -> None:
    for kind, subject in keys:
        connection.execute(NOTICES.update().where(*_is(channel, kind, subject)).values(sent_at=at))


def _is(channel: str, kind: str, subject: str) -> tuple[sa.ColumnElement[bool], ...]:
    return NOTICES.c.channel == channel, NOTICES.c.kind == kind, NOTICES.c.subject == subject
