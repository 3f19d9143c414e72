"""What can be set about the log, as values. Components go to constructors."""

from __future__ import annotations

from dataclasses import dataclass, field

MiB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    """Settings of the whole log; contract names in brackets."""

    # Size of a journal file. A batch never straddles two files, so this bounds a batch too.
    journal_file_bytes: int = 64 * MiB
    # The first file of a run is small: an empty broker starts in milliseconds.
    journal_first_file_bytes: int = 4 * MiB
    # Prewritten files kept ready beyond the open one; rotation never waits for zeros.
    journal_ready_files: int = 2
    # Trimmed files kept for reuse; more are removed.
    journal_pool_files: int = 4
    # One commit carries at most this much; what is behind it goes into the next one.
    commit_bytes_max: int = 8 * MiB
    # Above this much appended and not yet durable the gateway stops reading from sockets.
    unsynced_bytes_max: int = 64 * MiB
    # [ister.disk.limit.bytes] journal bytes above which no new file is taken; 0: below 5 % free.
    disk_limit_bytes: int = 0
    # Kept aside for checkpoints and indexes when the disk is full: a checkpoint of ten thousand
    # partitions fits. 0: none.
    spare_bytes: int = 4 * MiB
    # Calls to the bucket, for handoff and cold reads together; a put or a listing counts once.
    # Far below what any service allows, and 10,000 manifests move in two minutes. 0: no limit.
    bucket_requests_per_second: int = 100
    # [ister.cache.bytes] recent batches in memory, shared by all readers.
    cache_bytes: int = 64 * MiB
    # [ister.handoff.bytes] hand off when this much is waiting ...
    handoff_bytes: int = 64 * MiB
    # [ister.handoff.ms] ... or when the oldest of it is this old.
    handoff_ms: int = 60_000
    # [ister.bucket.delete.grace.ms] how long what left a manifest stays for readers.
    bucket_delete_grace_ms: int = 86_400_000
    # [ister.retention.grace.ms] nothing goes by time sooner than this after its append.
    retention_grace_ms: int = 3_600_000
    # [producer.id.expiration.ms] an idle producer is forgotten after this.
    producer_id_expiration_ms: int = 86_400_000
    # How often retention and merging look at a partition.
    housekeeping_interval_ms: int = 30_000
    # Go on past damaged frames; the loss becomes a known hole.
    continue_past_damage: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSettings:
    """Settings of one topic that the log acts on; contract and Kafka names in brackets."""

    # [max.message.bytes] Kafka's default: 1 MiB and a batch header's slack.
    batch_bytes_max: int = 1_048_588
    # [message.timestamp.type] True: the broker's clock replaces the record's.
    log_append_time: bool = False
    # [retention.ms] -1: for ever.
    retention_ms: int = 604_800_000
    # [retention.bytes] -1: no limit.
    retention_bytes: int = -1
    # [cleanup.policy] a compact topic keeps everything until compaction exists.
    compact: bool = False
    # ... and without `delete` in it there is no retention either (it may be empty).
    deletes: bool = True
    # [ister.dispatch.mode] False: a ring in memory instead of the journal.
    reliable: bool = True
    # [ister.ring.bytes] size of that ring.
    ring_bytes: int = 16 * MiB
    # [ister.heartbeat.interval.ms] how often parked readers are compared with the head; 0: never.
    heartbeat_interval_ms: int = 500
    # [message.timestamp.before.max.ms] / [message.timestamp.after.max.ms]
    timestamp_before_max_ms: int = (1 << 63) - 1
    timestamp_after_max_ms: int = 3_600_000
    # Everything else that was set, for whoever asks.
    configs: dict[str, str] = field(default_factory=dict)
