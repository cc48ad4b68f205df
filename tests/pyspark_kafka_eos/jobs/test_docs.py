"""The pages in docs/ say what is so: tests, files and options that they name exist, and options do what is said of
them.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kafka_core.errors import OptionsError
from pyspark_kafka_eos.options import SinkOptions, SourceOptions
from tests.support.brokers import AnyKafka

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
PAGES = [
    DOCS / name
    for name in ("databricks.md", "guarantee.md", "migration.md", "operating.md", "reading.md", "writing.md")
]

ENOUGH = {
    "source": {"kafka.bootstrap.servers": "b:9092", "subscribe": "t"},
    "sink": {"kafka.bootstrap.servers": "b:9092", "topic": "t", "pipeline": "p"},
}
"""What each side needs at least."""

ACCEPTED = {
    "kafka.isolation.level": {"kafka.isolation.level": "read_uncommitted"},
    "kafka.group.id": {"kafka.group.id": "g"},
    "kafka.transaction.timeout.ms": {"kafka.transaction.timeout.ms": "600000"},
    "kafka.batch.size": {"kafka.batch.size": "16384"},
    "kafka.max.request.size": {"kafka.max.request.size": "2000000"},
    "kafka.ssl.truststore.location": {
        "kafka.security.protocol": "SSL",
        "kafka.ssl.truststore.location": "/ca.pem",
        "kafka.ssl.truststore.type": "PEM",
    },
    "kafka.sasl.jaas.config": {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
        'username="u" password="p";',
    },
}
"""How the options that the page does not call refused are given."""


def parse(side: str, options: dict[str, str]) -> str | None:
    """What is said where the options are refused."""
    try:
        (SourceOptions if side == "source" else SinkOptions).parse({**ENOUGH[side], **options})
    except OptionsError as error:
        return str(error)
    return None


def rows() -> list[tuple[str, str, str]]:
    """option, side and what happens here, of the table of options with another meaning."""
    text = (DOCS / "migration.md").read_text()
    found = re.findall(r"^\| `([\w.]+)` \| (source|sink) \| .*? \| (.*) \|$", text, re.MULTILINE)
    assert len(found) > 10
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_test_that_a_page_names_exists(page: Path) -> None:
    named = set(re.findall(r"`(test_\w+)`", page.read_text()))
    code = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))

    assert {name for name in named if f"def {name}(" not in code} == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_and_every_file_that_a_page_names_exists(page: Path) -> None:
    text = page.read_text()
    links = re.findall(r"\]\((?!https?:)([^)#]+)(?:#[\w-]+)?\)", text)
    files = re.findall(r"\b((?:conf|spark_jobs|notebooks)/[\w./-]+\w)", text)

    assert [name for name in links if not (page.parent / name).exists()] == []
    assert [name for name in files if not (ROOT / name).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_piece_of_python_on_a_page_is_python(page: Path) -> None:
    for code in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL):
        ast.parse(code)


@pytest.mark.parametrize(("option", "side", "here"), rows(), ids=lambda value: value[:40])
def test_an_option_is_taken_as_the_page_on_migration_says(option: str, side: str, here: str) -> None:
    if here.startswith("refused"):
        said = parse(side, {option: "3"})
        assert said is not None and option in said
    elif here.startswith("no effect"):
        kind = SourceOptions if side == "source" else SinkOptions
        (reported,) = kind.parse({**ENOUGH[side], option: "3"}).ignored
        assert reported.startswith(f"{option} (")
    elif only := re.match("only `(.*)`", here):
        assert parse(side, {option: only[1]}) is None
        assert option in (parse(side, {option: "0"}) or "")
    else:
        assert parse(side, ACCEPTED[option]) is None


@pytest.mark.kafka
@pytest.mark.spark
def test_the_check_whether_an_executor_reaches_a_broker_says_so(
    spark: SparkSession, kafka: AnyKafka, capsys: pytest.CaptureFixture[str]
) -> None:
    code = re.findall(r"```python\n(def reach.*?)```", (DOCS / "databricks.md").read_text(), re.DOTALL)[0]
    host, _, port = kafka.bootstrap_servers.partition(":")
    asked = '("broker.example.com", 9092)'
    assert code.count(asked) == 1

    exec(compile(code.replace(asked, f'("{host}", {port})'), "databricks.md", "exec"), {"spark": spark})

    assert "reached" in capsys.readouterr().out
    # Nobody listens on port 1.
    exec(compile(code.replace(asked, f'("{host}", 1)'), "databricks.md", "exec"), {"spark": spark})
    said = capsys.readouterr().out
    assert "ConnectionRefusedError" in said and "reached" not in said
