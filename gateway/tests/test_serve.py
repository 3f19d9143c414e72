"""The process `ister serve`: what it prints, how it stops, its exit codes."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ister.gateway.cli.lock_owner import holder
from ister.gateway.protocol.error_codes import ErrorCode
from ister.gateway.tests.wire_kit import Part, Wire
from ister.wal.tests.batches import make_batch
from ister.wal.tests.powercut import PowerCut

SECONDS_MAX = 30


class Serve:
    """A running `ister serve`."""

    def __init__(
        self, data: Path, *arguments: str, environment: dict[str, str] | None = None
    ) -> None:
        # No fixed port: another run of these tests may be under way. The last --http counts.
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "ister.gateway", "serve", "--listen", "127.0.0.1:0"),
                *("--data", str(data), "--http", "off", *arguments),
            ],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def ready(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith("ister ready"), self.process.communicate()[1]
        return line

    def connect(self) -> Wire:
        """Once it is ready."""
        return Wire(int(self.ready().split()[2].rpartition(":")[2]))

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        self.process.send_signal(number)
        return self.end()

    def end(self) -> tuple[int, str]:
        _, errors = self.process.communicate(timeout=SECONDS_MAX)
        return self.process.returncode, errors


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture(autouse=True)
def _no_orphans() -> Iterator[None]:
    started: list[subprocess.Popen[str]] = []
    original = Serve.__init__

    def note(self: Serve, data: Path, *arguments: str, **options: Any) -> None:
        original(self, data, *arguments, **options)
        started.append(self.process)

    Serve.__init__ = note  # type: ignore[method-assign]
    yield
    Serve.__init__ = original  # type: ignore[method-assign]
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ister.gateway", *arguments],
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_cleanly(data: Path, number: int) -> None:
    """Exit 0, an end mark, and the next run says that it was clean."""
    serve = Serve(data)
    serve.ready()
    assert serve.stop(number)[0] == 0
    again = Serve(data)
    again.ready()
    code, errors = again.stop()
    assert code == 0
    opened = json.loads(errors.splitlines()[0])
    assert opened["event"] == "log_opened"
    assert opened["clean"] is True


def test_a_second_process_is_refused(data: Path) -> None:
    """Exit 4, and the first one goes on."""
    first = Serve(data)
    first.ready()
    code, errors = Serve(data).end()
    assert code == 4
    assert "in use" in errors
    # Who it is can be seen in most places, not in all.
    assert "(pid " not in errors or f"(pid {first.process.pid})" in errors
    assert first.stop()[0] == 0


def test_the_holder_of_a_lock_is_read_from_the_kernels_list() -> None:
    """Neither another file's, nor another kind of lock, nor one that waits."""
    lines = [
        "1: POSIX  ADVISORY  WRITE 11 08:01:5678 0 EOF",
        "2: FLOCK  ADVISORY  WRITE 12 08:02:5678 0 EOF",
        "3: FLOCK  ADVISORY  WRITE 13 08:01:5678 0 EOF",
        "3: -> FLOCK  ADVISORY  WRITE 14 08:01:5678 0 EOF",
    ]
    assert holder(lines, "08:01:5678") == "13"
    assert holder(lines[3:], "08:01:5678") is None


def test_it_opens_again_after_kill_9(data: Path) -> None:
    """No lock, no file, nothing stands in the way."""
    serve = Serve(data)
    serve.ready()
    serve.stop(signal.SIGKILL)
    again = Serve(data)
    again.ready()
    assert again.stop()[0] == 0


def test_an_empty_directory_beside_a_full_bucket_is_refused(data: Path, tmp_path: Path) -> None:
    """Exit 3, and the words name the command that helps."""
    url = f"file://{tmp_path}/bucket"
    serve = Serve(data, "--bucket", url)
    serve.ready()
    while not (tmp_path / "bucket" / "registers" / "cluster@").exists():
        pass
    serve.stop()
    code, errors = Serve(tmp_path / "other", "--bucket", url).end()
    assert code == 3
    assert "ister archive restore" in errors


def test_damage_is_refused_and_may_be_continued_past(data: Path) -> None:
    """Exit 3 with file and position; with the flag it goes on."""
    serve = Serve(data)
    serve.ready()
    serve.stop()
    (newest,) = [p for p in sorted((data / "journal").glob("*.log")) if p.read_bytes()[0:1] == b"I"]
    content = bytearray(newest.read_bytes())
    content[20] ^= 1  # in the file header; the end mark behind it is whole
    newest.write_bytes(content)
    code, errors = Serve(data).end()
    assert code == 3
    assert str(newest) in errors
    assert "--continue-past-damage" in errors
    again = Serve(data, "--continue-past-damage")
    again.ready()
    assert again.stop()[0] == 0


