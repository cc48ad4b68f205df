"""Eight of our processes and a real Kafka draw from one node at once while ZooKeeper is killed."""

from __future__ import annotations

import queue
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from embedded_kafka.producer_ids.block import parse
from embedded_kafka.producer_ids.zookeeper import PATH
from embedded_kafka.real import NEWEST_ZOOKEEPER_KAFKA, LocalKafka
from tests.embedded_kafka.producer_ids.history import Run, problems, runs_of

pytestmark = [pytest.mark.kafka, pytest.mark.real]

PROCESSES = 8
WITHIN_S = 60.0
ROOT = Path(__file__).parents[3]
INIT_PRODUCER_ID, NOT_NOW = 22, 14  # the API; COORDINATOR_LOAD_IN_PROGRESS
# A broker's two blocks and one id: the third was claimed after the first of them was asked for.
TWO_BLOCKS = 2001


class Drawing:
    """One of our processes, and what it said."""

    def __init__(self, name: str, hosts: str, broker_id: int, block_size: int) -> None:
        self.name = name
        command = [
            sys.executable,
            "-m",
            "tests.embedded_kafka.producer_ids.child",
            hosts,
            str(broker_id),
            str(block_size),
        ]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT)
        self._said: queue.Queue[list[str]] = queue.Queue()
        self.claimed: list[Run] = []
        self.drawn: list[Run] = []
        self.failures: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def wait_for(self, kind: str, times: int = 1) -> None:
        """Until it has said so that many times from now on."""
        deadline = time.monotonic() + WITHIN_S
        while times:
            said = self._said.get(timeout=max(0.1, deadline - time.monotonic()))
            times -= said[0] == kind

    def forget(self) -> None:
        """What was said up to now does not count for wait_for."""
        while not self._said.empty():
            self._said.get()

    def kill(self) -> None:
        """SIGKILL."""
        self._process.kill()
        self._end()

    def finish(self) -> None:
        """It ends by itself and tells what it drew."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._end()
        assert self._process.returncode == 0

    def abandon(self) -> None:
        """For the end of a failed test."""
        if self._process.poll() is None:
            self.kill()

    def _end(self) -> None:
        self._reader.join(WITHIN_S)
        self._process.wait(WITHIN_S)
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            words = line.decode().split()
            if words[0] == "failed":
                self.failures.append(words[1])
            else:
                runs = self.claimed if words[0] == "claimed" else self.drawn
                runs.append((int(words[1]), int(words[2])))
            self._said.put(words)


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalKafka]:
    """Of its own: its ZooKeeper is killed."""
    with LocalKafka(NEWEST_ZOOKEEPER_KAFKA, fast_start=True) as started:
        yield started


def ids_from_kafka(broker: LocalKafka, count: int) -> list[int]:
    """InitProducerId v0 without a transactional id, by hand and 50 on their way at once, until there are enough."""
    request = struct.pack(">hhih1shi", INIT_PRODUCER_ID, 0, 1, 1, b"j", -1, 60_000)
    host, port = broker.bootstrap_servers.split(":")
    given: list[int] = []
    deadline = time.monotonic() + WITHIN_S
    with socket.create_connection((host, int(port)), timeout=WITHIN_S) as connection:
        answers = connection.makefile("rb")
        while len(given) < count:
            batch = min(50, count - len(given))
            connection.sendall(batch * (struct.pack(">i", len(request)) + request))
            for _ in range(batch):
                length, _, _, error, producer_id, epoch = struct.unpack(">iiihqh", answers.read(24))
                assert (length, epoch if error == 0 else 0) == (20, 0)
                assert error in (0, NOT_NOW), error
                given += [producer_id] if error == 0 else []
            assert time.monotonic() < deadline, "Kafka hands out no ids"
    return given


@pytest.mark.parametrize("block_size", [1, 10, 1000])
def test_eight_processes_and_a_real_broker_never_share_an_id_nor_go_back_while_zookeeper_is_killed(
    broker: LocalKafka, block_size: int
) -> None:
    """Rule: seed 000 §5.1.2: brokers share one node by compare-and-set; a block is never reused after a crash."""
    assert broker.zookeeper is not None
    hosts = broker.zookeeper.hosts
    with ExitStack() as ending:

        def begin(number: int, name: str) -> Drawing:
            # Two of them are of one broker id, which they should not be.
            made = Drawing(name, hosts, max(1, number), block_size)
            ending.callback(made.abandon)
            return made

        drawing = [begin(number, f"process {number}") for number in range(PROCESSES)]
        for each in drawing:
            each.wait_for("claimed", 3)
        of_kafka = ids_from_kafka(broker, TWO_BLOCKS)
        killed = drawing.pop()
        killed.kill()
        drawing.append(begin(PROCESSES - 1, "its successor"))
        drawing[-1].wait_for("claimed", 3)

        broker.zookeeper.kill()
        for each in drawing:
            each.forget()
        for each in drawing:
            each.wait_for("failed")
        broker.zookeeper.restart()
        for each in drawing:
            each.forget()
        for each in drawing:
            each.wait_for("claimed", 3)

        of_kafka += ids_from_kafka(broker, TWO_BLOCKS)
        for each in drawing:
            each.finish()

    everybody = [*drawing, killed]
    kafka = runs_of(of_kafka)
    assert problems({each.name: each.drawn for each in drawing} | {"Kafka": kafka}) == []
    # Blocks too: of the one that was killed it is not known which ids it handed out, so none of them may come again.
    assert problems({each.name: each.claimed for each in everybody} | {"Kafka": kafka}) == []
    assert all(each.drawn and each.failures for each in drawing), "the fault did not reach everybody"
    assert len(of_kafka) == 2 * TWO_BLOCKS
    assert latest(hosts) >= max(run[1] for each in everybody for run in each.claimed)


def latest(hosts: str) -> int:
    """The node's end, by kazoo itself."""
    client = KazooClient(hosts)
    client.start()
    try:
        return parse(client.get(PATH)[0]).end
    finally:
        client.stop()
        client.close()
