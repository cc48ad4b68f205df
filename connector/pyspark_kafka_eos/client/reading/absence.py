"""Who may say that something is not there: the one place where "nothing there" becomes a fact.

Owns: which answers prove that a topic is gone, that a log ends before an offset, that a producer has nothing in a
partition.
Does not know: what follows from an absence.
Invariants:
- A log's end counts only from a leader of at least the epoch under which the records were acknowledged, once its high
  watermark has reached the start of its epoch.
- A topic is gone only where more than half of the brokers say so at every look, for as long as a broker that has just
  started may lack its topics. A topic of the same name with another id is another topic.
- Whoever cannot be asked has said nothing: the end of the patience is BrokerUnavailable, never an absence.
Sources: KIP-207 (a new leader's high watermark lags: OFFSET_NOT_AVAILABLE), KIP-320 (leaders' epochs), KIP-516 (topic
ids).

A broker that was cut off from the controller and not from its clients goes on as a leader. It answers ListOffsets,
Fetch, DescribeProducers and Metadata as the log was then, without an error. Every request but DescribeProducers carries
the epoch by which the leader was found, and a leader of another epoch refuses it; so an answer is that of the leader
that the metadata name. What is left to ask is metadata that name a leader which can know: those of every broker, as the
first one may be the broker that was cut off.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress

from kafka_core import runtime
from kafka_core.errors import BrokerUnavailable, ExactlyOnceError, UnknownTopic
from kafka_core.protocol import messages as m
from kafka_core.protocol.error_codes import Code
from kafka_core.values import TopicPartition, by_topic
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.definite import NEW_TOPIC_MS
from pyspark_kafka_eos.client.every_broker import answers_of_all, ask_every_broker
from pyspark_kafka_eos.client.reading.offsets import READ_UNCOMMITTED, LogMark, Offsets

WITNESS_MS = 30_000
"""How long to look for a broker that can know. An election takes seconds, and so does a high watermark that lags. Half
would stop a run during a slow election; double only delays the error where no such broker can be reached.
"""

_AGAIN_MS = 100
"""Pause between two looks."""

_NO_SUCH_TOPIC = (Code.UNKNOWN_TOPIC_OR_PARTITION, Code.UNKNOWN_TOPIC_ID, Code.INVALID_TOPIC_EXCEPTION)


Places = Mapping[TopicPartition, LogMark]
"""Partitions that have records, and what is known of them: the topic's id, and the epoch of a leader that has them."""


def existing(cluster: Cluster, places: Places, patience_ms: int = WITNESS_MS) -> set[TopicPartition]:
    """Those of the partitions whose topics are still there, under the same ids. BrokerUnavailable where too few brokers
    say whether another one is. One question for each topic, and more only where a topic seems to be gone.
    """
    # Batches before and after a topic was recreated may have other partitions of it, each with the id of its time.
    by_id: dict[str, set[TopicPartition]] = {}
    for where, known in places.items():
        by_id.setdefault(known.topic_id, set()).add(where)
    return {where for wanted, here in by_id.items() for where in _existing(cluster, here, wanted, patience_ms)}


def _existing(
    cluster: Cluster, places: Collection[TopicPartition], wanted: str, patience_ms: int
) -> set[TopicPartition]:
    """Of partitions that are all of the same known id, or of none."""
    found: set[TopicPartition] = set()
    missing: dict[str, str] = {}
    for topic, _ in by_topic(places):
        count = 0
        with suppress(UnknownTopic):
            count = len(cluster.topic(topic, refresh=True, new_topic_ms=0).leaders)
        here = {where for where in places if where.topic == topic}
        same = count > 0 and wanted in ("", cluster.topic_id(topic))
        if same and all(where.partition < count for where in here):
            found |= here
        else:
            missing[topic] = wanted
    gone = _gone(cluster, missing, patience_ms)
    for topic in missing.keys() - gone:
        count = len(cluster.topic(topic, new_topic_ms=0).leaders)
        here = {where for where in places if where.topic == topic}
        short = sorted(where for where in here if where.partition >= count)
        if short and missing[topic]:
            # A topic with one id never loses partitions, so every broker that answered is behind.
            raise _unwitnessed(f"partition {short[0]} is there", {"partition": str(short[0])}, patience_ms)
        found |= here - set(short)
    return found


def topics_there(cluster: Cluster, topics: Iterable[str], patience_ms: int = WITNESS_MS) -> set[str]:
    """Those of the topics that are there, of whatever id; the leaders that any broker names are known afterwards. As
    `existing`.
    """
    # A command that changes nothing asks for one topic in several places, and waits for the brokers' words once.
    began_s = runtime.monotonic()
    names = {name for name in topics if cluster.lacked_until_s.get(name, 0.0) <= began_s}
    if not names:
        return set()
    ask_every_broker(cluster, names)
    there = existing(cluster, {TopicPartition(name, 0): LogMark() for name in names}, patience_ms)
    found = {where.topic for where in there}
    until_s = runtime.monotonic() + NEW_TOPIC_MS / 1000
    cluster.lacked_until_s |= dict.fromkeys(names - found, until_s)
    return found


