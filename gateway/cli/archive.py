"""`ister archive`: what a bucket holds, checked, dumped and restored. Needs no broker.

`list`, `dump` and `verify` only read and work beside a running broker; `restore` reads the
bucket and fills an empty data directory.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

from ister.gateway.cli import exits

if TYPE_CHECKING:
    from ister.wal.records import Record
    from ister.wal.restore import RestoreReport
    from ister.wal.tier.archive import Archive, VerifyReport
    from ister.wal.tier.manifest import Manifest

app = typer.Typer(help="Look at a bucket, and restore from it.", no_args_is_help=True)

FAILED = 1  # the bucket could not be reached
FORMATS = ("jsonl", "parquet")

Url = Annotated[str, typer.Argument(help="Bucket: file:///path or gs://bucket/prefix.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Progress = Callable[[int, int], None]


@app.command("list")
def list_(url: Url, json: Json = False) -> None:
    """Print the partitions in a bucket, with their offsets and sizes."""
    _run(lambda: _list(url, as_json=json))


@app.command()
def dump(
    url: Url,
    topic: Annotated[str | None, typer.Option(help="Name or id (hex); all by default.")] = None,
    partition: Annotated[int | None, typer.Option(help="One partition of the topic.")] = None,
    start: Annotated[int | None, typer.Option(help="First offset.")] = None,
    end: Annotated[int | None, typer.Option(help="Offset behind the last one.")] = None,
    format: Annotated[str, typer.Option("--format", help="jsonl or parquet.")] = "jsonl",
    output: Annotated[str, typer.Option("--output", help="A file; - is standard output.")] = "-",
) -> None:
    """Write the records in a bucket: one JSON object a line, or Parquet (extra `ister[arrow]`)."""
    if format not in FORMATS:
        exits.say(f"format {format!r} is not known: use {' or '.join(FORMATS)}")
        raise typer.Exit(exits.BAD_SETTINGS)
    _run(lambda: _dump(url, topic, partition, start, end, format, output))


@app.command()
def verify(url: Url, json: Json = False) -> None:
    """Read every byte of a bucket and check it. Exit 0: all holds; 3: something does not."""
    _run(lambda: _verify(url, as_json=json))


@app.command()
def restore(
    url: Url,
    data: Annotated[str, typer.Option("--data", help="An empty data directory to fill.")],
    json: Json = False,
) -> None:
    """Rebuild a broker's data directory from its bucket."""
    _run(lambda: _restore(url, data, as_json=json))


# -- the commands ----------------------------------------------------------------


def _run(command: Callable[[], int]) -> None:
    from ister.metadata.errors import MetadataError
    from ister.wal.errors import StorageError, UnknownPartition

    try:
        code = exits.guard(command)
    except UnknownPartition as error:
        exits.say(str(error))
        code = exits.BAD_SETTINGS
    except (StorageError, MetadataError) as error:
        exits.say(str(error))
        code = FAILED
    except BrokenPipeError:  # `| head` has seen enough
        sys.stderr.close()
        code = exits.CLEAN
    raise typer.Exit(code)


@contextlib.contextmanager
def _opened(url: str) -> Iterator[Archive]:
    from ister.wal.errors import Contradiction
    from ister.wal.tier.archive import Archive

    archive = Archive.open(url)
    try:
        if archive.cluster_id is None:
            raise Contradiction(
                f"{archive.store.url} holds nothing that a broker handed over: check the address"
            )
        yield archive
    finally:
        archive.close()


def _list(url: str, *, as_json: bool) -> int:
    with _opened(url) as archive:
        manifests = archive.manifests()
        cluster_id = archive.cluster_id
    rows = [_row(manifest) for manifest in manifests]
    if as_json:
        _print_json({"cluster_id": cluster_id, "partitions": rows})
        return exits.CLEAN
    typer.echo(f"cluster {cluster_id}, {len(rows)} partitions")
    for row in rows:
        holes = f", {len(row['holes'])} known holes" if row["holes"] else ""
        typer.echo(
            f"{row['topic']}/{row['partition']}: offsets {row['log_start']}..{row['end']} "
            f"(end not included), {row['bytes']} bytes in {row['objects']} objects{holes}"
        )
    return exits.CLEAN


