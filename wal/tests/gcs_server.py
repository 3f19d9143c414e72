"""A real emulator of Google Cloud Storage for tests: fake-gcs-server, one per session.

The program comes from `compat_tests.tools`, built once per machine. It listens
on loopback, on a free port, and keeps everything in memory. It enforces preconditions on
uploads only, which is all that the store relies on.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from compat_tests.tools import fake_gcs_server

BUCKET = "ister-tests"
START_TRIES_MAX = 500  # 20 ms each

_prefixes = itertools.count(1)


@contextlib.contextmanager
def running(log: Path) -> Iterator[str]:
    """The server's address, for as long as the block lasts."""
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    command = [str(fake_gcs_server()), "-host", "127.0.0.1", "-scheme", "http", "-port", str(port)]
    command += ["-public-host", f"127.0.0.1:{port}", "-external-url", address]
    command += ["-backend", "memory", "-log-level", "warn"]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
        try:
            _wait_until_ready(process, address, log)
            yield address
        finally:
            process.terminate()
            process.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def new_client(address: str, transport: Any = None) -> Any:
    """A client of the real library for the emulator."""
    from google.auth.credentials import AnonymousCredentials
    from google.cloud import storage  # type: ignore[import-untyped]

    return storage.Client(
        project="emulator",
        credentials=AnonymousCredentials(),  # type: ignore[no-untyped-call]
        client_options={"api_endpoint": address},
        _http=transport,
    )


def new_prefix() -> str:
    """A corner of the bucket that no other test has."""
    return f"test-{next(_prefixes)}"


@pytest.fixture(scope="session")
def gcs_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of an emulator that has the bucket `BUCKET`."""
    with running(tmp_path_factory.mktemp("gcs") / "server.log") as address:
        client = new_client(address)
        client.create_bucket(BUCKET)
        client.close()
        yield address


def _wait_until_ready(process: subprocess.Popen[bytes], address: str, log: Path) -> None:
    for _ in range(START_TRIES_MAX):
        with contextlib.suppress(urllib.error.URLError, OSError):
            urllib.request.urlopen(f"{address}/_internal/healthcheck", timeout=5).close()  # noqa: S310
            return
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=0.02)
            break
    pytest.fail(f"the emulator did not start: {log.read_text()}")
