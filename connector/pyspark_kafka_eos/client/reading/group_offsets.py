"""A consumer group's offsets committed outside of any transaction, as an ordinary consumer does.

Owns: OffsetCommit to the group's coordinator, retried until every answer is definite or time is over.
Does not know: transactions (`transactions.commit_offsets` puts offsets into one), what was read up to these offsets.
Invariants: the caller joins no group; a group that has members rejects the commit and stays unchanged.
"""

from __future__ import annotations

from typing import Any

from kafka_core.errors import BrokerUnavailable, ExactlyOnceError
from kafka_core.protocol import messages as m
from kafka_core.protocol.error_codes import Action
from kafka_core.values import TopicPartition, by_topic
from pyspark_kafka_eos.client.asking import ask_coordinator
from pyspark_kafka_eos.client.cluster import Cluster, CoordinatorKind
from pyspark_kafka_eos.client.definite import Again, again_or_refuse
from pyspark_kafka_eos.client.reading.offsets import each_partition, refusal
from pyspark_kafka_eos.client.wire.versions import Build
from pyspark_kafka_eos.model import GroupOffset, GroupOffsets, placed


def commit_group_offsets(cluster: Cluster, group: str, offsets: GroupOffsets, deadline_ms: float | None = None) -> None:
    """Commit these offsets to the group. Repeating the commit changes nothing, so an unanswered request is
    sent again.

    Raises BrokerUnavailable where no answer was definite in time: the offsets may or may not be committed.
    Raises AuthorizationFailed without READ on the group and the topics, ProtocolViolation where the group has
    members.
    """
    if not offsets:
        return
    budget = cluster.budget(deadline_ms)

    def late(last: Again) -> None:
        raise BrokerUnavailable(
            f"the offsets of group {group!r} got no definite answer within the time allowed (last: {last}); they may "
            "or may not be committed",
            {"group": group, "timeout_ms": budget.total_ms},
        )

    ask_coordinator(
        cluster,
        CoordinatorKind.GROUP,
        group,
        lambda: _request(cluster, group, offsets),
        lambda answer: _judge(group, offsets, answer),
        deadline_ms=budget.left_ms,
        late=late,
    )


def committed_fields(at: GroupOffset) -> dict[str, Any]:
    """What a request says of a committed offset, in a transaction or outside of one."""
    return {
        "committed_offset": at.offset,
        "committed_leader_epoch": at.leader_epoch,
        "committed_metadata": at.metadata(),
    }


def _judge(group: str, offsets: GroupOffsets, answer: m.Message) -> Again | None:
    """None where every partition is committed; raises a refusal."""
    answered = dict(each_partition(answer.topics))
    missing = sorted(set(offsets) - set(answered))
    found = Again(f"the answer lacks {missing[0]}") if missing else None
    for where, partition in answered.items():

        def refused(_action: Action, code: int, where: TopicPartition = where) -> ExactlyOnceError:
            about = f"group {group!r} and {where}"
            return refusal(m.OffsetCommitRequest, code, about, "READ on the group and on the topic")

        again = again_or_refuse(m.OffsetCommitRequest.API_KEY, partition.error_code, refused, where)
        if again is not None and (found is None or again.moved):
            found = again
    return found


def _request(cluster: Cluster, group: str, offsets: GroupOffsets) -> Build:
    topic_class = m.OffsetCommitRequest.OffsetCommitRequestTopic
    places = placed(offsets)
    return cluster.build(
        m.OffsetCommitRequest,
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        group_instance_id=None,
        topics=[
            topic_class(
                name=name,
                partitions=[
                    topic_class.OffsetCommitRequestPartition(
                        partition_index=number, **committed_fields(places[TopicPartition(name, number)])
                    )
                    for number in numbers
                ],
            )
            for name, numbers in by_topic(offsets)
        ],
    )
