"""Alignment of units with another owner, past the tester: whether both hold the same, recorded where they do.

``make`` writes what the other owner needs; ``compare`` reads what the other owner made, and where both hold
the same units records that in the agent's database. Nothing is sent. docs/how-to/align-two-owners.md.
"""

import argparse
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import sqlalchemy as sa
from sqlalchemy.engine import Engine

from tacit_protocol.arrow_columns import text
from tacit_protocol.domain import DataError, Domain, WorkersUnavailableError
from tacit_protocol.messages.alignment import (
    KEY_BYTES,
    NO_PROOF,
    AlignmentMessage,
    UnitHashes,
    UnitKey,
    bucket_count,
    bucket_ends,
    buckets_text,
    canonical_id,
)
from tacit_protocol.messages.encoding import MessageError, decode, encode
from tacit_protocol.messages.study import Owner, Party, Study
from tacit_protocol.signing import (
    ALIGNMENT_TYPE,
    ENVELOPE_BYTES_MAX,
    EnvelopeError,
    PrivateKey,
    open_envelope,
    peek_key_id,
    sign_envelope,
)
from tacit_services.agent.data.reader import CHUNK_ROWS_MAX, AlignedUnits, Computing
from tacit_services.agent.data.regular_files import opened
from tacit_services.agent.data.source import Columns
from tacit_services.agent.data.table import SourceTable
from tacit_services.agent.schema import ALIGNMENTS
from tacit_services.agent.settings import AgentSettings, DataSetSettings
from tacit_services.shared.clock import Clock, system_clock
from tacit_services.shared.database import create_engine, read_from, run_transaction, upgrade
from tacit_services.shared.settings import SECRET_BYTES_MAX, SettingsError, read_private_key
from tacit_services.shared.workers import make_workers


@dataclass(frozen=True)
class Alignment:
    """A data set was found to hold the same units as a peer's, by the key that both share."""

    data_set: str
    unit_column: str
    digest: str
    peer_name: str
    peer_key: str
    peer_data_set: str
    unit_key: bytes
    aligned_at: int


def record_alignment(connection: sa.Connection, alignment: Alignment) -> None:
    """Record an alignment, in the place of an earlier one of the same units with the same peer."""
    row = asdict(alignment)
    same = [column == row[column.name] for column in ALIGNMENTS.primary_key.columns]
    connection.execute(ALIGNMENTS.delete().where(*same))
    connection.execute(ALIGNMENTS.insert().values(**row))


def alignments(connection: sa.Connection) -> list[Alignment]:
    """Return everything recorded, the newest first."""
    rows = connection.execute(ALIGNMENTS.select().order_by(ALIGNMENTS.c.aligned_at.desc()))
    return [Alignment(**row._mapping) for row in rows]


def forget_alignments(connection: sa.Connection, digest: str) -> int:
    """Delete every alignment of that digest; returns how many there were."""
    return int(connection.execute(ALIGNMENTS.delete().where(ALIGNMENTS.c.digest == digest)).rowcount)


def unit_key_of(connection: sa.Connection, study: Study, owner: Owner) -> UnitKey | None:
    """Return the key that orders an owner's units for a study; None where no alignment of it is recorded.

    It must be of this data set and unit column, of the study's digest, and with the study's other owner: its
    name, key and data set.
    """
    peer = next(other for other in study.owners if other.name != owner.name)
    found = connection.execute(
        sa.select(ALIGNMENTS.c.unit_key).where(
            ALIGNMENTS.c.data_set == owner.data_set,
            ALIGNMENTS.c.unit_column == study.unit_column,
            ALIGNMENTS.c.digest == study.alignment,
            ALIGNMENTS.c.peer_name == peer.name,
            ALIGNMENTS.c.peer_key == peer.key,
            ALIGNMENTS.c.peer_data_set == peer.data_set,
        )
    ).scalar_one_or_none()
    return None if found is None else UnitKey(bytes(found))


LISTED_MAX = 10_000
"""Most ids that ``compare`` names: more than anyone looks through on a screen."""

_KEY_TEXT = re.compile(rf"[0-9a-f]{{{2 * KEY_BYTES}}}")


class AlignmentRefusedError(Exception):
    """The units cannot be compared. The text says what to do, and quotes neither id nor file."""


