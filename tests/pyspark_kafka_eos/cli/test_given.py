"""Options one by one, from a job's file, or both: what wins, and what is said of a wrong one."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_core.errors import OptionsError
from pyspark_kafka_eos.cli.given import gather

JOB = """
app_name: job
kafka: {bootstrap.servers: "${SERVERS:-a:1}", request.timeout.ms: 5000}
source: {subscribe: "in, more"}
sink: {topic: out, pipeline: from-the-file}
trigger: {available_now: true}
"""


@pytest.fixture
def job(tmp_path: Path) -> Path:
    path = tmp_path / "job.yaml"
    path.write_text(JOB)
    return path


def test_a_jobs_file_gives_the_sink_and_the_topics_of_the_source(job: Path) -> None:
    given = gather(job, [], None, environ={})

    options = given.options(None)
    assert (options.pipeline, options.topic) == ("from-the-file", "out")
    assert options.client.bootstrap_servers == ("a:1",)
    assert given.source_options is not None
    assert given.source_options.subscribe == ("in", "more")


def test_what_is_given_by_name_wins_over_the_file(job: Path) -> None:
    given = gather(job, ["topic=other", "kafka.request.timeout.ms=7000"], "b:2", environ={"SERVERS": "c:3"})

    options = given.options("by-hand")
    assert (options.pipeline, options.topic) == ("by-hand", "other")
    assert options.client.bootstrap_servers == ("b:2",)
    assert options.client.request_timeout_ms == 7000


def test_topics_that_are_assigned_partition_by_partition_are_known_too(job: Path) -> None:
    job.write_text(JOB.replace('subscribe: "in, more"', """assign: '{"in": [0, 1]}'"""))

    source = gather(job, [], None, environ={}).source_options

    assert source is not None
    assert source.assign == {"in": (0, 1)}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("kafka: [", "not YAML"),
        ("just words", "expected fields"),
        ("sink: [1]", "sink: expected names and values"),
        ("sink: {topic: [a]}", "sink.topic: expected one value"),
        ("sink: {topic: '${NOBODY_SET_THIS}'}", "NOBODY_SET_THIS is not set"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_with_the_place(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(text)

    with pytest.raises(OptionsError, match=said.replace(".", r"\.")):
        gather(path, [], None, environ={})


def test_an_option_without_a_value_is_refused_without_showing_it() -> None:
    with pytest.raises(OptionsError, match="NAME=VALUE") as raised:
        gather(None, ["kafka.sasl.password:secret"], None)

    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("name", ["kafka.sasl.password", "kafka.sasl.jaas.config", "kafka.SSL.Key.Password"])
def test_a_secret_on_the_command_line_is_refused_and_the_name_of_its_place_is_taken(name: str) -> None:
    with pytest.raises(OptionsError, match="visible to every user") as caught:
        gather(None, [f"{name}=hunter2"], None)

    assert "hunter2" not in str(caught.value)
    assert gather(None, [f"{name}=${{env:HUNTER}}"], None).sink == {name: "${env:HUNTER}"}
