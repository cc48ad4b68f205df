"""The assignors of the broker: every partition once, to who subscribes to it, balanced, with few moves."""

from __future__ import annotations

import random

import pytest

from embedded_kafka.groups.machine.assignors import ASSIGNORS, Wish, in_ranges, uniform
from embedded_kafka.groups.machine.consumer_value import NOTHING
from tests.embedded_kafka.groups.machine.consumer_tools import OTHER, TOPIC, shares

BOTH = frozenset({TOPIC, OTHER})
ONLY = frozenset({TOPIC})


def test_uniform_moves_no_more_than_the_newcomers_share() -> None:
    before = {"a": shares(0, 1, 2), "b": shares(3, 4, 5)}
    wishes = {each: Wish(None, ONLY) for each in "abc"}

    after = uniform(wishes, before, {TOPIC: 6})

    assert {each: len(found) for each, found in after.items()} == {"a": 2, "b": 2, "c": 2}
    assert after["a"] < before["a"]
    assert after["b"] < before["b"]


def test_uniform_gives_a_leavers_partitions_to_the_others_and_moves_nothing_else() -> None:
    after = uniform({each: Wish(None, ONLY) for each in "ab"}, {"a": shares(0, 1), "b": shares(2, 3)}, {TOPIC: 6})

    assert shares(0, 1) < after["a"]
    assert shares(2, 3) < after["b"]
    assert len(after["a"]) == len(after["b"]) == 3


def test_uniform_with_different_subscriptions_leaves_a_topic_to_those_who_want_it() -> None:
    wishes = {"a": Wish(None, BOTH), "b": Wish(None, ONLY)}

    assert uniform(wishes, {}, {TOPIC: 4, OTHER: 2}) == {
        "a": shares(0, 1, topic=OTHER) | shares(2),
        "b": shares(0, 1, 3),
    }


def test_ranges_are_cut_at_equal_places_of_equal_topics_and_static_members_come_first() -> None:
    wishes = {"a": Wish(None, BOTH), "z": Wish("i", BOTH)}

    assert in_ranges(wishes, {}, {TOPIC: 3, OTHER: 3}) == {
        "z": shares(0, 1) | shares(0, 1, topic=OTHER),
        "a": shares(2) | shares(2, topic=OTHER),
    }


@pytest.mark.parametrize("name", ASSIGNORS)
@pytest.mark.parametrize("seed", range(40))
def test_every_partition_has_one_owner_that_subscribes_to_it(name: str, seed: int) -> None:
    chance = random.Random(seed)
    topics = [bytes([number]) * 16 for number in range(chance.randrange(1, 5))]
    sizes = {topic: chance.randrange(1, 12) for topic in topics}
    wishes = {
        f"m{number}": Wish(None, frozenset(chance.sample(topics, chance.randrange(len(topics) + 1))))
        for number in range(chance.randrange(1, 8))
    }
    before = ASSIGNORS[name]({each: wishes[each] for each in list(wishes)[1:]}, {}, sizes)

    after = ASSIGNORS[name](wishes, before, sizes)

    assert set(after) == set(wishes)
    wanted = {(topic, at) for wish in wishes.values() for topic in wish.topics for at in range(sizes[topic])}
    assert sorted(share for found in after.values() for share in found) == sorted(wanted)
    assert all(topic in wishes[each].topics for each, found in after.items() for topic, _ in found)
    if name == "uniform" and len({wish.topics for wish in wishes.values()}) == 1:
        counts = [len(after.get(each, NOTHING)) for each in wishes]
        assert max(counts) - min(counts) <= 1