def _row(manifest: Manifest) -> dict[str, Any]:
    return {
        "topic": manifest.topic_name,
        "topic_id": manifest.topic_hex,
        "partition": manifest.partition,
        "log_start": manifest.log_start,
        "end": manifest.tiered_end,
        "bytes": manifest.tiered_bytes,
        "entries": len(manifest.entries),
        "objects": len(manifest.objects),
        "owner_epoch": manifest.owner_epoch,
        "holes": [[hole.first_offset, hole.last_offset, hole.reason] for hole in manifest.holes],
    }


def _dump(
    url: str,
    topic: str | None,
    partition: int | None,
    start: int | None,
    end: int | None,
    format: str,
    output: str,
) -> int:
    if format == "parquet" and output == "-" and sys.stdout.isatty():
        exits.say("Parquet is not for a terminal: give --output FILE, or redirect")
        return exits.BAD_SETTINGS
    with _opened(url) as archive:
        if topic is None:
            found = [m for m in archive.manifests() if partition in (None, m.partition)]
        else:
            found = archive.find(topic, partition)
        with _sink(output) as sink:
            if format == "parquet":
                return _dump_parquet(url, found, start, end, sink)
            _dump_jsonl(archive, found, start, end, sink)
    return exits.CLEAN


@contextlib.contextmanager
def _sink(output: str) -> Iterator[BinaryIO]:
    if output == "-":
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    with open(output, "wb") as file:
        yield file


def _dump_jsonl(
    archive: Archive, found: list[Manifest], start: int | None, end: int | None, sink: BinaryIO
) -> None:
    import msgspec

    encoder = msgspec.json.Encoder()
    for manifest in found:
        for record in archive.records(manifest, start, end):
            sink.write(encoder.encode(_line(manifest, record)) + b"\n")


def _dump_parquet(
    url: str, found: list[Manifest], start: int | None, end: int | None, sink: BinaryIO
) -> int:
    """The columns of Spark's Kafka source. What cannot be had ends it with words and exit 3."""
    try:
        from pyarrow.parquet import ParquetWriter

        from ister.archive import DataLoss, scan, schema
    except ImportError as error:
        exits.say(f"{error}: Parquet needs the extra arrow (pip install 'ister[arrow]')")
        return exits.BAD_SETTINGS
    try:
        with ParquetWriter(sink, schema(headers=True), compression="zstd") as writer:
            for manifest in found:
                first = None if start is None else max(start, manifest.log_start)
                partitions = [manifest.partition]
                for batch in scan(
                    url, manifest.topic_hex, first, end, partitions=partitions, headers=True
                ):
                    writer.write_batch(batch)
    except DataLoss as error:
        exits.say(str(error))
        return exits.CONTRADICTION
    return exits.CLEAN


def _line(manifest: Manifest, record: Record) -> dict[str, Any]:
    line: dict[str, Any] = {
        "topic": manifest.topic_name,
        "partition": manifest.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
    }
    line |= _field("key", record.key) | _field("value", record.value)
    if record.headers:
        line["headers"] = [
            _field("name", name) | _field("value", value) for name, value in record.headers
        ]
    return line


def _field(name: str, content: bytes | None) -> dict[str, str | None]:
    """Text as it is; bytes that are no text as `<name>_base64`, so that nothing is lost."""
    import base64

    if content is None:
        return {name: None}
    try:
        return {name: content.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(content).decode()}


def _verify(url: str, *, as_json: bool) -> int:
    with _opened(url) as archive, _bar("verify") as progress:
        report = archive.verify(progress)
    if as_json:
        _print_json(
            {
                "partitions": report.partitions,
                "entries": report.entries,
                "records": report.records,
                "bytes": report.bytes,
                "findings": [[finding.where, finding.what] for finding in report.findings],
                "orphans": report.orphans,
                "to_delete": report.doomed,
            }
        )
    else:
        _print_verified(report)
    return exits.CLEAN if report.is_sound else exits.CONTRADICTION


