"""The data directory: one broker at a time, of a version that can read it."""

from __future__ import annotations

from pathlib import Path

import pytest

from embedded_kafka.storage import FORMAT_VERSION, DataDirectory, read_json, write_json
from kafka_core.errors import LogDamaged, StorageInUse, UnsupportedVersion


def test_a_cluster_keeps_its_id(tmp_path: Path) -> None:
    first = DataDirectory(tmp_path)
    first.release()
    second = DataDirectory(tmp_path)
    second.release()

    assert first.cluster_id == second.cluster_id
    assert len(first.cluster_id) == 22


def test_a_directory_in_use_is_refused_and_unchanged(tmp_path: Path) -> None:
    holder = DataDirectory(tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    try:
        with pytest.raises(StorageInUse, match="another broker"):
            DataDirectory(tmp_path)
        assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before
    finally:
        holder.release()
    DataDirectory(tmp_path).release()


def test_a_directory_of_a_newer_version_is_refused_and_unchanged(tmp_path: Path) -> None:
    write_json(tmp_path / "meta.json", {"version": FORMAT_VERSION + 1, "cluster_id": "x" * 22})

    with pytest.raises(UnsupportedVersion, match="newer version"):
        DataDirectory(tmp_path)
    assert read_json(tmp_path / "meta.json")["version"] == FORMAT_VERSION + 1


@pytest.mark.parametrize("version", [0, -3, "1", 1.9, True, None])
def test_a_directory_of_no_version_is_refused_and_unchanged(tmp_path: Path, version: object) -> None:
    write_json(tmp_path / "meta.json", {"version": version, "cluster_id": "x" * 22})

    with pytest.raises(LogDamaged, match="restore the file"):
        DataDirectory(tmp_path)
    assert read_json(tmp_path / "meta.json")["version"] == version


def test_a_directory_whose_meta_is_null_is_no_new_one(tmp_path: Path) -> None:
    write_json(tmp_path / "meta.json", None)

    with pytest.raises(LogDamaged, match="restore the file"):
        DataDirectory(tmp_path)
    assert read_json(tmp_path / "meta.json") is None


def test_a_small_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    assert read_json(path) is None
    write_json(path, [1])
    write_json(path, [2])

    assert read_json(path) == [2]
    assert [each.name for each in tmp_path.iterdir()] == ["file.json"]
