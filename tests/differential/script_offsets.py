"""Offsets as part of a transaction: who may add and commit them, and when a group sees them."""

from __future__ import annotations

from typing import Any

from tests.differential.play import Play, Transaction
from tests.differential.records import Identity
from tests.differential.script import scenario
from tests.differential.states import CLIENTS, STATES, bring_each, variants

SUBSCRIPTION = b"\0\0" + b"\0\0\0\0" + b"\xff\xff\xff\xff"
"""Of a consumer, version 0: to no topic, nothing of its own. Brokers look into it."""


@scenario(both_protocols=True, state=STATES)
def txn_offset_commit(play: Play, state: str) -> None:
    """Without AddOffsetsToTxn: version 5 adds by itself, the others have nothing that vouches for them."""
    for client, txn in bring_each(play, state, CLIENTS):
        group = play.name("group")
        asks = variants(txn)[client]
        play.commit_offset(f"{client}: answer", asks, group, 7)
        play.describe(f"{client}: id", txn)
        play.committed(f"{client}: seen", group, txn.topic)


@scenario(both_protocols=True, version=(0, 2, 3, 4, 5))
def offsets_in_a_transaction(play: Play, version: int) -> None:
    if version == 5 and not play.new_protocol:
        play.note("left out", "a client of version 1 does not send it")
        return
    for commit in (True, False):
        txn, group = play.transaction(), play.name("group")
        said = "commit" if commit else "abort"
        if version < 5:
            play.add_offsets(f"{said}: added", txn, group)
        play.commit_offset(f"{said}: answer", txn, group, 42, version=version)
        play.committed(f"{said}: while open", group, txn.topic)
        play.committed(f"{said}: while open, stable", group, txn.topic, stable=True)
        play.commit_offset(f"{said}: another offset", txn, group, 43, version=version)
        other = Transaction(txn.name, Identity(987_654_321, 0), txn.topic)
        play.commit_offset(f"{said}: another producer", other, group, 99, version=version)
        play.describe(f"{said}: id", txn)
        play.end(f"{said}: ended", txn, commit)
        play.settle(txn.name)
        play.wait_until(lambda g=group, t=txn.topic: _stable(play, g, t), "the marker is in the offsets' log")
        play.committed(f"{said}: after", group, txn.topic, stable=True)
        play.commit_offset(f"{said}: after the end", txn, group, 44, version=version)
        play.committed(f"{said}: at the end", group, txn.topic)


def _stable(play: Play, group: str, topic: str) -> bool:
    answer = play.ask(
        None, "OffsetFetch", 7, again=(), group_id=group, require_stable=True,
        topics=[{"name": topic, "partition_indexes": [0]}],
    )  # fmt: skip
    return bool(answer["topics"][0]["partitions"][0]["error_code"] == 0)


@scenario(both_protocols=True, epoch=("older", "newer"))
def offsets_under_another_epoch(play: Play, epoch: str) -> None:
    """The transaction is left open: after this some brokers cannot write its marker any more."""
    txn, group = play.transaction(), play.name("group")
    if not play.new_protocol:
        play.add_offsets(None, txn, group)
    play.commit_offset("pending", txn, group, 42)
    stranger = Transaction(txn.name, txn.who.later(1 if epoch == "newer" else -1), txn.topic)
    play.commit_offset("another epoch", stranger, group, 99)
    play.committed("stable?", group, txn.topic, stable=True)
    play.commit_offset("its owner again", txn, group, 43)
    play.committed("stable at the end?", group, txn.topic, stable=True)


@scenario(both_protocols=True)
def offsets_over_and_under_a_transaction(play: Play) -> None:
    """An ordinary commit before, in between, and two transactions on one partition."""
    txn, second, group = play.transaction(), play.transaction(), play.name("group")
    topic = second.topic = txn.topic
    _plain(play, "plain before", group, topic, 1)
    for one, offset in ((txn, 10), (second, 20)):
        if not play.new_protocol:
            play.add_offsets(None, one, group)
        play.commit_offset(f"pending {offset}", one, group, offset)
    play.committed("while two are open", group, topic)
    _plain(play, "plain in between", group, topic, 5)
    play.committed("after the plain one", group, topic)
    play.committed("after the plain one, stable", group, topic, stable=True)
    play.end("second commits", second, True)
    play.settle(second.name)
    play.committed("second is committed", group, topic)
    play.committed("second is committed, stable", group, topic, stable=True)
    play.end("first commits", txn, True)
    play.settle(txn.name)
    play.wait_until(lambda: _stable(play, group, topic), "the marker is in the offsets' log")
    play.committed("first is committed", group, topic)


