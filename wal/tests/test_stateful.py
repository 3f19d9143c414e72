"""The log against a plain list: random steps, crashes and reopenings, found by Hypothesis."""

from __future__ import annotations

import random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ister.wal.errors import OffsetOutOfRange
from ister.wal.memory_fs import MemoryFileSystem, Survivors
from ister.wal.memory_image import Survival
from ister.wal.tests.crash_kit import KEYS, LONG, Key, World, photograph

keys = st.sampled_from(KEYS)


class LogMachine(RuleBasedStateMachine):
    """`World` holds the lists; opening compares all of them, a read compares its part."""

    @initialize()
    def start(self) -> None:
        self.world = World(MemoryFileSystem())
        self.world.open()

    def is_open(self) -> bool:
        return self.world.is_open

    @precondition(is_open)
    @rule(key=keys, count=st.integers(1, 4), size=st.sampled_from([0, 50, 900]))
    def append(self, key: Key, count: int, size: int) -> None:
        self.world.append(key, count, size)

    @precondition(is_open)
    @rule(key=keys, count=st.integers(1, 3))
    def send(self, key: Key, count: int) -> None:
        self.world.send(key, count)

    @precondition(is_open)
    @rule()
    def run(self) -> None:
        self.world.run()

    @precondition(is_open)
    @rule(steps=st.integers(1, 20))
    def run_a_little(self, steps: int) -> None:
        for _ in range(steps):
            self.world.harness.driver.step()

    @precondition(is_open)
    @rule(seconds=st.sampled_from([0.1, 61]))
    def tick(self, seconds: float) -> None:
        self.world.tick(seconds)

    @precondition(is_open)
    @rule()
    def evict(self) -> None:
        self.world.harness.log.cache.evict_all()

    @precondition(is_open)
    @rule(key=keys, share=st.floats(0, 1))
    def move_log_start(self, key: Key, share: float) -> None:
        partition = self.world.partition(key)
        room = partition.high_watermark - partition.log_start
        self.world.move_log_start(key, partition.log_start + int(share * room))

    @precondition(is_open)
    @rule(key=keys, share=st.floats(-0.1, 1.1), max_bytes=st.sampled_from([0, 100, 2000, 1 << 20]))
    def read(self, key: Key, share: float, max_bytes: int) -> None:
        self.world.run()  # what is under way may still move the log start
        partition = self.world.partition(key)
        offset = max(0, int(share * (partition.log_end + 1)))
        if not partition.log_start <= offset <= partition.log_end:
            with pytest.raises(OffsetOutOfRange):
                self.world.harness.read(offset, max_bytes, key[1], key[0])
            return
        chunk = self.world.harness.read(offset, max_bytes, key[1], key[0])
        assert chunk.next_offset <= partition.high_watermark
        found = list(self.world.harness.in_chunk(chunk, offset))
        assert bool(found) == (offset < partition.high_watermark)
        values = self.world.model[key].values
        assert found == list(enumerate(values))[offset : chunk.next_offset]
        assert chunk.size <= max_bytes or len(found) <= 4  # the first batch comes whole

    @precondition(is_open)
    @rule(seed=st.integers(0, 5), survival=st.sampled_from([None, *Survivors]))
    def crash(self, seed: int, survival: Survivors | None) -> None:
        chosen: Survival = survival or random.Random(seed)
        self.world = photograph(self.world, chosen, self.world.now(), "now").develop()

    @precondition(is_open)
    @rule()
    def close(self) -> None:
        self.world.close()
        self.world.is_open = False

    @precondition(lambda self: not self.is_open())
    @rule()
    def reopen(self) -> None:
        self.world.open()
        for key in KEYS:
            self.world.retry(key)

    @invariant()
    def partitions_hold(self) -> None:
        if self.is_open():
            for key in KEYS:
                partition = self.world.partition(key)
                partition.check()
                assert partition.log_end == len(self.world.model[key].values)
            assert self.world.harness.errors == []

    def teardown(self) -> None:
        if hasattr(self, "world") and self.is_open():
            self.world.run()
            self.world = photograph(
                self.world, Survivors.NOTHING, self.world.now(), "the end"
            ).develop()
            self.world.open()


TestLog = LogMachine.TestCase
TestLog.settings = settings(
    max_examples=1500 if LONG else 60, stateful_step_count=80 if LONG else 40, deadline=None
)
TestLog.pytestmark = [pytest.mark.fault]  # type: ignore[attr-defined]
