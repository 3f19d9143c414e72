"""Looking at a journal: everything is shown, nothing is touched, a running broker is no trouble."""

from __future__ import annotations

from dataclasses import replace

from ister.wal import inspect
from ister.wal.frame import FILE_HEADER_SIZE
from ister.wal.inspect import BatchView, Finding
from ister.wal.memory_fs import MemoryFileSystem, Survivors
from ister.wal.records import records
from ister.wal.tests.harness import SMALL, TOPIC, Harness

SETTINGS = replace(SMALL, journal_file_bytes=16 * 1024, commit_bytes_max=4096)


def written(batches: int = 40) -> Harness:
    """Several sealed files, and one that is open."""
    harness = Harness(settings=SETTINGS).open()
    for number in range(batches):
        harness.append(b"%d" % number + bytes(900), index=number % 2)
        harness.run()
    assert len(harness.log.sealed) >= 2
    return harness


def image(fs: MemoryFileSystem, directory: str = "data") -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for part in ("journal", "checkpoint"):
        for name in fs.listdir(f"{directory}/{part}"):
            file = fs.open(f"{directory}/{part}/{name}")
            found[f"{part}/{name}"] = file.pread(file.size(), 0)
            file.close()
    return found


def dumped(harness: Harness) -> tuple[list[BatchView], list[Finding]]:
    views, findings = inspect.journal_files(harness.fs, harness.data)
    found = [b for view in views for b in inspect.batches(harness.fs, view, findings)]
    return found, findings


def verified(harness: Harness) -> list[Finding]:
    views, findings = inspect.journal_files(harness.fs, harness.data)
    findings += inspect.verify_sidecars(harness.fs, harness.data, views)
    for view in views:
        findings += inspect.verify_file(harness.fs, view)[1]
    return findings


def flip(fs: MemoryFileSystem, path: str, position: int) -> None:
    file = fs.open(path, write=True)
    file.pwrite([bytes([file.pread(1, position)[0] ^ 1])], position)
    file.close()


def test_every_batch_and_every_log_start_is_shown_in_order() -> None:
    """As they lie in the files, beside the broker that wrote them; nothing is written."""
    harness = written()
    harness.log.move_log_start(harness.partition(1), 3, lambda _: None)
    harness.run()
    fs = harness.fs
    assert isinstance(fs, MemoryFileSystem)
    before = image(fs)
    found, findings = dumped(harness)
    assert findings == verified(harness) == []
    assert image(fs) == before
    *batches, log_start = found
    assert (log_start.entry.records, log_start.entry.base_offset) == (0, 3)
    assert [(b.entry.topic_id, b.entry.partition, b.entry.base_offset) for b in batches] == [
        (TOPIC, number % 2, number // 2) for number in range(40)
    ]
    values = [record.value for b in batches for record in records(b.data)]
    assert values == [b"%d" % number + bytes(900) for number in range(40)]


def test_a_summary_says_how_a_file_ended() -> None:
    """Sealed, open, torn, or with an end mark."""
    harness = written()
    views, _ = inspect.journal_files(harness.fs, harness.data)
    summaries = [inspect.verify_file(harness.fs, view)[0] for view in views]
    assert sum(summary.batches for summary in summaries) == 40
    assert [summary.file.end is None for summary in summaries][-2:] == [False, True]
    assert not any(summary.ended or summary.tail_bytes for summary in summaries)
    harness.close()
    views, _ = inspect.journal_files(harness.fs, harness.data)
    assert inspect.verify_file(harness.fs, views[-1])[0].ended


def test_a_torn_tail_is_no_damage() -> None:
    """A frame that is being written, or was when the power went."""
    harness = written()
    fs = harness.fs
    assert isinstance(fs, MemoryFileSystem)
    journal = harness.log.journal
    harness.append(bytes(900))
    harness.run()
    end = journal.position
    cut = fs.crash(Survivors.EVERYTHING)
    flip(cut, journal.file.path, end - 1)
    views, findings = inspect.journal_files(cut, harness.data)
    summary, wrong = inspect.verify_file(cut, views[-1])
    assert findings == wrong == []
    assert summary.tail_bytes > 900
    assert summary.end + summary.tail_bytes == end


def test_damage_is_said_and_what_lies_behind_it_is_shown() -> None:
    """In a sealed file and in the open one, by dump and by verify alike."""
    for which in (0, -1):
        harness = written()
        fs = harness.fs
        assert isinstance(fs, MemoryFileSystem)
        views, _ = inspect.journal_files(fs, harness.data)
        first = next(inspect.batches(fs, views[which], []))
        flip(fs, views[which].path, first.position + 70)
        found, findings = dumped(harness)
        assert len(found) == 39
        assert [finding.where for finding in findings] == [views[which].path]
        assert verified(harness) == findings


def test_damaged_headers_indexes_and_missing_files_are_findings() -> None:
    """Each by its name."""
    harness = written(60)
    fs = harness.fs
    assert isinstance(fs, MemoryFileSystem)
    views, _ = inspect.journal_files(fs, harness.data)
    assert len(views) >= 4
    flip(fs, views[0].path.replace(".log", ".idx"), 100)
    flip(fs, views[-1].path, FILE_HEADER_SIZE - 1)
    fs.unlink(views[1].path)
    wrong = {finding.where for finding in verified(harness)}
    assert wrong == {
        views[0].path.replace(".log", ".idx"),
        views[-1].path,
        views[1].path,
    }


def test_files_that_go_meanwhile_are_no_findings() -> None:
    """Handed over, trimmed and used again between two looks."""
    harness = written()
    fs = harness.fs
    assert isinstance(fs, MemoryFileSystem)
    views, findings = inspect.journal_files(fs, harness.data)
    looking = inspect.batches(fs, views[1], findings)
    next(looking)
    for _ in range(6):
        harness.tick(61)
    assert harness.log.sealed == {}
    for number in range(60):  # in the same files, under other names
        harness.append(b"%d" % number + bytes(900))
        harness.run()
    assert not fs.exists(views[1].path)
    list(looking)
    for view in views:
        findings += inspect.verify_file(fs, view)[1]
    findings += inspect.verify_sidecars(fs, harness.data, views)
    assert findings == []
    assert verified(harness) == []
