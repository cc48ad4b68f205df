"""Whether a run may continue with a batch, judged from the ledger and the coordinators.

Owns: the refusals before anything is written, and the warnings to the user.
Does not know: how the ledger is read, what follows from a refusal.
Invariants:
- Nothing here changes anything.
- A run is refused wherever continuing could lose or repeat records.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from kafka_core.errors import PipelineConflict
from kafka_core.foreign_text import told
from kafka_core.values import ProducerIdentity
from pyspark_kafka_eos.commit.ledger.lost import unnamed_commits
from pyspark_kafka_eos.commit.ledger.reader import LedgerView
from pyspark_kafka_eos.model import Decision, Expired, Seal, planned_ms
from pyspark_kafka_eos.model.said_times import moment
from pyspark_kafka_eos.options import SinkOptions

log = logging.getLogger(__name__)

EarlierOffsets = Callable[[int], Sequence[str] | None]
"""The source offsets that Spark's offset log has for a batch before the one that runs; None where it cannot be read."""


Elsewhere = Callable[[Sequence[str], Sequence[str], Sequence[str] | None], Sequence[str]]
"""Where a batch begins elsewhere than another one ended, in words: by that one's source offsets, the batch's, and those
before it.
"""


@dataclass(frozen=True)
class OffsetLog:
    """What a start compares of a streaming query's offset log with the ledger. `earlier`: None where the checkpoint
    cannot be read here.
    """

    earlier: EarlierOffsets | None
    elsewhere: Elsewhere


def admit(
    options: SinkOptions,
    query_id: str,
    newest: Decision | None,
    batch_id: int,
    source_offsets: Sequence[str] | None,
    log_of: OffsetLog | None,
) -> tuple[str, ...]:
    """Everything that the newest decision says of a batch of this query: a refusal, or warnings. `log_of`: None without
    a checkpoint.
    """
    earlier, elsewhere = (None, None) if log_of is None else (log_of.earlier, log_of.elsewhere)
    refuse_conflict(options, query_id, newest, batch_id, source_offsets)
    adopted = judge_adopted(options, query_id, newest, batch_id, source_offsets, earlier, elsewhere)
    return (*adopted, *judge_earlier(options, query_id, newest, batch_id, earlier))


def refuse_conflict(
    options: SinkOptions,
    query_id: str,
    newest: Decision | None,
    batch_id: int,
    source_offsets: Sequence[str] | None,
) -> None:
    """Refuse a batch of another query, one older than the newest decision, or that decision's own batch with other
    source offsets. `source_offsets`: those that Spark's offset log has for the batch, None where unknown.
    """
    if newest is None:
        return
    facts: dict[str, str | int] = {
        "pipeline": options.pipeline,
        "ledger_query": newest.query_id,
        "this_query": query_id,
        "ledger_batch": newest.batch_id,
        "this_batch": batch_id,
    }
    if newest.query_id != query_id and not options.adopt_checkpoint:
        raise PipelineConflict(
            f"pipeline {options.pipeline!r} belongs to another query or to an older checkpoint of this one; "
            "nothing was written. Two queries: give each its own pipeline name. A new checkpoint: its batch ids "
            "start again at 0; set adopt.checkpoint=true once, after making sure that the source begins where "
            "the output ends: from Kafka by startingOffsets=group with kafka.group.id, the sink's offsets.group. "
            "This start has logged its first batch in the checkpoint: empty that first",
            facts,
        )
    if newest.query_id == query_id and newest.batch_id > batch_id:
        raise PipelineConflict(
            f"the checkpoint is older than the output: it begins batch {batch_id}, but batch {newest.batch_id} of "
            "this query is committed; nothing was written. Restore the newer checkpoint; going on would write "
            f"records twice. Where the newer one is lost, {_go_on_from_a_new_one(options, newest)}",
            {**facts, "source_offsets": newest.source_offsets},
        )

    decided = newest.query_id == query_id and newest.batch_id == batch_id
    if decided and source_offsets is not None and tuple(source_offsets) != newest.source_offsets:
        both = {"committed": _shown(newest.source_offsets), "checkpoint": _shown(source_offsets)}
        # Every run by a checkpoint records what the batch read, so a decision without it is taken for no batch of one.
        raise PipelineConflict(
            f"batch {batch_id} of this query is committed, but for other source offsets than the checkpoint has "
            f"now: the checkpoint was restored from before that batch, or its offset log was changed; nothing was "
            "written. Restore the checkpoint that the batch was committed with; going on would skip or repeat records. Where that one is lost, "
            f"{_go_on_from_a_new_one(options, newest)}"
            if newest.source_offsets
            else f"batch {batch_id} of this query is committed in the ledger without source offsets, and the checkpoint has some: "
            "another program wrote that decision; nothing was written. Find out whether the batch is in the output, and write the last "
            "correct decision again; going on would take the batch for committed",
            {**facts, **both},
        )
    planned, then = planned_ms(source_offsets), newest.planned_ms
    if decided and planned is not None and then is not None and planned != then:
        raise PipelineConflict(
            f"batch {batch_id} of this query is committed, and the checkpoint has another batch {batch_id}: Spark planned it at "
            f"{moment(planned)} ({planned} ms), and the committed one at {moment(then)} ({then} ms); both have the source offsets "
            f"{_shown(newest.source_offsets)}, which do not tell which rows they are (files, for example). The checkpoint was restored from "
            f"before that batch. Nothing was written: rows would be left out. Restore the checkpoint that the batch was committed with; where it is lost, start the "
            "query from a new, empty checkpoint, with adopt.checkpoint=true once, and leave out of its source what is in the output",
            {**facts, "committed_planned_ms": then, "checkpoint_planned_ms": planned},
        )


