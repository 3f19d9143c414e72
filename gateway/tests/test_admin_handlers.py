"""Topics, settings and the rest of the control plane over the wire, without an oracle.

`compat_tests/versions` compares every version with Kafka; here stands what each handler is
for, the pitfalls by number, and what Kafka has nothing to compare with.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ister.gateway.protocol.api import ApiKey
from ister.gateway.protocol.error_codes import ErrorCode
from ister.gateway.router import APIS
from ister.gateway.tests.message_values import module_of
from ister.gateway.tests.wire_kit import Running, Wire
from ister.wal.tests.batches import make_batch

TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """One broker for all: every test uses topics of its own."""
    with Running(tmp_path_factory.mktemp("admin") / "data") as running:
        yield running


@pytest.fixture
def wire(shared: Running) -> Iterator[Wire]:
    with shared.connect() as connection:
        yield connection


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A name that only this test has."""
    name = "".join(c if c.isalnum() else "." for c in request.node.name)
    return name[-200:]


def ask(wire: Wire, api: str, version: int | None = None, **fields: Any) -> Any:
    module = module_of(api)
    key = ApiKey[api.upper()]
    asked = module.REQUEST.message(**fields)
    newest = APIS[key].versions[1]
    return wire.request(module, key, newest if version is None else version, asked)


def versions(api: str) -> range:
    low, high = APIS[ApiKey[api.upper()]].versions
    return range(low, high + 1)


def creation(name: str, partitions: int = 1, **configs: str) -> Any:
    module = module_of("create_topics")
    return module.CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=1,
        assignments=(),
        configs=tuple(
            module.CreatableTopicConfig(name=key.replace("_", "."), value=value)
            for key, value in configs.items()
        ),
    )


def settings_of(wire: Wire, topic: str) -> dict[str, Any]:
    module = module_of("describe_configs")
    resource = module.DescribeConfigsResource(
        resource_type=TOPIC, resource_name=topic, configuration_keys=None
    )
    answer = ask(wire, "describe_configs", resources=(resource,), include_synonyms=True)
    return {each.name: each for each in answer.results[0].configs}


def change(wire: Wire, topic: str, *edits: tuple[str, int, str | None], kind: int = TOPIC) -> Any:
    module = module_of("incremental_alter_configs")
    resource = module.AlterConfigsResource(
        resource_type=kind,
        resource_name=topic,
        configs=tuple(
            module.AlterableConfig(name=name, config_operation=operation, value=value)
            for name, operation, value in edits
        ),
    )
    answer = ask(wire, "incremental_alter_configs", resources=(resource,), validate_only=False)
    return answer.responses[0]


@pytest.mark.parametrize("version", versions("create_topics"))
def test_a_topic_is_made(wire: Wire, topic: str, version: int):
    """It can be written to as soon as it is answered; an id from version 7 on."""
    answer = ask(
        wire,
        "create_topics",
        version,
        topics=(creation(topic, 3),),
        timeout_ms=1000,
        validate_only=False,
    )
    (made,) = answer.topics
    assert (made.name, made.error_code) == (topic, 0)
    if version >= 5:
        assert made.num_partitions == 3
    if version >= 7:
        assert made.topic_id != bytes(16)
    assert wire.produce(topic, make_batch([b"v"]), partition=2).error == 0


@pytest.mark.parametrize("version", versions("delete_topics"))
def test_a_topic_is_deleted(wire: Wire, topic: str, version: int):
    """By name, from 6 on by id; a second time it is not there."""
    topic_id = wire.create(topic)
    module = module_of("delete_topics")
    names: Any = {"topic_names": (topic,)}
    if version >= 6:
        by_id = module.DeleteTopicState(name=None, topic_id=topic_id)
        names = {"topics": (by_id,)}
    codes = []
    for _ in range(2):
        answer = ask(wire, "delete_topics", version, timeout_ms=1000, **names)
        codes.append(answer.responses[0].error_code)
    missing = ErrorCode.UNKNOWN_TOPIC_ID if version >= 6 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes == [0, int(missing)]


def test_a_topic_made_again_has_another_id(wire: Wire, topic: str):
    """Pitfall 3: ids are real and never come back."""
    first = wire.create(topic)
    ask(wire, "delete_topics", 5, timeout_ms=1000, topic_names=(topic,))
    assert first != wire.create(topic) != bytes(16)


def test_deletion_can_be_forbidden(tmp_path):
    """TOPIC_DELETION_DISABLED; INVALID_REQUEST to clients that do not know it."""
    with (
        Running(tmp_path / "data", {"delete.topic.enable": "false"}) as running,
        running.connect() as wire,
    ):
        wire.create("kept")
        for version, code in ((5, 73), (2, 42)):
            answer = ask(wire, "delete_topics", version, timeout_ms=1000, topic_names=("kept",))
            assert answer.responses[0].error_code == code


