"""`ister topic`: list, create, describe, configure and delete topics of any Kafka broker."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ister.gateway.cli.common import (
    BOOTSTRAP,
    Bootstrap,
    Json,
    Yes,
    assignments,
    confirm,
    print_json,
    print_table,
    run,
    show,
)

if TYPE_CHECKING:
    from ister.gateway.kafka_client.cluster import Cluster

_TOPIC = 2  # resource type
_SET, _UNSET = 0, 1
_TIMEOUT_MS = 30_000
_BY_NAME_VERSION = 5  # of DeleteTopics; later ones ask by id
_DEFAULT_SOURCES = (4, 5)  # of a setting: the broker's own, the software's

app = typer.Typer(help="Topics of a broker.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="TOPIC")]


@app.command("list")
def list_topics(
    internal: Annotated[bool, typer.Option(help="Internal topics too.")] = False,
    bootstrap: Bootstrap = BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """All topics."""

    def command() -> None:
        with _cluster(bootstrap) as cluster:
            found = sorted(cluster.metadata(None).topics, key=lambda each: each.name)
            rows = [
                {
                    "topic": each.name,
                    "partitions": len(each.partitions),
                    "id": str(uuid.UUID(bytes=each.topic_id)),
                }
                for each in found
                if internal or not each.is_internal
            ]
            show(rows, ("topic", "partitions", "id"), as_json)

    run(command)


@app.command()
def create(
    name: Name,
    partitions: Annotated[
        int, typer.Option("--partitions", "-p", help="-1: the broker's default.")
    ] = -1,
    replication_factor: Annotated[
        int, typer.Option("--replication-factor", help="-1: the broker's default.")
    ] = -1,
    config: Annotated[
        list[str] | None, typer.Option("--config", "-c", metavar="NAME=VALUE")
    ] = None,
    bootstrap: Bootstrap = BOOTSTRAP,
) -> None:
    """Create a topic; it can be written to when this returns."""
    configs = assignments(config or [], "--config")

    def command() -> None:
        from ister.gateway.kafka_client.errors import Refused
        from ister.gateway.protocol.api import ApiKey
        from ister.gateway.protocol.messages import create_topics as messages

        request = messages.CreateTopicsRequest(
            timeout_ms=_TIMEOUT_MS,
            topics=(
                messages.CreatableTopic(
                    name=name,
                    num_partitions=partitions,
                    replication_factor=replication_factor,
                    assignments=(),
                    configs=tuple(
                        messages.CreatableTopicConfig(name=key, value=value)
                        for key, value in configs.items()
                    ),
                ),
            ),
        )
        with _cluster(bootstrap) as cluster:
            (result,) = cluster.ask(ApiKey.CREATE_TOPICS, messages, request).topics
            if result.error_code:
                raise Refused(
                    f"topic {name} was not created", result.error_code, result.error_message
                )
            count = len(cluster.usable_topic(name).partitions)
        print(f"created {name} with {count} partition{'s' if count != 1 else ''}")

    run(command)


@app.command()
def describe(name: Name, bootstrap: Bootstrap = BOOTSTRAP, as_json: Json = False) -> None:
    """One topic: its partitions with their offsets, and the settings that are not defaults."""

    def command() -> None:
        with _cluster(bootstrap) as cluster:
            topic = cluster.topic(name)
            partitions = _partitions(cluster, topic)
            configs = _configs(cluster, name)
        if as_json:
            print_json(
                {
                    "topic": name,
                    "id": str(uuid.UUID(bytes=topic.topic_id)),
                    "partitions": partitions,
                    "configs": configs,
                }
            )
            return
        print(f"{name}  id {uuid.UUID(bytes=topic.topic_id)}")
        columns = ("partition", "leader", "epoch", "earliest", "latest", "records")
        print_table(columns, [[row[column] for column in columns] for row in partitions])
        for row in configs:
            if not row["default"]:
                print(f"{row['name']}={row['value']}")

    run(command)


@app.command()
def configure(
    name: Name,
    settings: Annotated[list[str] | None, typer.Argument(metavar="NAME=VALUE...")] = None,
    unset: Annotated[
        list[str] | None, typer.Option("--unset", metavar="NAME", help="Back to the default.")
    ] = None,
    partitions: Annotated[
        int | None, typer.Option("--partitions", "-p", help="More partitions.")
    ] = None,
    bootstrap: Bootstrap = BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Change settings of a topic; without any, show all of them."""
    changes = assignments(settings or [], "NAME=VALUE")

    def command() -> None:
        with _cluster(bootstrap) as cluster:
            cluster.topic(name)
            if partitions is not None:
                _grow(cluster, name, partitions)
            if changes or unset:
                _alter(cluster, name, changes, unset or [])
            if changes or unset or partitions is not None:
                print(f"changed {name}")
            else:
                show(_configs(cluster, name), ("name", "value", "default"), as_json)

    run(command)


