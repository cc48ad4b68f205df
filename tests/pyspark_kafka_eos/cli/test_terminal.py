"""What a person sees: in a terminal of 80 and of 30 columns, in a pipe, without colours; and how a command ends that
nobody reads any more, or that is interrupted.
"""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer

from embedded_kafka.embedded import EmbeddedKafka
from kafka_core.values import ProducerIdentity
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.commit.ledger.topic import Ledger
from pyspark_kafka_eos.model import Decision, Seal, SealedPartition
from pyspark_kafka_eos.options import SinkOptions
from tests.pyspark_kafka_eos.cli.cli_tools import killed, name_of, states
from tests.pyspark_kafka_eos.cli.processes import (
    WITHIN_S,
    Ended,
    command,
    environment,
    in_terminal,
    kafka_eos,
)
from tests.pyspark_kafka_eos.commit.judge import EXPECTED, read_all
from tests.support.brokers import AnyKafka

pytestmark = [pytest.mark.kafka, pytest.mark.embedded]

ESCAPES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
COLOURS = re.compile(r"\x1b\[(?:\d+;)*(?:3[0-7]|9[0-7]|38;[0-9;]+)(?:;\d+)*m")

MANY = 18_000
PIPELINE = "many-decisions"
LEDGER = "ledger-of-many"


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedKafka]:
    """A broker whose second ledger has 18,000 decisions of one pipeline."""
    with EmbeddedKafka() as kafka:
        _fill(kafka)
        yield kafka


def _fill(kafka: EmbeddedKafka) -> None:
    options = SinkOptions.parse(
        {"kafka.bootstrap.servers": kafka.bootstrap_servers, "pipeline": PIPELINE, "topic": "t"}
    )
    cluster = Cluster(options.client)
    try:
        ledger = Ledger(cluster, LEDGER, PIPELINE)
        ledger.prepare()
        partition = ledger.partition.partition
    finally:
        cluster.close()
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "queue.buffering.max.messages": MANY})
    for number in range(MANY):
        producer.produce(LEDGER, key=PIPELINE, value=_decision(number), partition=partition)
        producer.poll(0)
    assert producer.flush(WITHIN_S) == 0


def _decision(number: int) -> bytes:
    part = SealedPartition("t", 0, 40 * number, 40 * number + 39, 40)
    seal = Seal(f"{PIPELINE}:0", 0, ProducerIdentity(7, 3), 2, 40, 4000, 99, 0, (part,))
    return Decision(
        PIPELINE,
        "0f1e2d3c-4b5a",
        number,
        (seal,),
        ('{"in":{"0":40}}',),
        decided_ms=1_700_000_000_000,
        connector_version="0.1.0",
    ).to_bytes()


@pytest.fixture(scope="module")
def left(broker: EmbeddedKafka) -> dict[str, Any]:
    """A pipeline whose run was killed with everything open."""
    return killed(broker, "before-decision")


def start(broker: AnyKafka, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command(*words), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(broker)
    )


# ---- widths


def assert_whole(ended: Ended, columns: int, words: set[str]) -> None:
    """Every word is there as it is, and only one that is longer than the terminal goes on behind its edge."""
    text = ESCAPES.sub("", ended.out)
    assert ended.err == ""
    assert words <= set(text.split()), text
    assert all(len(line) <= columns or len(line.split()) == 1 for line in text.splitlines()), text


def test_no_word_is_broken_at_80_columns(broker: EmbeddedKafka, left: dict[str, Any]) -> None:
    name, topic = name_of(left), left["options"]["topic"]

    listed = in_terminal(broker, "transactions", "list", name, columns=80)
    decisions = in_terminal(broker, "ledger", PIPELINE, "-o", f"ledger.topic={LEDGER}", columns=80)

    assert_whole(listed, 80, {f"{name}:{slot}" for slot in range(3)} | {f"{topic}-0", "Ongoing"})
    assert_whole(
        decisions,
        80,
        {PIPELINE, "decided", "0f1e2d3c", "2023-11-14", "22:13:20Z", "17999", '{"in":{"0":40}}'},
    )
    # A row stays a row there.
    assert sum(PIPELINE in line and "decided" in line for line in decisions.out.splitlines()) == 5
    assert COLOURS.search(listed.out)


def test_no_word_is_broken_at_30_columns_and_no_color_is_honoured(broker: EmbeddedKafka, left: dict[str, Any]) -> None:
    topic = left["options"]["topic"]

    ended = in_terminal(broker, "doctor", name_of(left), "-o", f"topic={topic}", columns=30, more={"NO_COLOR": "1"})

    assert ended.code == 0
    assert_whole(ended, 30, {"transactional-ids", "id-collisions", topic, "replication"})
    assert not COLOURS.search(ended.out)


def test_in_a_pipe_every_row_is_one_line_without_colours(broker: EmbeddedKafka, left: dict[str, Any]) -> None:
    ended = kafka_eos(broker, "transactions", "list", name_of(left))

    assert ended.code == 0
    assert "\x1b" not in ended.out
    rows = [line for line in ended.out.splitlines() if line.startswith(f"{name_of(left)}:")]
    assert len(rows) == 5
    assert all("epoch" in row for row in rows)


