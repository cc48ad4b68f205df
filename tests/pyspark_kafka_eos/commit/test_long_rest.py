"""A pipeline that rests for 30 days: its ids have expired, its records and its group's offsets are gone. It goes on."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from embedded_kafka.embedded import EmbeddedKafka
from kafka_core.errors import DecisionBroken
from tests.conftest import topics_of
from tests.pyspark_kafka_eos.commit.batch_child import run_batch
from tests.pyspark_kafka_eos.commit.child import RunBatch, run, run_child
from tests.pyspark_kafka_eos.commit.judge import EXPECTED, read_all, settings_for
from tests.pyspark_kafka_eos.commit.phases import play_batch
from tests.pyspark_kafka_eos.commit.resting import rest
from tests.pyspark_kafka_eos.commit.test_damage import following, rows_of, with_options
from tests.pyspark_kafka_eos.commit.test_dataframe_write import killed_at
from tests.pyspark_kafka_eos.commit.test_dataframe_write import write as write_frame

pytestmark = pytest.mark.kafka

VERSIONS = [pytest.param("2", marks=pytest.mark.embedded), pytest.param("1", marks=pytest.mark.chaos)]
"""Transaction versions. The older one takes as long again, so it is left to `make chaos`; both on the embedded
broker.
"""

NOTHING: Counter[str] = Counter()


@pytest.fixture(params=VERSIONS)
def broker(request: pytest.FixtureRequest) -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(in_process=True, config={"transaction.version": request.param}) as kafka:
        yield kafka


@pytest.fixture(params=[run, run_batch], ids=["task", "batch"])
def run_it(request: pytest.FixtureRequest) -> RunBatch:
    """A micro-batch in either scope."""
    found: RunBatch = request.param
    return found


def resting(broker: EmbeddedKafka) -> dict[str, Any]:
    """Settings of a pipeline whose topic has retention."""
    settings = settings_for(broker)
    settings["options"]["topic"] = topics_of(broker)(**{"segment.ms": "1000"})
    return settings


def named(settings: dict[str, Any]) -> tuple[list[str], str]:
    """The pipeline's topic, and its name."""
    return [settings["options"]["topic"]], settings["options"]["pipeline"]


def test_a_stream_goes_on_with_its_next_batch(broker: EmbeddedKafka, run_it: RunBatch) -> None:
    settings = resting(broker)
    run_it(settings)
    rest(broker, *named(settings))

    report = run_it(following(settings))

    assert (report["batch"], report["resumed"], report["records"]) == (1, False, 1200)
    assert read_all(broker, settings["options"]["topic"]) == rows_of(following(settings))


def test_a_batch_that_was_ended_is_not_written_again(broker: EmbeddedKafka, run_it: RunBatch) -> None:
    """Killed before Spark's commit log has the batch: the next run begins the same one."""
    settings = resting(broker)
    run_it(settings)
    rest(broker, *named(settings))

    report = run_it(settings)

    assert (report["batch"], report["resumed"], report["records"]) == (0, True, 1200)
    assert read_all(broker, settings["options"]["topic"], "read_uncommitted") == NOTHING
    assert run_it(following(settings))["resumed"] is False


@pytest.mark.parametrize("scope", ["task", "batch"])
def test_a_batch_that_was_ended_is_not_proven_again_by_format(broker: EmbeddedKafka, scope: str) -> None:
    """Its two processes on the driver, each of which looks at the ledger."""
    settings = with_options(resting(broker), transaction_scope=scope)
    played = play_batch(settings)
    rest(broker, *named(settings))

    again = play_batch(settings)

    assert (played.resumed, again.resumed, again.records) == (False, True, 1200)
    assert read_all(broker, settings["options"]["topic"], "read_uncommitted") == NOTHING
    assert play_batch({**settings, "batch": 1}).resumed is False


def test_a_data_frame_that_was_written_is_not_proven_again(broker: EmbeddedKafka) -> None:
    settings = with_options(resting(broker), batch_id="7")
    assert write_frame(settings["options"], [["once"]]) == {"records": 1, "repaired": 0}
    rest(broker, *named(settings))

    again = write_frame(settings["options"], [["once"]])

    assert again == {}
    assert read_all(broker, settings["options"]["topic"], "read_uncommitted") == NOTHING


def test_the_other_scope_goes_on(broker: EmbeddedKafka, run_it: RunBatch) -> None:
    settings = resting(broker)
    (run if run_it is run_batch else run_batch)(settings)
    rest(broker, *named(settings))

    assert run_it(settings)["resumed"] is True
    assert run_it(following(settings))["resumed"] is False


