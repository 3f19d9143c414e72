"""From the archive to the live tail, at an exact offset.

`live_from` reads, per partition, the first offset that is not in the archive. The archive
up to there and `format("kafka")` from there on are together every record once: offsets of a
partition are dense and are never given again.

A stream goes through two queries, one after the other, with one checkpoint root:

    {checkpoint}/handover.json   the offsets of the hand-over, written once, before anything
    {checkpoint}/history         checkpoint of the archive query, which ends at those offsets
    {checkpoint}/live            checkpoint of the Kafka query, which begins there

Started again, it goes on where it was: the hand-over is read, not computed anew, a finished
first stage has nothing left to do, and the second goes on from its own checkpoint.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import TYPE_CHECKING, overload

from ister.spark import offsets
from ister.spark.files import HadoopFiles
from ister.spark.options import Request
from ister.wal.tier.archive import Archive

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

Write = Callable[["DataFrame"], "DataStreamWriter"]


def live_from(spark: SparkSession, url: str, topic: str) -> dict[str, dict[str, int]]:
    """The first offset not in the archive, per partition, as `startingOffsets` wants it."""
    del spark  # reading manifests needs no session; it stays for who runs this elsewhere later
    with closing(Archive.open(url)) as archive:
        manifests = offsets.find(archive, Request(url, topics=(topic,)))
    return offsets.to_json({place: found.tiered_end for place, found in manifests.items()})


@overload
def history_then_live(
    spark: SparkSession,
    url: str,
    topic: str,
    bootstrap: str,
    *,
    options: Mapping[str, str] | None = None,
) -> DataFrame: ...


@overload
def history_then_live(
    spark: SparkSession,
    url: str,
    topic: str,
    bootstrap: str,
    *,
    options: Mapping[str, str] | None = None,
    checkpoint: str,
    write: Write,
) -> StreamingQuery: ...


def history_then_live(
    spark: SparkSession,
    url: str,
    topic: str,
    bootstrap: str,
    *,
    options: Mapping[str, str] | None = None,
    checkpoint: str | None = None,
    write: Write | None = None,
) -> DataFrame | StreamingQuery:
    """Every record once: out of the archive up to the hand-over, from the broker behind it.

    Without `write` a batch, up to the end that the broker has now. With `write` and
    `checkpoint` a stream: the archive is read to its end first, then the live query is
    returned, running. `write` makes a writer of each of the two data frames (sink, output
    mode, trigger of the live one); checkpoints are set here. The sink must be able to take two
    queries: Spark's file sink numbers batches in its folder and cannot, foreachBatch can.
    `options` go to both sources, but startingOffsets to the archive alone and endingOffsets
    (batch) to the broker alone.
    """
    given = dict(options or {})
    start, end = given.pop("startingOffsets", "earliest"), given.pop("endingOffsets", "latest")
    archived = {**given, "path": url, "subscribe": topic, "startingOffsets": start}
    live = {**given, "kafka.bootstrap.servers": bootstrap, "subscribe": topic}
    if write is None or checkpoint is None:
        border = json.dumps(live_from(spark, url, topic))
        history = spark.read.format("ister").options(**archived, endingOffsets=border).load()
        rest = spark.read.format("kafka").options(**live, startingOffsets=border, endingOffsets=end)
        return history.unionByName(rest.load())
    border = _border(spark, url, topic, f"{checkpoint}/handover.json")
    past = spark.readStream.format("ister").options(**archived, endingOffsets=border).load()
    writer = write(past).option("checkpointLocation", f"{checkpoint}/history")
    writer.trigger(availableNow=True).start().awaitTermination()
    rest_now = spark.readStream.format("kafka").options(**live, startingOffsets=border).load()
    return write(rest_now).option("checkpointLocation", f"{checkpoint}/live").start()


def _border(spark: SparkSession, url: str, topic: str, path: str) -> str:
    """The offsets of the hand-over: those of the first start, for ever."""
    files = HadoopFiles(spark)
    border = files.read(path)
    if border is None:
        border = json.dumps(live_from(spark, url, topic))
        files.write(path, border)
    return border
