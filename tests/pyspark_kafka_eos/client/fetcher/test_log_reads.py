"""Raw readers of a log (ledger, proof, audit, turns) never take an empty answer for the log's end, and judge codes by
the table.
"""

from __future__ import annotations

import pytest

from kafka_core.errors import AuthorizationFailed, BrokerUnavailable, LedgerUnreadable, ProtocolViolation
from kafka_core.protocol.error_codes import Code
from kafka_core.values import TopicPartition
from pyspark_kafka_eos.client.reading.log_reader import read_raw
from pyspark_kafka_eos.commit.ledger.topic import Ledger
from pyspark_kafka_eos.commit.machine.events import Outcome
from pyspark_kafka_eos.commit.proof import find_marker
from pyspark_kafka_eos.records import scan
from tests.pyspark_kafka_eos.client.fetcher.scripted import (
    Log,
    ScriptedCluster,
    ScriptedKafka,
    without_records,
)

pytestmark = pytest.mark.usefixtures("pauses_take_no_time")

T0 = TopicPartition("t", 0)


def log_of(count: int) -> Log:
    """A log with a batch for each of so many records."""
    log = Log()
    for number in range(count):
        log.write(b"%d" % number)
    return log


@pytest.mark.parametrize("isolation", [0, 1])
def test_records_that_come_late_are_waited_for(isolation: int) -> None:
    kafka = ScriptedKafka(t=[log_of(3)])
    kafka.empty_answers(T0, 4)

    read = read_raw(ScriptedCluster(kafka), T0, 1, isolation=isolation)

    assert kafka.happened["empty"] == 4
    assert [info.base_offset for info, _ in scan(read.records)] == [1, 2]


def test_the_end_of_the_log_is_said_at_once() -> None:
    kafka = ScriptedKafka(t=[log_of(3)])

    assert read_raw(ScriptedCluster(kafka), T0, 3).records == b""
    assert kafka.fetches() == 1


def test_the_last_stable_offset_is_the_end_for_a_reader_of_committed_records() -> None:
    log = log_of(3)
    log.stable = log.write(b"open", producer_id=7, transactional=True)
    kafka = ScriptedKafka(t=[log])

    assert read_raw(ScriptedCluster(kafka), T0, 3, isolation=1).records == b""
    assert kafka.fetches() == 1


def test_what_compaction_removed_before_an_open_transaction_is_no_reason_to_wait() -> None:
    log = log_of(3)
    log.compact(1, 3)
    log.stable = log.write(b"open", producer_id=7, transactional=True)
    kafka = ScriptedKafka(t=[log])

    assert read_raw(ScriptedCluster(kafka), T0, 1, isolation=1).records == b""


def test_records_that_never_come_are_an_error_that_says_where_the_log_ends() -> None:
    kafka = ScriptedKafka(t=[log_of(3)])
    kafka.empty_answers(T0, 1_000_000)

    with pytest.raises(BrokerUnavailable, match="nothing is concluded") as caught:
        read_raw(ScriptedCluster(kafka), T0, 1, timeout_ms=200)

    assert caught.value.facts == {"partition": "t-0", "offset": 1, "end": 3, "timeout_ms": 200}


@pytest.mark.parametrize("code", [Code.OFFSET_NOT_AVAILABLE, Code.CORRUPT_MESSAGE, Code.UNKNOWN_LEADER_EPOCH])
def test_what_may_pass_is_asked_again(code: Code) -> None:
    kafka = ScriptedKafka(t=[log_of(3)])
    kafka.codes(T0, code, code)

    assert len(read_raw(ScriptedCluster(kafka), T0, 0).records)
    assert kafka.happened[code.name] == 2


@pytest.mark.parametrize(
    ("code", "error"),
    [(Code.TOPIC_AUTHORIZATION_FAILED, AuthorizationFailed), (Code.INVALID_REQUEST, ProtocolViolation)],
)
def test_what_cannot_pass_is_said_at_once(code: Code, error: type[Exception]) -> None:
    kafka = ScriptedKafka(t=[log_of(3)])
    kafka.codes(T0, code, code)

    with pytest.raises(error, match=f"t-0 .*{code.name}"):
        read_raw(ScriptedCluster(kafka), T0, 0)

    assert kafka.happened[code.name] == 1


def test_a_marker_behind_a_slow_store_is_found() -> None:
    log = Log()
    log.write(b"x", producer_id=7, transactional=True)
    log.mark(7, commit=True)
    kafka = ScriptedKafka(t=[log])
    kafka.empty_answers(T0, 2)

    assert find_marker(ScriptedCluster(kafka), T0, 7, 0) is Outcome.COMMITTED
    assert kafka.happened["empty"] == 2


def test_a_ledger_on_a_slow_store_is_read_to_its_end() -> None:
    log = log_of(2)
    log.write(b"no decision", key=b"p")
    kafka = ScriptedKafka(ledger=[log])
    where = TopicPartition("ledger", 0)
    kafka.empty_answers(where, 3)

    with pytest.raises(LedgerUnreadable) as caught:
        Ledger(ScriptedCluster(kafka), "ledger", "p", fresh=True).newest(settle=True)

    assert caught.value.facts["offset"] == 2  # the record was read
    assert kafka.happened["empty"] == 3


def test_a_ledger_partition_with_a_marker_that_compaction_emptied_is_read() -> None:
    log = Log()
    log.write(b"another pipeline's", key=b"other", producer_id=7, transactional=True)
    log.mark(7, commit=True)
    log.write(b"no decision", key=b"p")
    log.batches[1].data = without_records(log.batches[1].data)
    kafka = ScriptedKafka(ledger=[log])

    assert Ledger(ScriptedCluster(kafka), "ledger", "another", fresh=True).newest(settle=True) is None
    with pytest.raises(LedgerUnreadable):
        Ledger(ScriptedCluster(kafka), "ledger", "p", fresh=True).newest(settle=True)