def _plain(play: Play, label: str, group: str, topic: str, offset: int) -> None:
    play.ask(
        label, "OffsetCommit", 7, group_id=group, generation_id_or_member_epoch=-1, member_id="",
        topics=[{"name": topic, "partitions": [
            {"partition_index": 0, "committed_offset": offset, "committed_metadata": ""}]}],
    )  # fmt: skip


@scenario(both_protocols=True)
def offsets_that_cannot_be_committed(play: Play) -> None:
    for said in (
        "unknown topic",
        "too much metadata",
        "the longest metadata",
        "no metadata",
        "the empty group",
    ):
        txn, group = play.transaction(), play.name("group") if said != "the empty group" else ""
        if not play.new_protocol:
            play.add_offsets(f"{said}: added", txn, group)
        topic = play.name("nowhere") if said == "unknown topic" else ""
        metadata = {"too much metadata": "m" * 4097, "the longest metadata": "m" * 4096, "no metadata": None}
        play.commit_offset(f"{said}: answer", txn, group, 7, topic=topic, metadata=metadata.get(said, "m"))
        play.describe(f"{said}: id", txn)


@scenario(both_protocols=True)
def offsets_of_a_groups_members(play: Play) -> None:
    """KIP-447: a member that is not in the group's generation cannot commit in a transaction either."""
    txn, group = play.transaction(), play.name("group")
    if not play.new_protocol:
        play.add_offsets(None, txn, group)
    play.commit_offset("a member of no group", txn, group, 1, member="nobody", generation=1)
    play.commit_offset("a generation of no group", txn, group, 1, generation=1)
    play.commit_offset("an instance of no group", txn, group, 1, instance="nobody", member="nobody", generation=1)
    member, generation = join(play, group)
    play.commit_offset("the member", txn, group, 2, member=member, generation=generation)
    play.commit_offset("an older generation", txn, group, 3, member=member, generation=generation - 1)
    play.commit_offset("a newer generation", txn, group, 3, member=member, generation=generation + 1)
    play.commit_offset("a stranger", txn, group, 3, member="stranger", generation=generation)
    play.commit_offset("nobody in particular", txn, group, 4)
    play.commit_offset("no member, a generation", txn, group, 5, generation=generation)
    play.commit_offset("a member, no generation", txn, group, 5, member=member)
    play.commit_offset("an unknown instance", txn, group, 6, member=member, generation=generation, instance="nobody")
    play.end("committed", txn, True)
    play.settle(txn.name)
    play.wait_until(lambda: _stable(play, group, txn.topic), "the marker is in the offsets' log")
    play.committed("seen", group, txn.topic)


def join(play: Play, group: str, *, label: str | None = None, instance: str | None = None) -> tuple[str, int]:
    """One member, alone in its group: (member id, generation)."""
    asked: dict[str, Any] = {
        "group_id": group, "session_timeout_ms": 30_000, "rebalance_timeout_ms": 30_000, "group_instance_id": instance,
        "protocol_type": "consumer", "protocols": [{"name": "range", "metadata": SUBSCRIPTION}],
    }  # fmt: skip
    first = play.ask(label and f"{label}: joins", "JoinGroup", 5, member_id="", **asked)
    joined = first
    if instance is None:
        joined = play.ask(
            label and f"{label}: joins with its id", "JoinGroup", 5, member_id=first["member_id"], **asked
        )
    member, generation = joined["member_id"], joined["generation_id"]
    play.ask(
        label and f"{label}: synced", "SyncGroup", 3, group_id=group, generation_id=generation, member_id=member,
        group_instance_id=instance, assignments=[{"member_id": member, "assignment": b"all"}],
    )  # fmt: skip
    return member, generation
