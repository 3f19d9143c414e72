"""Group commit: many callers, one sync.

The owner hands in transactions; while one `commit_many` is running elsewhere
the others wait, and then all that waited goes in one `commit_many`. There is no
window to tune: a lone transaction goes at once, and the busier it is the larger
the groups. Answers come on the owner, in the order of the calls.

A conflict concerns its own transaction; any other error is told to everybody in
the group as it is: after `StoreUnavailable` nobody knows whether the group was
applied. Nothing is retried here, because only the caller knows if that is safe.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from ister.metadata.catalog import Change
from ister.metadata.errors import Conflict, StoreOverloaded
from ister.metadata.store import Store, Transaction

WAITING_MAX = 10_000  # transactions; 2,000 connections with one commit each are far below
GROUP_MAX = 2_000  # transactions in one commit_many: bounds how long the next one waits

Done = Callable[[BaseException | None], None]
Submit = Callable[[Callable[[], Any], Callable[[Any, BaseException | None], None]], None]
_Answer = Callable[[int | BaseException], None]
_Waiting = tuple[Transaction, _Answer]


class CommitService:
    """Everything on the owner's thread, except the store's work, which `submit` takes away."""

    def __init__(
        self,
        store: Store,
        submit: Submit,
        *,
        waiting_max: int = WAITING_MAX,
        group_max: int = GROUP_MAX,
    ) -> None:
        self._store = store
        self._submit = submit
        self._waiting_max = waiting_max
        self._group_max = group_max
        self._waiting: deque[_Waiting] = deque()
        self._running = False

    @property
    def idle(self) -> bool:
        """Nothing is waiting and nothing is running."""
        return not self._running and not self._waiting

    def commit(self, transaction: Transaction, done: Done) -> None:
        """`done(None)` once it is durable, else `done(error)`.

        Raises StoreOverloaded at once, with `done` never called, when too many wait already.
        """
        self._put(transaction, partial(_tell, done))

    def commit_change(self, change: Change[Any], done: Done) -> None:
        """As `commit`; the change is applied to its catalog before `done(None)`."""

        def answer(result: int | BaseException) -> None:
            if isinstance(result, int):
                change.apply(result)
            _tell(done, result)

        self._put(change.transaction, answer)

    def _put(self, transaction: Transaction, answer: _Answer) -> None:
        if len(self._waiting) >= self._waiting_max:
            raise StoreOverloaded(f"{len(self._waiting)} transactions are waiting already")
        self._waiting.append((transaction, answer))
        if not self._running:
            self._start()

    def _start(self) -> None:
        count = min(len(self._waiting), self._group_max)
        group = [self._waiting.popleft() for _ in range(count)]
        transactions = [transaction for transaction, _ in group]
        self._running = True
        self._submit(partial(self._store.commit_many, transactions), partial(self._finished, group))

    def _finished(
        self, group: list[_Waiting], results: list[int | Conflict], error: BaseException | None
    ) -> None:
        failures: list[Exception] = []
        for position, (_, answer) in enumerate(group):
            try:
                answer(error if error is not None else results[position])
            except Exception as failure:  # one failed answer must not swallow those behind it
                failures.append(failure)
        # Only now, so that the answers of two groups never mix whatever `submit` does.
        self._running = False
        if self._waiting:
            self._start()
        if len(failures) == 1:
            raise failures[0]
        if failures:
            raise ExceptionGroup("answers of a commit failed", failures)


def _tell(done: Done, result: int | BaseException) -> None:
    done(None if isinstance(result, int) else result)
