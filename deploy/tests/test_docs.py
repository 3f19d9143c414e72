"""The documents: fresh where they are made, links that lead somewhere, commands that exist."""

from __future__ import annotations

import functools
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from deploy import settings_page
from deploy.tests.files import ROOT
from ister.gateway.cli.main import app
from ister.gateway.settings import BY_NAME
from ister.gateway.topic_configs import TOPIC_CONFIGS
from ister.testing import Broker, Faults

DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.glob("*.md"), *DOCS.glob("runbook/*.md"), ROOT / "README.md"])
PAGE = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
OUTSIDE = re.compile(r"""(?:src=|<link[^>]*href=)["'](?:https?:)?//""")

pytestmark = pytest.mark.product


def test_every_setting_has_its_meaning() -> None:
    """A new setting is explained in deploy/settings.toml or where it stands; no old one is left."""
    meanings = settings_page.meanings()
    assert set(meanings["broker"]) <= set(BY_NAME)
    effective = {name for name, config in TOPIC_CONFIGS.items() if config.effect}
    assert set(meanings["topic"]) == effective
    assert [line for line in settings_page.page().splitlines() if line.endswith("|  |")] == []


def test_the_configuration_page_is_fresh() -> None:
    """`python -m deploy.settings_page` would change nothing."""
    assert settings_page.PAGE.read_text() == settings_page.page()


def test_the_site_builds(tmp_path: Path) -> None:
    """Every link and anchor leads somewhere, and no page loads anything from elsewhere."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict"]
    result = subprocess.run(
        [*command, "--site-dir", tmp_path], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    made = list(tmp_path.glob("**/*.html"))
    assert len(made) > len(PAGES) / 2
    assert [page.name for page in made if OUTSIDE.search(page.read_text())] == []


def test_a_link_that_leads_nowhere_fails_the_build(tmp_path: Path) -> None:
    """A check that cannot fail would say nothing."""
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "index.md").write_text("[gone](gone.md)\n")
    config = (ROOT / "mkdocs.yml").read_text()
    (tmp_path / "mkdocs.yml").write_text(config.partition("nav:\n  - ")[0])
    command = [sys.executable, "-m", "mkdocs", "build", "--strict"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert result.returncode != 0
    assert "gone.md" in result.stderr


def test_what_ci_runs_is_the_command_of_the_readme() -> None:
    """Both are the same line, so a reader runs what is run for every change."""
    command = (ROOT / ".ci" / "run").read_text().splitlines()[-1]
    assert f"```sh\n{command}\n```" in (ROOT / "README.md").read_text()


def test_links_of_the_readme() -> None:
    """Those into the repository."""
    links = re.findall(r"\]\(([^)#]+)", (ROOT / "README.md").read_text())
    assert [link for link in links if "://" not in link and not (ROOT / link).exists()] == []


@PAGE
def test_commands_exist(page: Path) -> None:
    """Every `ister ...` in code is a command, with options that it has."""
    assert [line for line in _commands(page) if not _exists(line.split())] == []


def test_a_command_that_does_not_exist_is_seen() -> None:
    """A check that cannot fail would say nothing."""
    assert _exists(["log", "verify", "DATA"])
    assert _exists(["serve", "--listen", "0.0.0.0:1"])
    assert not _exists(["log", "verfy", "DATA"])
    assert not _exists(["serve", "--lisen=0.0.0.0:1"])


@pytest.mark.slow
@pytest.mark.parametrize("page", ["README.md", "docs/quickstart.md"])
def test_the_first_example_runs(page: str) -> None:
    """The block is run as it stands, but for the port; it prints what the quick start says."""
    (block,) = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    assert len(block.splitlines()) <= 10
    with Broker() as broker:
        example = block.replace("127.0.0.1:9092", broker.bootstrap)
        result = subprocess.run(
            [sys.executable, "-c", example], capture_output=True, text=True, check=False, timeout=60
        )
    assert result.stdout == "greetings 0 0 b'hello, Ister'\n", result.stderr


@pytest.mark.slow
def test_the_examples_for_tests_run(tmp_path: Path) -> None:
    """Each Python block of the page is a test file; all pass."""
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / "testing.md").read_text(), re.DOTALL)
    assert len(blocks) >= 3
    for block in blocks:
        name = re.match(r"# (test_\w+\.py)\n", block)
        assert name
        (tmp_path / name[1]).write_text(block)
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:randomly", "-p", "ister.pytest_plugin"]
    result = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "-p", "no:ister", "."],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout


def test_faults_on_the_page_exist() -> None:
    """Names in the table of faults are knobs of `broker.faults`."""
    table = (DOCS / "testing.md").read_text().partition("| fault |")[2].partition("\n\n")[0]
    names = re.findall(r"`(\w+)`", "".join(line.split("|")[1] for line in table.splitlines()[2:]))
    assert len(names) > 10
    assert [name for name in names if not hasattr(Faults, name)] == []


def _commands(page: Path) -> Iterator[str]:
    """What stands behind `ister ` in fenced blocks and in backticks."""
    text = page.read_text().replace("\\\n", " ")
    blocks = re.findall(r"^```\w*\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    spans = re.findall(r"`(ister [^`]+)`", re.sub(r"^```.*?^```", "", text, flags=re.S | re.M))
    for line in [*(line for block in blocks for line in block.splitlines()), *spans]:
        found = re.match(r"(?:.*&& )?(?:\S*/)?ister (.*?)(?:\s+#.*)?$", line.strip())
        if found and not found[1].startswith("ready "):
            yield found[1]


@functools.cache
def _program() -> Any:
    return typer.main.get_command(app)


def _exists(words: list[str]) -> bool:
    """The words name commands down the tree; options are those of the last one."""
    command = _program()
    while words and hasattr(command, "commands") and not words[0].startswith("-"):
        if words[0] not in command.commands:
            return all(name in command.commands for name in words[0].split("|"))
        command = command.commands[words.pop(0)]
    known = {name for option in command.params for name in (*option.opts, *option.secondary_opts)}
    given = {word.partition("=")[0] for word in words if word.startswith("--")}
    return given <= known | {"--help"}
