"""Small files of the lake into large ones; what the lake holds stays the same at every instant.

    python -m ister.spark.compact --lake PATH [--target-mb 128] [--grace-hours 24]

For each topic and date with several files below the target size: write their rows, sorted,
to `_ister/hidden`, note the plan, then one manifest takes the old files out and the new ones
in. A reader by manifest sees the old ones before that and the new ones after it, wherever
they lie. Then the old ones go to `_ister/old`, out of the sight of plain readers, and only
when all are gone the new ones are moved into place; so a plain reader may see less for a
moment, never a record twice. Dead at any point, the next run goes on from the plan.

A query that was planned before and reads after may meet a file that was moved: it fails,
in the open, and is to be run again. Old files are deleted after the grace time.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Sequence
from typing import Any

from msgspec import json as msgspec_json
from pyspark.sql import SparkSession

from ister.spark import jobs
from ister.spark.parquet_lake import Lake, LakeFile, Manifest, Span
from ister.wal.clock import Clock, SystemClock

MiB = 1 << 20
TARGET_BYTES = 128 * MiB
GRACE_MS = 24 * 3600 * 1000


def compact(
    lake: Lake,
    *,
    target_bytes: int = TARGET_BYTES,
    grace_ms: int = GRACE_MS,
    clock: Clock | None = None,
    progress: jobs.Progress | None = None,
) -> jobs.Report:
    """Every folder that is worth it; what was done."""
    now_ms = (clock or SystemClock()).wall_ms()
    lake.recover()
    for plan in _plans(lake):
        _finish(lake, plan)
    folders = before = after = 0
    for folder, files in _small(lake, target_bytes).items():
        made = _compact_folder(lake, folder, files, target_bytes, now_ms)
        folders += 1
        before += len(files)
        after += made
        if progress is not None:
            progress.say(f"{folder}: {len(files)} files became {made}")
    deleted = _delete_old(lake, now_ms - grace_ms)
    return {"folders": folders, "files_before": before, "files_after": after, "deleted": deleted}


def _small(lake: Lake, target_bytes: int) -> dict[str, dict[str, tuple[LakeFile, int]]]:
    """By folder the files below the target, with their sizes, where there are at least two."""
    folders: dict[str, dict[str, LakeFile]] = {}
    for path, file in lake.current().items():
        folders.setdefault(path.rpartition("/")[0], {})[path] = file
    found: dict[str, dict[str, tuple[LakeFile, int]]] = {}
    for folder, files in sorted(folders.items()):
        sizes = {info.name: info.size for info in lake.files.list(f"{lake.path}/{folder}")}
        small = {
            path: (file, sizes[name])
            for path, file in files.items()
            if (name := path.rpartition("/")[2]) in sizes and sizes[name] < target_bytes
        }
        if len(small) > 1:
            found[folder] = small
    return found


def _compact_folder(
    lake: Lake,
    folder: str,
    files: dict[str, tuple[LakeFile, int]],
    target_bytes: int,
    now_ms: int,
) -> int:
    """Write the new files, note the plan, carry it out."""
    batch = f"compact-{now_ms}-{_safe(folder)}"
    size = sum(bytes_ for _, bytes_ in files.values())
    count = max(1, -(-size // target_bytes))
    staging = f"{lake.path}/_ister/staging/{batch}"
    rows = lake.read_files(files).drop("topic", "date")
    spread = rows.repartitionByRange(count, "partition", "offset")
    rows = spread if count > 1 else rows.coalesce(1)
    rows.sortWithinPartitions("partition", "offset").write.mode("overwrite").parquet(staging)
    written = [i.path for i in lake.files.list(staging) if i.name.startswith("part-")]
    spans = tuple(span for file, _ in files.values() for span in file.spans)
    new = [f"{folder}/{batch}-{number:05d}.parquet" for number in range(len(written))]
    manifest = Manifest(
        batch=batch,
        job="compact",
        files=tuple(LakeFile(path, _hull(spans) if len(new) == 1 else ()) for path in new),
        removed=tuple(files),
    )
    plan = {
        "manifest": msgspec_json.encode(manifest).decode(),
        "staged": [
            [path[len(lake.path) + 1 :], name] for path, name in zip(written, new, strict=True)
        ],
    }
    lake.files.write(f"{lake.path}/_ister/compacting/{batch}.json", json.dumps(plan))
    _finish(lake, plan)
    return len(new)


def _finish(lake: Lake, plan: dict[str, Any]) -> None:
    """Each step does nothing where it was done before."""
    manifest = msgspec_json.decode(plan["manifest"], type=Manifest)
    own = f"{lake.path}/_ister"
    for staged, name in plan["staged"]:
        _move(lake, f"{lake.path}/{staged}", f"{own}/hidden/{name}")
    if not lake.has(manifest.batch):
        lake.commit(manifest)  # the swap
    for path in manifest.removed:
        _move(lake, f"{lake.path}/{path}", f"{own}/old/{manifest.batch}/{path}")
    for file in manifest.files:
        _move(lake, f"{own}/hidden/{file.path}", f"{lake.path}/{file.path}")
    lake.files.delete(f"{own}/compacting/{manifest.batch}.json")
    lake.files.delete(f"{own}/staging/{manifest.batch}")


def _move(lake: Lake, source: str, target: str) -> None:
    if lake.files.exists(source):
        lake.files.move(source, target)


def _plans(lake: Lake) -> list[dict[str, Any]]:
    """What dead runs left half done."""
    found = []
    for info in lake.files.list(f"{lake.path}/_ister/compacting"):
        text = lake.files.read(info.path)
        if text is not None and not info.name.startswith(("_", ".")):
            found.append(json.loads(text))
    return found


def _delete_old(lake: Lake, before_ms: int) -> int:
    """Folders of old files whose time has come; how many."""
    deleted = 0
    for info in lake.files.list(f"{lake.path}/_ister/old"):
        made_ms = info.name.split("-")[1]
        if made_ms.isdigit() and int(made_ms) <= before_ms:
            lake.files.delete(info.path)
            deleted += 1
    return deleted


def _hull(spans: Sequence[Span]) -> tuple[Span, ...]:
    found: dict[tuple[str, int], Span] = {}
    for span in spans:
        key = (span.topic, span.partition)
        last = found.get(key, span)
        records = span.records + (last.records if key in found else 0)
        found[key] = Span(*key, min(last.first, span.first), max(last.end, span.end), records)
    return tuple(found[key] for key in sorted(found))


def _safe(folder: str) -> str:
    """A name for a folder that can be part of a file name."""
    return hashlib.sha256(folder.encode()).hexdigest()[:12]


def _parser() -> argparse.ArgumentParser:
    made = jobs.parser("compact", "Small files of a lake into large ones.")
    made.add_argument("--lake", required=True)
    made.add_argument("--target-mb", type=int, default=TARGET_BYTES // MiB)
    made.add_argument("--grace-hours", type=float, default=GRACE_MS / 3_600_000)
    return made


def run(given: argparse.Namespace, spark: SparkSession, progress: jobs.Progress) -> jobs.Report:
    return compact(
        Lake(spark, given.lake),
        target_bytes=max(1, given.target_mb) * MiB,
        grace_ms=int(given.grace_hours * 3_600_000),
        progress=progress,
    )


def main(argv: Sequence[str] | None = None) -> int:
    return jobs.main("compact", _parser(), run, argv)


if __name__ == "__main__":
    sys.exit(main())
