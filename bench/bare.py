"""A server that only takes frames and answers each with the same bytes: sockets and loop, alone.

`python -m bench.bare` prints its port. What a request costs here no Python broker on this
machine, at this load, can be cheaper than; `bench.wire` states Ister's requests as a multiple.
"""

from __future__ import annotations

import asyncio
import struct
from typing import cast

from ister.gateway.runtime import tune

ANSWER = struct.pack(">ii", 64, 1) + bytes(60)
BUFFER_BYTES = 256 * 1024


class Bare(asyncio.BufferedProtocol):
    shared = memoryview(bytearray(BUFFER_BYTES))

    def __init__(self) -> None:
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.shared

    def buffer_updated(self, count: int) -> None:
        data = self._rest + bytes(self.shared[:count])
        position = answers = 0
        while len(data) - position >= 4:
            size = struct.unpack_from(">i", data, position)[0]
            if len(data) - position - 4 < size:
                break
            position += 4 + size
            answers += 1
        self._rest = data[position:]
        if answers:
            self._transport.write(ANSWER * answers)


async def main() -> None:
    server = await asyncio.get_running_loop().create_server(Bare, "127.0.0.1", 0)
    tune()
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