def _go_on_from_a_new_one(options: SinkOptions, newest: Decision) -> str:
    return (
        "start the query from a new, empty checkpoint, with adopt.checkpoint=true once and starting "
        f"offsets behind batch {newest.batch_id}: by startingOffsets=group with kafka.group.id={options.offsets_group} where it reads from "
        f"the cluster that it writes to; that batch ended at source offsets {_shown(newest.source_offsets)}. What Spark keeps as state of a "
        "query is lost with the checkpoint"
    )


def judge_earlier(
    options: SinkOptions,
    query_id: str,
    newest: Decision | None,
    batch_id: int,
    earlier: EarlierOffsets | None,
) -> tuple[str, ...]:
    """Refuse a batch that does not begin where the newest decision ended. Spark begins a batch where its offset log
    says that the one before ended.

    Nothing is concluded where either side has no offsets: Spark deletes old files, and another program may decide
    without them. Returns a warning where the user has adopted the checkpoint with the difference.
    """
    if newest is None or earlier is None or newest.query_id != query_id or newest.batch_id >= batch_id:
        return ()
    logged = earlier(newest.batch_id) if newest.source_offsets else None
    if not logged or tuple(logged) == newest.source_offsets:
        return ()
    committed, checkpoint = _shown(newest.source_offsets), _shown(logged)
    if options.adopt_checkpoint:
        warning = (
            f"batch {newest.batch_id} of pipeline {options.pipeline!r} is committed up to the source offsets {committed}, and the "
            f"checkpoint's offset log has {checkpoint} for it now; by adopt.checkpoint=true the query reads on from there, so rows between "
            "both are written again or left out"
        )
        return (told(log, warning),)
    raise PipelineConflict(
        f"the checkpoint's offset log has other source offsets for batch {newest.batch_id} than the batch was committed with: the checkpoint "
        f"has {checkpoint}, the ledger has {committed}; the offset log was edited, or comes from another place. Nothing was written: batch "
        f"{batch_id} would skip the rows between both, or write them twice. Restore the checkpoint that the batch was committed with; "
        "or, to read on from the checkpoint's offsets on purpose, set adopt.checkpoint=true once",
        {
            "pipeline": options.pipeline,
            "ledger_batch": newest.batch_id,
            "this_batch": batch_id,
            "committed": committed,
            "checkpoint": checkpoint,
        },
    )


