"""The bucket in Google Cloud Storage: preconditions, lost replies, a service that is dead."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import Any

import google.auth.credentials
import pytest
import requests
from google.api_core.exceptions import PreconditionFailed
from google.auth.transport.requests import AuthorizedSession

from ister.wal.clock import SystemClock
from ister.wal.tests.gcs_server import BUCKET, free_port, gcs_address, new_client, new_prefix
from ister.wal.tier import open_store
from ister.wal.tier.gcs import ChunkReader, GcsStore
from ister.wal.tier.object_store import AlreadyThere, Conflict, Missing, StoreUnavailable

__all__ = ["gcs_address"]

CHUNK_BYTES = 256 * 1024


class LossySession(AuthorizedSession):
    """A transport that does what it is told, and then loses the reply of some requests."""

    def __init__(self) -> None:
        super().__init__(google.auth.credentials.AnonymousCredentials())  # type: ignore[no-untyped-call]
        self.lose: list[str] = []  # parts of addresses; each strikes once
        self.requests = 0

    def request(self, method: str, url: Any, *args: Any, **kwargs: Any) -> Any:
        self.requests += 1
        response = super().request(method, url, *args, **kwargs)  # type: ignore[no-untyped-call]
        for part in self.lose:
            if part in f"{method} {url}":
                self.lose.remove(part)
                response.close()
                raise requests.ConnectionError("the reply is lost")
        return response


@pytest.fixture
def session() -> LossySession:
    return LossySession()


@pytest.fixture
def store(gcs_address: str, session: LossySession) -> Iterator[GcsStore]:
    client = new_client(gcs_address, session)
    made = GcsStore(BUCKET, new_prefix(), client, chunk_bytes=CHUNK_BYTES, deadline_seconds=10)
    yield made
    made.close()


# -- the emulator: one test per precondition that the store relies on ------------


def test_emulator_refuses_a_second_create(store: GcsStore) -> None:
    """if_generation_match=0 on a name that is taken must be answered 412."""
    blob = store._bucket.blob("raw/create-" + new_prefix())
    blob.upload_from_string(b"one", if_generation_match=0)
    with pytest.raises(PreconditionFailed):
        store._bucket.blob(blob.name).upload_from_string(b"two", if_generation_match=0)


def test_emulator_refuses_a_second_streamed_create(store: GcsStore) -> None:
    """The same for a resumable upload."""
    name = "raw/stream-" + new_prefix()
    store._bucket.blob(name).upload_from_string(b"one", if_generation_match=0)
    blob = store._bucket.blob(name, chunk_size=CHUNK_BYTES)
    with pytest.raises(PreconditionFailed):
        blob.upload_from_file(ChunkReader([b"x" * CHUNK_BYTES] * 3), if_generation_match=0)


def test_emulator_refuses_a_stale_swap(store: GcsStore) -> None:
    """if_generation_match of a generation that is replaced must be answered 412."""
    name = "raw/swap-" + new_prefix()
    blob = store._bucket.blob(name)
    blob.upload_from_string(b"one", if_generation_match=0)
    stale = blob.generation
    store._bucket.blob(name).upload_from_string(b"two", if_generation_match=stale)
    with pytest.raises(PreconditionFailed):
        store._bucket.blob(name).upload_from_string(b"three", if_generation_match=stale)
    assert store._bucket.blob(name).download_as_bytes() == b"two"


def test_emulator_refuses_a_swap_of_nothing(store: GcsStore) -> None:
    """if_generation_match of any generation on a name that is not there must be answered 412."""
    with pytest.raises(PreconditionFailed):
        store._bucket.blob("raw/none-" + new_prefix()).upload_from_string(
            b"x", if_generation_match=12345
        )


def test_emulator_refuses_a_wrong_checksum(store: GcsStore) -> None:
    """A CRC32C that does not match what arrived is refused."""
    blob = store._bucket.blob("raw/checksum-" + new_prefix())
    blob.crc32c = "AAAAAA=="
    with pytest.raises(Exception, match=r"400|[Cc]hecksum|crc32c"):
        blob.upload_from_string(b"not zero", checksum=None)
    assert not blob.exists()


# -- requests ------------------------------------------------------------------


def test_only_what_was_asked_for_is_requested(store: GcsStore, session: LossySession) -> None:
    """The library asks for nothing by itself: no permission, no limit, no owner for it."""
    threads = threading.active_count()
    store.put("a", [b"one"])
    assert store.get("a") == b"one"
    with pytest.raises(Missing):
        store.get("b")
    assert session.requests == 3
    assert threading.active_count() == threads


# -- lost replies --------------------------------------------------------------


def test_lost_reply_of_a_create(store: GcsStore, session: LossySession) -> None:
    """The library's own second try meets our object: AlreadyThere, and it holds our bytes."""
    session.lose.append("uploadType=multipart")
    with pytest.raises(AlreadyThere):
        store.put("a", [b"mine"])
    assert session.lose == []
    assert store.get("a") == b"mine"


