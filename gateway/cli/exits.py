"""Exit codes, as promised: what each failure means to a script."""

from __future__ import annotations

import sys
from collections.abc import Callable

CLEAN = 0
FAILED = 1  # the broker said no, or cannot be reached
BAD_SETTINGS = 2
CONTRADICTION = 3  # data that contradicts itself, or a newer format
IN_USE = 4
DISK_FAILED = 5
CANNOT_LISTEN = 6


def guard(command: Callable[[], int]) -> int:
    """Run a command; failures that have a code are said in words, others keep their traceback."""
    from ister.metadata.errors import NewerFormat, StoreDamaged
    from ister.wal.errors import Contradiction, Damaged, InUse
    from ister.wal.tier import BadStoreUrl

    try:
        return command()
    except Damaged as error:
        say(
            f"{error}\nThe data is damaged. Put a good copy back, or start with "
            "--continue-past-damage: what is lost becomes a known hole that readers skip."
        )
        return CONTRADICTION
    except (Contradiction, StoreDamaged, NewerFormat) as error:
        say(str(error))
        return CONTRADICTION
    except InUse as error:
        from ister.gateway.cli.lock_owner import lock_owner

        owner = lock_owner(error.lock)
        say(f"{error}, {owner}" if owner else str(error))
        return IN_USE
    except FileNotFoundError as error:
        say(f"there is no {error.filename}")
        return BAD_SETTINGS
    except (NotADirectoryError, FileExistsError, PermissionError) as error:
        say(f"{error.filename}: {error.strerror}")
        return BAD_SETTINGS
    except BadStoreUrl as error:
        say(str(error))
        return BAD_SETTINGS


def say(text: str) -> None:
    print(f"ister: {text}", file=sys.stderr)
