"""No answer of a hostile peer stops the client, takes its memory or gets a foreign error out of it.

The 50,000 of the long test take half an hour: `python -m tests.pyspark_kafka_eos.client.hostile --answers 50000` prints
their table.
"""

from __future__ import annotations

import random
import threading
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_core.errors import BrokerUnavailable, ExactlyOnceError, ProtocolViolation
from kafka_core.protocol import messages as m
from pyspark_kafka_eos.client.net.network import Network
from pyspark_kafka_eos.client.net.sessions import planned_ms
from pyspark_kafka_eos.client.topic_info import PARTITIONS_AT_MOST, merged
from pyspark_kafka_eos.client.wire.answer_frames import BadAnswer
from tests.pyspark_kafka_eos.client.client_tools import fed
from tests.pyspark_kafka_eos.client.hostile import mutations
from tests.pyspark_kafka_eos.client.hostile.operations import (
    LIMIT_MS,
    OPERATIONS,
    Impatient,
    PauseTooLong,
    settings,
)
from tests.pyspark_kafka_eos.client.hostile.peer import Peer, Plan, Sent, settle
from tests.pyspark_kafka_eos.client.hostile.play import Door, Player, doors, table
from tests.pyspark_kafka_eos.client.hostile.reading import framed, read_answer, talk_about
from tests.pyspark_kafka_eos.client.hostile.recording import Conversation, decoded, encoded

IN_MEMORY, PLAYED, LONG = 2_000, 120, 50_000
NODE = 0
FETCH, METADATA, DESCRIBE_CONFIGS = 1, 3, 32


@pytest.mark.slow
def test_two_thousand_changed_answers_are_read_or_refused_within_their_memory() -> None:
    said = sorted({each for all_of_it in Conversation.load().said.values() for each in all_of_it})
    mutations.prepare()
    outcomes: Counter[str] = Counter()
    for api, version, body in said:  # what is compiled at the first use is not the peer's
        read_answer(api, version, [framed(body)])
    tracemalloc.start()
    try:
        for number in range(IN_MEMORY):
            chance = random.Random(number)
            api, version, body = chance.choice(said)
            change = mutations.drawn(chance, api)
            sent = change(chance, framed(body), api, version)
            tracemalloc.reset_peak()
            before, _ = tracemalloc.get_traced_memory()
            try:
                outcomes[read_answer(api, version, sent.pieces)] += 1
            except BadAnswer:
                outcomes["refused"] += 1
            except ExactlyOnceError as error:
                outcomes[type(error).__name__] += 1
            _, peak = tracemalloc.get_traced_memory()
            size = sum(map(len, sent.pieces))
            allowed = 64 * size + (1 << 20) if change is not mutations.records else 420 << 20
            assert peak - before < allowed, (number, change.__name__, peak - before, size)
    finally:
        tracemalloc.stop()

    assert outcomes["read"] > 100 and outcomes["refused"] > 500 and outcomes["CorruptBatch"] > 20, outcomes


@pytest.mark.parametrize("size", [2**31 - 1, -(2**31), -1, 2_000_000_000])
@pytest.mark.parametrize("api", [FETCH, METADATA, 18])
def test_a_length_of_gigabytes_is_refused_and_nothing_is_made_room_for(api: int, size: int) -> None:
    talk = talk_about(api, 4)
    tracemalloc.start()
    try:
        with pytest.raises(BadAnswer, match="Invalid frame length"):
            fed(talk, size.to_bytes(4, "big", signed=True) + b"some")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 100_000


def test_a_length_that_a_fetch_may_have_takes_memory_only_as_its_bytes_arrive() -> None:
    talk = talk_about(FETCH, 12)
    tracemalloc.start()
    try:
        assert fed(talk, (100 << 20).to_bytes(4, "big") + bytes(50_000)) == []
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 1 << 20


