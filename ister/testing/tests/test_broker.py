"""The broker in a test: its life, what it keeps, what it leaves alone, and its faults."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from ister.gateway.protocol.api import ApiKey
from ister.gateway.protocol.error_codes import ErrorCode
from ister.gateway.settings import BadSettings
from ister.gateway.tests.wire_kit import Part, Wire, produce_body
from ister.testing import Broker, BrokerError
from ister.wal.batch import walk
from ister.wal.errors import JournalFailed
from ister.wal.records import records
from ister.wal.tests.batches import make_batch

SECONDS_MAX = 30


def values(broker: Broker, topic: str = "t") -> list[bytes | None]:
    """Everything in partition 0."""
    with Wire(broker.port) as wire:
        got = wire.fetch([(topic, [Part(0)])]).partitions[topic, 0]
    assert got.error == 0
    return [
        record.value
        for position, size, _ in walk(got.records)
        for record in records(got.records[position : position + size])
    ]


def fill(broker: Broker, *contents: bytes, create: bool = True) -> None:
    with Wire(broker.port) as wire:
        if create:
            wire.create("t")
        for content in contents:
            assert wire.produce("t", make_batch([content])).error == 0


def open_file(broker: Broker) -> str:
    """The journal file that is written now; others are prewritten meanwhile."""
    return broker.call(lambda core: core.storage.log.journal.file.file.path)


def wait_for(condition: Callable[[], bool]) -> None:
    pause = threading.Event()
    for _ in range(SECONDS_MAX * 100):
        if condition():
            return
        pause.wait(0.01)
    raise AssertionError("it did not come true")


@pytest.fixture(params=["memory", "directory"])
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Broker:
    """Not started."""
    return Broker(None if request.param == "memory" else tmp_path / "data")


def test_a_stopped_broker_keeps_its_data_and_its_port(broker: Broker) -> None:
    """A client may hold on to the address it was given."""
    with broker:
        fill(broker, b"a", b"b")
        address = broker.bootstrap
        broker.restart()
        assert broker.bootstrap == address
        assert values(broker) == [b"a", b"b"]
        assert broker.errors == []


def test_acked_records_survive_a_crash(broker: Broker) -> None:
    """kill -9 on a directory, a power cut in memory; and the broker goes on behind them."""
    with broker:
        fill(broker, b"a", b"b")
        broker.crash()
        fill(broker, b"c", create=False)
        broker.crash()
        assert values(broker) == [b"a", b"b", b"c"]


def test_a_torn_power_cut_keeps_what_was_acked() -> None:
    """What survives of the rest is drawn from the seed."""
    with Broker(seed=7) as broker:
        fill(broker, b"a")
        broker.crash(torn=True)
        assert values(broker) == [b"a"]


def test_a_torn_crash_of_a_directory_is_refused(tmp_path: Path) -> None:
    """A kernel that lives on keeps everything; the broker is not touched."""
    with Broker(tmp_path / "data") as broker:
        with pytest.raises(ValueError, match="memory"):
            broker.crash(torn=True)
        fill(broker, b"a")


def test_a_crash_is_no_clean_stop(tmp_path: Path) -> None:
    """The next life recovers as from kill -9."""
    with Broker(tmp_path / "data") as broker:
        broker.crash()
        assert not broker.call(lambda core: core.storage.opened.report.clean)
        broker.restart()
        assert broker.call(lambda core: core.storage.opened.report.clean)


def test_a_crash_in_the_middle_of_a_sync_answers_nobody() -> None:
    """The producer is cut off; what was in flight was never acked and is not there."""
    with Broker() as broker:
        fill(broker, b"a")
        slow = broker.faults.delay_fsync(SECONDS_MAX, path=open_file(broker))
        with Wire(broker.port) as wire:
            body = produce_body(9, [("t", [(0, make_batch([b"lost"]))])])
            wire.ask(ApiKey.PRODUCE, 9, body)
            wait_for(lambda: slow.hits > 0)
            broker.crash()
            with pytest.raises((ConnectionError, EOFError)):
                wire.answer()
        assert values(broker) == [b"a"]


def test_brokers_stand_beside_each_other() -> None:
    """Each with its own port and its own data."""
    with Broker() as one, Broker() as two:
        assert one.bootstrap != two.bootstrap
        fill(one, b"1")
        fill(two, b"2")
        assert (values(one), values(two)) == ([b"1"], [b"2"])


async def _use_in_a_loop() -> str:
    async with Broker() as broker:
        return await asyncio.to_thread(lambda: broker.bootstrap)


def test_it_is_an_asynchronous_context_manager_too() -> None:
    """The loop of the test goes on while the broker starts and stops."""
    assert asyncio.run(_use_in_a_loop()).startswith("127.0.0.1:")


def test_settings_have_their_public_names() -> None:
    """As on the command line; what is wrong is said."""
    with Broker(settings={"num.partitions": 3, "auto.create.topics.enable": True}) as broker:
        assert broker.call(lambda core: core.settings.num_partitions) == 3
    with pytest.raises(BadSettings, match=r"num\.partition \(settings\)"):
        Broker(settings={"num.partition": 3}).start()


def test_a_port_that_is_taken_is_an_error_and_leaves_nothing_running() -> None:
    """The next start works."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        broker = Broker(port=taken.getsockname()[1])
        with pytest.raises(OSError, match="in use"):
            broker.start()
    with broker:
        fill(broker, b"a")


def test_it_says_when_it_does_not_run() -> None:
    """A name for the mistake, not an AttributeError."""
    broker = Broker()
    with pytest.raises(BrokerError, match="not running"):
        _ = broker.bootstrap
    with broker:
        with pytest.raises(BrokerError, match="already"):
            broker.start()
        broker.stop()
        broker.stop()


