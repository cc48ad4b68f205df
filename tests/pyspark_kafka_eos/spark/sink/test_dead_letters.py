"""`dead.letter.topic` in a streaming query: bad rows stop nothing and are not lost. The kinds are in
tests/pyspark_kafka_eos/commit.
"""

from __future__ import annotations

from collections import Counter

import pytest
from pyspark.sql import functions as sf

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


def every_fifth_bad(source):
    return source.select(
        sf.col("value").cast("string").alias("value"),
        sf.when(sf.col("value") % 5 == 0, 99).cast("int").alias("partition"),
    )


def values(messages) -> Counter[int]:
    return Counter(int(message.value()) for message in messages)


@pytest.mark.parametrize("scope", ["task", "batch"])
def test_a_query_goes_on_over_bad_rows_and_each_is_a_dead_letter_once(run_query, read_topic, topic, scope) -> None:
    good, dead = topic(), topic()
    options = {"topic": good, "pipeline": f"p-{good}", "dead.letter.topic": dead, "transaction.scope": scope}

    outcome = run_query(every_fifth_bad, options, batches=3)

    assert outcome.raised is None
    assert values(read_topic(good)) == Counter(number for number in range(30) if number % 5)
    assert values(read_topic(dead)) == Counter(range(0, 30, 5))
    assert [(each.records, each.dead_letters) for each in outcome.reports] == [(10, 2)] * 3
    batches = {dict(message.headers())["kafka_eos.error.batch"] for message in read_topic(dead)}
    assert batches == {b"0", b"1", b"2"}
