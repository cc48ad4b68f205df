"""A Spark is given the classes of its own environment, and none where there are none."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.quick_start import CLASSES, QUICK_START, flags


def test_java_is_given_the_classes_of_the_environment_whose_spark_it_runs(tmp_path: Path) -> None:
    (tmp_path / CLASSES).write_bytes(b"classes")

    assert f'"-XX:SharedArchiveFile={tmp_path / CLASSES}"' in flags(tmp_path)


@pytest.mark.parametrize("kept", [None, b""], ids=["no file", "a Java that kept none"])
def test_java_is_given_no_classes_where_none_are_kept(tmp_path: Path, kept: bytes | None) -> None:
    if kept is not None:
        (tmp_path / CLASSES).write_bytes(kept)

    assert flags(tmp_path) == QUICK_START
