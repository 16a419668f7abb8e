"""Studies played in this process: the part of the owners or of their curator, then the tester's.

Everything goes through the procedure itself, as in the services. Tables of which only counts are known are
here too.
"""

import hashlib
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from typing import TYPE_CHECKING, Any, Literal, TypedDict

import numpy as np
import numpy.typing as npt
from pydantic import ValidationError

from tacit.errors import InputError, StudyRefusedError
from tacit.peer_outcome import PeerOutcome
from tacit.results import Result, result_from
from tacit_protocol.domain import Domain, EncodedChunk, PooledTable, Table
from tacit_protocol.messages.encoding import digest, encode
from tacit_protocol.messages.study import Owner, Party, Release, Study, UnitRows
from tacit_protocol.privacy.guarantee import Budget
from tacit_protocol.privacy.noise import NoiseSource, OpenDPNoise
from tacit_protocol.procedures.base import (
    Procedure,
    Progress,
    StudyError,
    check_release,
    masking_of,
    planned,
    require_delta,
)
from tacit_protocol.procedures.discovery import procedure_named
from tacit_protocol.procedures.masking import masked, roster_of
from tacit_protocol.procedures.plan import Relay
from tacit_protocol.procedures.relay import check_own_release, combined, conclude, relay_of
from tacit_protocol.signing import PrivateKey, certify, draw_mask_secret, mask_public_hex

if TYPE_CHECKING:
    from tacit_protocol.features.cell_counts import CellGrid

CURATOR = "local.curator"
"""Name of the curator of a study in this process."""

OWNER = "owner"
"""Name of the one owner of a study that has but one."""

Setting = Literal["owners", "curator"]

TWO_SAMPLE_PROCEDURES: Mapping[Setting, str] = {
    "owners": "kernel_two_sample",
    "curator": "curated_two_sample",
}
"""Which procedure asks whether samples differ, by who adds the noise."""


def two_sample_procedure(setting: Setting) -> str:
    """Return the two-sample procedure of a setting.

    Raises:
        InputError: there is no such setting.
    """
    if setting not in TWO_SAMPLE_PROCEDURES:
        raise InputError('setting must be "owners" or "curator"')
    return TWO_SAMPLE_PROCEDURES[setting]


@dataclass(frozen=True)
class CountedTable:
    """A table of which only the counts are known: it is never read row by row.

    ``cells`` holds the place of each count among the cells of the grid.
    """

    domain: Domain
    counted: npt.NDArray[np.int64]
    cells: npt.NDArray[np.int64]

    @property
    def units(self) -> int:
        """Number of rows, each a unit."""
        return int(self.counted.sum())

    def counts(self, grid: "CellGrid") -> npt.NDArray[np.int64]:
        """Return the number of rows of each cell."""
        found = np.zeros(grid.size, dtype=np.int64)
        found[self.cells] = self.counted
        return found

    def chunks(self) -> Iterator[EncodedChunk]:
        """Yield nothing: ``counts`` answers."""
        return iter(())


@dataclass(frozen=True)
class Aligned:
    """How two owners' units were matched: the column of their ids, and the keyed digest of all of them."""

    unit_column: str
    digest: str


def with_units(study: Study, tables: Sequence[Table]) -> Study:
    """Return a local study that says so where units have several rows: ways to a statistic follow from it."""
    if study.unit_column is not None or all(getattr(table, "starts", None) is None for table in tables):
        return study
    name, columns = "unit", {column.name for column in study.domain.columns}
    while name in columns:
        name += "_"
    return study.model_copy(update={"unit_column": name})


def declaring(study: Study, units: Sequence[int]) -> Study:
    """Return a local study that declares its owners' numbers of units."""
    owners = (o.model_copy(update={"units": n}) for o, n in zip(study.owners, units, strict=True))
    return study.model_copy(update={"owners": tuple(owners)})


def as_run(procedure: Procedure, study: Study, units: Sequence[int]) -> Study:
    """Return a local study as it is run with so many units of each owner: all that it leaves is chosen.

    What a call runs and what a plan simulates is chosen here, for both.
    """
    counted = {owner.name: n for owner, n in zip(study.owners, units, strict=True)}
    return procedure.with_defaults(declaring(study, units), counted)


def run(
    procedure: Procedure,
    study: Study,
    tables: Sequence[Table],
    noise: NoiseSource,
    progress: Progress | None = None,
    *,
    order: np.random.Generator | None = None,
) -> Result:
    """Play the owners' part (a table for each, in the study's order) or their curator's, then the tester's.

    ``progress`` is told of the part done, at owners and then at the tester. ``order`` fixes what is else
    drawn in secret, the order of units in permutations, pairs and blocks: for simulations of synthetic data
    alone.

    Raises:
        StudyRefusedError: the procedure does not take the study.
    """
    study = with_units(study, tables)
    try:
        procedure.check(study)
        held = held_by_senders(study, tables)
        relay = relay_of(procedure, study)
        if relay is None:
            releases = {
                sender: _release(procedure, study, table, noise, order=order, progress=progress)
                for sender, table in held.items()
            }
            if masking_of(procedure, study) is not None:
                releases = in_masks(procedure, study, releases)
        else:
            releases = in_two_rounds(procedure, relay, study, held, noise)
        units = {name: release.units for name, release in releases.items()}
        verdict = conclude(procedure, study, releases, units, progress)
    except StudyError as error:
        raise StudyRefusedError(str(error)) from error
    return result_from(verdict, study, releases=releases)


