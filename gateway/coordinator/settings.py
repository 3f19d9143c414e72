"""Settings of the coordinator: times and limits, as values."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorSettings:
    # group.initial.rebalance.delay.ms: how long the first round of a group waits for more
    # members. Kafka waits 3 s; 0 answers the first member at once.
    initial_rebalance_delay_ms: int = 0
    # group.min/max.session.timeout.ms, Kafka's defaults.
    session_timeout_min_ms: int = 6_000
    session_timeout_max_ms: int = 1_800_000
    # group.max.size. Kafka has no limit; this one keeps the answer to a leader within a frame.
    members_max: int = 10_000
    # How long a member that has never had an answer may wait in a round (Kafka's constant): it
    # cannot heartbeat, and a client that gave up leaves such members behind.
    new_member_join_timeout_ms: int = 300_000
    # Groups in memory; a join or a first commit beyond it is refused.
    groups_max: int = 100_000
    # An empty group without cursors is forgotten after this time
    # (offsets.retention.check.interval.ms).
    empty_group_expiry_ms: int = 600_000
    # offset.metadata.max.bytes: the client's words beside an offset.
    cursor_metadata_bytes_max: int = 4_096

    def problems(self) -> list[str]:
        """Everything that is wrong, in words."""
        found = []
        for name in ("initial_rebalance_delay_ms", "session_timeout_min_ms"):
            if getattr(self, name) < 0:
                found.append(f"{name} must not be negative")
        if self.session_timeout_max_ms < self.session_timeout_min_ms:
            found.append("session_timeout_max_ms must not be below session_timeout_min_ms")
        for name in ("members_max", "groups_max", "empty_group_expiry_ms"):
            if getattr(self, name) < 1:
                found.append(f"{name} must be at least 1")
        return found
