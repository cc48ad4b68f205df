"""The transaction coordinator: every API x state x epoch lower, equal, higher x commit, abort."""

from __future__ import annotations

from typing import Any

from tests.differential.play import NOBODYS_ID, Play, Transaction
from tests.differential.records import NOBODY, Identity
from tests.differential.script import scenario
from tests.differential.states import CLIENTS, STATES, bring, bring_each, variants


@scenario()
def producer_ids_without_a_transactional_id(play: Play) -> None:
    for version in range(6):
        play.init(f"v{version}", None, version=version)
    mine = play.producer()
    play.init("mine is given", None, mine, version=3)
    play.init("a timeout of 0", None, timeout_ms=0)
    play.init("a timeout above the cap", None, timeout_ms=1_000_000_000)
    play.init("an id without its epoch", None, Identity(mine.producer_id, -1))
    play.init("an epoch without its id", None, Identity(-1, 0))


@scenario()
def a_new_transactional_id(play: Play) -> None:
    for version in range(6):
        name = play.name("id")
        for again in range(2):
            play.init(f"v{version}, {again}", name, version=version)
    for version in (3, 4, 5):
        play.init(f"v{version}, no mapping for this one", play.name("id"), Identity(NOBODYS_ID, 7), version=version)
    for version in (0, 3, 5):
        for timeout_ms in (-1, 0, 1, 900_000, 900_001):
            play.init(f"v{version}, timeout {timeout_ms}", play.name("id"), version=version, timeout_ms=timeout_ms)
        play.init(f"v{version}, the empty id", "", version=version)
    play.init("an id without its epoch", play.name("id"), Identity(NOBODYS_ID, -1))
    play.init("an epoch without its id", play.name("id"), Identity(-1, 3))


@scenario(both_protocols=True, state=STATES[1:])
def init_producer_id(play: Play, state: str) -> None:
    for version in (2, 3, 5):
        for said, given in _given(version).items():
            label = f"v{version}, {said}"
            txn = bring(play, state)
            who = Identity(NOBODYS_ID, txn.who.epoch) if given == "other" else txn.who
            who = NOBODY if given is None else who if given == "other" else who.later(int(given))
            play.init(f"{label}: at once", txn.name, who, version=version, again=())
            play.init(f"{label}: waited for", txn.name, who, version=version)
            play.describe(f"{label}: id", txn)
            play.fetch(f"{label}: log", txn.topic, committed=True)


def _given(version: int) -> dict[str, str | None]:
    if version < 3:
        return {"nothing is given": None}
    return {
        "nothing is given": None, "epoch-2": "-2", "epoch-1": "-1", "epoch+0": "+0", "epoch+1": "+1",
        "another producer": "other",
    }  # fmt: skip


@scenario(both_protocols=True)
def init_producer_id_with_the_last_epoch(play: Play) -> None:
    txn = play.transaction()
    first = txn.who
    second = play.init("bumped", txn.name, first)
    play.init("repeated", txn.name, first)
    play.init("repeated once more, with another timeout", txn.name, first, timeout_ms=50_000)
    third = play.init("bumped again", txn.name, second)
    play.init("two before", txn.name, first)
    play.init("one before", txn.name, second)
    txn.who = third
    play.open(txn)
    play.init("one before, in an open transaction, at once", txn.name, second, again=())
    play.init("one before, in an open transaction", txn.name, second)
    play.describe("id", txn)
    play.init("nothing is given", txn.name)
    play.init("current is last after that", txn.name, third)
    play.describe("id at the end", txn)


@scenario(both_protocols=True, state=STATES)
def end_txn(play: Play, state: str) -> None:
    for commit in (True, False):
        for client in CLIENTS:
            txn = bring(play, state)
            asks = variants(txn)[client]
            label = f"{'commit' if commit else 'abort'}, {client}"
            play.end(f"{label}: answer", asks, commit)
            play.settle(txn.name)
            play.look(label, txn)
            asks = variants(txn)[client]
            play.end(f"{label}: repeated", asks, commit)
            play.settle(txn.name)
            asks = variants(txn)[client]
            play.end(f"{label}: the opposite", asks, not commit)
            play.look(f"{label}, at the end", txn)