def study_of(
    procedure: Procedure,
    tables: Sequence[Table],
    names: Sequence[str],
    parameters: Mapping[str, Any],
    *,
    at: "Terms",
    curated: bool = False,
    aligned: Aligned | None = None,
    unit_rows: UnitRows = "average",
) -> Study:
    """Return the local study of what owners hold, a table for each, as it is run.

    Owners whose tables differ in their columns hold these alone. The rest is as in :func:`local_study`.
    """
    domains = [table.domain for table in tables]
    apart = any(domain != domains[0] for domain in domains)
    held = [tuple(column.name for column in domain.columns) for domain in domains]
    study = local_study(
        procedure.name,
        Domain(columns=tuple(c for domain in domains for c in domain.columns)) if apart else domains[0],
        names,
        parameters,
        **at,
        curated=curated,
        columns=held if apart else None,
        aligned=aligned,
        unit_rows=unit_rows,
    )
    study = study.model_copy(update={"procedure_origin": procedure.origin})
    return as_run(procedure, study, [table.units for table in tables])


def run_tables(
    procedure: str | Procedure,
    tables: Sequence[Table],
    names: Sequence[str],
    parameters: Mapping[str, Any],
    *,
    at: "Terms",
    progress: Progress | None = None,
    **how: Any,
) -> Any:
    """Run the study of what owners hold, and return a result of the procedure's own type.

    ``how`` is what else :func:`study_of` takes.

    Raises:
        InputError: the parts do not make a study.
        StudyRefusedError: the procedure does not take it.
    """
    asked = procedure_named(procedure) if isinstance(procedure, str) else procedure
    study = study_of(asked, tables, names, parameters, at=at, **how)
    return run(asked, study, tables, OpenDPNoise(), progress)


def in_two_rounds(
    procedure: Procedure, relay: Relay, study: Study, held: Mapping[str, Table], noise: NoiseSource
) -> dict[str, Release]:
    """Play both owners' parts in a study whose rounds are both in the open."""
    receiver = relay.receiver.name
    if relay.sealed:
        raise StudyError("what the receiver of a sealed release finds stays with it: ask for mode peer")
    sent = _first_round(procedure, relay, study, held, noise)
    answer = procedure.privatise(study, combined(procedure, study, sent, held[receiver]).summary, noise)
    check_own_release(procedure, study, receiver, answer)
    return sent | {receiver: answer}


def _first_round(
    procedure: Procedure, relay: Relay, study: Study, held: Mapping[str, Table], noise: NoiseSource
) -> dict[str, Release]:
    sent = {}
    for owner in relay.senders:
        own = procedure.privatise(study, procedure.summarise(study, held[owner.name]), noise)
        check_own_release(procedure, study, owner.name, own)
        sent[owner.name] = own
    return sent


def run_peer(
    procedure: Procedure,
    study: Study,
    tables: Sequence[Table],
    noise: NoiseSource,
    progress: Progress | None = None,
) -> PeerOutcome:
    """Play both owners' parts where the first round is sealed to the receiver, then the tester's part.

    The receiver gets a key of its own, which is drawn here and forgotten.

    Raises:
        StudyRefusedError: the procedure does not take the study.
    """
    key = PrivateKey.generate()
    sealing = {"key": key.public_hex, "sealing": certify(key)}
    receiver = study.parameters["receiver"]
    owners = (o.model_copy(update=sealing) if o.name == receiver else o for o in study.owners)
    study = study.model_copy(update={"owners": tuple(owners)})
    held = held_by_senders(study, tables)
    try:
        procedure.check(study)
        relay = relay_of(procedure, study)
        if relay is None:
            raise StudyError("this study has no receiver")
        sent = _first_round(procedure, relay, study, held, noise)
        found_there = combined(procedure, study, sent, held[relay.receiver.name])
        releases: dict[str, Release] = {}
        if relay.publishes:
            published = procedure.privatise(study, found_there.summary, noise)
            check_release(procedure, study, published)
            releases[relay.receiver.name] = published
        units = dict.fromkeys(held, sent[relay.sender.name].units)
        verdict = conclude(procedure, study, releases, units, progress)
    except StudyError as error:
        raise StudyRefusedError(str(error)) from error
    if found_there.finding is None:
        raise TypeError("the procedure keeps no finding")
    finding: Any = result_from(found_there.finding, study)
    stated: Any = result_from(verdict, study)
    return PeerOutcome(finding, stated)


