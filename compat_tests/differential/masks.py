"""What is not compared, and why: the one list. And collections whose order Kafka does not fix.

A mask never hides whether there is a value: nothing, zero, -1 and "" stay as they are. Ids
are not dropped but named in the order in which a broker told them, so that two that should
be the same, or should not, are still seen. There is no mask for error codes, offsets,
counts, names or ordering.
"""

from __future__ import annotations

import uuid
from typing import Any, NamedTuple

WORDS, TIME, SIZE = "words", "time", "size"
NEUTRAL = (None, "", 0, -1, uuid.UUID(int=0))


class Mask(NamedTuple):
    api: str  # "*": all
    field: str  # a path; for all APIs the name of the field
    kind: str  # ids of one kind are named together
    reason: str


MASKS = (
    Mask("*", "error_message", WORDS, "words are for people; each broker has its own"),
    Mask("*", "batch_index_error_message", WORDS, "words are for people"),
    Mask("*", "topic_id", "topic id", "random"),
    Mask("*", "member_id", "member", "has a random part"),
    Mask("join_group", "leader", "member", "a member id"),
    Mask("*", "cluster_id", "cluster", "random"),
    Mask("*", "host", "host", "each broker's own address"),
    Mask("*", "port", "port", "each broker's own address"),
    Mask("*", "producer_id", "producer", "given out by the broker"),
    Mask("fetch", "session_id", "session", "random"),
    Mask("produce", "responses.partition_responses.log_append_time_ms", TIME, "the broker's clock"),
    Mask("fetch", "responses.partitions.records.append_time", TIME, "the broker's clock"),
    Mask("describe_configs", "results.configs.documentation", WORDS, "words are for people"),
    Mask("describe_log_dirs", "results.log_dir", "directory", "each broker's own directory"),
    Mask("describe_log_dirs", "results.total_bytes", SIZE, "the machine's volume"),
    Mask("describe_log_dirs", "results.usable_bytes", SIZE, "the machine's volume"),
    Mask("api_versions", "finalized_features_epoch", SIZE, "counts changes of the cluster"),
)


class Keyed(NamedTuple):
    api: str
    path: str
    keys: tuple[str, ...]


# Kafka answers these from hash maps, or says nowhere that it keeps the order of the request.
KEYED = (
    Keyed("api_versions", "api_keys", ("api_key",)),
    Keyed("api_versions", "supported_features", ("name",)),
    Keyed("api_versions", "finalized_features", ("name",)),
    Keyed("metadata", "topics", ("name",)),
    Keyed("metadata", "topics.partitions", ("partition_index",)),
    Keyed("create_topics", "topics", ("name",)),
    Keyed("create_topics", "topics.configs", ("name",)),
    Keyed("delete_topics", "responses", ("name", "error_code")),
    Keyed("delete_records", "topics", ("name",)),
    Keyed("delete_records", "topics.partitions", ("partition_index",)),
    Keyed("create_partitions", "results", ("name",)),
    Keyed("describe_configs", "results", ("resource_type", "resource_name")),
    Keyed("describe_configs", "results.configs", ("name",)),
    Keyed("alter_configs", "responses", ("resource_type", "resource_name")),
    Keyed("incremental_alter_configs", "responses", ("resource_type", "resource_name")),
    Keyed("describe_log_dirs", "results.topics", ("name",)),
    Keyed("describe_log_dirs", "results.topics.partitions", ("partition_index",)),
    Keyed("elect_leaders", "replica_election_results", ("topic",)),
    Keyed("elect_leaders", "replica_election_results.partition_result", ("partition_id",)),
    Keyed("list_groups", "groups", ("group_id",)),
    Keyed("describe_groups", "groups", ("group_id",)),
    Keyed("describe_groups", "groups.members", ("member_metadata",)),
    Keyed("delete_groups", "results", ("group_id",)),
    Keyed("join_group", "members", ("metadata",)),
    Keyed("offset_fetch", "groups", ("group_id",)),
    Keyed("offset_fetch", "groups.topics", ("name",)),
    Keyed("offset_fetch", "groups.topics.partitions", ("partition_index",)),
    Keyed("offset_fetch", "topics", ("name",)),
    Keyed("offset_fetch", "topics.partitions", ("partition_index",)),
    Keyed("offset_commit", "topics", ("name",)),
    Keyed("offset_commit", "topics.partitions", ("partition_index",)),
    Keyed("offset_delete", "topics", ("name",)),
    Keyed("offset_delete", "topics.partitions", ("partition_index",)),
    Keyed("offset_for_leader_epoch", "topics", ("topic",)),
    Keyed("offset_for_leader_epoch", "topics.partitions", ("partition",)),
    Keyed("list_offsets", "topics", ("name",)),
    Keyed("list_offsets", "topics.partitions", ("partition_index",)),
    Keyed("produce", "responses", ("name", "topic_id")),
    Keyed("produce", "responses.partition_responses", ("index",)),
    Keyed("fetch", "responses", ("topic", "topic_id")),
    Keyed("fetch", "responses.partitions", ("partition_index",)),
)

_BY_PLACE = {(each.api, each.field): each for each in MASKS}
_KEYS = {(each.api, each.path): each.keys for each in KEYED}


def mask_of(api: str, path: str) -> Mask | None:
    return _BY_PLACE.get((api, path)) or _BY_PLACE.get(("*", path.rpartition(".")[2]))


def ordered(api: str, path: str, items: list[Any], masked: bool) -> list[Any]:
    """The items in an order that does not depend on the broker, if Kafka's is not fixed.

    Before masking without what is random, so that ids are named in the same order; then with.
    """
    keys = _KEYS.get((api, path), ())
    if not masked:
        keys = tuple(key for key in keys if mask_of(api, f"{path}.{key}") is None)
    return sorted(items, key=lambda item: [str(item.get(key)) for key in keys])