def test_a_name_collides_with_its_double(wire: Wire, topic: str):
    """Pitfall 20: '.' and '_' are one character to metrics, so they are to names."""
    wire.create(f"{topic}.x")
    answer = ask(
        wire,
        "create_topics",
        topics=(creation(f"{topic}_x"),),
        timeout_ms=1000,
        validate_only=False,
    )
    assert answer.topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize("version", versions("create_partitions"))
def test_partitions_are_added_and_every_topic_is_echoed(wire: Wire, topic: str, version: int):
    """Pitfall 28: an empty answer leaves clients waiting."""
    wire.create(topic)
    module = module_of("create_partitions")
    asked = tuple(
        module.CreatePartitionsTopic(name=name, count=3, assignments=None)
        for name in (topic, f"no-{topic}")
    )
    answer = ask(
        wire, "create_partitions", version, topics=asked, timeout_ms=1000, validate_only=False
    )
    assert {each.name: each.error_code for each in answer.results} == {topic: 0, f"no-{topic}": 3}
    assert wire.produce(topic, make_batch([b"v"]), partition=2).error == 0


@pytest.mark.parametrize("version", versions("delete_records"))
def test_records_are_deleted(wire: Wire, topic: str, version: int):
    """The log start is told when it is durable; -1 is everything."""
    wire.create(topic)
    wire.produce(topic, make_batch([b"0", b"1", b"2"]))
    module = module_of("delete_records")
    told = []
    for offset in (2, -1, 9):
        partition = module.DeleteRecordsPartition(partition_index=0, offset=offset)
        asked = module.DeleteRecordsTopic(name=topic, partitions=(partition,))
        answer = ask(wire, "delete_records", version, topics=(asked,), timeout_ms=1000)
        (result,) = answer.topics[0].partitions
        told.append((result.error_code, result.low_watermark))
    assert told == [(0, 2), (0, 3), (int(ErrorCode.OFFSET_OUT_OF_RANGE), -1)]


@pytest.mark.parametrize("version", versions("describe_configs"))
def test_settings_come_with_defaults_sources_and_types(wire: Wire, topic: str, version: int):
    """Pitfall 28: tools read, compare and write back all of them."""
    wire.create(topic, retention_ms="1000")
    module = module_of("describe_configs")
    resource = module.DescribeConfigsResource(
        resource_type=TOPIC, resource_name=topic, configuration_keys=None
    )
    answer = ask(
        wire,
        "describe_configs",
        version,
        resources=(resource,),
        include_synonyms=True,
        include_documentation=True,
    )
    found = {each.name: each for each in answer.results[0].configs}
    assert (found["retention.ms"].value, found["retention.ms"].config_source) == ("1000", 1)
    assert (found["cleanup.policy"].value, found["cleanup.policy"].config_source) == ("delete", 5)
    assert {"ister.dispatch.mode", "ister.durability", "ister.ring.bytes"} <= found.keys()
    assert found["ister.dispatch.mode"].read_only
    if version >= 3:
        assert found["max.message.bytes"].config_type == 3
        assert all(each.documentation for each in found.values())


def test_settings_of_the_broker_are_told(wire: Wire):
    """Values and names as Kafka's; all are fixed while it runs."""
    module = module_of("describe_configs")
    resource = module.DescribeConfigsResource(
        resource_type=BROKER, resource_name="1", configuration_keys=None
    )
    answer = ask(wire, "describe_configs", resources=(resource,))
    found = {each.name: each for each in answer.results[0].configs}
    assert found["num.partitions"].value == "1"
    assert found["default.replication.factor"].value == "1"
    assert found["broker.id"].value == "1"
    assert all(each.read_only for each in found.values())


def test_a_changed_default_is_a_synonym(tmp_path):
    """What the broker's own settings changed comes from there."""
    settings = {"log.retention.ms": "5000", "message.max.bytes": "2000"}
    with Running(tmp_path / "data", settings) as running, running.connect() as wire:
        wire.create("t")
        found = settings_of(wire, "t")
    assert (found["retention.ms"].value, found["retention.ms"].config_source) == ("5000", 4)
    synonyms = [
        (each.name, each.value, each.source) for each in found["max.message.bytes"].synonyms
    ]
    assert synonyms == [("message.max.bytes", "2000", 4), ("message.max.bytes", "1048588", 5)]


def test_lists_are_edited_item_by_item(wire: Wire, topic: str):
    """Pitfall 28: APPEND and SUBTRACT, on the default if nothing is set."""
    wire.create(topic)
    for edit, value in (
        (("cleanup.policy", APPEND, "compact"), "delete,compact"),
        (("cleanup.policy", SUBTRACT, "delete"), "compact"),
        (("cleanup.policy", DELETE, None), "delete"),
    ):
        assert change(wire, topic, edit).error_code == 0
        assert settings_of(wire, topic)["cleanup.policy"].value == value
    assert change(wire, topic, ("retention.ms", APPEND, "1")).error_code == 40


