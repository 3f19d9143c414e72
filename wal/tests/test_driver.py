"""Lanes: order, answers on the owner, errors, and the way back without an eventfd."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from ister.wal import driver as lanes
from ister.wal.driver import InlineDriver, ThreadDriver

MANY = 2000


def run(test: Callable[[ThreadDriver], Any]) -> None:
    """`test` is a coroutine function; the driver is closed behind it."""

    async def main() -> None:
        driver = ThreadDriver(asyncio.get_running_loop())
        try:
            await test(driver)
        finally:
            driver.close()

    asyncio.run(main())


@pytest.fixture(params=["eventfd", "pipe"])
def _way_back(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """macOS has no eventfd."""
    if request.param == "pipe":
        monkeypatch.delattr(os, "eventfd", raising=False)
    elif not hasattr(os, "eventfd"):
        pytest.skip("no eventfd here")


@pytest.mark.usefixtures("_way_back")
def test_a_lane_of_width_one_keeps_its_order() -> None:
    """Work in the order of the calls, one at a time; answers too, and on the owner's thread."""

    async def test(driver: ThreadDriver) -> None:
        owner = threading.get_ident()
        worked: list[int] = []
        answered: list[int] = []
        finished = asyncio.Event()

        def done(number: int, error: BaseException | None) -> None:
            assert error is None
            assert threading.get_ident() == owner
            answered.append(number)
            if number == MANY - 1:
                finished.set()

        def work(number: int) -> int:
            assert threading.get_ident() != owner
            worked.append(number)
            return number

        for number in range(MANY):
            driver.submit(lanes.JOURNAL, partial(work, number), done)
        await asyncio.wait_for(finished.wait(), 60)
        assert worked == answered == list(range(MANY))

    run(test)


@pytest.mark.usefixtures("_way_back")
def test_no_wake_up_is_lost_between_many_threads() -> None:
    """Answers from all lanes at once all arrive."""

    async def test(driver: ThreadDriver) -> None:
        left = MANY
        finished = asyncio.Event()

        def done(_: None, __: BaseException | None) -> None:
            nonlocal left
            left -= 1
            if not left:
                finished.set()

        for number in range(MANY):
            lane = [*lanes.LANE_WIDTHS][number % len(lanes.LANE_WIDTHS)]
            driver.submit(lane, lambda: None, done)
        await asyncio.wait_for(finished.wait(), 60)

    run(test)


def test_an_error_goes_to_its_answer_and_a_failing_answer_to_the_loop() -> None:
    """Those behind them come all the same."""

    async def test(driver: ThreadDriver) -> None:
        told: list[BaseException | None] = []
        seen: list[dict[str, Any]] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: seen.append(context))
        finished = asyncio.Event()

        def fail() -> None:
            raise OSError("the disk")

        def broken(_: None, error: BaseException | None) -> None:
            raise RuntimeError("the answer")

        driver.submit(lanes.FILES, fail, lambda _, error: told.append(error))
        driver.submit(lanes.FILES, lambda: None, broken)
        driver.submit(lanes.FILES, lambda: None, lambda _, error: finished.set())
        await asyncio.wait_for(finished.wait(), 60)
        assert [str(error) for error in told] == ["the disk"]
        assert [str(context["exception"]) for context in seen] == ["the answer"]

    run(test)


def test_closing_finishes_what_was_submitted() -> None:
    """Work and answers; no thread stays."""
    before = threading.active_count()
    answered: list[int] = []

    def note(number: int, _: BaseException | None) -> None:
        answered.append(number)

    async def test(driver: ThreadDriver) -> None:
        for number in range(50):
            driver.submit(lanes.HANDOFF, partial(int, number), note)

    run(test)
    assert answered == list(range(50))
    assert threading.active_count() == before


def test_inline_everything_runs_in_the_order_of_the_calls() -> None:
    """Step by step, so that a crash can be placed between any two."""
    driver = InlineDriver()
    order: list[str] = []
    driver.call_soon(lambda: order.append("call"))
    driver.submit(lanes.READ, lambda: order.append("work"), lambda _, __: order.append("done"))
    driver.post(lambda: order.append("post"))
    assert driver.step()
    assert order == ["call"]
    driver.run_until_idle()
    assert order == ["call", "work", "done", "post"]
    assert not driver.step()
