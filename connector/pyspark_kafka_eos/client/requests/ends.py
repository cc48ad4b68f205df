"""EndTxn: ends many transactions at once and returns for each whether an answer proved that it took effect.

Owns: which answers to an EndTxn are definite, the retries, the connections that many ends are spread over.
Does not know: why a transaction is ended, how the caller handles an answer that proves nothing.
Invariants:
- An answer is definite only where a coordinator's answer proved the end. Every other result is unknown.
- Once a request may have been sent, no error counts as a refusal.
- Nothing is raised, so a caller with several ends receives a result for each of them.
Sources: KIP-98, KIP-890 (EndTxn v5 answers with the next identity).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kafka_core.errors import AuthorizationFailed, BrokerUnavailable, ExactlyOnceError, InternalError
from kafka_core.protocol import messages as m
from kafka_core.protocol.error_codes import Action, Code, action_for, name_of
from kafka_core.values import ProducerIdentity
from pyspark_kafka_eos.client import elsewhere
from pyspark_kafka_eos.client.cluster import Cluster, CoordinatorKind
from pyspark_kafka_eos.client.definite import Again, until_definite
from pyspark_kafka_eos.client.every_broker import Doubt, is_replaced
from pyspark_kafka_eos.client.wire.versions import Build

CONNECTIONS = 4
"""Connections per broker over which the ends of many slots are spread. One broker connection answers in order, so 64
ends on one connection wait for each other's log write; beyond four the broker's own disk is the limit."""


@dataclass(frozen=True)
class EndRequest:
    """One EndTxn to send: for which id and identity, commit or abort, in which transaction version."""

    transactional_id: str
    identity: ProducerIdentity
    commit: bool
    transaction_version: int


@dataclass(frozen=True)
class EndAnswer:
    """The answer to an EndTxn. `definite`: it took effect. Otherwise `code` (or the lost connection) proves
    nothing.

    `sent` is False where the request certainly was not sent: the transaction is unchanged, and `error` is the
    reason. `error` together with `sent`: the request failed in a way that a retry does not fix, which proves
    nothing about an earlier attempt.
    """

    definite: bool
    next_identity: ProducerIdentity | None = None
    code: int = Code.NONE
    reason: str = ""
    sent: bool = True
    error: ExactlyOnceError | None = None

    @property
    def denied(self) -> bool:
        """Whether a right or a credential is missing."""
        refused = isinstance(self.error, AuthorizationFailed)
        return refused or self.code == Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED

    @property
    def remedy(self) -> str:
        """What to do so that a retry can succeed; empty where only waiting helps."""
        if self.code == Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
            return "grant WRITE on the transactional id prefix"
        return "restore the right or the credentials" if self.denied else ""


def end_many(
    cluster: Cluster,
    requests: Sequence[EndRequest],
    deadline_ms: float | None = None,
    *,
    sent: Callable[[], None] | None = None,
) -> list[EndAnswer]:
    """End transactions, all at once. Each is retried until its answer is definite, proves nothing, or time is
    over.

    Sending the same EndTxn twice is safe because one identity carries one transaction only. An answer that is
    not definite is returned, not raised: the caller has to determine the outcome. `sent`: see
    `Network.call_many`.
    """
    handed_over = False
    answers: list[EndAnswer | None] = [None] * len(requests)
    waiting = list(range(len(requests)))
    budget, doubt = cluster.budget(deadline_ms), Doubt(cluster, CoordinatorKind.TRANSACTION)

    def attempt() -> list[EndAnswer | None] | Again:
        nonlocal handed_over
        reason = "the coordinator is not ready"
        try:
            nodes = cluster.coordinators(
                CoordinatorKind.TRANSACTION,
                ids := [requests[i].transactional_id for i in waiting],
                connections=CONNECTIONS,
                timeout_ms=budget.left_ms,
            )
            watched = elsewhere.at_coordinators(cluster, CoordinatorKind.TRANSACTION, [[each] for each in ids])
            batch = [(nodes[requests[i].transactional_id], _end_request(cluster, requests[i])) for i in waiting]
            handed_over = True
            found = cluster.call_many(batch, budget, sent=sent, elsewhere=watched)
            replaced: dict[int, bool] = {}
            for index, answer in zip(waiting, found, strict=True):
                answers[index] = _read_end(cluster, requests[index], answer, replaced)
            doubt.asked_to_wait(requests[i].transactional_id for i in waiting if answers[i] is None)
        except BrokerUnavailable as error:
            reason = str(error)
        except Exception as error:  # noqa: BLE001 -- no error proves anything about what was sent before
            failed = _stopped(error, sent=handed_over)
            answers[:] = [failed if answer is None else answer for answer in answers]
        waiting[:] = [index for index in waiting if answers[index] is None]
        return Again(reason) if waiting else answers

    def late(last: Again) -> list[EndAnswer | None]:
        unknown = EndAnswer(False, code=Code.REQUEST_TIMED_OUT, reason=last.reason)
        return [unknown if answer is None else answer for answer in answers]

    if waiting:
        answers = until_definite(attempt, deadline_ms=budget.left_ms, late=late, pause=cluster.pause)
    return [answer for answer in answers if answer is not None]


def _stopped(error: Exception, *, sent: bool) -> EndAnswer:
    known = error if isinstance(error, ExactlyOnceError) else InternalError(f"{type(error).__name__}: {error}")
    return EndAnswer(False, reason=known.message, sent=sent, error=known)


def _end_request(cluster: Cluster, request: EndRequest) -> Build:
    return cluster.build(
        m.EndTxnRequest,
        transaction_version=request.transaction_version,
        transactional_id=request.transactional_id,
        producer_id=request.identity.producer_id,
        producer_epoch=request.identity.epoch,
        committed=request.commit,
    )


def _read_end(
    cluster: Cluster, request: EndRequest, answer: m.Message | ExactlyOnceError, replaced: dict[int, bool]
) -> EndAnswer | None:
    """None where it has to be asked again. `replaced`: broker -> whether most brokers name another one in its place,
    which is asked once for all that it refuses.
    """
    if isinstance(answer, BrokerUnavailable):
        cluster.forget_coordinator(CoordinatorKind.TRANSACTION, request.transactional_id)
        return None
    if isinstance(answer, ExactlyOnceError):
        return _stopped(answer, sent=True)
    action = action_for(m.EndTxnRequest.API_KEY, answer.error_code)
    if action is Action.DONE:
        following = None
        if request.transaction_version >= 2 and answer.producer_id >= 0:
            following = ProducerIdentity(answer.producer_id, answer.producer_epoch)
        return EndAnswer(True, following)
    if action is Action.RETRY:
        return None
    if action is Action.REDISCOVER:
        cluster.forget_coordinator(CoordinatorKind.TRANSACTION, request.transactional_id)
        return None
    asked = cluster.coordinator_id(CoordinatorKind.TRANSACTION, request.transactional_id)
    if replaced.get(asked):
        cluster.forget_coordinator(CoordinatorKind.TRANSACTION, request.transactional_id)
    elif asked not in replaced:
        replaced[asked] = is_replaced(cluster, CoordinatorKind.TRANSACTION, request.transactional_id, asked)
    if replaced[asked]:
        # It was cut off, and has not heard of what its successor knows to be open.
        return None
    # No other code is definite either: an earlier attempt without an answer may have taken effect.
    return EndAnswer(False, code=answer.error_code, reason=name_of(answer.error_code))
