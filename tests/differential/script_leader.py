"""The partition's leader: sequences, epochs, damaged batches, what Produce refuses and what it takes."""

from __future__ import annotations

import itertools

from tests.differential import records
from tests.differential.play import NOBODYS_ID, Play
from tests.differential.records import Identity, batch
from tests.differential.script import scenario
from tests.differential.states import CLIENTS, STATES, bring_each, variants
from tests.differential.wire import HungUp

_TOP = 2**31 - 1
_CONTROL, _TRANSACTIONAL, _APPEND_TIME, _UNUSED = 0x20, 0x10, 0x08, 0x80


class _Idempotent:
    """A producer that writes what it is told to, to partition 0 of a topic of its own."""

    def __init__(self, play: Play) -> None:
        self.play, self.who, self.topic = play, play.producer(), play.topic()

    def write(self, label: str | None, sequence: int, count: int = 1, *, epoch: int = 0) -> None:
        who = Identity(self.who.producer_id, epoch)
        self.play.produce(label, self.topic, batch(*[b"v"] * count, who=who, sequence=sequence))

    def look(self, label: str) -> None:
        self.play.producers(f"{label}: producers", self.topic)
        self.play.fetch(f"{label}: log", self.topic)


@scenario()
def first_sequences(play: Play) -> None:
    for sequence in (0, 1, 5, _TOP, -1, -2):
        one = _Idempotent(play)
        one.write(f"first {sequence}", sequence)
        one.write(f"first {sequence}, again", sequence)
        one.write(f"first {sequence}, then the next", 0 if sequence == _TOP else sequence + 1)
        one.look(f"first {sequence}")


@scenario()
def duplicates(play: Play) -> None:
    one = _Idempotent(play)
    sequence = 0
    starts = []
    for count in (1, 3, 2, 1, 4, 2, 1):
        one.write(f"written {sequence}", sequence, count)
        starts.append((sequence, count))
        sequence += count
    for start, count in reversed(starts):
        one.write(f"again {start}", start, count)
    for start, count in starts:
        one.write(f"the start of {start} with one more", start, count + 1)
        one.write(f"only the last of {start}", start + count - 1, 1)
    one.write("a gap of one", sequence + 1)
    one.write("a gap of many", sequence + 1000)
    one.write("the next", sequence)
    one.look("at the end")


@scenario()
def epochs_of_an_idempotent_producer(play: Play) -> None:
    one = _Idempotent(play)
    one.write("epoch 3", 0, 2, epoch=3)
    one.write("epoch 2", 2, epoch=2)
    one.write("epoch 2, from zero", 0, epoch=2)
    one.write("epoch 4, in the middle", 2, epoch=4)
    one.write("epoch 4, from zero", 0, epoch=4)
    one.look("epoch 4")
    one.write("epoch 4, again", 0, epoch=4)
    one.write("epoch 3, a duplicate of before", 0, 2, epoch=3)
    one.write("epoch 4, next", 1, epoch=4)
    one.write("epoch 32767", 0, epoch=32767)
    one.write("epoch -1", 0, epoch=-1)
    one.look("at the end")


@scenario()
def wrapping_sequences(play: Play) -> None:
    one = _Idempotent(play)
    one.write("just before the top", _TOP - 2, 2)
    one.write("the top", _TOP, 1)
    one.write("zero", 0, 1)
    one.write("the top again", _TOP, 1)
    one.look("one by one")
    across = _Idempotent(play)
    across.write("up to the top", _TOP - 3, 2)
    across.write("across the top", _TOP - 1, 4)
    across.write("across the top again", _TOP - 1, 4)
    across.write("a gap behind it", 3)
    across.write("behind it", 2)
    across.look("across")


@scenario()
def producers_share_a_partition(play: Play) -> None:
    topic = play.topic(partitions=2)
    first, second = play.producer(), play.producer()
    for number, who in itertools.product(range(3), (first, second)):
        play.produce(f"{number} by {who == first}", topic, batch(b"v", who=who, sequence=number))
    play.produce("nobody", topic, batch(b"v"))
    play.produce("the first elsewhere", topic, batch(b"v", who=first, sequence=0), partition=1)
    for partition in (0, 1):
        play.producers(f"producers of {partition}", topic, partition)


