"""DeleteTopics: remove topics and their data.

From version 6 on a request may name a topic by its id (KIP-516). A topic that is named twice is not removed.
A client without the right to describe a topic does not learn whether the name is taken, and not the name of an id.
The broker's own topics are not removed; Kafka removes them, with all the state of its coordinators.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple
from uuid import UUID

from embedded_kafka.context import Context
from embedded_kafka.parts import Parts
from embedded_kafka.refusals import Refused
from embedded_kafka.topics.named import more_than_once
from embedded_kafka.topics.topics import Topic
from embedded_kafka.wire.server import DeleteTopicsRequest, DeleteTopicsResponse, Message
from kafka_core.protocol.error_codes import Code
from kafka_core.values import TopicPartition

API_KEY: int = DeleteTopicsRequest.API_KEY
VERSIONS = (1, 6)

_Result = DeleteTopicsResponse.DeletableTopicResult
_NO_ID = UUID(int=0)


class _Asked(NamedTuple):
    """How the request names a topic: by one of the two, or wrongly."""

    name: str | None
    topic_id: UUID | None


async def handle(parts: Parts, request: Message, _context: Context) -> Message:
    """Remove each topic separately."""
    asked = list(_asked(request))
    twice = more_than_once(asked)
    results: list[Message] = []
    may_delete: list[tuple[_Asked, Topic]] = []
    for each in dict.fromkeys(asked):
        try:
            if (each.name is None) == (each.topic_id is None):
                raise Refused(Code.INVALID_REQUEST, "A topic is named by its name or by its id, and not by both.")
            if each in twice:
                raise Refused(Code.INVALID_REQUEST, f"Duplicate topic {'id' if each.name is None else 'name'}.")
            may_delete.append((each, _authorized(parts, each)))
        except Refused as refused:
            results.append(_refused(parts, each, refused))
    # Only here does it show that an id and a name are of one topic: to the others it would tell the id's name.
    both = more_than_once(topic.name for _, topic in may_delete)
    for each, topic in may_delete:
        if topic.name not in both:
            results.append(_deleted(parts, each, topic))
        elif each.name is not None:
            results.append(
                _Result(
                    name=topic.name, topic_id=topic.topic_id, error_code=int(Code.INVALID_REQUEST),
                    error_message="The provided topic name maps to an ID that was already supplied.",
                )
            )  # fmt: skip
    return DeleteTopicsResponse(version=request.API_VERSION, responses=results)


def _asked(request: Message) -> Iterator[_Asked]:
    if request.API_VERSION < 6:
        yield from (_Asked(name, None) for name in request.topic_names)
        return
    for topic in request.topics:
        yield _Asked(topic.name, None if topic.topic_id in (None, _NO_ID) else topic.topic_id)


def _authorized(parts: Parts, asked: _Asked) -> Topic:
    """The topic that the client may remove."""
    topic = parts.topics.get(asked.name) if asked.name is not None else parts.topics.by_id(asked.topic_id)
    if topic is None and asked.name is None:
        # An id says nothing, so its absence is told to everyone.
        raise Refused(Code.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")
    name = asked.name or (topic.name if topic is not None else "")
    if not parts.authorizer.allows_by_either("DESCRIBE", name, on_cluster="DELETE"):
        raise Refused(Code.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed.")
    if topic is None:
        raise Refused(Code.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")
    if not parts.authorizer.allows_by_either("DELETE", name, on_cluster="DELETE"):
        raise Refused(Code.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed.")
    return topic


def _refused(parts: Parts, asked: _Asked, refused: Refused) -> Message:
    """A name that was asked for is repeated, without its id; an id has its name for those alone who may describe it."""
    name = asked.name
    topic = parts.topics.by_id(asked.topic_id)
    if name is None and topic is not None and refused.code == Code.TOPIC_AUTHORIZATION_FAILED:
        name = topic.name if parts.authorizer.allows("DESCRIBE", "TOPIC", topic.name) else None
    return _Result(
        name=name, topic_id=asked.topic_id, error_code=int(refused.code), error_message=refused.message
    )  # fmt: skip


def _deleted(parts: Parts, asked: _Asked, topic: Topic) -> Message:
    try:
        parts.topics.delete(topic.name)
        # Otherwise the offsets that groups committed for it would apply to a new topic of the same name.
        gone = [TopicPartition(topic.name, partition) for partition in range(topic.partitions)]
        for groups in parts.all_groups():
            groups.on_partitions_deleted(gone)
    except Refused as refused:
        return _refused(parts, asked, refused)
    return _Result(name=topic.name, topic_id=topic.topic_id, error_code=int(Code.NONE), error_message=None)
