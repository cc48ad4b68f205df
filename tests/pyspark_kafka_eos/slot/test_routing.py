"""Where a slot's rows go, without a broker: the cluster is a value that knows topics and their limits."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from kafka_core import runtime
from kafka_core.errors import InvalidRow, RecordTooLarge, RetriableError, UnknownTopic
from kafka_core.values import TopicPartition
from pyspark_kafka_eos.client.definite import NEW_TOPIC_MS
from pyspark_kafka_eos.client.topic_info import TopicInfo
from pyspark_kafka_eos.model import ClientSettings, RoutedTopic, Routes
from pyspark_kafka_eos.records import Section
from pyspark_kafka_eos.slot.plan import WritePlan
from pyspark_kafka_eos.slot.routing import Router

_names = itertools.count()


@dataclass
class Topics:
    """A cluster as far as routing asks it: partitions and max.message.bytes of each topic, and what was asked."""

    partitions: dict[str, int]
    limits: dict[str, int] = field(default_factory=dict)
    # A worker remembers limits by cluster: each test has one of its own.
    settings: ClientSettings = field(default_factory=lambda: ClientSettings((f"nowhere-{next(_names)}:1",)))
    asked: list[tuple[str, int]] = field(default_factory=list)
    limits_asked: list[str] = field(default_factory=list)
    known: dict[str, int] = field(default_factory=dict)
    refreshed: list[str] = field(default_factory=list)
    """Topics whose partitions were asked for anew. Without that a process remembers those it asked for first."""

    def pause(self, delay_ms: float) -> None:
        """Nothing is waited for."""

    def topic(self, name: str, *, refresh: bool = False, new_topic_ms: int = NEW_TOPIC_MS) -> TopicInfo:
        self.asked.append((name, new_topic_ms))
        if refresh:
            self.refreshed.append(name)
        if name not in self.partitions:
            raise UnknownTopic(f"topic {name!r} does not exist", {"topic": name})
        if refresh or name not in self.known:
            self.known[name] = self.partitions[name]
        return TopicInfo(name, (1,) * self.known[name], topic_id=f"id of {name}")

    def topic_id(self, name: str) -> str:
        return f"id of {name}" if name in self.known else ""

    def build(self, request_class: Any, **fields: Any) -> Any:
        return SimpleNamespace(**fields)

    def call_any(self, request: Any) -> Any:
        (resource,) = request.resources
        self.limits_asked.append(resource.resource_name)
        limit = self.limits.get(resource.resource_name, 1_048_588)
        entry = SimpleNamespace(name="max.message.bytes", value=str(limit))
        return SimpleNamespace(results=[SimpleNamespace(error_code=0, configs=[entry])])


def plan(topic: str | None = None, **more: Any) -> WritePlan:
    return WritePlan(
        pipeline="p",
        batch_id=3,
        client=ClientSettings(("nowhere:1",)),
        topic=topic,
        transaction_timeout_ms=60_000,
        **{"compression": "none", "batch_bytes": 1_000_000, "delivery_timeout_ms": 1_000, **more},
    )


def router(topics: Topics, how: WritePlan, slot: int = 0) -> Router:
    return Router(topics, how, slot)  # type: ignore[arg-type]


def rows(values: list[Any], **columns: list[Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {"value": pa.array(values, pa.string())} | {name: pa.array(each) for name, each in columns.items()}
    )


def went(routes: Router, sections: Iterable[Section]) -> dict[str, int]:
    """How many records each partition has of these sections."""
    found: dict[str, int] = {}
    for section in sections:
        where = str(routes.where(section))
        found[where] = found.get(where, 0) + section.count
    return found


def packed(routes: Router, batch: pa.RecordBatch) -> dict[str, int]:
    return went(routes, [*routes.pack(batch), *routes.flush()])


def test_the_option_wins_over_the_rows_topics() -> None:
    routes = router(Topics({"a": 1, "b": 1}), plan("a"))
    assert packed(routes, rows(["1", "2"], topic=["b", None])) == {"a-0": 2}


def test_rows_go_to_the_topics_and_partitions_that_they_name() -> None:
    routes = router(Topics({"a": 2, "b": 3}), plan())

    batch = rows(["1", "2", "3"], topic=["b", "a", "b"], partition=[2, 1, 0])

    assert packed(routes, batch) == {"a-1": 1, "b-0": 1, "b-2": 1}


def test_a_partition_that_was_added_since_the_process_asked_is_written_to() -> None:
    """Spark keeps workers for days. With a topic's first metadata a row for a new partition was refused until the
    cluster was restarted.
    """
    topics = Topics({"a": 2})
    packed(router(topics, plan("a")), rows(["1"]))
    topics.partitions["a"] = 4

    assert packed(router(topics, plan("a")), rows(["2"], partition=[3])) == {"a-3": 1}
    assert topics.refreshed == ["a"]


def test_partitions_are_asked_for_again_as_often_as_the_users_setting_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = ClientSettings((f"nowhere-{next(_names)}:1",), metadata_max_age_ms=60_000)
    topics, now = Topics({"a": 1}, settings=settings), 1_000.0
    monkeypatch.setattr(runtime, "monotonic", lambda: now)
    packed(router(topics, plan("a")), rows(["1"]))
    topics.partitions["a"] = 3

    now += 59
    assert packed(router(topics, plan("a"), slot=2), rows(["2"])) == {"a-0": 1}
    now += 2
    assert packed(router(topics, plan("a"), slot=2), rows(["3"])) == {"a-2": 1}
    assert topics.refreshed == ["a"]


def test_a_partition_that_was_added_while_the_task_runs_is_the_next_attempts() -> None:
    topics = Topics({"a": 2})
    routes = router(topics, plan("a"))
    packed(routes, rows(["1"], partition=[1]))
    topics.partitions["a"] = 4

    with pytest.raises(RetriableError, match="has more partitions") as refused:
        routes.pack(rows(["2"], partition=[3]))

    assert refused.value.facts == {"topic": "a", "partition": 3, "partitions": 4, "slot": 0}
    assert packed(router(topics, plan("a")), rows(["2"], partition=[3])) == {"a-3": 1}


def test_a_partition_that_no_topic_has_is_asked_for_once_in_a_task_and_refused() -> None:
    topics = Topics({"a": 2})
    routes = router(topics, plan("a"))
    packed(routes, rows(["1"]))

    for _ in range(3):
        with pytest.raises(InvalidRow, match="names a partition that its topic does not have"):
            routes.pack(rows(["2"], partition=[2]))
    with pytest.raises(InvalidRow):
        routes.pack(rows(["2"], partition=[-1]))

    assert topics.refreshed == ["a"]


def test_a_topic_is_not_asked_for_again_because_of_the_partitions_of_another() -> None:
    topics = Topics({"wide": 50, "narrow": 2})

    batch = rows(["1", "2"], topic=["wide", "narrow"], partition=[49, 1])

    assert packed(router(topics, plan()), batch) == {"wide-49": 1, "narrow-1": 1}
    assert topics.refreshed == []


def test_rows_are_judged_by_the_partitions_that_the_task_has_sections_for() -> None:
    topics = Topics({"a": 2})
    routes = router(topics, plan("a"))
    packed(routes, rows(["1"]))
    topics.partitions["a"] = topics.known["a"] = 4

    assert routes.partitions_of("a") == 2


def test_a_router_tells_by_which_id_and_number_of_partitions_it_routed() -> None:
    topics = Topics({"a": 3, "b": 2, "c": 9})
    routes = router(topics, plan())
    packed(routes, rows(["1", "2"], topic=["a", "b"]))
    topics.partitions["a"] = topics.known["a"] = 5

    packed(routes, rows(["3"], topic=["a"]))

    assert sorted(routes.topics) == [RoutedTopic("a", "id of a", 3), RoutedTopic("b", "id of b", 2)]


def test_a_topic_that_comes_later_leaves_open_sections_as_they_are() -> None:
    routes = router(Topics({"a": 2, "b": 1}), plan())
    assert list(routes.pack(rows(["1"], topic=["a"], partition=[1]))) == []

    assert packed(routes, rows(["2", "3"], topic=["b", "a"], partition=[0, 1])) == {"a-1": 2, "b-0": 1}


@pytest.mark.parametrize("slot", [0, 1, 2])
def test_rows_without_a_key_begin_at_the_slots_own_partition(slot: int) -> None:
    routes = router(Topics({"a": 3}), plan("a"), slot)
    assert packed(routes, rows(["1", "2"])) == {f"a-{slot}": 2}


def test_equal_keys_meet_in_one_partition_whatever_the_slot() -> None:
    places = [packed(router(Topics({"a": 8}), plan("a"), slot), rows(["x"], key=["k-17"])) for slot in range(8)]
    assert len({tuple(place) for place in places}) == 1


def test_a_row_without_a_topic_is_refused_by_its_number() -> None:
    routes = router(Topics({"a": 1}), plan(), slot=4)

    with pytest.raises(InvalidRow) as refusal:
        routes.pack(rows(["1", "2"], topic=["a", None]))

    assert refusal.value.facts == {"row": 1, "slot": 4}
    assert list(routes.flush()) == []


def test_a_row_with_a_bad_partition_is_named_by_topic_and_key_and_its_batch_leaves_nothing() -> None:
    routes = router(Topics({"a": 2}), plan("a"), slot=4)
    list(routes.pack(rows(["kept"], key=["k"], partition=[1])))

    with pytest.raises(InvalidRow) as refusal:
        routes.pack(rows(["1", "2"], key=["k-1", "k-2"], partition=[0, 2]))

    assert (refusal.value.facts["topic"], refusal.value.facts["key"]) == ("a", "k-2")
    assert (refusal.value.facts["partition"], refusal.value.facts["slot"]) == (2, 4)
    assert "nothing of the micro-batch is visible" in refusal.value.message
    assert went(routes, routes.flush()) == {"a-1": 1}


def test_a_null_timestamp_is_refused() -> None:
    routes = router(Topics({"a": 1}), plan("a"))
    stamps = pa.array([1_000, None], pa.timestamp("us", tz="UTC"))

    with pytest.raises(InvalidRow, match="null timestamp"):
        routes.pack(rows(["1", "2"], timestamp=stamps))

    assert list(routes.flush()) == []


def test_a_row_above_the_topics_limit_is_refused_though_a_batch_may_be_larger() -> None:
    routes = router(Topics({"a": 1}, {"a": 2_000}), plan("a"))
    list(routes.pack(rows(["kept"])))

    with pytest.raises(RecordTooLarge) as refusal:
        routes.pack(rows(["1", "x" * 2_000], key=["a", "b"]))

    assert refusal.value.facts["key"] == "b"
    assert went(routes, routes.flush()) == {"a-0": 1}


def test_the_smaller_of_batch_size_and_topic_limit_bounds_a_section() -> None:
    many = rows(["x" * 90] * 100)
    for limit, batch_bytes, bound in ((2_000, 1_000_000, 2_000), (1_000_000, 3_000, 3_000)):
        routes = router(Topics({"a": 1}, {"a": limit}), plan("a", batch_bytes=batch_bytes))
        sections = [*routes.pack(many), *routes.flush()]
        assert sum(section.count for section in sections) == 100
        assert len(sections) > 1
        assert max(len(section.records) for section in sections) <= bound


def test_rows_that_fit_are_packed_and_the_others_come_back_with_their_sizes() -> None:
    routes = router(Topics({"a": 1}, {"a": 2_000}), plan("a", dead_letter_topic="dead"))

    kept, full, too_large, sizes = routes.pack_fitting(rows(["1", "x" * 3_000, "3"]))

    assert kept.column("value").to_pylist() == ["1", "3"]
    assert [len(value) for value in too_large.column("value").to_pylist()] == [3_000]
    assert sizes.tolist()[0] > 3_000
    assert went(routes, [*full, *routes.flush()]) == {"a-0": 2}


def test_a_topics_limit_is_known_once_a_row_went_there_and_asked_for_once() -> None:
    topics = Topics({"a": 1, "b": 1}, {"a": 5_000})
    routes = router(topics, plan())
    assert routes.limit_of("a") is None

    packed(routes, rows(["1"], topic=["a"]))
    packed(router(topics, plan("a")), rows(["2"]))

    assert (routes.limit_of("a"), routes.limit_of("b")) == (5_000, None)
    assert topics.limits_asked == ["a"]


def test_without_dead_letters_an_unknown_topic_gets_the_time_of_a_new_one_each_time() -> None:
    topics = Topics({})
    routes = router(topics, plan())

    for _ in range(2):
        with pytest.raises(UnknownTopic):
            routes.pack(rows(["1"], topic=["gone"]))

    assert topics.asked == [("gone", NEW_TOPIC_MS)] * 2


def test_with_dead_letters_only_the_first_unknown_topic_gets_that_time_and_none_is_asked_for_twice() -> None:
    topics = Topics({"a": 4})
    routes = router(topics, plan(dead_letter_topic="dead"))

    numbers = [routes.partitions_of(name) for name in ("gone-1", "gone-2", "gone-1", "a")]

    assert numbers == [0, 0, 0, 4]
    asked = [each for each in topics.asked if each[0] != "a"]
    assert asked == [("gone-1", NEW_TOPIC_MS), ("gone-2", 0)]


def test_with_dead_letters_a_name_that_no_topic_can_have_is_not_asked_for() -> None:
    topics = Topics({})
    routes = router(topics, plan(dead_letter_topic="dead"))

    assert routes.partitions_of("not a topic!") == 0

    assert topics.asked == []


# ---- rows without a key


def test_the_small_batches_of_one_task_go_to_every_partition_in_turn() -> None:
    """Otherwise a job with one task would leave all partitions but one empty for as long as it runs."""
    topics, seen = Topics({"t": 4}), []
    for batch_id in range(8):
        routes = router(topics, replace(plan("t"), batch_id=batch_id, sticky_bytes=1_000_000))
        list(routes.pack(rows(["a", "b"])))
        seen.append(list(went(routes, routes.flush())))

    assert [len(each) for each in seen] == [1] * 8
    assert Counter(name for (name,) in seen) == Counter({f"t-{number}": 2 for number in range(4)})


def test_the_tasks_of_one_small_batch_go_to_different_partitions() -> None:
    topics = Topics({"t": 4})
    found: list[str] = []
    for slot in range(4):
        routes = router(topics, plan("t"), slot)
        list(routes.pack(rows(["a", "b"])))
        found += went(routes, routes.flush())

    assert sorted(found) == ["t-0", "t-1", "t-2", "t-3"]


def test_a_partition_gets_rows_until_it_has_as_many_bytes_as_it_is_to_have_in_a_row() -> None:
    topics = Topics({"t": 4})
    small, large = (
        router(topics, plan("t", batch_bytes=1_000, sticky_bytes=1_000)),
        router(topics, plan("t", batch_bytes=1_000, sticky_bytes=10_000)),
    )

    def changes(routes: Router) -> int:
        sections = [*routes.pack(rows(["x" * 90] * 300)), *routes.flush()]
        return len({routes.where(each) for each in sections[:9]})

    assert (changes(small), changes(large)) == (4, 1)


# ---- the replay of a decided batch


KEYED = {"key": [f"k{number}" for number in range(40)]}


def decided(*usual: RoutedTopic, apart: tuple[tuple[int, tuple[RoutedTopic, ...]], ...] = ()) -> WritePlan:
    return plan("a", routes=Routes(usual, apart))


def by(partitions: int) -> dict[str, int]:
    """Where keyed rows go by so many partitions."""
    return packed(router(Topics({"a": partitions}), plan("a")), rows(["v"] * 40, **KEYED))


def test_a_replay_routes_by_the_number_of_partitions_that_was_recorded() -> None:
    routes = router(Topics({"a": 5}), decided(RoutedTopic("a", "id of a", 2)))

    assert packed(routes, rows(["v"] * 40, **KEYED)) == by(2) != by(5)
    assert [*routes.topics] == [RoutedTopic("a", "id of a", 2)]


def test_a_slot_that_routed_by_another_number_than_the_others_does_so_again() -> None:
    two, three = RoutedTopic("a", "id of a", 2), RoutedTopic("a", "id of a", 3)
    how = decided(two, apart=((4, (three,)),))

    assert packed(router(Topics({"a": 5}), how, slot=4), rows(["v"] * 40, **KEYED)) == by(3)
    assert packed(router(Topics({"a": 5}), how, slot=5), rows(["v"] * 40, **KEYED)) == by(2)


def test_a_replay_asks_again_where_it_knows_of_fewer_partitions_than_were_recorded() -> None:
    topics = Topics({"a": 4}, known={"a": 2})

    assert packed(router(topics, decided(RoutedTopic("a", "id of a", 4))), rows(["v"] * 40, **KEYED)) == by(4)
    assert topics.refreshed == ["a"]


@pytest.mark.parametrize("now", [2, 5])
def test_a_replay_into_a_topic_that_was_recreated_routes_by_what_that_one_has(now: int) -> None:
    routes = router(Topics({"a": now}), decided(RoutedTopic("a", "the one before", 3)))

    assert packed(routes, rows(["v"] * 40, **KEYED)) == by(now)
    assert [*routes.topics] == [RoutedTopic("a", "id of a", now)]


def test_a_slot_that_sends_a_part_only_measures_the_rest_as_it_was_routed_even_if_that_topic_was_recreated() -> None:
    how = replace(
        decided(RoutedTopic("a", "the one before", 3)),
        only_slots=frozenset({0}),
        only_partitions=((0, (TopicPartition("other", 1),)),),
    )

    assert packed(router(Topics({"a": 2}), how), rows(["v"] * 40, **KEYED)) == by(3)


def test_a_row_that_was_refused_for_its_partition_is_refused_in_the_replay_too() -> None:
    topics = Topics({"a": 5})
    routes = router(topics, decided(RoutedTopic("a", "id of a", 2)))

    with pytest.raises(InvalidRow, match="partition"):
        packed(routes, rows(["v"], partition=[3]))

    assert routes.partitions_of("a") == 2
