"""Group commit: everything that has arrived goes into one frame, one write, one sync.

The owner (the loop) forms the group. The first append of a loop turn schedules
a kick, so that all reads of that turn share a commit; while a commit is in
flight the next group collects. One commit is in flight at a time, so a frame is
written only after the one before it is durable; recovery relies on that.

Places are planned when a batch is accepted: the group knows its file and
position before anything is written, and a batch that has no place is refused
before it is given an offset.

Any error of a write or a sync ends the journal: nothing is retried on that file
(after a failed fdatasync the page cache lies), every waiter and every later
append gets `JournalFailed`, and only a restart opens the log again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from ister.wal.clock import Clock
from ister.wal.driver import JOURNAL, Driver
from ister.wal.errors import BatchTooLarge, Closed, JournalFailed, LogError, StorageFull
from ister.wal.files import JournalFile, JournalFiles
from ister.wal.frame import (
    ENTRY,
    ENTRY_SIZE,
    FLAG_END,
    FLAG_PRODUCERS,
    FRAME_HEADER_SIZE,
    FRAMES_START,
    TERMINATOR,
    FileHeader,
    encode_file_header,
    encode_frame,
)
from ister.wal.fs import Buffer
from ister.wal.histogram import COUNT_BOUNDS, Histogram
from ister.wal.partition import Partition
from ister.wal.settings import LogSettings

Waiter = Callable[[LogError | None], None]

_JOIN_BELOW = 8192  # buffers smaller than this on average are copied together before the write


class Group:
    """What one commit carries: two parallel lists, one element a batch, in the order of arrival."""

    __slots__ = (
        "buffers",
        "commit",
        "durable_waiters",
        "entries",
        "file",
        "flags",
        "position",
        "room",
        "size",
        "written_waiters",
    )

    def __init__(self, file: JournalFile, position: int, room: int = 0) -> None:
        self.file = file
        self.position = position
        self.room = room  # how large the frame may become
        self.size = FRAME_HEADER_SIZE  # of the frame so far
        self.commit = 0
        self.flags = 0
        self.buffers: list[Buffer] = []
        # Of each buffer: partition, first offset, offset behind the last, largest timestamp.
        self.entries: list[tuple[Partition, int, int, int]] = []
        self.written_waiters: list[Waiter] = []
        self.durable_waiters: list[Waiter] = []

    def add(
        self,
        partition: Partition,
        base: int,
        count: int,
        buffer: Buffer,
        timestamp: int,
        producer: bool,
    ) -> None:
        self.buffers.append(buffer)
        self.entries.append((partition, base, base + count, timestamp))
        self.size += ENTRY_SIZE + len(buffer)
        if producer:
            self.flags |= FLAG_PRODUCERS

    def add_log_start(self, partition: Partition, log_start: int) -> None:
        """No batch: the log start of the partition moves when this commit is durable."""
        self.add(partition, log_start, 0, b"", -1, False)

    def directory(self) -> bytes:
        """What the frame says of its batches."""
        pack = ENTRY.pack
        return b"".join(
            [
                pack(each.topic_id, each.index, base, behind - base, len(buffer), timestamp)
                for (each, base, behind, timestamp), buffer in zip(
                    self.entries, self.buffers, strict=True
                )
            ]
        )


class Journal:
    """The queue of groups, the one in flight, and the plan of where the next one goes."""

    def __init__(
        self,
        driver: Driver,
        files: JournalFiles,
        settings: LogSettings,
        cluster_id: str,
        on_commit: Callable[[Group], None],
        on_sealed: Callable[[JournalFile], None],
        on_failed: Callable[[JournalFailed], None],
        clock: Clock,
    ) -> None:
        self._driver = driver
        self._files = files
        self._settings = settings
        self._cluster_id = cluster_id
        self._on_commit = on_commit
        self._on_sealed = on_sealed
        self._on_failed = on_failed
        self._clock = clock
        self.commit_seconds = Histogram()  # from hand-over to durable
        self.commit_batches = Histogram(COUNT_BOUNDS)
        self._queue: deque[Group] = deque()
        self._open: Group | None = None  # last of the queue, takes batches
        self._in_flight: Group | None = None
        self._kick_scheduled = False
        self._closing: Callable[[], None] | None = None
        self.commit_next = 1
        self.unsynced_bytes = 0
        self.failed: JournalFailed | None = None

    def start(self, file: JournalFile, position: int, commit_next: int) -> None:
        """Go on in `file`, whose header is written, at `position`."""
        self._written_file = file  # the file of the last frame written
        self._written_end = position
        self._plan_file = file
        self._plan_position = position
        self.commit_next = commit_next
        self._files.prepare()

    @property
    def file(self) -> JournalFile:
        """The open file."""
        return self._written_file

    @property
    def position(self) -> int:
        """Where the frames of the open file end."""
        return self._written_end

    @property
    def overloaded(self) -> bool:
        """Stop taking more in: too much is unsynced, or the next file is not ready yet."""
        if self.unsynced_bytes > self._settings.unsynced_bytes_max:
            return True
        if not self._files.preparing or self._files.full:
            # No more room is on its way, or the last try to make some failed: waiting would not
            # help, and who looks only while the next try is under way would wait for ever.
            return False
        group = self._open
        planned = self._plan_position if group is None else group.position + group.size
        room = self._plan_file.size - planned + self._files.ready_bytes
        return room < self._settings.commit_bytes_max

    def reserve(self, size: int) -> Group:
        """The group in which a batch of `size` bytes has its place, or why it has none."""
        if self.failed is not None:
            raise self.failed
        if self._closing is not None:
            raise Closed("the log is closing")
        group = self._open
        need = ENTRY_SIZE + size
        if group is not None and group.size + need <= group.room:
            self.unsynced_bytes += need
            return group
        group = self._open_group(need)
        self.unsynced_bytes += need
        if self._in_flight is None and not self._kick_scheduled:
            self._kick_scheduled = True
            self._driver.call_soon(self._kick)
        return group

    def when_durable(self, waiter: Waiter) -> None:
        """Call when everything accepted so far is durable; at once if it is."""
        if self.failed is not None:
            waiter(self.failed)
        elif self._queue:
            self._queue[-1].durable_waiters.append(waiter)
        elif self._in_flight is not None:
            self._in_flight.durable_waiters.append(waiter)
        else:
            waiter(None)

    def rotate(self) -> bool:
        """Let the next batch begin a new file, so that what is there can be handed off.

        False if the file is empty or no file is ready."""
        if self.failed is not None or self._closing is not None:
            return False
        if self._plan_position == FRAMES_START and not (self._open or self._queue):
            return False
        return self._next_file(FRAMES_START) is not None

    def close(self, done: Callable[[], None]) -> None:
        """Finish what is queued, write the end mark, sync."""
        if self.failed is not None:
            done()
            return
        self._closing = done
        if self._in_flight is None and not self._kick_scheduled:
            self._kick()

    # -- planning ---------------------------------------------------------------

    def _open_group(self, need: int) -> Group:
        self._close_group()
        frame = FRAME_HEADER_SIZE + need
        if self._plan_position + frame + FRAME_HEADER_SIZE > self._plan_file.size:
            size_min = FRAMES_START + frame + FRAME_HEADER_SIZE
            if size_min > self._settings.journal_file_bytes:
                raise BatchTooLarge(need - ENTRY_SIZE, self._settings.journal_file_bytes)
            if self._next_file(size_min) is None:
                reason = self._files.full or "the next journal file is not ready yet"
                raise StorageFull(f"no room for an append: {reason}")
        # The end mark keeps its place.
        in_file = self._plan_file.size - self._plan_position - FRAME_HEADER_SIZE
        room = min(in_file, self._settings.commit_bytes_max)
        group = self._open = Group(self._plan_file, self._plan_position, room)
        self._queue.append(group)
        self._files.prepare()
        return group

    def _next_file(self, size_min: int) -> JournalFile | None:
        file = self._files.take(size_min)
        if file is not None:
            self._close_group()
            self._plan_file = file
            self._plan_position = FRAMES_START
        return file

    def _close_group(self) -> None:
        if self._open is not None:
            self._plan_position = self._open.position + self._open.size
            self._open = None

    # -- one commit at a time ----------------------------------------------------

    def _kick(self) -> None:
        self._kick_scheduled = False
        if self._in_flight is not None or self.failed is not None:
            return
        if not self._queue:
            if self._closing is not None:
                self._write_end_mark()
            elif self._plan_file is not self._written_file:
                self._enter_planned_file()
            return
        group = self._queue.popleft()
        if group is self._open:
            self._close_group()
        group.commit = self.commit_next
        self.commit_next += 1
        self._in_flight = group
        enter = self._header_for(group.file)
        started = self._clock.monotonic()
        self._driver.submit(
            JOURNAL,
            lambda: self._write(group, enter),
            lambda _, error: self._committed(group, error, started),
        )

    def _write(self, group: Group, header: bytes | None) -> None:
        """In the journal's thread: one gathered write, one sync."""
        file = group.file.file
        if header is not None:
            file.pwrite([TERMINATOR], FRAMES_START)
            file.pwrite([header], 0)
            file.sync()  # before the first frame: a frame without a header is damage
        body = group.buffers
        if len(body) > 1 and group.size < _JOIN_BELOW * len(body):
            body = [b"".join(body)]
        buffers = encode_frame(
            group.file.sequence,
            group.commit,
            group.position,
            group.flags,
            group.directory(),
            body,
        )
        buffers.append(TERMINATOR)
        file.pwrite(buffers, group.position)
        if group.written_waiters:
            self._driver.post(lambda: self._resolve(group.written_waiters, None))
        file.sync()

    def _committed(self, group: Group, error: BaseException | None, started: float) -> None:
        self._in_flight = None
        if error is not None:
            self._fail(error, group)
            return
        self.commit_seconds.observe(self._clock.monotonic() - started)
        self.commit_batches.observe(len(group.buffers))
        self._entered(group.file)
        self._written_end = group.position + group.size
        self.unsynced_bytes -= group.size - FRAME_HEADER_SIZE
        self._on_commit(group)
        self._resolve(group.durable_waiters, None)
        self._kick()

    def _header_for(self, file: JournalFile) -> bytes | None:
        """The header to write first if `file` is not the one of the last frame."""
        if file is self._written_file:
            return None
        return encode_file_header(
            FileHeader(
                file.sequence,
                self._written_file.sequence,
                self._written_end,
                self.commit_next,
                0,
                self._cluster_id,
            )
        )

    def _entered(self, file: JournalFile) -> None:
        if file is not self._written_file:
            sealed = self._written_file
            sealed.end = self._written_end
            self._written_file = file
            self._written_end = FRAMES_START
            self._on_sealed(sealed)

    def _enter_planned_file(self) -> None:
        """Nothing to write, but a new file was asked for: its header seals the old one."""
        file = self._plan_file
        header = self._header_for(file)
        assert header is not None
        group = self._in_flight = Group(file, FRAMES_START)

        def write() -> None:
            file.file.pwrite([TERMINATOR], FRAMES_START)
            file.file.pwrite([header], 0)
            file.file.sync()

        def done(_: None, error: BaseException | None) -> None:
            self._in_flight = None
            if error is not None:
                self._fail(error, group)
                return
            self._entered(file)
            self._kick()

        self._driver.submit(JOURNAL, write, done)

    def kick_rotation(self) -> None:
        """After `rotate`: seal now rather than with the next batch."""
        if self._in_flight is None and not self._kick_scheduled:
            self._kick_scheduled = True
            self._driver.call_soon(self._kick)

    def _write_end_mark(self) -> None:
        closed = self._closing
        assert closed is not None
        file = self._written_file
        buffers = encode_frame(
            file.sequence, self.commit_next, self._written_end, FLAG_END, b"", []
        )
        position = self._written_end
        mark = self._in_flight = Group(file, position)  # nothing may follow the end mark

        def write() -> None:
            file.file.pwrite(buffers, position)
            file.file.sync()

        def done(_: None, error: BaseException | None) -> None:
            if error is not None:
                self._fail(error, mark)
            else:
                closed()

        self._driver.submit(JOURNAL, write, done)

    def _fail(self, error: BaseException, group: Group) -> None:
        """Nothing more is written in this life."""
        self.failed = JournalFailed(f"the journal failed: {error}")
        self.failed.__cause__ = error
        groups = [group, *self._queue]
        self._queue.clear()
        self._open = None
        self._on_failed(self.failed)
        for lost in groups:
            self._resolve(lost.written_waiters, self.failed)
            self._resolve(lost.durable_waiters, self.failed)
        if self._closing is not None:
            self._closing()

    def _resolve(self, waiters: list[Waiter], error: LogError | None) -> None:
        """Tell everybody, whatever one of them does."""
        taken = waiters[:]
        waiters.clear()
        for waiter in taken:
            try:
                waiter(error)
            except Exception as failure:  # the next waiter must not pay for it
                self._driver.call_soon(_raiser(failure))


def _raiser(failure: Exception) -> Callable[[], None]:
    def fail() -> None:
        raise failure

    return fail
