"""A broker that hangs is asked about elsewhere while it hangs. No sockets; a second that a call waits is one of the
clock only.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, NoReturn, cast

import pytest

from kafka_core import runtime
from kafka_core.errors import BrokerUnavailable, OutcomeUnknown, ProducerFenced, UnknownTopic, UnsupportedVersion
from kafka_core.protocol import messages as m
from kafka_core.protocol.error_codes import Code
from kafka_core.values import ProducerIdentity, TopicPartition
from pyspark_kafka_eos.client.asking import ask_coordinator, ask_leader, ask_leaders
from pyspark_kafka_eos.client.cluster import Cluster, CoordinatorKind
from pyspark_kafka_eos.client.definite import Again, Budget
from pyspark_kafka_eos.client.net.network import Answer, Elsewhere
from pyspark_kafka_eos.client.others import OtherBrokers
from pyspark_kafka_eos.client.requests.admin import list_transactions
from pyspark_kafka_eos.client.requests.ends import EndRequest, end_many
from pyspark_kafka_eos.client.requests.transactions import Transactions
from pyspark_kafka_eos.client.wire.versions import Versions, built
from pyspark_kafka_eos.model import ClientSettings

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
NEVER = 1e9
_VERSIONS = Versions({key: (0, highest) for key, highest in m.HIGHEST.items()})


@dataclass
class Frozen:
    """Three brokers, the first of which answers `slow_s` after it was asked. From `moved_s` on the others lead its
    partitions and coordinate its ids, and do not list it.
    """

    slow_s: float = NEVER
    moved_s: float = NEVER
    now_s: float = 0.0
    asked: list[tuple[int, str]] = field(default_factory=list)
    done: list[tuple[int, str]] = field(default_factory=list)
    dead: set[int] = field(default_factory=set)
    older: set[int] = field(default_factory=set)
    """Of a version without KIP-939."""
    fencing: set[int] = field(default_factory=set)
    behind: set[int] = field(default_factory=set)
    """Cut off before the topics were created, and before the newest producers began."""
    patience: dict[int, Code] = field(default_factory=dict)
    """With what a coordinator goes on asking for patience."""

    @property
    def fences(self) -> set[int]:
        return self.behind | self.fencing

    @property
    def in_charge(self) -> int:
        return 2 if self.now_s >= self.moved_s else 1

    def brokers(self) -> list[int]:
        return [1, 2, 3]

    def any_node(self, but: Collection[int] = ()) -> int:
        return next((each for each in (1, 2, 3) if each not in but), 1)

    def take_brokers(self, _answer: object) -> None:
        """All three are known."""

    def knows(self, _node: object) -> bool:
        return True

    def named(self, node: int, _use: str) -> int:
        return node

    def dedicated(self, node: int, _use: object, _host: str, _port: int) -> int:
        return node

    def refresh_brokers(self) -> None:
        """They are known."""

    def known_versions(self) -> list[Versions]:
        return [self.versions_of(1)]

    def versions_of(self, node: int, _timeout_ms: int | None = None) -> Versions:
        if node in self.dead:
            raise BrokerUnavailable("it is frozen")
        key: int = m.InitProducerIdRequest.API_KEY
        return Versions({**_VERSIONS.apis, key: (0, m.TWO_PHASE_INIT_VERSION - (node in self.older))}, node)

    def call_many(
        self,
        requests: Sequence[tuple[int, Any]],
        timeout_ms: int | None = None,
        *,
        sent: Callable[[], None] | None = None,
        elsewhere: Elsewhere | None = None,
    ) -> list[Answer]:
        began_s, allowed_s = self.now_s, (timeout_ms or 30_000) / 1000
        made = [(node, built(request, _VERSIONS)) for node, request in requests]
        self.asked += [(node, m.api_name(request.API_KEY)) for node, request in made]
        answers: list[Answer] = [None] * len(made)
        while None in answers:
            for index, (node, request) in enumerate(made):
                hangs = node in self.dead or (node == 1 and self.now_s - began_s < self.slow_s)
                if answers[index] is None and not hangs:
                    answers[index] = self.answer(node, request)
                    self.done.append((node, m.api_name(request.API_KEY)))
            missing = [index for index, answer in enumerate(answers) if answer is None]
            if missing:
                self.now_s += 1
                found = elsewhere(missing) if elsewhere is not None else {}
                for index, answer in found.items():
                    answers[index] = answer
                if self.now_s - began_s >= allowed_s:
                    late = BrokerUnavailable(f"timed out after {timeout_ms} ms")
                    answers = [late if answer is None else answer for answer in answers]
        return answers

    def answer(self, node: int, request: Any) -> Any:
        api = m.api_name(request.API_KEY)
        if node in self.patience and api in ("AddOffsetsToTxn", "EndTxn", "InitProducerId"):
            return SimpleNamespace(error_code=int(self.patience[node]), producer_id=-1, producer_epoch=-1)
        if api == "FindCoordinator":
            known = node if node in self.behind else self.in_charge
            found = [
                SimpleNamespace(error_code=0, key=key, node_id=known, host="b", port=9092)
                for key in request.coordinator_keys
            ]
            return SimpleNamespace(coordinators=found)
        if api == "Metadata":
            leader, epoch = self.in_charge, self.in_charge
            parts = [SimpleNamespace(partition_index=number, leader_id=leader, leader_epoch=epoch) for number in (0, 1)]
            code = int(Code.UNKNOWN_TOPIC_OR_PARTITION) if node in self.behind else 0
            topics = [
                SimpleNamespace(name=each.name, topic_id=None, error_code=code, partitions=[] if code else parts)
                for each in request.topics or ()
            ]
            alive = [each for each in (1, 2, 3) if each != 1 or self.in_charge == 1]
            return SimpleNamespace(topics=topics, brokers=[SimpleNamespace(node_id=each) for each in alive])
        if api == "EndTxn":
            code = int(Code.INVALID_TXN_STATE) if node in self.fences else 0
            return SimpleNamespace(error_code=code, producer_id=7, producer_epoch=1)
        if api == "InitProducerId":
            return SimpleNamespace(error_code=0, producer_id=7, producer_epoch=1)
        if api == "DescribeTransactions":
            states = [
                SimpleNamespace(error_code=int(Code.TRANSACTIONAL_ID_NOT_FOUND), transactional_id=each)
                for each in request.transactional_ids
            ]
            return SimpleNamespace(transaction_states=states)
        if api == "AddOffsetsToTxn":
            return SimpleNamespace(error_code=int(Code.PRODUCER_FENCED) if node in self.fences else 0)
        if api == "ListTransactions":
            return SimpleNamespace(error_code=0, transaction_states=[])
        return SimpleNamespace(node=node)


class FrozenCluster(Cluster):
    """Production's cluster over the three."""

    def __init__(self, brokers: Frozen, settings: ClientSettings) -> None:
        self.settings, self.brokers = settings, brokers
        self.network = cast(Any, brokers)
        self.features = {"transaction.version": 2}
        self._topics, self._coordinators, self._left = {}, {}, {}
        self.gone_topic_ids, self.lacked_until_s = set(), {}
        self._others = OtherBrokers(self.network)

    def pause(self, delay_ms: float = 20) -> None:  # type: ignore[override]
        self.brokers.now_s += delay_ms / 1000


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> Frozen:
    made = Frozen()
    monkeypatch.setattr(runtime, "monotonic", lambda: 1_000.0 + made.now_s)
    return made


