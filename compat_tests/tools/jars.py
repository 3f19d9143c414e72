"""Folders of Java archives, resolved once into the cache, each file checked against a lock.

A lock (`locks/NAME.lock`) has a line per archive: its SHA-256 and its coordinates, all of
them, so that nothing is decided while resolving. Ivy fetches them; its program comes with
PySpark, which the tests need anyway, so no build tool has to be installed. To make or to
renew a lock: `python -m compat_tests.tools lock NAME ORGANISATION:MODULE:REVISION ...`.
"""

from __future__ import annotations

import hashlib
import importlib.util
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from compat_tests.tools import cache
from compat_tests.tools.java import java

LOCKS = Path(__file__).with_name("locks")
PYSPARK = "pyspark==4.2.0"


class Locked(NamedTuple):
    digest: str
    coordinates: str  # organisation:module:revision

    @property
    def file_name(self) -> str:
        _, module, revision = self.coordinates.split(":")
        return f"{module}-{revision}.jar"


def jars(name: str) -> Path:
    """The folder with the archives of a lock. A minute on a machine's first call."""
    return cache.obtain(_place(name), lambda path: _fetch(name, path))


def class_path(name: str) -> str:
    return str(jars(name) / "*")


def present(name: str) -> bool:
    """Whether nothing would have to be fetched."""
    return (cache.folder() / _place(name)).exists()


def lock(name: str, wanted: Iterable[str]) -> Path:
    """Write the lock for these coordinates and everything that they need."""
    with tempfile.TemporaryDirectory() as aside:
        folder, ivy_cache = Path(aside, "jars"), Path(aside, "ivy")
        _ivy(wanted, folder, ivy_cache, transitive=True)
        lines = []
        for path in ivy_cache.glob("*/*/*s/*.jar"):
            module, organisation = path.parents[1].name, path.parents[2].name
            revision = path.stem.removeprefix(f"{module}-")
            lines.append(f"{_digest(path)} {organisation}:{module}:{revision}\n")
    path = LOCKS / f"{name}.lock"
    path.write_text("".join(sorted(lines, key=lambda line: line.split()[1])))
    return path


def _place(name: str) -> str:
    return f"jars/{name}-{_digest(LOCKS / f'{name}.lock')[:12]}"


def _fetch(name: str, folder: Path) -> None:
    locked = [Locked(*line.split()) for line in (LOCKS / f"{name}.lock").read_text().splitlines()]
    with tempfile.TemporaryDirectory() as ivy_cache:
        _ivy((each.coordinates for each in locked), folder, Path(ivy_cache), transitive=False)
    for each in locked:
        found = _digest(folder / each.file_name)
        if found != each.digest:
            raise cache.ToolMissing(
                f"{each.coordinates}: checksum {found}, but {each.digest} in {name}.lock"
            )
    strangers = {path.name for path in folder.iterdir()} - {each.file_name for each in locked}
    if strangers:
        raise cache.ToolMissing(f"not in {name}.lock: {', '.join(sorted(strangers))}")


def _ivy(coordinates: Iterable[str], folder: Path, ivy_cache: Path, *, transitive: bool) -> None:
    lines = []
    for each in coordinates:
        organisation, module, revision = each.split(":")
        lines.append(
            f'<dependency org="{organisation}" name="{module}" rev="{revision}"'
            f' conf="default->default" transitive="{str(transitive).lower()}"/>'
        )
    description = ivy_cache / "wanted.xml"
    ivy_cache.mkdir(exist_ok=True)
    description.write_text(
        '<ivy-module version="2.0"><info organisation="ister" module="tests"/><dependencies>'
        + "".join(lines)
        + "</dependencies></ivy-module>"
    )
    command = [java(), "-jar", str(_ivy_program()), "-warn"]
    command += ["-cache", str(ivy_cache), "-ivy", str(description)]
    cache.run([*command, "-retrieve", f"{folder}/[artifact]-[revision].[ext]"])


def _ivy_program() -> Path:
    spec = importlib.util.find_spec("pyspark")
    package = (
        Path(spec.origin).parent
        if spec is not None and spec.origin
        else cache.python_package(PYSPARK) / "pyspark"
    )
    return next(package.glob("jars/ivy-*.jar"))


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
