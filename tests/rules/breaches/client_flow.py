"""Breaches of: the flow of a transaction, the client."""

from __future__ import annotations

from tests.support.planting import Planted

PRODUCER = "pyspark_kafka_eos.client.writing.session"
COMMIT = "pyspark_kafka_eos.commit.machine.per_task"
TRANSACTION = "embedded_kafka.transactions.machine.moves"
ENDS = "embedded_kafka.transactions.machine.ends"
CLIENT_PRODUCER = "pyspark_kafka_eos.client.writing.producer"
TRANSACTIONS = "pyspark_kafka_eos.client.requests.transactions"
CLUSTER = "pyspark_kafka_eos.client.cluster"
ASKING = "pyspark_kafka_eos.client.asking"
DEFINITE = "pyspark_kafka_eos.client.definite"
FETCHER = "pyspark_kafka_eos.client.reading.fetcher"
VISIBILITY = "pyspark_kafka_eos.records.visibility"
PARTITION_LOG = "embedded_kafka.log.partition_log"
CODES = "kafka_core.protocol.error_codes"

BREACHES = {
    "FindCoordinator to any broker": (
        Planted(
            "the coordinator that moved is asked again", f"{CODES}:_COORDINATOR",
            "Code.NOT_COORDINATOR: Action.REDISCOVER", "Code.NOT_COORDINATOR: Action.RETRY",
        ),
        Planted(
            "where a coordinator was is remembered although it has moved", f"{ASKING}:ask_coordinator",
            "if isinstance(found, Again) and found.moved:\n    cluster.forget_coordinator(kind, key)",
            "if isinstance(found, Again) and found.moved:\n    pass",
        ),
        Planted(
            "where a coordinator was is remembered although the end has to find it", "pyspark_kafka_eos.client.requests.ends:_read_end",
            "if action is Action.REDISCOVER:\n    cluster.forget_coordinator(CoordinatorKind.TRANSACTION, request.transactional_id)",
            "if action is Action.REDISCOVER:\n    id(CoordinatorKind.TRANSACTION, request.transactional_id)",
        ),
        Planted(
            "all ids share one connection to their coordinator", f"{CLUSTER}:Cluster.coordinators",
            "index % connections,", "0,",
        ),
    ),
    "InitProducerId gives producer id and epoch": (
        Planted("the epochs begin at 1", f"{TRANSACTION}:on_init", "entry.epoch + 1", "max(entry.epoch, 0) + 1"),
        Planted(
            "an initialisation does not bump the epoch", f"{TRANSACTION}:on_init",
            "entry.epoch + 1", "max(entry.epoch, 0)",
        ),
        Planted(
            "an initialisation leaves open what was open under the id", f"{TRANSACTION}:on_init_while_open",
            "return _fence(value, event.now_ms, event.server_version, event.fresh_id)", "return on_init(value, event)",
        ),
    ),
    "The transaction timeout goes with InitProducerId": (
        Planted(
            "a timeout above the cap counts as an error of the protocol", f"{CODES}:_OVERRIDES",
            "Code.INVALID_TRANSACTION_TIMEOUT: Action.REFUSE", "Code.INVALID_TRANSACTION_TIMEOUT: Action.BUG",
        ),
    ),
    "Begin is local": (
        Planted(
            "a transaction that has just begun counts as open at the coordinator", f"{PRODUCER}:on_begin",
            "IN_TRANSACTION", 'IN_TRANSACTION, groups=frozenset({""})',
        ),
        Planted(
            "begin adds a group to the transaction", f"{CLIENT_PRODUCER}:Producer.begin",
            "self._step(pm.Begin())",
            "self._step(pm.Begin())\nif self.transactional_id:\n"
            '    self.transactions.add_offsets(self.transactional_id, self.identity, "begun")',
        ),
    ),
    "A partition is added before the first record": (
        Planted(
            "with version 1, too, the records themselves are to add it", f"{PRODUCER}:on_need",
            "if value.transaction_version >= 2:", "if value.transaction_version >= 1:",
        ),
        Planted(
            "with version 2, too, the coordinator is asked", f"{PRODUCER}:on_need",
            "if value.transaction_version >= 2:", "if value.transaction_version >= 3:",
        ),
        Planted(
            "a partition that the coordinator does not know counts as added", f"{CODES}:_OVERRIDES",
            "m.AddPartitionsToTxnRequest.API_KEY: {\n    Code.UNKNOWN_TOPIC_OR_PARTITION: Action.RETRY",
            "m.AddPartitionsToTxnRequest.API_KEY: {\n    Code.UNKNOWN_TOPIC_OR_PARTITION: Action.DONE",
        ),
        Planted(
            "the finalised feature is not looked at", f"{CLUSTER}:Cluster.transaction_version",
            'return 2 if self.features.get("transaction.version", 0) >= 2 else 1', "return 1",
        ),
    ),
    "AddOffsetsToTxn, then TxnOffsetCommit": (
        Planted(
            "offsets alone need no end", f"{PRODUCER}:on_need_offsets",
            "replace(value, groups=value.groups | {event.group})", "value",
        ),
        Planted(
            "AddOffsetsToTxn is left out", f"{TRANSACTIONS}:Transactions.commit_offsets",
            "if transaction_version < 2:", "if False:",
        ),
    ),
    "Consume, transform and produce are one transaction": (
        Planted(
            "the source offsets are left out", f"{CLIENT_PRODUCER}:Producer.send_offsets",
            "if not offsets:", "if offsets:",
        ),
        Planted(
            "only the first slot is ended after the decision", f"{COMMIT}:on_decision_durable",
            "open_slots = {seal.slot: ParticipantState.ENDING for seal in participants}",
            "participants = participants[:1]\nopen_slots = {seal.slot: ParticipantState.ENDING for seal in participants}",
        ),
        Planted(
            "the decision has no source offsets", "pyspark_kafka_eos.commit.decision:write_decision",
            "producer.send_offsets(group, offsets)", "producer.send_offsets(group, {})",
        ),
    ),
    "A commit follows the last acknowledgement": (
        Planted("a commit does not wait", f"{PRODUCER}:_refuse_unacknowledged", "if unacknowledged:", "if False:"),
    ),
    "An abort drops what is unsent": (
        Planted(
            "an abort waits for nothing", f"{CLIENT_PRODUCER}:Producer.abort",
            "quiet = self._delivery is None or self._delivery.stop(_ABORT_DEADLINE_MS)", "quiet = True",
        ),
    ),
    "A transaction into which nothing was put": (
        Planted("the commit of nothing is sent", f"{PRODUCER}:on_commit", "if not value.opened:", "if False:"),
        Planted("the abort of nothing is sent", f"{PRODUCER}:on_abort", "if not value.opened:", "if False:"),
    ),
    "While the coordinator completes a transaction": (
        Planted(
            "CONCURRENT_TRANSACTIONS aborts", f"{CODES}:_COORDINATOR",
            "Code.CONCURRENT_TRANSACTIONS: Action.RETRY", "Code.CONCURRENT_TRANSACTIONS: Action.ABORT",
        ),
        Planted(
            "only what a coordinator that moved answers is asked again", f"{DEFINITE}:again_or_refuse",
            "if action in (Action.RETRY, Action.REDISCOVER):", "if action is Action.REDISCOVER:",
        ),
        Planted(
            "an end that has to wait counts as refused", "pyspark_kafka_eos.client.requests.ends:_read_end",
            "if action is Action.RETRY:\n    return None", "",
        ),
    ),
    "Once prepared, a transaction's end is fixed": (
        Planted(
            "an abort after the commit succeeds (version 1)", f"{ENDS}:ENDS_V1",
            "(TransactionState.COMPLETE_COMMIT, True): EndTxnResult.REPEATED",
            "(TransactionState.COMPLETE_COMMIT, True): EndTxnResult.REPEATED,\n(TransactionState.COMPLETE_COMMIT, False): EndTxnResult.REPEATED",
        ),
        Planted(
            "a commit after the abort succeeds (version 2)", f"{ENDS}:ENDS_V2",
            "(TransactionState.COMPLETE_ABORT, True, True): EndTxnResult.INVALID", "(TransactionState.COMPLETE_ABORT, True, True): EndTxnResult.REPEATED",
        ),
        Planted(
            "a decision without an answer counts as not taken", f"{COMMIT}:on_decision_unanswered",
            "return replace(value, state=CommitState.DECISION_UNKNOWN, reason=event.reason), (ev.AskDecision(),)",
            "return replace(value, state=CommitState.ABORTING, reason=event.reason), (\n    ev.AbortSlots(_participants(value), event.reason),\n)",
        ),
        Planted(
            "the driver takes a lost answer to the decision for a refusal", "pyspark_kafka_eos.commit.decision:Deciding.record",
            "return ev.DecisionUnanswered(str(error))", "return ev.DecisionRefused(str(error))",
        ),
    ),
    "After a crash the prepared commit is finished": (
        Planted(
            "a slot that is found open counts as finished", f"{COMMIT}:on_slot_proven",
            "ev.Outcome.GONE", "ev.Outcome.GONE, ev.Outcome.OPEN",
        ),
        Planted(
            "the next run does not look at what was decided", "pyspark_kafka_eos.commit.per_task:PerTask._begin",
            "if run.newest is not None:", "if False:",
        ),
        Planted(
            "a run that begins a later batch does not look at what was decided", "pyspark_kafka_eos.commit.per_task:PerTask._begin",
            "newest is not None", "newest is not None and (resumed or run.newest.query_id != run.query_id)",
        ),
    ),
    "An error during the transaction": (
        Planted(
            "a transaction with an error may be committed", f"{PRODUCER}:MOVES",
            "(SessionState.ABORTABLE_ERROR, AbortRequested): Move(on_abort, SessionState.ABORTING, SessionState.READY)",
            "(SessionState.ABORTABLE_ERROR, AbortRequested): Move(on_abort, SessionState.ABORTING, SessionState.READY),\n"
            "(SessionState.ABORTABLE_ERROR, CommitRequested): Move(on_commit, SessionState.COMMITTING, SessionState.READY)",
        ),
        Planted(
            "the transactions of a failed job are left open", "pyspark_kafka_eos.commit.shell:CommitShell._carry_out",
            "self._abort(effect.seals)", "",
        ),
    ),
    "Authorisation:": (
        Planted(
            "a missing right on a topic is tried again", f"{CODES}:_COORDINATOR",
            "Code.TOPIC_AUTHORIZATION_FAILED: Action.AUTHORIZE", "Code.TOPIC_AUTHORIZATION_FAILED: Action.RETRY",
        ),
        Planted(
            "the right on the group is named instead of that on the transactional id", "pyspark_kafka_eos.client.missing_rights:_TO_GRANT",
            '"WRITE and DESCRIBE on the transactional id prefix"', '"READ on the group"',
        ),
        Planted(
            "the right on the cluster is not named", "pyspark_kafka_eos.client.missing_rights:_TO_GRANT",
            '"IDEMPOTENT_WRITE on the cluster, or WRITE on any topic,"', '"WRITE on the topic"',
        ),
    ),
    "A topic that does not exist": (
        Planted(
            "a topic that no broker knows counts as known", f"{CLUSTER}:Cluster.refresh_topics",
            "if runtime.monotonic() >= patient_until:\n    raise", "if runtime.monotonic() >= patient_until:\n    return None",
        ),
    ),
    "read_committed returns": (
        Planted(
            "aborted records are shown", f"{VISIBILITY}:see",
            "elif not (committed and info.transactional and info.producer_id in aborting):", "else:",
        ),
        Planted(
            "the reader always asks for uncommitted records", f"{FETCHER}:Fetcher._request",
            "isolation=self._level", "isolation=0",
        ),
        Planted(
            "an answer without records ends a range", f"{FETCHER}:Fetcher._see",
            'each.last = "answers without records"', 'each.last = "answers without records"\neach.advance(each.range.end, -1)',
        ),
        Planted(
            "the broker shows records behind the last stable offset", f"{PARTITION_LOG}:PartitionLog.last_stable_offset",
            "if unstable is None else max(unstable, self._start_offset)", "",
        ),
        Planted(
            "the broker does not remember aborted transactions", f"{PARTITION_LOG}:PartitionLog.append_marker",
            "if aborted is not None:", "if False:",
        ),
    ),
    "Markers are control records": (
        Planted(
            "the markers of commits are shown", f"{VISIBILITY}:see",
            "if info.control:", "if info.control and info.producer_id in aborting:",
        ),
        Planted(
            "every marker says abort", "pyspark_kafka_eos.records.batch:control_marker",
            "MarkerKind(kind)", "MarkerKind.ABORT",
        ),
    ),
}  # fmt: skip
