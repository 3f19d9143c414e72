"""The wire against Apache Kafka, in one run on one machine.

    python -m bench.wire [--seconds 4] [--mb 200] [--warm-mb 300] [--rounds 1] [--no-kafka]
                         [--only NAME,...]

Each round starts both brokers afresh, one after the other, and lets the clients of
`bench.wire_load` work on them in a process of their own. CPU is that of the broker's
process alone. Kafka runs with its defaults, that is without a sync before its answers;
Ister syncs. Requests of one record are also stated as a multiple of `bench.bare`, a server
that does nothing but take and answer frames, measured in between. Figures are medians over
the rounds and never a verdict: the machine is shared.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.wire_load import cpu_s

# What every broker still has in memory when it is read.
RECENT_MB = 40
GOALS = {
    "start s": 0.5,
    "idle MB": 60,
    "idle CPU %": 0.5,
    "produce 1 KB: CPU s/GB": 1.0,
    "consume 1 KB: CPU s/GB": 0.4,
    "produce 100 B: CPU s/million": 0.2,
    "produce 100 B x 16 partitions: CPU s/million": 0.7,
    "1 connection: CPU us": 200,
    "32 connections: CPU us": 33,
    "1 connection x 32: CPU us": 15,
    "32 connections: CPU x bare": 3.5,  # 33 us over the 9.3 us of a bare loop on a quiet machine
    "1 connection x 32: CPU x bare": 10.7,
    "end to end 500/s: p50 ms": 1.2,
    "end to end 5000/s: p50 ms": 3,
    "end to end 5000/s: p99 ms": 50,
    "new group, librdkafka s": 0.15,
    "new group, aiokafka s": 0.05,
    "200 parked: CPU us per empty fetch": 40,
    "200 parked: wake p50 ms": 6,
    "memory high MB": 250,
}


def memory_mb(pid: int, what: str = "VmRSS") -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(what):
            return int(line.split()[1]) / 1024
    return 0.0


class Bench:
    """One broker that is being measured."""

    def __init__(self, pid: int, bootstrap: str, args: argparse.Namespace) -> None:
        self.pid = pid
        self.bootstrap = bootstrap
        self.args = args
        self.figures: dict[str, float] = {}

    def load(self, case: str, **arguments: Any) -> tuple[dict[str, float], float]:
        """(what the client says, CPU seconds of the broker)."""
        before = cpu_s(self.pid)
        said = subprocess.run(  # noqa: S603 - our own client
            [sys.executable, "-m", "bench.wire_load", case, self.bootstrap, json.dumps(arguments)],
            stdout=subprocess.PIPE,
            check=True,
        )
        return json.loads(said.stdout), cpu_s(self.pid) - before

    # -- cases ---------------------------------------------------------------------------

    def idle(self) -> None:
        time.sleep(1.0)
        before = cpu_s(self.pid)
        time.sleep(3.0)
        self.figures["idle CPU %"] = (cpu_s(self.pid) - before) / 3 * 100
        self.figures["idle MB"] = memory_mb(self.pid)

    def groups(self) -> None:
        found, _ = self.load("new_group", topic="group")
        self.figures["new group, librdkafka s"] = found["librdkafka_s"]
        self.figures["new group, aiokafka s"] = found["aiokafka_s"]

    def requests(self) -> None:
        for name, connections, in_flight in (
            ("1 connection", 1, 1),
            ("32 connections", 32, 1),
            ("1 connection x 32", 1, 32),
        ):
            arguments = {"topic": "r", "connections": connections, "in_flight": in_flight}
            found, cpu = self.load("requests", seconds=self.args.seconds, **arguments)
            each = cpu / found["requests"] * 1e6
            self.figures[f"{name}: req/s"] = found["rate"]
            self.figures[f"{name}: p50 ms"] = found["p50_ms"]
            self.figures[f"{name}: CPU us"] = each
            with bare(self.args) as other:
                found, cpu = other.load(
                    "requests", seconds=self.args.seconds, bare=True, **arguments
                )
            self.figures[f"{name}: CPU x bare"] = each / (cpu / found["requests"] * 1e6)

    def end_to_end(self) -> None:
        for rate in (500, 5000):
            found, _ = self.load(
                "end_to_end", topic=f"e2e{rate}", rate=rate, seconds=self.args.seconds
            )
            self.figures[f"end to end {rate}/s: p50 ms"] = found["p50_ms"]
            self.figures[f"end to end {rate}/s: p99 ms"] = found["p99_ms"]

    def parked(self) -> None:
        found, _ = self.load(
            "parked", topic="parked", readers=200, seconds=self.args.seconds, pid=self.pid
        )
        self.figures["200 parked: CPU us per empty fetch"] = found["empty_us"]
        self.figures["200 parked: wake p50 ms"] = found["wake_p50_ms"]

    def bulk(self) -> None:
        # Journal files are prewritten once and then used again: what is measured is the latter.
        self.load("produce", topic="warm", size=1000, count=self.args.warm_mb * 1000)
        count = self.args.mb * 1000
        found, cpu = self.load("produce", topic="bulk", size=1000, count=count)
        self.figures["produce 1 KB: CPU s/GB"] = cpu / (count / 1e6)
        self.figures["produce 1 KB: MB/s"] = found["mb_s"]
        recent = min(count, RECENT_MB * 1000)
        found, cpu = self.load(
            "consume", topic="bulk", size=1000, count=recent, start=count - recent, times=4
        )
        self.figures["consume 1 KB: CPU s/GB"] = cpu / (4 * recent / 1e6)
        self.figures["consume 1 KB: MB/s"] = found["mb_s"]
        found, cpu = self.load("consume", topic="bulk", size=1000, count=count)
        self.figures["consume 1 KB, old: CPU s/GB"] = cpu / (count / 1e6)
        self.figures["consume 1 KB, old: MB/s"] = found["mb_s"]

    def small(self) -> None:
        count = self.args.mb * 4000
        for name, partitions in (("100 B", 1), ("100 B x 16 partitions", 16)):
            _, cpu = self.load(
                "produce", topic=f"small{partitions}", size=100, count=count, partitions=partitions
            )
            self.figures[f"produce {name}: CPU s/million"] = cpu / (count / 1e6)


CASES: dict[str, Callable[[Bench], None]] = {
    name: getattr(Bench, name)
    for name in ("idle", "groups", "requests", "end_to_end", "parked", "bulk", "small")
}


@contextmanager
def bare(args: argparse.Namespace) -> Iterator[Bench]:
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.bare"], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        yield Bench(process.pid, f"127.0.0.1:{int(process.stdout.readline())}", args)
    finally:
        process.kill()
        process.communicate()


@contextmanager
def started(name: str, folder: Path) -> Iterator[Any]:
    from compat_tests import brokers

    broker = brokers.ister(folder) if name == "ister" else brokers.kafka_process(folder, {})
    with broker as running:
        yield running


def measure(name: str, args: argparse.Namespace) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="ister-bench-") as path:
        began = time.perf_counter()
        with started(name, Path(path)) as running:
            bench = Bench(running.pid, running.bootstrap, args)
            bench.figures["start s"] = time.perf_counter() - began
            for case in args.only.split(","):
                CASES[case](bench)
            bench.figures["memory high MB"] = memory_mb(running.pid, "VmHWM")
        return bench.figures


def table(rounds: dict[str, list[dict[str, float]]]) -> str:
    names = list(rounds)
    lines = [f"{'':48s}" + "".join(f"{name:>12s}" for name in names) + f"{'goal':>8s}"]
    for figure in rounds[names[0]][0]:
        values = [
            statistics.median(found[figure] for found in rounds[name] if figure in found)
            for name in names
        ]
        goal = f"{GOALS[figure]:8g}" if figure in GOALS else ""
        lines.append(f"{figure:48s}" + "".join(f"{value:12.3f}" for value in values) + goal)
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--mb", type=int, default=200)
    parser.add_argument("--warm-mb", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--no-kafka", action="store_true")
    parser.add_argument("--only", default=",".join(CASES))
    args = parser.parse_args()
    rounds: dict[str, list[dict[str, float]]] = defaultdict(list)
    for _ in range(args.rounds):
        for name in ("ister",) if args.no_kafka else ("ister", "kafka"):
            rounds[name].append(measure(name, args))
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    print(table(rounds))


if __name__ == "__main__":
    main()
