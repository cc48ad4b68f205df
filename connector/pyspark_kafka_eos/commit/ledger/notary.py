"""Writes notes in transactions of the pipeline's own id for them, so that a reader knows who wrote each.

Owns: that id's session.
Does not know: what a note says (`notes`); who is believed (`writers`).
Invariants:
- A note is acknowledged, and its transaction is committed, when `write_note` returns; where it is needed, it is in the
  log, and behind it its marker, so no later one can abort it.
- A note may be there twice, also after an error: it states a fact that stays true.
- Any process of the pipeline takes the id when it has something to note. The one that had it takes it back when it next
  has.

Why a transaction for one record: a broker lets nobody append a batch of a transaction under a producer id that another
transactional id has (KIP-890, from 3.6 on). Without one anybody who may write to the topic can put any producer id
into a batch. A reader takes a note by its producer id, whether its transaction has a marker or not.
"""

from __future__ import annotations

import logging

from kafka_core.errors import AbortableError, BrokerUnavailable, ExactlyOnceError, OutcomeUnknown, ProducerFenced
from kafka_core.values import TopicPartition
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.writing.delivery import stamper
from pyspark_kafka_eos.client.writing.producer import Producer
from pyspark_kafka_eos.client.writing.session import SessionState
from pyspark_kafka_eos.commit.ledger.arrived import has_marker, require_arrived
from pyspark_kafka_eos.model import SealedPartition, notes_transactional_id
from pyspark_kafka_eos.records import Packed

log = logging.getLogger(__name__)

_TIMEOUT_MS = 60_000
"""Transaction timeout of a note's transaction, which lasts milliseconds. One that a dead process left open keeps the
ledger from being compacted for so long; half would abort it during a slow failover."""

_TRIES = 5
"""How often a note is begun anew: other processes take the id one after the other, and each note costs them some
milliseconds. Half would give up beside two that end many transactions at once, double only delays the error.
"""


class Notary:
    """Notes of one pipeline. Not for several threads."""

    def __init__(self, cluster: Cluster, pipeline: str) -> None:
        self._cluster = cluster
        self._id = notes_transactional_id(pipeline)
        self._producer: Producer | None = None

    def write_note(self, where: TopicPartition, batch: Packed, what: str, *, needed: bool = True) -> int:
        """Append a batch of one record; the producer id that wrote it. BrokerUnavailable where it may not be there.
        `what` names the note in messages. `needed`: without it nobody looks whether an acknowledged note is there and
        has its marker.
        """
        last = "the coordinator had forgotten that id"
        for _ in range(_TRIES):
            producer = self._producer or Producer(self._cluster, self._id, transaction_timeout_ms=_TIMEOUT_MS)
            self._producer = None
            try:
                if producer.session.state is not SessionState.READY:
                    producer.initialize()
                author = producer.identity.producer_id
                written = self._put(producer, where, batch, needed=needed)
            except (ProducerFenced, OutcomeUnknown) as error:
                # Another process has a note too, or the end is unclear: under a new epoch both are settled.
                last = error.message
                log.info("%s is written once more: %s", what, error)
            except AbortableError as error:
                producer.abort()
                last = error.message
                log.info("%s is written once more: %s", what, error)
            except ExactlyOnceError as error:
                if not producer.forgotten(error):
                    producer.abort()
                    raise
                log.info("the coordinator has forgotten %s; it is initialised again", self._id)
            else:
                self._producer = producer
                if not needed or all(has_marker(producer, part) for part in written):
                    return author
                # The marker of the next one ends both.
                last = f"its commit has no marker in {where}"
                log.info("%s is written once more: %s", what, last)
        raise BrokerUnavailable(
            f"{what} was begun {_TRIES} times under {self._id!r} in {where} and may not be there; nothing else was changed; the next run "
            f"tries again; the last time: {last}",
            {"partition": str(where), "transactional_id": self._id},
        )

    @staticmethod
    def _put(producer: Producer, where: TopicPartition, batch: Packed, *, needed: bool) -> list[SealedPartition]:
        """What was written where, and is committed."""
        producer.begin()
        producer.send(where, 1, stamper(batch, producer.identity), machine_time=batch.machine_time)
        producer.flush()
        if needed:
            require_arrived(producer, where.topic)
        written = list(producer.written_partitions())
        producer.commit(points=False)
        return written


__all__ = ["Notary"]
