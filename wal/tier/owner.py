"""Whose bucket this is: one cluster for ever, one run of it at a time.

`cluster` is written once and compared at every start. `owner` holds an epoch that
a run raises by compare-and-set before its first manifest move; every manifest
carries the epoch that moved it, so an older run finds out at its next move at the
latest (`Fenced`) and must stop handing off. A claim whose reply was lost is
recognised by the run id, so `claim` may simply be called again.

There is no lease and no clock in this: the newest run wins.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec
from msgspec import Struct

from ister.wal.errors import Contradiction, Damaged, Fenced
from ister.wal.tier import envelope
from ister.wal.tier.object_store import Conflict, Missing, ObjectStore

CLUSTER = "cluster"
OWNER = "owner"
_CLUSTER_MAGIC = b"ISTRCLUS"
_OWNER_MAGIC = b"ISTROWNR"
FORMAT_VERSION = 1

T = TypeVar("T")


class Owner(Struct, frozen=True):
    epoch: int
    run_id: str
    claimed_ms: int


class Cluster(Struct, frozen=True):
    cluster_id: str


def bind_cluster(store: ObjectStore, cluster_id: str) -> None:
    """The bucket is this cluster's from now on; Contradiction if it is another one's."""
    found = read_cluster(store)
    if found is None:
        value = envelope.wrap(
            _CLUSTER_MAGIC, FORMAT_VERSION, msgspec.json.encode(Cluster(cluster_id))
        )
        try:
            store.swap(CLUSTER, value, 0)
        except Conflict:  # ours, with a lost reply, or somebody else's
            found = read_cluster(store)
        else:
            return
    if found != cluster_id:
        raise Contradiction(
            f"bucket {store.url} belongs to cluster {found}, this is cluster {cluster_id}: "
            "give the right --bucket, or an empty one"
        )


def read_cluster(store: ObjectStore) -> str | None:
    """The cluster id of a bucket; None if nothing was ever handed over."""
    try:
        data, _ = store.read(CLUSTER)
    except Missing:
        return None
    _, body = envelope.unwrap(_CLUSTER_MAGIC, FORMAT_VERSION, data, CLUSTER)
    return _decode(body, Cluster, CLUSTER).cluster_id


def claim(store: ObjectStore, run_id: str, now_ms: int) -> int:
    """The owner epoch of this run; every older one is fenced from here on. May be repeated."""
    while True:
        owner, version = read_owner(store)
        if owner is not None and owner.run_id == run_id:
            return owner.epoch
        epoch = (owner.epoch if owner else 0) + 1
        value = envelope.wrap(
            _OWNER_MAGIC, FORMAT_VERSION, msgspec.json.encode(Owner(epoch, run_id, now_ms))
        )
        try:
            store.swap(OWNER, value, version)
        except Conflict:  # somebody claimed meanwhile; or it was this very call
            continue
        return epoch


def verify(store: ObjectStore, epoch: int) -> None:
    """Fenced unless the bucket is still owned with `epoch`."""
    owner, _ = read_owner(store)
    if owner is None or owner.epoch != epoch:
        raise Fenced(
            f"bucket {store.url} is owned with epoch {owner.epoch if owner else 0}, "
            f"this run has {epoch}: another broker uses it"
        )


def read_owner(store: ObjectStore) -> tuple[Owner | None, int]:
    try:
        data, version = store.read(OWNER)
    except Missing:
        return None, 0
    _, body = envelope.unwrap(_OWNER_MAGIC, FORMAT_VERSION, data, OWNER)
    return _decode(body, Owner, OWNER), version


def _decode(body: bytes, kind: type[T], where: str) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise Damaged(where, envelope.BODY_START, str(error)) from error
