"""Consumer groups and their offsets: what unknown members, generations, groups and topics are answered."""

from __future__ import annotations

from typing import Any

from tests.differential.play import Play
from tests.differential.script import scenario
from tests.differential.script_offsets import SUBSCRIPTION, join

_CONSUMER: dict[str, Any] = {
    "session_timeout_ms": 30_000, "rebalance_timeout_ms": 30_000, "protocol_type": "consumer",
    "protocols": [{"name": "range", "metadata": SUBSCRIPTION}],
}  # fmt: skip


def _commit(
    play: Play, label: str, group: str, topic: str, *, member: str = "", generation: int = -1, offset: int = 5,
    metadata: str | None = "m", instance: str | None = None, version: int = 7, partition: int = 0,
) -> None:  # fmt: skip
    extra: dict[str, Any] = {"group_instance_id": instance} if version >= 7 else {}
    play.ask(
        label, "OffsetCommit", version, group_id=group, generation_id_or_member_epoch=generation, member_id=member,
        topics=[{"name": topic, "partitions": [
            {"partition_index": partition, "committed_offset": offset, "committed_metadata": metadata}]}], **extra,
    )  # fmt: skip


def _heartbeat(play: Play, label: str, group: str, member: str, generation: int, instance: str | None = None) -> None:
    play.ask(
        label,
        "Heartbeat",
        3,
        group_id=group,
        generation_id=generation,
        member_id=member,
        group_instance_id=instance,
    )


def _leave(play: Play, label: str, group: str, member: str, version: int = 2) -> None:
    if version < 3:
        play.ask(label, "LeaveGroup", version, group_id=group, member_id=member)
    else:
        play.ask(label, "LeaveGroup", version, group_id=group, members=[{"member_id": member}])


def _described(play: Play, label: str, group: str, version: int = 4) -> None:
    answer = play.ask(None, "DescribeGroups", version, groups=[group], include_authorized_operations=False)
    for one in answer["groups"]:
        for member in one["members"]:
            del member["client_host"]
    play.note(label, answer)


@scenario()
def a_group_that_is_not_there(play: Play) -> None:
    topic = play.topic()
    for name in ("unknown", "empty name"):
        group = "" if name == "empty name" else play.name("group")
        _heartbeat(play, f"{name}: heartbeat", group, "nobody", 1)
        for version in (0, 1, 2, 3, 4, 5):
            _leave(play, f"{name}: leave v{version}", group, "nobody", version)
        play.ask(
            f"{name}: sync",
            "SyncGroup",
            3,
            group_id=group,
            generation_id=1,
            member_id="nobody",
            assignments=[],
        )
        play.ask(f"{name}: join as a known member", "JoinGroup", 5, group_id=group, member_id="nobody", **_CONSUMER)
        _commit(play, f"{name}: a member's commit", group, topic, member="nobody", generation=1)
        _commit(play, f"{name}: a generation's commit", group, topic, generation=1)
        play.committed(f"{name}: fetch", group, topic)
        play.ask(f"{name}: delete", "DeleteGroups", 1, groups_names=[group])
        play.ask(
            f"{name}: delete offsets", "OffsetDelete", 0, group_id=group,
            topics=[{"name": topic, "partitions": [{"partition_index": 0}]}],
        )  # fmt: skip
        for version in (0, 4, 5):
            _described(play, f"{name}: described v{version}", group, version)


@scenario()
def groups_that_cannot_be_joined(play: Play) -> None:
    group = play.name("group")

    def ask(label: str, version: int = 5, **changes: Any) -> None:
        play.ask(label, "JoinGroup", version, **{"group_id": group, "member_id": "", **_CONSUMER, **changes})

    ask("a session too short", session_timeout_ms=1)
    ask("a session too long", session_timeout_ms=2**31 - 1)
    ask("a session of 0", session_timeout_ms=0)
    ask("no protocols", protocols=[])
    ask("no protocol type", protocol_type="")
    ask("the empty group", group_id="")
    ask("an instance and an unknown member", group_instance_id="i", member_id="nobody")
    ask("v4 needs its id first", version=4)
    for version in (2, 3):
        ask(f"v{version} needs none", version=version, group_id=play.name("group"))
    ask("v9 needs its id first", version=9, group_id=play.name("group"))


