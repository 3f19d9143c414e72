"""Retention: only a prefix, only what may go, only by a clock that can be believed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ister.wal.clock import ManualClock
from ister.wal.retention import Decision, Extent, RetentionClock, decide

NOW = 1_700_000_000_000
DAY = 86_400_000


def row(*ages_ms: int, size: int = 100) -> list[Extent]:
    """Extents of ten offsets with records of the given ages, sealed when they were written."""
    return [Extent(10 * n, 10 * n + 9, size, NOW - age, NOW - age) for n, age in enumerate(ages_ms)]


def keep(
    extents: list[Extent],
    log_start: int = 0,
    *,
    now_ms: int | None = NOW,
    retention_ms: int = DAY,
    retention_bytes: int = -1,
    grace_ms: int = 0,
    open_bytes: int = 0,
    compact: bool = False,
) -> Decision:
    return decide(
        extents,
        log_start,
        now_ms=now_ms,
        retention_ms=retention_ms,
        retention_bytes=retention_bytes,
        grace_ms=grace_ms,
        open_bytes=open_bytes,
        compact=compact,
    )


def test_old_extents_go_from_the_front() -> None:
    """Older than retention.ms goes; exactly that old stays."""
    assert keep(row(3 * DAY, 2 * DAY, DAY, 0)) == (20, 200, 0)


def test_an_old_extent_behind_a_young_one_stays() -> None:
    """Only a prefix goes, whatever the timestamps say."""
    assert keep(row(3 * DAY, 0, 3 * DAY)).log_start == 10


def test_grace_counts_from_the_append() -> None:
    """Records with old timestamps are kept for the grace time after they were appended."""
    fresh = [Extent(0, 9, 100, NOW - 9 * DAY, NOW - 500)]
    assert keep(fresh, grace_ms=1000).log_start == 0
    assert keep(fresh, grace_ms=500).log_start == 10


def test_size_takes_whole_extents_and_keeps_enough() -> None:
    """Extents go while at least retention.bytes stay; the open tail counts."""
    assert keep(row(0, 0, 0), retention_bytes=200) == (10, 0, 100)
    assert keep(row(0, 0, 0), retention_bytes=201).log_start == 0
    assert keep(row(0, 0, 0), retention_bytes=200, open_bytes=100).log_start == 20
    assert keep(row(0, 0, 0), retention_bytes=0).log_start == 30


def test_no_limit_keeps_everything() -> None:
    """-1 is for ever."""
    assert keep(row(99 * DAY), retention_ms=-1).log_start == 0


def test_compact_topics_lose_nothing() -> None:
    """Until compaction exists."""
    assert keep(row(9 * DAY, 0), compact=True, retention_bytes=1) == (0, 0, 0)


def test_without_a_clock_only_size_counts() -> None:
    """While the clock is paused nothing goes by time."""
    assert keep(row(9 * DAY, 9 * DAY), now_ms=None).log_start == 0
    assert keep(row(9 * DAY, 9 * DAY), now_ms=None, retention_bytes=100).log_start == 10


def test_records_without_timestamps_age_from_their_append() -> None:
    """A timestamp of -1 says nothing."""
    assert keep([Extent(0, 9, 1, -1, NOW - 2 * DAY)]).log_start == 10
    assert keep([Extent(0, 9, 1, -1, NOW - 1)]).log_start == 0


@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(0, 4 * DAY), st.integers(0, 4 * DAY))),
    st.integers(0, 60),
    st.sampled_from([-1, 0, DAY]),
    st.sampled_from([-1, 0, 250]),
)
def test_the_log_start_is_a_boundary_and_never_falls(
    shape: list[tuple[int, int, int]], log_start: int, retention_ms: int, retention_bytes: int
) -> None:
    """Whatever the extents: the old log start or the end of one of them."""
    extents = []
    offset = 0
    for count, age, sealed in shape:
        extents.append(Extent(offset, offset + count - 1, 100, NOW - age, NOW - sealed))
        offset += count
    found = keep(
        extents,
        log_start,
        retention_ms=retention_ms,
        retention_bytes=retention_bytes,
        grace_ms=1000,
    )
    assert found.log_start >= log_start
    assert found.log_start in {log_start, *(extent.last_offset + 1 for extent in extents)}


# -- the clock -------------------------------------------------------------------


def test_a_quiet_clock_is_believed() -> None:
    """Small steps and drift over days are no jump."""
    clock = ManualClock()
    watched = RetentionClock(clock, clock.wall_ms() - 60_000)
    for _ in range(2000):
        clock.advance(600)
        clock.jump(900)
        assert watched.now_ms() == clock.wall_ms()
    assert watched.jumps == 0


def test_a_jump_pauses_and_an_hour_of_agreement_resumes() -> None:
    """More than ten minutes either way: no time, words, and again after an hour."""
    for jump in (700_000, -700_000):
        clock = ManualClock()
        watched = RetentionClock(clock, None)
        clock.jump(jump)
        assert watched.now_ms() is None
        assert "700 s" in (watched.paused_because or "")
        for _ in range(59):
            clock.advance(60)
            assert watched.now_ms() is None
        clock.advance(61)
        assert watched.now_ms() == clock.wall_ms()
        assert watched.paused_because is None


def test_another_jump_starts_the_hour_again() -> None:
    """The hour is one of agreement."""
    clock = ManualClock()
    watched = RetentionClock(clock, None)
    clock.jump(3_000_000)
    assert watched.now_ms() is None
    clock.advance(3000)
    clock.jump(-3_000_000)
    assert watched.now_ms() is None
    clock.advance(1000)
    assert watched.now_ms() is None
    clock.advance(2601)
    assert watched.now_ms() == clock.wall_ms()


def test_steps_add_up_inside_an_hour() -> None:
    """Many small steps in the same hour are a jump."""
    clock = ManualClock()
    watched = RetentionClock(clock, None)
    for _ in range(10):
        clock.advance(60)
        clock.jump(70_000)
        watched.now_ms()
    assert watched.now_ms() is None


def test_an_operator_resumes_at_once() -> None:
    """Somebody who knows better says so."""
    clock = ManualClock()
    watched = RetentionClock(clock, None)
    clock.jump(10_000_000)
    assert watched.now_ms() is None
    watched.resume()
    assert watched.now_ms() == clock.wall_ms()


def test_the_stored_time_is_compared_at_start() -> None:
    """A clock that is not where it was left is not believed at once, forward or back."""
    clock = ManualClock()
    for stored in (clock.wall_ms() - 700_000, clock.wall_ms() + 700_000):
        assert RetentionClock(clock, stored).now_ms() is None
    assert RetentionClock(clock, clock.wall_ms() - 500_000).now_ms() is not None


def test_the_time_is_stored_once_a_minute_and_not_while_paused() -> None:
    """What cannot be believed is not written down."""
    clock = ManualClock()
    watched = RetentionClock(clock, None)
    assert watched.to_store() == clock.wall_ms()
    assert watched.to_store() is None
    clock.advance(60)
    assert watched.to_store() == clock.wall_ms()
    clock.jump(-700_000)
    clock.advance(60)
    assert watched.to_store() is None
