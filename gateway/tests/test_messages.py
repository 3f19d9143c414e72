"""The generated codec against kio, kafka-python, and bytes that lie."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ister.gateway.protocol import generate, messages
from ister.gateway.protocol.errors import ProtocolError
from ister.gateway.protocol.messages import metadata
from ister.gateway.protocol.schema import APIS
from ister.gateway.tests import message_values as values

FEW = settings(
    max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None
)
BEHIND_KIO = {("delete_groups", 3)}

each_version = pytest.mark.parametrize("case", values.CASES, ids=values.case_name)


@each_version
@FEW
@given(data=st.data())
def test_bytes_are_those_of_both_oracles(case: tuple[str, str, int], data: Any) -> None:
    """What we write, kio and kafka-python read and write again, byte for byte; so do we."""
    api, side, version = case
    message = data.draw(values.messages(api, side, version))
    codec = values.codec_of(api, side)
    written = bytes(codec.write(message, version))
    assert codec.read(written, version) == message
    assert codec.read(memoryview(bytearray(written)), version) == message
    if (api, version) not in BEHIND_KIO:
        assert values.through_kio(api, side, version, written) == written
    again = values.through_kafka_python(api, side, version, written)
    assert again is None or again == written


@each_version
@settings(FEW, max_examples=2)
@given(data=st.data())
def test_cut_short_or_too_long_is_refused(case: tuple[str, str, int], data: Any) -> None:
    """A body is exactly its message: every prefix and every trailing byte is refused."""
    api, side, version = case
    codec = values.codec_of(api, side)
    written = bytes(codec.write(data.draw(values.messages(api, side, version)), version))
    for size in range(0, len(written), max(1, len(written) // 60)):
        with pytest.raises(ProtocolError):
            codec.read(written[:size], version)
    with pytest.raises(ProtocolError):
        codec.read(written + b"\0", version)


@each_version
@settings(FEW, max_examples=8)
@given(data=st.data())
def test_arbitrary_and_damaged_bytes(case: tuple[str, str, int], data: Any) -> None:
    """Whatever comes in, a message or ProtocolError comes out, never another exception."""
    api, side, version = case
    codec = values.codec_of(api, side)
    if data.draw(st.booleans()):
        raw = bytearray(data.draw(st.binary(max_size=80)))
    else:
        raw = codec.write(data.draw(values.messages(api, side, version)), version)
        for _ in range(data.draw(st.integers(1, 4))):
            if raw:
                raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    try:
        message = codec.read(raw, version)
    except ProtocolError:
        return
    assert codec.read(codec.write(message, version), version) == message


@each_version
def test_every_position_may_claim_the_most(case: tuple[str, str, int]) -> None:
    """A length of 2^32 items or 2^31 bytes at any place takes no memory: it is refused or data."""
    api, side, version = case
    codec = values.codec_of(api, side)
    for start in range(24):
        for claim in (b"\xff\xff\xff\xff\x0f", b"\x7f\xff\xff\xff", b"\x80\x80\x80\x80\x08"):
            for tail in (b"", b"\0" * 40):
                try:
                    codec.read(b"\x01" * start + claim + tail, version)
                except ProtocolError:
                    continue


def test_array_of_four_thousand_million_topics() -> None:
    """The body that aborted a native parser is an ordinary refusal here."""
    for claim in (b"\xff\xff\xff\xff\x0f", b"\x81\x80\x80\x80\x08"):
        with pytest.raises(ProtocolError):
            metadata.REQUEST.read(claim, 12)
    with pytest.raises(ProtocolError):
        metadata.REQUEST.read(struct.pack(">i", 2**31 - 1), 1)


def test_items_of_one_message_are_limited() -> None:
    """Two bytes an item must not become a hundred: the number of items has its own limit."""
    body = struct.pack(">i", 300_000) + b"\0\0" * 300_000
    with pytest.raises(ProtocolError, match="more array items"):
        metadata.REQUEST.read(body, 0)
    assert len(metadata.REQUEST.read(body, 0, items_max=300_000).topics or ()) == 300_000


def test_unknown_tagged_fields_are_skipped() -> None:
    """Kafka adds tags without a new version: they are read over, in every struct."""
    plain = metadata.REQUEST.write(metadata.MetadataRequest(topics=()), 12)
    assert plain[-1] == 0
    tagged = plain[:-1] + b"\x02" + b"\x05\x03abc" + b"\x90\x03\x00"
    assert metadata.REQUEST.read(tagged, 12) == metadata.REQUEST.read(plain, 12)
    with pytest.raises(ProtocolError):
        metadata.REQUEST.read(plain[:-1] + b"\x01\x05\x7fabc", 12)


def test_fields_of_other_versions_are_dropped() -> None:
    """A handler builds one answer; a version writes what it has and nothing else."""
    api_versions = values.module_of("api_versions")
    message = api_versions.ApiVersionsResponse(
        api_keys=(), throttle_time_ms=9, finalized_features_epoch=7
    )
    assert bytes(api_versions.RESPONSE.write(message, 0)) == b"\0\0" + b"\0\0\0\0"
    with_tag = bytes(api_versions.RESPONSE.write(message, 3))
    assert with_tag.endswith(b"\x01\x01\x08" + struct.pack(">q", 7))
    assert api_versions.RESPONSE.read(with_tag, 3) == message


def test_null_where_a_version_has_none_is_our_mistake() -> None:
    """Metadata 0 cannot say null: writing it raises, it does not write something else."""
    with pytest.raises(ValueError, match="null"):
        metadata.REQUEST.write(metadata.MetadataRequest(topics=None), 0)


def test_versions_outside_the_range_are_refused() -> None:
    """A guessed layout is never decoded."""
    for version in (-1, 14):
        with pytest.raises(ProtocolError):
            metadata.REQUEST.read(b"", version)


def test_committed_files_are_what_the_generator_writes() -> None:
    """Nobody edits generated files; running the generator changes nothing."""
    folder = Path(messages.__file__).parent
    assert {p.name: p.read_text() for p in folder.glob("*.py")} == generate.generate()
    assert set(messages.MODULES) == {api for api, _, _ in APIS}


def test_messages_are_values() -> None:
    """Equal by type and fields, hashable, readable, and replaced rather than changed."""
    one = metadata.MetadataResponseBroker(node_id=1, host="a", port=2)
    assert one == one.replace() != one.replace(port=3)
    assert hash(one) == hash(one.replace())
    assert "node_id=1" in repr(one)
    assert one != object()
