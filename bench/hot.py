"""What one small request costs the broker, without sockets.

    python -m bench.hot [--requests 4096] [--rounds 15] [--connections 1] [--in-flight 32]

Produce frames of one record of 100 bytes go straight into the connections of a real broker
(`ClientConnection`), whose transports take what is written and keep nothing; the data
directory should lie in memory (`TMPDIR=/dev/shm`). Each round sends what is in flight on
every connection, waits until all of it is answered, and so on. Stated is the CPU of the loop's
thread and of the whole process, best of the rounds, and the number of calls a request makes
on the loop's thread, which does not depend on what else the machine does.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from ister.gateway.app import Options
from ister.gateway.broker import Broker
from ister.gateway.client import ClientConnection
from ister.gateway.protocol.api import ApiKey
from ister.gateway.protocol.headers import request_frame
from ister.gateway.runtime import tune
from ister.gateway.settings import Given, build, log_settings
from ister.gateway.tests.wire_kit import Wire, produce_body
from ister.wal.tests.batches import make_batch

VERSION = 9


class Sink(asyncio.Transport):
    """Takes everything; tells how many answers came. They are all of one size."""

    def __init__(self, came: Callable[[int], None]) -> None:
        super().__init__({"peername": ("127.0.0.1", 1)})
        self._came = came

    def write(self, data: Any) -> None:
        self._came(len(data) // (4 + int.from_bytes(data[:4])))

    def abort(self) -> None:
        pass

    close = abort

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


class Load:
    """Connections with frames to send."""

    def __init__(self, broker: Broker, connections: int, in_flight: int) -> None:
        body = produce_body(VERSION, [("t", [(0, make_batch([bytes(100)]))])])
        frame = request_frame(ApiKey.PRODUCE, VERSION, 1, "bench", [body])
        self._data = frame * in_flight
        self._in_flight = in_flight
        self._left = 0
        self._answered = asyncio.Event()
        self.clients = [
            ClientConnection(broker.server, broker.listeners[0]) for _ in range(connections)
        ]
        for client in self.clients:
            client.connection_made(Sink(self._came))

    def _came(self, count: int) -> None:
        self._left -= count
        if not self._left:
            self._answered.set()

    def end(self) -> None:
        for client in self.clients:
            client.connection_lost(None)

    async def run(self, requests: int) -> None:
        data = self._data
        sent = 0
        while sent < requests:
            self._answered.clear()
            self._left = self._in_flight * len(self.clients)
            sent += self._left
            for client in self.clients:
                client.get_buffer(-1)[: len(data)] = data
                client.buffer_updated(len(data))
            await self._answered.wait()


async def calls(load: Load, requests: int) -> Counter[str]:
    """How often what is called on this thread."""
    found: Counter[str] = Counter()

    def note(frame: Any, event: str, argument: Any) -> None:
        if event == "call":
            found[f"{frame.f_code.co_filename.rsplit('/', 1)[-1]}:{frame.f_code.co_qualname}"] += 1
        elif event == "c_call":
            found["C"] += 1
            found[f"C {argument.__qualname__}"] += 1

    sys.setprofile(note)
    await load.run(requests)
    sys.setprofile(None)
    return found


async def measure(args: argparse.Namespace, data: str) -> None:
    settings = build({"listeners": Given("127.0.0.1:0", "bench")})
    broker = Broker(Options(data=data, log=log_settings(settings), seed=1), settings, print)
    await broker.start()
    port = broker.listeners[0].bind.port
    await asyncio.to_thread(_create, port)
    load = Load(broker, args.connections, args.in_flight)
    await load.run(args.requests)
    tune()
    best, whole = float("inf"), float("inf")
    for _ in range(args.rounds):
        thread, process = time.thread_time(), time.process_time()
        await load.run(args.requests)
        best = min(best, time.thread_time() - thread)
        whole = min(whole, time.process_time() - process)
        broker.tick()
    counted = await calls(load, args.requests)
    each = 1e6 / args.requests
    c_calls = counted.pop("C")
    python = sum(count for name, count in counted.items() if not name.startswith("C "))
    print(
        f"{args.connections} x {args.in_flight}: {best * each:.2f} us of the loop's thread, "
        f"{whole * each:.2f} us in all; calls per request: {python / args.requests:.1f} of "
        f"Python, {c_calls / args.requests:.1f} of C"
    )
    if args.calls:
        for name, count in counted.most_common(args.calls):
            print(f"{count / args.requests:8.2f}  {name}")
    load.end()
    await broker.close()


def _create(port: int) -> None:
    with Wire(port) as wire:
        wire.create("t")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=4096)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--connections", type=int, default=1)
    parser.add_argument("--in-flight", type=int, default=32)
    parser.add_argument("--calls", type=int, default=0, help="how many of the calls to list")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ister-bench-") as data:
        asyncio.run(measure(args, data))


if __name__ == "__main__":
    main()
