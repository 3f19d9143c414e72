"""The command `ister`, also as `python -m ister.gateway`.

`--version` answers before the command line is loaded: scripts and probes ask for it often,
and it should cost no more than Python's own start.

`rich` is switched off in this process: structlog and typer load it wherever it is installed,
which takes a fifth of a broker's start, and nothing here is drawn with it.
"""

from __future__ import annotations

import sys
from types import ModuleType

import ister


def main() -> None:
    if sys.argv[1:] == ["--version"]:
        print(f"ister {ister.__version__}")
        return
    modules: dict[str, ModuleType | None] = sys.modules  # type: ignore[assignment]
    modules.setdefault("rich", None)  # importing it fails as if it were not there
    from ister.gateway.cli.main import app

    app(prog_name="ister")


if __name__ == "__main__":
    main()
