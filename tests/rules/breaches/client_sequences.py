"""Breaches of: sequences and the idempotent producer, the client."""

from __future__ import annotations

from tests.support.planting import Planted

SEQUENCES = "pyspark_kafka_eos.client.writing.sequences"
PRODUCER = "pyspark_kafka_eos.client.writing.session"
PRODUCER_STATE = "embedded_kafka.log.producer_state"
DELIVERY = "pyspark_kafka_eos.client.writing.delivery"
TRANSACTIONS = "pyspark_kafka_eos.client.requests.transactions"
CODES = "kafka_core.protocol.error_codes"
KAFKA_OPTIONS = "pyspark_kafka_eos.options.kafka"

BREACHES = {
    "Sent at least once": (
        Planted(
            "a batch whose answer was lost counts as written", f"{SEQUENCES}:on_not_delivered",
            "replace(value, state=SequencesState.RETRYING, in_flight=rest, waiting=_requeue(value, batch)), ()",
            "on_acknowledged(value, Acknowledged(event.base_sequence, -1))",
        ),
        Planted(
            "too few replicas is final", f"{CODES}:_OVERRIDES",
            "Code.NOT_ENOUGH_REPLICAS: Action.RETRY", "Code.NOT_ENOUGH_REPLICAS: Action.REFUSE",
        ),
    ),
    "Idempotence holds within one session only": (
        Planted(
            "all producers without a transactional id share one", f"{TRANSACTIONS}:Transactions.init_producer_id",
            '"transactional_id": transactional_id', '"transactional_id": transactional_id or "shared"',
        ),
        Planted(
            "the leader does not recognise what is sent again", f"{PRODUCER_STATE}:judge",
            "return Duplicate(written)", "continue",
        ),
    ),
    "Idempotence holds per partition": (
        Planted(
            "one count of sequences for all partitions", f"{DELIVERY}:Delivery.__init__",
            "self._sequences: dict[TopicPartition, seq.Sequences] = {}",
            "highest = lambda all_: max((each.next_sequence for each in all_.values()), default=0)\n"
            "get = lambda all_, where, _: dict.get(all_, where) or seq.Sequences(next_sequence=highest(all_))\n"
            'self._sequences = type("OneCount", (dict,), {"get": get})()',
        ),
        Planted(
            "records show before their transaction has ended", "embedded_kafka.log.partition_log:PartitionLog.last_stable_offset",
            "if unstable is None else max(unstable, self._start_offset)", "",
        ),
    ),
    "Only the producer's own re-sending": (
        Planted(
            "the second of two batches has the sequence of the first", f"{SEQUENCES}:on_enqueue",
            "following = (value.next_sequence + event.count) % SEQUENCE_LIMIT", "following = value.next_sequence",
        ),
    ),
    "Producer id and sequence identify": (
        Planted(
            "the first sequence is 1", f"{SEQUENCES}:Sequences.next_sequence",
            "next_sequence: int = 0", "next_sequence: int = 1",
        ),
        Planted(
            "the sequence grows by one per batch", f"{SEQUENCES}:on_enqueue",
            "next_sequence + event.count", "next_sequence + 1",
        ),
        Planted(
            "the last sequence before the first batch is 0", f"{SEQUENCES}:Sequences.last_sequence",
            "unacknowledged else -1", "unacknowledged else 0",
        ),
    ),
    "Sequences are int32": (
        Planted(
            "sequences go on above 2^31 - 1", f"{SEQUENCES}:on_enqueue",
            "(value.next_sequence + event.count) % SEQUENCE_LIMIT", "value.next_sequence + event.count",
        ),
        Planted(
            "the last sequence of a batch goes on above 2^31 - 1", f"{SEQUENCES}:Batch.last_sequence",
            "(self.base_sequence + self.count - 1) % SEQUENCE_LIMIT", "self.base_sequence + self.count - 1",
        ),
        Planted(
            "the smaller number counts as the older batch, across the wrap too", f"{SEQUENCES}:_floor",
            "return (value.next_sequence - SEQUENCE_LIMIT // 2) % SEQUENCE_LIMIT", "return 0",
        ),
    ),
    "No batch is written before there is a valid producer id": (
        Planted(
            "a transaction begins without an identity", f"{PRODUCER}:MOVES",
            "(SessionState.READY, Begin): Move(on_begin, SessionState.IN_TRANSACTION)",
            "(SessionState.READY, Begin): Move(on_begin, SessionState.IN_TRANSACTION),\n"
            "(SessionState.UNINITIALIZED, Begin): Move(on_begin, SessionState.IN_TRANSACTION)",
        ),
        Planted(
            "a session whose identity was refused may begin again", f"{PRODUCER}:on_session_failed",
            "FATAL, reason=", "UNINITIALIZED, reason=",
        ),
        Planted(
            "a broker that has no ids yet is not asked again", f"{TRANSACTIONS}:Transactions._ask_any",
            "return again_or_refuse(m.InitProducerIdRequest.API_KEY, answer.error_code, refused) or answer",
            "if answer.error_code:\n    raise refused(Action.BUG, answer.error_code)\nreturn answer",
        ),
    ),
    "A sequence is assigned once": (
        Planted(
            "a batch that is sent again gets a new sequence", f"{SEQUENCES}:on_not_delivered",
            "(value, batch)", "(value, replace(batch, base_sequence=value.next_sequence))",
        ),
        Planted(
            "after a rejection sequences are given out again", f"{SEQUENCES}:MOVES",
            "(SequencesState.REJECTED, SendNext): Move(ignore, SequencesState.REJECTED)",
            "(SequencesState.REJECTED, SendNext): Move(ignore, SequencesState.REJECTED),\n(SequencesState.REJECTED, Enqueue): Move(on_enqueue, SequencesState.SENDING)",
        ),
    ),
    "At most five requests are in flight": (
        Planted(
            "six batches of a partition may be in flight", f"{SEQUENCES}:MAX_IN_FLIGHT",
            "MAX_IN_FLIGHT = 5", "MAX_IN_FLIGHT = 6",
        ),
        Planted(
            "fifty requests may be in flight on one connection", f"{DELIVERY}:Delivery._drain",
            "self._max_in_flight", "50",
        ),
        Planted(
            "the user may ask for fifty", f"{KAFKA_OPTIONS}:PRODUCER",
            'whole_number("a whole number", 1, 5)', 'whole_number("a whole number", 1, 50)',
        ),
    ),
    "A failed batch goes back into the queue": (
        Planted(
            "a failed batch goes to the end of the queue", f"{SEQUENCES}:_requeue",
            "tuple(sorted(both, key=lambda each: (each.base_sequence - floor) % SEQUENCE_LIMIT))", "both",
        ),
    ),
    "A batch that is sent again must be the oldest": (
        Planted(
            "a batch is sent again beside others", f"{SEQUENCES}:on_send_next_alone",
            "if value.in_flight:\n    return value, ()", "",
        ),
        Planted(
            "after trouble there is one in flight for ever", f"{SEQUENCES}:on_acknowledged",
            "elif value.state is SequencesState.RETRYING and not any(", "elif False and not any(",
        ),
    ),
    "Batches behind a lost one": (
        Planted(
            "out of order behind a lost batch ends the epoch", f"{SEQUENCES}:on_out_of_order",
            "if _oldest(value).base_sequence != event.base_sequence:", "if False:",
        ),
    ),
    "Order is kept with up to five in flight": (
        Planted(
            "a batch whose answer was lost is sent behind the others", f"{SEQUENCES}:_requeue",
            "tuple(sorted(both, key=lambda each: (each.base_sequence - floor) % SEQUENCE_LIMIT))", "both",
        ),
        Planted(
            "what was in flight when the connection went counts as written", f"{SEQUENCES}:on_not_delivered",
            "replace(value, state=SequencesState.RETRYING, in_flight=rest, waiting=_requeue(value, batch)), ()",
            "on_acknowledged(value, Acknowledged(event.base_sequence, -1))",
        ),
    ),
    "A duplicate is a success": (
        Planted(
            "a duplicate is an error of the transaction", f"{CODES}:_OVERRIDES",
            "Code.DUPLICATE_SEQUENCE_NUMBER: Action.DONE", "Code.DUPLICATE_SEQUENCE_NUMBER: Action.ABORT",
        ),
        Planted(
            "the acknowledgement of a batch that was sent twice is not believed", f"{SEQUENCES}:on_acknowledged",
            "batch, rest = _take_out(value, event.base_sequence)",
            "batch, rest = _take_out(value, event.base_sequence)\nif batch.attempts > 1:\n"
            '    return on_rejected(value, Rejected(event.base_sequence, "duplicate"))',
        ),
    ),
    "Out of order with nothing older unanswered": (
        Planted(
            "out of order is always tried again", f"{SEQUENCES}:on_out_of_order",
            "if _oldest(value).base_sequence != event.base_sequence:", "if True:",
        ),
    ),
    "After a fatal error of a batch": (
        Planted(
            "only the batch itself is given up, the lane goes on", f"{SEQUENCES}:on_rejected",
            "_take_out(value, event.base_sequence)\n"
            "return replace(value, state=SequencesState.REJECTED, reason=event.reason), (GiveUp(event.reason),)",
            "_, rest = _take_out(value, event.base_sequence)\n"
            "return replace(value, in_flight=rest, reason=event.reason), (GiveUp(event.reason),)",
        ),
        Planted(
            "a batch that is too large counts as written", f"{CODES}:_OVERRIDES",
            "Code.MESSAGE_TOO_LARGE: Action.REFUSE", "Code.MESSAGE_TOO_LARGE: Action.DONE",
        ),
    ),
    "A batch that is given up after its time": (
        Planted(
            "a batch is never given up", f"{DELIVERY}:Delivery._give_up_when_late",
            "if held is not None and runtime.monotonic() - held.first_try_at > self._delivery_timeout_s:", "if False:",
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
    ),
    "Configuration: idempotence on": (
        Planted(
            "acks=1 goes out with every batch", "pyspark_kafka_eos.client.wire.produce:ACKS_ALL",
            "ACKS_ALL = -1", "ACKS_ALL = 1",
        ),
        Planted(
            "the delivery asks for acks=1", f"{DELIVERY}:Delivery._transmit_on_loop",
            "[(each.where.topic, each.where.partition, each.data) for each in held]",
            "[(each.where.topic, each.where.partition, each.data) for each in held],\nacks=1",
        ),
        Planted("the user may ask for acks=1", f"{KAFKA_OPTIONS}:PRODUCER", '("all", "-1"),', '("all", "-1", "1"),'),
        Planted(
            "the user may ask for fifty requests in flight", f"{KAFKA_OPTIONS}:PRODUCER",
            'whole_number("a whole number", 1, 5)', 'whole_number("a whole number", 1, 50)',
        ),
    ),
    "A transactional id without idempotence": (
        Planted(
            "idempotence can be switched off", f"{KAFKA_OPTIONS}:PRODUCER",
            '("true",), "exactly-once needs the idempotent producer: true"',
            '("true", "false"), "exactly-once needs the idempotent producer: true"',
        ),
    ),
}  # fmt: skip
