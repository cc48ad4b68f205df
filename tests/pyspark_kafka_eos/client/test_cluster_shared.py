"""One connection per cluster and process, and no cluster that waits for another."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from kafka_core.errors import BrokerUnavailable
from pyspark_kafka_eos.client.cluster import Cluster
from tests.pyspark_kafka_eos.client.client_tools import settings_for, wait_until
from tests.support.brokers import AnyKafka

pytestmark = pytest.mark.kafka

CONNECTING_MS = 10_000
WAIT_S = 60.0


class Dead:
    """A broker that takes connections and never answers; `asked` once one was made."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.asked = threading.Event()
        self._taken: list[socket.socket] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def _accept(self) -> None:
        while True:
            try:
                self._taken.append(self._listener.accept()[0])
            except OSError:
                return
            self.asked.set()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(WAIT_S)
        for each in self._taken:
            each.close()


@pytest.fixture
def dead() -> Iterator[Dead]:
    broker = Dead()
    yield broker
    broker.close()


def test_a_cluster_that_does_not_answer_delays_no_other(kafka: AnyKafka, dead: Dead) -> None:
    with ThreadPoolExecutor(1) as beside:
        stuck: Future[Cluster] = beside.submit(Cluster.shared, settings_for(dead.address), CONNECTING_MS)
        assert dead.asked.wait(WAIT_S)

        healthy = Cluster.shared(settings_for(kafka.bootstrap_servers, client_id="beside-a-dead-one"))

        assert not stuck.done(), "the healthy cluster was connected only after the dead one had given up"
        assert healthy.transaction_version == 2
        healthy.close()
        with pytest.raises(BrokerUnavailable):
            stuck.result(WAIT_S)


def test_threads_that_ask_for_one_cluster_at_the_same_time_share_it(kafka: AnyKafka) -> None:
    settings = settings_for(kafka.bootstrap_servers, client_id="shared-by-threads")
    begin = threading.Barrier(4)

    def ask(_number: int) -> Cluster:
        begin.wait(WAIT_S)
        return Cluster.shared(settings)

    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(ask, range(4)))

    assert len({id(each) for each in found}) == 1
    found[0].close()


def test_who_waits_for_another_threads_connecting_gives_up_in_time(dead: Dead) -> None:
    settings = settings_for(dead.address, client_id="waited-for")
    with ThreadPoolExecutor(1) as beside:
        stuck: Future[Cluster] = beside.submit(Cluster.shared, settings, CONNECTING_MS // 3)
        assert dead.asked.wait(WAIT_S)

        with pytest.raises(BrokerUnavailable, match="another thread"):
            Cluster.shared(settings, 100)

        assert not stuck.done()
        with pytest.raises(BrokerUnavailable):
            stuck.result(WAIT_S)


def test_a_child_that_is_forked_while_a_cluster_is_looked_up_connects_by_itself(kafka: AnyKafka) -> None:
    from pyspark_kafka_eos.client import cluster as module

    settings = settings_for(kafka.bootstrap_servers, client_id="forked")
    with module._shared().lock:
        child = os.fork()
        if child == 0:
            try:
                os._exit(0 if Cluster.shared(settings).transaction_version == 2 else 1)
            except BaseException:  # noqa: BLE001 -- nothing may return into the test from the child
                os._exit(2)
    ended = [(0, 0)]

    def has_ended() -> bool:
        ended[0] = os.waitpid(child, os.WNOHANG)
        return ended[0][0] == child

    try:
        wait_until(has_ended, "the child has its cluster")
    finally:
        if ended[0][0] != child:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    assert ended[0][1] == 0
