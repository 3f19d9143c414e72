"""What AlterConfigs and IncrementalAlterConfigs share: which resource, which values, one answer.

A resource is changed as a whole or not at all, and its result does not touch the others.
The present settings of a topic are the ones at the time of the commit: an edit is a
function of them, asked again if somebody else was faster. Settings that are fixed when the
topic is made stay, whatever an edit leaves out; an edit that would change one is refused.

Settings of the broker come from its file, its environment and its command line; changing
them while it runs is refused, and so are the loggers and other resources of Kafka's, and
the broker's own topics.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from ister.gateway.errors import RequestError
from ister.gateway.handlers.api import Call
from ister.gateway.handlers.gather import Gather
from ister.gateway.protocol.error_codes import ErrorCode
from ister.gateway.topic_admin import check_name, check_not_internal
from ister.gateway.topic_configs import TOPIC_CONFIGS, validate
from ister.metadata.catalog import Topic

# Kafka's numbers of resources.
TOPIC, BROKER = 2, 4

Values = dict[str, str | None]


class Edit(NamedTuple):
    """What is to happen to one resource."""

    type: int
    resource: str
    names: Sequence[str]  # of the settings, as they stand in the request
    # The new values of the present ones; RequestError if that cannot be.
    change: Callable[[Mapping[str, str]], Values]


Errors = list[BaseException | None]  # in the order of the edits


def apply_edits(
    call: Call, edits: Sequence[Edit], validate_only: bool, done: Callable[[Errors], None]
) -> None:
    """`done` with what became of each, when all that was accepted is durable."""
    errors: Errors = [None] * len(edits)
    gather = Gather(lambda: done(errors))
    counts = Counter((edit.type, edit.resource) for edit in edits)
    for place, edit in enumerate(edits):
        try:
            if counts[edit.type, edit.resource] > 1:
                raise _invalid("Each resource must appear at most once.")
            topic = _topic_to_change(call, edit)
            if topic is None:
                continue
            change = partial(_checked, edit)
            change(topic.configs)
        except RequestError as error:
            errors[place] = error
            continue
        if not validate_only:
            _commit(call, topic, change, gather.expect(partial(errors.__setitem__, place)))
    gather.begun()


def find_topic(call: Call, name: str) -> Topic:
    """The topic of a resource; RequestError as Kafka says it."""
    check_name(name)
    topic = call.context.topic(name)
    if topic is None:
        raise RequestError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist."
        )
    return topic


def check_broker(call: Call, name: str) -> None:
    """RequestError unless `name` is this broker, or empty for all brokers."""
    if not name:
        return
    node = call.context.settings.node_id
    try:
        number = int(name)
    except ValueError:
        raise _invalid(f"Broker id must be an integer, but it is: {name}") from None
    if number != node:
        raise _invalid(
            f"Unexpected broker id, expected {node} or empty string, but received {name}"
        )


def _topic_to_change(call: Call, edit: Edit) -> Topic | None:
    """None: there is nothing to change."""
    if len(set(edit.names)) < len(edit.names):
        raise _invalid("Error due to duplicate config keys")
    if edit.type == TOPIC:
        if not edit.resource:
            raise _invalid("Default topic resources are not allowed.")
        check_name(edit.resource)
        if call.context.topic(edit.resource) is None:
            _checked(edit, {})  # Kafka looks at the values before it looks for the topic
        topic = find_topic(call, edit.resource)
        check_not_internal(topic.name)
        return topic
    if edit.type != BROKER:
        raise _invalid(f"Unsupported resource type: {edit.type}")
    check_broker(call, edit.resource)
    if edit.names:
        raise _invalid(
            "Settings of the broker cannot be changed while it runs: "
            + ", ".join(edit.names)
            + ". Set them in its configuration and start it again."
        )
    return None


def _checked(edit: Edit, present: Mapping[str, str]) -> dict[str, str]:
    """The new settings of a topic, valid as a whole."""
    wanted = edit.change(present)
    for name, known in TOPIC_CONFIGS.items():
        if not known.fixed:
            continue
        fixed = present.get(name)
        if wanted.get(name, fixed or known.default) != (fixed or known.default):
            raise RequestError(
                ErrorCode.INVALID_CONFIG, f"{name} is fixed when the topic is created"
            )
        wanted.pop(name, None)
        if fixed is not None:
            wanted[name] = fixed
    # What was stored before stays acceptable: only what is new or different is judged.
    changed = {name: value for name, value in wanted.items() if value != present.get(name)}
    kept = {name: present[name] for name in wanted if name not in changed}
    return {**kept, **validate(changed)}


def _commit(
    call: Call,
    topic: Topic,
    change: Callable[[Mapping[str, str]], dict[str, str]],
    done: Callable[..., None],
) -> None:
    try:
        call.context.topics.configure(topic, change, done)
    except Exception as error:  # a full queue, a race: said in the resource's answer
        done(error)


def _invalid(words: str) -> RequestError:
    return RequestError(ErrorCode.INVALID_REQUEST, words)
