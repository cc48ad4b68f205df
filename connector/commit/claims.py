"""Who may write under a shared epoch: of all starts of a task in one try of a batch, the first one in a log.

Owns: the claims topic, one record per start, and reading back whose was first.
Does not know: what is written by whoever may.
Invariants: for one key at most one token is ever told that it may; a claim without a definite answer is a refusal.

Why: two starts of a task that write under the same (producer id, epoch) would have their sequences taken for each other's
duplicates, and the broker would say yes to records that it does not have. Spark starts a task again under attempt number 0
when it runs its stage again, while the first start may go on; Python cannot see the stage's attempt. So neither Spark nor
the brokers' sequences tell the two apart. A log does: it has one order, and everybody reads the same.
"""

from __future__ import annotations

import time
import uuid
import zlib

from connector.client import admin
from connector.client.cluster import Cluster
from connector.client.log_reader import read_raw
from connector.client.offsets import READ_UNCOMMITTED, Offsets
from connector.commit.ledger import one_record
from connector.errors import AuthorizationFailed, BrokerUnavailable, ProtocolViolation, UnknownTopic
from connector.model import NO_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, TopicPartition
from connector.protocol import messages as m
from connector.protocol.error_codes import Action, action_for, name_of
from connector.protocol.produce import produce_request
from connector.records import decode, frame, scan

PARTITIONS = 8
"""As the ledger has, for the same reason."""

SETTINGS = {
    "cleanup.policy": "delete",
    # A claim matters while its batch is being written. A day is far above any transaction's timeout; an hour would not be.
    "retention.ms": str(24 * 60 * 60 * 1000),
    "segment.bytes": str(16 * 1024 * 1024),
}

_DEADLINE_MS = 30_000
"""How long a claim is tried for. Elections take seconds; a task that cannot claim is done again with its batch."""


def claims_topic(ledger_topic: str) -> str:
    """The topic of the claims that go with a ledger."""
    return f"{ledger_topic}-claims"


def prepare_claims(cluster: Cluster, topic: str, pipeline: str) -> TopicPartition:
    """The partition for a pipeline's claims; creates the topic where it is missing."""
    try:
        cluster.topic(topic, new_topic_ms=0)
    except UnknownTopic:
        admin.create_topic(cluster, topic, partitions=PARTITIONS, settings=SETTINGS)
        cluster.topic(topic, refresh=True)
    return TopicPartition(topic, zlib.crc32(pipeline.encode()) % len(cluster.topic(topic).leaders))


def claims_begin(cluster: Cluster, where: TopicPartition) -> int:
    """An offset before every claim that is still to come."""
    return Offsets(cluster).latest([where], READ_UNCOMMITTED)[where]


def claim(cluster: Cluster, where: TopicPartition, key: str, since: int) -> bool:
    """Whether this caller is the first who claims `key`; ask once per start.

    `since`: an offset before the first claim of this key. BrokerUnavailable where no answer is definite: then it may not.
    """
    token = uuid.uuid4().bytes
    _append(cluster, where, key.encode(), token)
    offset, deadline = since, time.monotonic() + _DEADLINE_MS / 1000
    while True:
        read = read_raw(cluster, where, offset)
        following = offset
        for info, data in scan(bytes(read.records)):
            following = max(following, info.last_offset + 1)
            if info.control:
                continue
            rows = decode((info, data))
            for found, value in zip(rows.key.to_pylist(), rows.value.to_pylist(), strict=True):
                if found == key.encode():
                    return bool(value == token)
        if following == offset and time.monotonic() > deadline:
            raise BrokerUnavailable(
                f"the claim that was written to {where} cannot be read back; the task wrote nothing",
                {"partition": str(where), "since": since},
            )
        offset = following


def _append(cluster: Cluster, where: TopicPartition, key: bytes, token: bytes) -> None:
    """Write one plain record until it is acknowledged. Written twice it is still one claim: the token is the same."""
    batch = _record(key, token)
    cluster.topic(where.topic)
    version = cluster.version(m.ProduceRequest)
    deadline, last = time.monotonic() + _DEADLINE_MS / 1000, "no leader"
    while True:
        leader = cluster.leader(where)
        try:
            if leader >= 0:
                request = produce_request(
                    version,
                    None,
                    cluster.settings.request_timeout_ms,
                    [(where.topic, where.partition, batch)],
                )
                answer = cluster.call(leader, request)
                code = answer.responses[0].partition_responses[0].error_code
                action = action_for(m.ProduceRequest.API_KEY, code)
                if action is Action.DONE:
                    return
                last = name_of(code)
                if action is Action.AUTHORIZE:
                    raise AuthorizationFailed(
                        f"{where} answered {last}; transaction.scope=batch needs WRITE and READ on this topic; nothing of "
                        "the micro-batch is visible",
                        {"partition": str(where), "code": last},
                    )
                if action not in (Action.RETRY, Action.REDISCOVER):
                    raise ProtocolViolation(f"{where} answered {last} to a claim", {"partition": str(where)})
        except BrokerUnavailable as error:
            last = str(error)
        if time.monotonic() > deadline:
            raise BrokerUnavailable(
                f"the claim was not acknowledged by {where} within the time allowed (last: {last}); the task wrote nothing",
                {"partition": str(where)},
            )
        cluster.pause()
        cluster.refresh_topics([where.topic])


def _record(key: bytes, value: bytes) -> memoryview:
    return frame(
        one_record(key, value),
        producer_id=NO_PRODUCER_ID,
        producer_epoch=NO_EPOCH,
        base_sequence=NO_SEQUENCE,
        transactional=False,
    )