@pytest.fixture
def cluster(brokers: Frozen) -> FrozenCluster:
    made = FrozenCluster(brokers, ClientSettings(("frozen:1",)))
    brokers.slow_s = 0.0
    made.refresh_topics(["t"])
    made.coordinators(CoordinatorKind.TRANSACTION, ["pipe:0", "pipe:1"])
    brokers.slow_s = NEVER
    brokers.asked.clear()
    brokers.done.clear()
    return made


def fail(last: Again) -> NoReturn:
    raise last.as_error()


def one_coordinator(cluster: Cluster) -> Any:
    return ask_coordinator(
        cluster, CoordinatorKind.TRANSACTION, "pipe:0", lambda: cluster.build(m.DescribeGroupsRequest, groups=[]),
        lambda answer: answer.node, deadline_ms=60_000, late=fail,
    )  # fmt: skip


def one_leader(cluster: Cluster) -> Any:
    return ask_leader(
        cluster, T0, lambda: cluster.build(m.DescribeGroupsRequest, groups=[]), lambda answer: answer.node,
        deadline_ms=60_000, late=fail,
    )  # fmt: skip


def leaders(cluster: Cluster) -> Any:
    found = ask_leaders(
        cluster, [T0, T1], lambda _: cluster.build(m.DescribeGroupsRequest, groups=[]),
        lambda answer: [(T0, answer.node), (T1, answer.node)], lambda _, node: node,
        deadline_ms=60_000, late=lambda _, last: last.as_error(),
    )  # fmt: skip
    (node,) = set(found.values())
    return node


