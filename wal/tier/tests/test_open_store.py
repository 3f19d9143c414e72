"""Addresses of buckets."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ister.wal.memory_fs import MemoryFileSystem
from ister.wal.tier import BadStoreUrl, open_store


def test_directory(tmp_path: Path) -> None:
    """file:// with an absolute path; escapes are undone, and the URL leads back."""
    store = open_store(f"file://{tmp_path}/my%20bucket")
    store.put("a", [b"x"])
    assert (tmp_path / "my bucket").is_dir()
    assert open_store(store.url).get("a") == b"x"


def test_directory_on_a_given_file_system() -> None:
    """The file system can be passed in."""
    fs = MemoryFileSystem()
    open_store("file:///data/bucket", fs).put("a", [b"x"])
    assert open_store("file://localhost/data/bucket/", fs).get("a") == b"x"


def test_memory() -> None:
    """memory:// is new each time; with a name it is shared."""
    open_store("memory://").put("a", [b"x"])
    assert list(open_store("memory://").list("")) == []
    open_store("memory://shared-in-test").put("a", [b"x"])
    assert open_store("memory://shared-in-test").get("a") == b"x"
    assert open_store("memory://shared-in-test").url == "memory://shared-in-test"


BAD_URLS = [
    ("", "no scheme"),
    ("/data/bucket", "no scheme"),
    ("s3://bucket", "s3: is not known"),
    ("file://data/bucket", "three slashes"),
    ("file:///", "absolute path"),
    ("file:relative", "absolute path"),
    ("file:///a?b=c", "query"),
    ("file:///a#b", "fragment"),
    ("gs://", "name of a bucket"),
    ("gs:///prefix", "name of a bucket"),
    ("gs://user@bucket/p", "name of a bucket"),
    ("gs://bucket/a/../b", "not a name"),
    ("memory://a/b", "no path"),
    ("file://[bad/x", "not the address"),
]


@pytest.mark.parametrize(("url", "reason"), BAD_URLS)
def test_bad_urls(url: str, reason: str) -> None:
    """What is wrong is said, with the forms that are right."""
    with pytest.raises(BadStoreUrl, match=reason) as caught:
        open_store(url)
    assert "use file:///path, gs://bucket/prefix or memory://" in str(caught.value)


def test_no_cloud_library_without_need() -> None:
    """A directory is opened without importing Google's library."""
    code = (
        "import sys; from ister.wal.tier import open_store; import ister.wal.tier.gcs; "
        "open_store('file:///nowhere'); "
        "sys.exit(any(name.startswith('google.cloud') for name in sys.modules))"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_bucket_whose_library_is_not_installed_names_the_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A plain install has no cloud library; that is said with what to install."""
    monkeypatch.setitem(sys.modules, "google", None)
    monkeypatch.setitem(sys.modules, "google.cloud.storage.retry", None)
    with pytest.raises(BadStoreUrl, match=r"pip install 'ister\[gcs\]'"):
        open_store("gs://bucket/prefix")
