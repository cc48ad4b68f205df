"""Which class of error ended a query, out of the text that Spark has of it; and that executors need none of this."""

from __future__ import annotations

import subprocess
import sys

import pytest

from pyspark_kafka_eos.spark.metrics.listener import error_name


@pytest.mark.parametrize(
    ("text", "spark_class", "named"),
    [
        (None, None, None),
        (
            "...\nkafka_core.errors.DecisionBroken: slot 3",
            "FOREACH_BATCH_USER_FUNCTION_ERROR",
            "DecisionBroken",
        ),
        (
            "kafka_core.errors.BrokerUnavailable: x\n\nThe above exception was the direct cause\n"
            "kafka_core.errors.OutcomeUnknown: y",
            None,
            "OutcomeUnknown",
        ),
        ("kafka_core.errors.Nonsense: x", "SOME_CLASS", "SOME_CLASS"),
        ("java.lang.OutOfMemoryError", None, "other"),
    ],
)
def test_the_class_of_the_error_is_found_in_sparks_text(
    text: str | None, spark_class: str | None, named: str | None
) -> None:
    assert error_name(text, spark_class) == named


@pytest.mark.processes
def test_what_an_executor_imports_has_neither_rich_nor_prometheus() -> None:
    code = (
        "import sys, pyspark_kafka_eos.spark.sink.tasks, pyspark_kafka_eos.spark.source.source, pyspark_kafka_eos, pyspark_kafka_eos.spark.sink.foreach_batch\n"
        "print(sorted({'rich', 'prometheus_client', 'typer'} & set(sys.modules)))"
    )

    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert found.stdout.strip() == "[]"