QUESTIONS = [one_coordinator, one_leader, leaders]


@pytest.mark.parametrize("question", QUESTIONS)
def test_whoever_is_in_charge_now_is_asked_while_the_one_that_was_hangs(
    brokers: Frozen, cluster: Cluster, question: Callable[[Cluster], int]
) -> None:
    """One of three frozen, replaced after 9 s: the query ended after 30 s, as one request had all of the time."""
    brokers.moved_s = 9.0

    assert question(cluster) == 2
    assert 9.0 <= brokers.now_s <= 12.0


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_broker_that_is_slow_and_in_charge_is_waited_for(
    brokers: Frozen, cluster: Cluster, question: Callable[[Cluster], int]
) -> None:
    brokers.slow_s = 20.0

    assert question(cluster) == 1
    assert [each for each in brokers.asked if each[1] == "DescribeGroups"] == [(1, "DescribeGroups")]


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_question_outlives_a_request_that_nobody_answers(
    brokers: Frozen, cluster: Cluster, question: Callable[[Cluster], int]
) -> None:
    """Nobody else is in charge for 40 s: the first request's time is over, and the second one is answered."""
    brokers.moved_s = 40.0

    assert question(cluster) == 2
    assert [each for each in brokers.asked if each == (1, "DescribeGroups")] == [(1, "DescribeGroups")] * 2


def test_the_transactions_of_a_batch_are_ended_by_the_coordinator_that_took_over(
    brokers: Frozen, cluster: Cluster
) -> None:
    brokers.moved_s = 9.0
    requests = [EndRequest(f"pipe:{slot}", ProducerIdentity(7, 0), True, 2) for slot in (0, 1)]

    answers = end_many(cluster, requests)

    assert [answer.definite for answer in answers] == [True, True]
    assert brokers.done.count((2, "EndTxn")) == 2
    assert brokers.now_s <= 12.0


def test_ids_are_described_and_initialised_by_the_coordinator_that_took_over(brokers: Frozen, cluster: Cluster) -> None:
    brokers.moved_s = 9.0
    transactions = Transactions(cluster)

    assert transactions.describe(["pipe:0", "pipe:1"])["pipe:1"].state == "NotFound"
    assert transactions.init_producer_id("pipe:0", 60_000) == ProducerIdentity(7, 1)
    assert brokers.now_s <= 12.0


def test_transactions_are_listed_without_a_broker_that_the_others_no_longer_list(
    brokers: Frozen, cluster: Cluster
) -> None:
    brokers.moved_s = 9.0

    assert list_transactions(cluster) == {}
    assert brokers.now_s <= 12.0
    assert (3, "ListTransactions") in brokers.done


def test_what_any_broker_can_answer_is_asked_of_another_after_a_second_and_of_the_silent_one_last(
    brokers: Frozen, cluster: Cluster
) -> None:
    for _ in range(3):
        assert cluster.call_any(cluster.metadata_request(["t"])).brokers

    assert brokers.asked == [(1, "Metadata"), (2, "Metadata"), (2, "Metadata"), (2, "Metadata")]
    assert brokers.now_s == 1.0


def test_a_topic_that_one_broker_lacks_is_asked_of_the_others_before_it_is_unknown(
    brokers: Frozen, cluster: Cluster
) -> None:
    """A broker that was cut off before the topic was created: the query ended, telling the author to create it."""
    brokers.slow_s, brokers.behind = 0.0, {1, 3}

    assert len(cluster.topic("new").leaders) == 2
    assert brokers.now_s == 0.0


def test_a_topic_that_one_broker_lacks_is_not_unknown_while_the_others_were_silent_a_moment_ago(
    brokers: Frozen, cluster: Cluster
) -> None:
    """They were left out of the question, so the word of one that was cut off was the only one. Found by the
    simulation: the query ended, telling the author to create the topic.
    """
    brokers.slow_s, brokers.behind = 0.0, {1}
    cluster._others.note([2, 3])

    assert len(cluster.topic("new").leaders) == 2
    assert 9.0 < brokers.now_s < 12.0


