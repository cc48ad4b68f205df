"""A consumer group's committed offset, with what it stands on.

Owns: the text in the offset's metadata, and its version.
Does not know: requests, whether what it stands on is still so (`spark.source_logs`).
Invariants:
- What another client wrote as metadata is no claim of ours: the offset and the leader's epoch are all that is taken of
  it.
- The text names the cluster: tools that mirror a group copy it, and translate the offset.
Source: KIP-211 (the metadata), KIP-320 (the epoch); Kafka's groups keep no topic id.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from kafka_core.errors import OptionsError
from kafka_core.values import TopicPartition
from pyspark_kafka_eos.model import strict

_FORMAT = "kafka_eos"
"""The key of the format's number, by which the text is known as ours."""

_VERSION = 1

_SHOWN = 40
"""Characters of a foreign value in a message."""


@dataclass(frozen=True)
class GroupOffset:
    """The offset, the epoch of the leader under which it was found (-1 where unknown), and the ids of its topic and of
    its cluster (empty where unknown; a topic's id is never without its cluster's).
    """

    offset: int
    leader_epoch: int = -1
    topic_id: str = ""
    cluster_id: str = ""

    def metadata(self) -> str:
        """For the group's coordinator; empty where nothing is known."""
        if not (self.topic_id and self.cluster_id):
            return ""
        body = {_FORMAT: _VERSION, "cluster": self.cluster_id, "topic_id": self.topic_id}
        return json.dumps(body, separators=(",", ":"))


GroupOffsets = Mapping[TopicPartition, GroupOffset | int]
"""A bare number is an offset that stands on nothing known."""


def placed(offsets: GroupOffsets) -> dict[TopicPartition, GroupOffset]:
    """The offsets, those that are bare numbers too."""
    return {
        where: offset if isinstance(offset, GroupOffset) else GroupOffset(offset) for where, offset in offsets.items()
    }


def committed(offset: int, leader_epoch: int, metadata: str | None, group: str) -> GroupOffset:
    """What a coordinator answered. OptionsError where another version of this connector wrote the metadata."""
    bare = GroupOffset(offset, leader_epoch)
    try:
        body = strict.load(metadata or "")
    except strict.MALFORMED:
        return bare
    if not isinstance(body, dict) or _FORMAT not in body:
        return bare
    if type(body[_FORMAT]) is not int or body[_FORMAT] != _VERSION:
        theirs = str(body[_FORMAT])[:_SHOWN]
        raise OptionsError(
            f"the committed offsets of group {group!r} have metadata in format {theirs}, which another version of this connector "
            f"wrote; this one reads format {_VERSION}. Nothing was read. Go on with the version that wrote them, or set startingOffsets "
            "to offsets of your own",
            {"group": group, "format": theirs, "supported": _VERSION},
        )
    try:
        return GroupOffset(offset, leader_epoch, strict.text(body["topic_id"]), strict.text(body["cluster"]))
    except strict.MALFORMED:
        return bare


__all__ = ["GroupOffset", "GroupOffsets", "committed", "placed"]