@scenario()
def damaged_batches(play: Play) -> None:
    whole = batch(b"a", b"b", b"c")
    damaged = {
        "bad checksum": records.with_bad_crc(whole),
        "one record too few announced": records.with_count(whole, 2),
        "one record too many announced": records.with_count(whole, 4),
        "no record announced": records.with_count(whole, 0),
        "a negative count": records.with_count(whole, -1),
        "a last delta too small": records.with_last_delta(whole, 1),
        "a last delta too large": records.with_last_delta(whole, 3),
        "magic 1 claimed": records.with_magic(whole, 1),
        "magic 3 claimed": records.with_magic(whole, 3),
        "magic -1 claimed": records.with_magic(whole, -1),
        "really magic 1": records.old_batch(b"old"),
        "control bit": records.with_attributes(whole, _CONTROL),
        "append time bit": records.with_attributes(whole, _APPEND_TIME),
        "an unused bit": records.with_attributes(whole, _UNUSED),
        "transactional bit, nobody's": records.with_attributes(whole, _TRANSACTIONAL),
        "codec 5": records.with_attributes(whole, 5),
        "gzip bit without gzip": records.with_attributes(whole, 1),
        "a length too small": records.with_length(whole, len(whole) - 13),
        "a length too large": records.with_length(whole, len(whole)),
        "a length of 0": records.with_length(whole, 0),
        "a length of -1": records.with_length(whole, -1),
        "cut": whole[:-1],
        "cut in the header": whole[:40],
        "12 bytes": whole[:12],
        "a byte behind": whole + b"\0",
        "empty": b"",
        "an empty batch": records.empty_batch(),
        "two batches": whole + whole,
        "a good one and a bad one": whole + records.with_bad_crc(whole),
    }
    for said, data in damaged.items():
        topic = play.topic()
        for version in (3, 8, 9):
            play.produce(f"{said}, v{version}", topic, data, version=version)
        play.fetch(f"{said}: log", topic)


@scenario()
def batches_of_a_producer_that_are_odd(play: Play) -> None:
    who = play.producer()
    odd = {
        "an empty batch": records.empty_batch(who, 0),
        "two batches": batch(b"a", who=who, sequence=0) + batch(b"b", who=who, sequence=1),
        "two producers": batch(b"a", who=who, sequence=0) + batch(b"b"),
        "transactional without an id": batch(b"a", who=who, sequence=0, transactional=True),
        "an epoch of -1": batch(b"a", who=Identity(who.producer_id, -1), sequence=0),
        "a sequence of -1": batch(b"a", who=who, sequence=-1),
        "a producer that nobody made": batch(b"a", who=Identity(NOBODYS_ID, 0), sequence=0),
        "a control batch": records.with_attributes(batch(b"a", who=who, sequence=0), _CONTROL),
    }
    for said, data in odd.items():
        topic = play.topic()
        play.produce(said, topic, data)
        play.producers(f"{said}: producers", topic)
        play.fetch(f"{said}: log", topic)


@scenario()
def sizes_and_codecs(play: Play) -> None:
    small = play.topic(max_message_bytes="1000")
    play.produce("below the limit", small, batch(b"x" * 900))
    play.produce("above the limit", small, batch(b"x" * 1000))
    play.produce("above the limit, packed", small, batch(b"x" * 4000, codec=1))
    play.produce("two batches, together above the limit", small, batch(b"x" * 600) + batch(b"x" * 600))
    play.fetch("small: log", small)
    topic = play.topic()
    for codec in (0, 1, 2, 3, 4):
        play.produce(f"codec {codec}", topic, batch(b"compressed " * 20, b"b", codec=codec))
        play.produce(f"codec {codec}, v3", topic, batch(b"compressed " * 20, b"b", codec=codec), version=3)
    play.fetch("codecs: log", topic)
    play.offset_at("codecs: by time", topic, records.FIRST_TIMESTAMP_MS + 1)
    for kind in ("LogAppendTime", "CreateTime"):
        stamped = play.topic(message_timestamp_type=kind)
        answer = play.produce(None, stamped, batch(b"a", b"b"))
        (part,) = answer["responses"][0]["partition_responses"]
        play.note(f"{kind}: answer", "set" if part["log_append_time_ms"] > 0 else part)


