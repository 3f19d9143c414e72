"""Whose fetch it was: certain, ambiguous or nobody's."""

from __future__ import annotations

from ister.dispatch.attribution import (
    AMBIGUOUS,
    NO_GROUP,
    Attributed,
    Attribution,
    Certainty,
    Holder,
    Holding,
)

HOST = "10.0.0.1"


def one(group: str, member: str = "m", client: str = "app", partition: int = 0) -> Attribution:
    index = Attribution()
    index.set_group(group, [Holding(member, client, HOST, [("orders", partition)])])
    return index


def test_exactly_one_member_of_one_group() -> None:
    index = one("g")
    assert index.find("app", HOST, "orders", 0) == Attributed(Certainty.GROUP, "g", "m")
    assert index.holders("g") == {("orders", 0): Holder("m", "app", HOST, 0.0)}


def test_anything_else_is_no_group() -> None:
    """Another client id, address, topic or partition: a reader that joined nothing."""
    index = one("g")
    for key in [
        ("other", HOST, "orders", 0),
        ("app", "10.0.0.2", "orders", 0),
        ("app", HOST, "others", 0),
        ("app", HOST, "orders", 1),
    ]:
        assert index.find(*key) == NO_GROUP


def test_two_groups_with_one_client_id_on_one_host() -> None:
    """Ambiguous, never wrong; certain again when one of them is gone."""
    index = one("g")
    index.set_group("h", [Holding("n", "app", HOST, [("orders", 0)])])
    assert index.find("app", HOST, "orders", 0) == AMBIGUOUS
    index.remove_group("g")
    assert index.find("app", HOST, "orders", 0).group == "h"
    index.check()


def test_two_members_of_one_group_are_apart_by_what_they_hold() -> None:
    index = Attribution()
    index.set_group(
        "g",
        [
            Holding("a", "app", HOST, [("orders", 0)]),
            Holding("b", "app", HOST, [("orders", 1)]),
        ],
    )
    assert index.find("app", HOST, "orders", 0).member_id == "a"
    assert index.find("app", HOST, "orders", 1).member_id == "b"


def test_a_new_generation_replaces_the_old_one() -> None:
    index = one("g")
    before = index.version
    index.set_group("g", [Holding("m2", "app", HOST, [("orders", 3)])])
    assert index.version > before
    assert index.find("app", HOST, "orders", 0) == NO_GROUP
    assert index.find("app", HOST, "orders", 3).member_id == "m2"
    index.check()
