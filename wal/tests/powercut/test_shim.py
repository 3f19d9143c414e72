"""The preload shim on tiny scripts: what a power cut takes, what it leaves, and the faults."""

from __future__ import annotations

import random
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ister.wal.tests.powercut import PowerCut, Unrestorable

pytestmark = [
    pytest.mark.fault,
    pytest.mark.skipif(sys.platform != "linux", reason="LD_PRELOAD and /proc"),
]

HEAD = """
import os, sys, threading, time, sqlite3, mmap, shutil
def step(word="ready"):
    print(word, flush=True)
    return sys.stdin.readline().strip()
def put(path, data, sync=True):
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o640)
    os.pwritev(fd, [data], 0)
    if sync:
        os.fdatasync(fd)
    return fd
def sync_dir(path="."):
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    os.fsync(fd)
    os.close(fd)
"""


@pytest.fixture
def cut(tmp_path: Path) -> PowerCut:
    return PowerCut(tmp_path)


class Script:
    """A process in the data directory that stops at each `step()`."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the script ended early"
        return line.strip()

    def go_on(self) -> str:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return self.line()


@contextmanager
def running(cut: PowerCut, body: str, **faults: int | str) -> Iterator[Script]:
    """Start the script; kill -9 at the end."""
    process = subprocess.Popen(
        [sys.executable, "-c", HEAD + textwrap.dedent(body)],
        cwd=cut.data,
        env=cut.environment(**faults),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield Script(process)
        finally:
            process.kill()


def run_and_cut(cut: PowerCut, body: str, rng: random.Random | None = None) -> dict[str, bytes]:
    """Run until `ready`, cut the power, and say what is there."""
    with running(cut, textwrap.dedent(body) + "\nstep()\n") as script:
        assert script.line() == "ready"
    cut.restore(rng)
    return content(cut)


def content(cut: PowerCut) -> dict[str, bytes]:
    return {
        str(path.relative_to(cut.data)): path.read_bytes()
        for path in sorted(cut.data.rglob("*"))
        if path.is_file()
    }


# -- data ----------------------------------------------------------------------


def test_an_unsynced_write_is_gone_and_a_synced_one_stays(cut: PowerCut) -> None:
    """Only what fdatasync covered is there; size and bytes are those of the last sync."""
    body = """
    fd = put("a", b"s" * 10000)
    sync_dir()
    os.pwrite(fd, b"u" * 3000, 5000)
    os.pwritev(fd, [b"u" * 10, b"v" * 5000], 9000)
    """
    assert run_and_cut(cut, body) == {"a": b"s" * 10000}


@pytest.mark.parametrize("sync", ["os.fsync(fd)", "os.fdatasync(fd)"])
def test_every_kind_of_write_is_seen(cut: PowerCut, sync: str) -> None:
    """write, writev, pwrite, pwritev, append, truncate, sendfile and O_TRUNC are all undone."""
    body = f"""
    fd = put("a", b"0123456789")
    sync_dir()
    os.write(fd, b"w")
    os.writev(fd, [b"v", b"v"])
    os.pwrite(fd, b"p", 5)
    os.pwritev(fd, [b"q"], 6)
    {sync}
    os.write(fd, b"X")
    os.writev(fd, [b"X", b"X"])
    os.pwrite(fd, b"X", 8)
    os.pwritev(fd, [b"X" * 50], 9)
    os.ftruncate(fd, 4)
    os.truncate("a", 70)
    with open("a", "ab") as file:
        file.write(b"X")
    with open("/proc/self/cmdline", "rb") as source:
        os.sendfile(fd, source.fileno(), 0, 20)
    with open("a", "wb") as file:
        file.write(b"X")
    shutil.copyfile("/proc/self/status", "a")
    """
    assert run_and_cut(cut, body) == {"a": b"wvv34pq789"}


def test_a_write_during_a_sync_is_not_covered(cut: PowerCut) -> None:
    """A sync makes durable what was written before it began."""
    body = """
    fd = put("a", b"1")
    sync_dir()
    os.pwrite(fd, b"2", 0)
    log = os.environ["ISTER_POWERCUT_UNDO"] + "/log"
    size = os.stat(log).st_size
    thread = threading.Thread(target=os.fdatasync, args=(fd,))
    thread.start()
    while os.stat(log).st_size == size:  # until the log says that the sync began
        os.sched_yield()
    os.pwrite(fd, b"3", 0)
    thread.join()
    step()
    """
    with running(cut, body, fsync_delay_ms=300, fsync_pattern="*/a") as script:
        assert script.line() == "ready"
    cut.restore()
    assert content(cut) == {"a": b"2"}


def test_many_threads(cut: PowerCut) -> None:
    """Threads that write and sync the same and different files: each keeps its synced part."""
    body = """
    shared = put("shared", bytes(8 * 4096))
    sync_dir()
    def work(index):
        mine = put(f"own-{index}", b"")
        for number in range(1, 101):
            data = bytes([number]) * 512
            os.pwrite(mine, data, 0)
            os.pwrite(shared, data, index * 4096)
            if number % 10 == 0 and number < 100:
                os.fdatasync(mine)
    threads = [threading.Thread(target=work, args=(index,)) for index in range(8)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    sync_dir()
    """
    expected = {f"own-{index}": bytes([90]) * 512 for index in range(8)}
    assert run_and_cut(cut, body) == {**expected, "shared": bytes(8 * 4096)}


def test_two_processes(cut: PowerCut) -> None:
    """A child writes under the same log; one's sync covers the other's write of that file."""
    body = """
    import subprocess
    fd = put("a", b"1111")
    sync_dir()
    code = "import os; fd = os.open('a', os.O_RDWR); os.pwrite(fd, b'2', 0); os.fsync(fd);"
    subprocess.run([sys.executable, "-c", code + "os.pwrite(fd, b'3', 1)"], check=True)
    child = os.fork()
    if not child:
        os.pwrite(fd, b"4", 2)
        os._exit(0)
    os.waitpid(child, 0)
    """
    assert run_and_cut(cut, body) == {"a": b"2111"}


def test_a_part_may_survive(cut: PowerCut) -> None:
    """With a seed some unsynced bytes survive, torn; the synced ones always do."""
    body = """
    fd = put("a", b"s" * 8192)
    sync_dir()
    os.pwrite(fd, b"u" * 4096, 4096)
    os.pwrite(fd, b"v" * 1000, 6000)
    """
    seen = set()
    for seed in range(6):
        fresh = PowerCut(_folder(cut, seed))
        data = run_and_cut(fresh, body, random.Random(seed))["a"]
        assert data[:4096] == b"s" * 4096
        seen.add(data)
    assert len(seen) > 2


def _folder(cut: PowerCut, seed: int) -> Path:
    folder = cut.data.parent / str(seed)
    folder.mkdir()
    return folder


def test_a_writable_mapping_is_refused(cut: PowerCut) -> None:
    """What cannot be undone is said, never passed over."""
    with running(cut, 'fd = put("a", b"1" * 4096)\nmmap.mmap(fd, 4096)\nstep()\n') as script:
        script.line()
    with pytest.raises(Unrestorable, match="mapped writable"):
        cut.restore()


def test_other_directories_are_left_alone(cut: PowerCut, tmp_path: Path) -> None:
    """Nothing outside the directory is logged or undone."""
    body = f"""
    put({str(tmp_path / "outside")!r}, b"1", sync=False)
    os.mkdir({str(tmp_path / "data-too")!r})
    put({str(tmp_path / "data-too" / "a")!r}, b"1", sync=False)
    """
    assert run_and_cut(cut, body) == {}
    assert (tmp_path / "outside").read_bytes() == b"1"
    assert (tmp_path / "data-too" / "a").read_bytes() == b"1"


# -- names ---------------------------------------------------------------------


def test_a_name_needs_its_directory_synced(cut: PowerCut) -> None:
    """A new name is gone without a sync of its directory, synced data or not."""
    body = """
    put("kept", b"1")
    sync_dir()
    put("lost", b"1")
    os.link("kept", "link")
    os.mkdir("folder")
    put("folder/a", b"1")
    sync_dir("folder")
    """
    assert run_and_cut(cut, body) == {"kept": b"1"}
    assert [path.name for path in cut.data.iterdir()] == ["kept"]


def test_a_rename_without_a_directory_sync_is_undone(cut: PowerCut) -> None:
    """Both names are back with their content; after the sync the rename stays."""
    body = """
    put("old", b"old")
    put("new", b"new")
    sync_dir()
    os.rename("new", "old")
    """
    assert run_and_cut(cut, body) == {"new": b"new", "old": b"old"}
    assert run_and_cut(cut, "os.rename('new', 'old')\nsync_dir()") == {"old": b"new"}


def test_an_unlink_without_a_directory_sync_is_undone(cut: PowerCut) -> None:
    """An unlinked file is back with what was synced of it, also when its name was used again."""
    body = """
    fd = put("a", b"1")
    put("b", b"2")
    os.mkdir("d")
    sync_dir()
    os.pwrite(fd, b"X", 0)
    os.unlink("a")
    os.pwrite(fd, b"Y", 0)
    put("a", b"another")
    os.unlink("b")
    os.rmdir("d")
    """
    assert run_and_cut(cut, body) == {"a": b"1", "b": b"2"}
    assert (cut.data / "d").is_dir()


def test_moves_between_directories(cut: PowerCut) -> None:
    """A moved file is back where it was until one of the two directories is synced."""
    body = """
    os.mkdir("x"); os.mkdir("y")
    sync_dir()
    put("x/a", b"1"); put("x/b", b"2")
    sync_dir("x")
    os.rename("x/a", "y/a")
    sync_dir("y")
    os.rename("x/b", "y/b")
    """
    assert run_and_cut(cut, body) == {"y/a": b"1", "x/b": b"2"}


# -- faults --------------------------------------------------------------------


def test_the_nth_sync_fails(cut: PowerCut) -> None:
    """EIO once, at the n-th matching sync; what it should have covered is lost for good."""
    body = """
    other = put("other", b"1")
    fd = put("a.log", b"1")
    sync_dir()
    os.pwrite(fd, b"22", 0)
    try:
        os.fdatasync(fd)
    except OSError as error:
        print(error.errno, flush=True)
    os.fdatasync(fd)
    os.pwrite(fd, b"3", 1)
    os.fdatasync(fd)
    step()
    """
    with running(cut, body, fsync_fail_at=2, fsync_pattern="*.log") as script:
        assert script.line() == "5"
        assert script.line() == "ready"
    cut.restore()
    assert content(cut) == {"a.log": b"13", "other": b"1"}


def test_a_sync_is_delayed(cut: PowerCut) -> None:
    """Each sync takes the delay longer, and the delay can be changed while running."""
    body = """
    fd = put("a", b"1")
    for _ in range(2):
        before = time.monotonic()
        os.fdatasync(fd)
        step(str(time.monotonic() - before))
    """
    with running(cut, body, fsync_delay_ms=300) as script:
        assert float(script.line()) >= 0.3
        cut.set(fsync_delay_ms=600)
        assert float(script.go_on()) >= 0.6


def test_a_full_disk_and_a_freed_one(cut: PowerCut) -> None:
    """What does not fit answers ENOSPC, overwriting works; freed, it goes on."""
    body = """
    fd = put("a", b"1" * 6000)
    print(os.pwrite(fd, b"2" * 6000, 6000), flush=True)
    try:
        os.pwritev(fd, [b"3"], 10000)
    except OSError as error:
        print(error.errno, os.statvfs(".").f_bavail, flush=True)
    print(os.pwrite(fd, b"4" * 10000, 0), flush=True)
    step("full")
    print(os.pwritev(fd, [b"5" * 100], 10000), os.statvfs(".").f_bavail > 0, flush=True)
    step()
    """
    with running(cut, body, enospc_after_bytes=10_000) as script:
        assert [script.line() for _ in range(4)] == ["4000", "28 0", "10000", "full"]
        cut.set(enospc_after_bytes=-1)
        assert script.go_on() == "100 True"


def test_unlinking_frees_space(cut: PowerCut) -> None:
    """Removing a file makes room for another."""
    body = """
    put("a", b"1" * 1000)
    os.unlink("a")
    put("b", b"2" * 1000)
    os.truncate("b", 0)
    put("c", b"3" * 1000)
    step()
    """
    with running(cut, body, enospc_after_bytes=1000) as script:
        assert script.line() == "ready"


# -- SQLite --------------------------------------------------------------------

SQLITE = """
db = sqlite3.connect("meta.db", isolation_level=None)
db.execute("pragma journal_mode=wal")
db.execute("pragma synchronous={level}")
db.execute("pragma wal_autocheckpoint=5")
db.execute("create table t (n integer primary key, data blob)")
for n in range(200):
    db.execute("insert into t values (?, randomblob(500))", (n,))
    print(n, flush=True)
db.execute("begin")
db.execute("insert into t values (1000, '')")
step()
"""
COUNT = """
db = sqlite3.connect("meta.db")
print(db.execute("pragma integrity_check").fetchone()[0], flush=True)
print(*[row[0] for row in db.execute("select n from t order by n")], flush=True)
step()
"""


@pytest.mark.parametrize("acked", [0, 57, 199])
@pytest.mark.parametrize("seed", [None, 1, 2])
def test_sqlite_keeps_what_it_committed(cut: PowerCut, acked: int, seed: int | None) -> None:
    """WAL with synchronous=FULL: every row whose insert returned is there, nothing is broken."""
    with running(cut, SQLITE.format(level="full")) as script:
        for n in range(acked + 1):
            assert script.line() == str(n)
    cut.restore(None if seed is None else random.Random(seed))
    with running(cut, COUNT) as script:
        assert script.line() == "ok"
        rows = [int(n) for n in script.line().split()]
    assert rows == list(range(len(rows)))
    assert len(rows) > acked


def test_sqlite_without_full_loses_rows(cut: PowerCut) -> None:
    """The counterpart: with synchronous=NORMAL the cut takes rows, so the test above can fail."""
    with running(cut, SQLITE.format(level="normal").replace("=5", "=1000000")) as script:
        while script.line() != "ready":
            pass
    cut.restore()
    body = """
    db = sqlite3.connect("meta.db")
    there = db.execute("select count(*) from sqlite_master").fetchone()[0]
    step(str(there and db.execute("select count(*) from t").fetchone()[0]))
    """
    with running(cut, body) as script:
        assert int(script.line()) < 200
