"""How near the largest studies come to the limits of messages: found by making them, not by estimating."""

from benchmarks.resumable import table
from tacit_protocol.domain.columns import COLUMNS_MAX, CategoricalColumn, Domain, NumericColumn
from tacit_protocol.messages.encoding import MESSAGE_BYTES_MAX, decode, encode
from tacit_protocol.messages.study import OWNERS_MAX, Owner, Party, Study
from tacit_protocol.messages.transcript import TRANSCRIPT_BYTES_MAX, numbers_max
from tacit_protocol.privacy.guarantee import COORDINATES_MAX, Budget
from tacit_protocol.signing.envelope import STUDY_TYPE, seal
from tacit_protocol.signing.keys import PrivateKey


def large_study(owners: int, domain: Domain, name_length: int = 10) -> Study:
    """Return a study of so many owners, whose names have that length."""
    return Study(
        title="large",
        procedure="kernel_two_sample",
        parameters={},
        domain=domain,
        owners=tuple(
            Owner(
                name=f"{i:06d}".ljust(name_length, "x"),
                key=f"{i:064x}",
                data_set="x" * name_length,
                units=1000,
            )
            for i in range(owners)
        ),
        tester=Party(name="tester", key="f" * 64),
        analyst=Party(name="analyst", key="e" * 64),
        budget=Budget.of(1.0, 1e-6),
        level=0.05,
        created_at=0,
        deadline=1,
        seed="0" * 32,
    )


def numbers(columns: int) -> Domain:
    """Return so many numeric columns."""
    return Domain(columns=tuple(NumericColumn(name=f"column-{i}", lower=-5, upper=5) for i in range(columns)))


def categories(columns: int, levels: int) -> Domain:
    """Return so many categorical columns."""
    texts = tuple(f"level-{i}" for i in range(levels))
    return Domain(columns=tuple(CategoricalColumn(name=f"column-{i}", levels=texts) for i in range(columns)))


def study_bytes(study: Study) -> int:
    """Return the size of a study's signed envelope; raises MessageError where it cannot be read back."""
    payload = encode(study)
    decode(Study, payload)
    return len(seal(payload, STUDY_TYPE, PrivateKey.generate()))


LARGE = {
    "1000 owners, 5 columns": large_study(OWNERS_MAX, numbers(5)),
    "1000 owners, names of 63 letters, 5 columns": large_study(OWNERS_MAX, numbers(5), 63),
    "1000 owners, 1000 numeric columns": large_study(OWNERS_MAX, numbers(COLUMNS_MAX)),
    "1000 owners, names of 63 letters, 1000 numeric columns": large_study(
        OWNERS_MAX, numbers(COLUMNS_MAX), 63
    ),
    "1000 owners, 30 columns of 1000 levels": large_study(OWNERS_MAX, categories(30, 1000)),
}
"""Studies at the edge of what the format takes."""


def limits_text(release_bytes: float | None) -> str:
    """Return the page's part on limits."""
    rows = {}
    for name, study in LARGE.items():
        size = study_bytes(study)
        rows[name] = {
            "signed, kB": f"{size / 1e3:.0f}",
            "of the largest body": f"{size / MESSAGE_BYTES_MAX:.2f}",
        }
    each = TRANSCRIPT_BYTES_MAX // OWNERS_MAX
    per_number = "" if release_bytes is None else f" (this study's are {release_bytes / 1e3:.1f} kB)"
    return _LIMITS.format(
        owners=OWNERS_MAX,
        table=table(rows, "study"),
        transcript=TRANSCRIPT_BYTES_MAX // 2**20,
        each=each / 1e3,
        this=per_number,
        largest=COORDINATES_MAX,
        numbers=numbers_max(OWNERS_MAX),
    )


_LIMITS = """## Limits

A study has at most {owners} owners. Its message must fit one body of a mebibyte, signed:

{table}
A transcript has at most {transcript} MiB, so that of {owners} releases each may have {each:.0f} kB{this}.
A release may have {largest:,} numbers, which take up to 960 kB: a study of many owners and many numbers
could be answered and never verified. A study of so many owners whose releases have more than {numbers:,}
numbers is therefore refused, by everyone who checks studies, before anything is spent on it.
"""
