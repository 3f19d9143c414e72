"""The doctor: each thing that goes wrong is found, and said in words."""

from __future__ import annotations

import json
import random
import socket
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ister.gateway.cli.main import app
from ister.gateway.doctor import disk, machine, network
from ister.gateway.doctor.bucket import check_bucket
from ister.gateway.doctor.findings import FINE, PROBLEM, WARNING, Finding
from ister.gateway.listeners import Address
from ister.gateway.settings import Given, build
from ister.testing import Broker
from ister.wal.clock import ManualClock, SystemClock
from ister.wal.fs import OsFileSystem
from ister.wal.tier.faulty import FaultyStore
from ister.wal.tier.memory import MemoryStore

CLOCK = SystemClock()


def level(findings: Iterable[Finding], check: str) -> tuple[str, str]:
    """The worst finding of a check, with its words."""
    order = (FINE, WARNING, PROBLEM)
    found = [each for each in findings if each.check == check]
    assert found, check
    worst = max(found, key=lambda each: order.index(each.level))
    return worst.level, worst.words


@pytest.fixture
def closed_port() -> Iterator[int]:
    """Bound and not listening: refused for certain."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


@pytest.fixture
def strange_port() -> Iterator[int]:
    """Somebody listens who never says a word and closes."""
    with socket.create_server(("127.0.0.1", 0), backlog=16) as server:
        yield server.getsockname()[1]


# -- addresses -------------------------------------------------------------------------


def test_a_broker_that_is_well(ister: Broker) -> None:
    """Nothing but fine."""
    found = list(network.check_broker(ister.bootstrap))
    assert {each.level for each in found} == {FINE}
    assert {each.check for each in found} == {"connect", "protocol", "advertised"}


def test_nothing_listens(closed_port: int) -> None:
    """And how to start it."""
    found = network.check_broker(f"127.0.0.1:{closed_port}")
    kind, words = level(found, "connect")
    assert kind == PROBLEM
    assert "ister serve" in words


def test_names_and_addresses_that_are_none() -> None:
    """One sentence each."""
    assert level(network.check_broker("a:b:c"), "address")[0] == PROBLEM
    assert level(network.check_broker("no-such-host.invalid:1"), "name")[0] == PROBLEM


@pytest.mark.ister(settings={"advertised.listeners": "127.0.0.1:1"})
def test_an_advertised_address_that_does_not_work(ister: Broker) -> None:
    """The second problem that everybody has."""
    kind, words = level(network.check_broker(ister.bootstrap), "advertised")
    assert kind == PROBLEM
    assert "127.0.0.1:1" in words
    assert "--advertise" in words


@pytest.mark.parametrize(
    ("asked", "told", "words"),
    [
        ("10.0.0.7", "127.0.0.1", "itself"),
        ("10.0.0.7", "localhost", "itself"),
        ("127.0.0.1", "0.0.0.0", "no address"),  # noqa: S104 - told, not bound
    ],
)
def test_advertised_addresses_that_cannot_be_right(asked: str, told: str, words: str) -> None:
    """Known without trying them."""
    found = network._check_told(Address(asked, 9092), Address(told, 9092), 1, "c")
    assert found.level == PROBLEM
    assert words in found.words


def test_another_broker_at_the_advertised_address() -> None:
    """It answers, but it is not the one."""
    with Broker() as other:
        settings = {"advertised.listeners": other.bootstrap}
        with Broker(settings=settings) as broker:
            kind, words = level(network.check_broker(broker.bootstrap), "advertised")
    assert kind == PROBLEM
    assert "another broker" in words


def test_two_addresses_of_one_name(ister: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """localhost is IPv6 first, and the broker listens on IPv4 alone."""

    def two(host: str, port: int, **_: object) -> list[object]:
        kind = socket.SOCK_STREAM
        six = (socket.AF_INET6, kind, 6, "", ("::1", port, 0, 0))
        return [six, (socket.AF_INET, kind, 6, "", ("127.0.0.1", port))]

    monkeypatch.setattr(socket, "getaddrinfo", two)
    monkeypatch.setattr(network, "_connects", lambda host, port: host == "127.0.0.1")
    findings = network._check_address(Address("localhost", ister.port))
    kind, words = level(list(findings), "two_addresses")
    assert kind == WARNING
    assert "::1" in words
    assert f"127.0.0.1:{ister.port}" in words


def test_the_clock_of_the_broker(ister: Broker) -> None:
    """By the date of its HTTP server; without one there is nothing to say."""
    with Broker(http=True) as broker:
        address = Address("127.0.0.1", int(broker.http_url.rpartition(":")[2]))
        assert level(network.check_clock(address, CLOCK), "clock")[0] == FINE
        late = ManualClock(wall_ms=CLOCK.wall_ms() - 60_000)
        kind, words = level(network.check_clock(address, late), "clock")
        assert kind == PROBLEM
        assert "ahead of" in words
    assert list(network.check_clock(Address("127.0.0.1", ister.port), CLOCK)) == []
    assert list(network.check_clock(None, CLOCK)) == []


# -- this machine ----------------------------------------------------------------------


def test_a_port_that_somebody_else_has(strange_port: int, closed_port: int) -> None:
    """Named, with its process."""
    given = {
        "listeners": Given(f"127.0.0.1:{strange_port}", "test"),
        "ister.http": Given("off", "test"),
        "max.connections": Given("100", "test"),
    }
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(network, "TIMEOUT_S", 0.2)
        kind, words = level(machine.check_ports(build(given)), "port")
    assert kind == PROBLEM
    assert "(pid " in words


def test_a_port_with_a_broker_is_fine(ister: Broker) -> None:
    """It may be the one; and its HTTP port is its own."""
    given = {
        "listeners": Given(ister.bootstrap, "test"),
        "ister.http": Given(ister.bootstrap, "test"),
    }
    found = list(machine.check_ports(build(given)))
    assert [each.level for each in found] == [FINE, FINE]


def test_an_http_port_that_another_process_has_is_a_warning() -> None:
    """Nobody serves Kafka here, so it is not the broker's own."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        given = {
            "listeners": Given("127.0.0.1:0", "test"),
            "ister.http": Given(f"127.0.0.1:{taken.getsockname()[1]}", "test"),
        }
        found = list(machine.check_ports(build(given)))
    assert [each.level for each in found] == [FINE, WARNING]


