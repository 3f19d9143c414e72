"""The archive for people without a broker: what a bucket holds, as Arrow record batches.

    import ister.archive
    reader = ister.archive.scan("file:///data/bucket", "orders")   # a pyarrow RecordBatchReader
    table = reader.read_all()

Columns are those of Spark's Kafka source. Needs the extra `ister[arrow]`. `scan.py` puts
it together: `ranges.py` says what is asked for, `reading.py` fetches and checks,
`columns.py` decodes. `ister.spark` is built on the same parts.
"""

from __future__ import annotations

try:
    from ister.archive.columns import schema
    from ister.archive.ranges import DataLoss, Loss
    from ister.archive.scan import scan
except ModuleNotFoundError as error:
    error.add_note("ister.archive needs the extra arrow (pip install 'ister[arrow]')")
    raise

__all__ = ["DataLoss", "Loss", "scan", "schema"]
