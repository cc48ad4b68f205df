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
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DescribeClusterRequest,
    DescribeConfigsRequest,
    DescribeGroupsRequest,
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    ListTransactionsRequest,
)
from kafka.protocol.consumer import (
    FetchRequest,
    ListOffsetsRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    OffsetForLeaderEpochRequest,
)
from kafka.protocol.metadata import (
    ApiVersionsRequest,
    FindCoordinatorRequest,
    MetadataRequest,
)
from kafka.protocol.producer import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    ProduceRequest,
    TxnOffsetCommitRequest,
)
from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

__all__ = [
    "FETCH_BY_ID",
    "HIGHEST",
    "HIGHEST_TV1",
    "TWO_PHASE_INIT_VERSION",
    "AddOffsetsToTxnRequest",
    "AddPartitionsToTxnRequest",
    "ApiVersionsRequest",
    "CreateTopicsRequest",
    "DeleteTopicsRequest",
    "DescribeClusterRequest",
    "DescribeConfigsRequest",
    "DescribeGroupsRequest",
    "DescribeProducersRequest",
    "DescribeTransactionsRequest",
    "EndTxnRequest",
    "FetchRequest",
    "FindCoordinatorRequest",
    "InitProducerIdRequest",
    "ListOffsetsRequest",
    "ListTransactionsRequest",
    "Message",
    "MetadataRequest",
    "OffsetCommitRequest",
    "OffsetFetchRequest",
    "OffsetForLeaderEpochRequest",
    "ProduceRequest",
    "SaslAuthenticateRequest",
    "SaslHandshakeRequest",
    "TxnOffsetCommitRequest",
    "api_name",
]

Message = Any
"""A request or response. The library's classes are generated at import, so their fields have no static types."""

FETCH_BY_ID = 13
"""The first version of Fetch that names topics by id, and by id alone (KIP-516); Kafka 3.1 has it."""

HIGHEST: dict[int, int] = {
    ProduceRequest.API_KEY: 12,  # 13 names topics by id only; 12 is the first of transaction version 2 (KIP-890)
    FetchRequest.API_KEY: FETCH_BY_ID,  # where the topics' ids are known; else the version before
    ListOffsetsRequest.API_KEY: 7,  # 8 and up add tiered-storage timestamps that the product never asks for
    MetadataRequest.API_KEY: 12,
    OffsetCommitRequest.API_KEY: 9,  # 10 names topics by id only
    OffsetFetchRequest.API_KEY: 9,  # 8 is the first that asks for several groups; 10 names topics by id only
    OffsetForLeaderEpochRequest.API_KEY: 4,
    FindCoordinatorRequest.API_KEY: 6,  # 4 is the first that asks for several keys
    ApiVersionsRequest.API_KEY: 4,  # 5 may name the broker that is meant (KIP-1242), which the product does not
    CreateTopicsRequest.API_KEY: 7,
    DeleteTopicsRequest.API_KEY: 5,  # 6 adds topic ids, which the product does not ask for
    InitProducerIdRequest.API_KEY: 5,  # see TWO_PHASE_INIT_VERSION
    AddPartitionsToTxnRequest.API_KEY: 3,  # 4 and up are for brokers among themselves (KIP-890)
    AddOffsetsToTxnRequest.API_KEY: 4,
    EndTxnRequest.API_KEY: 5,
    TxnOffsetCommitRequest.API_KEY: 5,  # 6 names topics by id only (KIP-1319)
    DescribeClusterRequest.API_KEY: 1,
    DescribeConfigsRequest.API_KEY: 4,
    DescribeGroupsRequest.API_KEY: 5,  # 6 returns no rights on a group that does not exist yet (KIP-1043)
    DescribeProducersRequest.API_KEY: 0,
    DescribeTransactionsRequest.API_KEY: 0,
    ListTransactionsRequest.API_KEY: 2,  # 2 is the first that asks for the ids of a pattern (KIP-1152)
}

HIGHEST_TV1: dict[int, int] = {
    ProduceRequest.API_KEY: 11,
    TxnOffsetCommitRequest.API_KEY: 4,
    EndTxnRequest.API_KEY: 4,
}
"""Caps where the finalised feature transaction.version is below 2: a higher version would ask for version 2 (KIP-890)."""

TWO_PHASE_INIT_VERSION = 6
"""InitProducerId of KIP-939, which opens transactions without a timeout. Brokers offer it only with
unstable.api.versions.enable, so it is sent for that purpose alone and never because it is the highest."""

_NAMES: dict[int, str] = {
    cls.API_KEY: cls.__name__.removesuffix("Request")
    for cls in (
        AddOffsetsToTxnRequest,
        AddPartitionsToTxnRequest,
        ApiVersionsRequest,
        CreateTopicsRequest,
        DeleteTopicsRequest,
        DescribeClusterRequest,
        DescribeConfigsRequest,
        DescribeGroupsRequest,
        DescribeProducersRequest,
        DescribeTransactionsRequest,
        EndTxnRequest,
        FetchRequest,
        FindCoordinatorRequest,
        InitProducerIdRequest,
        ListOffsetsRequest,
        ListTransactionsRequest,
        MetadataRequest,
        OffsetCommitRequest,
        OffsetFetchRequest,
        OffsetForLeaderEpochRequest,
        ProduceRequest,
        TxnOffsetCommitRequest,
    )
}


def api_name(api_key: int) -> str:
    """Kafka's name of an API, for messages."""
    return _NAMES.get(api_key, f"API {api_key}")
