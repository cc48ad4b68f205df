"""A cluster in memory whose brokers answer as a test scripts it: behind the client's own view of a cluster, without
sockets.

What Apache Kafka does only under load, quotas, slow stores or elections happens here on the first try, and says so:
every event that a test asks for is counted when it has happened.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any
from uuid import NAMESPACE_OID, uuid5

import crc32c

from embedded_kafka.log.records import EndMarker, encode_batch, encode_marker
from kafka_core.protocol import messages as m
from kafka_core.protocol.error_codes import Code
from kafka_core.values import TopicPartition
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.definite import RETRY_BACKOFF_MS
from pyspark_kafka_eos.client.others import OtherBrokers
from pyspark_kafka_eos.client.wire.versions import Versions, built
from pyspark_kafka_eos.model import ClientSettings

NOW_MS = 1_700_000_000_000
_CRC_AT, _CRC_STARTS_AT, _COUNT_AT, _HEADER_BYTES = 17, 21, 57, 61


@dataclass
class Stored:
    """One batch of a log."""

    base: int
    last: int
    epoch: int
    data: bytes


@dataclass
class Log:
    """One partition: its batches, where it begins and ends, who leads it. `stable`: the last stable offset, None for
    `end`.
    """

    batches: list[Stored] = field(default_factory=list)
    start: int = 0
    end: int = 0
    stable: int | None = None
    leader: int = 1
    epoch: int = 0
    epochs: list[tuple[int, int]] = field(default_factory=lambda: [(0, 0)])
    """(epoch, its first offset) of each leader, as its present leader knows them."""
    aborted: list[tuple[int, int]] = field(default_factory=list)
    """(first offset, producer id) of each aborted transaction."""

    def write(
        self, *values: bytes, key: bytes | None = None, producer_id: int = -1, transactional: bool = False
    ) -> int:
        """Append a batch; returns its first offset."""
        records = [(key, value) for value in values]
        return self._append(
            encode_batch(
                records, timestamp_ms=NOW_MS, base_offset=self.end, producer_id=producer_id, producer_epoch=0,
                base_sequence=0, transactional=transactional, leader_epoch=self.epoch,
            ),
            len(values),
        )  # fmt: skip

    def mark(self, producer_id: int, *, commit: bool) -> int:
        """Append a transaction's marker."""
        marker = EndMarker(commit=commit, coordinator_epoch=0)
        return self._append(encode_marker(producer_id, 0, marker, timestamp_ms=NOW_MS, base_offset=self.end), 1)

    def _append(self, data: bytearray, count: int) -> int:
        base = self.end
        self.end += count
        self.batches.append(Stored(base, self.end - 1, self.epoch, bytes(data)))
        return base

    def compact(self, start: int, end: int) -> None:
        """Take away the batches that lie between two offsets, as compaction does: no offset changes."""
        self.batches = [each for each in self.batches if each.last < start or each.base >= end]

    def elect(self, leader: int, *, cut_to: int | None = None) -> None:
        """Another leader; with `cut_to` one whose log ends there (an unclean election)."""
        if cut_to is not None:
            self.end = cut_to
            self.batches = [each for each in self.batches if each.last < cut_to]
            self.epochs = [each for each in self.epochs if each[1] < cut_to or each[0] == 0]
        self.leader, self.epoch = leader, self.epoch + 1
        self.epochs.append((self.epoch, self.end))

    def ended(self, epoch: int) -> tuple[int, int]:
        """(epoch, offset) of the newest epoch up to this one and where it ended, as OffsetForLeaderEpoch answers."""
        known = [each for each in self.epochs if each[0] <= epoch]
        later = [each for each in self.epochs if each[0] > epoch]
        if not known or (not later and epoch > self.epochs[-1][0]):
            return -1, -1
        return known[-1][0], later[0][1] if later else self.end


def without_records(batch: bytes) -> bytes:
    """The batch as Kafka's cleaner leaves it when nothing of it is to be kept but its producer's epoch."""
    empty = bytearray(batch[:_HEADER_BYTES])
    struct.pack_into(">i", empty, 8, _HEADER_BYTES - 12)
    struct.pack_into(">i", empty, _COUNT_AT, 0)
    struct.pack_into(">I", empty, _CRC_AT, crc32c.crc32c(memoryview(empty)[_CRC_STARTS_AT:]))
    return bytes(empty)


def an_id(name: str) -> str:
    """A topic's id, for each name another one."""
    return str(uuid5(NAMESPACE_OID, name))


Change = Callable[[Any], None]
"""Changes a partition's part of an answer."""


