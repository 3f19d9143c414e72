"""Power cuts at every operation on the file system, during recovery too (see `crash_kit`)."""

from __future__ import annotations

import random

import pytest

from ister.wal.memory_fs import MemoryFileSystem, Survivors
from ister.wal.memory_image import Survival
from ister.wal.tests.crash_kit import (
    LONG,
    Photograph,
    World,
    each_recovery,
    every_point,
    go_on,
    long_life,
    photograph,
    photographs,
    short_life,
    some_points,
    survive,
)

SEEDS = range(20 if LONG else 1)


PARTS = 4  # of one sweep, so that none takes minutes on a busy machine


def take(seed: int, share: float | None = None, part: int = 0, parts: int = 1) -> list[Photograph]:
    survivals = every_point(seed, part, parts) if share is None else some_points(seed, share)
    return photographs(World(MemoryFileSystem()), short_life, survivals)


def test_some_crash_points() -> None:
    """A sample of the sweep below, with a cut during recovery as well."""
    for left in take(1, 0.1):
        survive(left)
    for left in take(2, 0.03):
        for cut_again in each_recovery(left, 2, 0.1):
            survive(cut_again)


@pytest.mark.fault
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("seed", SEEDS)
def test_every_crash_point(seed: int, part: int) -> None:
    """Nothing durable is lost, no offset reused or skipped, nothing that was seen vanishes."""
    for left in take(seed, part=part, parts=PARTS):
        survive(left)


@pytest.mark.fault
@pytest.mark.parametrize("seed", SEEDS)
def test_every_crash_point_and_again_during_recovery(seed: int) -> None:
    """Recovery may be cut anywhere, and its successor again."""
    rng = random.Random(seed)
    for number, left in enumerate(take(seed, None if LONG else 0.25)):
        for cut_again in each_recovery(left, number, 0.3 if LONG else 0.06):
            survive(cut_again, again=rng.random() < 0.3)


@pytest.mark.fault
@pytest.mark.parametrize("part", range(2))
@pytest.mark.parametrize("seed", SEEDS)
def test_cuts_right_after_recovery(seed: int, part: int) -> None:
    """What recovery published holds, and so does all that is built on it at once."""
    for number, left in enumerate(take(seed, 0.3 if LONG else 0.02)):
        if number % 2 != part:
            continue

        def script(world: World) -> None:
            world.open()
            go_on(world)

        share = 0.5 if LONG else 0.1
        for taken in photographs(left.develop(), script, some_points(number, share)):
            survive(taken._replace(where=f"{left.where}; then {taken.where}"))


@pytest.mark.fault
@pytest.mark.parametrize("seed", range(200 if LONG else 12))
def test_a_chain_of_crashes(seed: int) -> None:
    """A broker that is cut again and again, at points far apart, with work in between."""
    rng = random.Random(seed)
    world = World(MemoryFileSystem())
    for _ in range(6):
        point = rng.randrange(1, 250)
        ways: list[Survival] = [*Survivors, rng]
        way = rng.choice(ways)
        taken = photographs(
            world,
            lambda world: long_life(world, rng),
            lambda at, point=point, way=way: [way] if at == point else [],  # type: ignore[misc]
        )
        left = taken[0] if taken else photograph(world, way, world.now(), "the end")
        world = left.develop()
    world.open()
    go_on(world)
