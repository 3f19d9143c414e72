"""What comes behind a refused batch."""

from __future__ import annotations

from ister.gateway.refused import Refused
from ister.wal.partition import Partition
from ister.wal.settings import TopicSettings
from ister.wal.tests.batches import make_batch

PARTITION = Partition(b"t" * 16, 0, TopicSettings())
OTHER = Partition(b"t" * 16, 1, TopicSettings())
LAST = 2**31 - 1


def counted(sequence: int, producer_id: int = 7, epoch: int = 0) -> bytes:
    return make_batch([b"v"], producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)


def test_an_idempotent_producer_goes_on_with_the_refused_batch() -> None:
    """Everything behind it is refused until exactly that one comes."""
    refused = Refused()
    refused.note(PARTITION, counted(5))
    refused.note(PARTITION, counted(6))
    assert refused.is_behind(PARTITION, counted(6))
    refused.all_answered()
    assert refused.is_behind(PARTITION, counted(7))
    assert not refused.is_behind(PARTITION, counted(4))  # a retry of what was accepted
    assert not refused.is_behind(PARTITION, counted(5))
    assert not refused.is_behind(PARTITION, counted(6))
    assert not refused.first


def test_sequences_wrap() -> None:
    """Behind the largest comes 0."""
    refused = Refused()
    refused.note(PARTITION, counted(LAST))
    assert refused.is_behind(PARTITION, counted(0))
    assert not refused.is_behind(PARTITION, counted(LAST - 1))


def test_a_new_epoch_begins_anew() -> None:
    """The producer has given up on the refused batch."""
    refused = Refused()
    refused.note(PARTITION, counted(5))
    assert not refused.is_behind(PARTITION, counted(0, epoch=1))
    assert not refused.first


def test_others_are_not_held() -> None:
    """Another producer, another partition."""
    refused = Refused()
    refused.note(PARTITION, counted(5))
    assert not refused.is_behind(PARTITION, counted(9, producer_id=8))
    assert not refused.is_behind(OTHER, counted(9))
    assert not refused.is_behind(PARTITION, make_batch([b"v"]))


def test_who_does_not_count_goes_on_when_everything_is_answered() -> None:
    """Only then may it know of the refusal."""
    refused = Refused()
    refused.note(PARTITION, make_batch([b"1"]))
    assert refused.is_behind(PARTITION, make_batch([b"2"]))
    assert not refused.is_behind(OTHER, make_batch([b"2"]))
    refused.all_answered()
    assert not refused.is_behind(PARTITION, make_batch([b"2"]))


def test_what_is_no_batch() -> None:
    """A few bytes are held like a producer that does not count."""
    refused = Refused()
    refused.note(PARTITION, b"")
    assert refused.is_behind(PARTITION, b"x")
