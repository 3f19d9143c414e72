"""Small files beside the data, on whatever file system Spark has: local, HDFS, a cloud's.

Goes through Hadoop's FileSystem in the driver's JVM, so a path means the same here and in
the tasks, and credentials are Spark's own. A file appears whole or not at all: written
aside, then renamed. One writer at a time is assumed: rename does not refuse to replace on
every file system. Needs a classic session (not Spark Connect).
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from pyspark.sql import SparkSession


class FileInfo(NamedTuple):
    path: str
    size: int
    is_folder: bool

    @property
    def name(self) -> str:
        return self.path.rstrip("/").rpartition("/")[2]


class Files(Protocol):
    def read(self, path: str) -> str | None:
        """The text of a file; None if it is not there."""

    def write(self, path: str, text: str) -> None:
        """The file is there with this text, whole, when it returns."""

    def move(self, source: str, target: str) -> None:
        """Rename; makes the folder of the target. FileNotFoundError if there is no source."""

    def delete(self, path: str) -> None:
        """A file or a folder with all in it; fine if it is not there."""

    def list(self, folder: str) -> list[FileInfo]:
        """What is in a folder, by name; empty if it is not there."""

    def exists(self, path: str) -> bool: ...


class HadoopFiles:
    """`Files` through the JVM of a session."""

    def __init__(self, spark: SparkSession) -> None:
        jvm: Any = spark._jvm
        if jvm is None:
            raise TypeError("this needs a classic Spark session, not Spark Connect")
        self._jvm = jvm
        self._conf = spark._jsc.hadoopConfiguration()

    def read(self, path: str) -> str | None:
        fs, place = self._at(path)
        if not fs.exists(place):
            return None
        stream = fs.open(place)
        try:
            data = bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
        finally:
            stream.close()
        return data.decode()

    def write(self, path: str, text: str) -> None:
        fs, place = self._at(path)
        aside = self._path(f"{place.getParent()}/_writing-{place.getName()}")
        stream = fs.create(aside, True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()
        if not fs.rename(aside, place):
            fs.delete(place, False)
            if not fs.rename(aside, place):
                raise OSError(f"cannot write {path}")

    def move(self, source: str, target: str) -> None:
        fs, place = self._at(source)
        _, goal = self._at(target)
        if not fs.exists(place):
            raise FileNotFoundError(source)
        fs.mkdirs(goal.getParent())
        if not fs.rename(place, goal):
            raise OSError(f"cannot rename {source} to {target}")

    def delete(self, path: str) -> None:
        fs, place = self._at(path)
        fs.delete(place, True)

    def list(self, folder: str) -> list[FileInfo]:
        fs, place = self._at(folder)
        if not fs.exists(place):
            return []
        found = [
            FileInfo(f"{folder.rstrip('/')}/{s.getPath().getName()}", s.getLen(), s.isDirectory())
            for s in fs.listStatus(place)
        ]
        return sorted(found)

    def exists(self, path: str) -> bool:
        fs, place = self._at(path)
        return bool(fs.exists(place))

    def _at(self, path: str) -> tuple[Any, Any]:
        place = self._path(path)
        return place.getFileSystem(self._conf), place

    def _path(self, path: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(path)
