"""Which class of error ended a query, out of the text that Spark has of it; and that executors need none of this."""

from __future__ import annotations

import subprocess
import sys

import pytest

from connector.spark.metrics.listener import error_name


@pytest.mark.parametrize(
    ("text", "spark_class", "named"),
    [
        (None, None, None),
        (
            "...\nconnector.errors.DecisionBroken: slot 3",
            "FOREACH_BATCH_USER_FUNCTION_ERROR",
            "DecisionBroken",
        ),
        (
            "connector.errors.BrokerUnavailable: x\n\nThe above exception was the direct cause\n"
            "connector.errors.OutcomeUnknown: y",
            None,
            "OutcomeUnknown",
        ),
        ("connector.errors.Nonsense: x", "SOME_CLASS", "SOME_CLASS"),
        ("java.lang.OutOfMemoryError", None, "other"),
    ],
)
def test_the_class_of_the_error_is_found_in_sparks_text(
    text: str | None, spark_class: str | None, named: str | None
) -> None:
    assert error_name(text, spark_class) == named


def test_what_an_executor_imports_has_neither_rich_nor_prometheus() -> None:
    code = (
        "import sys, connector.spark.tasks, connector.spark.source, pyspark_kafka_eos, connector.spark.foreach_batch\n"
        "print(sorted({'rich', 'prometheus_client', 'typer'} & set(sys.modules)))"
    )

    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert found.stdout.strip() == "[]"
