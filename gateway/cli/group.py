"""`ister group`: list, describe, reset and delete consumer groups of any Kafka broker."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ister.gateway.cli.common import (
    BOOTSTRAP,
    Bootstrap,
    Json,
    Yes,
    confirm,
    print_json,
    print_table,
    run,
    show,
)

if TYPE_CHECKING:
    from ister.gateway.kafka_client.cluster import Cluster

_BY_NAME_FETCH, _BY_NAME_COMMIT = 7, 9  # versions; later ones ask for several, or by id
_OFFSETS = ("topic", "partition", "offset", "latest", "lag")
_PLANNED = ("topic", "partition", "offset", "new_offset")

app = typer.Typer(help="Consumer groups of a broker.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="GROUP")]


@app.command("list")
def list_groups(bootstrap: Bootstrap = BOOTSTRAP, as_json: Json = False) -> None:
    """All groups."""

    def command() -> None:
        from ister.gateway.kafka_client.errors import Refused
        from ister.gateway.protocol.api import ApiKey
        from ister.gateway.protocol.messages import list_groups as messages

        rows = []
        with _cluster(bootstrap) as cluster:
            for broker in cluster.brokers():
                answer = broker.ask(ApiKey.LIST_GROUPS, messages, messages.ListGroupsRequest())
                if answer.error_code:
                    raise Refused(f"groups of {broker.address}", answer.error_code)
                rows += [
                    {
                        "group": each.group_id,
                        "state": each.group_state,
                        "protocol_type": each.protocol_type,
                    }
                    for each in answer.groups
                ]
        rows.sort(key=lambda row: row["group"])
        show(rows, ("group", "state", "protocol_type"), as_json)

    run(command)


@app.command()
def describe(name: Name, bootstrap: Bootstrap = BOOTSTRAP, as_json: Json = False) -> None:
    """One group: its members, and how far it has come in which partition."""

    def command() -> None:
        with _cluster(bootstrap) as cluster:
            group = _describe(cluster, name)
            offsets = _offsets(cluster, name)
        members = [
            {"member": each.member_id, "client": each.client_id, "host": each.client_host}
            for each in group.members
        ]
        if as_json:
            print_json(
                {
                    "group": name,
                    "state": group.group_state,
                    "protocol_type": group.protocol_type,
                    "protocol": group.protocol_data,
                    "members": members,
                    "offsets": offsets,
                }
            )
            return
        print(f"{name}  {group.group_state}")
        print_table(_OFFSETS, [[row[column] for column in _OFFSETS] for row in offsets])
        if members:
            columns = ("member", "client", "host")
            print_table(columns, [[row[column] for column in columns] for row in members])

    run(command)


@app.command()
def reset(
    name: Name,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="earliest|latest|OFFSET|TIME",
            help="Where to go on; TIME as 2026-01-31T12:00:00 (local, or with +00:00).",
        ),
    ],
    topic: Annotated[str, typer.Option("--topic", "-t", help="The topic.")],
    partition: Annotated[
        list[int] | None, typer.Option("--partition", help="Only these; may be repeated.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show it, change nothing.")] = False,
    yes: Yes = False,
    bootstrap: Bootstrap = BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Move the offsets of a group that nobody is in."""

    def command() -> None:
        from ister.gateway.kafka_client.errors import ClientError

        with _cluster(bootstrap) as cluster:
            rows = _plan(cluster, name, topic, partition, to)
            show(rows, _PLANNED, as_json)
            if dry_run:
                return
            if not confirm(f"Move group {name} in {topic} like this?", yes):
                raise ClientError("nothing was changed")
            _commit(cluster, name, topic, rows)

    run(command)


@app.command()
def delete(
    names: Annotated[list[str], typer.Argument(metavar="GROUP...")],
    yes: Yes = False,
    bootstrap: Bootstrap = BOOTSTRAP,
) -> None:
    """Delete groups that nobody is in, with their offsets."""

    def command() -> None:
        from ister.gateway.kafka_client.errors import ClientError, error_name
        from ister.gateway.protocol.api import ApiKey
        from ister.gateway.protocol.messages import delete_groups as messages

        if not confirm(f"Delete {', '.join(names)} with all offsets?", yes):
            raise ClientError("nothing was deleted")
        problems = []
        with _cluster(bootstrap) as cluster:
            for name in names:
                request = messages.DeleteGroupsRequest(groups_names=(name,))
                coordinator = cluster.coordinator(name)
                (result,) = coordinator.ask(ApiKey.DELETE_GROUPS, messages, request).results
                if result.error_code:
                    problems.append(f"{name} was not deleted: {error_name(result.error_code)}")
                else:
                    print(f"deleted {name}")
        if problems:
            raise ClientError("\n".join(problems))

    run(command)


# -- asking ------------------------------------------------------------------------------


def _cluster(bootstrap: str) -> Cluster:
    from ister.gateway.kafka_client.cluster import Cluster

    return Cluster(bootstrap)


