"""One loop asks until the answer is definite; its forms find the coordinator and the leaders anew. No sockets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn, cast

import pytest

from kafka_core.errors import AuthorizationFailed, BrokerUnavailable, ProtocolViolation, UnknownTopic
from kafka_core.protocol import messages as m
from kafka_core.protocol.error_codes import Action, Code
from kafka_core.values import TopicPartition
from pyspark_kafka_eos.client import definite
from pyspark_kafka_eos.client.asking import ask_coordinator, ask_leader, ask_leaders
from pyspark_kafka_eos.client.cluster import Cluster, CoordinatorKind
from pyspark_kafka_eos.client.definite import Again, Budget, again_or_refuse, until_definite

A, B, C = (TopicPartition("t", number) for number in range(3))
FETCH: int = m.FetchRequest.API_KEY


class Late(Exception):
    """Time was over."""


def late(last: Again) -> NoReturn:
    raise Late(last.reason)


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(definite.runtime, "monotonic", lambda: made.now_s)
    return made


@dataclass
class Clock:
    now_s: float = 1_000.0
    pauses: list[float] = field(default_factory=list)

    def pause(self, delay_ms: float = 0) -> None:
        self.pauses.append(delay_ms)
        self.now_s += delay_ms / 1000


def playing(*answers: object) -> Callable[[], Any]:
    """An attempt that gives these one after the other; exceptions are raised."""
    left: Iterator[object] = iter(answers)

    def attempt() -> object:
        found = next(left)
        if isinstance(found, Exception):
            raise found
        return found

    return attempt


# ---- the loop


def test_what_is_not_definite_is_asked_again_with_a_pause_in_between(clock: Clock) -> None:
    attempt = playing(Again("loading"), BrokerUnavailable("it is gone"), Again("loading"), "done")

    assert until_definite(attempt, deadline_ms=1_000, late=late, pause=clock.pause, pause_ms=7) == "done"
    assert clock.pauses == [7, 7, 7]


@pytest.mark.parametrize("nothing", [None, 0, "", []])
def test_an_answer_that_is_nothing_is_an_answer(clock: Clock, nothing: object) -> None:
    assert until_definite(playing(nothing), deadline_ms=0, late=late, pause=clock.pause) == nothing


def test_there_is_one_attempt_even_without_time_and_none_behind_the_deadline(clock: Clock) -> None:
    attempts: list[float] = []

    def attempt() -> Again:
        attempts.append(clock.now_s)
        return Again("loading")

    with pytest.raises(Late, match="loading"):
        until_definite(attempt, deadline_ms=0, late=late, pause=clock.pause)
    assert len(attempts) == 1
    with pytest.raises(Late):
        until_definite(attempt, deadline_ms=100, late=late, pause=clock.pause, pause_ms=30)
    # At 0, 30, 60, 90 and 120 ms; the last one shows that time is over.
    assert len(attempts) == 6


def test_the_last_reason_is_given_once_time_is_over_and_a_value_may_stand_in(clock: Clock) -> None:
    gone = BrokerUnavailable("broker 3 is gone")
    seen: list[Again] = []

    def stand_in(last: Again) -> str:
        seen.append(last)
        return "unknown"

    attempt = playing(Again("loading"), gone)
    assert until_definite(attempt, deadline_ms=1, late=stand_in, pause=clock.pause) == "unknown"
    assert [(each.reason, each.error) for each in seen] == [(str(gone), gone)]


def test_any_other_error_ends_it_at_once(clock: Clock) -> None:
    with pytest.raises(AuthorizationFailed):
        until_definite(playing(AuthorizationFailed("no"), "never"), deadline_ms=1_000, late=late, pause=clock.pause)
    assert clock.pauses == []


# ---- codes


def refused(action: Action, code: int) -> ProtocolViolation:
    return ProtocolViolation(f"{action.name} {code}")


def test_the_table_of_codes_decides_what_is_asked_again() -> None:
    assert again_or_refuse(FETCH, Code.NONE, refused) is None
    moved = again_or_refuse(FETCH, Code.NOT_LEADER_OR_FOLLOWER, refused, A)
    assert moved == Again(f"NOT_LEADER_OR_FOLLOWER for {A}", moved=True)
    waits = again_or_refuse(FETCH, Code.THROTTLING_QUOTA_EXCEEDED, refused)
    assert waits == Again("THROTTLING_QUOTA_EXCEEDED")
    with pytest.raises(ProtocolViolation, match="AUTHORIZE 29"):
        again_or_refuse(FETCH, Code.TOPIC_AUTHORIZATION_FAILED, refused)


# ---- who is asked


@dataclass
class FakeCluster:
    """Answers as scripted: by (node, request) one after the other."""

    clock: Clock
    answers: dict[Any, list[object]]
    leaders: dict[TopicPartition, int] = field(default_factory=dict)
    elected: dict[TopicPartition, int] = field(default_factory=dict)
    events: list[str] = field(default_factory=list)
    width: int = 3

    @property
    def network(self) -> FakeCluster:
        return self

    def pause(self, delay_ms: float) -> None:
        self.clock.pause(delay_ms)

    def coordinator_id(self, _kind: CoordinatorKind, _key: str) -> int:
        return 1

    def coordinator(self, _kind: CoordinatorKind, key: str, _timeout_ms: float) -> str:
        self.events.append(f"find {key}")
        return "node"

    def forget_coordinator(self, _kind: CoordinatorKind, key: str) -> None:
        self.events.append(f"forget {key}")

    def call(self, node: object, _request: object, _budget: Budget, *, elsewhere: object) -> object:
        found = self.answers[node].pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    def call_many(self, calls: Sequence[tuple[int, Any]], _budget: Budget, *, elsewhere: object) -> list[object]:
        self.events.append("; ".join(f"{node}: {','.join(map(str, asked))}" for node, asked in calls))
        return [self.answers[node].pop(0) for node, _ in calls]

    def named(self, leader: int, name: str) -> str:
        return f"{name} of {leader}"

    def leader(self, where: TopicPartition) -> int:
        return self.leaders.get(where, -1)

    def topic(self, name: str, *, refresh: bool = False, timeout_ms: float = 0) -> FakeCluster:
        if refresh:
            self.refresh_topics([name], timeout_ms)
        return self

    def refresh_topics(self, names: Sequence[str], _timeout_ms: float) -> None:
        self.events.append(f"refresh {','.join(names)}")
        self.leaders.update(self.elected)


def judge(answer: object) -> object:
    return answer


def build() -> m.Message:
    return cast(m.Message, "request")


def coordinator(cluster: FakeCluster) -> object:
    return ask_coordinator(
        cast(Cluster, cluster), CoordinatorKind.TRANSACTION, "id", build, judge, deadline_ms=1_000, late=late
    )


def test_a_coordinator_that_moved_or_is_gone_is_found_anew_and_one_that_loads_is_not(clock: Clock) -> None:
    answers = [Again("it loads"), Again("it moved", moved=True), BrokerUnavailable("gone"), "done"]
    cluster = FakeCluster(clock, {"node": answers})

    assert coordinator(cluster) == "done"
    assert cluster.events == [
        "find id", "find id", "forget id", "find id", "forget id", "find id",
    ]  # fmt: skip


def leader(cluster: FakeCluster, connection: str | None = None) -> object:
    return ask_leader(cast(Cluster, cluster), A, build, judge, deadline_ms=1_000, late=late, connection=connection)


def test_a_leader_that_moved_is_found_anew_and_none_is_waited_for(clock: Clock) -> None:
    answers = {1: [Again("it moved", moved=True)], 2: [Again("slowly"), "done"]}
    cluster = FakeCluster(clock, answers, leaders={A: 1}, elected={A: 2})

    assert leader(cluster) == "done"
    assert cluster.events == ["refresh t"]

    nobody = FakeCluster(clock, {})
    with pytest.raises(Late, match="no leader"):
        leader(nobody)
    # It was looked at every pause, and not behind the deadline.
    assert len(nobody.events) == pytest.approx(1_000 / definite.ELECTION_BACKOFF_MS, abs=2)


def test_a_named_connection_is_one_of_its_own(clock: Clock) -> None:
    cluster = FakeCluster(clock, {"mine of 1": ["done"]}, leaders={A: 1})
    assert leader(cluster, connection="mine") == "done"


def leaders_say(cluster: FakeCluster, wanted: Sequence[TopicPartition]) -> dict[TopicPartition, object]:
    return ask_leaders(
        cast(Cluster, cluster),
        wanted,
        lambda group: cast(m.Message, tuple(each.partition for each in group)),
        lambda answer: cast(dict[TopicPartition, object], answer).items(),
        lambda _, part: part,
        deadline_ms=1_000,
        late=lambda where, last: ProtocolViolation(f"{where}: {last}"),
    )


class Wide(FakeCluster):
    """Its topic has three partitions."""

    def topic(self, name: str, *, refresh: bool = False, timeout_ms: float = 0) -> Any:
        super().topic(name, refresh=refresh, timeout_ms=timeout_ms)
        return type("Topic", (), {"leaders": (-1,) * self.width})


def test_only_what_is_not_definite_is_asked_again_of_whoever_leads_it_then(clock: Clock) -> None:
    answers: dict[Any, list[object]] = {
        1: [{A: "a", B: Again("it moved", moved=True)}, {B: "b"}],
        2: [BrokerUnavailable("gone")],
    }
    cluster = Wide(clock, answers, leaders={A: 1, B: 1, C: 2}, elected={C: 1})
    answers[1][1] = {B: "b", C: "c"}

    assert leaders_say(cluster, [A, B, C, A]) == {A: "a", B: "b", C: "c"}
    assert cluster.events == ["1: 0,1; 2: 2", "refresh t", "1: 1,2"]


def test_a_partition_that_an_answer_lacks_is_asked_for_again_and_named_in_the_end(clock: Clock) -> None:
    cluster = Wide(clock, {1: [{A: "a"}, *[{}] * 100]}, leaders={A: 1, B: 1})
    with pytest.raises(ProtocolViolation, match=f"^{B}: "):
        leaders_say(cluster, [A, B])


def test_nothing_asked_is_nothing_found(clock: Clock) -> None:
    cluster = Wide(clock, {})
    assert leaders_say(cluster, []) == {}
    assert cluster.events == []


def test_a_refused_connection_is_no_reason_to_wait(clock: Clock) -> None:
    cluster = Wide(clock, {1: [AuthorizationFailed("the password is wrong")]}, leaders={A: 1})
    with pytest.raises(AuthorizationFailed):
        leaders_say(cluster, [A])
    assert clock.pauses == []


def test_a_partition_that_its_topic_has_lost_is_waited_for_as_long_as_a_new_topic(clock: Clock) -> None:
    cluster = Wide(clock, {}, width=1)
    began = clock.now_s
    with pytest.raises(UnknownTopic, match="there is no partition 2"):
        ask_leaders(
            cast(Cluster, cluster),
            [C],
            lambda group: cast(m.Message, tuple(group)),
            lambda answer: (),
            lambda _, part: part,
            deadline_ms=60_000,
            late=lambda where, last: ProtocolViolation(f"{where}: {last}"),
        )
    assert clock.now_s - began == pytest.approx(definite.NEW_TOPIC_MS / 1000, abs=0.1)
