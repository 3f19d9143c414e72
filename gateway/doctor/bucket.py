"""Checks of a bucket: it answers, it is ours, and a conditional write that must fail does.

Writes one small register of its own and removes it. A bucket without conditional writes
would let two brokers overwrite each other's manifests.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator

from ister.gateway.doctor.findings import Finding, fine, problem, warning
from ister.wal.clock import Clock
from ister.wal.errors import StorageError
from ister.wal.tier.object_store import AlreadyThere, Conflict, Missing, ObjectStore

_CLUSTER = "cluster"
_SKEW_MS_MAX = 5_000


def check_bucket(bucket: ObjectStore, cluster_id: str, clock: Clock) -> Iterator[Finding]:
    """`cluster_id` is that of the data directory; empty: not known."""
    try:
        yield from _check_owner(bucket, cluster_id)
        yield from _check_conditional(bucket)
        yield from _check_clock(bucket, clock)
    except (StorageError, OSError) as error:
        yield problem("bucket", f"{bucket.url} cannot be used: {error}")


def _check_owner(bucket: ObjectStore, cluster_id: str) -> Iterator[Finding]:
    try:
        value, _ = bucket.read(_CLUSTER)
    except Missing:
        yield fine("bucket", f"{bucket.url} answers, and holds no archive yet")
        return
    if cluster_id and cluster_id.encode() not in value:
        words = f"{bucket.url} holds the archive of another broker: use another bucket or prefix"
        yield problem("bucket", words)
    elif not cluster_id:
        yield warning(
            "bucket",
            f"{bucket.url} holds the archive of a broker; a new one will not start on it: "
            "`ister archive restore` rebuilds that broker",
        )
    else:
        yield fine("bucket", f"{bucket.url} answers, and holds this broker's archive")


def _check_conditional(bucket: ObjectStore) -> Iterator[Finding]:
    name = f"doctor/{uuid.uuid4().hex}"
    version = bucket.swap(name, b"first", 0)
    try:
        refused = _is_refused(bucket, name, 0)
        stale = _is_refused(bucket, name, version + 1)
    finally:
        bucket.remove(name)
    if refused and stale:
        yield fine("conditional_writes", "a conditional write that must fail does")
    else:
        yield problem(
            "conditional_writes",
            f"{bucket.url} ignores the condition of a write: two brokers could destroy each "
            "other's archive there. Use a bucket that supports preconditions",
        )


def _is_refused(bucket: ObjectStore, name: str, expected: int) -> bool:
    try:
        bucket.swap(name, b"second", expected)
    except Conflict:
        return True
    return False


def _check_clock(bucket: ObjectStore, clock: Clock) -> Iterator[Finding]:
    """The bucket's own clock, where it has one."""
    name = f"doctor/{uuid.uuid4().hex}"
    try:
        bucket.put(name, [b"clock"])
        now_ms = clock.wall_ms()
        created = [each.created_ms for each in bucket.list(name)]
    except AlreadyThere:
        return
    finally:
        bucket.delete(name)
    if not created or not created[0]:
        return
    skew_ms = created[0] - now_ms
    if abs(skew_ms) > _SKEW_MS_MAX:
        yield problem("clock", f"the bucket's clock is {skew_ms / 1000:+.0f} s off this machine's")
