"""Breaches of: epochs and lost producer state (KIP-360), the client."""

from __future__ import annotations

from tests.support.planting import Planted

PRODUCER = "pyspark_kafka_eos.client.writing.session"
TRANSACTION = "embedded_kafka.transactions.machine.moves"
CLIENT_PRODUCER = "pyspark_kafka_eos.client.writing.producer"
TRANSACTIONS = "pyspark_kafka_eos.client.requests.transactions"
CODES = "kafka_core.protocol.error_codes"

BREACHES = {
    "UNKNOWN_PRODUCER_ID": (
        Planted(
            "UNKNOWN_PRODUCER_ID ends the session", f"{CODES}:_COORDINATOR",
            "Code.UNKNOWN_PRODUCER_ID: Action.ABORT", "Code.UNKNOWN_PRODUCER_ID: Action.BUG",
        ),
        Planted(
            "a transaction with an error may be committed", f"{PRODUCER}:MOVES",
            "(SessionState.ABORTABLE_ERROR, AbortRequested): Move(on_abort, SessionState.ABORTING, SessionState.READY)",
            "(SessionState.ABORTABLE_ERROR, AbortRequested): Move(on_abort, SessionState.ABORTING, SessionState.READY),\n"
            "(SessionState.ABORTABLE_ERROR, CommitRequested): Move(on_commit, SessionState.COMMITTING, SessionState.READY)",
        ),
        Planted(
            "the next identity is asked for without the current one", f"{PRODUCER}:on_initialize",
            "value.identity", "None",
        ),
        Planted(
            "the next transaction goes on with the sequences of the one before", f"{CLIENT_PRODUCER}:Producer.begin",
            "self._delivery = Delivery(", "self._delivery = self._delivery or Delivery(",
        ),
    ),
    "If another producer bumped the epoch": (
        Planted(
            "a fenced session may ask for an identity again", f"{PRODUCER}:on_fenced",
            "FENCED, reason", "UNINITIALIZED, reason",
        ),
        Planted(
            "PRODUCER_FENCED aborts only the transaction", f"{CODES}:_COORDINATOR",
            "Code.PRODUCER_FENCED: Action.FENCED", "Code.PRODUCER_FENCED: Action.ABORT",
        ),
    ),
    "INVALID_PRODUCER_ID_MAPPING": (
        Planted(
            "the client asks for the next identity without saying which one it has", f"{CLIENT_PRODUCER}:Producer.initialize",
            "effect.current", "None",
        ),
        Planted(
            "the machine asks for the next identity without the current one", f"{PRODUCER}:on_initialize",
            "value.identity", "None",
        ),
        Planted(
            "a lost mapping counts as fenced", f"{CODES}:_COORDINATOR",
            "Code.INVALID_PRODUCER_ID_MAPPING: Action.ABORT", "Code.INVALID_PRODUCER_ID_MAPPING: Action.FENCED",
        ),
        Planted(
            "the coordinator fences who has an id that it forgot", f"{TRANSACTION}:_barred",
            "entry.epoch == NO_EPOCH or", "",
        ),
        Planted(
            "another producer id is not fenced", f"{TRANSACTION}:_barred",
            "return TransactionRefusal.PRODUCER_FENCED", "return None",
        ),
    ),
    "A lost answer to the bump": (
        Planted(
            "the request for a bump does not say which identity is the current one", f"{TRANSACTIONS}:Transactions.init_producer_id",
            '"producer_id": current.producer_id if current else NO_PRODUCER_ID,\n"producer_epoch": current.epoch if current else NO_EPOCH',
            '"producer_id": NO_PRODUCER_ID,\n"producer_epoch": NO_EPOCH',
        ),
    ),
    "Older brokers without the new InitProducerId": (
        Planted(
            "a broker that cannot describe transactions is taken", "pyspark_kafka_eos.client.cluster:Cluster._refuse_old_broker",
            "if any(OLDEST_BROKER_API not in each.apis for each in self.network.known_versions()):", "if False:",
        ),
    ),
    "A client fenced by a newer epoch stops": (
        Planted(
            "a fenced session goes on after an abort", f"{PRODUCER}:on_fenced",
            "FENCED, reason", "ABORTABLE_ERROR, reason",
        ),
        Planted(
            "the leader's refusal of an older epoch aborts only the transaction", f"{CODES}:_COORDINATOR",
            "Code.INVALID_PRODUCER_EPOCH: Action.FENCED", "Code.INVALID_PRODUCER_EPOCH: Action.ABORT",
        ),
        Planted(
            "an abort takes the id back first", f"{CLIENT_PRODUCER}:Producer.abort",
            "answer = self.transactions.end(self._end_request(commit=effect.commit), _ABORT_DEADLINE_MS)",
            "self.transactions.init_producer_id(self.transactional_id, self.transaction_timeout_ms)\n"
            "answer = self.transactions.end(self._end_request(commit=effect.commit), _ABORT_DEADLINE_MS)",
        ),
    ),
    "Transactional ids are stable": (
        Planted(
            "every process has transactional ids of its own", "pyspark_kafka_eos.model.ids:slot_transactional_id",
            'return f"{prefix_of(pipeline)}{slot}"', "return f\"{pipeline}:{slot}:{__import__('uuid').uuid4().hex}\"",
        ),
        Planted(
            "all slots share one transactional id", "pyspark_kafka_eos.model.ids:slot_transactional_id",
            'return f"{prefix_of(pipeline)}{slot}"', 'return f"{prefix_of(pipeline)}0"',
        ),
        Planted(
            "an initialisation does not bump the epoch", f"{TRANSACTION}:on_init",
            "entry.epoch + 1", "max(entry.epoch, 0)",
        ),
        Planted(
            "an initialisation leaves open what was open under the id", f"{TRANSACTION}:on_init_while_open",
            "return _fence(value, event.now_ms, event.server_version, event.fresh_id)", "return on_init(value, event)",
        ),
    ),
}  # fmt: skip
