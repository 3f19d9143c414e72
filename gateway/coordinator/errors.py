"""What the coordinator says no to; a class exists where a caller acts differently.

Results carry these as values; only checks raise them. No Kafka numbers here:
`gateway/errors.py` has the one table.
"""

from __future__ import annotations


class CoordinatorError(Exception):
    """Base of everything that the coordinator answers instead of a result."""


class InvalidGroupId(CoordinatorError):
    """An empty group id, where a group is to be joined: the client must be configured."""


class InvalidSessionTimeout(CoordinatorError):
    """Outside of what the settings allow: the client must be configured."""

    def __init__(self, session_timeout_ms: int) -> None:
        super().__init__(f"a session timeout of {session_timeout_ms} ms is not allowed")
        self.session_timeout_ms = session_timeout_ms


class UnknownMember(CoordinatorError):
    """The group has no such member (any more): join again without a member id."""


class MemberIdRequired(CoordinatorError):
    """Join again with the member id that comes with this answer."""


class FencedInstance(CoordinatorError):
    """Another process has joined with the same instance id since: stop."""


class IllegalGeneration(CoordinatorError):
    """A generation that is over, or has never been: join again."""


class InconsistentProtocol(CoordinatorError):
    """No protocol in common with the members there are: the client must be configured."""


class RebalanceInProgress(CoordinatorError):
    """A new round has begun: join again."""


class GroupFull(CoordinatorError):
    """The group has as many members as the settings allow."""


class TooManyGroups(CoordinatorError):
    """There are as many groups as the settings allow; an operator deletes some or raises it."""


class GroupNotFound(CoordinatorError):
    """There is no such group."""


class GroupNotEmpty(CoordinatorError):
    """What was asked for is only done to a group without members."""


class SubscribedToTopic(CoordinatorError):
    """The group reads the topic: its cursors in it are not deleted."""


class CursorMetadataTooLarge(CoordinatorError):
    """The client's words beside an offset are longer than the settings allow."""


class CoordinatorUnavailable(CoordinatorError):
    """It could not be made durable, or the broker is about to stop: try again."""