def judge_adopted(
    options: SinkOptions,
    query_id: str,
    newest: Decision | None,
    batch_id: int,
    source_offsets: Sequence[str] | None,
    earlier: EarlierOffsets | None,
    elsewhere: Elsewhere | None,
) -> tuple[str, ...]:
    """Refuse a checkpoint that is adopted where its query begins elsewhere than the pipeline's last batch ended, as far
    as the offsets tell. Returns a warning where the user has named that batch.
    """
    adopts = options.adopt_checkpoint and newest is not None and newest.query_id != query_id
    if not adopts or newest is None or elsewhere is None or source_offsets is None:
        return ()
    before = earlier(batch_id - 1) if earlier is not None and batch_id > 0 else None
    if before is None and batch_id > 0:
        return ()
    found = elsewhere(newest.source_offsets, source_offsets, before)
    if not found:
        return ()
    places = f"{'; '.join(found)[:500]}"
    if options.adopt_without_batch == newest.batch_id:
        warning = (
            f"batch {batch_id} begins elsewhere than batch {newest.batch_id} of the query that had pipeline {options.pipeline!r} before ended: "
            f"{places}; by adopt.without.batch={newest.batch_id} rows in between come twice, or not at all"
        )
        return (told(log, warning),)
    raise PipelineConflict(
        f"batch {batch_id} of this checkpoint begins elsewhere than batch {newest.batch_id} ended, the last one of the query that had pipeline "
        f"{options.pipeline!r} before: {places}; nothing was written: rows in between would come twice, or not at all. A start that was refused has "
        "logged its first batch in the checkpoint, which stays: begin with a new, empty one, where that batch ended "
        f"(startingOffsets=group with kafka.group.id={options.offsets_group}, if no other query commits to that group{_named(newest)}). To write rows again, give the query another pipeline; to go on from here on "
        f"purpose, set adopt.without.batch={newest.batch_id} beside adopt.checkpoint=true",
        {
            "pipeline": options.pipeline,
            "ledger_query": newest.query_id,
            "this_query": query_id,
            "ledger_batch": newest.batch_id,
            "this_batch": batch_id,
            "elsewhere": tuple(found),
        },
    )


def _named(newest: Decision) -> str:
    """The starting offsets of a query with one source that reads on behind a decision; empty where a sentence has no
    room for them.
    """
    text = newest.source_offsets[0] if len(newest.source_offsets) == 1 else ""
    begin = text.find("{")
    return f", or startingOffsets={text[begin:]}" if begin >= 0 and len(text) <= 500 else ""


def _shown(source_offsets: Sequence[str]) -> str:
    return "; ".join(source_offsets)[:500] or "none"


def refuse_lost_ledger(
    options: SinkOptions, view: LedgerView, batch_id: int, shown: Mapping[str, ProducerIdentity]
) -> None:
    """Refuse where the coordinators report commits that the ledger does not account for. `shown`: the
    pipeline's committed ids, each with the identity that its coordinator reports."""
    newest = view.newest
    if options.adopt_checkpoint:
        return
    if newest is None and shown and view.forgotten:
        raise ended_by_tombstone(options, batch_id, f"{min(shown)!r} is committed under {shown[min(shown)]}")
    if newest is None and shown:
        raise PipelineConflict(
            f"the ledger topic {options.ledger_topic!r} has no decision of pipeline {options.pipeline!r}, but it has decided batches: "
            f"{min(shown)} is committed under {shown[min(shown)]}; nothing was written. {_gone_by(view)}, or find out whether batch "
            f"{batch_id} is in the output: if it is, start from a checkpoint behind it; then set adopt.checkpoint=true once",
            {
                "pipeline": options.pipeline,
                "ledger": options.ledger_topic,
                "this_batch": batch_id,
                "transactional_ids": tuple(sorted(shown)),
            },
        )
    unnamed = unnamed_commits(view, shown)
    if newest is not None and unnamed:
        raise PipelineConflict(
            f"{unnamed[0]} is committed under {shown[unnamed[0]]}, which the newest decision in ledger topic "
            f"{options.ledger_topic!r} (batch {newest.batch_id}) does not name: the ledger has lost a later decision (an "
            "unclean leader election, a restore), or another process commits under this pipeline's ids; nothing "
            "was written, because the lost batch would be written twice. Find out whether the checkpoint's last "
            "batch is in the output; if it is, start from a checkpoint behind it, then set adopt.checkpoint=true once",
            {
                "pipeline": options.pipeline,
                "ledger": options.ledger_topic,
                "ledger_batch": newest.batch_id,
                "transactional_ids": tuple(unnamed),
            },
        )


def _gone_by(view: LedgerView) -> str:
    """What may have become of a pipeline's decisions, and the first half of what to do."""
    if view.foreign is None:
        return "If the ledger was deleted, recreated or restored, bring it back"
    return (
        f"Somebody else's record stands under the pipeline's keys ({view.foreign.where}, offset {view.foreign.offset}), and compaction removes what "
        "is older: take the right to write to that topic from others. Bring the ledger back if it was deleted, recreated or restored"
    )


