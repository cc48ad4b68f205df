"""Which of a batch's source offsets are committed to the sink's consumer group: those of the sink's own
cluster.

Owns: finding the cluster whose topics a batch has read, and the warnings where it is another one, and where a topic is
both read and written.
Does not know: how offsets are committed.
Invariants:
- No offset of another cluster's topic goes to the sink's cluster, even if the sink's has a topic of the same
  name; nor does one of a topic that was deleted and created again.

A transaction spans one cluster, and the sink has no rights on another one. So where a query reads cluster A
and writes to cluster B, A's offsets are committed to no group. The query's position is in Spark's checkpoint,
its lag in its progress.

The offsets of `format("kafka_eos")` name their cluster and their topics' ids. Those of Spark's own Kafka source do not.
Such a topic counts as the sink's cluster's if it exists there with at least as many offsets.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from kafka_core.errors import UnknownTopic
from kafka_core.values import TopicPartition, by_topic
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.every_broker import ask_every_broker
from pyspark_kafka_eos.client.reading.offsets import READ_UNCOMMITTED, Offsets
from pyspark_kafka_eos.model import GroupOffset, GroupOffsets, Seal
from pyspark_kafka_eos.options import SinkOptions
from pyspark_kafka_eos.spark.offset_json import Position
from pyspark_kafka_eos.spark.offset_log import kafka_sources, lower_offsets, lowest

log = logging.getLogger(__name__)

_said: set[tuple[str, str]] = set()
"""(pipeline, warning) already logged. Once per process is enough: a batch comes every few moments."""


def group_offsets(cluster: Cluster, options: SinkOptions, lines: Sequence[str]) -> dict[TopicPartition, GroupOffset]:
    """The batch's source offsets for the group `offsets.group` on the sink's cluster. None where that option
    is empty."""
    # Parsed in any case, to find a damaged offset log before anything is decided.
    sources = kafka_sources(lines)
    if not options.offsets_group or not sources:
        return {}
    mine = cluster.cluster_id()
    here = [each for each in sources if mine and each.cluster_id == mine]
    unknown = [each for each in sources if not each.cluster_id or not mine]
    for each in sources:
        if each not in here and each not in unknown:
            _say_once(options, each.offsets, f"another Kafka cluster ({each.cluster_id}), this one is {mine}")
    found = lower_offsets([_of_these_topics(cluster, options, each) for each in here])
    return lowest([found, _there(cluster, options, lower_offsets(unknown))])


def warn_of_a_loop(
    cluster: Cluster,
    options: SinkOptions,
    lines: Sequence[str],
    offsets: GroupOffsets,
    seals: Iterable[Seal],
) -> None:
    """Say once where the query reads a topic that it writes to: each batch gives rows for the next one. `offsets`: what
    the group gets of the batch, which is known to be of the sink's cluster; `seals`: the batch's.
    """
    mine = cluster.cluster_id()
    read = {where.topic for where in offsets}
    for each in kafka_sources(lines):
        if mine and each.cluster_id == mine:
            read |= {where.topic for where in each.offsets}
    written = {options.topic, options.dead_letter_topic}.union(*(seal.topic_names for seal in seals))
    for topic in sorted(read & written):
        text = f"{topic}: read and written"
        if (options.pipeline, text) not in _said:
            _said.add((options.pipeline, text))
            log.warning(
                "pipeline %s: the query reads the topic %s and writes to it, so what it writes is its next input, without end unless "
                "the query leaves it out. Write to another topic", options.pipeline, topic,
            )  # fmt: skip


def _of_these_topics(cluster: Cluster, options: SinkOptions, source: Position) -> Position:
    """The source without the topics that have another id on this cluster than the one that was read. Asks one broker
    for each topic, and every broker where the ids differ.
    """
    others: dict[str, str] = {}
    for topic, read in source.topic_ids().items():
        here = _id_of(cluster, topic)
        if here not in ("", read):
            ask_every_broker(cluster, [topic])
            here = _id_of(cluster, topic)
        if here not in ("", read):
            others[topic] = here
    for topic, here in others.items():
        gone = {where: offset for where, offset in source.offsets.items() if where.topic == topic}
        _say_once(options, gone, f"the topic with the id {source.topic_ids()[topic]}, and the id here is {here}")
    left = {where: offset for where, offset in source.offsets.items() if where.topic not in others}
    return replace(source, offsets=left)


def _id_of(cluster: Cluster, topic: str) -> str:
    try:
        return cluster.topic(topic, new_topic_ms=0).topic_id
    except UnknownTopic:
        return "none"


def _there(
    cluster: Cluster, options: SinkOptions, offsets: dict[TopicPartition, GroupOffset]
) -> dict[TopicPartition, GroupOffset]:
    """The offsets that can be this cluster's."""
    found: dict[TopicPartition, GroupOffset] = {}
    for topic, numbers in by_topic(offsets):
        here = {where: offsets[where] for where in (TopicPartition(topic, number) for number in numbers)}
        if not _reaches(cluster, topic, here, refresh=True):
            # The broker that was asked, or the leader that it named, may be one that was cut off.
            ask_every_broker(cluster, [topic])
            if not _reaches(cluster, topic, here):
                _say_once(options, here, "another Kafka cluster or gone")
                continue
        found |= here
    return found


def _reaches(
    cluster: Cluster, topic: str, offsets: Mapping[TopicPartition, GroupOffset], *, refresh: bool = False
) -> bool:
    """Whether the cluster has the topic, with as many offsets."""
    try:
        # No waiting: the query cannot have read a topic that is created while it runs.
        cluster.topic(topic, refresh=refresh, new_topic_ms=0)
        ends = Offsets(cluster).latest(sorted(offsets), READ_UNCOMMITTED)
    except UnknownTopic:
        return False
    return all(where in ends and each.offset <= ends[where] for where, each in offsets.items())


def _say_once(options: SinkOptions, partitions: Iterable[TopicPartition], whose: str) -> None:
    topics = ", ".join(sorted({where.topic for where in partitions}))
    text = f"{topics}: {whose}"
    if (options.pipeline, text) in _said:
        return
    _said.add((options.pipeline, text))
    log.warning(
        "pipeline %s: the source topics %s are of %s, so their offsets are not committed to the group %r. The query's position is in "
        "its checkpoint alone, and its progress reports the lag. Set offsets.group to an empty text to commit none and to silence "
        "this warning",
        options.pipeline, topics, whose, options.offsets_group,
    )  # fmt: skip


__all__ = ["group_offsets", "warn_of_a_loop"]
