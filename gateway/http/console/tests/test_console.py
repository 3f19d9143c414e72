"""The console without scripts: what pages say, what forms do, and who may."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from ister.gateway.http.console.history import plot
from ister.gateway.http.console.messages import SHOWN_BYTES_MAX, shown
from ister.gateway.http.console.render import moment, number, size
from ister.gateway.http.console.tests.browser import Browser
from ister.gateway.http.guard import Policy
from ister.gateway.listeners import Address
from ister.gateway.protocol.api import ApiKey
from ister.gateway.protocol.messages import offset_commit
from ister.gateway.tests.wire_kit import Part, Wire
from ister.testing import Broker
from ister.wal.errors import JournalFailed
from ister.wal.tests.batches import make_batch

NASTY = "<script>alert(1)</script>"
GROUP = "a/b <i>"


def commit(broker: Broker, group: str, offset: int) -> None:
    partition = offset_commit.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_metadata=NASTY
    )
    topic = offset_commit.OffsetCommitRequestTopic(name="orders", partitions=(partition,))
    request = offset_commit.OffsetCommitRequest(group_id=group, member_id="", topics=(topic,))
    with Wire(broker.port) as wire:
        wire.request(offset_commit, ApiKey.OFFSET_COMMIT, 8, request)


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(http=True) as running:
        with Wire(running.port) as wire:
            wire.create("orders", 2)
            values = [b'{"id":1}', NASTY.encode(), b"\xff\xfe", None]
            headers = [[(b"h", b"x")], [], [], []]
            wire.produce("orders", make_batch(values, keys=[b"k"] * 4, headers=headers))
        commit(running, GROUP, 1)
        yield running


@pytest.fixture
def browser(broker: Broker) -> Browser:
    return Browser(broker)


# -- reading ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/", "All is well."),
        ("/topics", "orders"),
        ("/topics/orders", "In the bucket up to"),
        ("/topics/orders/messages", "&#34;id&#34;: 1"),
        ("/topics/orders/messages?partition=1", "Nothing here."),
        ("/groups", "a/b &lt;i&gt;"),
        ("/groups/a%2Fb%20%3Ci%3E", "Empty"),
        ("/subscriptions", "a/b &lt;i&gt;"),
        ("/receipts", "Was a record sent"),
        ("/handoff", "Waiting"),
        ("/clients", "connections"),
        ("/settings", "num.partitions"),
        ("/login", "No token is set"),
    ],
)
def test_every_page_can_be_read(browser: Browser, path: str, words: str) -> None:
    """Without a script, and with nothing of what clients wrote taken for HTML."""
    page = browser.get(path)
    assert page.status == 200
    assert words in page.text
    assert NASTY not in page.text
    assert "<i>" not in page.text
    assert "script-src 'self'" in page.headers["Content-Security-Policy"]
    assert page.headers["X-Frame-Options"] == "DENY"


def test_pages_load_nothing_from_elsewhere(browser: Browser) -> None:
    """No address of another server in any page, style or script."""
    for path in ("/", "/topics/orders", "/static/console.css", "/static/live.js"):
        page = browser.get(path)
        assert page.status == 200
        assert "http://" not in page.text
        assert "https://" not in page.text


def test_what_is_not_there(browser: Browser) -> None:
    """404 with words."""
    for path in ("/topics/x", "/groups/x", "/topics/orders/messages?partition=9", "/static/x"):
        assert browser.get(path).status == 404
    assert browser.get("/topics/orders/messages?offset=x").status == 400
    assert browser.get("/topics/orders/messages?time=x").status == 400


def test_what_is_wrong_comes_first(broker: Broker, browser: Browser) -> None:
    """In plain words, on the first page."""

    def fail(core) -> None:
        core.storage.log.journal.failed = JournalFailed("the disk said no")

    broker.call(fail)
    text = browser.get("/").text
    assert "the disk said no" in text
    assert "All is well" not in text


def test_messages_are_shown_as_what_they_are(browser: Browser) -> None:
    """JSON, text, bytes and null; keys and headers."""
    text = browser.get("/topics/orders/messages?offset=0").text
    assert '<pre class="json">' in text
    assert "&lt;script&gt;" in text
    assert '<pre class="bytes">ff fe</pre>' in text
    assert '<span class="quiet">null</span>' in text
    assert "<strong>h</strong>" in text


def test_messages_by_offset_and_time(broker: Broker, browser: Browser) -> None:
    """More than a page; from an offset, from a time, the newest first when live."""
    with Wire(broker.port) as wire:
        for number_ in range(120):
            batch = make_batch([b"n%d" % number_], base_timestamp=1_600_000_000_000 + number_)
            wire.produce("orders", batch, partition=1)
    live = browser.get("/topics/orders/messages?partition=1").text
    assert live.index("n119") < live.index("n70")
    assert '<pre class="text">n69</pre>' not in live
    first = browser.get("/topics/orders/messages?partition=1&offset=0").text
    assert first.index("n0<") < first.index("n49<")
    assert "offset=50" in first
    at = browser.get("/topics/orders/messages?partition=1&time=2020-09-13T12:26:40.100").text
    assert "n100<" in at
    assert "n99<" not in at


def test_a_read_that_fails_is_said_on_the_page(broker: Broker, browser: Browser) -> None:
    """The page is still a page."""

    def damage(core) -> None:
        core.storage.log.cache.evict_all()
        core.storage.log.journal.file.file._inner._inode.data[:] = bytes(
            len(core.storage.log.journal.file.file._inner._inode.data)
        )

    broker.call(damage)
    page = browser.get("/topics/orders/messages?offset=0")
    assert page.status == 200
    assert "cannot be read now" in page.text


def test_receipts_are_looked_up(broker: Broker, browser: Browser) -> None:
    """Sent to a reader, committed by a group; and what was never sent says what that means."""
    with Wire(broker.port) as wire:
        wire.fetch([("orders", [Part(0)])])
        wire.fetch([("orders", [Part(0, offset=4)])])  # a second one ends the first one's range
    wait = threading.Event()
    for _ in range(3_000):
        text = browser.get("/receipts?topic=orders&partition=0&offset=0").text
        if "sent once" in text:
            break
        wait.wait(0.01)
    assert "sent once" in text
    assert "client test" in text
    assert "group a/b &lt;i&gt;" in text  # it committed offset 1, so the record before it
    assert "&#34;id&#34;: 1" in text
    nothing = browser.get("/receipts?topic=orders&partition=1&offset=0").text
    assert "end before 0" in nothing
    for query in ("topic=x&partition=0&offset=0", "topic=orders&partition=9&offset=0"):
        assert "no such partition" in browser.get(f"/receipts?{query}").text


def test_the_brokers_own_topics_are_left_alone(broker: Broker, browser: Browser) -> None:
    """No forms on their pages, and none is taken."""
    with Wire(broker.port) as wire:
        wire.fetch([("orders", [Part(0)])])
    name = "__ister_receipts"
    browser.get("/receipts?topic=orders&partition=0&offset=0")
    wait = threading.Event()
    for _ in range(3_000):
        page = browser.get(f"/topics/{name}")
        if page.status == 200:
            break
        wait.wait(0.01)
    assert "<form" not in page.text
    refused = browser.submit("/topics", f"/topics/{name}/delete", confirm=name)
    assert refused.status == 400
    assert "own" in refused.text


# -- changing --------------------------------------------------------------------------


def test_a_topic_is_created_and_deleted(broker: Broker, browser: Browser) -> None:
    """With settings; deleting wants the name typed."""
    made = browser.submit(
        "/topics", "/topics", name="tea", partitions="3", configs="retention.ms=1000\n\n"
    )
    assert (made.status, made.headers["Location"]) == (303, "/topics/tea")
    assert "<td>1000</td><td>this topic</td>" in browser.get("/topics/tea").text
    kept = browser.submit("/topics/tea", "/topics/tea/delete", confirm="coffee")
    assert kept.status == 400
    gone = browser.submit("/topics/tea", "/topics/tea/delete", confirm="tea")
    assert (gone.status, gone.headers["Location"]) == (303, "/topics")
    assert browser.get("/topics/tea").status == 404


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"name": "orders", "partitions": "1"}, "TOPIC_ALREADY_EXISTS"),
        ({"name": "a b", "partitions": "1"}, "is invalid"),
        ({"name": "new", "partitions": "0"}, "between 1 and"),
        ({"name": "new", "partitions": "1", "configs": "retention.ms=soon"}, "retention.ms"),
        ({"name": "new", "partitions": "1", "configs": "nothing=1"}, "nothing"),
    ],
)
def test_what_the_broker_refuses_is_said(
    browser: Browser, fields: dict[str, str], words: str
) -> None:
    """The rules are those of every client."""
    page = browser.submit("/topics", "/topics", **fields)
    assert page.status == 400
    assert words in page.text


def test_a_test_message_is_written(browser: Browser) -> None:
    """And is on the page that follows."""
    answer = browser.submit(
        "/topics/orders", "/topics/orders/produce", partition="1", key="", value="hello"
    )
    assert answer.status == 303
    assert "hello" in browser.get(answer.headers["Location"]).text
    bad = browser.submit("/topics/orders", "/topics/orders/produce", partition="2", value="x")
    assert bad.status == 400


def test_a_group_is_moved_and_deleted(broker: Broker, browser: Browser) -> None:
    """Never outside of what there is."""
    page = "/groups/a%2Fb%20%3Ci%3E"
    for to, offset in (("latest", 4), ("earliest", 0), ("2", 2), ("99", 4)):
        answer = browser.submit(page, f"{page}/reset", topic="orders", to=to)
        assert (answer.status, answer.headers["Location"]) == (303, page)
        assert f'<td class="num">0</td><td class="num">{offset}</td>' in browser.get(page).text
    assert browser.submit(page, f"{page}/reset", topic="orders", to="x").status == 400
    assert browser.submit(page, f"{page}/reset", topic="x", to="latest").status == 400
    assert browser.submit(page, "/groups/x/reset", topic="orders", to="latest").status == 400
    assert browser.submit(page, f"{page}/delete", confirm="x").status == 400
    assert browser.submit(page, f"{page}/delete", confirm=GROUP).status == 303
    assert browser.get(page).status == 404


# -- who may ---------------------------------------------------------------------------


def test_a_form_of_another_site_is_refused(browser: Browser) -> None:
    """By its origin, and by the token that it cannot know."""
    fields = {"name": "evil", "partitions": "1"}
    token = browser.get("/topics").csrf
    strange = browser.post("/topics", {**fields, "csrf": token}, Origin="http://evil.example")
    assert strange.status == 403
    assert browser.post("/topics", fields).status == 403
    assert browser.post("/topics", {**fields, "csrf": "guess"}).status == 403
    browser.cookies.clear()
    assert browser.post("/topics", {**fields, "csrf": token}).status == 403
    assert browser.get("/topics/evil").status == 404


@pytest.mark.ister(http=True, settings={"ister.http.read.only": True})
def test_a_read_only_console_changes_nothing(ister: Broker) -> None:
    """No forms, and none is taken."""
    browser = Browser(ister)
    page = browser.get("/topics")
    assert "<form" not in page.text
    assert "read-only" in page.text
    token = browser.cookies["ister_csrf"]
    assert browser.post("/topics", {"name": "x", "partitions": "1", "csrf": token}).status == 403


@pytest.mark.ister(http=True, settings={"ister.http.token": "secret"})
def test_a_token_opens_it(ister: Broker) -> None:
    """By the login page, or as a bearer for scripts."""
    browser = Browser(ister)
    assert "<form" not in browser.get("/topics").text
    assert browser.submit("/login", "/login", **{"token": "wrong"}).status == 303
    assert "<form" not in browser.get("/topics").text
    assert browser.submit("/login", "/login", **{"token": "secret"}).status == 303
    assert "<form" in browser.get("/topics").text
    assert browser.submit("/topics", "/topics", name="t", partitions="1").status == 303
    other = Browser(ister)
    other.get("/topics")
    fields = {"name": "u", "partitions": "1", "csrf": other.cookies["ister_csrf"]}
    assert other.post("/topics", fields).status == 403
    assert other.post("/topics", fields, Authorization="Bearer secret").status == 303


def test_beyond_loopback_it_is_read_only(broker: Broker) -> None:
    """Unless a token is set: the policy of another address, on the same broker."""
    everywhere = Policy.of(broker.call(lambda core: core.settings), Address("0.0.0.0", 1))  # noqa: S104
    assert not everywhere.may_change(None)  # type: ignore[arg-type]


# -- small things ----------------------------------------------------------------------


def test_figures_for_people() -> None:
    """Bytes, counts, times."""
    assert [size(each) for each in (0, 1023, 1536, 5 << 30)] == [
        "0 B",
        "1023 B",
        "1.5 KiB",
        "5.0 GiB",
    ]
    assert [number(each) for each in (None, 1234567, 0.5, 12.3)] == ["-", "1,234,567", "0.5", "12"]
    assert moment(1_700_000_000_123) == "2023-11-14 22:13:20.123Z"
    assert moment(None) == moment(-1) == "-"
    assert moment(2**62) == str(2**62)


def test_plots() -> None:
    """From two values on; the highest touches the top."""
    assert plot([]) == plot([1]) == ""
    assert plot([0, 10]) == "0.0,38.0 240.0,2.0"
    assert plot([0, 0, 0]).count(",") == 3


def test_long_values_are_cut() -> None:
    """A page stays a page."""
    assert shown(b"x" * SHOWN_BYTES_MAX).is_cut is False
    assert shown(b"x" * (SHOWN_BYTES_MAX + 1)).is_cut is True
    assert len(shown(b"\xff" * 100_000).text) < 2_000
    assert shown(b"{" * 5000).kind == "text"
