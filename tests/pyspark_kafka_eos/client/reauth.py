"""`python -m tests.pyspark_kafka_eos.client.reauth --minutes 10`: transactions on connections whose sessions end every
5 s, by tokens of 6 s.

Apache Kafka is the broker (KIP-368: `connections.max.reauth.ms`), and checks each token. Every batch is a transaction.
In the end librdkafka reads all of them, and the records are compared with the commits. Exit code 1 where a batch was
lost, doubled or failed, or where fewer re-authentications happened than the time has room for.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import threading
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from embedded_kafka.child.ports import free_ports
from embedded_kafka.real import LocalKafka
from kafka_core.errors import ExactlyOnceError
from kafka_core.values import TopicPartition
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.net import opening, pool
from pyspark_kafka_eos.client.writing.producer import Producer
from tests.pyspark_kafka_eos.client.certificates import openssl
from tests.pyspark_kafka_eos.client.client_tools import record_batch
from tests.pyspark_kafka_eos.client.oauth.test_login_by_token import SECRET, credentials, wanted
from tests.pyspark_kafka_eos.client.oauth.test_token_real import issued
from tests.pyspark_kafka_eos.client.oauth.token_endpoint import TokenEndpoint
from tests.support.committed import committed

TOKEN_S, SESSION_MS = 6.0, 5_000
TOPIC = "written"
WRITERS = 3
RECORDS = 50
_PAUSE_S = 0.02
_WAIT_S = 30.0
_EARLIEST_S = SESSION_MS / 1000
"""A connection that is not renewed within its session is ended."""


@dataclass
class Load:
    """What the writers did."""

    committed: list[tuple[int, int]] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    slowest_s: float = 0.0
    lock: threading.Lock = field(default_factory=threading.Lock)


class _Noted(logging.Handler):
    """Counts the client's words on renewed sessions and lost connections."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.begun = 0
        self.failed: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.msg == opening.SESSION_IS_RENEWED:
            self.begun += 1
        elif record.msg == pool.CONNECTION_LOST or record.levelno >= logging.WARNING:
            self.failed.append(record.getMessage())


@contextmanager
def _broker(folder: Path) -> Iterator[tuple[LocalKafka, str, TokenEndpoint]]:
    (port,) = free_ports(1)
    key = folder / "issuer.key"
    openssl("genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048", "-out", key)
    with TokenEndpoint(folder / "endpoint", key, clients={"alice": SECRET}) as endpoint:
        endpoint.plan.life_s = TOKEN_S
        more = {
            **endpoint.judged_by("signed"),
            "listener.name.signed.oauthbearer.connections.max.reauth.ms": str(SESSION_MS),
        }
        with issued({"SIGNED": port}, more, endpoint) as kafka:
            yield kafka, f"127.0.0.1:{port}", endpoint


def _write(cluster: Cluster, number: int, until: float, load: Load) -> None:
    """Transactions one after another. A failed one is noted, and another session goes on."""
    where, count = TopicPartition(TOPIC, number), 0
    producer: Producer | None = None
    while time.monotonic() < until:
        began = time.monotonic()
        try:
            if producer is None:
                producer = Producer(cluster, f"reauth.{number}")
                producer.initialize()
            producer.begin()
            identity = producer.identity
            values = [f"{number}/{count}/{each}".encode() for each in range(RECORDS)]
            producer.send(
                where,
                RECORDS,
                lambda base, v=values, i=identity: record_batch(v, i, base, transactional=True),  # type: ignore[misc]
            )
            producer.commit()
        except ExactlyOnceError as error:
            with load.lock:
                load.failed.append(f"writer {number}, batch {count}: {type(error).__name__}: {error}")
            producer = None
        else:
            with load.lock:
                load.committed.append((number, count))
                load.slowest_s = max(load.slowest_s, time.monotonic() - began)
        count += 1
        threading.Event().wait(_PAUSE_S)


def _read(servers: str) -> Counter[str]:
    """Every committed value, as librdkafka sees it."""
    return Counter(value.decode() for value in committed({"bootstrap.servers": servers}, TOPIC, WRITERS, _WAIT_S))


def run(minutes: float, folder: Path) -> tuple[str, bool]:
    """The counts as text, and whether they are right."""
    noted, load = _Noted(), Load()
    loggers = [each.log for each in (opening, pool)]
    for each in loggers:
        each.setLevel(logging.DEBUG)
        each.propagate = False
        each.addHandler(noted)
    try:
        with _broker(folder) as (kafka, address, endpoint):
            admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
            admin.create_topics([NewTopic(TOPIC, WRITERS, 1)])[TOPIC].result(_WAIT_S)
            began = time.monotonic()
            cluster = Cluster(wanted(address, **credentials(endpoint.url)))
            try:
                until = began + minutes * 60
                writers = [
                    threading.Thread(target=_write, args=(cluster, number, until, load)) for number in range(WRITERS)
                ]
                for writer in writers:
                    writer.start()
                for writer in writers:
                    writer.join()
                took_s, begun, issued = time.monotonic() - began, noted.begun, len(endpoint.issued)
                connections = cluster.network.connections
            finally:
                lost = list(noted.failed)
                cluster.close()
            found = _read(kafka.bootstrap_servers)
    finally:
        for each in loggers:
            each.removeHandler(noted)
    expected = Counter(f"{n}/{count}/{each}" for n, count in load.committed for each in range(RECORDS))
    missing, beyond = expected - found, found - expected
    least = int(took_s / _EARLIEST_S) - 1
    right = not (load.failed or missing or beyond or lost) and begun >= least
    lines = [
        f"{took_s:.0f} s; {len(load.committed)} batches committed, {len(load.failed)} failed; slowest batch {load.slowest_s:.2f} s",
        f"{begun} re-authentications on {connections} connections (at least {least}); {issued} tokens of {TOKEN_S:.0f} s were issued",
        f"{sum(found.values())} records read; {sum(missing.values())} missing, {sum(beyond.values())} that no commit had",
        f"{len(lost)} lost connections",
        *load.failed[:10],
        *lost[:10],
    ]
    return "\n".join(lines), right


def main() -> int:
    """1 where something is wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.pyspark_kafka_eos.client.reauth", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    given = parser.parse_args()
    warnings.simplefilter("ignore", DeprecationWarning)
    with tempfile.TemporaryDirectory() as folder:
        said, right = run(given.minutes, Path(folder))
    sys.stdout.write(said + "\n")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
