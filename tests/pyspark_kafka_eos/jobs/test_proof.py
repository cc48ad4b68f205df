"""The checker is checked: each way in which a result can be wrong is planted, and must be rejected."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from embedded_kafka.embedded import EmbeddedKafka
from spark_jobs.demo import Outcome, report
from spark_jobs.proof import Look, Observed, Record, judge, observe
from tests.conftest import MakeTopic
from tests.support.brokers import AnyKafka, settle

WITHIN_S = 60
ADDITIONS = {"carrier": {"UA": {"airline": "United"}}}


def given(count: int) -> tuple[Record, ...]:
    """Input records with ids from 0."""
    return tuple((b"k%d" % n, json.dumps({"id": n, "carrier": "UA"}).encode()) for n in range(count))


def enriched(number: int, **changes: object) -> Record:
    """The output record of an input record."""
    body = {"id": number, "carrier": "UA", "airline": "United", **changes}
    return b"k%d" % number, json.dumps(body).encode()


RIGHT = Observed(
    given=given(4),
    committed=tuple(enriched(n) for n in range(4)),
    uncommitted=7,
    still_open=0,
    group_offsets={0: 3, 1: 1},
    end_offsets={0: 3, 1: 1},
)


def test_a_right_result_is_accepted_with_its_counts() -> None:
    proof = judge(RIGHT, ADDITIONS)

    assert proof.exactly_once
    assert (proof.records_in, proof.records_out, proof.duplicate, proof.missing) == (4, 4, 0, 0)
    assert proof.aborted_invisible == 3


def test_the_order_of_the_output_does_not_matter() -> None:
    assert judge(replace(RIGHT, committed=RIGHT.committed[::-1]), ADDITIONS).exactly_once


def test_a_duplicate_is_rejected() -> None:
    proof = judge(replace(RIGHT, committed=(*RIGHT.committed, enriched(2), enriched(2))), ADDITIONS)

    assert proof.problems == ("duplicate: 2",)


def test_a_missing_record_is_rejected() -> None:
    proof = judge(replace(RIGHT, committed=RIGHT.committed[1:]), ADDITIONS)

    assert proof.problems == ("missing: 1",)


def test_a_duplicate_does_not_make_up_for_a_missing_record() -> None:
    proof = judge(replace(RIGHT, committed=(*RIGHT.committed[1:], enriched(3))), ADDITIONS)

    assert proof.records_out == proof.records_in
    assert proof.problems == ("duplicate: 1", "missing: 1")


@pytest.mark.parametrize("value", [b'{"id": 99}', b"no json", b"[]", b"{}", None])
def test_a_record_that_nobody_sent_is_rejected(value: bytes | None) -> None:
    proof = judge(replace(RIGHT, committed=(*RIGHT.committed, (None, value))), ADDITIONS)

    assert proof.problems == ("strange: 1",)


@pytest.mark.parametrize(
    "record",
    [enriched(0, airline="Delta"), enriched(0, extra=1), (b"other key", enriched(0)[1]), given(1)[0]],
)
def test_a_record_with_another_key_or_content_is_rejected(record: Record) -> None:
    proof = judge(replace(RIGHT, committed=(record, *RIGHT.committed[1:])), ADDITIONS)

    assert proof.problems == ("wrong: 1",)


def test_records_of_a_transaction_that_is_still_open_are_rejected() -> None:
    assert judge(replace(RIGHT, still_open=5), ADDITIONS).problems == ("still open: 5",)


def test_a_reader_of_everything_that_sees_less_is_rejected() -> None:
    (problem,) = judge(replace(RIGHT, uncommitted=3), ADDITIONS).problems

    assert "1 records more than read_uncommitted" in problem


@pytest.mark.parametrize(
    "group_offsets",
    [{0: 3, 1: 0}, {0: 3}, {0: 3, 1: 1, 2: 1}, {}],
    ids=["behind", "none", "too many", "empty"],
)
def test_group_offsets_that_are_not_the_ends_of_the_input_are_rejected(group_offsets: dict[int, int]) -> None:
    problems = judge(replace(RIGHT, group_offsets=group_offsets), ADDITIONS).problems

    assert problems
    assert all("the group's committed offset is" in problem for problem in problems)


def test_an_empty_input_proves_nothing() -> None:
    empty = Observed((), (), 0, 0, {}, {})

    assert not judge(empty, ADDITIONS).exactly_once


def test_an_input_that_repeats_an_id_is_not_judged() -> None:
    with pytest.raises(ValueError, match="not sound"):
        judge(replace(RIGHT, given=(*RIGHT.given, RIGHT.given[0])), ADDITIONS)


def test_the_report_of_a_wrong_result_says_so_and_names_each_problem() -> None:
    proof = judge(replace(RIGHT, committed=(*RIGHT.committed[1:], enriched(3)), group_offsets={0: 3}), ADDITIONS)

    text = report(Outcome(proof, kills=(), batches=1))

    assert "PROVEN: every" not in text
    assert "NOT PROVEN:" in text
    assert all(problem in text for problem in proof.problems)
    assert len(proof.problems) == 3


def test_the_report_of_a_right_result_shows_its_counts() -> None:
    text = report(Outcome(judge(RIGHT, ADDITIONS), kills=(), batches=1))

    assert "PROVEN: every flight is in the output exactly once." in text
    assert "NOT PROVEN" not in text


# ---- the same with a real broker: that the client sees what was planted


def write(kafka: AnyKafka, topic: str, records: Sequence[Record], *, end: str = "commit") -> Producer:
    """Write in one transaction that ends as told; "open" leaves it open."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": f"{topic}-{end}"})
    producer.init_transactions(WITHIN_S)
    producer.begin_transaction()
    for key, value in records:
        producer.produce(topic, value, key)
    producer.flush(WITHIN_S)
    if end == "commit":
        producer.commit_transaction(WITHIN_S)
    elif end == "abort":
        producer.abort_transaction(WITHIN_S)
    if end != "open":
        settle(kafka.bootstrap_servers, topic)
    return producer


