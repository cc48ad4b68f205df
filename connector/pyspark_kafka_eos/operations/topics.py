"""Topics as a user of the command line makes and deletes them: all of a command's, or none that was refused.

Owns: the order of a change, which topics may not be deleted, the outcome for each topic.
Does not know: how it was confirmed, how it is shown.
Invariants:
- No topic is made where the brokers refuse another one of the same command.
- The ledger and its turns are never deleted here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from kafka_core.errors import BrokerUnavailable, ExactlyOnceError, OptionsError, UnknownTopic
from kafka_core.similar import did_you_mean
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.requests import topics
from pyspark_kafka_eos.client.requests.topics import NewTopic, TopicShape
from pyspark_kafka_eos.slot.turn_log import turns_topic

TopicOutcome = Literal["created", "deleted", "unchanged", "refused", "unknown"]


@dataclass(frozen=True)
class TopicDone:
    """The outcome for one topic, and why."""

    topic: str
    outcome: TopicOutcome
    detail: str


def create(cluster: Cluster, wanted: Sequence[NewTopic], *, if_not_exists: bool, done: list[TopicDone]) -> None:
    """Create topics; `done` gets each outcome as soon as it is known. The brokers are asked first whether they would
    create every one of them."""
    refused: dict[str, str] = {}
    existing: set[str] = set()
    for each in wanted:
        try:
            if not topics.make(cluster, each, validate_only=True):
                existing.add(each.name)
        except BrokerUnavailable:
            raise
        except ExactlyOnceError as error:
            refused[each.name] = error.message
    if not if_not_exists:
        refused |= dict.fromkeys(
            existing, "it exists already; take it as it is with --if-not-exists, or choose another name"
        )
    for each in wanted:
        if each.name in refused:
            done.append(TopicDone(each.name, "refused", refused[each.name]))
        elif refused:
            done.append(TopicDone(each.name, "unchanged", f"because of {next(iter(refused))}"))
        elif each.name in existing:
            done.append(TopicDone(each.name, "unchanged", "it exists already"))
        else:
            done.append(_create(cluster, each))


def _create(cluster: Cluster, wanted: NewTopic) -> TopicDone:
    try:
        if not topics.make(cluster, wanted):
            return TopicDone(wanted.name, "unchanged", "another client created it at the same moment")
        shape = _await(cluster, wanted.name)
    except BrokerUnavailable as error:
        return TopicDone(wanted.name, "unknown", error.message)
    except ExactlyOnceError as error:
        return TopicDone(wanted.name, "refused", error.message)
    return TopicDone(wanted.name, "created", described(shape))


def _await(cluster: Cluster, name: str) -> TopicShape:
    """The new topic, once the brokers list it with its leaders."""
    cluster.refresh_topics([name])
    (shape,) = topics.shapes(cluster, [name])
    return shape


def deletable(cluster: Cluster, names: Sequence[str], ledger_topic: str) -> list[TopicShape]:
    """The topics of these names as they are. UnknownTopic with the nearest name; OptionsError for the ledger."""
    for name in names:
        if name in (ledger_topic, turns_topic(ledger_topic)):
            raise OptionsError(
                f"{name} is the ledger's: without it no pipeline of this cluster can prove what it has written; nothing was "
                "changed. Kafka's own kafka-topics deletes it"
            )
    every = {each.name: each for each in topics.shapes(cluster)}
    for name in names:
        if name not in every:
            raise UnknownTopic(
                f"topic {name!r} does not exist, or this user may not see it; nothing was changed{did_you_mean(name, every)}",
                {"topic": name},
            )
    return [every[name] for name in names]


def delete(cluster: Cluster, names: Sequence[str], *, done: list[TopicDone]) -> None:
    """Delete topics; `done` gets each outcome as soon as it is known."""
    for name in names:
        try:
            gone = topics.delete(cluster, name)
            why = "" if gone else "another client deleted it at the same moment"
            done.append(TopicDone(name, "deleted" if gone else "unchanged", why))
        except BrokerUnavailable as error:
            done.append(TopicDone(name, "unknown", error.message))
        except ExactlyOnceError as error:
            done.append(TopicDone(name, "refused", error.message))


def described(shape: TopicShape) -> str:
    """A topic's size in words."""
    partitions = f"{shape.partitions} partition{'' if shape.partitions == 1 else 's'}"
    return f"{partitions}, replication factor {shape.replication_factor}"
