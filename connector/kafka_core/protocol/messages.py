"""Kafka's request and response messages, as built and parsed from Kafka's own schemas by kafka-python.

Owns: which message classes the product uses and the highest version of each that it may speak.
Does not know: sockets, which request is sent when.
Invariants:
- A version is always given when a message is built: a class default would follow the library, not the broker.
- An API version above `HIGHEST` is never sent, whatever the broker offers.
"""

from __future__ import annotations

from typing import Any

from kafka.protocol.admin import (
    CreateTopicsRequest as CreateTopicsRequest,
    DeleteTopicsRequest as DeleteTopicsRequest,
    DescribeClusterRequest as DescribeClusterRequest,
    DescribeConfigsRequest as DescribeConfigsRequest,
    DescribeGroupsRequest as DescribeGroupsRequest,
    DescribeProducersRequest as DescribeProducersRequest,
    DescribeTransactionsRequest as DescribeTransactionsRequest,
    ListTransactionsRequest as ListTransactionsRequest,
)
from kafka.protocol.consumer import (
    FetchRequest as FetchRequest,
    ListOffsetsRequest as ListOffsetsRequest,
    OffsetCommitRequest as OffsetCommitRequest,
    OffsetFetchRequest as OffsetFetchRequest,
    OffsetForLeaderEpochRequest as OffsetForLeaderEpochRequest,
)
from kafka.protocol.metadata import (
    FindCoordinatorRequest as FindCoordinatorRequest,
    MetadataRequest as MetadataRequest,
)
from kafka.protocol.producer import (
    AddOffsetsToTxnRequest as AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest as AddPartitionsToTxnRequest,
    EndTxnRequest as EndTxnRequest,
    InitProducerIdRequest as InitProducerIdRequest,
    ProduceRequest as ProduceRequest,
    TxnOffsetCommitRequest as TxnOffsetCommitRequest,
)
from kafka.protocol.sasl import (
    SaslAuthenticateRequest as SaslAuthenticateRequest,
    SaslHandshakeRequest as SaslHandshakeRequest,
)

from kafka_core.protocol.api_versions import ApiVersionsRequest as ApiVersionsRequest

Message = Any
"""A request or response. The library's classes are generated at import, so their fields have no static types."""

FETCH_BY_ID = 13
"""The first version of Fetch that names topics by id, and by id alone (KIP-516); Kafka 3.1 has it."""

_HIGHEST: dict[Any, int] = {
    ProduceRequest: 12,  # 13 names topics by id only; 12 is the first of transaction version 2 (KIP-890)
    FetchRequest: FETCH_BY_ID,  # where the topics' ids are known; else the version before
    ListOffsetsRequest: 7,  # 8 and up add tiered-storage timestamps that the product never asks for
    MetadataRequest: 13,  # the first that can send the client back to its bootstrap servers (KIP-1102)
    OffsetCommitRequest: 9,  # 10 names topics by id only
    OffsetFetchRequest: 9,  # 8 is the first that asks for several groups; 10 names topics by id only
    OffsetForLeaderEpochRequest: 4,
    FindCoordinatorRequest: 6,  # 4 is the first that asks for several keys
    ApiVersionsRequest: 5,  # the first that may name the broker that is meant (KIP-1242)
    CreateTopicsRequest: 7,
    DeleteTopicsRequest: 5,  # 6 adds topic ids, which the product does not ask for
    InitProducerIdRequest: 5,  # see TWO_PHASE_INIT_VERSION
    AddPartitionsToTxnRequest: 3,  # 4 and up are for brokers among themselves (KIP-890)
    AddOffsetsToTxnRequest: 4,
    EndTxnRequest: 5,
    TxnOffsetCommitRequest: 5,  # 6 names topics by id only (KIP-1319)
    DescribeClusterRequest: 1,
    DescribeConfigsRequest: 4,
    DescribeGroupsRequest: 5,  # 6 returns no rights on a group that does not exist yet (KIP-1043)
    DescribeProducersRequest: 0,
    DescribeTransactionsRequest: 0,
    ListTransactionsRequest: 2,  # 2 is the first that asks for the ids of a pattern (KIP-1152)
    SaslAuthenticateRequest: 1,
    SaslHandshakeRequest: 1,
}

HIGHEST: dict[int, int] = {request.API_KEY: version for request, version in _HIGHEST.items()}
"""The highest version of each API, by its key, that is ever sent."""

HIGHEST_TV1: dict[int, int] = {
    ProduceRequest.API_KEY: 11,
    TxnOffsetCommitRequest.API_KEY: 4,
    EndTxnRequest.API_KEY: 4,
}
"""Caps where the finalised feature transaction.version is below 2: a higher version would ask for version 2
(KIP-890).
"""

TWO_PHASE_INIT_VERSION = 6
"""InitProducerId of KIP-939, which opens transactions without a timeout. Brokers offer it only with
unstable.api.versions.enable, so it is sent for that purpose alone and never because it is the highest."""

_NAMES: dict[int, str] = {request.API_KEY: request.__name__.removesuffix("Request") for request in _HIGHEST}


def api_name(api_key: int) -> str:
    """Kafka's name of an API, for messages."""
    return _NAMES.get(api_key, f"API {api_key}")
