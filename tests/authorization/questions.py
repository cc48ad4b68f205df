"""One request of each API and of each way to name what it is about.

Owns: their fields. The order matters: what takes something away comes last.
Does not know: rights, brokers.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from tests.authorization.grants import Names
from tests.differential.records import Identity, batch

Fields = dict[str, Any]

_TOPIC, _GROUP, _BROKER = 2, 32, 4
"""ConfigResource.Type"""
_FIRST_SEQUENCE = 0
_SOME_TIMEOUT_MS = 20_000
ABORT = False
THERE_FOR = "User:somebody"
"""Each topic has an ACL for this one."""
CREATED_FOR = "User:nobody"


class Things(NamedTuple):
    """What a client asks about."""

    names: Names
    topic_id: uuid.UUID
    doomed_id: uuid.UUID
    producer: Identity
    """Of the transactional id; it has no open transaction."""
    idempotent: Identity
    """A producer id without a transactional id."""


class Question(NamedTuple):
    """A request. `label` is unique."""

    label: str
    api: str
    version: int
    fields: Callable[[Things], Fields]


def questions() -> Iterator[Question]:
    """In the order in which they are asked."""
    yield from _about_topics()
    yield from _about_groups()
    yield from _about_transactions()
    yield from _about_the_cluster()
    yield from _that_take_away()


def _about_topics() -> Iterator[Question]:
    def metadata(version: int, **asked: Any) -> Callable[[Things], Fields]:
        def fields(it: Things) -> Fields:
            values = {"name": it.names.topic, "missing": it.names.missing, "id": it.topic_id}
            topics = None if asked["of"] is None else [{"name": None, asked["as"]: values[asked["of"]]}]
            shown = {"include_topic_authorized_operations": True} if version >= 8 else {}
            if 8 <= version <= 10:
                shown["include_cluster_authorized_operations"] = True
            return {"topics": topics, "allow_auto_topic_creation": False, **shown}

        return fields

    yield Question("Metadata, by name", "Metadata", 12, metadata(12, of="name", **{"as": "name"}))
    yield Question("Metadata, by name, version 9", "Metadata", 9, metadata(9, of="name", **{"as": "name"}))
    yield Question("Metadata, a missing topic", "Metadata", 12, metadata(12, of="missing", **{"as": "name"}))
    yield Question("Metadata, by id", "Metadata", 12, metadata(12, of="id", **{"as": "topic_id"}))
    yield Question("Metadata, all", "Metadata", 9, metadata(9, of=None, **{"as": "name"}))
    yield Question(
        "Metadata, an unknown id", "Metadata", 12,
        lambda it: {"topics": [{"name": None, "topic_id": uuid.UUID(int=7)}], "allow_auto_topic_creation": False},
    )  # fmt: skip
    yield Question("Produce", "Produce", 12, lambda it: _produce(it, batch(b"v")))
    yield Question(
        "Produce, a missing topic", "Produce", 12, lambda it: _produce(it, batch(b"v"), topic=it.names.missing)
    )
    yield Question(
        "Produce, idempotent", "Produce", 12,
        lambda it: _produce(it, batch(b"v", who=it.idempotent, sequence=_FIRST_SEQUENCE)),
    )  # fmt: skip
    fetched: Fields = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20, "current_leader_epoch": -1}
    asked: Fields = {
        "replica_id": -1, "max_wait_ms": 1, "min_bytes": 1, "max_bytes": 1 << 20, "isolation_level": 1,
        "session_id": 0, "session_epoch": -1, "forgotten_topics_data": [], "rack_id": "",
    }  # fmt: skip
    yield Question(
        "Fetch, by name", "Fetch", 12,
        lambda it: {**asked, "topics": [{"topic": it.names.topic, "partitions": [dict(fetched)]}]},
    )  # fmt: skip
    yield Question(
        "Fetch, a missing topic", "Fetch", 12,
        lambda it: {**asked, "topics": [{"topic": it.names.missing, "partitions": [dict(fetched)]}]},
    )  # fmt: skip
    yield Question(
        "Fetch, by id", "Fetch", 13,
        lambda it: {**asked, "topics": [{"topic_id": it.topic_id, "partitions": [dict(fetched)]}]},
    )  # fmt: skip
    for label, named in (("", "topic"), (", a missing topic", "missing")):
        yield Question(
            f"ListOffsets{label}", "ListOffsets", 7,
            lambda it, named=named: {  # type: ignore[misc]
                "replica_id": -1, "isolation_level": 0,
                "topics": [
                    {
                        "name": getattr(it.names, named),
                        "partitions": [{"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}],
                    }
                ],
            },
        )  # fmt: skip
        yield Question(
            f"OffsetForLeaderEpoch{label}", "OffsetForLeaderEpoch", 4,
            lambda it, named=named: {  # type: ignore[misc]
                "replica_id": -1,
                "topics": [
                    {
                        "topic": getattr(it.names, named),
                        "partitions": [{"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}],
                    }
                ],
            },
        )  # fmt: skip
        yield Question(
            f"DescribeProducers{label}", "DescribeProducers", 0,
            lambda it, named=named: {"topics": [{"name": getattr(it.names, named), "partition_indexes": [0]}]},  # type: ignore[misc]
        )  # fmt: skip
        yield Question(
            f"CreatePartitions{label}", "CreatePartitions", 3,
            lambda it, named=named: {  # type: ignore[misc]
                "topics": [{"name": getattr(it.names, named), "count": 4, "assignments": None}],
                "timeout_ms": _SOME_TIMEOUT_MS, "validate_only": True,
            },
        )  # fmt: skip
        yield Question(
            f"DeleteRecords{label}", "DeleteRecords", 2,
            lambda it, named=named: {  # type: ignore[misc]
                "topics": [{"name": getattr(it.names, named), "partitions": [{"partition_index": 0, "offset": 0}]}],
                "timeout_ms": _SOME_TIMEOUT_MS,
            },
        )  # fmt: skip
    yield Question("CreateTopics", "CreateTopics", 7, lambda it: _created(it.names.new))
    yield Question("CreateTopics, one that is there", "CreateTopics", 7, lambda it: _created(it.names.topic))
    for kind, name in ((_TOPIC, "topic"), (_TOPIC, "missing"), (_GROUP, "group"), (_BROKER, "")):
        said = {_TOPIC: "of a topic", _GROUP: "of a group", _BROKER: "of the broker"}[kind]
        said += " that is missing" if name == "missing" else ""
        setting, value = {
            _TOPIC: ("retention.ms", "604800000"), _GROUP: ("consumer.session.timeout.ms", "50000"),
            _BROKER: ("log.cleaner.threads", "1"),
        }[kind]  # fmt: skip

        def resource(it: Things, kind: int = kind, name: str = name) -> Fields:
            # An empty name: the default of all brokers.
            return {"resource_type": kind, "resource_name": getattr(it.names, name) if name else ""}

        yield Question(
            f"DescribeConfigs, {said}", "DescribeConfigs", 4,
            lambda it, resource=resource, setting=setting: {  # type: ignore[misc]
                "resources": [{**resource(it), "configuration_keys": [setting]}],
                "include_synonyms": False, "include_documentation": False,
            },
        )  # fmt: skip
        yield Question(
            f"IncrementalAlterConfigs, {said}", "IncrementalAlterConfigs", 1,
            lambda it, resource=resource, setting=setting, value=value: {  # type: ignore[misc]
                "resources": [
                    {**resource(it), "configs": [{"name": setting, "config_operation": 0, "value": value}]}
                ],
                "validate_only": True,
            },
        )  # fmt: skip
        yield Question(
            f"AlterConfigs, {said}", "AlterConfigs", 2,
            lambda it, resource=resource, setting=setting, value=value: {  # type: ignore[misc]
                "resources": [{**resource(it), "configs": [{"name": setting, "value": value}]}],
                "validate_only": True,
            },
        )  # fmt: skip


def _about_groups() -> Iterator[Question]:
    member: Fields = {"generation_id": -1, "member_id": "nobody", "group_instance_id": None}
    yield Question(
        "FindCoordinator, of a group", "FindCoordinator", 4,
        lambda it: {"key_type": 0, "coordinator_keys": [it.names.group]},
    )  # fmt: skip
    yield Question(
        "JoinGroup", "JoinGroup", 9,
        lambda it: {
            "group_id": it.names.group, "session_timeout_ms": 10_000, "rebalance_timeout_ms": 10_000, "member_id": "",
            "group_instance_id": None, "protocol_type": "consumer", "reason": None,
            "protocols": [{"name": "range", "metadata": b""}],
        },
    )  # fmt: skip
    yield Question(
        "SyncGroup", "SyncGroup", 5,
        lambda it: {
            "group_id": it.names.group, **member, "protocol_type": "consumer", "protocol_name": "range",
            "assignments": [],
        },
    )  # fmt: skip
    yield Question("Heartbeat", "Heartbeat", 4, lambda it: {"group_id": it.names.group, **member})
    yield Question(
        "LeaveGroup", "LeaveGroup", 5,
        lambda it: {
            "group_id": it.names.group, "members": [{"member_id": "x", "group_instance_id": None, "reason": None}]
        },
    )  # fmt: skip
    for label, named in (("", "topic"), (", of a missing topic", "missing")):
        yield Question(
            f"OffsetCommit{label}", "OffsetCommit", 9,
            lambda it, named=named: {  # type: ignore[misc]
                "group_id": it.names.group, "generation_id_or_member_epoch": -1, "member_id": "",
                "group_instance_id": None, "topics": _offsets(getattr(it.names, named)),
            },
        )  # fmt: skip
        yield Question(
            f"OffsetFetch{label}", "OffsetFetch", 9,
            lambda it, named=named: {  # type: ignore[misc]
                "groups": [
                    {
                        "group_id": it.names.group, "member_id": None, "member_epoch": -1,
                        "topics": [{"name": getattr(it.names, named), "partition_indexes": [0]}],
                    }
                ],
                "require_stable": False,
            },
        )  # fmt: skip
        yield Question(
            f"ConsumerGroupHeartbeat{label}", "ConsumerGroupHeartbeat", 1,
            lambda it, named=named: {  # type: ignore[misc]
                "group_id": it.names.group, "member_id": "m", "member_epoch": 5, "instance_id": None, "rack_id": None,
                "rebalance_timeout_ms": 10_000, "subscribed_topic_names": [getattr(it.names, named)],
                "subscribed_topic_regex": None, "server_assignor": None, "topic_partitions": [],
            },
        )  # fmt: skip
    yield Question(
        "OffsetFetch, all topics", "OffsetFetch", 9,
        lambda it: {
            "groups": [{"group_id": it.names.group, "member_id": None, "member_epoch": -1, "topics": None}],
            "require_stable": False,
        },
    )  # fmt: skip
    yield Question(
        "OffsetFetch, version 7", "OffsetFetch", 7,
        lambda it: {
            "group_id": it.names.group, "topics": [{"name": it.names.topic, "partition_indexes": [0]}],
            "require_stable": False,
        },
    )  # fmt: skip
    yield Question(
        "DescribeGroups", "DescribeGroups", 5,
        lambda it: {"groups": [it.names.group], "include_authorized_operations": True},
    )  # fmt: skip
    yield Question(
        "ConsumerGroupDescribe", "ConsumerGroupDescribe", 1,
        lambda it: {"group_ids": [it.names.group], "include_authorized_operations": True},
    )  # fmt: skip
    yield Question("ListGroups", "ListGroups", 5, lambda it: {"states_filter": [], "types_filter": []})


def _about_transactions() -> Iterator[Question]:
    yield Question(
        "FindCoordinator, of an id", "FindCoordinator", 4,
        lambda it: {"key_type": 1, "coordinator_keys": [it.names.transactional_id]},
    )  # fmt: skip
    yield Question(
        "InitProducerId, without an id", "InitProducerId", 4,
        lambda it: {
            "transactional_id": None, "transaction_timeout_ms": 60_000, "producer_id": -1, "producer_epoch": -1
        },
    )  # fmt: skip
    yield Question(
        "AddPartitionsToTxn", "AddPartitionsToTxn", 3,
        lambda it: {
            "v3_and_below_transactional_id": it.names.transactional_id,
            "v3_and_below_producer_id": it.producer.producer_id, "v3_and_below_producer_epoch": it.producer.epoch,
            "v3_and_below_topics": [
                {"name": it.names.topic, "partitions": [0]}, {"name": it.names.missing, "partitions": [0]}
            ],
        },
    )  # fmt: skip
    yield Question(
        "AddPartitionsToTxn, one topic", "AddPartitionsToTxn", 3,
        lambda it: {
            "v3_and_below_transactional_id": it.names.transactional_id,
            "v3_and_below_producer_id": it.producer.producer_id, "v3_and_below_producer_epoch": it.producer.epoch,
            "v3_and_below_topics": [{"name": it.names.topic, "partitions": [0]}],
        },
    )  # fmt: skip
    yield Question(
        "AddPartitionsToTxn, of a broker", "AddPartitionsToTxn", 5,
        lambda it: {
            "transactions": [
                {
                    "transactional_id": it.names.transactional_id, "producer_id": it.producer.producer_id,
                    "producer_epoch": it.producer.epoch, "verify_only": True,
                    "topics": [{"name": it.names.topic, "partitions": [0]}],
                }
            ]
        },
    )  # fmt: skip
    yield Question(
        "Produce, transactional", "Produce", 11,
        lambda it: _produce(
            it, batch(b"v", who=it.producer, sequence=_FIRST_SEQUENCE, transactional=True),
            transactional_id=it.names.transactional_id,
        ),
    )  # fmt: skip
    yield Question(
        "AddOffsetsToTxn", "AddOffsetsToTxn", 3,
        lambda it: {
            "transactional_id": it.names.transactional_id, "producer_id": it.producer.producer_id,
            "producer_epoch": it.producer.epoch, "group_id": it.names.group,
        },
    )  # fmt: skip
    for label, named in (("", "topic"), (", of a missing topic", "missing")):
        yield Question(
            f"TxnOffsetCommit{label}", "TxnOffsetCommit", 4,
            lambda it, named=named: {  # type: ignore[misc]
                "transactional_id": it.names.transactional_id, "group_id": it.names.group,
                "producer_id": it.producer.producer_id, "producer_epoch": it.producer.epoch, "generation_id": -1,
                "member_id": "", "group_instance_id": None, "topics": _offsets(getattr(it.names, named)),
            },
        )  # fmt: skip
    yield Question(
        "DescribeTransactions", "DescribeTransactions", 0,
        lambda it: {"transactional_ids": [it.names.transactional_id]},
    )  # fmt: skip
    yield Question(
        "ListTransactions", "ListTransactions", 1,
        lambda it: {"state_filters": [], "producer_id_filters": [], "duration_filter": -1},
    )  # fmt: skip
    yield Question(
        "EndTxn", "EndTxn", 4,
        lambda it: {
            "transactional_id": it.names.transactional_id, "producer_id": it.producer.producer_id,
            "producer_epoch": it.producer.epoch, "committed": ABORT,
        },
    )  # fmt: skip
    # Version 6, and with it two-phase commit, is in no release of Kafka that serves it without a test's setting.
    yield Question(
        "InitProducerId", "InitProducerId", 5,
        lambda it: {
            "transactional_id": it.names.transactional_id, "transaction_timeout_ms": 60_000, "producer_id": -1,
            "producer_epoch": -1,
        },
    )  # fmt: skip
    yield Question(
        "WriteTxnMarkers", "WriteTxnMarkers", 1,
        lambda it: {
            "markers": [
                {
                    "producer_id": it.idempotent.producer_id, "producer_epoch": it.idempotent.epoch,
                    "transaction_result": ABORT, "coordinator_epoch": 0,
                    "topics": [{"name": it.names.topic, "partition_indexes": [1]}],
                }
            ]
        },
    )  # fmt: skip


def _about_the_cluster() -> Iterator[Question]:
    yield Question(
        "DescribeCluster", "DescribeCluster", 1,
        lambda it: {"include_cluster_authorized_operations": True, "endpoint_type": 1},
    )  # fmt: skip
    yield Question(
        "DescribeLogDirs", "DescribeLogDirs", 4,
        lambda it: {"topics": [{"topic": it.names.topic, "partitions": [0]}]},
    )  # fmt: skip

    def of(principal: str) -> Callable[[Things], Fields]:
        return lambda it: {
            "resource_type_filter": 2, "resource_name_filter": it.names.topic, "pattern_type_filter": 3,
            "principal_filter": principal, "host_filter": None, "operation": 1, "permission_type": 1,
        }  # fmt: skip

    yield Question(
        "CreateAcls", "CreateAcls", 3,
        lambda it: {
            "creations": [
                {
                    "resource_type": 2, "resource_name": it.names.topic, "resource_pattern_type": 3,
                    "principal": CREATED_FOR, "host": "*", "operation": 3, "permission_type": 3,
                }
            ]
        },
    )  # fmt: skip
    # Kafka's controller makes and removes ACLs; its broker, which lists them, hears of it later.
    yield Question("DescribeAcls", "DescribeAcls", 3, of(THERE_FOR))
    yield Question("DeleteAcls", "DeleteAcls", 3, lambda it: {"filters": [of(CREATED_FOR)(it)]})


def _that_take_away() -> Iterator[Question]:
    def by_name(*names: str) -> Callable[[Things], Fields]:
        return lambda it: {
            "topics": [{"name": getattr(it.names, name), "topic_id": uuid.UUID(int=0)} for name in names],
            "timeout_ms": _SOME_TIMEOUT_MS,
        }

    yield Question(
        "OffsetDelete", "OffsetDelete", 0,
        lambda it: {
            "group_id": it.names.group,
            "topics": [
                {"name": it.names.topic, "partitions": [{"partition_index": 0}]},
                {"name": it.names.missing, "partitions": [{"partition_index": 0}]},
            ],
        },
    )  # fmt: skip
    yield Question("DeleteGroups", "DeleteGroups", 2, lambda it: {"groups_names": [it.names.group]})
    yield Question("DeleteTopics, a missing one", "DeleteTopics", 6, by_name("missing"))
    yield Question(
        "DeleteTopics, a missing one, version 5", "DeleteTopics", 5,
        lambda it: {"topic_names": [it.names.missing], "timeout_ms": _SOME_TIMEOUT_MS},
    )  # fmt: skip
    yield Question("DeleteTopics, named twice", "DeleteTopics", 6, by_name("topic", "topic"))
    yield Question(
        "DeleteTopics, by id and by name", "DeleteTopics", 6,
        lambda it: {
            "topics": [
                {"name": None, "topic_id": it.topic_id}, {"name": it.names.topic, "topic_id": uuid.UUID(int=0)}
            ],
            "timeout_ms": _SOME_TIMEOUT_MS,
        },
    )  # fmt: skip
    yield Question(
        "DeleteTopics, an unknown id", "DeleteTopics", 6,
        lambda it: {"topics": [{"name": None, "topic_id": uuid.UUID(int=7)}], "timeout_ms": _SOME_TIMEOUT_MS},
    )  # fmt: skip
    yield Question(
        "DeleteTopics, by id", "DeleteTopics", 6,
        lambda it: {"topics": [{"name": None, "topic_id": it.doomed_id}], "timeout_ms": _SOME_TIMEOUT_MS},
    )  # fmt: skip
    yield Question("DeleteTopics, by name", "DeleteTopics", 6, by_name("topic"))


def _produce(it: Things, records: bytes, *, topic: str | None = None, transactional_id: str | None = None) -> Fields:
    return {
        "transactional_id": transactional_id, "acks": -1, "timeout_ms": _SOME_TIMEOUT_MS,
        "topic_data": [
            {"name": topic or it.names.topic, "partition_data": [{"index": 0, "records": records}]}
        ],
    }  # fmt: skip


def _created(name: str) -> Fields:
    topic = {"name": name, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
    return {"topics": [topic], "timeout_ms": _SOME_TIMEOUT_MS, "validate_only": False}


def _offsets(topic: str) -> list[Fields]:
    partition = {
        "partition_index": 0, "committed_offset": 1, "committed_leader_epoch": -1, "committed_metadata": "",
    }  # fmt: skip
    return [{"name": topic, "partitions": [partition]}]
