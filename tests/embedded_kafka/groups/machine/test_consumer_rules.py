"""Rules of the consumer protocol (KIP-848) that one row of the table does not show: reconciling, fencing, static
members, subscriptions, and random histories under which no partition ever has two owners.
"""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from embedded_kafka.groups.machine.consumer_events import AnswerBeat, Beat, Catalogue, Depart, ReadOffsets, WriteOffsets
from embedded_kafka.groups.machine.consumer_moves import ConsumerEvent, handle
from embedded_kafka.groups.machine.consumer_value import (
    NOTHING,
    ConsumerGroup,
    ConsumerGroupState,
    ConsumerLimits,
    Phase,
    Shares,
    Subscribed,
    union,
)
from embedded_kafka.groups.machine.events import AnswerCode, GroupRefusal, Loaded, Tick
from tests.embedded_kafka.groups.machine.consumer_tools import (
    EXISTING,
    NOW,
    OTHER,
    REBALANCE,
    SESSION,
    TOPIC,
    answered,
    beat,
    joining,
    moved,
    shares,
)

EMPTY = ConsumerGroup("g")
ONE = moved(EMPTY, joining("a"))
TWO = moved(ONE, joining("b"))
REVOKING = moved(TWO, beat("a", 2))


def refusal(group: ConsumerGroup, event: ConsumerEvent) -> GroupRefusal | None:
    """The refusal, and that nothing has changed."""
    after, (answer,) = handle(group, event)
    assert after is group
    assert isinstance(answer, AnswerCode)
    return answer.refusal


def test_a_partition_changes_hands_only_after_its_owner_has_said_that_it_gave_it_back() -> None:
    group, told = answered(TWO, beat("a", 2))
    assert told == AnswerBeat("a", 2, shares(0, 1))
    group, waits = answered(group, beat("b", 3))
    assert waits == AnswerBeat("b", 3)
    group, still = answered(group, beat("a", 2, owned=shares(0, 1, 2, 3)))
    assert still == AnswerBeat("a", 2)
    assert answered(group, beat("b", 3))[1] == AnswerBeat("b", 3)

    group, freed = answered(group, beat("a", 2, owned=shares(0, 1)))
    assert freed == AnswerBeat("a", 3)
    group, taken = answered(group, beat("b", 3))

    assert taken == AnswerBeat("b", 3, shares(2, 3))
    assert group.state is ConsumerGroupState.STABLE


def test_a_member_that_does_not_give_back_in_time_is_removed_and_the_others_get_its_partitions() -> None:
    alive = moved(REVOKING, beat("a", 2, now_ms=NOW + REBALANCE - 1), beat("b", 3, now_ms=NOW + REBALANCE - 1))
    assert set(moved(alive, Tick(NOW + REBALANCE - 1)).members) == {"a", "b"}

    group = moved(alive, Tick(NOW + REBALANCE))

    assert set(group.members) == {"b"}
    assert answered(group, beat("b", 3))[1] == AnswerBeat("b", 4, shares(0, 1, 2, 3))
    assert refusal(group, beat("a", 2)) is GroupRefusal.UNKNOWN_MEMBER_ID


def test_a_heartbeat_keeps_a_member_for_a_whole_session() -> None:
    group = moved(ONE, beat("a", 2, now_ms=NOW + SESSION - 1))

    assert set(moved(group, Tick(NOW + 2 * SESSION - 2)).members) == {"a"}
    assert moved(group, Tick(NOW + 2 * SESSION - 1)).state is ConsumerGroupState.EMPTY


@pytest.mark.parametrize("epoch", [1, 3, 7])
def test_a_member_with_another_epoch_is_fenced(epoch: int) -> None:
    assert refusal(ONE, beat("a", epoch)) is GroupRefusal.FENCED_MEMBER_EPOCH


