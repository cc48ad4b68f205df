"""The words for what is missing of a decided batch: a topic that was recreated, records that were removed.

Owns: naming the topic's ids, where a log begins and by which setting; the warnings.
Does not know: what follows, which the proof says.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence

from kafka_core.errors import ExactlyOnceError, UnknownTopic
from kafka_core.foreign_text import told
from kafka_core.values import TopicPartition
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.reading import absence
from pyspark_kafka_eos.client.reading.offsets import Offsets
from pyspark_kafka_eos.client.requests import admin
from pyspark_kafka_eos.commit.decision import BATCH_IS_RETRIED, Found
from pyspark_kafka_eos.commit.fates import places_of
from pyspark_kafka_eos.commit.open_parts import parts_before
from pyspark_kafka_eos.commit.proof import Proof
from pyspark_kafka_eos.model import Decision, Seal

log = logging.getLogger(__name__)

_RETENTION = ("retention.ms", "retention.bytes")


def why_unknown(cluster: Cluster, seal: Seal, proof: Proof) -> str:
    """Why the logs cannot say what became of a slot, naming what was recorded and what there is now; empty where they
    might.
    """
    try:
        said = [*_topics(cluster, seal, proof.gone), *_removed(cluster, seal, proof.removed)]
    except ExactlyOnceError as error:
        # Words only: the outcome is unknown without them too.
        log.info("could not find out what is left of slot %d: %s", seal.slot, error)
        said = []
    if proof.doubtful:
        said.append(
            f"a marker was missing in {_shown(proof.doubtful)}, and nothing shows whether the transaction that was to write it did so"
        )
    return "; ".join(said)


def _topics(cluster: Cluster, seal: Seal, gone: Collection[TopicPartition]) -> list[str]:
    """One sentence for each topic that was deleted or recreated."""
    ids = {topic.name: topic.topic_id for topic in seal.topics}
    said = []
    for topic in sorted({where.topic for where in gone}):
        here = _shown(where for where in gone if where.topic == topic)
        was = ids.get(topic) or "not recorded"
        now = _topic_id(cluster, topic)
        said.append(
            f"topic {topic} was deleted (its id was {was}) and there is none of the name now, so nothing shows what {here} had"
            if now is None
            else f"topic {topic} was deleted and recreated (its id was {was} and is {now}), so nothing shows what {here} had"
        )
    return said


def _topic_id(cluster: Cluster, topic: str) -> str | None:
    try:
        cluster.topic(topic, refresh=True, new_topic_ms=0)
    except ExactlyOnceError:
        return None
    return cluster.topic_id(topic)


def _removed(cluster: Cluster, seal: Seal, removed: Collection[TopicPartition]) -> list[str]:
    """One sentence for each partition whose log begins after the slot's first record."""
    if not removed:
        return []
    starts = Offsets(cluster).earliest(sorted(removed))
    firsts = _firsts(seal)
    return [
        f"{where} begins at offset {starts[where]} and the slot's first record there had {firsts[where]}: {_by_what(cluster, where.topic)} "
        "removed it"
        for where in sorted(removed)
    ]


def _by_what(cluster: Cluster, topic: str) -> str:
    """What removes records of the topic, with its settings where they may be read."""
    try:
        found = admin.topic_settings(cluster, topic, _RETENTION) or {}
    except ExactlyOnceError:
        found = {}
    settings = ", ".join(f"{name}={value}" for name, value in found.items() if value is not None)
    return f"retention ({settings}) or DeleteRecords" if settings else "retention or DeleteRecords"


def _firsts(seal: Seal) -> dict[TopicPartition, int]:
    parts = [*(each.part for each in seal.kept), *seal.partitions]
    return {TopicPartition(part.topic, part.partition): part.first_offset for part in parts}


def _shown(places: Iterable[TopicPartition]) -> str:
    return ", ".join(map(str, sorted(places)))


# ---- before the decision


def removed_part(seals: Sequence[Seal], starts: Mapping[TopicPartition, int]) -> Found | None:
    """A partition whose log begins behind a seal's first record there; None where there is none. Its leader has the
    transaction open all the same, and readers would never get what was removed.
    """
    removed = parts_before(seals, starts)
    if not removed:
        return None
    slot, (where, *_) = min(removed.items())
    first = min(
        part.first_offset
        for seal in seals
        for part in seal.partitions
        if seal.slot == slot and TopicPartition(part.topic, part.partition) == where
    )
    return (
        f"slot {slot} wrote to {where} from offset {first} on, and its log begins at {starts[where]} by now: retention (retention.ms, "
        f"retention.bytes) or DeleteRecords removed records before they were visible; {BATCH_IS_RETRIED}; raise the retention of topic "
        f"{where.topic!r} if this repeats",
        {"slot": slot, "partition": str(where), "first_offset": first, "log_start_offset": starts[where]},
    )


# ---- warnings


def warn_of_gone(cluster: Cluster, seals: Sequence[Seal]) -> tuple[str, ...]:
    """Warn of records of a committed batch that are not there any more, as far as offsets show it without reading: the
    coordinator reports a transaction as committed whatever became of its topics. Best effort. Returns what was said.
    """
    places = places_of(seals)
    try:
        there = absence.existing(cluster, places)
        ends = absence.ends(cluster, {where: places[where] for where in there})
        starts = Offsets(cluster).earliest(sorted(there))
        warnings = []
        for seal in seals:
            firsts = _firsts(seal)
            missing = {where for where, first in firsts.items() if ends.get(where, -1) <= first}
            removed = {where for where, first in firsts.items() if starts.get(where, 0) > first >= 0}
            if missing - removed:
                warnings.append(
                    f"the records of slot {seal.slot} are no longer in {_shown(missing - removed)}: the topic was deleted or recreated, or "
                    f"an election lost them{_ids(cluster, seal, missing - there)}; the slot is committed, and what readers had not read "
                    "by then is gone with them"
                )
            warnings += [
                f"records of slot {seal.slot} are no longer in the topic: {said}; the slot is committed, and what readers had not read by "
                "then is gone"
                for said in _removed(cluster, seal, removed)
            ]
    except ExactlyOnceError as error:
        log.info("could not check whether all written records are still there: %s", error)
        return ()
    return tuple(told(log, each) for each in warnings)


def _ids(cluster: Cluster, seal: Seal, gone: Collection[TopicPartition]) -> str:
    said = "; ".join(_topics(cluster, seal, gone))
    return f" ({said})" if said else ""


def warn_of_recreated(cluster: Cluster, decision: Decision, slots: Collection[int]) -> None:
    """Before these slots of a decided batch are written again: warn where one of their topics is another one of the
    same name now. Nothing that the batch wrote to the former one is there, so what is written again is the first of it
    in the new one.
    """
    written = {topic for seal in decision.seals if seal.slot in slots for topic in seal.topics}
    for topic in sorted(written):
        try:
            now = cluster.topic(topic.name, refresh=True).topic_id
        except UnknownTopic:
            # The tasks say so, where they have a row for it.
            continue
        if now != topic.topic_id:
            log.warning(
                "topic %s was deleted and recreated since batch %d was decided (its id was %s and is %s); what the broker aborted of the "
                "batch is written into the new one; what was committed in the former one is gone with it",
                topic.name, decision.batch_id, topic.topic_id, now,
            )  # fmt: skip


__all__ = ["removed_part", "warn_of_gone", "warn_of_recreated", "why_unknown"]
