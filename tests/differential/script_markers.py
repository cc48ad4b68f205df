"""WriteTxnMarkers, as an operator's abort of a hanging transaction sends it."""

from __future__ import annotations

from tests.differential.play import NOBODYS_ID, Play, Transaction
from tests.differential.records import Identity, batch
from tests.differential.script import scenario
from tests.differential.states import bring


def _mark(
    play: Play, label: str, who: Identity, topic: str, *,
    commit: bool = False, coordinator: int = -1, version: int = 1, partition: int = 0, transactions: int = 0,
) -> None:  # fmt: skip
    more = {"transaction_version": transactions} if version >= 2 else {}
    play.ask(
        label, "WriteTxnMarkers", version,
        markers=[{
            **more, "producer_id": who.producer_id, "producer_epoch": who.epoch, "transaction_result": commit,
            "coordinator_epoch": coordinator, "topics": [{"name": topic, "partition_indexes": [partition]}],
        }],
    )  # fmt: skip


@scenario(both_protocols=True, state=("Ongoing", "CompleteCommit", "CompleteAbort"))
def markers_by_an_operator(play: Play, state: str) -> None:
    for coordinator in (-1, 0, 5):
        for by in (-1, 0, 1):
            for commit in (False, True):
                label = f"epoch{by:+}, coordinator {coordinator}, {'commit' if commit else 'abort'}"
                txn = bring(play, state)
                _mark(play, label, txn.who.later(by), txn.topic, commit=commit, coordinator=coordinator)
                play.look(label, txn)


@scenario(both_protocols=True)
def markers_again_and_again(play: Play) -> None:
    txn = bring(play, "Ongoing")
    steps = ((0, 3), (0, 3), (0, 2), (0, 4), (1, 4), (1, 1), (0, 4))
    for number, (by, coordinator) in enumerate(steps):
        label = f"{number}: epoch{by:+}, coordinator {coordinator}"
        _mark(play, label, txn.who.later(by), txn.topic, coordinator=coordinator)
    # Its owner must not end it: a coordinator that finds itself fenced leaves the id as it is until it is elected anew.
    play.look("marked", txn)


@scenario(both_protocols=True)
def markers_where_nothing_is_open(play: Play) -> None:
    topic, who = play.topic(), play.producer()
    _mark(play, "a producer that never wrote", who, topic)
    play.producers("a producer that never wrote: producers", topic)
    _mark(play, "its commit", who, topic, commit=True)
    play.produce("it writes", topic, batch(b"a", who=who, sequence=0))
    _mark(play, "an idempotent one", who, topic)
    play.produce("it goes on", topic, batch(b"a", who=who, sequence=1))
    _mark(play, "nobody", Identity(NOBODYS_ID, 0), topic)
    _mark(play, "an epoch of -1", Identity(who.producer_id, -1), topic)
    _mark(play, "unknown topic", who, play.name("nowhere"))
    _mark(play, "unknown partition", who, topic, partition=3)
    play.fetch("log", topic, committed=True)
    play.producers("producers", topic)
    play.ask("no marker", "WriteTxnMarkers", 1, markers=[])


@scenario(transactions=(0, 2))
def markers_that_say_their_version(play: Play, transactions: int) -> None:
    """Version 2 of the request (KIP-1228): a coordinator's own marker, and the same again when its answer was lost."""
    topic, who = play.topic(), play.producer()
    steps = (
        ("of the epoch before", 1),
        ("of the next epoch", 2),
        ("the same again", 2),
        ("the other way", 2),
        ("of the open epoch", 1),
    )
    data = batch(b"a", who=who.later(1), sequence=0)
    play.produce("written", topic, data)
    for number, (said, by) in enumerate(steps):
        commit = said != "the other way"
        _mark(
            play,
            f"{number}: {said}",
            who.later(by),
            topic,
            commit=commit,
            coordinator=3,
            version=2,
            transactions=transactions,
        )
    play.producers("producers", topic)
    play.fetch("log", topic, committed=True)
    txn = bring(play, "Ongoing")
    for number, by in enumerate((0, 1, 1, 0, 2)):
        said = f"open, {number}: epoch{by:+}"
        _mark(play, said, txn.who.later(by), txn.topic, coordinator=3, version=2, transactions=transactions)
    play.producers("open: producers", txn.topic)
    play.fetch("open: log", txn.topic, committed=True)


@scenario(both_protocols=True)
def a_hanging_transaction_is_ended(play: Play) -> None:
    """Its owner has gone on; then a late batch of the same epoch, which nobody added, and the operator's marker."""
    txn = play.transaction()
    play.open(txn)
    before = txn.who
    _mark(play, "aborted", before, txn.topic)
    play.look("aborted", txn)
    play.write("it writes again", Transaction(txn.name, before, txn.topic), 2, b"late")
    play.look("written again", txn)
    _mark(play, "aborted again", before, txn.topic)
    play.end("committed", txn, True)
    play.look("committed", txn)


@scenario(both_protocols=True)
def markers_in_the_offsets_log(play: Play) -> None:
    txn, group = play.transaction(), play.name("group")
    if not play.new_protocol:
        play.add_offsets(None, txn, group)
    play.commit_offset("pending", txn, group, 42)
    (state,) = play.ask(None, "DescribeTransactions", 0, transactional_ids=[txn.name])["transaction_states"]
    (partition,) = next(one["partitions"] for one in state["topics"] if one["topic"] == "__consumer_offsets")
    _mark(play, "committed by an operator", txn.who, "__consumer_offsets", commit=True, partition=partition)
    play.committed("seen", group, txn.topic, stable=True)
    play.end("aborted by its owner", txn, False)
    play.settle(txn.name)
    play.committed("seen at the end", group, txn.topic, stable=True)
