"""Metadata: topics, cursors, counters, in a small transactional store.

Imports nothing of ours. Engines (`sqlite.SqliteStore`, `memory.MemoryStore`) are
chosen where the broker is put together, and passed in.
"""

from ister.metadata.catalog import Catalog, Change, Tombstone, Topic
from ister.metadata.cursors import Cursor, CursorKey
from ister.metadata.errors import Conflict, MetadataError, StoreUnavailable
from ister.metadata.service import CommitService
from ister.metadata.snapshot import export_snapshot, import_snapshot
from ister.metadata.store import ABSENT, PRESENT, Entry, Store, Transaction

__all__ = [
    "ABSENT",
    "PRESENT",
    "Catalog",
    "Change",
    "CommitService",
    "Conflict",
    "Cursor",
    "CursorKey",
    "Entry",
    "MetadataError",
    "Store",
    "StoreUnavailable",
    "Tombstone",
    "Topic",
    "Transaction",
    "export_snapshot",
    "import_snapshot",
]
