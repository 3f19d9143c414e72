"""Offsets of groups: who may commit, delete and read cursors.

The rules are the group's (`Group.commit` and its neighbours), the cursors are the
cursor service's (`dispatch/cursors.py`); this brings the two together. A commit
is checked when it comes and queued at once, so whatever a later generation
commits stands behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from ister.dispatch.cursors import CursorService, Failures, Place
from ister.dispatch.errors import TooManyCursors
from ister.gateway.coordinator.errors import (
    CoordinatorError,
    CoordinatorUnavailable,
    CursorMetadataTooLarge,
    GroupNotFound,
    IllegalGeneration,
    InvalidGroupId,
    SubscribedToTopic,
    TooManyGroups,
    UnknownMember,
)
from ister.gateway.coordinator.service import GroupService
from ister.metadata.cursors import Cursor
from ister.metadata.errors import StoreUnavailable, UnknownTopic
from ister.wal.clock import Clock


class OffsetToCommit(NamedTuple):
    place: Place
    offset: int
    leader_epoch: int = -1
    metadata: str = ""


class CommitRequest(NamedTuple):
    group: str
    member_id: str
    instance_id: str | None
    generation: int  # -1: an admin, or a consumer that manages its partitions itself
    offsets: Sequence[OffsetToCommit]
    group_not_found_known: bool = True  # version 9 and above


class OffsetsResult(NamedTuple):
    """`error` for all, or `failures` for some: CoordinatorError or UnknownTopic."""

    error: CoordinatorError | None
    failures: Mapping[Place, Exception]


class TopicPlaces(NamedTuple):
    name: str
    topic_id: bytes
    partitions: Sequence[int]

    def places(self) -> list[Place]:
        return [Place(self.topic_id, partition) for partition in self.partitions]


Committed = Callable[[str, str, int, Mapping[Place, tuple[int | None, Cursor]]], None]


class OffsetService:
    def __init__(self, groups: GroupService, cursors: CursorService, clock: Clock) -> None:
        self._groups = groups
        self._cursors = cursors
        self._clock = clock
        # Told what is durable: who committed, and for each place the offset before and the cursor.
        self.on_committed: Committed = _nobody

    def commit(self, request: CommitRequest, done: Callable[[OffsetsResult], None]) -> None:
        """`done` once it is durable."""
        try:
            self._check_commit(request)
        except CoordinatorError as error:
            done(OffsetsResult(error, {}))
            return
        now_ms = self._clock.wall_ms()
        bytes_max = self._groups.settings.cursor_metadata_bytes_max
        failures: dict[Place, Exception] = {}
        cursors: dict[Place, Cursor] = {}
        for place, offset, leader_epoch, metadata in request.offsets:
            if len(metadata.encode()) > bytes_max:
                failures[place] = CursorMetadataTooLarge()
                continue
            cursors[place] = Cursor(
                offset=offset,
                leader_epoch=leader_epoch,
                metadata=metadata,
                time_ms=now_ms,
                generation=max(request.generation, -1),
            )
        known = self._cursors.known
        before = {place: known(request.group, place) for place in cursors}

        def committed(failed: Failures) -> None:
            self._tell(request, before, cursors, failed)
            _committed(cursors, failures, done, failed)

        self._cursors.commit(request.group, cursors.items(), committed)

    def _tell(
        self,
        request: CommitRequest,
        before: Mapping[Place, Cursor | None],
        cursors: Mapping[Place, Cursor],
        failed: Failures,
    ) -> None:
        told = {}
        for place, cursor in cursors.items():
            if place.topic_id not in failed:
                there = before[place]
                told[place] = (None if there is None else there.offset, cursor)
        if told:
            self.on_committed(request.group, request.member_id, request.generation, told)

    def fetch(self, group: str, places: Iterable[Place] | None) -> dict[Place, Cursor]:
        """What is not in the result has no cursor. None: all. Raises CoordinatorUnavailable."""
        try:
            if places is None:
                return self._cursors.fetch_all(group)
            found = {place: self._cursors.fetch(group, place) for place in places}
        except StoreUnavailable as error:
            raise CoordinatorUnavailable from error
        return {place: cursor for place, cursor in found.items() if cursor is not None}

    def delete(
        self, group_id: str, topics: Iterable[TopicPlaces], done: Callable[[OffsetsResult], None]
    ) -> None:
        """Cursors of topics that the group subscribes to stay."""
        group = self._groups.group(group_id)
        try:
            if not group_id:
                raise InvalidGroupId
            if group is not None:
                group.check_cursors_deletable()
            elif not self._cursors.has(group_id):
                raise GroupNotFound
        except CoordinatorError as error:
            done(OffsetsResult(error, {}))
            return
        failures: dict[Place, Exception] = {}
        gone: list[Place] = []
        for topic in topics:
            if group is not None and group.is_subscribed(topic.name):
                failures.update(dict.fromkeys(topic.places(), SubscribedToTopic()))
            else:
                gone += topic.places()
        self._cursors.delete(group_id, gone, partial(_deleted, gone, failures, done))

    def _check_commit(self, request: CommitRequest) -> None:
        if self._groups.closed:
            raise CoordinatorUnavailable
        group = self._groups.group(request.group)
        if group is not None:
            group.commit(
                request.member_id, request.instance_id, request.generation, self._groups.now_ms()
            )
        elif self._cursors.has(request.group):
            if request.generation >= 0:  # there are cursors, but nobody has joined
                raise UnknownMember
        elif request.generation >= 0:
            raise GroupNotFound if request.group_not_found_known else IllegalGeneration
        elif self._cursors.group_count >= self._groups.settings.groups_max:
            raise TooManyGroups


def _nobody(_: str, __: str, ___: int, ____: Mapping[Place, tuple[int | None, Cursor]]) -> None:
    pass


def _committed(
    cursors: Mapping[Place, Cursor],
    refused: dict[Place, Exception],
    done: Callable[[OffsetsResult], None],
    failures: Failures,
) -> None:
    for place in cursors:
        error = failures.get(place.topic_id)
        if error is not None:
            refused[place] = _told(error)
    done(OffsetsResult(None, refused))


def _deleted(
    gone: Sequence[Place],
    refused: dict[Place, Exception],
    done: Callable[[OffsetsResult], None],
    error: BaseException | None,
) -> None:
    if error is not None:
        refused.update(dict.fromkeys(gone, _told(error)))
    done(OffsetsResult(None, refused))


def _told(error: BaseException) -> Exception:
    """What the client is to hear of an error from below."""
    if isinstance(error, UnknownTopic | TooManyCursors):
        return error
    return CoordinatorUnavailable()