@dataclass(frozen=True)
class _Own:
    """One side: who it is, its units in their order, and the key that both owners share."""

    settings: AgentSettings
    key: PrivateKey
    data_set: DataSetSettings
    unit_column: str
    unit_key: UnitKey
    units: UnitHashes


def make(
    config: Path | None, data_set: str, unit_column: str | None, key_file: Path, out: Path
) -> dict[str, Any]:
    """Write the file that the other owner compares with, and return what it says of this one.

    Raises:
        SettingsError: settings, key or shared key cannot be used, or the file cannot be written.
        DataError: the data cannot be read, or a row has no id.
        AlignmentRefusedError: the data set's privacy unit is not this column.
    """
    own = _own_side(config, data_set, unit_column, key_file)
    message = AlignmentMessage(
        owner=Party(name=own.settings.name, key=own.key.public_hex),
        data_set=own.data_set.name,
        unit_column=own.unit_column,
        key_fingerprint=own.unit_key.fingerprint,
        units=len(own.units),
        digest=own.unit_key.digest(own.units),
        buckets=buckets_text(own.unit_key.bucket_digests(own.units, bucket_count(len(own.units)))),
        proof=NO_PROOF,
    )
    proven = message.model_copy(update={"proof": own.unit_key.proof(encode(message))})
    _write(out, sign_envelope(encode(proven), ALIGNMENT_TYPE, own.key))
    return {"ok": True, "units": message.units, "digest": message.digest, "party": message.owner.model_dump()}


def compare(
    config: Path | None,
    data_set: str,
    unit_column: str | None,
    key_file: Path,
    theirs: Path,
    *,
    list_ids: bool,
    clock: Clock,
) -> dict[str, Any]:
    """Compare this owner's units with the other's file, and record the alignment where they are the same.

    Returns a report for this owner's eyes alone; ``ids`` names what may differ where ``list_ids``.

    Raises:
        SettingsError: settings, key, shared key or file cannot be read.
        DataError: the data cannot be read, or a row has no id.
        AlignmentRefusedError: the file is forged, damaged, of another key or column, or this owner's own.
        DatabaseError: the alignment cannot be recorded.
    """
    envelope = _read(theirs)
    own = _own_side(config, data_set, unit_column, key_file)
    message = _opened(envelope, own)
    report: dict[str, Any] = {"peer": {**message.owner.model_dump(), "data_set": message.data_set}}
    if own.unit_key.digest(own.units) == message.digest:
        _record(own, message, int(clock()))
        return report | {"ok": True, "units": len(own.units), "digest": message.digest}
    return report | {"ok": False} | _difference(own, message, list_ids)


def recorded(config: Path | None) -> dict[str, Any]:
    """Return the recorded alignments, without the shared keys.

    Raises:
        SettingsError: the settings cannot be read.
        DatabaseError: the database cannot be read.
    """
    with _database(AgentSettings.load(config)) as engine:
        found = read_from(engine, alignments)
    shown = [{name: value for name, value in asdict(item).items() if name != "unit_key"} for item in found]
    return {"ok": True, "alignments": shown}


def forget(config: Path | None, digest: str) -> dict[str, Any]:
    """Forget every alignment of that digest, with its key: studies that name it are refused from then on.

    Raises:
        SettingsError: the settings cannot be read.
        AlignmentRefusedError: there is none.
        DatabaseError: the database cannot be written.
    """
    with _database(AgentSettings.load(config)) as engine:
        count = run_transaction(engine, lambda connection: forget_alignments(connection, digest))
    if not count:
        raise AlignmentRefusedError("no alignment of that digest is recorded")
    return {"ok": True, "forgotten": count}


def _own_side(config: Path | None, name: str, unit_column: str | None, key_file: Path) -> _Own:
    settings = AgentSettings.load(config)
    data_set = settings.data_set(name)
    if data_set is None:
        raise AlignmentRefusedError("agent.toml has no data set of that name")
    if data_set.unit_column is None or unit_column not in {None, data_set.unit_column}:
        raise AlignmentRefusedError(
            "the data set's unit_column in agent.toml must be the column that both owners share"
        )
    unit_key = read_unit_key(key_file)
    computing = Computing(make_workers(settings.compute), settings.compute.memory_bytes)
    # A domain without columns: the ids alone are read, as a study reads them.
    table = SourceTable(
        data_set.open(),
        Domain.model_construct(columns=()),
        data_set.unit_column,
        computing.bounds,
        AlignedUnits(unit_key),
        ordered=True,
        workers=computing.workers,
    )
    key = read_private_key(settings.key_file)
    return _Own(settings, key, data_set, data_set.unit_column, unit_key, table.order)