@scenario(both_protocols=True)
def end_txn_of_odd_ids(play: Play) -> None:
    nobody = Identity(NOBODYS_ID, 0)
    for version in (0, 1, 2, 3, 4):
        for commit in (True, False):
            label = f"v{version}, {'commit' if commit else 'abort'}"
            txn = Transaction(play.name("id"), nobody)
            play.end(f"{label}: unknown id", txn, commit, version=version)
            play.end(f"{label}: the empty id", Transaction("", nobody), commit, version=version)
            txn = bring(play, "Ongoing")
            later = Transaction(txn.name, txn.who.later(1))
            play.end(f"{label}: epoch+1", later, commit, version=version)
            before = Transaction(txn.name, txn.who.later(-1))
            play.end(f"{label}: epoch-1", before, commit, version=version)
            play.end(f"{label}: epoch+0", txn, commit, version=version)
            play.settle(txn.name)
            play.end(f"{label}: repeated", txn, commit, version=version)
            play.look(label, txn)


@scenario(both_protocols=True)
def one_client_after_another(play: Play) -> None:
    """Commits and aborts in turn, an initialisation between some."""
    txn = play.transaction(initialised=1)
    for number, commit in enumerate((True, False, False, True, True)):
        play.open(txn, b"%d" % number)
        play.write(f"{number}: more", txn, 1, b"m")
        if number == 2:
            txn.who = play.init(f"{number}: initialised while open", txn.name)
        else:
            play.end(f"{number}: ended", txn, commit)
        play.settle(txn.name)
        play.look(f"{number}", txn)
        if number in (1, 3) or not play.new_protocol:
            txn.who = play.init(f"{number}: initialised", txn.name, txn.who)


@scenario(both_protocols=True, state=STATES)
def add_partitions_to_txn(play: Play, state: str) -> None:
    for client, txn in bring_each(play, state, CLIENTS):
        asks = variants(txn)[client]
        play.add(f"{client}: answer", asks, {txn.topic: [0]})
        play.add(f"{client}: repeated", asks, {txn.topic: [0]})
        play.describe(f"{client}: id", txn)


@scenario()
def add_partitions_that_are_not_there(play: Play) -> None:
    for version in (0, 1, 2, 3):
        txn = play.transaction()
        nowhere = play.name("nowhere")
        play.add(f"v{version}, unknown topic", txn, {nowhere: [0]}, version=version)
        play.add(f"v{version}, unknown partition", txn, {txn.topic: [7]}, version=version)
        play.add(f"v{version}, known and unknown", txn, {txn.topic: [0], nowhere: [0]}, version=version)
        play.describe(f"v{version}, nothing was added", txn)
        play.add(f"v{version}, none", txn, {}, version=version)
        play.describe(f"v{version}, none was added", txn)
        play.add(f"v{version}, a bad name", txn, {"no name!": [0]}, version=version)
        play.add(f"v{version}, an offsets partition", txn, {"__consumer_offsets": [0]}, version=version)
        play.describe(f"v{version}, at the end", txn)
        later = Transaction(txn.name, txn.who.later(1))
        play.add(f"v{version}, unknown and a wrong epoch", later, {nowhere: [0]}, version=version)
    play.add("the empty id", Transaction("", Identity(NOBODYS_ID, 0)), {play.topic(): [0]})


@scenario(both_protocols=True)
def add_partitions_as_brokers_do(play: Play) -> None:
    """Versions 4 and 5: several transactions, and looking only."""
    for version in (4, 5) if play.new_protocol else (4,):
        open_one, empty = bring(play, "Ongoing"), bring(play, "Empty")
        nowhere = play.name("nowhere")
        asked = {
            "open": (open_one, open_one.who, open_one.topic), "empty": (empty, empty.who, empty.topic),
            "older": (open_one, open_one.who.later(-1), open_one.topic),
            "newer": (open_one, open_one.who.later(1), open_one.topic),
            "other": (open_one, Identity(NOBODYS_ID, 0), open_one.topic),
            "not added": (open_one, open_one.who, empty.topic), "nowhere": (open_one, open_one.who, nowhere),
        }  # fmt: skip
        for verify_only in (True, False):
            for said, (txn, who, topic) in asked.items():
                play.ask(
                    f"v{version}, {said}, {'looks' if verify_only else 'adds'}", "AddPartitionsToTxn", version,
                    transactions=[{
                        "transactional_id": txn.name, "producer_id": who.producer_id, "producer_epoch": who.epoch,
                        "verify_only": verify_only, "topics": [{"name": topic, "partitions": [0]}],
                    }],
                )  # fmt: skip
        play.ask(
            f"v{version}, two at once", "AddPartitionsToTxn", version,
            transactions=[{
                "transactional_id": txn.name, "producer_id": txn.who.producer_id, "producer_epoch": epoch,
                "verify_only": True, "topics": [{"name": txn.topic, "partitions": [0]}],
            } for txn, epoch in ((open_one, open_one.who.epoch), (empty, 30_000))],
        )  # fmt: skip
        play.describe(f"v{version}, open", open_one)
        play.describe(f"v{version}, empty", empty)