@pytest.mark.parametrize(
    ("owned", "fenced"), [(shares(0, 1), False), (shares(0), False), (shares(0, 2), True), (None, True)]
)
def test_a_member_whose_answer_was_lost_may_come_with_its_epoch_before_if_it_owns_no_more_than_it_has(
    owned: Shares | None, fenced: bool
) -> None:
    group = moved(REVOKING, beat("a", 2, owned=shares(0, 1)))
    assert group.members["a"].epoch == 3

    _, (answer,) = handle(group, beat("a", 2, owned=owned))

    assert answer == (AnswerCode(GroupRefusal.FENCED_MEMBER_EPOCH) if fenced else AnswerBeat("a", 3))


def test_a_member_that_joins_again_gets_its_whole_assignment_told_anew() -> None:
    assert answered(ONE, joining("a"))[1] == AnswerBeat("a", 2, shares(0, 1, 2, 3))


def test_a_heartbeat_that_says_everything_is_told_everything() -> None:
    full = beat("a", 2, rebalance_timeout_ms=REBALANCE, topics=("t",), owned=shares(0, 1, 2, 3))

    assert answered(ONE, full)[1] == AnswerBeat("a", 2, shares(0, 1, 2, 3))


def test_a_full_group_takes_nobody_in_and_keeps_its_members() -> None:
    limited = moved(replace(EMPTY, limits=ConsumerLimits(max_members=1)), joining("a"))

    assert refusal(limited, joining("b")) is GroupRefusal.GROUP_MAX_SIZE_REACHED
    assert answered(limited, joining("a"))[1].epoch == 2


# ---- static members

STATIC = moved(EMPTY, joining("s1", instance_id="i"))
AWAY = moved(STATIC, Depart(NOW, "s1", "i", -2))


def test_a_static_member_that_left_for_a_while_gets_the_same_partitions_under_a_new_id_and_nobody_rebalances() -> None:
    assert AWAY.members["s1"].assigned == shares(0, 1, 2, 3)
    assert refusal(AWAY, beat("s1", 2, instance_id="i")) is GroupRefusal.FENCED_MEMBER_EPOCH

    group, told = answered(AWAY, joining("s2", instance_id="i"))

    assert told == AnswerBeat("s2", 2, shares(0, 1, 2, 3))
    assert set(group.members) == {"s2"}
    assert group.epoch == STATIC.epoch
    assert refusal(group, beat("s1", 2, instance_id="i")) is GroupRefusal.FENCED_INSTANCE_ID


def test_a_static_members_place_is_not_given_away_while_it_has_not_left() -> None:
    assert refusal(STATIC, joining("s2", instance_id="i")) is GroupRefusal.UNRELEASED_INSTANCE_ID
    assert refusal(STATIC, joining("s1", instance_id="i")) is GroupRefusal.UNRELEASED_INSTANCE_ID
    assert refusal(STATIC, beat("s2", 2, instance_id="i")) is GroupRefusal.FENCED_INSTANCE_ID
    assert refusal(STATIC, beat("s1", 2, instance_id="j")) is GroupRefusal.UNKNOWN_MEMBER_ID
    assert refusal(STATIC, Depart(NOW, "s2", "i", -1)) is GroupRefusal.FENCED_INSTANCE_ID


def test_a_static_member_that_stays_away_loses_its_place_when_its_session_ends() -> None:
    assert set(moved(AWAY, Tick(NOW + SESSION - 1)).members) == {"s1"}
    assert moved(AWAY, Tick(NOW + SESSION)).state is ConsumerGroupState.EMPTY


# ---- subscriptions


def test_new_partitions_of_a_subscribed_topic_make_a_new_epoch_and_are_assigned() -> None:
    more = replace(EXISTING, topics={**EXISTING.topics, "t": Subscribed(TOPIC, 6)})

    assert answered(ONE, beat("a", 2, catalogue=more))[1] == AnswerBeat("a", 3, shares(*range(6)))


