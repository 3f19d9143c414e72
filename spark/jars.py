"""The four jars that Spark's Kafka connector needs and the PySpark wheel does not bring.

Resolved by Ivy out of the wheel itself (its main class; no Maven, no `spark.jars.packages`,
which stumbles over incomplete mirrors), as four direct dependencies without what hangs on
them, because the wheel has the rest. Each file is compared with a checksum that stands
here, then the folder is renamed into the user's cache; after that no network is needed.

The repository is Maven Central, or what Spark's own variable DEFAULT_ARTIFACT_REPOSITORY
names. The token provider is that of the preview before: the one of the connector's version
is missing in some mirrors, and only delegation tokens, which Ister has not, use it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import quoteattr

from ister.spark.java import cache_folder, java_command

SPARK_VERSION = "4.2.0"
REPOSITORY_VARIABLE = "DEFAULT_ARTIFACT_REPOSITORY"
IVY_SECONDS_MAX = 300


class Jar(NamedTuple):
    organisation: str
    name: str
    version: str
    sha256: str

    @property
    def file(self) -> str:
        return f"{self.name}-{self.version}.jar"


CONNECTOR = (
    Jar(
        "org.apache.spark",
        "spark-sql-kafka-0-10_2.13",
        "4.2.0",
        "64539c45e5d39f7ddb747312c239f38f5208d08c1a0ddf7d70beb2fbd9373705",
    ),
    Jar(
        "org.apache.spark",
        "spark-token-provider-kafka-0-10_2.13",
        "4.1.0-preview1",
        "ab6e27a8a47ce63348dd0ecbd5543dc6212b4783180305cde5749e79684ea97b",
    ),
    Jar(
        "org.apache.kafka",
        "kafka-clients",
        "3.9.2",
        "014b4ef36884478a932641818b080c36a8f8e2e92dc771e800c9d2694f4f83d8",
    ),
    Jar(
        "org.apache.commons",
        "commons-pool2",
        "2.13.1",
        "f77a5060d6936a9144023584232f9de3f2248f1abfe156e9d31795f18770674f",
    ),
)


class JarsMissing(Exception):
    """The jars cannot be had; the message says why."""


def connector_jars() -> list[Path]:
    """The files for `spark.jars`. The first call on a machine needs the network."""
    folder = cache_folder() / f"spark-kafka-{SPARK_VERSION}"
    if not folder.exists():
        with (cache_folder() / f"{folder.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not folder.exists():
                _make(folder)
    return [folder / jar.file for jar in CONNECTOR]


def _make(folder: Path) -> None:
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="making-") as name:
        aside = Path(name)
        (aside / "ivy.xml").write_text(_module())
        command = [java_command(), "-cp", str(_ivy()), "org.apache.ivy.Main"]
        command += ["-cache", str(aside / "cache"), "-ivy", str(aside / "ivy.xml")]
        command += ["-retrieve", f"{aside}/jars/[artifact]-[revision].[ext]"]
        if os.environ.get(REPOSITORY_VARIABLE):
            (aside / "settings.xml").write_text(_settings(os.environ[REPOSITORY_VARIABLE]))
            command += ["-settings", str(aside / "settings.xml")]
        done = subprocess.run(  # noqa: S603 - our own command
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=IVY_SECONDS_MAX,
            check=False,
        )
        for jar in CONNECTOR:
            _check(aside / "jars" / jar.file, jar, done.stdout)
        (aside / "jars").rename(folder)


def _check(path: Path, jar: Jar, said: str) -> None:
    if not path.exists():
        last = "\n".join(line for line in said.splitlines()[-30:] if line.strip())
        raise JarsMissing(f"{jar.file} could not be resolved:\n{last}")
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != jar.sha256:
        raise JarsMissing(f"{jar.file} has the checksum {found}, not {jar.sha256}")


def _ivy() -> Path:
    import pyspark

    (found,) = (Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar")
    return found


def _module() -> str:
    lines = [
        f'<dependency org="{jar.organisation}" name="{jar.name}" rev="{jar.version}" '
        'transitive="false" conf="default->master"/>'
        for jar in CONNECTOR
    ]
    return (
        '<ivy-module version="2.0"><info organisation="ister" module="connector"/>'
        '<configurations><conf name="default"/></configurations>'
        f"<dependencies>{''.join(lines)}</dependencies></ivy-module>"
    )


def _settings(repository: str) -> str:
    return (
        '<ivysettings><settings defaultResolver="given"/><resolvers>'
        f'<ibiblio name="given" m2compatible="true" root={quoteattr(repository)}/>'
        "</resolvers></ivysettings>"
    )
