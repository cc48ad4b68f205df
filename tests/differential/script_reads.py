"""Reading: transactions that overlap, read at every offset and limit; where offsets are found."""

from __future__ import annotations

import uuid

from tests.differential.play import Play
from tests.differential.records import FIRST_TIMESTAMP_MS, batch
from tests.differential.script import scenario


def _overlapping(play: Play) -> str:
    """Three transactional producers and a plain one in one partition; the third's last transaction stays open."""
    first, second, third = (play.transaction(initialised=1) for _ in range(3))
    topic = second.topic = third.topic = first.topic
    play.open(first, b"1a")
    play.open(second, b"2a", b"2b")
    play.write(None, first, 1, b"1b")
    play.produce(None, topic, batch(b"plain"))
    play.open(third, b"3a")
    play.ended(second, commit=False)
    play.write(None, third, 1, b"3b", b"3c", b"3d")
    play.ended(first, commit=True)
    second.who = play.init(None, second.name)
    play.open(second, b"2c")
    play.ended(third, commit=False)
    third.who = play.init(None, third.name)
    play.write(None, second, 1, b"2d" * 300)
    play.ended(second, commit=True)
    play.produce(None, topic, batch(b"plain", b"plain"))
    play.open(third, b"3e")
    first.who = play.init(None, first.name)
    play.open(first, b"1c")
    play.ended(first, commit=False)
    return topic


@scenario(both_protocols=True)
def overlaps(play: Play) -> None:
    topic = _overlapping(play)
    end = play.offset_at("the end", topic, -1)["topics"][0]["partitions"][0]["offset"]
    stable = play.offset_at("the end, committed", topic, -1, committed=True)
    play.note("the last stable offset", stable["topics"][0]["partitions"][0]["offset"])
    for committed in (True, False):
        for offset in range(-1, end + 2):
            play.fetch(f"{'committed' if committed else 'all'} from {offset}", topic, offset, committed=committed)
    play.producers("producers", topic)


@scenario(both_protocols=True)
def overlaps_in_small_pieces(play: Play) -> None:
    topic = _overlapping(play)
    for limit in (0, 1, 80, 160, 300, 1000):
        for offset in range(0, 16, 3):
            label = f"{limit} bytes from {offset}"
            answer = play.fetch(None, topic, offset, committed=True, max_bytes=limit)
            play.note(label, _but_aborted(answer))
    for limit in (0, 1, 200):
        answer = play.fetch(None, topic, 0, committed=True, total_bytes=limit)
        play.note(f"{limit} bytes in all", _but_aborted(answer))


def _but_aborted(answer: dict[str, object]) -> dict[str, object]:
    """A real broker lists the aborted transactions up to its next index entry, which may be behind what it sends."""
    for topic in answer["responses"]:  # type: ignore[attr-defined]
        for part in topic["partitions"]:
            del part["aborted_transactions"]
    return answer


@scenario(both_protocols=True)
def what_fetch_is_asked_for(play: Play) -> None:
    topic = _overlapping(play)
    for version in (4, 5, 6, 8, 10, 11, 12):
        play.fetch(f"v{version}", topic, 2, committed=True, version=version)
    play.fetch("unknown topic", play.name("nowhere"))
    play.fetch("unknown partition", topic, partition=5)
    for epoch in (0, 1, 5):
        play.fetch(f"leader epoch {epoch}", topic, epoch=epoch)
        play.offset_at(f"the end, leader epoch {epoch}", topic, -1, epoch=epoch)
    play.ask(
        "no topic", "Fetch", 11, max_wait_ms=0, min_bytes=0, max_bytes=1000, isolation_level=0, topics=[],
    )  # fmt: skip
    for leader_epoch in (-1, 0, 1):
        play.ask(
            f"the end of leader epoch {leader_epoch}", "OffsetForLeaderEpoch", 3, replica_id=-1,
            topics=[{"topic": topic, "partitions": [
                {"partition": 0, "current_leader_epoch": -1, "leader_epoch": leader_epoch}]}],
        )  # fmt: skip


@scenario(both_protocols=True)
def what_fetch_by_id_is_asked_for(play: Play) -> None:
    topic = _overlapping(play)
    other = play.topic()
    ids = {name: _id_of(play, name) for name in (topic, other)}
    _fetch_by_id(play, "a topic", {ids[topic]: [0]})
    _fetch_by_id(play, "two topics", {ids[topic]: [0], ids[other]: [0]})
    _fetch_by_id(play, "unknown partition", {ids[topic]: [5]})
    _fetch_by_id(play, "unknown id", {uuid.uuid4(): [0, 5]})
    _fetch_by_id(play, "no id", {uuid.UUID(int=0): [0]})
    _fetch_by_id(play, "an unknown one among others", {ids[topic]: [0], uuid.uuid4(): [0]})
    play.ask(
        "twice", "Fetch", 13, max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, isolation_level=0, topics=[
            {"topic_id": ids[topic], "partitions": [{"partition": 0, "current_leader_epoch": -1, "fetch_offset": at,
                "log_start_offset": -1, "last_fetched_epoch": -1, "partition_max_bytes": 1 << 20}]}
            for at in (0, 2)
        ],
    )  # fmt: skip
    play.ask("deleted", "DeleteTopics", 5, topic_names=[other], timeout_ms=10_000)
    # The controller answers before the broker's metadata follow: until then Kafka serves the topic's log.
    play.wait_until(lambda: play.metadata(other)["topics"][0]["error_code"] == 3, "it is gone")
    _fetch_by_id(play, "of a topic that was deleted", {ids[other]: [0]})


