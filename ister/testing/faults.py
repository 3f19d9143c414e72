"""What can be made to go wrong, by name: for the tests of Ister and for other people's.

Faults sit in wrappers around the seams of the broker (files, bucket, delivery), never
in the broker's own code. Each knob returns a `Fault`, which counts its `hits` and can be
cleared alone; `clear` clears all. Chance comes from one seeded source per broker, so a run
can be repeated. Knobs stay turned when the broker is restarted.

A new seam is a class with `install(core)`, called on the broker's thread before it
listens, at every start, and `clear()`; it is put into `Faults.seams`.
"""

from __future__ import annotations

import errno
import random
import threading
from collections.abc import Callable
from typing import Any, Protocol

from ister.dispatch.faults import DeliveryFaults
from ister.gateway.broker import Broker as Core
from ister.testing.files import SYNC, WRITE, FileFaults
from ister.wal.memory_fs import Crash
from ister.wal.tier.faulty import DELAY, FAIL, Fault, FaultyStore
from ister.wal.tier.object_store import ObjectStore

# Calls `work` on the broker's thread.
Ask = Callable[[Callable[[Core], Any]], Any]


class Seam(Protocol):
    def install(self, core: Core) -> None:
        """A new life begins; nothing listens yet. On its thread."""

    def clear(self) -> None:
        """All knobs back."""


class Faults:
    """The knobs of one broker."""

    def __init__(self, seed: int, bucket: ObjectStore, ask: Ask) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self._ended = threading.Event()
        self.files = FileFaults(self.rng, self._sleep)
        self.bucket = FaultyStore(bucket, self.rng, self._sleep)
        self.delivery = DeliveryFaults(self.rng)
        self.seams: list[Seam] = [self.delivery]
        self._ask = ask

    # -- disk --------------------------------------------------------------------------

    def fail_fsync(self, times: int | None = 1, probability: float = 1.0, path: str = "*") -> Fault:
        """A failed sync of the journal is final: the broker refuses writes until a restart."""
        return self.files.add(FAIL, SYNC, path, times, probability)

    def delay_fsync(
        self, seconds: float, times: int | None = None, probability: float = 1.0, path: str = "*"
    ) -> Fault:
        return self.files.add(DELAY, SYNC, path, times, probability, seconds)

    def fail_writes(
        self,
        times: int | None = 1,
        probability: float = 1.0,
        path: str = "*",
        error: int = errno.EIO,
    ) -> Fault:
        """Half of what was to be written is; `error=errno.ENOSPC` is a full disk."""
        return self.files.add(FAIL, WRITE, path, times, probability, number=error)

    # -- bucket ------------------------------------------------------------------------

    def fail_uploads(
        self, times: int | None = None, probability: float = 1.0, name: str = "*"
    ) -> Fault:
        return self.bucket.fail("put", name, times, probability)

    def tear_uploads(
        self,
        after_bytes: int = 0,
        times: int | None = None,
        probability: float = 1.0,
        name: str = "*",
    ) -> Fault:
        return self.bucket.tear(name, after_bytes, times, probability)

    def slow_uploads(
        self, seconds: float, times: int | None = None, probability: float = 1.0, name: str = "*"
    ) -> Fault:
        return self.bucket.delay(seconds, "put", name, times, probability)

    def bucket_down(self) -> None:
        """Nothing in the bucket answers until `bucket_up`."""
        self.bucket.down()

    def bucket_up(self) -> None:
        self.bucket.up()

    # -- delivery ----------------------------------------------------------------------

    def drop_notifications(self, probability: float) -> None:
        """Wake-ups of parked fetches are lost; the heartbeat is all that is left of them."""
        self.delivery.drop_notifications(probability)

    def coalesce_notifications(self, every: int) -> None:
        """Of so many wake-ups only the last one arrives."""
        self.delivery.coalesce_notifications(every)

    def silence_notifier(self) -> None:
        """The notifier takes everything and does nothing."""
        self.delivery.silence_notifier()

    def kill_notifier(self, *, hold_restart: bool = False) -> None:
        """The next wake-up kills it; with `hold_restart` so does every one behind it."""
        self.delivery.kill_notifier(hold_restart=hold_restart)

    def empty_reads(self, count: int) -> None:
        """So many reads from memory come back empty although something is there."""
        self.delivery.empty_reads(count)

    def lose_batch(self, base_offset: int) -> None:
        """Memory gives out chunks without the batch that begins there."""
        self.delivery.lose_batch(base_offset)

    # -- memory and connections --------------------------------------------------------

    def evict_cache(self) -> None:
        """The next reads come from the journal or the bucket."""
        self._ask(lambda core: core.storage.log.cache.evict_all())

    def cut_connections(self) -> int:
        """Reset every connection that there is now; how many there were."""

        def cut(core: Core) -> int:
            count = len(core.server.clients)
            core.server.abort()
            return count

        return int(self._ask(cut))

    def clear(self) -> None:
        """All knobs back."""
        self.files.clear()
        self.bucket.clear()
        for seam in self.seams:
            seam.clear()

    # -- for the broker ----------------------------------------------------------------

    def install(self, core: Core) -> None:
        for seam in self.seams:
            seam.install(core)

    def new_life(self, bucket: ObjectStore) -> None:
        self._ended.clear()
        self.bucket.inner = bucket
        self.bucket.crash = None

    def end_delays(self) -> None:
        """What sleeps wakes, and nothing sleeps until the next life."""
        self._ended.set()

    def end_life(self) -> None:
        """The process is killed: no call reaches the bucket any more."""
        self.bucket.crash = _dead
        self.end_delays()

    def _sleep(self, seconds: float) -> None:
        self._ended.wait(seconds)


def _dead(when: str, operation: str, name: str) -> None:
    raise Crash("the broker was killed")
