"""How much one message may claim, each number with its reason.

A claim is compared with its limit, and with the bytes that are really there,
before any memory is taken for it.
"""

from __future__ import annotations

from typing import Final

# Kafka's own bound: a string has a signed 16-bit length, and its generated code refuses
# longer compact strings too.
STRING_BYTES_MAX: Final = 0x7FFF

# Array items and tagged fields of one message, all arrays together, unless the broker's
# `ister.request.items.max` says otherwise. An item may be two bytes on the wire and a hundred in
# memory, so bytes alone bound nothing. 200,000 is as many partitions as one Kafka cluster is said
# to carry, and about 30 MB of objects at worst.
ITEMS_MAX: Final = 200_000

# A frame: 4 bytes of length, then at most this much. Kafka's `socket.request.max.bytes`.
FRAME_BYTES_MAX: Final = 104_857_600

# The smallest frame: api key, version, correlation id and a null client id.
FRAME_BYTES_MIN: Final = 10
