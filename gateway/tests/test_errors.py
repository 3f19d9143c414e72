"""The one table from exception class to Kafka's error code."""

from __future__ import annotations

import pytest

from ister.dispatch.errors import DispatchError
from ister.gateway.coordinator.errors import CoordinatorError, UnknownMember
from ister.gateway.errors import RequestError, code_of, has_row, words_of
from ister.gateway.protocol.error_codes import ErrorCode
from ister.metadata.errors import MetadataError
from ister.wal.errors import LogError, OffsetOutOfRange


def _with_subclasses(kind: type[BaseException]) -> set[type[BaseException]]:
    return {kind}.union(*(_with_subclasses(each) for each in kind.__subclasses__()))


@pytest.mark.parametrize("base", [LogError, MetadataError, DispatchError, CoordinatorError])
def test_every_class_has_a_row(base: type[BaseException]):
    """Pitfall 5: a client never gets a number by accident. Private classes have their base's."""
    ours = {each for each in _with_subclasses(base) if each.__module__.endswith(".errors")}
    assert [each for each in ours if not has_row(each)] == []


def test_codes_and_words():
    """No error is 0 and no words; what nobody knows is UNKNOWN_SERVER_ERROR."""
    assert code_of(None) is ErrorCode.NONE
    assert words_of(None) is None
    assert code_of(UnknownMember()) is ErrorCode.UNKNOWN_MEMBER_ID
    assert code_of(OffsetOutOfRange(9, 0, 3)) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert code_of(KeyError("x")) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert words_of(UnknownMember())


def test_a_refusal_may_be_without_words():
    """Kafka has none in some places, and null is not the name of a class."""
    refused = RequestError(ErrorCode.INVALID_REQUEST)
    assert code_of(refused) is ErrorCode.INVALID_REQUEST
    assert words_of(refused) is None
    assert words_of(RequestError(ErrorCode.INVALID_REQUEST, "why")) == "why"
