"""What a client is authorized to do, and the state of its topics and groups: nothing is written, created or fenced.

Owns: authorized operations of topics, groups and the cluster (KIP-430), the two rights that no answer lists.
Does not know: which rights are needed for what.
Invariants:
- No request here changes anything, whatever its answer.
- A right that the broker does not report is None.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kafka_core.errors import AuthorizationFailed, BrokerUnavailable, ExactlyOnceError
from kafka_core.protocol import messages as m
from kafka_core.protocol.error_codes import Code, name_of
from kafka_core.values import ProducerIdentity
from pyspark_kafka_eos.client.asking import ask_coordinator
from pyspark_kafka_eos.client.cluster import Cluster, CoordinatorKind
from pyspark_kafka_eos.client.definite import NEW_TOPIC_MS, Again, until_definite
from pyspark_kafka_eos.client.requests.ends import EndRequest, end_many
from pyspark_kafka_eos.client.requests.topics import NewTopic, creation_request
from pyspark_kafka_eos.client.single import only
from pyspark_kafka_eos.client.topic_info import is_lacking

_OPERATIONS = {
    3: "READ", 4: "WRITE", 5: "CREATE", 6: "DELETE", 7: "ALTER", 8: "DESCRIBE", 9: "CLUSTER_ACTION",
    10: "DESCRIBE_CONFIGS", 11: "ALTER_CONFIGS", 12: "IDEMPOTENT_WRITE",
}  # fmt: skip
"""Kafka's numbers of the operations in ACLs."""

_NOBODY = ProducerIdentity(2**63 - 1, 0)
"""The highest producer id. Brokers stop handing ids out below it, so no transaction ever belongs to it."""

_WITHIN_MS = 10_000
"""For one request. A coordinator that is loading takes seconds; a person waits for the answer."""


@dataclass(frozen=True)
class Replicas:
    """One partition: its leader (-1 for none), how many copies it has, how many are in sync."""

    leader: int
    replicas: int
    in_sync: int


@dataclass(frozen=True)
class TopicView:
    """A topic as this client sees it. `rights` is None where the broker does not report them, empty where the
    client may not even describe the topic."""

    name: str
    exists: bool
    rights: frozenset[str] | None
    partitions: tuple[Replicas, ...] = ()


@dataclass(frozen=True)
class GroupView:
    """A consumer group as this client sees it; `state` is Kafka's name, "Dead" for one that does not exist."""

    state: str
    members: int
    rights: frozenset[str] | None


@dataclass(frozen=True)
class BrokerView:
    """One broker: its address, the highest version it supports of each API (None without an answer)."""

    node: int
    address: str
    versions: Mapping[int, int] | None


def brokers(cluster: Cluster) -> list[BrokerView]:
    """Every broker of the cluster; each one is asked for its own versions."""
    listed = cluster.call_any(cluster.build(m.MetadataRequest, topics=[], allow_auto_topic_creation=False)).brokers
    request = cluster.build(m.ApiVersionsRequest, client_software_name="pyspark-kafka-eos", client_software_version="1")
    answers = cluster.network.call_many([(each.node_id, request) for each in listed], _WITHIN_MS)
    return [
        BrokerView(each.node_id, f"{each.host}:{each.port}", _versions(answer))
        for each, answer in zip(listed, answers, strict=True)
    ]


def _versions(answer: m.Message | ExactlyOnceError) -> dict[int, int] | None:
    if isinstance(answer, ExactlyOnceError):
        return None
    return {each.api_key: each.max_version for each in answer.api_keys}


