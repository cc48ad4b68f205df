"""Bringing a transactional id into a state, as both kinds of clients do it."""

from __future__ import annotations

from tests.differential.play import NOBODYS_ID, Play, Transaction
from tests.differential.records import Identity

STATES = ("Unknown", "Empty", "Ongoing", "CompleteCommit", "CompleteAbort", "TimedOut", "EmptyAgain")
"""Of the coordinator's states those that last; `TimedOut` is CompleteAbort under an epoch that the client does not know,
`EmptyAgain` is Empty with a transaction before."""

OTHER = "another producer"
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


def time_out(play: Play, txn: Transaction) -> None:
    """Open it, without records, which might come too late, and wait until the coordinator has aborted it."""
    play.add(None, txn, {txn.topic: [0]})

    def aborted() -> bool:
        (said,) = play.ask(None, "DescribeTransactions", 0, transactional_ids=[txn.name])[
            "transaction_states"
        ]
        return bool(said["transaction_state"] == "CompleteAbort")

    play.wait_until(aborted, f"{txn.name} times out")


def variants(txn: Transaction) -> dict[str, Transaction]:
    """The same id as other clients would have it: epochs before and after, and another producer."""
    who = txn.who
    found = {
        f"epoch{by:+}": Transaction(txn.name, Identity(who.producer_id, who.epoch + by), txn.topic)
        for by in EPOCHS
    }
    found[OTHER] = Transaction(txn.name, Identity(NOBODYS_ID, who.epoch), txn.topic)
    return found
