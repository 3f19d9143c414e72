"""Apache Kafka, broker and command-line tools: which version, and where its archives are."""

from __future__ import annotations

from compat_tests.tools import jars

VERSION = "4.3.1"
NAME = f"kafka-{VERSION}"


def kafka_class_path() -> str:
    return jars.class_path(NAME)


def present() -> bool:
    """Whether nothing would have to be fetched."""
    return jars.present(NAME)
