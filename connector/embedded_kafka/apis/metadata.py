"""Metadata: the brokers that are alive, and topics with their partitions; creates missing topics where it may.

Version 1 distinguishes "all topics" (null) from "none", 4 lets clients forbid topic creation, 8 can report
which operations the client may perform (KIP-430; on the cluster up to version 10 only), 10 and 12 add topic
ids, 13 an error for the whole answer.
"""

from __future__ import annotations

from collections.abc import Set

from embedded_kafka.context import Context
from embedded_kafka.leader_views import epoch_in_metadata
from embedded_kafka.parts import Parts
from embedded_kafka.refusals import Refused
from embedded_kafka.topics.internal_topics import CONTROLLERS_TOPIC, INTERNAL
from embedded_kafka.topics.placement import NO_LEADER
from embedded_kafka.topics.topics import Topic, is_legal
from embedded_kafka.wire.server import Message, MetadataRequest, MetadataResponse
from kafka_core.protocol.error_codes import Code
from kafka_core.values import TopicPartition

API_KEY: int = MetadataRequest.API_KEY
VERSIONS = (0, 13)
REPEATABLE = True

_Topic = MetadataResponse.MetadataResponseTopic


async def handle(parts: Parts, request: Message, context: Context) -> Message:
    """Describe the requested topics."""
    everything = request.topics is None or (request.API_VERSION == 0 and not request.topics)
    if everything:
        topics = [
            _described(parts, topic, context)
            for topic in parts.outlook.topics()
            if parts.authorizer.allows("DESCRIBE", "TOPIC", topic.name)
        ]
    else:
        may_create = request.API_VERSION < 4 or request.allow_auto_topic_creation
        once = {(asked.name, asked.topic_id if asked.name is None else None): asked for asked in request.topics}
        topics = [_asked_for(parts, asked, may_create, context) for asked in once.values()]
    version = request.API_VERSION
    if version >= 8 and request.include_topic_authorized_operations:
        for topic in topics:
            if topic.error_code != Code.TOPIC_AUTHORIZATION_FAILED and topic.name is not None:
                topic.authorized_operations = parts.authorizer.allowed("TOPIC", topic.name)
    operations = {}
    if 8 <= version <= 10 and request.include_cluster_authorized_operations:
        operations["authorized_operations"] = parts.authorizer.allowed_on_cluster()
    return MetadataResponse(
        version=version,
        brokers=[
            MetadataResponse.MetadataResponseBroker(node_id=node_id, host=host, port=port, rack=None)
            for node_id, host, port in parts.outlook.alive
        ],
        cluster_id=parts.cluster_id,
        controller_id=parts.outlook.controller,
        topics=topics,
        error_code=int(Code.NONE),
        **operations,
    )


def _asked_for(parts: Parts, asked: Message, may_create: bool, context: Context) -> Message:
    if asked.name is None:
        topic = parts.outlook.topic_by_id(asked.topic_id)
        if topic is None:
            return _refused(None, asked.topic_id, Code.UNKNOWN_TOPIC_ID)
        if not parts.authorizer.allows("DESCRIBE", "TOPIC", topic.name):
            # That an id is taken tells nothing; its name would.
            return _refused(None, asked.topic_id, Code.TOPIC_AUTHORIZATION_FAILED)
        return _described(parts, topic, context)
    if not parts.authorizer.allows("DESCRIBE", "TOPIC", asked.name):
        return _refused(asked.name, None, Code.TOPIC_AUTHORIZATION_FAILED)
    topic = parts.outlook.topic(asked.name)
    try:
        makes = may_create and parts.config.auto_create_topics_enable and asked.name != CONTROLLERS_TOPIC
        if topic is None and makes:
            if not parts.authorizer.may_create(asked.name):
                return _refused(asked.name, None, Code.TOPIC_AUTHORIZATION_FAILED)
            topic = parts.topics.create(asked.name, -1)
    except Refused as refused:
        return _refused(asked.name, None, refused.code)
    if topic is None:
        unknown = Code.UNKNOWN_TOPIC_OR_PARTITION if is_legal(asked.name) else Code.INVALID_TOPIC_EXCEPTION
        return _refused(asked.name, None, unknown)
    return _described(parts, topic, context)


def _described(parts: Parts, topic: Topic, context: Context) -> Message:
    offline = parts.topics.offline(topic.name)
    alive = {each.node_id for each in parts.outlook.alive}
    return _Topic(
        error_code=int(Code.NONE),
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.internal,
        partitions=[
            _partition(parts, TopicPartition(topic.name, partition), partition in offline, alive, context)
            for partition in range(topic.partitions)
        ],
    )


def _partition(parts: Parts, where: TopicPartition, offline: bool, alive: Set[int], context: Context) -> Message:
    placed = parts.outlook.placed(where)
    led = placed.leader in alive and not offline
    return _Topic.MetadataResponsePartition(
        error_code=int(Code.NONE if led else Code.LEADER_NOT_AVAILABLE),
        partition_index=where.partition,
        leader_id=placed.leader if led else NO_LEADER,
        leader_epoch=epoch_in_metadata(parts, where, API_KEY, context),
        replica_nodes=list(placed.replicas),
        isr_nodes=list(placed.in_sync),
        offline_replicas=[each for each in placed.replicas if offline or each not in alive],
    )


def _refused(name: str | None, topic_id: object, code: Code) -> Message:
    return _Topic(
        error_code=int(code),
        name=name,
        topic_id=topic_id,
        is_internal=name in INTERNAL,
        partitions=[],
    )