def _describe(cluster: Cluster, name: str) -> Any:
    from ister.gateway.kafka_client.errors import ClientError, Refused
    from ister.gateway.protocol.api import ApiKey
    from ister.gateway.protocol.error_codes import ErrorCode
    from ister.gateway.protocol.messages import describe_groups as messages

    request = messages.DescribeGroupsRequest(groups=(name,))
    (group,) = cluster.coordinator(name).ask(ApiKey.DESCRIBE_GROUPS, messages, request).groups
    # Before version 6 a group that is not there is described as dead.
    if group.error_code == ErrorCode.GROUP_ID_NOT_FOUND or group.group_state == "Dead":
        raise ClientError(f"there is no group {name}")
    if group.error_code:
        raise Refused(f"group {name}", group.error_code, group.error_message)
    return group


def _offsets(cluster: Cluster, name: str) -> list[dict[str, Any]]:
    """Committed offsets with the ends of their partitions."""
    from ister.gateway.kafka_client.data import LATEST

    committed = _committed(cluster, name)
    rows = []
    for topic, offsets in sorted(committed.items()):
        latest = _offsets_at(cluster, topic, sorted(offsets), LATEST)
        for partition, offset in sorted(offsets.items()):
            end = latest[partition]
            rows.append(
                {
                    "topic": topic,
                    "partition": partition,
                    "offset": offset,
                    "latest": end,
                    "lag": max(0, end - offset),
                }
            )
    return rows


def _committed(cluster: Cluster, name: str) -> dict[str, dict[int, int]]:
    from ister.gateway.kafka_client.errors import Refused
    from ister.gateway.protocol.api import ApiKey
    from ister.gateway.protocol.messages import offset_fetch as messages

    request = messages.OffsetFetchRequest(group_id=name, topics=None)
    answer = cluster.coordinator(name).ask(ApiKey.OFFSET_FETCH, messages, request, _BY_NAME_FETCH)
    if answer.error_code:
        raise Refused(f"offsets of {name}", answer.error_code)
    return {
        topic.name: {
            each.partition_index: each.committed_offset
            for each in topic.partitions
            if each.committed_offset >= 0
        }
        for topic in answer.topics
    }


def _offsets_at(
    cluster: Cluster, topic: str, partitions: list[int], timestamp: int
) -> dict[int, int]:
    from ister.gateway.kafka_client.data import list_offsets_of

    found: dict[int, int] = {}
    for connection, asked in cluster.by_leader(topic, partitions).items():
        found |= list_offsets_of(connection, topic, asked, timestamp)
    return found


def _plan(
    cluster: Cluster, name: str, topic: str, only: list[int] | None, to: str
) -> list[dict[str, Any]]:
    """Where each partition stands and where it would go; never outside of what there is."""
    from ister.gateway.kafka_client.data import EARLIEST, LATEST

    known = sorted(each.partition_index for each in cluster.topic(topic).partitions)
    partitions = known if only is None else sorted(set(only))
    earliest = _offsets_at(cluster, topic, partitions, EARLIEST)
    latest = _offsets_at(cluster, topic, partitions, LATEST)
    if to == "earliest":
        wanted = earliest
    elif to == "latest":
        wanted = latest
    elif to.isdecimal():
        wanted = dict.fromkeys(partitions, int(to))
    else:
        at = _offsets_at(cluster, topic, partitions, _time_ms(to))
        wanted = {index: latest[index] if at[index] < 0 else at[index] for index in partitions}
    current = _committed(cluster, name).get(topic, {})
    return [
        {
            "topic": topic,
            "partition": index,
            "offset": current.get(index),
            "new_offset": min(max(wanted[index], earliest[index]), latest[index]),
        }
        for index in partitions
    ]


def _time_ms(text: str) -> int:
    from ister.gateway.kafka_client.errors import ClientError

    try:
        return round(datetime.fromisoformat(text).timestamp() * 1000)
    except ValueError:
        raise ClientError(
            f"--to {text}: earliest, latest, an offset or a time (2026-01-31T12:00) is wanted"
        ) from None


def _commit(cluster: Cluster, name: str, topic: str, rows: list[dict[str, Any]]) -> None:
    from ister.gateway.kafka_client.errors import ClientError, Refused
    from ister.gateway.protocol.api import ApiKey
    from ister.gateway.protocol.error_codes import ErrorCode
    from ister.gateway.protocol.messages import offset_commit as messages

    request = messages.OffsetCommitRequest(
        group_id=name,
        member_id="",
        topics=(
            messages.OffsetCommitRequestTopic(
                name=topic,
                partitions=tuple(
                    messages.OffsetCommitRequestPartition(
                        partition_index=row["partition"],
                        committed_offset=row["new_offset"],
                        committed_metadata="",
                    )
                    for row in rows
                ),
            ),
        ),
    )
    coordinator = cluster.coordinator(name)
    answer = coordinator.ask(ApiKey.OFFSET_COMMIT, messages, request, _BY_NAME_COMMIT)
    in_use = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.REBALANCE_IN_PROGRESS)
    for each in answer.topics[0].partitions:
        if each.error_code in in_use:
            raise ClientError(f"group {name} has members: stop them first, nothing was moved")
        if each.error_code:
            raise Refused(f"partition {each.partition_index} was not moved", each.error_code)
