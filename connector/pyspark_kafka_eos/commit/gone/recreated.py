"""Before the decision: whether a topic was deleted and recreated while a batch was written, or since a task has last
asked for it.

Owns: when the ids of the seals are doubted, who is asked then.
Does not know: what follows, which is another try of the batch.
Invariants:
- No decision names a topic by an id that it has not got any more, as far as a broker or the leaders' answers show it.
- Nobody is asked where the seals name the ids that are known here and the leaders' answers fit the batch before.
Source: KIP-516 (topic ids).

Produce names topics by name before its version 13, so records go into whatever topic has the name, and no answer says
which one that is. A worker keeps a topic's id for as long as its leaders answer; an id that is not the present one
would make the next proof look for the records in the former topic, where they never were.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

from kafka_core.errors import ExactlyOnceError
from kafka_core.protocol.error_codes import Code
from kafka_core.values import TopicPartition
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.every_broker import answers_of_all
from pyspark_kafka_eos.client.requests.producer_states import States
from pyspark_kafka_eos.commit.decision import BATCH_IS_RETRIED, Found
from pyspark_kafka_eos.model import Decision, RoutedTopic, Seal

_UNSURE = "unknown"


def recreated(
    cluster: Cluster, seals: Sequence[Seal], states: States | None, before: Decision | None, broken: Found | None
) -> Found | None:  # fmt: skip
    """A topic that was recreated since the seals, in words; else `broken`, what was found before. `before`: the
    decision of the batch before, which is ended."""
    ids: dict[str, set[str]] = {}
    for _, topic in _routed(seals):
        ids.setdefault(topic.name, set()).add(topic.topic_id)
    doubted = {name for name, found in ids.items() if broken is not None or found != {cluster.topic_id(name)}}
    doubted |= ids.keys() & _begun_anew(seals, states, before)
    now = _ids_now(cluster, {name: ids[name] for name in doubted})
    for slot, topic in _routed(seals):
        # Where nobody answers, two ids of one topic are not decided together all the same.
        others = (now.get(topic.name) or ids[topic.name]) - {topic.topic_id}
        if others:
            was, found = topic.topic_id or _UNSURE, min(others) or _UNSURE
            return (
                f"topic {topic.name!r} was deleted and recreated while the batch was written, or since its tasks have last asked for it: slot "
                f"{slot} wrote to it by id {was}, and its id is {found} now; {BATCH_IS_RETRIED}",
                {"slot": slot, "topic": topic.name, "topic_id": topic.topic_id, "found": min(others)},
            )
    return broken


def _routed(seals: Iterable[Seal]) -> Iterator[tuple[int, RoutedTopic]]:
    """Slot and topic, for every topic that a task wrote to; of a batch in one transaction as most tasks had it, and as
    the others had.
    """
    for seal in seals:
        yield from ((seal.slot, topic) for topic in seal.topics)
        yield from ((slot, topic) for slot, topics in seal.apart for topic in topics)


def _begun_anew(seals: Sequence[Seal], states: States | None, before: Decision | None) -> set[str]:
    """Topics of which a log does not have what the batch before has there: a record now stands where one of that batch
    stood, or the leader knows of no end of a transaction of its producer, whose end there was seen.
    """
    firsts: dict[TopicPartition, int] = {}
    for seal in seals:
        for part in seal.partitions:
            where = TopicPartition(part.topic, part.partition)
            if part.first_offset >= 0:
                firsts[where] = min(part.first_offset, firsts.get(where, part.first_offset))
    # Not every broker says how far a producer's ends have come.
    told = states is not None and any(each.marked for known in states.values() for each in known.values())
    found = set()
    for seal in before.seals if before is not None else ():
        for part in seal.partitions:
            where = TopicPartition(part.topic, part.partition)
            if where in firsts and seal.identity is not None:
                known = states.get(where, {}).get(seal.identity.producer_id) if states is not None else None
                unmarked = told and (known is None or not known.marked)
                if unmarked or firsts[where] < part.first_offset + part.records:
                    found.add(part.topic)
    return found


def _ids_now(cluster: Cluster, known: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """The ids that these topics have by the word of every broker that answers. One that is not known yet stays in this
    client's metadata, also where another broker still names the former.
    """
    found: dict[str, set[str]] = {name: set() for name in known}
    if not known:
        return found
    newer = []
    for answer in answers_of_all(cluster, known):
        answer.topics = [topic for topic in answer.topics if topic.error_code == Code.NONE]
        with suppress(ExactlyOnceError):
            cluster.take_metadata(answer)
        for topic in answer.topics:
            # As the client reads it: empty where the brokers have none.
            found[topic.name].add(cluster.topic_id(topic.name))
            newer += [answer] if not {cluster.topic_id(topic.name)} & known[topic.name] else []
    for answer in newer:
        with suppress(ExactlyOnceError):
            cluster.take_metadata(answer)
    return found
