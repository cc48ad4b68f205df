"""Breaches of: absences taken for proofs (findings A1 to A6)."""

from __future__ import annotations

from tests.rules.table import Breach

ABSENCE = "connector/pyspark_kafka_eos/client/reading/absence.py"
FATES = "connector/pyspark_kafka_eos/commit/fates.py"
PROOF = "connector/pyspark_kafka_eos/commit/proof.py"
FIRST_START = "connector/pyspark_kafka_eos/commit/start/first_start.py"
ADOPTING = "connector/pyspark_kafka_eos/commit/start/adopting.py"
ENDING = "connector/pyspark_kafka_eos/operations/ending.py"

OLDER = "A1: A leader of an older epoch"
LEDGER = "A1: The ledger's former leader"
TOPIC = "A1: A topic is gone only where"
LAGS = "A2: An answer without records"
OPEN = "A3: A decided slot that is open"
WHILE_ENDED = "A3: Records that are lost while"
ANY_BATCH = "A5: A pipeline that nobody knows"
NOTED = "A5: A pipeline whose ids a coordinator knows"
KNOWN = "A5: A pipeline that a coordinator"
GIVEN_UP = "A6: An aborted batch whose checkpoint"

BREACHES = (
    Breach(
        OLDER,
        "the word of any leader counts",
        ABSENCE,
        "    return [where for where, known in places.items() if cluster.leader_epoch(where) < known.leader_epoch]",
        "    return []",
    ),
    Breach(
        OLDER,
        "a log is read from whatever leader is known",
        FATES,
        "    absence.require_leaders(cluster, {where: known})\n",
        "",
    ),
    Breach(
        OLDER,
        "what any leader has open counts",
        ABSENCE,
        "        if cluster.leader_epoch(where) < known.leader_epoch\n        or known.topic_id",
        "        if known.topic_id",
    ),
    Breach(
        OLDER,
        "a seal does not name the leader's epoch",
        "connector/pyspark_kafka_eos/client/writing/delivery.py",
        "                    leader_epoch=self.cluster.leader_epoch(where),",
        "                    leader_epoch=-1,",
    ),
    Breach(
        "A1: A leader that answers without an epoch",
        "what a leader does not list is lost",
        PROOF,
        "            places, why = lacking(cluster, seal, lost[seal.slot])",
        "            places, why = lost[seal.slot]",
    ),
    Breach(
        LEDGER,
        "a run reads the ledger from the leader that the first broker names",
        "connector/pyspark_kafka_eos/commit/ledger/topic.py",
        "            self.find_leaders()\n",
        "",
    ),
    Breach(
        LEDGER,
        "an abort by hand reads the ledger from the leader that the first broker names",
        ENDING,
        "    ledger.find_leaders()\n    mender.finish(ledger.look())",
        "    mender.finish(ledger.look())",
    ),
    Breach(
        TOPIC,
        "one broker's word is enough",
        ABSENCE,
        "            elif 2 * says.count(False) > brokers:",
        "            elif says.count(False):",
    ),
    Breach(
        TOPIC,
        "the topic of the name is the topic, whatever its id",
        ABSENCE,
        '        same = count > 0 and wanted in ("", cluster.topic_id(topic))',
        "        same = count > 0",
    ),
    Breach(
        TOPIC,
        "the first answer that lacks the topic is enough",
        ABSENCE,
        "    gone = _gone(cluster, missing, patience_ms)",
        "    gone = set(missing)",
    ),
    Breach(
        LAGS,
        "an answer without records is the log's end",
        FATES,
        "            if absence.ends(cluster, {where: known})[where] <= offset:",
        "            if True:",
    ),
    Breach(
        OPEN,
        "a slot that its coordinator has open is ended without a look at its leaders",
        PROOF,
        "    return proofs | _lost_while_open(cluster, opened, settle_ms, look) if opened else proofs",
        "    return proofs",
    ),
    Breach(
        OPEN,
        "a slot is whole where its producer is known",
        "connector/pyspark_kafka_eos/commit/open_parts.py",
        "    return state.last_sequence == part.last_sequence",
        "    return True",
    ),
    Breach(
        OPEN,
        "what is open without its records is written again beside it",
        "connector/pyspark_kafka_eos/commit/shell.py",
        "        self._abort_unseen([seal for seal in lost if seal.slot in self._unseen])\n",
        "",
    ),
    Breach(
        WHILE_ENDED,
        "the coordinator's answer is enough, whatever leader came since the look",
        "connector/pyspark_kafka_eos/commit/shell.py",
        "        unsure = {seal.slot for seal in seals} if not sure else self._led_anew(seals)",
        "        unsure = {seal.slot for seal in seals} if not sure else set()",
    ),
    Breach(
        WHILE_ENDED,
        "the log of a new leader is not read where the coordinator says committed",
        PROOF,
        "            or (verdicts[seal.slot] is Outcome.COMMITTED and seal.slot in by_log)",
        "            or False",
    ),
    Breach(
        WHILE_ENDED,
        "a commit marker at the place of the first record is its commit",
        FATES,
        "                        and info.base_offset == each.first_offset",
        "                        and False",
    ),
    Breach(
        "A4: Where the run has source offsets",
        "a decision without source offsets fits any batch of its number",
        "connector/pyspark_kafka_eos/commit/start/admission.py",
        "    if decided and source_offsets is not None and tuple(source_offsets) != newest.source_offsets:",
        "    if decided and source_offsets and newest.source_offsets not in ((), tuple(source_offsets)):",
    ),
    Breach(
        ANY_BATCH,
        "a new pipeline may begin at batch 0 only",
        FIRST_START,
        "    if unnoted and known:\n        raise ",
        '    if unnoted and behind:\n        raise _known(options, batch_id, "nobody knows it")\n    if unnoted and known:\n        raise ',
    ),
    Breach(
        ANY_BATCH,
        "its beginning is not noted, so a second try meets what the first one left",
        FIRST_START,
        "        ledger.note(replace(now, adopted=options.adopt_checkpoint))\n",
        "        pass\n",
    ),
    Breach(
        ANY_BATCH,
        "batches that the pipeline does not have are no reason for a word",
        FIRST_START,
        "    if batch_id <= first or (newest is not None and not mine):",
        "    if True:",
    ),
    Breach(
        KNOWN,
        "what the coordinators know does not count",
        FIRST_START,
        "    if unnoted and known:",
        "    if False:",
    ),
    Breach(
        NOTED,
        "what the coordinators know does not count at batch 0",
        FIRST_START,
        "    if unnoted and known:",
        "    if unnoted and known and behind:",
    ),
    Breach(
        NOTED,
        "the note of another batch counts",
        FIRST_START,
        "    return (began is not None and began == now) or (unused and not behind)",
        "    return (began is not None and began == now) or unused",
    ),
    Breach(
        NOTED,
        "a beginning at batch 0 is not noted",
        FIRST_START,
        "    if began != now:\n",
        "    if began != now and behind:\n",
    ),
    Breach(
        KNOWN,
        "the ledger's other partitions are not looked at",
        FIRST_START,
        "        if unnoted and began is None and found.places and behind:",
        "        if False:",
    ),
    Breach(
        GIVEN_UP,
        "there is no way on",
        ADOPTING,
        "    if options.adopt_without_batch == decision.batch_id:",
        "    if False:",
    ),
    Breach(
        GIVEN_UP,
        "any number gives up whatever batch it is",
        ADOPTING,
        "    if options.adopt_without_batch == decision.batch_id:",
        "    if options.adopt_without_batch is not None:",
    ),
    Breach(
        GIVEN_UP,
        "adopt.checkpoint alone gives it up",
        ADOPTING,
        "    if options.adopt_without_batch == decision.batch_id:",
        "    if options.adopt_checkpoint:",
    ),
    Breach(
        GIVEN_UP,
        "of a torn slot all records count as missing",
        ADOPTING,
        "    return sum(records for where, (records, _) in seal.shares.items() if where in only)",
        "    return seal.records",
    ),
)
