"""The committed offsets of the groups of one partition of `__consumer_offsets`.

Owns: the committed offsets of each group, and the offsets that wait for the end of a transaction.
Does not know: logs, requests, who may commit.
Invariants:
- Live operation and loading use the same four changes (`put`, `put_pending`, `forget`, `end`), so
  both reach the same state.
- Of two commits for a partition the one that is later in the log counts, whichever transaction ended first.
- An answer never contains an offset of an open transaction.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kafka_core.protocol.error_codes import Code
from kafka_core.values import TopicPartition

NO_OFFSET = -1
NO_LEADER_EPOCH = -1
NEVER = -1


@dataclass(frozen=True)
class NewOffset:
    """A client's offset to commit for one partition."""

    where: TopicPartition
    offset: int
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str = ""


@dataclass(frozen=True)
class CommittedOffset:
    """One commit. `log_offset`: its offset in `__consumer_offsets`. `expire_ms`: NEVER, unless a client
    before version 5 of OffsetCommit set a time."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    expire_ms: int = NEVER
    log_offset: int = -1


@dataclass(frozen=True)
class FetchedOffset:
    """The answer for one partition."""

    offset: int = NO_OFFSET
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str = ""
    code: Code = Code.NONE


Offsets = dict[TopicPartition, CommittedOffset]


class OffsetStore:
    """The offsets of one partition's groups."""

    def __init__(self) -> None:
        self.committed: dict[str, Offsets] = {}
        self.pending: dict[int, dict[str, Offsets]] = {}
        """Producer id -> group -> offsets of its open transaction."""

    def put(self, group_id: str, where: TopicPartition, offset: CommittedOffset) -> None:
        """Commit, unless a later commit exists already."""
        offsets = self.committed.setdefault(group_id, {})
        known = offsets.get(where)
        if known is None or known.log_offset < offset.log_offset:
            offsets[where] = offset

    def put_pending(self, producer_id: int, group_id: str, where: TopicPartition, offset: CommittedOffset) -> None:
        """Keep the offset until the producer's transaction ends."""
        self.pending.setdefault(producer_id, {}).setdefault(group_id, {})[where] = offset

    def forget(self, group_id: str, where: TopicPartition) -> None:
        """A tombstone: drop the committed offset and the pending ones."""
        _drop(self.committed, group_id, where)
        for producer_id in list(self.pending):
            _drop(self.pending[producer_id], group_id, where)
            if not self.pending[producer_id]:
                del self.pending[producer_id]

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        """A marker: the producer's transaction has ended."""
        for group_id, offsets in self.pending.pop(producer_id, {}).items():
            if commit:
                for where, offset in offsets.items():
                    self.put(group_id, where, offset)

    def of(self, group_id: str) -> Offsets:
        """The group's committed offsets."""
        return self.committed.get(group_id, {})

    def unstable(self, group_id: str, where: TopicPartition) -> bool:
        """Whether an open transaction may still commit an offset for the partition."""
        return any(where in groups.get(group_id, {}) for groups in self.pending.values())

    def in_transaction(self, group_id: str) -> bool:
        """Whether any open transaction holds offsets of the group."""
        return any(group_id in groups for groups in self.pending.values())

    def partitions(self, group_id: str) -> list[TopicPartition]:
        """Every partition with a committed or pending offset of the group."""
        found = dict.fromkeys(self.of(group_id))
        for groups in self.pending.values():
            found.update(dict.fromkeys(groups.get(group_id, {})))
        return list(found)

    def group_ids(self) -> Iterator[str]:
        """Every group that has offsets here, committed or pending."""
        found = dict.fromkeys(self.committed)
        for groups in self.pending.values():
            found.update(dict.fromkeys(groups))
        return iter(found)

    def fetch(self, group_id: str, where: TopicPartition, *, require_stable: bool) -> FetchedOffset:
        """The committed offset. `require_stable` (KIP-447): not while a transaction may still replace it."""
        if require_stable and self.unstable(group_id, where):
            return FetchedOffset(code=Code.UNSTABLE_OFFSET_COMMIT)
        known = self.of(group_id).get(where)
        if known is None:
            return FetchedOffset()
        return FetchedOffset(known.offset, known.leader_epoch, known.metadata)


def _drop(by_group: dict[str, Offsets], group_id: str, where: TopicPartition) -> None:
    offsets = by_group.get(group_id)
    if offsets is not None:
        offsets.pop(where, None)
        if not offsets:
            del by_group[group_id]
