"""Altered answers: they leave out part of the result, or report it for another partition.

Owns: the form of each alteration, and which partitions of an answer it can apply to.
Does not know: when a fault fires (`faults`), which alterations an API supports (`fault`).
Invariants: fields that are not altered stay true, above all the high watermark of an answer without records.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from embedded_kafka.faults.fault import OF_FETCH, Action, AnswerFault, Fault
from embedded_kafka.faults.request_facts import name_of, number_of
from embedded_kafka.wire.server import Message
from kafka_core.protocol.error_codes import Code

STORE_WAIT_S = 0.5
"""How long a Fetch waits for a slow store: Kafka's remote.fetch.max.wait.ms."""


_NOT_TOLD_WITH_AN_ERROR = (
    "base_offset", "end_offset", "high_watermark", "last_stable_offset", "leader_epoch", "leader_id", "log_start_offset",
    "offset", "timestamp",
)  # fmt: skip


async def prepare(fault: Fault, request: Message, response: Message) -> Callable[[], None] | None:
    """A function that alters the answer; None where nothing in the answer can be altered this way."""
    action = fault.action
    if action is AnswerFault.LEAVE_OUT_TOPIC:
        topics = [
            topic for topic in response.topics if fault.topic in (None, topic.name) and topic.error_code == Code.NONE
        ]
        return (lambda: _without_topics(request, response, topics)) if topics else None
    chosen = _chosen(fault, response)
    alter = _ALTER.get(action)
    if alter is not None:
        return (lambda: alter(chosen, fault)) if chosen else None
    if action is AnswerFault.SLOW_STORE:
        chosen = await _still_in_store(chosen, fault, request)
    kept = {id(part): _kept(fault, part.records) for _, part in chosen}
    chosen = [(topic, part) for topic, part in chosen if kept[id(part)] < len(part.records)]
    return (lambda: _cut(chosen, fault, kept)) if chosen else None


_Place = tuple[Any, Any]
"""A topic's part of an answer, and a partition's part of that."""


def _chosen(fault: Fault, response: Message) -> list[_Place]:
    found = []
    for topic in getattr(response, "responses", None) or getattr(response, "topics", None) or []:
        if fault.topic not in (None, name_of(topic)):
            continue
        parts = _parts(topic)
        if fault.action is AnswerFault.LEAVE_OUT and fault.partition is None and parts:
            parts = [max(parts, key=lambda part: number_of(part) or 0)]
        found += [(topic, part) for part in parts if fault.partition in (None, number_of(part))]
    if fault.action in OF_FETCH:
        found = [(topic, part) for topic, part in found if part.records]
    return found


def _parts(topic: Any) -> list[Any]:
    name = "partition_responses" if hasattr(topic, "partition_responses") else "partitions"
    parts: list[Any] = getattr(topic, name)
    return parts


def _leave_out(chosen: list[_Place], _fault: Fault) -> None:
    for topic, part in chosen:
        _parts(topic).remove(part)


def _rename(chosen: list[_Place], fault: Fault) -> None:
    for topic, part in chosen:
        highest = max(number_of(each) or 0 for each in _parts(topic))
        name = next(name for name in ("partition_index", "index", "partition") if hasattr(part, name))
        setattr(part, name, highest + 1 if fault.other_partition is None else fault.other_partition)


def _fail(chosen: list[_Place], fault: Fault) -> None:
    for _, part in chosen:
        part.error_code = int(fault.code)
        if hasattr(part, "records"):
            part.records = b""
        for name in _NOT_TOLD_WITH_AN_ERROR:
            if hasattr(part, name):
                setattr(part, name, -1)


_ALTER: dict[Action, Callable[[list[_Place], Fault], None]] = {
    AnswerFault.LEAVE_OUT: _leave_out,
    AnswerFault.OTHER_PARTITION: _rename,
    AnswerFault.ERROR: _fail,
}


def _without_topics(request: Message, response: Message, topics: list[Any]) -> None:
    for topic in topics:
        if request.topics:
            topic.error_code = int(Code.UNKNOWN_TOPIC_OR_PARTITION)
            topic.partitions = []
        else:
            response.topics.remove(topic)


# ---- records


def _kept(fault: Fault, records: Any) -> int:
    """How many bytes of the records stay."""
    if fault.action not in (AnswerFault.FEWER, AnswerFault.TORN):
        return 0
    end = 0
    for _ in range(fault.batches):
        end += _size(records, end)
    return end if fault.action is AnswerFault.FEWER else end + _size(records, end) // 2


def _size(records: Any, at: int) -> int:
    """Bytes of the batch at that place; 0 behind the last one."""
    return 12 + int.from_bytes(records[at + 8 : at + 12], "big") if at < len(records) else 0


def _cut(chosen: list[_Place], fault: Fault, kept: dict[int, int]) -> None:
    for _, part in chosen:
        part.records = part.records[: kept[id(part)]]
        if fault.last_stable_offset is not None:
            part.last_stable_offset = fault.last_stable_offset


async def _still_in_store(chosen: list[_Place], fault: Fault, request: Message) -> list[_Place]:
    """The places whose records the store has not delivered. Waits for the store as long as Kafka does."""
    now = asyncio.get_running_loop().time
    asked = {
        (topic.topic, part.partition): part.fetch_offset
        for topic in request.topics
        for part in topic.partitions
        if fault.below is None or part.fetch_offset < fault.below
    }
    ready: dict[int, float] = {}
    for topic, part in chosen:
        offset = asked.get((topic.topic, part.partition_index))
        if offset is not None:
            since = fault.first_asked.setdefault((topic.topic, part.partition_index, offset), now())
            ready[id(part)] = since + fault.delay_ms / 1000
    left = max(ready.values(), default=0.0) - now()
    if left > 0:
        await asyncio.sleep(min(left, STORE_WAIT_S))
    return [(topic, part) for topic, part in chosen if ready.get(id(part), 0.0) > now()]