def test_a_setting_takes_effect_at_once(wire: Wire, topic: str):
    """Pitfall 28: max.message.bytes is enforced."""
    wire.create(topic)
    assert change(wire, topic, ("max.message.bytes", SET, "100")).error_code == 0
    refused = wire.produce(topic, make_batch([b"x" * 200]))
    assert refused.error == ErrorCode.MESSAGE_TOO_LARGE


def test_what_is_fixed_stays(wire: Wire, topic: str):
    """ister.dispatch.mode is chosen once; ister.durability=cloud does not exist yet."""
    wire.create(topic, ister_dispatch_mode="non-reliable")
    for name, value in (("ister.dispatch.mode", "reliable"), ("ister.durability", "cloud")):
        refused = change(wire, topic, (name, SET, value))
        assert refused.error_code == ErrorCode.INVALID_CONFIG
        assert refused.error_message
    assert change(wire, topic, ("ister.durability", SET, "os")).error_code == 0
    assert settings_of(wire, topic)["ister.dispatch.mode"].value == "non-reliable"


def test_compression_is_the_producers(wire: Wire, topic: str):
    """Pitfall 29: batches are kept as they came, so anything else would be a lie."""
    for value, code in (("gzip", 40), ("producer", 0)):
        answer = ask(
            wire,
            "create_topics",
            topics=(creation(topic, compression_type=value),),
            timeout_ms=1000,
            validate_only=True,
        )
        assert answer.topics[0].error_code == code


def test_settings_of_the_broker_are_not_changed(wire: Wire):
    """Refused with words that say where they are set."""
    refused = change(wire, "1", ("message.max.bytes", SET, "1"), kind=BROKER)
    assert refused.error_code == ErrorCode.INVALID_REQUEST
    assert "start" in refused.error_message


@pytest.mark.parametrize("version", versions("alter_configs"))
def test_settings_are_replaced_as_a_whole(wire: Wire, topic: str, version: int):
    """What is left out is default again."""
    wire.create(topic, retention_ms="1000", segment_ms="2000")
    module = module_of("alter_configs")
    config = module.AlterableConfig(name="retention.ms", value="3000")
    resource = module.AlterConfigsResource(
        resource_type=TOPIC, resource_name=topic, configs=(config,)
    )
    answer = ask(wire, "alter_configs", version, resources=(resource,), validate_only=False)
    assert answer.responses[0].error_code == 0
    found = settings_of(wire, topic)
    assert (found["retention.ms"].value, found["segment.ms"].config_source) == ("3000", 5)


@pytest.mark.parametrize("version", versions("describe_log_dirs"))
def test_sizes_are_told(wire: Wire, topic: str, version: int):
    """Of the batches that are kept, and of the volume."""
    wire.create(topic)
    batch = make_batch([b"v" * 100])
    wire.produce(topic, batch)
    module = module_of("describe_log_dirs")
    asked = module.DescribableLogDirTopic(topic=topic, partitions=(0,))
    (result,) = ask(wire, "describe_log_dirs", version, topics=(asked,)).results
    (partition,) = result.topics[0].partitions
    assert partition.partition_size == len(batch)
    if version >= 4:
        assert 0 < result.usable_bytes <= result.total_bytes


def test_topics_come_page_by_page(wire: Wire, topic: str):
    """The cursor of a page is where the next one begins."""
    wire.create(topic, 3)
    module = module_of("describe_topic_partitions")
    names = (module.TopicRequest(name=topic),)
    seen, cursor = [], None
    while True:
        page = ask(
            wire,
            "describe_topic_partitions",
            topics=names,
            response_partition_limit=2,
            cursor=cursor,
        )
        seen += [each.partition_index for each in page.topics[0].partitions]
        cursor = page.next_cursor
        if cursor is None:
            break
    assert seen == [0, 1, 2]


@pytest.mark.parametrize("version", versions("elect_leaders"))
def test_no_election_is_needed(wire: Wire, topic: str, version: int):
    """The one broker leads everything."""
    wire.create(topic)
    module = module_of("elect_leaders")
    asked = module.TopicPartitions(topic=topic, partitions=(0, 7))
    answer = ask(
        wire, "elect_leaders", version, election_type=0, topic_partitions=(asked,), timeout_ms=1000
    )
    results = answer.replica_election_results[0].partition_result
    assert [each.error_code for each in results] == [
        int(ErrorCode.ELECTION_NOT_NEEDED),
        int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]


def test_nothing_moves(wire: Wire):
    """ListPartitionReassignments is empty."""
    answer = ask(wire, "list_partition_reassignments", timeout_ms=1000, topics=None)
    assert (answer.error_code, answer.topics) == (0, ())


@pytest.mark.parametrize("version", versions("describe_cluster"))
def test_the_cluster_is_one_broker(shared: Running, wire: Wire, version: int):
    """Pitfall 27: at the address of the listener that was used."""
    answer = ask(wire, "describe_cluster", version, include_cluster_authorized_operations=False)
    (broker,) = answer.brokers
    assert (broker.broker_id, answer.controller_id) == (1, 1)
    assert (broker.host, broker.port) == ("127.0.0.1", shared.port)
    assert answer.cluster_id
