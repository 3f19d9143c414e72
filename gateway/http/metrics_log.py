"""Metrics of the log: commits, the journal, the way to the bucket, and reads."""

from __future__ import annotations

from collections.abc import Iterator

from ister.gateway.broker import Broker
from ister.gateway.http.families import COUNTER, Family, counter, gauge, histograms, rows
from ister.gateway.http.problems import disk
from ister.wal.reader import BUCKET, CACHE, JOURNAL, LIVE


def collect(core: Broker) -> Iterator[Family]:
    storage = core.storage
    log, handoff, reader = storage.log, storage.handoff, storage.reader
    yield histograms(
        "ister_journal_commit_seconds",
        "From the hand-over of a commit to its sync.",
        (),
        [((), log.journal.commit_seconds)],
    )
    yield histograms(
        "ister_journal_commit_batches",
        "Batches in one commit.",
        (),
        [((), log.journal.commit_batches)],
    )
    yield gauge(
        "ister_journal_bytes", "Journal files on disk, prewritten ones too.", log.files.bytes
    )
    yield gauge(
        "ister_handoff_backlog_bytes",
        "Journal bytes that are not in the bucket yet.",
        handoff.backlog_bytes,
    )
    yield gauge(
        "ister_handoff_oldest_age_seconds",
        "How long the oldest of the backlog has waited.",
        handoff.oldest_age_ms() / 1000,
    )
    yield counter("ister_handoff_objects_total", "Objects put into the bucket.", handoff.objects)
    yield counter("ister_handoff_errors_total", "Calls to the bucket that failed.", handoff.errors)
    seconds = reader.seconds
    yield rows(
        "ister_reads_total",
        COUNTER,
        "Reads that found something, by where it was.",
        ("source",),
        [
            ((LIVE,), log.reads_live),
            ((CACHE,), log.reads_cached),
            ((JOURNAL,), seconds[JOURNAL].count),
            ((BUCKET,), seconds[BUCKET].count),
        ],
    )
    yield histograms(
        "ister_read_seconds",
        "Reads from a journal file or the bucket (memory takes no time worth measuring).",
        ("source",),
        [((source,), histogram) for source, histogram in seconds.items()],
    )
    yield rows(
        "ister_read_fallbacks_total",
        COUNTER,
        "Reads that had to go on to a colder source.",
        ("from", "to"),
        [((source, to), count) for (source, to), count in reader.fallbacks.items()],
    )
    free, total = disk(core)
    yield gauge("ister_disk_free_bytes", "Free on the disk of the data directory.", free)
    yield gauge("ister_disk_bytes", "Size of the disk of the data directory.", total)