# ---- a long listing


def test_a_long_ledger_is_shown_as_it_is_read_and_a_closed_pipe_ends_it_quietly(
    broker: EmbeddedKafka,
) -> None:
    """`kafka-eos ledger | head -2`: whoever waits for the newest decision does not wait for the oldest."""
    process = start(broker, "ledger", PIPELINE, "-n", str(MANY), "-o", f"ledger.topic={LEDGER}")
    assert process.stdout is not None and process.stderr is not None

    head = [process.stdout.readline() for _ in range(2)]
    process.stdout.close()
    err = process.stderr.read()
    process.stderr.close()

    assert head[0].split()[:3] == ["pipeline", "status", "batch"]
    assert head[1].split()[:3] == [PIPELINE, "decided", str(MANY - 1)]
    assert (process.wait(WITHIN_S), err) == (0, "")


def test_a_long_document_into_a_closed_pipe_ends_quietly_too(broker: EmbeddedKafka) -> None:
    process = start(broker, "ledger", PIPELINE, "-n", "2000", "-o", f"ledger.topic={LEDGER}", "--json")
    assert process.stdout is not None and process.stderr is not None

    assert process.stdout.readline() == "{\n"
    process.stdout.close()
    err = process.stderr.read()
    process.stderr.close()

    assert (process.wait(WITHIN_S), err) == (0, "")


def test_a_long_listing_that_is_interrupted_says_how_much_is_shown(broker: EmbeddedKafka) -> None:
    process = start(broker, "ledger", PIPELINE, "-n", str(MANY), "-o", f"ledger.topic={LEDGER}")
    assert process.stdout is not None
    assert process.stdout.readline()

    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=WITHIN_S)

    assert process.returncode == 130
    (line,) = err.splitlines()
    shown = re.fullmatch(
        r"kafka-eos: interrupted: (\d+) decisions are shown, older ones are not; nothing was changed", line
    )
    assert shown, line
    assert 0 < int(shown[1]) < MANY
    assert "has read up to" not in out


# ---- an interrupted change


@pytest.mark.parametrize("as_json", [False, True])
def test_a_change_that_is_interrupted_while_it_waits_says_what_is_known_and_can_be_asked_again(
    broker: EmbeddedKafka, as_json: bool
) -> None:
    settings = killed(broker, "before-end")
    name = name_of(settings)
    fault = broker.fault("EndTxn", "delay", delay_ms=600_000, transactional_id=f"{name}:1")
    process = start(broker, "transactions", "commit", name, "--yes", *(["--json"] if as_json else []))
    deadline = time.monotonic() + WITHIN_S
    while not fault.fired:
        assert process.poll() is None and time.monotonic() < deadline

    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=WITHIN_S)

    known = (
        f"interrupted: committed: {name}:0; the outcome of {name}:1 is unknown; not begun: {name}:2; "
        "the same command goes on from there"
    )
    assert process.returncode == 130
    if as_json:
        document = json.loads(out)
        assert (document["exit_code"], document["error"]["message"], err) == (130, known, "")
    else:
        assert (out, err) == ("", f"kafka-eos: {known}\n")
    assert states(broker, settings)["0"] == "CompleteCommit"
    assert states(broker, settings)["2"] == "Ongoing"
    broker.clear_faults()
    assert kafka_eos(broker, "transactions", "commit", name, "--yes").code == 0
    assert read_all(broker, settings["options"]["topic"]) == EXPECTED


def test_a_wait_for_a_broker_that_never_answers_is_interrupted_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(WITHIN_S)
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        process = subprocess.Popen(
            command("transactions", "list", "-b", address, "--json"), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, env=environment(),
        )  # fmt: skip
        connection, _ = silent.accept()
        with connection:
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=WITHIN_S)

    document = json.loads(out)
    assert (process.returncode, document["exit_code"], document["command"], err) == (
        130,
        130,
        "transactions list",
        "",
    )
    assert document["error"]["message"] == "interrupted: nothing was changed"


def test_a_question_that_is_interrupted_changes_nothing(broker: EmbeddedKafka, left: dict[str, Any]) -> None:
    before = states(broker, left)
    process = subprocess.Popen(
        command("transactions", "abort", name_of(left)), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, env=environment(broker),
    )  # fmt: skip
    assert process.stderr is not None
    question = b""
    while b"?" not in question:
        byte = process.stderr.read(1)
        assert byte, question
        question += byte

    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=WITHIN_S)

    assert process.returncode == 130
    assert b"kafka-eos: interrupted: nothing was changed\n" in err
    assert b"Traceback" not in err
    assert states(broker, left) == before


def test_a_question_that_nobody_can_answer_changes_nothing(broker: EmbeddedKafka, left: dict[str, Any]) -> None:
    before = states(broker, left)

    ended = kafka_eos(broker, "transactions", "abort", name_of(left))

    assert ended.code == 1
    assert "nothing was changed" in ended.err
    assert states(broker, left) == before
