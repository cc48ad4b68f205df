"""Breaches of: the transaction coordinator."""

from __future__ import annotations

from tests.rules.table import Breach

TRANSACTION = "connector/embedded_kafka/transactions/machine/moves.py"
ENDS = "connector/embedded_kafka/transactions/machine/ends.py"
COORDINATOR = "connector/embedded_kafka/transactions/coordinator.py"
BOOK = "connector/embedded_kafka/transactions/registry.py"
PARTITION_LOG = "connector/embedded_kafka/log/partition_log.py"

LOGGED_FIRST = (
    "        self._append(transactional_id, entry)\n        try:\n            await self._reached(step)",
    "        try:\n            await self._reached(step)\n            self._append(transactional_id, entry)",
)
LAST_EPOCH = "        last_epoch = NO_EPOCH if expected is None else entry.epoch"
BUMP = "            return _prepare(value, epoch=entry.epoch + 1, last_epoch=last_epoch, **fresh)"
NO_BUMP = "            return _prepare(value, epoch=max(entry.epoch, 0), last_epoch=last_epoch, **fresh)"
WITHOUT_THE_STABLE_OFFSET = (
    "        return self.end_offset if unstable is None else max(unstable, self._start_offset)",
    "        return self.end_offset",
)

BREACHES = (
    Breach(
        "The id's hash names one of 50 partitions",
        "another hash than Java's",
        "connector/embedded_kafka/topics/java_hash.py",
        "        value = (31 * value",
        "        value = (33 * value",
    ),
    Breach(
        "The id's hash names one of 50 partitions",
        "49 partitions",
        "connector/embedded_kafka/settings/config.py",
        "transaction_state_partitions: int = 50",
        "transaction_state_partitions: int = 49",
    ),
    Breach(
        "The mapping from transactional id", "the log comes after what follows from it", BOOK, *LOGGED_FIRST
    ),
    Breach("InitProducerId without an epoch", "no bump", TRANSACTION, BUMP, NO_BUMP),
    Breach(
        "InitProducerId without an epoch",
        "the epoch before counts as the last one",
        TRANSACTION,
        LAST_EPOCH,
        "        last_epoch = entry.epoch",
    ),
    Breach("With the current epoch", "no bump", TRANSACTION, BUMP, NO_BUMP),
    Breach(
        "With the current epoch",
        "the given epoch is not kept as the last one",
        TRANSACTION,
        LAST_EPOCH,
        "        last_epoch = NO_EPOCH",
    ),
    Breach(
        "With the last epoch",
        "a repetition is fenced",
        TRANSACTION,
        "    if expected.epoch == entry.last_epoch:",
        "    if False:",
    ),
    Breach(
        "With any other",
        "any epoch is bumped",
        TRANSACTION,
        "        return _prepare(value, **fresh)\n    return _refuse(value, Refusal.PRODUCER_FENCED)",
        "        return _prepare(value, **fresh)\n    return _prepare(value, epoch=entry.epoch + 1, **fresh)",
    ),
    Breach(
        "No mapping: a new producer id",
        "who has an id that was forgotten is fenced",
        TRANSACTION,
        "    if expected is None or entry.epoch == NO_EPOCH or expected.producer_id == entry.producer_id:",
        "    if expected is None or expected.producer_id == entry.producer_id:",
    ),
    Breach(
        "No mapping: a new producer id",
        "another producer id is not fenced",
        TRANSACTION,
        "        return None\n    return Refusal.PRODUCER_FENCED\n\n\ndef on_init(",
        "        return None\n    return None\n\n\ndef on_init(",
    ),
    Breach(
        "The last epoch is in the log's record",
        "it is left out",
        "connector/embedded_kafka/transactions/state_log.py",
        '    TAG_LAST_EPOCH: ("last_epoch", ">h", NO_EPOCH),\n',
        "",
    ),
    Breach(
        "AddPartitionsToTxn and AddOffsetsToTxn are logged",
        "the log comes after the answer",
        BOOK,
        *LOGGED_FIRST,
    ),
    Breach(
        "AddPartitionsToTxn and AddOffsetsToTxn are logged",
        "every partition starts the clock anew",
        TRANSACTION,
        "    return _add(value, event, start_ms=value.current.start_ms)",
        "    return _add(value, event, start_ms=event.now_ms)",
    ),
    Breach(
        "EndTxn: prepare is logged",
        "the decision is not logged",
        BOOK,
        "        self._append(transactional_id, entry)\n        try:",
        '        if not entry.state.name.startswith("PREPARE"):\n'
        "            self._append(transactional_id, entry)\n        try:",
    ),
    Breach(
        "EndTxn: prepare is logged",
        "an abort after the commit succeeds (version 1)",
        ENDS,
        "    (State.COMPLETE_COMMIT, True): Ends.REPEATED,",
        "    (State.COMPLETE_COMMIT, True): Ends.REPEATED,\n    (State.COMPLETE_COMMIT, False): Ends.REPEATED,",
    ),
    Breach(
        "EndTxn: prepare is logged",
        "an abort after the commit succeeds (version 2)",
        ENDS,
        "    (State.COMPLETE_COMMIT, False, True): Ends.INVALID,",
        "    (State.COMPLETE_COMMIT, False, True): Ends.REPEATED,",
    ),
    Breach(
        "EndTxn: prepare is logged",
        "records show before their markers",
        PARTITION_LOG,
        *WITHOUT_THE_STABLE_OFFSET,
    ),
    Breach(
        "An unreachable partition delays its own marker only",
        "it ends the writing of markers",
        COORDINATOR,
        "            if why is None:\n                _log_delay(partition, markers, refused)\n                return False",
        "            if why is None:\n                raise",
    ),
    Breach(
        "On restart the log is read",
        "what is prepared is left as it is",
        COORDINATOR,
        "                self._unfinished[transaction.transactional_id] = None\n        self._carry_on()",
        "                pass",
    ),
    Breach(
        "Offsets in a transaction are in the group's view",
        "they show at once",
        "connector/embedded_kafka/groups/journal.py",
        "            if producer_id == NO_PRODUCER_ID:\n                store.put(",
        "            if True:\n                store.put(",
    ),
    Breach(
        "Offsets in a transaction are in the group's view",
        "an older epoch's offsets are taken",
        "connector/embedded_kafka/log/producer_state.py",
        "    if epoch >= state.epoch:\n        return None",
        "    if True:\n        return None",
    ),
    Breach(
        "Offsets in a transaction are in the group's view",
        "what the log refuses counts as written",
        "connector/embedded_kafka/groups/journal.py",
        "        first = self._append(group_id, records, now_ms, producer_id, producer_epoch)",
        "        try:\n            first = self._append(group_id, records, now_ms, producer_id, producer_epoch)\n"
        "        except Exception:\n            return",
    ),
    Breach(
        "A transaction that outlives its timeout",
        "it is aborted a moment too early",
        TRANSACTION,
        "            and entry.start_ms + entry.timeout_ms < now_ms",
        "            and entry.start_ms + entry.timeout_ms <= now_ms",
    ),
    Breach(
        "A transaction that outlives its timeout",
        "its abort does not bump the epoch (version 1)",
        TRANSACTION,
        "        epoch=min(value.current.epoch + 1, MAX_EPOCH),\n        last_epoch=NO_EPOCH,",
        "        last_epoch=NO_EPOCH,",
    ),
    Breach(
        "A prepared transaction that is found in the sweep",
        "the sweep passes over it",
        COORDINATOR,
        "        self._carry_on(at_most)\n        expire = ",
        "        expire = ",
    ),
    Breach(
        "A transactional id without a transaction expires",
        "it stays for a moment longer",
        TRANSACTION,
        "            and self.current.last_update_ms <= now_ms - after_ms",
        "            and self.current.last_update_ms < now_ms - after_ms",
    ),
    Breach(
        "Fetch: up to the last stable offset",
        "read_committed reads to the end of the log",
        PARTITION_LOG,
        *WITHOUT_THE_STABLE_OFFSET,
    ),
    Breach(
        "Fetch: up to the last stable offset",
        "the aborted transactions are left out",
        PARTITION_LOG,
        "                if read_committed and len(data)\n",
        "                if False\n",
    ),
)
