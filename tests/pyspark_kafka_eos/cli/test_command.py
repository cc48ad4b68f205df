"""`kafka-eos` as a process: help, errors, the extra that may be missing, and what executors do not import."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.processes

TIMEOUT_S = 120
WITHOUT_EXTRA = (
    "import sys; sys.modules['typer'] = None; from pyspark_kafka_eos.cli import main; sys.exit(main(sys.argv[1:]))"
)


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=TIMEOUT_S, check=False)


def test_help_names_every_command_and_the_exit_codes() -> None:
    answer = run("-m", "pyspark_kafka_eos.cli", "--help")

    assert answer.returncode == 0
    assert all(name in answer.stdout for name in ("doctor", "ledger", "verify", "transactions", "broker"))
    assert "3 outcome unknown" in " ".join(answer.stdout.split())


def test_wrong_options_are_one_json_document_that_shows_no_value() -> None:
    answer = run(
        "-m", "pyspark_kafka_eos.cli", "doctor", "p", "--json", "-o", "kafka.sasl.pasword=secret", "-o", "topik=t"
    )  # fmt: skip

    assert answer.returncode == 2
    error = json.loads(answer.stdout)["error"]
    assert error["class"] == "OptionsError"
    assert "kafka.bootstrap.servers" in error["message"]
    assert "topic" in error["message"]
    assert "secret" not in answer.stdout + answer.stderr


def test_a_command_that_does_not_exist_is_wrong_usage() -> None:
    answer = run("-m", "pyspark_kafka_eos.cli", "docter")

    assert (answer.returncode, answer.stdout) == (2, "")
    assert "Traceback" not in answer.stderr


def test_without_the_extra_it_says_what_to_install_and_the_broker_still_runs() -> None:
    doctor = run("-c", WITHOUT_EXTRA, "doctor")
    broker = run("-c", WITHOUT_EXTRA, "broker", "--help")

    assert doctor.returncode == 2
    assert "pip install 'pyspark-kafka-eos[cli]'" in doctor.stderr
    assert "Traceback" not in doctor.stderr
    assert broker.returncode == 0
    assert "--data-dir" in broker.stdout


@pytest.mark.parametrize(
    "module",
    ["pyspark_kafka_eos.spark.sink.tasks", "pyspark_kafka_eos.spark.sink.foreach_batch", "pyspark_kafka_eos"],
)
def test_what_executors_and_drivers_import_needs_neither_typer_nor_rich(module: str) -> None:
    code = f"import sys; import {module}; sys.exit(bool({{'typer', 'rich'}} & set(sys.modules)))"

    answer = run("-c", code)

    assert (answer.returncode, answer.stderr) == (0, "")
