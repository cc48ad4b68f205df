"""query.stop() in the middle of a batch: Spark's stream thread gets a text that it takes for a stop, and that its
pattern can hold.
"""

from __future__ import annotations

import re
import traceback
from types import SimpleNamespace

import pytest

from kafka_core.errors import PipelineConflict
from pyspark_kafka_eos.spark.sink.foreach_batch import ExactlyOnceWriter, QueryStopped

JAVA = (
    "An error occurred while calling z:org.apache.commons.io.IOUtils.toString.\n"
    ": java.nio.channels.ClosedByInterruptException\n" + "\tat org.apache.spark.Some.frame(Some.scala:1)\n" * 120
)

CANCELLED = (
    "An error occurred while calling o481.collectToPython.\n: org.apache.spark.SparkException: [SPARK_JOB_CANCELLED] Job 7 "
    "cancelled Query [id = 87a4db94-a1ef-4bc8-b290-b0ca805b1265, runId = 401e0395-e3ca-4caf-832d-313109304714] was stopped "
    "SQLSTATE: XXKDA\n" + "\tat org.apache.spark.Some.frame(Some.scala:1)\n" * 120
)
"""The reason as Spark 4.3.0 gives it to the tasks of a stopped query."""

SPARKS_PATTERN = re.compile(
    r"py4j.protocol.Py4JJavaError: An error occurred while calling"
    r"(?s:.*)(java\.lang\.InterruptedException|java\.nio\.channels\.ClosedByInterruptException)"
)
"""As Spark 4 has it. Java's matcher needs a frame of its stack for each character that it passes."""


class Py4JJavaError(Exception):
    pass


def interrupted_while_reading() -> None:
    try:
        raise Py4JJavaError(JAVA)
    except Py4JJavaError as error:
        raise PipelineConflict("Spark's offset log cannot be read (Py4JJavaError)") from error


def interrupted_while_giving_up() -> None:
    try:
        raise Py4JJavaError(JAVA)
    except Py4JJavaError:
        raise ValueError("what was begun could not be given up")  # noqa: B904 -- this is the case


def interrupted() -> None:
    raise Py4JJavaError(JAVA)


def cancelled_before_it_was_interrupted() -> None:
    raise Py4JJavaError(CANCELLED)


def cancelled_by_a_person() -> None:
    raise Py4JJavaError("[SPARK_JOB_CANCELLED] Job 7 cancelled because of a click in Spark's pages SQLSTATE: XXKDA")


def failed_for_another_reason() -> None:
    raise PipelineConflict("Spark's offset log cannot be read (Py4JJavaError)") from ValueError("x")


def text_of(monkeypatch: pytest.MonkeyPatch, step: object) -> tuple[type[BaseException], str]:
    """What py4j gives the stream thread where the batch fails in this step."""
    writer = ExactlyOnceWriter({"kafka.bootstrap.servers": "127.0.0.1:1", "pipeline": "p", "topic": "t"})
    monkeypatch.setattr(writer, "_start", lambda *_: step())  # type: ignore[operator]
    with pytest.raises(Exception) as failed:
        writer._write_or_resume(SimpleNamespace(), 0, SimpleNamespace(run_id="r", query_id="q"))  # type: ignore[arg-type]
    return failed.type, "".join(traceback.format_exception(failed.value))


@pytest.mark.parametrize(
    "step",
    [
        interrupted,
        interrupted_while_reading,
        interrupted_while_giving_up,
        cancelled_before_it_was_interrupted,
    ],
)
def test_a_stop_is_a_short_text_wherever_it_interrupts_the_batch(monkeypatch: pytest.MonkeyPatch, step: object) -> None:
    """The offset log's error had Java's stack trace behind it: 9,500 characters, and Spark's pattern overflowed its
    stack.
    """
    kind, text = text_of(monkeypatch, step)

    assert kind is QueryStopped
    found = SPARKS_PATTERN.search(text)
    assert found
    assert len(text) - found.start() < 300


def test_another_failure_stays_what_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    kind, text = text_of(monkeypatch, failed_for_another_reason)
    assert kind is PipelineConflict
    assert "ValueError: x" in text


def test_a_job_that_a_person_cancelled_is_no_stop_of_the_query(monkeypatch: pytest.MonkeyPatch) -> None:
    kind, _ = text_of(monkeypatch, cancelled_by_a_person)
    assert kind is Py4JJavaError
