"""Topics as an operator makes, lists and deletes them.

Owns: the requests for whole topics, and the meaning of each refusal.
Does not know: who asks, which topics the connector needs (`admin`).
Invariants:
- Creating or deleting a topic counts as done only where the controller confirmed it, or where an earlier try may have
  done it and the topic is as asked now.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from kafka_core.errors import (
    AuthorizationFailed,
    BrokerUnavailable,
    ExactlyOnceError,
    OptionsError,
    ProtocolViolation,
    UnknownTopic,
)
from kafka_core.protocol import messages as m
from kafka_core.protocol.error_codes import Code, name_of
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.definite import Again, until_definite
from pyspark_kafka_eos.client.single import only
from pyspark_kafka_eos.client.topic_info import is_lacking
from pyspark_kafka_eos.client.wire.versions import Build

BROKERS_DEFAULT = -1
"""Kafka's own sign for a number of partitions or replicas that the broker chooses (KIP-464)."""

_DENIED = (Code.TOPIC_AUTHORIZATION_FAILED, Code.CLUSTER_AUTHORIZATION_FAILED)

_ASK_AGAIN = (Code.NOT_CONTROLLER, Code.REQUEST_TIMED_OUT, Code.THROTTLING_QUOTA_EXCEEDED)
"""Only the controller creates and deletes. Metadata may lag, so the request may reach another broker."""

_USERS = {
    Code.INVALID_TOPIC_EXCEPTION: "choose another name",
    Code.INVALID_PARTITIONS: "choose another number of partitions",
    Code.INVALID_REPLICATION_FACTOR: "choose a replication factor of at most the number of brokers",
    Code.INVALID_CONFIG: "correct the setting",
    Code.INVALID_REQUEST: "correct the request",
    Code.POLICY_VIOLATION: "the operator of the broker set this rule",
    Code.TOPIC_DELETION_DISABLED: "the broker's delete.topic.enable is false",
}
"""Refusals that the one who asked can do something about, and what."""


@dataclass(frozen=True)
class NewTopic:
    """A topic to be made. `partitions`, `replication_factor`: BROKERS_DEFAULT where the broker chooses."""

    name: str
    partitions: int = BROKERS_DEFAULT
    replication_factor: int = BROKERS_DEFAULT
    settings: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class TopicShape:
    """A topic by the metadata. `without_leader`: partitions that cannot be read or written now."""

    name: str
    partitions: int
    replication_factor: int
    internal: bool
    without_leader: int


def creation_request(cluster: Cluster, topic: NewTopic, *, timeout_ms: int, validate_only: bool = False) -> Build:
    """CreateTopics of one topic."""
    request_class = m.CreateTopicsRequest
    topic_class = request_class.CreatableTopic
    return cluster.build(
        request_class,
        topics=[
            topic_class(
                name=topic.name,
                num_partitions=topic.partitions,
                replication_factor=topic.replication_factor,
                assignments=[],
                configs=[
                    topic_class.CreatableTopicConfig(name=key, value=value) for key, value in topic.settings.items()
                ],
            )
        ],
        timeout_ms=timeout_ms,
        validate_only=validate_only,
    )


def make(cluster: Cluster, topic: NewTopic, *, validate_only: bool = False, timeout_ms: float | None = None) -> bool:
    """Create a topic, or with `validate_only` only ask whether it could be. False where it already exists.

    OptionsError where the broker refuses the name, a number or a setting; AuthorizationFailed; BrokerUnavailable where
    no controller confirmed it in time, so that it may exist later.
    """
    budget = cluster.budget(timeout_ms)
    request_ms = budget.request_ms(cluster.settings.request_timeout_ms)
    request = creation_request(cluster, topic, timeout_ms=request_ms, validate_only=validate_only)
    unconfirmed = False

    def attempt() -> bool | Again:
        nonlocal unconfirmed
        before, unconfirmed = unconfirmed, not validate_only
        answer = cluster.call(cluster.any_node(), request, budget)
        result = only(answer.topics, m.CreateTopicsRequest, repr(topic.name))
        if result.error_code == Code.TOPIC_ALREADY_EXISTS:
            # An earlier try that lost its answer may be what made it.
            return before
        unconfirmed = before or (unconfirmed and result.error_code == Code.REQUEST_TIMED_OUT)
        return _judge("create", topic.name, result, "CREATE")

    return until_definite(
        attempt, deadline_ms=budget.left_ms, late=_late("create", topic.name), pause=cluster.pause, pause_ms=100
    )


