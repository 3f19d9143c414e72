"""Where the files of a deployment are, and how the broker's command line reads their arguments."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer
import yaml

from ister.gateway.cli.main import app

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"


def load_yaml(path: Path) -> Any:
    with path.open() as file:
        return yaml.safe_load(file)


def serve_options(arguments: Sequence[str]) -> dict[str, Any]:
    """The options of `ister serve ...`, read by the real command; nothing is started.

    An option that the command does not have raises."""
    program = typer.main.get_command(app)
    assert arguments[0] == "serve"
    command = program.commands["serve"]  # type: ignore[attr-defined]
    context = command.make_context("ister serve", list(arguments[1:]))
    options: dict[str, Any] = context.params
    return options