def _id_of(play: Play, topic: str) -> uuid.UUID:
    answer = play.ask(
        None, "Metadata", 12, topics=[{"name": topic}], allow_auto_topic_creation=False,
        include_topic_authorized_operations=False,
    )  # fmt: skip
    (found,) = answer["topics"]
    return uuid.UUID(str(found["topic_id"]))


def _fetch_by_id(play: Play, label: str, asked: dict[uuid.UUID, list[int]]) -> None:
    play.ask(
        label, "Fetch", 13, max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, isolation_level=1, topics=[
            {"topic_id": each, "partitions": [
                {"partition": number, "current_leader_epoch": -1, "fetch_offset": 0, "log_start_offset": -1, "last_fetched_epoch": -1,
                 "partition_max_bytes": 1 << 20}
                for number in numbers
            ]}
            for each, numbers in asked.items()
        ],
    )  # fmt: skip


@scenario(both_protocols=True)
def where_offsets_are(play: Play) -> None:
    topic = _overlapping(play)
    times = {
        "latest": -1, "earliest": -2, "of the latest time": -3, "earliest local": -4, "latest tiered": -5, "a bad time": -7,
        "zero": 0, "first": FIRST_TIMESTAMP_MS, "second": FIRST_TIMESTAMP_MS + 1,
        "third": FIRST_TIMESTAMP_MS + 2, "behind": FIRST_TIMESTAMP_MS + 3, "far behind": 2**62,
    }  # fmt: skip
    for committed in (True, False):
        for said, timestamp in times.items():
            for version in (1, 2, 5, 7, 8, 9):
                if (version < 2 and committed) or (timestamp < -2 and version < 7):
                    continue
                label = f"{said}, v{version}{', committed' if committed else ''}"
                play.offset_at(label, topic, timestamp, committed=committed, version=version)
    empty = play.topic()
    for said, timestamp in times.items():
        play.offset_at(f"{said} of nothing", empty, timestamp)
    play.offset_at("unknown topic", play.name("nowhere"), -1)
    play.offset_at("unknown partition", topic, -1, partition=9)
    ordered = play.topic()
    late, early = FIRST_TIMESTAMP_MS + 900, FIRST_TIMESTAMP_MS
    play.produce(None, ordered, batch(b"late", b"later", timestamps=(late, late + 1)))
    play.produce(None, ordered, batch(b"early", b"mid", timestamps=(early, early + 500)))
    for by in (0, 1, 500, 501, 900, 901, 902):
        play.offset_at(f"disordered, {by}", ordered, early + by)
    play.offset_at("disordered, of the latest time", ordered, -3)


@scenario(both_protocols=True)
def after_delete_records(play: Play) -> None:
    topic = _overlapping(play)

    def delete(label: str, offset: int, version: int = 1, partition: int = 0, name: str = topic) -> None:
        part = {"partition_index": partition, "offset": offset}
        play.ask(label, "DeleteRecords", version, timeout_ms=10_000, topics=[{"name": name, "partitions": [part]}])

    delete("beyond the end", 1000)
    delete("a negative offset", -2)
    delete("unknown partition", 1, partition=4)
    delete("unknown topic", 1, name=play.name("nowhere"))
    delete("nothing", 0)
    for offset in (2, 5, 3, 9):
        delete(f"to {offset}", offset, version=offset % 3)
        play.offset_at(f"to {offset}, earliest", topic, -2)
        play.offset_at(f"to {offset}, by time", topic, FIRST_TIMESTAMP_MS)
        for start in (offset - 1, offset, offset + 1):
            play.fetch(f"to {offset}, from {start}", topic, start, committed=True)
        play.producers(f"to {offset}, producers", topic)
    delete("all", -1)
    play.fetch("all, from the start", topic, 0)
    play.offset_at("all, earliest", topic, -2)
    play.offset_at("all, latest", topic, -1)
    play.produce("written after that", topic, batch(b"new"))
    play.producers("producers at the end", topic)
    who, plain = play.producer(), play.topic()
    for sequence in range(3):
        play.produce(None, plain, batch(b"v", who=who, sequence=sequence))
    delete("all of a producer", -1, name=plain)
    play.produce("its duplicate", plain, batch(b"v", who=who, sequence=2))
    play.produce("its next", plain, batch(b"v", who=who, sequence=3))
    play.fetch("its log", plain, 3)