def present(cluster: Cluster, places: Places, patience_ms: int = WITNESS_MS) -> set[TopicPartition]:
    """Those of the partitions that are there, each with a leader that can know, so that what such a leader does not
    have is not there. Asks nothing where the known metadata name these leaders.
    """
    unsure = {
        where: known
        for where, known in places.items()
        if cluster.leader_epoch(where) < known.leader_epoch or known.topic_id not in ("", cluster.topic_id(where.topic))
    }
    if not unsure:
        return set(places)
    there = existing(cluster, unsure, patience_ms)
    require_leaders(cluster, {where: unsure[where] for where in there}, patience_ms)
    return {where for where in places if where in there or where not in unsure}


def require_leaders(cluster: Cluster, places: Places, patience_ms: int = WITNESS_MS) -> None:
    """Return once the metadata name, for each partition, a leader of at least the known epoch; at once where they do.
    Asks every broker. BrokerUnavailable where none names such a leader in time.
    """
    give_up = runtime.monotonic() + patience_ms / 1000
    behind = _behind(cluster, places)
    while behind:
        ask_every_broker(cluster, {where.topic for where in behind})
        behind = _behind(cluster, places)
        if behind and runtime.monotonic() >= give_up:
            where = min(behind)
            raise _unwitnessed(
                f"what has become of the records in {where}: they were written under a leader of epoch {places[where].leader_epoch} or "
                f"later, and the newest that a broker names is {cluster.leader_epoch(where)}",
                {"partition": str(where), "leader_epoch": places[where].leader_epoch, "found": cluster.leader_epoch(where)},
                patience_ms,
            )  # fmt: skip
        if behind:
            cluster.pause(_AGAIN_MS)


def ends(cluster: Cluster, places: Places, patience_ms: int = WITNESS_MS) -> dict[TopicPartition, int]:
    """Where the logs end, by leaders that have every record up to there. The partitions have to exist.
    BrokerUnavailable.
    """
    require_leaders(cluster, places, patience_ms)
    # With the epoch of the leader that is asked: one of another epoch refuses, and one whose high watermark lags is
    # asked again.
    found = Offsets(cluster).ends(places, READ_UNCOMMITTED, patience_ms, known=places)
    return {where: end.offset for where, end in found.items()}


def _behind(cluster: Cluster, places: Places) -> list[TopicPartition]:
    # Brokers that report no epochs (-1) report none to the writer either.
    return [where for where, known in places.items() if cluster.leader_epoch(where) < known.leader_epoch]


# ---- topics


def _gone(cluster: Cluster, topics: Mapping[str, str], patience_ms: int) -> set[str]:
    """Those of the topics (name -> id, empty for any) that are gone; every other one is there."""
    # An id that is gone never comes again: another topic of the name has another one. So the brokers' words are waited
    # for once.
    gone = {name for name, topic_id in topics.items() if topic_id in cluster.gone_topic_ids}
    left = {name: topic_id for name, topic_id in topics.items() if name not in gone}
    denied_s: dict[str, float] = {}
    give_up = runtime.monotonic() + patience_ms / 1000
    while left:
        now_s = runtime.monotonic()
        answers, brokers = answers_of_all(cluster, left), max(1, len(cluster.network.brokers()))
        for name, topic_id in list(left.items()):
            says = [_has(answer, name, topic_id) for answer in answers]
            if 2 * says.count(True) > brokers:
                _take(cluster, answers, name, topic_id)
                del left[name]
            elif 2 * says.count(False) > brokers:
                if now_s - denied_s.setdefault(name, now_s) >= NEW_TOPIC_MS / 1000:
                    gone.add(name)
                    del left[name]
                    if topic_id:
                        cluster.gone_topic_ids.add(topic_id)
            else:
                denied_s.pop(name, None)
        if left and now_s >= give_up:
            name = min(left)
            raise _unwitnessed(f"topic {name!r} is there", {"topic": name, "topic_id": left[name]}, patience_ms)
        if left:
            cluster.pause(_AGAIN_MS)
    return gone


def _has(answer: m.Message, name: str, topic_id: str) -> bool | None:
    """Whether a broker has the topic; None where its answer does not say."""
    for topic in answer.topics:
        if topic.name == name:
            if topic.error_code in _NO_SUCH_TOPIC:
                return False
            if topic.error_code == Code.NONE or topic.partitions:
                return topic_id in ("", str(topic.topic_id))
    return None


def _take(cluster: Cluster, answers: Iterable[m.Message], name: str, topic_id: str) -> None:
    """Keep what the brokers say that have the topic, and not what another one says of an earlier topic of the name."""
    for answer in answers:
        if _has(answer, name, topic_id):
            with suppress(ExactlyOnceError):
                cluster.take_metadata(answer)


def _unwitnessed(what: str, facts: dict[str, str | int], patience_ms: int) -> BrokerUnavailable:
    return BrokerUnavailable(
        f"no broker that can know says {what}; nothing is concluded from what the others lack. A broker may be cut off from the "
        "cluster, or have just started: make sure that the brokers reach each other and that this client reaches them",
        {**facts, "timeout_ms": patience_ms},
    )
