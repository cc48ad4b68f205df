"""Groups with members of both protocols, and groups that become of the other one while they have members (KIP-848,
online migration).
"""

from __future__ import annotations

import struct
from typing import Any

from embedded_kafka.groups.machine.embedded_protocol import write_assignment
from kafka_core.protocol.error_codes import Code
from tests.differential.play import Play, Transaction
from tests.differential.script import scenario
from tests.differential.script_consumer_groups import PARTITIONS, Group
from tests.embedded_kafka.groups.machine.consumer_tools import subscription

_SESSION_MS = 30_000


def assigned(assignment: bytes) -> list[int]:
    """The partitions of a ConsumerProtocolAssignment of one topic."""
    if len(assignment) < 6 or not struct.unpack_from(">i", assignment, 2)[0]:
        return []
    (size,) = struct.unpack_from(">h", assignment, 6)
    (count,) = struct.unpack_from(">i", assignment, 8 + size)
    return sorted(struct.unpack_from(f">{count}i", assignment, 12 + size))


class Mixed(Group):
    """A group with members of both kinds. The members of the classic protocol are called by their labels."""

    def __init__(self, play: Play, partitions: int = PARTITIONS) -> None:
        super().__init__(play, partitions)
        self.ids: dict[str, str] = {}
        self.owned_by: dict[str, list[int]] = {}

    def enter(self, label: str, who: str, *, version: int = 3, named: str | None = None, **fields: Any) -> int:
        """JoinGroup; notes what comes back, and returns the generation."""
        owned = {self.topic: self.owned_by.get(who, [])}
        usual = {
            "group_id": self.name,
            "member_id": self.ids.get(who, "") if named is None else named,
            "group_instance_id": None,
            "session_timeout_ms": _SESSION_MS,
            "rebalance_timeout_ms": _SESSION_MS,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": subscription(self.topic, owned=owned)}],
            "reason": None,
        }
        answer = self.play.ask(None, "JoinGroup", version, **(usual | fields))
        if answer["error_code"] in (Code.NONE, Code.MEMBER_ID_REQUIRED):
            self.ids[who] = answer["member_id"]
        fields = {each: answer.get(each) for each in ("error_code", "generation_id", "protocol_type", "protocol_name")}
        fields["leader"] = self.called(answer["leader"]) if answer["leader"] else answer["leader"]
        fields["member"] = self.called(answer["member_id"])
        fields["members"] = sorted(self.called(member["member_id"]) for member in answer["members"])
        self.play.note(label, fields)
        return int(answer["generation_id"])

    def called(self, member_id: str) -> str:
        """A member's label in place of its id."""
        return next((label for label, known in self.ids.items() if known == member_id), member_id)

    def sync(self, label: str, who: str, generation: int, version: int = 3, **fields: Any) -> list[int]:
        """SyncGroup; notes how many partitions it brings, and returns them."""
        usual = {
            "group_id": self.name, "generation_id": generation, "member_id": self.ids.get(who, who),
            "group_instance_id": None, "protocol_type": "consumer", "protocol_name": "range", "assignments": [],
        }  # fmt: skip
        answer = self.play.ask(None, "SyncGroup", version, **(usual | fields))
        held = assigned(answer["assignment"])
        self.play.note(label, {"error_code": answer["error_code"], "partitions": len(held)})
        if not answer["error_code"]:
            self.owned_by[who] = held
        return held

    def alive(self, label: str, who: str, generation: int, instance_id: str | None = None) -> None:
        """Heartbeat."""
        self.play.ask(
            label, "Heartbeat", 3, group_id=self.name, generation_id=generation, member_id=self.ids.get(who, who),
            group_instance_id=instance_id,
        )  # fmt: skip

    def leave(self, label: str, *members: tuple[str, str | None]) -> None:
        """LeaveGroup."""
        named = [{"member_id": self.ids.get(who, who), "group_instance_id": instance} for who, instance in members]
        answer = self.play.ask(None, "LeaveGroup", 4, group_id=self.name, members=named)
        codes = [member["error_code"] for member in answer["members"]]
        self.play.note(label, {"error_code": answer["error_code"], "members": codes})

    def look(self, label: str) -> None:
        """The group as both ways of describing show it."""
        asked = {"group_ids": [self.name], "include_authorized_operations": False}
        (one,) = self.play.ask(None, "ConsumerGroupDescribe", 1, **asked)["groups"]
        members = {
            self.called(member["member_id"]): {
                "epoch": member["member_epoch"],
                "type": member["member_type"],
                "instance": member["instance_id"],
                "topics": len(member["subscribed_topic_names"]),
                "has": sum(len(topic["partitions"]) for topic in member["assignment"]["topic_partitions"]),
            }
            for member in one["members"]
        }
        # Whose share is larger by one is up to the assignor.
        targets = [
            sum(len(each["partitions"]) for each in member["target_assignment"]["topic_partitions"])
            for member in one["members"]
        ]
        shown = {each: one[each] for each in ("error_code", "group_state", "group_epoch", "assignment_epoch")}
        asked = {"groups": [self.name], "include_authorized_operations": False}
        (other,) = self.play.ask(None, "DescribeGroups", 5, **asked)["groups"]
        classic = {each: other[each] for each in ("error_code", "group_state", "protocol_type", "protocol_data")}
        # What 4.x shows of a member's assignment while the next generation is being made: see `known`.
        stable = other["group_state"] == "Stable"
        classic["members"] = {
            self.called(member["member_id"]): (
                member["group_instance_id"],
                len(assigned(member["member_assignment"])) if stable else None,
                len(member["member_metadata"]),
            )
            for member in other["members"]
        }
        self.play.note(label, {"consumer": shown, "members": members, "targets": sorted(targets), "classic": classic})


