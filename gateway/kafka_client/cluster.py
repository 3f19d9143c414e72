"""A cluster as a command sees it: brokers, who leads what, who coordinates which group.

Connections are made when they are needed and kept until the end. Metadata is asked for
anew by every call that needs it: commands are short, and a stale answer would be wrong.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from types import TracebackType
from typing import Any

from ister.gateway.kafka_client.connection import TIMEOUT_S, Connection, Messages
from ister.gateway.kafka_client.errors import ClientError, Refused, Unreachable
from ister.gateway.listeners import Address, BadListener, parse_listeners
from ister.gateway.protocol.api import ApiKey
from ister.gateway.protocol.error_codes import ErrorCode
from ister.gateway.protocol.messages import find_coordinator, metadata

_GROUP = 0  # key type of FindCoordinator
_COORDINATOR_VERSION = 3  # later ones ask for several at a time
_METADATA_VERSION = 12
_TOPIC_WAIT_S, _TOPIC_WAITS_MAX = 0.1, 100
# A topic that is being made, or whose making has not come round yet.
_TOPIC_COMES = (
    ErrorCode.NONE,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)


def parse_bootstrap(text: str) -> list[Address]:
    """HOST:PORT, with commas between several; the port is 9092 if there is none."""
    found = []
    for each in filter(None, (part.strip() for part in text.split(","))):
        has_port = each.rpartition("]")[2].count(":") > 0
        try:
            (listener,) = parse_listeners(each if has_port else f"{each}:9092", "")
        except BadListener:
            raise ClientError(f"{each!r} is not HOST:PORT") from None
        found.append(listener.bind)
    if not found:
        raise ClientError("no address of a broker was given")
    return found


class Cluster:
    def __init__(self, bootstrap: str, timeout_s: float = TIMEOUT_S) -> None:
        self._bootstrap = parse_bootstrap(bootstrap)
        self._timeout_s = timeout_s
        self._connections: dict[Address, Connection] = {}
        self._first: Connection | None = None
        self._brokers: dict[int, Address] = {}

    def __enter__(self) -> Cluster:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for connection in self._connections.values():
            connection.close()

    # -- whom to ask -------------------------------------------------------------------

    def any(self) -> Connection:
        """The first bootstrap address that answers."""
        if self._first is not None:
            return self._first
        problems = []
        for address in self._bootstrap:
            try:
                self._first = self._connect(address)
            except Unreachable as error:
                problems.append(str(error))
            else:
                return self._first
        raise Unreachable("\n".join(problems))

    def broker(self, node_id: int) -> Connection:
        """The broker of that id, at the address that the cluster tells."""
        address = self._brokers.get(node_id)
        if address is None:
            raise ClientError(f"the cluster does not tell an address of broker {node_id}")
        try:
            return self._connect(address)
        except Unreachable as error:
            raise Unreachable(
                f"{self.any().address} says that broker {node_id} is at {address}, but: {error}. "
                "If that is not its address from here, the broker's advertised.listeners is wrong"
            ) from error

    def brokers(self) -> list[Connection]:
        """All of them."""
        self.metadata([])
        return [self.broker(node_id) for node_id in sorted(self._brokers)]

    def coordinator(self, group: str) -> Connection:
        request = find_coordinator.FindCoordinatorRequest(key=group, key_type=_GROUP)
        answer = self.ask(ApiKey.FIND_COORDINATOR, find_coordinator, request, _COORDINATOR_VERSION)
        if answer.error_code:
            what = f"no coordinator of group {group}"
            raise Refused(what, answer.error_code, answer.error_message)
        self._brokers[answer.node_id] = Address(answer.host, answer.port)
        return self.broker(answer.node_id)

    def ask(self, key: ApiKey, messages: Messages, request: Any, most: int | None = None) -> Any:
        """Of any broker."""
        return self.any().ask(key, messages, request, most)

    # -- metadata ----------------------------------------------------------------------

    def metadata(self, topics: Iterable[str] | None, *, create: bool = False) -> Any:
        """Of these topics, or of all (None)."""
        wanted = None
        if topics is not None:
            wanted = tuple(metadata.MetadataRequestTopic(name=name) for name in topics)
        request = metadata.MetadataRequest(topics=wanted, allow_auto_topic_creation=create)
        answer = self.ask(ApiKey.METADATA, metadata, request, _METADATA_VERSION)
        self._brokers = {each.node_id: Address(each.host, each.port) for each in answer.brokers}
        return answer

    def topic(self, name: str, *, create: bool = False) -> Any:
        """One topic's metadata; Refused if it is not there."""
        (found,) = self.metadata([name], create=create).topics
        if found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise Refused(f"there is no topic {name}", found.error_code)
        if found.error_code:
            raise Refused(f"topic {name}", found.error_code)
        return found

    def usable_topic(self, name: str, *, create: bool = False) -> Any:
        """The topic, once each partition has a leader: Kafka answers a creation before that."""
        for _ in range(_TOPIC_WAITS_MAX):
            (found,) = self.metadata([name], create=create).topics
            led = found.partitions and all(each.leader_id >= 0 for each in found.partitions)
            if not found.error_code and led:
                return found
            if found.error_code not in _TOPIC_COMES:
                break
            time.sleep(_TOPIC_WAIT_S)
        missing = found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        raise Refused(f"there is no topic {name}" if missing else f"topic {name}", found.error_code)

    def by_leader(self, name: str, partitions: Iterable[int]) -> dict[Connection, list[int]]:
        """Whom to ask about which partitions; ClientError for one without a leader."""
        leaders = {each.partition_index: each.leader_id for each in self.topic(name).partitions}
        found: dict[Connection, list[int]] = {}
        for partition in partitions:
            if partition not in leaders:
                raise ClientError(
                    f"topic {name} has no partition {partition}; it has {len(leaders)}"
                )
            if leaders[partition] < 0:
                raise ClientError(f"partition {partition} of {name} has no leader now")
            found.setdefault(self.broker(leaders[partition]), []).append(partition)
        return found

    def _connect(self, address: Address) -> Connection:
        connection = self._connections.get(address)
        if connection is None:
            connection = self._connections[address] = Connection(address, self._timeout_s)
        return connection
