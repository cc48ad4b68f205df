"""The writer's option checkpointLocation where it names another query's checkpoint: the group would get that one's
source offsets, and an older checkpoint would not be noticed.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_core.errors import ExactlyOnceError, OptionsError, PipelineConflict
from pyspark_kafka_eos import ExactlyOnceWriter
from pyspark_kafka_eos.options import SinkOptions
from pyspark_kafka_eos.spark.sink.query_identity import QueryIdentity
from tests.pyspark_kafka_eos.spark.sink.test_writer_calls import options_of, run
from tests.pyspark_kafka_eos.spark.sink.test_writer_resume import found
from tests.pyspark_kafka_eos.spark.test_calls_without_spark import GIVEN, Session
from tests.support.brokers import AnyKafka

__all__ = ["run"]

MINE, ANOTHER = "5d1c", "e07f"


def checkpoint(directory: Path, query: str = MINE, *, logged: int = 0, committed: int = -1) -> str:
    """As Spark writes it: batches 0 to `logged` have begun, 0 to `committed` are done."""
    (directory / "offsets").mkdir(parents=True)
    (directory / "commits").mkdir()
    (directory / "metadata").write_text(json.dumps({"id": query}))
    for batch in range(logged + 1):
        (directory / "offsets" / str(batch)).write_text("v1\n{}\n{}")
    for batch in range(committed + 1):
        (directory / "commits" / str(batch)).write_text("v1\n{}")
    return str(directory)


class Connect:
    """A session as Spark Connect's: it reads files by `read.text`, and counts them."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.read = SimpleNamespace(text=self._text)

    def _text(self, path: str) -> Any:
        self.seen.append(Path(path).name)
        # An absent file is noticed when the rows are asked for, as by Spark.
        return SimpleNamespace(collect=lambda: [(line,) for line in Path(path).read_text().splitlines()])


@pytest.fixture
def connect() -> Any:
    return Connect()


# ---- Spark tells the query


def test_another_querys_checkpoint_is_refused_naming_both_places_both_queries_and_the_way_on(
    tmp_path: Path, connect: Any
) -> None:
    own, named = checkpoint(tmp_path / "own"), checkpoint(tmp_path / "other", ANOTHER)
    identity = QueryIdentity(MINE, "run", f"file:{own}", "0", named=named)

    with pytest.raises(PipelineConflict, match="nothing was written") as refused:
        identity.require_own_checkpoint(connect, 0)

    for part in (named, ANOTHER, MINE, f"file:{own}", "leave the option out"):
        assert part in refused.value.message
    assert refused.value.facts == {"checkpoint": named, "query": MINE}


def test_where_spark_does_not_list_the_query_its_id_is_compared(tmp_path: Path, connect: Any) -> None:
    own, named = checkpoint(tmp_path / "own"), checkpoint(tmp_path / "other", ANOTHER)

    QueryIdentity(MINE, "run", None, "0", named=own).require_own_checkpoint(connect, 0)
    with pytest.raises(PipelineConflict, match=f"of query {ANOTHER}; the running query is {MINE}"):
        QueryIdentity(MINE, "run", None, "0", named=named).require_own_checkpoint(connect, 0)


def test_the_own_checkpoint_is_taken_by_any_name_and_by_sparks_without_reading_a_file(
    tmp_path: Path, connect: Any
) -> None:
    own = checkpoint(tmp_path / "own")
    (tmp_path / "link").symlink_to(own)

    for told, named in ((f"file:{own}", own), (f"file:{own}", f"file://{own}/"), ("s3a://b/c", "s3a://b/c/")):
        QueryIdentity(MINE, "run", told, "0", named=named).require_own_checkpoint(connect, 0)
    QueryIdentity(MINE, "run", f"file:{own}", "0").require_own_checkpoint(connect, 0)
    assert connect.seen == []
    linked = QueryIdentity(MINE, "run", f"file:{own}", "0", named=str(tmp_path / "link"))
    linked.require_own_checkpoint(connect, 0)
    assert connect.seen == ["metadata"]
    # What is read is Spark's: a copy has the same id and may lie elsewhere.
    assert linked.checkpoint == f"file:{own}"


def test_a_place_without_a_checkpoint_is_refused_in_words(tmp_path: Path, connect: Any) -> None:
    nowhere = str(tmp_path / "nowhere")

    with pytest.raises(OptionsError, match="no query's metadata can be read") as refused:
        QueryIdentity(MINE, "run", "file:/own", "0", named=nowhere).require_own_checkpoint(connect, 0)
    assert nowhere in refused.value.message
    # Spark Connect learns the query from it, so this is where it ends there.
    with pytest.raises(OptionsError, match="no query's metadata can be read"):
        QueryIdentity.of_session(connect, SinkOptions.parse({**GIVEN, "checkpointLocation": nowhere}))


