"""How long opening takes after a crash, per GB of journal that was not handed off.

    python -m bench.recovery [--mb 1024] [--batches 100,1000,16384]

A log is filled with the bucket away, then left without being closed (its
descriptors are dropped, as a dead process would), and opened again.
"""

from __future__ import annotations

import argparse
import asyncio
import time

from bench.journal import MiB, append_all, directory, ignore
from ister.gateway.app import Options, Storage
from ister.gateway.runtime import tune
from ister.wal.settings import LogSettings

AWAY = LogSettings(handoff_ms=1 << 40, handoff_bytes=1 << 50)


async def fill(data: str, total: int, batch: int) -> None:
    storage = Storage(Options(data=data, log=AWAY), ignore)
    made = asyncio.get_running_loop().create_future()
    topic = storage.topics.create("t", 10, {}, made.set_result)
    await made
    await append_all(storage, topic.id, total, batch, 10)
    storage.driver.close()  # no end mark, no last checkpoint
    storage.lock.release()


async def reopen(data: str) -> tuple[float, float, int]:
    started, cpu = time.perf_counter(), time.process_time()
    storage = Storage(Options(data=data, log=AWAY), ignore)
    seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
    batches = storage.opened.report.batches
    await storage.close()
    return seconds, cpu, batches


def measure(total: int, batch: int) -> None:
    with directory() as path:
        data = str(path / "data")
        asyncio.run(fill(data, total, batch))
        seconds, cpu, scanned = asyncio.run(reopen(data))
    gigabytes = total / 1e9
    print(
        f"{batch:6d} B batches: {seconds / gigabytes:.2f} s/GB (goal 0.5), "
        f"{cpu / gigabytes:.2f} CPU s/GB, {scanned} batches scanned"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mb", type=int, default=1024)
    parser.add_argument("--batches", default="100,1000,16384")
    args = parser.parse_args()
    tune()
    for batch in map(int, args.batches.split(",")):
        measure(args.mb * MiB, batch)


if __name__ == "__main__":
    main()
