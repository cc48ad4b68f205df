"""Requests to a group that no client library would send: names given twice, empty lists, members and generations that
do not fit.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

from tests.differential.play import Play
from tests.differential.script import scenario
from tests.differential.script_offsets import SUBSCRIPTION, join

_LONGEST = 2**63 - 1


def _joined(play: Play, label: str | None, group: str, version: int = 5, **changes: Any) -> dict[str, Any]:
    asked: dict[str, Any] = {
        "group_id": group, "session_timeout_ms": 30_000, "member_id": "", "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": SUBSCRIPTION}],
    }  # fmt: skip
    if version >= 1:
        asked["rebalance_timeout_ms"] = 30_000
    return play.ask(label, "JoinGroup", version, **{**asked, **changes})


def _synced(play: Play, label: str, group: str, member: str, generation: int, version: int = 3, **more: Any) -> None:
    given = {"assignments": [{"member_id": member, "assignment": b"all"}], **more}
    play.ask(label, "SyncGroup", version, group_id=group, generation_id=generation, member_id=member, **given)


def _state(play: Play, label: str, group: str) -> None:
    answer = play.ask(None, "DescribeGroups", 4, groups=[group], include_authorized_operations=False)
    for one in answer["groups"]:
        for member in one["members"]:
            del member["client_host"]
    play.note(label, answer)


def _commit(
    play: Play, label: str, group: str, topics: list[tuple[str, list[dict[str, Any]]]], *, version: int = 7, member: str = "",
    generation: int = -1, **more: Any,
) -> None:  # fmt: skip
    play.ask(
        label, "OffsetCommit", version, group_id=group, generation_id_or_member_epoch=generation, member_id=member, **more,
        topics=[{"name": name, "partitions": partitions} for name, partitions in topics],
    )  # fmt: skip


def _part(partition: int, offset: int, metadata: str | None = "m", **more: Any) -> dict[str, Any]:
    return {"partition_index": partition, "committed_offset": offset, "committed_metadata": metadata, **more}


@scenario(version=tuple(range(10)))
def a_member_joins_and_goes(play: Play, version: int) -> None:
    """Every version of the requests, in which the first answer may be only a member id."""
    group = play.name("group")
    extra: dict[str, Any] = {"reason": "because"} if version >= 8 else {}
    first = _joined(play, "joins", group, version, **extra)
    member = first["member_id"]
    if first["error_code"]:
        first = _joined(play, "joins with its id", group, version, member_id=member, **extra)
    generation = first["generation_id"]
    sync_version = min(version, 5)
    names = {"protocol_type": "consumer", "protocol_name": "range"} if sync_version >= 5 else {}
    _synced(play, "synced", group, member, generation, sync_version, **names)
    _synced(play, "synced again", group, member, generation, sync_version, **names, assignments=[])
    beat = min(version, 4)
    play.ask("heartbeat", "Heartbeat", beat, group_id=group, generation_id=generation, member_id=member)
    _joined(play, "joins again", group, version, member_id=member, **extra)
    play.ask("heartbeat of before", "Heartbeat", beat, group_id=group, generation_id=generation, member_id=member)
    _state(play, "described", group)
    leave = min(version, 5)
    who: dict[str, Any] = {"members": [{"member_id": member}]} if leave >= 3 else {"member_id": member}
    play.ask("leaves", "LeaveGroup", leave, group_id=group, **who)
    _joined(play, "joins after it left", group, version, member_id=member, **extra)
    _state(play, "described at the end", group)


@scenario()
def joins_that_are_odd(play: Play) -> None:
    for said, version, changes in (
        ("an empty protocol name", 5, {"protocols": [{"name": "", "metadata": SUBSCRIPTION}]}),
        ("no metadata", 5, {"protocols": [{"name": "range", "metadata": b""}]}),
        ("metadata that is none", 5, {"protocols": [{"name": "range", "metadata": b"\xff\xff\xff"}]}),
        ("one protocol twice", 5, {"protocols": [{"name": "range", "metadata": SUBSCRIPTION}] * 2}),
        ("another protocol type", 5, {"protocol_type": "connect"}),
        ("a session of -1 ms", 5, {"session_timeout_ms": -1}),
        ("an instance", 5, {"group_instance_id": "i"}),
        ("an empty instance", 5, {"group_instance_id": ""}),
        ("an instance with a blank", 5, {"group_instance_id": "a b"}),
        ("a stranger's id", 5, {"member_id": "stranger"}),
        ("a stranger's id, v3", 3, {"member_id": "stranger"}),
    ):  # fmt: skip
        group = play.name("group")
        answer = _joined(play, said, group, version, **changes)
        if answer["error_code"] == 79:
            changes["member_id"] = answer["member_id"]
            with play.no_answer_expected() if said == "one protocol twice" else nullcontext():
                _joined(play, f"{said}: with its id", group, version, **changes)
    group = play.name("a group with blanks / and signs")
    _joined(play, "a strange name", group, 2)
    group = play.name("group")
    member, _ = join(play, group)
    _joined(
        play,
        "the member with another protocol",
        group,
        member_id=member,
        protocols=[{"name": "other", "metadata": SUBSCRIPTION}],
    )
    _state(play, "its new protocol", group)
    _joined(play, "the member with another type", group, member_id=member, protocol_type="connect")
    _joined(play, "the member with no protocol", group, member_id=member, protocols=[])


@scenario()
def syncs_that_are_odd(play: Play) -> None:
    group = play.name("group")
    member, generation = join(play, group)
    for said, version, more in (
        ("v5 without names", 5, {}),
        ("v5 with another protocol", 5, {"protocol_type": "consumer", "protocol_name": "other"}),
        ("v5 with another type", 5, {"protocol_type": "connect", "protocol_name": "range"}),
        ("v5 with one name", 5, {"protocol_type": "consumer"}),
        ("v5", 5, {"protocol_type": "consumer", "protocol_name": "range"}),
        ("an assignment for a stranger", 3, {"assignments": [{"member_id": "stranger", "assignment": b"x"}]}),
        ("an unknown instance", 3, {"group_instance_id": "i"}),
        ("other assignments", 3, {"assignments": [{"member_id": member, "assignment": b"other"}]}),
    ):  # fmt: skip
        _synced(play, said, group, member, generation, version, **more)
    _state(play, "described", group)
    handed_in: tuple[tuple[str, list[dict[str, Any]]], ...] = (
        ("none", []),
        ("twice", [{"assignment": b"1"}, {"assignment": b"2"}]),
        ("a stranger too", [{"assignment": b"1"}, {"member_id": "x", "assignment": b"2"}]),
    )
    for said, assignments in handed_in:
        fresh = play.name("group")
        joined = _joined(play, None, fresh, 2)
        given = [{"member_id": joined["member_id"], **one} for one in assignments]
        _synced(play, f"first: {said}", fresh, joined["member_id"], joined["generation_id"], assignments=given)
        _synced(play, f"first: {said}, again", fresh, joined["member_id"], joined["generation_id"], assignments=[])


@scenario()
def members_leave_together(play: Play) -> None:
    group = play.name("group")
    member, _ = join(play, group)
    static = play.name("group")
    who, _ = join(play, static, instance="i")
    for said, members in (
        ("nobody", []),
        ("strangers", [{"member_id": "a"}, {"member_id": "b"}]),
        ("an unknown instance", [{"member_id": "", "group_instance_id": "x"}]),
        ("the member under an instance", [{"member_id": member, "group_instance_id": "x"}]),
        ("neither", [{"member_id": "", "group_instance_id": None}]),
        ("the member and a stranger, twice", [{"member_id": member}, {"member_id": "a"}, {"member_id": member}]),
    ):  # fmt: skip
        play.ask(said, "LeaveGroup", 3, group_id=group, members=members)
    _state(play, "described", group)
    for said, members in (
        ("the instance with another member", [{"member_id": "a", "group_instance_id": "i"}]),
        ("the member without its instance", [{"member_id": who}]),
        ("the instance", [{"member_id": "", "group_instance_id": "i"}]),
        ("the instance again", [{"member_id": who, "group_instance_id": "i"}]),
    ):  # fmt: skip
        play.ask(f"static: {said}", "LeaveGroup", 4, group_id=static, members=members)
    _state(play, "static: described", static)
    play.ask(
        "v5 with a reason",
        "LeaveGroup",
        5,
        group_id=static,
        members=[{"member_id": who, "group_instance_id": "i", "reason": "why"}],
    )


@scenario()
def offsets_that_are_odd(play: Play) -> None:
    group, topic, other = play.name("group"), play.topic(partitions=2), play.topic()
    _commit(play, "nothing", group, [])
    _commit(play, "a topic without partitions", group, [(topic, [])])
    _commit(play, "one partition twice", group, [(topic, [_part(0, 1), _part(0, 2)])])
    _commit(
        play,
        "one topic twice",
        group,
        [(topic, [_part(0, 3)]), (other, [_part(0, 4)]), (topic, [_part(1, 5)])],
    )
    _commit(
        play,
        "good and bad",
        group,
        [(topic, [_part(0, 6), _part(9, 7), _part(-1, 8)]), ("no name!", [_part(0, 9)]), ("", [_part(0, 9)])],
    )
    for offset in (-2, -1, 0, _LONGEST, -_LONGEST - 1):
        _commit(play, f"offset {offset}", group, [(topic, [_part(1, offset)])])
        play.ask(
            f"offset {offset}: fetched",
            "OffsetFetch",
            7,
            group_id=group,
            require_stable=False,
            topics=[{"name": topic, "partition_indexes": [1]}],
        )
    for epoch in (-2, -1, 0, 7):
        _commit(play, f"epoch {epoch}", group, [(topic, [_part(1, 5, committed_leader_epoch=epoch)])])
        play.ask(
            f"epoch {epoch}: fetched",
            "OffsetFetch",
            5,
            group_id=group,
            topics=[{"name": topic, "partition_indexes": [1]}],
        )
    for keep in (-2, -1, 0, 1000):
        for version in (2, 4):
            _commit(
                play,
                f"kept for {keep} ms, v{version}",
                group,
                [(topic, [_part(0, 5)])],
                version=version,
                retention_time_ms=keep,
            )
    for said, metadata in (("empty", ""), ("not ASCII", "ü" * 2000), ("a NUL", "a\0b")):
        _commit(play, f"metadata: {said}", group, [(topic, [_part(0, 5, metadata)])])
    play.committed("metadata: fetched", group, topic)
    for said, member, generation in (
        ("a generation without a member", "", 0),
        ("a member without a generation", "m", -1),
        ("generation -2", "", -2),
    ):
        for version in (2, 8, 9):
            for step, name in (
                (f"{said}, v{version}", group),
                (f"{said}, v{version}, no group", play.name("group")),
            ):
                _commit(
                    play,
                    step,
                    name,
                    [(topic, [_part(0, 5)])],
                    version=version,
                    member=member,
                    generation=generation,
                )
    _commit(play, "an instance of nobody", group, [(topic, [_part(0, 5)])], group_instance_id="i")


@scenario()
def fetches_of_offsets_that_are_odd(play: Play) -> None:
    group, topic = play.name("group"), play.topic(partitions=2)
    _commit(play, "committed", group, [(topic, [_part(0, 11), _part(1, 12)])])
    for said, topics in (
        ("nothing", []),
        ("no partition", [{"name": topic, "partition_indexes": []}]),
        ("one partition twice", [{"name": topic, "partition_indexes": [0, 0]}]),
        ("one topic twice", [{"name": topic, "partition_indexes": [0]}, {"name": topic, "partition_indexes": [1]}]),
        ("partitions that cannot be", [{"name": topic, "partition_indexes": [-1, 2**31 - 1]}]),
        ("names that cannot be", [{"name": "", "partition_indexes": [0]}, {"name": "no name!", "partition_indexes": [0]}]),
    ):  # fmt: skip
        for version in (1, 5, 7):
            play.ask(f"{said}, v{version}", "OffsetFetch", version, group_id=group, topics=topics)
        play.ask(f"{said}, v8", "OffsetFetch", 8, groups=[{"group_id": group, "topics": topics}])
    with play.no_answer_expected():
        play.ask("no group, v8", "OffsetFetch", 8, groups=[])
    named = [{"name": topic, "partition_indexes": [0]}]
    play.ask("the empty group, v8", "OffsetFetch", 8, groups=[{"group_id": "", "topics": named}])
    play.ask("the empty group, v7", "OffsetFetch", 7, group_id="", topics=named)
    play.ask("one group twice, v8", "OffsetFetch", 8, groups=[{"group_id": group, "topics": None}] * 2)


@scenario()
def groups_are_deleted_together(play: Play) -> None:
    topic = play.topic()
    busy, idle, gone = play.name("group"), play.name("group"), play.name("group")
    join(play, busy)
    _commit(play, "committed", idle, [(topic, [_part(0, 1)])])
    for version in (0, 1, 2):
        play.ask(f"none, v{version}", "DeleteGroups", version, groups_names=[])
        play.ask(f"unknown, v{version}", "DeleteGroups", version, groups_names=[gone])
    play.ask("one twice", "DeleteGroups", 2, groups_names=[gone, gone])
    play.ask("the empty one", "DeleteGroups", 2, groups_names=[""])
    play.ask("a mixture", "DeleteGroups", 2, groups_names=[busy, idle, gone])
    play.committed("then", idle, topic)
    for said, group, topics in (
        ("no topic", busy, []),
        ("no partition", busy, [{"name": topic, "partitions": []}]),
        ("one twice", busy, [{"name": topic, "partitions": [{"partition_index": 0}, {"partition_index": 0}]}]),
        ("unknown topic", busy, [{"name": play.name("nowhere"), "partitions": [{"partition_index": 0}]}]),
        ("a gone group", idle, [{"name": topic, "partitions": [{"partition_index": 0}]}]),
        ("the empty group", "", [{"name": topic, "partitions": [{"partition_index": 0}]}]),
    ):  # fmt: skip
        play.ask(f"offsets: {said}", "OffsetDelete", 0, group_id=group, topics=topics)


@scenario()
def groups_are_looked_at(play: Play) -> None:
    topic = play.topic()
    group = play.name("group")
    join(play, group)
    simple = play.name("group")
    _commit(play, "committed", simple, [(topic, [_part(0, 1)])])
    for version in range(6):
        for said, names in (
            ("none", []),
            ("one twice", [simple, simple]),
            ("unknown", [play.name("nowhere")]),
            ("no name", [""]),
        ):
            more: dict[str, Any] = {"include_authorized_operations": False} if version >= 3 else {}
            play.ask(f"{said}, v{version}", "DescribeGroups", version, groups=names, **more)
    _state(play, "a member", group)

    def listed(label: str, version: int, **filters: Any) -> None:
        answer = play.ask(None, "ListGroups", version, **filters)
        mine = [one for one in answer["groups"] if one["group_id"] in (group, simple)]
        play.note(
            label,
            {
                "error_code": answer["error_code"],
                "groups": sorted(mine, key=lambda one: str(one["group_id"])),
            },
        )

    for version in range(6):
        listed(f"all, v{version}", version)
    for states in (["Stable"], ["stable"], ["Empty", "Stable"], ["Nonsense"], [""]):
        listed(f"in states {states}", 4, states_filter=states)
    for types in (["classic"], ["Classic"], ["consumer"], ["Nonsense"]):
        listed(f"of types {types}", 5, states_filter=[], types_filter=types)
