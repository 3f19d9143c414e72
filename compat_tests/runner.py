"""The runner of a client that Python can drive: JSON commands in, JSON answers out.

`compat_tests/README.md` says which commands there are. A client's folder has a class with
one method per command and hands it to `serve`. Commands run one after another; a member of
a group polls on a thread of its own (`Member`), because the broker expects it to.

Bytes travel as base64, a missing value as null. An error of the client is an answer with the
number that Kafka gives it; anything else that is raised is an answer with the number -1.
"""

from __future__ import annotations

import base64
import json
import os
import queue
import sys
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Protocol

from ister.wal.clock import SystemClock

POLL_S = 0.1
CALL_TIMEOUT_S = 60.0
UNKNOWN = -1

Answer = dict[str, Any]
Offsets = list[tuple[str, int, int, str]]  # topic, partition, offset, metadata


class Failure(Exception):
    """The client says no; `code` is Kafka's number."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class Consumer(Protocol):
    """What `Member` needs of a client's consumer; all calls come from one thread."""

    def poll(self, seconds: float) -> list[Answer]: ...
    def assignment(self) -> list[tuple[str, int]]: ...
    def commit(self, offsets: Offsets | None) -> None: ...
    def close(self) -> None: ...


class Member:
    """A consumer in a group: polls until it is told to leave, and remembers what it saw."""

    def __init__(
        self, consumer: Consumer, *, commit_each: bool, as_failure: Callable[[Exception], Failure]
    ) -> None:
        self._consumer = consumer
        self._commit_each = commit_each
        self._as_failure = as_failure
        self._lock = threading.Lock()
        self._seen: list[Answer] = []
        self._assignment: list[tuple[str, int]] = []
        self._error: Answer | None = None
        self._calls: queue.SimpleQueue[tuple[Offsets | None, Future[None]]] = queue.SimpleQueue()
        self._leaving = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def look(self) -> Answer:
        """What was read since the last look, what is assigned, and what went wrong."""
        with self._lock:
            seen, self._seen = self._seen, []
            return {"records": seen, "assignment": self._assignment, "error": self._error}

    def commit(self, offsets: Offsets | None) -> None:
        done: Future[None] = Future()
        self._calls.put((offsets, done))
        while self._thread.is_alive():
            try:
                return done.result(POLL_S)
            except TimeoutError:
                continue  # it polls; or it ended, and then nobody answers
        if self._error is not None and not done.done():
            raise Failure(self._error["code"], self._error["text"])
        done.result(0)

    def leave(self) -> None:
        self._leaving.set()
        self._thread.join(CALL_TIMEOUT_S)

    def _run(self) -> None:
        try:
            while not self._leaving.is_set():
                self._answer_calls()
                self._turn()
        except Exception as error:
            failure = self._as_failure(error)
            self._error = {"code": failure.code, "text": str(failure)}
        finally:
            self._consumer.close()

    def _answer_calls(self) -> None:
        while not self._calls.empty():
            offsets, done = self._calls.get()
            try:
                self._consumer.commit(offsets)
                done.set_result(None)
            except Exception as error:
                done.set_exception(error)

    def _turn(self) -> None:
        records = self._consumer.poll(POLL_S)
        assignment = sorted(self._consumer.assignment())
        with self._lock:
            self._seen += records
            self._assignment = assignment
        if records and self._commit_each:
            try:
                self._consumer.commit(None)
            except Exception as error:  # a round has begun: the next owner reads them again
                print(f"commit: {error!r}", file=sys.stderr)


class Runner:
    """Commands common to all: members. `as_failure` knows the client's exceptions."""

    def __init__(self) -> None:
        self._members: dict[str, Member] = {}

    def as_failure(self, error: Exception) -> Failure:
        return error if isinstance(error, Failure) else Failure(UNKNOWN, repr(error))

    def consumer(
        self, *, bootstrap: str, group: str, topics: list[str], **options: Any
    ) -> Consumer:
        raise NotImplementedError

    def do_join(self, *, member: str, commit_each: bool = False, **options: Any) -> Answer:
        self._members[member] = Member(
            self.consumer(**options), commit_each=commit_each, as_failure=self.as_failure
        )
        return {}

    def do_members(self, **_: Any) -> Answer:
        return {"names": list(self._members)}

    def do_look(self, *, member: str, **_: Any) -> Answer:
        return self._members[member].look()

    def do_commit(self, *, member: str, offsets: Offsets | None = None, **_: Any) -> Answer:
        self._members[member].commit(offsets)
        return {}

    def do_leave(self, *, member: str, **_: Any) -> Answer:
        self._members.pop(member).leave()
        return {}


def serve(runner: Runner) -> None:
    """Answer the commands on stdin until it ends. Only answers go to stdout."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a client prints must not look like an answer
    for line in sys.stdin:
        print(json.dumps(_answer(runner, json.loads(line))), file=answers, flush=True)
    os._exit(0)  # threads of a client must not hold the process


def _answer(runner: Runner, command: Answer) -> Answer:
    try:
        return {"ok": getattr(runner, f"do_{command.pop('do')}")(**command)}
    except Exception as error:
        traceback.print_exc()
        failure = runner.as_failure(error)
        return {"error": {"code": failure.code, "text": str(failure)}}


def until(poll: Callable[[], list[Answer]], count: int, wait_s: float) -> list[Answer]:
    """What `poll` brings, until there are `count` or the time is over."""
    found: list[Answer] = []
    clock = SystemClock()
    end = clock.monotonic() + wait_s
    while len(found) < count and clock.monotonic() < end:
        found += poll()
    return found


def decode(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def encode(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def decode_headers(headers: list[list[Any]]) -> list[tuple[str, bytes | None]]:
    return [(name, decode(value)) for name, value in headers]


def record(
    *,
    topic: str,
    partition: int,
    offset: int,
    key: bytes | None,
    value: bytes | None,
    headers: Any,
    timestamp: int,
    log_append_time: bool | None,
) -> Answer:
    """A record as every runner answers it."""
    return {
        "topic": topic,
        "partition": partition,
        "offset": offset,
        "key": encode(key),
        "value": encode(value),
        "headers": [[name, encode(data)] for name, data in headers or ()],
        "timestamp": timestamp,
        "log_append_time": log_append_time,
    }
