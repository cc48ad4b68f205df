"""The options of a job that comes from another connector: where each one goes, and that the rest is accepted."""

from __future__ import annotations

import pytest

from pyspark_kafka_eos.options import OptionValue, SinkOptions, SourceOptions, migrate
from pyspark_kafka_eos.options.migration import SECRET, side_of

CONFLUENT: dict[str, OptionValue] = {
    "bootstrap.servers": "pkc.confluent.cloud:9092",
    "security.protocol": "SASL_SSL",
    "sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required username='KEY' password='HIDDEN';",
    "sasl.mechanism": "PLAIN",
    "client.dns.lookup": "use_all_dns_ips",
    "session.timeout.ms": 45000,
    "acks": "all",
}
"""The properties that Confluent Cloud shows for a Java client."""


def test_a_java_clients_properties_get_the_prefix_and_lose_what_has_no_effect() -> None:
    found = migrate({**CONFLUENT, "topic": "t"}, "sink")

    assert found.refused == []
    assert list(found.dropped) == ["kafka.session.timeout.ms"]
    assert set(found.options) == {f"kafka.{name}" for name in CONFLUENT if name != "session.timeout.ms"} | {"topic"}
    assert list(found.missing) == ["pipeline", "checkpointLocation"]


def test_no_secret_is_in_the_result() -> None:
    found = migrate(CONFLUENT, "sink")

    assert found.options["kafka.sasl.jaas.config"] == SECRET
    assert "HIDDEN" not in str(found)


def test_secrets_that_are_refused_are_not_shown_either() -> None:
    found = migrate({**CONFLUENT, "security.protocol": "PLAINTEXT"}, "sink")

    ((names, why),) = found.refused
    assert set(names) == {"kafka.sasl.jaas.config", "kafka.sasl.mechanism", "kafka.security.protocol"}
    assert "would have no effect" in why
    assert "HIDDEN" not in str(found)


def test_the_options_to_use_are_accepted_by_the_parser() -> None:
    source = migrate(
        {
            "kafka.bootstrap.servers": "b:9092",
            "subscribe": "t",
            "groupIdPrefix": "x",
            "kafka.fetch.max.bytes": "1",
            "kafka.enable.auto.commit": True,
            "includeHeaders": True,
        },
        "source",
    )

    assert [names for names, _ in source.refused] == [("kafka.enable.auto.commit",)]
    parsed = SourceOptions.parse(dict(source.options))
    assert (parsed.ignored, parsed.include_headers) == ((), True)


def test_the_missing_options_complete_those_of_a_sink() -> None:
    sink = migrate({"topic": "t", "kafka.linger.ms": 5, "kafka.batch.size": 16384}, "sink")

    stand_ins = {"kafka.bootstrap.servers": "b:9092", "pipeline": "p", "checkpointLocation": "/c"}
    assert set(sink.missing) == set(stand_ins)
    assert SinkOptions.parse({**sink.options, **stand_ins}).batch_bytes == 16384


def test_options_that_contradict_each_other_are_refused_together() -> None:
    found = migrate(
        {"subscribe": "t", "assign": '{"t":[0]}', "kafka.bootstrap.servers": "b:1", "minPartitions": 2},
        "source",
    )

    ((names, why),) = found.refused
    assert set(names) == {"subscribe", "assign"}
    assert why.startswith("Only one of the following options")
    assert list(found.options) == ["kafka.bootstrap.servers", "minPartitions"]


def test_the_default_that_differs_is_named_where_the_job_does_not_set_it() -> None:
    given: dict[str, OptionValue] = {"subscribe": "t", "kafka.bootstrap.servers": "b:1"}

    assert list(migrate(given, "source").different) == ["kafka.isolation.level"]
    assert migrate({**given, "kafka.isolation.level": "read_uncommitted"}, "source").different == {}


@pytest.mark.parametrize(("name", "side"), [("subscribe", "source"), ("ASSIGN", "source"), ("topic", "sink")])
def test_the_side_follows_from_the_option_that_names_topics(name: str, side: str) -> None:
    assert side_of({name: "x"}) == side
