"""Breaches of: the transaction coordinator."""

from __future__ import annotations

from tests.support.planting import Planted

TRANSACTION = "embedded_kafka.transactions.machine.moves"
ENDS = "embedded_kafka.transactions.machine.ends"
COORDINATOR = "embedded_kafka.transactions.coordinator"
REGISTRY = "embedded_kafka.transactions.registry"
PARTITION_LOG = "embedded_kafka.log.partition_log"

BREACHES = {
    "The id's hash names one of 50 partitions": (
        Planted(
            "another hash than Java's", "embedded_kafka.topics.java_hash:java_hash",
            "31 * value + (units[at] << 8 | units[at + 1])", "33 * value + (units[at] << 8 | units[at + 1])",
        ),
        Planted(
            "49 partitions", "embedded_kafka.settings.config:BrokerConfig.transaction_state_partitions",
            "transaction_state_partitions: int = 50", "transaction_state_partitions: int = 49",
        ),
    ),
    "The mapping from transactional id": (
        Planted(
            "the log comes after what follows from it", f"{REGISTRY}:TransactionRegistry.record",
            "self._append(transactional_id, entry)\ntry:\n    await self._reached(step)",
            "try:\n    await self._reached(step)\n    self._append(transactional_id, entry)",
        ),
    ),
    "InitProducerId without an epoch": (
        Planted("no bump", f"{TRANSACTION}:on_init", "entry.epoch + 1", "max(entry.epoch, 0)"),
        Planted(
            "the epoch before counts as the last one", f"{TRANSACTION}:on_init",
            "last_epoch = NO_EPOCH if expected is None else entry.epoch", "last_epoch = entry.epoch",
        ),
    ),
    "With the current epoch": (
        Planted("no bump", f"{TRANSACTION}:on_init", "entry.epoch + 1", "max(entry.epoch, 0)"),
        Planted(
            "the given epoch is not kept as the last one", f"{TRANSACTION}:on_init",
            "last_epoch = NO_EPOCH if expected is None else entry.epoch", "last_epoch = NO_EPOCH",
        ),
    ),
    "With the last epoch": (
        Planted("a repetition is fenced", f"{TRANSACTION}:on_init", "if expected.epoch == entry.last_epoch:", "if False:"),
    ),
    "With any other": (
        Planted(
            "any epoch is bumped", f"{TRANSACTION}:on_init",
            "return _refuse(value, TransactionRefusal.PRODUCER_FENCED)", "return _prepare(value, epoch=entry.epoch + 1, **fresh)",
        ),
    ),
    "No mapping: a new producer id": (
        Planted("who has an id that was forgotten is fenced", f"{TRANSACTION}:_barred", "entry.epoch == NO_EPOCH or", ""),
        Planted(
            "another producer id is not fenced", f"{TRANSACTION}:_barred",
            "return TransactionRefusal.PRODUCER_FENCED", "return None",
        ),
    ),
    "The last epoch is in the log's record": (
        Planted(
            "it is left out", "embedded_kafka.transactions.state_log:_TAGS",
            'TAG_VERSION: ("version", ">h", 0),\nTAG_LAST_EPOCH: ("last_epoch", ">h", NO_EPOCH)', 'TAG_VERSION: ("version", ">h", 0)',
        ),
    ),
    "AddPartitionsToTxn and AddOffsetsToTxn are logged": (
        Planted(
            "the log comes after the answer", f"{REGISTRY}:TransactionRegistry.record",
            "self._append(transactional_id, entry)\ntry:\n    await self._reached(step)",
            "try:\n    await self._reached(step)\n    self._append(transactional_id, entry)",
        ),
        Planted(
            "every partition starts the clock anew", f"{TRANSACTION}:on_add_more",
            "value.current.start_ms", "event.now_ms",
        ),
    ),
    "EndTxn: prepare is logged": (
        Planted(
            "the decision is not logged", f"{REGISTRY}:TransactionRegistry.record",
            "self._append(transactional_id, entry)",
            'if not entry.state.name.startswith("PREPARE"):\n    self._append(transactional_id, entry)',
        ),
        Planted(
            "an abort after the commit succeeds (version 1)", f"{ENDS}:ENDS_V1",
            "(TransactionState.COMPLETE_COMMIT, True): EndTxnResult.REPEATED",
            "(TransactionState.COMPLETE_COMMIT, True): EndTxnResult.REPEATED,\n(TransactionState.COMPLETE_COMMIT, False): EndTxnResult.REPEATED",
        ),
        Planted(
            "an abort after the commit succeeds (version 2)", f"{ENDS}:ENDS_V2",
            "(TransactionState.COMPLETE_COMMIT, False, True): EndTxnResult.INVALID", "(TransactionState.COMPLETE_COMMIT, False, True): EndTxnResult.REPEATED",
        ),
        Planted(
            "records show before their markers", f"{PARTITION_LOG}:PartitionLog.last_stable_offset",
            "if unstable is None else max(unstable, self._start_offset)", "",
        ),
    ),
    "An unreachable partition delays its own marker only": (
        Planted(
            "it ends the writing of markers", f"{COORDINATOR}:TransactionCoordinator._mark",
            "_log_delay(partition, markers, refused)\nreturn False", "raise",
        ),
    ),
    "On restart the log is read": (
        Planted(
            "what is prepared is left as it is", f"{COORDINATOR}:TransactionCoordinator._resume",
            "        self._unfinished[transaction.transactional_id] = None\nself._carry_on()", "pass",
        ),
    ),
    "Offsets in a transaction are in the group's view": (
        Planted(
            "they show at once", "embedded_kafka.groups.journal:Journal.commit",
            "if producer_id == NO_PRODUCER_ID:", "if True:",
        ),
        Planted(
            "an older epoch's offsets are taken", "embedded_kafka.log.producer_state:_check_epoch",
            "if epoch >= state.epoch:", "if True:",
        ),
        Planted(
            "what the log refuses counts as written", "embedded_kafka.groups.journal:Journal.commit",
            "first = self._append(group_id, records, now_ms, producer_id, producer_epoch)",
            "try:\n    first = self._append(group_id, records, now_ms, producer_id, producer_epoch)\nexcept Exception:\n    return",
        ),
    ),
    "A transaction that outlives its timeout": (
        Planted(
            "it is aborted a moment too early", f"{TRANSACTION}:Transaction.timed_out",
            "and entry.start_ms + entry.timeout_ms < now_ms", "and entry.start_ms + entry.timeout_ms <= now_ms",
        ),
        Planted(
            "its abort does not bump the epoch (version 1)", f"{TRANSACTION}:_fence",
            "epoch=min(value.current.epoch + 1, MAX_EPOCH),", "",
        ),
    ),
    "A prepared transaction that is found in the sweep": (
        Planted("the sweep passes over it", f"{COORDINATOR}:TransactionCoordinator.tick", "self._carry_on(at_most)", ""),
    ),
    "A transactional id without a transaction expires": (
        Planted(
            "it stays for a moment longer", f"{TRANSACTION}:Transaction.expired",
            "last_update_ms <=", "last_update_ms <",
        ),
    ),
    "Fetch: up to the last stable offset": (
        Planted(
            "read_committed reads to the end of the log", f"{PARTITION_LOG}:PartitionLog.last_stable_offset",
            "if unstable is None else max(unstable, self._start_offset)", "",
        ),
        Planted(
            "the aborted transactions are left out", f"{PARTITION_LOG}:PartitionLog.read",
            "if read_committed and len(data)", "if False",
        ),
    ),
}  # fmt: skip
