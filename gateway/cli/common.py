"""What the commands that talk to a broker share: where it is, how to fail, how to show.

Listings are for people by default and JSON with `--json`. What is not the answer (progress,
hints, errors) goes to stderr, so that a pipe gets the answer alone.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer

from ister.gateway.cli.exits import CLEAN, FAILED, say

Bootstrap = Annotated[
    str,
    typer.Option(
        "--bootstrap",
        "-b",
        envvar="ISTER_BOOTSTRAP",
        metavar="HOST:PORT",
        help="A broker, or several with commas between.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="JSON instead of a table.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
BOOTSTRAP = "127.0.0.1:9092"


def run(command: Callable[[], None]) -> None:
    """Run a command and exit: 0 done, 1 refused or unreachable, in words."""
    from ister.gateway.kafka_client.errors import ClientError
    from ister.gateway.protocol.errors import ProtocolError

    code = CLEAN
    try:
        command()
    except ClientError as error:
        say(str(error))
        code = FAILED
    except ProtocolError as error:
        say(f"the broker's answer cannot be read: {error}")
        code = FAILED
    except KeyboardInterrupt:
        pass
    except BrokenPipeError:  # the reader of our output has had enough
        sys.stderr.close()
    raise typer.Exit(code)


def show(rows: Sequence[dict[str, Any]], columns: Sequence[str], as_json: bool) -> None:
    """A table with these columns, or everything as JSON."""
    if as_json:
        print_json(rows)
    else:
        print_table(columns, [[row.get(column) for column in columns] for row in rows])


def print_json(value: Any) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Columns as wide as they need to be; numbers to the right."""
    texts = [[_text(cell) for cell in row] for row in rows]
    titles = [column.upper().replace("_", " ") for column in columns]
    widths = [max(map(len, column)) for column in zip(titles, *texts, strict=True)]
    right = [
        any(isinstance(row[place], int) for row in rows) and not _has_words(rows, place)
        for place in range(len(columns))
    ]
    for line in (titles, *texts):
        cells = [
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(line, widths, right, strict=True)
        ]
        print("  ".join(cells).rstrip())


def confirm(question: str, yes: bool) -> bool:
    """Ask on a terminal; without one `--yes` is wanted."""
    if yes:
        return True
    if not sys.stdin.isatty():
        say(f"{question} Say --yes to do it without being asked.")
        return False
    return typer.confirm(question)


class Progress:
    """A line that counts, on a terminal alone."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._on = sys.stderr.isatty()
        self._shown = False

    def at(self, count: int) -> None:
        if self._on:
            self._shown = True
            print(f"\r{count} {self._what}", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        if self._shown:
            print(file=sys.stderr)


def assignments(items: Sequence[str], what: str) -> dict[str, str]:
    """NAME=VALUE, several; BadParameter for one that is not."""
    found = {}
    for item in items:
        name, equals, value = item.partition("=")
        if not equals or not name.strip():
            raise typer.BadParameter(f"{item!r}: NAME=VALUE is wanted", param_hint=what)
        found[name.strip()] = value
    return found


def _text(cell: Any) -> str:
    if cell is None:
        return "-"
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    return str(cell)


def _has_words(rows: Sequence[Sequence[Any]], place: int) -> bool:
    return any(isinstance(row[place], str | bool) for row in rows)
