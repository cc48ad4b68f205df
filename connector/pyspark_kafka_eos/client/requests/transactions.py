"""Requests to the transaction and group coordinators, each retried until its answer is definite or time is
over.

Owns: finding the coordinator, retrying what may be retried, turning codes into this package's errors.
Does not know: the state of a session or a commit; it keeps none.
Invariants:
- Nothing is reported as done or as failed without an answer that proves it.
- A request without a definite answer raises OutcomeUnknown.
Sources: KIP-98, KIP-360 (InitProducerId with the current identity), KIP-447, KIP-664 (DescribeTransactions), KIP-890.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from kafka_core import runtime
from kafka_core.errors import AuthorizationFailed, BrokerUnavailable, ExactlyOnceError
from kafka_core.protocol import messages as m
from kafka_core.protocol.error_codes import Action, Code
from kafka_core.values import NO_EPOCH, NO_PRODUCER_ID, ProducerIdentity, TopicPartition, by_topic
from pyspark_kafka_eos.client import elsewhere
from pyspark_kafka_eos.client.asking import ask_coordinator
from pyspark_kafka_eos.client.cluster import Cluster, CoordinatorKind
from pyspark_kafka_eos.client.coordinator_answers import codes_of, decisive_code, error_of, no_answer
from pyspark_kafka_eos.client.definite import Again, Budget, again_or_refuse, until_definite
from pyspark_kafka_eos.client.every_broker import is_alone, require_coordinators
from pyspark_kafka_eos.client.reading.group_offsets import committed_fields
from pyspark_kafka_eos.client.requests.ends import EndAnswer, EndRequest, end_many
from pyspark_kafka_eos.client.requests.fencing import fence_many
from pyspark_kafka_eos.client.wire.versions import Build, Versions
from pyspark_kafka_eos.model import GroupOffsets, placed

log = logging.getLogger(__name__)

GONE_MS = 10_000
"""How long the group's coordinator may lack a topic before the topic counts as gone: its metadata may lag,
and the decision's transaction lasts for 60 s at most. With half, a busy broker costs the group an offset;
with double, the decision waits longer."""


@dataclass(frozen=True)
class TransactionView:
    """The coordinator's state of an id; `state` is Kafka's name, "NotFound" where it has none."""

    transactional_id: str
    state: str
    identity: ProducerIdentity
    timeout_ms: int = 0
    start_time_ms: int = -1
    partitions: frozenset[TopicPartition] = frozenset()

    def is_open_under(self, identity: ProducerIdentity | None) -> bool:
        """Whether this producer's transaction is open, and nobody has begun to end it."""
        return self.state == "Ongoing" and self.identity == identity