def stable_classic(group: Mixed, who: str) -> int:
    """The member alone in a classic group, which has assigned itself all; the generation."""
    generation = group.enter("prepared: joins", who)
    group.play.transcript.pop()
    whole = write_assignment([(group.topic, range(PARTITIONS))], 1)
    mine = [{"member_id": group.ids[who], "assignment": whole}]
    group.sync("classic: is assigned all", who, generation, assignments=mine)
    return generation


@scenario(consumer_protocol=True, migrates=True)
def classic_members_come_to_a_consumer_group(play: Play) -> None:
    group = Mixed(play)
    group.join("a joins", "a")
    group.enter("c asks for an id", "c", version=5)
    first = group.enter("c joins", "c", version=5)
    group.look("c has joined")
    group.alive("c is alive before it has synced", "c", first)
    group.sync("c syncs", "c", first)
    group.sync("c syncs again, version 5", "c", first, 5)
    group.sync("c syncs with another protocol", "c", first, 5, protocol_name="roundrobin")
    group.sync("c syncs as another type", "c", first, 5, protocol_type="connect")
    group.sync("c syncs with an earlier generation", "c", first - 1)
    group.sync("c syncs with a later generation", "c", first + 1)
    group.sync("a stranger syncs", "x", first)
    group.sync("a syncs", "a", 2)
    group.alive("c is alive", "c", first)
    group.alive("c is alive with an earlier generation", "c", first - 1)
    group.alive("a is alive as a classic member", "a", 2)
    group.alive("a stranger is alive", "x", first)
    kept = group.beat("a is told", "a", 2)
    group.look("a is told what it keeps")
    group.beat("a gave back", "a", 2, topic_partitions=group.owned(kept))
    group.alive("c is alive and has more to get", "c", first)
    group.sync("c syncs before it joins again", "c", first)
    again = group.enter("c joins again", "c", version=5)
    group.sync("c has its share", "c", again)
    group.alive("c is alive with its share", "c", again)
    group.look("both have their share")
    for label, fields in (
        ("another type", {"protocol_type": "connect"}),
        ("no protocol", {"protocols": []}),
        (
            "a protocol that c does not know",
            {"protocols": [{"name": "roundrobin", "metadata": subscription(group.topic)}]},
        ),
        (
            "c's and another",
            {"protocols": [{"name": each, "metadata": subscription(group.topic)} for each in ("sticky", "range")]},
        ),
    ):
        group.enter(f"d joins with {label}", f"d with {label}", **fields)  # type: ignore[arg-type]
    group.look("d has joined")
    group.enter("e joins under an id of its own", "e", named="e")
    group.look("e has joined")
    group.leave("d, a, a stranger leave", ("d with c's and another", None), ("a", None), ("x", None))
    group.look("d has left")


@scenario(consumer_protocol=True, migrates=True)
def offsets_of_both_protocols(play: Play) -> None:
    group = Mixed(play)
    group.join("a joins", "a")
    first = group.enter("c joins", "c")
    c = group.ids.get("c", "c")
    for label, member, epoch in (
        ("c", c, first),
        ("c before", c, first - 1),
        ("c later", c, first + 1),
        ("nobody", "", -1),
    ):
        for version in (6, 8, 9):
            group.commit(f"{label} commits, version {version}", member, epoch, 0, version=version)
        group.fetch(f"{label} fetches", member or None, epoch)
    txn: Transaction = play.transaction()
    play.add_offsets(None, txn, group.name)
    for label, member, epoch in (
        ("before", c, first - 1),
        ("a stranger", "x", first),
        ("nobody", "", -1),
        ("c", c, first),
    ):
        group.commit_within(txn, f"in a transaction: {label}", member, epoch, 7)
    play.ended(txn, commit=True)
    group.fetch("after the transaction", None, -1)


