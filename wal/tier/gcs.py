"""A bucket in Google Cloud Storage, through google-cloud-storage (extra `ister[gcs]`).

    {prefix}/objects/{name}      objects: created with if_generation_match=0
    {prefix}/registers/{name}    registers: replaced with if_generation_match=version

The version of a register is its generation, which the service never gives twice,
not even for a name that was deleted. Only creates and swaps rely on a precondition.

*Upload*: what fits into one chunk goes in one request, the rest as a resumable
upload of one chunk after another: memory is a few chunks, whatever the size. The
CRC32C goes with the (last) request and the service refuses what does not match.
An upload that stops half way leaves nothing that can be seen; the service forgets
it after a week.

*Errors*: 412 is `AlreadyThere` or `Conflict` (also when it answers our own second
try after a lost reply: the caller compares), 404 is `Missing`, everything else,
no permission and a bucket that does not exist included, is `StoreUnavailable`:
an operator can cure it while the journal grows. The library tries again by itself
for `deadline_seconds` per request; with the two timeouts that bounds each request.

The library decorates its traces with the bucket's place, for which it asks in a thread
of its own that nobody waits for and no limit of ours holds. It is told not to.

`STORAGE_EMULATOR_HOST` names an emulator; then no credentials are looked for.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from typing import Any

from ister.wal.tier.names import check_name, check_prefix
from ister.wal.tier.object_store import (
    AlreadyThere,
    Conflict,
    Missing,
    ObjectInfo,
    StoreUnavailable,
)

UPLOAD_CHUNK_BYTES = 8 * 1024 * 1024  # a multiple of 256 KiB, as the service demands
DEADLINE_SECONDS = 30.0  # tries of one request; an outage is met by the caller's own back-off
CONNECT_TIMEOUT_SECONDS = 5.0
READ_TIMEOUT_SECONDS = 30.0  # of one answer; a chunk needs 270 KB/s to make it
READ_TRIES_MAX = 10
EMULATOR_VARIABLE = "STORAGE_EMULATOR_HOST"


class GcsStore:
    """An `ObjectStore` in a bucket of Google Cloud Storage."""

    def __init__(
        self,
        bucket: str,
        prefix: str = "",
        client: Any = None,
        *,
        deadline_seconds: float = DEADLINE_SECONDS,
        chunk_bytes: int = UPLOAD_CHUNK_BYTES,
    ) -> None:
        from google.cloud.storage.retry import DEFAULT_RETRY  # type: ignore[import-untyped]

        folder = prefix.strip("/") + "/" if prefix.strip("/") else ""
        self.url = f"gs://{bucket}/{folder}".rstrip("/")
        self._objects = folder + "objects/"
        self._registers = folder + "registers/"
        self._client = client or _default_client()
        self._client._bucket_metadata_cache = None  # the switch for it is one per process
        self._bucket = self._client.bucket(bucket)
        self._chunk_bytes = chunk_bytes
        self._limits = {
            "retry": DEFAULT_RETRY.with_timeout(deadline_seconds),
            "timeout": (
                min(CONNECT_TIMEOUT_SECONDS, deadline_seconds),
                min(READ_TIMEOUT_SECONDS, deadline_seconds),
            ),
        }

    # -- objects ---------------------------------------------------------------

    def put(self, name: str, chunks: Iterable[bytes | memoryview]) -> None:
        check_name(name)
        source = ChunkReader(chunks)
        head = source.peek(self._chunk_bytes + 1)  # what the chunks raise, they raise here or below
        blob = self._bucket.blob(self._objects + name)
        if head <= self._chunk_bytes:
            self._upload(blob, source.read(head), 0, AlreadyThere(name))
            return
        blob.chunk_size = self._chunk_bytes
        try:
            with _reaching(self.url, AlreadyThere(name)):
                blob.upload_from_file(
                    source, if_generation_match=0, checksum="crc32c", **self._limits
                )
        except Exception:
            if source.error is not None:
                raise source.error from None
            raise

    def get(self, name: str, start: int = 0, size: int | None = None) -> bytes:
        check_name(name)
        if size is not None and size <= 0:  # a range cannot be empty; the answer still can be 404
            self._stat(self._objects + name, name)
            return b""
        blob = self._bucket.blob(self._objects + name)
        end = None if size is None else start + size - 1
        with _reaching(self.url, absent=Missing(name)):
            return _download(blob, start, end, self._limits)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        check_prefix(prefix)
        for blob in self._list(self._objects + prefix):
            created_ms = int(blob.time_created.timestamp() * 1000) if blob.time_created else 0
            yield ObjectInfo(blob.name[len(self._objects) :], blob.size, created_ms)

    def delete(self, name: str) -> None:
        check_name(name)
        self._delete(self._objects + name, name)

    # -- registers -------------------------------------------------------------

    def read(self, name: str) -> tuple[bytes, int]:
        check_name(name)
        path = self._registers + name
        for _ in range(READ_TRIES_MAX):
            generation = self._stat(path, name)
            blob = self._bucket.blob(path, generation=generation)
            with contextlib.suppress(Missing), _reaching(self.url, absent=Missing(name)):
                return _download(blob, 0, None, self._limits), generation
        raise StoreUnavailable(f"{name} in {self.url} moves faster than it can be read")

    def swap(self, name: str, value: bytes, expected: int) -> int:
        check_name(name)
        blob = self._bucket.blob(self._registers + name)
        conflict = Conflict(f"{name} is not at version {expected}")
        self._upload(blob, bytes(value), expected, conflict)
        return int(blob.generation)

    def registers(self, prefix: str) -> Iterator[str]:
        check_prefix(prefix)
        for blob in self._list(self._registers + prefix):
            yield blob.name[len(self._registers) :]

    def remove(self, name: str) -> None:
        check_name(name)
        self._delete(self._registers + name, name)

    def close(self) -> None:
        self._client.close()

    # -- requests --------------------------------------------------------------

    def _upload(self, blob: Any, data: bytes, generation: int, refused: Exception) -> None:
        """One request with its checksum; `refused` if the precondition does not hold."""
        with _reaching(self.url, refused):
            blob.upload_from_string(
                data,
                content_type="application/octet-stream",
                if_generation_match=generation,
                checksum="crc32c",
                **self._limits,
            )

    def _stat(self, path: str, name: str) -> int:
        blob = self._bucket.blob(path)
        with _reaching(self.url, absent=Missing(name)):
            blob.reload(**self._limits)
        return int(blob.generation)

    def _list(self, prefix: str) -> Iterator[Any]:
        fields = "items(name,size,timeCreated),nextPageToken"
        with _reaching(self.url):
            found = iter(
                self._client.list_blobs(self._bucket, prefix=prefix, fields=fields, **self._limits)
            )
        while True:
            with _reaching(self.url):
                blob = next(found, None)
            if blob is None:
                return
            yield blob

    def _delete(self, path: str, name: str) -> None:
        absent = Missing(name)
        try:
            with _reaching(self.url, absent=absent):
                self._bucket.blob(path).delete(**self._limits)
        except Missing:
            return


class ChunkReader:
    """Just enough of a file for the library: `read` and `tell` over an iterator of chunks.

    An iterator that failed stays failed: were it asked again it would look finished, and
    a cut-off object would be completed.
    """

    def __init__(self, chunks: Iterable[bytes | memoryview]) -> None:
        self.error: BaseException | None = None
        self._chunks = iter(chunks)
        self._ready: list[memoryview] = []
        self._ready_bytes = 0
        self._position = 0

    def peek(self, size: int) -> int:
        """Gather up to `size` bytes; how many there are to read now, at most `size`."""
        if self.error is not None:
            raise self.error
        try:
            while self._ready_bytes < size:
                chunk = next(self._chunks, None)
                if chunk is None:
                    break
                if len(chunk):
                    self._ready.append(memoryview(chunk).cast("B"))
                    self._ready_bytes += len(self._ready[-1])
        except BaseException as error:
            self.error = error
            raise
        return min(size, self._ready_bytes)

    def read(self, size: int) -> bytes:
        wanted = self.peek(size)
        taken: list[memoryview] = []
        missing = wanted
        used = 0
        while missing:
            chunk = self._ready[used]
            if len(chunk) > missing:
                taken.append(chunk[:missing])
                self._ready[used] = chunk[missing:]
                break
            taken.append(chunk)
            missing -= len(chunk)
            used += 1
        del self._ready[:used]
        self._ready_bytes -= wanted
        self._position += wanted
        return b"".join(taken)

    def tell(self) -> int:
        return self._position


def _default_client() -> Any:
    from google.auth.credentials import AnonymousCredentials
    from google.auth.exceptions import GoogleAuthError
    from google.cloud import storage  # type: ignore[import-untyped]

    endpoint = os.environ.get(EMULATOR_VARIABLE)
    if endpoint:
        if "://" not in endpoint:
            endpoint = "http://" + endpoint
        return storage.Client(
            project="emulator",
            credentials=AnonymousCredentials(),  # type: ignore[no-untyped-call]
            client_options={"api_endpoint": endpoint},
        )
    try:
        return storage.Client()
    except (GoogleAuthError, OSError) as error:  # OSError: no project could be found out
        raise StoreUnavailable(f"no credentials for Google Cloud Storage: {error}") from error


def _download(blob: Any, start: int, end: int | None, limits: dict[str, Any]) -> bytes:
    from google.api_core.exceptions import RequestRangeNotSatisfiable

    try:
        data: bytes = blob.download_as_bytes(
            start=start or None, end=end, raw_download=True, checksum="crc32c", **limits
        )
    except RequestRangeNotSatisfiable:  # wholly behind the end of the object, or it is empty
        return b""
    return data


@contextlib.contextmanager
def _reaching(
    url: str, refused: Exception | None = None, absent: Exception | None = None
) -> Iterator[None]:
    """Turn what the library raises into the few errors of an `ObjectStore`."""
    from google.api_core.exceptions import GoogleAPIError, NotFound, PreconditionFailed
    from google.auth.exceptions import GoogleAuthError
    from google.cloud.storage.exceptions import (  # type: ignore[import-untyped]
        DataCorruption,
        InvalidResponse,
    )
    from requests.exceptions import RequestException
    from urllib3.exceptions import HTTPError

    try:
        yield
    except (PreconditionFailed, NotFound) as error:
        own = refused if isinstance(error, PreconditionFailed) else absent
        if own is None or "bucket does not exist" in str(error):
            raise StoreUnavailable(f"{url}: {error}") from error
        raise own from error
    except (
        GoogleAPIError,
        GoogleAuthError,
        DataCorruption,
        InvalidResponse,
        RequestException,
        HTTPError,
        OSError,
        ValueError,  # an answer that is not JSON; a chunk that was taken in part
    ) as error:
        raise StoreUnavailable(f"{url}: {error}") from error
