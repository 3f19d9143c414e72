"""All groups, and the hands of the machine: answers, the store, time.

Everything is on the owner's thread. Callers pass a callback; it is the token that
the machine keeps, and is called once, at once or later. Effects of all groups go
through one queue in their order, so that records reach the store in the order in
which they came to be, also when an answer brings the next request with it.

Time: `next_deadline` says when `tick` is wanted; calling it more often (as
housekeeping does) is as good. Deadlines are of the monotonic clock, in ms.

A group is here from its first join until it is deleted, or empty without cursors
for a while. A group that only commits (a consumer that manages its partitions
itself) is nothing but its cursors. Offsets are in `offsets.py`, beside this.
"""

from __future__ import annotations

import random
import uuid
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

import structlog

from ister.dispatch.cursors import CursorService
from ister.gateway.coordinator.errors import (
    CoordinatorError,
    CoordinatorUnavailable,
    GroupNotFound,
    InvalidGroupId,
    InvalidSessionTimeout,
    TooManyGroups,
    UnknownMember,
)
from ister.gateway.coordinator.events import (
    NO_MEMBER,
    Effect,
    HeartbeatRequest,
    HeartbeatResult,
    JoinRequest,
    JoinResult,
    LeaveResult,
    LeavingMember,
    LeftMember,
    Persist,
    SyncRequest,
    SyncResult,
)
from ister.gateway.coordinator.group import Group
from ister.gateway.coordinator.records import (
    GROUPS,
    GroupRecord,
    decode_group,
    encode_group,
    group_key,
    group_of,
)
from ister.gateway.coordinator.settings import CoordinatorSettings
from ister.gateway.coordinator.states import GroupState
from ister.gateway.coordinator.timers import Timers
from ister.gateway.coordinator.views import (
    GroupDescription,
    GroupListing,
    describe,
    describe_simple,
    listing,
)
from ister.metadata.errors import StoreOverloaded
from ister.metadata.service import CommitService
from ister.metadata.store import Store, Transaction
from ister.wal.clock import Clock

log = structlog.get_logger()


