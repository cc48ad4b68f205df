"""A topic or a partition that one request names twice: next to each other, in two entries, with another topic in
between.
"""

from __future__ import annotations

from typing import Any

from tests.differential.play import Play
from tests.differential.records import batch
from tests.differential.script import scenario

_TOPIC = 2
_SHAPES = ("within", "beside", "apart")

Asked = list[tuple[str, list[Any]]]


def _named(shape: str, topic: str, other: str, first: Any, second: Any, between: Any) -> Asked:
    if shape == "within":
        return [(topic, [first, second])]
    if shape == "beside":
        return [(topic, [first]), (topic, [second])]
    return [(topic, [first]), (other, [between]), (topic, [second])]


def _topics(play: Play) -> tuple[str, str]:
    topic, other = play.topic(2), play.topic(2)
    for name in (topic, other):
        for value in (b"a", b"b", b"c"):
            play.produce(None, name, batch(value))
    return topic, other


@scenario(shape=_SHAPES)
def partitions_twice(play: Play, shape: str) -> None:
    topic, other = _topics(play)

    def fetched(label: str, first: int, second: int, version: int = 11) -> None:
        def part(offset: int) -> dict[str, Any]:
            return {
                "partition": 0, "current_leader_epoch": -1, "fetch_offset": offset, "log_start_offset": -1,
                "last_fetched_epoch": -1, "partition_max_bytes": 1 << 20,
            }  # fmt: skip

        asked = _named(shape, topic, other, part(first), part(second), part(0))
        play.ask(
            label, "Fetch", version, max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, isolation_level=0,
            topics=[{"topic": name, "partitions": parts} for name, parts in asked],
        )  # fmt: skip

    for version in (4, 11, 12):
        fetched(f"fetched, v{version}", 0, 1, version)
    fetched("fetched, the first out of range", 99, 0)
    fetched("fetched, the second out of range", 0, 99)

    def listed(timestamp: int) -> dict[str, Any]:
        return {"partition_index": 0, "timestamp": timestamp, "current_leader_epoch": -1}

    asked = _named(shape, topic, other, listed(-1), listed(-2), listed(-1))
    play.ask(
        "offsets", "ListOffsets", 7, replica_id=-1, isolation_level=0,
        topics=[{"name": name, "partitions": parts} for name, parts in asked],
    )  # fmt: skip

    def known(epoch: int) -> dict[str, Any]:
        return {"partition": 0, "current_leader_epoch": -1, "leader_epoch": epoch}

    asked = _named(shape, topic, other, known(0), known(5), known(0))
    play.ask(
        "ends of epochs", "OffsetForLeaderEpoch", 4, replica_id=-1,
        topics=[{"topic": name, "partitions": parts} for name, parts in asked],
    )  # fmt: skip

    def data(value: bytes) -> dict[str, Any]:
        return {"index": 0, "records": batch(value)}

    asked = _named(shape, topic, other, data(b"first"), data(b"second"), data(b"between"))
    play.ask(
        "produced", "Produce", play.produce_version, transactional_id=None, acks=-1, timeout_ms=30_000,
        topic_data=[{"name": name, "partition_data": parts} for name, parts in asked],
    )  # fmt: skip
    for name, label in ((topic, "the log"), (other, "the other's log")):
        play.fetch(label, name)

    def start(offset: int) -> dict[str, Any]:
        return {"partition_index": 0, "offset": offset}

    asked = _named(shape, topic, other, start(2), start(1), start(1))
    play.ask(
        "records deleted", "DeleteRecords", 2, timeout_ms=30_000,
        topics=[{"name": name, "partitions": parts} for name, parts in asked],
    )  # fmt: skip


@scenario(shape=_SHAPES)
def offsets_twice(play: Play, shape: str) -> None:
    topic, other = _topics(play)
    group = play.name("group")

    def offset(number: int) -> dict[str, Any]:
        return {
            "partition_index": 0, "committed_offset": number, "committed_leader_epoch": -1, "committed_metadata": "",
        }  # fmt: skip

    play.ask(
        "committed", "OffsetCommit", 8, group_id=group, generation_id_or_member_epoch=-1, member_id="",
        topics=[
            {"name": name, "partitions": parts}
            for name, parts in _named(shape, topic, other, offset(3), offset(2), offset(1))
        ],
    )  # fmt: skip
    play.committed("kept", group, topic)
    named = _named(shape, topic, other, 0, 0, 0)
    play.ask(
        "asked for", "OffsetFetch", 7, group_id=group, require_stable=False,
        topics=[{"name": name, "partition_indexes": parts} for name, parts in named],
    )  # fmt: skip
    txn = play.transaction()
    play.ask(
        "added", "AddPartitionsToTxn", 3, v3_and_below_transactional_id=txn.name,
        v3_and_below_producer_id=txn.who.producer_id, v3_and_below_producer_epoch=txn.who.epoch,
        v3_and_below_topics=[{"name": name, "partitions": parts} for name, parts in named],
    )  # fmt: skip
    play.ask(
        "removed", "OffsetDelete", 0, group_id=group,
        topics=[
            {"name": name, "partitions": [{"partition_index": part} for part in parts]} for name, parts in named
        ],
    )  # fmt: skip
    play.committed("none", group, topic)


@scenario()
def topics_twice(play: Play) -> None:
    topic, other = _topics(play)
    play.metadata(topic)
    play.ask(
        "described",
        "Metadata",
        12,
        topics=[{"name": topic}, {"name": topic}],
        allow_auto_topic_creation=False,
    )
    play.ask(
        "more partitions", "CreatePartitions", 3, timeout_ms=30_000, validate_only=False,
        topics=[{"name": name, "count": count, "assignments": None} for name, count in ((topic, 3), (topic, 4), (other, 5))],
    )  # fmt: skip
    play.wait_for_topic(other, 5)

    def config(value: str) -> dict[str, Any]:
        return {"name": "retention.ms", "config_operation": 0, "value": value}

    play.ask(
        "altered", "IncrementalAlterConfigs", 1, validate_only=False,
        resources=[
            {"resource_type": _TOPIC, "resource_name": name, "configs": [config(value)]}
            for name, value in ((topic, "1000"), (topic, "2000"))
        ],
    )  # fmt: skip
    play.ask(
        "a key twice", "AlterConfigs", 1, validate_only=False,
        resources=[{
            "resource_type": _TOPIC, "resource_name": topic,
            "configs": [{"name": "retention.ms", "value": value} for value in ("1000", "2000")],
        }],
    )  # fmt: skip
    play.ask("deleted", "DeleteTopics", 4, topic_names=[topic, topic, other], timeout_ms=30_000)
    play.ask("deleted, unknown", "DeleteTopics", 4, topic_names=[play.name("none")] * 2, timeout_ms=30_000)
