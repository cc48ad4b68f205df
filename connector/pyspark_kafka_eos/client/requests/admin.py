"""Requests of an admin client: the topics and configurations that the connector reads or creates before it writes.

Owns: reading topic and broker settings, creating the ledger's topic, listing transactions on every broker.
Does not know: what the settings are used for.
Invariants: settings hidden by an ACL are returned as None. Only `max_message_bytes` and `topic_rules` assume a default
then.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from kafka_core.errors import (
    AuthorizationFailed,
    BrokerUnavailable,
    ExactlyOnceError,
    ProtocolViolation,
    UnknownTopic,
)
from kafka_core.protocol import messages as m
from kafka_core.protocol.error_codes import Action, Code, name_of
from pyspark_kafka_eos.client import elsewhere
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.definite import (
    ELECTION_BACKOFF_MS,
    NEW_TOPIC_MS,
    Again,
    Budget,
    again_or_refuse,
    until_definite,
)
from pyspark_kafka_eos.client.every_broker import brokers_by_most
from pyspark_kafka_eos.client.reading.offsets import refusal
from pyspark_kafka_eos.client.requests.topics import NewTopic, creation_request
from pyspark_kafka_eos.client.single import only
from pyspark_kafka_eos.client.wire.versions import Build
from pyspark_kafka_eos.model import DEFAULT_MAX_MESSAGE_BYTES, TopicRules

T = TypeVar("T")

_TOPIC_RESOURCE = 2
_BROKER_RESOURCE = 4

MAX_BYTES = "max.message.bytes"
RETENTION = "retention.ms"
POLICY = "cleanup.policy"
TIME_TYPE = "message.timestamp.type"
BACK = "message.timestamp.before.max.ms"
AHEAD = "message.timestamp.after.max.ms"
APART = "message.timestamp.difference.max.ms"
"""Both of them in one, before Kafka 4.0; where it is set and one of them is not, it stands for that one (KIP-937)."""

_NO_LIMIT = 2**63 - 1
_FOR_EVER_MS = 100 * 365 * 24 * 60 * 60 * 1000
"""Times before 1970 are refused anyway."""


def topic_settings(cluster: Cluster, topic: str, names: Sequence[str]) -> dict[str, str | None] | None:
    """Settings of a topic by name; None where the right to read them (DESCRIBE_CONFIGS) is missing. Raises
    UnknownTopic where no broker has the topic within `NEW_TOPIC_MS`."""
    # The broker that answers may not have the metadata of a topic created a moment ago.
    return _patiently(cluster, lambda: _settings(cluster, _TOPIC_RESOURCE, topic, names), NEW_TOPIC_MS)


def _patiently(cluster: Cluster, attempt: Callable[[], T], wait_ms: float) -> T:
    """The result of `attempt`, which is retried after UnknownTopic for up to `wait_ms`."""

    def try_it() -> T | Again:
        try:
            return attempt()
        except UnknownTopic as error:
            return Again(str(error), error=error)

    def late(last: Again) -> T:
        raise last.as_error()

    return until_definite(try_it, deadline_ms=wait_ms, late=late, pause=cluster.pause, pause_ms=ELECTION_BACKOFF_MS)


def broker_settings(
    cluster: Cluster, names: Sequence[str], timeout_ms: float | None = None
) -> dict[str, str | None] | None:
    """Settings of an arbitrary broker, by name; None where the right to read them is missing."""

    budget = cluster.budget(timeout_ms)

    def attempt() -> dict[str, str | None] | None:
        # A broker killed a moment ago is still listed, so each attempt may choose another one.
        node = cluster.any_node()
        return _settings(cluster, _BROKER_RESOURCE, str(node), names, budget, node)

    def late(last: Again) -> dict[str, str | None] | None:
        raise BrokerUnavailable(
            f"no broker returned its settings within the time allowed (last: {last})",
            {"timeout_ms": budget.total_ms},
        )

    return until_definite(attempt, deadline_ms=budget.left_ms, late=late, pause=cluster.pause, pause_ms=100)


def max_message_bytes(cluster: Cluster, topic: str) -> int:
    """Largest record batch that the topic accepts, in bytes as sent (header included, after compression)."""
    found = _number(topic_settings(cluster, topic, [MAX_BYTES]) or {}, topic, MAX_BYTES)
    return DEFAULT_MAX_MESSAGE_BYTES if found is None else found


def topic_rules(cluster: Cluster, topic: str) -> TopicRules:
    """What the topic takes, as far as this client may read its settings; one request."""
    names = [MAX_BYTES, POLICY, TIME_TYPE, BACK, AHEAD, APART, RETENTION]
    found = topic_settings(cluster, topic, names) or {}
    limit = _number(found, topic, MAX_BYTES)
    # The broker's own time replaces the record's, so it may be any.
    own_time = found.get(TIME_TYPE) != "LogAppendTime"
    policies = (found.get(POLICY) or "").split(",")
    keeps = _number(found, topic, RETENTION) if own_time and "delete" in policies else None
    return TopicRules(
        max_batch_bytes=DEFAULT_MAX_MESSAGE_BYTES if limit is None else limit,
        needs_keys="compact" in policies,
        back_ms=_span(found, topic, BACK) if own_time else None,
        ahead_ms=_span(found, topic, AHEAD) if own_time else None,
        # -1 is for ever, and so is what no clock reaches.
        keeps_ms=keeps if keeps is not None and 0 <= keeps < _FOR_EVER_MS else None,
    )


def _span(found: Mapping[str, str | None], topic: str, name: str) -> int | None:
    for each in (name, APART):
        span = _number(found, topic, each)
        if span is not None and span < _NO_LIMIT:
            return span
    return None


def _number(found: Mapping[str, str | None], topic: str, name: str) -> int | None:
    value = found.get(name)
    try:
        return None if value is None else int(value)
    except ValueError:
        raise ProtocolViolation(f"topic {topic!r} has {name}={value!r}, which is no number", {"topic": topic}) from None


def no_such_topic(name: str) -> UnknownTopic:
    """The error for a topic that whoever could know does not have."""
    return UnknownTopic(f"topic {name!r} does not exist; create it or correct the name", {"topic": name})


def settings_of_topics(
    cluster: Cluster, topics: Sequence[str], names: Sequence[str]
) -> dict[str, dict[str, str | None]]:
    """Settings of topics, by topic and name, by one question. Left out are topics whose settings this client may not
    read (DESCRIBE_CONFIGS), and those that the broker that answers does not have.
    """
    results = cluster.call_any(_question(cluster, _TOPIC_RESOURCE, topics, names)).results
    return {each.resource_name: _by_name(each) for each in results if each.error_code == Code.NONE}


def _settings(
    cluster: Cluster,
    kind: int,
    name: str,
    names: Sequence[str],
    budget: Budget | None = None,
    node: int | str | None = None,
) -> dict[str, str | None] | None:
    request = _question(cluster, kind, [name], names)
    answer = cluster.call_any(request) if node is None else cluster.call(node, request, budget)
    result = only(answer.results, m.DescribeConfigsRequest, repr(name))
    if result.error_code in (Code.TOPIC_AUTHORIZATION_FAILED, Code.CLUSTER_AUTHORIZATION_FAILED):
        return None
    if result.error_code == Code.UNKNOWN_TOPIC_OR_PARTITION:
        raise no_such_topic(name)
    if result.error_code != Code.NONE:
        raise ProtocolViolation(
            f"DescribeConfigs of {name!r} answered {name_of(result.error_code)}", {"resource": name}
        )
    return _by_name(result)


def _question(cluster: Cluster, kind: int, resources: Sequence[str], names: Sequence[str]) -> Build:
    request_class = m.DescribeConfigsRequest
    return cluster.build(
        request_class,
        resources=[
            request_class.DescribeConfigsResource(
                resource_type=kind, resource_name=resource, configuration_keys=list(names)
            )
            for resource in resources
        ],
        include_synonyms=False,
        include_documentation=False,
    )


def _by_name(result: m.Message) -> dict[str, str | None]:
    return {entry.name: entry.value for entry in result.configs}


def ensure_topic(
    cluster: Cluster, name: str, *, partitions: int, settings: Mapping[str, str], wait_ms: int = 0
) -> None:
    """Create a topic if it is missing. Raises UnknownTopic if the brokers still lack it after `wait_ms` plus
    the `NEW_TOPIC_MS` that every new topic gets."""
    try:
        cluster.topic(name, new_topic_ms=0)
        return
    except UnknownTopic:
        create_topic(cluster, name, partitions=partitions, settings=settings)
    _patiently(cluster, lambda: cluster.topic(name, refresh=True), wait_ms)


def create_topic(
    cluster: Cluster, name: str, *, partitions: int, settings: Mapping[str, str], timeout_ms: float | None = None
) -> bool:
    """Create a topic with the broker's default replication; False if it already exists."""
    budget = cluster.budget(timeout_ms)
    topic = NewTopic(name, partitions, settings=settings)
    request = creation_request(cluster, topic, timeout_ms=budget.request_ms(cluster.settings.request_timeout_ms))

    def attempt() -> bool | Again:
        result = only(cluster.call_any(request, budget.left_ms).topics, m.CreateTopicsRequest, repr(name))
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
        # Only the controller creates topics. Metadata may lag, so the request may reach another broker.
        refused = f"{name_of(result.error_code)} {result.error_message or ''}"
        if result.error_code in (Code.NOT_CONTROLLER, Code.REQUEST_TIMED_OUT):
            return Again(refused)
        raise ProtocolViolation(
            f"creating topic {name!r} was refused: {refused}",
            {"topic": name, "code": name_of(result.error_code)},
        )

    def late(last: Again) -> bool:
        raise BrokerUnavailable(
            f"topic {name!r} was not created within the time allowed, or its creation was not confirmed (last: {last})",
            {"topic": name, "timeout_ms": budget.total_ms},
        )

    return until_definite(attempt, deadline_ms=budget.left_ms, late=late, pause=cluster.pause, pause_ms=100)