def ended_by_tombstone(options: SinkOptions, batch_id: int, by_whom: str) -> PipelineConflict:
    """The refusal of a pipeline that the ledger has forgotten, and a coordinator has not. A tombstone is no proof of
    what is in the output.
    """
    return PipelineConflict(
        f"a tombstone in the ledger topic {options.ledger_topic!r} has ended the history of pipeline {options.pipeline!r}, but {by_whom}; nothing "
        "was written. Everybody who may write to that topic can put one there. Find out whether batch "
        f"{batch_id} is in the output: if it is, start from a checkpoint behind it; then set adopt.checkpoint=true once",
        {"pipeline": options.pipeline, "ledger": options.ledger_topic, "this_batch": batch_id},
    )


def warn_of_another_topic(options: SinkOptions, last: Decision | None) -> tuple[str, ...]:
    """A pipeline may continue into another topic; the log and the next decisions record where its earlier records
    are.
    """
    topic = options.topic
    written = {part.topic for seal in (last.seals if last else ()) for part in seal.partitions}
    written.discard(options.dead_letter_topic or "")
    if last is None or topic is None or not written or topic in written:
        return ()
    warning = (
        f"up to batch {last.batch_id} pipeline {options.pipeline!r} wrote to {', '.join(sorted(written))}; from now on "
        f"it writes to {topic}"
    )
    return (told(log, warning),)


def refuse_displaced(options: SinkOptions, view: LedgerView) -> None:
    """Refuse where nothing in the ledger is of the pipeline's own ids, though their coordinator shows that they have
    decided: somebody else's record has taken the place of theirs.
    """
    if not view.displaced or options.adopt_checkpoint:
        return
    assert view.newest is not None
    raise PipelineConflict(
        f"the newest decision under the key of pipeline {options.pipeline!r} in ledger topic {options.ledger_topic!r} (batch {view.newest.batch_id}) is "
        "not of the pipeline's transactional ids, and these have decided batches of which the ledger has none: somebody else's record has "
        "taken their place, or the ledger was restored. Nothing was written. Find out who has the right to write to that topic, and which batch "
        "the output ends with; then set adopt.checkpoint=true once",
        {"pipeline": options.pipeline, "ledger": options.ledger_topic, "ledger_batch": view.newest.batch_id},
    )


def warnings_of_writers(options: SinkOptions, view: LedgerView) -> list[str]:
    """That somebody else writes under the pipeline's keys, or that nobody can tell who wrote its newest decision."""
    warnings = []
    if view.foreign is not None:
        by = (
            f"producer id {view.foreign.writer}"
            if view.foreign.writer is not None
            else "a producer without a transaction"
        )
        warnings.append(
            f"{view.foreign.where} has a record under the keys of pipeline {options.pipeline!r} at offset {view.foreign.offset}, which somebody "
            f"else wrote ({by}): it counts for nothing, and can stay. Find out who has the right to write to ledger topic "
            f"{options.ledger_topic!r} (kafka-acls.sh --list --topic {options.ledger_topic})"
        )
    if view.newest is not None and not view.known and not options.ephemeral:
        warnings.append(
            f"the newest decision of pipeline {options.pipeline!r} in ledger topic {options.ledger_topic!r} is of batch {view.newest.batch_id}, and "
            "no coordinator knows who wrote it: the pipeline's transactional ids have expired since (transactional.id.expiration.ms), "
            "the ledger is a copy of another cluster's, or the pipeline has never run and somebody else wrote it. It is taken for the "
            "pipeline's own; if others may write to that topic, look at the batch's records before you rely on them"
        )
    return warnings


def warn_of_writers(options: SinkOptions, view: LedgerView) -> tuple[str, ...]:
    """These warnings, logged too."""
    return tuple(told(log, each) for each in warnings_of_writers(options, view))


def warn_of_expired(seals: Sequence[Seal]) -> tuple[str, ...]:
    """The warnings that rows were written which their topics do not keep; logged too."""
    warnings = [
        f"{each.rows} rows of this batch are older than topic {each.topic!r} keeps records (retention.ms={each.keeps_ms}, the oldest time is "
        f"{moment(each.oldest_ms)}): the broker deletes them when it next looks, and readers may never see them; drop the timestamp column, raise "
        "the setting, or refuse such rows with on.expired.record=refuse"
        for each in Expired.of_all(each for seal in seals for each in seal.expired)
    ]
    return tuple(told(log, each) for each in warnings)