@pytest.mark.parametrize(("gone", "what"), [({2, 3}, "is not known: a broker lacks it"), ({3}, "does not exist")])
def test_a_topic_is_unknown_where_a_majority_of_the_brokers_lacks_it(
    brokers: Frozen, cluster: Cluster, gone: set[int], what: str
) -> None:
    brokers.slow_s, brokers.behind, brokers.dead = 0.0, {1, 2, 3}, gone

    with pytest.raises((UnknownTopic, BrokerUnavailable), match=what) as refused:
        cluster.topic("new", timeout_ms=20_000)

    assert isinstance(refused.value, UnknownTopic) == (gone == {3})


def test_a_topic_that_every_broker_lacks_is_unknown_after_the_patience_with_a_new_one(
    brokers: Frozen, cluster: Cluster
) -> None:
    brokers.slow_s, brokers.behind = 0.0, {1, 2, 3}

    with pytest.raises(UnknownTopic, match="'new' does not exist"):
        cluster.topic("new")

    assert 2.0 <= brokers.now_s <= 3.0


def test_a_former_coordinator_that_fences_whom_it_does_not_know_is_not_believed(
    brokers: Frozen, cluster: Cluster
) -> None:
    """It was cut off before the caller's epoch was given out. The query ended with ProducerFenced."""
    brokers.slow_s, brokers.moved_s, brokers.behind = 0.0, 0.0, {1}

    Transactions(cluster).add_offsets("pipe:0", ProducerIdentity(7, 1), "group")

    assert [each for each in brokers.done if each[1] == "AddOffsetsToTxn"] == [
        (1, "AddOffsetsToTxn"),
        (2, "AddOffsetsToTxn"),
    ]


def test_who_coordinates_now_is_asked_of_another_broker_than_the_one_that_is_left(
    brokers: Frozen, cluster: Cluster
) -> None:
    """One that was cut off names itself as long as it is asked, and has nothing acknowledged: 29 s of 38, until it
    noticed.
    """
    brokers.slow_s, brokers.moved_s, brokers.behind = 0.0, 0.0, {1}

    cluster.forget_coordinator(CoordinatorKind.TRANSACTION, "pipe:0")

    assert cluster.coordinator(CoordinatorKind.TRANSACTION, "pipe:0") == 2
    assert brokers.asked == [(2, "FindCoordinator")]


@pytest.mark.parametrize("code", [Code.CONCURRENT_TRANSACTIONS, Code.REQUEST_TIMED_OUT])
def test_a_former_coordinator_that_goes_on_asking_for_patience_is_left_behind_a_second(
    brokers: Frozen, cluster: Cluster, code: Code
) -> None:
    """It can have nothing replicated. Its word was waited for until the transaction had timed out at its successor."""
    brokers.slow_s, brokers.moved_s, brokers.behind, brokers.patience = 0.0, 0.0, {1}, {1: code}
    transactions, began_s = Transactions(cluster), brokers.now_s

    transactions.add_offsets("pipe:0", ProducerIdentity(7, 1), "group")
    assert 1 <= brokers.now_s - began_s < 1.1
    assert brokers.done[-1] == (2, "AddOffsetsToTxn")

    fenced_s = brokers.now_s
    assert transactions.fence(["pipe:1"], 60_000) == {"pipe:1": ProducerIdentity(7, 1)}
    assert 1 <= brokers.now_s - fenced_s < 1.1


@pytest.mark.parametrize("code", [Code.CONCURRENT_TRANSACTIONS, Code.REQUEST_TIMED_OUT])
def test_the_end_of_a_transaction_is_asked_of_its_successor_too(brokers: Frozen, cluster: Cluster, code: Code) -> None:
    brokers.slow_s, brokers.moved_s, brokers.behind, brokers.patience = 0.0, 0.0, {1}, {1: code}

    (answer,) = end_many(cluster, [EndRequest("pipe:0", ProducerIdentity(7, 0), True, 2)])

    assert answer.definite
    assert brokers.done[-1] == (2, "EndTxn")