def topics(cluster: Cluster, names: Iterable[str], *, patience_ms: int = NEW_TOPIC_MS) -> dict[str, TopicView]:
    """These topics, by name, with the client's rights on each. None of them is created.

    A topic created a moment ago is not on every broker yet: missing ones are retried for `patience_ms`.
    """
    newest: dict[str, TopicView] = {}

    def attempt() -> dict[str, TopicView] | Again:
        answer = cluster.call_any(
            cluster.build(
                m.MetadataRequest,
                topics=[m.MetadataRequest.MetadataRequestTopic(name=name) for name in sorted(set(names))],
                allow_auto_topic_creation=False,
                include_topic_authorized_operations=True,
            )
        )
        newest.clear()
        newest.update({each.name: _topic(each) for each in answer.topics})
        missing = any(not each.exists and each.rights != frozenset() for each in newest.values())
        return Again("a topic is missing") if missing else newest

    def late(last: Again) -> dict[str, TopicView]:
        if last.error is not None:
            raise last.error
        return newest

    return until_definite(attempt, deadline_ms=patience_ms, late=late, pause=cluster.pause, pause_ms=100)


def _topic(each: m.Message) -> TopicView:
    if each.error_code == Code.TOPIC_AUTHORIZATION_FAILED:
        return TopicView(each.name, False, frozenset())
    partitions = tuple(
        Replicas(part.leader_id, len(part.replica_nodes), len(part.isr_nodes))
        for part in sorted(each.partitions, key=lambda part: int(part.partition_index))
    )
    return TopicView(each.name, not is_lacking(each), _named(each.authorized_operations), partitions)


def cluster_rights(cluster: Cluster) -> frozenset[str] | None:
    """The rights on the cluster; None where the broker does not report them (it may not be described)."""
    answer = cluster.call_any(cluster.build(m.DescribeClusterRequest, include_cluster_authorized_operations=True))
    return _named(answer.authorized_operations) or None


def group(cluster: Cluster, name: str) -> GroupView:
    """A consumer group; AuthorizationFailed if it may not be described, BrokerUnavailable if it cannot be."""
    request = cluster.build(m.DescribeGroupsRequest, groups=[name], include_authorized_operations=True)

    def judge(answer: m.Message) -> GroupView | Again:
        found = only(answer.groups, m.DescribeGroupsRequest, f"group {name!r}")
        if found.error_code == Code.NONE:
            return GroupView(found.group_state, len(found.members), _named(found.authorized_operations))
        if found.error_code == Code.GROUP_AUTHORIZATION_FAILED:
            raise AuthorizationFailed(f"no right to describe group {name!r}; grant READ on it", {"group": name})
        # Any other code is retried: a check only reports that there was no definite answer.
        return Again(name_of(found.error_code), moved=True)

    def late(last: Again) -> GroupView:
        raise BrokerUnavailable(
            f"the coordinator of group {name!r} could not describe it (last: {last})", {"group": name}
        )

    return ask_coordinator(
        cluster,
        CoordinatorKind.GROUP,
        name,
        lambda: request,
        judge,
        deadline_ms=_WITHIN_MS,
        late=late,
        pause_ms=100,
    )


def may_write_id(cluster: Cluster, transactional_id: str) -> bool | None:
    """Whether WRITE on a transactional id is granted; None where the answer does not show it.

    No answer lists this right, so this sends an EndTxn that cannot take effect: its producer id is never
    assigned. The broker checks the right first and then rejects the unknown producer id, whatever the state
    of the id is.
    """
    (answer,) = end_many(
        cluster, [EndRequest(transactional_id, _NOBODY, commit=False, transaction_version=1)], _WITHIN_MS
    )
    if answer.error is not None:
        raise answer.error
    if answer.code == Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
        return False
    return True if answer.code == Code.INVALID_PRODUCER_ID_MAPPING else None


def may_create(cluster: Cluster, topic: str, *, partitions: int, settings: Mapping[str, str]) -> str | None:
    """Why a topic of this shape could not be created, None where it could. The request only validates."""
    asked = NewTopic(topic, partitions, settings=settings)
    request = creation_request(cluster, asked, timeout_ms=_WITHIN_MS, validate_only=True)
    result = only(cluster.call_any(request).topics, m.CreateTopicsRequest, repr(topic))
    if result.error_code in (Code.NONE, Code.TOPIC_ALREADY_EXISTS):
        return None
    return f"{name_of(result.error_code)} {result.error_message or ''}".strip()


def _named(bits: Sequence[int] | Any) -> frozenset[str] | None:
    return None if bits is None else frozenset(_OPERATIONS[bit] for bit in bits if bit in _OPERATIONS)
