"""`ister log`: what it prints, its exit codes, and that it changes nothing."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ister.gateway.app import Options, Storage
from ister.gateway.cli.main import app
from ister.wal.log import Moment
from ister.wal.settings import LogSettings
from ister.wal.tests.batches import make_batch

runner = CliRunner()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A topic with three records in two batches, closed cleanly."""
    errors: list[BaseException] = []

    async def write() -> None:
        settings = LogSettings(journal_first_file_bytes=65536, spare_bytes=0)
        storage = Storage(Options(data=str(tmp_path / "data"), log=settings), errors.append)
        loop = asyncio.get_running_loop()
        made: asyncio.Future[Any] = loop.create_future()
        topic = storage.topics.create("orders", 1, {}, made.set_result)
        assert await made is None
        partition = storage.log.partition(topic.id, 0)
        for values in ([b"one", b"two"], [bytes([0xFF, 0x41])]):
            durable: asyncio.Future[Any] = loop.create_future()
            batch = make_batch(values, keys=[b"k"] * len(values))
            storage.log.append(partition, batch, Moment.DURABLE, durable.set_result)
            assert await durable is None
        await storage.close()

    asyncio.run(write())
    assert errors == []
    return tmp_path / "data"


def run(*arguments: str) -> tuple[int, str, str]:
    result = runner.invoke(app, ["log", *arguments], catch_exceptions=False)
    return result.exit_code, result.stdout, result.stderr


def test_dump_prints_a_line_for_each_batch(data: Path) -> None:
    """With the name of the topic; the content only when it is asked for."""
    code, out, _ = run("dump", str(data))
    assert code == 0
    lines = [json.loads(line) for line in out.splitlines()]
    assert [(line["topic"], line["offset"], line["records"]) for line in lines] == [
        ("orders", 0, 2),
        ("orders", 2, 1),
    ]
    assert "content" not in lines[0]
    _, out, _ = run("dump", str(data), "--records")
    content = [record for line in out.splitlines() for record in json.loads(line)["content"]]
    assert [(record["offset"], record["key"], record["value"]) for record in content] == [
        (0, "k", "one"),
        (1, "k", "two"),
        (2, "k", "\\xffA"),
    ]


def test_dump_needs_no_metadata(data: Path) -> None:
    """Ids stand for names, and the reason is said."""
    (data / "metadata.sqlite").write_bytes(b"not a database")
    code, out, err = run("dump", str(data))
    assert code == 0
    assert "no names of topics" in err
    assert [json.loads(line)["topic"] for line in out.splitlines()] == [None, None]


def test_verify_says_that_all_holds(data: Path) -> None:
    """In words and as JSON, and nothing in the directory changes."""
    before = {path: path.read_bytes() for path in data.rglob("*") if path.is_file()}
    code, out, _ = run("verify", str(data))
    assert code == 0
    assert "2 batches" in out
    assert "ended cleanly" in out
    assert "all holds" in out
    code, out, _ = run("verify", str(data), "--json")
    report = json.loads(out)
    assert code == 0
    assert report["findings"] == []
    assert sum(file["batches"] for file in report["files"]) == 2
    assert {path: path.read_bytes() for path in data.rglob("*") if path.is_file()} == before


def test_damage_is_exit_3_with_file_and_position(data: Path) -> None:
    """By both commands; what can be shown is shown."""
    (path,) = [p for p in (data / "journal").glob("*.log") if b"one" in p.read_bytes()]
    content = bytearray(path.read_bytes())
    content[content.index(b"one")] ^= 1
    path.write_bytes(content)
    for command in ("dump", "verify"):
        code, out, err = run(command, str(data))
        assert code == 3
        assert f"{path} at 4096" in err
    assert "1 findings" in out
    lines = [json.loads(line) for line in run("dump", str(data))[1].splitlines()]
    assert [line["offset"] for line in lines] == [2]


def test_where_nothing_is_that_is_said(tmp_path: Path) -> None:
    """Exit 2, in words."""
    for command in ("dump", "verify"):
        code, _, err = run(command, str(tmp_path / "none"))
        assert code == 2
        assert "there is no" in err
