"""`ister config`: every setting, its value, and where that came from."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from ister.gateway.cli.common import show
from ister.gateway.cli.exits import BAD_SETTINGS, say

DEFAULT = "default"


def config(
    file: Annotated[
        str | None, typer.Option("--config", metavar="FILE.toml", help="Settings.")
    ] = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="One setting; may be repeated."),
    ] = None,
    changed: Annotated[bool, typer.Option("--changed", help="Only what is not a default.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="JSON instead of a table.")] = False,
) -> None:
    """What `ister serve` would run with: file, environment and --set, later wins."""
    from ister.gateway.settings import BY_NAME, SECRETS, BadSettings, build, gather

    try:
        given = gather(file, os.environ, assignments or [])
        settings = build(given)
    except BadSettings as error:
        for problem in error.problems:
            say(problem)
        raise typer.Exit(BAD_SETTINGS) from None
    rows = []
    for name, field in sorted(BY_NAME.items()):
        value = getattr(settings, field.name)
        if name in SECRETS and value:
            value = "(set)"
        origin = given[name].origin if name in given else DEFAULT
        if not changed or origin != DEFAULT:
            rows.append({"name": name, "value": value, "origin": origin})
    if not as_json:  # as a settings file wants it, not as yes and no
        for row in rows:
            row["value"] = _toml(row["value"])
    show(rows, ("name", "value", "origin"), as_json)


def _toml(value: object) -> object:
    return str(value).lower() if isinstance(value, bool) else value