def _print_verified(report: VerifyReport) -> None:
    for finding in report.findings:
        exits.say(f"{finding.where}: {finding.what}")
    for name, size in report.orphans:
        typer.echo(f"{name}: {size} bytes that nothing names (a broker sweeps them)")
    typer.echo(
        f"{report.partitions} partitions, {report.entries} entries, {report.records} records, "
        f"{report.bytes} bytes read, {report.doomed} objects wait to be deleted"
    )
    typer.echo("all holds" if report.is_sound else f"{len(report.findings)} findings")


def _restore(url: str, data: str, *, as_json: bool) -> int:
    from ister.gateway.app import METADATA_NAME
    from ister.metadata.sqlite import SqliteStore
    from ister.wal.clock import SystemClock
    from ister.wal.fs import OsFileSystem
    from ister.wal.opening import lock_directory
    from ister.wal.restore import restore as restore_from

    fs = OsFileSystem()
    with _opened(url) as archive, _bar("restore") as progress:
        lock_directory(fs, data).release()  # before a file of a living broker is touched
        metadata = SqliteStore(f"{data}/{METADATA_NAME}")
        try:
            report = restore_from(
                archive.store,
                fs=fs,
                data=data,
                metadata=metadata,
                clock=SystemClock(),
                progress=progress,
            )
        finally:
            metadata.close()
    if as_json:
        _print_json(_restored(report))
    else:
        _print_restored(report, data)
    return exits.CLEAN


def _restored(report: RestoreReport) -> dict[str, Any]:
    return {
        "cluster_id": report.cluster_id,
        "snapshot_taken_ms": report.snapshot_taken_ms,
        "snapshot_age_ms": report.snapshot_age_ms,
        "topics": report.topics,
        "partitions": [
            {
                "topic": part.topic,
                "topic_id": part.topic_id.hex(),
                "partition": part.partition,
                "log_start": part.log_start,
                "last_offset": part.next_offset - 1,
                "leader_epoch": part.leader_epoch,
            }
            for part in report.partitions
        ],
        "cursors": report.cursors,
        "cursors_set_back": [
            {
                "group": cursor.group,
                "topic": cursor.topic,
                "partition": cursor.partition,
                "from": cursor.offset_before,
                "to": cursor.offset,
            }
            for cursor in report.cursors_set_back
        ],
        "newer_than_snapshot": report.newer_than_snapshot,
        "deleted_since_snapshot": report.deleted_since_snapshot,
        "damages": report.damages,
    }


def _print_restored(report: RestoreReport, data: str) -> None:
    for damage in report.damages:
        exits.say(damage)
    if report.snapshot_age_ms is None:
        typer.echo("no snapshot of metadata in the bucket: configs and cursors are gone")
    else:
        typer.echo(f"snapshot of metadata: {report.snapshot_age_ms / 1000:.0f} s old")
    gone = report.gone_at_least()
    for part in report.partitions:
        lost = gone.get((part.topic, part.partition))
        words = f", at least {lost} records behind it are gone" if lost else ""
        last = f"last offset {part.next_offset - 1}" if part.next_offset else "empty"
        typer.echo(f"{part.topic}/{part.partition}: {last}, epoch {part.leader_epoch}{words}")
    for name in report.newer_than_snapshot:
        typer.echo(f"{name}: newer than the snapshot, back with default configs")
    for name in report.deleted_since_snapshot:
        typer.echo(f"{name}: deleted since the snapshot, stays away")
    for cursor in report.cursors_set_back:
        typer.echo(
            f"cursor of {cursor.group} in {cursor.topic}/{cursor.partition} set back from "
            f"{cursor.offset_before} to {cursor.offset}"
        )
    typer.echo(
        f"restored {report.topics} topics, {len(report.partitions)} partitions and "
        f"{report.cursors} cursors into {data}; {len(report.cursors_set_back)} cursors set back; "
        "what was not in the bucket yet is gone"
    )


# -- output ----------------------------------------------------------------------


def _print_json(value: Any) -> None:
    import msgspec

    typer.echo(msgspec.json.encode(value).decode())


@contextlib.contextmanager
def _bar(label: str) -> Iterator[Progress | None]:
    """A bar on a terminal, nothing elsewhere."""
    if not sys.stderr.isatty():
        yield None
        return
    with typer.progressbar(length=1, label=label, file=sys.stderr) as bar:

        def progress(done: int, total: int) -> None:
            bar.length = total
            bar.update(done - bar.pos)

        yield progress