NO_FILE = "it is missing, is no file, or may not be read"


def read_unit_key(path: Path) -> UnitKey:
    """Read the key that two owners share: 64 hexadecimal digits.

    Raises:
        SettingsError: the file is missing, holds something else, or others than its owner may read it.
    """
    try:
        with opened(path.resolve()) as file, file.stream() as stream:
            if os.fstat(file.descriptor).st_mode & (stat.S_IRWXG | stat.S_IRWXO):
                raise SettingsError(f"others may read {path}: run chmod 600 {path}")
            content = stream.read(SECRET_BYTES_MAX).decode("utf-8", errors="replace").strip()
    except (DataError, OSError):
        raise SettingsError(f"cannot read {path}: {NO_FILE}") from None
    if not _KEY_TEXT.fullmatch(content):
        raise SettingsError(f"{path} does not hold a shared key: make one with `tacit data align key`")
    return UnitKey(bytes.fromhex(content))


def _opened(envelope: bytes, own: _Own) -> AlignmentMessage:
    """Return what the other owner said, once everything about it holds."""
    try:
        signer = peek_key_id(envelope)
        message = decode(AlignmentMessage, open_envelope(envelope, ALIGNMENT_TYPE, signer))
    except (EnvelopeError, MessageError):
        raise AlignmentRefusedError(
            "this is no alignment file, or it was changed on its way: ask the other owner for it again"
        ) from None
    if message.owner.key != signer:
        raise AlignmentRefusedError("the file is signed by another key than its owner's")
    if message.owner.key == own.key.public_hex or message.owner.name == own.settings.name:
        raise AlignmentRefusedError(
            "this is your own file, or one in your name: ask the other owner for theirs"
        )
    if message.key_fingerprint != own.unit_key.fingerprint:
        raise AlignmentRefusedError("the file was made with another shared key")
    unproven = message.model_copy(update={"proof": NO_PROOF})
    if not own.unit_key.proves(encode(unproven), message.proof):
        raise AlignmentRefusedError("whoever signed the file does not have the shared key")
    if message.unit_column != own.unit_column:
        raise AlignmentRefusedError(
            "the other owner's unit column has another name: a study has one name for both"
        )
    return message


def _record(own: _Own, message: AlignmentMessage, now: int) -> None:
    alignment = Alignment(
        own.data_set.name,
        own.unit_column,
        message.digest,
        message.owner.name,
        message.owner.key,
        message.data_set,
        own.unit_key.secret,
        now,
    )
    with _database(own.settings) as engine:
        run_transaction(engine, lambda connection: record_alignment(connection, alignment))


@contextmanager
def _database(settings: AgentSettings) -> Iterator[Engine]:
    engine = create_engine(settings.database_url)
    try:
        upgrade(engine, "agent")
        yield engine
    finally:
        engine.dispose()


def _difference(own: _Own, message: AlignmentMessage, list_ids: bool) -> dict[str, Any]:
    theirs = message.bucket_digests
    differ = np.flatnonzero(own.unit_key.bucket_digests(own.units, len(theirs)) != theirs)
    sizes = np.diff(bucket_ends(own.units, len(theirs)), prepend=0)
    found = {
        "units": len(own.units),
        "units_of_peer": message.units,
        "buckets": len(theirs),
        "buckets_that_differ": len(differ),
        "ids_to_check": int(sizes[differ].sum()),
    }
    if not list_ids:
        return found
    ends = bucket_ends(own.units, len(theirs))
    wanted = np.concatenate([own.units[ends[b] - sizes[b] : ends[b]] for b in differ] or [own.units[:0]])
    ids: set[str] = set()
    for listed in _ids(own, wanted):
        ids.add(listed)
        if len(ids) == LISTED_MAX:
            break
    return found | {"ids": sorted(ids)}