def test_a_deleted_topic_is_taken_away_and_its_successor_is_another_topic() -> None:
    group, told = answered(ONE, beat("a", 2, catalogue=Catalogue()))
    assert told == AnswerBeat("a", 2, NOTHING)
    group, _ = answered(group, beat("a", 2, owned=NOTHING, catalogue=Catalogue()))

    anew = Catalogue({"t": Subscribed(b"n" * 16, 1)})

    assert answered(group, beat("a", 3, catalogue=anew))[1].assigned == shares(0, topic=b"n" * 16)


def test_an_expressions_topics_are_assigned_and_followed_and_another_members_heartbeat_does_not_lose_them() -> None:
    matching = replace(EXISTING, matches={"[tu]": frozenset({"t", "u"})})
    group, told = answered(EMPTY, joining("r", topics=(), regex="[tu]", catalogue=matching))
    assert told.assigned == shares(0, 1, 2, 3) | shares(0, 1, topic=OTHER)
    assert group.matches == {"[tu]": {"t", "u"}}

    group = moved(group, joining("a"))

    assert group.wanted == {"t", "u"}
    assert union(group.targets.values()) == told.assigned
    # What nobody subscribes to any more is forgotten.
    assert moved(group, Depart(NOW, "r", None, -1)).wanted == {"t"}


def test_the_assignor_that_most_members_prefer_is_used() -> None:
    group = moved(EMPTY, joining("a"), joining("b", assignor="range"), joining("c", assignor="range"))

    assert group.assignor == "range"
    assert group.targets == {"a": shares(0, 1), "b": shares(2), "c": shares(3)}


# ---- offsets


GAVE_BACK = moved(REVOKING, beat("a", 2, owned=shares(0, 1)))


@pytest.mark.parametrize(
    ("group", "event", "expected"),
    [
        (EMPTY, WriteOffsets("", -1), None),
        (EMPTY, WriteOffsets("a", 2), GroupRefusal.UNKNOWN_MEMBER_ID),
        (ONE, WriteOffsets("a", 2), None),
        (ONE, WriteOffsets("a", 3, shares=shares(0)), GroupRefusal.STALE_MEMBER_EPOCH),
        (ONE, WriteOffsets("a", 1, shares=shares(0)), GroupRefusal.STALE_MEMBER_EPOCH),
        (ONE, WriteOffsets("", -1), GroupRefusal.UNKNOWN_MEMBER_ID),
        (ONE, WriteOffsets("", -1, transactional=True), None),
        (ONE, WriteOffsets("a", 1, transactional=True, shares=shares(0)), GroupRefusal.STALE_MEMBER_EPOCH),
        # What it has had since the epoch that it knows counts, and nothing else.
        (GAVE_BACK, WriteOffsets("a", 2, shares=shares(0, 1)), None),
        (GAVE_BACK, WriteOffsets("a", 2, shares=shares(0, 2)), GroupRefusal.STALE_MEMBER_EPOCH),
        (GAVE_BACK, WriteOffsets("a", 2, shares=frozenset({None})), GroupRefusal.STALE_MEMBER_EPOCH),
        (GAVE_BACK, WriteOffsets("a", 3, shares=shares(2)), None),
        (REVOKING, WriteOffsets("a", 2, shares=shares(3)), None),
        (ONE, ReadOffsets(None, -1), None),
        (ONE, ReadOffsets("", -1), GroupRefusal.UNKNOWN_MEMBER_ID),
        (ONE, ReadOffsets("a", 2), None),
        (ONE, ReadOffsets("a", 1), GroupRefusal.STALE_MEMBER_EPOCH),
    ],
)
def test_a_member_of_this_epoch_may_use_the_offsets(
    group: ConsumerGroup, event: ConsumerEvent, expected: GroupRefusal | None
) -> None:
    assert refusal(group, event) is expected


