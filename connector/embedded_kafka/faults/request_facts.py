"""The transactional ids and the partitions that a request of any API names.

Owns: where Kafka's schemas keep such names.
Does not know: what the APIs do.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from embedded_kafka.wire.server import FindCoordinatorRequest, Message

_IDS = ("transactional_id", "v3_and_below_transactional_id")
_ID_LISTS = ("transactional_ids", "transactional_id_filters")
_TOPICS = ("topic_data", "topics", "v3_and_below_topics")
_PARTITIONS = ("partition_data", "partitions", "partition_indexes")
_NUMBERS = ("partition_index", "index", "partition")
_GROUPED = ("transactions", "markers", "groups")
_OF_TRANSACTIONS = 1
"""FindCoordinator's key type for a transactional id."""


def transactional_ids(request: Message) -> set[str]:
    """The transactional ids that the request names."""
    found: list[Any] = [getattr(request, name, None) for name in _IDS]
    for name in _ID_LISTS:
        found += getattr(request, name, None) or []
    for group in _groups(request):
        found.append(getattr(group, "transactional_id", None))
    if request.API_KEY == FindCoordinatorRequest.API_KEY and request.key_type == _OF_TRANSACTIONS:
        found += [request.key, *(request.coordinator_keys or [])]
    return {each for each in found if isinstance(each, str) and each}


def places(request: Message) -> Iterator[tuple[str, int | None]]:
    """The (topic, partition) pairs that the request names; the partition is None where it names a whole topic."""
    for holder in (request, *_groups(request)):
        for topic in _first(holder, _TOPICS):
            if isinstance(topic, str):
                yield topic, None
                continue
            name = name_of(topic)
            if name is None:
                continue
            partitions = list(_first(topic, _PARTITIONS))
            yield from ((name, number_of(each)) for each in partitions)
            if not partitions:
                yield name, None


def name_of(topic: Any) -> str | None:
    """The name in a topic's part of a request or an answer; None where the part has only the topic's id."""
    return getattr(topic, "topic", None) or getattr(topic, "name", None)


def number_of(partition: Any) -> int | None:
    """The partition number in a partition's part of a request or an answer."""
    if isinstance(partition, int):
        return partition
    return next((int(getattr(partition, name)) for name in _NUMBERS if hasattr(partition, name)), None)


def _groups(request: Message) -> Iterator[Any]:
    for name in _GROUPED:
        for each in getattr(request, name, None) or []:
            if not isinstance(each, str):
                yield each


def _first(holder: Any, names: tuple[str, ...]) -> list[Any]:
    return next((found for name in names if (found := getattr(holder, name, None))), [])
