"""Old data opens for ever: every format that was ever released, as it was written then."""

from __future__ import annotations

import asyncio
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from ister.gateway.app import METADATA_NAME, Options, Storage
from ister.gateway.tests import formats
from ister.gateway.tests.formats.look import FORMATS, describe
from ister.gateway.tests.formats.make import PRODUCER, SENT
from ister.metadata.sqlite import SqliteStore
from ister.wal.clock import ManualClock
from ister.wal.errors import LogError
from ister.wal.fs import OsFileSystem
from ister.wal.log import Appended, Moment
from ister.wal.restore import restore
from ister.wal.tests.batches import make_batch
from ister.wal.tier import open_store

HERE = Path(formats.__file__).parent
NUMBERS = sorted(path.name.removesuffix(".tar.xz") for path in HERE.glob("*.tar.xz"))
EPOCH_END_MS = 1_700_010_000_000  # after all that was written


@pytest.fixture(params=NUMBERS)
def number(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def data(number: str, tmp_path: Path) -> Path:
    """The data directory as it was left."""
    with tarfile.open(HERE / f"{number}.tar.xz") as archive:
        for entry in archive:
            place = tmp_path / entry.name
            content = archive.extractfile(entry)
            if content is None:
                place.mkdir()
            else:
                place.write_bytes(content.read())
    return tmp_path / "data"


@pytest.fixture
def expected(number: str) -> Any:
    found = json.loads((HERE / f"{number}.json").read_text())
    del found["formats"]
    return found


def test_what_is_written_today_is_among_them() -> None:
    """A format that gets a new version needs data of it here (`formats/make.py`)."""
    known = [json.loads((HERE / f"{number}.json").read_text())["formats"] for number in NUMBERS]
    assert {name: max(each.get(name, 0) for each in known) for name in FORMATS} == FORMATS


def test_it_opens_and_everything_is_there(data: Path, expected: Any) -> None:
    """Also a second time, when this version has written its own files."""
    reserved = take_reserved(expected)
    for _ in range(2):
        found = asyncio.run(describe(data, ManualClock(EPOCH_END_MS)))
        assert take_reserved(found) >= reserved  # each opening takes the next block
        assert found == expected


def take_reserved(found: Any) -> int:
    """Offsets of the non-reliable topic below this were given before."""
    (ring,) = found["topics"]["news"]["partitions"]
    return int(ring.pop("reserved"))


def test_it_goes_on(data: Path, expected: Any) -> None:
    """The next offset is the next one, and the producer of then is still known."""
    errors: list[BaseException] = []

    async def run() -> None:
        options = Options(data=str(data), clock=ManualClock(EPOCH_END_MS))
        storage = Storage(options, errors.append)
        topic = storage.catalog.topics_by_name["orders"]
        end = expected["topics"]["orders"]["partitions"][0]["end"]
        again = await append(
            storage, topic.id, producer_id=PRODUCER, producer_epoch=0, base_sequence=SENT - 1
        )
        assert again.duplicate
        assert again.base_offset == end - 1
        following = await append(
            storage, topic.id, producer_id=PRODUCER, producer_epoch=0, base_sequence=SENT
        )
        assert (following.duplicate, following.base_offset) == (False, end)
        await storage.close()

    asyncio.run(run())
    assert errors == []


async def append(storage: Storage, topic_id: bytes, **fields: int) -> Appended:
    done: asyncio.Future[LogError | None] = asyncio.get_running_loop().create_future()
    batch = make_batch([b"x"], base_timestamp=storage.clock.wall_ms(), **fields)  # type: ignore[arg-type]
    partition = storage.log.partition(topic_id, 0)
    appended = storage.log.append(partition, batch, Moment.DURABLE, done.set_result)
    assert await done is None
    return appended


def test_its_bucket_alone_is_enough(data: Path, expected: Any, tmp_path: Path) -> None:
    """A restore brings back what was handed over; the epoch rises."""
    url = f"file://{data}/bucket"
    other = tmp_path / "other"
    other.mkdir()
    metadata = SqliteStore(other / METADATA_NAME)
    clock = ManualClock(EPOCH_END_MS)
    bucket = open_store(url)
    restore(bucket, fs=OsFileSystem(), data=str(other), metadata=metadata, clock=clock)
    metadata.close()
    found = asyncio.run(describe(other, clock, url))
    assert found["cluster"] == expected["cluster"]
    assert found["cursors"] == expected["cursors"]
    before = expected["topics"]["orders"]["partitions"]
    after = found["topics"]["orders"]["partitions"]
    for was, now in zip(before, after, strict=True):
        end = was["tiered_end"]
        assert now["end"] == end
        assert now["epoch"] > was["epoch"]
        assert now["holes"] == was["holes"]
        assert [at for at in now["records"] if at[0] >= was["log_start"]] == [
            at for at in was["records"] if at[0] < end
        ]
