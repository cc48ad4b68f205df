"""A driver whose transactional id was idle for so long that the coordinator has forgotten it.

Owns: when such a run may take a new identity, and the second write of its decision under that identity.
Does not know: slots, the machine of a commit, Spark.
Invariants:
- The new identity is requested with the old one, so a newer
  run that the coordinator has on record fences this one.
- Where the coordinator has neither, the ledger shows whether
  a newer run has decided since, before anything is written.
- Nothing is written a second time unless the coordinator
  itself reports that it has nothing of the first write.
Sources: KIP-98 (transactional.id.expiration.ms, 7 days by default), KIP-360 (InitProducerId with the current identity).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from connector.client.producer import Producer
from connector.commit.decision import write_decision
from connector.commit.ledger.topic import Ledger
from connector.errors import ExactlyOnceError, ProducerFenced
from connector.machines.producer.session import State
from connector.model import Decision, TopicPartition

log = logging.getLogger(__name__)


def put_decision(
    producer: Producer, ledger: Ledger, decision: Decision, group: str, offsets: Mapping[TopicPartition, int]
) -> None:
    """`write_decision` under a valid identity, a new one where the coordinator has forgotten the old one.

    ProducerFenced where a newer run has taken over. With any error, EndTxn was not sent.
    """
    if producer.session.state is not State.READY:
        # Version 1 gives no fresh epoch with the end: bump it, unless a newer driver has (KIP-360).
        before = producer.session.identity
        now = producer.initialize()
        if before is not None and before.producer_id != now.producer_id:
            _refuse_newer(ledger, decision)
    try:
        write_decision(producer, ledger, decision, group, offsets)
    except ExactlyOnceError as error:
        if not producer.forgotten(error):
            raise
        log.info("the coordinator has forgotten %s; it is initialised again", producer.transactional_id)
        # Checked before the id is taken too: a newer run that is idle as well would lose it.
        _refuse_newer(ledger, decision)
        producer.initialize()
        _refuse_newer(ledger, decision)
        write_decision(producer, ledger, decision, group, offsets)


def take_anew(producer: Producer, ledger: Ledger, last: Decision | None) -> None:
    """Initialise a driver's id that the coordinator has forgotten. The ledger,
    not the coordinator, then shows which run owns the pipeline: ProducerFenced
    where its newest decision is not `last`, the newest that this run has seen."""
    _refuse_other(ledger, last)
    producer.initialize()
    _refuse_other(ledger, last)


def _refuse_other(ledger: Ledger, last: Decision | None) -> None:
    newest = ledger.newest(settle=True)
    if newest is not None and (last is None or _name(newest) != _name(last)):
        raise _fenced_by(newest, ledger)


def _name(decision: Decision) -> tuple[str, int, int]:
    return decision.query_id, decision.batch_id, decision.repaired


def _refuse_newer(ledger: Ledger, decision: Decision) -> None:
    """ProducerFenced where the ledger's newest decision is not one that precedes this one."""
    newest = ledger.newest(settle=True)
    if newest is None:
        return
    before = (newest.batch_id, newest.repaired) < (decision.batch_id, decision.repaired)
    if newest.query_id != decision.query_id or not before:
        raise _fenced_by(newest, ledger)


def _fenced_by(newest: Decision, ledger: Ledger) -> ProducerFenced:
    return ProducerFenced(
        f"a newer run of pipeline {ledger.pipeline!r} has decided batch {newest.batch_id} while this run was idle; "
        "this run stops, and what it had open is aborted",
        {"pipeline": ledger.pipeline, "ledger_batch": newest.batch_id, "ledger_query": newest.query_id},
    )
