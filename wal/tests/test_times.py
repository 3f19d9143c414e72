"""Look-ups by time compare records, over every source."""

from __future__ import annotations

import pytest

from ister.wal.errors import LogError
from ister.wal.log import Moment
from ister.wal.tests.batches import make_batch
from ister.wal.tests.harness import Harness
from ister.wal.times import Found, TimeIndex


class Times:
    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        opened = harness.opened
        self.index = TimeIndex(opened.log, opened.sidecars, opened.tier)

    def first(self, timestamp: int) -> Found | None:
        answers: list[tuple[Found | None, LogError | None]] = []
        self.index.offset_for_time(
            self.harness.partition(), timestamp, lambda f, e: answers.append((f, e))
        )
        self.harness.run()
        assert answers[0][1] is None
        return answers[0][0]

    def largest(self) -> Found | None:
        answers: list[tuple[Found | None, LogError | None]] = []
        self.index.max_timestamp(self.harness.partition(), lambda f, e: answers.append((f, e)))
        self.harness.run()
        assert answers[0][1] is None
        return answers[0][0]


@pytest.fixture(params=["open file", "sealed files", "bucket"])
def times(request: pytest.FixtureRequest) -> Times:
    """300 records, one a batch, times 1000, 1010, ... with one early straggler."""
    harness = Harness().open()
    count = 30 if request.param == "open file" else 300
    start = harness.clock.wall_ms()
    for number in range(count):
        at = start + 10 * number if number != 7 else start
        harness.append(b"x" * 100, base_timestamp=at)
        harness.run()
    if request.param == "bucket":
        for _ in range(6):
            harness.tick(61)
        assert harness.partition().tiered_end == count
    return Times(harness)


def test_first_record_at_or_after_a_time(times: Times) -> None:
    """The first offset in the log, not the closest time."""
    start = 1_700_000_000_000
    assert times.first(start) == Found(0, start)
    assert times.first(start + 61) == Found(8, start + 80)
    assert times.first(start + 250) == Found(25, start + 250)


def test_no_record_is_late_enough(times: Times) -> None:
    """Nothing at or after the time: none."""
    assert times.first(1_700_000_000_000 + 1_000_000) is None


def test_largest_timestamp(times: Times) -> None:
    """The first record that has the largest timestamp."""
    count = times.harness.partition().high_watermark
    assert times.largest() == Found(count - 1, 1_700_000_000_000 + 10 * (count - 1))


def test_the_log_start_counts() -> None:
    """Records below the log start are not found."""
    harness = Harness().open()
    start = harness.clock.wall_ms()
    for number in range(10):
        harness.append(b"a", b"b", base_timestamp=start + number)
    harness.run()
    harness.log.move_log_start(harness.partition(), 5, lambda _: None)
    harness.run()
    found = Times(harness).first(start)
    assert found is not None
    assert found.offset == 5


@pytest.mark.parametrize("place", ["open file", "bucket"])
@pytest.mark.parametrize(("log_start", "found"), [(0, 1), (1, 1), (2, 4), (5, 5), (6, 7)])
def test_the_largest_below_the_log_start_does_not_count(
    place: str, log_start: int, found: int
) -> None:
    """Also when it lies in the batch on which the log start is."""
    harness = Harness().open()
    start = harness.clock.wall_ms()
    times = [[1, 9, 2], [3, 8, 4], [0, 3]]
    for batch in times:
        data = make_batch([b"x"] * len(batch), timestamps=[start + at for at in batch])
        harness.log.append(harness.partition(), data, Moment.DURABLE, lambda _: None)
        harness.run()
    if place == "bucket":
        for _ in range(4):
            harness.tick(61)
        assert harness.partition().tiered_end == 8
    harness.log.move_log_start(harness.partition(), log_start, lambda _: None)
    harness.run()
    largest = Times(harness).largest()
    assert largest is not None
    assert largest.offset == found
    assert largest.timestamp_ms == start + [at for batch in times for at in batch][found]


def test_what_is_appended_meanwhile_is_not_asked_for() -> None:
    """The open file grows under a look-up that is on its way: it answers for its own moment."""
    harness = Harness().open()
    start = harness.clock.wall_ms()
    harness.append(b"a", base_timestamp=start)
    harness.run()
    harness.append(b"b", base_timestamp=start + 10)
    harness.driver.step()  # the commit is on its way, and the questions come behind it
    times = Times(harness)
    answers: list[object] = []
    times.index.max_timestamp(harness.partition(), lambda *answer: answers.append(answer))
    times.index.offset_for_time(
        harness.partition(), start + 5, lambda *answer: answers.append(answer)
    )
    harness.run()
    assert harness.partition().high_watermark == 2
    assert answers == [(Found(0, start), None), (None, None)]


def test_an_empty_partition_has_no_times() -> None:
    """Neither a first nor a largest."""
    times = Times(Harness().open())
    assert times.first(0) is None
    assert times.largest() is None
