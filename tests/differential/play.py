"""One scenario played to one broker, and the transcript that comes of it.

Owns: names that no other play uses, waiting out what the protocol says to wait out, and what of an answer is compared:
producer ids by order of appearance, no times of the broker's own, no texts for people.
Does not know: which scenarios there are, other brokers.
Invariants: two brokers that behave the same leave equal transcripts; a step's label is unique in its scenario.
"""

from __future__ import annotations

import re
import threading
import time
import uuid
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from kafka_core.protocol.error_codes import Code
from tests.differential import records
from tests.differential.records import Identity
from tests.differential.wire import Answer, Connection, HungUp, codes

Step = tuple[str, Any]

NOT_YET = frozenset({
    Code.COORDINATOR_LOAD_IN_PROGRESS, Code.COORDINATOR_NOT_AVAILABLE, Code.NOT_COORDINATOR,
    Code.CONCURRENT_TRANSACTIONS, Code.NOT_ENOUGH_REPLICAS, Code.LEADER_NOT_AVAILABLE, Code.NOT_LEADER_OR_FOLLOWER,
})  # fmt: skip
"""Asked again until they are over, except where a scenario wants to see them. (A partition's leader answers
NOT_ENOUGH_REPLICAS to versions of Produce that do not know CONCURRENT_TRANSACTIONS.)"""

NOBODYS_ID = 987_654_321
"""A producer id that no broker has come to."""

_NO_ANSWER_AFTER_S = 8.0
_WITHIN_S = 30.0
_ASK_AGAIN_AFTER_S = 0.005
_DAY_MS = 86_400_000
_NOT_COMPARED = frozenset({
    "throttle_time_ms", "error_message", "batch_index_error_message", "host", "port", "node_endpoints", "cluster_id",
    "session_id", "topic_id", "current_leader", "diverging_epoch", "snapshot_id", "rack", "preferred_read_replica",
})  # fmt: skip
_SORTED_BY = ("name", "topic", "transactional_id", "group_id", "key", "index", "partition_index", "partition")
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


@dataclass
class Transaction:
    """A transactional id, and who its client believes to be."""

    name: str
    who: Identity
    topic: str = ""


def new_token() -> str:
    """Names that contain it are new to every broker."""
    return uuid.uuid4().hex[:10]


