"""Breaches of: the server side of the idempotent producer."""

from __future__ import annotations

from tests.support.planting import Planted

STATE = "embedded_kafka.log.producer_state"
COORDINATOR = "embedded_kafka.transactions.coordinator"
INIT = "embedded_kafka.apis.init_producer_id"
PRODUCE = "embedded_kafka.apis.produce"
PARTITION_LOG = "embedded_kafka.log.partition_log"
BLOCK = "embedded_kafka.producer_ids.block"
ZOOKEEPER = "embedded_kafka.producer_ids.zookeeper"
FILES = "embedded_kafka.producer_ids.files"
ALLOCATOR = "embedded_kafka.producer_ids.allocator"
MODEL = "tests.pyspark_kafka_eos.client.writing.test_sequences_rules"
"""The model of a broker that judges the client is itself judged by tests of the table."""

BLOCKS = "Producer ids come in blocks of 1000"

BREACHES = {
    "InitProducerId without a transactional id": (
        Planted(
            "the epoch begins at 1", f"{COORDINATOR}:TransactionCoordinator.init_producer_id",
            "return ProducerIdentity(self._book.fresh_id(), 0)", "return ProducerIdentity(self._book.fresh_id(), 1)",
        ),
        Planted(
            "no right is needed", f"{INIT}:_authorize",
            "elif not parts.authorizer.may_write_idempotently():", "elif False:",
        ),
    ),
    "InitProducerId with one": (
        Planted(
            "no right is needed", f"{INIT}:_authorize",
            'if not parts.authorizer.allows("WRITE", "TRANSACTIONAL_ID", transactional_id):', "if False:",
        ),
    ),
    BLOCKS: (
        Planted("blocks of 500", f"{BLOCK}:BLOCK_SIZE", "BLOCK_SIZE = 1000", "BLOCK_SIZE = 500"),
        Planted(
            "a block beyond a long is not refused by its name", f"{BLOCK}:next_block",
            "if latest.end > MAX_PRODUCER_ID - size:", "if latest.end > MAX_PRODUCER_ID:",
        ),
        Planted(
            "the last block is refused", f"{BLOCK}:next_block",
            "if latest.end > MAX_PRODUCER_ID - size:", "if latest.end >= MAX_PRODUCER_ID - size:",
        ),
        Planted(
            "the numbers in the JSON are no strings", f"{BLOCK}:encode",
            '"block_start": str(block.start)', '"block_start": block.start',
        ),
        Planted(
            "the end of a block is not read", f"{BLOCK}:_parsed",
            "return Block(start, end)", "return Block(start, start)",
        ),
        Planted(
            "the node is written whatever its version", f"{ZOOKEEPER}:ZooKeeperBlocks._write",
            "version=version", "version=-1",
        ),
        Planted(
            "a node that is there already counts as made by us", f"{ZOOKEEPER}:ZooKeeperBlocks._write",
            "except (BadVersionError, NodeExistsError, NoNodeError):",
            "except NodeExistsError:\n    return True\nexcept (BadVersionError, NoNodeError):",
        ),
        Planted(
            "a store that is away is given up", f"{ALLOCATOR}:ProducerIds._keep_ahead",
            "if not self._wait_after(error, backoff_ms):\n    return", "self._end(error)\nreturn",
        ),
        Planted(
            "a block is handed out before it is in the file", f"{FILES}:FileBlocks.claim",
            "self._replace(encode(block, self._broker_id))",
            "if self._last is not None:\n    self._replace(encode(self._last, self._broker_id))",
        ),
        Planted(
            "after a final error the store is asked again", f"{ALLOCATOR}:ProducerIds._keep_ahead",
            "self._end(error)\nreturn", "if not self._wait_after(error, backoff_ms):\n    return",
        ),
    ),
    "Ids are given one after another": (
        Planted(
            "every second id is left out", f"{ALLOCATOR}:ProducerIds.next_id",
            "self._position += 1", "self._position += 2",
        ),
        Planted(
            "a new block begins where the old one ended", f"{ALLOCATOR}:ProducerIds.next_id",
            "self._position = self._current.start", "self._position = max(self._position, 0)",
        ),
    ),
    "Produce: Write on the transactional id": (
        Planted(
            "no right on the topic is needed", f"{PRODUCE}:_append",
            'if not parts.authorizer.allows("WRITE", "TOPIC", where.topic):', "if False:",
        ),
        Planted(
            "no right on the transactional id is needed", f"{PRODUCE}:_refused_as_a_whole",
            "if transactional and not allowed:", "if transactional and transactional_id is None:",
        ),
        Planted(
            "a topic that is not there is made", f"{PRODUCE}:_append",
            "get(where.topic)", "get(where.topic) or parts.topics.create(where.topic, 1)",
        ),
    ),
    "A batch without a producer id": (
        Planted(
            "it needs the right of producers", f"{PRODUCE}:_refused_as_a_whole",
            "transactional = any(header.transactional for header in _claims(request))",
            "transactional = bool(_claims(request))",
        ),
        Planted(
            "it is judged as a producer's", f"{PARTITION_LOG}:PartitionLog._judged",
            "if header.producer_id < 0:", "if False:",
        ),
    ),
    "The last five batches per producer": (
        Planted("four are remembered", f"{STATE}:REMEMBERED_BATCHES", "REMEMBERED_BATCHES = 5", "REMEMBERED_BATCHES = 4"),
        Planted(
            "a duplicate is answered with the end of the log", f"{PARTITION_LOG}:PartitionLog._judged",
            "written.first_offset, written.last_offset", "base, base + header.last_offset_delta",
        ),
        Planted(
            "the model answers a duplicate as written now", f"{MODEL}:BrokerPartition.produce",
            "return DUPLICATE, offset", "return WRITTEN, len(self.log)",
        ),
    ),
    "An unknown producer starts at sequence 0": (
        Planted(
            "where it is asked for, it may start anywhere, too", f"{STATE}:_check_sequence",
            "if not state.known and first != 0 and strict_first_sequence:", "if False:",
        ),
        Planted(
            "it may start nowhere else, as before KIP-360", f"{STATE}:_check_sequence",
            "if not state.known and first != 0 and strict_first_sequence:", "if not state.known and first != 0:",
        ),
        Planted(
            "the model takes any first sequence", f"{MODEL}:BrokerPartition.produce",
            "if self.last_sequence == -1 and base_sequence != 0:", "if False:",
        ),
    ),
    "A new epoch starts at sequence 0": (
        Planted("a new epoch may start anywhere", f"{STATE}:_check_sequence", "if first == 0:", "if True:"),
        Planted("an older epoch is taken", f"{STATE}:_check_epoch", "if epoch >= state.epoch:", "if True:"),
    ),
    "Within an epoch sequences follow": (
        Planted(
            "gaps are taken", f"{STATE}:_check_sequence",
            "if first == expected:", "if (first - expected) % SEQUENCE_LIMIT < SEQUENCE_LIMIT // 2:",
        ),
        Planted(
            "the sequence after 2^31 - 1 is 2^31", f"{STATE}:_check_sequence",
            "expected = (state.last_sequence + 1) % SEQUENCE_LIMIT", "expected = state.last_sequence + 1",
        ),
        Planted(
            "the last sequence of a batch goes on above 2^31 - 1", f"{STATE}:DataBatch.last_sequence",
            "(self.first_sequence + self.last_offset - self.first_offset) % SEQUENCE_LIMIT",
            "self.first_sequence + self.last_offset - self.first_offset",
        ),
        Planted(
            "the model takes gaps", f"{MODEL}:BrokerPartition.produce",
            "if base_sequence != (self.last_sequence + 1) % 2**31:", "if False:",
        ),
    ),
    "Better: tell behind": (
        Planted(
            "what lies behind is called a gap", f"{STATE}:_check_sequence",
            "if ahead < SEQUENCE_LIMIT // 2:", "if True:",
        ),
    ),
    "A marker bumps the epoch in the producer state": (
        Planted(
            "sequences go on behind such a marker", f"{STATE}:after_marker",
            "batches=state.batches if marker.epoch == state.epoch else ()", "batches=state.batches",
        ),
        Planted("a late marker is taken", f"{STATE}:judge_marker", "if marker.epoch < lowest:", "if False:"),
        Planted(
            "a marker of version 2 that comes again is refused", f"{STATE}:judge_marker",
            "and (state.open_since is None or marker.epoch == HIGHEST_EPOCH)", "== HIGHEST_EPOCH",
        ),
        Planted(
            "at the highest epoch nothing ends what is open", f"{STATE}:judge_marker",
            "(state.open_since is None or marker.epoch == HIGHEST_EPOCH)", "state.open_since is None",
        ),
    ),
    "Followers keep the same state": (
        Planted(
            "the snapshot is not read before the log", "embedded_kafka.log.recovery:_scan",
            "producers = Producers(states or ())", "producers = Producers(())",
        ),
    ),
    "Without state and without messages": (
        Planted(
            "an unknown producer has to begin at 0", f"{STATE}:_check_sequence",
            "if not state.known and first != 0 and strict_first_sequence:", "if not state.known and first != 0:",
        ),
    ),
    "Producer state outlives the messages": (
        Planted(
            "producers are forgotten with their records", f"{PARTITION_LOG}:PartitionLog.delete_records",
            "self._start_offset = before", "self._start_offset = before\nself._producers = type(self._producers)(())",
        ),
        Planted(
            "an idle producer is forgotten after half of its time", f"{STATE}:expired",
            "last_seen_ms >= after_ms", "last_seen_ms >= after_ms // 2",
        ),
    ),
}  # fmt: skip