@scenario(both_protocols=True, state=STATES)
def add_offsets_to_txn(play: Play, state: str) -> None:
    for client, txn in bring_each(play, state, CLIENTS):
        asks = variants(txn)[client]
        play.add_offsets(f"{client}: answer", asks, "group-of-all")
        play.add_offsets(f"{client}: repeated", asks, "group-of-all")
        play.describe(f"{client}: id", txn)
    play.add_offsets("the empty group", bring(play, "Empty"), "")


@scenario(both_protocols=True)
def after_its_timeout(play: Play) -> None:
    """Transactions with records are aborted by the coordinator; then their clients come back, each in its own way."""
    returns = ("commit", "abort", "write", "init", "init with epoch", "add")
    # Long enough to be opened on a busy machine, and all at once, so that it is waited for once.
    opened = {said: play.transaction(timeout_ms=3_000) for said in returns}
    for txn in opened.values():
        play.open(txn, b"a")
    for said, txn in opened.items():
        play.wait_until(lambda name=txn.name: _state(play, name) == "CompleteAbort", "it times out")
        play.look(f"{said}, before", txn)
        if said in ("commit", "abort"):
            play.end(said, txn, said == "commit")
        elif said == "write":
            play.write(said, txn, 1, b"late")
        elif said == "add":
            play.add(said, txn, {txn.topic: [0]})
        else:
            play.init(said, txn.name, txn.who if said == "init with epoch" else NOBODY)
        play.look(f"{said}, after", txn)


def _state(play: Play, name: str) -> str:
    (said,) = play.ask(None, "DescribeTransactions", 0, transactional_ids=[name])["transaction_states"]
    return str(said["transaction_state"])


@scenario(both_protocols=True)
def lists_of_transactions(play: Play) -> None:
    made = {state: bring(play, state) for state in ("Empty", "Ongoing", "CompleteCommit", "CompleteAbort")}
    pids = [txn.who.producer_id for txn in made.values()]
    play.note("made", [{"producer_id": pid} for pid in pids])

    def listed(label: str, version: int = 0, **fields: Any) -> None:
        given: dict[str, Any] = {"state_filters": [], "producer_id_filters": [], **fields}
        answer = play.ask(None, "ListTransactions", version, **given)
        answer["transaction_states"] = [
            one for one in answer.get("transaction_states", []) if one["producer_id"] in pids
        ]
        play.note(label, answer)

    listed("all")
    for state in (
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "CompleteCommit",
        "CompleteAbort",
        "Dead",
        "Nonsense",
        "ongoing",
    ):
        listed(f"only {state}", state_filters=[state])
    listed("two states", state_filters=["Empty", "Ongoing"])
    listed("known and unknown states", state_filters=["Empty", "Nonsense"])
    listed("a producer", producer_id_filters=[pids[1]])
    listed("a producer in another state", producer_id_filters=[pids[1]], state_filters=["Empty"])
    listed("a producer that is not there", producer_id_filters=[NOBODYS_ID])
    for duration in (-1, 0, 3_600_000):
        listed(f"v1, longer than {duration} ms", 1, duration_filter=duration)
    play.ask(
        "described together", "DescribeTransactions", 0,
        transactional_ids=[*(txn.name for txn in made.values()), play.name("id"), ""],
    )  # fmt: skip
