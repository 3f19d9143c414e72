"""Power cuts on a real process: a preloaded shim, and what puts the disk back.

`PowerCut(folder)` gives the environment for the process; kill it with SIGKILL, call
`restore`, and the data directory is what a power cut would have left.
"""

from ister.wal.tests.powercut.driver import PowerCut
from ister.wal.tests.powercut.restore import Restored, Unrestorable, restore

__all__ = ["PowerCut", "Restored", "Unrestorable", "restore"]
