"""Codes of the group APIs.

Owns: the mapping from refusals of a machine, the log or the transaction coordinator to the
codes that clients receive.
Does not know: which API uses a code.
"""

from __future__ import annotations

from embedded_kafka.groups.machine.moves import GroupRefusal
from kafka_core.protocol.error_codes import Code

_COMMIT_CODES = {
    Code.NETWORK_EXCEPTION: Code.COORDINATOR_LOAD_IN_PROGRESS,
    Code.UNKNOWN_TOPIC_OR_PARTITION: Code.COORDINATOR_NOT_AVAILABLE,
    Code.NOT_LEADER_OR_FOLLOWER: Code.NOT_COORDINATOR,
    Code.KAFKA_STORAGE_ERROR: Code.NOT_COORDINATOR,
    Code.MESSAGE_TOO_LARGE: Code.INVALID_COMMIT_OFFSET_SIZE,
    Code.RECORD_LIST_TOO_LARGE: Code.INVALID_COMMIT_OFFSET_SIZE,
}


def code_of(refusal: GroupRefusal | None) -> Code:
    """The code of a machine's refusal."""
    return Code.NONE if refusal is None else Code[refusal.name]


def commit_code(code: Code) -> Code:
    """The committer's code where `code` is about a partition of `__consumer_offsets`, which
    its request never named."""
    return _COMMIT_CODES.get(code, code)
