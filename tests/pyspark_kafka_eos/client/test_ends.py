"""EndTxn asked again and again: which failures are refusals, and which say nothing. Answers come from a list."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

import pytest

from embedded_kafka.wire.server import EndTxnResponse
from kafka_core.errors import (
    AuthorizationFailed,
    BrokerUnavailable,
    ExactlyOnceError,
    InternalError,
    ProtocolViolation,
)
from kafka_core.protocol import messages as m
from kafka_core.protocol.error_codes import Code
from kafka_core.values import ProducerIdentity
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.definite import Budget
from pyspark_kafka_eos.client.requests.ends import EndAnswer, EndRequest, end_many

REQUEST = EndRequest("pipe:driver", ProducerIdentity(7, 3), True, 1)
LOST = BrokerUnavailable("no answer from broker 1")
REFUSALS: tuple[Exception, ...] = (
    AuthorizationFailed("no right to use transaction 'pipe:driver'"),
    ProtocolViolation("FindCoordinator answered INVALID_REQUEST"),
    RuntimeError("the loop is closed"),
)


class Scripted:
    """A cluster whose coordinator searches and answers come from lists; whatever is an exception is raised."""

    def __init__(self, searches: Sequence[Exception | None], answers: Sequence[object]) -> None:
        self._searches: Iterator[Exception | None] = iter(searches)
        self._answers: Iterator[object] = iter(answers)
        self.network = self
        self.sent = 0

    def budget(self, total_ms: float) -> Budget:
        return Budget(total_ms)

    def brokers(self) -> tuple[int, ...]:
        return (1,)

    def coordinator_id(self, _kind: object, _key: str) -> int:
        return 1

    def coordinators(
        self, _kind: object, keys: Sequence[str], *, connections: int, timeout_ms: float
    ) -> dict[str, int]:
        failure = next(self._searches, None)
        if failure is not None:
            raise failure
        return dict.fromkeys(keys, connections)

    def call_many(
        self, requests: Sequence[tuple[int, m.Message]], _budget: Budget, *, sent: object, elsewhere: object
    ) -> list[object]:
        self.sent += len(requests)
        answer = next(self._answers)
        if isinstance(answer, Exception) and not isinstance(answer, ExactlyOnceError):
            raise answer
        return [answer] * len(requests)

    def build(self, request: type[Any], *, transaction_version: int, **fields: object) -> m.Message:
        return request(version=transaction_version, **fields)

    def forget_coordinator(self, _kind: object, _key: str) -> None:
        """It is asked for every time."""

    def pause(self, delay_ms: float) -> None:
        """No time is needed."""


def answered(code: Code) -> m.Message:
    return EndTxnResponse(version=1, throttle_time_ms=0, error_code=int(code))


def ended(cluster: Scripted, requests: Sequence[EndRequest] = (REQUEST,)) -> list[EndAnswer]:
    return end_many(cast(Cluster, cluster), requests, deadline_ms=30_000)


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda each: type(each).__name__)
def test_a_refusal_before_anything_was_sent_is_definite(refusal: Exception) -> None:
    cluster = Scripted([refusal], [])

    (answer,) = ended(cluster)

    assert (answer.definite, answer.sent, cluster.sent) == (False, False, 0)
    assert answer.error is not None and str(refusal) in answer.error.message


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda each: type(each).__name__)
def test_once_it_may_have_been_sent_a_refused_search_for_the_coordinator_says_nothing(
    refusal: Exception,
) -> None:
    cluster = Scripted([None, refusal], [LOST])

    (answer,) = ended(cluster)

    assert (answer.definite, answer.sent, cluster.sent) == (False, True, 1)
    assert str(refusal) in answer.reason


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda each: type(each).__name__)
def test_once_it_may_have_been_sent_a_refused_connection_says_nothing(refusal: Exception) -> None:
    cluster = Scripted([], [LOST, refusal])

    (answer,) = ended(cluster)

    assert (answer.definite, answer.sent, cluster.sent) == (False, True, 2)
    assert isinstance(answer.error, ExactlyOnceError)
    assert answer.denied is isinstance(refusal, AuthorizationFailed)


def test_a_right_that_is_missing_in_the_answer_proves_nothing_and_is_named() -> None:
    (answer,) = ended(Scripted([], [LOST, answered(Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)]))

    assert (answer.definite, answer.sent, answer.denied) == (False, True, True)
    assert answer.remedy == "grant WRITE on the transactional id prefix"


def test_a_lost_answer_is_asked_again_until_one_is_definite() -> None:
    cluster = Scripted([None, LOST], [LOST, answered(Code.CONCURRENT_TRANSACTIONS), answered(Code.NONE)])

    (answer,) = ended(cluster)

    assert (answer.definite, cluster.sent) == (True, 3)


def test_an_error_that_is_no_error_of_ours_is_given_back_as_an_internal_one() -> None:
    (answer,) = ended(Scripted([], [RuntimeError("the loop is closed")]))

    assert isinstance(answer.error, InternalError)
    assert (answer.definite, answer.sent) == (False, True)