def test_limits_of_open_files() -> None:
    """Enough, too few for all clients, too few at all."""
    assert machine.judge_files(100_000, 10_000).level == FINE
    assert machine.judge_files(4_096, 10_000).level == WARNING
    assert machine.judge_files(256, 10_000).level == PROBLEM


# -- the disk --------------------------------------------------------------------------


def test_a_data_directory_that_is_well(tmp_path: Path) -> None:
    """In use, then free; nothing is left in it."""
    data = tmp_path / "data"
    with Broker(data) as broker:
        found = list(disk.check_data(str(data), CLOCK))
        assert "in use" in level(found, "data")[1]
        assert broker.errors == []
    before = sorted(data.rglob("*"))
    found = list(disk.check_data(str(data), CLOCK))
    assert "free to be opened" in level(found, "data")[1]
    assert level(found, "format")[0] == FINE
    assert sorted(data.rglob("*")) == before


def test_directories_that_are_none(tmp_path: Path) -> None:
    """Not there, a file, and an empty one."""
    assert level(disk.check_data(str(tmp_path / "none"), CLOCK), "data")[0] == FINE
    (tmp_path / "file").write_text("")
    assert level(disk.check_data(str(tmp_path / "file"), CLOCK), "data")[0] == PROBLEM
    (tmp_path / "empty").mkdir()
    assert "no broker yet" in level(disk.check_data(str(tmp_path / "empty"), CLOCK), "data")[1]


def test_data_of_another_format_and_damage(tmp_path: Path) -> None:
    """Said before `serve` says it."""
    data = tmp_path / "data"
    with Broker(data):
        pass
    for checkpoint in (data / "checkpoint").glob("*.ckpt"):
        checkpoint.write_bytes(b"nonsense")
    assert level(disk.check_data(str(data), CLOCK), "damage")[0] == PROBLEM
    (data / "metadata.sqlite").write_bytes(b"nonsense" * 1000)
    assert level(disk.check_data(str(data), CLOCK), "format")[0] == PROBLEM
    (data / "metadata.sqlite").unlink()
    assert level(disk.check_data(str(data), CLOCK), "format")[0] == WARNING


class FullDisk(OsFileSystem):
    def __init__(self, free: int) -> None:
        self._free = free

    def free_bytes(self, path: str) -> tuple[int, int]:
        return self._free, 1000


@pytest.mark.parametrize(("free", "kind"), [(500, FINE), (100, WARNING), (40, PROBLEM)])
def test_a_disk_that_is_nearly_full(tmp_path: Path, free: int, kind: str) -> None:
    """Before the broker refuses writes."""
    assert level(disk.check_disk(str(tmp_path), CLOCK, FullDisk(free)), "disk")[0] == kind


@pytest.mark.parametrize(("seconds", "kind"), [(1e-6, WARNING), (1e-3, FINE), (0.2, WARNING)])
def test_syncs_that_are_too_quick_or_too_slow(seconds: float, kind: str) -> None:
    """A disk that answers at once does not keep what it says."""
    assert disk.judge_sync(seconds).level == kind


