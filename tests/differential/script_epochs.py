"""The end of a producer id: its epochs are used up, and the transactional id gets another one."""

from __future__ import annotations

from tests.differential.play import Play, Transaction
from tests.differential.script import scenario

_LAST = 32_766
"""The last epoch that a client is given; 32767 is the coordinator's, to fence it."""


def _at(play: Play, epoch: int) -> Transaction:
    """A transactional id that was initialised until it had that epoch."""
    txn = play.transaction(initialised=1)
    while txn.who.epoch < epoch:
        txn.who = play.init(None, txn.name)
    return txn


@scenario(both_protocols=True, slow=True)
def epochs_run_out_by_initialisations(play: Play) -> None:
    txn = _at(play, _LAST - 1)
    before = txn.who
    last = play.init("to the last epoch", txn.name, before)
    play.init("to the last epoch, repeated", txn.name, before)
    renewed = play.init("beyond the last epoch", txn.name, last)
    play.describe("renewed", txn)
    play.init("beyond the last epoch, repeated", txn.name, last)
    play.init("from the epoch before the last", txn.name, before)
    play.describe("renewed, asked again", txn)
    play.init("from the new one", txn.name, renewed)
    play.end("the old one commits", Transaction(txn.name, last), True)
    play.add("the old one adds", Transaction(txn.name, last), {txn.topic: [0]})
    play.describe("at the end", txn)


@scenario(both_protocols=True, slow=True)
def epochs_run_out_by_transactions(play: Play) -> None:
    txn = _at(play, _LAST - 2)
    for number in range(5):
        play.open(txn, b"%d" % number)
        asked = Transaction(txn.name, txn.who)
        play.end(f"{number}: ended", txn, number != 3)
        play.settle(txn.name)
        play.end(f"{number}: ended again", asked, number != 3)
        play.look(f"{number}", txn)
        if not play.new_protocol:
            txn.who = play.init(f"{number}: initialised", txn.name, txn.who)


@scenario(both_protocols=True, slow=True)
def epochs_run_out_by_fencing(play: Play) -> None:
    txn = _at(play, _LAST)
    play.open(txn, b"a")
    old = txn.who
    play.init("initialised while open, at once", txn.name, again=())
    txn.who = play.init("initialised while open", txn.name)
    play.look("fenced", txn)
    play.end("the old one commits", Transaction(txn.name, old), True)
    play.open(txn, b"b")
    play.end("the new one commits", txn, True)
    play.look("at the end", txn)
