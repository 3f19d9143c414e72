"""Kafka's command-line tools, as they are shipped with 4.3: each called once, on both brokers.

They run one after another in the process of the Java client: each of them alone would take
seconds to start.
"""

from __future__ import annotations

import json

import pytest

from compat_tests.clients import KINDS, Runner

TOOLS = "org.apache.kafka.tools"
CONSOLE_CONSUMER = f"{TOOLS}.consumer.ConsoleConsumer"
CONSUMER_GROUPS = f"{TOOLS}.consumer.group.ConsumerGroupCommand"


@pytest.fixture(scope="module")
def runner(tmp_path_factory):
    kind = next(kind for kind in KINDS if kind.name == "java-4.3")
    made = Runner(kind, tmp_path_factory.mktemp("tools") / "tools.log")
    made.prepare()
    yield made
    made.close()


@pytest.fixture
def tool(broker, runner):
    """Run a tool against the broker; what it prints."""

    def run(program, *arguments, given=""):
        line = ["--bootstrap-server", broker.bootstrap, *arguments]
        answer = runner.do("tool", program=program, arguments=line, given=given)
        assert answer["code"] == 0, answer["said"]
        return answer["said"]

    return run


def test_topics(tool, names):
    topic = names("topic")
    program = f"{TOOLS}.TopicCommand"
    said = tool(program, "--create", "--topic", topic, "--partitions", "2")
    assert f"Created topic {topic}" in said
    said = tool(program, "--describe", "--topic", topic)
    assert "PartitionCount: 2" in said
    assert "ReplicationFactor: 1" in said
    tool(program, "--alter", "--topic", topic, "--partitions", "3")
    tool(program, "--delete", "--topic", topic)
    assert topic not in tool(program, "--list").split()


def test_console_and_groups(tool, names):
    """Console producer and consumer, get-offsets, consumer-groups: describe, reset, delete."""
    topic, group = names("topic"), names("group")
    given = "".join(f"k{number}:v{number}\n" for number in range(5))
    options = ["--topic", topic, "--reader-property", "parse.key=true"]
    tool(f"{TOOLS}.ConsoleProducer", *options, "--reader-property", "key.separator=:", given=given)
    options = ["--topic", topic, "--from-beginning", "--group", group, "--max-messages", "5"]
    said = tool(CONSOLE_CONSUMER, *options, "--formatter-property", "print.key=true")
    assert said.split() == [word for n in range(5) for word in (f"k{n}", f"v{n}")]
    assert tool(f"{TOOLS}.GetOffsetShell", "--topic", topic).strip() == f"{topic}:0:5"

    lines = tool(CONSUMER_GROUPS, "--describe", "--group", group).splitlines()
    (row,) = [line.split() for line in lines if topic in line]
    assert row[:6] == [group, topic, "0", "5", "5", "0"]
    reset = ["--reset-offsets", "--topic", topic, "--to-offset", "2", "--execute"]
    tool(CONSUMER_GROUPS, *reset, "--group", group)
    lines = tool(CONSUMER_GROUPS, "--describe", "--offsets", "--group", group).splitlines()
    (row,) = [line.split() for line in lines if topic in line]
    assert row[3:6] == ["2", "5", "3"]
    said = tool(CONSUMER_GROUPS, "--delete", "--group", group)
    assert "was successful" in said


def test_configs(tool, names):
    topic = names("topic")
    tool(f"{TOOLS}.TopicCommand", "--create", "--topic", topic)
    entity = ["--entity-type", "topics", "--entity-name", topic]
    program = "kafka.admin.ConfigCommand"
    tool(program, *entity, "--alter", "--add-config", "retention.ms=60000,cleanup.policy=compact")
    said = tool(program, *entity, "--describe")
    assert "retention.ms=60000" in said
    assert "cleanup.policy=compact" in said


def test_delete_records_and_log_dirs(tool, names, tmp_path):
    topic = names("topic")
    tool(f"{TOOLS}.ConsoleProducer", "--topic", topic, given="a\nb\nc\n")
    wanted = {"partitions": [{"topic": topic, "partition": 0, "offset": 2}], "version": 1}
    (tmp_path / "wanted.json").write_text(json.dumps(wanted))
    program = f"{TOOLS}.DeleteRecordsCommand"
    said = tool(program, "--offset-json-file", str(tmp_path / "wanted.json"))
    assert "low_watermark: 2" in said
    said = tool(f"{TOOLS}.LogDirsCommand", "--describe", "--topic-list", topic)
    found = json.loads(said.splitlines()[-1])
    (place,) = [
        each
        for broker in found["brokers"]
        for folder in broker["logDirs"]
        for each in folder["partitions"]
    ]
    assert place["partition"] == f"{topic}-0"


def test_api_versions(tool, broker):
    said = tool(f"{TOOLS}.BrokerApiVersionsCommand")
    assert said.startswith(f"{broker.bootstrap} (id: ")
    assert "Fetch(1): 4 to 18" in said
