"""The result of an EndTxn: by state, by commit or abort, by its epoch relative to the current one.

Owns: the two tables, one per version of the protocol, and the order of the checks before them.
Does not know: how a decision is logged or carried out.
Invariants: commit and abort of one transaction never both succeed.
Sources: KIP-98 (version 1), KIP-890 (version 2).
"""

from __future__ import annotations

from enum import Enum

from embedded_kafka.transactions.machine.events import MAX_EPOCH, End, Entry, Refusal, State


class Ends(Enum):
    """The result of an EndTxn."""

    PREPARE = "the decision is logged"
    REPEATED = "it was done before; the answer is repeated"
    WAIT = "CONCURRENT_TRANSACTIONS"
    INVALID = "INVALID_TXN_STATE"


_INVALID_V1 = {(state, commit): Ends.INVALID for state in State for commit in (True, False)}

ENDS_V1: dict[tuple[State, bool], Ends] = {
    **_INVALID_V1,
    (State.ONGOING, True): Ends.PREPARE,
    (State.ONGOING, False): Ends.PREPARE,
    (State.PREPARE_COMMIT, True): Ends.WAIT,
    (State.PREPARE_ABORT, False): Ends.WAIT,
    (State.COMPLETE_COMMIT, True): Ends.REPEATED,
    (State.COMPLETE_ABORT, False): Ends.REPEATED,
}
"""(state, commit?) -> the result where the epoch is the current one; any other epoch is fenced."""

ENDS_V2: dict[tuple[State, bool, bool], Ends] = {
    (State.EMPTY, True, False): Ends.INVALID,
    (State.EMPTY, False, False): Ends.PREPARE,
    (State.ONGOING, True, False): Ends.PREPARE,
    (State.ONGOING, False, False): Ends.PREPARE,
    (State.PREPARE_COMMIT, True, True): Ends.WAIT,
    (State.PREPARE_COMMIT, False, True): Ends.INVALID,
    (State.PREPARE_ABORT, True, True): Ends.INVALID,
    (State.PREPARE_ABORT, False, True): Ends.WAIT,
    (State.COMPLETE_COMMIT, True, True): Ends.REPEATED,
    (State.COMPLETE_COMMIT, False, True): Ends.INVALID,
    (State.COMPLETE_COMMIT, True, False): Ends.INVALID,
    (State.COMPLETE_COMMIT, False, False): Ends.PREPARE,
    (State.COMPLETE_ABORT, True, True): Ends.INVALID,
    (State.COMPLETE_ABORT, False, True): Ends.REPEATED,
    (State.COMPLETE_ABORT, True, False): Ends.INVALID,
    (State.COMPLETE_ABORT, False, False): Ends.PREPARE,
}
"""(state, commit?, is it the epoch before?) -> the result; fenced where there is no row.

The current epoch means the next end; the epoch before means a repetition of the end that bumped it. A
producer without an answer may abort a transaction that never reached the coordinator, so an abort is prepared
where there is no transaction."""


def judge_v1(entry: Entry, event: End, *, busy: bool) -> Ends | Refusal:
    """The result of an EndTxn up to version 4; `busy`: another change of the id is pending."""
    if event.identity.producer_id != entry.producer_id:
        return Refusal.INVALID_PRODUCER_ID_MAPPING
    if event.identity.epoch != entry.epoch:
        return Refusal.PRODUCER_FENCED
    return Refusal.CONCURRENT_TRANSACTIONS if busy else ENDS_V1[entry.state, event.commit]


def judge_v2(entry: Entry, event: End, *, busy: bool) -> Ends | Refusal:
    """The result of an EndTxn from version 5 on."""
    if busy:
        # Checked first: while the markers of the last epoch are written, the next producer id is not here yet.
        return Refusal.CONCURRENT_TRANSACTIONS
    given = event.identity
    # The end that is repeated has exchanged the producer id, because the epochs of the old one ran out.
    overflowed = given.producer_id == entry.previous_producer_id and given.epoch == MAX_EPOCH - 1 and entry.epoch == 0
    if given.producer_id != entry.producer_id and not overflowed:
        return Refusal.INVALID_PRODUCER_ID_MAPPING
    before = overflowed or entry.epoch == given.epoch + 1
    if not before and given.epoch != entry.epoch:
        return Refusal.PRODUCER_FENCED
    return ENDS_V2.get((entry.state, event.commit, before), Refusal.PRODUCER_FENCED)
