"""Breaches of: absences taken for proofs (findings A1 to A6)."""

from __future__ import annotations

from tests.support.planting import Planted

ABSENCE = "pyspark_kafka_eos.client.reading.absence"
FATES = "pyspark_kafka_eos.commit.fates"
PROOF = "pyspark_kafka_eos.commit.proof"
FIRST_START = "pyspark_kafka_eos.commit.start.first_start"
ADOPTING = "pyspark_kafka_eos.commit.start.adopting"
ENDING = "pyspark_kafka_eos.operations.ending"

OLDER = "A1: A leader of an older epoch"
BEFORE = "A1: Before the decision a leader"
LEDGER = "A1: The ledger's former leader"
TOPIC = "A1: A topic is gone only where"
LAGS = "A2: An answer without records"
OPEN = "A3: A decided slot that is open"
WHILE_ENDED = "A3: Records that are lost while"
ANY_BATCH = "A5: A pipeline that nobody knows"
NOTED = "A5: A pipeline whose ids a coordinator knows"
KNOWN = "A5: A pipeline that a coordinator"
GIVEN_UP = "A6: An aborted batch whose checkpoint"

BREACHES = {
    OLDER: (
        Planted(
            "the word of any leader counts", f"{ABSENCE}:_behind",
            "where for where, known in places.items() if cluster.leader_epoch(where) < known.leader_epoch", "",
        ),
        Planted(
            "a log is read from whatever leader is known", f"{FATES}:_read",
            "absence.require_leaders(cluster, {where: known})", "",
        ),
        Planted(
            "what any leader has open counts", f"{ABSENCE}:present",
            'if cluster.leader_epoch(where) < known.leader_epoch\nor known.topic_id not in ("", cluster.topic_id(where.topic))',
            'if known.topic_id not in ("", cluster.topic_id(where.topic))',
        ),
        Planted(
            "a seal does not name the leader's epoch", "pyspark_kafka_eos.client.writing.delivery:Delivery.sealed_partitions",
            "leader_epoch=self.cluster.leader_epoch(where)", "leader_epoch=-1",
        ),
    ),
    BEFORE: (
        Planted(
            "a task's records are looked for at any leader", "pyspark_kafka_eos.commit.shell:CommitShell._check_alive",
            "where | {self._run.ledger.partition}, seals", "where | {self._run.ledger.partition}",
        ),
        Planted(
            "a batch's records are looked for at any leader", "pyspark_kafka_eos.commit.whole_batch.driver:_Try._check",
            "where | {run.ledger.partition}, [seal]", "where | {run.ledger.partition}",
        ),
    ),
    "A1: A leader that answers without an epoch": (
        Planted(
            "what a leader does not list is lost", f"{PROOF}:_lost_while_open",
            "lacking(cluster, seal, lost[seal.slot])", "lost[seal.slot]",
        ),
    ),
    LEDGER: (
        Planted(
            "a run reads the ledger from the leader that the first broker names", "pyspark_kafka_eos.commit.ledger.topic:Ledger.prepare",
            "self.find_leaders()", "",
        ),
        Planted(
            "an abort by hand reads the ledger from the leader that the first broker names", f"{ENDING}:take_over",
            "ledger.find_leaders()\n    mender", "mender",
        ),
    ),
    TOPIC: (
        Planted(
            "one broker's word is enough", f"{ABSENCE}:_gone",
            "elif 2 * says.count(False) > brokers:", "elif says.count(False):",
        ),
        Planted(
            "the topic of the name is the topic, whatever its id", f"{ABSENCE}:_existing",
            'same = count > 0 and wanted in ("", cluster.topic_id(topic))', "same = count > 0",
        ),
        Planted(
            "the first answer that lacks the topic is enough", f"{ABSENCE}:_existing",
            "gone = _gone(cluster, missing, patience_ms)", "gone = set(missing)",
        ),
    ),
    LAGS: (
        Planted(
            "an answer without records is the log's end", f"{FATES}:_read",
            "if absence.ends(cluster, {where: known})[where] <= offset:", "if True:",
        ),
    ),
    OPEN: (
        Planted(
            "a slot that its coordinator has open is ended without a look at its leaders", f"{PROOF}:prove",
            "| _lost_while_open(cluster, opened, settle_ms, look) if opened else proofs", "",
        ),
        Planted(
            "a slot is whole where its producer is known", "pyspark_kafka_eos.commit.open_parts:open_as_sealed",
            "return state.last_sequence == part.last_sequence", "return True",
        ),
        Planted(
            "what is open without its records is written again beside it", "pyspark_kafka_eos.commit.shell:CommitShell._rewrite",
            "self._abort_unseen([seal for seal in lost if seal.slot in self._unseen])", "",
        ),
    ),
    WHILE_ENDED: (
        Planted(
            "the coordinator's answer is enough, whatever leader came since the look", "pyspark_kafka_eos.commit.shell:CommitShell._end",
            "self._led_anew(seals)", "set()",
        ),
        Planted(
            "the log of a new leader is not read where the coordinator says committed", f"{PROOF}:prove",
            "or (verdicts[seal.slot] is Outcome.COMMITTED and seal.slot in by_log)", "or False",
        ),
        Planted(
            "a commit marker at the place of the first record is its commit", f"{FATES}:_Waiting.look_at",
            "and info.base_offset == each.first_offset", "and False",
        ),
    ),
    "A4: Where the run has source offsets": (
        Planted(
            "a decision without source offsets fits any batch of its number", "pyspark_kafka_eos.commit.start.admission:refuse_conflict",
            "is not None and tuple(source_offsets) != newest.source_offsets", "and newest.source_offsets not in ((), tuple(source_offsets))",
        ),
    ),
    ANY_BATCH: (
        Planted(
            "a new pipeline may begin at batch 0 only", f"{FIRST_START}:admit",
            "unnoted = not _is_noted(view, now, behind=behind) and not options.adopt_checkpoint",
            "unnoted = not _is_noted(view, now, behind=behind) and not options.adopt_checkpoint\nif unnoted and behind:\n"
            '    raise _known(options, batch_id, "nobody knows it")',
        ),
        Planted(
            "its beginning is not noted, so a second try meets what the first one left", f"{FIRST_START}:admit",
            "ledger.note(replace(now, adopted=options.adopt_checkpoint))", "pass",
        ),
        Planted(
            "batches that the pipeline does not have are no reason for a word", f"{FIRST_START}:warn_of_gap",
            "if batch_id <= first or (newest is not None and not mine):", "if True:",
        ),
    ),
    KNOWN: (
        Planted("what the coordinators know does not count", f"{FIRST_START}:admit", "if unnoted and known:", "if False:"),
        Planted(
            "the ledger's other partitions are not looked at", f"{FIRST_START}:admit",
            "if unnoted and began is None and found.places and behind:", "if False:",
        ),
    ),
    NOTED: (
        Planted(
            "what the coordinators know does not count at batch 0", f"{FIRST_START}:admit",
            "if unnoted and known:", "if unnoted and known and behind:",
        ),
        Planted("the note of another batch counts", f"{FIRST_START}:_is_noted", "(unused and not behind)", "unused"),
        Planted(
            "a beginning at batch 0 is not noted", f"{FIRST_START}:admit",
            "if began is None or began != now:", "if began != now and behind:",
        ),
    ),
    GIVEN_UP: (
        Planted(
            "there is no way on", f"{ADOPTING}:leave",
            "if options.adopt_without_batch == decision.batch_id:", "if False:",
        ),
        Planted(
            "any number gives up whatever batch it is", f"{ADOPTING}:leave",
            "if options.adopt_without_batch == decision.batch_id:", "if options.adopt_without_batch is not None:",
        ),
        Planted(
            "adopt.checkpoint alone gives it up", f"{ADOPTING}:leave",
            "if options.adopt_without_batch == decision.batch_id:", "if options.adopt_checkpoint:",
        ),
        Planted(
            "of a torn slot all records count as missing", f"{ADOPTING}:_missing",
            "sum(records for where, (records, _) in seal.shares.items() if where in only)", "seal.records",
        ),
    ),
}  # fmt: skip
