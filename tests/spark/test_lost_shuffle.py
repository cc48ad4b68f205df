"""A shuffle's files are lost between the seal of one task and the start of the next, and the rows are others the second time."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.brokers import AnyKafka
from tests.commit.judge import read_all
from tests.conftest import topics_of
from tests.spark.lost_shuffle_job import ROWS

# Played on every version of Spark: 4.0 and 4.1 go on with two attempts of the stage, 4.3 fails the job by itself.
pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.versions, pytest.mark.long]

ALL = Counter(str(number) for number in range(ROWS))
WITHIN_S = 400


def run(folder: Path, way: str, options: dict[str, str]) -> str:
    """The application's end; what it said of its error."""
    settings = json.dumps({"folder": str(folder), "way": way, "options": options})
    command = [sys.executable, "-m", "tests.spark.lost_shuffle_job", settings]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=WITHIN_S, check=False)
    assert ended.returncode == 0, ended.stderr[-2000:]
    return (folder / "said").read_text()


@pytest.mark.parametrize("scope", ["task", "batch"])
@pytest.mark.parametrize("way", ["foreachBatch", "format", "df.write"])
def test_no_row_is_missing_or_there_twice_where_a_shuffle_is_lost_under_a_plan_that_is_not_reproducible(
    kafka: AnyKafka, tmp_path: Path, way: str, scope: str
) -> None:
    topic = topics_of(kafka)(2)
    options = {
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "topic": topic,
        "pipeline": f"lost-{topic}",
        "transaction.scope": scope,
    }

    said = run(tmp_path, way, options)

    assert (tmp_path / "lost").exists(), "no file was lost"
    visible = read_all(kafka, topic)
    assert visible == (Counter() if said else ALL)
    if said:
        named = (
            "in 2 attempts, because files of a shuffle were lost",
            "shuffle map stage with indeterminate output",
        )
        assert any(words in said for words in named), said
        assert run(tmp_path, way, options) == ""
        assert read_all(kafka, topic) == ALL
