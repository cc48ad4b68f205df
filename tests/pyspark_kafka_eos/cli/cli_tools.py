"""Calls of the command line in this process, and the pipelines that its tests look at.

Owns: running a command with `--json`, pipelines in each state that a killed run can leave.
Does not know: what a command should answer.
"""

from __future__ import annotations

import json
import signal
from dataclasses import dataclass
from typing import Any

from typer.testing import CliRunner

from pyspark_kafka_eos.cli.app import app
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.requests import admin
from pyspark_kafka_eos.client.requests.transactions import Transactions, TransactionView
from pyspark_kafka_eos.model import ClientSettings
from tests.pyspark_kafka_eos.commit.child import run_child
from tests.pyspark_kafka_eos.commit.judge import settings_for
from tests.support.brokers import AnyKafka

Settings = dict[str, Any]


@dataclass(frozen=True)
class Answer:
    """How a command ended: its exit code, the document on standard output, and what stood on standard error."""

    code: int
    document: dict[str, Any]
    stderr: str


def call(broker: AnyKafka, *words: str, answer: str | None = None) -> Answer:
    """Run a command against a broker with `--json`; the document must be all that stands on standard output."""
    result = CliRunner().invoke(app, [*words, "--json", "-b", broker.bootstrap_servers], input=answer)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    document = json.loads(result.stdout)
    assert document["exit_code"] == result.exit_code
    return Answer(result.exit_code, document, result.stderr)


def shown(broker: AnyKafka, *words: str, answer: str | None = None) -> tuple[int, str]:
    """Run a command as a person does: its exit code and all that it prints."""
    result = CliRunner().invoke(app, [*words, "-b", broker.bootstrap_servers], input=answer, env={"COLUMNS": "200"})
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output


def name_of(settings: Settings) -> str:
    """The pipeline of a run."""
    return str(settings["options"]["pipeline"])


def committed(broker: AnyKafka, **options: str) -> Settings:
    """A pipeline whose batch 0 is decided and ended."""
    settings = settings_for(broker)
    settings["options"] |= options
    assert run_child(settings).report["batch"] == 0
    return settings


def killed(broker: AnyKafka, point: str, settings: Settings | None = None) -> Settings:
    """A pipeline whose run was killed at a point of its commit."""
    settings = settings or settings_for(broker)
    assert run_child(settings, point).exitcode == -signal.SIGKILL
    return settings


def views(broker: AnyKafka, settings: Settings) -> dict[str, TransactionView]:
    """What the coordinator says of a pipeline's ids, asked on connections of its own."""
    cluster = Cluster(ClientSettings((broker.bootstrap_servers,)))
    try:
        prefix = f"{name_of(settings)}:"
        names = [name for name in admin.list_transactions(cluster) if name.startswith(prefix)]
        return Transactions(cluster).describe(names)
    finally:
        cluster.close()


def states(broker: AnyKafka, settings: Settings) -> dict[str, str]:
    """Last part of each id -> its state."""
    return {name.rpartition(":")[2]: view.state for name, view in views(broker, settings).items()}
