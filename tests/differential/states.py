"""Bringing a transactional id into a state, as both kinds of clients do it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tests.differential.play import NOBODYS_ID, Play, Transaction
from tests.differential.records import Identity

STATES = ("Unknown", "Empty", "Ongoing", "CompleteCommit", "CompleteAbort", "TimedOut", "EmptyAgain")
"""Of the coordinator's states those that last; `TimedOut` is CompleteAbort under an epoch that the client does not
know, `EmptyAgain` is Empty with a transaction before.
"""

OTHER = "another producer"
_OPENED_AGAIN_MS = 2_000
"""Time-out of an id that a client with the new epoch may open again: all that a scenario asks about it comes before its
next end, also on a machine that does much else.
"""
CLIENTS = ("epoch-2", "epoch-1", "epoch+0", "epoch+1", OTHER)
EPOCHS = (-2, -1, 0, 1)
"""Against the epoch that the client believes to have."""


def bring(play: Play, state: str) -> Transaction:
    """A new transactional id in that state, as its rightful client has it."""
    if state == "Unknown":
        return Transaction(play.name("id"), Identity(NOBODYS_ID, 3), play.topic())
    # Long enough for its first partition to be added, short enough to wait for.
    txn = play.transaction(timeout_ms=1 if state == "TimedOut" else 60_000)
    if state == "Empty":
        return txn
    if state == "TimedOut":
        time_out(play, txn)
        return txn
    play.open(txn)
    if state != "Ongoing":
        play.ended(txn, commit=state != "CompleteAbort")
    if state == "EmptyAgain":
        txn.who = play.init(None, txn.name)
    return txn


def bring_each(play: Play, state: str, clients: Sequence[str]) -> Iterator[tuple[str, Transaction]]:
    """An id in that state for each client, where a client may open it again. All of them time out together."""
    if state != "TimedOut":
        for client in clients:
            yield client, bring(play, state)
        return
    made = [play.transaction(timeout_ms=_OPENED_AGAIN_MS) for _ in clients]
    for txn in made:
        play.add(None, txn, {txn.topic: [0]})
    for client, txn in zip(clients, made, strict=True):
        _until_timed_out(play, txn)
        yield client, txn


def time_out(play: Play, txn: Transaction) -> None:
    """Open it, without records, which might come too late, and wait until the coordinator has aborted it."""
    play.add(None, txn, {txn.topic: [0]})
    _until_timed_out(play, txn)


def _until_timed_out(play: Play, txn: Transaction) -> None:
    def aborted() -> bool:
        (said,) = play.ask(None, "DescribeTransactions", 0, transactional_ids=[txn.name])["transaction_states"]
        return bool(said["transaction_state"] == "CompleteAbort")

    play.wait_until(aborted, f"{txn.name} times out")


def variants(txn: Transaction) -> dict[str, Transaction]:
    """The same id as other clients would have it: epochs before and after, and another producer."""
    who = txn.who
    found = {
        f"epoch{by:+}": Transaction(txn.name, Identity(who.producer_id, who.epoch + by), txn.topic) for by in EPOCHS
    }
    found[OTHER] = Transaction(txn.name, Identity(NOBODYS_ID, who.epoch), txn.topic)
    return found
