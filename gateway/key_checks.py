"""Records without a key have no place in a compacted topic: looked for before the append.

To see the keys a batch has to be decompressed and walked, which may take long and may be
meant to: so it happens off the loop, one batch at a time and with a limit on what comes out,
unless the batch is plain and small. Batches of one partition go on in the order in which they
came, whatever their checks take; else a producer's second batch would be appended before its
first.

What waits here is a request without an answer and counts as such against the limits of its
connection. A body that cannot be read is refused for good: to send it again would not help.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from ister.wal import driver as lanes
from ister.wal.batch import check
from ister.wal.driver import Driver
from ister.wal.errors import CorruptBatch, InvalidBatch, LogError
from ister.wal.fs import Buffer
from ister.wal.partition import Partition
from ister.wal.records import null_keys

# A plain batch up to here is looked through at once, in less time than a lane takes.
INLINE_RECORDS_MAX = 32
INLINE_BYTES_MAX = 64 * 1024

Then = Callable[[LogError | None], None]


class _Waiting:
    __slots__ = ("done", "error", "then")

    def __init__(self, then: Then) -> None:
        self.then = then
        self.done = False
        self.error: LogError | None = None


class KeyChecks:
    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._queues: dict[Partition, deque[_Waiting]] = {}

    def check(self, partition: Partition, data: Buffer, then: Then) -> None:
        """`then(error)` once it is known whether the batch may go on, in the order of calls."""
        try:
            header = check(data, partition.settings.batch_bytes_max)
        except LogError as error:
            work, inline = _refused(error), True
        else:
            work = _keys_of(data)
            small = header.count <= INLINE_RECORDS_MAX and len(data) <= INLINE_BYTES_MAX
            inline = small and header.codec == 0
        queue = self._queues.get(partition)
        if queue is None:
            if inline:
                then(work())
                return
            queue = self._queues[partition] = deque()
        waiting = _Waiting(then)
        queue.append(waiting)
        if inline:
            self._checked(partition, waiting, work(), None)
        else:
            self._driver.submit(
                lanes.CHECK,
                work,
                lambda error, failure: self._checked(partition, waiting, error, failure),
            )

    def _checked(
        self,
        partition: Partition,
        waiting: _Waiting,
        error: LogError | None,
        failure: BaseException | None,
    ) -> None:
        waiting.done = True
        waiting.error = error
        if failure is not None:  # the lane is shut
            waiting.error = InvalidBatch(f"the keys could not be looked at: {failure}")
        queue = self._queues[partition]
        while queue and queue[0].done:
            first = queue.popleft()
            try:
                first.then(first.error)
            finally:
                if not queue:
                    self._queues.pop(partition, None)


def _refused(error: LogError) -> Callable[[], LogError | None]:
    return lambda: error


def _keys_of(data: Buffer) -> Callable[[], LogError | None]:
    def work() -> LogError | None:
        try:
            missing = null_keys(data)
            if missing:
                return InvalidBatch("a compacted topic takes no record without a key", missing)
        except CorruptBatch as error:
            return InvalidBatch(f"the records cannot be read: {error}")
        except LogError as error:
            return error
        return None

    return work