def delete(cluster: Cluster, name: str, timeout_ms: float | None = None) -> bool:
    """Delete a topic and its records. False where it does not exist. Errors as of `make`."""
    budget = cluster.budget(timeout_ms)
    request_ms = budget.request_ms(cluster.settings.request_timeout_ms)
    request = cluster.build(m.DeleteTopicsRequest, topic_names=[name], timeout_ms=request_ms)
    unconfirmed = False

    def attempt() -> bool | Again:
        nonlocal unconfirmed
        before, unconfirmed = unconfirmed, True
        answer = cluster.call(cluster.any_node(), request, budget)
        result = only(answer.responses, m.DeleteTopicsRequest, repr(name))
        if result.error_code == Code.UNKNOWN_TOPIC_OR_PARTITION:
            return before
        unconfirmed = before or result.error_code == Code.REQUEST_TIMED_OUT
        return _judge("delete", name, result, "DELETE")

    return until_definite(
        attempt, deadline_ms=budget.left_ms, late=_late("delete", name), pause=cluster.pause, pause_ms=100
    )


def shapes(cluster: Cluster, names: Sequence[str] | None = None) -> list[TopicShape]:
    """The topics of these names, by default all that this user may describe; sorted by name. UnknownTopic,
    AuthorizationFailed for a name that was given."""
    wanted = None if names is None else [m.MetadataRequest.MetadataRequestTopic(name=each) for each in names]
    answer = cluster.call_any(cluster.build(m.MetadataRequest, topics=wanted, allow_auto_topic_creation=False))
    for each in answer.topics if names is not None else ():
        if is_lacking(each):
            raise UnknownTopic(f"topic {each.name!r} does not exist; nothing was changed", {"topic": each.name})
        if each.error_code in _DENIED:
            raise AuthorizationFailed(
                f"no right to see topic {each.name!r}; grant DESCRIBE on it", {"topic": each.name}
            )
    found = [
        TopicShape(
            name=each.name,
            partitions=len(each.partitions),
            replication_factor=max((len(part.replica_nodes) for part in each.partitions), default=0),
            internal=bool(each.is_internal),
            without_leader=sum(part.leader_id < 0 for part in each.partitions),
        )
        for each in answer.topics
    ]
    return sorted(found, key=lambda each: each.name)


def _judge(verb: str, name: str, result: m.Message, right: str) -> bool | Again:
    code, text = result.error_code, f"{name_of(result.error_code)} {result.error_message or ''}".strip()
    if code == Code.NONE:
        return True
    if code in _ASK_AGAIN:
        return Again(text)
    facts = {"topic": name, "code": name_of(code)}
    if code in _DENIED:
        raise AuthorizationFailed(f"no right to {verb} topic {name!r}: grant {right} on it", facts)
    if code in _USERS:
        raise OptionsError(f"the broker does not {verb} topic {name!r}: {text}: {_USERS[code]}", facts)
    raise ProtocolViolation(f"the broker refused to {verb} topic {name!r}: {text}", facts)


def _late(verb: str, name: str) -> Callable[[Again], bool]:
    def late(last: Again) -> bool:
        cause: ExactlyOnceError | None = last.error
        raise BrokerUnavailable(
            f"it is not confirmed within the time allowed that the brokers {verb} topic {name!r} (last: {last}): look with "
            "kafka-eos topic list before trying again",
            {"topic": name},
        ) from cause

    return late


__all__ = ["BROKERS_DEFAULT", "NewTopic", "TopicShape", "creation_request", "delete", "make", "shapes"]
