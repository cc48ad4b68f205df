"""The source's offset JSON: that of Spark's Kafka source, with entries that say what the offsets stand on.

Owns: the entries and their form, the format's version.
Does not know: brokers, pyspark, whether what an entry names is still so (`source_logs`).
Invariants:
- The JSON of equal positions is equal text (Spark compares texts to detect new data).
- An entry names no partition, so Spark's own Kafka source ignores it. A topic's name has no colon, so no topic is an
  entry.
- JSON without any entry is Spark's own, and stands on nothing that is known.

The entries:
- `version:1`: the format of the entries.
- `cluster:<id>`: the cluster of the offsets; none where its brokers report no id.
- `topic:<name>:<id>:<epochs>`: the topic's id, and the epoch of the leader under which each offset was found: one
  number for all partitions, or one for each, in their order; -1 where it was not told. Not where the cluster has no
  topic ids: epochs begin anew with a topic that is recreated.
- `began:<offsets>`: where the batch that ends here begins, where that is not the end of the batch before: the first
  batch, and a log that is another one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kafka_core.errors import OptionsError
from kafka_core.values import TopicPartition, by_topic
from pyspark_kafka_eos.client.reading.offsets import LogMark
from pyspark_kafka_eos.model import strict

OffsetJson = dict[str, dict[str, int]]

OFFSETS_VERSION = 1
"""The format of the entries."""

_SHOWN = 40
"""Characters of a foreign text in a message."""

_VERSION, _CLUSTER, _TOPIC, _BEGAN = "version:", "cluster:", "topic:", "began:"
ENTRIES = (_VERSION, _CLUSTER, _TOPIC, _BEGAN)
"""How the entries begin."""


@dataclass(frozen=True)
class Position:
    """The offsets that a query has come to, and what they stand on: the cluster's id (empty where unknown), and for
    each partition the log in which the offset was found (left out where unknown). `began`: see the table above.
    """

    offsets: Mapping[TopicPartition, int]
    cluster_id: str = ""
    logs: Mapping[TopicPartition, LogMark] = field(default_factory=dict)
    began: Position | None = None

    def topic_ids(self) -> dict[str, str]:
        """The topics whose id is known -> that id."""
        return {where.topic: log.topic_id for where, log in self.logs.items() if log.topic_id}


def begin_anew(where: str = "") -> str:
    """The way on for whom a checkpoint's offsets are of no use, for an error's sentence. `where`: said of the new
    ones.
    """
    return (
        f"begin with a new checkpoint and with startingOffsets{' ' if where else ''}{where} (a sink of this connector then takes "
        "adopt.checkpoint=true once, or another pipeline)"
    )


def to_json(position: Position) -> OffsetJson:
    """The JSON of a position: topics and partitions in order, then the entries."""
    body: OffsetJson = {}
    for where in sorted(position.offsets):
        body.setdefault(where.topic, {})[str(where.partition)] = position.offsets[where]
    entries = _topic_entries(position)
    if position.cluster_id:
        entries.insert(0, _CLUSTER + position.cluster_id)
    if position.began is not None and position.began.offsets:
        # Of the same cluster, and in the same format, as the end.
        began = Position(position.began.offsets, logs=position.began.logs)
        nested = _bare(began) | {entry: {} for entry in _topic_entries(began)}
        entries.append(_BEGAN + json.dumps(nested, separators=(",", ":")))
    if position.offsets and entries:
        body |= {entry: {} for entry in (f"{_VERSION}{OFFSETS_VERSION}", *entries)}
    return body


def position_of(body: Mapping[str, Any]) -> Position:
    """The position in JSON of `to_json`, or of Spark's Kafka source. OptionsError where it is of another version of the
    format, or was edited.
    """
    entries = [key for key in body if ":" in key]
    _judge_version(entries)
    try:
        return _position(body, entries)
    except strict.MALFORMED as error:
        raise OptionsError(
            f"the checkpoint's source offsets do not have the form in which they were logged ({error}); nothing was read; restore "
            f"the checkpoint, or {begin_anew()}",
            {"offsets": json.dumps(body)[:200]},
        ) from error


def pasted(option: str, offsets: Mapping[TopicPartition, int], entries: Sequence[str]) -> Position:
    """The position that an option names by a checkpoint's JSON. OptionsError where the entries are of another version,
    or were edited.
    """
    body = {**_bare(Position(offsets)), **{entry: {} for entry in entries}}
    try:
        return position_of(body)
    except OptionsError as error:
        raise OptionsError(
            f"{option} has entries of a checkpoint, which say what its offsets stand on and cannot be read here; nothing was read; leave out "
            "the entries whose names have a colon: the offsets alone are taken as they are",
            error.facts,
        ) from error


def _judge_version(entries: list[str]) -> None:
    found = [key.removeprefix(_VERSION) for key in entries if key.startswith(_VERSION)]
    if entries and found != [str(OFFSETS_VERSION)]:
        theirs = f"format {', '.join(found)[:_SHOWN]}" if found else "an unknown format"
        raise OptionsError(
            f"the checkpoint's source offsets are in {theirs}, which another version of this connector wrote; this "
            f"one reads format {OFFSETS_VERSION}. Nothing was read. Go on with the version that wrote them, or {begin_anew('at these offsets, without the entries whose names have a colon')}",
            {"format": ",".join(found)[:_SHOWN], "supported": OFFSETS_VERSION},
        )


def _position(body: Mapping[str, Any], entries: list[str]) -> Position:
    offsets = {
        TopicPartition(topic, int(partition)): int(offset)
        for topic, partitions in body.items()
        for partition, offset in partitions.items()
    }
    cluster_id, began = "", None
    logs: dict[TopicPartition, LogMark] = {}
    for entry in entries:
        if body[entry]:
            raise ValueError(f"the entry {entry[:_SHOWN]!r} names partitions")
        if entry.startswith(_CLUSTER):
            cluster_id = entry.removeprefix(_CLUSTER)
        elif entry.startswith(_TOPIC):
            logs |= _logs_of(entry.removeprefix(_TOPIC), offsets)
        elif entry.startswith(_BEGAN):
            nested = json.loads(entry.removeprefix(_BEGAN))
            began = _position(nested, [key for key in nested if ":" in key])
        elif not entry.startswith(_VERSION):
            raise ValueError(f"unknown entry {entry[:_SHOWN]!r}")
    return Position(offsets, cluster_id, logs, began)


def _topic_entries(position: Position) -> list[str]:
    entries: list[str] = []
    for topic, topic_id in sorted(position.topic_ids().items()):
        here = [where for where in sorted(position.offsets) if where.topic == topic]
        epochs = [position.logs.get(where, LogMark()).leader_epoch for where in here]
        told = epochs[:1] if len(set(epochs)) == 1 else epochs
        if told:
            entries.append(f"{_TOPIC}{topic}:{topic_id}:{','.join(map(str, told))}")
    return entries


def _logs_of(entry: str, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, LogMark]:
    topic, topic_id, text = entry.split(":")
    here = [TopicPartition(topic, number) for name, numbers in by_topic(offsets) if name == topic for number in numbers]
    epochs = [int(each) for each in text.split(",")]
    if len(epochs) == 1:
        epochs *= len(here)
    return {where: LogMark(topic_id, epoch) for where, epoch in zip(sorted(here), epochs, strict=True)}


def _bare(position: Position) -> OffsetJson:
    return to_json(Position(position.offsets))
