"""The commands' findings as documents: plain values under stable names, for `--json` and for the tables
alike.

Owns: the names in the JSON, and each command's exit code.
Does not know: brokers (values come in), how a document is shown.
Invariants:
- A name keeps its meaning; new names may be added. `format` rises when a meaning changes.
- Times are milliseconds since 1970 or lengths in milliseconds; their names end in `_ms`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from kafka_core.errors import BrokerUnavailable, ExactlyOnceError, OptionsError, OutcomeUnknown
from pyspark_kafka_eos.client.requests.topics import TopicShape
from pyspark_kafka_eos.commit.machine.events import Outcome
from pyspark_kafka_eos.model import Decision
from pyspark_kafka_eos.operations.acls import Needed
from pyspark_kafka_eos.operations.audit import Audit, Finding, Verdict
from pyspark_kafka_eos.operations.ending import Done
from pyspark_kafka_eos.operations.history import LedgerEntry, slot_of
from pyspark_kafka_eos.operations.leftovers import STRANGER, Leftover, story
from pyspark_kafka_eos.operations.topic_checks import Check
from pyspark_kafka_eos.operations.topics import TopicDone
from pyspark_kafka_eos.operations.undecided import Undecided
from pyspark_kafka_eos.options import Migration

FINE, WRONG, USAGE, UNKNOWN = 0, 1, 2, 3
"""Exit codes."""

INTERRUPTED = 130
"""The shells' exit code for Ctrl-C: 128 plus the number of the signal."""

FORMAT = 1

Document = dict[str, Any]

Problems = Mapping[str, ExactlyOnceError]
"""Pipeline -> why it cannot be judged, or why its next run would be refused."""

NO_PROBLEMS: Problems = {}

_WORST = (Verdict.DIFFERS, Verdict.ABORTED, Verdict.OPEN, Verdict.GONE, Verdict.MATCHES)


def doctor(pipeline: str | None, checks: Sequence[Check]) -> Document:
    """The findings of the checks; no pipeline for a query that only reads. Wrong where a check failed,
    unknown where one could not be made; `can_start` is true, false or null then."""
    states = {each.status for each in checks}
    code = WRONG if "fail" in states else UNKNOWN if "unknown" in states else FINE
    rows = [
        {"name": each.name, "about": each.about, "status": each.status, "seen": each.seen, "do": each.do}
        for each in checks
    ]
    can_start = {FINE: True, WRONG: False}.get(code)
    return _document("doctor", code, pipeline=pipeline, checks=rows, can_start=can_start)


def acls(principal: str, found: Needed) -> Document:
    """The rights that a pipeline needs."""
    listed = [
        {
            "resource": each.resource, "name": each.name, "prefixed": each.prefixed, "operations": list(each.operations),
            "why": each.why,
        }
        for each in found.acls
    ]  # fmt: skip
    return _document("acls", FINE, principal=principal, acls=listed, unknown=list(found.unknown))


def ledger(topic: str, pipelines: Mapping[str, Sequence[LedgerEntry]]) -> Document:
    """Each pipeline's decisions, the newest first; wrong where a record is not a decision."""
    rows = [
        {"pipeline": name, "decisions": [_entry(each) for each in reversed(entries)]}
        for name, entries in pipelines.items()
    ]
    broken = any(each.problem for entries in pipelines.values() for each in entries)
    return _document("ledger", WRONG if broken else FINE, topic=topic, pipelines=rows)


def _entry(each: LedgerEntry) -> Document:
    row: Document = {
        "partition": each.where.partition,
        "offset": each.offset,
        "written_ms": each.written_ms,
        "status": each.status,
        "problem": each.problem,
    }
    return row | (decision(each.decision) if each.decision is not None else {})


def decision(found: Decision) -> Document:
    """One decision from the ledger."""
    return {
        "query_id": found.query_id,
        "batch_id": found.batch_id,
        "decided_ms": found.decided_ms,
        "records": found.records,
        "bytes": sum(seal.bytes for seal in found.seals),
        # Decisions of connectors without dead letters have none.
        "dead_letters": int(found.dead_letters),
        "slots": [slot_of(seal) for seal in found.seals],
        "source_offsets": list(found.source_offsets),
        "connector_version": found.connector_version,
        "repaired": found.repaired,
        "warnings": list(found.warnings),
    }


