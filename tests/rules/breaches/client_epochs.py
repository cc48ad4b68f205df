"""Breaches of: epochs and lost producer state (KIP-360), the client."""

from __future__ import annotations

from tests.rules.table import Breach

PRODUCER = "connector/pyspark_kafka_eos/client/writing/session.py"
TRANSACTION = "connector/embedded_kafka/transactions/machine/moves.py"
CLIENT_PRODUCER = "connector/pyspark_kafka_eos/client/writing/producer.py"
TRANSACTIONS = "connector/pyspark_kafka_eos/client/requests/transactions.py"
CODES = "connector/kafka_core/protocol/error_codes.py"

FENCED = "    return replace(value, state=State.FENCED, reason=event.reason), ()"
ABORT_ROW = "    (State.ABORTABLE_ERROR, AbortRequested): Move(on_abort, State.ABORTING, State.READY),"

BREACHES = (
    Breach(
        "UNKNOWN_PRODUCER_ID",
        "UNKNOWN_PRODUCER_ID ends the session",
        CODES,
        "    Code.UNKNOWN_PRODUCER_ID: Action.ABORT,",
        "    Code.UNKNOWN_PRODUCER_ID: Action.BUG,",
    ),
    Breach(
        "UNKNOWN_PRODUCER_ID",
        "a transaction with an error may be committed",
        PRODUCER,
        ABORT_ROW,
        ABORT_ROW
        + "\n    (State.ABORTABLE_ERROR, CommitRequested): Move(on_commit, State.COMMITTING, State.READY),",
    ),
    Breach(
        "UNKNOWN_PRODUCER_ID",
        "the next identity is asked for without the current one",
        PRODUCER,
        "(SendInitProducerId(value.identity),)",
        "(SendInitProducerId(None),)",
    ),
    Breach(
        "UNKNOWN_PRODUCER_ID",
        "the next transaction goes on with the sequences of the one before",
        CLIENT_PRODUCER,
        "        self._delivery = Delivery(\n            self.cluster,",
        "        self._delivery = self._delivery or Delivery(\n            self.cluster,",
    ),
    Breach(
        "If another producer bumped the epoch",
        "a fenced session may ask for an identity again",
        PRODUCER,
        FENCED,
        "    return replace(value, state=State.UNINITIALIZED, reason=event.reason), ()",
    ),
    Breach(
        "If another producer bumped the epoch",
        "PRODUCER_FENCED aborts only the transaction",
        CODES,
        "    Code.PRODUCER_FENCED: Action.FENCED,",
        "    Code.PRODUCER_FENCED: Action.ABORT,",
    ),
    Breach(
        "INVALID_PRODUCER_ID_MAPPING",
        "the client asks for the next identity without saying which one it has",
        CLIENT_PRODUCER,
        "                effect.current,",
        "                None,",
    ),
    Breach(
        "INVALID_PRODUCER_ID_MAPPING",
        "the machine asks for the next identity without the current one",
        PRODUCER,
        "(SendInitProducerId(value.identity),)",
        "(SendInitProducerId(None),)",
    ),
    Breach(
        "INVALID_PRODUCER_ID_MAPPING",
        "a lost mapping counts as fenced",
        CODES,
        "    Code.INVALID_PRODUCER_ID_MAPPING: Action.ABORT,",
        "    Code.INVALID_PRODUCER_ID_MAPPING: Action.FENCED,",
    ),
    Breach(
        "INVALID_PRODUCER_ID_MAPPING",
        "the coordinator fences who has an id that it forgot",
        TRANSACTION,
        "    if expected is None or entry.epoch == NO_EPOCH or expected.producer_id == entry.producer_id:",
        "    if expected is None or expected.producer_id == entry.producer_id:",
    ),
    Breach(
        "INVALID_PRODUCER_ID_MAPPING",
        "another producer id is not fenced",
        TRANSACTION,
        "        return None\n    return Refusal.PRODUCER_FENCED\n\n\ndef on_init(",
        "        return None\n    return None\n\n\ndef on_init(",
    ),
    Breach(
        "A lost answer to the bump",
        "the request for a bump does not say which identity is the current one",
        TRANSACTIONS,
        '            "producer_id": current.producer_id if current else NO_PRODUCER_ID,\n'
        '            "producer_epoch": current.epoch if current else NO_EPOCH,',
        '            "producer_id": NO_PRODUCER_ID,\n            "producer_epoch": NO_EPOCH,',
    ),
    Breach(
        "Older brokers without the new InitProducerId",
        "a broker that cannot describe transactions is taken",
        "connector/pyspark_kafka_eos/client/cluster.py",
        "        if OLDEST_BROKER_API not in self._versions:",
        "        if False:",
    ),
    Breach(
        "A client fenced by a newer epoch stops",
        "a fenced session goes on after an abort",
        PRODUCER,
        FENCED,
        "    return replace(value, state=State.ABORTABLE_ERROR, reason=event.reason), ()",
    ),
    Breach(
        "A client fenced by a newer epoch stops",
        "the leader's refusal of an older epoch aborts only the transaction",
        CODES,
        "    Code.INVALID_PRODUCER_EPOCH: Action.FENCED,",
        "    Code.INVALID_PRODUCER_EPOCH: Action.ABORT,",
    ),
    Breach(
        "A client fenced by a newer epoch stops",
        "an abort takes the id back first",
        CLIENT_PRODUCER,
        "                answer = self.transactions.end(self._end_request(commit=effect.commit), _ABORT_DEADLINE_MS)",
        "                self.transactions.init_producer_id(self.transactional_id, self.transaction_timeout_ms)\n"
        "                answer = self.transactions.end(self._end_request(commit=effect.commit), _ABORT_DEADLINE_MS)",
    ),
    Breach(
        "Transactional ids are stable",
        "every process has transactional ids of its own",
        "connector/pyspark_kafka_eos/model/ids.py",
        '    return f"{pipeline}.{slot}"',
        "    return f\"{pipeline}.{slot}.{__import__('uuid').uuid4().hex}\"",
    ),
    Breach(
        "Transactional ids are stable",
        "all slots share one transactional id",
        "connector/pyspark_kafka_eos/model/ids.py",
        '    return f"{pipeline}.{slot}"',
        '    return f"{pipeline}.0"',
    ),
    Breach(
        "Transactional ids are stable",
        "an initialisation does not bump the epoch",
        TRANSACTION,
        "            return _prepare(value, epoch=entry.epoch + 1, last_epoch=last_epoch, **fresh)",
        "            return _prepare(value, epoch=max(entry.epoch, 0), last_epoch=last_epoch, **fresh)",
    ),
    Breach(
        "Transactional ids are stable",
        "an initialisation leaves open what was open under the id",
        TRANSACTION,
        "    return _fence(value, event.now_ms, event.server_version, event.fresh_id)\n\n\ndef on_init_while_ending",
        "    return on_init(value, event)\n\n\ndef on_init_while_ending",
    ),
)
