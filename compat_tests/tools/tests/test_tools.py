"""The cache of test tools: made once, whole or not at all."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from compat_tests.tools import c_compiler, cache


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "ister-tests"


@pytest.mark.usefixtures("empty_cache")
def test_a_tool_is_made_once():
    """The second call finds what the first one made."""
    made: list[Path] = []

    def make(path: Path) -> None:
        made.append(path)
        path.write_text("tool")

    first = cache.obtain("bin/tool-1", make)
    assert cache.obtain("bin/tool-1", make) == first
    assert first.read_text() == "tool"
    assert len(made) == 1


def test_a_tool_that_cannot_be_made_leaves_nothing(empty_cache: Path):
    """A path that exists is whole: a failed attempt is gone, and the next one starts anew."""

    def fail(path: Path) -> None:
        path.write_text("half")
        raise cache.ToolMissing("no network")

    with pytest.raises(cache.ToolMissing, match="no network"):
        cache.obtain("bin/tool-1", fail)
    assert [path.name for path in empty_cache.iterdir()] == ["locks"]
    assert cache.obtain("bin/tool-1", lambda path: path.touch()).exists()


@pytest.mark.usefixtures("empty_cache")
def test_whoever_comes_second_waits():
    """Two at once: one makes the tool, the other gets it without making it again."""
    making, go_on = threading.Event(), threading.Event()
    made: list[str] = []
    got: list[Path] = []

    def make(path: Path) -> None:
        made.append("first")
        making.set()
        assert go_on.wait(30)
        path.touch()

    def second(path: Path) -> None:
        made.append("second")
        path.touch()

    threads = [threading.Thread(target=lambda: got.append(cache.obtain("tool", make)))]
    threads[0].start()
    assert making.wait(30)
    threads.append(threading.Thread(target=lambda: got.append(cache.obtain("tool", second))))
    threads[1].start()
    go_on.set()
    for thread in threads:
        thread.join()
    assert made == ["first"]
    assert got[0] == got[1]


def test_a_failing_command_says_why():
    """The last lines of a failed build stand in the error."""
    command = [sys.executable, "-c", "print('no such module'); raise SystemExit(7)"]
    with pytest.raises(cache.ToolMissing, match=r"ended with 7:\nno such module"):
        cache.run(command)


def test_the_compiler_compiles(tmp_path: Path):
    """What `c_compiler` gives makes a shared library."""
    source = tmp_path / "shim.c"
    source.write_text("int seven(void) { return 7; }\n")
    library = tmp_path / "shim.so"
    subprocess.run([*c_compiler(), "-shared", "-fPIC", "-o", library, source], check=True)
    assert library.stat().st_size > 0