class ScriptedKafka:
    """Brokers 1, 2, ... with these logs. One `changes` entry is used up per Fetch of its partition, None changes
    nothing.
    """

    def __init__(self, **topics: Sequence[Log]) -> None:
        self.logs = {
            TopicPartition(name, number): log for name, logs in topics.items() for number, log in enumerate(logs)
        }
        self.topic_ids = {name: an_id(name) for name in topics}
        self.changes: dict[TopicPartition, list[Change | None]] = {}
        self.before: dict[int, Callable[[], None]] = {}
        """What happens before the n-th Fetch, counted from 1."""
        self.metadata: list[Callable[[Any], None]] = []
        """Changes of the next metadata answers, one used up by each."""
        self.happened: Counter[str] = Counter()
        self.asked: list[tuple[str, Any]] = []
        self.brokers = [1]

    # ---- what a test asks for

    def empty_answers(self, where: TopicPartition, times: int) -> None:
        """The next answers have no records of this partition, as of a tiered topic whose store is slow."""

        def empty(part: Any) -> None:
            self.happened["empty"] += bool(part.records)
            part.records = b""

        self.changes.setdefault(where, []).extend([empty] * times)

    def codes(self, where: TopicPartition, *codes: Code) -> None:
        """The next answers refuse this partition."""

        def refuse(code: Code) -> Change:
            def change(part: Any) -> None:
                self.happened[code.name] += 1
                part.error_code, part.records = int(code), b""

            return change

        self.changes.setdefault(where, []).extend(refuse(code) for code in codes)

    def fetches(self) -> int:
        """How many Fetch requests there were."""
        return sum(api == "Fetch" for api, _ in self.asked)

    # ---- answers

    def answer(self, node: object, request: Any) -> Any:
        """One answer, or the error that the network makes of it."""
        api = m.api_name(request.API_KEY)
        self.asked.append((api, request))
        if api == "Metadata":
            return self._metadata(request)
        leader = int(str(node).split(".")[0])
        if api == "Fetch":
            event = self.before.pop(self.fetches(), None)
            if event is not None:
                event()
            by_id = request.API_VERSION >= m.FETCH_BY_ID
            topics = [
                SimpleNamespace(
                    topic="" if by_id else topic.topic,
                    topic_id=topic.topic_id,
                    partitions=[
                        self._fetched(leader, self._asked_for(topic, by_id), part, request) for part in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
            return SimpleNamespace(API_VERSION=request.API_VERSION, error_code=0, throttle_time_ms=0, responses=topics)
        if api == "ListOffsets":
            return self._parts(request, leader, self._listed, "name", "partition_index")
        if api == "OffsetForLeaderEpoch":
            return self._parts(request, leader, self._epoch_end, "topic", "partition")
        raise AssertionError(f"nothing was scripted for {api}")

    def _asked_for(self, topic: Any, by_id: bool) -> str | None:
        """The topic's name; None where no topic has the id."""
        if not by_id:
            return str(topic.topic)
        return next((name for name, each in self.topic_ids.items() if each == str(topic.topic_id)), None)

    def _parts(self, request: Any, leader: int, one: Callable[[Log, Any, Any], Any], name: str, number: str) -> Any:
        topics = []
        for topic in request.topics:
            parts = []
            for asked in topic.partitions:
                where = TopicPartition(getattr(topic, name), getattr(asked, number))
                code = self._code(leader, where, asked.current_leader_epoch)
                part = SimpleNamespace(error_code=int(code), offset=-1, leader_epoch=-1, end_offset=-1)
                setattr(part, number, where.partition)
                if code is Code.NONE:
                    part = one(self.logs[where], asked, part)
                parts.append(part)
            topics.append(SimpleNamespace(**{name: getattr(topic, name)}, partitions=parts))
        return SimpleNamespace(topics=topics)

    def _code(self, leader: int, where: TopicPartition, epoch: int) -> Code:
        log = self.logs.get(where)
        if log is None:
            return Code.UNKNOWN_TOPIC_OR_PARTITION
        if log.leader != leader:
            return Code.NOT_LEADER_OR_FOLLOWER
        if 0 <= epoch < log.epoch:
            return Code.FENCED_LEADER_EPOCH
        return Code.UNKNOWN_LEADER_EPOCH if epoch > log.epoch else Code.NONE

    @staticmethod
    def _listed(log: Log, asked: Any, part: Any) -> Any:
        part.offset = log.start if asked.timestamp == -2 else log.end
        part.leader_epoch = log.epoch
        return part

    def _epoch_end(self, log: Log, asked: Any, part: Any) -> Any:
        part.leader_epoch, part.end_offset = log.ended(asked.leader_epoch)
        self.happened["epoch asked"] += 1
        return part

    def _fetched(self, leader: int, topic: str | None, asked: Any, request: Any) -> Any:
        where = TopicPartition(topic or "", asked.partition)
        code = self._code(leader, where, asked.current_leader_epoch)
        if topic is None:
            code = Code.UNKNOWN_TOPIC_ID
        part = SimpleNamespace(
            partition_index=where.partition, error_code=int(code), high_watermark=-1, last_stable_offset=-1,
            log_start_offset=-1, aborted_transactions=None, records=b"", preferred_read_replica=-1,
        )  # fmt: skip
        log = self.logs.get(where)
        if code is Code.NONE and log is not None:
            self._fill(part, log, asked, request.isolation_level)
        changes = self.changes.get(where)
        # A single reader's look behind the last stable offset (`max_bytes` 1) is no part of the script.
        change = changes.pop(0) if changes and asked.partition_max_bytes > 1 else None
        if change is not None:
            change(part)
        return part

    def _fill(self, part: Any, log: Log, asked: Any, isolation: int) -> None:
        stable = log.end if log.stable is None else log.stable
        part.high_watermark, part.last_stable_offset, part.log_start_offset = log.end, stable, log.start
        if not log.start <= asked.fetch_offset <= log.end:
            part.error_code = int(Code.OFFSET_OUT_OF_RANGE)
            return
        end = stable if isolation else log.end
        size = 0
        for each in log.batches:
            if each.last < asked.fetch_offset or each.base >= end:
                continue
            if size and size + len(each.data) > asked.partition_max_bytes:
                break
            part.records += each.data
            size += len(each.data)
        part.aborted_transactions = [
            SimpleNamespace(first_offset=first, producer_id=producer_id) for first, producer_id in log.aborted
        ]

    def _metadata(self, request: Any) -> Any:
        topics = []
        for asked in request.topics:
            parts = [
                SimpleNamespace(partition_index=where.partition, leader_id=log.leader, leader_epoch=log.epoch)
                for where, log in self.logs.items()
                if where.topic == asked.name
            ]
            code = Code.NONE if parts else Code.UNKNOWN_TOPIC_OR_PARTITION
            topic_id = self.topic_ids.get(asked.name)
            topics.append(SimpleNamespace(name=asked.name, topic_id=topic_id, error_code=int(code), partitions=parts))
        answer = SimpleNamespace(topics=topics, brokers=[])
        if self.metadata:
            self.metadata.pop(0)(answer)
            self.happened["metadata changed"] += 1
        return answer


class _Network:
    """As `Network`, but answered at once, by the script."""

    def __init__(self, kafka: ScriptedKafka) -> None:
        self._kafka = kafka
        self.offered = {key: (0, highest) for key, highest in m.HIGHEST.items()}
        self.versions = Versions(self.offered)

    def on_loop(self, action: Callable[[], None]) -> None:
        action()

    def send_on_loop(self, node: object, request: Any, done: Callable[[Any], None]) -> None:
        done(self._kafka.answer(node, built(request, self.versions)))

    def call_many(
        self, requests: Sequence[tuple[object, Any]], timeout_ms: int | None = None, **_watched: object
    ) -> list[Any]:
        return [self._kafka.answer(node, built(request, self.versions)) for node, request in requests]

    def known_versions(self) -> list[Versions]:
        return [self.versions]

    def named(self, node: int, name: str) -> str:
        self._kafka.happened[f"connection {name}"] += 1
        return f"{node}.{name}"

    def answers_within_ms(self, timeout_ms: int | None = None) -> float:
        return 5_000.0

    def brokers(self) -> list[int]:
        return self._kafka.brokers

    def any_node(self, _but: object = ()) -> int:
        return 1

    def take_brokers(self, answer: object) -> None:
        """There is one."""

    def knows(self, node: object) -> bool:
        return True


class ScriptedCluster(Cluster):
    """The client's own view of a scripted cluster. Pauses are counted; `pauses_take_no_time` is for them."""

    def __init__(self, kafka: ScriptedKafka) -> None:
        self.settings = ClientSettings(("scripted:0",), delivery_timeout_ms=5_000)
        self.kafka = kafka
        scripted = _Network(kafka)
        self.network = scripted  # type: ignore[assignment]
        self.offered = scripted.offered
        self.features = {}
        self._topics = {}
        self.gone_topic_ids = set()
        self.lacked_until_s = {}
        self._coordinators, self._left = {}, {}
        self._others = OtherBrokers(self.network)

    def pause(self, delay_ms: float = RETRY_BACKOFF_MS) -> None:  # type: ignore[override]
        """As any client's, counted."""
        self.kafka.happened["pause"] += 1
        super().pause(delay_ms)
