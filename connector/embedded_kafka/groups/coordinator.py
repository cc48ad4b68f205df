"""The group coordinator: members of both protocols join and leave; offsets are committed, fetched and expire.

Owns: the groups and offsets of all partitions of `__consumer_offsets`, and the records written there.
Does not know: requests and answers on the wire, authorization, which topics exist, what a transaction is
beyond the marker that ends it.
Invariants:
- A change is in the log before any answer or view contains it.
- The loaded state equals the live state before the restart.
- A group's records and its offsets' records are in one partition, so one marker there ends a
  transaction for all of them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence

from embedded_kafka.clock import Clock
from embedded_kafka.groups.codes import code_of
from embedded_kafka.groups.consumers import ConsumerGroups, Existing
from embedded_kafka.groups.expiry import overdue
from embedded_kafka.groups.group_configs import GroupConfigs
from embedded_kafka.groups.journal import Journal
from embedded_kafka.groups.machine.consumer_events import AnswerBeat, Beat, Catalogue, Depart, ReadOffsets
from embedded_kafka.groups.machine.consumer_value import Consumer, ConsumerGroup, ConsumerGroupState, ConsumerLimits
from embedded_kafka.groups.machine.embedded_protocol import CONSUMER
from embedded_kafka.groups.machine.moves import (
    AnswerJoin,
    AnswerSync,
    CommitOffsets,
    Delete,
    Group,
    GroupRefusal,
    GroupState,
    Heartbeat,
    Join,
    Leave,
    Limits,
    Loaded,
    Sync,
)
from embedded_kafka.groups.memberships import Memberships
from embedded_kafka.groups.offsets import NEVER, CommittedOffset, FetchedOffset, NewOffset
from embedded_kafka.groups.ports import GroupLogs
from embedded_kafka.groups.record_bytes import MAX_TEXT_BYTES
from embedded_kafka.groups.subscriptions import subscribed_topics
from embedded_kafka.refusals import Refused
from embedded_kafka.settings.config import BrokerConfig
from kafka_core.protocol.error_codes import Code
from kafka_core.values import NO_EPOCH, NO_PRODUCER_ID, TopicPartition

log = logging.getLogger(__name__)

AnyGroup = Group | ConsumerGroup

EXPIRY_CHECK_INTERVAL_MS = 600_000
"""offsets.retention.check.interval.ms. The check removes empty groups without offsets. At a
tenth, a client that has just received its member id could find its group gone; at ten times,
tools would list unused groups."""

_LAST_MS = 2**63 - 1
"""The latest time that the log of the offsets can hold."""


class GroupCoordinator:
    """The groups of the partitions of `__consumer_offsets` that the broker leads.

    `new_member_id` makes an unused id from a client id or an instance id.
    """

    def __init__(
        self,
        *,
        config: BrokerConfig,
        configs: GroupConfigs,
        clock: Clock,
        logs: GroupLogs,
        new_member_id: Callable[[str], str],
    ) -> None:
        self._config = config
        self._clock = clock
        self._logs = logs
        self._new_member_id = new_member_id
        self._journal = Journal(logs, config.offsets_topic_partitions)
        self._groups = Memberships(
            Limits(config.group_max_size, config.group_initial_rebalance_delay_ms),
            lambda group: self._journal.write_group(group, clock.now_ms()),
        )
        self._consumers = ConsumerGroups(
            ConsumerLimits(
                config.group_consumer_max_size,
                config.group_consumer_session_timeout_ms,
                config.group_consumer_heartbeat_interval_ms,
                tuple(config.group_consumer_assignors.split(",")),
                may_upgrade=config.group_consumer_migration_policy in ("bidirectional", "upgrade"),
                may_downgrade=config.group_consumer_migration_policy in ("bidirectional", "downgrade"),
            ),
            configs,
            lambda group_id, records: self._journal.write_records(group_id, records, clock.now_ms()),
            self._groups,
        )
        self._closed = False
        self._expiry_due_ms = clock.now_ms() + EXPIRY_CHECK_INTERVAL_MS

    def partition_for(self, group_id: str) -> int:
        """The partition of `__consumer_offsets` that holds the group."""
        return self._journal.partition_for(group_id)

    def check_here(self, group_id: str) -> None:
        """Refused(NOT_COORDINATOR) where another broker has the group, or its records are damaged."""
        self._journal.check(group_id)

    # ---- start and stop

    def load(self) -> None:
        """Load groups, offsets and open transactions. CorruptBatch or UnsupportedVersion for an unreadable record."""
        self._load(None)

    def take_over(self, partition: int) -> None:
        """Coordinate the groups of a partition, from what is in its log. Errors as of `load`."""
        self._load(partition)

    def resign(self, partition: int) -> None:
        """Coordinate the groups of a partition no longer: answer their waiting requests with NOT_COORDINATOR."""
        mine = [each.group_id for each in self._consumers if self.partition_for(each.group_id) == partition]
        for group_id in mine:
            self._consumers.drop(group_id)
        self._groups.close(lambda group_id: self.partition_for(group_id) == partition)
        self._journal.drop_partition(partition)

    def _load(self, only: int | None) -> None:
        now_ms = self._clock.now_ms()
        for group in self._journal.load(self._groups.limits, self._consumers.limits, only):
            if isinstance(group, ConsumerGroup):
                self._consumers.restore(group, now_ms)
            else:
                self._groups.keep(group)
                self._groups.apply(group, Loaded(now_ms))

    def tick(self, at_most: int | None = None) -> None:
        """Expire overdue members, in `at_most` groups (None: all); at longer intervals also overdue offsets."""
        now_ms = self._clock.now_ms()
        self._groups.tick(now_ms, at_most)
        self._consumers.tick(now_ms, at_most)
        if now_ms >= self._expiry_due_ms:
            self._expiry_due_ms = now_ms + EXPIRY_CHECK_INTERVAL_MS
            for group in self._all():
                self._expire(group, now_ms)

    async def close(self) -> None:
        """Answer every waiting request with NOT_COORDINATOR; further ones are refused."""
        self._closed = True
        self._groups.close()
        self._consumers.close()

    def on_marker(self, partition: int, producer_id: int, commit: bool) -> None:
        """The partition's log has a marker: the producer's offsets there become visible, or are dropped."""
        self._journal.end_transaction(partition, producer_id, commit=commit)

    # ---- members

    async def join(
        self,
        group_id: str,
        *,
        member_id: str,
        instance_id: str | None,
        client_id: str,
        client_host: str,
        session_timeout_ms: int,
        rebalance_timeout_ms: int,
        protocol_type: str,
        protocols: Sequence[tuple[str, bytes]],
        require_known_member_id: bool = True,
        skips_assignment: bool = True,
        existing: Existing = lambda _names, _expression: Catalogue(),
    ) -> AnswerJoin:
        """Wait until the next generation is known. The answer contains a refusal together with its member id.
        `existing`: of the topics that a group with members of both protocols subscribes to."""
        self._check(group_id)
        low, high = self._config.group_min_session_timeout_ms, self._config.group_max_session_timeout_ms
        if not low <= session_timeout_ms <= high:
            raise Refused(
                Code.INVALID_SESSION_TIMEOUT,
                f"the session timeout of {session_timeout_ms} ms is not within {low} and {high} ms",
            )
        event = Join(
            self._clock.now_ms(),
            self._groups.ticket(),
            member_id,
            self._new_member_id(instance_id if instance_id is not None else client_id),
            instance_id,
            client_id,
            client_host,
            session_timeout_ms,
            rebalance_timeout_ms,
            protocol_type,
            tuple(protocols),
            require_known_member_id,
            skips_assignment,
        )
        consumers = self._consumers.get(group_id)
        if consumers is not None and consumers.members:
            return self._consumers.admit(consumers, event, existing)
        if not member_id:
            self._consumers.give_way(group_id)
        group = self._groups.get_or_new(group_id) if not member_id else self._groups.get(group_id)
        if group is None:
            raise Refused(Code.UNKNOWN_MEMBER_ID, f"there is no group {group_id}")
        return await self._groups.join(group, event)

    async def sync(
        self,
        group_id: str,
        *,
        generation: int,
        member_id: str,
        instance_id: str | None = None,
        protocol_type: str | None = None,
        protocol_name: str | None = None,
        assignments: Sequence[tuple[str, bytes]] = (),
    ) -> AnswerSync:
        """Wait for the leader's assignment, or submit it."""
        event = Sync(
            self._clock.now_ms(),
            self._groups.ticket(),
            generation,
            member_id,
            instance_id,
            protocol_type,
            protocol_name,
            tuple(assignments),
        )
        self._check(group_id)
        consumers = self._consumers.get(group_id)
        if consumers is not None:
            return self._consumers.sync(consumers, event)
        return await self._groups.sync(self._known_to_member(group_id), event)

    async def heartbeat(
        self, group_id: str, *, generation: int, member_id: str, instance_id: str | None = None
    ) -> Code:
        """Keep the member's session alive."""
        event = Heartbeat(self._clock.now_ms(), generation, member_id, instance_id)
        self._check(group_id)
        consumers = self._consumers.get(group_id)
        if consumers is not None:
            return code_of(self._consumers.alive(consumers, event))
        return code_of(self._groups.ask(self._known_to_member(group_id), event))

    async def leave(self, group_id: str, members: Sequence[tuple[str, str | None]]) -> list[Code]:
        """Remove members (member id, instance id); returns the code for each."""
        self._check(group_id)
        consumers = self._consumers.get(group_id)
        if consumers is not None:
            return self._consumers.expel(consumers, members, self._clock.now_ms())
        group = self._groups.get(group_id)
        if group is None:
            return [Code.UNKNOWN_MEMBER_ID] * len(members)
        refusals = self._groups.leave(group, Leave(self._clock.now_ms(), tuple(members)))
        return [code_of(refusal) for refusal in refusals]

    async def consumer_heartbeat(self, group_id: str, event: Beat | Depart, existing: Existing) -> AnswerBeat:
        """A member of the consumer protocol joins, goes on or leaves (KIP-848). Refused, with nothing changed."""
        self._check(group_id)
        return self._consumers.heard(group_id, event, existing)

    # ---- groups

    async def describe(self, group_id: str) -> AnyGroup | None:
        """The group's present state, of either protocol; None where it does not exist."""
        self._check(group_id, empty_allowed=True)
        return self._consumers.get(group_id) or self._groups.get(group_id)

    async def list(self) -> Sequence[AnyGroup]:
        """Every group."""
        self._check("", empty_allowed=True)
        return self._all()

    async def delete_group(self, group_id: str) -> None:
        """Remove an empty group and its offsets. Refused(GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP)."""
        self._check(group_id, empty_allowed=True)
        group = self._known(group_id)
        now_ms = self._clock.now_ms()
        if isinstance(group, ConsumerGroup):
            refusal = None if group.state is ConsumerGroupState.EMPTY else GroupRefusal.NON_EMPTY_GROUP
        else:
            refusal = self._groups.consider(group, Delete(now_ms))
        if refusal is not None:
            raise Refused(code_of(refusal), refusal.value)
        where = self._journal.offsets_of(group_id).partitions(group_id)
        self._journal.forget(group, where, with_group=True, now_ms=now_ms)
        self._drop(group)

    # ---- offsets

    async def commit_offsets(
        self,
        group_id: str,
        offsets: Sequence[NewOffset],
        *,
        generation: int = -1,
        member_id: str = "",
        instance_id: str | None = None,
        retention_ms: int = -1,
        knows_epochs: bool = True,
    ) -> dict[TopicPartition, Code]:
        """Commit for a member of this generation, or without a member into an empty group. Refused where no
        offset may be committed; GROUP_ID_NOT_FOUND where a member names a group that does not exist;
        UNSUPPORTED_VERSION where a member of the consumer protocol uses a request that `knows_epochs` not."""
        group = self._group_to_commit(group_id, generation)
        now_ms = self._clock.now_ms()
        member = group.members.get(member_id)
        if isinstance(member, Consumer) and member.classic is None and not knows_epochs:
            raise Refused(Code.UNSUPPORTED_VERSION, "members of the consumer protocol commit with OffsetCommit 9")
        self._may_commit(group, CommitOffsets(now_ms, generation, member_id, instance_id), offsets)
        # The log has 64 bits for the end of the retention, which is added to a time of now.
        expire_ms = NEVER if retention_ms == -1 else min(now_ms + retention_ms, _LAST_MS)
        return self._commit(group, offsets, expire_ms, now_ms)

    async def txn_commit_offsets(
        self,
        group_id: str,
        offsets: Sequence[NewOffset],
        *,
        producer_id: int,
        producer_epoch: int,
        generation: int = -1,
        member_id: str = "",
        instance_id: str | None = None,
    ) -> dict[TopicPartition, Code]:
        """Commit within the producer's transaction: the offsets stay invisible until its marker. A
        named member must be in this generation (KIP-447). The partition must have been added to
        the transaction before."""
        group = self._group_to_commit(group_id, generation)
        now_ms = self._clock.now_ms()
        self._may_commit(group, CommitOffsets(now_ms, generation, member_id, instance_id, True), offsets)
        return self._commit(group, offsets, NEVER, now_ms, producer_id, producer_epoch)

    async def fetch_offsets(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition] | None,
        *,
        require_stable: bool = False,
        member_id: str | None = None,
        member_epoch: int = -1,
    ) -> dict[TopicPartition, FetchedOffset]:
        """Committed offsets of these partitions; None: of all partitions that have one. Refused where a named member
        of the consumer protocol is none, or not of this epoch."""
        self._check(group_id, empty_allowed=True)
        group = self._consumers.get(group_id)
        if group is not None:
            refusal = self._consumers.consider(group, ReadOffsets(member_id, member_epoch))
            if refusal is not None:
                raise Refused(code_of(refusal), refusal.value)
        offsets = self._journal.offsets_of(group_id)
        asked = list(offsets.of(group_id)) if partitions is None else partitions
        return {where: offsets.fetch(group_id, where, require_stable=require_stable) for where in asked}

    async def delete_offsets(self, group_id: str, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, Code]:
        """Remove offsets of partitions that no member consumes.
        Refused(GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP)."""
        self._check(group_id)
        group = self._known(group_id)
        if isinstance(group, ConsumerGroup):
            topics: frozenset[str] | None = group.wanted
        else:
            topics = frozenset() if group.state is GroupState.EMPTY else subscribed_topics(group)
            if group.state is not GroupState.EMPTY and group.protocol_type != CONSUMER:
                raise Refused(Code.NON_EMPTY_GROUP, GroupRefusal.NON_EMPTY_GROUP.value)
        codes = {
            where: Code.GROUP_SUBSCRIBED_TO_TOPIC if topics is None or where.topic in topics else Code.NONE
            for where in partitions
        }
        known = self._journal.offsets_of(group_id).partitions(group_id)
        gone = [where for where in known if codes.get(where) is Code.NONE]
        self._journal.forget(group, gone, with_group=False, now_ms=self._clock.now_ms())
        return codes

    def on_partitions_deleted(self, partitions: Iterable[TopicPartition]) -> None:
        """The partitions were deleted: remove every group's offsets of them."""
        gone = set(partitions)
        for group in self._all():
            known = self._journal.offsets_of(group.group_id).partitions(group.group_id)
            mine = [where for where in known if where in gone]
            self._forgotten(group, mine, with_group=False, now_ms=self._clock.now_ms())

    # ---- inside

    def _check(self, group_id: str, *, empty_allowed: bool = False) -> None:
        # Kafka accepts the empty id where clients once committed and fetched without a group.
        if (not group_id and not empty_allowed) or len(group_id.encode()) > MAX_TEXT_BYTES:
            raise Refused(Code.INVALID_GROUP_ID, f"{group_id[:100]!r} is not a valid group id")
        if self._closed:
            raise Refused(Code.COORDINATOR_NOT_AVAILABLE, "the broker is stopping")
        self._journal.check(group_id)
        # A session ends at its deadline, not at the next sweep: a request after it must see the group
        # without that member.
        self._groups.catch_up(group_id, self._clock.now_ms())
        self._consumers.catch_up(group_id, self._clock.now_ms())

    def _all(self) -> Sequence[AnyGroup]:
        return [*self._groups, *self._consumers]

    def _drop(self, group: AnyGroup) -> None:
        if isinstance(group, ConsumerGroup):
            self._consumers.drop(group.group_id)
        else:
            self._groups.forget(group.group_id)

    def _known_to_member(self, group_id: str) -> Group:
        group = self._groups.get(group_id)
        if group is None:
            raise Refused(Code.UNKNOWN_MEMBER_ID, f"there is no group {group_id}")
        return group

    def _known(self, group_id: str) -> AnyGroup:
        group = self._consumers.get(group_id) or self._groups.get(group_id)
        if group is None:
            raise Refused(Code.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        return group

    def _group_to_commit(self, group_id: str, generation: int) -> AnyGroup:
        self._check(group_id, empty_allowed=True)
        if generation < 0 and self._consumers.get(group_id) is None:
            return self._groups.get_or_new(group_id)
        return self._known(group_id)

    def _may_commit(self, group: AnyGroup, event: CommitOffsets, offsets: Sequence[NewOffset]) -> None:
        if isinstance(group, ConsumerGroup):
            refusal = self._consumers.may_write(group, event, [offset.where for offset in offsets])
        else:
            refusal = self._groups.ask(group, event)
        if refusal is not None:
            raise Refused(code_of(refusal), refusal.value)

    def _commit(
        self,
        group: AnyGroup,
        offsets: Sequence[NewOffset],
        expire_ms: int,
        now_ms: int,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_EPOCH,
    ) -> dict[TopicPartition, Code]:
        limit = self._config.offset_metadata_max_bytes
        codes = {}
        accepted = []
        for new in offsets:
            # Kafka counts UTF-16 units, despite the setting's name.
            fits = len(new.metadata.encode("utf-16-be", "surrogatepass")) // 2 <= limit
            codes[new.where] = Code.NONE if fits else Code.OFFSET_METADATA_TOO_LARGE
            if fits:
                accepted.append(
                    (
                        new.where,
                        CommittedOffset(new.offset, new.leader_epoch, new.metadata, now_ms, expire_ms),
                    )
                )
        if accepted:
            if isinstance(group, Group):
                self._groups.keep(self._groups.get_or_new(group.group_id))
            self._journal.commit(
                group.group_id,
                accepted,
                now_ms=now_ms,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
            )
        return codes

    def _expire(self, group: AnyGroup, now_ms: int) -> None:
        group_id = group.group_id
        offsets = self._journal.offsets_of(group_id)
        due = overdue(group, offsets.of(group_id), retention_ms=self._config.offsets_retention_ms, now_ms=now_ms)
        # Offsets that an open transaction may replace stay: otherwise its abort would leave none.
        due = [where for where in due if not offsets.unstable(group_id, where)]
        unused = (
            group.state in (GroupState.EMPTY, ConsumerGroupState.EMPTY)
            and not (isinstance(group, Group) and group.pending)
            and not offsets.in_transaction(group_id)
            and len(due) == len(offsets.of(group_id))
        )
        if self._forgotten(group, due, with_group=unused, now_ms=now_ms) and unused:
            self._drop(group)

    def _forgotten(
        self, group: AnyGroup, partitions: Sequence[TopicPartition], *, with_group: bool, now_ms: int
    ) -> bool:
        try:
            self._journal.forget(group, partitions, with_group=with_group, now_ms=now_ms)
        except Refused as refused:
            # No request waits for this; the next check tries again.
            log.warning("offsets of group %s could not be removed: %s", group.group_id, refused)
            return False
        return True
