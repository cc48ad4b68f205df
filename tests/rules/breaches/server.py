"""Breaches of: the server side of the idempotent producer."""

from __future__ import annotations

from tests.rules.table import Breach

STATE = "connector/embedded_kafka/log/producer_state.py"
COORDINATOR = "connector/embedded_kafka/transactions/coordinator.py"
INIT = "connector/embedded_kafka/apis/init_producer_id.py"
PRODUCE = "connector/embedded_kafka/apis/produce.py"
PARTITION_LOG = "connector/embedded_kafka/log/partition_log.py"
BLOCK = "connector/embedded_kafka/producer_ids/block.py"
ZOOKEEPER = "connector/embedded_kafka/producer_ids/zookeeper.py"
FILES = "connector/embedded_kafka/producer_ids/files.py"
ALLOCATOR = "connector/embedded_kafka/producer_ids/allocator.py"
MODEL = "tests/pyspark_kafka_eos/client/writing/test_sequences_rules.py"
"""The model of a broker that judges the client is itself judged by tests of the table."""

STRICT = "    if not state.known and first != 0 and strict_first_sequence:"
BLOCKS = "Producer ids come in blocks of 1000"

BREACHES = (
    Breach(
        "InitProducerId without a transactional id",
        "the epoch begins at 1",
        COORDINATOR,
        "            return ProducerIdentity(self._book.fresh_id(), 0)",
        "            return ProducerIdentity(self._book.fresh_id(), 1)",
    ),
    Breach(
        "InitProducerId without a transactional id",
        "no right is needed",
        INIT,
        "    elif not parts.authorizer.may_write_idempotently():",
        "    elif False:",
    ),
    Breach(
        "InitProducerId with one",
        "no right is needed",
        INIT,
        '        if not parts.authorizer.allows("WRITE", "TRANSACTIONAL_ID", transactional_id):',
        "        if False:",
    ),
    Breach(BLOCKS, "blocks of 500", BLOCK, "BLOCK_SIZE = 1000", "BLOCK_SIZE = 500"),
    Breach(
        BLOCKS,
        "a block beyond a long is not refused by its name",
        BLOCK,
        "    if latest.end > MAX_PRODUCER_ID - size:",
        "    if latest.end > MAX_PRODUCER_ID:",
    ),
    Breach(
        BLOCKS,
        "the last block is refused",
        BLOCK,
        "    if latest.end > MAX_PRODUCER_ID - size:",
        "    if latest.end >= MAX_PRODUCER_ID - size:",
    ),
    Breach(
        BLOCKS,
        "the numbers in the JSON are no strings",
        BLOCK,
        '        "block_start": str(block.start),',
        '        "block_start": block.start,',
    ),
    Breach(
        BLOCKS,
        "the end of a block is not read",
        BLOCK,
        "    return Block(start, end)",
        "    return Block(start, start)",
    ),
    Breach(
        BLOCKS,
        "the node is written whatever its version",
        ZOOKEEPER,
        "client.set_async(self._path, data, version=version)",
        "client.set_async(self._path, data, version=-1)",
    ),
    Breach(
        BLOCKS,
        "a node that is there already counts as made by us",
        ZOOKEEPER,
        "        except (BadVersionError, NodeExistsError, NoNodeError):",
        "        except NodeExistsError:\n            return True\n        except (BadVersionError, NoNodeError):",
    ),
    Breach(
        BLOCKS,
        "a store that is away is given up",
        ALLOCATOR,
        "                if not self._wait_after(error, backoff_ms):\n                    return",
        "                self._end(error)\n                return",
    ),
    Breach(
        BLOCKS,
        "a block is handed out before it is in the file",
        FILES,
        "            self._replace(encode(block, self._broker_id))",
        "            if self._last is not None:\n                self._replace(encode(self._last, self._broker_id))",
    ),
    Breach(
        BLOCKS,
        "after a final error the store is asked again",
        ALLOCATOR,
        "            except ExactlyOnceError as error:\n                self._end(error)\n                return",
        "            except ExactlyOnceError as error:\n                if not self._wait_after(error, backoff_ms):\n"
        "                    return",
    ),
    Breach(
        "Ids are given one after another",
        "every second id is left out",
        ALLOCATOR,
        "            self._position += 1",
        "            self._position += 2",
    ),
    Breach(
        "Ids are given one after another",
        "a new block begins where the old one ended",
        ALLOCATOR,
        "                self._position = self._current.start",
        "                self._position = max(self._position, 0)",
    ),
    Breach(
        "Produce: Write on the transactional id",
        "no right on the topic is needed",
        PRODUCE,
        '    if not parts.authorizer.allows("WRITE", "TOPIC", where.topic):',
        "    if False:",
    ),
    Breach(
        "Produce: Write on the transactional id",
        "no right on the transactional id is needed",
        PRODUCE,
        "        if transactional_id is None or not parts.authorizer.allows(\n"
        '            "WRITE", "TRANSACTIONAL_ID", transactional_id\n        ):',
        "        if transactional_id is None:",
    ),
    Breach(
        "Produce: Write on the transactional id",
        "an idempotent producer needs no right",
        PRODUCE,
        "    elif any(header.producer_id >= 0 for header in claims) and not parts",
        "    elif False and not parts",
    ),
    Breach(
        "Produce: Write on the transactional id",
        "a topic that is not there is made",
        PRODUCE,
        "    topic = parts.topics.get(where.topic)\n",
        "    topic = parts.topics.get(where.topic) or parts.topics.create(where.topic, 1)\n",
    ),
    Breach(
        "A batch without a producer id",
        "it needs the right of producers",
        PRODUCE,
        "    elif any(header.producer_id >= 0 for header in claims) and not parts",
        "    elif claims and not parts",
    ),
    Breach(
        "A batch without a producer id",
        "it is judged as a producer's",
        PARTITION_LOG,
        "        if header.producer_id >= 0:\n            verdict",
        "        if True:\n            verdict",
    ),
    Breach(
        "The last five batches per producer",
        "four are remembered",
        STATE,
        "REMEMBERED_BATCHES = 5",
        "REMEMBERED_BATCHES = 4",
    ),
    Breach(
        "The last five batches per producer",
        "a duplicate is answered with the end of the log",
        PARTITION_LOG,
        "                    written.first_offset, written.last_offset, written.timestamp_ms, duplicate=True",
        "                    base, last, written.timestamp_ms, duplicate=True",
    ),
    Breach(
        "The last five batches per producer",
        "the model answers a duplicate as written now",
        MODEL,
        "                return DUPLICATE, offset",
        "                return WRITTEN, len(self.log)",
    ),
    Breach(
        "An unknown producer starts at sequence 0",
        "where it is asked for, it may start anywhere, too",
        STATE,
        STRICT,
        "    if False:",
    ),
    Breach(
        "An unknown producer starts at sequence 0",
        "it may start nowhere else, as before KIP-360",
        STATE,
        STRICT,
        "    if not state.known and first != 0:",
    ),
    Breach(
        "An unknown producer starts at sequence 0",
        "the model takes any first sequence",
        MODEL,
        "        if self.last_sequence == -1 and base_sequence != 0:",
        "        if False:",
    ),
    Breach(
        "A new epoch starts at sequence 0",
        "a new epoch may start anywhere",
        STATE,
        "    if batch.epoch != state.epoch:\n        if first == 0:",
        "    if batch.epoch != state.epoch:\n        if True:",
    ),
    Breach(
        "A new epoch starts at sequence 0",
        "an older epoch is taken",
        STATE,
        "    if epoch >= state.epoch:\n        return None",
        "    if True:\n        return None",
    ),
    Breach(
        "Within an epoch sequences follow",
        "gaps are taken",
        STATE,
        "    if first == expected:\n        return None",
        "    if (first - expected) % SEQUENCE_LIMIT < SEQUENCE_LIMIT // 2:\n        return None",
    ),
    Breach(
        "Within an epoch sequences follow",
        "the sequence after 2^31 - 1 is 2^31",
        STATE,
        "    expected = (state.last_sequence + 1) % SEQUENCE_LIMIT",
        "    expected = state.last_sequence + 1",
    ),
    Breach(
        "Within an epoch sequences follow",
        "the last sequence of a batch goes on above 2^31 - 1",
        STATE,
        "        return (self.first_sequence + self.last_offset - self.first_offset) % SEQUENCE_LIMIT",
        "        return self.first_sequence + self.last_offset - self.first_offset",
    ),
    Breach(
        "Within an epoch sequences follow",
        "the model takes gaps",
        MODEL,
        "        if base_sequence != (self.last_sequence + 1) % 2**31:",
        "        if False:",
    ),
    Breach(
        "Better: tell behind",
        "what lies behind is called a gap",
        STATE,
        "    if ahead < SEQUENCE_LIMIT // 2:",
        "    if True:",
    ),
    Breach(
        "A marker bumps the epoch in the producer state",
        "sequences go on behind such a marker",
        STATE,
        "        batches=state.batches if marker.epoch == state.epoch else (),",
        "        batches=state.batches,",
    ),
    Breach(
        "A marker bumps the epoch in the producer state",
        "a late marker is taken",
        STATE,
        "    if marker.epoch < lowest:\n",
        "    if False:\n",
    ),
    Breach(
        "A marker bumps the epoch in the producer state",
        "a marker of version 2 that comes again is refused",
        STATE,
        "again = marker.epoch == state.epoch and (state.open_since is None or marker.epoch == HIGHEST_EPOCH)",
        "again = marker.epoch == state.epoch == HIGHEST_EPOCH",
    ),
    Breach(
        "A marker bumps the epoch in the producer state",
        "at the highest epoch nothing ends what is open",
        STATE,
        "(state.open_since is None or marker.epoch == HIGHEST_EPOCH)",
        "state.open_since is None",
    ),
    Breach(
        "Followers keep the same state",
        "the snapshot is not read before the log",
        "connector/embedded_kafka/log/recovery.py",
        "    producers = Producers(states or ())",
        "    producers = Producers(())",
    ),
    Breach(
        "Without state and without messages",
        "an unknown producer has to begin at 0",
        STATE,
        STRICT,
        "    if not state.known and first != 0:",
    ),
    Breach(
        "Producer state outlives the messages",
        "producers are forgotten with their records",
        PARTITION_LOG,
        "                self._start_offset = before\n",
        "                self._start_offset = before\n                self._producers = type(self._producers)(())\n",
    ),
    Breach(
        "Producer state outlives the messages",
        "an idle producer is forgotten after half of its time",
        STATE,
        "    return state.open_since is None and now_ms - state.last_seen_ms >= after_ms",
        "    return state.open_since is None and now_ms - state.last_seen_ms >= after_ms // 2",
    ),
)
