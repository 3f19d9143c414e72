"""The console in a real browser: pages, changes, live updates, dark, small, accessible.

Screenshots are left in `artifacts/console`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from axe_core_python.selenium import Axe  # type: ignore[import-untyped]
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

from compat_tests.tools import browser as tool
from compat_tests.tools.cache import ToolMissing
from ister.gateway.http.console.tests.test_console import GROUP, commit
from ister.gateway.tests.wire_kit import Wire
from ister.testing import Broker
from ister.wal.tests.batches import make_batch

pytestmark = [pytest.mark.product, pytest.mark.slow]

ARTIFACTS = Path(__file__).parents[4] / "artifacts" / "console"
SECONDS_MAX = 60
PAGES = (
    "/",
    "/topics",
    "/topics/orders",
    "/topics/orders/messages",
    "/groups",
    "/groups/a%2Fb%20%3Ci%3E",
    "/subscriptions",
    "/receipts?topic=orders&partition=0&offset=1",
    "/handoff",
    "/clients",
    "/settings",
    "/login",
)
DARK_PAGES = ("/", "/topics/orders", "/topics/orders/messages")
PHONE = (360, 740)


class Window:
    """One browser window on one broker's console."""

    def __init__(self, driver: webdriver.Chrome, url: str) -> None:
        self.driver = driver
        self._url = url

    def open(self, path: str) -> None:
        self.driver.get(self._url + path)

    def find(self, css: str) -> WebElement:
        return self.driver.find_element(By.CSS_SELECTOR, css)

    def fill(self, css: str, text: str) -> None:
        field = self.find(css)
        field.clear()
        field.send_keys(text)

    def wait(self, condition: Callable[[], Any]) -> None:
        WebDriverWait(self.driver, SECONDS_MAX, 0.1).until(lambda _: condition())

    def shows(self, words: str) -> bool:
        return words in self.driver.page_source

    def complaints(self) -> list[Any]:
        """What the browser's console has said since the last question."""
        return list(self.driver.get_log("browser"))  # type: ignore[no-untyped-call]

    def shoot(self, name: str) -> None:
        ARTIFACTS.mkdir(parents=True, exist_ok=True)
        self.driver.save_screenshot(str(ARTIFACTS / f"{name}.png"))


@pytest.fixture(scope="module")
def driver() -> Iterator[webdriver.Chrome]:
    try:
        programs = tool()
    except ToolMissing as missing:
        pytest.skip(str(missing))
    options = webdriver.ChromeOptions()
    options.binary_location = programs.chromium
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    # The driver and the browser talk over loopback: no proxy of the machine in between.
    os.environ["NO_PROXY"] = "127.0.0.1,localhost"
    made = webdriver.Chrome(options, Service(programs.driver))
    made.set_script_timeout(SECONDS_MAX)
    yield made
    made.quit()


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(http=True) as running:
        with Wire(running.port) as wire:
            wire.create("orders", 2)
            wire.create("payments", 6, retention_ms="86400000")
            for number in range(40):
                values = [b'{"order": %d, "item": "tea", "paid": true}' % number]
                wire.produce("orders", make_batch(values, keys=[b"customer-%d" % (number % 7)]))
        commit(running, GROUP, 12)
        yield running


@pytest.fixture
def window(driver: webdriver.Chrome, broker: Broker) -> Window:
    driver.set_window_size(1200, 800)
    driver.delete_all_cookies()
    driver.get_log("browser")  # type: ignore[no-untyped-call]
    return Window(driver, broker.http_url)


# What dark changes is colours, and a few pages have them all.
@pytest.mark.parametrize(("scheme", "pages"), [("light", PAGES), ("dark", DARK_PAGES)])
def test_pages_are_sound(window: Window, scheme: str, pages: tuple[str, ...]) -> None:
    """No complaint of the browser, and none of the rules of accessibility."""
    window.driver.execute_cdp_cmd(
        "Emulation.setEmulatedMedia",
        {"features": [{"name": "prefers-color-scheme", "value": scheme}]},
    )
    axe = Axe()
    for path in pages:
        window.open(path)
        assert window.complaints() == [], path
        found = axe.run(window.driver, options={"resultTypes": ["violations"]})["violations"]
        told = [(each["id"], each["nodes"][0]["html"]) for each in found]
        assert told == [], path
        window.complaints()  # those of the rules themselves are not the page's
    window.open("/")
    window.shoot(f"overview-{scheme}")
    window.open("/topics/orders/messages")
    window.shoot(f"messages-{scheme}")
    window.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_it_fits_a_phone(window: Window) -> None:
    """No page is wider than the screen; tables scroll inside."""
    width, height = PHONE
    window.driver.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": height, "deviceScaleFactor": 2, "mobile": True},
    )
    try:
        for path in PAGES:
            window.open(path)
            wide = window.driver.execute_script("return document.documentElement.scrollWidth")
            assert wide <= width, path
        window.open("/topics/orders")
        window.shoot("phone")
    finally:
        window.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_messages_appear_by_themselves(window: Window, broker: Broker) -> None:
    """Live: written elsewhere, seen here without a reload."""
    window.open("/topics/orders/messages?partition=1")
    window.driver.execute_script("window.stillHere = true")
    assert window.shows("Nothing here.")
    with Wire(broker.port) as wire:
        wire.produce("orders", make_batch([b"fresh from elsewhere"]), partition=1)
    window.wait(lambda: window.shows("fresh from elsewhere"))
    assert window.driver.execute_script("return window.stillHere") is True
    assert window.complaints() == []


def test_a_topic_is_made_written_to_and_deleted(window: Window) -> None:
    """By mouse and keyboard, through the forms."""
    window.open("/topics")
    window.find("details summary").click()
    window.fill("input[name=name]", "coffee")
    window.fill("textarea[name=configs]", "retention.ms=60000")
    window.find("details button").click()
    window.wait(lambda: window.driver.current_url.endswith("/topics/coffee"))
    write, delete = window.driver.find_elements(By.CSS_SELECTOR, "details summary")
    write.send_keys(Keys.ENTER)
    window.fill("textarea[name=value]", "two sugars")
    window.find("details[open] button").click()
    window.wait(lambda: window.shows("two sugars"))
    window.open("/topics/coffee")
    write, delete = window.driver.find_elements(By.CSS_SELECTOR, "details summary")
    delete.click()
    window.fill("input[name=confirm]", "coffee")
    window.find("button.danger").click()
    window.wait(lambda: window.driver.current_url.endswith("/topics"))
    assert not window.shows("coffee")
    assert window.complaints() == []


def test_a_group_is_moved(window: Window) -> None:
    """The lag on the page follows."""
    window.open("/groups/a%2Fb%20%3Ci%3E")
    assert window.shows(">28<")  # 40 records, 12 of them committed
    window.find("details summary").click()
    window.fill("input[name=to]", "latest")
    window.find("details[open] button").click()
    window.wait(lambda: window.shows(">40<") and not window.shows(">28<"))
    window.shoot("group")


def test_it_can_be_read_without_scripts(window: Window) -> None:
    """Every page shows the same with JavaScript off."""
    window.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        window.open("/topics/orders/messages?offset=3")
        assert "tea" in window.find("main").text
        window.open("/")
        assert "All is well" in window.find("main").text
    finally:
        window.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
