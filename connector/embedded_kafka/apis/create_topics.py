"""CreateTopics: create topics, each separately.

A replication factor above one is accepted and stored, but there is one replica. Manual assignments may name
only this broker. From version 5 on the answer has the configurations, from 7 on the topic's id. The broker's
own topics always get their own partitions and configurations, which the answer contains. Kafka creates them
as requested, and its coordinators then fail until it is restarted.
"""

from __future__ import annotations

from collections.abc import Sequence

from embedded_kafka.context import Context
from embedded_kafka.parts import Parts
from embedded_kafka.refusals import Refused
from embedded_kafka.settings import settings, topic_configs
from embedded_kafka.topics.config_origins import value_and_source
from embedded_kafka.topics.named import more_than_once
from embedded_kafka.topics.topics import Topic
from embedded_kafka.wire.server import CreateTopicsRequest, CreateTopicsResponse, Message
from kafka_core.protocol.error_codes import Code

API_KEY: int = CreateTopicsRequest.API_KEY
VERSIONS = (2, 7)

_Result = CreateTopicsResponse.CreatableTopicResult


async def handle(parts: Parts, request: Message, _context: Context) -> Message:
    """Create the topics that can be created."""
    twice = more_than_once(asked.name for asked in request.topics)
    results = []
    for name, asked in {topic.name: topic for topic in request.topics}.items():
        try:
            if name in twice:
                raise Refused(Code.INVALID_REQUEST, f"Duplicate topic name: {name}")
            results.append(_created(parts, _create(parts, asked, dry_run=request.validate_only)))
        except Refused as refused:
            results.append(
                _Result(
                    name=name,
                    error_code=int(refused.code),
                    error_message=refused.message,
                    configs=[],
                    topic_id=None,
                )
            )
    return CreateTopicsResponse(version=request.API_VERSION, topics=results)


def _create(parts: Parts, asked: Message, *, dry_run: bool) -> Topic:
    if not parts.authorizer.may_create(asked.name):
        raise Refused(Code.TOPIC_AUTHORIZATION_FAILED, f"CREATE on topic {asked.name} is denied")
    partitions = asked.num_partitions
    replicas = asked.replication_factor
    assigned: tuple[tuple[int, ...], ...] = ()
    if asked.assignments:
        if partitions != -1 or replicas != -1:
            raise Refused(
                Code.INVALID_REQUEST,
                "Both a manual assignment and a number of partitions or replicas were given.",
            )
        if sorted(each.partition_index for each in asked.assignments) != list(range(len(asked.assignments))):
            raise Refused(Code.INVALID_REPLICA_ASSIGNMENT, "partitions must be numbered from 0 without gaps")
        assigned = tuple(
            _judged(parts, each.broker_ids) for each in sorted(asked.assignments, key=lambda each: each.partition_index)
        )
        if len({len(brokers) for brokers in assigned}) > 1:
            raise Refused(Code.INVALID_REPLICA_ASSIGNMENT, "all partitions must have the same number of replicas")
        partitions, replicas = len(assigned), len(assigned[0])
    elif len(parts.brokers) > 1 and replicas > len(parts.brokers):
        # A single broker takes any number, and notes it: a program that asks for three replicas must run here.
        raise Refused(
            Code.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {replicas} time(s): The target replication factor of {replicas} cannot be "
            f"reached because only {len(parts.brokers)} broker(s) are registered.",
        )
    configs = {config.name: config.value for config in asked.configs}
    unset = [name for name, value in configs.items() if value is None]
    if unset:
        raise Refused(Code.INVALID_CONFIG, f"Null value not supported for topic configs: {', '.join(unset)}")
    return parts.topics.create(
        asked.name, partitions, configs, replication_factor=replicas, assigned=assigned, dry_run=dry_run
    )


def _judged(parts: Parts, brokers: Sequence[int]) -> tuple[int, ...]:
    """The brokers of one partition, as the client chose them."""
    if not brokers or len(set(brokers)) < len(brokers):
        raise Refused(Code.INVALID_REPLICA_ASSIGNMENT, "each partition needs brokers, each of them once")
    unknown = [each for each in brokers if each not in parts.brokers.ids]
    if unknown:
        known = ", ".join(map(str, parts.brokers.ids))
        raise Refused(Code.INVALID_REPLICA_ASSIGNMENT, f"the brokers of this cluster are {known}, not {unknown[0]}")
    return tuple(brokers)


def _created(parts: Parts, topic: Topic) -> Message:
    if not parts.authorizer.allows("DESCRIBE_CONFIGS", "TOPIC", topic.name):
        return _Result(
            name=topic.name,
            topic_id=topic.topic_id,
            error_code=int(Code.NONE),
            topic_config_error_code=int(Code.TOPIC_AUTHORIZATION_FAILED),
            configs=None,
        )
    configs = []
    given = settings.given(parts.config)
    for name in topic_configs.SETTINGS:
        value, source = value_and_source(name, topic.configs, given)
        configs.append(
            _Result.CreatableTopicConfigs(
                name=name, value=value, read_only=False, config_source=int(source), is_sensitive=False
            )
        )
    return _Result(
        name=topic.name,
        topic_id=topic.topic_id,
        error_code=int(Code.NONE),
        error_message=None,
        num_partitions=topic.partitions,
        replication_factor=topic.replication_factor,
        configs=configs,
    )
