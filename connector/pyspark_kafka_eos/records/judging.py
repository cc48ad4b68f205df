"""Which rows of an Arrow batch cannot become records, and why: all of them at once.

Owns: the reasons, their words, the rules that a topic's settings make (`TopicRules`) applied to rows.
Does not know: how a cluster is asked, what becomes of a bad row, sizes of records.
Invariants:
- The same rows are judged alike whenever they are judged under one `Basis`.
- A good row costs no Python of its own.
Sources: KIP-937 (limits of a record's time), Kafka's LogValidator, ProducerRecord (no time before 1970).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kafka_core.errors import ExactlyOnceError, Fact, InvalidRow, RecordTooLarge, UnknownTopic
from pyspark_kafka_eos.model import TopicRules
from pyspark_kafka_eos.model.said_times import moment, span

GOOD, NULL_TIMESTAMP, NO_TOPIC, UNKNOWN_TOPIC, NULL_HEADER_KEY, BAD_PARTITION, TOO_LARGE, BEFORE_1970, NO_KEY, TOO_OLD, TOO_NEW, EXPIRED = range(12)  # fmt: skip

WHY: dict[int, tuple[type[ExactlyOnceError], str]] = {
    NULL_TIMESTAMP: (InvalidRow, "the timestamp is null"),
    NO_TOPIC: (InvalidRow, "the topic column is null and the option topic is not set"),
    UNKNOWN_TOPIC: (UnknownTopic, "the topic does not exist"),
    NULL_HEADER_KEY: (InvalidRow, "a header has no key"),
    BAD_PARTITION: (InvalidRow, "the topic does not have this partition"),
    TOO_LARGE: (RecordTooLarge, "the record is larger than its topic allows"),
    BEFORE_1970: (InvalidRow, "the timestamp is before 1970"),
    NO_KEY: (InvalidRow, "the row has no key and its topic is compacted"),
    TOO_OLD: (InvalidRow, "the timestamp is further back than the topic takes"),
    TOO_NEW: (InvalidRow, "the timestamp is further ahead than the topic takes"),
    EXPIRED: (InvalidRow, "the timestamp is older than the topic keeps records"),
}
"""What on.bad.record=fail would raise for such a row, and why."""

Reasons = npt.NDArray[np.int8]
Int64s = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
TopicIndex = int | npt.NDArray[np.int32]

_LEGAL_TOPIC = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}")
_EVER = 2**62
"""Milliseconds: no time is as far away."""


def legal_name(topic: str) -> bool:
    """Whether a topic may have this name; an illegal name needs no request."""
    return _LEGAL_TOPIC.fullmatch(topic) is not None


def times_ms(column: pa.Array) -> Int64s:
    """Times in milliseconds since 1970, rounded down; 0 for null."""
    exact = column.cast(pa.timestamp("us", tz=column.type.tz), safe=False).cast(pa.int64())
    found: Int64s = pc.fill_null(exact, 0).to_numpy(zero_copy_only=False) // 1000
    return found


def require_times(column: pa.Array) -> Int64s:
    """Times in milliseconds since 1970; InvalidRow with `row` for the first that is null or before 1970."""
    if column.null_count:
        raise InvalidRow(
            "a row has a null timestamp; give every row one or drop the timestamp column, and records are stamped when they are written",
            {"row": int(pc.index(pc.is_null(column), True).as_py())},
        )
    stamps = times_ms(column)
    if len(stamps) and stamps.min() < 0:
        row = int(np.argmax(stamps < 0))
        raise InvalidRow(
            "a row has a timestamp before 1970, which no record can have; correct the timestamp column or drop it, and records "
            "are stamped when they are written",
            {"row": row, "timestamp_ms": int(stamps[row])},
        )
    return stamps


def judge(
    batch: pa.RecordBatch,
    topic: str | None,
    partitions_of: Callable[[str], int],
    rules_of: Callable[[str], TopicRules],
    judged_ms: int,
) -> Reasons:
    """Why each row cannot be written. GOOD where it can; sizes are not judged.

    `topic`: where all rows go, None where each names its own.
    `partitions_of`: how many a topic has, 0 where it does not exist; `rules_of` is asked about others only.
    """
    names = batch.schema.names
    reasons: Reasons = np.zeros(batch.num_rows, dtype=np.int8)

    def mark(bad: Flags, reason: int) -> None:
        reasons[bad & (reasons == GOOD)] = reason

    stamps = None
    if "timestamp" in names:
        mark(_flags(pc.is_null(batch.column("timestamp"))), NULL_TIMESTAMP)
        stamps = times_ms(batch.column("timestamp"))
        mark(stamps < 0, BEFORE_1970)
    counts: Int64s = np.zeros(batch.num_rows, dtype=np.int64)
    topic_index: TopicIndex = 0
    if topic is not None:
        known = [partitions_of(topic)]
        counts += known[0]
        of_topics = [topic]
    else:
        encoded = pc.dictionary_encode(batch.column("topic"))
        codes = pc.fill_null(encoded.indices.cast(pa.int32()), -1).to_numpy(zero_copy_only=False)
        of_topics = encoded.dictionary.to_pylist()
        known = [partitions_of(name) for name in of_topics]
        # The extra last entry is for the index -1, which a null topic has.
        counts = np.array([*known, 0], dtype=np.int64)[codes]
        mark(codes < 0, NO_TOPIC)
        mark(counts == 0, UNKNOWN_TOPIC)
        topic_index = codes
    if "headers" in names:
        mark(_null_header_keys(batch.column("headers")), NULL_HEADER_KEY)
    if "partition" in names:
        own = batch.column("partition")
        number = pc.fill_null(own, 0).to_numpy(zero_copy_only=False)
        mark((number < 0) | (number >= counts), BAD_PARTITION)
    rules = [rules_of(name) if count else TopicRules() for name, count in zip(of_topics, known, strict=True)]
    key = batch.column("key") if "key" in names else None
    for reason, bad in broken_rules([*rules, TopicRules()], topic_index, key, stamps, judged_ms, batch.num_rows):
        mark(bad, reason)
    return reasons


def broken_rules(
    rules: Sequence[TopicRules], topic_index: TopicIndex, key: pa.Array | None, stamps: Int64s | None, judged_ms: int, rows: int
) -> list[tuple[int, Flags]]:  # fmt: skip
    """(reason, the rows that it holds for) of the topics' rules; nothing where every row is good.

    `rules`, of each topic by its index; `judged_ms`: the moment from which times are judged.
    """
    found: list[tuple[int, Flags]] = []

    def by_row(values: Sequence[int | bool]) -> npt.NDArray[np.int64]:
        return np.asarray(values, dtype=np.int64)[topic_index]

    if (key is None or key.null_count) and any(each.needs_keys for each in rules):
        without = np.ones(rows, dtype=np.bool_) if key is None else _flags(pc.is_null(key))
        found.append((NO_KEY, without & (by_row([each.needs_keys for each in rules]) == 1)))
    if stamps is not None and any(each.by_time for each in rules):
        first = by_row([judged_ms - min(_EVER, _or_ever(each.back_ms)) for each in rules])
        last = by_row([judged_ms + min(_EVER, _or_ever(each.ahead_ms)) for each in rules])
        kept = [judged_ms - min(_EVER, _or_ever(each.keeps_ms if each.must_keep else None)) for each in rules]
        found += [(TOO_OLD, stamps < first), (TOO_NEW, stamps > last), (EXPIRED, stamps < by_row(kept))]
    return [(reason, bad) for reason, bad in found if bad.any()]


def expired(
    rules: Sequence[TopicRules], topic_index: TopicIndex, stamps: Int64s | None, judged_ms: int
) -> list[tuple[int, int, int]]:
    """(a topic's index, how many rows are older than it keeps records, the oldest time) for each topic that has such
    rows.
    """
    if stamps is None or not len(stamps):
        return []
    found = []
    for index, each in enumerate(rules):
        if each.keeps_ms is None or stamps.min() >= judged_ms - each.keeps_ms:
            continue
        own = stamps if isinstance(topic_index, int) else stamps[topic_index == index]
        old = own[own < judged_ms - each.keeps_ms]
        if len(old):
            found.append((index, len(old), int(old.min())))
    return found


def refused(reason: int, rules: TopicRules, stamp: int | None, judged_ms: int, row: int) -> InvalidRow:
    """The error for a row that breaks a rule of its topic: which setting, both values, the way out. Facts: row,
    setting, limits.
    """
    if reason == NO_KEY:
        return InvalidRow(
            "a row has no key, and its topic is compacted (cleanup.policy), so it takes only records with one; give every row a key, "
            "write to another topic, or set dead.letter.topic",
            {"row": row, "setting": "cleanup.policy"},
        )
    if reason == EXPIRED:
        return InvalidRow(
            f"a row has the timestamp {moment(stamp or 0)}, {span(judged_ms - (stamp or 0))} before the batch's planning, and its topic keeps records "
            f"for {span(rules.keeps_ms or 0)} (retention.ms={rules.keeps_ms}): it would be deleted, and readers may never see it; drop the timestamp column, raise the setting, or set "
            "dead.letter.topic; on.expired.record=warn writes it nevertheless",
            {
                "row": row,
                "setting": "retention.ms",
                "limit_ms": rules.keeps_ms,
                "timestamp_ms": stamp,
                "judged_ms": judged_ms,
            },
        )
    ahead = reason == TOO_NEW
    setting = f"message.timestamp.{'after' if ahead else 'before'}.max.ms"
    limit = rules.ahead_ms if ahead else rules.back_ms
    away = (stamp or 0) - judged_ms
    facts: dict[str, Fact] = {
        "row": row, "setting": setting, "limit_ms": limit, "timestamp_ms": stamp, "judged_ms": judged_ms,
    }  # fmt: skip
    return InvalidRow(
        f"a row has the timestamp {moment(stamp or 0)}, {span(abs(away))} {'ahead of' if ahead else 'before'} the batch's planning, which was at "
        f"{moment(judged_ms)} by the clock of the driver's machine, and its topic takes {span(limit or 0)} ({setting}={limit}); correct the "
        "timestamp column or drop it, or that clock where it is wrong, raise the setting, or set dead.letter.topic",
        facts,
    )


def _or_ever(span: int | None) -> int:
    return _EVER if span is None else span


def _flags(found: pa.Array) -> Flags:
    flags: Flags = found.to_numpy(zero_copy_only=False)
    return flags


def _null_header_keys(headers: pa.Array) -> Flags:
    bad: Flags = np.zeros(len(headers), dtype=np.bool_)
    if headers.null_count == len(headers):
        return bad
    entries = headers.flatten()
    missing = np.flatnonzero(_flags(pc.or_(pc.is_null(entries), pc.is_null(entries.field("key")))))
    ends = np.cumsum(pc.fill_null(pc.list_value_length(headers), 0).to_numpy(zero_copy_only=False))
    bad[np.searchsorted(ends, missing, side="right")] = True
    return bad


__all__ = [
    "BEFORE_1970",
    "EXPIRED",
    "GOOD",
    "NO_KEY",
    "TOO_LARGE",
    "TOO_NEW",
    "TOO_OLD",
    "WHY",
    "Reasons",
    "broken_rules",
    "expired",
    "judge",
    "legal_name",
    "refused",
    "require_times",
    "times_ms",
]
