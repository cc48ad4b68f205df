"""A range ends by what the log holds, never by an answer that holds nothing."""

from __future__ import annotations

import pytest

from kafka_core.errors import BrokerUnavailable, DataLoss, ProtocolViolation
from kafka_core.protocol.error_codes import Code
from kafka_core.values import TopicPartition
from pyspark_kafka_eos.client.reading.fetcher import Fetcher, OffsetRange
from tests.pyspark_kafka_eos.client.fetcher.scripted import (
    Log,
    ScriptedCluster,
    ScriptedKafka,
    an_id,
    without_records,
)

pytestmark = pytest.mark.usefixtures("pauses_take_no_time")

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def log_of(count: int) -> Log:
    """A log with a batch for each of so many records."""
    log = Log()
    for number in range(count):
        log.write(b"%d" % number)
    return log


def values(fetcher: Fetcher, *ranges: OffsetRange) -> list[bytes | None]:
    """What comes out, in its order."""
    return [value for batch in fetcher.read_ranges(ranges) for value in batch.column("value").to_pylist()]


def numbers(start: int, end: int) -> list[bytes]:
    """The values of `log_of` between two offsets."""
    return [b"%d" % number for number in range(start, end)]


@pytest.mark.parametrize("times", [1, 2, 7])
@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_an_empty_answer_ends_no_range(isolation: str, times: int) -> None:
    kafka = ScriptedKafka(t=[log_of(5)])
    kafka.empty_answers(T0, times)

    found = values(Fetcher(ScriptedCluster(kafka), isolation), OffsetRange(T0, 0, 5))

    assert kafka.happened["empty"] == times
    assert found == numbers(0, 5)


def test_an_empty_answer_in_the_middle_of_a_range_ends_nothing() -> None:
    kafka = ScriptedKafka(t=[log_of(6)])
    kafka.changes[T0] = [None]
    kafka.empty_answers(T0, 3)
    one_batch = len(kafka.logs[T0].batches[0].data)

    found = values(Fetcher(ScriptedCluster(kafka), fetch_bytes=one_batch), OffsetRange(T0, 0, 6))

    assert kafka.happened["empty"] == 3
    assert found == numbers(0, 6)


def test_a_store_that_never_answers_is_said_with_partition_and_offset_and_nothing_is_skipped() -> None:
    kafka = ScriptedKafka(t=[log_of(5)])
    kafka.changes[T0] = [None]
    kafka.empty_answers(T0, 10_000)
    one_batch = len(kafka.logs[T0].batches[0].data)
    batches = Fetcher(ScriptedCluster(kafka), fetch_bytes=one_batch).read_ranges([OffsetRange(T0, 0, 5)])

    assert next(batches).column("value").to_pylist() == [b"0"]
    with pytest.raises(BrokerUnavailable, match=r"t-0 returned no records from offset 1 .*remote store") as caught:
        next(batches)

    assert caught.value.facts == {"partition": "t-0", "offset": 1, "end": 5}
    assert kafka.happened["empty"] > 10


def test_after_an_empty_answer_the_broker_gets_more_time_on_another_connection() -> None:
    kafka = ScriptedKafka(t=[log_of(2)])
    kafka.empty_answers(T0, 6)

    assert values(Fetcher(ScriptedCluster(kafka)), OffsetRange(T0, 0, 2)) == numbers(0, 2)

    waits = [request.max_wait_ms for api, request in kafka.asked if api == "Fetch" and request.isolation_level == 1]
    assert waits == [250, 500, 1000, 2000, 4000, 8000, 8000]
    assert kafka.happened["connection patient"] == 6


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_a_tail_that_compaction_removed_ends_by_the_batch_behind_it(isolation: str) -> None:
    log = log_of(5)
    log.compact(2, 5)
    log.write(b"behind")
    kafka = ScriptedKafka(t=[log])

    assert values(Fetcher(ScriptedCluster(kafka), isolation), OffsetRange(T0, 0, 5)) == numbers(0, 2)


def test_a_tail_that_compaction_removed_before_an_open_transaction_ends_by_that_transaction() -> None:
    log = log_of(5)
    log.compact(2, 5)
    log.stable = log.write(b"open", producer_id=7, transactional=True)
    kafka = ScriptedKafka(t=[log])

    assert values(Fetcher(ScriptedCluster(kafka)), OffsetRange(T0, 0, 5)) == numbers(0, 2)


def test_a_slow_store_before_an_open_transaction_ends_nothing() -> None:
    log = log_of(5)
    log.stable = log.write(b"open", producer_id=7, transactional=True)
    kafka = ScriptedKafka(t=[log])
    kafka.empty_answers(T0, 5)

    found = values(Fetcher(ScriptedCluster(kafka)), OffsetRange(T0, 0, 5))

    assert kafka.happened["empty"] == 5
    assert found == numbers(0, 5)


def test_a_removed_tail_with_nothing_behind_it_is_no_shorter_range_but_an_error_that_says_what_helps() -> None:
    log = log_of(5)
    log.compact(2, 5)
    kafka = ScriptedKafka(t=[log])
    batches = Fetcher(ScriptedCluster(kafka)).read_ranges([OffsetRange(T0, 0, 5)])

    assert next(batches).column("value").to_pylist() == numbers(0, 2)
    with pytest.raises(BrokerUnavailable, match="the next record written to the partition ends the wait"):
        next(batches)

    log.write(b"behind")
    assert values(Fetcher(ScriptedCluster(kafka)), OffsetRange(T0, 0, 5)) == numbers(0, 2)


