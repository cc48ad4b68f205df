"""The result of an EndTxn: by state, by commit or abort, by its epoch relative to the current one.

Owns: the two tables, one per version of the protocol, and the order of the checks before them.
Does not know: how a decision is logged or carried out.
Invariants: commit and abort of one transaction never both succeed.
Sources: KIP-98 (version 1), KIP-890 (version 2).
"""

from __future__ import annotations

from enum import Enum

from embedded_kafka.transactions.machine.events import (
    MAX_EPOCH,
    End,
    TransactionLogEntry,
    TransactionRefusal,
    TransactionState,
)


class EndTxnResult(Enum):
    """The result of an EndTxn."""

    PREPARE = "the decision is logged"
    REPEATED = "it was done before; the answer is repeated"
    WAIT = "CONCURRENT_TRANSACTIONS"
    INVALID = "INVALID_TXN_STATE"


_INVALID_V1 = {(state, commit): EndTxnResult.INVALID for state in TransactionState for commit in (True, False)}

ENDS_V1: dict[tuple[TransactionState, bool], EndTxnResult] = {
    **_INVALID_V1,
    (TransactionState.ONGOING, True): EndTxnResult.PREPARE,
    (TransactionState.ONGOING, False): EndTxnResult.PREPARE,
    (TransactionState.PREPARE_COMMIT, True): EndTxnResult.WAIT,
    (TransactionState.PREPARE_ABORT, False): EndTxnResult.WAIT,
    (TransactionState.COMPLETE_COMMIT, True): EndTxnResult.REPEATED,
    (TransactionState.COMPLETE_ABORT, False): EndTxnResult.REPEATED,
}
"""(state, commit?) -> the result where the epoch is the current one; any other epoch is fenced."""

ENDS_V2: dict[tuple[TransactionState, bool, bool], EndTxnResult] = {
    (TransactionState.EMPTY, True, False): EndTxnResult.INVALID,
    (TransactionState.EMPTY, False, False): EndTxnResult.PREPARE,
    (TransactionState.ONGOING, True, False): EndTxnResult.PREPARE,
    (TransactionState.ONGOING, False, False): EndTxnResult.PREPARE,
    (TransactionState.PREPARE_COMMIT, True, True): EndTxnResult.WAIT,
    (TransactionState.PREPARE_COMMIT, False, True): EndTxnResult.INVALID,
    (TransactionState.PREPARE_ABORT, True, True): EndTxnResult.INVALID,
    (TransactionState.PREPARE_ABORT, False, True): EndTxnResult.WAIT,
    (TransactionState.COMPLETE_COMMIT, True, True): EndTxnResult.REPEATED,
    (TransactionState.COMPLETE_COMMIT, False, True): EndTxnResult.INVALID,
    (TransactionState.COMPLETE_COMMIT, True, False): EndTxnResult.INVALID,
    (TransactionState.COMPLETE_COMMIT, False, False): EndTxnResult.PREPARE,
    (TransactionState.COMPLETE_ABORT, True, True): EndTxnResult.INVALID,
    (TransactionState.COMPLETE_ABORT, False, True): EndTxnResult.REPEATED,
    (TransactionState.COMPLETE_ABORT, True, False): EndTxnResult.INVALID,
    (TransactionState.COMPLETE_ABORT, False, False): EndTxnResult.PREPARE,
}
"""(state, commit?, is it the epoch before?) -> the result; fenced where there is no row.

The current epoch means the next end; the epoch before means a repetition of the end that bumped it. A
producer without an answer may abort a transaction that never reached the coordinator, so an abort is prepared
where there is no transaction."""


def judge_v1(entry: TransactionLogEntry, event: End, *, busy: bool) -> EndTxnResult | TransactionRefusal:
    """The result of an EndTxn up to version 4; `busy`: another change of the id is pending."""
    if event.identity.producer_id != entry.producer_id:
        return TransactionRefusal.INVALID_PRODUCER_ID_MAPPING
    if event.identity.epoch != entry.epoch:
        return TransactionRefusal.PRODUCER_FENCED
    return TransactionRefusal.CONCURRENT_TRANSACTIONS if busy else ENDS_V1[entry.state, event.commit]


def judge_v2(entry: TransactionLogEntry, event: End, *, busy: bool) -> EndTxnResult | TransactionRefusal:
    """The result of an EndTxn from version 5 on."""
    if busy:
        # Checked first: while the markers of the last epoch are written, the next producer id is not here yet.
        return TransactionRefusal.CONCURRENT_TRANSACTIONS
    given = event.identity
    # The end that is repeated has exchanged the producer id, because the epochs of the old one ran out.
    overflowed = given.producer_id == entry.previous_producer_id and given.epoch == MAX_EPOCH - 1 and entry.epoch == 0
    if given.producer_id != entry.producer_id and not overflowed:
        return TransactionRefusal.INVALID_PRODUCER_ID_MAPPING
    before = overflowed or entry.epoch == given.epoch + 1
    if not before and given.epoch != entry.epoch:
        return TransactionRefusal.PRODUCER_FENCED
    return ENDS_V2.get((entry.state, event.commit, before), TransactionRefusal.PRODUCER_FENCED)
