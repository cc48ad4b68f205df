"""Which ACL to add where a coordinator or a leader answers with an authorization error.

Owns: the table from Kafka's code to operation and resource.
Does not know: why a request was sent.
Invariants: every authorization failure has an entry.
Sources: Kafka's table of operations and resources per API; KIP-679 (WRITE on any topic is enough to write
idempotently).
"""

from __future__ import annotations

from kafka_core.protocol import messages as m
from kafka_core.protocol.error_codes import Code

_TO_GRANT = {
    Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "WRITE and DESCRIBE on the transactional id prefix",
    Code.TOPIC_AUTHORIZATION_FAILED: "WRITE on the topic",
    Code.GROUP_AUTHORIZATION_FAILED: "READ on the group",
    Code.CLUSTER_AUTHORIZATION_FAILED: "IDEMPOTENT_WRITE on the cluster, or WRITE on any topic,",
}

_TWO_PHASE = " (for transactions without a timeout also TWO_PHASE_COMMIT, or set kafka.transaction.two.phase.commit.enable=false)"


def to_grant(api_key: int, code: int) -> str:
    """Operation and resource, worded to follow "grant"."""
    known = Code(code)
    if api_key == m.TxnOffsetCommitRequest.API_KEY and known is Code.TOPIC_AUTHORIZATION_FAILED:
        return "READ on the source topic"
    two_phase = api_key == m.InitProducerIdRequest.API_KEY and known is Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    return _TO_GRANT[known] + (_TWO_PHASE if two_phase else "")
