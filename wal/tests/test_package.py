"""What the package promises to others."""

from __future__ import annotations

import subprocess
import sys

import ister.wal


def test_every_name_is_there() -> None:
    """Each is what its module has under that name."""
    for name in ister.wal.__all__:
        assert getattr(ister.wal, name).__name__ == name
    assert set(ister.wal.__all__) == set(ister.wal._PLACES)


def test_nothing_is_loaded_before_it_is_asked_for() -> None:
    """An error class does not cost a log."""
    code = (
        "import sys; from ister.wal import LogError\n"
        "assert 'ister.wal.log' not in sys.modules\n"
        "from ister.wal import Log\n"
        "assert 'ister.wal.log' in sys.modules"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
