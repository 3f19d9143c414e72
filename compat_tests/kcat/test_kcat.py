"""kcat as a user calls it: metadata, produce, consume, a group, a query by time."""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest

from compat_tests import skips

KCAT = shutil.which("kcat") or shutil.which("kafkacat") or ""

pytestmark = pytest.mark.skipif(not KCAT, reason=skips.NO_KCAT)


def kcat(broker, *arguments, given=""):
    done = subprocess.run(  # noqa: S603 - the machine's own kcat
        [KCAT, "-b", broker.bootstrap, *arguments],
        input=given,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_produce_and_consume(broker, names, codec):
    topic = names("topic")
    given = "".join(f"k{number}:v{number}\n" for number in range(50))
    kcat(broker, "-P", "-t", topic, "-K", ":", "-z", codec, "-H", "h=1", given=given)
    said = kcat(broker, "-C", "-t", topic, "-e", "-q", "-f", "%k:%s %h %p %o\n")
    assert said.splitlines() == [f"k{n}:v{n} h=1 0 {n}" for n in range(50)]
    assert kcat(broker, "-C", "-t", topic, "-o", "-2", "-e", "-q") == "v48\nv49\n"


def test_metadata(broker, names):
    topic = names("topic")
    kcat(broker, "-P", "-t", topic, given="v\n")
    found = json.loads(kcat(broker, "-L", "-J"))
    assert [each["name"] for each in found["brokers"]] == [broker.bootstrap]
    (described,) = [each for each in found["topics"] if each["topic"] == topic]
    assert [each["leader"] for each in described["partitions"]] == [found["brokers"][0]["id"]]


def test_query(broker, names):
    topic = names("topic")
    kcat(broker, "-P", "-t", topic, given="a\nb\nc\n")
    for at, offset in (("-2", 0), ("-1", 3), ("0", 0)):
        said = kcat(broker, "-Q", "-t", f"{topic}:0:{at}")
        assert said.split()[-1] == str(offset)


def test_group(broker, names):
    """A balanced consumer reads all, commits when it leaves, and then finds nothing more."""
    topic, group = names("topic"), names("group")
    kcat(broker, "-P", "-t", topic, given="a\nb\nc\n")
    options = ["-X", "auto.offset.reset=earliest", "-q", "-e", "-G", group, topic]
    assert kcat(broker, *options) == "a\nb\nc\n"
    assert kcat(broker, *options) == ""
