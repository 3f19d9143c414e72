"""The container file: clean for its linter, pinned, not root, with a command that exists."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from deploy.tests.files import DEPLOY, ROOT, serve_options
from ister.testing import container

DOCKERFILE = DEPLOY / "container" / "Dockerfile"
LOCK = DEPLOY / "container" / "requirements.txt"

pytestmark = pytest.mark.product


def _instructions() -> list[tuple[str, str]]:
    text = re.sub(r"^#.*\n", "", DOCKERFILE.read_text(), flags=re.MULTILINE)
    lines = text.replace("\\\n", " ").splitlines()
    return [(line.split(None, 1)[0], line.split(None, 1)[1]) for line in lines if line.strip()]


def _last(name: str) -> str:
    return [value for instruction, value in _instructions() if instruction == name][-1]


def test_hadolint(tmp_path: Path) -> None:
    """Nothing to say about ours, something about a bad one."""
    program = Path(sys.executable).with_name("hadolint")
    result = subprocess.run([program, DOCKERFILE], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout) == (0, "")
    bad = tmp_path / "Dockerfile"
    bad.write_text("FROM debian:latest\nRUN sudo apt-get install curl\n")
    assert subprocess.run([program, bad], capture_output=True, check=False).returncode != 0


def test_bases_are_pinned() -> None:
    """By a full version: three numbers and the distribution."""
    bases = [value.split()[0] for name, value in _instructions() if name == "FROM"]
    assert len(set(bases)) == 1
    assert re.fullmatch(r"python:\d+\.\d+\.\d+-slim-\w+", bases[0])


def test_it_does_not_run_as_root() -> None:
    """A number, because Kubernetes cannot tell by a name."""
    user, _, group = _last("USER").partition(":")
    assert int(user) == int(group) > 0
    order = [name for name, _ in _instructions()]
    assert "RUN" not in order[len(order) - order[::-1].index("USER") :]


def test_the_command_is_one_that_exists() -> None:
    """Entry point, command, ports and volume say the same, and `IsterContainer` with them."""
    assert json.loads(_last("ENTRYPOINT")) == ["ister"]
    options = serve_options(json.loads(_last("CMD")))
    assert options["data"] == container.DATA == _last("VOLUME") == _last("WORKDIR")
    ports = [address.rpartition(":")[2] for address in (*options["listen"], options["http"])]
    assert ports == _last("EXPOSE").split()
    assert ports == [str(container.KAFKA_PORT), str(container.HTTP_PORT)]
    assert f":{ports[1]}/readyz" in _last("HEALTHCHECK")


def test_every_dependency_is_locked() -> None:
    """Each of pyproject.toml, in its range, by version and hash; a new one needs a new lock."""
    locked = dict(re.findall(r"^([\w.-]+)==([^ ;\\]+)", LOCK.read_text(), re.MULTILINE))
    entries = re.split(r"^(?=[\w.-]+==)", LOCK.read_text(), flags=re.MULTILINE)[1:]
    assert all("--hash=sha256:" in entry for entry in entries)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for text in [*project["dependencies"], *project["optional-dependencies"]["gcs"]]:
        wanted = Requirement(text)
        assert wanted.name.lower() in locked, "renew the lock: its first lines say how"
        assert locked[wanted.name.lower()] in wanted.specifier


def test_the_build_leaves_out_what_the_wheel_is_not_made_of() -> None:
    """Neither the history nor environments nor somebody's data go into the build."""
    ignored = (DEPLOY / "container" / "Dockerfile.dockerignore").read_text().splitlines()
    assert {".git", ".venv", ".tox", "ister-data", "**/tests"} <= set(ignored)
    packages = {path.name for path in ROOT.glob("*/__init__.py")} | {"ister", "pyproject.toml"}
    linked = {path.resolve().name for path in (ROOT / "ister").iterdir() if path.is_symlink()}
    assert not (packages | linked | {"deploy"}) & set(ignored)