@app.command()
def delete(
    names: Annotated[list[str], typer.Argument(metavar="TOPIC...")],
    yes: Yes = False,
    bootstrap: Bootstrap = BOOTSTRAP,
) -> None:
    """Delete topics with everything in them."""

    def command() -> None:
        from ister.gateway.kafka_client.errors import ClientError, error_name
        from ister.gateway.protocol.api import ApiKey
        from ister.gateway.protocol.messages import delete_topics as messages

        if not confirm(f"Delete {', '.join(names)} with all records?", yes):
            raise ClientError("nothing was deleted")
        request = messages.DeleteTopicsRequest(topic_names=tuple(names), timeout_ms=_TIMEOUT_MS)
        with _cluster(bootstrap) as cluster:
            answer = cluster.ask(ApiKey.DELETE_TOPICS, messages, request, _BY_NAME_VERSION)
        problems = []
        for each in answer.responses:
            if each.error_code:
                problems.append(f"{each.name} was not deleted: {error_name(each.error_code)}")
            else:
                print(f"deleted {each.name}")
        if problems:
            raise ClientError("\n".join(problems))

    run(command)


# -- asking ------------------------------------------------------------------------------


def _cluster(bootstrap: str) -> Cluster:
    from ister.gateway.kafka_client.cluster import Cluster

    return Cluster(bootstrap)


def _partitions(cluster: Cluster, topic: Any) -> list[dict[str, Any]]:
    from ister.gateway.kafka_client.data import EARLIEST, LATEST, list_offsets_of

    indexes = sorted(each.partition_index for each in topic.partitions)
    earliest: dict[int, int] = {}
    latest: dict[int, int] = {}
    for connection, asked in cluster.by_leader(topic.name, indexes).items():
        earliest |= list_offsets_of(connection, topic.name, asked, EARLIEST)
        latest |= list_offsets_of(connection, topic.name, asked, LATEST)
    known = {each.partition_index: each for each in topic.partitions}
    return [
        {
            "partition": index,
            "leader": known[index].leader_id,
            "epoch": known[index].leader_epoch,
            "earliest": earliest[index],
            "latest": latest[index],
            "records": latest[index] - earliest[index],
        }
        for index in indexes
    ]


def _configs(cluster: Cluster, name: str) -> list[dict[str, Any]]:
    from ister.gateway.kafka_client.errors import Refused
    from ister.gateway.protocol.api import ApiKey
    from ister.gateway.protocol.messages import describe_configs as messages

    resource = messages.DescribeConfigsResource(
        resource_type=_TOPIC, resource_name=name, configuration_keys=None
    )
    request = messages.DescribeConfigsRequest(resources=(resource,))
    (result,) = cluster.ask(ApiKey.DESCRIBE_CONFIGS, messages, request).results
    if result.error_code:
        raise Refused(f"settings of {name}", result.error_code, result.error_message)
    return [
        {
            "name": each.name,
            "value": each.value,
            "default": each.config_source in _DEFAULT_SOURCES,
        }
        for each in sorted(result.configs, key=lambda each: each.name)
    ]


def _alter(cluster: Cluster, name: str, changes: dict[str, str], unset: list[str]) -> None:
    from ister.gateway.kafka_client.errors import Refused
    from ister.gateway.protocol.api import ApiKey
    from ister.gateway.protocol.messages import incremental_alter_configs as messages

    steps = [(key, _SET, value) for key, value in changes.items()]
    steps += [(key, _UNSET, "") for key in unset]
    resource = messages.AlterConfigsResource(
        resource_type=_TOPIC,
        resource_name=name,
        configs=tuple(
            messages.AlterableConfig(name=key, config_operation=step, value=value)
            for key, step, value in steps
        ),
    )
    request = messages.IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)
    (result,) = cluster.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, messages, request).responses
    if result.error_code:
        raise Refused(f"{name} was not changed", result.error_code, result.error_message)


def _grow(cluster: Cluster, name: str, partitions: int) -> None:
    from ister.gateway.kafka_client.errors import Refused
    from ister.gateway.protocol.api import ApiKey
    from ister.gateway.protocol.messages import create_partitions as messages

    topic = messages.CreatePartitionsTopic(name=name, count=partitions, assignments=None)
    request = messages.CreatePartitionsRequest(
        topics=(topic,), timeout_ms=_TIMEOUT_MS, validate_only=False
    )
    (result,) = cluster.ask(ApiKey.CREATE_PARTITIONS, messages, request).results
    if result.error_code:
        raise Refused(f"{name} did not grow", result.error_code, result.error_message)
