"""The embedded broker's own `Node` on the test's thread, without sockets: what a unit test of the commit asks instead
of a cluster.

Owns: carrying requests to it, faults between it and the client, what tests do to it at once, and further brokers that
clients are told of.
Does not know: what is answered (the broker's own code), except where another broker than the leader is asked for
metadata.
"""

from __future__ import annotations

import itertools
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from embedded_kafka.context import Context
from embedded_kafka.faults import fault as injected
from embedded_kafka.faults.error_answers import refusal
from embedded_kafka.leader_views import take_stand
from embedded_kafka.parts import Parts
from embedded_kafka.serving.cluster import KafkaCluster
from embedded_kafka.settings.config import BrokerConfig
from embedded_kafka.topics.internal_topics import OFFSETS_TOPIC
from embedded_kafka.topics.topics import Topic
from embedded_kafka.transactions.machine.events import Expire, TransactionLogEntry
from embedded_kafka.wire.server import (
    REQUESTS,
    ApiVersionsRequest,
    InitProducerIdRequest,
    ListGroupsRequest,
    Message,
    MetadataRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    WriteTxnMarkersRequest,
    api_name,
    parse_header,
    parse_request,
    response_class,
)
from kafka_core.errors import BrokerUnavailable, ExactlyOnceError
from kafka_core.protocol.error_codes import Code
from kafka_core.values import ProducerIdentity, TopicPartition, by_topic
from tests.pyspark_kafka_eos.commit.node_log import NodeLog
from tests.pyspark_kafka_eos.commit.still_loop import StillLoop

OFFSETS = TopicPartition(OFFSETS_TOPIC, 0)

NODE, CUT_OFF = 1, 2
"""The broker, and one that was cut off from the controller: it answers for what it led, as of then."""

_SHARED_MEMORY = Path("/dev/shm")

Matches = Callable[[Message], bool]


@dataclass
class Fault:
    """What happens to requests of an API before the broker has them. `fired` counts how often it did."""

    api: str
    action: str | Code | Callable[[], None]
    times: int
    skip: int
    matches: Matches
    fired: int = 0


class _Ids:
    """Producer ids that nobody had before in this cluster, without the thread that claims them ahead."""

    def __init__(self) -> None:
        self._ids = itertools.count(1_000)

    def start(self) -> None:
        """All are there."""

    def next_id(self) -> int:
        return next(self._ids)

    def close(self) -> None:
        """Nothing is open."""