@scenario()
def one_member(play: Play) -> None:
    group, topic = play.name("group"), play.topic()
    member, generation = join(play, group, label="first")
    _described(play, "described", group)
    for said, who, when in (
        ("the member", member, generation), ("an older generation", member, generation - 1),
        ("a newer generation", member, generation + 1), ("a stranger", "stranger", generation), ("nobody", "", -1),
        ("nobody with a generation", "", generation), ("the member without one", member, -1),
    ):  # fmt: skip
        _heartbeat(play, f"{said}: heartbeat", group, who, when)
        _commit(play, f"{said}: commits", group, topic, member=who, generation=when)
        play.ask(
            f"{said}: syncs",
            "SyncGroup",
            3,
            group_id=group,
            generation_id=when,
            member_id=who,
            assignments=[],
        )
    _heartbeat(play, "an unknown instance: heartbeat", group, member, generation, "nobody")
    play.ask(
        "another protocol type",
        "JoinGroup",
        5,
        group_id=group,
        member_id="",
        **{**_CONSUMER, "protocol_type": "x"},
    )
    play.ask(
        "another protocol", "JoinGroup", 5, group_id=group, member_id="",
        **{**_CONSUMER, "protocols": [{"name": "other", "metadata": SUBSCRIPTION}]},
    )  # fmt: skip
    play.committed("committed", group, topic)
    play.ask("deleted while it has a member", "DeleteGroups", 1, groups_names=[group])
    play.ask(
        "offsets deleted while it has a member", "OffsetDelete", 0, group_id=group,
        topics=[{"name": topic, "partitions": [{"partition_index": 0}]}],
    )  # fmt: skip
    _leave(play, "a stranger leaves", group, "stranger")
    _leave(play, "a stranger leaves, v3", group, "stranger", 3)
    _leave(play, "it leaves", group, member)
    _leave(play, "it leaves again", group, member)
    _heartbeat(play, "heartbeat after it left", group, member, generation)
    _commit(play, "its commit after it left", group, topic, member=member, generation=generation)
    _commit(play, "a plain commit in an empty group", group, topic, offset=9)
    _described(play, "described, empty", group)
    play.ask("deleted", "DeleteGroups", 1, groups_names=[group])
    play.committed("committed after that", group, topic)
    _described(play, "described, deleted", group)


@scenario()
def a_static_member(play: Play) -> None:
    group, topic = play.name("group"), play.topic()
    member, generation = join(play, group, label="first", instance="i")
    again, second = join(play, group, label="second", instance="i")
    play.note("is it another member", again != member)
    _heartbeat(play, "the first: heartbeat", group, member, generation, "i")
    _heartbeat(play, "the second: heartbeat", group, again, second, "i")
    _heartbeat(play, "the first without its instance", group, member, generation)
    _commit(play, "the first: commits", group, topic, member=member, generation=generation, instance="i")
    _commit(play, "the second: commits", group, topic, member=again, generation=second, instance="i")
    for said, who in (("another instance", "other"), ("the instance", "i")):
        play.ask(
            f"removed by an operator: {said}", "LeaveGroup", 3, group_id=group,
            members=[{"member_id": "", "group_instance_id": who}],
        )  # fmt: skip
    _described(play, "described", group)


@scenario()
def plain_offsets(play: Play) -> None:
    group, topic = play.name("group"), play.topic(partitions=2)
    for version in (2, 5, 6, 7, 8, 9):
        _commit(play, f"v{version}", group, topic, offset=version, version=version)
    _commit(play, "unknown topic", group, play.name("nowhere"))
    _commit(play, "unknown partition", group, topic, partition=7)
    _commit(play, "too much metadata", group, topic, metadata="m" * 4097)
    _commit(play, "the longest metadata", group, topic, metadata="m" * 4096, offset=77)
    _commit(play, "no metadata", group, topic, metadata=None, offset=78)
    _commit(play, "a negative offset", group, topic, offset=-1)
    for version in (1, 2, 5, 6, 7):
        play.ask(
            f"fetch v{version}", "OffsetFetch", version, group_id=group,
            topics=[{"name": topic, "partition_indexes": [0, 1, 5]}, {"name": play.name("x"), "partition_indexes": [0]}],
        )  # fmt: skip
        if version >= 2:
            play.ask(f"fetch all v{version}", "OffsetFetch", version, group_id=group, topics=None)
    for version in (8, 9):
        play.ask(
            f"fetch v{version}", "OffsetFetch", version,
            groups=[
                {"group_id": group, "topics": [{"name": topic, "partition_indexes": [0, 1]}]},
                {"group_id": play.name("group"), "topics": [{"name": topic, "partition_indexes": [0]}]},
                {"group_id": play.name("group"), "topics": None},
            ],
        )  # fmt: skip
    for partition in (0, 1, 9):
        play.ask(
            f"deleted {partition}", "OffsetDelete", 0, group_id=group,
            topics=[{"name": topic, "partitions": [{"partition_index": partition}]}],
        )  # fmt: skip
    play.committed("after that", group, topic)
    answer = play.ask(None, "ListGroups", 4, states_filter=["Empty"])
    play.note("listed", [one for one in answer["groups"] if one["group_id"] == group])


@scenario()
def coordinators_are_found(play: Play) -> None:
    for version in (0, 1, 2, 3):
        for kind in (0, 1, 2, 9) if version else (0,):
            given: dict[str, Any] = {"key_type": kind} if version else {}
            play.ask(f"v{version}, type {kind}", "FindCoordinator", version, key="some", **given)
    for version in (4, 5, 6):
        for kind in (0, 1, 9):
            play.ask(
                f"v{version}, type {kind}",
                "FindCoordinator",
                version,
                key_type=kind,
                coordinator_keys=["a", "b"],
            )
    play.ask("no keys", "FindCoordinator", 4, key_type=1, coordinator_keys=[])
    play.ask("the empty group", "FindCoordinator", 2, key="", key_type=0)
    play.ask("the empty id", "FindCoordinator", 2, key="", key_type=1)
