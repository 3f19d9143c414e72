"""Leader epochs as requests carry them: is the client's the one of now?"""

from __future__ import annotations

from bisect import bisect_right

from ister.gateway.protocol.error_codes import ErrorCode
from ister.wal.partition import Partition


def epoch_error(partition: Partition, epoch: int) -> ErrorCode:
    """-1: the client does not say. An older epoch must look at Metadata, a newer one cannot be."""
    if epoch == -1 or epoch == partition.leader_epoch:
        return ErrorCode.NONE
    if epoch < partition.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    return ErrorCode.UNKNOWN_LEADER_EPOCH


def epoch_at(partition: Partition, offset: int) -> int:
    """The leader epoch in which `offset` was (or will be) appended."""
    starts = [start for _, start in partition.epochs]
    return partition.epochs[max(0, bisect_right(starts, offset) - 1)][0]