class NodeKafka:
    """One broker. `version`: its feature transaction.version. Its data are gone at the end of the context."""

    def __init__(self, version: int = 2) -> None:
        self.version = version
        self.config = BrokerConfig(
            node_id=NODE,
            transaction_version=version,
            transaction_state_partitions=1,
            offsets_topic_partitions=1,
            auto_create_topics_enable=False,
        )
        self.asked: Counter[str] = Counter()
        self.brokers = [NODE]
        """Those that clients know; the first one is asked what any can answer."""
        self.fresh: set[object] = set()
        """Those of them that have just started and have no topics yet."""
        self.lacking: set[str] = set()
        """Topics that the broker CUT_OFF does not have: it has just started."""
        self.stale: set[TopicPartition] = set()
        """What the broker CUT_OFF leads, for all that it knows: as those logs were."""
        self.told: dict[str, int] = {}
        """How many partitions of a topic the metadata show that lag behind."""
        self._faults: list[Fault] = []
        self._late: list[injected.Fault] = []
        self._on_pause: list[Callable[[], None]] = []
        self._logs: dict[TopicPartition, NodeLog] = {}
        self._directory = Path(
            tempfile.mkdtemp(prefix="node-", dir=_SHARED_MEMORY if _SHARED_MEMORY.is_dir() else None)
        )
        self._ids = _Ids()
        self.loop = StillLoop()
        self._start()

    def _start(self) -> None:
        self.cluster = KafkaCluster(self._directory, self._ids, self.config)  # type: ignore[arg-type]
        self.node = self.cluster.nodes[0]
        self.loop.run(self.cluster.start())
        asked = ApiVersionsRequest(version=3, client_software_name="test", client_software_version="1")
        self.api_versions = {each.api_key: (each.min_version, each.max_version) for each in self._ask(asked).api_keys}
        """API -> the lowest and the highest version that the broker has."""

    @property
    def parts(self) -> Parts:
        return self.node.parts

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """While it does not run; afterwards another broker does, on the same data."""
        self.loop.run(self.cluster.stop())
        yield
        self._start()

    def restart(self, **config: Any) -> None:
        """Another broker on the same data, with these settings changed."""
        with self.stopped():
            self.config = replace(self.config, **config)

    def __enter__(self) -> NodeKafka:
        return self

    def __exit__(self, *_: object) -> None:
        """Its data are gone."""
        self.loop.run(self.cluster.stop())
        self.loop.close()
        shutil.rmtree(self._directory)

    # ---- topics

    def create(self, topic: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        self.parts.topics.create(topic, partitions, configs)

    def grow(self, topic: str, partitions: int) -> None:
        self.parts.topics.add_partitions(topic, partitions)

    def delete(self, topic: str) -> None:
        self.parts.topics.delete(topic)

    def topic(self, name: str) -> Topic:
        """Its id, its partitions, its configuration."""
        found = self.parts.topics.get(name)
        assert found is not None, f"there is no topic {name}"
        return found

    def configure(self, topic: str, configs: Mapping[str, str]) -> None:
        """Set these beside those that are set."""
        self.parts.topics.configure(topic, {**self.topic(topic).configs, **configs})

    def log(self, where: TopicPartition) -> NodeLog:
        return self._logs.setdefault(where, NodeLog(self, where))

    def cut_off(self, where: TopicPartition) -> None:
        """A new leader has everything, and the one that it replaces goes on to answer at another broker, as of now."""
        self.lead(where, injected.LeaderFault.STALE, None, client_id=_client_id(CUT_OFF))
        self.stale.add(where)
        self.log(where).elect()

    def lead(
        self,
        where: TopicPartition,
        leader: injected.LeaderFault,
        end: int | None,
        client_id: str | None = None,
    ) -> injected.Fault:
        """Have another leader answer for the partition, for as long as the fault is not released."""
        fault = injected.Fault(
            leader,
            topic=where.topic,
            partition=where.partition,
            end=end,
            client_id=client_id,
            times=sys.maxsize,
        )
        return self.parts.faults.inject(take_stand(self.parts, fault))

    def release(self, fault: injected.Fault) -> None:
        self.parts.faults.release(fault)

    # ---- transactions

    def forget_marker(self, where: TopicPartition, name: str | None = None, *, late: bool = False) -> injected.Fault:
        """The next marker (of this id) for this partition is never written, or `late`: with `release_markers`."""
        action = injected.MarkerFault.LATE if late else injected.MarkerFault.FORGET
        fault = self.parts.faults.inject(
            injected.Fault(action, topic=where.topic, partition=where.partition, transactional_id=name)
        )
        if late:
            self._late.append(fault)
        return fault

    def release_markers(self) -> None:
        """Write every marker that is late."""

        async def release() -> None:
            for fault in self._late:
                if fault.fired:
                    self.parts.faults.release(fault)

        self.loop.run(release())

    def advance(self, ms: int) -> None:
        """Time goes on: what is older than its timeout by then is aborted."""

        async def advance() -> None:
            self.cluster.advance(ms)

        self.loop.run(advance())

    def abort_hanging(self, where: TopicPartition, identity: ProducerIdentity) -> None:
        """What `kafka-transactions.sh abort` does: WriteTxnMarkers, without the coordinator."""
        marker = WriteTxnMarkersRequest.WritableTxnMarker
        self._ask(
            WriteTxnMarkersRequest(
                version=1,
                markers=[
                    marker(
                        producer_id=identity.producer_id,
                        producer_epoch=identity.epoch,
                        transaction_result=False,
                        topics=[marker.WritableTxnMarkerTopic(name=where.topic, partition_indexes=[where.partition])],
                        coordinator_epoch=0,
                    )
                ],
            )
        )

    def take_over(self, name: str) -> None:
        """What another producer's first request does to an id, whatever it is answered."""
        self._ask(
            InitProducerIdRequest(
                version=3,
                transactional_id=name,
                transaction_timeout_ms=60_000,
                producer_id=-1,
                producer_epoch=-1,
            )
        )

    def ids(self) -> dict[str, TransactionLogEntry]:
        """What the coordinator has of each transactional id."""
        return dict(self.parts.transactions.listing())

    def expire(self, name: str) -> None:
        """Forget an id as if nobody had used it for long, and nothing else."""
        self.parts.transactions._book.expire(name, Expire(self.parts.clock.now_ms(), 0))
        assert name not in self.ids(), f"{name} is in use"

    def set_epoch(self, name: str, epoch: int) -> None:
        """As if so many epochs had been used."""
        book = self.parts.transactions._book
        value = book.get(name)
        assert value is not None
        book._keep(replace(value, current=replace(value.current, epoch=epoch)))

    # ---- offsets of groups

    @property
    def committed(self) -> dict[str, dict[TopicPartition, int]]:
        """Group -> partition -> offset."""
        listed = self._ask(ListGroupsRequest(version=4, states_filter=[]))
        asked = OffsetFetchRequest.OffsetFetchRequestGroup
        groups = [asked(group_id=each.group_id, topics=None) for each in listed.groups]
        if not groups:
            return {}
        answer = self._ask(OffsetFetchRequest(version=8, groups=groups, require_stable=False))
        found = {
            group.group_id: {
                TopicPartition(topic.name, part.partition_index): part.committed_offset
                for topic in group.topics
                for part in topic.partitions
            }
            for group in answer.groups
        }
        return {group: offsets for group, offsets in found.items() if offsets}

    def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """As a consumer does, outside of any transaction."""
        topic = OffsetCommitRequest.OffsetCommitRequestTopic
        self._ask(
            OffsetCommitRequest(
                version=8,
                group_id=group,
                generation_id_or_member_epoch=-1,
                member_id="",
                group_instance_id=None,
                topics=[
                    topic(
                        name=name,
                        partitions=[
                            topic.OffsetCommitRequestPartition(
                                partition_index=number,
                                committed_offset=offsets[TopicPartition(name, number)],
                                committed_leader_epoch=-1,
                                committed_metadata="",
                            )
                            for number in numbers
                        ],
                    )
                    for name, numbers in by_topic(offsets)
                ],
            )
        )

    # ---- between the client and the broker

    def fault(
        self,
        api: str,
        action: str | Code | Callable[[], None],
        *,
        times: int = 1,
        skip: int = 0,
        matches: Matches = lambda _: True,
    ) -> Fault:
        """`action`: "drop-request" (not done, no answer), "drop-answer" (done, no answer), a code (not done), or
        something to happen before the request is done.
        """
        assert api in {api_name(key) for key in REQUESTS}
        fault = Fault(api, action, times, skip, matches)
        self._faults.append(fault)
        return fault

    def clear_faults(self) -> None:
        self._faults.clear()
        self.parts.faults.clear()

    def at_pause(self, action: Callable[[], None]) -> None:
        """Have something happen the next time that a client waits before it asks again."""
        self._on_pause.append(action)

    def paused(self) -> None:
        for action in self._on_pause[:1]:
            self._on_pause.remove(action)
            action()

    def answer(self, request: Message, node: object = NODE) -> Message | ExactlyOnceError:
        """What a client gets from a broker: an answer, or an error where the connection is lost."""
        name = api_name(request.API_KEY)
        self.asked[name] += 1
        action, asked = self._fault_for(name, request)
        if action == "drop-request":
            return BrokerUnavailable(f"the request {name} was dropped by a test")
        if isinstance(action, Code):
            return refusal(asked, action)
        if callable(action):
            action()
        answer = self._ask(request, _client_id(node))
        if action == "drop-answer":
            return BrokerUnavailable(f"the answer to {name} was dropped by a test")
        if request.API_KEY == MetadataRequest.API_KEY:
            self._as_known_to(node, answer)
        return answer

    def _fault_for(self, name: str, request: Message) -> tuple[str | Code | Callable[[], None] | None, Message]:
        """What happens to the request, and the request as a broker reads it."""
        faults = [each for each in self._faults if each.api == name and each.fired < each.times]
        if not faults:
            return None, request
        frame = _frame(request, "")
        asked = parse_request(parse_header(frame), frame)
        for fault in faults:
            if not fault.matches(asked):
                continue
            if fault.skip:
                fault.skip -= 1
                continue
            fault.fired += 1
            return fault.action, asked
        return None, asked

    def _as_known_to(self, node: object, answer: Any) -> None:
        """What another broker than the one that there is says of the cluster."""
        broker = type(answer).MetadataResponseBroker
        answer.brokers = [broker(node_id=each, host="node", port=1, rack=None) for each in self.brokers]
        for topic in answer.topics:
            if node in self.fresh or (node == CUT_OFF and topic.name in self.lacking):
                topic.error_code = int(Code.UNKNOWN_TOPIC_OR_PARTITION)
                topic.partitions = []
            topic.partitions = topic.partitions[: self.told.get(topic.name)]
            for part in topic.partitions:
                if node == CUT_OFF and TopicPartition(topic.name, part.partition_index) in self.stale:
                    part.leader_id = CUT_OFF

    def _ask(self, request: Message, client_id: str = "test") -> Any:
        frame = self.loop.run(
            self.node.answer(_frame(request, client_id), lambda name: Context(1, name or "", "127.0.0.1"))
        )
        assert frame is not None
        return response_class(request.API_KEY).decode(bytes(frame[4:]), version=request.API_VERSION, header=True)


def _client_id(node: object) -> str:
    """One broker answers for all; by the client's id it tells which of them is meant."""
    return f"at {node}"


def _frame(request: Message, client_id: str) -> memoryview:
    request.with_header(correlation_id=1, client_id=client_id)
    return memoryview(request.encode(header=True, framed=True))[4:]
