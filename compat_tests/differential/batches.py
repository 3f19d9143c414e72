"""Record batches of an answer as dictionaries, so that their fields are compared too."""

from __future__ import annotations

from struct import Struct
from typing import Any

from crc32c import crc32c

_HEAD = Struct(">qiibI")
_REST = Struct(">hiqqqhii")
_CRC_FROM = 21
_LOG_APPEND_TIME = 8


def read_batches(data: bytes | None) -> list[dict[str, Any]] | None:
    """Each whole batch; its checksum is checked and left out.

    Kafka cuts the last one off where the size that was asked for ends; clients pass over it.
    """
    if data is None:
        return None
    found: list[dict[str, Any]] = []
    position = 0
    while position < len(data):
        if len(data) - position < _HEAD.size + _REST.size:
            break
        base, size, epoch, magic, checksum = _HEAD.unpack_from(data, position)
        end = position + 12 + size
        if end > len(data):
            break
        assert crc32c(data[position + _CRC_FROM : end]) == checksum, f"checksum of batch {base}"
        fields = _REST.unpack_from(data, position + _CRC_FROM)
        attributes, last_delta, first_time, max_time, producer, epoch_of, first, count = fields
        batch = {
            "base_offset": base,
            "leader_epoch": epoch,
            "magic": magic,
            "attributes": attributes,
            "last_offset_delta": last_delta,
            "base_timestamp": first_time,
            "producer_id": producer,
            "producer_epoch": epoch_of,
            "base_sequence": first,
            "count": count,
            "records": data[position + _HEAD.size + _REST.size : end],
        }
        batch["append_time" if attributes & _LOG_APPEND_TIME else "max_timestamp"] = max_time
        found.append(batch)
        position = end
    return found
