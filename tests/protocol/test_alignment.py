"""Two owners' units: one form for each id, one order, and digests that differ where the units do."""

import base64
import hmac
import unicodedata
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from tacit_protocol.messages.alignment import (
    BUCKETS_MAX,
    ID_LENGTH_MAX,
    NO_PROOF,
    AlignmentError,
    AlignmentMessage,
    UnitHashes,
    UnitKey,
    bucket_count,
    bucket_ends,
    buckets_text,
    canonical_id,
)
from tacit_protocol.messages.encoding import encode
from tacit_protocol.messages.study import Party
from tacit_protocol.signing import ALIGNMENT_TYPE, ENVELOPE_BYTES_MAX, PrivateKey, sign_envelope

KEY = UnitKey(bytes(range(32)))


def units_of(ids: list[str], key: UnitKey = KEY) -> UnitHashes:
    return np.unique(key.hashes(ids))


def names(count: int) -> list[str]:
    return [f"person {i}" for i in range(count)]


@pytest.mark.parametrize(
    ("text", "form"),
    [
        *(("07", "07"), (" 7\t", "7"), ("a b", "a b"), ("Ab", "Ab"), ("", None), (" \u3000", None)),
        *(("\u00a0Jose\u0301\u2003", "Jos\u00e9"), ("\u212b", "\u00c5"), ("\ufb01", "\ufb01")),
    ],
)
def test_an_id_has_one_form(text: str, form: str | None) -> None:
    assert canonical_id(text) == form


def test_ids_that_cannot_be_compared_are_refused_without_being_quoted() -> None:
    for text in ("secret" * ID_LENGTH_MAX, "secret\ufffd"):
        with pytest.raises(AlignmentError) as refused:
            canonical_id(text)
        assert "secret" not in str(refused.value)


def test_every_composed_letter_reads_as_its_parts_do() -> None:
    """All of the Latin and Greek letters that Unicode composes, as one system stores them and as another."""
    letters = [chr(code) for code in range(0xC0, 0x2000) if unicodedata.decomposition(chr(code))]
    for letter in letters:
        assert canonical_id(f"x{letter}x") == canonical_id(unicodedata.normalize("NFD", f"x{letter}x"))


def test_the_order_is_that_of_hmac_sha256() -> None:
    found = KEY.hashes(["7", "Jos\u00e9"])
    label = b"tacit/alignment/1/unit\0"
    expected = [
        int.from_bytes(hmac.digest(KEY.secret, label + text.encode(), "sha256")[:8], "big")
        for text in ("7", "Jos\u00e9")
    ]
    assert found.tolist() == expected
    # A reference value: a change of it would break every alignment there is.
    assert [f"{hashed:016x}" for hashed in KEY.hashes(["7"])] == ["33e2e61a283af107"]


def test_another_key_gives_another_order_digest_and_fingerprint() -> None:
    other = UnitKey(bytes(32))
    ids = names(100)
    assert np.argsort(KEY.hashes(ids)).tolist() != np.argsort(other.hashes(ids)).tolist()
    assert KEY.digest(units_of(ids)) != other.digest(units_of(ids, other))
    assert KEY.fingerprint != other.fingerprint
    assert KEY.secret.hex() not in KEY.fingerprint
    with pytest.raises(AlignmentError):
        UnitKey(bytes(31))


def test_equal_units_have_one_digest_and_any_other_units_another() -> None:
    ids = names(50)
    digest = KEY.digest(units_of(ids))
    assert digest == KEY.digest(units_of([*reversed(ids), ids[3]]))
    for changed in (ids[1:], [*ids, "another"], [*ids[1:], "another"]):
        assert KEY.digest(units_of(changed)) != digest


def test_buckets_hold_sixteen_to_thirty_two_units_and_are_bounded() -> None:
    counts = [bucket_count(units) for units in (1, 31, 32, 1000, 10**6, 10**8)]
    assert counts == [1, 1, 2, 32, 32768, BUCKETS_MAX]
    units = units_of(names(5000))
    for buckets in (1, 2, 256):
        ends = bucket_ends(units, buckets)
        assert ends[-1] == len(units)
        sizes = np.diff(ends, prepend=0)
        # Twenty units expected at least: none empty, with probability 1 - 256 exp(-19).
        assert sizes.min() > 0
        bits = buckets.bit_length() - 1
        if bits:
            assert np.array_equal(np.repeat(np.arange(buckets), sizes), units >> np.uint64(64 - bits))


def test_a_bucket_differs_exactly_where_a_unit_does() -> None:
    units = units_of(names(4000))
    whole = KEY.bucket_digests(units, 128)
    for place in (0, 1777, 3999):
        without = np.delete(units, place)
        differ = np.flatnonzero(KEY.bucket_digests(without, 128) != whole)
        assert differ.tolist() == [int(units[place] >> np.uint64(57))]


def message_of(ids: list[str], **changes: Any) -> AlignmentMessage:
    units = units_of(ids)
    fields: dict[str, Any] = {
        "owner": Party(name="north", key="a" * 64),
        "data_set": "patients",
        "unit_column": "id",
        "key_fingerprint": KEY.fingerprint,
        "units": len(units),
        "digest": KEY.digest(units),
        "buckets": buckets_text(KEY.bucket_digests(units, bucket_count(len(units)))),
        "proof": NO_PROOF,
    }
    return AlignmentMessage(**{**fields, **changes})


def test_a_message_holds_no_id_no_hash_and_no_key() -> None:
    content = encode(message_of(names(200)))
    for text in names(200):
        assert text.encode() not in content
    for hashed in KEY.hashes(names(200)):
        for form in (f"{hashed:016x}".encode(), base64.b64encode(int(hashed).to_bytes(8, "big"))[:10]):
            assert form not in content
    assert KEY.secret.hex().encode() not in content


def test_the_largest_message_fits_its_envelope() -> None:
    digests = np.zeros(BUCKETS_MAX, dtype=np.uint64) - np.uint64(1)
    message = message_of(names(20), buckets=buckets_text(digests), units=2**40, unit_column="\u3000" * 128)
    sealed = sign_envelope(encode(message), ALIGNMENT_TYPE, PrivateKey.generate())
    assert len(sealed) < ENVELOPE_BYTES_MAX
    with pytest.raises(ValidationError):
        message_of(names(20), buckets=buckets_text(np.zeros(2 * BUCKETS_MAX, dtype=np.uint64)))


def test_only_the_key_proves_and_every_change_is_seen() -> None:
    proof = KEY.proof(b"content")
    assert KEY.proves(b"content", proof)
    assert not KEY.proves(b"Content", proof)
    assert not UnitKey(bytes(32)).proves(b"content", proof)