def test_a_new_checkpoint_takes_the_pipeline_over(broker: EmbeddedKafka, run_it: RunBatch) -> None:
    settings = resting(broker)
    run_it(settings)
    rest(broker, *named(settings))
    taken_over = with_options({**following(settings), "query": "query-2", "batch": 0}, adopt_checkpoint="true")

    assert run_it(taken_over)["resumed"] is False

    assert read_all(broker, settings["options"]["topic"]) == rows_of(following(settings))
    assert run_it({**settings, "query": "query-2", "batch": 1})["resumed"] is False


def test_a_data_frame_is_written_every_eight_days(broker: EmbeddedKafka, request: pytest.FixtureRequest) -> None:
    settings = resting(broker)
    # As often as there is time for.
    for week in range(10 if request.node.get_closest_marker("chaos") else 3):
        rows = [[f"week {week} row {row}"] for row in range(3)]
        assert write_frame(settings["options"], rows) == {"records": 3, "repaired": 0}
        assert read_all(broker, settings["options"]["topic"]) == Counter(row for each in rows for row in each)
        rest(broker, *named(settings), days=8)


def test_a_failed_write_after_the_rest_hinders_no_later_one(broker: EmbeddedKafka) -> None:
    options = resting(broker)["options"]
    settings = {"options": options}
    assert write_frame(options)["records"] == 1200
    rest(broker, *named(settings))
    with pytest.raises(Failed):
        write_frame(options, Failing())
    assert write_frame(options, [["after"]]) == {"records": 1, "repaired": 0}
    assert read_all(broker, options["topic"]) == Counter(["after"])


class Failed(Exception):
    """What a task raises."""


class Failing(list):  # type: ignore[type-arg]
    """Rows whose second slot raises."""

    def __iter__(self) -> Iterator[list[str]]:
        yield ["never to be seen"]
        raise Failed


UNKNOWABLE = {"before-end": NOTHING, "before-note-ended": EXPECTED}
"""Where a run is killed, and what readers have seen of its batch."""


@pytest.mark.parametrize("point", sorted(UNKNOWABLE))
def test_a_decided_batch_of_which_nothing_is_known_any_more_is_not_called_committed(
    broker: EmbeddedKafka, point: str
) -> None:
    """Nobody came back before its ids expired and retention took its records: it may have timed out, unseen by any
    reader.
    """
    settings = resting(broker)
    finished = run_child(settings, point)
    assert finished.exitcode == -signal.SIGKILL, finished.report
    assert read_all(broker, settings["options"]["topic"]) == UNKNOWABLE[point]
    rest(broker, *named(settings))

    error = run_child(settings).report.get("error", "")

    assert error.startswith("DecisionBroken"), error
    assert "adopt.checkpoint=true" in error
    assert f"{settings['options']['topic']}-" in error
    assert read_all(broker, settings["options"]["topic"], "read_uncommitted") == NOTHING
    # Who has checked it says so.
    adopted = with_options(settings, adopt_checkpoint="true")
    assert run_child(adopted).report.get("resumed") is True
    assert run_child(settings).report.get("resumed") is True
    assert run_child(following(settings)).report.get("resumed") is False


def test_a_write_of_which_nothing_is_known_any_more_hinders_later_ones_until_it_is_adopted(
    broker: EmbeddedKafka,
) -> None:
    settings = resting(broker)
    killed_at("before-end", settings["options"])
    rest(broker, *named(settings))

    for _ in range(2):
        with pytest.raises(DecisionBroken, match=r"adopt\.checkpoint=true"):
            write_frame(settings["options"], [["later"]])

    adopted = with_options(settings, adopt_checkpoint="true")["options"]
    assert write_frame(adopted, [["later"]])["records"] == 1
    assert write_frame(settings["options"], [["latest"]])["records"] == 1
    assert read_all(broker, settings["options"]["topic"]) == Counter(["later", "latest"])


def test_a_decided_batch_in_one_transaction_is_committed_whatever_its_log_has_kept(
    broker: EmbeddedKafka,
) -> None:
    settings = resting(broker)
    assert run_child(settings, "after-decision", run_batch).exitcode == -signal.SIGKILL
    rest(broker, *named(settings))

    assert run_batch(settings)["resumed"] is True
    assert run_batch(following(settings))["resumed"] is False


def test_a_decided_batch_whose_fate_can_be_found_out_is_not_taken_on_trust(broker: EmbeddedKafka) -> None:
    """adopt.checkpoint is for what nobody can know."""
    settings = with_options(resting(broker), adopt_checkpoint="true")
    assert run_child(settings, "before-end").exitcode == -signal.SIGKILL
    broker.advance(16 * 60 * 1000)

    report = run_child(settings).report

    assert (report.get("resumed"), report.get("repaired")) == (True, 1)
    assert read_all(broker, settings["options"]["topic"]) == EXPECTED
