"""Whether a query's offsets still stand on what they were found in: the cluster, the topic's id, the log.

Owns: the comparison of a position with the cluster as it is now, and what a difference means.
Does not know: which partitions are read, micro-batches.
Invariants:
- No offset of one cluster is taken to another one, unless the user names the cluster that it comes from.
- No offset of one topic is taken to another topic of the same name.
- A topic has another id only where more than half of the brokers say so: the answering one may be cut off, or behind.
- Once an end was seen, a comparison asks nothing besides what planning asks anyway.
Source: KIP-516 (topic ids), KIP-320 (leader epochs).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from kafka_core.errors import OptionsError, UnknownTopic
from kafka_core.values import TopicPartition
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.reading.absence import existing
from pyspark_kafka_eos.client.reading.leader_epochs import lost_logs
from pyspark_kafka_eos.client.reading.offsets import LogEnd, LogMark
from pyspark_kafka_eos.options import SourceOptions
from pyspark_kafka_eos.spark.offset_json import Position, begin_anew

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class OtherLog:
    """A log that is not the one in which a position was found: why, and the first offset of it that the query has not
    read (None: its first one).
    """

    why: str
    go_on: int | None


class KnownLogs:
    """What one query's process knows of its logs. Holds no connection, so it can be pickled with the reader."""

    def __init__(self) -> None:
        self.ends: dict[TopicPartition, LogEnd] = {}
        self._adopted: set[str] = set()
        self._looked = False

    def on_this_cluster(
        self, cluster: Cluster, options: SourceOptions, position: Position, whose: str = "the query's checkpoint"
    ) -> Position:  # fmt: skip
        """The position, as one of this cluster. OptionsError, before anything is planned, where its offsets are of
        another cluster that the option adopt.cluster does not name. What they stood on there says nothing here, and is
        dropped.
        """
        here = cluster.cluster_id()
        if position.cluster_id in ("", here) or not here:
            return position
        if position.cluster_id != options.adopt_cluster:
            servers = ",".join(options.client.bootstrap_servers)
            raise OptionsError(
                f"{whose} has offsets of the cluster {position.cluster_id}, but kafka.bootstrap.servers ({servers}) is the "
                f"cluster {here}, whose topics have other offsets even under the same names; nothing was read. Set "
                f"kafka.bootstrap.servers back; or {begin_anew('for this cluster')}; or, only where the topics here are mirrors with the same offsets, set "
                f"adopt.cluster={position.cluster_id}",
                {"checkpoint_cluster": position.cluster_id, "cluster": here},
            )
        if position.cluster_id not in self._adopted:
            self._adopted.add(position.cluster_id)
            _log.warning(
                "%s has offsets of the cluster %s; they are taken as offsets of the cluster %s, because "
                "adopt.cluster says that they are the same here", whose, position.cluster_id, here,
            )  # fmt: skip
        began = position.began
        return Position(position.offsets, here, began=None if began is None else Position(began.offsets, here))

    def known(self, position: Position) -> dict[TopicPartition, LogMark]:
        """The log of each of the position's offsets: of this process's last look, which is newer, else as it was
        recorded.
        """
        found: dict[TopicPartition, LogMark] = {}
        for where, offset in position.offsets.items():
            logged, end = position.logs.get(where), self.ends.get(where)
            seen = end.log if end is not None and offset <= end.offset else None
            if logged is None or (seen is not None and seen.topic_id == logged.topic_id):
                logged = seen
            if logged is not None:
                found[where] = logged
        return found

    def proves(self, position: Position, where: TopicPartition, end: LogEnd) -> bool:
        """Whether an end is the word of a leader at least as new as the one under which the position was found, on the
        same topic.
        """
        log = self.known(position).get(where, LogMark())
        same = log.topic_id == end.log.topic_id != ""
        return same and 0 <= log.leader_epoch <= end.log.leader_epoch

    def recreated(self, cluster: Cluster, position: Position) -> dict[str, tuple[str, str]]:
        """The topics that have another id than the position's: that id, and the present one. Asks nothing where the
        newest answer has the same ids; else more than half of the brokers have to say so (`absence.existing`), or
        BrokerUnavailable.
        """
        known = self.known(position)
        doubted = {
            where: log
            for where, log in known.items()
            if log.topic_id and cluster.topic_id(where.topic) not in ("", log.topic_id)
        }
        if not doubted:
            return {}
        # Partitions that are there under the known id: the broker that answered was cut off, or is behind.
        there = existing(cluster, doubted)
        doubted = {where: log for where, log in doubted.items() if where not in there}
        ids = {where.topic: (log.topic_id, cluster.topic_id(where.topic)) for where, log in doubted.items()}
        return {topic: (was, now) for topic, (was, now) in ids.items() if now not in ("", was)}

    def other_logs(
        self,
        cluster: Cluster,
        position: Position,
        ends: Mapping[TopicPartition, LogEnd],
        anew: Mapping[str, tuple[str, str]],
    ) -> dict[TopicPartition, OtherLog]:
        """The partitions whose log is not the position's any more; `anew` as from `recreated`. Offsets alone do not
        show it once the log has grown beyond the position again.
        """
        found: dict[TopicPartition, OtherLog] = {}
        same: dict[TopicPartition, tuple[LogMark, int]] = {}
        for where, log in self.known(position).items():
            offset = position.offsets[where]
            if where.topic in anew:
                found[where] = OtherLog(recreated(where, offset, *anew[where.topic]), None)
            elif where in ends:
                # Also where it ends before the offset: records that took the place of lost ones may lie before that
                # end.
                same[where] = (log, offset)
        for where, lost in lost_logs(cluster, same).items():
            cut = lost.cut if lost.cut >= 0 else same[where][1]
            found[where] = OtherLog(lost.why, min(cut, same[where][1]))
        return found

    def not_as_logged(self, cluster: Cluster, end: Position) -> dict[TopicPartition, str]:
        """The partitions of a logged batch whose topic is another one now, and why. A topic that does not exist is in
        nobody's way here: its tasks find out.
        """
        # Where this run has planned a batch before, it has looked then. Else what this process knows may be of an
        # earlier query.
        if not self._looked and not self.ends:
            for topic in end.topic_ids():
                with suppress(UnknownTopic):
                    cluster.topic(topic, refresh=True, new_topic_ms=0)
        self._looked = True
        anew = self.recreated(cluster, end)
        return {
            where: recreated(where, offset, *anew[where.topic])
            for where, offset in end.offsets.items()
            if where.topic in anew
        }


def recreated(where: TopicPartition, offset: int, was: str, now: str) -> str:
    """The loss of a topic that was deleted and created again."""
    return f"the topic was recreated: the query's offset {offset} is of the topic with the id {was}, and {where.topic} has the id {now} now"


def logs_of(
    offsets: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, LogEnd], before: Position
) -> dict[TopicPartition, LogMark]:
    """The log of each offset: that of the end in which it lies, else that of the position before it."""
    found: dict[TopicPartition, LogMark] = {}
    for where, offset in offsets.items():
        end = ends.get(where)
        log = end.log if end is not None and offset <= end.offset else before.logs.get(where)
        if log is not None:
            found[where] = log
    return found


def with_ids(
    cluster: Cluster, offsets: Mapping[TopicPartition, int], logs: Mapping[TopicPartition, LogMark]
) -> dict[TopicPartition, LogMark]:
    """The logs of new positions, each at least with its topic's id."""
    return {where: logs.get(where) or LogMark(cluster.topic_id(where.topic)) for where in offsets}
