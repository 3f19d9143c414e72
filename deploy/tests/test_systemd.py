"""The unit: right for systemd, hardened, and its command is one that exists."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from compat_tests.skips import NO_SYSTEMD
from deploy.tests.files import DEPLOY, serve_options
from ister.gateway.cli import exits

UNIT = DEPLOY / "systemd" / "ister.service"
PROGRAM = "/opt/ister/bin/ister"
HARDENED = (
    "DynamicUser",
    "ProtectHome",
    "PrivateTmp",
    "PrivateDevices",
    "ProtectKernelTunables",
    "ProtectKernelModules",
    "ProtectControlGroups",
    "NoNewPrivileges",
    "RestrictSUIDSGID",
    "RestrictNamespaces",
    "LockPersonality",
    "MemoryDenyWriteExecute",
)

pytestmark = pytest.mark.product


def _settings() -> dict[str, list[str]]:
    found = defaultdict(list)
    for key, value in re.findall(r"^(\w+)=(.*)$", UNIT.read_text(), re.MULTILINE):
        found[key].append(value)
    return found


def _verify(text: str, folder: Path) -> str:
    """What systemd says about our unit. It says it on stderr and may exit 0 all the same."""
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip(NO_SYSTEMD)
    unit = folder / UNIT.name
    unit.write_text(text.replace(PROGRAM, sys.executable))
    result = subprocess.run(
        [program, "verify", unit], capture_output=True, text=True, check=False, timeout=60
    )
    lines = result.stderr.splitlines()
    return "\n".join(line for line in lines if UNIT.name in line)


def test_systemd_has_nothing_to_say(tmp_path: Path) -> None:
    assert _verify(UNIT.read_text(), tmp_path) == ""


def test_systemd_sees_a_misspelt_key(tmp_path: Path) -> None:
    """A check that cannot fail would say nothing."""
    text = UNIT.read_text().replace("ProtectHome=", "ProtectHouse=")
    assert "ProtectHouse" in _verify(text, tmp_path)


def test_it_is_hardened() -> None:
    """It sees its data directory and the network, and may do nothing else."""
    settings = _settings()
    assert {name: settings[name] for name in HARDENED} == {name: ["yes"] for name in HARDENED}
    assert settings["ProtectSystem"] == ["strict"]
    assert settings["CapabilityBoundingSet"] == [""]
    assert settings["SystemCallFilter"][0] == "@system-service"


def test_the_command_is_one_that_exists() -> None:
    """And its data are in the directory that systemd makes for it."""
    settings = _settings()
    program, *arguments = settings["ExecStart"][0].split()
    assert program == PROGRAM
    assert serve_options(arguments)["data"] == f"/var/lib/{settings['StateDirectory'][0]}"


def test_no_restart_where_it_would_not_help() -> None:
    """By the promised exit codes. A failed disk is tried again: opening decides what holds."""
    final = {int(code) for code in _settings()["RestartPreventExitStatus"][0].split()}
    assert final == {exits.BAD_SETTINGS, exits.CONTRADICTION, exits.IN_USE}
