"""Manifests: invariants, changes, encoding, damage."""

from __future__ import annotations

import pytest

from ister.wal.errors import Contradiction, Damaged, NewerFormat
from ister.wal.tier import envelope, manifest
from ister.wal.tier.manifest import (
    Doomed,
    Entry,
    EpochStart,
    Hole,
    Manifest,
    decode,
    encode,
    key,
    parse_key,
)
from ister.wal.tier.tests.sections import TOPIC, make_manifest


def entry(first: int, last: int, name: str | None = None) -> Entry:
    records = last - first + 1
    name = name or f"segments/{first}-{last}"
    return Entry(name, 0, 100 * records + 200, first, last, records, 100 * records, 7, 9, 1)


def full() -> Manifest:
    return make_manifest(
        [entry(0, 9), entry(10, 19), entry(25, 29)],
        leader_epochs=(EpochStart(0, 0), EpochStart(2, 15)),
        holes=(Hole(20, 24, "damage"),),
        to_delete=(Doomed("segments/old", 5),),
    )


def test_it_comes_back_as_it_went() -> None:
    """decode(encode(m)) is m, with every field."""
    assert decode(encode(full())) == full()
    assert parse_key(key(TOPIC, 12)) == (TOPIC, 12)


def test_every_flipped_byte_is_damage() -> None:
    """A byte flipped anywhere is reported, never believed."""
    data = encode(full())
    for position in range(len(data)):
        broken = bytearray(data)
        broken[position] ^= 1
        with pytest.raises(Damaged):
            decode(bytes(broken))
    for cut in range(len(data)):
        with pytest.raises(Damaged):
            decode(data[:cut])


def test_a_newer_version_is_refused() -> None:
    """Only a sound envelope is of a newer format."""
    data = envelope.wrap(manifest.MAGIC, manifest.FORMAT_VERSION + 1, b"{}")
    with pytest.raises(NewerFormat, match="version 2"):
        decode(data)


def test_fields_of_later_versions_are_passed_over() -> None:
    """A field that this version does not know does not stop it."""
    body = encode(full())[envelope.BODY_START :]
    more = body[:-1] + b',"later":1}'
    assert decode(envelope.wrap(manifest.MAGIC, 1, more)) == full()


@pytest.mark.parametrize(
    "wrong",
    [
        [entry(0, 9), entry(11, 19)],
        [entry(0, 9), entry(9, 19)],
        [entry(10, 19), entry(0, 9)],
        [entry(0, 9), entry(10, 9)],
        [Entry("x", 0, 300, 0, 9, 9, 100, 7, 9, 1)],
        [Entry("x", 0, 100, 0, 9, 10, 100, 7, 9, 1)],
    ],
)
def test_entries_that_do_not_follow_are_refused(wrong: list[Entry]) -> None:
    """Gaps, overlaps, disorder, wrong counts and empty sections never become a manifest."""
    with pytest.raises(Contradiction):
        make_manifest(wrong, log_start=0).check()


def test_a_known_hole_explains_a_gap() -> None:
    """Entries may go on behind known holes, also several in a row, and nowhere else."""
    base = make_manifest([entry(0, 9)])
    holes = [Hole(10, 14, "damage"), Hole(15, 16, "more")]
    moved = base.append_entries([entry(17, 20)], owner_epoch=1, holes=holes)
    assert moved.find(12) == 1
    assert moved.tiered_end == 21
    with pytest.raises(Contradiction):
        base.append_entries([entry(18, 20)], owner_epoch=1, holes=holes)


def test_a_hole_at_the_end_counts_for_the_end() -> None:
    """Offsets lost in a hole are not given again."""
    assert make_manifest([entry(0, 9)], holes=(Hole(10, 12, "x"),)).tiered_end == 13


def test_find() -> None:
    """The entry of an offset; behind a hole the next one; beyond the end none."""
    found = [full().find(offset) for offset in (0, 9, 10, 19, 20, 24, 25, 29, 30)]
    assert found == [0, 0, 1, 1, 2, 2, 2, 2, None]


def test_the_log_start_takes_entries_along() -> None:
    """Entries that end below it go to `to_delete`; one that it cuts stays; it never falls."""
    moved = full().with_log_start(15, owner_epoch=2, delete_after_ms=100)
    assert [e.first_offset for e in moved.entries] == [10, 25]
    assert moved.to_delete == (Doomed("segments/old", 5), Doomed("segments/0-9", 100))
    assert moved.with_log_start(3, owner_epoch=2, delete_after_ms=200) == moved
    empty = moved.with_log_start(500, owner_epoch=2, delete_after_ms=200)
    assert (empty.entries, empty.holes, empty.tiered_end) == ((), (), 500)
    again = empty.append_entries([entry(490, 510)], owner_epoch=2)
    assert again.tiered_end == 511


def test_a_shared_object_stays_while_one_entry_uses_it() -> None:
    """An object leaves only with the last entry that names it."""
    both = make_manifest([entry(0, 9, "shared/1"), entry(10, 19, "shared/1")])
    assert both.with_log_start(10, owner_epoch=1, delete_after_ms=1).to_delete == ()
    assert both.with_log_start(20, owner_epoch=1, delete_after_ms=1).to_delete == (
        Doomed("shared/1", 1),
    )


def test_replace_is_the_sum_of_its_parts() -> None:
    """A merged entry holds exactly what it replaces, which is then to be deleted."""
    base = make_manifest([entry(0, 9), entry(10, 19), entry(20, 29)])
    merged = entry(0, 19, "segments/merged")
    moved = base.replace(base.entries[:2], merged, owner_epoch=1, delete_after_ms=50)
    assert moved.entries == (merged, base.entries[2])
    assert [line.object for line in moved.to_delete] == ["segments/0-9", "segments/10-19"]
    with pytest.raises(Contradiction):
        base.replace(base.entries[:2], entry(0, 18), owner_epoch=1, delete_after_ms=50)
    with pytest.raises(Contradiction):
        moved.replace(base.entries[:2], merged, owner_epoch=1, delete_after_ms=50)


def test_nothing_follows_a_tombstone() -> None:
    """A deleted partition keeps only its list of what is to go."""
    dead = full().tombstone(owner_epoch=3, delete_after_ms=70)
    assert (dead.deleted, dead.entries) == (True, ())
    assert len(dead.to_delete) == 4
    with pytest.raises(Contradiction):
        dead.append_entries([entry(30, 39)], owner_epoch=3)
    left = dead.without_doomed(frozenset(d.object for d in dead.to_delete), owner_epoch=3)
    assert (left.to_delete, left.deleted) == ((), True)


def test_an_older_owner_changes_nothing() -> None:
    """The owner epoch of a manifest never falls."""
    with pytest.raises(Contradiction):
        make_manifest(owner_epoch=4).append_entries([entry(0, 9)], owner_epoch=3)
