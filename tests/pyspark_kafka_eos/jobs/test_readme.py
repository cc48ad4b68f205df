"""The README and the pages behind it: short, their links lead somewhere, their code runs."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spark_jobs.proof import read_all
from tests.conftest import MakeTopic
from tests.pyspark_kafka_eos.options.tables import current, tables
from tests.support.brokers import AnyKafka

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


ROOT = Path(__file__).parents[3]
README = ROOT / "README.md"
PAGES = [
    README,
    ROOT / "DESIGN.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "connector" / "embedded_kafka" / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "evidence").glob("*.md")),
]


def first_snippet(page: Path) -> str:
    """The page's first lines of Python."""
    return re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)[0]


def anchors(page: Path) -> set[str]:
    """The links that a page's headings make, as GitHub makes them."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def test_the_tables_of_options_are_up_to_date() -> None:
    assert current() == tables(), "run: python -m tests.pyspark_kafka_eos.options.tables"


def test_the_readme_has_at_most_1500_words() -> None:
    assert len(README.read_text().split()) <= 1500


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_make_target_link_and_file_that_a_page_names_exists(page: Path) -> None:
    text = page.read_text()
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)

    assert set(re.findall(r"`make ([a-z-]+)`", text)) <= set(targets)
    for name in re.findall(r"`((?:conf|connector|spark_jobs|docs|tests)/[a-z_./-]+)`", text):
        assert (ROOT / name).exists(), name
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if not link.startswith(("http:", "https:")):
            file, _, anchor = link.partition("#")
            target = page.parent / file if file else page
            assert target.exists(), link
            assert not anchor or anchor in anchors(target), link


@pytest.mark.kafka
@pytest.mark.spark
def test_the_first_program_runs(
    spark: SparkSession, kafka: AnyKafka, topic: MakeTopic, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # tests/packaging/test_first_steps.py runs it with the commands around it.
    given, written = topic(), topic()
    code = first_snippet(README)
    changes = {
        "127.0.0.1:9092": kafka.bootstrap_servers,
        '"orders"': f'"{given}"',
        '"orders.clean"': f'"{written}"',
        '"clean-orders"': f'"{written}"',
        "/tmp/clean-orders": (tmp_path / "checkpoint").as_uri(),
    }
    for old, new in changes.items():
        assert old in code, old
        code = code.replace(old, new)

    exec(compile(code, "README.md", "exec"), {})

    assert "100 records, 100 different ones" in capsys.readouterr().out
    found = Counter(value for _, value in read_all(kafka.bootstrap_servers, written, "read_committed"))
    assert found == Counter(f"ORDER {number}".encode() for number in range(100))


@pytest.mark.kafka
@pytest.mark.embedded
def test_the_test_with_a_broker_of_its_own_passes() -> None:
    from confluent_kafka import Producer

    ran = []

    def run_my_job(bootstrap_servers: str) -> None:
        writer = Producer({"bootstrap.servers": bootstrap_servers, "transactional.id": "x", "log_level": 0})
        writer.init_transactions(60)
        writer.begin_transaction()
        writer.produce("t", b"value")
        writer.commit_transaction(60)
        ran.append(bootstrap_servers)

    names: dict[str, object] = {"run_my_job": run_my_job}
    page = ROOT / "docs" / "embedded-broker.md"
    exec(compile(first_snippet(page) + "\ntest_my_job()", page.name, "exec"), names)

    assert len(ran) == 2