def list_transactions(
    cluster: Cluster, states: Sequence[str] = (), pattern: str | None = None, timeout_ms: float | None = None
) -> dict[str, int]:
    """Transactional id -> producer id of every transaction on any broker that this client may see; in `states` only,
    and of ids that match `pattern` as a whole. The brokers search where they can (KIP-1152, Kafka 4.1), so other
    applications' ids cost nothing; older ones send all. `pattern`: of RE2's syntax and of Python's.

    Queries every broker. A broker that is loading its transactions is asked again; a broker that is gone
    drops out of the metadata once its coordinators have moved. Raises BrokerUnavailable where that takes too
    long: a partial list is never returned.
    """
    request = cluster.build(
        m.ListTransactionsRequest,
        state_filters=list(states),
        producer_id_filters=[],
        duration_filter=-1,
        transactional_id_pattern=pattern,
    )
    budget = cluster.budget(timeout_ms)
    mine = re.compile(pattern or ".*", re.DOTALL).fullmatch

    def refused_by(broker: int) -> Callable[[Action, int], ExactlyOnceError]:
        right = "DESCRIBE on the transactional ids"
        return lambda _, code: refusal(m.ListTransactionsRequest, code, f"broker {broker}", right)

    def attempt() -> dict[str, int] | Again:
        brokers = brokers_by_most(cluster)
        calls = [(broker, request) for broker in brokers]
        answers = cluster.call_many(calls, budget, elsewhere=elsewhere.among_brokers(cluster, brokers))
        listed: dict[str, int] = {}
        missed: Again | None = None
        for broker, answer in zip(brokers, answers, strict=True):
            if isinstance(answer, BrokerUnavailable):
                missed = Again(f"broker {broker}: {answer}")
                continue
            if isinstance(answer, ExactlyOnceError):
                raise answer
            again = again_or_refuse(
                m.ListTransactionsRequest.API_KEY, answer.error_code, refused_by(broker), f"broker {broker}"
            )
            missed = again or missed
            states_found = answer.transaction_states
            listed |= {each.transactional_id: each.producer_id for each in states_found if mine(each.transactional_id)}
        if missed is not None:
            cluster.network.refresh_brokers()
        return missed or listed

    def late(last: Again) -> dict[str, int]:
        raise BrokerUnavailable(
            f"a broker could not list its transactions within the time allowed (last: {last}), so it is "
            "unknown which transactions earlier runs left open",
            {"timeout_ms": budget.total_ms},
        )

    return until_definite(attempt, deadline_ms=budget.left_ms, late=late, pause=cluster.pause, pause_ms=100)
