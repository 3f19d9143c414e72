"""What all jobs share: arguments, exit codes, a report, progress on a terminal.

Exit 0: fine; 1: it failed, in words on stderr; 2: bad arguments; 3: findings (audit).
With `--json` the report is one JSON object on stdout, otherwise lines for people. A job is
a function that is given parsed arguments, a session and a `Progress`, so tests call it
without a process.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from ister.archive.ranges import DataLoss
from ister.spark.options import BadOption
from ister.spark.parquet_lake import LakeError
from ister.wal.errors import LogError
from ister.wal.tier import BadStoreUrl

FINE, FAILED, BAD_ARGUMENTS, FINDINGS = range(4)

Report = dict[str, Any]


class Progress:
    """One line that is written over, on a terminal; nothing elsewhere."""

    def __init__(self, job: str) -> None:
        self._job = job
        self._shown = sys.stderr.isatty()

    def say(self, text: str) -> None:
        if self._shown:
            print(f"\r\x1b[K{self._job}: {text}", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        if self._shown:
            print(file=sys.stderr)


def parser(job: str, text: str) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog=f"python -m ister.spark.{job}", description=text)
    made.add_argument("--json", action="store_true", help="print the report as JSON")
    return made


def main(
    job: str,
    arguments: argparse.ArgumentParser,
    work: Callable[[argparse.Namespace, SparkSession, Progress], Report],
    argv: Sequence[str] | None,
    *,
    kafka: bool = False,
) -> int:
    """Parse, run, print; the exit code. A report with `findings` that are not empty is exit 3."""
    given = arguments.parse_args(argv)
    from ister.spark.session import session

    progress = Progress(job)
    try:
        report = work(given, session(f"ister {job}", kafka=kafka), progress)
    except (BadOption, BadStoreUrl) as error:
        print(f"ister {job}: {error}", file=sys.stderr)
        return BAD_ARGUMENTS
    except (LakeError, DataLoss, LogError, PySparkException, Py4JJavaError, OSError) as error:
        print(f"ister {job}: {error}", file=sys.stderr)
        return FAILED
    finally:
        progress.end()
    if given.json:
        print(json.dumps(report))
    else:
        for name, value in report.items():
            print(f"{name}: {value if isinstance(value, str | int | float) else json.dumps(value)}")
    return FINDINGS if report.get("findings") else FINE
