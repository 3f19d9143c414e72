"""The comparison itself: it sees what differs, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from compat_tests.brokers import Both
from compat_tests.differential.altering_proxy import AlteringProxy
from compat_tests.differential.compare import Disagreement, Mismatch, compare, play_to_both
from compat_tests.differential.generator import Generator
from compat_tests.differential.masks import KEYED, MASKS
from compat_tests.differential.rules import Rules, read_rules
from compat_tests.differential.shrink import shrink
from compat_tests.differential.steps import Step
from compat_tests.names import Names
from compat_tests.raw.layout import versions_of
from compat_tests.versions.scenarios import SCENARIOS

# One field per API that no mask and no rule touches.
ALTERED = {
    "alter_configs": "responses.error_code",
    "api_versions": "api_keys.min_version",
    "create_partitions": "results.error_code",
    "create_topics": "topics.num_partitions",
    "delete_groups": "results.error_code",
    "delete_records": "topics.partitions.low_watermark",
    "delete_topics": "responses.error_code",
    "describe_cluster": "controller_id",
    "describe_configs": "results.configs.config_source",
    "describe_groups": "groups.group_state",
    "describe_log_dirs": "results.topics.partitions.offset_lag",
    "describe_topic_partitions": "topics.partitions.leader_epoch",
    "elect_leaders": "replica_election_results.partition_result.error_code",
    "fetch": "responses.partitions.high_watermark",
    "find_coordinator": "coordinators.node_id",
    "heartbeat": "error_code",
    "incremental_alter_configs": "responses.error_code",
    "init_producer_id": "producer_epoch",
    "join_group": "generation_id",
    "leave_group": "members.error_code",
    "list_groups": "groups.protocol_type",
    "list_offsets": "topics.partitions.offset",
    "list_partition_reassignments": "error_code",
    "metadata": "topics.partitions.replica_nodes",
    "offset_commit": "topics.partitions.error_code",
    "offset_delete": "topics.partitions.error_code",
    "offset_fetch": "groups.topics.partitions.committed_offset",
    "offset_for_leader_epoch": "topics.partitions.end_offset",
    "produce": "responses.partition_responses.base_offset",
    "sync_group": "assignment",
}
_VERSION = {"init_producer_id": 5, "offset_fetch": 9}


@pytest.mark.slow
@pytest.mark.parametrize("api", sorted(SCENARIOS))
def test_one_altered_field_is_seen(both: Both, names: Names, api: str):
    """A broker that answers one field wrong does not pass."""
    version = _VERSION.get(api, versions_of(api)[-1])
    with AlteringProxy(both.ister, api, ALTERED[api]) as proxy:
        altered = Both(proxy.broker, both.kafka)
        with pytest.raises(Disagreement) as seen:
            play_to_both(altered, SCENARIOS[api](version, names), Rules.load())
        assert proxy.altered
    field = ALTERED[api].rpartition(".")[2]
    assert any(field in each.path for each in seen.value.mismatches)


def test_masks_leave_alone_what_counts():
    """No mask for error codes, offsets, counts, names or ordering."""
    for mask in MASKS:
        last = mask.field.rpartition(".")[2]
        assert "error_code" not in last
        assert "offset" not in last
        assert "count" not in last
        assert not last.endswith("name")
        assert mask.reason
    assert len({(each.api, each.path) for each in KEYED}) == len(KEYED)


def test_a_difference_is_told_by_its_path():
    """Items are paired by name; what only one has is absent in the other."""
    kafka = {"topics": [{"name": "a", "error_code": 3}, {"name": "b", "error_code": 0}]}
    ister = {"topics": [{"name": "a", "error_code": 0}]}
    found = compare(Step("metadata", 9), kafka, ister, Rules([]))
    assert found == [
        Mismatch("topics[a].error_code", 3, 0),
        Mismatch("topics[b]", {"name": "b", "error_code": 0}, "<absent>"),
    ]


def test_the_order_of_items_counts():
    """Two lists with the same items in another order differ."""
    items = [{"name": "a"}, {"name": "b"}]
    step = Step("describe_topic_partitions", 0)
    assert compare(step, {"topics": items}, {"topics": items[::-1]}, Rules([]))


def test_true_is_not_one():
    """Types are compared too."""
    assert compare(Step("metadata", 9), {"x": 1}, {"x": True}, Rules([]))


RULE = '| `fetch` | `version>=9, topics.topic=a|b` | `responses[*].x` | `3` | `"y"` | why |'


@pytest.mark.parametrize(
    ("version", "topic", "kafka", "ister", "excused"),
    [
        (9, "a", 3, "y", True),
        (9, "b", 3, "y", True),
        (8, "a", 3, "y", False),
        (9, "c", 3, "y", False),
        (9, "a", 4, "y", False),
        (9, "a", 3, "z", False),
    ],
)
def test_a_rule_excuses_exactly_two_answers(
    version: int, topic: str, kafka: Any, ister: Any, excused: bool
):
    """Condition, field and both answers have to be as it says."""
    rules = Rules(read_rules(RULE))
    step = Step("fetch", version, {"topics": [{"topic": topic}]})
    assert rules.allow(step, "responses[a].x", kafka, ister) == excused
    assert bool(rules.met) == excused
    assert not rules.allow(step, "responses[a].other", kafka, ister)


def test_a_seed_is_the_same_sequence():
    """Only names differ between two runs of a seed."""
    one, other = (repr(Generator(7, stem).moves()) for stem in ("aaa", "bbb"))
    assert one.replace("-aaa", "-bbb") == other
    assert repr(Generator(8, "aaa").moves()) != one


def test_the_shortest_sequence_is_found():
    """Moves that the mismatch does not need are left out."""
    mismatch = Mismatch("x.error_code", 0, 1)
    disagreement = Disagreement(9, Step("fetch", 9), [mismatch])

    def play(kept: list[int]) -> Disagreement | None:
        return disagreement if {2, 5} <= set(kept) else None

    failure = shrink(3, disagreement, [0, 1, 2, 3, 4, 5], play)
    assert failure.kept == [2, 5]
    assert "seed 3" in failure.report(range(6))
