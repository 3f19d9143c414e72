"""Primitives, headers, keys and error codes."""

from __future__ import annotations

import importlib
import pkgutil

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode as KioErrorCode

from ister.gateway.protocol.api import FLEXIBLE_FROM, ApiKey, is_flexible
from ister.gateway.protocol.error_codes import ErrorCode
from ister.gateway.protocol.errors import ProtocolError
from ister.gateway.protocol.headers import read_response_header, request_frame, response_head
from ister.gateway.protocol.hot import compact_size, read_uvarint
from ister.gateway.protocol.reader import CompactReader, PlainReader
from ister.gateway.protocol.writer import CompactWriter, PlainWriter, uvarint_bytes

kinds = pytest.mark.parametrize(
    ("writer", "reader"), [(PlainWriter, PlainReader), (CompactWriter, CompactReader)]
)


@given(value=st.integers(0, 2**32 - 1))
def test_varints(value: int) -> None:
    """Both implementations agree, up to 32 bits."""
    data = uvarint_bytes(value)
    assert compact_size(value) == data
    assert read_uvarint(data, 0) == (value, len(data))
    assert PlainReader(data).uvarint() == value


@given(value=st.integers(-(2**31), 2**31 - 1))
def test_signed_varints(value: int) -> None:
    """Zigzag: small numbers of either sign are short."""
    writer = PlainWriter()
    writer.varint(value)
    assert PlainReader(writer.out).varint() == value
    assert len(writer.out) == 1 or not -64 <= value < 64


@pytest.mark.parametrize(
    "data", [b"\xff\xff\xff\xff\x1f", b"\x80\x80\x80\x80\x80\x01", b"\x80" * 9]
)
def test_varints_of_more_than_32_bits_are_refused(data: bytes) -> None:
    """The protocol has none."""
    with pytest.raises(ProtocolError):
        PlainReader(data).uvarint()
    with pytest.raises(ProtocolError):
        read_uvarint(data, 0)


@kinds
def test_values_come_back(writer: type[PlainWriter], reader: type[PlainReader]) -> None:
    """Every primitive, plain and compact."""
    out = writer()
    out.uint32(2**32 - 1)
    out.float64(1.5)
    out.uuids([bytes(range(16))])
    out.int8s([1, -1])
    out.nullable_strings(None)
    out.nullable_blob(b"x" * 300)
    out.nullable_blob(None)
    out.nullable_int32s([])
    back = reader(out.out)
    assert back.uint32() == 2**32 - 1
    assert back.float64() == 1.5
    assert back.uuids() == (bytes(range(16)),)
    assert back.int8s() == (1, -1)
    assert back.nullable_strings() is None
    assert back.nullable_blob() == b"x" * 300
    assert back.nullable_blob() is None
    assert back.nullable_int32s() == ()
    back.finish()


@kinds
def test_strings_have_a_limit(writer: type[PlainWriter], reader: type[PlainReader]) -> None:
    """32,767 bytes, as Kafka has it, also where the length could be larger."""
    out = writer()
    out.string("x" * 32767)
    assert len(reader(out.out).string()) == 32767
    with pytest.raises(ValueError, match="32768"):
        writer().string("x" * 32768)
    long = CompactWriter()
    long.blob(b"x" * 32768)
    with pytest.raises(ProtocolError):
        CompactReader(long.out).string()


@pytest.mark.parametrize("mark", [0, 2, 127, -2])
def test_mark_of_a_null_struct(mark: int) -> None:
    """Only -1 and 1 have a meaning."""
    data = mark.to_bytes(1, "big", signed=True) + b"\0"
    with pytest.raises(ProtocolError):
        PlainReader(data).nullable_struct(lambda r, v: r.int8(), 0)


def test_the_same_tag_twice_is_refused() -> None:
    """Which of the two would count?"""
    with pytest.raises(ProtocolError):
        CompactReader(b"\x02\x00\x01a\x00\x01b").tags()


def test_flexible_versions_are_those_of_the_schemas() -> None:
    """The header of a request depends on it, for every key that we know."""
    for key in ApiKey:
        package = importlib.import_module(f"kio.schema.{key.name.lower()}")
        for info in pkgutil.iter_modules(package.__path__):
            module = importlib.import_module(f"{package.__name__}.{info.name}.request")
            entity = [
                c for c in vars(module).values() if getattr(c, "__module__", "") == module.__name__
            ]
            assert entity[-1].__api_key__ == key
            assert entity[-1].__flexible__ == is_flexible(key, int(info.name[1:]))
    assert set(FLEXIBLE_FROM) == set(ApiKey)


def test_error_codes_are_those_of_kafka() -> None:
    """Pitfall 5: a wrong number reads as another error."""
    theirs = {code.name.upper(): (int(code), code.retriable) for code in KioErrorCode}
    assert {code.name: (int(code), code.retriable) for code in ErrorCode} == theirs
    assert int(ErrorCode.UNSUPPORTED_VERSION) == 35


@pytest.mark.parametrize(
    ("key", "version", "tags"), [(ApiKey.METADATA, 9, True), (ApiKey.API_VERSIONS, 3, False)]
)
def test_response_header_both_ways(key: ApiKey, version: int, tags: bool) -> None:
    """What the broker writes before an answer, a client of ours takes off again."""
    data = response_head(5, 4, tags) + b"body"
    assert int.from_bytes(data[:4], "big") == len(data) - 4
    correlation_id, body = read_response_header(data[4:], key, version)
    assert (correlation_id, bytes(body)) == (5, b"body")
    with pytest.raises(ProtocolError):
        read_response_header(b"abc", key, version)


def test_request_frame_has_a_plain_client_id() -> None:
    """G2: 16-bit length even in the flexible header."""
    assert request_frame(18, 3, 1, "ab", [b"x"]) == (
        b"\0\0\0\x0e" + b"\0\x12\0\x03\0\0\0\x01" + b"\0\x02ab" + b"\0" + b"x"
    )
