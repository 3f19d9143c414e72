"""Deadlines: the earliest first, the last one set counts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ister.gateway.coordinator.timers import Timers


@given(
    st.lists(st.tuples(st.sampled_from("abcd"), st.none() | st.integers(0, 20)), max_size=200),
    st.integers(0, 20),
)
def test_timers_are_a_dictionary_of_deadlines(steps, now_ms):
    """Against a dictionary: what is next, what is due, what stays."""
    timers = Timers()
    model: dict[str, int] = {}
    for name, deadline_ms in steps:
        timers.set(name, deadline_ms)
        if deadline_ms is None:
            model.pop(name, None)
        else:
            model[name] = deadline_ms
    assert timers.next_deadline() == min(model.values(), default=None)
    due = timers.due(now_ms)
    assert sorted(due) == sorted(name for name, deadline in model.items() if deadline <= now_ms)
    assert [model[name] for name in due] == sorted(model[name] for name in due)
    assert len(timers) == len(model) - len(due)


def test_skipped_entries_do_not_pile_up():
    """A deadline that is set anew for ever takes bounded memory."""
    timers = Timers()
    for deadline_ms in range(10_000):
        timers.set("g", deadline_ms)
    assert len(timers._heap) < 200
    assert timers.next_deadline() == 9_999