@pytest.mark.parametrize("thread", ["Spark's", "the function's own"])
def test_sparks_own_word_goes_before_the_option(thread: str, monkeypatch: pytest.MonkeyPatch) -> None:
    session = Session()
    session.queries = {"another": Session(), "mine": session}
    told = "mine" if thread == "Spark's" else None
    context = SimpleNamespace(getLocalProperty=lambda name: told if name == "sql.streaming.queryId" else None)
    listed = session.sharedState().activeStreamingQueries().values()[1]
    monkeypatch.setattr("pyspark_kafka_eos.spark.sink.query_identity.running_query", lambda *of: listed)

    identity = QueryIdentity.of_session(
        SimpleNamespace(_sc=context, _jsparkSession=session),  # type: ignore[arg-type]
        SinkOptions.parse({**GIVEN, "checkpointLocation": "/elsewhere"}),
    )

    assert (identity.query_id, identity.checkpoint) == ("mine", "/checkpoint of mine")


def test_where_spark_does_not_tell_the_place_the_option_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden() -> Any:
        raise RuntimeError("not whitelisted")

    query = SimpleNamespace(runId=lambda: SimpleNamespace(toString=lambda: "run"), resolvedCheckpointRoot=forbidden)
    spark: Any = SimpleNamespace(_sc=SimpleNamespace(getLocalProperty=lambda name: MINE))
    given = {name: value for name, value in GIVEN.items() if name != "checkpointLocation"}
    for listed in (query, None):
        monkeypatch.setattr(
            "pyspark_kafka_eos.spark.sink.query_identity.running_query", lambda *of, listed=listed: listed
        )

        identity = QueryIdentity.of_session(spark, SinkOptions.parse({**given, "checkpointLocation": "/named"}))

        assert (identity.query_id, identity.checkpoint) == (MINE, "/named")
        with pytest.raises((RuntimeError, ExactlyOnceError)):
            QueryIdentity.of_session(spark, SinkOptions.parse(given))


# ---- Spark Connect, which does not tell the query


def test_on_connect_a_checkpoint_that_has_finished_the_batch_is_another_ones(tmp_path: Path, connect: Any) -> None:
    named = checkpoint(tmp_path / "other", ANOTHER, logged=3, committed=3)
    writer = ExactlyOnceWriter({**GIVEN, "checkpointLocation": named})

    # Nobody answers there: what asks a broker first fails with another error.
    with pytest.raises(PipelineConflict, match=f"query {ANOTHER}, which has finished batch 3") as refused:
        writer(SimpleNamespace(sparkSession=connect), 3)  # type: ignore[arg-type]

    assert named in refused.value.message
    assert "the query's own writeStream" in refused.value.message


def test_on_connect_the_own_checkpoint_is_taken(tmp_path: Path, connect: Any) -> None:
    own = checkpoint(tmp_path / "own", logged=3, committed=2)
    identity = QueryIdentity.of_session(connect, SinkOptions.parse({**GIVEN, "checkpointLocation": own}))

    identity.require_own_checkpoint(connect, 3)

    assert (identity.query_id, identity.run_id, identity.checkpoint) == (MINE, MINE, own)


# ---- on Spark


@pytest.mark.kafka
@pytest.mark.spark
@pytest.mark.parametrize("scope", ["task", "batch"])
def test_a_query_whose_writer_names_another_ones_checkpoint_is_refused_before_it_writes(
    run: Callable[..., str], read_topic: Any, topic: Any, kafka: AnyKafka, tmp_path: Path, scope: str
) -> None:
    name, other = topic(), topic()
    assert run(ExactlyOnceWriter(options_of(kafka, other))) == ""
    first = tmp_path / "checkpoint"
    another = first.rename(tmp_path / "another")
    written = {"transaction.scope": scope, "checkpointLocation": str(another)}
    writer = ExactlyOnceWriter(options_of(kafka, name, **written))

    def in_a_thread(frame: Any, batch_id: int) -> None:
        with ThreadPoolExecutor(1) as pool:
            pool.submit(writer, frame, batch_id).result(300)

    for function in (writer, in_a_thread):
        said = run(function)
        query = json.loads((first / "metadata").read_text())["id"]
        for part in (str(another), str(first), query, json.loads((another / "metadata").read_text())["id"]):
            assert part in said, said[:3000]
        assert "PipelineConflict" in said
    assert read_topic(name, "read_uncommitted") == []

    # The own one is taken in both, also by another name.
    (tmp_path / "link").symlink_to(first)
    writer = ExactlyOnceWriter(options_of(kafka, name, **written | {"checkpointLocation": str(tmp_path / "link")}))
    assert run(in_a_thread, 2) == ""
    writer = ExactlyOnceWriter(options_of(kafka, name, **written | {"checkpointLocation": str(first)}))
    assert run(writer, 3) == ""
    assert found(read_topic(name)) == Counter(str(number) for number in range(30))
