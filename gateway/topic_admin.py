"""Changes to topics as clients ask for them: rules of Kafka around `wal/topics.py`.

Names are checked as Kafka checks them. A topic that is being made is known by name, so
that many clients that ask for the same new topic at once make one, and all wait for it;
answers come when its partitions can be written to. A plan that lost a race (`Conflict`)
is made anew on what is there then.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from ister.dispatch.parked import Timer
from ister.gateway.errors import RequestError
from ister.gateway.protocol.error_codes import ErrorCode
from ister.metadata.catalog import Catalog, Topic
from ister.metadata.errors import Conflict, StoreOverloaded, TopicExists, UnknownTopic
from ister.wal.log import Log
from ister.wal.topics import Topics

NAME_LENGTH_MAX = 249
INTERNAL_PREFIX = "__ister_"  # names of the broker's own topics
# Kafka refuses more than this in one request; a broker of one node should too.
PARTITIONS_MAX = 10_000
_NAME = re.compile(r"[a-zA-Z0-9._-]+")
_RING_WAIT_S = 0.002
_RING_WAITS_MAX = 2_500

Done = Callable[[BaseException | None], None]


def check_name(name: str) -> None:
    """RequestError if no topic may be called so."""
    if not name:
        problem = "the empty string is not allowed"
    elif name in (".", ".."):
        problem = "'.' and '..' are not allowed"
    elif len(name) > NAME_LENGTH_MAX:
        problem = f"the length is more than {NAME_LENGTH_MAX} characters"
    elif not _NAME.fullmatch(name):
        problem = (
            "it contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
        )
    else:
        return
    raise RequestError(
        ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name {name[:300]!r} is invalid: {problem}"
    )


def is_internal(name: str) -> bool:
    """Whether it is one of the broker's own: clients read it, and that is all."""
    return name.startswith(INTERNAL_PREFIX)


def check_not_internal(name: str) -> None:
    """RequestError if clients may not change it."""
    if is_internal(name):
        raise RequestError(ErrorCode.POLICY_VIOLATION, "This topic is the broker's own.")


class TopicAdmin:
    def __init__(self, topics: Topics, catalog: Catalog, log: Log, timer: Timer) -> None:
        self._topics = topics
        self._catalog = catalog
        self._log = log
        self._timer = timer
        self._being_made: dict[str, list[Done]] = {}
        # Names with '.' read as '_', for Kafka's rule that such names collide.
        self._folded: dict[str, str] = {}
        self._folded_of: tuple[int, bytes] | None = None

    def check_new(self, name: str, *, internal: bool = False) -> None:
        """RequestError or TopicExists if `name` cannot become a topic now."""
        check_name(name)
        if is_internal(name) and not internal:
            raise RequestError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"Topic name {name!r} is invalid: {INTERNAL_PREFIX} is for the broker's own",
            )
        if name in self._catalog.topics_by_name or name in self._being_made:
            raise TopicExists(name)
        if "." in name or "_" in name:
            self._check_collision(name)

    def create(
        self,
        name: str,
        partitions: int,
        configs: Mapping[str, str],
        done: Done,
        *,
        internal: bool = False,
    ) -> None:
        """`done(None)` once the partitions can be written to; errors of the plan are raised."""
        self.check_new(name, internal=internal)
        waiting = [done]

        def committed(error: BaseException | None) -> None:
            if isinstance(error, Conflict):
                error = TopicExists(name)
            if error is None:
                self._when_writable(topic, 0, finished)
            else:
                finished(error)

        def finished(error: BaseException | None) -> None:
            del self._being_made[name]
            for told in waiting:
                told(error)

        topic = self._topics.create(name, partitions, configs, committed)
        self._being_made[name] = waiting

    def ensure(self, name: str, partitions: int, done: Done) -> None:
        """Make the topic unless it is there; for auto-creation. Errors of the plan are raised."""
        waiting = self._being_made.get(name)
        if waiting is not None:
            waiting.append(done)
        elif name in self._catalog.topics_by_name:
            done(None)
        else:
            self.create(name, partitions, {}, done)

    def delete(self, topic: Topic, done: Done) -> None:
        self._retried(topic.id, lambda each, told: self._topics.delete(each, told), done)

    def grow(self, topic: Topic, partitions: int, done: Done) -> None:
        def committed(error: BaseException | None) -> None:
            if error is None:
                self._when_writable(self._catalog.topics_by_id.get(topic.id, topic), 0, done)
            else:
                done(error)

        self._retried(
            topic.id, lambda each, told: self._topics.grow(each, partitions, told), committed
        )

    def configure(
        self, topic: Topic, change: Callable[[Mapping[str, str]], dict[str, str]], done: Done
    ) -> None:
        """`change` makes the new settings of the present ones; it may be asked again."""
        self._retried(
            topic.id,
            lambda each, told: self._topics.configure(each, change(each.configs), told),
            done,
        )

    # -- inside ------------------------------------------------------------------

    def _retried(self, topic_id: bytes, plan: Callable[[Topic, Done], None], done: Done) -> None:
        """Plan on the topic as it is now, anew after a conflict; errors go to `done`."""

        def told(error: BaseException | None) -> None:
            if isinstance(error, Conflict):
                attempt()
            else:
                done(error)

        def attempt() -> None:
            topic = self._catalog.topics_by_id.get(topic_id)
            if topic is None:
                done(UnknownTopic(topic_id))
                return
            try:
                plan(topic, told)
            except StoreOverloaded as error:
                done(error)

        attempt()

    def _when_writable(self, topic: Topic, waits: int, done: Done) -> None:
        """Rings have to wait for their first block of offsets; everything else is ready."""
        partitions = self._log.of_topic(topic.id)
        ready = all(each.settings.reliable or each.ring is not None for each in partitions)
        if ready or waits >= _RING_WAITS_MAX:
            done(None)
        else:
            self._timer.later(_RING_WAIT_S, lambda: self._when_writable(topic, waits + 1, done))

    def _check_collision(self, name: str) -> None:
        known = self._catalog.topics_by_name
        if not known:
            return
        # A topic that is new stands last, so nothing changes without changing one of the two.
        state = (len(known), known[next(reversed(known))].id)
        if state != self._folded_of:
            self._folded = {each.replace(".", "_"): each for each in known}
            self._folded_of = state
        other = self._folded.get(name.replace(".", "_"))
        if other is not None and other != name and other in known:
            raise RequestError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"Topic '{name}' collides with existing topic: {other}",
            )
