"""Records of offset ranges as Arrow batches, as a read_committed reader may see them.

Owns: when a range has been read to its end, and when it is lost.
Does not know: Spark, where ranges come from, which producer committed which records.
Invariants:
- Every visible record with start <= offset < end is returned exactly once, in the order of its partition.
- An offset without a visible record (marker, aborted, compacted away) is skipped and never waited for.
- At most one answer per leader is held besides the one that is being decoded.
- An answer without records never ends a range.

How a range ends: a batch at or behind its end proves it, because a broker returns a log in order. An empty
answer proves nothing, whatever its last stable offset: brokers return one for tiered topics whose store is
slower than their wait, under quotas, and while they find out how far a log reaches. Where compaction has
removed the last records before an open transaction, the first batch of that transaction is the proof; a
read_committed reader may request it too.

A range is read from the topic that it was planned for, by that topic's id (KIP-516): no leader has records of another
topic of the name for it, whatever metadata this process has kept. Where a Fetch cannot name ids (Kafka 3.0), the broker
that answered is asked for the id behind each answer.

After a change of leader, the new one is asked whether its log still holds what was planned and read
(`leader_epochs`).

A reader with a rack (KIP-392) asks the leader first, which may name a follower in that rack. A follower that
fails, refuses or has no records is left at once, and the leader is asked for the rest of the range. So a
follower that lags delays a range by one answer, and no follower's word makes a range lost.

"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from kafka_core import runtime
from kafka_core.errors import BrokerUnavailable, DataLoss, ExactlyOnceError, UnknownTopic
from kafka_core.inbox import Inbox
from kafka_core.protocol import messages as m
from kafka_core.protocol.error_codes import Action, Code, action_for, name_of
from kafka_core.values import DEFAULT_UNPACKED_BYTES, TopicPartition
from pyspark_kafka_eos.client import elsewhere
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.definite import Budget
from pyspark_kafka_eos.client.elsewhere import LOOK_AFTER_S
from pyspark_kafka_eos.client.every_broker import ask_every_broker
from pyspark_kafka_eos.client.net.network import Answer, Node, answers_within_ms
from pyspark_kafka_eos.client.reading import absence
from pyspark_kafka_eos.client.reading.fetch_progress import FIRST_WAIT_MS, FetchProgress, OffsetRange
from pyspark_kafka_eos.client.reading.fetched_columns import columns_of, record_schema
from pyspark_kafka_eos.client.reading.leader_epochs import KnownPart, ask_epochs, speaks_epochs
from pyspark_kafka_eos.client.reading.log_reader import (
    PATIENT_CONNECTION,
    FetchBuild,
    fetch_partition,
    first_batch,
    is_by_id,
    longer_wait,
)
from pyspark_kafka_eos.client.reading.offsets import (
    ISOLATION_LEVELS,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    LogMark,
    Offsets,
    refusal,
)
from pyspark_kafka_eos.records import Batch, see

FETCH_BYTES = 8 * 1024 * 1024
"""Requested at once, over all leaders. Two such answers and 16 MB of columns are small in a worker of 512 MB;
with half, the pauses between requests begin to show, double gains nothing."""

_SMALLEST_FETCH_BYTES = 1024 * 1024
"""A topic's default max.message.bytes: less than a batch per request would cost a round trip for each."""

_RETRY_MS = 50
"""Pause after an answer that contained only errors."""

_UNKNOWN_TOPIC_PATIENCE_MS = 10_000
"""A broker that restarts lacks its topics for a moment. Half is a busy broker's worst case, double looks like
a stuck query."""

__all__ = ["FETCH_BYTES", "Fetcher", "OffsetRange", "record_schema"]

_log = logging.getLogger(__name__)


@dataclass
class _Asked:
    """One request in flight; the loop's thread sets the answer. `leader`: the broker asked, which leads the
    partitions or is a follower that their leader has named. `epochs`: the leader epochs it is for."""

    leader: int
    epochs: dict[TopicPartition, int]
    wait_ms: int
    request: FetchBuild
    sent: float = field(default_factory=runtime.monotonic)
    took_ms: float = 0.0
    answer: Answer = None
    given_up: bool = False


_Ranges = dict[TopicPartition, FetchProgress]


