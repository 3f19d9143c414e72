"""Skips: reasons on the list pass, others fail where CI=true."""

from __future__ import annotations

import subprocess
import sys

import pytest

from compat_tests import skips

TESTS = """
import pytest
from compat_tests import skips

def test_listed():
    pytest.skip(skips.NO_KCAT)

def test_other():
    pytest.skip("no time")

@pytest.mark.skipif(True, reason="no mood")
def test_mark(): ...

@pytest.mark.xfail(reason="known")
def test_xfail():
    raise ValueError
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ci", "expected"),
    [("true", "1 failed, 1 skipped, 1 xfailed, 1 error"), ("", "3 skipped, 1 xfailed")],
)
def test_only_listed_reasons(tmp_path, monkeypatch, ci, expected):
    (tmp_path / "test_it.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]")
    monkeypatch.setenv("CI", ci)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "compat_tests.skips", "-p"]
    done = subprocess.run(
        [*command, "no:cacheprovider", str(tmp_path), "-c", str(tmp_path / "pytest.ini")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert expected in done.stdout, done.stdout


def test_reasons():
    assert skips.allowed(f"Skipped: {skips.NO_KCAT}")
    assert skips.allowed("no promtool here: it is not in the archive")
    assert skips.allowed("no Prometheus here: it is not in the archive")
    assert not skips.allowed("no time")
