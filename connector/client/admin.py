"""Topics and settings of the cluster: what the connector has to know or create before it writes.

Owns: reading topic and broker settings, creating the ledger's topic, listing transactions on every broker.
Does not know: what the settings are used for.
Invariants: a setting that may not be read (ACL) is reported as None, never guessed here.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from connector.client.cluster import NEW_TOPIC_MS, Cluster
from connector.client.offsets import refusal
from connector.errors import (
    AuthorizationFailed,
    BrokerUnavailable,
    ExactlyOnceError,
    ProtocolViolation,
    UnknownTopic,
)
from connector.protocol import messages as m
from connector.protocol.error_codes import Action, Code, action_for, name_of

_TOPIC_RESOURCE = 2
_BROKER_RESOURCE = 4

DEFAULT_MAX_MESSAGE_BYTES = 1_048_588
"""Kafka's default max.message.bytes: assumed where the topic's settings may not be read. A topic with a lower limit then
answers MESSAGE_TOO_LARGE, which aborts the micro-batch with a message that names the setting."""


def topic_settings(cluster: Cluster, topic: str, names: Sequence[str]) -> dict[str, str | None] | None:
    """Settings of a topic by name; None where the right to read them (DESCRIBE_CONFIGS) is missing. UnknownTopic where no broker
    knows it within the time that a new topic gets."""
    deadline = time.monotonic() + NEW_TOPIC_MS / 1000
    while True:
        try:
            return _settings(cluster, _TOPIC_RESOURCE, topic, names)
        except UnknownTopic:
            # The broker that answers may not have heard of a topic that was made a moment ago.
            if time.monotonic() >= deadline:
                raise
            cluster.pause(50)


def broker_settings(
    cluster: Cluster, names: Sequence[str], timeout_ms: int = 30_000
) -> dict[str, str | None] | None:
    """Settings of one broker, whichever answers, by name; None where the right to read them is missing."""
    deadline = time.monotonic() + timeout_ms / 1000
    while True:
        try:
            node = cluster.network.any_node()
            return _settings(cluster, _BROKER_RESOURCE, str(node), names, node=node)
        except BrokerUnavailable:
            # One that was killed a moment ago is still listed.
            if time.monotonic() >= deadline:
                raise
            cluster.pause(100)


def max_message_bytes(cluster: Cluster, topic: str) -> int:
    """Largest record batch that the topic takes, in bytes as sent (header included, after compression)."""
    found = topic_settings(cluster, topic, ["max.message.bytes"])
    value = (found or {}).get("max.message.bytes")
    return int(value) if value is not None else DEFAULT_MAX_MESSAGE_BYTES


def _settings(
    cluster: Cluster, kind: int, name: str, names: Sequence[str], node: int | str | None = None
) -> dict[str, str | None] | None:
    request_class = m.DescribeConfigsRequest
    request = cluster.build(
        request_class,
        resources=[
            request_class.DescribeConfigsResource(
                resource_type=kind, resource_name=name, configuration_keys=list(names)
            )
        ],
        include_synonyms=False,
        include_documentation=False,
    )
    answer = cluster.call_any(request) if node is None else cluster.call(node, request)
    (result,) = answer.results
    if result.error_code in (Code.TOPIC_AUTHORIZATION_FAILED, Code.CLUSTER_AUTHORIZATION_FAILED):
        return None
    if result.error_code == Code.UNKNOWN_TOPIC_OR_PARTITION:
        raise UnknownTopic(f"topic {name!r} does not exist; create it or correct the name", {"topic": name})
    if result.error_code != Code.NONE:
        raise ProtocolViolation(
            f"DescribeConfigs of {name!r} answered {name_of(result.error_code)}", {"resource": name}
        )
    return {entry.name: entry.value for entry in result.configs}


def ensure_topic(
    cluster: Cluster, name: str, *, partitions: int, settings: Mapping[str, str], wait_ms: int = 0
) -> None:
    """Create a topic where it is missing. UnknownTopic where the brokers still do not know it after `wait_ms`, beside the time
    that any new topic gets."""
    try:
        cluster.topic(name, new_topic_ms=0)
        return
    except UnknownTopic:
        create_topic(cluster, name, partitions=partitions, settings=settings)
    deadline = time.monotonic() + wait_ms / 1000
    while True:
        try:
            cluster.topic(name, refresh=True)
            return
        except UnknownTopic:
            if time.monotonic() > deadline:
                raise
            cluster.pause(50)


def create_topic(
    cluster: Cluster, name: str, *, partitions: int, settings: Mapping[str, str], timeout_ms: int = 30_000
) -> bool:
    """Create a topic with the broker's default replication; False where it exists already."""
    request_class = m.CreateTopicsRequest
    topic_class = request_class.CreatableTopic
    request = cluster.build(
        request_class,
        topics=[
            topic_class(
                name=name,
                num_partitions=partitions,
                replication_factor=-1,
                assignments=[],
                configs=[
                    topic_class.CreatableTopicConfig(name=key, value=value) for key, value in settings.items()
                ],
            )
        ],
        timeout_ms=timeout_ms,
        validate_only=False,
    )
    deadline = time.monotonic() + timeout_ms / 1000
    while True:
        (result,) = cluster.call_any(request, timeout_ms).topics
        if result.error_code == Code.NONE:
            return True
        if result.error_code == Code.TOPIC_ALREADY_EXISTS:
            return False
        if result.error_code in (Code.TOPIC_AUTHORIZATION_FAILED, Code.CLUSTER_AUTHORIZATION_FAILED):
            raise AuthorizationFailed(
                f"no right to create topic {name!r}; create it yourself (settings: "
                f"{', '.join(f'{key}={value}' for key, value in settings.items())}) or grant CREATE",
                {"topic": name},
            )
        # Metadata may lag: only the controller creates topics, and a broker that is not it says so.
        if (
            result.error_code not in (Code.NOT_CONTROLLER, Code.REQUEST_TIMED_OUT)
            or time.monotonic() > deadline
        ):
            raise ProtocolViolation(
                f"creating topic {name!r} was refused: {name_of(result.error_code)} {result.error_message or ''}",
                {"topic": name, "code": name_of(result.error_code)},
            )
        cluster.pause(100)


