"""Breaches of: sequences and the idempotent producer, the client."""

from __future__ import annotations

from tests.rules.table import Breach

SEQUENCES = "connector/pyspark_kafka_eos/client/writing/sequences.py"
PRODUCER = "connector/pyspark_kafka_eos/client/writing/session.py"
PRODUCER_STATE = "connector/embedded_kafka/log/producer_state.py"
DELIVERY = "connector/pyspark_kafka_eos/client/writing/delivery.py"
TRANSACTIONS = "connector/pyspark_kafka_eos/client/requests/transactions.py"
CODES = "connector/kafka_core/protocol/error_codes.py"
KAFKA_OPTIONS = "connector/pyspark_kafka_eos/options/kafka.py"

REQUEUED = (
    "    return replace(value, state=State.RETRYING, in_flight=rest, waiting=_requeue(value, batch)), ()"
)
IN_ORDER = "    return tuple(sorted(both, key=lambda each: (each.base_sequence - floor) % SEQUENCE_LIMIT))"
FOLLOWING = "    following = (value.next_sequence + event.count) % SEQUENCE_LIMIT"
NOT_THE_OLDEST = "    if _oldest(value).base_sequence != event.base_sequence:"
ABORT_ROW = "    (State.ABORTABLE_ERROR, AbortRequested): Move(on_abort, State.ABORTING, State.READY),"
BEGIN_ROW = "    (State.READY, Begin): Move(on_begin, State.IN_TRANSACTION),"
REJECTED_ROW = "    (State.REJECTED, SendNext): Move(ignore, State.REJECTED),"

