"""Producer ids: given one by one from blocks that are reserved durably first.

A block that was begun is lost with the process; an id is never given twice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from ister.metadata.catalog import Catalog
from ister.metadata.errors import Conflict, StoreOverloaded
from ister.metadata.service import CommitService

Done = Callable[[int, BaseException | None], None]


class ProducerIds:
    def __init__(self, catalog: Catalog, commits: CommitService) -> None:
        self._catalog = catalog
        self._commits = commits
        self._left: deque[int] = deque()
        self._waiting: deque[Done] = deque()
        self._asking = False

    def take(self, done: Done) -> None:
        """`done(id, None)` with an id nobody else has, or `done(-1, error)`."""
        if self._left:
            done(self._left.popleft(), None)
            return
        self._waiting.append(done)
        if not self._asking:
            self._ask()

    def _ask(self) -> None:
        change = self._catalog.reserve_producer_ids()
        self._asking = True

        def answered(error: BaseException | None) -> None:
            self._asking = False
            if isinstance(error, Conflict):
                self._ask()  # somebody else reserved meanwhile: plan anew
            elif error is not None:
                self._fail(error)
            else:
                self._left.extend(change.result)
                self._serve()

        try:
            self._commits.commit_change(change, answered)
        except StoreOverloaded as error:
            answered(error)

    def _serve(self) -> None:
        while self._waiting and self._left:
            self._waiting.popleft()(self._left.popleft(), None)
        if self._waiting:
            self._ask()

    def _fail(self, error: BaseException) -> None:
        waiting, self._waiting = self._waiting, deque()
        for done in waiting:
            done(-1, error)
