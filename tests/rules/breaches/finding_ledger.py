"""Breaches of: two readers of one ledger (findings L1 to L16)."""

from __future__ import annotations

from tests.support.planting import Planted

TOPIC = "pyspark_kafka_eos.commit.ledger.topic"
HISTORY = "pyspark_kafka_eos.operations.history"
STANDING = "pyspark_kafka_eos.operations.standing"
STRICT = "pyspark_kafka_eos.model.strict"
READER = "pyspark_kafka_eos.commit.ledger.reader"

CARRIED_ON = "L1: What a mending left an id at"
EVERY_NOTE = "L1: Before anybody is accused"
NEWEST = "L2: Every command judges"
TOMBSTONE = "L4: A tombstone"
TAIL = "L5: A ledger that lost its tail"
READ_STRICTLY = "L6: A record that anybody"
PENDING = "L7: A decided batch that the next run"
ITS_OWN = "L8: A record counts where a producer id of its pipeline"
ENDS_NOTHING = "L10: No command ends a transaction"
HIDES_NOBODY = "L11: One name that cannot be judged"
PARTS = "L15: The parts of a decision"
FOREIGN = "L16: What somebody else wrote takes no place"
BEFORE_THE_FENCE = "L9: What an older run decides while the next one starts"
TURNS_BY_A_SECRET = "L12: A turn counts where a process of its try gave it"
NO_LARGER = "L13: A batch in this package's own topics that is larger than any of its own"
FIRST_IN_ITS_OWN = "L14: Of what stands in the pipeline's own transaction"

