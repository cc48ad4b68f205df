"""A job of Spark's Kafka source, with the format's name changed: the same rows, schemas, tasks, offsets and refusals.

Spark 4.0.0's JVM source and ours run in one application (`source_job`), on the same topics. What differs on purpose
stands in DIFFERENCES with its reason; a line there that is no difference any more fails too.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from benchmarks.peer import PEER_PYTHON, jvm_sink_jars
from pyspark_kafka_eos.options.java_pattern import to_python
from tests.migration.cases import Case, Topics, mistakes, option_sets
from tests.migration.data import STREAMS, write_all
from tests.parity.brokers import Broker
from tests.support.peer import peer_environ

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.parity, pytest.mark.slow]
JOB = Path(__file__).with_name("source_job.py")
ENDS_WITHIN_S = 1_500
"""It takes two minutes on two cores that do nothing else."""

_NAMES = Topics("x-plain", "x-other", "x-mixed")
SETS = {case.name: case for case in option_sets(_NAMES, dict.fromkeys(STREAMS, "x"))}
MISTAKES = {case.name: case for case in mistakes(_NAMES)}

SAME_CLASSES = {
    "IllegalArgumentException": "OptionsError",
    "NumberFormatException": "OptionsError",
    "NoSuchElementException": "OptionsError",
    "AssertionError": "OptionsError",
    "KafkaIllegalStateException": "OptionsError",
    "UnknownTopicOrPartitionException": "UnknownTopic",
    "IllegalStateException": "DataLoss",
    "OffsetOutOfRangeException": "DataLoss",
}
"""What the JVM's classes are called here: by who has to act."""

_RESTARTED = "PySpark writes a Python source's offsets with blanks, so the first batch after the change is an empty one"
_WHOLE_LIMIT = (
    "Spark rounds each partition's share of maxOffsetsPerTrigger down; ours hands out what rounding leaves over, too"
)
DIFFERENCES: dict[str, dict[str, str]] = {
    "max-records": {
        "tasks": "Spark 4.0.0 plans a batch by maxRecordsPerPartition only beside a larger minPartitions; ours always does"
    },
    "stream-pattern-limit": {"tasks": _WHOLE_LIMIT, "offsets": _WHOLE_LIMIT},
    "stream-goes-on-from-the-checkpoint-of-spark": {"tasks": _RESTARTED, "offsets": _RESTARTED},
}
"""Case -> part of the outcome -> why it is not that of Spark's source."""

PATTERNS = (
    "orders", "^orders$", "orders|flights", r"flights[.](us|eu)", r"\Aa.b\z", r"\Qa.b\E+", r"\Qa.b", r"^\w+\.v\d$",
    r"(?<name>ab)\k<name>", r"\p{Alpha}\p{Digit}{2}", r"[\p{Upper}_]x", r"(?i)ORDERS", r"^[^.]+$", r"a(?!b)",
    "^x{2,3}$", "^x{2,}$", r"\bv2\b", r"(a|b)\1", "a.*?b", r"[a\-z]", r"\p{L}+-\p{N}", r"(?:ab)+$", r"[\w&&x]",
)  # fmt: skip
TOPIC_NAMES = (
    "orders", "ORDERS", "old.orders.2", "order", "flights.us", "flights-us", "a.b", "axb", "a.bbb", "a_1.v2", "a-1.v2",
    "abab", "ab", "a12", "a1", "Ax", "_x", "ac", "x", "xx", "xxx", "xxxx", "t.v2", "tv2", "aa", "z", "-", "é".encode().hex(),
)  # fmt: skip


@dataclass(frozen=True)
class Comparison:
    """What the job said, and the topics' names in it."""

    topics: Topics
    own: dict[str, str]
    outcomes: Mapping[str, Mapping[str, Any]]
    patterns: list[list[str] | None]

    def of(self, case: Case) -> tuple[dict[str, Any], dict[str, Any]]:
        """What Spark's source and ours have answered."""
        both = self.outcomes[case.name]
        return both["kafka"], both["kafka_eos"]


