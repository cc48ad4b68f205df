"""`kafka-eos broker`: says where it listens, ends on a signal, says what is wrong."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from embedded_kafka import EmbeddedKafka
from embedded_kafka.wire.server import MetadataRequest
from kafka_core.protocol.error_codes import Code
from tests.embedded_kafka.node_tools import ask_over_the_wire, produce, produced, records

pytestmark = [pytest.mark.kafka, pytest.mark.embedded]

COMMAND = [
    sys.executable,
    "-c",
    "import sys; from pyspark_kafka_eos.cli import main; sys.exit(main())",
    "broker",
]
TIMEOUT_S = 60


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_says_where_it_listens_and_ends_cleanly_on_a_signal(tmp_path: Path, number: signal.Signals) -> None:
    with subprocess.Popen(
        [*COMMAND, "--port", "0", "--data-dir", str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as child:
        try:
            assert child.stdout is not None
            ready = json.loads(child.stdout.readline())
            answer = ask_over_the_wire(ready["bootstrap_servers"], MetadataRequest(version=12, topics=[]))
            assert [broker.port for broker in answer.brokers] == [int(ready["bootstrap_servers"].split(":")[1])]
            child.send_signal(number)
            assert child.wait(TIMEOUT_S) == 0
        finally:
            child.kill()
    assert not (tmp_path / "control.sock").exists()


def test_several_brokers_say_where_each_listens_and_each_names_all(tmp_path: Path) -> None:
    with subprocess.Popen(
        [*COMMAND, "--brokers", "3", "--port", "0", "--data-dir", str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as child:
        try:
            assert child.stdout is not None
            addresses = json.loads(child.stdout.readline())["bootstrap_servers"].split(",")
            ports = {int(address.rpartition(":")[2]) for address in addresses}
            assert len(ports) == 3
            for address in addresses:
                answer = ask_over_the_wire(address, MetadataRequest(version=12, topics=[]))
                assert {broker.port for broker in answer.brokers} == ports
            child.send_signal(signal.SIGTERM)
            assert child.wait(TIMEOUT_S) == 0
        finally:
            child.kill()


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--brokers", "0"], 1, "there can be 1 to"),
        (["--brokers", "2", "--port", "0,0,0"], 1, "there can be 3 to"),
        (["--brokers", "1000"], 1, "not 1000"),
        (["--brokers", "three"], 2, "invalid int value"),
        (["--set", "message.max.byte=1"], 1, "did you mean message.max.bytes"),
        (["--set", "message.max.bytes"], 2, "expected NAME=VALUE"),
        (["--speed", "high"], 2, "unrecognized arguments"),
    ],
)
def test_what_is_wrong_is_said_before_anything_listens(
    tmp_path: Path, arguments: list[str], code: int, said: str
) -> None:
    answer = subprocess.run(
        [*COMMAND, "--port", "0", "--data-dir", str(tmp_path), *arguments],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert (answer.returncode, answer.stdout) == (code, "")
    assert said in answer.stderr
    assert "Traceback" not in answer.stderr


def test_a_damaged_log_is_named_by_file_and_position_and_the_broker_starts(tmp_path: Path) -> None:
    # The records are of 1970; a sweep would take the first ones, and what is left would be a torn tail.
    config = {"log.retention.ms": "-1"}
    with EmbeddedKafka(data_dir=tmp_path, config=config) as kafka:
        for name in ("t", "other"):
            for _ in range(3):
                ask_over_the_wire(
                    kafka.bootstrap_servers,
                    MetadataRequest(version=4, topics=[MetadataRequest.MetadataRequestTopic(name=name)]),
                )
                assert produced(ask_over_the_wire(kafka.bootstrap_servers, produce(name, records())))[0] == 0
        kafka.kill()
    (segment,) = (tmp_path / "t-0").glob("*.log")
    data = bytearray(segment.read_bytes())
    data[len(data) // 2] ^= 0xFF
    segment.write_bytes(data)

    with EmbeddedKafka(data_dir=tmp_path, config=config) as kafka:
        damaged, other = (
            produced(ask_over_the_wire(kafka.bootstrap_servers, produce(name, records()))) for name in ("t", "other")
        )
        said = kafka.log_path.read_text()

    assert damaged[0] == Code.KAFKA_STORAGE_ERROR
    assert other == (Code.NONE, 3)
    assert "t-0 is offline" in said
    assert str(segment) in said
    assert "position" in said
    assert segment.read_bytes() == data
