"""Where a pipeline stands, as its next run would find it: its newest decision, and whether the ledger has lost a later
one.

Owns: asking what a run asks at its start, without changing anything.
Does not know: how findings are shown; the query's checkpoint, so the judgement is that of a run that begins with this
batch.
Invariants:
- The rules are the run's own (`Mender.is_decided`, `admission.refuse_lost_ledger`, `first_start.known_elsewhere`);
  there is no second one.
- Nothing is written, ended or fenced.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import replace

from kafka_core.errors import BrokerUnavailable, ExactlyOnceError, PipelineConflict, UnknownTopic
from kafka_core.values import ProducerIdentity
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.reading import absence
from pyspark_kafka_eos.client.requests.transactions import Transactions
from pyspark_kafka_eos.commit.dataframe_write import UNNAMED
from pyspark_kafka_eos.commit.ledger.lost import with_every_mending
from pyspark_kafka_eos.commit.ledger.reader import LedgerView
from pyspark_kafka_eos.commit.ledger.topic import Ledger
from pyspark_kafka_eos.commit.markers import Mender
from pyspark_kafka_eos.commit.start import admission, first_start
from pyspark_kafka_eos.model import Decision, batch_transactional_id, driver_transactional_id, writing_ids
from pyspark_kafka_eos.operations.history import KnownOf
from pyspark_kafka_eos.operations.leftovers import own_ids
from pyspark_kafka_eos.options import SinkOptions, is_pipeline_name

_MADE_UP = re.compile(rf"{UNNAMED}[0-9a-f]{{32}}")
"""The names of writes without one. No later run has such a name, and the write deletes its decision when it is done."""


def may_be_named(pipeline: str) -> bool:
    """Whether a pipeline may have this name. Another client may have put any text into the ledger's keys."""
    return _MADE_UP.fullmatch(pipeline) is not None or is_pipeline_name(pipeline)


def look(ledger: Ledger) -> LedgerView:
    """What the ledger has, by leaders that every broker was asked for; nothing where more than half of the brokers say
    that there is no such topic. BrokerUnavailable where too few can say. Every broker's metadata are those of now, so
    nobody waits for partitions that a note names: anybody may have written it.
    """
    if not absence.topics_there(ledger.cluster, [ledger.topic]):
        return LedgerView()
    try:
        return ledger.look(lag_ms=0)
    except UnknownTopic as error:
        raise BrokerUnavailable(
            f"a broker does not know ledger topic {ledger.topic!r}, and more than half of the brokers do: it is behind or cut off from the "
            "others; nothing is concluded and nothing was changed; ask again, and make sure that the brokers reach each other",
            {"topic": ledger.topic},
        ) from error


def known_by(cluster: Cluster, ledger_topic: str) -> KnownOf:
    """Which producer ids are a pipeline's, by a look at its ledger."""

    def known(pipeline: str) -> Collection[int] | None:
        ledger = Ledger(cluster, ledger_topic, pipeline)
        # What cannot be judged is said by whoever judges the pipeline.
        with suppress(ExactlyOnceError):
            if may_be_named(pipeline):
                look(ledger)
        return ledger.producer_ids

    return known


def newest_decided(cluster: Cluster, ledger: Ledger) -> Decision | None:
    """The newest decision that is made, also one whose marker the broker forgot: the next run's start finds it by a
    note, by its coordinator or by its slots. LedgerUnreadable where the newest record is none.
    """
    view = look(ledger)
    if view.open is None:
        return view.newest
    name = driver_transactional_id(ledger.pipeline)
    whole = batch_transactional_id(ledger.pipeline)
    views = Transactions(cluster).describe([name, whole], sure=True)
    # Read again after the coordinator's answer: a decision that was being recorded has its marker by now.
    view = look(ledger)
    mender = Mender(cluster, ledger, 0)
    for record in reversed(view.all_open):
        decision = ledger.decision(record)
        by = views[whole if decision.in_one_transaction else name]
        if mender.is_decided(record, view, by):
            return decision
    return view.newest


def lost_ledger(
    cluster: Cluster, options: SinkOptions, pipeline: str, *, named: bool = True
) -> PipelineConflict | None:
    """What a run's start would raise because coordinators know what the ledger does not account for; None where it
    would not. `named`: by the user, so this is the pipeline's ledger; another pipeline without a decision may have
    another one.
    """
    if _MADE_UP.fullmatch(pipeline):
        return None
    ledger = Ledger(cluster, options.ledger_topic, pipeline)
    before = look(ledger)
    known = sorted(own_ids(cluster, pipeline))
    shown = _committed(cluster, [name for name in known if re.fullmatch(writing_ids(pipeline), name)])
    # Read again after the coordinators' answers: a driver that is at work decides before it ends. Where it has
    # decided in between, the answers belong to neither look, and a ledger that grows has lost nothing.
    view = look(ledger)
    # An open decision may account for them; a run settles it before it checks for losses.
    if view.newest != before.newest or view.open is not None or (view.newest is None and not named):
        return None
    options = replace(options, pipeline=pipeline)
    refused = _refused(options, with_every_mending(ledger, view, shown), shown)
    return refused or first_start.known_elsewhere(options, view, known)


def _refused(options: SinkOptions, view: LedgerView, shown: Mapping[str, ProducerIdentity]) -> PipelineConflict | None:
    try:
        admission.refuse_lost_ledger(options, view, 0, shown)
    except PipelineConflict as error:
        return error
    return None


def _committed(cluster: Cluster, slots: list[str]) -> dict[str, ProducerIdentity]:
    """Those of the ids whose last transaction is committed."""
    # One that was replaced shows an earlier commit than the newest decision names.
    views = Transactions(cluster).describe(slots, sure=True) if slots else {}
    return {name: each.identity for name, each in views.items() if each.state == "CompleteCommit"}