@pytest.fixture(scope="module")
def compared(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    """All cases through both sources, once."""
    if not PEER_PYTHON.exists():
        pytest.skip("there is no environment with pyspark 4.0.0: make venv-bench")
    topics, own = write_all(broker.bootstrap_servers)
    cases = option_sets(topics, own) + mistakes(topics)
    asked = {"cases": [case.as_json() for case in cases], "patterns": PATTERNS, "names": TOPIC_NAMES}
    directory = tmp_path_factory.mktemp("migration")
    answer = subprocess.run(
        [PEER_PYTHON, JOB, broker.bootstrap_servers, jvm_sink_jars(), directory],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        cwd=directory,
        env=peer_environ(),
        timeout=ENDS_WITHIN_S,
        check=False,
    )
    assert answer.returncode == 0, answer.stdout[-3000:] + answer.stderr[-6000:]
    found = json.loads(answer.stdout.splitlines()[-1])
    return Comparison(topics, own, found["outcomes"], found["patterns"])


@pytest.mark.parametrize("name", SETS)
def test_an_option_set_gives_what_it_gives_in_sparks_source(compared: Comparison, name: str) -> None:
    theirs, ours = compared.of(SETS[name])
    assert "error" not in theirs, theirs["error"]["text"][-3000:]
    assert "error" not in ours, ours["error"]["text"][-3000:]

    differing = {part for part in theirs if theirs[part] != ours[part]}

    listed = set(DIFFERENCES.get(name, {}))
    assert differing <= listed, {part: (theirs[part], ours[part]) for part in differing - listed}
    assert listed <= differing, f"no difference any more: {listed - differing}"


def test_the_option_sets_have_read_something(compared: Comparison) -> None:
    empty = {name for name in SETS if not compared.outcomes[name]["kafka"].get("rows")}

    assert empty == {"pattern-without-a-match", "no-newer-record-is-the-end"}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_refused_as_sparks_source_refuses_it(compared: Comparison, name: str) -> None:
    case = next(case for case in mistakes(compared.topics) if case.name == name)
    theirs, ours = compared.of(case)
    assert "error" in theirs, "Spark's source takes it"
    assert "error" in ours, "our source takes it"

    theirs_class, ours_class = class_of(theirs["error"]["text"]), class_of(ours["error"]["text"])

    differing = set()
    if SAME_CLASSES.get(theirs_class) != ours_class:
        differing.add("class")
    if case.refused:
        assert case.refused in theirs["error"]["text"]
        if case.refused not in ours["error"]["text"]:
            differing.add("text")
    listed = set(DIFFERENCES.get(name, {}))
    assert differing == listed, (theirs_class, ours_class, theirs["error"], ours["error"])


def test_java_finds_the_topics_that_we_find(compared: Comparison) -> None:
    refused = []
    for pattern, theirs in zip(PATTERNS, compared.patterns, strict=True):
        try:
            compiled = to_python(pattern)
        except ValueError:
            refused.append(pattern)
            continue
        assert [name for name in TOPIC_NAMES if compiled.search(name)] == theirs, pattern
    assert refused == [r"[\w&&x]"]


def class_of(text: str) -> str:
    """The class of the error that started it: ours by its name in the Python worker's traceback, else the JVM's
    cause.
    """
    ours = re.findall(r"kafka_core\.errors\.(\w+)", text)
    if ours:
        return str(ours[-1])
    causes = re.findall(r"(?:^|Caused by: |: )(?:[\w$]+\.)+([\w$]+(?:Exception|Error))", text, re.MULTILINE)
    around = ("Py4J", "Streaming", "Execution", "SparkException", "Utils$")
    java = [cause for cause in causes if not cause.startswith(around)]
    return java[-1] if java else "none"