class GroupService:
    def __init__(
        self,
        store: Store,
        commit_service: CommitService,
        cursors: CursorService,
        clock: Clock,
        randomness: random.Random,
        settings: CoordinatorSettings | None = None,
    ) -> None:
        """Reads all groups: it blocks. Every member found gets a full session timeout."""
        self.settings = settings or CoordinatorSettings()
        self.cursors = cursors
        self._commits = commit_service
        self._clock = clock
        self._randomness = randomness
        self._groups: dict[str, Group] = {}
        self._timers = Timers()
        self._queue: deque[tuple[Group, Effect]] = deque()
        self._performing = False
        self._seen: dict[str, int] = {}  # changes of members that were told of
        # Members came or went, or hold something else; also when the group itself is gone.
        self.on_members_changed: Callable[[str], None] = lambda _: None
        self.closed = False
        for key, entry in store.scan(GROUPS):
            self._restore(group_of(key), decode_group(key, entry.value))

    # -- members -----------------------------------------------------------------

    def join(self, request: JoinRequest, done: Callable[[JoinResult], None]) -> None:
        error = self._refusal(request)
        group = self._groups.get(request.group)
        if error is None and group is None:
            if request.member_id != NO_MEMBER:
                error = UnknownMember()
            elif len(self._groups) >= self.settings.groups_max:
                error = TooManyGroups()
            else:
                group = self._create(request.group)
        if error is not None or group is None:
            done(JoinResult(error, request.member_id))
            return
        member_id = self._new_member_id(request.instance_id or request.client_id)
        self._perform(group, group.join(request, done, member_id, self.now_ms()))
        self._forget_if_nothing(group)

    def sync(self, request: SyncRequest, done: Callable[[SyncResult], None]) -> None:
        group = self._groups.get(request.group)
        if group is None:
            done(SyncResult(self._no_group(request.group)))
        else:
            self._perform(group, group.sync(request, done, self.now_ms()))

    def heartbeat(self, request: HeartbeatRequest, done: Callable[[HeartbeatResult], None]) -> None:
        group = self._groups.get(request.group)
        if group is None:
            done(HeartbeatResult(self._no_group(request.group)))
        else:
            self._perform(group, group.heartbeat(request, done, self.now_ms()))

    def leave(
        self, group_id: str, members: Sequence[LeavingMember], done: Callable[[LeaveResult], None]
    ) -> None:
        group = self._groups.get(group_id)
        if group is not None:
            self._perform(group, group.leave(members, done, self.now_ms()))
            return
        error = self._no_group(group_id)
        if isinstance(error, UnknownMember):
            unknown = tuple(LeftMember(*each, error) for each in members)
            done(LeaveResult(None, unknown))
        else:
            done(LeaveResult(error))

    # -- groups ------------------------------------------------------------------

    def group(self, group_id: str) -> Group | None:
        return self._groups.get(group_id)

    def is_live(self, group_id: str) -> bool:
        """Whether it has members."""
        group = self._groups.get(group_id)
        return group is not None and len(group.members) > 0

    def describe(self, group_id: str) -> GroupDescription | None:
        """None: there is no such group."""
        group = self._groups.get(group_id)
        if group is not None:
            return describe(group)
        return describe_simple(group_id) if self.cursors.has(group_id) else None

    def list_groups(self) -> list[GroupListing]:
        simple = [each for each in self.cursors.groups() if each not in self._groups]
        return [
            *(listing(group) for group in self._groups.values()),
            *(GroupListing(each, GroupState.EMPTY, "") for each in simple),
        ]

    def delete_group(self, group_id: str, done: Callable[[CoordinatorError | None], None]) -> None:
        """With all its cursors, in one transaction; only if it has no members."""
        group = self._groups.get(group_id)
        try:
            if group is not None:
                group.check_deletable()
            elif not self.cursors.has(group_id):
                raise GroupNotFound
        except CoordinatorError as error:
            done(error)
            return
        keys = []
        if group is not None:
            self._remove(group)
            keys = [group_key(group_id)] if group.maybe_stored else []
        self.cursors.delete_group(group_id, partial(self._deleted, group, done), keys)

    def _deleted(
        self,
        group: Group | None,
        done: Callable[[CoordinatorError | None], None],
        error: BaseException | None,
    ) -> None:
        if error is None:
            done(None)
            return
        log.warning("group_delete_failed", error=str(error))
        known = group is None or group.id in self._groups
        if group is not None and group.settled is not None and not known and not self.closed:
            self._restore(group.id, group.settled)
        done(CoordinatorUnavailable())

    # -- time --------------------------------------------------------------------

    def now_ms(self) -> int:
        """The clock of the deadlines."""
        return int(self._clock.monotonic() * 1000)

    def next_deadline(self) -> int | None:
        """When `tick` has something to do; None: not until a request comes."""
        return self._timers.next_deadline()

    def tick(self, now_ms: int) -> None:
        """Do what is due at `now_ms` (of `self.now_ms`)."""
        for group_id in self._timers.due(now_ms):
            group = self._groups.get(group_id)
            if group is not None:
                self._perform(group, group.expire(now_ms))
                self._forget_if_over(group, now_ms)

    def close(self) -> None:
        """The broker stops: whoever waits is told to try again, as is whoever comes."""
        self.closed = True
        for group in list(self._groups.values()):
            self._remove(group)

    # -- inside ------------------------------------------------------------------

    def _refusal(self, request: JoinRequest) -> CoordinatorError | None:
        if self.closed:
            return CoordinatorUnavailable()
        if not request.group:
            return InvalidGroupId()
        limits = self.settings
        session_timeout_ms = request.session_timeout_ms
        if not limits.session_timeout_min_ms <= session_timeout_ms <= limits.session_timeout_max_ms:
            return InvalidSessionTimeout(session_timeout_ms)
        return None

    def _no_group(self, group_id: str) -> CoordinatorError:
        if self.closed:
            return CoordinatorUnavailable()
        return UnknownMember() if group_id else InvalidGroupId()

    def _new_member_id(self, name: str) -> str:
        """As Kafka's: a name to read, and a random part that makes it the member's own."""
        return f"{name}-{uuid.UUID(int=self._randomness.getrandbits(128), version=4)}"

    def _create(self, group_id: str) -> Group:
        group = self._groups[group_id] = Group(group_id, self.settings, self.now_ms())
        return group

    def _restore(self, group_id: str, record: GroupRecord) -> None:
        group = self._create(group_id)
        self._perform(group, group.apply(record, self.now_ms()))

    def _remove(self, group: Group) -> None:
        del self._groups[group.id]
        self._timers.set(group.id, None)
        self._perform(group, group.close(self.now_ms()))

    def _forget_if_nothing(self, group: Group) -> None:
        """A first join that was refused leaves no group behind."""
        if self._is_idle(group) and not group.maybe_stored:
            self._remove(group)

    def _forget_if_over(self, group: Group, now_ms: int) -> None:
        """An empty group stays while it has cursors: somebody may want to go on from them."""
        if not self._is_idle(group) or now_ms < self._expiry_ms(group):
            return
        if self.cursors.has(group.id):
            self._timers.set(group.id, now_ms + self.settings.empty_group_expiry_ms)
            return
        self._remove(group)
        if group.maybe_stored:
            # Should it fail, the group is found at the next start and expires again.
            self._commit(Transaction(delete=[group_key(group.id)]), _ignore)

    def _is_idle(self, group: Group) -> bool:
        known = self._groups.get(group.id) is group
        return known and group.state is GroupState.EMPTY and not group.members.pending

    def _expiry_ms(self, group: Group) -> int:
        return group.state_since_ms + self.settings.empty_group_expiry_ms

    def _perform(self, group: Group, effects: list[Effect]) -> None:
        self._queue.extend((group, effect) for effect in effects)
        self._arm(group)
        if self._seen.get(group.id) != group.members.changes:
            self._tell_members(group)
        if self._performing:
            return  # an answer brought this: those before it go first
        self._performing = True
        failures: list[Exception] = []
        try:
            while self._queue:
                try:
                    self._perform_one(*self._queue.popleft())
                except Exception as failure:  # one failed answer must not swallow those behind it
                    failures.append(failure)
        finally:
            self._performing = False
        if len(failures) == 1:
            raise failures[0]
        if failures:
            raise ExceptionGroup("answers of groups failed", failures)

    def _tell_members(self, group: Group) -> None:
        if self._groups.get(group.id) is group:
            self._seen[group.id] = group.members.changes
        else:
            self._seen.pop(group.id, None)
        if not self.closed:
            self.on_members_changed(group.id)

    def _perform_one(self, group: Group, effect: Effect) -> None:
        if isinstance(effect, Persist):
            record = effect.record
            transaction = Transaction(put={group_key(group.id): encode_group(record)})
            self._commit(transaction, partial(self._persisted, group, record))
        else:
            effect.token(effect.result)

    def _commit(
        self, transaction: Transaction, done: Callable[[BaseException | None], None]
    ) -> None:
        try:
            self._commits.commit(transaction, done)
        except StoreOverloaded as error:
            done(error)

    def _persisted(self, group: Group, record: GroupRecord, error: BaseException | None) -> None:
        if error is not None:
            log.warning("group_store_failed", group=group.id, error=str(error))
        if group.state is GroupState.DEAD:
            return
        now_ms = self.now_ms()
        if error is None:
            self._perform(group, group.apply(record, now_ms))
        else:
            self._perform(group, group.not_persisted(record, now_ms))

    def _arm(self, group: Group) -> None:
        if self._groups.get(group.id) is not group:
            return
        deadline_ms = group.wake_ms
        if self._is_idle(group):
            expiry_ms = self._expiry_ms(group)
            deadline_ms = expiry_ms if deadline_ms is None else min(deadline_ms, expiry_ms)
        self._timers.set(group.id, deadline_ms)


def _ignore(error: BaseException | None) -> None:
    if error is not None:
        log.warning("group_removal_failed", error=str(error))