class Fetcher:
    """Reads offset ranges of one cluster. Stateless between calls of `read`.

    `fail_on_data_loss` as Spark's option of that name: offsets of a range that the broker no longer has raise DataLoss,
    or are skipped with a warning. `rack`: where this process runs; leaders may send it to a follower there.
    `stall_timeout_ms` bounds the time without any progress on a range (the settings' delivery timeout where None).
    """

    def __init__(
        self,
        cluster: Cluster,
        isolation: str = READ_COMMITTED,
        *,
        include_headers: bool = False,
        fail_on_data_loss: bool = True,
        fetch_bytes: int = FETCH_BYTES,
        stall_timeout_ms: int | None = None,
        rack: str = "",
        max_unpacked_bytes: int = DEFAULT_UNPACKED_BYTES,
    ) -> None:
        self.cluster = cluster
        self.isolation = isolation
        self.include_headers = include_headers
        self.fail_on_data_loss = fail_on_data_loss
        self.fetch_bytes = fetch_bytes
        self.stall_timeout_ms = stall_timeout_ms or cluster.settings.delivery_timeout_ms
        self.rack = rack
        self.max_unpacked_bytes = max_unpacked_bytes
        self.schema = record_schema(include_headers)
        self._level = ISOLATION_LEVELS[isolation]

    def read_ranges(self, ranges: Iterable[OffsetRange]) -> Iterator[pa.RecordBatch]:
        """The visible records of the ranges as batches of `schema`, each batch of one partition; ends when every range
        has been read.

        At most one range per partition. Raises DataLoss where offsets are gone, UnknownTopic where a topic is gone,
        BatchTooLarge where one takes more than `max_unpacked_bytes`, BrokerUnavailable where no records arrived for the
        stall timeout (the message says how far the partition can be read). Batches yielded before an error stay valid.
        """
        progress = {each.where: FetchProgress.unread(each) for each in ranges if each.start < each.end}
        inbox: Inbox[_Asked] = Inbox()
        asked: dict[int, _Asked] = {}
        self._find_leaders(progress, set())
        self._ask(progress, asked, inbox)
        while progress:
            one = self._next_answer(inbox, asked)
            del asked[one.leader]
            visible = self._advance(one, progress)
            for where in [where for where, each in progress.items() if each.done]:
                del progress[where]
            # The next answer travels while this one is decoded.
            self._ask(progress, asked, inbox)
            for offsets, batches in visible:
                yield from columns_of(offsets, batches, self.schema, self.max_unpacked_bytes)

    def _next_answer(self, inbox: Inbox[_Asked], asked: Mapping[int, _Asked]) -> _Asked:
        """The next request that is answered, or that is given up because another broker leads its partitions now."""
        waiting = list(asked.values())
        groups, leaders = [list(each.epochs) for each in waiting], [each.leader for each in waiting]
        watched = elsewhere.at_leaders(self.cluster, groups, leaders)
        budget = Budget(answers_within_ms(self.cluster.settings))
        while budget.left_ms > 0:
            found = inbox.get(LOOK_AFTER_S)
            if found is not None:
                if found.given_up:
                    continue
                return found
            for index, why in watched(range(len(waiting))).items():
                one = waiting[index]
                one.given_up, one.answer = True, why
                one.took_ms = (runtime.monotonic() - one.sent) * 1000
                return one
        raise BrokerUnavailable(
            f"a fetch neither got an answer nor timed out within {budget.total_ms:.0f} ms; "
            "nothing is concluded from this",
            {"timeout_ms": budget.total_ms},
        )

    # ---- asking

    def _ask(self, progress: _Ranges, asked: dict[int, _Asked], inbox: Inbox[_Asked]) -> None:
        while progress:
            held = self._held_back(progress)
            by_leader: dict[int, list[TopicPartition]] = {}
            for where in progress:
                leader = -1 if where in held else progress[where].node(self.cluster.leader(where))
                by_leader.setdefault(leader, []).append(where)
            leaderless = by_leader.pop(-1, [])
            share = max(self.fetch_bytes // max(1, len(by_leader)), min(_SMALLEST_FETCH_BYTES, self.fetch_bytes))
            for leader, group in by_leader.items():
                if leader not in asked:
                    asked[leader] = self._send_fetch(leader, [progress[where] for where in group], share, inbox)
            if asked or not progress:
                return
            for where in leaderless:
                self._stall(progress[where], _RETRY_MS, held.get(where, "no leader"))
            self.cluster.pause(_RETRY_MS)
            self._find_leaders(progress, {where.topic for where in leaderless})

    def _send_fetch(self, leader: int, wanted: Sequence[FetchProgress], share: int, inbox: Inbox[_Asked]) -> _Asked:
        wait_ms = max(each.wait_ms for each in wanted)
        request = self._request(wanted, share, wait_ms)
        one = _Asked(leader, {each.range.where: self._epoch(each) for each in wanted}, wait_ms, request)
        network = self.cluster.network
        node: Node = leader if wait_ms <= FIRST_WAIT_MS else network.named(leader, PATIENT_CONNECTION)

        def done(answer: Answer) -> None:
            if not one.given_up:
                one.took_ms = (runtime.monotonic() - one.sent) * 1000
                one.answer = answer
                inbox.bring(one)

        network.on_loop(lambda: network.send_on_loop(node, request, done))
        return one

    def _epoch(self, each: FetchProgress) -> int:
        # Stale metadata may name an older leader than the range was planned with: the newer counts.
        return max(self.cluster.leader_epoch(each.range.where), each.leader_epoch)

    def _request(self, wanted: Sequence[FetchProgress], max_bytes: int, wait_ms: int) -> FetchBuild:
        return FetchBuild.of(
            [
                (
                    each.range.where,
                    each.topic_id,
                    fetch_partition(each.range.where.partition, each.position, self._epoch(each), max_bytes),
                )
                for each in wanted
            ],
            max_bytes=max_bytes,
            isolation=self._level,
            max_wait_ms=wait_ms,
            rack="" if any(each.stays for each in wanted) else self.rack,
        )

    # ---- taking answers

    def _advance(self, one: _Asked, progress: _Ranges) -> list[tuple[OffsetRange, list[Batch]]]:
        """Advance the ranges as far as an answer reaches; returns its visible batches."""
        asked = [where for where in one.epochs if where in progress and self._is_of(one, progress[where])]
        response, reason = self._response(one.answer)
        if response is not None and not is_by_id(response):
            self._ask_ids(one.leader, [progress[where] for where in asked])
            asked = [where for where in asked if self._is_of(one, progress[where])]
        if response is None:
            for where in asked:
                progress[where].leave_follower(one.leader)
                self._stall(progress[where], one.took_ms + _RETRY_MS, reason)
            self.cluster.pause(_RETRY_MS)
            self._find_leaders(progress, {where.topic for where in asked})
            return []
        visible: list[tuple[OffsetRange, list[Batch]]] = []
        stale: set[str] = set()
        older: set[str] = set()
        sent_on: list[TopicPartition] = []
        answered = dict(one.request.parts(response))
        before = {where: progress[where].position for where in asked}
        for where in asked:
            each = progress[where]
            data = answered.get(where)
            if data is None:  # a throttled broker answers without partitions (KIP-219)
                each.last = "the broker throttles this client"
                continue
            action = action_for(m.FetchRequest.API_KEY, data.error_code)
            if action is not Action.DONE and each.leave_follower(one.leader):
                each.last = f"{name_of(data.error_code)} from a follower"
                continue
            if action is Action.DONE:
                if each.follow(data.preferred_read_replica, one.leader) and not data.records:
                    sent_on.append(where)
                    continue
                batches = self._see(each, data)
                if batches:
                    visible.append((OffsetRange(where, before[where], each.range.end), batches))
                continue
            each.last = name_of(data.error_code)
            if data.error_code == Code.OFFSET_OUT_OF_RANGE:
                self._out_of_range(each)
            elif action is Action.REDISCOVER:
                stale.add(where.topic)
                if data.error_code == Code.UNKNOWN_LEADER_EPOCH:
                    older.add(where.topic)
            elif action is not Action.RETRY:
                raise refusal(m.FetchRequest, data.error_code, str(where), "READ on the topic")
        asked = [where for where in asked if where not in sent_on]
        moved = [where for where in asked if progress[where].position > before[where]]
        for where in asked:
            if where not in moved:
                progress[where].leave_follower(one.leader)
        self._pace(one, asked, moved, progress, response.throttle_time_ms)
        if older:  # It may be cut off, and would name itself as the leader.
            ask_every_broker(self.cluster, older)
        if stale:
            self._find_leaders(progress, stale)
        return visible

    def _is_of(self, one: _Asked, each: FetchProgress) -> bool:
        """Whether an answer is from the leader trusted now: it may have changed during the request."""
        return one.epochs[each.range.where] == self._epoch(each) and not each.is_other_topic(self.cluster)

    def _ask_ids(self, node: int, ranges: Iterable[FetchProgress]) -> None:
        """Take the topics' ids as the broker has them that has just answered: an id that is unchanged behind an answer
        was the same when it was given. A topic that the answer lacks is found missing by the next request.
        """
        names = {each.range.where.topic for each in ranges if each.topic_id}
        if names:
            with suppress(UnknownTopic):
                self.cluster.take_metadata(self.cluster.call(node, self.cluster.metadata_request(sorted(names))))

    @staticmethod
    def _response(answer: Answer) -> tuple[m.Message, str]:
        """The response, or None and why it covers no partition; raises where a retry is not allowed."""
        if isinstance(answer, BrokerUnavailable):
            return None, str(answer)
        if isinstance(answer, ExactlyOnceError):
            raise answer
        action = action_for(m.FetchRequest.API_KEY, answer.error_code)
        if action is Action.DONE:
            return answer, ""
        if action in (Action.RETRY, Action.REDISCOVER):
            return None, name_of(answer.error_code)
        raise refusal(m.FetchRequest, answer.error_code, "a leader's partitions", "READ on the topics")

    def _see(self, each: FetchProgress, data: Any) -> list[Batch]:
        """Process a partition's part of an answer; returns its visible batches."""
        each.boundary = data.last_stable_offset if self._level else data.high_watermark
        aborted = [(entry.first_offset, entry.producer_id) for entry in data.aborted_transactions or ()]
        seen = see(data.records or b"", each.position, each.range.end, aborted, committed=bool(self._level))
        if seen.position > each.position:
            each.advance(seen.position, seen.leader_epoch)
        elif each.boundary > each.position:
            each.last = "answers without records"
            self._is_empty(each)
        else:
            each.last = "no records"
        return seen.batches

    def _is_empty(self, each: FetchProgress) -> None:
        """Handle an empty answer where there should be records: wait longer the next time, and check whether
        compaction has removed everything before an open transaction, beyond which this reader may not
        read."""
        if each.empty and self._level and each.boundary >= each.range.end:
            try:
                first = first_batch(self.cluster, each.range.where, each.position, _RETRY_MS, each.topic_id)
            except (BrokerUnavailable, UnknownTopic) as error:
                _log.debug("%s: no proof: %s", each.range.where, error)
                first = None
            if first is not None and first.base_offset >= each.range.end:
                each.advance(each.range.end, -1)
        each.empty += 1
        each.wait_ms = longer_wait(self.cluster, each.wait_ms)

    def _pace(
        self,
        one: _Asked,
        asked: list[TopicPartition],
        moved: list[TopicPartition],
        progress: _Ranges,
        throttle_ms: int,
    ) -> None:
        """Count the time without progress, and pause before the same request is repeated."""
        # The room in an answer goes to the first partitions with records: those before them lost none of it
        # to others.
        first = asked.index(moved[0]) if moved else len(asked)
        for where in asked[:first]:
            self._stall(progress[where], one.took_ms + _RETRY_MS, progress[where].last)
        # Partitions that got nothing come first in the next request.
        for where in moved:
            progress[where] = progress.pop(where)
        if asked and not moved and one.took_ms < one.wait_ms:
            # The connection itself obeys the whole throttle; a range must not outwait its stall timeout here.
            self.cluster.pause(min(max(_RETRY_MS, throttle_ms), self.stall_timeout_ms))

    # ---- what can go wrong

    def _stall(self, each: FetchProgress, took_ms: float, last: str) -> None:
        each.stalled_ms += took_ms
        each.last = last
        if each.stalled_ms < self.stall_timeout_ms:
            return
        raise BrokerUnavailable(
            f"{each.range.where} returned no records from offset {each.position} for "
            f"{self.stall_timeout_ms} ms (last: {each.last}){each.limit(bool(self._level))}; "
            "nothing was skipped",
            {"partition": str(each.range.where), "offset": each.position, "end": each.range.end},
        )

    def _out_of_range(self, each: FetchProgress) -> None:
        where = each.range.where
        offsets = Offsets(self.cluster)
        try:
            first = offsets.earliest([where])[where]
            # The leader that said so may be older than the one under which the range was planned or read.
            known = {where: LogMark(each.topic_id, max(each.planned_epoch, each.leader_epoch, each.read_epoch))}
            end = offsets.ends([where], READ_UNCOMMITTED, known=known)[where].offset
        except UnknownTopic as error:
            each.last = error.message
            return  # `_find_leaders` decides whether it is gone for good
        if each.position < first:
            lost, go_on = f"offsets {each.position} to {min(first, each.range.end) - 1} are deleted", first
        elif each.position > end:
            lost, go_on = f"the partition ends at {end}: it was recreated or truncated", each.range.end
        else:
            return  # the log changed in between: retry
        self._lose(where, lost, {"position": each.position, "earliest": first, "latest": end})
        each.advance(go_on, -1)

    def _held_back(self, progress: _Ranges) -> dict[TopicPartition, str]:
        """Ranges whose new leader has not confirmed yet that its log is the one that was planned and read,
        with the reason; DataLoss where it is another one."""
        held = {
            where: "the topic has another id than when the range was planned"
            for where, each in progress.items()
            if each.is_other_topic(self.cluster)
        }
        changed = [each for each in progress.values() if each.range.where not in held]
        changed = [each for each in changed if each.has_new_leader(self.cluster)]
        if changed and speaks_epochs(self.cluster):
            for part_of in (FetchProgress.planned_part, FetchProgress.read_part):
                parts = {each.range.where: part for each in changed if (part := part_of(each)) is not None}
                found = ask_epochs(self.cluster, parts)
                held |= found.unsettled
                for where, cut in found.cut.items():
                    self._cut(progress[where], parts[where], cut)
        for each in changed:
            if each.done:  # cut where it had come to
                del progress[each.range.where]
            elif each.range.where not in held:
                each.trust(self.cluster)
        return held

    def _cut(self, each: FetchProgress, part: KnownPart, cut: int) -> None:
        since = f"from offset {cut} on" if cut >= 0 else "its leader does not report the offset"
        self._lose(
            each.range.where,
            f"records of leader epoch {part.leader_epoch}, up to offset {part.end}, are no longer in the log ({since}): an "
            "unclean election removed them, or the topic was recreated",
            {"position": each.position, "epoch": part.leader_epoch, "cut": cut},
        )
        each.end_at(cut)

    def _lose(self, where: TopicPartition, lost: str, facts: Mapping[str, int | str]) -> None:
        """Raise DataLoss, or warn and return where the user allows it."""
        if self.fail_on_data_loss:
            raise DataLoss(
                f"{where}: {lost}, and this batch has to read them; nothing was skipped; restore them, or set "
                "failOnDataLoss=false to continue without them",
                {"partition": str(where), **facts},
            )
        _log.warning("%s: %s; the query continues without them (failOnDataLoss=false)", where, lost)

    def _find_leaders(self, progress: _Ranges, stale: set[str]) -> None:
        """Refresh these topics and those without a leader; a range whose partition is gone is lost data."""
        names = {where.topic for where in progress}
        unseen = {where.topic for where in progress if self.cluster.leader(where) < 0}
        for name in sorted(names & (stale | unseen)):
            mine = [where for where in progress if where.topic == name]
            there: set[TopicPartition] = set()
            try:
                there.update(
                    Offsets(self.cluster).partitions_of([name], patience_ms=_UNKNOWN_TOPIC_PATIENCE_MS, expected=mine)
                )
            except UnknownTopic:
                if self.fail_on_data_loss:
                    raise
            for where in mine:
                if where not in there:
                    self._lose(where, "the partition is gone", {"position": progress[where].position})
                    del progress[where]
            self._drop_recreated(progress, [where for where in mine if where in progress])

    def _drop_recreated(self, progress: _Ranges, places: Iterable[TopicPartition]) -> None:
        """Ranges whose topic was recreated are lost: no offset of one topic is one of another. Most of the brokers have
        to say so, as a broker that lags, or was cut off, gives an older id.
        """
        doubted = {
            where: LogMark(progress[where].topic_id) for where in places if progress[where].is_other_topic(self.cluster)
        }
        there = absence.existing(self.cluster, doubted)
        for where in sorted(doubted.keys() - there):
            each, now = progress[where], self.cluster.topic_id(where.topic)
            self._lose(
                where,
                f"the topic was recreated: offsets {each.position} to {each.range.end - 1} are of the topic with the id "
                f"{each.topic_id}, and {where.topic} has the id {now} now",
                {"position": each.position, "topic_id": each.topic_id, "found": now},
            )
            del progress[where]