def test_a_partition_that_stays_empty_beside_one_that_flows_is_read_too() -> None:
    kafka = ScriptedKafka(t=[log_of(4), log_of(4)])
    kafka.empty_answers(T0, 3)
    fetcher = Fetcher(ScriptedCluster(kafka))

    found = values(fetcher, OffsetRange(T0, 0, 4), OffsetRange(T1, 0, 4))

    assert kafka.happened["empty"] == 3
    assert sorted(found, key=str) == sorted(2 * numbers(0, 4), key=str)


def test_batches_without_records_count_as_read() -> None:
    log = Log()
    log.write(b"gone", producer_id=7, transactional=True)
    log.mark(7, commit=False)
    log.write(b"kept")
    for stored in log.batches[:2]:
        stored.data = without_records(stored.data)
    log.aborted = [(0, 7)]
    kafka = ScriptedKafka(t=[log])

    assert values(Fetcher(ScriptedCluster(kafka)), OffsetRange(T0, 0, 3)) == [b"kept"]
    assert kafka.fetches() == 1


@pytest.mark.parametrize(
    "code",
    [
        Code.OFFSET_NOT_AVAILABLE, Code.UNKNOWN_LEADER_EPOCH, Code.FENCED_LEADER_EPOCH, Code.KAFKA_STORAGE_ERROR,
        Code.UNKNOWN_SERVER_ERROR, Code.CORRUPT_MESSAGE,
    ],
)  # fmt: skip
def test_what_may_pass_is_asked_again(code: Code) -> None:
    kafka = ScriptedKafka(t=[log_of(3)])
    kafka.codes(T0, code, code)

    found = values(Fetcher(ScriptedCluster(kafka)), OffsetRange(T0, 0, 3))

    assert kafka.happened[code.name] == 2
    assert found == numbers(0, 3)


def test_a_refusal_of_a_whole_answer_is_no_throttling() -> None:
    kafka = ScriptedKafka(t=[log_of(3)])
    cluster = ScriptedCluster(kafka)
    plain = kafka.answer

    def refused(node: object, request: object) -> object:
        answer = plain(node, request)
        if hasattr(answer, "responses"):
            answer.error_code, answer.responses = int(Code.INVALID_REQUEST), []
        return answer

    kafka.answer = refused  # type: ignore[method-assign]

    with pytest.raises(ProtocolViolation, match="INVALID_REQUEST"):
        list(Fetcher(cluster).read_ranges([OffsetRange(T0, 0, 3)]))


def test_a_range_given_up_at_one_leader_is_none_of_the_other_leaders_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pyspark_kafka_eos.client.reading.fetcher._UNKNOWN_TOPIC_PATIENCE_MS", 0)
    logs = [log_of(3), log_of(3)]
    logs[1].leader = 2
    kafka = ScriptedKafka(t=logs)
    cluster = ScriptedCluster(kafka)
    waiting = HeldAnswers(cluster)

    def shrink() -> None:
        # Made anew with one partition, while the answers of both leaders are on their way.
        del kafka.logs[T1]
        kafka.topic_ids["t"] = an_id("another")

    kafka.codes(T0, Code.NOT_LEADER_OR_FOLLOWER)
    waiting.then(shrink)

    found = values(Fetcher(cluster, fail_on_data_loss=False), OffsetRange(T0, 0, 3), OffsetRange(T1, 0, 3))

    assert waiting.held == 2
    # Nothing of the new topic: the next plan begins it.
    assert found == []


def test_a_range_given_up_stops_a_query_that_may_not_lose_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark_kafka_eos.client.reading.fetcher._UNKNOWN_TOPIC_PATIENCE_MS", 0)
    logs = [log_of(3), log_of(3)]
    logs[1].leader = 2
    kafka = ScriptedKafka(t=logs)
    kafka.codes(T1, Code.NOT_LEADER_OR_FOLLOWER)

    def shrink() -> None:
        del kafka.logs[T1]
        kafka.topic_ids["t"] = an_id("another")

    kafka.before[1] = shrink

    with pytest.raises(DataLoss, match="t-1: the partition is gone"):
        list(Fetcher(ScriptedCluster(kafka)).read_ranges([OffsetRange(T0, 0, 3), OffsetRange(T1, 0, 3)]))


class HeldAnswers:
    """Holds the first answers of both leaders until both are asked, then gives them out one after the other."""

    def __init__(self, cluster: ScriptedCluster) -> None:
        self.held = 0
        self._answers: list[tuple[object, object]] = []
        self._event = lambda: None
        self._plain = cluster.network.send_on_loop
        cluster.network.send_on_loop = self._send  # type: ignore[method-assign,assignment]

    def then(self, event: object) -> None:
        """What happens when both are held."""
        self._event = event  # type: ignore[assignment]

    def _send(self, node: object, request: object, done: object) -> None:
        if self.held == 2:
            self._plain(node, request, done)  # type: ignore[arg-type]
            return
        self.held += 1
        self._plain(node, request, lambda answer: self._answers.append((done, answer)))  # type: ignore[arg-type,return-value]
        if self.held == 2:
            self._event()
            for give, answer in self._answers:
                give(answer)  # type: ignore[operator]


def test_a_partition_that_never_comes_is_not_hidden_by_one_that_flows() -> None:
    kafka = ScriptedKafka(t=[log_of(3), log_of(500)])
    kafka.empty_answers(T0, 10_000)
    one_batch = len(kafka.logs[T1].batches[0].data)
    fetcher = Fetcher(ScriptedCluster(kafka), fetch_bytes=one_batch)
    found: list[object] = []

    with pytest.raises(BrokerUnavailable, match="t-0 returned no records from offset 0"):
        found.extend(fetcher.read_ranges([OffsetRange(T0, 0, 3), OffsetRange(T1, 0, 500)]))

    assert 0 < len(found) < 500