def test_no_thread_outlives_it(broker: Broker) -> None:
    """Neither after a stop nor after a crash."""
    before = set(threading.enumerate())
    with broker:
        fill(broker, b"a")
        broker.crash()
    assert set(threading.enumerate()) <= before


# -- faults ----------------------------------------------------------------------------


def test_a_failed_sync_refuses_writes_until_a_restart() -> None:
    """Nothing that failed is ever acked; the knob counts."""
    with Broker() as broker:
        fill(broker, b"a")
        failed = broker.faults.fail_fsync(path=open_file(broker))
        with Wire(broker.port) as wire:
            answer = wire.produce("t", make_batch([b"b"]))
            assert answer.error == ErrorCode.KAFKA_STORAGE_ERROR
        assert failed.hits == 1
        assert any(isinstance(error, JournalFailed) for error in broker.errors)
        broker.restart()
        fill(broker, b"c", create=False)
        assert values(broker)[-1] == b"c"
        assert values(broker)[0] == b"a"


def test_connections_are_cut() -> None:
    """Those that there are; new ones are welcome."""
    with Broker() as broker, Wire(broker.port) as wire:
        wire.create("t")
        assert broker.faults.cut_connections() == 1
        assert wire.is_closed_by_peer()
        assert values(broker) == []


def test_an_evicted_cache_reads_from_the_journal() -> None:
    """The same bytes."""
    with Broker() as broker:
        fill(broker, b"a")
        broker.faults.evict_cache()
        assert broker.call(lambda core: core.storage.log.cache.bytes) == 0
        assert values(broker) == [b"a"]


@pytest.mark.slow
def test_a_bucket_that_fails_is_tried_again() -> None:
    """Uploads fail, are torn, and come through in the end."""
    with Broker(settings={"ister.handoff.bytes": 1024, "ister.handoff.ms": 1}) as broker:
        torn = broker.faults.tear_uploads(times=1)
        failed = broker.faults.fail_uploads(times=1)
        fill(broker, b"a" * 4096)

        def tiered(core) -> bool:
            return all(each.tiered_end == 1 for each in core.storage.log.partitions.values())

        wait_for(lambda: broker.call(tiered))
        assert (torn.hits, failed.hits) == (1, 1)


def test_faults_come_from_the_seed() -> None:
    """The same seed, the same misfortune."""

    def struck(seed: int) -> list[int]:
        faults = Broker(seed=seed).faults
        fault = faults.fail_fsync(times=None, probability=0.5)
        hits = []
        for _ in range(32):
            faults.files.before("sync", "a file")
            hits.append(fault.hits)
        return hits

    assert struck(3) == struck(3)
    assert struck(3) != struck(4)


# -- nothing global --------------------------------------------------------------------

_COMPARE = """
import asyncio, gc, logging, os, signal, sys, threading, warnings

def state():
    # A handler may be an object that every import makes anew; its type says enough.
    signals = {each: signal.getsignal(each) for each in signal.valid_signals()}
    return {
        "gc": (gc.isenabled(), gc.get_threshold(), gc.get_freeze_count(), list(gc.callbacks)),
        "switch": sys.getswitchinterval(),
        "recursion": sys.getrecursionlimit(),
        "signals": signals,
        "wakeup": signal.set_wakeup_fd(-1),
        "logging": (logging.root.level, list(logging.root.handlers), logging.root.manager.disable,
                    logging.getLogger("asyncio").level),
        "warnings": list(warnings.filters),
        "policy": type(asyncio.get_event_loop_policy()),
        "hooks": (sys.excepthook, threading.excepthook, sys.unraisablehook, sys.displayhook),
        "umask": os.umask(os.umask(0o022)),
        "environment": dict(os.environ),
        "directory": os.getcwd(),
        "trace": (sys.gettrace(), sys.getprofile()),
    }

import structlog
before, structlog_before = state(), structlog.get_config()
from ister.testing import Broker
with Broker() as broker:
    during = state()
    broker.crash()
assert state() == before, (before, state())
assert during == before, (before, during)
assert structlog.get_config() == structlog_before
assert "ister.gateway.runtime" not in sys.modules  # it holds the settings of malloc
assert "aiohttp" not in sys.modules
"""


@pytest.mark.slow
def test_nothing_global_changes() -> None:
    """In a process of its own, where no other test has been."""
    done = subprocess.run(
        [sys.executable, "-c", _COMPARE], capture_output=True, text=True, timeout=SECONDS_MAX
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_the_plugin_imports_nothing_of_the_broker() -> None:
    """Everybody's test runs pay for it, whether they use the fixture or not."""
    code = (
        "import sys, ister.pytest_plugin\n"
        "heavy = [m for m in sys.modules if m.startswith(('ister.', 'structlog', 'asyncio'))]\n"
        "assert set(heavy) <= {'ister.pytest_plugin'} | set(sys.argv[1:]), heavy\n"
    )
    before = subprocess.run(
        [sys.executable, "-c", "import sys, pytest; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
        timeout=SECONDS_MAX,
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *before.stdout.split()],
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
    )
    assert done.returncode == 0, done.stderr


def test_the_fixture_is_a_broker_of_its_own(ister: Broker) -> None:
    """In memory, with nothing in it."""
    assert ister.running
    assert ister.call(lambda core: len(core.storage.catalog.topics_by_name)) == 0


@pytest.mark.ister(durable=True, settings={"num.partitions": 2})
def test_the_marker_makes_the_broker(ister: Broker, tmp_path: Path) -> None:
    """Options of `Broker`, and data in the test's own directory."""
    assert (tmp_path / "ister").is_dir()
    assert ister.call(lambda core: core.settings.num_partitions) == 2