def test_before_a_login_no_more_than_a_megabyte_is_accepted() -> None:
    with pytest.raises(BadAnswer, match="ApiVersions has at most 1048576 bytes"):
        fed(talk_about(18, 4), (2 << 20).to_bytes(4, "big"))


# ---- played over sockets


@pytest.fixture(scope="module")
def open_doors() -> Iterator[list[Door]]:
    with doors() as found:
        yield found


@pytest.mark.slow
def test_a_sample_is_played_to_the_whole_client_through_every_door(open_doors: list[Door]) -> None:
    with Player(open_doors, seed=7) as player:
        for number in range(PLAYED):
            player.play(number)
        told = player.told

    assert not told.defects, "\n\n".join(told.defects)
    assert told.delivered > PLAYED * 0.8 and set(told.doors) == {door.name for door in open_doors}
    assert told.outcomes["right"] > PLAYED / 2 and len(told.outcomes) >= 4, table(told)


@pytest.mark.chaos
def test_fifty_thousand_are_played_to_the_whole_client(open_doors: list[Door]) -> None:
    with Player(open_doors, seed=1) as player:
        for number in range(LONG):
            player.play(number)

    assert not player.told.defects, "\n\n".join(player.told.defects[:20])
    assert player.told.delivered > LONG * 0.9


@pytest.fixture
def plain(open_doors: list[Door]) -> Iterator[tuple[Peer, Impatient]]:
    """The peer without TLS and login, and a client of it."""
    peer = open_doors[0].peer
    settle(peer, None)
    cluster = Impatient(settings(peer.address), 20_000)
    try:
        yield peer, cluster
    finally:
        settle(peer, None)
        cluster.close()


def changing(operation: str, api: int, change: Any, *, always: bool = True) -> Plan:
    """A plan that changes the decoded answer."""

    def changed(frame: bytes, api: int, version: int) -> Sent:
        answer = decoded(api, version, frame[8:])
        change(answer)
        body = encoded(answer, api, version)
        return Sent((4 + len(body)).to_bytes(4, "big") + frame[4:8] + body)

    return Plan(operation, api, 0, changed, always=always)


@pytest.mark.slow
def test_metadata_without_the_topic_is_no_key_error(plain: tuple[Peer, Impatient]) -> None:
    peer, cluster = plain
    settle(peer, changing("positions", METADATA, lambda answer: answer.topics.clear()))

    with pytest.raises(BrokerUnavailable, match="no broker answered with the partitions of topic 'read'"):
        OPERATIONS["positions"](cluster)


@pytest.mark.parametrize("bit", [19, 28])
def test_one_wrong_bit_in_a_partitions_number_takes_no_memory_for_all_below_it(
    plain: tuple[Peer, Impatient], bit: int
) -> None:
    peer, cluster = plain

    def far(answer: Any) -> None:
        answer.topics[0].partitions[0].partition_index |= 1 << bit

    settle(peer, changing("positions", METADATA, far))
    with pytest.raises(ProtocolViolation, match=f"names partition {1 << bit} of topic"):
        OPERATIONS["positions"](cluster)


@pytest.mark.parametrize("index", [-1, PARTITIONS_AT_MOST, 2**31 - 1])
def test_a_partition_that_no_topic_can_have_is_refused(index: int) -> None:
    partition = SimpleNamespace(partition_index=index, leader_id=1, leader_epoch=0)
    with pytest.raises(ProtocolViolation):
        merged(None, SimpleNamespace(name="t", topic_id=None, partitions=[partition]))


def test_an_answer_without_results_is_a_violation_and_no_value_error(plain: tuple[Peer, Impatient]) -> None:
    peer, cluster = plain
    settle(peer, changing("settings", DESCRIBE_CONFIGS, lambda answer: answer.results.clear()))

    with pytest.raises(ProtocolViolation, match="an answer with 0 results instead of one"):
        OPERATIONS["settings"](cluster)