def commit_offset(kafka: AnyKafka, group: str, topic: str, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": group})
    consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    consumer.close()


@pytest.mark.kafka
class TestWithABroker:
    """Planted in topics of one partition."""

    @pytest.fixture
    def topics(self, kafka: AnyKafka, topic: MakeTopic) -> tuple[str, str]:
        """Input with 4 records and a commit marker behind them, and an empty output."""
        names = topic(partitions=1), topic(partitions=1)
        write(kafka, names[0], given(4))
        return names

    def observed(self, kafka: AnyKafka, topics: tuple[str, str]) -> Observed:
        return observe(kafka.bootstrap_servers, given=topics[0], written=topics[1], group=topics[1])

    def test_aborted_records_are_counted_and_not_taken_for_output(
        self, kafka: AnyKafka, topics: tuple[str, str]
    ) -> None:
        write(kafka, topics[1], [enriched(n) for n in range(3)], end="abort")
        write(kafka, topics[1], [enriched(n) for n in range(4)])
        commit_offset(kafka, topics[1], topics[0], 5)

        proof = judge(self.observed(kafka, topics), ADDITIONS)

        assert proof.problems == ()
        assert (proof.records_out, proof.aborted_invisible) == (4, 3)
        assert proof.end_offsets == {0: 5}

    def test_a_batch_that_was_committed_twice_is_rejected(self, kafka: AnyKafka, topics: tuple[str, str]) -> None:
        write(kafka, topics[1], [enriched(n) for n in range(4)])
        write(kafka, topics[1], [enriched(n) for n in range(2)])
        commit_offset(kafka, topics[1], topics[0], 5)

        assert judge(self.observed(kafka, topics), ADDITIONS).problems == ("duplicate: 2",)

    def test_an_open_transaction_is_rejected(self, kafka: AnyKafka, topics: tuple[str, str]) -> None:
        write(kafka, topics[1], [enriched(n) for n in range(3)])
        left_open = write(kafka, topics[1], [enriched(3)], end="open")
        commit_offset(kafka, topics[1], topics[0], 5)

        problems = judge(self.observed(kafka, topics), ADDITIONS).problems

        assert problems == ("missing: 1", "still open: 1")
        left_open.abort_transaction(WITHIN_S)

    def test_a_group_that_is_one_offset_behind_is_rejected(self, kafka: AnyKafka, topics: tuple[str, str]) -> None:
        write(kafka, topics[1], [enriched(n) for n in range(4)])
        commit_offset(kafka, topics[1], topics[0], 4)

        (problem,) = judge(self.observed(kafka, topics), ADDITIONS).problems

        assert problem == "partition 0: the group's committed offset is 4, the input ends at 5"

    def test_a_group_that_has_committed_nothing_is_rejected(self, kafka: AnyKafka, topics: tuple[str, str]) -> None:
        write(kafka, topics[1], [enriched(n) for n in range(4)])

        assert not judge(self.observed(kafka, topics), ADDITIONS).exactly_once


@pytest.mark.embedded
@pytest.mark.kafka
@pytest.mark.parametrize("code", ["NOT_LEADER_OR_FOLLOWER", "LEADER_NOT_AVAILABLE"])
def test_ends_are_asked_again_while_a_new_topic_has_no_leader_yet(
    kafka: EmbeddedKafka, topic: MakeTopic, code: str
) -> None:
    """Apache Kafka 4.3.1 answered so right after a topic was made."""
    fault = kafka.fault("ListOffsets", "error", code=code, times=2)

    with closing(Look(kafka.bootstrap_servers)) as look:
        assert look.end_offsets(topic(1)) == {0: 0}

    assert fault.fired == 2