class Transactions:
    """The coordinator's requests on one cluster. Stateless; safe to use from several threads."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    # ---- identities

    def init_producer_id(
        self,
        transactional_id: str | None,
        transaction_timeout_ms: int,
        current: ProducerIdentity | None = None,
        deadline_ms: float | None = None,
        *,
        two_phase: bool = False,
    ) -> ProducerIdentity:
        """A producer identity. For a transactional id this fences older owners and aborts their open
        transactions; with `current`, only if no other producer has done so in between (KIP-360), else it
        raises ProducerFenced. `two_phase`: the transaction has no timeout, whatever `transaction_timeout_ms`
        is (KIP-939); AuthorizationFailed where the broker does not allow that.
        """
        fields: dict[str, Any] = {
            "transactional_id": transactional_id,
            "transaction_timeout_ms": transaction_timeout_ms,
            "producer_id": current.producer_id if current else NO_PRODUCER_ID,
            "producer_epoch": current.epoch if current else NO_EPOCH,
        }

        def without_timeout(versions: Versions) -> m.Message:
            version = versions.exactly(m.InitProducerIdRequest, m.TWO_PHASE_INIT_VERSION)
            return m.InitProducerIdRequest(version=version, enable2_pc=True, keep_prepared_txn=False, **fields)

        def build() -> Build:
            return without_timeout if two_phase else self.cluster.build(m.InitProducerIdRequest, **fields)

        if transactional_id is None:
            answer = self._ask_any(build(), deadline_ms)
        else:
            answer = self._until_definite(
                m.InitProducerIdRequest,
                CoordinatorKind.TRANSACTION,
                transactional_id,
                build,
                lambda each: [each.error_code],
                deadline_ms,
            )
        return ProducerIdentity(answer.producer_id, answer.producer_epoch)

    def fence(self, transactional_ids: Iterable[str], timeout_ms: int) -> dict[str, ProducerIdentity]:
        """`init_producer_id` for many ids, all at once; see `fencing.fence_many`."""
        return fence_many(self.cluster, transactional_ids, timeout_ms)

    # ---- contents

    def add_partitions(
        self,
        transactional_id: str,
        identity: ProducerIdentity,
        partitions: Iterable[TopicPartition],
        deadline_ms: float | None = None,
    ) -> None:
        """Register at the coordinator the partitions that get markers (transaction version 1)."""
        topic_class = m.AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
        asked = frozenset(partitions)
        topics = [topic_class(name=name, partitions=numbers) for name, numbers in by_topic(asked)]

        def build() -> Build:
            return self.cluster.build(
                m.AddPartitionsToTxnRequest,
                v3_and_below_transactional_id=transactional_id,
                v3_and_below_producer_id=identity.producer_id,
                v3_and_below_producer_epoch=identity.epoch,
                v3_and_below_topics=topics,
            )

        def codes(answer: m.Message) -> list[int]:
            found = {
                TopicPartition(topic.name, partition.partition_index): partition.partition_error_code
                for topic in answer.results_by_topic_v3_and_below
                for partition in topic.results_by_partition
            }
            return codes_of(m.AddPartitionsToTxnRequest, asked, found)

        self._until_definite(
            m.AddPartitionsToTxnRequest,
            CoordinatorKind.TRANSACTION,
            transactional_id,
            build,
            codes,
            deadline_ms,
        )

    def add_offsets(
        self, transactional_id: str, identity: ProducerIdentity, group: str, deadline_ms: float | None = None
    ) -> None:
        """Register at the coordinator that a group's offsets are part of the transaction (transaction version
        1)."""

        def build() -> Build:
            return self.cluster.build(
                m.AddOffsetsToTxnRequest,
                transactional_id=transactional_id,
                producer_id=identity.producer_id,
                producer_epoch=identity.epoch,
                group_id=group,
            )

        self._until_definite(
            m.AddOffsetsToTxnRequest,
            CoordinatorKind.TRANSACTION,
            transactional_id,
            build,
            lambda answer: [answer.error_code],
            deadline_ms,
        )

    def commit_offsets(
        self,
        transactional_id: str,
        identity: ProducerIdentity,
        group: str,
        offsets: GroupOffsets,
        transaction_version: int,
        deadline_ms: float | None = None,
    ) -> None:
        """Put a consumer group's offsets into the transaction; they become visible when it commits (KIP-447).
        Deleted partitions are left out, with a warning: no client can request their offsets any more."""
        give_up = runtime.monotonic() + GONE_MS / 1000
        budget = self.cluster.budget(deadline_ms)
        if transaction_version < 2:
            self.add_offsets(transactional_id, identity, group, budget.left_ms)
        request_class = m.TxnOffsetCommitRequest
        topic_class = request_class.TxnOffsetCommitRequestTopic
        places = placed(offsets)
        topics = [
            topic_class(
                name=name,
                partitions=[
                    topic_class.TxnOffsetCommitRequestPartition(
                        partition_index=number, **committed_fields(places[TopicPartition(name, number)])
                    )
                    for number in numbers
                ],
            )
            for name, numbers in by_topic(offsets)
        ]

        def build() -> Build:
            return self.cluster.build(
                request_class,
                transaction_version=transaction_version,
                transactional_id=transactional_id,
                group_id=group,
                producer_id=identity.producer_id,
                producer_epoch=identity.epoch,
                generation_id=-1,
                member_id="",
                group_instance_id=None,
                topics=topics,
            )

        def codes(answer: m.Message) -> list[int]:
            found = {
                TopicPartition(topic.name, partition.partition_index): partition.error_code
                for topic in answer.topics
                for partition in topic.partitions
            }
            judged = codes_of(request_class, offsets.keys(), found)
            if runtime.monotonic() < give_up:
                return judged
            gone = sorted(where for where in found if found[where] == Code.UNKNOWN_TOPIC_OR_PARTITION)
            if gone:
                log.warning("group %s gets no offsets of %s: the topic is gone", group, ", ".join(map(str, gone)))
            return [code for code in judged if code != Code.UNKNOWN_TOPIC_OR_PARTITION]

        try:
            self._until_definite(request_class, CoordinatorKind.GROUP, group, build, codes, budget.left_ms)
        except AuthorizationFailed as error:
            names = sorted({where.topic for where in offsets})
            raise AuthorizationFailed(
                f"{error.message}; committing offsets also needs READ on the source topic: {', '.join(names)}",
                {**error.facts, "topics": tuple(names)},
            ) from error

    # ---- ends

    def end(
        self, request: EndRequest, deadline_ms: float | None = None, *, sent: Callable[[], None] | None = None
    ) -> EndAnswer:
        """End one transaction; see `ends.end_many`."""
        return end_many(self.cluster, [request], deadline_ms, sent=sent)[0]

    def end_many(self, requests: Sequence[EndRequest], deadline_ms: float | None = None) -> list[EndAnswer]:
        """End transactions, all at once; see `ends.end_many`."""
        return end_many(self.cluster, requests, deadline_ms)

    # ---- views

    def describe(
        self,
        transactional_ids: Sequence[str],
        deadline_ms: float | None = None,
        *,
        sure: bool = False,
        expected: Callable[[TransactionView], bool] | None = None,
    ) -> dict[str, TransactionView]:
        """The coordinators' current states of these ids.

        `sure`: of the coordinators that most brokers name, for who concludes from a state that it is the last one.
        `expected`: whether a view is as it should be. Where one is not, the coordinator may have been replaced without
        noticing, so that view is of the one that most brokers name.
        """
        budget = self.cluster.budget(deadline_ms)
        views = self._views_of(transactional_ids, budget, sure=sure)
        doubted = [name for name, view in views.items() if expected is not None and not expected(view)]
        if doubted and not is_alone(self.cluster):
            views |= self._views_of(doubted, budget, sure=True)
        return views

    def _views_of(self, transactional_ids: Sequence[str], budget: Budget, *, sure: bool) -> dict[str, TransactionView]:
        views: dict[str, TransactionView] = {}
        missing = list(dict.fromkeys(transactional_ids))

        def attempt() -> dict[str, TransactionView] | Again:
            if sure:
                # Each time: a coordinator that is looked up again is looked up at one broker.
                require_coordinators(self.cluster, CoordinatorKind.TRANSACTION, missing)
            reason = self._describe_once(missing, views, budget) if missing else ""
            missing[:] = [each for each in missing if each not in views]
            return Again(reason) if missing else views

        def late(last: Again) -> dict[str, TransactionView]:
            raise BrokerUnavailable(
                f"the coordinator of {missing[0]!r} did not describe it within the time allowed (last: {last})",
                {"transactional_id": missing[0], "timeout_ms": budget.total_ms},
            )

        return until_definite(attempt, deadline_ms=budget.left_ms, late=late, pause=self.cluster.pause)

    def _describe_once(self, missing: Sequence[str], views: dict[str, TransactionView], budget: Budget) -> str:
        """Ask each coordinator once; returns why a view is still missing."""
        reason = "the answer lacks it"
        nodes = self.cluster.coordinators(CoordinatorKind.TRANSACTION, missing, timeout_ms=budget.left_ms)
        by_node: dict[Any, list[str]] = {}
        for each in missing:
            by_node.setdefault(nodes[each], []).append(each)
        batch = [
            (node, self.cluster.build(m.DescribeTransactionsRequest, transactional_ids=ids))
            for node, ids in by_node.items()
        ]
        watched = elsewhere.at_coordinators(self.cluster, CoordinatorKind.TRANSACTION, list(by_node.values()))
        answers = self.cluster.call_many(batch, budget, elsewhere=watched)
        for (_, ids), answer in zip(by_node.items(), answers, strict=True):
            if isinstance(answer, BrokerUnavailable):
                reason = str(answer)
                for each in ids:
                    self.cluster.forget_coordinator(CoordinatorKind.TRANSACTION, each)
                continue
            if isinstance(answer, ExactlyOnceError):
                raise answer
            for state in answer.transaction_states:
                reason = self._take_view(state, views) or reason
        return reason

    def _take_view(self, state: m.Message, views: dict[str, TransactionView]) -> str:
        name = state.transactional_id
        if state.error_code == Code.TRANSACTIONAL_ID_NOT_FOUND:
            views[name] = TransactionView(name, "NotFound", ProducerIdentity(NO_PRODUCER_ID, NO_EPOCH))
            return ""
        again = again_or_refuse(
            m.DescribeTransactionsRequest.API_KEY,
            state.error_code,
            lambda action, code: error_of(m.DescribeTransactionsRequest, action, code, name),
        )
        if again is not None:
            # Also while it is loading: a broker that took over answers sooner.
            self.cluster.forget_coordinator(CoordinatorKind.TRANSACTION, name)
            return again.reason
        partitions = frozenset(
            TopicPartition(topic.topic, number) for topic in state.topics for number in topic.partitions
        )
        views[name] = TransactionView(
            name,
            state.transaction_state,
            ProducerIdentity(state.producer_id, state.producer_epoch),
            state.transaction_timeout_ms,
            state.transaction_start_time_ms,
            partitions,
        )
        return ""

    # ---- shared

    def _until_definite(
        self,
        request_class: type[Any],
        kind: CoordinatorKind,
        key: str,
        build: Callable[[], Build],
        codes: Callable[[m.Message], list[int]],
        deadline_ms: float | None,
    ) -> m.Message:
        api_key = request_class.API_KEY
        budget = self.cluster.budget(deadline_ms)

        def judge(answer: m.Message) -> m.Message | Again:
            code = decisive_code(api_key, codes(answer))
            again = again_or_refuse(api_key, code, lambda action, code: error_of(request_class, action, code, key))
            return again or answer

        def late(last: Again) -> m.Message:
            raise no_answer(request_class, key, str(last), budget.total_ms)

        return ask_coordinator(self.cluster, kind, key, build, judge, deadline_ms=budget.left_ms, late=late)

    def _ask_any(self, request: Build, deadline_ms: float | None) -> m.Message:
        budget = self.cluster.budget(deadline_ms)

        # A broker that has just started has no block of producer ids yet and answers that it is loading.
        def refused(action: Action, code: int) -> ExactlyOnceError:
            return error_of(m.InitProducerIdRequest, action, code, "the idempotent producer")

        def attempt() -> m.Message | Again:
            answer = self.cluster.call_any(request, budget.left_ms)
            return again_or_refuse(m.InitProducerIdRequest.API_KEY, answer.error_code, refused) or answer

        def late(last: Again) -> m.Message:
            raise BrokerUnavailable(
                f"no broker returned a producer id within the time allowed (last: {last}); nothing was written",
                {"timeout_ms": budget.total_ms},
            )

        return until_definite(attempt, deadline_ms=budget.left_ms, late=late, pause=self.cluster.pause)
