"""A planted password is looked for wherever a query leaves something: plans, logs at DEBUG, the event log, checkpoints,
Kafka, and the arguments of every process. Apache Kafka asks for the login.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from embedded_kafka.child.ports import free_ports
from embedded_kafka.real import LocalKafka
from tests.pyspark_kafka_eos.client.test_login_real import MODULES

pytestmark = [pytest.mark.kafka, pytest.mark.real, pytest.mark.spark, pytest.mark.slow, pytest.mark.long]

PLANTED = "PLANTED-hunter2"
ROWS = 20
WAIT_S = 1200.0
WITHIN_S = 20.0


@pytest.fixture(scope="module")
def guarded() -> Iterator[tuple[LocalKafka, str]]:
    """A broker with a listener for the test, and the address of one that asks for a password."""
    (port,) = free_ports(1)
    more = {
        "listener.name.sasl.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl.plain.sasl.jaas.config": f'{MODULES}.plain.PlainLoginModule required user_alice="{PLANTED}";',
    }
    with LocalKafka(config=more, listeners={"SASL": ("SASL_PLAINTEXT", "127.0.0.1", port)}, fast_start=True) as kafka:
        yield kafka, f"127.0.0.1:{port}"


def arguments_with(secret: str) -> list[str]:
    """The processes of this machine that have it among their arguments."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes()
        except OSError:
            continue
        if secret.encode() in line:
            found.append(line.decode(errors="replace"))
    return found


def records(kafka: LocalKafka, topics: list[str]) -> dict[str, list[bytes]]:
    """Everything in the topics, headers and keys with it."""
    reader = Consumer(
        {"bootstrap.servers": kafka.bootstrap_servers, "group.id": "look", "auto.offset.reset": "earliest",
         "isolation.level": "read_committed", "enable.auto.commit": False}
    )  # fmt: skip
    found: dict[str, list[bytes]] = {each: [] for each in topics}
    reader.subscribe(topics)
    try:
        quiet_since = time.monotonic()
        while time.monotonic() - quiet_since < WITHIN_S:
            message = reader.poll(1.0)
            if message is not None and message.error() is None:
                found[message.topic()].append(repr((message.key(), message.value(), message.headers())).encode())
                quiet_since = time.monotonic()
            elif all(found.values()):
                break
    finally:
        reader.close()
    return found


@pytest.mark.parametrize("place", ["environment", "jaas"])
def test_a_planted_password_is_nowhere(guarded: tuple[LocalKafka, str], tmp_path: Path, place: str) -> None:
    kafka, address = guarded
    source, output, ledger = (f"{place}.{name}" for name in ("in", "out", "ledger"))
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    for answer in admin.create_topics([NewTopic(source, 2, 1), NewTopic(output, 2, 1)]).values():
        answer.result(30)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for number in range(ROWS):
        producer.produce(source, str(number).encode())
    assert producer.flush(30) == 0
    login = {"kafka.sasl.username": "alice", "kafka.sasl.password": "${env:PLANTED_IN}"}
    # At DEBUG py4j logs every value that a program hands to Spark, before anything of ours sees it.
    quiet = ["py4j"] if place == "jaas" else []
    if place == "jaas":
        login = {
            "kafka.sasl.jaas.config": f'{MODULES}.plain.PlainLoginModule required username="alice" password="{PLANTED}";'
        }
    both = {
        "kafka.bootstrap.servers": address, "kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.mechanism": "PLAIN", **login,
    }  # fmt: skip
    settings = tmp_path / "settings.json"
    folder = tmp_path / "left"
    folder.mkdir()
    settings.write_text(
        json.dumps(
            {
                "folder": str(folder),
                "quiet": quiet,
                "source": {**both, "subscribe": source, "startingOffsets": "earliest"},
                # One broker for all places: a pipeline has one ledger.
                "name": place,
                "sink": {**both, "topic": output, "ledger.topic": ledger},
            }
        )
    )
    environ = {**os.environ, **({"PLANTED_IN": PLANTED} if place == "environment" else {})}
    log, seen = tmp_path / "log", list[str]()
    with log.open("wb") as out:
        words = [sys.executable, "-m", "tests.pyspark_kafka_eos.spark.secret_job", str(settings)]
        job = subprocess.Popen(words, stdout=out, stderr=subprocess.STDOUT, env=environ, start_new_session=True)
        try:
            until = time.monotonic() + WAIT_S
            while job.poll() is None and time.monotonic() < until:
                seen += arguments_with(PLANTED)
                time.sleep(0.5)
        finally:
            job.kill()
            job.wait()

    said = log.read_text(errors="replace")
    assert job.returncode == 0, said[-3000:]
    # What is looked through is there.
    assert "SaslAuthenticate" in said and "kafka_eos" in said and "== Physical Plan ==" in said
    events = [each for each in (folder / "events").rglob("*") if each.is_file()]
    assert sum(each.stat().st_size for each in events) > 10_000
    kept = records(kafka, [output, ledger])
    assert len(kept[output]) == 2 * ROWS and kept[ledger]
    # And has it nowhere.
    assert PLANTED not in said
    assert seen == []
    assert [each for each in folder.rglob("*") if each.is_file() and PLANTED.encode() in each.read_bytes()] == []
    assert [each for part in kept.values() for each in part if PLANTED.encode() in each] == []
