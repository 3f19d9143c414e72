"""How blocking work leaves the owner of the state and how its answer comes back.

All state of the log belongs to one thread (the event loop). Blocking work is a
function handed to a *lane*; its result returns as a call on the owner. Lanes are
few and named; each has a width, and a lane of width one keeps its order, which
is what the journal stands on.

`InlineDriver` (tests, command line) runs everything on the caller, in a fixed
order, when `run_until_idle` is called: the same code with no thread and no
clock, so that a crash can be placed between any two steps.
`ThreadDriver` serves an asyncio loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Protocol, TypeVar

T = TypeVar("T")
Done = Callable[[Any, BaseException | None], None]

JOURNAL = "journal"  # writes and syncs of the journal, in order
FILES = "files"  # prewriting, sidecars, checkpoints, recycling, in order
HANDOFF = "handoff"  # everything that writes to the bucket, in order
READ = "read"  # cold reads
METADATA = "metadata"  # transactions of the metadata store, in order
CHECK = "check"  # looking into what clients sent: one at a time, so that bombs do not add up
LANE_WIDTHS = {JOURNAL: 1, FILES: 1, HANDOFF: 1, READ: 4, METADATA: 1, CHECK: 1}


class Driver(Protocol):
    def call_soon(self, call: Callable[[], None]) -> None:
        """Run `call` on the owner after what is running now. Owner only."""

    def post(self, call: Callable[[], None]) -> None:
        """Run `call` on the owner. Any thread."""

    def submit(self, lane: str, work: Callable[[], Any], done: Done) -> None:
        """Run `work` in `lane`, then `done(result, None)` or `done(None, error)` on the owner."""


class InlineDriver:
    """Everything on the caller's thread, first come first served."""

    def __init__(self) -> None:
        self._queue: deque[Callable[[], None]] = deque()

    def call_soon(self, call: Callable[[], None]) -> None:
        self._queue.append(call)

    post = call_soon

    def submit(self, lane: str, work: Callable[[], Any], done: Done) -> None:
        def run() -> None:
            try:
                result = work()
            except Exception as error:
                done(None, error)
            else:
                done(result, None)

        self._queue.append(run)

    def run_until_idle(self) -> None:
        while self._queue:
            self._queue.popleft()()

    def step(self) -> bool:
        """Run one thing; False when there is nothing left to run."""
        if not self._queue:
            return False
        self._queue.popleft()()
        return True


class _Lane:
    """Worker threads behind one queue, started when first used."""

    def __init__(self, name: str, width: int, post: Callable[[Callable[[], None]], None]) -> None:
        self._name = name
        self._width = width
        self._post = post
        self._queue: SimpleQueue[tuple[Callable[[], Any], Done] | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._waiting = 0

    def put(self, work: Callable[[], Any], done: Done) -> None:
        if len(self._threads) < self._width:
            thread = threading.Thread(
                target=self._run, name=f"ister-{self._name}-{len(self._threads)}", daemon=True
            )
            self._threads.append(thread)
            thread.start()
        self._queue.put((work, done))

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            work, done = item
            try:
                result = work()
            except BaseException as error:  # goes to `done`, which decides
                self._post(lambda done=done, error=error: done(None, error))  # type: ignore[misc]
            else:
                self._post(lambda done=done, result=result: done(result, None))  # type: ignore[misc]
            del item, work, done

    def close(self) -> None:
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join()


class ThreadDriver:
    """Lanes of threads under an asyncio loop; answers return through an eventfd, else a pipe."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._answers: deque[Callable[[], None]] = deque()
        self._read_fd, self._write_fd = _wake_pair()
        self._lanes = {name: _Lane(name, width, self.post) for name, width in LANE_WIDTHS.items()}
        self._signalled = False
        loop.add_reader(self._read_fd, self._drain)

    def call_soon(self, call: Callable[[], None]) -> None:
        self._loop.call_soon(call)

    def post(self, call: Callable[[], None]) -> None:
        self._answers.append(call)
        if not self._signalled:  # a spare wake-up is harmless, a missing one is not
            self._signalled = True
            _signal(self._write_fd)

    def submit(self, lane: str, work: Callable[[], Any], done: Done) -> None:
        self._lanes[lane].put(work, done)

    def _drain(self) -> None:
        _acknowledge(self._read_fd)
        self._signalled = False
        for _ in range(len(self._answers)):
            self._deliver(self._answers.popleft())

    def _deliver(self, answer: Callable[[], None]) -> None:
        try:
            answer()
        except Exception as error:  # one failed answer must not swallow those behind it
            self._loop.call_exception_handler(
                {"message": "an answer from a lane failed", "exception": error}
            )

    def close(self) -> None:
        """Wait for every lane to finish its work, then deliver the last answers. Owner only."""
        for lane in self._lanes.values():
            lane.close()
        while self._answers:
            self._deliver(self._answers.popleft())
        self._let_go()

    def abandon(self) -> None:
        """End the lanes and hear no answer, as a process that was killed. Owner only."""
        for lane in self._lanes.values():
            lane.close()
        self._answers.clear()
        self._let_go()

    def _let_go(self) -> None:
        self._loop.remove_reader(self._read_fd)
        os.close(self._read_fd)
        if self._write_fd != self._read_fd:
            os.close(self._write_fd)


def _wake_pair() -> tuple[int, int]:
    if hasattr(os, "eventfd"):
        fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        return fd, fd
    read_fd, write_fd = os.pipe()
    os.set_blocking(read_fd, False)
    os.set_blocking(write_fd, False)
    return read_fd, write_fd


def _signal(fd: int) -> None:
    with contextlib.suppress(BlockingIOError):  # full: a wake-up is already on its way
        os.write(fd, b"\x01\x00\x00\x00\x00\x00\x00\x00")


def _acknowledge(fd: int) -> None:
    with contextlib.suppress(BlockingIOError):
        os.read(fd, 4096)