BREACHES = {
    CARRIED_ON: (
        Planted(
            "a run does not keep where it left an id that it mended", f"{TOPIC}:Ledger.left_at",
            "self.last_commits[transactional_id] = identity", "pass",
        ),
        Planted(
            "a decision names the ids of its own seals alone", f"{TOPIC}:Ledger.earlier",
            "return tuple(earlier)", "return ()",
        ),
        Planted(
            "a repair names a mended id as it was sealed", "pyspark_kafka_eos.commit.shell:CommitShell._carry_out",
            ", ledger.last_commits", "",
        ),
        Planted(
            "a mending is carried on behind a later commit of the slot", f"{TOPIC}:Ledger.earlier",
            "(name, each) for name, each in known.items() if name not in now", "known.items()",
        ),
    ),
    EVERY_NOTE: (
        Planted(
            "only the newest decision and the notes behind it count", "pyspark_kafka_eos.commit.ledger.lost:with_every_mending",
            "return replace(view, mended=view.mended | ledger.mended())", "return view",
        ),
        Planted(
            "a mending accounts for every later commit of its id", "pyspark_kafka_eos.commit.ledger.lost:unnamed_commits",
            "(name, identity) not in view.mended", "name not in dict(view.mended)",
        ),
    ),
    NEWEST: (
        Planted(
            "an open decision is none, whatever shows it to be made", f"{STANDING}:newest_decided",
            "if mender.is_decided(record, view, by):", "if False:",
        ),
        Planted(
            "an open decision is made, whatever shows it to be none", f"{STANDING}:newest_decided",
            "if mender.is_decided(record, view, by):", "if True:",
        ),
        Planted(
            "a note that an open decision's batch is ended says nothing", f"{HISTORY}:_Behind._own_entry",
            "return replace(entry, open=False)", "return entry",
        ),
        Planted(
            "a decision that lives in a note only is not shown", f"{HISTORY}:_Behind._of_a_note",
            "return LedgerEntry(*place, decision, writer=record.writer)", "return None",
        ),
    ),
    "L3: A batch that is ended": (
        Planted(
            "what the ledger has a note of is proven again", "pyspark_kafka_eos.commit.per_task:PerTask.finish",
            "if run.newest_ended:", "if False:",
        ),
    ),
    TOMBSTONE: (
        Planted(
            "a run takes a tombstone for a decision that it cannot read", "pyspark_kafka_eos.commit.ledger.reader:LedgerReader.view",
            "gone = newest is not None and newest.value is None", "gone = False",
        ),
        Planted(
            "the commands take a tombstone for a decision that they cannot read", f"{HISTORY}:_Record.tombstone",
            "return self.value is None and not self.open and not self.kind", "return False",
        ),
        Planted(
            "what is in front of a tombstone is shown", f"{HISTORY}:_Behind.entry",
            "if name in self._forgotten:", "if record.tombstone:",
        ),
        Planted(
            "what is behind a tombstone is no pipeline either", "pyspark_kafka_eos.commit.ledger.reader:LedgerReader.view",
            "gone = False", "pass",
        ),
    ),
    TAIL: (
        Planted(
            "no command looks for commits that the ledger does not account for", f"{STANDING}:lost_ledger",
            "if _MADE_UP.fullmatch(pipeline):", "if True:",
        ),
        Planted(
            "a pipeline without a decision is accused wherever it is seen", f"{STANDING}:lost_ledger",
            "or (view.newest is None and not named)", "",
        ),
        Planted(
            "a write that has forgotten its name is accused", f"{STANDING}:lost_ledger",
            "if _MADE_UP.fullmatch(pipeline):", "if False:",
        ),
    ),
    READ_STRICTLY: (
        Planted("a text of 100,000 brackets is an error of another class", f"{STRICT}:MALFORMED", ", RecursionError", ""),
        Planted(
            "bytes that are no text are an error of another class", f"{STRICT}:MALFORMED",
            "ValueError, TypeError", "json.JSONDecodeError, TypeError",
        ),
        Planted(
            "numbers have no bounds", f"{STRICT}:whole",
            "if type(value) is not int or not low <= value <= high:", "if type(value) is not int:",
        ),
        Planted(
            "whatever Python makes a number of is one", f"{STRICT}:whole",
            "if type(value) is not int or not low <= value <= high:", "value = int(value)\nif not low <= value <= high:",
        ),
        Planted(
            "a manifest may name as many parts as a number has", "pyspark_kafka_eos.commit.ledger.parts:Manifest.from_json",
            ", 1, MOST_PARTS", ", 1",
        ),
        Planted(
            "one record that cannot be read ends the reading of all", f"{HISTORY}:_Record.entry",
            "problem = error.message", "raise",
        ),
    ),
    PENDING: (
        Planted(
            "it is DecisionBroken, which restarts do not help", "pyspark_kafka_eos.commit.handover.phases:_Written.__call__",
            "raise RepairPending(", 'raise __import__("kafka_core.errors").errors.DecisionBroken(',
        ),
    ),
    ITS_OWN: (
        Planted(
            "whoever wrote a decision, it counts", f"{READER}:LedgerReader._own",
            "if each.value is None or each.writer in known", "",
        ),
        Planted(
            "whoever wrote a note, it counts", f"{READER}:LedgerReader._ours",
            "if record.writer in self._writers.producer_ids:", "if True:",
        ),
        Planted(
            "what was acknowledged is taken for written", "pyspark_kafka_eos.commit.ledger.arrived:require_arrived",
            "if not _is_there(", "if False and not _is_there(",
        ),
        Planted(
            "a new producer id is used before the ledger names it", f"{TOPIC}:Ledger._name",
            "if decision.number > 1:", "if False:",
        ),
        Planted(
            "nobody is told that the writer is unknown", "pyspark_kafka_eos.commit.start.admission:warnings_of_writers",
            "if view.newest is not None and not view.known and", "if False and",
        ),
    ),
    ENDS_NOTHING: (
        Planted(
            "what anybody may have decided is committed", "pyspark_kafka_eos.operations.ending:_commit_one",
            "if believed:", "if False:",
        ),
        Planted(
            "a mending that anybody may have noted is ended", "pyspark_kafka_eos.operations.ending:commit",
            "if not view.believed:", "if True:",
        ),
        Planted(
            "what anybody may have left undecided is aborted", "pyspark_kafka_eos.operations.ending:_end_undecided",
            "if (view := ledger.look_anew()).believed:", "if False:",
        ),
        Planted(
            "a view does not say that it only believes", "pyspark_kafka_eos.commit.ledger.places:Places._read",
            "believed=known is None and self._believed", "believed=False",
        ),
    ),
    TURNS_BY_A_SECRET: (
        Planted(
            "whoever gave a turn, it counts", "pyspark_kafka_eos.slot.turn_log:unsigned",
            "if value is None or not hmac", "if value is None or False and not hmac",
        ),
        Planted(
            "two tasks may begin a partition, or none", "pyspark_kafka_eos.commit.whole_batch.merging:_merged",
            "if len(begins) != 1:", "if False:",
        ),
    ),
    FIRST_IN_ITS_OWN: (
        Planted(
            "whatever stands in the pipeline's transaction is its own", "pyspark_kafka_eos.commit.ledger.writers:begins_transaction",
            " and info.base_sequence == behind", "",
        ),
    ),
    NO_LARGER: (
        Planted(
            "a batch that fills a process ends its reader", "pyspark_kafka_eos.records.batch:decode_own",
            "except BatchTooLarge:", "except ZeroDivisionError:",
        ),
        Planted(
            "many small records fill it all the same", "pyspark_kafka_eos.records.batch:decode_own",
            "if len(records) + info.count * _ROW_BYTES > MAX_OWN_BYTES:", "if False:",
        ),
        Planted(
            "a decision is written that no reader would read", f"{TOPIC}:Ledger._room",
            "bomb = value_bytes > _LARGEST_BYTES", "bomb = False",
        ),
    ),
    HIDES_NOBODY: (
        Planted(
            "the first one that cannot be judged ends the command", "pyspark_kafka_eos.operations.known:judge_each",
            "if named:", "if True:",
        ),
        Planted(
            "any text is taken for a pipeline's name", f"{STANDING}:may_be_named",
            "return ", "return True or ",
        ),
        Planted(
            "all pipelines are proven together or not at all", "pyspark_kafka_eos.operations.proving:prove_newest",
            "if named:", "if True:",
        ),
        Planted(
            "a command waits for partitions that a note names", f"{STANDING}:look",
            "lag_ms=0", "",
        ),
        Planted(
            "a decision may have seals of any id", "pyspark_kafka_eos.model.decision:_of_pipeline",
            'if name != f"{prefix}{seal.slot}" and name != whole:', "if False:",
        ),
        Planted(
            "a note may be of any id", f"{READER}:LedgerReader._take_note",
            "if isinstance(note, Mending | Aborted) and not", "if False and not",
        ),
    ),
    PARTS: (
        Planted(
            "whoever wrote under the key of a part, it is one", "pyspark_kafka_eos.commit.ledger.joining:_between",
            "if not authors.wrote(info):", "if False:",
        ),
        Planted(
            "the parts of a note are of one producer id", f"{READER}:LedgerReader._take_note",
            "{record.writer, *self._writers.producer_ids}", "{record.writer}",
        ),
    ),
    FOREIGN: (
        Planted(
            "whoever wrote it, it takes a place", f"{HISTORY}:_Behind.is_own",
            "return known is None or entry.writer in known", "return True",
        ),
        Planted(
            "whoever wrote it, it is an entry", f"{HISTORY}:_Behind.entry",
            "own = known is None or record.writer in known", "own = True",
        ),
        Planted(
            "whatever its number, it is a decision of the pipeline", f"{HISTORY}:counted",
            "return before < each.decision.number < behind", "return True",
        ),
        Planted(
            "what ids wrote that were replaced is not the pipeline's", f"{HISTORY}:counted",
            "if at in own or fits(at, each)]", "if at in own]",
        ),
    ),
    "L17: A first start": (
        Planted(
            "a note that is believed needs no other one", "pyspark_kafka_eos.commit.start.first_start:admit",
            "elif view.believed:", "elif False:",
        ),
    ),
    "L18: A note that is needed": (
        Planted(
            "an answered end has its marker", "pyspark_kafka_eos.commit.ledger.notary:Notary.write_note",
            "if not needed or all(has_marker(producer, part) for part in written):", "if True:",
        ),
        Planted(
            "a marker that is late is not waited for", "pyspark_kafka_eos.commit.ledger.arrived:has_marker",
            "if runtime.monotonic() > deadline:", "if True:",
        ),
        Planted(
            "every note has to have its marker", "pyspark_kafka_eos.commit.ledger.notary:Notary.write_note",
            "if not needed or all(", "if all(",
        ),
        Planted(
            "who may not look sees no marker", "pyspark_kafka_eos.commit.ledger.arrived:has_marker",
            "if state is None or not _is_open(", "if state is not None and not _is_open(",
        ),
    ),
    "L19: A log is read": (
        Planted(
            "a leader that is behind says where the log ends", "pyspark_kafka_eos.client.reading.log_reader:read_raw",
            "if max(offset, read.high_watermark) < until:\n            end = until\n        elif offset", "if offset",
        ),
        Planted(
            "what was known of the end is waited for, whatever became of it", "pyspark_kafka_eos.client.reading.log_reader:read_raw",
            "until = min(until, Offsets(cluster).latest([where], READ_UNCOMMITTED, budget.left_ms)[where])", "pass",
        ),
        Planted(
            "the newest decision is what a leader that is behind has", "pyspark_kafka_eos.commit.ledger.reader:LedgerReader._read_between",
            "offset, until=upper)", "offset)",
        ),
        Planted(
            "what it has of the window is the window", "pyspark_kafka_eos.commit.ledger.reader:LedgerReader._read_between",
            "max(upper, read.high_watermark)", "read.high_watermark",
        ),
        Planted(
            "a part that it does not show is missing", "pyspark_kafka_eos.commit.ledger.joining:_between",
            "offset, until=upper)", "offset)",
        ),
        Planted(
            "a mending that it does not show is not noted", "pyspark_kafka_eos.commit.ledger.mendings:mendings_in",
            "offset, until=end)", "offset)",
        ),
        Planted(
            "a survey that it cannot answer ends", "pyspark_kafka_eos.commit.ledger.survey:_columns",
            "offset, until=end)", "offset)",
        ),
        Planted(
            "what it does not show has not arrived", "pyspark_kafka_eos.commit.ledger.arrived:_is_there",
            "until=part.first_offset + 1", "until=0",
        ),
        Planted(
            "the ledger is what it shows", "pyspark_kafka_eos.operations.history:_window",
            "offset, until=upper)", "offset)",
        ),
        Planted(
            "a mending that it does not show has not ended", "pyspark_kafka_eos.commit.noted_fates:_ended",
            "max(end, read.high_watermark)", "read.high_watermark",
        ),
        Planted(
            "a marker with which an answer begins is passed over", "pyspark_kafka_eos.commit.noted_fates:_ended",
            "info.base_offset > noted_at", "info.base_offset > offset",
        ),
        Planted(
            "what it does not show is not committed", "pyspark_kafka_eos.operations.counting:_Reading._fetch",
            "until=end", "until=0",
        ),
    ),
    BEFORE_THE_FENCE: (
        Planted("a start looks once", "pyspark_kafka_eos.commit.run:Run._settled_ids", "range(_SETTLES)", "range(1)"),
    ),
}  # fmt: skip
