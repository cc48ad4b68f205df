"""DeleteTopics: remove topics and their data.

From version 6 on a request may name a topic by its id (KIP-516). A topic that is named twice is not removed.
The broker's own topics are not removed either; Kafka removes them, with all the state of its coordinators.
"""

from __future__ import annotations

from embedded_kafka.context import Context
from embedded_kafka.parts import Parts
from embedded_kafka.refusals import Refused
from embedded_kafka.topics.named import more_than_once
from embedded_kafka.wire.server import DeleteTopicsRequest, DeleteTopicsResponse, Message
from kafka_core.protocol.error_codes import Code
from kafka_core.values import TopicPartition

API_KEY: int = DeleteTopicsRequest.API_KEY
VERSIONS = (1, 6)


async def handle(parts: Parts, request: Message, _context: Context) -> Message:
    """Remove each topic separately."""
    asked = (
        [(topic.name, topic.topic_id) for topic in request.topics]
        if request.API_VERSION >= 6
        else [(name, None) for name in request.topic_names]
    )
    results = []
    named = []
    for name, topic_id in asked:
        known = parts.topics.get(name) if name is not None else parts.topics.by_id(topic_id)
        # A topic named both by its name and by its id counts as named twice, too.
        named.append((known.name if known is not None else (name, topic_id), (name, topic_id, known)))
    twice = more_than_once(key for key, _ in named)
    for key, (name, topic_id, known) in dict(named).items():
        try:
            if key in twice:
                raise Refused(Code.INVALID_REQUEST, "Duplicate topic name or id.")
            if known is None:
                unknown = Code.UNKNOWN_TOPIC_OR_PARTITION if name is not None else Code.UNKNOWN_TOPIC_ID
                raise Refused(unknown, "This server does not host this topic.")
            if not parts.authorizer.allows("DELETE", "TOPIC", known.name):
                raise Refused(Code.TOPIC_AUTHORIZATION_FAILED, f"DELETE on topic {known.name} is denied")
            parts.topics.delete(known.name)
            # Otherwise the offsets that groups committed for it would apply to a new topic of the same name.
            gone = [TopicPartition(known.name, partition) for partition in range(known.partitions)]
            for groups in parts.all_groups():
                groups.on_partitions_deleted(gone)
            code, message = Code.NONE, None
        except Refused as refused:
            code, message = refused.code, refused.message
        results.append(
            DeleteTopicsResponse.DeletableTopicResult(
                name=name if known is None else known.name,
                topic_id=topic_id if known is None else known.topic_id,
                error_code=int(code),
                error_message=message,
            )
        )
    return DeleteTopicsResponse(version=request.API_VERSION, responses=results)
