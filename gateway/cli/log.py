"""`ister log`: look at the journal of a data directory. Never writes, works beside a broker."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ister.gateway.cli import exits

if TYPE_CHECKING:
    from ister.wal.inspect import BatchView, FileSummary, Finding

app = typer.Typer(help="Look at the journal of a data directory.", no_args_is_help=True)

Data = Annotated[str, typer.Argument(help="Data directory.")]


@app.command()
def dump(
    data: Data,
    records: Annotated[bool, typer.Option(help="Decode the records too.")] = False,
) -> None:
    """Print every batch of the journal, one JSON object a line."""
    raise typer.Exit(exits.guard(lambda: _dump(data, with_records=records)))


@app.command()
def verify(
    data: Data, json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False
) -> None:
    """Check every byte of the journal. Exit 0: all holds; 3: something does not."""
    raise typer.Exit(exits.guard(lambda: _verify(data, as_json=json)))


def _dump(data: str, *, with_records: bool) -> int:
    import msgspec

    from ister.wal.fs import OsFileSystem
    from ister.wal.inspect import batches, journal_files

    fs = OsFileSystem()
    names = _topic_names(data)
    views, findings = journal_files(fs, data)
    for view in views:
        for found in batches(fs, view, findings):
            typer.echo(msgspec.json.encode(_line(found, names, with_records=with_records)))
    _say(findings)
    return exits.CONTRADICTION if findings else exits.CLEAN


def _line(found: BatchView, names: dict[bytes, str], *, with_records: bool) -> dict[str, Any]:
    entry = found.entry
    line: dict[str, Any] = {
        "file": found.file.sequence,
        "commit": found.commit,
        "position": found.position,
        "topic": names.get(entry.topic_id),
        "topic_id": entry.topic_id.hex(),
        "partition": entry.partition,
    }
    if not entry.records:
        return {**line, "log_start": entry.base_offset}
    line |= {
        "offset": entry.base_offset,
        "records": entry.records,
        "bytes": entry.size,
        "max_timestamp": entry.max_timestamp,
    }
    if with_records:
        line["content"] = [
            {
                "offset": record.offset,
                "timestamp": record.timestamp,
                "key": _text(record.key),
                "value": _text(record.value),
                "headers": [[_text(name), _text(value)] for name, value in record.headers],
            }
            for record in _records(found.data)
        ]
    return line


def _records(data: memoryview) -> list[Any]:
    from ister.wal.records import records

    return list(records(data))


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("utf-8", "backslashreplace")


def _verify(data: str, *, as_json: bool) -> int:
    import msgspec

    from ister.wal.fs import OsFileSystem
    from ister.wal.inspect import journal_files, verify_file, verify_sidecars

    fs = OsFileSystem()
    views, findings = journal_files(fs, data)
    findings += verify_sidecars(fs, data, views)
    summaries: list[FileSummary] = []
    with _progress(views) as steps:
        for view in steps:
            summary, wrong = verify_file(fs, view)
            summaries.append(summary)
            findings += wrong
    if as_json:
        report = {
            "files": [_summary(summary) for summary in summaries],
            "findings": [finding._asdict() for finding in findings],
        }
        typer.echo(msgspec.json.encode(report))
    else:
        for summary in summaries:
            typer.echo(_sentence(summary))
        _say(findings)
        typer.echo("all holds" if not findings else f"{len(findings)} findings")
    return exits.CONTRADICTION if findings else exits.CLEAN


def _progress(views: list[Any]) -> Any:
    """A bar on a terminal, nothing elsewhere."""
    import sys

    if sys.stderr.isatty():
        return typer.progressbar(views, label="journal", file=sys.stderr)
    return contextlib.nullcontext(views)


def _summary(summary: FileSummary) -> dict[str, Any]:
    found = summary._asdict()
    found["file"] = summary.file.sequence
    return found


def _sentence(summary: FileSummary) -> str:
    state = "ended cleanly" if summary.ended else "sealed" if summary.file.end else "open"
    tail = f", {summary.tail_bytes} bytes of a torn frame behind it" if summary.tail_bytes else ""
    return (
        f"file {summary.file.sequence}: {summary.frames} commits, {summary.batches} batches, "
        f"{summary.data_bytes} bytes, {state}{tail}"
    )


def _say(findings: list[Finding]) -> None:
    for finding in findings:
        exits.say(f"{finding.where} at {finding.position}: {finding.what}")


def _topic_names(data: str) -> dict[bytes, str]:
    """Names from the metadata, if it is there and can be read."""
    import os

    from ister.gateway.app import METADATA_NAME
    from ister.metadata.catalog import Catalog
    from ister.metadata.errors import MetadataError
    from ister.metadata.sqlite import SqliteStore

    path = f"{data}/{METADATA_NAME}"
    if not os.path.exists(path):
        return {}
    try:
        with contextlib.closing(SqliteStore(path, read_only=True)) as store:
            catalog = Catalog.load(store)
            return {topic.id: topic.name for topic in catalog.topics_by_id.values()}
    except MetadataError as error:
        exits.say(f"no names of topics: {error}")
        return {}
