"""Appending against the bare loop of gathered write + fdatasync of the same bytes.

    python -m bench.journal [--mb 512] [--batch 16384] [--partitions 1,100,10000]

One run on one machine, as ratios: rounds of the bare loop and of the log are
interleaved. The log runs as in the broker: its own threads, an event loop,
handoff to a directory on the same disk meanwhile, after a warm-up: fresh files have
to be filled with zeros first, and that costs more than the append. What handoff
takes of the rate is the same log with and without it (which then always needs
fresh files), and per batch its CPU beside that of the append.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import resource
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from ister.gateway.app import Options, Storage
from ister.gateway.runtime import tune
from ister.wal.errors import LogError
from ister.wal.log import Moment
from ister.wal.settings import LogSettings
from ister.wal.tests.batches import make_batch

MiB = 1 << 20
WINDOW_BYTES = 8 * MiB  # appended and not yet durable, as producers would have it
FILE_BYTES = 64 * MiB
WARM_UP_FILES = 6  # until files come back from the bucket and are used again
SMALL_BATCH = 8192  # those fill few files


class Figure(NamedTuple):
    mb_per_s: float
    cpu_s_per_gb: float
    commits: int


@contextmanager
def directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="ister-bench-") as path:
        yield Path(path)


def cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def bare(total: int, group: int) -> Figure:
    """pwritev of `group` bytes and fdatasync, over prewritten files of the journal's size."""
    source = random.Random(1).randbytes(group)
    with directory() as path:
        fds = [os.open(path / str(n), os.O_RDWR | os.O_CREAT) for n in range(2)]
        for fd in fds:
            for position in range(0, FILE_BYTES, MiB):
                os.pwrite(fd, bytes(MiB), position)
            os.fdatasync(fd)
        started, cpu = time.perf_counter(), cpu_s()
        written = 0
        while written < total:
            file, position = divmod(written, FILE_BYTES - group)
            data = bytearray(source)  # as it comes from a socket: in memory of its own
            os.pwritev(fds[file % 2], [data], position)
            os.fdatasync(fds[file % 2])
            written += group
        seconds, cpu = time.perf_counter() - started, cpu_s() - cpu
        for fd in fds:
            os.close(fd)
    return Figure(written / MiB / seconds, cpu / (written / 1e9), written // group)


async def log(total: int, batch: int, partitions: int, *, handoff: bool) -> Figure:
    with directory() as path:
        settings = LogSettings(journal_first_file_bytes=FILE_BYTES, handoff_ms=1000)
        if not handoff:
            settings = replace(settings, handoff_ms=3_600_000, handoff_bytes=1 << 50)
        storage = Storage(Options(data=str(path / "data"), log=settings), ignore)
        made = asyncio.get_running_loop().create_future()
        topic = storage.topics.create("t", partitions, {}, lambda e: made.set_result(e))
        await made
        ticking = asyncio.ensure_future(storage.run())
        warm_up = max(total // 2, WARM_UP_FILES * FILE_BYTES) if batch > SMALL_BATCH else total
        await append_all(storage, topic.id, warm_up, batch, partitions)
        started, cpu = time.perf_counter(), cpu_s()
        before = storage.log.commits
        await append_all(storage, topic.id, total, batch, partitions)
        seconds, cpu = time.perf_counter() - started, cpu_s() - cpu
        commits = storage.log.commits - before
        ticking.cancel()
        await storage.close()
    return Figure(total / MiB / seconds, cpu / (total / 1e9), commits)


async def append_all(storage: Storage, topic_id: bytes, total: int, batch: int, count: int) -> None:
    """Keep a window of batches under way until `total` bytes are durable."""
    source = make_batch([b"x" * (batch - 80)], base_timestamp=storage.clock.wall_ms())
    parts = [storage.log.partition(topic_id, n) for n in range(count)]
    loop = asyncio.get_running_loop()
    finished = loop.create_future()
    batches = total // len(source)
    window = WINDOW_BYTES // len(source)
    started = ended = 0
    filling = False

    def fill() -> None:
        nonlocal started, filling
        filling = False
        journal, append = storage.log.journal, storage.log.append
        while started < batches and started - ended < window:
            if journal.overloaded:
                loop.call_later(0.002, fill)
                return
            append(parts[started % count], bytearray(source), Moment.DURABLE, done)
            started += 1

    def done(error: LogError | None) -> None:
        nonlocal ended, filling
        if error is not None and not finished.done():
            finished.set_exception(error)
        ended += 1
        if ended == batches:
            finished.set_result(None)
        elif not filling:
            filling = True
            loop.call_soon(fill)

    fill()
    await finished


def ignore(error: BaseException) -> None:
    del error  # a pass that closing cut short


def against_bare(total: int, batch: int, counts: list[int], rounds: int, *, handoff: bool) -> None:
    """Rounds of the log at each number of partitions, each with the bare loop behind it."""
    bares: list[Figure] = []
    logs: dict[int, list[Figure]] = {n: [] for n in counts}
    for _ in range(rounds):
        for count in counts:
            figure = asyncio.run(log(total, batch, count, handoff=handoff))
            logs[count].append(figure)
            bares.append(bare(total, max(total // max(figure.commits, 1), 4096)))
    base = statistics.median(f.mb_per_s for f in bares)
    base_cpu = statistics.median(f.cpu_s_per_gb for f in bares)
    print(f"bare loop: {base:.0f} MB/s, {base_cpu:.2f} CPU s/GB")
    for count, figures in logs.items():
        rate = statistics.median(f.mb_per_s for f in figures)
        cpu = statistics.median(f.cpu_s_per_gb for f in figures)
        per_commit = total / MiB / statistics.median(f.commits for f in figures)
        print(
            f"{count:6d} partitions: {rate:.0f} MB/s, {rate / base:.2f} of bare (goal 0.70), "
            f"{cpu:.2f} CPU s/GB, {per_commit:.2f} MB a commit"
        )


def handoff_cost(total: int, batch: int, rounds: int) -> None:
    """The same log with and without handoff, in turns."""
    found: dict[bool, list[Figure]] = {True: [], False: []}
    for _ in range(rounds):
        for handoff in (True, False):
            found[handoff].append(asyncio.run(log(total, batch, 100, handoff=handoff)))
    rates = {h: statistics.median(f.mb_per_s for f in figures) for h, figures in found.items()}
    cpu = {h: statistics.median(f.cpu_s_per_gb for f in figures) for h, figures in found.items()}
    taken = 1 - rates[True] / rates[False]
    each_us = {h: spent * batch / 1e3 for h, spent in cpu.items()}
    print(
        f"{batch:6d} B batches: handoff takes {taken:.0%} of the rate (goal below 25 % from 16 KB "
        f"on), a batch {each_us[False]:.1f} us of CPU, {each_us[True]:.1f} with handoff"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mb", type=int, default=512)
    parser.add_argument("--batch", type=int, default=16384)
    parser.add_argument("--partitions", default="1,100,10000")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-handoff", action="store_true")
    args = parser.parse_args()
    tune()
    counts = [int(n) for n in args.partitions.split(",")]
    against_bare(args.mb * MiB, args.batch, counts, args.rounds, handoff=not args.no_handoff)
    handoff_cost(args.mb * MiB, args.batch, args.rounds)


if __name__ == "__main__":
    main()