def list_transactions(
    cluster: Cluster, states: Sequence[str] = (), timeout_ms: int = 30_000
) -> dict[str, int]:
    """Transactional id -> producer id of every one that any broker has and that may be seen; in `states` only.

    Asks every broker; one that is loading its transactions is asked again, one that is gone drops out of the metadata
    when its coordinators have moved. BrokerUnavailable where that takes too long: nothing is concluded from a part.
    """
    request = cluster.build(
        m.ListTransactionsRequest, state_filters=list(states), producer_id_filters=[], duration_filter=-1
    )
    metadata = cluster.build(m.MetadataRequest, topics=[], allow_auto_topic_creation=False)
    deadline = time.monotonic() + timeout_ms / 1000
    while True:
        brokers = [broker.node_id for broker in cluster.call_any(metadata, timeout_ms).brokers]
        answers = cluster.network.call_many([(broker, request) for broker in brokers])
        unsettled: list[tuple[int, str]] = []
        for broker, answer in zip(brokers, answers, strict=True):
            if isinstance(answer, ExactlyOnceError):
                unsettled.append((broker, str(answer)))
                continue
            action = action_for(m.ListTransactionsRequest.API_KEY, answer.error_code)
            if action in (Action.RETRY, Action.REDISCOVER):
                unsettled.append((broker, name_of(answer.error_code)))
            elif action is not Action.DONE:
                raise refusal(
                    m.ListTransactionsRequest,
                    answer.error_code,
                    f"broker {broker}",
                    "DESCRIBE on the transactional ids",
                )
        if not unsettled:
            listed = [answer for answer in answers if not isinstance(answer, ExactlyOnceError)]
            return {
                state.transactional_id: state.producer_id
                for answer in listed
                for state in answer.transaction_states
            }
        if time.monotonic() >= deadline:
            broker, reason = unsettled[0]
            raise BrokerUnavailable(
                f"broker {broker} could not list its transactions within the time allowed (last: {reason}), so what "
                "earlier runs left open is unknown",
                {"broker": broker, "timeout_ms": timeout_ms},
            )
        cluster.network.refresh_brokers()
        cluster.pause(100)