@pytest.mark.fault
@pytest.mark.skipif(sys.platform != "linux", reason="LD_PRELOAD and /proc")
def test_a_disk_that_fails_ends_it_with_5(tmp_path: Path) -> None:
    """Appends are refused and durable reads go on until it leaves; a restart has what was acked."""
    cut = PowerCut(tmp_path)
    serve = Serve(cut.data, environment=cut.environment())
    with serve.connect() as wire:
        wire.create("t")
        assert wire.produce("t", make_batch([b"before"])).error == 0
        cut.set(fsync_fail_at=1, fsync_pattern="*/journal/*.log")
        for _ in range(2):
            assert wire.produce("t", make_batch([b"lost"])).error == ErrorCode.KAFKA_STORAGE_ERROR
        (found,) = wire.fetch([("t", [Part(0)])]).partitions.values()
        assert b"before" in found.records
        assert found.high_watermark == 1
    assert serve.end()[0] == 5
    cut.restore()
    again = Serve(cut.data)
    with again.connect() as wire:
        (found,) = wire.fetch([("t", [Part(0)])]).partitions.values()
        assert b"before" in found.records
        assert found.high_watermark == 1
    assert again.stop()[0] == 0


@pytest.mark.slow
def test_damage_among_records_becomes_a_hole(data: Path) -> None:
    """Exit 3 first; with the flag the reader gets what is behind the hole, and no offset again."""
    serve = Serve(data)
    with serve.connect() as wire:
        wire.create("t")
        for number in range(3):
            assert wire.produce("t", make_batch([b"record %d" % number])).base_offset == number
    assert serve.stop()[0] == 0
    (path,) = [p for p in (data / "journal").glob("*.log") if b"record 1" in p.read_bytes()]
    content = bytearray(path.read_bytes())
    content[content.index(b"record 1")] ^= 1
    path.write_bytes(content)
    code, errors = Serve(data).end()
    assert code == 3
    assert str(path) in errors
    again = Serve(data, "--continue-past-damage")
    with again.connect() as wire:
        (found,) = wire.fetch([("t", [Part(0, offset=1)])]).partitions.values()
        assert b"record 2" in found.records
        assert b"record 1" not in found.records
        assert wire.produce("t", make_batch([b"new"])).base_offset == 3
    assert again.stop()[0] == 0
    known = Serve(data)  # the hole is durable: the flag is not needed again
    known.ready()
    assert known.stop()[0] == 0


def test_a_bad_bucket_address_is_a_bad_setting(data: Path) -> None:
    """Exit 2."""
    assert Serve(data, "--bucket", "ftp://nowhere").end()[0] == 2


def test_a_bucket_without_credentials_is_a_bad_setting(data: Path, tmp_path: Path) -> None:
    """Exit 2 with words, no traceback."""
    nowhere = {"GOOGLE_APPLICATION_CREDENTIALS": str(tmp_path / "nothing.json")}
    serve = Serve(data, "--bucket", "gs://nobody/prefix", environment={**os.environ, **nowhere})
    code, words = serve.end()
    assert code == 2
    assert "credentials" in words
    assert "Traceback" not in words


def test_every_listener_of_several_is_logged_with_its_port(data: Path) -> None:
    """The ready line has the first alone, and port 0 is anybody's guess."""
    serve = Serve(data, "--listen", "B=127.0.0.1:0", "--advertise", "B=broker.example:7")
    first = serve.ready().split()[2].removeprefix("kafka=")
    code, words = serve.stop()
    assert code == 0
    found = [line for line in map(json.loads, words.splitlines()) if line["event"] == "listening"]
    assert [(line["name"], line["told"]) for line in found] == [
        ("PLAINTEXT", first),
        ("B", "broker.example:7"),
    ]
    assert not found[1]["bind"].endswith(":0")


def test_a_data_directory_that_is_a_file_is_a_bad_setting(tmp_path: Path) -> None:
    """Exit 2 with words, no traceback."""
    file = tmp_path / "notes.txt"
    file.write_text("not a directory")
    code, words = Serve(file).end()
    assert code == 2
    assert f"{file}/LOCK: Not a directory" in words
    assert "Traceback" not in words


def test_log_verify_works_beside_a_running_broker(data: Path) -> None:
    """It never writes and takes no lock."""
    serve = Serve(data)
    serve.ready()
    found = run("log", "verify", str(data), "--json")
    assert found.returncode == 0, found.stderr
    assert json.loads(found.stdout)["findings"] == []
    assert run("log", "dump", str(data)).returncode == 0
    assert serve.stop()[0] == 0


def test_log_commands_need_a_data_directory(tmp_path: Path) -> None:
    """Exit 2 with words, no traceback."""
    found = run("log", "verify", os.fspath(tmp_path / "nothing"))
    assert found.returncode == 2
    assert "Traceback" not in found.stderr


def test_http_is_served_beside_kafka(data: Path) -> None:
    """The ready line says where, and the address is taken from then on."""
    serve = Serve(data, "--http", "127.0.0.1:0")
    address = serve.ready().strip().rpartition("http=")[2]
    connection = http.client.HTTPConnection(address, timeout=SECONDS_MAX)
    connection.request("GET", "/readyz")
    assert connection.getresponse().read() == b"ready\n"
    connection.close()
    code, errors = Serve(data.with_name("other"), "--http", address).end()
    assert code == 6
    assert f"cannot listen on {address}: the port is in use" in errors
    assert serve.stop()[0] == 0


def test_a_bad_http_address_is_a_bad_setting(data: Path) -> None:
    """Exit 2, with the words."""
    code, errors = Serve(data, "--http", "nowhere").end()
    assert code == 2
    assert "ister.http" in errors
