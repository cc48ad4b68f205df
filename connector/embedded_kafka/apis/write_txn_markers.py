"""WriteTxnMarkers: end a producer's transaction in single partitions, bypassing its coordinator.

Brokers send it to each other; here it serves the administrator's `abortTransaction`, which ends hanging
transactions. Version 2 has the transaction version of the marker (KIP-1228).
"""

from __future__ import annotations

import logging

from embedded_kafka.context import Context
from embedded_kafka.faults.error_answers import refusal
from embedded_kafka.parts import Parts
from embedded_kafka.refusals import Refused
from embedded_kafka.security.authorizer import CLUSTER
from embedded_kafka.wire.server import Message, WriteTxnMarkersRequest, WriteTxnMarkersResponse
from kafka_core.protocol.error_codes import Code
from kafka_core.values import TopicPartition

log = logging.getLogger(__name__)

API_KEY: int = WriteTxnMarkersRequest.API_KEY
VERSIONS = (1, 2)

_FIRST_WITH_TRANSACTION_VERSION = 2

_Marker = WriteTxnMarkersResponse.WritableTxnMarkerResult
_Topic = _Marker.WritableTxnMarkerTopicResult
_Partition = _Topic.WritableTxnMarkerPartitionResult


async def handle(parts: Parts, request: Message, _context: Context) -> Message:
    """Write each marker to each of its partitions; a failed one does not block the others."""
    if not (
        parts.authorizer.allows("ALTER", "CLUSTER", CLUSTER)
        or parts.authorizer.allows("CLUSTER_ACTION", "CLUSTER", CLUSTER)
    ):
        return refusal(request, Code.CLUSTER_AUTHORIZATION_FAILED)
    versioned = request.API_VERSION >= _FIRST_WITH_TRANSACTION_VERSION
    results = []
    for marker in request.markers:
        transaction_version = marker.transaction_version if versioned else 0
        topics = []
        for topic in marker.topics:
            partitions = [
                _Partition(
                    partition_index=partition,
                    error_code=int(
                        await _write(parts, marker, TopicPartition(topic.name, partition), transaction_version)
                    ),
                )
                for partition in topic.partition_indexes
            ]
            topics.append(_Topic(name=topic.name, partitions=partitions))
        results.append(_Marker(producer_id=marker.producer_id, topics=topics))
    return WriteTxnMarkersResponse(version=request.API_VERSION, markers=results)


async def _write(parts: Parts, marker: Message, where: TopicPartition, transaction_version: int) -> Code:
    try:
        if not parts.outlook.has_replica(where):
            # As in Kafka: a broker does not look further than its own partitions here.
            raise Refused(Code.UNKNOWN_TOPIC_OR_PARTITION, f"{where} is not on this broker")
        parts.outlook.check_append(where)
        await parts.markers.write(
            where,
            marker.producer_id,
            marker.producer_epoch,
            commit=marker.transaction_result,
            coordinator_epoch=marker.coordinator_epoch,
            transaction_version=transaction_version,
        )
    except Refused as refused:
        return refused.code
    except OSError as error:
        log.error("cannot write a marker to %s: %s", where, error)
        return Code.KAFKA_STORAGE_ERROR
    return Code.NONE
