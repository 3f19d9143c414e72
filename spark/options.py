"""The options of `format("ister")`: the Kafka source's names and meanings, and two of ours.

    path                         the bucket: file:///path, gs://bucket/prefix, an absolute path
    subscribe | subscribePattern | assign      topics, a regular expression, {"topic":[0,1]}
    startingOffsets, endingOffsets             earliest, latest, {"topic":{"0":23,"1":-2}}
    startingTimestamp, endingTimestamp         milliseconds, for all partitions
    startingOffsetsByTimestamp, endingOffsetsByTimestamp      {"topic":{"0":1000}}
    startingOffsetsByTimestampStrategy         error (default) or latest
    includeHeaders, failOnDataLoss, maxOffsetsPerTrigger      as there
    bytesPerTask                 how much one task reads, about

endingOffsets (by partition) also ends a stream: it stops there, which the Kafka source
cannot. A timestamp for all comes before timestamps by partition, those before offsets, as there.
Options that speak of the connection to a broker (`kafka.*` and the like) are passed over,
so that one set of options serves both sources; any other unknown name is refused.
What these mean in a given bucket is in `offsets.py`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ister.archive.ranges import SLICE_BYTES

EARLIEST, LATEST = -2, -1

# Of the Kafka source: how it talks to a broker or splits work. Without meaning here.
_PASSED_OVER = {
    "minpartitions",
    "maxrecordsperpartition",
    "groupidprefix",
    "fetchoffset.numretries",
    "fetchoffset.retryintervalms",
    "kafkaconsumer.polltimeoutms",
}
_KNOWN = {
    "path",
    "subscribe",
    "subscribepattern",
    "assign",
    "startingoffsets",
    "endingoffsets",
    "startingtimestamp",
    "endingtimestamp",
    "startingoffsetsbytimestamp",
    "endingoffsetsbytimestamp",
    "startingoffsetsbytimestampstrategy",
    "includeheaders",
    "failondataloss",
    "maxoffsetspertrigger",
    "bytespertask",
}

ByPartition = Mapping[str, Mapping[int, int]]


class BadOption(ValueError):
    """An option that cannot be; the message names it."""


@dataclass(frozen=True, slots=True)
class Position:
    """Where to start or end. Exactly one of the three is set."""

    everywhere: int | None = None  # EARLIEST or LATEST
    offsets: ByPartition | None = None  # may hold EARLIEST and LATEST
    times: ByPartition | int | None = None  # milliseconds; one number: for all partitions


@dataclass(frozen=True, slots=True)
class Request:
    url: str
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    start: Position = Position(EARLIEST)
    end: Position = Position(LATEST)
    latest_if_no_time: bool = False  # startingOffsetsByTimestampStrategy=latest
    headers: bool = False
    fail_on_data_loss: bool = True
    offsets_per_trigger_max: int | None = None
    bytes_per_task: int = SLICE_BYTES


def parse(options: Mapping[str, str], *, streaming: bool = False) -> Request:
    """What the options ask for; BadOption with the name of what is wrong."""
    given = {name.lower(): value for name, value in options.items()}
    for name in given:
        if name not in _KNOWN | _PASSED_OVER and not name.startswith("kafka."):
            raise BadOption(f"option {name} is not known")
    strategies = [name for name in ("subscribe", "subscribepattern", "assign") if name in given]
    if len(strategies) != 1:
        raise BadOption("give exactly one of subscribe, subscribePattern and assign")
    if streaming and any(n.startswith("ending") and n != "endingoffsets" for n in given):
        raise BadOption("a stream ends at endingOffsets or not at all")
    strategy = given.get("startingoffsetsbytimestampstrategy", "error").lower()
    if strategy not in ("error", "latest"):
        raise BadOption(f"startingOffsetsByTimestampStrategy is {strategy!r}: error or latest")
    limit = given.get("maxoffsetspertrigger")
    return Request(
        url=_url(given),
        topics=_names(given["subscribe"]) if "subscribe" in given else (),
        pattern=_pattern(given.get("subscribepattern")),
        assigned=_assigned(given["assign"]) if "assign" in given else {},
        start=_position(given, "starting", LATEST if streaming else EARLIEST, streaming=streaming),
        end=_position(given, "ending", LATEST, streaming=streaming),
        latest_if_no_time=strategy == "latest",
        headers=_flag(given, "includeheaders", False),
        fail_on_data_loss=_flag(given, "failondataloss", True),
        offsets_per_trigger_max=None if limit is None else _number(limit, "maxOffsetsPerTrigger"),
        bytes_per_task=_number(given.get("bytespertask", str(SLICE_BYTES)), "bytesPerTask"),
    )


def _url(given: Mapping[str, str]) -> str:
    path = given.get("path", "")
    if not path:
        raise BadOption("option path is missing: the bucket, as file:///path or gs://bucket/prefix")
    return f"file://{path}" if path.startswith("/") else path


def _names(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if not names:
        raise BadOption("subscribe names no topic")
    return names


def _pattern(text: str | None) -> str | None:
    if text is None:
        return None
    try:
        re.compile(text)
    except re.error as error:
        raise BadOption(f"subscribePattern {text!r}: {error}") from error
    return text


def _assigned(text: str) -> dict[str, tuple[int, ...]]:
    found = _json(text, "assign")
    if not found or not all(
        isinstance(numbers, list) and all(type(n) is int and n >= 0 for n in numbers)
        for numbers in found.values()
    ):
        raise BadOption('assign wants {"topic":[0,1]}')
    return {topic: tuple(sorted(set(numbers))) for topic, numbers in found.items()}


def _position(given: Mapping[str, str], side: str, default: int, *, streaming: bool) -> Position:
    if (text := given.get(f"{side}timestamp")) is not None:
        return Position(times=_number(text, f"{side}Timestamp", low=0))
    if (text := given.get(f"{side}offsetsbytimestamp")) is not None:
        return Position(times=_by_partition(text, f"{side}OffsetsByTimestamp", low=0))
    text = given.get(f"{side}offsets", "")
    if text.strip().lower() in ("earliest", "latest"):
        place = EARLIEST if text.strip().lower() == "earliest" else LATEST
        wrong = LATEST if side == "starting" else EARLIEST
        if place == wrong and not streaming:
            raise BadOption(f"{side}Offsets of a batch cannot be {text}")
        return Position(place)
    if not text:
        return Position(default)
    return Position(offsets=_by_partition(text, f"{side}Offsets", low=EARLIEST))


def _by_partition(text: str, name: str, low: int) -> ByPartition:
    found = _json(text, name)
    try:
        numbers = {
            topic: {int(partition): value for partition, value in values.items()}
            for topic, values in found.items()
        }
    except (AttributeError, ValueError) as error:
        raise BadOption(f'{name} wants {{"topic":{{"0":23}}}}') from error
    for values in numbers.values():
        for value in values.values():
            if type(value) is not int or value < low:
                raise BadOption(f"{name}: {value!r} is not a number from {low} on")
    return numbers


def _json(text: str, name: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise BadOption(f"{name} is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise BadOption(f"{name} is no JSON object")
    return found


def _flag(given: Mapping[str, str], name: str, default: bool) -> bool:
    text = given.get(name, str(default)).strip().lower()
    if text not in ("true", "false"):
        raise BadOption(f"option {name} is {text!r}: true or false")
    return text == "true"


def _number(text: str, name: str, low: int = 1) -> int:
    try:
        number = int(text)
    except ValueError:
        number = low - 1
    if number < low:
        raise BadOption(f"{name} is {text!r}: a number from {low} on")
    return number