def verify(proof: Audit, problems: Problems = NO_PROBLEMS) -> Document:
    """The verdict on each batch, and what its pipeline committed without a decision. Wrong where there is such a commit, where the
    output differs from the decision, or where a pipeline's ledger cannot be read or has lost a decision (`problems`); unknown where
    the output cannot be read (or nothing was decided)."""
    rows = []
    for found, findings in proof.batches:
        verdicts = {each.verdict for each in findings}
        worst = next((each for each in _WORST if each in verdicts), Verdict.MATCHES)
        rows.append(
            {
                "pipeline": found.pipeline,
                "query_id": found.query_id,
                "batch_id": found.batch_id,
                "decided_ms": found.decided_ms,
                "records": found.records,
                "verdict": worst.value,
                "transactions": [_finding(each) for each in findings],
            }
        )
    found_verdicts = {row["verdict"] for row in rows}
    code = FINE if rows else UNKNOWN
    hidden = _worst_of(problems)
    if hidden == WRONG or proof.undecided or found_verdicts & {Verdict.DIFFERS.value, Verdict.ABORTED.value}:
        code = WRONG
    elif hidden == UNKNOWN or found_verdicts & {Verdict.OPEN.value, Verdict.GONE.value}:
        code = UNKNOWN
    searched = {"topics": list(proof.topics), "partitions": len(proof.partitions)}
    return _document(
        "verify",
        code,
        batches=rows,
        undecided=[_undecided(each) for each in proof.undecided],
        searched=searched,
        older=list(proof.older),
        problems=_hidden(problems),
    )


def _hidden(problems: Problems) -> list[Document]:
    return [{"pipeline": name, "problem": error.message} for name, error in problems.items()]


def _worst_of(problems: Problems) -> int:
    codes = {_code_of(each) for each in problems.values()}
    return FINE if not codes else UNKNOWN if codes == {UNKNOWN} else WRONG


def _undecided(each: Undecided) -> Document:
    return {
        "pipeline": each.pipeline,
        "transactional_id": each.transactional_id,
        "producer_id": each.commit.identity.producer_id,
        "producer_epoch": each.commit.identity.epoch,
        "topic": each.commit.where.topic,
        "partition": each.commit.where.partition,
        "first_offset": each.commit.first_offset,
        "records": each.commit.records,
        "reason": each.reason,
    }


def _finding(each: Finding) -> Document:
    return {
        "slots": list(each.slots),
        "transactional_id": each.transactional_id,
        "verdict": each.verdict.value,
        "expected_records": each.expected_records,
        "found_records": each.found_records,
        "expected_digest": f"{each.expected_digest:016x}",
        "found_digest": None if each.digest is None else f"{each.digest:016x}",
        "reason": each.reason,
    }


def transactions(
    command: str,
    found: Mapping[str, Sequence[Leftover]],
    strangers: Sequence[Leftover] = (),
    problems: Problems = NO_PROBLEMS,
) -> Document:
    """Each pipeline's transactional ids in the brokers, and those of no pipeline. `explain` is wrong where a
    decided slot is not committed or hangs; `list` and `explain` are wrong where a pipeline's ledger cannot be
    read or has lost a decision, unknown where a broker has not said enough (`problems`)."""
    rows = [_leftover(name, each) for name, leftovers in found.items() for each in leftovers]
    rows += [_leftover(None, each) for each in strangers]
    codes = {_worst_of(problems), FINE if command == "list" else _judged(found)}
    code = WRONG if WRONG in codes else max(codes)
    return _document(f"transactions {command}", code, transactions=rows, problems=_hidden(problems))


def _judged(found: Mapping[str, Sequence[Leftover]]) -> int:
    everything = [each for leftovers in found.values() for each in leftovers]
    if any(each.verdict in (Outcome.OPEN, Outcome.ABORTED) or _hangs(each) for each in everything):
        return WRONG
    return UNKNOWN if any(each.verdict is Outcome.UNKNOWN for each in everything) else FINE