BREACHES = (
    Breach(
        "Sent at least once",
        "a batch whose answer was lost counts as written",
        SEQUENCES,
        REQUEUED,
        "    return on_acknowledged(value, Acknowledged(event.base_sequence, -1))",
    ),
    Breach(
        "Sent at least once",
        "too few replicas is final",
        CODES,
        "        Code.NOT_ENOUGH_REPLICAS: Action.RETRY,",
        "        Code.NOT_ENOUGH_REPLICAS: Action.REFUSE,",
    ),
    Breach(
        "Idempotence holds within one session only",
        "all producers without a transactional id share one",
        TRANSACTIONS,
        '            "transactional_id": transactional_id,\n            "transaction_timeout_ms"',
        '            "transactional_id": transactional_id or "shared",\n            "transaction_timeout_ms"',
    ),
    Breach(
        "Idempotence holds within one session only",
        "the leader does not recognise what is sent again",
        PRODUCER_STATE,
        "                return Duplicate(written)",
        "                continue",
    ),
    Breach(
        "Idempotence holds per partition",
        "one count of sequences for all partitions",
        DELIVERY,
        "        self._lanes: dict[TopicPartition, seq.Sequences] = {}",
        "        highest = lambda lanes: max((lane.next_sequence for lane in lanes.values()), default=0)\n"
        "        get = lambda lanes, where, _: dict.get(lanes, where) or seq.Sequences(next_sequence=highest(lanes))\n"
        '        self._lanes = type("OneCount", (dict,), {"get": get})()',
    ),
    Breach(
        "Idempotence holds per partition",
        "records show before their transaction has ended",
        "connector/embedded_kafka/log/partition_log.py",
        "        return self.end_offset if unstable is None else max(unstable, self._start_offset)",
        "        return self.end_offset",
    ),
    Breach(
        "Only the producer's own re-sending",
        "the second of two batches has the sequence of the first",
        SEQUENCES,
        FOLLOWING,
        "    following = value.next_sequence",
    ),
    Breach(
        "Producer id and sequence identify",
        "the first sequence is 1",
        SEQUENCES,
        "    next_sequence: int = 0",
        "    next_sequence: int = 1",
    ),
    Breach(
        "Producer id and sequence identify",
        "the sequence grows by one per batch",
        SEQUENCES,
        FOLLOWING,
        "    following = (value.next_sequence + 1) % SEQUENCE_LIMIT",
    ),
    Breach(
        "Producer id and sequence identify",
        "the last sequence before the first batch is 0",
        SEQUENCES,
        "if self.acknowledged or self.unacknowledged else -1",
        "if self.acknowledged or self.unacknowledged else 0",
    ),
    Breach(
        "Sequences are int32",
        "sequences go on above 2^31 - 1",
        SEQUENCES,
        FOLLOWING,
        "    following = value.next_sequence + event.count",
    ),
    Breach(
        "Sequences are int32",
        "the last sequence of a batch goes on above 2^31 - 1",
        SEQUENCES,
        "        return (self.base_sequence + self.count - 1) % SEQUENCE_LIMIT",
        "        return self.base_sequence + self.count - 1",
    ),
    Breach(
        "Sequences are int32",
        "the smaller number counts as the older batch, across the wrap too",
        SEQUENCES,
        "    return (value.next_sequence - SEQUENCE_LIMIT // 2) % SEQUENCE_LIMIT",
        "    return 0",
    ),
    Breach(
        "No batch is written before there is a valid producer id",
        "a transaction begins without an identity",
        PRODUCER,
        BEGIN_ROW,
        BEGIN_ROW + "\n    (State.UNINITIALIZED, Begin): Move(on_begin, State.IN_TRANSACTION),",
    ),
    Breach(
        "No batch is written before there is a valid producer id",
        "a session whose identity was refused may begin again",
        PRODUCER,
        "    return replace(value, state=State.FATAL, reason=event.reason), ()",
        "    return replace(value, state=State.UNINITIALIZED, reason=event.reason), ()",
    ),
    Breach(
        "No batch is written before there is a valid producer id",
        "a broker that has no ids yet is not asked again",
        TRANSACTIONS,
        "            return again_or_refuse(m.InitProducerIdRequest.API_KEY, answer.error_code, refused) or answer",
        "            if answer.error_code:\n                raise refused(Action.BUG, answer.error_code)\n            return answer",
    ),
    Breach(
        "A sequence is assigned once",
        "a batch that is sent again gets a new sequence",
        SEQUENCES,
        "waiting=_requeue(value, batch)), ()",
        "waiting=_requeue(value, replace(batch, base_sequence=value.next_sequence))), ()",
    ),
    Breach(
        "A sequence is assigned once",
        "after a rejection sequences are given out again",
        SEQUENCES,
        REJECTED_ROW,
        REJECTED_ROW + "\n    (State.REJECTED, Enqueue): Move(on_enqueue, State.SENDING),",
    ),
    Breach(
        "At most five requests are in flight",
        "six batches of a partition may be in flight",
        SEQUENCES,
        "MAX_IN_FLIGHT = 5",
        "MAX_IN_FLIGHT = 6",
    ),
    Breach(
        "At most five requests are in flight",
        "fifty requests may be in flight on one connection",
        DELIVERY,
        "            while self._in_flight.get(leader, 0) < self._max_in_flight:",
        "            while self._in_flight.get(leader, 0) < 50:",
    ),
    Breach(
        "At most five requests are in flight",
        "the user may ask for fifty",
        KAFKA_OPTIONS,
        '        whole_number("a whole number", 1, 5),',
        '        whole_number("a whole number", 1, 50),',
    ),
    Breach(
        "A failed batch goes back into the queue",
        "a failed batch goes to the end of the queue",
        SEQUENCES,
        IN_ORDER,
        "    return both",
    ),
    Breach(
        "A batch that is sent again must be the oldest",
        "a batch is sent again beside others",
        SEQUENCES,
        "    if value.in_flight:\n        return value, ()\n    return _transmit(value)",
        "    return _transmit(value)",
    ),
    Breach(
        "A batch that is sent again must be the oldest",
        "after trouble there is one in flight for ever",
        SEQUENCES,
        "    elif value.state is State.RETRYING and not any(",
        "    elif False and not any(",
    ),
    Breach(
        "Batches behind a lost one",
        "out of order behind a lost batch ends the epoch",
        SEQUENCES,
        NOT_THE_OLDEST,
        "    if False:",
    ),
    Breach(
        "Order is kept with up to five in flight",
        "a batch whose answer was lost is sent behind the others",
        SEQUENCES,
        IN_ORDER,
        "    return both",
    ),
    Breach(
        "Order is kept with up to five in flight",
        "what was in flight when the connection went counts as written",
        SEQUENCES,
        REQUEUED,
        "    return on_acknowledged(value, Acknowledged(event.base_sequence, -1))",
    ),
    Breach(
        "A duplicate is a success",
        "a duplicate is an error of the transaction",
        CODES,
        "        Code.DUPLICATE_SEQUENCE_NUMBER: Action.DONE,",
        "        Code.DUPLICATE_SEQUENCE_NUMBER: Action.ABORT,",
    ),
    Breach(
        "A duplicate is a success",
        "the acknowledgement of a batch that was sent twice is not believed",
        SEQUENCES,
        "    batch, rest = _take_out(value, event.base_sequence)\n    # Sequence 0 comes again",
        "    batch, rest = _take_out(value, event.base_sequence)\n    if batch.attempts > 1:\n"
        '        return on_rejected(value, Rejected(event.base_sequence, "duplicate"))\n    # Sequence 0 comes again',
    ),
    Breach(
        "Out of order with nothing older unanswered",
        "out of order is always tried again",
        SEQUENCES,
        NOT_THE_OLDEST,
        "    if True:",
    ),
    Breach(
        "After a fatal error of a batch",
        "only the batch itself is given up, the lane goes on",
        SEQUENCES,
        "    _take_out(value, event.base_sequence)\n    return replace(value, state=State.REJECTED, reason=event.reason),",
        "    _, rest = _take_out(value, event.base_sequence)\n    return replace(value, in_flight=rest, reason=event.reason),",
    ),
    Breach(
        "After a fatal error of a batch",
        "a batch that is too large counts as written",
        CODES,
        "        Code.MESSAGE_TOO_LARGE: Action.REFUSE,",
        "        Code.MESSAGE_TOO_LARGE: Action.DONE,",
    ),
    Breach(
        "A batch that is given up after its time",
        "a batch is never given up",
        DELIVERY,
        "        if held is not None and runtime.monotonic() - held.first_try_at > self._delivery_timeout_s:",
        "        if False:",
    ),
    Breach(
        "A batch that is given up after its time",
        "a transaction with an error may be committed",
        PRODUCER,
        ABORT_ROW,
        ABORT_ROW
        + "\n    (State.ABORTABLE_ERROR, CommitRequested): Move(on_commit, State.COMMITTING, State.READY),",
    ),
    Breach(
        "A batch that is given up after its time",
        "the next identity is asked for without the current one",
        PRODUCER,
        "(SendInitProducerId(value.identity),)",
        "(SendInitProducerId(None),)",
    ),
    Breach(
        "Configuration: idempotence on",
        "acks=1 goes out with every batch",
        "connector/pyspark_kafka_eos/client/wire/produce.py",
        "ACKS_ALL = -1",
        "ACKS_ALL = 1",
    ),
    Breach(
        "Configuration: idempotence on",
        "the delivery asks for acks=1",
        DELIVERY,
        "            [(each.where.topic, each.where.partition, each.data) for each in held],",
        "            [(each.where.topic, each.where.partition, each.data) for each in held],\n            acks=1,",
    ),
    Breach(
        "Configuration: idempotence on",
        "the user may ask for acks=1",
        KAFKA_OPTIONS,
        'Only(("all", "-1"),',
        'Only(("all", "-1", "1"),',
    ),
    Breach(
        "Configuration: idempotence on",
        "the user may ask for fifty requests in flight",
        KAFKA_OPTIONS,
        '        whole_number("a whole number", 1, 5),',
        '        whole_number("a whole number", 1, 50),',
    ),
    Breach(
        "A transactional id without idempotence",
        "idempotence can be switched off",
        KAFKA_OPTIONS,
        'Only(("true",), "exactly-once needs the idempotent producer: true")',
        'Only(("true", "false"), "exactly-once needs the idempotent producer: true")',
    ),
)
