"""Breaches of: the flow of a transaction, the client."""

from __future__ import annotations

from tests.rules.table import Breach

PRODUCER = "connector/pyspark_kafka_eos/client/writing/session.py"
COMMIT = "connector/pyspark_kafka_eos/commit/machine/per_task.py"
TRANSACTION = "connector/embedded_kafka/transactions/machine/moves.py"
ENDS = "connector/embedded_kafka/transactions/machine/ends.py"
CLIENT_PRODUCER = "connector/pyspark_kafka_eos/client/writing/producer.py"
TRANSACTIONS = "connector/pyspark_kafka_eos/client/requests/transactions.py"
CLUSTER = "connector/pyspark_kafka_eos/client/cluster.py"
ASKING = "connector/pyspark_kafka_eos/client/asking.py"
DEFINITE = "connector/pyspark_kafka_eos/client/definite.py"
FETCHER = "connector/pyspark_kafka_eos/client/reading/fetcher.py"
VISIBILITY = "connector/pyspark_kafka_eos/records/visibility.py"
PARTITION_LOG = "connector/embedded_kafka/log/partition_log.py"
CODES = "connector/kafka_core/protocol/error_codes.py"

BUMP = "            return _prepare(value, epoch=entry.epoch + 1, last_epoch=last_epoch, **fresh)"
WITHOUT_THE_STABLE_OFFSET = (
    "        return self.end_offset if unstable is None else max(unstable, self._start_offset)",
    "        return self.end_offset",
)
ABORT_ROW = "    (State.ABORTABLE_ERROR, AbortRequested): Move(on_abort, State.ABORTING, State.READY),"