@dataclass
class Play:
    """The scenario's hands.

    new_protocol: it is a client of transaction version 2, else of version 1.
    token: part of every name; equal on the brokers that are compared, because coordinators are found by names' hashes.
    """

    connection: Connection
    new_protocol: bool
    token: str
    transcript: list[Step] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._count = 0
        self._names: dict[str, dict[Any, str]] = {}
        self._pause = threading.Event()
        self.produce_version = 12 if self.new_protocol else 11
        self.end_version = 5 if self.new_protocol else 4
        self.commit_version = 5 if self.new_protocol else 4

    # ---- steps

    def note(self, label: str, said: Any) -> None:
        """One line of the transcript."""
        assert label not in dict(self.transcript), f"two steps are called {label!r}"
        self.transcript.append((label, self._comparable(said)))

    def ask(self, label: str | None, api: str, version: int, again: Collection[int] = NOT_YET, **fields: Any) -> Answer:
        """A request, repeated while the answer has a code of `again`; noted under the label, if there is one.

        Without an answer (`HungUp`): {"connection": "closed"}.
        """
        deadline = time.monotonic() + _WITHIN_S
        while True:
            try:
                answer = self.connection.call(api, version, **fields)
            except HungUp:
                answer = {"connection": "closed"}
            if not any(code in again for code in codes(answer)):
                break
            assert time.monotonic() < deadline, f"{label or api}: still {answer} after {_WITHIN_S} s"
            self._pause.wait(_ASK_AGAIN_AFTER_S)
        if label is not None:
            self.note(label, answer)
        return answer

    @contextmanager
    def no_answer_expected(self) -> Iterator[None]:
        """Waits a few seconds for each answer: a real broker is known to give none (see `known`), and the embedded one
        does.
        """
        usual = self.connection.answers_within_s
        self.connection.answers_within_s = _NO_ANSWER_AFTER_S
        try:
            yield
        finally:
            self.connection.answers_within_s = usual

    def name(self, kind: str) -> str:
        """One that nobody used before; equal in every transcript."""
        self._count += 1
        return f"{kind}-{self.token}-{self._count}"

    def topic(self, partitions: int = 1, **configs: str) -> str:
        """A new topic that keeps records of any age."""
        name = self.name("topic")
        kept = {"retention.ms": "-1", **{key.replace("_", "."): value for key, value in configs.items()}}
        made = self.ask(
            None, "CreateTopics", 5, timeout_ms=20_000, validate_only=False,
            topics=[{
                "name": name, "num_partitions": partitions, "replication_factor": 1, "assignments": [],
                "configs": [{"name": key, "value": value} for key, value in kept.items()],
            }],
        )  # fmt: skip
        assert made["topics"][0]["error_code"] == 0, made
        self.wait_for_topic(name, partitions)
        return name

    def wait_for_topic(self, name: str, partitions: int) -> None:
        """A broker's own view of a new topic comes a moment after the answer to its creation."""

        def there() -> bool:
            (found,) = self.metadata(name)["topics"]
            return found["error_code"] == 0 and sum(not p["error_code"] for p in found["partitions"]) == partitions

        self.wait_until(there, f"{name} has {partitions} partitions")
        for partition in range(partitions):
            # The metadata name a new topic's leader before that broker has become it.
            self.offset_at(None, name, -1, partition=partition)

    def metadata(self, *names: str) -> Answer:
        """What the broker says of the topics, which are not made by that."""
        topics = [{"name": name} for name in names]
        return self.ask(None, "Metadata", 7, again=(), topics=topics, allow_auto_topic_creation=False)

    def wait_until(self, said: Any, what: str) -> None:
        """Ask until it is so."""
        deadline = time.monotonic() + _WITHIN_S
        while not said():
            assert time.monotonic() < deadline, f"never happened: {what}"
            self._pause.wait(_ASK_AGAIN_AFTER_S)

    # ---- producers and transactions

    def init(
        self, label: str | None, name: str | None, given: Identity = records.NOBODY, *,
        version: int = 4, timeout_ms: int = 60_000, again: Collection[int] = NOT_YET,
    ) -> Identity:  # fmt: skip
        """InitProducerId; `given` goes along from version 3 on."""
        known = {"producer_id": given.producer_id, "producer_epoch": given.epoch} if version >= 3 else {}
        answer = self.ask(
            label, "InitProducerId", version, again,
            transactional_id=name, transaction_timeout_ms=timeout_ms, **known,
        )  # fmt: skip
        return Identity(answer.get("producer_id", -1), answer.get("producer_epoch", -1))

    def producer(self) -> Identity:
        """An idempotent one."""
        return self.init(None, None)

    def transaction(self, *, timeout_ms: int = 60_000, initialised: int = 3) -> Transaction:
        """A transactional id that was initialised several times, so that there are lower epochs; nothing is open."""
        name = self.name("id")
        who = records.NOBODY
        for _ in range(initialised):
            who = self.init(None, name, timeout_ms=timeout_ms)
        return Transaction(name, who, self.topic())

    def open(self, txn: Transaction, *values: bytes) -> None:
        """Its first records, in partition 0 of its topic, after what the client's version does to open one."""
        if not self.new_protocol:
            self.add(None, txn, {txn.topic: [0]})
        answer = self.write(None, txn, 0, *(values or (b"a", b"b")))
        assert not any(codes(answer)), answer

    def write(self, label: str | None, txn: Transaction, sequence: int, *values: bytes, partition: int = 0) -> Answer:
        """A batch of the transaction to its topic."""
        whole = records.batch(*values, who=txn.who, sequence=sequence, transactional=True)
        return self.produce(label, txn.topic, whole, partition=partition, transactional_id=txn.name)

    def produce(
        self, label: str | None, topic: str, data: bytes | None, *, partition: int = 0,
        transactional_id: str | None = None, acks: int = -1, version: int | None = None,
        again: Collection[int] = NOT_YET,
    ) -> Answer:  # fmt: skip
        """Ready-made bytes to one partition."""
        return self.ask(
            label, "Produce", version or self.produce_version, again,
            transactional_id=transactional_id, acks=acks, timeout_ms=30_000,
            topic_data=[{"name": topic, "partition_data": [{"index": partition, "records": data}]}],
        )  # fmt: skip

    def add(
        self, label: str | None, txn: Transaction, topics: dict[str, list[int]], *,
        version: int = 3, again: Collection[int] = NOT_YET,
    ) -> Answer:  # fmt: skip
        """AddPartitionsToTxn as clients send it."""
        return self.ask(
            label, "AddPartitionsToTxn", version, again,
            v3_and_below_transactional_id=txn.name, v3_and_below_producer_id=txn.who.producer_id,
            v3_and_below_producer_epoch=txn.who.epoch,
            v3_and_below_topics=[{"name": name, "partitions": parts} for name, parts in topics.items()],
        )  # fmt: skip

    def add_offsets(
        self, label: str | None, txn: Transaction, group: str, *, again: Collection[int] = NOT_YET
    ) -> Answer:
        """AddOffsetsToTxn."""
        return self.ask(
            label, "AddOffsetsToTxn", 3, again, transactional_id=txn.name,
            producer_id=txn.who.producer_id, producer_epoch=txn.who.epoch, group_id=group,
        )  # fmt: skip

    def commit_offset(
        self, label: str | None, txn: Transaction, group: str, offset: int, *, topic: str = "",
        version: int | None = None, member: str = "", generation: int = -1, instance: str | None = None,
        metadata: str | None = "m", again: Collection[int] = NOT_YET,
    ) -> Answer:  # fmt: skip
        """TxnOffsetCommit of partition 0 of the transaction's topic."""
        version = version or self.commit_version
        membership = {"generation_id": generation, "member_id": member, "group_instance_id": instance}
        return self.ask(
            label, "TxnOffsetCommit", version, again, transactional_id=txn.name, group_id=group,
            producer_id=txn.who.producer_id, producer_epoch=txn.who.epoch, **(membership if version >= 3 else {}),
            topics=[{"name": topic or txn.topic, "partitions": [
                {"partition_index": 0, "committed_offset": offset, "committed_metadata": metadata}]}],
        )  # fmt: skip

    def committed(self, label: str | None, group: str, topic: str, *, stable: bool = False) -> Answer:
        """OffsetFetch of partition 0."""
        return self.ask(
            label, "OffsetFetch", 7, group_id=group, require_stable=stable,
            topics=[{"name": topic, "partition_indexes": [0]}],
        )  # fmt: skip

    def end(
        self, label: str | None, txn: Transaction, commit: bool, *, version: int | None = None,
        again: Collection[int] = NOT_YET,
    ) -> Answer:  # fmt: skip
        """EndTxn; what version 5 answers is who the client is from then on."""
        answer = self.ask(
            label, "EndTxn", version or self.end_version, again, transactional_id=txn.name,
            producer_id=txn.who.producer_id, producer_epoch=txn.who.epoch, committed=commit,
        )  # fmt: skip
        if answer.get("producer_id", -1) >= 0 and answer["error_code"] == 0:
            txn.who = Identity(answer["producer_id"], answer["producer_epoch"])
        return answer

    def ended(self, txn: Transaction, commit: bool) -> None:
        """EndTxn of which nothing is noted, and its markers are there."""
        answer = self.end(None, txn, commit)
        assert answer["error_code"] == 0, answer
        self.settle(txn.name)

    def settle(self, name: str) -> None:
        """Until no markers are being written for the id."""

        def settled() -> bool:
            (state,) = self.ask(None, "DescribeTransactions", 0, transactional_ids=[name])["transaction_states"]
            return not state["transaction_state"].startswith("Prepare")

        self.wait_until(settled, f"the markers of {name} are written")

    # ---- looking

    def describe(self, label: str, txn: Transaction) -> None:
        """What the coordinator says of the id when nothing is under way."""
        self.settle(txn.name)
        self.ask(label, "DescribeTransactions", 0, transactional_ids=[txn.name])

    def producers(self, label: str, topic: str, partition: int = 0) -> None:
        """What the partition's leader remembers of producers."""
        topics = [{"name": topic, "partition_indexes": [partition]}]
        self.ask(label, "DescribeProducers", 0, topics=topics)

    def fetch(
        self, label: str | None, topic: str, offset: int = 0, *, committed: bool = False, partition: int = 0,
        max_bytes: int = 1 << 20, total_bytes: int = 1 << 24, version: int = 11, epoch: int = -1,
    ) -> Answer:  # fmt: skip
        """Fetch without a session, and without waiting."""
        part = {
            "partition": partition, "current_leader_epoch": epoch, "fetch_offset": offset, "log_start_offset": -1,
            "partition_max_bytes": max_bytes,
        }  # fmt: skip
        return self.ask(
            label, "Fetch", version, max_wait_ms=0, min_bytes=0, max_bytes=total_bytes,
            isolation_level=int(committed), topics=[{"topic": topic, "partitions": [part]}],
        )  # fmt: skip

    def look(self, label: str, txn: Transaction) -> None:
        """Everything that shows of a transaction: its state, its partition's producers and its partition's log."""
        self.describe(f"{label}: id", txn)
        self.producers(f"{label}: producers", txn.topic)
        self.fetch(f"{label}: log", txn.topic, committed=True)

    def offset_at(
        self, label: str | None, topic: str, timestamp: int, *, committed: bool = False, partition: int = 0,
        version: int = 7, epoch: int = -1,
    ) -> Answer:  # fmt: skip
        """ListOffsets; -1 latest, -2 earliest, -3 the record with the latest timestamp."""
        part = {"partition_index": partition, "timestamp": timestamp, "current_leader_epoch": epoch}
        return self.ask(
            label, "ListOffsets", version, replica_id=-1, isolation_level=int(committed),
            topics=[{"name": topic, "partitions": [part]}],
        )  # fmt: skip

    # ---- what is compared

    def _comparable(self, said: Any, key: str = "") -> Any:
        if isinstance(said, dict):
            return {name: self._comparable(value, name) for name, value in said.items() if name not in _NOT_COMPARED}
        if key == "records" and not isinstance(said, list):
            return self._comparable(records.read(said), key)
        if key == "active_producers":
            # A real broker's order is that of a hash table; ids are handed out in ascending order by both.
            said = sorted(said, key=lambda one: one["producer_id"])
        if isinstance(said, (list, tuple)):
            items = [self._comparable(one, key) for one in said]
            return items if key == "aborted_transactions" else sorted(items, key=_order)
        if isinstance(said, bytes):
            said = said.decode("latin-1")
        if isinstance(said, str):
            return self._without_chance(said)
        if key in ("producer_id", "producer_ids") and said >= 0 and said != NOBODYS_ID:
            return self._called("pid", said)
        if key.endswith("error_code"):
            return _code_name(said)
        if isinstance(said, int) and abs(said - time.time() * 1000) < _DAY_MS:
            return "now"
        return said

    def _without_chance(self, text: str) -> str:
        return _UUID.sub(lambda found: self._called("uuid", found[0]), text.replace(f"-{self.token}", ""))

    def _called(self, kind: str, what: Any) -> str:
        """A name by the order of appearance."""
        names = self._names.setdefault(kind, {})
        return names.setdefault(what, f"{kind}-{chr(ord('A') + len(names))}")


def _order(one: Any) -> tuple[Any, ...]:
    """Topics and partitions may come in any order; what is in a log or a list of members may not."""
    if isinstance(one, dict):
        return tuple(str(one[name]).rjust(12) for name in _SORTED_BY if name in one)
    return ()


def _code_name(code: int) -> str:
    return Code(code).name if code in set(Code) else str(code)
