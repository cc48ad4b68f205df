"""`EmbeddedKafka` before its start, after its end and over a restart: what its handles say, and what a refused restart
leaves.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from embedded_kafka import EmbeddedKafka
from kafka_core.errors import BrokerUnavailable, OptionsError
from tests.embedded_kafka.node_tools import ask_over_the_wire, init, initialised, produce, records, until

pytestmark = [pytest.mark.processes]


@pytest.fixture(params=[False, True], ids=["child", "thread"])
def kafka(request: pytest.FixtureRequest) -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(in_process=request.param) as broker:
        yield broker


def asked(kafka: EmbeddedKafka) -> None:
    """One Produce, which a fault may meet."""
    ask_over_the_wire(kafka.bootstrap_servers, produce("t", records()))


ENDS: dict[str, Callable[[EmbeddedKafka], None]] = {
    "clear": EmbeddedKafka.clear_faults, "restart": EmbeddedKafka.restart, "stop": EmbeddedKafka.stop,
}  # fmt: skip


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_a_count_stays_readable_when_its_fault_has_ended(
    kafka: EmbeddedKafka, end: Callable[[EmbeddedKafka], None]
) -> None:
    met, never = kafka.fault("Produce", "delay", times=5), kafka.fault("Fetch", "delay")
    asked(kafka)
    asked(kafka)
    end(kafka)

    assert (met.fired, never.fired) == (2, 0)
    met.release()
    if end is not EmbeddedKafka.stop:
        again = kafka.fault("Produce", "delay", times=5)
        asked(kafka)
        assert (met.fired, again.fired) == (2, 1)


def test_a_count_stays_readable_when_the_test_kills_the_broker() -> None:
    with EmbeddedKafka() as kafka:
        fault = kafka.fault("Produce", "delay")
        asked(kafka)
        kafka.kill()
        assert fault.fired == 1
        kafka.restart()
        assert fault.fired == 1


def test_a_fault_that_kills_the_broker_leaves_every_count() -> None:
    with EmbeddedKafka() as kafka:
        initialised(kafka, "first")
        killer = kafka.fault_at_step("init-logged", "kill", skip=1)
        other = kafka.fault("InitProducerId", "delay", times=5)
        ask_over_the_wire(kafka.bootstrap_servers, init("a"))
        with pytest.raises(ConnectionError):
            ask_over_the_wire(kafka.bootstrap_servers, init("b"))

        assert (killer.fired, other.fired) == (1, 2)
        assert kafka.exit_code(10_000) == -signal.SIGKILL
        kafka.restart()
        assert (killer.fired, other.fired) == (1, 2)
        assert kafka.fault("Fetch", "delay").fired == 0


def test_after_a_kill_from_outside_a_handle_says_that_the_count_is_lost() -> None:
    with EmbeddedKafka() as kafka:
        fault = kafka.fault("Produce", "delay")
        os.kill(kafka.pid, signal.SIGKILL)
        assert kafka.exit_code(10_000) == -signal.SIGKILL
        for question in (
            lambda: fault.fired,
            fault.release,
            kafka.clear_faults,
            lambda: kafka.deny("READ", "TOPIC"),
        ):
            with pytest.raises(
                BrokerUnavailable, match=r"process has ended with exit code -9; its faults .* ended with it"
            ):
                question()
        kafka.restart()
        with pytest.raises(BrokerUnavailable, match="was ended from outside, and faults and their counts end with it"):
            _ = fault.fired


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"num.partitons": "3"}, "did you mean num.partitions"),
        ({"num.partitions": "many"}, "num.partitions must be a whole number"),
        ({"security.protocol": "SSL", "ssl.keystore.location": "/nowhere.pem"}, "nowhere"),
    ],
    ids=["name", "value", "file"],
)
def test_a_refused_restart_leaves_the_broker_as_it_was(kafka: EmbeddedKafka, wrong: dict[str, str], said: str) -> None:
    fault = kafka.fault("Produce", "delay", times=5)
    with pytest.raises(OptionsError, match=said):
        kafka.restart(config=wrong)

    asked(kafka)
    assert fault.fired == 1
    kafka.restart(config={"num.partitions": "2"})
    kafka.restart()
    asked(kafka)


def test_a_restart_that_fails_otherwise_leaves_the_settings_of_before(kafka: EmbeddedKafka, monkeypatch: Any) -> None:
    monkeypatch.setattr("embedded_kafka.serving.judge", lambda directory, settings: None)
    with pytest.raises(OptionsError):
        kafka.restart(config={"num.partitons": "3"})
    kafka.restart()
    asked(kafka)


def test_before_its_start_a_broker_has_no_address_and_says_so(tmp_path: Path) -> None:
    kafka = EmbeddedKafka(security="SASL_SSL")
    for question in (
        lambda: kafka.bootstrap_servers, kafka.client_settings, lambda: kafka.data_dir, kafka.restart, kafka.clear_faults,
        lambda: kafka.fault("Fetch", "delay"),
    ):  # fmt: skip
        with pytest.raises(BrokerUnavailable, match="the embedded broker was never started"):
            question()


OWNER = """\
import sys, time
from embedded_kafka import EmbeddedKafka
kafka = EmbeddedKafka(data_dir=sys.argv[1] if len(sys.argv) > 1 else None).start()
kafka.restart()
print(kafka.data_dir, kafka.pid, flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("named", [False, True])
def test_a_killed_test_run_leaves_neither_broker_nor_temporary_directory(tmp_path: Path, named: bool) -> None:
    words = [str(tmp_path / "kept")] if named else []
    with subprocess.Popen([sys.executable, "-c", OWNER, *words], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        directory, pid = owner.stdout.readline().split()
        assert Path(directory).is_dir()
        owner.kill()
    until(lambda: not Path(f"/proc/{pid}").exists() if sys.platform == "linux" else True)
    if named:
        assert (Path(directory) / "meta.json").is_file()
    else:
        until(lambda: not Path(directory).exists())


def test_the_data_directory_may_be_a_string(tmp_path: Path) -> None:
    with EmbeddedKafka(data_dir=str(tmp_path / "data"), in_process=True) as kafka:
        assert kafka.data_dir == tmp_path / "data"
        asked(kafka)
