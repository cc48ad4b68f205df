"""CreatePartitions: give topics more partitions.

The versions differ only in their encoding. Manual assignments can only name this broker, so they change nothing.
"""

from __future__ import annotations

from embedded_kafka.context import Context
from embedded_kafka.parts import Parts
from embedded_kafka.refusals import Refused
from embedded_kafka.topics.named import more_than_once
from embedded_kafka.wire.server import CreatePartitionsRequest, CreatePartitionsResponse, Message
from kafka_core.protocol.error_codes import Code

API_KEY: int = CreatePartitionsRequest.API_KEY
VERSIONS = (0, 3)


async def handle(parts: Parts, request: Message, _context: Context) -> Message:
    """Process each topic separately."""
    results = []
    twice = more_than_once(topic.name for topic in request.topics)
    for topic in {topic.name: topic for topic in request.topics}.values():
        code, message = Code.NONE, None
        try:
            if topic.name in twice:
                raise Refused(Code.INVALID_REQUEST, "Duplicate topic name.")
            if not parts.authorizer.allows("ALTER", "TOPIC", topic.name):
                raise Refused(Code.TOPIC_AUTHORIZATION_FAILED, f"ALTER on topic {topic.name} is denied")
            parts.topics.add_partitions(topic.name, topic.count, dry_run=request.validate_only)
        except Refused as refused:
            code, message = refused.code, refused.message
        results.append(
            CreatePartitionsResponse.CreatePartitionsTopicResult(
                name=topic.name, error_code=int(code), error_message=message
            )
        )
    return CreatePartitionsResponse(version=request.API_VERSION, results=results)
