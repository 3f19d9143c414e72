"""Every figure of the log in one run: appending, handoff, recovery, memory, heads.

    python -m bench.log [--mb 512] [--rounds 3]

Figures for people, never a verdict: machines differ and are shared, so what counts is the
ratio to the bare loop in the same run. Small batches get fewer bytes, or it would take hours.
"""

from __future__ import annotations

import argparse

from bench.footprint import measure as measure_footprint
from bench.journal import MiB, against_bare, handoff_cost
from bench.recovery import measure as measure_recovery
from ister.gateway.runtime import tune

PARTITIONS = [1, 100, 10_000]
SMALL_SHARE = 8  # a batch of 100 bytes costs about as much as one of 16 KB


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mb", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    total = args.mb * MiB
    tune()
    print("# memory and heads")
    measure_footprint()
    print("# appending, batches of 16 KB, handoff running")
    against_bare(total, 16384, PARTITIONS, args.rounds, handoff=True)
    print("# what handoff takes")
    for batch in (16384, 1024, 200):
        handoff_cost(total if batch > 8192 else total // SMALL_SHARE, batch, args.rounds)
    print("# opening after a crash")
    for batch in (16384, 1000, 100):
        measure_recovery(total if batch > 8192 else total // SMALL_SHARE, batch)


if __name__ == "__main__":
    main()