def _ids(own: _Own, wanted: UnitHashes) -> Iterator[str]:
    """Yield the ids with these hashes, in the form in which they are compared; some of them repeatedly."""
    hasher = AlignedUnits(own.unit_key)
    columns = Columns(text=(own.unit_column,), unit=own.unit_column)
    for batch in own.data_set.open().batches(columns, CHUNK_ROWS_MAX):
        column = batch.column(own.unit_column)
        listed = np.isin(hasher.hashes(column), wanted)
        for value in text(column.filter(np.asarray(listed))).distinct:
            known = None if value is None else canonical_id(value)
            if known is not None:
                yield known


def _read(path: Path) -> bytes:
    try:
        with opened(path.resolve()) as file, file.stream() as stream:
            content = stream.read(ENVELOPE_BYTES_MAX + 1)
    except (DataError, OSError):
        raise SettingsError(f"cannot read {path}: {NO_FILE}") from None
    if len(content) > ENVELOPE_BYTES_MAX:
        raise AlignmentRefusedError("the file is larger than any alignment file")
    return content


def _write(path: Path, content: bytes) -> None:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
    except OSError as error:
        raise SettingsError(f"cannot write {path}: {error.strerror}") from None


Value = TypeVar("Value")


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Declare what ``align`` takes."""
    command.add_argument("step", choices=("make", "compare", "list", "forget"))
    command.add_argument("--data-set", default=None, help="a data set of agent.toml")
    command.add_argument("--unit-column", default=None, help="the shared id; as in agent.toml")
    command.add_argument("--key", type=Path, default=None, help="the key that both owners share")
    command.add_argument("--out", type=Path, default=None, help="make: the file for the other owner")
    command.add_argument("--with", type=Path, default=None, dest="theirs", help="compare: the other's file")
    command.add_argument("--digest", default=None, help="forget: the digest of an alignment")
    command.add_argument("--list", action="store_true", dest="list_ids", help="compare: name the ids")


def align(chosen: argparse.Namespace) -> dict[str, Any]:
    """Return a report; its ``error`` says why the units could not be compared, or is absent."""
    try:
        if chosen.step == "list":
            return recorded(chosen.config)
        if chosen.step == "forget":
            return forget(chosen.config, _given(chosen.digest, "--digest"))
        of = (
            chosen.config,
            _given(chosen.data_set, "--data-set"),
            chosen.unit_column,
            _given(chosen.key, "--key"),
        )
        if chosen.step == "make":
            return make(*of, _given(chosen.out, "--out"))
        theirs = _given(chosen.theirs, "--with")
        return compare(*of, theirs, list_ids=chosen.list_ids, clock=system_clock)
    except (AlignmentRefusedError, DataError, SettingsError, WorkersUnavailableError) as error:
        return {"ok": False, "error": str(error)}


def _given(value: Value | None, option: str) -> Value:
    if value is None:
        raise AlignmentRefusedError(f"{option} is missing")
    return value


def text_of_alignment(report: dict[str, Any]) -> str:
    """Return the report as lines for a terminal."""
    if "forgotten" in report:
        return f"{report['forgotten']} alignments forgotten"
    if "alignments" in report:
        return "\n".join(_line(item) for item in report["alignments"]) or "no alignments"
    if "peer" not in report:
        return f"{report['units']} units, digest {report['digest']}; give the file to the other owner"
    peer = report["peer"]
    who = f"{peer['name']} ({peer['data_set']}), whose key is\n  {peer['key']}"
    if report["ok"]:
        return (
            f"aligned: {report['units']} units, the same as those of {who}\n"
            f'put this into the study:\n  alignment = "{report["digest"]}"'
        )
    lines = [
        f"not aligned with {who}",
        f"{report['units']} units here, {report['units_of_peer']} there; nothing was recorded",
        f"check {report['ids_to_check']} ids here: {report['buckets_that_differ']} of {report['buckets']} "
        "buckets differ, each by at least one id",
    ]
    return "\n".join([*lines, *report.get("ids", ())])


def _line(item: dict[str, Any]) -> str:
    return (
        f"{item['data_set']} by {item['unit_column']}, with {item['peer_name']} ({item['peer_data_set']}) "
        f"{item['peer_key']}\n  {item['digest']}"
    )