def test_a_restart_gives_everyone_a_whole_session_and_who_has_to_give_back_a_whole_rebalance_timeout() -> None:
    # As the log has it: without deadlines.
    read = replace(
        REVOKING,
        state=ConsumerGroupState.EMPTY,
        members={each: replace(member, deadline_ms=0, revoke_by_ms=None) for each, member in REVOKING.members.items()},
    )

    group = moved(read, Loaded(NOW))

    assert group.state is ConsumerGroupState.RECONCILING
    assert {each: (member.deadline_ms, member.revoke_by_ms) for each, member in group.members.items()} == {
        "a": (NOW + SESSION, NOW + REBALANCE),
        "b": (NOW + SESSION, None),
    }


# ---- histories


class Client:
    """A member as it should be: uses what it was told, gives back what it was told to give back, and says everything
    anew after a lost answer."""

    def __init__(self, member_id: str, topics: tuple[str, ...]) -> None:
        self.member_id = member_id
        self.topics = topics
        self.epoch = 0
        self.owned: Shares = NOTHING
        self.lost = False

    def event(self, chance: random.Random, now_ms: int, catalogue: Catalogue) -> Beat:
        if self.epoch == 0:
            self.owned = NOTHING
            return joining(self.member_id, topics=self.topics, now_ms=now_ms, catalogue=catalogue)
        if self.lost:
            return beat(
                self.member_id,
                self.epoch,
                now_ms=now_ms,
                catalogue=catalogue,
                owned=self.owned,
                topics=self.topics,
                rebalance_timeout_ms=REBALANCE,
            )
        says = self.owned if chance.random() < 0.7 else None
        return beat(self.member_id, self.epoch, now_ms=now_ms, catalogue=catalogue, owned=says)

    def heard(self, answer: object, *, lost: bool) -> None:
        self.lost = lost
        if lost:
            return
        if isinstance(answer, AnswerBeat):
            self.epoch = answer.epoch
            self.owned = self.owned if answer.assigned is None else answer.assigned
        else:
            self.epoch, self.owned = 0, NOTHING


@pytest.mark.parametrize("seed", range(60))
def test_in_no_history_do_two_members_use_a_partition_and_in_the_end_everyone_has_its_share(seed: int) -> None:
    """Members join, leave, die, subscribe anew, lose answers; topics grow and go. The machine checks its own invariants
    at every step (`broken_invariant`).
    """
    chance = random.Random(seed)
    group, now_ms = EMPTY, NOW
    topics = {"t": Subscribed(TOPIC, 4), "u": Subscribed(OTHER, 2)}
    clients: list[Client] = []

    def say(client: Client, *, lost: bool = False) -> None:
        nonlocal group
        group, (answer,) = handle(group, client.event(chance, now_ms, Catalogue(topics)))
        client.heard(answer, lost=lost)
        owners = [share for each in clients for share in each.owned if each.member_id in group.members]
        assert len(owners) == len(set(owners))

    for step in range(150):
        now_ms += chance.randrange(0, 3_000)
        group = moved(group, Tick(now_ms))
        what = chance.random()
        if what < 0.1 and len(clients) < 6:
            clients.append(Client(f"m{step}", chance.choice([("t",), ("u",), ("t", "u")])))
        elif what < 0.13 and clients:
            gone = clients.pop(chance.randrange(len(clients)))
            if gone.member_id in group.members and chance.random() < 0.5:
                group = moved(group, Depart(now_ms, gone.member_id, None, -1))
        elif what < 0.15:
            topics = {"t": Subscribed(TOPIC, chance.randrange(1, 9)), "u": Subscribed(OTHER, 2)}
        elif clients:
            say(chance.choice(clients), lost=what > 0.95)
    for _ in range(30):
        now_ms += 5_000
        group = moved(group, Tick(now_ms))
        for client in clients:
            say(client)

    assert set(group.members) == {client.member_id for client in clients}
    if clients:
        assert group.state is ConsumerGroupState.STABLE
        assert all(member.phase is Phase.STABLE for member in group.members.values())
        wanted = {name for client in clients for name in client.topics}
        everything = {(topics[name].topic_id, at) for name in wanted for at in range(topics[name].partitions)}
        assert union(client.owned for client in clients) == everything
        assert sum(len(client.owned) for client in clients) == len(everything)