@scenario()
def what_produce_asks_for(play: Play) -> None:
    topic, who = play.topic(), play.producer()
    for acks in (1, -1, 2, -2):
        play.produce(f"acks {acks}", topic, batch(b"a"), acks=acks)
    play.produce("unknown topic", play.name("nowhere"), batch(b"a"))
    play.produce("unknown partition", topic, batch(b"a"), partition=3)
    play.produce("partition -1", topic, batch(b"a"), partition=-1)
    play.produce("a bad name", "no name!", batch(b"a"))
    play.produce("an id without transactions", topic, batch(b"a"), transactional_id=play.name("id"))
    play.ask("no topic", "Produce", 9, transactional_id=None, acks=-1, timeout_ms=1000, topic_data=[])
    play.produce("an internal topic", "__consumer_offsets", batch(b"a"))
    play.ask(
        "known and unknown", "Produce", 9, transactional_id=None, acks=-1, timeout_ms=1000,
        topic_data=[
            {"name": topic, "partition_data": [
                {"index": 0, "records": batch(b"a")}, {"index": 9, "records": batch(b"b")}]},
            {"name": play.name("nowhere"), "partition_data": [{"index": 0, "records": batch(b"c")}]},
        ],
    )  # fmt: skip
    for said, data in (
        ("good", batch(b"silent", who=who, sequence=0)),
        ("bad", records.with_bad_crc(batch(b"x"))),
    ):
        play.note(f"acks 0, {said}", silently(play, topic, data))
    play.note("acks 0, unknown topic", silently(play, play.name("nowhere"), batch(b"x")))
    play.fetch("log", topic)


def silently(play: Play, topic: str, data: bytes) -> str:
    """Without an acknowledgement the only sign of an error is that the broker hangs up."""
    play.connection.send(
        "Produce", 9, transactional_id=None, acks=0, timeout_ms=1000,
        topic_data=[{"name": topic, "partition_data": [{"index": 0, "records": data}]}],
    )  # fmt: skip
    try:
        play.connection.call("Metadata", 7, topics=[], allow_auto_topic_creation=False)
    except HungUp:
        return "closed"
    return "goes on"


@scenario(both_protocols=True, state=STATES)
def transactional_batches(play: Play, state: str) -> None:
    """Nobody added the partition: version 2 adds it by the request, version 1 has it verified."""
    for client, txn in bring_each(play, state, CLIENTS):
        asks = variants(txn)[client]
        topic = play.topic()
        data = batch(b"x", who=asks.who, sequence=0, transactional=True)
        play.produce(f"{client}: answer", topic, data, transactional_id=txn.name)
        play.produce(f"{client}: repeated", topic, data, transactional_id=txn.name)
        play.describe(f"{client}: id", txn)
        play.producers(f"{client}: producers", topic)
        play.fetch(f"{client}: log", topic, committed=True)
        again = batch(b"y", who=asks.who, sequence=0 if state != "Ongoing" else 2, transactional=True)
        play.produce(f"{client}: where it wrote before", txn.topic, again, transactional_id=txn.name)
        play.look(f"{client}: there", txn)


@scenario(both_protocols=True)
def batches_in_an_open_transaction(play: Play) -> None:
    for version in (9, 11, 12) if play.new_protocol else (3, 9, 11):
        said = f"v{version}"
        txn = play.transaction()
        play.open(txn)
        data = batch(b"n", who=txn.who, sequence=2)
        play.produce(f"{said}: not transactional", txn.topic, data, version=version)
        data = batch(b"n", who=txn.who, sequence=3, transactional=True)
        play.produce(f"{said}: no id in the request", txn.topic, data, version=version)
        name = play.name("id")
        play.produce(f"{said}: another id in the request", txn.topic, data, version=version, transactional_id=name)
        data = batch(b"n", who=txn.who, sequence=9, transactional=True)
        play.produce(f"{said}: a gap", txn.topic, data, version=version, transactional_id=txn.name)
        data = batch(b"n", who=txn.who, sequence=0, transactional=True)
        play.produce(f"{said}: from zero", txn.topic, data, version=version, transactional_id=txn.name)
        other = play.topic()
        data = batch(b"n", who=txn.who, sequence=4, transactional=True)
        play.produce(f"{said}: elsewhere, above zero", other, data, version=version, transactional_id=txn.name)
        play.producers(f"{said}: elsewhere", other)
        play.look(said, txn)
        plain = play.topic()
        data = batch(b"n", who=txn.who, sequence=0)
        play.produce(f"{said}: not transactional, elsewhere", plain, data, version=version)
        play.fetch(f"{said}: plain", plain, committed=True)


@scenario(both_protocols=True, ended=("commit", "abort"))
def sequences_after_a_marker(play: Play, ended: str) -> None:
    for said, sequence in (("from zero", 0), ("goes on", 2), ("a gap", 3), ("a duplicate", 0)):
        txn = play.transaction()
        play.open(txn)
        before = txn.who
        play.ended(txn, ended == "commit")
        if said == "a duplicate":
            txn.who = before
        if not play.new_protocol:
            play.add(f"{said}: added", txn, {txn.topic: [0]})
        data = (b"a", b"b") if said == "a duplicate" else (b"next",)
        play.write(said, txn, sequence, *data)
        play.look(said, txn)
