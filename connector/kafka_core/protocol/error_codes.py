"""Kafka's numeric error codes: the name of each and, per API, what the client has to do about it.

Owns: the one table (API, code) -> meaning.
Does not know: which operation failed; the caller writes messages about data.
Invariants: a code that is not in the table is a protocol violation, never a success and never silently retried.
Source: Kafka's protocol error codes; KIP-360 (47 of InitProducerId), KIP-588 (90), KIP-890 (120, and 48 of EndTxn v5),
KIP-1242 (129 of ApiVersions).
"""

from __future__ import annotations

from enum import Enum, IntEnum

from kafka_core.protocol import messages as m


class Code(IntEnum):
    """The codes that the product receives or returns, under Kafka's names."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    INVALID_FETCH_SIZE = 4
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    BROKER_NOT_AVAILABLE = 8
    REPLICA_NOT_AVAILABLE = 9
    MESSAGE_TOO_LARGE = 10
    OFFSET_METADATA_TOO_LARGE = 12
    NETWORK_EXCEPTION = 13
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_COMMIT_OFFSET_SIZE = 28
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTION_COORDINATOR_FENCED = 52
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    SECURITY_DISABLED = 54
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    LOG_DIR_NOT_FOUND = 57
    SASL_AUTHENTICATION_FAILED = 58
    UNKNOWN_PRODUCER_ID = 59
    REASSIGNMENT_IN_PROGRESS = 60
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    TOPIC_DELETION_DISABLED = 73
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    STALE_BROKER_EPOCH = 77
    OFFSET_NOT_AVAILABLE = 78
    MEMBER_ID_REQUIRED = 79
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    ELECTION_NOT_NEEDED = 84
    NO_REASSIGNMENT_IN_PROGRESS = 85
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    PRODUCER_FENCED = 90
    UNKNOWN_TOPIC_ID = 100
    INCONSISTENT_TOPIC_ID = 103
    TRANSACTIONAL_ID_NOT_FOUND = 105
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    UNSUPPORTED_ASSIGNOR = 112
    STALE_MEMBER_EPOCH = 113
    TRANSACTION_ABORTABLE = 120
    INVALID_REGULAR_EXPRESSION = 128
    REBOOTSTRAP_REQUIRED = 129


class Action(Enum):
    """What the client does next."""

    DONE = "done"
    RETRY = "send the same request again after a back-off"
    REDISCOVER = "find the coordinator or leader anew, then send the same request again"
    ABORT = "abort this transaction; a new epoch may begin another"
    ORDER = "expected behind a batch that is sent again; for the oldest batch records are missing: abort"
    FENCED = "a newer owner exists: stop"
    PROVE = "the code alone proves nothing: ask for the outcome"
    AUTHORIZE = "an ACL is missing"
    REFUSE = "the request can never work: the user or the operator has to change something"
    BUG = "a protocol violation by this client or by the broker"


_COORDINATOR: dict[Code, Action] = {
    Code.NONE: Action.DONE,
    Code.COORDINATOR_LOAD_IN_PROGRESS: Action.RETRY,
    Code.CONCURRENT_TRANSACTIONS: Action.RETRY,
    Code.REQUEST_TIMED_OUT: Action.RETRY,
    Code.THROTTLING_QUOTA_EXCEEDED: Action.RETRY,
    Code.UNKNOWN_SERVER_ERROR: Action.RETRY,
    Code.COORDINATOR_NOT_AVAILABLE: Action.REDISCOVER,
    Code.NOT_COORDINATOR: Action.REDISCOVER,
    Code.NETWORK_EXCEPTION: Action.REDISCOVER,
    Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: Action.AUTHORIZE,
    Code.TOPIC_AUTHORIZATION_FAILED: Action.AUTHORIZE,
    Code.GROUP_AUTHORIZATION_FAILED: Action.AUTHORIZE,
    Code.CLUSTER_AUTHORIZATION_FAILED: Action.AUTHORIZE,
    Code.PRODUCER_FENCED: Action.FENCED,
    Code.TRANSACTION_COORDINATOR_FENCED: Action.REDISCOVER,
    Code.INVALID_PRODUCER_EPOCH: Action.FENCED,
    Code.INVALID_PRODUCER_ID_MAPPING: Action.ABORT,
    Code.UNKNOWN_PRODUCER_ID: Action.ABORT,
    Code.TRANSACTION_ABORTABLE: Action.ABORT,
    Code.INVALID_TXN_STATE: Action.ABORT,
    Code.UNSUPPORTED_VERSION: Action.BUG,
    Code.INVALID_REQUEST: Action.BUG,
}

# Possible answers of a partition's leader to any request while leadership moves or a log is taken offline.
_LEADER: dict[Code, Action] = {
    Code.UNKNOWN_TOPIC_OR_PARTITION: Action.REDISCOVER,
    Code.LEADER_NOT_AVAILABLE: Action.REDISCOVER,
    Code.NOT_LEADER_OR_FOLLOWER: Action.REDISCOVER,
    Code.BROKER_NOT_AVAILABLE: Action.REDISCOVER,
    Code.REPLICA_NOT_AVAILABLE: Action.REDISCOVER,
    Code.KAFKA_STORAGE_ERROR: Action.REDISCOVER,
    Code.FENCED_LEADER_EPOCH: Action.REDISCOVER,
    Code.UNKNOWN_LEADER_EPOCH: Action.REDISCOVER,
}

_OVERRIDES: dict[int, dict[Code, Action]] = {
    # KIP-207: a new leader has not established its high watermark yet. One that was cut off before goes on to say so.
    m.ListOffsetsRequest.API_KEY: {**_LEADER, Code.OFFSET_NOT_AVAILABLE: Action.REDISCOVER},
    # For every reader of a log. CORRUPT_MESSAGE: another replica may lead by the next try; the reader's time
    # limit ends the retries. OFFSET_NOT_AVAILABLE as for ListOffsets. The meaning of OFFSET_OUT_OF_RANGE
    # depends on where the log begins and ends.
    m.FetchRequest.API_KEY: {
        **_LEADER,
        Code.OFFSET_OUT_OF_RANGE: Action.REFUSE,
        Code.OFFSET_NOT_AVAILABLE: Action.REDISCOVER,
        Code.CORRUPT_MESSAGE: Action.REDISCOVER,
        # Of a topic that is named by its id: it was recreated, or this broker has not heard of it yet.
        Code.UNKNOWN_TOPIC_ID: Action.REDISCOVER,
        Code.INCONSISTENT_TOPIC_ID: Action.REDISCOVER,
    },
    m.OffsetForLeaderEpochRequest.API_KEY: {**_LEADER, Code.OFFSET_NOT_AVAILABLE: Action.REDISCOVER},
    m.DescribeProducersRequest.API_KEY: dict(_LEADER),
    # KIP-447: a transaction that commits offsets of this group has not ended.
    m.OffsetFetchRequest.API_KEY: {Code.UNSTABLE_OFFSET_COMMIT: Action.RETRY},
    # Outside of transactions. A group that has members accepts offsets from them only.
    m.OffsetCommitRequest.API_KEY: {
        Code.UNKNOWN_TOPIC_OR_PARTITION: Action.RETRY,
        Code.ILLEGAL_GENERATION: Action.REFUSE,
        Code.UNKNOWN_MEMBER_ID: Action.REFUSE,
        Code.OFFSET_METADATA_TOO_LARGE: Action.REFUSE,
        Code.INVALID_COMMIT_OFFSET_SIZE: Action.REFUSE,
    },
    m.InitProducerIdRequest.API_KEY: {
        Code.INVALID_TRANSACTION_TIMEOUT: Action.REFUSE,
        Code.INVALID_TXN_STATE: Action.BUG,
    },
    m.AddPartitionsToTxnRequest.API_KEY: {
        Code.UNKNOWN_TOPIC_OR_PARTITION: Action.RETRY,
        Code.OPERATION_NOT_ATTEMPTED: Action.RETRY,
    },
    m.TxnOffsetCommitRequest.API_KEY: {
        Code.UNKNOWN_TOPIC_OR_PARTITION: Action.RETRY,
        Code.ILLEGAL_GENERATION: Action.ABORT,
        Code.UNKNOWN_MEMBER_ID: Action.ABORT,
        Code.UNSTABLE_OFFSET_COMMIT: Action.RETRY,
    },
    # None of these proves whether an earlier, unanswered EndTxn took effect; only the log or
    # DescribeTransactions does.
    m.EndTxnRequest.API_KEY: {
        Code.PRODUCER_FENCED: Action.PROVE,
        Code.INVALID_PRODUCER_EPOCH: Action.PROVE,
        Code.INVALID_PRODUCER_ID_MAPPING: Action.PROVE,
        Code.INVALID_TXN_STATE: Action.PROVE,
        Code.TRANSACTIONAL_ID_NOT_FOUND: Action.PROVE,
        Code.TRANSACTION_ABORTABLE: Action.PROVE,
    },
    m.ProduceRequest.API_KEY: {
        **_LEADER,
        Code.CORRUPT_MESSAGE: Action.RETRY,
        Code.NOT_ENOUGH_REPLICAS: Action.RETRY,
        Code.NOT_ENOUGH_REPLICAS_AFTER_APPEND: Action.RETRY,
        # A leader that was cut off goes on to append, and has nothing replicated.
        Code.REQUEST_TIMED_OUT: Action.REDISCOVER,
        # The broker already has exactly these sequences: the first sending was written (idempotent producer,
        # rule of the last five batches). Its offset is in the answer if the broker still has it.
        Code.DUPLICATE_SEQUENCE_NUMBER: Action.DONE,
        # The partition's sequences (`client.writing.sequences`) know which of the two it is.
        Code.OUT_OF_ORDER_SEQUENCE_NUMBER: Action.ORDER,
        # The broker failed in a way that has no code, such as a record that it cannot pack anew. Kafka's own client,
        # librdkafka and franz-go do not send the batch again.
        Code.UNKNOWN_SERVER_ERROR: Action.ABORT,
        Code.MESSAGE_TOO_LARGE: Action.REFUSE,
        Code.RECORD_LIST_TOO_LARGE: Action.REFUSE,
        Code.INVALID_RECORD: Action.REFUSE,
        Code.INVALID_TIMESTAMP: Action.REFUSE,
        Code.INVALID_TOPIC_EXCEPTION: Action.REFUSE,
        Code.UNSUPPORTED_COMPRESSION_TYPE: Action.REFUSE,
        Code.UNSUPPORTED_FOR_MESSAGE_FORMAT: Action.REFUSE,
        Code.POLICY_VIOLATION: Action.REFUSE,
        # KIP-890: a transaction that timed out answers a late Produce with 48 where the epoch was not raised.
        Code.INVALID_TXN_STATE: Action.ABORT,
    },
}


def name_of(code: int) -> str:
    """Kafka's name of a code; its number where `Code` lacks it."""
    try:
        return Code(code).name
    except ValueError:
        return f"error code {code}"


def action_for(api_key: int, code: int) -> Action:
    """What the client does about `code` in an answer of the API; BUG for a code that is not valid there."""
    try:
        known = Code(code)
    except ValueError:
        return Action.BUG
    special = _OVERRIDES.get(api_key, {})
    if known in special:
        return special[known]
    return _COORDINATOR.get(known, Action.BUG)
