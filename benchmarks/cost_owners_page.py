"""The page of a thousand owners: what each number of owners took of everyone."""

from collections.abc import Mapping

from benchmarks.cost_federation import PROCESSES, THREADS
from benchmarks.cost_limits import limits_text
from benchmarks.costs import machine, slope
from benchmarks.resumable import Counts, table

NUMBERS = (10, 100, 1000)
"""Owners of the studies that are run."""

ROWS, COLUMNS = 1000, 5
"""Rows of every owner, and numeric columns: a release of 190 numbers."""

DATABASES = ("SQLite", "PostgreSQL")

GROWN = "database, bytes"
"""What a database takes on disk; the page has by how much it grew."""

MEASURES: Mapping[str, tuple[str, ...]] = {
    "Each owner": (
        "study, bytes",
        "release, bytes",
        "owner open the study, CPU s",
        "owner check, CPU s",
        "owner read and summarise, CPU s",
        "owner noise, CPU s",
        "owner check and sign, CPU s",
        "owner, CPU s",
        "owner at most, CPU s",
    ),
    "Whoever verifies": (
        "releases, bytes",
        "SQLite, transcript, bytes",
        "tacit verify, CPU s",
        "verification, CPU s",
        "verification, MiB",
    ),
} | {
    f"The tester, on {name}": tuple(
        f"{name}, {what}"
        for what in (
            *(
                f"{stage}: tester CPU, s"
                for stage in (
                    "enrolment",
                    "study",
                    "inboxes and fetches",
                    "uploads",
                    "verdict",
                    "transcript",
                )
            ),
            "verdict: wall, s",
            "transcript: tester peak, MiB",
            "database, bytes",
        )
    )
    for name in DATABASES
}
"""The page's tables: headings, and what is shown below each."""


def text(counts: Counts) -> str:
    """Write the page."""
    parts = [_HEAD.replace("{machine}", machine())]
    for heading, measures in MEASURES.items():
        rows = {_short(measure): _row(counts, measure) for measure in measures}
        parts.append(f"## {heading}\n\n{table(rows, '')}")
    parts += [_needs(counts), limits_text(counts.rate("1000 owners", "release, bytes"))]
    return "\n".join(part for part in parts if part)


def _short(measure: str) -> str:
    for name in DATABASES:
        measure = measure.removeprefix(f"{name}, ")
    return measure


def _value(counts: Counts, number: int, measure: str) -> float | None:
    """Return what was measured; of a database, by how much it grew."""
    value = counts.rate(f"{number} owners", measure)
    if value is None or not measure.endswith(GROWN):
        return value
    return value - (counts.rate(f"{number} owners", measure.replace(GROWN, "empty database, bytes")) or 0.0)


def _row(counts: Counts, measure: str) -> dict[str, str]:
    values = {number: _value(counts, number, measure) for number in NUMBERS}
    shown = {f"{number} owners": _number(value) for number, value in values.items()}
    pairs = [(number, value) for number, value in values.items() if value]
    fitted = slope(*zip(*pairs[-2:], strict=True)) if len(pairs) > 1 else None
    return shown | {"exponent, last two": "" if fitted is None else f"{fitted:.2f}"}


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _needs(counts: Counts) -> str:
    """Say what a study of a thousand owners needs, from what was measured."""

    def of(measure: str) -> float:
        return _value(counts, 1000, measure) or 0.0

    if not of("owner, CPU s"):
        return ""
    stages = [m for m in MEASURES["The tester, on SQLite"] if m.endswith("tester CPU, s")]
    sent = 1000 * of("study, bytes") + of("releases, bytes") + of("SQLite, transcript, bytes")
    return _NEEDS.format(
        owner_cpu=of("owner, CPU s"),
        study=of("study, bytes") / 1e3,
        release=of("release, bytes") / 1e3,
        sqlite_cpu=sum(of(stage) for stage in stages),
        postgres_cpu=sum(of(stage.replace("SQLite", "PostgreSQL")) for stage in stages),
        peak=max(of(f"{name}, transcript: tester peak, MiB") for name in DATABASES),
        disk=max(of(f"{name}, {GROWN}") for name in DATABASES) / 1e6,
        sent=sent / 1e6,
        transcript=of("SQLite, transcript, bytes") / 1e6,
        verify_cpu=of("tacit verify, CPU s"),
        verify_mib=of("verification, MiB"),
    )


_HEAD = f"""# A thousand owners

    python -m benchmarks.cost_owners

One study of `kernel_two_sample`, {COLUMNS} numeric columns, {ROWS} rows at every owner, ε = 1, run in
one piece on {{machine}}: a tester process, HTTP on the loopback interface without TLS, every owner with
a key, a file and fresh tokens. Each is enrolled by an invitation, reads its inbox, fetches the study,
makes its release with the agent's code and uploads it; {PROCESSES * THREADS} requests are under way at
once. The analyst waits for the verdict, fetches the transcript and verifies it with `tacit verify`.
Ledger and schedule of an agent are not part of this. CPU seconds are user and system; other work ran on
the machine, so that wall time is an upper bound. A run was made once for each number of owners, up to
the thousand: nothing here is extrapolated.
"""

_NEEDS = """## What a study of a thousand owners needs

Measured, for these releases of 190 numbers; what other procedures send is in [costs](costs.md), and
what a thousand agents cost that only wait is in [load](load.md).

- **An institution**: {owner_cpu:.3f} s of one processor, {study:.0f} kB received (the study names
  everyone) and {release:.1f} kB sent.
- **The tester**: {sqlite_cpu:.1f} s of one processor on SQLite, {postgres_cpu:.1f} s on PostgreSQL (without
  the server's own), enrolments included; {peak:.0f} MiB at its peak, modules included; {disk:.1f} MB of disk;
  {sent:.0f} MB over the network, most of it the study, a thousand times.
- **Whoever verifies**: a transcript of {transcript:.1f} MB, {verify_cpu:.1f} s of one processor and
  {verify_mib:.0f} MiB beyond the modules.
"""