def test_a_coordinator_that_asks_for_patience_and_is_not_replaced_is_doubted_more_and_more_seldom(
    brokers: Frozen, cluster: Cluster
) -> None:
    brokers.slow_s, brokers.patience = 0.0, {1: Code.CONCURRENT_TRANSACTIONS}

    (answer,) = end_many(cluster, [EndRequest("pipe:0", ProducerIdentity(7, 0), True, 2)], 20_000)

    assert not answer.definite
    assert answer.reason
    assert [each for each in brokers.done if each == (2, "FindCoordinator")] == [(2, "FindCoordinator")] * 4


def test_a_former_coordinator_that_knows_nothing_of_a_transaction_does_not_end_the_asking(
    brokers: Frozen, cluster: Cluster
) -> None:
    """A decision was unknown by its word, and the query ended. One look at the others is for all that it refuses."""
    brokers.slow_s, brokers.moved_s, brokers.behind = 0.0, 0.0, {1}
    requests = [EndRequest(f"pipe:{slot}", ProducerIdentity(7, 0), True, 2) for slot in (0, 1)]

    answers = end_many(cluster, requests)

    assert [answer.definite for answer in answers] == [True, True]
    assert brokers.done.count((1, "EndTxn")) == 2
    assert [each for each in brokers.done if each == (1, "FindCoordinator")] == [(1, "FindCoordinator")]


def test_an_end_that_the_coordinator_itself_refuses_proves_nothing_and_is_not_repeated(
    brokers: Frozen, cluster: Cluster
) -> None:
    brokers.slow_s, brokers.fencing = 0.0, {1}

    (answer,) = end_many(cluster, [EndRequest("pipe:0", ProducerIdentity(7, 0), True, 2)])

    assert (answer.definite, answer.code) == (False, Code.INVALID_TXN_STATE)
    assert brokers.done.count((1, "EndTxn")) == 1


@pytest.mark.parametrize(("fencing", "behind"), [({1}, set()), ({1}, {3}), ({1, 2}, {1})])
def test_a_fence_counts_where_most_brokers_have_no_other_coordinator_or_that_one_fences_too(
    brokers: Frozen, cluster: Cluster, fencing: set[int], behind: set[int]
) -> None:
    brokers.slow_s, brokers.fencing, brokers.behind = 0.0, fencing, behind
    brokers.moved_s = 0.0 if 2 in fencing else NEVER

    with pytest.raises(ProducerFenced, match="a newer producer owns this id"):
        Transactions(cluster).add_offsets("pipe:0", ProducerIdentity(7, 1), "group")


def test_nobody_is_asked_for_ever_about_a_broker_that_nobody_replaces(brokers: Frozen, cluster: Cluster) -> None:
    """Every broker hangs: the outcome is unknown by the end of the time that was allowed, and is called so."""
    brokers.dead = {2, 3}

    with pytest.raises(OutcomeUnknown, match=r"InitProducerId for 'pipe:0' got no definite answer"):
        Transactions(cluster).init_producer_id("pipe:0", 60_000)

    assert 60.0 <= brokers.now_s <= 66.0


def test_each_request_gets_a_part_of_the_time_and_never_so_little_that_a_connection_is_lost_for_it(
    brokers: Frozen,
) -> None:
    budget = Budget(40_000)

    assert budget.request_ms(30_000) == 30_000
    brokers.now_s += 30
    assert budget.request_ms(30_000) == 10_000
    brokers.now_s += 10
    assert (budget.left_ms, budget.request_ms(30_000)) == (0.0, 1_000)


# ---- versions


@pytest.mark.parametrize(
    ("older", "dead", "taken"), [(set(), set(), True), ({1}, set(), False), ({3}, set(), False), (set(), {3}, True)]
)
def test_transactions_without_a_timeout_are_taken_only_where_every_broker_has_them(
    brokers: Frozen, cluster: Cluster, older: set[int], dead: set[int], taken: bool
) -> None:
    """A rolling upgrade: the first broker that a process met spoke for all. One that does not answer has no say."""
    brokers.older, brokers.dead = older, dead

    assert cluster.speaks_two_phase is taken


def test_a_coordinator_without_that_version_is_named_and_not_asked(brokers: Frozen) -> None:
    brokers.older = {2}

    with pytest.raises(UnsupportedVersion, match="broker 2 does not support InitProducerId in version 6"):
        brokers.versions_of(2).exactly(m.InitProducerIdRequest, m.TWO_PHASE_INIT_VERSION)
