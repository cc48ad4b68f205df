"""InitProducerId for many transactional ids at once: their older owners are fenced, and what these have open is
aborted.

Owns: the connections that the ids are spread over.
Does not know: why ids are fenced (a run that finds the open transactions of an earlier one does it).
Invariants: an identity is returned only where a coordinator's answer has it; after an error any of the ids may be
fenced.
Sources: KIP-98, KIP-360.
"""

from __future__ import annotations

from collections.abc import Iterable

from kafka_core.protocol import messages as m
from kafka_core.values import NO_EPOCH, NO_PRODUCER_ID, ProducerIdentity
from pyspark_kafka_eos.client.asking import ask_coordinators
from pyspark_kafka_eos.client.cluster import Cluster, CoordinatorKind
from pyspark_kafka_eos.client.coordinator_answers import error_of, no_answer
from pyspark_kafka_eos.client.definite import Again, again_or_refuse
from pyspark_kafka_eos.client.requests.ends import CONNECTIONS
from pyspark_kafka_eos.client.wire.versions import Build


def fence_many(
    cluster: Cluster, transactional_ids: Iterable[str], transaction_timeout_ms: int, deadline_ms: float | None = None
) -> dict[str, ProducerIdentity]:
    """The new identity of each id. One after another each id would wait until its own markers are written.

    OutcomeUnknown where an id got no definite answer in time, AuthorizationFailed without WRITE on an id.
    """
    request_class = m.InitProducerIdRequest
    budget = cluster.budget(deadline_ms)

    def build(name: str) -> Build:
        return cluster.build(
            request_class,
            transactional_id=name,
            transaction_timeout_ms=transaction_timeout_ms,
            producer_id=NO_PRODUCER_ID,
            producer_epoch=NO_EPOCH,
        )

    def judge(name: str, answer: m.Message) -> ProducerIdentity | Again:
        again = again_or_refuse(
            request_class.API_KEY,
            answer.error_code,
            lambda action, code: error_of(request_class, action, code, name),
        )
        return again or ProducerIdentity(answer.producer_id, answer.producer_epoch)

    return ask_coordinators(
        cluster,
        CoordinatorKind.TRANSACTION,
        transactional_ids,
        build,
        judge,
        deadline_ms=budget.left_ms,
        late=lambda name, last: no_answer(request_class, name, str(last), budget.total_ms),
        connections=CONNECTIONS,
    )
