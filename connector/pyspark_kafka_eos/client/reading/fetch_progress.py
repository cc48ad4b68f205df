"""How far one range of offsets has been read, and what is known about its log.

Owns: a range's position, the time since its last progress, the last leader with a log known to be whole.
Does not know: requests and answers.
Invariants: the position never moves back and never passes the range's end.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from kafka_core.values import TopicPartition
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.reading.leader_epochs import KnownPart
from pyspark_kafka_eos.client.reading.offsets import LogMark

FIRST_WAIT_MS = 250
"""How long the broker may hold the first answer that has no bytes. A connection answers in order, so a longer
wait would delay its other requests. Where an empty answer shows that the broker needs more time, the next
request waits twice as long, on another connection."""


@dataclass(frozen=True)
class OffsetRange:
    """Offsets start <= offset < end of one partition. `log`: the log in which `end` was found
    (`Offsets.ends`), None where that is unknown; a reader then detects only changes during the read. Ranges
    of the same offsets are equal."""

    where: TopicPartition
    start: int
    end: int
    log: LogMark | None = field(default=None, compare=False)


@dataclass
class FetchProgress:
    """How far a range has been fetched.

    `boundary`: how far a reader may read, from the last answer. `topic_id`, `planned_epoch`: the log that the
    range was planned for, empty and -1 where unknown. `leader_epoch`: the newest leader under which the log
    was known to be the range's, -1 where none; `read_epoch`: the epoch of the last batch before `position`.
    `stalled_ms` is the time that requests have taken since the last progress, `empty` the number of answers
    without records since then. `replica`: the follower that the leader has named for this reader's rack, -1
    for the leader itself; `stays`: a follower was no help, so the rest is read from the leader (KIP-392).
    """

    range: OffsetRange
    position: int
    boundary: int = -1
    topic_id: str = ""
    planned_epoch: int = -1
    leader_epoch: int = -1
    read_epoch: int = -1
    stalled_ms: float = 0.0
    empty: int = 0
    wait_ms: int = FIRST_WAIT_MS
    last: str = "no answer"
    replica: int = -1
    stays: bool = False

    @classmethod
    def unread(cls, offsets: OffsetRange) -> FetchProgress:
        """A range before its first read."""
        log = offsets.log or LogMark()
        return cls(
            offsets,
            offsets.start,
            topic_id=log.topic_id,
            planned_epoch=log.leader_epoch,
            leader_epoch=log.leader_epoch,
        )

    @property
    def done(self) -> bool:
        """Whether the range has been read to its end."""
        return self.position >= self.range.end

    def advance(self, position: int, read_epoch: int) -> None:
        """Advance to `position`, at most to the range's end. `read_epoch`: of the batch before it, or -1."""
        if position > self.position:
            self.position = min(position, self.range.end)
            self.read_epoch = read_epoch
            self.stalled_ms, self.empty, self.wait_ms = 0.0, 0, FIRST_WAIT_MS

    # ---- followers

    def node(self, leader: int) -> int:
        """The broker to ask: the leader, or the follower that it has named; -1 while there is no leader."""
        return leader if leader < 0 or self.replica < 0 else self.replica

    def follow(self, replica: int, asked: int) -> bool:
        """Whether the leader `asked` names a follower, which is asked from now on. Followers name none."""
        if self.stays or self.replica >= 0 or replica < 0 or replica == asked:
            return False
        self.replica = replica
        return True

    def leave_follower(self, asked: int) -> bool:
        """Whether `asked` was a follower; the leader is asked from now on. Only the leader's word counts on
        what is gone, and on what may not be read."""
        if self.replica < 0 or self.replica != asked:
            return False
        self.replica, self.stays = -1, True
        return True

    # ---- the log's leaders

    def is_other_topic(self, cluster: Cluster) -> bool:
        """Whether the metadata contains another topic of this name than the range's."""
        present = cluster.topic_id(self.range.where.topic)
        return self.topic_id != "" and present not in ("", self.topic_id)

    def has_new_leader(self, cluster: Cluster) -> bool:
        """Whether the partition has a newer leader than the last trusted one."""
        return cluster.leader_epoch(self.range.where) > self.leader_epoch

    def trust(self, cluster: Cluster) -> None:
        """Accept the log of the present leader as that of the range, as far as can be determined."""
        self.leader_epoch = cluster.leader_epoch(self.range.where)
        self.topic_id = self.topic_id or cluster.topic_id(self.range.where.topic)

    def end_at(self, cut: int) -> None:
        """Read no further than `cut`, from which on an election put other records into the log, -1 where nobody knows.
        Their offsets are behind the cut for whoever plans the next range, so reading them here too would repeat them.
        """
        if cut >= 0:
            self.range = replace(self.range, end=min(self.range.end, max(self.position, cut)))
        # What was known was of the former log; its topic is the same one.
        self.planned_epoch, self.leader_epoch, self.read_epoch = -1, -1, -1

    def planned_part(self) -> KnownPart | None:
        """What was known about the log when the range was planned."""
        if self.planned_epoch < 0:
            return None
        return KnownPart(self.planned_epoch, self.range.end, read=False)

    def read_part(self) -> KnownPart | None:
        """What the records read so far prove about the log."""
        if self.read_epoch < 0:
            return None
        return KnownPart(self.read_epoch, self.position, read=True)

    def limit(self, committed: bool) -> str:
        """Why no more records arrive, judging by the last answer."""
        name = "last stable offset" if committed else "high watermark"
        if self.empty:
            return (
                f"; its {name} is {self.boundary}, so there are more records: the broker's remote "
                "store may be down or slow; if the topic is compacted and its last records are gone, "
                "the next record written to the partition ends the wait"
            )
        if 0 <= self.boundary < self.range.end:
            return f"; its {name} is {self.boundary}" + ", so a transaction is still open there" * committed
        return ""
