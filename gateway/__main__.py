"""The command `ister`, also as `python -m ister.gateway`.

`--version` answers before the command line is loaded: scripts and probes ask for it often,
and it should cost no more than Python's own start.
"""

from __future__ import annotations

import sys

import ister


def main() -> None:
    if sys.argv[1:] == ["--version"]:
        print(f"ister {ister.__version__}")
        return
    from ister.gateway.cli.main import app

    app(prog_name="ister")


if __name__ == "__main__":
    main()