def in_masks(procedure: Procedure, study: Study, releases: Mapping[str, Release]) -> dict[str, Release]:
    """Mask every owner's noisy release, with keys that are drawn here and forgotten."""
    secrets_of = {name: draw_mask_secret() for name in releases}
    keys = {name: mask_public_hex(secret) for name, secret in secrets_of.items()}
    roster = roster_of(digest(encode(study)), keys, keys)
    found = {name: masked(release, roster, name, secrets_of[name]) for name, release in releases.items()}
    for name, release in found.items():
        check_own_release(procedure, study, name, release)
    return found


def held_by_senders(study: Study, tables: Sequence[Table]) -> dict[str, Table]:
    """Return what each sender of the study summarises: an owner its own table, a curator all of them."""
    parts = {owner.name: table for owner, table in zip(study.owners, tables, strict=True)}
    return parts if study.curator is None else {study.curator.name: PooledTable(study.domain, parts)}


def _release(
    procedure: Procedure,
    study: Study,
    table: Table,
    noise: NoiseSource,
    *,
    order: np.random.Generator | None,
    progress: Progress | None,
) -> Release:
    plan = planned(procedure, study)
    told = {} if "progress" not in signature(plan.summarise).parameters else {"progress": progress}
    release = plan.privatise(plan.summarise(table, order, **told), noise)
    check_release(procedure, study, release)
    return release


class Terms(TypedDict):
    """What every owner spends, the test's level, and the public seed: arguments of :func:`local_study`."""

    epsilon: float
    delta: float
    alpha: float
    seed: str


def terms(epsilon: float, delta: float, alpha: float, seed: int | None) -> Terms:
    """Return a study's terms; its public seed is fresh, or derived from a number.

    Raises:
        InputError: epsilon or delta is none.
    """
    budget_of(epsilon, delta)
    return {"epsilon": epsilon, "delta": delta, "alpha": alpha, "seed": seed_text(seed)}


def budget_of(epsilon: float, delta: float) -> Budget:
    """Return what every owner spends; raises InputError where it is no budget."""
    try:
        budget = Budget.of(epsilon, delta)
        require_delta(budget)
    except ArithmeticError as error:
        raise InputError("epsilon and delta must be numbers") from error
    except StudyError as error:
        raise InputError(str(error)) from error
    except ValueError as error:
        raise InputError(f"epsilon and delta: {error}") from error
    return budget


def local_study(
    procedure: str,
    domain: Domain,
    names: Sequence[str],
    parameters: Mapping[str, Any],
    *,
    epsilon: float,
    delta: float,
    alpha: float,
    seed: str,
    curated: bool = False,
    columns: Sequence[tuple[str, ...] | None] | None = None,
    aligned: Aligned | None = None,
    unit_rows: UnitRows = "average",
) -> Study:
    """Build a study for this process alone: its parties' keys sign nothing.

    Args:
        procedure: the procedure's name.
        domain: the columns, with their public bounds.
        names: the owners' names.
        parameters: the procedure's; those that are None are left out.
        epsilon: what every owner spends.
        delta: what every owner spends.
        alpha: level of the test.
        seed: public randomness, 32 hexadecimal digits.
        curated: whether a curator holds the owners' data.
        columns: each owner's columns; by default every owner holds all of them.
        aligned: how the owners' units were matched by their ids; by default their rows' order does it.
        unit_rows: what counts of an aligned unit's rows; tables of others hold what counts.

    Raises:
        InputError: the parts do not make a study; the message says what to change.
    """
    try:
        return Study(
            title="local",
            procedure=procedure,
            parameters={key: value for key, value in parameters.items() if value is not None},
            domain=domain,
            unit_column=None if aligned is None else aligned.unit_column,
            unit_rows="average" if aligned is None else unit_rows,
            alignment=None if aligned is None else aligned.digest,
            owners=tuple(
                Owner(name=name, key=_no_key(name), data_set="local", columns=held)
                for name, held in zip(names, columns or [None] * len(names), strict=True)
            ),
            curator=_party(CURATOR) if curated else None,
            tester=_party("local.tester"),
            analyst=_party("local.analyst"),
            budget=budget_of(epsilon, delta),
            level=alpha,
            created_at=0,
            deadline=1,
            seed=seed,
        )
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = {"level": "alpha", "epsilon_micro": "epsilon", "delta_pico": "delta"}.get(
            str(first["loc"][-1]) if first["loc"] else "", ".".join(str(part) for part in first["loc"])
        )
        raise InputError(f"{place or 'the study'}: {first['msg'].removeprefix('Value error, ')}") from error


def owner_names(names: Sequence[str] | None, count: int) -> list[str]:
    """Return the owners' names: those given, or sample-1, sample-2, ...

    Raises:
        InputError: there is not one for each sample.
    """
    listed = [f"sample-{index}" for index in range(1, count + 1)] if names is None else list(names)
    if len(listed) != count:
        raise InputError(f"names holds {len(listed)} names for {count} samples: pass one for each")
    return listed


def seed_text(seed: int | None) -> str:
    """Return the study's public seed: fresh, or derived from a number."""
    if seed is None:
        return secrets.token_hex(16)
    return hashlib.sha256(f"tacit.local {seed}".encode()).hexdigest()[:32]


def _no_key(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()


def _party(name: str) -> Party:
    return Party(name=name, key=_no_key(name))