def test_a_throttle_of_weeks_does_not_hold_a_reader_beyond_its_limit(plain: tuple[Peer, Impatient]) -> None:
    peer, cluster = plain

    def throttled(answer: Any) -> None:
        answer.throttle_time_ms = 2**31 - 1
        answer.responses.clear()

    settle(peer, changing("fetch", FETCH, throttled))
    try:
        with pytest.raises(BrokerUnavailable):
            OPERATIONS["fetch"](cluster)
    except PauseTooLong as error:
        pytest.fail(f"the reader would have slept for {error}")


def test_an_address_that_is_none_does_not_end_the_refresh_of_the_metadata(
    plain: tuple[Peer, Impatient],
) -> None:
    peer, cluster = plain

    def nowhere(answer: Any) -> None:
        answer.brokers[0].port = 2**31 - 1

    settle(peer, changing("cluster id", METADATA, nowhere, always=False))
    OPERATIONS["cluster id"](cluster)
    cluster.network.refresh_brokers()
    settle(peer, None)
    cluster.network.refresh_brokers()

    assert OPERATIONS["cluster id"](cluster)


def test_an_answer_without_brokers_takes_no_broker_away(plain: tuple[Peer, Impatient]) -> None:
    peer, cluster = plain
    before = cluster.network.brokers()
    assert before

    settle(peer, changing("cluster id", METADATA, lambda answer: answer.brokers.clear()))
    cluster.network.refresh_brokers()

    assert cluster.network.brokers() == before
    settle(peer, None)
    assert OPERATIONS["cluster id"](cluster)


@pytest.mark.slow
def test_a_server_that_knows_no_brokers_is_asked_again_and_named(plain: tuple[Peer, Impatient]) -> None:
    peer, _ = plain
    settle(peer, changing("cluster id", METADATA, lambda answer: answer.brokers.clear()))
    network = Network(settings(peer.address))
    try:
        with pytest.raises(BrokerUnavailable, match="it knows no brokers"):
            network.bootstrap(1_500)
        settle(peer, None)
        network.bootstrap(20_000)
        assert network.any_node() is not None
    finally:
        network.close()
        settle(peer, None)


@pytest.mark.slow
def test_a_session_is_renewed_before_its_end_and_the_connection_stays(open_doors: list[Door]) -> None:
    (peer, security) = next(
        (each.peer, dict(each.security)) for each in open_doors if each.name == "SASL_PLAINTEXT PLAIN"
    )
    settle(peer, None)
    peer.session_ms = 1_900
    # A busy machine is no hostile one.
    patient = replace(settings(peer.address, **security), request_timeout_ms=20_000)
    network, pause = Network(patient), threading.Event()
    try:
        network.bootstrap(20_000)
        request = m.MetadataRequest(version=12, topics=[], allow_auto_topic_creation=False)
        before = peer.logins
        answers = []
        for _ in range(450):
            answers += network.call_many([(NODE, request)])
            pause.wait(0.01)
    finally:
        network.close()
        peer.session_ms = 0

    assert peer.logins - before >= 2, "the session was not renewed"
    assert peer.expired == 0, "the peer ended a session"
    assert not [each for each in answers if isinstance(each, ExactlyOnceError)]


@pytest.mark.parametrize(
    ("lifetime_ms", "latest_ms"),
    [(5_000, 3_000), (3_300, 1_300), (1_200, 1_235), (3_600_000, 3_420_000), (1, 1_235)],
)
def test_a_renewal_begins_two_seconds_before_the_end_but_not_within_a_second(
    lifetime_ms: int, latest_ms: float
) -> None:
    planned = planned_ms(lifetime_ms)

    assert planned * 0.95 <= latest_ms + 1
    assert planned * 0.85 > 1_000, "Apache Kafka refuses a renewal within a second"


def test_a_limit_here_is_shorter_than_the_products() -> None:
    assert LIMIT_MS < 30_000