@scenario(consumer_protocol=True, migrates=True)
def the_last_consumer_member_leaves(play: Play) -> None:
    group = Mixed(play)
    group.join("a joins", "a")
    first = group.enter("c joins", "c")
    group.sync("c syncs", "c", first)
    kept = group.beat("a is told", "a", 2)
    group.beat("a gave back", "a", 2, topic_partitions=group.owned(kept))
    again = group.enter("c joins again", "c")
    group.sync("c has its share", "c", again)
    group.commit("c commits", group.ids.get("c", "c"), again, 0, version=8)
    group.beat("a leaves", "a", -1)
    group.look("it is a classic group")
    group.alive("c is alive", "c", again)
    group.fetch("the offsets are there", None, -1)
    last = group.enter("c joins the classic group", "c")
    group.look("c is to assign")
    group.sync(
        "c syncs with what it assigns",
        "c",
        last,
        assignments=[{"member_id": group.ids.get("c", "c"), "assignment": b""}],
    )
    group.look("it is stable")
    group.beat("a goes on", "a", 3)
    listed = play.ask(None, "ListGroups", 5, states_filter=[], types_filter=["classic"])["groups"]
    play.note("listed as classic", [one["protocol_type"] for one in listed if one["group_id"] == group.name])


@scenario(consumer_protocol=True, migrates=True)
def consumer_members_come_to_a_classic_group(play: Play) -> None:
    group = Mixed(play)
    generation = stable_classic(group, "c")
    group.look("a classic group")
    group.commit("c commits", group.ids["c"], generation, 0, version=8)
    group.beat("a goes on", "a", 1)
    group.beat("a leaves before it has joined", "a", -1)
    group.join("a joins", "a")
    group.look("it is a consumer group")
    group.fetch("the offsets are there", None, -1)
    group.alive("c is alive", "c", generation)
    again = group.enter("c joins again", "c")
    group.look("c has joined again")
    group.alive("c is alive and has to give back", "c", again)
    group.sync("c is told", "c", again)
    group.look("c is told what it keeps")
    last = group.enter("c gave back", "c")
    group.sync("c has its share", "c", last)
    group.beat("a takes", "a", 2)
    group.beat("a takes, later", "a", 3)
    group.look("both have their share")
    group.join("c goes on as a consumer member", group.ids["c"], topic_partitions=[])
    group.look("c has changed")
    group.alive("c is alive as before", "c", last)
    group.leave("c leaves as before", ("c", None))
    group.beat("a leaves", "a", -1)
    group.look("only c")


@scenario(consumer_protocol=True, migrates=True)
def what_cannot_become_a_consumer_group(play: Play) -> None:
    group = Mixed(play)
    for label, protocol_type, metadata in (
        ("of another type", "connect", b"x"),
        ("with garbled metadata", "consumer", b"x"),
        ("without metadata", "consumer", b""),
    ):
        group.name = play.name("group")
        generation = group.enter(
            f"{label}: c joins", label, protocol_type=protocol_type, protocols=[{"name": "range", "metadata": metadata}]
        )
        mine = [{"member_id": group.ids[label], "assignment": b""}]
        group.sync(f"{label}: c syncs", label, generation, assignments=mine)
        group.join(f"{label}: a joins", "a")
        group.alive(f"{label}: c is alive", label, generation)
        group.look(f"{label}: described")


@scenario(consumer_protocol=True, migrates=True)
def instances_of_both_protocols(play: Play) -> None:
    group = Mixed(play)
    group.join("a joins", "a", instance_id="i")
    first = group.enter("c joins in its place", "c", version=5, group_instance_id="i")
    group.look("c is in its place")
    group.alive("c is alive", "c", first, "i")
    group.beat("a goes on", "a", 2, instance_id="i")
    group.sync("c syncs", "c", first, group_instance_id="i")
    group.enter("another joins in its place", "d", version=5, group_instance_id="i")
    group.look("d is in its place")
    group.join("b joins in its place", "b", instance_id="i")
    group.look("b is in its place")
    group.leave("an operator removes it", ("", "i"))
    group.look("gone")


@scenario(consumer_protocol=True, migrates=True)
def a_classic_group_that_is_being_rebalanced_gets_a_consumer_member(play: Play) -> None:
    group = Mixed(play)
    first = group.enter("c joins", "c")
    group.look("c is to assign")
    group.join("a joins", "a")
    group.look("it is a consumer group")
    group.sync("c syncs", "c", first)
    again = group.enter("c joins again", "c")
    group.sync("c syncs again", "c", again)
    group.look("both are members")
    group.leave("c leaves", ("c", None))
    group.look("c has left")
    group.enter("c joins with the id that it had", "c")
    group.look("c is back")
    group.join("a goes on as a consumer member", "a")
    group.enter("a goes on as a classic member", "a", named="a")
    group.look("both are classic members")
    group.leave("c leaves, too", ("c", None))
    group.look("only a")


@scenario(consumer_protocol=True, migrates=True)
def one_of_several_consumer_members_leaves(play: Play) -> None:
    group = Mixed(play, 6)
    group.join("a joins", "a")
    group.join("b joins", "b")
    first = group.enter("c joins", "c")
    group.sync("c syncs", "c", first)
    group.beat("b leaves", "b", -1)
    group.look("b has left")
    group.alive("c is alive", "c", first)
    group.beat("a is told", "a", 2, topic_partitions=group.owned([]))
    group.alive("c is alive behind it", "c", first)
    group.sync("c syncs without joining", "c", first)
    again = group.enter("c joins again", "c")
    group.sync("c syncs again", "c", again)
    group.leave("a and c leave together", ("a", None), ("c", None), ("c", None))
    group.look("nobody")
