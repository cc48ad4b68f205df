"""DescribeLogDirs: how large each partition is on disk (KIP-113).

Version 3 adds an error for the whole answer, 4 the disk's size.
"""

from __future__ import annotations

import shutil

from embedded_kafka.context import Context
from embedded_kafka.parts import Parts
from embedded_kafka.security.authorizer import CLUSTER
from embedded_kafka.wire.server import DescribeLogDirsRequest, DescribeLogDirsResponse, Message
from kafka_core.protocol.error_codes import Code
from kafka_core.values import TopicPartition

API_KEY: int = DescribeLogDirsRequest.API_KEY
VERSIONS = (1, 4)
REPEATABLE = True

_Result = DescribeLogDirsResponse.DescribeLogDirsResult
_Topic = _Result.DescribeLogDirsTopic


async def handle(parts: Parts, request: Message, _context: Context) -> Message:
    """Describe the one directory. A partition that nobody has used is empty."""
    version = request.API_VERSION
    if not parts.authorizer.allows("DESCRIBE", "CLUSTER", CLUSTER):
        return DescribeLogDirsResponse(version=version, error_code=int(Code.CLUSTER_AUTHORIZATION_FAILED), results=[])
    wanted = (
        None
        if request.topics is None
        else {(topic.topic, partition) for topic in request.topics for partition in topic.partitions}
    )
    sizes: dict[str, list[Message]] = {}
    every = (TopicPartition(topic.name, each) for topic in parts.topics for each in range(topic.partitions))
    for where in every:
        if not parts.outlook.has_replica(where):
            continue
        if wanted is None or (where.topic, where.partition) in wanted:
            log = parts.topics.opened_log(where)
            sizes.setdefault(where.topic, []).append(
                _Topic.DescribeLogDirsPartition(
                    partition_index=where.partition,
                    partition_size=0 if log is None else log.size_bytes,
                    offset_lag=0,
                    is_future_key=False,
                )
            )
    disk = shutil.disk_usage(parts.directory)
    result = _Result(
        error_code=int(Code.NONE),
        log_dir=str(parts.directory),
        topics=[_Topic(name=name, partitions=partitions) for name, partitions in sizes.items()],
        total_bytes=disk.total,
        usable_bytes=disk.free,
    )
    return DescribeLogDirsResponse(version=version, error_code=int(Code.NONE), results=[result])