BREACHES = (
    Breach(
        "FindCoordinator to any broker",
        "the coordinator that moved is asked again",
        CODES,
        "    Code.NOT_COORDINATOR: Action.REDISCOVER,",
        "    Code.NOT_COORDINATOR: Action.RETRY,",
    ),
    Breach(
        "FindCoordinator to any broker",
        "where a coordinator was is remembered although it has moved",
        ASKING,
        "        if isinstance(found, Again) and found.moved:\n            cluster.forget_coordinator(kind, key)",
        "        if isinstance(found, Again) and found.moved:\n            pass",
    ),
    Breach(
        "FindCoordinator to any broker",
        "where a coordinator was is remembered although the end has to find it",
        "connector/pyspark_kafka_eos/client/requests/ends.py",
        "    if action is Action.REDISCOVER:\n        cluster.forget_coordinator(",
        "    if action is Action.REDISCOVER:\n        id(",
    ),
    Breach(
        "FindCoordinator to any broker",
        "all ids share one connection to their coordinator",
        CLUSTER,
        "            nodes[key] = self.network.dedicated(node, index % lanes, host, port)",
        "            nodes[key] = self.network.dedicated(node, 0, host, port)",
    ),
    Breach(
        "InitProducerId gives producer id and epoch",
        "the epochs begin at 1",
        TRANSACTION,
        BUMP,
        "            return _prepare(value, epoch=max(entry.epoch, 0) + 1, last_epoch=last_epoch, **fresh)",
    ),
    Breach(
        "InitProducerId gives producer id and epoch",
        "an initialisation does not bump the epoch",
        TRANSACTION,
        BUMP,
        "            return _prepare(value, epoch=max(entry.epoch, 0), last_epoch=last_epoch, **fresh)",
    ),
    Breach(
        "InitProducerId gives producer id and epoch",
        "an initialisation leaves open what was open under the id",
        TRANSACTION,
        "    return _fence(value, event.now_ms, event.server_version, event.fresh_id)\n\n\ndef on_init_while_ending",
        "    return on_init(value, event)\n\n\ndef on_init_while_ending",
    ),
    Breach(
        "The transaction timeout goes with InitProducerId",
        "a timeout above the cap counts as an error of the protocol",
        CODES,
        "        Code.INVALID_TRANSACTION_TIMEOUT: Action.REFUSE,",
        "        Code.INVALID_TRANSACTION_TIMEOUT: Action.BUG,",
    ),
    Breach(
        "Begin is local",
        "a transaction that has just begun counts as open at the coordinator",
        PRODUCER,
        "    return replace(value, state=State.IN_TRANSACTION), ()",
        '    return replace(value, state=State.IN_TRANSACTION, groups=frozenset({""})), ()',
    ),
    Breach(
        "Begin is local",
        "begin adds a group to the transaction",
        CLIENT_PRODUCER,
        "        self._step(pm.Begin())\n",
        "        self._step(pm.Begin())\n"
        "        if self.transactional_id:\n"
        '            self.transactions.add_offsets(self.transactional_id, self.identity, "begun")\n',
    ),
    Breach(
        "A partition is added before the first record",
        "with version 1, too, the records themselves are to add it",
        PRODUCER,
        "    if value.transaction_version >= 2:\n        return replace(value, added=",
        "    if value.transaction_version >= 1:\n        return replace(value, added=",
    ),
    Breach(
        "A partition is added before the first record",
        "with version 2, too, the coordinator is asked",
        PRODUCER,
        "    if value.transaction_version >= 2:\n        return replace(value, added=",
        "    if value.transaction_version >= 3:\n        return replace(value, added=",
    ),
    Breach(
        "A partition is added before the first record",
        "a partition that the coordinator does not know counts as added",
        CODES,
        "    m.AddPartitionsToTxnRequest.API_KEY: {\n        Code.UNKNOWN_TOPIC_OR_PARTITION: Action.RETRY,",
        "    m.AddPartitionsToTxnRequest.API_KEY: {\n        Code.UNKNOWN_TOPIC_OR_PARTITION: Action.DONE,",
    ),
    Breach(
        "A partition is added before the first record",
        "the finalised feature is not looked at",
        CLUSTER,
        '        return 2 if self.features.get("transaction.version", 0) >= 2 else 1',
        "        return 1",
    ),
    Breach(
        "AddOffsetsToTxn, then TxnOffsetCommit",
        "offsets alone need no end",
        PRODUCER,
        "    return replace(value, groups=value.groups | {event.group}), (SendOffsets(event.group),)",
        "    return value, (SendOffsets(event.group),)",
    ),
    Breach(
        "AddOffsetsToTxn, then TxnOffsetCommit",
        "AddOffsetsToTxn is left out",
        TRANSACTIONS,
        "        if transaction_version < 2:\n            self.add_offsets(",
        "        if False:\n            self.add_offsets(",
    ),
    Breach(
        "Consume, transform and produce are one transaction",
        "the source offsets are left out",
        CLIENT_PRODUCER,
        "        if not offsets:\n            return\n        assert self.transactional_id is not None",
        "        if offsets:\n            return\n        assert self.transactional_id is not None",
    ),
    Breach(
        "Consume, transform and produce are one transaction",
        "only the first slot is ended after the decision",
        COMMIT,
        "    open_slots = {seal.slot: Progress.ENDING for seal in participants}\n"
        "    return replace(value, state=State.FINISHING, open_slots=open_slots), (ev.EndSlots(participants),)",
        "    participants = participants[:1]\n"
        "    open_slots = {seal.slot: Progress.ENDING for seal in participants}\n"
        "    return replace(value, state=State.FINISHING, open_slots=open_slots), (ev.EndSlots(participants),)",
    ),
    Breach(
        "Consume, transform and produce are one transaction",
        "the decision has no source offsets",
        "connector/pyspark_kafka_eos/commit/decision.py",
        "    producer.send_offsets(group, offsets)",
        "    producer.send_offsets(group, {})",
    ),
    Breach(
        "A commit follows the last acknowledgement",
        "a commit does not wait",
        PRODUCER,
        "    if unacknowledged:",
        "    if False:",
    ),
    Breach(
        "An abort drops what is unsent",
        "an abort waits for nothing",
        CLIENT_PRODUCER,
        "        quiet = self._delivery is None or self._delivery.stop(_ABORT_DEADLINE_MS)",
        "        quiet = True",
    ),
    Breach(
        "A transaction into which nothing was put",
        "the commit of nothing is sent",
        PRODUCER,
        "    _refuse_unacknowledged(event.unacknowledged)\n    if not value.opened:",
        "    _refuse_unacknowledged(event.unacknowledged)\n    if False:",
    ),
    Breach(
        "A transaction into which nothing was put",
        "the abort of nothing is sent",
        PRODUCER,
        '    """Abort. Where nothing was put in, there is nothing to end."""\n    if not value.opened:',
        '    """Abort. Where nothing was put in, there is nothing to end."""\n    if False:',
    ),
    Breach(
        "While the coordinator completes a transaction",
        "CONCURRENT_TRANSACTIONS aborts",
        CODES,
        "    Code.CONCURRENT_TRANSACTIONS: Action.RETRY,",
        "    Code.CONCURRENT_TRANSACTIONS: Action.ABORT,",
    ),
    Breach(
        "While the coordinator completes a transaction",
        "only what a coordinator that moved answers is asked again",
        DEFINITE,
        "    if action in (Action.RETRY, Action.REDISCOVER):\n",
        "    if action is Action.REDISCOVER:\n",
    ),
    Breach(
        "While the coordinator completes a transaction",
        "an end that has to wait counts as refused",
        "connector/pyspark_kafka_eos/client/requests/ends.py",
        "    if action is Action.RETRY:\n        return None\n",
        "",
    ),
    Breach(
        "Once prepared, a transaction's end is fixed",
        "an abort after the commit succeeds (version 1)",
        ENDS,
        "    (State.COMPLETE_COMMIT, True): Ends.REPEATED,",
        "    (State.COMPLETE_COMMIT, True): Ends.REPEATED,\n    (State.COMPLETE_COMMIT, False): Ends.REPEATED,",
    ),
    Breach(
        "Once prepared, a transaction's end is fixed",
        "a commit after the abort succeeds (version 2)",
        ENDS,
        "    (State.COMPLETE_ABORT, True, True): Ends.INVALID,",
        "    (State.COMPLETE_ABORT, True, True): Ends.REPEATED,",
    ),
    Breach(
        "Once prepared, a transaction's end is fixed",
        "a decision without an answer counts as not taken",
        COMMIT,
        "    return replace(value, state=State.DECISION_UNKNOWN, reason=event.reason), (ev.AskDecision(),)",
        "    return replace(value, state=State.ABORTING, reason=event.reason), (\n"
        "        ev.AbortSlots(_participants(value), event.reason),\n    )",
    ),
    Breach(
        "Once prepared, a transaction's end is fixed",
        "the driver takes a lost answer to the decision for a refusal",
        "connector/pyspark_kafka_eos/commit/decision.py",
        "            return ev.DecisionUnanswered(str(error))",
        "            return ev.DecisionRefused(str(error))",
    ),
    Breach(
        "After a crash the prepared commit is finished",
        "a slot that is found open counts as finished",
        COMMIT,
        "    if event.verdict in (ev.Outcome.COMMITTED, ev.Outcome.GONE):",
        "    if event.verdict in (ev.Outcome.COMMITTED, ev.Outcome.GONE, ev.Outcome.OPEN):",
    ),
    Breach(
        "After a crash the prepared commit is finished",
        "the next run does not look at what was decided",
        "connector/pyspark_kafka_eos/commit/per_task.py",
        "        if run.newest is not None:",
        "        if False:",
    ),
    Breach(
        "After a crash the prepared commit is finished",
        "a run that begins a later batch does not look at what was decided",
        "connector/pyspark_kafka_eos/commit/per_task.py",
        "        if run.newest is not None:",
        "        if run.newest is not None and (resumed or run.newest.query_id != run.query_id):",
    ),
    Breach(
        "An error during the transaction",
        "a transaction with an error may be committed",
        PRODUCER,
        ABORT_ROW,
        ABORT_ROW
        + "\n    (State.ABORTABLE_ERROR, CommitRequested): Move(on_commit, State.COMMITTING, State.READY),",
    ),
    Breach(
        "An error during the transaction",
        "the transactions of a failed job are left open",
        "connector/pyspark_kafka_eos/commit/shell.py",
        "            self._abort(effect.seals)\n            return [ev.AbortFinished()]",
        "            return [ev.AbortFinished()]",
    ),
    Breach(
        "Authorisation:",
        "a missing right on a topic is tried again",
        CODES,
        "    Code.TOPIC_AUTHORIZATION_FAILED: Action.AUTHORIZE,",
        "    Code.TOPIC_AUTHORIZATION_FAILED: Action.RETRY,",
    ),
    Breach(
        "Authorisation:",
        "the right on the group is named instead of that on the transactional id",
        "connector/pyspark_kafka_eos/client/missing_rights.py",
        '    Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "WRITE and DESCRIBE on the transactional id prefix",',
        '    Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "READ on the group",',
    ),
    Breach(
        "Authorisation:",
        "the right on the cluster is not named",
        "connector/pyspark_kafka_eos/client/missing_rights.py",
        '"IDEMPOTENT_WRITE on the cluster, or WRITE on any topic,"',
        '"WRITE on the topic"',
    ),
    Breach(
        "A topic that does not exist",
        "a topic that no broker knows counts as known",
        CLUSTER,
        "                if runtime.monotonic() >= patient_until:\n                    raise\n",
        "                if runtime.monotonic() >= patient_until:\n                    return None\n",
    ),
    Breach(
        "read_committed returns",
        "aborted records are shown",
        VISIBILITY,
        "        elif not (committed and info.transactional and info.producer_id in aborting):",
        "        else:",
    ),
    Breach(
        "read_committed returns",
        "the reader always asks for uncommitted records",
        FETCHER,
        "isolation=self._level,",
        "isolation=0,",
    ),
    Breach(
        "read_committed returns",
        "an answer without records ends a range",
        FETCHER,
        '            each.last = "answers without records"\n',
        '            each.last = "answers without records"\n            each.advance(each.range.end, -1)\n',
    ),
    Breach(
        "read_committed returns",
        "the broker shows records behind the last stable offset",
        PARTITION_LOG,
        *WITHOUT_THE_STABLE_OFFSET,
    ),
    Breach(
        "read_committed returns",
        "the broker does not remember aborted transactions",
        PARTITION_LOG,
        "        if aborted is not None:\n            self._segments[-1].aborted.add(aborted)",
        "        if False:\n            self._segments[-1].aborted.add(aborted)",
    ),
    Breach(
        "Markers are control records",
        "the markers of commits are shown",
        VISIBILITY,
        "        if info.control:",
        "        if info.control and info.producer_id in aborting:",
    ),
    Breach(
        "Markers are control records",
        "every marker says abort",
        "connector/pyspark_kafka_eos/records/batch.py",
        "    return ControlMarker(MarkerKind(kind), int.from_bytes",
        "    return ControlMarker(MarkerKind.ABORT, int.from_bytes",
    ),
)
