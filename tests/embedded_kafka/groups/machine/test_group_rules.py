"""What members of a group can rely on: joining, the vote, generations, timeouts, static places."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from embedded_kafka.groups.machine.moves import (
    NEW_MEMBER_JOIN_TIMEOUT_MS,
    AnswerCode,
    AnswerJoin,
    AnswerLeave,
    AnswerSync,
    CommitOffsets,
    Delete,
    Effect,
    Event,
    Group,
    GroupRefusal,
    GroupState,
    Heartbeat,
    Join,
    Leave,
    Limits,
    Loaded,
    NotStored,
    Store,
    Sync,
    Tick,
    handle,
)

SESSION, REBALANCE = 10_000, 60_000
Protocols = tuple[tuple[str, bytes], ...]
RANGE: Protocols = (("range", b"r"),)


@dataclass
class Story:
    """A group and everything that was answered, by ticket."""

    group: Group = field(default_factory=lambda: Group("g"))
    now_ms: int = 1_000
    answers: dict[int, AnswerJoin | AnswerSync] = field(default_factory=dict)
    stored: list[Group] = field(default_factory=list)
    tickets: int = 0

    def do(self, event: Event) -> tuple[Effect, ...]:
        self.group, effects = handle(self.group, event)
        for effect in effects:
            if isinstance(effect, AnswerJoin | AnswerSync):
                assert effect.ticket not in self.answers, "answered twice"
                self.answers[effect.ticket] = effect
            elif isinstance(effect, Store):
                self.stored.append(self.group)
        return effects

    def join(
        self, member_id: str = "", *, new_id: str = "", instance_id: str | None = None, known: bool = False,
        protocols: Protocols = RANGE, kind: str = "consumer", skips: bool = True, rebalance_ms: int = REBALANCE,
    ) -> int:  # fmt: skip
        self.tickets += 1
        event = Join(
            self.now_ms, self.tickets, member_id, new_id or f"new-{self.tickets}", instance_id, "client", "/host",
            SESSION, rebalance_ms, kind, protocols, known, skips,
        )  # fmt: skip
        self.do(event)
        return self.tickets

    def sync(
        self,
        member_id: str,
        *,
        generation: int | None = None,
        instance_id: str | None = None,
        kind: str | None = None,
        protocol: str | None = None,
        **assignments: bytes,
    ) -> int:
        self.tickets += 1
        generation = self.group.generation if generation is None else generation
        parts = tuple(assignments.items())
        self.do(Sync(self.now_ms, self.tickets, generation, member_id, instance_id, kind, protocol, parts))
        return self.tickets

    def ask(self, event: Event) -> GroupRefusal | None:
        (answer,) = self.do(event)
        assert isinstance(answer, AnswerCode)
        return answer.refusal

    def beat(
        self, member_id: str, generation: int | None = None, instance_id: str | None = None
    ) -> GroupRefusal | None:
        generation = self.group.generation if generation is None else generation
        return self.ask(Heartbeat(self.now_ms, generation, member_id, instance_id))

    def tick(self, by_ms: int) -> None:
        self.now_ms += by_ms
        self.do(Tick(self.now_ms))

    def joined(self, ticket: int) -> AnswerJoin:
        answer = self.answers[ticket]
        assert isinstance(answer, AnswerJoin)
        return answer

    def synced(self, ticket: int) -> AnswerSync:
        answer = self.answers[ticket]
        assert isinstance(answer, AnswerSync)
        return answer


def stable(*members: str, static: bool = False) -> Story:
    """A group that is stable with these members; the first one leads."""
    story = Story()
    for name in members:
        story.join(new_id=name, instance_id=f"i-{name}" if static else None)
        for other in list(story.group.members):
            if story.group.state is GroupState.PREPARING_REBALANCE and other != name:
                story.join(other, instance_id=story.group.members[other].instance_id)
    story.sync(members[0], **{name: f"of {name}".encode() for name in members})
    for name in members[1:]:
        story.sync(name)
    assert story.group.state is GroupState.STABLE
    assert list(story.group.members) == list(members)
    assert story.group.leader == members[0]
    return story


# ---- joining


def test_a_client_of_today_is_told_its_member_id_and_joins_with_it() -> None:
    story = Story()

    first = story.joined(story.join(new_id="client-1", known=True))
    assert (first.refusal, first.member_id) == (GroupRefusal.MEMBER_ID_REQUIRED, "client-1")
    assert story.group.state is GroupState.EMPTY and not story.group.members

    second = story.joined(story.join("client-1", known=True))
    assert (second.refusal, second.member_id, second.generation) == (None, "client-1", 1)
    assert story.group.pending == {}


def test_a_member_id_that_is_not_used_within_the_session_is_forgotten() -> None:
    story = Story()
    story.join(new_id="client-1", known=True)

    story.tick(SESSION - 1)
    assert set(story.group.pending) == {"client-1"}
    story.tick(1)

    assert story.group.pending == {}
    assert story.joined(story.join("client-1")).refusal is GroupRefusal.UNKNOWN_MEMBER_ID


def test_an_instance_id_under_a_reserved_member_id_is_refused() -> None:
    story = Story()
    story.join(new_id="client-1", known=True)
    assert story.joined(story.join("client-1", instance_id="i")).refusal is GroupRefusal.UNKNOWN_SERVER_ERROR
    assert not story.group.members


def test_two_members_get_one_generation_and_only_the_leader_is_told_of_both() -> None:
    story = stable("a")
    waiting = story.join(new_id="b")
    assert waiting not in story.answers
    assert story.beat("a") is GroupRefusal.REBALANCE_IN_PROGRESS

    again = story.join("a")

    leader, follower = story.joined(again), story.joined(waiting)
    assert (leader.generation, follower.generation) == (2, 2)
    assert (leader.leader, follower.leader) == ("a", "a")
    assert leader.members == (("a", None, b"r"), ("b", None, b"r"))
    assert follower.members == ()


def test_a_rebalance_waits_for_reserved_member_ids_until_they_expire() -> None:
    story = stable("a")
    story.join(new_id="b", known=True)
    rejoined = story.join("a")
    assert rejoined not in story.answers, "b is expected"

    story.tick(SESSION)

    assert story.joined(rejoined).generation == 2
    assert set(story.group.members) == {"a"}


def test_the_initial_delay_is_lengthened_by_whoever_joins_meanwhile_up_to_the_rebalance_timeout() -> None:
    story = Story(Group("g", Limits(initial_rebalance_delay_ms=3_000)))
    first = story.join(new_id="a", rebalance_ms=7_000)
    story.tick(2_000)
    second = story.join(new_id="b", rebalance_ms=7_000)
    story.tick(1_000)
    assert not story.answers, "b came during the first delay, so there is a second one"
    story.tick(1_000)
    third = story.join(new_id="c", rebalance_ms=7_000)
    story.tick(2_000)
    assert not story.answers, "c came during the second"
    story.tick(1_000)

    assert {story.joined(ticket).generation for ticket in (first, second, third)} == {1}
    assert len(story.joined(first).members) == 3


def test_a_repeated_join_of_a_waiting_member_refuses_the_first_one() -> None:
    story = stable("a", "b")
    first = story.join("a")
    second = story.join("a")

    assert story.joined(first).refusal is GroupRefusal.REBALANCE_IN_PROGRESS
    story.join("b")
    assert story.joined(second).generation == story.group.generation


def test_a_member_that_missed_its_answer_gets_the_same_generation_again() -> None:
    story = stable("a", "b")
    story.join("a")
    story.join("b")
    assert story.group.state is GroupState.COMPLETING_REBALANCE
    generation = story.group.generation

    leader, follower = story.joined(story.join("a")), story.joined(story.join("b"))

    assert (leader.generation, follower.generation) == (generation, generation)
    assert [len(answer.members) for answer in (leader, follower)] == [2, 0]
    assert story.group.state is GroupState.COMPLETING_REBALANCE


@pytest.mark.parametrize(
    ("who", "protocols", "rebalances"),
    [("a", RANGE, True), ("b", RANGE, False), ("b", (("range", b"other topics"),), True)],
)
def test_in_a_stable_group_only_the_leader_or_other_metadata_starts_a_rebalance(
    who: str, protocols: Protocols, rebalances: bool
) -> None:
    story = stable("a", "b")
    ticket = story.join(who, protocols=protocols)
    assert (story.group.state is GroupState.PREPARING_REBALANCE) is rebalances
    assert (ticket not in story.answers) is rebalances


# ---- the vote


def test_the_protocol_is_the_one_that_most_members_prefer_of_those_that_all_support() -> None:
    story = Story()
    story.join(new_id="a", protocols=(("x", b"ax"), ("y", b"ay"), ("z", b"az")))
    story.join(new_id="b", protocols=(("z", b"bz"), ("y", b"by"), ("w", b"bw")))
    story.join("a", protocols=(("x", b"ax"), ("y", b"ay"), ("z", b"az")))
    story.join(new_id="c", protocols=(("y", b"cy"), ("z", b"cz")))
    story.join("a", protocols=(("x", b"ax"), ("y", b"ay"), ("z", b"az")))
    last = story.join("b", protocols=(("z", b"bz"), ("y", b"by"), ("w", b"bw")))

    assert story.joined(last).protocol_name == "y", "a and c prefer it of {y, z}; only b prefers z"
    assert story.group.members["a"].metadata("y") == b"ay"


@pytest.mark.parametrize(
    ("kind", "protocols"),
    [("connect", RANGE), ("consumer", (("other", b""),)), ("consumer", ()), ("", RANGE)],
)
def test_a_member_without_anything_in_common_is_refused_and_the_group_goes_on(kind: str, protocols: Protocols) -> None:
    story = stable("a")
    before = story.group
    answer = story.joined(story.join(new_id="b", kind=kind, protocols=protocols))
    assert answer.refusal is GroupRefusal.INCONSISTENT_GROUP_PROTOCOL
    assert story.group == before


@pytest.mark.parametrize(("kind", "protocols"), [("", RANGE), ("consumer", ())])
def test_the_first_member_must_name_a_protocol(kind: str, protocols: Protocols) -> None:
    story = Story()
    answer = story.joined(story.join(kind=kind, protocols=protocols))
    assert answer.refusal is GroupRefusal.INCONSISTENT_GROUP_PROTOCOL
    assert story.group == Group("g")


def test_an_emptied_group_may_be_joined_by_another_kind_of_member() -> None:
    story = stable("a")
    story.do(Leave(story.now_ms, (("a", None),)))
    answer = story.joined(story.join(kind="connect", protocols=(("sessioned", b""),)))
    assert (answer.refusal, answer.protocol_type, answer.generation) == (None, "connect", 3)


# ---- the assignment


def test_followers_wait_for_the_leader_and_whoever_it_left_out_gets_nothing() -> None:
    story = stable("a", "b", "c")
    for name in ("a", "b", "c"):
        story.join(name)
    early = story.sync("b")
    assert early not in story.answers

    by_leader = story.sync("a", a=b"A", b=b"B", stranger=b"?")
    late = story.sync("c")

    assert [story.synced(ticket).assignment for ticket in (by_leader, early, late)] == [b"A", b"B", b""]
    assert story.synced(late).refusal is None
    assert {each: member.assignment for each, member in story.stored[-1].members.items()} == {
        "a": b"A",
        "b": b"B",
        "c": b"",
    }


def test_an_assignment_that_could_not_be_stored_is_refused_to_all_and_the_group_starts_over() -> None:
    story = stable("a", "b")
    story.join("a")
    story.join("b")
    follower = story.sync("b")
    before = story.group
    event = Sync(story.now_ms, 99, before.generation, "a", assignments=(("a", b"A"),))

    story.do(NotStored(event, GroupRefusal.NOT_COORDINATOR, story.now_ms))

    assert story.synced(99).refusal is GroupRefusal.NOT_COORDINATOR
    assert story.synced(follower).refusal is GroupRefusal.NOT_COORDINATOR
    assert story.group.state is GroupState.PREPARING_REBALANCE


@pytest.mark.parametrize(
    ("generation", "kind", "protocol", "refusal"),
    [
        (0, None, None, GroupRefusal.ILLEGAL_GENERATION),
        (9, None, None, GroupRefusal.ILLEGAL_GENERATION),
        (None, "connect", None, GroupRefusal.INCONSISTENT_GROUP_PROTOCOL),
        (None, "consumer", "roundrobin", GroupRefusal.INCONSISTENT_GROUP_PROTOCOL),
    ],
)
def test_a_sync_of_another_generation_or_protocol_is_refused(
    generation: int | None, kind: str | None, protocol: str | None, refusal: GroupRefusal
) -> None:
    story = stable("a")
    before = story.group
    answer = story.synced(story.sync("a", generation=generation, kind=kind, protocol=protocol))
    assert answer.refusal is refusal
    assert story.group == before


def test_a_new_member_sends_those_who_wait_for_the_assignment_back_to_join() -> None:
    story = stable("a", "b")
    story.join("a")
    story.join("b")
    follower = story.sync("b")
    story.join(new_id="c")
    assert story.synced(follower).refusal is GroupRefusal.REBALANCE_IN_PROGRESS
    assert story.group.state is GroupState.PREPARING_REBALANCE


# ---- time


def test_a_silent_member_is_out_after_its_session_and_the_others_rebalance() -> None:
    story = stable("a", "b")
    story.tick(SESSION - 1)
    assert story.beat("a") is None
    story.tick(1)

    assert set(story.group.members) == {"a"}
    assert story.group.state is GroupState.PREPARING_REBALANCE
    assert story.beat("b") is GroupRefusal.UNKNOWN_MEMBER_ID


def test_a_member_that_waits_for_the_others_needs_no_heartbeats() -> None:
    story = stable("a", "b")
    waiting = story.join("a")
    for _ in range(5):
        story.tick(SESSION - 1)
        assert story.beat("b") is GroupRefusal.REBALANCE_IN_PROGRESS
    assert waiting not in story.answers and "a" in story.group.members


def test_a_new_member_that_waits_too_long_for_its_first_answer_is_out() -> None:
    story = Story(stable("a").group)
    ticket = story.join(new_id="b", rebalance_ms=10 * NEW_MEMBER_JOIN_TIMEOUT_MS)
    elapsed = 0
    while "b" in story.group.members and elapsed < 2 * NEW_MEMBER_JOIN_TIMEOUT_MS:
        story.tick(SESSION - 1)
        elapsed += SESSION - 1
        story.beat("a")
    assert NEW_MEMBER_JOIN_TIMEOUT_MS <= elapsed <= NEW_MEMBER_JOIN_TIMEOUT_MS + SESSION
    assert story.joined(ticket).refusal is GroupRefusal.UNKNOWN_MEMBER_ID


def test_members_that_do_not_join_within_the_rebalance_timeout_are_left_behind() -> None:
    story = stable("a", "b")
    ticket = story.join("b", protocols=(("range", b"new"),))
    for _ in range(REBALANCE // 5_000):
        assert ticket not in story.answers
        story.beat("a")
        story.tick(5_000)

    answer = story.joined(ticket)
    assert (answer.leader, answer.generation) == ("b", story.group.generation)
    assert set(story.group.members) == {"b"}


def test_members_that_do_not_sync_within_the_rebalance_timeout_are_out() -> None:
    story = stable("a", "b")
    story.join("a")
    story.join("b")
    follower = story.sync("b")
    for _ in range(REBALANCE // 5_000):
        assert "a" in story.group.members
        story.beat("a")
        story.tick(5_000)

    assert "a" not in story.group.members
    assert story.synced(follower).refusal is GroupRefusal.REBALANCE_IN_PROGRESS
    assert story.group.leader == "b"


def test_a_group_whose_last_member_goes_is_empty_under_a_new_generation_and_stored() -> None:
    story = stable("a")
    story.do(Leave(story.now_ms, (("a", None),)))
    assert (story.group.state, story.group.generation, story.group.leader) == (GroupState.EMPTY, 2, None)
    assert story.stored[-1] == story.group
    assert story.group.state_since_ms == story.now_ms


def test_a_loaded_group_gives_its_members_a_whole_session_to_be_heard_of() -> None:
    story = stable("a")
    story.now_ms += 10 * SESSION
    story.do(Loaded(story.now_ms))
    story.tick(SESSION - 1)
    assert story.group.state is GroupState.STABLE
    story.tick(1)
    assert story.group.state is GroupState.EMPTY


def test_a_loaded_group_above_a_lowered_limit_rebalances() -> None:
    story = Story(stable("a", "b").group)
    story.group = Group("g", Limits(max_members=1), GroupState.STABLE, 2, "consumer", "range", "a", story.group.members)
    story.do(Loaded(story.now_ms))
    assert story.group.state is GroupState.PREPARING_REBALANCE
    kept = story.join("a")
    assert story.joined(story.join("b")).refusal is GroupRefusal.GROUP_MAX_SIZE_REACHED
    assert story.joined(kept).refusal is None


# ---- generations and commits


@pytest.mark.parametrize("generation", [0, 2])
def test_a_stale_generation_is_refused_by_heartbeat_and_commit(generation: int) -> None:
    story = stable("a")
    assert story.beat("a", generation) is GroupRefusal.ILLEGAL_GENERATION
    assert story.ask(CommitOffsets(story.now_ms, generation, "a")) is GroupRefusal.ILLEGAL_GENERATION


@pytest.mark.parametrize("transactional", [False, True])
def test_only_an_empty_group_takes_commits_of_nobody_except_in_transactions(transactional: bool) -> None:
    nobody = CommitOffsets(0, -1, "", None, transactional)
    assert Story().ask(nobody) is None
    assert stable("a").ask(nobody) is (None if transactional else GroupRefusal.UNKNOWN_MEMBER_ID)


@pytest.mark.parametrize("transactional", [False, True])
def test_while_the_assignment_is_awaited_only_transactions_commit(transactional: bool) -> None:
    story = stable("a")
    story.join("a")
    event = CommitOffsets(story.now_ms, story.group.generation, "a", None, transactional)
    assert story.ask(event) is (None if transactional else GroupRefusal.REBALANCE_IN_PROGRESS)


def test_the_previous_generation_may_commit_while_the_next_one_gathers() -> None:
    story = stable("a", "b")
    story.join(new_id="c")
    assert story.ask(CommitOffsets(story.now_ms, story.group.generation, "a")) is None


def test_a_commit_keeps_a_session_alive_unless_it_is_a_producers() -> None:
    for transactional in (False, True):
        story = stable("a")
        story.now_ms += SESSION - 1
        story.ask(CommitOffsets(story.now_ms, 1, "a", None, transactional))
        story.tick(1)
        assert ("a" in story.group.members) is not transactional


# ---- static members


def test_a_static_member_that_returns_has_its_place_and_assignment_without_a_rebalance() -> None:
    story = stable("a", "b", static=True)
    answer = story.joined(story.join(new_id="b2", instance_id="i-b"))

    assert (answer.refusal, answer.member_id, answer.generation) == (None, "b2", story.group.generation)
    assert story.group.state is GroupState.STABLE
    assert story.stored[-1].members.keys() == {"a", "b2"}, "its new id is stored before it is told"
    assert story.synced(story.sync("b2", instance_id="i-b")).assignment == b"of b"


def test_whoever_had_the_static_place_before_is_fenced() -> None:
    story = stable("a", "b", static=True)
    story.join(new_id="b2", instance_id="i-b")
    generation = story.group.generation

    assert story.beat("b", generation, "i-b") is GroupRefusal.FENCED_INSTANCE_ID
    assert story.synced(story.sync("b", instance_id="i-b")).refusal is GroupRefusal.FENCED_INSTANCE_ID
    assert story.joined(story.join("b", instance_id="i-b")).refusal is GroupRefusal.FENCED_INSTANCE_ID
    assert story.ask(CommitOffsets(story.now_ms, generation, "b", "i-b", True)) is GroupRefusal.FENCED_INSTANCE_ID
    assert story.do(Leave(story.now_ms, (("b", "i-b"),))) == (AnswerLeave((GroupRefusal.FENCED_INSTANCE_ID,)),)
    assert story.group.members.keys() == {"a", "b2"}


def test_requests_of_a_replaced_static_member_that_still_wait_are_fenced() -> None:
    story = stable("a", "b", static=True)
    story.join("a", instance_id="i-a")
    joining = story.join("b", instance_id="i-b")
    syncing = story.sync("b", instance_id="i-b")
    assert joining in story.answers and syncing not in story.answers

    story.join(new_id="b2", instance_id="i-b")

    assert story.synced(syncing).refusal is GroupRefusal.FENCED_INSTANCE_ID
    assert story.group.state is GroupState.PREPARING_REBALANCE
    waiting = story.join("b2", instance_id="i-b")
    story.join(new_id="b3", instance_id="i-b")
    assert story.joined(waiting).refusal is GroupRefusal.FENCED_INSTANCE_ID


@pytest.mark.parametrize("skips", [True, False])
def test_a_returning_static_leader_is_told_to_skip_the_assignment_or_not_that_it_leads(skips: bool) -> None:
    story = stable("a", "b", static=True)
    answer = story.joined(story.join(new_id="a2", instance_id="i-a", skips=skips))
    assert story.group.leader == "a2"
    if skips:
        assert (answer.leader, answer.skip_assignment, len(answer.members)) == ("a2", True, 2)
    else:
        assert (answer.leader, answer.skip_assignment, answer.members) == ("a", False, ())


def test_a_returning_static_member_that_changes_the_vote_starts_a_rebalance() -> None:
    story = Story()
    both = (("x", b""), ("y", b""))
    story.join(new_id="a", instance_id="i-a", protocols=both)
    story.sync("a")
    assert story.group.protocol_name == "x"
    story.join(new_id="a2", instance_id="i-a", protocols=(("y", b""), ("x", b"")))
    assert story.group.state is GroupState.COMPLETING_REBALANCE and story.group.protocol_name == "y"


def test_a_static_member_that_could_not_be_stored_is_not_back() -> None:
    story = stable("a", static=True)
    before = story.group
    event = Join(story.now_ms, 99, "", "a2", "i-a", "c", "/h", SESSION, REBALANCE, "consumer", RANGE, False, True)
    story.do(NotStored(event, GroupRefusal.NOT_COORDINATOR, story.now_ms))
    assert story.joined(99).refusal is GroupRefusal.NOT_COORDINATOR
    assert story.group == before


def test_static_members_that_do_not_join_keep_their_places_until_their_sessions_end() -> None:
    story = stable("a", "b", static=True)
    ticket = story.join("a", instance_id="i-a", rebalance_ms=SESSION // 2)
    story.do(Heartbeat(story.now_ms, story.group.generation, "b", "i-b"))
    while ticket not in story.answers:
        story.tick(SESSION - 1)
        story.beat("b", instance_id="i-b")
    assert story.group.members.keys() == {"a", "b"}
    story.tick(SESSION)
    assert "b" not in story.group.members


def test_a_static_leader_that_does_not_come_back_in_time_keeps_its_place_and_loses_the_lead() -> None:
    story = stable("a", "b", static=True)
    ticket = story.join("b", instance_id="i-b", protocols=(("range", b"new"),))
    for _ in range(REBALANCE // 5_000):
        assert ticket not in story.answers
        story.beat("a", instance_id="i-a")
        story.tick(5_000)

    assert story.joined(ticket).leader == "b"
    assert story.group.members.keys() == {"a", "b"}


def test_an_administrator_removes_a_static_member_by_its_instance_id_alone() -> None:
    story = stable("a", "b", static=True)
    effects = story.do(Leave(story.now_ms, (("", "i-b"), ("", "i-nobody"), ("", None))))
    assert effects[-1] == AnswerLeave((None, GroupRefusal.UNKNOWN_MEMBER_ID, GroupRefusal.UNKNOWN_MEMBER_ID))
    assert story.group.members.keys() == {"a"}


# ---- limits and the end


def test_a_full_group_takes_nobody_else_and_goes_on() -> None:
    story = Story(Group("g", Limits(max_members=1)))
    story.join(new_id="a")
    story.sync("a")
    before = story.group
    answer = story.joined(story.join(new_id="b"))
    assert (answer.refusal, answer.member_id) == (GroupRefusal.GROUP_MAX_SIZE_REACHED, "")
    assert story.group == before


def test_no_more_member_ids_are_held_back_than_members_fit() -> None:
    story = Story(Group("g", Limits(max_members=3)))
    answers = [story.joined(story.join(new_id=f"m{n}", known=True)).refusal for n in range(5)]
    assert answers == [GroupRefusal.MEMBER_ID_REQUIRED] * 3 + [GroupRefusal.GROUP_MAX_SIZE_REACHED] * 2
    assert len(story.group.pending) == 3


def test_a_member_that_leaves_while_it_waits_is_refused_what_it_waits_for() -> None:
    story = stable("a", "b")
    joining = story.join("a")
    story.do(Leave(story.now_ms, (("a", None),)))
    assert story.joined(joining).refusal is GroupRefusal.UNKNOWN_MEMBER_ID

    story.join("b")
    story.join(new_id="c")
    story.join("b")
    syncing = story.sync("c")
    story.do(Leave(story.now_ms, (("c", None),)))
    assert story.synced(syncing).refusal is GroupRefusal.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("seed", range(40))
def test_whatever_happens_every_ticket_is_answered_once_and_the_group_stays_sound(seed: int) -> None:
    chance = random.Random(seed)
    story = Story(Group("g", Limits(max_members=4, initial_rebalance_delay_ms=chance.choice([0, 3_000]))))
    for _ in range(300):
        step(story, chance)
        check(story.group)
    story.tick(2 * NEW_MEMBER_JOIN_TIMEOUT_MS)
    story.tick(2 * NEW_MEMBER_JOIN_TIMEOUT_MS)
    story.tick(2 * NEW_MEMBER_JOIN_TIMEOUT_MS)
    assert story.group.state is GroupState.EMPTY
    assert story.answers.keys() == set(range(1, story.tickets + 1))


def step(story: Story, chance: random.Random) -> None:
    group = story.group
    known = [*group.members, *group.pending, "nobody"]
    who = chance.choice(known)
    member = group.members.get(who)
    instance_id = member.instance_id if member else None
    generation = group.generation - chance.choice([0, 0, 0, 1])
    kind = chance.randrange(9)
    if kind <= 1:
        story.join(known=chance.random() < 0.5, protocols=chance.choice([RANGE, (("range", b"2"), ("x", b""))]))
    elif kind == 2:
        story.join(instance_id=chance.choice(["i1", "i2"]), skips=chance.random() < 0.5)
    elif kind == 3:
        story.join(who, instance_id=instance_id, protocols=chance.choice([RANGE, (("range", b"2"),)]))
    elif kind == 4:
        story.sync(who, generation=generation, instance_id=instance_id, **dict.fromkeys(group.members, b"part"))
    elif kind == 5:
        story.ask(Heartbeat(story.now_ms, generation, who, instance_id))
    elif kind == 6:
        story.do(Leave(story.now_ms, ((who, instance_id),)))
    elif kind == 7:
        story.ask(CommitOffsets(story.now_ms, generation, who, instance_id, chance.random() < 0.5))
    else:
        story.tick(chance.choice([10, 3_000, SESSION, REBALANCE]))


def check(group: Group) -> None:
    """What must hold of any group."""
    members = group.members
    assert all(each == member.member_id for each, member in members.items())
    assert len(members) <= group.limits.max_members * 2 and len(group.pending) <= group.limits.max_members
    assert not members.keys() & group.pending.keys()
    assert group.awaited <= members.keys()
    instances = [member.instance_id for member in members.values() if member.static]
    assert len(instances) == len(set(instances))
    assert (group.leader in members) if members else group.leader is None
    assert (group.join_deadline_ms is not None) == (group.state is GroupState.PREPARING_REBALANCE)
    if group.state is GroupState.EMPTY:
        assert not members
    if group.state in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE):
        assert members
        assert all(member.join_ticket is None for member in members.values())
        assert all(any(name == group.protocol_name for name, _ in m.protocols) for m in members.values())
    if group.state is not GroupState.COMPLETING_REBALANCE:
        assert all(member.sync_ticket is None for member in members.values())
    assert (group.sync_deadline_ms is not None) == bool(group.awaited)


def test_the_checker_rejects_unsound_groups() -> None:
    group = stable("a", "b").group
    members = dict(group.members)
    for broken in (
        Group("g", leader="a"),
        Group("g", state=GroupState.STABLE),
        Group("g", state=GroupState.EMPTY, members=members, leader="a"),
        Group("g", state=GroupState.STABLE, members=members, leader="a", protocol_name="nobody's"),
        Group("g", state=GroupState.PREPARING_REBALANCE),
    ):
        with pytest.raises(AssertionError):
            check(broken)
    check(group)
    assert handle(group, Delete(0))[0] == group
