"""Records judged one by one, batches packed anew, and the broker's own time: what a topic's settings do to what is
written.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from tests.differential import records
from tests.differential.play import Play, Transaction
from tests.differential.records import batch
from tests.differential.script import scenario
from tests.differential.script_leader import silently

_APPEND_TIME = 0x08
_HOUR_MS = 3_600_000
_CODECS = ("uncompressed", "gzip", "snappy", "lz4", "zstd", "producer")


def _in_hours(hours: float) -> int:
    return int(time.time() * 1000 + hours * _HOUR_MS)


@scenario(policy=("compact", "compact,delete"))
def records_without_a_key(play: Play, policy: str) -> None:
    topic = play.topic(cleanup_policy=policy)
    keyed: dict[str, Sequence[bytes | None]] = {
        "no key at all": (None, None, None), "some keys": (b"k", None, b"k", None), "an empty key": (b"", b""), "all": (b"a", b"b"),
    }  # fmt: skip
    for said, keys in keyed.items():
        data = batch(*[b"v"] * len(keys), keys=keys)
        for version in (3, 7, 8, 9):
            play.produce(f"{said}, v{version}", topic, data, version=version)
        play.produce(f"{said}, acks 1", topic, data, acks=1)
    for codec in (1, 2, 3, 4):
        data = batch(b"x" * 300, b"y", b"z", keys=(b"a", None, b"c"), codec=codec)
        play.produce(f"codec {codec}", topic, data, version=9)
    play.note("not acknowledged", silently(play, topic, batch(b"v")))
    play.fetch("log", topic)


@scenario(both_protocols=True)
def a_producer_whose_records_have_no_key(play: Play) -> None:
    """Nothing of a refused batch is remembered: neither its sequences nor its transaction."""
    topic, who = play.topic(cleanup_policy="compact"), play.producer()
    for said, key in (("without", None), ("with", b"k"), ("with, again", b"k"), ("without, again", None)):
        data = batch(b"v", b"w", keys=(b"k", key), who=who, sequence=0)
        play.produce(said, topic, data)
    play.produce("next", topic, batch(b"x", keys=(b"k",), who=who, sequence=2))
    play.producers("producers", topic)
    txn = play.transaction()
    txn = Transaction(txn.name, txn.who, topic)
    if not play.new_protocol:
        play.add(None, txn, {topic: [0]})
    data = batch(b"t", who=txn.who, sequence=0, transactional=True)
    play.produce("in a transaction, without", topic, data, transactional_id=txn.name)
    play.describe("in a transaction, without: id", txn)
    data = batch(b"t", keys=(b"k",), who=txn.who, sequence=0, transactional=True)
    play.produce("in a transaction, with", topic, data, transactional_id=txn.name)
    play.ended(txn, commit=True)
    play.look("at the end", txn)


@scenario()
def timestamps_out_of_range(play: Play) -> None:
    before = play.topic(message_timestamp_before_max_ms=str(_HOUR_MS))
    after = play.topic(message_timestamp_after_max_ms=str(_HOUR_MS))
    both = play.topic(
        message_timestamp_before_max_ms=str(_HOUR_MS), message_timestamp_after_max_ms=str(_HOUR_MS), cleanup_policy="compact"
    )  # fmt: skip
    stamped = play.topic(
        message_timestamp_before_max_ms=str(_HOUR_MS), message_timestamp_after_max_ms=str(_HOUR_MS), message_timestamp_type="LogAppendTime"
    )  # fmt: skip
    now, old, late = _in_hours(0), _in_hours(-2), _in_hours(2)
    for said, topic in (("before", before), ("after", after), ("both", both), ("stamped", stamped)):
        for name, times in (
            ("now", (now, now)), ("old", (old, now, old)), ("late", (now, late)), ("all", (late, old, now)), ("none", (-1, -1)),
        ):  # fmt: skip
            data = batch(*[b"v"] * len(times), timestamps=times, keys=[b"k"] * len(times))
            for version in (3, 8):
                play.produce(f"{said}: {name}, v{version}", topic, data, version=version)
            packed = batch(*[b"v" * 300] * len(times), timestamps=times, keys=[b"k"] * len(times), codec=1)
            play.produce(f"{said}: {name}, packed", topic, packed)
        play.fetch(f"{said}: log", topic)
    for said, keys, times in (
        ("a key and a time", (None, b"k", None), (now, old, old)), ("a key", (None, b"k", None), (now, now, now)),
    ):  # fmt: skip
        play.produce(f"both: {said}", both, batch(b"a", b"b", b"c", keys=keys, timestamps=times))


@scenario(codec=("producer", "gzip", "uncompressed"))
def timestamps_before_1970(play: Play, codec: str) -> None:
    topic = play.topic(compression_type=codec)
    stamped = play.topic(compression_type=codec, message_timestamp_type="LogAppendTime")
    for said, stamp in (("1969", -86_400_000), ("two milliseconds before", -2), ("none", -1), ("1970", 0)):
        for packed in (0, 1):
            data = batch(b"v", b"w", timestamps=(_in_hours(0), stamp), codec=packed)
            play.produce(f"{said}, codec {packed}", topic, data, version=9)
            play.produce(f"{said}, codec {packed}, stamped by the broker", stamped, data, version=9)
    play.fetch("log", topic)


@scenario()
def timestamps_far_ahead_by_default(play: Play) -> None:
    topic = play.topic()
    for said, hours in (("half an hour", 0.5), ("two hours", 2), ("a hundred years", 876_000)):
        play.produce(said, topic, batch(b"v", b"w", timestamps=(_in_hours(0), _in_hours(hours))))
    play.produce("years ago", topic, batch(b"v", timestamps=(1,)))


@scenario()
def append_time_claimed_by_a_producer(play: Play) -> None:
    for kind in ("CreateTime", "LogAppendTime"):
        topic = play.topic(message_timestamp_type=kind)
        for said, times in (("a time", ()), ("no time", (-1, -1))):
            claimed = records.with_attributes(batch(b"a", b"b", timestamps=times), _APPEND_TIME)
            for version in (3, 8):
                play.produce(f"{kind}: {said}, v{version}", topic, claimed, version=version)
            packed = records.with_attributes(batch(b"a" * 300, b"b", timestamps=times, codec=1), _APPEND_TIME)
            play.produce(f"{kind}: {said}, packed", topic, packed)
        play.fetch(f"{kind}: log", topic)


@scenario()
def counts_that_lie_in_step(play: Play) -> None:
    """Count and last offset agree with each other, and not with the records."""
    for said, policy in (("plain", "delete"), ("compacted", "compact")):
        topic = play.topic(cleanup_policy=policy)
        for codec in (0, 1):
            whole = batch(b"a" * 300, b"b", b"c", keys=(b"k",) * 3, codec=codec)
            for count in (2, 4):
                lied = records.with_count(records.with_last_delta(whole, count - 1), count)
                play.produce(f"{said}: {count} of 3, codec {codec}", topic, lied)
        play.fetch(f"{said}: log", topic)


@scenario(target=_CODECS)
def batches_are_packed_anew(play: Play, target: str) -> None:
    topic = play.topic(compression_type=target)
    values = [b"compressed " * 20, b"b", b""]
    for codec in (0, 1, 2, 3, 4):
        play.produce(f"codec {codec}", topic, batch(*values, codec=codec, keys=(b"k", None, b"")))
    who = play.producer()
    for codec in (0, 2):
        data = batch(*values, codec=codec, who=who, sequence=3 * (codec // 2))
        play.produce(f"a producer, codec {codec}", topic, data)
        play.produce(f"a producer, codec {codec}, again", topic, data)
    play.producers("producers", topic)
    play.fetch("log", topic)
    play.offset_at("by time", topic, records.FIRST_TIMESTAMP_MS + 1)
    txn = play.transaction()
    txn = Transaction(txn.name, txn.who, topic)
    play.open(txn, b"t" * 100)
    play.ended(txn, commit=False)
    play.look("at the end", txn)
    stamped = play.topic(compression_type=target, message_timestamp_type="LogAppendTime")
    for codec in (0, 1, 4):
        play.produce(f"stamped, codec {codec}", stamped, batch(b"a" * 300, b"b", codec=codec))
    play.fetch("stamped: log", stamped)
    compacted = play.topic(compression_type=target, cleanup_policy="compact")
    play.produce("without a key", compacted, batch(b"a" * 300, b"b", keys=(b"k", None), codec=1))
    play.fetch("without a key: log", compacted)


@scenario()
def batches_that_grow_when_they_are_unpacked(play: Play) -> None:
    topic = play.topic(compression_type="uncompressed", max_message_bytes="1000")
    play.produce("packed small", topic, batch(b"x" * 4000, codec=1))
    play.produce("packed, and small unpacked", topic, batch(b"x" * 400, codec=1))
    play.produce("never packed", topic, batch(b"x" * 1000))
    shrunk = play.topic(compression_type="gzip", max_message_bytes="1000")
    play.produce("large until it is packed", shrunk, batch(b"x" * 4000))
    for said, where in (("grown", topic), ("shrunk", shrunk)):
        play.fetch(f"{said}: log", where)


@scenario()
def the_brokers_own_time(play: Play) -> None:
    topic = play.topic(message_timestamp_type="LogAppendTime")
    for codec in (0, 1, 3):
        for version in (3, 8, 11):
            play.produce(f"codec {codec}, v{version}", topic, batch(b"a" * 300, b"b", codec=codec), version=version)
    play.produce("no time", topic, batch(b"a", timestamps=(-1,)))
    who = play.producer()
    data = batch(b"p", who=who, sequence=0)
    play.produce("a producer", topic, data)
    play.produce("a producer, again", topic, data)
    play.fetch("log", topic)
    for said, at in (
        ("old", records.FIRST_TIMESTAMP_MS),
        ("an hour ago", _in_hours(-1)),
        ("in an hour", _in_hours(1)),
    ):
        play.offset_at(said, topic, at)