def _hangs(each: Leftover) -> bool:
    return each.lacks_markers or bool(each.stranded) or (bool(each.holds) and each.age_ms is None)


def _leftover(pipeline: str | None, each: Leftover) -> Document:
    holds = None
    if each.holds is not None:
        holds = [
            {
                "topic": hold.where.topic,
                "partition": hold.where.partition,
                "producer_epoch": hold.epoch,
                "open_from": hold.open_from,
                "last_stable_offset": hold.last_stable_offset,
                "end_offset": hold.end_offset,
                "readers_wait_for_it": hold.first,
            }
            for hold in each.holds
        ]
    return {
        "pipeline": pipeline,
        "transactional_id": each.transactional_id,
        "part": None if pipeline is None else each.last,
        "state": each.state,
        "producer_id": each.identity.producer_id,
        "producer_epoch": each.identity.epoch,
        "timeout_ms": each.timeout_ms,
        "open_for_ms": each.age_ms,
        "partitions": [str(where) for where in each.partitions],
        "holds": holds,
        "no_client_can_end": [
            {"topic": where.topic, "partition": where.partition, "open_from": offset} for where, offset in each.stranded
        ],
        "decided_batch": each.batch_id,
        "decided_outcome": None if each.verdict is None else each.verdict.name.lower(),
        "story": STRANGER if pipeline is None else story(each),
    }


def done(command: str, pipeline: str, ended: Sequence[Done]) -> Document:
    """The results of an operation; unknown where an answer proved nothing, wrong where an id was refused."""
    rows = [
        {"transactional_id": each.transactional_id, "outcome": each.outcome, "detail": each.detail} for each in ended
    ]
    return _document(f"transactions {command}", _worst(ended), pipeline=pipeline, done=rows)


def _worst(ended: Sequence[Done] | Sequence[TopicDone]) -> int:
    outcomes = {each.outcome for each in ended}
    return UNKNOWN if "unknown" in outcomes else WRONG if "refused" in outcomes else FINE


def topics(found: Sequence[TopicShape]) -> Document:
    """Topics by the metadata; wrong where a partition has no leader."""
    rows = [asdict(each) for each in found]
    return _document("topic list", WRONG if any(each.without_leader for each in found) else FINE, topics=rows)


def topics_done(command: str, ended: Sequence[TopicDone]) -> Document:
    """What became of each topic: created, deleted, unchanged, refused, unknown; exit codes as of `done`."""
    rows = [{"topic": each.topic, "outcome": each.outcome, "detail": each.detail} for each in ended]
    return _document(f"topic {command}", _worst(ended), done=rows)


def migrated(found: Migration) -> Document:
    """What becomes of a job's options; wrong usage where one is refused."""
    return _document(
        "migrate-options",
        USAGE if found.refused else FINE,
        side=found.side,
        options=found.options,
        dropped=[{"name": name, "why": why} for name, why in found.dropped.items()],
        refused=[{"names": list(names), "why": why} for names, why in found.refused],
        missing=[{"name": name, "what": what} for name, what in found.missing.items()],
        different=[{"name": name, "what": what} for name, what in found.different.items()],
    )


def failed(command: str, error: ExactlyOnceError) -> Document:
    """A command that failed."""
    said = {
        "class": type(error).__name__,
        "message": error.message,
        "facts": error.facts,
        "who_acts": error.who_acts_at_the_end or error.who_acts,
    }
    return _document(command, _code_of(error), error=said)


def _code_of(error: ExactlyOnceError) -> int:
    if isinstance(error, OptionsError):
        return USAGE
    return UNKNOWN if isinstance(error, (BrokerUnavailable, OutcomeUnknown)) else WRONG


def interrupted(command: str, message: str) -> Document:
    """A command that was ended with Ctrl-C."""
    said = {"class": "Interrupted", "message": message, "facts": {}, "who_acts": "the one who interrupted it"}
    return _document(command, INTERRUPTED, error=said)


def _document(command: str, code: int, **fields: Any) -> Document:
    return {"command": command, "format": FORMAT, "exit_code": code, **fields}