def test_a_clock_that_was_set_back(tmp_path: Path) -> None:
    """The data knows a later time than the machine."""
    with Broker(tmp_path / "data"):
        pass
    before = ManualClock(wall_ms=CLOCK.wall_ms() - 48 * 3_600_000)
    findings = list(disk.check_data(str(tmp_path / "data"), before))
    assert level(findings, "clock")[0] == PROBLEM


# -- the bucket ------------------------------------------------------------------------


def test_a_bucket_that_is_well_and_keeps_nothing_of_us() -> None:
    """Conditional writes are tried, and what was written for that is gone."""
    store = MemoryStore()
    found = list(check_bucket(store, "", CLOCK))
    assert {each.level for each in found} == {FINE}
    assert list(store.list("")) == []
    assert list(store.registers("")) == []


class Careless(MemoryStore):
    """Takes every write, whatever its condition."""

    def swap(self, name: str, value: bytes, expected: int) -> int:
        try:
            current = self.read(name)[1]
        except Exception:
            current = 0
        return super().swap(name, value, current)


def test_a_bucket_without_conditional_writes() -> None:
    """Two brokers would destroy each other's archive."""
    assert level(check_bucket(Careless(), "", CLOCK), "conditional_writes")[0] == PROBLEM


def test_a_bucket_that_does_not_answer() -> None:
    """In the bucket's own words."""
    store = FaultyStore(MemoryStore(), random.Random(1))
    store.down()
    assert level(check_bucket(store, "", CLOCK), "bucket")[0] == PROBLEM


def test_a_bucket_of_another_broker() -> None:
    """A broker on it would not start."""
    store = MemoryStore()
    store.swap("cluster", b'{"cluster_id":"theirs"}', 0)
    assert level(check_bucket(store, "ours", CLOCK), "bucket")[0] == PROBLEM
    assert level(check_bucket(store, "theirs", CLOCK), "bucket")[0] == FINE
    assert level(check_bucket(store, "", CLOCK), "bucket")[0] == WARNING


def test_a_bucket_with_another_clock() -> None:
    """It stamps what it keeps."""
    store = MemoryStore(ManualClock(wall_ms=1_000_000))
    found = check_bucket(store, "", ManualClock(wall_ms=9_000_000))
    assert level(found, "clock")[0] == PROBLEM


# -- the command -----------------------------------------------------------------------


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["doctor", *arguments])
    assert "Traceback" not in result.output
    return result.exit_code, result.output


def test_the_command_exits_by_what_it_found(ister: Broker, closed_port: int) -> None:
    """0 fine, 1 a problem, 2 bad settings; words or JSON."""
    code, output = run(ister.bootstrap)
    assert code == 0, output
    assert output.startswith("fine ")
    code, output = run(f"127.0.0.1:{closed_port}", "--json")
    assert code == 1
    assert json.loads(output)[0]["level"] == PROBLEM
    assert run("--set", "nothing=1")[0] == 2


def test_the_command_looks_at_this_machine(tmp_path: Path, ister: Broker) -> None:
    """Ports, files, data and bucket."""
    with Broker(tmp_path / "data"):
        pass
    code, output = run(
        *("--data", str(tmp_path / "data"), "--set", f"listeners={ister.bootstrap}"),
        *("--http", "off", "--set", "max.connections=10", "--json"),
    )
    found = json.loads(output)
    # The disk of whoever runs this is not ours to judge.
    of_tests = {"disk", "file_system", "sync"}
    assert [e for e in found if e["level"] == PROBLEM and e["check"] not in of_tests] == []
    assert code in (0, 1)
    checks = {each["check"] for each in found}
    assert checks >= {"port", "advertised", "files", "data", "format", "disk", "bucket"}
    assert run("--data", str(tmp_path / "data"), "--bucket", "ftp://x", "--http", "off")[0] == 1


def test_the_clock_is_not_asked_where_no_broker_is(closed_port: int) -> None:
    """Whoever answers at the HTTP port is another one then."""
    with Broker(http=True) as broker:
        web = broker.http_url.removeprefix("http://")
        there = run(broker.bootstrap, "--http", web)[1]
        nowhere = run(f"127.0.0.1:{closed_port}", "--http", web)[1]
    assert "clock agrees" in there
    assert "clock" not in nowhere


def test_a_bucket_without_credentials_is_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In words."""
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "nothing.json"))
    code, output = run("--data", str(tmp_path), "--bucket", "gs://nobody/x", "--http", "off")
    assert code == 1
    assert "no credentials" in output