def test_lost_reply_of_a_swap(store: GcsStore, session: LossySession) -> None:
    """The same for a register: Conflict, and it holds our value."""
    version = store.swap("owner", b"one", 0)
    session.lose.append("uploadType=multipart")
    with pytest.raises(Conflict):
        store.swap("owner", b"two", version)
    value, after = store.read("owner")
    assert value == b"two"
    assert after > version


def test_lost_reply_within_a_stream(store: GcsStore, session: LossySession) -> None:
    """A reply lost within a streamed upload: whole, AlreadyThere or unavailable; never half."""
    data = bytes(range(256)) * (CHUNK_BYTES // 256) * 3 + b"end"
    session.lose.append("PUT ")
    with contextlib.suppress(AlreadyThere, StoreUnavailable):
        store.put("a", [data])
    try:
        assert store.get("a") == data
    except Missing:
        store.put("a", [data])
        assert store.get("a") == data


# -- a service that does not answer ----------------------------------------------


def assert_all_unavailable(store: GcsStore) -> None:
    with pytest.raises(StoreUnavailable):
        store.put("a", [b"x"])
    with pytest.raises(StoreUnavailable):
        store.get("a")
    with pytest.raises(StoreUnavailable):
        store.read("r")
    with pytest.raises(StoreUnavailable):
        store.swap("r", b"x", 0)
    with pytest.raises(StoreUnavailable):
        store.delete("a")
    with pytest.raises(StoreUnavailable):
        store.remove("r")
    with pytest.raises(StoreUnavailable):
        list(store.list(""))
    with pytest.raises(StoreUnavailable):
        list(store.registers(""))


def test_dead_service_answers_within_a_bound() -> None:
    """Nobody listens: every call is StoreUnavailable soon, however long the library would try."""
    client = new_client(f"http://127.0.0.1:{free_port()}")
    store = GcsStore(BUCKET, "p", client, deadline_seconds=0.2)
    start = SystemClock().monotonic()
    assert_all_unavailable(store)
    assert SystemClock().monotonic() - start < 30
    store.close()


def test_silent_service_answers_within_a_bound() -> None:
    """Somebody listens and says nothing: the read timeout ends it."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(64)
        client = new_client(f"http://127.0.0.1:{listener.getsockname()[1]}")
        store = GcsStore(BUCKET, "p", client, deadline_seconds=0.1)
        with pytest.raises(StoreUnavailable):
            store.get("a")
        with pytest.raises(StoreUnavailable):
            store.put("a", (b"x" * CHUNK_BYTES for _ in range(40)))
        store.close()


def test_bucket_that_does_not_exist(gcs_address: str) -> None:
    """A bucket that is not there is unavailable for writes: someone can still make it."""
    store = GcsStore("no-such-bucket", "p", new_client(gcs_address), deadline_seconds=1)
    with pytest.raises(StoreUnavailable):
        store.put("a", [b"x"])
    with pytest.raises(StoreUnavailable):
        store.swap("r", b"x", 0)
    store.close()


def test_emulator_variable(gcs_address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """STORAGE_EMULATOR_HOST names the service, with or without a scheme."""
    prefix = new_prefix()
    for endpoint in (gcs_address, gcs_address.removeprefix("http://")):
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", endpoint)
        store = open_store(f"gs://{BUCKET}/{prefix}/deep")
        assert store.url == f"gs://{BUCKET}/{prefix}/deep"
        version = store.swap("r", b"x", 0)
        assert store.read("r") == (b"x", version)
        store.remove("r")
        store.close()


# -- the stream ----------------------------------------------------------------


def test_chunk_reader_cuts_anew() -> None:
    """Reads of any size over chunks of any size give the same bytes."""
    data = bytes(range(200))
    for chunk_size in (1, 7, 64, 200):
        for read_size in (1, 5, 64, 199, 200, 500):
            chunks = [data[at : at + chunk_size] for at in range(0, 200, chunk_size)]
            reader = ChunkReader(chunks)
            got = []
            while part := reader.read(read_size):
                assert len(part) == read_size or reader.tell() == 200
                got.append(part)
            assert b"".join(got) == data


def test_chunk_reader_stays_failed() -> None:
    """A stream that failed never looks finished."""

    def chunks() -> Iterator[bytes]:
        yield b"abc"
        raise ValueError("source")

    reader = ChunkReader(chunks())
    assert reader.read(2) == b"ab"
    for _ in range(2):
        with pytest.raises(ValueError, match="source"):
            reader.read(2)
