"""The bucket: where the log hands its segments to. `open_store(url)` picks the backend.

Backends are imported when they are asked for, so that a plain install needs no
cloud library and a command that reads a directory does not pay for one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from ister.wal.fs import FileSystem
    from ister.wal.tier.object_store import ObjectStore

__all__ = ["BadStoreUrl", "open_store"]

FORMS = "file:///path, gs://bucket/prefix or memory://"


class BadStoreUrl(ValueError):
    """Not the address of a bucket that can be opened here. The message says why not."""


def open_store(url: str, fs: FileSystem | None = None) -> ObjectStore:
    """The bucket at `url`; BadStoreUrl if that is none. `fs` is for `file:` alone.

    Opening writes nothing and asks nobody: a bucket that is down opens too.
    """
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise _bad(url, str(error)) from error
    if parts.query or parts.fragment:
        raise _bad(url, "it has a query or a fragment (write ? as %3F and # as %23)")
    if parts.scheme == "file":
        return _open_directory(url, parts.netloc, unquote(parts.path), fs)
    if parts.scheme == "gs":
        return _open_gcs(url, parts.netloc, unquote(parts.path).strip("/"))
    if parts.scheme == "memory":
        return _open_memory(url, parts.netloc, parts.path)
    raise _bad(url, f"{parts.scheme}: is not known" if parts.scheme else "it has no scheme")


def _open_directory(url: str, host: str, path: str, fs: FileSystem | None) -> ObjectStore:
    from ister.wal.fs import OsFileSystem
    from ister.wal.tier.directory import DirectoryStore

    if host not in ("", "localhost"):
        raise _bad(url, f"{host!r} is read as a host; an absolute path needs three slashes")
    if not path.startswith("/") or path.strip("/") == "" or "\0" in path:
        raise _bad(url, "it needs the absolute path of a folder")
    return DirectoryStore(fs or OsFileSystem(), path)


def _open_gcs(url: str, bucket: str, prefix: str) -> ObjectStore:
    from ister.wal.tier.names import BadName, check_name

    if not bucket or "@" in bucket or ":" in bucket:
        raise _bad(url, "it needs the name of a bucket behind gs://")
    if prefix:
        try:
            check_name(prefix)
        except BadName as error:
            raise _bad(url, str(error)) from error
    from ister.wal.tier.gcs import GcsStore

    try:
        return GcsStore(bucket, prefix)
    except ModuleNotFoundError as error:
        raise BadStoreUrl(
            f"{url} needs the extra gcs (pip install 'ister[gcs]', in a checkout '.[gcs]'): {error}"
        ) from error


def _open_memory(url: str, name: str, path: str) -> ObjectStore:
    from ister.wal.tier.memory import MemoryStore, shared_store

    if path.strip("/"):
        raise _bad(url, "memory:// takes a name at most, no path")
    return shared_store(name) if name else MemoryStore()


def _bad(url: str, reason: str) -> BadStoreUrl:
    return BadStoreUrl(f"not the address of a bucket: {url!r}: {reason}; use {FORMS}")
