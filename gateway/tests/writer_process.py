"""The other end of `writer.py`: starts it, reads what it says, and remembers what must survive."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

ROOT = Path(__file__).resolve().parents[2]
SECONDS_MAX = 60
SMALL: Mapping[str, int] = {
    "journal_file_bytes": 256 * 1024,
    "journal_first_file_bytes": 64 * 1024,
    "journal_pool_files": 2,
    "commit_bytes_max": 32 * 1024,
    "cache_bytes": 32 * 1024,
    "handoff_bytes": 128 * 1024,
    "handoff_ms": 300,
    "disk_limit_bytes": 64 * 1024 * 1024,
}

Place = tuple[int, int]  # partition and offset


@dataclass(slots=True)
class Known:
    """What a process has promised, over all its lives."""

    acked: dict[Place, str] = field(default_factory=dict)
    seen: dict[Place, str] = field(default_factory=dict)
    created: set[str] = field(default_factory=set)
    filled: dict[str, str] = field(default_factory=dict)
    deleting: set[str] = field(default_factory=set)
    deleted: set[str] = field(default_factory=set)

    def note(self, words: list[str]) -> None:
        kind = words[0]
        if kind in ("acked", "seen"):
            place = int(words[1]), int(words[2])
            promised = self.acked if kind == "acked" else self.seen
            assert promised.setdefault(place, words[3]) == words[3], f"{place} was given twice"
        elif kind == "filled":
            self.filled[words[1]] = words[2]
        elif kind in ("created", "deleting", "deleted"):
            promised_names: set[str] = getattr(self, kind)
            promised_names.add(words[1])


@dataclass(slots=True)
class Dump:
    """What a fresh process found."""

    records: dict[tuple[str, int, int], str] = field(default_factory=dict)
    ends: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)
    unreadable: list[str] = field(default_factory=list)

    def note(self, words: list[str]) -> None:
        if words[0] == "record":
            self.records[words[1], int(words[2]), int(words[3])] = words[4]
        elif words[0] == "end":
            self.ends[words[1], int(words[2])] = int(words[3]), int(words[4])
        elif words[0] == "unreadable":
            self.unreadable.append(" ".join(words[1:]))


class WriterProcess:
    """A running writer. Leaving the block kills it."""

    def __init__(
        self,
        data: Path,
        *,
        known: Known | None = None,
        environment: dict[str, str] | None = None,
        settings: Mapping[str, int] = SMALL,
        **options: object,
    ) -> None:
        self.known = known or Known()
        self.dumped = Dump()
        options["settings"] = dict(settings)
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "ister.gateway.tests.writer"),
                *(str(data), json.dumps(options)),
            ],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.said: IO[str] = self.process.stdout  # type: ignore[assignment]

    def __enter__(self) -> WriterProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def tell(self, command: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()

    def next(self) -> list[str]:
        """The next line; empty when there is none any more."""
        line = self.said.readline()
        if not line.endswith("\n"):  # the end, or cut by the kill: then nobody was told
            return []
        words = line.split()
        self.known.note(words)
        self.dumped.note(words)
        return words

    def until(self, kind: str, times: int = 1) -> list[str]:
        """Read on to the n-th line of that kind."""
        while True:
            words = self.next()
            assert words, f"it ended before {kind}: exit {self.process.wait(SECONDS_MAX)}"
            times -= words[0] == kind
            if times == 0:
                return words

    def kill(self) -> None:
        """kill -9; what it had said before counts."""
        if self.said.closed:
            return
        self.process.kill()
        while self.next():
            pass
        self._close()

    def end(self) -> int:
        """Its exit code, when it leaves by itself."""
        while self.next():
            pass
        code = self.process.wait(SECONDS_MAX)
        self._close()
        return code

    def stop(self) -> int:
        self.tell("stop")
        return self.end()

    def _close(self) -> None:
        self.process.wait(SECONDS_MAX)
        self.said.close()
        assert self.process.stdin is not None
        self.process.stdin.close()


def look(data: Path, settings: Mapping[str, int] = SMALL) -> Dump:
    """Open in a fresh process without any shim, read everything, close."""
    with WriterProcess(data, settings=settings) as process:
        process.until("opened")
        process.tell("dump")
        process.until("dumped")
        assert process.stop() == 0
        return process.dumped


def check(found: Dump, known: Known, topic: str = "t") -> None:
    """Nothing acked or seen is missing or changed; offsets are dense."""
    assert not found.unreadable
    mine = {(p, at): value for (name, p, at), value in found.records.items() if name == topic}
    for promised in (known.acked, known.seen):
        wrong = {place: value for place, value in promised.items() if mine.get(place) != value}
        assert not wrong, f"{len(wrong)} of {len(promised)} are missing or changed: {min(wrong)}"
    for (name, partition), (start, end) in found.ends.items():
        offsets = [at for n, p, at in found.records if (n, p) == (name, partition)]
        assert offsets == list(range(start, end)), f"{name}-{partition} is not dense"
    names = {name for name, _ in found.ends}
    assert known.created - known.deleting <= names
    assert not known.deleted & names
    for name in known.filled.keys() - known.deleting:
        assert found.records[name, 0, 0] == known.filled[name]
