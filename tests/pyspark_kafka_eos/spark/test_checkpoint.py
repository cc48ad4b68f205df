"""A checkpoint read without Spark: which query, which batch, which offsets; and what cannot be read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kafka_core.errors import OptionsError, PipelineConflict
from pyspark_kafka_eos.spark.checkpoint import Checkpoint, _open

OFFSETS = 'v1\n{"batchWatermarkMs":0}\n{"source":{"0":7}}\n-\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A checkpoint of query-1 that runs batch 11."""
    (tmp_path / "metadata").write_text(json.dumps({"id": "query-1"}))
    (tmp_path / "offsets").mkdir()
    for name in ("9", "10", "11", ".11.crc", ".12.5f.tmp", "11.crc"):
        (tmp_path / "offsets" / name).write_text(OFFSETS)
    return tmp_path


@pytest.mark.parametrize("form", ["{0}", "{0}/", "file:{0}", "file://{0}", "dbfs:/Volumes{0}"])
def test_a_local_checkpoint_is_found_in_every_form(folder: Path, form: str) -> None:
    checkpoint = Checkpoint(form.format(folder))
    if form.startswith("dbfs"):
        assert _open(checkpoint.location)[1] == f"/Volumes{folder}"
        return

    assert checkpoint.query_id() == "query-1"
    assert checkpoint.newest_batch() == 11
    assert checkpoint.source_offsets(11) == ('{"source":{"0":7}}', "-")


def test_a_databricks_path_that_is_no_volume_is_read_through_its_mount() -> None:
    assert _open("dbfs:/checkpoints/a")[1] == "/dbfs/checkpoints/a"


def test_a_hundred_queries_of_a_driver_keep_their_file_systems() -> None:
    """Sixteen were kept, and queries take turns: from the seventeenth on, every batch connected to its store anew."""
    checkpoints = [f"/checkpoints/{number}" for number in range(100)]

    opened = [_open(each) for each in checkpoints]

    assert all(_open(each) is before for each, before in zip(checkpoints, opened, strict=True))


def test_a_scheme_that_cannot_be_read_names_foreach_batch_as_the_way_out() -> None:
    with pytest.raises(OptionsError, match="foreachBatch"):
        Checkpoint("wasbs://container@account/checkpoint").query_id()


def test_a_place_without_a_checkpoint_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionsError, match="no query's metadata"):
        Checkpoint(str(tmp_path)).query_id()


def test_an_offset_log_without_a_batch_is_refused_because_spark_runs_none(folder: Path) -> None:
    for path in (folder / "offsets").iterdir():
        path.unlink()

    with pytest.raises(OptionsError, match="continuous"):
        Checkpoint(str(folder)).newest_batch()


def test_a_damaged_offset_log_is_refused(folder: Path) -> None:
    (folder / "offsets" / "11").write_text("v9\n{}\n-\n")

    with pytest.raises(PipelineConflict, match="has an unknown format"):
        Checkpoint(str(folder)).source_offsets(11)


def test_a_batch_whose_offsets_are_gone_is_refused(folder: Path) -> None:
    with pytest.raises(PipelineConflict, match="cannot be read"):
        Checkpoint(str(folder)).source_offsets(12)


def test_of_an_earlier_batch_whose_offsets_are_gone_nothing_is_known(folder: Path) -> None:
    """Spark deletes old files; a run that needs the file for its own batch is refused."""
    checkpoint = Checkpoint(str(folder))

    assert checkpoint.earlier_offsets(11) == checkpoint.source_offsets(11)
    assert checkpoint.earlier_offsets(3) is None


@pytest.mark.parametrize("seen", [("query-2", "11"), ("query-1", "12"), ("query-1", None), (None, None)])
def test_a_task_of_another_query_or_batch_is_refused(folder: Path, seen: tuple[str | None, str | None]) -> None:
    with pytest.raises(PipelineConflict, match="nothing was written"):
        Checkpoint(str(folder)).require("query-1", 11, seen)


def test_the_task_of_the_batch_may_write(folder: Path) -> None:
    Checkpoint(str(folder)).require("query-1", 11, ("query-1", "11"))
