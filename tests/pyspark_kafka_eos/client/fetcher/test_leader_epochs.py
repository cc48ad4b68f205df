"""A log that lost records to an election, or that was recreated, is noticed: what can be known of it says so
(KIP-320).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kafka_core.errors import BrokerUnavailable, DataLoss
from kafka_core.protocol import messages as m
from kafka_core.protocol.error_codes import Code
from kafka_core.values import TopicPartition
from pyspark_kafka_eos.client.reading.fetcher import Fetcher, OffsetRange
from pyspark_kafka_eos.client.reading.leader_epochs import lost_logs
from pyspark_kafka_eos.client.reading.offsets import LogMark, Offsets
from tests.pyspark_kafka_eos.client.fetcher.scripted import Log, ScriptedCluster, ScriptedKafka, an_id

pytestmark = pytest.mark.usefixtures("pauses_take_no_time")

T0 = TopicPartition("t", 0)


def log_of(count: int) -> Log:
    """A log with a batch for each of so many records."""
    log = Log()
    for number in range(count):
        log.write(b"%d" % number)
    return log


def one_by_one(kafka: ScriptedKafka) -> int:
    """So few bytes per Fetch that each brings one record."""
    return len(kafka.logs[T0].batches[0].data)


def numbers(start: int, end: int) -> list[bytes]:
    """The values of `log_of` between two offsets."""
    return [b"%d" % number for number in range(start, end)]


def read(kafka: ScriptedKafka, each: OffsetRange, *, lenient: bool = False) -> tuple[list[Any], DataLoss | None]:
    """What comes out one by one, and the loss that ends it, if any."""
    fetcher = Fetcher(ScriptedCluster(kafka), fail_on_data_loss=not lenient, fetch_bytes=one_by_one(kafka))
    found: list[Any] = []
    try:
        for batch in fetcher.read_ranges([each]):
            found += batch.column("value").to_pylist()
    except DataLoss as loss:
        return found, loss
    return found, None


def unclean(kafka: ScriptedKafka, cut_to: int, *then: bytes) -> Callable[[], None]:
    """An election of a leader whose log ends earlier, and what is written to it."""

    def happen() -> None:
        kafka.logs[T0].elect(2, cut_to=cut_to)
        for value in then:
            kafka.logs[T0].write(value)
        kafka.happened["unclean"] += 1

    return happen


def test_a_clean_election_costs_one_question_and_no_record() -> None:
    kafka = ScriptedKafka(t=[log_of(6)])
    kafka.before[3] = lambda: kafka.logs[T0].elect(2)

    found, loss = read(kafka, OffsetRange(T0, 0, 6))

    assert loss is None
    assert found == numbers(0, 6)
    assert kafka.happened["epoch asked"] == 1


def test_a_log_that_was_cut_below_what_was_read_is_lost_data() -> None:
    kafka = ScriptedKafka(t=[log_of(6)])
    kafka.before[4] = unclean(kafka, 1, b"a", b"b", b"c", b"d", b"e", b"f")

    found, loss = read(kafka, OffsetRange(T0, 0, 6))

    assert kafka.happened["unclean"] == 1
    assert found == numbers(0, len(found))
    assert loss is not None
    assert "unclean election" in loss.message
    assert loss.facts["cut"] == 1


def test_a_log_that_was_cut_and_grew_again_before_it_was_read_is_noticed_by_what_was_planned() -> None:
    kafka = ScriptedKafka(t=[log_of(6)])
    planned = OffsetRange(T0, 2, 6, LogMark(kafka.topic_ids["t"], 0))
    unclean(kafka, 3, b"a", b"b", b"c", b"d")()

    found, loss = read(kafka, planned)

    assert found == []
    assert loss is not None
    assert loss.facts["cut"] == 3


def test_a_log_that_was_cut_above_what_was_read_and_grew_again_is_noticed_by_what_was_planned() -> None:
    kafka = ScriptedKafka(t=[log_of(6)])
    kafka.before[3] = unclean(kafka, 4, b"a", b"b", b"c")

    found, loss = read(kafka, OffsetRange(T0, 0, 6, LogMark(kafka.topic_ids["t"], 0)))

    assert kafka.happened["unclean"] == 1
    assert found == numbers(0, 2)
    assert loss is not None


def test_a_clean_election_after_the_planning_is_none_of_that() -> None:
    kafka = ScriptedKafka(t=[log_of(6)])
    planned = OffsetRange(T0, 2, 6, LogMark(kafka.topic_ids["t"], 0))
    kafka.logs[T0].elect(2)
    kafka.logs[T0].write(b"more")

    assert read(kafka, planned) == (numbers(2, 6), None)


def test_a_leader_that_never_saw_the_epoch_of_what_was_read_is_noticed_however_long_its_log_is() -> None:
    log = log_of(2)
    log.elect(1)
    for number in range(2, 6):
        log.write(b"%d" % number)
    kafka = ScriptedKafka(t=[log])

    def longer_log_of_an_older_leader() -> None:
        # What epoch 1 wrote was never seen here; epoch 0 went on further, as far as this broker knows.
        log.elect(2, cut_to=2)
        for number in range(2, 9):
            log.write(b"other %d" % number)
        log.epochs = [(0, 0), (2, 9)]

    kafka.before[5] = longer_log_of_an_older_leader

    found, loss = read(kafka, OffsetRange(T0, 0, 6))

    assert found == numbers(0, 4)
    assert loss is not None


@pytest.mark.parametrize("cut_to", [1, 3, 5])
@pytest.mark.parametrize("before", [1, 4])
def test_where_loss_is_allowed_a_range_ends_where_its_log_was_cut_and_what_took_the_place_is_read_once(
    caplog: pytest.LogCaptureFixture, cut_to: int, before: int
) -> None:
    kafka = ScriptedKafka(t=[log_of(6)])
    kafka.before[before] = unclean(kafka, cut_to, b"a", b"b", b"c", b"d", b"e", b"f")

    planned = OffsetRange(T0, 0, 6, LogMark(kafka.topic_ids["t"], 0))
    found, loss = read(kafka, planned, lenient=True)
    # As `KnownLogs.other_logs` plans it.
    following, _ = read(kafka, OffsetRange(T0, cut_to, cut_to + 6), lenient=True)

    assert loss is None
    assert found == numbers(0, len(found)) and len(found) >= min(cut_to, before - 1)
    assert following == [b"a", b"b", b"c", b"d", b"e", b"f"]
    assert "unclean election" in caplog.text


def test_where_nobody_knows_where_a_log_was_cut_the_range_is_read_as_it_is_now() -> None:
    kafka = ScriptedKafka(t=[log_of(6)])
    planned = OffsetRange(T0, 2, 6, LogMark(kafka.topic_ids["t"], 0))

    def another_log() -> None:
        unclean(kafka, 0, *[b"%d'" % number for number in range(8)])()
        kafka.logs[T0].epochs = []

    kafka.before[1] = another_log

    assert read(kafka, planned, lenient=True) == ([b"2'", b"3'", b"4'", b"5'"], None)


def test_a_topic_that_was_recreated_is_lost_data() -> None:
    kafka = ScriptedKafka(t=[log_of(6)])

    found, loss = read(kafka, OffsetRange(T0, 0, 6, LogMark(an_id("the first"), 0)))

    assert found == []
    assert loss is not None
    assert "recreated" in loss.message


def test_an_id_that_a_lagging_broker_does_not_know_yet_is_waited_for() -> None:
    kafka = ScriptedKafka(t=[log_of(3)])
    right = kafka.topic_ids["t"]

    def older(answer: Any) -> None:
        answer.topics[0].topic_id = an_id("the first")

    kafka.metadata = [older, older]

    assert read(kafka, OffsetRange(T0, 0, 3, LogMark(right, 0))) == (numbers(0, 3), None)
    assert kafka.happened["metadata changed"] == 2


def test_a_leader_older_than_the_planned_one_is_not_read_from() -> None:
    log = log_of(3)
    kafka = ScriptedKafka(t=[log])
    planned = OffsetRange(T0, 0, 3, LogMark(kafka.topic_ids["t"], 1))
    kafka.before[3] = lambda: log.elect(2)

    assert read(kafka, planned) == (numbers(0, 3), None)
    epochs = [
        topic.partitions[0].current_leader_epoch
        for api, request in kafka.asked
        if api == "Fetch"
        for topic in request.topics
    ]
    assert set(epochs) == {1}


def test_a_leader_that_gives_no_definite_answer_is_asked_again() -> None:
    kafka = ScriptedKafka(t=[log_of(4)])
    kafka.before[2] = lambda: kafka.logs[T0].elect(2)
    plain = kafka.answer
    refusals = [Code.OFFSET_NOT_AVAILABLE, Code.UNKNOWN_LEADER_EPOCH]

    def loading(node: object, request: Any) -> Any:
        answer = plain(node, request)
        if request.API_KEY == m.OffsetForLeaderEpochRequest.API_KEY and refusals:
            answer.topics[0].partitions[0].error_code = int(refusals.pop())
        return answer

    kafka.answer = loading  # type: ignore[method-assign]

    assert read(kafka, OffsetRange(T0, 0, 4)) == (numbers(0, 4), None)
    assert refusals == []


def test_a_leader_that_never_gives_one_is_an_error_in_time() -> None:
    kafka = ScriptedKafka(t=[log_of(4)])
    kafka.before[2] = lambda: kafka.logs[T0].elect(2)
    plain = kafka.answer

    def loading(node: object, request: Any) -> Any:
        answer = plain(node, request)
        if request.API_KEY == m.OffsetForLeaderEpochRequest.API_KEY:
            answer.topics[0].partitions[0].error_code = int(Code.OFFSET_NOT_AVAILABLE)
        return answer

    kafka.answer = loading  # type: ignore[method-assign]

    with pytest.raises(BrokerUnavailable, match="OFFSET_NOT_AVAILABLE"):
        read(kafka, OffsetRange(T0, 0, 4))


def test_brokers_that_do_not_know_epochs_are_read_all_the_same() -> None:
    kafka = ScriptedKafka(t=[log_of(4)])
    kafka.before[2] = lambda: kafka.logs[T0].elect(2)
    cluster = ScriptedCluster(kafka)
    del cluster.offered[m.OffsetForLeaderEpochRequest.API_KEY]

    batches = Fetcher(cluster, fetch_bytes=one_by_one(kafka)).read_ranges([OffsetRange(T0, 0, 4)])

    assert [batch.column("value").to_pylist() for batch in batches] == [[each] for each in numbers(0, 4)]
    assert kafka.happened["epoch asked"] == 0


def test_an_answer_that_an_earlier_leader_gave_is_not_used_when_it_comes_late() -> None:
    kafka = ScriptedKafka(t=[log_of(4), log_of(4)])
    for number, leader in ((0, 1), (1, 2)):
        kafka.logs[TopicPartition("t", number)].leader = leader
    cluster = ScriptedCluster(kafka)
    send = cluster.network.send_on_loop
    late: list[Callable[[], None]] = []

    def slow(node: object, request: Any, done: Any) -> None:
        # The first answer of broker 1 comes after all that broker 2 says, and after an election took its records away.
        if node == 1 and not late:
            send(node, request, lambda answer: late.append(lambda: done(answer)))  # type: ignore[arg-type]
            return
        if node == 2 and len(late) == 1:
            unclean(kafka, 0, b"a", b"b", b"c", b"d")()
            cluster.refresh_topics(["t"])
            send(node, request, done)
            late[0]()
            late.append(lambda: None)
            return
        send(node, request, done)  # type: ignore[arg-type]

    cluster.network.send_on_loop = slow  # type: ignore[method-assign,assignment]
    ranges = [OffsetRange(TopicPartition("t", number), 0, 4) for number in (0, 1)]

    found = [
        (batch.column("partition")[0].as_py(), value)
        for batch in Fetcher(cluster).read_ranges(ranges)
        for value in batch.column("value").to_pylist()
    ]

    assert kafka.happened["unclean"] == 1
    assert sorted(value for partition, value in found if partition == 0) == [b"a", b"b", b"c", b"d"]


def test_a_loss_that_is_allowed_is_said_once_and_forgotten(caplog: pytest.LogCaptureFixture) -> None:
    kafka = ScriptedKafka(t=[log_of(6)])
    kafka.before[2] = unclean(kafka, 4, b"a", b"b", b"c", b"d", b"e", b"f")
    kafka.before[4] = lambda: kafka.logs[T0].elect(1)

    found, loss = read(kafka, OffsetRange(T0, 0, 6, LogMark(kafka.topic_ids["t"], 0)), lenient=True)

    assert loss is None
    assert found == numbers(0, 4)
    assert caplog.text.count("unclean election") == 1


def test_where_loss_is_allowed_a_topic_that_was_recreated_is_left_to_the_next_plan(
    caplog: pytest.LogCaptureFixture,
) -> None:
    kafka = ScriptedKafka(t=[log_of(6)])
    planned = OffsetRange(T0, 0, 6, LogMark(an_id("the first"), 3))

    assert read(kafka, planned, lenient=True) == ([], None)
    assert caplog.text.count("recreated") == 1


@pytest.mark.parametrize("lenient", [False, True])
@pytest.mark.parametrize("fetch", [m.FETCH_BY_ID, m.FETCH_BY_ID - 1], ids=["by id", "by name"])
@pytest.mark.parametrize("after", [0, 2], ids=["before the first answer", "half read"])
def test_a_reader_that_knows_the_topic_reads_nothing_of_one_recreated(
    after: int, fetch: int, lenient: bool, caplog: pytest.LogCaptureFixture
) -> None:
    kafka = ScriptedKafka(t=[log_of(6)])
    cluster = ScriptedCluster(kafka)
    cluster.offered[m.FetchRequest.API_KEY] = (0, fetch)
    planned = OffsetRange(T0, 0, 6, Offsets(cluster).ends([T0])[T0].log)
    size = one_by_one(kafka)

    def recreated() -> None:
        # Of the same leader and epoch, and as long.
        kafka.logs[T0] = Log()
        for _ in range(6):
            kafka.logs[T0].write(b"other")
        kafka.topic_ids["t"] = an_id("another")

    kafka.before[1 + after] = recreated
    found: list[Any] = []
    loss: DataLoss | None = None
    try:
        for batch in Fetcher(cluster, fail_on_data_loss=not lenient, fetch_bytes=size).read_ranges([planned]):
            found += batch.column("value").to_pylist()
    except DataLoss as error:
        loss = error

    assert found == numbers(0, after)
    if lenient:
        assert loss is None and "recreated" in caplog.text
    else:
        assert loss is not None
        assert (loss.facts["topic_id"], loss.facts["found"]) == (an_id("t"), an_id("another"))


def test_a_log_that_lost_what_a_query_had_come_to_is_noticed_before_the_query_goes_on() -> None:
    kafka = ScriptedKafka(t=[log_of(6)])
    cluster = ScriptedCluster(kafka)
    end = Offsets(cluster).ends([T0])[T0]
    unclean(kafka, 3, b"a", b"b", b"c", b"d")()

    again = Offsets(cluster).ends([T0])[T0]

    assert again.offset > end.offset  # by offsets alone nothing is wrong
    assert "up to offset 5" in lost_logs(cluster, {T0: (end.log, 5)})[T0].why
    assert lost_logs(cluster, {T0: (end.log, 3)}) == {}


def test_a_log_with_a_new_leader_that_has_everything_is_not_lost() -> None:
    kafka = ScriptedKafka(t=[log_of(6)])
    cluster = ScriptedCluster(kafka)
    end = Offsets(cluster).ends([T0])[T0]
    kafka.logs[T0].elect(2)
    Offsets(cluster).ends([T0])

    assert lost_logs(cluster, {T0: (end.log, end.offset)}) == {}
    assert kafka.happened["epoch asked"] == 1


def test_a_topic_recreated_is_another_log_however_long_it_is() -> None:
    kafka = ScriptedKafka(t=[log_of(6)])
    cluster = ScriptedCluster(kafka)
    end = Offsets(cluster).ends([T0])[T0]
    kafka.topic_ids["t"] = an_id("another")
    Offsets(cluster).partitions_of(["t"])

    assert "recreated" in lost_logs(cluster, {T0: (end.log, 6)})[T0].why


def test_a_leader_that_does_not_say_loses_nothing() -> None:
    kafka = ScriptedKafka(t=[log_of(6)])
    cluster = ScriptedCluster(kafka)
    end = Offsets(cluster).ends([T0])[T0]
    kafka.logs[T0].elect(2)
    Offsets(cluster).ends([T0])
    kafka.logs[T0].elect(3)  # nobody is told: every question goes to a broker that no longer leads
    kafka.metadata = [lambda answer: answer.topics[0].partitions.clear()] * 10_000

    assert lost_logs(cluster, {T0: (end.log, 6)}, patience_ms=50) == {}
