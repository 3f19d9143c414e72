"""Metrics of the wire: requests and connections."""

from __future__ import annotations

from collections.abc import Iterator

from ister.gateway.broker import Broker
from ister.gateway.http.families import COUNTER, Family, counter, gauge, histograms, rows
from ister.gateway.protocol.api import ApiKey
from ister.gateway.protocol.error_codes import ErrorCode


def collect(core: Broker) -> Iterator[Family]:
    yield gauge("ister_connections", "Connections of clients.", len(core.server.clients))
    yield counter(
        "ister_connections_refused_total",
        "Connections above a limit, closed at once.",
        core.server.refused,
    )
    yield rows(
        "ister_requests_total",
        COUNTER,
        "Requests answered, by API and first error (none: error is empty).",
        ("api", "error"),
        _requests(core),
    )
    yield histograms(
        "ister_request_seconds",
        "From the whole request to its answer, waiting included.",
        ("api",),
        [((api_name(key),), stats.seconds) for key, stats in core.context.requests.by_api.items()],
    )
    yield gauge("ister_parked_fetches", "Fetches that wait for data.", core.parked.count)


def _requests(core: Broker) -> Iterator[tuple[tuple[str, ...], float]]:
    for key, stats in core.context.requests.by_api.items():
        name = api_name(key)
        failed = 0
        for code, count in stats.errors.items():
            failed += count
            yield (name, ErrorCode(code).name), count
        yield (name, ""), stats.seconds.count - failed


def api_name(key: int) -> str:
    """As the protocol's documents write it: ListOffsets."""
    return "".join(word.capitalize() for word in ApiKey(key).name.split("_"))
