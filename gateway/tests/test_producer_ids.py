"""Producer ids: reserved before they are given, and never twice."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from ister.gateway.producer_ids import ProducerIds
from ister.metadata.catalog import Catalog
from ister.metadata.errors import StoreOverloaded
from ister.metadata.memory import MemoryStore
from ister.metadata.service import CommitService


class Case:
    """A store whose commits end when the test says so."""

    def __init__(self, store: MemoryStore | None = None, waiting_max: int = 100) -> None:
        self.store = store or MemoryStore()
        self.catalog = Catalog.load(self.store)
        if not self.catalog.cluster_id:
            self.catalog.commit(self.store, self.catalog.found(random.Random(1)))
        self.jobs: list[tuple[Callable[[], Any], Callable[[Any, Any], None]]] = []
        commits = CommitService(
            self.store,
            lambda work, done: self.jobs.append((work, done)),
            waiting_max=waiting_max,
        )
        self.ids = ProducerIds(self.catalog, commits)
        self.told: list[tuple[int, BaseException | None]] = []

    def take(self, count: int = 1) -> None:
        for _ in range(count):
            self.ids.take(lambda number, error: self.told.append((number, error)))

    def run(self) -> None:
        while self.jobs:
            work, done = self.jobs.pop(0)
            try:
                result = work()
            except Exception as error:
                done(None, error)
            else:
                done(result, None)


def test_nothing_is_given_before_the_block_is_durable() -> None:
    """Who asks waits for the store."""
    case = Case()
    case.take(3)
    assert case.told == []
    assert len(case.jobs) == 1
    case.run()
    assert [error for _, error in case.told] == [None] * 3
    assert len({number for number, _ in case.told}) == 3


def test_a_block_serves_many_at_once() -> None:
    """One commit, then none until the block is used up; a crowd gets as many blocks as it needs."""
    case = Case()
    case.take()
    case.run()
    case.take()
    assert len(case.told) == 2
    case.take(5_000)
    case.run()
    assert len({number for number, _ in case.told}) == 5_002


def test_a_restart_gives_other_ids() -> None:
    """What was reserved and not used is lost, never given again."""
    store = MemoryStore()
    seen: list[int] = []
    for _ in range(3):
        case = Case(store)
        case.take(2)
        case.run()
        seen += [number for number, _ in case.told]
    assert len(set(seen)) == 6


def test_a_store_that_has_too_much_to_do() -> None:
    """Everybody who waited is told; the next one asks anew."""
    case = Case(waiting_max=0)
    case.take(2)
    assert [number for number, _ in case.told] == [-1, -1]
    assert all(isinstance(error, StoreOverloaded) for _, error in case.told)
