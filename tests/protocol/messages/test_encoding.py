"""Messages have one reading, and errors never repeat what was submitted."""

from typing import Annotated, Any

import pytest
from pydantic import Field, ValidationError, model_validator

from tacit_protocol.messages.encoding import (
    CONTAINERS_MAX,
    DEPTH_MAX,
    KEYS_MAX,
    MESSAGE_BYTES_MAX,
    OBJECT_KEYS_MAX,
    VALUES_MAX,
    MessageError,
    MessageTooLargeError,
    decode,
    encode,
)
from tacit_protocol.messages.study import DeclineMessage
from tacit_protocol.strict import StrictModel

CANARY = "canary-7391"


class Inner(StrictModel):
    amount: float = 0.0
    name: Annotated[str, Field(pattern="^[a-z]*$")] = ""


class Message(StrictModel):
    free: Any = None
    number: float = 0.0
    count: int = 0
    items: tuple[int, ...] = ()
    inner: dict[str, Inner] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _count_is_not_thirteen(self) -> "Message":
        if self.count == 13:
            raise ValueError("count must not be thirteen")
        return self


def refused(data: bytes) -> MessageError:
    with pytest.raises(MessageError) as caught:
        decode(Message, data)
    return caught.value


def test_encoding_is_canonical() -> None:
    message = Message(free={"z": 1, "a": "é"}, count=2)
    data = encode(message)
    expected = '{"count":2,"free":{"a":"é","z":1},"inner":{},"items":[],"number":0.0}'
    assert data == expected.encode()
    assert decode(Message, data) == message


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "\ud800", object()])
def test_encode_refuses_what_json_cannot_hold(value: object) -> None:
    with pytest.raises((MessageError, ValueError)):
        encode(Message(free={"x": value}))


def test_duplicate_keys_are_refused() -> None:
    for data in (b'{"count":1,"count":2}', b'{"free":{"a":1,"a":1}}', b'{"free":[{"a":1,"\\u0061":2}]}'):
        assert "same key twice" in refused(data).reason


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "1e400", "-1e400", "1e99999999"])
@pytest.mark.parametrize("field", ["free", "number", "count", "unknown"])
def test_numbers_that_are_not_finite_are_refused(field: str, text: str) -> None:
    assert refused(f'{{"{field}":{text}}}'.encode()).reason == "numbers must be finite"


@pytest.mark.parametrize("text", [str(2**63), str(-(2**63) - 1), "1" * 5000, "-" + "9" * 30])
@pytest.mark.parametrize("field", ["free", "count"])
def test_integers_beyond_64_bits_are_refused(field: str, text: str) -> None:
    assert "64 bits" in refused(f'{{"{field}":{text}}}'.encode()).reason


@pytest.mark.parametrize("opening", ["[", '{"a":', '[{"a":'])
@pytest.mark.parametrize("levels", [DEPTH_MAX, 1000, 100_000])
def test_depth_bombs_are_refused(opening: str, levels: int) -> None:
    assert "deeply" in refused(b'{"free":' + opening.encode() * levels).reason


def test_brackets_inside_text_are_not_depth() -> None:
    text = '[{"\\\\' * 1000
    assert decode(Message, encode(Message(free=text))).free == text


@pytest.mark.parametrize(
    "data", [b"", b"{", b"\xff\xfe", b"\xef\xbb\xbf{}", b"{}{}", b'{"a" 1}', b"{'a':1}", b'"\\ud800"', b"01"]
)
def test_what_is_not_json_is_refused(data: bytes) -> None:
    refused(data)


@pytest.mark.parametrize("text", ["\x00", "a\x00b", "\\\x00", "\\\\\x00"])
def test_nul_characters_are_refused(text: str) -> None:
    assert "NUL" in refused(encode(Message(free=text))).reason
    assert "NUL" in refused(encode(Message(free={text: 1}))).reason


def test_size_is_checked_before_anything_is_read() -> None:
    with pytest.raises(MessageTooLargeError):
        decode(Message, b"[" * (MESSAGE_BYTES_MAX + 1))


@pytest.mark.parametrize(
    ("data", "path"),
    [
        (f'{{"count":"{CANARY}"}}', "$.count"),
        (f'{{"{CANARY}":1}}', "$.*"),
        (f'{{"inner":{{"{CANARY}":{{"name":"{CANARY}"}}}}}}', "$.inner.*.name"),
        (f'{{"items":[1,"{CANARY}"]}}', "$.items[1]"),
        (f'{{"inner":{{"x":{{"{CANARY}":1}}}}}}', "$.inner.*.*"),
        ('{"count":13}', "$"),
        ('{"count":"1"}', "$.count"),
        ('{"count":true}', "$.count"),
        ("[1]", "$"),
    ],
)
def test_errors_say_where_and_never_what(data: str, path: str) -> None:
    error = refused(data.encode())
    assert error.path == path
    assert CANARY not in str(error)
    assert CANARY not in repr(error.__cause__)


def test_a_decline_names_public_rules_of_a_closed_list_alone() -> None:
    named = DeclineMessage(study="0" * 64, party="north", rule="too-few-units")
    assert decode(DeclineMessage, encode(named)) == named
    for other in (b"budget-exceeded", b"too-few-units ", b""):
        with pytest.raises(MessageError):
            decode(DeclineMessage, encode(named).replace(b"too-few-units", other))


# Messages that are refused cost little memory.


@pytest.mark.parametrize("field", ["items", "nested"])
def test_every_list_ends_at_its_first_wrong_item(field: str) -> None:
    class Nested(StrictModel):
        items: tuple[Inner, ...] = ()
        nested: tuple[tuple[int, ...], ...] = ()

    with pytest.raises(ValidationError) as wrong:
        Nested.model_validate_json(f'{{"{field}":[{"[true,true]," * 1000}0]}}')
    assert wrong.value.error_count() == 1


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"[" + b"0," * (VALUES_MAX - 1) + b"0]", None),
        (b"[" + b"0," * VALUES_MAX + b"0]", "the message holds too many values"),
        (b"[" + b"[]," * CONTAINERS_MAX + b"0]", "the message holds too many values"),
        (
            b"[" + b'{"a":0,"b":0,"c":0,"d":0,"e":0},' * (KEYS_MAX // 5 + 1) + b"0]",
            "the message holds too many values",
        ),
        (
            b"{" + b",".join(b'"%d":0' % i for i in range(OBJECT_KEYS_MAX + 1)) + b"}",
            "an object has too many keys",
        ),
        (b'["' + b'\\",[{:' * 100_000 + b'"]', None),
    ],
    ids=["values", "too many values", "containers", "keys", "keys of one object", "all of it text"],
)
def test_what_a_message_holds_is_counted_before_it_is_read(data: bytes, reason: str | None) -> None:
    assert refused(data).reason == (reason or "the value is not valid (model_type)")
