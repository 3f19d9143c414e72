"""The states of a classic group, and which may follow which.

The table is the law: `Rounds` asks it at every step, and a step that is not in it
is a mistake of ours.
"""

from __future__ import annotations

from enum import Enum


class GroupState(Enum):
    """The values are the words that Kafka's tools print."""

    # No members; cursors may be there. Heartbeat, sync: unknown member. Commit: only without
    # a generation. A join begins the first round; an expiry or a deletion ends the group.
    EMPTY = "Empty"

    # A round is being gathered. Join: parked until everybody is there or the time is up.
    # Heartbeat, sync: a rebalance is in progress. Commit: as the generation that was.
    # Left when all have joined (completing), or when nobody is left (empty).
    PREPARING_REBALANCE = "PreparingRebalance"

    # Members know their generation and wait for the leader's assignment. Join of a member with
    # nothing new: the same answer again; any other join begins a new round. Sync: parked until
    # the assignment is durable. Heartbeat: fine. Commit: a rebalance is in progress.
    # Left when the assignment is durable (stable), or when a member comes, goes or never syncs.
    COMPLETING_REBALANCE = "CompletingRebalance"

    # Everybody has an assignment. Join of the leader, or with anything new: a new round.
    # Sync: the assignment again. Heartbeat, commit: fine.
    STABLE = "Stable"

    # Deleted, or the broker stops. Everything: the coordinator is not available.
    DEAD = "Dead"


TRANSITIONS: dict[GroupState, frozenset[GroupState]] = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE, GroupState.DEAD}),
    GroupState.PREPARING_REBALANCE: frozenset(
        {GroupState.COMPLETING_REBALANCE, GroupState.EMPTY, GroupState.DEAD}
    ),
    GroupState.COMPLETING_REBALANCE: frozenset(
        {GroupState.STABLE, GroupState.PREPARING_REBALANCE, GroupState.DEAD}
    ),
    GroupState.STABLE: frozenset({GroupState.PREPARING_REBALANCE, GroupState.DEAD}),
    GroupState.DEAD: frozenset(),
}
