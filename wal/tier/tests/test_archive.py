"""The archive stands alone: listed, read and verified without a broker."""

from __future__ import annotations

import pytest

from ister.wal.errors import UnknownPartition
from ister.wal.tests.handoff_kit import TOPIC, TinyLog
from ister.wal.tier.archive import Archive
from ister.wal.tier.manifest import key
from ister.wal.tier.tests.dict_store import DictStore
from ister.wal.tier.tests.sections import CLUSTER


@pytest.fixture
def store() -> DictStore:
    """Two partitions, three handoffs, one hole, one log start inside a batch."""
    store = DictStore()
    log = TinyLog(store, partitions=2)
    log[0].append([3, 2])
    log[1].append([2])
    log.hand_off()
    log[0].lose(5)
    log[0].append([4, 1])
    log.hand_off()
    log[0].append([2])
    log[0].log_start = 1
    log.hand_off()
    return store


def test_it_lists_and_finds(store: DictStore) -> None:
    """Topics by name or id, partitions in order."""
    archive = Archive(store)
    assert archive.cluster_id == CLUSTER
    assert [(m.topic_name, m.partition) for m in archive.manifests()] == [
        ("orders", 0),
        ("orders", 1),
    ]
    assert archive.find(TOPIC.hex(), 1) == archive.find("orders")[1:]
    with pytest.raises(UnknownPartition):
        archive.find("orders", 2)


def test_records_of_a_range(store: DictStore) -> None:
    """From the log start on, holes passed, exactly the offsets that were asked for."""
    archive = Archive(store)
    manifest = archive.find("orders", 0)[0]
    everything = [1, 2, 3, 4, *range(10, 17)]
    assert [record.offset for record in archive.records(manifest)] == everything
    for start in range(18):
        for end in range(start, 19):
            found = [record.offset for record in archive.records(manifest, start, end)]
            assert found == [offset for offset in everything if start <= offset < end]
    assert next(archive.records(manifest, 11)).value == b"11:".ljust(20, b".")


def test_a_sound_archive_has_no_findings(store: DictStore) -> None:
    """Everything is read, progress reaches the end."""
    steps: list[tuple[int, int]] = []
    report = Archive(store).verify(lambda done, total: steps.append((done, total)))
    assert report.is_sound
    assert (report.partitions, report.entries, report.records) == (2, 4, 14)
    assert report.orphans == []
    assert steps[-1][0] == steps[-1][1] == report.bytes


def test_every_flipped_byte_of_every_object_is_found(store: DictStore) -> None:
    """Nothing in the bucket can change without a finding that names it."""
    for name, data in list(store.objects.items()):
        for position in range(len(data)):
            broken = bytearray(data)
            broken[position] ^= 8
            store.objects[name] = bytes(broken)
            report = Archive(store).verify()
            assert {finding.where for finding in report.findings} == {name}
        store.objects[name] = data


def test_manifests_are_verified_too(store: DictStore) -> None:
    """A damaged manifest is a finding, and the others are verified all the same."""
    name = key(TOPIC, 1)
    data, version = store.values[name]
    store.values[name] = (data[:-1] + b"?", version)
    report = Archive(store).verify()
    assert [finding.where for finding in report.findings] == [name]
    assert report.partitions == 1


def test_what_is_missing_and_what_is_left_over(store: DictStore) -> None:
    """An object that is gone is a finding; one that nothing names is an orphan."""
    gone = next(iter(store.objects))
    del store.objects[gone]
    store.objects["shared/0000000001-0000000099"] = b"left"
    report = Archive(store).verify()
    assert {finding.where for finding in report.findings} == {gone}
    assert report.orphans == [("shared/0000000001-0000000099", 4)]


def test_nothing_is_written(store: DictStore) -> None:
    """Reading and verifying only read."""
    store.reset()
    archive = Archive(store)
    archive.verify()
    list(archive.records(archive.find("orders", 0)[0]))
    assert {operation for operation, _ in store.calls} <= {"get", "list", "read", "registers"}
